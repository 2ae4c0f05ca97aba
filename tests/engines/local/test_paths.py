"""Shortest paths: one for each pair of a hop, and always the same one."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engines.local.adjacency import Adjacency, Counts
from omnigraph.engines.local.ids import IdSpace, Slots
from omnigraph.engines.local.reach import PathStore, paths_from
from omnigraph.query.plan import HOPS_MAX
from tests.engines.local.examples import EXAMPLES
from tests.engines.local.multigraphs import (
    DIRECTIONS,
    Direction,
    Multigraph,
    multigraphs,
    slots_of,
)

bounds = st.tuples(st.integers(0, 4), st.integers(0, 4) | st.just(HOPS_MAX)).filter(
    lambda pair: pair[0] <= pair[1]
)


@dataclass(frozen=True)
class Near:
    adjacency: Adjacency
    node_count: int
    has_parallels = True
    has_loops = True

    def expected(self, slots: Slots) -> int:
        return len(slots)

    def gather(self, slots: Slots) -> tuple[Slots, Counts]:
        return self.adjacency.gather(slots)


def space_of(names: list[str]) -> IdSpace:
    space = IdSpace()
    space.intern(pa.array(names, pa.string()))
    return space


def walks(graph: Multigraph, source: int, direction: Direction, length: int) -> list[list[int]]:
    """Every walk of some length."""
    found = [[source]]
    for _ in range(length):
        found = [
            [*walk, there]
            for walk in found
            for there in sorted(set(graph.neighbours(walk[-1], direction)))
        ]
    return found


@EXAMPLES
@given(
    multigraphs(nodes_max=5, edges_max=9),
    st.sampled_from(DIRECTIONS),
    bounds,
    st.integers(0, 4),
    st.permutations("pqrst"),
)
def test_a_path_is_the_smallest_of_the_shortest_read_from_its_end(
    graph: Multigraph,
    direction: Direction,
    bound: tuple[int, int],
    source: int,
    letters: list[str],
):
    # Ids sort differently from slots.
    space = space_of(letters)
    near = Near(graph.adjacency(direction), graph.nodes)
    found = paths_from(near, (space, space), source, *bound)
    destinations = graph.destinations(source, direction, *bound)
    assert found.keys() == destinations.keys()
    shortest = graph.destinations(source, direction, 1, 9)
    for there, hop in destinations.items():
        candidates = [
            [letters[node] for node in walk]
            for walk in walks(graph, source, direction, hop)
            if walk[-1] == there
        ]
        if hop and (there == source or hop > shortest[there]):
            # Reported by its self-loop: the last step repeats the node.
            candidates = [walk for walk in candidates if walk[-1] == walk[-2]]
        assert found[there] == min(candidates, key=lambda walk: walk[::-1])


def test_between_two_types_a_path_is_one_edge():
    near = Near(Adjacency.build(slots_of([0, 0, 0]), slots_of([0, 1, 1]), 1), 2)
    found = paths_from(near, (space_of(["ana"]), space_of(["ana", "rome"])), 0, 1, 1)
    assert found == {0: ["ana", "ana"], 1: ["ana", "rome"]}


def test_a_store_gives_paths_and_lengths_by_number():
    store = PathStore()
    numbers = [store.add(["a", "b", "c"]), store.add(["a", "a"])]
    asked = np.array([numbers[1], -1, numbers[0]], np.int32)
    assert store.nodes(asked).to_pylist() == [["a", "a"], None, ["a", "b", "c"]]
    assert store.lengths(asked).to_pylist() == [1, None, 2]
    assert store.nodes(asked).type == pa.list_(pa.field("item", pa.string()))
    assert store.lengths(np.zeros(0, np.int32)).type == pa.int64()
