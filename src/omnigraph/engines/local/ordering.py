"""The total order of rows: sort keys first, then whatever breaks ties."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engines.local.ids import IdSpace, Slots

Rows: TypeAlias = npt.NDArray[np.integer]
Scores: TypeAlias = npt.NDArray[np.float64]
Key: TypeAlias = tuple[pa.Array, bool]
"""Values by row, and whether the largest come first."""

TieBreaker: TypeAlias = Callable[[Rows], pa.Array]
"""The values of some rows, asked for only where the keys leave a choice."""

_PRUNE_MIN = 1_000


def ordered_rows(
    keys: Sequence[Key], ties: Sequence[TieBreaker], count: int, stop: int | None
) -> Rows:
    """The rows in order, at most the first ``stop`` of them. Null is smaller than every value."""
    rows: Rows = np.arange(count)
    if not keys or not count or stop == 0:
        return rows[:stop]
    if stop is not None and count > max(2 * stop, _PRUNE_MIN):
        rows = _pruned(*keys[0], stop)
    columns = [key if len(rows) == count else key.take(pa.array(rows)) for key, _ in keys]
    directions = [descending for _, descending in keys]
    columns += [tie(rows) for tie in ties]
    directions += [False] * len(ties)
    return rows[_sorted(columns, directions)][:stop]


def _sorted(columns: list[pa.Array], directions: list[bool]) -> Rows:
    names = [str(at) for at in range(len(columns))]
    table = pa.table([_sortable(column) for column in columns], names=names)
    keys = [
        (name, "descending", "at_end") if descending else (name, "ascending", "at_start")
        for name, descending in zip(names, directions, strict=True)
    ]
    order: Rows = pc.sort_indices(table, sort_keys=keys).to_numpy()
    return order


def _sortable(column: pa.Array) -> pa.Array:
    """A column that Arrow can sort; lists become their ranks."""
    if not pa.types.is_nested(column.type):
        return column
    values = column.to_pylist()
    ranks = {value: rank for rank, value in enumerate(sorted({_comparable(v) for v in values}))}
    return pa.array([ranks[_comparable(value)] for value in values], pa.int64())


def _comparable(value: list[object] | None) -> tuple[tuple[int, object], ...]:
    """A list as something Python can order: null before all, then null items, NaN, and others."""
    if value is None:
        return ()
    return ((2, 0), *map(_comparable_item, value))


def _comparable_item(item: object) -> tuple[int, object]:
    if item is None:
        return (0, 0)
    return (1, 0) if isinstance(item, float) and math.isnan(item) else (2, item)


def _pruned(column: pa.Array, descending: bool, stop: int) -> Rows:
    """Rows among which the first ``stop`` are, judged by the first key alone."""
    numbers = _numbers(column)
    if numbers is not None:
        if descending:
            line = np.partition(numbers, len(numbers) - stop)[len(numbers) - stop]
            return np.flatnonzero(numbers >= line)
        line = np.partition(numbers, stop - 1)[stop - 1]
        return np.flatnonzero(numbers <= line)
    if pa.types.is_nested(column.type):
        return np.arange(len(column))
    key = ("0", "descending", "at_end") if descending else ("0", "ascending", "at_start")
    chosen = pc.select_k_unstable(pa.table([column], names=["0"]), k=stop, sort_keys=[key])
    last = column[chosen[len(chosen) - 1].as_py()]
    if not last.is_valid:
        return np.arange(len(column))
    within = (pc.greater_equal if descending else pc.less_equal)(column, last)
    # Ascending, the nulls come before everything; descending, they are beyond the last.
    return np.flatnonzero(pc.fill_null(within, not descending).to_numpy(zero_copy_only=False))


def _numbers(column: pa.Array) -> npt.NDArray[np.generic] | None:
    """A column as numbers that order as it does, nulls and NaN lowest; None for other types."""
    type = column.type
    if pa.types.is_date32(type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(type):
        column = column.cast(pa.int64())
    elif not (pa.types.is_integer(type) or pa.types.is_floating(type)):
        return None
    if pa.types.is_floating(column.type):
        floats = column.to_numpy(zero_copy_only=False).astype(np.float64)
        return np.where(np.isnan(floats), -np.inf, floats)
    if column.null_count:
        lowest = np.iinfo(column.type.to_pandas_dtype()).min
        column = column.fill_null(pa.scalar(lowest, column.type))
    numbers: npt.NDArray[np.generic] = column.to_numpy(zero_copy_only=False)
    return numbers


def ranked_candidates(
    space: IdSpace, slots: Slots, scores: Scores, *, descending: bool, stop: int | None = None
) -> Rows:
    """Candidates from the best to the worst, at most ``stop``; equal scores by id.

    A score that is not a number comes last.
    """
    keys = -scores if descending else scores
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    if stop is not None and stop < len(order):
        # Everything that ties with the last one wanted has to be looked at.
        end = int(np.searchsorted(ordered, ordered[stop - 1], side="right")) if stop else 0
        if stop and np.isnan(ordered[stop - 1]):
            end = len(order)
        order, ordered = order[:end], ordered[:end]
    same = np.zeros(len(order), np.bool_)
    if len(order) > 1:
        same[1:] = (ordered[1:] == ordered[:-1]) | (np.isnan(ordered[1:]) & np.isnan(ordered[:-1]))
        same[:-1] |= same[1:]
    if same.any():
        tied = np.flatnonzero(same)
        ids = space.strings(slots[order[tied]])
        by_id = _sorted([pa.array(ordered[tied]).fill_null(0), ids], [False, False])
        if np.isnan(ordered[tied]).any():
            keyed = np.where(np.isnan(ordered[tied]), np.inf, ordered[tied])
            by_id = _sorted(
                [pa.array(keyed), pa.array(np.isnan(ordered[tied])), ids], [False, False, False]
            )
        order[tied] = order[tied][by_id]
    return order[:stop]
