"""Shapes and accepted IRs as canonical JSON, the hashes over it, and the strict reader of IRs.

One encoder serves both: without ids it writes the shape, with ids the IR. A reference in an IR
contains id and name; in a shape only the name. Reading rebuilds shape and ids and encodes them
again, which must give the same text: that finds unknown members, references whose id and name
disagree, and any manual edit.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from operator import attrgetter
from typing import Any, TypeVar

from omnigraph.errors import SchemaContractError
from omnigraph.model.types import Scalar, ValueType
from omnigraph.schema.catalog import (
    Annotation,
    Cardinality,
    Check,
    Embed,
    Range,
    TypeKind,
    annotation_json,
    annotation_key,
    canonical_json,
    sha256_of,
)
from omnigraph.schema.rules import EDGE_ENDS
from omnigraph.schema.shape import (
    IDENTITY_ID_MAX,
    IR_VERSION,
    ColumnsShape,
    ConstraintShape,
    EdgeShape,
    InterfaceShape,
    NodeShape,
    PropertyRef,
    PropertyShape,
    SchemaIds,
    SchemaIR,
    SchemaShape,
    TypeRef,
    checked_domain,
    constraint_key,
    end_kind,
)
from omnigraph.syntax.schema_ast import COLUMNS_KINDS, ColumnsKind, LiteralValue

# --- writing --------------------------------------------------------------------------------------


Json = dict[str, Any]


def shape_hash(shape: SchemaShape) -> str:
    """`sha256:` hash of a shape; equal for texts with the same meaning."""
    return sha256_of(canonical_json(_Encoder(None).schema(shape)))


def ir_text(ir: SchemaIR) -> str:
    """The canonical text of an accepted IR, as it is persisted."""
    head = {
        "ir_version": IR_VERSION,
        "schema_identity_domain": ir.domain,
        "next_identity_id": ir.next_identity_id,
    }
    return canonical_json(head | _Encoder(ir.ids).schema(ir.shape))


def ir_hash(ir: SchemaIR) -> str:
    """`sha256:` hash of the canonical text of an IR."""
    return sha256_of(ir_text(ir))


def type_json(value_type: ValueType) -> Json:
    """A property type as `{scalar, nullable, list, enum_values}`; a vector includes its dimension.

    >>> from omnigraph.model.types import Scalar
    >>> type_json(ValueType(Scalar.VECTOR, vector_dim=8))["scalar"]
    {'Vector': 8}
    """
    scalar = value_type.scalar.value
    values = value_type.enum_values
    return {
        "scalar": {scalar: value_type.vector_dim} if value_type.is_vector else scalar,
        "nullable": value_type.nullable,
        "list": value_type.is_list,
        "enum_values": list(values) if values is not None else None,
    }


class _Encoder:
    def __init__(self, ids: SchemaIds | None) -> None:
        self._ids = ids

    def schema(self, shape: SchemaShape) -> Json:
        return {
            "interfaces": [self._interface(interface) for interface in shape.interfaces],
            "nodes": [self._node(node) for node in shape.nodes],
            "edges": [self._edge(edge) for edge in shape.edges],
        }

    def _interface(self, interface: InterfaceShape) -> Json:
        form = self._identity("interface", interface.name)
        form["properties"] = [
            self._property("interface", interface.name, prop)
            | {"property_constraints": list(prop.constraints)}
            for prop in interface.properties
        ]
        return form

    def _node(self, node: NodeShape) -> Json:
        return self._table("node", node) | {
            "implements": [self._type_ref("interface", name) for name in node.implements],
            "properties": [
                self._property("node", node.name, prop)
                | {
                    "declared_directly": prop.is_direct,
                    "satisfies_interface_properties": [
                        self._type_ref("interface", name)
                        | self._property_ref("interface", name, prop.name)
                        for name in prop.satisfies
                    ],
                }
                for prop in node.properties
            ],
        }

    def _edge(self, edge: EdgeShape) -> Json:
        return self._table("edge", edge) | {
            "from_type": self._end_ref(edge.source),
            "to_type": self._end_ref(edge.target),
            "cardinality": {"min": edge.cardinality.minimum, "max": edge.cardinality.maximum},
            "properties": [self._property("edge", edge.name, prop) for prop in edge.properties],
        }

    def _table(self, kind: TypeKind, shape: NodeShape | EdgeShape) -> Json:
        form = self._identity(kind, shape.name)
        if self._ids is not None:
            form["table_incarnation_id"] = self._ids.incarnations[kind, shape.name]
        form["annotations"] = _annotations(shape.annotations)
        form["constraints"] = [self._constraint(kind, shape.name, c) for c in shape.constraints]
        return form

    def _property(self, kind: TypeKind, owner: str, prop: PropertyShape) -> Json:
        form: Json = {
            "name": prop.name,
            "prop_type": type_json(prop.type),
            "annotations": _annotations(prop.annotations),
            "default": prop.default,
            "embed_source": None,
        }
        if self._ids is not None:
            form["property_id"] = self._ids.properties[kind, owner, prop.name]
        if prop.embed is not None:
            form["embed_source"] = {
                "source": self._embed_source(kind, owner, prop.embed.source),
                "model": prop.embed.model,
            }
        return form

    def _embed_source(self, kind: TypeKind, owner: str, name: str) -> Json:
        """A reference; the source of an interface property may be declared by its nodes only."""
        foreign = kind == "interface" and (
            self._ids is not None and (kind, owner, name) not in self._ids.properties
        )
        if foreign:
            return {"property_name": name, "property_id": None}
        return self._property_ref(kind, owner, name)

    def _constraint(self, kind: TypeKind, owner: str, constraint: ConstraintShape) -> Json:
        if isinstance(constraint, ColumnsShape):
            fields = [self._field(kind, owner, column) for column in constraint.columns]
            return {"kind": constraint.kind, "fields": fields}
        field = self._field(kind, owner, constraint.property)
        if isinstance(constraint, Range):
            low, high = constraint.minimum, constraint.maximum
            return {"kind": "range", "field": field, "min": low, "max": high}
        return {"kind": "check", "field": field, "pattern": constraint.pattern}

    def _field(self, kind: TypeKind, owner: str, column: str) -> Json:
        """A column of a constraint: a property, or one end of an edge, which has no id."""
        if kind == "edge" and column in EDGE_ENDS:
            return {"system": column}
        return self._property_ref(kind, owner, column)

    def _identity(self, kind: TypeKind, name: str) -> Json:
        form: Json = {"name": name}
        if self._ids is not None:
            form["type_id"] = self._ids.types[kind, name]
        return form

    def _type_ref(self, kind: TypeKind, name: str) -> Json:
        form: Json = {"type_name": name}
        if self._ids is not None:
            form["type_id"] = self._ids.types[kind, name]
        return form

    def _end_ref(self, name: str) -> Json:
        return self._type_ref(
            "node" if self._ids is None else end_kind(self._ids.types, name), name
        )

    def _property_ref(self, kind: TypeKind, owner: str, name: str) -> Json:
        form: Json = {"property_name": name}
        if self._ids is not None:
            form["property_id"] = self._ids.properties[kind, owner, name]
        return form


def _annotations(annotations: tuple[Annotation, ...]) -> list[Json]:
    return [annotation_json(annotation) for annotation in annotations]


# --- reading --------------------------------------------------------------------------------------


T = TypeVar("T")
_NAME = attrgetter("name")


def read_ir(text: str) -> SchemaIR:
    """The IR that a text encodes.

    Raises `SchemaContractError` if the text has an unknown version, is malformed or inconsistent,
    or is not exactly what `ir_text` writes.
    """
    root = read_json_object(text, "the accepted schema")
    version = root.get("ir_version")
    if version != IR_VERSION or isinstance(version, bool):
        raise SchemaContractError(
            f"unsupported ir_version {version!r} (expected {IR_VERSION})",
            hint="this graph was written by another version of the product",
        )
    try:
        ir = _decode(root)
        again = ir_text(ir)
    except KeyError as missing:
        name = missing.args[0]
        name = name if isinstance(name, str) else ".".join(map(str, name))
        raise SchemaContractError(
            f"the accepted schema refers to {name}, which it does not declare"
        ) from None
    except (TypeError, ValueError) as bad:
        raise SchemaContractError(f"the accepted schema is malformed: {bad}") from None
    _check_ids(ir)
    if again != text:
        raise SchemaContractError("the accepted schema is not in its canonical form")
    return ir


def read_json_object(text: str, what: str) -> Json:
    """Parse one JSON object; raises `SchemaContractError` naming ``what``."""
    try:
        text.encode("utf-8")  # a lone surrogate has no UTF-8 form
        value = json.loads(text)
    except (ValueError, RecursionError) as bad:
        raise SchemaContractError(f"{what} is not valid JSON: {bad}") from None
    if not isinstance(value, dict):
        raise SchemaContractError(f"{what} is not a JSON object")
    return value


def _is(kind: type[T], value: Any) -> T:
    """A value of exactly this JSON type: `true` is not a number."""
    if type(value) is not kind:
        raise TypeError(f"expected {kind.__name__}, found {canonical_json(value)[:40]}")
    return value


def _optional(read: Callable[[Any], T], value: Any) -> T | None:
    return None if value is None else read(value)


_text, _integer, _boolean = partial(_is, str), partial(_is, int), partial(_is, bool)


def _number(value: Any) -> int | float:
    return _integer(value) if isinstance(value, int) else _is(float, value)


def _literal(value: Any) -> LiteralValue:
    return value if type(value) in (str, bool) else _number(value)


def _each(read: Callable[[Any], T], values: Any, key: Callable[[T], Any]) -> tuple[T, ...]:
    """Members by key, without duplicates; encoding the IR again finds unsorted arrays."""
    found = {key(item): item for item in map(read, _is(list, values))}
    return tuple(found[each] for each in sorted(found))


def _names(values: Any, member: str) -> tuple[str, ...]:
    return _each(lambda ref: _text(ref[member]), values, str)


def _decode(root: Json) -> SchemaIR:
    types: dict[TypeRef, int] = {}
    properties: dict[PropertyRef, int] = {}
    incarnations: dict[TypeRef, int] = {}

    def identity(kind: TypeKind, entry: Json) -> str:
        name = _text(entry["name"])
        types[kind, name] = _integer(entry["type_id"])
        if kind != "interface":
            incarnations[kind, name] = _integer(entry["table_incarnation_id"])
        for prop in _is(list, entry["properties"]):
            properties[kind, name, _text(prop["name"])] = _integer(prop["property_id"])
        return name

    def interface(entry: Json) -> InterfaceShape:
        shapes = _each(_read_interface_property, entry["properties"], _NAME)
        return InterfaceShape(identity("interface", entry), shapes)

    def node(entry: Json) -> NodeShape:
        return NodeShape(
            identity("node", entry),
            _read_annotations(entry),
            _names(entry["implements"], "type_name"),
            _each(_read_node_property, entry["properties"], _NAME),
            _each(_read_constraint, entry["constraints"], constraint_key),
        )

    def edge(entry: Json) -> EdgeShape:
        low, high = entry["cardinality"]["min"], entry["cardinality"]["max"]
        return EdgeShape(
            identity("edge", entry),
            _text(entry["from_type"]["type_name"]),
            _text(entry["to_type"]["type_name"]),
            Cardinality(_integer(low), _optional(_integer, high)),
            _read_annotations(entry),
            _each(_read_property, entry["properties"], _NAME),
            _each(_read_constraint, entry["constraints"], constraint_key),
        )

    shape = SchemaShape(
        _each(interface, root["interfaces"], _NAME),
        _each(node, root["nodes"], _NAME),
        _each(edge, root["edges"], _NAME),
    )
    return SchemaIR(
        checked_domain(_text(root["schema_identity_domain"])),
        _integer(root["next_identity_id"]),
        shape,
        SchemaIds(types, properties, incarnations),
    )


def _read_property(entry: Json) -> PropertyShape:
    return PropertyShape(
        _text(entry["name"]),
        read_type(entry["prop_type"]),
        _read_annotations(entry),
        _optional(_literal, entry["default"]),
        _optional(_read_embed, entry["embed_source"]),
    )


def _read_interface_property(entry: Json) -> PropertyShape:
    constraints = _each(_columns_kind, entry["property_constraints"], str)
    return replace(_read_property(entry), constraints=constraints)


def _read_node_property(entry: Json) -> PropertyShape:
    return replace(
        _read_property(entry),
        is_direct=_boolean(entry["declared_directly"]),
        satisfies=_names(entry["satisfies_interface_properties"], "type_name"),
    )


def read_type(entry: Json) -> ValueType:
    """The type that `type_json` wrote; raises `TypeError`, `ValueError` or `KeyError`."""
    scalar, values, dimension = entry["scalar"], entry["enum_values"], None
    if isinstance(scalar, dict):
        dimension, scalar = _integer(scalar[Scalar.VECTOR]), Scalar.VECTOR
    return ValueType(
        Scalar(scalar),
        nullable=_boolean(entry["nullable"]),
        is_list=_boolean(entry["list"]),
        enum_values=None if values is None else _each(_text, values, str),
        vector_dim=dimension,
    )


def _read_embed(entry: Json) -> Embed:
    return Embed(_text(entry["source"]["property_name"]), _optional(_text, entry["model"]))


def _read_annotations(entry: Json) -> tuple[Annotation, ...]:
    return _each(read_annotation, entry["annotations"], annotation_key)


def read_annotation(entry: Json) -> Annotation:
    """The annotation that `annotation_json` wrote; raises `TypeError` or `KeyError`."""
    options = _is(dict, _is(dict, entry).get("kwargs", {}))
    return Annotation(
        _text(entry["name"]),
        _optional(_literal, entry["value"]),
        tuple((name, _literal(options[name])) for name in sorted(options)),
    )


def _read_constraint(entry: Json) -> ConstraintShape:
    match entry["kind"]:
        case "range":
            low, high = _optional(_number, entry["min"]), _optional(_number, entry["max"])
            return Range(_read_field(entry["field"]), low, high)
        case "check":
            return Check(_read_field(entry["field"]), _text(entry["pattern"]))
    return ColumnsShape(_columns_kind(entry["kind"]), _each(_read_field, entry["fields"], str))


def _columns_kind(value: Any) -> ColumnsKind:
    return COLUMNS_KINDS[COLUMNS_KINDS.index(value)]


def _read_field(entry: Json) -> str:
    return _text(entry["system"] if "system" in entry else entry["property_name"])


def _check_ids(ir: SchemaIR) -> None:
    """Check that every id is used once and is below the next one to assign."""
    ids = [*ir.ids.types.values(), *ir.ids.properties.values(), *ir.ids.incarnations.values()]
    if not 1 <= ir.next_identity_id <= IDENTITY_ID_MAX:
        raise SchemaContractError(f"next_identity_id {ir.next_identity_id} is out of range")
    if len(set(ids)) != len(ids):
        raise SchemaContractError("the accepted schema uses an identity id twice")
    for value in ids:
        if not 1 <= value < ir.next_identity_id:
            raise SchemaContractError(
                f"identity id {value} is not below next_identity_id {ir.next_identity_id}"
            )
