"""The tables of a snapshot for one query, out of what the engine keeps between queries."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from omnigraph.engines.local.budget import MemoryBudget
from omnigraph.engines.local.edges import CachedEdges, Direction, EdgeTable, FetchedEdges
from omnigraph.engines.local.ids import IdSpace
from omnigraph.engines.local.nodes import CachedNodes, FetchedNodes, NodeTable
from omnigraph.engines.local.rows import RowView, TableRows
from omnigraph.engines.local.settings import TraversalSettings
from omnigraph.model.arrow import ID, SRC
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.snapshot import TableEntry

TypesByColumn = Mapping[str, pa.DataType]

EDGES_ALWAYS_SORTED = 20_000
"""Adjacency of this many edges is built in a few milliseconds: not worth a thought."""

LOOKUP_IN_EDGES_READ = 200
"""One edge looked up costs as much as reading and sorting this many into adjacency."""

LOOKUP_IN_EDGES_SORTED = 2_000
"""The same where another version has most of the edges in memory already."""

NODES_ALWAYS_CACHED = 20_000

_ROW_BYTES = 64
"""What a row costs besides its columns: id, hash, places."""


class GraphMemory:
    """What the engine keeps of one graph: rows by table, slots by node type."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.budget = budget
        self._lock = threading.Lock()
        self._tables: dict[str, TableRows] = {}
        self._spaces: dict[str, IdSpace] = {}
        self.looked_up: dict[str, int] = {}
        """Edges found by lookups so far, by table; when it has cost enough, adjacency is built."""

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

    def account(self, location: str, space: IdSpace) -> None:
        """Tell the budget how large a space has become."""
        self.budget.keep(
            ("space", location), space.nbytes, lambda: self._spaces.pop(location, None)
        )


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

    def edge_count(self, edge_type: str) -> int:
        """How many edges of a type there are."""
        return self.reader.snapshot.table(f"edge:{edge_type}").row_count

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

    def cached_edges(self, edge_type: str, source_type: str, target_type: str) -> CachedEdges:
        """The edges of a type, with their ends in memory."""
        view = self._view(self._entry("edge", edge_type))
        return CachedEdges(view, self.space(source_type), self.space(target_type))

    def fetched_edges(self, edge_type: str, source_type: str, target_type: str) -> FetchedEdges:
        """The edges of a type, looked up when needed."""
        known = self._fetched_edges.get(edge_type)
        if known is None:
            known = self._fetched_edges[edge_type] = FetchedEdges(
                self.reader,
                f"edge:{edge_type}",
                self.space(source_type),
                self.space(target_type),
                self.edge_columns.get(edge_type, {}),
            )
        return known

    def edges(
        self,
        edge_type: str,
        source_type: str,
        target_type: str,
        direction: Direction,
        frontier: int,
        hops: int,
    ) -> EdgeTable:
        """The edges for one hop, by the cheaper way."""
        if self._by_lookup(edge_type, source_type, target_type, direction, frontier, hops):
            return self.fetched_edges(edge_type, source_type, target_type)
        return self.cached_edges(edge_type, source_type, target_type)

    def _by_lookup(
        self,
        edge_type: str,
        source_type: str,
        target_type: str,
        direction: Direction,
        frontier: int,
        hops: int,
    ) -> bool:
        settings = self.settings
        if settings.mode != "auto":
            return settings.mode == "indexed"
        entry = self._entry("edge", edge_type)
        edges = entry.row_count
        if edges <= EDGES_ALWAYS_SORTED:
            return False
        view = self.memory.rows(entry.location).known(entry.ref, entry.version)
        if view is not None:
            cached = CachedEdges(view, self.space(source_type), self.space(target_type))
            if cached.has_adjacency(direction):
                return False
        if 16 * edges > self.memory.budget.limit:
            return True
        if frontier > settings.indexed_frontier_max or hops > settings.indexed_hops_max:
            return False
        degree = edges / max(self.node_count(source_type), 1)
        expected = sum(frontier * degree**hop for hop in range(1, hops + 1))
        spent = self.memory.looked_up.get(entry.location, 0) + expected
        sources = self.space(source_type if direction != "in" else target_type)
        warm = self.memory.rows(entry.location).has_column((SRC, sources.serial))
        if spent * (LOOKUP_IN_EDGES_SORTED if warm else LOOKUP_IN_EDGES_READ) > edges:
            return False
        self.memory.looked_up[entry.location] = int(spent)
        return True

    def _choose_nodes(self, type_name: str, whole: bool) -> NodeTable:
        entry = self._entry("node", type_name)
        columns = self.node_columns.get(type_name, {})
        space = self.space(type_name)
        warm = self.memory.rows(entry.location).has_column((ID, space.serial))
        size = entry.row_count * (_ROW_BYTES + sum(_width(t) for t in columns.values()))
        fits = size <= self.memory.budget.limit
        if fits and (warm or whole or entry.row_count <= NODES_ALWAYS_CACHED):
            nodes = CachedNodes(self._view(entry), space)
            if not warm:
                self.memory.account(entry.location, space)
            return nodes
        return FetchedNodes(self.reader, entry.table_key, space, columns)

    def _entry(self, kind: str, type_name: str) -> TableEntry:
        return self.reader.snapshot.table(f"{kind}:{type_name}")

    def _view(self, entry: TableEntry) -> RowView:
        rows = self.memory.rows(entry.location)
        known = rows.known(entry.ref, entry.version)
        if known is None:
            handle = self.reader.handle(entry.table_key)
            known = rows.view(entry.ref, entry.version, handle)
        return known


def _width(type: pa.DataType) -> int:
    """Bytes a value takes, about."""
    if pa.types.is_fixed_size_list(type):
        return 4 * int(type.list_size)
    if pa.types.is_list(type):
        return 64
    return 40 if pa.types.is_string(type) else 8
