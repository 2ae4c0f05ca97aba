"""The tokens of a `.pg` text, and the small readings every part of its grammar shares."""

from __future__ import annotations

import math
from typing import NoReturn

from omnigraph.errors import SchemaParseError
from omnigraph.schema.ast import LiteralExpr, Name, NumberExpr
from omnigraph.syntax.source import Source, Span
from omnigraph.syntax.tokens import Lexer, TokenKind, TokenStream

NUMBER_CHARACTERS_MAX = 400
"""Longest number a text may hold; Python refuses to convert much longer ones."""
INTEGER_MIN, INTEGER_MAX = -(2**63), 2**64 - 1
"""Range of integer literals: whatever some integer type can hold."""
NO_BOUND_HINT = "`*` is not a bound: leave it out, as in `1..`"

# `*` is no part of the language; it is a token so that `1..*` gets a useful message.
_PUNCTUATION = ["{", "}", "(", ")", "[", "]", ",", ":", "->", "@", "?", "..", "=", "-", "*"]
_LEXER = Lexer(_PUNCTUATION, SchemaParseError)


class SchemaStream(TokenStream):
    """A cursor over one `.pg` text."""

    def __init__(self, source: Source) -> None:
        super().__init__(source, _LEXER, SchemaParseError)

    def reject(self, message: str, *, at: Span | None = None, hint: str | None = None) -> NoReturn:
        """Fail at a place, or at the token that is here."""
        self.fail(message, at or self.current.span, hint=hint)

    def literal(self, *, signed: bool = False) -> LiteralExpr | None:
        """A string, number or truth value, if one is here."""
        token = self.current
        if token.kind is TokenKind.STRING:
            self.advance()
            return LiteralExpr(self.string_value(token), token.text, token.span)
        if self.at_word("true", "false"):
            self.advance()
            return LiteralExpr(token.text == "true", token.text, token.span)
        if signed or not self.at_punct("-"):
            number = self.number()
            if number is not None:
                return LiteralExpr(number.value, number.text, number.span)
        return None

    def number(self) -> NumberExpr | None:
        """An integer or float with an optional sign directly before it, if one is here."""
        sign = self.current
        negative = self.at_punct("-")
        digits = self.peek() if negative else sign
        if digits.kind not in (TokenKind.INT, TokenKind.FLOAT):
            return None
        if negative and digits.start != sign.end:
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

    def integer(self, what: str) -> NumberExpr:
        """A whole number without a sign; ``what`` says what it is, should it be missing."""
        if not self.at_kind(TokenKind.INT):
            self.unexpected(what, hint=NO_BOUND_HINT if self.at_punct("*") else None)
        token = self.advance()
        return self._converted(token.text, token.kind, token.span)

    def _converted(self, text: str, kind: TokenKind, span: Span) -> NumberExpr:
        if len(text) > NUMBER_CHARACTERS_MAX:
            self.reject(f"a number has more than {NUMBER_CHARACTERS_MAX} characters", at=span)
        value: int | float = int(text) if kind is TokenKind.INT else float(text)
        if not math.isfinite(value):
            self.reject(f"number {_shortened(text)} is out of range", at=span)
        return NumberExpr(value, text, span)

    def name(self) -> Name:
        """The word that is here."""
        token = self.advance()
        return Name(token.text, token.span)

    def type_name(self, where: str) -> Name:
        """The name of a type; ``where`` says at which place it is missing."""
        if self.at_kind(TokenKind.TYPE):
            return self.name()
        hint = None
        if self.at_kind(TokenKind.WORD):
            word = self.current.text.lstrip("_")
            hint = "type names start with an upper-case letter"
            hint += f", as in `{word[0].upper()}{word[1:40]}`" if word[:1].isalpha() else ""
        return self.unexpected(f"a type name {where}", hint=hint)


def _shortened(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"
