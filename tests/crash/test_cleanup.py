"""C-REC-043 for `cleanup`: kill -9 at every step, and live writers beside it.

Nothing it removes is needed by anybody, so there is nothing to undo: whatever was removed before a
death, every branch shows what it did, and the next run removes the rest.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.branching.branches import delete_branch
from omnigraph.effects.failpoints import armed
from omnigraph.errors import HistoricalVersionReclaimed
from omnigraph.graph import Graph, open_graph
from omnigraph.upkeep.optimize import CONCURRENCY_VARIABLE
from tests.crash import judge, processes
from tests.crash.model import Model
from tests.crash.operations import INSERT, OPERATIONS, operation, passed_by, seeded
from tests.crash.test_kill_at_failpoint import Step, steps

IN_ORDER = {CONCURRENCY_VARIABLE: "1"}
"""One table after the other, so that the steps have an order."""

OWNED = "recovery.sidecar_list@3 cleanup.resolve_branch_snapshot"
CITIES = "cleanup.reconcile_fork@1 cleanup.table_gc@1"
PERSONS = "cleanup.reconcile_fork@2 cleanup.table_gc@2"
EDGES = "cleanup.table_gc@3 cleanup.table_gc@4"
MANIFESTS = "cleanup.reconcile_fork@3 cleanup.table_gc@5 cleanup.table_gc@6"

STEPS: list[Step] = steps(
    f"recovery.sidecar_list@1 recovery.sidecar_list@2 {OWNED} {CITIES} {PERSONS} {EDGES} "
    f"{MANIFESTS}"
)
"""Every step, in the order they are passed. Cities and persons have a fork of a branch that is
gone; so has the manifest, which is cleaned up on main and on the branch that is left."""


def prepared(root: Path) -> Model:
    """A graph with a history, the refs of a deleted branch, and a branch that shares everything."""
    model = seeded(str(root))
    graph = open_graph(root)
    with armed("branch_delete.before_table_cleanup=error"):
        delete_branch(graph._kernel, "old")
    del model.branches["old"]
    for number in range(4):
        graph.mutate(INSERT, {"person": f"p{number}", "city": f"c{number}"})
        model.main.persons[f"p{number}"] = 1
        model.main.cities[f"c{number}"] = 1
    return model


def leftovers(graph: Graph) -> list[str]:
    """Folders of branches that are gone."""
    live = {row.ref for row in graph._kernel.manifest.main.refresh().branches.values()}
    return [str(path) for path in Path(graph.uri).glob("**/tree/*") if path.name not in live]


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS, ids=str)
def test_c_rec_043_a_death_at_any_step_loses_nothing_and_the_next_run_finishes(
    root: Path, step: Step
) -> None:
    model = prepared(root)
    assert processes.killed("cleanup", root, step.kill, IN_ORDER).answer is None
    graph = judge.reopened(root, judge.pending(root))
    judge.require_shows(graph, model)
    receipt = graph.cleanup(keep=1, confirm=True)
    assert not receipt.has_errors
    assert leftovers(graph) == []
    assert all(each.is_idle for each in graph.cleanup(keep=1, confirm=True).tables)
    judge.require_shows(open_graph(root), model)
    judge.require_writable(graph, model)


def test_the_steps_are_exactly_those_it_passes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepared(root)
    monkeypatch.setenv(CONCURRENCY_VARIABLE, "1")
    passed = passed_by(lambda: OPERATIONS["cleanup"].run(str(root)))
    assert passed == [str(step) for step in STEPS]


@pytest.mark.slow
def test_c_mnt_041_writers_lose_nothing_while_others_clean_up(root: Path) -> None:
    model = seeded(str(root))
    words = [f"insert-many {prefix} 20" for prefix in ("a", "b")]
    writers = [processes.start(each, root) for each in words]
    cleaner = processes.start("cleanup-often 10 8", root)
    for each, writer in zip(words, writers, strict=True):
        said = writer.finished()
        assert "value" in said, said
        operation(each).apply(model)
    assert cleaner.finished() == {"value": []}
    graph = open_graph(root)
    judge.require_shows(graph, model)
    judge.require_settled(graph)
    assert graph.list_recoveries() == []
    graph.cleanup(keep=10, confirm=True)
    judge.require_writable(graph, model)
    first = graph.list_commits()[-2].graph_commit_id
    graph.delete_branch("old")
    graph.delete_branch("review")
    graph.cleanup(keep=10, confirm=True)
    with pytest.raises(HistoricalVersionReclaimed):
        b"".join(graph.export(snapshot=first))


@pytest.mark.slow
def test_c_mnt_037_a_cleanup_refuses_while_a_write_has_begun_its_effects(
    root: Path, tmp_path: Path
) -> None:
    model = prepared(root)
    pause = processes.Pause(tmp_path)
    writer = processes.start("insert", root, f"mutation.post_table_commit={pause.at()}")
    pause.reached()
    cleaner = processes.start("cleanup", root)
    said = cleaner.finished()
    assert said["error"] == "RecoveryRequired"
    pause.end()
    assert "value" in writer.finished()
    OPERATIONS["insert"].apply(model)
    judge.require_shows(open_graph(root), model)
    assert processes.start("cleanup", root).finished() == {"value": []}
    judge.require_shows(open_graph(root), model)


@pytest.mark.slow
def test_c_mnt_041_a_bulk_of_staged_rows_survives_a_cleanup_in_another_process(
    root: Path, tmp_path: Path
) -> None:
    model = prepared(root)
    pause = processes.Pause(tmp_path)
    point = "mutation.post_stage_pre_effect_gate"
    writer = processes.start("append", root, f"{point}={pause.at()}")
    pause.reached()
    assert processes.start("cleanup", root).finished() == {"value": []}
    pause.end()
    assert "value" in writer.finished()
    OPERATIONS["append"].apply(model)
    judge.require_shows(open_graph(root), model)
