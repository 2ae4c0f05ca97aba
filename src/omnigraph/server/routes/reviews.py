"""Review: what differs, what a merge or a replayed commit would do, and replaying commits."""

from __future__ import annotations

from functools import partial
from itertools import dropwhile, islice
from typing import Any

from starlette.responses import Response

from omnigraph.errors import ChangeCursorRejected, LimitExceeded
from omnigraph.graph import Graph
from omnigraph.model.ids import MAIN_BRANCH, is_ulid
from omnigraph.policy import Action
from omnigraph.server.admission import BRANCH_OPERATION_BYTES
from omnigraph.server.call import Call, Handlers, canonical_commit_id
from omnigraph.server.responses import json_response
from omnigraph.server.routes.changes import change_filters
from omnigraph.wire import operations
from omnigraph.wire.answers import EntityHistoryPage
from omnigraph.wire.requests import (
    MergePlanRequest,
    PlanPage,
    ReplayPlanRequest,
    ReplayRequest,
    ReplayTarget,
)

VERSIONS_DEFAULT, VERSIONS_MAX = 100, 1_000
"""Commits of an entity on one page."""


async def diff(call: Call) -> Response:
    """What a branch or commit changed since it went apart from another."""
    target, source = call.required_parameter("target"), call.required_parameter("source")
    direct = call.flag_parameter("direct")
    pages: Any = {name: call.number_parameter(name) for name in ("limit", "limit_bytes")}
    images = call.flag_parameter("images")
    target, source = await _authorize_end(call, target), await _authorize_end(call, source)
    page = await call.read(
        partial(
            call.served.graph.diff_page,
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
    call.authorize(Action.READ, branch)
    page = await call.read(
        _history_page,
        call.served.graph,
        (type_name, entity_id, branch),
        limit,
        call.parameter("page_token"),
    )
    return json_response(page)


def _history_page(
    graph: Graph, entity: tuple[str, str, str], limit: int, after: str | None
) -> EntityHistoryPage:
    """The versions behind commit ``after``, which ended the page before."""
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
    """What a merge would do."""
    asked = await call.document(MergePlanRequest)
    target = asked.target or MAIN_BRANCH
    for branch in (asked.source, target):
        call.authorize(Action.READ, branch)
    plan = await call.read(
        call.served.graph.plan_merge,
        asked.source,
        target,
        on_conflict=asked.on_conflict,
        on_conflict_of=asked.on_conflict_of,
        granularity=asked.granularity,
        engine="local",
        **_page(asked),
    )
    return json_response(plan)


def _page(asked: PlanPage) -> dict[str, Any]:
    return {name: getattr(asked, name) for name in PlanPage.model_fields}


async def revert(call: Call) -> Response:
    """Undo a commit."""
    asked = await call.document(ReplayRequest)
    branch, commit_id = _replay_ends(call, asked)
    call.authorize(Action.CHANGE, branch)
    await call.require_readable(commit_id)
    receipt = await call.write(
        branch,
        BRANCH_OPERATION_BYTES,
        call.served.graph.revert,
        commit_id,
        branch=branch,
        actor=call.actor,
        operation_id=call.key,
        message=asked.message,
    )
    return json_response(receipt)


async def plan_revert(call: Call) -> Response:
    """What undoing a commit would do."""
    asked = await call.document(ReplayPlanRequest)
    branch, commit_id = _replay_ends(call, asked)
    call.authorize(Action.READ, branch)
    await call.require_readable(commit_id)
    plan = await call.read(call.served.graph.plan_revert, commit_id, branch=branch, **_page(asked))
    return json_response(plan)


async def cherry_pick(call: Call) -> Response:
    """Do a commit once more on another branch."""
    asked = await call.document(ReplayRequest)
    branch, commit_id = _replay_ends(call, asked)
    await call.require_readable(commit_id)
    call.authorize(Action.CHANGE, branch)
    receipt = await call.write(
        branch,
        BRANCH_OPERATION_BYTES,
        call.served.graph.cherry_pick,
        commit_id,
        branch,
        actor=call.actor,
        operation_id=call.key,
        message=asked.message,
    )
    return json_response(receipt)


async def plan_cherry_pick(call: Call) -> Response:
    """What doing a commit once more would do."""
    asked = await call.document(ReplayPlanRequest)
    branch, commit_id = _replay_ends(call, asked)
    await call.require_readable(commit_id)
    call.authorize(Action.READ, branch)
    plan = await call.read(call.served.graph.plan_cherry_pick, commit_id, branch, **_page(asked))
    return json_response(plan)


def _replay_ends(call: Call, asked: ReplayTarget) -> tuple[str, str]:
    """The branch that is written to, and the commit whose changes are replayed."""
    return asked.branch or MAIN_BRANCH, canonical_commit_id(call.values["commit_id"])


async def _authorize_end(call: Call, name: str) -> str:
    """Let policy decide about reading one end of a diff; returns the name the engine knows."""
    commit_id = canonical_commit_id(name)
    if is_ulid(commit_id) and name not in await call.read(call.served.graph.list_branches):
        await call.authorize_commit(commit_id)
        return commit_id
    # By its name alone, whether there is such a branch or not.
    call.authorize(Action.READ, name)
    return name


HANDLERS: Handlers = {
    operations.DIFF.id: diff,
    operations.ENTITY_HISTORY.id: entity_history,
    operations.PLAN_MERGE.id: plan_merge,
    operations.REVERT.id: revert,
    operations.PLAN_REVERT.id: plan_revert,
    operations.CHERRY_PICK.id: cherry_pick,
    operations.PLAN_CHERRY_PICK.id: plan_cherry_pick,
}
