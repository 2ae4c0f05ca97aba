"""Planning a merge: what it would do to the target, type by type, and what is in its way.

Planning changes nothing. The executor writes exactly the change set that comes out of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import pyarrow as pa

from omnigraph.branching.delta import DELETE, INSERT
from omnigraph.branching.diff import ordered_types
from omnigraph.branching.spill import Spill
from omnigraph.branching.table_rows import TableRows
from omnigraph.branching.three_way import ConflictRules, Contested, TypeMerge, merge_type
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.plan import ChangeSet, Exchanged, TableChange
from omnigraph.commit.validation import validate
from omnigraph.effects.requests import concurrently
from omnigraph.model.changes import Image, image_values
from omnigraph.model.merging import (
    ConflictKind,
    MergeConflict,
    MergePlan,
    PlannedType,
    RowConflict,
)
from omnigraph.model.receipts import MergeOutcome
from omnigraph.schema.catalog import Catalog, table_schema
from omnigraph.schema.migration import MigrationPlan
from omnigraph.storage.reader import SnapshotReader

NO_IDS = pa.array([], pa.string())
NO_STEPS = MigrationPlan(())

CONFLICT_IMAGES_MAX = 1_000
"""Conflicts of one type that are shown with what each side has."""


@dataclass(frozen=True, eq=False)
class Sides:
    """The three snapshots of a merge, and what to call the two sides."""

    base: SnapshotReader
    source: SnapshotReader
    target: Capture
    source_name: str
    target_name: str
    outcome: MergeOutcome = "merged"
    schema: MigrationPlan = NO_STEPS
    """What the target's schema has more than the source's: base and source are read as if they had
    it."""

    def plan(
        self, types: Iterable[PlannedType] = (), conflicts: Iterable[MergeConflict] = ()
    ) -> MergePlan:
        """What is said of the merge."""
        return MergePlan(
            self.source_name,
            self.target_name,
            self.outcome,
            self.base.snapshot.commit_id,
            self.source.snapshot.commit_id,
            self.target.snapshot.commit_id,
            tuple(types),
            tuple(conflicts),
            tuple(step.to_json() for step in self.schema.steps),
        )


def merge_types(
    kernel: Kernel, catalog: Catalog, sides: Sides, rules: ConflictRules
) -> tuple[MergePlan, ChangeSet]:
    """What a merge would do, and the write that does it.

    The merged rows are held against the schema if they go together.

    Raises `LimitExceeded` for more changes than temporary files may hold.
    """
    spill = Spill()
    merges = [
        partial(
            merge_type,
            TableRows(sides.base, type),
            TableRows(sides.source, type),
            TableRows(sides.target.reader, type),
            rules,
            spill,
        )
        for type in ordered_types(catalog)
    ]
    found = concurrently(*merges, threads=kernel.is_remote)
    conflicts: list[MergeConflict] = [
        conflict for merge in found for conflict in _row_conflicts(merge, sides)
    ]
    conflicts.sort(key=lambda conflict: conflict.sort_key)
    changes = ChangeSet()
    if not conflicts:
        changes = ChangeSet(
            {merge.target.key: _change(merge, spill) for merge in found if not merge.is_empty}
        )
        conflicts += validate(changes, catalog, sides.target.reader, collect=True)
    planned = (_planned(merge, conflicts) for merge in found)
    shown = (
        each
        for each in planned
        if each.inserted or each.updated or each.deleted or each.conflicts or each.resolved
    )
    return sides.plan(shown, conflicts), changes


def _change(merge: TypeMerge, spill: Spill) -> TableChange:
    rows = spill.rows(table_schema(merge.target.type))
    for part in merge.source.complete(merge.taken):
        rows.add(part)
    if merge.mixed is not None:
        rows.add(merge.mixed)
    gone = np.concatenate([merge.replaced, merge.removed])
    exchanged = Exchanged(gone, pa.concat_arrays([NO_IDS, *merge.removed_ids.chunks]))
    return TableChange(merge.target.key, "exchange", rows.table(), exchanged=exchanged)


def _planned(merge: TypeMerge, conflicts: Sequence[MergeConflict]) -> PlannedType:
    return PlannedType(
        merge.target.kind,
        merge.target.type.name,
        merge.is_adopted,
        merge.inserted,
        merge.updated,
        merge.deleted,
        sum(conflict.table_key == merge.target.key for conflict in conflicts),
        merge.resolved,
    )


# --- conflicts ------------------------------------------------------------------------------------


def _row_conflicts(merge: TypeMerge, sides: Sides) -> Iterator[RowConflict]:
    contested = merge.conflicts
    if contested is None:
        return
    images = _images(merge, contested)
    kinds = list(contested.kinds())
    deleted_by_source = contested.source.ops == DELETE
    for at, id in enumerate(contested.source.ids.to_pylist()):
        base, source, target = images[at] if at < len(images) else (None, None, None)
        yield RowConflict(
            merge.target.kind,
            merge.target.type.name,
            id,
            kinds[at],
            _message(merge, id, kinds[at], bool(deleted_by_source[at]), sides),
            base,
            source,
            target,
            _disputed(source, target),
        )


def _message(
    merge: TypeMerge, id: str, kind: ConflictKind, deleted_by_source: bool, sides: Sides
) -> str:
    subject = f"{merge.target.type.name} '{id}' was"
    source, target = sides.source_name, sides.target_name
    if kind is ConflictKind.DIVERGENT_INSERT:
        return f"{subject} inserted differently on {source} and on {target}"
    if kind is ConflictKind.DIVERGENT_UPDATE:
        return f"{subject} updated differently on {source} and on {target}"
    if deleted_by_source:
        return f"{subject} deleted on {source} and updated on {target}"
    return f"{subject} updated on {source} and deleted on {target}"


def _images(
    merge: TypeMerge, contested: Contested
) -> list[tuple[Image | None, Image | None, Image | None]]:
    """What base, source and target have of the first conflicts."""
    source, target = contested.source, contested.target
    shown = slice(CONFLICT_IMAGES_MAX)
    there = (
        (merge.base, source.before[shown], source.ops[shown] != INSERT),
        (merge.source, source.after[shown], source.ops[shown] != DELETE),
        (merge.target, target.after[shown], target.ops[shown] != DELETE),
    )
    columns: list[list[Image | None]] = []
    for rows, positions, is_there in there:
        images = rows.images(positions[is_there], payloads=False)
        columns.append([next(images) if has else None for has in is_there])
    return list(zip(*columns, strict=True))


def _disputed(source: Image | None, target: Image | None) -> tuple[str, ...]:
    """The names of what two images disagree about."""
    if source is None or target is None:
        return ()
    mine, theirs = image_values(source), image_values(target)
    return tuple(name for name in mine if repr(mine[name]) != repr(theirs[name]))
