"""Sidecars of the older shape, without identities and uuids: judged by versions (C-REC-045)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

from omnigraph.commit.plan import sidecar_name
from omnigraph.commit.recovery.audit import RecoveryAudit
from omnigraph.commit.recovery.settling import RECOVERY_ACTOR
from omnigraph.effects.failpoints import armed
from omnigraph.errors import OmnigraphError, RecoveryRequired, StorageError
from omnigraph.storage import transactions
from tests.support.graphs import TestGraph, new_graph


@pytest.fixture
def graph(tmp_path: Path) -> TestGraph:
    graph = new_graph(tmp_path)
    graph.write(graph.persons("kept"))
    return graph


def commit_to_table(graph: TestGraph, *names: str) -> None:
    """Commits that nobody published, one for each name."""
    for name in names:
        where = graph.capture().reader.where(graph.snapshot().table("node:Person"))
        handle = graph.kernel.lance.open(where)
        rows = graph.persons(name).tables["node:Person"].rows
        graph.kernel.lance.commit(handle, transactions.stage_append(handle, rows, f"tx-{name}"))


def leave_sidecar(graph: TestGraph, kind: str, *, expected: int, pin: int, **other: Any) -> str:
    operation_id = graph.kernel.ids.ulid()
    table = {
        "table_key": "node:Person",
        "table_path": graph.snapshot().table("node:Person").location,
        "expected_version": expected,
        "post_commit_pin": pin,
        **other,
    }
    record = {
        "schema_version": 1,
        "operation_id": operation_id,
        "writer_kind": kind,
        "branch": None,
        "actor_id": "ana",
        "tables": [table],
    }
    graph.kernel.store.write(sidecar_name(operation_id), orjson.dumps(record))
    return operation_id


def recover(graph: TestGraph) -> list[str]:
    return [settled.outcome for settled in graph.recoverer.run("full")]


def audited(graph: TestGraph) -> list[tuple[str, str | None]]:
    rows = RecoveryAudit(graph.kernel.lance, graph.kernel.root.uri).rows()
    return [(row.recovery_kind, row.recovery_for_actor) for row in rows]


@pytest.mark.parametrize("kind", ["Mutation", "Load"])
def test_c_rec_045_exactly_one_version_ahead_is_rolled_forward(graph: TestGraph, kind: str) -> None:
    commit_to_table(graph, "new")
    operation_id = leave_sidecar(graph, kind, expected=2, pin=3)
    assert recover(graph) == ["rolled_forward"]
    assert graph.names() == ["kept", "new"]
    commit = graph.snapshot().commit
    assert (commit.actor_id, commit.recovery_operation_id) == (RECOVERY_ACTOR, operation_id)
    assert audited(graph) == [("RolledForward", "ana")]
    graph.assert_no_drift()


@pytest.mark.parametrize("kind", ["Optimize", "EnsureIndices", "SchemaApply", "BranchMerge"])
def test_c_rec_045_other_kinds_roll_forward_any_number_of_versions(
    graph: TestGraph, kind: str
) -> None:
    commit_to_table(graph, "one", "two", "three")
    leave_sidecar(graph, kind, expected=2, pin=3)
    assert recover(graph) == ["rolled_forward"]
    assert graph.names() == ["kept", "one", "three", "two"]
    graph.assert_no_drift()


def test_c_rec_045_a_mutation_with_more_versions_than_planned_is_rolled_back(
    graph: TestGraph,
) -> None:
    commit_to_table(graph, "one", "two")
    leave_sidecar(graph, "Mutation", expected=2, pin=3)
    with pytest.raises(RecoveryRequired):
        graph.write(graph.persons("blocked"))
    assert recover(graph) == ["rolled_back"]
    assert graph.names() == ["kept"]
    graph.assert_no_drift()


def test_c_rec_045_a_wrong_expectation_is_rolled_back(graph: TestGraph) -> None:
    commit_to_table(graph, "one")
    leave_sidecar(graph, "Mutation", expected=1, pin=2)
    assert recover(graph) == ["rolled_back"]
    assert graph.names() == ["kept"]


def test_c_rec_045_no_movement_is_finished_without_a_publish(graph: TestGraph) -> None:
    before = graph.snapshot()
    leave_sidecar(graph, "Mutation", expected=2, pin=3)
    assert recover(graph) == ["rolled_back"]
    assert (graph.snapshot().commit_id, graph.snapshot().tables) == (
        before.commit_id,
        before.tables,
    )


def test_c_rec_045_a_published_operation_is_finished_without_a_publish(graph: TestGraph) -> None:
    before = graph.snapshot()
    leave_sidecar(graph, "Mutation", expected=1, pin=2)
    assert recover(graph) == ["finished"]
    assert (graph.snapshot().commit_id, graph.snapshot().tables) == (
        before.commit_id,
        before.tables,
    )
    assert audited(graph) == [("RolledForward", "ana")]


def test_c_rec_045_a_head_below_its_pin_aborts(graph: TestGraph) -> None:
    from omnigraph.storage.manifest_rows import VersionRow
    from omnigraph.storage.publisher import PublishRequest, publish

    head = graph.snapshot()
    entry = head.table("node:Person")
    main = graph.kernel.manifest.main
    epoch = main.state.head.fence_epoch
    commit = head.commit.__class__(
        **{
            name: getattr(head.commit, name)
            for name in head.commit.__slots__
            if name != "commit_id"
        },
        commit_id=graph.kernel.ids.ulid(),
    )
    pin = VersionRow(entry.identity, 99, None, 0)
    publish(main, PublishRequest(commit, epoch, head.commit_id, pins=(pin,)))
    operation_id = leave_sidecar(graph, "Mutation", expected=2, pin=3)
    with pytest.raises(StorageError, match="below its published version"):
        recover(graph)
    assert graph.kernel.store.exists(sidecar_name(operation_id))


def test_c_rec_045_a_table_that_lies_elsewhere_is_refused_and_named(graph: TestGraph) -> None:
    leave_sidecar(graph, "Mutation", expected=2, pin=3, table_path="nodes/elsewhere")
    (refused,) = graph.recoverer.run("full")
    assert refused.outcome == "set_aside"
    assert "nodes/elsewhere" in refused.reason


def test_c_rec_045_a_crash_between_restore_and_publish_does_not_restore_twice(
    graph: TestGraph,
) -> None:
    commit_to_table(graph, "one", "two")
    leave_sidecar(graph, "Load", expected=2, pin=3)
    with armed("recovery.post_table_restore_pre_publish=error*1"), pytest.raises(OmnigraphError):
        recover(graph)
    assert recover(graph) == ["rolled_back"]
    assert graph.snapshot().table("node:Person").version == 5
    graph.assert_no_drift()
