"""Finding the rows that hold one value, without looking at all of them.

`ValueIndex` is a sorted list of 64-bit codes of a column. It answers with candidates: the predicate
itself is still checked on them, so a code may stand for more than one value.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.adjacency import sorted_distinct, spread
from omnigraph.engines.local.hashing import StringHash
from omnigraph.engines.local.rows import Positions, RowView

ROWS_WORTH_AN_INDEX = 2_000
"""Below this, comparing the whole column is as fast."""

_HASH = StringHash()


@dataclass(frozen=True, slots=True)
class ValueIndex:
    """Rows by the code of their value."""

    codes: npt.NDArray[np.uint64]
    rows: Positions

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return int(self.codes.nbytes + self.rows.nbytes)

    @classmethod
    def build(cls, column: pa.Array) -> ValueIndex:
        """The index of a column; nulls, which equal nothing, are left out."""
        present = np.flatnonzero(column.is_valid().to_numpy(zero_copy_only=False))
        values = column.drop_null() if column.null_count else column
        codes = _codes(values)
        order = np.argsort(codes, kind="stable")
        return cls(codes[order], present[order].astype(np.int32))

    def rows_with(self, value: pa.Scalar) -> Positions:
        """The rows that may hold a value, ascending."""
        if not value.is_valid:
            return self.rows[:0]
        code = _code(value)
        begin, end = np.searchsorted(self.codes, code), np.searchsorted(self.codes, code, "right")
        return self.rows[begin:end]

    def rows_with_any(self, values: pa.Array) -> Positions:
        """The rows that may hold one of some values, ascending."""
        wanted = _codes(values.drop_null())
        begin = np.searchsorted(self.codes, wanted)
        counts = np.searchsorted(self.codes, wanted, "right") - begin
        return sorted_distinct(self.rows[spread(begin, counts)])


def can_index(type: pa.DataType) -> bool:
    """Whether equality on this type is equality of codes."""
    tests = (
        pa.types.is_string,
        pa.types.is_integer,
        pa.types.is_date32,
        pa.types.is_timestamp,
    )
    return any(test(type) for test in tests)


def value_index(view: RowView, name: str, type: pa.DataType) -> ValueIndex | None:
    """The index of a column; None while it would not pay: small tables, and the first question."""
    if view.layout.size < ROWS_WORTH_AN_INDEX or not can_index(type):
        return None
    key = ("values", name)
    if key not in view.layout.made and not view.layout.asked_before(key):
        return None
    return view.keep_with_files(key, lambda: ValueIndex.build(view.column(name, type)))


def _codes(values: pa.Array) -> npt.NDArray[np.uint64]:
    if pa.types.is_string(values.type):
        return _HASH.many(values)
    return _integers(values).astype(np.int64).view(np.uint64)


def _code(value: pa.Scalar) -> np.uint64:
    if pa.types.is_string(value.type):
        return np.uint64(_HASH.one(value.as_py()))
    return np.uint64(_codes(pa.array([value]))[0])


def _integers(values: pa.Array) -> npt.NDArray[np.integer]:
    if pa.types.is_date32(values.type):
        values = values.cast(pa.int32())
    elif pa.types.is_timestamp(values.type):
        values = values.cast(pa.int64())
    numbers: npt.NDArray[np.integer] = values.to_numpy(zero_copy_only=False)
    return numbers
