"""Looking up the types at ends of edges that are interfaces.

A record may refer to a node by its id alone. Before edges are matched and checked, each such
reference gets the type of the node that has the id. What no node has, or nodes of several types,
stays as `model.references` says, and the endpoint constraint reports it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.model.arrow import ID
from omnigraph.model.references import Column, resolved
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.storage.reader import SnapshotReader

Existing = Callable[[NodeType, pa.Array], Column]
"""Those of some ids that nodes of a type have; more may be returned."""

Rows = TypeVar("Rows", pa.RecordBatch, pa.Table)


def with_resolved_ends(rows: Rows, edge: EdgeType, catalog: Catalog, existing: Existing) -> Rows:
    """Edges whose references have types, as far as nodes tell them."""
    for column in edge.end_types:
        name = edge.source if column == "src" else edge.target
        nodes = {node.type_id: node for node in catalog.node_types(name)}
        lookup = {number: partial(existing, node) for number, node in nodes.items()}
        known = resolved(rows[column], lookup)
        if known is not rows[column]:
            index = rows.schema.get_field_index(column)
            rows = rows.set_column(index, rows.schema.field(index), known)
    return rows


class ResultNodes:
    """The ids of the nodes that a write results in: its own, and committed ones that stay."""

    def __init__(
        self,
        written: Mapping[str, Sequence[Column]],
        view: SnapshotReader,
        replaced: Collection[str] = (),
    ) -> None:
        """``written`` and ``replaced`` are by type key."""
        self._written = written
        self._view = view
        self._replaced = replaced

    def existing(self, node: NodeType, ids: pa.Array) -> Column:
        """Those of some ids that nodes of a type have, and all that are written."""
        key = node.table_key
        found = [c for column in self._written.get(key, ()) for c in _chunks(column)]
        if key not in self._replaced and not self._view.is_empty(key) and len(ids):
            found += self._view.rows_where_in(key, ID, pc.unique(ids), [ID])[ID].chunks
        return pa.chunked_array(found, pa.string())


def _chunks(column: Column) -> list[pa.Array]:
    return column.chunks if isinstance(column, pa.ChunkedArray) else [column]
