"""Writes of an actor whose rules are limited to types, properties and rows.

An actor writes to the visible part of a graph: selecting rows, matching keys and resolving ends
ignore hidden data. A written row must be granted both before and after the write. If only a hidden
row prevents a write, it fails with a conflict that does not reveal the row.

`WriteRights` checks the change sets of mutations and loads, and the entities that a merge, a replay
or a pull would change. The latter must also be visible to the actor, before and after.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import Conflict, ConstraintViolation, Denied, ValueConversionError
from omnigraph.model.arrow import DST, ID, SRC, column_from_values, same_values
from omnigraph.model.records import dataclass
from omnigraph.model.references import ShownEnds
from omnigraph.model.values import property_value
from omnigraph.query.plan import (
    InsertEdge,
    InsertNode,
    MutationPlan,
    UpdateEdges,
    UpdateNodes,
    statements_of,
)
from omnigraph.schema.catalog import Catalog, EdgeType, TableType, table_schema
from omnigraph.storage.reader import SnapshotReader
from omnigraph.views.rows import ViewedReader, columns_tested, granted
from omnigraph.views.view import TypeRights, View, reduced, within

_ROWS_AT_ONCE = 65_536
"""Rows that are checked at once."""


class Changed(Protocol):
    """The rows of one type that a write produces, or the ids that it deletes."""

    @property
    def kind(self) -> str:
        """`append`, `upsert`, `delete` or another kind of change."""

    @property
    def rows(self) -> pa.Table:
        """Complete rows; for a deletion, the ids."""

    @property
    def exchanged(self) -> Any:
        """For an exchange, the rows that it deletes; else None."""


class _WriterReader(ViewedReader):
    """A writer's reader, in which hidden types are empty instead of unknown."""

    def is_empty(self, table_key: str) -> bool:
        """Whether a type has no visible rows."""
        return not self.view.shows(table_key) or super().is_empty(table_key)


@dataclass(frozen=True, slots=True)
class WriteRights:
    """What an actor may change in a graph, and what it sees of it; each None for everything."""

    change: View | None
    read: View | None
    _named: dict[str, Catalog] = field(default_factory=dict, repr=False, compare=False)
    """Results of `catalog`, by schema hash."""

    # --- names ------------------------------------------------------------------------------------

    def catalog(self, whole: Catalog) -> Catalog:
        """The names that the actor may use in a write: visible ones, and those it may change.

        Returns the same object for the same schema, because plans are cached by catalog.
        """
        found = self._named.get(whole.schema_hash)
        if found is None:
            found = self._named[whole.schema_hash] = self._reduced(whole)
        return found

    def _reduced(self, whole: Catalog) -> Catalog:
        views = [self.change, self.read]
        if None in views:
            return whole
        shown: dict[str, frozenset[str] | None] = {}
        for view in views:
            assert view is not None
            for type in whole.types:
                rights = view.granted.get(type.name)
                if rights is None or (view is self.read and not view.shows(type.table_key)):
                    continue
                named = type.properties if rights.properties is None else rights.properties
                known = shown.get(type.name) or frozenset()
                shown[type.name] = known | frozenset(named)
        keys = [view.key for view in views if view is not None]
        return reduced(whole, shown, "+".join((whole.schema_hash, *keys)))

    def told(self, whole: Catalog) -> Catalog:
        """The types with only those constraints whose violation may be reported in detail.

        A violated uniqueness constraint would reveal values of a property that the actor cannot
        name. `check` also validates those, without details.
        """
        named = self.catalog(whole)
        if named is whole:
            return whole
        nodes = {
            name: replace(node, unique=within(node.unique, _named_columns(named.nodes.get(name))))
            for name, node in whole.nodes.items()
        }
        edges = {}
        for name, edge in whole.edges.items():
            columns = {SRC, DST, *_named_columns(named.edges.get(name))}
            key = edge.key_columns if columns.issuperset(edge.key_columns) else ()
            edges[name] = replace(edge, unique=within(edge.unique, columns), key_columns=key)
        return replace(whole, nodes=nodes, edges=edges)

    def require_settable(self, plan: MutationPlan) -> None:
        """Raise `Denied` for a mutation that sets a property without a grant."""
        if self.change is None:
            return
        for step in statements_of(plan.steps):
            if not isinstance(step, InsertNode | InsertEdge | UpdateNodes | UpdateEdges):
                continue
            rights = self.change.granted.get(step.type_name)
            if rights is None:
                raise _denied("type", step.type_name)
            named = rights.properties
            if named is not None and any(each.property not in named for each in step.assignments):
                raise _denied("property", step.type_name)

    def denied_insert(self, plan: MutationPlan, whole: Catalog) -> Denied:
        """The error for an insert that must set a property that the actor cannot name."""
        named = self.catalog(whole)
        inserted = {
            step.type_name
            for step in statements_of(plan.steps)
            if isinstance(step, InsertNode | InsertEdge)
        }
        lacking = [
            type.name
            for type in named.types
            if type.name in inserted
            and any(
                not each.type.nullable and each.default is None and name not in type.properties
                for name, each in _type_of(type, whole).properties.items()
            )
        ]
        return _denied("property", lacking[0]) if lacking else denied_unseen()

    # --- rows -------------------------------------------------------------------------------------

    def seen(self, whole: SnapshotReader) -> SnapshotReader:
        """The reader in which the actor's write selects rows, matches keys and resolves ends."""
        view = self.read
        return whole if view is None else _WriterReader(whole, view)

    def check(
        self,
        changes: Mapping[str, Changed],
        catalog: Catalog,
        whole: SnapshotReader,
        validate: Callable[[SnapshotReader], object],
    ) -> None:
        """Raise for a write that is not granted, or that conflicts with hidden rows.

        The caller has already validated it with `told` on the visible rows. ``validate`` validates
        it with the whole schema on the rows of a given reader.
        """
        seen = self.seen(whole)
        for key, change in sorted(changes.items()):
            (type,) = (each for each in catalog.types if each.table_key == key)
            for before, after in _changed_rows(type, change, whole):
                self._require(type, before, after, seen)
        if seen is not whole:
            try:
                validate(whole)
            except ConstraintViolation:
                raise _hidden_conflict() from None

    def _require(
        self, type: TableType, before: pa.Table, after: pa.Table, seen: SnapshotReader
    ) -> None:
        if self.read is not None and before.num_rows and not self._sees(type, before, seen):
            raise _hidden_conflict()
        if self.change is None:
            return
        rights = self.change.granted.get(type.name)
        if rights is None:
            is_seen = self.read is None or self.read.shows(type.table_key)
            raise _denied("type", type.name) if is_seen else _hidden_conflict()
        _require_granted(type, rights, before, after)
        if blobs := _ungranted(type, rights, blobs=True):
            # Replacing a stored row also replaces its blobs.
            is_set = any(after[name].null_count < after.num_rows for name in blobs)
            if is_set or (before.num_rows and after.num_rows):
                raise _denied("property", type.name)

    def _sees(self, type: TableType, rows: pa.Table, seen: SnapshotReader) -> bool:
        """Whether all ``rows`` are visible to the actor."""
        assert self.read is not None
        if not self.read.shows(type.table_key):
            return False
        if not self.read.restricts(type.table_key):
            return True
        assert isinstance(seen, ViewedReader)
        return bool(pc.all(seen.mask(type.table_key, rows)).as_py())

    # --- merges, replays and pulls ----------------------------------------------------------------

    def columns_brought(self, type: TableType) -> list[str]:
        """The columns of a type that `require_brought` needs, without blobs."""
        named = [ID, *((SRC, DST) if isinstance(type, EdgeType) else ())]
        for rights in self._rights_of(type):
            named += columns_tested(rights.rows or (), ShownEnds.of(type))
            named += _ungranted(type, rights, blobs=False)
        return list(dict.fromkeys(named))

    def blobs_brought(self, type: TableType) -> list[str]:
        """The blob columns of a type that the actor may not change."""
        found = [name for each in self._rights_of(type) for name in _ungranted(type, each, True)]
        return list(dict.fromkeys(found))

    def require_brought_type(self, type: TableType) -> None:
        """Raise `Denied` if the actor may change or see nothing of a type."""
        is_seen = self.read is None or self.read.shows(type.table_key)
        if not is_seen:
            raise denied_unseen()
        if self.change is not None and type.name not in self.change.granted:
            raise _denied("type", type.name)

    def require_brought(
        self,
        type: TableType,
        before: pa.Table,
        after: pa.Table,
        target: SnapshotReader,
        source: SnapshotReader,
    ) -> None:
        """Raise `Denied` for entities that the actor may not change, or does not fully see.

        ``before`` and ``after`` have the columns of `columns_brought`, in the target and as they
        will be. The readers are restricted to the actor.
        """
        if self.read is not None:
            for rows, reader in ((before, target), (after, source)):
                if rows.num_rows and not self._sees(type, rows, reader):
                    raise _denied("row", type.name)
        for rights in self._rights_of(type):
            _require_granted(type, rights, before, after)

    def _rights_of(self, type: TableType) -> list[TypeRights]:
        views = [view for view in (self.read, self.change) if view is not None]
        return [view.granted[type.name] for view in views if type.name in view.granted]


def _changed_rows(
    type: TableType, change: Changed, whole: SnapshotReader
) -> Iterator[tuple[pa.Table, pa.Table]]:
    """The stored rows of the changed entities, and the complete rows that replace them."""
    schema = table_schema(type)
    names = [name for name in schema.names if not _is_blob(type, name)]
    is_empty = whole.is_empty(type.table_key)

    def stored(ids: pa.Array) -> pa.Table:
        if is_empty or not len(ids):
            return schema.empty_table().select(names)
        return whole.rows_where_in(type.table_key, ID, ids, names)

    def parts(rows: pa.Table) -> Iterator[pa.Table]:
        for start in range(0, rows.num_rows, _ROWS_AT_ONCE):
            yield rows.slice(start, _ROWS_AT_ONCE)

    nothing = schema.empty_table()
    if change.kind == "delete":
        for part in parts(change.rows):
            yield stored(part[ID].combine_chunks()), nothing
        return
    for part in parts(change.rows):
        yield stored(part[ID].combine_chunks()), part
    if change.kind == "exchange":
        for part in parts(pa.table({ID: change.exchanged.deleted})):
            yield stored(part[ID].combine_chunks()), nothing
    elif change.kind == "replace" and not is_empty:
        kept = change.rows[ID].combine_chunks()
        for batch in whole.batches(type.table_key, names):
            gone = batch.filter(pc.invert(pc.is_in(batch[ID], value_set=kept)))
            yield pa.Table.from_batches([gone]), nothing


def _named_columns(type: TableType | None) -> set[str]:
    return set() if type is None else set(type.properties)


def _type_of(type: TableType, catalog: Catalog) -> TableType:
    return next(each for each in catalog.types if each.table_key == type.table_key)


def _is_blob(type: TableType, name: str) -> bool:
    return name in type.properties and type.properties[name].type.is_blob


def _ungranted(type: TableType, rights: TypeRights, blobs: bool) -> list[str]:
    """The properties of a type without a grant: only blobs, or only others."""
    if rights.properties is None:
        return []
    left_out = [name for name in type.properties if name not in rights.properties]
    return [name for name in left_out if _is_blob(type, name) is blobs]


def _require_granted(
    type: TableType, rights: TypeRights, before: pa.Table, after: pa.Table
) -> None:
    """Raise `Denied` unless rules grant the rows, and the properties set in them."""
    ends = ShownEnds.of(type)
    for rows in (before, after):
        if rights.rows is None or not rows.num_rows:
            continue
        if not pc.all(granted(rights.rows, ends, rows)).as_py():
            raise _denied("row", type.name)
    names = _ungranted(type, rights, blobs=False)
    if names and after.num_rows:
        _require_kept(type, names, before, after)


def _require_kept(type: TableType, names: Sequence[str], before: pa.Table, after: pa.Table) -> None:
    """Raise `Denied` if a write sets a property that is not granted.

    Allowed are the stored value of an existing entity, and the default or null of a new one.
    """
    at = pc.index_in(after[ID], value_set=before[ID].combine_chunks())
    is_new = at.is_null()
    new, known = after.filter(is_new), after.filter(pc.invert(is_new))
    stored = before.take(at.drop_null())
    for name in names:
        if new.num_rows and not _has_defaults(type, name, new):
            raise _denied("property", type.name)
        if known.num_rows and not same_values(known[name], stored[name]).all():
            raise _denied("property", type.name)


def _has_defaults(type: TableType, name: str, rows: pa.Table) -> bool:
    """Whether a property has its default, or null, in all ``rows``."""
    declared = type.properties[name]
    try:
        value = property_value(declared.default, declared.type, name, strict=True)
    except ValueConversionError:
        return False  # it is required, and has no default
    column = column_from_values([value] * rows.num_rows, declared.type)
    return bool(same_values(rows[name], pa.chunked_array([column])).all())


def denied_unseen() -> Denied:
    """The error for bringing in data that the actor does not see."""
    return Denied(
        "these changes are also of what you do not see, and no rule lets you make them",
        hint="an actor who sees them can make them, as by a change request",
        details={"rule_kind": "view"},
    )


def denied_property(type_name: str) -> Denied:
    """The error for a property that an actor may not set."""
    return _denied("property", type_name)


def _denied(kind: str, type_name: str) -> Denied:
    what = {
        "type": f"no rule lets you change {type_name}",
        "property": f"no rule lets you set this property of {type_name}",
        "row": f"no rule lets you change these rows of {type_name}, as they are or as they become",
    }[kind]
    return Denied(what, details={"rule_kind": kind, "type": type_name})


def _hidden_conflict() -> Conflict:
    return Conflict(
        "the write does not fit what the branch holds",
        hint="something that you do not see stands in the way; use other keys and ends",
    )
