"""Rewriting fragments: many small ones into a few, as one transaction.

Lance's own compaction commits twice, cannot be owned by uuid, and breaks indexes that a branch
inherited. So its tasks are executed and their results put into a rewrite of our own, with fragment
ids assigned beforehand: left to Lance, indexes would claim to cover fragments that are gone. Which
fragments are worth it, `table_upkeep` says.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lance import LanceDataset, LanceOperation, Transaction
from lance.debug import format_manifest
from lance.optimize import Compaction, CompactionTask

from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.errors import InternalError
from omnigraph.storage.datasets import count_lance
from omnigraph.storage.failures import lance_errors

_MAX_FRAGMENT_ID = re.compile(r"max_fragment_id: Some\(\s*(\d+)")

TARGET_ROWS_PER_FRAGMENT = 1_000_000


def next_fragment_id(handle: LanceDataset) -> int:
    """One above every fragment id ever used; Lance shows it only in its debug text."""
    found = _MAX_FRAGMENT_ID.search(format_manifest(handle))
    if found is None:
        raise InternalError(f"the largest fragment id of {handle.uri} is not known")
    return int(found[1]) + 1


@dataclass(frozen=True, slots=True)
class Rewrite:
    """Rewrite groups of fragments, each into as few as possible."""

    groups: tuple[tuple[int, ...], ...]
    """Fragment ids."""
    fragment_rows: int = TARGET_ROWS_PER_FRAGMENT
    rewrites = True

    def __str__(self) -> str:
        return f"rewrite {sum(map(len, self.groups))} fragments"

    def stage(self, handle: LanceDataset, uuid: str) -> Transaction:
        """Writes the new fragments. Row ids and row versions stay as they are."""
        hit(Failpoint.OPTIMIZE_BEFORE_COMPACT)
        return stage_rewrite(handle, self.groups, self.fragment_rows, uuid)


def stage_rewrite(
    handle: LanceDataset, groups: Iterable[Sequence[int]], fragment_rows: int, uuid: str
) -> Transaction:
    """Rewrite each group of fragments, by their ids, into as few of that size as possible."""
    count_lance("compact", handle.uri)
    with lance_errors(handle):
        target: Any = {"target_rows_per_fragment": fragment_rows}
        plan: Any = Compaction.plan(handle, target)
        options = json.loads(plan.json())["options"]
        next_id = next_fragment_id(handle)
        rewritten = []
        for group in groups:
            result = _task(handle, group, options).execute(handle)
            new = [
                dataclasses.replace(fragment, id=next_id + at)
                for at, fragment in enumerate(result.new_fragments)
            ]
            next_id += len(new)
            rewritten.append(LanceOperation.RewriteGroup(list(result.original_fragments), new))  # type: ignore[attr-defined]
    return Transaction(handle.version, LanceOperation.Rewrite(rewritten, []), uuid=uuid)


def rewrite_everything(handle: LanceDataset) -> Rewrite:
    """Every fragment anew, so that values of columns that are gone are left behind."""
    return Rewrite(tuple((fragment.fragment_id,) for fragment in handle.get_fragments()))


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
