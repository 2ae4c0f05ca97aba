"""The one compare-and-swap: what it refuses, and that only one of two can win."""

from __future__ import annotations

import itertools
import threading
from dataclasses import replace
from typing import Any

import pytest

from omnigraph.effects.failpoints import InjectedFault, armed
from omnigraph.errors import (
    ExpectedVersionMismatch,
    FencedOut,
    InternalError,
    ReadSetChanged,
    RowLevelCasContention,
)
from omnigraph.storage import publisher
from omnigraph.storage.manifest_rows import CommitRow, VersionRow
from omnigraph.storage.publisher import PublishRequest, fence, publish
from omnigraph.storage.transactions import CommitLost, CommitOutcomeUnknown
from tests.support.graphs import TestGraph


def commit_row(graph: TestGraph, actor: str = "act") -> CommitRow:
    snapshot = graph.snapshot()
    return CommitRow(
        commit_id=graph.kernel.ids.ulid(),
        branch=None,
        manifest_version=0,
        commit_seq=0,
        parent_commit_id=snapshot.commit_id,
        merged_parent_commit_id=None,
        actor_id=actor,
        kind="maintenance",
        schema_hash=snapshot.commit.schema_hash,
        created_at=1,
    )


def request(graph: TestGraph, **changes: Any) -> PublishRequest:
    plain = PublishRequest(commit_row(graph), epoch=1, expected_head=graph.snapshot().commit_id)
    return replace(plain, **changes)


def test_a_publish_appends_one_commit_and_moves_the_head(graph: TestGraph) -> None:
    before = graph.snapshot()
    commit = publish(graph.kernel.manifest.main, request(graph))
    after = graph.snapshot()
    assert after.commit_id == commit.commit_id
    assert commit.parent_commit_id == before.commit_id
    assert commit.commit_seq == before.commit.commit_seq + 1
    assert commit.manifest_version == after.manifest_version


def test_c_sto_015_of_two_publishes_on_one_head_exactly_one_becomes_head(graph: TestGraph) -> None:
    handles = [graph.reopened() for _ in range(4)]
    requests = [request(graph) for _ in handles]
    for handle in handles:
        handle.kernel.manifest.main.refresh()
    outcomes: list[str] = []
    start = threading.Barrier(len(handles))

    def run(handle: TestGraph, wish: PublishRequest) -> None:
        start.wait()
        try:
            publish(handle.kernel.manifest.main, wish)
            outcomes.append(wish.commit.commit_id)
        except ReadSetChanged:
            outcomes.append("lost")

    threads = [
        threading.Thread(target=run, args=pair) for pair in zip(handles, requests, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    winners = [outcome for outcome in outcomes if outcome != "lost"]
    assert len(winners) == 1
    assert graph.snapshot().commit_id == winners[0]
    assert len(graph.kernel.manifest.main.state.commits) == 2


def test_c_sto_017_a_wrong_expected_version_changes_nothing_and_names_all_three(
    graph: TestGraph,
) -> None:
    before = graph.snapshot()
    identity = before.table("node:Person").identity
    with pytest.raises(ExpectedVersionMismatch) as refused:
        publish(graph.kernel.manifest.main, request(graph, expected_table_versions={identity: 7}))
    assert refused.value.details == {"table_key": "node:Person", "expected": 7, "actual": 1}
    assert graph.reopened().snapshot().commit_id == before.commit_id


def test_c_sto_018_a_lower_epoch_than_the_head_row_is_fenced_out(graph: TestGraph) -> None:
    main = graph.kernel.manifest.main
    fence(main, 5)
    with pytest.raises(FencedOut):
        publish(main, request(graph, epoch=4))
    assert publish(main, request(graph, epoch=5)).commit_seq == 1


def test_a_fence_never_lowers_the_epoch(graph: TestGraph) -> None:
    main = graph.kernel.manifest.main
    fence(main, 5)
    fence(main, 3)
    assert main.refresh().head.fence_epoch == 5


def test_c_sto_019_contention_is_retried_five_times_and_then_reported(
    graph: TestGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = 0

    def lose(*_: object) -> bool:
        nonlocal attempts
        attempts += 1
        return False

    monkeypatch.setattr(publisher, "_swap", lose)
    with pytest.raises(RowLevelCasContention):
        publish(graph.kernel.manifest.main, request(graph))
    assert attempts == 5


@pytest.mark.parametrize("landed", [True, False])
def test_c_sto_020_a_lost_acknowledgement_is_settled_by_the_commit_id(
    graph: TestGraph, monkeypatch: pytest.MonkeyPatch, landed: bool
) -> None:
    lance = type(graph.kernel.lance)
    real = lance.commit
    calls = 0

    def unsure(self: object, handle: Any, transaction: Any) -> object:
        nonlocal calls
        calls += 1
        if calls > 1:
            return real(graph.kernel.lance, handle, transaction)
        if landed:
            real(graph.kernel.lance, handle, transaction)
        raise CommitOutcomeUnknown("the connection broke")

    monkeypatch.setattr(lance, "commit", unsure)
    wish = request(graph)
    publish(graph.kernel.manifest.main, wish)
    state = graph.reopened().kernel.manifest.main.state
    assert state.head.commit_id == wish.commit.commit_id
    assert len(state.commits) == 2
    assert calls == (1 if landed else 2)


def test_c_sto_021_an_existing_version_row_is_never_registered_again(graph: TestGraph) -> None:
    identity = graph.snapshot().table("node:Person").identity
    with pytest.raises(InternalError, match="already published"):
        publish(
            graph.kernel.manifest.main, request(graph, pins=(VersionRow(identity, 1, None, 0),))
        )


def test_a_publish_repeated_after_it_landed_returns_the_same_commit(graph: TestGraph) -> None:
    wish = request(graph)
    first = publish(graph.kernel.manifest.main, wish)
    assert publish(graph.reopened().kernel.manifest.main, wish) == first


def test_a_fault_right_after_the_swap_leaves_exactly_the_published_commit(graph: TestGraph) -> None:
    wish = request(graph)
    with armed("graph_publish.after_manifest_commit=error*1"), pytest.raises(InjectedFault):
        publish(graph.kernel.manifest.main, wish)
    assert graph.reopened().snapshot().commit_id == wish.commit.commit_id


def test_c_sto_016_eight_writers_of_disjoint_rows_end_in_one_line_of_commits(
    graph: TestGraph,
) -> None:
    errors: list[BaseException] = []

    def run(name: str) -> None:
        handle = graph.reopened()
        for _ in range(40):
            try:
                handle.write(handle.persons(name))
                return
            except (ReadSetChanged, ExpectedVersionMismatch, CommitLost):
                continue
            except BaseException as error:
                errors.append(error)
                return

    threads = [threading.Thread(target=run, args=(f"p{n}",)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert graph.names() == [f"p{n}" for n in range(8)]
    line = graph.kernel.manifest.main.refresh().lineage()
    assert [commit.commit_seq for commit in line] == list(range(8, -1, -1))
    for child, parent in itertools.pairwise(line):
        assert child.parent_commit_id == parent.commit_id
