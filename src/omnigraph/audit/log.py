"""The file of an audit: lines appended whole, rotated by size, synced once a second.

Several threads and several processes may write to one file. A line is one `write` behind all
others, so lines never mix. Rotation renames the file; a process that has it open notices within a
second, and its lines until then are in the renamed file. Nothing is ever deleted here.
"""

from __future__ import annotations

import atexit
import errno
import os
import stat
import threading
import weakref
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from omnigraph.effects.clock import monotonic_seconds
from omnigraph.errors import AuditUnavailable, InputError

AUDIT_BYTES = 256 * 1024 * 1024
"""The size at which a file is put aside, unless told otherwise."""
SYNC_SECONDS = 1.0
_MODE = 0o600
"""Lines tell who reads what: they are for the operator alone."""


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
        self._unsynced = threading.Event()
        self._closed = threading.Event()
        self._syncing: threading.Thread | None = None
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

    def write(self, line: bytes) -> None:
        """Append a line; raises `AuditUnavailable` if that fails and lines are required."""
        with self._lock:
            try:
                self._append(line)
                self.problem = self._sync_problem
            except OSError as problem:
                self.problem = _reason(problem)
                self.lost += 1
            why = self.problem
        if why is not None and self.settings.required:
            raise self.unavailable(why)

    def unavailable(self, why: str) -> AuditUnavailable:
        """The error of what cannot be recorded."""
        return AuditUnavailable(
            f"nothing is done that cannot be recorded, and the audit cannot be written: {why}",
            hint="free space, or give `--audit` another place; the server goes on by itself then",
        )

    def sync(self) -> None:
        """Make sure that what was written is durable."""
        with self._lock:
            self._unsynced.clear()
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
        self._unsynced.set()
        self.sync()
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None
            self._syncing = None

    # --- the file ---------------------------------------------------------------------------------

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
        if not self._unsynced.is_set():
            self._unsynced.set()
            self._start_syncing()

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

    # --- syncing ----------------------------------------------------------------------------------

    def _start_syncing(self) -> None:
        if self._syncing is None or not self._syncing.is_alive():
            self._closed.clear()
            self._syncing = threading.Thread(
                target=_sync_each_second, args=(weakref.ref(self),), name="audit", daemon=True
            )
            self._syncing.start()


_LOGS: dict[AuditSettings, AuditLog] = {}
_LOCK = threading.Lock()


def _sync_each_second(log: weakref.ref[AuditLog]) -> None:
    while (found := log()) is not None:
        if found._closed.wait(SYNC_SECONDS):
            return
        if not found._unsynced.is_set():
            return  # the next line starts another thread
        found.sync()
        del found


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
        log._syncing = None
        log._unsynced.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_forget_after_fork)
