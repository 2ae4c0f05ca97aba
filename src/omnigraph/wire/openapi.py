"""The OpenAPI description, generated from the table of operations and the answers of `model`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic.json_schema import models_json_schema

from omnigraph import __version__
from omnigraph.model.json_object import JsonObject, json_schema
from omnigraph.wire.answers import ErrorEnvelope, Ready
from omnigraph.wire.operations import (
    GRAPH_ID,
    KEY,
    OPERATIONS,
    Operation,
    OperationParameter,
)
from omnigraph.wire.requests import ARROW_STREAM, JSON, NDJSON, OCTETS, SNAPSHOT_ID

Schemas = dict[str, Any]
"""JSON schemas by name."""

SCHEME = "bearer_token"
_SCHEMAS = "#/components/schemas/"

_REASONS = {
    400: "the request is wrong",
    401: "no valid token",
    403: "policy refuses it",
    404: "the graph, or what is named, does not exist",
    408: "the query took longer than it may",
    409: "it does not fit what the graph holds now",
    410: "what is needed was cleaned up",
    412: "the condition does not hold; nothing was done",
    413: "over a limit",
    415: "the body is of another type",
    416: "the range lies outside the value",
    424: "an external blob cannot be read",
    429: "too many requests of one actor at a time",
    500: "an error of the server",
    503: "not now: a writer, or an unfinished operation, is in the way",
    507: "the disk or the quota under the graph is full",
}


def openapi(*, is_open: bool = False) -> dict[str, Any]:
    """The description of all operations; a server without tokens has no security scheme."""
    schemas = _request_schemas()
    _answer_schema(ErrorEnvelope, schemas)
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        described = _described(operation, schemas, is_open=is_open)
        paths.setdefault(operation.path, {})[operation.method.lower()] = described
    components: dict[str, Any] = {
        "schemas": dict(sorted(schemas.items())),
        "responses": {str(status): _refused(reason) for status, reason in _REASONS.items()},
    }
    if not is_open:
        components["securitySchemes"] = {SCHEME: {"type": "http", "scheme": "bearer"}}
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


def _request_schemas() -> Schemas:
    """The schema of every body, without redundant titles and null defaults."""
    bodies = list(dict.fromkeys(each.body for each in OPERATIONS if each.body is not None))
    wanted: Any = [(body, "validation") for body in bodies]
    definitions: Schemas = models_json_schema(wanted, ref_template=_SCHEMAS + "{model}")[1]["$defs"]
    for definition in definitions.values():
        for schema in definition.get("properties", {}).values():
            schema.pop("title", None)
            if schema.get("default", ...) is None:
                del schema["default"]
        definition.pop("title", None)
    return definitions


def _answer_schema(answer: type[JsonObject], schemas: Schemas) -> dict[str, Any]:
    return json_schema(answer, schemas, _SCHEMAS)


def _refused(reason: str) -> dict[str, Any]:
    schema = {"$ref": _SCHEMAS + ErrorEnvelope.__name__}
    return {"description": reason, "content": {JSON: {"schema": schema}}}


def _described(operation: Operation, schemas: Schemas, *, is_open: bool) -> dict[str, Any]:
    out: dict[str, Any] = {"operationId": operation.id, "summary": operation.summary}
    if operation.successor is not None:
        out["deprecated"] = True
    own = [] if "{graph_id}" not in operation.path else [GRAPH_ID]
    more = [KEY] if operation.is_gated else []
    parameters = [_parameter(each) for each in (*own, *operation.parameters, *more)]
    if parameters:
        out["parameters"] = parameters
    if operation.has_body:
        schema: Any = (
            {"type": "string"}
            if operation.body is None
            else {"$ref": _SCHEMAS + operation.body.__name__}
        )
        if operation.body is not None and not operation.body_required:
            schema = {"anyOf": [schema, {"type": "null"}]}
        out["requestBody"] = {
            "required": operation.body_required,
            "content": {operation.takes: {"schema": schema}},
        }
    out["responses"] = _responses(operation, schemas)
    if not is_open and not operation.is_public:
        out["security"] = [{SCHEME: []}]
    return out


def _parameter(parameter: OperationParameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "description": parameter.about,
        "schema": dict(parameter.schema),
    }


_ABOUT_HEADERS = {
    "ETag": "the strong tag of the value",
    "Accept-Ranges": "bytes",
    "Content-Length": "how many bytes follow, or would follow a GET",
    "Content-Range": "which bytes of how many",
    SNAPSHOT_ID: "the commit that was read",
    "Location": "where the bytes are kept",
    "Cache-Control": "no-store",
}
_TAGGED = ("ETag", "Accept-Ranges", SNAPSHOT_ID)
_BLOB_HEADERS = {
    "200": (*_TAGGED, "Content-Length"),
    "206": (*_TAGGED, "Content-Length", "Content-Range"),
    "302": ("Location", "Cache-Control", SNAPSHOT_ID),
    "304": (*_TAGGED, "Content-Length"),
}
"""Headers of the answers about a blob, by status."""


def _responses(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    responses: dict[str, Any] = {
        "200": {"description": "done", "content": _given(operation, schemas)}
    }
    if operation.method == "HEAD":
        del responses["200"]["content"]
    if OCTETS in operation.gives:
        if operation.method == "GET":
            part = {OCTETS: {"schema": {"type": "string", "contentMediaType": OCTETS}}}
            responses["206"] = {"description": "a part of the bytes", "content": part}
        responses["302"] = {"description": "the bytes lie elsewhere"}
        responses["304"] = {"description": "the caller has these bytes"}
        for code, response in responses.items():
            response["headers"] = {
                name: {"description": _ABOUT_HEADERS[name], "schema": {"type": "string"}}
                for name in _BLOB_HEADERS[code]
            }
    for status in _refusals(operation):
        responses[str(status)] = (
            {"description": _REASONS[status]}
            if operation.method == "HEAD"
            else {"$ref": f"#/components/responses/{status}"}
        )
    if operation.answer is Ready:
        content = {JSON: {"schema": _answer_schema(Ready, schemas)}}
        responses["503"] = {"description": "starting or draining", "content": content}
    return responses


def _given(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for media in operation.gives:
        if media == JSON:
            content[media] = {"schema": _json_answer(operation, schemas)}
        elif media in (ARROW_STREAM, OCTETS):
            content[media] = {"schema": {"type": "string", "contentMediaType": media}}
        else:
            assert media == NDJSON
            content[media] = {"schema": {"type": "string"}}
    return content


def _json_answer(operation: Operation, schemas: Schemas) -> dict[str, Any]:
    if operation.answer is None:
        return {"type": "object"}
    answer = _answer_schema(operation.answer, schemas)
    if operation.other_answer is None:
        return answer
    return {"anyOf": [answer, _answer_schema(operation.other_answer, schemas)]}


def _refusals(operation: Operation) -> Iterator[int]:
    """The error statuses of an operation, in order."""
    found = set(operation.refusals)
    if not operation.is_public:
        found |= {401, 500} if operation.masks_denial else {401, 403, 500}
    if operation.has_graph:
        found |= {400, 404}
    if operation.has_body:
        found |= {413, 415}
    if operation.is_gated:
        found |= {409, 429, 503, 507}
    if operation.answer is Ready:
        found.discard(503)
    return iter(sorted(found))
