"""Merging a branch into another, and replaying a commit: make a plan, then write it as one commit.

The heads of both branches, their base and the schema are captured once. Later commits to the source
are not merged; a later commit to the target fails the merge, without any effect. The source is read
before the target's lease is taken, so the merge never blocks writers of the source.

A replay is a special three-way merge: a cherry-pick merges the commit with its parent as the base;
a revert merges the parent with the commit as the base. So later changes of the same entities are
kept, or are conflicts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from functools import cached_property, partial
from typing import Any, Literal

from omnigraph.branching.ancestry import common_ancestor
from omnigraph.branching.branches import BranchRequest, delete_branch
from omnigraph.branching.change_pages import Unfinished, next_page
from omnigraph.branching.merge_plan import (
    MergeWrite,
    PlannedMerge,
    Sides,
    merge_types,
    plan_types,
    require_mergeable,
)
from omnigraph.branching.moments import Sees, reader_of
from omnigraph.branching.revisions import find_commit
from omnigraph.branching.three_way import ConflictRules
from omnigraph.branching.workers import Choose
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.plan import ChangeSet, Intent
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.schema.change import identity_of
from omnigraph.commit.schema.rebase import SchemaPath, schema_position
from omnigraph.commit.write_path import earlier_commit
from omnigraph.commit.writer import WriteAttempt
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.requests import concurrently, outcome
from omnigraph.errors import (
    ChangeDiffRefused,
    Conflict,
    ExpectedVersionMismatch,
    InputError,
    NotFound,
    OmnigraphError,
    ReadSetChanged,
    StorageError,
)
from omnigraph.model.changes import ChangeFilter, PageLimits
from omnigraph.model.ids import MAIN_BRANCH, SCHEMA_APPLY_LOCK, check_branch_name
from omnigraph.model.merging import MergePlan
from omnigraph.model.receipts import MergeOutcome, MergeReceipt, ReplayReceipt
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.contract import AcceptedSchema
from omnigraph.storage.manifest import ManifestBranch, ManifestState, Snapshot
from omnigraph.storage.manifest_rows import CommitRow, TableIdentity, commit_info
from omnigraph.storage.reader import SnapshotReader
from omnigraph.views import View, WriteRights

Rights = Callable[[Catalog, Collection[str]], WriteRights | None]
"""Returns, for a catalog and branches, what an actor may write to the first branch and sees of all
of them; None for everything.
"""


def everything(catalog: Catalog, branches: Collection[str]) -> WriteRights | None:
    """The rights of an actor whose rules are not limited to types."""
    return None


@dataclass(frozen=True, slots=True)
class MergeCondition:
    """Conditions of a merge, checked again under the lease of the target."""

    source_ref: str | None
    """The physical ref of the source, which differs for a new branch of the same name."""
    source_head: str
    """The only commit that may be merged."""
    require: Callable[[], None]
    """Raises if a further condition no longer holds; called under the lease of the target."""
    receipt: Mapping[str, Any]
    """Metadata about the condition, kept with the commit."""

    def require_source(self, source: ManifestBranch) -> None:
        """Raise `ReadSetChanged` if the source was replaced or has moved."""
        ref, head = source.where.ref, source.state.head.commit_id
        if ref != self.source_ref:
            raise ReadSetChanged("source_branch", self.source_ref, ref)
        if head != self.source_head:
            raise ReadSetChanged("source_head", self.source_head, head)


@dataclass(frozen=True, slots=True)
class MergeSpec:
    """The parameters of a merge."""

    source: str
    target: str
    rules: ConflictRules
    actor_id: str | None = None
    operation_id: str | None = None
    """The idempotency key: a second merge with it returns the first receipt."""
    metadata: Mapping[str, Any] | None = None
    """A JSON object that is kept with the commit."""
    message: str | None = None
    """The caller's reason, kept with the commit."""
    condition: MergeCondition | None = None
    rights: Rights = everything
    """What the actor may bring to the target."""

    @property
    def identity(self) -> dict[str, Any]:
        """The parameters that an idempotency key is bound to; kept with the commit."""
        return {
            "source": self.source,
            "on_conflict": self.rules.on_conflict,
            "on_conflict_of": dict(self.rules.narrower),
            "granularity": self.rules.granularity,
        }


@dataclass(frozen=True, slots=True)
class _Captured:
    """Both branches and their merge base, read once."""

    sides: Sides
    source_branch: ManifestBranch
    accepted: AcceptedSchema
    view: View | None = None
    """The visible part of both; None for everything."""


@dataclass(frozen=True, slots=True)
class PlanPage:
    """The page of a plan's entities to list."""

    unfinished: Unfinished
    limits: PageLimits = field(default_factory=PageLimits)
    page_token: str | None = None
    wanted: ChangeFilter = field(default_factory=ChangeFilter)

    def cut(
        self,
        kernel: Kernel,
        sides: Sides,
        rules: ConflictRules,
        view: View | None,
        plan: Callable[[], PlannedMerge],
    ) -> MergePlan:
        """The plan with one page of its entities; planned again unless it is cached.

        Raises `ChangeCursorRejected` for a token of another plan: if branches moved since the first
        page, or with other rules.
        """
        ends = (sides.base.snapshot, sides.source.snapshot, sides.target.snapshot)
        of = f"{[each.commit_id for each in ends]} {sides.source_name} {rules!r}"
        of += "" if view is None else f" {view.key}"
        found, listed, rest = next_page(
            kernel, self.unfinished, self, hashlib.sha256(of.encode()).hexdigest(), plan
        )
        return replace(found.plan, changes=listed, next_page_token=rest)


def plan_merge(
    kernel: Kernel,
    request: MergeSpec,
    page: PlanPage,
    choose: Choose | None = None,
    sees: Sees | None = None,
) -> MergePlan:
    """The effect of a merge of the current heads, as visible by ``sees``; changes nothing.

    Raises `NotFound` for an unknown branch, and `ChangeCursorRejected`.
    """
    _check(request)
    source, target = map(kernel.manifest.refreshed, (request.source, request.target))
    captured = _capture(kernel, request.rules, source, target, sees)

    def plan() -> PlannedMerge:
        sides, view = captured.sides, captured.view
        if sides.outcome == "already_up_to_date":
            sides = sides if view is None else sides.seen_by(view)
            return PlannedMerge(sides.plan())
        catalog = captured.accepted.catalog
        return plan_types(kernel, catalog, sides, request.rules, choose, view=view)

    with _source_required(kernel, captured.source_branch):
        return page.cut(kernel, captured.sides, request.rules, captured.view, plan)


def merge(kernel: Kernel, request: MergeSpec, choose: Choose | None = None) -> MergeReceipt:
    """Merge the source into the target, as one commit with both heads as parents.

    Without ``choose``, this process compares, checks and writes the rows.

    Raises, always without any effect: `MergeConflicts` if the sides conflict or the merged graph
    breaks the schema, `Denied` if the source has changes that the actor may not make or does not
    see, `ReadSetChanged` if the target moved, `NotFound` if either branch was deleted, `Conflict`
    if the schemas are incompatible, and `LimitExceeded` if the merge exceeds the limit of temporary
    files.
    """
    _check(request)
    recoverer = Recoverer(kernel)
    target, source, known = concurrently(
        partial(recoverer.barrier, request.target, "branch merge"),
        partial(outcome, partial(recoverer.barrier, request.source, "branch merge")),
        partial(outcome, kernel.accepted_schema),
        threads=kernel.is_remote,
    )
    # Checked before the source is read, which an earlier identical request may have deleted.
    if (earlier := _earlier_merge(kernel, request, target.state)) is not None:
        return earlier
    if isinstance(source, Exception):
        raise source
    sees, accepted = _seen_by(request.rights), None if isinstance(known, Exception) else known
    captured = _capture(kernel, request.rules, source, target, sees, known=accepted)
    if request.condition is not None:
        request.condition.require_source(source)
    hit(Failpoint.BRANCH_MERGE_POST_AUTHORITY_CAPTURE)
    planned, write = _plan(kernel, captured, request.rules, choose)
    plan = planned.plan
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
    rights = request.rights(captured.accepted.catalog, (request.target, request.source))
    with _source_required(kernel, captured.source_branch):
        require_mergeable(kernel, captured.sides, request.rules, planned, rights)
    stored: dict[str, Any] = {
        **request.identity,
        "outcome": plan.outcome,
        "source_ref": source.where.ref,
        **plan.affected,
    }
    if request.metadata is not None:
        stored["metadata"] = dict(request.metadata)
    if request.condition is not None:
        stored |= request.condition.receipt
    intent = Intent(
        "BranchMerge",
        "merge",
        request.actor_id,
        operation_id=request.operation_id,
        receipt=stored,
        merged_parent=plan.source_commit_id,
        message=request.message,
    )
    with _source_required(kernel, captured.source_branch):
        changes = write.change_set()
    commit = carry_out(
        kernel, captured.sides.target, changes, intent, partial(_recheck, kernel, request)
    )
    return replace(receipt, commit=commit_info(commit))


def _earlier_merge(
    kernel: Kernel, request: MergeSpec, target: ManifestState
) -> MergeReceipt | None:
    """The receipt of an earlier merge with the same key and actor; raises `Conflict` if it differs.

    A merge without changes has no commit, but the deletion of its source was recorded.
    """
    row = earlier_commit(target, request.operation_id, request.actor_id, "merge", request.identity)
    if row is not None:
        stored = row.receipt or {}
        return MergeReceipt(
            request.source,
            row.branch or MAIN_BRANCH,
            stored["outcome"],
            row.actor_id,
            commit_info(row),
            source_commit_id=row.merged_parent_commit_id,
        )
    deletion = _deletion(request.source, request.target, request.actor_id, request.operation_id)
    if deletion.earlier(kernel.manifest.main) is None:
        return None
    return MergeReceipt(
        request.source, request.target, "already_up_to_date", request.actor_id, branch_deleted=True
    )


def _recheck(kernel: Kernel, request: MergeSpec) -> None:
    """Check the condition of a merge, under the lease of the target."""
    if request.condition is not None:
        request.condition.require_source(kernel.manifest.refreshed(request.source))
        request.condition.require()


def carry_out(
    kernel: Kernel,
    target: Capture,
    changes: ChangeSet,
    intent: Intent,
    require: Callable[[], None] = lambda: None,
) -> CommitRow:
    """Write planned changes on a captured head; raises `ReadSetChanged` if the branch has moved.

    ``require`` is called under the lease of the target before the first effect, and may raise.
    """
    attempt = WriteAttempt(kernel, target, changes, intent)
    attempt.stage()
    try:
        with attempt.owned_branch() as lease:
            require()
            return attempt.commit(lease)
    except ExpectedVersionMismatch as moved:
        head = target.branch.refresh().head.commit_id
        raise ReadSetChanged("graph_head", target.snapshot.commit_id, head) from moved


def delete_source(
    kernel: Kernel,
    receipt: MergeReceipt,
    permit: Callable[[], None],
    operation_id: str | None = None,
) -> MergeReceipt:
    """Delete the source after a merge; a failure is reported in the receipt, and the merge stays.

    A source with unmerged commits is kept. If a merge with the same ``operation_id`` deleted it,
    nothing is done. ``permit`` raises if the actor may not delete the branch.
    """
    if receipt.branch_deleted:
        return receipt
    request = _deletion(receipt.source, receipt.target, receipt.actor_id, operation_id)
    try:
        permit()
        delete_branch(
            kernel, receipt.source, expected_head=receipt.source_commit_id, request=request
        )
    except (OmnigraphError, OSError) as refused:
        return replace(receipt, branch_deleted=False, branch_delete_error=str(refused))
    return replace(receipt, branch_deleted=True)


def _deletion(
    source: str, target: str, actor_id: str | None, operation_id: str | None
) -> BranchRequest:
    """The deletion after a merge, with the merge's key."""
    return BranchRequest("delete", source, actor_id, operation_id, {"merged_into": target})


def _check(request: MergeSpec) -> None:
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
    kernel: Kernel,
    rules: ConflictRules,
    source: ManifestBranch,
    target: ManifestBranch,
    sees: Sees | None = None,
    *,
    known: AcceptedSchema | None = None,
) -> _Captured:
    """``known`` is the target's schema, if it was already read with the branches."""
    theirs, ours = source.state, target.state
    head = ours.head_snapshot()
    accepted = kernel.accepted_at(head, known)
    view = _view(sees, accepted, source.branch, target.branch)
    rules.check(accepted.catalog if view is None else view.catalog)
    heads = theirs.head.commit_id, ours.head.commit_id
    found = common_ancestor(kernel, (theirs, heads[0]), (ours, heads[1]))
    if found is None:
        raise Conflict(f"{source.branch} and {target.branch} have no commit in common")
    holder, base = found
    outcome: MergeOutcome = "merged"
    if base.commit_id in heads:
        is_contained = base.commit_id == theirs.head.commit_id
        outcome = "already_up_to_date" if is_contained else "fast_forward"
    ends = _Ends(
        kernel, holder.snapshot_at(base.commit_id), theirs.head_snapshot(), accepted, theirs, view
    )
    ends.require_not_newer(source.branch, target.branch)
    ends.require_nothing_lost(
        source.branch,
        target.branch,
        "drop it there as well with "
        f"`omnigraph schema rebase {source.branch} --allow-data-loss`, then merge",
    )
    sides = Sides(
        ends.base_reader(),
        ends.source_reader(),
        kernel.capture(target, accepted.schema_hash, head),
        source.branch,
        target.branch,
        outcome,
        ends.path.plan,
    )
    return _Captured(sides, source, accepted, view)


def _seen_by(rights: Rights) -> Sees:
    """The views on branches that an actor's rights imply."""

    def sees(catalog: Catalog, branches: Collection[str]) -> View | None:
        found = rights(catalog, branches)
        return None if found is None else found.read

    return sees


def _view(sees: Sees | None, accepted: AcceptedSchema, *branches: str) -> View | None:
    """The visible part of some branches in a schema; None for everything."""
    return None if sees is None else sees(accepted.catalog, dict.fromkeys(branches))


@dataclass(frozen=True)
class _Ends:
    """The base and the source of a merge, both read in the target's schema.

    Their own schemas may be older: the source's if the target was rebased to a newer schema, the
    base's if either was.
    """

    kernel: Kernel
    base: Snapshot
    source: Snapshot
    accepted: AcceptedSchema
    """The schema of the target."""
    line: ManifestState | None = None
    """The state of the source, if it is a branch."""
    view: View | None = None
    """The visible part; None for everything."""

    def require_not_newer(self, source: str, target: str) -> None:
        """Raise `Conflict` if the schema of the source is newer than that of the target."""
        mine, theirs = self.source.commit.schema_hash, self.accepted.schema_hash
        if mine == theirs:
            return
        first, last = (schema_position(self.kernel, each) for each in (mine, theirs))
        if first is not None and last is not None and first > last:
            raise Conflict(
                f"{source} has a newer schema than {target}",
                hint=f"bring {target} forward first with `omnigraph schema rebase {target}`",
                details={"source": source, "target": target},
            )

    def require_nothing_lost(self, source: str, target: str, hint: str) -> None:
        """Raise `Conflict` if the target's schema has dropped data that the source changed."""
        if self.path.is_trivial:
            return
        changed = self._changed()
        lost = [
            name
            for type in self.path.start.catalog.types
            if identity_of(type) in changed
            for name in self.path.dropped(type)
        ]
        if lost:
            # Types and properties that the target's schema lacks are in no view, so they are not
            # named.
            named = lost if self.view is None else []
            told = f": {', '.join(named)}" if named else ""
            raise Conflict(
                f"{target} has dropped what {source} has changed{told}",
                hint=hint,
                details={"source": source, "target": target, "dropped": named},
            )

    def _changed(self) -> set[TableIdentity]:
        """The tables in which the source may differ from the base."""
        before, after = (
            {(each.identity, each.ref, each.version) for each in end.tables.values()}
            for end in (self.base, self.source)
        )
        moved = {identity for identity, _, _ in after - before}
        if self.line is None or (base := self.line.commits.get(self.base.commit_id)) is None:
            return moved
        return {each for each in moved if self.line.wrote_to(each, base.commit_seq)}

    @cached_property
    def path(self) -> SchemaPath:
        """The schema changes from the source's schema to the target's."""
        return self._path(self.source)

    def base_reader(self) -> SnapshotReader:
        """The base in the schema of the target."""
        return reader_of(self.kernel, self.base, self._path(self.base))

    def source_reader(self) -> SnapshotReader:
        """The source in the schema of the target."""
        return reader_of(self.kernel, self.source, self.path)

    def _path(self, end: Snapshot) -> SchemaPath:
        start: AcceptedSchema | None = self.accepted
        if end.commit.schema_hash != self.accepted.schema_hash:
            start = self.kernel.schema_of(end.commit.schema_hash)
        if start is None:
            raise Conflict(
                f"the schema that commit {end.commit_id} was made with is not kept any more",
                hint="merge or replay what was written with a schema that the graph still has",
                details={"graph_commit_id": end.commit_id},
            )
        return SchemaPath.between(self.kernel, start, self.accepted)


def _plan(
    kernel: Kernel, captured: _Captured, rules: ConflictRules, choose: Choose | None = None
) -> tuple[PlannedMerge, MergeWrite]:
    if captured.sides.outcome == "already_up_to_date":
        return PlannedMerge(captured.sides.plan()), MergeWrite(kernel, captured.sides.target)
    with _source_required(kernel, captured.source_branch):
        return merge_types(kernel, captured.accepted.catalog, captured.sides, rules, choose)


@contextmanager
def _source_required(kernel: Kernel, source: ManifestBranch) -> Iterator[None]:
    """Within the block, report a concurrent deletion of the source.

    Its files are then missing; the error names the branch instead of the files.
    """
    try:
        yield
    except (NotFound, StorageError) as error:
        current = kernel.manifest.refreshed(source.branch).where.ref
        if current != source.where.ref:
            raise ReadSetChanged("graph_branch", source.where.ref, current) from error
        raise


@dataclass(frozen=True, slots=True)
class ReplaySpec:
    """The parameters of a replay: commit, branch and direction."""

    verb: Literal["revert", "cherry-pick"]
    commit_id: str
    branch: str
    actor_id: str | None = None
    operation_id: str | None = None
    """The idempotency key: a second replay with it returns the first receipt."""
    message: str | None = None
    """The caller's reason, kept with the commit."""
    rights: Rights = everything
    """The rights of the actor on the branch."""

    @property
    def identity(self) -> dict[str, str]:
        """The parameters that an idempotency key is bound to; kept with the commit."""
        return {"verb": self.verb, "of": self.commit_id}

    @property
    def source_name(self) -> str:
        """The name of the commit's side in conflicts."""
        return f"{self.verb} of {self.commit_id}"


def plan_replay(
    kernel: Kernel, request: ReplaySpec, page: PlanPage, sees: Sees | None = None
) -> MergePlan:
    """The effect of a replay on the current head, as visible by ``sees``; changes nothing."""
    branch = kernel.manifest.refreshed(request.branch)
    accepted, sides, branches = _replay_sides(kernel, request, branch, sees)
    rules, view = ConflictRules(), _view(sees, accepted, *branches)
    plan = partial(plan_types, kernel, accepted.catalog, sides, rules, view=view)
    return page.cut(kernel, sides, rules, view, plan)


def replay(kernel: Kernel, request: ReplaySpec) -> ReplayReceipt:
    """Apply or revert the changes of a commit on a branch, as one commit; none without changes.

    Raises `MergeConflicts` if the entities differ on the branch, `Denied` for changes that the
    actor may not make or does not see, `NotFound` for an unknown commit or, for a revert, one that
    is not on the branch, `ChangeDiffRefused` for the first commit of a graph, and `ReadSetChanged`
    if the branch moved.
    """
    branch = Recoverer(kernel).barrier(request.branch, request.verb)
    if (earlier := earlier_replay(request, branch.state)) is not None:
        return earlier
    accepted, sides, branches = _replay_sides(kernel, request, branch, _seen_by(request.rights))
    rules = ConflictRules()
    planned, write = merge_types(kernel, accepted.catalog, sides, rules)
    plan = planned.plan
    hint = f"nothing was changed; bring these entities on {request.branch} to what they should be"
    rights = request.rights(accepted.catalog, branches)
    require_mergeable(kernel, sides, rules, planned, rights, hint=hint)
    counts = {
        name: sum(getattr(each, name) for each in plan.types)
        for name in ("inserted", "updated", "deleted")
    }
    commit = None
    if not write.is_empty:
        intent = Intent(
            "BranchMerge",
            "mutation",
            request.actor_id,
            operation_id=request.operation_id,
            receipt={**request.identity, **counts, **plan.affected},
            message=request.message,
        )
        commit = commit_info(carry_out(kernel, sides.target, write.change_set(), intent))
    return ReplayReceipt(
        request.verb,
        request.commit_id,
        request.branch,
        **counts,
        actor_id=request.actor_id,
        commit=commit,
    )


def earlier_replay(request: ReplaySpec, state: ManifestState) -> ReplayReceipt | None:
    """The receipt of an earlier replay on this branch with the same key and actor."""
    row = earlier_commit(
        state, request.operation_id, request.actor_id, "mutation", request.identity
    )
    if row is None:
        return None
    stored = row.receipt or {}
    return ReplayReceipt(
        request.verb,
        request.commit_id,
        row.branch or MAIN_BRANCH,
        stored["inserted"],
        stored["updated"],
        stored["deleted"],
        row.actor_id,
        commit_info(row),
    )


def _replay_sides(
    kernel: Kernel, request: ReplaySpec, branch: ManifestBranch, sees: Sees | None = None
) -> tuple[AcceptedSchema, Sides, tuple[str, str]]:
    """The schema of the branch, the three snapshots that a replay compares, and the branches whose
    data it shows: the target, and the one with the commit.
    """
    state = branch.state
    head = state.head_snapshot()
    accepted = kernel.accepted_at(head)
    capture = kernel.capture(branch, accepted.schema_hash, head)
    history = _history(kernel, request, state)
    parent = history.commits[request.commit_id].parent_commit_id
    if parent is None:
        raise ChangeDiffRefused("parentless_commit", request.commit_id)
    snapshots = [history.snapshot_at(each) for each in (parent, request.commit_id)]
    base, source = snapshots if request.verb == "cherry-pick" else reversed(snapshots)
    if base.commit.schema_hash != source.commit.schema_hash:
        raise Conflict(
            f"commit {request.commit_id} is a change of schema",
            hint="a schema is changed, and changed back, with `omnigraph schema apply`",
            details={"graph_commit_id": request.commit_id},
        )
    authored = source.commit if request.verb == "cherry-pick" else base.commit
    branches = request.branch, authored.branch or MAIN_BRANCH
    ends = _Ends(kernel, base, source, accepted, view=_view(sees, accepted, *branches))
    ends.require_not_newer(request.source_name, request.branch)
    ends.require_nothing_lost(
        request.source_name, request.branch, "nothing was changed; write what is left of it anew"
    )
    readers = ends.base_reader(), ends.source_reader()
    sides = Sides(*readers, capture, request.source_name, request.branch, schema=ends.path.plan)
    return accepted, sides, branches


def _history(kernel: Kernel, request: ReplaySpec, state: ManifestState) -> ManifestState:
    """The state of a branch that has the commit."""
    if request.commit_id in state.commits:
        return state
    found, _ = find_commit(kernel, request.commit_id)
    if request.verb == "cherry-pick":
        return found
    raise NotFound(
        f"branch {request.branch} has no commit {request.commit_id} to revert",
        hint=f"it is on {found.branch}; a merge commit is reverted as a whole",
    )
