"""Algorithms in process, against NetworkX and plain Python."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any

import networkx as nx  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph
from omnigraph.computing import blocks, in_process
from omnigraph.computing.blocks import Keys
from omnigraph.computing.selection import ComputeDirection, node_keys
from omnigraph.errors import InputError
from omnigraph.graph import Graph
from omnigraph.model.computations import Computation
from tests.computing.graphs import directed, linked, random_edges, simple
from tests.support.budgets import FEW

PEOPLE = 60
EDGES = random_edges(5, PEOPLE, 240)
WEIGHTS = [float(1 + place % 7) for place in range(len(EDGES))]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return linked(tmp_path_factory.mktemp("computing"), PEOPLE, EDGES, WEIGHTS)


def values(found: Computation, column: str) -> dict[str, Any]:
    rows = found.to_arrow().to_pydict()
    return dict(zip(rows["id"], rows[column], strict=True))


def solved_pagerank(graph: nx.DiGraph) -> dict[str, float]:
    """The ranks as the solution of a system of linear equations."""
    nodes = list(graph)
    flows = nx.to_numpy_array(graph, nodes)
    leaving = flows.sum(axis=1, keepdims=True)
    even = np.full_like(flows, 1 / len(nodes))
    steps = np.where(leaving > 0, flows / np.where(leaving > 0, leaving, 1), even)
    ranks = np.linalg.solve(
        np.eye(len(nodes)) - 0.85 * steps.T, np.full(len(nodes), 0.15 / len(nodes))
    )
    return dict(zip(nodes, ranks.tolist(), strict=True))


@pytest.mark.parametrize("weight", [None, "weight"])
@pytest.mark.parametrize("direction", ["out", "in", "both"])
def test_c_pip_025_pagerank_equals_the_reference(
    graph: Graph, weight: str | None, direction: ComputeDirection
) -> None:
    found = graph.compute.pagerank(
        nodes="Person", edges="Knows", weight=weight, direction=direction, iterations=200,
        tolerance=1e-12,
    )  # fmt: skip
    edges, weights = EDGES, WEIGHTS
    if direction == "both":
        back = [place for place, (begin, end) in enumerate(EDGES) if begin != end]
        edges = [*EDGES, *(EDGES[place][::-1] for place in back)]
        weights = [*WEIGHTS, *(WEIGHTS[place] for place in back)]
    reference = directed(PEOPLE, edges, weights if weight else None)
    if direction == "in":
        reference = reference.reverse()
    expected = solved_pagerank(reference)
    assert values(found, "rank") == pytest.approx(expected, abs=1e-9)
    assert sum(values(found, "rank").values()) == pytest.approx(1.0)
    assert found.converged
    assert found.summary.nodes == PEOPLE
    assert found.summary.edges == len(edges)


@pytest.mark.parametrize("weight", [None, "weight"])
def test_ranks_are_the_same_with_and_without_scipy(
    graph: Graph, monkeypatch: pytest.MonkeyPatch, weight: str | None
) -> None:
    few = values(graph.compute.pagerank(edges="Knows", weight=weight), "rank")
    monkeypatch.setattr(blocks, "SPARSE_EDGES_MIN", 0)
    many = values(graph.compute.pagerank(edges="Knows", weight=weight), "rank")
    monkeypatch.setitem(sys.modules, "scipy.sparse", None)
    without = values(graph.compute.pagerank(edges="Knows", weight=weight), "rank")
    assert few == without == pytest.approx(many, abs=1e-12)


def test_pagerank_tells_that_it_did_not_converge(graph: Graph) -> None:
    found = graph.compute.pagerank(edges="Knows", iterations=2)
    assert (found.rounds, found.converged) == (2, False)
    assert "not converged" in repr(found)


def test_c_pip_025_components_equal_the_reference(graph: Graph, tmp_path: Path) -> None:
    scattered = random_edges(9, 80, 40)
    other = linked(tmp_path, 80, scattered)
    found = values(other.compute.connected_components(edges="Knows"), "component")
    expected = {
        frozenset(each) for each in nx.weakly_connected_components(directed(80, scattered, None))
    }
    by_name: dict[object, set[str]] = {}
    for node, name in found.items():
        by_name.setdefault(name, set()).add(node)
    assert {frozenset(each) for each in by_name.values()} == expected
    assert all(name in members for name, members in by_name.items())


def test_c_pip_025_triangles_cores_and_degrees_equal_the_reference(graph: Graph) -> None:
    reference = directed(PEOPLE, EDGES, None)
    plain = simple(reference)
    compute = graph.compute
    assert values(compute.triangles(edges="Knows"), "triangles") == nx.triangles(plain)
    assert values(compute.k_core(edges="Knows"), "core") == nx.core_number(plain)
    degrees = compute.degree(edges="Knows").to_arrow().to_pylist()
    into, out = Counter(e for _, e in EDGES), Counter(b for b, _ in EDGES)
    for row in degrees:
        number = int(row["id"][1:])
        assert (row["in_degree"], row["out_degree"]) == (into[number], out[number])
        assert row["degree"] == into[number] + out[number]


@pytest.mark.parametrize("weight", [None, "weight"])
def test_c_pip_025_distances_equal_the_reference(graph: Graph, weight: str | None) -> None:
    landmarks = ["p3", "p59"]
    found = graph.compute.shortest_paths(landmarks, edges="Knows", weight=weight)
    reference = directed(PEOPLE, EDGES, WEIGHTS)
    rows = found.to_arrow().to_pylist()
    for landmark in landmarks:
        expected = nx.single_source_dijkstra_path_length(
            reference, landmark, weight="shortest" if weight else None
        )
        if weight is None:
            expected = nx.single_source_shortest_path_length(reference, landmark)
        have = {row["id"]: row["distance"] for row in rows if row["landmark"] == landmark}
        assert have == dict(expected)
    assert isinstance(rows[0]["distance"], float if weight else int)


def propagated(people: int, edges: list[tuple[int, int]], rounds: int) -> dict[str, str]:
    """Label propagation in plain Python."""
    ids = [f"p{n}" for n in range(people)]
    keys = dict(zip(ids, node_keys("Person", pa.array(ids), 0).tolist(), strict=True))
    labels = {node: node for node in ids}
    for _ in range(rounds):
        votes: dict[str, Counter[str]] = {node: Counter() for node in ids}
        for begin, end in edges:
            if begin != end:
                votes[f"p{end}"][labels[f"p{begin}"]] += 1
                votes[f"p{begin}"][labels[f"p{end}"]] += 1
        labels = {
            node: min(votes[node], key=lambda label: (-votes[node][label], keys[label]))
            if votes[node]
            else labels[node]
            for node in ids
        }
    return labels


@FEW
@given(st.lists(st.tuples(st.integers(0, 11), st.integers(0, 11)), max_size=40), st.integers(1, 4))
def test_c_pip_025_communities_and_components_of_random_graphs(
    tmp_path_factory: pytest.TempPathFactory, edges: list[tuple[int, int]], rounds: int
) -> None:
    graph = linked(tmp_path_factory.mktemp("labels"), 12, edges)
    found = graph.compute.label_propagation(edges="Knows", iterations=rounds)
    assert values(found, "community") == propagated(12, edges, found.rounds)
    plain = simple(directed(12, edges, None))
    assert values(graph.compute.triangles(edges="Knows"), "triangles") == nx.triangles(plain)
    assert values(graph.compute.k_core(edges="Knows"), "core") == nx.core_number(plain)
    components = values(graph.compute.connected_components(edges="Knows"), "component")
    assert len(set(components.values())) == nx.number_connected_components(plain)


def test_nodes_with_equal_keys_get_others(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    before = values(graph.compute.connected_components(edges="Knows"), "component")

    def colliding(type_name: str, ids: pa.Array, attempt: int) -> Keys:
        keys = node_keys(type_name, ids, attempt)
        return keys if attempt else keys % np.uint64(7)

    monkeypatch.setattr(in_process, "node_keys", colliding)
    after = values(graph.compute.connected_components(edges="Knows"), "component")
    renamed = {(before[node], after[node]) for node in before}
    assert len(renamed) == len(set(before.values())) == len(set(after.values()))


# --- selection ------------------------------------------------------------------------------------


@pytest.fixture
def travellers(tmp_path: Path) -> Graph:
    graph = omnigraph.init(tmp_path / "graph.omni", _schema())
    graph.load(
        data="""
        {"type": "Person", "data": {"name": "ada"}}
        {"type": "Person", "data": {"name": "bob"}}
        {"type": "Place", "data": {"zip": 7, "street": "oak"}}
        {"edge": "Visits", "from": "ada", "to": "[\\"oak\\",\\"7\\"]"}
        {"edge": "Knows", "from": "ada", "to": "bob"}
        """,
        mode="append",
        grammar="compatible",
    )
    return graph


def _schema() -> str:
    from tests.computing.graphs import SCHEMA

    return SCHEMA


def test_without_types_the_whole_graph_is_covered_and_groups_name_the_type(
    travellers: Graph,
) -> None:
    found = travellers.compute.connected_components().to_arrow().to_pylist()
    assert {(row["type"], row["id"]) for row in found} == {
        ("Person", "ada"), ("Person", "bob"), ("Place", '["oak","7"]'),
    }  # fmt: skip
    assert len({row["component"] for row in found}) == 1
    assert found[0]["component"].split(":")[0] in {"Person", "Place"}


def test_edges_alone_bring_their_ends(travellers: Graph) -> None:
    found = travellers.compute.degree(edges="Knows").to_arrow().to_pylist()
    assert {row["type"] for row in found} == {"Person"}


def test_a_deleted_node_and_its_edges_are_gone(travellers: Graph) -> None:
    travellers.compute.degree(edges="Knows")  # slots of both are known from here on
    travellers.mutate('query q { delete Person where name = "bob" }')
    found = travellers.compute.degree(nodes="Person", edges="Knows").to_arrow().to_pylist()
    assert found == [{"type": "Person", "id": "ada", "in_degree": 0, "out_degree": 0, "degree": 0}]


@pytest.mark.parametrize("edges", [["Visits"], ["Knows", "Visits"], ["Knows", "Likes", "Visits"]])
def test_edges_of_several_types_meet_the_nodes_that_they_lead_to(
    travellers: Graph, edges: list[str]
) -> None:
    """Also where nodes are gone, and where the engine has sorted the edges of an earlier commit."""
    travellers.compute.pagerank()
    travellers.mutate('query q { delete Person where name = "bob" }')
    travellers.mutate('query q { insert Person { name: "eve" } }')
    travellers.mutate('query q { insert Knows { from: "eve", to: "ada" } }')
    travellers.mutate('query q { insert Likes { from: "eve", to: "ada" } }')
    found = travellers.compute.degree(nodes=["Person", "Place"], edges=edges).to_pylist()
    place = '["oak","7"]'
    ends = {"Knows": [("eve", "ada")], "Likes": [("eve", "ada")], "Visits": [("ada", place)]}
    expected = {
        node: [sum(node == pair[at] for name in edges for pair in ends[name]) for at in (1, 0)]
        for node in ("ada", "eve", place)
    }
    assert {row["id"]: [row["in_degree"], row["out_degree"]] for row in found} == expected


def test_an_older_commit_is_computed_as_it_was(travellers: Graph) -> None:
    before = travellers.snapshot().graph_commit_id
    travellers.mutate('query q { insert Person { name: "eve" } }')
    assert len(travellers.compute.degree(nodes="Person", snapshot=before)) == 2
    assert len(travellers.compute.degree(nodes="Person")) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"nodes": "Persn"}, "no node type 'Persn'"),
        ({"edges": "Know"}, "no edge type 'Know'"),
        ({"nodes": "Person", "edges": "Visits"}, "ends at Place"),
        ({"weight": "kind", "edges": "Knows"}, "a weight is a number"),
        ({"weight": "wait", "edges": "Knows"}, "no property 'wait'"),
        ({"weight": "weight", "edges": "Knows"}, "1 edges Knows have no weight"),
        ({"direction": "up"}, "no direction 'up'"),
        ({"engine": "sparc"}, "no engine `sparc`"),
        ({"damping": 1.5}, "damping is 1.5"),
        ({"iterations": 0}, "iterations is 0"),
        ({"into": "Person.rank", "to_branch": "ranks"}, "no property 'rank'"),
        ({"into": "Person.score"}, "need a branch"),
        ({"into": "score", "to_branch": "ranks"}, "is no property of a node type"),
        ({"to_branch": "ranks"}, "without `into`"),
    ],
)
def test_what_cannot_be_computed_is_refused_and_named(
    travellers: Graph, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        travellers.compute.pagerank(**options)  # type: ignore[arg-type]
    assert travellers.list_branches() == ["main"]


def test_landmarks_are_nodes(travellers: Graph) -> None:
    with pytest.raises(InputError, match="there is no Person 'eve' to begin at"):
        travellers.compute.shortest_paths("eve", edges="Knows")
    with pytest.raises(InputError, match="landmarks may be nodes of Person, Place"):
        travellers.compute.shortest_paths("ada")
    found = travellers.compute.shortest_paths({"Person": "ada"}).to_pylist()
    assert {(row["id"], row["distance"]) for row in found} == {
        ("ada", 0), ("bob", 1), ('["oak","7"]', 1),
    }  # fmt: skip


# --- writing --------------------------------------------------------------------------------------


def test_values_are_written_as_one_commit_on_a_branch(travellers: Graph) -> None:
    before = travellers.snapshot().graph_commit_id
    found = travellers.compute.pagerank(edges="Knows", into="Person.score", to_branch="ranks")
    assert found.receipt is not None
    assert found.receipt.branch_created
    assert travellers.snapshot().graph_commit_id == before
    rows = travellers.table("Person", branch="ranks").to_arrow().to_pylist()
    assert {row["name"]: row["score"] for row in rows} == values(found, "rank")
    again = travellers.compute.pagerank(edges="Knows", into="Person.score", to_branch="ranks")
    assert again.receipt is not None
    assert again.receipt.commit is None or again.receipt.nodes[0].unchanged == 2


def test_values_of_a_type_with_a_composite_key_are_written(travellers: Graph) -> None:
    found = travellers.compute.pagerank(edges="Visits", into="Place.score", to_branch="ranks")
    (row,) = travellers.table("Place", branch="ranks").to_arrow().to_pylist()
    assert row["score"] == pytest.approx(values(found, "rank")['["oak","7"]'])
    assert (row["zip"], row["street"]) == (7, "oak")
