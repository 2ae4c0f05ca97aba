"""Searches over neighbours: breadth-first search of the nodes in reach, and shortest paths."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.adjacency import (
    BLOCK_ROWS,
    Counts,
    Keys,
    reserve_rows,
    spread_values,
)
from omnigraph.engines.local.ids import AnySpace, Slots
from omnigraph.engines.local.sorting import sorted_distinct, sorted_numbers, stable_order
from omnigraph.model.governor import current

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
    rows, found = _joined(_from_many(neighbours, distinct, minimum, maximum))
    if len(distinct) == len(sources) and (distinct == sources).all():
        return rows, found
    # Several rows start at one node: each gets its destinations.
    begin = np.searchsorted(rows, np.arange(len(distinct) + 1))
    place = np.searchsorted(distinct, sources)
    counts = begin[place + 1] - begin[place]
    reserve_rows(int(counts.sum()), 8)
    return np.repeat(np.arange(len(sources)), counts), spread_values(found, begin[place], counts)


def expected_reach(degree: float, maximum: int) -> float:
    """About how many nodes a hop reaches where nodes have so many neighbours."""
    return max(degree, 1.0) ** min(maximum, _HOPS_TO_EVERYWHERE)


_HOPS_TO_EVERYWHERE = 24
"""More hops reach no more nodes: an estimate for open bounds."""


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
    order = stable_order(wanted)
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
    emitted: list[Slots] = [frontier] if minimum == 0 else []
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
            yield _Reached(start, stop, (start << 32) | sorted_numbers(found.astype(np.int64)))
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
    emitted: list[Keys] = [seen] if minimum == 0 else []
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
            seen = sorted_numbers(seen)
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
    spaces: tuple[AnySpace, AnySpace],
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
    if maximum < minimum:
        return {}
    if source_space.serial != target_space.serial:
        # A hop between two types has exactly one level.
        targets, _ = neighbours.gather(np.array([source], np.int32))
        return {target: [start, target_space.string(target)] for target in targets.tolist()}
    governor = current()
    held = 0
    ways: dict[int, list[str]] = {source: [start]}
    found: dict[int, list[str]] = {source: [start]} if minimum == 0 else {}
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
