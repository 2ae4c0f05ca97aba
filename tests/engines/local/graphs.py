"""Small stored graphs for tests of the engine, and the shortest ways to write and ask."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa

import omnigraph as og
from omnigraph.engines.local.engine import LocalEngine
from omnigraph.engines.local.tables import Mode, TraversalSettings
from omnigraph.storage.reader import SnapshotReader
from tests.support.graphs import with_edge_ids

SCHEMA = """
node Person { name: String @key  age: I32?  bio: String?  tags: [String]? }
node City { name: String @key  size: I32? }
edge Knows: Person -> Person { since: I32? }
edge LivesIn: Person -> City
"""


def new_graph(directory: Path, schema: str = SCHEMA) -> og.Graph:
    """An empty graph below a directory."""
    return og.init(directory / "graph.omni", schema=schema)


def person(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "Person", "data": {"name": name, **data}}


def city(name: str, **data: Any) -> dict[str, Any]:
    return {"type": "City", "data": {"name": name, **data}}


def knows(source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": "Knows", "from": source, "to": target, "data": data}


def lives(source: str, target: str) -> dict[str, Any]:
    return {"edge": "LivesIn", "from": source, "to": target, "data": {}}


def load(graph: og.Graph, *records: Mapping[str, Any], branch: str | None = None) -> None:
    """Insert records, or replace those whose ids are there."""
    graph.load(data="\n".join(map(json.dumps, with_edge_ids(records))), mode="merge", branch=branch)


def write(graph: og.Graph, statement: str, *, branch: str | None = None) -> str:
    """One mutation; the commit it made."""
    receipt = graph.mutate(f"query q() {{ {statement} }}", branch=branch)
    assert receipt.commit is not None
    return receipt.commit.graph_commit_id


def with_engine(
    graph: og.Graph, mode: Mode = "auto", memory_limit: int | None = None
) -> tuple[og.Graph, LocalEngine]:
    """Another handle of the graph, whose engine is cold and chooses in a given way."""
    engine = LocalEngine(TraversalSettings(mode), memory_limit)
    handle = og.Graph(graph._kernel)
    handle._opened.engines["local"] = engine
    return handle, engine


def reader_of(
    graph: og.Graph, branch: str | None = None, snapshot: str | None = None
) -> SnapshotReader:
    """The tables of a head or of a commit, as Lance has them."""
    return graph._opened.reader(branch, snapshot)


def rows(graph: og.Graph, text: str, **how: Any) -> list[tuple[Any, ...]]:
    """The rows of a query, sorted if it does not order them."""
    result = graph.query(f"query q() {{ {text} }}", **how)
    found = [tuple(row.values()) for row in result.to_pylist()]
    return found if "order" in text else sorted(found, key=repr)


def listed(column: pa.ChunkedArray | pa.Array) -> list[Any]:
    values: list[Any] = column.to_pylist()
    return values
