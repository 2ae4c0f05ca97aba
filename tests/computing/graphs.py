"""Graphs for computations, and the same ones in NetworkX."""

from __future__ import annotations

import random
from pathlib import Path

import networkx as nx  # type: ignore[import-untyped]

import omnigraph
from omnigraph.graph import Graph

SCHEMA = """
node Person { name: String @key  score: F64?  group: String?  hops: I64? }
node Place { zip: I32  street: String  score: F32?  @key(zip, street) }
edge Knows: Person -> Person { weight: F64?  kind: String? }
edge Likes: Person -> Person
edge Visits: Person -> Place
"""


def linked(
    directory: Path, people: int, edges: list[tuple[int, int]], weights: list[float] | None = None
) -> Graph:
    """A graph with people `p0`… who know each other."""
    graph = omnigraph.init(directory / "graph.omni", SCHEMA)
    records = [f'{{"type": "Person", "data": {{"name": "p{n}"}}}}' for n in range(people)]
    for place, (begin, end) in enumerate(edges):
        data = "" if weights is None else f', "data": {{"weight": {weights[place]}}}'
        records.append(f'{{"edge": "Knows", "from": "p{begin}", "to": "p{end}"{data}}}')
    graph.load(data="\n".join(records), mode="append")
    return graph


def random_edges(seed: int, people: int, count: int) -> list[tuple[int, int]]:
    """Edges with hubs, parallel ones and loops."""
    chosen = random.Random(seed)
    return [(chosen.randrange(people), int(people * chosen.random() ** 2)) for _ in range(count)]


def directed(people: int, edges: list[tuple[int, int]], weights: list[float] | None) -> nx.DiGraph:
    """The same graph in NetworkX; parallel edges weigh as much as all of them."""
    graph = nx.DiGraph()
    graph.add_nodes_from(f"p{n}" for n in range(people))
    for place, (begin, end) in enumerate(edges):
        weight = 1.0 if weights is None else weights[place]
        ends = (f"p{begin}", f"p{end}")
        known = graph.get_edge_data(*ends, {"weight": 0.0, "shortest": weight})
        graph.add_edge(
            *ends, weight=known["weight"] + weight, shortest=min(known["shortest"], weight)
        )
    return graph


def simple(graph: nx.DiGraph) -> nx.Graph:
    """Pairs of nodes that are linked, without direction and loops."""
    plain = nx.Graph(graph.to_undirected())
    plain.remove_edges_from(list(nx.selfloop_edges(plain)))
    return plain
