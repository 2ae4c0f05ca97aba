"""Several live processes on one graph: C-WRT-040, C-WRT-041, C-WRT-043, C-REC-048, C-STO-044."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from omnigraph.errors import NotFound, WriterBusy
from omnigraph.graph import open_graph
from tests.crash import judge
from tests.crash.child import BEFORE_VARIABLE
from tests.crash.model import Contents, Model
from tests.crash.operations import INSERT, operation, seeded
from tests.crash.processes import Pause, start
from tests.crash.test_kill_during_recovery import DAMAGES, Damage, damaged

pytestmark = pytest.mark.slow


def test_c_wrt_040_two_processes_on_one_branch_interleave_without_loss(
    root: Path, tmp_path: Path
) -> None:
    model = seeded(str(root))
    words = [f"insert-many {prefix} 12" for prefix in ("a", "b")]
    pauses = [Pause(tmp_path), Pause(tmp_path)]
    writers = [
        start(each, root, f"recovery.sidecar_list={pause.at()}")
        for each, pause in zip(words, pauses, strict=True)
    ]
    for pause in pauses:
        pause.reached()
    for pause in pauses:
        pause.end()
    for each, writer in zip(words, writers, strict=True):
        assert len(writer.finished()["value"]) == 12
        operation(each).apply(model)
    graph = open_graph(root)
    judge.require_shows(graph, model)
    judge.require_settled(graph)
    # Genesis, the seed, and one commit for each of them.
    assert len(graph.list_commits()) == 2 + 24
    assert graph.list_recoveries() == []


def test_c_wrt_041_and_043_a_held_branch_keeps_out_its_own_writers_and_no_others(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = seeded(str(root))
    pause = Pause(tmp_path)
    holder = start("insert", root, f"mutation.post_sidecar_pre_fork={pause.at()}")
    pause.reached()
    monkeypatch.setenv("OMNIGRAPH_LEASE_WAIT_MS", "200")
    graph = open_graph(root)
    record = orjson.loads(graph._kernel.store.read("__lease/branch/main.json"))
    with pytest.raises(WriterBusy) as busy:
        graph.mutate(INSERT, {"person": "x", "city": "x"})
    assert busy.value.details["scope"] == "branch/main"
    assert busy.value.details["owner"] == record["owner_id"]
    assert busy.value.details["retry_after_ms"] > 0
    for branch in ("old", "review"):
        graph.mutate(INSERT, {"person": "x", "city": "x"}, branch=branch)
        model.branches[branch].persons["x"] = 1
        model.branches[branch].cities["x"] = 1
    with pytest.raises(WriterBusy):
        graph.create_branch("draft")
    pause.end()
    assert "value" in holder.finished()
    operation("insert").apply(model)
    judge.require_shows(graph, model)
    judge.require_settled(graph)


def test_a_branch_is_not_deleted_under_a_writer(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = seeded(str(root))
    pause = Pause(tmp_path)
    writer = start("first-touch", root, f"mutation.post_table_commit={pause.at()}")
    pause.reached()
    monkeypatch.setenv("OMNIGRAPH_LEASE_WAIT_MS", "200")
    graph = open_graph(root)
    with pytest.raises(WriterBusy):
        graph.delete_branch("review")
    pause.end()
    assert "value" in writer.finished()
    operation("first-touch").apply(model)
    judge.require_shows(graph, model)
    graph.delete_branch("review")
    assert graph.list_branches() == ["main", "old"]


def test_a_branch_that_another_process_deletes_is_not_found_by_those_who_know_it(
    root: Path,
) -> None:
    seeded(str(root))
    graph = open_graph(root)
    known = graph._kernel.manifest.branch("old")
    known.refresh()
    assert "value" in start("branch-delete", root).finished()
    # Whoever found the branch in the registry a moment earlier comes too late here.
    with pytest.raises(NotFound):
        known.refresh()
    with pytest.raises(NotFound):
        graph.mutate(INSERT, {"person": "x", "city": "x"}, branch="old")


def test_a_branch_deleted_while_a_write_to_it_is_prepared_is_not_found(
    root: Path, tmp_path: Path
) -> None:
    model = seeded(str(root))
    pause = Pause(tmp_path)
    # Forked, so that the write has files of the branch itself to miss.
    open_graph(root).mutate(INSERT, {"person": "x", "city": "x"}, branch="review")
    before = {BEFORE_VARIABLE: f"stage_upsert={pause.at(2)}"}
    writer = start("first-touch", root, "", before)
    pause.reached()
    open_graph(root).delete_branch("review")
    pause.end()
    assert writer.finished()["error"] == "NotFound"
    del model.branches["review"]
    graph = open_graph(root)
    judge.require_shows(graph, model)
    judge.require_settled(graph)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_c_rec_048_two_processes_that_recover_at_once_settle_it_once(
    root: Path, tmp_path: Path, damage: Damage
) -> None:
    model = damaged(damage, root)
    left = judge.pending(root)
    pauses = [Pause(tmp_path), Pause(tmp_path)]
    recoverers = [start("recover", root, f"recovery.sidecar_list={p.at()}") for p in pauses]
    for pause in pauses:
        pause.reached()
    for pause in pauses:
        pause.end()
    for recoverer in recoverers:
        assert "value" in recoverer.finished()
    graph = judge.reopened(root, left)
    judge.require_shows(graph, model)
    judge.require_writable(graph, model)


def test_c_sto_044_a_second_init_is_refused_while_the_first_runs_and_afterwards(
    root: Path, tmp_path: Path
) -> None:
    pause = Pause(tmp_path)
    first = start("init", root, f"init.after_schema_contract_written={pause.at()}")
    pause.reached()
    assert start("init", root).finished()["error"] == "InitializationClaimed"
    pause.end()
    assert "value" in first.finished()
    assert start("init", root).finished()["error"] == "AlreadyInitialized"
    graph = open_graph(root)
    judge.require_shows(graph, Model({"main": Contents()}))


@pytest.mark.parametrize("attempt", range(3))
def test_c_sto_044_of_inits_that_race_exactly_one_creates_the_graph(
    root: Path, attempt: int
) -> None:
    racers = [start("init", root) for _ in range(3)]
    answers = [racer.finished() for racer in racers]
    assert sum("value" in answer for answer in answers) == 1
    refusals = {answer["error"] for answer in answers if "error" in answer}
    assert refusals <= {"InitializationClaimed", "AlreadyInitialized"}
    graph = open_graph(root)
    model = Model({"main": Contents()})
    judge.require_shows(graph, model)
    judge.require_writable(graph, model)
    assert [commit.parent_commit_id for commit in graph.list_commits()][-1] is None


def test_a_process_that_waits_sees_what_the_one_before_it_wrote(root: Path, tmp_path: Path) -> None:
    """The second writer was prepared on the old head; it is prepared again, not applied blindly."""
    model = seeded(str(root))
    pause = Pause(tmp_path)
    first = start("delete", root, f"mutation.post_sidecar_pre_fork={pause.at()}")
    pause.reached()
    second = start("append", root, "")
    pause.end()
    assert "value" in first.finished()
    assert "value" in second.finished()
    operation("delete").apply(model)
    operation("append").apply(model)
    graph = open_graph(root)
    judge.require_shows(graph, model)
    judge.require_settled(graph)
