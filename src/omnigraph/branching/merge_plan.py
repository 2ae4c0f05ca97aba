"""Planning a merge: what it would do to the target, type by type, and what is in its way.

Planning changes nothing. What comes out of it can be written once there are no conflicts: files of
fragments that are taken over as a whole are copied, other rows are written, and the executor
commits exactly that.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from omnigraph.branching.delta import DELETE, INSERT
from omnigraph.branching.diff import ordered_types
from omnigraph.branching.table_rows import TableRows
from omnigraph.branching.three_way import (
    ConflictRules,
    Contested,
    TypeSides,
)
from omnigraph.branching.workers import Choose, InProcess, TypeMerge, Workers
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.plan import ChangeSet, TableChange, WrittenRows
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
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.migration import MigrationPlan
from omnigraph.storage.datasets import DatasetRef
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.written import TablePlace, copy_written

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


@dataclass(frozen=True, eq=False)
class MergeWrite:
    """What a merge without conflicts writes; nothing of it is there yet."""

    kernel: Kernel
    target: Capture
    merges: tuple[TypeMerge, ...] = ()
    workers: Workers | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no table changes."""
        return not self.merges

    def change_set(self) -> ChangeSet:
        """Copy what is taken as a whole, let workers write the rest, and describe the commit.

        From here on the source is not read any more. What was written is not visible, and files
        that no commit lists are removed by `cleanup`.
        """
        if self.workers is None:
            return ChangeSet()
        places = {merge.target.key: self._place(merge) for merge in self.merges}
        changes = self.workers.written(self.merges, places)
        for merge in self.merges:
            if merge.whole:
                key = merge.target.key
                changes[key] = self._with_copies(changes[key], merge, places[key].address)
        return ChangeSet(changes)

    def _place(self, merge: TypeMerge) -> TablePlace:
        entry, ref = merge.target.entry, self.target.branch.where.ref
        address = DatasetRef(self.kernel.table_uri(entry.location), ref).address
        return TablePlace.of(merge.target.handle, address, replaces=False)

    def _with_copies(self, change: TableChange, merge: TypeMerge, address: str) -> TableChange:
        store, mint = self.kernel.store, self.kernel.ids.ulid
        copies = concurrently(
            *(
                partial(copy_written, store, each.description, each.address, address, mint)
                for each in merge.whole
            ),
            threads=self.kernel.is_remote,
        )
        fragments = () if change.written is None else change.written.fragments
        return replace(change, written=WrittenRows((*copies, *fragments)))


def merge_types(
    kernel: Kernel,
    catalog: Catalog,
    sides: Sides,
    rules: ConflictRules,
    choose: Choose | None = None,
) -> tuple[MergePlan, MergeWrite]:
    """What a merge would do, and the write that does it.

    The merged rows are held against the schema if they go together. Without ``choose``, this
    process does all of it.

    Raises `LimitExceeded` for more changes than temporary files may hold.
    """
    types = [
        TypeSides(
            TableRows(sides.base, type),
            TableRows(sides.source, type),
            TableRows(sides.target.reader, type),
        )
        for type in ordered_types(catalog)
    ]
    workers: Workers = InProcess(kernel)
    if choose is not None:
        workers = choose([versions for each in types for versions in each.changed_sides])
    compared = workers.compare(types, rules)
    found = [TypeMerge.of(*each) for each in zip(types, compared, strict=True)]
    conflicts: list[MergeConflict] = [
        conflict for merge in found for conflict in _row_conflicts(merge, sides)
    ]
    conflicts.sort(key=lambda conflict: conflict.sort_key)
    write = MergeWrite(kernel, sides.target)
    if not conflicts:
        merges = tuple(merge for merge in found if not merge.rows.is_empty)
        conflicts += workers.violations(merges, catalog, sides.target)
        write = MergeWrite(kernel, sides.target, merges, workers)
    planned = (_planned(merge, conflicts) for merge in found)
    shown = (
        each
        for each in planned
        if each.inserted or each.updated or each.deleted or each.conflicts or each.resolved
    )
    return sides.plan(shown, conflicts), write


def _planned(merge: TypeMerge, conflicts: Sequence[MergeConflict]) -> PlannedType:
    rows = merge.rows
    return PlannedType(
        merge.target.kind,
        merge.target.type.name,
        rows.is_adopted,
        rows.inserted,
        rows.updated,
        rows.deleted,
        sum(conflict.table_key == merge.target.key for conflict in conflicts),
        rows.resolved,
    )


# --- conflicts ------------------------------------------------------------------------------------


def _row_conflicts(merge: TypeMerge, sides: Sides) -> Iterator[RowConflict]:
    contested = merge.rows.conflicts
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
        (merge.sides.base, source.before[shown], source.ops[shown] != INSERT),
        (merge.sides.source, source.after[shown], source.ops[shown] != DELETE),
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
