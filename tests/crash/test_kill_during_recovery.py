"""C-REC-043 for recovery itself: whoever repairs a graph may die while doing it, again and again.

A write is killed so that recovery has something to do. Then the process that recovers is killed at
one of its steps. The next one must still end at the same graph, with one audit row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest

from omnigraph.branching.branches import delete_branch
from omnigraph.commit.kernel import Kernel
from omnigraph.effects.failpoints import Failpoint
from omnigraph.effects.uri import Root
from omnigraph.graph import open_graph
from omnigraph.storage.transactions import DatasetRef, stage_delete
from tests.crash import judge, processes
from tests.crash.model import Model
from tests.crash.operations import OPERATIONS, passed_by, seeded
from tests.crash.test_kill_at_failpoint import ELSEWHERE


@dataclass(frozen=True)
class Damage:
    """A write that was killed, and what recovery does about it."""

    kind: str
    failpoint: str
    """Where the write dies."""
    steps: str
    """The failpoints that recovery then passes, in order."""
    apply: Callable[[Model], None]
    """What the graph shows in the end."""
    prepare: Callable[[Path], None] = lambda root: None
    """What else happens before recovery."""


def nothing(model: Model) -> None:
    """The old graph."""


def forget_review(model: Model) -> None:
    del model.branches["review"]


def delete_review(root: Path) -> None:
    """Take the branch of the interrupted write away; that is not held up by its sidecar."""
    delete_branch(open_graph(root, "read_only")._kernel, "review")


FOUND = (
    "recovery.sidecar_list recovery.post_sidecar_list_pre_read lease.after_takeover"
    " recovery.post_sidecar_list_pre_read@2"
)
DONE = "recovery.record_audit recovery.sidecar_delete"
PUBLISH = "graph_publish.after_manifest_commit"
RESTORED = "recovery.post_table_restore_pre_publish"
ROLLED_BACK = "recovery.post_rollback_publish_pre_audit"

DAMAGES = {
    "nothing-moved": Damage("insert", "mutation.post_sidecar_pre_fork", f"{FOUND} {DONE}", nothing),
    "half": Damage(
        "delete",
        "mutation.post_table_commit@2",
        f"{FOUND} {RESTORED} {PUBLISH} {ROLLED_BACK} {DONE}",
        nothing,
    ),
    "whole": Damage(
        "merge",
        "mutation.post_finalize_pre_publisher",
        f"{FOUND} recovery.before_roll_forward_publish {PUBLISH} {DONE}",
        OPERATIONS["merge"].apply,
    ),
    "published": Damage(
        "overwrite", "recovery.sidecar_delete", f"{FOUND} {DONE}", OPERATIONS["overwrite"].apply
    ),
    "fork-untouched": Damage(
        "first-touch",
        "mutation.post_fork_pre_commit",
        f"{FOUND} recovery.sidecar_list@2 {RESTORED} {DONE}",
        nothing,
    ),
    "fork-half": Damage(
        "first-touch",
        "mutation.post_fork_pre_commit@2",
        f"{FOUND} recovery.sidecar_list@2 {RESTORED} {PUBLISH} {ROLLED_BACK} {DONE}",
        nothing,
    ),
    "fork-whole": Damage(
        "first-touch",
        "mutation.post_table_commit@2",
        f"{FOUND} recovery.before_roll_forward_publish {PUBLISH} {DONE}",
        OPERATIONS["first-touch"].apply,
    ),
    "orphan": Damage(
        "first-touch",
        "mutation.post_table_commit",
        # Deleting the branch took its lease over already.
        "recovery.sidecar_list recovery.post_sidecar_list_pre_read"
        " recovery.post_sidecar_list_pre_read@2 recovery.post_sidecar_list_pre_read@3"
        f" recovery.orphan_discard_audit_append {PUBLISH} {DONE}",
        forget_review,
        delete_review,
    ),
}

CASES = [
    pytest.param(damage, step, id=f"{name}-{step}")
    for name, damage in DAMAGES.items()
    for step in damage.steps.split()
]


def numbered(steps: str) -> list[str]:
    return [step if "@" in step else f"{step}@1" for step in steps.split()]


def kill_at(step: str) -> str:
    name, _, nth = step.partition("@")
    return f"{name}=kill@{nth or 1}"


def damaged(damage: Damage, root: Path) -> Model:
    """The graph with an interrupted write in it, and what it must show once recovered."""
    model = seeded(str(root))
    processes.killed(damage.kind, root, kill_at(damage.failpoint))
    damage.prepare(root)
    damage.apply(model)
    return model


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "step"), CASES)
def test_c_rec_043_a_recovery_killed_at_any_step_is_finished_by_the_next(
    root: Path, damage: Damage, step: str
) -> None:
    model = damaged(damage, root)
    left = judge.pending(root)
    assert len(left.operations) == 1
    processes.killed("recover", root, kill_at(step))
    graph = judge.reopened(root, left)
    judge.require_shows(graph, model)
    judge.require_writable(graph, model)


@pytest.mark.slow
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_c_rec_043_recoveries_killed_one_after_another_still_converge(
    root: Path, damage: Damage
) -> None:
    model = damaged(damage, root)
    left = judge.pending(root)
    for step in damage.steps.split():
        # A recovery that does not come this far any more simply finishes.
        processes.start("recover", root, kill_at(step)).wait()
    graph = judge.reopened(root, left)
    judge.require_shows(graph, model)
    judge.require_writable(graph, model)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_the_steps_of_each_recovery_are_exactly_those_it_passes(root: Path, damage: Damage) -> None:
    damaged(damage, root)
    assert passed_by(lambda: open_graph(root)) == numbered(damage.steps)


# --- a commit that came too late ------------------------------------------------------------------

LATE_STEPS = (
    "recovery.sidecar_list recovery.sidecar_list@2 recovery.sidecar_write"
    f" {RESTORED} {PUBLISH} {ROLLED_BACK} {DONE}"
)


def late_commit(root: Path) -> Model:
    """A graph on which a commit of an operation that was undone has landed after all."""
    model = seeded(str(root))
    processes.killed("insert", root, "mutation.post_sidecar_pre_fork=kill")
    kernel = Kernel.of(Root.parse(root))
    sidecar = kernel.sidecars.read(kernel.sidecars.names()[0])
    assert sidecar is not None
    judge.reopened(root, judge.pending(root))
    (table,) = [table for table in sidecar.tables if table.table_key == "node:Person"]
    handle = kernel.lance.open(DatasetRef(kernel.table_uri(table.location)))
    uuid = table.transactions[0].uuid
    kernel.lance.commit(handle, stage_delete(handle, pa.array(["ana"]), uuid))
    return model


@pytest.mark.slow
@pytest.mark.parametrize("step", LATE_STEPS.split())
def test_c_rec_044_the_undoing_of_a_late_commit_may_be_killed_at_any_step(
    root: Path, step: str
) -> None:
    model = late_commit(root)
    processes.killed("recover", root, kill_at(step))
    graph = open_graph(root)
    judge.require_settled(graph)
    judge.require_shows(graph, model)
    rows = [(row.recovery_kind, row.sidecar_writer_kind) for row in graph.list_recoveries()]
    assert rows == [("RolledBack", "Mutation"), ("RolledBack", "Recovery")]
    assert graph.recover() == []
    judge.require_writable(graph, model)


def test_the_steps_of_undoing_a_late_commit_are_exactly_those_it_passes(root: Path) -> None:
    late_commit(root)
    assert passed_by(lambda: open_graph(root)) == numbered(LATE_STEPS)


def test_every_failpoint_left_to_this_file_is_killed_at_here() -> None:
    here = {Failpoint(s.partition("@")[0]) for d in DAMAGES.values() for s in d.steps.split()}
    assert {point for point, file in ELSEWHERE.items() if file == Path(__file__).stem} <= here
