"""Admission: checks a parsed document against every rule of the schema language.

The passes run in the order of `admit`; each checks one subject. All of them run even if an earlier
one found a problem, so that the problem reported first is the first one in the text, and a linter
can show all.
"""

from __future__ import annotations

from omnigraph.errors import CompileError
from omnigraph.model.records import dataclass
from omnigraph.schema.effective import EffectiveSchema, Report, check_names, expand
from omnigraph.schema.rules import (
    check_default_form,
    check_default_uses,
    check_edge_constraints,
    check_embed,
    check_node_constraints,
    check_property_annotations,
    check_type_annotations,
)
from omnigraph.syntax.schema_ast import SchemaDocument
from omnigraph.syntax.tokens import Source


@dataclass(frozen=True, slots=True)
class AdmittedSchema:
    """A schema without problems: its text and its expanded types."""

    source: Source
    types: EffectiveSchema


def admit(document: SchemaDocument) -> AdmittedSchema:
    """Check a document against every rule of the language.

    Raises the first problem in source order: `CatalogError` if declarations do not fit together,
    `SchemaParseError` for every other rule.
    """
    report, types = _examine(document)
    report.raise_first()
    return AdmittedSchema(document.source, types)


def find_problems(document: SchemaDocument) -> list[CompileError]:
    """All problems that `admit` would find, in source order; empty for an admissible schema."""
    return _examine(document)[0].errors()


def _examine(document: SchemaDocument) -> tuple[Report, EffectiveSchema]:
    report = Report(document.source)
    check_names(document, report)
    types = expand(document, report)
    _check_forms(types, report)
    _check_uses(types, report)
    return report, types


def _check_forms(types: EffectiveSchema, report: Report) -> None:
    """Rules about single declarations."""
    for holders in (types.interfaces, types.nodes, types.edges):
        for owner, holder in holders.items():
            for prop in holder.properties.values():
                if prop.is_direct:
                    check_property_annotations(owner, prop.declaration, report)
                    check_default_form(owner, prop.declaration, prop.type, report)
    for node in types.nodes.values():
        check_type_annotations(node.declaration, report)
    for edge in types.edges.values():
        check_type_annotations(edge.declaration, report)


def _check_uses(types: EffectiveSchema, report: Report) -> None:
    """Rules about the properties and constraints of a type together."""
    for owner, node in types.nodes.items():
        check_node_constraints(node, report)
        check_default_uses(node, report)
        for prop in node.properties.values():
            if node.is_complete:
                check_embed("node", owner, prop, node.properties, report)
    for owner, edge in types.edges.items():
        check_edge_constraints(edge, report)
        check_default_uses(edge, report)
        for prop in edge.properties.values():
            check_embed("edge", owner, prop, edge.properties, report)
