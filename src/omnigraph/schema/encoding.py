"""Shapes and accepted IRs as canonical JSON, and the hashes over it.

One encoder serves both: without ids it writes the shape, with ids the IR. A reference in an IR
holds id and name; in a shape it holds the name alone.
"""

from __future__ import annotations

from typing import Any

from omnigraph.model.types import ValueType
from omnigraph.schema.admission.constraints import EDGE_ENDS
from omnigraph.schema.canonical import annotation_json, canonical_json, sha256_of
from omnigraph.schema.catalog import Annotation, Range, TypeKind
from omnigraph.schema.ir import IR_VERSION, SchemaIds, SchemaIR
from omnigraph.schema.shape import (
    ColumnsShape,
    ConstraintShape,
    EdgeShape,
    InterfaceShape,
    NodeShape,
    PropertyShape,
    SchemaShape,
)

Json = dict[str, Any]


def shape_hash(shape: SchemaShape) -> str:
    """`sha256:` hash of what a schema means; equal for texts that mean the same."""
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
    """A property type as `{scalar, nullable, list, enum_values}`; a vector carries its dimension.

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
            "from_type": self._type_ref("node", edge.source),
            "to_type": self._type_ref("node", edge.target),
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
        """Like any reference; but an interface may leave its source to the nodes, who have it."""
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

    def _property_ref(self, kind: TypeKind, owner: str, name: str) -> Json:
        form: Json = {"property_name": name}
        if self._ids is not None:
            form["property_id"] = self._ids.properties[kind, owner, name]
        return form


def _annotations(annotations: tuple[Annotation, ...]) -> list[Json]:
    return [annotation_json(annotation) for annotation in annotations]
