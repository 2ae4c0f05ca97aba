"""Indexes on an object store: built, inherited by a branch, and used."""

from __future__ import annotations

import json

from omnigraph.graph import Graph, init
from omnigraph.storage.indexes import indexes_of

SCHEMA = """
node Memo { code: String @key  body: String @index  leaf: Vector(2)? @index }
edge Replies: Memo -> Memo
"""


def present(graph: Graph, branch: str) -> list[str]:
    handle = graph._opened.reader(branch).handle("node:Memo")
    return [str(index.spec) for index in indexes_of(handle)]


def test_indexes_are_built_on_an_object_store_and_on_its_branches(uri: str) -> None:
    graph = init(uri, SCHEMA)
    memos = [
        {"type": "Memo", "data": {"code": f"m{n}", "body": "a thought", "leaf": [n, 1.0]}}
        for n in range(5)
    ]
    graph.load(data="\n".join(map(json.dumps, memos)), mode="append")
    graph.create_branch("side")
    assert graph.ensure_indices("side").graph_commit_id is not None
    assert present(graph, "main") == []
    everything = ["body (inverted)", "code (btree)", "code (inverted)", "id (btree)"]
    assert present(graph, "side") == [*everything, "leaf (vector)"]
    handle = graph._opened.reader("side").handle("node:Memo")
    scanner = handle.scanner(columns=["id"], filter="id = 'm3'")
    assert "ScalarIndexQuery" in scanner.explain_plan()
    assert scanner.to_table()["id"].to_pylist() == ["m3"]
    assert graph.ensure_indices("side").graph_commit_id is None
