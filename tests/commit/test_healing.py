"""A handle that heals recovers what blocks a branch, at the next write and in the background."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.effects.failpoints import armed
from omnigraph.errors import RecoveryRequired
from omnigraph.graph import Graph, open_graph
from omnigraph.storage import transactions
from omnigraph.storage.transactions import DatasetRef
from tests.support.sidecars import KINDS, Interrupted, interrupted, names
from tests.support.waiting import until

ADD = "query add($n: String) { insert Person { name: $n } }"


@pytest.fixture(scope="module", params=["Mutation", "idle fork", "SchemaApply"])
def blocked(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Interrupted:
    """What only a full recovery settles."""
    return interrupted(tmp_path_factory.mktemp("heal"), request.param)


@pytest.fixture(scope="module")
def torn(tmp_path_factory: pytest.TempPathFactory) -> Interrupted:
    return interrupted(tmp_path_factory.mktemp("torn"), "Mutation")


@pytest.fixture
def healing(torn: Interrupted) -> Iterator[Graph]:
    """A handle that was open before its neighbour died."""
    sidecar = (torn.fresh() / torn.name).read_bytes()
    (torn.root / torn.name).unlink()
    graph = open_graph(torn.root, settle=False, heal=True)
    (torn.root / torn.name).write_bytes(sidecar)
    yield graph
    graph.close()


def look(graph: Graph) -> None:
    """Let recovery in the background look now."""
    assert graph._opened.healer is not None
    graph._opened.healer.wake()


def test_the_next_write_heals_what_a_dead_neighbour_left(blocked: Interrupted) -> None:
    branch = blocked.record["branch"]
    graph = open_graph(blocked.fresh(), settle=False)
    with pytest.raises(RecoveryRequired) as refused:
        graph.mutate(ADD, {"n": "next"}, branch=branch)
    assert refused.value.outcome == "not_begun"
    graph = open_graph(blocked.root, settle=False, heal=True)
    graph.mutate(ADD, {"n": "next"}, branch=branch)
    assert names(graph, branch=branch) == ["kept", "next"]
    graph.close()


def test_what_a_dead_neighbour_left_is_healed_without_a_write(healing: Graph) -> None:
    kernel = healing._kernel
    look(healing)
    until(lambda: not kernel.sidecars.names())
    assert healing.blocked_branches == ()
    assert [row.recovery_kind for row in healing.list_recoveries()] == ["RolledBack"]


def test_a_branch_that_cannot_be_healed_is_told_with_its_reason(
    healing: Graph, torn: Interrupted
) -> None:
    kernel = healing._kernel
    entry = kernel.manifest.main.refresh().head_snapshot().table("node:Person")
    handle = kernel.lance.open(DatasetRef(kernel.table_uri(entry.location)))
    foreign = transactions.stage_restore(handle, 1, kernel.ids.ulid())
    kernel.lance.commit(handle, foreign)
    look(healing)
    until(lambda: healing.blocked_branches != ())
    (found,) = healing.blocked_branches
    assert (found.branch, found.operation_id) == ("main", torn.record["operation_id"])
    assert "another writer" in found.reason
    healing.mutate(ADD, {"n": "elsewhere"}, branch="review")
    assert [each.outcome for each in healing.recover(force=True)] == ["rolled_back"]
    look(healing)
    until(lambda: healing.blocked_branches == ())


@pytest.mark.parametrize("kind", ["Mutation", "complete Mutation"])
def test_a_write_that_stopped_after_its_first_effect_has_an_unknown_outcome(
    torn: Interrupted, kind: str
) -> None:
    """Recovery may publish it or undo it: only the next look at the branch tells."""
    graph = open_graph(torn.fresh(), heal=True)
    with armed(KINDS[kind].at), pytest.raises(RecoveryRequired) as lost:
        KINDS[kind].run(graph)
    assert lost.value.outcome == "unknown"
    graph.mutate(ADD, {"n": "next"})
    graph.close()


def test_the_failure_of_one_sidecar_does_not_keep_the_others(healing: Graph) -> None:
    kernel = healing._kernel
    with armed("recovery.post_table_restore_pre_publish=error*1"):
        look(healing)
        until(lambda: bool(healing.blocked_branches) or not kernel.sidecars.names())
    look(healing)
    until(lambda: not kernel.sidecars.names() and not healing.blocked_branches)
    healing.mutate(ADD, {"n": "next"})
    assert names(healing) == ["kept", "next"]


def test_a_handle_does_not_heal_unless_asked(tmp_path: Path, torn: Interrupted) -> None:
    graph = open_graph(torn.fresh(), settle=False)
    assert graph._opened.healer is None
    assert graph.blocked_branches == ()
