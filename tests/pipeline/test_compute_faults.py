"""Queries and computations on Spark: killed workers, JVMs and drivers, branches that go, S3."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph
from omnigraph import SparkOptions
from omnigraph.engines.spark import bindings, tables
from omnigraph.engines.spark.workers import Evaluation, TableScan, WordCount
from omnigraph.errors import InputError, NotFound
from omnigraph.graph import Graph
from tests.effects import s3_server
from tests.pipeline import crash_compute
from tests.pipeline.crash_compute import PEOPLE, QUESTION, linked_people

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def people(tmp_path: Path) -> Graph:
    return linked_people(str(tmp_path / "people.omni"))


def state(graph: Graph) -> tuple[list[str], list[str], list[str]]:
    """What a fault must leave as it was: branches, commits of main, pending operations."""
    commits = [commit.graph_commit_id for commit in graph.list_commits()]
    return graph.list_branches(), commits, graph._kernel.sidecars.names()


def test_c_pip_024_workers_killed_at_each_step_of_a_query_change_no_answer(
    people: Graph, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    folder = str(tmp_path)

    def die_once(at: str) -> None:
        # Functions that workers get by value bring their imports along.
        mark = Path(folder) / f"killed-{at}"
        if not mark.exists():
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    class KilledScan(TableScan):
        __slots__ = ()

        def __call__(self, tasks: Any) -> Any:
            for batch in TableScan.__call__(self, tasks):
                die_once("nodes" if self.orientation is None else "edges")
                yield batch

    class KilledCount(WordCount):
        __slots__ = ()

        def __call__(self, part: int) -> Any:
            die_once("words")
            return WordCount.__call__(self, part)

    class KilledEvaluation(Evaluation):
        __slots__ = ()

        def __call__(self, *columns: pa.Array) -> pa.Array:
            die_once("expressions")
            return Evaluation.__call__(self, *columns)

    monkeypatch.setattr(tables, "TableScan", KilledScan)
    monkeypatch.setattr(tables, "WordCount", KilledCount)
    monkeypatch.setattr(bindings, "Evaluation", KilledEvaluation)
    wanted = people.query(QUESTION).to_pylist()
    found = people.query(QUESTION, engine="spark", spark=SparkOptions(session=spark)).to_pylist()
    assert found == wanted and found
    killed = {path.name.removeprefix("killed-") for path in tmp_path.glob("killed-*")}
    assert killed == {"nodes", "edges", "words", "expressions"}


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_values_for_a_branch_that_is_deleted_meanwhile_are_refused_and_do_not_make_it_anew(
    engine: str, people: Graph, spark: Any
):
    people.create_branch("ranks")
    options: dict[str, Any] = {"spark": SparkOptions(session=spark)} if engine == "spark" else {}

    def delete(number: int, _change: float) -> None:
        if number == 1:
            people.delete_branch("ranks")

    with pytest.raises(NotFound, match="ranks"):
        people.compute.pagerank(
            iterations=2, into="Person.rank", to_branch="ranks", on_round=delete, **options
        )
    assert people.list_branches() == ["main"]
    assert not people._kernel.sidecars.names()


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_nodes_that_are_deleted_meanwhile_do_not_come_back_with_their_values(
    engine: str, people: Graph, spark: Any
):
    options: dict[str, Any] = {"spark": SparkOptions(session=spark)} if engine == "spark" else {}

    def delete(number: int, _change: float) -> None:
        if number == 1:
            people.mutate('query q { delete Person where name = "p3" }')

    made = people.compute.pagerank(
        iterations=2, into="Person.rank", to_branch="main", on_round=delete, **options
    )
    assert made.receipt is not None
    assert (made.receipt.nodes[0].inserted, made.receipt.nodes[0].updated) == (0, PEOPLE - 1)
    assert people.entity_at("node:Person", "p3") is None


def test_values_for_a_property_that_is_dropped_meanwhile_are_refused(people: Graph, spark: Any):
    def drop(number: int, _change: float) -> None:
        if number == 1:
            people.apply_schema(people.schema_source.replace("rank: F64?", ""))

    with pytest.raises(InputError, match="rank"):
        people.compute.pagerank(
            iterations=2,
            into="Person.rank",
            to_branch="main",
            on_round=drop,
            spark=SparkOptions(session=spark),
        )
    kinds = [commit.kind for commit in people.list_commits()]
    assert kinds == ["schema", "load", "genesis"]
    assert not people._kernel.sidecars.names()


@pytest.mark.long
@pytest.mark.slow
def test_a_lost_jvm_is_a_typed_error_and_the_same_process_can_repeat_what_it_did(tmp_path: Path):
    """In a query and in a round of a computation; then the driver is killed as it commits."""
    uri = str(tmp_path / "people.omni")
    before = state(linked_people(uri))
    for stage in crash_compute.STAGES:
        with (tmp_path / "driver.log").open("wb") as log:
            done = subprocess.run(
                [sys.executable, "-m", "tests.pipeline.crash_compute", uri, stage],
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "OMNIGRAPH_SPARK_THRESHOLD_BYTES": "0"},
                check=False,
                timeout=500,
            )
        printed = (tmp_path / "driver.log").read_text()
        assert done.returncode == -signal.SIGKILL, printed
        told = json.loads(done.stdout)
        lost = "StorageError: Spark stopped while the {} was running"
        assert told["query"] == lost.format("query")
        assert told["query again"] is True
        assert told["rounds"] == lost.format("computation")
        assert told["state"] == [*before]
        graph = omnigraph.open(uri)
        if "ranks" in graph.list_branches():
            ranks = graph.table("Person", branch="ranks").to_arrow()["rank"]
            assert ranks.null_count in (0, len(ranks)), "a part of the values is there"
            assert len(graph.list_commits("ranks")) in (2, 3)
            graph.delete_branch("ranks")
        assert state(graph) == before


@pytest.mark.slow
def test_queries_and_computations_read_a_graph_on_s3_and_write_values_once(
    spark: Any, monkeypatch: pytest.MonkeyPatch
):
    with s3_server.running_s3() as address:
        s3_server.create_bucket(address, "lake")
        s3_server.use(address, monkeypatch)
        graph = linked_people("s3://lake/people.omni")
        session = SparkOptions(session=spark)
        wanted = graph.query(QUESTION).to_pylist()
        assert graph.query(QUESTION, engine="spark", spark=session).to_pylist() == wanted
        made = graph.compute.pagerank(
            iterations=2, into="Person.rank", to_branch="ranks", spark=session
        )
        assert made.receipt is not None and len(graph.list_commits("ranks")) == 3
        stored = graph.table("Person", branch="ranks").to_arrow()
        ranks = {row["id"]: row["rank"] for row in made.to_pylist()}
        assert dict(zip(*map(pa.Array.to_pylist, _columns(stored)), strict=True)) == ranks
        assert graph.table("Person").to_arrow()["rank"].null_count == len(stored)
        assert graph._kernel.store.list("__load") == []


def _columns(stored: pa.Table) -> list[pa.Array]:
    return [stored[name].combine_chunks() for name in ("id", "rank")]
