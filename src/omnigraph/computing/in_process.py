"""Computations in this process, on the ids and adjacency cached by the embedded engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.computing.algorithms import (
    Algorithm,
    ConnectedComponents,
    LabelPropagation,
    Received,
)
from omnigraph.computing.blocks import Block, Counts, Floats, Keys, Places
from omnigraph.computing.selection import SelectedEdges, Selection, checked_weights, node_keys
from omnigraph.engines.local.adjacency import Adjacency
from omnigraph.engines.local.engine import LocalEngine
from omnigraph.engines.local.nodes import CachedNodes
from omnigraph.engines.local.tables import tables_of
from omnigraph.model.arrow import arrow_type
from omnigraph.model.governor import current
from omnigraph.model.records import dataclass
from omnigraph.storage.reader import SnapshotReader

OnRound = Callable[[int, float], None]
"""Called after each round with its number and the first reported sum, mostly the change."""


@dataclass(frozen=True, slots=True)
class Computed:
    """The values of all nodes, by node index."""

    columns: dict[str, npt.NDArray[np.generic]]
    edges: int
    rounds: int
    converged: bool
    places: Counts | None = None
    """The node of each row, if nodes may have no row or several; None for one row each."""


class Topology:
    """The nodes and edges of a selection at one snapshot, as integer arrays."""

    def __init__(self, engine: LocalEngine, reader: SnapshotReader, selection: Selection) -> None:
        self.selection = selection
        self._tables = tables_of(reader)(engine.memory, reader, engine.settings, {}, {})
        self._nodes: dict[str, CachedNodes] = {}
        self._first: dict[str, int] = {}
        """The index of the first node of each type."""
        count = 0
        for name in selection.nodes:
            nodes = self._tables.nodes(name, whole=True)
            if not isinstance(nodes, CachedNodes):
                nodes = self._tables.cached_nodes(name)
            self._nodes[name] = nodes
            self._first[name] = count
            count += len(nodes.every())
        self.nodes = count

    @cached_property
    def types(self) -> pa.Array:
        """The type of each node."""
        counts = [len(self._nodes[name].every()) for name in self.selection.nodes]
        codes = np.repeat(np.arange(len(counts), dtype=np.int32), counts)
        names = pa.array(self.selection.nodes, pa.string())
        return pa.DictionaryArray.from_arrays(pa.array(codes), names).cast(pa.string())

    @cached_property
    def ids(self) -> pa.Array:
        """The id of each node."""
        parts = [nodes.space.strings(nodes.every()) for nodes in self._nodes.values()]
        return pa.concat_arrays([part.cast(pa.string()) for part in parts])

    @cached_property
    def keys(self) -> Keys:
        """The unique key of each node."""
        attempt = 0
        while True:
            parts = [
                node_keys(name, nodes.space.strings(nodes.every()), attempt)
                for name, nodes in self._nodes.items()
            ]
            keys = np.concatenate(parts)
            if len(np.unique(keys)) == len(keys):
                return keys
            attempt += 1

    def place_of(self, type_name: str, node_id: str) -> int | None:
        """The index of a node; None if there is no such node."""
        nodes = self._nodes[type_name]
        slot = nodes.space.find_one(node_id)
        every = nodes.every()
        at = int(np.searchsorted(every, slot))
        found = slot >= 0 and at < len(every) and int(every[at]) == slot
        return self._first[type_name] + at if found else None

    def ends(self) -> tuple[Places, Places, Floats | None]:
        """The source, target and weight of every edge, in the selected direction."""
        sources, targets, weights = [], [], []
        for edge in self.selection.edges:
            table = self._tables.cached_edges(edge.type_name, edge.source, edge.target)
            from_slots, to_slots = table.ends()
            sources.append(self._places(edge.source)[from_slots])
            targets.append(self._places(edge.target)[to_slots])
            if edge.weight_type is not None and self.selection.weight is not None:
                type, positions = arrow_type(edge.weight_type), table.view.positions()
                values = table.values(self.selection.weight, type, positions)
                weights.append(checked_weights(edge.type_name, self.selection.weight, values))
        begin, end = _joined(sources), _joined(targets)
        is_weighed = self.selection.weight is not None
        of_edges = np.concatenate([np.zeros(0), *weights]) if is_weighed else None
        if self.selection.direction == "in":
            begin, end = end, begin
        return begin, end, of_edges

    def block(self, *, with_keys: bool) -> Block:
        """The whole graph as one block; without keys, node indexes serve as keys.

        Edges come from the engine's cached adjacency, which later computations use again.
        """
        use, direction = self.selection.use, self.selection.direction
        if use == "simple":
            begin, end, _ = self.ends()
            apart = begin != end
            whole = Adjacency.undirected(begin[apart], end[apart], self.nodes)
            return self._made(whole.pointers, whole.neighbours, None, with_keys)
        parts = []
        for edge in self.selection.edges:
            if use == "directed" and direction != "both":
                parts.append(self._sorted(edge, "in" if direction == "out" else "out"))
                continue
            # A loop is added once, although edges are used in both directions, and is no neighbour.
            parts.append(self._sorted(edge, "in", with_loops=use == "directed"))
            parts.append(self._sorted(edge, "out", with_loops=False))
        return self._made(*_merged(parts, self.nodes), with_keys)

    def _sorted(
        self, edge: SelectedEdges, way: Literal["out", "in"], *, with_loops: bool = True
    ) -> _SortedEdges:
        """The pointers, sources and weights of the edges of a type, by the node they lead to."""
        near, far = (edge.target, edge.source) if way == "in" else (edge.source, edge.target)
        table = self._tables.cached_edges(edge.type_name, edge.source, edge.target)
        weights = None
        if self.selection.weight is not None and edge.weight_type is not None:
            name, order = self.selection.weight, table.order(way)
            assert isinstance(order.adjacency, Adjacency)
            adjacency = order.adjacency
            values = table.ordered_values(way, order, name, arrow_type(edge.weight_type)).values
            weights = checked_weights(edge.type_name, name, values)
        else:
            adjacency = table.adjacency(way)
        every, first = self._nodes[near].every(), self._first[near]
        # Deleted nodes have no edges; nodes newer than the adjacency are clipped to its end.
        count = len(adjacency.neighbours)
        pointers = np.full(self.nodes + 1, count)
        pointers[:first] = 0
        pointers[first : first + len(every)] = adjacency.pointers.take(every, mode="clip")
        sources = self._placed(far, adjacency)
        if not with_loops and adjacency.has_loops:
            targets = np.repeat(np.arange(self.nodes, dtype=np.int32), np.diff(pointers))
            apart = sources != targets
            pointers = np.append(0, np.cumsum(apart))[pointers]
            sources = sources[apart]
            weights = None if weights is None else weights[apart]
        return pointers, sources, weights

    def _placed(self, type_name: str, adjacency: Adjacency) -> Places:
        """The node indexes of all neighbours, which are of one type."""
        nodes = self._nodes[type_name]
        if self._first[type_name] == 0 and len(nodes.every()) == len(nodes.space):
            return adjacency.neighbours  # each slot is the node's index
        return self._places(type_name).take(adjacency.neighbours)

    def _made(
        self, pointers: Counts, sources: Places, weights: Floats | None, with_keys: bool
    ) -> Block:
        out = np.bincount(sources, weights, minlength=self.nodes).astype(np.float64)
        keys = self.keys if with_keys else np.arange(self.nodes, dtype=np.uint64)
        everything = np.arange(self.nodes, dtype=np.int32)
        return Block(0, 1, keys, pointers, sources, weights, out, keys, (everything,))

    def _places(self, type_name: str) -> Places:
        """The node index of each slot."""
        nodes = self._nodes[type_name]
        every = nodes.every()
        places = np.full(len(nodes.space) + 1, -1, np.int32)
        places[every] = self._first[type_name] + np.arange(len(every), dtype=np.int32)
        return places


_SortedEdges: TypeAlias = tuple[Counts, Places, Floats | None]
"""Pointers by target node, and the source and weight of each edge."""


def _merged(parts: Sequence[_SortedEdges], nodes: int) -> _SortedEdges:
    """The edges of all parts by the node they lead to, without a sort."""
    if len(parts) == 1:
        return parts[0]
    pointers = np.sum([np.zeros(nodes + 1, np.int64), *(part[0] for part in parts)], axis=0)
    sources = np.empty(pointers[-1], np.int32)
    are_weighed = any(weights is not None for *_, weights in parts)
    weights = np.empty(len(sources)) if are_weighed else None
    begins = pointers[:-1].copy()
    for begin, found, weighed in parts:
        counts = np.diff(begin)
        at = np.arange(len(found)) + np.repeat(begins - begin[:-1], counts)
        sources[at] = found
        if weights is not None:
            weights[at] = weighed
        begins += counts
    return pointers, sources, weights


def _joined(parts: Sequence[Places]) -> Places:
    return np.concatenate(parts) if parts else np.zeros(0, np.int32)


def compute(
    algorithm: Algorithm | ConnectedComponents, topology: Topology, on_round: OnRound | None = None
) -> Computed:
    """Run an algorithm over a topology."""
    if isinstance(algorithm, ConnectedComponents):
        begin, end, _ = topology.ends()
        roots, rounds = component_roots(begin, end, topology.nodes)
        names = named_after(roots, topology.keys)
        return Computed({"component": names}, len(begin), rounds, True)
    is_labelled = isinstance(algorithm, LabelPropagation)
    block = topology.block(with_keys=is_labelled)
    state, total = algorithm.first(block, topology.nodes)
    rounds, limit = 0, algorithm.iterations
    mail: Sequence[object] = ()
    while not algorithm.is_done(total, rounds) and (limit is None or rounds < limit):
        current().check()
        values = [algorithm.sent(block, state, slice(None))]
        made = algorithm.step(block, state, Received(values, mail, total, topology.nodes))
        state, total, mail = made.state, made.report, [*made.mail.values()]
        rounds += 1
        if on_round is not None:
            on_round(rounds, float(total[0]))
    columns = dict(algorithm.columns(block, state))
    if is_labelled:
        order = np.argsort(topology.keys)
        at = np.searchsorted(topology.keys[order], columns["community"])
        columns["community"] = order[at]
    return Computed(columns, len(block.sources), rounds, algorithm.is_done(total, rounds))


def component_roots(begin: Places, end: Places, nodes: int) -> tuple[Places, int]:
    """One representative of each node's component, and the number of rounds.

    Trees are attached along edges to trees with smaller roots, then flattened (hook and compress).
    Edges inside a tree are dropped in each round.
    """
    parents = np.arange(nodes, dtype=np.int32)
    rounds = 0
    while len(begin):
        current().check()
        ours, theirs = parents[begin], parents[end]
        apart = ours != theirs
        begin, end, ours, theirs = begin[apart], end[apart], ours[apart], theirs[apart]
        np.minimum.at(parents, np.maximum(ours, theirs), np.minimum(ours, theirs))
        while True:
            above = parents[parents]
            if (above == parents).all():
                break
            parents = above
        rounds += 1
    return parents, rounds


def named_after(roots: Places, keys: Keys) -> npt.NDArray[np.int64]:
    """For each node, the member of its group with the smallest key; ``roots`` number the groups."""
    order = np.argsort(keys)
    _, firsts = np.unique(roots[order], return_index=True)
    chosen = np.zeros(len(roots), np.int64)
    chosen[roots[order[firsts]]] = order[firsts]
    return chosen[roots]
