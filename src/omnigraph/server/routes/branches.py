"""Branches."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.policy import Action
from omnigraph.server.admission import BRANCH_OPERATION_BYTES
from omnigraph.server.call import Call, Handlers
from omnigraph.server.responses import json_response
from omnigraph.wire import operations
from omnigraph.wire.answers import BranchList
from omnigraph.wire.requests import CreateBranchRequest, MergeRequest, branch_name


async def list_branches(call: Call) -> Response:
    """The branches, sorted."""
    call.authorize(Action.READ)
    found = await call.read(call.served.graph.list_branches)
    return json_response(BranchList(tuple(found)))


async def create_branch(call: Call) -> Response:
    """Create a branch at the head of another."""
    asked = await call.document(CreateBranchRequest)
    source = asked.from_ or MAIN_BRANCH
    call.authorize(Action.BRANCH_CREATE, source, asked.name)
    call.authorize(Action.READ, source)
    created = await call.write(
        None,
        BRANCH_OPERATION_BYTES,
        call.served.graph.create_branch,
        asked.name,
        source,
        actor=call.actor,
        operation_id=call.key,
    )
    return json_response(created)


async def delete_branch(call: Call) -> Response:
    """Delete a branch."""
    name = branch_name(call.values["branch"])
    call.authorize(Action.BRANCH_DELETE, None, name)
    deleted = await call.write(
        None,
        BRANCH_OPERATION_BYTES,
        call.served.graph.delete_branch,
        name,
        actor=call.actor,
        operation_id=call.key,
    )
    return json_response(deleted)


async def merge_branches(call: Call) -> Response:
    """Merge a branch into another, and delete it afterwards if that is wanted and allowed."""
    asked = await call.document(MergeRequest)
    target = asked.target or MAIN_BRANCH
    call.authorize(Action.BRANCH_MERGE, asked.source, target)
    call.authorize(Action.READ, asked.source)
    # A caller may be allowed to merge and not to delete: the merge stands, the answer says why.
    verdict = None
    if asked.delete_branch:
        verdict = call.verdict(Action.BRANCH_DELETE, None, asked.source)
    receipt = await call.write(
        target,
        BRANCH_OPERATION_BYTES,
        call.served.graph.merge_branch,
        asked.source,
        target,
        on_conflict=asked.on_conflict,
        on_conflict_of=asked.on_conflict_of,
        granularity=asked.granularity,
        engine="local",
        delete_branch=verdict is not None and verdict.allowed,
        actor=call.actor,
        operation_id=call.key,
        message=asked.message,
    )
    if verdict is not None and not verdict.allowed:
        receipt = replace(receipt, branch_deleted=False, branch_delete_error=verdict.message)
    return json_response(receipt)


HANDLERS: Handlers = {
    operations.LIST_BRANCHES.id: list_branches,
    operations.CREATE_BRANCH.id: create_branch,
    operations.DELETE_BRANCH.id: delete_branch,
    operations.MERGE_BRANCHES.id: merge_branches,
}
