"""Shortest paths: for each pair of a hop, one way to get there.

Of several shortest paths it is the one whose nodes, read from the target backwards, have the
smallest ids.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.ids import IdSpace, Slots
from omnigraph.engines.local.reach import Neighbours


@dataclass(slots=True)
class PathStore:
    """The paths found by a query; a path variable is bound to a number in here."""

    _nodes: list[list[str]] = field(default_factory=list)

    def add(self, nodes: list[str]) -> int:
        """Remember a path."""
        self._nodes.append(nodes)
        return len(self._nodes) - 1

    def nodes(self, numbers: npt.NDArray[np.int32]) -> pa.Array:
        """The ids along each path, both ends included."""
        found = [None if number < 0 else self._nodes[number] for number in numbers.tolist()]
        return pa.array(found, pa.list_(pa.field("item", pa.string())))

    def lengths(self, numbers: npt.NDArray[np.int32]) -> pa.Array:
        """The number of hops of each path."""
        found = [
            None if number < 0 else len(self._nodes[number]) - 1 for number in numbers.tolist()
        ]
        return pa.array(found, pa.int64())


def paths_from(
    neighbours: Neighbours,
    spaces: tuple[IdSpace, IdSpace],
    source: int,
    minimum: int,
    maximum: int,
) -> dict[int, list[str]]:
    """The destinations of one source, each with the ids along its path."""
    source_space, target_space = spaces
    start = source_space.string(source)
    if source_space is not target_space:
        # Between two types there is one hop and no way back.
        targets, _ = neighbours.gather(np.array([source], np.int32))
        return {target: [start, target_space.string(target)] for target in targets.tolist()}
    ways: dict[int, list[str]] = {source: [start]}
    found: dict[int, list[str]] = {}
    level = [source]
    for hop in range(1, maximum + 1):
        frontier: Slots = np.array(level, np.int32)
        targets, counts = neighbours.gather(frontier)
        came_from: dict[int, int] = {}
        for origin, target in zip(
            np.repeat(frontier, counts).tolist(), targets.tolist(), strict=True
        ):
            if origin == target:
                if hop >= minimum and target not in found:
                    found[target] = [*ways[target], ways[target][-1]]
            elif target not in ways:
                best = came_from.setdefault(target, origin)
                if ways[origin][-1] < ways[best][-1]:
                    came_from[target] = origin
        for target, origin in came_from.items():
            ways[target] = [*ways[origin], target_space.string(target)]
            if hop >= minimum:
                found[target] = ways[target]
        level = list(came_from)
        if not level:
            break
    return found
