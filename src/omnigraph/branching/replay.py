"""Doing the changes of one commit once more elsewhere, or undoing them.

Both are three-way merges of a kind. To pick a commit is to merge it with its parent as the base; to
revert it is to merge its parent with the commit as the base. So what happened to the same entities
since is respected, and what does not go together is a conflict.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from omnigraph.branching.conflict_rules import ConflictRules
from omnigraph.branching.history import reader_of, state_with
from omnigraph.branching.merge import carry_out
from omnigraph.branching.merge_plan import Sides, merge_types
from omnigraph.commit.change_set import ChangeSet
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.receipts import commit_info
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.writer import Intent
from omnigraph.errors import ChangeDiffRefused, NotFound
from omnigraph.model.merging import MergePlan
from omnigraph.model.receipts import ReplayReceipt
from omnigraph.schema.contract import AcceptedSchema
from omnigraph.storage.manifest import ManifestBranch
from omnigraph.storage.snapshot import ManifestState


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Which commit, where to, and in which direction."""

    verb: Literal["revert", "cherry-pick"]
    commit_id: str
    branch: str
    actor_id: str | None = None

    @property
    def source_name(self) -> str:
        """What conflicts call the side of the commit."""
        return f"{self.verb} of {self.commit_id}"


def plan_replay(kernel: Kernel, accepted: AcceptedSchema, request: ReplayRequest) -> MergePlan:
    """What a replay on the present head would do; changes nothing."""
    return _plan(kernel, accepted, request, kernel.manifest.refreshed(request.branch))[0]


def replay(kernel: Kernel, accepted: AcceptedSchema, request: ReplayRequest) -> ReplayReceipt:
    """Do or undo the changes of a commit on a branch, as one commit; none if nothing is to be done.

    Raises `MergeConflicts` when the entities have changed otherwise since, `NotFound` for a commit
    there is not or, to revert one, that the branch does not have, `ChangeDiffRefused` for the first
    commit of a graph, and `ReadSetChanged` when others wrote to the branch meanwhile.
    """
    branch = Recoverer(kernel).barrier(request.branch, request.verb)
    plan, capture, changes = _plan(kernel, accepted, request, branch)
    plan.require_no_conflicts(
        f"nothing was changed; bring these entities on {request.branch} to what they should be"
    )
    commit = None
    if not changes.is_empty:
        said = {"verb": request.verb, "of": request.commit_id}
        intent = Intent("BranchMerge", "mutation", request.actor_id, receipt=said)
        commit = commit_info(carry_out(kernel, capture, changes, intent))
    return ReplayReceipt(
        request.verb,
        request.commit_id,
        request.branch,
        inserted=sum(each.inserted for each in plan.types),
        updated=sum(each.updated for each in plan.types),
        deleted=sum(each.deleted for each in plan.types),
        actor_id=request.actor_id,
        commit=commit,
    )


def _plan(
    kernel: Kernel, accepted: AcceptedSchema, request: ReplayRequest, branch: ManifestBranch
) -> tuple[MergePlan, Capture, ChangeSet]:
    state = branch.state
    accepted = kernel.accepted_at(state, accepted)
    capture = kernel.capture(branch, accepted.schema_hash, state)
    history = _history(kernel, request, state)
    parent = history.commits[request.commit_id].parent_commit_id
    if parent is None:
        raise ChangeDiffRefused("parentless_commit", request.commit_id)
    ends = [reader_of(kernel, history.snapshot_at(each)) for each in (parent, request.commit_id)]
    base, source = ends if request.verb == "cherry-pick" else reversed(ends)
    sides = Sides(base, source, capture, request.source_name, request.branch)
    merged = merge_types(kernel, accepted.catalog, sides, ConflictRules())
    plan = MergePlan(
        request.source_name,
        request.branch,
        "merged",
        base.snapshot.commit_id,
        source.snapshot.commit_id,
        capture.snapshot.commit_id,
        merged.types,
        merged.conflicts,
    )
    return plan, capture, merged.changes


def _history(kernel: Kernel, request: ReplayRequest, state: ManifestState) -> ManifestState:
    """The line of commits that has the commit."""
    if request.commit_id in state.commits:
        return state
    found = state_with(kernel, request.commit_id)
    if request.verb == "cherry-pick":
        return found
    raise NotFound(
        f"branch {request.branch} has no commit {request.commit_id} to revert",
        hint=f"it is on {found.branch}; a merge commit is reverted as a whole",
    )
