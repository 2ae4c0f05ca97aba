"""The validator of mutations, loads and merges.

`constraints` defines every kind of constraint once, `evaluation` finds the rows that break one.
`validate` checks the final change set of a write by looking up committed rows, for any combination
of appended, upserted, deleted and replaced tables. A bulk load, whose rows do not fit into one
process, evaluates the same constraints part by part (`loading.checks`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial, reduce

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.plan import UPKEEP_KINDS, ChangeSet
from omnigraph.commit.validation.constraints import (
    Endpoint,
    KeyConstraint,
    Role,
    Violation,
    degree,
    identity,
    unique_groups,
    unsettled_ends,
    value_constraints,
)
from omnigraph.commit.validation.evaluation import (
    KeyColumns,
    KeyRows,
    broken_values,
    evaluate,
    keys_of,
)
from omnigraph.errors import InternalError
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.ids import EntityKind
from omnigraph.model.merging import ConflictKind
from omnigraph.model.records import dataclass
from omnigraph.model.references import UNRESOLVED, ids_in, qualified, with_prefix
from omnigraph.query.kernels import equal_members
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, TableType, table_schema
from omnigraph.storage.reader import SnapshotReader

NO_IDS = pa.nulls(0, pa.string())


class ResultGraph:
    """The rows after a write: a change set applied to the committed rows of a snapshot."""

    def __init__(self, change_set: ChangeSet, view: SnapshotReader) -> None:
        # Upkeep rewrites files without changing rows.
        self._changes = {
            key: change
            for key, change in change_set.tables.items()
            if change.kind not in UPKEEP_KINDS
        }
        self._view = view
        self._changed_ids: dict[str, pa.Array] = {}

    def is_touched(self, table_key: str) -> bool:
        """Whether the write changes the type."""
        return table_key in self._changes

    def is_replaced(self, table_key: str) -> bool:
        """Whether the write replaces all rows of the type."""
        return table_key in self._changes and self._changes[table_key].kind == "replace"

    def is_upserted(self, table_key: str) -> bool:
        """Whether written rows replace those with their id; True for a type without changes."""
        change = self._changes.get(table_key)
        return change is None or change.kind == "upsert"

    def written(self, table_key: str) -> pa.Table | None:
        """The new and changed rows of a type; None if there are none."""
        change = self._changes.get(table_key)
        if change is None or change.kind == "delete" or not change.rows.num_rows:
            return None
        return change.rows

    def removed(self, table_key: str) -> pa.Array:
        """The ids deleted one by one, without those that a replacement drops."""
        change = self._changes.get(table_key)
        if change is None:
            return NO_IDS
        if change.exchanged is not None:
            return change.exchanged.deleted
        return self._ids(table_key) if change.kind == "delete" else NO_IDS

    def kept(self, table_key: str, columns: Sequence[str]) -> pa.Table | None:
        """The id and ``columns`` of all committed rows that stay; None if there are none."""
        if self._is_empty(table_key):
            return None
        return self._without_changed(table_key, self._view.scan(table_key, [ID, *columns]))

    def kept_where_in(
        self,
        table_key: str,
        column: str,
        values: pa.Array,
        columns: Sequence[str],
        narrowed_by: Mapping[str, pa.Array] | None = None,
    ) -> pa.Table | None:
        """The id and ``columns`` of rows that stay and whose ``column`` holds one of ``values``.

        For each end in ``narrowed_by``, edges with none of its ids may be left out.
        """
        if self._is_empty(table_key) or not len(values):
            return None
        found = self._view.rows_where_in(
            table_key, column, values, [ID, *columns], narrowed_by=narrowed_by
        )
        return self._without_changed(table_key, found)

    def former(self, table_key: str, column: str) -> pa.Table | None:
        """The id and ``column`` of the committed rows that are changed or deleted."""
        change = self._changes.get(table_key)
        if change is None or change.kind == "append" or self._is_empty(table_key):
            return None
        ids = self._ids(table_key)
        return self._view.rows_where_in(table_key, ID, ids, [ID, column]) if len(ids) else None

    def with_ids(self, table_key: str, ids: pa.Array) -> Iterator[tuple[Role, pa.Table]]:
        """Ids in the result: all written ones, and committed ones among ``ids``."""
        written = self.written(table_key)
        if written is not None:
            yield "written", written.select([ID])
            ids = _minus(ids, written[ID])
        if not self._is_empty(table_key):
            candidates = _minus(ids, self.removed(table_key))
            if len(candidates):
                found = self._view.rows_where_in(table_key, ID, candidates, [ID])
                yield "committed", found

    def absent(self, table_key: str, ids: pa.Array) -> pa.Array:
        """The ids that no row of the result has."""
        for _, rows in self.with_ids(table_key, ids):
            ids = _minus(ids, pc.unique(rows[ID]))
        return ids

    def committed_ids(self, table_key: str, ids: pa.Array) -> pa.Table | None:
        """The ids that committed rows have, whether the write changes these or not."""
        if not len(ids) or self._is_empty(table_key):
            return None
        found = self._view.rows_where_in(table_key, ID, ids, [ID])
        return found if found.num_rows else None

    def _is_empty(self, table_key: str) -> bool:
        return self.is_replaced(table_key) or self._view.is_empty(table_key)

    def _ids(self, table_key: str) -> pa.Array:
        known = self._changed_ids.get(table_key)
        if known is None:
            change = self._changes[table_key]
            known = pc.unique(change.ids)
            if change.exchanged is not None:
                known = pa.concat_arrays([known, change.exchanged.deleted])
            self._changed_ids[table_key] = known
        return known

    def _without_changed(self, table_key: str, rows: pa.Table) -> pa.Table | None:
        if table_key in self._changes:
            rows = rows.filter(pc.invert(pc.is_in(rows[ID], value_set=self._ids(table_key))))
        return rows if rows.num_rows else None


def _minus(ids: pa.Array, others: pa.Array | pa.ChunkedArray) -> pa.Array:
    return ids.filter(pc.invert(pc.is_in(ids, value_set=others))) if len(others) else ids


__all__ = ["InputRows", "Violation", "checked_columns", "validate"]


def checked_columns(type: TableType) -> list[str]:
    """The id and the columns of a type that some constraint checks."""
    wanted = {ID, *((SRC, DST) if isinstance(type, EdgeType) else ())}
    wanted |= {constraint.property for constraint in value_constraints(type)}
    wanted |= {name for group in unique_groups(type) for name in group.columns}
    return [name for name in table_schema(type).names if name in wanted]


@dataclass(frozen=True, slots=True)
class InputRows:
    """Facts about the input of a load for one type, which its rows do not show."""

    records: pa.Table | None = None
    """All records, if several of the same id were folded into one row. No tuple of a key or unique
    group may be repeated among them, not even for the same id. Needs `id` and these columns."""
    new_ids: pa.Array = field(default_factory=lambda: NO_IDS)
    """Ids of an append that no committed entity may have; minted ids need no check."""
    refused_ids: pa.Array | pa.ChunkedArray = field(default_factory=lambda: NO_IDS)
    """Ids of records that were refused for problems of their own; edges may refer to them."""


_NOTHING = InputRows()

_Check = Callable[[KeyConstraint, Sequence[KeyRows]], list[Violation]]
"""`evaluate` with the options of a `validate` call."""


def validate(
    change_set: ChangeSet,
    catalog: Catalog,
    view: SnapshotReader,
    *,
    given: Mapping[str, InputRows] | None = None,
    collect: bool = False,
    values: bool = True,
    by_record: bool = False,
) -> list[Violation]:
    """Raise the first violation as `ConstraintViolation`, or with ``collect`` return them all.

    ``view`` reads the current head of the branch; replaced types count as empty. ``given`` has
    facts about the input of a load by type key; mutations and merges have none. Without ``values``,
    constraints on single values are not checked, since they were when the values were read. With
    ``by_record``, every record involved in a violation gets one, as its `culprit`.

    Values are checked first, then identity and uniqueness, then endpoints, then cardinality; within
    each, node types before edge types by name, then by id.
    """
    known = {type.table_key for type in catalog.types}
    if unknown := sorted(change_set.tables.keys() - known):
        raise InternalError(f"a change set names types the schema does not have: {unknown}")
    found: list[Violation] = []
    graph = ResultGraph(change_set, view)
    check = partial(evaluate, by_record=by_record)
    for violations in _findings(graph, catalog, given or {}, check, values=values):
        if violations and not collect:
            raise violations[0].to_error()
        found += violations
    return found


def _findings(
    graph: ResultGraph,
    catalog: Catalog,
    given: Mapping[str, InputRows],
    check: _Check,
    *,
    values: bool,
) -> Iterator[list[Violation]]:
    """The violations of each constraint and type, in the order they are reported."""
    everything, edges = catalog.types, [*catalog.edges.values()]
    for type in everything if values else ():
        yield _values(type, graph)
    for type in everything:
        yield _identities(type, graph, given.get(type.table_key, _NOTHING), check)
        yield _uniqueness(type, graph, given.get(type.table_key, _NOTHING), check)
    for edge in edges:
        yield _endpoints(edge, catalog, graph, given, check)
    for edge in edges:
        yield _degrees(edge, catalog, graph, check)


# --- values ---------------------------------------------------------------------------------------


def _values(type: TableType, graph: ResultGraph) -> list[Violation]:
    """Violations of constraints on single values in written rows, by id, then by property."""
    rows = graph.written(type.table_key)
    broken = broken_values(type, rows) if rows is not None else []
    if rows is None or not broken:
        return []
    # Convert only the ids of broken rows, which are few.
    ids = rows[ID].take(pa.array([each.row for each in broken], pa.int64())).to_pylist()
    found = sorted(
        (entity_id, each.property, each.order, each.message)
        for entity_id, each in zip(ids, broken, strict=True)
    )
    kind = ConflictKind.VALUE_CONSTRAINT_VIOLATION
    entity: EntityKind = "node" if isinstance(type, NodeType) else "edge"
    return [
        Violation(entity, type.name, entity_id, kind, text, property_name=name)
        for entity_id, name, _, text in found
    ]


# --- identity and uniqueness ----------------------------------------------------------------------


def _identities(
    type: TableType, graph: ResultGraph, given: InputRows, check: _Check
) -> list[Violation]:
    """Violations of identity: records with repeated ids, and existing ids in an append.

    The ids of a change set are unique, so only loads need this check.
    """
    rows = graph.written(type.table_key)
    parts: list[KeyRows] = []
    is_keyed = isinstance(type, NodeType) and bool(type.key)
    if given.records is not None and (is_keyed or not graph.is_upserted(type.table_key)):
        parts.append(KeyRows(KeyColumns.of(type, "record", [ID]), given.records))
    existing = graph.committed_ids(type.table_key, given.new_ids)
    if existing is not None and rows is not None:
        parts.append(KeyRows(KeyColumns.of(type, "written", [ID]), rows))
        parts.append(KeyRows(KeyColumns.of(type, "committed", [ID]), existing, is_kept=True))
    if not parts:
        return []
    return check(identity(type, refuses_existing=existing is not None), parts)


def _uniqueness(
    type: TableType, graph: ResultGraph, given: InputRows, check: _Check
) -> list[Violation]:
    """Written entities with values of a unique group that another entity has, by id."""
    rows = graph.written(type.table_key)
    found: list[tuple[str, tuple[str, ...], Violation]] = []
    for constraint in unique_groups(type):
        names = constraint.columns
        parts: list[KeyRows] = []
        if given.records is not None:
            parts.append(KeyRows(KeyColumns.of(type, "record", names), given.records))
        if rows is not None:
            parts.append(KeyRows(KeyColumns.of(type, "written", names), rows))
            kept = _possible_holders(type, rows, names, graph)
            if kept is not None:
                parts.append(KeyRows(KeyColumns.of(type, "committed", names), kept, is_kept=True))
        if parts:
            violations = check(constraint, parts)
            found += [(each.entity_id or "", names, each) for each in violations]
    return [each for _, _, each in sorted(found, key=lambda item: item[:2])]


def _possible_holders(
    type: TableType, rows: pa.Table, names: tuple[str, ...], graph: ResultGraph
) -> pa.Table | None:
    """Remaining rows that may have one of the tuples, by the member with most distinct values.

    If both ends of edges are members, rows are narrowed by both, as nodes may have many edges.
    """
    columns = [rows[name] for name in names]
    is_compared = reduce(pc.and_, [pc.is_valid(column) for column in columns])
    members = [pc.unique(column.filter(is_compared)) for column in columns]
    at = max(range(len(members)), key=lambda i: len(members[i]))
    values = equal_members(members[at], members[at].type)
    others = zip(names, members, strict=True) if isinstance(type, EdgeType) else ()
    ends = {name: ids for name, ids in others if name in (SRC, DST) and name != names[at]}
    return graph.kept_where_in(type.table_key, names[at], values, names, ends)


# --- endpoints ------------------------------------------------------------------------------------


def _endpoints(
    edge: EdgeType,
    catalog: Catalog,
    graph: ResultGraph,
    given: Mapping[str, InputRows],
    check: _Check,
) -> list[Violation]:
    """Edges of the result with a missing node, by id, the source before the target."""
    found: list[tuple[str, int, Violation]] = []
    for order, (column, name) in enumerate(((SRC, edge.source), (DST, edge.target))):
        for node in catalog.node_types(name):
            prefix = catalog.end_prefix(edge, column, node)
            of = KeyColumns.of(edge, "endpoint", [column], prefix)
            parts = [
                KeyRows(of, rows, is_kept)
                for rows, is_kept in _suspects(
                    edge.table_key, column, node.table_key, graph, prefix
                )
            ]
            if not parts:
                continue
            ends = pa.chunked_array([keys_of(part.of, part.rows)[0] for part in parts], pa.string())
            for role, rows in graph.with_ids(node.table_key, pc.unique(ends)):
                parts.append(KeyRows(KeyColumns.of(node, role, [ID]), rows))
            refused = given.get(node.table_key, _NOTHING).refused_ids
            if len(refused):
                parts.append(KeyRows(KeyColumns.of(node, "refused", [ID]), pa.table({ID: refused})))
            constraint = Endpoint(node.table_key, graph.is_replaced(node.table_key))
            violations = check(constraint, parts)
            found += [(each.entity_id or "", order, each) for each in violations]
        written = graph.written(edge.table_key)
        if column in edge.end_types and written is not None:
            of = KeyColumns.of(edge, "endpoint", [column], UNRESOLVED)
            violations = check(unsettled_ends(edge, column), [KeyRows(of, written)])
            found += [(each.entity_id or "", order, each) for each in violations]
    return [each for _, _, each in sorted(found, key=lambda item: item[:2])]


def _suspects(
    edge_key: str, column: str, node_key: str, graph: ResultGraph, prefix: str
) -> Iterator[tuple[pa.Table, bool]]:
    """Edges whose node may be missing, and whether they are unchanged committed ones.

    Either the write changes the edge, or it removes the node. References to nodes of the type
    begin with ``prefix``.
    """
    written = graph.written(edge_key)
    if written is not None:
        yield written.select([ID, column]), False
    if graph.is_replaced(node_key):
        kept = graph.kept(edge_key, [column])
    else:
        gone = graph.removed(node_key)
        if prefix:
            gone = qualified(gone, prefix)
        kept = graph.kept_where_in(edge_key, column, gone, [column])
    if kept is not None:
        yield kept, True


def _gone_sources(graph: ResultGraph, node_key: str, sources: pa.Array, prefix: str) -> pa.Array:
    """References to removed nodes of a type, at least those among ``sources``."""
    is_replaced = graph.is_replaced(node_key)
    if not prefix:
        return graph.absent(node_key, sources) if is_replaced else graph.removed(node_key)
    if not is_replaced:
        return qualified(graph.removed(node_key), prefix)
    own = ids_in(sources.filter(with_prefix(sources, prefix)))
    return qualified(graph.absent(node_key, own), prefix)


# --- cardinality ----------------------------------------------------------------------------------


def _degrees(
    edge: EdgeType, catalog: Catalog, graph: ResultGraph, check: _Check
) -> list[Violation]:
    """Touched sources with too few or too many edges, by id.

    Touched are the sources of written edges, and the previous sources of moved and deleted ones. A
    source that the write removes is not checked.
    """
    constraint = degree(edge)
    if constraint is None or not graph.is_touched(edge.table_key):
        return []
    written = graph.written(edge.table_key)
    former = graph.former(edge.table_key, SRC)
    touched = [rows[SRC] for rows in (former, written) if rows is not None]
    sources = pc.unique(pa.chunked_array([c for each in touched for c in each.chunks], pa.string()))
    gone = pa.concat_arrays(
        [NO_IDS]
        + [
            _gone_sources(graph, node.table_key, sources, catalog.end_prefix(edge, SRC, node))
            for node in catalog.node_types(edge.source)
        ]
    )
    if len(gone):
        sources = sources.filter(pc.invert(pc.is_in(sources, value_set=gone)))
    if not len(sources):
        return []
    kept = graph.kept_where_in(edge.table_key, SRC, sources, [SRC])
    parts = []
    if written is not None:
        rows = written.select([ID, SRC])
        if len(gone):
            rows = rows.filter(pc.is_in(rows[SRC], value_set=sources))
        parts.append(KeyRows(KeyColumns.of(edge, "written", [SRC]), rows))
    if kept is not None:
        parts.append(KeyRows(KeyColumns.of(edge, "committed", [SRC]), kept, is_kept=True))
    if former is not None:
        rows = former.filter(pc.is_in(former[SRC], value_set=sources))
        parts.append(KeyRows(KeyColumns.of(edge, "replaced", [SRC]), rows))
    return check(constraint, parts)
