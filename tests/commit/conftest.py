"""Committed rows in memory, and short ways to run and check writes against them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.external_blobs import ExternalBlobs
from omnigraph.commit.mutate import MutationOutcome, run_mutation
from omnigraph.commit.plan import (
    DEFAULT_LIMITS,
    ChangeKind,
    ChangeSet,
    TableChange,
    WriteLimits,
)
from omnigraph.model.arrow import column_from_values
from omnigraph.model.ids import TableKey
from omnigraph.model.parameters import bind_parameters
from omnigraph.model.types import Scalar, ValueType
from omnigraph.query import plan
from omnigraph.query.compile import compile_query
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, table_schema
from omnigraph.schema.compile import compile_schema
from omnigraph.storage.reader import SnapshotReader

NOW = dt.datetime(2031, 4, 9, 7, 30, 0, 123000, tzinfo=dt.UTC)
BATCH_ROWS = 2
"""Small, so that every test streams."""


class MemoryView(SnapshotReader):
    """The rows of a graph as Arrow tables, and a list of everything that was read of them."""

    def __init__(self, tables: Mapping[str, pa.Table] | None = None) -> None:
        self.tables = dict(tables or {})
        self.reads: list[tuple[str, ...]] = []

    def is_empty(self, table_key: str) -> bool:
        return table_key not in self.tables or not self.tables[table_key].num_rows

    def scan(self, table_key: str, columns: Sequence[str] | None = None) -> pa.Table:
        self.reads.append(("scan", table_key))
        table = self.tables[table_key]
        return table if columns is None else table.select(list(columns))

    def rows_where_in(
        self,
        table_key: str,
        column: str,
        values: pa.Array,
        columns: Sequence[str],
        *,
        narrowed_by: Mapping[str, pa.Array] | None = None,
    ) -> pa.Table:
        self.reads.append(("lookup", table_key, column))
        table = self.tables[table_key]
        for end, ids in (narrowed_by or {}).items():
            table = table.filter(pc.is_in(table[end], value_set=ids))
        return table.filter(pc.is_in(table[column], value_set=values)).select(list(columns))

    def batches(
        self, table_key: str, columns: Sequence[str], rows_max: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        table = self.tables[table_key].select(list(columns))
        for at in range(0, table.num_rows, BATCH_ROWS):
            self.reads.append(("batch", table_key, *columns))
            yield from table.slice(at, BATCH_ROWS).combine_chunks().to_batches()

    def blob_sizes(self, table_key: str, column: str, ids: pa.Array) -> pa.Array:
        self.reads.append(("blob sizes", table_key, column))
        blobs = self._blobs(table_key, column, ids).to_pylist()
        return pa.array([each and len(each["data"]) for each in blobs], pa.int64())

    def blobs(self, table_key: str, column: str, ids: pa.Array) -> pa.Array:
        self.reads.append(("blobs", table_key, column))
        return self._blobs(table_key, column, ids)

    def _blobs(self, table_key: str, column: str, ids: pa.Array) -> pa.Array:
        table = self.tables[table_key]
        at = pc.index_in(ids, value_set=table["id"].combine_chunks())
        assert not at.null_count
        return table[column].combine_chunks().take(at)

    def after(self, changes: ChangeSet) -> MemoryView:
        """The graph once ``changes`` are committed."""
        tables = dict(self.tables)
        for key, change in changes.tables.items():
            before = tables.get(key)
            if change.kind == "replace" or before is None:
                tables[key] = change.rows
                continue
            is_kept = pc.invert(pc.is_in(before["id"], value_set=change.ids.combine_chunks()))
            kept = before.filter(is_kept)
            removed = before.num_rows - kept.num_rows
            assert removed == {"append": 0, "delete": len(change.ids)}.get(change.kind, removed)
            tables[key] = kept if change.kind == "delete" else pa.concat_tables([kept, change.rows])
        return MemoryView(tables)

    def entities(self, table_key: str) -> dict[str, dict[str, Any]]:
        """All rows of a type by id, without it."""
        if table_key not in self.tables:
            return {}
        rows = self.tables[table_key].to_pylist()
        return {row["id"]: {k: v for k, v in row.items() if k != "id"} for row in rows}


@lru_cache
def catalog_of(schema: str) -> Catalog:
    return compile_schema(schema).catalog


def type_of(catalog: Catalog, table_key: str) -> NodeType | EdgeType:
    key = TableKey.parse(table_key)
    return (catalog.nodes if key.kind == "node" else catalog.edges)[key.type_name]


def rows_of(catalog: Catalog, table_key: str, records: Sequence[Mapping[str, Any]]) -> pa.Table:
    """Rows in the schema of a type; what a record leaves out is null, a blob is `bytes`."""
    type = type_of(catalog, table_key)
    schema = table_schema(type)
    types = {name: declared.type for name, declared in type.properties.items()}
    columns = [
        column_from_values(
            [record.get(name) for record in records], types.get(name, ValueType(Scalar.STRING))
        )
        for name in schema.names
    ]
    return pa.Table.from_arrays(columns, schema=schema)


def graph_of(catalog: Catalog, **records: Sequence[Mapping[str, Any]]) -> MemoryView:
    """A committed graph from records by type name."""
    return MemoryView(
        {
            (key := f"{'node' if name in catalog.nodes else 'edge'}:{name}"): rows_of(
                catalog, key, of_type
            )
            for name, of_type in records.items()
        }
    )


def change_of(
    catalog: Catalog, kind: ChangeKind, table_key: str, *records: Mapping[str, Any] | str
) -> TableChange:
    """A change of one table; a text stands for a row with that id, as a delete needs."""
    rows = rows_of(
        catalog, table_key, [{"id": each} if isinstance(each, str) else each for each in records]
    )
    return TableChange(table_key, kind, rows.select(["id"]) if kind == "delete" else rows)


def changes_of(*changes: TableChange) -> ChangeSet:
    return ChangeSet({change.table_key: change for change in changes})


def counted_ids() -> Callable[[], str]:
    """Ids `new-1`, `new-2` and so on."""
    numbers = count(1)
    return lambda: f"new-{next(numbers)}"


def mutate(
    catalog: Catalog,
    view: MemoryView,
    statements: str,
    /,
    limits: WriteLimits = DEFAULT_LIMITS,
    external: ExternalBlobs | None = None,
    declared: str = "",
    **parameters: Any,
) -> MutationOutcome:
    """Compile and run the statements of a mutation; ``declared`` are its parameters."""
    compiled = compile_query(f"query q({declared}) {{ {statements} }}", catalog)
    assert isinstance(compiled, plan.MutationPlan)
    bound = bind_parameters({each.name: each.type for each in compiled.parameters}, parameters)
    return run_mutation(
        compiled,
        bound,
        catalog,
        view,
        now=NOW,
        mint_id=counted_ids(),
        limits=limits,
        external=external,
    )
