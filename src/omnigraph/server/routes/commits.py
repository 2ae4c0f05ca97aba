"""Commits."""

from __future__ import annotations

from starlette.responses import Response

from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.policy import Action
from omnigraph.server.call import Call, Handlers, canonical_commit_id
from omnigraph.server.responses import json_response
from omnigraph.wire import operations
from omnigraph.wire.answers import CommitList


async def list_commits(call: Call) -> Response:
    """The commits of a branch, newest first."""
    branch = call.branch_parameter() or MAIN_BRANCH
    call.authorize(Action.READ, branch)
    found = await call.services.pool.read(call.served.graph.list_commits, branch)
    return json_response(CommitList(tuple(found)))


async def get_commit(call: Call) -> Response:
    """One commit of any branch."""
    call.authorize(Action.READ)
    commit_id = canonical_commit_id(call.values["commit_id"])
    found = await call.services.pool.read(call.served.graph.show_commit, commit_id)
    return json_response(found)


HANDLERS: Handlers = {
    operations.LIST_COMMITS.id: list_commits,
    operations.GET_COMMIT.id: get_commit,
}
