"""Files of an input, on local disk or on S3: the same few questions for both.

Credentials are read from the environment of the driver and travel to workers with the functions
they run, never as part of a path or a plan.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from glob import glob, has_magic
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import fs

from omnigraph.effects.s3_environment import s3_options

S3 = "s3://"
COMPRESSED = {".gz": "gzip", ".zst": "zstd", ".bz2": "bz2", ".lz4": "lz4"}

Stamp = tuple[int, int]
"""Size and time of last change in nanoseconds: another stamp means another content."""


@dataclass(frozen=True, slots=True)
class Files:
    """The way to files, wherever they are."""

    s3: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What is needed to reach S3; holds credentials."""

    @classmethod
    def of_environment(cls, paths: list[str]) -> Files:
        """The way to files at ``paths``."""
        remote = [path for path in paths if path.startswith(S3)]
        if not remote:
            return cls()
        bucket = remote[0].removeprefix(S3).partition("/")[0]
        return cls(s3_options(bucket, os.environ))

    def stat(self, path: str) -> Stamp | None:
        """The stamp of a file; None if there is none."""
        if not path.startswith(S3):
            try:
                status = Path(path).stat()
            except FileNotFoundError:
                return None
            return status.st_size, status.st_mtime_ns
        info = self._s3().get_file_info(path.removeprefix(S3))
        return (info.size, info.mtime_ns) if info.is_file else None

    def is_directory(self, path: str) -> bool:
        """Whether there are files below ``path``."""
        if not path.startswith(S3):
            return Path(path).is_dir()
        kind = self._s3().get_file_info(path.removeprefix(S3)).type
        return bool(kind == fs.FileType.Directory)

    def below(self, path: str) -> Iterator[tuple[str, str]]:
        """Every file below a directory: its path, and the part of it below the directory."""
        if not path.startswith(S3):
            for child in sorted(Path(path).rglob("*")):
                if child.is_file():
                    yield str(child), child.relative_to(path).as_posix()
            return
        inside = path.removeprefix(S3).rstrip("/")
        found = self._s3().get_file_info(fs.FileSelector(inside, recursive=True))
        for info in sorted(found, key=lambda each: each.path):
            if info.is_file:
                yield S3 + info.path, info.path.removeprefix(f"{inside}/")

    def matching(self, pattern: str) -> list[str]:
        """The paths a pattern stands for, sorted; a path without one stands for itself."""
        if not has_magic(pattern):
            return [pattern]
        if not pattern.startswith(S3):
            return sorted(glob(pattern, recursive=True))  # noqa: PTH207 - of absolute ones too
        first = min(pattern.find(magic) for magic in "*?[" if magic in pattern)
        fixed = pattern[:first].rpartition("/")[0]
        return [path for path, _ in self.below(fixed) if fnmatchcase(path, pattern)]

    def open(self, path: str) -> Any:
        """The bytes of a file, at any place."""
        if not path.startswith(S3):
            return pa.OSFile(path, "rb")
        return self._s3().open_input_file(path.removeprefix(S3))

    def stream(self, path: str) -> Any:
        """The bytes of a file from its beginning, unpacked if its name says so."""
        if not path.startswith(S3):
            return pa.input_stream(path, compression="detect")
        compression = COMPRESSED.get(Path(path).suffix)
        stream = self._s3().open_input_stream(path.removeprefix(S3), compression=None)
        return stream if compression is None else pa.CompressedInputStream(stream, compression)

    def _s3(self) -> Any:
        options = self.s3
        endpoint = options.get("aws_endpoint", "")
        scheme, _, host = endpoint.rpartition("://")
        return fs.S3FileSystem(
            access_key=options.get("aws_access_key_id"),
            secret_key=options.get("aws_secret_access_key"),
            session_token=options.get("aws_session_token"),
            region=options.get("aws_region"),
            endpoint_override=host or None,
            scheme=scheme or "https",
        )
