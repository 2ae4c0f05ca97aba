"""Values of rows: each comes from the variable it was asked of."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engines.local.bindings import flags_of
from omnigraph.engines.local.tables import Mode
from tests.engines.local.graphs import (
    city,
    knows,
    lives,
    load,
    new_graph,
    person,
    rows,
    with_engine,
)

STAR = 'match { $a: Person { name: "a" } $a knows $b }'


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    """One person who knows three others; nobody lives anywhere."""
    graph = new_graph(Path(tmp_path_factory.mktemp("values")))
    people = [person(name, age=at, bio=f"bio of {name}") for at, name in enumerate("abcd")]
    load(graph, *people, city("rome"), *(knows("a", name) for name in "bcd"))
    return graph


@pytest.fixture(params=["csr", "indexed"])
def handle(graph: og.Graph, request: pytest.FixtureRequest) -> og.Graph:
    mode: Mode = request.param
    return with_engine(graph, mode)[0]


def test_several_whole_entities_of_a_row_have_values_of_their_own(handle: og.Graph):
    found = rows(handle, f"{STAR} return {{ $a.*, $b.*, $a.* as again }}")
    assert len(found) == 3
    for first, second, again in found:
        assert first == again
        assert (first["id"], first["name"], first["age"]) == ("a", "a", 0)
        assert second["bio"] == f"bio of {second['name']}"
        assert second["id"] == second["name"] != "a"


def test_distinct_looks_at_every_whole_entity(handle: og.Graph):
    found = rows(handle, f"{STAR} return distinct {{ $a.*, $b.* }}")
    assert sorted(second["name"] for _, second in found) == ["b", "c", "d"]


def test_an_edge_of_an_optional_match_that_ended_before_it_is_null(handle: og.Graph):
    pattern = "match { $p: Person optional { $p livesIn $c  $q $k:livesIn $c } }"
    found = rows(handle, f"{pattern} return {{ $p.name, $q.name as q, $k.* as k }}")
    assert found == [(name, None, None) for name in "abcd"]
    # Its id breaks ties, and tells distinct rows apart.
    ordered = rows(handle, f"{pattern} return {{ $p.name as p }} order {{ p desc }}")
    assert ordered == [("d",), ("c",), ("b",), ("a",)]
    assert len(rows(handle, f"{pattern} return distinct {{ $k.* as k }}")) == 1


def test_an_edge_of_an_optional_match_has_values_where_it_was_found(tmp_path: Path):
    graph = new_graph(tmp_path)
    load(graph, person("a"), person("b"), city("rome"), lives("a", "rome"))
    load(graph, knows("a", "b", since=7))
    found = rows(
        graph,
        "match { $p: Person optional { $p livesIn $c  $p $k:knows $o } } "
        "return { $p.name, $k.since }",
    )
    assert found == [("a", 7), ("b", None)]


@pytest.mark.parametrize("mode", ["csr", "indexed", "auto"])
def test_a_node_added_after_the_edges_were_sorted_stands_for_no_other(tmp_path: Path, mode: Mode):
    graph = new_graph(tmp_path)
    load(graph, *(person(name, age=at) for at, name in enumerate("abc")))
    load(graph, knows("a", "b"), knows("b", "c"), knows("c", "a"))
    handle, _ = with_engine(graph, mode)
    everybody = "match { $p: Person $p knows $o } return { $p.name, $o.name as o }"
    assert len(rows(handle, everybody)) == 3
    load(graph, person("d", age=9))
    some = "match { $p: Person $p.age > 0 $p knows $o } return { $p.name, $o.name as o }"
    assert rows(handle, some) == [("b", "c"), ("c", "a")]
    two = "match { $p: Person $p.age != 1 $p knows{1,2} $o } return { $p.name, $o.name as o }"
    assert rows(handle, two) == [("a", "b"), ("a", "c"), ("c", "a"), ("c", "b")]


@pytest.mark.parametrize("start", [0, 1, 7, 8, 13])
def test_truth_values_of_many_rows_are_those_of_arrow(start: int):
    wanted = [number % 3 == 0 or number % 7 == 1 for number in range(10_000)]
    array = pa.array([None if number == 9_000 else each for number, each in enumerate(wanted)])
    for some in (array.slice(start), array.slice(start, 8_500)):
        assert flags_of(some).tolist() == [bool(each) for each in some.to_pylist()]
    assert flags_of(array.slice(start, 20)).tolist() == wanted[start : start + 20]
