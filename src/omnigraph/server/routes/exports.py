"""Streaming the entities of a branch."""

from __future__ import annotations

from starlette.responses import Response

from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.policy import Action
from omnigraph.server.call import Call, Handlers, authored_branch, canonical_commit_id
from omnigraph.server.responses import lines_response
from omnigraph.wire import operations
from omnigraph.wire.requests import ExportRequest


async def export(call: Call) -> Response:
    """The entities of a branch as JSON lines, all of one commit."""
    asked = await call.document(ExportRequest)
    graph, snapshot = call.served.graph, asked.snapshot
    branch = asked.branch or MAIN_BRANCH
    if snapshot is not None:
        # As readable as the branch it is on, or as main when there is no such commit.
        snapshot = canonical_commit_id(snapshot)
        found = await call.services.pool.read(authored_branch, graph, snapshot)
        branch = found or MAIN_BRANCH
    call.authorize(Action.EXPORT, branch)
    return await lines_response(
        call,
        lambda: graph.export(branch=branch, snapshot=snapshot, types=asked.type_names or None),
    )


HANDLERS: Handlers = {operations.EXPORT.id: export}
