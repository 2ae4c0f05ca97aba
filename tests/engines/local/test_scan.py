"""Conditions on nodes: tested on whole columns, on rows that were found, or while storage reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engines.local import scan
from omnigraph.errors import InputError
from tests.engines.local.graphs import knows, load, new_graph, person, rows, with_engine, write

HUGE = 2**31 - 1
PRODUCT = "* 1000000 * 1000000 * 1000000 > 0"
"""Beyond 64 bits for numbers above nine."""

LIMITS = pytest.mark.parametrize("memory_limit", [None, 1], ids=["cached", "fetched"])


@LIMITS
def test_a_deleted_row_cannot_make_a_query_fail(tmp_path: Path, memory_limit: int | None):
    graph = new_graph(tmp_path)
    load(graph, person("a", age=1), person("b", age=HUGE), person("c", age=HUGE))
    write(graph, 'update Person set { age: 2 } where name = "b"')
    write(graph, 'delete Person where name = "c"')
    handle, _ = with_engine(graph, memory_limit=memory_limit)
    text = f"match {{ $p: Person $p.age {PRODUCT} }} return {{ $p.name }}"
    assert rows(handle, text) == [("a",), ("b",)]
    load(graph, person("d", age=HUGE))
    with pytest.raises(InputError, match="integer overflow"):
        rows(handle, text)


@LIMITS
def test_a_node_that_was_not_reached_cannot_make_a_query_fail(
    tmp_path: Path, memory_limit: int | None
):
    graph = new_graph(tmp_path)
    load(graph, person("a", age=1), person("b", age=2), person("far away", age=HUGE))
    load(graph, knows("a", "b"), knows("a", "a"))
    handle, _ = with_engine(graph, "csr", memory_limit)
    start = '$p: Person { name: "a" }'
    text = f"match {{ {start} $p knows $o $o.age {PRODUCT} }} return {{ $o.name }}"
    assert rows(handle, text) == [("a",), ("b",)]


# --- the index of values --------------------------------------------------------------------------

ANCHORED: list[tuple[str, dict[str, Any]]] = [
    ("$x: I32) { match { $p: Person { age: $x } }", {"x": 3}),
    ("$x: I32?) { match { $p: Person $p.age = $x }", {"x": None}),
    ("$x: F64) { match { $p: Person $p.age = $x }", {"x": 3.0}),
    ("$x: F64) { match { $p: Person $p.age = $x }", {"x": 3.5}),
    ("$x: I64) { match { $p: Person $x = $p.age }", {"x": 2**40}),
    ("$x: [I32]) { match { $p: Person $p.age in $x }", {"x": [1, 4, 4]}),
    ("$x: [I32]) { match { $p: Person $p.age in $x }", {"x": []}),
    ("$x: [I32]?) { match { $p: Person $p.age in $x }", {"x": None}),
    ("$x: String) { match { $p: Person { bio: $x } }", {"x": "even"}),
    ("$x: String) { match { $p: Person { bio: $x } }", {"x": "nobody's"}),
    ("$x: [String]) { match { $p: Person $p.bio in $x }", {"x": ["odd", "", "?"]}),
    ("$x: String) { match { $p: Person { bio: $x, age: 2 } $p.name != $x }", {"x": "even"}),
    ("$x: String) { match { $p: Person { name: $x } }", {"x": "p04"}),
    ("$x: String) { match { $p: Person { tags: $x } }", {"x": "t1"}),
]


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    """Some have no age, some are gone, some were changed."""
    graph = new_graph(Path(tmp_path_factory.mktemp("anchors")))
    bios = ["even", "odd", ""]
    everybody = [
        person(f"p{at:02}", age=at % 6 or None, bio=bios[at % 3], tags=[f"t{at % 2}"])
        for at in range(30)
    ]
    load(graph, *everybody)
    write(graph, 'delete Person where name = "p03"')
    write(graph, 'update Person set { age: 3, bio: "odd" } where name = "p04"')
    load(graph, person("late", age=3, bio="even"))
    return graph


@pytest.mark.parametrize(("head", "params"), ANCHORED)
def test_an_index_of_values_finds_what_comparing_every_row_does(
    people: og.Graph, head: str, params: dict[str, Any], monkeypatch: pytest.MonkeyPatch
):
    text = f"query q({head} return {{ $p.name as n }} order {{ n }} }}"
    wanted = with_engine(people)[0].query(text, params).to_pylist()
    monkeypatch.setattr(scan, "ROWS_WORTH_AN_INDEX", 1)
    for memory_limit in (None, 1):
        handle, _ = with_engine(people, memory_limit=memory_limit)
        for _ in range(3):  # asked the first time, no index is made
            assert handle.query(text, params).to_pylist() == wanted


def test_an_index_is_made_when_a_column_is_asked_for_the_second_time(
    people: og.Graph, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(scan, "ROWS_WORTH_AN_INDEX", 1)
    handle, _ = with_engine(people)
    text = 'query q() { match { $p: Person { bio: "odd" } } return { $p.name } }'
    strategies = []
    for _ in range(3):
        explained = handle.query(text, explain=True).explain
        assert explained is not None
        assert explained.run is not None
        strategies.append(explained.run.steps[0].strategy)
    assert strategies == ["column scan", "value index", "value index"]
