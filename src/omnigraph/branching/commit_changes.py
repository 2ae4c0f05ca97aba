"""The exact changes of one commit, against its first parent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from omnigraph.branching.comparison import compare, require_data_kept
from omnigraph.branching.diff import GraphDiff, ListedChanges
from omnigraph.branching.history import state_with
from omnigraph.branching.moments import Moment, SchemaHistory, moments, reclaimed_told
from omnigraph.branching.wanted_types import WantedTypes
from omnigraph.commit.kernel import Kernel
from omnigraph.errors import ChangeDiffRefused, ChangeFeedGap, HistoricalVersionReclaimed
from omnigraph.model.changes import ChangeFilter, CommitCause, EntityChange
from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.storage.manifest_rows import CommitRow


@dataclass(frozen=True)
class CommitChanges:
    """What one commit changed, with images before and after."""

    cause: CommitCause
    diff: GraphDiff | None = None
    """None where nothing had to be compared to know that no entity changed."""

    @cached_property
    def lists(self) -> tuple[ListedChanges, ...]:
        """The changes by type: nodes before edges, in the order of public type ids."""
        if self.diff is None:
            return ()
        return tuple(ListedChanges.of(delta, self.diff.wanted) for delta in self.diff.deltas)

    def __iter__(self) -> Iterator[EntityChange]:
        for changes in self.lists:
            yield from changes.read(images=True)

    def __len__(self) -> int:
        return sum(map(len, self.lists))

    def __str__(self) -> str:
        return str(self.diff or "no differences")

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: the cause once, then every change."""
        changes = [change.to_commit_dict() for change in self]
        return {"cause": self.cause.to_dict(), "changes": changes}


def commit_changes(
    kernel: Kernel, schemas: SchemaHistory, commit_id: str, wanted: ChangeFilter
) -> CommitChanges:
    """What a commit of any branch changed, in the words of its own schema.

    A commit that changed no content, such as an `optimize`, has none. Raises `NotFound`,
    `ChangeDiffRefused` for the first commit of a graph and for a change of schema that rewrote or
    dropped data, and `ChangeFeedGap` when a version it needs was reclaimed.
    """
    return changes_between(kernel, schemas, *commit_step(kernel, commit_id), wanted)


def changes_between(
    kernel: Kernel, schemas: SchemaHistory, before: Moment, after: Moment, wanted: ChangeFilter
) -> CommitChanges:
    """The same, of a commit that was looked up already."""
    today = kernel.manifest.main.state.head_snapshot().commit
    catalogs = schemas.back_from(today, after.commit, state=after.state)
    types = WantedTypes.of(wanted, catalogs)
    with gaps_told(before, after):
        return step_changes(schemas, before, after, types)


def commit_step(kernel: Kernel, commit_id: str) -> tuple[Moment, Moment]:
    """The graph before a commit of any branch, and with it.

    Raises `NotFound`, and `ChangeDiffRefused` for the first commit of a graph.
    """
    state = state_with(kernel, commit_id)
    commit = state.commits[commit_id]
    parent = state.commits.get(commit.parent_commit_id or "")
    if parent is None:
        raise ChangeDiffRefused("parentless_commit", commit_id)
    before, after = moments(kernel, state, [parent, commit])
    return before, after


@contextmanager
def gaps_told(before: Moment, after: Moment, cursor: str | None = None) -> Iterator[None]:
    """A block of reads of one commit, in which what cleanup removed is a `ChangeFeedGap`."""
    try:
        with reclaimed_told(before, after):
            yield
    except HistoricalVersionReclaimed as reclaimed:
        raise ChangeFeedGap(after.commit.commit_id, cursor) from reclaimed


def step_changes(
    schemas: SchemaHistory, before: Moment, after: Moment, wanted: WantedTypes
) -> CommitChanges:
    """What leads from a commit's parent to the commit; storage is asked only where tables moved.

    Raises `ChangeDiffRefused` and `HistoricalVersionReclaimed`.
    """
    cause = cause_of(after.commit)
    if before.commit.schema_hash != after.commit.schema_hash:
        # The parent has all entities that there are: a change of schema makes none.
        require_data_kept(schemas, before, after)
        return CommitChanges(cause)
    if after.commit.kind == "maintenance" or before.pins == after.pins:
        return CommitChanges(cause)
    return CommitChanges(cause, compare(schemas, before, after, wanted))


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
