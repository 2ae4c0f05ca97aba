"""Branches and tags."""

from __future__ import annotations

from dataclasses import replace

from starlette.responses import Response

from omnigraph.graph.branches import start_of
from omnigraph.model.ids import MAIN_BRANCH, on_branch
from omnigraph.server.admission import BRANCH_OPERATION_BYTES
from omnigraph.server.call import Call, Handlers
from omnigraph.server.responses import json_response
from omnigraph.wire import operations
from omnigraph.wire.answers import BranchList, TagList
from omnigraph.wire.requests import CreateBranchRequest, CreateTagRequest, MergeRequest, branch_name


async def list_branches(call: Call) -> Response:
    """The branches, sorted."""
    found = await call.read(call.graph.list_branches)
    return json_response(BranchList(tuple(found)))


async def create_branch(call: Call) -> Response:
    """Create a branch at the head of another."""
    asked = await call.document(CreateBranchRequest)
    start = on_branch(asked.from_ or MAIN_BRANCH, MAIN_BRANCH)
    source, _ = await call.read(start_of, call.graph, start, call.access)
    call.gate.branch_create("branch create", call.access, source, asked.name)
    created = await call.write(
        None,
        BRANCH_OPERATION_BYTES,
        call.graph.create_branch,
        asked.name,
        start,
        actor=call.actor,
        operation_id=call.key,
    )
    return json_response(replace(created, source=asked.from_ or MAIN_BRANCH))


async def list_tags(call: Call) -> Response:
    """The tags of commits that the caller may read."""
    found = await call.read(call.graph.list_tags)
    return json_response(TagList(tuple(found)))


async def create_tag(call: Call) -> Response:
    """Name a commit."""
    asked = await call.document(CreateTagRequest)
    call.gate.tag_create(call.access, asked.name)
    created = await call.write(
        None,
        BRANCH_OPERATION_BYTES,
        call.graph.create_tag,
        asked.name,
        asked.revision or MAIN_BRANCH,
        actor=call.actor,
    )
    return json_response(created)


async def delete_tag(call: Call) -> Response:
    """Delete a tag."""
    name = branch_name(call.values["tag"])
    call.gate.tag_delete(call.access, name)
    deleted = await call.write(
        None, BRANCH_OPERATION_BYTES, call.graph.delete_tag, name, actor=call.actor
    )
    return json_response(deleted)


async def delete_branch(call: Call) -> Response:
    """Delete a branch."""
    name = branch_name(call.values["branch"])
    call.gate.branch_delete(call.access, name)
    deleted = await call.write(
        None,
        BRANCH_OPERATION_BYTES,
        call.graph.delete_branch,
        name,
        actor=call.actor,
        operation_id=call.key,
    )
    return json_response(deleted)


async def merge_branches(call: Call) -> Response:
    """Merge a branch into another; delete it afterwards if requested and allowed."""
    asked = await call.document(MergeRequest)
    target = asked.target or MAIN_BRANCH
    call.gate.branch_merge(call.access, asked.source, target)
    receipt = await call.write(
        target,
        BRANCH_OPERATION_BYTES,
        call.graph.merge_branch,
        asked.source,
        target,
        on_conflict=asked.on_conflict,
        on_conflict_of=asked.on_conflict_of,
        granularity=asked.granularity,
        engine="local",
        delete_branch=asked.delete_branch or False,
        actor=call.actor,
        operation_id=call.key,
        message=asked.message,
    )
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
