"""Which files hold the stored queries somebody names."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from omnigraph.errors import InputError

SUFFIX = ".gq"


def query_files(paths: Iterable[Path]) -> list[Path]:
    """The files that are meant: each path itself, or the `*.gq` files of a directory by name."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(each for each in path.glob(f"*{SUFFIX}") if each.is_file())
        elif path.is_file():
            files.append(path)
        else:
            raise InputError(
                f"there are no stored queries at {path}", hint="name a `.gq` file or a directory"
            )
    return files
