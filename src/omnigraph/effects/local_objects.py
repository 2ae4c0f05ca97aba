"""Text objects as files below a directory.

A write stages a complete hidden file in the folder of its target, flushes it, and publishes it by
rename (replace) or hard link (create); then it flushes the directory. Replacing, swapping, moving
and deleting hold the lock of the directory during that step, so a compare-and-swap excludes all of
them, in this process and in others. Reading takes no lock and changes nothing.

A crash can leave a hidden staged file behind, which is never read.

The lock is a `flock` on the directory itself, held for a comparison and a rename, never while data
is written or flushed. It needs no lock file.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from stat import S_ISDIR, S_ISREG
from types import TracebackType
from typing import TypeVar

from omnigraph.effects.failures import FailureClass, StorageFailure, from_os_error
from omnigraph.effects.local_disk import (
    Durability,
    flush_descriptor,
    flush_directory,
    lock_descriptor,
    unlock_descriptor,
)
from omnigraph.effects.objects import (
    CHUNK_BYTES,
    Attributes,
    ObjectStore,
    Token,
    missing_object,
)
from omnigraph.effects.requests import count
from omnigraph.effects.uri import HIDDEN_PREFIX, Root, check_key, check_prefix, is_hidden
from omnigraph.errors import InputError, InternalError

LOCK_WAIT_MS = 30_000
"""The longest wait: the lock is held for microseconds, unless its holder was stopped."""


class Folder:
    """An open directory. Raises `OSError`, to which the caller adds operation and object.

    Names are resolved against the open directory, not its path: if the directory is removed and
    created again, work begun in the old one fails instead of continuing in the new one, and the
    lock protects the files of the same directory.
    """

    def __init__(self, path: Path, durability: Durability) -> None:
        self.path = path
        self._durability = durability
        self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._descriptor)

    # --- reading ------------------------------------------------------------------------------

    def read(self, name: str) -> bytes | None:
        """The content of a file; `None` if there is no file of that name."""
        try:
            descriptor = os.open(name, os.O_RDONLY, dir_fd=self._descriptor)
        except FileNotFoundError:
            return None
        try:
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                return file.readall()
        except IsADirectoryError:
            return None

    def is_directory(self, name: str) -> bool:
        """Whether ``name`` is a directory."""
        try:
            return S_ISDIR(os.stat(name, dir_fd=self._descriptor, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False

    # --- changing -----------------------------------------------------------------------------

    def stage(self, data: bytes) -> str:
        """Write a complete file under a hidden name and return that name."""

        def write(descriptor: int) -> None:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]

        return self._stage(write)

    def stage_parts(self, parts: Iterable[bytes]) -> str:
        """`stage` with content in parts."""

        def write(descriptor: int) -> None:
            with open(descriptor, "wb", closefd=False) as target:
                target.writelines(parts)

        return self._stage(write)

    def stage_copy(self, file: Path) -> str:
        """`stage` with the content of another file."""

        def write(descriptor: int) -> None:
            with file.open("rb") as source, open(descriptor, "wb", closefd=False) as target:
                shutil.copyfileobj(source, target, CHUNK_BYTES)

        return self._stage(write)

    def _stage(self, write: Callable[[int], None]) -> str:
        staged = f"{HIDDEN_PREFIX}tmp-{os.urandom(8).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(staged, flags, 0o666, dir_fd=self._descriptor)
        try:
            write(descriptor)
            if self._durability is Durability.DISK:
                # Flush before publishing the name: a name on disk must not lead to missing bytes.
                flush_descriptor(descriptor, str(self.path / staged), "flush_file")
        except BaseException:
            self.remove(staged)
            raise
        finally:
            os.close(descriptor)
        return staged

    def replace(self, staged: str, name: str) -> None:
        """Publish a staged file under ``name``, replacing an existing file."""
        self.move(staged, self, name)

    def link(self, staged: str, name: str) -> bool:
        """Publish a staged file under ``name``; False if the name is taken."""
        here = self._descriptor
        try:
            os.link(staged, name, src_dir_fd=here, dst_dir_fd=here)
        except FileExistsError:
            if not self.is_directory(name):
                return False
            self._remove_empty_tree(name)
            os.link(staged, name, src_dir_fd=here, dst_dir_fd=here)
        return True

    def move(self, name: str, target: Folder, target_name: str) -> None:
        """Rename a file into ``target``, replacing an existing file."""
        here, there = self._descriptor, target._descriptor
        try:
            os.replace(name, target_name, src_dir_fd=here, dst_dir_fd=there)
        except IsADirectoryError:
            target._remove_empty_tree(target_name)
            os.replace(name, target_name, src_dir_fd=here, dst_dir_fd=there)

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            return

    def _remove_empty_tree(self, name: str) -> None:
        """Remove empty directories of former objects, to make room for an object of this name."""
        for folder, _, _ in os.walk(self.path / name, topdown=False):
            Path(folder).rmdir()

    # --- locking and flushing -----------------------------------------------------------------

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the lock that every replacement and removal in this directory takes."""
        if not lock_descriptor(self._descriptor, LOCK_WAIT_MS):
            raise OSError(errno.ETIMEDOUT, "another process holds the lock of the directory")
        try:
            yield
        finally:
            unlock_descriptor(self._descriptor)

    @contextmanager
    def locked_with(self, other: Folder) -> Iterator[None]:
        """Hold the locks of two directories, which may be the same one."""
        # A fixed order prevents a deadlock of two renames in opposite directions. The same
        # directory is locked once: a second lock by another descriptor would never be granted.
        folders = {folder.identity: folder for folder in (self, other)}
        with ExitStack() as stack:
            for _, folder in sorted(folders.items()):
                stack.enter_context(folder.locked())
            yield

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode: equal for two handles of the same directory."""
        status = os.fstat(self._descriptor)
        return status.st_dev, status.st_ino

    def flush(self) -> None:
        """Flush the entries of the directory, if the durability is `disk`."""
        if self._durability is Durability.DISK:
            flush_descriptor(self._descriptor, str(self.path), "flush_directory")


T = TypeVar("T")

_FOLDER_ATTEMPTS_MAX = 20
_UNSUPPORTED = {
    *(errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK),  # hard links
    *(errno.EBADF, errno.ENOLCK),  # locks on directories, for example on NFS
}


class LocalObjects(ObjectStore):
    """The object contract on a local file system."""

    def __init__(self, root: Root, durability: Durability) -> None:
        if root.path is None:
            raise InternalError(f"'{root}' is not a local root")
        self.root = root
        self._path = root.path
        self._durability = durability

    # --- reading ------------------------------------------------------------------------------

    def read_if_exists(self, key: str) -> bytes | None:
        """The content of an object in one read; `None` only for a proven absence."""
        with self._request("read", key):
            try:
                return self._file(key).read_bytes()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None

    def read_each(self, keys: Sequence[str]) -> tuple[bytes | None, ...]:
        """The contents of several objects, as from `read_if_exists`."""
        return tuple([self.read_if_exists(key) for key in keys])

    def read_versioned(self, key: str) -> tuple[bytes, Token] | None:
        """Content and token of an object."""
        data = self.read_if_exists(key)
        return None if data is None else (data, _token(data))

    def exists(self, key: str) -> bool:
        """Whether there is an object of this name, or at least one object below it."""
        with self._request("exists", key):
            file = self._file(key)
            mode = _mode(file)
            if mode is None or not S_ISDIR(mode):
                return mode is not None
            return any(True for _ in _walk(str(file), ""))

    def list(self, prefix: str = "") -> list[str]:
        """Sorted names of all objects below ``prefix``."""
        prefix = check_prefix(prefix)
        with self._request("list", prefix):
            folder, start = (self._path / prefix, f"{prefix}/") if prefix else (self._path, "")
            return sorted(_walk(str(folder), start))

    def attributes(self, key: str) -> Attributes | None:
        """Size of a file; `None` for a proven absence."""
        with self._request("stat", key):
            try:
                found = self._file(key).lstat()
            except (FileNotFoundError, NotADirectoryError):
                return None
            return Attributes(found.st_size) if S_ISREG(found.st_mode) else None

    def sizes(self, prefix: str = "") -> dict[str, int]:
        """The objects of `list` with their sizes, without symbolic links."""
        found = {}
        for name in self.list(prefix):
            with suppress(FileNotFoundError):
                status = (self._path / name).lstat()
                if S_ISREG(status.st_mode):
                    found[name] = status.st_size
        return found

    def chunks(self, key: str) -> Iterator[bytes]:
        """The content of a file in parts; a symbolic link is not followed."""
        with self._request("read", key):
            try:
                descriptor = os.open(self._file(key), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            except OSError as error:
                if error.errno != errno.ELOOP:
                    raise
                reason = "it is a symbolic link, which is not followed"
                target = self.root.join(key)
                raise StorageFailure(FailureClass.CONFIGURATION, "read", target, reason) from error
            with os.fdopen(descriptor, "rb", buffering=0) as file:
                while chunk := file.read(CHUNK_BYTES):
                    yield chunk

    # --- writing ------------------------------------------------------------------------------

    def write_chunks(self, key: str, parts: Iterable[bytes]) -> None:
        """Create or replace an object from parts."""
        file = self._file(key)

        with self._request("write", key):
            _make_folder(file.parent, self._durability)
            with Folder(file.parent, self._durability) as folder:
                _publish(folder, folder.stage_parts(parts), file.name)

    def write(self, key: str, data: bytes) -> None:
        """Create or replace an object."""
        with self._request("write", key):
            file = self._file(key)
            self._in_folder(
                file.parent, lambda folder: _publish(folder, folder.stage(data), file.name)
            )

    def write_if_absent(self, key: str, data: bytes) -> bool:
        """Create an object; False if the name was taken."""

        def publish(folder: Folder, staged: str, name: str) -> bool:
            # Needs no lock: a link succeeds only if the name is free, a swap only if it is taken.
            if not folder.link(staged, name):
                return False
            folder.flush()
            return True

        with self._request("create", key):
            # Losing is common, so check first and stage nothing for a name that is taken.
            mode = _mode(self._file(key))
            taken = mode is not None and not S_ISDIR(mode)
            return not taken and self._staged(key, data, publish)

    def write_if_match(self, key: str, data: bytes, token: Token) -> Token | None:
        """Replace an object that still has the content of ``token``."""

        def publish(folder: Folder, staged: str, name: str) -> bool:
            with folder.locked():
                # From here to the rename no other process can replace or remove the object.
                current = folder.read(name)
                if current is None or _token(current) != token:
                    return False
                folder.replace(staged, name)
            # Outside of the lock: a later write to this directory flushes it again, so no state
            # based on this one becomes durable before it.
            folder.flush()
            return True

        with self._request("swap", key):
            try:
                current = self._file(key).read_bytes()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                return None
            if _token(current) != token or not self._staged(key, data, publish):
                return None
            return _token(data)

    def delete(self, key: str) -> None:
        """Remove an object; no error if there is none."""
        with self._request("delete", key):
            file = self._file(key)
            try:
                with Folder(file.parent, self._durability) as folder:
                    with folder.locked():
                        if not folder.is_directory(file.name):
                            folder.remove(file.name)
                    folder.flush()
            except (FileNotFoundError, NotADirectoryError):
                return

    def delete_prefix(self, prefix: str) -> None:
        """Remove every object below ``prefix``, and empty directories."""
        prefix = check_prefix(prefix)
        if not prefix:
            raise InputError("the empty prefix cannot be deleted", hint="name what to delete")
        with self._request("delete", prefix):
            top = self._path / prefix
            if top.is_symlink():
                return  # a symbolic link leads out of this root
            self._remove_tree(top)
            remaining = top
            while remaining != self._path and _remove_directory(remaining):
                remaining = remaining.parent
            if self._durability is Durability.DISK and remaining.is_dir():
                flush_directory(remaining)

    def copy(self, source: str, target: str) -> None:
        """Copy an object in parts."""
        with self._request("copy", source):
            new, old = self._file(target), self._existing("copy", source)
            self._in_folder(new.parent, lambda into: _publish(into, into.stage_copy(old), new.name))

    def rename(self, source: str, target: str) -> None:
        """Move an object, replacing the target and creating missing directories."""
        with self._request("rename", source):
            new, old = self._file(target), self._existing("rename", source)
            if old == new:
                return
            self._in_folder(new.parent, lambda into: self._move(old, into, new.name))

    def _existing(self, verb: str, key: str) -> Path:
        file = self._file(key)
        mode = _mode(file)
        if mode is None or S_ISDIR(mode):
            raise missing_object(verb, self.root.join(key))
        return file

    def _move(self, old: Path, into: Folder, name: str) -> None:
        with Folder(old.parent, self._durability) as out_of:
            with out_of.locked_with(into):
                out_of.move(old.name, into, name)
            # Flush the new entry first: a crash between the two must not lose the object.
            into.flush()
            if out_of.identity != into.identity:
                out_of.flush()

    # --- the probe ----------------------------------------------------------------------------

    def probe_atomic_create(self) -> None:
        """Verify that the file system has hard links and locks; removes its files."""
        with self._request("probe", ""):
            _repeated(self._probe_root)

    def _probe_root(self) -> None:
        created = _make_folder(self._path, self._durability)
        try:
            with Folder(self._path, Durability.PROCESS) as folder:
                self._probe(folder)
        finally:
            for directory in reversed(created):
                _remove_directory(directory)

    def _probe(self, folder: Folder) -> None:
        first = folder.stage(b"probe")
        second = f"{first}-link"
        try:
            with folder.locked():
                created = folder.link(first, second)
                refused = not folder.link(first, second)
        except OSError as error:
            if error.errno not in _UNSUPPORTED:
                raise
            raise self._unfit(f"no hard links or locks ({errno.errorcode[error.errno]})") from error
        finally:
            folder.remove(first)
            folder.remove(second)
        if not (created and refused):
            raise self._unfit("hard links that replace existing files")

    def _unfit(self, reason: str) -> StorageFailure:
        return StorageFailure(
            FailureClass.CONFIGURATION,
            "write safely below",
            self.root.uri,
            f"the file system has {reason}",
            hint="put the graph on a local file system such as ext4, xfs or APFS;"
            " it can be opened read-only where it is",
        )

    # --- inside -------------------------------------------------------------------------------

    def _file(self, key: str) -> Path:
        return self._path / check_key(key)

    @contextmanager
    def _request(self, operation: str, key: str) -> Iterator[None]:
        """Count one request, and translate its errors."""
        target = self.root.join(key) if key else self.root.uri
        count("object", operation, target)
        try:
            yield
        except OSError as error:
            raise from_os_error(error, operation, target) from error

    def _staged(self, key: str, data: bytes, publish: Callable[[Folder, str, str], T]) -> T:
        """Stage ``data``, publish it, and remove the staged file."""
        file = self._file(key)

        def work(folder: Folder) -> T:
            staged = folder.stage(data)
            try:
                return publish(folder, staged, file.name)
            finally:
                folder.remove(staged)

        return self._in_folder(file.parent, work)

    def _in_folder(self, path: Path, work: Callable[[Folder], T]) -> T:
        """Run ``work`` in a directory, which is created if it is missing."""

        def attempt() -> T:
            _make_folder(path, self._durability)
            with Folder(path, self._durability) as folder:
                return work(folder)

        return _repeated(attempt)

    def _remove_tree(self, top: Path) -> None:
        """Remove files and directories from the bottom up; files created meanwhile may stay."""
        try:
            entries = sorted(os.scandir(top), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                self._remove_tree(Path(entry.path))
        files = [entry.name for entry in entries if not entry.is_dir(follow_symlinks=False)]
        if files:
            with Folder(top, self._durability) as folder, folder.locked():
                for name in files:
                    folder.remove(name)
        _remove_directory(top)


def _repeated(work: Callable[[], T]) -> T:
    """Run work in a directory; again if another process removed the directory while it was empty.

    Repeating is safe: files staged in the removed directory are gone.
    """
    for _ in range(_FOLDER_ATTEMPTS_MAX - 1):
        with suppress(FileNotFoundError):
            return work()
    return work()


def _publish(folder: Folder, staged: str, name: str) -> None:
    """Put a staged file in the place of ``name``; what is left of the staging is removed."""
    try:
        with folder.locked():
            folder.replace(staged, name)
        folder.flush()
    finally:
        folder.remove(staged)


def _make_folder(path: Path, durability: Durability) -> list[Path]:
    """Create a directory and its missing parents; returns the created ones, topmost first."""
    missing = []
    while not path.is_dir():
        missing.append(path)
        path = path.parent
    missing.reverse()
    for directory in missing:
        try:
            directory.mkdir()
        except FileExistsError:
            mode = _mode(directory)
            if mode is None:
                # It existed before, and another process removed it as empty.
                raise FileNotFoundError(errno.ENOENT, "no such directory") from None
            if not S_ISDIR(mode):
                raise NotADirectoryError(
                    errno.ENOTDIR, f"'{directory.name}' is an object, not a prefix"
                ) from None
        if durability is Durability.DISK:
            flush_directory(directory.parent)
    return missing


def _mode(path: Path) -> int | None:
    """File type and permissions of ``path``; `None` only for a proven absence."""
    try:
        return path.stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


def _walk(folder: str, start: str) -> Iterator[str]:
    """Names of the visible files below ``folder``, with the prefix ``start``.

    Symbolic links to directories are not followed: they may form cycles or leave the root.
    """
    try:
        entries = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            if is_hidden(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, f"{start}{entry.name}/")
            elif entry.is_file():
                yield f"{start}{entry.name}"


def _remove_directory(path: Path) -> bool:
    """Remove a directory if it is empty; True if it does not exist afterwards."""
    try:
        path.rmdir()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _token(data: bytes) -> Token:
    return Token(hashlib.blake2b(data, digest_size=16).hexdigest())
