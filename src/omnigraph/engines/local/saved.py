"""Adjacency that `optimize` saves, and that a process takes over instead of sorting all edges.

What was saved is that of a version in the past, and a later one goes on from there as it does from
a version in memory: its own edges are applied to it. Nodes are numbered by where their ids come
first in their tables. Those are their slots where a process reads these tables first; elsewhere
the edges are sorted again, by number.

What is damaged or does not fit is counted and not used: then the tables are read.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from omnigraph.engines.local.adjacency import Adjacency, EdgeOrder
from omnigraph.engines.local.edges import CHANGED_SHARE_MAX
from omnigraph.engines.local.ids import Slots
from omnigraph.engines.local.nodes import EDITS_MAX, CachedNodes
from omnigraph.engines.local.rows import RowView, Sized
from omnigraph.storage.saved_adjacency import (
    AdjacencyFiles,
    SavedRows,
    SavedSide,
    SavedState,
    UnusableAdjacency,
    decode_column,
    decode_numbers,
)

LOGGER = logging.getLogger(__name__)

Way = Literal["out", "in"]
Outcome = Literal["used", "none", "stale", "damaged"]

NodesAt = Callable[[str], CachedNodes | None]
"""The nodes whose table is at a location; None if the snapshot has none there."""


# --- taking over ----------------------------------------------------------------------------------


@dataclass(slots=True)
class SavedCounts:
    """How often a process looked for saved adjacency, and what came of it."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Count one look."""
        self.outcomes[outcome] += 1


@dataclass(frozen=True, slots=True)
class _Taken:
    """What was saved, as a version of the table in memory."""

    state: SavedState
    view: RowView
    near: Slots
    far: Slots
    """By number: the slots of the nodes at the ends."""
    side: SavedSide
    has_loops: bool

    @property
    def are_numbers(self) -> bool:
        """Whether the slots are the numbers themselves."""
        return all(
            np.array_equal(slots, np.arange(len(slots), dtype=np.int32))
            for slots in (self.near, self.far)
        )


@dataclass(frozen=True, slots=True)
class SavedColumns:
    """Columns of all edges in a saved order."""

    files: AdjacencyFiles
    state: SavedState
    side: SavedSide
    counts: SavedCounts

    def column(self, view: RowView, property: str, type: pa.DataType) -> pa.Array | None:
        """A property in this order, read for a version; None if it is not saved, or damaged."""
        stored = view.stored_columns.name(property)
        name = None if stored is None else self.side.values.get(stored)
        if name is None or view.columns != self.state.columns:
            return None
        try:
            (content,) = self.files.arrays([name])
            return decode_column(content, type, self.state.live)
        except UnusableAdjacency as error:
            _report(self.files, error, self.counts)
            return None


@dataclass(slots=True)
class SavedEdges:
    """What `optimize` saved of the edges of one type."""

    open: Callable[[], AdjacencyFiles]
    nodes_at: NodesAt
    counts: SavedCounts

    def restore(
        self, view: RowView, direction: Way, key: tuple[Any, ...], *, loops: bool, ordered: bool
    ) -> None:
        """Keep the adjacency under ``key`` with the version that it was made of.

        With ``ordered``, the order of the edges as well. ``loops`` tells whether edges may lead
        from a node to itself. Where nothing can be used, nothing is kept.
        """
        files = self.open()
        try:
            state = files.state()
            if state is None:
                self.counts.add("none")
                return
            taken = self._taken(files, state, view, direction)
            if taken is None:
                self.counts.add("stale")
                return
            taken = replace(taken, has_loops=taken.has_loops and loops)
            known = taken.view.made.get(key) if taken.are_numbers else None
            made = _read(files, taken, known, ordered=ordered or not taken.are_numbers)
        except UnusableAdjacency as error:
            _report(files, error, self.counts)
            return
        adjacency = made if isinstance(made, Adjacency) else made.adjacency
        assert isinstance(adjacency, Adjacency)
        taken.view.keep(key, lambda: adjacency)
        if isinstance(made, EdgeOrder):
            columns = SavedColumns(files, state, state.sides[direction], self.counts)
            order = replace(made, saved=columns) if taken.are_numbers else made
            taken.view.keep(("order", *key), lambda: order)
        self.counts.add("used")

    def _taken(
        self, files: AdjacencyFiles, state: SavedState, view: RowView, direction: Way
    ) -> _Taken | None:
        """What was saved, if it belongs to a version that this one goes on from."""
        if not state.edges.begin(view.fragments, 1):
            return None
        deleted = {}
        if any(state.deleted):
            (content,) = files.arrays([state.offsets])
            offsets = decode_numbers(content, 8, sum(state.deleted), max(state.edges.rows))
            ends = np.cumsum(state.deleted).tolist()
            for fragment, end, count in zip(view.fragments, ends, state.deleted, strict=False):
                if count:
                    deleted[fragment.files] = offsets[end - count : end]
        earlier = view.beginning(f"saved {state.offsets}", len(state.edges.files), deleted)
        if changes(view, earlier) * CHANGED_SHARE_MAX > earlier.count:
            return None
        if changes(view, earlier) > EDITS_MAX:
            return None
        sources, targets = self._slots(state.sources), self._slots(state.targets)
        if sources is None or targets is None:
            return None
        near, far = (sources, targets) if direction == "out" else (targets, sources)
        side = state.sides[direction]
        return _Taken(state, earlier, near, far, side, side.has_loops)

    def _slots(self, saved: Sequence[SavedRows]) -> Slots | None:
        """The slots of the numbers of some nodes."""
        parts = [np.zeros(0, np.int32)]
        for rows in saved:
            nodes = self.nodes_at(rows.location)
            if nodes is None or not rows.begin(nodes.view.fragments, 1):
                return None
            found = in_order_of_ids(nodes.slots[: rows.size])
            if len(found) != rows.ids:
                return None
            parts.append(found)
        return np.concatenate(parts)


def _read(
    files: AdjacencyFiles, taken: _Taken, known: Sized | None, *, ordered: bool
) -> Adjacency | EdgeOrder:
    """The saved adjacency, and with ``ordered`` the order of the edges, with slots.

    ``known`` is the adjacency, if it was taken over before.
    """
    state, side = taken.state, taken.side
    names = [] if isinstance(known, Adjacency) else [side.pointers, side.neighbours]
    contents = files.arrays([*names, *([side.positions] if ordered else [])])
    if isinstance(known, Adjacency):
        adjacency = known
    else:
        pointers = decode_numbers(contents[0], 8, len(taken.near) + 1, state.live + 1)
        neighbours = decode_numbers(contents[1], 4, state.live, len(taken.far))
        if pointers[0] != 0 or pointers[-1] != state.live or (pointers[1:] < pointers[:-1]).any():
            raise UnusableAdjacency("the ranges of its nodes do not follow each other")
        adjacency = Adjacency(pointers, neighbours, side.has_parallels, taken.has_loops)
    if not ordered:
        return adjacency
    positions = decode_numbers(contents[-1], 4, state.live, state.edges.size)
    if taken.are_numbers:
        return EdgeOrder(adjacency, positions, positions[:0])
    # The ends of every edge by its position, with the slots of this process.
    near = np.empty(state.edges.size, np.int32)
    far = np.empty(state.edges.size, np.int32)
    near[positions] = np.repeat(taken.near, np.diff(adjacency.pointers))
    far[positions] = taken.far[adjacency.neighbours]
    live = taken.view.positions()
    if len(live) != state.live:
        raise UnusableAdjacency("it has another number of edges than its table")
    order = EdgeOrder.with_adjacency(
        (near[live], far[live]), live, int(taken.near.max(initial=-1)) + 1
    )
    made = order.adjacency
    assert isinstance(made, Adjacency)
    return replace(order, adjacency=replace(made, has_loops=taken.has_loops))


def in_order_of_ids(slots: Slots) -> Slots:
    """The slots of some rows of nodes, each once, in the order in which they come first."""
    if not len(slots) or (np.diff(slots) > 0).all():
        return slots
    _, first = np.unique(slots, return_index=True)
    return slots[np.sort(first)]


def changes(view: RowView, earlier: RowView) -> int:
    """How many rows differ between two versions."""
    added, removed = view.changed_since(earlier)
    return len(added) + len(removed)


def _report(files: AdjacencyFiles, error: Exception, counts: SavedCounts) -> None:
    LOGGER.warning(
        "saved adjacency is not used: %s; `omnigraph optimize` writes it anew (%s)",
        error,
        files.folder,
    )
    counts.add("damaged")
