"""The bytes of a piece, and whether they are still those that the load was planned with."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from omnigraph.errors import NotFound, SourceChanged
from omnigraph.loading.files import Files
from omnigraph.loading.records.source import CHUNK_BYTES
from omnigraph.loading.sources import Piece, corrupt

_LINE_BYTES = 4_096


def require_unchanged(piece: Piece, files: Files) -> None:
    """Refuse a file that is not the one the load was planned with."""
    if piece.stamp is None:
        return
    found = files.stat(piece.path)
    if found is None:
        raise NotFound(f"{piece.shown} vanished while it was loaded", details={"file": piece.path})
    if found != piece.stamp:
        raise SourceChanged(
            f"{piece.shown} changed while it was loaded",
            hint="load a file once its writer is done with it",
            details={"file": piece.path},
        )


def blocks_of(piece: Piece, files: Files) -> Iterator[bytes]:
    """The bytes of a piece of a text: of a range, the lines that start in it."""
    try:
        if piece.end is None:
            with files.stream(piece.path) as stream:
                while block := stream.read(CHUNK_BYTES):
                    yield block
            return
        with files.open(piece.path) as stream:
            yield from _range(stream, piece.start, piece.end)
    except OSError as error:
        raise corrupt(piece.shown, error) from error


def _range(stream: Any, start: int, end: int) -> Iterator[bytes]:
    if start:
        stream.seek(start - 1)
        start += len(_line(stream)) - 1
    while start < end:
        stream.seek(start)
        block = stream.read(min(end - start, CHUNK_BYTES))
        if not block:
            return
        start += len(block)
        if start == end and not block.endswith(b"\n"):
            block += _line(stream)
        yield block


def _line(stream: Any) -> bytes:
    """What is left of a line."""
    held: list[bytes] = []
    while block := stream.read(_LINE_BYTES):
        end = block.find(b"\n") + 1
        if end:
            return b"".join([*held, block[:end]])
        held.append(block)
    return b"".join(held)
