"""Branches and tags."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from omnigraph.errors import NotFound
from omnigraph.model.ids import MAIN_BRANCH, is_branch_name, on_branch
from omnigraph.policy import Action
from omnigraph.server.admission import BRANCH_OPERATION_BYTES
from omnigraph.server.call import Call, Handlers
from omnigraph.server.responses import json_response
from omnigraph.wire import operations
from omnigraph.wire.answers import BranchList, TagList
from omnigraph.wire.requests import CreateBranchRequest, CreateTagRequest, MergeRequest, branch_name


async def list_branches(call: Call) -> Response:
    """The branches, sorted."""
    call.authorize(Action.READ)
    found = await call.read(call.served.graph.list_branches)
    return json_response(BranchList(tuple(found)))


async def create_branch(call: Call) -> Response:
    """Create a branch at the head of another."""
    asked = await call.document(CreateBranchRequest)
    start = on_branch(asked.from_ or MAIN_BRANCH, MAIN_BRANCH)
    source, start = await _start(call, start)
    call.authorize(Action.BRANCH_CREATE, source, asked.name)
    call.authorize(Action.READ, source)
    created = await call.write(
        None,
        BRANCH_OPERATION_BYTES,
        call.served.graph.create_branch,
        asked.name,
        start,
        actor=call.actor,
        operation_id=call.key,
    )
    return json_response(replace(created, source=asked.from_ or MAIN_BRANCH))


async def _start(call: Call, start: str) -> tuple[str, str]:
    """The branch whose policy decides about a new one, and where that one starts.

    A name that is none, or of something that the caller may not read, is decided about as a branch:
    by the name alone.
    """
    if start == MAIN_BRANCH or start in await call.read(call.served.graph.list_branches):
        return start, start
    try:
        commit_id = await call.commit_named(start)
    except NotFound:
        if not is_branch_name(start):
            raise
        return start, start
    await call.require_readable(commit_id)
    found = await call.read(call.served.graph.show_commit, commit_id)
    return found.graph_branch or MAIN_BRANCH, commit_id


async def list_tags(call: Call) -> Response:
    """The tags of commits that the caller may read, by name."""
    call.authorize(Action.READ)
    found = await call.read(call.served.graph.list_tags)
    shown = (tag for tag in found if call.may(Action.READ, tag.graph_branch))
    return json_response(TagList(tuple(shown)))


async def create_tag(call: Call) -> Response:
    """Name a commit."""
    asked = await call.document(CreateTagRequest)
    call.authorize(Action.TAG_CREATE, None, asked.name)
    commit_id = await call.commit_named(asked.revision or MAIN_BRANCH)
    await call.require_readable(commit_id)
    created = await call.write(
        None,
        BRANCH_OPERATION_BYTES,
        call.served.graph.create_tag,
        asked.name,
        commit_id,
        actor=call.actor,
    )
    return json_response(created)


async def delete_tag(call: Call) -> Response:
    """Delete a tag."""
    name = branch_name(call.values["tag"])
    call.authorize(Action.TAG_DELETE, None, name)
    deleted = await call.write(
        None, BRANCH_OPERATION_BYTES, call.served.graph.delete_tag, name, actor=call.actor
    )
    return json_response(deleted)


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
    operations.LIST_TAGS.id: list_tags,
    operations.CREATE_TAG.id: create_tag,
    operations.DELETE_TAG.id: delete_tag,
    operations.MERGE_BRANCHES.id: merge_branches,
}
