"""From blocks of bytes to numbered JSON values: the two ways records stand in an input.

Strict input has one record per line, so a bad line costs only itself and the next line starts
afresh. Compatible input is a stream of JSON values with white space between them, each spread over
as many lines as its author liked; after a bad one nobody can say where the next would begin, and
reading stops.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from omnigraph.loading.records.exact_json import Refusal, decode_all, decode_plain
from omnigraph.loading.records.problems import Grammar, Place, Problem, unit_of
from omnigraph.loading.records.source import (
    CHUNK_BYTES,
    RECORD_BYTES_MAX,
    RecordSource,
    line_blocks,
    record_too_long,
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
