"""Cheapest paths: those whose edges have the smallest sum of a property, its weight.

Costs are found in the order of Dijkstra's algorithm, but many nodes at a time: each round expands
all nodes whose cost was lowered and is within about one edge's weight of the smallest. A node that
was expanded too early is expanded again when its cost is lowered. The search ends when no node is
left, or when all that are left cost more than the bound targets.

Of several paths of equal cost, one with the fewest edges is returned, and of those the one whose
node ids are smallest, compared from the target backwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.bindings import BindingTable, BindingValues
from omnigraph.engines.local.edges import EdgeTable
from omnigraph.engines.local.ids import AnySpace, Slots
from omnigraph.engines.local.paths import LOW, Distances, Mask, ShortestPaths
from omnigraph.engines.local.reach import Rows
from omnigraph.engines.local.rows import Positions
from omnigraph.engines.local.sorting import Keys, sorted_distinct
from omnigraph.engines.local.tables import Session
from omnigraph.errors import InputError
from omnigraph.model.arrow import ID, arrow_type
from omnigraph.model.governor import current
from omnigraph.model.records import dataclass
from omnigraph.query.expressions import PropertyValue
from omnigraph.query.plan import FLIPPED, ComputedWeight, Direction

Costs = npt.NDArray[np.float64]


@dataclass(slots=True)
class WeightedEdges:
    """The edges of a hop with their weights."""

    edges: EdgeTable
    direction: Direction
    weights: Weights
    present: Callable[[Slots], Mask | None]
    """Which of some nodes a path may pass; None for all of them."""
    followed: int = 0
    """How many nodes have been expanded."""

    def at(self, slots: Slots, direction: Direction | None = None) -> tuple[Rows, Slots, Costs]:
        """The edges at some nodes that have a weight: index of the node, other end, weight.

        With a ``direction`` the nodes are the far ends of the edges.
        """
        self.followed += len(slots)
        positions, found, counts = self.edges.at(direction or self.direction, slots)
        owners = np.repeat(np.arange(len(slots)), counts)
        near, far = (slots[owners], found) if direction is None else (found, slots[owners])
        weights, has_weight = self.weights.of(positions, near, far)
        present = self.present(found) if direction is None else None
        if present is not None:
            has_weight &= present
        if has_weight.all():
            return owners, found, weights
        return owners[has_weight], found[has_weight], weights[has_weight]


class Weights(Protocol):
    """The weights of the edges of a hop."""

    def of(self, positions: Positions, near: Slots, far: Slots) -> tuple[Costs, Mask]:
        """The weights of some edges from one end to the other, and which edges have one.

        Raises `InputError` for weights that cannot be summed.
        """
        ...


@dataclass(frozen=True, slots=True)
class StoredWeights:
    """Weights that are a property of the edges."""

    edges: EdgeTable
    weight: PropertyValue

    def of(self, positions: Positions, near: Slots, far: Slots) -> tuple[Costs, Mask]:
        """The weights of some edges, the same in both directions."""
        weight = self.weight
        column = self.edges.values(weight.property, arrow_type(weight.type), positions)
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        weights = _checked_weights(column, self.edges, positions, weight)
        return weights, valid.copy()


@dataclass(slots=True)
class ComputedWeights:
    """Weights computed per edge and direction, when a search first meets the edge."""

    session: Session
    edges: EdgeTable
    weight: ComputedWeight
    edge_type: str
    _known: Costs = field(default_factory=lambda: np.zeros(0))
    """Entry `2 p` is of the edge at position `p`, `2 p + 1` from the larger slot to the smaller
    one.

    NaN: no weight. Negative: not computed yet.
    """

    def of(self, positions: Positions, near: Slots, far: Slots) -> tuple[Costs, Mask]:
        """The weights of some edges from one end to the other."""
        keys = 2 * positions.astype(np.int64) + (near > far)
        size = int(keys.max(initial=-1)) + 1
        if size > len(self._known):
            more = np.full(max(size, 2 * len(self._known)) - len(self._known), -1.0)
            self.session.governor.hold(more.nbytes)
            self._known = np.concatenate([self._known, more])
        missing = np.flatnonzero(self._known[keys] < 0)
        if len(missing):
            distinct, first = np.unique(keys[missing], return_index=True)
            rows = missing[first]
            self._known[distinct] = self._computed(positions[rows], near[rows], far[rows])
        weights = self._known[keys]
        return weights, ~np.isnan(weights)

    def _computed(self, positions: Positions, near: Slots, far: Slots) -> Costs:
        weight, session = self.weight, self.session
        session.edges_of[weight.edge] = self.edges
        bound = {weight.near: near, weight.edge: positions, weight.far: far}
        frame = BindingTable(
            len(positions), {name: slots.astype(np.int32) for name, slots in bound.items()}
        )
        column = BindingValues(session, frame).column(weight.value)
        weights = _checked_weights(column, self.edges, positions, self.edge_type)
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        return np.where(valid, weights, np.nan)


def _checked_weights(
    column: pa.Array, edges: EdgeTable, positions: Positions, weight: PropertyValue | str
) -> Costs:
    """The weights of some edges, 0 for edges without one."""
    numbers = column.cast(pa.float64(), safe=False).fill_null(0.0)
    weights: Costs = numbers.to_numpy(zero_copy_only=False)
    is_right = (weights >= 0) & np.isfinite(weights)
    if not bool(is_right.all()):
        wrong = int(np.flatnonzero(~is_right)[0])
        id = edges.values(ID, pa.string(), positions[wrong : wrong + 1])[0].as_py()
        raise refused_weight(weight, id, float(weights[wrong]))
    return weights


def refused_weight(weight: PropertyValue | str, id: str, value: float) -> InputError:
    """The error for a weight that is negative or not finite.

    A computed weight is named by the type of its edges.
    """
    if isinstance(weight, str):
        what, hint = f"{weight} {id} has the computed weight {value:g}", "compute another weight"
    else:
        what = f"{weight.type_name} {id} has the {weight.property} {value:g}"
        hint = "give these edges other values, or add up another property"
    return InputError(f"{what}; the edges of a cheapest path have weights of 0 or more", hint=hint)


@dataclass(frozen=True, slots=True)
class CheapestPaths(ShortestPaths):
    """The cheapest paths of a search; distances are the fewest edges of a cheapest path."""

    weighted: WeightedEdges = field(kw_only=True)
    visited_costs: Costs = field(kw_only=True)
    costs: Costs = field(kw_only=True)
    """The cost of each path."""

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
    """The cheapest paths from every source, to all nodes or to those in ``wanted`` for each source.

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
    """The highest cost of a wanted node; costs above it may be too high."""

    def found(self, source: int, place: int, minimum: int, wanted: Slots | None) -> _Found:
        """The columns of `CheapestPaths`; ``place`` is the index of the source."""
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
        """The number of edges of the shortest cheapest path to each node; -1 without one."""
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
        """Make room for nodes that lookups have added."""
        if slot >= len(self.costs):
            more = np.full(slot + 1 - len(self.costs), np.inf)
            self.costs = np.concatenate([self.costs, more])
