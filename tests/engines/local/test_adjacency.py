"""Sorted edges, against edges looked through one by one."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engines.local import adjacency as adjacency_module
from omnigraph.engines.local import edge_order as edge_order_module
from omnigraph.engines.local import sorting as sorting_module
from omnigraph.engines.local.adjacency import Adjacency, EditedAdjacency
from omnigraph.engines.local.edge_order import EdgeOrder, _PackedEdges
from omnigraph.engines.local.edges import merged_ends
from omnigraph.engines.local.ids import Slots
from omnigraph.engines.local.sorting import Counts, sorted_distinct, spread
from tests.engines.local.examples import EXAMPLES
from tests.engines.local.multigraphs import (
    DIRECTIONS,
    Direction,
    Multigraph,
    multigraphs,
    slots_of,
)


@pytest.fixture(params=[1, 1 << 20], ids=["in parts", "at once"], autouse=True)
def sorting(request: pytest.FixtureRequest) -> Iterator[None]:
    """Edges are sorted at once, or put into parts first, as very many are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(adjacency_module, "BLOCK_ROWS", request.param)
        for module in (edge_order_module, sorting_module):
            patch.setattr(module, "CHUNK_ROWS", request.param)
            patch.setattr(module, "BLOCK_ROWS", request.param)
        yield


directions = st.sampled_from(DIRECTIONS)
some_slots = st.lists(st.integers(0, 12), max_size=12)
"""Of some of the nodes, in any order and repeatedly, and of nodes that came later."""


def expected(graph: Multigraph, node: int, direction: Direction) -> list[int]:
    found = graph.neighbours(node, direction)
    return sorted(set(found)) if direction == "both" else found


@EXAMPLES
@given(multigraphs(), directions, some_slots)
def test_gather_gives_the_neighbours_of_each_slot_in_turn(
    graph: Multigraph, direction: Direction, slots: list[int]
):
    found, counts = graph.adjacency(direction).gather(slots_of(slots))
    wanted = [expected(graph, slot, direction) for slot in slots]
    assert counts.tolist() == [len(each) for each in wanted]
    assert found.tolist() == [node for each in wanted for node in each]


@EXAMPLES
@given(multigraphs(), directions, st.data())
def test_gather_of_as_many_ascending_slots_as_there_are_nodes(
    graph: Multigraph, direction: Direction, data: st.DataObject
):
    # Some of them may be nodes that came after the edges were sorted.
    every = range(graph.nodes + 3)
    size = graph.nodes
    slots = sorted(data.draw(st.sets(st.sampled_from(every), min_size=size, max_size=size)))
    found, counts = graph.adjacency(direction).gather(slots_of(slots))
    wanted = [expected(graph, slot, direction) for slot in slots]
    assert counts.tolist() == [len(each) for each in wanted]
    assert found.tolist() == [node for each in wanted for node in each]


def test_a_node_that_came_later_does_not_stand_for_one_that_was_left_out():
    adjacency = Adjacency.build(slots_of([0, 1, 2]), slots_of([1, 2, 0]), 3)
    found, counts = adjacency.gather(slots_of([0, 1, 3]))
    assert (found.tolist(), counts.tolist()) == ([1, 2], [1, 1, 0])


@EXAMPLES
@given(multigraphs(), directions, st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12))))
def test_contains_knows_every_pair(
    graph: Multigraph, direction: Direction, pairs: list[tuple[int, int]]
):
    sources, targets = slots_of([s for s, _ in pairs]), slots_of([t for _, t in pairs])
    wanted = [t in graph.neighbours(s, direction) for s, t in pairs]
    assert graph.adjacency(direction).contains(sources, targets).tolist() == wanted
    with pytest.MonkeyPatch.context() as patch:
        # As if they were many: hashed, or merged with the edges if they are sorted.
        patch.setattr(adjacency_module, "_FEW_PAIRS", -1)
        patch.setattr(adjacency_module, "_HASHED_SHARE", 10**6)
        assert graph.adjacency(direction).contains(sources, targets).tolist() == wanted
        by_ends = np.lexsort((targets, sources))
        found = graph.adjacency(direction).contains(sources[by_ends], targets[by_ends])
    assert found.tolist() == [wanted[at] for at in by_ends]
    adjacency = graph.adjacency(direction)
    begin, counts = adjacency.ranges_between(sources, targets)
    with pytest.MonkeyPatch.context() as patch:
        # As if they were many for the nodes: looked up in a table.
        patch.setattr(adjacency_module, "_FEW_LOOKED_UP", 1)
        patch.setattr(adjacency_module, "_TABLE_SHARE", 10**6)
        assert adjacency.contains(sources, targets).tolist() == wanted
        looked_up = adjacency.ranges_between(sources, targets)
    assert looked_up[1].tolist() == counts.tolist()
    assert looked_up[0][counts > 0].tolist() == begin[counts > 0].tolist()


@EXAMPLES
@given(
    st.lists(st.none() | st.integers(0, 5), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 5)), max_size=20),
)
def test_where_nodes_have_one_neighbour_at_most_a_pair_is_a_comparison(
    only: list[int | None], pairs: list[tuple[int, int]]
):
    edges = [(source, target) for source, target in enumerate(only) if target is not None]
    graph = Multigraph(6, tuple(edges))
    adjacency = graph.adjacency("out")
    assert adjacency.is_functional
    assert not Multigraph(6, (*edges, (0, 1), (0, 1))).adjacency("out").is_functional
    sources, targets = slots_of([s for s, _ in pairs]), slots_of([t for _, t in pairs])
    assert adjacency.contains(sources, targets).tolist() == [pair in edges for pair in pairs]


@EXAMPLES
@given(multigraphs(), directions)
def test_adjacency_knows_of_parallels_and_loops(graph: Multigraph, direction: Direction):
    adjacency = graph.adjacency(direction)
    has_parallels = len(set(graph.edges)) < len(graph.edges)
    # Both orientations as one are a set already.
    assert adjacency.has_parallels == (has_parallels and direction != "both")
    assert adjacency.has_loops == any(source == target for source, target in graph.edges)
    assert not adjacency.between_types().has_loops
    assert adjacency.nbytes >= adjacency.pointers.nbytes + adjacency.neighbours.nbytes


def test_adjacency_without_edges_has_no_neighbours():
    empty = slots_of([])
    adjacency = Adjacency.build(empty, empty, 0)
    found, counts = adjacency.gather(slots_of([0, 5]))
    assert (found.tolist(), counts.tolist()) == ([], [0, 0])
    assert adjacency.contains(slots_of([0, 5]), slots_of([0, 1])).tolist() == [False, False]
    assert adjacency.contains(empty, empty).tolist() == []


def test_large_slots_stay_what_they_are():
    top = 3_000_000
    adjacency = Adjacency.build(slots_of([0, top]), slots_of([top, top]), top + 1)
    assert adjacency.gather(slots_of([0]))[0].tolist() == [top]
    assert adjacency.contains(slots_of([top, top]), slots_of([top, 0])).tolist() == [True, False]


@EXAMPLES
@given(multigraphs(), st.sampled_from(["out", "in"]), some_slots, st.data())
def test_edges_are_in_the_order_of_adjacency(
    graph: Multigraph, direction: Direction, slots: list[int], data: st.DataObject
):
    # Some edges are deleted: positions have gaps.
    live = data.draw(st.sets(st.sampled_from(range(len(graph.edges))))) if graph.edges else set()
    positions = slots_of(sorted(live))
    near, far = graph.sources[positions], graph.targets[positions]
    if direction == "in":
        near, far = far, near
    adjacency = Adjacency.build(near, far, graph.nodes)
    order = EdgeOrder.build(adjacency, (near, far), positions)
    found, counts = adjacency.gather(slots_of(slots))
    edges = order.at(slots_of(slots))
    at = dict(zip(positions.tolist(), zip(near.tolist(), far.tolist(), strict=True), strict=True))
    wanted = [sorted(edge for edge in at if at[edge][0] == slot) for slot in slots]
    wanted = [sorted(each, key=lambda edge: at[edge][1]) for each in wanted]
    assert counts.tolist() == [len(each) for each in wanted]
    assert edges.tolist() == [edge for each in wanted for edge in each]
    assert found.tolist() == [at[edge][1] for each in wanted for edge in each]
    assert any(part is order.positions for part in order.parts)
    together = EdgeOrder.with_adjacency((near, far), positions, graph.nodes)
    made = together.adjacency
    assert isinstance(made, Adjacency)
    assert made.pointers.tolist() == adjacency.pointers.tolist()
    assert made.neighbours.tolist() == adjacency.neighbours.tolist()
    assert (made.has_parallels, made.has_loops) == (adjacency.has_parallels, adjacency.has_loops)
    with pytest.MonkeyPatch.context() as patch:
        # Ends and places that take more than 64 bits together.
        patch.setattr(_PackedEdges, "of", lambda ends: None)
        twice = EdgeOrder.build(adjacency, (near, far), positions)
    assert order.positions.tolist() == together.positions.tolist() == twice.positions.tolist()


def ends_of(graph: Multigraph, positions: Slots, direction: Direction) -> tuple[Slots, Slots]:
    near, far = graph.sources[positions], graph.targets[positions]
    return (far, near) if direction == "in" else (near, far)


@EXAMPLES
@given(multigraphs(), st.sampled_from(["out", "in"]), some_slots, st.data())
def test_edited_adjacency_and_order_are_what_building_anew_gives(
    graph: Multigraph, direction: Direction, slots: list[int], data: st.DataObject
):
    """Version after version, each made of the one before, with any edges of it added or removed."""
    every = list(range(len(graph.edges)))
    live = st.sets(st.sampled_from(every)) if every else st.just(set())
    versions = [sorted(each) for each in data.draw(st.lists(live, min_size=2, max_size=4))]
    nodes = graph.nodes - data.draw(st.integers(0, 2))  # the last ones may come later
    first = slots_of([edge for edge in versions[0] if max(graph.edges[edge]) < nodes])
    versions[0] = first.tolist()
    base = Adjacency.build(*ends_of(graph, first, direction), max(nodes, 0))
    order = EdgeOrder.build(base, ends_of(graph, first, direction), first)
    before: Adjacency | EditedAdjacency = base
    asked = slots_of(slots)
    for old, new in pairwise(versions):
        added = slots_of(sorted({*new} - {*old}))
        removed = slots_of(sorted({*old} - {*new}))
        changes = ends_of(graph, added, direction), ends_of(graph, removed, direction)
        edited = EditedAdjacency.of(before, *changes)
        edited_order = order.edited((changes[0], added), (changes[1], removed))
        assert edited is not None
        assert edited_order is not None
        ends = ends_of(graph, slots_of(new), direction)
        built = Adjacency.build(*ends, graph.nodes)
        built_order = EdgeOrder.build(built, ends, slots_of(new))
        run = slots_of(list(range(graph.nodes + 2)))
        for some in (asked, run, run[:1]):
            assert edited.gather(some)[0].tolist() == built.gather(some)[0].tolist()
            assert edited.gather(some)[1].tolist() == built.gather(some)[1].tolist()
            assert edited.degrees(some).tolist() == built.degrees(some).tolist()
            assert edited_order.at(some).tolist() == built_order.at(some).tolist()
        targets = asked[::-1].copy()
        assert edited.contains(asked, targets).tolist() == built.contains(asked, targets).tolist()
        assert edited.is_functional <= built.is_functional
        pairs = list(zip(asked.tolist(), targets.tolist(), strict=True))
        shown = [edge if direction == "out" else edge[::-1] for edge in graph.edges]
        linking = [[edge for edge in new if shown[edge] == pair] for pair in pairs]
        for one in (edited_order, built_order):
            positions, counts = one.between(asked, targets)
            assert counts.tolist() == [len(each) for each in linking]
            assert positions.tolist() == [edge for each in linking for edge in each]
        assert edited.has_parallels >= built.has_parallels
        assert edited.has_loops >= built.has_loops
        compact = edited.compacted(graph.nodes)
        assert compact.neighbours.tolist() == built.neighbours.tolist()
        assert compact.pointers.tolist() == built.pointers.tolist()
        compact_order = edited_order.compacted(compact)
        assert compact_order.positions.tolist() == built_order.positions.tolist()
        assert compact_order.at(asked).tolist() == built_order.at(asked).tolist()
        before, order = edited, edited_order


@EXAMPLES
@given(multigraphs(), some_slots, st.data())
def test_edited_neighbours_in_both_directions_are_what_building_anew_gives(
    graph: Multigraph, slots: list[int], data: st.DataObject
):
    every = list(range(len(graph.edges)))
    live = st.sets(st.sampled_from(every)) if every else st.just(set())
    versions = [slots_of(sorted(each)) for each in data.draw(st.lists(live, min_size=2))[:4]]
    before: Adjacency | EditedAdjacency = Adjacency.undirected(
        *ends_of(graph, versions[0], "out"), graph.nodes
    )
    asked = slots_of(slots)
    for old, new in pairwise(versions):
        changed = slots_of(sorted({*old.tolist()} ^ {*new.tolist()}))
        near, far = ends_of(graph, new, "out")
        ways = Adjacency.build(near, far, graph.nodes), Adjacency.build(far, near, graph.nodes)
        touched = np.concatenate(ends_of(graph, changed, "out"))
        before = EditedAdjacency.undirected(before, touched, ways)
        built = Adjacency.undirected(near, far, graph.nodes)
        assert before.gather(asked)[0].tolist() == built.gather(asked)[0].tolist()
        assert before.gather(asked)[1].tolist() == built.gather(asked)[1].tolist()
        assert before.compacted(graph.nodes).neighbours.tolist() == built.neighbours.tolist()
        assert before.has_loops >= built.has_loops


def test_an_edge_that_is_not_there_cannot_be_removed():
    adjacency = Adjacency.build(slots_of([0, 0]), slots_of([1, 2]), 3)
    order = EdgeOrder.build(adjacency, (slots_of([0, 0]), slots_of([1, 2])), slots_of([0, 1]))
    none = slots_of([]), slots_of([])
    assert EditedAdjacency.of(adjacency, none, (slots_of([1]), slots_of([2]))) is None
    # The ends are there, but the position is that of another edge.
    gone = (slots_of([0]), slots_of([2])), slots_of([0])
    assert order.edited((none, slots_of([])), gone) is None


def _edges_at(near: Slots, far: Slots, nodes: int, slots: Slots) -> tuple[Slots, Counts]:
    adjacency = Adjacency.build(near, far, nodes)
    order = EdgeOrder.build(adjacency, (near, far), np.arange(len(near), dtype=np.int32))
    return order.at(slots), adjacency.degrees(slots)


@EXAMPLES
@given(multigraphs(), st.lists(st.integers(0, 8), max_size=8))
def test_merged_ends_have_every_edge_at_a_node_once(graph: Multigraph, nodes: list[int]):
    slots = slots_of(nodes)
    out = _edges_at(graph.sources, graph.targets, graph.nodes, slots)
    back = _edges_at(graph.targets, graph.sources, graph.nodes, slots)
    edges, far, counts = merged_ends(
        slots,
        (out[0], graph.targets[out[0]], out[1]),
        (back[0], graph.sources[back[0]], back[1]),
    )
    at = 0
    for node, count in zip(nodes, counts.tolist(), strict=True):
        part = list(zip(edges.tolist(), far.tolist(), strict=True))[at : at + count]
        wanted = [
            (number, target if source == node else source)
            for number, (source, target) in enumerate(graph.edges)
            if node in (source, target)
        ]
        assert sorted(part) == wanted
        at += count
    assert at == len(edges)


@EXAMPLES
@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 5))))
def test_spread_lists_ranges_one_after_the_other(ranges: list[tuple[int, int]]):
    begin = np.array([start for start, _ in ranges], np.int64)
    counts = np.array([count for _, count in ranges], np.int64)
    assert spread(begin, counts).tolist() == [n for b, c in ranges for n in range(b, b + c)]


@pytest.mark.parametrize("dtype", [np.int32, np.int64, np.uint64])
@EXAMPLES
@given(numbers=st.lists(st.integers(0, 9)))
def test_sorted_distinct_is_a_sorted_set(dtype: type, numbers: list[int]):
    assert sorted_distinct(np.array(numbers, dtype)).tolist() == sorted(set(numbers))


@EXAMPLES
@given(multigraphs(), st.data())
def test_changes_lead_to_what_building_anew_does(graph: Multigraph, data: st.DataObject):
    numbers = list(range(len(graph.edges)))
    gone = data.draw(st.sets(st.sampled_from(numbers))) if numbers else set()
    nodes = graph.nodes + data.draw(st.integers(0, 3))
    end = st.integers(0, nodes - 1)
    new = data.draw(st.lists(st.tuples(end, end), max_size=8))
    removed = [graph.edges[at] for at in gone]
    left = [edge for at, edge in enumerate(graph.edges) if at not in gone]
    after = Multigraph(nodes, (*left, *new))
    for direction in ("out", "in"):

        def ends(edges: list[tuple[int, int]], direction: str = direction) -> tuple[Slots, Slots]:
            near, far = (0, 1) if direction == "out" else (1, 0)
            return slots_of([e[near] for e in edges]), slots_of([e[far] for e in edges])

        changed = graph.adjacency(direction).changed(ends(new), ends(removed), nodes)
        built = after.adjacency(direction)
        assert changed.pointers.tolist() == built.pointers.tolist()
        assert changed.neighbours.tolist() == built.neighbours.tolist()
        # What went may have been the last of its kind; knowing of more than there is does no harm.
        assert changed.has_parallels >= built.has_parallels
        assert changed.has_loops >= built.has_loops
        assert changed.contains(*ends([*new, *removed])).tolist() == [
            edge in after.edges for edge in [*new, *removed]
        ]


@EXAMPLES
@given(multigraphs(edges_max=4), st.sampled_from(DIRECTIONS))
def test_many_pairs_in_order_are_tested_like_any_others(graph: Multigraph, direction: Direction):
    pairs = [(s, t) for s in range(graph.nodes + 2) for t in range(graph.nodes + 2)]
    sources, targets = slots_of([s for s, _ in pairs]), slots_of([t for _, t in pairs])
    found = graph.adjacency(direction).contains(sources, targets)
    assert found.tolist() == [t in graph.neighbours(s, direction) for s, t in pairs]


@pytest.mark.parametrize("in_order", [True, False])
def test_few_edges_are_found_among_many_pairs(in_order: bool):
    random = np.random.default_rng(5)
    found = 0
    for _ in range(200):
        nodes, edges = int(random.integers(1, 8)), int(random.integers(0, 4))
        sources, targets = random.integers(0, nodes, (2, edges)).astype(np.int32)
        adjacency = Adjacency.build(sources, targets, nodes)
        # Some nodes were met only after the edges had been sorted.
        pairs = random.integers(0, nodes + 2, (50, 2)).tolist()
        if in_order:
            pairs.sort()
        asked = np.array(pairs, np.int32)
        stored = set(zip(sources.tolist(), targets.tolist(), strict=True))
        answers = adjacency.contains(asked[:, 0].copy(), asked[:, 1].copy()).tolist()
        assert answers == [tuple(pair) in stored for pair in pairs]
        found += sum(answers)
    assert found > 100
