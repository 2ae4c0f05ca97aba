"""Removing old versions, and what deleted branches and interrupted writes left behind."""

from __future__ import annotations

import json
import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from lance.fragment import write_fragments

import omnigraph as og
from omnigraph.branching.branches import delete_branch
from omnigraph.commit import leases
from omnigraph.commit.kernel import Kernel
from omnigraph.effects.clock import monotonic_seconds
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import (
    Busy,
    HistoricalVersionReclaimed,
    InputError,
    LeaseLost,
    NotFound,
    ReadSetChanged,
    RecoveryRequired,
    StorageError,
    UncoveredDrift,
)
from omnigraph.graph import open_graph
from omnigraph.model.upkeep import CleanedTable, CleanupReceipt
from omnigraph.storage.datasets import LanceStore
from omnigraph.storage.transactions import DatasetRef
from omnigraph.upkeep import cleanup as cleanup_module
from omnigraph.upkeep import optimize as optimizing
from tests.storage.footprint import contents
from tests.support.templates import copy_of
from tests.upkeep.behind_the_back import deleted, table

SCHEMA = """
node Memo { code: String @key  size: I32? @index }
node Label { name: String @key }
edge Replies: Memo -> Memo
"""
ADD = "query add($code: String) { insert Memo { code: $code, size: 1 } }"
DROP = "query drop($code: String) { delete Memo where code = $code }"
SIZE = "query size($n: I32) { update Memo set { size: $n } where size >= 0 }"
LABEL = "query add($name: String) { insert Label { name: $name } }"


def _filled(root: Path) -> None:
    graph = og.init(root, schema=SCHEMA)
    for number in range(8):
        graph.mutate(ADD, {"code": f"m{number}"})
    graph.mutate(SIZE, {"n": 5})


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """Eight memos from eight commits, resized once: their first files are not used any more."""
    copy_of(_filled, tmp_path / "graph.omni")
    return og.open(tmp_path / "graph.omni")


def row(receipt: CleanupReceipt, type_key: str = "node:Memo") -> CleanedTable:
    (found,) = [each for each in receipt.tables if each.type_key == type_key]
    return found


def versions(graph: og.Graph, type_key: str = "node:Memo", branch: str = "main") -> list[int]:
    return [each["version"] for each in table(graph, type_key, branch).versions()]


def codes(graph: og.Graph, branch: str | None = None, snapshot: str | None = None) -> set[str]:
    lines = b"".join(graph.export(branch=branch, snapshot=snapshot)).splitlines()
    records = [json.loads(line) for line in lines]
    return {each["data"]["code"] for each in records if each.get("type") == "Memo"}


def unleased(root: str) -> dict[str, Any]:
    """Everything that lies there but for who owned it last."""
    return {name: seen for name, seen in contents(Path(root)).items() if "__lease" not in name}


ALL = {f"m{number}" for number in range(8)}


# --- policy ---------------------------------------------------------------------------------------


def test_c_mnt_031_a_policy_is_needed(graph: og.Graph) -> None:
    with pytest.raises(InputError, match="what is old"):
        graph.cleanup()
    for nonsense in ({"keep": -1}, {"older_than": timedelta(seconds=-1)}):
        with pytest.raises(InputError, match="less than nothing"):
            graph.cleanup(**nonsense)


def test_c_mnt_031_without_confirm_nothing_is_removed_and_the_preview_is_what_happens(
    graph: og.Graph,
) -> None:
    before = contents(Path(graph.uri))
    preview = graph.cleanup(keep=3)
    assert contents(Path(graph.uri)) == before
    assert preview.dry_run
    done = graph.cleanup(keep=3, confirm=True)
    assert not done.dry_run
    assert done.tables == preview.tables
    assert row(done).old_versions_removed == 7
    assert row(done).bytes_removed > 0


@pytest.mark.parametrize("keep", [0, 1])
def test_c_mnt_032_the_newest_version_stays_readable_and_writable(
    graph: og.Graph, keep: int
) -> None:
    graph.cleanup(keep=keep, confirm=True)
    assert len(versions(graph)) == 1
    for handle in (graph, open_graph(graph.uri)):
        assert codes(handle) == ALL
    graph.mutate(SIZE, {"n": 6})
    graph.mutate(ADD, {"code": "new"})
    assert codes(open_graph(graph.uri)) == {*ALL, "new"}


def test_c_mnt_033_keeping_more_than_there_is_removes_nothing(graph: og.Graph) -> None:
    before = unleased(graph.uri)
    receipt = graph.cleanup(keep=1000, confirm=True)
    assert all(each.is_idle for each in receipt.tables)
    assert unleased(graph.uri) == before


def test_c_mnt_034_keep_and_age_remove_only_what_both_allow(graph: og.Graph) -> None:
    old = timedelta(days=7)
    assert row(graph.cleanup(older_than=old)).old_versions_removed == 0
    assert row(graph.cleanup(keep=1, older_than=old)).old_versions_removed == 0
    assert row(graph.cleanup(keep=4, older_than=timedelta(0))).old_versions_removed == 6
    assert row(graph.cleanup(keep=4)).old_versions_removed == 6
    assert row(graph.cleanup(older_than=timedelta(0))).old_versions_removed == 9
    graph.cleanup(keep=4, older_than=timedelta(0), confirm=True)
    assert len(versions(graph)) == 4


def test_c_mnt_034_age_is_counted_from_the_time_a_version_was_made(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = graph._kernel.clock
    now = clock.wall_us()
    later = now + 8 * 24 * 3_600_000_000
    monkeypatch.setattr(type(clock), "wall_us", lambda _: later)
    assert row(graph.cleanup(older_than=timedelta(days=7))).old_versions_removed == 9
    assert row(graph.cleanup(older_than=timedelta(days=9))).old_versions_removed == 0


# --- branches -------------------------------------------------------------------------------------


def test_c_mnt_035_what_a_lazy_branch_sees_survives_and_the_oldest_counts(
    tmp_path: Path,
) -> None:
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA)
    seen: dict[str, set[str]] = {}
    pins = {}
    for number in range(6):
        graph.mutate(ADD, {"code": f"m{number}"})
        if number in (2, 4):
            name = f"at{number}"
            graph.create_branch(name)
            seen[name] = codes(graph)
            pins[name] = versions(graph)[-1]
    graph.mutate(SIZE, {"n": 5})
    graph.cleanup(keep=0, confirm=True)
    assert versions(graph)[0] == pins["at2"]
    assert pins["at4"] in versions(graph)
    for name, expected in seen.items():
        assert codes(open_graph(graph.uri), name) == expected
        graph.mutate(ADD, {"code": "new"}, branch=name)
        assert codes(graph, name) == {*expected, "new"}
    graph.delete_branch("at2")
    graph.cleanup(keep=0, confirm=True)
    # The fork of the other one was made at its pin.
    assert versions(graph) == [pins["at4"], versions(graph)[-1]]
    assert codes(open_graph(graph.uri), "at4") == {*seen["at4"], "new"}


def test_branches_of_branches_keep_what_they_share(graph: og.Graph) -> None:
    graph.create_branch("a")
    graph.mutate(ADD, {"code": "a1"}, branch="a")
    graph.create_branch("b", "a")
    graph.mutate(ADD, {"code": "a2"}, branch="a")
    graph.mutate(SIZE, {"n": 7}, branch="a")
    graph.create_branch("c", "b")
    graph.mutate(ADD, {"code": "c1"}, branch="c")
    graph.mutate(SIZE, {"n": 8})
    graph.cleanup(keep=0, confirm=True)
    fresh = open_graph(graph.uri)
    assert codes(fresh) == ALL
    assert codes(fresh, "a") == {*ALL, "a1", "a2"}
    assert codes(fresh, "b") == {*ALL, "a1"}
    assert codes(fresh, "c") == {*ALL, "a1", "c1"}
    for branch in ("main", "a", "b", "c"):
        fresh.mutate(SIZE, {"n": 9}, branch=branch)


def test_what_the_next_merge_starts_from_survives(graph: og.Graph) -> None:
    graph.create_branch("review")
    graph.mutate(ADD, {"code": "r1"}, branch="review")
    graph.merge_branch("review")
    for number in range(4):
        graph.mutate(ADD, {"code": f"later{number}"}, branch="review")
        graph.mutate(ADD, {"code": f"main{number}"})
    graph.mutate(DROP, {"code": "r1"}, branch="review")
    graph.cleanup(keep=0, confirm=True)
    fresh = open_graph(graph.uri)
    fresh.merge_branch("review")
    expected = {f"{name}{number}" for name in ("later", "main") for number in range(4)}
    assert codes(fresh) == {*ALL, *expected}


def test_c_mnt_036_an_unresolvable_branch_stops_the_run_before_any_removal(
    graph: og.Graph,
) -> None:
    graph.create_branch("review")
    before = unleased(graph.uri)
    with (
        armed("cleanup.resolve_branch_snapshot=error*1"),
        pytest.raises(StorageError, match="what branch `review` needs"),
    ):
        graph.cleanup(keep=0, confirm=True)
    assert unleased(graph.uri) == before


def test_a_cleanup_that_lost_its_lease_says_so_instead_of_naming_damage(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph.create_branch("old")
    late = [0.0]
    monkeypatch.setattr(leases, "monotonic_seconds", lambda: monotonic_seconds() + late[0])

    def deleted_meanwhile(failpoint: Failpoint) -> None:
        late[0] = 1e6
        raise NotFound("there is no branch `old`")

    before = versions(graph)
    with (
        armed({Failpoint.CLEANUP_RESOLVE_BRANCH_SNAPSHOT: deleted_meanwhile}),
        pytest.raises(LeaseLost),
    ):
        graph.cleanup(keep=1, confirm=True)
    late[0] = 0.0
    assert versions(graph) == before


def test_a_preview_of_cleanup_plans_again_if_a_branch_was_deleted_meanwhile(
    graph: og.Graph,
) -> None:
    graph.create_branch("old")
    other = open_graph(graph.uri)

    def deleted_meanwhile(failpoint: Failpoint) -> None:
        if "old" in other._kernel.manifest.main.refresh().branches:
            other.delete_branch("old")

    with armed({Failpoint.CLEANUP_RESOLVE_BRANCH_SNAPSHOT: deleted_meanwhile}):
        previewed = graph.cleanup(keep=1)
    assert previewed.tables == graph.cleanup(keep=1).tables


@pytest.mark.parametrize("damage", ["manifest", "table", "ref"])
def test_c_mnt_036_a_damaged_branch_stops_the_run_before_any_removal(
    graph: og.Graph, damage: str
) -> None:
    graph.create_branch("review")
    graph.mutate(ADD, {"code": "r1"}, branch="review")
    where = table(graph, "node:Memo", "review").uri
    ref = Path(where).name
    if damage == "manifest":
        folder = Path(graph.uri) / "__manifest" / "tree" / ref / "_versions"
    elif damage == "table":
        folder = Path(where) / "_versions"
    else:
        folder = Path(where).parents[1] / "_refs"
    folder.rename(folder.with_name("lost"))
    before = unleased(graph.uri)
    with pytest.raises(StorageError):
        open_graph(graph.uri, settle=False).cleanup(keep=0, confirm=True)
    assert unleased(graph.uri) == before


# --- preflight ------------------------------------------------------------------------------------


@pytest.mark.parametrize("branch", ["main", "review"])
def test_c_mnt_037_uncovered_drift_stops_the_run(graph: og.Graph, branch: str) -> None:
    graph.create_branch("review")
    graph.mutate(ADD, {"code": "r1"}, branch="review")
    deleted(graph, "node:Memo", "code = 'm1'", branch)
    before = unleased(graph.uri)
    for confirm in (False, True):
        with pytest.raises(UncoveredDrift):
            graph.cleanup(keep=0, confirm=confirm)
    assert unleased(graph.uri) == before


def test_c_mnt_037_a_pending_sidecar_stops_the_run_also_when_it_appears_later(
    graph: og.Graph,
) -> None:
    before = unleased(graph.uri)
    sidecar = Path(graph.uri) / "__recovery" / "01K9WR3C5T8M2B7XQ4ZJ6V0NHD.json"
    looks: list[Failpoint] = []

    def arm(point: Failpoint) -> None:
        looks.append(point)
        if len(looks) == 2:
            sidecar.parent.mkdir(exist_ok=True)
            sidecar.write_text("{}")

    with armed({Failpoint.RECOVERY_SIDECAR_LIST: arm}), pytest.raises(RecoveryRequired):
        graph.cleanup(keep=0, confirm=True)
    with pytest.raises(RecoveryRequired):
        graph.cleanup(keep=0)
    sidecar.unlink()
    assert unleased(graph.uri).keys() | {"__recovery"} == before.keys() | {"__recovery"}


def test_c_mnt_037_an_interrupted_write_stops_the_run_until_it_is_settled(
    graph: og.Graph,
) -> None:
    with armed("mutation.post_table_commit=error*1"), pytest.raises(RecoveryRequired):
        graph.mutate(ADD, {"code": "new"})
    with pytest.raises(RecoveryRequired, match="nothing is cleaned up"):
        graph.cleanup(keep=0, confirm=True)
    graph.recover()
    graph.cleanup(keep=0, confirm=True)
    assert codes(open_graph(graph.uri)) >= ALL


# --- orphans --------------------------------------------------------------------------------------


def refs(graph: og.Graph, type_key: str) -> set[str]:
    kernel = graph._kernel
    entry = kernel.manifest.main.refresh().head_snapshot().table(type_key)
    return set(kernel.lance.refs(DatasetRef(kernel.table_uri(entry.location))))


def trees(graph: og.Graph) -> set[str]:
    """What branches have left in the folders of tables and manifest."""
    return {path.name for path in Path(graph.uri).glob("**/tree/*")}


def leave_branch(graph: og.Graph, name: str) -> None:
    """Delete a branch so that none of its refs is reclaimed."""
    with armed("branch_delete.before_table_cleanup=error"):
        delete_branch(graph._kernel, name)


def test_c_mnt_038_refs_of_deleted_branches_are_reclaimed_children_first(
    graph: og.Graph,
) -> None:
    graph.create_branch("review")
    graph.mutate(ADD, {"code": "r1"}, branch="review")
    graph.create_branch("child", "review")
    graph.mutate(ADD, {"code": "r2"}, branch="child")
    leave_branch(graph, "child")
    leave_branch(graph, "review")
    assert len(refs(graph, "node:Memo")) == 2
    preview = graph.cleanup(keep=1000)
    receipt = graph.cleanup(keep=1000, confirm=True)
    assert preview.tables == receipt.tables
    assert len(row(receipt).orphan_refs_removed) == 2
    assert len(row(receipt, "__manifest").orphan_refs_removed) == 2
    assert trees(graph) == set()
    assert all(each.is_idle for each in graph.cleanup(keep=1000, confirm=True).tables)
    graph.create_branch("review")
    graph.mutate(ADD, {"code": "again"}, branch="review")
    assert codes(open_graph(graph.uri), "review") == {*ALL, "again"}


def test_c_mnt_038_a_branch_that_was_never_registered_is_reclaimed(graph: og.Graph) -> None:
    with armed("branch_create.post_native=error*1"), pytest.raises(StorageError):
        graph.create_branch("review")
    assert len(trees(graph)) == 1
    receipt = graph.cleanup(keep=1000, confirm=True)
    assert len(row(receipt, "__manifest").orphan_refs_removed) == 1
    assert trees(graph) == set()


def test_c_mnt_038_half_a_fork_of_a_deleted_branch_is_reclaimed(graph: og.Graph) -> None:
    graph.create_branch("review")
    graph.mutate(ADD, {"code": "r1"}, branch="review")
    where = Path(table(graph, "node:Memo", "review").uri)
    leave_branch(graph, "review")
    (where.parents[1] / "_refs" / "branches" / f"{where.name}.json").unlink()
    assert row(graph.cleanup(keep=1000, confirm=True)).orphan_refs_removed == (where.name,)
    assert trees(graph) == set()


def unowned_fork(graph: og.Graph, branch: str, type_key: str = "node:Label") -> Path:
    """A fork that a live branch never published: its first write was abandoned."""
    kernel = graph._kernel
    manifest = kernel.manifest.refreshed(branch)
    entry = manifest.state.head_snapshot().table(type_key)
    where = DatasetRef(kernel.table_uri(entry.location), manifest.where.ref)
    kernel.forks.make(where, entry.ref, entry.version)
    return Path(where.address)


def test_c_mnt_039_an_unowned_fork_on_a_live_branch_goes_and_the_owned_one_stays(
    graph: og.Graph,
) -> None:
    graph.create_branch("review")
    graph.mutate(ADD, {"code": "r1"}, branch="review")
    fork = unowned_fork(graph, "review")
    receipt = graph.cleanup(keep=1000, confirm=True)
    assert row(receipt, "node:Label").orphan_refs_removed == (fork.name,)
    assert row(receipt).orphan_refs_removed == ()
    assert not fork.exists()
    assert codes(open_graph(graph.uri), "review") == {*ALL, "r1"}
    graph.mutate(LABEL, {"name": "new"}, branch="review")


# --- faults ---------------------------------------------------------------------------------------


def test_c_mnt_040_one_table_that_fails_stops_no_other_and_a_rerun_converges(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(optimizing.CONCURRENCY_VARIABLE, "1")
    for number in range(4):
        graph.mutate(LABEL, {"name": f"l{number}"})
    expected = graph.cleanup(keep=1)
    with armed("cleanup.table_gc=error@2*1"):
        receipt = graph.cleanup(keep=1, confirm=True)
    assert receipt.has_errors
    assert row(receipt).error is not None
    assert row(receipt).old_versions_removed == 0
    assert row(receipt, "node:Label") == row(expected, "node:Label")
    again = graph.cleanup(keep=1, confirm=True)
    assert row(again) == row(expected)
    assert not again.has_errors
    assert row(again, "node:Label").is_idle


def test_c_mnt_040_a_fork_that_cannot_be_removed_is_noted(graph: og.Graph) -> None:
    graph.create_branch("review")
    graph.mutate(ADD, {"code": "r1"}, branch="review")
    leave_branch(graph, "review")
    with armed("cleanup.reconcile_fork=error"):
        receipt = graph.cleanup(keep=1, confirm=True)
    assert row(receipt).error and row(receipt, "__manifest").error
    assert codes(open_graph(graph.uri)) == ALL
    again = graph.cleanup(keep=1, confirm=True)
    assert not again.has_errors
    assert trees(graph) == set()


# --- others at work -------------------------------------------------------------------------------


def test_c_mnt_041_files_of_a_write_on_its_way_survive(graph: og.Graph) -> None:
    """A write stages outside of any lease; cleanup runs from start to end before it commits."""
    other = open_graph(graph.uri)
    receipts: list[CleanupReceipt] = []

    def clean(_: Failpoint) -> None:
        if not receipts:
            receipts.append(other.cleanup(keep=0, confirm=True))

    with armed({Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE: clean}):
        graph.mutate(ADD, {"code": "new"})
    assert row(receipts[0]).old_versions_removed == 9
    assert codes(open_graph(graph.uri)) == {*ALL, "new"}


def test_c_mnt_041_files_staged_for_a_fork_that_is_not_there_yet_survive(graph: og.Graph) -> None:
    """Workers of a bulk load write below a ref before their branch has a fork of the table."""
    graph.create_branch("review")
    fork = unowned_fork(graph, "review", "node:Memo")
    written = write_fragments(
        pa.table({"id": ["x"], "code": ["x"], "size": pa.array([1], pa.int32())}),
        str(fork),
        mode="append",
    )
    names = [file.path for fragment in written for file in fragment.files]
    receipt = graph.cleanup(keep=0, confirm=True)
    assert row(receipt).orphan_refs_removed == ()
    assert all((fork / "data" / name).exists() for name in names)


def test_c_mnt_041_an_unlisted_folder_of_a_live_branch_is_left_alone(graph: og.Graph) -> None:
    graph.create_branch("review")
    ref = graph._kernel.manifest.refreshed("review").where.ref
    staged = Path(table(graph, "node:Memo").uri) / "tree" / str(ref) / "data" / "x.lance"
    staged.parent.mkdir(parents=True)
    staged.write_bytes(b"rows")
    graph.cleanup(keep=0, confirm=True)
    assert staged.exists()
    leave_branch(graph, "review")
    graph.cleanup(keep=0, confirm=True)
    assert not staged.exists()


def test_unreferenced_files_go_after_a_week(graph: og.Graph) -> None:
    folder = Path(table(graph, "node:Memo").uri) / "data"
    stray = [folder / f"{'01' * 12}{age:026x}.lance" for age in (1, 8)]
    for age, file in zip((1, 8), stray, strict=True):
        file.write_bytes(next(folder.glob("*.lance")).read_bytes())
        then = time.time() - age * 24 * 3600
        os.utime(file, (then, then))
    graph.cleanup(keep=1000, confirm=True)
    assert [file.exists() for file in stray] == [True, False]


def test_exports_of_this_process_are_waited_for(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = graph.export(snapshot=graph.list_commits()[2].graph_commit_id)
    first = next(stream)
    done = threading.Event()

    def clean() -> None:
        graph.cleanup(keep=0, confirm=True)
        done.set()

    thread = threading.Thread(target=clean)
    monkeypatch.setattr(cleanup_module, "STREAM_WAIT_MS", 0)
    with pytest.raises(Busy, match="export"):
        graph.cleanup(keep=0, confirm=True)
    monkeypatch.setattr(cleanup_module, "STREAM_WAIT_MS", 60_000)
    thread.start()
    assert not done.is_set()
    assert b"m5" in first + b"".join(stream)
    thread.join()
    assert done.is_set()


@pytest.mark.parametrize("write", ["insert", "update"])
def test_a_write_whose_version_was_removed_is_prepared_again_if_it_means_the_same(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, write: str
) -> None:
    other = open_graph(graph.uri)
    capture = Kernel.capture
    waiting = [True]

    def overtaken(kernel: Kernel, *arguments: Any) -> Any:
        """Others write, and clean up, before the tables of a captured snapshot are opened."""
        found = capture(kernel, *arguments)
        if kernel is graph._kernel and waiting:
            waiting.pop()
            for code in ("other1", "other2"):
                other.mutate(ADD, {"code": code})
            other.cleanup(keep=0, confirm=True)
        return found

    graph = open_graph(graph.uri)
    monkeypatch.setattr(Kernel, "capture", overtaken)
    if write == "insert":
        graph.mutate(ADD, {"code": "new"})
        assert codes(graph) == {*ALL, "other1", "other2", "new"}
    else:
        with pytest.raises(ReadSetChanged):
            graph.mutate(SIZE, {"n": 6})
        graph.mutate(SIZE, {"n": 6})
    assert not waiting


@pytest.mark.parametrize("first", [True, False], ids=["opening", "refreshing"])
def test_a_manifest_that_is_cleaned_up_while_it_is_read_is_read_again(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, first: bool
) -> None:
    other = open_graph(graph.uri)
    reader = open_graph(graph.uri, "read_only")
    if first:
        reader._kernel.manifest.main._current = None
    else:
        other.mutate(ADD, {"code": "m8"})
    open_dataset = LanceStore.open
    waiting = [True]

    def overtaken(store: LanceStore, where: DatasetRef, version: int | None = None) -> Any:
        """Others write, and clean up, when a version was opened and before it is read."""
        found = open_dataset(store, where, version)
        if store is reader._kernel.lance and where.uri.endswith("__manifest") and waiting:
            waiting.pop()
            for number in range(10, 80):
                other.mutate(ADD, {"code": f"m{number}"})
            other.optimize()
            for number in range(80, 84):
                other.mutate(ADD, {"code": f"m{number}"})
            other.cleanup(keep=0, confirm=True)
        return found

    monkeypatch.setattr(LanceStore, "open", overtaken)
    assert {f"m{number}" for number in range(10, 84)} < codes(reader)
    assert not waiting


# --- afterwards -----------------------------------------------------------------------------------


def test_c_mnt_042_everything_works_and_old_commits_fail_with_the_typed_error(
    graph: og.Graph,
) -> None:
    commits = [each.graph_commit_id for each in graph.list_commits()]
    graph.cleanup(keep=1, confirm=True)
    for handle in (graph, open_graph(graph.uri), open_graph(graph.uri, "read_only")):
        assert [each.graph_commit_id for each in handle.list_commits()] == commits
        assert codes(handle, snapshot=commits[0]) == ALL
        for commit in commits[1:8]:
            with pytest.raises(HistoricalVersionReclaimed):
                codes(handle, snapshot=commit)
    graph.optimize()
    assert codes(graph) == ALL
    graph.mutate(ADD, {"code": "new"})
    assert codes(open_graph(graph.uri)) == {*ALL, "new"}


def test_old_manifest_versions_go_and_history_stays(graph: og.Graph) -> None:
    for number in range(40):
        graph.mutate(LABEL, {"name": f"l{number}"})
    commits = [each.graph_commit_id for each in graph.list_commits()]
    receipt = graph.cleanup(keep=1, confirm=True)
    assert row(receipt, "__manifest").old_versions_removed > 0
    fresh = open_graph(graph.uri)
    assert [each.graph_commit_id for each in fresh.list_commits()] == commits
    assert codes(fresh) == ALL


def test_c_mnt_045_a_bad_setting_is_reported_once_and_the_default_used(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for text, expected in [("3", 3), ("", 8), ("many", 8), ("0", 8), ("-2", 8), ("many", 8)]:
        monkeypatch.setenv(optimizing.CONCURRENCY_VARIABLE, text)
        assert optimizing.maintenance_concurrency() == expected
    assert len(caplog.records) == 3
    assert caplog.text.count("OMNIGRAPH_MAINTENANCE_CONCURRENCY is 'many'") == 1
