"""Merging one branch into another: plan, then one sidecar, one publish, one commit.

The heads of both branches, their base and the schema are captured once. A commit to the source
after that is not merged; a commit to the target refuses the merge, and nothing has happened. All
that is needed of the source is read before the target is owned, so its own writers never wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from omnigraph.branching.branches import delete_branch, list_branches
from omnigraph.branching.conflict_rules import ConflictRules
from omnigraph.branching.history import reader_of
from omnigraph.branching.merge_base import Commits, merge_base, with_merged
from omnigraph.branching.merge_plan import Sides, merge_types
from omnigraph.commit.change_set import ChangeSet
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.receipts import commit_info
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.writer import Intent, WriteAttempt
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.errors import (
    Conflict,
    ExpectedVersionMismatch,
    InputError,
    NotFound,
    OmnigraphError,
    ReadSetChanged,
    StorageError,
)
from omnigraph.model.ids import SCHEMA_APPLY_LOCK, check_branch_name
from omnigraph.model.merging import MergePlan
from omnigraph.model.receipts import MergeOutcome, MergeReceipt
from omnigraph.schema.contract import AcceptedSchema
from omnigraph.storage.manifest import ManifestBranch
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.snapshot import ManifestState, Snapshot


@dataclass(frozen=True, slots=True)
class MergeRequest:
    """What is to be merged, and how."""

    source: str
    target: str
    rules: ConflictRules
    actor_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Captured:
    """Both branches and where they went apart, read once."""

    base: Snapshot
    source_branch: ManifestBranch
    source: Snapshot
    target: Capture
    accepted: AcceptedSchema

    @property
    def outcome(self) -> MergeOutcome:
        if self.base.commit_id == self.source.commit_id:
            return "already_up_to_date"
        if self.base.commit_id == self.target.snapshot.commit_id:
            return "fast_forward"
        return "merged"


def plan_merge(kernel: Kernel, accepted: AcceptedSchema, request: MergeRequest) -> MergePlan:
    """What a merge of the present heads would do; changes nothing.

    Raises `NotFound` for an unknown branch.
    """
    _check(request, accepted)
    branches = [kernel.manifest.refreshed(name) for name in (request.source, request.target)]
    plan, _ = _plan(kernel, _capture(kernel, accepted, *branches), request)
    return plan


def merge(kernel: Kernel, accepted: AcceptedSchema, request: MergeRequest) -> MergeReceipt:
    """Merge the source into the target, as one commit with both heads as parents.

    Raises `MergeConflicts` when the sides or the merged graph do not go together, `ReadSetChanged`
    when others wrote to the target meanwhile, `NotFound` when they deleted one of the two, and
    `LimitExceeded` when there is more to merge than temporary files may hold; none of them leaves
    anything behind.
    """
    _check(request, accepted)
    recoverer = Recoverer(kernel)
    source = recoverer.barrier(request.source, "branch merge")
    target = recoverer.barrier(request.target, "branch merge")
    captured = _capture(kernel, accepted, source, target)
    hit(Failpoint.BRANCH_MERGE_POST_AUTHORITY_CAPTURE)
    plan, changes = _plan(kernel, captured, request)
    receipt = MergeReceipt(
        request.source,
        request.target,
        plan.outcome,
        request.actor_id,
        commit=None,
        source_commit_id=plan.source_commit_id,
    )
    if plan.outcome == "already_up_to_date":
        return receipt
    plan.require_no_conflicts()
    intent = Intent(
        "BranchMerge",
        "merge",
        request.actor_id,
        receipt={"source": request.source, "outcome": plan.outcome},
        merged_parent=plan.source_commit_id,
    )
    commit = carry_out(kernel, captured.target, changes, intent)
    return replace(receipt, commit=commit_info(commit))


def carry_out(kernel: Kernel, target: Capture, changes: ChangeSet, intent: Intent) -> CommitRow:
    """Write what was planned on a captured head; raises `ReadSetChanged` if it is none any more."""
    attempt = WriteAttempt(kernel, target, changes, intent)
    attempt.stage()
    try:
        with attempt.owned_branch() as lease:
            return attempt.commit(lease)
    except ExpectedVersionMismatch as moved:
        head = target.branch.refresh().head.commit_id
        raise ReadSetChanged("graph_head", target.snapshot.commit_id, head) from moved


def delete_source(
    kernel: Kernel, receipt: MergeReceipt, permit: Callable[[], None]
) -> MergeReceipt:
    """Delete the source of a merge that is done; a failure is told and changes nothing of that.

    A source that has got commits which were not merged is kept.
    ``permit`` refuses by raising: who may merge may not always delete.
    """
    try:
        permit()
        delete_branch(kernel, receipt.source, expected_head=receipt.source_commit_id)
    except (OmnigraphError, OSError) as refused:
        return replace(receipt, branch_deleted=False, branch_delete_error=str(refused))
    return replace(receipt, branch_deleted=True)


def _check(request: MergeRequest, accepted: AcceptedSchema) -> None:
    request.rules.check(accepted.catalog)
    for name in (request.source, request.target):
        check_branch_name(name)
        if name == SCHEMA_APPLY_LOCK:
            raise InputError(f"`{name}` is no branch that can be merged")
    if request.source == request.target:
        raise InputError(
            f"branch `{request.source}` cannot be merged into itself",
            hint="name another branch to merge into",
        )


def _capture(
    kernel: Kernel, accepted: AcceptedSchema, source: ManifestBranch, target: ManifestBranch
) -> _Captured:
    theirs, ours = source.state, target.state
    heads = theirs.head.commit_id, ours.head.commit_id
    states = [ours, theirs]

    def others() -> Iterator[Commits]:
        for name in list_branches(kernel):
            if name not in (source.branch, target.branch):
                state = kernel.manifest.refreshed(name).state
                states.append(state)
                yield state.commits

    commits = with_merged({**theirs.commits, **ours.commits}, heads, others)
    base = merge_base(commits, *heads)
    if base is None:
        raise Conflict(f"{source.branch} and {target.branch} have no commit in common")
    accepted = kernel.accepted_at(ours, accepted)
    return _Captured(
        _snapshot_at(states, base.commit_id),
        source,
        theirs.head_snapshot(),
        kernel.capture(target, accepted.schema_hash, ours),
        accepted,
    )


def _snapshot_at(states: list[ManifestState], commit_id: str) -> Snapshot:
    return next(state for state in states if commit_id in state.commits).snapshot_at(commit_id)


def _plan(
    kernel: Kernel, captured: _Captured, request: MergeRequest
) -> tuple[MergePlan, ChangeSet]:
    named = (
        request.source,
        request.target,
        captured.outcome,
        captured.base.commit_id,
        captured.source.commit_id,
        captured.target.snapshot.commit_id,
    )
    if captured.outcome == "already_up_to_date":
        return MergePlan(*named, types=(), conflicts=()), ChangeSet()
    sides = Sides(
        reader_of(kernel, captured.base),
        reader_of(kernel, captured.source),
        captured.target,
        request.source,
        request.target,
    )
    try:
        merged = merge_types(kernel, captured.accepted.catalog, sides, request.rules)
    except (NotFound, StorageError):
        _require_source(kernel, captured)
        raise
    return MergePlan(*named, merged.types, merged.conflicts), merged.changes


def _require_source(kernel: Kernel, captured: _Captured) -> None:
    """A source that was deleted meanwhile took its files along: say so, and not which are gone."""
    source = captured.source_branch
    current = kernel.manifest.refreshed(source.branch).where.ref
    if current != source.where.ref:
        raise ReadSetChanged("graph_branch", source.where.ref, current)
