"""The file of an audit: lines appended whole, rotated by size, synced once a second.

Several threads and processes may write to one file. Lines are appended by a single `write`, so they
never interleave. Rotation renames the file; other processes notice within a second, and their lines
until then go to the renamed file. Files are never deleted.

Lines that are not required are written by a separate thread, in batches of 50 ms: a system call per
line would release the GIL, and the request would wait to get it back.
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
from datetime import UTC, datetime
from pathlib import Path

from omnigraph.effects.clock import monotonic_seconds
from omnigraph.errors import AuditUnavailable, InputError
from omnigraph.model.records import dataclass

AUDIT_BYTES = 256 * 1024 * 1024
"""The default size at which a file is rotated."""
SYNC_SECONDS = 1.0
WRITE_SECONDS = 0.05
"""How long a line waits for others."""
WAITING_MAX = 4_096
"""The maximum number of waiting lines; beyond it, the caller writes them all."""
_PART_BYTES = 64 * 1024
_PIPE_BYTES = 4_096
"""The bytes that one write appends atomically to something other than a regular file."""
_MODE = 0o600
"""Only the operator may read the file, which names readers and the data they read."""


@dataclass(frozen=True, slots=True)
class AuditSettings:
    """The file of an audit, and its options."""

    path: Path
    required: bool = False
    """Whether an action that cannot be recorded is refused."""
    params: bool = False
    """Whether lines contain the values of parameters."""
    bytes_max: int = AUDIT_BYTES

    def __post_init__(self) -> None:
        if self.bytes_max < 1:
            raise InputError(
                f"an audit file of {self.bytes_max} bytes holds nothing", hint="give it more"
            )


class AuditLog:
    """One audit file of this process. Thread-safe."""

    def __init__(self, settings: AuditSettings) -> None:
        self.settings = settings
        self.problem: str | None = None
        """Why the last line was not written or synced; None if it was."""
        self.lost = 0
        """The number of lines that could not be written."""
        self._lock = threading.Lock()
        self._file: int | None = None
        self._is_file = False
        self._size = 0
        self._checked_at = 0.0
        self._waiting: deque[Callable[[], bytes]] = deque()
        self._is_unsynced = False
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        """Writes waiting lines and syncs; None while idle."""
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
        """The log of a file, shared by all graphs of this process."""
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
        """Append lines soon, or now if they are required; the function renders them."""
        if self.settings.required:
            self.write(lines())
            return
        self._waiting.append(lines)
        if self._thread is None:
            self._start()
        elif len(self._waiting) > WAITING_MAX:
            self.flush()

    def flush(self) -> None:
        """Append the waiting lines."""
        if self._waiting:
            with self._lock:
                self._write_waiting()

    def unavailable(self, why: str) -> AuditUnavailable:
        """The error for an action that cannot be recorded."""
        return AuditUnavailable(
            f"nothing is done that cannot be recorded, and the audit cannot be written: {why}",
            hint="free space, or give the audit another place with `--audit` (audit=…); a server"
            " goes on by itself then",
        )

    def sync(self) -> None:
        """Flush written lines to durable storage."""
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
        """Sync and close the file; a later line reopens it."""
        self._closed.set()
        self.sync()
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None
            self._thread = None

    # --- the file ---------------------------------------------------------------------------------

    def _write_waiting(self, more: bytes = b"") -> None:
        """Append the waiting lines in order, then ``more``."""
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
        """The maximum size of one write."""
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
            self._reopen_if_rotated()
        if self._is_file and self._size + len(line) > self.settings.bytes_max and self._size:
            self._rotate()
        assert self._file is not None
        try:
            written = os.write(self._file, line)
        except BlockingIOError as problem:
            raise OSError(errno.EAGAIN, "it takes no more now") from problem
        if written != len(line):
            self._truncate_partial(written)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._size += written
        self._is_unsynced = True
        if self._thread is None:
            self._start()

    def _truncate_partial(self, written: int) -> None:
        """Truncate a partly written line, so that the next one begins on its own line."""
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

    def _reopen_if_rotated(self) -> None:
        """Reopen the file if another process has rotated it, or it was moved."""
        assert self._file is not None
        own = os.fstat(self._file)
        self._size = own.st_size  # other processes append, too
        try:
            there = self.settings.path.stat()
        except FileNotFoundError:
            there = None
        if there is None or (there.st_ino, there.st_dev) != (own.st_ino, own.st_dev):
            os.close(self._file)
            self._file = None
            self._open()

    def _rotate(self) -> None:
        """Rename the file by the current time, unless another process has just done so."""
        self._reopen_if_rotated()
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
        """Write waiting lines, sync once a second, and end after a second without lines."""
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
            # Lines may have been added while this thread was still set.
            if self._waiting:
                self._start()
            return


_LOGS: dict[AuditSettings, AuditLog] = {}
_LOCK = threading.Lock()


def flush_all() -> None:
    """Append the waiting lines of this process, so that they can be read."""
    for log in list(_LOGS.values()):
        log.flush()


def _reason(problem: OSError) -> str:
    return (problem.strerror or str(problem)).lower()


def _close_all() -> None:
    for log in _LOGS.values():
        with suppress(OSError):
            log.close()


def _forget_after_fork() -> None:
    """Reset in a forked child, which shares files with its parent but has none of its threads."""
    if _LOCK.locked():  # held by a thread that the child does not have
        _LOCK.release()
    for log in _LOGS.values():
        log._lock = threading.Lock()
        log._waiting = deque()  # the parent writes them
        log._thread = None
        log._is_unsynced = False


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_after_fork)
