"""The file of an audit: lines appended whole, rotated by size, synced once a second.

Several threads and several processes may write to one file. Lines are put behind all others by one
`write`, so they never mix. Rotation renames the file; a process that has it open notices within a
second, and its lines until then are in the renamed file. Nothing is ever deleted here.

A line that may wait is written by a thread of its own, together with those of the next 50 ms: a
system call for each line lets another thread run, and the request would wait for its turn.
"""

from __future__ import annotations

import atexit
import errno
import os
import stat
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from omnigraph.effects.clock import monotonic_seconds
from omnigraph.errors import AuditUnavailable, InputError

AUDIT_BYTES = 256 * 1024 * 1024
"""The size at which a file is put aside, unless told otherwise."""
SYNC_SECONDS = 1.0
WRITE_SECONDS = 0.05
"""How long a line may wait for others."""
WAITING_MAX = 4_096
"""Lines that wait at most: behind so many, the caller writes all of them."""
_PART_BYTES = 64 * 1024
_PIPE_BYTES = 4_096
"""What one write to a file, or to anything else, puts behind the rest without being mixed."""
_MODE = 0o600
"""Lines name readers and what they read: only the operator may read them."""


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """Where lines go, and what happens if they cannot."""

    path: Path
    required: bool = False
    """Whether nothing is read or written that cannot be recorded."""
    params: bool = False
    """Whether lines have the values of parameters."""
    bytes_max: int = AUDIT_BYTES

    def __post_init__(self) -> None:
        if self.bytes_max < 1:
            raise InputError(
                f"an audit file of {self.bytes_max} bytes holds nothing", hint="give it more"
            )


class AuditLog:
    """One audit file of this process. Safe to share between threads."""

    def __init__(self, settings: AuditSettings) -> None:
        self.settings = settings
        self.problem: str | None = None
        """Why the last line was not written, or not synced; None if it was."""
        self.lost = 0
        """Lines that could not be written."""
        self._lock = threading.Lock()
        self._file: int | None = None
        self._is_file = False
        self._size = 0
        self._checked_at = 0.0
        self._waiting: deque[Callable[[], bytes]] = deque()
        self._is_unsynced = False
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        """Writes what waits, and syncs; None while there is nothing to do."""
        self._sync_problem: str | None = None
        with self._lock:
            try:
                self._open()
            except OSError as problem:
                raise InputError(
                    f"the audit file {settings.path} cannot be written: {_reason(problem)}",
                    hint="name a file in a folder that exists and can be written to",
                ) from None

    @classmethod
    def at(cls, settings: AuditSettings) -> AuditLog:
        """The log of a file, one for all graphs of this process."""
        with _LOCK:
            found = _LOGS.get(settings)
            if found is None:
                found = _LOGS[settings] = cls(settings)
            return found

    def write(self, lines: bytes) -> None:
        """Append lines now; raises `AuditUnavailable` if that fails and lines are required."""
        with self._lock:
            self._write_waiting(lines)
            why = self.problem
        if why is not None and self.settings.required:
            raise self.unavailable(why)

    def add(self, lines: Callable[[], bytes]) -> None:
        """Append lines soon, or now if they are required; the function gives their text."""
        if self.settings.required:
            self.write(lines())
            return
        self._waiting.append(lines)
        if self._thread is None:
            self._start()
        elif len(self._waiting) > WAITING_MAX:
            self.flush()

    def flush(self) -> None:
        """Append what waits."""
        if self._waiting:
            with self._lock:
                self._write_waiting()

    def unavailable(self, why: str) -> AuditUnavailable:
        """The error of what cannot be recorded."""
        return AuditUnavailable(
            f"nothing is done that cannot be recorded, and the audit cannot be written: {why}",
            hint="free space, or give the audit another place with `--audit` (audit=…); a server"
            " goes on by itself then",
        )

    def sync(self) -> None:
        """Make sure that what was written is durable."""
        with self._lock:
            self._write_waiting()
            self._is_unsynced = False
            if self._file is None or not self._is_file:
                return
            file = os.dup(self._file)
        try:
            os.fsync(file)
            self._sync_problem = None
        except OSError as problem:
            self._sync_problem = self.problem = _reason(problem)
        finally:
            os.close(file)

    def close(self) -> None:
        """Sync and close the file; a later line opens it again."""
        self._closed.set()
        self.sync()
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None
            self._thread = None

    # --- the file ---------------------------------------------------------------------------------

    def _write_waiting(self, more: bytes = b"") -> None:
        """Append what waits, in its order, and more behind it."""
        texts = []
        while self._waiting:
            texts.append(self._waiting.popleft()())
        if more:
            texts.append(more)
        part: list[bytes] = []
        size = 0
        for text in texts:
            if size and size + len(text) > self._room():
                self._write_part(b"".join(part))
                part, size = [], 0
            part.append(text)
            size += len(text)
        if part:
            self._write_part(b"".join(part))

    def _room(self) -> int:
        """The most that one write appends."""
        if not self._is_file:
            return _PIPE_BYTES
        return min(_PART_BYTES, self.settings.bytes_max - self._size)

    def _write_part(self, part: bytes) -> None:
        try:
            self._append(part)
            self.problem = self._sync_problem
        except OSError as problem:
            self.problem = _reason(problem)
            self.lost += part.count(b"\n")

    def _append(self, line: bytes) -> None:
        now = monotonic_seconds()
        if self._file is None:
            self._open()
        elif now - self._checked_at >= SYNC_SECONDS:
            self._checked_at = now
            self._follow()
        if self._is_file and self._size + len(line) > self.settings.bytes_max and self._size:
            self._rotate()
        assert self._file is not None
        try:
            written = os.write(self._file, line)
        except BlockingIOError as problem:
            raise OSError(errno.EAGAIN, "it takes no more now") from problem
        if written != len(line):
            self._undo(written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += written
        self._is_unsynced = True
        if self._thread is None:
            self._start()

    def _undo(self, written: int) -> None:
        """Take back a part of a line, so that the next one begins on a line of its own."""
        assert self._file is not None
        if self._is_file:
            with suppress(OSError):
                size = os.fstat(self._file).st_size
                os.ftruncate(self._file, max(0, size - written))

    def _open(self) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self.settings.path, flags, _MODE)
        found = os.fstat(self._file)
        self._is_file, self._size = stat.S_ISREG(found.st_mode), found.st_size
        self._checked_at = monotonic_seconds()

    def _follow(self) -> None:
        """Open the file anew if another process has rotated it, or it was moved."""
        assert self._file is not None
        own = os.fstat(self._file)
        self._size = own.st_size  # other processes write, too
        try:
            there = self.settings.path.stat()
        except FileNotFoundError:
            there = None
        if there is None or (there.st_ino, there.st_dev) != (own.st_ino, own.st_dev):
            os.close(self._file)
            self._file = None
            self._open()

    def _rotate(self) -> None:
        """Put the file aside under the moment, unless another process has just done so."""
        self._follow()
        if self._size == 0:
            return
        path = self.settings.path
        moment = datetime.now(UTC).strftime("%Y%m%dT%H%M%S.%fZ")
        path.rename(path.with_name(f"{path.name}.{moment}"))
        assert self._file is not None
        os.fsync(self._file)
        os.close(self._file)
        self._file = None
        self._open()

    # --- the thread -------------------------------------------------------------------------------

    def _start(self) -> None:
        thread = threading.Thread(target=self._work, name="audit", daemon=True)
        with _LOCK:
            if self._thread is not None:
                return
            self._thread = thread
            self._closed.clear()
        thread.start()

    def _work(self) -> None:
        """Write what waits, sync once a second, and end after a second without lines."""
        synced_at = monotonic_seconds()
        while not self._closed.wait(WRITE_SECONDS):
            self.flush()
            if monotonic_seconds() - synced_at < SYNC_SECONDS:
                continue
            synced_at = monotonic_seconds()
            if self._is_unsynced:
                self.sync()
                continue
            self._thread = None
            # A line that was added before that relied on this thread.
            if self._waiting:
                self._start()
            return


_LOGS: dict[AuditSettings, AuditLog] = {}
_LOCK = threading.Lock()


def flush_all() -> None:
    """Append what waits in this process, so that it can be read."""
    for log in list(_LOGS.values()):
        log.flush()


def _reason(problem: OSError) -> str:
    return (problem.strerror or str(problem)).lower()


def _close_all() -> None:
    for log in _LOGS.values():
        with suppress(OSError):
            log.close()


def _forget_after_fork() -> None:
    """A child shares files with its parent, and has none of its threads."""
    if _LOCK.locked():  # by a thread that the child does not have
        _LOCK.release()
    for log in _LOGS.values():
        log._lock = threading.Lock()
        log._waiting = deque()  # the parent writes it
        log._thread = None
        log._is_unsynced = False


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_after_fork)
