"""The recovery audit: one row for every operation that recovery settled."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson
import pyarrow as pa

from omnigraph.errors import NotFound
from omnigraph.model.records import dataclass
from omnigraph.storage.datasets import LanceStore
from omnigraph.storage.failures import count_lance
from omnigraph.storage.layout import RECOVERY_AUDIT
from omnigraph.storage.transactions import CommitLost, DatasetRef

SCHEMA = pa.schema(
    [
        pa.field(
            "operation_id",
            pa.string(),
            nullable=False,
            metadata={b"lance-schema:unenforced-primary-key": b"true"},
        ),
        pa.field("graph_commit_id", pa.string()),
        pa.field("recovery_kind", pa.string(), nullable=False),
        pa.field("recovery_for_actor", pa.string()),
        pa.field("sidecar_writer_kind", pa.string(), nullable=False),
        pa.field("per_table_outcomes_json", pa.string(), nullable=False),
        pa.field("retired_transactions_json", pa.string(), nullable=False),
        pa.field("created_at", pa.int64(), nullable=False),
    ]
)


@dataclass(frozen=True, slots=True)
class TableOutcome:
    """What recovery did to one table."""

    table_key: str
    branch: str
    from_version: int
    to_version: int
    uuids: tuple[str, ...]
    foreign_versions: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class RetiredTable:
    """Transactions of an undone operation: one that lands later is undone as well."""

    location: str
    ref: str | None
    uuids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RecoveryRow:
    """One completed recovery."""

    operation_id: str
    graph_commit_id: str | None
    recovery_kind: str
    recovery_for_actor: str | None
    sidecar_writer_kind: str
    tables: tuple[TableOutcome, ...]
    retired: tuple[RetiredTable, ...]
    created_at: int

    @property
    def retired_uuids(self) -> frozenset[str]:
        """All transactions that this recovery has retired."""
        return frozenset(uuid for table in self.retired for uuid in table.uuids)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form printed by `recovery list`."""
        return asdict(self)


class RecoveryAudit:
    """The audit dataset of one graph, created on first use."""

    def __init__(self, lance: LanceStore, root_uri: str) -> None:
        self._lance = lance
        self._where = DatasetRef(f"{root_uri}/{RECOVERY_AUDIT}")

    def record(self, *rows: RecoveryRow) -> None:
        """Add the rows of a sidecar; idempotent for concurrent recoveries of an operation."""
        table = pa.Table.from_pylist([_encode(row) for row in rows], schema=SCHEMA)
        if not self._lance.exists(self._where):
            try:
                self._lance.create(self._where, SCHEMA, table, f"audit-{rows[0].operation_id}")
            except CommitLost:
                # A concurrent recovery created it.
                self._lance.insert_new(self._where, "operation_id", table)
            return
        self._lance.insert_new(self._where, "operation_id", table)

    def rows(self) -> list[RecoveryRow]:
        """Every recovery so far, oldest first."""
        try:
            dataset = self._lance.open(self._where)
        except NotFound:
            return []
        count_lance("scan", self._where.address)
        found = [_decode(record) for record in dataset.to_table().to_pylist()]
        return sorted(found, key=lambda row: (row.created_at, row.operation_id))


def _encode(row: RecoveryRow) -> dict[str, Any]:
    return {
        "operation_id": row.operation_id,
        "graph_commit_id": row.graph_commit_id,
        "recovery_kind": row.recovery_kind,
        "recovery_for_actor": row.recovery_for_actor,
        "sidecar_writer_kind": row.sidecar_writer_kind,
        "per_table_outcomes_json": orjson.dumps([asdict(t) for t in row.tables]).decode(),
        "retired_transactions_json": orjson.dumps([asdict(t) for t in row.retired]).decode(),
        "created_at": row.created_at,
    }


def _decode(record: dict[str, Any]) -> RecoveryRow:
    outcomes = orjson.loads(record["per_table_outcomes_json"])
    return RecoveryRow(
        record["operation_id"],
        record["graph_commit_id"],
        record["recovery_kind"],
        record["recovery_for_actor"],
        record["sidecar_writer_kind"],
        tuple(
            TableOutcome(
                **{
                    **outcome,
                    "uuids": tuple(outcome["uuids"]),
                    "foreign_versions": tuple(outcome["foreign_versions"]),
                }
            )
            for outcome in outcomes
        ),
        tuple(
            RetiredTable(table["location"], table["ref"], tuple(table["uuids"]))
            for table in orjson.loads(record["retired_transactions_json"])
        ),
        record["created_at"],
    )
