"""Edges need both their nodes: those the write brings, and those it would leave behind."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.validation.result_graph import ResultGraph
from omnigraph.commit.validation.violations import Violation, violation
from omnigraph.model.arrow import DST, ID, SRC
from omnigraph.model.conflicts import ConflictKind
from omnigraph.schema.catalog import Catalog, EdgeType


def check_endpoints(type: EdgeType, catalog: Catalog, graph: ResultGraph) -> list[Violation]:
    """Every edge of the result that lacks a node, by id, the source before the target."""
    found = []
    for order, (column, node_type) in enumerate(((SRC, type.source), (DST, type.target))):
        node_key = catalog.nodes[node_type].table_key
        for edges in _suspects(type.table_key, column, node_key, graph):
            missing = graph.absent(node_key, pc.unique(edges[column]))
            if not len(missing):
                continue
            orphans = edges.filter(pc.is_in(edges[column], value_set=missing))
            for edge_id, node_id in zip(
                orphans[ID].to_pylist(), orphans[column].to_pylist(), strict=True
            ):
                text = f"{column} '{node_id}' not found in {node_type}"
                found.append((edge_id, order, text))
    return [violation(type, at, ConflictKind.ORPHAN_EDGE, text) for at, _, text in sorted(found)]


def _suspects(edge_key: str, column: str, node_key: str, graph: ResultGraph) -> Iterator[pa.Table]:
    """The edges whose node may be missing: the write touched the edge, or took away nodes."""
    written = graph.written(edge_key)
    if written is not None:
        yield written.select([ID, column])
    if graph.is_replaced(node_key):
        kept = graph.kept(edge_key, [column])
    else:
        kept = graph.kept_where_in(edge_key, column, graph.removed(node_key), [column])
    if kept is not None:
        yield kept
