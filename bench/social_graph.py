"""A social graph as an Omnigraph graph, written in bulk.

Reading two million edges from JSON lines would take longer than everything that is measured, so
Arrow tables go into the write path where a load puts them after reading its input: one commit, one
Lance transaction per table, checked by the same validator.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa

from bench.social import SCHEMA, SocialGraph, edge_ids
from omnigraph.commit.change_set import ChangeSet, TableChange
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.validation import validate
from omnigraph.commit.write_path import Prepared, WritePath
from omnigraph.commit.writer import Intent
from omnigraph.effects.uri import Root
from omnigraph.graph import init
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.schema.table_schema import table_schema
from omnigraph.storage.layout import MAIN

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


def write(path: Path, changes: Iterable[TableChange]) -> None:
    """Publish changes of several tables as one commit."""
    kernel = Kernel.of(Root.parse(path))
    wanted = list(changes)

    def prepare(capture: Capture, catalog: Catalog) -> Prepared[None]:
        typed = {change.table_key: _typed(change, catalog) for change in wanted}
        change_set = ChangeSet(typed)
        validate(change_set, catalog, capture.reader)
        return Prepared(change_set, None, Intent("Load", "load"))

    WritePath(kernel).write(
        MAIN, prepare, kind="load", accepted=kernel.accepted_schema(), may_prepare_again=False
    )


def _typed(change: TableChange, catalog: Catalog) -> TableChange:
    """The same change with its columns in the order and types of the table."""
    if change.kind == "delete":
        return change
    types: list[NodeType | EdgeType] = [*catalog.nodes.values(), *catalog.edges.values()]
    schema = table_schema(next(type for type in types if type.table_key == change.table_key))
    return TableChange(change.table_key, change.kind, change.rows.select(schema.names).cast(schema))
