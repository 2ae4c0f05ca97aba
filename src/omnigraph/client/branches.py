"""Branches of a served graph: created, deleted, merged, and single commits replayed on them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from omnigraph.client.exchange import (
    checked_body,
    header_key,
    segment,
)
from omnigraph.client.failures import require_no_actor
from omnigraph.client.handle import Answered, AsyncHandle
from omnigraph.model.ids import HEAD
from omnigraph.model.merging import ConflictPolicy, MergeGranularity, MergePlan
from omnigraph.model.receipts import (
    BranchCreated,
    BranchDeleted,
    MergeReceipt,
    ReplayReceipt,
    TagInfo,
)
from omnigraph.wire import operations, requests
from omnigraph.wire.answers import (
    BranchList,
    TagList,
)
from omnigraph.wire.operations import Operation
from omnigraph.wire.requests import branch_name


async def create_branch(
    self: AsyncHandle,
    name: str,
    from_: str | None = None,
    *,
    actor: str | None = None,
    operation_id: str | None = None,
) -> BranchCreated:
    """Create a branch at the head of another, or at any revision.

    ``operation_id`` names the request: repeating it with the same id returns the first receipt.
    """
    require_no_actor(actor)
    start = self._snapshot_of(from_) or self._branch_of(None)
    content = checked_body(requests.CreateBranchRequest, {"name": name, "from": start})
    operation = operations.CREATE_BRANCH
    return await self._ask(operation, BranchCreated, content=content, key=header_key(operation_id))


async def list_branches(self: AsyncHandle) -> list[str]:
    """The branches, sorted."""
    return list((await self._ask(operations.LIST_BRANCHES, BranchList)).branches)


async def delete_branch(
    self: AsyncHandle, name: str, *, actor: str | None = None, operation_id: str | None = None
) -> BranchDeleted:
    """Delete a branch; its commits are gone with it.

    ``operation_id`` names the request: repeating it with the same id returns the first receipt.
    """
    require_no_actor(actor)
    operation, values = operations.DELETE_BRANCH, {"branch": branch_name(name)}
    return await self._ask(operation, BranchDeleted, values=values, key=header_key(operation_id))


async def create_tag(
    self: AsyncHandle,
    name: str,
    revision: str | None = None,
    *,
    branch: str | None = None,
    actor: str | None = None,
) -> TagInfo:
    """Name a commit: the head of a branch, or the one that ``revision`` names.

    If the tag names this commit already, nothing is done. Raises `AlreadyExists` for a name that a
    branch or another commit has.
    """
    require_no_actor(actor)
    fields = {"name": name, "revision": self._revision_of(revision or HEAD, branch)}
    content = checked_body(requests.CreateTagRequest, fields)
    return await self._ask(operations.CREATE_TAG, TagInfo, content=content)


async def list_tags(self: AsyncHandle) -> list[TagInfo]:
    """The tags of commits that the caller may read, by name."""
    return list((await self._ask(operations.LIST_TAGS, TagList)).tags)


async def delete_tag(self: AsyncHandle, name: str, *, actor: str | None = None) -> TagInfo:
    """Delete a tag and return what it was; its commit stays. Raises `NotFound`."""
    require_no_actor(actor)
    return await self._ask(operations.DELETE_TAG, TagInfo, values={"tag": segment(name, "tag")})


async def plan_merge(
    self: AsyncHandle,
    source: str,
    into: str | None = None,
    *,
    on_conflict: ConflictPolicy = "fail",
    on_conflict_of: Mapping[str, ConflictPolicy] | None = None,
    granularity: MergeGranularity = "entity",
    page_token: str | None = None,
    limit: int | None = None,
    limit_bytes: int | None = None,
) -> MergePlan:
    """What `merge_branch` would do now: per type, entity by entity, and every conflict.

    Changes nothing. The pages are those of `Graph.plan_merge`.
    """
    fields = _merge_fields(source, self._branch_of(into), on_conflict, on_conflict_of, granularity)
    fields |= {"page_token": page_token, "limit": limit, "limit_bytes": limit_bytes}
    content = checked_body(requests.MergePlanRequest, fields)
    return await self._ask(operations.PLAN_MERGE, MergePlan, content=content, is_read=True)


async def merge_branch(
    self: AsyncHandle,
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
) -> MergeReceipt:
    """Merge a branch into main, or ``into`` another, as one commit with two parents.

    The options mean what they mean for `Graph.merge_branch`. Raises `MergeConflicts`, and
    nothing has changed then. ``operation_id`` names the merge: repeating it with the same id
    returns the first receipt. ``message`` is kept with the commit.
    """
    require_no_actor(actor)
    fields = _merge_fields(source, self._branch_of(into), on_conflict, on_conflict_of, granularity)
    fields |= {"delete_branch": delete_branch, "message": message}
    content = checked_body(requests.MergeRequest, fields)
    operation = operations.MERGE_BRANCHES
    return await self._ask(operation, MergeReceipt, content=content, key=header_key(operation_id))


async def revert(
    self: AsyncHandle,
    commit_id: str,
    *,
    branch: str | None = None,
    actor: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
) -> ReplayReceipt:
    """Undo what one commit of a branch changed, as a new commit; history stays as it is.

    Raises `MergeConflicts` where the same entities changed again; nothing is done then.
    ``operation_id`` names the request: repeating it with the same id returns the first receipt.
    ``message`` is kept with the commit.
    """
    require_no_actor(actor)
    operation = operations.REVERT
    return await _replay(
        self,
        operation,
        ReplayReceipt,
        commit_id,
        branch,
        key=header_key(operation_id),
        more={"message": message},
    )


async def cherry_pick(
    self: AsyncHandle,
    commit_id: str,
    into: str | None = None,
    *,
    actor: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
) -> ReplayReceipt:
    """Do what one commit of any branch changed once more on main, or ``into`` another branch.

    Raises `MergeConflicts` where the same entities differ there; nothing is done then.
    ``operation_id`` names the request: repeating it with the same id returns the first receipt.
    ``message`` is kept with the commit.
    """
    require_no_actor(actor)
    operation = operations.CHERRY_PICK
    return await _replay(
        self,
        operation,
        ReplayReceipt,
        commit_id,
        into,
        key=header_key(operation_id),
        more={"message": message},
    )


async def plan_revert(
    self: AsyncHandle,
    commit_id: str,
    *,
    branch: str | None = None,
    page_token: str | None = None,
    limit: int | None = None,
    limit_bytes: int | None = None,
) -> MergePlan:
    """What `revert` would do now, in pages as `plan_merge`. Changes nothing."""
    page = {"page_token": page_token, "limit": limit, "limit_bytes": limit_bytes}
    return await _replay(self, operations.PLAN_REVERT, MergePlan, commit_id, branch, more=page)


async def plan_cherry_pick(
    self: AsyncHandle,
    commit_id: str,
    into: str | None = None,
    *,
    page_token: str | None = None,
    limit: int | None = None,
    limit_bytes: int | None = None,
) -> MergePlan:
    """What `cherry_pick` would do now, in pages as `plan_merge`. Changes nothing."""
    page = {"page_token": page_token, "limit": limit, "limit_bytes": limit_bytes}
    return await _replay(self, operations.PLAN_CHERRY_PICK, MergePlan, commit_id, into, more=page)


async def _replay(
    self: AsyncHandle,
    operation: Operation,
    kind: type[Answered],
    commit_id: str,
    branch: str | None,
    *,
    key: str | None = None,
    more: Mapping[str, Any],
) -> Answered:
    """Send the request of a replay or of its plan; ``more`` are the fields beside the branch."""
    values = {"commit_id": segment(self._revision_of(commit_id, branch), "commit")}
    is_read = not operation.is_gated
    body = requests.ReplayPlanRequest if is_read else requests.ReplayRequest
    content = checked_body(body, {"branch": self._branch_of(branch), **more})
    return await self._ask(
        operation, kind, values=values, content=content, is_read=is_read, key=key
    )


def _merge_fields(
    source: str,
    into: str | None,
    on_conflict: ConflictPolicy,
    on_conflict_of: Mapping[str, ConflictPolicy] | None,
    granularity: MergeGranularity,
) -> dict[str, Any]:
    """The fields of a merge; a rule that is the default is not sent, as older servers know none."""
    return {
        "source": source,
        "target": into,
        "on_conflict": None if on_conflict == "fail" else on_conflict,
        "on_conflict_of": dict(on_conflict_of) if on_conflict_of else None,
        "granularity": None if granularity == "entity" else granularity,
    }
