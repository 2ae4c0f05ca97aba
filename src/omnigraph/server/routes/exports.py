"""Streaming the entities of a branch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.policy import Action
from omnigraph.server.answers import Stream
from omnigraph.server.call import Call
from omnigraph.server.routes.targets import authored_branch, canonical_commit_id
from omnigraph.server.routing import Handlers
from omnigraph.server.streaming import Blocks
from omnigraph.wire import operations
from omnigraph.wire.requests import NDJSON_UTF8, ExportRequest


async def export(call: Call) -> Stream:
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
    return await lines_stream(
        call,
        lambda: graph.export(branch=branch, snapshot=snapshot, types=asked.type_names or None),
    )


async def lines_stream(call: Call, begin: Callable[[], Iterator[bytes]]) -> Stream:
    """A stream of JSON lines that holds the graph's slot and its share of memory until it ends."""
    services = call.services
    held = AsyncExitStack()
    try:
        await held.enter_async_context(services.streams.stream(call.served.graph.uri))
        blocks = Blocks(services.pool, await services.pool.read(begin))
        held.push_async_callback(blocks.close)
        await blocks.start()
    except BaseException:
        await held.aclose()
        raise
    return Stream(blocks.chunks(), NDJSON_UTF8, held=held)


HANDLERS: Handlers = {operations.EXPORT.id: export}
