"""Writes of an actor whose rules are limited to types, properties and rows.

An actor writes to the part of a graph that it sees: rows are selected, keys are met and ends are
found as if what is hidden were not there. What it writes has to be granted before and after. Where
only a hidden row stands in the way, the write is refused as a conflict that says nothing of the
row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import Conflict, ConstraintViolation, Denied
from omnigraph.model.arrow import ID
from omnigraph.model.references import ShownEnds
from omnigraph.query.plan import (
    InsertEdge,
    InsertNode,
    MutationPlan,
    UpdateEdges,
    UpdateNodes,
    statements_of,
)
from omnigraph.schema.catalog import Catalog, TableType, table_schema
from omnigraph.storage.reader import SnapshotReader
from omnigraph.views.rows import ViewedReader, granted
from omnigraph.views.view import View, reduced


class Changed(Protocol):
    """The rows of one type that a write leaves, or the ids that it deletes."""

    @property
    def kind(self) -> str:
        """`append`, `upsert`, `delete` or another way."""

    @property
    def rows(self) -> pa.Table:
        """Complete rows, of a deletion the ids."""


class _WriterReader(ViewedReader):
    """What a writer sees: types that are hidden hold nothing, so that they can be asked about."""

    def is_empty(self, table_key: str) -> bool:
        """Whether a type has no rows, or none that are shown."""
        return not self.view.shows(table_key) or super().is_empty(table_key)


@dataclass(frozen=True, slots=True)
class WriteRights:
    """What an actor may change of a graph, and what it sees of it; None for everything."""

    change: View | None
    read: View | None

    # --- names ------------------------------------------------------------------------------------

    def catalog(self, whole: Catalog) -> Catalog:
        """The names that the actor may use in a write: what it sees, and what it may change."""
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

    def require_settable(self, plan: MutationPlan) -> None:
        """Raise `Denied` for a property that a mutation sets and that is not granted."""
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

    # --- rows -------------------------------------------------------------------------------------

    def seen(self, whole: SnapshotReader) -> SnapshotReader:
        """The rows that the actor selects from, and whose keys and ends it meets."""
        view = self.read
        return whole if view is None else _WriterReader(whole, view)

    def check(
        self,
        changes: Mapping[str, Changed],
        catalog: Catalog,
        whole: SnapshotReader,
        validate: Callable[[SnapshotReader], object],
    ) -> None:
        """Raise for a write that is not granted, or that the rows do not allow.

        ``validate`` holds it against the schema, on the rows of a reader: first on those that the
        actor sees, so that what is hidden is like what is absent.
        """
        seen = self.seen(whole)
        validate(seen)
        for key, change in sorted(changes.items()):
            type = next(each for each in catalog.types if each.table_key == key)
            self._require(type, change, whole, seen)
        if seen is not whole:
            try:
                validate(whole)
            except ConstraintViolation:
                raise _hidden_conflict() from None

    def _require(
        self, type: TableType, change: Changed, whole: SnapshotReader, seen: SnapshotReader
    ) -> None:
        key, ids = type.table_key, change.rows[ID].combine_chunks()
        blobs = {name for name, each in type.properties.items() if each.type.is_blob}
        names = [name for name in table_schema(type).names if name not in blobs]
        before = whole.rows_where_in(key, ID, ids, names)
        if seen is not whole and before.num_rows:
            visible = seen.rows_where_in(key, ID, ids, [ID])
            if visible.num_rows < before.num_rows:
                raise _hidden_conflict()
        if self.change is None:
            return
        rights = self.change.granted.get(type.name)
        if rights is None:
            is_seen = self.read is None or self.read.shows(key)
            raise _denied("type", type.name) if is_seen else _hidden_conflict()
        after = None if change.kind == "delete" else change.rows
        grants, ends = rights.rows, ShownEnds.of(type)
        for rows in (before, after):
            if grants is None or rows is None or not rows.num_rows:
                continue
            if not pc.all(granted(grants, ends, rows)).as_py():
                raise _denied("row", type.name)
        if after is not None and before.num_rows and rights.properties is not None:
            hidden = [name for name in type.properties if name not in rights.properties]
            _require_kept(type, hidden, before, after)


def _require_kept(
    type: TableType, hidden: Iterable[str], before: pa.Table, after: pa.Table
) -> None:
    """Raise `Denied` if a write changes a property of a stored row that is not granted."""
    places = pc.index_in(before[ID], value_set=after[ID].combine_chunks())
    for name in hidden:
        if name not in before.column_names:
            raise _denied("property", type.name)  # a blob, which a write replaces with its row
        written = after[name].take(places).to_pylist()
        if written != before[name].to_pylist():
            raise _denied("property", type.name)


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
