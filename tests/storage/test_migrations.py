"""Graphs of internal schema 1 to 3 become graphs of schema 4, in place and without loss."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lance
import orjson
import pyarrow as pa
import pytest

from omnigraph.commit.kernel import Kernel
from omnigraph.effects.uri import Root
from omnigraph.errors import (
    HistoricalVersionReclaimed,
    InputError,
    NotFound,
    UnsupportedStorageVersion,
)
from omnigraph.graph import Graph, OpenMode, open_graph
from omnigraph.storage.datasets import CommitLost, LanceStore
from omnigraph.storage.legacy import UNLISTED_TYPE_ID, OlderGraph, older_table_path
from omnigraph.storage.manifest_rows import SCHEMA, STAMP_KEY
from omnigraph.storage.migrations import Migration
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.snapshot import ManifestState
from tests.storage import legacy_graphs
from tests.storage.footprint import contents, footprint
from tests.storage.legacy_graphs import KEY_METADATA, ShownCommit, fnv1a, older_graph

STAMPS = [1, 2, 3]
RUNS = ["__run__01", "__run__02", "__run__03"]
BRANCHES = ["feature", "main", "review/1"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "graph.omni"


def manifest_of(graph: legacy_graphs.OlderGraph, branch: str = "main") -> lance.LanceDataset:
    return lance.dataset(graph.uri("__manifest", branch))


def stamp_of(graph: legacy_graphs.OlderGraph, branch: str = "main") -> bytes | None:
    metadata: dict[bytes, bytes] = manifest_of(graph, branch).schema.metadata or {}
    return metadata.get(STAMP_KEY)


def set_stamp(graph: legacy_graphs.OlderGraph, stamp: str, branch: str = "main") -> None:
    manifest_of(graph, branch).update_schema_metadata({STAMP_KEY.decode(): stamp})


def rows_of(graph: legacy_graphs.OlderGraph, branch: str = "main") -> dict[str, dict[str, Any]]:
    """The stored rows of a manifest by key; a key that is there twice fails."""
    rows = manifest_of(graph, branch).to_table().to_pylist()
    by_key = {row["object_id"]: row for row in rows}
    assert len(by_key) == len(rows), "a manifest row is there twice"
    return by_key


def ids_at(graph: Graph, branch: str, commit_id: str) -> dict[str, list[str]]:
    """The entities of a commit, by type key, also of types the schema does not know any more."""
    kernel = graph._kernel
    snapshot = kernel.manifest.branch(branch).refresh().snapshot_at(commit_id)
    reader = SnapshotReader(kernel.lance, kernel.root.uri, snapshot)
    return {key: sorted(reader.ids(key).to_pylist()) for key in snapshot.tables}


def shown(graph: Graph, branch: str) -> list[ShownCommit]:
    """The history of a branch as users see it, oldest first."""
    return [
        ShownCommit(
            commit.graph_commit_id,
            commit.parent_commit_id,
            commit.merged_parent_commit_id,
            commit.actor_id,
            commit.created_at,
            ids_at(graph, branch, commit.graph_commit_id),
        )
        for commit in reversed(graph.list_commits(branch))
    ]


def state_of(graph: Graph, branch: str = "main") -> ManifestState:
    return graph._kernel.manifest.branch(branch).refresh()


# --- what a migrated graph shows ------------------------------------------------------------------


@pytest.mark.parametrize("stamp", STAMPS)
@pytest.mark.parametrize("mode", ["read_only", "read_write"])
def test_c_sto_028_an_older_graph_shows_the_same_history_and_data_in_both_modes(
    root: Path, stamp: int, mode: OpenMode
) -> None:
    older = older_graph(root, stamp)
    graph = open_graph(root, mode)
    for branch in BRANCHES:
        assert shown(graph, branch) == older.lines[branch]
        assert graph.snapshot(branch).graph_commit_id == older.head(branch).commit_id
    assert graph.snapshot().internal_schema_version == (4 if mode == "read_write" else stamp)


@pytest.mark.parametrize("stamp", STAMPS)
def test_c_sto_030_time_travel_to_before_the_migration_returns_the_same_rows(
    root: Path, stamp: int
) -> None:
    older = older_graph(root, stamp)
    graph = open_graph(root)
    for branch, line in older.lines.items():
        for commit in line:
            exported = b"".join(graph.export(branch=branch, snapshot=commit.commit_id))
            records = [orjson.loads(text) for text in exported.splitlines()]
            expected = sorted(entity for ids in commit.ids.values() for entity in ids)
            assert sorted(record["data"]["id"] for record in records) == expected


@pytest.mark.parametrize("stamp", STAMPS)
def test_c_sto_005_and_023_a_migrated_manifest_is_keyed_and_stamped(root: Path, stamp: int) -> None:
    older = older_graph(root, stamp)
    open_graph(root)
    for branch in BRANCHES:
        manifest = manifest_of(older, branch)
        assert stamp_of(older, branch) == b"4"
        assert manifest.schema.field("object_id").metadata == KEY_METADATA
        assert manifest.schema.names == SCHEMA.names


@pytest.mark.parametrize("stamp", STAMPS)
def test_c_sto_023_opening_a_migrated_graph_again_changes_nothing(root: Path, stamp: int) -> None:
    older_graph(root, stamp)
    open_graph(root)
    before = contents(root)
    open_graph(root)
    assert contents(root) == before


@pytest.mark.parametrize("stamp", STAMPS)
def test_a_migrated_graph_can_be_written_on_main_and_on_a_branch(root: Path, stamp: int) -> None:
    older = older_graph(root, stamp)
    graph = open_graph(root)
    for branch in BRANCHES:
        graph.mutate('query q { insert Person { name: "zoe" } }', branch=branch)
        graph.mutate('query q { update Person set { age: 9 } where name = "ada" }', branch=branch)
        graph.mutate('query q { delete Person where name = "bob" }', branch=branch)
    again = open_graph(root)
    for branch in BRANCHES:
        line = shown(again, branch)
        known = older.lines[branch]
        assert line[: len(known)] == known
        assert line[len(known)].parent == known[-1].commit_id
        people = {*known[-1].ids["node:Person"], "zoe"} - {"bob"}
        assert line[-1].ids["node:Person"] == sorted(people)
        ada = again.entity_at("node:Person", "ada", branch=branch)
        assert ada is not None
        assert ada["age"] == 9
    assert again.snapshot("feature").datasets[-1].native_dataset_branch == "feature"


def test_every_row_carries_identity_and_position(root: Path) -> None:
    older = older_graph(root, 3)
    open_graph(root)
    person = older.catalog.nodes["Person"]
    rows = rows_of(older, "feature")
    registration = rows[f"table:{person.type_id}:{person.incarnation_id}"]
    assert registration["table_key"] == "node:Person"
    assert registration["location"] == f"nodes/{fnv1a('Person')}"
    pins = [row for row in rows.values() if row["object_type"] == "table_version"]
    mine = {
        (row["table_version"], row["table_branch"]): row["commit_seq"]
        for row in pins
        if row["stable_table_id"] == person.type_id
    }
    assert mine == {(1, None): 0, (2, None): 1, (3, "feature"): 3}
    commits = [row for row in rows.values() if row["object_type"] == "graph_commit"]
    assert sorted(row["commit_seq"] for row in commits) == [0, 1, 2, 3, 4]
    assert {row["stable_table_id"] for row in commits} == {None}
    accepted = open_graph(root)._kernel.accepted_schema()
    assert {orjson.loads(row["metadata"])["schema_hash"] for row in commits} == {
        accepted.schema_hash
    }


def test_kinds_of_folded_commits_promise_nothing_that_is_not_known(root: Path) -> None:
    older = older_graph(root, 3)
    commits = state_of(open_graph(root)).commits
    kinds = [commits[each.commit_id].kind for each in older.lines["main"]]
    assert kinds == ["genesis", "mutation", "mutation", "recovery", "merge"]


def test_branches_are_registered_under_the_refs_they_have(root: Path) -> None:
    older = older_graph(root, 3)
    branches = state_of(open_graph(root)).branches
    assert sorted(branches) == ["feature", "review/1"]
    feature, review = branches["feature"], branches["review/1"]
    assert (feature.ref, feature.source_branch) == ("feature", "main")
    assert feature.source_commit_id == older.lines["main"][2].commit_id
    assert (review.ref, review.source_branch) == ("review/1", "feature")
    assert review.source_commit_id == older.head("feature").commit_id
    assert feature.root == review.root == Root.parse(root).uri
    rows = rows_of(older)
    assert orjson.loads(rows["registry:branches"]["metadata"]) == {"changes": 0}
    assert [key for key in rows_of(older, "feature") if key.startswith("graph_head:")] == [
        "graph_head:feature"
    ]


def test_a_migrated_branch_can_be_deleted_and_its_name_used_again(root: Path) -> None:
    older_graph(root, 3)
    graph = open_graph(root)
    graph.delete_branch("review/1")
    graph.delete_branch("feature")
    graph.create_branch("feature")
    assert state_of(graph).branches["feature"].ref.startswith("gb-")
    assert ids_at(graph, "feature", graph.snapshot().graph_commit_id)["node:Person"] == [
        "ada",
        "bob",
        "dan",
    ]


# --- the steps ------------------------------------------------------------------------------------


def test_c_sto_024_a_manifest_keyed_on_another_column_is_refused(root: Path) -> None:
    legacy_graphs.OlderGraph(root, 1, key_column="table_key")
    before = footprint(root / "__manifest")
    with pytest.raises(UnsupportedStorageVersion, match="keyed on table_key") as refused:
        open_graph(root)
    assert refused.value.details["key"] == ["table_key"]
    assert footprint(root / "__manifest") == before


def test_a_manifest_that_has_its_key_but_no_stamp_only_gains_the_stamp(root: Path) -> None:
    older = legacy_graphs.OlderGraph(root, 1, key_column="object_id")
    open_graph(root)
    assert stamp_of(older) == b"4"


@pytest.mark.parametrize("stamp", [1, 2])
def test_c_sto_025_all_refs_of_runs_go_and_user_branches_and_main_stay(
    root: Path, stamp: int
) -> None:
    older = older_graph(root, stamp)
    assert set(RUNS) <= set(manifest_of(older).branches.list())
    graph = open_graph(root)
    assert graph.list_branches() == BRANCHES
    assert sorted(manifest_of(older).branches.list()) == ["feature", "review/1"]
    assert not any((root / "__manifest/tree" / run).exists() for run in RUNS)
    assert shown(graph, "feature") == older.lines["feature"]


def test_c_sto_025_a_run_that_another_run_or_a_branch_was_forked_from_goes_too(
    root: Path,
) -> None:
    older = older_graph(root, 2)
    run = manifest_of(older, "__run__01")
    run.create_branch("__run__00", run.version)
    older.pins["__run__02"] = dict(older.pins["main"])
    older.lines["__run__02"] = list(older.lines["main"])
    commits = lance.dataset(older.uri("_graph_commits.lance"))
    commits.create_branch("__run__02", commits.version)
    older.create_branch("rescued", "__run__02")
    graph = open_graph(root)
    assert graph.list_branches() == ["feature", "main", "rescued", "review/1"]
    assert state_of(graph).branches["rescued"].source_branch == "main"
    graph.mutate('query q { insert City { name: "Rome" } }', branch="rescued")
    assert graph.snapshot("rescued").datasets[1].entity_count == 3


def test_c_sto_025_run_names_are_ordinary_once_the_stamp_is_3(root: Path) -> None:
    older = legacy_graphs.OlderGraph(root, 3)
    older.create_branch("__run__kept")
    graph = open_graph(root)
    assert graph.list_branches() == ["__run__kept", "main"]
    graph.create_branch("__run__new")
    assert open_graph(root).list_branches() == ["__run__kept", "__run__new", "main"]


def test_c_sto_026_after_open_no_run_stands_in_the_way_of_a_schema_change(root: Path) -> None:
    older = legacy_graphs.OlderGraph(root, 2)
    for run in RUNS:
        older.leave_run(run)
    graph = open_graph(root)
    # What a schema change asks first: is there any branch besides main?
    assert state_of(graph).branches == {}
    assert graph.list_branches() == ["main"]


def test_a_branch_may_be_older_than_main(root: Path) -> None:
    """Older versions migrated main only; their branches kept the stamp of the fork."""
    older = older_graph(root, 2)
    set_stamp(older, "3")
    older.create_branch("late")
    assert (stamp_of(older), stamp_of(older, "feature"), stamp_of(older, "late")) == (
        b"3",
        b"2",
        b"3",
    )
    graph = open_graph(root)
    assert graph.list_branches() == sorted([*RUNS, *BRANCHES, "late"])
    assert {stamp_of(older, branch) for branch in ("main", "feature", "late")} == {b"4"}


@pytest.mark.parametrize("stamp", ["5", "four"])
def test_an_unknown_stamp_on_a_branch_stops_the_migration_before_main_is_stamped(
    root: Path, stamp: str
) -> None:
    older = older_graph(root, 3)
    set_stamp(older, stamp, "feature")
    with pytest.raises(UnsupportedStorageVersion):
        open_graph(root)
    assert stamp_of(older) == b"3"


# --- crashes and company --------------------------------------------------------------------------


class Crash(Exception):
    """The process ends here."""


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, commit: int, *, landed: bool) -> Iterator[None]:
    """A process that dies at its n-th commit, before or after it took effect."""
    real, calls = LanceStore.commit, 0

    def die(self: LanceStore, handle: Any, transaction: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls < commit:
            return real(self, handle, transaction)
        if landed and calls == commit:
            real(self, handle, transaction)
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(LanceStore, "commit", die)
        yield


def commits_of_a_migration(root: Path, stamp: int, monkeypatch: pytest.MonkeyPatch) -> int:
    real, calls = LanceStore.commit, 0

    def counted(self: LanceStore, handle: Any, transaction: Any) -> Any:
        nonlocal calls
        calls += 1
        return real(self, handle, transaction)

    older_graph(root, stamp)
    with monkeypatch.context() as patched:
        patched.setattr(LanceStore, "commit", counted)
        open_graph(root)
    return calls


@pytest.mark.parametrize("landed", [False, True])
def test_c_sto_029_a_crash_at_any_commit_completes_on_the_next_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    total = commits_of_a_migration(tmp_path / "whole", 1, monkeypatch)
    assert total == 6  # two stamps, main, two branches, and the stamp that ends it
    for commit in range(1, total + 1):
        root = tmp_path / f"graph-{commit}"
        older = older_graph(root, 1)
        with dying(monkeypatch, commit, landed=landed), pytest.raises(Crash):
            open_graph(root)
        unfinished = commit < total or not landed
        assert (stamp_of(older) != b"4") is unfinished
        reading = open_graph(root, "read_only")
        assert shown(reading, "feature") == older.lines["feature"]
        graph = open_graph(root)
        for branch in BRANCHES:
            assert stamp_of(older, branch) == b"4"
            assert shown(graph, branch) == older.lines[branch]
            rows_of(older, branch)


def test_c_sto_029_a_graph_folded_but_not_stamped_is_completed_without_rewriting_it(
    root: Path,
) -> None:
    older = older_graph(root, 3)
    graph = open_graph(root)
    graph.mutate('query q { insert Person { name: "zoe" } }')
    graph.create_branch("young")
    before = {branch: rows_of(older, branch) for branch in BRANCHES}
    version = manifest_of(older).version
    set_stamp(older, "3")
    set_stamp(older, "3", "feature")
    again = open_graph(root)
    assert again.list_branches() == ["feature", "main", "review/1", "young"]
    assert {branch: rows_of(older, branch) for branch in BRANCHES} == before
    assert stamp_of(older) == stamp_of(older, "feature") == b"4"
    assert manifest_of(older).version == version + 2  # the stamp taken away, and the stamp


def test_c_sto_029_legacy_rows_added_after_the_fold_are_taken_in(root: Path) -> None:
    """An older version that still had the graph open goes on where it was."""
    older = older_graph(root, 3)
    open_graph(root)
    set_stamp(older, "3")
    # A manifest half way is wider than the rows of an older version.
    added = {**older._pin("node:City", 9, None, 7), "metadata": None, "location": None}
    older.publish("main", added)
    graph = open_graph(root)
    assert shown(graph, "feature") == older.lines["feature"]
    assert graph.snapshot().datasets[1].published_dataset_version == 9


@pytest.mark.parametrize("lost", [1, 2, 3, 4])
def test_whoever_loses_a_commit_of_the_migration_looks_again(
    root: Path, monkeypatch: pytest.MonkeyPatch, lost: int
) -> None:
    """Another process lands the very same step first."""
    older = older_graph(root, 1)
    real, calls = LanceStore.commit, 0

    def overtaken(self: LanceStore, handle: Any, transaction: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == lost:
            accepted = legacy_accepted(root)
            Migration(self, Kernel.of(self.root).store, accepted, Kernel.of(self.root).ids).run()
        return real(self, handle, transaction)

    monkeypatch.setattr(LanceStore, "commit", overtaken)
    graph = open_graph(root)
    for branch in BRANCHES:
        assert shown(graph, branch) == older.lines[branch]
        rows_of(older, branch)


def legacy_accepted(root: Path) -> Any:
    from omnigraph.commit.schema_contract import accepted_tables

    return accepted_tables(Kernel.of(Root.parse(root)).accepted_schema())


OPEN = """
import sys, time
from pathlib import Path
from omnigraph.graph import open_graph
root, go = sys.argv[1:]
print("ready", flush=True)
while not Path(go).exists():
    time.sleep(0.001)
print(*open_graph(root).list_branches())
"""


@pytest.mark.parametrize("stamp", STAMPS)
def test_c_sto_027_two_processes_opening_one_graph_together_both_succeed(
    root: Path, tmp_path: Path, stamp: int
) -> None:
    older = older_graph(root, stamp)
    go = tmp_path / "go"
    command = [sys.executable, "-c", OPEN, str(root), str(go)]
    pair = [
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in pair:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    go.touch()
    for process in pair:
        out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert out.split() == BRANCHES
    graph = open_graph(root)
    for branch in BRANCHES:
        assert shown(graph, branch) == older.lines[branch]
        rows_of(older, branch)


# --- reading without migrating --------------------------------------------------------------------


@pytest.mark.parametrize("stamp", STAMPS)
def test_c_sto_033_reading_an_older_graph_leaves_every_byte_unchanged(
    root: Path, stamp: int
) -> None:
    older = older_graph(root, stamp)
    before = footprint(root)
    graph = open_graph(root, "read_only")
    for branch in BRANCHES:
        assert shown(graph, branch) == older.lines[branch]
    runs = RUNS if stamp < 3 else []
    assert graph.list_branches() == sorted([*runs, *BRANCHES])
    assert graph.show_commit(older.head().commit_id).actor_id == "act-ana"
    assert graph.snapshot().internal_schema_version == stamp
    with pytest.raises(InputError):
        graph.mutate('query q { insert Person { name: "zoe" } }')
    assert footprint(root) == before


def test_a_reader_of_an_older_graph_follows_its_writers_and_its_migration(root: Path) -> None:
    older = older_graph(root, 3)
    reader = open_graph(root, "read_only")
    assert shown(reader, "main") == older.lines["main"]
    older.write("node:Person", "fay")
    assert shown(reader, "main") == older.lines["main"]
    open_graph(root).mutate('query q { insert Person { name: "zoe" } }')
    assert shown(reader, "main")[:-1] == older.lines["main"]
    assert reader.snapshot().internal_schema_version == 4
    assert shown(reader, "feature") == older.lines["feature"]


def test_a_kernel_for_writing_refuses_a_graph_nobody_migrated(root: Path) -> None:
    older_graph(root, 3)
    with pytest.raises(UnsupportedStorageVersion, match="internal schema 3") as refused:
        Kernel.of(Root.parse(root)).manifest.main.refresh()
    assert refused.value.hint == "open it read-write once to migrate it"


# --- odd older graphs -----------------------------------------------------------------------------


def test_tables_of_dropped_types_get_ids_no_schema_will_hand_out(root: Path) -> None:
    gone = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("name", pa.string())])
    extra = {"node:Zebra": gone, "node:Aardvark": gone}
    older = legacy_graphs.OlderGraph(root, 3, extra_tables=extra)
    older.write("node:Zebra", "stripes")
    older.create_branch("feature")
    older.drop("node:Zebra")
    older.drop("node:Aardvark")
    graph = open_graph(root)
    for branch in ("main", "feature"):
        assert shown(graph, branch) == older.lines[branch]
        tables = state_of(graph, branch).tables
        ids = {row.table_key: identity for identity, row in tables.items()}
        assert ids["node:Aardvark"] == (UNLISTED_TYPE_ID, 1)
        assert ids["node:Zebra"] == (UNLISTED_TYPE_ID + 1, 1)
    assert "node:Zebra" not in state_of(graph).head_snapshot().tables
    assert "node:Zebra" in state_of(graph, "feature").head_snapshot().tables


def test_a_graph_without_recorded_commits_gets_one_that_shows_everything(root: Path) -> None:
    import shutil

    older = older_graph(root, 3)
    for name in ("_graph_commits.lance", "_graph_commit_actors.lance"):
        shutil.rmtree(root / name)
    reading = open_graph(root, "read_only")
    before = [commit.graph_commit_id for commit in reading.list_commits("feature")]
    graph = open_graph(root)
    for branch in BRANCHES:
        (only,) = shown(graph, branch)
        assert [only.commit_id] == before
        assert (only.parent, only.actor) == (None, None)
        assert only.ids == older.head(branch).ids
    assert open_graph(root).list_commits() == graph.list_commits()


def test_a_branch_without_commits_of_its_own_shows_those_up_to_its_fork(root: Path) -> None:
    older = older_graph(root, 3)
    older.create_branch("idle")
    lance.dataset(older.uri("_graph_commits.lance")).branches.delete("idle")
    older.write("node:Person", "fay")
    graph = open_graph(root)
    assert shown(graph, "idle") == older.lines["idle"]


def test_what_was_published_without_a_commit_belongs_to_the_head(root: Path) -> None:
    """Older versions wrote the commit after the data; a crash between left data without one."""
    older = older_graph(root, 3)
    table = lance.dataset(older.table_uri("node:City"))
    table.insert(pa.table([["Rome"], ["Rome"]], schema=table.schema))
    table = lance.dataset(older.table_uri("node:City"))
    older.publish("main", older._pin("node:City", table.version, None, table.count_rows()))
    graph = open_graph(root)
    head = graph.snapshot().graph_commit_id
    assert head == older.head().commit_id
    assert ids_at(graph, "main", head)["node:City"] == ["Bern", "Oslo", "Rome"]
    earlier = older.lines["main"][-2]
    assert ids_at(graph, "main", earlier.commit_id) == earlier.ids


def test_commits_whose_manifest_version_is_gone_show_what_the_next_one_shows(root: Path) -> None:
    older = legacy_graphs.OlderGraph(root, 3)
    for name in ("ada", "bob", "cyd"):
        older.write("node:Person", name)
    manifest_of(older).cleanup_old_versions(versions=[2, 3])
    graph = open_graph(root)
    line = shown(graph, "main")
    assert [commit.commit_id for commit in line] == [c.commit_id for c in older.lines["main"]]
    assert line[0].ids == older.lines["main"][0].ids
    assert line[-1].ids == older.lines["main"][-1].ids


def test_a_table_version_that_was_reclaimed_is_reported_as_such(root: Path) -> None:
    older = older_graph(root, 3)
    lance.dataset(older.table_uri("node:City")).cleanup_old_versions(versions=[1])
    graph = open_graph(root)
    with pytest.raises(HistoricalVersionReclaimed):
        ids_at(graph, "main", older.lines["main"][0].commit_id)


def test_a_manifest_without_stable_row_ids_is_followed_all_the_same(root: Path) -> None:
    older = older_graph(root, 3, stable_row_ids=False)
    graph, reader = open_graph(root), open_graph(root, "read_only")
    assert shown(reader, "feature") == older.lines["feature"]
    for branch in ("main", "feature"):
        graph.mutate('query q { insert Person { name: "zoe" } }', branch=branch)
        assert "zoe" in shown(reader, branch)[-1].ids["node:Person"]


@pytest.mark.parametrize("file_format", ["2.0", "2.1"])
def test_an_older_file_format_is_kept_and_written_on(root: Path, file_format: str) -> None:
    older = older_graph(root, 1, file_format=file_format)
    graph = open_graph(root)
    assert manifest_of(older).data_storage_version == file_format
    for branch in ("main", "feature"):
        graph.mutate('query q { insert Person { name: "zoe" } }', branch=branch)
        assert shown(graph, branch)[:-1] == older.lines[branch]
        assert "zoe" in shown(graph, branch)[-1].ids["node:Person"]


def test_a_commit_that_was_written_down_twice_is_one_commit(root: Path) -> None:
    older = older_graph(root, 3)
    commits = lance.dataset(older.uri("_graph_commits.lance"))
    commits.insert(commits.to_table())
    graph = open_graph(root)
    assert shown(graph, "main") == older.lines["main"]
    rows_of(older)


def test_a_reader_does_not_mind_that_runs_are_swept_beside_it(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = older_graph(root, 2)
    real, swept = OlderGraph.recorded_roots, False

    def overtaken(self: OlderGraph, branches: Any) -> dict[str, str]:
        nonlocal swept
        if not swept:
            swept = True
            for run in RUNS:
                manifest_of(older).branches.delete(run)
        return real(self, branches)

    monkeypatch.setattr(OlderGraph, "recorded_roots", overtaken)
    reader = open_graph(root, "read_only")
    assert reader.list_branches() == BRANCHES
    assert shown(reader, "main") == older.lines["main"]


def test_a_schema_lock_left_as_a_ref_locks_nothing(root: Path) -> None:
    older = older_graph(root, 3)
    manifest_of(older).create_branch("__schema_apply_lock__", manifest_of(older).version)
    assert open_graph(root, "read_only").list_branches() == BRANCHES
    graph = open_graph(root)
    assert sorted(state_of(graph).branches) == ["feature", "review/1"]


def test_a_pin_without_registration_lies_where_its_name_says(root: Path) -> None:
    older = legacy_graphs.OlderGraph(root, 3)
    older.write("node:Person", "ada")
    manifest_of(older).delete("object_type = 'table'")
    graph = open_graph(root)
    assert shown(graph, "main")[-1].ids == older.head().ids


def test_an_older_graph_needs_its_schema_to_be_migrated(root: Path) -> None:
    older = older_graph(root, 3)
    (root / "_schema.pg").unlink()
    before = footprint(root / "__manifest")
    for mode in ("read_write", "read_only"):
        with pytest.raises(NotFound, match=r"_schema\.pg"):
            open_graph(root, mode)
    assert footprint(root / "__manifest") == before
    assert stamp_of(older) == b"3"


@pytest.mark.parametrize("name", ["Person", "Ärger", "x"])
def test_older_table_directories_are_named_by_hash(name: str) -> None:
    assert older_table_path(f"node:{name}") == f"nodes/{fnv1a(name)}"
    assert older_table_path(f"edge:{name}") == f"edges/{fnv1a(name)}"


def test_contention_without_end_is_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from omnigraph.errors import RowLevelCasContention

    older_graph(root, 3)

    def lose(*_: object) -> None:
        raise CommitLost("another writer was first", details={"conflict": True})

    monkeypatch.setattr(LanceStore, "commit", lose)
    with pytest.raises(RowLevelCasContention, match="migrate"):
        open_graph(root)


def test_reading_an_older_graph_costs_each_manifest_file_once(root: Path) -> None:
    """The position of rows is found from new data files only, not from whole old versions."""
    older = legacy_graphs.OlderGraph(root, 3)
    for at in range(12):
        older.write("node:Person", f"p{at}")
    kernel = Kernel.of(Root.parse(root))
    reading = OlderGraph(kernel.lance, kernel.root.uri, legacy_accepted(root))
    commits = reading._commits("main", [])
    scanned: list[int] = []
    real = lance.LanceDataset.scanner

    def counted(self: lance.LanceDataset, *args: Any, **options: Any) -> Any:
        scanned.append(len(options.get("fragments") or []))
        return real(self, *args, **options)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lance.LanceDataset, "scanner", counted)
        reading._arrivals(commits)
    assert scanned == [1] * 13
