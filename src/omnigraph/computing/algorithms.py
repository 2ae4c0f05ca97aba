"""The algorithms, each defined once over a `Block`, for every engine.

An algorithm runs in rounds. In each, the values of a block's nodes are sent to the blocks that have
them as ghosts (`sent`), and every block recomputes its nodes from the received values (`step`).
Blocks report a few numbers per round; their sums decide whether to continue, and are available in
the next round. Connected components use another method with few rounds, which each engine
implements itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from omnigraph.computing.blocks import Block, Counts, Floats, Keys, Places, owner_of, ranges
from omnigraph.model.records import dataclass

State: TypeAlias = Any
"""A block's state between rounds; its type depends on the algorithm."""
Payload: TypeAlias = Any
Report: TypeAlias = Floats
Columns: TypeAlias = Mapping[str, npt.NDArray[Any]]

EdgeUse = Literal["directed", "pairs", "undirected", "simple"]
"""Edges as the direction says, or the pairs of nodes that they link, each once and without loops;
edges both ways, or such pairs."""

ROW_PLACES = "place"
"""The column with the node of each row, where a node has no row or several."""

WEDGES_AT_ONCE = 1 << 22
"""Candidate triangles tested at a time."""


@dataclass(frozen=True, slots=True)
class Round:
    """The result of a block's round."""

    state: State
    report: Report
    mail: Mapping[int, Payload] = field(default_factory=dict)
    """Messages to other blocks, besides the values of nodes, for their next round."""


@dataclass(frozen=True, slots=True)
class Received:
    """The input of a block's round from the other blocks."""

    values: Sequence[Payload]
    """The values of its ghosts, by owning block."""
    mail: Sequence[Payload]
    total: Report
    """The sums of the last reports."""
    nodes: int
    """The number of nodes of the whole graph."""


class Described(Protocol):
    """The static properties of an algorithm."""

    name: ClassVar[str]
    edge_use: ClassVar[EdgeUse]
    is_weighted: ClassVar[bool]
    """Whether it can use edge weights."""


class Algorithm(Described, Protocol):
    """One algorithm with its parameters."""

    @property
    def iterations(self) -> int | None:
        """The maximum number of rounds; None for no limit."""
        ...

    def first(self, block: Block, nodes: int) -> tuple[State, Report]:
        """The state before the first round; ``nodes`` is the size of the whole graph."""
        ...

    def sent(self, block: Block, state: State, own: Places | slice) -> Payload:
        """The values of the nodes at ``own``, in the form for other blocks."""
        ...

    def step(self, block: Block, state: State, received: Received) -> Round:
        """Compute one round."""
        ...

    def is_done(self, total: Report, rounds: int) -> bool:
        """Whether the state is final after ``rounds`` rounds."""
        ...

    def columns(self, block: Block, state: State) -> Columns:
        """The values of the nodes, or of the rows if there are `ROW_PLACES`."""
        ...


def joined(received: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """The values of all ghosts, in their order."""
    return received[0] if len(received) == 1 else np.concatenate(received)


# --- ranks ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PageRank:
    """The share of a random walk's time that it spends at each node; all ranks add up to 1.

    The walk follows edges by their weights, and with probability ``1 - damping``, or at a node
    without edges, continues at any node.
    """

    name: ClassVar[str] = "pagerank"
    edge_use: ClassVar[EdgeUse] = "directed"
    is_weighted: ClassVar[bool] = True
    damping: float = 0.85
    iterations: int = 20
    tolerance: float = 1e-6
    """Converged when the changes of a round add up to less."""

    def first(self, block: Block, nodes: int) -> tuple[Floats, Report]:
        """Equal ranks."""
        ranks = np.full(block.nodes, 1.0 / max(nodes, 1))
        return ranks, np.array([np.inf, self._stuck(block, ranks)])

    def sent(self, block: Block, state: Floats, own: Places | slice) -> Floats:
        """The rank that flows along an edge of weight 1."""
        flowing: Floats = state[own] * block.shares[own]
        return flowing

    def step(self, block: Block, state: Floats, received: Received) -> Round:
        """The ranks after one step of the walk."""
        nodes = received.nodes
        ranks = block.sums(joined(received.values))
        ranks += received.total[1] / nodes
        ranks *= self.damping
        ranks += (1.0 - self.damping) / nodes
        difference = ranks - state
        changed = float(np.abs(difference, out=difference).sum())
        return Round(ranks, np.array([changed, self._stuck(block, ranks)]))

    def is_done(self, total: Report, rounds: int) -> bool:
        """Whether the ranks have converged."""
        return bool(total[0] < self.tolerance)

    def columns(self, block: Block, state: Floats) -> Columns:
        """`rank`."""
        return {"rank": state}

    @staticmethod
    def _stuck(block: Block, ranks: Floats) -> float:
        """The total rank of nodes without outgoing edges."""
        return float(ranks[block.ends].sum())


@dataclass(frozen=True, slots=True)
class Degrees:
    """The in-degree, out-degree and degree of each node."""

    name: ClassVar[str] = "degree"
    edge_use: ClassVar[EdgeUse] = "directed"
    is_weighted: ClassVar[bool] = False
    iterations: int | None = None

    def first(self, block: Block, nodes: int) -> tuple[None, Report]:
        """No state: blocks know the degrees of their nodes."""
        return None, np.zeros(1)

    def sent(self, block: Block, state: None, own: Places | slice) -> None:
        """Nothing."""
        return

    def step(self, block: Block, state: None, received: Received) -> Round:
        """Nothing to compute."""
        return Round(None, np.zeros(1))

    def is_done(self, total: Report, rounds: int) -> bool:
        """True: no round is needed."""
        return True

    def columns(self, block: Block, state: None) -> Columns:
        """`in_degree`, `out_degree` and `degree`."""
        into, out = block.in_degrees, block.out_weights.astype(np.int64)
        return {"in_degree": into, "out_degree": out, "degree": into + out}


# --- groups ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ConnectedComponents:
    """Groups of nodes linked by edges in either direction, named after one member."""

    name: ClassVar[str] = "connected_components"
    edge_use: ClassVar[EdgeUse] = "undirected"
    is_weighted: ClassVar[bool] = False
    iterations: int | None = None


@dataclass(frozen=True, slots=True)
class LabelPropagation:
    """Communities: in each round, all nodes take the most frequent label of their neighbours.

    Edges count by their weight. Of equally frequent labels the one with the smallest key wins, so
    that the result is deterministic. A community is named after the node whose label it has.
    """

    name: ClassVar[str] = "label_propagation"
    edge_use: ClassVar[EdgeUse] = "undirected"
    is_weighted: ClassVar[bool] = True
    iterations: int = 10

    def first(self, block: Block, nodes: int) -> tuple[Keys, Report]:
        """Every node has its own label."""
        return block.keys, np.array([np.inf])

    def sent(self, block: Block, state: Keys, own: Places | slice) -> Keys:
        """The labels."""
        return state[own]

    def step(self, block: Block, state: Keys, received: Received) -> Round:
        """The most frequent label among each node's neighbours."""
        labels = joined(received.values)[block.sources]
        if not len(labels):
            return Round(state, np.zeros(1))
        owners = block.targets()
        order = np.lexsort((labels, owners))
        owners, labels = owners[order], labels[order]
        first = np.append(True, (owners[1:] != owners[:-1]) | (labels[1:] != labels[:-1]))
        starts = np.flatnonzero(first)
        weights = np.ones(len(order)) if block.weights is None else block.weights[order]
        votes = np.add.reduceat(weights, starts)
        owners, labels = owners[starts], labels[starts]
        begins = np.flatnonzero(np.append(True, owners[1:] != owners[:-1]))
        most = np.maximum.reduceat(votes, begins)
        best = np.flatnonzero(votes == np.repeat(most, np.diff(np.append(begins, len(votes)))))
        # Labels of a node are ascending, so the first of the best is the smallest.
        best = best[np.append(True, owners[best][1:] != owners[best][:-1])]
        after = state.copy()
        after[owners[best]] = labels[best]
        return Round(after, np.array([float((after != state).sum())]))

    def is_done(self, total: Report, rounds: int) -> bool:
        """Whether no node changed its label."""
        return bool(total[0] == 0)

    def columns(self, block: Block, state: Keys) -> Columns:
        """`community`, as the key of a node."""
        return {"community": state}


# --- distances ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LandmarkDistances:
    """The distance from each landmark to every reachable node.

    It is the number of edges, or the sum of their weights, which must not be negative.
    """

    name: ClassVar[str] = "shortest_paths"
    edge_use: ClassVar[EdgeUse] = "directed"
    is_weighted: ClassVar[bool] = True
    landmarks: tuple[int, ...] = ()
    """The keys of the landmarks."""
    iterations: int | None = None

    def first(self, block: Block, nodes: int) -> tuple[Floats, Report]:
        """Zero at the landmarks, infinity elsewhere."""
        distances = np.full((block.nodes, len(self.landmarks)), np.inf)
        for column, key in enumerate(self.landmarks):
            distances[np.flatnonzero(block.keys == np.uint64(key)), column] = 0.0
        return distances, np.array([np.inf])

    def sent(self, block: Block, state: Floats, own: Places | slice) -> Floats:
        """The distances."""
        return state[own]

    def step(self, block: Block, state: Floats, received: Received) -> Round:
        """Relax paths by one more edge."""
        reached = joined(received.values)
        further = 1.0 if block.weights is None else block.weights
        after = np.empty_like(state)
        for column in range(len(self.landmarks)):
            over = reached[:, column][block.sources] + further
            after[:, column] = np.minimum(state[:, column], block.reduced(np.minimum, over, np.inf))
        return Round(after, np.array([float((after < state).sum())]))

    def is_done(self, total: Report, rounds: int) -> bool:
        """Whether no distance decreased."""
        return bool(total[0] == 0)

    def columns(self, block: Block, state: Floats) -> Columns:
        """One column of distances per landmark, named by its number."""
        return {str(column): state[:, column] for column in range(len(self.landmarks))}


# --- dense parts ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class KCore:
    """The core number: the largest k such that the node is in a subgraph with minimum degree k.

    It is the largest k such that k neighbours have a core number of at least k. Starting with
    degrees, every round lowers the numbers to what the neighbours allow, until nothing changes.
    """

    name: ClassVar[str] = "k_core"
    edge_use: ClassVar[EdgeUse] = "simple"
    is_weighted: ClassVar[bool] = False
    iterations: int | None = None

    def first(self, block: Block, nodes: int) -> tuple[Counts, Report]:
        """Degrees."""
        return block.in_degrees, np.array([np.inf])

    def sent(self, block: Block, state: Counts, own: Places | slice) -> Counts:
        """The current upper bounds."""
        return state[own]

    def step(self, block: Block, state: Counts, received: Received) -> Round:
        """Lower the bound of nodes with too few neighbours of at least that bound."""
        around = joined(received.values)[block.sources]
        enough = (around >= np.repeat(state, block.in_degrees)).astype(np.int64)
        low = np.flatnonzero(block.reduced(np.add, enough, 0) < state)
        after = state.copy()
        if len(low):
            counts = block.in_degrees[low]
            values = around[ranges(block.pointers[low], counts)]
            owners = np.repeat(np.arange(len(low)), counts)
            order = np.lexsort((-values, owners))
            rank = np.arange(len(values)) - np.repeat(np.cumsum(counts) - counts, counts) + 1
            allowed = (values[order] >= rank).astype(np.int64)
            after[low] = np.bincount(owners, allowed, minlength=len(low)).astype(np.int64)
        return Round(after, np.array([float(len(low))]))

    def is_done(self, total: Report, rounds: int) -> bool:
        """Whether no bound decreased."""
        return bool(total[0] == 0)

    def columns(self, block: Block, state: Counts) -> Columns:
        """`core`."""
        return {"core": state}


@dataclass(frozen=True, slots=True)
class Triangles:
    """The number of triangles that contain each node.

    Every edge is directed to the end with the larger degree, which bounds the out-degrees. Each
    triangle is then found once, at its lowest corner, by an edge between two of its targets.
    """

    name: ClassVar[str] = "triangles"
    edge_use: ClassVar[EdgeUse] = "simple"
    is_weighted: ClassVar[bool] = False
    iterations: int | None = None

    def first(self, block: Block, nodes: int) -> tuple[State, Report]:
        """The degrees, which are sent in the first round."""
        return block.in_degrees, np.array([1.0])

    def sent(self, block: Block, state: State, own: Places | slice) -> Payload:
        """In the first round degrees, in the second the targets of each node's directed edges."""
        if isinstance(state, np.ndarray):
            return state[own]
        if isinstance(state, _Upward):
            return state.of(own)
        return None

    def step(self, block: Block, state: State, received: Received) -> Round:
        """Rounds: direct the edges, find triangles, add the counts that other blocks found."""
        if isinstance(state, np.ndarray):
            return Round(_Upward.build(block, state, joined(received.values)), np.array([1.0]))
        if isinstance(state, _Upward):
            found, credits = state.triangles(block, received.values)
            return Round(_Found(found), np.array([1.0]), credits)
        assert isinstance(state, _Found)
        count = state.count.copy()
        for keys, counts in received.mail:
            np.add.at(count, block.places_of(keys), counts)
        return Round(_Found(count), np.zeros(1))

    def is_done(self, total: Report, rounds: int) -> bool:
        """Whether the third round is over."""
        return bool(total[0] == 0)

    def columns(self, block: Block, state: State) -> Columns:
        """`triangles`."""
        assert isinstance(state, _Found)
        return {"triangles": state.count}


@dataclass(frozen=True, slots=True)
class _Found:
    count: Counts


@dataclass(frozen=True, slots=True)
class _Upward:
    """For each node of a block, the neighbours with a larger degree; ties are broken by key."""

    pointers: Counts
    ghosts: Places
    keys: Keys

    @classmethod
    def build(cls, block: Block, degrees: Counts, of_ghosts: Counts) -> _Upward:
        """Direct the edges of a block by degree."""
        owners = block.targets()
        theirs, ours = of_ghosts[block.sources], degrees[owners]
        keys = block.ghosts[block.sources]
        upward = (theirs > ours) | ((theirs == ours) & (keys > block.keys[owners]))
        counts = np.bincount(owners[upward], minlength=block.nodes)
        pointers = np.append(0, np.cumsum(counts))
        return cls(pointers, block.sources[upward], keys[upward])

    def of(self, own: Places | slice) -> tuple[Counts, Keys]:
        """The number of targets of each node at ``own``, and the targets."""
        begin = self.pointers[:-1][own]
        counts = self.pointers[1:][own] - begin
        return counts, self.keys[ranges(begin, counts)]

    def triangles(
        self, block: Block, received: Sequence[tuple[Counts, Keys]]
    ) -> tuple[Counts, dict[int, tuple[Keys, Counts]]]:
        """The triangle counts of nodes as lowest corners, and those for other corners, by block."""
        counts = joined([each for each, _ in received])
        reached = joined([each for _, each in received])
        begins = np.cumsum(counts) - counts
        owners = np.repeat(np.arange(block.nodes), np.diff(self.pointers))
        places, known = block.ghost_places(reached)
        ghosts = len(block.ghosts)
        edges = np.sort(owners * ghosts + self.ghosts)
        found = np.zeros(block.nodes, np.int64)
        by_ghost = np.zeros(ghosts, np.int64)
        candidates = counts[self.ghosts]
        ends = np.cumsum(candidates)
        cuts = np.searchsorted(ends, np.arange(WEDGES_AT_ONCE, candidates.sum(), WEDGES_AT_ONCE))
        for start, stop in pairwise(np.unique([0, *cuts, len(candidates)]).tolist()):
            sizes = candidates[start:stop]
            at = ranges(begins[self.ghosts[start:stop]], sizes)
            corner = np.repeat(owners[start:stop], sizes)
            middle = np.repeat(self.ghosts[start:stop], sizes)
            far, is_ghost = places[at], known[at]
            wanted = corner * ghosts + far
            where = np.minimum(np.searchsorted(edges, wanted), max(len(edges) - 1, 0))
            closed = is_ghost & (edges[where] == wanted) if len(edges) else is_ghost & False
            found += np.bincount(corner[closed], minlength=block.nodes)
            by_ghost += np.bincount(middle[closed], minlength=ghosts)
            by_ghost += np.bincount(far[closed], minlength=ghosts)
        some = np.flatnonzero(by_ghost)
        keys, credits = block.ghosts[some], by_ghost[some]
        owner = owner_of(keys, block.blocks)
        return found, {
            int(number): (keys[owner == number], credits[owner == number])
            for number in np.unique(owner)
        }
