"""The rows of one type of an open graph as an Arrow table, pinned to a commit.

Columns have the names of the schema: `id`, for edges `src` and `dst`, then the properties. Blobs
are described, not read: their kind, size and URI.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branching.entity_history import find_type
from omnigraph.commit.mutation_rows import Inputs, Matcher
from omnigraph.commit.schema.change import types_at
from omnigraph.errors import InputError
from omnigraph.graph.opened import Handle, OpenGraph
from omnigraph.graph.schemas import describe_schema
from omnigraph.loading.records.problems import name_hint
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.ids import EntityKind, TableKey
from omnigraph.model.parameters import parameter_value, plain_value
from omnigraph.model.records import dataclass
from omnigraph.model.references import END_TYPES, ShownEnds
from omnigraph.model.result import ReadTarget
from omnigraph.model.tables import Table, TableInfo, Where, batch_rows
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import datetime_from_ms
from omnigraph.query import expressions as ex
from omnigraph.query.compile import compile_where
from omnigraph.schema.catalog import Catalog, EdgeType, TableType, table_schema
from omnigraph.storage.blobs import DESCRIPTION, described
from omnigraph.storage.manifest import Snapshot
from omnigraph.storage.reader import SnapshotReader
from omnigraph.views import View

_TEXT = ValueType(Scalar.STRING)


def table(
    self: Handle,
    type: str,
    *,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    branch: str | None = None,
    snapshot: str | None = None,
) -> Table:
    """The rows of a type as an Arrow table, of the branch or commit as it is now.

    ``type`` is a name, or `node:Name` or `edge:Name`. The columns are `id`, for edges `src` and
    `dst`, and the properties, of blobs a description, unless ``columns`` names some of them.
    ``where`` is a condition as in an update, `age > 30 and city = "Oslo"`, or a mapping of columns
    to required values: None means null, a list any of its values. Rows are read on demand. Raises
    `NotFound` for an unknown type, and `InputError` for an unknown column or a wrong condition.
    """
    target = self._read_target("table", branch, snapshot)
    return _table(self, type, target, columns, where)


def table_at(
    self: Handle,
    type: str,
    branch: str,
    snapshot: str,
    *,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
) -> Table:
    """`Graph.table` at a commit that was the branch's head when the columns were requested.


    The client requests the columns, then the rows. While the commit is still the head, the right to
    read the branch is sufficient.
    """
    self._may_read("table", branch)
    wanted = self._commit_of(snapshot, branch)
    if self._opened.snapshot(branch).commit_id != wanted:
        wanted = self._read_commit("table", wanted, None)
    return _table(self, type, ReadTarget(None, wanted), columns, where)


def _table(
    self: Handle,
    type: str,
    target: ReadTarget,
    columns: Sequence[str] | None,
    where: Where | None,
) -> Table:
    opened = self._opened
    reader, catalog = self._seen(opened.pinned(target))
    catalog = types_at(catalog, reader.snapshot)
    found = find_type(catalog, type)
    schema = _chosen(shown_schema(found), columns, found)
    predicate = None if where is None else _condition(where, found, catalog)
    rows = _Rows(opened, reader, found, schema, predicate)
    kind: EntityKind = "edge" if isinstance(found, EdgeType) else "node"
    about = TableInfo(kind, found.name, target, reader.snapshot.commit_id)
    return Table(about, schema, rows.batches)


def seen_of_type(
    self: Handle, type: str, *, branch: str | None = None, snapshot: str | None = None
) -> tuple[SnapshotReader, TableType]:
    """The visible rows of a type at one commit, and the type with its visible columns.

    For the data source of Spark, whose tasks read the rows.
    """
    target = self._read_target("frame", branch, snapshot)
    reader, catalog = self._seen(self._opened.pinned(target))
    return reader, find_type(types_at(catalog, reader.snapshot), type)


def frame(
    self: Handle,
    type: str,
    *,
    columns: Sequence[str] | None = None,
    where: str | None = None,
    branch: str | None = None,
    snapshot: str | None = None,
    spark: Any = None,
) -> Any:
    """The rows of a type as a Spark DataFrame, of the branch or commit as it is now.

    ``columns`` and ``where``, a condition in SQL, are pushed down to the scan. The frame keeps its
    snapshot while others write. It is created in ``spark`` or the active session; if there is none,
    one is started, which stays until the process ends.
    """
    from omnigraph.pipeline.data_source import frame_of

    target = self._read_target("frame", None if snapshot is not None else branch, snapshot)
    pinned = self._opened.pinned(target).snapshot
    view = self._view_of(pinned)
    if view is not None:
        return _visible_frame(self, view, pinned, type, columns=columns, where=where, spark=spark)
    return frame_of(
        self._kernel.root,
        type,
        columns=columns,
        where=where,
        branch=branch if snapshot is not None else target.branch,
        snapshot=target.snapshot,
        spark=spark,
    )


def _visible_frame(
    self: Handle,
    view: View,
    pinned: Snapshot,
    type: str,
    *,
    columns: Sequence[str] | None,
    where: str | None,
    spark: Any,
) -> Any:
    """`frame`, restricted by a view; ``where`` applies after the view's conditions."""
    from omnigraph.pipeline.data_source import frame_of
    from omnigraph.pipeline.data_source.reading import visible_frame

    found = find_type(types_at(view.catalog, pinned), type)
    chosen = _chosen(shown_schema(found), columns, found)

    def whole(key: str) -> Any:
        place = {"branch": pinned.branch, "snapshot": pinned.commit_id}
        return frame_of(self._kernel.root, key, spark=spark, **place)

    frame = visible_frame(whole, view, found.table_key)
    return (frame if where is None else frame.where(where)).select(*chosen.names)


# --- export to other libraries --------------------------------------------------------------------


def to_networkx(
    self: Handle,
    *,
    nodes: Sequence[str] | str | None = None,
    edges: Sequence[str] | str | None = None,
    branch: str | None = None,
    snapshot: str | None = None,
) -> Any:
    """The nodes and edges of one commit as a `networkx.MultiDiGraph`, with their properties.

    ``nodes`` and ``edges`` name types, as for `Graph.compute`: without edges all between the nodes,
    without nodes the ends of the edges, without both everything. A node is identified by its id, or
    by its type and id if there are several node types; the attribute `type` names its type, and the
    key of an edge is its id. Raises `InputError` if NetworkX is not installed.
    """
    networkx = _library("networkx")
    found = _Entities.of(self, nodes, edges, branch, snapshot)
    made = networkx.MultiDiGraph()
    for name, rows in found.nodes.items():
        ids = rows[ID].to_pylist()
        made.add_nodes_from(zip(found.names(name, ids), _attributes(name, rows), strict=True))
    for name, rows in found.edges.items():
        ends = zip(*found.ends(name, rows), rows[ID].to_pylist(), strict=True)
        attributes = _attributes(name, rows)
        made.add_edges_from((*each, about) for each, about in zip(ends, attributes, strict=True))
    return made


def to_igraph(
    self: Handle,
    *,
    nodes: Sequence[str] | str | None = None,
    edges: Sequence[str] | str | None = None,
    branch: str | None = None,
    snapshot: str | None = None,
) -> Any:
    """The nodes and edges of one commit as a directed `igraph.Graph`, with their properties.

    It takes types as `Graph.to_networkx` does. The vertex attributes `id` and `type` say which node
    a vertex is, the edge attributes `id` and `type` which edge an edge is. Raises `InputError` if
    igraph is not installed.
    """
    igraph = _library("igraph")
    found = _Entities.of(self, nodes, edges, branch, snapshot)
    numbers: dict[Any, int] = {}
    for name, rows in found.nodes.items():
        for each in found.names(name, rows[ID].to_pylist()):
            numbers[each] = len(numbers)
    pairs: list[tuple[int, int]] = []
    for name, rows in found.edges.items():
        begin, end = found.ends(name, rows)
        pairs += zip(map(numbers.__getitem__, begin), map(numbers.__getitem__, end), strict=True)
    return igraph.Graph(
        n=len(numbers),
        edges=pairs,
        directed=True,
        vertex_attrs=_attribute_columns(found.nodes),
        edge_attrs=_attribute_columns(found.edges),
    )


def to_pyg(
    self: Handle,
    *,
    nodes: Sequence[str] | str | None = None,
    edges: Sequence[str] | str | None = None,
    features: Mapping[str, Sequence[str] | str] | None = None,
    labels: Mapping[str, str] | None = None,
    branch: str | None = None,
    snapshot: str | None = None,
) -> Any:
    """The nodes and edges of one commit as a `torch_geometric.data.HeteroData`.

    It takes types as `Graph.to_networkx` does. ``features`` names numeric properties and vectors by
    type, which become `x` of nodes and `edge_attr` of edges, as float32; ``labels`` names one
    property by node type, which becomes `y`: integers, or the places of texts in `label_names`.
    `ids` of a node type has the ids of its nodes in their order. Raises `InputError` for a property
    that is null somewhere or is no number, and if torch or torch_geometric is not installed.
    """
    from omnigraph.computing.hetero import hetero_arrays, hetero_data

    found = _Entities.of(self, nodes, edges, branch, snapshot)
    return hetero_data(
        hetero_arrays(found.nodes, found.edges, found.end_types, features or {}, labels or {})
    )


@dataclass(frozen=True, slots=True)
class _Entities:
    """The rows of some types at one commit."""

    nodes: dict[str, pa.Table]
    edges: dict[str, pa.Table]
    end_types: dict[str, tuple[str, str]]
    """The types at the ends of each edge type; interfaces if rows name the type."""

    @classmethod
    def of(
        cls,
        graph: Handle,
        nodes: Sequence[str] | str | None,
        edges: Sequence[str] | str | None,
        branch: str | None,
        snapshot: str | None,
    ) -> _Entities:
        about = describe_schema(graph, branch=branch, snapshot=snapshot)
        every = {each.name: each for each in about.types if each.kind == "node"}
        ends = {
            each.name: (str(each.source), str(each.target))
            for each in about.types
            if each.kind == "edge"
        }
        members = {each.name: {each.name, *each.implements} for each in every.values()}
        linked = _named(edges, ends, "edge")
        named = _named(nodes, every, "node")
        if named is None and linked is not None:
            wanted = {end for name in linked for end in ends[name]}
            named = [name for name, roles in members.items() if roles & wanted]
        named = [*every] if named is None else named
        covered = set().union(*(members[name] for name in named))
        is_chosen = linked is not None
        if linked is None:
            linked = [name for name, both in ends.items() if set(both) <= covered]

        def read(name: str) -> pa.Table:
            if snapshot is not None:
                return table(graph, name, snapshot=snapshot).to_arrow()
            return table_at(graph, name, about.branch, about.graph_commit_id).to_arrow()

        made = cls(
            {name: read(TableKey.node(name)) for name in named},
            {name: read(TableKey.edge(name)) for name in linked},
            {name: ends[name] for name in linked},
        )
        for name in linked:
            if is_chosen:
                made._require_ends(name)
            else:
                made.edges[name] = made._between_nodes(made.edges[name])
        return made

    def names(self, type_name: str, ids: Sequence[str]) -> list[Any]:
        """The names of a type's nodes in the exported graph."""
        return [*ids] if len(self.nodes) == 1 else [(type_name, each) for each in ids]

    def ends(self, name: str, rows: pa.Table) -> tuple[list[Any], list[Any]]:
        """The names of the source and target nodes of edges."""
        found = []
        for column, of_type in zip((SRC, DST), self.end_types[name], strict=True):
            ids = rows[column].to_pylist()
            if END_TYPES[column] not in rows.column_names:
                found.append(self.names(of_type, ids))
            elif len(self.nodes) == 1:
                found.append(ids)
            else:
                types = rows[END_TYPES[column]].to_pylist()
                found.append([*zip(types, ids, strict=True)])
        return found[0], found[1]

    def _between_nodes(self, rows: pa.Table) -> pa.Table:
        for column in END_TYPES.values():
            if column in rows.column_names:
                rows = rows.filter(pc.is_in(rows[column], value_set=pa.array([*self.nodes])))
        return rows

    def _require_ends(self, name: str) -> None:
        rows = self.edges[name]
        for column, of_type in zip((SRC, DST), self.end_types[name], strict=True):
            is_mixed = END_TYPES[column] in rows.column_names
            types = rows[END_TYPES[column]].unique().to_pylist() if is_mixed else [of_type]
            for missing in sorted(set(types) - set(self.nodes)):
                raise InputError(
                    f"edge {name} ends at {missing}, which is not among the `nodes`",
                    hint=f"add {missing} to `nodes`, or leave `edges` out for those between them",
                )


def _named(
    given: Sequence[str] | str | None, known: Collection[str], kind: EntityKind
) -> list[str] | None:
    if given is None:
        return None
    names = [given] if isinstance(given, str) else [*given]
    for name in names:
        if name not in known:
            raise InputError(
                f"there is no {kind} type '{name}'", hint=name_hint(name, known, f"{kind} types")
            )
    return [*dict.fromkeys(names)]


def _attributes(type_name: str, rows: pa.Table) -> list[dict[str, Any]]:
    kept = rows.drop_columns([name for name in _NOT_ATTRIBUTES if name in rows.column_names])
    if not kept.column_names:
        return [{"type": type_name} for _ in range(rows.num_rows)]
    return [{"type": type_name, **each} for each in kept.to_pylist()]


def _attribute_columns(tables: Mapping[str, pa.Table]) -> dict[str, list[Any]]:
    """One list per attribute of any type; None where a type lacks the property."""
    ids = [each for rows in tables.values() for each in rows[ID].to_pylist()]
    rows = [each for name, found in tables.items() for each in _attributes(name, found)]
    names = dict.fromkeys(name for each in rows for name in each)
    return {"id": ids, **{name: [each.get(name) for each in rows] for name in names}}


_NOT_ATTRIBUTES = (ID, SRC, DST, *END_TYPES.values())


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(f"{name} is not installed", hint=f"pip install {name}") from error


# --- columns --------------------------------------------------------------------------------------


def shown_schema(type: TableType) -> pa.Schema:
    """The columns of a type as users see them: without metadata, and with blob descriptions."""
    blobs = {name for name, prop in type.properties.items() if prop.type.is_blob}
    return pa.schema(
        [
            pa.field(each.name, DESCRIPTION if each.name in blobs else each.type, each.nullable)
            for each in ShownEnds.of(type).schema(table_schema(type))
        ]
    )


def _chosen(schema: pa.Schema, columns: Sequence[str] | str | None, type: TableType) -> pa.Schema:
    if columns is None:
        return schema
    names = [columns] if isinstance(columns, str) else list(columns)
    if not names:
        raise InputError("`columns` names no column", hint="leave it out for all of them")
    for name in names:
        if name not in schema.names:
            raise InputError(
                f"{type.name} has no column '{name}'",
                hint=name_hint(str(name), schema.names, f"columns of {type.name}"),
            )
        if names.count(name) > 1:
            raise InputError(f"column '{name}' is asked for twice", hint="name each column once")
    return pa.schema([schema.field(name) for name in names])


# --- conditions -----------------------------------------------------------------------------------


def _condition(where: Where, type: TableType, catalog: Catalog) -> ex.Expression:
    if isinstance(where, str):
        return compile_where(where, type, catalog)
    if not where or not hasattr(where, "items"):
        raise InputError(
            "`where` takes a text or values by property",
            hint="write where=\"age > 30\" or where={'city': 'Oslo'}",
        )
    tests = [_test(str(name), value, type) for name, value in where.items()]
    return ex.Combine("and", tuple(tests)) if len(tests) > 1 else tests[0]


def _test(name: str, given: Any, type: TableType) -> ex.Expression:
    """Compare a column with one value, None for null, or with a list of values."""
    column = _column(name, type)
    item = column.type.item if column.type.is_list else column.type.with_nullable(False)
    value = plain_value(given)
    if value is None:
        return ex.IsNull(column, negated=False)
    if not item.is_plain_scalar:
        raise InputError(
            f"{type.name}.{name} is {column.type} and cannot be matched by value",
            hint="match it with None for null, or leave it out",
        )
    if column.type.is_list:
        return ex.ListContains(column, _constant(value, item, name))
    if isinstance(value, list | tuple):
        members = ValueType(item.scalar, is_list=True)
        return ex.ListContains(_constant(value, members, name), column)
    return ex.Compare("=", column, _constant(value, item, name))


def _column(name: str, type: TableType) -> ex.PropertyValue:
    is_edge = isinstance(type, EdgeType)
    structural = [ID, SRC, DST, *ShownEnds.of(type).columns] if is_edge else [ID]
    if name not in type.properties and name not in structural:
        raise InputError(
            f"{type.name} has no column '{name}'",
            hint=name_hint(name, [*structural, *type.properties], f"columns of {type.name}"),
        )
    declared = _TEXT if name in structural else type.properties[name].type
    kind: ex.EntityKind = "edge" if is_edge else "node"
    return ex.PropertyValue(ex.MUTATION_TARGET, kind, type.name, name, declared)


def _constant(value: object, type: ValueType, name: str) -> ex.Constant:
    found = parameter_value(value, type, name)
    return ex.Constant(tuple(found) if isinstance(found, list) else found, type)


# --- rows -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of a type that satisfy a condition."""

    opened: OpenGraph
    reader: SnapshotReader
    type: TableType
    schema: pa.Schema
    predicate: ex.Expression | None

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches, from the beginning; cleanup in this process waits for the last one."""
        with self.opened.kernel.gates.stream():
            for batch in self._read():
                yield self._shown(batch)

    def _read(self) -> Iterator[pa.RecordBatch]:
        key, ends = self.type.table_key, ShownEnds.of(self.type)
        names = list(dict.fromkeys(map(ends.stored, self.schema.names)))
        if self.reader.is_empty(key):
            return
        if self.predicate is None:
            yield from self.reader.batches(key, names, batch_rows(self.schema))
            return
        now = datetime_from_ms(self.opened.kernel.clock.wall_us() // 1000)
        inputs = Inputs({}, now, self.opened.external)
        for rows in Matcher(self.reader, self.type, self.predicate, inputs).found(names):
            yield from rows.to_batches(max_chunksize=batch_rows(self.schema))

    def _shown(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        ends = ShownEnds.of(self.type)
        columns = [_shown(ends.column(field.name, batch), field.type) for field in self.schema]
        return pa.RecordBatch.from_arrays(columns, schema=self.schema)


def _shown(column: pa.Array, type: pa.DataType) -> pa.Array:
    if type == DESCRIPTION:
        # Commits from before the property was added have only nulls, and no descriptors.
        is_scanned = column.type.get_field_index("kind") >= 0
        return described(column) if is_scanned else pa.nulls(len(column), type)
    return column if column.type == type else column.cast(type)
