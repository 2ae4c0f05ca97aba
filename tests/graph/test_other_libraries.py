"""The nodes and edges of a commit as graphs of NetworkX and igraph."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import pytest

from omnigraph.errors import InputError
from omnigraph.graph import Graph, init

SCHEMA = """
interface Named { name: String }
node Person implements Named { name: String @key  age: I32? }
node City implements Named { zip: I32 @key  name: String }
edge Knows: Person -> Person { since: Date? }
edge LivesIn: Person -> City
edge Likes: Person -> Named
"""
ROWS = """
{"type": "Person", "data": {"name": "ada", "age": 36}}
{"type": "Person", "data": {"name": "bo"}}
{"type": "City", "data": {"zip": 7, "name": "Oslo"}}
{"edge": "Knows", "from": "ada", "to": "bo", "data": {"id": "k1", "since": "2024-05-01"}}
{"edge": "Knows", "from": "ada", "to": "bo", "data": {"id": "k2"}}
{"edge": "Knows", "from": "bo", "to": "bo", "data": {"id": "k3"}}
{"edge": "LivesIn", "from": "ada", "to": "7", "data": {"id": "l1"}}
{"edge": "Likes", "from": "ada", "to": "bo", "to_type": "Person", "data": {"id": "m1"}}
{"edge": "Likes", "from": "bo", "to": "7", "to_type": "City", "data": {"id": "m2"}}
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    made = init(tmp_path_factory.mktemp("libraries") / "g.omni", SCHEMA)
    made.load(data=ROWS, mode="append")
    return made


def test_networkx_knows_nodes_of_one_type_by_their_ids(graph: Graph) -> None:
    found = graph.to_networkx(edges="Knows")
    assert dict(found.nodes(data=True)).keys() == {"ada", "bo"}
    assert found.nodes["ada"] == {"type": "Person", "name": "ada", "age": 36}
    assert Counter(found.edges()) == {("ada", "bo"): 2, ("bo", "bo"): 1}
    assert str(found.edges["ada", "bo", "k1"]["since"]) == "2024-05-01"
    assert found.edges["ada", "bo", "k2"] == {"type": "Knows", "since": None}


def test_networkx_knows_nodes_of_several_types_by_type_and_id(graph: Graph) -> None:
    found = graph.to_networkx()
    ada, bo, oslo = ("Person", "ada"), ("Person", "bo"), ("City", "7")
    assert set(found.nodes) == {ada, bo, oslo}
    assert found.nodes[oslo]["zip"] == 7
    assert {(a, b, key) for a, b, key in found.edges(keys=True)} == {
        *((ada, bo, "k1"), (ada, bo, "k2"), (bo, bo, "k3")),
        *((ada, oslo, "l1"), (ada, bo, "m1"), (bo, oslo, "m2")),
    }


def test_igraph_has_the_same_nodes_edges_and_properties(graph: Graph) -> None:
    found = graph.to_igraph()
    assert found.is_directed()
    names = list(zip(found.vs["type"], found.vs["id"], strict=True))
    assert set(names) == {("Person", "ada"), ("Person", "bo"), ("City", "7")}
    assert dict(zip(names, found.vs["age"], strict=True))["Person", "ada"] == 36
    ends = {
        each["id"]: (found.vs[each.source]["id"], found.vs[each.target]["id"]) for each in found.es
    }
    assert ends == {
        "k1": ("ada", "bo"),
        "k2": ("ada", "bo"),
        "k3": ("bo", "bo"),
        "l1": ("ada", "7"),
        "m1": ("ada", "bo"),
        "m2": ("bo", "7"),
    }


def test_branches_and_commits_are_read_as_asked(graph: Graph, tmp_path: Path) -> None:
    before = graph.show_commit("HEAD").graph_commit_id
    graph.create_branch("other")
    graph.mutate('query q { insert Person { name: "cy" } }', branch="other")
    assert "cy" in graph.to_networkx(nodes="Person", branch="other").nodes
    assert "cy" not in graph.to_networkx(nodes="Person").nodes
    assert "cy" not in graph.to_networkx(nodes="Person", snapshot=before).nodes
    assert set(graph.to_networkx(nodes="City", edges=[]).nodes) == {"7"}
    empty = init(tmp_path / "empty.omni", SCHEMA)
    assert len(empty.to_networkx()) == 0 and empty.to_igraph().vcount() == 0


def test_names_that_do_not_fit_are_refused(graph: Graph) -> None:
    with pytest.raises(InputError, match="there is no edge type 'Knowss'") as unknown:
        graph.to_networkx(edges="Knowss")
    assert unknown.value.hint
    for verb in (graph.to_networkx, graph.to_igraph):
        with pytest.raises(InputError, match="edge LivesIn ends at City, which is not among"):
            verb(nodes="Person", edges="LivesIn")


def test_a_missing_library_is_named(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, verb in (("networkx", graph.to_networkx), ("igraph", graph.to_igraph)):
        monkeypatch.setitem(sys.modules, name, None)
        with pytest.raises(InputError, match=f"{name} is not installed"):
            verb()
