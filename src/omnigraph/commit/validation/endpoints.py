"""Edges need both their nodes: those the write brings, and those it would leave behind."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.validation.result_graph import ResultGraph
from omnigraph.commit.validation.violations import MissingNode, Violation, violation
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.merging import ConflictKind
from omnigraph.schema.catalog import Catalog, EdgeType


def check_endpoints(type: EdgeType, catalog: Catalog, graph: ResultGraph) -> list[Violation]:
    """Every edge of the result that lacks a node, by id, the source before the target."""
    found = []
    for order, (column, node_type) in enumerate(((SRC, type.source), (DST, type.target))):
        node_key = catalog.nodes[node_type].table_key
        for edges, are_kept in _suspects(type.table_key, column, node_key, graph):
            absent = graph.absent(node_key, pc.unique(edges[column]))
            if not len(absent):
                continue
            orphans = edges.filter(pc.is_in(edges[column], value_set=absent))
            is_removed = are_kept and graph.is_replaced(node_key)
            for edge_id, node_id in zip(
                orphans[ID].to_pylist(), orphans[column].to_pylist(), strict=True
            ):
                text = f"{column} '{node_id}' not found in {node_type}"
                missing = MissingNode(column, node_type, node_id, is_removed)
                found.append((edge_id, order, text, missing))
    found.sort(key=lambda each: each[:3])
    kind = ConflictKind.ORPHAN_EDGE
    return [violation(type, at, kind, text, missing) for at, _, text, missing in found]


def _suspects(
    edge_key: str, column: str, node_key: str, graph: ResultGraph
) -> Iterator[tuple[pa.Table, bool]]:
    """The edges whose node may be missing, and whether they stay as they are.

    The write touched the edge, or took away nodes.
    """
    written = graph.written(edge_key)
    if written is not None:
        yield written.select([ID, column]), False
    if graph.is_replaced(node_key):
        kept = graph.kept(edge_key, [column])
    else:
        kept = graph.kept_where_in(edge_key, column, graph.removed(node_key), [column])
    if kept is not None:
        yield kept, True
