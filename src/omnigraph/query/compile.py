"""Text in, plan out: the one entry point that compiles queries."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from omnigraph.errors import QueryParseError
from omnigraph.query import ast
from omnigraph.query.check import check_query
from omnigraph.query.parser import parse_query_file, select_query
from omnigraph.query.plan import Plan
from omnigraph.schema.catalog import Catalog
from omnigraph.syntax.source import Source

PLANS_CACHED_MAX = 512
FILES_CACHED_MAX = 64


def compile_query(
    origin: str | bytes | Path | Source, catalog: Catalog, name: str | None = None
) -> Plan:
    """Parse, check and plan one query of a text.

    ``name`` picks a query; without it the text must hold exactly one. Raises `QueryParseError` or
    `QueryTypeError` with the position of the problem, and `NotFound` for an unknown name.
    """
    file = parse_query_file(origin)
    return check_query(select_query(file, name), file.source, catalog)


class QueryCompiler:
    """Compiles against one catalog and remembers the plans, keyed by text and query name.

    A plan depends on nothing else, so parameters belong in parameters, not in the text. Make a new
    compiler when the schema changes. Safe to share between threads.
    """

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._parse = lru_cache(FILES_CACHED_MAX)(self._parse_text)
        self._plan = lru_cache(PLANS_CACHED_MAX)(self._plan_text)

    def compile(self, origin: str | bytes | Path | Source, name: str | None = None) -> Plan:
        """The plan of one query; see `compile_query` for the arguments and errors."""
        source = Source.of(origin, QueryParseError)
        return self._plan(source.text, source.path, name)

    def _parse_text(self, text: str, path: str | None) -> ast.QueryFile:
        return parse_query_file(Source(text, path))

    def _plan_text(self, text: str, path: str | None, name: str | None) -> Plan:
        file = self._parse(text, path)
        return check_query(select_query(file, name), file.source, self.catalog)
