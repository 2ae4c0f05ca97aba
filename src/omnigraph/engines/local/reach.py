"""Breadth-first search as the language defines it, over any source of neighbours.

A hop yields a *set* of destinations per source. A node is reported at its shortest distance only,
the source never comes back through a cycle, and a stored self-loop reports its node one hop after
that node was reached, without being searched again.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt

from omnigraph.engines.local.adjacency import Counts, Keys, sorted_distinct
from omnigraph.engines.local.ids import Slots

_DENSE_SHARE = 8
"""A frontier of this part of all nodes is kept as a map instead of a sorted list."""

_SPARSE_SHARE = 64
"""Up to this part of all nodes, those a search has met are a list: a map costs all of them."""

Rows = npt.NDArray[np.integer]


class Neighbours(Protocol):
    """Who is next to whom, from wherever it is read."""

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

    def gather(self, slots: Slots) -> tuple[Slots, Counts]:
        """All neighbours of each slot, ascending, one slot after the other; how many each has."""
        ...


def reach(neighbours: Neighbours, sources: Slots, minimum: int, maximum: int) -> tuple[Rows, Slots]:
    """The destinations of every source: its place in ``sources``, and the destination's slot.

    Each pair comes once. Between different node types, and for one hop, nothing has to be searched:
    the destinations are the neighbours.
    """
    if maximum < minimum or not len(sources):
        return np.zeros(0, np.int64), np.zeros(0, np.int32)
    if maximum == 1:
        return _one_hop(neighbours, sources)
    if len(sources) == 1:
        found = _from_one(neighbours, int(sources[0]), minimum, maximum)
        return np.zeros(len(found), np.int64), found
    distinct = sorted_distinct(sources.copy())
    keys = _from_many(neighbours, distinct, minimum, maximum)
    if len(distinct) == len(sources) and (distinct == sources).all():
        return keys >> 32, (keys & 0xFFFFFFFF).astype(np.int32)
    # Several rows start at one node: each gets its destinations.
    begin = np.searchsorted(keys, np.arange(len(distinct) + 1) << 32)
    place = np.searchsorted(distinct, sources)
    counts = begin[place + 1] - begin[place]
    before = np.cumsum(counts) - counts
    taken = np.repeat(begin[place] - before, counts) + np.arange(int(counts.sum()))
    return np.repeat(np.arange(len(sources)), counts), (keys[taken] & 0xFFFFFFFF).astype(np.int32)


def reaches(
    neighbours: Neighbours, sources: Slots, targets: Slots, minimum: int, maximum: int
) -> npt.NDArray[np.bool_]:
    """For each pair, whether the target is among the destinations of the source."""
    distinct = sorted_distinct(sources.copy())
    found_rows, found = reach(neighbours, distinct, minimum, maximum)
    keys = np.sort((found_rows.astype(np.int64) << 32) | found)
    wanted = (np.searchsorted(distinct, sources) << 32) | targets
    if not len(keys):
        return np.zeros(len(sources), np.bool_)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    hit: npt.NDArray[np.bool_] = keys[at] == wanted
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
    for hop in range(1, maximum + 1):
        found, counts = neighbours.gather(frontier)
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
    """The nodes a search has met: a list as long as they are few, a map of all nodes later."""

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
        """The map, with room for nodes met since."""
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


def _from_many(neighbours: Neighbours, sources: Slots, minimum: int, maximum: int) -> Keys:
    """Sorted keys of source place and destination."""
    place = np.arange(len(sources))
    frontier = sources
    seen = (place << 32) | frontier
    emitted: list[Keys] = []
    for hop in range(1, maximum + 1):
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
            seen = np.concatenate([seen, keys])
            seen.sort()
            place, frontier = keys >> 32, (keys & 0xFFFFFFFF).astype(np.int32)
    if not emitted:
        return np.zeros(0, np.int64)
    return sorted_distinct(np.concatenate(emitted))
