"""The rows a mutation has written so far, of one type."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.change_set import ChangeKind, TableChange
from omnigraph.commit.limits import Budget, WriteLimits
from omnigraph.commit.mutation.view import MutationView
from omnigraph.model.arrow import BLOB_STORAGE, DST, ID, SRC
from omnigraph.model.columns import column_from_values
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import Value
from omnigraph.schema.catalog import EdgeType, NodeType
from omnigraph.schema.table_schema import table_schema

_TEXT = ValueType(Scalar.STRING)


class PendingTable:
    """Complete rows, one per id, the last write to each.

    A blob that stays as it is committed is not read until everything else is known: its row holds
    a null and says so in a column of its own, which goes along wherever the row goes.
    """

    def __init__(self, type: NodeType | EdgeType, limits: WriteLimits) -> None:
        self._table_key = type.table_key
        self._limits = limits
        self.schema = table_schema(type)
        """What the table stores; `rows` may have more columns."""
        self.replaces_committed = False
        """Whether a row may meet a committed one of its id."""
        self._types = {ID: _TEXT, SRC: _TEXT, DST: _TEXT}
        self._types |= {name: declared.type for name, declared in type.properties.items()}
        self._blobs = [name for name, declared in type.properties.items() if declared.type.is_blob]
        staged = self.schema
        for name in self._blobs:
            staged = staged.append(pa.field(_stored(name), pa.bool_()))
        self._rows = staged.empty_table()
        self._inserted: list[Mapping[str, Value | None]] = []

    @property
    def readable_columns(self) -> list[str]:
        """The columns that a view gives: all but the blobs."""
        return [name for name in self.schema.names if name not in self._blobs]

    @property
    def rows(self) -> pa.Table:
        """Everything written so far."""
        if self._inserted:
            inserted, self._inserted = self._inserted, []
            columns = {
                name: column_from_values([row[name] for row in inserted], self._types[name])
                for name in self.schema.names
            }
            columns |= self._markers(len(inserted), stored=False)
            self.put(self._table(columns))
        return self._rows

    @property
    def ids(self) -> pa.Array:
        """The entities written so far."""
        return self.rows[ID].combine_chunks()

    def insert(self, row: Mapping[str, Value | None]) -> None:
        """Write one complete row."""
        self._inserted.append(row)

    def put(self, rows: pa.Table) -> None:
        """Write rows that have the columns of `rows`, over earlier ones with the same ids."""
        self._rows = _last_of_each_id(pa.concat_tables([self._rows, rows]))
        self._charge(rows=self._rows.num_rows, bytes=self._rows.nbytes)

    def adopt(self, committed: pa.Table) -> pa.Table:
        """Committed rows, read by `readable_columns`, in the columns of `rows`."""
        columns = {name: committed[name] for name in self.readable_columns}
        columns |= {name: pa.nulls(committed.num_rows, BLOB_STORAGE) for name in self._blobs}
        return self._table(columns | self._markers(committed.num_rows, stored=True))

    def assign(self, rows: pa.Table, values: Mapping[str, Value | None]) -> pa.Table:
        """``rows`` with each of ``values`` in every row."""
        for name, value in values.items():
            one = column_from_values([value], self._types[name])
            # A long text or a blob takes its room once per row; better known before than after.
            self._charge(bytes=one.nbytes * rows.num_rows)
            column = one.take(pa.array(np.zeros(rows.num_rows, np.int64)))
            rows = _replaced(rows, name, column)
            if name in self._blobs:
                rows = _replaced(rows, _stored(name), _repeated(False, rows.num_rows))
        return rows

    def change(self, view: MutationView) -> TableChange | None:
        """What has to be committed, with the blobs that stay; None if nothing was written."""
        if not self.rows.num_rows:
            return None
        rows = self._with_stored_blobs(view).select(self.schema.names)
        kind: ChangeKind = "upsert" if self.replaces_committed else "append"
        complete = pa.Table.from_arrays(rows.columns, schema=self.schema)
        return TableChange(self._table_key, kind, complete)

    def _with_stored_blobs(self, view: MutationView) -> pa.Table:
        rows = self.rows
        wanted = {name: rows[ID].filter(rows[_stored(name)]) for name in self._blobs}
        wanted = {name: ids.combine_chunks() for name, ids in wanted.items() if len(ids)}
        sizes = [view.blob_sizes(self._table_key, name, ids) for name, ids in wanted.items()]
        stored = sum(pc.sum(size, min_count=0).as_py() for size in sizes)
        self._charge(rows=rows.num_rows, bytes=rows.nbytes + stored)
        for name, ids in wanted.items():
            both = pa.concat_arrays(
                [rows[name].combine_chunks(), view.blobs(self._table_key, name, ids)]
            )
            is_stored = rows[_stored(name)].to_numpy()
            position = np.arange(rows.num_rows)
            position[is_stored] = rows.num_rows + np.arange(len(ids))
            rows = _replaced(rows, name, both.take(pa.array(position)))
        return rows

    def _charge(self, *, rows: int = 0, bytes: int = 0) -> None:
        Budget(self._limits, self._table_key).charge(rows=rows, bytes=bytes)

    def _table(self, columns: Mapping[str, pa.Array | pa.ChunkedArray]) -> pa.Table:
        schema = self._rows.schema
        return pa.Table.from_arrays([columns[name] for name in schema.names], schema=schema)

    def _markers(self, row_count: int, *, stored: bool) -> dict[str, pa.Array]:
        return {_stored(name): _repeated(stored, row_count) for name in self._blobs}


def _stored(blob: str) -> str:
    """The column that marks the rows whose blob stays; no property has a colon in its name."""
    return f"stored:{blob}"


def _repeated(value: bool, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value), count)


def _replaced(rows: pa.Table, name: str, column: pa.Array) -> pa.Table:
    at = rows.schema.get_field_index(name)
    return rows.set_column(at, rows.schema.field(at), column)


def _last_of_each_id(rows: pa.Table) -> pa.Table:
    """The last row of each id, in the order in which the ids appeared."""
    encoded = rows[ID].combine_chunks().dictionary_encode()
    numbers = encoded.indices.to_numpy()
    count = len(encoded.dictionary)
    if count == rows.num_rows:
        return rows
    last = np.zeros(count, np.int64)
    # Where an index repeats, numpy keeps what it assigned last.
    last[numbers] = np.arange(rows.num_rows)
    return rows.take(pa.array(last))
