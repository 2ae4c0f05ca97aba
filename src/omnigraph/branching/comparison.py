"""Comparing the graph at two commits, also where the schema changed in between.

Types pair by identity, so that a new name shows nothing, and a type that was dropped and made again
is two. A change of schema is never dressed up as changes of entities: where it rewrote or dropped
properties of entities that there were, the comparison is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from omnigraph.branching.delta import DELETE, INSERT, TableDelta, lifetime_delta, table_delta
from omnigraph.branching.diff import GraphDiff, public_type_id
from omnigraph.branching.moments import Moment, SchemaHistory, types_of
from omnigraph.branching.spill import Spill
from omnigraph.branching.table_rows import TableRows
from omnigraph.branching.wanted_types import WantedTypes
from omnigraph.commit.schema_change import identity_of
from omnigraph.errors import ChangeDiffRefused
from omnigraph.model.arrow import arrow_type
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.storage.reader import SnapshotReader


def compare(
    schemas: SchemaHistory, before: Moment, after: Moment, wanted: WantedTypes
) -> GraphDiff:
    """What differs between two moments, of any branches and in either order.

    Raises `ChangeDiffRefused` when a change of schema between the two rewrote data.
    """
    catalogs = schemas.catalog_of(before.commit), schemas.catalog_of(after.commit)
    # Places on the lines of all branches grow with every change of schema, which needs main alone.
    is_forward = before.commit.commit_seq <= after.commit.commit_seq
    older, newer = catalogs if is_forward else catalogs[::-1]
    rewritten = _rewritten(older, newer, before if is_forward else after)
    if rewritten is not None:
        raise ChangeDiffRefused("schema_boundary", after.commit.commit_id, rewritten)
    sides = _Side(before, catalogs[0], newer), _Side(after, catalogs[1], newer)
    spill = Spill()
    work = [
        delta
        for type in _types(older, newer)
        if wanted.wants(type) and (delta := _delta(sides[0].rows(type), sides[1].rows(type), spill))
    ]
    with before.kernel.at_once() as side_by_side:
        started = [side_by_side.start(delta) for delta in work]
    found = (delta() for delta in started)
    return GraphDiff(
        sides[0].own.snapshot,
        sides[1].own.snapshot,
        tuple(delta for delta in found if not delta.is_empty),
        wanted.wanted,
    )


def require_data_kept(schemas: SchemaHistory, before: Moment, after: Moment) -> None:
    """A change of schema between a commit and its parent left every entity as it was.

    Raises `ChangeDiffRefused` if it did not.
    """
    older, newer = schemas.catalog_of(before.commit), schemas.catalog_of(after.commit)
    lost = _dropped(older, newer, before) or _rewritten(older, newer, before)
    if lost is not None:
        raise ChangeDiffRefused("schema_boundary", after.commit.commit_id, lost)


class _Side:
    """The tables of one end, as the newer of two schemas shows them."""

    def __init__(self, moment: Moment, own: Catalog, newer: Catalog) -> None:
        self._moment = moment
        self.own = moment.reader(own)
        self._shown: SnapshotReader = self.own if own is newer else moment.reader_through(newer)
        self._newer = set(map(identity_of, types_of(newer)))

    def rows(self, type: NodeType | EdgeType) -> TableRows | None:
        """The rows of a type; None where it did not exist."""
        identity = identity_of(type)
        if identity not in self._moment.pins:
            return None
        return TableRows(self._shown if identity in self._newer else self.own, type)


def _types(older: Catalog, newer: Catalog) -> list[NodeType | EdgeType]:
    """The types of both, under their newer names: nodes before edges, by public id."""
    found = {identity_of(type): type for type in (*types_of(older), *types_of(newer))}
    return sorted(
        found.values(), key=lambda type: (isinstance(type, EdgeType), public_type_id(type))
    )


def _delta(
    before: TableRows | None, after: TableRows | None, spill: Spill
) -> Callable[[], TableDelta] | None:
    if before is not None and after is not None:
        return partial(table_delta, before, after, spill)
    if after is not None:
        return partial(lifetime_delta, after, INSERT, spill)
    return None if before is None else partial(lifetime_delta, before, DELETE, spill)


def _rewritten(older: Catalog, newer: Catalog, moment: Moment) -> str | None:
    """A type of which a change of schema rewrote or dropped values that ``moment`` has."""
    if older is newer:
        return None
    now = {identity_of(type): type for type in types_of(newer)}
    for type in types_of(older):
        identity = identity_of(type)
        if identity in now and moment.row_count(identity) and not _is_kept(type, now[identity]):
            return now[identity].name
    return None


def _dropped(older: Catalog, newer: Catalog, moment: Moment) -> str | None:
    """A type that a change of schema dropped with entities in it."""
    now = set(map(identity_of, types_of(newer)))
    for type in types_of(older):
        if identity_of(type) not in now and moment.row_count(identity_of(type)):
            return type.name
    return None


def _is_kept(old: NodeType | EdgeType, new: NodeType | EdgeType) -> bool:
    """Whether entities have the values they had, and null for all that is new."""
    now = {prop.property_id: prop for prop in new.properties.values()}
    for prop in old.properties.values():
        kept = now.pop(prop.property_id, None)
        if kept is None or arrow_type(kept.type) != arrow_type(prop.type):
            return False
    return all(prop.type.nullable and prop.default is None for prop in now.values())
