"""Commits and their changes: the diff of one, the change feed of a branch, and baselines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from omnigraph.errors import InputError
from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.policy import Action
from omnigraph.server.call import Call, Handlers
from omnigraph.server.responses import json_response, stream_response
from omnigraph.wire import operations
from omnigraph.wire.answers import CommitList
from omnigraph.wire.requests import BaselineRequest

_EXCLUSIVE = ("cursor", "start", "page_token")
_LIMITS = ("limit", "limit_bytes", "limit_commits")


async def list_commits(call: Call) -> Response:
    """The commits of a branch, newest first."""
    branch = call.branch_parameter() or MAIN_BRANCH
    found = await call.read(call.graph.list_commits, branch)
    return json_response(CommitList(tuple(found)))


async def get_commit(call: Call) -> Response:
    """One commit of any branch."""
    found = await call.read(call.graph.show_commit, call.values["commit_id"])
    return json_response(found)


async def commit_changes(call: Call) -> Response:
    """The changes of one commit.

    A caller that may not read the branch of a commit gets the 404 of an unknown commit.
    """
    options: Any = {
        "page_token": call.parameter("page_token"),
        "limit": call.number_parameter("limit"),
        "limit_bytes": call.number_parameter("limit_bytes"),
        **change_filters(call),
    }
    changes = call.graph.commit_changes_page
    page = await call.read(changes, call.values["commit_id"], **options)
    return json_response(page)


async def poll_changes(call: Call) -> Response:
    """The changes of a branch's commits since a cursor."""
    given = [name for name in _EXCLUSIVE if call.parameter(name) is not None]
    if len(given) > 1:
        raise InputError(f"`{given[0]}` and `{given[1]}` exclude each other")
    options: Any = {name: call.parameter(name) for name in _EXCLUSIVE}
    branch = call.branch_parameter() or MAIN_BRANCH
    limits: Any = {name: call.number_parameter(name) for name in _LIMITS}
    filters = change_filters(call)
    page = await call.read(call.graph.poll_changes, branch, **options, **limits, **filters)
    return json_response(page)


async def baseline(call: Call) -> Response:
    """Every entity of a branch, followed by the cursor at which the feed continues."""
    asked = await call.document(BaselineRequest)
    branch = asked.branch or MAIN_BRANCH
    call.gate.read("changes baseline", call.access, branch, Action.EXPORT)
    graph = call.graph
    return await stream_response(
        call,
        lambda: graph.change_baseline(
            branch, kinds=asked.kind or (), types=asked.type or (), ops=asked.op or ()
        ).blocks(),
    )


def change_filters(call: Call) -> Mapping[str, Any]:
    """The requested kinds, types and operations."""
    return {
        "kinds": call.parameters("kind"),
        "types": call.parameters("type"),
        "ops": call.parameters("op"),
    }


HANDLERS: Handlers = {
    operations.COMMIT_CHANGES.id: commit_changes,
    operations.POLL_CHANGES.id: poll_changes,
    operations.BASELINE.id: baseline,
    operations.LIST_COMMITS.id: list_commits,
    operations.GET_COMMIT.id: get_commit,
}
