"""Export: the entities of one snapshot, in a form from which a load restores the same graph.

The forms are JSON lines, or one table per type. Types are in the order of their keys, so edges come
before nodes. Lines are in the order of ids, so exports of the same content are identical. Numbers
stay exact, dates are epoch numbers, and null properties are included, so that an overwrite restores
every value.

Memory holds the ids of one type, some rows, and the blobs of one entity.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branching.moments import no_type
from omnigraph.branching.table_rows import TableRows, blob_text
from omnigraph.model.arrow import ID, arrow_type
from omnigraph.model.exports import record_ends
from omnigraph.model.references import ShownEnds
from omnigraph.model.result import ReadTarget
from omnigraph.model.tables import Table, TableInfo, batch_rows
from omnigraph.model.types import Scalar, ValueType
from omnigraph.schema.catalog import Catalog, EdgeType, TableType, table_schema
from omnigraph.storage.reader import SnapshotReader

BLOCK_BYTES = 1 << 20
"""The size at which a block ends, after the current line."""


def export_blocks(
    reader: SnapshotReader, catalog: Catalog, *, type_names: Iterable[str] | None = None
) -> Iterator[bytes]:
    """JSON lines of all entities, or of the types with these names, in blocks of whole lines.

    A name that both a node type and an edge type have selects both. Raises `NotFound` for an
    unknown one, before anything is read.
    """
    types = _selected(catalog, type_names)
    return in_blocks(
        line for key in sorted(types) for line in _lines(TableRows(reader, types[key]))
    )


def export_tables(
    reader: SnapshotReader,
    catalog: Catalog,
    target: ReadTarget,
    *,
    type_names: Iterable[str] | None = None,
) -> Iterator[Table]:
    """The same entities as one table per type, in storage order.

    The columns and the texts of blobs are those that a load of a table reads. Raises as
    `export_blocks`.
    """
    types = _selected(catalog, type_names)
    return (_table(TableRows(reader, types[key]), target) for key in sorted(types))


def _table(rows: TableRows, target: ReadTarget) -> Table:
    schema = pa.schema(
        [
            pa.field(
                each.name,
                pa.large_string() if each.name in rows.blob_columns else each.type,
                each.nullable,
            )
            for each in ShownEnds.of(rows.type).schema(table_schema(rows.type))
        ]
    )
    about = TableInfo(rows.kind, rows.type.name, target, rows.reader.snapshot.commit_id)
    return Table(about, schema, partial(_batches, rows, schema))


def _batches(rows: TableRows, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    if rows.reader.is_empty(rows.key):
        return
    ends = ShownEnds.of(rows.type)
    if not rows.blob_columns:
        names = list(dict.fromkeys(map(ends.stored, schema.names)))
        for batch in rows.reader.batches(rows.key, names, batch_rows(schema)):
            columns = [ends.column(name, batch) for name in schema.names]
            yield pa.RecordBatch.from_arrays(columns, names=schema.names).cast(schema)
        return
    for part in rows.blob_parts(rows.reader.places(rows.key)[1]):
        table = ends.table(rows.plain(part))
        for name in rows.blob_columns:
            blobs = rows.reader.blobs_at(rows.key, name, pa.array(part))
            texts = pa.array(map(blob_text, blobs), pa.large_string())
            table = table.append_column(name, texts)
        yield from table.select(schema.names).cast(schema).combine_chunks().to_batches()


def _selected(catalog: Catalog, type_names: Iterable[str] | None) -> dict[str, TableType]:
    wanted = None if type_names is None else set(type_names)
    known = sorted({type.name for type in catalog.types})
    for name in sorted((wanted or set()).difference(known)):
        raise no_type(name, known)
    return {type.table_key: type for type in catalog.types if wanted is None or type.name in wanted}


def in_blocks(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Join lines into blocks, to reduce the number of writes."""
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


def _lines(rows: TableRows) -> Iterator[bytes]:
    type, has_blobs = rows.type, bool(rows.blob_columns)
    name, is_edge, order = type.name, isinstance(type, EdgeType), [ID, *type.properties]
    ids, places = rows.reader.places(rows.key)
    positions = places[pc.sort_indices(ids).to_numpy()]
    for row in rows.records(positions, blob_text, partial(_with_epoch_numbers, type=type)):
        # Blobs come last in a row; restore the order of columns.
        data = {each: row[each] for each in order} if has_blobs else row
        record: dict[str, Any] = {"type": name, "data": data}
        if is_edge:
            record = {"edge": name, **record_ends(row), "data": data}
        yield orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE)


_EPOCH_NUMBERS = {Scalar.DATE: Scalar.I32, Scalar.DATETIME: Scalar.I64}


def _with_epoch_numbers(rows: pa.Table, type: TableType) -> pa.Table:
    """``rows`` in the form of records: ids at the ends of edges, dates as days and date-times as
    milliseconds since 1970, also in lists.
    """
    rows = ShownEnds.of(type).table(rows)
    for name, prop in type.properties.items():
        number = _EPOCH_NUMBERS.get(prop.type.scalar)
        if number is not None:
            i = rows.schema.get_field_index(name)
            target = arrow_type(ValueType(number, is_list=prop.type.is_list))
            rows = rows.set_column(i, name, rows[name].cast(target))
    return rows
