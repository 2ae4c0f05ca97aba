"""The search behind hops, against the one the language is defined by."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engines.local import reach as reach_module
from omnigraph.engines.local.adjacency import Adjacency
from omnigraph.engines.local.ids import Slots
from omnigraph.engines.local.reach import reach
from omnigraph.engines.local.sorting import Counts
from omnigraph.query.plan import HOPS_MAX
from tests.engines.local.examples import EXAMPLES
from tests.engines.local.multigraphs import (
    DIRECTIONS,
    Direction,
    Multigraph,
    multigraphs,
    slots_of,
)

directions = st.sampled_from(DIRECTIONS)
bounds = st.tuples(st.integers(0, 4), st.integers(0, 4) | st.just(HOPS_MAX)).filter(
    lambda pair: pair[0] <= pair[1]
)


@dataclass(frozen=True)
class Known:
    """Adjacency with as many nodes as there are; ``careful`` if nothing is known of its edges."""

    adjacency: Adjacency
    node_count: int
    careful: bool

    @property
    def has_parallels(self) -> bool:
        return self.careful or self.adjacency.has_parallels

    @property
    def has_loops(self) -> bool:
        return self.careful or self.adjacency.has_loops

    def expected(self, slots: Slots) -> int:
        return int(self.adjacency.degrees(slots).sum())

    def gather(self, slots: Slots) -> tuple[Slots, Counts]:
        return self.adjacency.gather(slots)


@dataclass
class Discovered:
    """Neighbours whose nodes become known only when they are met, as lookups find them."""

    graph: Multigraph
    direction: Direction
    node_count: int = 0
    has_parallels = True
    has_loops = True

    def expected(self, slots: Slots) -> int:
        return len(slots)

    def gather(self, slots: Slots) -> tuple[Slots, Counts]:
        found = [sorted(set(self.graph.neighbours(n, self.direction))) for n in slots.tolist()]
        everything = [node for each in found for node in each]
        self.node_count = max([self.node_count, *(node + 1 for node in everything)])
        return slots_of(everything), np.array([len(each) for each in found], np.int64)


NEVER = 1_000_000
WAYS = {
    "lists, blocks of two": (0, 0, 2, NEVER),
    "lists, then maps, blocks of five": (3, 0, 5, NEVER),
    "a map of what was met, source by source": (NEVER, 0, 1, NEVER),
    "maps": (NEVER, NEVER, NEVER, NEVER),
    "sources with more than two neighbours alone": (64, 8, NEVER, 2),
    "usual": (64, 8, NEVER, NEVER),
}


@pytest.fixture(params=list(WAYS.values()), ids=list(WAYS), autouse=True)
def frontier(request: pytest.FixtureRequest) -> Iterator[None]:
    """What was met, and frontiers, as lists, as maps, or as the engine chooses; sizes of blocks."""
    sparse, dense, block, alone = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reach_module, "_SPARSE_SHARE", sparse)
        patch.setattr(reach_module, "_DENSE_SHARE", dense)
        patch.setattr(reach_module, "BLOCK_ROWS", block)
        patch.setattr(reach_module, "_SEEN_MAX", 4 * block)
        patch.setattr(reach_module, "_NEIGHBOURS_ALONE", alone)
        yield


def pairs_of(rows: np.ndarray, found: np.ndarray) -> list[tuple[int, int]]:
    return sorted(zip(rows.tolist(), found.tolist(), strict=True))


def wanted_pairs(
    graph: Multigraph, sources: list[int], direction: Direction, bound: tuple[int, int]
) -> list[tuple[int, int]]:
    return sorted(
        (row, there)
        for row, source in enumerate(sources)
        for there in graph.destinations(source, direction, *bound)
    )


@EXAMPLES
@given(multigraphs(), directions, bounds, st.lists(st.integers(0, 10), max_size=6), st.booleans())
def test_c_qry_026_destinations_are_those_of_the_language(
    graph: Multigraph,
    direction: Direction,
    bound: tuple[int, int],
    sources: list[int],
    careful: bool,
):
    # Sources repeat, are in any order, and may have come after the edges were sorted.
    known = Known(graph.adjacency(direction), 11, careful)
    rows, found = reach(known, slots_of(sources), *bound)
    assert pairs_of(rows, found) == wanted_pairs(graph, sources, direction, bound)
    # Rows stay in the order of the sources: what follows relies on it.
    assert rows.tolist() == sorted(rows.tolist())


@EXAMPLES
@given(
    st.lists(st.floats(0, 1, exclude_max=True), max_size=10),
    bounds,
    st.sets(st.integers(0, 10), max_size=6),
    st.none() | st.tuples(st.integers(0, 10), st.integers(0, 10)),
)
def test_c_qry_083_trees_below_many_sources_are_searched_apart_until_they_meet(
    parents: list[float],
    bound: tuple[int, int],
    sources: set[int],
    more: tuple[int, int] | None,
):
    # A source may be below another one, and one more edge may close a cycle or join two trees.
    tree = [(int(share * child), child) for child, share in enumerate(parents, start=1)]
    graph = Multigraph(11, (*tree, *([more] if more else [])))
    rows, found = reach(Known(graph.adjacency("out"), 11, False), slots_of(sorted(sources)), *bound)
    assert pairs_of(rows, found) == wanted_pairs(graph, sorted(sources), "out", bound)


@EXAMPLES
@given(
    st.dictionaries(st.integers(0, 10), st.integers(0, 10), max_size=10),
    bounds,
    st.lists(st.integers(0, 10), min_size=2, max_size=6),
)
def test_c_qry_083_ways_of_single_edges_end_or_come_back(
    following: dict[int, int], bound: tuple[int, int], sources: list[int]
):
    graph = Multigraph(11, tuple(following.items()))
    rows, found = reach(Known(graph.adjacency("out"), 11, False), slots_of(sources), *bound)
    assert pairs_of(rows, found) == wanted_pairs(graph, sources, "out", bound)


@EXAMPLES
@given(multigraphs(), directions, bounds, st.integers(0, 8))
def test_one_source_finds_what_it_finds_among_many(
    graph: Multigraph, direction: Direction, bound: tuple[int, int], source: int
):
    known = Known(graph.adjacency(direction), graph.nodes, False)
    _, alone = reach(known, slots_of([source]), *bound)
    rows, found = reach(known, slots_of([source, 0]), *bound)
    assert sorted(alone.tolist()) == sorted(found[rows == 0].tolist())


@EXAMPLES
@given(multigraphs(), directions, bounds, st.lists(st.integers(0, 8), min_size=1, max_size=4))
def test_nodes_that_are_met_on_the_way_are_found_too(
    graph: Multigraph, direction: Direction, bound: tuple[int, int], sources: list[int]
):
    rows, found = reach(Discovered(graph, direction), slots_of(sources), *bound)
    assert pairs_of(rows, found) == wanted_pairs(graph, sources, direction, bound)


@EXAMPLES
@given(multigraphs(), st.lists(st.integers(0, 8), max_size=6))
def test_between_types_equal_slots_are_no_loops(graph: Multigraph, sources: list[int]):
    known = Known(graph.adjacency("out").between_types(), graph.nodes, False)
    rows, found = reach(known, slots_of(sources), 1, 1)
    wanted = [(row, t) for row, s in enumerate(sources) for t in set(graph.neighbours(s, "out"))]
    assert pairs_of(rows, found) == sorted(wanted)


def test_an_impossible_bound_finds_nothing():
    graph = Multigraph(2, ((0, 1),))
    rows, found = reach(Known(graph.adjacency("out"), 2, False), slots_of([0]), 2, 1)
    assert (len(rows), len(found)) == (0, 0)


def test_c_qry_027_and_029_shortest_distance_and_self_loops_by_hand():
    # 0 -> 1 -> 2 -> 2, and 0 -> 2: node 2 is one hop away, its loop reports it at two.
    graph = Multigraph(3, ((0, 1), (1, 2), (0, 2), (2, 2)))
    known = Known(graph.adjacency("out"), 3, False)
    assert pairs_of(*reach(known, slots_of([0]), 1, 1)) == [(0, 1), (0, 2)]
    assert pairs_of(*reach(known, slots_of([0]), 2, 2)) == [(0, 2)]
    assert pairs_of(*reach(known, slots_of([0]), 3, 3)) == []
    assert pairs_of(*reach(known, slots_of([2]), 1, 4)) == [(0, 2)]
