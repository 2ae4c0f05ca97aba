"""What branches cost: the same at any number of types, and per table only once it is written."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from omnigraph.graph import Graph, init
from tests.cost.costs import Cost, cost_of, insert, many_types

FEW, MANY = 5, 60
KIND = 'query q { insert Kind0 { code: "a" } }'


def warm(directory: Path, types: int) -> Graph:
    """A graph that has created, written and deleted a branch before."""
    graph = init(directory / f"{types}.omni", many_types(types))
    graph.mutate(KIND)
    graph.create_branch("before")
    graph.mutate(KIND, branch="before")
    graph.delete_branch("before")
    return graph


def costs(graph: Graph) -> dict[str, Cost]:
    return {
        "create": cost_of(graph, lambda: graph.create_branch("side")),
        "first write": cost_of(graph, lambda: graph.mutate(KIND, branch="side")),
        "create from it": cost_of(graph, lambda: graph.create_branch("nested", from_="side")),
        "delete unwritten": cost_of(graph, lambda: graph.delete_branch("nested")),
        "delete": cost_of(graph, lambda: graph.delete_branch("side")),
        "list": cost_of(graph, graph.list_branches),
    }


def about_tables(cost: Cost) -> int:
    return sum(n for kind, n in cost.shape.items() if kind.endswith(("table", "table ref")))


def test_branches_cost_the_same_at_5_and_at_60_types(tmp_path: Path):
    few, many = (costs(warm(tmp_path, types)) for types in (FEW, MANY))
    for verb, cost in few.items():
        assert cost.shape == many[verb].shape, f"{verb}{cost.table()}\n{MANY}{many[verb].table()}"


def test_a_write_costs_the_same_at_5_and_at_60_types(tmp_path: Path):
    few, many = (
        cost_of(graph, partial(graph.mutate, KIND))
        for graph in (warm(tmp_path, types) for types in (FEW, MANY))
    )
    assert few.shape == many.shape, few.table() + many.table()


def test_deleting_a_branch_costs_more_only_for_tables_it_wrote(graph: Graph):
    graph.create_branch("untouched")
    graph.create_branch("touched")
    insert(graph, "new", "touched")
    touched = cost_of(graph, lambda: graph.delete_branch("touched"))
    untouched = cost_of(graph, lambda: graph.delete_branch("untouched"))
    assert about_tables(untouched) == 0, untouched.table()
    to_find_and_remove_its_ref = 2
    assert about_tables(touched) == to_find_and_remove_its_ref, touched.table()
