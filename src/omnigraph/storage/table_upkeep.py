"""What a table needs to be fast again, as steps that are one transaction each.

Small fragments are rewritten into large ones, rows written since are brought into the indexes, and
missing indexes are built. Lance rewrites only fragments together that the same parts of indexes
cover, and drops rewritten ones from ordered indexes. So ordered indexes, which are quick to build,
go before a rewrite and come back after it; those of words and vectors stay, and a rewritten
fragment stays in them.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lance import LanceDataset, LanceFragment, LanceOperation, Transaction
from lance.optimize import Compaction, CompactionTask

from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.io_counters import count
from omnigraph.model.indexes import IndexSpec, PendingIndex
from omnigraph.storage.compaction import TARGET_ROWS_PER_FRAGMENT, next_fragment_id
from omnigraph.storage.datasets import lance_failure
from omnigraph.storage.indexes import (
    TableIndex,
    index_name,
    index_parts,
    indexes_of,
    stage_indexes,
    why_not_buildable,
)

REBUILT_ROWS_MAX = 100_000
"""In tables up to this size, an index with gaps is built anew instead of getting a further part."""
INDEX_PARTS_MAX = 8
"""Every search looks into all parts of an index: one that has this many is built anew as well."""
DELETED_SHARE = 0.1
"""Large fragments are only rewritten to get rid of deleted rows when they have more of them."""

CLEANUP_SETTINGS = "lance.auto_cleanup."


class UpkeepStep(Protocol):
    """One transaction of the upkeep of a table."""

    @property
    def rewrites(self) -> bool:
        """Whether the fragments are others afterwards."""

    def stage(self, handle: LanceDataset, uuid: str) -> Transaction:
        """Write what it needs; nothing is visible yet."""


@dataclass(frozen=True, slots=True)
class KeepVersions:
    """Remove the settings by which Lance would clean up on its own."""

    settings: tuple[str, ...]
    rewrites = False

    def __str__(self) -> str:
        return "keep old versions"

    def stage(self, handle: LanceDataset, uuid: str) -> Transaction:
        """Changes the settings and nothing else."""
        removed = LanceOperation.UpdateMap(dict.fromkeys(self.settings))
        return Transaction(handle.version, LanceOperation.UpdateConfig(removed), uuid=uuid)


@dataclass(frozen=True, slots=True)
class ChangeIndexes:
    """Build indexes over the whole table, bring others up to date, drop others."""

    build: tuple[IndexSpec, ...] = ()
    fold: tuple[IndexSpec, ...] = ()
    drop: tuple[IndexSpec, ...] = ()
    rewrites = False

    def __str__(self) -> str:
        parts = (("drop", self.drop), ("build", self.build), ("bring up to date", self.fold))
        return "; ".join(f"{verb} {', '.join(map(str, specs))}" for verb, specs in parts if specs)

    @property
    def is_empty(self) -> bool:
        """Whether nothing would change."""
        return not (self.build or self.fold or self.drop)

    def stage(self, handle: LanceDataset, uuid: str) -> Transaction:
        """Writes the files of the new indexes and parts."""
        return stage_indexes(handle, self.build, uuid, fold=self.fold, drop=self.drop)


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Rewrite groups of fragments, each into as few as possible."""

    groups: tuple[tuple[int, ...], ...]
    """Fragment ids."""
    rewrites = True

    def __str__(self) -> str:
        return f"rewrite {sum(map(len, self.groups))} fragments"

    def stage(self, handle: LanceDataset, uuid: str) -> Transaction:
        """Writes the new fragments. Row ids and row versions stay as they are."""
        hit(Failpoint.OPTIMIZE_BEFORE_COMPACT)
        count("lance", "compact", handle.uri)
        try:
            target: Any = {"target_rows_per_fragment": TARGET_ROWS_PER_FRAGMENT}
            plan: Any = Compaction.plan(handle, target)
            options = json.loads(plan.json())["options"]
            next_id = next_fragment_id(handle)
            groups = []
            for group in self.groups:
                result = _task(handle, group, options).execute(handle)
                new = [
                    dataclasses.replace(fragment, id=next_id + at)
                    for at, fragment in enumerate(result.new_fragments)
                ]
                next_id += len(new)
                groups.append(LanceOperation.RewriteGroup(list(result.original_fragments), new))  # type: ignore[attr-defined]
        except (OSError, ValueError, RuntimeError) as error:
            raise lance_failure(handle, error) from error
        return Transaction(handle.version, LanceOperation.Rewrite(groups, []), uuid=uuid)


def stage_ahead(
    handle: LanceDataset, steps: Sequence[UpkeepStep], uuids: Sequence[str]
) -> list[Transaction | None]:
    """Stage all steps that do not need the result of another; None for the others.

    Up to the first rewrite and with it, every step means the same on the version before.
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
class TableWork:
    """What a table needs; nothing at all if there are no steps."""

    steps: tuple[UpkeepStep, ...] = ()
    pending: tuple[PendingIndex, ...] = ()
    fragments_removed: int = 0


def work_on(handle: LanceDataset, wanted: Iterable[IndexSpec]) -> TableWork:
    """What a table with rows needs to be compact and to have all ``wanted`` indexes complete.

    Indexes that are there and not wanted any more are kept up to date all the same.
    """
    fragments = handle.get_fragments()
    everything = {fragment.fragment_id for fragment in fragments}
    known = {index.spec: index for index in indexes_of(handle) if index.fragment_ids}
    stale = [spec for spec, index in known.items() if index.fragment_ids != everything]
    fold = tuple(spec for spec in stale if _takes_parts(handle, known[spec]))
    due = [spec for spec in (*stale, *wanted) if spec not in known or spec in stale]
    obstacles = {spec: why_not_buildable(handle, spec) for spec in due if spec not in fold}
    buildable = [spec for spec, obstacle in obstacles.items() if obstacle is None]
    anew = [spec for spec in buildable if spec in known]
    missing = [spec for spec in buildable if spec not in known]
    ordered = [spec for spec in known if spec.kind == "btree"]

    groups = _groups(handle, fragments, leave_out=[*ordered, *anew])
    steps: list[UpkeepStep] = []
    if groups:
        lasting = tuple(spec for spec in (*anew, *missing) if spec.kind != "btree")
        before = ChangeIndexes(build=lasting, drop=tuple(ordered))
        missing_ordered = (spec for spec in missing if spec.kind == "btree")
        after = ChangeIndexes(build=(*ordered, *missing_ordered), fold=fold)
        steps = [before, Rewrite(groups), after]
    else:
        steps = [ChangeIndexes(build=(*anew, *missing), fold=fold)]
    steps = [step for step in steps if not (isinstance(step, ChangeIndexes) and step.is_empty)]
    settings = cleanup_settings(handle)
    if steps and settings:
        steps.insert(0, KeepVersions(settings))
    return TableWork(
        tuple(steps),
        tuple(obstacle for obstacle in obstacles.values() if obstacle is not None),
        sum(len(group) for group in groups),
    )


def cleanup_settings(handle: LanceDataset) -> tuple[str, ...]:
    """The settings by which Lance would remove old versions of a dataset on its own."""
    return tuple(key for key in sorted(handle.config()) if key.startswith(CLEANUP_SETTINGS))


def _takes_parts(handle: LanceDataset, index: TableIndex) -> bool:
    """Whether new rows come into an index as a further part, instead of building it anew.

    Only an index of ours is known to be made as its parts would be.
    """
    return (
        index.spec.kind != "btree"
        and index.name == index_name(handle, index.spec)
        and index.rows_covered + index.rows_uncovered > REBUILT_ROWS_MAX
        and len(index.segments) < INDEX_PARTS_MAX
    )


def _groups(
    handle: LanceDataset, fragments: Sequence[LanceFragment], leave_out: Sequence[IndexSpec]
) -> tuple[tuple[int, ...], ...]:
    """Neighbours that are to be rewritten together.

    Only what the same parts of indexes cover may be, but for indexes that are gone by then.
    """
    parts = [covered for spec, covered in index_parts(handle) if spec not in leave_out]
    groups: list[list[LanceFragment]] = []
    last: tuple[bool, ...] | None = None
    for fragment in fragments:
        if not _is_due(fragment):
            last = None
            continue
        cover = tuple(fragment.fragment_id in part for part in parts)
        if cover == last:
            groups[-1].append(fragment)
        else:
            groups.append([fragment])
        last = cover
    return tuple(
        tuple(fragment.fragment_id for fragment in group)
        for group in groups
        if len(group) > 1 or group[0].metadata.num_deletions
    )


def _is_due(fragment: LanceFragment) -> bool:
    """Whether a fragment is too small, or holds too many rows that are deleted."""
    metadata = fragment.metadata
    if metadata.num_rows < TARGET_ROWS_PER_FRAGMENT:
        return True
    share: float = metadata.num_deletions / metadata.physical_rows
    return share > DELETED_SHARE


def _task(handle: LanceDataset, group: Sequence[int], options: object) -> CompactionTask:
    """A task of our own making: Lance's planner knows nothing of steps to come."""
    fragments = [handle.get_fragment(each) for each in group]
    task = {
        "task": {"fragments": [each.metadata.to_json() for each in fragments if each is not None]},
        "read_version": handle.version,
        "options": options,
    }
    made: CompactionTask = CompactionTask.from_json(json.dumps(task))  # type: ignore[attr-defined]
    return made


def rewrite_everything(handle: LanceDataset) -> Rewrite:
    """Every fragment anew, so that values of columns that are gone are left behind."""
    return Rewrite(tuple((fragment.fragment_id,) for fragment in handle.get_fragments()))
