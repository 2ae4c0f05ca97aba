"""From `.pg` text to a `SchemaDocument`: recursive descent, one function per grammar rule.

The parser knows the grammar and nothing else. Where a text cannot be parsed it says what was
expected and, for the mistakes people make most, how to write it instead. This module reads
declarations and their bodies; `parse_type` and `parse_annotation` read what stands in them.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from omnigraph.errors import SchemaParseError
from omnigraph.schema.ast import (
    AnnotationExpr,
    CardinalityDecl,
    ConstraintDecl,
    EdgeDecl,
    InterfaceDecl,
    Name,
    NodeDecl,
    PropertyDecl,
    SchemaDocument,
)
from omnigraph.schema.parse_annotation import (
    at_constraint,
    parse_constraint,
    parse_property_annotation,
    parse_type_annotations,
)
from omnigraph.schema.parse_stream import SchemaStream
from omnigraph.schema.parse_type import parse_type
from omnigraph.syntax.source import Source, Span
from omnigraph.syntax.tokens import TokenKind


def parse_schema(origin: str | bytes | Path | Source) -> SchemaDocument:
    """Parse a schema text, its bytes, or the file at a path.

    Raises `SchemaParseError`, with a position, at the first place that does not follow the grammar.

    >>> [node.name.text for node in parse_schema("node A {} node B {}").nodes]
    ['A', 'B']
    """
    source = Source.of(origin, SchemaParseError)
    return _document(SchemaStream(source))


def _document(tokens: SchemaStream) -> SchemaDocument:
    declarations: list[InterfaceDecl | NodeDecl | EdgeDecl] = []
    while not tokens.at_kind(TokenKind.END):
        if tokens.at_word("interface"):
            declarations.append(_interface(tokens))
        elif tokens.at_word("node"):
            declarations.append(_node(tokens))
        elif tokens.at_word("edge"):
            declarations.append(_edge(tokens))
        else:
            _no_declaration(tokens)
    return SchemaDocument(tokens.source, tuple(declarations))


def _no_declaration(tokens: SchemaStream) -> NoReturn:
    if tokens.at_word("enum"):
        tokens.unexpected(
            "`interface`, `node` or `edge`",
            hint="there are no named enums; write `enum(a, b)` as the type of a property",
        )
    tokens.unexpected("`interface`, `node` or `edge`", words=("interface", "node", "edge"))


def _interface(tokens: SchemaStream) -> InterfaceDecl:
    start = tokens.advance().span
    name = tokens.type_name("after `interface`")
    if not tokens.at_punct("{"):
        tokens.unexpected(
            f"`{{` after `interface {name.text}`",
            hint="an interface has no annotations and implements nothing",
        )
    where = f"in interface {name.text}"
    properties: list[PropertyDecl] = []

    def item() -> None:
        if at_constraint(tokens):
            tokens.reject(
                f"expected a property {where}, found a constraint",
                hint="an interface has no body constraints; "
                "write `@key`, `@unique` or `@index` bare after a property",
            )
        properties.append(_property(tokens, where))

    end = tokens.block(item, where)
    return InterfaceDecl(name, tuple(properties), start.to(end))


def _node(tokens: SchemaStream) -> NodeDecl:
    start = tokens.advance().span
    name = tokens.type_name("after `node`")
    annotations = parse_type_annotations(tokens, "node", name)
    implements: list[Name] = []
    if tokens.take_word("implements"):
        implements.append(tokens.type_name("after `implements`"))
        while tokens.take_punct(","):
            implements.append(tokens.type_name("after `,`"))
        if tokens.at_punct("@"):
            tokens.unexpected("`{`", hint="annotations come before `implements`")
    if not tokens.at_punct("{"):
        header = "" if implements else " or `implements`"
        tokens.unexpected(f"`{{`{header} after `node {name.text}`", words=("implements",))
    properties, constraints, end = _body(tokens, f"in node {name.text}")
    return NodeDecl(name, annotations, tuple(implements), properties, constraints, start.to(end))


def _edge(tokens: SchemaStream) -> EdgeDecl:
    start = tokens.advance().span
    name = tokens.type_name("after `edge`")
    tokens.expect_punct(":", f"after `edge {name.text}`")
    source = tokens.type_name("as the source of the edge")
    tokens.expect_punct("->", "between source and target")
    target = tokens.type_name("as the target of the edge")
    end = target.span
    cardinality = None
    if tokens.at_punct("@") and tokens.peek().text == "card":
        cardinality = _cardinality(tokens)
        end = cardinality.span
    annotations = parse_type_annotations(tokens, "edge", name)
    end = annotations[-1].span if annotations else end
    properties: tuple[PropertyDecl, ...] = ()
    constraints: tuple[ConstraintDecl, ...] = ()
    if tokens.at_punct("{"):
        properties, constraints, end = _body(tokens, f"in edge {name.text}")
    return EdgeDecl(
        name, source, target, cardinality, annotations, properties, constraints, start.to(end)
    )


def _cardinality(tokens: SchemaStream) -> CardinalityDecl:
    start = tokens.advance().span
    tokens.advance()
    if not tokens.at_punct("("):
        tokens.unexpected("`(` after `@card`", hint="write `@card(0..1)` or `@card(1..)`")
    tokens.advance()
    minimum = tokens.integer("the smallest number of edges")
    tokens.expect_punct("..", "between the bounds of `@card`")
    maximum = None
    if not tokens.at_punct(")"):
        maximum = tokens.integer("the largest number of edges or `)`")
    end = tokens.expect_punct(")", "after the bounds of `@card`").span
    return CardinalityDecl(minimum, maximum, start.to(end))


def _body(
    tokens: SchemaStream, where: str
) -> tuple[tuple[PropertyDecl, ...], tuple[ConstraintDecl, ...], Span]:
    properties: list[PropertyDecl] = []
    constraints: list[ConstraintDecl] = []

    def item() -> None:
        if tokens.at_punct("@"):
            constraints.append(parse_constraint(tokens))
        else:
            properties.append(_property(tokens, where))

    end = tokens.block(item, where)
    return tuple(properties), tuple(constraints), end


def _property(tokens: SchemaStream, where: str) -> PropertyDecl:
    if not tokens.at_kind(TokenKind.WORD):
        hint = None
        if tokens.at_kind(TokenKind.TYPE):
            hint = "property names start with a lower-case letter or `_`"
        tokens.unexpected(f"a property or `}}` {where}", hint=hint)
    name = tokens.name()
    if not tokens.at_punct(":"):
        hint = None
        if name.text in ("interface", "node", "edge"):
            hint = f"a `}}` seems to be missing before this `{name.text}`"
        tokens.unexpected(f"`:` after property `{name.text}`", hint=hint)
    tokens.advance()
    type_expr = parse_type(tokens)
    annotations: list[AnnotationExpr] = []
    while tokens.at_punct("@") and not at_constraint(tokens):
        annotations.append(parse_property_annotation(tokens))
    end = annotations[-1].span if annotations else type_expr.span
    return PropertyDecl(name, type_expr, tuple(annotations), name.span.to(end))
