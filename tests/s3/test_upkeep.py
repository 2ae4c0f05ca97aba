"""Upkeep and changes of schema in an object store, where leases run by time alone."""

from __future__ import annotations

import json

import pytest

from omnigraph.errors import HistoricalVersionReclaimed, UncoveredDrift
from omnigraph.graph import Graph, init, open_graph
from omnigraph.model.upkeep import OptimizedTable
from omnigraph.storage.indexes import indexes_of
from tests.upkeep.behind_the_back import compacted, deleted

SCHEMA = """
node Memo { code: String @key  body: String? @index  draft: Bool?  leaf: Vector(4)? @index }
node Label { name: String @key }
edge Marks: Label -> Memo
"""
ADD = 'query add($code: String) { insert Memo { code: $code, body: "one more thought" } }'
ALL = "query all { match { $m: Memo } return { $m.code } }"


@pytest.fixture
def graph(uri: str) -> Graph:
    """Memos in four fragments, and a branch that has one of its own."""
    graph = init(uri, SCHEMA)
    for first in (0, 10, 20):
        records = [
            {
                "type": "Memo",
                "data": {"code": f"m{n}", "body": f"thought {n}", "leaf": [n, 0, 0, 1]},
            }
            for n in range(first, first + 10)
        ]
        graph.load(data="\n".join(map(json.dumps, records)), mode="append")
    graph.mutate(ADD, {"code": "m30"})
    return graph


def codes(graph: Graph, branch: str = "main") -> set[str]:
    return {row["m.code"] for row in graph.query(ALL, branch=branch).to_pylist()}


def memos(tables: tuple[OptimizedTable, ...]) -> OptimizedTable:
    return next(table for table in tables if table.type_key == "node:Memo")


EVERYBODY = {f"m{n}" for n in range(31)}


def test_optimize_makes_a_graph_compact_and_a_second_run_writes_nothing(graph: Graph, uri: str):
    done = memos(graph.optimize().tables)
    assert (done.fragments_removed, done.fragments_added, done.committed) == (4, 1, True)
    fresh = open_graph(uri)
    assert codes(fresh) == EVERYBODY
    found = indexes_of(fresh._opened.reader("main").handle("node:Memo"))
    assert {index.spec.kind for index in found} == {"btree", "inverted", "vector"}
    assert {index.rows_uncovered for index in found} == {0}
    assert fresh.optimize().graph_commit_id is None


def test_cleanup_keeps_what_branches_see_and_removes_the_rest(graph: Graph, uri: str):
    first = graph.list_commits()[-2].graph_commit_id
    graph.create_branch("review")
    graph.mutate(ADD, {"code": "r1"}, branch="review")
    graph.optimize()
    preview = graph.cleanup(keep=1)
    assert preview.dry_run
    done = graph.cleanup(keep=1, confirm=True)
    assert not done.has_errors
    removed = {table.type_key: table.old_versions_removed for table in done.tables}
    assert removed["node:Memo"] > 0
    assert removed == {t.type_key: t.old_versions_removed for t in preview.tables}
    fresh = open_graph(uri)
    assert codes(fresh) == EVERYBODY
    assert codes(fresh, "review") == {*EVERYBODY, "r1"}
    with pytest.raises(HistoricalVersionReclaimed):
        b"".join(fresh.export(snapshot=first))
    fresh.delete_branch("review")
    assert not fresh.cleanup(keep=0, confirm=True).has_errors
    fresh.mutate(ADD, {"code": "m31"})
    assert codes(fresh) == {*EVERYBODY, "m31"}


def test_repair_heals_a_compaction_and_refuses_a_deletion_until_it_is_forced(
    graph: Graph, uri: str
):
    compacted(graph, "node:Memo")
    with pytest.raises(UncoveredDrift):
        graph.mutate(ADD, {"code": "m31"})
    (healed,) = [each for each in graph.repair(confirm=True).tables if each.action != "no_op"]
    assert (healed.type_key, healed.action) == ("node:Memo", "healed")
    graph.mutate(ADD, {"code": "m31"})
    deleted(graph, "node:Memo", "code = 'm5'")
    assert graph.repair(confirm=True).has_refusals
    assert graph.repair(confirm=True, force=True).graph_commit_id is not None
    assert codes(open_graph(uri)) == {*EVERYBODY, "m31"} - {"m5"}


def test_a_schema_is_changed_and_what_was_dropped_stays_in_the_past(graph: Graph, uri: str):
    before = graph.snapshot().graph_commit_id
    other = open_graph(uri)
    receipt = graph.apply_schema(
        """
        node Note @rename_from("Memo") {
            code: String @key
            text: String? @index @rename_from("body")
            stars: I32 @default(3)
            leaf: Vector(4)? @index
        }
        node Label { name: String @key }
        edge Marks: Label -> Note
        """
    )
    assert receipt.applied
    query = 'query q { match { $n: Note { code: "m1" } } return { $n.text, $n.stars } }'
    for handle in (graph, other, open_graph(uri), open_graph(uri, "read_only")):
        assert handle.query(query).to_pylist() == [{"n.text": "thought 1", "n.stars": 3}]
    old = graph.entity_at("node:Note", "m1", snapshot=before)
    assert old is not None
    assert (old["text"], old["draft"]) == ("thought 1", None)
    graph.optimize()
    assert not graph.cleanup(keep=10, confirm=True).has_errors
    assert graph.examine().is_healthy
