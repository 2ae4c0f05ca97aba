"""Starting the processes of this suite, and waiting for what they do."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omnigraph.effects.failpoints import VARIABLE
from tests.crash import child
from tests.support.forked import FORK_SERVER

ROOT = Path(__file__).parents[2]
PATIENCE_SECONDS = 60.0


@dataclass
class Child:
    """A process on its way through one operation."""

    process: Any
    answer_file: Path

    @property
    def pid(self) -> int:
        return int(self.process.pid)

    def wait(self) -> int:
        """Wait for its end; the negative number of the signal that killed it, or 0."""
        self.process.join(PATIENCE_SECONDS)
        code = self.process.exitcode
        if code is None:
            self.kill()
            raise AssertionError(f"process {self.pid} did not end")
        return int(code)

    def kill(self) -> None:
        """Kill it, running or stopped."""
        os.kill(self.pid, signal.SIGKILL)
        self.process.join(PATIENCE_SECONDS)

    @property
    def answer(self) -> dict[str, Any] | None:
        """What the operation returned or raised; None if it was never acknowledged."""
        try:
            said: dict[str, Any] = json.loads(self.answer_file.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        return said

    def finished(self) -> dict[str, Any]:
        """Wait for the operation to be answered."""
        assert self.wait() == 0
        said = self.answer
        assert said is not None
        return said


def start(
    name: str, root: Path, failpoints: str = "", environment: Mapping[str, str] | None = None
) -> Child:
    """Start an operation in a process of its own."""
    answer = _answer_file(root)
    settings = {**os.environ, **(environment or {}), VARIABLE: failpoints}
    process = FORK_SERVER.Process(
        target=child.forked, args=(name, str(root), str(answer), settings)
    )
    process.start()
    return Child(process, answer)


def killed(
    name: str, root: Path, failpoints: str, environment: Mapping[str, str] | None = None
) -> Child:
    """Run an operation into its death; fails if it survives."""
    victim = start(name, root, failpoints, environment)
    code = victim.wait()
    assert code == -signal.SIGKILL, f"{name} ended with {code}: {victim.answer}"
    return victim


def spawned(name: str, root: Path, failpoints: str = "") -> tuple[int, dict[str, Any] | None]:
    """The same as a program started from nothing, armed by its environment alone."""
    answer = _answer_file(root)
    run = subprocess.run(
        [sys.executable, "-m", "tests.crash.child", name, str(root), str(answer)],
        cwd=ROOT,
        env={**os.environ, VARIABLE: failpoints},
        timeout=PATIENCE_SECONDS,
        check=False,
    )
    return run.returncode, json.loads(answer.read_text()) if answer.exists() else None


class Pause:
    """A place where a process waits until it is told to go on."""

    def __init__(self, directory: Path) -> None:
        self.marker = directory / f"pause-{time.monotonic_ns()}"

    def at(self, nth: int = 1) -> str:
        """The action that stops a process there, once, at the nth passing."""
        return f"pause:{self.marker}@{nth}*1"

    def reached(self) -> None:
        """Wait for the process to arrive."""
        wait_until(self.marker.exists, "a process reaches its pause")

    def end(self) -> None:
        """Let the process go on."""
        self.marker.unlink()


def wait_until(condition: Callable[[], bool], what: str) -> None:
    """Wait until something another process does has happened."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"timed out waiting until {what}"
        time.sleep(0.005)


def _answer_file(root: Path) -> Path:
    directory = root.parent / "answers"
    directory.mkdir(exist_ok=True)
    return directory / f"{time.monotonic_ns()}.json"
