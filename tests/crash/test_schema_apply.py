"""C-REC-043 for schema apply: kill -9 at every step, and look at what is left.

Until the new contract is staged and every table has its last commit, recovery leads back to the old
schema; from then on to the new one, whole: tables, registry and contract. A branch with rows of its
own keeps its schema either way, and can be written to before anything is recovered.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from omnigraph.commit.schema.contract import write_contract
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import Conflict, RecoveryRequired
from omnigraph.graph import Graph, open_graph
from omnigraph.model.ids import SCHEMA_APPLY_LOCK
from omnigraph.storage.layout import STAGING_SUFFIX
from tests.crash import judge, processes
from tests.crash.model import SCHEMA
from tests.crash.operations import DESIRED_SCHEMA, INSERT, OPERATIONS, passed_by, with_review
from tests.crash.test_kill_at_failpoint import Step, steps
from tests.support.budgets import budget

TABLES = 4
"""Planets and their edges are made, persons get a column and cities lose one."""

STEPS: list[Step] = [
    *steps("recovery.sidecar_list@1 recovery.sidecar_list@2 recovery.sidecar_list@3"),
    *steps("recovery.sidecar_write schema_apply.post_sidecar_pre_effect"),
    *steps("schema_apply.before_staging_write schema_apply.after_staging_write"),
    *steps(" ".join(f"schema_apply.post_table_commit@{n}" for n in range(1, TABLES))),
    *steps(f"schema_apply.post_table_commit@{TABLES}", "new"),
    *steps("graph_publish.after_manifest_commit schema_apply.after_manifest_commit", "new"),
    *steps("recovery.sidecar_delete", "new"),
]
"""Every step, in the order they are passed."""


def prepared(root: Path) -> Graph:
    return with_review(root, INSERT, {"person": "cleo", "city": "bern"})


def require_branch(graph: Graph) -> None:
    """The branch is as it was: its schema, its rows, and that they can be written."""
    review = graph.on_branch("review")
    assert review.schema_source == SCHEMA
    ages = "query q { match { $p: Person } return { $p.name as n, $p.age as v } order { n } }"
    found = review.query(ages).to_pylist()
    assert [(row["n"], row["v"]) for row in found] == [("ana", 30), ("ben", 40), ("cleo", 1)]
    review.mutate('query q { update Person set { age: 1 } where name = "cleo" }')


def schema_objects(root: Path) -> list[str]:
    return sorted(path.name for path in root.glob("*schema*") if path.is_file())


def require_whole(graph: Graph, root: Path, *, new: bool) -> None:
    """The graph has the one schema or the other, in all its parts, and nothing else."""
    judge.require_settled(graph)
    assert schema_objects(root) == ["__schema_state.json", "_schema.ir.json", "_schema.pg"]
    assert SCHEMA_APPLY_LOCK not in graph._kernel.manifest.main.refresh().branches
    assert graph.schema_source == (DESIRED_SCHEMA if new else SCHEMA)
    keys = {f"{entry.entity_kind}:{entry.type_name}" for entry in graph.snapshot().datasets}
    old = {"node:Person", "node:City", "edge:Knows", "edge:LivesIn"}
    assert keys == (old | {"node:Planet", "edge:Orbits"} if new else old)
    stored = {f"{path.parent.name}/{path.name}" for path in root.glob("[ne]*/*") if path.is_dir()}
    assert stored == {entry.dataset_path for entry in graph.snapshot().datasets}
    rank = "$p.rank" if new else "$p.age"
    found = graph.query(
        f"query q {{ match {{ $p: Person }} return {{ $p.name as n, {rank} as v }} order {{ n }} }}"
    ).to_pylist()
    values = [5, 5] if new else [30, 40]
    assert [(row["n"], row["v"]) for row in found] == list(zip(("ana", "ben"), values, strict=True))
    require_branch(graph)


def require_usable(graph: Graph, root: Path) -> None:
    """From either side, the same apply leads to the new schema, and writes go on."""
    graph.apply_schema(DESIRED_SCHEMA)
    require_whole(graph, root, new=True)
    graph.mutate('query q { insert Planet { name: "earth" } insert City { name: "bern" } }')
    judge.require_settled(graph)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_c_rec_043_a_death_at_any_step_leaves_the_old_schema_or_the_new_one(
    root: Path, step: Step
) -> None:
    prepared(root)
    assert processes.killed("schema-apply", root, step.kill).answer is None
    graph = open_graph(root)
    require_whole(graph, root, new=step.leads_to == "new")
    assert graph.recover() == []
    require_usable(graph, root)


def test_the_steps_are_exactly_those_it_passes(root: Path) -> None:
    prepared(root)
    passed = passed_by(lambda: OPERATIONS["schema-apply"].run(str(root)))
    assert passed == [str(step) for step in STEPS]


@pytest.mark.slow
@pytest.mark.parametrize("nth", range(1, 9))
def test_a_death_before_any_commit_leads_to_one_side(root: Path, nth: int) -> None:
    """Registry, tables and manifest, and registry again, in the order they are committed."""
    prepared(root)
    victim = processes.start("schema-apply", root, "", {"CRASH_BEFORE": f"commit=kill@{nth}"})
    assert victim.wait() == (-9 if nth <= COMMITS else 0)
    graph = open_graph(root)
    require_whole(graph, root, new=nth >= COMMITS - 1)
    require_usable(graph, root)


COMMITS = 6
"""The lock; a column of persons in two steps, one of cities in one; the publish; the lock again."""


@pytest.mark.slow
@pytest.mark.parametrize("point", ["post_table_commit", "after_manifest_commit"])
def test_c_rec_036_and_c_rec_039_a_death_after_staging_and_effects_is_rolled_forward_by_a_load(
    root: Path, point: str
) -> None:
    """The very load that settles it can use the new type."""
    graph = prepared(root)
    nth = TABLES if point == "post_table_commit" else 1
    processes.killed("schema-apply", root, f"schema_apply.{point}=kill@{nth}")
    graph.load(data='{"type": "Planet", "data": {"name": "earth"}}', mode="append")
    require_whole(graph, root, new=True)
    (row,) = graph.list_recoveries()
    assert (row.recovery_kind, row.sidecar_writer_kind) == ("RolledForward", "SchemaApply")
    commit = next(each for each in graph.list_commits() if each.kind == "schema")
    assert commit.graph_commit_id == row.graph_commit_id


@pytest.mark.slow
def test_c_rec_036_without_staging_a_write_waits_for_a_full_recovery(root: Path) -> None:
    graph = prepared(root)
    processes.killed("schema-apply", root, "schema_apply.before_staging_write=kill")
    require_branch(graph)
    with pytest.raises(RecoveryRequired, match="unfinished"):
        graph.mutate(INSERT, {"person": "x", "city": "x"})
    assert [settled.outcome for settled in graph.recover()] == ["rolled_back"]
    require_whole(graph, root, new=False)
    require_usable(graph, root)


@pytest.mark.slow
@pytest.mark.parametrize("renamed", [1, 2])
def test_c_rec_037_an_interrupted_promotion_is_completed_and_reported_until_then(
    root: Path, renamed: int
) -> None:
    prepared(root)
    processes.killed("schema-apply", root, "schema_apply.after_manifest_commit=kill")
    for name in ("_schema.pg", "_schema.ir.json")[:renamed]:
        (root / f"{name}.staging").replace(root / name)
    with pytest.raises(RecoveryRequired, match=r"interrupted|not completed"):
        open_graph(root, "read_only")
    require_whole(open_graph(root), root, new=True)
    assert open_graph(root, "read_only").schema_source == DESIRED_SCHEMA


@pytest.mark.slow
def test_c_rec_038_a_parked_live_apply_is_not_promoted_by_a_load(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepared(root)
    monkeypatch.setenv("OMNIGRAPH_LEASE_WAIT_MS", "100")
    graph = open_graph(root)
    pause = processes.Pause(root.parent)
    live = processes.start("schema-apply", root, f"schema_apply.after_manifest_commit={pause.at()}")
    pause.reached()
    staged = schema_objects(root)
    with pytest.raises(Conflict, match="load is unavailable while schema apply is in progress"):
        graph.load(data='{"type": "City", "data": {"name": "x"}}', mode="append")
    require_branch(graph)
    assert [settled.outcome for settled in graph.recover()] == ["live"]
    assert schema_objects(root) == staged
    # Readers already see what is published, with the types it was published with.
    found = graph.query("query q { match { $p: Planet } return { count(*) as n } }")
    assert found.to_pylist() == [{"n": 0}]
    pause.end()
    assert "value" in live.finished()
    require_whole(open_graph(root), root, new=True)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["after_staging_write", "after_manifest_commit"])
def test_a_death_during_the_recovery_of_an_apply_is_recovered_as_well(
    root: Path, point: str
) -> None:
    new = point == "after_manifest_commit"
    template = root.with_name("template")
    prepared(root)
    processes.killed("schema-apply", root, f"schema_apply.{point}=kill")
    shutil.copytree(root, template)
    for step in ("recovery.record_audit", "recovery.sidecar_delete"):
        shutil.rmtree(root)
        shutil.copytree(template, root)
        processes.killed("recover", root, f"{step}=kill")
        graph = open_graph(root)
        require_whole(graph, root, new=new)
        assert len(graph.list_recoveries()) == 1
        require_usable(graph, root)


def test_staging_of_no_schema_change_is_removed_by_a_full_recovery(root: Path) -> None:
    graph = prepared(root)
    write_contract(graph._kernel.store, graph._opened.accepted().contract, STAGING_SUFFIX)
    with pytest.raises(RecoveryRequired, match="belongs to no schema change"):
        open_graph(root, "read_only")
    require_whole(open_graph(root), root, new=False)


def test_a_failing_promotion_is_completed_by_the_next_write(root: Path) -> None:
    graph = prepared(root)
    with (
        armed({Failpoint.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT: "error"}),
        pytest.raises(RecoveryRequired),
    ):
        graph.apply_schema(DESIRED_SCHEMA)
    graph.mutate('query q { insert Planet { name: "earth" } }')
    judge.require_settled(graph)
    assert graph.schema_source == DESIRED_SCHEMA


@pytest.mark.parametrize("point", ["BEFORE_STAGING_WRITE", "AFTER_STAGING_WRITE"])
def test_a_failure_before_the_first_table_leaves_nothing_at_all(root: Path, point: str) -> None:
    graph = prepared(root)
    with (
        armed({Failpoint[f"SCHEMA_APPLY_{point}"]: "error"}),
        pytest.raises(Exception, match="arm"),
    ):
        graph.apply_schema(DESIRED_SCHEMA)
    require_whole(graph, root, new=False)
    require_usable(graph, root)


# --- the race of the last steps with an open ------------------------------------------------------

OVERLAPS = budget(25, 200)


@pytest.mark.slow
def test_c_rec_034_an_open_beside_the_last_steps_of_an_apply_never_fails(root: Path) -> None:
    """Another process applies one change after the other, each a new table, a tombstone and a new
    contract. It waits after every publish; this one lets it go on and opens the graph, both ways.
    Before the next one it waits again, so that there is one overlap for every apply.
    """
    prepared(root)
    begins, published = root.parent / "begins", root.parent / "published"
    pauses = f"recovery.sidecar_write=pause:{begins}"
    pauses += f";schema_apply.after_manifest_commit=pause:{published}"
    child = processes.start(f"schema-applies {OVERLAPS}", root, pauses)
    for _ in range(OVERLAPS):
        for marker in (begins, published):
            processes.wait_until(marker.exists, f"an apply has reached {marker.name}")
            marker.unlink()
        assert len(open_graph(root).snapshot().datasets) == 5
        assert len(open_graph(root, "read_only").snapshot().datasets) == 5
    assert child.finished()["value"] == OVERLAPS
    graph = open_graph(root)
    judge.require_settled(graph)
    assert sum(commit.kind == "schema" for commit in graph.list_commits()) == OVERLAPS
    assert graph.list_recoveries() == []
