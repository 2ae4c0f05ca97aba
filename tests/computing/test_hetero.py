"""Nodes and edges as arrays for graph learning."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from omnigraph.computing.hetero import HeteroArrays, hetero_arrays
from omnigraph.errors import InputError
from omnigraph.graph import Graph, init
from omnigraph.graph.tables import _Entities

SCHEMA = """
interface Named { name: String }
node Person implements Named {
  name: String @key  age: I32  circle: String  nick: String?  score: F64?  place: Vector(2)
}
node City implements Named { zip: I32 @key  name: String }
edge Knows: Person -> Person { weight: F64 }
edge LivesIn: Person -> City
edge Likes: Person -> Named
"""
ROWS = """
{"type": "Person", "data": {"name": "ada", "age": 36, "circle": "red", "place": [1.0, 2.0]}}
{"type": "Person", "data": {"name": "bo", "age": 7, "circle": "blue", "place": [3.0, 4.0]}}
{"type": "Person", "data": {"name": "cy", "age": 9, "circle": "red", "place": [5.0, 6.0]}}
{"type": "City", "data": {"zip": 7, "name": "Oslo"}}
{"edge": "Knows", "from": "ada", "to": "bo", "data": {"weight": 0.5}}
{"edge": "Knows", "from": "ada", "to": "bo", "data": {"weight": 1.5}}
{"edge": "Knows", "from": "cy", "to": "cy", "data": {"weight": 2.5}}
{"edge": "LivesIn", "from": "bo", "to": "7"}
{"edge": "Likes", "from": "ada", "to": "bo", "to_type": "Person"}
{"edge": "Likes", "from": "cy", "to": "7", "to_type": "City"}
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    made = init(tmp_path_factory.mktemp("hetero") / "g.omni", SCHEMA)
    made.load(data=ROWS, mode="append")
    return made


def arrays(
    graph: Graph,
    features: dict[str, list[str] | str] | None = None,
    labels: dict[str, str] | None = None,
) -> HeteroArrays:
    found = _Entities.of(graph, None, None, None, None)
    return hetero_arrays(found.nodes, found.edges, found.end_types, features or {}, labels or {})


def test_edges_have_the_numbers_of_their_ends_by_type(graph: Graph) -> None:
    found = arrays(graph, {"Knows": "weight"})
    ids = {name: nodes.ids for name, nodes in found.nodes.items()}
    pairs = {
        triple: sorted(
            (ids[triple[0]][begin], ids[triple[2]][end]) for begin, end in edges.index.T.tolist()
        )
        for triple, edges in found.edges.items()
    }
    assert pairs == {
        ("Person", "Knows", "Person"): [("ada", "bo"), ("ada", "bo"), ("cy", "cy")],
        ("Person", "LivesIn", "City"): [("bo", "7")],
        ("Person", "Likes", "Person"): [("ada", "bo")],
        ("Person", "Likes", "City"): [("cy", "7")],
    }
    assert all(edges.index.dtype == np.int64 for edges in found.edges.values())
    knows = found.edges["Person", "Knows", "Person"]
    assert knows.attr is not None and knows.attr.dtype == np.float32
    weights = {
        (ids["Person"][begin], weight)
        for begin, weight in zip(knows.index[0], knows.attr[:, 0].tolist(), strict=True)
    }
    assert weights == {("ada", 0.5), ("ada", 1.5), ("cy", 2.5)}


def test_features_and_labels_are_those_of_the_nodes_in_order(graph: Graph) -> None:
    found = arrays(graph, {"Person": ["place", "age"]}, {"Person": "circle", "City": "zip"})
    people = found.nodes["Person"]
    assert people.x is not None and people.y is not None and people.label_names is not None
    assert people.x.dtype == np.float32
    assert dict(zip(people.ids, people.x.tolist(), strict=True)) == {
        "ada": [1.0, 2.0, 36.0], "bo": [3.0, 4.0, 7.0], "cy": [5.0, 6.0, 9.0],
    }  # fmt: skip
    named = [people.label_names[code] for code in people.y.tolist()]
    assert dict(zip(people.ids, named, strict=True)) == {"ada": "red", "bo": "blue", "cy": "red"}
    assert found.nodes["City"].x is None
    assert found.nodes["City"].y is not None and found.nodes["City"].y.tolist() == [7]


def test_a_graph_without_rows_has_empty_arrays(tmp_path: Path) -> None:
    found = arrays(init(tmp_path / "empty.omni", SCHEMA), {"Person": ["age", "place"]})
    people = found.nodes["Person"]
    assert people.x is not None and people.x.shape == (0, 3)
    assert found.edges["Person", "Knows", "Person"].index.shape == (2, 0)


def test_what_has_no_number_for_each_node_is_refused(graph: Graph) -> None:
    for features, labels, message in (
        ({"Person": "nick"}, {}, "3 of 3 Person have no 'nick'"),
        ({"Person": "circle"}, {}, "a feature is a number or a vector"),
        ({"Person": "agee"}, {}, "Person has no property 'agee'"),
        ({"Persn": "age"}, {}, "`features` name Persn"),
        ({}, {"Knows": "weight"}, "`labels` name Knows"),
        ({}, {"Person": "place"}, "a label is a number or a text"),
    ):
        with pytest.raises(InputError, match=message):
            graph.to_pyg(features=features, labels=labels)


def test_without_torch_the_error_says_what_to_install(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match="torch is not installed") as refused:
        graph.to_pyg()
    assert refused.value.hint == "pip install torch torch_geometric"
