"""The tokens of a `.gq` text, and the small readings every part of its grammar shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from omnigraph.errors import QueryParseError
from omnigraph.query import ast
from omnigraph.syntax.source import Source, Span
from omnigraph.syntax.tokens import Lexer, Token, TokenKind, TokenStream

T = TypeVar("T")

I64_MAX = 2**63 - 1
U32_MAX = 2**32 - 1
U64_MAX = 2**64 - 1

OPERATORS_MAX = 100
"""Most arithmetic operators in one expression. Each may deepen its tree by one level, which the
recursive passes over that tree must survive; nesting is limited for the same reason."""

_PUNCTUATION = ["{", "}", "(", ")", "[", "]", ":", ",", ".", "@", "?"]
_OPERATORS = ["=", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/"]

FOREIGN_OPERATORS = {
    "==": "equality is written with a single `=`",
    "<>": "inequality is written `!=`",
    "->": "a hop is written `$a knows $b`, without an arrow",
}
"""Operators of other languages. No text of ours can contain them, so they are tokens of their own,
which lets the parser name the mistake."""

_LEXER = Lexer(
    _PUNCTUATION + _OPERATORS + list(FOREIGN_OPERATORS),
    QueryParseError,
    hints={
        "!": "inequality is written `!=`, negation `not { … }`",
        "&": "the clauses of a match all have to hold: write them one after another",
        "|": "write alternatives as the clauses of `any { … }`",
        "~": "texts are matched with `contains`, `starts_with` or `match_text(…)`",
    },
)


class QueryStream(TokenStream):
    """A cursor over one `.gq` text."""

    def __init__(self, source: Source) -> None:
        super().__init__(source, _LEXER, QueryParseError)
        self.operators = 0
        """Arithmetic operators seen so far in the current expression."""

    # --- repetition ------------------------------------------------------------------------------

    def one_or_more(
        self, parse: Callable[[QueryStream], T], what: str, where: str
    ) -> tuple[T, ...]:
        """Parse `{ what … }`; an empty block is an error."""
        found: list[T] = []
        block = self.block(lambda: found.append(parse(self)), where)
        if not found:
            self.fail(f"expected {what} {where}, found '}}'", Span(block.end - 1, block.end))
        return tuple(found)

    def separated(
        self,
        parse: Callable[[QueryStream], T],
        closing: str,
        where: str,
        *,
        trailing_comma: bool = False,
    ) -> tuple[T, ...]:
        """Parse `item, item, …` up to and including ``closing``; possibly none."""
        found: list[T] = []
        if self.take_punct(closing):
            return ()
        while True:
            found.append(parse(self))
            comma = self.take_punct(",")
            if (not comma or trailing_comma) and self.take_punct(closing):
                return tuple(found)
            if not comma:
                self.unexpected(f"`,` or `{closing}`", where, hint=self.foreign_hint())

    # --- tokens ----------------------------------------------------------------------------------

    def opens_block(self, *words: str) -> bool:
        """Whether the cursor stands on one of these words with `{` behind it."""
        return self.at_word(*words) and self.peek().text == "{"

    def variable(self, what: str = "a variable", where: str = "") -> ast.Variable:
        """Read `$name`."""
        token = self.current
        if token.kind is not TokenKind.VAR:
            name = f"write `${token.text}`" if token.kind is TokenKind.WORD else None
            self.unexpected(what, where, hint=name)
        self.advance()
        return ast.Variable(token.text, token.span)

    def name(self, what: str, where: str = "", *, hint: str | None = None) -> Token:
        """Read a lowercase identifier."""
        token = self.current
        if token.kind is not TokenKind.WORD:
            if token.kind is TokenKind.TYPE:
                hint = f"such names start with a lowercase letter: `{_lowered(token.text)}`"
            self.unexpected(what, where, hint=hint)
        return self.advance()

    def type_name(self, where: str) -> Token:
        """Read the name of a node or edge type."""
        if not self.at_kind(TokenKind.TYPE):
            word = self.at_kind(TokenKind.WORD)
            hint = "type names start with an uppercase letter" if word else None
            self.unexpected("a type name", where, hint=hint)
        return self.advance()

    def string(self, where: str) -> str:
        """Read a string and decode its escapes."""
        return self.string_value(self.expect_kind(TokenKind.STRING, "a string", where))

    def integer(self, maximum: int, where: str) -> int:
        """Read digits that stand for at most ``maximum``."""
        return self.integer_value(self.expect_kind(TokenKind.INT, "an integer", where), maximum)

    def integer_value(self, token: Token, maximum: int) -> int:
        """The value of an integer just stepped over."""
        self.end_number(token)
        digits = token.text.lstrip("0") or "0"
        # Counting first: converting a megabyte of digits is slow, and Python refuses it anyway.
        if len(digits) > len(str(maximum)) or int(digits) > maximum:
            self.fail(f"{token.describe()} is too large; the largest is {maximum}", token.span)
        return int(digits)

    def end_number(self, token: Token) -> None:
        """Refuse a word that touches the number in front of it, such as `1e3`."""
        after = self.current
        if after.start == token.end and after.kind in (TokenKind.WORD, TokenKind.TYPE):
            hint = None
            if after.text[0] in "eE":
                hint = "numbers have no exponent: write all digits"
            elif after.text[0] == "_":
                hint = "digits are written without separators"
            number = Token(TokenKind.INT, token.text + after.text, token.start, after.end)
            self.fail(f"{number.describe()} is not a number", number.span, hint=hint)

    # --- errors ----------------------------------------------------------------------------------

    def foreign_hint(self) -> str | None:
        """Advice when the cursor stands on an operator of another language."""
        return FOREIGN_OPERATORS.get(self.current.text)


def _lowered(name: str) -> str:
    """The name as it is written where only lowercase ones are allowed."""
    return name.lower() if name.isupper() else name[0].lower() + name[1:]
