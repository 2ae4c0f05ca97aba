"""A schema with every kind of property, committed rows in memory, and short ways to load."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.external_blobs import ExternalBlobs
from omnigraph.commit.plan import ChangeSet, TableChange, WriteLimits
from omnigraph.loading.in_process import LoadPlan, checked_plan, plan_load
from omnigraph.loading.input_tables import ReadRecords, read_input
from omnigraph.loading.records.framing import CHUNK_BYTES, RecordSource
from omnigraph.loading.records.ids import MintIds, minted_by
from omnigraph.loading.records.problems import Findings, Grammar
from omnigraph.model.receipts import LoadMode
from omnigraph.model.values import BlobUri
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema
from omnigraph.storage.reader import SnapshotReader

SCHEMA = """
node Person {
    slug: String @key
    name: String?
    age: I32?
    visits: U64?
    height: F32?
    active: Bool?
    born: Date?
    seen: DateTime?
    tags: [String]?
    leaf: Vector(2)?
    photo: Blob?
    level: I32? @default(3)
}
node Slot { region: String  code: I32  note: String?  @key(region, code) }
node Day { on: Date @key  label: String? }
node Note { text: String  stars: I64? }
edge Knows: Person -> Person { since: Date?  weight: F64? }
edge Opens: Slot -> Day { note: String? }
edge About: Note -> Person
"""


@lru_cache
def catalog(schema: str = SCHEMA) -> Catalog:
    return compile_schema(schema).catalog


class Rows(SnapshotReader):
    """The committed rows of a graph, as the write path and an export see them."""

    def __init__(self, tables: dict[str, pa.Table] | None = None) -> None:
        self.tables = dict(tables or {})
        self.lookups: list[tuple[str, tuple[str, ...]]] = []

    def is_empty(self, table_key: str) -> bool:
        return table_key not in self.tables or not self.tables[table_key].num_rows

    def scan(self, table_key: str, columns: Sequence[str] | None = None) -> pa.Table:
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
        self.lookups.append((table_key, tuple(columns)))
        table = self.tables[table_key]
        return table.filter(pc.is_in(table[column], value_set=values)).select(list(columns))

    def ids(self, table_key: str) -> pa.ChunkedArray:
        return self.tables[table_key]["id"] if table_key in self.tables else pa.chunked_array([[]])

    def take(self, table_key: str, positions: pa.Array, columns: Sequence[str]) -> pa.Table:
        return self.tables[table_key].take(positions).select(list(columns))

    def blobs_at(
        self, table_key: str, column: str, positions: pa.Array
    ) -> Iterator[bytes | BlobUri | None]:
        for value in self.tables[table_key][column].take(positions).to_pylist():
            if value is None or value["uri"] is None:
                yield value and value["data"]
            else:
                yield BlobUri(value["uri"])

    def after(self, changes: ChangeSet) -> Rows:
        """The rows once ``changes`` are committed."""
        tables = dict(self.tables)
        for key, change in changes.tables.items():
            tables[key] = _applied(change, tables.get(key))
        return Rows(tables)


def _applied(change: TableChange, before: pa.Table | None) -> pa.Table:
    if change.kind == "replace" or before is None:
        return change.rows
    kept = before.filter(pc.invert(pc.is_in(before["id"], value_set=change.ids.combine_chunks())))
    assert change.kind == "upsert" or kept.num_rows == before.num_rows
    return pa.concat_tables([kept, change.rows])


def counting_ids() -> MintIds:
    """Ids `new-1`, `new-2` and so on."""
    count = iter(range(1, 1_000_000))
    return minted_by(lambda: f"new-{next(count)}")


def lines(*records: dict[str, Any] | str) -> bytes:
    """JSON lines of records; a text stands for itself."""
    return b"".join(
        (each if isinstance(each, str) else json.dumps(each)).encode() + b"\n" for each in records
    )


def node(type: str, **data: Any) -> dict[str, Any]:
    return {"type": type, "data": data}


def edge(type: str, source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": type, "from": source, "to": target, "data": data}


def read_all(
    *sources: bytes | RecordSource,
    mode: LoadMode = "append",
    grammar: Grammar = "strict",
    schema: str = SCHEMA,
    mint: MintIds | None = None,
    external: ExternalBlobs | None = None,
    limits: WriteLimits | None = None,
    chunk_bytes: int = CHUNK_BYTES,
) -> ReadRecords:
    """The records and their problems."""
    return read_input(
        [each if isinstance(each, RecordSource) else RecordSource.of(each) for each in sources],
        catalog=catalog(schema),
        mode=mode,
        grammar=grammar,
        mint=mint or counting_ids(),
        external=external,
        limits=limits,
        chunk_bytes=chunk_bytes,
    )


def read(*sources: bytes | RecordSource, **options: Any) -> ReadRecords:
    """The records, or a failure with the first problem."""
    found = read_all(*sources, **options)
    for problem in found.problems:
        raise problem.to_error()
    return found


def load(
    *sources: bytes | RecordSource,
    view: Rows | None = None,
    replace_types: Iterable[str] = (),
    **options: Any,
) -> LoadPlan:
    return plan_load(read(*sources, **options), view or Rows(), replace_types=replace_types)


def checked(*sources: bytes | RecordSource, view: Rows | None = None, **options: Any) -> LoadPlan:
    """The same, or a failure with everything that breaks a constraint."""
    found, findings = read_all(*sources, **options), Findings(100)
    for problem in found.problems:
        findings.note(problem)
    return checked_plan(found, view or Rows(), (), findings)


def rows(plan: LoadPlan | ReadRecords, table_key: str) -> list[dict[str, Any]]:
    """The rows of one table, as Python values."""
    tables = plan.changes.tables if isinstance(plan, LoadPlan) else plan.tables
    found: list[dict[str, Any]] = tables[table_key].rows.to_pylist()
    return found
