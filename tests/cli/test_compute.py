"""`omnigraph compute`."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pyarrow.csv as pac
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph.cli.compute import ALGORITHMS
from omnigraph.graph.computing import Algorithms
from tests.cli.conftest import Run
from tests.computing.graphs import linked


@pytest.fixture
def people(tmp_path: Path) -> str:
    return linked(tmp_path, 5, [(0, 1), (1, 2), (2, 0), (3, 4)], [1.0, 2.0, 3.0, 4.0]).uri


def test_the_command_has_every_algorithm_of_the_graph() -> None:
    verbs = [name for name, _ in inspect.getmembers(Algorithms, inspect.isfunction)]
    assert sorted(ALGORITHMS) == [name for name in verbs if not name.startswith("_")]


def test_the_largest_values_are_printed_and_all_are_written(
    run: Run, people: str, tmp_path: Path
) -> None:
    out = tmp_path / "ranks.parquet"
    done = run("compute", "pagerank", people, "--edge", "Knows", "--limit", "2", "--out", str(out))
    assert done.code == 0
    assert "pagerank of 5 nodes and 4 edges from branch main" in done.out
    assert done.out.count("Person") == 2
    assert pq.read_table(out).num_rows == 5
    out = tmp_path / "ranks.csv"
    assert run("compute", "k_core", people, "--out", str(out)).code == 0
    assert pac.read_csv(out).column_names == ["type", "id", "core"]


def test_json_has_the_summary_and_the_rows(run: Run, people: str) -> None:
    document = json.loads(
        run("compute", "shortest_paths", people, "--edge", "Knows", "--landmark", "p0", "--weight",
            "weight", "--json").out
    )  # fmt: skip
    assert (document["algorithm"], document["engine"], document["converged"]) == (
        "shortest_paths", "local", True,
    )  # fmt: skip
    assert {row["id"]: row["distance"] for row in document["rows"]} == {"p0": 0, "p1": 1, "p2": 3}


def test_values_are_written_to_a_branch(run: Run, people: str) -> None:
    done = run("compute", "connected_components", people, "--edge", "Knows", "--into",
               "Person.group", "--to-branch", "groups")  # fmt: skip
    assert done.code == 0
    rows = omnigraph.open(people).table("Person", branch="groups").to_arrow().to_pylist()
    assert len({row["group"] for row in rows}) == 2


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["pagerang"], 2, "pagerank"),
        (["triangle_count"], 2, "triangles"),
        (["degree", "--weight", "weight"], 2, "degree has no `--weight`"),
        (["shortest_paths", "--edge", "Knows"], 2, "needs `--landmark`"),
        (["k_core", "--out", "cores.txt"], 2, "is no .parquet or .csv file"),
        (["shortest_paths", "--landmark", "p0", "--landmark", "Person:p1"], 2, "names no type"),
        (["pagerank", "--into", "Person.score"], 1, "need a branch"),
    ],
)
def test_mistakes_are_told(
    run: Run, people: str, arguments: list[str], code: int, message: str
) -> None:
    done = run("compute", *arguments, "--store", people)
    assert done.code == code
    assert message in done.err
