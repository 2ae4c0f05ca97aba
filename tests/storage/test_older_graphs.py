"""Older graphs that are only read, and odd ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
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
from omnigraph.graph import open_graph
from omnigraph.storage.datasets import LanceStore
from omnigraph.storage.legacy import UNLISTED_TYPE_ID, OlderGraph, older_table_path
from omnigraph.storage.transactions import CommitLost
from tests.storage import legacy_graphs
from tests.storage.footprint import footprint
from tests.storage.legacy_graphs import fnv1a, older_graph
from tests.storage.migrated import (
    BRANCHES,
    RUNS,
    STAMPS,
    ids_at,
    legacy_accepted,
    manifest_of,
    rows_of,
    shown,
    stamp_of,
    state_of,
)

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


def test_a_kernel_for_writing_refuses_a_graph_that_was_not_migrated(root: Path) -> None:
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
