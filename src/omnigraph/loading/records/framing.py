"""From blocks of bytes to numbered JSON values: the two ways records stand in an input.

Strict input has one record per line, so a bad line costs only itself and the next line starts
afresh. Compatible input is a stream of JSON values with white space between them, each spread over
as many lines as its author liked; after a bad one nobody can say where the next would begin, and
reading stops.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from omnigraph.errors import InputError, LimitExceeded, NotFound
from omnigraph.loading.records.exact_json import Refusal, decode_all, decode_plain
from omnigraph.loading.records.problems import Grammar, Place, Problem, unit_of

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


_WHITE_SPACE = b" \t\r\n"


@dataclass(frozen=True, slots=True)
class Chunk:
    """Some consecutive records of one source: decoded values with their numbers."""

    numbers: Sequence[int]
    values: Sequence[object]
    problems: Sequence[Problem]
    """Of texts that are no JSON; they are missing in ``values``."""


def read_chunks(
    source: RecordSource, grammar: Grammar, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Chunk]:
    """The records of ``source`` in order, decoded exactly, about ``chunk_bytes`` at a time."""
    if grammar == "strict":
        return _strict(source, chunk_bytes)
    return _compatible(source, chunk_bytes)


class NotOnLines(Exception):
    """Some value of a compatible input does not stand on one line of its own."""


def read_line_chunks(source: RecordSource, *, chunk_bytes: int = CHUNK_BYTES) -> Iterator[Chunk]:
    """The values of a part of a compatible input, if each stands on one line of its own.

    Only such an input can be read in parts. Raises `NotOnLines` if this part is not like that;
    then the whole input has to be read from its beginning, by `read_chunks`.
    """
    first = 1
    for block in line_blocks(source, chunk_bytes):
        decoded = _line_values(block)
        if decoded is None or any(isinstance(value, Refusal) for value in decoded):
            raise NotOnLines
        yield _chunk(source, "compatible", range(first, first + len(decoded)), decoded)
        first += len(decoded)


# --- one record per line --------------------------------------------------------------------------


def _strict(source: RecordSource, chunk_bytes: int) -> Iterator[Chunk]:
    first = 1
    for block in line_blocks(source, chunk_bytes):
        lines = block.split(b"\n")
        if block.endswith(b"\n"):
            del lines[-1]
        texts = [line for line in lines if line.strip(_WHITE_SPACE)]
        numbers: Sequence[int] = range(first, first + len(lines))
        if len(texts) < len(lines):
            pairs = zip(numbers, lines, strict=True)
            numbers = [number for number, line in pairs if line.strip(_WHITE_SPACE)]
        first += len(lines)
        yield _chunk(source, "strict", numbers, decode_all(block, texts, unique_members=True))


# --- a stream of values ---------------------------------------------------------------------------


def _compatible(source: RecordSource, chunk_bytes: int) -> Iterator[Chunk]:
    first = 1
    held: list[bytes] = []
    """The beginning of a value whose end has not been seen."""
    bytes_needed = 0
    for block in line_blocks(source, chunk_bytes):
        decoded = None if held else _line_values(block)
        if decoded is None:
            held.append(block)
            if sum(map(len, held)) < bytes_needed:
                continue
            raw = b"".join(held)
            texts, used = _split(raw)
            decoded = decode_all(raw[:used], texts, unique_members=False)
            rest = raw[used:]
            if len(rest) > RECORD_BYTES_MAX:
                raise record_too_long(source, len(rest))
            # It is looked at again when twice as much of it is there, so that a long value is not
            # looked at over and over.
            bytes_needed = 2 * len(rest)
            held = [rest] if rest else []
        chunk = _stream_chunk(source, first, decoded)
        yield chunk
        if chunk.problems:
            return
        first += len(chunk.values)
    raw = b"".join(held)
    if raw.strip(_WHITE_SPACE):
        texts, used = _split(raw)
        if used < len(raw):
            texts.append(raw[used:])
        yield _stream_chunk(source, first, decode_all(raw, texts, unique_members=False))


def _line_values(block: bytes) -> list[object | Refusal] | None:
    """The values of a block in which every line is a value of its own, as most authors write."""
    lines = [line for line in block.split(b"\n") if line.strip(_WHITE_SPACE)]
    return decode_plain(block, lines, unique_members=False)


def _stream_chunk(source: RecordSource, first: int, decoded: list[object | Refusal]) -> Chunk:
    bad = next((i for i, value in enumerate(decoded) if isinstance(value, Refusal)), None)
    if bad is not None:
        del decoded[bad + 1 :]
    return _chunk(source, "compatible", range(first, first + len(decoded)), decoded)


_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["{}\[\]]', re.DOTALL)
"""What opens or closes something outside of texts; a quote alone opens a text without an end."""
_VALUE = re.compile(rb"[^ \t\r\n]")
_WORD_END = re.compile(rb"[ \t\r\n{\[]")


def _split(raw: bytes) -> tuple[list[bytes], int]:
    """The values that stand in ``raw`` one after another, and where a value without an end starts.

    Only brackets are counted here: whether a text between them is JSON is for the decoder to say.
    """
    texts: list[bytes] = []
    position = 0
    while (start := _VALUE.search(raw, position)) is not None:
        end = _value_end(raw, start.start())
        if end is None:
            return texts, start.start()
        texts.append(raw[start.start() : end])
        position = end
    return texts, len(raw)


def _value_end(raw: bytes, start: int) -> int | None:
    """Where the value that starts at ``start`` ends, or None if it goes on beyond ``raw``."""
    if raw[start : start + 1] not in (b"{", b"["):
        # No record, so that all that matters is to give its author a short text to look at.
        end = _WORD_END.search(raw, start + 1)
        return len(raw) if end is None else end.start()
    depth = 0
    for token in _TOKEN.finditer(raw, start):
        match token[0]:
            case b"{" | b"[":
                depth += 1
            case b"}" | b"]":
                depth -= 1
                if not depth:
                    return token.end()
            case b'"':
                return None
    return None


# --- results --------------------------------------------------------------------------------------


def _chunk(
    source: RecordSource,
    grammar: Grammar,
    numbers: Sequence[int],
    decoded: list[object | Refusal],
) -> Chunk:
    if Refusal not in set(map(type, decoded)):
        return Chunk(numbers, decoded, [])
    problems = [
        _json_problem(source, grammar, numbers[i], value)
        for i, value in enumerate(decoded)
        if isinstance(value, Refusal)
    ]
    good = [i for i, value in enumerate(decoded) if not isinstance(value, Refusal)]
    return Chunk([numbers[i] for i in good], [decoded[i] for i in good], problems)


def _json_problem(source: RecordSource, grammar: Grammar, number: int, refusal: Refusal) -> Problem:
    strict = grammar == "strict"
    place = Place(source.name, number, unit_of(grammar))
    if refusal.duplicate is not None:
        return Problem(
            "duplicate_member", refusal.reason, place, hint="name each member of an object once"
        )
    what = f"invalid strict JSON at line {number}" if strict else f"invalid JSON at record {number}"
    return Problem(
        "invalid_json",
        f"{what}: {refusal.reason}{_at(refusal)}",
        place,
        hint=_hint(refusal, strict),
    )


def _at(refusal: Refusal) -> str:
    if refusal.column is None:
        return ""
    # A record on one line has that line's number already.
    line = f"line {refusal.line} " if refusal.line > 1 else ""
    return f" at {line}column {refusal.column}"


def _hint(refusal: Refusal, strict: bool) -> str:
    if "byte order mark" in refusal.reason:
        return "save the file as UTF-8 without a byte order mark"
    if "UTF-8" in refusal.reason:
        return "save the file as UTF-8"
    if strict and (refusal.at_end or refusal.reason.startswith("extra data")):
        return "write each record as one JSON object on a line of its own"
    return "JSON has no comments, no trailing commas, and no NaN or Infinity"
