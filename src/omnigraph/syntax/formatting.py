"""The formatter of `.pg` and `.gq` texts: indentation, spaces and blank lines.

Line breaks stay where the author put them. The formatter moves no token to another line, adds and
removes none, and keeps every comment, so the meaning of a text stays the same. It uses tokens, not
the grammar, so new clauses of the languages need no change here. Formatting is idempotent.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

from omnigraph.errors import InternalError
from omnigraph.model.editing import Language
from omnigraph.model.records import dataclass
from omnigraph.syntax.query_expressions import QueryStream
from omnigraph.syntax.query_parser import parse_query_file
from omnigraph.syntax.schema_parser import SchemaStream, parse_schema
from omnigraph.syntax.tokens import SCHEMA_SUFFIX, Source, TokenKind

INDENT = "    "
_OPENING = {"{": "}", "(": ")", "[": "]"}
_CLOSING = frozenset(_OPENING.values())
_TIGHT = frozenset("([")
"""Brackets without a space inside; bounds of hops, `{1,3}`, have none either."""
_DECLARATIONS = frozenset({"node", "edge", "interface", "query"})
_CONTINUING = frozenset(
    {
        "@",
        "and",
        "or",
        "via",
        "as",
        "where",
        "set",
        "implements",
        "+",
        "-",
        "*",
        "/",
        "%",
        ",",
        "->",
    }
)
"""Tokens at the start of a line that continues the previous one."""
_BLOCKS = frozenset({"match", "return", "order", "having", "with", "not", "optional", "any", "all"})
"""Words before the brace of a block that may contain a variable alone, as bounds may."""
_VALUES = frozenset(
    {TokenKind.TYPE, TokenKind.VAR, TokenKind.STRING, TokenKind.INT, TokenKind.FLOAT}
)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def language_of(path: str) -> Language:
    """The language of a file, by its name."""
    return "pg" if path.endswith(SCHEMA_SUFFIX) else "gq"


def format_text(source: str | Source, language: Language) -> str:
    """The formatted text; raises the parse error of a text that does not parse."""
    text = source if isinstance(source, Source) else Source(source.removeprefix("\ufeff"))
    if language == "gq":
        parse_query_file(text)
    else:
        parse_schema(text)
    pieces = list(_pieces(text, language))
    formatted = "".join(_lines(pieces, language))
    again = list(_pieces(Source(formatted), language))
    if [each.text for each in again] != [each.text for each in pieces]:
        raise InternalError(f"formatting would change the text of a .{language} file")
    return formatted


@dataclass(frozen=True, slots=True)
class _Piece:
    """A token or a comment, with the white space before it."""

    text: str
    kind: TokenKind | None
    """None for a comment."""
    newlines: int
    space: int
    """The width of the white space before it."""
    column: int
    """The indentation of its line, if it is the first of a line."""
    is_tight: bool = False
    """Whether it is in the bounds of a hop, or one of their braces."""


def _pieces(source: Source, language: Language) -> Iterator[_Piece]:
    """Tokens and comments in their order, bounds of hops marked."""
    found = list(_spread(source, language))
    tight: list[int] = []
    for at, piece in enumerate(found):
        if piece.text == "{" and piece.kind is TokenKind.PUNCT:
            tight.append(_bounds_end(found, at))
        within = bool(tight) and at <= tight[-1]
        yield replace(piece, is_tight=within)
        if piece.text == "}" and piece.kind is TokenKind.PUNCT and tight:
            tight.pop()


def _bounds_end(found: list[_Piece], at: int) -> int:
    """The end of a hop's bounds that begin here; less than ``at`` for other braces."""
    before = found[at - 1] if at else None
    if before is None or found[at].space or before.text in _BLOCKS:
        return at - 1
    if before.kind is not TokenKind.WORD and before.text != ">":
        return at - 1
    for end in range(at + 1, min(at + 5, len(found))):
        piece = found[end]
        if piece.text == "}":
            return end
        if piece.kind not in (TokenKind.INT, TokenKind.VAR) and piece.text != ",":
            break
    return at - 1


def _spread(source: Source, language: Language) -> Iterator[_Piece]:
    text, at = source.text, 0
    stream = QueryStream(source) if language == "gq" else SchemaStream(source)
    for token in stream.tokens:
        for comment in _COMMENT.finditer(text, at, token.span.start):
            # A line comment ends before its newline; trailing spaces are removed.
            yield _piece(text, at, comment.start(), comment[0].rstrip(), None)
            at = comment.end()
        if token.kind is TokenKind.END:
            return
        spelled = text[token.span.start : token.span.end]
        yield _piece(text, at, token.span.start, spelled, token.kind)
        at = token.span.end


def _piece(text: str, end: int, start: int, spelled: str, kind: TokenKind | None) -> _Piece:
    gap = text[end:start]
    column = len(gap.rpartition("\n")[2].expandtabs(4))
    return _Piece(spelled, kind, gap.count("\n"), len(gap), column)


def _lines(pieces: list[_Piece], language: Language) -> Iterator[str]:
    """The formatted text, line by line, with line ends."""
    depth = 0
    base: int | None = None
    """The author's indentation of the last line in this block that began something."""
    lines: list[list[_Piece]] = []
    for piece in pieces:
        if not lines or piece.newlines:
            lines.append([])
        lines[-1].append(piece)
    previous: list[_Piece] | None = None
    for line in lines:
        first = line[0]
        if previous is not None and first.newlines > 1 and _may_be_apart(previous, first):
            yield "\n"
        closers = _leading_closers(line)
        level = max(depth - closers, 0)
        if _continues(first, depth, base):
            level += 1
        elif first.kind is not None:
            base = first.column
        yield f"{INDENT * level}{_spaced(line, language, depth)}\n"
        step = sum(_step(piece) for piece in line)
        if step:
            depth, base = depth + step, None
        previous = line


def _may_be_apart(previous: list[_Piece], first: _Piece) -> bool:
    """Whether a blank line is kept: not after an opening bracket, nor before a closing one."""
    return previous[-1].text not in _OPENING and first.text not in _CLOSING


def _step(piece: _Piece) -> int:
    if piece.kind is not TokenKind.PUNCT:
        return 0
    return (piece.text in _OPENING) - (piece.text in _CLOSING)


def _leading_closers(line: list[_Piece]) -> int:
    count = 0
    for piece in line:
        if _step(piece) != -1:
            break
        count += 1
    return count


def _continues(first: _Piece, depth: int, base: int | None) -> bool:
    """Whether a line continues the previous one.

    Between declarations, every line does that begins no declaration. Within a block the author's
    indentation distinguishes an annotation of the property above from a constraint of the type.
    """
    if first.kind is None or _step(first) != 0:
        return False
    if depth == 0:
        return first.text not in _DECLARATIONS
    return first.text in _CONTINUING and base is not None and first.column > base


def _spaced(line: list[_Piece], language: Language, depth: int) -> str:
    """The pieces of a line with the spaces between them."""
    parts = [line[0].text]
    for before, piece in pairwise(line):
        depth += _step(before)
        parts.append(" " * _space(before, piece, language, 2 if depth else 1))
        parts.append(piece.text)
    return "".join(parts)


def _space(before: _Piece, piece: _Piece, language: Language, most: int) -> int:
    """The number of spaces between two pieces of a line.

    Where both none and one are allowed, the author's choice stays. Within a block, two spaces may
    separate clauses on one line (``most``), and comments at the end of lines may be aligned.
    """
    if piece.kind is None:
        return max(1, piece.space)
    if before.kind is None:
        return 1
    left = before.text if before.kind is TokenKind.PUNCT else ""
    right = piece.text if piece.kind is TokenKind.PUNCT else ""
    given = min(piece.space, most)
    if piece.is_tight or (before.is_tight and left != "}"):
        return 0
    if left in _TIGHT or right in (")", "]", ",", ":") or (left == "{" and right == "}"):
        return 0
    if left in ("{", ",", "->") or right in ("{", "}", "->"):
        return 1
    if left == "}":
        return max(1, given)
    if left == ":" and (language == "pg" or piece.kind in _VALUES):
        return 1
    return given
