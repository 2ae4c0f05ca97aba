"""Shortest paths: which one a pair of a hop has, and how far the search for it goes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engines.local import paths as paths_module
from omnigraph.engines.local.adjacency import Adjacency
from omnigraph.engines.local.ids import IdSpace, Slots
from omnigraph.engines.local.paths import (
    ListedPaths,
    MeasuredPaths,
    PathBatch,
    PathIds,
    PathSearch,
    PathStore,
    ShortestPaths,
    lengths_between,
    paths_between,
)
from omnigraph.engines.local.sorting import Counts
from omnigraph.query.plan import FLIPPED, HOPS_MAX
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
letters = st.permutations("pqrst")
"""Ids that sort differently from slots."""
small = multigraphs(nodes_max=5, edges_max=9)


@dataclass
class Near:
    """Neighbours that count the nodes they were asked for."""

    adjacency: Adjacency
    node_count: int
    has_parallels = True
    has_loops = True
    asked: list[int] = field(default_factory=list)

    def expected(self, slots: Slots) -> int:
        return int(self.adjacency.degrees(slots).sum())

    def gather(self, slots: Slots) -> tuple[Slots, Counts]:
        self.asked += slots.tolist()
        return self.adjacency.gather(slots)


def space_of(names: list[str]) -> IdSpace:
    space = IdSpace()
    space.intern(pa.array(names, pa.string()))
    return space


def search_of(
    graph: Multigraph, direction: Direction, bound: tuple[int, int], ids: list[str]
) -> PathSearch:
    return PathSearch(
        Near(graph.adjacency(direction), graph.nodes),
        Near(graph.adjacency(FLIPPED[direction]), graph.nodes),
        lambda slots: None,
        space_of(ids),
        *bound,
    )


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


def shortest(
    graph: Multigraph, source: int, direction: Direction, bound: tuple[int, int], ids: list[str]
) -> dict[int, list[list[str]]]:
    """All shortest paths to every destination, the one to choose first."""
    found = {}
    distances = graph.destinations(source, direction, 1, 9)
    for there, hop in graph.destinations(source, direction, *bound).items():
        ways = [walk for walk in walks(graph, source, direction, hop) if walk[-1] == there]
        if hop and (there == source or hop > distances[there]):
            # Reported by its self-loop: the last step repeats the node.
            ways = [walk for walk in ways if walk[-1] == walk[-2]]
        shown = [[ids[node] for node in walk] for walk in ways]
        found[there] = sorted(shown, key=lambda walk: walk[::-1])
    return found


def listed(
    found: ShortestPaths | ListedPaths, numbers: np.ndarray, ids: list[str]
) -> list[list[str]]:
    """Some paths as lists of ids."""
    nodes = [ids[node] for node in found.follow(numbers).tolist()]
    ends = np.cumsum(found.lengths[numbers] + 1).tolist()
    return [nodes[begin:end] for begin, end in pairwise([0, *ends])]


@EXAMPLES
@given(small, directions, bounds, st.lists(st.integers(0, 4), max_size=4, unique=True), letters)
def test_c_qry_085_paths_from_many_sources_are_the_smallest_and_all_of_the_shortest(
    graph: Multigraph,
    direction: Direction,
    bound: tuple[int, int],
    sources: list[int],
    ids: list[str],
):
    sources = sorted(set(sources) & set(range(graph.nodes)))
    one: dict[tuple[int, int], list[str]] = {}
    every: dict[tuple[int, int], list[list[str]]] = {}
    for made in search_of(graph, direction, bound, ids).all_from(slots_of(sources)):
        numbers = np.arange(len(made.keys))
        pairs = [(sources[key >> 32], key & 0xFFFFFFFF) for key in made.keys.tolist()]
        one |= zip(pairs, listed(made, numbers, ids), strict=True)
        everything = made.every(numbers)
        owners = everything.owners.tolist()
        for owner, way in zip(owners, listed(everything, np.arange(len(owners)), ids), strict=True):
            every.setdefault(pairs[owner], []).append(way)
    wanted = {
        (source, there): ways
        for source in sources
        for there, ways in shortest(graph, source, direction, bound, ids).items()
    }
    assert one == {pair: ways[0] for pair, ways in wanted.items()}
    assert {pair: sorted(w, key=lambda way: way[::-1]) for pair, w in every.items()} == wanted


PAIRS = {"from both ends": (64, 4, 20_000), "by source": (64, 0, 20_000), "blocks": (0, 4, 10**9)}


@pytest.fixture(params=list(PAIRS.values()), ids=list(PAIRS))
def pair_search(request: pytest.FixtureRequest) -> Iterator[None]:
    """Every way to search pairs of bound nodes."""
    names = ("_PAIRS_ALONE", "_TARGETS_ALONE", "_WIDE")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(names, request.param, strict=True):
            patch.setattr(paths_module, name, value)
        yield


@EXAMPLES
@pytest.mark.usefixtures("pair_search")
@given(
    small,
    directions,
    bounds,
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), max_size=8),
    letters,
)
def test_c_qry_036_and_085_bound_pairs_have_the_paths_of_the_whole_search(
    graph: Multigraph,
    direction: Direction,
    bound: tuple[int, int],
    pairs: list[tuple[int, int]],
    ids: list[str],
):
    pairs = [pair for pair in pairs if max(pair) < graph.nodes]
    sources, targets = slots_of([s for s, _ in pairs]), slots_of([t for _, t in pairs])
    search = search_of(graph, direction, bound, ids)
    wanted = [shortest(graph, s, direction, bound, ids).get(t) for s, t in pairs]
    lengths = lengths_between(search, sources, targets)
    assert lengths.tolist() == [-1 if ways is None else len(ways[0]) - 1 for ways in wanted]
    rows, parts = paths_between(search, sources, targets)
    one: dict[int, list[str]] = {}
    every: dict[int, list[list[str]]] = {}
    for made in parts:
        numbers = np.arange(len(made.keys))
        one |= zip(rows.tolist(), listed(made, numbers, ids), strict=True)
        everything = made.every(numbers)
        ways = listed(everything, np.arange(len(everything.owners)), ids)
        for owner, way in zip(everything.owners.tolist(), ways, strict=True):
            every.setdefault(rows.tolist()[owner], []).append(way)
    found = {row: ways for row, ways in enumerate(wanted) if ways is not None}
    assert one == {row: ways[0] for row, ways in found.items()}
    assert {row: sorted(w, key=lambda way: way[::-1]) for row, w in every.items()} == found


def test_c_qry_085_a_bound_target_stops_the_search():
    # A chain of 1,000 nodes: between neighbours nothing else is looked at.
    chain = Multigraph(1_000, tuple((node, node + 1) for node in range(999)))
    ids = [f"n{node:03}" for node in range(1_000)]
    search = search_of(chain, "out", (1, HOPS_MAX), ids)
    assert lengths_between(search, slots_of([500]), slots_of([503])).tolist() == [3]
    assert isinstance(search.forwards, Near)
    assert isinstance(search.backwards, Near)
    assert len(search.forwards.asked) + len(search.backwards.asked) <= 3
    # Several targets of one source end the search of that source.
    search = search_of(chain, "out", (1, HOPS_MAX), ids)
    targets = slots_of([501, 502, 503, 504, 505])
    assert lengths_between(search, slots_of([500] * 5), targets).tolist() == [1, 2, 3, 4, 5]
    assert isinstance(search.forwards, Near)
    assert len(search.forwards.asked) == 5


def test_c_qry_085_a_search_from_both_ends_goes_on_where_there_are_fewer_edges():
    # A hub with 900 neighbours leads to the target by one of them.
    edges = [(0, node) for node in range(1, 901)] + [(7, 901), (901, 902)]
    search = search_of(Multigraph(903, tuple(edges)), "out", (1, 9), [f"{n}" for n in range(903)])
    assert lengths_between(search, slots_of([0]), slots_of([902])).tolist() == [3]
    assert isinstance(search.forwards, Near)
    assert len(search.forwards.asked) <= 1


@EXAMPLES
@given(small, directions, st.integers(0, 4), st.integers(0, 4), st.sets(st.integers(0, 4)))
def test_bound_pairs_are_not_linked_by_nodes_that_do_not_exist(
    graph: Multigraph, direction: Direction, source: int, target: int, gone: set[int]
):
    source, target = source % graph.nodes, target % graph.nodes
    gone = {node for node in gone if node not in (source, target)}
    left = tuple(edge for edge in graph.edges if not gone & set(edge))
    whole = search_of(graph, direction, (1, 9), list("pqrst"))
    without = Multigraph(graph.nodes, left)

    def present(slots: Slots) -> np.ndarray:
        return ~np.isin(slots, sorted(gone | {source}))

    # The source may be of a type that no edge leads to, so that it is not among the nodes to pass.
    kept = Near(without.adjacency(direction), graph.nodes)
    search = PathSearch(kept, whole.backwards, present, whole.space, 1, 9)
    wanted = without.destinations(source, direction, 1, 9).get(target, -1)
    assert lengths_between(search, slots_of([source]), slots_of([target])).tolist() == [wanted]


# --- numbers of paths -----------------------------------------------------------------------------


def test_a_store_gives_paths_and_lengths_by_number():
    space = space_of(["a", "b", "c"])
    ids = PathIds(space, space, False, False)
    store = PathStore()
    made = ListedPaths(np.arange(2), slots_of([0, 1, 2, 0, 0]), slots_of([2, 1]))
    assert store.add(PathBatch(made, ids)) == 0
    assert store.add(PathBatch(MeasuredPaths(slots_of([7])), ids)) == 2
    asked = np.array([1, -1, 0], np.int32)
    assert store.nodes(asked).to_pylist() == [["a", "a"], None, ["a", "b", "c"]]
    assert store.lengths(np.array([1, -1, 0, 2], np.int32)).to_pylist() == [1, None, 2, 7]
    assert store.nodes(asked).type == pa.list_(pa.field("item", pa.string()))
    assert store.lengths(np.zeros(0, np.int32)).type == pa.int64()
    assert PathStore().lengths(np.array([-1], np.int32)).to_pylist() == [None]


def test_the_ids_of_a_path_between_two_types_are_those_of_either():
    ids = PathIds(space_of(["ana"]), space_of(["rome", "ana"]), False, False)
    made = ListedPaths(np.arange(2), slots_of([0, 1, 0, 0]), slots_of([1, 1]))
    store = PathStore()
    store.add(PathBatch(made, ids))
    found = store.nodes(np.array([0, 1], np.int32)).to_pylist()
    assert found == [["ana", "ana"], ["ana", "rome"]]
