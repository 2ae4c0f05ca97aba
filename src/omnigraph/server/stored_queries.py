"""Queries that a server knows by name, read from files and checked before anyone calls them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import orjson

from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.graph.stored_queries import query_files
from omnigraph.model.signatures import QuerySignature
from omnigraph.wire.answers import QueryCatalog


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """One query that can be called by its name."""

    source: str
    signature: QuerySignature


class StoredQueries:
    """The stored queries of one graph, by name."""

    def __init__(self, queries: Iterable[StoredQuery] = ()) -> None:
        self._by_name = {query.signature.name: query for query in queries}
        listed = (self._by_name[name].signature for name in sorted(self._by_name))
        self.catalog = orjson.dumps(QueryCatalog(tuple(listed)).to_dict())
        """The answer to whoever lists them, which only a reload changes."""

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> StoredQuery | None:
        """The query with this name, if there is one."""
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[StoredQuery]:
        return iter(self._by_name.values())


def load_queries(graph: Graph, paths: Iterable[Path], taken: Collection[str] = ()) -> StoredQueries:
    """Every query of the files, checked against the graph.

    Raises the compile error of the first bad one, with its file and position, and `InputError` for
    a name that is ``taken`` or used twice and for a file that cannot be read.
    """
    found: dict[str, StoredQuery] = {}
    files: dict[str, Path] = {}
    for file in query_files(paths):
        for signature in graph.describe_queries(file):
            if signature.name in taken:
                raise InputError(
                    f"the stored query '{signature.name}' in {file} has the name of a tool",
                    hint="rename it",
                )
            if signature.name in found:
                raise InputError(
                    f"two stored queries are called '{signature.name}', in {files[signature.name]} "
                    f"and in {file}",
                    hint="rename one of them",
                )
            found[signature.name] = StoredQuery(file.read_text("utf-8"), signature)
            files[signature.name] = file
    return StoredQueries(found.values())
