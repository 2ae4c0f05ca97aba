"""Records to load: from files, or as they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from glob import glob, has_magic
from pathlib import Path

import pyarrow as pa

from omnigraph.errors import NotFound

_BLOCK_BYTES = 1 << 20
_RECORDS = (".jsonl", ".ndjson", ".json")
_COMPRESSED = (".gz", ".zst", ".bz2", ".lz4")

Data = bytes | str | Iterable[bytes]


def read_records(
    paths: Iterable[str | os.PathLike[str]],
    data: Data | None,
    progress: Callable[[int], None] | None = None,
) -> bytes:
    """All records as one text of lines; files may be compressed, and directories or patterns.

    Raises `NotFound` for what names no file. A server takes one request, so all of it is in memory.
    """
    parts = [_content(file) for path in paths for file in _files(Path(path).expanduser())]
    if isinstance(data, str):
        parts.append(data.encode())
    elif isinstance(data, bytes):
        parts.append(data)
    elif data is not None:
        parts.append(b"".join(data))
    if progress is not None:
        for part in parts:
            progress(len(part))
    return b"\n".join(part.removesuffix(b"\n") for part in parts)


def _files(path: Path) -> Iterator[Path]:
    """The files that a path, a directory or a pattern names, as loads on the storage find them."""
    names = [path]
    if has_magic(str(path)):
        names = [Path(name) for name in sorted(glob(str(path), recursive=True))]  # noqa: PTH207
        if not names:
            raise NotFound(
                f"no file matches {path}",
                hint="quote the pattern if your shell should not expand it",
                details={"file": str(path)},
            )
    found = [file for name in names for file in (_below(name) if name.is_dir() else [name])]
    if not found:
        raise NotFound(
            f"there is nothing to load in {path}",
            hint=f"names end in {', '.join(_RECORDS)}",
            details={"file": str(path)},
        )
    yield from found


def _below(directory: Path) -> Iterator[Path]:
    for file in sorted(directory.rglob("*")):
        # As everywhere in a lake: such names are notes of whoever wrote the directory.
        is_note = any(part.startswith(("_", ".")) for part in file.relative_to(directory).parts)
        if file.is_file() and not is_note and _has_records(file.name):
            yield file


def _has_records(name: str) -> bool:
    for suffix in _COMPRESSED:
        name = name.removesuffix(suffix)
    return Path(name).suffix.lower() in _RECORDS


def _content(path: Path) -> bytes:
    if not path.exists():
        raise NotFound(f"there is no file `{path}`", details={"file": str(path)})
    # The name says how it is compressed, as with loads on the storage.
    with pa.input_stream(str(path), compression="detect", buffer_size=_BLOCK_BYTES) as stream:
        content: bytes = stream.read()
    return content
