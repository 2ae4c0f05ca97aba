"""The commit as data: what one write does, on what it rests, and what makes it visible.

A `CommitPlan` is built before the first effect by every operation that commits: mutations, loads,
merges, replays, schema apply, index, optimize, repair and recovery. `executor.Executor` runs it.
Its stored form is the recovery sidecar (`sidecars`). It names every transaction by uuid: recovery
reads the same plan and proves by uuids, not by version numbers, what happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from omnigraph.commit.leases import Lease
from omnigraph.model.receipts import CommitKind
from omnigraph.storage.manifest_rows import CommitRow, TableIdentity
from omnigraph.storage.publisher import PublishRequest, Registration, TablePin
from omnigraph.storage.snapshot import Snapshot, TableEntry

SidecarKind: TypeAlias = Literal[
    "Mutation", "Load", "SchemaApply", "BranchMerge", "EnsureIndices", "Optimize", "Recovery"
]
"""The kinds of operations that a sidecar can belong to."""

WriterKind: TypeAlias = SidecarKind | Literal["Repair"]
"""A repair moves pins to versions that exist: it has no effects, hence no sidecar."""

FIRST_VERSION = 1
"""The version of a freshly created dataset."""


@dataclass(frozen=True, slots=True)
class Intent:
    """Who writes, why, and under which conditions."""

    writer_kind: WriterKind
    commit_kind: CommitKind
    actor_id: str | None = None
    expected_head: str | None = None
    """Only write if this is still the head (a conditional write)."""
    operation_id: str | None = None
    """The caller's key for the write; each attempt at it has an id of its own."""
    receipt: Mapping[str, Any] | None = None
    merged_parent: str | None = None
    """The commit whose content a merge brings in."""
    message: str | None = None
    """The caller's reason for the write."""

    @property
    def receipt_with_message(self) -> Mapping[str, Any] | None:
        """What the commit row stores: the receipt, and the caller's message in it."""
        if self.message is None:
            return self.receipt
        return {**(self.receipt or {}), "message": self.message}


@dataclass(frozen=True, slots=True)
class FirstTouch:
    """The fork that a branch needs before its first write to a table."""

    from_ref: str | None
    from_version: int


@dataclass(frozen=True, slots=True)
class PlannedTransaction:
    """One Lance transaction to commit."""

    uuid: str
    read_version: int


@dataclass(frozen=True, slots=True)
class TableEffects:
    """The effects on one table: the version it starts from, its fork, its transactions in order."""

    identity: TableIdentity
    table_key: str
    location: str
    ref: str | None
    expected_version: int
    transactions: tuple[PlannedTransaction, ...]
    restore_uuid: str
    """Of the transaction that undoes them."""
    first_touch: FirstTouch | None = None
    recorded_pin: int | None = None
    """The final version, in sidecars of the older shape, which name no transactions."""

    @classmethod
    def of(
        cls, entry: TableEntry, ref: str | None, uuids: Sequence[str], restore_uuid: str
    ) -> TableEffects:
        """Transactions with these uuids, one after the other, on a table as it is published."""
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
    """The lease under which the plan is run."""

    scope: str
    owner_id: str
    epoch: int

    @classmethod
    def of(cls, lease: Lease) -> LeaseClaim:
        """The claim of the holder of a lease."""
        return cls(lease.scope, lease.owner_id, lease.epoch)


@dataclass(frozen=True, slots=True)
class Authority:
    """The state of the branch that the plan assumes."""

    head_commit_id: str
    manifest_version: int
    schema_hash: str

    @classmethod
    def of(cls, snapshot: Snapshot, schema_hash: str) -> Authority:
        """A snapshot, and the schema it was read with."""
        return cls(snapshot.commit_id, snapshot.manifest_version, schema_hash)


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """One commit: its effects, its assumptions and its row in the lineage."""

    attempt_id: str
    """Names the sidecar. Stored as `operation_id`, as errors, the audit and `recover` show it."""
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
    """The fixed id of the commit that undoes it."""
    tables: tuple[TableEffects, ...]
    schema: SchemaDelta | None = None
    """Only of a change of schema."""
    versions_only: bool = False
    """Read from a sidecar of the older shape: judged by versions, its identities still unknown."""

    @property
    def has_sidecar(self) -> bool:
        """Whether something may have to be undone; a repair publishes versions that exist."""
        return self.writer_kind != "Repair"

    def request(self, pins: Iterable[TablePin], epoch: int) -> PublishRequest:
        """The publish of this plan, once its tables stand at ``pins``."""
        delta = self.schema or SchemaDelta("")
        created = delta.registrations
        return PublishRequest(
            commit=self.lineage,
            epoch=epoch,
            expected_head=self.authority.head_commit_id,
            pins=(*(TablePin(new.identity, FIRST_VERSION, None, 0) for new in created), *pins),
            registrations=(
                *(Registration(new.identity, new.table_key, new.location) for new in created),
                *delta.renames,
            ),
            tombstones=delta.tombstones,
            expected_table_versions={
                **{table.identity: table.expected_version for table in self.tables},
                **{dropped.identity: dropped.version for dropped in delta.tombstones},
                **{new.identity: 0 for new in created},
            },
        )

    def compensation(self, commit: CommitRow, tables: tuple[TableEffects, ...] = ()) -> CommitPlan:
        """The plan that undoes this one: ``commit`` on top of its parent, after restores."""
        assert commit.parent_commit_id is not None
        authority = replace(self.authority, head_commit_id=commit.parent_commit_id)
        return replace(self, lineage=commit, authority=authority, tables=tables, schema=None)
