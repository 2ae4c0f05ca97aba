"""Writers of several processes hand their writes over to the owner of the branch, who may die."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from omnigraph.commit.leases import READY, branch_scope
from omnigraph.effects.local_disk import folder_of_locks
from omnigraph.graph import open_graph
from tests.crash import judge, processes
from tests.crash.model import Model, shown
from tests.crash.operations import seeded

WRITERS = ("gail", "gert", "gina")

KILLS = (
    "group.pre_claim",
    "group.pre_claim=kill@2",
    "group.pre_admission",
    "group.between_members",
    "mutation.post_sidecar_pre_fork",
    "mutation.post_table_commit",
    "mutation.post_finalize_pre_publisher",
    "graph_publish.after_manifest_commit",
    "recovery.sidecar_delete",
)


def waiting(root: Path) -> list[str]:
    """The writes that were left for the owner of main."""
    folder = folder_of_locks(root / "__lease", "group/main")
    return [file.name for file in folder.glob(f"*{READY}")]


def _has_left(root: Path, count: int) -> bool:
    return len(waiting(root)) == count


def contend(root: Path, failpoints: str = "") -> list[processes.Child]:
    """Processes that have all left their write before the branch is free; how each ended."""
    kernel = open_graph(root)._kernel
    lease = kernel.leases.try_hold(branch_scope("main"), kernel.ids.ulid())
    assert lease is not None
    children = []
    for at, name in enumerate(WRITERS, start=1):
        children.append(processes.start(f"insert-many {name} 1", root, failpoints))
        processes.wait_until(partial(_has_left, root, at), "a write is left")
    lease.release()
    for child in children:
        child.wait()
    return children


def require_whole(root: Path, before: Model, children: list[processes.Child]) -> list[str]:
    """Acknowledged writes are there once, others wholly or not at all; returns what is there."""
    graph = judge.reopened(root, judge.pending(root))
    main = shown(graph).main
    there = [name for name in WRITERS if f"{name}0" in main.persons]
    for name, child in zip(WRITERS, children, strict=False):
        assert (f"{name}0" in main.cities) == (name in there)
        if child.answer is not None and "value" in child.answer:
            assert name in there, "an acknowledged write is lost"
    for name in there:
        before.main.persons[f"{name}0"] = before.main.cities[f"{name}0"] = 1
    judge.require_shows(graph, before)
    judge.require_writable(graph, before)
    return there


def test_writes_that_are_handed_over_land_as_one_publish(root: Path) -> None:
    model = seeded(str(root))
    children = contend(root)
    assert all("value" in (child.answer or {}) for child in children)
    assert require_whole(root, model, children) == [*WRITERS]
    newest = open_graph(root)._kernel.manifest.main.refresh().lineage()
    versions = [row.manifest_version for row in newest if row.kind == "mutation"][1:4]
    assert len(set(versions)) == 1
    assert waiting(root) == []


@pytest.mark.slow
@pytest.mark.parametrize("at", KILLS)
def test_an_owner_that_dies_with_the_writes_of_others_loses_none(root: Path, at: str) -> None:
    """Each process that comes to lead dies there, until those that are left go alone."""
    model = seeded(str(root))
    failpoint = at if "=" in at else f"{at}=kill"
    children = contend(root, failpoint)
    assert any(child.process.exitcode for child in children)
    require_whole(root, model, children)


def _follows(root: Path, failpoints: str) -> tuple[Model, list[processes.Child], int]:
    """A writer leaves its write while another commits; both, and how often the branch was owned.

    ``failpoints`` are those of the owner.
    """
    model = seeded(str(root))
    kernel = open_graph(root)._kernel
    pause = processes.Pause(root.parent)
    lease = kernel.leases.try_hold(branch_scope("main"), kernel.ids.ulid())
    assert lease is not None
    # One that finds the branch owned goes the way of those that hand over, and leads once it can.
    stopped = f"recovery.sidecar_write={pause.at()}"
    owner = processes.start(
        "insert-many gail 1", root, ";".join(filter(None, (stopped, failpoints)))
    )
    processes.wait_until(partial(_has_left, root, 1), "a write is left")
    lease.release()
    pause.reached()
    other = processes.start("insert-many gert 1", root)
    processes.wait_until(partial(_has_left, root, 1), "another write is left")
    pause.end()
    children = [owner, other]
    for child in children:
        child.wait()
    found = kernel.leases._recorded(branch_scope("main"))
    assert found is not None
    return model, children, found[0].epoch - lease.epoch


def test_the_owner_goes_on_with_what_was_handed_over_meanwhile(root: Path) -> None:
    model, children, owned = _follows(root, "")
    assert all("value" in (child.answer or {}) for child in children)
    assert require_whole(root, model, children) == ["gail", "gert"]
    newest = open_graph(root)._kernel.manifest.main.refresh().lineage()
    versions = [row.manifest_version for row in newest if row.kind == "mutation"][1:3]
    assert len(set(versions)) == 2
    assert owned == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    "at",
    [
        "group.pre_claim",
        "group.pre_admission=kill@2",
        "mutation.post_sidecar_pre_fork=kill@2",
        "mutation.post_table_commit=kill@3",
        "mutation.post_finalize_pre_publisher=kill@2",
        "graph_publish.after_manifest_commit=kill@2",
        "recovery.sidecar_delete=kill@2",
    ],
)
def test_an_owner_that_dies_as_it_goes_on_loses_neither_its_write_nor_another(
    root: Path, at: str
) -> None:
    model, children, _ = _follows(root, at if "=" in at else f"{at}=kill")
    assert children[0].process.exitcode
    there = require_whole(root, model, children)
    told = children[1].finished()
    if "post_table_commit" in at:
        # Half of it is committed: it is undone by the next open, and was not acknowledged.
        assert told["error"] == "RecoveryRequired"
        assert told["details"]["outcome"] == "unknown"
        assert there == ["gail"]
    else:
        assert "value" in told
        assert there == ["gail", "gert"]


def test_a_write_of_a_process_that_is_gone_is_not_made(root: Path) -> None:
    model = seeded(str(root))
    kernel = open_graph(root)._kernel
    lease = kernel.leases.try_hold(branch_scope("main"), kernel.ids.ulid())
    assert lease is not None
    dead, living = (processes.start(f"insert-many {name} 1", root) for name in WRITERS[:2])
    processes.wait_until(lambda: len(waiting(root)) == 2, "both have left their writes")
    dead.kill()
    lease.release()
    assert "value" in living.finished()
    graph = judge.reopened(root, judge.pending(root))
    model.main.persons["gert0"] = model.main.cities["gert0"] = 1
    judge.require_shows(graph, model)
