"""Result rows as JSON: the one encoding that queries, the server and the command line share.

Columns are converted whole, in numpy and Arrow, and only then turned into rows: going through Arrow
cell by cell costs several times as much. List columns, structs (`$x.*`) and nested values apply the
same conversion to their children.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain, pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InternalError
from omnigraph.model.records import dataclass


@dataclass(frozen=True, slots=True)
class ResultColumns:
    """Arrow columns of one length, with their names.

    For small results that are only needed as Python rows: building an Arrow table checks it and
    releases the GIL, which for one row takes longer than the query.
    """

    names: Sequence[str]
    arrays: Sequence[pa.Array | pa.ChunkedArray]
    row_count: int

    @classmethod
    def of(cls, table: pa.Table | pa.RecordBatch) -> ResultColumns:
        """The columns of a table."""
        return cls(table.schema.names, table.columns, table.num_rows)

    def slice(self, start: int, rows: int) -> ResultColumns:
        """At most ``rows`` rows from ``start`` on."""
        arrays = [array.slice(start, rows) for array in self.arrays]
        return ResultColumns(self.names, arrays, max(0, min(rows, self.row_count - start)))

    def table(self) -> pa.Table:
        """The columns as a table."""
        return pa.table(list(self.arrays), names=list(self.names))


SAFE_INTEGER_MAX = 2**53 - 1
"""The largest integer that a JavaScript number represents exactly."""

SHORT = 64
"""Up to this many values plain Python is faster. Every call into Arrow releases the GIL, and a
server with many small queries would spend its time on switching threads."""


def rows_to_python(
    rows: pa.Table | pa.RecordBatch | ResultColumns, *, safe_integers: bool = False
) -> list[dict[str, Any]]:
    """The rows as objects that any JSON encoder writes correctly.

    With ``safe_integers``, integers beyond `SAFE_INTEGER_MAX` either way become decimal strings.
    """
    columns = rows if isinstance(rows, ResultColumns) else ResultColumns.of(rows)
    values = [_column(column, safe_integers) for column in columns.arrays]
    return _rows(columns.names, values, columns.row_count)


def _column(column: pa.Array | pa.ChunkedArray, safe_integers: bool) -> list[Any]:
    """The JSON values of a column, None for null."""
    if isinstance(column, pa.ChunkedArray):
        return list(chain.from_iterable(_column(chunk, safe_integers) for chunk in column.chunks))
    type = column.type
    if pa.types.is_string(type) or pa.types.is_large_string(type):
        short = len(column) <= SHORT
        return column.to_pylist() if short else list(column.to_numpy(zero_copy_only=False))
    if pa.types.is_integer(type):
        return _integers(column, safe_integers)
    if pa.types.is_floating(type):
        return _floats(column, _NON_FINITE)
    if pa.types.is_boolean(type):
        return _plain(column, False)
    if pa.types.is_date32(type):
        return _column(column.cast(pa.string()), safe_integers)
    if pa.types.is_timestamp(type):
        return _column(_datetime_texts(column), safe_integers)
    if pa.types.is_fixed_size_list(type):
        return _vectors(column)
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return _lists(column, safe_integers)
    if pa.types.is_struct(type):
        return _structs(column, safe_integers)
    if pa.types.is_dictionary(type):
        return _column(column.dictionary_decode(), safe_integers)
    if pa.types.is_null(type):
        return [None] * len(column)
    raise InternalError(f"a result column of Arrow type {type} has no JSON form")


def _plain(column: pa.Array, filler: object) -> list[Any]:
    """Values of a fixed-width column as Python objects."""
    if len(column) <= SHORT:
        return list(column.to_pylist())
    if not column.null_count:
        return list(column.to_numpy(zero_copy_only=False).tolist())
    # Nulls are filled first: numpy has none, and would turn integers into floats.
    values: list[Any] = column.fill_null(filler).to_numpy(zero_copy_only=False).tolist()
    for position in _positions(column.is_null()):
        values[position] = None
    return values


def _positions(mask: pa.BooleanArray) -> list[int]:
    return list(pc.indices_nonzero(mask).to_numpy().tolist())


def _integers(column: pa.Array, safe_integers: bool) -> list[Any]:
    values = _plain(column, 0)
    if safe_integers and column.type.bit_width == 64:
        if len(column) <= SHORT:
            return [_safe_integer(value) for value in values]
        low = -SAFE_INTEGER_MAX if pa.types.is_signed_integer(column.type) else 0
        unsafe = pc.or_(pc.less(column, low), pc.greater(column, SAFE_INTEGER_MAX))
        for position in _positions(unsafe):
            values[position] = str(values[position])
    return values


def _safe_integer(value: int | None) -> int | str | None:
    if value is None or -SAFE_INTEGER_MAX <= value <= SAFE_INTEGER_MAX:
        return value
    return str(value)


_NON_FINITE = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""JSON has no numbers for these; keyed by Python's spelling."""


def _floats(column: pa.Array, non_finite: dict[str, str] | None) -> list[Any]:
    """Floats widened exactly; non-finite ones by name, or null without names."""
    values = _plain(column, 0.0)
    for position in _non_finite(column, values):
        values[position] = non_finite[str(values[position])] if non_finite else None
    return values


def _non_finite(column: pa.Array, values: list[Any]) -> list[int]:
    """The positions of non-finite numbers."""
    if len(column) <= SHORT:
        return [at for at, v in enumerate(values) if v is not None and not math.isfinite(v)]
    finite = pc.is_finite(column)
    return [] if pc.all(finite, min_count=0).as_py() else _positions(pc.invert(finite))


def _datetime_texts(column: pa.Array) -> pa.StringArray:
    # Without its zone, which is UTC anyway: Arrow's zoned formatting is thirty times slower.
    local = column.cast(pa.timestamp("ms", tz="UTC")).view(pa.timestamp("ms"))
    texts = pc.replace_substring(local.cast(pa.string()), " ", "T")
    return pc.binary_join_element_wise(texts, "", "Z")


def _vectors(column: pa.FixedSizeListArray) -> list[Any]:
    width = column.type.list_size
    # `values` ignores the slice of a column; `flatten` would drop null rows.
    start = column.offset * width
    numbers = _floats(column.values.slice(start, len(column) * width), None)
    vectors: list[Any] = [numbers[i : i + width] for i in range(0, len(numbers), width)]
    return _without_null_rows(vectors, column)


def _lists(column: pa.Array, safe_integers: bool) -> list[Any]:
    offsets = column.offsets.to_numpy()
    first = int(offsets[0])
    items = _column(column.values.slice(first, int(offsets[-1]) - first), safe_integers)
    bounds = (offsets - first).tolist()
    lists: list[Any] = [items[start:end] for start, end in pairwise(bounds)]
    return _without_null_rows(lists, column)


def _structs(column: pa.StructArray, safe_integers: bool) -> list[Any]:
    names = [field.name for field in column.type]
    # Unlike `values` of lists, `field` follows the slice of a column.
    children = [_column(column.field(i), safe_integers) for i in range(len(names))]
    return _without_null_rows(_rows(names, children, len(column)), column)


def _rows(names: Sequence[str], columns: list[list[Any]], length: int) -> list[Any]:
    if not columns:
        return [{} for _ in range(length)]
    # The lengths are equal by construction, and checking them costs a fifth of the time.
    return [dict(zip(names, row, strict=False)) for row in zip(*columns, strict=True)]


def _without_null_rows(values: list[Any], column: pa.Array) -> list[Any]:
    if column.null_count:
        for position in _positions(column.is_null()):
            values[position] = None
    return values
