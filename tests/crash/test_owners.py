"""Owners that live, die, stop and wake up too late: C-REC-042, C-REC-044, C-WRT-042, C-WRT-044."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.commit.leases import WriteSettings
from omnigraph.commit.recovery.examining import RECOVER_ADVICE
from omnigraph.errors import NotFound, RecoveryRequired, UncoveredDrift, WriterBusy
from omnigraph.graph import Graph, open_graph
from tests.crash import judge, processes
from tests.crash.child import BEFORE_VARIABLE
from tests.crash.model import Model
from tests.crash.operations import INSERT, LEASES_VARIABLE, OPERATIONS, remote, seeded
from tests.crash.processes import Child, Pause, start, wait_until

pytestmark = pytest.mark.slow

TTL_MS = 900
REMOTE = {LEASES_VARIABLE: "remote", "OMNIGRAPH_LEASE_TTL_MS": str(TTL_MS)}
IMPATIENT = WriteSettings(ttl_ms=TTL_MS, wait_ms=100)


@pytest.fixture
def model(root: Path) -> Model:
    return seeded(str(root))


@pytest.fixture
def pause(tmp_path: Path) -> Iterator[Pause]:
    made = Pause(tmp_path)
    yield made
    made.marker.unlink(missing_ok=True)


def insert(graph: Graph, name: str, branch: str = "main") -> None:
    graph.mutate(INSERT, {"person": name, "city": name}, branch=branch)


def heads(graph: Graph) -> dict[str, int]:
    """The newest version of every table of main, published or not."""
    capture = graph._kernel.capture(graph._kernel.manifest.main, "")
    return {
        key: graph._kernel.lance.open(capture.reader.where(entry)).version
        for key, entry in capture.snapshot.tables.items()
    }


# --- an owner that lives --------------------------------------------------------------------------


def test_c_rec_042_a_live_writer_is_left_alone_by_every_other_process(
    root: Path, model: Model, pause: Pause, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = start("delete", root, f"mutation.post_table_commit={pause.at(2)}")
    pause.reached()
    monkeypatch.setenv("OMNIGRAPH_LEASE_WAIT_MS", "100")
    graph = open_graph(root)
    (name,) = graph._kernel.sidecars.names()
    before = graph._kernel.store.read(name), heads(graph)
    assert [settled.outcome for settled in graph.recover()] == ["live"]
    assert processes.start("recover", root).finished()["value"] == ["live"]
    with pytest.raises(WriterBusy):
        insert(graph, "hasty")
    insert(graph, "elsewhere", "review")
    assert (graph._kernel.store.read(name), heads(graph)) == before
    judge.require_no_drift(graph._kernel, "review")
    pause.end()
    assert "value" in writer.finished()
    OPERATIONS["delete"].apply(model)
    model.branches["review"].persons["elsewhere"] = 1
    model.branches["review"].cities["elsewhere"] = 1
    judge.require_shows(graph, model)
    assert graph.list_recoveries() == []


def test_a_stopped_process_on_local_disk_keeps_its_lease_however_long_it_sleeps(
    root: Path, model: Model, pause: Pause
) -> None:
    settings = {"OMNIGRAPH_LEASE_TTL_MS": "100"}
    writer = start("insert", root, f"mutation.post_table_commit={pause.at()}", settings)
    pause.reached()
    os.kill(writer.pid, signal.SIGSTOP)
    time.sleep(0.3)
    graph = open_graph(root)
    assert [settled.outcome for settled in graph.recover()] == ["live"]
    os.kill(writer.pid, signal.SIGCONT)
    pause.end()
    # It may find that it slept too long, or renew its lease first and go on: both are whole.
    if "value" in writer.finished():
        OPERATIONS["insert"].apply(model)
    reopened = judge.reopened(root, judge.pending(root))
    judge.require_shows(reopened, model)
    judge.require_writable(reopened, model)


# --- an owner that dies ---------------------------------------------------------------------------


def test_c_wrt_044_a_killed_local_owner_is_taken_over_at_once(
    root: Path, model: Model, pause: Pause
) -> None:
    graph = open_graph(root)
    # The lease has an hour to live, and a test that waited for that would be stopped long before.
    settings = {"OMNIGRAPH_LEASE_TTL_MS": "3600000"}
    writer = start("merge", root, f"mutation.post_finalize_pre_publisher={pause.at()}", settings)
    pause.reached()
    writer.kill()
    insert(graph, "next")
    OPERATIONS["merge"].apply(model)
    model.main.persons["next"] = 1
    model.main.cities["next"] = 1
    judge.require_shows(graph, model)
    assert [row.recovery_kind for row in graph.list_recoveries()] == ["RolledForward"]


def test_c_wrt_044_a_killed_remote_owner_is_taken_over_after_its_ttl(
    root: Path, model: Model, pause: Pause
) -> None:
    writer = start("merge", root, f"mutation.post_finalize_pre_publisher={pause.at()}", REMOTE)
    pause.reached()
    writer.kill()
    # Too impatient to wait out a live owner, but this one has fallen silent.
    graph = remote(str(root), WriteSettings(ttl_ms=TTL_MS, wait_ms=TTL_MS * 3 // 4))
    assert [settled.outcome for settled in graph.recover()] == ["live"]
    insert(graph, "next")
    OPERATIONS["merge"].apply(model)
    model.main.persons["next"] = 1
    model.main.cities["next"] = 1
    judge.require_shows(graph, model)
    judge.require_settled(graph)


def test_a_killed_remote_owner_of_the_whole_graph_blocks_no_writer_for_ever(
    root: Path, model: Model, pause: Pause
) -> None:
    creator = start("branch-create", root, f"branch_create.post_native={pause.at()}", REMOTE)
    pause.reached()
    creator.kill()
    graph = remote(str(root), WriteSettings(ttl_ms=TTL_MS, wait_ms=TTL_MS * 3 // 4))
    insert(graph, "next", "review")
    graph.create_branch("draft")
    OPERATIONS["branch-create"].apply(model)
    model.branches["review"].persons["next"] = 1
    model.branches["review"].cities["next"] = 1
    judge.require_shows(graph, model)


def test_c_rec_043_a_death_while_a_lease_is_renewed(root: Path, model: Model, pause: Pause) -> None:
    settings = {"OMNIGRAPH_LEASE_TTL_MS": "300"}
    points = f"mutation.post_table_commit={pause.at()};lease.before_renew=kill"
    processes.killed("insert", root, points, settings)
    graph = judge.reopened(root, judge.pending(root))
    judge.require_shows(graph, model)
    judge.require_writable(graph, model)


# --- an owner that wakes up too late --------------------------------------------------------------


def stopped(name: str, root: Path, pause: Pause, *, failpoint: str = "", before: str = "") -> Child:
    """A remote owner that falls silent at a failpoint, or right before a commit."""
    settings = {**REMOTE, BEFORE_VARIABLE: before}
    owner = start(name, root, failpoint, settings)
    pause.reached()
    os.kill(owner.pid, signal.SIGSTOP)
    return owner


def resumed(owner: Child, pause: Pause) -> dict[str, object]:
    """Wake the owner up and see how it ends."""
    pause.end()
    os.kill(owner.pid, signal.SIGCONT)
    return owner.finished()


def taken_over(root: Path) -> Graph:
    """Another process, after it has waited out the owner and settled what it left."""
    graph = remote(str(root), IMPATIENT)

    def settled() -> bool:
        return all(settlement.is_settled for settlement in graph.recover())

    assert [settlement.outcome for settlement in graph.recover()] == ["live"]
    wait_until(settled, "the silent owner is taken over")
    judge.require_settled(graph)
    return graph


def test_c_wrt_042_an_owner_that_wakes_after_a_takeover_cannot_publish(
    root: Path, model: Model, pause: Pause
) -> None:
    owner = stopped("delete", root, pause, failpoint=f"mutation.post_table_commit={pause.at()}")
    graph = taken_over(root)
    answer = resumed(owner, pause)
    assert answer["error"] == "RecoveryRequired"
    judge.require_shows(graph, model)
    judge.require_settled(graph)
    judge.require_writable(graph, model)
    assert [row.recovery_kind for row in graph.list_recoveries()] == ["RolledBack"]


@pytest.mark.parametrize("nth", [1, 2])
@pytest.mark.parametrize("kind", ["insert", "append", "delete"])
def test_c_rec_044_a_late_commit_of_a_fenced_owner_is_undone_and_audited(
    root: Path, model: Model, pause: Pause, kind: str, nth: int
) -> None:
    owner = stopped(kind, root, pause, before=f"commit={pause.at(nth)}")
    graph = taken_over(root)
    at_takeover = heads(graph)
    answer = resumed(owner, pause)
    assert answer["error"] == "RecoveryRequired"
    # The commit landed: it lies beyond the pin, where nobody sees it.
    late = [key for key, head in heads(graph).items() if head > at_takeover[key]]
    assert len(late) == 1
    judge.require_shows(graph, model)

    rows = graph.list_recoveries()
    again = open_graph(root)
    judge.require_settled(again)
    judge.require_shows(again, model)
    (row,) = [row for row in again.list_recoveries() if row not in rows]
    assert (row.recovery_kind, row.sidecar_writer_kind) == ("RolledBack", "Recovery")
    assert [table.table_key for table in row.tables] == late
    assert again.recover() == []
    judge.require_writable(again, model)


def test_c_rec_044_until_then_a_write_is_sent_to_recovery_not_to_repair(
    root: Path, model: Model, pause: Pause
) -> None:
    owner = stopped("insert", root, pause, before=f"commit={pause.at(1)}")
    graph = taken_over(root)
    resumed(owner, pause)
    with pytest.raises(UncoveredDrift) as refused:
        insert(graph, "next")
    assert refused.value.hint == RECOVER_ADVICE
    assert [settled.outcome for settled in graph.recover()] == ["rolled_back"]
    judge.require_settled(graph)
    judge.require_writable(graph, model)


@pytest.mark.parametrize(
    "failpoint",
    ["fork.before_classify", "fork.post_create_pre_open", "mutation.post_fork_pre_commit"],
)
def test_c_rec_044_a_late_fork_of_a_fenced_owner_does_not_get_in_the_way(
    root: Path, model: Model, pause: Pause, failpoint: str
) -> None:
    owner = stopped("first-touch", root, pause, failpoint=f"{failpoint}={pause.at()}")
    graph = taken_over(root)
    assert resumed(owner, pause)["error"] == "RecoveryRequired"
    judge.require_shows(graph, model)
    judge.require_settled_once_reopened(root, model)


@pytest.mark.parametrize(
    "failpoint",
    ["fork.before_classify", "fork.post_create_pre_open", "mutation.post_fork_pre_commit"],
)
def test_a_late_fork_finds_the_tables_of_the_faster_writer(
    root: Path, model: Model, pause: Pause, failpoint: str
) -> None:
    owner = stopped("first-touch", root, pause, failpoint=f"{failpoint}={pause.at()}")
    graph = taken_over(root)
    insert(graph, "faster", "review")
    model.branches["review"].persons["faster"] = 1
    model.branches["review"].cities["faster"] = 1
    assert resumed(owner, pause)["error"] == "RecoveryRequired"
    judge.require_shows(graph, model)
    judge.require_settled_once_reopened(root, model)


def test_an_owner_stopped_before_its_publish_finds_its_commit_published_once(
    root: Path, model: Model, pause: Pause
) -> None:
    owner = stopped("insert", root, pause, before=f"commit={pause.at(3)}")
    graph = taken_over(root)
    commits = len(graph.list_commits())
    answer = resumed(owner, pause)
    OPERATIONS["insert"].apply(model)
    assert answer["value"] == graph.list_commits()[0].graph_commit_id
    assert len(graph.list_commits()) == commits
    judge.require_shows(graph, model)
    judge.require_settled(graph)


def test_a_recoverer_that_wakes_too_late_buries_nothing(
    root: Path, model: Model, pause: Pause
) -> None:
    processes.killed("insert", root, "mutation.post_table_commit=kill", REMOTE)
    wait = {**REMOTE, "OMNIGRAPH_LEASE_TTL_MS": str(TTL_MS)}
    # Its first commit is the fence, its second the restore.
    settings = {**wait, BEFORE_VARIABLE: f"commit={pause.at(2)}"}
    recoverer = start("recover-patiently", root, "", settings)
    pause.reached()
    os.kill(recoverer.pid, signal.SIGSTOP)
    graph = taken_over(root)
    insert(graph, "next")
    model.main.persons["next"] = 1
    model.main.cities["next"] = 1
    pause.end()
    os.kill(recoverer.pid, signal.SIGCONT)
    recoverer.wait()
    # A restore never conflicts: it landed on top of the write, beyond the pin.
    judge.require_shows(graph, model)
    judge.require_settled_once_reopened(root, model)


def test_a_branch_that_is_created_too_late_is_refused(
    root: Path, model: Model, pause: Pause
) -> None:
    # Its first commit is in the fork of the manifest, its second in the registry.
    owner = stopped("branch-create", root, pause, before=f"commit={pause.at(2)}")
    graph = remote(str(root), WriteSettings(ttl_ms=TTL_MS, wait_ms=TTL_MS * 10))
    insert(graph, "next")
    model.main.persons["next"] = 1
    model.main.cities["next"] = 1
    assert resumed(owner, pause)["error"] == "FencedOut"
    judge.require_shows(graph, model)
    judge.require_settled(graph)
    with pytest.raises(NotFound):
        graph.snapshot("draft")


def test_a_write_to_a_branch_that_was_deleted_meanwhile_is_not_called_a_success(
    root: Path, model: Model, pause: Pause
) -> None:
    owner = stopped("first-touch", root, pause, before=f"commit={pause.at(3)}")
    graph = remote(str(root), WriteSettings(ttl_ms=TTL_MS, wait_ms=TTL_MS * 10))
    graph.delete_branch("review")
    assert "error" in resumed(owner, pause)
    del model.branches["review"]
    again = open_graph(root)
    judge.require_settled(again)
    judge.require_shows(again, model)


def test_a_writer_meets_the_sidecar_of_an_owner_it_waited_out(
    root: Path, model: Model, pause: Pause
) -> None:
    owner = stopped("insert", root, pause, failpoint=f"mutation.post_table_commit={pause.at()}")
    graph = remote(str(root), WriteSettings(ttl_ms=TTL_MS, wait_ms=TTL_MS * 10))
    with pytest.raises(RecoveryRequired):
        insert(graph, "next")
    assert [settled.outcome for settled in graph.recover()] == ["rolled_back"]
    judge.require_shows(graph, model)
    assert resumed(owner, pause)["error"] == "RecoveryRequired"
    judge.require_writable(graph, model)
