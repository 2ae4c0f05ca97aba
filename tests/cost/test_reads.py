"""What a read costs: one look at the manifest, then only the data it asks for."""

from __future__ import annotations

from omnigraph.graph import Graph, open_graph
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
