"""Finding the committed rows a `where` is true for.

A predicate that pins the key, a unique property or an endpoint is answered by lookup. Any other is
streamed over the columns it reads, and only rows that match are then read in full, so that a wide
table costs no more than its matches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from math import prod

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.limits import Budget
from omnigraph.commit.mutation.constants import Inputs
from omnigraph.commit.mutation.view import MutationView
from omnigraph.errors import InternalError
from omnigraph.model.arrow import DST, ID, SRC, arrow_type
from omnigraph.model.columns import spell_column
from omnigraph.model.spelling import entity_id
from omnigraph.model.types import ValueType
from omnigraph.query import expressions as ex
from omnigraph.query.evaluate import ColumnExpression, holds, scalar_operand
from omnigraph.query.evaluate.comparison import equal_members
from omnigraph.schema.catalog import EdgeType, NodeType

LOOKUP_IDS_MAX = 2_000
"""Up to here matched rows are fetched by id; for more of them the table is streamed again."""

KEY_TUPLES_MAX = 10_000
"""Up to here a list for each member of a key is multiplied out into ids."""

NO_IDS = pa.array([], pa.string())


@dataclass(frozen=True, slots=True)
class Lookup:
    """Rows whose ``column`` holds one of ``values``: all that match are among them."""

    column: str
    values: pa.Array


class Matcher:
    """The committed rows of one type that satisfy one predicate."""

    def __init__(
        self,
        view: MutationView,
        type: NodeType | EdgeType,
        predicate: ex.Expression,
        inputs: Inputs,
    ) -> None:
        self._view = view
        self._table_key = type.table_key
        self._predicate = predicate
        self._inputs = inputs
        self._lookup = find_lookup(type, predicate, inputs)
        leaves = (leaf for leaf in ex.walk(predicate) if isinstance(leaf, ex.PropertyValue))
        self._columns_read = list(dict.fromkeys([ID, *(leaf.property for leaf in leaves)]))

    def matches(self, rows: pa.Table | pa.RecordBatch) -> pa.Array | pa.ChunkedArray:
        """For each row whether the predicate is true."""

        def column(leaf: ColumnExpression) -> pa.Array | pa.ChunkedArray:
            if not isinstance(leaf, ex.PropertyValue):
                raise InternalError(f"a mutation cannot read {leaf}")
            return rows[leaf.property]

        inputs = self._inputs
        return holds(self._predicate, column, inputs.parameters, inputs.now, rows.num_rows)

    def ids(self, budget: Budget, shadowed: pa.Array = NO_IDS) -> pa.Array:
        """The ids of all matching rows but the ``shadowed`` ones."""
        parts: list[pa.Array] = []
        for rows in self._found(self._columns_read, shadowed):
            budget.charge(rows=rows.num_rows)
            parts += rows[ID].chunks
        return pa.chunked_array(parts, pa.string()).combine_chunks()

    def rows(self, columns: Sequence[str], budget: Budget, shadowed: pa.Array) -> pa.Table | None:
        """All matching rows but the ``shadowed`` ones; ``columns`` include those it reads."""
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
            yield self._view.rows_where_in(self._table_key, at, values, columns)


# --- lookups --------------------------------------------------------------------------------------


def find_lookup(
    type: NodeType | EdgeType, predicate: ex.Expression, inputs: Inputs
) -> Lookup | None:
    """A lookup that finds few rows, and among them every one that matches."""
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
        # A float has two zeros, which stores tell apart and comparisons do not.
        if name in (SRC, DST) or (name in unique and not pa.types.is_floating(values.type)):
            return Lookup(name, values)
    return None


def _pinned(predicate: ex.Expression, inputs: Inputs) -> dict[str, pa.Array]:
    """Columns that must hold one of a few values for the predicate to be true."""
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
    """The canonical texts of key values; an infinity has none, and no key holds one."""
    if type.scalar.is_float:
        values = values.filter(pc.is_finite(values))
    texts: list[str] = pc.unique(spell_column(values, type)).to_pylist()
    return texts
