"""The rows of a mutation: those that a `where` matches, and those written so far.

A predicate with equality on the key, a unique property or an endpoint is evaluated by lookup. Other
predicates scan the columns they read, and only matching rows are read in full.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.external_blobs import ExternalBlobs
from omnigraph.commit.plan import Budget, ChangeKind, TableChange, WriteLimits
from omnigraph.errors import InternalError
from omnigraph.model.arrow import (
    BLOB_STORAGE,
    DST,
    ID,
    SRC,
    arrow_type,
    column_from_values,
    spell_column,
)
from omnigraph.model.records import dataclass
from omnigraph.model.references import ShownEnds
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import BlobUri, Value, assigned_value, entity_id, property_value
from omnigraph.query import expressions as ex
from omnigraph.query.evaluate import ColumnExpression, evaluate, holds, scalar_operand
from omnigraph.query.kernels import equal_members
from omnigraph.query.plan import Assignment
from omnigraph.schema.catalog import NodeType, Property, TableType, table_schema
from omnigraph.storage.reader import SnapshotReader


@dataclass(frozen=True, slots=True)
class Inputs:
    """Inputs of a mutation: bound parameters, the time of `now()`, the policy for blob URIs."""

    parameters: Mapping[str, Value | None]
    now: dt.datetime
    external: ExternalBlobs

    def assigned(self, assignment: Assignment) -> Value | None:
        """The value to assign; raises `ValueConversionError` if the property cannot hold it."""
        return self.as_property(assignment.value, assignment.property, assignment.type)

    def endpoint(self, expression: ex.Expression, name: str) -> str:
        """The node id given for `from` or `to`."""
        value = self.as_property(expression, name, ex.STRING)
        assert isinstance(value, str)
        return value

    def as_property(self, expression: ex.Expression, name: str, type: ValueType) -> Value | None:
        """A literal, a parameter or `now()` as a value of ``type``."""
        value = assigned_value(self._value(expression), type, name)
        # A mutation copies external blobs; only an overwrite stores references.
        return self.external.copy(value.uri, name) if isinstance(value, BlobUri) else value

    def _value(self, expression: ex.Expression) -> object:
        match expression:
            case ex.Constant():
                return expression.value
            case ex.ParameterValue():
                return self.parameters[expression.name]
            case ex.CurrentTime():
                return self.now
        return scalar_operand(expression, self.parameters, self.now).as_py()

    def at_item(self, variable: str, item: Any) -> Inputs:
        """The inputs inside a loop: with the current item, or the fields of a record."""
        if isinstance(item, dict):
            given = {f"{variable}.{field}": value for field, value in item.items()}
        else:
            given = {variable: item}
        return replace(self, parameters={**self.parameters, **given})

    def computed(self, assignment: Assignment, rows: pa.Table) -> pa.Array:
        """The values to assign, computed from each row."""

        def column(leaf: ColumnExpression) -> pa.ChunkedArray:
            assert isinstance(leaf, ex.PropertyValue)
            return rows[leaf.property]

        found = evaluate(assignment.value, column, self.parameters, self.now)
        if isinstance(found, pa.Scalar):
            found = pa.repeat(found, rows.num_rows)
        name, type = assignment.property, assignment.type
        return column_from_values(
            [assigned_value(value, type, name) for value in found.to_pylist()], type
        )


def unassigned(declared: Property) -> Value | None:
    """The value of a property that an insert does not name: its default, or null if nullable."""
    return property_value(declared.default, declared.type, declared.name, strict=True)


LOOKUP_IDS_MAX = 2_000
"""Up to so many matched rows are fetched by id; for more the table is scanned again."""

KEY_TUPLES_MAX = 10_000
"""The most ids that lists of values for the members of a key are combined into."""

NO_IDS = pa.nulls(0, pa.string())


@dataclass(frozen=True, slots=True)
class Lookup:
    """A lookup by ``column`` and ``values`` whose rows include all matching ones."""

    column: str
    values: pa.Array
    narrowed_by: Mapping[str, pa.Array] = field(default_factory=dict)
    """By edge end: ids of which matching edges have one there, too."""


class Matcher:
    """The committed rows of one type that satisfy one predicate."""

    def __init__(
        self, view: SnapshotReader, type: TableType, predicate: ex.Expression, inputs: Inputs
    ) -> None:
        self._view = view
        self._table_key = type.table_key
        self._predicate = predicate
        self._inputs = inputs
        # In an older version the column may have another name.
        is_same = view.columns(type.table_key).is_same
        self._lookup = find_lookup(type, predicate, inputs) if is_same else None
        self._ends = ShownEnds.of(type)
        leaves = (leaf for leaf in ex.walk(predicate) if isinstance(leaf, ex.PropertyValue))
        read = (self._ends.stored(leaf.property) for leaf in leaves)
        self._columns_read = list(dict.fromkeys([ID, *read]))

    def matches(self, rows: pa.Table | pa.RecordBatch) -> pa.Array | pa.ChunkedArray:
        """Whether the predicate is true, by row."""

        def column(leaf: ColumnExpression) -> pa.Array | pa.ChunkedArray:
            if not isinstance(leaf, ex.PropertyValue):
                raise InternalError(f"a mutation cannot read {leaf}")
            return self._ends.column(leaf.property, rows)

        inputs = self._inputs
        return holds(self._predicate, column, inputs.parameters, inputs.now, rows.num_rows)

    def ids(self, budget: Budget, shadowed: pa.Array = NO_IDS) -> pa.Array:
        """The ids of all matching rows except the ``shadowed`` ones."""
        parts: list[pa.Array] = []
        for rows in self._found(self._columns_read, shadowed):
            budget.charge(rows=rows.num_rows)
            parts += rows[ID].chunks
        return pa.chunked_array(parts, pa.string()).combine_chunks()

    def rows(self, columns: Sequence[str], budget: Budget, shadowed: pa.Array) -> pa.Table | None:
        """Matching rows except ``shadowed`` ones; ``columns`` include those of the predicate."""
        is_counted = False
        if self._lookup is None and not set(columns) <= set(self._columns_read):
            ids = self.ids(budget, shadowed)
            if len(ids) <= LOOKUP_IDS_MAX:
                if not len(ids):
                    return None
                rows = self._view.rows_where_in(self._table_key, ID, ids, columns)
                budget.charge(bytes=rows.nbytes)
                return rows
            is_counted = True
        parts = []
        for rows in self._found(columns, shadowed):
            budget.charge(rows=0 if is_counted else rows.num_rows, bytes=rows.nbytes)
            parts.append(rows)
        return pa.concat_tables(parts) if parts else None

    def found(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """All matching rows with ``columns``, in batches."""
        read = list(dict.fromkeys([*columns, *self._columns_read]))
        return (rows.select(columns) for rows in self._found(read, NO_IDS))

    def _found(self, columns: Sequence[str], shadowed: pa.Array) -> Iterator[pa.Table]:
        for candidates in self._candidates(columns, shadowed):
            rows = candidates.filter(self.matches(candidates))
            if len(shadowed) and rows.num_rows:
                rows = rows.filter(pc.invert(pc.is_in(rows[ID], value_set=shadowed)))
            if rows.num_rows:
                yield rows

    def _candidates(self, columns: Sequence[str], shadowed: pa.Array) -> Iterator[pa.Table]:
        if self._view.is_empty(self._table_key):
            return
        if self._lookup is None:
            for batch in self._view.batches(self._table_key, columns):
                yield pa.Table.from_batches([batch])
            return
        at, values = self._lookup.column, self._lookup.values
        if at == ID and len(shadowed):
            values = values.filter(pc.invert(pc.is_in(values, value_set=shadowed)))
        if len(values):
            ends = self._lookup.narrowed_by
            yield self._view.rows_where_in(self._table_key, at, values, columns, narrowed_by=ends)


# --- lookups --------------------------------------------------------------------------------------


def find_lookup(type: TableType, predicate: ex.Expression, inputs: Inputs) -> Lookup | None:
    """A selective lookup that finds all matching rows; None without one."""
    pinned = _pinned(predicate, inputs)
    if ID in pinned:
        return Lookup(ID, pinned[ID])
    if isinstance(type, NodeType) and type.key and pinned.keys() >= set(type.key):
        members = [_spellings(pinned[name], type.properties[name].type) for name in type.key]
        if prod(map(len, members)) <= KEY_TUPLES_MAX:
            ids = [entity_id(member) for member in product(*members)]
            return Lookup(ID, pc.unique(pa.array(ids, pa.string())))
    unique = {group[0] for group in type.unique if len(group) == 1}
    for name, values in pinned.items():
        # Not for floats: 0.0 equals -0.0, but an index stores them as different values.
        if name in (SRC, DST) or (name in unique and not pa.types.is_floating(values.type)):
            ends = {end: pinned[end] for end in (SRC, DST) if end in pinned and end != name}
            shown = ShownEnds.of(type)
            return Lookup(
                name,
                shown.references(name, values),
                {end: shown.references(end, ids) for end, ids in ends.items()},
            )
    return None


def _pinned(predicate: ex.Expression, inputs: Inputs) -> dict[str, pa.Array]:
    """By column: the few values of which it must have one for the predicate to be true."""
    match predicate:
        case ex.Combine(operator="and"):
            found: dict[str, pa.Array] = {}
            for operand in predicate.operands:
                for name, values in _pinned(operand, inputs).items():
                    found.setdefault(name, values)
            return found
        case ex.Compare(operator="=", left=ex.PropertyValue() as column, right=value):
            given = scalar_operand(value, inputs.parameters, inputs.now)
            members = pa.array([given.as_py()], given.type)
        case ex.ListContains(list=value, item=ex.PropertyValue() as column):
            given = scalar_operand(value, inputs.parameters, inputs.now)
            members = given.values if given.is_valid else pa.array([], given.type.value_type)
        case _:
            return {}
    return {column.property: pc.unique(equal_members(members, arrow_type(column.type)))}


def _spellings(values: pa.Array, type: ValueType) -> list[str]:
    """The canonical texts of key values; infinities, which no key has, are left out."""
    if type.scalar.is_float:
        values = values.filter(pc.is_finite(values))
    texts: list[str] = pc.unique(spell_column(values, type)).to_pylist()
    return texts


_TEXT = ValueType(Scalar.STRING)

_CHUNKS_MAX = 32


class PendingTable:
    """The rows that a mutation has written: complete, and one per id.

    An unchanged blob is read only at the end: until then its row has null, and is marked in an
    extra column.
    """

    def __init__(self, type: TableType, limits: WriteLimits) -> None:
        self._table_key = type.table_key
        self._limits = limits
        self.schema = table_schema(type)
        """The stored columns; `rows` may have more."""
        self.replaces_committed = False
        """Whether a row may replace a committed one with its id."""
        self._types = {ID: _TEXT, SRC: _TEXT, DST: _TEXT}
        self._types |= {name: declared.type for name, declared in type.properties.items()}
        self._blobs = [p.name for p in type.properties.values() if p.type.scalar is Scalar.BLOB]
        staged = self.schema
        for name in self._blobs:
            staged = staged.append(pa.field(_stored(name), pa.bool_()))
        self._rows = staged.empty_table()
        self._inserted: list[Mapping[str, Value | None]] = []

    @property
    def readable_columns(self) -> list[str]:
        """The columns to read of committed rows: all except blobs."""
        return [name for name in self.schema.names if name not in self._blobs]

    @property
    def rows(self) -> pa.Table:
        """All rows written so far."""
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
        """The ids written so far."""
        return self.rows[ID].combine_chunks()

    def insert(self, row: Mapping[str, Value | None]) -> None:
        """Write one complete row."""
        self._inserted.append(row)

    def put(self, rows: pa.Table) -> None:
        """Write rows with the columns of `rows`, replacing earlier ones with the same ids."""
        together = _last_of_each_id(pa.concat_tables([self._rows, rows]))
        # Updates in a loop add a chunk each, and the cost of reads grows with the chunks.
        is_scattered = together[ID].num_chunks > _CHUNKS_MAX
        self._rows = together.combine_chunks() if is_scattered else together
        self._charge(rows=self._rows.num_rows, bytes=self._rows.nbytes)

    def adopt(self, committed: pa.Table) -> pa.Table:
        """Committed rows with `readable_columns`, extended to the columns of `rows`."""
        columns = {name: committed[name] for name in self.readable_columns}
        columns |= {name: pa.nulls(committed.num_rows, BLOB_STORAGE) for name in self._blobs}
        return self._table(columns | self._markers(committed.num_rows, stored=True))

    def assign(self, rows: pa.Table, values: Mapping[str, Value | None]) -> pa.Table:
        """``rows`` with ``values`` assigned in every row."""
        for name, value in values.items():
            one = column_from_values([value], self._types[name])
            # A long text or a blob is copied to every row: charge the budget first.
            self._charge(bytes=one.nbytes * rows.num_rows)
            column = one.take(pa.array(np.zeros(rows.num_rows, np.int64)))
            rows = _replaced(rows, name, column)
            if name in self._blobs:
                rows = _replaced(rows, _stored(name), _repeated(False, rows.num_rows))
        return rows

    def assign_columns(self, rows: pa.Table, columns: Mapping[str, pa.Array]) -> pa.Table:
        """``rows`` with some columns, which are not blobs, replaced."""
        for name, column in columns.items():
            rows = _replaced(rows, name, column)
        return rows

    def change(self, view: SnapshotReader) -> TableChange | None:
        """The change to commit, with unchanged blobs read; None if nothing was written."""
        if not self.rows.num_rows:
            return None
        rows = self._with_stored_blobs(view).select(self.schema.names)
        kind: ChangeKind = "upsert" if self.replaces_committed else "append"
        complete = pa.Table.from_arrays(rows.columns, schema=self.schema)
        return TableChange(self._table_key, kind, complete)

    def _with_stored_blobs(self, view: SnapshotReader) -> pa.Table:
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
    """The column that marks rows with an unchanged blob; property names have no colon."""
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
    # For repeated indexes numpy keeps the last assignment.
    last[numbers] = np.arange(rows.num_rows)
    return rows.take(pa.array(last))
