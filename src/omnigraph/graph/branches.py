"""Branches of an open graph: created, deleted, merged, and single commits replayed on them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from omnigraph.branching import branches
from omnigraph.branching import merge as merges
from omnigraph.branching.three_way import ConflictRules
from omnigraph.graph.history import show_commit
from omnigraph.graph.opened import CompareEngine, Handle, no_commit
from omnigraph.model.changes import PageLimits
from omnigraph.model.load_options import SparkOptions
from omnigraph.model.merging import ConflictPolicy, MergeGranularity, MergePlan
from omnigraph.model.receipts import (
    BranchCreated,
    BranchDeleted,
    MergeReceipt,
    ReplayReceipt,
    checked_key,
    checked_message,
)
from omnigraph.storage.layout import MAIN


def list_branches(self: Handle) -> list[str]:
    """The branches, sorted."""
    return branches.list_branches(self._kernel)


def create_branch(
    self: Handle,
    name: str,
    from_: str | None = None,
    *,
    actor: str | None = None,
    operation_id: str | None = None,
) -> BranchCreated:
    """Create a branch at the head of another; costs no data copy.

    ``operation_id`` names the request: if the same actor repeats it, the first receipt returns
    and no branch is created, even if the first was deleted since.
    """
    source, actor = self._branch_of(from_), self._actor_of(actor)
    self._opened.gate.branch_create("branch create", actor, source, name)
    key = checked_key(operation_id)
    branches.create_branch(self._kernel, name, source, actor_id=actor, operation_id=key)
    return BranchCreated(self._kernel.root.uri, source, name, actor)


def delete_branch(
    self: Handle, name: str, *, actor: str | None = None, operation_id: str | None = None
) -> BranchDeleted:
    """Delete a branch; its commits are gone with it.

    ``operation_id`` names the request: if the same actor repeats it, the first receipt returns
    and no branch is deleted, even if another one has the name since.
    """
    actor = self._actor_of(actor)
    self._opened.gate.branch_delete(actor, name)
    request = branches.BranchRequest("delete", name, actor, checked_key(operation_id))
    branches.delete_branch(self._kernel, name, request=request)
    return BranchDeleted(self._kernel.root.uri, name, actor)


def plan_merge(
    self: Handle,
    source: str,
    into: str | None = None,
    *,
    on_conflict: ConflictPolicy = "fail",
    on_conflict_of: Mapping[str, ConflictPolicy] | None = None,
    granularity: MergeGranularity = "entity",
    page_token: str | None = None,
    limit: int | None = None,
    limit_bytes: int | None = None,
    engine: CompareEngine = "auto",
    spark: SparkOptions | None = None,
) -> MergePlan:
    """What `merge_branch` would do now: per type, entity by entity, and every conflict.

    Changes nothing. The plan lists the first ``limit`` entities that would change, 1,000 unless
    told, of about ``limit_bytes`` together; `MergePlan.next_page_token` leads to the rest. Raises
    `ChangeCursorRejected` for a token of another plan, as after a branch has moved.
    """
    rules = ConflictRules(on_conflict, on_conflict_of or {}, granularity)
    request = merges.MergeSpec(source, self._branch_of(into), rules)
    with self._opened.comparing(engine, spark, "merge") as choose:
        page = _plan_page(self, page_token, limit, limit_bytes)
        return merges.plan_merge(self._kernel, request, page, choose)


def _plan_page(
    self: Handle, page_token: str | None, limit: int | None, limit_bytes: int | None
) -> merges.PlanPage:
    return merges.PlanPage(self._opened.unfinished, PageLimits.of(limit, limit_bytes), page_token)


def merge_branch(
    self: Handle,
    source: str,
    into: str | None = None,
    *,
    on_conflict: ConflictPolicy = "fail",
    on_conflict_of: Mapping[str, ConflictPolicy] | None = None,
    granularity: MergeGranularity = "entity",
    delete_branch: bool = False,
    actor: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    engine: CompareEngine = "auto",
    spark: SparkOptions | None = None,
) -> MergeReceipt:
    """Merge a branch into main, or ``into`` another, as one commit with two parents.

    The merge is three-way and by entity. Where both sides changed one entity and disagree, or
    the merged graph would break the schema, `MergeConflicts` is raised and nothing has changed.
    ``on_conflict`` lets `source` or `target` win instead, ``on_conflict_of`` by type name; a
    broken schema has no winner. With ``granularity`` `property`, edits of different properties
    of one entity go together. ``delete_branch`` deletes the source afterwards; the receipt says
    if that was refused. Raises `ReadSetChanged` when others wrote to the target meanwhile.
    ``operation_id`` names the merge: if the same actor repeats it, the first receipt returns,
    and only a deletion that the first did not get to is done. ``message`` says why, and
    ``metadata`` is a JSON object; both are kept with the commit. ``engine`` says who compares,
    checks and writes the rows, with the same result: this process (`local`), workers of Spark
    (`spark`), or Spark only where the branches differ in 10 million rows and more (`auto`,
    `OMNIGRAPH_SPARK_THRESHOLD_ROWS`).
    """
    target, actor = self._branch_of(into), self._actor_of(actor)
    self._opened.gate.branch_merge(actor, source, target)
    rules = ConflictRules(on_conflict, on_conflict_of or {}, granularity)
    key, why = checked_key(operation_id), checked_message(message)
    request = merges.MergeSpec(source, target, rules, actor, key, metadata, why)
    with self._opened.comparing(engine, spark, "merge") as choose:
        receipt = merges.merge(self._kernel, request, choose)
    self._opened.notify_auto_optimizer()
    if not delete_branch:
        return receipt
    permit = partial(self._opened.gate.branch_delete, actor, source)
    return merges.delete_source(self._kernel, receipt, permit, key)


def revert(
    self: Handle,
    commit_id: str,
    *,
    branch: str | None = None,
    actor: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
) -> ReplayReceipt:
    """Undo what one commit of a branch changed, as a new commit; history stays as it is.

    What happened to other entities since stays. Raises `MergeConflicts` where the same entities
    changed again, or where the schema needs what the commit brought; nothing is done then. A
    merge is reverted against its first parent. ``operation_id`` names the request: if the same
    actor repeats it, the first receipt returns.
    ``message`` is kept with the commit.
    """
    key, why = checked_key(operation_id), checked_message(message)
    request = merges.ReplaySpec(
        "revert", commit_id, self._branch_of(branch), self._actor_of(actor), key, why
    )
    return _replayed(self, "revert", request)


def cherry_pick(
    self: Handle,
    commit_id: str,
    into: str | None = None,
    *,
    actor: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
) -> ReplayReceipt:
    """Do what one commit of any branch changed once more on main, or ``into`` another branch.

    Raises `MergeConflicts` where the same entities differ there; nothing is done then.
    ``operation_id`` names the request: if the same actor repeats it, the first receipt returns.
    ``message`` is kept with the commit.
    """
    key, why = checked_key(operation_id), checked_message(message)
    request = merges.ReplaySpec(
        "cherry-pick", commit_id, self._branch_of(into), self._actor_of(actor), key, why
    )
    return _replayed(self, "branch cherry-pick", request)


def _replayed(self: Handle, verb: str, request: merges.ReplaySpec) -> ReplayReceipt:
    """Raises what the gate raises, and `NotFound` for a commit that the actor may not read."""

    def authored_branch() -> str:
        return show_commit(self, request.commit_id).graph_branch or MAIN

    if not self._opened.gate.replay(verb, request.actor_id, request.branch, authored_branch):
        raise no_commit(request.commit_id)
    return merges.replay(self._kernel, request)


def plan_revert(
    self: Handle,
    commit_id: str,
    *,
    branch: str | None = None,
    page_token: str | None = None,
    limit: int | None = None,
    limit_bytes: int | None = None,
) -> MergePlan:
    """What `revert` would do now, in pages as `plan_merge`. Changes nothing."""
    request = merges.ReplaySpec("revert", commit_id, self._branch_of(branch))
    page = _plan_page(self, page_token, limit, limit_bytes)
    return merges.plan_replay(self._kernel, request, page)


def plan_cherry_pick(
    self: Handle,
    commit_id: str,
    into: str | None = None,
    *,
    page_token: str | None = None,
    limit: int | None = None,
    limit_bytes: int | None = None,
) -> MergePlan:
    """What `cherry_pick` would do now, in pages as `plan_merge`. Changes nothing."""
    request = merges.ReplaySpec("cherry-pick", commit_id, self._branch_of(into))
    page = _plan_page(self, page_token, limit, limit_bytes)
    return merges.plan_replay(self._kernel, request, page)
