"""Deaths inside a step of Lance, where no failpoint can stand: the state they leave, made by hand.

Lance forks a table by copying a version and then listing it, and removes a fork the other way
round. A process that dies in between leaves something Lance opens but can neither list nor remove
nor make again. C-REC-040 names the states; each must be recovered from.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from lance import LanceDataset

from omnigraph.errors import RecoveryRequired
from omnigraph.graph import Graph, open_graph
from tests.crash import judge, processes
from tests.crash.operations import INSERT, seeded

pytestmark = pytest.mark.slow


def unlist(fork: Path) -> None:
    """The version was copied, but the ref was not written yet; or it was just removed."""
    listed = fork.parents[1] / "_refs" / "branches" / f"{fork.name}.json"
    listed.unlink()


def break_off(fork: Path) -> None:
    """Not even the version was copied."""
    unlist(fork)
    shutil.rmtree(fork / "_versions")


def empty(fork: Path) -> None:
    """The ref is listed, but what it lists is gone."""
    shutil.rmtree(fork)


STATES = {"unlisted": unlist, "begun": break_off, "gone": empty}


def forks(root: Path) -> list[Path]:
    """The forks of tables that branch `review` has."""
    ref = open_graph(root, "read_only")._kernel.manifest.registration("review").ref
    return sorted(root.glob(f"*/*/tree/{ref}"))


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_c_rec_040_a_half_made_fork_is_cleared_away_and_the_branch_goes_on(
    root: Path, state: Callable[[Path], None], nth: int
) -> None:
    model = seeded(str(root))
    known = set(forks(root))
    processes.killed("first-touch", root, f"fork.post_create_pre_open=kill@{nth}")
    made = [fork for fork in forks(root) if fork not in known]
    assert len(made) == nth
    # The last one made is the one that Lance was busy with.
    state(max(made, key=lambda fork: fork.stat().st_mtime_ns))
    graph = judge.reopened(root, judge.pending(root))
    judge.require_shows(graph, model)
    judge.require_writable(graph, model)


@pytest.mark.parametrize("state", STATES.values(), ids=STATES)
def test_a_fork_that_nothing_claims_does_not_keep_the_branch_from_writing(
    root: Path, state: Callable[[Path], None]
) -> None:
    model = seeded(str(root))
    processes.killed("first-touch", root, "fork.post_create_pre_open=kill")
    left = judge.pending(root)
    (fork,) = forks(root)
    kept = root.parent / "kept"
    shutil.copytree(fork, kept)
    listed = fork.parents[1] / "_refs" / "branches" / f"{fork.name}.json"
    entry = listed.read_bytes()
    graph = judge.reopened(root, left)
    assert forks(root) == []
    # What an owner that was taken over leaves behind when it wakes up after all this.
    shutil.copytree(kept, fork)
    listed.write_bytes(entry)
    state(fork)
    judge.require_writable(graph, model)


def _fork_persons(graph: Graph) -> LanceDataset:
    """Fork the persons of `review` as an external writer would, without a sidecar."""
    kernel = graph._kernel
    branch = kernel.manifest.branch("review")
    branch.refresh()
    capture = kernel.capture(branch, "")
    entry = capture.snapshot.table("node:Person")
    assert branch.where.ref is not None
    return kernel.lance.create_ref(capture.reader.where(entry), branch.where.ref, entry.version)


def test_an_untouched_fork_that_nothing_claims_is_taken_as_it_is(root: Path) -> None:
    model = seeded(str(root))
    graph = open_graph(root)
    _fork_persons(graph)
    judge.require_writable(graph, model)


def test_a_fork_with_the_work_of_a_stranger_is_never_removed(root: Path) -> None:
    seeded(str(root))
    graph = open_graph(root)
    forked = _fork_persons(graph)
    version = forked.version
    forked.delete("true")
    with pytest.raises(RecoveryRequired):
        graph.mutate(INSERT, {"person": "x", "city": "x"}, branch="review")
    outcomes = [settled.outcome for settled in graph.recover()]
    assert outcomes == ["blocked"]
    forked.checkout_latest()
    assert forked.version == version + 1
    assert [settled.outcome for settled in graph.recover(force=True)] == ["rolled_back"]
    (row,) = graph.list_recoveries()
    foreign = {table.table_key: table.foreign_versions for table in row.tables}
    assert foreign == {"node:City": (), "node:Person": (version + 1,)}
    graph.mutate(INSERT, {"person": "x", "city": "x"}, branch="review")
    judge.require_settled(graph)


@pytest.mark.parametrize("nth", [1, 2, 3, 4, 5])
def test_c_sto_044_an_init_that_died_between_its_tables_can_be_repeated(
    root: Path, nth: int
) -> None:
    # Four tables, then the manifest.
    processes.killed("init", root, "", {"CRASH_BEFORE": f"create=kill@{nth}"})
    assert "value" in processes.start("init", root).finished()
    judge.require_settled(open_graph(root))
