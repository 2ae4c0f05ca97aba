"""Queries whose text comes with the request."""

from __future__ import annotations

from functools import partial

import orjson
from starlette.responses import Response

from omnigraph.errors import WrongVerb
from omnigraph.graph import Graph
from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.model.receipts import MutationReceipt
from omnigraph.model.result import Result
from omnigraph.policy import Action
from omnigraph.server.call import Call, Handlers
from omnigraph.server.responses import json_response
from omnigraph.server.routes.rows import rows_answer
from omnigraph.wire import operations
from omnigraph.wire.requests import (
    IF_GRAPH_COMMIT,
    ChangeRequest,
    ExplainRequest,
    LegacyReadRequest,
    QueryRequest,
    expected_commit,
)


async def query(call: Call) -> Response:
    """Run a query that reads."""
    asked = await call.document(QueryRequest)
    snapshot = await call.authorize_read(asked.branch, asked.snapshot)
    run = partial(_read, call.served.graph, asked, snapshot)
    return await rows_answer(call, run)


async def read(call: Call) -> Response:
    """The same for older clients, who do not know of the commit."""
    old = await call.document(LegacyReadRequest)
    snapshot = await call.authorize_read(old.branch, old.snapshot)
    asked = QueryRequest(
        query=old.query_source,
        name=old.query_name,
        params=old.params,
        branch=old.branch,
        snapshot=old.snapshot,
    )
    run = partial(_read, call.served.graph, asked, snapshot)
    return await rows_answer(call, run, with_commit=False)


async def explain(call: Call) -> Response:
    """The plan of a query."""
    asked = await call.document(ExplainRequest)
    call.authorize(Action.READ)
    found = await call.services.pool.read(call.served.graph.explain, asked.query, name=asked.name)
    return json_response(found)


async def mutate(call: Call) -> Response:
    """Run a query that writes."""
    return await _mutate(call, None)


async def mutate_if(call: Call) -> Response:
    """Run a query that writes, if the head is the one the caller has seen."""
    return await _mutate(call, expected_commit(call.headers(IF_GRAPH_COMMIT)))


async def _mutate(call: Call, expected: str | None) -> Response:
    asked = await call.document(ChangeRequest)
    branch = asked.branch or MAIN_BRANCH
    call.authorize(Action.CHANGE, branch)
    with call.admitted(len(asked.query.encode()) + len(orjson.dumps(asked.params))):
        receipt = await call.services.pool.write(
            _changed, call.served.graph, asked, branch, expected, call.actor
        )
    return json_response(receipt)


def _read(graph: Graph, asked: QueryRequest, snapshot: str | None) -> Result:
    try:
        return graph.query(
            asked.query,
            asked.params,
            name=asked.name,
            branch=asked.branch,
            snapshot=snapshot,
            explain=asked.explain,
        )
    except WrongVerb as wrong:
        raise WrongVerb(wrong.message, hint="send it to `/mutate`") from None


def _changed(
    graph: Graph, asked: ChangeRequest, branch: str, expected: str | None, actor: str | None
) -> MutationReceipt:
    try:
        return graph.mutate(
            asked.query,
            asked.params,
            name=asked.name,
            branch=branch,
            expected_head=expected,
            actor=actor,
            operation_id=asked.operation_id,
            message=asked.message,
        )
    except WrongVerb as wrong:
        raise WrongVerb(wrong.message, hint="send it to `/query`") from None


HANDLERS: Handlers = {
    operations.QUERY.id: query,
    operations.READ.id: read,
    operations.EXPLAIN.id: explain,
    operations.MUTATE.id: mutate,
    operations.CHANGE.id: mutate,
    operations.MUTATE_IF.id: mutate_if,
}
