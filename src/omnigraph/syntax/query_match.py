"""The clauses of a match, and the filters of a `having`.

Alternatives are ordered, and one token of lookahead behind the edge word decides::

    clause = "not" block | "optional" block | "any" alternatives
           | var ":" Type [ "{" pairs "}" ]
           | var [ var ":" ] ( word | "<" word ">" ) [ "{" bound "," [ bound ] "}" ] var
             [ "via" [ "all" ] var | "via" "cheapest" var [ step ] "by" expression ]
           | var "is" [ "not" ] Type
           | "unnest" var "in" expression
           | filter | text predicate | "exists" block
    bound  = int | var
    step   = "from" var "to" var

A weight that is a property of the edge ends there if a `[`, or a `-` that touches digits, follows:
that begins the next clause. A variable, a word and a variable are always a hop: `$q contains $x`
follows an edge called `contains`. The block words are words like any other unless `{` follows them.
"""

from __future__ import annotations

from typing import NoReturn

from omnigraph.model.records import dataclass
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.query_conditions import COMPARISONS, TEST_WORDS, parse_filter
from omnigraph.syntax.query_expressions import (
    ARITHMETIC,
    FOREIGN_OPERATORS,
    U32_MAX,
    QueryStream,
    parse_expression,
    parse_reference,
    parse_value,
)
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.syntax.tokens import Token, TokenKind

_PATH_KINDS: dict[str, ast.PathKind] = {"all": "all", "cheapest": "cheapest"}
_BEHIND_OPERAND = frozenset({"(", *COMPARISONS, *ARITHMETIC, *FOREIGN_OPERATORS})

_IN_MATCH = "in the match"
_BLOCK_WORDS = ("not", "optional", "any")
_ADVICE = {
    "and": "the clauses of a match all have to hold: write them one after another",
    "or": "write alternatives as the clauses of `any { … }`",
    "where": "write the condition as a clause of its own, without `where`",
    "exists": "write `exists { … }`",
    "match": "one `match` holds all clauses",
    "return": "close the match with `}` in front of `return`",
}
"""Hints for words that start a clause in other languages."""


def parse_match_block(stream: QueryStream) -> tuple[ast.Clause, ...]:
    """Read the `{ clause … }` of a match."""
    return stream.one_or_more(parse_clause, "a clause", _IN_MATCH)


def parse_having_filter(stream: QueryStream) -> ast.Filter | ast.NullTest:
    """Read one filter of a `having`; hops are not allowed there."""
    stream.count_clause()
    is_value = stream.opens_block("case", *ast.BLOCK_FUNCTIONS)
    if stream.current.kind is TokenKind.WORD and not (is_value or _starts_operand(stream.peek())):
        hint = "the filters all have to hold: write them one after another"
        joined = stream.at_word("and", "or")
        stream.unexpected("a filter or `}`", "in `having`", hint=hint if joined else None)
    return parse_filter(stream)


# --- choosing -------------------------------------------------------------------------------------


def parse_clause(stream: QueryStream) -> ast.Clause:
    """Read one clause of a match or of a block."""
    stream.count_clause()
    token = stream.current
    if token.kind is TokenKind.VAR:
        return _variable_clause(stream)
    if token.kind is TokenKind.WORD:
        after = stream.peek()
        if token.text == "unnest" and after.kind is TokenKind.VAR:
            return _unnest(stream)
        if after.text == "{" and token.text not in ("case", *ast.BLOCK_FUNCTIONS):
            return _block_clause(stream, token)
        if after.text != "{" and not _starts_operand(after):
            _no_clause(stream)
    elif (token.kind is TokenKind.TYPE and stream.peek().text != "(") or (
        token.kind is TokenKind.PUNCT and token.text not in ("(", "[", "-")
    ):
        _no_clause(stream)
    return parse_filter(stream)


def _variable_clause(stream: QueryStream) -> ast.Clause:
    """Read a clause that starts with a variable: a binding, a hop or a filter."""
    after = stream.peek()
    if after.text == ":":
        return _binding(stream)
    if after.kind is TokenKind.VAR:
        return _hop(stream)
    if after.kind is TokenKind.WORD:
        target = stream.peek(2)
        if after.text == "is" and _names_type(target, stream.peek(3)):
            return _type_test(stream)
        if target.kind is TokenKind.VAR or target.text == "{" or after.text not in TEST_WORDS:
            return _hop(stream)
    elif after.kind is TokenKind.TYPE or (
        after.text == "<" and stream.peek(2).kind is TokenKind.WORD and stream.peek(3).text == ">"
    ):
        return _hop(stream)
    return parse_filter(stream)


def _starts_operand(after: Token) -> bool:
    """Whether a word followed by ``after`` begins a filter, as a call or an alias."""
    if after.kind is TokenKind.WORD:
        return after.text in TEST_WORDS
    return after.text in _BEHIND_OPERAND


def _no_clause(stream: QueryStream) -> NoReturn:
    token = stream.current
    after = stream.peek()
    hint = _ADVICE.get(token.text.lower()) or stream.foreign_hint()
    if after.text == "." and token.kind is TokenKind.WORD:
        hint = f"a property is written `${token.text}.…`"
    words = _BLOCK_WORDS if after.text == "{" else ()
    stream.unexpected("a clause or `}`", _IN_MATCH, words, hint=hint)


# --- blocks ---------------------------------------------------------------------------------------


def _block_clause(stream: QueryStream, word: Token) -> ast.Clause:
    if word.text not in _BLOCK_WORDS:
        if word.text == "all":
            stream.fail("`all { … }` groups clauses directly inside `any { … }` only", word.span)
        _no_clause(stream)
    stream.advance()
    where = f"in `{word.text}`"
    if word.text == "any":
        alternatives = stream.one_or_more(_alternative, "a clause", where)
        return ast.Any(alternatives, stream.span_from(word.span.start))
    clauses = stream.one_or_more(parse_clause, "a clause", where)
    span = stream.span_from(word.span.start)
    return ast.Not(clauses, span) if word.text == "not" else ast.Optional(clauses, span)


def _alternative(stream: QueryStream) -> tuple[ast.Clause, ...]:
    if stream.opens_block("all"):
        stream.advance()
        return stream.one_or_more(parse_clause, "a clause", "in `all`")
    return (parse_clause(stream),)


def _names_type(token: Token, following: Token) -> bool:
    """Whether `Type` or `not Type` follows `is`."""
    negated = token.kind is TokenKind.WORD and token.text == "not"
    return (following if negated else token).kind is TokenKind.TYPE


def _type_test(stream: QueryStream) -> ast.TypeTest:
    variable = stream.variable()
    stream.advance()
    negated = stream.take_word("not") is not None
    name = stream.type_name("after `is`")
    span = stream.span_from(variable.span.start)
    return ast.TypeTest(variable, name.text, name.span, negated, span)


def _unnest(stream: QueryStream) -> ast.Unnest:
    start = stream.advance().span.start
    variable = stream.variable()
    if not stream.take_word("in"):
        hint = f"write `unnest ${variable.name} in $x.tags`"
        stream.unexpected("`in`", f"after `unnest ${variable.name}`", hint=hint)
    return ast.Unnest(variable, parse_expression(stream), stream.span_from(start))


# --- bindings and hops ----------------------------------------------------------------------------


def _binding(stream: QueryStream) -> ast.Binding:
    variable = stream.variable()
    stream.advance()
    name = stream.type_name(f"after `${variable.name}:`")
    pairs: tuple[ast.Pair, ...] = ()
    if stream.take_punct("{"):
        pairs = stream.separated(
            _pair, "}", f"after the pair of `{name.text}`", trailing_comma=True
        )
    return ast.Binding(variable, name.text, name.span, pairs, stream.span_from(variable.span.start))


def _pair(stream: QueryStream) -> ast.Pair:
    name = stream.name("a property name", "or `}`")
    if not stream.take_punct(":"):
        hint = "a pair is written `name: value`; compare in a filter, such as `$x.age > 3`"
        stream.unexpected("`:`", f"after `{name.text}`", hint=hint)
    if stream.at_word("null"):
        hint = f"null is tested by a clause of its own: `$x.{name.text} is null`"
        stream.unexpected("a literal, a parameter or `now()`", "for the pair", hint=hint)
    return ast.Pair(name.text, name.span, parse_value(stream, f"for `{name.text}`"))


def _hop(stream: QueryStream) -> ast.Hop:
    left = stream.variable()
    edge_variable = None
    if stream.current.kind is TokenKind.VAR:
        edge_variable = stream.variable()
        stream.expect_punct(":", f"and an edge word after `${edge_variable.name}`")
    undirected = stream.take_punct("<") is not None
    word = _edge_word(stream)
    if undirected:
        stream.expect_punct(">", f"after `<{word.text}`")
    bounds = _bounds(stream) if stream.current.text == "{" else None
    right = _right_end(stream, word)
    path = _path(stream)
    if stream.current.text == ".":
        hint = f"to filter instead of hopping, write `(${left.name}) {word.text} ${right.name}.…`"
        stream.unexpected(
            "a clause or `}`",
            f"after the hop to `${right.name}`",
            hint=hint if word.text in TEST_WORDS else None,
        )
    return ast.Hop(
        left=left,
        edge_variable=edge_variable,
        edge_word=word.text,
        edge_span=word.span,
        undirected=undirected,
        bounds=bounds,
        right=right,
        path_variable=path.variable,
        span=stream.span_from(left.span.start),
        path_kind=path.kind,
        path_weight=path.weight,
        path_step=path.step,
    )


@dataclass(frozen=True, slots=True)
class _PathParts:
    """The parts after the right end of a hop; see the fields of `Hop`."""

    variable: ast.Variable | None = None
    kind: ast.PathKind = "one"
    step: tuple[ast.Variable, ast.Variable] | None = None
    weight: ast.Expression | None = None


def _path(stream: QueryStream) -> _PathParts:
    """Read `via $r`, `via all $r` or `via cheapest $r by $e.weight`, if there is one."""
    following = stream.peek()
    kind = _PATH_KINDS.get(following.text) if following.kind is TokenKind.WORD else None
    if not stream.at_word("via") or (kind is None and following.kind is not TokenKind.VAR):
        return _PathParts()
    stream.advance()
    if kind is not None:
        stream.advance()
    if stream.current.kind is not TokenKind.VAR:
        stream.unexpected("a variable", f"after `via {following.text}`")
    variable = stream.variable()
    if kind != "cheapest":
        return _PathParts(variable, kind or "one")
    where = f"after `via cheapest ${variable.name}`"
    step = None
    if stream.take_word("from"):
        near = stream.variable("the near end of an edge", "after `from`")
        stream.expect_word("to", where=f"after `from ${near.name}`")
        step = near, stream.variable("the far end of an edge", "after `to`")
    if not stream.take_word("by"):
        hint = f"name what to add up, as in `via cheapest ${variable.name} by $e.weight`"
        stream.unexpected("`by`", where, hint=hint)
    return _PathParts(variable, "cheapest", step, _weight(stream))


def _weight(stream: QueryStream) -> ast.Expression:
    """Read the weight of a path; another clause may follow directly."""
    if stream.current.kind is TokenKind.VAR and stream.peek().text == ".":
        after, operand = stream.peek(3), stream.peek(4)
        is_sign = after.text == "-" and operand.span.start == after.span.end
        if after.text == "[" or (is_sign and operand.kind in (TokenKind.INT, TokenKind.FLOAT)):
            return parse_reference(stream)
    return parse_expression(stream)


def _edge_word(stream: QueryStream) -> Token:
    if stream.at_word("not"):
        stream.unexpected(
            "an edge word", hint="`not` is never an edge word; wrap a clause in `not { … }`"
        )
    token = stream.current
    if token.kind is TokenKind.TYPE and token.text.lower() in TEST_WORDS:
        stream.unexpected("an edge word", hint=f"keywords are lowercase: `{token.text.lower()}`")
    return stream.name("an edge word")


def _right_end(stream: QueryStream, word: Token) -> ast.Variable:
    if stream.current.kind is not TokenKind.VAR:
        hint = did_you_mean(word.text, TEST_WORDS)
        if stream.current.text == "*":
            hint = "bounds are written `{1,3}`"
        stream.unexpected("a variable", f"after the edge word `{word.text}`", hint=hint)
    return stream.variable()


def _bounds(stream: QueryStream) -> ast.HopBounds:
    opening = stream.advance()
    where = "in the hop bounds"
    minimum = _bound(stream, where)
    if not stream.take_punct(","):
        hint = "bounds are written `{1,3}`"
        if stream.current.text == "}":
            shown = minimum if isinstance(minimum, int) else f"${minimum.name}"
            hint = f"write both bounds: `{{{shown},{shown}}}`"
        stream.unexpected("`,`", where, hint=hint)
    maximum = None if stream.current.text == "}" else _bound(stream, where)
    closing = stream.expect_punct("}", "after the hop bounds")
    return ast.HopBounds(minimum, maximum, opening.span.to(closing.span))


def _bound(stream: QueryStream, where: str) -> int | ast.Variable:
    if stream.current.kind is TokenKind.VAR:
        return stream.variable()
    return stream.integer(U32_MAX, where)
