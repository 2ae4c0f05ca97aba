"""Export: the entities of one snapshot as JSON lines that a load turns back into the same graph.

Types come in the order of their keys, so edges before nodes, and entities in the order of their
ids: two exports of the same content are the same bytes. Numbers stay exact, dates are epoch
numbers, and every property is there, null or not, so that an overwrite restores what it replaces.

Memory holds the ids of one type, some rows, and the blobs of one entity.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Protocol

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import NotFound
from omnigraph.model.arrow import DST, ID, SRC, arrow_type
from omnigraph.model.result_json import rows_to_python
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import BLOB_PREFIX, BlobUri
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.syntax.suggest import did_you_mean

ROWS_PER_READ = 4_096
BLOCK_BYTES = 1 << 20
"""Blocks end with the line that fills them."""


class ExportReader(Protocol):
    """The rows of one snapshot, by type key and position."""

    def ids(self, table_key: str) -> pa.ChunkedArray:
        """The ids of a type; an id's place in here is its row's position."""
        ...

    def take(self, table_key: str, positions: pa.Array, columns: Sequence[str]) -> pa.Table:
        """The rows at ``positions``, in that order."""
        ...

    def blobs_at(
        self, table_key: str, column: str, positions: pa.Array
    ) -> Iterator[bytes | BlobUri | None]:
        """The values of a blob column at ``positions``, one after another, each read when asked."""
        ...


def export_blocks(
    reader: ExportReader, catalog: Catalog, *, type_names: Iterable[str] | None = None
) -> Iterator[bytes]:
    """JSON lines of all entities, or of the types with these names, in blocks of whole lines.

    A name that is both a node type and an edge type means both. Raises `NotFound` for an unknown
    one, before anything is read.
    """
    types = _selected(catalog, type_names)
    return in_blocks(line for key in sorted(types) for line in _lines(reader, types[key]))


def _selected(catalog: Catalog, type_names: Iterable[str] | None) -> dict[str, NodeType | EdgeType]:
    everything: list[NodeType | EdgeType] = [*catalog.nodes.values(), *catalog.edges.values()]
    if type_names is None:
        return {type.table_key: type for type in everything}
    wanted = set(type_names)
    for name in sorted(wanted):
        if name not in catalog.nodes and name not in catalog.edges:
            known = sorted({type.name for type in everything})
            raise NotFound(
                f"there is no type '{name}' to export",
                hint=did_you_mean(name, known) or f"the types are {', '.join(known)}",
                details={"type": name},
            )
    return {type.table_key: type for type in everything if type.name in wanted}


def in_blocks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Lines put together, so that there are fewer writes than lines."""
    block: list[bytes] = []
    size = 0
    for line in lines:
        block.append(line)
        size += len(line)
        if size >= BLOCK_BYTES:
            yield b"".join(block)
            block, size = [], 0
    if block:
        yield b"".join(block)


def _lines(reader: ExportReader, type: NodeType | EdgeType) -> Iterator[bytes]:
    order = pc.sort_indices(reader.ids(type.table_key))
    for start in range(0, len(order), ROWS_PER_READ):
        positions = order.slice(start, ROWS_PER_READ)
        for record in _records(reader, type, positions):
            yield orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


def _records(
    reader: ExportReader, type: NodeType | EdgeType, positions: pa.Array
) -> Iterator[dict[str, Any]]:
    key = type.table_key
    plain = [name for name, prop in type.properties.items() if not prop.type.is_blob]
    ends = [SRC, DST] if isinstance(type, EdgeType) else []
    rows = reader.take(key, positions, [ID, *ends, *plain])
    entities: Iterable[dict[str, Any]] = rows_to_python(_with_epoch_numbers(rows, type))
    blob_names = [name for name, prop in type.properties.items() if prop.type.is_blob]
    if blob_names:
        blobs = [reader.blobs_at(key, name, positions) for name in blob_names]
        entities = _with_blobs(entities, type, blob_names, blobs)
    for data in entities:
        if isinstance(type, EdgeType):
            yield {"edge": type.name, "from": data.pop(SRC), "to": data.pop(DST), "data": data}
        else:
            yield {"type": type.name, "data": data}


def _with_epoch_numbers(rows: pa.Table, type: NodeType | EdgeType) -> pa.Table:
    """``rows`` with dates as days and date-times as milliseconds since 1970, in lists too."""
    for name, prop in type.properties.items():
        number = _EPOCH_NUMBERS.get(prop.type.scalar)
        if number is not None:
            i = rows.schema.get_field_index(name)
            target = arrow_type(ValueType(number, is_list=prop.type.is_list))
            rows = rows.set_column(i, name, rows[name].cast(target))
    return rows


_EPOCH_NUMBERS = {Scalar.DATE: Scalar.I32, Scalar.DATETIME: Scalar.I64}


def _with_blobs(
    entities: Iterable[dict[str, Any]],
    type: NodeType | EdgeType,
    names: Sequence[str],
    columns: Sequence[Iterator[bytes | BlobUri | None]],
) -> Iterator[dict[str, Any]]:
    order = [ID, *([SRC, DST] if isinstance(type, EdgeType) else []), *type.properties]
    for entity, *values in zip(entities, *columns, strict=True):
        entity |= {name: blob_text(value) for name, value in zip(names, values, strict=True)}
        yield {name: entity[name] for name in order}


def blob_text(value: bytes | BlobUri | None) -> str | None:
    """A blob as loads read it: its bytes in base 64, or the URI of an external one."""
    if value is None:
        return None
    if isinstance(value, BlobUri):
        return value.uri
    return BLOB_PREFIX + base64.b64encode(value).decode()
