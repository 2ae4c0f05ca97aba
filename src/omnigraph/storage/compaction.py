"""Compacting a dataset as one staged transaction.

Lance's own compaction commits twice, cannot be owned by uuid, and breaks indexes that a branch
inherited. So its tasks are executed and their results put into a rewrite of our own, with fragment
ids assigned beforehand: left to Lance, indexes would claim to cover fragments that are gone.
"""

from __future__ import annotations

import dataclasses
import re

from lance import LanceDataset, LanceOperation, Transaction
from lance.debug import format_manifest
from lance.optimize import Compaction

from omnigraph.effects.io_counters import count
from omnigraph.errors import InternalError

_MAX_FRAGMENT_ID = re.compile(r"max_fragment_id: Some\(\s*(\d+)")

TARGET_ROWS_PER_FRAGMENT = 1_000_000


def fragment_count(handle: LanceDataset) -> int:
    """How many fragments a version has; known from its metadata."""
    return len(handle.get_fragments())


def stage_compaction(
    handle: LanceDataset, uuid: str, target_rows: int = TARGET_ROWS_PER_FRAGMENT
) -> Transaction | None:
    """A transaction that rewrites small fragments into large ones; None if there is nothing to do.

    Fragments that have ``target_rows`` already are left alone. Row ids and row versions are kept,
    so that histories and deltas read the same afterwards.
    """
    plan = Compaction.plan(handle, {"target_rows_per_fragment": target_rows})
    if not plan.tasks:
        return None
    count("lance", "compact", handle.uri)
    next_id = next_fragment_id(handle)
    groups = []
    for task in plan.tasks:
        result = task.execute(handle)
        new = [
            dataclasses.replace(fragment, id=next_id + at)
            for at, fragment in enumerate(result.new_fragments)
        ]
        next_id += len(new)
        groups.append(LanceOperation.RewriteGroup(list(result.original_fragments), new))  # type: ignore[attr-defined]
    return Transaction(handle.version, LanceOperation.Rewrite(groups, []), uuid=uuid)


def next_fragment_id(handle: LanceDataset) -> int:
    """One above every fragment id ever used; Lance shows it only in its debug text."""
    found = _MAX_FRAGMENT_ID.search(format_manifest(handle))
    if found is None:
        raise InternalError(f"the largest fragment id of {handle.uri} is not known")
    return int(found[1]) + 1
