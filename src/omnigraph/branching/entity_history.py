"""The history of one entity: which commits of a branch changed it, and to what.

Only versions of its own table are looked at, and of those only the ones that may differ: a row
carries the version it was last written at, so everything in between is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from omnigraph.branching.commit_changes import cause_of
from omnigraph.branching.diff import public_type_id
from omnigraph.branching.table_rows import TableRows
from omnigraph.commit.kernel import Kernel
from omnigraph.errors import ChangeFeedGap, HistoricalVersionReclaimed, InputError, NotFound
from omnigraph.model.arrow import ID
from omnigraph.model.changes import ChangeOp, EntityChange, EntityVersion, Image
from omnigraph.model.ids import EntityKind
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.snapshot import ManifestState
from omnigraph.syntax.suggest import did_you_mean

UPDATED_AT = "_row_last_updated_at_version"


def find_type(catalog: Catalog, name: str) -> NodeType | EdgeType:
    """A type by its name, or by `node:Name` or `edge:Name` where a name is both."""
    kind, colon, bare = name.partition(":")
    bare = bare if colon else name
    found: list[NodeType | EdgeType] = []
    if kind == "node" or not colon:
        found += [catalog.nodes[bare]] if bare in catalog.nodes else []
    if kind == "edge" or not colon:
        found += [catalog.edges[bare]] if bare in catalog.edges else []
    if len(found) == 1:
        return found[0]
    if found:
        raise InputError(
            f"'{name}' is a node type and an edge type",
            hint=f"write node:{name} or edge:{name}",
        )
    known = sorted({*catalog.nodes, *catalog.edges})
    raise NotFound(
        f"there is no type '{name}'",
        hint=did_you_mean(bare, known) or f"the types are {', '.join(known)}",
        details={"type": name},
    )


def entity_history(
    kernel: Kernel, state: ManifestState, type: NodeType | EdgeType, entity_id: str
) -> Iterator[EntityVersion]:
    """The commits of a branch that changed an entity, newest first.

    It ends with the last change of the schema: what lies before has other properties. Raises
    `ChangeFeedGap` when a version it needs was reclaimed.
    """
    line = _Line(kernel, state, type, entity_id)
    at = len(line.commits) - 1
    while at >= 0:
        try:
            newer = line.seen(at)
            at = line.first_with(newer, at)
            older = line.seen(at - 1) if at else _Seen()
        except HistoricalVersionReclaimed as reclaimed:
            raise ChangeFeedGap(line.commits[at].commit_id) from reclaimed
        if repr(newer.image) != repr(older.image):
            yield EntityVersion(cause_of(line.commits[at]), line.change(older.image, newer.image))
        at -= 1


@dataclass(frozen=True, slots=True)
class _Seen:
    """An entity at one version of its table."""

    image: Image | None = None
    updated_at: int | None = None


class _Line:
    """The commits of a branch that published a version of one table, oldest first."""

    def __init__(
        self, kernel: Kernel, state: ManifestState, type: NodeType | EdgeType, entity_id: str
    ) -> None:
        self._kernel, self._state, self._type, self._id = kernel, state, type, entity_id
        head = state.head_snapshot()
        identity = head.table(type.table_key).identity
        by_seq: dict[int, CommitRow] = {row.commit_seq: row for row in state.lineage()}
        self._pins = sorted(
            (
                pin
                for pin in state.versions
                if pin.identity == identity
                and pin.commit_seq in by_seq
                and by_seq[pin.commit_seq].schema_hash == head.commit.schema_hash
            ),
            key=lambda pin: pin.commit_seq,
        )
        self.commits = [by_seq[pin.commit_seq] for pin in self._pins]
        self._known: dict[int, _Seen] = {}

    def seen(self, at: int) -> _Seen:
        """The entity after one of the commits."""
        known = self._known.get(at)
        if known is None:
            known = self._known[at] = self._look(at)
        return known

    def first_with(self, seen: _Seen, at: int) -> int:
        """The oldest of the commits in a row that are known to show the same row."""
        pins = self._pins
        if seen.updated_at is not None:
            while (
                at and pins[at - 1].ref == pins[at].ref and pins[at - 1].version >= seen.updated_at
            ):
                at -= 1
        return at

    def change(self, before: Image | None, after: Image | None) -> EntityChange:
        """What leads from one image to another."""
        op: ChangeOp = "update"
        if before is None or after is None:
            op = "delete" if after is None else "insert"
        shown = after or before
        assert shown is not None
        kind: EntityKind = "edge" if isinstance(self._type, EdgeType) else "node"
        return EntityChange(
            kind,
            public_type_id(self._type),
            self._type.name,
            self._id,
            op,
            shown.endpoints,
            before,
            after,
        )

    def _look(self, at: int) -> _Seen:
        snapshot = self._state.snapshot_at(self.commits[at].commit_id)
        reader = SnapshotReader(self._kernel.lance, self._kernel.root.uri, snapshot)
        key = self._type.table_key
        if reader.is_empty(key):
            return _Seen()
        found = reader.rows_where_in(key, ID, pa.array([self._id]), [ID, UPDATED_AT])
        if not found.num_rows:
            return _Seen()
        updated_at = found[UPDATED_AT][0].as_py()
        return _Seen(TableRows(reader, self._type).image_of(self._id), updated_at)
