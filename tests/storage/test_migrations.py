"""A migrated graph shows what it did before, step by step."""

from __future__ import annotations

from pathlib import Path

import lance
import orjson
import pytest

from omnigraph.effects.uri import Root
from omnigraph.errors import (
    UnsupportedStorageVersion,
)
from omnigraph.graph import OpenMode, open_graph
from omnigraph.storage.manifest_rows import SCHEMA
from tests.storage import legacy_graphs
from tests.storage.footprint import contents, footprint
from tests.storage.legacy_graphs import KEY_METADATA, fnv1a, older_graph
from tests.storage.migrated import (
    BRANCHES,
    RUNS,
    STAMPS,
    ids_at,
    manifest_of,
    rows_of,
    set_stamp,
    shown,
    stamp_of,
    state_of,
)

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
