"""The columns of a type's table, for every room that reads or writes one."""

from __future__ import annotations

import pyarrow as pa

from omnigraph.model.arrow import edge_schema, node_schema
from omnigraph.schema.catalog import EdgeType, NodeType


def table_schema(type: NodeType | EdgeType) -> pa.Schema:
    """The Arrow schema of a type's table."""
    columns = [(prop.name, prop.type, prop.property_id) for prop in type.properties.values()]
    return node_schema(columns) if isinstance(type, NodeType) else edge_schema(columns)
