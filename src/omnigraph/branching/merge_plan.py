"""Planning a merge: what it would do to the target, type by type, and what is in its way.

Planning changes nothing. What comes out of it can be written once there are no conflicts: files of
fragments that are taken over as a whole are copied, other rows are written, and the executor
commits exactly that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Protocol

import numpy as np
import pyarrow as pa

from omnigraph.branching.delta import DELETE, INSERT
from omnigraph.branching.diff import ordered_types
from omnigraph.branching.spill import Spill
from omnigraph.branching.table_rows import TableRows
from omnigraph.branching.three_way import (
    NO_POSITIONS,
    ConflictRules,
    Contested,
    MergedRows,
    TypeSides,
)
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.plan import ChangeSet, Exchanged, TableChange, WrittenRows
from omnigraph.commit.validation import checked_columns, validate
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
from omnigraph.storage.datasets import DatasetRef
from omnigraph.storage.fragments import Positions
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.row_places import WholeFragment, whole_fragments
from omnigraph.storage.written import TablePlace, copy_written

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


@dataclass(frozen=True, eq=False)
class TypeMerge:
    """What a merge does to one type: rows that are taken over as whole fragments, and the rest."""

    sides: TypeSides
    rows: MergedRows
    whole: tuple[WholeFragment, ...] = ()
    """Fragments of the source whose files are copied to the target as they are."""
    rest: Positions = field(default_factory=lambda: NO_POSITIONS)
    """Rows of the source that are taken, and are in none of these."""

    @classmethod
    def of(cls, sides: TypeSides, rows: MergedRows) -> TypeMerge:
        """Find the fragments that are taken as a whole."""
        source, target = sides.source, sides.target
        if not len(rows.taken) or not source.reader.columns(source.key).is_same:
            return cls(sides, rows, rest=rows.taken)
        whole, rest = whole_fragments(source.handle, rows.taken, target.handle)
        return cls(sides, rows, tuple(whole), rest)

    @property
    def target(self) -> TableRows:
        """The type as the target has it."""
        return self.sides.target

    @property
    def exchanged(self) -> Exchanged:
        """What makes room in the target."""
        gone = np.concatenate([self.rows.replaced, self.rows.removed])
        return Exchanged(gone, pa.concat_arrays([NO_IDS, *self.rows.removed_ids.chunks]))

    def change(self, rows: pa.Table) -> TableChange:
        """The change of the table that writes ``rows``."""
        return TableChange(self.target.key, "exchange", rows, exchanged=self.exchanged)


class MergeWorkers(Protocol):
    """Who compares, checks and writes the rows of a merge: this process, or several others."""

    def compare(self, sides: Sequence[TypeSides], rules: ConflictRules) -> Sequence[MergedRows]:
        """What the merge does to each type."""
        ...

    def violations(
        self, merges: Sequence[TypeMerge], catalog: Catalog, target: Capture
    ) -> Sequence[MergeConflict]:
        """What the merged rows would break; nothing is written for it."""
        ...

    def written(
        self, merges: Sequence[TypeMerge], places: Mapping[str, TablePlace]
    ) -> dict[str, TableChange]:
        """The change of each table, by type key; its rows may have been written to its place."""
        ...


class InProcess:
    """Rows are read once, kept within a budget of memory, and written by the commit."""

    def __init__(self, kernel: Kernel) -> None:
        self._threads = kernel.is_remote
        self._spill = Spill()
        self._rows: dict[str, pa.Table] = {}

    def compare(self, sides: Sequence[TypeSides], rules: ConflictRules) -> Sequence[MergedRows]:
        """Type by type; at once where requests have latency."""
        work = [partial(each.merged, rules, self._spill) for each in sides]
        return concurrently(*work, threads=self._threads)

    def violations(
        self, merges: Sequence[TypeMerge], catalog: Catalog, target: Capture
    ) -> Sequence[MergeConflict]:
        """Hold the merged rows against the schema; of whole fragments, only what it looks at."""
        changes: dict[str, TableChange] = {}
        for merge in merges:
            rows = self._rows[merge.target.key] = self._collected(merge)
            if merge.whole:
                columns = checked_columns(merge.target.type)
                read = self._spill.rows(pa.schema(rows.schema.field(name) for name in columns))
                for fragment in merge.whole:
                    for part in merge.sides.source.columns_of(fragment.positions, columns):
                        read.add(part)
                rows = pa.concat_tables([read.table(), rows.select(columns)])
            changes[merge.target.key] = merge.change(rows)
        return validate(ChangeSet(changes), catalog, target.reader, collect=True)

    def written(
        self, merges: Sequence[TypeMerge], places: Mapping[str, TablePlace]
    ) -> dict[str, TableChange]:
        """The rows in memory, or in the files that stand in for it."""
        return {
            merge.target.key: merge.change(self._rows.pop(merge.target.key)) for merge in merges
        }

    def _collected(self, merge: TypeMerge) -> pa.Table:
        """The complete rows that are not in whole fragments."""
        rows = self._spill.rows(table_schema(merge.target.type))
        for part in merge.sides.source.complete(merge.rest):
            rows.add(part)
        if merge.rows.mixed is not None:
            rows.add(merge.rows.mixed)
        return rows.table()


@dataclass(frozen=True, eq=False)
class MergeWrite:
    """What a merge without conflicts writes; nothing of it is there yet."""

    kernel: Kernel
    target: Capture
    merges: tuple[TypeMerge, ...] = ()
    workers: MergeWorkers | None = None

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
    choose: Callable[[Sequence[TypeSides]], MergeWorkers] | None = None,
) -> tuple[MergePlan, MergeWrite]:
    """What a merge would do, and the write that does it.

    The merged rows are held against the schema if they go together. ``choose`` names the workers
    for some types, once it is known which have to be compared.

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
    workers = InProcess(kernel) if choose is None else choose(types)
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
