"""From the accepted IR to the catalog the rest of the product asks questions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from omnigraph.schema.admission.annotations import METADATA
from omnigraph.schema.catalog import (
    Annotation,
    Catalog,
    Check,
    EdgeType,
    InterfaceType,
    NodeType,
    Property,
    Range,
    TypeKind,
)
from omnigraph.schema.encoding import ir_hash
from omnigraph.schema.ir import SchemaIR, TypeShape
from omnigraph.schema.shape import ColumnsShape, ConstraintShape, EdgeShape, NodeShape


def project(ir: SchemaIR) -> Catalog:
    """The catalog of an accepted schema."""
    return Catalog(
        schema_hash=ir_hash(ir),
        interfaces=MappingProxyType(
            {
                shape.name: InterfaceType(
                    shape.name,
                    ir.ids.types["interface", shape.name],
                    _properties(ir, "interface", shape),
                )
                for shape in ir.shape.interfaces
            }
        ),
        nodes=MappingProxyType({shape.name: _node(ir, shape) for shape in ir.shape.nodes}),
        edges=MappingProxyType({shape.name: _edge(ir, shape) for shape in ir.shape.edges}),
    )


def _node(ir: SchemaIR, shape: NodeShape) -> NodeType:
    properties = _properties(ir, "node", shape)
    key = next(iter(_groups(shape.constraints, "key")), ())
    return NodeType(
        name=shape.name,
        type_id=ir.ids.types["node", shape.name],
        incarnation_id=ir.ids.incarnations["node", shape.name],
        properties=properties,
        # By id, not by name: renaming a member must not reorder the ids of existing nodes.
        key=tuple(sorted(key, key=lambda name: properties[name].property_id)),
        unique=_groups(shape.constraints, "unique"),
        indexes=_groups(shape.constraints, "index"),
        ranges=tuple(c for c in shape.constraints if isinstance(c, Range)),
        checks=tuple(c for c in shape.constraints if isinstance(c, Check)),
        implements=shape.implements,
        description=_text(shape.annotations, "description"),
        instruction=_text(shape.annotations, "instruction"),
        annotations=_opaque(shape.annotations),
    )


def _edge(ir: SchemaIR, shape: EdgeShape) -> EdgeType:
    return EdgeType(
        name=shape.name,
        type_id=ir.ids.types["edge", shape.name],
        incarnation_id=ir.ids.incarnations["edge", shape.name],
        source=shape.source,
        target=shape.target,
        properties=_properties(ir, "edge", shape),
        cardinality=shape.cardinality,
        unique=_groups(shape.constraints, "unique"),
        indexes=_groups(shape.constraints, "index"),
        description=_text(shape.annotations, "description"),
        instruction=_text(shape.annotations, "instruction"),
        annotations=_opaque(shape.annotations),
    )


def _properties(ir: SchemaIR, kind: TypeKind, shape: TypeShape) -> Mapping[str, Property]:
    return MappingProxyType(
        {
            prop.name: Property(
                name=prop.name,
                type=prop.type,
                property_id=ir.ids.properties[kind, shape.name, prop.name],
                default=prop.default,
                embed=prop.embed,
                description=_text(prop.annotations, "description"),
                annotations=_opaque(prop.annotations),
            )
            for prop in shape.properties
        }
    )


def _groups(constraints: tuple[ConstraintShape, ...], kind: str) -> tuple[tuple[str, ...], ...]:
    return tuple(c.columns for c in constraints if isinstance(c, ColumnsShape) and c.kind == kind)


def _text(annotations: tuple[Annotation, ...], name: str) -> str | None:
    found = next((a for a in annotations if a.name == name), None)
    return None if found is None else str(found.value)


def _opaque(annotations: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    return tuple(a for a in annotations if a.name not in METADATA)
