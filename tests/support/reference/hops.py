"""Hops: the breadth-first search of the language, one source at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from omnigraph.query.plan import Expand
from tests.support.reference.solutions import Entity, Path


@dataclass(frozen=True)
class Step:
    """One way to walk one stored edge from a node."""

    edge: Entity
    to: str


def steps_from(node: str, edges: Sequence[Entity], direction: str) -> Iterator[Step]:
    """Every edge that leads away from ``node``; an undirected self-loop is one step, not two."""
    for edge in edges:
        leaves = edge["src"] == node
        arrives = edge["dst"] == node
        if direction == "both" and leaves and arrives:
            yield Step(edge, node)
            continue
        if direction in ("out", "both") and leaves:
            yield Step(edge, edge["dst"])
        if direction in ("in", "both") and arrives:
            yield Step(edge, edge["src"])


def destinations(
    hop: Expand,
    source: str,
    edges: Sequence[Entity],
    nodes: set[str],
    one_type: bool,
    may_stay: bool,
) -> list[Path]:
    """The destinations of ``source``, each as one shortest path to it.

    ``nodes`` are the ids that exist at the far end: an edge to anywhere else leads nowhere.
    ``one_type`` says whether an edge may begin where another one ended, ``may_stay`` whether no
    step at all may lead from the source to a target.
    """
    visited = {source} if one_type else set()
    level: list[list[Path]] = [[(source,)]]
    """The nodes of a level, each as all the shortest paths that lead to it."""
    emitted: dict[str, list[Path]] = {}
    if hop.minimum == 0 and may_stay:
        emitted[source] = [(source,)]
    last = hop.maximum if one_type else min(hop.maximum, 1)
    for number in range(1, last + 1):
        if not level:
            break
        found: dict[str, list[Path]] = {}
        for paths in level:
            here = paths[0][-1]
            reached = {step.to for step in steps_from(here, edges, hop.direction)} & nodes
            for there in sorted(reached):
                longer = [(*path, there) for path in paths]
                if one_type and there == here:
                    if number >= hop.minimum:
                        emitted.setdefault(there, longer)
                elif there not in visited:
                    found.setdefault(there, []).extend(longer)
        visited |= found.keys() if one_type else set()
        if number >= hop.minimum:
            for there, paths in found.items():
                emitted.setdefault(there, paths)
        level = list(found.values())
    return [min(paths, key=from_the_end) for paths in emitted.values()]


def from_the_end(path: Path) -> Path:
    """Compares paths by their ids from the target backwards."""
    return path[::-1]
