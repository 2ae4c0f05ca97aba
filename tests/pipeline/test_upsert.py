"""Upserts on executors give exactly what the write path of one process gives."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.errors import ConstraintViolation, OmnigraphError
from omnigraph.graph import Graph, SparkOptions
from omnigraph.loading import upsert as upsert_stage
from omnigraph.loading.executors import TaskRunner
from omnigraph.loading.task_load import TaskLoad
from tests.commit.loading import edge, lines, node
from tests.pipeline.conftest import SCHEMA
from tests.pipeline.test_parity import (
    BAD,
    GOOD,
    SEED,
    counts,
    exported,
    loaded,
    problems,
)
from tests.support.graphs import with_settings

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def merged(graph: Graph, path: Path, spark: Any) -> Any:
    """The outcome of an upsert on executors."""
    outcome = loaded(graph, "spark", path, "merge", spark)
    if not isinstance(outcome, Exception):
        assert "match" in [stage.name for stage in outcome.stages]
    return outcome


def note(id: str, text: str, **more: Any) -> dict[str, Any]:
    return {"type": "Note", "data": {"id": id, "text": text, **more}}


def about(id: str, source: str, target: str) -> dict[str, Any]:
    return {"edge": "About", "from": source, "to": target, "data": {"id": id}}


def rows(graph: Graph, table_key: str) -> dict[str, tuple[int, int]]:
    """By id, the row id and the version of the last change."""
    columns = ["id", "_rowid", "_row_last_updated_at_version"]
    found = graph._opened.reader().handle(table_key).to_table(columns=columns).to_pylist()
    return {row["id"]: (row[columns[1]], row[columns[2]]) for row in found}


CASES: dict[str, bytes] = {
    "rows that are new, that differ, and that do not": GOOD["merge"],
    "values that move on, blobs, and the last of several records": lines(
        node("Person", slug="ada", email="bob@x.org", photo="base64:AAEC"),
        node("Person", slug="bob", email="new@x.org"),
        node("Person", slug="cat", photo=None),
        note("n1", "a"),
        note("n2", "b"),
        note("n2", "c"),
        note("n1", "first"),
    ),
    "nothing new": lines(
        node("Slot", region="north", code=7, on="2024-02-29", note="a"), note("n1", "first")
    ),
    "properties that records lack beside nulls": lines(
        node("Person", slug="ada", name=None),
        node("Person", slug="bob", tags=["a"], leaf=[1, 2], photo="base64:AAEC"),
        node("Person", slug="cat"),
        node("Slot", region="north", code=7),
        {"type": "Note", "data": {"id": "n1", "stars": 5}},
        {"edge": "Knows", "from": "ada", "to": "bob", "data": {"id": "k1", "weight": 1}},
    ),
    "edges that are found by their key": lines(
        edge("Rates", "ada", "n1", on="2024-02-29", stars=5),
        edge("Rates", "bob", "n1", on="2024-02-29"),
        edge("Rates", "bob", "n1", on="2024-03-01"),
    ),
    "problems of edges that have the same key": lines(
        edge("Rates", "ada", "n1", on="2024-02-29", stars=5),
        edge("Rates", "ada", "n1", on="2024-02-29", stars=6),
        edge("Rates", "bob", "n1", on="2024-02-29"),
        edge("Rates", "bob", "nobody", on="2024-02-29"),
    ),
    "all kinds of problems": BAD["merge"],
    "problems of new entities that lack what is required": lines(
        {"type": "Note", "data": {"id": "n1", "stars": 5}},
        {"type": "Note", "data": {"id": "n7", "stars": 5}},
        {"type": "Note", "data": {"stars": 6}},
        about("a7", "n7", "ada"),
        about("a8", "n8", "ada"),
        node("Person", slug="eve", email="bob@x.org"),
    ),
    "problems of records, each with an id of its own": lines(
        node("Person", slug="aaa", email="bob@x.org"),
        # It changes nothing, and holds what the one before would take.
        node("Person", slug="bob", name="Bob", email="bob@x.org"),
        node("Person", slug="dan", email="new@x.org"),
        node("Person", slug="eve", email="new@x.org"),
        node("Slot", region="south", code=1, on="2024-02-29", note="a"),
        note("n2", "b"),
        about("a1", "n2", "ada"),  # moved from one source to another
        *(about(f"a{i}", "n1", "bob") for i in range(2, 5)),
        node("Person", slug="bad", age="old"),
        edge("Knows", "bob", "bad", id="k2"),
        edge("Knows", "bob", "gone", id="k3"),
    ),
    "problems of records that repeat each other": lines(
        node("Slot", region="a", code=1, on="2024-01-01", note="x"),
        node("Slot", region="b", code=2, on="2024-01-01", note="x"),
        node("Slot", region="c", code=3, on="2024-02-29", note="a"),
        node("Slot", region="a", code=1, on="2024-01-02", note="y"),
        *(node("Person", slug="thrice", name=str(i)) for i in range(3)),
        # Of these three, the first is overruled, and its end with it.
        about("a1", "n1", "nobody"),
        about("a1", "n1", "bob"),
        about("a9", "n1", "nobody"),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_c_pip_010_an_upsert_on_executors_is_the_one_of_a_process(case, tmp_path, spark):
    path = tmp_path / "in.jsonl"
    path.write_bytes(CASES[case])
    graphs = [omnigraph.init(tmp_path / f"{name}.omni", SCHEMA) for name in ("here", "there")]
    for graph in graphs:
        graph.load(data=SEED, mode="append")
    before = [rows(graph, "node:Person") for graph in graphs]
    here = loaded(graphs[0], "local", path, "merge", spark)
    there = merged(graphs[1], path, spark)
    assert isinstance(here, OmnigraphError) == ("problems" in case)
    if isinstance(here, OmnigraphError):
        assert problems(here) == problems(there)
        assert here.details["counts"] == there.details["counts"]
        assert not unlisted(graphs[1])
    else:
        assert not isinstance(there, Exception), there
        assert counts(here) == counts(there)
        assert (here.commit is None) == (there.commit is None)
    assert exported(graphs[0]) == exported(graphs[1])
    assert before[0] == before[1]
    assert rows(graphs[0], "node:Person") == rows(graphs[1], "node:Person")
    assert not (tmp_path / "there.omni" / "__load").exists()


def test_a_minimum_holds_for_sources_that_lose_their_edges(tmp_path, spark):
    schema = "node A { k: String @key }\nedge E: A -> A @card(1..2)"
    a, b = node("A", k="a"), node("A", k="b")

    def e(id: str, source: str) -> dict[str, Any]:
        return {"edge": "E", "from": source, "to": "a", "data": {"id": id}}

    found = []
    path = tmp_path / "in.jsonl"
    path.write_bytes(lines(e("1", "b"), e("3", "b")))
    for engine in ("local", "spark"):
        graph = omnigraph.init(tmp_path / f"{engine}.omni", schema)
        graph.load(data=lines(a, b, e("1", "a"), e("2", "b")), mode="append")
        outcome = (
            loaded(graph, "local", path, "merge", spark)
            if engine == "local"
            else merged(graph, path, spark)
        )
        found.append(problems(outcome))
    assert found[0] == found[1]
    assert {problem[-1].rpartition(": ")[2] for problem in found[0]} == {
        "source 'a' has 0 edges (min 1)",
        "source 'b' has 3 edges (max 2)",
    }


# --- chance ---


def story(chance: random.Random, *, careful: bool) -> list[bytes]:
    """A few upserts in a row; careless ones break rules now and then."""
    people = [f"p{i}" for i in range(6)]
    notes = [f"n{i}" for i in range(4)]
    known: set[str] = set()

    def records() -> Iterator[dict[str, Any]]:
        slugs = chance.sample(people, chance.randint(2, 5))
        if not careful and chance.random() < 0.3:
            slugs.append(chance.choice(slugs))
        for slug in slugs:
            known.add(slug)
            email = f"{slug}@x" if careful else chance.choice([None, "a@x", "b@x", f"{slug}@x"])
            yield node("Person", slug=slug, age=chance.choice([None, 1, 2]), email=email)
        for _ in range(chance.randint(0, 4)):
            yield note(chance.choice(notes), chance.choice("xy"))
        yield from (note(id, "z") for id in notes if chance.random() < 0.5)
        for i in range(chance.randint(0, 4)):
            target = chance.choice(sorted(known) if careful else people)
            id = f"k{chance.randint(0, 5)}-{i}" if careful else f"k{chance.randint(0, 5)}"
            yield {
                "edge": "Knows",
                "from": chance.choice(sorted(known)),
                "to": target,
                "data": {"id": id, "weight": chance.choice([None, 0.0, -0.0, 1.5])},
            }

    return [lines(*records()) for _ in range(3)]


@pytest.fixture(params=["few", "many"])
def ids(request, monkeypatch):
    """How many ids the records are thought to have: those of many are spread over workers."""
    if request.param == "many":
        monkeypatch.setattr(upsert_stage, "BROADCAST_IDS_MAX", 0)


@pytest.mark.usefixtures("ids")
@pytest.mark.parametrize("seed", range(2))
def test_c_pip_010_any_row_of_upserts_is_the_same_on_executors(seed, tmp_path, spark):
    steps = story(random.Random(seed), careful=seed % 2 == 0)
    here = omnigraph.init(tmp_path / "here.omni", SCHEMA)
    there = omnigraph.init(tmp_path / "there.omni", SCHEMA)
    path = tmp_path / "in.jsonl"
    for step in steps:
        path.write_bytes(step)
        one, other = loaded(here, "local", path, "merge", spark), merged(there, path, spark)
        if isinstance(one, Exception):
            assert type(one) is type(other)
            assert str(one) == str(other)
        else:
            assert not isinstance(other, Exception), other
            assert counts(one) == counts(other)
        assert exported(here) == exported(there)
        for key in ("node:Person", "node:Note", "edge:Knows"):
            assert rows(here, key).keys() == rows(there, key).keys()


# --- tables in many fragments, branches ---


def people(numbers: Sequence[int], **more: Any) -> bytes:
    return lines(*(node("Person", slug=f"p{i}", age=i % 100, **more) for i in numbers))


def names_of(graph: Graph, *ids: str) -> list[str]:
    found = [graph.entity_at("node:Person", id) for id in ids]
    return [person["name"] for person in found if person is not None]


@pytest.mark.usefixtures("ids")
def test_c_pip_010_rows_of_many_fragments_are_replaced_where_they_lie(
    graph: Graph, spark: Any, tmp_path: Path
):
    graph = with_settings(graph, table_compact_every=100)
    for start in range(0, 40, 10):
        graph.load(data=people(range(start, start + 10)), mode="append")
    before = rows(graph, "node:Person")
    files = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    # All of the first fragment, some of the second and third, none of the fourth; and new ones.
    files[0].write_bytes(people([*range(10), 15, 22], name="x"))
    files[1].write_bytes(people([25, 50, 51], name="y"))
    receipt = graph.load(*files, mode="merge", engine="spark", spark=SparkOptions(spark))
    (count,) = receipt.nodes
    assert (count.records_read, count.inserted, count.updated) == (15, 2, 13)
    after = rows(graph, "node:Person")
    changed = {f"p{i}" for i in (*range(10), 15, 22, 25)}
    assert {id for id in before if after[id] != before[id]} == changed
    assert all(after[id][0] == before[id][0] for id in before), "row ids stay"
    assert len({row_id for row_id, _ in after.values()}) == len(after) == 42
    handle = graph._opened.reader().handle("node:Person")
    assert 0 not in {fragment.fragment_id for fragment in handle.get_fragments()}
    # Once more on top of deleted rows, and found by an index on ids that is older.
    graph.ensure_indices()
    files[0].write_bytes(people([2, 15, 30], name="z"))
    graph.load(files[0], mode="merge", engine="spark", spark=SparkOptions(spark))
    assert names_of(graph, "p2", "p15", "p30", "p25") == ["z", "z", "z", "y"]


def test_the_first_write_of_a_branch_may_be_an_upsert_on_executors(graph, spark, tmp_path):
    graph.load(data=people(range(6)), mode="append")
    path = tmp_path / "a.jsonl"
    path.write_bytes(people([1, 2, 9], name="x"))
    for _ in range(2):  # on tables of main, then on its own
        graph.load(
            path, mode="merge", engine="spark", spark=SparkOptions(spark), branch="b", from_="main"
        )
        path.write_bytes(people([2, 3, 10], name="y"))
    names = {
        record["data"]["slug"]: record["data"].get("name")
        for record in map(json.loads, b"".join(graph.export(branch="b")).splitlines())
    }
    assert {slug: name for slug, name in names.items() if name} == {
        "p1": "x",
        "p2": "y",
        "p3": "y",
        "p9": "x",
        "p10": "y",
    }
    assert len(names) == 8
    assert len(b"".join(graph.export()).splitlines()) == 6


def test_a_dry_run_of_an_upsert_on_executors_writes_nothing(graph, spark, tmp_path):
    graph.load(data=people(range(3)), mode="append")
    path = tmp_path / "a.jsonl"
    path.write_bytes(people([1, 2, 9], name="x"))
    before = sorted(Path(graph.uri).rglob("*"))
    receipt = graph.load(
        path, mode="merge", engine="spark", spark=SparkOptions(spark), dry_run=True
    )
    (count,) = receipt.nodes
    assert (count.inserted, count.updated) == (1, 2)
    assert sorted(Path(graph.uri).rglob("*")) == before


# --- branches that move ---


def moved_once(monkeypatch: pytest.MonkeyPatch, move: Any) -> list[int]:
    """Have ``move`` run after the first check of a load; the list counts the checks."""
    checks: list[int] = []
    real = TaskLoad._check

    def check(self: Any, job: Any, staged: Any) -> None:
        real(self, job, staged)
        checks.append(1)
        if len(checks) == 1:
            thread = threading.Thread(target=move)
            thread.start()
            thread.join()

    monkeypatch.setattr(TaskLoad, "_check", check)
    return checks


@pytest.fixture
def upsert(graph: Graph, spark: Any, tmp_path: Path) -> Any:
    graph.load(data=people(range(4)), mode="append")

    def run(data: bytes) -> Any:
        path = tmp_path / "in.jsonl"
        path.write_bytes(data)
        return graph.load(path, mode="merge", engine="spark", spark=SparkOptions(spark))

    return run


def unlisted(graph: Graph) -> set[str]:
    """Data files of people that no version lists."""
    handle = graph._opened.reader().handle("node:Person")
    there = {path.name for path in (Path(handle.uri) / "data").glob("*.lance")}
    return there - {
        file.path
        for version in handle.versions()
        for fragment in handle.checkout_version(version["version"]).get_fragments()
        for file in fragment.metadata.files
    }


def test_what_came_meanwhile_is_replaced_as_well(graph, upsert, monkeypatch):
    other = omnigraph.open(graph.uri)
    theirs = people([2, 7], name="theirs")
    checks = moved_once(monkeypatch, lambda: other.load(data=theirs, mode="merge"))
    receipt = upsert(people([1, 2, 7, 8], name="ours"))
    assert len(checks) == 2
    assert (receipt.nodes[0].updated, receipt.nodes[0].inserted) == (3, 1)
    assert set(names_of(graph, "p1", "p2", "p7", "p8")) == {"ours"}
    assert len(rows(graph, "node:Person")) == 6
    assert not graph._kernel.sidecars.names()
    assert not unlisted(graph), "rows of the first attempt were left behind"


def test_an_upsert_is_held_against_what_came_meanwhile(graph, upsert, monkeypatch):
    other = omnigraph.open(graph.uri)
    theirs = lines(node("Person", slug="zoe", email="z@x"))
    moved_once(monkeypatch, lambda: other.load(data=theirs, mode="append"))
    with pytest.raises(ConstraintViolation, match="value 'z@x' held by 'zoe' and 'p1'"):
        upsert(lines(node("Person", slug="p1", email="z@x"), node("Person", slug="p9")))
    assert graph.entity_at("node:Person", "p1")["email"] is None
    assert not unlisted(graph)


def test_tables_that_stayed_are_not_matched_again(graph, upsert, monkeypatch):
    other = omnigraph.open(graph.uri)
    moved_once(monkeypatch, lambda: other.load(data=lines(note("n1", "x")), mode="append"))
    labels: list[str] = []
    real = TaskRunner.run

    def run(self: Any, stage: str, label: str, action: Any) -> Any:
        labels.append(label)
        return real(self, stage, label, action)

    monkeypatch.setattr(TaskRunner, "run", run)
    upsert(people([1, 2, 9], name="x"))
    assert [label for label in labels if "ids of" in label] == ["7 ids of node:Person"]
    assert len(rows(graph, "node:Person")) == 5
