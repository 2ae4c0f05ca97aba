"""Tokens, and the cursor of both parsers.

Both languages share words, numbers, strings and comments; they differ in punctuation. Words are not
classified as keywords here: keywords are contextual in both languages, so that the parser decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple, NoReturn

from omnigraph.errors import CompileError
from omnigraph.syntax.source import Source, Span
from omnigraph.syntax.suggest import did_you_mean

NESTING_MAX = 64
"""Deepest nesting of blocks, lists and parentheses a text may use."""

_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
# Possessive: an unterminated string fails in one pass, however long it is.
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'


class TokenKind(Enum):
    """The lexical kind of a token."""

    WORD = "word"
    """``[a-z_][A-Za-z0-9_]*``: a lowercase identifier or a keyword."""
    TYPE = "type name"
    """``[A-Z][A-Za-z0-9_]*``."""
    VAR = "variable"
    """``$name``; the text is the name without the dollar sign."""
    INT = "integer"
    FLOAT = "number"
    STRING = "string"
    """The text keeps its quotes and escapes; see `TokenStream.string_value`."""
    PUNCT = "punctuation"
    BAD = "unreadable text"
    """The first character no token starts with. The text behind it is not split any further."""
    END = "end of input"


class Token(NamedTuple):
    """One token: its kind, its text, and its position."""

    kind: TokenKind
    text: str
    start: int
    end: int

    @property
    def span(self) -> Span:
        """The characters this token covers."""
        return Span(self.start, self.end)

    def describe(self) -> str:
        """How error messages name this token."""
        if self.kind is TokenKind.END:
            return "the end of the input"
        shown = "$" + self.text if self.kind is TokenKind.VAR else self.text
        first_line, newline, _ = shown.partition("\n")
        if newline or len(first_line) > 40:
            first_line = first_line[:40] + "…"
        return f"'{first_line}'"


_CHARACTER_HINTS = {
    "'": 'strings are written in double quotes: "…"',
    "\u201c": 'strings are written in straight double quotes: "…"',
    "\u201d": 'strings are written in straight double quotes: "…"',
    "`": "names are written without quotes",
    "#": "comments start with `//`",
    ";": "nothing needs to be ended with a semicolon; leave it out",
}

# The groups of the lexer's pattern, by number; group 0 is the whole match.
_GROUPS = (
    TokenKind.END,
    TokenKind.WORD,
    TokenKind.PUNCT,
    TokenKind.VAR,
    TokenKind.TYPE,
    TokenKind.FLOAT,
    TokenKind.INT,
    TokenKind.STRING,
    TokenKind.END,
    TokenKind.BAD,
)
_VAR = 3
_END = 8


class Lexer:
    """Splits a text into tokens for one language, given its punctuation.

    ``hints`` adds advice for characters that are no token of this language.
    """

    def __init__(
        self,
        punctuation: list[str],
        error: type[CompileError],
        hints: Mapping[str, str] | None = None,
    ) -> None:
        longest_first = sorted(punctuation, key=len, reverse=True)
        self._error = error
        self._hints = {**_CHARACTER_HINTS, **(hints or {})}
        # One match per token: what separates tokens is skipped in front of it. Every position
        # matches, the last group at worst, so that the matches follow each other without gaps. A
        # comment that is never closed must not be read as punctuation. A digit run takes a fraction
        # only when a digit follows the point: `0..9` is an integer, two dots and an integer.
        self._pattern = re.compile(
            r"(?:[ \t\r\n]++|//[^\n]*+|/\*.*?\*/)*+"
            r"(?:([a-z_][A-Za-z0-9_]*+)"
            rf"|((?!/\*)(?:{'|'.join(map(re.escape, longest_first))}))"
            r"|\$([a-z_][A-Za-z0-9_]*+)"
            r"|([A-Z][A-Za-z0-9_]*+)"
            r"|([0-9]++\.[0-9]++)"
            r"|([0-9]++)"
            rf"|({_STRING})"
            r"|(\Z)"
            r"|(.))",
            re.DOTALL,
        )

    def tokens(self, source: Source) -> list[Token]:
        """All tokens of ``source``, ending with one END token.

        A character that starts no token becomes a BAD token in front of the END. The parser then
        reports the first problem in the text, which for a missing quote is much closer to the
        mistake.
        """
        found: list[Token] = []
        # `tuple.__new__` leaves out the Python-level constructor: a fifth of the time spent here.
        new = tuple.__new__
        for hit in self._pattern.finditer(source.text):
            group = hit.lastindex or _END
            start = hit.start(group)
            if group == _VAR:
                start -= 1  # the dollar sign is part of the span, not of the name
            found.append(new(Token, (_GROUPS[group], hit[group], start, hit.end())))
            if group >= _END:
                break
        if found[-1].kind is TokenKind.BAD:
            found.append(Token(TokenKind.END, "", len(source.text), len(source.text)))
        return found

    def bad_character(self, source: Source, at: int) -> CompileError:
        """The error for the BAD token at ``at``."""
        text = source.text
        hint: str | None
        if text[at] == '"':
            message, hint = "unterminated string", 'close it with `"`'
        elif text.startswith("/*", at):
            message, hint = "unterminated comment", "close it with `*/`"
        elif text[at] == "$":
            message = "expected a variable name after '$'"
            hint = "variables start with a lowercase letter or `_`"
        else:
            message, hint = f"unexpected character {text[at]!r}", self._hints.get(text[at])
        return source.error(self._error, message, Span(at, at + 1), hint=hint)


class TokenStream:
    """A cursor over the tokens of one source, with the error messages both parsers share."""

    def __init__(self, source: Source, lexer: Lexer, error: type[CompileError]) -> None:
        self.source = source
        self._lexer = lexer
        self._error = error
        self._tokens = lexer.tokens(source)
        self._at = 0
        self._depth = 0
        self.current = self._tokens[0]
        """The token under the cursor."""

    # --- looking ---------------------------------------------------------------------------------

    def peek(self, ahead: int = 1) -> Token:
        """The token ``ahead`` places further; END past the end."""
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def at_punct(self, text: str) -> bool:
        """Whether this punctuation is here."""
        # No other kind of token can have the text of a punctuation mark: strings keep their quotes.
        return self.current.text == text

    def at_word(self, *words: str) -> bool:
        """Whether one of these words is here."""
        token = self.current
        return token.text in words and token.kind is TokenKind.WORD

    def at_kind(self, kind: TokenKind) -> bool:
        """Whether a token of this kind is here."""
        return self.current.kind is kind

    # --- moving ----------------------------------------------------------------------------------

    def advance(self) -> Token:
        """Return the current token and step over it."""
        token = self.current
        if token.kind is not TokenKind.END:
            self._at += 1
            self.current = self._tokens[self._at]
        return token

    def span_from(self, start: int) -> Span:
        """The range from ``start`` to the end of the token last stepped over."""
        return Span(start, self._tokens[self._at - 1].end)

    def take_punct(self, text: str) -> Token | None:
        """Step over this punctuation if it is here."""
        return self.advance() if self.current.text == text else None

    def take_word(self, *words: str) -> Token | None:
        """Step over one of these words if it is here."""
        return self.advance() if self.at_word(*words) else None

    def expect_punct(self, text: str, where: str = "") -> Token:
        """Step over this punctuation or fail."""
        return self.take_punct(text) or self.unexpected(f"`{text}`", where)

    def expect_word(self, *words: str, where: str = "") -> Token:
        """Step over one of these words or fail, suggesting the nearest one."""
        return self.take_word(*words) or self.unexpected(
            " or ".join(f"`{w}`" for w in words), where, words
        )

    def expect_kind(self, kind: TokenKind, what: str, where: str = "") -> Token:
        """Step over a token of this kind or fail, calling it ``what``."""
        return self.advance() if self.at_kind(kind) else self.unexpected(what, where)

    def rescan(self, pattern: re.Pattern[str]) -> Token | None:
        """Read the text at the cursor with another pattern, for words only lexed in context.

        The cursor moves to the first token that starts at or after the end of the match. Returns
        ``None`` without moving when the pattern does not match here.
        """
        start = self.current.start
        hit = pattern.match(self.source.text, start)
        if hit is None or hit.end() == start:
            return None
        end = hit.end()
        while self.current.kind is not TokenKind.END and self.current.start < end:
            if self.current.end > end or self.current.kind is TokenKind.BAD:
                self.fail(f"unexpected character {self.source.text[end]!r}", Span(end, end + 1))
            self.advance()
        return Token(TokenKind.WORD, hit[0], start, end)

    # --- nesting ---------------------------------------------------------------------------------

    def enter(self) -> None:
        """Count one level of nesting; too many are refused instead of exhausting the stack."""
        self._depth += 1
        if self._depth > NESTING_MAX:
            self.fail(f"nested deeper than {NESTING_MAX} levels", self.current.span)

    def leave(self) -> None:
        """Undo one `enter`."""
        self._depth -= 1

    # --- values and errors -----------------------------------------------------------------------

    def string_value(self, token: Token) -> str:
        """The value of a string token; an unknown escape is an error."""
        body = token.text[1:-1]
        if "\\" not in body:
            return body

        def decode(hit: re.Match[str]) -> str:
            plain = _ESCAPES.get(hit[1])
            if plain is None:
                at = token.start + 1 + hit.start()
                self.fail(
                    f"unsupported escape sequence: \\{hit[1]}",
                    Span(at, at + 2),
                    hint='use one of \\" \\\\ \\n \\r \\t; write a backslash as \\\\',
                )
            return plain

        return _ESCAPE.sub(decode, body)

    def block(self, parse: Callable[[], None], where: str = "") -> Span:
        """Parse `{ … }`, calling ``parse`` until the closing brace; returns its span."""
        opening = self.expect_punct("{", where)
        self.enter()
        while not self.at_punct("}"):
            if self.at_kind(TokenKind.END):
                self.fail(
                    f"expected `}}`{_blank(where)}, found the end of the input",
                    self.current.span,
                    hint=f"the block opened on line {self.source.position(opening.span).line}",
                )
            parse()
        self.leave()
        return opening.span.to(self.advance().span)

    def unexpected(
        self,
        expected: str,
        where: str = "",
        words: tuple[str, ...] = (),
        *,
        hint: str | None = None,
    ) -> NoReturn:
        """Fail with "expected …, found …" at the cursor; suggest one of ``words`` or ``hint``."""
        token = self.current
        # An uppercase word may be a misspelt keyword, such as `RETURN`.
        spelled = token.kind in (TokenKind.WORD, TokenKind.TYPE)
        self.fail(
            f"expected {expected}{_blank(where)}, found {token.describe()}",
            token.span,
            hint=hint or (did_you_mean(token.text, words) if spelled and words else None),
        )

    def fail(self, message: str, span: Span, *, hint: str | None = None) -> NoReturn:
        """Raise this stream's kind of error at ``span``."""
        token = self.current
        if token.kind is TokenKind.BAD and span.start >= token.start:
            # The text cannot be lexed here: report that instead.
            raise self._lexer.bad_character(self.source, token.start)
        raise self.source.error(self._error, message, span, hint=hint)


def _blank(where: str) -> str:
    return f" {where}" if where else ""
