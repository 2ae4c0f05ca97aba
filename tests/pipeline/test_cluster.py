"""Loads on executors in processes of their own, some of which are killed or outrun."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph.graph import Graph
from tests.commit.loading import edge, lines, node
from tests.pipeline.cluster import running_cluster
from tests.pipeline.cluster_driver import PARTITIONS, ROWS
from tests.pipeline.conftest import SCHEMA

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("cluster")]


@dataclass(frozen=True)
class Ran:
    """What one driver did on the cluster."""

    answers: dict[str, Any]
    folder: Path

    def graph(self, name: str) -> Graph:
        return omnigraph.open(self.folder / f"{name}.omni")


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One cluster and one driver for all tests: they take their time to start."""
    folder = tmp_path_factory.mktemp("cluster")
    for name in ("graph", "kill", "kill-files", "speculate", "speculate-files"):
        omnigraph.init(folder / f"{name}.omni", SCHEMA)
    (folder / "good").mkdir()
    for i in range(4):
        some = [node("Person", slug=f"p{i}-{j}") for j in range(50)]
        path = folder / "good" / f"{i}.jsonl"
        path.write_bytes(lines(*some, edge("Knows", f"p{i}-1", f"p{(i + 1) % 4}-1")))
    bad = [node("Person", slug="x", age="y"), edge("Knows", "p1-1", "nobody")]
    (folder / "bad.jsonl").write_bytes(lines(*bad))
    more = [node("Person", slug=slug, name="new") for slug in ("p0-0", "p1-1", "fresh")]
    (folder / "more.jsonl").write_bytes(lines(*more))
    (folder / "people").mkdir()
    for i in range(PARTITIONS):
        slugs = pa.table({"slug": [f"p{i}-{j}" for j in range(ROWS)]})
        pq.write_table(slugs, folder / "people" / f"{i}.parquet")
    with running_cluster(folder) as master:
        done = subprocess.run(
            [sys.executable, "-m", "tests.pipeline.cluster_driver", master, str(folder)],
            env={**os.environ, "OMNIGRAPH_SPARK_THRESHOLD_BYTES": "0"},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")
    return Ran(json.loads(done.stdout), folder)


def test_c_pip_031_loads_run_on_executors_of_their_own(ran: Ran):
    graph = ran.graph("graph")
    assert ran.answers["executors"] == 2
    assert ran.answers["problems"] == {"missing_node": 1, "bad_value": 1}
    upsert = ran.answers["upsert"]
    assert (upsert["inserted"], upsert["updated"]) == (1, 2)
    assert "match" in [stage["name"] for stage in upsert["stages"]]
    counts = {each.type_name: each.entity_count for each in graph.snapshot().datasets}
    assert (counts["Person"], counts["Knows"]) == (201, 4)
    assert len(graph.list_commits()) == 3


def slugs(graph: Graph) -> list[str]:
    return [json.loads(line)["data"]["slug"] for line in b"".join(graph.export()).splitlines()]


EVERYBODY = sorted(f"p{i}-{j}" for i in range(PARTITIONS) for j in range(ROWS))


@pytest.mark.parametrize("name", ["kill", "kill-files"])
def test_c_pip_013_a_killed_executor_changes_nothing_in_the_result(name: str, ran: Ran):
    assert (ran.folder / name).exists(), "no executor was killed"
    assert sorted(slugs(ran.graph(name))) == EVERYBODY
    assert ran.answers[name]["inserted"] == len(EVERYBODY)


@pytest.mark.parametrize("name", ["speculate", "speculate-files"])
def test_c_pip_012_of_two_attempts_at_once_only_one_is_committed(name: str, ran: Ran):
    attempts = sorted(path.name for path in ran.folder.glob(f"{name}-[01]"))
    assert attempts == [f"{name}-0", f"{name}-1"], "no second attempt was made"
    graph = ran.graph(name)
    assert sorted(slugs(graph)) == EVERYBODY
    handle = graph._opened.reader().handle("node:Person")
    listed = {file.path for each in handle.get_fragments() for file in each.metadata.files}
    there = {path.name for path in (Path(handle.uri) / "data").glob("*.lance")}
    assert len(listed) == PARTITIONS
    assert len(there - listed) <= 1, "the attempt that lost leaves at most what it wrote"
