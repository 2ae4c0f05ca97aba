"""A social graph as an Omnigraph graph, written in bulk."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from bench.bulk_write import write
from bench.social import SCHEMA, SocialGraph, edge_ids
from omnigraph.commit.plan import TableChange
from omnigraph.graph import init

PERSON, KNOWS, BLOCKS = "node:Person", "edge:Knows", "edge:Blocks"


def build_graph(path: Path, social: SocialGraph) -> None:
    """Create a graph at a path, write everything into it as one commit, and index it."""
    graph = init(path, SCHEMA)
    persons = social.persons.add_column(0, "id", social.keys)
    knows, blocks = social.edges(social.knows), social.edges(social.blocks)
    write(
        path,
        [
            TableChange(PERSON, "append", persons),
            TableChange(KNOWS, "append", with_ids(knows, first=0)),
            TableChange(BLOCKS, "append", with_ids(blocks, first=knows.num_rows)),
        ],
    )
    graph.ensure_indices()


def with_ids(edges: pa.Table, first: int) -> pa.Table:
    """Edges with ids of their own, counted from ``first``."""
    return edges.add_column(0, "id", edge_ids(edges.num_rows, first))
