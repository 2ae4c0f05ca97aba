"""Queries through the facade: what is read, what is checked before, and what comes back."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.effects.requests import measure
from omnigraph.embedding.client import mock_vector
from omnigraph.embedding.config import EmbeddingConfig
from omnigraph.engines.base import Execution, StepReport
from omnigraph.errors import (
    InputError,
    NotFound,
    ParameterError,
    QueryParseError,
    QueryTypeError,
)
from omnigraph.graph import READERS_KEPT_MAX, Graph, open_graph

SCHEMA = """
node Person { name: String @key  age: I32? }
node Memo { key: String @key  vec: Vector(4)?  named: Vector(4)? @embed("key", model="m1") }
edge Knows: Person -> Person
"""
ADD = "query add($n: String) { insert Person { name: $n } }"
NAMES = "query names { match { $p: Person } return { $p.name as name } order { name } }"
ONE = "query one($n: String) { match { $p: Person { name: $n } } return { $p.name as name } }"
SIMILAR = """
query similar($q: String) {
    match { $m: Memo }
    return { $m.key as key, nearest($m.PROPERTY, $q) as distance }
    order { nearest($m.PROPERTY, $q) }
    limit 3
}
"""


class RecordingEngine:
    """Stands where an engine stands, and keeps what it was asked."""

    name = "recording"

    def __init__(self) -> None:
        self.runs: list[Execution] = []

    def execute(self, run: Execution) -> pa.Table:
        self.runs.append(run)
        if run.trace is not None:
            run.trace.steps.append(StepReport("Scan $p: Person", "by hand", 0, 0.5))
        return pa.table({column.name: pa.array([], pa.string()) for column in run.plan.columns})


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA)
    for name in ("ada", "bo"):
        graph.mutate(ADD, {"n": name})
    return graph


@pytest.fixture
def recorder(graph: Graph) -> RecordingEngine:
    engine = RecordingEngine()
    graph._opened.engines["local"] = engine
    return engine


def names(graph: Graph, **options: Any) -> list[str]:
    return [row["name"] for row in graph.query(NAMES, **options)]


# --- what is read ---------------------------------------------------------------------------------


def test_a_query_reads_the_head_of_main(graph: Graph):
    result = graph.query(NAMES)
    assert result.to_pylist() == [{"name": "ada"}, {"name": "bo"}]
    assert (result.query_name, str(result.target)) == ("names", "branch main")
    assert result.graph_commit_id == graph.snapshot().graph_commit_id


def test_c_qry_062_a_fresh_branch_shows_the_head_it_inherits(graph: Graph):
    graph.create_branch("review")
    result = graph.query(NAMES, branch="review")
    assert result.graph_commit_id == graph.snapshot("main").graph_commit_id
    graph.mutate(ADD, {"n": "cy"}, branch="review")
    assert names(graph, branch="review") == ["ada", "bo", "cy"]
    assert names(graph) == ["ada", "bo"]


def test_c_bra_014_a_new_query_sees_what_another_handle_wrote(graph: Graph):
    assert names(graph) == ["ada", "bo"]
    open_graph(graph.uri).mutate(ADD, {"n": "cy"})
    assert names(graph) == ["ada", "bo", "cy"]


def test_every_commit_of_any_branch_can_be_read(graph: Graph):
    first = graph.list_commits()[1].graph_commit_id
    graph.create_branch("review")
    receipt = graph.mutate(ADD, {"n": "cy"}, branch="review")
    assert receipt.commit is not None
    landed = receipt.commit.graph_commit_id
    assert names(graph, snapshot=first) == ["ada"]
    assert names(graph, snapshot=landed) == ["ada", "bo", "cy"]
    result = graph.query(NAMES, snapshot=landed)
    assert result.target.to_dict() == {"branch": None, "snapshot": landed}
    assert result.graph_commit_id == landed


def test_a_file_is_given_as_a_path(graph: Graph, tmp_path: Path):
    file = tmp_path / "people.gq"
    file.write_text(NAMES + ONE)
    assert graph.query(file, {"n": "bo"}, name="one").to_pylist() == [{"name": "bo"}]


def test_a_graph_opened_read_only_answers(graph: Graph):
    assert names(open_graph(graph.uri, "read_only")) == ["ada", "bo"]


def test_queries_may_run_side_by_side(graph: Graph):
    found: list[list[str]] = []
    threads = [threading.Thread(target=lambda: found.append(names(graph))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [["ada", "bo"]] * 4


# --- what is checked before -----------------------------------------------------------------------


def test_what_cannot_be_read_is_named(graph: Graph):
    with pytest.raises(NotFound, match="there is no branch `reveiw`"):
        graph.query(NAMES, branch="reveiw")
    with pytest.raises(NotFound, match="there is no commit 01K3Z7M0Q8W4R6T2Y5V9B1N3XC"):
        graph.query(NAMES, snapshot="01K3Z7M0Q8W4R6T2Y5V9B1N3XC")
    with pytest.raises(InputError, match="a branch or a snapshot, not both"):
        graph.query(NAMES, branch="main", snapshot="01K3Z7M0Q8W4R6T2Y5V9B1N3XC")


def test_a_query_that_cannot_run_is_refused_where_it_is_wrong(graph: Graph):
    with pytest.raises(InputError, match="query 'add' writes") as caught:
        graph.query(ADD, {"n": "cy"})
    assert caught.value.hint == "run it with `mutate` instead of `query`"
    with pytest.raises(QueryParseError):
        graph.query("query q {")
    with pytest.raises(QueryTypeError, match="T1"):
        graph.query("query q { match { $p: Persn } return { $p } }")
    with pytest.raises(NotFound, match="query 'nmaes' not found"):
        graph.query(NAMES, name="nmaes")


def test_c_qry_013_a_missing_parameter_is_told_before_anything_is_read(graph: Graph):
    graph.query(ONE, {"n": "ada"})
    with measure() as storage, pytest.raises(ParameterError, match="parameter 'n' not provided"):
        graph.query(ONE)
    assert storage.report().requests == 0


def test_engines_are_picked_by_name(graph: Graph):
    assert len(graph.query(NAMES, engine="local")) == 2
    with pytest.raises(InputError, match="there is no engine `lokal`") as caught:
        graph.query(NAMES, engine="lokal")
    assert caught.value.hint == "did you mean `local`?"
    with pytest.raises(InputError, match="there is no engine `flink`"):
        graph.query(NAMES, engine="flink")


# --- what an engine is given ----------------------------------------------------------------------


def test_an_engine_gets_bound_parameters_and_one_instant(graph: Graph, recorder: RecordingEngine):
    graph.query("query q($n: I64, $m: String?) { match { $p: Person } return { $n } }", {"n": "7"})
    (run,) = recorder.runs
    assert run.parameters == {"n": 7, "m": None}
    assert run.now.microsecond % 1000 == 0
    assert run.now.utcoffset() is not None
    assert run.trace is None


def test_a_warm_query_of_an_unmoved_branch_is_one_probe_and_keeps_plan_and_reader(
    graph: Graph, recorder: RecordingEngine
):
    graph.query(ONE, {"n": "ada"})
    with measure() as storage:
        graph.query(ONE, {"n": "bo"})
    assert storage.report().counts == {("lance", "latest_version"): 1}
    first, second = recorder.runs
    assert first.plan is second.plan
    assert first.reader is second.reader
    graph.mutate(ADD, {"n": "cy"})
    graph.query(ONE, {"n": "bo"})
    assert recorder.runs[2].reader is not first.reader


def test_heads_of_few_branches_are_kept_open(graph: Graph, recorder: RecordingEngine):
    for number in range(READERS_KEPT_MAX + 2):
        graph.create_branch(f"b{number}")
        graph.query(NAMES, branch=f"b{number}")
    assert len(graph._opened.readers) == READERS_KEPT_MAX
    assert "b0" not in graph._opened.readers


# --- explaining -----------------------------------------------------------------------------------


def test_explain_tells_how_a_query_ran(graph: Graph, recorder: RecordingEngine):
    assert graph.query(NAMES).explain is None
    explained = graph.query(NAMES, explain=True).explain
    assert explained is not None
    assert explained.plan[:2] == ("read names", "  Scan $p: Person")
    assert explained.run is not None
    assert explained.run.engine == "recording"
    assert [step.strategy for step in explained.run.steps] == ["by hand"]
    assert explained.run.storage["requests"] == 1


def test_explain_alone_runs_nothing(graph: Graph, recorder: RecordingEngine):
    assert graph.explain(NAMES + ONE, name="one").plan[0] == "read one($n: String)"
    assert graph.explain(ADD).plan[0] == "mutation add($n: String)"
    assert recorder.runs == []
    assert graph.explain(ADD).run is None


# --- texts ----------------------------------------------------------------------------------------


def with_memos(graph: Graph, embedding: EmbeddingConfig | None) -> Graph:
    add = "query add($k: String, $v: Vector(4)) { insert Memo { key: $k, vec: $v, named: $v } }"
    for text in ("alpha", "beta"):
        graph.mutate(add, {"k": text, "v": mock_vector(text, 4)})
    return open_graph(graph.uri, "read_only", embedding=embedding)


def test_c_srch_022_a_text_is_embedded_with_the_injected_configuration(graph: Graph):
    opened = with_memos(graph, EmbeddingConfig.of("mock"))
    found = opened.query(SIMILAR.replace("PROPERTY", "vec"), {"q": "beta"}).to_pylist()
    assert [row["key"] for row in found] == ["beta", "alpha"]
    assert found[0]["distance"] == pytest.approx(0)


def test_c_srch_022_a_text_equals_its_vector_alone_and_inside_rrf(graph: Graph):
    opened = with_memos(graph, EmbeddingConfig.of("mock"))
    fused = SIMILAR.replace("nearest($m.PROPERTY, $q)", "rrf(nearest($m.vec, $q), CALL)")
    fused = fused.replace("CALL", 'bm25($m.key, "alpha")')
    for text in (SIMILAR.replace("PROPERTY", "vec"), fused):
        by_text = opened.query(text, {"q": "gamma"}).to_pylist()
        with_vector = text.replace("String", "Vector(4)")
        assert by_text == opened.query(with_vector, {"q": mock_vector("gamma", 4)}).to_pylist()
        assert len(by_text) == 2


def test_c_srch_023_a_recorded_model_has_to_be_the_one_that_embeds(graph: Graph):
    query = SIMILAR.replace("PROPERTY", "named")
    opened = with_memos(graph, EmbeddingConfig.of("mock", model="m1"))
    assert len(opened.query(query, {"q": "beta"})) == 2
    other = open_graph(graph.uri, embedding=EmbeddingConfig.of("mock", model="m2"))
    with pytest.raises(InputError, match=r"vectors of Memo\.named .*`m1`.*`m2`"):
        other.query(query, {"q": "beta"})


def test_c_srch_024_only_texts_need_a_provider(graph: Graph, monkeypatch: pytest.MonkeyPatch):
    for name in ("OPENROUTER_API_KEY", "OPENAI_API_KEY", "OMNIGRAPH_EMBEDDINGS_MOCK"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("OMNIGRAPH_EMBED_PROVIDER", raising=False)
    opened = with_memos(graph, None)
    by_vector = SIMILAR.replace("PROPERTY", "vec").replace("String", "Vector(4)")
    assert len(opened.query(by_vector, {"q": [1, 0, 0, 0]})) == 2
    with pytest.raises(InputError, match="needs an API key") as caught:
        opened.query(SIMILAR.replace("PROPERTY", "vec"), {"q": "beta"})
    assert "OPENROUTER_API_KEY or OPENAI_API_KEY" in str(caught.value.hint)
