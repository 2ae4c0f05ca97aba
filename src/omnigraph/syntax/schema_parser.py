"""From `.pg` text to a `SchemaDocument`: recursive descent, one function per grammar rule.

Checks the grammar and nothing else. Errors say what was expected and, for common mistakes, how to
write it instead.
"""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Literal, NoReturn

from omnigraph.errors import SchemaParseError
from omnigraph.model.types import SCALAR_NAMES, Scalar
from omnigraph.syntax import schema_ast as ast
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.syntax.tokens import Lexer, Source, Span, Token, TokenKind, TokenStream

# --- tokens ---------------------------------------------------------------------------------------


NUMBER_CHARACTERS_MAX = 400
"""Maximum length of a number; Python refuses to convert much longer ones."""
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1
"""Range of integer literals: that of all integer types together."""
NO_BOUND_HINT = "`*` is not a bound: leave it out, as in `1..`"

# `*` is not part of the language; it is a token so that `1..*` gets a useful message.
_PUNCTUATION = ["{", "}", "(", ")", "[", "]", ",", ":", "->", "@", "?", "..", "=", "-", "*"]
_LEXER = Lexer(_PUNCTUATION, SchemaParseError)


class SchemaStream(TokenStream):
    """A cursor over one `.pg` text."""

    def __init__(self, source: Source) -> None:
        super().__init__(source, _LEXER, SchemaParseError)

    def reject(self, message: str, *, at: Span | None = None, hint: str | None = None) -> NoReturn:
        """Fail at a span, or at the current token."""
        self.fail(message, at or self.current.span, hint=hint)

    def literal(self, *, signed: bool = False) -> ast.LiteralExpr | None:
        """The string, number or boolean at the cursor; None for other tokens."""
        token = self.current
        if token.kind is TokenKind.STRING:
            self.advance()
            return ast.LiteralExpr(self.string_value(token), token.text, token.span)
        if self.at_word("true", "false"):
            self.advance()
            return ast.LiteralExpr(token.text == "true", token.text, token.span)
        if signed or self.current.text != "-":
            number = self.number()
            if number is not None:
                return ast.LiteralExpr(number.value, number.text, number.span)
        return None

    def number(self) -> ast.NumberExpr | None:
        """The number at the cursor, with an optional sign directly before it; None if none."""
        sign = self.current
        negative = self.current.text == "-"
        digits = self.peek() if negative else sign
        if digits.kind not in (TokenKind.INT, TokenKind.FLOAT):
            return None
        if negative and digits.span.start != sign.span.end:
            return None
        if negative:
            self.advance()
        self.advance()
        text = f"-{digits.text}" if negative else digits.text
        number = self._converted(text, digits.kind, sign.span.to(digits.span))
        if digits.kind is TokenKind.INT and not INTEGER_MIN <= number.value <= INTEGER_MAX:
            self.reject(
                f"integer {_shortened(text)} is out of range",
                at=number.span,
                hint=f"integers go from {INTEGER_MIN} to {INTEGER_MAX}; "
                "a float is written with a point",
            )
        return number

    def integer(self, what: str) -> ast.NumberExpr:
        """A whole number without a sign; ``what`` names it in the error."""
        if self.current.kind is not TokenKind.INT:
            self.unexpected(what, hint=NO_BOUND_HINT if self.current.text == "*" else None)
        token = self.advance()
        return self._converted(token.text, token.kind, token.span)

    def _converted(self, text: str, kind: TokenKind, span: Span) -> ast.NumberExpr:
        if len(text) > NUMBER_CHARACTERS_MAX:
            self.reject(f"a number has more than {NUMBER_CHARACTERS_MAX} characters", at=span)
        value: int | float = int(text) if kind is TokenKind.INT else float(text)
        if not math.isfinite(value):
            self.reject(f"number {_shortened(text)} is out of range", at=span)
        return ast.NumberExpr(value, text, span)

    def name(self) -> ast.Name:
        """The word at the cursor."""
        token = self.advance()
        return ast.Name(token.text, token.span)

    def type_name(self, where: str) -> ast.Name:
        """The name of a type; ``where`` describes the place in the error."""
        if self.current.kind is TokenKind.TYPE:
            return self.name()
        hint = None
        if self.current.kind is TokenKind.WORD:
            word = self.current.text.lstrip("_")
            hint = "type names start with an upper-case letter"
            hint += f", as in `{word[0].upper()}{word[1:40]}`" if word[:1].isalpha() else ""
        return self.unexpected(f"a type name {where}", hint=hint)


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


# --- declarations ---------------------------------------------------------------------------------


def parse_schema(origin: str | bytes | Path | Source) -> ast.SchemaDocument:
    """Parse a schema text, its bytes, or the file at a path.

    Raises `SchemaParseError`, with a position, at the first place that does not follow the grammar.

    >>> [node.name.text for node in parse_schema("node A {} node B {}").nodes]
    ['A', 'B']
    """
    source = Source.of(origin, SchemaParseError)
    return _document(SchemaStream(source))


def _document(tokens: SchemaStream) -> ast.SchemaDocument:
    declarations: list[ast.InterfaceDecl | ast.NodeDecl | ast.EdgeDecl] = []
    while tokens.current.kind is not TokenKind.END:
        if tokens.at_word("interface"):
            declarations.append(_interface(tokens))
        elif tokens.at_word("node"):
            declarations.append(_node(tokens))
        elif tokens.at_word("edge"):
            declarations.append(_edge(tokens))
        else:
            _no_declaration(tokens)
    return ast.SchemaDocument(tokens.source, tuple(declarations))


def _no_declaration(tokens: SchemaStream) -> NoReturn:
    if tokens.at_word("enum"):
        tokens.unexpected(
            "`interface`, `node` or `edge`",
            hint="there are no named enums; write `enum(a, b)` as the type of a property",
        )
    words = ("interface", "node", "edge")
    hint = did_you_mean(tokens.current.text, words)
    example = "a schema holds types, such as `node Person { name: String @key }`"
    tokens.unexpected("`interface`, `node` or `edge`", hint=hint or example)


def _interface(tokens: SchemaStream) -> ast.InterfaceDecl:
    start = tokens.advance().span
    name = tokens.type_name("after `interface`")
    if tokens.current.text != "{":
        tokens.unexpected(
            f"`{{` after `interface {name.text}`",
            hint="an interface has no annotations and implements nothing",
        )
    where = f"in interface {name.text}"
    properties: list[ast.PropertyDecl] = []

    def item() -> None:
        if at_constraint(tokens):
            tokens.reject(
                f"expected a property {where}, found a constraint",
                hint="an interface has no body constraints; "
                "write `@key`, `@unique` or `@index` bare after a property",
            )
        properties.append(_property(tokens, where))

    end = tokens.block(item, where)
    return ast.InterfaceDecl(name, tuple(properties), start.to(end))


def _node(tokens: SchemaStream) -> ast.NodeDecl:
    start = tokens.advance().span
    name = tokens.type_name("after `node`")
    annotations = parse_type_annotations(tokens, "node", name)
    implements: list[ast.Name] = []
    if tokens.take_word("implements"):
        implements.append(tokens.type_name("after `implements`"))
        while tokens.take_punct(","):
            implements.append(tokens.type_name("after `,`"))
        if tokens.current.text == "@":
            tokens.unexpected("`{`", hint="annotations come before `implements`")
    if tokens.current.text != "{":
        header = "" if implements else " or `implements`"
        tokens.unexpected(f"`{{`{header} after `node {name.text}`", words=("implements",))
    properties, constraints, end = _body(tokens, f"in node {name.text}")
    return ast.NodeDecl(
        name, annotations, tuple(implements), properties, constraints, start.to(end)
    )


def _edge(tokens: SchemaStream) -> ast.EdgeDecl:
    start = tokens.advance().span
    name = tokens.type_name("after `edge`")
    tokens.expect_punct(":", f"after `edge {name.text}`")
    source = tokens.type_name("as the source of the edge")
    tokens.expect_punct("->", "between source and target")
    target = tokens.type_name("as the target of the edge")
    end = target.span
    cardinality = None
    if tokens.current.text == "@" and tokens.peek().text == "card":
        cardinality = _cardinality(tokens)
        end = cardinality.span
    annotations = parse_type_annotations(tokens, "edge", name)
    end = annotations[-1].span if annotations else end
    properties: tuple[ast.PropertyDecl, ...] = ()
    constraints: tuple[ast.ConstraintDecl, ...] = ()
    if tokens.current.text == "{":
        properties, constraints, end = _body(tokens, f"in edge {name.text}")
    return ast.EdgeDecl(
        name, source, target, cardinality, annotations, properties, constraints, start.to(end)
    )


def _cardinality(tokens: SchemaStream) -> ast.CardinalityDecl:
    start = tokens.advance().span
    tokens.advance()
    if tokens.current.text != "(":
        tokens.unexpected("`(` after `@card`", hint="write `@card(0..1)` or `@card(1..)`")
    tokens.advance()
    minimum = tokens.integer("the smallest number of edges")
    tokens.expect_punct("..", "between the bounds of `@card`")
    maximum = None
    if tokens.current.text != ")":
        maximum = tokens.integer("the largest number of edges or `)`")
    end = tokens.expect_punct(")", "after the bounds of `@card`").span
    return ast.CardinalityDecl(minimum, maximum, start.to(end))


def _body(
    tokens: SchemaStream, where: str
) -> tuple[tuple[ast.PropertyDecl, ...], tuple[ast.ConstraintDecl, ...], Span]:
    properties: list[ast.PropertyDecl] = []
    constraints: list[ast.ConstraintDecl] = []

    def item() -> None:
        if tokens.current.text == "@":
            constraints.append(parse_constraint(tokens))
        else:
            properties.append(_property(tokens, where))

    end = tokens.block(item, where)
    return tuple(properties), tuple(constraints), end


def _property(tokens: SchemaStream, where: str) -> ast.PropertyDecl:
    if tokens.current.kind is not TokenKind.WORD:
        hint = None
        if tokens.current.kind is TokenKind.TYPE:
            hint = "property names start with a lower-case letter or `_`"
        tokens.unexpected(f"a property or `}}` {where}", hint=hint)
    name, after = tokens.name(), tokens.current
    if after.text != ":":
        hint = None
        if name.text in ("interface", "node", "edge"):
            hint = f"a `}}` seems to be missing before this `{name.text}`"
        elif after.kind is TokenKind.TYPE:
            hint = f"write `{name.text}: {after.text}`"
        tokens.unexpected(f"`:` after property `{name.text}`", hint=hint)
    tokens.advance()
    type_expr = parse_type(tokens)
    annotations: list[ast.AnnotationExpr] = []
    while tokens.current.text == "@" and not at_constraint(tokens):
        annotations.append(parse_property_annotation(tokens))
    end = annotations[-1].span if annotations else type_expr.span
    return ast.PropertyDecl(name, type_expr, tuple(annotations), name.span.to(end))


# --- types ----------------------------------------------------------------------------------------


_ENUM_VALUE = re.compile(r"[A-Za-z0-9_-]+")

_TYPE_WORDS = (*SCALAR_NAMES, Scalar.VECTOR.value, "enum")
_FOREIGN_TYPE_HINTS = {
    "int": "use `I32`, `I64`, `U32` or `U64`",
    "integer": "use `I32`, `I64`, `U32` or `U64`",
    "long": "use `I64`",
    "float": "use `F32` or `F64`",
    "double": "use `F64`",
    "number": "use `F64`, or an integer type such as `I64`",
    "text": "use `String`",
    "boolean": "use `Bool`",
    "timestamp": "use `DateTime`",
    "bytes": "use `Blob`",
    "uuid": "use `String`",
}


def parse_type(tokens: SchemaStream) -> ast.TypeExpr:
    """The type of a property, with the `?` after it."""
    start = tokens.current.span
    if tokens.current.text == "[":
        found = _list_type(tokens)
    elif tokens.at_word("enum"):
        found = _enum_type(tokens)
    elif tokens.current.text == Scalar.VECTOR:
        found = _vector_type(tokens)
    else:
        found = ast.TypeExpr(_scalar(tokens, "a type"), start)
    question = tokens.take_punct("?")
    if question is None:
        return found
    return found._replace(nullable=True, span=start.to(question.span))


def _scalar(tokens: SchemaStream, expected: str) -> Scalar:
    word = tokens.current
    if word.kind is TokenKind.TYPE and word.text in SCALAR_NAMES:
        return Scalar(tokens.advance().text)
    foreign = _FOREIGN_TYPE_HINTS.get(word.text.lower())
    if foreign is not None:
        tokens.unexpected(expected, hint=foreign)
    return tokens.unexpected(expected, words=_TYPE_WORDS)


def _list_type(tokens: SchemaStream) -> ast.TypeExpr:
    start = tokens.advance().span
    if tokens.current.text == "[" or tokens.at_word("enum") or tokens.current.text == Scalar.VECTOR:
        tokens.unexpected(
            "a scalar type as the item of a list",
            hint="there are no lists of lists, enums or vectors",
        )
    scalar = _scalar(tokens, "a scalar type as the item of a list")
    if tokens.current.text == "?":
        tokens.unexpected("`]`", hint=f"items are never null; a list that may be is `[{scalar}]?`")
    end = tokens.expect_punct("]", "after the item type").span
    return ast.TypeExpr(scalar, start.to(end), is_list=True)


def _vector_type(tokens: SchemaStream) -> ast.TypeExpr:
    start = tokens.advance().span
    tokens.expect_punct("(", "after `Vector`")
    dimension = tokens.integer("the dimension of the vector")
    end = tokens.expect_punct(")", "after the dimension").span
    return ast.TypeExpr(Scalar.VECTOR, start.to(end), dimension=dimension)


def _enum_type(tokens: SchemaStream) -> ast.TypeExpr:
    start = tokens.advance().span
    tokens.expect_punct("(", "after `enum`")
    values = [_enum_value(tokens)]
    while tokens.take_punct(","):
        values.append(_enum_value(tokens))
    end = tokens.expect_punct(")", "after the enum values").span
    return ast.TypeExpr(Scalar.STRING, start.to(end), enum_values=tuple(values))


def _enum_value(tokens: SchemaStream) -> ast.Name:
    found = tokens.rescan(_ENUM_VALUE)
    if found is None:
        hint = None
        if tokens.current.kind is TokenKind.STRING:
            hint = "enum values are written without quotes"
        tokens.unexpected("an enum value", hint=hint)
    return ast.Name(found.text, found.span)


# --- constraints and annotations ------------------------------------------------------------------


CONSTRAINT_NAMES = (*ast.COLUMNS_KINDS, "range", "check")
"""Followed by `(`, these begin a constraint anywhere in a body."""

_HEADER_CONSTRAINTS = {
    ("node", False): "is only supported on node properties or as body constraint",
    ("node", True): "is only supported as body constraint",
    ("edge", False): "is not supported on edges",
    ("edge", True): "constraint is not supported on edges",
}
"""Messages for constraints in the header of a type; `True` for `@range` and `@check`."""

_MISSING_VALUE = {
    "embed": "requires a source property name",
    "rename_from": "requires exactly one non-empty positional value",
    "description": "requires a non-empty value",
    "instruction": "requires a non-empty value",
    "default": "requires a literal value",
}
"""Messages for annotations without a positional value."""


def at_constraint(tokens: SchemaStream) -> bool:
    """Whether a constraint such as `@key(` begins here, possibly on the line of a property."""
    word, opening = tokens.peek(1), tokens.peek(2)
    return (
        tokens.current.text == "@"
        and word.text in CONSTRAINT_NAMES
        and opening.kind is TokenKind.PUNCT
        and opening.text == "("
    )


def parse_constraint(tokens: SchemaStream) -> ast.ConstraintDecl:
    """A constraint in a body, from its `@` on."""
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
    kind = next(kind for kind in ast.COLUMNS_KINDS if kind == name.text)
    return _columns(tokens, kind, start, opening)


def _columns(
    tokens: SchemaStream, kind: ast.ColumnsKind, start: Span, opening: Token | None
) -> ast.ColumnsDecl:
    columns: list[ast.Name] = []
    more = opening is not None
    while more and tokens.current.kind is TokenKind.WORD:
        columns.append(tokens.name())
        more = tokens.take_punct(",") is not None
    if more or opening is None:
        tokens.reject(
            f"expected property name in constraint @{kind}, found {tokens.current.describe()}",
            hint=f"write `@{kind}(first, second)`",
        )
    end = tokens.expect_punct(")", f"after the columns of `@{kind}`").span
    return ast.ColumnsDecl(kind, tuple(columns), start.to(end))


def _range(tokens: SchemaStream, start: Span, opening: Token | None) -> ast.RangeDecl:
    minimum = maximum = None
    named = opening is not None and tokens.current.kind is TokenKind.WORD
    name = tokens.name() if named else None
    if name is not None and tokens.take_punct(","):
        minimum = tokens.number()
        if minimum is not None or tokens.current.text == "..":
            tokens.expect_punct("..", "after the lower bound of `@range`")
            maximum = tokens.number()
    if name is None or (minimum is None and maximum is None):
        tokens.reject(
            f"@range requires property name and bounds, found {tokens.current.describe()}",
            hint="write `@range(age, 0..150)`, `@range(age, 0..)` or `@range(age, ..150)`",
        )
    if tokens.current.text == "*":
        tokens.unexpected("a number or `)`", hint=NO_BOUND_HINT)
    end = tokens.expect_punct(")", "after the bounds of `@range`").span
    return ast.RangeDecl(name, minimum, maximum, start.to(end))


def _check(tokens: SchemaStream, start: Span, opening: Token | None) -> ast.CheckDecl:
    pattern = None
    named = opening is not None and tokens.current.kind is TokenKind.WORD
    name = tokens.name() if named else None
    if name is not None and tokens.take_punct(",") and tokens.current.kind is TokenKind.STRING:
        pattern = tokens.literal()
    if name is None or pattern is None:
        tokens.reject(
            f"@check requires property name and pattern, found {tokens.current.describe()}",
            hint='write `@check(code, "^[A-Z]+$")`',
        )
    end = tokens.expect_punct(")", "after the pattern of `@check`").span
    return ast.CheckDecl(name, pattern, start.to(end))


def parse_type_annotations(
    tokens: SchemaStream, kind: Literal["node", "edge"], owner: ast.Name
) -> tuple[ast.AnnotationExpr, ...]:
    """Annotations in the header of a node or edge; constraints are refused."""
    found: list[ast.AnnotationExpr] = []
    while tokens.current.text == "@":
        word = tokens.peek()
        span = tokens.current.span.to(word.span)
        if word.text in (*CONSTRAINT_NAMES, "embed"):
            place = _HEADER_CONSTRAINTS[kind, word.text in ("range", "check")]
            hint = (
                f"constraints of an edge stand in its body: `{{ @{word.text}(src, dst) }}`"
                if kind == "edge" and word.text in ast.COLUMNS_KINDS
                else None
            )
            tokens.reject(f"@{word.text} {place} ({kind} {owner.text})", at=span, hint=hint)
        if word.text == "card":
            _misplaced_card(tokens, span)
        found.append(_annotation(tokens))
    return tuple(found)


def parse_property_annotation(tokens: SchemaStream) -> ast.AnnotationExpr:
    """An annotation after the type of a property, from its `@` on."""
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


def _annotation(tokens: SchemaStream) -> ast.AnnotationExpr:
    at = tokens.advance().span
    word = tokens.expect_kind(TokenKind.WORD, "the name of an annotation", "after `@`")
    name = ast.Name(word.text, at.to(word.span))
    if not tokens.take_punct("("):
        return ast.AnnotationExpr(name, None, (), name.span)
    value = _annotation_value(tokens, name)
    options: dict[str, ast.OptionExpr] = {}
    while tokens.take_punct(","):
        option = _option(tokens, name)
        if option.name.text in options:
            tokens.reject(
                f"@{name.text} repeats the option '{option.name.text}'", at=option.name.span
            )
        options[option.name.text] = option
    end = tokens.expect_punct(")", f"after the arguments of `@{name.text}`").span
    return ast.AnnotationExpr(name, value, tuple(options.values()), name.span.to(end))


def _annotation_value(tokens: SchemaStream, annotation: ast.Name) -> ast.LiteralExpr:
    """The positional argument: a literal or an identifier."""
    missing = tokens.current.text == ")" or (
        tokens.current.kind is TokenKind.WORD and tokens.peek().text == "="
    )
    if missing and annotation.text in _MISSING_VALUE:
        tokens.reject(f"@{annotation.text} {_MISSING_VALUE[annotation.text]}")
    literal = tokens.literal(signed=annotation.text == "default")
    if literal is not None:
        return literal
    if tokens.current.kind is TokenKind.WORD:
        word = tokens.advance()
        return ast.LiteralExpr(word.text, word.text, word.span, is_identifier=True)
    hint = None
    if tokens.current.kind is TokenKind.TYPE:
        hint = f'write it as a string: `"{tokens.current.text}"`'
    return tokens.unexpected(f"a value for `@{annotation.text}`", hint=hint)


def _option(tokens: SchemaStream, annotation: ast.Name) -> ast.OptionExpr:
    what = f"an option of `@{annotation.text}`, as in `name=value`"
    word = tokens.expect_kind(TokenKind.WORD, what)
    name = ast.Name(word.text, word.span)
    tokens.expect_punct("=", f"after option `{name.text}`")
    value = tokens.literal()
    if value is None:
        tokens.unexpected(f"a literal as the value of option `{name.text}`")
    return ast.OptionExpr(name, value)
