"""Which tools there are, and what they take, as JSON schemas."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from omnigraph.model.signatures import QuerySignature
from omnigraph.wire import operations
from omnigraph.wire.operations import OPERATIONS, Operation

SERVER_TOOLS: Mapping[str, Operation] = {
    "server_health": operations.HEALTH,
    "server_graphs": operations.LIST_GRAPHS,
}
GRAPH_TOOLS: Mapping[str, Operation] = {
    "graph_schema": operations.SCHEMA,
    "graph_snapshot": operations.SNAPSHOT,
    "graph_branches": operations.LIST_BRANCHES,
    "graph_branch_create": operations.CREATE_BRANCH,
    "graph_branch_delete": operations.DELETE_BRANCH,
    "graph_branch_merge": operations.MERGE_BRANCHES,
    "graph_commits": operations.LIST_COMMITS,
    "graph_commit": operations.GET_COMMIT,
    "graph_commit_changes": operations.COMMIT_CHANGES,
    "graph_changes": operations.POLL_CHANGES,
    "graph_load": operations.LOAD,
}
ADHOC_TOOLS: Mapping[str, Operation] = {
    "graph_query": operations.QUERY,
    "graph_mutate": operations.MUTATE,
    "graph_schema_apply": operations.APPLY_SCHEMA,
}
TOOLS = frozenset({*GRAPH_TOOLS, *ADHOC_TOOLS})
"""Names that no stored query of a graph may have."""

_BRANCH = {"type": "string", "description": "the branch; main when left out"}


def operation_schema(operation: Operation) -> dict[str, Any]:
    """The parameters and the fields of the body, as one object."""
    return _schema_of(operation.id)


@lru_cache
def _schema_of(operation_id: str) -> dict[str, Any]:
    operation = next(each for each in OPERATIONS if each.id == operation_id)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in operation.parameters:
        properties[parameter.name] = {**parameter.schema, "description": parameter.about}
        if parameter.required:
            required.append(parameter.name)
    if operation.body is not None:
        body = operation.body.model_json_schema()
        properties |= body["properties"]
        required += body.get("required", [])
    return _object(properties, required)


def stored_schema(signature: QuerySignature) -> dict[str, Any]:
    """The parameters of a stored query, and the branch it runs on."""
    schema = signature.parameters_schema()
    return {**schema, "properties": {"branch": _BRANCH, **schema["properties"]}}


def _object(properties: dict[str, Any], required: list[str]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
