"""Hops: the breadth-first search of the language, one source at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise
from typing import Any

from omnigraph.errors import InputError
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
    """The destinations of ``source``, each as one shortest path to it, or as all of them.

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
    if hop.path_kind == "all":
        return [path for paths in emitted.values() for path in paths]
    return [min(paths, key=from_the_end) for paths in emitted.values()]


def from_the_end(path: Path) -> Path:
    """Compares paths by their ids from the target backwards."""
    return path[::-1]


# --- cheapest paths -------------------------------------------------------------------------------


Weigh = Callable[[Entity, str, str], Any]
"""What an edge weighs from one node to another."""


def weight_of(hop: Expand, weigh: Weigh, edge: Entity, here: str, there: str) -> float | None:
    """What an edge adds to the cost of a path; None if it is not taken."""
    value = weigh(edge, here, there)
    if value is not None and not 0 <= value < math.inf:
        raise InputError(f"{hop.edge_type} {edge['id']} has the weight {value}")
    return None if value is None else float(value)


def cheapest(
    hop: Expand,
    source: str,
    edges: Sequence[Entity],
    nodes: set[str],
    one_type: bool,
    may_stay: bool,
    weigh: Weigh,
) -> list[Path]:
    """The destinations of ``source``, each as its cheapest path: see `destinations`.

    Dijkstra's algorithm over whole paths: the best one that is left is taken next.
    """
    if not one_type:
        steps = [s for s in steps_from(source, edges, hop.direction) if s.to in nodes]
        reached = {
            step.to
            for step in steps
            if weight_of(hop, weigh, step.edge, source, step.to) is not None
        }
        return [(source, there) for there in sorted(reached)]
    found: dict[str, Path] = {}
    loops = False
    waiting: list[tuple[float, int, Path]] = [(0.0, 0, (source,))]
    while waiting:
        cost, length, backwards = heappop(waiting)
        here = backwards[0]
        if here in found:
            continue
        found[here] = backwards[::-1]
        for step in steps_from(here, edges, hop.direction):
            weight = weight_of(hop, weigh, step.edge, here, step.to)
            if weight is None or step.to not in nodes:
                continue
            loops = loops or step.to == here == source
            if step.to != here:
                heappush(waiting, (cost + weight, length + 1, (step.to, *backwards)))
    if not (hop.minimum == 0 and may_stay):
        found.pop(source)
        if hop.minimum == 1 and loops:
            found[source] = (source, source)
    return list(found.values())


def edges_along(
    hop: Expand, path: Path, edges: Sequence[Entity], weigh: Weigh | None
) -> tuple[tuple[str, ...], float | None]:
    """The ids of the edges of a path, and what they add up to."""
    ids: list[str] = []
    cost = 0.0
    for here, there in pairwise(path):
        steps = [step.edge for step in steps_from(here, edges, hop.direction) if step.to == there]
        if weigh is None:
            ids.append(min(str(edge["id"]) for edge in steps))
            continue
        weighted = [(weight_of(hop, weigh, edge, here, there), str(edge["id"])) for edge in steps]
        weight, id = min((weight, id) for weight, id in weighted if weight is not None)
        cost += weight
        ids.append(id)
    return tuple(ids), None if weigh is None else cost
