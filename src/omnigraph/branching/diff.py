"""Diffs: the entities that differ between two snapshots, on one branch or across branches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branching.delta import ChangedRows, TableDelta, table_delta
from omnigraph.branching.table_rows import ROWS_PER_READ, TableRows
from omnigraph.effects.side_by_side import SideBySide
from omnigraph.errors import ChangeDiffRefused, NotFound
from omnigraph.model.changes import (
    CHANGE_OPS,
    ChangeFilter,
    ChangeOp,
    Endpoints,
    EntityChange,
    Image,
    TypeCounts,
)
from omnigraph.model.text_table import TextTable
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.row_places import Positions
from omnigraph.storage.snapshot import Snapshot
from omnigraph.syntax.suggest import did_you_mean


@dataclass(frozen=True)
class GraphDiff:
    """What leads from one snapshot to another. Printing one shows how much of each type differs."""

    before: Snapshot
    after: Snapshot
    deltas: tuple[TableDelta, ...]
    """Of the types that differ, in the order their changes are listed in."""
    wanted: ChangeFilter

    @cached_property
    def types(self) -> tuple[TypeCounts, ...]:
        """How many entities of each type differ; types that do not are left out."""
        counted = (_counted(delta, self.wanted) for delta in self.deltas)
        return tuple(counts for counts in counted if counts.total)

    def __len__(self) -> int:
        return sum(counts.total for counts in self.types)

    def changes(self, *, images: bool = False) -> Iterator[EntityChange]:
        """Every change: nodes before edges, then by type and id; read as they are asked for."""
        for delta in self.deltas:
            yield from _changes(delta, self.wanted, images)

    def to_dict(self, *, images: bool = False) -> dict[str, Any]:
        """The JSON form, with every change in it."""
        return {
            "from": _end(self.before),
            "to": _end(self.after),
            "changes": [change.to_dict() for change in self.changes(images=images)],
            "stats": {
                "inserted": sum(counts.inserted for counts in self.types),
                "updated": sum(counts.updated for counts in self.types),
                "deleted": sum(counts.deleted for counts in self.types),
                "types": [counts.to_dict() for counts in self.types],
            },
        }

    def __str__(self) -> str:
        if not self.types:
            return "no differences"
        rows = [[f"{each.kind} {each.type_name}", *map(str, each.numbers)] for each in self.types]
        headers = ("type", "inserted", "updated", "deleted")
        return "\n".join(TextTable().lines(headers, rows, (False, True, True, True)))


def diff_snapshots(
    before: SnapshotReader,
    after: SnapshotReader,
    catalog: Catalog,
    at_once: AbstractContextManager[SideBySide],
    wanted: ChangeFilter,
) -> GraphDiff:
    """What differs between two snapshots.

    Raises `NotFound` for a filter on an unknown type, and `ChangeDiffRefused` when the schema
    changed between the two: a change of schema is not dressed up as changes of entities.
    """
    _check_filter(wanted, catalog)
    require_one_schema(before.snapshot, after.snapshot, catalog)
    pairs = [
        (TableRows(before, type), TableRows(after, type))
        for type in ordered_types(catalog)
        if wanted.wants_type("edge" if isinstance(type, EdgeType) else "node", type.name)
    ]
    with at_once as side:
        deltas = [side.start(partial(table_delta, *pair)) for pair in pairs]
    found = (delta() for delta in deltas)
    return GraphDiff(
        before.snapshot,
        after.snapshot,
        tuple(delta for delta in found if not delta.is_empty),
        wanted,
    )


def public_type_id(type: NodeType | EdgeType) -> str:
    """What identifies a type through its renames."""
    return f"{type.type_id}.{type.incarnation_id}"


def ordered_types(catalog: Catalog) -> list[NodeType | EdgeType]:
    """Nodes before edges, each in the order of their public ids."""
    return [
        *sorted(catalog.nodes.values(), key=public_type_id),
        *sorted(catalog.edges.values(), key=public_type_id),
    ]


def require_one_schema(before: Snapshot, after: Snapshot, catalog: Catalog) -> None:
    """Both snapshots have the types of ``catalog``, and the same ones."""
    for snapshot in (before, after):
        if snapshot.commit.schema_hash != catalog.schema_hash:
            raise ChangeDiffRefused("schema_boundary", snapshot.commit_id)
    for key, entry in after.tables.items():
        if before.table(key).identity != entry.identity:
            raise ChangeDiffRefused("schema_boundary", after.commit_id, entry.type_name)


def _check_filter(wanted: ChangeFilter, catalog: Catalog) -> None:
    known = sorted({*catalog.nodes, *catalog.edges})
    for name in sorted(wanted.types):
        if name not in known:
            raise NotFound(
                f"there is no type '{name}'",
                hint=did_you_mean(name, known) or f"the types are {', '.join(known)}",
                details={"type": name},
            )


def _counted(delta: TableDelta, wanted: ChangeFilter) -> TypeCounts:
    ops = set(wanted.wanted_ops())
    return TypeCounts(
        delta.after.kind,
        delta.after.type.name,
        inserted=len(delta.inserted) if "insert" in ops else 0,
        updated=len(delta.updated) if "update" in ops else 0,
        deleted=len(delta.deleted) if "delete" in ops else 0,
    )


def _changes(delta: TableDelta, wanted: ChangeFilter, images: bool) -> Iterator[EntityChange]:
    groups: Mapping[ChangeOp, ChangedRows] = {
        "insert": delta.inserted,
        "update": delta.updated,
        "delete": delta.deleted,
    }
    chosen = [(op, groups[op]) for op in wanted.wanted_ops() if len(groups[op])]
    if not chosen:
        return
    ids = pa.concat_arrays([rows.ids for _, rows in chosen])
    ops = np.concatenate([[CHANGE_OPS.index(op)] * len(rows) for op, rows in chosen])
    before = np.concatenate([rows.before for _, rows in chosen])
    after = np.concatenate([rows.after for _, rows in chosen])
    order = pc.sort_indices(ids).to_numpy()
    for start in range(0, len(order), ROWS_PER_READ):
        at = order[start : start + ROWS_PER_READ]
        part = _Part(delta, ids.take(pa.array(at)), ops[at], before[at], after[at])
        yield from part.with_images() if images else part.alone()


@dataclass(frozen=True)
class _Part:
    """Some changes of one type, in the order they are listed in."""

    delta: TableDelta
    ids: pa.Array
    ops: Any
    before: Positions
    after: Positions

    @property
    def was_there(self) -> Any:
        return self.ops != CHANGE_OPS.index("insert")

    @property
    def is_there(self) -> Any:
        return self.ops != CHANGE_OPS.index("delete")

    def with_images(self) -> Iterator[EntityChange]:
        before = self.delta.before.images(self.before[self.was_there])
        after = self.delta.after.images(self.after[self.is_there])
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


def _end(snapshot: Snapshot) -> dict[str, Any]:
    return {
        "graph_branch": snapshot.branch,
        "graph_commit_id": snapshot.commit_id,
        "graph_manifest_version": snapshot.commit.manifest_version,
    }
