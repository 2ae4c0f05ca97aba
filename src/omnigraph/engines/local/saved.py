"""Adjacency that `optimize` saves, so that a process need not sort all edges.

The saved adjacency is of an earlier version. The edges that changed since are applied to it, as for
an earlier version in memory. Nodes are numbered by where their ids first occur in their tables.
These numbers are the slots of a process that reads these tables first; in other processes the edges
are sorted again, by number.

Damaged or unusable files are counted and skipped: then the tables are read.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from omnigraph.engines.local.adjacency import Adjacency
from omnigraph.engines.local.edge_order import EdgeOrder
from omnigraph.engines.local.edges import CHANGED_SHARE_MAX
from omnigraph.engines.local.ids import Slots
from omnigraph.engines.local.memory import MemoryBudget, Sized
from omnigraph.engines.local.nodes import EDITS_MAX, CachedNodes
from omnigraph.engines.local.rows import RowView, taken
from omnigraph.model.arrow import arrow_type
from omnigraph.model.ids import TableKey
from omnigraph.model.records import dataclass
from omnigraph.query.compile import interface_nodes, referenced_types
from omnigraph.schema.catalog import Catalog, EdgeType
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.saved_adjacency import (
    AdjacencyFiles,
    SavedRows,
    SavedSide,
    SavedState,
    UnusableAdjacency,
    decode_column,
    decode_numbers,
    encode_column,
    encode_numbers,
    is_worth_saving,
)

LOGGER = logging.getLogger(__name__)

Way = Literal["out", "in"]
Outcome = Literal["used", "none", "stale", "damaged"]

NodesAt = Callable[[str], CachedNodes | None]
"""The nodes whose table is at a location; None if the snapshot has none there."""


# --- taking over ----------------------------------------------------------------------------------


@dataclass(slots=True)
class SavedCounts:
    """How often a process looked for saved adjacency, by outcome."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)

    def add(self, outcome: Outcome) -> None:
        """Count one lookup."""
        self.outcomes[outcome] += 1


@dataclass(frozen=True, slots=True)
class _RestoredState:
    """A saved adjacency, with the version of the table that it belongs to."""

    state: SavedState
    view: RowView
    near: Slots
    far: Slots
    """The slot of each node number, for the far and the near ends."""
    side: SavedSide
    has_loops: bool

    @property
    def are_numbers(self) -> bool:
        """Whether every slot equals its number."""
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
        """A property in this order, for a version; None if it is not saved, or damaged."""
        stored = view.stored_columns.name(property)
        name = None if stored is None else self.side.values.get(stored)
        if name is None or view.columns != self.state.columns:
            return None
        try:
            (content,) = self.files.arrays([name])
            return decode_column(content, type, self.state.live)
        except UnusableAdjacency as error:
            _report(self.files, error)
            self.counts.add("damaged")
            return None


@dataclass(slots=True)
class SavedEdges:
    """The saved adjacency of the edges of one type."""

    open: Callable[[], AdjacencyFiles]
    nodes_at: NodesAt
    counts: SavedCounts

    def restore(
        self, view: RowView, direction: Way, key: tuple[Any, ...], *, loops: bool, ordered: bool
    ) -> None:
        """Restore the adjacency and cache it under ``key`` with the version it was made of.

        With ``ordered``, the order of the edges too. ``loops`` tells whether edges may lead from a
        node to itself. Caches nothing if the saved files cannot be used.
        """
        files = self.open()
        if files.folder in view.unusable:
            return
        outcome = self._restore(files, view, direction, key, loops=loops, ordered=ordered)
        self.counts.add(outcome)
        if outcome != "used":
            view.unusable.add(files.folder)

    def _restore(
        self,
        files: AdjacencyFiles,
        view: RowView,
        direction: Way,
        key: tuple[Any, ...],
        *,
        loops: bool,
        ordered: bool,
    ) -> Outcome:
        try:
            state = files.state()
            if state is None:
                return "none"
            taken = self._taken(files, state, view, direction)
            if taken is None:
                return "stale"
            taken = replace(taken, has_loops=taken.has_loops and loops)
            known = taken.view.made.get(key) if taken.are_numbers else None
            made = _read(files, taken, known, ordered=ordered or not taken.are_numbers)
        except UnusableAdjacency as error:
            _report(files, error)
            return "damaged"
        adjacency = made if isinstance(made, Adjacency) else made.adjacency
        assert isinstance(adjacency, Adjacency)
        taken.view.keep(key, lambda: adjacency)
        if isinstance(made, EdgeOrder):
            columns = SavedColumns(files, state, state.sides[direction], self.counts)
            order = replace(made, saved=columns) if taken.are_numbers else made
            taken.view.keep(("order", *key), lambda: order)
        return "used"

    def _taken(
        self, files: AdjacencyFiles, state: SavedState, view: RowView, direction: Way
    ) -> _RestoredState | None:
        """The saved adjacency, if it belongs to a version that this one follows."""
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
        return _RestoredState(state, earlier, near, far, side, side.has_loops)

    def _slots(self, saved: Sequence[SavedRows]) -> Slots | None:
        """The slots of numbered nodes; None if their tables do not match."""
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
    files: AdjacencyFiles, taken: _RestoredState, known: Sized | None, *, ordered: bool
) -> Adjacency | EdgeOrder:
    """The saved adjacency, or with ``ordered`` the order of the edges, as slots.

    ``known`` is the adjacency if it was restored before.
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
    # The ends of every edge by position, as slots of this process.
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
    """The distinct slots of some rows of nodes, in the order of their first occurrence."""
    if not len(slots) or (np.diff(slots) > 0).all():
        return slots
    _, first = np.unique(slots, return_index=True)
    return slots[np.sort(first)]


def changes(view: RowView, earlier: RowView) -> int:
    """How many rows differ between two versions."""
    added, removed = view.changed_since(earlier)
    return len(added) + len(removed)


def _report(files: AdjacencyFiles, error: Exception) -> None:
    LOGGER.warning(
        "saved adjacency is not used: %s; `omnigraph optimize` writes it anew (%s)",
        error,
        files.folder,
    )


# --- saving --------------------------------------------------------------------------------------

_EDGE_BYTES = 16
"""Bytes per edge: both ends as slots, and its entries in two sorted directions."""

_FRESH_SHARE = 2
"""Adjacency is saved anew once one in this many of the allowed changes has happened."""


def save_adjacency(reader: SnapshotReader, catalog: Catalog, memory_limit: int) -> list[str]:
    """Save the adjacency of the large edge types of a snapshot; returns the types written.

    A saved adjacency is kept while few edges have changed. Tables that do not fit ``memory_limit``
    are skipped, because no process would read them whole either.
    """
    written = []
    for edge in catalog.edges.values():
        entry = reader.snapshot.table(edge.table_key)
        fits = entry.row_count * _EDGE_BYTES <= memory_limit
        if fits and is_worth_saving(entry.row_count):
            saving = _Saving(reader, catalog, edge, memory_limit)
            if not saving.is_fresh() and saving.save():
                written.append(str(edge.table_key))
    return written


class _Saving:
    """Saves one edge type. It uses an engine memory of its own, so that slots equal numbers."""

    def __init__(
        self, reader: SnapshotReader, catalog: Catalog, edge: EdgeType, memory_limit: int
    ) -> None:
        self._edge = edge
        self._reader = reader
        self._ends = (edge.source, edge.target)
        # Imported late: `tables` imports this module.
        from omnigraph.engines.local.tables import (
            GraphMemory,
            SnapshotTables,
            TraversalSettings,
        )

        interfaces = interface_nodes(self._ends, catalog)
        self._tables = SnapshotTables(
            GraphMemory(MemoryBudget(memory_limit)),
            reader,
            TraversalSettings(),
            {},
            {},
            {each.name: each.types for each in interfaces},
            dict(referenced_types(interfaces, catalog)),
            takes_saved=False,
        )
        self._files = reader.saved_adjacency(edge.table_key)
        self._edges = self._tables.cached_edges(edge.name, *self._ends)
        self._members = [[node.name for node in catalog.node_types(end)] for end in self._ends]

    def is_fresh(self) -> bool:
        """Whether the saved files are complete, and few edges have changed since."""
        try:
            state = self._files.state()
        except UnusableAdjacency:
            return False
        view = self._edges.view
        if state is None or state.columns != view.columns:
            return False
        if not state.edges.begin(view.fragments, 1):
            return False
        tail = sum(fragment.rows for fragment in view.fragments[len(state.edges.files) :])
        gone = sum(map(len, view.deleted.values())) - sum(state.deleted)
        changed = _FRESH_SHARE * (tail + abs(gone))
        if changed > EDITS_MAX or changed * CHANGED_SHARE_MAX > state.live:
            return False
        for rows in {*state.sources, *state.targets}:
            nodes = self._tables.nodes_at(rows.location)
            if nodes is None or not rows.begin(nodes.view.fragments, 1):
                return False
        return self._files.problem() is None

    def save(self) -> bool:
        """Write the arrays, then the state; False if an edge leads to a missing node."""
        sources, targets = self._numbered()
        spaces = [self._tables.space(end) for end in self._ends]
        sizes = [len(space) for space in spaces]
        sides = {"out": self._side("out"), "in": self._side("in")}
        if [len(space) for space in spaces] != sizes:
            return False
        view = self._edges.view
        deleted = [view.deleted.get(each.files, np.zeros(0, np.int64)) for each in view.fragments]
        location = self._reader.snapshot.table(self._edge.table_key).location
        offsets = np.concatenate([np.zeros(0, np.int64), *deleted])
        self._files.publish(
            SavedState(
                SavedRows.of(location, view.fragments, 1),
                view.columns,
                tuple(map(len, deleted)),
                self._files.write(encode_numbers(offsets)),
                sources,
                targets,
                sides,
            )
        )
        return True

    def _numbered(self) -> tuple[tuple[SavedRows, ...], tuple[SavedRows, ...]]:
        """The nodes at both ends, read in this order so that slots equal numbers."""
        rows = {}
        for name in dict.fromkeys([*self._members[0], *self._members[1]]):
            nodes = self._tables.cached_nodes(name)
            location = self._reader.snapshot.table(TableKey.node(name)).location
            ids = len(in_order_of_ids(nodes.slots))
            rows[name] = SavedRows.of(location, nodes.view.fragments, 1, ids)
        source, target = (self._tables.space(end) for end in self._ends)
        if source.serial == target.serial:
            return tuple(rows.values()), tuple(rows.values())
        return tuple(rows[n] for n in self._members[0]), tuple(rows[n] for n in self._members[1])

    def _side(self, direction: Literal["out", "in"]) -> SavedSide:
        order = self._edges.order(direction)
        adjacency, view = order.adjacency, self._edges.view
        assert isinstance(adjacency, Adjacency)
        values = {}
        for name, type in self._columns().items():
            column = taken(view.column(name, type), order.positions)
            values[name] = self._files.write(encode_column(column))
        return SavedSide(
            adjacency.has_parallels,
            adjacency.has_loops,
            self._files.write(encode_numbers(adjacency.pointers)),
            self._files.write(encode_numbers(adjacency.neighbours)),
            self._files.write(encode_numbers(order.positions)),
            values,
        )

    def _columns(self) -> dict[str, pa.DataType]:
        """The properties whose values are saved: numbers, dates and booleans."""
        types = {name: arrow_type(each.type) for name, each in self._edge.properties.items()}
        return {name: type for name, type in types.items() if _has_one_width(type)}


def _has_one_width(type: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(type))
