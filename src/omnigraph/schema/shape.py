"""The shape of a schema: its canonical meaning, with no identity and no trace of its spelling.

Two texts with the same shape mean the same schema. Everything is sorted and free of repetitions;
comments, order and `@rename_from` are gone, and a bare `@index` on a property is the same as
`@index(property)` in the body.
"""

from __future__ import annotations

from dataclasses import dataclass

from omnigraph.model.types import ValueType
from omnigraph.schema.admission import AdmittedSchema
from omnigraph.schema.admission.annotations import annotation_named, embed_of
from omnigraph.schema.admission.constraints import column_constraints, columns_of, range_of
from omnigraph.schema.admission.defaults import converted_default
from omnigraph.schema.admission.effective import (
    EffectiveEdge,
    EffectiveNode,
    EffectiveProperty,
    Properties,
    as_annotation,
)
from omnigraph.schema.ast import COLUMNS_KINDS, AnnotationExpr, CheckDecl, ColumnsKind, RangeDecl
from omnigraph.schema.canonical import annotation_key
from omnigraph.schema.catalog import Annotation, Cardinality, Check, Embed, LiteralValue, Range

_TYPED_ANNOTATIONS = frozenset({*COLUMNS_KINDS, "embed", "default", "rename_from"})
"""Annotations with a place of their own in the shape, or none at all."""


@dataclass(frozen=True, slots=True)
class ColumnsShape:
    """`@key`, `@unique` or `@index` over a sorted set of columns."""

    kind: ColumnsKind
    columns: tuple[str, ...]


ConstraintShape = ColumnsShape | Range | Check


@dataclass(frozen=True, slots=True)
class PropertyShape:
    """One property of a type, interface properties included."""

    name: str
    type: ValueType
    annotations: tuple[Annotation, ...] = ()
    """`@description` and opaque annotations, sorted."""
    default: LiteralValue | None = None
    embed: Embed | None = None
    constraints: tuple[ColumnsKind, ...] = ()
    """Bare constraints of an interface property; those of nodes and edges belong to the type."""
    is_direct: bool = True
    """Declared by the type itself rather than supplied by an interface."""
    satisfies: tuple[str, ...] = ()
    """The interfaces of the node that declare this property."""


@dataclass(frozen=True, slots=True)
class InterfaceShape:
    """A property contract."""

    name: str
    properties: tuple[PropertyShape, ...]


@dataclass(frozen=True, slots=True)
class NodeShape:
    """An entity type."""

    name: str
    annotations: tuple[Annotation, ...]
    implements: tuple[str, ...]
    properties: tuple[PropertyShape, ...]
    constraints: tuple[ConstraintShape, ...]


@dataclass(frozen=True, slots=True)
class EdgeShape:
    """A relation between two node types."""

    name: str
    source: str
    target: str
    cardinality: Cardinality
    annotations: tuple[Annotation, ...]
    properties: tuple[PropertyShape, ...]
    constraints: tuple[ConstraintShape, ...]


@dataclass(frozen=True, slots=True)
class SchemaShape:
    """Every type of a schema, each kind in byte order of name."""

    interfaces: tuple[InterfaceShape, ...]
    nodes: tuple[NodeShape, ...]
    edges: tuple[EdgeShape, ...]


def shape_of(admitted: AdmittedSchema) -> SchemaShape:
    """The meaning of an admitted schema."""
    types = admitted.types
    return SchemaShape(
        tuple(
            InterfaceShape(
                name,
                tuple(
                    _property(prop, _bare_constraints(prop))
                    for prop in interface.properties.values()
                ),
            )
            for name, interface in types.interfaces.items()
        ),
        tuple(
            NodeShape(
                name,
                _opaque(node.declaration.annotations),
                node.implements,
                _properties(node.properties),
                _constraints(node),
            )
            for name, node in types.nodes.items()
        ),
        tuple(
            EdgeShape(
                name,
                edge.declaration.source.text,
                edge.declaration.target.text,
                edge.cardinality,
                _opaque(edge.declaration.annotations),
                _properties(edge.properties),
                _constraints(edge),
            )
            for name, edge in types.edges.items()
        ),
    )


def constraint_key(constraint: ConstraintShape) -> tuple[str, str]:
    """What constraints are sorted by: kind, then the text of their arguments."""
    if isinstance(constraint, ColumnsShape):
        return constraint.kind, ", ".join(constraint.columns)
    if isinstance(constraint, Range):
        return "range", f"{constraint.property}, {constraint.minimum}..{constraint.maximum}"
    return "check", f"{constraint.property}, {constraint.pattern}"


def _properties(properties: Properties) -> tuple[PropertyShape, ...]:
    return tuple(_property(prop, ()) for prop in properties.values())


def _property(prop: EffectiveProperty, constraints: tuple[ColumnsKind, ...]) -> PropertyShape:
    annotations = prop.declaration.annotations
    default = annotation_named(annotations, "default")
    return PropertyShape(
        prop.name,
        prop.type,
        _opaque(annotations),
        converted_default(prop.type, default.value) if default and default.value else None,
        embed_of(prop),
        constraints,
        prop.is_direct,
        prop.satisfies,
    )


def _opaque(annotations: tuple[AnnotationExpr, ...]) -> tuple[Annotation, ...]:
    found = {
        annotation_key(annotation): annotation
        for annotation in map(as_annotation, annotations)
        if annotation.name not in _TYPED_ANNOTATIONS
    }
    return tuple(annotation for _, annotation in sorted(found.items()))


def _bare_constraints(prop: EffectiveProperty) -> tuple[ColumnsKind, ...]:
    names = {annotation.name.text for annotation in prop.declaration.annotations}
    return tuple(sorted(kind for kind in COLUMNS_KINDS if kind in names))


def _constraints(owner: EffectiveNode | EffectiveEdge) -> tuple[ConstraintShape, ...]:
    found: set[ConstraintShape] = {
        ColumnsShape(constraint.kind, columns_of(constraint))
        for constraint in column_constraints(owner)
    }
    for rule in owner.declaration.constraints:
        if isinstance(rule, RangeDecl):
            found.add(range_of(rule, owner.properties))
        elif isinstance(rule, CheckDecl):
            found.add(Check(rule.property.text, str(rule.pattern.value)))
    return tuple(sorted(found, key=constraint_key))
