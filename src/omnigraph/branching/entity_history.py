"""The history of one entity: the commits of a branch that changed it, with the changes.

Only versions of its own table are read, and of those only the ones that may differ: a row stores
the version in which it was last written, so versions in between are skipped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from omnigraph.branching.commit_changes import cause_of
from omnigraph.branching.diff import public_type_id
from omnigraph.branching.moments import LastOpened, Moment, SchemaHistory, moments, no_type
from omnigraph.branching.table_rows import TableRows
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.schema.change import identity_of
from omnigraph.errors import (
    ChangeDiffRefused,
    ChangeFeedGap,
    HistoricalVersionReclaimed,
    InputError,
)
from omnigraph.model.arrow import ID
from omnigraph.model.changes import ChangeOp, EntityChange, EntityVersion, Image
from omnigraph.model.ids import EntityKind, TableKey
from omnigraph.model.records import dataclass
from omnigraph.model.types import LAST_UPDATED_AT
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.manifest_rows import CommitRow, TableIdentity
from omnigraph.views import ViewedReader


def find_type(catalog: Catalog, name: str) -> NodeType | EdgeType:
    """A type by its name; `node:Name` or `edge:Name` if both kinds have the name."""
    keys = {TableKey(name)} if ":" in name else {TableKey.node(name), TableKey.edge(name)}
    found = [type for type in catalog.types if type.table_key in keys]
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(
            f"'{name}' is a node type and an edge type", hint=f"write node:{name} or edge:{name}"
        )
    known = sorted({*catalog.nodes, *catalog.edges})
    raise no_type(name, known)


def entity_history(
    kernel: Kernel,
    schemas: SchemaHistory,
    state: ManifestState,
    type: NodeType | EdgeType,
    entity_id: str,
) -> Iterator[EntityVersion]:
    """The commits of a branch that changed an entity, newest first.

    Each is shown with the names of its own schema. Schema changes are left out, as they change no
    entity. Raises `ChangeFeedGap` if a version that it needs was reclaimed; before the last schema
    change, the history ends without an error where versions or schemas are no longer kept.
    """
    view = schemas.view(schemas.catalog_of(state.commits[state.head.commit_id]), state.branch)
    history = (_TableHistory if view is None else _ShownHistory)(
        kernel, schemas, state, type, entity_id
    )
    at = len(history.commits) - 1
    try:
        while at >= 0:
            at = history.first_with(history.seen(at), at)
            if not history.is_change_of_schema(at):
                newer, older = history.seen(at), history.seen_before(at)
                if repr(newer.image) != repr(older.image):
                    change = history.change(at, older.image, newer.image)
                    yield EntityVersion(cause_of(history.commits[at]), change)
            at -= 1
    except HistoricalVersionReclaimed as reclaimed:
        if history.commits[at].schema_hash == state.head_snapshot().commit.schema_hash:
            raise ChangeFeedGap(history.commits[at].commit_id) from reclaimed
    except ChangeDiffRefused:
        return


@dataclass(frozen=True, slots=True)
class _EntityState:
    """An entity in one version of its table."""

    image: Image | None = None
    updated_at: int | None = None


class _TableHistory:
    """The commits of a branch that published a version of one table, oldest first."""

    def __init__(
        self,
        kernel: Kernel,
        schemas: SchemaHistory,
        state: ManifestState,
        type: NodeType | EdgeType,
        entity_id: str,
    ) -> None:
        self._kernel, self._schemas, self._state = kernel, schemas, state
        self._identity, self._id = identity_of(type), entity_id
        by_seq: dict[int, CommitRow] = {row.commit_seq: row for row in state.lineage()}
        tables = self._relevant_tables(state, type)
        self._pins = sorted(
            (pin for pin in state.versions if pin.identity in tables and pin.commit_seq in by_seq),
            key=lambda pin: pin.commit_seq,
        )
        self.commits = [by_seq[seq] for seq in dict.fromkeys(p.commit_seq for p in self._pins)]
        self._opened = LastOpened()
        self._known: dict[int, _EntityState] = {}

    def _relevant_tables(
        self, state: ManifestState, type: NodeType | EdgeType
    ) -> Collection[TableIdentity]:
        """The tables whose commits may change what is visible of the entity."""
        return {identity_of(type)}

    def seen(self, at: int) -> _EntityState:
        """The entity after one of the commits.

        Raises `ChangeDiffRefused` if the schema of the commit is no longer kept.
        """
        known = self._known.get(at)
        if known is None:
            known = self._known[at] = self._read_entity(at, self.commits[at])
        return known

    def seen_before(self, at: int) -> _EntityState:
        """The entity before one of the commits, with the names of that commit's schema."""
        if not at:
            return _EntityState()
        if self.commits[at - 1].schema_hash == self.commits[at].schema_hash:
            return self.seen(at - 1)
        # A schema change in between did not change the table.
        return self._read_entity(at - 1, self.commits[at])

    def first_with(self, seen: _EntityState, at: int) -> int:
        """The oldest of the preceding commits that are known to show the same row."""
        pins = self._pins
        if seen.updated_at is not None:
            while (
                at and pins[at - 1].ref == pins[at].ref and pins[at - 1].version >= seen.updated_at
            ):
                at -= 1
        return at

    def is_change_of_schema(self, at: int) -> bool:
        """Whether one of the commits changed the schema, and with it the table."""
        return self.commits[at].kind == "schema"

    def change(self, at: int, before: Image | None, after: Image | None) -> EntityChange:
        """The change that one of the commits made."""
        op: ChangeOp = "update"
        if before is None or after is None:
            op = "delete" if after is None else "insert"
        shown = after or before
        assert shown is not None
        type = self._type_at(self.commits[at])
        kind: EntityKind = "edge" if isinstance(type, EdgeType) else "node"
        return EntityChange(
            kind, public_type_id(type), type.name, self._id, op, shown.endpoints, before, after
        )

    def _type_at(self, commit: CommitRow) -> NodeType | EdgeType:
        """The type in the schema of a commit."""
        types = self._schemas.catalog_of(commit).types
        return next(type for type in types if identity_of(type) == self._identity)

    def _read_entity(self, at: int, commit: CommitRow) -> _EntityState:
        """The entity after one of the commits, with the names of ``commit``'s schema."""
        pins = {self._identity: self._pins[at]}
        moment = Moment(self._kernel, self._state, commit, pins, self._opened)
        type = self._type_at(commit)
        reader = moment.reader(self._schemas.catalog_of(commit))
        if reader.is_empty(type.table_key):
            return _EntityState()
        wanted = pa.array([self._id])
        found = reader.rows_where_in(type.table_key, ID, wanted, [ID, LAST_UPDATED_AT])
        if not found.num_rows:
            return _EntityState()
        updated_at = found[LAST_UPDATED_AT][0].as_py()
        return _EntityState(TableRows(reader, type).image_of(self._id), updated_at)


class _ShownHistory(_TableHistory):
    """The commits that may change what a view shows of an entity.

    Every one is read, because changes of the nodes at an edge's ends may hide or show its row.
    """

    def _relevant_tables(
        self, state: ManifestState, type: NodeType | EdgeType
    ) -> Collection[TableIdentity]:
        """The entity's own table, and those of the nodes that decide an edge's visibility."""
        catalog = self._schemas.catalog_of(state.commits[state.head.commit_id])
        view = self._schemas.view(catalog, state.branch)
        if view is None or not view.shows(type.table_key):
            return {identity_of(type)}
        nodes = (node for end in view.ends(type.table_key).values() for node in end)
        restricted = (node for node in nodes if view.restricts(node.table_key))
        return {identity_of(each) for each in (type, *restricted)}

    @cached_property
    def _moments(self) -> list[Moment]:
        return list(moments(self._kernel, self._state, self.commits))

    def first_with(self, seen: _EntityState, at: int) -> int:
        """The commit itself: none can be skipped."""
        return at

    def _read_entity(self, at: int, commit: CommitRow) -> _EntityState:
        moment = self._moments[at]
        if self._identity not in moment.pins:
            return _EntityState()
        catalog, type = self._schemas.catalog_of(commit), self._type_at(commit)
        view = self._schemas.view(catalog, self._state.branch)
        reader = replace(moment, commit=commit).reader(catalog)
        if view is not None:
            if not view.shows(type.table_key):
                return _EntityState()
            type, reader = view.types[type.table_key].type, ViewedReader(reader, view)
        if reader.is_empty(type.table_key):
            return _EntityState()
        return _EntityState(TableRows(reader, type).image_of(self._id))
