"""The edges themselves in the order of an adjacency: the position of each in its version.

An adjacency has only ends; what reads a property of edges, or shows them, needs to know which row
is behind each. One sort gives both where near end, far end and place fit into a key of 64 bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from omnigraph.engines.local.adjacency import Adjacency, EditedAdjacency, Ends, SortedEdges
from omnigraph.engines.local.ids import Slots
from omnigraph.engines.local.memory import Sized
from omnigraph.engines.local.rows import Positions
from omnigraph.engines.local.sorting import (
    BLOCK_ROWS,
    CHUNK_ROWS,
    Counts,
    blocks,
    governed_blocks,
    low_half,
    sorted_numbers,
    sorted_pairs,
    spread_values,
)
from omnigraph.model.governor import current
from omnigraph.model.records import dataclass

if TYPE_CHECKING:
    from omnigraph.engines.local.saved import SavedColumns

_PASSES_MAX = 16
"""The largest number of passes over the ends when they are sorted in parts."""


@dataclass(frozen=True, slots=True)
class EdgeOrder:
    """The position of every edge of a version, in the order of its adjacency."""

    adjacency: SortedEdges
    positions: Positions
    """In the order of the adjacency, or of the base of an edited one."""
    own: Positions
    """The positions of the edges of edited nodes; empty unless the adjacency is an edited one."""
    saved: SavedColumns | None = None
    """Saved columns, in the order of ``positions``."""

    @property
    def nbytes(self) -> int:
        """Memory without that of `parts`."""
        return int(self.own.nbytes)

    @property
    def parts(self) -> tuple[Sized, ...]:
        """The memory shared with other versions."""
        return (self.positions, self.adjacency, *getattr(self.adjacency, "parts", ()))

    @classmethod
    def build(cls, adjacency: Adjacency, ends: Ends, positions: Positions) -> EdgeOrder:
        """Build from an adjacency, the ends it was built from, and the positions of its edges.

        The positions are ascending.
        """
        keys = _PackedEdges.of(ends)
        if keys is not None:
            nodes = len(adjacency.pointers) - 1
            return cls(adjacency, keys.ordered(ends, positions, nodes)[1], positions[:0])
        near, far = ends
        # Two stable sorts of 32 bits: by the far end, then by the near end.
        by_far = low_half(sorted_pairs(far, np.arange(len(far), dtype=np.int32)))
        by_near = low_half(sorted_pairs(near[by_far], np.arange(len(far), dtype=np.int32)))
        return cls(adjacency, positions[by_far[by_near]], positions[:0])

    @classmethod
    def with_adjacency(cls, ends: Ends, positions: Positions, nodes: int) -> EdgeOrder:
        """The order together with its adjacency, where possible by one sort for both."""
        keys = _PackedEdges.of(ends)
        if keys is None:
            return cls.build(Adjacency.build(*ends, nodes), ends, positions)
        return cls(*keys.ordered(ends, positions, nodes), positions[:0])

    def at(self, slots: Slots) -> Positions:
        """The edges of each slot, one slot after the other."""
        if isinstance(self.adjacency, Adjacency):
            return self.adjacency.gather_values(self.positions, slots)
        return self.adjacency.gather_values(self.positions, self.own, slots)

    def between(self, sources: Slots, targets: Slots) -> tuple[Positions, Counts]:
        """The edges from the source to the target of each pair, and their number."""
        if isinstance(self.adjacency, Adjacency):
            begin, counts = self.adjacency.ranges_between(sources, targets)
            return spread_values(self.positions, begin, counts), counts
        edited = self.adjacency
        places, is_edited = edited.edited_among(sources)
        begin, counts = edited.base.ranges_between(sources, targets)
        # The base has outdated edges of the edited nodes.
        counts[is_edited] = 0
        found = spread_values(self.positions, begin, counts)
        ends = np.cumsum(counts)[is_edited]
        own_begin, own_counts = edited.lists.ranges_between(places[is_edited], targets[is_edited])
        counts[is_edited] = own_counts
        own = spread_values(self.own, own_begin, own_counts)
        return np.insert(found, np.repeat(ends, own_counts), own), counts

    def edited(
        self, added: tuple[Ends, Positions], removed: tuple[Ends, Positions]
    ) -> EdgeOrder | None:
        """The order after edges were added and removed; None if an edge to remove is missing."""
        edited = EditedAdjacency.of(self.adjacency, added[0], removed[0])
        if edited is None:
            return None
        far, counts = self.adjacency.gather(edited.slots)
        known = self.at(edited.slots)
        left = ~np.isin(known, removed[1])
        places = np.arange(len(edited.slots), dtype=np.int32)
        owners = np.concatenate(
            [np.repeat(places, counts)[left], np.searchsorted(edited.slots, added[0][0])]
        )
        far = np.concatenate([far[left], added[0][1]])
        positions = np.concatenate([known[left], added[1]])
        in_order = np.lexsort((positions, far, owners))
        # Positions and ends were edited independently: they disagree if a position names another
        # edge.
        if not np.array_equal(far[in_order], edited.lists.neighbours):
            return None
        return EdgeOrder(edited, self.positions, positions[in_order], self.saved)

    def compacted(self, adjacency: Adjacency) -> EdgeOrder:
        """The same order for an adjacency with the same edges."""
        every = np.arange(len(adjacency.pointers) - 1, dtype=np.int32)
        return EdgeOrder(adjacency, self.at(every), self.own[:0])


@dataclass(frozen=True, slots=True)
class _PackedEdges:
    """Packs near end, far end and position of an edge into one 64-bit key, where they fit."""

    far_bits: int
    place_bits: int

    @classmethod
    def of(cls, ends: Ends) -> _PackedEdges | None:
        count = len(ends[0])
        if not count:
            return None
        near_bits, far_bits = (int(each.max()).bit_length() for each in ends)
        place_bits = count.bit_length()
        return None if near_bits + far_bits + place_bits > 64 else cls(far_bits, place_bits)

    def ordered(self, ends: Ends, positions: Positions, nodes: int) -> tuple[Adjacency, Positions]:
        """The adjacency of ``nodes`` nodes, and the positions in its order.

        Sorts the edges of some nodes at a time: the keys of all would be half of the memory taken
        here.
        """
        near, far = ends
        counts = np.zeros(nodes, np.int64)
        for start, stop in governed_blocks(len(near)):
            counts += np.bincount(near[start:stop], minlength=nodes)
        pointers = np.zeros(nodes + 1, np.int64)
        np.cumsum(counts, out=pointers[1:])
        found, placed = np.empty(len(far), np.int32), np.empty(len(far), np.int32)
        has_parallels = has_loops = False
        at_once = max(CHUNK_ROWS, len(near) // _PASSES_MAX)
        is_one = len(near) <= 2 * at_once
        for first, stop in [(0, nodes)] if is_one else blocks(counts, at_once):
            keys = self._keys(near, far, first, stop, nodes)
            if len(keys) > 2 * CHUNK_ROWS:
                keys = sorted_numbers(keys)
            else:
                keys.sort()  # faster than the longest step allowed
            start = int(pointers[first])
            for begin in range(0, len(keys), BLOCK_ROWS):
                current().check()
                # Includes the key after the last one, to compare the last one with its successor.
                some = keys[begin : begin + BLOCK_ROWS + 1]
                both = some >> np.uint64(self.place_bits)
                has_parallels = has_parallels or bool((both[1:] == both[:-1]).any())
                some, both = some[:BLOCK_ROWS], both[:BLOCK_ROWS]
                at = slice(start + begin, start + begin + len(some))
                places = some & np.uint64((1 << self.place_bits) - 1)
                placed[at] = positions.take(places.view(np.int64))
                found[at] = both & np.uint64((1 << self.far_bits) - 1)
                both >>= np.uint64(self.far_bits)
                has_loops = has_loops or bool((both == found[at].view(np.uint32)).any())
        return Adjacency(pointers, found, has_parallels, has_loops), placed

    def _keys(
        self, near: Slots, far: Slots, first: int, stop: int, nodes: int
    ) -> npt.NDArray[np.uint64]:
        """The keys of the edges at the nodes from ``first`` to ``stop``."""
        parts = []
        for start, end in governed_blocks(len(near)):
            some, others = near[start:end], far[start:end]
            places = np.arange(start, end, dtype=np.uint64)
            if stop - first < nodes:
                own = np.flatnonzero((some >= first) & (some < stop))
                some, others, places = some.take(own), others.take(own), places[own]
            keys = some.astype(np.uint64) << np.uint64(self.far_bits + self.place_bits)
            keys |= others.astype(np.uint64) << np.uint64(self.place_bits)
            keys |= places
            parts.append(keys)
        return np.concatenate(parts)
