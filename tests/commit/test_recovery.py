"""Recovery: an interrupted write becomes the old graph or the new one, with an audit row."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.branching.branches import create_branch, delete_branch
from omnigraph.commit.plan import CommitPlan, sidecar_name
from omnigraph.commit.recovery.audit import RecoveryAudit, RecoveryRow
from omnigraph.commit.recovery.settling import RECOVERY_ACTOR
from omnigraph.effects.failpoints import armed
from omnigraph.errors import (
    OmnigraphError,
    RecoveryRequired,
    StorageError,
    UncoveredDrift,
    UnreadableSidecar,
)
from omnigraph.storage import transactions
from omnigraph.storage.transactions import transaction_uuid
from tests.support.graphs import TestGraph, new_graph

AFTER_TABLES = "mutation.post_finalize_pre_publisher=error*1"
BETWEEN_TABLES = "mutation.post_table_commit=error*1"
BEFORE_TABLES = "mutation.post_sidecar_pre_fork=error*1"
AFTER_PUBLISH = "recovery.sidecar_delete=error*1"


@pytest.fixture
def graph(tmp_path: Path) -> TestGraph:
    return new_graph(tmp_path)


def interrupt(graph: TestGraph, where: str, name: str = "lost", branch: str = "main") -> CommitPlan:
    """Break a write of two tables at a failpoint, and return the sidecar it left."""
    with armed(where), pytest.raises(RecoveryRequired) as caught:
        graph.write(graph.persons_and_city(name, name), branch)
    (pending,) = graph.kernel.sidecars.names()
    sidecar = graph.kernel.sidecars.read(pending)
    assert sidecar is not None
    assert caught.value.details["operation_id"] == sidecar.attempt_id
    return sidecar


def audit(graph: TestGraph) -> list[RecoveryRow]:
    return RecoveryAudit(graph.kernel.lance, graph.kernel.root.uri).rows()


def recover(graph: TestGraph, **options: bool) -> list[str]:
    return [settled.outcome for settled in graph.recoverer.run("full", **options)]


# --- forward --------------------------------------------------------------------------------------


def test_c_rec_005_the_next_write_rolls_a_complete_one_forward_and_succeeds(
    graph: TestGraph,
) -> None:
    interrupt(graph, AFTER_TABLES)
    assert graph.names() == []
    graph.write(graph.persons("next"))
    assert graph.names() == ["lost", "next"]
    assert graph.names(table_key="node:City") == ["lost"]
    assert graph.kernel.sidecars.names() == []


def test_c_rec_007_on_a_branch_it_rolls_forward_and_leaves_main_alone(graph: TestGraph) -> None:
    create_branch(graph.kernel, "review")
    interrupt(graph, AFTER_TABLES, branch="review")
    before = graph.snapshot().commit_id
    graph.write(graph.persons("next"), "review")
    assert graph.names("review") == ["lost", "next"]
    assert graph.snapshot().commit_id == before


def test_c_rec_008_the_recovered_commit_keeps_its_id_and_author_and_is_marked(
    graph: TestGraph,
) -> None:
    sidecar = interrupt(graph, AFTER_TABLES)
    assert recover(graph) == ["rolled_forward"]
    commit = graph.snapshot().commit
    assert commit.commit_id == sidecar.lineage.commit_id
    assert commit.actor_id == "act-ana"
    assert commit.created_at == sidecar.lineage.created_at
    assert commit.recovered_by == RECOVERY_ACTOR
    assert commit.recovery_operation_id == sidecar.attempt_id


def test_c_rec_019_a_sidecar_that_could_not_be_deleted_costs_the_caller_nothing(
    graph: TestGraph,
) -> None:
    with armed(AFTER_PUBLISH):
        commit = graph.write(graph.persons("a"))
    assert graph.names() == ["a"]
    graph.write(graph.persons("b"))
    rows = audit(graph)
    assert [(row.recovery_kind, row.graph_commit_id) for row in rows] == [
        ("RolledForward", commit.commit_id)
    ]


def test_c_rec_033_a_published_operation_is_finished_without_a_second_publish(
    graph: TestGraph,
) -> None:
    with armed(AFTER_PUBLISH):
        graph.write(graph.persons("a"))
    version = graph.snapshot().manifest_version
    assert recover(graph) == ["finished"]
    assert graph.snapshot().manifest_version == version


# --- back -----------------------------------------------------------------------------------------


def test_c_rec_009_a_partial_write_is_rolled_back_in_every_table(graph: TestGraph) -> None:
    graph.write(graph.persons_and_city("kept", "kept"))
    interrupt(graph, BETWEEN_TABLES)
    assert recover(graph) == ["rolled_back"]
    assert graph.names() == ["kept"]
    assert graph.names(table_key="node:City") == ["kept"]
    graph.assert_no_drift()


def test_c_rec_013_refresh_and_write_entry_never_restore(graph: TestGraph) -> None:
    sidecar = interrupt(graph, BETWEEN_TABLES)
    heads = {
        table.location: graph.kernel.lance.open(
            graph.capture().reader.where(graph.snapshot().table(table.table_key))
        ).version
        for table in sidecar.tables
    }
    assert [s.outcome for s in graph.recoverer.run("forward")] == ["deferred"]
    with pytest.raises(RecoveryRequired):
        graph.recoverer.barrier("main")
    for table in sidecar.tables:
        where = graph.capture().reader.where(graph.snapshot().table(table.table_key))
        assert graph.kernel.lance.open(where).version == heads[table.location]
    assert len(graph.kernel.sidecars.names()) == 1


def test_c_rec_014_a_blocked_write_names_the_operation_and_what_to_do(graph: TestGraph) -> None:
    sidecar = interrupt(graph, BETWEEN_TABLES)
    with pytest.raises(RecoveryRequired) as refused:
        graph.write(graph.persons("next"))
    assert sidecar.attempt_id in refused.value.message
    assert "omnigraph recover" in (refused.value.hint or "")


def test_c_rec_015_recover_on_a_live_handle_settles_it_and_the_next_write_succeeds(
    graph: TestGraph,
) -> None:
    interrupt(graph, BETWEEN_TABLES)
    assert recover(graph) == ["rolled_back"]
    graph.write(graph.persons("next"))
    assert graph.names() == ["next"]


def test_c_rec_011_ten_failed_and_recovered_writes_leave_no_gap(graph: TestGraph) -> None:
    for _ in range(10):
        interrupt(graph, BETWEEN_TABLES)
        assert recover(graph) == ["rolled_back"]
        graph.assert_no_drift()
    graph.write(graph.persons_and_city("a", "b"))
    assert graph.names() == ["a"]


def test_c_rec_025_a_crash_between_restore_and_publish_does_not_restore_twice(
    graph: TestGraph,
) -> None:
    sidecar = interrupt(graph, BETWEEN_TABLES)
    with armed("recovery.post_table_restore_pre_publish=error*1"), pytest.raises(OmnigraphError):
        recover(graph)
    moved = [t for t in sidecar.tables if graph.snapshot().table(t.table_key).version == 1]
    assert recover(graph) == ["rolled_back"]
    graph.assert_no_drift()
    where = graph.capture().reader.where(graph.snapshot().table(moved[0].table_key))
    handle = graph.kernel.lance.open(where)
    restores = [
        version
        for version in range(2, handle.version + 1)
        if transaction_uuid(handle, version) in {t.restore_uuid for t in sidecar.tables}
    ]
    assert len(restores) == 1


def test_c_rec_026_the_audit_records_the_drift_of_a_rollback(graph: TestGraph) -> None:
    interrupt(graph, BETWEEN_TABLES)
    recover(graph)
    (row,) = audit(graph)
    assert row.recovery_kind == "RolledBack"
    assert row.tables
    assert all(table.from_version > table.to_version for table in row.tables)
    assert row.retired_uuids


def test_c_rec_046_an_operation_that_moved_nothing_is_finished_without_a_publish(
    graph: TestGraph,
) -> None:
    version = graph.snapshot().manifest_version
    interrupt(graph, BEFORE_TABLES)
    assert recover(graph) == ["rolled_back"]
    assert graph.snapshot().manifest_version == version
    assert [row.recovery_kind for row in audit(graph)] == ["RolledBack"]


# --- what a write owns before it acts -------------------------------------------------------------


def test_c_rec_002_the_sidecar_exists_before_any_table_or_ref_moves(graph: TestGraph) -> None:
    create_branch(graph.kernel, "review")
    sidecar = interrupt(graph, BEFORE_TABLES, branch="review")
    for table in sidecar.tables:
        where = graph.capture().reader.where(graph.snapshot().table(table.table_key))
        assert graph.kernel.lance.open(where).version == table.expected_version
        assert graph.kernel.lance.refs(where) == {}


def test_c_rec_003_only_tables_with_work_are_listed(graph: TestGraph) -> None:
    with armed(AFTER_TABLES), pytest.raises(RecoveryRequired):
        graph.write(graph.persons("a"))
    sidecar = graph.kernel.sidecars.read(graph.kernel.sidecars.names()[0])
    assert sidecar is not None
    assert [table.table_key for table in sidecar.tables] == ["node:Person"]


def test_c_rec_004_the_sidecar_names_the_uuid_that_lance_then_stores(graph: TestGraph) -> None:
    sidecar = interrupt(graph, AFTER_TABLES)
    for table in sidecar.tables:
        where = graph.capture().reader.where(graph.snapshot().table(table.table_key))
        handle = graph.kernel.lance.open(where)
        assert transaction_uuid(handle, table.expected_version + 1) == table.transactions[0].uuid


def test_c_rec_018_a_sidecar_that_cannot_be_written_leaves_no_trace(graph: TestGraph) -> None:
    before = graph.snapshot()
    with armed("recovery.sidecar_write=error*1"), pytest.raises(StorageError):
        graph.write(graph.persons("a"))
    assert graph.snapshot() == before
    graph.assert_no_drift()
    graph.write(graph.persons("a"))
    assert graph.names() == ["a"]


# --- faults around the sidecars -------------------------------------------------------------------


def test_c_rec_020_a_failing_list_fails_the_write_and_clears(graph: TestGraph) -> None:
    with armed("recovery.sidecar_list=error*1"), pytest.raises(StorageError):
        graph.write(graph.persons("a"))
    graph.write(graph.persons("a"))
    assert graph.names() == ["a"]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"not json", "not valid JSON"),
        (b"[]", "not a JSON object"),
        (b'{"schema_version": 2}', "writer_kind is missing"),
    ],
)
def test_c_rec_022_a_damaged_sidecar_is_refused_named_and_kept(
    graph: TestGraph, content: bytes, problem: str
) -> None:
    name = "__recovery/01M7000000000000000000000X.json"
    graph.kernel.store.write(name, content)
    (refused,) = graph.recoverer.run("full")
    assert refused.outcome == "set_aside"
    assert name in refused.reason
    assert problem in refused.reason
    (kept,) = graph.kernel.sidecars.refused()
    assert graph.kernel.store.read(kept.place) == content
    graph.write(graph.persons("a"))


def test_c_rec_022_a_sidecar_of_a_newer_version_is_refused_named_and_stays(
    graph: TestGraph,
) -> None:
    name, content = "__recovery/01M7000000000000000000000X.json", b'{"schema_version": 4}'
    graph.kernel.store.write(name, content)
    with pytest.raises(UnreadableSidecar, match="schema_version 4") as refused:
        graph.write(graph.persons("a"))
    assert name in refused.value.message
    assert graph.kernel.store.read(name) == content
    assert graph.names() == []


def test_c_rec_024_a_failing_audit_ends_in_one_row_and_one_commit(graph: TestGraph) -> None:
    interrupt(graph, AFTER_TABLES)
    with armed("recovery.record_audit=error*1"), pytest.raises(StorageError):
        recover(graph)
    commits = len(graph.kernel.manifest.main.refresh().commits)
    assert recover(graph) == ["finished"]
    assert len(audit(graph)) == 1
    assert len(graph.kernel.manifest.main.refresh().commits) == commits


def test_c_rec_027_several_sidecars_are_settled_in_order_with_fresh_state(
    graph: TestGraph,
) -> None:
    create_branch(graph.kernel, "review")
    first = interrupt(graph, AFTER_TABLES, "one", "review")
    with armed(AFTER_TABLES), pytest.raises(RecoveryRequired):
        graph.write(graph.persons("two"))
    assert recover(graph) == ["rolled_forward", "rolled_forward"]
    assert audit(graph)[0].operation_id == first.attempt_id
    assert (graph.names("review"), graph.names()) == (["one"], ["two"])


def test_c_rec_027_a_sidecar_that_was_written_late_is_settled_after_the_one_in_its_way(
    graph: TestGraph,
) -> None:
    late = interrupt(graph, BEFORE_TABLES, "late")
    name = sidecar_name(late.attempt_id)
    content = graph.kernel.store.read(name)
    graph.kernel.store.delete(name)
    interrupt(graph, AFTER_TABLES, "next")
    graph.kernel.store.write(name, content)
    assert recover(graph) == ["rolled_back", "rolled_forward"]
    assert graph.names() == ["next"]
    graph.assert_no_drift()


def test_c_rec_027_a_write_gets_past_both_as_well(graph: TestGraph) -> None:
    late = interrupt(graph, BEFORE_TABLES, "late")
    name = sidecar_name(late.attempt_id)
    content = graph.kernel.store.read(name)
    graph.kernel.store.delete(name)
    interrupt(graph, AFTER_TABLES, "next")
    graph.kernel.store.write(name, content)
    graph.write(graph.persons("third"))
    assert graph.names() == ["next", "third"]


def test_c_rec_016_drift_advice_ignores_sidecars_of_other_branches(graph: TestGraph) -> None:
    create_branch(graph.kernel, "review")
    interrupt(graph, AFTER_TABLES, branch="review")
    where = graph.capture().reader.where(graph.snapshot().table("node:Person"))
    handle = graph.kernel.lance.open(where)
    rows = graph.persons("foreign").tables["node:Person"].rows
    graph.kernel.lance.commit(handle, transactions.stage_append(handle, rows, "foreign"))
    with pytest.raises(UncoveredDrift) as refused:
        graph.write(graph.persons("a"))
    assert refused.value.hint == "run `omnigraph repair`"
    assert refused.value.details["head"] == 2


# --- foreign effects and broken invariants --------------------------------------------------------


def test_c_rec_032_a_foreign_commit_is_neither_adopted_nor_undone_without_force(
    graph: TestGraph,
) -> None:
    interrupt(graph, AFTER_TABLES)
    where = graph.capture().reader.where(graph.snapshot().table("node:Person"))
    handle = graph.kernel.lance.open(where)
    rows = graph.persons("foreign").tables["node:Person"].rows
    graph.kernel.lance.commit(handle, transactions.stage_append(handle, rows, "foreign"))
    assert recover(graph) == ["blocked"]
    with pytest.raises(RecoveryRequired, match="another writer"):
        graph.write(graph.persons("a"))
    assert recover(graph, force=True) == ["rolled_back"]
    assert graph.names() == []
    (row,) = audit(graph)
    assert [t.foreign_versions for t in row.tables if t.table_key == "node:Person"] == [(3,)]


# --- first touch ----------------------------------------------------------------------------------


def test_c_rec_040_an_untouched_fork_is_removed_by_full_recovery(graph: TestGraph) -> None:
    create_branch(graph.kernel, "review")
    with (
        armed("mutation.post_fork_pre_commit=error*1"),
        pytest.raises(RecoveryRequired),
    ):
        graph.write(graph.persons("a"), "review")
    where = graph.capture().reader.where(graph.snapshot().table("node:Person"))
    assert len(graph.kernel.lance.refs(where)) == 1
    assert [s.outcome for s in graph.recoverer.run("forward")] == ["deferred"]
    assert len(graph.kernel.lance.refs(where)) == 1
    assert recover(graph) == ["rolled_back"]
    assert graph.kernel.lance.refs(where) == {}
    graph.write(graph.persons("a"), "review")
    assert graph.names("review") == ["a"]


# --- branches -------------------------------------------------------------------------------------


def test_c_rec_029_c_rec_030_the_sidecar_of_a_deleted_branch_is_discarded_once(
    graph: TestGraph,
) -> None:
    create_branch(graph.kernel, "review")
    interrupt(graph, BETWEEN_TABLES, branch="review")
    delete_branch(graph.kernel, "review")
    graph.write(graph.persons("a"))
    with armed("recovery.sidecar_delete=error*1"), pytest.raises(StorageError):
        recover(graph)
    assert recover(graph) == ["discarded"]
    assert [row.recovery_kind for row in audit(graph)] == ["OrphanedBranchDiscarded"]
    recoveries = [
        commit
        for commit in graph.kernel.manifest.main.refresh().commits.values()
        if commit.kind == "recovery"
    ]
    assert len(recoveries) == 1
    assert graph.names() == ["a"]


def test_c_rec_048_recovering_twice_changes_nothing_further(graph: TestGraph) -> None:
    interrupt(graph, BETWEEN_TABLES)
    recover(graph)
    before, rows = graph.snapshot(), audit(graph)
    assert recover(graph.reopened()) == []
    assert graph.snapshot() == before
    assert audit(graph) == rows


def test_c_rec_001_a_clean_graph_has_no_recovery_objects(graph: TestGraph) -> None:
    before = graph.kernel.store.list()
    assert recover(graph.reopened()) == []
    assert graph.kernel.store.list() == before
    assert not any(name.startswith("__recovery") for name in before)
