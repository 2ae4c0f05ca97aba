"""First half of admission: names, types, and the properties a type has with its interfaces.

Problems are collected in a `Report` instead of raised, so that the first problem in the text is
reported first and a linter can show all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from omnigraph.errors import CatalogError, CompileError, IdentityError, SchemaParseError
from omnigraph.model.types import VECTOR_DIMENSION_MAX, VIRTUAL_COLUMNS, Scalar, ValueType
from omnigraph.schema.catalog import Annotation, Cardinality, annotation_key
from omnigraph.syntax import schema_ast as ast
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.syntax.tokens import Source, Span

# --- problems -------------------------------------------------------------------------------------


PROBLEMS_MAX = 100
"""Maximum number of problems that are reported for one text."""

HINTS_SEARCHED_MAX = 20
"""How many of the reported problems may search for their hint."""

Hint = str | Callable[[], str | None] | None
"""A hint, or a function that searches for one. Comparing names is slow, so only the first of the
reported problems search."""


class _Problem(NamedTuple):
    kind: type[CompileError]
    message: str
    span: Span
    hint: Hint


class Report:
    """The problems found so far in one schema text."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._problems: list[_Problem] = []

    def reject(self, message: str, span: Span, *, hint: Hint = None) -> None:
        """Record that a declaration breaks a rule (`SchemaParseError`)."""
        self._problems.append(_Problem(SchemaParseError, message, span, hint))

    def mismatch(self, message: str, span: Span, *, hint: Hint = None) -> None:
        """Record that declarations do not fit together (`CatalogError`)."""
        self._problems.append(_Problem(CatalogError, message, span, hint))

    def unresolved(self, message: str, span: Span, *, hint: Hint = None) -> None:
        """Record that a rename hint does not fit the accepted schema (`IdentityError`)."""
        self._problems.append(_Problem(IdentityError, message, span, hint))

    def raise_first(self) -> None:
        """Raise the first problem in source order, if there is one."""
        if self._problems:
            raise self.errors(limit=1)[0]

    def errors(self, limit: int = PROBLEMS_MAX) -> list[CompileError]:
        """The problems as errors, in source order, at most ``limit`` of them."""
        in_order = sorted(self._problems, key=lambda problem: problem.span.start)
        return [
            self._error(problem, searches=at < HINTS_SEARCHED_MAX)
            for at, problem in enumerate(in_order[:limit])
        ]

    def line_of(self, span: Span) -> int:
        """The line on which a span starts, for hints."""
        return self.source.position(span).line

    def _error(self, problem: _Problem, *, searches: bool) -> CompileError:
        hint = problem.hint
        if callable(hint):
            hint = hint() if searches else None
        return self.source.error(problem.kind, problem.message, problem.span, hint=hint)


# --- names ----------------------------------------------------------------------------------------


STRUCTURAL_COLUMNS = frozenset({"id"})
EDGE_STRUCTURAL_COLUMNS = STRUCTURAL_COLUMNS | {"src", "dst", "from", "to"}
END_TYPE_NAMES = frozenset({"src_type", "dst_type", "from_type", "to_type"})
"""Reserved on edges with an interface at an end."""

D = TypeVar("D", ast.InterfaceDecl, ast.NodeDecl, ast.EdgeDecl)


def check_names(document: ast.SchemaDocument, report: Report) -> None:
    """Check every name of a schema, alone and against the others."""
    _check_unique("interface:", document.interfaces, report)
    _check_unique("node type:", document.nodes, report)
    _check_unique("edge type:", document.edges, report)
    _check_folded_edges(document, report)
    for declaration in document.declarations:
        is_edge = isinstance(declaration, ast.EdgeDecl)
        _check_properties(declaration.name.text, declaration.properties, report, is_edge=is_edge)
    _check_endpoints(document, report)


def first_of_each(declarations: Sequence[D]) -> dict[str, D]:
    """Declarations by name; the first of repeated names, since the others were reported."""
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


def _check_folded_edges(document: ast.SchemaDocument, report: Report) -> None:
    """Edge types are also found ignoring case, so names may not differ in case alone."""
    first: dict[str, ast.Name] = {}
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
    owner: str, properties: Sequence[ast.PropertyDecl], report: Report, *, is_edge: bool
) -> None:
    structural = EDGE_STRUCTURAL_COLUMNS if is_edge else STRUCTURAL_COLUMNS
    first: dict[str, ast.Name] = {}
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


def _check_endpoints(document: ast.SchemaDocument, report: Report) -> None:
    nodes = first_of_each(document.nodes)
    interfaces = first_of_each(document.interfaces)
    for edge in document.edges:
        for end, name in (("source", edge.source), ("target", edge.target)):
            if name.text in nodes:
                continue
            if name.text in interfaces:
                _check_interface_end(edge, report)
                continue
            report.mismatch(
                f"edge {edge.name.text} references unknown {end} type: {name.text}",
                name.span,
                hint=partial(did_you_mean, name.text, [*nodes, *interfaces]),
            )


def _check_interface_end(edge: ast.EdgeDecl, report: Report) -> None:
    """Records of such an edge may have members with these names, so no property may."""
    for declaration in edge.properties:
        if declaration.name.text in END_TYPE_NAMES:
            report.mismatch(
                f"property name '{declaration.name.text}' of {edge.name.text} is reserved: "
                "it names the type at an end that is an interface",
                declaration.name.span,
                hint="choose another name for this property",
            )


def _declared(original: ast.Name, report: Report) -> Hint:
    return lambda: f"`{original.text}` is first declared on line {report.line_of(original.span)}"


# --- types ----------------------------------------------------------------------------------------


CARDINALITY_MAX = 2**32 - 1
"""Largest bound of a `@card`."""


def resolve_type(expr: ast.TypeExpr, report: Report) -> ValueType:
    """The type of an expression; enum values are sorted.

    An invalid type is reported and still returned, so that later checks can continue.
    """
    if expr.is_list and expr.scalar is Scalar.BLOB:
        report.reject(
            "list of Blob is not supported",
            expr.span,
            hint="use one `Blob` property, or a node type of its own linked by an edge",
        )
    if expr.enum_values is not None:
        seen: set[str] = set()
        for value in expr.enum_values:
            if value.text in seen:
                report.reject(
                    f"enum type cannot include duplicate values: '{value.text}'", value.span
                )
            seen.add(value.text)
        return ValueType(Scalar.STRING, nullable=expr.nullable, enum_values=tuple(sorted(seen)))
    return ValueType(
        expr.scalar,
        nullable=expr.nullable,
        is_list=expr.is_list,
        vector_dim=_dimension(expr.dimension, report) if expr.dimension is not None else None,
    )


def _dimension(number: ast.NumberExpr, report: Report) -> int:
    dimension = int(number.value)
    if dimension == 0:
        report.reject("Vector dimension must be greater than zero", number.span)
    elif dimension > VECTOR_DIMENSION_MAX:
        report.reject(
            f"Vector dimension {dimension} exceeds maximum supported {VECTOR_DIMENSION_MAX}",
            number.span,
        )
    return dimension


def resolve_cardinality(decl: ast.CardinalityDecl | None, report: Report) -> Cardinality:
    """The bounds of an edge type; `0..` if none are written."""
    if decl is None:
        return Cardinality()
    minimum = int(decl.minimum.value)
    maximum = int(decl.maximum.value) if decl.maximum is not None else None
    if minimum > CARDINALITY_MAX:
        report.reject(f"invalid cardinality min: {minimum}", decl.minimum.span)
    elif decl.maximum is not None and maximum is not None:
        if maximum > CARDINALITY_MAX:
            report.reject(
                f"invalid cardinality max: {maximum}",
                decl.maximum.span,
                hint=f"leave it out for no upper bound: `@card({minimum}..)`",
            )
        elif minimum > maximum:
            report.reject(f"cardinality min ({minimum}) exceeds max ({maximum})", decl.minimum.span)
    return Cardinality(minimum, maximum)


# --- effective properties -------------------------------------------------------------------------


class EffectiveProperty(NamedTuple):
    """A property of a type, with the declaration whose annotations apply."""

    name: str
    type: ValueType
    declaration: ast.PropertyDecl
    is_direct: bool = True
    """Whether the type declares it itself; otherwise an interface does."""
    satisfies: tuple[str, ...] = ()
    """The implemented interfaces that declare this property, by name."""


Properties = Mapping[str, EffectiveProperty]
"""Properties by name, in byte order of name."""


class EffectiveInterface(NamedTuple):
    """An interface with its resolved properties."""

    declaration: ast.InterfaceDecl
    properties: Properties


class EffectiveNode(NamedTuple):
    """A node type with all its properties."""

    declaration: ast.NodeDecl
    properties: Properties
    implements: tuple[str, ...]
    is_complete: bool
    """False if an interface is unknown, so that properties may be missing."""


class EffectiveEdge(NamedTuple):
    """An edge type with its resolved properties."""

    declaration: ast.EdgeDecl
    properties: Properties
    cardinality: Cardinality


EffectiveType = EffectiveInterface | EffectiveNode | EffectiveEdge


class EffectiveSchema(NamedTuple):
    """Every type of a schema after expansion, by name and in byte order of name."""

    interfaces: Mapping[str, EffectiveInterface]
    nodes: Mapping[str, EffectiveNode]
    edges: Mapping[str, EffectiveEdge]


def expand(document: ast.SchemaDocument, report: Report) -> EffectiveSchema:
    """Resolve every property type and add the properties of interfaces to node types."""
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


def as_annotation(expr: ast.AnnotationExpr) -> Annotation:
    """An annotation without its position; its options are sorted by name."""
    return Annotation(
        expr.name.text,
        expr.value.value if expr.value is not None else None,
        tuple(sorted((option.name.text, option.value.value) for option in expr.options)),
    )


def _declared_properties(
    declaration: ast.InterfaceDecl | ast.NodeDecl | ast.EdgeDecl, report: Report
) -> Properties:
    found: dict[str, EffectiveProperty] = {}
    for decl in declaration.properties:
        name = decl.name.text
        resolved = EffectiveProperty(name, resolve_type(decl.type, report), decl)
        found.setdefault(name, resolved)
    return dict(sorted(found.items()))


def _expand_node(
    declaration: ast.NodeDecl, interfaces: Mapping[str, EffectiveInterface], report: Report
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
    node: ast.NodeDecl,
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
    node: ast.NodeDecl, earlier: EffectiveProperty, contract: EffectiveProperty, report: Report
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
