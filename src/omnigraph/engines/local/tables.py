"""The tables of a snapshot for one query, out of what the engine keeps between queries."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from omnigraph.engines.local.budget import MemoryBudget
from omnigraph.engines.local.edges import CachedEdges, EdgeTable, FetchedEdges
from omnigraph.engines.local.ids import IdSpace
from omnigraph.engines.local.nodes import CachedNodes, FetchedNodes, NodeTable
from omnigraph.engines.local.rows import RowView, TableRows
from omnigraph.engines.local.settings import TraversalSettings
from omnigraph.engines.local.warming import Warming
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.upkeep import IndexSpec
from omnigraph.query import plan
from omnigraph.storage.indexes import indexes_of
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.snapshot import TableEntry

TypesByColumn = Mapping[str, pa.DataType]

EDGES_ALWAYS_SORTED = 20_000
"""Adjacency of this many edges is built in a few milliseconds: not worth a thought."""

ROWS_READ_PER_LOOKUP = 5_000
"""One request to an index costs as much as reading so many rows into memory."""

ROWS_READ_PER_ROW_FOUND = 200
"""And each row it finds as much as so many."""

WARMING_SHARE = 8
"""When lookups have cost this part of reading a table, it is read beside the queries."""

SORTING_SHARE = 40
"""Where another version has most edges in memory, sorting in the others is so much cheaper."""

NODES_ALWAYS_CACHED = 20_000

_SCANNED_MAX = 1_024

_EDGE_BYTES = 16
"""Both ends of an edge as slots, and its place in two sorted directions."""

_ROW_BYTES = 64
"""What a row costs besides its columns: id, hash, places."""


class GraphMemory:
    """What the engine keeps of one graph: rows by table, slots by node type."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.budget = budget
        self._lock = threading.Lock()
        self._tables: dict[str, TableRows] = {}
        self._spaces: dict[str, IdSpace] = {}
        self.warming = Warming()
        self.scanned: dict[tuple[str, str | None, int, str], int] = {}
        """Rows of a version that no index on a column covers."""
        self._spent: dict[str, float] = {}

    def rows(self, location: str) -> TableRows:
        """The versions of a table that are known."""
        known = self._tables.get(location)
        if known is None:
            with self._lock:
                known = self._tables.setdefault(location, TableRows(self.budget))
        return known

    def space(self, location: str) -> IdSpace:
        """The slots of a node type."""
        known = self._spaces.get(location)
        if known is None:
            with self._lock:
                known = self._spaces.setdefault(location, IdSpace())
        return known

    def spend(self, location: str, requests: int, rows: float) -> None:
        """Note what lookups in a table have cost, in rows that could have been read instead."""
        cost = requests * ROWS_READ_PER_LOOKUP + rows * ROWS_READ_PER_ROW_FOUND
        self._spent[location] = self.spent(location) + cost

    def spent(self, location: str) -> float:
        """What lookups in a table have cost so far.

        Once that is what reading the whole table costs, it is read: so a series of queries never
        pays more than twice what the better choice, made from the start, would have cost.
        """
        return self._spent.get(location, 0.0)

    def settle(self, location: str) -> None:
        """A table was read: from here on, lookups have to pay for the next time."""
        self._spent.pop(location, None)

    def account(self, location: str, space: IdSpace) -> None:
        """Tell the budget how large a space has become."""
        key = ("space", location, space.serial)
        if not self.budget.resize(key, space.nbytes):
            self.budget.keep(key, space.nbytes, lambda: self._forget(location, space))

    def _forget(self, location: str, space: IdSpace) -> None:
        if self._spaces.get(location) is space:
            del self._spaces[location]


@dataclass(slots=True)
class SnapshotTables:
    """Node and edge tables of one snapshot, each decided once per query."""

    memory: GraphMemory
    reader: SnapshotReader
    settings: TraversalSettings
    node_columns: Mapping[str, TypesByColumn]
    """What the query reads of each node type; rows are fetched with all of it at once."""
    edge_columns: Mapping[str, TypesByColumn]
    _nodes: dict[str, NodeTable] = field(default_factory=dict)
    _spaces: dict[str, IdSpace] = field(default_factory=dict)
    _fetched_edges: dict[str, FetchedEdges] = field(default_factory=dict)

    def node_count(self, type_name: str) -> int:
        """How many nodes of a type there are."""
        return self.reader.snapshot.table(f"node:{type_name}").row_count

    def has_in_memory(self, type_name: str) -> bool:
        """Whether the nodes of a type are, or about to be, looked at in memory."""
        if type_name in self._nodes:
            return isinstance(self._nodes[type_name], CachedNodes)
        entry = self._entry("node", type_name)
        if entry.row_count <= NODES_ALWAYS_CACHED and self._fits(entry, {}):
            return True
        rows = self.memory.rows(entry.location)
        return rows.has_column((ID, self.space(type_name).serial))

    def nodes(self, type_name: str, *, whole: bool = False) -> NodeTable:
        """The nodes of a type; with ``whole`` all of them are about to be looked at."""
        known = self._nodes.get(type_name)
        if known is None:
            known = self._nodes[type_name] = self._choose_nodes(type_name, whole)
        return known

    def cached_nodes(self, type_name: str) -> CachedNodes:
        """The nodes of a type in memory, whether or not that is more than the budget likes."""
        entry = self._entry("node", type_name)
        nodes = CachedNodes(self._view(entry), self.space(type_name))
        self._nodes[type_name] = nodes
        return nodes

    def space(self, type_name: str) -> IdSpace:
        """The slots of a node type, the same ones during the whole query."""
        known = self._spaces.get(type_name)
        if known is None:
            location = self._entry("node", type_name).location
            known = self._spaces[type_name] = self.memory.space(location)
        return known

    def edges(self, step: plan.Expand, frontier: int) -> EdgeTable:
        """The edges for a hop from so many nodes, by the cheaper way."""
        ends = (
            (step.target_type, step.source_type)
            if step.direction == "in"
            else (step.source_type, step.target_type)
        )
        sources, targets = self.space(ends[0]), self.space(ends[1])
        if not self._by_lookup(step, sources, targets, frontier):
            entry = self._entry("edge", step.edge_type)
            edges = CachedEdges(self._view(entry), sources, targets)
            if not edges.is_sorted(step.direction):
                self.memory.settle(entry.location)
            return edges
        known = self._fetched_edges.get(step.edge_type)
        if known is None:
            known = self._fetched_edges[step.edge_type] = FetchedEdges(
                self.reader,
                f"edge:{step.edge_type}",
                sources,
                targets,
                self.edge_columns.get(step.edge_type, {}),
            )
        return known

    def _by_lookup(
        self, step: plan.Expand, sources: IdSpace, targets: IdSpace, frontier: int
    ) -> bool:
        """Whether edges are looked up in storage instead of sorted into adjacency."""
        settings = self.settings
        if settings.mode != "auto":
            return settings.mode == "indexed"
        entry = self._entry("edge", step.edge_type)
        edges = entry.row_count
        if edges <= EDGES_ALWAYS_SORTED:
            return False
        rows = self.memory.rows(entry.location)
        view = rows.known(entry.ref, entry.version, self.reader.columns(entry.table_key))
        if view is not None and CachedEdges(view, sources, targets).is_sorted(step.direction):
            return False
        if edges * _EDGE_BYTES > self.memory.budget.limit:
            return True
        hops = step.maximum
        if frontier > settings.indexed_frontier_max or hops > settings.indexed_hops_max:
            return False
        degree = edges / max(self.node_count(step.source_type), 1)
        expected = sum(frontier * degree**hop for hop in range(1, hops + 1))
        by = {"out": (SRC,), "in": (DST,), "both": (SRC, DST)}[step.direction]
        scanned = sum(self._scanned_by_lookup(entry, column) for column in by)
        price = hops * (ROWS_READ_PER_LOOKUP + scanned) + expected * ROWS_READ_PER_ROW_FOUND
        warm = rows.has_column((SRC, sources.serial))
        budget = edges / SORTING_SHARE if warm else edges
        spent = self.memory.spent(entry.location) + price
        if spent > budget:
            return False
        self.memory.spend(entry.location, hops, expected)
        if spent * WARMING_SHARE > budget:
            self._warm_edges(step, entry, CachedEdges(self._view(entry), sources, targets))
        return True

    def _warm_edges(self, step: plan.Expand, entry: TableEntry, edges: CachedEdges) -> None:
        key = (entry.location, entry.ref, entry.version, step.direction)
        ends = {step.source_type, step.target_type}
        nodes = [self._entry("node", type_name) for type_name in ends]

        def warm() -> None:
            for one in nodes:
                CachedNodes(self._view(one), self.space(one.type_name))
            edges.adjacency(step.direction)
            self.memory.settle(entry.location)

        self.memory.warming.ask(key, warm)

    def _choose_nodes(self, type_name: str, whole: bool) -> NodeTable:
        entry = self._entry("node", type_name)
        columns = self.node_columns.get(type_name, {})
        space = self.space(type_name)
        warm = self.memory.rows(entry.location).has_column((ID, space.serial))
        if warm or self._worth_caching(entry, columns, whole):
            nodes = CachedNodes(self._view(entry), space)
            if not warm:
                self.memory.account(entry.location, space)
                self.memory.settle(entry.location)
            return nodes
        spent = self.memory.spent(entry.location)
        if spent * WARMING_SHARE > entry.row_count and self._fits(entry, columns):
            key = (entry.location, entry.ref, entry.version)
            self.memory.warming.ask(key, lambda: CachedNodes(self._view(entry), space))
        spend = partial(self.memory.spend, entry.location, 1)
        return FetchedNodes(self.reader, entry.table_key, space, columns, spend)

    def _worth_caching(self, entry: TableEntry, columns: TypesByColumn, whole: bool) -> bool:
        """Whether a table that is not in memory yet should be: wanted, and not too large."""
        small = entry.row_count <= NODES_ALWAYS_CACHED
        paid = self.memory.spent(entry.location) > entry.row_count
        wanted = whole or small or paid or 2 * self._scanned_by_lookup(entry, ID) > entry.row_count
        return wanted and self._fits(entry, columns)

    def _scanned_by_lookup(self, entry: TableEntry, column: str) -> int:
        """The rows a lookup by a column reads one by one, since no index covers them."""
        key = (entry.location, entry.ref, entry.version, column)
        known = self.memory.scanned.get(key)
        if known is None:
            covered = [
                index.rows_covered
                for index in indexes_of(self.reader.handle(entry.table_key))
                if index.spec == IndexSpec(column, "btree")
            ]
            if len(self.memory.scanned) > _SCANNED_MAX:
                self.memory.scanned.clear()
            known = self.memory.scanned[key] = entry.row_count - max(covered, default=0)
        return known

    def _fits(self, entry: TableEntry, columns: TypesByColumn) -> bool:
        """Whether the rows of a table, with some columns, are within the budget."""
        size = entry.row_count * (_ROW_BYTES + sum(map(_width, columns.values())))
        return size <= self.memory.budget.limit

    def _entry(self, kind: str, type_name: str) -> TableEntry:
        return self.reader.snapshot.table(f"{kind}:{type_name}")

    def _view(self, entry: TableEntry) -> RowView:
        rows = self.memory.rows(entry.location)
        columns = self.reader.columns(entry.table_key)
        known = rows.known(entry.ref, entry.version, columns)
        if known is None:
            handle = self.reader.handle(entry.table_key)
            known = rows.view(entry.ref, entry.version, handle, columns)
        known.note_use(self.memory.budget)
        return known


def _width(type: pa.DataType) -> int:
    """Bytes a value takes, about."""
    if pa.types.is_fixed_size_list(type):
        return 4 * int(type.list_size)
    if pa.types.is_list(type):
        return 64
    return 40 if pa.types.is_string(type) else 8
