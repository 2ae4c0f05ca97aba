"""The recovery sidecar: a durable record of what a write is about to do.

It is written before the first effect and names every transaction by uuid, so that whoever finds it
later can prove what happened without guessing from version numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from omnigraph.commit.leases import Lease
from omnigraph.storage.manifest_rows import CommitRow, TableIdentity
from omnigraph.storage.publisher import Registration, TablePin
from omnigraph.storage.snapshot import Snapshot, TableEntry

WriterKind: TypeAlias = Literal[
    "Mutation", "Load", "SchemaApply", "BranchMerge", "EnsureIndices", "Optimize", "Recovery"
]


@dataclass(frozen=True, slots=True)
class FirstTouch:
    """Where a ref that the write creates is forked from."""

    from_ref: str | None
    from_version: int


@dataclass(frozen=True, slots=True)
class PlannedTransaction:
    """One Lance transaction the write will commit."""

    uuid: str
    read_version: int


@dataclass(frozen=True, slots=True)
class SidecarTable:
    """One table of the write: where it stood, and what will be committed to it."""

    identity: TableIdentity
    table_key: str
    location: str
    ref: str | None
    expected_version: int
    transactions: tuple[PlannedTransaction, ...]
    restore_uuid: str
    first_touch: FirstTouch | None = None
    recorded_pin: int | None = None
    """The pin a sidecar without transactions names instead."""

    @classmethod
    def claiming(
        cls, entry: TableEntry, ref: str | None, uuids: Sequence[str], restore_uuid: str
    ) -> SidecarTable:
        """A claim on a table as it is published: one transaction after the other, on this ref.

        Without any, all that can become of the table is to be restored to its pin.
        """
        return cls(
            entry.identity,
            entry.table_key,
            entry.location,
            ref,
            entry.version,
            tuple(PlannedTransaction(uuid, entry.version + at) for at, uuid in enumerate(uuids)),
            restore_uuid,
            FirstTouch(entry.ref, entry.version) if entry.ref != ref else None,
        )

    @property
    def post_commit_pin(self) -> int:
        """The version after every planned transaction."""
        if self.recorded_pin is not None:
            return self.recorded_pin
        return self.expected_version + len(self.transactions)


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table the operation creates."""

    identity: TableIdentity
    table_key: str
    location: str
    uuid: str
    """Of the transaction that creates it."""


@dataclass(frozen=True, slots=True)
class SchemaDelta:
    """What a change of schema does to the registry of tables, and the contract it leads to."""

    target_hash: str
    registrations: tuple[NewTable, ...] = ()
    renames: tuple[Registration, ...] = ()
    """Tables that get another alias."""
    tombstones: tuple[TablePin, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaseClaim:
    """The lease under which the write runs."""

    scope: str
    owner_id: str
    epoch: int

    @classmethod
    def of(cls, lease: Lease) -> LeaseClaim:
        """The claim of whoever holds a lease."""
        return cls(lease.scope, lease.owner_id, lease.epoch)


@dataclass(frozen=True, slots=True)
class Authority:
    """What the write was prepared on."""

    head_commit_id: str
    manifest_version: int
    schema_hash: str

    @classmethod
    def of(cls, snapshot: Snapshot, schema_hash: str) -> Authority:
        """A snapshot, and the schema it was read with."""
        return cls(snapshot.commit_id, snapshot.manifest_version, schema_hash)


@dataclass(frozen=True, slots=True)
class Sidecar:
    """Everything recovery needs to finish or undo one operation."""

    operation_id: str
    writer_kind: WriterKind
    started_at: int
    actor_id: str | None
    branch: str
    ref: str | None
    lease: LeaseClaim
    authority: Authority
    lineage: CommitRow
    """The fixed commit; its position is filled in when it is published."""
    rollback_commit_id: str
    tables: tuple[SidecarTable, ...]
    schema: SchemaDelta | None = None
    """Only of a change of schema."""
    versions_only: bool = False
    """Of the older shape: judged by versions, its identities still to be found."""
