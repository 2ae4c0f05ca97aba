"""Commits."""

from __future__ import annotations

from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.policy import Action
from omnigraph.server.answers import Answer, json_answer
from omnigraph.server.call import Call
from omnigraph.server.routes.targets import canonical_commit_id
from omnigraph.server.routing import Handlers
from omnigraph.wire import operations
from omnigraph.wire.answers import CommitList


async def list_commits(call: Call) -> Answer:
    """The commits of a branch, newest first."""
    branch = call.branch_parameter() or MAIN_BRANCH
    call.authorize(Action.READ, branch)
    found = await call.services.pool.read(call.served.graph.list_commits, branch)
    return json_answer(CommitList(tuple(found)))


async def get_commit(call: Call) -> Answer:
    """One commit of any branch."""
    call.authorize(Action.READ)
    commit_id = canonical_commit_id(call.values["commit_id"])
    found = await call.services.pool.read(call.served.graph.show_commit, commit_id)
    return json_answer(found)


HANDLERS: Handlers = {
    operations.LIST_COMMITS.id: list_commits,
    operations.GET_COMMIT.id: get_commit,
}
