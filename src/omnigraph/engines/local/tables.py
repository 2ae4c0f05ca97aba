"""The tables of a snapshot for one query: cached in memory, or read by index lookups.

`GraphMemory` is what the engine keeps between queries; `SnapshotTables` decides per query and table
which way is cheaper. Both give the same rows.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import field
from functools import cache, partial
from typing import TYPE_CHECKING, Literal, cast, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.base import Execution
from omnigraph.engines.local.edges import CachedEdges, EdgeTable, FetchedEdges, slots_of_ends
from omnigraph.engines.local.ids import AnySpace, IdSpace, TypeIds
from omnigraph.engines.local.memory import MemoryBudget
from omnigraph.engines.local.nodes import (
    CachedNodes,
    FetchedNodes,
    NodeTable,
    TypeTable,
    UnionNodes,
)
from omnigraph.engines.local.order import TableSizes
from omnigraph.engines.local.paths import PathStore
from omnigraph.engines.local.prepared import PreparedRead
from omnigraph.engines.local.rows import Load, Positions, RowView, TableVersions
from omnigraph.engines.local.saved import SavedCounts, SavedEdges
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.governor import Governor, current
from omnigraph.model.ids import EntityKind, TableKey, reference_prefix
from omnigraph.model.records import dataclass
from omnigraph.model.references import ShownEnds, ids_in, type_names_in
from omnigraph.model.result_json import ResultColumns
from omnigraph.model.types import IndexSpec
from omnigraph.query import plan
from omnigraph.query.expressions import NODE_ID, NODE_TYPE
from omnigraph.schema.catalog import TableType
from omnigraph.storage.datasets import Handle
from omnigraph.storage.fragments import FragmentState
from omnigraph.storage.indexes import indexes_of
from omnigraph.storage.manifest import TableEntry
from omnigraph.storage.reader import SnapshotReader
from omnigraph.views import RowGrant, ViewedReader
from omnigraph.views.rows import columns_tested, granted, hiding_ends

if TYPE_CHECKING:
    from omnigraph.engines.local.search import Search


# --- settings -------------------------------------------------------------------------------------


Mode = Literal["auto", "indexed", "csr"]

LOGGER = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TraversalSettings:
    """How hops are executed; every setting gives the same rows."""

    mode: Mode = "auto"
    """`indexed` uses index lookups, `csr` sorted adjacency, `auto` the cheaper of both."""
    indexed_frontier_max: int = 1024
    """`auto` uses adjacency for hops from more nodes than this."""
    indexed_hops_max: int = 6

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> TraversalSettings:
        """The settings of the environment; an invalid value is logged and the default used."""
        mode = environment.get("OMNIGRAPH_TRAVERSAL_MODE", "").strip().lower() or "auto"
        if mode not in get_args(Mode):
            LOGGER.warning(
                "OMNIGRAPH_TRAVERSAL_MODE is %r; it can be %s", mode, ", ".join(get_args(Mode))
            )
            mode = "auto"
        return cls(
            cast(Mode, mode),
            _positive(environment, "OMNIGRAPH_EXPAND_INDEXED_MAX_FRONTIER", 1024),
            _positive(environment, "OMNIGRAPH_EXPAND_INDEXED_MAX_HOPS", 6),
        )


def _positive(environment: Mapping[str, str], name: str, default: int) -> int:
    text = environment.get(name, "").strip()
    if not text:
        return default
    if text.isdigit() and int(text) > 0:
        return int(text)
    LOGGER.warning("%s is %r; it must be a positive number. Using %d.", name, text, default)
    return default


# --- background reads -----------------------------------------------------------------------------


class Warming:
    """Reads tables into memory in a background thread, one at a time.

    The thread ends when the queue is empty. A job that fails is logged: queries continue with index
    lookups and raise the error themselves if they read the same data.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[Hashable, Callable[[], object]] = {}
        self._asked: set[Hashable] = set()
        self._thread: threading.Thread | None = None

    def ask(self, key: Hashable, job: Callable[[], object]) -> None:
        """Queue a job, once per key."""
        if key in self._asked:
            return
        with self._lock:
            if key in self._asked:
                return
            self._asked.add(key)
            self._waiting[key] = job
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="warming", daemon=True)
                self._thread.start()

    def finish(self) -> None:
        """Wait until the queue is empty."""
        thread = self._thread
        if thread is not None:
            thread.join()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                key, job = self._waiting.popitem()
            try:
                job()
            except Exception:  # a query that needs the table raises it
                LOGGER.debug("could not read %s ahead", key, exc_info=True)
                continue  # the key stays in `_asked`: it would fail again
            self._asked.discard(key)


# --- cached tables --------------------------------------------------------------------------------


TypesByColumn = Mapping[str, pa.DataType]

_table_key = cache(TableKey.of)

EDGES_ALWAYS_SORTED = 20_000
"""Up to this many edges, adjacency is built immediately; it takes a few milliseconds."""

ROWS_READ_PER_LOOKUP = 5_000
"""The cost of one index request, as a number of rows read into memory."""

ROWS_READ_PER_ROW_FOUND = 200
"""The cost of each row an index finds, as a number of rows read into memory."""

WARMING_SHARE = 8
"""When lookups have cost this share of reading a table, it is read in the background."""

SORTING_SHARE = 40
"""How much cheaper adjacency is if another version has most of the edges in memory."""

NODES_ALWAYS_CACHED = 20_000

_SCANNED_MAX = 1_024

_EDGE_BYTES = 16
"""Bytes per edge: both ends as slots, and its entries in two sorted directions."""

_ROW_BYTES = 64
"""Bytes per row besides its columns: id, hash, positions."""


class GraphMemory:
    """What the engine keeps of one graph: rows by table, slots by node type."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.budget = budget
        self._lock = threading.Lock()
        self._tables: dict[str, TableVersions] = {}
        self._spaces: dict[str, IdSpace] = {}
        self.warming = Warming()
        self.scanned: dict[tuple[str, str | None, int, str], int] = {}
        """The number of rows not covered by an index, by table version and column."""
        self._spent: dict[str, float] = {}
        self.saved = SavedCounts()

    def rows(self, location: str) -> TableVersions:
        """The cached versions of a table."""
        known = self._tables.get(location)
        if known is None:
            with self._lock:
                known = self._tables.setdefault(
                    location, TableVersions(self.budget, self.warming.ask)
                )
        return known

    def space(self, location: str) -> IdSpace:
        """The slots of a node type."""
        known = self._spaces.get(location)
        if known is None:
            with self._lock:
                known = self._spaces.setdefault(location, IdSpace())
        return known

    def spend(self, location: str, requests: int, rows: float) -> None:
        """Add the cost of lookups in a table, in rows that could have been read instead."""
        cost = requests * ROWS_READ_PER_LOOKUP + rows * ROWS_READ_PER_ROW_FOUND
        self._spent[location] = self.spent(location) + cost

    def spent(self, location: str) -> float:
        """The cost of lookups in a table so far.

        The table is read once this reaches the cost of reading it, so a series of queries never
        costs more than twice the better choice made from the start.
        """
        return self._spent.get(location, 0.0)

    def reset_spent(self, location: str) -> None:
        """Reset the cost of lookups, after the table was read."""
        self._spent.pop(location, None)

    def account(self, location: str, space: IdSpace) -> None:
        """Report the present size of a space to the memory budget."""
        key = ("space", location, space.serial)
        if not self.budget.resize(key, space.nbytes):
            self.budget.keep(key, space.nbytes, lambda: self._forget(location, space))

    def _forget(self, location: str, space: IdSpace) -> None:
        if self._spaces.get(location) is space:
            del self._spaces[location]


@dataclass(slots=True)
class SnapshotTables:
    """The node and edge tables of one snapshot; how each is read is decided once per query."""

    memory: GraphMemory
    reader: SnapshotReader
    settings: TraversalSettings
    node_columns: Mapping[str, TypesByColumn]
    """The columns the query reads of each node type; lookups read all of them at once."""
    edge_columns: Mapping[str, TypesByColumn]
    interfaces: Mapping[str, Sequence[plan.TypeNumber]] = field(default_factory=dict)
    """The node types of the interfaces that the query names."""
    references: Mapping[str, int] = field(default_factory=dict)
    """The node types of those interfaces, with their numbers; they share one space of slots."""
    takes_saved: bool = True
    """Whether adjacency saved beside a table may be used."""
    _shared: IdSpace | None = None
    _nodes: dict[str, TypeTable | UnionNodes] = field(default_factory=dict)
    _spaces: dict[str, AnySpace] = field(default_factory=dict)
    _fetched_edges: dict[str, FetchedEdges] = field(default_factory=dict)

    def node_count(self, type_name: str) -> int:
        """The number of nodes of a type."""
        return sum(self._entry("node", name).row_count for name in self._types_of(type_name))

    def _types_of(self, type_name: str) -> list[str]:
        """The node types of an interface, or the node type itself."""
        members = self.interfaces.get(type_name)
        return [type_name] if members is None else [name for name, _ in members]

    def edge_count(self, type_name: str) -> int:
        """The number of edges of a type."""
        return self._entry("edge", type_name).row_count

    @property
    def sizes(self) -> TableSizes:
        """The table sizes by which the order of steps is chosen."""
        return TableSizes(self.node_count, self.edge_count)

    def has_in_memory(self, type_name: str) -> bool:
        """Whether the nodes of a type are cached, or are going to be."""
        if type_name in self._nodes:
            return isinstance(self._nodes[type_name], CachedNodes)
        entry = self._entry("node", type_name)
        if entry.row_count <= NODES_ALWAYS_CACHED and self._fits(entry, {}):
            return True
        rows = self.memory.rows(entry.location)
        return rows.has_column((ID, self.space(type_name).serial))

    def nodes(self, type_name: str, *, whole: bool = False) -> NodeTable:
        """The nodes of a type; ``whole`` if the caller needs all of them."""
        known = self._nodes.get(type_name)
        if known is None:
            known = self._union(type_name, whole)
            if known is None:
                return self._type_table(type_name, whole)
            self._nodes[type_name] = known
        return known

    def _type_table(self, type_name: str, whole: bool) -> TypeTable:
        """The nodes of a node type."""
        known = self._nodes.get(type_name)
        if known is None:
            known = self._nodes[type_name] = self._choose_nodes(type_name, whole)
        assert not isinstance(known, UnionNodes)
        return known

    def _union(self, type_name: str, whole: bool) -> UnionNodes | None:
        members = self.interfaces.get(type_name)
        if members is None:
            return None
        parts = {name: self._type_table(name, whole) for name, _ in members}
        return UnionNodes(self.reference_space(), parts)

    def cached_nodes(self, type_name: str) -> CachedNodes:
        """The nodes of a type in memory, even if they exceed the budget."""
        entry = self._entry("node", type_name)
        nodes = CachedNodes(self._view(entry), self.space(type_name))
        self._nodes[type_name] = nodes
        return nodes

    def cached_edges(self, type_name: str, source_type: str, target_type: str) -> CachedEdges:
        """The edges of a type in memory, even if they exceed the budget."""
        entry = self._entry("edge", type_name)
        return self._cached_edges(entry, self.space(source_type), self.space(target_type))

    def _cached_edges(self, entry: TableEntry, sources: AnySpace, targets: AnySpace) -> CachedEdges:
        saved = None
        if self.takes_saved and entry.row_count > EDGES_ALWAYS_SORTED:
            files = partial(self.reader.saved_adjacency, entry.table_key)
            saved = SavedEdges(files, self.nodes_at, self.memory.saved)
        return CachedEdges(self._view(entry), sources, targets, saved)

    def nodes_at(self, location: str) -> CachedNodes | None:
        """The nodes of the table at a location, in memory; None without such a table."""
        for entry in self.reader.snapshot.tables.values():
            if entry.location == location:
                return self._cached_nodes(entry, self.space(entry.type_name))
        return None

    def space(self, type_name: str) -> AnySpace:
        """The slots of a node type or an interface; the same space during the whole query.

        The space of an interface contains references instead of ids.
        """
        known = self._spaces.get(type_name)
        if known is None:
            if type_name in self.interfaces:
                known = self.reference_space()
            elif type_name in self.references:
                prefix = reference_prefix(self.references[type_name])
                known = TypeIds(self.reference_space(), prefix)
            else:
                known = self.memory.space(self._entry("node", type_name).location)
            self._spaces[type_name] = known
        return known

    def minimum(self, step: plan.Expand) -> int:
        """The lower bound of a hop; at least 1 if zero steps cannot reach the target type."""
        if (
            step.minimum
            or self.space(step.source_type).serial == self.space(step.target_type).serial
        ):
            return step.minimum
        return 1

    def is_shared(self, type_name: str) -> bool:
        """Whether the nodes of a type or an interface have slots in the space of references."""
        return type_name in self.references or type_name in self.interfaces

    def reference_space(self) -> IdSpace:
        """The space of slots that the types of ``references`` share."""
        if self._shared is None:
            self._shared = self.memory.space(self._shared_location)
        return self._shared

    @property
    def _shared_location(self) -> str:
        return " ".join(self._entry("node", name).location for name in self.references)

    def edges(self, step: plan.Expand, frontier: int) -> EdgeTable:
        """The edges for a hop from ``frontier`` nodes, cached or by lookups."""
        near, far = step.ends or (step.source_type, step.target_type)
        ends = (far, near) if step.direction == "in" else (near, far)
        sources, targets = self.space(ends[0]), self.space(ends[1])
        if not self._by_lookup(step, sources, targets, frontier):
            entry = self._entry("edge", step.edge_type)
            edges = self._cached_edges(entry, sources, targets)
            if not edges.is_sorted(step.direction):
                self.memory.reset_spent(entry.location)
            return edges
        known = self._fetched_edges.get(step.edge_type)
        if known is None:
            known = self._fetched_edges[step.edge_type] = FetchedEdges(
                self.reader,
                _table_key("edge", step.edge_type),
                sources,
                targets,
                self.edge_columns.get(step.edge_type, {}),
            )
        return known

    def _by_lookup(
        self, step: plan.Expand, sources: AnySpace, targets: AnySpace, frontier: int
    ) -> bool:
        """Whether a hop uses index lookups instead of adjacency."""
        settings = self.settings
        if settings.mode != "auto":
            return settings.mode == "indexed"
        entry = self._entry("edge", step.edge_type)
        edges = entry.row_count
        if edges <= EDGES_ALWAYS_SORTED:
            return False
        rows = self.memory.rows(entry.location)
        view = self._known_view(entry)
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
            self._warm_edges(step, entry, sources, targets)
        return True

    def _warm_edges(
        self, step: plan.Expand, entry: TableEntry, sources: AnySpace, targets: AnySpace
    ) -> None:
        key = (self._version_of(entry), step.direction)
        ends = {name for end in step.declared for name in self._types_of(end)}
        nodes = [self._entry("node", type_name) for type_name in ends]

        def warm() -> None:
            for one in nodes:
                CachedNodes(self._view(one), self.space(one.type_name))
            self._cached_edges(entry, sources, targets).adjacency(step.direction)
            self.memory.reset_spent(entry.location)

        self.memory.warming.ask(key, warm)

    def _choose_nodes(self, type_name: str, whole: bool) -> TypeTable:
        entry = self._entry("node", type_name)
        columns = self._columns_of(type_name)
        space = self.space(type_name)
        warm = self.memory.rows(entry.location).has_column((ID, space.serial))
        if warm or self._worth_caching(entry, columns, whole):
            return self._cached_nodes(entry, space)
        spent = self.memory.spent(entry.location)
        if spent * WARMING_SHARE > entry.row_count and self._fits(entry, columns):
            key = self._version_of(entry)
            self.memory.warming.ask(key, lambda: CachedNodes(self._view(entry), space))
        spend = partial(self.memory.spend, entry.location, 1)
        return FetchedNodes(self.reader, entry.table_key, space, columns, spend)

    def _cached_nodes(self, entry: TableEntry, space: AnySpace) -> CachedNodes:
        was_warm = self.memory.rows(entry.location).has_column((ID, space.serial))
        nodes = CachedNodes(self._view(entry), space)
        if not was_warm:
            if isinstance(space, IdSpace):
                self.memory.account(entry.location, space)
            else:
                self.memory.account(self._shared_location, self.reference_space())
            self.memory.reset_spent(entry.location)
        return nodes

    def _columns_of(self, type_name: str) -> TypesByColumn:
        """The stored columns that the query reads of a node type, also through interfaces."""
        own = self.node_columns.get(type_name, {})
        if type_name not in self.references:
            return own
        found = {name: type for name, type in own.items() if name != NODE_TYPE}
        for interface, members in self.interfaces.items():
            if any(name == type_name for name, _ in members):
                columns = self.node_columns.get(interface, {}).items()
                found |= {n: type for n, type in columns if n not in (NODE_TYPE, NODE_ID)}
        return found

    def _worth_caching(self, entry: TableEntry, columns: TypesByColumn, whole: bool) -> bool:
        """Whether to cache a table: whole, small or as dear by lookups; and it fits the budget."""
        small = entry.row_count <= NODES_ALWAYS_CACHED
        paid = self.memory.spent(entry.location) > entry.row_count
        wanted = whole or small or paid or 2 * self._scanned_by_lookup(entry, ID) > entry.row_count
        return wanted and self._fits(entry, columns)

    def _scanned_by_lookup(self, entry: TableEntry, column: str) -> int:
        """The rows that a lookup by a column has to scan, because no index covers them."""
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
        """Whether the rows of a table with some columns fit the budget."""
        size = entry.row_count * (_ROW_BYTES + sum(map(_width, columns.values())))
        return size <= self.memory.budget.limit

    def _entry(self, kind: EntityKind, type_name: str) -> TableEntry:
        return self.reader.snapshot.table(_table_key(kind, type_name))

    def _version_of(self, entry: TableEntry) -> Hashable:
        """A key for the rows of a table that this query reads."""
        return entry.location, entry.ref, entry.version

    def _known_view(self, entry: TableEntry) -> RowView | None:
        """The rows of a table if they are cached."""
        rows = self.memory.rows(entry.location)
        return rows.known(entry.ref, entry.version, self.reader.columns(entry.table_key))

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
    """Approximate bytes of a value."""
    if pa.types.is_fixed_size_list(type):
        return 4 * int(type.list_size)
    if pa.types.is_list(type):
        return 64
    return 40 if pa.types.is_string(type) else 8


# --- what actors see ------------------------------------------------------------------------------


class VisibleTables(SnapshotTables):
    """Tables filtered by a view: hidden rows count as deleted.

    Columns, slots and value indexes are shared with all other actors, since they are by position.
    Data that depends on which rows exist is cached per view and version of a table.
    """

    __slots__ = ()

    @property
    def _viewed(self) -> ViewedReader:
        return cast("ViewedReader", self.reader)

    def _version_of(self, entry: TableEntry) -> Hashable:
        version = self._viewed.restricted_version(entry.table_key)
        return SnapshotTables._version_of(self, entry) if version is None else version

    def _known_view(self, entry: TableEntry) -> RowView | None:
        version = self._viewed.restricted_version(entry.table_key)
        if version is None:
            return SnapshotTables._known_view(self, entry)
        return self.memory.rows(entry.location).known_to(version)

    def _view(self, entry: TableEntry) -> RowView:
        version = self._viewed.restricted_version(entry.table_key)
        if version is None:
            return SnapshotTables._view(self, entry)
        rows = self.memory.rows(entry.location)
        shown = rows.known_to(version)
        if shown is None:
            shown = rows.shown_to(version, partial(self._visible, entry))
        shown.note_use(self.memory.budget)
        return shown

    def _cached_edges(self, entry: TableEntry, sources: AnySpace, targets: AnySpace) -> CachedEdges:
        if not self._viewed.restricts(entry.table_key):
            return SnapshotTables._cached_edges(self, entry, sources, targets)
        # Saved adjacency contains all edges of a table, hidden ones included.
        return CachedEdges(self._view(entry), sources, targets)

    def _visible(self, entry: TableEntry) -> RowView:
        """The visible rows of a table, as a version with fewer rows."""
        view, key = self._viewed.view, entry.table_key
        whole = SnapshotTables._view(self, entry)
        type, grants = view.types[key].type, view.conditions(key)
        shown = np.ones(whole.layout.size, np.bool_)
        if grants is not None:
            known = whole.derived(("granted", view.key), _granted(whole, type, grants))
            shown &= known.astype(np.bool_)
        declared = {SRC: getattr(type, "source", ""), DST: getattr(type, "target", "")}
        for end in hiding_ends(view, key):
            space = self.space(declared[end])
            slots = whole.derived((end, space.serial), slots_of_ends(space, end))
            present = self._in_memory(declared[end]).present(slots)
            if present is not None:
                shown &= present
        return whole.without(np.flatnonzero(~shown), view.key)

    def _in_memory(self, type_name: str) -> NodeTable:
        """The nodes of a type or an interface in memory, even if they exceed the budget."""
        parts = {
            name: CachedNodes(self._view(self._entry("node", name)), self.space(name))
            for name in self._types_of(type_name)
        }
        if type_name not in self.interfaces:
            return parts[type_name]
        return UnionNodes(self.reference_space(), parts)


def _granted(view: RowView, type: TableType, grants: Sequence[RowGrant]) -> Load:
    """A loader of 1 for rows that the grants show, 0 for others; deleted rows included."""
    ends = ShownEnds.of(type)
    columns = columns_tested(grants, ends)

    def load(handle: Handle, fragments: Sequence[FragmentState]) -> npt.NDArray[np.int32]:
        loaded = {
            name: view.loader(name, stored)(handle, fragments) for name, stored in columns.items()
        }
        if not loaded:
            loaded = {ID: pa.repeat("", sum(fragment.rows for fragment in fragments))}
        found = granted(grants, ends, pa.table(loaded)).to_numpy(zero_copy_only=False)
        return np.asarray(found, np.int32)

    return load


def tables_of(reader: SnapshotReader) -> type[SnapshotTables]:
    """The class for the tables of a reader: with or without a row filter."""
    return VisibleTables if isinstance(reader, ViewedReader) else SnapshotTables


# --- one run --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Session:
    """One run of a prepared plan: its tables and parameters, and state shared by its steps."""

    run: Execution
    prepared: PreparedRead
    tables: SnapshotTables
    edges_of: dict[str, EdgeTable] = field(default_factory=dict)
    """The table of each edge variable."""
    values_of: dict[str, pa.Array] = field(default_factory=dict)
    """The values by number of each variable that is bound to values."""
    staged: ResultColumns | None = None
    """The rows of the previous stage."""
    governor: Governor = field(default_factory=current)
    _paths: PathStore | None = None
    _search: Search | None = None

    @property
    def paths(self) -> PathStore:
        """The paths of the run; created on first use, since most queries have none."""
        if self._paths is None:
            self._paths = PathStore()
        return self._paths

    @property
    def search(self) -> Search:
        """The search calls of the run; created on first use, since most queries have none."""
        if self._search is None:
            from omnigraph.engines.local.search import Search

            self._search = Search(self)
        return self._search

    def edge_values(
        self, variable: str, property: str, type: pa.DataType, edges: Positions
    ) -> pa.Array:
        """A stored column of the edges a variable is bound to; null where it is unbound."""
        table = self.edges_of.get(variable)
        if table is None:
            # An optional match may end before the step that reads its edges.
            return pa.nulls(len(edges), type)
        end = self.prepared.variables[variable].typed_ends.get(property)
        if end is None:
            return table.values(property, type, edges)
        references = table.values(end, type, edges)
        if property == end:
            return ids_in(references)
        return type_names_in(references, {n: name for name, n in self.tables.references.items()})

    def last_row(self) -> int | None:
        """The number of ordered rows that the result needs; None for all."""
        compiled = self.prepared.compiled
        limit = self.run.row_count(compiled.limit)
        return (
            None
            if limit is None or compiled.per is not None
            else limit + (self.run.row_count(compiled.offset) or 0)
        )
