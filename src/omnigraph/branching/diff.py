"""Diffs: the entities that differ between two snapshots, on one branch or across branches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from omnigraph.branching.delta import TableDelta
from omnigraph.branching.moments import types_of
from omnigraph.branching.table_rows import ROWS_PER_READ
from omnigraph.commit.schema.change import identity_of
from omnigraph.errors import NotFound
from omnigraph.model.changes import (
    CHANGE_OPS,
    ChangeFilter,
    ChangeOp,
    Endpoints,
    EntityChange,
    Image,
    TypeCounts,
)
from omnigraph.model.diffs import DiffEnd, DiffView
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.storage.fragments import Positions
from omnigraph.storage.manifest import Snapshot
from omnigraph.storage.manifest_rows import TableIdentity
from omnigraph.syntax.suggest import did_you_mean


@dataclass(frozen=True, slots=True)
class WantedTypes:
    """The types of a filter, under whatever names they had or will have.

    A name means the type that has it today, and if there is none, the last one that had it.
    """

    wanted: ChangeFilter
    identities: frozenset[TableIdentity] = frozenset()
    """Of the types that are named; of no meaning if none is."""

    @classmethod
    def of(cls, wanted: ChangeFilter, catalogs: Iterable[Catalog]) -> WantedTypes:
        """The types of a filter, looked up in the newest of ``catalogs`` that has them.

        They come newest first, and are asked for only as far as names are not known yet. Raises
        `NotFound` for a name that none of them has.
        """
        missing, named = set(wanted.types), set[TableIdentity]()
        known: list[str] = []
        if missing:
            for catalog in catalogs:
                known = known or sorted({type.name for type in types_of(catalog)})
                found = [type for type in types_of(catalog) if type.name in missing]
                named |= {identity_of(type) for type in found}
                missing -= {type.name for type in found}
                if not missing:
                    break
        for name in sorted(missing):
            raise NotFound(
                f"there is no type '{name}'",
                hint=did_you_mean(name, known) or f"the types are {', '.join(known)}",
                details={"type": name},
            )
        return cls(wanted, frozenset(named))

    def wants(self, type: NodeType | EdgeType) -> bool:
        """Whether changes of a type, of today or of the past, are wanted."""
        kinds = self.wanted.kinds
        if kinds and ("edge" if isinstance(type, EdgeType) else "node") not in kinds:
            return False
        return not self.wanted.types or identity_of(type) in self.identities


@dataclass(frozen=True, repr=False)
class GraphDiff(DiffView):
    """What leads from one snapshot to another. Printing one shows how much of each type differs."""

    before: Snapshot
    after: Snapshot
    deltas: tuple[TableDelta, ...]
    """Of the types that differ, in the order their changes are listed in."""
    wanted: ChangeFilter

    @property
    def ends(self) -> tuple[DiffEnd, DiffEnd]:
        """The commit it starts from, and the one it leads to."""
        return _end(self.before), _end(self.after)

    @cached_property
    def types(self) -> tuple[TypeCounts, ...]:
        """How many entities of each type differ; types that do not are left out."""
        counted = (_counts(delta, self.wanted) for delta in self.deltas)
        return tuple(counts for counts in counted if counts.total)

    def changes(self, *, images: bool = False) -> Iterator[EntityChange]:
        """Every change: nodes before edges, then by type and id; read as they are asked for."""
        for delta in self.deltas:
            listed = ListedChanges.of(delta, self.wanted)
            yield from listed.read(images=images, payloads=False)


def public_type_id(type: NodeType | EdgeType) -> str:
    """What identifies a type through its renames."""
    return f"{type.type_id}.{type.incarnation_id}"


def ordered_types(catalog: Catalog) -> list[NodeType | EdgeType]:
    """Nodes before edges, each in the order of their public ids."""
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
    ids: pa.ChunkedArray
    ops: Any
    before: Positions
    after: Positions

    @classmethod
    def of(cls, delta: TableDelta, wanted: ChangeFilter) -> ListedChanges:
        """The changes of a delta whose operation is wanted."""
        ops = [CHANGE_OPS.index(op) for op in wanted.wanted_ops()]
        chosen = delta.changes
        if len(ops) < len(CHANGE_OPS):
            chosen = chosen.chosen(np.isin(chosen.ops, ops))
        return cls(delta, chosen.ids, chosen.ops, chosen.before, chosen.after)

    def __len__(self) -> int:
        return len(self.ids)

    def read(
        self,
        start: int = 0,
        *,
        images: bool = False,
        payloads: bool = True,
        rows_per_read: int = ROWS_PER_READ,
    ) -> Iterator[EntityChange]:
        """The changes from one place of the list on; ``rows_per_read`` are held at once.

        Images without ``payloads`` show sizes and digests of blobs instead of their bytes.
        """
        for first in range(start, len(self), rows_per_read):
            at = slice(first, first + rows_per_read)
            part = _Part(self.delta, self.ids[at], self.ops[at], self.before[at], self.after[at])
            yield from part.with_images(payloads) if images else part.alone()


@dataclass(frozen=True)
class _Part:
    """Some changes of one type, in the order they are listed in."""

    delta: TableDelta
    ids: pa.ChunkedArray
    ops: Any
    before: Positions
    after: Positions

    @property
    def was_there(self) -> Any:
        return self.ops != CHANGE_OPS.index("insert")

    @property
    def is_there(self) -> Any:
        return self.ops != CHANGE_OPS.index("delete")

    def with_images(self, payloads: bool) -> Iterator[EntityChange]:
        before = self.delta.before.images(self.before[self.was_there], payloads=payloads)
        after = self.delta.after.images(self.after[self.is_there], payloads=payloads)
        for id, op in zip(self.ids.to_pylist(), self.ops, strict=True):
            old = next(before) if CHANGE_OPS[op] != "insert" else None
            new = next(after) if CHANGE_OPS[op] != "delete" else None
            shown = new or old
            assert shown is not None
            yield self._change(id, CHANGE_OPS[op], shown.endpoints, old, new)

    def alone(self) -> Iterator[EntityChange]:
        ends = iter(self._endpoints())
        for id, op in zip(self.ids.to_pylist(), self.ops, strict=True):
            yield self._change(id, CHANGE_OPS[op], next(ends))

    def _endpoints(self) -> list[Endpoints | None]:
        found: list[Endpoints | None] = [None] * len(self.ids)
        if self.delta.after.kind == "node":
            return found
        gone = np.flatnonzero(~self.is_there)
        there = np.flatnonzero(self.is_there)
        sides = (
            (self.delta.before, self.before, gone),
            (self.delta.after, self.after, there),
        )
        for rows, positions, chosen in sides:
            if len(chosen):
                for at, ends in zip(chosen, rows.endpoints(positions[chosen]), strict=True):
                    found[at] = ends
        return found

    def _change(
        self,
        id: str,
        op: ChangeOp,
        endpoints: Endpoints | None,
        before: Image | None = None,
        after: Image | None = None,
    ) -> EntityChange:
        rows = self.delta.after
        type_id = public_type_id(rows.type)
        return EntityChange(rows.kind, type_id, rows.type.name, id, op, endpoints, before, after)


def _end(snapshot: Snapshot) -> DiffEnd:
    return DiffEnd(snapshot.branch, snapshot.commit_id, snapshot.commit.manifest_version)
