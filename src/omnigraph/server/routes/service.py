"""What a server says about itself."""

from __future__ import annotations

from functools import lru_cache

import orjson

from omnigraph import __version__
from omnigraph.model.ids import INTERNAL_SCHEMA_VERSION
from omnigraph.policy import Action
from omnigraph.server.answers import Answer, json_answer
from omnigraph.server.call import Call
from omnigraph.server.gate import RuntimeState
from omnigraph.server.routing import Handlers
from omnigraph.wire import operations
from omnigraph.wire.answers import GraphList, Health, Ready, ServedGraph
from omnigraph.wire.openapi import openapi


async def health(call: Call) -> Answer:
    """The process is alive."""
    return json_answer(Health("ok", __version__, INTERNAL_SCHEMA_VERSION))


async def ready(call: Call) -> Answer:
    """Whether the process takes work."""
    generation = call.generation
    found = Ready(
        "draining" if call.is_draining else "ready",
        len(generation.graphs),
        len(generation.quarantined),
    )
    return json_answer(found, 503 if call.is_draining else 200)


async def describe(call: Call) -> Answer:
    """The OpenAPI description."""
    return Answer(_description(is_open=call.generation.state is RuntimeState.OPEN))


async def list_graphs(call: Call) -> Answer:
    """The graphs served here, by id."""
    call.authorize(Action.GRAPH_LIST)
    graphs = call.generation.graphs
    listed = (ServedGraph(graph_id, graphs[graph_id].graph.uri) for graph_id in sorted(graphs))
    return json_answer(GraphList(tuple(listed)))


@lru_cache
def _description(*, is_open: bool) -> bytes:
    return orjson.dumps(openapi(is_open=is_open))


HANDLERS: Handlers = {
    operations.HEALTH.id: health,
    operations.GRAPH_HEALTH.id: health,
    operations.READY.id: ready,
    operations.OPENAPI.id: describe,
    operations.LIST_GRAPHS.id: list_graphs,
}
