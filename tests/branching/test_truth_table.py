"""C-BRA-018: every pair of operations on two branches, and what their merge comes to.

The vocabulary has ten operations. Three of them no mutation can express; a new operation has to get
its row and its column here.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path

import orjson
import pytest

import omnigraph as og
from omnigraph.errors import MergeConflicts

SCHEMA = "node Person { name: String @key  age: I32? }  edge Knows: Person -> Person"

Cell = str
"""`U`, `F`, `M`, or the kind of the one conflict and the entity it is about."""


def _mutate(text: str) -> Callable[[og.Graph, str, int], None]:
    def run(graph: og.Graph, branch: str, value: int) -> None:
        params = {"v": value} if "$v" in text else None
        graph.mutate(text, params, branch=branch)

    return run


def _net_zero(graph: og.Graph, branch: str, value: int) -> None:
    OPERATIONS["addEdge"](graph, branch, value)
    graph.mutate('query q { delete Knows where from = "A" }', branch=branch)


OPERATIONS: dict[str, Callable[[og.Graph, str, int], None]] = {
    "noop": lambda graph, branch, value: None,
    "addNode": _mutate('query q($v: I32) { insert Person { name: "E", age: $v } }'),
    "removeNode": _mutate('query q { delete Person where name = "A" }'),
    "addEdge": _mutate('query q { insert Knows { from: "A", to: "C" } }'),
    "removeEdge": _mutate('query q { delete Knows where from = "B" }'),
    "setProperty": _mutate('query q($v: I32) { update Person set { age: $v } where name = "A" }'),
    "netZero": _net_zero,
}
UNSUPPORTED = ("dropProperty", "addLabel", "removeLabel")

TABLE = """
noop         U  U                   U                   U              U  U                   U
addNode      F  divergent_insert:E  M                   M              M  M                   M
removeNode   F  M                   M                   orphan_edge    M  delete_vs_update:A  M
addEdge      F  M                   orphan_edge         M              M  M                   M
removeEdge   F  M                   M                   M              M  M                   M
setProperty  F  M                   delete_vs_update:A  M              M  divergent_update:A  M
netZero      F  M                   M                   M              M  M                   M
"""
CELLS: dict[tuple[str, str], Cell] = {
    (row.split()[0], target): cell
    for row in TABLE.strip().splitlines()
    for target, cell in zip(OPERATIONS, row.split()[1:], strict=True)
}
OUTCOMES = {"U": "already_up_to_date", "F": "fast_forward", "M": "merged"}


def content(graph: og.Graph, branch: str) -> dict[str, object]:
    records = [orjson.loads(line) for line in b"".join(graph.export(branch=branch)).splitlines()]
    persons = (record["data"] for record in records if "type" in record)
    edges = (record for record in records if "edge" in record)
    return {
        "persons": {data["name"]: data["age"] for data in persons},
        "edges": sorted((edge["from"], edge["to"]) for edge in edges),
    }


def expected(source: str, target: str) -> dict[str, object]:
    """Both effects on the fixture, worked out by hand."""
    persons: dict[str, int] = {"A": 1, "B": 2, "C": 3, "D": 4}
    edges = [("B", "C")]
    for operation, value in ((target, 20), (source, 10)):
        match operation:
            case "addNode":
                persons["E"] = value
            case "removeNode":
                persons.pop("A", None)
            case "addEdge":
                edges.append(("A", "C"))
            case "removeEdge":
                edges = [edge for edge in edges if edge != ("B", "C")]
            case "setProperty":
                persons["A"] = value
    return {"persons": persons, "edges": sorted(edges)}


def fixture(root: Path) -> og.Graph:
    """The graph every cell starts from."""
    graph = og.init(root, schema=SCHEMA)
    graph.mutate(
        """
        query seed {
            insert Person { name: "A", age: 1 }
            insert Person { name: "B", age: 2 }
            insert Person { name: "C", age: 3 }
            insert Person { name: "D", age: 4 }
            insert Knows { from: "B", to: "C" }
        }
        """
    )
    return graph


def test_the_table_has_a_cell_for_every_pair_of_operations() -> None:
    assert set(CELLS) == set(itertools.product(OPERATIONS, repeat=2))
    assert len(CELLS) == 49
    assert len(OPERATIONS) + len(UNSUPPORTED) == 10


@pytest.mark.parametrize(("source", "target"), CELLS, ids=map("-".join, CELLS))
def test_c_bra_018_the_merge_of_any_two_operations(
    tmp_path: Path, source: str, target: str
) -> None:
    graph = fixture(tmp_path / "graph.omni")
    graph.create_branch("review")
    OPERATIONS[source](graph, "review", 10)
    OPERATIONS[target](graph, "main", 20)
    before = content(graph, "main")
    head = graph.list_commits()[0].graph_commit_id
    cell = CELLS[source, target]
    if cell in OUTCOMES:
        receipt = graph.merge_branch("review")
        assert receipt.outcome == OUTCOMES[cell]
        assert content(graph, "main") == expected(source, target)
        assert (receipt.commit is None) == (cell == "U")
        assert graph.merge_branch("review").outcome == "already_up_to_date"
        return
    kind, _, entity = cell.partition(":")
    with pytest.raises(MergeConflicts) as refused:
        graph.merge_branch("review")
    (conflict,) = refused.value.details["merge_conflicts"]
    assert conflict["kind"] == kind
    assert not entity or conflict["entity_id"] == entity
    assert content(graph, "main") == before
    assert graph.list_commits()[0].graph_commit_id == head
