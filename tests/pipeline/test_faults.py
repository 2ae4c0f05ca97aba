"""Drivers that are killed or interrupted, executors in processes of their own."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import omnigraph
from omnigraph.graph import Graph
from tests.commit.loading import edge, lines, node
from tests.pipeline import crash_load

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.mark.slow
def test_c_pip_014_a_killed_driver_leaves_whole_loads_only(tmp_path: Path):
    assert crash_load.run(tmp_path, seed=11, runs=2) >= 2


@pytest.mark.parametrize("stage", ["read", "check"])
def test_c_pip_033_ctrl_c_leaves_no_change_and_a_session_that_works(
    stage, graph: Graph, spark: Any, tmp_path: Path
):
    before = graph.list_commits()
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(node("Person", slug="p1")))
    interrupted: list[str] = []

    def watch(progress: Any) -> None:
        # As if Ctrl-C were pressed while the stage runs: in the thread that waits for it.
        if progress.stage == stage and not progress.finished and not interrupted:
            interrupted.append(stage)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        graph.load(path, mode="append", engine="spark", spark=spark, watch=watch)
    assert interrupted
    assert graph.list_commits() == before
    assert not graph._kernel.sidecars.names()
    assert threading.active_count() < 50
    graph.load(path, mode="append", engine="spark", spark=spark)
    assert len(graph.list_commits()) == len(before) + 1


CLUSTER = """
import sys
from pathlib import Path
import omnigraph
from omnigraph.errors import InputError
from omnigraph.pipeline.session import SessionSettings, spark_session

folder = Path(sys.argv[1])
graph = omnigraph.open(folder / "graph.omni")
conf = {"spark.driver.memory": "512m", "spark.sql.shuffle.partitions": "2"}
settings = SessionSettings("local-cluster[2,1,1024]", conf)
with spark_session(settings=settings) as spark:
    executors = spark._jsc.sc().getExecutorMemoryStatus().size() - 1
    assert executors == 2, executors
    graph.load(folder / "good", mode="append", engine="spark", spark=spark, grammar="strict")
    try:
        graph.load(
            folder / "bad.jsonl", mode="append", engine="spark", spark=spark, grammar="strict"
        )
    except InputError as error:
        assert error.details["counts"] == {"missing_node": 1, "bad_value": 1}, error
    else:
        raise AssertionError("a bad input was loaded")
    graph.load(folder / "more.jsonl", mode="merge", engine="spark", spark=spark)
"""


@pytest.mark.slow
def test_c_pip_031_loads_run_on_executors_of_their_own(tmp_path: Path):
    from tests.pipeline.conftest import SCHEMA

    graph = omnigraph.init(tmp_path / "graph.omni", SCHEMA)
    (tmp_path / "good").mkdir()
    for i in range(4):
        people = [node("Person", slug=f"p{i}-{j}") for j in range(50)]
        (tmp_path / "good" / f"{i}.jsonl").write_bytes(
            lines(*people, edge("Knows", f"p{i}-1", f"p{(i + 1) % 4}-1"))
        )
    bad = [node("Person", slug="x", age="y"), edge("Knows", "p1-1", "nobody")]
    (tmp_path / "bad.jsonl").write_bytes(lines(*bad))
    (tmp_path / "more.jsonl").write_bytes(lines(node("Person", slug="p0-0", name="new")))
    ran = subprocess.run(
        [sys.executable, "-c", CLUSTER, str(tmp_path)],
        env={**os.environ, "OMNIGRAPH_SPARK_ARCHIVE": "off"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", "")
    counts = {each.type_name: each.entity_count for each in graph.snapshot().datasets}
    assert (counts["Person"], counts["Knows"]) == (200, 4)
    assert len(graph.list_commits()) == 3
