"""What a write costs: the schema read once, each table opened once, and few waits on S3."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from omnigraph.graph import Graph
from tests.cost.costs import Cost, cost_of, insert

SCHEMA_READS_MAX = 3
SCHEMA_PROBES_MAX = 2
WARM_INSERT_REQUESTS_MAX = 21
"""One of them fetches the new file for its digest, beside the commit."""
WARM_INSERT_TRIPS_MAX = 6
"""On an object store."""

WRITES: dict[str, Callable[[Graph], object]] = {
    "insert": lambda graph: insert(graph, "new"),
    "insert of two types": lambda graph: graph.mutate(
        'query q { insert Person { name: "eve" } insert City { name: "Rome" } }'
    ),
    "insert of an edge": lambda graph: graph.mutate(
        'query q { insert Knows { from: "ana", to: "ben" } }'
    ),
    "update": lambda graph: graph.mutate(
        'query q { update Person set { age: 7 } where name = "ana" }'
    ),
    "delete": lambda graph: graph.mutate('query q { delete Person where name = "ben" }'),
    "delete of nothing": lambda graph: graph.mutate('query q { delete City where name = "x" }'),
    "load": lambda graph: graph.load(
        mode="merge", data='{"type": "Person", "data": {"name": "cleo"}}'
    ),
    "overwrite": lambda graph: graph.load(
        mode="overwrite", data='{"type": "City", "data": {"name": "Bonn"}}'
    ),
}


@pytest.fixture(params=WRITES)
def write(request: pytest.FixtureRequest) -> Callable[[Graph], object]:
    return WRITES[request.param]


def assert_schema_was_read_once(cost: Cost) -> None:
    assert cost.of_schema("read") <= SCHEMA_READS_MAX, cost.table()
    assert cost.of_schema("exists") <= SCHEMA_PROBES_MAX, cost.table()


def test_c_wrt_015_a_write_reads_the_schema_contract_once(
    graph: Graph, write: Callable[[Graph], object]
):
    assert_schema_was_read_once(cost_of(graph, lambda: write(graph)))


def test_c_wrt_015_a_write_on_a_branch_reads_it_once_too(graph: Graph):
    graph.create_branch("side")
    for name in ("first", "second"):
        assert_schema_was_read_once(cost_of(graph, partial(insert, graph, name, "side")))


def test_c_wrt_016_a_keyed_insert_opens_its_table_exactly_once(graph: Graph):
    cost = cost_of(graph, lambda: insert(graph, "new"))
    assert sorted(cost.opened_tables().values()) == [1], cost.table()


def test_c_wrt_016_every_write_opens_each_table_at_most_once(
    graph: Graph, write: Callable[[Graph], object]
):
    cost = cost_of(graph, lambda: write(graph))
    assert max(cost.opened_tables().values(), default=0) <= 1, cost.table()


def test_a_warm_insert_makes_no_request_twice_without_need(graph: Graph):
    cost = cost_of(graph, lambda: insert(graph, "new"))
    assert cost.requests <= WARM_INSERT_REQUESTS_MAX, cost.table()


def test_the_next_insert_costs_as_much(graph: Graph):
    first, second = (cost_of(graph, partial(insert, graph, name)) for name in ("one", "two"))
    assert first.shape == second.shape, first.table() + second.table()


def test_an_insert_on_a_branch_that_owns_the_table_costs_one_probe_of_the_registry_more(
    graph: Graph,
):
    graph.create_branch("side")
    insert(graph, "first", "side")
    insert(graph, "first")
    on_main = cost_of(graph, lambda: insert(graph, "new"))
    on_side = cost_of(graph, lambda: insert(graph, "new", "side"))
    probes_of_the_registry = 2
    assert on_side.requests == on_main.requests + probes_of_the_registry, on_side.table()


def test_on_s3_a_warm_insert_needs_few_serial_round_trips(s3_graph: Graph):
    cost = cost_of(s3_graph, lambda: insert(s3_graph, "new"))
    assert cost.requests <= WARM_INSERT_REQUESTS_MAX, cost.table()
    assert cost.round_trips <= WARM_INSERT_TRIPS_MAX, cost.table()
    assert_schema_was_read_once(cost)


def test_on_s3_a_warm_insert_on_a_branch_waits_no_longer_than_one_on_main(s3_graph: Graph):
    s3_graph.create_branch("side")
    insert(s3_graph, "first", "side")
    cost = cost_of(s3_graph, lambda: insert(s3_graph, "new", "side"))
    assert cost.round_trips <= WARM_INSERT_TRIPS_MAX, cost.table()


def test_on_s3_tables_are_staged_side_by_side(s3_graph: Graph):
    one = cost_of(s3_graph, lambda: insert(s3_graph, "eve"))
    two = cost_of(s3_graph, lambda: WRITES["insert of two types"](s3_graph))
    # Opening, staging and the look at its head are shared; its commit and the proof are not.
    assert two.round_trips <= one.round_trips + 2, two.table()
