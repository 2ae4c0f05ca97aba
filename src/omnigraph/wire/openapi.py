"""The OpenAPI description, written from the table of operations."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from omnigraph import __version__
from omnigraph.wire.failures import ErrorEnvelope
from omnigraph.wire.headers import ARROW_STREAM, JSON, NDJSON, OCTETS
from omnigraph.wire.operations import GRAPH_ID, INVOKE, OPERATIONS, Operation, Parameter
from omnigraph.wire.queries import Changed, Read
from omnigraph.wire.service import Ready

SCHEME = "bearer_token"
_REFERENCE = "#/components/schemas/{model}"

_REASONS = {
    400: "the request is wrong",
    401: "no valid token",
    403: "policy refuses it",
    404: "the graph, or what is named, does not exist",
    409: "it does not fit what the graph holds now",
    410: "what is needed was cleaned up",
    412: "the condition does not hold; nothing was done",
    413: "over a limit",
    415: "the body is of another type",
    416: "the range lies outside the value",
    424: "an external blob cannot be read",
    429: "too many writes of one actor at a time",
    500: "an error of the server",
    503: "not now: a writer, or an unfinished operation, is in the way",
}


def openapi(*, is_open: bool = False) -> dict[str, Any]:
    """The description of every operation; a server without tokens has no security scheme."""
    models = _models()
    references, definitions = models_json_schema(
        [(model, "serialization" if _is_answer(model) else "validation") for model in models],
        ref_template=_REFERENCE,
    )
    names: dict[Any, str] = {model: found["$ref"] for (model, _), found in references.items()}
    components: dict[str, Any] = {
        "schemas": _tidied(definitions["$defs"]),
        "responses": {str(status): _refused(reason, names) for status, reason in _REASONS.items()},
    }
    if not is_open:
        components["securitySchemes"] = {SCHEME: {"type": "http", "scheme": "bearer"}}
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        described = _described(operation, names, is_open=is_open)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Omnigraph",
            "version": __version__,
            "description": "A typed property graph with branches, over HTTP.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": components,
    }


def _models() -> list[type[BaseModel]]:
    """Every model of the table, once, in a stable order."""
    found: dict[type[BaseModel], None] = {ErrorEnvelope: None}
    for operation in OPERATIONS:
        for model in (operation.body, operation.answer):
            if model is not None:
                found[model] = None
    found[Changed] = None
    return list(found)


def _is_answer(model: type[BaseModel]) -> bool:
    return model is ErrorEnvelope or any(each.answer is model for each in OPERATIONS)


def _tidied(definitions: dict[str, Any]) -> dict[str, Any]:
    """The schemas without what only repeats them: titles, and null where a field is left out."""
    for definition in definitions.values():
        for schema in definition.get("properties", {}).values():
            schema.pop("title", None)
            if schema.get("default", ...) is None:
                del schema["default"]
        definition.pop("title", None)
    return definitions


def _refused(reason: str, names: dict[Any, str]) -> dict[str, Any]:
    return {
        "description": reason,
        "content": {JSON: {"schema": {"$ref": names[ErrorEnvelope]}}},
    }


def _described(
    operation: Operation, names: dict[type[BaseModel], str], *, is_open: bool
) -> dict[str, Any]:
    out: dict[str, Any] = {"operationId": operation.id, "summary": operation.summary}
    if operation.successor is not None:
        out["deprecated"] = True
    own = [] if "{graph_id}" not in operation.path else [GRAPH_ID]
    parameters = [_parameter(each) for each in (*own, *operation.parameters)]
    if parameters:
        out["parameters"] = parameters
    if operation.has_body:
        schema: Any = (
            {"type": "string"} if operation.body is None else {"$ref": names[operation.body]}
        )
        if operation.body is not None and not operation.body_required:
            schema = {"anyOf": [schema, {"type": "null"}]}
        out["requestBody"] = {
            "required": operation.body_required,
            "content": {operation.takes: {"schema": schema}},
        }
    out["responses"] = _responses(operation, names)
    if not is_open and not operation.is_public:
        out["security"] = [{SCHEME: []}]
    return out


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.about,
        "schema": dict(parameter.schema),
    }


def _responses(operation: Operation, names: dict[type[BaseModel], str]) -> dict[str, Any]:
    responses: dict[str, Any] = {
        "200": {"description": "done", "content": _given(operation, names)}
    }
    if operation.method == "HEAD":
        del responses["200"]["content"]
    if OCTETS in operation.gives:
        if operation.method == "GET":
            part = {OCTETS: {"schema": _BINARY}}
            responses["206"] = {"description": "a part of the bytes", "content": part}
        responses["302"] = {"description": "the bytes lie elsewhere"}
        responses["304"] = {"description": "the caller has these bytes"}
    for status in _refusals(operation):
        responses[str(status)] = (
            {"description": _REASONS[status]}
            if operation.method == "HEAD"
            else {"$ref": f"#/components/responses/{status}"}
        )
    if operation.answer is Ready:
        content = {JSON: {"schema": {"$ref": names[Ready]}}}
        responses["503"] = {"description": "starting or draining", "content": content}
    return responses


_BINARY = {"type": "string", "contentMediaType": OCTETS}


def _given(operation: Operation, names: dict[type[BaseModel], str]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for media in operation.gives:
        if media == JSON and operation is INVOKE:
            either = [{"$ref": names[Read]}, {"$ref": names[Changed]}]
            content[media] = {"schema": {"anyOf": either}}
        elif media == JSON and operation.answer is not None:
            content[media] = {"schema": {"$ref": names[operation.answer]}}
        elif media == JSON:
            content[media] = {"schema": {"type": "object"}}
        elif media in (ARROW_STREAM, OCTETS):
            content[media] = {"schema": {"type": "string", "contentMediaType": media}}
        else:
            assert media == NDJSON
            content[media] = {"schema": {"type": "string"}}
    return content


def _refusals(operation: Operation) -> Iterator[int]:
    """Every status of a refusal, in order."""
    found = set(operation.refusals)
    if not operation.is_public:
        found |= {401, 403, 500}
    if operation.has_graph:
        found |= {400, 404}
    if operation.has_body:
        found |= {413, 415}
    if operation.is_gated:
        found |= {409, 429, 503}
    if operation.answer is Ready:
        found.discard(503)
    return iter(sorted(found))
