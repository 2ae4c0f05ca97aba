"""Stored queries: the catalog, and calling one by its name.

Who may not call them cannot tell which exist: a refusal and an unknown name are the same bytes.
"""

from __future__ import annotations

from functools import partial

import orjson
from starlette.responses import Response

from omnigraph.errors import InputError, NotFound
from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.policy import Action
from omnigraph.server.call import Call, Handlers
from omnigraph.server.responses import json_response
from omnigraph.server.routes.rows import rows_answer
from omnigraph.server.stored_queries import StoredQuery
from omnigraph.wire import operations
from omnigraph.wire.requests import IF_GRAPH_COMMIT, JSON, InvokeRequest, expected_commit


async def list_queries(call: Call) -> Response:
    """Every stored query, with its parameters."""
    call.authorize(Action.READ, MAIN_BRANCH)
    return Response(call.served.queries.catalog, media_type=JSON)


async def invoke(call: Call) -> Response:
    """Run a stored query."""
    asked = await call.document(InvokeRequest)
    stored = _find(call)
    _require_expected(stored, asked)
    if stored.signature.is_mutation:
        return await _write(call, stored, asked, None)
    snapshot = await call.authorize_read(asked.branch, asked.snapshot)
    run = partial(
        call.served.graph.query,
        stored.source,
        asked.params,
        name=stored.signature.name,
        branch=asked.branch,
        snapshot=snapshot,
    )
    return await rows_answer(call, run)


async def invoke_if(call: Call) -> Response:
    """Run a stored query that writes, if the head is the one the caller has seen."""
    expected = expected_commit(call.headers(IF_GRAPH_COMMIT))
    asked = await call.document(InvokeRequest)
    stored = _find(call)
    _require_expected(stored, asked)
    if not stored.signature.is_mutation:
        raise InputError(
            f"stored query '{stored.signature.name}' reads, and a read takes no condition",
            hint="call it without `/if-graph-commit`",
        )
    return await _write(call, stored, asked, expected)


async def _write(
    call: Call, stored: StoredQuery, asked: InvokeRequest, expected: str | None
) -> Response:
    if asked.snapshot is not None:
        raise InputError(
            f"stored query '{stored.signature.name}' writes, and a snapshot never changes",
            hint="name a `branch` instead of a `snapshot`",
        )
    branch = asked.branch or MAIN_BRANCH
    call.authorize(Action.CHANGE, branch)
    with call.admitted(len(stored.source.encode()) + len(orjson.dumps(asked.params))):
        receipt = await call.services.pool.write(
            call.served.graph.mutate,
            stored.source,
            asked.params,
            name=stored.signature.name,
            branch=branch,
            expected_head=expected,
            actor=call.actor,
        )
    return json_response(receipt)


def _find(call: Call) -> StoredQuery:
    name = call.values["name"]
    is_allowed = call.verdict(Action.INVOKE_QUERY).allowed
    found = call.served.queries.get(name) if is_allowed else None
    if found is None:
        raise NotFound("stored query not found")
    call.services.events.write(
        "stored query",
        {
            "request_id": call.request_id,
            "actor_id": call.actor,
            "graph_id": call.served.graph_id,
            "query_name": name,
            "mutation": found.signature.is_mutation,
        },
    )
    return found


def _require_expected(stored: StoredQuery, asked: InvokeRequest) -> None:
    if asked.expect_mutation is None or asked.expect_mutation == stored.signature.is_mutation:
        return
    is_mutation = stored.signature.is_mutation
    does, verb = ("writes", "mutate") if is_mutation else ("reads", "query")
    raise InputError(f"stored query '{stored.signature.name}' {does}", hint=f"use `{verb}` for it")


HANDLERS: Handlers = {
    operations.LIST_QUERIES.id: list_queries,
    operations.INVOKE.id: invoke,
    operations.INVOKE_IF.id: invoke_if,
}
