"""Diffs, merge plans, reverts and cherry-picks, and change requests."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import dropwhile, islice
from typing import Any

from starlette.responses import Response

from omnigraph.errors import ChangeCursorRejected, LimitExceeded
from omnigraph.graph import Graph
from omnigraph.graph.history import readable_commit
from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.model.result import Result
from omnigraph.model.reviews import Review, ReviewSummary
from omnigraph.review.checks import DeclaredCheck
from omnigraph.server.admission import BRANCH_OPERATION_BYTES
from omnigraph.server.call import Call, Handlers
from omnigraph.server.responses import json_response
from omnigraph.server.review_watch import stored_check
from omnigraph.server.routes.changes import change_filters
from omnigraph.wire import operations
from omnigraph.wire.answers import EntityHistoryPage
from omnigraph.wire.requests import (
    CommentRequest,
    EditReviewRequest,
    MergePlanRequest,
    MergeReviewRequest,
    OpenReviewRequest,
    PlanPageRequest,
    ReplayPlanRequest,
    ReplayRequest,
    ReportCheckRequest,
    ResolveRequest,
    RunChecksRequest,
    VerdictRequest,
)

VERSIONS_DEFAULT, VERSIONS_MAX = 100, 1_000
"""Commits of an entity on one page."""


async def diff(call: Call) -> Response:
    """The changes of a branch or commit since its merge base with another."""
    target, source = call.required_parameter("target"), call.required_parameter("source")
    direct = call.flag_parameter("direct")
    pages: Any = {name: call.number_parameter(name) for name in ("limit", "limit_bytes")}
    images = call.flag_parameter("images")
    page = await call.read(
        partial(
            call.graph.diff_page,
            target,
            source,
            direct=direct,
            page_token=call.parameter("page_token"),
            images=images,
            **pages,
            **change_filters(call),
        )
    )
    return json_response(page)


async def entity_history(call: Call) -> Response:
    """The commits of a branch that changed one entity."""
    type_name, entity_id = call.required_parameter("type"), call.required_parameter("id")
    branch = call.branch_parameter() or MAIN_BRANCH
    limit = call.number_parameter("limit") or VERSIONS_DEFAULT
    if limit > VERSIONS_MAX:
        raise LimitExceeded("commits per page", VERSIONS_MAX, limit, hint="ask for less")
    page = await call.read(
        _history_page,
        call.graph,
        (type_name, entity_id, branch),
        limit,
        call.parameter("page_token"),
    )
    return json_response(page)


def _history_page(
    graph: Graph, entity: tuple[str, str, str], limit: int, after: str | None
) -> EntityHistoryPage:
    """The versions after commit ``after``, the last one of the previous page."""
    type_name, entity_id, branch = entity
    found = graph.entity_history(type_name, entity_id, branch=branch)
    if after is not None:
        found = dropwhile(lambda version: version.cause.graph_commit_id != after, found)
        if next(found, None) is None:
            raise ChangeCursorRejected("it belongs to another history")
    versions = tuple(islice(found, limit + 1))
    shown = versions[:limit]
    rest = shown[-1].cause.graph_commit_id if len(versions) > limit else None
    return EntityHistoryPage(shown, rest)


async def plan_merge(call: Call) -> Response:
    """The plan of a merge."""
    asked = await call.document(MergePlanRequest)
    target = asked.target or MAIN_BRANCH
    plan = await call.read(
        call.graph.plan_merge,
        asked.source,
        target,
        on_conflict=asked.on_conflict,
        on_conflict_of=asked.on_conflict_of,
        granularity=asked.granularity,
        engine="local",
        **_page(asked),
    )
    return json_response(plan)


def _page(asked: PlanPageRequest) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in PlanPageRequest.model_fields}


async def revert(call: Call) -> Response:
    """Undo a commit."""
    asked = await call.document(ReplayRequest)
    branch, commit_id = asked.branch or MAIN_BRANCH, call.values["commit_id"]
    call.gate.change("revert", call.access, branch)
    receipt = await call.write(
        branch,
        BRANCH_OPERATION_BYTES,
        call.graph.revert,
        commit_id,
        branch=branch,
        actor=call.actor,
        operation_id=call.key,
        message=asked.message,
    )
    return json_response(receipt)


async def plan_revert(call: Call) -> Response:
    """The plan of a revert."""
    asked = await call.document(ReplayPlanRequest)
    branch, commit_id = asked.branch or MAIN_BRANCH, call.values["commit_id"]
    plan = await call.read(call.graph.plan_revert, commit_id, branch=branch, **_page(asked))
    return json_response(plan)


async def cherry_pick(call: Call) -> Response:
    """Apply a commit to another branch."""
    asked = await call.document(ReplayRequest)
    branch, commit_id = asked.branch or MAIN_BRANCH, call.values["commit_id"]
    verb = "branch cherry-pick"
    commit_id = await call.read(readable_commit, call.graph, verb, commit_id, branch)
    call.gate.change(verb, call.access, branch)
    receipt = await call.write(
        branch,
        BRANCH_OPERATION_BYTES,
        call.graph.cherry_pick,
        commit_id,
        branch,
        actor=call.actor,
        operation_id=call.key,
        message=asked.message,
    )
    return json_response(receipt)


async def plan_cherry_pick(call: Call) -> Response:
    """The plan of a cherry-pick."""
    asked = await call.document(ReplayPlanRequest)
    branch, commit_id = asked.branch or MAIN_BRANCH, call.values["commit_id"]
    plan = await call.read(call.graph.plan_cherry_pick, commit_id, branch, **_page(asked))
    return json_response(plan)


# --- change requests ------------------------------------------------------------------------------


async def list_reviews(call: Call) -> Response:
    """Change requests between branches that the caller may read."""
    state: Any = call.parameter("state") or "open"
    page = await call.read(
        call.graph.reviews.list,
        state=None if state == "all" else state,
        limit=call.number_parameter("limit"),
        page_token=call.parameter("page_token"),
    )
    return json_response(page)


async def open_review(call: Call) -> Response:
    """Open a change request."""
    asked = await call.document(OpenReviewRequest)
    target = asked.target or MAIN_BRANCH
    call.gate.review("review open", call.access, asked.source, target)
    return await _append_event(
        call,
        call.graph.reviews.open,
        asked.source,
        target,
        title=asked.title,
        description=asked.description or "",
    )


async def export_reviews(call: Call) -> Response:
    """Events of change requests between branches that the caller may read."""
    page = await call.read(
        call.graph.reviews.export_page,
        page_token=call.parameter("page_token"),
        limit=call.number_parameter("limit"),
    )
    return json_response(page)


async def get_review(call: Call) -> Response:
    """One change request."""
    review = await _readable(call)
    return json_response(await call.read(call.graph.reviews.get, review.id))


async def diff_review(call: Call) -> Response:
    """The changes of one change request."""
    images = call.flag_parameter("images")
    pages: Any = {name: call.number_parameter(name) for name in ("limit", "limit_bytes")}
    review = await _readable(call)
    page = await call.read(
        call.graph.reviews.diff_page,
        review.id,
        page_token=call.parameter("page_token"),
        images=images,
        **pages,
        **change_filters(call),
    )
    return json_response(page)


async def edit_review(call: Call) -> Response:
    """Change the title or description of a request."""
    asked = await call.document(EditReviewRequest)
    review = await _readable(call)
    return await _append_event(
        call,
        call.graph.reviews.edit,
        review.id,
        title=asked.title,
        description=asked.description,
    )


async def comment_review(call: Call) -> Response:
    """Comment on a request."""
    asked = await call.document(CommentRequest)
    review = await _readable(call)
    return await _append_event(call, call.graph.reviews.comment, review.id, **asked.model_dump())


async def resolve_comment(call: Call) -> Response:
    """Resolve the thread of a comment."""
    asked = await call.document(ResolveRequest)
    review = await _readable(call)
    return await _append_event(
        call,
        call.graph.reviews.resolve,
        review.id,
        call.values["comment_id"],
        resolved=asked.resolved,
    )


async def review_review(call: Call) -> Response:
    """Approve a request, or ask for changes."""
    asked = await call.document(VerdictRequest)
    review = await _readable(call)
    return await _append_event(
        call,
        call.graph.reviews.review,
        review.id,
        asked.verdict,
        text=asked.text,
        head=asked.head,
    )


async def check_review(call: Call) -> Response:
    """Run the checks of the server."""
    asked = await call.document(RunChecksRequest)
    review = await _readable(call)
    limits = call.services.queries.of_check

    def run(check: DeclaredCheck, head: str) -> Result:
        return stored_check(call.served, check, head, limits(check.timeout_seconds))

    checks = call.served.checks
    run_checks = call.graph.reviews.run_checks
    return await _append_event(call, run_checks, review.id, checks, run, again=asked.again)


async def report_check(call: Call) -> Response:
    """Record the result of an external check."""
    asked = await call.document(ReportCheckRequest)
    review = await _readable(call)
    call.gate.check_report("review check report", call.access, review.source)
    return await _append_event(
        call,
        call.graph.reviews.report_check,
        review.id,
        call.values["name"],
        asked.state,
        text=asked.text,
        rows=asked.rows or (),
        head=asked.head,
    )


async def merge_review(call: Call) -> Response:
    """Merge a request; delete its source afterwards if requested and allowed."""
    asked = await call.document(MergeReviewRequest)
    review = await _readable(call)
    call.gate.review_merge(call.access, review.source, review.target)
    merged = await call.write(
        review.target,
        BRANCH_OPERATION_BYTES,
        call.graph.reviews.merge,
        review.id,
        on_conflict=asked.on_conflict,
        on_conflict_of=asked.on_conflict_of,
        granularity=asked.granularity,
        engine="local",
        delete_branch=asked.delete_branch or False,
        message=asked.message,
        actor=call.actor,
        operation_id=call.key,
    )
    call.services.reviews_touched.set()
    return json_response(merged)


async def close_review(call: Call) -> Response:
    """Close a request."""
    review = await _readable(call)
    return await _append_event(call, call.graph.reviews.close, review.id)


async def reopen_review(call: Call) -> Response:
    """Open a request again."""
    review = await _readable(call)
    return await _append_event(call, call.graph.reviews.reopen, review.id)


async def _readable(call: Call) -> ReviewSummary:
    """The addressed request; raises `NotFound` if the caller may not read its branches."""
    return await call.read(call.graph.reviews.summary, call.values["review_id"])


async def _append_event(
    call: Call, work: Callable[..., Review], *args: Any, **options: Any
) -> Response:
    """Run a verb that adds events, and wake the webhooks."""
    added = await call.write(
        None,
        BRANCH_OPERATION_BYTES,
        work,
        *args,
        **options,
        actor=call.actor,
        operation_id=call.key,
    )
    call.services.reviews_touched.set()
    return json_response(added)


HANDLERS: Handlers = {
    operations.LIST_REVIEWS.id: list_reviews,
    operations.OPEN_REVIEW.id: open_review,
    operations.EXPORT_REVIEWS.id: export_reviews,
    operations.GET_REVIEW.id: get_review,
    operations.DIFF_REVIEW.id: diff_review,
    operations.EDIT_REVIEW.id: edit_review,
    operations.COMMENT_REVIEW.id: comment_review,
    operations.RESOLVE_COMMENT.id: resolve_comment,
    operations.REVIEW_REVIEW.id: review_review,
    operations.CHECK_REVIEW.id: check_review,
    operations.REPORT_CHECK.id: report_check,
    operations.MERGE_REVIEW.id: merge_review,
    operations.CLOSE_REVIEW.id: close_review,
    operations.REOPEN_REVIEW.id: reopen_review,
    operations.DIFF.id: diff,
    operations.ENTITY_HISTORY.id: entity_history,
    operations.PLAN_MERGE.id: plan_merge,
    operations.REVERT.id: revert,
    operations.PLAN_REVERT.id: plan_revert,
    operations.CHERRY_PICK.id: cherry_pick,
    operations.PLAN_CHERRY_PICK.id: plan_cherry_pick,
}
