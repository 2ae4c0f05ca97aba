"""Read queries: what stands around and behind the clauses of the match.

::

    read = "match" clauses "return" [ "distinct" ] "{" item { item } "}"
           [ "having" "{" filter { filter } "}" ]
           [ "order" "{" key { "," key } "}" ]
           [ "limit" count ] [ "offset" count ]
"""

from __future__ import annotations

from typing import NoReturn

from omnigraph.query import ast
from omnigraph.query.parse_expression import parse_expression
from omnigraph.query.parse_match import parse_having_filter, parse_match_block
from omnigraph.query.parse_stream import U64_MAX, QueryStream
from omnigraph.syntax.tokens import TokenKind

_TAIL = ("having", "order", "limit", "offset")
_AFTER_MATCH_ADVICE = {
    "where": "conditions are clauses of the match: move them into its braces",
    "order": "`order` stands behind `return`",
    "limit": "`limit` stands behind `return`",
    "optional": "`optional { … }` is a clause: move it into the braces of the match",
    "match": "one `match` holds all clauses: move them into its braces",
}
_AFTER_RETURN_ADVICE = {
    "where": "conditions are clauses of the match; for groups write `having { … }`",
    "group": "items beside an aggregate are the groups; leave `group by` out",
    "skip": "write `offset`",
}


def parse_read(stream: QueryStream) -> ast.Read:
    """Read the body of a query that starts with `match`."""
    stream.advance()
    clauses = parse_match_block(stream)
    word = stream.take_word("return")
    if word is None:
        hint = _AFTER_MATCH_ADVICE.get(stream.current.text.lower())
        stream.unexpected("`return`", "after the match", ("return",), hint=hint)
    distinct = stream.opens_block("distinct")
    if distinct:
        stream.advance()
    items = stream.one_or_more(_item, "an item", "in `return`")
    having: tuple[ast.Filter | ast.NullTest, ...] = ()
    if stream.take_word("having"):
        having = stream.one_or_more(parse_having_filter, "a filter", "in `having`")
    order = _order(stream) if stream.take_word("order") else ()
    limit = _count(stream, "limit") if stream.take_word("limit") else None
    offset = _count(stream, "offset") if stream.take_word("offset") else None
    if not stream.at_punct("}"):
        _misplaced(stream)
    return ast.Read(clauses, items, distinct, having, order, limit, offset, word.span)


def _item(stream: QueryStream) -> ast.ReturnItem:
    start = stream.current.start
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
        stream.fail("expected an order key in `order`", stream.span_from(opening.start))
    return keys


def _key(stream: QueryStream) -> ast.OrderKey:
    start = stream.current.start
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


def _misplaced(stream: QueryStream) -> NoReturn:
    """Fail at whatever stands between the parts of the tail and the closing brace."""
    if stream.at_word(*_TAIL):
        hint = "`having`, `order`, `limit` and `offset` follow `return` in this order, once each"
        stream.fail(f"`{stream.current.text}` is misplaced", stream.current.span, hint=hint)
    advice = _AFTER_RETURN_ADVICE.get(stream.current.text.lower())
    names = ", ".join(f"`{word}`" for word in _TAIL)
    stream.unexpected(f"{names} or `}}`", "after the return", _TAIL, hint=advice)
