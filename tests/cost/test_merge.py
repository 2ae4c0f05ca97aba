"""What a merge and a diff cost: the same at any number of rows and types that did not change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.graph import Graph, init
from tests.cost.costs import Cost, cost_of, many_types

FEW, MANY = 50, 5_000
SCHEMA = """
node Person { name: String @key  age: I32?  face: Vector(8)?  photo: Blob? }
edge Knows: Person -> Person
"""


def loaded(graph: Graph, branch: str, ages: dict[str, int]) -> None:
    rows = (
        {"type": "Person", "data": {"name": name, "age": age, "photo": "base64:QUE="}}
        for name, age in ages.items()
    )
    graph.load(data="\n".join(map(json.dumps, rows)), mode="merge", branch=branch)


def apart(directory: Path, rows: int) -> Graph:
    """A graph of some size whose branches both changed two entities."""
    graph = init(directory / f"{rows}.omni", SCHEMA)
    loaded(graph, "main", {f"p{n:05}": n for n in range(rows)})
    graph.ensure_indices()
    graph.create_branch("review")
    loaded(graph, "review", {"p00001": -1, "new": 1})
    loaded(graph, "main", {"p00002": -1, "other": 1})
    return graph


def costs(graph: Graph) -> dict[str, Cost]:
    return {
        "diff": cost_of(graph, lambda: list(graph.diff("main", "review").changes(images=True))),
        "plan": cost_of(graph, lambda: graph.plan_merge("review")),
        "merge": cost_of(graph, lambda: graph.merge_branch("review")),
    }


def test_merge_and_diff_cost_the_same_at_50_and_at_5000_rows(tmp_path: Path) -> None:
    few, many = (costs(apart(tmp_path, rows)) for rows in (FEW, MANY))
    for verb, cost in few.items():
        assert cost.shape == many[verb].shape, f"{verb}{cost.table()}\n{MANY}{many[verb].table()}"


def test_blobs_of_entities_that_stay_as_they_are_are_not_read(tmp_path: Path) -> None:
    found = costs(apart(tmp_path, FEW))
    # Of what is written, all at once; a plan also compares both sides of what it lists as updated.
    for verb, wanted in (("plan", 3), ("merge", 1)):
        reads = [event for event in found[verb].events if event.verb == "read_blobs"]
        assert len(reads) == wanted, found[verb].table()


@pytest.mark.parametrize("verb", ["diff", "plan", "merge"])
def test_types_that_neither_side_changed_are_not_looked_at(tmp_path: Path, verb: str) -> None:
    found = []
    for types in (5, 60):
        graph = init(tmp_path / f"{types}.omni", many_types(types))
        graph.create_branch("review")
        for branch, code in (("review", "a"), ("main", "b")):
            graph.mutate(f'query q {{ insert Kind0 {{ code: "{code}" }} }}', branch=branch)
        found.append(costs(graph)[verb])
    assert found[0].shape == found[1].shape, found[0].table() + found[1].table()
