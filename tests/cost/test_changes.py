"""What following a graph asks of storage: as much as was changed, however much there is."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from omnigraph.graph import Graph, init
from tests.cost.costs import SCHEMA, Cost, cost_of, insert
from tests.cost.test_history import publish_commits

UPDATE = "query older($name: String) { update Person set { age: 40 } where name = $name }"


def people(graph: Graph, count: int) -> None:
    lines = (json.dumps({"type": "Person", "data": {"name": f"p{n}"}}) for n in range(count))
    graph.load(data="\n".join(lines), mode="append")


def cursor(graph: Graph) -> str:
    found = graph.poll_changes().cursor
    assert found is not None
    return found


def poll_cost(graph: Graph, start: str) -> Cost:
    graph.poll_changes(cursor=start)  # the schema is known then
    return cost_of(graph, lambda: graph.poll_changes(cursor=start))


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    graph = init(tmp_path / "graph.omni", SCHEMA)
    people(graph, 50)
    return graph


def test_a_poll_without_news_is_one_probe(graph: Graph) -> None:
    start = cursor(graph)
    cost = cost_of(graph, lambda: graph.poll_changes(cursor=start))
    assert cost.shape == {"latest_version __manifest": 1}, cost.table()


def test_a_poll_opens_only_the_tables_that_changed(graph: Graph) -> None:
    start = cursor(graph)
    insert(graph, "new")
    cost = poll_cost(graph, start)
    assert len(cost.opened_tables()) == 1, cost.table()
    assert cost.requests == 5, cost.table()


def test_a_poll_opens_each_version_once(graph: Graph) -> None:
    start = cursor(graph)
    for n in range(6):
        insert(graph, f"new{n}")
    cost = poll_cost(graph, start)
    assert sum(cost.opened_tables().values()) == 7, cost.table()


def test_an_optimize_is_passed_by_without_reading_tables(graph: Graph) -> None:
    for n in range(3):
        insert(graph, f"new{n}")
    start = cursor(graph)
    assert graph.optimize().graph_commit_id is not None
    cost = poll_cost(graph, start)
    assert cost.shape == {"latest_version __manifest": 1}, cost.table()


def test_a_poll_of_a_small_commit_reads_nothing_of_the_rest(graph: Graph) -> None:
    """The rows that did not change could as well not be there."""
    start = cursor(graph)
    (folder,) = Path(graph.uri).glob("nodes/*/data")
    unchanged = set(folder.iterdir())
    assert unchanged
    insert(graph, "new")
    for file in unchanged:
        file.unlink()
    (block,) = graph.poll_changes(cursor=start).blocks
    assert [change.id for change in block.changes] == ["new"]


@pytest.mark.parametrize(
    "write", [insert, lambda graph, name: graph.mutate(UPDATE, {"name": "p1"})]
)
def test_a_poll_of_a_small_commit_costs_the_same_at_any_size(tmp_path: Path, write) -> None:
    costs = []
    for count in (40, 4_000):
        graph = init(tmp_path / f"{count}.omni", SCHEMA)
        people(graph, count)
        start = cursor(graph)
        write(graph, "new")
        costs.append(poll_cost(graph, start))
    few, many = costs
    assert few.shape == many.shape, few.table() + many.table()
    assert few.round_trips == many.round_trips


def test_a_poll_costs_the_same_at_50_and_at_300_commits(tmp_path: Path) -> None:
    graph = init(tmp_path / "graph.omni", SCHEMA)
    costs = []
    for count in (50, 300):
        publish_commits(graph, count)
        start = cursor(graph)
        insert(graph, f"new{count}")
        costs.append(poll_cost(graph, start))
    few, many = costs
    assert few.shape == many.shape, few.table() + many.table()


def test_a_page_inside_a_commit_does_not_look_for_its_changes_again(graph: Graph) -> None:
    start = cursor(graph)
    lines = (json.dumps({"type": "Person", "data": {"name": f"q{n}"}}) for n in range(20))
    graph.load(data="\n".join(lines), mode="append")
    page = graph.poll_changes(cursor=start, limit=5)
    cost = cost_of(graph, lambda: graph.poll_changes(page_token=page.next_page_token, limit=5))
    assert cost.shape == {"latest_version __manifest": 1, "take table": 1}, cost.table()


def test_a_baseline_opens_each_table_with_entities_once(graph: Graph) -> None:
    graph.load(data='{"type": "City", "data": {"name": "rome"}}', mode="append")
    cost = cost_of(graph, lambda: list(graph.change_baseline()))
    assert list(cost.opened_tables().values()) == [1, 1], cost.table()
