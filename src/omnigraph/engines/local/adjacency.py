"""Sorted adjacency, and the searches over it: breadth-first search and shortest paths.

`Adjacency` is a compressed sparse row matrix without weights. The neighbours of a node are
contiguous and ascending, so sets, membership and merges are cheap. Parallel edges are kept; a flag
tells whether there are any, so that graphs without them skip the deduplication.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.ids import IdSpace, Slots
from omnigraph.engines.local.rows import Positions
from omnigraph.errors import InputError
from omnigraph.model.governor import current

# --- sorted adjacency -----------------------------------------------------------------------------


Key = TypeVar("Key", bound=np.generic)
Value = TypeVar("Value", bound=np.generic)
_CHUNK = 1 << 21
_MANY_PAIRS = 8
"""With this many times more pairs than edges, edges are searched among the pairs."""

Ends: TypeAlias = tuple[Slots, Slots]
"""The sources and the targets of some edges."""

Keys: TypeAlias = npt.NDArray[np.int64]
Counts: TypeAlias = npt.NDArray[np.int64]

ROWS_MAX = 2**31 - 1
"""Most rows a step may produce: row numbers have 32 bits."""

_FEW_ROWS = 4_096
"""So few rows are made without a look at the limits of the query."""

BLOCK_ROWS = 1 << 19
"""Rows that are worked on between two looks at the limits of the query: some 50 ms."""


@dataclass(frozen=True, slots=True)
class Adjacency:
    """The neighbours of every node along one edge type in one direction."""

    pointers: npt.NDArray[np.int64]
    neighbours: Slots
    has_parallels: bool
    has_loops: bool
    _made: dict[str, npt.NDArray[np.bool_]] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return int(self.pointers.nbytes + self.neighbours.nbytes)

    @classmethod
    def build(cls, sources: Slots, targets: Slots, nodes: int) -> Adjacency:
        """From the two ends of every edge."""
        keys = _sorted_keys(sources, targets)
        parallels = bool(len(keys)) and bool((keys[1:] == keys[:-1]).any())
        loops = bool((sources == targets).any())
        return cls(_pointers(keys, nodes), _shrunk_to_low_half(keys), parallels, loops)

    @classmethod
    def undirected(cls, sources: Slots, targets: Slots, nodes: int) -> Adjacency:
        """Both orientations as one: a pair linked both ways, or by several edges, is one."""
        keys = _sorted_keys(np.concatenate([sources, targets]), np.concatenate([targets, sources]))
        keys = _distinct(keys)
        loops = bool((sources == targets).any())
        return cls(_pointers(keys, nodes), _shrunk_to_low_half(keys), False, loops)

    def between_types(self) -> Adjacency:
        """The same for ends of different types, where equal slots are no loops."""
        return replace(self, has_loops=False)

    def gather(self, slots: Slots) -> tuple[Slots, Counts]:
        """All neighbours of each slot, one after the other, and how many each has."""
        begin, counts = self._ranges(slots)
        if len(slots) == 1:
            start = int(begin[0])
            return self.neighbours[start : start + int(counts[0])], counts
        if _is_run(slots):
            start = int(begin[0])
            return self.neighbours[start : int(begin[-1]) + int(counts[-1])], counts
        return spread_values(self.neighbours, begin, counts), counts

    def degrees(self, slots: Slots) -> Counts:
        """How many neighbours each slot has, parallel ones included."""
        return self._ranges(slots)[1]

    def contains(self, sources: Slots, targets: Slots) -> npt.NDArray[np.bool_]:
        """For each pair, whether there is an edge."""
        if not len(self.neighbours):
            return np.zeros(len(sources), np.bool_)
        if len(sources) > _MANY_PAIRS * len(self.neighbours):
            found = self._met_by_edges(sources, targets)
            if found is not None:
                return found
        if len(sources) > BLOCK_ROWS:
            current().reserve(len(sources))
            found = np.empty(len(sources), np.bool_)
            for start in range(0, len(sources), BLOCK_ROWS):
                stop = start + BLOCK_ROWS
                found[start:stop] = self._contains(sources[start:stop], targets[start:stop])
            return found
        return self._contains(sources, targets)

    def _contains(self, sources: Slots, targets: Slots) -> npt.NDArray[np.bool_]:
        current().check()
        found = np.zeros(len(sources), np.bool_)
        # Few nodes have an edge of a rare type; a byte mask skips the others.
        known = len(self.pointers) - 1
        beyond = bool(len(sources)) and int(sources.max()) > known
        some = np.flatnonzero(
            self._linked().take(np.minimum(sources, known) if beyond else sources)
        )
        wanted = targets[some]
        places, ends = self._places(sources[some], wanted)
        inside = places < ends
        found[some[inside]] = self.neighbours[places[inside]] == wanted[inside]
        return found

    def _met_by_edges(self, sources: Slots, targets: Slots) -> npt.NDArray[np.bool_] | None:
        """For many pairs and few edges: search the edges among the pairs, if those are sorted."""
        current().reserve(3 * len(sources))
        starts = sources[1:] != sources[:-1]
        in_order = (sources[1:] >= sources[:-1]).all()
        if not in_order or not (starts | (targets[1:] >= targets[:-1])).all():
            return None
        # Treat the pairs of each source that has edges as an adjacency to search in.
        firsts = np.append(0, np.flatnonzero(starts) + 1)
        ends = np.append(firsts[1:], len(sources))
        owners = sources[firsts]
        degrees = np.diff(self.pointers)
        owned = np.flatnonzero(degrees.take(owners, mode="clip") * (owners < len(degrees)))
        counts = degrees[owners[owned]]
        wanted = spread_values(self.neighbours, self.pointers[owners[owned]], counts)
        low = _lower_bounds(
            targets, np.repeat(firsts[owned], counts), np.repeat(ends[owned], counts), wanted
        )
        high = _lower_bounds(targets, low, np.repeat(ends[owned], counts), wanted + 1)
        begin, counts = low, high - low
        found = np.zeros(len(sources), np.bool_)
        found[spread(begin, counts)] = True
        return found

    def changed(self, added: Ends, removed: Ends, nodes: int) -> Adjacency:
        """The adjacency after edges were added and others, each stored here, removed.

        Costs little more than a copy, because nothing is sorted again.
        """
        pointers = np.full(nodes + 1, self.pointers[-1])
        pointers[: len(self.pointers)] = self.pointers
        after = replace(self, pointers=pointers, _made={})
        if len(removed[0]):
            keys = _sorted_keys(*removed)
            sources, targets = _high_half(keys), _low_half(keys)
            places, _ = after._places(sources, targets)
            # Each removed parallel edge removes another one of its equal entries.
            starts = np.searchsorted(keys, keys)
            kept = np.ones(len(after.neighbours), np.bool_)
            kept[places + np.arange(len(keys)) - starts] = False
            pointers[1:] -= np.cumsum(np.bincount(sources, minlength=nodes))
            after = replace(after, neighbours=after.neighbours[kept], _made={})
        if len(added[0]):
            keys = _sorted_keys(*added)
            sources, targets = _high_half(keys), _low_half(keys)
            places, ends = after._places(sources, targets)
            inside = places < ends
            met = bool((after.neighbours[places[inside]] == targets[inside]).any())
            parallels = met or bool((keys[1:] == keys[:-1]).any())
            after = replace(
                after,
                neighbours=np.insert(after.neighbours, places, targets),
                has_parallels=after.has_parallels or parallels,
                has_loops=after.has_loops or bool((sources == targets).any()),
                _made={},
            )
            pointers[1:] += np.cumsum(np.bincount(sources, minlength=nodes))
        return after

    def _places(self, sources: Slots, targets: Slots) -> tuple[Counts, Counts]:
        """Where each target is, or would be, among the neighbours of its source; and their end."""
        begin, counts = self._ranges(sources)
        ends = begin + counts
        return _lower_bounds(self.neighbours, begin, ends, targets), ends

    def _linked(self) -> npt.NDArray[np.bool_]:
        """Which slots have neighbours; one more entry than there are slots."""
        known = self._made.get("linked")
        if known is None:
            known = self._made["linked"] = np.append(np.diff(self.pointers) > 0, False)
        return known

    def _ranges(self, slots: Slots) -> tuple[Counts, Counts]:
        """Where the neighbours of each slot begin, and how many there are.

        Slots given out after this was built have none.
        """
        nodes = len(self.pointers) - 1
        if len(slots) and int(slots.max()) >= nodes:
            known = np.minimum(slots, nodes)
            begin = self.pointers[known]
            return begin, self.pointers[np.minimum(known + 1, nodes)] - begin
        if _is_run(slots):
            start, stop = int(slots[0]), int(slots[-1]) + 1
            begin = self.pointers[start:stop]
            return begin, self.pointers[start + 1 : stop + 1] - begin
        begin = self.pointers.take(slots)
        return begin, self.pointers.take(slots + 1) - begin


@dataclass(frozen=True, slots=True)
class EdgeRows:
    """The edges at every node along one edge type in one direction, by their positions."""

    pointers: npt.NDArray[np.int64]
    edges: Positions

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return int(self.pointers.nbytes + self.edges.nbytes)

    @classmethod
    def build(cls, ends: Slots, edges: Positions, nodes: int) -> EdgeRows:
        """From the end every edge is looked up by."""
        keys = _sorted_keys(ends, edges)
        return cls(_pointers(keys, nodes), _low_half(keys))

    def gather(self, slots: Slots) -> tuple[Positions, Counts]:
        """The edges at each slot, one after the other, and how many each has."""
        nodes = len(self.pointers) - 1
        begin = self.pointers[np.minimum(slots, nodes)]
        counts = self.pointers[np.minimum(slots + 1, nodes)] - begin
        return spread_values(self.edges, begin, counts), counts


def reserve_rows(count: int, row_bytes: int) -> None:
    """Raise before a step allocates more rows than it may: see `Governor.reserve`."""
    current().reserve(count * row_bytes)
    if count > ROWS_MAX:
        raise InputError(
            f"a step of this query would hold {count:,} rows at once; {ROWS_MAX:,} are allowed",
            hint="bind fewer nodes before it: add a condition, or a smaller bound",
        )


def _lower_bounds(values: Slots, begin: Counts, ends: Counts, wanted: Slots) -> Counts:
    """Where each wanted value is, or would be, in its range of ascending values.

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


def _is_run(slots: Slots) -> bool:
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
    """Where to cut, so that the counts of each part add up to about ``block_rows`` at most."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    cuts = np.searchsorted(ends, np.arange(block_rows, total, block_rows))
    bounds = np.unique(np.concatenate([[0], cuts, [len(counts)]])).tolist()
    return list(pairwise(bounds))


def sorted_distinct(keys: npt.NDArray[Key]) -> npt.NDArray[Key]:
    """The distinct keys in order; sorts in place. Much faster than `np.unique` on integers."""
    keys.sort()
    return _distinct(keys)


def _distinct(keys: npt.NDArray[Key]) -> npt.NDArray[Key]:
    """The keys, which are sorted, each once."""
    if len(keys) < 2:
        return keys
    first = np.empty(len(keys), np.bool_)
    first[0] = True
    np.not_equal(keys[1:], keys[:-1], out=first[1:])
    return keys if first.all() else keys[first]


def _packed(high: npt.NDArray[np.int32], low: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
    """Two numbers as one that sorts by the first, then by the second; made without copies."""
    keys = np.empty(len(high), "<u8")
    halves = keys.view("<u4").reshape(-1, 2)
    halves[:, 0] = low
    halves[:, 1] = high
    return keys


def _sorted_keys(high: npt.NDArray[np.int32], low: npt.NDArray[np.int32]) -> npt.NDArray[np.uint64]:
    """The pairs in order; many are first put into parts, so that a query can stop in between."""
    governor = current()
    governor.check()
    if len(high) <= 2 * _CHUNK:
        keys = _packed(high, low)
        keys.sort()
        return keys
    counts = np.zeros(int(high.max()) + 1, np.int64)
    for start in range(0, len(high), _CHUNK):
        governor.check()
        counts += np.bincount(high[start : start + _CHUNK], minlength=len(counts))
    bounds = blocks(counts, _CHUNK)
    # The narrowest type, because numpy sorts 16 bits in two passes.
    numbers = np.arange(len(bounds)).astype(np.min_scalar_type(len(bounds)))
    part_of = np.repeat(numbers, [stop - start for start, stop in bounds])
    ends = np.cumsum([int(counts[start:stop].sum()) for start, stop in bounds])
    places = [0, *ends[:-1].tolist()]
    keys = np.empty(len(high), "<u8")
    for start in range(0, len(high), _CHUNK):
        governor.check()
        part = part_of[high[start : start + _CHUNK]]
        order = np.argsort(part, kind="stable")
        some = _packed(high[start : start + _CHUNK], low[start : start + _CHUNK])[order]
        at = 0
        for number, size in enumerate(np.bincount(part, minlength=len(bounds)).tolist()):
            keys[places[number] : places[number] + size] = some[at : at + size]
            places[number] += size
            at += size
    for start, stop in pairwise([0, *ends.tolist()]):
        governor.check()
        keys[start:stop].sort()
    return keys


def _high_half(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    return (keys >> np.uint64(32)).astype(np.int32)


def _low_half(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    return keys.astype(np.uint32).view(np.int32)


def _shrunk_to_low_half(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """The same as `_low_half`, reusing the memory of the keys, which become invalid."""
    if not keys.flags.owndata:
        return _low_half(keys)
    count = len(keys)
    halves = keys.view("<u4")
    for start in range(0, count, _CHUNK):
        stop = min(start + _CHUNK, count)
        halves[start:stop] = halves[2 * start : 2 * stop : 2]
    del halves
    keys.resize((count + 1) // 2, refcheck=False)
    return keys.view("<i4")[:count]


def _pointers(keys: npt.NDArray[np.uint64], nodes: int) -> npt.NDArray[np.int64]:
    """Where the keys of each node begin, by their upper halves."""
    pointers = np.zeros(nodes + 1, np.int64)
    owners = keys.view("<u4").reshape(-1, 2)[:, 1]
    for start in range(0, len(owners), _CHUNK):
        current().check()
        # In chunks: `bincount` makes a copy of twice the size.
        pointers[1:] += np.bincount(owners[start : start + _CHUNK], minlength=nodes)
    return np.cumsum(pointers, out=pointers)


# --- breadth-first search -------------------------------------------------------------------------


_DENSE_SHARE = 8
"""A frontier of this share of all nodes is kept as a mask instead of a sorted list."""

_SEEN_MAX = 4 * BLOCK_ROWS
"""Visited pairs of a block; they are sorted again at every level."""

_PAIR_BYTES = 48
"""Memory of a found pair while a level is searched: its key, sorted and compared."""

_SPARSE_SHARE = 64
"""Up to this share of all nodes, visited nodes are a list; a mask costs memory for all nodes."""

Rows = npt.NDArray[np.integer]


class Neighbours(Protocol):
    """A source of neighbours: sorted adjacency or index lookups."""

    @property
    def has_parallels(self) -> bool:
        """Whether a pair may come more than once."""
        ...

    @property
    def has_loops(self) -> bool:
        """Whether a node may be its own neighbour."""
        ...

    @property
    def node_count(self) -> int:
        """More than every slot that `gather` has returned so far."""
        ...

    def expected(self, slots: Slots) -> int:
        """How many neighbours `gather` finds at most, as far as that is known without reading."""
        ...

    def gather(self, slots: Slots) -> tuple[Slots, Counts]:
        """All neighbours of each slot, ascending, one slot after the other; how many each has."""
        ...


def reach(neighbours: Neighbours, sources: Slots, minimum: int, maximum: int) -> tuple[Rows, Slots]:
    """The destinations of every source: its place in ``sources``, and the destination's slot.

    Each pair comes once. A hop yields a *set* of destinations per source: a node is reported at its
    shortest distance only, the source is not reported through a cycle, and a stored self-loop
    reports its node one hop after that node was reached, without searching it again.
    """
    if maximum < minimum or not len(sources):
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    if maximum == 1:
        return _one_hop(neighbours, sources)
    if len(sources) == 1:
        found = _from_one(neighbours, int(sources[0]), minimum, maximum)
        return np.zeros(len(found), np.int64), found
    distinct = sorted_distinct(sources.copy())
    rows, found = _joined(_from_many(neighbours, distinct, minimum, maximum))
    if len(distinct) == len(sources) and (distinct == sources).all():
        return rows, found
    # Several rows start at one node: each gets its destinations.
    begin = np.searchsorted(rows, np.arange(len(distinct) + 1))
    place = np.searchsorted(distinct, sources)
    counts = begin[place + 1] - begin[place]
    reserve_rows(int(counts.sum()), 8)
    return np.repeat(np.arange(len(sources)), counts), spread_values(found, begin[place], counts)


def reaches(
    neighbours: Neighbours, sources: Slots, targets: Slots, minimum: int, maximum: int
) -> npt.NDArray[np.bool_]:
    """For each pair, whether the target is among the destinations of the source."""
    distinct = sorted_distinct(sources.copy())
    hit = np.zeros(len(sources), np.bool_)
    if maximum < minimum or not len(sources):
        return hit
    reserve_rows(len(sources), 24)
    wanted = (np.searchsorted(distinct, sources) << 32) | targets
    order = np.argsort(wanted, kind="stable")
    ordered = wanted[order]
    for block in _from_many(neighbours, distinct, minimum, maximum):
        if len(block.keys):
            bounds = np.array([block.start, block.stop]) << 32
            first, last = np.searchsorted(ordered, bounds).tolist()
            at = np.searchsorted(block.keys, ordered[first:last])
            at[at == len(block.keys)] = 0
            hit[order[first:last]] = block.keys[at] == ordered[first:last]
    return hit


def _one_hop(neighbours: Neighbours, sources: Slots) -> tuple[Rows, Slots]:
    found, counts = neighbours.gather(sources)
    rows = np.repeat(np.arange(len(sources), dtype=np.int32), counts)
    if neighbours.has_parallels and len(found) > 1:
        first = np.ones(len(found), np.bool_)
        first[1:] = (found[1:] != found[:-1]) | (rows[1:] != rows[:-1])
        if not first.all():
            return rows[first], found[first]
    return rows, found


def _from_one(neighbours: Neighbours, source: int, minimum: int, maximum: int) -> Slots:
    frontier = np.array([source], np.int32)
    seen = _Seen(frontier)
    emitted: list[Slots] = []
    governor = current()
    for hop in range(1, maximum + 1):
        found, counts = neighbours.gather(frontier)
        governor.reserve(_PAIR_BYTES * len(found))
        if neighbours.has_loops and hop >= minimum:
            emitted.append(found[found == np.repeat(frontier, counts)])
        fresh = seen.add(found, neighbours.node_count)
        if hop >= minimum:
            emitted.append(fresh)
        if not len(fresh):
            break
        frontier = fresh
    if not emitted:
        return np.zeros(0, np.int32)
    together = np.concatenate(emitted)
    return sorted_distinct(together) if neighbours.has_loops else together


class _Seen:
    """The visited nodes of a search: a sorted list while they are few, then a mask of all nodes."""

    def __init__(self, first: Slots) -> None:
        self._few: Slots = first
        self._map: npt.NDArray[np.bool_] | None = None

    def add(self, found: Slots, node_count: int) -> Slots:
        """Those of ``found`` that were not met before, each once, ascending."""
        if self._map is None and (len(self._few) + len(found)) * _SPARSE_SHARE < node_count:
            fresh: Slots = sorted_distinct(found.copy())
            place = self._few.searchsorted(fresh)
            place[place == len(self._few)] = 0
            fresh = fresh[self._few[place] != fresh]
            self._few = np.concatenate([self._few, fresh])
            self._few.sort()
            return fresh
        seen = self._map_of(node_count)
        if len(found) * _DENSE_SHARE > len(seen):
            reached = np.zeros(len(seen), np.bool_)
            reached[found] = True
            reached &= ~seen
            fresh = np.flatnonzero(reached).astype(np.int32)
        else:
            fresh = sorted_distinct(found[~seen[found]])
        seen[fresh] = True
        return fresh

    def _map_of(self, node_count: int) -> npt.NDArray[np.bool_]:
        """The mask, grown to cover ids interned since."""
        known = self._map
        if known is None or node_count > len(known):
            size = max(node_count, int(self._few[-1]) + 1)
            self._map = np.zeros(size, np.bool_)
            if known is None:
                self._map[self._few] = True
            else:
                self._map[: len(known)] = known
        assert self._map is not None
        return self._map


@dataclass(frozen=True, slots=True)
class _Reached:
    """The destinations of some of the sources."""

    start: int
    stop: int
    """The places of the sources."""
    keys: Keys
    """Place and destination as one number, ascending."""


def _from_many(
    neighbours: Neighbours, sources: Slots, minimum: int, maximum: int
) -> Iterator[_Reached]:
    """The destinations of all sources, block by block in their order.

    A block has as many sources as fit: their number shrinks when a level of the search exceeds
    `BLOCK_ROWS`, and the block begins again.
    """
    start, size = 0, len(sources)
    while start < len(sources):
        stop = min(start + size, len(sources))
        if stop - start == 1:
            found = _from_one(neighbours, int(sources[start]), minimum, maximum)
            yield _Reached(start, stop, (start << 32) | np.sort(found).astype(np.int64))
        else:
            found_or_size = _from_block(neighbours, sources[start:stop], start, minimum, maximum)
            if isinstance(found_or_size, int):
                fitting = (stop - start) * BLOCK_ROWS // found_or_size
                size = max(1, min((stop - start) // 2, fitting))
                continue
            yield _Reached(start, stop, found_or_size)
        start = stop


def _from_block(
    neighbours: Neighbours, sources: Slots, start: int, minimum: int, maximum: int
) -> Keys | int:
    """The keys of some sources, whose places begin at ``start``, or the size of too large a level.

    Keys ascend. Levels of the search are kept as keys too, so that one sort serves all sources.
    """
    place = np.arange(start, start + len(sources))
    frontier = sources
    seen = (place << 32) | frontier
    emitted: list[Keys] = []
    for hop in range(1, maximum + 1):
        level = neighbours.expected(frontier)
        if level > BLOCK_ROWS:
            return level
        current().reserve(seen.nbytes + sum(keys.nbytes for keys in emitted) + level * _PAIR_BYTES)
        found, counts = neighbours.gather(frontier)
        keys = (np.repeat(place, counts) << 32) | found
        if neighbours.has_loops and hop >= minimum:
            emitted.append(keys[found == np.repeat(frontier, counts)])
        keys = sorted_distinct(keys)
        at = np.searchsorted(seen, keys)
        at[at == len(seen)] = 0
        keys = keys[seen[at] != keys]
        if hop >= minimum:
            emitted.append(keys)
        if not len(keys):
            break
        if hop < maximum:
            if len(seen) + len(keys) > _SEEN_MAX:
                return len(seen) + len(keys)
            seen = np.concatenate([seen, keys])
            seen.sort()
            place, frontier = keys >> 32, (keys & 0xFFFFFFFF).astype(np.int32)
    if not emitted:
        return np.zeros(0, np.int64)
    return sorted_distinct(np.concatenate(emitted))


def _joined(reached: Iterator[_Reached]) -> tuple[Rows, Slots]:
    """The places and destinations of all blocks; they are counted as they come."""
    governor = current()
    rows: list[npt.NDArray[np.int32]] = []
    found: list[Slots] = []
    held = 0
    for block in reached:
        rows.append((block.keys >> 32).astype(np.int32))
        found.append((block.keys & 0xFFFFFFFF).astype(np.int32))
        held = governor.hold_instead(held, held + 8 * len(block.keys))
    if len(rows) == 1:
        joined = rows[0], found[0]
    else:
        reserve_rows(held // 8, 8)
        joined = np.concatenate(rows), np.concatenate(found)
    governor.release(held)
    return joined


# --- shortest paths -------------------------------------------------------------------------------


_PATHS_AT_ONCE = 1 << 10
_PATH_STEPS = 1 << 16
"""Paths that are made, and edges that are followed, between two looks at the limits."""


@dataclass(slots=True)
class PathStore:
    """The paths found by a query; a path variable is bound to an index into it."""

    _nodes: list[list[str]] = field(default_factory=list)

    def add(self, nodes: list[str]) -> int:
        """Remember a path."""
        self._nodes.append(nodes)
        return len(self._nodes) - 1

    def nodes(self, numbers: npt.NDArray[np.int32]) -> pa.Array:
        """The ids along each path, both ends included."""
        type = pa.list_(pa.field("item", pa.string()))
        governor = current()
        parts = [pa.array([], type)]
        held = 0
        for start in range(0, len(numbers), _PATH_STEPS):
            some = numbers[start : start + _PATH_STEPS].tolist()
            found = [None if number < 0 else self._nodes[number] for number in some]
            parts.append(pa.array(found, type))
            held = governor.hold_instead(held, held + parts[-1].nbytes)
        governor.reserve(held)
        governor.release(held)
        return pa.concat_arrays(parts)

    def lengths(self, numbers: npt.NDArray[np.int32]) -> pa.Array:
        """The number of hops of each path."""
        found = [
            None if number < 0 else len(self._nodes[number]) - 1 for number in numbers.tolist()
        ]
        return pa.array(found, pa.int64())


def path_bytes(nodes: int) -> int:
    """About the memory of a path of so many nodes: a list, and its entries in dictionaries."""
    return 200 + 8 * nodes


def paths_from(
    neighbours: Neighbours,
    spaces: tuple[IdSpace, IdSpace],
    source: int,
    minimum: int,
    maximum: int,
) -> dict[int, list[str]]:
    """The destinations of one source, each with the ids along one shortest path.

    Among several shortest paths it is the one whose nodes, read from the target backwards, have the
    smallest ids.
    """
    source_space, target_space = spaces
    start = source_space.string(source)
    if source_space is not target_space:
        # A hop between two types has exactly one level.
        targets, _ = neighbours.gather(np.array([source], np.int32))
        return {target: [start, target_space.string(target)] for target in targets.tolist()}
    governor = current()
    held = 0
    ways: dict[int, list[str]] = {source: [start]}
    found: dict[int, list[str]] = {}
    level = [source]
    for hop in range(1, maximum + 1):
        frontier: Slots = np.array(level, np.int32)
        targets, counts = neighbours.gather(frontier)
        came_from: dict[int, int] = {}
        origins = np.repeat(frontier, counts)
        for begin in range(0, len(targets), _PATH_STEPS):
            governor.check()
            part = slice(begin, begin + _PATH_STEPS)
            for origin, target in zip(origins[part].tolist(), targets[part].tolist(), strict=True):
                if origin == target:
                    if hop >= minimum and target not in found:
                        found[target] = [*ways[target], ways[target][-1]]
                elif target not in ways:
                    best = came_from.setdefault(target, origin)
                    if ways[origin][-1] < ways[best][-1]:
                        came_from[target] = origin
        held += len(came_from) * path_bytes(hop + 1)
        governor.reserve(held)
        for number, (target, origin) in enumerate(came_from.items()):
            if not number % _PATHS_AT_ONCE:
                governor.check()
            ways[target] = [*ways[origin], target_space.string(target)]
            if hop >= minimum:
                found[target] = ways[target]
        level = list(came_from)
        if not level:
            break
    return found
