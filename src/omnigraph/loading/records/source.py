"""Where records come from: bytes, streams of blocks, and files, plain or compressed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from omnigraph.errors import InputError, LimitExceeded, NotFound

CHUNK_BYTES = 1 << 20
"""How much is decoded at a time. Larger chunks are slower: their objects leave the caches and keep
the garbage collector busy."""

RECORD_BYTES_MAX = 1 << 30
"""The longest record. Without a bound, one unclosed bracket would pull a whole input into memory.
"""


@dataclass(frozen=True, slots=True)
class RecordSource:
    """One named input that can be read as blocks of bytes, of any size."""

    name: str | None
    """What messages call it."""
    blocks: Callable[[], Iterable[bytes]]

    @classmethod
    def of(cls, data: bytes | str, name: str | None = None) -> RecordSource:
        """Records already in memory."""
        raw = data.encode() if isinstance(data, str) else data
        return cls(name, lambda: (raw,))

    @classmethod
    def stream(cls, blocks: Iterable[bytes], name: str | None = None) -> RecordSource:
        """Records that arrive; such a source can be read once."""
        return cls(name, lambda: blocks)

    @classmethod
    def file(cls, path: str | os.PathLike[str]) -> RecordSource:
        """A local file; `.gz`, `.zst`, `.bz2` and `.lz4` are unpacked while reading."""
        return cls(os.fspath(path), lambda: _file_blocks(Path(path)))


def _file_blocks(path: Path) -> Iterator[bytes]:
    try:
        with pa.input_stream(str(path), compression="detect") as stream:
            while block := stream.read(CHUNK_BYTES):
                yield block
    except FileNotFoundError as error:
        raise NotFound(f"no such file: {path}", details={"file": str(path)}) from error
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error}",
            hint="check that the file is complete and that its name says how it is compressed",
            details={"file": str(path)},
        ) from error


def line_blocks(source: RecordSource, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The input in blocks of whole lines, each of about ``chunk_bytes``.

    A line longer than that is a block of its own. Only the last block may lack its newline.
    """
    held: list[bytes] = []
    held_bytes = 0
    for block in _sized(source.blocks(), chunk_bytes):
        end = block.rfind(b"\n") + 1
        held.append(block[:end] if end else block)
        held_bytes += len(held[-1])
        if held_bytes > RECORD_BYTES_MAX + chunk_bytes:
            raise record_too_long(source, held_bytes)
        if end and held_bytes >= chunk_bytes:
            yield b"".join(held)
            held, held_bytes = [], 0
        if 0 < end < len(block):
            held.append(block[end:])
            held_bytes += len(held[-1])
    if held:
        yield b"".join(held)


def _sized(blocks: Iterable[bytes], chunk_bytes: int) -> Iterator[bytes]:
    """``blocks``, with large ones cut; small ones are gathered by the caller."""
    for block in blocks:
        if len(block) <= chunk_bytes:
            if block:
                yield block
        else:
            for start in range(0, len(block), chunk_bytes):
                yield block[start : start + chunk_bytes]


def record_too_long(source: RecordSource, size: int) -> LimitExceeded:
    """The error for a record over `RECORD_BYTES_MAX`."""
    name = f" in {source.name}" if source.name else ""
    return LimitExceeded(
        f"the size in bytes of one record{name}",
        RECORD_BYTES_MAX,
        size,
        hint="look for an unclosed string or bracket; large blobs can stay outside as a URI",
    )
