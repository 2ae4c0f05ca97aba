"""The shape of a schema, and the accepted IR: a shape with the ids of its declarations.

A shape is the canonical form of a text. Everything is sorted and without duplicates; comments,
order and `@rename_from` are left out, and a bare `@index` on a property is the same as
`@index(property)` in the body. Two texts with the same shape mean the same schema.

Ids outlive names: a rename changes the shape and keeps the ids, and a dropped declaration that is
added again under its old name gets new ones. Types, properties and table incarnations share one
counter, so no number is used twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from omnigraph.errors import SchemaContractError
from omnigraph.model.ids import is_ulid
from omnigraph.model.records import dataclass
from omnigraph.model.types import ValueType
from omnigraph.schema.admission import AdmittedSchema
from omnigraph.schema.catalog import (
    Annotation,
    Cardinality,
    Check,
    Embed,
    Range,
    TypeKind,
    annotation_key,
)
from omnigraph.schema.effective import (
    EffectiveEdge,
    EffectiveNode,
    EffectiveProperty,
    Properties,
    as_annotation,
)
from omnigraph.schema.rules import (
    annotation_named,
    column_constraints,
    columns_of,
    converted_default,
    embed_of,
    range_of,
)
from omnigraph.syntax.schema_ast import (
    COLUMNS_KINDS,
    AnnotationExpr,
    CheckDecl,
    ColumnsKind,
    LiteralValue,
    RangeDecl,
)

_TYPED_ANNOTATIONS = frozenset({*COLUMNS_KINDS, "embed", "default", "rename_from"})
"""Annotations with fields of their own in the shape, or that are left out."""


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
    """`@description` and unknown annotations, sorted."""
    default: LiteralValue | None = None
    embed: Embed | None = None
    constraints: tuple[ColumnsKind, ...] = ()
    """Bare constraints of an interface property; those of nodes and edges belong to the type."""
    is_direct: bool = True
    """Declared by the type itself rather than by an interface."""
    satisfies: tuple[str, ...] = ()
    """The interfaces of the node that declare this property."""


@dataclass(frozen=True, slots=True)
class InterfaceShape:
    """An interface: a set of properties."""

    name: str
    properties: tuple[PropertyShape, ...]


@dataclass(frozen=True, slots=True)
class NodeShape:
    """A node type."""

    name: str
    annotations: tuple[Annotation, ...]
    implements: tuple[str, ...]
    properties: tuple[PropertyShape, ...]
    constraints: tuple[ConstraintShape, ...]


@dataclass(frozen=True, slots=True)
class EdgeShape:
    """A type of edges between two node types, or interfaces that node types implement."""

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
    """The shape of an admitted schema."""
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
    """The sort key of constraints: kind, then the text of their arguments."""
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


# --- identity -------------------------------------------------------------------------------------


IR_VERSION = 2
IDENTITY_ID_MAX = 2**64 - 1
"""Ids are unsigned 64-bit numbers; the largest is never assigned."""

OFFLINE_DOMAIN = "0" * 26
"""Stands for "no graph": ids of this domain must not be persisted."""

TYPE_KINDS: tuple[TypeKind, ...] = get_args(TypeKind)
"""In the order in which ids are assigned and plans are written."""

TypeRef = tuple[TypeKind, str]
"""A type by kind and name; a node and an edge may share a name."""
PropertyRef = tuple[TypeKind, str, str]
"""A property by the kind and name of its owner, and its own name."""
TypeShape = InterfaceShape | NodeShape | EdgeShape


@dataclass(frozen=True, slots=True)
class SchemaIds:
    """The ids of one schema, by the names in its shape."""

    types: Mapping[TypeRef, int]
    properties: Mapping[PropertyRef, int]
    incarnations: Mapping[TypeRef, int]
    """Table incarnations, for nodes and edges; an interface has none."""


@dataclass(frozen=True, slots=True)
class SchemaIR:
    """One accepted schema: its shape, and the ids of its declarations.

    Compare two of them by `encoding.ir_hash`: `==` takes `@x(1)` and `@x(true)` for equal, as
    Python does.
    """

    domain: str
    """ULID of the root to which the ids belong; ids of different domains are unrelated."""
    next_identity_id: int
    shape: SchemaShape
    ids: SchemaIds


def types_of(shape: SchemaShape) -> dict[TypeRef, TypeShape]:
    """All types of a shape: interfaces, nodes, edges, each in byte order of name."""
    found: dict[TypeRef, TypeShape] = {("interface", s.name): s for s in shape.interfaces}
    found.update({("node", node.name): node for node in shape.nodes})
    found.update({("edge", edge.name): edge for edge in shape.edges})
    return found


def end_kind(types: Mapping[TypeRef, int], name: str) -> TypeKind:
    """The kind of an end of an edge: a node type, or an interface if no node type has the name."""
    return "node" if ("node", name) in types else "interface"


def checked_domain(domain: str) -> str:
    """Return the domain if it is a ULID in its canonical form; otherwise raise."""
    if not is_ulid(domain):
        raise SchemaContractError(
            f"'{domain[:40]}' is not a schema identity domain",
            hint="a domain is a ULID: 26 upper-case characters, minted when a graph is created",
        )
    return domain
