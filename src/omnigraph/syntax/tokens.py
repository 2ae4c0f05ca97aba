"""Source texts with positions, their tokens, and the cursor of both parsers.

Both languages share words, numbers, strings and comments; they differ in punctuation. Words are not
classified as keywords here: keywords are contextual in both languages, so the parser decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

from omnigraph.errors import CompileError, InputError, Position
from omnigraph.syntax.suggest import did_you_mean

E = TypeVar("E", bound=CompileError)

SCHEMA_SUFFIX = ".pg"
FILE_SUFFIXES = (".gq", SCHEMA_SUFFIX)
_EXCERPT_MAX = 240
_SPACE_OR_BRACE = re.compile(r"[\s{}]")
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


class Span(NamedTuple):
    """A half-open range of characters of one source text."""

    start: int
    end: int

    def to(self, other: Span) -> Span:
        """The range from the start of this span to the end of ``other``."""
        return Span(self.start, other.end)


def _require_text(origin: object) -> None:
    """Raise `InputError` for an origin of a wrong type, such as None."""
    if not isinstance(origin, bytes | Path):
        raise InputError(
            f"a text was expected, and this is {type(origin).__name__}",
            hint='pass a text, or Path("FILE") for a file',
        )


class Source:
    """A text to compile: its characters and, if it came from a file, its path."""

    __slots__ = ("path", "text")

    def __init__(self, text: str, path: str | None = None) -> None:
        self.text = text
        self.path = path

    @classmethod
    def of(cls, origin: str | bytes | Path | Source, error: type[CompileError]) -> Source:
        """Take a text, raw bytes, a file path or an existing source.

        Raises ``error`` with the offset if the text is not UTF-8, and for a file name given as a
        text; a missing file raises ``OSError`` as usual. A byte order mark at the beginning is
        removed.
        """
        if isinstance(origin, Source):
            return origin
        if isinstance(origin, str):
            # A str can hold lone surrogates, which have no UTF-8 form: refuse them here, not when
            # something derived from the text is encoded.
            lone = _LONE_SURROGATE.search(origin)
            if lone is not None:
                shown = cls(_LONE_SURROGATE.sub("\ufffd", origin))
                raise shown.error(error, "the text is not valid UTF-8", Span(*lone.span()))
            if origin.endswith(FILE_SUFFIXES) and not _SPACE_OR_BRACE.search(origin):
                flag = "--schema" if origin.endswith(SCHEMA_SUFFIX) else "--query"
                hint = f'pass Path("{origin}"), or `{flag} {origin}` on the command line'
                at = Span(0, len(origin))
                raise cls(origin).error(error, "this names a file and is no text", at, hint=hint)
            return cls(origin.removeprefix("\ufeff"))
        _require_text(origin)
        path = str(origin) if isinstance(origin, Path) else None
        raw = origin.read_bytes() if isinstance(origin, Path) else origin
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as bad:
            head = cls(raw[: bad.start].decode("utf-8") + "\ufffd", path)
            at = Span(len(head.text) - 1, len(head.text))
            raise head.error(error, "the text is not valid UTF-8", at) from None
        return cls(text.removeprefix("\ufeff"), path)

    def position(self, span: Span) -> Position:
        """Line, column and byte range of ``span``; never narrower than one byte."""
        text = self.text
        start = min(max(span.start, 0), len(text))
        end = min(max(span.end, start + 1), max(len(text), start))
        line_start = text.rfind("\n", 0, start) + 1
        line_end = text.find("\n", start)
        line_end = len(text) if line_end < 0 else line_end
        byte_start = _byte_length(text[:start])
        byte_width = _byte_length(text[start:end])
        return Position(
            path=self.path,
            line=text.count("\n", 0, start) + 1,
            column=start - line_start + 1,
            line_text=_excerpt(text[line_start:line_end].rstrip("\r")),
            width=max(1, min(end, line_end, line_start + _EXCERPT_MAX) - start),
            byte_start=byte_start,
            byte_end=byte_start + max(1, byte_width),
        )

    def error(
        self,
        kind: type[E],
        message: str,
        span: Span | None,
        *,
        hint: str | None = None,
        diagnostic: str | None = None,
        details: dict[str, Any] | None = None,
    ) -> E:
        """Build (not raise) an error of ``kind`` that points at ``span``."""
        position = self.position(span) if span is not None else None
        return kind(message, position=position, hint=hint, diagnostic=diagnostic, details=details)


def _byte_length(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _excerpt(line: str) -> str:
    """A line short enough to print; minified input can have a megabyte on one line."""
    return line if len(line) <= _EXCERPT_MAX else line[:_EXCERPT_MAX] + " …"


NESTING_MAX = 64
"""Maximum nesting of blocks, lists and parentheses in a text."""

_ESCAPES = {'"': '"', "\\": "\\", "n": "\n", "r": "\r", "t": "\t"}
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
# Possessive quantifiers: an unterminated string fails in one pass, however long it is.
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
    """The first character that starts no token. The text after it is not tokenized."""
    END = "end of input"


class Token(NamedTuple):
    """One token: its kind, its text, and its position."""

    kind: TokenKind
    text: str
    span: Span

    def describe(self) -> str:
        """The name of this token in error messages."""
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

    ``hints`` adds advice for characters that start no token of this language. Of a text with more
    than ``tokens_max`` tokens, one more is returned, and no END follows.
    """

    def __init__(
        self,
        punctuation: list[str],
        error: type[CompileError],
        hints: Mapping[str, str] | None = None,
        tokens_max: int | None = None,
    ) -> None:
        longest_first = sorted(punctuation, key=len, reverse=True)
        self._error = error
        self._tokens_max = tokens_max
        self._hints = {**_CHARACTER_HINTS, **(hints or {})}
        # One match per token: separators are skipped before it. Every position matches, at worst by
        # the last group, so that the matches follow each other without gaps. A comment that is
        # never closed must not be read as punctuation. A digit run takes a fraction only if a digit
        # follows the point: `0..9` is an integer, two dots and an integer.
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
        # `tuple.__new__` skips the Python-level constructors: a third of the time spent here.
        new = tuple.__new__
        stop = None if self._tokens_max is None else self._tokens_max + 1
        for hit in islice(self._pattern.finditer(source.text), stop):
            group = hit.lastindex or _END
            start = hit.start(group)
            if group == _VAR:
                start -= 1  # the dollar sign is part of the span, not of the name
            span = new(Span, (start, hit.end()))
            found.append(new(Token, (_GROUPS[group], hit[group], span)))
            if group >= _END:
                break
        if found[-1].kind is TokenKind.BAD:
            found.append(Token(TokenKind.END, "", Span(len(source.text), len(source.text))))
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
        """The token under the cursor.

        A punctuation mark is known by its text alone: strings keep their quotes."""

    # --- looking ---------------------------------------------------------------------------------

    @property
    def tokens(self) -> Sequence[Token]:
        """All tokens, independent of the cursor."""
        return self._tokens

    def peek(self, ahead: int = 1) -> Token:
        """The token ``ahead`` positions further; END past the end."""
        return self._tokens[min(self._at + ahead, len(self._tokens) - 1)]

    def at_word(self, *words: str) -> bool:
        """Whether the current token is one of these words."""
        token = self.current
        return token.text in words and token.kind is TokenKind.WORD

    # --- moving ----------------------------------------------------------------------------------

    def advance(self) -> Token:
        """Return the current token and move to the next one."""
        token = self.current
        if token.kind is not TokenKind.END:
            self._at += 1
            self.current = self._tokens[self._at]
        return token

    def span_from(self, start: int) -> Span:
        """The range from ``start`` to the end of the last token read."""
        return Span(start, self._tokens[self._at - 1].span.end)

    def take_punct(self, text: str) -> Token | None:
        """Read this punctuation if it is at the cursor."""
        return self.advance() if self.current.text == text else None

    def take_word(self, *words: str) -> Token | None:
        """Read one of these words if it is at the cursor."""
        return self.advance() if self.at_word(*words) else None

    def expect_punct(self, text: str, where: str = "") -> Token:
        """Read this punctuation or fail."""
        return self.take_punct(text) or self.unexpected(f"`{text}`", where)

    def expect_word(self, *words: str, where: str = "") -> Token:
        """Read one of these words or fail, suggesting the nearest one."""
        return self.take_word(*words) or self.unexpected(
            " or ".join(f"`{w}`" for w in words), where, words
        )

    def expect_kind(self, kind: TokenKind, what: str, where: str = "") -> Token:
        """Read a token of this kind or fail; ``what`` names it in the error."""
        return self.advance() if self.current.kind is kind else self.unexpected(what, where)

    def rescan(self, pattern: re.Pattern[str]) -> Token | None:
        """Read the text at the cursor with another pattern, for words lexed only in context.

        The cursor moves to the first token that starts at or after the end of the match. Returns
        ``None`` without moving if the pattern does not match here.
        """
        start = self.current.span.start
        hit = pattern.match(self.source.text, start)
        if hit is None or hit.end() == start:
            return None
        end = hit.end()
        while self.current.kind is not TokenKind.END and self.current.span.start < end:
            if self.current.span.end > end or self.current.kind is TokenKind.BAD:
                self.fail(f"unexpected character {self.source.text[end]!r}", Span(end, end + 1))
            self.advance()
        return Token(TokenKind.WORD, hit[0], Span(start, end))

    # --- nesting ---------------------------------------------------------------------------------

    def enter(self) -> None:
        """Enter a level of nesting; raises an error before the stack is exhausted."""
        self._depth += 1
        if self._depth > NESTING_MAX:
            self.fail(f"nested deeper than {NESTING_MAX} levels", self.current.span)

    def leave(self) -> None:
        """Leave a level of nesting."""
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
                at = token.span.start + 1 + hit.start()
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
        while self.current.text != "}":
            if self.current.kind is TokenKind.END:
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
        if token.kind is TokenKind.BAD and span.start >= token.span.start:
            # The text cannot be tokenized here: report that instead.
            raise self._lexer.bad_character(self.source, token.span.start)
        raise self.source.error(self._error, message, span, hint=hint)


def _blank(where: str) -> str:
    return f" {where}" if where else ""
