"""Hops that bind a path: the rows they produce, and the numbers under which paths are stored."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engines.local.bindings import BindingTable, Bound, Rows
from omnigraph.engines.local.cheapest import (
    ComputedWeights,
    StoredWeights,
    WeightedEdges,
    Weights,
    cheapest_paths,
)
from omnigraph.engines.local.edges import EdgeTable
from omnigraph.engines.local.ids import Slots
from omnigraph.engines.local.nodes import NodeTable
from omnigraph.engines.local.paths import (
    LOW,
    FoundPaths,
    ListedPaths,
    MeasuredPaths,
    PathBatch,
    PathIds,
    PathSearch,
    lengths_between,
    paths_between,
)
from omnigraph.engines.local.reach import PresentOnly, reach
from omnigraph.engines.local.sorting import Keys, reserve_rows, sorted_distinct, spread
from omnigraph.engines.local.tables import Session
from omnigraph.model.records import dataclass
from omnigraph.query import plan

Found = tuple[Rows, Slots, Bound]
"""Row numbers, the target of each, and the number of its path."""


@dataclass(frozen=True, slots=True)
class PathHop:
    """A hop over the edges of a snapshot whose paths are searched."""

    session: Session
    step: plan.Expand
    edges: EdgeTable
    passed: NodeTable
    """The nodes that a path may pass."""
    weights: Weights | None
    """The weights of the edges, for cheapest paths."""

    @classmethod
    def of(
        cls, session: Session, step: plan.Expand, edges: EdgeTable, passed: NodeTable
    ) -> PathHop:
        """The hop of a step, with the weights of its edges."""
        weights: Weights | None = None
        if isinstance(step.weight, plan.ComputedWeight):
            weights = ComputedWeights(session, edges, step.weight, step.edge_type)
        elif step.weight is not None:
            weights = StoredWeights(edges, step.weight)
        return cls(session, step, edges, passed, weights)

    @property
    def is_repeated(self) -> bool:
        """Whether a path may have more than one edge."""
        tables = self.session.tables
        source, target = self.step.source_type, self.step.target_type
        return tables.space(source).serial == tables.space(target).serial

    def links(self, sources: Slots, targets: Slots) -> npt.NDArray[np.bool_]:
        """For each pair, whether the target is a destination of the source."""
        if not self.is_repeated:
            return self.edges.contains(self.step.direction, sources, targets)
        return lengths_between(self._search(), sources, targets) >= 0

    def found(self, frame: BindingTable) -> Found:
        """One path per pair, or all shortest ones."""
        step = self.step
        sources = frame.bound[step.source]
        targets = frame.bound[step.target] if step.target_is_bound else None
        distinct = sorted_distinct(sources.copy())
        if step.weight is not None:
            keys, numbers = self._cheapest(sources, distinct, targets)
        elif not self.is_repeated:
            return self._edges(sources, targets)
        elif targets is not None:
            return self._between(sources, targets)
        else:
            keys, numbers = self._shortest(distinct)
        return _by_row(sources, distinct, targets, keys, numbers)

    def _search(self) -> PathSearch:
        tables, step = self.session.tables, self.step
        is_shared = tables.is_shared(step.target_type)
        return PathSearch(
            PresentOnly(self.edges.neighbours(step.direction), self.passed.present),
            self.edges.neighbours(plan.FLIPPED[step.direction]),
            self.passed.present,
            tables.reference_space() if is_shared else tables.space(step.target_type),
            tables.minimum(step),
            step.maximum,
        )

    def _edges(self, sources: Slots, targets: Slots | None) -> Found:
        """The paths of a hop between two types, which are single edges."""
        rows: Rows
        if targets is None:
            rows, found = reach(self._search().forwards, sources, 1, 1)
        else:
            rows = np.flatnonzero(self.edges.contains(self.step.direction, sources, targets))
            found = targets[rows]
        return rows, found, self._kept(_single_edges(sources[rows], found))

    def _between(self, sources: Slots, targets: Slots) -> Found:
        """The rows with both ends bound that have a path."""
        step, search = self.step, self._search()
        if step.path_kind == "one" and step.path_variable not in self.session.prepared.followed:
            lengths = lengths_between(search, sources, targets)
            linked = np.flatnonzero(lengths >= 0)
            return linked, targets[linked], self._kept(MeasuredPaths(lengths[linked]))
        rows, parts = paths_between(search, sources, targets)
        if not parts:
            return rows, targets[:0], np.zeros(0, np.int32)
        made: FoundPaths = parts[0]
        if step.path_kind == "all":
            made = parts[0].every(np.arange(len(rows)))
            rows = rows[made.owners]
        return rows, targets[rows], self._kept(made)

    def _shortest(self, distinct: Slots) -> tuple[Keys, Bound]:
        """The destinations of every source, as keys, each with the number of its path."""
        keys: list[Keys] = [np.zeros(0, np.int64)]
        numbers: list[Bound] = [np.zeros(0, np.int32)]
        for made in self._search().all_from(distinct):
            if self.step.path_kind == "all":
                listed = made.every(np.arange(len(made.keys)))
                keys.append(made.keys[listed.owners])
                numbers.append(self._kept(listed))
            else:
                keys.append(made.keys)
                numbers.append(self._kept(made))
        return np.concatenate(keys), np.concatenate(numbers)

    def _cheapest(
        self, sources: Slots, distinct: Slots, targets: Slots | None
    ) -> tuple[Keys, Bound]:
        """The cheapest path of every pair."""
        step, search = self.step, self._search()
        assert self.weights is not None
        weighted = WeightedEdges(self.edges, step.direction, self.weights, search.present)
        if not self.is_repeated:
            owners, far, weights = weighted.at(distinct)
            keys = (owners.astype(np.int64) << 32) | far
            order = np.lexsort((weights, keys))
            first = order[np.append(True, keys[order][1:] != keys[order][:-1])[: len(order)]]
            made = _single_edges(distinct[owners[first]], far[first])
            return keys[first], self._kept(made, weights[first])
        wanted = None
        if targets is not None:
            pairs = sorted_distinct((np.searchsorted(distinct, sources) << 32) | targets)
            cuts = np.searchsorted(pairs, np.arange(1, len(distinct)) << 32)
            wanted = np.split((pairs & LOW).astype(np.int32), cuts)
        found = cheapest_paths(weighted, search.space, distinct, search.minimum, wanted)
        return found.keys, self._kept(found, found.costs)

    def _kept(self, made: FoundPaths, costs: npt.NDArray[np.float64] | None = None) -> Bound:
        """Store paths; returns their numbers."""
        tables, step = self.session.tables, self.step
        near, far = tables.is_shared(step.source_type), tables.is_shared(step.target_type)
        ids = PathIds(
            tables.reference_space() if near else tables.space(step.source_type),
            tables.reference_space() if far else tables.space(step.target_type),
            near,
            far,
        )
        self.session.governor.hold(made.nbytes)
        start = self.session.paths.add(PathBatch(made, ids, self._edge_ids, costs))
        return np.arange(start, start + len(made.lengths), dtype=np.int32)

    def _edge_ids(self, sources: Slots, targets: Slots) -> pa.Array:
        """The edge of each pair: of parallel ones the cheapest, then the one of the smallest id."""
        positions, counts = self.edges.between(self.step.direction, sources, targets)
        ids = self.edges.values("id", pa.string(), positions)
        owners = np.repeat(np.arange(len(sources)), counts)
        weights = np.zeros(len(positions))
        if self.weights is not None:
            weights, has_weight = self.weights.of(positions, sources[owners], targets[owners])
            weights = np.where(has_weight, weights, np.inf)
        ranks = np.empty(len(ids), np.int64)
        ranks[pc.sort_indices(ids).to_numpy()] = np.arange(len(ids))
        order = np.lexsort((ranks, weights, owners))
        first = np.append(True, owners[order][1:] != owners[order][:-1])[: len(order)]
        return ids.take(pa.array(order[first]))


def _single_edges(sources: Slots, targets: Slots) -> ListedPaths:
    nodes = np.stack([sources, targets], axis=1).ravel()
    return ListedPaths(np.arange(len(sources)), nodes, np.ones(len(sources), np.int32))


def _by_row(
    sources: Slots, distinct: Slots, targets: Slots | None, keys: Keys, numbers: Bound
) -> Found:
    """The paths of each row, from those of the distinct sources by source index and target."""
    place = np.searchsorted(distinct, sources)
    if targets is None:
        begin = np.searchsorted(keys, np.arange(len(distinct) + 1) << 32)
        begin, end = begin[place], begin[place + 1]
    else:
        wanted = (place << 32) | targets
        begin, end = np.searchsorted(keys, wanted), np.searchsorted(keys, wanted, side="right")
    reserve_rows(int((end - begin).sum()), 16)
    at = spread(begin, end - begin)
    rows = np.repeat(np.arange(len(sources)), end - begin)
    return rows, (keys[at] & LOW).astype(np.int32), numbers[at]
