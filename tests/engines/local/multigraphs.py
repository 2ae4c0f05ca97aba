"""Random multigraphs, and the hops of the language over them, one node at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from hypothesis import strategies as st

from omnigraph.engines.local.adjacency import Adjacency
from omnigraph.engines.local.ids import Slots

Direction = Literal["out", "in", "both"]
DIRECTIONS: tuple[Direction, ...] = ("out", "in", "both")

Edge = tuple[int, int]


@dataclass(frozen=True)
class Multigraph:
    """Edges between the nodes 0 … nodes-1; parallel edges and self-loops are likely."""

    nodes: int
    edges: tuple[Edge, ...]

    @property
    def sources(self) -> Slots:
        return np.array([source for source, _ in self.edges], np.int32)

    @property
    def targets(self) -> Slots:
        return np.array([target for _, target in self.edges], np.int32)

    def adjacency(self, direction: Direction) -> Adjacency:
        """What the engine builds of it."""
        if direction == "out":
            return Adjacency.build(self.sources, self.targets, self.nodes)
        if direction == "in":
            return Adjacency.build(self.targets, self.sources, self.nodes)
        return Adjacency.undirected(self.sources, self.targets, self.nodes)

    def neighbours(self, node: int, direction: Direction) -> list[int]:
        """The far ends of the edges at a node, as often as there are edges, ascending."""
        found = []
        for source, target in self.edges:
            if direction in ("out", "both") and source == node:
                found.append(target)
            if direction in ("in", "both") and target == node:
                found.append(source)
        return sorted(found)

    def destinations(
        self, source: int, direction: Direction, minimum: int, maximum: int
    ) -> dict[int, int]:
        """The search of the language: destinations with the hop at which each is first emitted."""
        visited = {source}
        level = [source]
        emitted: dict[int, int] = {source: 0} if minimum == 0 else {}
        for hop in range(1, maximum + 1):
            if not level:
                break
            following = []
            for here in level:
                for there in self.neighbours(here, direction):
                    if there == here:
                        if hop >= minimum:
                            emitted.setdefault(there, hop)
                    elif there not in visited:
                        visited.add(there)
                        following.append(there)
                        if hop >= minimum:
                            emitted.setdefault(there, hop)
            level = following
        return emitted


@st.composite
def multigraphs(draw: st.DrawFn, *, nodes_max: int = 9, edges_max: int = 24) -> Multigraph:
    """Any small multigraph, the empty one included."""
    nodes = draw(st.integers(1, nodes_max))
    end = st.integers(0, nodes - 1)
    edges = draw(st.lists(st.tuples(end, end), max_size=edges_max))
    return Multigraph(nodes, tuple(edges))


def slots_of(numbers: Sequence[int]) -> Slots:
    return np.array(numbers, np.int32)
