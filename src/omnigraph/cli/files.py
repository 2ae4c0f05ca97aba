"""Files that commands read data from and write results to."""

from __future__ import annotations

import os
import secrets
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from omnigraph.cli.failures import PERMISSION_HINT, UsageError
from omnigraph.cli.interrupts import INTERRUPTS
from omnigraph.errors import InputError, NotFound
from omnigraph.syntax.suggest import did_you_mean

STANDARD_INPUT = "-"
BLOCK_BYTES = 1 << 20


def require_file(path: Path) -> None:
    """Raise `NotFound`, with the nearest name, or `InputError` for what cannot be read."""
    if path.is_dir():
        raise InputError(f"`{path}` is a directory", hint="name a file in it")
    if not path.exists():
        raise missing_file(path)


def missing_file(path: Path) -> NotFound:
    """The error for a file that is not there, with the file beside it whose name comes closest."""
    return NotFound(f"there is no file `{path}`", hint=_similar_file(path))


def standard_input() -> Iterator[bytes]:
    """The bytes of stdin as they arrive, once."""
    if sys.stdin is None:
        raise UsageError("stdin is closed", hint="pipe the data in, or name a file")

    def block() -> bytes:
        INTERRUPTS.heed()
        return sys.stdin.buffer.read(BLOCK_BYTES)

    return iter(block, b"")


@contextmanager
def replaced_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that becomes ``path`` when all of it is there.

    Until then, and after any failure, ``path`` is what it was before.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not stat.S_ISREG(target.stat().st_mode):
        if target.is_dir():
            raise InputError(f"`{path}` is a directory", hint="name a file in it")
        # A pipe or a device takes bytes; putting a file in its place is not what anybody means.
        with target.open("wb") as stream:
            yield stream
        return
    staged = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
    try:
        file = staged.open("xb")
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        hint = PERMISSION_HINT if isinstance(problem, PermissionError) else None
        if not target.parent.exists():
            hint = f"there is no directory `{path.parent}`"
        raise InputError(f"cannot write `{path}`: {reason}", hint=hint) from problem
    try:
        with file as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        staged.replace(target)
    except BaseException:
        with suppress(FileNotFoundError):
            staged.unlink()
        raise
    _sync_directory(target.parent)


def _sync_directory(directory: Path) -> None:
    """Make the new name survive a loss of power; best effort, the content is there already."""
    with suppress(OSError):
        handle = os.open(directory, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _similar_file(path: Path) -> str | None:
    try:
        names = [entry.name for entry in path.parent.iterdir() if entry.is_file()]
    except OSError:
        return None if path.parent.exists() else f"there is no directory `{path.parent}`"
    if path.is_absolute():
        return did_you_mean(path.name, names)
    return did_you_mean(path.name, names) or f"it was looked for in {Path.cwd()}"
