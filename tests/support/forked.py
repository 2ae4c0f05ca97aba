"""Processes forked from one that has imported Omnigraph: as real as a fresh one, started at once.

Starting Python and importing what a command needs takes a second of work; a fork takes some
milliseconds. A forked command has its own streams, environment, folder, signals and exit code. What
happens before `main` it cannot show: tests of the start itself run `python -m omnigraph.cli`.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import multiprocessing
import os
import signal
import sys
import threading
import warnings
from collections.abc import Mapping
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 120.0

FORK_SERVER = multiprocessing.get_context("forkserver")
# There is one fork server per process, and it imports these before its first fork. Everything that
# is forked from it has to be named here: what is missing is imported again by each child.
FORK_SERVER.set_forkserver_preload(
    [
        "tests.support.forked",
        "tests.crash.child",
        "tests.crash.soak_worker",
        "tests.crash.test_storage_faults",
        "tests.simulate.worker",
        "omnigraph.cli.main",
        "omnigraph.client",
        "omnigraph.loading.in_process",
        "omnigraph.loading.inputs",
        "omnigraph.loading.load",
        "omnigraph.engines.local.engine",
        "omnigraph.server.app",
        "uvicorn",
    ]
)

# The server that forks imports Lance and never uses it, which is safe.
warnings.filterwarnings("ignore", message="lance is not fork-safe")

CAPABILITIES_VERSION = 0x20080522

GARBAGE_THRESHOLDS = (50_000, 20, 20)
"""How seldom tests and their processes look for garbage, as `gc.set_threshold` takes it."""


class Command:
    """An `omnigraph` command in a forked process, with the methods of `subprocess.Popen`."""

    def __init__(
        self,
        *arguments: object,
        cwd: Path = ROOT,
        env: Mapping[str, str] | None = None,
        streams: int | None = None,
        overrides_permissions: bool = True,
    ) -> None:
        """Start it.

        Without ``streams``, a descriptor for all three, its output goes to pipes. One that does not
        override permissions obeys the modes of files, also where the tests are run by root.
        """
        self.stdout: IO[bytes] | None = None
        self.stderr: IO[bytes] | None = None
        if streams is None:
            (self.stdout, out), (self.stderr, err) = _pipe(), _pipe()
            given = [os.open(os.devnull, os.O_RDONLY), out, err]
        else:
            given = [os.dup(streams) for _ in range(3)]
        passed = [Connection(each) for each in given]
        self._process: Any = FORK_SERVER.Process(
            target=_run,
            args=(
                [*map(str, arguments)],
                str(cwd),
                dict(os.environ if env is None else env),
                passed,
                overrides_permissions,
            ),
        )
        self._process.start()
        for each in passed:
            each.close()

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    @property
    def returncode(self) -> int | None:
        """The exit code, the negative number of the signal that killed it, or None."""
        code: int | None = self._process.exitcode
        return code

    def poll(self) -> int | None:
        return self.returncode

    def wait(self, timeout: float = PATIENCE_SECONDS) -> int:
        self._process.join(timeout)
        code = self.returncode
        assert code is not None, f"process {self.pid} did not end"
        return code

    def communicate(self, timeout: float = PATIENCE_SECONDS) -> tuple[bytes, bytes]:
        """Everything it still prints, when it has ended."""
        said: dict[int, bytes] = {}
        pipes = [each for each in (self.stdout, self.stderr) if each is not None]

        def read(pipe: IO[bytes]) -> None:
            with pipe:
                said[id(pipe)] = pipe.read()

        readers = [threading.Thread(target=read, args=(pipe,)) for pipe in pipes]
        for reader in readers:
            reader.start()
        self.wait(timeout)
        for reader in readers:
            reader.join()
        return said.get(id(self.stdout), b""), said.get(id(self.stderr), b"")

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def enter(environment: Mapping[str, str]) -> None:
    """In a child: take over an environment, instead of that of the test which started the server.

    Failpoints are armed too, which a fresh process does when it imports their module.
    """
    from omnigraph.effects import failpoints

    gc.freeze()  # what the server has imported stays
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    os.environ.clear()
    os.environ.update(environment)
    failpoints._plans.update(failpoints.parse(environment.get(failpoints.VARIABLE, "")))


def _pipe() -> tuple[IO[bytes], int]:
    reading, writing = os.pipe()
    return os.fdopen(reading, "rb"), writing


def _run(
    arguments: list[str],
    cwd: str,
    environment: dict[str, str],
    streams: list[Connection],
    overrides_permissions: bool,
) -> None:
    """In the child: what a fresh interpreter has done when it calls `main`."""
    from omnigraph.cli.main import main

    for number, stream in enumerate(streams):
        os.dup2(stream.fileno(), number)
        stream.close()
    sys.stdin = os.fdopen(0, closefd=False)
    sys.stdout = os.fdopen(1, "w", closefd=False)
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    enter(environment)
    os.chdir(cwd)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if not overrides_permissions:
        none_at_all = (ctypes.c_uint32 * 6)()
        header = (ctypes.c_uint32 * 2)(CAPABILITIES_VERSION, 0)
        assert ctypes.CDLL(None).capset(header, none_at_all) == 0
    code = main(arguments)
    atexit._run_exitfuncs()
    sys.exit(code)
