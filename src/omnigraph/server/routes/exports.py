"""Streaming the entities of a branch."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack

from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.policy import Action
from omnigraph.server.answers import Stream
from omnigraph.server.call import Call
from omnigraph.server.routing import Handlers
from omnigraph.server.streaming import Blocks
from omnigraph.wire import operations
from omnigraph.wire.requests import NDJSON_UTF8, ExportRequest


async def export(call: Call) -> Stream:
    """The entities of a branch as JSON lines, all of one commit."""
    asked = await call.document(ExportRequest)
    branch = asked.branch or MAIN_BRANCH
    call.authorize(Action.EXPORT, branch)
    graph = call.served.graph
    return await lines_stream(
        call, lambda: graph.export(branch=branch, types=asked.type_names or None)
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
