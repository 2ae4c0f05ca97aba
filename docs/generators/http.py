"""The reference of the HTTP interface: the OpenAPI description, as a page to read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from docs.generators.text import cell

Described = dict[str, Any]

INTRODUCTION = """\
# HTTP

<!-- Written by `make docs` from omnigraph/wire: edit there. -->

Every operation of `omnigraph serve`. [Serving a graph](../guide/server.md) explains them by
example; [openapi.json](openapi.json) is the same in a form for programs, and `GET /openapi.json`
asks a server for its own. A token travels as `Authorization: Bearer …`, and every refusal has the
body `{"error": …, "code": …}`. A field that is not listed is an error.

| Refused with | Because |
| --- | --- |
"""


def http_page(description: Described) -> str:
    """All operations, those of the server first, with what they take and what they answer."""
    statuses = {
        status: answer["description"]
        for status, answer in description["components"]["responses"].items()
    }
    rows = [f"| {status} | {meaning} |\n" for status, meaning in statuses.items()]
    sections = [
        "\n" + "\n".join(_section(method.upper(), path, operation, description))
        for path, methods in description["paths"].items()
        for method, operation in methods.items()
    ]
    return "".join([INTRODUCTION, *rows, *sections])


def _section(method: str, path: str, operation: Described, whole: Described) -> Iterator[str]:
    yield f"## `{method} {path}`\n"
    deprecated = " Deprecated." if operation.get("deprecated") else ""
    token = "" if operation.get("security") else " No token is needed."
    yield f"{operation['summary']}.{deprecated}{token}\n"
    inputs = [*_parameters(operation), *_fields(operation, whole)]
    if inputs:
        yield "| Input | In | Type | Meaning |"
        yield "| --- | --- | --- | --- |"
        yield from inputs
        yield ""
    yield f"Answers {_answers(operation)}.\n"


def _parameters(operation: Described) -> Iterator[str]:
    for parameter in operation.get("parameters", ()):
        if parameter["name"] != "graph_id":
            yield _row(
                parameter["name"],
                parameter["in"],
                parameter["schema"],
                parameter["required"],
                parameter["description"],
            )


def _fields(operation: Described, whole: Described) -> Iterator[str]:
    content = operation.get("requestBody", {}).get("content", {})
    for media, shape in content.items():
        name = shape["schema"].get("$ref", "").rpartition("/")[2]
        if not name:
            yield f"| the body | body | `{media}` | |"
            continue
        model = whole["components"]["schemas"][name]
        for field, schema in model.get("properties", {}).items():
            required = field in model.get("required", ())
            yield _row(field, "body", schema, required, schema.get("description", ""))


def _row(name: str, place: str, schema: Described, required: bool, meaning: str) -> str:
    needed = ", required" if required else ""
    return f"| `{name}` | {place} | {cell(_type(schema))}{needed} | {cell(meaning)} |"


def _type(schema: Described) -> str:
    if "anyOf" in schema:
        kinds = [_type(kind) for kind in schema["anyOf"] if kind.get("type") != "null"]
        return " or ".join(dict.fromkeys(kinds))
    if "enum" in schema:
        return " or ".join(f"`{value}`" for value in schema["enum"])
    if "const" in schema:
        return f"`{schema['const']}`"
    if schema.get("type") == "array":
        return f"{_type(schema['items'])}, repeated"
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    return str(schema.get("type", "any"))


def _answers(operation: Described) -> str:
    done = [status for status in operation["responses"] if int(status) < 400]
    media = [
        f"`{media}`"
        for status in done
        for media in operation["responses"][status].get("content", {})
    ]
    refused = [status for status in operation["responses"] if status not in done]
    given = f" with {' or '.join(dict.fromkeys(media))}" if media else ""
    return " or ".join(done) + given + (f"; refuses with {', '.join(refused)}" if refused else "")
