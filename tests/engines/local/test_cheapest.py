"""Cheapest paths, against every path there is and against NetworkX."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import networkx  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engines.local.adjacency import Adjacency
from omnigraph.engines.local.cheapest import StoredWeights, WeightedEdges, cheapest_paths
from omnigraph.engines.local.edge_order import EdgeOrder
from omnigraph.engines.local.edges import merged_ends
from omnigraph.engines.local.ids import IdSpace, Slots
from omnigraph.engines.local.sorting import Counts
from omnigraph.errors import InputError
from omnigraph.model.types import Scalar, ValueType
from omnigraph.query.expressions import PropertyValue
from tests.engines.local.examples import EXAMPLES
from tests.engines.local.multigraphs import (
    DIRECTIONS,
    Direction,
    Multigraph,
    multigraphs,
    slots_of,
)

WEIGHT = PropertyValue("e", "edge", "Road", "minutes", ValueType(Scalar.F64, nullable=True))
IDS = list("tpsrq")
weights = st.lists(st.none() | st.sampled_from([0.0, 0.5, 1.0, 2.0, 8.0]), min_size=9, max_size=9)


@dataclass
class Roads:
    """The edges of a multigraph as a table."""

    graph: Multigraph
    weights: list[float | None]
    asked: list[int] = field(default_factory=list)

    def at(self, direction: Direction, slots: Slots) -> tuple[Slots, Slots, Counts]:
        self.asked += slots.tolist()
        if direction == "both":
            return merged_ends(slots, self.at("out", slots), self.at("in", slots))
        ends = self.graph.sources, self.graph.targets
        near, far = ends if direction == "out" else ends[::-1]
        adjacency = Adjacency.build(near, far, self.graph.nodes)
        every = np.arange(len(near), dtype=np.int32)
        found, counts = adjacency.gather(slots)
        return EdgeOrder.build(adjacency, (near, far), every).at(slots), found, counts

    def neighbours(self, direction: Direction) -> Any:
        return None

    def values(self, property: str, type: pa.DataType, edges: Slots) -> pa.Array:
        if property == "id":
            return pa.array([f"road {edge}" for edge in edges.tolist()])
        return pa.array([self.weights[edge] for edge in edges.tolist()], type)


def space() -> IdSpace:
    made = IdSpace()
    made.intern(pa.array(IDS, pa.string()))
    return made


def weighted(graph: Multigraph, numbers: list[float | None], direction: Direction) -> WeightedEdges:
    roads: Any = Roads(graph, numbers)
    return WeightedEdges(roads, direction, StoredWeights(roads, WEIGHT), lambda slots: None)


def simple_paths(steps: dict[int, dict[int, float]], path: list[int]) -> Iterator[list[int]]:
    """Every path that goes on from another one without a node twice."""
    yield path
    for there in steps.get(path[-1], {}):
        if there not in path:
            yield from simple_paths(steps, [*path, there])


def steps_of(
    graph: Multigraph, numbers: list[float | None], direction: Direction
) -> dict[int, dict[int, float]]:
    """The cheapest edge from each node to each other."""
    found: dict[int, dict[int, float]] = {}
    for (source, target), weight in zip(graph.edges, numbers, strict=False):
        for here, there in {"out": [(source, target)], "in": [(target, source)]}.get(
            direction, [(source, target), (target, source)]
        ):
            if weight is not None:
                known = found.setdefault(here, {}).get(there, weight)
                found[here][there] = min(known, weight)
    return found


@EXAMPLES
@given(
    multigraphs(nodes_max=5, edges_max=9),
    weights,
    st.sampled_from(DIRECTIONS),
    st.lists(st.integers(0, 4), max_size=3, unique=True),
    st.integers(0, 1),
    st.none() | st.sets(st.integers(0, 4), min_size=1),
)
def test_c_qry_085_cheapest_paths_are_the_best_of_all_paths(
    graph: Multigraph,
    numbers: list[float | None],
    direction: Direction,
    sources: list[int],
    minimum: int,
    wanted: set[int] | None,
):
    sources = sorted(source for source in sources if source < graph.nodes)
    targets = None if wanted is None else [slots_of(sorted(wanted))] * len(sources)
    made = cheapest_paths(
        weighted(graph, numbers, direction), space(), slots_of(sources), minimum, targets
    )
    every = np.arange(len(made.keys))
    nodes = made.follow(every).tolist()
    ends = np.cumsum(made.lengths + 1).tolist()
    found = {
        (sources[key >> 32], key & 0xFFFFFFFF): (nodes[begin:end], cost)
        for key, cost, (begin, end) in zip(
            made.keys.tolist(), made.costs.tolist(), pairwise([0, *ends]), strict=True
        )
    }
    steps = steps_of(graph, numbers, direction)
    expected = {}
    for source in sources:
        ways: dict[int, list[tuple[float, int, list[str], list[int]]]] = {}
        for path in simple_paths(steps, [source]):
            cost = sum((steps[here][there] for here, there in pairwise(path)), 0.0)
            backwards = [IDS[node] for node in path[::-1]]
            ways.setdefault(path[-1], []).append((cost, len(path), backwards, path))
        if minimum == 1:
            loop = steps.get(source, {}).get(source)
            ways[source] = [] if loop is None else [(loop, 2, [], [source, source])]
        for target, several in ways.items():
            if several and (wanted is None or target in wanted):
                expected[source, target] = (min(several)[3], min(several)[0])
    assert found == expected


@EXAMPLES
@given(multigraphs(nodes_max=5, edges_max=9), weights, st.sampled_from(["out", "both"]))
def test_c_qry_085_costs_are_those_of_networkx(
    graph: Multigraph, numbers: list[float | None], direction: Direction
):
    theirs = networkx.MultiDiGraph() if direction == "out" else networkx.MultiGraph()
    theirs.add_nodes_from(range(graph.nodes))
    for (source, target), weight in zip(graph.edges, numbers, strict=False):
        if weight is not None:
            theirs.add_edge(source, target, weight=weight)
    every = slots_of(list(range(graph.nodes)))
    made = cheapest_paths(weighted(graph, numbers, direction), space(), every, 0)
    costs = zip(made.keys.tolist(), made.costs.tolist(), strict=True)
    wanted = {
        (source, target): cost
        for source, found in networkx.all_pairs_dijkstra_path_length(theirs)
        for target, cost in found.items()
    }
    assert {(key >> 32, key & 0xFFFFFFFF): cost for key, cost in costs} == wanted


def test_c_qry_085_a_bound_target_stops_the_search_of_the_cheapest_path():
    chain = Multigraph(1_000, tuple((node, node + 1) for node in range(999)))
    edges = weighted(chain, [1.0] * 999, "out")
    found = cheapest_paths(edges, space(), slots_of([500]), 1, [slots_of([503])])
    assert found.costs.tolist() == [3.0]
    # Twice as far as the target at most, and once more for the number of edges.
    assert edges.followed <= 12
    everything = weighted(chain, [1.0] * 999, "out")
    assert len(cheapest_paths(everything, space(), slots_of([500]), 1).costs) == 499
    assert everything.followed > 499


@pytest.mark.parametrize("weight", [-1.0, float("nan"), float("inf")])
def test_c_qry_085_a_weight_that_cannot_be_added_up_is_refused_where_it_is_met(weight: float):
    graph = Multigraph(4, ((0, 1), (2, 3)))
    with pytest.raises(InputError, match="Road road 0 has the minutes"):
        cheapest_paths(weighted(graph, [weight, 1.0], "out"), space(), slots_of([0]), 1)
    assert cheapest_paths(
        weighted(graph, [1.0, weight], "out"), space(), slots_of([0]), 1
    ).costs.tolist() == [1.0]
