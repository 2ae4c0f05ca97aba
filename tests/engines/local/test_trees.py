"""Aggregates over trees: what is counted without rows, within which limits, and how it is shown."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engines.local import trees
from omnigraph.engines.local.node_numbers import counted_from_far
from omnigraph.engines.local.prepare import prepare
from omnigraph.engines.local.rows import RowView
from omnigraph.errors import InputError, OmnigraphError
from omnigraph.model.governor import Governor
from omnigraph.query.compile import compile_query
from omnigraph.query.plan import ReadPlan
from omnigraph.schema.compile import compile_schema
from tests.engines.local.graphs import (
    SCHEMA,
    knows,
    load,
    new_graph,
    person,
    rows,
    with_engine,
)
from tests.engines.local.graphs import write as change

CATALOG = compile_schema(SCHEMA).catalog
PEOPLE = 40


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    """Everybody knows everybody, themselves included: n hops are 40 to the power of n + 1 paths."""
    graph = new_graph(tmp_path_factory.mktemp("trees"))
    names = [f"p{n:02}" for n in range(PEOPLE)]
    load(
        graph,
        *(person(name, age=n % 4 or None, bio=f"b{n % 3}") for n, name in enumerate(names)),
        *(knows(source, target) for source in names for target in names),
    )
    return graph


@pytest.fixture
def graph(stored: og.Graph) -> og.Graph:
    return with_engine(stored, "csr")[0]


def path(hops: int) -> str:
    """A match of so many hops after `$v0`."""
    return "  ".join(["$v0: Person", *(f"$v{n} knows $v{n + 1}" for n in range(hops))])


def core(text: str) -> tuple[str, ...] | None:
    """The variables of a query that need rows; None if all do."""
    compiled = compile_query(f"query q() {{ {text} }}", CATALOG)
    assert isinstance(compiled, ReadPlan)
    tree = prepare(compiled).tree
    return None if tree is None else tree.core


def strategies(graph: og.Graph, query: str) -> list[tuple[str, int]]:
    explained = graph.query(f"query q() {{ {query} }}", explain=True).explain
    assert explained is not None and explained.run is not None
    return [(step.strategy, step.rows) for step in explained.run.steps]


@pytest.mark.parametrize("hops", [2, 6, 10])
def test_numbers_of_paths_are_exact_far_beyond_what_has_rows(graph: og.Graph, hops: int):
    assert rows(graph, f"match {{ {path(hops)} }} return {{ count(*) as n }}") == [
        (PEOPLE ** (hops + 1),)
    ]


def test_sums_and_extremes_come_from_any_node_of_a_path_that_has_no_rows(graph: og.Graph):
    asked = "sum($v0.age) as s, count($v3.age) as n, min($v5.age) as l, max($v1.bio) as g"
    each = PEOPLE**5
    ages = [n % 4 for n in range(PEOPLE) if n % 4]
    assert rows(graph, f"match {{ {path(5)} }} return {{ {asked} }}") == [
        (float(sum(ages) * each), len(ages) * each, 1, "b2")
    ]


@pytest.mark.parametrize("end", ["$a", "$b"])
def test_values_of_edges_are_aggregated_at_either_end(tmp_path: Path, end: str):
    graph = new_graph(tmp_path)
    names = [f"p{n:02}" for n in range(70)]
    edges = [
        (source, target, (at * other) % 7 or None)
        for at, source in enumerate(names)
        for other, target in enumerate(names)
        if (at + other) % 9
    ]
    edges += edges[::50]  # parallel ones
    load(
        graph,
        *(person(name) for name in names),
        *(knows(source, target, since=since) for source, target, since in edges),
    )
    graph.mutate('query q() { delete Person where name = "p03" }')
    handle = with_engine(graph, "csr")[0]
    asked = "count(*) as n, count($e.since) as k, sum($e.since) as s, min($e.since) as l"
    text = f"match {{ $a $e:knows $b  $e.since != 5 }} return {{ {end}.name as i, {asked} }}"
    assert ("adjacency, counted", len([e for e in edges if _is_kept(e)])) in strategies(
        handle, text
    )
    wanted = []
    for name in names:
        found = [e[2] for e in edges if e[end == "$b"] == name and _is_kept(e) and e[2]]
        if found:
            wanted.append((name, len(found), len(found), float(sum(found)), min(found)))
    assert rows(handle, text) == wanted


def _is_kept(edge: tuple[str, str, int | None]) -> bool:
    return edge[2] not in (None, 5) and "p03" not in edge[:2]


def test_values_of_edges_follow_writes_without_reading_their_column_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(trees, "ROWS_WORTH_COUNTING", 0)
    graph = new_graph(tmp_path)
    names = [f"p{n}" for n in range(6)]
    pairs = [(source, target) for source in names for target in names]
    load(
        graph,
        *(person(name) for name in names),
        *(knows(*pair, since=at) for at, pair in enumerate(pairs)),
    )
    handle = with_engine(graph, "csr")[0]
    texts = [
        "match { $a $e:knows $b } return { $a.name as a, sum($e.since) as s, count(*) as n }",
        "match { $a $e:knows $b  $e.since > 3 } return { $b.name as b, max($e.since) as m }",
        (
            "match { $a $e:knows $b  $b $f:knows $c  $e.since > 3  $f.since != 9 }"
            " return { count(*) as n, min($f.since) as l, count($e.since) as k }"
        ),
        (
            'match { $a knows $b  $b $e:knows $c  $a.name > "p1"  $e.since > 3 }'
            " return { $c.name as c, sum($e.since) as s, count(*) as n }"
        ),
        "match { $a knows $b  $c knows $b } return { $a.name as a, count($c) as n }",
    ]
    for text in texts:
        rows(handle, text)
    read: list[int] = []
    values_at = RowView.values_at

    def noted(view: RowView, *arguments: Any) -> Any:
        read.append(len(arguments[2]))
        return values_at(view, *arguments)

    monkeypatch.setattr(RowView, "values_at", noted)
    for write in (
        'insert Person { name: "p6" }  insert Knows { from: "p6", to: "p1", since: 50 }',
        'insert Knows { from: "p3", to: "p1", since: 100 }',
        'insert Knows { from: "p3", to: "p1", since: 1000 }',
        'delete Knows where from = "p2"',
        'insert Knows { from: "p5", to: "p5" }',
        'update Knows set { since: 7 } where from = "p3"',
        'delete Person where name = "p4"',
    ):
        graph.mutate(f"query q() {{ {write} }}")
        anew = with_engine(graph, "csr")[0]
        for text in texts:
            assert rows(handle, text) == rows(anew, text)
    assert read
    assert max(read) < len(pairs)


def test_conditions_on_the_start_of_a_path_hold_where_it_is_counted_from_its_end(graph: og.Graph):
    text = 'match { $a knows $b  $b knows $c  not { $a.bio = "b0" } }'
    wanted = sum(n % 3 > 0 for n in range(PEOPLE)) * PEOPLE**2
    assert rows(graph, f"{text} return {{ count(*) as n }}") == [(wanted,)]
    by_name = rows(graph, f"{text} return {{ $c.name as c, count(*) as n }}")
    assert [row[1] for row in by_name] == [wanted // PEOPLE] * PEOPLE


def test_an_extreme_is_found_where_only_some_nodes_have_a_value(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(trees, "ROWS_WORTH_COUNTING", 0)
    text = 'match { $a knows $b  $b.name = "p00" }'
    asked = "$a.name as a, min($b.age) as l, max($b.bio) as g"
    assert rows(graph, f"{text} return {{ {asked} }}")[0] == ("p00", None, "b0")


def test_a_count_beyond_64_bits_is_refused(graph: og.Graph):
    with pytest.raises(OmnigraphError) as refused:
        text = f"query q() {{ match {{ {path(13)} }} return {{ count(*) as n }} }}"
        graph.query(text, governor=Governor(memory_bytes=16 << 20)).to_pylist()
    assert "rows" in str(refused.value) or "memory" in str(refused.value)


def test_a_sum_of_groups_beyond_64_bits_is_refused_by_name(graph: og.Graph):
    # The paths to each node fit, those to all of them do not.
    with pytest.raises(InputError, match="a count of this query is about"):
        rows(graph, f"match {{ {path(11)} }} return {{ count(*) as n }}")


def test_what_is_too_many_rows_is_counted_within_little_memory(graph: og.Graph):
    little = Governor(memory_bytes=1 << 20)
    text = f"query q() {{ match {{ {path(4)} }} return {{ $v4.bio as b, count(*) as n }} }}"
    found = graph.query(text, governor=little).to_pylist()
    assert sum(row["n"] for row in found) == PEOPLE**5


CORES = {
    "match { $a knows $b  $b knows $c } return { count(*) as n }": ("b",),
    "match { $a knows $b  $b knows $c  $c.age > 1 } return { count(*) as n }": ("b",),
    "match { $a knows $b  $b knows $c } return { $c.bio as b, count(*) as n }": ("c",),
    "match { $a knows $b  $b knows $c } return { $a.bio as b, sum($c.age) as n }": ("a",),
    "match { $a knows $b  $b knows $c } return { $a.bio as a, $b.bio as b, count(*) as n }": (
        "a",
        "b",
    ),
    "match { $a knows $b  $b knows $c  not { $c livesIn $_ } } return { count(*) as n }": ("b",),
    "match { $a knows $b  $b knows $c  $a.age < $b.age } return { count(*) as n }": ("a", "b"),
    "match { $a knows $b  $b knows $c  $a knows $c } return { count(*) as n }": None,
    "match { $a knows $b  $b knows $c  $a.age < $c.age } return { count(*) as n }": None,
    "match { $a knows $b } return { count(distinct $b) as n }": ("b",),
    "match { $a knows $b } return { $a.bio as b, count(distinct $b) as n }": None,
    "match { $a knows $b } return { collect($a.age) as n }": None,
    "match { $a knows{1,3} $b  $b knows $c } return { count(*) as n }": ("b",),
    'match { $a: Person { name: "x" }  $a knows $b  $b knows $c } return { count(*) as n }': ("a",),
    "match { $a $e:knows $b } return { $a.name as a, avg($e.since) as n }": ("a",),
    "match { $a $e:knows $b } return { $b.name as b, avg($e.since) as n }": ("b",),
    "match { $a $e:knows $b  $b knows $c } return { $c.name as c, max($e.since) as n }": ("c",),
    "match { $a $e:knows $b  $e.since > 3  $b knows $c } return { count(*) as n }": ("b",),
    "match { $a $e:knows $b } return { $e.since as s, count(*) as n }": None,
    "match { $a $e:<knows> $b } return { $a.name as a, avg($e.since) as n }": None,
    "match { $a knows $b  optional { $b livesIn $c } } return { count(*) as n }": None,
}


@pytest.mark.parametrize(("text", "wanted"), CORES.items())
def test_rows_are_made_of_what_groups_and_conditions_read_together(
    text: str, wanted: tuple[str, ...] | None
):
    assert core(text) == wanted


def test_explain_names_the_hops_that_were_counted(graph: og.Graph):
    found = strategies(graph, f"match {{ {path(2)} }} return {{ count(*) as n }}")
    assert found[:3] == [
        ("all nodes", PEOPLE),
        ("adjacency, counted", PEOPLE**3),
        ("adjacency, counted", PEOPLE**3),
    ]


def test_few_solutions_are_made_as_rows(graph: og.Graph, monkeypatch: pytest.MonkeyPatch):
    start = 'match { $a: Person { name: "p00" }  $a knows $b  $b knows $c } '
    text = f"{start} return {{ $b.bio as b, count(*) as n }}"
    by_rows: list[Any] = rows(graph, text)
    assert ("adjacency", PEOPLE) in strategies(graph, text)
    monkeypatch.setattr(trees, "ROWS_WORTH_COUNTING", 0)
    assert ("adjacency, counted", PEOPLE**2) in strategies(graph, text)
    assert rows(graph, text) == by_rows


def test_a_value_that_no_solution_has_does_not_end_a_query(tmp_path: Path):
    """Integers overflow at a person nobody knows, whom the rows of the query never meet."""
    graph = new_graph(tmp_path)
    names = [f"p{n:02}" for n in range(PEOPLE)]
    load(
        graph,
        *(person(name, age=n) for n, name in enumerate(names)),
        person("far", age=2**31 - 1),
        *(knows(source, target) for source in names for target in names),
    )
    handle = with_engine(graph, "csr")[0]
    condition = "$a.age >= 0  $c.age * 4294967296 * 2 >= 0"
    text = f"match {{ $a knows $b  $b knows $c  {condition} }} return {{ count(*) as n }}"
    assert rows(handle, text) == [(PEOPLE**3,)]


def test_neighbours_that_few_nodes_are_or_are_not_are_counted_from_these(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    graph = new_graph(tmp_path)
    names = [f"p{n:03}" for n in range(300)]
    pairs = {(n, (n * step + 1) % 300) for n in range(300) for step in (3, 7, 11, 13, 17, 19, 23)}
    load(
        graph,
        *(person(name, age=n) for n, name in enumerate(names)),
        *(knows(names[source], names[target]) for source, target in sorted(pairs)),
    )
    handle = with_engine(graph, "csr")[0]
    ways: list[bool] = []

    def noted(*args: Any) -> Any:
        found = counted_from_far(*args)
        ways.append(found is not None)
        return found

    monkeypatch.setattr(trees, "counted_from_far", noted)

    def asked(condition: str) -> int:
        text = f"match {{ $a knows $b  $b.age >= 20  $b knows $c  {condition} }}"
        (row,) = rows(handle, f"{text} return {{ count(*) as n }}")
        return int(row[0])

    def expected(ages: range) -> int:
        followed = [source for source, target in pairs if target in ages and source >= 20]
        degrees = Counter(target for _, target in pairs)
        return sum(degrees[source] for source in followed)

    asked("$c.age < 9")  # sorts the edges in both directions
    for _ in range(2):
        ways.clear()
        assert asked("$c.age < 9") == expected(range(9))
        assert asked("$c.age >= 9") == expected(range(9, 300))
        assert asked("$c.age >= 150") == expected(range(150, 300))
        assert ways == [True, True, False]
        if (100, 4) not in pairs:  # again after writes
            load(graph, knows("p100", "p004"))
            change(graph, 'delete Person where name = "p030"')
        pairs = {(s, t) for s, t in pairs if 30 not in (s, t)} | {(100, 4)}
