"""Several server processes: a supervisor, and workers that share its address.

Each worker is a complete server with its own graphs, threads and caches. The kernel assigns each
new connection to one of them. Stored data needs no coordination between them, since any number of
processes may write to a graph; shared limits and metrics are in `server.shared`.

The supervisor opens no graph. It starts workers, restarts those that died, forwards signals, and
gives up with an error when they die too often.
"""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson

from omnigraph.errors import InputError, InternalError, OmnigraphError
from omnigraph.model.governor import CACHE_BYTES_VARIABLE, bytes_from_environment
from omnigraph.model.records import dataclass
from omnigraph.server.admission import QUERIES_BYTES_VARIABLE, Admission
from omnigraph.server.config import ServerConfig
from omnigraph.server.logs import LogPipe, configure_logs
from omnigraph.server.run import EXIT_INTERRUPTED, RunningServer, address_of, bound, serve_here
from omnigraph.server.shared import (
    WORKERS_MAX,
    MetricsBoard,
    SharedAdmission,
    SharedAttempts,
    SharedState,
    retire,
)

log = logging.getLogger(__name__)

DEATHS_MAX = 5
DEATHS_SECONDS = 60.0
"""This many deaths of workers within these seconds end the server."""
RESTART_SECONDS = 0.2
RESTART_SECONDS_MAX = 5.0
"""The maximum pause before a worker is restarted; the pause doubles after each death."""
KILL_SECONDS = 5.0
"""How long a worker may take to end beyond its shutdown time, before it is killed."""
_SHARED_VARIABLES = (CACHE_BYTES_VARIABLE, QUERIES_BYTES_VARIABLE)
"""Memory budgets of the server, divided among the workers."""


@dataclass(frozen=True, slots=True)
class Task:
    """The settings of a worker."""

    config: ServerConfig
    number: int
    workers: int
    state_fd: int
    folder: Path


# --- the supervisor -------------------------------------------------------------------------------


class _Running:
    """A worker process, from the supervisor's side."""

    def __init__(self, number: int, process: subprocess.Popen[bytes]) -> None:
        self.number = number
        self.process = process
        self.is_ready = False
        self.reloads = False
        """Whether it must reload as soon as it listens."""
        self.failure: dict[str, Any] | None = None
        """The error with which it failed to start."""

    @property
    def name(self) -> str:
        """The name of its metrics file."""
        return f"{self.number}-{self.process.pid}"

    def reason(self) -> str:
        """How it ended."""
        if self.failure is not None:
            return str(self.failure["message"])
        code = self.process.returncode
        if code is not None and code < 0:
            return f"signal {-code} ({signal.strsignal(-code) or 'unknown'})"
        return f"exit code {code}"


def supervise(config: ServerConfig, announce: Callable[[str], None]) -> int:
    """Serve by workers until a signal ends it, and return the exit code.

    Raises `InputError` for settings with which no worker can start, and `InternalError` if workers
    die repeatedly.
    """
    _require_possible(config)
    _, pipe = configure_logs(config.log_format, is_quiet=not config.logs_requests)
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="omnigraph-workers-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        state_file = stack.enter_context(tempfile.TemporaryFile())
        # Binding without SO_REUSEPORT fails if another server listens there, with or without
        # workers.
        bound(config.bind).close()
        reserved = stack.enter_context(bound(config.bind, shares=True))
        config = replace(
            config,
            bind=address_of(reserved),
            environment=_environment_of_workers(config),
            connections_max=-(-config.connections_max // config.workers),
        )
        if config.metrics_bind is not None:
            bound(config.metrics_bind).close()
            numbers = stack.enter_context(bound(config.metrics_bind, shares=True))
            config = replace(config, metrics_bind=address_of(numbers))
        state = SharedState(state_file.fileno(), config.workers)
        supervisor = Supervisor(config, state, state_file.fileno(), folder, pipe)
        stack.callback(supervisor.kill)
        return supervisor.run(announce)


def _require_possible(config: ServerConfig) -> None:
    if config.workers > WORKERS_MAX:
        raise InputError(
            f"{config.workers} workers are too many", hint=f"a server has up to {WORKERS_MAX}"
        )
    if config.owner is not None:
        raise InputError("Studio of one person has one process", hint="leave `--workers` out")
    if not sys.platform.startswith("linux"):
        raise InputError(
            "workers share an address as Linux does it, and this is another system",
            hint="leave `--workers` out, or start several servers behind a proxy",
        )


def _environment_of_workers(config: ServerConfig) -> dict[str, str]:
    """The environment of each worker, with its share of the memory of one server."""
    environment = dict(config.environment)
    for name in _SHARED_VARIABLES:
        environment[name] = str(max(1, bytes_from_environment(name) // config.workers))
    return environment


class Supervisor:
    """Keeps the workers of one server running."""

    def __init__(
        self,
        config: ServerConfig,
        state: SharedState,
        state_fd: int,
        folder: Path,
        pipe: LogPipe | None = None,
    ) -> None:
        self._config = config
        self._state = state
        self._state_fd = state_fd
        self._folder = folder
        self._pipe = pipe
        self._running: dict[int, _Running] = {}
        self._due: dict[int, float] = {}
        """When each dead worker is restarted."""
        self._deaths: deque[float] = deque()
        self._selector = selectors.DefaultSelector()
        self._stops_at: float | None = None
        self._exit_code = 0
        self._failure: OmnigraphError | None = None
        self._has_announced = False

    def run(self, announce: Callable[[str], None]) -> int:
        """Run until a signal."""
        with _Signals() as signals:
            self._selector.register(signals.arrived, selectors.EVENT_READ, None)
            # Start a single worker first, so that a configuration error is reported once.
            self._start(0)
            while self._running or self._due:
                self._step(signals)
                self._announce_once(announce)
        if self._pipe is not None:
            self._pipe.close()
        if self._failure is not None:
            raise self._failure
        return self._exit_code

    def kill(self) -> None:
        """Kill all workers at once."""
        for worker in self._running.values():
            with suppress(OSError):
                worker.process.kill()
            worker.process.wait()

    def _announce_once(self, announce: Callable[[str], None]) -> None:
        if self._has_announced or self._stops_at is not None:
            return
        ready = [worker for worker in self._running.values() if worker.is_ready]
        if len(ready) == 1 and len(self._running) == 1 and not self._due:
            for number in range(1, self._config.workers):
                self._start(number)
        elif len(ready) == self._config.workers:
            self._has_announced = True
            announce(self._config.bind)
            fields = {"address": self._config.bind, "workers": len(ready)}
            log.info("workers listen", extra={"fields": fields})

    def _step(self, signals: _Signals) -> None:
        """Wait for an event, and handle it."""
        now = time.monotonic()
        moments = [*self._due.values(), *([] if self._stops_at is None else [self._stops_at])]
        wait = max(0.0, min(moments, default=now + 60.0) - now)
        for key, _ in self._selector.select(wait):
            if key.data is None:
                for number in signals.take():
                    self._signal(number)
            else:
                self._read_message(key.data)
        for worker in list(self._running.values()):
            if worker.process.poll() is not None:
                self._ended(worker)
        now = time.monotonic()
        for number in [number for number, moment in self._due.items() if moment <= now]:
            del self._due[number]
            self._start(number)
        if self._stops_at is not None and now >= self._stops_at:
            log.error("workers killed", extra={"fields": {"workers": len(self._running)}})
            self.kill()
            self._stops_at = now + KILL_SECONDS

    # --- workers ---------------------------------------------------------------------------------

    def _start(self, number: int) -> None:
        process = subprocess.Popen(
            [sys.executable, "-m", "omnigraph.server.workers"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(self._state_fd,),
            env=dict(self._config.environment),
            # Ctrl-C at a terminal must reach only the supervisor, which then stops the workers.
            start_new_session=True,
        )
        assert process.stdin is not None and process.stdout is not None
        worker = _Running(number, process)
        self._running[number] = worker
        task = Task(self._config, number, self._config.workers, self._state_fd, self._folder)
        with suppress(BrokenPipeError):
            pickle.dump(task, process.stdin)
            process.stdin.flush()
        self._selector.register(process.stdout, selectors.EVENT_READ, worker)

    def _read_message(self, worker: _Running) -> None:
        """Read a worker's message: it listens, or it failed to start."""
        assert worker.process.stdout is not None
        line = worker.process.stdout.readline()
        if not line:
            self._selector.unregister(worker.process.stdout)
            worker.process.wait()
            return
        message = orjson.loads(line)
        if "message" in message:
            worker.failure = message
        else:
            worker.is_ready = True
            if worker.reloads:
                self._reload(worker)

    def _ended(self, worker: _Running) -> None:
        del self._running[worker.number]
        stdin, stdout = worker.process.stdin, worker.process.stdout
        assert stdin is not None and stdout is not None
        if stdout.fileno() in self._selector.get_map():
            rest = stdout.read()
            self._selector.unregister(stdout)
            with suppress(orjson.JSONDecodeError, IndexError):
                last = orjson.loads(rest.splitlines()[-1])
                worker.failure = last if "message" in last else worker.failure
        stdout.close()
        with suppress(OSError):
            stdin.close()
        self._state.clear(worker.number)
        retire(self._folder, worker.name)
        if self._stops_at is not None:
            return
        fields = {"worker": worker.number, "reason": worker.reason()}
        if not self._has_announced and worker.failure is not None:
            self._fail(InputError(worker.reason(), hint=worker.failure["hint"]))
            return
        log.error("worker ended", extra={"fields": fields})
        now = time.monotonic()
        self._deaths.append(now)
        while self._deaths[0] < now - DEATHS_SECONDS:
            self._deaths.popleft()
        if len(self._deaths) >= DEATHS_MAX:
            self._fail(self._too_many_deaths(worker))
            return
        pause = min(RESTART_SECONDS * 2 ** (len(self._deaths) - 1), RESTART_SECONDS_MAX)
        self._due[worker.number] = now + pause

    def _fail(self, failure: OmnigraphError) -> None:
        """Stop all workers as a signal would, then raise the error."""
        self._failure = failure
        self._stop()

    def _too_many_deaths(self, worker: _Running) -> InternalError:
        return InternalError(
            f"workers of the server ended {len(self._deaths)} times within "
            f"{DEATHS_SECONDS:.0f} seconds, the last one by {worker.reason()}",
            hint="the log above has what they said; `--workers 1` runs the same in one process",
        )

    # --- signals ---------------------------------------------------------------------------------

    def _signal(self, number: int) -> None:
        if number == signal.SIGHUP:
            for worker in self._running.values():
                self._reload(worker)
        elif number in (signal.SIGTERM, signal.SIGINT):
            if self._stops_at is not None:
                self._exit_code = EXIT_INTERRUPTED
            self._stop()

    def _stop(self) -> None:
        self._due.clear()
        for worker in self._running.values():
            _send(worker, signal.SIGTERM)
        if self._stops_at is None:
            self._stops_at = time.monotonic() + self._config.shutdown_seconds + KILL_SECONDS

    def _reload(self, worker: _Running) -> None:
        # The signal would kill a starting worker; it may have read outdated files, so it reloads
        # once ready.
        worker.reloads = not worker.is_ready
        if worker.is_ready:
            _send(worker, signal.SIGHUP)


def _send(worker: _Running, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        worker.process.send_signal(number)


class _Signals:
    """Signals of this process as readable bytes, including the end of a child."""

    _NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)

    def __enter__(self) -> _Signals:
        self.arrived, self._sender = socket.socketpair()
        self.arrived.setblocking(False)
        self._sender.setblocking(False)
        self._before = {each: signal.signal(each, lambda *_: None) for each in self._NUMBERS}
        self._wakeup = signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        return self

    def __exit__(self, *failure: object) -> None:
        signal.set_wakeup_fd(self._wakeup)
        for number, before in self._before.items():
            signal.signal(number, before)
        self.arrived.close()
        self._sender.close()

    def take(self) -> bytes:
        """The numbers of the pending signals."""
        with suppress(BlockingIOError):
            return self.arrived.recv(4096)
        return b""


# --- a worker -------------------------------------------------------------------------------------


class SharingWorker:
    """A worker: one of several servers with one address."""

    def __init__(self, task: Task) -> None:
        self.is_first = task.number == 0
        self.review_notes = task.folder / "reviews.notes"
        """The file in which the first worker stores its review polling state for its successor."""
        self._number = task.number
        self._state = SharedState(task.state_fd, task.workers)
        self.attempts = SharedAttempts(self._state)
        self.board = MetricsBoard(task.folder, f"{task.number}-{os.getpid()}")

    def admission(self, alone: Admission) -> Admission:
        """The same limits, over all workers."""
        return SharedAdmission(self._state, self._number, alone.inflight_max, alone.bytes_max)


def main() -> int:
    """Run a worker: reads its task from stdin and reports its start on stdout."""
    # Stdout is reserved for the supervisor; output of libraries goes to the log.
    supervisor = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    from_supervisor = sys.stdin.buffer
    task: Task = pickle.load(from_supervisor)  # noqa: S301 - the supervisor alone writes to this pipe

    def listens(address: str) -> None:
        supervisor.write(orjson.dumps({"address": address}) + b"\n")

    def follow(server: RunningServer) -> None:
        loop = asyncio.get_running_loop()

        def wait_for_the_end() -> None:
            # Nothing more comes: the pipe ends with the supervisor, whichever way that ends.
            os.read(from_supervisor.fileno(), 1)
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(server.stop)

        threading.Thread(target=wait_for_the_end, name="supervisor", daemon=True).start()

    try:
        return serve_here(task.config, listens, SharingWorker(task), beside=follow)
    except OmnigraphError as problem:
        supervisor.write(orjson.dumps({"message": problem.message, "hint": problem.hint}) + b"\n")
        return 1


if __name__ == "__main__":
    # By its name: the class of the task is the one of the package.
    from omnigraph.server.workers import main as run_worker

    raise SystemExit(run_worker())
