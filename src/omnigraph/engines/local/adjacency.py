"""Sorted adjacency of the edges of a type (compressed sparse rows), and edits of it.

The neighbours of a node are contiguous and ascending, so sets, membership and merges are cheap.
Parallel edges are kept; a flag tells whether there are any, so that graphs without them skip the
deduplication.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from omnigraph.engines.local.ids import Slots
from omnigraph.engines.local.sorting import (
    BLOCK_ROWS,
    Counts,
    are_in_order,
    distinct_of_sorted,
    hashed,
    high_half,
    is_run,
    low_half,
    lower_bounds,
    pointers_of,
    shrunk_to_low_half,
    sorted_distinct,
    sorted_pairs,
    spread,
    spread_values,
)
from omnigraph.model.governor import current
from omnigraph.model.records import dataclass

Value = TypeVar("Value", bound=np.generic)
_MANY_PAIRS = 8
"""From this many times more pairs than edges, edges are looked up among the pairs instead."""

_FEW_PAIRS = 65_536
_HASHED_SHARE = 4
"""More pairs than `_FEW_PAIRS` and than one for this many edges are looked up together."""

_DEGREES_SHARE = 8
"""If one in this many nodes is asked for, the degrees of all nodes are computed and kept."""

_FEW_LOOKED_UP = 1_024
_TABLE_SHARE = 32
"""The table of truth values of `_looked_up` has at most this many entries per pair."""

_HASH_SLOTS = 4
"""Slots of the hash table per edge, at least; a slot is a byte."""

Ends: TypeAlias = tuple[Slots, Slots]
"""The sources and the targets of some edges."""

_Search: TypeAlias = Callable[[Slots, Slots], npt.NDArray[np.bool_]]
"""For each pair of nodes, whether there is an edge between them."""


@dataclass(frozen=True, slots=True)
class Adjacency:
    """The neighbours of every node along one edge type in one direction."""

    pointers: npt.NDArray[np.int64]
    neighbours: Slots
    has_parallels: bool
    has_loops: bool
    _made: dict[str, npt.NDArray[Any]] = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Memory it takes."""
        return int(self.pointers.nbytes + self.neighbours.nbytes)

    @classmethod
    def build(cls, sources: Slots, targets: Slots, nodes: int) -> Adjacency:
        """Build from the two ends of every edge."""
        keys = sorted_pairs(sources, targets)
        parallels = bool(len(keys)) and bool((keys[1:] == keys[:-1]).any())
        loops = bool((sources == targets).any())
        return cls(pointers_of(keys, nodes), shrunk_to_low_half(keys), parallels, loops)

    @classmethod
    def undirected(cls, sources: Slots, targets: Slots, nodes: int) -> Adjacency:
        """Both directions as one; a pair linked several times or both ways is kept once."""
        keys = sorted_pairs(np.concatenate([sources, targets]), np.concatenate([targets, sources]))
        keys = distinct_of_sorted(keys)
        loops = bool((sources == targets).any())
        return cls(pointers_of(keys, nodes), shrunk_to_low_half(keys), False, loops)

    def without_parallels(self) -> Adjacency:
        """A copy in which parallel edges are one."""
        degrees = np.diff(self.pointers)
        owners = np.repeat(np.arange(len(degrees)), degrees)
        first = np.ones(len(owners), np.bool_)
        first[1:] = (self.neighbours[1:] != self.neighbours[:-1]) | (owners[1:] != owners[:-1])
        pointers = np.zeros(len(self.pointers), np.int64)
        np.cumsum(np.bincount(owners[first], minlength=len(degrees)), out=pointers[1:])
        return Adjacency(pointers, self.neighbours[first], False, self.has_loops)

    def between_types(self) -> Adjacency:
        """A copy for ends of different types, where equal slots are no self-loops."""
        return replace(self, has_loops=False)

    def gather(self, slots: Slots) -> tuple[Slots, Counts]:
        """All neighbours of each slot, one after the other, and how many each has."""
        return self._gathered(self.neighbours, slots)

    def gather_values(self, values: npt.NDArray[Value], slots: Slots) -> npt.NDArray[Value]:
        """Values of the edges that `gather` returns, out of ``values`` of all edges."""
        return self._gathered(values, slots)[0]

    def _gathered(
        self, values: npt.NDArray[Value], slots: Slots
    ) -> tuple[npt.NDArray[Value], Counts]:
        begin, counts = self._ranges(slots)
        if len(slots) == 1:
            start = int(begin[0])
            return values[start : start + int(counts[0])], counts
        if is_run(slots):
            start = int(begin[0])
            return values[start : int(begin[-1]) + int(counts[-1])], counts
        return spread_values(values, begin, counts), counts

    def degrees(self, slots: Slots) -> Counts:
        """How many neighbours each slot has, parallel ones included."""
        nodes = len(self.pointers) - 1
        if not len(slots) or int(slots.max()) >= nodes:
            return self._ranges(slots)[1]
        if is_run(slots):
            return self._degrees()[int(slots[0]) : int(slots[-1]) + 1]
        if len(slots) * _DEGREES_SHARE < nodes and "degrees" not in self._made:
            return self._ranges(slots)[1]
        return self._degrees().take(slots)

    def _degrees(self) -> Counts:
        """How many neighbours every slot has."""
        known = self._made.get("degrees")
        if known is None:
            known = np.diff(self.pointers)
            known.setflags(write=False)
            self._made["degrees"] = known
        return known

    @property
    def is_functional(self) -> bool:
        """Whether no node has more than one neighbour, parallel ones counted."""
        known = self._made.get("functional")
        if known is None:
            count = np.count_nonzero(self._linked())
            known = self._made["functional"] = np.array([len(self.neighbours) == count])
        return bool(known[0])

    def contains(self, sources: Slots, targets: Slots) -> npt.NDArray[np.bool_]:
        """For each pair, whether there is an edge."""
        if not len(self.neighbours):
            return np.zeros(len(sources), np.bool_)
        if len(sources) and self.is_functional:
            is_only: npt.NDArray[np.bool_] = self._only().take(sources, mode="clip") == targets
            return is_only
        if len(sources) > _MANY_PAIRS * len(self.neighbours):
            found = self._search_edges(sources, targets)
            if found is not None:
                return found
        there = self._looked_up(sources, targets) if len(sources) <= BLOCK_ROWS else None
        if there is not None:
            return there
        search: _Search = self._contains
        if len(sources) > _FEW_PAIRS and len(sources) * _HASHED_SHARE > len(self.neighbours):
            search = self._many_search(sources, targets)
        if len(sources) > BLOCK_ROWS:
            current().reserve(len(sources))
            found = np.empty(len(sources), np.bool_)
            for start in range(0, len(sources), BLOCK_ROWS):
                stop = start + BLOCK_ROWS
                found[start:stop] = search(sources[start:stop], targets[start:stop])
            return found
        return search(sources, targets)

    def _many_search(self, sources: Slots, targets: Slots) -> _Search:
        """A search for many pairs, for which one pass over all edges pays.

        Sorted pairs are merged with the edges. Others are filtered by a hash table first, and only
        those that pass it are searched for.
        """
        current().reserve(24 * len(self.neighbours))
        owners = np.repeat(np.arange(len(self.pointers) - 1), np.diff(self.pointers))
        edges = (owners << 32) | self.neighbours
        if are_in_order(sources, targets):

            def merged(sources: Slots, targets: Slots) -> npt.NDArray[np.bool_]:
                current().check()
                keys = (sources.astype(np.int64) << 32) | targets
                at = np.searchsorted(edges, keys)
                found: npt.NDArray[np.bool_] = edges.take(at, mode="clip") == keys
                return found

            return merged
        bits = (_HASH_SLOTS * len(edges)).bit_length()
        is_there = np.zeros(1 << bits, np.bool_)
        for start in range(0, len(edges), BLOCK_ROWS):
            current().check()
            is_there[hashed(edges[start : start + BLOCK_ROWS], bits)] = True

        def filtered(sources: Slots, targets: Slots) -> npt.NDArray[np.bool_]:
            keys = (sources.astype(np.int64) << 32) | targets
            maybe = np.flatnonzero(is_there.take(hashed(keys, bits)))
            found = np.zeros(len(sources), np.bool_)
            found[maybe] = self._contains(sources[maybe], targets[maybe])
            return found

        return filtered

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

    def _search_edges(self, sources: Slots, targets: Slots) -> npt.NDArray[np.bool_] | None:
        """Search the edges among the pairs, for many more pairs; None for unsorted pairs."""
        current().reserve(3 * len(sources))
        if not are_in_order(sources, targets):
            return None
        starts = sources[1:] != sources[:-1]
        # Treat the pairs of each source that has edges as an adjacency to search in.
        firsts = np.append(0, np.flatnonzero(starts) + 1)
        ends = np.append(firsts[1:], len(sources))
        owners = sources[firsts]
        degrees = np.diff(self.pointers)
        owned = np.flatnonzero(degrees.take(owners, mode="clip") * (owners < len(degrees)))
        counts = degrees[owners[owned]]
        wanted = spread_values(self.neighbours, self.pointers[owners[owned]], counts)
        low = lower_bounds(
            targets, np.repeat(firsts[owned], counts), np.repeat(ends[owned], counts), wanted
        )
        high = lower_bounds(targets, low, np.repeat(ends[owned], counts), wanted + 1)
        begin, counts = low, high - low
        found = np.zeros(len(sources), np.bool_)
        found[spread(begin, counts)] = True
        return found

    def all_neighbours(self, test: Callable[[Slots], npt.NDArray[np.bool_] | None]) -> bool:
        """Whether ``test`` holds for every neighbour; it returns None for "all of them"."""
        found = test(self.neighbours)
        return found is None or bool(found.all())

    def changed(self, added: Ends, removed: Ends, nodes: int) -> Adjacency:
        """The adjacency after edges were added and others, which it has to contain, removed.

        Costs little more than a copy, because nothing is sorted again.
        """
        pointers = np.full(nodes + 1, self.pointers[-1])
        pointers[: len(self.pointers)] = self.pointers
        after = replace(self, pointers=pointers, _made={})
        if len(removed[0]):
            keys = sorted_pairs(*removed)
            sources, targets = high_half(keys), low_half(keys)
            places, _ = after._places(sources, targets)
            # Parallel edges are equal entries: the n-th to remove takes the n-th of them.
            starts = np.searchsorted(keys, keys)
            kept = np.ones(len(after.neighbours), np.bool_)
            kept[places + np.arange(len(keys)) - starts] = False
            pointers[1:] -= np.cumsum(np.bincount(sources, minlength=nodes))
            after = replace(after, neighbours=after.neighbours[kept], _made={})
        if len(added[0]):
            keys = sorted_pairs(*added)
            sources, targets = high_half(keys), low_half(keys)
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
        """Where each target is, or would be inserted, in its source's neighbours; and their end."""
        begin, counts = self._ranges(sources)
        ends = begin + counts
        return lower_bounds(self.neighbours, begin, ends, targets), ends

    def _looked_up(self, sources: Slots, targets: Slots) -> npt.NDArray[np.bool_] | None:
        """For each pair, whether there is an edge, by a table of the edges of these sources.

        None if the table would be much larger than the number of pairs, or has more edges.
        """
        if len(sources) < _FEW_LOOKED_UP or int(sources.min()) < 0 or int(targets.min()) < 0:
            return None
        is_source = np.zeros(int(sources.max()) + 1, np.bool_)
        is_source[sources] = True
        distinct = np.flatnonzero(is_source).astype(np.int32)
        width = int(targets.max()) + 1
        counts = self._ranges(distinct)[1]
        room = _TABLE_SHARE * len(sources)
        if len(distinct) * width > room or int(counts.sum()) > room:
            return None
        current().reserve(len(distinct) * width + 16 * (int(counts.sum()) + len(sources)))
        places = np.zeros(len(is_source), np.int64)
        places[distinct] = np.arange(0, len(distinct) * width, width)
        there = np.zeros(len(distinct) * width, np.bool_)
        found = self.gather(distinct)[0]
        owners = np.repeat(places[distinct], counts)
        within = found < width
        there[(owners + found) if within.all() else (owners + found)[within]] = True
        wanted = places.take(sources)
        wanted += targets
        return there.take(wanted)

    def ranges_between(self, sources: Slots, targets: Slots) -> tuple[Counts, Counts]:
        """For each pair, where the edges from its source to its target begin, and their number."""
        there = self._looked_up(sources, targets)
        if there is not None:
            some = np.flatnonzero(there)
            begin, counts = np.zeros(len(sources), np.int64), np.zeros(len(sources), np.int64)
            begin[some], counts[some] = self._ranges_between(sources[some], targets[some])
            return begin, counts
        return self._ranges_between(sources, targets)

    def _ranges_between(self, sources: Slots, targets: Slots) -> tuple[Counts, Counts]:
        begin, ends = self._places(sources, targets)
        if not self.has_parallels:
            counts = (begin < ends).astype(np.int64)
            inside = np.flatnonzero(counts)
            counts[inside] = self.neighbours[begin[inside]] == targets[inside]
            return begin, counts
        return begin, lower_bounds(self.neighbours, begin, ends, targets + 1) - begin

    def _linked(self) -> npt.NDArray[np.bool_]:
        """Which slots have neighbours; one more entry than there are slots."""
        known = self._made.get("linked")
        if known is None:
            known = self._made["linked"] = np.append(np.diff(self.pointers) > 0, False)
        return known

    def _only(self) -> Slots:
        """The one neighbour of each slot, or -1; one more entry than there are slots."""
        known = self._made.get("only")
        if known is None:
            known = np.full(len(self.pointers), -1, np.int32)
            known[self._linked()] = self.neighbours
            self._made["only"] = known
        return known

    def _ranges(self, slots: Slots) -> tuple[Counts, Counts]:
        """Where the neighbours of each slot begin, and how many there are.

        Slots assigned after this was built have none.
        """
        nodes = len(self.pointers) - 1
        if len(slots) and int(slots.max()) >= nodes:
            known = np.minimum(slots, nodes)
            begin = self.pointers[known]
            return begin, self.pointers[np.minimum(known + 1, nodes)] - begin
        if is_run(slots):
            start, stop = int(slots[0]), int(slots[-1]) + 1
            begin = self.pointers[start:stop]
            return begin, self.pointers[start + 1 : stop + 1] - begin
        begin = self.pointers.take(slots)
        return begin, self.pointers.take(slots + 1) - begin


# --- few changed nodes ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EditedAdjacency:
    """The adjacency of an earlier version, and new neighbours of the nodes that changed since.

    Building it costs as much as reading the neighbours of the changed nodes; reading it costs
    little more than reading the earlier version.
    """

    base: Adjacency
    slots: Slots
    """The nodes whose neighbours differ, ascending."""
    lists: Adjacency
    """Their neighbours in this version; node ``i`` here is ``slots[i]``."""
    has_parallels: bool
    has_loops: bool

    @property
    def nbytes(self) -> int:
        """Memory without that of `parts`."""
        return int(self.slots.nbytes) + self.lists.nbytes

    @property
    def parts(self) -> tuple[Adjacency, ...]:
        """The memory shared with other versions."""
        return (self.base,)

    @classmethod
    def of(cls, before: SortedEdges, added: Ends, removed: Ends) -> EditedAdjacency | None:
        """The adjacency after edges were added and removed; None if one to remove is missing."""
        if not before.contains(*removed).all():
            return None
        slots = sorted_distinct(np.concatenate([added[0], removed[0], _edited_slots(before)]))
        lists = _lists_of(before, slots)
        removed = np.searchsorted(slots, removed[0]).astype(np.int32), removed[1]
        places = np.searchsorted(slots, added[0]).astype(np.int32)
        lists = lists.changed((places, added[1]), removed, len(slots))
        loops = before.has_loops or bool((added[0] == added[1]).any())
        return cls(
            base_of(before), slots, lists, before.has_parallels or lists.has_parallels, loops
        )

    @classmethod
    def undirected(
        cls, before: SortedEdges, slots: Slots, ways: Sequence[SortedEdges]
    ) -> EditedAdjacency:
        """The undirected adjacency after the edges of ``slots`` changed, from both directions."""
        slots = sorted_distinct(np.concatenate([slots, _edited_slots(before)]))
        places = np.arange(len(slots), dtype=np.int32)
        gathered = [way.gather(slots) for way in ways]
        owners = np.concatenate([np.repeat(places, counts) for _, counts in gathered])
        keys = distinct_of_sorted(
            sorted_pairs(owners, np.concatenate([found for found, _ in gathered]))
        )
        lists = Adjacency(pointers_of(keys, len(slots)), low_half(keys), False, False)
        loops = before.has_loops or bool((slots[high_half(keys)] == lists.neighbours).any())
        return cls(base_of(before), slots, lists, before.has_parallels, loops)

    def between_types(self) -> EditedAdjacency:
        """A copy for ends of different types, where equal slots are no self-loops."""
        return replace(self, has_loops=False)

    def gather(self, slots: Slots) -> tuple[Slots, Counts]:
        """All neighbours of each slot, one after the other, and how many each has."""
        return self._gathered(self.base.neighbours, self.lists.neighbours, slots)

    def gather_values(
        self, values: npt.NDArray[Value], own: npt.NDArray[Value], slots: Slots
    ) -> npt.NDArray[Value]:
        """The values of the edges that `gather` returns.

        ``values`` are in the order of the edges of the base, ``own`` in that of ``lists``.
        """
        return self._gathered(values, own, slots)[0]

    def _gathered(
        self, values: npt.NDArray[Value], own: npt.NDArray[Value], slots: Slots
    ) -> tuple[npt.NDArray[Value], Counts]:
        if is_run(slots):
            return self._gathered_run(values, own, slots), self.degrees(slots)
        places, is_edited = self.edited_among(slots)
        if not is_edited.any():
            return self.base._gathered(values, slots)
        begin, counts = self.base._ranges(slots)
        begin, counts = begin.copy(), counts.copy()
        own_begin, own_counts = self.lists._ranges(places[is_edited])
        # The base has outdated edges of the edited nodes.
        counts[is_edited] = 0
        found = spread_values(values, begin, counts)
        ends = np.cumsum(counts)[is_edited]
        counts[is_edited] = own_counts
        found = np.insert(found, np.repeat(ends, own_counts), own[spread(own_begin, own_counts)])
        return found, counts

    def _gathered_run(
        self, values: npt.NDArray[Value], own: npt.NDArray[Value], slots: Slots
    ) -> npt.NDArray[Value]:
        """The values of consecutive slots: ranges of the base, with the edited nodes in between."""
        start, stop = int(slots[0]), int(slots[-1]) + 1
        known = len(self.base.pointers) - 1
        begin, end = self.base.pointers[[min(start, known), min(stop, known)]].tolist()
        first, last = np.searchsorted(self.slots, [start, stop]).tolist()
        if first == last:
            return values[begin:end]
        ranges = self.lists.pointers[first : last + 1]
        edited = own[int(ranges[0]) : int(ranges[-1])]
        return np.concatenate(
            spliced(
                self.base,
                values,
                self.slots[first:last],
                edited,
                np.diff(ranges),
                within=(begin, end),
            )
        )

    def degrees(self, slots: Slots) -> Counts:
        """How many neighbours each slot has, parallel ones included."""
        places, is_edited = self.edited_among(slots)
        counts = self.base.degrees(slots)
        if is_edited.any():
            counts = counts.copy()
            counts[is_edited] = self.lists.degrees(places[is_edited])
        return counts

    @property
    def is_functional(self) -> bool:
        """Whether no node has more than one neighbour, parallel ones counted."""
        return self.base.is_functional and self.lists.is_functional

    def contains(self, sources: Slots, targets: Slots) -> npt.NDArray[np.bool_]:
        """For each pair, whether there is an edge."""
        places, is_edited = self.edited_among(sources)
        found = self.base.contains(sources, targets)
        if is_edited.any():
            found[is_edited] = self.lists.contains(places[is_edited], targets[is_edited])
        return found

    def all_neighbours(self, test: Callable[[Slots], npt.NDArray[np.bool_] | None]) -> bool:
        """Whether ``test`` holds for every neighbour; it returns None for "all of them"."""
        found = test(self.base.neighbours)
        if found is not None and not found.all():
            # A neighbour that fails may be one that only an outdated list of the base has.
            found[spread(*self.base._ranges(self.slots))] = True
            if not found.all():
                return False
        return self.lists.all_neighbours(test)

    def compacted(self, nodes: int) -> Adjacency:
        """One adjacency with the same edges; costs little more than a copy."""
        nodes = max(nodes, len(self.base.pointers) - 1)
        grown = np.zeros(nodes + 1, np.int64)
        own = np.diff(self.lists.pointers)
        grown[self.slots + 1] = own - self.base.degrees(self.slots)
        np.cumsum(grown, out=grown)
        known = len(self.base.pointers)
        grown[:known] += self.base.pointers
        grown[known:] += self.base.pointers[-1]
        neighbours, _ = self.gather(np.arange(nodes, dtype=np.int32))
        return Adjacency(grown, neighbours, self.has_parallels, self.has_loops)

    def edited_among(self, slots: Slots) -> tuple[Slots, npt.NDArray[np.bool_]]:
        """The index of each slot among the edited ones, and whether it is edited."""
        if not len(self.slots):
            return slots, np.zeros(len(slots), np.bool_)
        places = np.searchsorted(self.slots, slots).astype(np.int32)
        return places, self.slots.take(places, mode="clip") == slots


SortedEdges: TypeAlias = Adjacency | EditedAdjacency
"""Both classes have the same methods for reading."""


class Sliceable(Protocol):
    """An Arrow array or a numpy array."""

    def __getitem__(self, part: slice, /) -> Any: ...


def spliced(
    base: Adjacency,
    values: Sliceable,
    slots: Slots,
    own: Sliceable,
    counts: Counts,
    *,
    within: tuple[int, int | None] = (0, None),
) -> list[Any]:
    """Values in the order of an adjacency, in parts, with the values of some nodes replaced.

    ``slots`` are the replaced nodes, ascending; ``own`` has their values, ``counts`` how many each
    has.
    """
    known = len(base.pointers) - 1
    begin = base.pointers.take(np.minimum(slots, known)).tolist()
    ends = base.pointers.take(np.minimum(slots + 1, known)).tolist()
    parts = []
    at, used = within[0], 0
    for start, end, count in zip(begin, ends, counts.tolist(), strict=True):
        parts += [values[at:start], own[used : used + count]]
        at = end
        used += count
    return [*parts, values[at : within[1]]]


def base_of(edges: SortedEdges) -> Adjacency:
    """The base of an edited adjacency; any other is returned as it is."""
    return edges.base if isinstance(edges, EditedAdjacency) else edges


def _edited_slots(before: SortedEdges) -> Slots:
    return before.slots if isinstance(before, EditedAdjacency) else np.zeros(0, np.int32)


def _lists_of(before: SortedEdges, slots: Slots) -> Adjacency:
    """The neighbours of some nodes as an adjacency whose node ``i`` is ``slots[i]``."""
    found, counts = before.gather(slots)
    pointers = np.zeros(len(slots) + 1, np.int64)
    np.cumsum(counts, out=pointers[1:])
    return Adjacency(pointers, found, before.has_parallels, False)
