"""Sorting, grouping and spreading of numbers in blocks, with checks of the query's limits between.

One call of numpy over tens of millions of values takes seconds and ignores deadlines. Here blocks
are sorted one by one, all of them are cut at the same values, and corresponding parts are merged.
Up to `AT_ONCE` values, one call of numpy does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from omnigraph.errors import InputError
from omnigraph.model.governor import current
from omnigraph.model.records import dataclass

Key = TypeVar("Key", bound=np.generic)
Value = TypeVar("Value", bound=np.generic)
Numbers = npt.NDArray[np.integer]

AT_ONCE = 1 << 19
"""Values that are sorted between two checks of the query's limits: about 50 ms."""

_SAMPLE = 4_096

PACKED_MIN = 1_024
"""Fewer values are sorted without packing."""

Keys: TypeAlias = npt.NDArray[np.int64]
Counts: TypeAlias = npt.NDArray[np.int64]

ROWS_MAX = 2**31 - 1
"""Maximum rows that a step may produce: row numbers have 32 bits."""

_FEW_ROWS = 4_096
"""At most this many rows are made without checking the query's limits."""

BLOCK_ROWS = 1 << 19
"""Rows that are processed between two checks of the query's limits: about 50 ms."""

CHUNK_ROWS = 1 << 21
"""Numbers that are sorted or copied between two checks of the query's limits."""


def sorted_numbers(values: npt.NDArray[Key]) -> npt.NDArray[Key]:
    """The sorted values, in the memory of ``values`` if they are few, else in new memory.

    Only integers are sorted in blocks.
    """
    if len(values) <= AT_ONCE or values.dtype.kind not in "iu":
        values.sort()
        return values
    governor = current()
    governor.reserve(values.nbytes)
    runs = [values[start : start + AT_ONCE] for start in range(0, len(values), AT_ONCE)]
    for run in runs:
        governor.check()
        run.sort()
    bounds = _bounds(values)
    cuts = [[0, *np.searchsorted(run, bounds).tolist(), len(run)] for run in runs]
    found = np.empty_like(values)
    at = 0
    for part in range(len(bounds) + 1):
        governor.check()
        begin = at
        for run, cut in zip(runs, cuts, strict=True):
            some = run[cut[part] : cut[part + 1]]
            found[at : at + len(some)] = some
            at += len(some)
        # A stable sort merges the sorted runs instead of sorting their values again.
        found[begin:at].sort(kind="stable")
    return found


def sorted_distinct(values: npt.NDArray[Key]) -> npt.NDArray[Key]:
    """The distinct values in order; overwrites ``values``. Much faster than `np.unique`."""
    return distinct_of_sorted(sorted_numbers(values))


def distinct_of_sorted(values: npt.NDArray[Key]) -> npt.NDArray[Key]:
    """The distinct values of sorted ones."""
    if len(values) < 2:
        return values
    first = np.empty(len(values), np.bool_)
    first[0] = True
    if len(values) <= AT_ONCE:
        np.not_equal(values[1:], values[:-1], out=first[1:])
        return values if first.all() else values[first]
    for start, stop in governed_blocks(len(values)):
        begin = max(start, 1)
        np.not_equal(values[begin:stop], values[begin - 1 : stop - 1], out=first[begin:stop])
    found = np.empty(np.count_nonzero(first), values.dtype)
    at = 0
    for start, stop in governed_blocks(len(values)):
        some = values[start:stop][first[start:stop]]
        found[at : at + len(some)] = some
        at += len(some)
    return found


def stable_order(values: Numbers) -> npt.NDArray[np.intp]:
    """The indexes that sort the values; the sort is stable."""
    if len(values) <= AT_ONCE:
        return _order_at_once(values)
    order = np.empty(len(values), np.intp)
    at = 0
    for places, _ in _ordered_parts(values):
        order[at : at + len(places)] = places
        at += len(places)
    return order


def _order_at_once(values: Numbers) -> npt.NDArray[np.intp]:
    """`stable_order` in one call, for values up to `AT_ONCE`.

    Values packed with their indexes into 64 bits sort several times faster than `argsort`.
    """
    if len(values) < PACKED_MIN or values.dtype.kind not in "iu" or values.itemsize < 4:
        return np.argsort(values, kind="stable")
    lowest, bits = int(values.min()), len(values).bit_length()
    if (int(values.max()) - lowest).bit_length() + bits > 63:
        return np.argsort(values, kind="stable")
    wide = values if values.itemsize == 8 else values.astype(np.int64)
    packed = (wide - wide.dtype.type(lowest)).astype(np.int64, copy=False)
    packed <<= bits
    packed |= np.arange(len(values))
    packed.sort()
    packed &= (1 << bits) - 1
    return packed


@dataclass(frozen=True, slots=True)
class Grouped:
    """Rows of equal values, by ascending value."""

    group: Numbers
    """The number of the group of each row."""
    first: Numbers
    """The first row of each group."""
    sizes: npt.NDArray[np.int64]
    """The number of rows of each group."""


def grouped(values: Numbers) -> Grouped:
    """The groups of rows with equal values, numbered as by `np.unique`."""
    group = np.empty(len(values), np.intp)
    for start, stop in governed_blocks(len(values)):
        group[start:stop] = 0  # touching all pages at once would take one long step
    first = np.empty(len(values), np.intp)
    begins = np.empty(len(values) + 1, np.int64)
    at = groups = 0
    last: np.integer | None = None
    for places, ordered in _ordered_parts(values):
        is_first = np.empty(len(places), np.bool_)
        is_first[0] = ordered[0] != last
        np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
        new = np.flatnonzero(is_first)
        group[places] = groups - 1 + np.cumsum(is_first)
        first[groups : groups + len(new)] = places[new]
        begins[groups : groups + len(new)] = at + new
        groups += len(new)
        at += len(places)
        last = ordered[-1]
    begins[groups] = at
    sizes = np.empty(groups, np.int64)
    for start, stop in governed_blocks(groups):
        np.subtract(begins[start + 1 : stop + 1], begins[start:stop], out=sizes[start:stop])
    return Grouped(group, first[:groups], sizes)


def rows_by_part(part: Numbers, count: int) -> tuple[npt.NDArray[np.intp], list[int]]:
    """The rows of each of ``count`` parts, one part after the other, and the end of each part.

    Rows keep their order within a part.
    """
    governor = current()
    sizes = np.zeros(count, np.int64)
    for start, stop in governed_blocks(len(part)):
        sizes += np.bincount(part[start:stop], minlength=count)
    ends = np.cumsum(sizes)
    places = (ends - sizes).tolist()
    rows = np.empty(len(part), np.intp)
    for start, stop in governed_blocks(len(part)):
        governor.check()
        order = np.argsort(part[start:stop], kind="stable") + start
        at = 0
        for number, size in enumerate(np.bincount(part[start:stop], minlength=count).tolist()):
            rows[places[number] : places[number] + size] = order[at : at + size]
            places[number] += size
            at += size
    return rows, ends.tolist()


def _ordered_parts(values: Numbers) -> Iterator[tuple[npt.NDArray[np.intp], Numbers]]:
    """Indexes and values in order, in parts of at most `AT_ONCE`; a value may be in several."""
    if len(values) <= AT_ONCE:
        if len(values):
            order = _order_at_once(values)
            yield order, values[order]
        return
    governor = current()
    governor.reserve(12 * len(values))
    bounds = _bounds(values)
    # The narrowest type, because numpy sorts 16 bits in two passes.
    part = np.empty(len(values), np.min_scalar_type(len(bounds)))
    for start, stop in governed_blocks(len(values)):
        part[start:stop] = np.searchsorted(bounds, values[start:stop], side="right")
    rows, ends = rows_by_part(part, len(bounds) + 1)
    for begin, end in pairwise([0, *ends]):
        places = rows[begin:end]
        if end - begin <= AT_ONCE:
            governor.check()
            for order, some in _ordered_parts(values[places]):
                yield places[order], some
        elif _is_one_value(values, places):
            for start, stop in governed_blocks(end - begin):
                yield places[start:stop], values[places[start:stop]]
        else:
            # The sample misjudged this part: cut it again, unless it is the whole.
            some = values[places]
            if len(some) < len(values):
                for order, ordered in _ordered_parts(some):
                    yield places[order], ordered
            else:
                order = np.argsort(some, kind="stable")
                yield places[order], some[order]


def _is_one_value(values: Numbers, places: npt.NDArray[np.intp]) -> bool:
    value = values[places[0]]
    return all(
        bool((values[places[start:stop]] == value).all())
        for start, stop in governed_blocks(len(places))
    )


def _bounds(values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Ascending integers that cut the values into parts of about half of `AT_ONCE`.

    A value with more rows than a part becomes a part of its own, which needs no sorting.
    """
    sample = np.sort(values[:: max(1, len(values) // _SAMPLE)])
    parts = 2 * len(values) // AT_ONCE
    chosen = sample[:: max(1, len(sample) // parts)]
    often = chosen[1:][chosen[1:] == chosen[:-1]]
    after = often[often < np.iinfo(values.dtype).max] + values.dtype.type(1)
    return np.unique(np.concatenate([chosen[1:], after]))


def governed_blocks(count: int) -> Iterator[tuple[int, int]]:
    """Start and end of blocks; checks the limits before each if there are several."""
    for start in range(0, count, AT_ONCE):
        if count > AT_ONCE:
            current().check()
        yield start, min(start + AT_ONCE, count)


# --- ranges and pairs -----------------------------------------------------------------------------


def reserve_rows(count: int, row_bytes: int) -> None:
    """Raise before a step allocates more rows than it may; see `Governor.reserve`."""
    current().reserve(count * row_bytes)
    if count > ROWS_MAX:
        raise InputError(
            f"a step of this query would hold {count:,} rows at once; {ROWS_MAX:,} are allowed",
            hint="bind fewer nodes before it: add a condition, or a smaller bound",
        )


def lower_bounds(
    values: npt.NDArray[np.int32], begin: Counts, ends: Counts, wanted: npt.NDArray[np.int32]
) -> Counts:
    """Where each wanted value is, or would be inserted, in its range of ascending values.

    One binary search for all of them; each round continues with the undecided ones.
    """
    places = begin.copy()
    open_ = np.flatnonzero(begin < ends)
    low, high = begin[open_], ends[open_]
    while len(open_):
        middle = (low + high) >> 1
        less = values[middle] < wanted[open_]
        low = np.where(less, middle + 1, low)
        high = np.where(less, high, middle)
        done = low >= high
        places[open_[done]] = low[done]
        left = ~done
        open_, low, high = open_[left], low[left], high[left]
    return places


def is_run(slots: npt.NDArray[np.int32]) -> bool:
    """Whether the slots are consecutive, so that their neighbours are contiguous."""
    if not len(slots) or int(slots[-1]) - int(slots[0]) != len(slots) - 1:
        return False
    return bool((slots[1:] > slots[:-1]).all())


def spread(begin: Counts, counts: Counts) -> Counts:
    """The indexes of several ranges, one range after the other."""
    total = int(counts.sum())
    if total > _FEW_ROWS:
        reserve_rows(total, 24)
    before = np.cumsum(counts) - counts
    return np.repeat(begin - before, counts) + np.arange(total)


def spread_values(values: npt.NDArray[Value], begin: Counts, counts: Counts) -> npt.NDArray[Value]:
    """The values of several ranges, one range after the other."""
    total = int(counts.sum())
    if total <= BLOCK_ROWS:
        return values.take(spread(begin, counts))
    reserve_rows(total, values.itemsize)
    found = np.empty(total, values.dtype)
    at = 0
    for start, stop in blocks(counts, BLOCK_ROWS):
        part = values.take(spread(begin[start:stop], counts[start:stop]))
        found[at : at + len(part)] = part
        at += len(part)
    return found


def blocks(counts: Counts, block_rows: int) -> list[tuple[int, int]]:
    """Bounds of blocks whose counts add up to about ``block_rows`` at most."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    cuts = np.searchsorted(ends, np.arange(block_rows, total, block_rows))
    bounds = np.unique(np.concatenate([[0], cuts, [len(counts)]])).tolist()
    return list(pairwise(bounds))


def are_in_order(sources: npt.NDArray[np.int32], targets: npt.NDArray[np.int32]) -> bool:
    """Whether pairs ascend by their first node, then by their second."""
    if not (sources[1:] >= sources[:-1]).all():
        return False
    return bool(((sources[1:] != sources[:-1]) | (targets[1:] >= targets[:-1])).all())


def hashed(keys: Keys, bits: int) -> npt.NDArray[np.int64]:
    """A hash of ``bits`` bits for each key."""
    mixed = keys.view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    mixed >>= np.uint64(64 - bits)
    return mixed.view(np.int64)


def packed_pairs(high: npt.NDArray[np.int32], low: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
    """Each pair as one number, which sorts by the first, then the second; without copies."""
    keys = np.empty(len(high), "<u8")
    halves = keys.view("<u4").reshape(-1, 2)
    halves[:, 0] = low
    halves[:, 1] = high
    return keys


def sorted_pairs(high: npt.NDArray[np.int32], low: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
    """The pairs, packed and sorted."""
    return sorted_by(high, lambda part: packed_pairs(high[part], low[part]))


def sorted_by(
    high: npt.NDArray[np.int32], packed: Callable[[slice], npt.NDArray[np.uint64]]
) -> npt.NDArray[np.uint64]:
    """The sorted keys, whose upper halves are ``high``.

    Many keys are first partitioned, so that a query can be cancelled in between.
    """
    governor = current()
    governor.check()
    if len(high) <= 2 * CHUNK_ROWS:
        keys = packed(slice(None))
        keys.sort()
        return keys
    counts = np.zeros(int(high.max()) + 1, np.int64)
    for start in range(0, len(high), CHUNK_ROWS):
        governor.check()
        counts += np.bincount(high[start : start + CHUNK_ROWS], minlength=len(counts))
    bounds = blocks(counts, CHUNK_ROWS)
    # The narrowest type, because numpy sorts 16 bits in two passes.
    numbers = np.arange(len(bounds)).astype(np.min_scalar_type(len(bounds)))
    part_of = np.repeat(numbers, [stop - start for start, stop in bounds])
    ends = np.cumsum([int(counts[start:stop].sum()) for start, stop in bounds])
    places = [0, *ends[:-1].tolist()]
    keys = np.empty(len(high), "<u8")
    for start in range(0, len(high), CHUNK_ROWS):
        governor.check()
        part = part_of[high[start : start + CHUNK_ROWS]]
        order = np.argsort(part, kind="stable")
        some = packed(slice(start, start + CHUNK_ROWS))[order]
        at = 0
        for number, size in enumerate(np.bincount(part, minlength=len(bounds)).tolist()):
            keys[places[number] : places[number] + size] = some[at : at + size]
            places[number] += size
            at += size
    for start, stop in pairwise([0, *ends.tolist()]):
        governor.check()
        # A node may have more edges than are sorted at once.
        keys[start:stop] = sorted_numbers(keys[start:stop])
    return keys


def high_half(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """The first number of each pair."""
    return (keys >> np.uint64(32)).astype(np.int32)


def low_half(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """The second number of each pair."""
    return keys.astype(np.uint32).view(np.int32)


def shrunk_to_low_half(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """`low_half` in the memory of the keys, which become invalid."""
    if not keys.flags.owndata:
        return low_half(keys)
    count = len(keys)
    halves = keys.view("<u4")
    for start in range(0, count, CHUNK_ROWS):
        stop = min(start + CHUNK_ROWS, count)
        halves[start:stop] = halves[2 * start : 2 * stop : 2]
    del halves
    keys.resize((count + 1) // 2, refcheck=False)
    return keys.view("<i4")[:count]


def pointers_of(keys: npt.NDArray[np.uint64], nodes: int) -> npt.NDArray[np.int64]:
    """Where the keys of each node begin, by their upper halves."""
    pointers = np.zeros(nodes + 1, np.int64)
    owners = keys.view("<u4").reshape(-1, 2)[:, 1]
    for start in range(0, len(owners), CHUNK_ROWS):
        current().check()
        # In chunks: `bincount` makes a copy of twice the size.
        pointers[1:] += np.bincount(owners[start : start + CHUNK_ROWS], minlength=nodes)
    return np.cumsum(pointers, out=pointers)
