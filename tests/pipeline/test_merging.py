"""Merges and diffs on Spark: the same result as in process, one commit, whatever workers suffer."""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.branching.workers import InProcess
from omnigraph.errors import InputError, MergeConflicts, StorageError
from omnigraph.graph.branches import COMPARED_ROWS_VARIABLE
from omnigraph.loading.executors import TaskRunner
from omnigraph.model.load_options import SparkOptions
from omnigraph.pipeline import merging
from omnigraph.pipeline.merging import SparkComparison
from omnigraph.storage import row_places
from tests.branching.histories import city, content, delete, edge, load, person, seeded
from tests.branching.histories import step as random_step
from tests.branching.reference_merge import exact, reference_merge
from tests.branching.test_merge import CONSTRAINED
from tests.branching.test_merge_histories import as_text, base_of
from tests.branching.test_spill import moved as persons_moved
from tests.support.budgets import budget

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

RULES: list[dict[str, Any]] = [
    {"on_conflict": "fail"},
    {"on_conflict": "source"},
    {"on_conflict": "target", "granularity": "property"},
    {"on_conflict": "fail", "granularity": "property"},
]


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """So small that several tasks share the rows of one table."""
    monkeypatch.setattr(merging, "PART_ROWS", 20)
    monkeypatch.setattr(merging, "SHARE_IDS", 40)


@pytest.fixture
def on_spark(spark: Any) -> dict[str, Any]:
    return {"engine": "spark", "spark": SparkOptions(session=spark)}


def exported(graph: og.Graph, branch: str) -> bytes:
    return b"".join(graph.export(branch=branch))


def moved(path: Path) -> og.Graph:
    """A graph whose branches both changed persons and edges, and added cities."""
    graph = persons_moved(path)
    for branch in ("review", "main"):
        load(graph, *(city(f"c{branch}{n:03}") for n in range(30)), branch=branch, mode="append")
    return graph


def disputed(graph: og.Graph) -> og.Graph:
    """The same, with entities that both sides changed: some properties alike, some not."""
    for branch, age in (("review", 1), ("main", 2)):
        load(graph, *(person(f"x{n:03}", age=age) for n in range(40, 50)), branch=branch)
        load(graph, *(person(f"p{n}", age=n, score=float(age)) for n in range(3)), branch=branch)
    load(graph, person("p3", age=3, tags=["a"], score=0.5), branch="review")
    load(graph, person("p3", age=30, tags=["a"]))
    delete(graph, "Person", "p4", "review")
    load(graph, person("p4", age=44))
    return graph


# --- the same result ------------------------------------------------------------------------------


@pytest.mark.parametrize("rules", RULES, ids=lambda rules: "-".join(rules.values()))
def test_a_merge_by_workers_is_the_merge_in_process(
    tmp_path: Path, on_spark: dict[str, Any], rules: dict[str, Any]
) -> None:
    graph = disputed(moved(tmp_path / "graph.omni"))
    for name in ("local", "spark"):
        graph.create_branch(name)
    source = exported(graph, "review")
    plans = [
        graph.plan_merge("review", into, **rules, **how).to_dict()
        for into, how in (("local", {"engine": "local"}), ("spark", on_spark))
    ]
    for plan in plans:
        for name in ("target", "target_commit_id"):
            plan.pop(name, None)
    told = [str(plan["merge_conflicts"]).replace("on spark", "on local") for plan in plans]
    assert told[0] == told[1]
    assert plans[0]["types"] == plans[1]["types"]
    assert plans[0]["changes"] == plans[1]["changes"]
    if plans[0]["merge_conflicts"]:
        before = exported(graph, "spark")
        with pytest.raises(MergeConflicts) as refused:
            graph.merge_branch("review", "spark", **rules, **on_spark)
        assert len(refused.value.details["merge_conflicts"]) == len(plans[0]["merge_conflicts"])
        assert exported(graph, "spark") == before
        assert graph._kernel.sidecars.names() == []
        return
    commits = len(graph.list_commits("spark"))
    receipts = [
        graph.merge_branch("review", "local", **rules, engine="local"),
        graph.merge_branch("review", "spark", **rules, **on_spark),
    ]
    assert receipts[0].outcome == receipts[1].outcome == "merged"
    assert len(graph.list_commits("spark")) == commits + 1
    assert exported(graph, "spark") == exported(graph, "local")
    assert exported(graph, "review") == source
    assert graph.plan_merge("review", "spark", **on_spark).outcome == "already_up_to_date"
    assert not graph.diff("local", "spark", direct=True, **on_spark).types


def test_a_diff_by_workers_is_the_diff_in_process_in_the_same_order(
    tmp_path: Path, on_spark: dict[str, Any]
) -> None:
    graph = disputed(moved(tmp_path / "graph.omni"))
    graph.optimize()
    for ends in (("main", "review"), ("review", "main")):
        found = graph.diff(*ends, **on_spark)
        local = graph.diff(*ends, engine="local")
        assert found.to_dict(images=True) == local.to_dict(images=True)
    chosen: dict[str, Any] = {"types": ["Person"], "ops": ["update"]}
    found = graph.diff("main", "review", **chosen, **on_spark)
    assert found.to_dict() == graph.diff("main", "review", **chosen, engine="local").to_dict()
    assert not graph.diff("main", "main", **on_spark).types


def test_random_histories_merge_on_spark_as_in_process_and_as_the_reference(
    tmp_path: Path, on_spark: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "SHARE_IDS", 1_000)
    for seed in range(budget(2, 40)):
        dice = random.Random(seed)
        monkeypatch.setattr(row_places, "WHOLE_ROWS_MIN", dice.choice([1, 8_192]))
        graph = seeded(tmp_path / f"{seed}.omni")
        places = ["main", "one"]
        graph.create_branch("one")
        for _ in range(dice.randrange(3, 9)):
            random_step(graph, dice, dice.choice(places))
        source, target = dice.sample(places, 2)
        judge(graph, dice, source, target, on_spark)


def judge(
    graph: og.Graph, dice: random.Random, source: str, target: str, on_spark: dict[str, Any]
) -> None:
    base = content(graph, base_of(graph, source, target))
    mine, theirs = content(graph, source), content(graph, target)
    rules: Any = {
        "on_conflict": dice.choice(["fail", "source", "target"]),
        "granularity": dice.choice(["entity", "property"]),
    }
    wanted, conflicts = reference_merge(
        base, mine, theirs, rules["on_conflict"], rules["granularity"]
    )
    graph.create_branch("local", target)
    plan = graph.plan_merge(source, target, **rules, **on_spark)
    assert as_text(content(graph, target)) == as_text(theirs), "a plan changed something"
    if plan.outcome == "already_up_to_date":
        return
    assert {(c.kind.value, (c.table_key, c.entity_id)) for c in plan.conflicts} == conflicts
    if conflicts:
        with pytest.raises(MergeConflicts):
            graph.merge_branch(source, target, **rules, **on_spark)
    else:
        graph.merge_branch(source, target, **rules, **on_spark)
        graph.merge_branch(source, "local", **rules, engine="local")
        assert exported(graph, target) == exported(graph, "local")
    assert {key: exact(value) for key, value in content(graph, target).items()} == as_text(wanted)


def test_c_bra_025_rows_that_workers_do_not_write_keep_their_row_versions(
    tmp_path: Path, on_spark: dict[str, Any]
) -> None:
    def stamps() -> dict[str, tuple[int, int]]:
        columns = ["id", "_row_created_at_version", "_row_last_updated_at_version"]
        rows = graph._opened.reader("main").scan("node:Person", columns).to_pylist()
        return {row["id"]: (row[columns[1]], row[columns[2]]) for row in rows}

    graph = moved(tmp_path / "graph.omni")
    before = stamps()
    graph.merge_branch("review", **on_spark)
    changed = {id for id, stamp in stamps().items() if before.get(id) != stamp}
    assert changed == {f"x{n:03}" for n in range(5, 10)} | {f"new-review-{n}" for n in range(5)}


# --- checks ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def constrained(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    graph = og.init(tmp_path_factory.mktemp("checks") / "graph.omni", CONSTRAINED)
    load(graph, *(person(name) for name in "abc"), edge("Boss", "e0", "c", "b"))
    return graph


BREACHES: dict[
    str, tuple[str, Callable[[og.Graph, str], None], Callable[[og.Graph, str], None]]
] = {
    "unique": (
        "unique_violation",
        lambda graph, branch: load(graph, person("a", email="x@y"), branch=branch),
        lambda graph, branch: load(graph, person("b", email="x@y"), branch=branch),
    ),
    "edge-key": (
        "unique_violation",
        lambda graph, branch: load(graph, edge("Likes", "1", "a", "b", how="x"), branch=branch),
        lambda graph, branch: load(graph, edge("Likes", "2", "a", "b", how="x"), branch=branch),
    ),
    "cardinality": (
        "cardinality_violation",
        lambda graph, branch: load(graph, edge("Boss", "e1", "a", "b"), branch=branch),
        lambda graph, branch: load(graph, edge("Boss", "e2", "a", "c"), branch=branch),
    ),
    "orphan-written": (
        "orphan_edge",
        lambda graph, branch: load(graph, edge("Boss", "e3", "a", "b"), branch=branch),
        lambda graph, branch: delete(graph, "Person", "b", branch),
    ),
    "orphan-kept": (
        "orphan_edge",
        lambda graph, branch: delete(graph, "Person", "b", branch),
        lambda graph, branch: load(graph, edge("Boss", "e3", "a", "b"), branch=branch),
    ),
}


@pytest.mark.parametrize("breach", BREACHES)
def test_c_bra_027_what_the_merged_rows_break_is_told_as_in_process(
    constrained: og.Graph, on_spark: dict[str, Any], breach: str
) -> None:
    graph = constrained
    kind, on_source, on_target = BREACHES[breach]
    source, target = f"{breach}/source", f"{breach}/target"
    for name in (source, target):
        graph.create_branch(name)
    on_source(graph, source)
    on_target(graph, target)
    before = exported(graph, target)
    found = []
    for how in ({"engine": "local"}, on_spark):
        with pytest.raises(MergeConflicts) as refused:
            graph.merge_branch(source, target, **how)
        found.append(refused.value.details["merge_conflicts"])
    assert found[0] == found[1]
    assert {each["kind"] for each in found[1]} == {kind}
    assert exported(graph, target) == before
    assert graph._kernel.sidecars.names() == []


# --- faults ---------------------------------------------------------------------------------------


def deadly(marker: Path, function: Callable[..., Any], times: int = 1) -> Callable[..., Any]:
    """A function whose worker is killed the first times it runs."""

    def run(*args: Any) -> Any:
        for number in range(times):
            try:
                os.close(os.open(f"{marker}-{number}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*args)

    return run


@pytest.mark.parametrize("stage", ["compare", "check", "write"])
def test_a_worker_that_is_killed_changes_nothing_of_the_merge(
    tmp_path: Path, on_spark: dict[str, Any], stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = moved(tmp_path / "graph.omni")
    graph.create_branch("local")
    graph.merge_branch("review", "local", engine="local")
    marker = tmp_path / "killed"
    if stage == "compare":
        compared = merging._compared
        monkeypatch.setattr(
            merging,
            "_compared",
            lambda counts, function: compared(counts, deadly(marker, function)),
        )
    else:
        run = TaskRunner.map_workers

        def killed(self: Any, name: str, label: str, count: int, function: Any) -> list[Any]:
            return run(
                self, name, label, count, deadly(marker, function) if name == stage else function
            )

        monkeypatch.setattr(TaskRunner, "map_workers", killed)
    before = len(graph.list_commits())
    graph.merge_branch("review", **on_spark)
    assert Path(f"{marker}-0").exists(), "no worker was killed"
    assert exported(graph, "main") == exported(graph, "local")
    assert len(graph.list_commits()) == before + 1


def test_a_task_that_fails_for_good_fails_the_merge_and_nothing_has_happened(
    tmp_path: Path, on_spark: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = moved(tmp_path / "graph.omni")
    before, commits = exported(graph, "main"), graph.list_commits()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    run = TaskRunner.map_workers
    monkeypatch.setattr(
        TaskRunner,
        "map_workers",
        lambda self, stage, label, count, function: run(
            self, stage, label, count, full if stage == "write" else function
        ),
    )
    with pytest.raises(StorageError, match=r"the merge failed in stage write: .*No space left"):
        graph.merge_branch("review", **on_spark)
    monkeypatch.undo()
    assert (exported(graph, "main"), graph.list_commits()) == (before, commits)
    assert graph._kernel.sidecars.names() == []
    assert graph.merge_branch("review", **on_spark).outcome == "merged"


# --- which engine ---------------------------------------------------------------------------------


def test_auto_takes_spark_only_for_as_many_rows_as_the_threshold_says(
    tmp_path: Path, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = moved(tmp_path / "graph.omni")
    used: list[str] = []
    for kind in (InProcess, SparkComparison):
        own = kind.deltas

        def counted(self: Any, pairs: Any, own: Any = own, name: str = kind.__name__) -> Any:
            used.append(name)
            return own(self, pairs)

        monkeypatch.setattr(kind, "deltas", counted)
    wanted = graph.diff("main", "review").to_dict()
    assert used == ["InProcess"]
    monkeypatch.setenv(COMPARED_ROWS_VARIABLE, "1000")
    graph.diff("main", "review")
    monkeypatch.setenv(COMPARED_ROWS_VARIABLE, "30")
    assert graph.diff("main", "review").to_dict() == wanted
    graph.diff("main", "review", engine="local")
    graph.diff("main", "review", spark=SparkOptions(session=spark))
    assert used == ["InProcess", "InProcess", "SparkComparison", "InProcess", "SparkComparison"]
    monkeypatch.setenv(COMPARED_ROWS_VARIABLE, "many")
    with pytest.raises(InputError, match=COMPARED_ROWS_VARIABLE):
        graph.diff("main", "review")


def test_an_engine_that_there_is_not_is_refused(tmp_path: Path) -> None:
    graph = seeded(tmp_path / "graph.omni")
    with pytest.raises(InputError, match="there is no engine `sparc`"):
        graph.diff("main", "main", engine="sparc")  # type: ignore[arg-type]
