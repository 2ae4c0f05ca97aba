"""Edges as sorted arrays: who is next to whom, by slot.

`Adjacency` is a compressed sparse row matrix without weights. Neighbours of a node lie together and
ascend, so sets, membership and merges are cheap. Parallel edges stay: whether there are any is
known, so that the usual graph pays nothing for them.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from omnigraph.engines.local.ids import Slots
from omnigraph.engines.local.rows import Positions
from omnigraph.errors import InputError

Key = TypeVar("Key", bound=np.generic)
_CHUNK = 1 << 21
_MANY_PAIRS = 8
"""So many times more pairs than edges, and it is the edges that are looked up."""

Ends: TypeAlias = tuple[Slots, Slots]
"""The sources and the targets of some edges."""

Keys: TypeAlias = npt.NDArray[np.int64]
Counts: TypeAlias = npt.NDArray[np.int64]

ROWS_MAX = 250_000_000
"""Rows a step may make; each takes four bytes and more for every variable still read."""


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
        keys = np.concatenate([_packed(sources, targets), _packed(targets, sources)])
        keys = sorted_distinct(keys)
        loops = bool((sources == targets).any())
        return cls(_pointers(keys, nodes), _shrunk_to_low_half(keys), False, loops)

    def between_types(self) -> Adjacency:
        """The same where the two ends are of different types: equal slots are no loops."""
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
        return self.neighbours.take(spread(begin, counts)), counts

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
        found = np.zeros(len(sources), np.bool_)
        # Few nodes have an edge of a rare type; the others are told apart by one byte each.
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
        """Many pairs and few edges: look for the edges among the pairs, if those are in order."""
        starts = sources[1:] != sources[:-1]
        in_order = (sources[1:] >= sources[:-1]).all()
        if not in_order or not (starts | (targets[1:] >= targets[:-1])).all():
            return None
        # The pairs of each source that has edges, as one more adjacency to search in.
        firsts = np.append(0, np.flatnonzero(starts) + 1)
        ends = np.append(firsts[1:], len(sources))
        owners = sources[firsts]
        degrees = np.diff(self.pointers)
        owned = np.flatnonzero(degrees.take(owners, mode="clip") * (owners < len(degrees)))
        counts = degrees[owners[owned]]
        wanted = self.neighbours[spread(self.pointers[owners[owned]], counts)]
        low = _lower_bounds(
            targets, np.repeat(firsts[owned], counts), np.repeat(ends[owned], counts), wanted
        )
        high = _lower_bounds(targets, low, np.repeat(ends[owned], counts), wanted + 1)
        begin, counts = low, high - low
        found = np.zeros(len(sources), np.bool_)
        found[spread(begin, counts)] = True
        return found

    def changed(self, added: Ends, removed: Ends, nodes: int) -> Adjacency:
        """The adjacency after some edges came and others, each stored here, went.

        Costs little more than a copy: what is in order stays in order.
        """
        pointers = np.full(nodes + 1, self.pointers[-1])
        pointers[: len(self.pointers)] = self.pointers
        after = replace(self, pointers=pointers, _made={})
        if len(removed[0]):
            keys = _sorted_keys(*removed)
            sources, targets = _high_half(keys), _low_half(keys)
            places, _ = after._places(sources, targets)
            # Of parallel edges each one that goes takes another of the equal entries with it.
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
        return self.edges[spread(begin, counts)], counts


def allow_rows(count: int) -> None:
    """Refuse to hold more rows than a machine can, while it still answers."""
    if count > ROWS_MAX:
        raise InputError(
            f"a step of this query would hold {count:,} rows at once; {ROWS_MAX:,} are allowed",
            hint="bind fewer nodes before it: add a condition, or a smaller bound",
        )


def _lower_bounds(values: Slots, begin: Counts, ends: Counts, wanted: Slots) -> Counts:
    """Where each wanted value is, or would be, in its range of ascending values.

    A binary search for all of them in step, of which fewer and fewer are undecided.
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
    """Whether the slots follow each other without a gap, so that their neighbours lie together."""
    if not len(slots) or int(slots[-1]) - int(slots[0]) != len(slots) - 1:
        return False
    return bool((slots[1:] > slots[:-1]).all())


def spread(begin: Counts, counts: Counts) -> Counts:
    """The indexes of several ranges, one range after the other."""
    before = np.cumsum(counts) - counts
    total = int(counts.sum())
    allow_rows(total)
    return np.repeat(begin - before, counts) + np.arange(total)


def sorted_distinct(keys: npt.NDArray[Key]) -> npt.NDArray[Key]:
    """The distinct keys in order; sorts in place. numpy's own is many times slower on integers."""
    keys.sort()
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
    keys = _packed(high, low)
    keys.sort()
    return keys


def _high_half(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    return (keys >> np.uint64(32)).astype(np.int32)


def _low_half(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    return keys.astype(np.uint32).view(np.int32)


def _shrunk_to_low_half(keys: npt.NDArray[np.uint64]) -> npt.NDArray[np.int32]:
    """The same as `_low_half`, in the memory of the keys, which nobody may use any more."""
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
        # A piece at a time: counting makes a copy twice the size.
        pointers[1:] += np.bincount(owners[start : start + _CHUNK], minlength=nodes)
    return np.cumsum(pointers, out=pointers)
