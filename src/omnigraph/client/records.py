"""Records to load: from files, or as they are."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pyarrow as pa

from omnigraph.errors import InputError, NotFound

_BLOCK_BYTES = 1 << 20

Data = bytes | str | Iterable[bytes]


def read_records(
    paths: Iterable[str | os.PathLike[str]],
    data: Data | None,
    progress: Callable[[int], None] | None = None,
) -> bytes:
    """All records as one text of lines; files may be compressed.

    Raises `NotFound` for a file that is not there and `InputError` for one that is none. A server
    takes one request, so all of it is in memory.
    """
    parts = [_file(Path(path).expanduser()) for path in paths]
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


def _file(path: Path) -> bytes:
    if not path.exists():
        raise NotFound(f"there is no file `{path}`", details={"file": str(path)})
    if not path.is_file():
        raise InputError(
            f"`{path}` is no file", hint="name the files; directories are for loads on the storage"
        )
    # The name says how it is compressed, as with loads on the storage.
    with pa.input_stream(str(path), compression="detect", buffer_size=_BLOCK_BYTES) as stream:
        content: bytes = stream.read()
    return content
