"""C-REC-043 for schema rebase: kill -9 at every step, and look at what is left.

Until every table of the branch has its last commit, recovery leads back to the schema that the
branch had; from then on to that of main, whole. Main is as it was either way.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import RecoveryRequired
from omnigraph.graph import Graph, open_graph
from tests.crash import judge, processes
from tests.crash.model import SCHEMA
from tests.crash.operations import DESIRED_SCHEMA, OPERATIONS, passed_by, with_review
from tests.crash.test_kill_at_failpoint import Step, steps
from tests.support.templates import copy_of

NEWEST = DESIRED_SCHEMA.replace(
    "Planet { name: String @key }", "Planet { name: String @key  moons: I32? }"
)

STEPS: list[Step] = [
    *steps("recovery.sidecar_list@1 recovery.sidecar_list@2 recovery.sidecar_list@3"),
    *steps("recovery.sidecar_write schema_rebase.post_sidecar_pre_fork"),
    *steps("fork.before_classify@1 fork.post_create_pre_open@1 mutation.post_fork_pre_commit@1"),
    *steps("schema_rebase.post_table_commit@1 schema_rebase.post_table_commit@2"),
    *steps("fork.before_classify@2 fork.post_create_pre_open@2 mutation.post_fork_pre_commit@2"),
    *steps("schema_rebase.post_table_commit@3 schema_rebase.pre_publish", "new"),
    *steps("graph_publish.after_manifest_commit recovery.sidecar_delete", "new"),
]
"""Every step, in the order they are passed: cities, which the branch shares with main; persons,
which it has its own copy of; planets, which are new to it and have changed since they were made."""


def prepared(root: Path) -> Graph:
    copy_of(_prepare, root)
    return open_graph(root)


def _prepare(root: Path) -> None:
    graph = with_review(root, 'query q { insert Person { name: "cleo", age: 1 } }')
    graph.apply_schema(DESIRED_SCHEMA)
    graph.mutate('query q { insert Planet { name: "mars" } }')
    graph.apply_schema(NEWEST)


def require_whole(graph: Graph, *, new: bool) -> None:
    """The branch has the one schema or the other, in all its parts; main has its own."""
    judge.require_settled(graph)
    review = graph.on_branch("review")
    assert review.schema_source == (NEWEST if new else SCHEMA)
    assert graph.schema_source == NEWEST
    keys = {f"{entry.entity_kind}:{entry.type_name}" for entry in review.snapshot().datasets}
    old = {"node:Person", "node:City", "edge:Knows", "edge:LivesIn"}
    assert keys == (old | {"node:Planet", "edge:Orbits"} if new else old)
    rank = "$p.rank" if new else "$p.age"
    found = review.query(
        f"query q {{ match {{ $p: Person }} return {{ $p.name as n, {rank} as v }} order {{ n }} }}"
    ).to_pylist()
    values = [5, 5, 5] if new else [30, 40, 1]
    names = ("ana", "ben", "cleo")
    assert [(row["n"], row["v"]) for row in found] == list(zip(names, values, strict=True))
    planets = "query q { match { $p: Planet } return { $p.name as n } }"
    assert graph.query(planets).to_pylist() == [{"n": "mars"}]
    if new:
        assert review.query(planets).to_pylist() == []


def require_usable(graph: Graph) -> None:
    """From either side the same rebase leads to the schema of main; writes and merges go on."""
    graph.rebase_schema("review")
    require_whole(graph, new=True)
    graph.mutate('query q { insert Planet { name: "pluto", moons: 5 } }', branch="review")
    graph.merge_branch("review")
    planets = "query q { match { $p: Planet } return { $p.name as n } order { n } }"
    assert graph.query(planets).to_pylist() == [{"n": "mars"}, {"n": "pluto"}]
    judge.require_settled(graph)


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_c_rec_043_a_death_at_any_step_leaves_the_branch_with_one_schema_or_the_other(
    root: Path, step: Step
) -> None:
    prepared(root)
    assert processes.killed("schema-rebase", root, step.kill).answer is None
    graph = open_graph(root)
    require_whole(graph, new=step.leads_to == "new")
    assert graph.recover() == []
    require_usable(graph)


def test_the_steps_are_exactly_those_it_passes(root: Path) -> None:
    prepared(root)
    passed = passed_by(lambda: OPERATIONS["schema-rebase"].run(str(root)))
    assert passed == [str(step) for step in STEPS]


COMMITS = 5
"""A column of cities, those of persons in two steps, those of planets; the publish."""


@pytest.mark.slow
@pytest.mark.parametrize("nth", range(1, COMMITS + 2))
def test_a_death_before_any_commit_leads_to_one_side(root: Path, nth: int) -> None:
    prepared(root)
    victim = processes.start("schema-rebase", root, "", {"CRASH_BEFORE": f"commit=kill@{nth}"})
    assert victim.wait() == (-9 if nth <= COMMITS else 0)
    graph = open_graph(root)
    require_whole(graph, new=nth >= COMMITS)
    require_usable(graph)


@pytest.mark.slow
@pytest.mark.parametrize("point", ["post_table_commit=kill@2", "pre_publish=kill"])
def test_a_death_during_the_recovery_of_a_rebase_is_recovered_as_well(
    root: Path, point: str
) -> None:
    """Branches hold the address of their graph, so that each death gets a graph of its own."""
    new = point.startswith("pre_publish")
    for number, step in enumerate(("recovery.record_audit", "recovery.sidecar_delete")):
        place = root.with_name(f"graph-{number}.omni")
        prepared(place)
        processes.killed("schema-rebase", place, f"schema_rebase.{point}")
        processes.killed("recover", place, f"{step}=kill")
        graph = open_graph(place)
        require_whole(graph, new=new)
        assert len(graph.list_recoveries()) == 1
        require_usable(graph)
        shutil.rmtree(place)


@pytest.mark.parametrize("point", [p for p in Failpoint if p.startswith("schema_rebase.")])
def test_a_failure_is_told_and_the_next_rebase_succeeds(root: Path, point: Failpoint) -> None:
    graph = prepared(root)
    with (
        armed({point: "error*1"}),
        pytest.raises(RecoveryRequired, match="schema rebase was inter"),
    ):
        graph.rebase_schema("review")
    graph.mutate('query q { insert City { name: "oslo" } }')
    graph.recover()
    assert graph.on_branch("review").schema_source in (SCHEMA, NEWEST)
    require_usable(graph)


def test_a_complete_rebase_is_published_by_the_next_write_to_the_branch(root: Path) -> None:
    graph = prepared(root)
    with armed({Failpoint.SCHEMA_REBASE_PRE_PUBLISH: "error*1"}), pytest.raises(RecoveryRequired):
        graph.rebase_schema("review")
    graph.mutate('query q { insert Planet { name: "venus" } }', branch="review")
    assert graph.on_branch("review").schema_source == NEWEST
    (row,) = graph.list_recoveries()
    assert (row.recovery_kind, row.sidecar_writer_kind) == ("RolledForward", "SchemaRebase")
    commit = graph.list_commits("review")[1]
    assert (commit.kind, commit.graph_commit_id) == ("schema", row.graph_commit_id)
    judge.require_settled(graph)
