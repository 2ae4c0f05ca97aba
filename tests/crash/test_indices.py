"""C-REC-043 for building indexes: kill -9 at every step, and look at what is left.

The content of a graph is the same with and without indexes. So beside the content these tests look
at the indexes: there are none until every table has its commit, and all of them from then on.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.effects.failpoints import armed
from omnigraph.errors import RecoveryRequired
from omnigraph.graph import Graph, open_graph
from omnigraph.storage.indexes import indexes_of
from tests.crash import judge, processes
from tests.crash.operations import OPERATIONS, passed_by, seeded
from tests.crash.test_kill_at_failpoint import ENTERING, OPENING, PUBLISHED, Step, steps

TABLES = ("edge:Knows", "edge:LivesIn", "node:City", "node:Person")
BRANCH = {"index": "main", "index-branch": "review"}
ALL_BUILT = "ensure_indices.post_phase_b_pre_manifest_commit"


def built(table: int) -> str:
    return f"ensure_indices.post_table_effect@{table}"


def forked(table: int) -> str:
    names = ("fork.before_classify", "fork.post_create_pre_open", "mutation.post_fork_pre_commit")
    return " ".join(f"{name}@{table}" for name in names)


ARMED = f"{OPENING} {ENTERING} recovery.sidecar_write mutation.post_sidecar_pre_fork"

STEPS: dict[str, list[Step]] = {
    "index": [
        *steps(f"{ARMED} {built(1)} {built(2)} {built(3)}"),
        *steps(f"{built(4)} {ALL_BUILT} {PUBLISHED}", "new"),
    ],
    "index-branch": [
        *steps(f"{ARMED} {forked(1)} {built(1)} {forked(2)} {built(2)} {forked(3)} {built(3)}"),
        *steps(forked(4)),
        *steps(f"{built(4)} {ALL_BUILT} {PUBLISHED}", "new"),
    ],
}
"""Every step, in the order they are passed."""

CASES = [
    pytest.param(kind, step, id=f"{kind}-{step}") for kind, way in STEPS.items() for step in way
]


def indexed(graph: Graph, branch: str) -> set[str]:
    """The tables of a branch that have indexes."""
    reader = graph._opened.reader(branch)
    return {key for key in TABLES if indexes_of(reader.handle(key))}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "step"), CASES)
def test_c_rec_043_a_death_at_any_step_leaves_no_index_or_all(
    root: Path, kind: str, step: Step
) -> None:
    model = seeded(str(root))
    assert processes.killed(kind, root, step.kill).answer is None
    graph = judge.reopened(root, judge.pending(root))
    assert indexed(graph, BRANCH[kind]) == (set(TABLES) if step.leads_to == "new" else set())
    assert indexed(graph, "old") == set(), "another branch was touched"
    judge.require_shows(graph, model)
    # The same run once more leads to the same end from either side.
    again = graph.ensure_indices(BRANCH[kind])
    assert (again.graph_commit_id is None) == (step.leads_to == "new")
    assert indexed(graph, BRANCH[kind]) == set(TABLES)
    judge.require_writable(graph, model)


@pytest.mark.parametrize("kind", STEPS)
def test_the_steps_of_each_kind_are_exactly_those_it_passes(root: Path, kind: str) -> None:
    seeded(str(root))
    passed = passed_by(lambda: OPERATIONS[kind].run(str(root)))
    assert passed == [str(step) for step in STEPS[kind]]


@pytest.mark.parametrize("kind", STEPS)
def test_the_next_write_finishes_indexes_that_only_lack_their_publish(
    root: Path, kind: str
) -> None:
    model = seeded(str(root))
    graph = open_graph(root)
    with armed(f"{ALL_BUILT}=error*1"), pytest.raises(RecoveryRequired):
        graph.ensure_indices(BRANCH[kind])
    assert indexed(graph, BRANCH[kind]) == set()
    judge.require_writable(graph, model)
    assert indexed(graph, BRANCH[kind]) == set(TABLES)
    (row,) = graph.list_recoveries()
    assert (row.recovery_kind, row.sidecar_writer_kind) == ("RolledForward", "EnsureIndices")


@pytest.mark.parametrize("kind", STEPS)
def test_indexes_of_some_tables_only_are_rolled_back(root: Path, kind: str) -> None:
    model = seeded(str(root))
    graph = open_graph(root)
    with armed(f"{built(2).removesuffix('@2')}=error@2"), pytest.raises(RecoveryRequired):
        graph.ensure_indices(BRANCH[kind])
    with pytest.raises(RecoveryRequired):
        graph.ensure_indices(BRANCH[kind])
    assert [settled.outcome for settled in graph.recover()] == ["rolled_back"]
    assert indexed(graph, BRANCH[kind]) == set()
    assert graph.ensure_indices(BRANCH[kind]).built_count == 12
    judge.require_writable(graph, model)
