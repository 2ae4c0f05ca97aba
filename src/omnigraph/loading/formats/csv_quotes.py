"""Finding the ends of rows in a CSV text: line breaks outside of quoted cells.

A quote opens a quoted cell only at the beginning of a cell; elsewhere it is a plain character.
Within quotes, a doubled quote stands for one. Arrow's parser has the same rules, so it finds the
same rows.

In nearly all texts quotes alternately open and close cells, which is checked for all quotes at
once. Other texts are parsed quote by quote.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from omnigraph.model.records import dataclass

ROW_BYTES_MAX = 256 << 20
"""The longest row. Without a bound, an unclosed quote would read the whole text into memory."""

_QUOTE = ord('"')
_BREAKS = b"\r\n"
_BREAK = re.compile(rb"\r\n?|\n")

Positions = npt.NDArray[np.int64]


class RowTooLong(Exception):
    """A row has more than `ROW_BYTES_MAX`, most likely because of an unclosed quote."""


@dataclass(frozen=True, slots=True)
class Quotes:
    """The quotes of a text that starts at the beginning of a row."""

    pairs: Positions
    """Quotes that alternately open and close cells; a doubled one closes a cell and reopens it."""
    stray: Positions
    """Closing quotes that are not followed by the end of the cell."""

    @property
    def is_open(self) -> bool:
        """Whether the text ends within a quoted cell."""
        return len(self.pairs) % 2 == 1

    def are_around(self, position: int) -> bool:
        """Whether a position is within a quoted cell."""
        return bisect_left(self.pairs, position) % 2 == 1

    def are_stray(self, start: int, end: int) -> bool:
        """Whether there is a stray quote in ``[start, end)``."""
        return bisect_left(self.stray, start) < bisect_left(self.stray, end)


@dataclass(frozen=True, slots=True)
class RowBlock:
    """Some whole rows of a text."""

    raw: bytes
    quotes: Quotes
    """Only the last block of a text can end within a quoted cell."""


def row_blocks(blocks: Iterable[bytes], delimiter: str, block_bytes: int) -> Iterator[RowBlock]:
    """A text in blocks of whole rows of about ``block_bytes``; a longer row is a block of its own.

    Raises `RowTooLong` after yielding all rows before that one.
    """
    pending: list[bytes] = []
    pending_bytes, bytes_needed = 0, block_bytes
    for block in blocks:
        pending.append(block)
        pending_bytes += len(block)
        if pending_bytes < bytes_needed:
            continue
        raw = b"".join(pending)
        quotes = quotes_of(raw, delimiter)
        end = _last_end(raw, quotes)
        if end:
            yield RowBlock(raw[:end], _before(quotes, end))
        pending, pending_bytes = [raw[end:]], len(raw) - end
        if pending_bytes > ROW_BYTES_MAX:
            raise RowTooLong
        # Doubling keeps the total work linear in the length of a long row.
        bytes_needed = max(block_bytes, 2 * pending_bytes)
    if pending_bytes:
        raw = b"".join(pending)
        yield RowBlock(raw, quotes_of(raw, delimiter))


def quotes_of(raw: bytes, delimiter: str) -> Quotes:
    """The quotes of a text that starts at the beginning of a row."""
    none = np.empty(0, np.int64)
    if b'"' not in raw:
        return Quotes(none, none)
    text = np.frombuffer(raw, np.uint8)
    at = np.flatnonzero(text == _QUOTE)
    opening, closing = at[0::2], at[1::2]
    # The edges of the text count as line breaks.
    before = text[np.maximum(opening - 1, 0)]
    after = text[np.minimum(closing + 1, len(text) - 1)]
    is_border = np.zeros(256, np.bool_)
    is_border[[ord(delimiter), *_BREAKS, _QUOTE]] = True
    if is_border[before].all() and is_border[after].all():
        return Quotes(at, none)
    return _followed(raw, at, delimiter)


def _followed(raw: bytes, at: Positions, delimiter: str) -> Quotes:
    """`quotes_of` for a text in which quotes do not alternate: one quote after another."""
    borders = {ord(delimiter), *_BREAKS}
    pairs: list[int] = []
    stray: list[int] = []
    is_open = False
    reopened = -1
    for each in at.tolist():
        if not is_open:
            is_open = each in (0, reopened) or raw[each - 1] in borders
            if is_open:
                pairs.append(each)
            continue
        is_open = False
        pairs.append(each)
        following = raw[each + 1] if each + 1 < len(raw) else _BREAKS[0]
        if following == _QUOTE:
            reopened = each + 1
        elif following not in borders:
            stray.append(each)
    return Quotes(np.array(pairs, np.int64), np.array(stray, np.int64))


def _before(quotes: Quotes, end: int) -> Quotes:
    return Quotes(
        quotes.pairs[: np.searchsorted(quotes.pairs, end)],
        quotes.stray[: np.searchsorted(quotes.stray, end)],
    )


def _last_end(raw: bytes, quotes: Quotes) -> int:
    """The end of the last complete row, or 0."""
    end = raw.rfind(b"\n")
    while end >= 0:
        before = bisect_left(quotes.pairs, end)
        if before % 2 == 0:
            return end + 1
        end = raw.rfind(b"\n", 0, int(quotes.pairs[before - 1]))
    return 0


def first_row(raw: bytes, delimiter: str) -> bytes | None:
    """The first row of a text without its line break; None if it is incomplete."""
    quotes = quotes_of(raw, delimiter)
    for end in _BREAK.finditer(raw):
        if not quotes.are_around(end.start()):
            return raw[: end.start()]
    return None


def rows_of(block: RowBlock) -> Iterator[tuple[int, bytes]]:
    """The start and text of each row of a block, without blank lines."""
    start = 0
    for end in [*(each.end() for each in _BREAK.finditer(block.raw)), len(block.raw)]:
        if start < end and not block.quotes.are_around(end - 1):
            row = block.raw[start:end]
            if row.strip(_BREAKS):
                yield start, row
            start = end
    if start < len(block.raw):
        yield start, block.raw[start:]
