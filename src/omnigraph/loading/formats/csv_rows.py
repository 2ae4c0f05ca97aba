"""Rows of CSV files: a header, then cells that are texts.

Arrow parses them block by block. Rows with a wrong number of cells, invalid UTF-8 or an unclosed
quote become problems, and the other rows are still read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa
import pyarrow.csv as pac

from omnigraph.errors import InputError
from omnigraph.loading.files import Files
from omnigraph.loading.formats.csv_quotes import (
    ROW_BYTES_MAX,
    RowBlock,
    RowTooLong,
    first_row,
    quotes_of,
    row_blocks,
    rows_of,
)
from omnigraph.loading.pieces import Piece, blocks_of
from omnigraph.loading.records.exact_json import BOM
from omnigraph.loading.records.problems import Problem, RecordPlace
from omnigraph.loading.sources import FoundFile, delimiter_of
from omnigraph.model.records import dataclass

BLOCK_BYTES = 4 << 20
"""Bytes parsed at a time."""

_HEADER_BYTES = 1 << 16
_HEADER_BYTES_MAX = 16 << 20
_DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}

_NOT_UTF8 = "save the file as UTF-8"
_NOT_CLOSED = "close it with a quote; a quote within quotes is written twice"


class _Reason(NamedTuple):
    """Why a row could not be parsed."""

    message: str
    hint: str
    row: str | None = None
    ends_reading: bool = False
    """Whether the rest of the file cannot be read: the row may contain the rows after it."""


@dataclass(frozen=True, slots=True)
class CsvRows:
    """Parsed rows of a file."""

    cells: pa.RecordBatch
    """Texts; null for an empty cell without quotes."""
    numbers: Sequence[int]
    """The record number of each row, from 1 within its piece."""
    records: int
    """The number of records so far, problems included."""
    problems: Sequence[Problem]
    """Problems of the records that could not be parsed."""


# --- headers --------------------------------------------------------------------------------------


def csv_header(found: FoundFile, files: Files) -> list[str]:
    """The column names of a file; raises `InputError` naming it."""
    shown, delimiter = found.shown, delimiter_of(found)
    with files.stream(found.path) as stream:
        raw = _header_row(stream, delimiter)
    if not raw:
        raise _no_header(shown, "has no header", "the first row of a CSV file names its columns")
    if not _is_utf8(raw) or b"\0" in raw:
        raise _no_header(shown, "is not UTF-8", _NOT_UTF8)
    quotes = quotes_of(raw, delimiter)
    if quotes.is_open or len(quotes.stray):
        raise _no_header(shown, "has a header with an unclosed quote", _NOT_CLOSED)
    options = pac.ParseOptions(delimiter=delimiter)
    names: list[str] = pac.read_csv(
        pa.BufferReader(raw + b"\n"), parse_options=options
    ).column_names
    others = [each for each in _DELIMITERS if each != delimiter and each in names[0]]
    if len(names) == 1 and others:
        raise _no_header(
            shown,
            f"has a header of one column, with {_DELIMITERS[others[0]]} in its name",
            "cells are separated by commas in .csv files, by tabs in .tsv files;"
            f" or say --delimiter '{others[0]}' (CsvOptions(delimiter=\"{others[0]}\"))",
        )
    return names


def _header_row(stream: pa.NativeFile, delimiter: str) -> bytes:
    """The first row that is not blank; may be incomplete."""
    raw = b""
    while len(raw) < _HEADER_BYTES_MAX:
        block = stream.read(max(_HEADER_BYTES, len(raw)))
        raw = (raw + block).removeprefix(BOM).lstrip(b"\r\n")
        row = first_row(raw, delimiter)
        if row is not None:
            return row
        if not block:
            break
    return raw


def _no_header(shown: str, message: str, hint: str) -> InputError:
    return InputError(f"{shown} {message}", hint=hint, details={"file": shown})


# --- rows -----------------------------------------------------------------------------------------


def csv_rows(piece: Piece, files: Files) -> Iterator[CsvRows]:
    """The rows of a piece of a file."""
    names = csv_header(piece.file, files)
    reader = _CsvReader(
        piece.file.shown, names, delimiter_of(piece.file), has_header=piece.start == 0
    )
    try:
        blocks = _without_bom(blocks_of(piece, files))
        for block in row_blocks(blocks, reader.delimiter, BLOCK_BYTES):
            yield reader.read(block)
    except RowTooLong:
        yield reader.too_long()


def _without_bom(blocks: Iterable[bytes]) -> Iterator[bytes]:
    prefix = BOM
    for block in blocks:
        yield block.removeprefix(prefix)
        prefix = b""


class _CsvReader:
    """Reads blocks one after another, and counts their records."""

    def __init__(self, shown: str, names: list[str], delimiter: str, *, has_header: bool) -> None:
        self.delimiter = delimiter
        self._shown = shown
        self._names = names
        self._has_header = has_header
        """Whether the next row is the header."""
        self._records = 0

    def read(self, block: RowBlock) -> CsvRows:
        """The rows of a block."""
        quotes = block.quotes
        is_plain = not quotes.is_open and not len(quotes.stray) and _is_utf8(block.raw)
        cells, bad = self._parsed(block.raw) if is_plain else self._sorted(block)
        count = cells.num_rows + len(bad)
        first = self._records + 1
        if self._has_header and count:
            # The header has one cell per column, so it was parsed as the first row.
            cells, first = cells.slice(1), first - 1
            self._has_header = False
        numbers: Sequence[int] = range(max(first, self._records + 1), first + count)
        self._records = first + count - 1
        if bad:
            numbers = [number for number in numbers if number - first not in bad]
        problems = [self._problem(first + at, reason) for at, reason in bad.items()]
        return CsvRows(cells, numbers, self._records, problems)

    def too_long(self) -> CsvRows:
        """No rows, and the problem of a row over `ROW_BYTES_MAX`."""
        self._records += 1
        message = f"the record has more than {ROW_BYTES_MAX >> 20} MiB"
        reason = _Reason(message, "look for an unclosed quote", ends_reading=True)
        problem = self._problem(self._records, reason)
        return CsvRows(self._parsed(b"\n")[0], [], self._records, [problem])

    def _problem(self, number: int, reason: _Reason) -> Problem:
        return Problem(
            "bad_record",
            reason.message,
            RecordPlace(self._shown, number, "record"),
            hint=reason.hint,
            input=reason.row,
            ends_reading=reason.ends_reading,
        )

    def _sorted(self, block: RowBlock) -> tuple[pa.RecordBatch, dict[int, _Reason]]:
        """`_parsed`, for a block with rows that Arrow must not see."""
        bad: dict[int, _Reason] = {}
        good: dict[int, bytes] = {}
        for at, (start, row) in enumerate(rows_of(block)):
            end = start + len(row)
            if not _is_utf8(row):
                bad[at] = _Reason("the record is not UTF-8", _NOT_UTF8, _text(row))
            elif block.quotes.is_open and end == len(block.raw):
                bad[at] = _Reason("a quoted cell is never closed", _NOT_CLOSED, None, True)
            elif block.quotes.are_stray(start, end):
                message = "a quoted cell goes on behind its closing quote"
                bad[at] = _Reason(message, _NOT_CLOSED, _text(row))
            else:
                good[at] = row
        cells, misfits = self._parsed(b"".join(good.values()) or b"\n")
        places = list(good)
        bad |= {places[at]: reason for at, reason in misfits.items()}
        return cells, dict(sorted(bad.items()))

    def _parsed(self, raw: bytes) -> tuple[pa.RecordBatch, dict[int, _Reason]]:
        """The rows of a text, and by index the reasons why other rows could not be parsed."""
        bad: dict[int, _Reason] = {}

        def skip(row: pac.InvalidRow) -> str:
            count, wanted = row.actual_columns, row.expected_columns
            given = f"{count} cell{'s' * (count != 1)}"
            marks = _DELIMITERS.get(self.delimiter, f"'{self.delimiter}'")
            hint = f"a cell with {marks} or line breaks in it needs quotes"
            message = f"the record has {given}, the header has {wanted}"
            bad[row.number - 1] = _Reason(message, hint, row.text)
            return "skip"

        if raw.startswith(BOM):
            # Otherwise Arrow drops these bytes as a byte order mark.
            raw = b"\n" + raw
        table = pac.read_csv(
            pa.BufferReader(raw),
            read_options=pac.ReadOptions(
                column_names=self._names, block_size=len(raw) + 1, use_threads=False
            ),
            parse_options=pac.ParseOptions(delimiter=self.delimiter, invalid_row_handler=skip),
            convert_options=pac.ConvertOptions(
                column_types={name: pa.string() for name in self._names},
                null_values=[""],
                strings_can_be_null=True,
                # An empty cell is null, an empty text in quotes is a text.
                quoted_strings_can_be_null=False,
                check_utf8=False,
            ),
        )
        (cells,) = table.combine_chunks().to_batches() or [
            pa.RecordBatch.from_pylist([], table.schema)
        ]
        return cells, bad


def _text(row: bytes) -> str:
    return row.decode(errors="replace").rstrip("\r\n")


def _is_utf8(raw: bytes) -> bool:
    if raw.isascii():
        return True
    try:
        raw.decode()
    except UnicodeDecodeError:
        return False
    return True
