"""Planning a merge: its changes of the target, type by type, and its conflicts.

Planning changes nothing. A plan without conflicts can be written: the files of whole fragments are
copied, other rows are written, and the executor commits exactly these.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field, replace
from functools import cached_property, partial

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branching.delta import (
    DELETE,
    INSERT,
    NO_CHANGES,
    UPDATE,
    Changes,
    TableDelta,
    id_ranges,
)
from omnigraph.branching.diff import ListedChanges, ordered_types, public_type_id
from omnigraph.branching.spill import Spill
from omnigraph.branching.table_rows import (
    NARROW_ROWS_PER_READ,
    RowsAt,
    TableRows,
    chunked,
    same_blobs,
)
from omnigraph.branching.three_way import (
    ConflictRules,
    Contested,
    TypeRules,
    TypeSides,
)
from omnigraph.branching.workers import Choose, InProcess, TypeMerge, Workers
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.plan import ChangeSet, TableChange, WrittenRows
from omnigraph.effects.requests import concurrently
from omnigraph.errors import InternalError
from omnigraph.model.arrow import ID
from omnigraph.model.changes import Image, image_values
from omnigraph.model.merging import (
    ROW_CONFLICTS,
    ConflictKind,
    MergeConflict,
    MergePlan,
    PlannedChange,
    PlannedType,
    RowConflict,
)
from omnigraph.model.receipts import MergeOutcome
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog, table_schema
from omnigraph.schema.migration import MigrationPlan
from omnigraph.storage.fragments import Positions
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.row_places import PLACES
from omnigraph.storage.transactions import DatasetRef
from omnigraph.storage.written import TablePlace, copy_written
from omnigraph.views import View, ViewedReader, WriteRights, denied_property

NO_STEPS = MigrationPlan(())

PLANNED = pa.schema(
    [(ID, pa.string()), ("op", pa.int8()), ("before", pa.int64()), ("after", pa.int64())]
)
"""Entities that a merge changes: their row positions in the target and in the source."""

CONFLICT_IMAGES_MAX = 1_000
"""Conflicts per type that are shown with the values of each side."""


@dataclass(frozen=True, eq=False)
class Sides:
    """The three snapshots of a merge, and the names of the two sides."""

    base: SnapshotReader
    source: SnapshotReader
    target: Capture
    source_name: str
    target_name: str
    outcome: MergeOutcome = "merged"
    schema: MigrationPlan = NO_STEPS
    """The steps from the source's schema to the target's, in which base and source are read."""
    base_there: SnapshotReader | None = None
    """The base in the target's graph, if the source belongs to another graph."""

    def plan(
        self, types: Iterable[PlannedType] = (), conflicts: Iterable[MergeConflict] = ()
    ) -> MergePlan:
        """The plan of these types and conflicts."""
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

    def seen_by(self, view: View) -> Sides:
        """The same merge restricted to a view; only for planning."""
        return replace(
            self,
            base=ViewedReader(self.base, view),
            source=ViewedReader(self.source, view),
            target=replace(self.target, reader=ViewedReader(self.target.reader, view)),
            schema=MigrationPlan(tuple(filter(view.shows_step, self.schema.steps))),
        )


@dataclass(frozen=True, eq=False)
class MergeWrite:
    """The writes of a merge without conflicts; nothing is written yet."""

    kernel: Kernel
    target: Capture
    merges: tuple[TypeMerge, ...] = ()
    workers: Workers | None = None

    @property
    def is_empty(self) -> bool:
        """Whether no table changes."""
        return not self.merges

    def change_set(self) -> ChangeSet:
        """Copy whole fragments, let workers write the other rows, and return the commit's changes.

        Afterwards the source is no longer read. The files are not visible until the commit;
        `cleanup` removes files that no commit lists.
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


@dataclass(frozen=True, eq=False)
class PlannedMerge:
    """A plan without its list of entities, and that list, computed lazily."""

    plan: MergePlan
    merges: tuple[TypeMerge, ...] = ()
    rules: ConflictRules = field(default_factory=ConflictRules)

    @cached_property
    def lists(self) -> tuple[PlannedChanges, ...]:
        """The entities by type, nodes before edges; computed on first use."""
        spill = Spill()
        return tuple(PlannedChanges.of(merge, self.rules, spill) for merge in self.merges)


def merge_types(
    kernel: Kernel,
    catalog: Catalog,
    sides: Sides,
    rules: ConflictRules,
    choose: Choose | None = None,
) -> tuple[PlannedMerge, MergeWrite]:
    """The plan of a merge, and its writes.

    The merged rows are validated against the schema, twice if entities conflict: with the target's
    and with the source's values. So the plan lists all violations, whichever side will win. Without
    ``choose``, this process does all of it.

    Raises `LimitExceeded` if the changes exceed the limit of temporary files.
    """
    types = [
        TypeSides(
            TableRows(sides.base, type),
            TableRows(sides.source, type),
            TableRows(sides.target.reader, type),
            None if sides.base_there is None else TableRows(sides.base_there, type),
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
    merges = tuple(merge for merge in found if not merge.rows.is_empty)
    write = MergeWrite(kernel, sides.target, merges, workers)
    violations = list(workers.violations(merges, catalog, sides.target))
    if conflicts:
        won = (TypeMerge.of(each.sides, each.rows.won_by_source()) for each in found)
        taken = [merge for merge in won if not merge.rows.is_empty]
        violations += workers.violations(taken, catalog, sides.target)
        write = MergeWrite(kernel, sides.target)
    conflicts += dict.fromkeys(violations)
    planned = (_planned(merge, conflicts) for merge in found)
    shown = (
        each
        for each in planned
        if each.inserted or each.updated or each.deleted or each.conflicts or each.resolved
    )
    return PlannedMerge(sides.plan(shown, conflicts), merges, rules), write


def plan_types(
    kernel: Kernel,
    catalog: Catalog,
    sides: Sides,
    rules: ConflictRules,
    choose: Choose | None = None,
    *,
    view: View | None = None,
) -> PlannedMerge:
    """The visible part of the plan of a merge; nothing is written.

    It is the plan of the graph without hidden data. If the whole graph has a further conflict, only
    `MergePlan.is_blocked_by_hidden` shows that.
    """
    whole, _ = merge_types(kernel, catalog, sides, rules, choose)
    return whole if view is None else _seen(kernel, whole, sides, rules, view)


def _seen(
    kernel: Kernel, whole: PlannedMerge, sides: Sides, rules: ConflictRules, view: View
) -> PlannedMerge:
    """The visible part of a planned merge."""
    seen, _ = merge_types(kernel, view.catalog, sides.seen_by(view), rules)
    told = set(map(_subject_of, seen.plan.conflicts))
    is_blocked = any(_subject_of(each) not in told for each in whole.plan.conflicts)
    return replace(seen, plan=replace(seen.plan, is_blocked_by_hidden=is_blocked))


def require_mergeable(
    kernel: Kernel,
    sides: Sides,
    rules: ConflictRules,
    planned: PlannedMerge,
    rights: WriteRights | None,
    *,
    hint: str | None = None,
) -> None:
    """Raise `MergeConflicts` with the visible ones, and `Denied` for changes that are not granted.

    If the rules of an actor are limited to types, they must grant and show every entity, both as it
    is in the target and as it becomes. ``hint`` is for conflicts.
    """
    if rights is None or rights.read is None or not planned.plan.conflicts:
        planned.plan.require_no_conflicts(hint)
    else:
        _seen(kernel, planned, sides, rules, rights.read).plan.require_no_conflicts(hint)
        raise InternalError("a conflict of a merge is neither shown nor counted as hidden")
    if rights is None:
        return
    viewed = sides if rights.read is None else sides.seen_by(rights.read)
    for merge in planned.merges:
        rights.require_brought_type(merge.target.type)
    for listed in planned.lists:
        for places in chunked(np.arange(len(listed.changes)), NARROW_ROWS_PER_READ):
            _require_brought(listed, listed.changes.at(places), rights, viewed)


def _require_brought(
    listed: PlannedChanges, part: Changes, rights: WriteRights, viewed: Sides
) -> None:
    """Check entities of one type against the rules of an actor."""
    rows, type = listed.merge.rows, listed.rows.type
    source, target, names = listed.merge.sides.source, listed.rows, rights.columns_brought(type)
    is_mixed = np.zeros(len(part), np.bool_)
    afters = []
    if rows.mixed is not None:
        at = pc.index_in(part.ids, value_set=rows.mixed[ID])
        is_mixed = at.is_valid().to_numpy(zero_copy_only=False) & (part.ops != DELETE)
        afters.append(rows.mixed.select(names).take(at.filter(pa.array(is_mixed))))
    was_there, is_taken = part.ops != INSERT, (part.ops != DELETE) & ~is_mixed
    afters += source.columns_of(part.after[is_taken], names)
    nothing = pa.schema(table_schema(type).field(name) for name in names).empty_table()
    before = pa.concat_tables([nothing, *target.columns_of(part.before[was_there], names)])
    after = pa.concat_tables([nothing, *afters])
    rights.require_brought(type, before, after, viewed.target.reader, viewed.source)
    for name in rights.blobs_brought(type):
        updates, inserts = part.ops == UPDATE, part.ops == INSERT
        pairs = RowsAt(target, part.before[updates]), RowsAt(source, part.after[updates])
        new = RowsAt(source, part.after[inserts]).blobs(name) if inserts.any() else ()
        if not same_blobs(*pairs, name).all() or any(each is not None for each in new):
            raise denied_property(type.name)


def _subject_of(conflict: MergeConflict) -> tuple[str, str, str]:
    """The subject of a conflict: the values of an entity, or a constraint that it violates."""
    kind = "values" if conflict.kind in ROW_CONFLICTS else conflict.kind
    return conflict.table_key, conflict.entity_id or "", kind


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


# --- the list of entities -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class PlannedChanges:
    """The entities of one type that a merge changes, by id in ascending order."""

    merge: TypeMerge
    rules: TypeRules
    changes: Changes
    """From the target's rows to the source's, also where properties of both are mixed."""

    @classmethod
    def of(cls, merge: TypeMerge, rules: ConflictRules, spill: Spill) -> PlannedChanges:
        """Look up the ids of the inserted, updated and deleted rows."""
        listed, source = spill.rows(PLANNED), merge.sides.source
        replaced = spill.rows(pa.schema([table_schema(merge.target.type).field(ID)]))
        for part in merge.target.columns_of(merge.rows.replaced, [ID]):
            replaced.add(part)
        gone = replaced.table()[ID]

        def add(ids: pa.ChunkedArray, after: Positions) -> None:
            at = pc.index_in(ids, value_set=gone)
            is_new = at.is_null().to_numpy(zero_copy_only=False)
            before = merge.rows.replaced[at.fill_null(0).to_numpy()] if len(gone) else after
            ops = np.where(is_new, INSERT, UPDATE).astype(np.int8)
            listed.add(pa.table([ids, ops, before, after], schema=PLANNED))

        for positions in chunked(merge.rows.taken, NARROW_ROWS_PER_READ):
            for part in source.columns_of(positions, [ID]):
                add(part[ID], positions)
        if merge.rows.mixed is not None:
            add(merge.rows.mixed[ID], merge.rows.mixed_source)
        removed = merge.rows.removed
        ops = np.full(len(removed), DELETE, np.int8)
        listed.add(pa.table([merge.rows.removed_ids, ops, removed, removed], schema=PLANNED))
        return cls(merge, rules.of_type(source.type.name), _by_id(listed.table(), spill))

    @property
    def rows(self) -> TableRows:
        """The rows of the type in the target."""
        return self.merge.target

    @property
    def ids(self) -> pa.ChunkedArray:
        """The ids of the entities."""
        return self.changes.ids

    def read(
        self, start: int, *, images: bool, payloads: bool, rows_per_read: int
    ) -> Iterator[PlannedChange]:
        """The entities from index ``start`` on, with the changes of each."""
        type_id = public_type_id(self.rows.type)
        for places in chunked(np.arange(start, len(self.changes)), rows_per_read):
            part = self.changes.at(places)
            delta = TableDelta(self.rows, self.merge.sides.source, part, PLACES.empty_table())
            shown = ListedChanges(delta, part).read()
            names = iter(self._changed(part.chosen(part.ops == UPDATE)))
            for change in shown:
                properties = next(names) if change.op == "update" else ()
                yield PlannedChange(
                    self.rows.kind,
                    type_id,
                    self.rows.type.name,
                    change.id,
                    change.op,
                    change.endpoints,
                    properties,
                )

    def _changed(self, updates: Changes) -> Iterator[tuple[str, ...]]:
        """The names of the properties that change in each updated entity."""
        if not len(updates):
            return
        target = self.rows.images(updates.before, payloads=False)
        source = self.merge.sides.source.images(updates.after, payloads=False)
        base = [self._mixed_from.get(at) for at in updates.after.tolist()]
        known = np.array([at for at in base if at is not None], np.int64)
        bases = self.merge.sides.base.images(known, payloads=False)
        for id, old, new, mixed in zip(updates.ids, target, source, base, strict=True):
            names = disputed(old, new)
            if mixed is not None:
                start = next(bases)
                by_source, by_target = disputed(start, new), disputed(start, old)
                one = pa.chunked_array([[id.as_py()]])
                names = tuple(
                    name
                    for name in names
                    if name in by_source
                    and (name not in by_target or self.rules.policies(one, name)[0] == "source")
                )
            yield names

    @cached_property
    def _mixed_from(self) -> dict[int, int]:
        """The base positions of entities with mixed rows, by their source positions."""
        rows = self.merge.rows
        return dict(zip(rows.mixed_source.tolist(), rows.mixed_base.tolist(), strict=True))


def _by_id(listed: pa.Table, spill: Spill) -> Changes:
    """Rows of `PLANNED` in ascending order of ids, sorted in parts that fit into memory."""
    ids = spill.rows(pa.schema([(ID, pa.string())]))
    numbers = [NO_CHANGES]
    for range in id_ranges([listed], spill.part_bytes):
        part = range.of(listed)
        part = part.take(pc.sort_indices(part[ID]))
        ids.add(part.select([ID]))
        columns = (part[name].to_numpy() for name in ("op", "before", "after"))
        numbers.append(Changes(NO_CHANGES.ids, *columns))
    return replace(Changes.joined(numbers), ids=ids.table()[ID])


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
            disputed(source, target),
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
    """The base, source and target images of the first conflicts."""
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


def disputed(source: Image | None, target: Image | None) -> tuple[str, ...]:
    """The properties in which two images differ."""
    if source is None or target is None:
        return ()
    mine, theirs = image_values(source), image_values(target)
    return tuple(name for name in mine if repr(mine[name]) != repr(theirs[name]))
