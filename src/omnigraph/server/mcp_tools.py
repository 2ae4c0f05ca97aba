"""The tools and the JSON schemas of their arguments."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from omnigraph.model.records import dataclass
from omnigraph.model.signatures import QuerySignature
from omnigraph.policy import Action
from omnigraph.wire import operations
from omnigraph.wire.operations import OPERATIONS, Operation


@dataclass(frozen=True, slots=True)
class OperationTool:
    """An operation as a tool, and the actions that a caller needs to see it."""

    operation: Operation
    actions: tuple[Action, ...] = ()
    """Needed on some branch."""
    on_all: Action | None = None
    """Needed on the graph or the server."""


SERVER_TOOLS: Mapping[str, OperationTool] = {
    "server_health": OperationTool(operations.HEALTH),
    "server_graphs": OperationTool(operations.LIST_GRAPHS, on_all=Action.GRAPH_LIST),
}
_READS = (Action.READ,)
GRAPH_TOOLS: Mapping[str, OperationTool] = {
    "graph_schema": OperationTool(operations.SCHEMA, on_all=Action.READ),
    "graph_snapshot": OperationTool(operations.SNAPSHOT, _READS),
    "graph_branches": OperationTool(operations.LIST_BRANCHES, on_all=Action.READ),
    "graph_branch_create": OperationTool(
        operations.CREATE_BRANCH, (Action.BRANCH_CREATE, Action.READ)
    ),
    "graph_branch_delete": OperationTool(operations.DELETE_BRANCH, (Action.BRANCH_DELETE,)),
    "graph_branch_merge": OperationTool(
        operations.MERGE_BRANCHES, (Action.BRANCH_MERGE, Action.READ)
    ),
    "graph_commits": OperationTool(operations.LIST_COMMITS, _READS),
    "graph_commit": OperationTool(operations.GET_COMMIT, on_all=Action.READ),
    "graph_commit_changes": OperationTool(operations.COMMIT_CHANGES, _READS),
    "graph_changes": OperationTool(operations.POLL_CHANGES, _READS),
    "graph_load": OperationTool(operations.LOAD, (Action.CHANGE,)),
    "list_reviews": OperationTool(operations.LIST_REVIEWS, on_all=Action.READ),
    "show_review": OperationTool(operations.GET_REVIEW, _READS),
    "open_review": OperationTool(operations.OPEN_REVIEW, _READS),
    "comment_review": OperationTool(operations.COMMENT_REVIEW, _READS),
}
REVIEW_TOOLS: Mapping[str, OperationTool] = {
    "review_review": OperationTool(operations.REVIEW_REVIEW, _READS),
    "merge_review": OperationTool(operations.MERGE_REVIEW, (Action.BRANCH_MERGE, Action.READ)),
}
"""Tools for people's decisions, disabled by default."""
ADHOC_TOOLS: Mapping[str, OperationTool] = {
    "graph_query": OperationTool(operations.QUERY, _READS),
    "graph_mutate": OperationTool(operations.MUTATE, (Action.CHANGE,)),
    "graph_schema_apply": OperationTool(operations.APPLY_SCHEMA, (Action.SCHEMA_APPLY,)),
}
TOOLS = frozenset({*GRAPH_TOOLS, *ADHOC_TOOLS, *REVIEW_TOOLS})
"""Names that stored queries must not have."""

_BRANCH = {"type": "string", "description": "the branch; main when left out"}


def operation_schema(operation: Operation) -> dict[str, Any]:
    """The parameters and body fields of an operation as one object."""
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
