"""Parameters of stored queries as JSON schemas, for whoever offers queries as tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_KINDS: Mapping[str, Mapping[str, Any]] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "int": {"type": "integer"},
    "bigint": {"type": ["integer", "string"], "description": "a whole number"},
    "float": {"type": "number"},
    "date": {"type": "string", "format": "date"},
    "datetime": {"type": "string", "format": "date-time"},
    "blob": {"type": "string", "description": "`base64:` and the bytes"},
    "vector": {"type": "array", "items": {"type": "number"}},
}


def parameters_schema(parameters: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The JSON schema of an object with these parameters.

    >>> parameters_schema([{"name": "age", "kind": "int", "nullable": False}])["required"]
    ['age']
    """
    named = {parameter["name"]: parameter for parameter in parameters}
    return {
        "type": "object",
        "properties": {name: _schema(parameter) for name, parameter in named.items()},
        "required": [name for name, parameter in named.items() if not parameter["nullable"]],
        "additionalProperties": False,
    }


def _schema(parameter: Mapping[str, Any]) -> dict[str, Any]:
    if parameter["kind"] == "list":
        found: dict[str, Any] = {"type": "array", "items": dict(_KINDS[parameter["item_kind"]])}
    else:
        found = dict(_KINDS[parameter["kind"]])
    if parameter["kind"] == "vector" and parameter.get("vector_dim"):
        length = parameter["vector_dim"]
        # A text is embedded where it is used.
        found = {"anyOf": [{**found, "minItems": length, "maxItems": length}, {"type": "string"}]}
    if parameter["nullable"]:
        found = {"anyOf": [found, {"type": "null"}]}
    return found
