"""Edges kept in memory and edges looked up, against the rows of every version."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engines.local import edges as edges_module
from omnigraph.engines.local.edges import CachedEdges, EdgeTable, FetchedEdges
from omnigraph.engines.local.ids import IdSpace
from omnigraph.engines.local.memory import MemoryBudget
from omnigraph.engines.local.rows import RowView, TableVersions
from omnigraph.storage.reader import SnapshotReader
from tests.engines.local.graphs import city, knows, lives, load, new_graph, person, reader_of, write
from tests.engines.local.multigraphs import DIRECTIONS, Direction, slots_of

PEOPLE = [f"p{at}" for at in range(8)]
COLUMNS = {"since": pa.int32()}


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """People who know each other, some twice, some themselves; ids of cities are ids of people."""
    graph = new_graph(tmp_path)
    choices = random.Random(5)
    edges = [
        knows(choices.choice(PEOPLE), choices.choice(PEOPLE), since=at % 3) for at in range(30)
    ]
    load(graph, *map(person, PEOPLE), *map(city, PEOPLE[:3]), *edges, knows("p1", "p1"))
    load(graph, *(lives(choices.choice(PEOPLE), choices.choice(PEOPLE[:3])) for _ in range(12)))
    return graph


def versions(graph: og.Graph) -> list[SnapshotReader]:
    """A few writes, and the graph after each of them."""
    found = [reader_of(graph)]
    for step in (
        lambda: load(graph, person("p8"), knows("p8", "p0"), knows("p0", "p0"), knows("p0", "p8")),
        lambda: write(graph, 'delete Knows where from = "p3"'),
        lambda: write(graph, 'delete Person where name = "p1"'),
        lambda: load(graph, knows("p3", "p2"), lives("p3", "p2"), lives("p2", "p2")),
        lambda: write(graph, 'delete LivesIn where to = "p0"'),
    ):
        step()
        found.append(reader_of(graph))
    return found


def stored(reader: SnapshotReader, key: str) -> list[tuple[str, str]]:
    table = reader.handle(key).to_table(columns=["src", "dst"])
    return list(zip(table["src"].to_pylist(), table["dst"].to_pylist(), strict=True))


def far_ends(edges: list[tuple[str, str]], node: str, direction: Direction) -> list[str]:
    """The far ends of the edges at a node; an undirected self-loop is one edge."""
    found = [dst for src, dst in edges if src == node and direction != "in"]
    found += [
        src
        for src, dst in edges
        if dst == node and (direction == "in" or (direction == "both" and src != dst))
    ]
    return sorted(found)


def assert_gives(
    table: EdgeTable, spaces: tuple[IdSpace, IdSpace], edges: list[tuple[str, str]], key: str
) -> None:
    """Neighbours, edges and membership are those of the stored rows."""
    directions = DIRECTIONS if key == "edge:Knows" else ("out", "in")
    for direction in directions:
        near, far = spaces if direction != "in" else spaces[::-1]
        names = [*PEOPLE, "p8", "nobody"]
        slots = near.intern(pa.array(names, pa.string()))
        gathered, counts = table.neighbours(direction).gather(slots)
        _, at_far, at_counts = table.at(direction, slots)
        start = at_start = 0
        for name, count, at_count in zip(names, counts.tolist(), at_counts.tolist(), strict=True):
            wanted = far_ends(edges, name, direction)
            ids = far.strings(gathered[start : start + count]).to_pylist()
            assert sorted(set(ids)) == sorted(set(wanted))
            one_each = far.strings(at_far[at_start : at_start + at_count]).to_pylist()
            assert sorted(one_each) == wanted
            start, at_start = start + count, at_start + at_count
        pairs = [(one, other) for one in names for other in PEOPLE[:4]]
        sources = near.intern(pa.array([one for one, _ in pairs]))
        targets = far.intern(pa.array([other for _, other in pairs]))
        found = table.contains(direction, sources, targets)
        wanted_pairs = [other in far_ends(edges, one, direction) for one, other in pairs]
        assert found.tolist() == wanted_pairs
        between, numbers = table.between(direction, sources, targets)
        assert numbers.tolist() == [
            far_ends(edges, one, direction).count(other) for one, other in pairs
        ]
        ends = [table.values(end, pa.string(), between).to_pylist() for end in ("src", "dst")]
        for pair, *one in zip(
            np.repeat(np.array(pairs), numbers, axis=0).tolist(), *ends, strict=True
        ):
            assert one in {"out": [pair], "in": [pair[::-1]]}.get(direction, [pair, pair[::-1]])


def view_of(table: TableVersions, reader: SnapshotReader, key: str) -> RowView:
    entry = reader.snapshot.table(key)
    return table.view(entry.ref, entry.version, reader.handle(key))


@pytest.mark.parametrize("key", ["edge:Knows", "edge:LivesIn"])
@pytest.mark.parametrize("share", [0, 10, 10**9], ids=["changed", "usual", "anew"])
def test_cached_edges_give_the_rows_of_every_version(
    graph: og.Graph, key: str, share: int, monkeypatch: pytest.MonkeyPatch
):
    # Small changes are sorted into the edges of an earlier version, or all are sorted anew.
    monkeypatch.setattr(edges_module, "CHANGED_SHARE_MAX", share)
    people = IdSpace()
    spaces = (people, people if key == "edge:Knows" else IdSpace())
    rows = TableVersions(MemoryBudget(10**9))
    readers = versions(graph)
    for reader in [*readers, *readers[::-1]]:
        edges = CachedEdges(view_of(rows, reader, key), *spaces)
        assert_gives(edges, spaces, stored(reader, key), key)
        fresh = CachedEdges(view_of(TableVersions(MemoryBudget(10**9)), reader, key), *spaces)
        for direction in ("out", "in"):
            one, other = edges.adjacency(direction), fresh.adjacency(direction)
            assert one.neighbours.tolist() == other.neighbours.tolist()
            assert one.has_loops >= other.has_loops
            assert one.has_loops <= (key == "edge:Knows")


def test_what_is_forgotten_while_it_is_needed_is_sorted_anew(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
):
    people = IdSpace()
    rows = TableVersions(MemoryBudget(10**9))
    CachedEdges(view_of(rows, reader_of(graph), "edge:Knows"), people, people).adjacency("out")
    load(graph, knows("p0", "p7"))
    real, lost = RowView.nearest_with, []

    def forgotten(self, *keys):
        found = real(self, *keys)
        if found is not None:
            found.made.clear()  # another table needed the memory just now
            lost.append(keys)
        return found

    monkeypatch.setattr(RowView, "nearest_with", forgotten)
    reader = reader_of(graph)
    edges = CachedEdges(view_of(rows, reader, "edge:Knows"), people, people)
    assert_gives(edges, (people, people), stored(reader, "edge:Knows"), "edge:Knows")
    assert len(lost) == 1


@pytest.mark.parametrize("key", ["edge:Knows", "edge:LivesIn"])
def test_fetched_edges_give_the_rows_of_every_version(graph: og.Graph, key: str):
    people = IdSpace()
    spaces = (people, people if key == "edge:Knows" else IdSpace())
    for reader in versions(graph):
        edges = FetchedEdges(reader, key, *spaces, COLUMNS)
        assert_gives(edges, spaces, stored(reader, key), key)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_edges_have_the_same_values_however_they_are_read(graph: og.Graph, direction: Direction):
    write(graph, 'delete Knows where from = "p2"')
    reader = reader_of(graph)
    people = IdSpace()
    slots = people.intern(pa.array(PEOPLE))
    cached = CachedEdges(
        view_of(TableVersions(MemoryBudget(10**9)), reader, "edge:Knows"), people, people
    )
    fetched = FetchedEdges(reader, "edge:Knows", people, people, COLUMNS)
    found = []
    for table in (cached, fetched):
        edges, _, counts = table.at(direction, slots)
        # Asked a second time, places go on where the first ones ended.
        again, _, _ = table.at(direction, slots)
        ids = table.values("id", pa.string(), edges).to_pylist()
        assert table.values("id", pa.string(), again).to_pylist() == ids
        numbers = table.values("since", pa.int32(), edges).to_pylist()
        owners = np.repeat(slots, counts).tolist()
        found.append(sorted(zip(owners, ids, numbers, strict=True), key=repr))
        assert table.values("since", pa.int32(), slots_of([-1])).to_pylist() == [None]
        assert table.values("unknown", pa.int64(), slots_of([0, 1])).to_pylist() == [None, None]
    assert found[0] == found[1]
    assert len(found[0]) >= 20
