"""Searches that storage does for tables that are not in memory: the same answers, sooner."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.engines.local import tables
from omnigraph.graph import Graph, init, open_graph

SCHEMA = """
node Memo { key: String @key  body: String? @index  vec: Vector(2)? @index  size: I32 }
"""
WORDS = ["river", "rivers", "stone", "the", "running", "run", "cloud", "stones"]
SEARCH = """
query q($words: String) {
    match { $m: Memo  search($m.body, $words)  $m.size < 30 }
    return { $m.key } order { $m.key }
}
"""
NEAREST = """
query q($v: Vector(2), $n: I32) {
    match { $m: Memo }
    return { $m.key, nearest($m.vec, $v) as d } order { nearest($m.vec, $v) } limit $n offset 2
}
"""


def records(first: int, last: int) -> str:
    return "\n".join(
        json.dumps(
            {
                "type": "Memo",
                "data": {
                    "key": f"m{at:02}",
                    "body": None if at % 7 == 0 else f"{WORDS[at % 8]} {WORDS[at % 5]}",
                    "vec": None if at % 6 == 0 else [float(at % 5), float(at % 3)],
                    "size": at,
                },
            }
        )
        for at in range(first, last)
    )


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    made = init(tmp_path / "memos.omni", SCHEMA)
    made.load(data=records(0, 25), mode="append")
    made.ensure_indices()
    # Rows no index covers, one that was replaced and one that is gone.
    made.load(data=records(25, 40), mode="append")
    made.load(data=records(3, 5).replace("stone", "river"), mode="merge")
    made.mutate('query q { delete Memo where key = "m09" }')
    made.query("query q { match { $m: Memo } return { $m.key, $m.body } }")  # all are in memory
    return made


@pytest.fixture
def cold(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> Graph:
    """A handle that has read nothing, of a graph too large to be read at once."""
    monkeypatch.setattr(tables, "NODES_ALWAYS_CACHED", 0)
    return open_graph(graph.uri)


def strategy(graph: Graph, text: str, params: dict[str, object]) -> str:
    explained = graph.query(text, params, explain=True).explain
    assert explained is not None and explained.run is not None
    return explained.run.steps[0].strategy


@pytest.mark.parametrize("words", ["river", "Running stones", "the", "", "nothing", "cloud the"])
def test_c_srch_020_a_text_search_of_storage_equals_that_of_memory(
    graph: Graph, cold: Graph, words: str
):
    rows = graph.query(SEARCH, {"words": words}).to_pylist()
    assert cold.query(SEARCH, {"words": words}).to_pylist() == rows
    assert bool(rows) == (words not in ("the", "", "nothing"))


def test_a_cold_text_search_asks_the_index_of_storage(graph: Graph, cold: Graph):
    assert strategy(cold, SEARCH, {"words": "river"}) == "storage search"
    assert strategy(graph, SEARCH, {"words": "river"}) == "column scan"


def test_without_an_index_text_is_searched_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tables, "NODES_ALWAYS_CACHED", 0)
    plain = init(tmp_path / "plain.omni", SCHEMA)
    plain.load(data=records(0, 25), mode="append")
    assert strategy(plain, SEARCH, {"words": "rivers"}) == "column scan"
    assert plain.query(SEARCH, {"words": "rivers"}).row_count > 0


@pytest.mark.parametrize("count", [0, 1, 5, 100])
def test_c_srch_008_a_vector_search_of_storage_equals_that_of_memory(
    graph: Graph, cold: Graph, count: int
):
    asked = {"v": [1.2, 0.7], "n": count}
    assert cold.query(NEAREST, asked).to_pylist() == graph.query(NEAREST, asked).to_pylist()


def test_a_cold_vector_search_reads_a_shortlist(cold: Graph):
    assert strategy(cold, NEAREST, {"v": [1.2, 0.7], "n": 3}) == "storage search"


def test_words_are_in_memory_after_the_first_search(graph: Graph):
    handle = open_graph(graph.uri)
    first = handle.query(SEARCH, {"words": "river"}, explain=True)
    second = handle.query(SEARCH, {"words": "river"}, explain=True)
    assert first.to_pylist() == second.to_pylist()
    calls = [result.explain.run.storage["calls"]["lance"] for result in (first, second)]  # type: ignore[union-attr]
    assert "text_search" in calls[0]
    assert "text_search" not in calls[1]
