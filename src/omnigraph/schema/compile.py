"""Entry points of this package: compile a schema text to a catalog, or lint it.

A text is compiled against an accepted schema, or on its own for a new graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from omnigraph.errors import CompileError
from omnigraph.model.ids import reference_prefix
from omnigraph.model.records import dataclass
from omnigraph.schema.admission import admit, find_problems
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
from omnigraph.schema.rules import EDGE_ENDS, METADATA
from omnigraph.schema.shape import (
    OFFLINE_DOMAIN,
    ColumnsShape,
    ConstraintShape,
    EdgeShape,
    NodeShape,
    SchemaIR,
    TypeShape,
    end_kind,
)
from omnigraph.syntax.schema_parser import parse_schema
from omnigraph.syntax.tokens import Source

if TYPE_CHECKING:
    from omnigraph.schema.identity import IdentityWarning
    from omnigraph.schema.steps import Severity


@dataclass(frozen=True, slots=True)
class CompiledSchema:
    """An admitted schema text, with its identity and its catalog."""

    source: str
    """The text that will be persisted."""
    ir: SchemaIR
    catalog: Catalog
    warnings: tuple[IdentityWarning, ...]


def compile_schema(
    origin: str | bytes | Path | Source,
    *,
    accepted: SchemaIR | None = None,
    domain: str = OFFLINE_DOMAIN,
) -> CompiledSchema:
    """Compile a schema text, its bytes, or the file at a path.

    With ``accepted``, declarations that still exist keep their ids. Without it the text describes a
    new graph: every id is new, and belongs to ``domain``. Without both, for example in a linter,
    the result cannot be persisted.

    Raises `SchemaParseError`, `CatalogError` or `IdentityError`, with the position of the cause.

    >>> compiled = compile_schema("node City { pop: U32? }")
    >>> str(compiled.catalog.nodes["City"].properties["pop"].type)
    'U32?'
    """
    from omnigraph.schema.identity import initialize, resolve

    admitted = admit(parse_schema(origin))
    resolution = initialize(admitted, domain) if accepted is None else resolve(admitted, accepted)
    return CompiledSchema(
        admitted.source.text, resolution.ir, project(resolution.ir), resolution.warnings
    )


# --- catalog --------------------------------------------------------------------------------------


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
    properties = _properties(ir, "edge", shape)
    return EdgeType(
        name=shape.name,
        type_id=ir.ids.types["edge", shape.name],
        incarnation_id=ir.ids.incarnations["edge", shape.name],
        source=shape.source,
        target=shape.target,
        properties=properties,
        cardinality=shape.cardinality,
        end_types=MappingProxyType(
            {
                column: _prefixes(ir, name)
                for column, name in (("src", shape.source), ("dst", shape.target))
                if end_kind(ir.ids.types, name) == "interface"
            }
        ),
        key_columns=_edge_key(shape, properties),
        unique=_groups(shape.constraints, "unique"),
        indexes=_groups(shape.constraints, "index"),
        description=_text(shape.annotations, "description"),
        instruction=_text(shape.annotations, "instruction"),
        annotations=_opaque(shape.annotations),
    )


def _prefixes(ir: SchemaIR, interface: str) -> Mapping[str, str]:
    """The node types that implement an interface, and the prefixes of references to their nodes."""
    return MappingProxyType(
        {
            node.name: reference_prefix(ir.ids.types["node", node.name])
            for node in ir.shape.nodes
            if interface in node.implements
        }
    )


def _edge_key(shape: EdgeShape, properties: Mapping[str, Property]) -> tuple[str, ...]:
    columns = next(iter(_groups(shape.constraints, "key")), ())
    if not columns:
        return ()
    members = sorted(set(columns) - set(EDGE_ENDS), key=lambda name: properties[name].property_id)
    return (*EDGE_ENDS, *members)


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


# --- linter ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SchemaFinding:
    """One problem of a schema text, ready to be printed or sent."""

    error: CompileError
    severity: Severity = "error"

    @property
    def line(self) -> int:
        """The line of its position, from 1."""
        return self.error.position.line if self.error.position is not None else 1

    def to_json(self) -> dict[str, Any]:
        """`severity`, `code`, `message`, and `hint` and `position` if there are any."""
        form = {
            "severity": self.severity,
            "code": self.error.code,
            "message": self.error.message,
        } | self.error.wire_detail()
        return form | ({"hint": self.error.hint} if self.error.hint else {})


def lint_schema(origin: str | bytes | Path | Source) -> tuple[SchemaFinding, ...]:
    """All problems of a schema text, in source order; empty if it is admissible.

    A text with a syntax error has one finding, where parsing stopped.

    >>> [finding.line for finding in lint_schema("node A { a: Vector(0) }\\nedge E: A -> B")]
    [1, 2]
    """
    try:
        problems = find_problems(parse_schema(origin))
    except CompileError as stopped:
        problems = [stopped]
    return tuple(map(SchemaFinding, problems))
