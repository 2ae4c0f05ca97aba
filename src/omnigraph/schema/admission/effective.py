"""The properties a type really has: its own, and those its interfaces supply."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import NamedTuple

from omnigraph.model.types import ValueType
from omnigraph.schema.admission.names import first_of_each
from omnigraph.schema.admission.report import Report
from omnigraph.schema.admission.types import resolve_cardinality, resolve_type
from omnigraph.schema.ast import (
    AnnotationExpr,
    EdgeDecl,
    InterfaceDecl,
    NodeDecl,
    PropertyDecl,
    SchemaDocument,
)
from omnigraph.schema.canonical import annotation_key
from omnigraph.schema.catalog import Annotation, Cardinality
from omnigraph.syntax.suggest import did_you_mean


class EffectiveProperty(NamedTuple):
    """A property of a type, with the declaration whose annotations count."""

    name: str
    type: ValueType
    declaration: PropertyDecl
    is_direct: bool = True
    """Whether the type declares it itself; if not, an interface supplies it."""
    satisfies: tuple[str, ...] = ()
    """The implemented interfaces that declare this property, by name."""


Properties = Mapping[str, EffectiveProperty]
"""Properties by name, in byte order of name."""


class EffectiveInterface(NamedTuple):
    """An interface with its resolved properties."""

    declaration: InterfaceDecl
    properties: Properties


class EffectiveNode(NamedTuple):
    """A node type with all its properties."""

    declaration: NodeDecl
    properties: Properties
    implements: tuple[str, ...]
    is_complete: bool
    """False when an interface is unknown, so that properties may be missing."""


class EffectiveEdge(NamedTuple):
    """An edge type with its resolved properties."""

    declaration: EdgeDecl
    properties: Properties
    cardinality: Cardinality


class EffectiveSchema(NamedTuple):
    """Every type of a schema after expansion, by name and in byte order of name."""

    interfaces: Mapping[str, EffectiveInterface]
    nodes: Mapping[str, EffectiveNode]
    edges: Mapping[str, EffectiveEdge]


def expand(document: SchemaDocument, report: Report) -> EffectiveSchema:
    """Resolve every property type and give nodes the properties of their interfaces."""
    interfaces = {
        name: EffectiveInterface(declaration, _declared_properties(declaration, report))
        for name, declaration in sorted(first_of_each(document.interfaces).items())
    }
    return EffectiveSchema(
        interfaces,
        {
            name: _expand_node(declaration, interfaces, report)
            for name, declaration in sorted(first_of_each(document.nodes).items())
        },
        {
            name: EffectiveEdge(
                declaration,
                _declared_properties(declaration, report),
                resolve_cardinality(declaration.cardinality, report),
            )
            for name, declaration in sorted(first_of_each(document.edges).items())
        },
    )


def as_annotation(expr: AnnotationExpr) -> Annotation:
    """An annotation without its position, its options in byte order of name."""
    return Annotation(
        expr.name.text,
        expr.value.value if expr.value is not None else None,
        tuple(sorted((option.name.text, option.value.value) for option in expr.options)),
    )


def _declared_properties(
    declaration: InterfaceDecl | NodeDecl | EdgeDecl, report: Report
) -> Properties:
    found: dict[str, EffectiveProperty] = {}
    for decl in declaration.properties:
        name = decl.name.text
        resolved = EffectiveProperty(name, resolve_type(decl.type, report), decl)
        found.setdefault(name, resolved)
    return dict(sorted(found.items()))


def _expand_node(
    declaration: NodeDecl, interfaces: Mapping[str, EffectiveInterface], report: Report
) -> EffectiveNode:
    node = declaration.name.text
    own = _declared_properties(declaration, report)
    known: dict[str, EffectiveInterface] = {}
    is_complete = True
    for listed in declaration.implements:
        interface = interfaces.get(listed.text)
        if interface is None:
            is_complete = False
            report.reject(
                f"node {node} implements unknown interface '{listed.text}'",
                listed.span,
                hint=partial(did_you_mean, listed.text, interfaces),
            )
        else:
            known[listed.text] = interface
    properties = dict(own)
    for name, interface in sorted(known.items()):
        for contract in interface.properties.values():
            here = properties.get(contract.name)
            if here is None:
                properties[contract.name] = contract._replace(is_direct=False, satisfies=(name,))
                continue
            if here.is_direct:
                _check_redeclared(declaration, here, name, contract, report)
            else:
                _check_agreement(declaration, here, contract, report)
            properties[contract.name] = here._replace(satisfies=(*here.satisfies, name))
    return EffectiveNode(
        declaration, dict(sorted(properties.items())), tuple(sorted(known)), is_complete
    )


def _check_redeclared(
    node: NodeDecl,
    own: EffectiveProperty,
    interface: str,
    contract: EffectiveProperty,
    report: Report,
) -> None:
    if own.type != contract.type:
        report.reject(
            f"node {node.name.text} property '{own.name}' has type {own.type} "
            f"but interface {interface} declares it as {contract.type}",
            own.declaration.type.span,
            hint="a redeclared property keeps the type of its interface, nullability included",
        )


def _check_agreement(
    node: NodeDecl, earlier: EffectiveProperty, contract: EffectiveProperty, report: Report
) -> None:
    if earlier.type != contract.type:
        hint = f"one declares it as {earlier.type}, another as {contract.type}"
    elif _meanings(earlier) != _meanings(contract):
        hint = f"their annotations differ; declare `{contract.name}` in {node.name.text} itself"
    else:
        return
    report.mismatch(
        f"interfaces contributing '{node.name.text}.{contract.name}' "
        "have incompatible property semantics",
        node.implements[0].span.to(node.implements[-1].span),
        hint=hint,
    )


def _meanings(prop: EffectiveProperty) -> frozenset[tuple[str, str]]:
    return frozenset(annotation_key(as_annotation(a)) for a in prop.declaration.annotations)
