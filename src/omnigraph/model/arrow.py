"""How values lie in tables: the Arrow type and field of every property type.

A Blob is the one type Arrow has no word for: its column is Lance's blob extension, which only the
storage room may import. An extension in Arrow is a name in the field's metadata over a plain
storage type, so the schema built here is complete without Lance: a blob field is the struct
`BLOB_STORAGE` marked with Lance's extension name, and a batch of such columns can be handed to
Lance as it is. What Lance gives back is its own extension type with the same storage.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from omnigraph.model.types import Scalar, ValueType

ID = "id"
SRC = "src"
DST = "dst"

PRIMARY_KEY_METADATA = {b"lance-schema:unenforced-primary-key": b"true"}
PROPERTY_ID_KEY = b"omnigraph.stable_property_id"
BLOB_EXTENSION_METADATA = {b"ARROW:extension:name": b"lance.blob.v2"}

BLOB_STORAGE = pa.struct([pa.field("data", pa.large_binary()), pa.field("uri", pa.string())])
"""A blob is bytes or the URI of an external object; exactly one is set in a non-null value."""

TIMESTAMP = pa.timestamp("ms", tz="UTC")

_SCALARS: dict[Scalar, pa.DataType] = {
    Scalar.STRING: pa.string(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: TIMESTAMP,
    Scalar.BLOB: BLOB_STORAGE,
}

PropertyColumn = tuple[str, ValueType, int]
"""Name, type and stable property id: what a property's column is made of."""


def arrow_type(type: ValueType) -> pa.DataType:
    """The Arrow type of a column of ``type``; of a Blob, its storage type."""
    if type.is_vector:
        return pa.list_(pa.field("item", pa.float32()), type.vector_dim)
    scalar = _SCALARS[type.scalar]
    return pa.list_(pa.field("item", scalar)) if type.is_list else scalar


def property_field(name: str, type: ValueType, property_id: int) -> pa.Field:
    """The column of one property, with the metadata that ties it to its identity."""
    metadata = {PROPERTY_ID_KEY: str(property_id).encode()}
    if type.is_blob:
        metadata |= BLOB_EXTENSION_METADATA
    return pa.field(name, arrow_type(type), nullable=type.nullable, metadata=metadata)


def property_id(field: pa.Field) -> int | None:
    """The stable property id a field carries; None for `id`, `src` and `dst`."""
    text = (field.metadata or {}).get(PROPERTY_ID_KEY)
    return None if text is None else int(text)


def node_schema(properties: Iterable[PropertyColumn]) -> pa.Schema:
    """The table of a node type: `id`, then its properties in byte order of name."""
    return _table_schema([], properties)


def edge_schema(properties: Iterable[PropertyColumn]) -> pa.Schema:
    """The table of an edge type: `id`, `src`, `dst`, then its properties in byte order of name."""
    endpoints = [pa.field(name, pa.string(), nullable=False) for name in (SRC, DST)]
    return _table_schema(endpoints, properties)


def _table_schema(endpoints: list[pa.Field], properties: Iterable[PropertyColumn]) -> pa.Schema:
    id_field = pa.field(ID, pa.string(), nullable=False, metadata=PRIMARY_KEY_METADATA)
    # Python orders strings by code point, and UTF-8 keeps that order in its bytes.
    columns = sorted(properties, key=lambda column: column[0])
    return pa.schema([id_field, *endpoints, *(property_field(*column) for column in columns)])
