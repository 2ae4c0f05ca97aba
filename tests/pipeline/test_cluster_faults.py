"""Queries, computations, pipelines and streams whose executors are killed on a real cluster."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.pipeline.cluster_faults import FAR, ROUNDS
from tests.pipeline.crash_compute import QUESTION, linked_people
from tests.pipeline.test_cluster import (
    EVERYBODY,
    PAGE,
    Ran,
    packages_of,
    recipe_blocks,
    run_driver,
    settings_of,
    slugs,
    write_people,
)
from tests.support.environments import ROOT, build, install, new_environment
from tests.support.pages import blocks_of

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.xdist_group("cluster"),
]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One cluster and one driver for all tests: they take their time to start."""
    folder = tmp_path_factory.mktemp("faults")
    linked_people(str(folder / "linked.omni"))
    write_people(folder)
    recipe = wheel_as_a_package(folder)
    graphs = ("killed-pipeline", "killed-stream")
    return run_driver("tests.pipeline.cluster_faults", folder, recipe, *graphs)


def wheel_as_a_package(folder: Path) -> dict[str, str]:
    """The wheel of the page, for executors whose Python has all packages but Omnigraph."""
    (wheel,) = build(ROOT, folder / "dist", "wheel")
    made, _ = recipe_blocks("spark.archives")
    (line,) = (line for line in made.splitlines() if "/pip install " in line)
    python = new_environment(folder / "machine")
    install(python, packages_of(line))
    used = next(b.text for b in blocks_of(PAGE) if "spark.submit.pyFiles" in b.text)
    copy, *command = used.splitlines()
    subprocess.run(["bash", "-c", copy], cwd=wheel.parent, check=True)
    (wheel.parent / "omnigraph.zip").rename(folder / "omnigraph.zip")
    return {**settings_of(" ".join(command)), "PYSPARK_PYTHON": str(python)}


def test_c_pip_031_executors_import_the_wheel_that_the_page_sends(ran: Ran):
    found = ran.answers["places"]
    packages = ran.folder / "machine" / "lib"
    assert str(ran.folder / "machine") in found
    assert any(place.startswith(f"{packages}/") and "/lance/" in place for place in found), found
    assert any(place.endswith("omnigraph.zip/omnigraph/__init__.py") for place in found), found


def test_c_pip_024_executors_killed_under_a_query_change_no_answer(ran: Ran):
    graph, lost = ran.graph("linked"), ran.answers
    assert lost["question"] == graph.query(QUESTION).to_pylist()
    wanted = graph.query(FAR).to_pylist()
    assert wanted
    assert lost["far, one"] == wanted, "another executor has the checkpoint, too"
    assert lost["far, directory"] == wanted, "the checkpoint is in the directory"


def test_c_pip_025_executors_killed_under_a_computation_change_no_value(ran: Ran):
    ranks = ran.graph("linked").compute.pagerank(iterations=ROUNDS, tolerance=0.0).to_pylist()
    wanted = {row["id"]: pytest.approx(row["rank"]) for row in ranks}
    for name in ("ranks, one", "ranks, directory"):
        assert {row["id"]: row["rank"] for row in ran.answers[name]} == wanted


@pytest.mark.parametrize(("name", "work"), [("far, all", "query"), ("ranks, all", "computation")])
def test_a_checkpoint_lost_with_all_executors_is_an_error_that_names_the_setting(
    name: str, work: str, ran: Ran
):
    said = ran.answers[name]
    assert said.startswith(f"StorageError: the {work} lost intermediate results with the executors")
    assert "spark.checkpoint.dir" in said
    assert [commit.kind for commit in ran.graph("linked").list_commits()] == ["load", "genesis"]


def test_c_pip_028_an_executor_killed_under_a_pipeline_changes_nothing_in_the_result(ran: Ran):
    assert (ran.folder / "killed-pipeline").exists(), "no executor was killed"
    graph = ran.graph("killed-pipeline")
    assert sorted(slugs(graph)) == EVERYBODY
    assert ran.answers["pipeline"] == ["merged", "no_change"]
    assert graph.list_branches() == ["main"]


def test_c_pip_023_an_executor_killed_under_a_stream_changes_nothing_in_the_result(ran: Ran):
    assert (ran.folder / "killed-stream").exists(), "no executor was killed"
    assert sorted(slugs(ran.graph("killed-stream"))) == EVERYBODY
    assert ran.answers["stream"] == [len(EVERYBODY)]
