"""Finding the file behind a failure of Lance, whose messages name none.

Every file of Lance, of data and of versions alike, ends with four fixed bytes. Those of a file that
was cut off, or never reached the disk, are missing. Files are looked at only after a failure, and
only on local disk: an object store shows no object before it is complete.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from lance import LanceDataset

from omnigraph.errors import DamagedFile

_END = b"LANC"
_ADVICE = (
    "put it back from a copy of the graph; other tables, and commits from before it was written, "
    "can be read and exported as they are"
)
_VERSION_MAX = 2**64 - 1
"""Lance names version files so that the newest sorts first."""


def version_file(address: str, version: int) -> Path:
    """The file of one version of a local dataset or ref."""
    return Path(address) / "_versions" / f"{_VERSION_MAX - version:020d}.manifest"


def damaged_version(address: str, version: int | None) -> DamagedFile | None:
    """What to say if the file of a version, or of the newest one, is cut off."""
    if version is not None:
        file = version_file(address, version)
        return DamagedFile(str(file), _ADVICE) if _is_cut_off(file) else None
    newest = min(Path(address).glob("_versions/*.manifest"), default=None)
    if newest is None or not _is_cut_off(newest):
        return None
    return DamagedFile(
        str(newest),
        "put it back from a copy of the graph; without one, move it away, which takes back the "
        "last commit it was written for",
    )


def damaged_data(handle: LanceDataset) -> DamagedFile | None:
    """What to say if a version cannot be read because a data file of it is cut off."""
    for file in _data_files(handle):
        if _is_cut_off(file):
            return DamagedFile(str(file), _ADVICE)
    return damaged_version(handle.uri, handle.version)


def _data_files(handle: LanceDataset) -> Iterator[Path]:
    # A branch shares the files of those it was forked from, which lie in their folders.
    root = Path(handle.uri.partition("/tree/")[0])
    folders = [folder / "data" for folder in (root, *root.glob("tree/*"))]
    for fragment in handle.get_fragments():
        for file in fragment.data_files():
            yield from (folder / file.path for folder in folders if (folder / file.path).exists())


def _is_cut_off(file: Path) -> bool:
    try:
        with file.open("rb") as content:
            size = content.seek(0, os.SEEK_END)
            content.seek(max(0, size - len(_END)))
            return content.read() != _END
    except OSError:
        return False
