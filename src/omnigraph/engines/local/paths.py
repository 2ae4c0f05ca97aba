"""Shortest paths, as arrays: distances first, and the nodes along a path when they are read.

A search keeps the distance of every visited node. The nodes of a path are found from its target
backwards: the predecessor of a node is a neighbour at one step less, the one with the smallest id
if there are several. Between two bound nodes the search runs from both ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import field, replace
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engines.local.ids import AnySpace, Slots
from omnigraph.engines.local.reach import (
    Neighbours,
    Reached,
    Rows,
    Seen,
    are_among,
    expected_reach,
    from_many,
    levels_from,
)
from omnigraph.engines.local.sorting import (
    Counts,
    Keys,
    distinct_of_sorted,
    reserve_rows,
    sorted_distinct,
    spread_values,
    stable_order,
)
from omnigraph.errors import InternalError
from omnigraph.model.governor import current
from omnigraph.model.records import dataclass
from omnigraph.model.references import ids_in

Mask = npt.NDArray[np.bool_]
Distances = npt.NDArray[np.int32]

LOW = 0xFFFFFFFF
_PATHS_AT_ONCE = 1 << 16
"""Number of paths whose nodes are read between two checks of the query's limits."""

_PAIRS_ALONE = 64
"""At most this many pairs of nodes are always searched one by one."""

_TARGETS_ALONE = 4
"""A source with more targets than this is searched from its end until all targets are met."""

_WIDE = 20_000
"""If a source reaches more nodes than this, even many pairs are searched one by one."""


@dataclass(frozen=True, slots=True)
class PathSearch:
    """A hop whose paths are searched."""

    forwards: Neighbours
    """Neighbours in the direction of the search."""
    backwards: Neighbours
    """Neighbours in the opposite direction."""
    present: Callable[[Slots], Mask | None]
    """Which of some nodes a search may pass; None for all of them."""
    space: AnySpace
    """The ids that decide between several paths."""
    minimum: int
    maximum: int

    def all_from(self, sources: Slots) -> Iterator[ShortestPaths]:
        """The paths from distinct sources to all of their destinations."""
        if self.minimum <= self.maximum:
            for found in from_many(self.forwards, sources, self.minimum, self.maximum):
                yield ShortestPaths.of(self, found, sources[found.start : found.stop])


# --- found paths ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ShortestPaths:
    """The shortest paths of one search, with the distances it has found.

    A key packs the index of a source and the slot of a node into one number.
    """

    start: int
    """The index of the first source."""
    sources: Slots
    visited: Keys
    """Every node on a shortest path, ascending."""
    distances: Distances
    """The distances of the visited nodes."""
    keys: Keys
    """The target of each path."""
    lengths: Distances
    """The length of each path: the distance of its target, plus one if it ends with a self-loop."""
    backwards: Neighbours
    space: AnySpace
    """The ids that decide between several paths."""

    @classmethod
    def of(cls, search: PathSearch, found: Reached, sources: Slots) -> ShortestPaths:
        """The paths to all destinations that a search has found from some sources."""
        minimum = search.minimum
        visited = np.concatenate(found.levels)
        hops = np.repeat(np.arange(len(found.levels), dtype=np.int32), [*map(len, found.levels)])
        order = stable_order(visited)
        # With a minimum of 0 each source is its own destination, without its self-loop.
        loops = found.loops if minimum else found.loops[:0]
        keys = np.concatenate([*found.levels[minimum:], loops])
        lengths = np.concatenate(
            [hops[sum(map(len, found.levels[:minimum])) :], np.full(len(loops), minimum, np.int32)]
        )
        by_key = stable_order(keys)
        return cls(
            found.start,
            sources,
            visited[order],
            hops[order],
            keys[by_key],
            lengths[by_key],
            search.backwards,
            search.space,
        )

    @classmethod
    def joined(cls, parts: Sequence[ShortestPaths]) -> ShortestPaths:
        """The paths of several searches of one hop as one object."""
        if len(parts) == 1:
            return parts[0]
        ends = np.cumsum([len(part.sources) for part in parts]).tolist()
        moved = [
            (end - len(part.sources) - part.start) << 32
            for part, end in zip(parts, ends, strict=True)
        ]
        return cls(
            0,
            np.concatenate([part.sources for part in parts]),
            np.concatenate([p.visited + by for p, by in zip(parts, moved, strict=True)]),
            np.concatenate([part.distances for part in parts]),
            np.concatenate([p.keys + by for p, by in zip(parts, moved, strict=True)]),
            np.concatenate([part.lengths for part in parts]),
            parts[0].backwards,
            parts[0].space,
        )

    def some(self, numbers: Rows) -> ShortestPaths:
        """Some of the paths."""
        return replace(self, keys=self.keys[numbers], lengths=self.lengths[numbers])

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return int(12 * (len(self.visited) + len(self.keys)))

    def follow(self, numbers: Rows) -> Slots:
        """The nodes along some paths, one path after the other."""
        keys, lengths = self.keys[numbers], self.lengths[numbers]
        begin, at = _ends_of(lengths)
        reserve_rows(int(lengths.sum()) + len(lengths), 4)
        flat = np.empty(int(lengths.sum()) + len(lengths), np.int32)
        flat[at] = keys & LOW
        distances = self._distance(keys)
        at -= lengths > distances
        flat[at] = keys & LOW
        for distance in range(int(distances.max(initial=0)), 1, -1):
            current().check()
            rows = np.flatnonzero(distances >= distance)
            distinct = sorted_distinct(keys[rows])
            owners, before = self._before(distinct, distance)
            chosen = before[_smallest(self.space, owners, (before & LOW).astype(np.int32))]
            keys[rows] = chosen[np.searchsorted(distinct, keys[rows])]
            at[rows] -= 1
            flat[at[rows]] = keys[rows] & LOW
        flat[begin] = self.sources[(keys >> 32) - self.start]
        return flat

    def every(self, numbers: Rows) -> ListedPaths:
        """All shortest paths to the targets of some paths."""
        keys, lengths = self.keys[numbers], self.lengths[numbers]
        distances = self._distance(keys)
        parts = []
        for distance in sorted_distinct(distances.copy()).tolist():
            for is_loop in (False, True):
                rows = np.flatnonzero((distances == distance) & ((lengths > distance) == is_loop))
                if len(rows):
                    parts.append(self._every(rows, keys[rows], distance, is_loop=is_loop))
        return ListedPaths.joined(parts)

    def _every(self, rows: Rows, keys: Keys, distance: int, *, is_loop: bool) -> ListedPaths:
        columns = [keys, keys] if is_loop else [keys]
        for left in range(distance, 1, -1):
            distinct = sorted_distinct(columns[-1].copy())
            owners, before = self._before(distinct, left)
            begin = np.searchsorted(owners, np.arange(len(distinct) + 1))
            places = np.searchsorted(distinct, columns[-1])
            counts = begin[places + 1] - begin[places]
            reserve_rows(int(counts.sum()), 8 * (len(columns) + 2))
            fresh = spread_values(before, begin[places], counts)
            rows = np.repeat(rows, counts)
            columns = [*(np.repeat(column, counts) for column in columns), fresh]
        if distance:
            columns.append(self.sources[(columns[-1] >> 32) - self.start].astype(np.int64))
        nodes = np.stack([(column & LOW).astype(np.int32) for column in columns[::-1]], axis=1)
        lengths = np.full(len(nodes), nodes.shape[1] - 1, np.int32)
        return ListedPaths(rows, nodes.ravel(), lengths)

    def _distance(self, keys: Keys) -> Distances:
        return self.distances[np.searchsorted(self.visited, keys)]

    def _before(self, keys: Keys, distance: int) -> tuple[Rows, Keys]:
        """The predecessors of some nodes at a distance: index in ``keys`` and key of each.

        Each pair occurs once; the indexes ascend.
        """
        found, counts = self.backwards.gather((keys & LOW).astype(np.int32))
        owners = np.repeat(np.arange(len(keys)), counts)
        before = (keys[owners] & ~LOW) | found
        at = np.minimum(np.searchsorted(self.visited, before), len(self.visited) - 1)
        fits = (self.visited[at] == before) & (self.distances[at] == distance - 1)
        # Parallel edges are adjacent in the list.
        fits[1:] &= (before[1:] != before[:-1]) | (owners[1:] != owners[:-1])
        return owners[fits], before[fits]


@dataclass(frozen=True, slots=True)
class ListedPaths:
    """Paths stored node by node."""

    owners: Rows
    """For each path, the number of the pair it belongs to."""
    nodes: Slots
    """The nodes of all paths, one path after the other."""
    lengths: Distances

    @classmethod
    def joined(cls, parts: list[ListedPaths]) -> ListedPaths:
        """Several objects as one, ordered by owner."""
        if not parts:
            return cls(np.zeros(0, np.int64), np.zeros(0, np.int32), np.zeros(0, np.int32))
        owners = np.concatenate([part.owners for part in parts])
        joined = cls(
            owners,
            np.concatenate([part.nodes for part in parts]),
            np.concatenate([part.lengths for part in parts]),
        )
        order = stable_order(owners)
        return cls(owners[order], joined.follow(order), joined.lengths[order])

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return int(self.owners.nbytes + self.nodes.nbytes + self.lengths.nbytes)

    def follow(self, numbers: Rows) -> Slots:
        """The nodes along some paths, one path after the other."""
        begin, _ = _ends_of(self.lengths)
        return spread_values(self.nodes, begin[numbers], self.lengths[numbers].astype(np.int64) + 1)


def _ends_of(lengths: Distances) -> tuple[Counts, Counts]:
    """The indexes of the first and the last node of each path."""
    last = np.cumsum(lengths.astype(np.int64) + 1) - 1
    return last - lengths, last


def _smallest(space: AnySpace, owners: Rows, slots: Slots) -> Rows:
    """For each owner, whose rows are consecutive, the row with the smallest id."""
    first = np.ones(len(owners), np.bool_)
    first[1:] = owners[1:] != owners[:-1]
    if first.all():
        return np.arange(len(owners))
    distinct = sorted_distinct(slots.copy())
    ranks = np.empty(len(distinct), np.int64)
    ranks[pc.sort_indices(space.strings(distinct)).to_numpy()] = np.arange(len(distinct))
    order = stable_order((owners.astype(np.int64) << 32) | ranks[np.searchsorted(distinct, slots)])
    return order[first]


# --- between bound nodes --------------------------------------------------------------------------


def lengths_between(search: PathSearch, sources: Slots, targets: Slots) -> Distances:
    """The length of the path between each pair, or -1 if the hop reports none."""
    lengths = np.full(len(sources), -1, np.int32)
    for rows, found, _ in _between(search, sources, targets, with_paths=False):
        lengths[rows] = found
    return lengths


def paths_between(
    search: PathSearch, sources: Slots, targets: Slots
) -> tuple[Rows, list[ShortestPaths]]:
    """The shortest paths of pairs: the rows that have one, and the paths, in the same order."""
    rows: list[Rows] = [np.zeros(0, np.int64)]
    parts: list[ShortestPaths] = []
    for some, lengths, made in _between(search, sources, targets, with_paths=True):
        assert made is not None
        rows.append(some[lengths >= 0])
        parts.append(made)
    return np.concatenate(rows), [ShortestPaths.joined(parts)] if parts else []


_Found = tuple[Rows, Distances, ShortestPaths | None]


def _between(
    search: PathSearch, sources: Slots, targets: Slots, *, with_paths: bool
) -> Iterator[_Found]:
    """Some rows, the lengths of their paths, and the paths of those that have one."""
    if search.maximum < search.minimum or not len(sources):
        return
    reserve_rows(len(sources), 32)
    wanted = (sources.astype(np.int64) << 32) | targets
    order = stable_order(wanted)
    ordered = wanted[order]
    pairs = distinct_of_sorted(ordered)
    alone = len(pairs) <= _PAIRS_ALONE or _is_wide(search, sources)
    searched = _pair_by_pair if alone else _in_blocks
    for start, stop, lengths, made in searched(search, pairs, with_paths):
        first = int(np.searchsorted(ordered, pairs[start]))
        last = int(np.searchsorted(ordered, pairs[stop - 1], side="right"))
        places = np.searchsorted(pairs[start:stop], ordered[first:last])
        found = lengths[places]
        # Several rows may have the same ends.
        numbers = (np.cumsum(lengths >= 0) - 1)[places][found >= 0]
        yield order[first:last], found, None if made is None else made.some(numbers)


def _is_wide(search: PathSearch, sources: Slots) -> bool:
    degree = search.forwards.expected(sources) / len(sources)
    return expected_reach(degree, search.maximum) > _WIDE


_Searched = tuple[int, int, Distances, ShortestPaths | None]
"""The first and the last of some pairs, their lengths, and the paths of those that have one."""


def _in_blocks(search: PathSearch, pairs: Keys, with_paths: bool) -> Iterator[_Searched]:
    """Search from all sources at once."""
    sources = distinct_of_sorted((pairs >> 32).astype(np.int32))
    first = np.append(np.searchsorted(pairs, sources.astype(np.int64) << 32), len(pairs))
    for block in from_many(search.forwards, sources, search.minimum, search.maximum):
        start, stop = int(first[block.start]), int(first[block.stop])
        keys = (np.searchsorted(sources, pairs[start:stop] >> 32) << 32) | (pairs[start:stop] & LOW)
        made = ShortestPaths.of(search, block, sources[block.start : block.stop])
        yield (start, stop, *_looked_up(made, keys, with_paths))


def _looked_up(
    made: ShortestPaths, keys: Keys, with_paths: bool
) -> tuple[Distances, ShortestPaths | None]:
    lengths = np.full(len(keys), -1, np.int32)
    at = np.searchsorted(made.keys, keys)
    hit = at < len(made.keys)
    hit[hit] = made.keys[at[hit]] == keys[hit]
    lengths[hit] = made.lengths[at[hit]]
    return lengths, made.some(at[hit]) if with_paths else None


def _pair_by_pair(search: PathSearch, pairs: Keys, with_paths: bool) -> Iterator[_Searched]:
    """Search each pair from both ends, or all targets of a source together if they are many."""
    origins = (pairs >> 32).astype(np.int32)
    begin = np.flatnonzero(np.append(True, origins[1:] != origins[:-1])).tolist()
    for start, stop in zip(begin, [*begin[1:], len(pairs)], strict=True):
        source, targets = origins[start : start + 1], (pairs[start:stop] & LOW).astype(np.int32)
        if stop - start > _TARGETS_ALONE:
            levels, loops = levels_from(
                search.forwards, int(source[0]), search.minimum, search.maximum, targets
            )
            keys = [each.astype(np.int64) for each in (*levels, loops)]
            made = ShortestPaths.of(search, Reached(0, 1, keys[:-1], keys[-1]), source)
            yield (start, stop, *_looked_up(made, targets.astype(np.int64), with_paths))
            continue
        for number in range(start, stop):
            target = targets[number - start : number - start + 1]
            yield (number, number + 1, *_pair(search, source, target, with_paths))


def _pair(
    search: PathSearch, source: Slots, target: Slots, with_paths: bool
) -> tuple[Distances, ShortestPaths | None]:
    forward, backward = [source], [target]
    is_met = source[0] == target[0] or _meet(search, forward, backward)
    distance = len(forward) + len(backward) - 2
    length = -1
    if is_met and distance >= search.minimum:
        length = distance
    elif is_met and distance == search.minimum - 1:
        # A self-loop of the target makes the path one step longer.
        found, _ = search.forwards.gather(target)
        length = search.minimum if bool((found == target[0]).any()) else -1
    lengths = np.array([length], np.int32)
    if not with_paths:
        return lengths, None
    layers = _layers(search, forward, backward) if length >= 0 else [source]
    visited = np.concatenate(layers).astype(np.int64)
    distances = np.repeat(np.arange(len(layers), dtype=np.int32), [*map(len, layers)])
    order = stable_order(visited)
    made = ShortestPaths(
        0,
        source,
        visited[order],
        distances[order],
        target[: 1 if length >= 0 else 0].astype(np.int64),
        lengths[lengths >= 0],
        search.backwards,
        search.space,
    )
    return lengths, made


def _meet(search: PathSearch, forward: list[Slots], backward: list[Slots]) -> bool:
    """Search from both ends, level by level, until the searches meet."""
    levels = (forward, backward)
    seen = (Seen(forward[0]), Seen(backward[0]))
    sides = (search.forwards, search.backwards)
    source = int(forward[0][0])
    governor = current()
    while len(forward) + len(backward) - 2 < search.maximum:
        # Expand the side with fewer edges to follow.
        costs = [side.expected(level[-1]) for side, level in zip(sides, levels, strict=True)]
        at = 0 if costs[0] <= costs[1] else 1
        governor.reserve(48 * costs[at])
        found, _ = sides[at].gather(levels[at][-1])
        if at == 1:
            present = search.present(found)
            if present is not None:
                found = found[present | (found == source)]
        fresh = seen[at].add(found, sides[at].node_count)
        if not len(fresh):
            return False
        levels[at].append(fresh)
        if are_among(forward[-1], backward[-1]).any():
            return True
    return False


def _layers(search: PathSearch, forward: list[Slots], backward: list[Slots]) -> list[Slots]:
    """The nodes on shortest paths, by their distance from the source."""
    met = forward[-1][are_among(forward[-1], backward[-1])]
    before, after = [met], [met]
    for level in forward[-2::-1]:
        found, _ = search.backwards.gather(before[-1])
        before.append(level[are_among(level, sorted_distinct(found.copy()))])
    for level in backward[-2::-1]:
        found, _ = search.forwards.gather(after[-1])
        after.append(level[are_among(level, sorted_distinct(found.copy()))])
    return [*before[::-1], *after[1:]]


# --- the paths of a query -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PathIds:
    """Reads the ids of the nodes along the paths of a hop."""

    near: AnySpace
    far: AnySpace
    is_near_shared: bool
    """Whether the sources are in the space of references."""
    is_far_shared: bool

    def of(self, nodes: Slots, lengths: Distances) -> pa.Array:
        """The ids of the nodes of some paths."""
        if self.near.serial == self.far.serial:
            found = self.far.strings(nodes)
            return ids_in(found) if self.is_far_shared else found
        begin, _ = _ends_of(lengths)
        is_first = np.zeros(len(nodes), np.bool_)
        is_first[begin] = True
        first, rest = self.near.strings(nodes[is_first]), self.far.strings(nodes[~is_first])
        first = ids_in(first) if self.is_near_shared else first
        rest = ids_in(rest) if self.is_far_shared else rest
        places = np.empty(len(nodes), np.int64)
        places[is_first] = np.arange(len(first))
        places[~is_first] = len(first) + np.arange(len(rest))
        return pa.concat_arrays([first, rest]).take(pa.array(places))


@dataclass(frozen=True, slots=True)
class MeasuredPaths:
    """Paths of which only the length is read."""

    lengths: Distances

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        return int(self.lengths.nbytes)

    def follow(self, numbers: Rows) -> Slots:
        """Never called: no query reads nodes of these paths."""
        raise InternalError("the nodes of a path were not searched")


EdgeIds: TypeAlias = Callable[[Slots, Slots], pa.Array]
FoundPaths: TypeAlias = ShortestPaths | ListedPaths | MeasuredPaths


@dataclass(frozen=True, slots=True)
class PathBatch:
    """Some paths of a hop."""

    found: FoundPaths
    ids: PathIds
    edge_ids: EdgeIds | None = None
    """Returns the ids of the edges between pairs of nodes."""
    costs: npt.NDArray[np.float64] | None = None
    """The costs of the paths, for cheapest paths."""


@dataclass(slots=True)
class PathStore:
    """The paths found by a query; a path variable is bound to the number of a path."""

    _batches: list[PathBatch] = field(default_factory=list)
    _starts: list[int] = field(default_factory=lambda: [0])

    def add(self, batch: PathBatch) -> int:
        """Store some paths; returns the first of their consecutive numbers."""
        start = self._starts[-1]
        self._batches.append(batch)
        self._starts.append(start + len(batch.found.lengths))
        return start

    def lengths(self, numbers: npt.NDArray[np.int32]) -> pa.Array:
        """The number of hops of each path."""
        lengths = np.concatenate(
            [np.zeros(0, np.int32), *(batch.found.lengths for batch in self._batches)]
        )
        found = np.zeros(len(numbers), np.int64)
        found[numbers >= 0] = lengths[numbers[numbers >= 0]]
        return pa.array(found, mask=numbers < 0)

    def nodes(self, numbers: npt.NDArray[np.int32]) -> pa.Array:
        """The ids along each path, both ends included."""
        return self._lists(
            numbers, lambda batch, at, nodes: batch.ids.of(nodes, batch.found.lengths[at])
        )

    def passes(
        self, numbers: npt.NDArray[np.int32], slots: Slots, space: AnySpace
    ) -> npt.NDArray[np.bool_] | None:
        """Whether each path passes a node of a space; None where only ids can decide."""
        known = np.flatnonzero(numbers >= 0)
        if not len(known):
            return np.zeros(len(numbers), np.bool_)
        some = sorted_distinct(numbers[known])
        place = int(np.searchsorted(self._starts, some[0], side="right")) - 1
        batch, start = self._batches[place], self._starts[place]
        ids = batch.ids
        is_one_space = ids.near.serial == ids.far.serial == space.serial
        if some[-1] >= self._starts[place + 1] or not is_one_space or ids.is_near_shared:
            return None
        local = some - start
        lengths = batch.found.lengths[local].astype(np.int64)
        nodes = batch.found.follow(local)
        along = sorted_distinct((np.repeat(some, lengths + 1).astype(np.int64) << 32) | nodes)
        # An unbound node is `ABSENT`, which is on no path.
        wanted = (numbers.astype(np.int64) << 32) | (slots.astype(np.int64) & LOW)
        return are_among(wanted, along)

    def edges(self, numbers: npt.NDArray[np.int32]) -> pa.Array:
        """The ids of the edges along each path."""

        def ids(batch: PathBatch, at: Rows, nodes: Slots) -> pa.Array:
            assert batch.edge_ids is not None
            first, last = _ends_of(batch.found.lengths[at])
            ends = np.ones(len(nodes), np.bool_)
            ends[last] = False
            starts = np.ones(len(nodes), np.bool_)
            starts[first] = False
            return batch.edge_ids(nodes[ends], nodes[starts])

        return self._lists(numbers, ids, fewer=1)

    def costs(self, numbers: npt.NDArray[np.int32]) -> pa.Array:
        """The sum of the weights of each path."""
        costs = np.concatenate(
            [
                np.full(len(batch.found.lengths), np.nan) if batch.costs is None else batch.costs
                for batch in self._batches
            ]
            or [np.zeros(0)]
        )
        found = np.zeros(len(numbers))
        found[numbers >= 0] = costs[numbers[numbers >= 0]]
        return pa.array(found, mask=numbers < 0)

    def _lists(
        self,
        numbers: npt.NDArray[np.int32],
        values: Callable[[PathBatch, Rows, Slots], pa.Array],
        fewer: int = 0,
    ) -> pa.Array:
        """A list per path, with one value per node, less ``fewer``."""
        type = pa.list_(pa.field("item", pa.string()))
        governor = current()
        parts = [pa.array([None], type)]
        places = np.zeros(len(numbers), np.int64)
        held, at = 0, 1
        owners = np.searchsorted(self._starts, numbers, side="right") - 1
        for place, batch in enumerate(self._batches):
            mine = np.flatnonzero(owners == place)
            for start in range(0, len(mine), _PATHS_AT_ONCE):
                rows = mine[start : start + _PATHS_AT_ONCE]
                local = numbers[rows] - self._starts[place]
                counts = batch.found.lengths[local].astype(np.int64) + 1 - fewer
                offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
                found = values(batch, local, batch.found.follow(local))
                parts.append(pa.ListArray.from_arrays(offsets, found).cast(type))
                places[rows] = at + np.arange(len(rows))
                at += len(rows)
                held = governor.hold_instead(held, held + parts[-1].nbytes)
        governor.reserve(held)
        governor.release(held)
        return pa.concat_arrays(parts).take(pa.array(places))
