"""Branches and tags of a served graph, merges, replays, and change requests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from omnigraph.client.exchange import (
    checked_body,
    header_key,
    segment,
)
from omnigraph.client.failures import require_no_actor
from omnigraph.client.handle import Answered, AsyncHandle
from omnigraph.client.history import diff_page
from omnigraph.client.values import AsyncRemoteDiff
from omnigraph.model.diffs import DiffPage
from omnigraph.model.ids import HEAD
from omnigraph.model.merging import ConflictPolicy, MergeGranularity, MergePlan
from omnigraph.model.receipts import (
    BranchCreated,
    BranchDeleted,
    MergeReceipt,
    ReplayReceipt,
    TagInfo,
)
from omnigraph.model.reviews import (
    CheckState,
    Review,
    ReviewEvent,
    ReviewEvents,
    ReviewMerged,
    ReviewPage,
    ReviewState,
    ReviewVerdict,
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

    ``operation_id`` is an idempotency key: a repeated request returns the first receipt.
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
    """Delete a branch with its commits.

    ``operation_id`` is an idempotency key: a repeated request returns the first receipt.
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
    """Tag a commit: the head of a branch, or the commit that ``revision`` names.

    If the tag already names this commit, nothing is done. Raises `AlreadyExists` if a branch has
    the name or the tag names another commit.
    """
    require_no_actor(actor)
    fields = {"name": name, "revision": self._revision_of(revision or HEAD, branch)}
    content = checked_body(requests.CreateTagRequest, fields)
    return await self._ask(operations.CREATE_TAG, TagInfo, content=content)


async def list_tags(self: AsyncHandle) -> list[TagInfo]:
    """The tags of commits that the caller may read, by name."""
    return list((await self._ask(operations.LIST_TAGS, TagList)).tags)


async def delete_tag(self: AsyncHandle, name: str, *, actor: str | None = None) -> TagInfo:
    """Delete a tag and return it; its commit stays. Raises `NotFound`."""
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
    """The effect that `merge_branch` would have now: counts per type, entities, and all conflicts.

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

    The options are those of `Graph.merge_branch`. Raises `MergeConflicts`, without any effect.
    ``operation_id`` is an idempotency key: a repeated merge returns the first receipt. ``message``
    is kept with the commit.
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

    Raises `MergeConflicts`, without any effect, if the same entities changed again.
    ``operation_id`` is an idempotency key: a repeated request returns the first receipt.
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
    """Apply the changes of one commit of any branch to main, or ``into`` another branch.

    Raises `MergeConflicts`, without any effect, if the same entities differ there. ``operation_id``
    is an idempotency key: a repeated request returns the first receipt. ``message`` is kept with
    the commit.
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
    """The plan of `revert`, in pages as `plan_merge`. Changes nothing."""
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
    """The plan of `cherry_pick`, in pages as `plan_merge`. Changes nothing."""
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
    """Send the request of a replay or of its plan; ``more`` are fields besides the branch."""
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
    """The fields of a merge; default rules are omitted, because older servers reject them."""
    return {
        "source": source,
        "target": into,
        "on_conflict": None if on_conflict == "fail" else on_conflict,
        "on_conflict_of": dict(on_conflict_of) if on_conflict_of else None,
        "granularity": None if granularity == "entity" else granularity,
    }


# --- change requests ------------------------------------------------------------------------------


class AsyncRemoteReviews:
    """The change requests of a served graph; the verbs are those of `Graph.reviews`.

    The actor is that of the token.
    """

    def __init__(self, handle: AsyncHandle) -> None:
        self._handle = handle

    async def list(
        self,
        *,
        state: ReviewState | None = "open",
        limit: int | None = None,
        page_token: str | None = None,
    ) -> ReviewPage:
        """Change requests, newest first: those in a ``state``, or all with None."""
        query = {"state": state or "all", "limit": limit, "page_token": page_token}
        return await self._handle._ask(operations.LIST_REVIEWS, ReviewPage, query=query)

    async def get(self, id: str) -> Review:
        """The current state of one request: reviews, comments, checks, and what blocks it."""
        return await self._handle._ask(operations.GET_REVIEW, Review, values=_one(id))

    async def diff(
        self,
        id: str,
        *,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> AsyncRemoteDiff:
        """The changes that a request would make in its target, or has made if it is merged."""
        filters: Any = {"kinds": [*kinds], "types": [*types], "ops": [*ops]}
        first = await self.diff_page(id, **filters)
        # The source may move between two pages; later pages use the commits of the first.
        ends = (first.before.graph_commit_id, first.after.graph_commit_id)
        filters["direct"] = first.compared == "direct"

        async def turn(page_token: str | None, images: bool) -> DiffPage:
            return await diff_page(
                self._handle, *ends, page_token=page_token, images=images, **filters
            )

        return AsyncRemoteDiff(first, turn)

    async def diff_page(
        self,
        id: str,
        *,
        page_token: str | None = None,
        limit: int | None = None,
        limit_bytes: int | None = None,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
        images: bool = False,
    ) -> DiffPage:
        """One page of `diff`, as `Graph.diff_page` returns it."""
        query = {
            "page_token": page_token,
            "limit": limit,
            "limit_bytes": limit_bytes,
            "kind": [*kinds],
            "type": [*types],
            "op": [*ops],
            "images": images or None,
        }
        operation = operations.DIFF_REVIEW
        return await self._handle._ask(operation, DiffPage, values=_one(id), query=query)

    async def export(self) -> AsyncIterator[ReviewEvent]:
        """Every event of every request, in order."""

        async def events(page: ReviewEvents) -> AsyncIterator[ReviewEvent]:
            while True:
                for event in page.events:
                    yield event
                if page.next_page_token is None:
                    return
                page = await self.export_page(page_token=page.next_page_token)

        return events(await self.export_page())

    async def export_page(
        self, *, page_token: str | None = None, limit: int | None = None
    ) -> ReviewEvents:
        """One page of `export`; `ReviewEvents.next_page_token` gets the next."""
        query = {"page_token": page_token, "limit": limit}
        return await self._handle._ask(operations.EXPORT_REVIEWS, ReviewEvents, query=query)

    async def open(
        self,
        source: str,
        into: str | None = None,
        *,
        title: str | None = None,
        description: str = "",
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> Review:
        """Ask to merge a branch into main, or ``into`` another."""
        fields = {
            "source": source,
            "target": self._handle._branch_of(into),
            "title": title,
            "description": description or None,
        }
        body = requests.OpenReviewRequest, fields
        return await self._send_event(operations.OPEN_REVIEW, Review, {}, body, actor, operation_id)

    async def edit(
        self,
        id: str,
        *,
        title: str | None = None,
        description: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> Review:
        """Change the title or the description of a request."""
        body = requests.EditReviewRequest, {"title": title, "description": description}
        return await self._send_event(
            operations.EDIT_REVIEW, Review, _one(id), body, actor, operation_id
        )

    async def comment(
        self,
        id: str,
        text: str,
        *,
        type_name: str | None = None,
        entity_id: str | None = None,
        property_name: str | None = None,
        commit_id: str | None = None,
        reply_to: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> Review:
        """Comment on a request, or on a type, an entity or a property of its changes."""
        fields = {
            "text": text,
            "type_name": type_name,
            "entity_id": entity_id,
            "property_name": property_name,
            "commit_id": commit_id,
            "reply_to": reply_to,
        }
        body, operation = (requests.CommentRequest, fields), operations.COMMENT_REVIEW
        return await self._send_event(operation, Review, _one(id), body, actor, operation_id)

    async def resolve(
        self,
        id: str,
        comment_id: str,
        *,
        resolved: bool = True,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> Review:
        """Mark the thread of a comment as resolved, or as open again."""
        values = _one(id) | {"comment_id": segment(comment_id, "comment")}
        body, operation = (
            (requests.ResolveRequest, {"resolved": resolved}),
            operations.RESOLVE_COMMENT,
        )
        return await self._send_event(operation, Review, values, body, actor, operation_id)

    async def review(
        self,
        id: str,
        verdict: ReviewVerdict,
        *,
        text: str | None = None,
        head: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> Review:
        """Approve a request (`approve`), or ask for changes (`request_changes`)."""
        fields = {"verdict": verdict, "text": text, "head": head}
        body, operation = (requests.VerdictRequest, fields), operations.REVIEW_REVIEW
        return await self._send_event(operation, Review, _one(id), body, actor, operation_id)

    async def check(
        self,
        id: str,
        *,
        again: bool = False,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> Review:
        """Run the checks of the server on the head of the source, and record the results."""
        body, operation = (requests.RunChecksRequest, {"again": again}), operations.CHECK_REVIEW
        return await self._send_event(operation, Review, _one(id), body, actor, operation_id)

    async def report_check(
        self,
        id: str,
        name: str,
        state: CheckState,
        *,
        text: str | None = None,
        rows: Iterable[Mapping[str, Any]] = (),
        head: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> Review:
        """Report the result of an external check, by its name, on a ``head`` of the source."""
        values = _one(id) | {"name": segment(name, "check")}
        fields = {"state": state, "text": text, "rows": [*map(dict, rows)] or None, "head": head}
        body, operation = (requests.ReportCheckRequest, fields), operations.REPORT_CHECK
        return await self._send_event(operation, Review, values, body, actor, operation_id)

    async def merge(
        self,
        id: str,
        *,
        on_conflict: ConflictPolicy = "fail",
        on_conflict_of: Mapping[str, ConflictPolicy] | None = None,
        granularity: MergeGranularity = "entity",
        delete_branch: bool = False,
        message: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> ReviewMerged:
        """Merge a request as one commit, which records its id, title and approvers.

        Raises as `Graph.reviews.merge` does, without any effect.
        """
        fields = {
            "on_conflict": on_conflict,
            "on_conflict_of": dict(on_conflict_of) if on_conflict_of else None,
            "granularity": granularity,
            "delete_branch": delete_branch,
            "message": message,
        }
        body, operation = (requests.MergeReviewRequest, fields), operations.MERGE_REVIEW
        return await self._send_event(operation, ReviewMerged, _one(id), body, actor, operation_id)

    async def close(
        self, id: str, *, actor: str | None = None, operation_id: str | None = None
    ) -> Review:
        """Close a request without merging it; raises `ReviewBlocked` if it is not open."""
        operation = operations.CLOSE_REVIEW
        return await self._send_event(operation, Review, _one(id), None, actor, operation_id)

    async def reopen(
        self, id: str, *, actor: str | None = None, operation_id: str | None = None
    ) -> Review:
        """Reopen a closed request; raises `ReviewBlocked` if it is merged or a branch is gone."""
        operation = operations.REOPEN_REVIEW
        return await self._send_event(operation, Review, _one(id), None, actor, operation_id)

    async def _send_event(
        self,
        operation: Operation,
        kind: type[Answered],
        values: Mapping[str, str],
        body: tuple[type[requests.Body], Mapping[str, Any]] | None,
        *by: str | None,
    ) -> Answered:
        """Send an event; ``by`` are the actor, which must be None, and the operation id."""
        actor, operation_id = by
        require_no_actor(actor)
        content = None if body is None else checked_body(*body)
        key = header_key(operation_id)
        return await self._handle._ask(operation, kind, values=values, content=content, key=key)


def _one(id: str) -> dict[str, str]:
    return {"review_id": segment(id, "change request")}
