"""From `.gq` text to `ast.QueryFile`: files, query headers and parameters.

The bodies are read by `parse_read` and `parse_write`, which share `parse_match`, `parse_expression`
and the cursor of `parse_stream`. Parsing knows no schema: names are not resolved here, and the only
values decoded are literals, so that a malformed date is reported like any other syntax error.
"""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from omnigraph.errors import InputError, NotFound, QueryParseError
from omnigraph.model.types import SCALAR_NAMES, Scalar, ValueType
from omnigraph.query import ast
from omnigraph.query.parse_read import parse_read
from omnigraph.query.parse_stream import I64_MAX, QueryStream
from omnigraph.query.parse_write import STATEMENT_WORDS, parse_write
from omnigraph.syntax.source import Source
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.syntax.tokens import TokenKind

_BODY_WORDS = ("match", *STATEMENT_WORDS)
_ANNOTATIONS = ("description", "instruction")
_NAMES_MAX = 20
"""Most query names an error lists; its details hold all of them."""


def parse_query_file(origin: str | bytes | Path | Source) -> ast.QueryFile:
    """Parse all queries of a text, of raw UTF-8 bytes or of a file.

    Raises `QueryParseError`, always with a position, at the first problem; a file that cannot be
    read raises ``OSError``. A text without queries is legal.

    >>> file = parse_query_file("query all_books() { match { $b: Book } return { $b.title } }")
    >>> [query.name for query in file.queries]
    ['all_books']
    """
    source = Source.of(origin, QueryParseError)
    stream = QueryStream(source)
    queries: list[ast.Query] = []
    while not stream.at_kind(TokenKind.END):
        queries.append(_query(stream))
    return ast.QueryFile(source, tuple(queries))


def select_query(file: ast.QueryFile, name: str | None) -> ast.Query:
    """The query called ``name``, or the only one of the file when no name is given.

    The first of several queries with one name is meant. Raises `NotFound` for an unknown name and
    `InputError` when a name is needed to choose; both list the names there are.
    """
    names = list(dict.fromkeys(query.name for query in file.queries))
    if name is None:
        if len(file.queries) == 1:
            return file.queries[0]
        message = f"expected exactly one query, but the file has {len(file.queries)}"
        hint = f"name one of them; {_listing(names)}" if names else None
        raise InputError(message, hint=hint, details={"queries": names})
    for query in file.queries:
        if query.name == name:
            return query
    guess = did_you_mean(name, names)
    hint = f"{guess} {_listing(names)}" if guess else _listing(names)
    raise NotFound(f"query '{name}' not found", hint=hint, details={"queries": names})


def _listing(names: list[str]) -> str:
    if not names:
        return "the file has no queries"
    more = f" and {len(names) - _NAMES_MAX} more" if len(names) > _NAMES_MAX else ""
    return f"the file has {', '.join(names[:_NAMES_MAX])}{more}"


# --- one query ------------------------------------------------------------------------------------


def _query(stream: QueryStream) -> ast.Query:
    start = stream.current.start
    if not stream.take_word("query"):
        _no_query(stream)
    name = stream.name("a query name", "after `query`")
    parameters: tuple[ast.Parameter, ...] = ()
    if stream.take_punct("("):
        parameters = stream.separated(_parameter, ")", "in the parameters")
    annotations = _annotations(stream)
    body = _body(stream, name.text)
    return ast.Query(
        name=name.text,
        name_span=name.span,
        parameters=parameters,
        description=annotations.get("description"),
        instruction=annotations.get("instruction"),
        body=body,
        span=stream.span_from(start),
    )


def _no_query(stream: QueryStream) -> NoReturn:
    hint = None
    if stream.current.text.lower() in _BODY_WORDS:
        hint = "wrap it in a named query: `query name() { … }`"
    stream.unexpected("`query`", "or the end of the input", ("query",), hint=hint)


def _annotations(stream: QueryStream) -> dict[str, str]:
    found: dict[str, str] = {}
    while stream.take_punct("@"):
        word = stream.expect_word(*_ANNOTATIONS, where="after `@`")
        if word.text in found:
            stream.fail(f"`@{word.text}` is given twice", word.span)
        where = f"of `@{word.text}`"
        stream.expect_punct("(", where)
        found[word.text] = stream.string(where)
        stream.expect_punct(")", where)
    return found


def _body(stream: QueryStream, query_name: str) -> ast.Read | ast.Write:
    if not stream.take_punct("{"):
        stream.unexpected("`{`", f"to open the body of `{query_name}`")
    body: ast.Read | ast.Write
    if stream.at_word("match"):
        body = parse_read(stream)
    elif stream.at_word(*STATEMENT_WORDS):
        body = parse_write(stream)
    else:
        stream.unexpected(
            "`match`, `insert`, `update` or `delete`", f"in `{query_name}`", _BODY_WORDS
        )
    stream.expect_punct("}", f"at the end of `{query_name}`")
    return body


# --- parameters -----------------------------------------------------------------------------------


def _parameter(stream: QueryStream) -> ast.Parameter:
    variable = stream.variable("a parameter")
    stream.expect_punct(":", f"after `${variable.name}`")
    type_ = _parameter_type(stream)
    if stream.take_punct("?"):
        type_ = type_.with_nullable(True)
    return ast.Parameter(variable.name, type_, stream.span_from(variable.span.start))


def _parameter_type(stream: QueryStream) -> ValueType:
    if stream.take_punct("["):
        item = _scalar(stream, "in the list type")
        stream.expect_punct("]", "after the list type")
        return ValueType(item, is_list=True)
    if stream.current.text == "Vector" and stream.at_kind(TokenKind.TYPE):
        stream.advance()
        stream.expect_punct("(", "after `Vector`")
        dimension = stream.integer(I64_MAX, "for the dimension")
        stream.expect_punct(")", "after the dimension")
        return ValueType(Scalar.VECTOR, vector_dim=dimension)
    return ValueType(_scalar(stream, "for the parameter"))


def _scalar(stream: QueryStream, where: str) -> Scalar:
    token = stream.current
    if token.kind is not TokenKind.TYPE or token.text not in SCALAR_NAMES:
        stream.unexpected("a type", where, (*SCALAR_NAMES, "Vector"))
    stream.advance()
    return Scalar(token.text)
