"""Diffs: the entities that differ between two snapshots, on one branch or across branches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cached_property

import numpy as np
import pyarrow as pa

from omnigraph.branching.delta import DELETE, INSERT, Changes, TableDelta
from omnigraph.branching.moments import no_type
from omnigraph.branching.table_rows import ROWS_PER_READ, TableRows, chunked
from omnigraph.commit.schema.change import identity_of
from omnigraph.model.changes import (
    CHANGE_OPS,
    ChangeFilter,
    Endpoints,
    EntityChange,
    Image,
    TypeCounts,
)
from omnigraph.model.diffs import DiffEnd, DiffView
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.storage.manifest import Snapshot
from omnigraph.storage.manifest_rows import TableIdentity


@dataclass(frozen=True, slots=True)
class WantedTypes:
    """The types of a filter, resolved through renames.

    A name refers to the type that has it now, or else to the last type that had it.
    """

    wanted: ChangeFilter
    identities: frozenset[TableIdentity] = frozenset()
    """The named types; undefined if the filter names none."""

    @classmethod
    def of(cls, wanted: ChangeFilter, catalogs: Iterable[Catalog]) -> WantedTypes:
        """The types of a filter, looked up in the newest of ``catalogs`` that has them.

        ``catalogs`` are newest first, and are read until all names are found. Raises `NotFound` for
        a name that none of them has.
        """
        missing, named = set(wanted.types), set[TableIdentity]()
        known: list[str] = []
        if missing:
            for catalog in catalogs:
                known = known or sorted({type.name for type in catalog.types})
                found = [type for type in catalog.types if type.name in missing]
                named |= {identity_of(type) for type in found}
                missing -= {type.name for type in found}
                if not missing:
                    break
        for name in sorted(missing):
            raise no_type(name, known)
        return cls(wanted, frozenset(named))

    def wants(self, type: NodeType | EdgeType) -> bool:
        """Whether changes of a current or former type are wanted."""
        kinds = self.wanted.kinds
        if kinds and ("edge" if isinstance(type, EdgeType) else "node") not in kinds:
            return False
        return not self.wanted.types or identity_of(type) in self.identities


@dataclass(frozen=True, repr=False)
class GraphDiff(DiffView):
    """The differences from one snapshot to another. Printed, it shows counts per type."""

    before: Snapshot
    after: Snapshot
    deltas: tuple[TableDelta, ...]
    """The types that differ, in the order in which their changes are listed."""
    wanted: ChangeFilter
    direct: bool = False
    """Whether the caller named both ends; otherwise the first is a merge base."""

    @property
    def ends(self) -> tuple[DiffEnd, DiffEnd]:
        """The commits at both ends."""
        return _end(self.before), _end(self.after)

    @cached_property
    def types(self) -> tuple[TypeCounts, ...]:
        """The numbers of differing entities per type; unchanged types are left out."""
        counted = (_counts(delta, self.wanted) for delta in self.deltas)
        return tuple(counts for counts in counted if counts.total)

    def changes(self, *, images: bool = False) -> Iterator[EntityChange]:
        """Every change, read lazily: nodes before edges, then by type and id."""
        for delta in self.deltas:
            listed = ListedChanges.of(delta, self.wanted)
            yield from listed.read(images=images, payloads=False)


def public_type_id(type: NodeType | EdgeType) -> str:
    """The identity of a type, which renames do not change."""
    return f"{type.type_id}.{type.incarnation_id}"


def ordered_types(catalog: Catalog) -> list[NodeType | EdgeType]:
    """The types: nodes before edges, each in the order of public ids."""
    return [
        *sorted(catalog.nodes.values(), key=public_type_id),
        *sorted(catalog.edges.values(), key=public_type_id),
    ]


def _counts(delta: TableDelta, wanted: ChangeFilter) -> TypeCounts:
    ops = set(wanted.wanted_ops())
    counts = [delta.changes.count(code) if op in ops else 0 for code, op in enumerate(CHANGE_OPS)]
    return TypeCounts(delta.after.kind, delta.after.type.name, *counts)


@dataclass(frozen=True, eq=False)
class ListedChanges:
    """The wanted changes of one type, by id in ascending order."""

    delta: TableDelta
    changes: Changes

    @classmethod
    def of(cls, delta: TableDelta, wanted: ChangeFilter) -> ListedChanges:
        """The changes of a delta with a wanted operation."""
        ops = [CHANGE_OPS.index(op) for op in wanted.wanted_ops()]
        changes = delta.changes
        if len(ops) < len(CHANGE_OPS):
            changes = changes.chosen(np.isin(changes.ops, ops))
        return cls(delta, changes)

    def __len__(self) -> int:
        return len(self.changes)

    @property
    def rows(self) -> TableRows:
        """The rows of the type in the newer version."""
        return self.delta.after

    @property
    def ids(self) -> pa.ChunkedArray:
        """The ids of the entities."""
        return self.changes.ids

    def read(
        self,
        start: int = 0,
        *,
        images: bool = False,
        payloads: bool = True,
        rows_per_read: int = ROWS_PER_READ,
    ) -> Iterator[EntityChange]:
        """The changes from index ``start`` on; ``rows_per_read`` are held at once.

        Images without ``payloads`` show sizes and digests of blobs instead of their bytes.
        """
        rows = self.rows
        type_id = public_type_id(rows.type)
        for places in chunked(np.arange(start, len(self)), rows_per_read):
            part = self.changes.at(places)
            shown = self._images(part, payloads) if images else self._endpoints(part)
            for id, op, (ends, *states) in zip(part.ids.to_pylist(), part.ops, shown, strict=True):
                yield EntityChange(
                    rows.kind, type_id, rows.type.name, id, CHANGE_OPS[op], ends, *states
                )

    def _images(self, part: Changes, payloads: bool) -> Iterator[_Shown]:
        was_there, is_there = part.ops != INSERT, part.ops != DELETE
        before = self.delta.before.images(part.before[was_there], payloads=payloads)
        after = self.delta.after.images(part.after[is_there], payloads=payloads)
        for op in part.ops:
            old = next(before) if op != INSERT else None
            new = next(after) if op != DELETE else None
            shown = new or old
            assert shown is not None
            yield shown.endpoints, old, new

    def _endpoints(self, part: Changes) -> list[_Shown]:
        found: list[_Shown] = [(None, None, None)] * len(part)
        if self.delta.after.kind == "edge":
            gone = part.ops == DELETE
            sides = (self.delta.before, part.before, gone), (self.delta.after, part.after, ~gone)
            for rows, positions, mask in sides:
                if mask.any():
                    ends = rows.endpoints(positions[mask])
                    for at, each in zip(np.flatnonzero(mask), ends, strict=True):
                        found[at] = (each, None, None)
        return found


_Shown = tuple[Endpoints | None, Image | None, Image | None]
"""The ends of an edge, and the images of an entity before and after a change."""


def _end(snapshot: Snapshot) -> DiffEnd:
    return DiffEnd(snapshot.branch, snapshot.commit_id, snapshot.commit.manifest_version)
