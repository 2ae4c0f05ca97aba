"""Names: duplicates, collisions, reserved words, and edges that lead nowhere."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TypeVar

from omnigraph.model.virtual_columns import VIRTUAL_COLUMNS
from omnigraph.schema.admission.report import Hint, Report
from omnigraph.schema.ast import (
    EdgeDecl,
    InterfaceDecl,
    Name,
    NodeDecl,
    PropertyDecl,
    SchemaDocument,
)
from omnigraph.syntax.suggest import did_you_mean

STRUCTURAL_COLUMNS = frozenset({"id"})
EDGE_STRUCTURAL_COLUMNS = STRUCTURAL_COLUMNS | {"src", "dst", "from", "to"}

D = TypeVar("D", InterfaceDecl, NodeDecl, EdgeDecl)


def check_names(document: SchemaDocument, report: Report) -> None:
    """Check every name of a schema on its own and against the others."""
    _check_unique("interface:", document.interfaces, report)
    _check_unique("node type:", document.nodes, report)
    _check_unique("edge type:", document.edges, report)
    _check_folded_edges(document, report)
    for declaration in document.declarations:
        is_edge = isinstance(declaration, EdgeDecl)
        _check_properties(declaration.name.text, declaration.properties, report, is_edge=is_edge)
    _check_endpoints(document, report)


def first_of_each(declarations: Sequence[D]) -> dict[str, D]:
    """Declarations by name; of repeated names the first, since the others were reported."""
    found: dict[str, D] = {}
    for declaration in declarations:
        found.setdefault(declaration.name.text, declaration)
    return found


def _check_unique(what: str, declarations: Sequence[D], report: Report) -> None:
    first = first_of_each(declarations)
    for declaration in declarations:
        name = declaration.name
        original = first[name.text].name
        if name is not original:
            report.mismatch(
                f"duplicate {what} {name.text}", name.span, hint=_declared(original, report)
            )


def _check_folded_edges(document: SchemaDocument, report: Report) -> None:
    """Edge lookup falls back to ignoring case, so two names may not differ in case alone."""
    first: dict[str, Name] = {}
    for edge in document.edges:
        original = first.setdefault(edge.name.text.lower(), edge.name)
        if original.text != edge.name.text:
            report.mismatch(
                f"edge name collision after case folding: '{edge.name.text}' "
                f"conflicts with '{original.text}'",
                edge.name.span,
                hint=_declared(original, report),
            )


def _check_properties(
    owner: str, properties: Sequence[PropertyDecl], report: Report, *, is_edge: bool
) -> None:
    structural = EDGE_STRUCTURAL_COLUMNS if is_edge else STRUCTURAL_COLUMNS
    first: dict[str, Name] = {}
    for declaration in properties:
        name = declaration.name
        original = first.setdefault(name.text, name)
        if original is not name:
            report.mismatch(
                f"duplicate property: {owner}.{name.text}",
                name.span,
                hint=_declared(original, report),
            )
        if name.text in VIRTUAL_COLUMNS:
            report.reject(
                f"property name '{name.text}' of {owner} is reserved for a virtual storage column; "
                "a graph that already uses it must be exported, renamed and loaded again",
                name.span,
            )
        elif name.text in structural:
            report.mismatch(
                f"property name '{name.text}' of {owner} is reserved for a structural column",
                name.span,
                hint="every entity has it already; choose another name for this property",
            )


def _check_endpoints(document: SchemaDocument, report: Report) -> None:
    nodes = first_of_each(document.nodes)
    interfaces = first_of_each(document.interfaces)
    for edge in document.edges:
        for end, name in (("source", edge.source), ("target", edge.target)):
            if name.text in nodes:
                continue
            hint: Hint = partial(did_you_mean, name.text, nodes)
            if name.text in interfaces:
                hint = f"`{name.text}` is an interface; an edge connects node types"
            report.mismatch(
                f"edge {edge.name.text} references unknown {end} type: {name.text}",
                name.span,
                hint=hint,
            )


def _declared(original: Name, report: Report) -> Hint:
    return lambda: f"`{original.text}` is first declared on line {report.line_of(original.span)}"
