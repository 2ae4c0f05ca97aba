"""What a read costs: one look at the manifest, then only the data it asks for."""

from __future__ import annotations

import pytest

from omnigraph.engines.local import tables
from omnigraph.graph import Graph, open_graph
from omnigraph.storage import saved_adjacency
from omnigraph.storage.layout import ADJACENCY
from tests.cost.costs import Cost, cost_of, insert


def besides_data(cost: Cost) -> int:
    """Requests that are not about a data table."""
    return sum(n for kind, n in cost.shape.items() if not kind.endswith(("table", "table ref")))


def test_a_warm_snapshot_of_an_unmoved_branch_is_one_request(graph: Graph):
    graph.snapshot()
    cost = cost_of(graph, graph.snapshot)
    assert cost.requests == 1, cost.table()


def test_a_warm_read_of_an_unmoved_branch_is_one_request_besides_the_data(graph: Graph):
    graph.entity_at("node:Person", "ana")
    for read in (
        lambda: graph.entity_at("node:Person", "ben"),
        lambda: list(graph.export(types=["Person"])),
    ):
        cost = cost_of(graph, read)
        assert besides_data(cost) == 1, cost.table()


def test_a_warm_read_of_a_branch_looks_at_the_registry_and_at_the_branch_at_once(s3_graph: Graph):
    s3_graph.create_branch("side")
    s3_graph.snapshot("side")
    cost = cost_of(s3_graph, lambda: s3_graph.snapshot("side"))
    assert (cost.requests, cost.round_trips) == (2, 1), cost.table()


def test_a_read_after_a_foreign_write_reads_only_what_changed(graph: Graph):
    graph.snapshot()
    insert(open_graph(graph.uri), "from elsewhere")
    cost = cost_of(graph, graph.snapshot)
    assert cost.shape == {
        "latest_version __manifest": 1,
        "open __manifest": 1,
        "scan __manifest": 1,
    }


def test_a_moved_branch_is_noticed(graph: Graph):
    before = graph.snapshot()
    insert(open_graph(graph.uri), "from elsewhere")
    assert graph.snapshot().graph_commit_id != before.graph_commit_id


def test_a_whole_commit_id_costs_no_more_than_the_head_and_a_name_one_look_more(graph: Graph):
    for name in ("one", "two"):
        insert(graph, name)
    commit_id = graph.list_commits()[1].graph_commit_id
    graph.create_tag("v1", commit_id)

    def read(snapshot: str | None) -> Cost:
        return cost_of(graph, lambda: graph.table("Person", snapshot=snapshot))

    read(None)
    head, exact = read(None), read(commit_id)
    assert exact.requests == head.requests == 1, exact.table()
    assert read(commit_id.lower()).requests == 1
    assert cost_of(graph, lambda: graph.show_commit(commit_id)).requests == 1
    for named in ("main~1", "v1", "HEAD~1"):
        assert read(named).shape == {"latest_version __manifest": 2}, named


def test_saved_adjacency_costs_a_look_and_what_is_read_of_it(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(saved_adjacency, "EDGES_MIN", 1)
    monkeypatch.setattr(tables, "EDGES_ALWAYS_SORTED", 0)
    for name in ("one", "two"):
        insert(graph, name)
    graph.mutate('query q() { insert Knows { from: "one", to: "two", since: date("2020-01-01") } }')
    count = "query q() { match { $a knows $b  $b knows $c } return { count(*) as n } }"
    latest = "query q() { match { $a $e:knows $b } return { $a.name, max($e.since) as s } }"

    def of_adjacency(text: str) -> list[str]:
        fresh = open_graph(graph.uri)
        events = cost_of(fresh, lambda: fresh.query(text)).events
        return [event.target for event in events if event.target.startswith(ADJACENCY)]

    assert len(of_adjacency(latest)) == 1  # nothing is saved
    saving = cost_of(graph, graph.optimize)
    again = cost_of(graph, graph.optimize)
    # The state, then where the edges of each node begin, where they lead to, and their order.
    assert len(of_adjacency(latest)) == 1 + 3
    assert len(of_adjacency(count)) in (1 + 2, 2 * (1 + 2))  # in one direction, or both
    written = [event for event in saving.events if event.target.startswith(ADJACENCY)]
    assert sum(event.verb.startswith("write") for event in written) == 10, saving.table()
    assert not any(
        event.verb.startswith("write") and event.target.startswith(ADJACENCY)
        for event in again.events
    ), again.table()
