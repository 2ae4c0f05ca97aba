"""Breadth-first search over neighbours: the nodes within reach of each source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
import numpy.typing as npt

from omnigraph.engines.local.ids import Slots
from omnigraph.engines.local.sorting import (
    BLOCK_ROWS,
    Counts,
    Keys,
    reserve_rows,
    sorted_distinct,
    sorted_numbers,
    spread_values,
)
from omnigraph.model.governor import current
from omnigraph.model.records import dataclass

# --- breadth-first search -------------------------------------------------------------------------


_DENSE_SHARE = 8
"""A frontier of at least this share of all nodes is kept as a mask instead of a sorted list."""

_SEEN_MAX = 4 * BLOCK_ROWS
"""Visited pairs of a block, at most; they are sorted again at every level."""

_PAIR_BYTES = 48
"""Bytes per found pair while a level is searched: its key, sorted and compared."""

_NEIGHBOURS_ALONE = 1_024
"""A source with more neighbours at a level than this is searched alone: marking nodes in a mask
costs less than sorting the pairs of many sources."""

_SPARSE_SHARE = 64
"""Up to this share of all nodes, visited nodes are a list; a mask costs memory for all nodes."""

Rows = npt.NDArray[np.integer]


class Neighbours(Protocol):
    """A source of neighbours: sorted adjacency or index lookups."""

    @property
    def has_parallels(self) -> bool:
        """Whether `gather` may return a pair more than once."""
        ...

    @property
    def has_loops(self) -> bool:
        """Whether a node may be its own neighbour."""
        ...

    @property
    def node_count(self) -> int:
        """An upper bound: more than every slot that `gather` has returned so far."""
        ...

    def expected(self, slots: Slots) -> int:
        """The most neighbours that `gather` may find, as far as known without reading."""
        ...

    def gather(self, slots: Slots) -> tuple[Slots, Counts]:
        """All neighbours of each slot, ascending, one slot after the other; and their numbers."""
        ...


class PresentOnly:
    """Neighbours without deleted nodes."""

    def __init__(
        self, neighbours: Neighbours, present: Callable[[Slots], npt.NDArray[np.bool_] | None]
    ) -> None:
        self._neighbours = neighbours
        self._present = present

    @property
    def has_parallels(self) -> bool:
        """Whether `gather` may return a pair more than once."""
        return self._neighbours.has_parallels

    @property
    def has_loops(self) -> bool:
        """Whether a node may be its own neighbour."""
        return self._neighbours.has_loops

    @property
    def node_count(self) -> int:
        """An upper bound: more than every slot that `gather` has returned so far."""
        return self._neighbours.node_count

    def expected(self, slots: Slots) -> int:
        """The most neighbours there may be."""
        return self._neighbours.expected(slots)

    def gather(self, slots: Slots) -> tuple[Slots, Counts]:
        """The neighbours that exist."""
        found, counts = self._neighbours.gather(slots)
        present = self._present(found)
        if present is None:
            return found, counts
        owners = np.repeat(np.arange(len(slots)), counts)[present]
        return found[present], np.bincount(owners, minlength=len(slots))


def reach(neighbours: Neighbours, sources: Slots, minimum: int, maximum: int) -> tuple[Rows, Slots]:
    """The destinations of every source: its index in ``sources``, and the destination's slot.

    Each pair occurs once. A hop yields a *set* of destinations per source: a node is reported at
    its shortest distance only, the source is not reported through a cycle, and a stored self-loop
    reports its node one hop after that node was reached, without searching it again. With a minimum
    of 0 every source is a destination of itself.
    """
    if maximum < minimum or not len(sources):
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    if minimum == maximum == 1:
        return _one_hop(neighbours, sources)
    if len(sources) == 1:
        found = _from_one(neighbours, int(sources[0]), minimum, maximum)
        return np.zeros(len(found), np.int64), found
    distinct = sorted_distinct(sources.copy())
    searched = from_many(neighbours, distinct, minimum, maximum)
    rows, found = _joined(block.destinations(minimum) for block in searched)
    if len(distinct) == len(sources) and (distinct == sources).all():
        return rows, found
    # Several rows may start at one node: each gets its destinations.
    begin = np.concatenate(([0], np.cumsum(np.bincount(rows, minlength=len(distinct)))))
    place = _places_of(sources, distinct)
    counts = begin[place + 1] - begin[place]
    reserve_rows(int(counts.sum()), 8)
    return np.repeat(np.arange(len(sources)), counts), spread_values(found, begin[place], counts)


def _places_of(slots: Slots, distinct: Slots) -> Rows:
    """The index of each slot in ascending ones."""
    size = int(distinct[-1]) + 1
    if size > _DENSE_SHARE * len(slots):
        return np.searchsorted(distinct, slots)
    current().reserve(4 * size)
    places = np.zeros(size, np.int32)
    places[distinct] = np.arange(len(distinct), dtype=np.int32)
    return places[slots]


def expected_reach(degree: float, maximum: int) -> float:
    """The approximate number of nodes that a hop of up to ``maximum`` steps reaches."""
    return max(degree, 1.0) ** min(maximum, _HOPS_TO_EVERYWHERE)


_HOPS_TO_EVERYWHERE = 24
"""Limit of steps in estimates of unbounded hops: more steps reach no more nodes."""


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
    levels, loops = levels_from(neighbours, source, minimum, maximum)
    emitted = levels[minimum:]
    if len(loops):
        return sorted_distinct(np.concatenate([*emitted, loops]))
    return np.concatenate(emitted) if emitted else np.zeros(0, np.int32)


def levels_from(
    neighbours: Neighbours,
    source: int,
    minimum: int,
    maximum: int,
    wanted: Slots | None = None,
) -> tuple[list[Slots], Slots]:
    """The nodes at each distance from a source, and those that a self-loop reports.

    Nodes at or beyond the minimum are reported at their distance, so a self-loop matters only for
    nodes at one step less than the minimum. With ``wanted`` the search ends once these are met.
    """
    frontier = np.array([source], np.int32)
    seen = Seen(frontier)
    levels = [frontier]
    loops = frontier[:0]
    reporting = max(minimum, 1)
    left = None if wanted is None else sorted_distinct(wanted[wanted != source])
    governor = current()
    for hop in range(1, maximum + 1):
        if left is not None and not len(left) and hop > reporting:
            break
        found, counts = neighbours.gather(frontier)
        governor.reserve(_PAIR_BYTES * len(found))
        if neighbours.has_loops and hop == reporting:
            loops = sorted_distinct(found[found == np.repeat(frontier, counts)])
        frontier = seen.add(found, neighbours.node_count)
        if not len(frontier):
            break
        levels.append(frontier)
        if left is not None:
            left = left[~are_among(left, frontier)]
    return levels, loops


def are_among(slots: Slots, ascending: Slots) -> npt.NDArray[np.bool_]:
    """For each slot, whether it occurs in ``ascending``."""
    if not len(ascending):
        return np.zeros(len(slots), np.bool_)
    found: npt.NDArray[np.bool_] = (
        ascending.take(ascending.searchsorted(slots), mode="clip") == slots
    )
    return found


class Seen:
    """The visited nodes of a search: a sorted list while they are few, then a mask of all nodes."""

    def __init__(self, first: Slots) -> None:
        self._few: Slots = first
        self._map: npt.NDArray[np.bool_] | None = None

    def add(self, found: Slots, node_count: int) -> Slots:
        """Add nodes; returns those that are new, distinct and ascending."""
        if self._map is None and (len(self._few) + len(found)) * _SPARSE_SHARE < node_count:
            fresh: Slots = sorted_distinct(found.copy())
            place = self._few.searchsorted(fresh)
            place[place == len(self._few)] = 0
            fresh = fresh[self._few[place] != fresh]
            self._few = np.concatenate([self._few, fresh])
            self._few = sorted_numbers(self._few)
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
        """The mask, grown to cover ids added since."""
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
class Reached:
    """The result of a search from some of the sources.

    A key packs the index of a source and the slot of a node into one number.
    """

    start: int
    stop: int
    """The indexes of the sources are from ``start`` to ``stop``."""
    levels: list[Keys]
    """The nodes at each distance, ascending; those at 0 are the sources themselves."""
    loops: Keys
    """The nodes that a self-loop reports, ascending; see `levels_from`."""

    def destinations(self, minimum: int) -> Keys:
        """The distinct keys of all destinations, one source after the other."""
        emitted = self.levels[minimum:]
        if len(self.loops):
            return sorted_distinct(np.concatenate([*emitted, self.loops]))
        if len(emitted) == 1:
            return emitted[0]
        if emitted and self.stop - self.start == 1:
            return np.concatenate(emitted)
        return sorted_numbers(np.concatenate(emitted)) if emitted else np.zeros(0, np.int64)


def from_many(
    neighbours: Neighbours, sources: Slots, minimum: int, maximum: int
) -> Iterator[Reached]:
    """Search from distinct sources, block by block in their order.

    A block has as many sources as fit: if a level of the search exceeds `BLOCK_ROWS`, the block
    starts again with fewer. Sources with large levels are searched alone; after one that turns out
    small the next block is larger.
    """
    start, size = 0, len(sources)
    while start < len(sources):
        stop = min(start + size, len(sources))
        if stop - start == 1:
            alone, loops = levels_from(neighbours, int(sources[start]), minimum, maximum)
            met = sum(map(len, alone))
            yield Reached(start, stop, [_keys(start, each) for each in alone], _keys(start, loops))
        else:
            found = _from_block(neighbours, sources[start:stop], start, minimum, maximum)
            if isinstance(found, int):
                fitting = (stop - start) * BLOCK_ROWS // found
                size = max(1, min((stop - start) // 2, fitting))
                if found > _NEIGHBOURS_ALONE * (stop - start):
                    size = 1
                continue
            met = sum(map(len, found.levels))
            yield found
        if 2 * met < _NEIGHBOURS_ALONE * (stop - start):
            size = 2 * size
        start = stop


def _keys(place: int, slots: Slots) -> Keys:
    keys = slots.astype(np.int64)
    keys |= place << 32
    return keys


def _from_block(
    neighbours: Neighbours, sources: Slots, start: int, minimum: int, maximum: int
) -> Reached | int:
    """The result for some sources, whose indexes begin at ``start``; or the size that is too large.

    One sort per level serves all sources. While no node was met twice by any of them, as in trees
    of replies, no pair can have been visited before, and the visited pairs are not sorted.
    """
    place = np.arange(start, start + len(sources))
    chains = _chains(neighbours, sources, place, maximum)
    if chains is not None:
        return Reached(start, start + len(sources), chains, chains[0][:0])
    frontier = sources
    levels: list[Keys] = [(place << 32) | frontier]
    seen = levels[0]
    # A mask of all nodes is worth its memory if many of them are sources.
    nodes = neighbours.node_count
    apart = _DistinctNodes.of(sources, nodes) if len(sources) * _SPARSE_SHARE >= nodes else None
    loops = seen[:0]
    reporting = max(minimum, 1)
    held = 0
    for hop in range(1, maximum + 1):
        level = neighbours.expected(frontier)
        if level > min(BLOCK_ROWS, _NEIGHBOURS_ALONE * len(sources)):
            return level
        current().reserve(seen.nbytes + held + level * _PAIR_BYTES)
        found, counts = neighbours.gather(frontier)
        keys = (np.repeat(place, counts) << 32) | found
        if neighbours.has_loops and hop == reporting:
            loops = sorted_distinct(keys[found == np.repeat(frontier, counts)])
        if apart is not None and apart.takes(found):
            keys = sorted_numbers(keys)
        else:
            if apart is not None:
                apart, seen = None, sorted_numbers(np.concatenate(levels))
            keys = sorted_distinct(keys)
            at = np.searchsorted(seen, keys)
            at[at == len(seen)] = 0
            keys = keys[seen[at] != keys]
        if not len(keys):
            break
        levels.append(keys)
        held += keys.nbytes
        if hop < maximum:
            met = sum(map(len, levels))
            if met > _SEEN_MAX:
                return met
            if apart is None:
                seen = sorted_numbers(np.concatenate([seen, keys]))
            place, frontier = keys >> 32, (keys & 0xFFFFFFFF).astype(np.int32)
    return Reached(start, start + len(sources), levels, loops)


def _chains(neighbours: Neighbours, sources: Slots, place: Rows, maximum: int) -> list[Keys] | None:
    """The levels of sources that each lead along a chain, such as from a reply to its post.

    Chains need no sorting and no comparison with visited nodes. None if some node has two
    neighbours, if a chain has a cycle, if there are too many nodes, or if the search ends before
    all chains do, since a cycle may follow.
    """
    levels: list[Keys] = [(place << 32) | sources]
    frontier = marked = sources
    met = 0
    for hop in range(1, maximum + 1):
        expected = neighbours.expected(frontier)
        met += expected
        if expected > len(frontier) or met > _SEEN_MAX:
            return None
        current().reserve(met * _PAIR_BYTES)
        frontier, counts = neighbours.gather(frontier)
        if not len(frontier):
            return levels
        if int(counts.max()) > 1:
            return None
        continues = counts > 0
        place, marked = place[continues], marked[continues]
        # Brent's algorithm: a chain with a cycle meets the mark, which moves after 1, 2, 4, 8 …
        # hops.
        if (frontier == marked).any():
            return None
        if hop & (hop - 1) == 0:
            marked = frontier
        levels.append((place << 32) | frontier)
    return None


class _DistinctNodes:
    """The visited nodes, as long as no node is visited twice."""

    def __init__(self, node_count: int) -> None:
        current().reserve(node_count)
        self._met = np.zeros(node_count, np.bool_)
        self._count = 0

    @classmethod
    def of(cls, slots: Slots, node_count: int) -> _DistinctNodes | None:
        """A set of distinct nodes; None if a slot is beyond ``node_count``."""
        apart = cls(node_count)
        return apart if apart.takes(slots) else None

    def takes(self, slots: Slots) -> bool:
        """Whether these nodes are distinct and new; adds them."""
        if len(slots) and int(slots.max()) >= len(self._met):
            return False
        self._met[slots] = True
        self._count += len(slots)
        return int(np.count_nonzero(self._met)) == self._count


def _joined(destinations: Iterator[Keys]) -> tuple[Rows, Slots]:
    """The source indexes and destinations of all blocks, charged to the query as they come."""
    governor = current()
    rows: list[npt.NDArray[np.int32]] = []
    found: list[Slots] = []
    held = 0
    for keys in destinations:
        rows.append((keys >> 32).astype(np.int32))
        found.append((keys & 0xFFFFFFFF).astype(np.int32))
        held = governor.hold_instead(held, held + 8 * len(keys))
    if len(rows) == 1:
        joined = rows[0], found[0]
    else:
        reserve_rows(held // 8, 8)
        joined = np.concatenate(rows), np.concatenate(found)
    governor.release(held)
    return joined
