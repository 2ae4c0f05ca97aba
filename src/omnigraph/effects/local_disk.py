"""Files on local disk: locks that end with their process, and flushes against power loss.

Exclusive locks are built on `flock`. Such a lock belongs to an open file, so two handles exclude
each other within a process and across processes, and the lock ends with the process, also if it is
killed. So a lease on local disk can distinguish a dead owner from a slow one.

A lock file is created on first use and never removed. Removing it would let one process hold the
lock of the old file while another locks a new file of the same name. For the same reason an
acquired lock is valid only if the path still names its file.

With ``disk`` durability (the default) an acknowledged write survives power loss: the file and every
directory entry leading to it are flushed (fsync). With ``process`` nothing is flushed: a write
survives a crash of the process but not of the machine, which is faster for tests and throw-away
graphs. Lance flushes nothing on local disk, so the kernel calls `flush_tree` for the files of a
commit before acknowledging it. Each flush is counted under the kind ``disk``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import stat
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from enum import StrEnum
from functools import cache
from pathlib import Path
from types import TracebackType

from omnigraph.effects.failures import FailureClass, StorageFailure, from_os_error
from omnigraph.effects.requests import count
from omnigraph.effects.uri import HIDDEN_PREFIX
from omnigraph.errors import InputError, InternalError

_PAUSE_S = 0.000_1
_PATIENCE_MS = 3
"""How long a wait polls before it blocks: most locks are held briefly."""
_OPEN_ATTEMPTS_MAX = 20


def lock_path(directory: Path, scope: str) -> Path:
    """The lock file for ``scope`` in ``directory``; hidden from `list`.

    Scopes are branch names, with slashes and up to 200 characters, so the file name is a digest,
    which fits every file system.
    """
    digest = hashlib.blake2b(scope.encode(), digest_size=16).hexdigest()
    return directory / f"{HIDDEN_PREFIX}lock-{digest}"


def folder_of_locks(directory: Path, scope: str) -> Path:
    """The folder of locked files for ``scope``; hidden from `list`."""
    path = lock_path(directory, scope)
    return path.with_name(f"{path.name}.d")


def lock_descriptor(descriptor: int, timeout_ms: int | None, *, shared: bool = False) -> bool:
    """Lock an open file, waiting up to ``timeout_ms`` (`None`: without limit).

    False if another holder kept the lock until the timeout.
    """
    mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    began = time.monotonic()
    while True:
        try:
            fcntl.flock(descriptor, mode | fcntl.LOCK_NB)
        except BlockingIOError:
            waited_ms = (time.monotonic() - began) * 1_000
            if timeout_ms is not None and waited_ms >= timeout_ms:
                return False
            if waited_ms >= _PATIENCE_MS:
                left_ms = None if timeout_ms is None else timeout_ms - waited_ms
                return _Wait(descriptor, mode).for_at_most(left_ms)
            time.sleep(_PAUSE_S)
        else:
            return True


class _Wait:
    """A blocking `flock` in its own thread, since `flock` has no timeout.

    Polling costs more with every waiting process, and favours late ones. The thread locks through a
    second descriptor of the same open file, and closes it at the end.
    """

    def __init__(self, descriptor: int, mode: int) -> None:
        self._callers: int | None = descriptor
        self._descriptor = os.dup(descriptor)
        self._mode = mode
        self._guard = threading.Lock()
        self._given_up = False
        self._granted = threading.Event()
        self._failure: OSError | None = None

    def for_at_most(self, timeout_ms: float | None) -> bool:
        """Wait; True if the lock was granted."""
        _waiting.add(self)
        threading.Thread(target=self._block, name="omnigraph-lock", daemon=True).start()
        try:
            self._granted.wait(None if timeout_ms is None else timeout_ms / 1_000)
        finally:
            with self._guard:
                self._callers = None
                self._given_up = not self._granted.is_set()
        if self._failure is not None:
            raise self._failure
        return not self._given_up

    def _block(self) -> None:
        try:
            fcntl.flock(self._descriptor, self._mode)
        except OSError as error:
            self._failure = error
        with self._guard:
            if self._given_up and self._failure is None:
                unlock_descriptor(self._descriptor)
            self._granted.set()
        _waiting.discard(self)
        os.close(self._descriptor)

    def drop_inherited(self) -> None:
        """Close the descriptor in a forked child: the wait belongs to the parent."""
        os.close(self._descriptor)
        if self._callers is not None:
            os.close(self._callers)


def unlock_descriptor(descriptor: int) -> None:
    """Release the lock, even if a forked child still has the file open."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def is_locked(path: Path) -> bool | None:
    """Whether a live process holds the lock at ``path``; creates and changes nothing.

    None if the lock file cannot be read: it belongs to the user that writes.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return False
    except PermissionError:
        return None
    except OSError as error:
        raise from_os_error(error, "look at the lock", str(path)) from error
    try:
        # A shared lock, so that two observers do not mistake each other for the owner.
        free = lock_descriptor(descriptor, 0, shared=True)
        if free:
            unlock_descriptor(descriptor)
        return not free
    finally:
        os.close(descriptor)


def _tighten(target: int | Path, mode: int, shown: Path) -> None:
    """Remove permissions beyond ``mode``; raises an error if another user owns the file."""
    found = stat.S_IMODE(os.stat(target).st_mode)  # noqa: PTH116 - a descriptor, too
    if not found & ~mode:
        return
    try:
        os.chmod(target, found & mode)  # noqa: PTH101
    except PermissionError:
        raise StorageFailure(
            FailureClass.CONFIGURATION,
            "lock",
            str(shown),
            f"other users may block its writers (mode {found:04o})",
            hint=f"its owner can mend it: chmod {found & mode:o} {shown}",
        ) from None


@contextmanager
def locked_folder(path: Path, *, shared: bool) -> Iterator[bool]:
    """Hold a lock on a directory itself, without write permission; yields whether it is held.

    Either shared, or exclusive without waiting for it. False for a missing directory.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield False
        return
    try:
        yield lock_descriptor(descriptor, 0, shared=shared)
    finally:
        os.close(descriptor)


class OsLock:
    """An exclusive lock on a local file. Each object is one holder; not safe to share by threads.

    As a context manager it waits without limit.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    @classmethod
    def for_scope(cls, directory: Path, scope: str) -> OsLock:
        """The lock of a writer scope, with its file in ``directory``."""
        return cls(lock_path(directory, scope))

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._descriptor is not None

    def try_acquire(self) -> bool:
        """Take the lock if it is free."""
        return self.acquire(_PATIENCE_MS)

    def acquire(self, timeout_ms: int | None = None) -> bool:
        """Take the lock, waiting up to ``timeout_ms`` (`None`: without limit); False on timeout."""
        if self._descriptor is not None:
            raise InternalError(f"the lock '{self.path}' is held by this object already")
        deadline = None if timeout_ms is None else time.monotonic() + timeout_ms / 1_000
        try:
            while True:
                left = (
                    None if deadline is None else max(0, round(1e3 * (deadline - time.monotonic())))
                )
                descriptor = self._open()
                held = False
                try:
                    if not lock_descriptor(descriptor, left):
                        return False
                    held = self._is_current(descriptor)
                finally:
                    if not held:
                        os.close(descriptor)
                if held:
                    self._descriptor = descriptor
                    _held.add(self)
                    return True
        except OSError as error:
            raise from_os_error(error, "lock", str(self.path)) from error

    def release(self) -> None:
        """Release the lock, if it is held."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            _held.discard(self)
            unlock_descriptor(descriptor)
            os.close(descriptor)

    def __enter__(self) -> OsLock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def _open(self) -> int:
        for _ in range(_OPEN_ATTEMPTS_MAX):
            try:
                return self._opened_for_us()
            except FileNotFoundError:
                # Another process may remove the empty directory meanwhile: try again.
                with suppress(FileNotFoundError, FileExistsError):
                    self.path.parent.mkdir(parents=True, exist_ok=True)
        return self._opened_for_us()

    def _opened_for_us(self) -> int:
        """Open the file, created without permissions for other users: a reader could lock it.

        A group that may write to the folder gets permission, since its members are writers.
        """
        folder = self.path.parent
        of_folder = stat.S_IMODE(folder.stat().st_mode)
        mode = 0o660 if of_folder & stat.S_IWGRP else 0o600
        descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, mode)
        try:
            _tighten(descriptor, mode, self.path)
            if of_folder & stat.S_IWOTH and not of_folder & stat.S_ISVTX:
                _tighten(folder, of_folder & ~stat.S_IWOTH, folder)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _is_current(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(os.fstat(descriptor), self.path.stat())
        except FileNotFoundError:
            return False

    def _drop_inherited(self) -> None:
        """Close the file in a forked child without unlocking: the lock belongs to the parent."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


# A forked child has its parent's lock files open and would keep the locks after the parent ended.
# So it closes them, and has to acquire its own locks.
_held: set[OsLock] = set()
_waiting: set[_Wait] = set()


def _drop_inherited_locks() -> None:
    for lock in list(_held):
        lock._drop_inherited()
    _held.clear()
    for wait in list(_waiting):
        wait.drop_inherited()
    _waiting.clear()


os.register_at_fork(after_in_child=_drop_inherited_locks)


DURABILITY_VARIABLE = "OMNIGRAPH_DURABILITY"


class Durability(StrEnum):
    """The failures that an acknowledged write survives."""

    DISK = "disk"
    """Loss of power."""
    PROCESS = "process"
    """A crash of the process."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Durability:
        """The setting of `OMNIGRAPH_DURABILITY`; `disk` if there is none."""
        value = environ.get(DURABILITY_VARIABLE, "") or cls.DISK
        try:
            return cls(value)
        except ValueError:
            raise InputError(
                f"{DURABILITY_VARIABLE} is '{value}'", hint="set it to 'disk' or 'process'"
            ) from None


@cache
def configured_durability() -> Durability:
    """The setting of this process, read once so that it does not change during a write."""
    return Durability.from_environment(os.environ)


# On macOS fsync returns when the data is in the drive's cache; this request flushes the cache.
_FULL_FSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)

_WORKERS_MAX = 8
_SERIAL_MAX = 4


def flush_descriptor(descriptor: int, path: str, verb: str) -> None:
    """Flush an open file or directory to disk and count it; raises `OSError`."""
    _sync(descriptor)
    count("disk", verb, path, round_trips=0)


def flush_directory(path: Path) -> None:
    """Flush the entries of a directory to disk: creations, renames and removals."""
    _sync_path(path, os.O_DIRECTORY)
    count("disk", "flush_directory", str(path), round_trips=0)


def flush_tree(
    root: Path, paths: Iterable[Path], durability: Durability, before: Iterable[Path] = ()
) -> None:
    """Flush new files and every directory entry from ``root`` down to them, each once.

    ``paths`` are files below ``root``. Directories between a file and the root are included,
    because a new file in a new directory is lost with the entry of that directory. Directories of
    the files ``before``, which the same operation has flushed, are left out. Does nothing with
    `process` durability.
    """
    if durability is Durability.PROCESS:
        return
    files = sorted(set(paths))
    directories: set[Path] = set()
    for file in files:
        inside = file.relative_to(root).parents  # raises an error for a file outside of the root
        directories.update(root / part for part in inside)
    directories.difference_update(folder for file in before for folder in file.parents)
    directories.update(file.parent for file in files)
    _flush_files(files)
    # Deepest first, so that an entry is on disk only after its content.
    for directory in sorted(directories, key=lambda d: (-len(d.parts), d)):
        flush_directory(directory)


def replace_unflushed(path: Path, content: bytes) -> None:
    """Replace a file atomically, without flushing it.

    For files that may be lost with the machine: after its crash, the file has the previous content
    or none.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    staged = path.with_name(f"{HIDDEN_PREFIX}{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        staged.write_bytes(content)
        staged.replace(path)
    except OSError:
        staged.unlink(missing_ok=True)
        raise


def files_below(directory: Path) -> frozenset[Path]:
    """All present files below ``directory``; empty if there is no such directory."""
    return frozenset(
        Path(folder) / name for folder, _, names in os.walk(directory) for name in names
    )


def symbolic_links(directory: Path) -> Iterator[Path]:
    """Every symbolic link below ``directory``; does not follow links."""
    for folder, directories, names in os.walk(directory):
        for name in (*directories, *names):
            path = Path(folder) / name
            if path.is_symlink():
                yield path


def _flush_files(files: list[Path]) -> None:
    if len(files) <= _SERIAL_MAX:
        for file in files:
            _sync_path(file)
    else:
        # Flush in parallel: a disk handles several flushes at once.
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(min(_WORKERS_MAX, len(files))) as pool:
            list(pool.map(_sync_path, files))
    for file in files:
        count("disk", "flush_file", str(file), round_trips=0)


def _sync_path(path: Path, flags: int = 0) -> None:
    try:
        descriptor = os.open(path, os.O_RDONLY | flags)
        try:
            _sync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise from_os_error(error, "flush", str(path)) from error


def _sync(descriptor: int) -> None:
    if _FULL_FSYNC is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, _FULL_FSYNC)
