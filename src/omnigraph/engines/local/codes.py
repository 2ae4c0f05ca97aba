"""Equal values as equal small integers: the basis of grouping, `distinct` and joins by value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Codes = npt.NDArray[np.int64]

_DENSE_FACTOR = 4
"""Codes up to so many times the number of rows are counted in place instead of sorted."""


@dataclass(frozen=True, slots=True)
class Coded:
    """A code per row; equal rows have equal codes. Null is a value like any other."""

    codes: Codes
    count: int
    """More than every code."""

    def grouped(self) -> tuple[Codes, Codes]:
        """The group of each row, groups numbered without gaps, and the first row of each group."""
        rows = len(self.codes)
        if self.count <= _DENSE_FACTOR * rows + 1024:
            first = np.full(self.count, rows, np.int64)
            # Written backwards, so that the first row of each code stays.
            first[self.codes[::-1]] = np.arange(rows - 1, -1, -1)
            used = np.flatnonzero(first < rows)
            number = np.zeros(self.count, np.int64)
            number[used] = np.arange(len(used))
            return number[self.codes], first[used]
        _, first, group = np.unique(self.codes, return_index=True, return_inverse=True)
        return group.astype(np.int64), first.astype(np.int64)


def codes_of(columns: Sequence[pa.Array | Coded]) -> Coded:
    """Codes of the rows of several columns together."""
    result: Coded | None = None
    for column in columns:
        one = column if isinstance(column, Coded) else _coded(column)
        if result is None:
            result = one
            continue
        if result.count * one.count >= 2**62:
            group, first = result.grouped()
            result = Coded(group, len(first))
        result = Coded(result.codes * one.count + one.codes, result.count * one.count)
    assert result is not None
    return result


def _coded(column: pa.Array) -> Coded:
    type = column.type
    if pa.types.is_nested(type):
        return _coded_objects(column)
    if pa.types.is_floating(type):
        # The two zeros are one value, and so are all that are not a number.
        column = pc.add(column, pa.scalar(0.0, type))
    encoded = column.dictionary_encode(null_encoding="encode")
    return Coded(encoded.indices.to_numpy().astype(np.int64), max(len(encoded.dictionary), 1))


def _coded_objects(column: pa.Array) -> Coded:
    known: dict[str, int] = {}
    codes = [known.setdefault(repr(value), len(known)) for value in column.to_pylist()]
    return Coded(np.array(codes, np.int64), max(len(known), 1))
