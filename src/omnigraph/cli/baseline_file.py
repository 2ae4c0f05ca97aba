"""The file of a baseline: complete and on disk, or as it was before.

Whoever has the cursor of a baseline must have the baseline. So the file is locked against another
baseline, written beside its place, flushed, moved there, and the move flushed too, before the
cursor is shown to anybody.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Literal

from omnigraph.errors import Busy, Conflict, InputError

try:
    import fcntl
except ImportError:  # pragma: no cover - not POSIX
    fcntl = None  # type: ignore[assignment]


def require_posix() -> None:
    """Raise `InputError` where a file cannot be locked and a directory not be flushed."""
    if fcntl is None:
        raise InputError(
            "baselines can be written on POSIX systems only",
            hint="write it in a container, or iterate over `Graph.change_baseline` yourself",
        )


@contextmanager
def baseline_file(path: Path) -> Iterator[BinaryIO]:
    """A file to write that becomes ``path``, durably, when the block ends without a failure.

    Raises `Busy` while another process writes a baseline to the same place, and `Conflict` when
    somebody else put another file there in the very moment.
    """
    target = Path(os.path.realpath(path))
    if target.exists() and not target.is_file():
        raise InputError(f"`{path}` is not a file", hint="name a file, new or to be replaced")
    with _locked(target):
        staged = target.with_name(f".{target.name}.{secrets.token_hex(4)}.partial")
        with _created(staged, path) as stream:
            try:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
                staged.replace(target)
                _sync(target.parent)
                if not os.path.samestat(os.fstat(stream.fileno()), target.stat()):
                    raise Conflict(
                        f"`{path}` was replaced by somebody else",
                        hint="find out by whom, and take the baseline again",
                    )
            finally:
                with suppress(FileNotFoundError):
                    staged.unlink()


@contextmanager
def _locked(target: Path) -> Iterator[None]:
    # The lock file stays: removing it would let two writers hold locks on two files of one name.
    lock = target.with_name(f"{target.name}.lock")
    with _created(lock, lock, "ab") as held:
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as taken:
            raise Busy(
                f"another baseline is being written to `{target}`",
                hint="wait for it, or write to another file",
            ) from taken
        yield


@contextmanager
def _created(path: Path, shown: Path, mode: Literal["xb", "ab"] = "xb") -> Iterator[BinaryIO]:
    try:
        stream = path.open(mode)
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise InputError(f"cannot write `{shown}`: {reason}") from problem
    with stream:
        yield stream


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
