"""C-REC-043 for merges: kill -9 at every step, and look at what is left.

However many tables a merge touches, it is one operation: until every table has its commit, recovery
leads back to the target as it was, and from then on to the whole merge, with both its parents. The
source is never touched.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import OmnigraphError, RecoveryRequired
from omnigraph.graph import open_graph
from tests.crash import judge, processes
from tests.crash.model import Model
from tests.crash.operations import (
    DELETE,
    INSERT,
    OPERATIONS,
    UPDATE,
    passed_by,
    seed_of_branches,
    seeded,
)
from tests.crash.test_kill_at_failpoint import OPENING, PUBLISHED, Step, fork_steps, steps
from tests.support.templates import copy_of

ENTERING = "recovery.sidecar_list@2 recovery.sidecar_list@3 branch_merge.post_authority_capture"
ENTERING += " mutation.post_stage_pre_effect_gate recovery.sidecar_list@4"
ARMED = f"{OPENING} {ENTERING} recovery.sidecar_write branch_merge.post_sidecar_pre_fork"
DONE = f"branch_merge.post_phase_b_pre_manifest_commit {PUBLISHED}"


def landed(table: int) -> str:
    return f"branch_merge.between_chunks@{table}"


STEPS: dict[str, list[Step]] = {
    "branch-merge": [
        *steps(f"{ARMED} {landed(1)} {landed(2)} {landed(3)}"),
        *steps(f"{landed(4)} {DONE}", "new"),
    ],
    "branch-merge-into": [
        *steps(f"{ARMED} {fork_steps(1)} {landed(1)} {fork_steps(2)} {landed(2)}"),
        *steps(f"{fork_steps(3)} {landed(3)} {fork_steps(4)}"),
        *steps(f"{landed(4)} {DONE}", "new"),
    ],
}
"""Every step, in the order they are passed."""

CASES = [
    pytest.param(kind, step, id=f"{kind}-{step}") for kind, way in STEPS.items() for step in way
]
SIDES = {"branch-merge": ("old", "main"), "branch-merge-into": ("main", "review")}


def prepared(kind: str, root: Path) -> Model:
    """A graph in which the source differs from its base in every table, and its model."""
    copy_of(PREPARE[kind], root)
    model = seed_of_branches()
    source, target = SIDES[kind]
    model.branches[source].persons["ben"] = 7
    model.branches[source].cities["rome"] = 7
    model.branches[source].delete_person("ana")
    if kind == "branch-merge":
        model.branches[target].persons["zoe"] = 1
        model.branches[target].cities["zoe"] = 1
    return model


def _prepare(kind: str, root: Path) -> None:
    seeded(str(root))
    graph = open_graph(root)
    source, target = SIDES[kind]
    graph.mutate(UPDATE, {"person": "ben", "city": "rome", "value": 7}, branch=source)
    graph.mutate(DELETE, {"person": "ana"}, branch=source)
    if kind == "branch-merge":
        graph.mutate(INSERT, {"person": "zoe", "city": "zoe"}, branch=target)


PREPARE = {kind: partial(_prepare, kind) for kind in STEPS}
"""What makes the graph of each kind, once: the others are copies."""


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "step"), CASES)
def test_c_rec_043_a_death_at_any_step_leaves_the_whole_merge_or_none_of_it(
    root: Path, kind: str, step: Step
) -> None:
    model = prepared(kind, root)
    source, target = SIDES[kind]
    assert processes.killed(kind, root, step.kill).answer is None
    graph = judge.reopened(root, judge.pending(root))
    if step.leads_to == "new":
        OPERATIONS[kind].apply(model)
    judge.require_shows(graph, model)
    # The same merge once more leads to the same end from either side.
    again = graph.merge_branch(source, target)
    assert (again.outcome == "already_up_to_date") == (step.leads_to == "new")
    if step.leads_to == "old":
        OPERATIONS[kind].apply(model)
    judge.require_shows(graph, model)
    merges = [commit for commit in graph.list_commits(target) if commit.kind == "merge"]
    heads = graph.list_commits(source)[0].graph_commit_id
    assert [commit.merged_parent_commit_id for commit in merges] == [heads]
    judge.require_writable(graph, model)


@pytest.mark.parametrize("kind", STEPS)
def test_the_steps_of_each_kind_are_exactly_those_it_passes(root: Path, kind: str) -> None:
    prepared(kind, root)
    passed = passed_by(lambda: OPERATIONS[kind].run(str(root)))
    assert passed == [str(step) for step in STEPS[kind]]


@pytest.mark.parametrize("kind", STEPS)
def test_c_rec_006_the_next_write_finishes_a_merge_that_only_lacks_its_publish(
    root: Path, kind: str
) -> None:
    model = prepared(kind, root)
    graph = open_graph(root)
    point = Failpoint.BRANCH_MERGE_POST_PHASE_B_PRE_MANIFEST_COMMIT
    with armed(f"{point}=error*1"), pytest.raises(RecoveryRequired):
        graph.merge_branch(*SIDES[kind], actor="act-ana")
    OPERATIONS[kind].apply(model)
    judge.require_writable(graph, model)
    (row,) = graph.list_recoveries()
    assert (row.recovery_kind, row.sidecar_writer_kind) == ("RolledForward", "BranchMerge")
    assert row.recovery_for_actor == "act-ana"
    merged = [commit for commit in graph.list_commits(SIDES[kind][1]) if commit.kind == "merge"]
    assert [commit.actor_id for commit in merged] == ["act-ana"]
    assert merged[0].merged_parent_commit_id is not None


@pytest.mark.parametrize("kind", STEPS)
def test_a_merge_that_failed_between_tables_is_rolled_back(root: Path, kind: str) -> None:
    model = prepared(kind, root)
    graph = open_graph(root)
    with (
        armed(f"{Failpoint.BRANCH_MERGE_BETWEEN_CHUNKS}=error@2"),
        pytest.raises(RecoveryRequired),
    ):
        graph.merge_branch(*SIDES[kind])
    with pytest.raises(RecoveryRequired):
        graph.merge_branch(*SIDES[kind])
    assert [settled.outcome for settled in graph.recover()] == ["rolled_back"]
    judge.require_shows(graph, model)
    graph.merge_branch(*SIDES[kind])
    OPERATIONS[kind].apply(model)
    judge.require_writable(graph, model)


@pytest.mark.parametrize("kind", STEPS)
def test_c_rec_018_a_merge_whose_record_cannot_be_written_leaves_nothing(
    root: Path, kind: str
) -> None:
    model = prepared(kind, root)
    graph = open_graph(root)
    with (
        armed(f"{Failpoint.RECOVERY_SIDECAR_WRITE}=error*1"),
        pytest.raises((OmnigraphError, OSError)),
    ):
        graph.merge_branch(*SIDES[kind])
    judge.require_settled(graph)
    judge.require_shows(graph, model)
    graph.merge_branch(*SIDES[kind])
    OPERATIONS[kind].apply(model)
    judge.require_writable(graph, model)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("point", "is_there"),
    [("branch_merge.post_phase_b_pre_manifest_commit", False), ("recovery.sidecar_delete", True)],
)
def test_a_death_in_a_merge_that_changes_no_table_leaves_its_commit_or_none(
    root: Path, point: str, is_there: bool
) -> None:
    """Branch `old` comes to nothing: its merge is a commit and moves no table."""
    model = seeded(str(root))
    graph = open_graph(root)
    for kind in ("Person", "City"):
        gone = f'query gone {{ delete {kind} where name = "olga" }}'
        graph.mutate(gone, branch="old")
    del model.branches["old"].persons["olga"], model.branches["old"].cities["olga"]
    processes.killed("branch-merge", root, f"{point}=kill")
    graph = judge.reopened(root, judge.pending(root))
    judge.require_shows(graph, model)
    outcome = graph.merge_branch("old").outcome
    assert outcome == ("already_up_to_date" if is_there else "fast_forward")
    judge.require_writable(graph, model)


@pytest.mark.parametrize(
    ("point", "is_done"),
    [
        ("branch_merge.between_chunks=error@1", False),
        ("branch_merge.post_phase_b_pre_manifest_commit=error*1", True),
    ],
)
def test_a_revert_that_was_interrupted_is_undone_or_finished_as_a_whole(
    root: Path, point: str, is_done: bool
) -> None:
    """A revert is a merge of its own kind, and one commit over several tables as well."""
    model = seeded(str(root))
    graph = open_graph(root)
    undone = graph.mutate(INSERT, {"person": "zoe", "city": "zoe"}).commit
    assert undone is not None
    with armed(point), pytest.raises(RecoveryRequired):
        graph.revert(undone.graph_commit_id)
    outcome = "rolled_forward" if is_done else "rolled_back"
    assert [settled.outcome for settled in graph.recover()] == [outcome]
    if not is_done:
        graph.revert(undone.graph_commit_id)
    judge.require_shows(graph, model)
    assert graph.revert(undone.graph_commit_id).commit is None, "there is nothing left to undo"
    judge.require_writable(graph, model)
