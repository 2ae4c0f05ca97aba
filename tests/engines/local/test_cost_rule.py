"""When edges and nodes are looked up, and when they are read: the rule, with small numbers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.engines.local import tables
from omnigraph.engines.local.engine import LocalEngine
from omnigraph.engines.local.tables import Mode, TraversalSettings
from tests.engines.local.graphs import knows, load, new_graph, person, with_engine, write

PEOPLE, DEGREE = 20, 5
EDGES = PEOPLE * DEGREE
ONE_HOP = 'match { $p: Person { name: "p00" } $p knows $o } return { $o.name }'
TWO_HOPS = 'match { $p: Person { name: "p00" } $p knows{1,2} $o } return { $o.name }'
EVERYBODY = "match { $p: Person $p knows $o } return { $p.name, $o.name as o }"


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    """Twenty people who know five others each."""
    graph = new_graph(Path(tmp_path_factory.mktemp("costs")))
    names = [f"p{at:02}" for at in range(PEOPLE)]
    edges = [
        knows(name, names[(at + step) % PEOPLE])
        for at, name in enumerate(names)
        for step in range(1, DEGREE + 1)
    ]
    load(graph, *map(person, names), *edges)
    graph.ensure_indices()
    return graph


@pytest.fixture(autouse=True)
def small_numbers() -> Iterator[None]:
    """A lookup costs as much as reading 10 rows, each row found 2; nothing is small."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tables, "EDGES_ALWAYS_SORTED", 0)
        patch.setattr(tables, "NODES_ALWAYS_CACHED", 0)
        patch.setattr(tables, "ROWS_READ_PER_LOOKUP", 10)
        patch.setattr(tables, "ROWS_READ_PER_ROW_FOUND", 2)
        patch.setattr(tables, "WARMING_SHARE", 0)  # nothing is read ahead
        patch.setattr(tables, "SORTING_SHARE", 40)
        yield


def strategies(graph: og.Graph, text: str) -> list[str]:
    """How each step of the match was run."""
    result = graph.query(f"query q() {{ {text} }}", explain=True)
    assert result.explain is not None
    assert result.explain.run is not None
    return [step.strategy for step in result.explain.run.steps]


def hop(graph: og.Graph, text: str = ONE_HOP) -> str:
    """How the hop of a query was served."""
    return next(
        strategy
        for strategy in strategies(graph, text)
        if strategy.startswith(("adjacency", "indexed lookups"))
    )


def test_few_edges_are_sorted_without_a_thought(graph: og.Graph, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "EDGES_ALWAYS_SORTED", EDGES)
    assert hop(with_engine(graph)[0]) == "adjacency"
    monkeypatch.setattr(tables, "EDGES_ALWAYS_SORTED", EDGES - 1)
    assert hop(with_engine(graph)[0]) == "indexed lookups"


def test_lookups_serve_until_they_have_cost_as_much_as_reading(graph: og.Graph):
    # One hop from one node: 10 for the request and 2 for each of 5 edges. Reading costs 100.
    handle, engine = with_engine(graph)
    served = [hop(handle) for _ in range(8)]
    assert served == ["indexed lookups"] * 5 + ["adjacency"] * 3
    edges = handle._opened.snapshot().table("edge:Knows").location
    assert engine.memory.spent(edges) == 0  # it was read: the account is settled


def test_a_lookup_without_an_index_costs_as_much_as_reading(tmp_path: Path):
    plain = new_graph(tmp_path)
    names = [f"p{at:02}" for at in range(PEOPLE)]
    load(plain, *map(person, names), *(knows(name, "p01") for name in names))
    assert hop(with_engine(plain)[0]) == "adjacency"
    plain.ensure_indices()
    assert hop(with_engine(plain)[0]) == "indexed lookups"


def test_longer_hops_cost_more(graph: og.Graph):
    # Two requests, 5 + 25 edges: 80 of 100; a second time would be too much.
    handle, _ = with_engine(graph)
    assert [hop(handle, TWO_HOPS) for _ in range(2)] == ["indexed lookups", "adjacency"]


def test_many_starts_cost_more_than_reading(graph: og.Graph):
    assert hop(with_engine(graph)[0], EVERYBODY) == "adjacency"


def test_what_is_sorted_is_used_whatever_it_costs(graph: og.Graph, monkeypatch: pytest.MonkeyPatch):
    handle, _ = with_engine(graph)
    assert hop(handle, EVERYBODY) == "adjacency"
    monkeypatch.setattr(tables, "ROWS_READ_PER_LOOKUP", 0)
    monkeypatch.setattr(tables, "ROWS_READ_PER_ROW_FOUND", 0)
    assert hop(handle) == "adjacency"
    # The other direction is not sorted yet.
    assert hop(handle, 'match { $p: Person { name: "p00" } $o knows $p } return { $o.name }') == (
        "indexed lookups"
    )


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        (TraversalSettings(indexed_frontier_max=1), EVERYBODY),
        (TraversalSettings(indexed_hops_max=1), TWO_HOPS),
    ],
    ids=["starts", "hops"],
)
def test_bounds_of_the_automatic_choice(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, settings: TraversalSettings, text: str
):
    monkeypatch.setattr(tables, "ROWS_READ_PER_LOOKUP", 0)
    monkeypatch.setattr(tables, "ROWS_READ_PER_ROW_FOUND", 0)
    unbounded, _ = with_engine(graph)
    assert hop(unbounded, text) == "indexed lookups"
    bounded = og.Graph(graph._kernel)
    bounded._opened.engines["local"] = LocalEngine(settings)
    assert hop(bounded, text) == "adjacency"


def test_edges_beyond_the_budget_are_looked_up(graph: og.Graph):
    handle, _ = with_engine(graph, memory_limit=EDGES * 16 - 1)
    assert hop(handle, EVERYBODY) == "indexed lookups"


@pytest.mark.parametrize(
    ("mode", "strategy"), [("csr", "adjacency"), ("indexed", "indexed lookups")]
)
def test_c_qry_078_a_forced_mode_holds_whatever_it_costs(
    graph: og.Graph, mode: Mode, strategy: str
):
    handle, _ = with_engine(graph, mode)
    for text in (ONE_HOP, TWO_HOPS, EVERYBODY):
        assert hop(handle, text) == strategy


def test_the_mode_comes_from_the_environment(graph: og.Graph, monkeypatch: pytest.MonkeyPatch):
    for mode, strategy in (("csr", "adjacency"), ("indexed", "indexed lookups")):
        monkeypatch.setenv("OMNIGRAPH_TRAVERSAL_MODE", mode)
        assert hop(og.Graph(graph._kernel)) == strategy


def test_a_new_version_of_sorted_edges_is_sorted_rather_than_looked_up(tmp_path: Path):
    graph = new_graph(tmp_path)
    names = [f"p{at:02}" for at in range(PEOPLE)]
    load(graph, *map(person, names), *(knows(name, names[0]) for name in names * DEGREE))
    handle, _ = with_engine(graph)
    assert hop(handle, EVERYBODY) == "adjacency"
    write(graph, 'delete Knows where from = "p03"')
    assert hop(handle) == "adjacency"


def test_lookups_that_have_cost_a_part_of_reading_start_it_beside_the_queries(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(tables, "WARMING_SHARE", 3)
    handle, engine = with_engine(graph)
    assert hop(handle) == "indexed lookups"  # 20 of 100
    engine.memory.warming.finish()
    assert hop(handle) == "indexed lookups"  # 40 of 100: more than a third
    engine.memory.warming.finish()
    assert hop(handle) == "adjacency"


# --- nodes ----------------------------------------------------------------------------------------

POINT = 'match { $p: Person { name: "p07" } } return { $p.age }'


def nodes_are_cached(engine: LocalEngine) -> bool:
    return any(
        any(isinstance(name, tuple) for name in layout.columns)
        for table in engine.memory._tables.values()
        for layout in table._layouts.values()
    )


def test_nodes_are_looked_up_until_that_has_cost_as_much_as_reading(graph: og.Graph):
    # A request and a row are 12; reading costs 20.
    handle, engine = with_engine(graph)
    cached = []
    for _ in range(4):
        strategies(handle, POINT)
        cached.append(nodes_are_cached(engine))
    assert cached == [False, False, True, True]


def test_few_nodes_are_read_at_once(graph: og.Graph, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(tables, "NODES_ALWAYS_CACHED", PEOPLE)
    handle, engine = with_engine(graph)
    strategies(handle, POINT)
    assert nodes_are_cached(engine)


def test_a_query_about_all_nodes_reads_them(graph: og.Graph):
    handle, engine = with_engine(graph)
    assert strategies(handle, "match { $p: Person } return { $p.age }")[0] == "all nodes"
    assert nodes_are_cached(engine)


def test_nodes_beyond_the_budget_are_never_kept(graph: og.Graph):
    handle, engine = with_engine(graph, memory_limit=PEOPLE * 64 - 1)
    for _ in range(4):
        strategies(handle, POINT)
    found = strategies(handle, "match { $p: Person } return { $p.age }")
    assert found[0] == "storage scan"
    assert not nodes_are_cached(engine)
