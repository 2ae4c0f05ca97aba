"""Algorithms that take the whole graph at once in this process; on Spark they work in rounds.

Strong components and similarity are sparse matrices of SciPy, communities are NetworKit's (both in
the extra `algorithms`), closeness and betweenness search in NumPy. `whole_graph_blocks` has all but
communities for Spark.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, ClassVar, TypeAlias

import numpy as np

from omnigraph.computing.algorithms import EdgeUse
from omnigraph.computing.blocks import Counts, Floats, Places, ranges
from omnigraph.computing.in_process import Computed, Topology, named_after
from omnigraph.computing.whole_graph_blocks import (
    BITS,
    Measure,
    betweenness_of,
    closeness_of,
    most_similar,
    sampled,
    similarity_of,
)
from omnigraph.engines.local.adjacency import Adjacency
from omnigraph.errors import InputError, install_command
from omnigraph.model.governor import current
from omnigraph.model.records import dataclass

PATH_CELLS = 1 << 15
"""Pairs of a node and a start whose paths are counted at a time: they stay in a processor's cache,
unless a graph has more nodes."""
WEDGES_AT_ONCE = 1 << 24
"""Paths over a common neighbour that `similarity` holds at a time."""


@dataclass(frozen=True, slots=True)
class StronglyConnected:
    """The maximal groups of nodes that reach each other along the edges."""

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
    """Communities by greedy maximisation of modularity."""

    name: ClassVar[str] = "louvain"
    edge_use: ClassVar[EdgeUse] = "undirected"
    is_weighted: ClassVar[bool] = True
    resolution: float = 1.0
    seed: int = 1

    def run(self, topology: Topology) -> Computed:
        """`community`: the index of one member. One thread, so that seeds fix the result."""
        networkit = _library("networkit")
        begin, end, weights = topology.ends()
        ends = (begin.astype(np.uint64), end.astype(np.uint64))
        given = ends if weights is None else (weights, ends)
        graph = networkit.GraphFromCoo(given, n=topology.nodes, weighted=weights is not None)
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
    edge_use: ClassVar[EdgeUse] = "pairs"
    is_weighted: ClassVar[bool] = False
    samples: int = 256
    """The number of start nodes, chosen at random; all nodes if there are no more."""
    seed: int = 1

    def run(self, topology: Topology) -> Computed:
        """`betweenness`, from 0 to 1."""
        begin, end = _pairs(topology)
        nodes = topology.nodes
        out = Adjacency.build(begin, end, nodes)
        starts = _starts(topology, self.samples, self.seed)
        shares = np.zeros(nodes)
        together = max(1, PATH_CELLS // max(nodes, 1))
        for first in range(0, len(starts), together):
            shares += _shares(out, starts[first : first + together], nodes)
        values = betweenness_of(shares, nodes, len(starts))
        return Computed({"betweenness": values}, len(begin), 1, True)


@dataclass(frozen=True, slots=True)
class Closeness:
    """Closeness centrality: the share of nodes that reach a node, over their mean distance."""

    name: ClassVar[str] = "closeness"
    edge_use: ClassVar[EdgeUse] = "pairs"
    is_weighted: ClassVar[bool] = False
    samples: int = 256
    """The number of start nodes, chosen at random; all nodes if there are no more."""
    seed: int = 1

    def run(self, topology: Topology) -> Computed:
        """`closeness`, from 0 to 1; with all start nodes, that of Wasserman and Faust."""
        begin, end = _pairs(topology)
        nodes = topology.nodes
        out = Adjacency.build(begin, end, nodes)
        starts = _starts(topology, self.samples, self.seed)
        sums, reached, rounds = np.zeros(nodes), np.zeros(nodes), 0
        for first in range(0, len(starts), BITS):
            rounds += _distances(out, starts[first : first + BITS], sums, reached)
        is_start = np.isin(np.arange(nodes), starts)
        values = closeness_of(sums, reached, is_start, len(starts))
        return Computed({"closeness": values}, len(begin), rounds, True)


@dataclass(frozen=True, slots=True)
class Similarity:
    """The nodes with the most similar neighbours for each node."""

    name: ClassVar[str] = "similarity"
    edge_use: ClassVar[EdgeUse] = "pairs"
    is_weighted: ClassVar[bool] = False
    per_node: int = 10
    """The maximum number of rows per node."""
    at_least: float = 0.0
    measure: Measure = "jaccard"

    def run(self, topology: Topology) -> Computed:
        """A row per node and similar node: the index `other`, and `similarity`."""
        sparse = _library("scipy.sparse")
        begin, end = _pairs(topology)
        nodes = topology.nodes
        links = (np.ones(len(begin), np.int32), (begin, end))
        matrix = sparse.csr_array(links, shape=(nodes, nodes))
        backwards = matrix.T.tocsr()
        sizes = np.diff(matrix.indptr)
        # The number of two-step paths from each node: the cost of its rows below.
        ways = matrix @ np.diff(backwards.indptr)
        bounds = np.append(0, np.cumsum(ways, dtype=np.int64))
        found: list[tuple[Counts, Counts, Floats]] = []
        first = 0
        while first < nodes:
            current().check()
            last = int(np.searchsorted(bounds, bounds[first] + WEDGES_AT_ONCE, side="right")) - 1
            last = min(max(last, first + 1), nodes)
            found.append(self._most_similar(matrix[first:last] @ backwards, first, sizes, topology))
            first = last
        here, there, values = (
            (np.concatenate(parts) for parts in zip(*found, strict=True))
            if found
            else (np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
        )
        columns = {"other": there, "similarity": values}
        return Computed(columns, len(begin), 1, True, places=here)

    def _most_similar(
        self, common: Any, first: int, sizes: Counts, topology: Topology
    ) -> tuple[Counts, Counts, Floats]:
        counted = common.tocoo()
        here, there = counted.row.astype(np.int64) + first, counted.col.astype(np.int64)
        apart = here != there
        here, there = here[apart], there[apart]
        values = similarity_of(self.measure, counted.data[apart], sizes[here], sizes[there])
        best = most_similar(here, topology.keys[there], values, self.per_node, self.at_least)
        return here[best], there[best], values[best]


WholeGraphAlgorithm: TypeAlias = StronglyConnected | Louvain | Betweenness | Closeness | Similarity


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(
            f"{name.partition('.')[0]} is not installed, which this algorithm needs",
            hint=f"install the extra: {install_command('algorithms')}",
        ) from error


def _pairs(topology: Topology) -> tuple[Places, Places]:
    """Pairs of nodes with an edge in the direction asked for, each once and without loops."""
    begin, end, _ = topology.ends()
    apart = begin != end
    begin, end = begin[apart].astype(np.int64), end[apart].astype(np.int64)
    if topology.selection.direction == "both":
        begin, end = np.concatenate([begin, end]), np.concatenate([end, begin])
    nodes = max(topology.nodes, 1)
    pairs = np.unique(begin * nodes + end)
    return (pairs // nodes).astype(np.int32), (pairs % nodes).astype(np.int32)


def _starts(topology: Topology, samples: int, seed: int) -> Counts:
    """The nodes to begin at: those that are chosen on Spark, too."""
    if samples >= topology.nodes:
        return np.arange(topology.nodes)
    return sampled(topology.keys, samples, seed)


def _distances(out: Adjacency, starts: Counts, sums: Floats, reached: Floats) -> int:
    """For each node, add the distances from up to 64 start nodes, and the number that reach it.

    Each bit of an integer is one search. Returns the number of steps of the longest.
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


def _shares(out: Adjacency, starts: Counts, nodes: int) -> Floats:
    """The shares of the shortest paths from some nodes that lead through each node, by Brandes.

    A number stands for a node and a start. Paths are counted as logarithms to base 2: in a long
    graph there are more of them than a float counts.
    """
    begun = np.arange(len(starts)) * nodes + starts
    paths = np.full(len(starts) * nodes, -np.inf)
    is_found = np.zeros(len(paths), np.bool_)
    last = np.empty(len(paths), np.int32)
    paths[begun] = 0.0
    is_found[begun] = True
    front = begun
    steps: list[tuple[Places, Places, Floats]] = []
    while len(front):
        current().check()
        at = front % nodes
        counts = out.pointers[at + 1] - out.pointers[at]
        targets = np.repeat(front - at, counts) + out.neighbours[ranges(out.pointers[at], counts)]
        sources = np.repeat(front, counts)
        new = np.flatnonzero(~is_found[targets])
        sources, targets = sources[new].astype(np.int32), targets[new].astype(np.int32)
        order = np.arange(len(targets), dtype=np.int32)
        last[targets] = order
        # One edge of each node that is found stands for the node.
        group = last[targets]
        front = targets[group == order].astype(np.int64)
        over = paths[sources]
        np.maximum.at(paths, targets, over)
        parts = np.exp2(over - paths[targets])
        sums = np.bincount(group, parts, minlength=len(targets))
        paths[front] += np.log2(sums[last[front]])
        is_found[front] = True
        steps.append((sources, targets, parts / sums[group]))
    credit = np.zeros(len(paths))
    for sources, targets, parts in reversed(steps[1:]):
        np.add.at(credit, sources, parts * (1.0 + credit[targets]))
    added: Floats = credit.reshape(len(starts), nodes).sum(axis=0)
    return added
