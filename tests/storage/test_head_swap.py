"""Publishing exchanges the head row in place: without reading the manifest, and only once."""

from __future__ import annotations

import pytest

from omnigraph.branching.branches import create_branch, delete_branch
from omnigraph.commit.leases import WriteSettings
from omnigraph.effects.requests import measure
from omnigraph.storage import manifest as manifest_module
from omnigraph.storage.manifest import ManifestBranch
from omnigraph.storage.manifest_rows import TableRow, VersionRow, decode_rows, head_object_id
from omnigraph.storage.publisher import fence, publish
from omnigraph.storage.table_upkeep import stage_compaction
from tests.storage.test_publisher import request
from tests.support.graphs import TestGraph


def assert_one_head_row(branch: ManifestBranch) -> None:
    rows = branch.lance.open(branch.where).to_table(["object_id"])["object_id"].to_pylist()
    assert len(rows) == len(set(rows)), "a row is there twice"
    assert head_object_id(branch.branch) in rows


def compact(branch: ManifestBranch, uuid: str = "compaction") -> None:
    branch.refresh()
    transaction = stage_compaction(branch.handle, uuid)
    assert transaction is not None
    branch.lance.commit(branch.handle, transaction)


def test_a_warm_publish_reads_nothing_of_the_manifest(graph: TestGraph) -> None:
    main = graph.kernel.manifest.main
    publish(main, request(graph))
    wish = request(graph)
    with measure(tracing=True) as io:
        publish(main, wish)
    verbs = [event.verb for event in io.report().events]
    assert verbs == ["stage", "commit", "read_transaction"]
    assert_one_head_row(main)


def test_a_publish_after_a_foreign_one_finds_the_head_row_it_left(graph: TestGraph) -> None:
    main, other = graph.kernel.manifest.main, graph.reopened()
    publish(main, request(graph))
    publish(other.kernel.manifest.main, request(other))
    publish(main, request(graph))
    assert len(main.state.commits) == 4
    assert_one_head_row(main)


def test_a_publish_on_a_stale_state_loses_and_is_decided_on_the_newest(graph: TestGraph) -> None:
    main, other = graph.kernel.manifest.main, graph.reopened()
    publish(main, request(graph))
    wish = request(graph)
    fence(other.kernel.manifest.main, 1)
    # `main` still holds the state before the fence; nothing of the first swap may remain.
    commit = publish(main, wish)
    assert main.state.head.commit_id == commit.commit_id
    assert commit.manifest_version == main.state.version
    assert_one_head_row(main)


def test_a_publish_against_a_foreign_compaction_is_repeated_on_the_compacted_manifest(
    graph: TestGraph,
) -> None:
    main, other = graph.kernel.manifest.main, graph.reopened()
    for _ in range(3):
        publish(main, request(graph))
    wish = request(graph)
    compact(other.kernel.manifest.main)
    commit = publish(main, wish)
    assert graph.reopened().snapshot().commit_id == commit.commit_id
    assert_one_head_row(main)


def test_a_publish_after_a_registry_change_finds_the_head_row(graph: TestGraph) -> None:
    main = graph.kernel.manifest.main
    create_branch(graph.kernel, "side")
    assert main.state == graph.reopened().kernel.manifest.main.state
    publish(main, request(graph, epoch=main.state.head.fence_epoch))
    delete_branch(graph.kernel, "side")
    assert main.state == graph.reopened().kernel.manifest.main.state
    publish(main, request(graph, epoch=main.state.head.fence_epoch))
    assert len(main.state.commits) == 3
    assert_one_head_row(main)


def test_a_fence_leaves_one_head_row_and_a_publish_may_follow(graph: TestGraph) -> None:
    main = graph.kernel.manifest.main
    fence(main, 4)
    fence(main, 5)
    publish(main, request(graph, epoch=5))
    assert main.refresh().head.fence_epoch == 5
    assert_one_head_row(main)


def test_another_alias_replaces_the_registration(graph: TestGraph) -> None:
    entry = graph.snapshot().table("node:City")
    renamed = TableRow(entry.identity, "node:Town", entry.location)
    publish(graph.kernel.manifest.main, request(graph, registrations=(renamed,)))
    assert "node:Town" in graph.reopened().snapshot().tables
    assert_one_head_row(graph.kernel.manifest.main)


@pytest.mark.parametrize("writers", [1, 2])
def test_rows_that_were_swapped_in_are_seen_as_changed_by_other_handles(
    graph: TestGraph, writers: int
) -> None:
    handles = [graph, graph.reopened()][:writers]
    watcher = graph.reopened().kernel.manifest.main
    before = watcher.refresh()
    for n in range(4):
        handles[n % writers].write(graph.persons(f"p{n}"))
    with measure() as io:
        state = watcher.refresh()
    assert state == graph.reopened().kernel.manifest.main.state
    assert io.report().count("lance", "scan") == 1
    changed = watcher.handle.to_table(filter=f"_row_last_updated_at_version > {before.version}")
    assert sum(isinstance(row, VersionRow) for row in decode_rows(changed)) == 4


@pytest.mark.parametrize("rows_of_a_commit", [0, 1_000])
def test_a_refresh_over_compactions_counts_no_row_twice(
    graph: TestGraph, monkeypatch: pytest.MonkeyPatch, rows_of_a_commit: int
) -> None:
    """Whether it tells moved rows from new ones while reading, or afterwards."""
    monkeypatch.setattr(manifest_module, "ROWS_OF_A_COMMIT", rows_of_a_commit)
    graph = graph.reopened(WriteSettings(manifest_compact_every=3))
    warm = graph.reopened()
    for n in range(9):
        graph.write(graph.persons(f"p{n}"))
        seen = warm.kernel.manifest.main.refresh()
        fresh = graph.reopened().kernel.manifest.main.refresh()
        assert sorted(seen.versions, key=repr) == sorted(fresh.versions, key=repr)
        assert (seen.version, seen.head, seen.pins) == (fresh.version, fresh.head, fresh.pins)
        assert seen.commits == fresh.commits
    warm.write(warm.persons("by the warm handle"))
    assert "by the warm handle" in graph.names()
