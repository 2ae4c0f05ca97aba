"""The exact changes of one commit, against its first parent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omnigraph.branching.diff import GraphDiff, diff_snapshots
from omnigraph.branching.history import reader_of, state_with
from omnigraph.commit.kernel import Kernel
from omnigraph.errors import ChangeDiffRefused, ChangeFeedGap, HistoricalVersionReclaimed
from omnigraph.model.changes import ChangeFilter, CommitCause, EntityChange
from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.manifest_rows import CommitRow


@dataclass(frozen=True)
class CommitChanges:
    """What one commit changed, with images before and after."""

    cause: CommitCause
    diff: GraphDiff

    def __iter__(self) -> Iterator[EntityChange]:
        return self.diff.changes(images=True)

    def __len__(self) -> int:
        return len(self.diff)

    def __str__(self) -> str:
        return str(self.diff)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: the cause once, then every change."""
        changes = [change.to_commit_dict() for change in self]
        return {"cause": self.cause.to_dict(), "changes": changes}


def commit_changes(
    kernel: Kernel, catalog: Catalog, commit_id: str, wanted: ChangeFilter
) -> CommitChanges:
    """What a commit of any branch changed.

    A commit that changed no content, such as an `optimize`, has none. Raises `NotFound`,
    `ChangeDiffRefused` for the first commit of a graph and for a change of schema, and
    `ChangeFeedGap` when a version it needs was reclaimed.
    """
    state = state_with(kernel, commit_id)
    commit = state.commits[commit_id]
    if commit.parent_commit_id is None:
        raise ChangeDiffRefused("parentless_commit", commit_id)
    before = reader_of(kernel, state.snapshot_at(commit.parent_commit_id))
    after = reader_of(kernel, state.snapshot_at(commit_id))
    if before.snapshot.commit.schema_hash != commit.schema_hash:
        raise ChangeDiffRefused("schema_boundary", commit_id)
    try:
        diff = diff_snapshots(before, after, catalog, kernel.at_once(), wanted)
    except HistoricalVersionReclaimed as reclaimed:
        raise ChangeFeedGap(commit_id) from reclaimed
    return CommitChanges(cause_of(commit), diff)


def cause_of(row: CommitRow) -> CommitCause:
    """What the changes of a commit are attributed to."""
    return CommitCause(
        row.commit_id,
        row.parent_commit_id,
        row.merged_parent_commit_id,
        row.branch or MAIN_BRANCH,
        row.actor_id,
        row.created_at,
    )
