"""Algorithms that need the whole graph in one process: no rounds over blocks, not on Spark.

Strong components and similarity are sparse matrices of SciPy, communities and betweenness are
NetworKit's (both in the extra `algorithms`), closeness searches from many nodes at once in NumPy.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from omnigraph.computing.algorithms import EdgeUse
from omnigraph.computing.blocks import Counts, Floats, Places, ranges
from omnigraph.computing.in_process import Computed, Topology, named_after
from omnigraph.engines.local.adjacency import Adjacency
from omnigraph.errors import InputError, install_command
from omnigraph.model.governor import current
from omnigraph.model.records import dataclass

Measure = Literal["jaccard", "cosine", "overlap"]
"""Common neighbours by all neighbours, by the mean of both numbers of them, by the smaller one."""

BITS = 64
"""Searches that share one pass over the edges."""
WEDGES_AT_ONCE = 1 << 24
"""Ways over a common neighbour that `similarity` holds at a time."""


@dataclass(frozen=True, slots=True)
class StronglyConnected:
    """The largest groups of nodes in which each can be reached from each along the edges."""

    name: ClassVar[str] = "strongly_connected"
    edge_use: ClassVar[EdgeUse] = "directed"
    is_weighted: ClassVar[bool] = False

    def run(self, topology: Topology) -> Computed:
        """`component`: the place of one member."""
        sparse = _library("scipy.sparse")
        begin, end, _ = topology.ends()
        edges = (np.ones(len(begin), np.int8), (begin, end))
        matrix = sparse.csr_array(edges, shape=(topology.nodes, topology.nodes))
        search = _library("scipy.sparse.csgraph").connected_components
        _, groups = search(matrix, directed=True, connection="strong")
        return Computed({"component": named_after(groups, topology.keys)}, len(begin), 1, True)


@dataclass(frozen=True, slots=True)
class Louvain:
    """Groups with more edges inside than chance would put there: modularity, greedily."""

    name: ClassVar[str] = "louvain"
    edge_use: ClassVar[EdgeUse] = "undirected"
    is_weighted: ClassVar[bool] = True
    resolution: float = 1.0
    seed: int = 1

    def run(self, topology: Topology) -> Computed:
        """`community`: the place of one member. One thread, so that a seed gives one answer."""
        networkit = _library("networkit")
        begin, end, weights = topology.ends()
        graph = _networkit_graph(begin, end, topology.nodes, weights=weights)
        networkit.setSeed(self.seed, False)
        search = networkit.community.PLM(graph, gamma=self.resolution, par="none")
        search.run()
        groups = np.array(search.getPartition().getVector(), np.int32)
        names = named_after(groups, topology.keys)
        return Computed({"community": names}, len(begin), 1, True)


@dataclass(frozen=True, slots=True)
class Betweenness:
    """The share of shortest paths between other nodes that lead through each node."""

    name: ClassVar[str] = "betweenness"
    edge_use: ClassVar[EdgeUse] = "directed"
    is_weighted: ClassVar[bool] = False
    samples: int = 256
    """Paths begin at so many nodes, chosen at random; at all if there are no more."""
    seed: int = 1

    def run(self, topology: Topology) -> Computed:
        """`betweenness`, from 0 to 1."""
        networkit = _library("networkit")
        begin, end, is_directed = _pairs(topology)
        nodes = topology.nodes
        if nodes < 3:
            return Computed({"betweenness": np.zeros(nodes)}, len(begin), 1, True)
        graph = _networkit_graph(begin, end, nodes, is_directed=is_directed)
        networkit.setSeed(self.seed, False)
        if self.samples < nodes:
            search = networkit.centrality.EstimateBetweenness(graph, self.samples, True, True)
        else:
            search = networkit.centrality.Betweenness(graph, True)
        search.run()
        return Computed({"betweenness": np.array(search.scores())}, len(begin), 1, True)


@dataclass(frozen=True, slots=True)
class Closeness:
    """How near each node is to those that reach it: their share by their mean distance."""

    name: ClassVar[str] = "closeness"
    edge_use: ClassVar[EdgeUse] = "directed"
    is_weighted: ClassVar[bool] = False
    samples: int = 256
    """Distances from so many nodes, chosen at random; from all if there are no more."""
    seed: int = 1

    def run(self, topology: Topology) -> Computed:
        """`closeness`, from 0 to 1; of all nodes, it is that of Wasserman and Faust."""
        begin, end, is_directed = _pairs(topology)
        if not is_directed:
            begin, end = np.concatenate([begin, end]), np.concatenate([end, begin])
        nodes = topology.nodes
        out = Adjacency.build(begin, end, nodes)
        starts: Counts = np.arange(nodes)
        if self.samples < nodes:
            chosen = np.random.default_rng(self.seed).choice(nodes, self.samples, replace=False)
            starts = np.sort(chosen)
        sums, reached, rounds = np.zeros(nodes), np.zeros(nodes), 0
        for first in range(0, len(starts), BITS):
            rounds += _distances(out, starts[first : first + BITS], sums, reached)
        # A node that was itself a start reaches itself, and is no other node.
        others = len(starts) - np.isin(np.arange(nodes), starts)
        share = np.divide(reached, others, out=np.zeros(nodes), where=others > 0)
        near = np.divide(reached, sums, out=np.zeros(nodes), where=sums > 0)
        return Computed({"closeness": share * near}, len(begin), rounds, True)


@dataclass(frozen=True, slots=True)
class Similarity:
    """The nodes that have most neighbours in common with each node."""

    name: ClassVar[str] = "similarity"
    edge_use: ClassVar[EdgeUse] = "directed"
    is_weighted: ClassVar[bool] = False
    per_node: int = 10
    """Most rows of each node."""
    at_least: float = 0.0
    measure: Measure = "jaccard"

    def run(self, topology: Topology) -> Computed:
        """A row for each node and similar node: `other` is its place, and `similarity`."""
        sparse = _library("scipy.sparse")
        if self.measure not in get_args(Measure):
            hint = f"it is {', '.join(get_args(Measure))}"
            raise InputError(f"there is no measure '{self.measure}'", hint=hint)
        begin, end, is_directed = _pairs(topology)
        if not is_directed:
            begin, end = np.concatenate([begin, end]), np.concatenate([end, begin])
        nodes = topology.nodes
        links = (np.ones(len(begin), np.int32), (begin, end))
        matrix = sparse.csr_array(links, shape=(nodes, nodes))
        backwards = matrix.T.tocsr()
        sizes = np.diff(matrix.indptr)
        # How many ways over a neighbour lead away from each node: the size of its rows below.
        ways = matrix @ np.diff(backwards.indptr)
        bounds = np.append(0, np.cumsum(ways, dtype=np.int64))
        found: list[tuple[Counts, Counts, Floats]] = []
        first = 0
        while first < nodes:
            current().check()
            last = int(np.searchsorted(bounds, bounds[first] + WEDGES_AT_ONCE, side="right")) - 1
            last = min(max(last, first + 1), nodes)
            found.append(self._most_similar(matrix[first:last] @ backwards, first, sizes))
            first = last
        here, there, values = (
            (np.concatenate(parts) for parts in zip(*found, strict=True))
            if found
            else (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
        )
        columns = {"other": there, "similarity": values}
        return Computed(columns, len(begin), 1, True, places=here)

    def _most_similar(
        self, common: Any, first: int, sizes: Counts
    ) -> tuple[Counts, Counts, Floats]:
        counted = common.tocoo()
        here, there = counted.row.astype(np.int64) + first, counted.col.astype(np.int64)
        ours, theirs = sizes[here], sizes[there]
        if self.measure == "jaccard":
            against: npt.NDArray[Any] = ours + theirs - counted.data
        elif self.measure == "cosine":
            against = np.sqrt(ours.astype(np.float64) * theirs)
        else:
            against = np.minimum(ours, theirs)
        values = counted.data / against
        kept = (here != there) & (values >= self.at_least)
        here, there, values = here[kept], there[kept], values[kept]
        order = np.lexsort((there, -values, here))
        here, there, values = here[order], there[order], values[order]
        begins = np.searchsorted(here, here)
        top = np.arange(len(here)) - begins < self.per_node
        return here[top], there[top], values[top]


WholeGraphAlgorithm: TypeAlias = StronglyConnected | Louvain | Betweenness | Closeness | Similarity


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{name.partition('.')[0]} is not installed, which this algorithm needs",
            hint=f"install the extra: {install_command('algorithms')}",
        ) from error


def _pairs(topology: Topology) -> tuple[Places, Places, bool]:
    """Pairs of nodes with an edge, each once and without loops, and whether edges have a way."""
    begin, end, _ = topology.ends()
    is_directed = topology.selection.direction != "both"
    apart = begin != end
    begin, end = begin[apart].astype(np.int64), end[apart].astype(np.int64)
    if not is_directed:
        begin, end = np.minimum(begin, end), np.maximum(begin, end)
    pairs = np.unique(begin * topology.nodes + end)
    nodes = max(topology.nodes, 1)
    return (pairs // nodes).astype(np.int32), (pairs % nodes).astype(np.int32), is_directed


def _networkit_graph(
    begin: Places,
    end: Places,
    nodes: int,
    *,
    weights: Floats | None = None,
    is_directed: bool = False,
) -> Any:
    ends = (begin.astype(np.uint64), end.astype(np.uint64))
    given = ends if weights is None else (weights, ends)
    networkit = _library("networkit")
    return networkit.GraphFromCoo(
        given, n=nodes, weighted=weights is not None, directed=is_directed
    )


def _distances(out: Adjacency, starts: Counts, sums: Floats, reached: Floats) -> int:
    """Add the distances from up to 64 nodes to each node, and how many of them reach it.

    A bit of a number is one search. Returns how many steps the longest took.
    """
    nodes = len(sums)
    front = np.zeros(nodes, np.uint64)
    front[starts] = np.uint64(1) << np.arange(len(starts), dtype=np.uint64)
    seen = front.copy()
    steps = 0
    while True:
        current().check()
        active = np.flatnonzero(front)
        counts = out.pointers[active + 1] - out.pointers[active]
        targets = out.neighbours[ranges(out.pointers[active], counts)]
        after = np.zeros(nodes, np.uint64)
        np.bitwise_or.at(after, targets, np.repeat(front[active], counts))
        after &= ~seen
        new = np.bitwise_count(after)
        if not new.any():
            return steps
        steps += 1
        reached += new
        sums += steps * new.astype(np.float64)
        seen |= after
        front = after
