"""Upkeep in one process while two others write and one reads: nothing is lost, nobody fails."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest

from omnigraph.graph import open_graph
from tests.crash import judge, processes
from tests.crash.operations import operation, seeded
from tests.support.budgets import budget

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("auto", ["off", "4"])
def test_c_mnt_015_and_c_mnt_041_optimize_and_cleanup_beside_two_writers_and_a_reader(
    root: Path, auto: str
) -> None:
    model = seeded(str(root))
    # Compacting after every few writes, in all processes, makes for more encounters.
    settings = {"OMNIGRAPH_TABLE_COMPACT_EVERY": "8", "OMNIGRAPH_AUTO_OPTIMIZE": auto}
    writes = budget(20, 40)
    words = [f"insert-many {prefix} {writes}" for prefix in ("a", "b")]
    writers = [processes.start(each, root, environment=settings) for each in words]
    keeper = processes.start(f"upkeep-often 10 {budget(3, 6)}", root, environment=settings)
    reader = processes.start(f"read-often {budget(15, 30)}", root, environment=settings)
    for each, writer in zip(words, writers, strict=True):
        said = writer.finished()
        assert "value" in said, said
        operation(each).apply(model)
    assert keeper.finished() == {"value": []}
    seen = reader.finished()
    assert "value" in seen, seen
    assert all(before <= after for before, after in pairwise(seen["value"])), "a row was lost"
    graph = open_graph(root)
    judge.require_shows(graph, model)
    judge.require_settled(graph)
    assert graph.list_recoveries() == []
    assert graph.examine().is_healthy
    kinds = [commit.kind for commit in graph.list_commits()]
    assert kinds.count("mutation") == 2 * writes, "every write is a commit of its own"
    assert "maintenance" in kinds
