"""Cheapest paths: those whose edges have the smallest sum of a property, its weight.

Costs are found in the order of Dijkstra's algorithm, many nodes at a time: of the nodes whose cost
was lowered, those within about the weight of one edge of the cheapest go on together. What was too
early is lowered again. The search ends where no node is left, or where all that are left cost more
than the bound targets.

Of several paths of one cost it is one with the fewest edges, and of those the one whose node ids
are smallest from the target backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.adjacency import Keys
from omnigraph.engines.local.edges import EdgeTable
from omnigraph.engines.local.ids import AnySpace, Slots
from omnigraph.engines.local.paths import LOW, Distances, Mask, ShortestPaths
from omnigraph.engines.local.reach import Rows
from omnigraph.engines.local.sorting import sorted_distinct
from omnigraph.errors import InputError
from omnigraph.model.arrow import arrow_type
from omnigraph.model.governor import current
from omnigraph.query.expressions import PropertyValue
from omnigraph.query.plan import FLIPPED, Direction

Costs = npt.NDArray[np.float64]


@dataclass(slots=True)
class WeightedEdges:
    """The edges of a hop with their weights."""

    edges: EdgeTable
    direction: Direction
    weight: PropertyValue
    present: Callable[[Slots], Mask | None]
    """Which nodes exist, of those that a path may pass; None for all."""
    followed: int = 0
    """How many nodes were asked for their edges."""

    def at(self, slots: Slots, direction: Direction | None = None) -> tuple[Rows, Slots, Costs]:
        """The edges at some nodes that have a weight: place of the node, other end, weight."""
        self.followed += len(slots)
        positions, far, counts = self.edges.at(direction or self.direction, slots)
        owners = np.repeat(np.arange(len(slots)), counts)
        weights, has_weight = weights_of(self.edges, self.weight, positions)
        present = self.present(far) if direction is None else None
        if present is not None:
            has_weight &= present
        if has_weight.all():
            return owners, far, weights
        return owners[has_weight], far[has_weight], weights[has_weight]


def weights_of(edges: EdgeTable, weight: PropertyValue, positions: Slots) -> tuple[Costs, Mask]:
    """The weights of some edges, and which have one; one that cannot be added up is refused."""
    column = edges.values(weight.property, arrow_type(weight.type), positions)
    valid = column.is_valid().to_numpy(zero_copy_only=False)
    numbers = column.cast(pa.float64(), safe=False).fill_null(0.0)
    weights: Costs = numbers.to_numpy(zero_copy_only=False)
    if not bool(((weights >= 0) & np.isfinite(weights)).all()):
        wrong = int(np.flatnonzero(~((weights >= 0) & np.isfinite(weights)))[0])
        id = edges.values("id", pa.string(), positions[wrong : wrong + 1])[0].as_py()
        raise refused_weight(weight, id, float(weights[wrong]))
    return weights, valid.copy()


def refused_weight(weight: PropertyValue, id: str, value: float) -> InputError:
    """The error of a weight that no cheapest path can be found with."""
    return InputError(
        f"{weight.type_name} {id} has the {weight.property} {value:g}; the edges of a cheapest "
        "path have weights of 0 or more",
        hint="give these edges other values, or add up another property",
    )


@dataclass(frozen=True, slots=True)
class CheapestPaths(ShortestPaths):
    """The cheapest paths of a search; distances are the fewest edges of a cheapest path."""

    weighted: WeightedEdges = field(kw_only=True)
    visited_costs: Costs = field(kw_only=True)
    costs: Costs = field(kw_only=True)
    """Of the paths."""

    def some(self, numbers: Rows) -> CheapestPaths:
        """Some of the paths."""
        return replace(
            self,
            keys=self.keys[numbers],
            lengths=self.lengths[numbers],
            costs=self.costs[numbers],
        )

    def _before(self, keys: Keys, distance: int) -> tuple[Rows, Keys]:
        weighted = self.weighted
        nodes = (keys & LOW).astype(np.int32)
        owners, found, weights = weighted.at(nodes, FLIPPED[weighted.direction])
        before = (keys[owners] & ~LOW) | found
        at = np.minimum(np.searchsorted(self.visited, before), len(self.visited) - 1)
        cost = self.visited_costs[np.searchsorted(self.visited, keys)][owners]
        fits = (self.visited[at] == before) & (self.distances[at] == distance - 1)
        fits &= self.visited_costs[at] + weights == cost
        # Parallel edges may come in any order.
        pairs = sorted_distinct((owners[fits].astype(np.int64) << 32) | found[fits])
        owners = pairs >> 32
        return owners, (keys[owners] & ~LOW) | (pairs & LOW)


def cheapest_paths(
    weighted: WeightedEdges,
    space: AnySpace,
    sources: Slots,
    minimum: int,
    wanted: Sequence[Slots] | None = None,
) -> CheapestPaths:
    """The cheapest paths from every source, to all nodes or to those that are wanted of each.

    The sources are distinct. With a minimum of 1 the path from a node to itself is an edge.
    """
    found = [
        _CheapestSearch(weighted, np.full(max(len(space), source + 1), np.inf)).found(
            source, place, minimum, None if wanted is None else wanted[place]
        )
        for place, source in enumerate(sources.tolist())
    ]
    visited, distances, visited_costs, keys, lengths, costs = (
        np.concatenate(column) if found else np.zeros(0, type)
        for column, type in zip(
            zip(*found, strict=True) if found else [()] * 6,
            (np.int64, np.int32, np.float64, np.int64, np.int32, np.float64),
            strict=True,
        )
    )
    return CheapestPaths(
        0,
        sources,
        visited,
        distances,
        keys,
        lengths,
        weighted.edges.neighbours(FLIPPED[weighted.direction]),
        space,
        weighted=weighted,
        visited_costs=visited_costs,
        costs=costs,
    )


_Found = tuple[Keys, Distances, Costs, Keys, Distances, Costs]


@dataclass(slots=True)
class _CheapestSearch:
    """The search from one source."""

    weighted: WeightedEdges
    costs: Costs
    """Of every node met so far; infinite for the others."""
    limit: float = np.inf
    """What the wanted nodes cost at most; costs above it may be too high."""

    def found(self, source: int, place: int, minimum: int, wanted: Slots | None) -> _Found:
        """The columns of `CheapestPaths`; ``place`` is that of the source."""
        self._lower_costs(source, wanted)
        hops = self._fewest_edges(source)
        visited = np.flatnonzero(hops >= 0)
        emitted = visited if minimum == 0 else visited[visited != source]
        lengths, costs = hops[emitted], self.costs[emitted]
        if minimum == 1:
            _, far, weights = self.weighted.at(np.array([source], np.int32))
            loops = weights[far == source]
            if len(loops):
                emitted = np.append(emitted, source)
                lengths = np.append(lengths, np.int32(1))
                costs = np.append(costs, loops.min())
        if wanted is not None:
            some = np.isin(emitted, wanted)
            emitted, lengths, costs = emitted[some], lengths[some], costs[some]
        order = np.argsort(emitted, kind="stable")
        start = place << 32
        return (
            visited.astype(np.int64) | start,
            hops[visited],
            self.costs[visited],
            emitted[order].astype(np.int64) | start,
            lengths[order],
            costs[order],
        )

    def _lower_costs(self, source: int, wanted: Slots | None) -> None:
        """Find the costs of all nodes, or those up to the limit."""
        governor = current()
        self.costs[source] = 0.0
        frontier = np.array([source], np.int32)
        width = -1.0
        while len(frontier):
            costs = self.costs[frontier]
            low = float(costs.min())
            if wanted is not None:
                self._grow(int(wanted.max(initial=0)))
                self.limit = float(self.costs[wanted].max(initial=0.0))
                if low > self.limit:
                    break
            now = costs <= low + max(width, 0.0)
            chosen, rest = frontier[now], frontier[~now]
            owners, far, weights = self.weighted.at(chosen)
            governor.reserve(48 * len(far))
            if width < 0 and len(weights):
                width = float(weights.mean())
            offered = self.costs[chosen][owners] + weights
            self._grow(int(far.max(initial=0)))
            better = (offered < self.costs[far]) & (offered <= self.limit)
            far, offered = far[better], offered[better]
            np.minimum.at(self.costs, far, offered)
            frontier = sorted_distinct(np.concatenate([rest, far]))

    def _fewest_edges(self, source: int) -> Distances:
        """How many edges the shortest of the cheapest paths to each node has; -1 without one."""
        hops = np.full(len(self.costs), -1, np.int32)
        hops[source] = 0
        frontier = np.array([source], np.int32)
        level = 0
        while len(frontier):
            level += 1
            owners, far, weights = self.weighted.at(frontier)
            reached = self.costs[frontier][owners] + weights
            fits = (reached == self.costs[far]) & (hops[far] < 0) & (reached <= self.limit)
            frontier = sorted_distinct(far[fits])
            hops[frontier] = level
        return hops

    def _grow(self, slot: int) -> None:
        """Make room for nodes that lookups have met since."""
        if slot >= len(self.costs):
            more = np.full(slot + 1 - len(self.costs), np.inf)
            self.costs = np.concatenate([self.costs, more])
