"""Constraints in the body of a type, and annotations of types and properties."""

from __future__ import annotations

from typing import Literal, NoReturn

from omnigraph.schema.ast import (
    COLUMNS_KINDS,
    AnnotationExpr,
    CheckDecl,
    ColumnsDecl,
    ColumnsKind,
    ConstraintDecl,
    LiteralExpr,
    Name,
    OptionExpr,
    RangeDecl,
)
from omnigraph.schema.parse_stream import NO_BOUND_HINT, SchemaStream
from omnigraph.syntax.source import Span
from omnigraph.syntax.tokens import Token, TokenKind

CONSTRAINT_NAMES = (*COLUMNS_KINDS, "range", "check")
"""Followed by `(`, these open a body constraint wherever they stand inside a body."""

_HEADER_CONSTRAINTS = {
    ("node", False): "is only supported on node properties or as body constraint",
    ("node", True): "is only supported as body constraint",
    ("edge", False): "is not supported on edges",
    ("edge", True): "constraint is not supported on edges",
}
"""What is said about a constraint in the header of a type; `True` for `@range` and `@check`."""

_MISSING_VALUE = {
    "embed": "requires a source property name",
    "rename_from": "requires exactly one non-empty positional value",
    "description": "requires a non-empty value",
    "instruction": "requires a non-empty value",
    "default": "requires a literal value",
}
"""What the annotations with a meaning say when their parentheses hold no positional value."""


def at_constraint(tokens: SchemaStream) -> bool:
    """At `@key(` and the like: a body constraint, even on the line of a property."""
    word, opening = tokens.peek(1), tokens.peek(2)
    return (
        tokens.at_punct("@")
        and word.text in CONSTRAINT_NAMES
        and opening.kind is TokenKind.PUNCT
        and opening.text == "("
    )


def parse_constraint(tokens: SchemaStream) -> ConstraintDecl:
    """A constraint of a body, from its `@` on."""
    start = tokens.advance().span
    name = tokens.current
    if name.text not in CONSTRAINT_NAMES:
        tokens.unexpected(
            "a constraint: `@key`, `@unique`, `@index`, `@range` or `@check`",
            hint="annotations of a property follow its type; those of a node or edge "
            "stand before its `{`",
        )
    tokens.advance()
    opening = tokens.take_punct("(")
    if name.text == "range":
        return _range(tokens, start, opening)
    if name.text == "check":
        return _check(tokens, start, opening)
    kind = next(kind for kind in COLUMNS_KINDS if kind == name.text)
    return _columns(tokens, kind, start, opening)


def _columns(
    tokens: SchemaStream, kind: ColumnsKind, start: Span, opening: Token | None
) -> ColumnsDecl:
    columns: list[Name] = []
    more = opening is not None
    while more and tokens.at_kind(TokenKind.WORD):
        columns.append(tokens.name())
        more = tokens.take_punct(",") is not None
    if more or opening is None:
        tokens.reject(
            f"expected property name in constraint @{kind}, found {tokens.current.describe()}",
            hint=f"write `@{kind}(first, second)`",
        )
    end = tokens.expect_punct(")", f"after the columns of `@{kind}`").span
    return ColumnsDecl(kind, tuple(columns), start.to(end))


def _range(tokens: SchemaStream, start: Span, opening: Token | None) -> RangeDecl:
    minimum = maximum = None
    named = opening is not None and tokens.at_kind(TokenKind.WORD)
    name = tokens.name() if named else None
    if name is not None and tokens.take_punct(","):
        minimum = tokens.number()
        if minimum is not None or tokens.at_punct(".."):
            tokens.expect_punct("..", "after the lower bound of `@range`")
            maximum = tokens.number()
    if name is None or (minimum is None and maximum is None):
        tokens.reject(
            f"@range requires property name and bounds, found {tokens.current.describe()}",
            hint="write `@range(age, 0..150)`, `@range(age, 0..)` or `@range(age, ..150)`",
        )
    if tokens.at_punct("*"):
        tokens.unexpected("a number or `)`", hint=NO_BOUND_HINT)
    end = tokens.expect_punct(")", "after the bounds of `@range`").span
    return RangeDecl(name, minimum, maximum, start.to(end))


def _check(tokens: SchemaStream, start: Span, opening: Token | None) -> CheckDecl:
    pattern = None
    named = opening is not None and tokens.at_kind(TokenKind.WORD)
    name = tokens.name() if named else None
    if name is not None and tokens.take_punct(",") and tokens.at_kind(TokenKind.STRING):
        pattern = tokens.literal()
    if name is None or pattern is None:
        tokens.reject(
            f"@check requires property name and pattern, found {tokens.current.describe()}",
            hint='write `@check(code, "^[A-Z]+$")`',
        )
    end = tokens.expect_punct(")", "after the pattern of `@check`").span
    return CheckDecl(name, pattern, start.to(end))


def parse_type_annotations(
    tokens: SchemaStream, kind: Literal["node", "edge"], owner: Name
) -> tuple[AnnotationExpr, ...]:
    """Annotations in the header of a node or edge; constraints do not belong there."""
    found: list[AnnotationExpr] = []
    while tokens.at_punct("@"):
        word = tokens.peek()
        span = tokens.current.span.to(word.span)
        if word.text in (*CONSTRAINT_NAMES, "embed"):
            place = _HEADER_CONSTRAINTS[kind, word.text in ("range", "check")]
            tokens.reject(f"@{word.text} {place} ({kind} {owner.text})", at=span)
        if word.text == "card":
            _misplaced_card(tokens, span)
        found.append(_annotation(tokens))
    return tuple(found)


def parse_property_annotation(tokens: SchemaStream) -> AnnotationExpr:
    """An annotation behind the type of a property, from its `@` on."""
    word = tokens.peek()
    span = tokens.current.span.to(word.span)
    if word.text == "range":
        tokens.reject(
            "@range requires property name and bounds",
            at=span,
            hint="write it as a constraint of the body: `@range(age, 0..150)`",
        )
    if word.text == "check":
        tokens.reject(
            "@check requires property name and pattern",
            at=span,
            hint='write it as a constraint of the body: `@check(code, "^[A-Z]+$")`',
        )
    if word.text == "card":
        _misplaced_card(tokens, span)
    return _annotation(tokens)


def _misplaced_card(tokens: SchemaStream, span: Span) -> NoReturn:
    tokens.reject(
        "@card is only supported on edges, directly after the target type",
        at=span,
        hint="write `edge Owns: Person -> Car @card(0..4)`",
    )


def _annotation(tokens: SchemaStream) -> AnnotationExpr:
    at = tokens.advance().span
    word = tokens.expect_kind(TokenKind.WORD, "the name of an annotation", "after `@`")
    name = Name(word.text, at.to(word.span))
    if not tokens.take_punct("("):
        return AnnotationExpr(name, None, (), name.span)
    value = _annotation_value(tokens, name)
    options: dict[str, OptionExpr] = {}
    while tokens.take_punct(","):
        option = _option(tokens, name)
        if option.name.text in options:
            tokens.reject(
                f"@{name.text} repeats the option '{option.name.text}'", at=option.name.span
            )
        options[option.name.text] = option
    end = tokens.expect_punct(")", f"after the arguments of `@{name.text}`").span
    return AnnotationExpr(name, value, tuple(options.values()), name.span.to(end))


def _annotation_value(tokens: SchemaStream, annotation: Name) -> LiteralExpr:
    """The positional argument: a literal or an identifier."""
    missing = tokens.at_punct(")") or (tokens.at_kind(TokenKind.WORD) and tokens.peek().text == "=")
    if missing and annotation.text in _MISSING_VALUE:
        tokens.reject(f"@{annotation.text} {_MISSING_VALUE[annotation.text]}")
    literal = tokens.literal(signed=annotation.text == "default")
    if literal is not None:
        return literal
    if tokens.at_kind(TokenKind.WORD):
        word = tokens.advance()
        return LiteralExpr(word.text, word.text, word.span, is_identifier=True)
    hint = None
    if tokens.at_kind(TokenKind.TYPE):
        hint = f'write it as a string: `"{tokens.current.text}"`'
    return tokens.unexpected(f"a value for `@{annotation.text}`", hint=hint)


def _option(tokens: SchemaStream, annotation: Name) -> OptionExpr:
    what = f"an option of `@{annotation.text}`, as in `name=value`"
    word = tokens.expect_kind(TokenKind.WORD, what)
    name = Name(word.text, word.span)
    tokens.expect_punct("=", f"after option `{name.text}`")
    value = tokens.literal()
    if value is None:
        tokens.unexpected(f"a literal as the value of option `{name.text}`")
    return OptionExpr(name, value)
