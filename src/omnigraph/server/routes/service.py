"""Health, readiness, description, metrics, and the list of graphs."""

from __future__ import annotations

from functools import lru_cache

import orjson
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from omnigraph import __version__
from omnigraph.audit.log import AuditLog
from omnigraph.errors import Denied, TooManyRequests, Unauthenticated
from omnigraph.graph.gate import Question
from omnigraph.graph.opened import gate_of
from omnigraph.model.ids import INTERNAL_SCHEMA_VERSION, MAIN_BRANCH
from omnigraph.model.upkeep import BlockedBranch
from omnigraph.policy import Action
from omnigraph.server.auth import RuntimeState
from omnigraph.server.call import Call, Handlers
from omnigraph.server.config import OwnHosts
from omnigraph.server.generation import Served
from omnigraph.server.metrics import Metrics
from omnigraph.server.responses import error_response, json_response
from omnigraph.wire import operations
from omnigraph.wire.answers import (
    AuditState,
    GraphList,
    Health,
    Ready,
    ServedBlock,
    ServedGraph,
    SessionToken,
)
from omnigraph.wire.openapi import openapi
from omnigraph.wire.operations import Operation
from omnigraph.wire.requests import JSON, SessionRequest


async def health(call: Call) -> Response:
    """Answer that the process is alive."""
    return json_response(Health("ok", __version__, INTERNAL_SCHEMA_VERSION))


async def ready(call: Call) -> Response:
    """Whether the process accepts work."""
    generation, audit = call.generation, call.services.audit
    if audit is not None:
        audit.log.flush()  # so that a failing write of the audit shows below
    blocked = [
        (served, found)
        for _, served in sorted(generation.graphs.items())
        for found in served.graph.blocked_branches
    ]
    # Names of branches and types are shown only to callers that may read them.
    try:
        is_known = await call.identify()
    except TooManyRequests:
        is_known = False  # a probe is answered in any case
    shown = [each for each in blocked if is_known and _may_read(call, *each)]
    is_open = generation.state is RuntimeState.OPEN
    may_list = is_open or (is_known and call.may_list_graphs())
    is_degraded = blocked or (audit is not None and audit.log.problem is not None)
    found = Ready(
        "draining" if call.is_draining else "degraded" if is_degraded else "ready",
        len(generation.graphs),
        len(generation.quarantined),
        len(blocked),
        tuple(_block(*each) for each in shown),
        tuple(sorted(generation.quarantined)) if may_list else (),
        None if audit is None else _audit_state(audit.log),
    )
    # A blocked branch does not make the process unready: other processes would be blocked, too,
    # while reads and other branches work.
    is_stopped = audit is not None and audit.log.settings.required and audit.log.problem is not None
    return json_response(found, 503 if call.is_draining or is_stopped else 200)


def _audit_state(log: AuditLog) -> AuditState:
    return AuditState(log.problem, log.lost, log.settings.required)


def _may_read(call: Call, served: Served, found: BlockedBranch) -> bool:
    question = Question(Action.READ, found.branch or MAIN_BRANCH)
    return gate_of(served.graph).allows(call.access, question)


def _block(served: Served, found: BlockedBranch) -> ServedBlock:
    reason = found.reason.replace(served.graph.uri, "the graph")
    return ServedBlock(served.graph_id, found.branch, found.operation_id, reason, found.since_us)


async def describe(call: Call) -> Response:
    """The OpenAPI description."""
    body = _description(is_open=call.generation.state is RuntimeState.OPEN)
    return Response(body, media_type=JSON)


async def open_session(call: Call) -> Response:
    """Exchange the owner's one-time code for a token."""
    asked = await call.document(SessionRequest)
    owner = call.services.config.owner
    token = None if owner is None else owner.exchange(asked.code)
    if owner is None or token is None:
        call.services.metrics.rejected("unauthenticated")
        raise Unauthenticated(
            "this code opens nothing: it was used before, or belongs to another server",
            hint="start `omnigraph studio` again for a new one",
        )
    return json_response(SessionToken(token, owner.actor))


METRICS = Operation("metrics", "GET /metrics", "Numbers for Prometheus")
"""Served if configured; not part of the description."""


async def metrics(call: Call) -> Response:
    """The metrics, for every holder of a token."""
    return metrics_response(call.services.metrics)


def metrics_app(metrics: Metrics, hosts: OwnHosts) -> Starlette:
    """The metrics alone, for a separate address that requires no token, only a known host name."""

    async def page(request: Request) -> Response:
        if not hosts.knows(request.headers.get("host", "").encode("latin-1")):
            metrics.rejected("denied")
            refused = Denied(
                "metrics are for requests to this machine, by its address",
                hint="ask for them by an IP address, or start the server with `--allowed-host`",
            )
            return error_response(refused)
        return metrics_response(metrics)

    return Starlette(routes=[Route(METRICS.path, page)])


def metrics_response(metrics: Metrics) -> Response:
    """The metrics as text."""
    return Response(metrics.page(), media_type=Metrics.content_type)


async def list_graphs(call: Call) -> Response:
    """The graphs served here, by id."""
    call.require_graph_list()
    graphs = call.generation.graphs
    listed = (ServedGraph(graph_id, call.address_of(graph_id)) for graph_id in sorted(graphs))
    return json_response(GraphList(tuple(listed)))


@lru_cache
def _description(*, is_open: bool) -> bytes:
    return orjson.dumps(openapi(is_open=is_open))


HANDLERS: Handlers = {
    operations.HEALTH.id: health,
    operations.GRAPH_HEALTH.id: health,
    operations.READY.id: ready,
    operations.OPENAPI.id: describe,
    operations.OPEN_SESSION.id: open_session,
    operations.LIST_GRAPHS.id: list_graphs,
}
