"""Upkeep of a table, in steps of one transaction each.

Small fragments are rewritten into large ones, new rows are added to the indexes, and missing
indexes are built. Lance rewrites fragments together only if the same index parts cover them, and
removes rewritten fragments from ordered indexes. So ordered indexes are updated after a rewrite;
text and vector indexes, which keep rewritten fragments, before it.

Large files are kept while the new rows are few: a fragment much larger than the small ones is not
rewritten with them, and a large part of an index is not rebuilt. So the work of a run is
proportional to the rows written, not to the size of the table, and older versions share most of
their files with the new one.

Lance's own compaction commits twice, does not let the caller set the transaction uuid, and breaks
indexes that a branch inherited. So only its tasks are used: their results go into a rewrite
transaction with fragment ids assigned here. With ids assigned by Lance, indexes would list
fragments that do not exist.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any, Protocol

from lance import LanceDataset, LanceFragment, LanceOperation, Transaction
from lance.dataset import Index
from lance.debug import format_manifest
from lance.optimize import Compaction

from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.errors import InternalError
from omnigraph.model.records import dataclass
from omnigraph.model.types import INDEX_KINDS, IndexKind, IndexSpec, PendingIndex
from omnigraph.storage.failures import lance_errors
from omnigraph.storage.fragments import fragment_json
from omnigraph.storage.indexes import (
    PARTS_AT_ONCE_MAX,
    TableIndex,
    index_name,
    index_parts,
    indexes_of,
    is_named_by_us,
    stage_indexes,
    why_not_buildable,
)
from omnigraph.storage.upkeep_tasks import THIS_PROCESS, RewriteFragments, UpkeepWorkers, divided

# --- rewriting fragments --------------------------------------------------------------------------

_MAX_FRAGMENT_ID = re.compile(r"max_fragment_id: Some\(\s*(\d+)")

TARGET_ROWS_PER_FRAGMENT = 1_000_000
TASK_FRAGMENTS = 8
"""The least number of full fragments per task, if several workers rewrite a table."""


def next_fragment_id(handle: LanceDataset) -> int:
    """The next unused fragment id; Lance exposes it only in its debug output."""
    found = _MAX_FRAGMENT_ID.search(format_manifest(handle))
    if found is None:
        raise InternalError(f"the largest fragment id of {handle.uri} is not known")
    return int(found[1]) + 1


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Rewrites groups of fragments, each into as few as possible."""

    groups: tuple[tuple[int, ...], ...]
    """The fragment ids of each group."""
    fragment_rows: int = TARGET_ROWS_PER_FRAGMENT
    workers: UpkeepWorkers = field(default=THIS_PROCESS, compare=False, repr=False)
    rewrites = True

    def __str__(self) -> str:
        return f"rewrite {sum(map(len, self.groups))} fragments"

    def stage(self, handle: LanceDataset, uuid: str) -> Transaction:
        """Write the new fragments; keeps row ids and row versions."""
        hit(Failpoint.OPTIMIZE_BEFORE_COMPACT)
        return stage_rewrite(handle, self.groups, self.fragment_rows, uuid, self.workers)


def stage_rewrite(
    handle: LanceDataset,
    groups: Iterable[Sequence[int]],
    fragment_rows: int,
    uuid: str,
    workers: UpkeepWorkers = THIS_PROCESS,
) -> Transaction:
    """Rewrite each group of fragment ids into as few fragments of the given size as possible."""
    with lance_errors(handle, "compact"):
        target: Any = {"target_rows_per_fragment": fragment_rows}
        plan: Any = Compaction.plan(handle, target)
        options = json.loads(plan.json())["options"]
        next_id = next_fragment_id(handle)
        if workers.spread > 1:
            # Each task writes one fragment that is not full.
            rows = TASK_FRAGMENTS * fragment_rows
            groups = [part for each in groups for part in divided(handle, each, len(each), rows)]
        tasks = [_task(handle, group, options) for group in groups]
        rewritten = []
        for given in workers.run(handle, tasks):
            result = RewriteFragments.result(given)
            new = [
                dataclasses.replace(fragment, id=next_id + at)
                for at, fragment in enumerate(result.new_fragments)
            ]
            next_id += len(new)
            rewritten.append(LanceOperation.RewriteGroup(list(result.original_fragments), new))  # type: ignore[attr-defined]
    return Transaction(handle.version, LanceOperation.Rewrite(rewritten, []), uuid=uuid)


def rewrite_everything(handle: LanceDataset) -> Rewrite:
    """Rewrite every fragment, which removes the values of dropped columns from the files."""
    return Rewrite(tuple((fragment.fragment_id,) for fragment in handle.get_fragments()))


def _task(handle: LanceDataset, group: Sequence[int], options: object) -> RewriteFragments:
    """A task built here, since Lance's planner does not consider the later steps."""
    fragments = [handle.get_fragment(each) for each in group]
    task = {
        "task": {
            "fragments": [fragment_json(each.metadata) for each in fragments if each is not None]
        },
        "read_version": handle.version,
        "options": options,
    }
    return RewriteFragments(json.dumps(task))


# --- what is worth doing --------------------------------------------------------------------------

OUTWEIGHS = 4
"""A fragment or index part is kept if it has more than so many times the rows of all new ones."""
SETTLED_ROWS_MIN = 1_000
"""A fragment or index part with fewer rows is always merged with others."""
FEW_AT_LEAST = 8
"""The number of small fragments at which a write rewrites them into one."""
INDEX_PARTS_MAX = 8
"""The most parts of an index, since every search reads all parts."""
DELETED_SHARE = 0.1
"""Large fragments are rewritten to remove deleted rows only above this share."""
ROUNDS_MAX = 8
"""The most rounds until groups and indexes are consistent; two or three are usual."""
HOLES_ROWS_MAX = 100_000
"""`optimize` rewrites smaller fragments if they have any deleted row."""

CLEANUP_SETTINGS = "lance.auto_cleanup."


@dataclass(frozen=True, slots=True)
class Extent:
    """How much of a table a run may rewrite."""

    fragment_rows: int
    """Fragments with fewer rows are rewritten together, into fragments of this size."""
    kinds: frozenset[IndexKind] = INDEX_KINDS
    """The kinds of indexes that are updated."""
    is_bounded: bool = True
    """Whether a run is limited to ``fragment_rows`` rows in all, of the smallest fragments."""


EVERYTHING = Extent(TARGET_ROWS_PER_FRAGMENT, is_bounded=False)
"""The extent of `optimize`."""
RECENT = Extent(262_144)
"""The extent of upkeep in the background, which takes fractions of a second."""
SMALL_WRITES = Extent(65_536, frozenset({"btree"}))
"""The extent of the compaction after a write: milliseconds that keep lookups by id quick."""


class UpkeepStep(Protocol):
    """A step of the upkeep of a table: one transaction."""

    @property
    def rewrites(self) -> bool:
        """Whether the step replaces fragments."""

    def stage(self, handle: LanceDataset, uuid: str) -> Transaction:
        """Write the files of the step; nothing is visible before the transaction is committed."""


@dataclass(frozen=True, slots=True)
class KeepVersions:
    """Removes the settings that make Lance clean up by itself."""

    settings: tuple[str, ...]
    rewrites = False

    def __str__(self) -> str:
        return "keep old versions"

    def stage(self, handle: LanceDataset, uuid: str) -> Transaction:
        """Change the settings only."""
        removed = LanceOperation.UpdateMap(dict.fromkeys(self.settings))
        return Transaction(handle.version, LanceOperation.UpdateConfig(removed), uuid=uuid)


@dataclass(frozen=True, slots=True)
class ChangeIndexes:
    """Builds indexes over the whole table, updates others, drops others."""

    build: tuple[IndexSpec, ...] = ()
    fold: tuple[IndexSpec, ...] = ()
    drop: tuple[IndexSpec, ...] = ()
    drop_parts: tuple[str, ...] = ()
    """Uuids of parts that are merged into the new part of an index to ``fold``."""
    fold_without: frozenset[int] = frozenset()
    """Fragments that are not added to an index to ``fold``."""
    is_undivided: bool = False
    """Whether an index gets at most one new part: the next step rewrites fragments, which works
    only for fragments in the same parts."""
    workers: UpkeepWorkers = field(default=THIS_PROCESS, compare=False, repr=False)
    rewrites = False

    def __str__(self) -> str:
        parts = (("drop", self.drop), ("build", self.build), ("bring up to date", self.fold))
        parts_shown = [f"{verb} {', '.join(map(str, specs))}" for verb, specs in parts if specs]
        return "; ".join(parts_shown) or f"drop {len(self.drop_parts)} parts of indexes"

    @property
    def is_empty(self) -> bool:
        """Whether the step changes nothing."""
        return not (self.build or self.fold or self.drop or self.drop_parts)

    def stage(self, handle: LanceDataset, uuid: str) -> Transaction:
        """Write the files of new indexes and parts."""
        return stage_indexes(
            handle,
            self.build,
            uuid,
            fold=self.fold,
            drop=self.drop,
            drop_parts=self.drop_parts,
            fold_without=self.fold_without,
            workers=self.workers,
            parts_max=1 if self.is_undivided else PARTS_AT_ONCE_MAX,
        )


def stage_ahead(
    handle: LanceDataset, steps: Sequence[UpkeepStep], uuids: Sequence[str]
) -> list[Transaction | None]:
    """Stage all steps that do not depend on the result of another; None for the others.

    These are the steps up to and including the first rewrite.
    """
    staged: list[Transaction | None] = []
    needs_result = False
    for at, (step, uuid) in enumerate(zip(steps, uuids, strict=True)):
        if needs_result:
            staged.append(None)
            continue
        transaction = step.stage(handle, uuid)
        staged.append(dataclasses.replace(transaction, read_version=handle.version + at))
        needs_result = step.rewrites
    return staged


@dataclass(frozen=True, slots=True)
class TableUpkeep:
    """The steps that a table needs; may be empty."""

    steps: tuple[UpkeepStep, ...] = ()
    pending: tuple[PendingIndex, ...] = ()
    fragments_removed: int = 0

    def by(self, workers: UpkeepWorkers) -> TableUpkeep:
        """The same steps, run by some workers."""
        steps = tuple(
            step if isinstance(step, KeepVersions) else dataclasses.replace(step, workers=workers)  # type: ignore[type-var]
            for step in self.steps
        )
        return dataclasses.replace(self, steps=steps)


def work_on(
    handle: LanceDataset, wanted: Iterable[IndexSpec], extent: Extent = EVERYTHING
) -> TableUpkeep:
    """The steps that compact a table with rows and complete all ``wanted`` indexes.

    Existing indexes that are no longer wanted are dropped if the extent is unbounded and this
    product built them; otherwise they are updated.
    """
    return _Planner(handle, extent).work(tuple(wanted))


def cleanup_settings(handle: LanceDataset) -> tuple[str, ...]:
    """The settings that make Lance remove old versions of a dataset by itself."""
    return tuple(key for key in sorted(handle.config()) if key.startswith(CLEANUP_SETTINGS))


def small_fragments(handle: LanceDataset) -> int:
    """The number of fragments left by small writes, which are worth rewriting."""
    rows = (fragment.metadata.num_rows for fragment in handle.get_fragments())
    return sum(each * FEW_AT_LEAST <= SMALL_WRITES.fragment_rows for each in rows)


@dataclass(frozen=True, slots=True)
class _IndexWork:
    """The work on one index."""

    index: TableIndex
    loose: tuple[Index, ...] = ()
    """Parts to merge into a new one."""
    is_stale: bool = False
    is_anew: bool = False
    """Whether the index is rebuilt over the whole table, instead of getting a part."""

    @property
    def spec(self) -> IndexSpec:
        return self.index.spec

    @property
    def kept(self) -> list[frozenset[int]]:
        """The fragments covered by each remaining part."""
        gone = {part.uuid for part in self.loose}
        return [frozenset(p.fragment_ids) for p in self.index.segments if p.uuid not in gone]


class _Planner:
    """Finds the steps for one table."""

    def __init__(self, handle: LanceDataset, extent: Extent) -> None:
        self._handle = handle
        self._extent = extent
        self._fragments = handle.get_fragments()
        self._rows = {each.fragment_id: each.metadata.num_rows for each in self._fragments}
        self._reach = frozenset(self._within_reach())
        """The fragments that may be rewritten and added to indexes."""
        found = [index for index in indexes_of(handle) if index.fragment_ids]
        self._known = [index for index in found if self._is_ours_to_change(index)]
        planned = {index.spec for index in self._known}
        self._existing = {index.spec for index in found}
        self._others = [part for spec, part in index_parts(handle) if spec not in planned]
        """The fragments covered by each part of indexes that are not changed."""

    def groups(self) -> list[tuple[int, ...]]:
        """The groups that can be rewritten without changing indexes."""
        return self._groups([part for _, part in index_parts(self._handle)])

    def work(self, wanted: Sequence[IndexSpec]) -> TableUpkeep:
        """The steps, and the indexes that cannot be built yet."""
        unwanted = self._unwanted(wanted)
        self._known = [index for index in self._known if index.spec not in unwanted]
        groups, indexes, pending = self._layout()
        missing = []
        for spec in wanted:
            if spec in self._existing or spec.kind not in self._extent.kinds:
                continue
            if self._reach != self._rows.keys():
                continue
            obstacle = why_not_buildable(self._handle, spec)
            if obstacle is None:
                missing.append(spec)
            else:
                pending.append(obstacle)
        steps = self._steps(groups, [each for each in indexes if each.is_stale], missing)
        if unwanted:
            steps.insert(0, ChangeIndexes(drop=unwanted))
        settings = cleanup_settings(self._handle)
        if steps and settings:
            steps.insert(0, KeepVersions(settings))
        return TableUpkeep(tuple(steps), tuple(pending), sum(len(group) for group in groups))

    def _unwanted(self, wanted: Sequence[IndexSpec]) -> tuple[IndexSpec, ...]:
        """Indexes of this product that the schema no longer asks for."""
        if self._extent.is_bounded:
            return ()
        return tuple(
            index.spec
            for index in self._known
            if index.spec not in wanted and is_named_by_us(self._handle, index)
        )

    def _steps(
        self,
        groups: Sequence[tuple[int, ...]],
        stale: Sequence[_IndexWork],
        missing: Sequence[IndexSpec],
    ) -> list[UpkeepStep]:
        build = [*(each.spec for each in stale if each.is_anew), *missing]
        fold = [each.spec for each in stale if not each.is_anew]
        loose = tuple(part.uuid for each in stale if not each.is_anew for part in each.loose)
        without = frozenset(self._rows.keys() - self._reach)
        if not groups:
            changes = ChangeIndexes(tuple(build), tuple(fold), (), loose, without)
            return [] if changes.is_empty else [changes]
        before = ChangeIndexes(
            tuple(spec for spec in build if spec.kind != "btree"),
            tuple(spec for spec in fold if spec.kind != "btree"),
            tuple(each.spec for each in stale if each.is_anew and each.spec.kind == "btree"),
            loose,
            without,
            is_undivided=True,
        )
        after = ChangeIndexes(
            tuple(spec for spec in build if spec.kind == "btree"),
            tuple(spec for spec in fold if spec.kind == "btree"),
            fold_without=without,
        )
        steps: list[UpkeepStep] = [Rewrite(tuple(groups), self._extent.fragment_rows)]
        if not before.is_empty:
            steps.insert(0, before)
        if not after.is_empty:
            steps.append(after)
        return steps

    def _layout(self) -> tuple[list[tuple[int, ...]], list[_IndexWork], list[PendingIndex]]:
        """The groups to rewrite, and the resulting work on indexes, by iteration.

        They depend on each other: rewritten fragments are removed from ordered indexes, and
        fragments in different remaining parts cannot be rewritten together. Groups shrink with
        every round until both are consistent.
        """
        groups = self._groups([])
        for _ in range(ROUNDS_MAX):
            indexes, pending = self._index_work(groups)
            kept = [part for each in indexes if not each.is_anew for part in each.kept]
            agreed = self._groups([*self._others, *kept])
            if agreed == groups:
                return groups, indexes, pending
            groups = agreed
        return [], *self._index_work([])

    # --- indexes ----------------------------------------------------------------------------------

    def _index_work(
        self, groups: Iterable[Iterable[int]]
    ) -> tuple[list[_IndexWork], list[PendingIndex]]:
        """The work on indexes if some fragments are rewritten, and indexes that cannot be built."""
        moving = frozenset(fragment for group in groups for fragment in group)
        found, pending = [], []
        for index in self._known:
            work = self._plan(index, moving)
            obstacle = why_not_buildable(self._handle, work.spec) if work.is_anew else None
            if obstacle is not None:
                pending.append(obstacle)
                work = _IndexWork(index)
            found.append(work)
        return found, pending

    def _is_ours_to_change(self, index: TableIndex) -> bool:
        """Whether this product built the index: else new parts may not match its parameters."""
        if index.spec.kind not in self._extent.kinds:
            return False
        return not self._extent.is_bounded or index.name == index_name(self._handle, index.spec)

    def _plan(self, index: TableIndex, moving: frozenset[int]) -> _IndexWork:
        """The work on an index if some fragments are rewritten."""
        outside = self._reach - index.fragment_ids
        if index.spec.kind == "btree":
            outside |= moving
        new_rows = self._sum(outside)
        if not new_rows:
            return _IndexWork(index)
        if index.name != index_name(self._handle, index.spec):
            return _IndexWork(index, index.segments, is_stale=True, is_anew=True)
        staying = self._rows.keys() - outside
        rows_of = {part.uuid: self._sum(staying & part.fragment_ids) for part in index.segments}
        parts = sorted(index.segments, key=lambda part: rows_of[part.uuid])
        loose: list[Index] = []
        for part in parts:
            if not staying & part.fragment_ids <= self._reach:
                continue
            rows = rows_of[part.uuid]
            too_many = len(parts) - len(loose) >= INDEX_PARTS_MAX
            if _outweighs(rows, new_rows) and not too_many:
                break
            loose.append(part)
            new_rows += rows
        is_anew = len(loose) == len(parts) and self._reach == self._rows.keys()
        return _IndexWork(index, tuple(loose), is_stale=True, is_anew=is_anew)

    def _sum(self, fragments: Iterable[int]) -> int:
        return sum(self._rows[fragment] for fragment in fragments)

    # --- fragments --------------------------------------------------------------------------------

    def _within_reach(self) -> Iterator[int]:
        left = self._extent.fragment_rows
        for fragment, rows in sorted(self._rows.items(), key=lambda each: each[1]):
            left -= rows
            if self._extent.is_bounded and left < 0:
                return
            yield fragment

    def _groups(self, parts: Sequence[frozenset[int]]) -> list[tuple[int, ...]]:
        """The fragments to rewrite together: only fragments covered by the same ``parts``.

        The order of groups is irrelevant: rewritten fragments become the last ones.
        """
        groups: dict[tuple[bool, ...], list[LanceFragment]] = {}
        for fragment in self._worth_it():
            cover = tuple(fragment.fragment_id in part for part in parts)
            groups.setdefault(cover, []).append(fragment)
        return [
            tuple(fragment.fragment_id for fragment in group)
            for group in groups.values()
            if len(group) > 1 or self._has_holes(group[0])
        ]

    def _worth_it(self) -> list[LanceFragment]:
        """Small fragments and those with many deleted rows, unless they outweigh the rest."""
        due = [
            fragment
            for fragment in self._fragments
            if fragment.fragment_id in self._reach
            and (
                self._rows[fragment.fragment_id] < self._extent.fragment_rows
                or self._has_holes(fragment)
            )
        ]
        rows = self._sum(fragment.fragment_id for fragment in due)
        for fragment in sorted(due, key=lambda each: -self._rows[each.fragment_id]):
            own = self._rows[fragment.fragment_id]
            if not _outweighs(own, rows - own) or self._has_holes(fragment):
                break
            due.remove(fragment)
            rows -= own
        return due

    def _has_holes(self, fragment: LanceFragment) -> bool:
        """Whether a fragment is worth rewriting for its deleted rows alone."""
        metadata = fragment.metadata
        if not metadata.num_deletions:
            return False
        if not self._extent.is_bounded and metadata.physical_rows < HOLES_ROWS_MAX:
            return True
        share: float = metadata.num_deletions / metadata.physical_rows
        return share > DELETED_SHARE


def _outweighs(rows: int, others: int) -> bool:
    return rows >= SETTLED_ROWS_MIN and rows > OUTWEIGHS * others


def stage_compaction(handle: LanceDataset, uuid: str) -> Transaction | None:
    """A rewrite without work on indexes, for manifests; None if there is nothing to do.

    A few deleted rows do not cause one, since every commit of a manifest replaces a row.
    """
    groups = _Planner(handle, Extent(TARGET_ROWS_PER_FRAGMENT)).groups()
    return stage_rewrite(handle, groups, TARGET_ROWS_PER_FRAGMENT, uuid) if groups else None
