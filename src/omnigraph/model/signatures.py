"""The parameters of queries and the properties of types, for catalogues, forms and tools."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal

from omnigraph.model.json_object import OPTIONAL, Json, JsonObject
from omnigraph.model.records import dataclass
from omnigraph.model.types import IndexKind

FieldKind = Literal[
    "string",
    "bool",
    "int",
    "bigint",
    "float",
    "date",
    "datetime",
    "blob",
    "vector",
    "list",
    "object",
]
"""`bigint`, `date`, `datetime` and `blob` are JSON strings; an `object` is a part of results, or a
record in a list parameter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldDescriptor(JsonObject):
    """One value a query takes or returns."""

    name: str
    column: Annotated[str | None, OPTIONAL] = None
    """The exact key in a result row; parameters have none."""
    kind: FieldKind
    item_kind: Annotated[FieldKind | None, OPTIONAL] = None
    vector_dim: Annotated[int | None, OPTIONAL] = None
    nullable: bool
    fields: Annotated[tuple[FieldDescriptor, ...], Json(unless=())] = ()
    """The fields of the records in a list parameter."""


@dataclass(frozen=True, slots=True)
class QuerySignature(JsonObject):
    """One query of a text, type-checked."""

    name: str
    is_mutation: Annotated[bool, Json("mutation")]
    """Whether it writes."""
    parameters: Annotated[tuple[FieldDescriptor, ...], Json("params")]
    description: Annotated[str | None, OPTIONAL] = None
    instruction: Annotated[str | None, OPTIONAL] = None

    computed: ClassVar[Mapping[str, Json]] = {"tool_name": Json()}

    @property
    def tool_name(self) -> str:
        """The name under which it is offered as a tool."""
        return self.name

    @property
    def mutation(self) -> bool:
        """`is_mutation`, as the JSON form calls it."""
        return self.is_mutation

    @property
    def params(self) -> tuple[FieldDescriptor, ...]:
        """`parameters`, as the JSON form calls them."""
        return self.parameters

    def parameters_schema(self) -> dict[str, Any]:
        """The JSON schema of an object with the parameters."""
        return _object_schema(self.parameters)


_SCHEMAS: Mapping[str, Mapping[str, Any]] = {
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


def _object_schema(members: tuple[FieldDescriptor, ...]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {each.name: _parameter_schema(each) for each in members},
        "required": [each.name for each in members if not each.nullable],
        "additionalProperties": False,
    }


def _parameter_schema(parameter: FieldDescriptor) -> dict[str, Any]:
    if parameter.kind == "list":
        if parameter.fields:
            items = _object_schema(parameter.fields)
        else:
            items = dict(_SCHEMAS[parameter.item_kind or "string"])
        found: dict[str, Any] = {"type": "array", "items": items}
    else:
        found = dict(_SCHEMAS[parameter.kind])
    if parameter.kind == "vector" and parameter.vector_dim:
        length = parameter.vector_dim
        # A text is embedded by the query.
        found = {"anyOf": [{**found, "minItems": length, "maxItems": length}, {"type": "string"}]}
    if parameter.nullable:
        found = {"anyOf": [found, {"type": "null"}]}
    return found


# --- types ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyDescription(JsonObject):
    """One property of a type."""

    name: str
    type: str
    """As in the text of a schema, such as `[String]?`."""
    kind: FieldKind
    item_kind: Annotated[FieldKind | None, OPTIONAL] = None
    nullable: bool
    values: Annotated[tuple[str, ...], Json(unless=())] = ()
    """The values of an enum."""
    rules: Annotated[tuple[str, ...], Json(unless=())] = ()
    """Its constraints and annotations, such as `@key` or `@default(1)`."""
    indexes: Annotated[tuple[IndexKind, ...], Json(unless=())] = ()
    """Indexes that the schema declares; the statistics have the rows that they cover."""
    description: Annotated[str | None, OPTIONAL] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeDescription(JsonObject):
    """One type of a schema, and how many entities it has."""

    kind: Literal["node", "edge", "interface"]
    name: str
    source: Annotated[str | None, OPTIONAL] = None
    """The node type or interface at which an edge starts."""
    target: Annotated[str | None, OPTIONAL] = None
    implements: Annotated[tuple[str, ...], Json(unless=())] = ()
    key: Annotated[tuple[str, ...], Json(unless=())] = ()
    rules: Annotated[tuple[str, ...], Json(unless=())] = ()
    """Constraints over several properties, and annotations of the type."""
    properties: tuple[PropertyDescription, ...]
    entity_count: Annotated[int | None, OPTIONAL] = None
    """Left out for an interface."""
    description: Annotated[str | None, OPTIONAL] = None


@dataclass(frozen=True, slots=True)
class SchemaDescription(JsonObject):
    """The types of a branch, or of a commit, with their counts there."""

    branch: str
    graph_commit_id: str
    types: tuple[TypeDescription, ...]
    """Interfaces, then nodes, then edges; each by name."""
