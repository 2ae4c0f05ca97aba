"""Costs are flat in the number of commits: counted, not timed."""

from __future__ import annotations

from pathlib import Path

import pytest

from omnigraph.graph import Graph, init
from omnigraph.storage.manifest import ManifestBranch
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.publisher import PublishRequest, maintain_manifest, publish
from tests.cost.costs import SCHEMA, Cost, cost_of, insert
from tests.support.budgets import budget

FEW = 50
MANY = budget(150, 2_000)


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    return init(tmp_path / "graph.omni", SCHEMA)


def publish_commits(graph: Graph, until: int) -> None:
    """Publish commits that change no table, with the upkeep that follows every publish."""
    kernel = graph._kernel
    main: ManifestBranch = kernel.manifest.main
    state = main.refresh()
    for _ in range(until - len(state.commits)):
        state = main.state
        commit = CommitRow(
            commit_id=kernel.ids.ulid(),
            branch=None,
            manifest_version=0,
            commit_seq=0,
            parent_commit_id=state.head.commit_id,
            merged_parent_commit_id=None,
            actor_id=None,
            kind="mutation",
            schema_hash=state.commits[state.head.commit_id].schema_hash,
            created_at=kernel.clock.wall_us(),
        )
        publish(main, PublishRequest(commit, state.head.fence_epoch, state.head.commit_id))
        maintain_manifest(main, 64, kernel.ids.ulid)
    assert len(graph.list_commits()) == until


def insert_commits(graph: Graph, until: int) -> None:
    """Insert rows, each with a commit, until the graph has so many commits."""
    while len(graph._kernel.manifest.main.state.commits) < until:
        insert(graph, f"p{len(graph._kernel.manifest.main.state.commits)}")


def costs_now(graph: Graph) -> dict[str, Cost]:
    """The warm verbs, at a moment when no upkeep is due: it is a rhythm of its own."""
    insert(graph, "warm")
    graph.entity_at("node:Person", "warm")
    write = cost_of(graph, lambda: insert(graph, "x"))
    while "compact __manifest" in write.shape or "compact table" in write.shape:
        insert(graph, "warm")
        write = cost_of(graph, lambda: insert(graph, "x"))
    return {
        "write": write,
        "snapshot": cost_of(graph, graph.snapshot),
        "read": cost_of(graph, lambda: graph.entity_at("node:Person", "x")),
        "commits": cost_of(graph, graph.list_commits),
    }


def assert_equal_costs(few: dict[str, Cost], many: dict[str, Cost]) -> None:
    for verb, cost in few.items():
        assert cost.shape == many[verb].shape, f"{verb}{cost.table()}\nlater{many[verb].table()}"
        assert cost.round_trips == many[verb].round_trips


def test_c_sto_048_warm_costs_are_equal_at_50_and_at_400_commits(graph: Graph):
    publish_commits(graph, FEW)
    few = costs_now(graph)
    publish_commits(graph, 400)
    assert_equal_costs(few, costs_now(graph))


@pytest.mark.slow
def test_c_sto_048_warm_costs_are_equal_after_few_and_after_many_writes(graph: Graph):
    insert_commits(graph, FEW)
    few = costs_now(graph)
    insert_commits(graph, MANY)
    assert_equal_costs(few, costs_now(graph))


def test_c_sto_048_the_files_of_the_manifest_stay_few(graph: Graph):
    publish_commits(graph, 400)
    handle = graph._kernel.manifest.main.handle
    assert len(handle.get_fragments()) <= 64
    assert len(handle.versions()) <= 32 + 64
