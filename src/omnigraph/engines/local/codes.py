"""Equal values as equal small integers: the basis of grouping, `distinct` and joins by value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Codes = npt.NDArray[np.integer]

_DENSE_FACTOR = 4
"""Codes up to so many times the number of rows are counted in place instead of sorted."""


@dataclass(frozen=True, slots=True)
class Grouping:
    """Rows in groups, numbered without gaps."""

    group: Codes
    """The group of each row."""
    first: Codes
    """The first row of each group."""
    sizes: npt.NDArray[np.int64]
    """The rows of each group."""

    @property
    def count(self) -> int:
        """How many groups there are."""
        return len(self.sizes)


@dataclass(frozen=True, slots=True)
class Coded:
    """A code per row; equal rows have equal codes. Null is a value like any other."""

    codes: Codes
    count: int
    """More than every code."""

    def grouped(self) -> Grouping:
        """Rows of equal codes as groups."""
        if self.count > _DENSE_FACTOR * len(self.codes) + 1024:
            _, first, inverse, sizes = np.unique(
                self.codes, return_index=True, return_inverse=True, return_counts=True
            )
            return Grouping(inverse, first, sizes)
        # Once as wide as numpy counts with, instead of once for every count.
        group: Codes = self.codes.astype(np.intp, copy=False)
        counts = np.bincount(group, minlength=self.count)
        used = np.flatnonzero(counts)
        if len(used) and int(used[-1]) >= len(used):
            number = np.zeros(self.count, np.int64)
            number[used] = np.arange(len(used))
            group = number.take(group)
        return Grouping(group, self._first_rows(used), counts[used])

    def _first_rows(self, used: Codes) -> Codes:
        """The first row of each of these codes, which all occur."""
        first = np.full(self.count, -1, np.int64)
        begin, step = 0, 1024
        # Few groups all begin early: most rows need not be looked at.
        while (first[used] < 0).any():
            part = self.codes[begin : begin + step]
            # Written backwards, so that the first row of each code stays.
            fresh = part[::-1]
            rows = np.arange(begin + len(part) - 1, begin - 1, -1)
            unknown = first[fresh] < 0
            first[fresh[unknown]] = rows[unknown]
            begin, step = begin + step, step * 4
        return first[used]


def codes_of(columns: Sequence[pa.Array | Coded]) -> Coded:
    """Codes of the rows of several columns together."""
    result: Coded | None = None
    for column in columns:
        one = column if isinstance(column, Coded) else _coded(column)
        if result is None:
            result = one
            continue
        if result.count * one.count >= 2**62:
            grouping = result.grouped()
            result = Coded(grouping.group, grouping.count)
        codes = result.codes.astype(np.int64) * one.count + one.codes
        result = Coded(codes, result.count * one.count)
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
    return Coded(encoded.indices.to_numpy(), max(len(encoded.dictionary), 1))


def _coded_objects(column: pa.Array) -> Coded:
    known: dict[str, int] = {}
    codes = [known.setdefault(_spelled(value), len(known)) for value in column.to_pylist()]
    return Coded(np.array(codes, np.int64), max(len(known), 1))


def _spelled(value: list[object] | None) -> str:
    """A text that equal lists share; the two zeros are one value here too."""
    if value is None:
        return ""
    return repr([item + 0.0 if isinstance(item, float) else item for item in value])
