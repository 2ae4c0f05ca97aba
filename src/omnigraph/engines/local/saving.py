"""Saving the adjacency of large edge types, which `optimize` does after its commit."""

from __future__ import annotations

from typing import Literal

import numpy as np
import pyarrow as pa

from omnigraph.engines.local.adjacency import Adjacency
from omnigraph.engines.local.edges import CHANGED_SHARE_MAX
from omnigraph.engines.local.nodes import EDITS_MAX
from omnigraph.engines.local.rows import MemoryBudget, taken
from omnigraph.engines.local.saved import in_order_of_ids
from omnigraph.engines.local.tables import (
    EDGE_BYTES,
    GraphMemory,
    SnapshotTables,
    TraversalSettings,
)
from omnigraph.model.arrow import arrow_type
from omnigraph.query.compile import interface_nodes, referenced_types
from omnigraph.schema.catalog import Catalog, EdgeType
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.saved_adjacency import (
    SavedRows,
    SavedSide,
    SavedState,
    UnusableAdjacency,
    encode_column,
    encode_numbers,
    is_worth_saving,
)

_FRESH_SHARE = 2
"""What is saved is made anew when this times as many changes would make it useless."""


def save_adjacency(reader: SnapshotReader, catalog: Catalog, memory_limit: int) -> list[str]:
    """Save the adjacency of the large edge types of a snapshot; returns those that were written.

    What is saved already stays while few edges differ from it. A table that does not fit
    ``memory_limit`` is left out, because a process would not read it whole either.
    """
    written = []
    for edge in catalog.edges.values():
        entry = reader.snapshot.table(edge.table_key)
        fits = entry.row_count * EDGE_BYTES <= memory_limit
        if fits and is_worth_saving(entry.row_count):
            saving = _Saving(reader, catalog, edge, memory_limit)
            if not saving.is_fresh() and saving.save():
                written.append(str(edge.table_key))
    return written


class _Saving:
    """One edge type. It reads with an engine's memory of its own, so that slots are numbers."""

    def __init__(
        self, reader: SnapshotReader, catalog: Catalog, edge: EdgeType, memory_limit: int
    ) -> None:
        self._edge = edge
        self._reader = reader
        self._ends = (edge.source, edge.target)
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
        """Whether what is saved is whole, and few edges have changed since."""
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
        """Write arrays, then the state; False if an edge leads to a node that is not there."""
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
        """The nodes at both ends, whose slots become their numbers by being read in this order."""
        rows = {}
        for name in dict.fromkeys([*self._members[0], *self._members[1]]):
            nodes = self._tables.cached_nodes(name)
            location = self._reader.snapshot.table(f"node:{name}").location
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
        """The properties whose values are saved: numbers, dates and truth values."""
        types = {name: arrow_type(each.type) for name, each in self._edge.properties.items()}
        return {name: type for name, type in types.items() if _has_one_width(type)}


def _has_one_width(type: pa.DataType) -> bool:
    return bool(pa.types.is_primitive(type))
