"""Files of an input, on local disk or on S3.

Credentials are read from the environment of the driver and travel to workers with the functions
they run, never as part of a path or a plan.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from fnmatch import fnmatchcase
from glob import has_magic
from pathlib import Path, PurePosixPath
from typing import Any
from uuid import uuid4

from pyarrow import fs

from omnigraph.effects.environment import s3_options
from omnigraph.model.records import dataclass

S3 = "s3://"
DATASET_FOLDER = "_versions"
"""Marks a directory as a Lance dataset."""
COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}

Stamp = tuple[int, int]
"""Size and mtime in nanoseconds: a different stamp means that the file was changed."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A file below a directory, or a Lance dataset (a directory that counts as one file)."""

    path: str
    below: str
    """The part of the path below the directory."""
    is_dataset: bool = False


@dataclass(frozen=True, slots=True)
class Files:
    """Access to files, local or on S3."""

    s3: Mapping[str, str] = field(default_factory=dict, repr=False)
    """S3 options, with credentials."""

    @classmethod
    def of_environment(cls, paths: list[str]) -> Files:
        """Access to ``paths``, with S3 options from the environment if one of them is on S3."""
        remote = [path for path in paths if path.startswith(S3)]
        if not remote:
            return cls()
        bucket = remote[0].removeprefix(S3).partition("/")[0]
        return cls(s3_options(bucket))

    def stat(self, path: str) -> Stamp | None:
        """The stamp of a file; None if there is none."""
        files, inner = self._at(path)
        info = files.get_file_info(inner)
        return (info.size, info.mtime_ns) if info.is_file else None

    def is_directory(self, path: str) -> bool:
        """Whether there are files below ``path``."""
        files, inner = self._at(path)
        return bool(files.get_file_info(inner).type == fs.FileType.Directory)

    def is_dataset(self, path: str) -> bool:
        """Whether a directory is a Lance dataset."""
        return self.is_directory(f"{path.rstrip('/')}/{DATASET_FOLDER}")

    def below(self, path: str) -> Iterator[tuple[str, str]]:
        """Every file below a directory: its path, and the part of it below the directory."""
        if not path.startswith(S3):
            for child in sorted(map(Path, _local_files(path))):
                yield str(child), child.relative_to(path).as_posix()
            return
        files, inside = self._at(path.rstrip("/"))
        found = files.get_file_info(fs.FileSelector(inside, recursive=True))
        for info in sorted(found, key=lambda each: each.path):
            if info.is_file:
                yield S3 + info.path, info.path.removeprefix(f"{inside}/")

    def entries(self, path: str) -> Iterator[Entry]:
        """Every file below a directory; a Lance dataset is one entry instead of its files."""
        listing = list(self.below(path))
        inner = f"/{DATASET_FOLDER}/"
        datasets = {below.partition(inner)[0] for _, below in listing if inner in below}
        seen: set[str] = set()
        for child, below in listing:
            parents = map(str, reversed(PurePosixPath(below).parents))
            dataset = next((parent for parent in parents if parent in datasets), None)
            if dataset is None:
                yield Entry(child, below)
            elif dataset not in seen:
                seen.add(dataset)
                yield Entry(child.removesuffix(below) + dataset, dataset, is_dataset=True)

    def is_pattern(self, path: str) -> bool:
        """Whether a path is a pattern; False if a file of that very name exists."""
        if not has_magic(path):
            return False
        if not path.startswith(S3):
            return not os.path.lexists(path)
        return self.stat(path) is None and not self.is_directory(path)

    def matching(self, pattern: str) -> list[str]:
        """The files, datasets and directories that match a pattern, sorted."""
        if not pattern.startswith(S3) and "**" not in pattern:
            return sorted(_expanded(pattern))
        base = pattern_base(pattern)
        wanted = PurePosixPath(below_base(pattern, base)).parts
        return [
            entry.path
            for entry in self.entries(base or ".")
            if _matches(PurePosixPath(entry.below).parts, wanted)
        ]

    def open(self, path: str) -> Any:
        """A seekable stream of a file."""
        files, inner = self._at(path)
        return files.open_input_file(inner)

    def make_folder(self, path: str, *, exist_ok: bool = False) -> None:
        """Make a folder for new files; on S3 there is nothing to make."""
        if not path.startswith(S3):
            Path(path).mkdir(parents=True, exist_ok=exist_ok)

    def create(self, path: str) -> Any:
        """A new file to write to, in an existing folder."""
        files, inner = self._at(path)
        return files.open_output_stream(inner)

    def write(self, path: str, data: bytes) -> None:
        """Write a file in an existing folder atomically: readers never see a part of it."""
        if path.startswith(S3):
            # On S3 an object becomes visible when its upload is complete.
            with self.create(path) as out:
                out.write(data)
            return
        written = Path(f"{path}.{uuid4().hex}.part")
        written.write_bytes(data)
        written.replace(path)

    def stream(self, path: str) -> Any:
        """A sequential stream of a file, decompressed according to its suffix."""
        files, inner = self._at(path)
        return files.open_input_stream(inner, COMPRESSED.get(Path(path).suffix.lower()))

    def _at(self, path: str) -> tuple[Any, str]:
        """The file system of a path, and the path within it."""
        if not path.startswith(S3):
            return fs.LocalFileSystem(), path
        options = self.s3
        scheme, _, host = options.get("aws_endpoint", "").rpartition("://")
        remote = fs.S3FileSystem(
            access_key=options.get("aws_access_key_id"),
            secret_key=options.get("aws_secret_access_key"),
            session_token=options.get("aws_session_token"),
            region=options.get("aws_region"),
            endpoint_override=host or None,
            scheme=scheme or "https",
        )
        return remote, path.removeprefix(S3)


def pattern_base(pattern: str) -> str:
    """The directory that a pattern looks below; empty for the current one."""
    first = min(pattern.find(magic) for magic in "*?[" if magic in pattern)
    directory, slash, _ = pattern[:first].rpartition("/")
    return directory or slash


def below_base(path: str, base: str) -> str:
    """The part of a path below the base of its pattern."""
    return path.removeprefix(base).lstrip("/")


def _local_files(directory: str) -> Iterator[str]:
    """Every file below a directory. Symlinks are followed, to each directory once."""
    seen: set[str] = set()
    plain, linked = [directory], list[str]()
    while plain or linked:
        # Linked directories last, so that a file below both is listed by its real path.
        current = plain.pop() if plain else linked.pop(0)
        real = os.path.realpath(current)
        if real in seen:
            continue
        seen.add(real)
        with os.scandir(current) as entries:
            for entry in entries:
                if entry.is_dir():
                    (linked if entry.is_symlink() else plain).append(entry.path)
                # A dangling link is listed: opening it reports the missing file.
                elif entry.is_file() or entry.is_symlink():
                    yield entry.path


def _expanded(pattern: str) -> list[str]:
    """The paths that match a local pattern; unlike `glob`, raises if access is denied."""
    pattern = pattern.replace(os.sep, "/")
    base = pattern_base(pattern)
    found = [base]
    for wanted in below_base(pattern, base).split("/"):
        found = [path for directory in found for path in _children(directory, wanted)]
    return found


def _children(directory: str, wanted: str) -> list[str]:
    """The entries of a directory that match one part of a pattern."""
    names = [wanted]
    try:
        if has_magic(wanted):
            asks_for_hidden = wanted.startswith(".")
            names = [
                name
                for name in os.listdir(directory or ".")  # noqa: PTH208
                if fnmatchcase(name, wanted) and (asks_for_hidden or not name.startswith("."))
            ]
        else:
            os.lstat(os.path.join(directory, wanted))  # noqa: PTH118
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [os.path.join(directory, name) for name in names]  # noqa: PTH118


def _matches(parts: Sequence[str], wanted: Sequence[str]) -> bool:
    """Whether a path, or a directory above it, matches a pattern."""
    if not wanted:
        return True
    if wanted[0] == "**":
        return _matches(parts, wanted[1:]) or (bool(parts) and _matches(parts[1:], wanted))
    return bool(parts) and fnmatchcase(parts[0], wanted[0]) and _matches(parts[1:], wanted[1:])
