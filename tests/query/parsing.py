"""Texts of queries, parsed or refused, in as few words as a test can use."""

import pytest

from omnigraph.errors import QueryParseError
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.query_parser import parse_query_file


def query(text: str) -> ast.Query:
    (found,) = parse_query_file(text).queries
    return found


def read(text: str) -> ast.ReadBody:
    body = query(f"query q() {{ {text} }}").body
    assert isinstance(body, ast.ReadBody)
    return body


def clauses(text: str) -> tuple[ast.Clause, ...]:
    return read(f"match {{ {text} }} return {{ $a }}").clauses


def clause(text: str) -> ast.Clause:
    (found,) = clauses(text)
    return found


def tail(text: str) -> ast.ReadBody:
    return read(f"match {{ $a: A }} return {{ $a }} {text}")


def hop(text: str) -> ast.Hop:
    found = clause(text)
    assert isinstance(found, ast.Hop)
    return found


def refused(text: str) -> QueryParseError:
    with pytest.raises(QueryParseError) as caught:
        parse_query_file(text)
    assert caught.value.position is not None
    return caught.value


def refused_clause(text: str) -> QueryParseError:
    return refused(f"query q() {{ match {{ {text} }} return {{ $a }} }}")


def refused_tail(text: str) -> QueryParseError:
    return refused(f"query q() {{ match {{ $a: A }} return {{ $a }} {text} }}")
