"""What an acknowledged write survives, and the flushing (fsync) that guarantees it.

With ``disk`` (the default) an acknowledged write survives loss of power: the file and every
directory entry leading to it are flushed. With ``process`` nothing is flushed: a write survives a
crash of the process but not of the machine, and tests and throw-away graphs are faster.

Lance flushes nothing on local disk, so the kernel calls `flush_tree` for the files of a commit
before it acknowledges it. Each flush is counted under the kind ``disk``.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Collection, Iterable, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path

from omnigraph.effects.failures import from_os_error
from omnigraph.effects.requests import count
from omnigraph.errors import InputError

VARIABLE = "OMNIGRAPH_DURABILITY"


class Durability(StrEnum):
    """What an acknowledged write survives."""

    DISK = "disk"
    """Loss of power."""
    PROCESS = "process"
    """A crash of the process."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str]) -> Durability:
        """The setting of `OMNIGRAPH_DURABILITY`; `disk` if there is none."""
        value = environ.get(VARIABLE, "") or cls.DISK
        try:
            return cls(value)
        except ValueError:
            raise InputError(
                f"{VARIABLE} is '{value}'", hint="set it to 'disk' or 'process'"
            ) from None


@cache
def configured_durability() -> Durability:
    """The setting of this process, read once: it must not change under a running write."""
    return Durability.from_environment(os.environ)


# macOS answers fsync when the drive has the data in its cache; only this request empties the cache.
_FULL_FSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)

_WORKERS_MAX = 8
_SERIAL_MAX = 4


def flush_descriptor(descriptor: int, path: str, verb: str) -> None:
    """Put an open file or directory on disk and count it; raises `OSError`."""
    _sync(descriptor)
    count("disk", verb, path, round_trips=0)


def flush_directory(path: Path) -> None:
    """Put the entries of a directory on disk: creations, renames and removals in it."""
    _sync_path(path, os.O_DIRECTORY)
    count("disk", "flush_directory", str(path), round_trips=0)


def flush_tree(root: Path, paths: Iterable[Path], durability: Durability) -> None:
    """Put new files and every directory entry from ``root`` down to them on disk, each once.

    ``paths`` are files below ``root``. Directories between a file and the root are included,
    because a new file in a new directory is lost with the entry of that directory. Nothing happens
    with `process` durability.
    """
    if durability is Durability.PROCESS:
        return
    files = sorted(set(paths))
    directories: set[Path] = set()
    for file in files:
        inside = file.relative_to(root).parents  # refuses a file that is not below the root
        directories.update(root / part for part in inside)
    _flush_files(files)
    # The deepest first: an entry reaches the disk only after what it leads to.
    for directory in sorted(directories, key=lambda d: (-len(d.parts), d)):
        flush_directory(directory)


def files_below(directory: Path) -> frozenset[Path]:
    """Every file below ``directory`` now; empty if there is no such directory."""
    return frozenset(
        Path(folder) / name for folder, _, names in os.walk(directory) for name in names
    )


def flush_new_files(
    directory: Path, known: Collection[Path], durability: Durability
) -> frozenset[Path]:
    """Put every file below ``directory`` that is not in ``known`` on disk, and return them.

    ``known`` is an earlier `files_below`. For a caller that knows the names of its new files
    `flush_tree` is cheaper, since this one walks the directory.
    """
    if durability is Durability.PROCESS:
        return frozenset()
    new = files_below(directory).difference(known)
    flush_tree(directory, new, durability)
    return new


def _flush_files(files: list[Path]) -> None:
    if len(files) <= _SERIAL_MAX:
        for file in files:
            _sync_path(file)
    else:
        # A disk takes several flushes at once; waiting for them one by one costs a multiple.
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
