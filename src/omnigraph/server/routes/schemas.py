"""Schemas, permissions, statistics and snapshots."""

from __future__ import annotations

import shlex
from dataclasses import replace
from functools import partial

from starlette.responses import Response

from omnigraph.errors import Conflict
from omnigraph.graph.gate import Question
from omnigraph.graph.reading import require_compiling
from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.model.receipts import SchemaPlan
from omnigraph.model.upkeep import GraphStats
from omnigraph.policy import Action
from omnigraph.policy.bundle import SCOPE_KEYS
from omnigraph.server.admission import BRANCH_OPERATION_BYTES
from omnigraph.server.call import Call, Handlers
from omnigraph.server.generation import Served
from omnigraph.server.responses import json_response
from omnigraph.wire import operations
from omnigraph.wire.answers import Permissions, SchemaSource
from omnigraph.wire.requests import SchemaApplyRequest, SchemaRebaseRequest, SchemaRequest


async def get_schema(call: Call) -> Response:
    """The schema of a branch."""
    branch = call.branch_parameter()
    graph = call.graph.on_branch(branch or MAIN_BRANCH)
    return json_response(SchemaSource(await call.read(lambda: graph.schema_source)))


async def describe_schema(call: Call) -> Response:
    """The types of a branch or commit."""
    branch, snapshot = call.branch_parameter(), call.parameter("snapshot")
    describe = call.graph.describe_schema
    return json_response(await call.read(describe, branch=branch, snapshot=snapshot))


async def get_permissions(call: Call) -> Response:
    """What the caller may do with a branch."""
    branch = call.branch_parameter() or MAIN_BRANCH
    gate, access = call.gate, call.access

    def may(action: Action) -> bool:
        if action is Action.BRANCH_CREATE:
            return gate.allows_somewhere(access, action)
        is_target = action in SCOPE_KEYS["target_branch_scope"]
        asked = Question(action, None, branch) if is_target else Question(action, branch)
        return gate.allows(access, asked)

    allowed = tuple(each.value for each in Action if each.kind == "graph" and may(each))
    return json_response(Permissions(call.actor, branch, allowed))


async def apply_schema(call: Call) -> Response:
    """Apply a schema to the graph, unless a cluster manages it."""
    asked = await call.document(SchemaApplyRequest)
    call.gate.schema_apply(call.access)
    if not call.services.config.applies_schemas:
        raise Conflict(
            "the schema of this graph belongs to its cluster",
            hint="change the file of the cluster and run `omnigraph cluster apply`",
        )
    size = len(asked.schema_source.encode())
    receipt = await call.write(
        MAIN_BRANCH,
        size,
        call.graph.apply_schema,
        asked.schema_source,
        allow_data_loss=asked.allow_data_loss,
        actor=call.actor,
        operation_id=call.key,
        message=asked.message,
        # A server does not start with a stored query that does not compile, so a schema that breaks
        # a served query is not published.
        check=partial(
            require_compiling, {each.signature.name: each.source for each in call.served.queries}
        ),
    )
    return json_response(receipt)


async def rebase_schema(call: Call) -> Response:
    """Bring a branch to the schema of main."""
    asked = await call.document(SchemaRebaseRequest)
    rebase = partial(
        call.graph.rebase_schema,
        asked.branch,
        allow_data_loss=asked.allow_data_loss,
        dry_run=asked.dry_run,
        actor=call.actor,
        operation_id=call.key,
    )
    if asked.dry_run:
        return json_response(await call.read(rebase))
    call.gate.schema_rebase(call.access, asked.branch)
    return json_response(await call.write(asked.branch, BRANCH_OPERATION_BYTES, rebase))


async def plan_schema(call: Call) -> Response:
    """The migration steps to another schema."""
    asked = await call.document(SchemaRequest)
    graph = call.graph
    planned = await call.read(
        graph.plan_schema, asked.schema_source, allow_data_loss=asked.allow_data_loss
    )
    steps = tuple(step.to_json() for step in planned.plan.steps)
    address = call.address_of(call.served.graph_id)
    return json_response(SchemaPlan(address, planned.plan.supported, steps))


async def get_stats(call: Call) -> Response:
    """Statistics of a branch and its graph."""
    branch = call.branch_parameter() or MAIN_BRANCH
    found = await call.read(call.graph.stats, branch)
    # The owner of a local session can run the commands as they are.
    is_owned = call.services.config.owner is not None
    return json_response(found if is_owned else _by_graph_id(found, call.served))


def _by_graph_id(stats: GraphStats, served: Served) -> GraphStats:
    """Statistics whose findings name the graph's id, because its location is hidden."""
    uri = served.graph.uri

    def named(text: str) -> str:
        return text.replace(shlex.quote(uri), served.graph_id).replace(uri, served.graph_id)

    findings = (
        replace(each, message=named(each.message), command=named(each.command))
        for each in stats.findings
    )
    return replace(stats, findings=tuple(findings))


async def get_snapshot(call: Call) -> Response:
    """The types and counts of a branch at its head."""
    branch = call.branch_parameter() or MAIN_BRANCH
    found = await call.read(call.graph.snapshot, branch)
    return json_response(found)


HANDLERS: Handlers = {
    operations.SCHEMA.id: get_schema,
    operations.DESCRIBE_SCHEMA.id: describe_schema,
    operations.PERMISSIONS.id: get_permissions,
    operations.APPLY_SCHEMA.id: apply_schema,
    operations.REBASE_SCHEMA.id: rebase_schema,
    operations.SNAPSHOT.id: get_snapshot,
    operations.PLAN_SCHEMA.id: plan_schema,
    operations.STATS.id: get_stats,
}
