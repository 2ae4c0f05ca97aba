"""C-REC-043 for `optimize`: kill -9 at every step, and look at what is left.

Several transactions on one table are one change: until the last table has its last commit, recovery
leads back to the tables as they were, and from then on to all of them optimized.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.graph import Graph, open_graph
from tests.crash import judge, processes
from tests.crash.model import Model
from tests.crash.operations import INSERT, OPERATIONS, operation, passed_by, seeded
from tests.crash.test_kill_at_failpoint import PUBLISHED, Step, steps

STAGED = "optimize.before_compact@1 optimize.before_compact@2"
STAGED += " mutation.post_stage_pre_effect_gate recovery.sidecar_list@3 recovery.sidecar_list@4"
EFFECTS = " ".join(f"mutation.post_table_commit@{n}" for n in (1, 2, 3))
ALL_DONE = "mutation.post_table_commit@4 optimize.post_phase_b_pre_manifest_commit"

STEPS: list[Step] = [
    *steps(f"recovery.sidecar_list@1 recovery.sidecar_list@2 {STAGED}"),
    *steps(f"recovery.sidecar_write mutation.post_sidecar_pre_fork {EFFECTS}"),
    *steps(f"{ALL_DONE} {PUBLISHED}", "new"),
]
"""Every step, in the order they are passed. Persons and cities are rewritten; all four tables get
indexes, after the rewrite if there is one."""


def prepared(root: Path) -> Model:
    """A graph in which persons and cities lie in two fragments each."""
    model = seeded(str(root))
    OPERATIONS["insert"].run(str(root))
    OPERATIONS["insert"].apply(model)
    return model


def fragments(graph: Graph) -> dict[str, int]:
    reader = graph._opened.reader("main")
    keys = ("node:Person", "node:City")
    return {key: len(reader.handle(key).get_fragments()) for key in keys}


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_c_rec_043_a_death_at_any_step_leaves_all_tables_or_none_optimized(
    root: Path, step: Step
) -> None:
    model = prepared(root)
    assert processes.killed("optimize", root, step.kill).answer is None
    graph = judge.reopened(root, judge.pending(root))
    expected = 1 if step.leads_to == "new" else 2
    assert set(fragments(graph).values()) == {expected}
    judge.require_shows(graph, model)
    # The same run once more leads to the same end from either side.
    again = graph.optimize()
    assert (again.graph_commit_id is None) == (step.leads_to == "new")
    assert set(fragments(graph).values()) == {1}
    judge.require_writable(graph, model)


def test_the_steps_are_exactly_those_it_passes(root: Path) -> None:
    prepared(root)
    passed = passed_by(lambda: OPERATIONS["optimize"].run(str(root)))
    assert passed == [str(step) for step in STEPS]


@pytest.mark.slow
@pytest.mark.parametrize("nth", range(1, 9))
def test_a_death_between_the_transactions_of_one_table_leads_back(root: Path, nth: int) -> None:
    """The commits of tables: one each for the edges, three each for cities and persons."""
    model = prepared(root)
    victim = processes.killed("optimize", root, "", {"CRASH_BEFORE": f"commit=kill@{nth}"})
    assert victim.answer is None
    graph = judge.reopened(root, judge.pending(root))
    assert set(fragments(graph).values()) == {2}
    judge.require_shows(graph, model)
    graph.mutate(INSERT, {"person": "more", "city": "more"})
    assert graph.optimize().graph_commit_id is not None


COMPACTING = {"OMNIGRAPH_TABLE_COMPACT_EVERY": "3"}


@pytest.mark.slow
@pytest.mark.parametrize("nth", range(4, 10))
def test_a_death_while_a_write_compacts_its_tables_leaves_the_write(root: Path, nth: int) -> None:
    """The commits of a write to two tables are three. Then each table has two or three more: old
    parts of its index go, its fragments are rewritten and a part comes back; and a publish."""
    model = prepared(root)
    open_graph(root).ensure_indices()
    settings = {**COMPACTING, "CRASH_BEFORE": f"commit=kill@{nth}"}
    processes.killed("insert-many z 1", root, "", settings)
    operation("insert-many z 1").apply(model)
    graph = judge.reopened(root, judge.pending(root))
    judge.require_shows(graph, model)
    judge.require_writable(graph, model)
