"""Recovery when the world around it misbehaves: lost races, foreign state, vanishing files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.branching.branches import create_branch
from omnigraph.commit.plan import ChangeSet, CommitPlan, TableChange, sidecar_name
from omnigraph.commit.recovery.audit import RecoveryAudit
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import EffectFreeConflict, RecoveryRequired, StorageError, UncoveredDrift
from omnigraph.storage import transactions
from omnigraph.storage.datasets import LanceStore
from omnigraph.storage.manifest_rows import CommitRow, VersionRow
from omnigraph.storage.publisher import PublishRequest, publish
from omnigraph.storage.transactions import CommitLost, transaction_uuid
from tests.support.graphs import TestGraph, new_graph

AFTER_TABLES = "mutation.post_finalize_pre_publisher=error*1"
BETWEEN_TABLES = "mutation.post_table_commit=error*1"


@pytest.fixture
def graph(tmp_path: Path) -> TestGraph:
    return new_graph(tmp_path)


def interrupt(
    graph: TestGraph, where: str, changes: ChangeSet | None = None, branch: str = "main"
) -> CommitPlan:
    with armed(where), pytest.raises(RecoveryRequired):
        graph.write(changes or graph.persons("lost"), branch)
    sidecar = graph.kernel.sidecars.read(graph.kernel.sidecars.names()[-1])
    assert sidecar is not None
    return sidecar


def recover(graph: TestGraph) -> list[str]:
    return [settled.outcome for settled in graph.recoverer.run("full")]


def audit_kinds(graph: TestGraph) -> list[str]:
    rows = RecoveryAudit(graph.kernel.lance, graph.kernel.root.uri).rows()
    return [row.recovery_kind for row in rows]


def publish_something(graph: TestGraph, *pins: VersionRow) -> None:
    """A commit that no attempt of ours made."""
    head = graph.snapshot().commit
    commit = replace(head, commit_id=graph.kernel.ids.ulid(), kind="repair")
    epoch = graph.kernel.manifest.main.state.head.fence_epoch
    request = PublishRequest(commit, epoch=epoch, expected_head=head.commit_id, pins=pins)
    publish(graph.kernel.manifest.main, request)


def test_c_rec_006_an_interrupted_mutation_is_rolled_forward_by_the_next_one(
    tmp_path: Path,
) -> None:
    graph = og.init(tmp_path / "graph.omni", schema="node Person { name: String @key }")
    add = "query add($n: String) { insert Person { name: $n } }"
    with armed(AFTER_TABLES), pytest.raises(RecoveryRequired):
        graph.mutate(add, {"n": "lost"}, actor="ana")
    graph.mutate(add, {"n": "next"})
    assert graph.entity_at("node:Person", "lost") is not None
    assert [c.actor_id for c in graph.list_commits()] == [None, "ana", None]


def test_c_rec_010_after_a_rollback_every_table_stands_at_its_pin(graph: TestGraph) -> None:
    interrupt(graph, BETWEEN_TABLES, graph.persons_and_city("a", "b"))
    recover(graph)
    for entry in graph.snapshot().tables.values():
        where = graph.capture().reader.where(entry)
        assert graph.kernel.lance.open(where).version == entry.version


def test_c_rec_012_a_table_is_restored_even_when_its_fragments_are_unchanged(
    graph: TestGraph,
) -> None:
    nothing = pa.table([["absent"]], schema=pa.schema([pa.field("id", pa.string(), False)]))
    changes = ChangeSet(
        {
            "node:City": TableChange("node:City", "delete", nothing),
            **graph.persons("lost").tables,
        }
    )
    sidecar = interrupt(graph, BETWEEN_TABLES, changes)
    (city,) = [table for table in sidecar.tables if table.table_key == "node:City"]
    assert recover(graph) == ["rolled_back"]
    entry = graph.snapshot().table("node:City")
    handle = graph.kernel.lance.open(graph.capture().reader.where(entry))
    assert transaction_uuid(handle, entry.version) == city.restore_uuid
    graph.assert_no_drift()


def test_c_rec_017_drift_advice_without_a_list_names_both_ways_and_the_cause(
    graph: TestGraph,
) -> None:
    where = graph.capture().reader.where(graph.snapshot().table("node:Person"))
    handle = graph.kernel.lance.open(where)
    rows = graph.persons("foreign").tables["node:Person"].rows
    graph.kernel.lance.commit(handle, transactions.stage_append(handle, rows, "foreign"))
    with armed("recovery.sidecar_list=error@3*1"), pytest.raises(UncoveredDrift) as refused:
        graph.write(graph.persons("a"))
    advice = refused.value.hint or ""
    assert "could not be classified" in advice
    assert "recovery.sidecar_list" in advice
    assert advice.index("omnigraph recover") < advice.index("omnigraph repair")


def test_c_rec_021_a_sidecar_that_vanishes_between_list_and_read_is_skipped(
    graph: TestGraph,
) -> None:
    sidecar = interrupt(graph, AFTER_TABLES)
    name = sidecar_name(sidecar.attempt_id)
    content = graph.kernel.store.read(name)

    def vanish(_: Failpoint) -> None:
        graph.kernel.store.delete(name)

    with armed({Failpoint.RECOVERY_POST_SIDECAR_LIST_PRE_READ: vanish}):
        assert recover(graph) == []
        graph.kernel.store.write(name, content)
        og.open(graph.kernel.root.uri)
    assert og.open(graph.kernel.root.uri, mode="read_only").list_branches() == ["main"]


def test_c_rec_023_a_read_only_open_ignores_sidecars_and_touches_nothing(
    graph: TestGraph,
) -> None:
    interrupt(graph, AFTER_TABLES)
    root = graph.kernel.root.path
    assert root is not None
    before = {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*"))}
    reader = og.open(root, mode="read_only")
    assert b"".join(reader.export()) == b""
    assert {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*"))} == before


def test_c_rec_028_a_branch_sidecar_is_judged_by_the_pins_of_its_branch(graph: TestGraph) -> None:
    create_branch(graph.kernel, "review")
    graph.write(graph.persons("first"), "review")
    interrupt(graph, AFTER_TABLES, branch="review")
    for number in range(3):
        graph.write(graph.persons(f"main-{number}"))
    assert recover(graph) == ["rolled_forward"]
    assert graph.names("review") == ["first", "lost"]


def test_c_rec_031_a_head_below_its_pin_aborts_loudly_and_keeps_the_sidecar(
    graph: TestGraph,
) -> None:
    interrupt(graph, AFTER_TABLES)
    identity = graph.snapshot().table("node:Person").identity
    publish_something(graph, VersionRow(identity, 99, None, 0))
    with pytest.raises(StorageError, match="below its published version"):
        recover(graph)
    with pytest.raises(StorageError, match="below its published version"):
        og.open(graph.kernel.root.uri)
    assert len(graph.kernel.sidecars.names()) == 1


def test_c_rec_035_a_roll_forward_that_loses_its_swap_converges_with_one_row(
    graph: TestGraph,
) -> None:
    interrupt(graph, AFTER_TABLES)
    moved: list[bool] = []

    def move(_: Failpoint) -> None:
        if not moved:
            moved.append(True)
            publish_something(graph.reopened())

    with armed({Failpoint.RECOVERY_BEFORE_ROLL_FORWARD_PUBLISH: move}):
        assert recover(graph) == ["deferred"]
    # The head is another one now, so the operation can only be undone.
    assert recover(graph) == ["rolled_back"]
    assert audit_kinds(graph) == ["RolledBack"]
    graph.assert_no_drift()


def test_c_rec_041_of_two_sidecars_that_claim_a_ref_the_last_one_cleans_up(
    graph: TestGraph,
) -> None:
    create_branch(graph.kernel, "review")
    sidecar = interrupt(graph, "mutation.post_fork_pre_commit=error*1", branch="review")
    twin = replace(
        sidecar,
        attempt_id=graph.kernel.ids.ulid(),
        rollback_commit_id=graph.kernel.ids.ulid(),
        lineage=replace(sidecar.lineage, commit_id=graph.kernel.ids.ulid()),
    )
    graph.kernel.sidecars.write(twin)
    where = graph.capture().reader.where(graph.snapshot().table("node:Person"))
    seen: list[int] = []

    def look(_: Failpoint) -> None:
        seen.append(len(graph.kernel.lance.refs(where)))

    with armed({Failpoint.RECOVERY_RECORD_AUDIT: look}):
        assert recover(graph) == ["rolled_back", "rolled_back"]
    assert seen == [1, 0]
    graph.write(graph.persons("a"), "review")
    assert graph.names("review") == ["a"]


def test_c_wrt_036_a_rejected_first_commit_takes_its_sidecar_back(
    graph: TestGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reject(*_: Any) -> None:
        raise CommitLost("another writer was first")

    with monkeypatch.context() as patched:
        patched.setattr(LanceStore, "commit", reject)
        with pytest.raises(EffectFreeConflict):
            graph.write(graph.persons("a"))
    assert graph.kernel.sidecars.names() == []
    graph.assert_no_drift()
    graph.write(graph.persons("a"))
    assert graph.names() == ["a"]


def test_a_publish_that_is_visible_after_all_is_a_success(graph: TestGraph) -> None:
    with armed("graph_publish.after_manifest_commit=error*1"):
        commit: CommitRow = graph.write(graph.persons("a"))
    assert graph.snapshot().commit_id == commit.commit_id
    assert graph.kernel.sidecars.names() == []
