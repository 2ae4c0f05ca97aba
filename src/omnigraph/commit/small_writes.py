"""What many small writes leave behind: tables of many fragments, slow to look things up in."""

from __future__ import annotations

from collections.abc import Mapping

from omnigraph.commit.change_set import NO_ROWS, ChangeSet, TableChange
from omnigraph.effects.settings import positive_number
from omnigraph.storage.compaction import fragment_count
from omnigraph.storage.datasets import Handle
from omnigraph.storage.table_upkeep import SMALL_WRITES, small_fragments, work_on

COMPACT_EVERY_VARIABLE = "OMNIGRAPH_TABLE_COMPACT_EVERY"
COMPACT_EVERY = 64
"""Small fragments of a table at which a write compacts it; `upkeep` may do it before."""


def is_crowded(handle: Handle) -> bool:
    """Whether small writes have left so many fragments that lookups become slow."""
    every = positive_number(COMPACT_EVERY_VARIABLE, COMPACT_EVERY, least=2)
    return fragment_count(handle) >= every and small_fragments(handle) >= every


def compaction_of(crowded: Mapping[str, Handle]) -> ChangeSet:
    """The upkeep that is due for tables by key; none for those where nothing can be gained."""
    return ChangeSet(
        {
            key: TableChange(key, "upkeep", NO_ROWS, work.steps)
            for key, handle in crowded.items()
            if (work := work_on(handle, (), SMALL_WRITES)).steps
        }
    )
