"""The bodies of reads: stages, items, order and limits.

::

    read  = "match" clauses { "with" shown [ "match" clauses ] } "return" shown
    shown = [ "distinct" ] "{" item { item } "}"
            [ "having" "{" filter { filter } "}" ]
            [ "order" "{" key { "," key } "}" ]
            [ "limit" count "per" expression ] [ "limit" count ] [ "offset" count ]
    block = ( "count" | "exists" | "sum" | "avg" | "min" | "max" | "collect" )
            "{" clause { clause } [ "return" [ "distinct" ] "{" item { item } "}"
            [ "order" "{" key { "," key } "}" ] [ "limit" count ] ] "}"
"""

from __future__ import annotations

from typing import NoReturn

from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.query_expressions import (
    U64_MAX,
    QueryStream,
    parse_expression,
    require_within,
)
from omnigraph.syntax.query_match import parse_clause, parse_having_filter, parse_match_block
from omnigraph.syntax.tokens import Token, TokenKind

STAGES_MAX = 32
"""Each stage adds a level to the plan, which is processed recursively."""


_BLOCKS: dict[str, ast.BlockFunction] = {name: name for name in ast.BLOCK_FUNCTIONS}
_TAIL = ("having", "order", "limit", "offset")
_AFTER_MATCH_ADVICE = {
    "where": "conditions are clauses of the match: move them into its braces",
    "order": "`order` stands behind `return`",
    "limit": "`limit` stands behind `return`",
    "optional": "`optional { … }` is a clause: move it into the braces of the match",
    "match": "one `match` holds all clauses: move them into its braces, or write `with` between",
}
_AFTER_RETURN_ADVICE = {
    "where": "conditions are clauses of the match; for groups write `having { … }`",
    "group": "items beside an aggregate are the groups; leave `group by` out",
    "skip": "write `offset`",
}


def parse_read(stream: QueryStream) -> ast.ReadBody:
    """Read the body of a query that starts with `match`."""
    stream.advance()
    clauses = parse_match_block(stream)
    stages: list[ast.ReadBody] = []
    while (word := stream.take_word("with")) is not None:
        require_within(len(stages) + 1, STAGES_MAX, "the number of stages in a query")
        stages.append(_shown(stream, word, clauses))
        clauses = parse_match_block(stream) if stream.take_word("match") else ()
    word = stream.take_word("return")
    if word is None:
        _no_return(stream, stages, clauses)
    body = _shown(stream, word, clauses, tuple(stages))
    if stream.current.text != "}":
        _misplaced(stream, "return", ("}",))
    return body


def _no_return(
    stream: QueryStream, stages: list[ast.ReadBody], clauses: tuple[ast.Clause, ...]
) -> NoReturn:
    if stages and not clauses:
        _misplaced(stream, "with", ("match", "return"))
    hint = _AFTER_MATCH_ADVICE.get(stream.current.text.lower())
    stream.unexpected("`return` or `with`", "after the match", ("return", "with"), hint=hint)


def _shown(
    stream: QueryStream,
    word: Token,
    clauses: tuple[ast.Clause, ...],
    stages: tuple[ast.ReadBody, ...] = (),
) -> ast.ReadBody:
    """Read the part that follows `return` or `with`, up to the limits."""
    distinct = stream.opens_block("distinct")
    if distinct:
        stream.advance()
    if stream.current.text != "{":
        hint = f"what it gives stands in braces: `{word.text} {{ … }}`"
        stream.unexpected("`{`", f"in `{word.text}`", hint=hint)
    items = stream.one_or_more(_item, "an item", f"in `{word.text}`")
    having: tuple[ast.Filter | ast.NullTest, ...] = ()
    if stream.take_word("having"):
        having = stream.one_or_more(parse_having_filter, "a filter", "in `having`")
    order = _order(stream) if stream.take_word("order") else ()
    limit = _limit(stream)
    per = None
    if limit is not None and stream.take_word("per"):
        key = parse_expression(stream)
        per = ast.LimitPer(limit, key, stream.span_from(limit.span.start))
        limit = _limit(stream)
    offset = _count(stream, "offset") if stream.take_word("offset") else None
    return ast.ReadBody(
        clauses, items, distinct, having, order, limit, offset, word.span, per, stages
    )


def _limit(stream: QueryStream) -> ast.Count | None:
    return _count(stream, "limit") if stream.take_word("limit") else None


def parse_block(stream: QueryStream) -> ast.BlockValue:
    """Read a block with a value, such as `count { … }`; the first word is its function."""
    word = stream.advance()
    function = _BLOCKS[word.text]
    where = f"in `{function}`"
    clauses: list[ast.Clause] = []
    shown: list[ast.ReadBody] = []

    def part() -> None:
        if shown:
            hint = "`order` and `limit` follow `return` in this order, once each"
            stream.unexpected("`}`", f"at the end of `{function} {{ … }}`", hint=hint)
        if stream.opens_block("return") or (
            stream.at_word("return") and stream.peek().text == "distinct"
        ):
            shown.append(_shown(stream, stream.advance(), ()))
        else:
            clauses.append(parse_clause(stream))

    block = stream.block(part, where)
    if not clauses:
        stream.fail(f"expected a clause {where}", block)
    body = shown[0] if shown else None
    if body is not None and (body.having or body.offset or body.per):
        stream.fail("a block has no `having`, no `offset` and no `limit … per`", block)
    span = stream.span_from(word.span.start)
    if body is None:
        return ast.BlockValue(function, tuple(clauses), (), False, (), None, span)
    return ast.BlockValue(
        function, tuple(clauses), body.items, body.distinct, body.order, body.limit, span
    )


def _item(stream: QueryStream) -> ast.ReturnItem:
    stream.count_clause()
    start = stream.current.span.start
    expression = parse_expression(stream)
    alias = None
    if stream.take_word("as"):
        alias = stream.name("an alias", "after `as`")
    span = stream.span_from(start)
    stream.take_punct(",")
    return ast.ReturnItem(
        expression, alias.text if alias else None, alias.span if alias else None, span
    )


def _order(stream: QueryStream) -> tuple[ast.OrderKey, ...]:
    opening = stream.current
    if not stream.take_punct("{"):
        hint = "write the keys in braces: `order { … }`"
        stream.unexpected("`{`", "after `order`", hint=hint)
    keys = stream.separated(_key, "}", "after an order key")
    if not keys:
        stream.fail("expected an order key in `order`", stream.span_from(opening.span.start))
    return keys


def _key(stream: QueryStream) -> ast.OrderKey:
    stream.count_clause()
    start = stream.current.span.start
    expression = parse_expression(stream)
    direction = stream.current
    descending = None
    if stream.take_word("asc", "desc"):
        if isinstance(expression, ast.SearchCall) and expression.function == "nearest":
            stream.fail(
                "`nearest` takes no direction",
                direction.span,
                hint="the closest come first; leave the direction out",
            )
        descending = direction.text == "desc"
    return ast.OrderKey(expression, descending, stream.span_from(start))


def _count(stream: QueryStream, word: str) -> ast.Count:
    token = stream.current
    if token.kind is TokenKind.VAR:
        return ast.Count(stream.variable(), token.span)
    if token.kind is not TokenKind.INT:
        stream.unexpected("an integer or a parameter", f"after `{word}`")
    return ast.Count(stream.integer(U64_MAX, f"after `{word}`"), token.span)


def _misplaced(stream: QueryStream, after: str, next_words: tuple[str, ...]) -> NoReturn:
    """Fail at a token that neither belongs to this part nor may follow it."""
    if stream.at_word(*_TAIL):
        hint = f"`having`, `order`, `limit` and `offset` follow `{after}` in this order, once each"
        if stream.at_word("limit"):
            hint += "; only a `limit … per` has another limit behind it"
        stream.fail(f"`{stream.current.text}` is misplaced", stream.current.span, hint=hint)
    advice = _AFTER_RETURN_ADVICE.get(stream.current.text.lower())
    expected = [f"`{word}`" for word in (*_TAIL, *next_words)]
    what = f"{', '.join(expected[:-1])} or {expected[-1]}"
    stream.unexpected(what, f"after the {after}", (*_TAIL, *next_words), hint=advice)
