"""Merges and diffs of more than memory may hold: the same results, and nothing left behind."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.branching import spill as spilling
from omnigraph.branching.delta import id_ranges
from omnigraph.branching.spill import MEMORY_VARIABLE, SPILL_VARIABLE, Spill, SpillLimits
from omnigraph.effects.failpoints import VARIABLE, Failpoint
from omnigraph.errors import InputError, LimitExceeded, MergeConflicts, StorageError
from omnigraph.storage.row_places import PLACES
from tests.branching.histories import content, delete, edge, load, person, seeded, step

SCHEMA = pa.schema([("id", pa.string()), ("n", pa.int64())])


def rows(*numbers: int) -> pa.Table:
    return pa.table([[f"r{n:04}" for n in numbers], list(numbers)], schema=SCHEMA)


@pytest.fixture
def spills(monkeypatch: pytest.MonkeyPatch) -> list[Spill]:
    """Every budget that the test asks for."""
    made: list[Spill] = []

    class Watched(Spill):
        def __init__(self, limits: SpillLimits | None = None) -> None:
            super().__init__(limits)
            made.append(self)

    for module in ("workers", "commit_changes"):
        monkeypatch.setattr(f"omnigraph.branching.{module}.Spill", Watched)
    return made


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


# --- the budget -----------------------------------------------------------------------------------


def test_rows_within_the_budget_stay_in_memory(place: Path) -> None:
    spill = Spill(SpillLimits())
    collected = spill.rows(SCHEMA)
    collected.add(rows(1, 2))
    collected.add(rows(3))
    assert collected.table().equals(rows(1, 2, 3))
    assert (collected.num_rows, spill.spilled_bytes) == (3, 0)
    assert spill.rows(SCHEMA).table().equals(rows())


def test_rows_beyond_the_budget_come_back_from_a_file_without_a_name(place: Path) -> None:
    first = rows(*range(50))
    spill = Spill(SpillLimits(memory_bytes=first.nbytes))
    collected = spill.rows(SCHEMA)
    for start in range(0, 500, 50):
        collected.add(rows(*range(start, start + 50)))
        assert list(place.iterdir()) == []
    before = pa.total_allocated_bytes()
    table = collected.table()
    assert spill.spilled_bytes >= 10 * first.nbytes
    assert pa.total_allocated_bytes() - before < table.nbytes / 2, "it is in memory once more"
    assert table.equals(rows(*range(500)))
    # What was held is free again for others.
    other = spill.rows(SCHEMA)
    other.add(first)
    assert spill.spilled_bytes < 11 * first.nbytes


def test_files_that_would_take_too_much_are_refused(place: Path) -> None:
    collected = Spill(SpillLimits(memory_bytes=1, spill_bytes_max=1_000)).rows(SCHEMA)
    with pytest.raises(LimitExceeded) as refused:
        for start in range(0, 500, 50):
            collected.add(rows(*range(start, start + 50)))
    assert SPILL_VARIABLE in str(refused.value.hint)
    assert list(place.iterdir()) == []


def test_a_disk_that_takes_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nowhere/at/all")
    collected = Spill(SpillLimits(memory_bytes=1)).rows(SCHEMA)
    with pytest.raises(StorageError, match="temporary file in /nowhere/at/all"):
        collected.add(rows(1))


def test_settings_are_read_from_the_environment() -> None:
    set = {MEMORY_VARIABLE: "5", SPILL_VARIABLE: "7"}
    assert SpillLimits.from_environment(set) == SpillLimits(5, 7)
    assert SpillLimits.from_environment({}) == SpillLimits()
    with pytest.raises(InputError, match=MEMORY_VARIABLE):
        SpillLimits.from_environment({MEMORY_VARIABLE: "much"})


@pytest.mark.parametrize("count", [1, 2, 7, 400])
def test_ranges_of_ids_cover_every_row_once_and_in_order(count: int) -> None:
    dice = random.Random(count)
    tables = []
    for _ in range(3):
        names = sorted({f"{dice.random():.3f}" for _ in range(dice.randrange(200))})
        dice.shuffle(names)
        numbers = range(len(names))
        tables.append(pa.table([names, numbers, numbers], schema=PLACES))
    size = sum(table.nbytes for table in tables)
    ranges = list(id_ranges(tables, -(-size // count)))
    assert 1 <= len(ranges) <= count
    for table in tables:
        parts = [part for each in ranges for part in sorted(each.of(table)["id"].to_pylist())]
        assert parts == sorted(table["id"].to_pylist())


# --- the same results -----------------------------------------------------------------------------


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, place: Path) -> Iterator[None]:
    """A budget that holds next to nothing; nothing may be left of what lay beside it."""
    monkeypatch.setenv(MEMORY_VARIABLE, "64")
    yield
    assert list(place.iterdir()) == []


def moved(path: Path) -> og.Graph:
    """A graph whose branches both changed every type, some entities alike and some not."""
    graph = seeded(path)
    load(graph, *(person(f"x{n:03}", age=n, photo="base64:QUE=") for n in range(60)))
    graph.create_branch("review")
    for branch, age in (("review", 100), ("main", 200)):
        first = age // 20
        load(
            graph,
            *(person(f"x{n:03}", age=n, score=0.5) for n in range(first, first + 20)),
            *(person(f"new-{branch}-{n}", photo="base64:QkI=") for n in range(5)),
            edge("Knows", f"k-{branch}", f"x{first:03}", "p1"),
            branch=branch,
        )
        delete(graph, "Person", f"x{first + 30:03}", branch)
    return graph


@pytest.mark.parametrize(
    "rules",
    [{}, {"granularity": "property"}, {"on_conflict": "source"}, {"on_conflict": "target"}],
    ids=str,
)
def test_a_merge_with_a_tiny_budget_is_the_merge_without(
    tmp_path: Path, rules: dict[str, Any], spills: list[Spill], request: pytest.FixtureRequest
) -> None:
    graphs = [moved(tmp_path / "whole"), moved(tmp_path / "parts")]
    for graph in graphs:
        # The same entity, so that rules have something to decide; properties differ.
        load(graph, person("p3", age=1), branch="review")
        load(graph, person("p3", score=1.0, age=3 if "granularity" in rules else 2))
        if rules == {}:
            load(graph, person("p3", age=1))
    whole = graphs[0].plan_merge("review", **rules).to_dict()
    graphs[0].merge_branch("review", **rules)
    assert sum(each.spilled_bytes for each in spills) == 0
    request.getfixturevalue("small")
    parts = graphs[1].plan_merge("review", **rules).to_dict()
    assert spills[-1].spilled_bytes > 0, "nothing was spilled"
    assert (parts["types"], parts["merge_conflicts"]) == (whole["types"], [])
    graphs[1].merge_branch("review", **rules)
    assert b"".join(graphs[1].export()) == b"".join(graphs[0].export())


def test_conflicts_with_a_tiny_budget_are_those_without(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    graph = moved(tmp_path / "graph")
    for branch, age in (("review", 1), ("main", 2)):
        load(graph, *(person(f"x{n:03}", age=-age) for n in range(40, 50)), branch=branch)
    whole = graph.plan_merge("review").to_dict()
    assert len(whole["merge_conflicts"]) >= 10
    request.getfixturevalue("small")
    assert graph.plan_merge("review").to_dict() == whole
    before = b"".join(graph.export())
    with pytest.raises(MergeConflicts):
        graph.merge_branch("review")
    assert b"".join(graph.export()) == before


def test_a_diff_with_a_tiny_budget_is_the_diff_without(
    tmp_path: Path, spills: list[Spill], request: pytest.FixtureRequest
) -> None:
    graph = moved(tmp_path / "graph")
    whole = graph.diff("main", "review").to_dict(images=True)
    updates = graph.diff("main", "review", ops=["update"]).to_dict()
    request.getfixturevalue("small")
    assert graph.diff("main", "review").to_dict(images=True) == whole
    assert spills[-1].spilled_bytes > 0, "nothing was spilled"
    assert graph.diff("main", "review", ops=["update"]).to_dict() == updates


def test_random_histories_differ_alike_with_a_tiny_budget(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    dice = random.Random(5)
    graph = seeded(tmp_path / "graph")
    graph.create_branch("review")
    for _ in range(12):
        step(graph, dice, dice.choice(["main", "review"]))
    graph.optimize()
    whole = graph.diff("main", "review").to_dict(images=True)
    request.getfixturevalue("small")
    assert graph.diff("main", "review").to_dict(images=True) == whole


def test_a_merge_beyond_the_limit_is_refused_before_anything_happens(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = moved(tmp_path / "graph")
    monkeypatch.setenv(SPILL_VARIABLE, "500")
    before, commits = content(graph, "main"), graph.list_commits()
    with pytest.raises(LimitExceeded, match="temporary files"):
        graph.merge_branch("review")
    assert (content(graph, "main"), graph.list_commits()) == (before, commits)
    assert graph._kernel.sidecars.names() == []
    monkeypatch.delenv(SPILL_VARIABLE)
    assert graph.merge_branch("review").outcome == "merged"


def test_a_failure_in_the_middle_leaves_no_file(
    tmp_path: Path, small: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = moved(tmp_path / "graph")

    def full(self: object, rows: pa.Table) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(spilling.CollectedRows, "_append", full)
    with pytest.raises(StorageError, match="no space left"):
        graph.merge_branch("review")
    assert graph._kernel.sidecars.names() == []


def test_a_process_that_is_killed_in_the_middle_leaves_no_file(tmp_path: Path, place: Path) -> None:
    graph = moved(tmp_path / "graph")
    merge = "import sys, omnigraph as og; og.open(sys.argv[1]).merge_branch('review')"
    settings = {
        "TMPDIR": str(place),
        MEMORY_VARIABLE: "64",
        VARIABLE: f"{Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE}=kill",
    }
    killed = subprocess.run(
        [sys.executable, "-c", merge, graph.uri], env={**os.environ, **settings}, check=False
    )
    assert killed.returncode == -signal.SIGKILL
    assert list(place.iterdir()) == []
    assert graph.merge_branch("review").outcome == "merged"
