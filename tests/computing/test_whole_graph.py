"""Algorithms that take the whole graph at once, against NetworkX."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import networkx as nx  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.computing import whole_graph
from omnigraph.computing.selection import ComputeDirection
from omnigraph.computing.whole_graph_blocks import BITS, Measure
from omnigraph.errors import InputError, install_command
from omnigraph.graph import Graph
from omnigraph.model.computations import Computation
from tests.computing.graphs import directed, linked, random_edges, simple
from tests.support.budgets import FEW

PEOPLE = 60
EDGES = random_edges(5, PEOPLE, 150)
REFERENCE = directed(PEOPLE, EDGES, None)
EVERY = ("strongly_connected", "louvain", "betweenness", "closeness", "similarity")


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    weights = [float(1 + place % 7) for place in range(len(EDGES))]
    return linked(tmp_path_factory.mktemp("whole"), PEOPLE, EDGES, weights)


def values(found: Computation, column: str) -> dict[str, Any]:
    rows = found.to_arrow().to_pydict()
    return dict(zip(rows["id"], rows[column], strict=True))


def groups(found: Computation, column: str) -> set[frozenset[str]]:
    """The members of each group, which has the name of one of them."""
    members: dict[str, set[str]] = {}
    for node, name in values(found, column).items():
        members.setdefault(name, set()).add(node)
    assert all(name in among for name, among in members.items())
    return {frozenset(among) for among in members.values()}


@FEW
@given(
    st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=40),
)
def test_strong_components_equal_those_of_networkx(
    tmp_path_factory: pytest.TempPathFactory, edges: list[tuple[int, int]]
) -> None:
    graph = linked(tmp_path_factory.mktemp("strong"), 12, edges)
    found = graph.compute.strongly_connected(nodes="Person", edges="Knows")
    expected = nx.strongly_connected_components(directed(12, edges, None))
    assert groups(found, "component") == {frozenset(each) for each in expected}


@pytest.mark.parametrize("direction", ["out", "in", "both"])
def test_betweenness_of_all_nodes_equals_that_of_networkx(
    graph: Graph, direction: ComputeDirection
) -> None:
    found = graph.compute.betweenness(nodes="Person", edges="Knows", direction=direction)
    reference = {"out": REFERENCE, "in": REFERENCE.reverse(), "both": simple(REFERENCE)}[direction]
    assert values(found, "betweenness") == pytest.approx(nx.betweenness_centrality(reference))


@pytest.mark.parametrize("direction", ["out", "in", "both"])
def test_closeness_of_all_nodes_equals_that_of_networkx(
    graph: Graph, direction: ComputeDirection
) -> None:
    found = graph.compute.closeness(nodes="Person", edges="Knows", direction=direction)
    reference = {"out": REFERENCE, "in": REFERENCE.reverse(), "both": simple(REFERENCE)}[direction]
    assert values(found, "closeness") == pytest.approx(nx.closeness_centrality(reference))


def test_closeness_of_more_nodes_than_one_pass_searches_from_equals_that_of_networkx(
    tmp_path: Path,
) -> None:
    people = BITS * 2 + 3
    edges = [(place, place + 1) for place in range(people - 1)] + [(people - 1, 7)]
    found = linked(tmp_path, people, edges).compute.closeness(nodes="Person", edges="Knows")
    expected = nx.closeness_centrality(directed(people, edges, None))
    assert values(found, "closeness") == pytest.approx(expected)


def test_samples_are_chosen_by_the_seed_and_come_near_the_exact_values(graph: Graph) -> None:
    for verb, column in (
        (graph.compute.betweenness, "betweenness"),
        (graph.compute.closeness, "closeness"),
    ):
        one = values(verb(nodes="Person", edges="Knows", samples=30), column)
        again = values(verb(nodes="Person", edges="Knows", samples=30), column)
        other = values(verb(nodes="Person", edges="Knows", samples=30, seed=2), column)
        exact = values(verb(nodes="Person", edges="Knows"), column)
        assert one == pytest.approx(again, abs=1e-12) and one != other
        assert one != exact
        mean = sum(exact.values()) / PEOPLE
        apart = sum(abs(one[node] - exact[node]) for node in exact) / PEOPLE
        assert apart < mean


def test_louvain_finds_groups_of_high_modularity_and_repeats_them(graph: Graph) -> None:
    chosen: dict[str, Any] = {"nodes": "Person", "edges": "Knows"}
    for weight in (None, "weight"):
        found = groups(graph.compute.louvain(weight=weight, **chosen), "community")
        assert found == groups(graph.compute.louvain(weight=weight, **chosen), "community")
        plain = nx.MultiGraph()
        plain.add_nodes_from(f"p{n}" for n in range(PEOPLE))
        for place, (begin, end) in enumerate(EDGES):
            by = 1.0 if weight is None else float(1 + place % 7)
            plain.add_edge(f"p{begin}", f"p{end}", weight=by)
        best = nx.community.louvain_communities(plain, seed=1)
        modularity = nx.community.modularity
        assert modularity(plain, found) > 0.9 * modularity(plain, best)
    small = groups(graph.compute.louvain(resolution=5.0, **chosen), "community")
    assert len(small) > len(found)


def test_louvain_keeps_apart_what_no_edge_links(tmp_path: Path) -> None:
    ring = [(first + step, first + (step + 1) % 5) for first in (0, 5) for step in range(5)]
    found = linked(tmp_path, 11, ring).compute.louvain(nodes="Person", edges="Knows")
    members = groups(found, "community")
    assert frozenset({"p10"}) in members
    assert all({int(name[1:]) // 5 for name in among} in ({0}, {1}, {2}) for among in members)


def neighbours(direction: ComputeDirection) -> dict[str, set[str]]:
    plain = simple(REFERENCE) if direction == "both" else REFERENCE
    around = {"out": REFERENCE.successors, "in": REFERENCE.predecessors, "both": plain.neighbors}
    return {node: set(around[direction](node)) - {node} for node in REFERENCE}


@pytest.mark.parametrize("direction", ["out", "in", "both"])
@pytest.mark.parametrize("measure", ["jaccard", "cosine", "overlap"])
def test_similarity_equals_common_neighbours_counted_one_by_one(
    graph: Graph,
    direction: ComputeDirection,
    measure: Measure,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(whole_graph, "WEDGES_AT_ONCE", 50)
    found = graph.compute.similarity(
        nodes="Person", edges="Knows", direction=direction, measure=measure, per_node=PEOPLE
    )
    sets = neighbours(direction)
    expected = {}
    for one, ours in sets.items():
        for other, theirs in sets.items():
            common = len(ours & theirs)
            if one != other and common:
                against = {
                    "jaccard": len(ours | theirs),
                    "cosine": (len(ours) * len(theirs)) ** 0.5,
                    "overlap": min(len(ours), len(theirs)),
                }[measure]
                expected[one, other] = common / against
    rows = found.to_pylist()
    assert {(row["id"], row["other"]): row["similarity"] for row in rows} == pytest.approx(expected)
    few = graph.compute.similarity(
        nodes="Person", edges="Knows", direction=direction, measure=measure, per_node=2,
        at_least=0.2,
    ).to_pylist()  # fmt: skip
    for node in sets:
        best = sorted((v for (one, _), v in expected.items() if one == node and v >= 0.2))[-2:]
        mine = [row["similarity"] for row in few if row["id"] == node]
        assert sorted(mine) == pytest.approx(best)


@pytest.mark.parametrize("name", EVERY)
def test_a_graph_without_edges_or_without_nodes_has_an_answer(name: str, tmp_path: Path) -> None:
    for people in (0, 1, 3):
        graph = linked(tmp_path / str(people), people, [])
        found = getattr(graph.compute, name)(nodes="Person", edges="Knows")
        assert len(found) == (0 if name == "similarity" else people)


def test_louvain_is_refused_on_spark_with_what_runs_there(graph: Graph) -> None:
    with pytest.raises(InputError, match="in one process and not on Spark") as refused:
        graph.compute.louvain(edges="Knows", engine="spark")
    assert "label_propagation" in str(refused.value.hint)


@pytest.mark.parametrize("name", ["strongly_connected", "louvain", "similarity"])
def test_a_library_that_is_missing_is_named_with_its_extra(
    graph: Graph, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("scipy.sparse", "networkit"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(InputError, match="is not installed") as refused:
        getattr(graph.compute, name)(edges="Knows")
    assert install_command("algorithms") in str(refused.value.hint)


def test_values_that_mean_nothing_are_refused(graph: Graph) -> None:
    for verb, options in (
        (graph.compute.louvain, {"resolution": 0.0}),
        (graph.compute.betweenness, {"samples": 0}),
        (graph.compute.closeness, {"samples": 0}),
        (graph.compute.similarity, {"per_node": 0}),
        (graph.compute.similarity, {"measure": "euclid"}),
        (graph.compute.similarity, {"into": "Person.score", "to_branch": "b"}),
    ):
        with pytest.raises(InputError):
            verb(edges="Knows", **options)


def test_communities_are_written_as_one_commit(graph: Graph) -> None:
    chosen: dict[str, Any] = {"nodes": "Person", "edges": "Knows"}
    made = graph.compute.louvain(**chosen, into="Person.group", to_branch="communities")
    stored = graph.query(
        "query q { match { $p: Person } return { $p.name, $p.group } }", branch="communities"
    ).to_pylist()
    assert {row["p.name"]: row["p.group"] for row in stored} == values(made, "community")
