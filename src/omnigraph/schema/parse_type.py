"""The types of properties: scalars, lists, vectors and enums."""

from __future__ import annotations

import re

from omnigraph.model.types import SCALAR_NAMES, Scalar
from omnigraph.schema.ast import Name, TypeExpr
from omnigraph.schema.parse_stream import SchemaStream
from omnigraph.syntax.tokens import TokenKind

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


def parse_type(tokens: SchemaStream) -> TypeExpr:
    """The type of a property, with the `?` behind it."""
    start = tokens.current.span
    if tokens.at_punct("["):
        found = _list_type(tokens)
    elif tokens.at_word("enum"):
        found = _enum_type(tokens)
    elif tokens.current.text == Scalar.VECTOR:
        found = _vector_type(tokens)
    else:
        found = TypeExpr(_scalar(tokens, "a type"), start)
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


def _list_type(tokens: SchemaStream) -> TypeExpr:
    start = tokens.advance().span
    if tokens.at_punct("[") or tokens.at_word("enum") or tokens.current.text == Scalar.VECTOR:
        tokens.unexpected(
            "a scalar type as the item of a list",
            hint="there are no lists of lists, enums or vectors",
        )
    scalar = _scalar(tokens, "a scalar type as the item of a list")
    if tokens.at_punct("?"):
        tokens.unexpected("`]`", hint=f"items are never null; a list that may be is `[{scalar}]?`")
    end = tokens.expect_punct("]", "after the item type").span
    return TypeExpr(scalar, start.to(end), is_list=True)


def _vector_type(tokens: SchemaStream) -> TypeExpr:
    start = tokens.advance().span
    tokens.expect_punct("(", "after `Vector`")
    dimension = tokens.integer("the dimension of the vector")
    end = tokens.expect_punct(")", "after the dimension").span
    return TypeExpr(Scalar.VECTOR, start.to(end), dimension=dimension)


def _enum_type(tokens: SchemaStream) -> TypeExpr:
    start = tokens.advance().span
    tokens.expect_punct("(", "after `enum`")
    values = [_enum_value(tokens)]
    while tokens.take_punct(","):
        values.append(_enum_value(tokens))
    end = tokens.expect_punct(")", "after the enum values").span
    return TypeExpr(Scalar.STRING, start.to(end), enum_values=tuple(values))


def _enum_value(tokens: SchemaStream) -> Name:
    found = tokens.rescan(_ENUM_VALUE)
    if found is None:
        hint = None
        if tokens.at_kind(TokenKind.STRING):
            hint = "enum values are written without quotes"
        tokens.unexpected("an enum value", hint=hint)
    return Name(found.text, found.span)
