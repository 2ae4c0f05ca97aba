"""From blocks of bytes to numbered JSON values, for both grammars.

Strict input has one record per line: reading goes on after a bad line. Compatible input is a stream
of JSON values separated by white space, which may span lines: reading stops at a bad value, because
the start of the next one is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from omnigraph.errors import LimitExceeded
from omnigraph.loading.records.exact_json import Refusal, decode_all, decode_plain
from omnigraph.loading.records.problems import Grammar, Problem, RecordPlace, Unit, unit_of
from omnigraph.model.records import dataclass

CHUNK_BYTES = 1 << 20
"""Bytes decoded at a time. Larger chunks are slower: CPU caches, garbage collection."""

RECORD_BYTES_MAX = 1 << 30
"""The longest record. Without a bound, an unclosed bracket would read the whole input into memory.
"""


@dataclass(frozen=True, slots=True)
class RecordSource:
    """One named input that can be read as blocks of bytes, of any size."""

    name: str | None
    """Its name in messages."""
    blocks: Callable[[], Iterable[bytes]]
    unit: Unit | None = None
    """The unit that numbers its records, if not that of the grammar."""

    @classmethod
    def of(cls, data: bytes | str, name: str | None = None) -> RecordSource:
        """Records already in memory."""
        raw = data.encode() if isinstance(data, str) else data
        return cls(name, lambda: (raw,))

    @classmethod
    def stream(cls, blocks: Iterable[bytes], name: str | None = None) -> RecordSource:
        """Records from a stream; can be read only once."""
        return cls(name, lambda: blocks)


def line_blocks(source: RecordSource, chunk_bytes: int = CHUNK_BYTES) -> Iterator[bytes]:
    """The input in blocks of whole lines, each of about ``chunk_bytes``.

    A line longer than that is a block of its own. Only the last block may lack its newline.
    """
    pending: list[bytes] = []
    pending_bytes = 0
    for block in _sized(source.blocks(), chunk_bytes):
        end = block.rfind(b"\n") + 1
        pending.append(block[:end] if end else block)
        pending_bytes += len(pending[-1])
        if pending_bytes > RECORD_BYTES_MAX + chunk_bytes:
            raise record_too_long(source, pending_bytes)
        if end and pending_bytes >= chunk_bytes:
            yield b"".join(pending)
            pending, pending_bytes = [], 0
        if 0 < end < len(block):
            pending.append(block[end:])
            pending_bytes += len(pending[-1])
    if pending:
        yield b"".join(pending)


def _sized(blocks: Iterable[bytes], chunk_bytes: int) -> Iterator[bytes]:
    """``blocks``, with large ones cut; the caller joins small ones."""
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
    """Problems of texts that are not JSON; ``values`` lack these texts."""


def read_chunks(
    source: RecordSource, grammar: Grammar, *, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[Chunk]:
    """The records of ``source`` in order, decoded exactly, about ``chunk_bytes`` at a time."""
    if grammar == "strict":
        return _strict(source, chunk_bytes)
    return _compatible(source, chunk_bytes)


class NotOnLines(Exception):
    """A compatible input does not have one value per line."""


def read_line_chunks(source: RecordSource) -> Iterator[Chunk]:
    """The values of a part of a compatible input with one value per line.

    Raises `NotOnLines` otherwise; the caller then reads the whole input with `read_chunks`.
    """
    first = 1
    for block in line_blocks(source, CHUNK_BYTES):
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
        decoded = decode_all(block, texts, unique_members=True)
        yield _chunk(source, "strict", numbers, decoded, texts)


# --- a stream of values ---------------------------------------------------------------------------


def _compatible(source: RecordSource, chunk_bytes: int) -> Iterator[Chunk]:
    first = 1
    pending: list[bytes] = []
    """The beginning of an incomplete value."""
    bytes_needed = 0
    for block in line_blocks(source, chunk_bytes):
        decoded = None if pending else _line_values(block)
        if decoded is None:
            pending.append(block)
            if sum(map(len, pending)) < bytes_needed:
                continue
            raw = b"".join(pending)
            texts, used = _split(raw)
            decoded = decode_all(raw[:used], texts, unique_members=False)
            rest = raw[used:]
            if len(rest) > RECORD_BYTES_MAX:
                raise record_too_long(source, len(rest))
            # Doubling keeps the total work linear in the length of a long value.
            bytes_needed = 2 * len(rest)
            pending = [rest] if rest else []
        chunk = _stream_chunk(source, first, decoded)
        yield chunk
        if chunk.problems:
            return
        first += len(chunk.values)
    raw = b"".join(pending)
    if raw.strip(_WHITE_SPACE):
        texts, used = _split(raw)
        if used < len(raw):
            texts.append(raw[used:])
        yield _stream_chunk(source, first, decode_all(raw, texts, unique_members=False))


def _line_values(block: bytes) -> list[object | Refusal] | None:
    """The values of a block with one value per line, the usual case; None for other blocks."""
    lines = [line for line in block.split(b"\n") if line.strip(_WHITE_SPACE)]
    return decode_plain(block, lines, unique_members=False)


def _stream_chunk(source: RecordSource, first: int, decoded: list[object | Refusal]) -> Chunk:
    bad = next((i for i, value in enumerate(decoded) if isinstance(value, Refusal)), None)
    if bad is not None:
        del decoded[bad + 1 :]
    return _chunk(source, "compatible", range(first, first + len(decoded)), decoded)


_TOKEN = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|["{}\[\]]', re.DOTALL)
"""Strings, and brackets outside of strings; a lone quote starts an unterminated string."""
_VALUE = re.compile(rb"[^ \t\r\n]")
_WORD_END = re.compile(rb"[ \t\r\n{\[]")


def _split(raw: bytes) -> tuple[list[bytes], int]:
    """The complete values in ``raw``, and the position where an incomplete one starts.

    Only counts brackets; the decoder checks the syntax.
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
    """The end of the value that starts at ``start``; None if it continues after ``raw``."""
    if raw[start : start + 1] not in (b"{", b"["):
        # Not a record: take one word for the message.
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


# --- one array ------------------------------------------------------------------------------------

_GAP = re.compile(rb"[ \t\r\n]*+(,?)[ \t\r\n]*+")
_SCALAR_END = re.compile(rb"[,\]]")


def items_on_lines(blocks: Iterable[bytes], name: str) -> Iterator[bytes]:
    """The items of a text that is one JSON array, each on a line of its own.

    Holds one item and one block at a time. A syntax error between items becomes a line that is not
    JSON, so that it is reported with the number of the item. Raises `LimitExceeded` naming the text
    as ``name`` for an item over `RECORD_BYTES_MAX`.
    """
    pending, bytes_needed = bytearray(), 0
    array = _Array()
    for block in blocks:
        pending += block
        if len(pending) < bytes_needed:
            continue
        lines, used = array.lines(bytes(pending))
        if lines:
            yield b"".join(lines)
        del pending[:used]
        if len(pending) > RECORD_BYTES_MAX:
            raise record_too_long(RecordSource(name, lambda: ()), len(pending))
        # Doubling keeps the total work linear in the length of a long item.
        bytes_needed = 2 * len(pending)
    lines, used = array.lines(bytes(pending))
    rest = bytes(pending[used:]).strip(_WHITE_SPACE)
    if rest or not array.is_closed:
        lines.append(_line(rest or b"["))
    yield b"".join(lines)


class _Array:
    """Cuts an array into its items, block by block."""

    def __init__(self) -> None:
        self.is_closed = False
        self._is_open = False
        self._is_first = True

    def lines(self, raw: bytes) -> tuple[list[bytes], int]:
        """All complete items as lines, and the number of bytes consumed."""
        lines: list[bytes] = []
        at = 0
        if not self._is_open:
            at = raw.find(b"[") + 1
            if not at:
                return lines, 0
            self._is_open = True
        while not self.is_closed:
            gap = _GAP.match(raw, at)
            assert gap is not None
            start = gap.end()
            if start == len(raw):
                return lines, at
            is_end = raw[start : start + 1] == b"]"
            is_wrong = bool(gap[1]) == (self._is_first or is_end)
            if is_end:
                self.is_closed = True
                if is_wrong and gap[1]:
                    lines.append(_line(b",]"))
                at = start + 1
                break
            end = _item_end(raw, start)
            if end is None:
                return lines, at
            item = raw[start:end]
            lines.append(_line(b"," + item if is_wrong else item))
            self._is_first = False
            at = end
        rest = raw[at:].strip(_WHITE_SPACE)
        if rest:
            lines.append(_line(b"]" + rest))
        return lines, len(raw)


def _item_end(raw: bytes, start: int) -> int | None:
    """The end of an item of an array; None if it may continue after ``raw``."""
    if raw[start : start + 1] in (b"{", b"["):
        return _value_end(raw, start)
    if raw[start : start + 1] == b'"':
        text = _TOKEN.match(raw, start)
        return None if text is None or len(text[0]) == 1 else text.end()
    end = _SCALAR_END.search(raw, start + 1)
    return None if end is None else end.start()


def _line(item: bytes) -> bytes:
    # A line break in a string stays an error: JSON forbids a carriage return there, too.
    return item.strip(_WHITE_SPACE).replace(b"\n", b"\r") + b"\n"


# --- results --------------------------------------------------------------------------------------


def _chunk(
    source: RecordSource,
    grammar: Grammar,
    numbers: Sequence[int],
    decoded: list[object | Refusal],
    texts: Sequence[bytes] = (),
) -> Chunk:
    if Refusal not in set(map(type, decoded)):
        return Chunk(numbers, decoded, [])
    bad = {i: value for i, value in enumerate(decoded) if isinstance(value, Refusal)}
    problems = [
        _json_problem(source, grammar, numbers[i], value, texts[i] if texts else None)
        for i, value in bad.items()
    ]
    good = [i for i in range(len(decoded)) if i not in bad]
    return Chunk([numbers[i] for i in good], [decoded[i] for i in good], problems)


def _json_problem(
    source: RecordSource, grammar: Grammar, number: int, refusal: Refusal, text: bytes | None
) -> Problem:
    strict = grammar == "strict"
    unit = source.unit or unit_of(grammar)
    place = RecordPlace(source.name, number, unit)
    line = None if text is None else text.decode(errors="replace").strip()
    if refusal.duplicate is not None:
        hint = "name each member of an object once"
        return Problem("duplicate_member", refusal.reason, place, hint=hint, input=line)
    what = f"invalid {'strict ' if strict else ''}JSON at {unit} {number}"
    return Problem(
        "invalid_json",
        f"{what}: {refusal.reason}{_at(refusal)}",
        place,
        hint=_hint(refusal, strict),
        input=line,
        # After an invalid line the next one can still be found; after an invalid item it cannot.
        ends_reading=unit != "line",
    )


def _at(refusal: Refusal) -> str:
    if refusal.column is None:
        return ""
    # For a record on one line, its place already names the line.
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
