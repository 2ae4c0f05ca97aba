"""Loads on executors in processes of their own, some of which are killed or outrun."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from packaging.requirements import Requirement

import omnigraph
from docs.generators.licences import declared, installed_with
from omnigraph.graph import Graph
from omnigraph.pipeline.spark.session import CONF_PREFIX
from tests.commit.loading import edge, lines, node
from tests.pipeline.cluster import running_cluster
from tests.pipeline.cluster_driver import PARTITIONS, ROWS
from tests.pipeline.conftest import SCHEMA
from tests.support.budgets import IS_LONG
from tests.support.environments import build, install
from tests.support.pages import ROOT, blocks_of

# One driver does the work of all tests: on a busy machine it takes minutes.
DRIVER_SECONDS_MAX = 1800
pytestmark = [
    pytest.mark.spark,
    pytest.mark.slow,
    pytest.mark.timeout(DRIVER_SECONDS_MAX + 60),
    pytest.mark.xdist_group("cluster"),
]

PAGE = ROOT / "docs" / "guide" / "spark-cluster.md"

# The short run kills workers and repeats tasks in the session that tests share (`test_load`,
# `test_jobs`): the next executor takes seconds to start.
KILLED = ("kill", "kill-files")
OUTRUN = ("speculate", "speculate-files")
HINDERED = (*KILLED, *OUTRUN) if IS_LONG else ()


@dataclass(frozen=True)
class Ran:
    """What one driver did on the cluster."""

    answers: dict[str, Any]
    folder: Path

    def graph(self, name: str) -> Graph:
        return omnigraph.open(self.folder / f"{name}.omni")


def run_driver(driver: str, folder: Path, recipe: Mapping[str, str], *graphs: str) -> Ran:
    """What a driver did on a cluster of its own, which starts with some empty graphs.

    A recipe is the environment of the driver that gives executors their packages.
    """
    for name in graphs:
        omnigraph.init(folder / f"{name}.omni", SCHEMA)
    settings = {"OMNIGRAPH_SPARK_THRESHOLD_BYTES": "0", "PYTHONPATH": str(ROOT), **recipe}
    with running_cluster(folder) as master:
        done = subprocess.run(
            [sys.executable, "-m", driver, master, str(folder), *graphs],
            env={**os.environ, **settings},
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=DRIVER_SECONDS_MAX,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return Ran(json.loads(done.stdout), folder)


def write_people(folder: Path) -> None:
    """The files that hold `EVERYBODY`."""
    (folder / "people").mkdir()
    for i in range(PARTITIONS):
        slugs = pa.table({"slug": [f"p{i}-{j}" for j in range(ROWS)]})
        pq.write_table(slugs, folder / "people" / f"{i}.parquet")


# --- what executors have installed ----------------------------------------------------------------


def recipe_blocks(setting: str) -> tuple[str, str]:
    """The commands of the page that make what a setting names, and those that use it."""
    blocks = [block.text for block in blocks_of(PAGE) if block.language == "sh"]
    at = next(at for at, text in enumerate(blocks) if f"--spark-conf {setting}=" in text)
    return blocks[at - 1], blocks[at]


def settings_of(command: str) -> dict[str, str]:
    """The settings of a command of the page as variables of the environment."""
    words = [word for word in shlex.split(command) if re.match(r"[\w.]+=", word)]
    named = dict(word.split("=", 1) for word in words)
    prefixed = {
        CONF_PREFIX + name.replace(".", "_") if name.startswith("spark.") else name: value
        for name, value in named.items()
    }
    return {name: value for name, value in prefixed.items() if name.isupper() or "spark" in name}


def packages_of(line: str) -> set[str]:
    """The packages of a line that calls pip, and those that they need, without Omnigraph."""
    names = shlex.split(line.partition(" install ")[2])[2:]
    assert names[0] == "./omnigraph-*.whl"
    return installed_with([*declared(), *map(Requirement, names[1:])])


def archived_environment(folder: Path) -> dict[str, str]:
    """The archive of the page, made by its commands; packages come from here instead of an index.

    In the long run the archive holds them, otherwise links to them.
    """
    (wheel,) = build(ROOT, folder / "dist", "wheel")
    made, used = recipe_blocks("spark.archives")
    for line in made.splitlines():
        if "/pip install " in line:
            python = folder / line.split("/bin/pip")[0] / "bin" / "python"
            install(python, packages_of(line), wheel, with_copies=IS_LONG)
        else:
            bare = line.replace("-m venv ", "-m venv --without-pip ")
            subprocess.run(["bash", "-c", bare], cwd=folder, check=True)
    shutil.rmtree(folder / "executors")
    return settings_of(used)


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """One cluster and one driver for all tests: they take their time to start."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "good").mkdir()
    for i in range(4):
        some = [node("Person", slug=f"p{i}-{j}") for j in range(50)]
        path = folder / "good" / f"{i}.jsonl"
        path.write_bytes(lines(*some, edge("Knows", f"p{i}-1", f"p{(i + 1) % 4}-1")))
    bad = [node("Person", slug="x", age="y"), edge("Knows", "p1-1", "nobody")]
    (folder / "bad.jsonl").write_bytes(lines(*bad))
    more = [node("Person", slug=slug, name="new") for slug in ("p0-0", "p1-1", "fresh")]
    (folder / "more.jsonl").write_bytes(lines(*more))
    if HINDERED:
        write_people(folder)
    recipe = archived_environment(folder)
    graphs = ("graph", *HINDERED)
    return run_driver("tests.pipeline.cluster_driver", folder, recipe, *graphs)


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


def test_c_pip_031_executors_run_in_the_environment_that_the_page_packs(ran: Ran):
    prefixes = {str(path) for path in ran.folder.glob("127.0.0.*/app-*/*/executors")}
    packages = "lib/python{}.{}/site-packages".format(*sys.version_info)
    wanted = {
        place
        for prefix in prefixes
        for place in (
            prefix,
            f"{prefix}/{packages}/lance/__init__.py",
            f"{prefix}/{packages}/omnigraph/__init__.py",
        )
    }
    found = set(ran.answers["places"])
    assert found <= wanted and len(found) >= 3, found


def slugs(graph: Graph) -> list[str]:
    return [json.loads(line)["data"]["slug"] for line in b"".join(graph.export()).splitlines()]


EVERYBODY = sorted(f"p{i}-{j}" for i in range(PARTITIONS) for j in range(ROWS))


@pytest.mark.long
@pytest.mark.parametrize("name", KILLED)
def test_c_pip_013_a_killed_executor_changes_nothing_in_the_result(name: str, ran: Ran):
    assert (ran.folder / name).exists(), "no executor was killed"
    assert sorted(slugs(ran.graph(name))) == EVERYBODY
    assert ran.answers[name]["inserted"] == len(EVERYBODY)


@pytest.mark.long
@pytest.mark.parametrize("name", OUTRUN)
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
