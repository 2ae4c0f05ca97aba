"""One open directory and what the object store does in it: stage, publish, compare, lock, flush.

All names are resolved against the open directory, not against its path. So if the directory is
removed and a new one takes its name, work that was begun in the old one fails instead of slipping
into the new one, and the lock below always covers exactly the files it is meant for.

The lock for compare-and-swap is a `flock` on the directory itself. There is no lock file to hide,
to leave behind or to lose, and a directory cannot be removed while it holds the object in question.
It is held for a comparison and a rename, never while data is written or flushed.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from stat import S_ISDIR
from types import TracebackType

from omnigraph.effects.durability import Durability, flush_descriptor
from omnigraph.effects.keys import HIDDEN_PREFIX
from omnigraph.effects.os_lock import lock_descriptor, unlock_descriptor

LOCK_WAIT_MS = 30_000
"""The lock is held for microseconds; whoever waits this long is behind a stopped process."""


class Folder:
    """An open directory. Raises `OSError`; the caller knows the operation and the object."""

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
        staged = f"{HIDDEN_PREFIX}tmp-{os.urandom(8).hex()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        descriptor = os.open(staged, flags, 0o666, dir_fd=self._descriptor)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            if self._durability is Durability.DISK:
                # Before the name is published: a name on disk must never lead to missing bytes.
                flush_descriptor(descriptor, str(self.path / staged), "flush_file")
        except BaseException:
            self.remove(staged)
            raise
        finally:
            os.close(descriptor)
        return staged

    def replace(self, staged: str, name: str) -> None:
        """Publish a staged file under ``name``, replacing what is there."""
        self.move(staged, self, name)

    def link(self, staged: str, name: str) -> bool:
        """Publish a staged file under ``name`` unless the name is taken."""
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
        """Rename a file into ``target``, replacing what is there."""
        here, there = self._descriptor, target._descriptor
        try:
            os.replace(name, target_name, src_dir_fd=here, dst_dir_fd=there)
        except IsADirectoryError:
            target._remove_empty_tree(target_name)
            os.replace(name, target_name, src_dir_fd=here, dst_dir_fd=there)

    def remove(self, name: str) -> None:
        """Remove a file if it is there."""
        try:
            os.unlink(name, dir_fd=self._descriptor)
        except FileNotFoundError:
            return

    def _remove_empty_tree(self, name: str) -> None:
        """Make room for an object where only empty directories are left of earlier ones."""
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
        # A fixed order keeps two renames in opposite directions from waiting for each other. One
        # directory is locked once: a second lock through another descriptor would never be granted.
        folders = {folder.identity: folder for folder in (self, other)}
        with ExitStack() as stack:
            for _, folder in sorted(folders.items()):
                stack.enter_context(folder.locked())
            yield

    @property
    def identity(self) -> tuple[int, int]:
        """Device and inode: equal for two handles of one directory."""
        status = os.fstat(self._descriptor)
        return status.st_dev, status.st_ino

    def flush(self) -> None:
        """Put the entries of the directory on disk, if the durability asks for it."""
        if self._durability is Durability.DISK:
            flush_descriptor(self._descriptor, str(self.path), "flush_directory")
