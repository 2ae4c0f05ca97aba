"""What Spark's workers do, done by threads: small inputs are loaded without a session.

The corpora are those of the tests on workers, and so is what has to come out.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph.errors import InputError, OmnigraphError
from omnigraph.graph import ErrorOptions, Graph
from omnigraph.loading.inputs import EngineChoice, choose_engine
from omnigraph.loading.staging import BufferedRows
from omnigraph.loading.task_load import TaskLoad
from tests.commit.loading import edge, lines, node
from tests.pipeline.conftest import SCHEMA
from tests.pipeline.test_parity import BAD, GOOD, SEED, both, counts, exported, problems
from tests.pipeline.test_upsert import CASES, note, rows


@pytest.fixture(autouse=True)
def by_threads(on_workers: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Loads that ask for Spark are run by threads; none may find a session, or build one."""

    def build(*_: Any) -> None:
        raise AssertionError("Spark was started")

    def choose(asked: Any, *inputs: Any, **options: Any) -> EngineChoice:
        choice = choose_engine(asked, *inputs, **options)
        return replace(choice, engine="local")

    monkeypatch.setattr("omnigraph.loading.inputs.choose_engine", choose)
    monkeypatch.setattr("omnigraph.pipeline.spark.session._active", lambda: None)
    monkeypatch.setattr("omnigraph.pipeline.spark.session.build_session", build)
    monkeypatch.delenv("OMNIGRAPH_SPARK_THRESHOLD_BYTES")


@pytest.fixture(params=[True, False], ids=["held", "written aside"])
def room(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of an upsert stay in memory; without room there, they are written and read again."""
    if not request.param:
        monkeypatch.setattr(BufferedRows, "has_room", lambda *_: False)


@pytest.mark.parametrize("mode", GOOD)
def test_c_pip_001_threads_give_the_same_tables_ids_and_counts(mode, room, tmp_path):
    (local, here), (bulk, there) = both(tmp_path, GOOD[mode], mode, None)
    assert not isinstance(here, Exception), here
    assert not isinstance(there, Exception), there
    assert exported(local) == exported(bulk)
    assert counts(here) == counts(there)
    assert there.engine == "local" and "plan" in [stage.name for stage in there.stages]
    assert len(bulk.list_commits()) == len(local.list_commits()) == 3


@pytest.mark.parametrize("mode", BAD)
def test_c_pip_002_threads_find_the_same_problems(mode, tmp_path):
    (local, here), (bulk, there) = both(tmp_path, BAD[mode], mode, None)
    assert problems(here) == problems(there)
    assert here.details["counts"] == there.details["counts"]
    assert len(bulk.list_commits()) == 2
    assert exported(bulk) == exported(local)


def told(error: Any, kind: str) -> list[dict[str, Any]]:
    """The problems of a kind."""
    return [each for each in error.details["problems"] if each["kind"] == kind]


@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_c_pip_002_a_key_that_repeats_is_told_at_its_second_record(mode, tmp_path):
    data = lines(*(node("Person", slug=slug) for slug in ("a", "x", "x", "b", "x", "x", "b")))
    for _, error in both(tmp_path, data, mode, None):
        first, second = told(error, "repeated_key")
        assert (first["line"], second["line"]) == (3, 7)
        assert re.search(rf"in .*{mode}\.jsonl:2 and .*{mode}\.jsonl:3$", first["message"])
        assert re.search(rf"in .*{mode}\.jsonl:4 and .*{mode}\.jsonl:7$", second["message"])
        assert (first["hint"], second["hint"]) == ("4 records have it", None)


def test_c_pip_002_a_frame_with_a_key_twice_names_both_rows(tmp_path):
    graph = omnigraph.init(tmp_path / "g.omni", schema=SCHEMA)
    frame = pa.table({"slug": ["a", "Ben-Hur", "b", "Ben-Hur"]})
    with pytest.raises(OmnigraphError) as caught:
        graph.load(frames={"Person": frame}, mode="append", engine="local")
    both_rows = "held by 'Ben-Hur' and 'Ben-Hur', in <frame Person>:2 and <frame Person>:4"
    assert both_rows in caught.value.message


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_c_pip_002_too_many_edges_are_told_at_the_first_of_them(mode, room, tmp_path):
    n2 = {"type": "Note", "data": {"id": "n2", "text": "x"}}
    ends = [("n2", "ada"), ("n1", "bob"), ("n1", "ada")]
    about = [edge("About", *each, id=f"a{i}") for i, each in enumerate(ends, 2)]
    data = lines(n2, *about)
    for _, error in both(tmp_path, data, mode, None):
        hint = "leave out edges, or allow more of them with @card in the schema"
        (problem,) = told(error, "cardinality")
        assert (problem["line"], problem["hint"]) == (3, hint)


@pytest.mark.parametrize("case", CASES)
def test_c_pip_010_an_upsert_by_threads_is_the_one_of_a_process(case, room, tmp_path):
    path = tmp_path / "in.jsonl"
    path.write_bytes(CASES[case])
    outcomes: list[Any] = []
    graphs = [omnigraph.init(tmp_path / f"{name}.omni", SCHEMA) for name in ("local", "bulk")]
    for graph, engine in zip(graphs, ("local", "spark"), strict=True):
        graph.load(data=SEED, mode="append")
        outcomes.append(outcome(graph, path, engine))
    here, there = outcomes
    assert isinstance(here, OmnigraphError) == ("problems" in case)
    if isinstance(here, OmnigraphError):
        assert problems(here) == problems(there)
    else:
        assert counts(here) == counts(there)
    assert exported(graphs[0]) == exported(graphs[1])
    assert rows(graphs[0], "node:Person") == rows(graphs[1], "node:Person")
    assert not (tmp_path / "bulk.omni" / "__load").exists()


def outcome(graph: Graph, path: Path, engine: Any) -> Any:
    try:
        return graph.load(
            path, mode="merge", grammar="strict", engine=engine, errors=ErrorOptions(1000)
        )
    except OmnigraphError as error:
        return error


def upsert(graph: Graph, path: Path, *records: dict[str, Any], **more: Any) -> Any:
    path.write_bytes(lines(*records))
    return graph.load(path, mode="merge", engine="spark", **more)


def test_rows_of_many_columns_and_fragments_are_compared_where_they_lie(tmp_path):
    """Some of many rows are fetched one by one, most of them are found in a scan."""
    graph = omnigraph.init(tmp_path / "g.omni", "node N { k: String @key  n: I32  t: String? }")
    table = pa.table(
        {
            "k": [f"k{i}" for i in range(400)],
            "n": pa.array([0] * 400, pa.int32()),
            "t": ["x"] * 400,
        }
    )
    for start in (0, 200):
        pq.write_table(table.slice(start, 200), tmp_path / "n.parquet")
        graph.load(nodes={"N": tmp_path / "n.parquet"}, mode="append")
    before = rows(graph, "node:N")
    changed = [node("N", k=f"k{i}", n=i % 2, t="x") for i in range(150, 350)]
    receipt = upsert(graph, tmp_path / "a.jsonl", *changed, node("N", k="new", n=1))
    (loaded,) = receipt.nodes
    assert (loaded.inserted, loaded.updated, loaded.unchanged) == (1, 100, 100)
    receipt = upsert(graph, tmp_path / "a.jsonl", node("N", k="k1", n=0, t="y"))
    assert receipt.nodes[0].updated == 1
    receipt = upsert(graph, tmp_path / "a.jsonl", node("N", k="k1", n=0, t="y"))
    assert (receipt.nodes[0].unchanged, receipt.commit) == (1, None)
    after = rows(graph, "node:N")
    moved = {key for key, (_, version) in after.items() if before.get(key, (0, 0))[1] != version}
    assert moved == {f"k{i}" for i in range(151, 350, 2)} | {"k1", "new"}
    assert all(after[key][0] == row_id for key, (row_id, _) in before.items())


def test_a_table_that_its_branch_has_no_copy_of_is_upserted_where_the_copy_will_be(tmp_path):
    graph = omnigraph.init(tmp_path / "g.omni", SCHEMA)
    graph.load(data=lines(note("n1", "a"), note("n2", "b")), mode="append")
    graph.create_branch("review")
    path = tmp_path / "a.jsonl"
    receipt = upsert(graph, path, note("n1", "c"), note("n3", "d"), branch="review")
    assert (receipt.nodes[0].inserted, receipt.nodes[0].updated) == (1, 1)
    records = [json.loads(line) for line in b"".join(graph.export(branch="review")).splitlines()]
    assert sorted(record["data"]["text"] for record in records) == ["b", "c", "d"]
    assert [record["data"]["text"] for record in exported(graph)] == ["a", "b"]


def test_an_upsert_meets_what_came_meanwhile(tmp_path, monkeypatch):
    graph = omnigraph.init(tmp_path / "g.omni", SCHEMA)
    graph.load(data=lines(note("n1", "a")), mode="append")
    other = omnigraph.open(graph.uri)
    checks = after_first_check(
        monkeypatch, lambda: other.load(data=lines(note("n1", "b"), note("n2", "c")), mode="merge")
    )
    receipt = upsert(graph, tmp_path / "a.jsonl", note("n1", "d"), note("n2", "e"))
    assert len(checks) == 2
    assert (receipt.nodes[0].inserted, receipt.nodes[0].updated) == (0, 2)
    texts = [record["data"]["text"] for record in exported(graph)]
    assert texts == ["d", "e"]


def after_first_check(monkeypatch: pytest.MonkeyPatch, move: Callable[[], Any]) -> list[int]:
    checks: list[int] = []
    real = TaskLoad._check

    def check(self: TaskLoad, *arguments: Any) -> None:
        real(self, *arguments)
        checks.append(1)
        if len(checks) == 1:
            move()

    monkeypatch.setattr(TaskLoad, "_check", check)
    return checks


def test_c_pip_005_every_problem_of_a_small_input_is_listed(tmp_path):
    graph = omnigraph.init(tmp_path / "g.omni", SCHEMA)
    path, listed = tmp_path / "a.csv", tmp_path / "errors.jsonl"
    bad = "".join(f"p{i},old\n" for i in range(7))
    path.write_text(f"slug,age\n{bad}q1,1\nq1,2\n")
    with pytest.raises(InputError) as caught:
        graph.load(nodes={"Person": path}, mode="append", errors=ErrorOptions(2, listed))
    assert len(caught.value.details["problems"]) == 2
    assert caught.value.details["counts"] == {"bad_value": 7, "repeated_key": 1}
    kinds = [json.loads(line)["kind"] for line in listed.read_text().splitlines()]
    assert sorted(kinds) == ["bad_value"] * 7 + ["repeated_key"]
    assert len(graph.list_commits()) == 1


def test_edges_without_ids_need_no_look_at_those_of_others(tmp_path):
    graph = omnigraph.init(tmp_path / "g.omni", SCHEMA)
    graph.load(data=SEED, mode="append")
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(*(edge("Knows", "ada", "bob") for _ in range(3))))
    assert graph.load(path, mode="append", engine="spark").edges[0].inserted == 3
    path.write_bytes(lines(edge("Knows", "ada", "nobody"), edge("Knows", "ada", "bob", id="k1")))
    with pytest.raises(InputError) as caught:
        graph.load(path, mode="append", engine="spark", errors=ErrorOptions(9))
    kinds = {each["kind"] for each in caught.value.details["problems"]}
    assert kinds == {"missing_node", "existing_id"}


def test_the_keys_that_one_process_holds_are_bounded(tmp_path, monkeypatch):
    graph = omnigraph.init(tmp_path / "g.omni", SCHEMA)
    path = tmp_path / "a.csv"
    path.write_text("slug\na\nb\nc\n")
    monkeypatch.setattr("omnigraph.loading.checks.PROCESS_KEYS_MAX", 2)
    with pytest.raises(InputError, match="3 keys have to be held") as caught:
        graph.load(nodes={"Person": path}, mode="append")
    assert "spark" in (caught.value.hint or "")
    assert len(graph.list_commits()) == 1
