"""The language of search texts, as parsed by `text_query("…")`.

::

    either = both { "OR" both }
    both   = part { [ "AND" ] part }
    part   = "NOT" part | "(" either ")" | '"' words '"' | word [ "*" ]

Operators are in capitals, so that texts in lower case are plain words. Adjacent parts are joined by
`AND`. Characters without a meaning here separate words, as they do in texts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

from omnigraph.errors import QueryParseError
from omnigraph.model.records import dataclass
from omnigraph.syntax.query_ast import TextQueryKind
from omnigraph.syntax.tokens import NESTING_MAX, Source, Span


@dataclass(frozen=True, slots=True)
class Words:
    """Words that all have to occur, anywhere."""

    text: str


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words that have to occur in sequence."""

    text: str


@dataclass(frozen=True, slots=True)
class Prefix:
    """Words that all have to occur; the last one is a prefix."""

    text: str


@dataclass(frozen=True, slots=True)
class Every:
    """Parts that all have to match, and parts that must not; at least one of the former."""

    wanted: tuple[SearchTerm, ...]
    unwanted: tuple[SearchTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class Either:
    """Parts of which at least one has to match."""

    parts: tuple[SearchTerm, ...]


SearchTerm: TypeAlias = Words | Phrase | Prefix | Every | Either


def search_term(kind: TextQueryKind, text: str) -> SearchTerm:
    """The parsed search text of a kind; only `text_query` can raise `QueryParseError`.

    >>> search_term("phrase", "graph of thrones")
    Phrase(text='graph of thrones')
    >>> search_term("text_query", "graph OR lake*")
    Either(parts=(Words(text='graph'), Prefix(text='lake')))
    """
    match kind:
        case "phrase":
            return Phrase(text)
        case "all_words":
            return Words(text)
        case "prefix":
            return Prefix(text)
        case "text_query":
            return _Parser(text).parsed()


def positive_leaves(term: SearchTerm) -> Iterator[Words | Phrase | Prefix]:
    """The words, phrases and prefixes outside of `NOT`, in the order of the text."""
    match term:
        case Every():
            for part in term.wanted:
                yield from positive_leaves(part)
        case Either():
            for part in term.parts:
                yield from positive_leaves(part)
        case _:
            yield term


TERMS_MAX = 200
"""Maximum number of words, phrases and operators in one search text."""

_TOKEN = re.compile(r'"[^"]*"|["()]|[^\s"()*]+\*?|\*')
_WORD = re.compile(r"[^\W_]")
_OPERATORS = ("AND", "OR", "NOT")


class _Token(NamedTuple):
    text: str
    span: Span


class _Parser:
    def __init__(self, text: str) -> None:
        self._source = Source(text)
        self._end = Span(len(text), len(text) + 1)
        found = (_Token(each.group(), Span(*each.span())) for each in _TOKEN.finditer(text))
        # Tokens without a letter or a digit only separate words.
        self._tokens = [
            each for each in found if each.text in ("(", ")", '"', "*") or _WORD.search(each.text)
        ]
        self._at = 0
        self._depth = 0

    def parsed(self) -> SearchTerm:
        if len(self._tokens) > TERMS_MAX:
            over = self._tokens[TERMS_MAX]
            raise self._error(f"more than {TERMS_MAX} parts", over.span, "search for fewer words")
        if not self._tokens:
            return Words("")
        found = self._either()
        if (token := self._current) is not None:
            raise self._error("`)` closes nothing", token.span, "remove it")
        return found

    @property
    def _current(self) -> _Token | None:
        return self._tokens[self._at] if self._at < len(self._tokens) else None

    def _take(self, text: str) -> _Token | None:
        token = self._current
        if token is None or token.text != text:
            return None
        self._at += 1
        return token

    def _either(self) -> SearchTerm:
        parts = [self._both()]
        while self._take("OR") is not None:
            parts.append(self._both())
        return parts[0] if len(parts) == 1 else Either(tuple(parts))

    def _both(self) -> SearchTerm:
        wanted: list[SearchTerm] = []
        unwanted: list[SearchTerm] = []
        first_not: _Token | None = None
        while True:
            negation = self._take("NOT")
            (unwanted if negation else wanted).append(self._part(after=negation))
            first_not = first_not or negation
            token = self._current
            if token is None or token.text in ("OR", ")"):
                break
            self._take("AND")
        if first_not is not None and not wanted:
            raise self._error(
                "`NOT` alone says what is not wanted, but not what is",
                first_not.span,
                "add what is wanted: `graph NOT table`",
            )
        if len(wanted) == 1 and not unwanted:
            return wanted[0]
        return Every(tuple(wanted), tuple(unwanted))

    def _part(self, after: _Token | None) -> SearchTerm:
        token = self._current
        if token is None or token.text in (*_OPERATORS, ")"):
            before = self._tokens[self._at - 1] if self._at else None
            what = "the end of the text" if token is None else f"`{token.text}`"
            follows = f" after `{before.text}`" if before is not None else ""
            at = token or after or before
            assert at is not None
            raise self._error(
                f"a word is missing{follows}: {what} is there",
                at.span,
                "operators in lower case, or in quotes, are plain words",
            )
        self._at += 1
        if token.text == "(":
            self._depth += 1
            if self._depth > NESTING_MAX:
                raise self._error("parentheses are nested too deeply", token.span, "use fewer")
            inner = self._either()
            if self._take(")") is None:
                raise self._error("`(` is not closed", token.span, "add `)`")
            self._depth -= 1
            return inner
        if token.text == '"':
            raise self._error("the quotes are not closed", token.span, 'add `"` behind the words')
        if token.text == "*":
            raise self._error(
                "`*` stands behind the beginning of a word", token.span, "write `grap*`"
            )
        if token.text.startswith('"'):
            return Phrase(token.text[1:-1])
        return Prefix(token.text[:-1]) if token.text.endswith("*") else Words(token.text)

    def _error(self, problem: str, span: Span, hint: str) -> QueryParseError:
        return self._source.error(QueryParseError, f"search text: {problem}", span, hint=hint)
