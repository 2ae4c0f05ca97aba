"""A write as data: the rows it changes, its actor and conditions, and the commit.

A `ChangeSet` has the changes by table before anything is staged, within `WriteLimits`. Every
operation that commits builds a `CommitPlan` before its first effect: mutations, loads, merges,
replays, schema changes, index, optimize, repair, recovery. `executor.Executor` runs it. Its stored
form is the recovery sidecar (`sidecars`). It names every transaction by uuid: recovery reads the
same plan and determines by uuids, not by version numbers, which effects landed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import pyarrow as pa

from omnigraph.commit.leases import Lease
from omnigraph.effects.environment import positive_number
from omnigraph.errors import LimitExceeded
from omnigraph.model.receipts import CommitKind
from omnigraph.model.records import dataclass
from omnigraph.storage.layout import RECOVERY
from omnigraph.storage.manifest import Snapshot, TableEntry
from omnigraph.storage.manifest_rows import CommitRow, TableIdentity, TableRow, VersionRow
from omnigraph.storage.publisher import PublishRequest

if TYPE_CHECKING:
    from omnigraph.storage.fragments import Positions
    from omnigraph.storage.table_upkeep import UpkeepStep
    from omnigraph.storage.written import Deletions

ChangeKind: TypeAlias = Literal["append", "upsert", "delete", "replace", "exchange", "upkeep"]

UPKEEP_KINDS: frozenset[ChangeKind] = frozenset({"upkeep"})
"""Kinds that change the storage of a table, not its rows."""

NO_ROWS = pa.table({"id": pa.nulls(0, pa.string())})
"""The rows of a change without rows."""


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Rows in uncommitted data files of their table's ref.

    Fragments are in Lance's JSON form. An upsert also has the fragments with replaced rows:
    ``updated`` after the deletion of some rows, ``removed`` without remaining rows. For a table
    that is not forked to its branch yet, ``deleted`` lists the rows to delete instead.
    """

    fragments: tuple[str, ...]
    updated: tuple[str, ...] = ()
    removed: tuple[int, ...] = ()
    deleted: Deletions = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Exchanged:
    """The committed rows that an exchange replaces or deletes."""

    positions: Positions
    """Their positions in the captured version."""
    deleted: pa.Array
    """The ids of those that are deleted."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """One table's part of a write: one Lance transaction, except for upkeep.

    ``append`` rows have new ids, ``upsert`` rows replace the entity of their id, ``replace`` rows
    replace the whole table. Ids are unique within a change. ``delete`` has existing ids.
    ``exchange`` rows replace the entity of their id, while other entities are deleted.
    ``upkeep`` changes no rows: it has ``steps`` of one transaction each.
    """

    table_key: str
    kind: ChangeKind
    rows: pa.Table
    """Complete rows in the table's schema; for ``delete`` only `id`."""
    steps: tuple[UpkeepStep, ...] = ()
    written: WrittenRows | None = None
    """Rows in files, written by workers or copied. ``rows`` is empty then, except in an exchange,
    which may have both."""
    exchanged: Exchanged | None = None
    """The committed rows that an exchange replaces or deletes."""

    @property
    def ids(self) -> pa.ChunkedArray:
        """The ids of the changed entities."""
        return self.rows["id"]


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """The changes of a write by type key; only tables that change."""

    tables: dict[str, TableChange] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.tables


ROWS_MAX_VARIABLE = "OMNIGRAPH_WRITE_ROWS_MAX"
BYTES_MAX_VARIABLE = "OMNIGRAPH_WRITE_BYTES_MAX"


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """The most rows and bytes that a write may stage for one table, inclusive."""

    rows_max: int = 1_000_000
    bytes_max: int = 512 * 1024 * 1024
    """The size in Arrow memory."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> WriteLimits:
        """The limits of the environment, by default those of the class."""
        standard = cls()
        return cls(
            positive_number(ROWS_MAX_VARIABLE, standard.rows_max, environment, strict=True),
            positive_number(BYTES_MAX_VARIABLE, standard.bytes_max, environment, strict=True),
        )


DEFAULT_LIMITS = WriteLimits()


@dataclass(slots=True)
class Budget:
    """The rows and bytes that a write has used for one table."""

    limits: WriteLimits
    table_key: str
    rows: int = 0
    bytes: int = 0

    def charge(self, *, rows: int = 0, bytes: int = 0) -> None:
        """Use more; raises `LimitExceeded` beyond the limits."""
        self.rows += rows
        self.bytes += bytes
        if self.rows > self.limits.rows_max:
            raise LimitExceeded(
                f"rows of {self.table_key}",
                self.limits.rows_max,
                self.rows,
                hint=f"split the write, load the rows instead, or raise {ROWS_MAX_VARIABLE}",
            )
        if self.bytes > self.limits.bytes_max:
            raise LimitExceeded(
                f"bytes of {self.table_key}",
                self.limits.bytes_max,
                self.bytes,
                hint=f"split the write, load the rows instead, or raise {BYTES_MAX_VARIABLE}",
            )


SidecarKind: TypeAlias = Literal[
    "Mutation",
    "Load",
    "SchemaApply",
    "SchemaRebase",
    "BranchMerge",
    "EnsureIndices",
    "Optimize",
    "Recovery",
]
"""The kinds of operations that a sidecar can belong to."""

WriterKind: TypeAlias = SidecarKind | Literal["Repair"]
"""With repair, which publishes existing versions and therefore has no effects and no sidecar."""

FIRST_VERSION = 1
"""The version of a new dataset."""


@dataclass(frozen=True, slots=True)
class Intent:
    """The actor, kind, message and conditions of a write."""

    writer_kind: WriterKind
    commit_kind: CommitKind
    actor_id: str | None = None
    expected_head: str | None = None
    """Only write if this is still the head (a conditional write)."""
    operation_id: str | None = None
    """The caller's idempotency key; each attempt also has its own id."""
    receipt: Mapping[str, Any] | None = None
    merged_parent: str | None = None
    """The merged commit, which becomes the second parent."""
    message: str | None = None
    """The caller's reason for the write."""
    brought: CommitRow | None = None
    """For a replay from another graph: the commit there, whose id and time are kept."""

    @property
    def receipt_with_message(self) -> Mapping[str, Any] | None:
        """The receipt that the commit row stores, with the caller's message."""
        if self.message is None:
            return self.receipt
        return {**(self.receipt or {}), "message": self.message}


@dataclass(frozen=True, slots=True)
class FirstTouch:
    """The fork for a branch's first write to a table."""

    from_ref: str | None
    from_version: int


@dataclass(frozen=True, slots=True)
class PlannedTransaction:
    """One Lance transaction to commit."""

    uuid: str
    read_version: int


@dataclass(frozen=True, slots=True)
class TableEffects:
    """The effects on one table: expected version, fork, and transactions in order."""

    identity: TableIdentity
    table_key: str
    location: str
    ref: str | None
    expected_version: int
    transactions: tuple[PlannedTransaction, ...]
    restore_uuid: str
    """The uuid of the transaction that would undo the effects."""
    first_touch: FirstTouch | None = None
    recorded_pin: int | None = None
    """The final version, for sidecars of the older format, which name no transactions."""

    @classmethod
    def of(
        cls, entry: TableEntry, ref: str | None, uuids: Sequence[str], restore_uuid: str
    ) -> TableEffects:
        """Consecutive transactions with these uuids on the published version of a table."""
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
        """The version after all planned transactions."""
        if self.recorded_pin is not None:
            return self.recorded_pin
        return self.expected_version + len(self.transactions)


@dataclass(frozen=True, slots=True)
class NewTable:
    """A table that the operation creates, or whose first version becomes visible on its branch."""

    identity: TableIdentity
    table_key: str
    location: str
    uuid: str
    """The uuid of the transaction that creates it."""


@dataclass(frozen=True, slots=True)
class SchemaDelta:
    """The changes of a schema change to the registry of tables, and the new contract."""

    target_hash: str
    registrations: tuple[NewTable, ...] = ()
    renames: tuple[TableRow, ...] = ()
    """Tables with a new type key."""
    tombstones: tuple[VersionRow, ...] = ()


@dataclass(frozen=True, slots=True)
class LeaseClaim:
    """The lease under which the plan runs."""

    scope: str
    owner_id: str
    epoch: int

    @classmethod
    def of(cls, lease: Lease) -> LeaseClaim:
        """The claim of a lease."""
        return cls(lease.scope, lease.owner_id, lease.epoch)


@dataclass(frozen=True, slots=True)
class Authority:
    """The state of the branch that the plan assumes."""

    head_commit_id: str
    manifest_version: int
    schema_hash: str

    @classmethod
    def of(cls, snapshot: Snapshot, schema_hash: str) -> Authority:
        """The authority of a snapshot and the schema it was read with."""
        return cls(snapshot.commit_id, snapshot.manifest_version, schema_hash)


@dataclass(frozen=True, slots=True)
class PlannedCommit:
    """One commit of a plan: its row in the lineage, and its transactions."""

    attempt_id: str
    lineage: CommitRow
    """The commit row; the publish sets its position."""
    uuids: frozenset[str]
    """The uuids of its transactions."""


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """One commit or those of a group: effects, assumptions and rows in the lineage."""

    attempt_id: str
    """The id of the sidecar; stored and shown as `operation_id`."""
    writer_kind: WriterKind
    started_at: int
    actor_id: str | None
    branch: str
    ref: str | None
    lease: LeaseClaim
    authority: Authority
    lineage: CommitRow
    """The commit row; the publish sets its position."""
    rollback_commit_id: str
    """The id of the commit that would undo it."""
    tables: tuple[TableEffects, ...]
    schema: SchemaDelta | None = None
    """For a schema change of the graph, or for a rebase of a branch to main's schema."""
    following: tuple[PlannedCommit, ...] = ()
    """The further commits of a group, each the child of the previous one."""
    versions_only: bool = False
    """Whether it was read from a sidecar of the older format, which has versions only."""
    sidecar_digest: str | None = None
    """The digest of the sidecar it was read from; None for a plan built in this process."""

    @property
    def changes_contract(self) -> bool:
        """Whether it replaces the accepted schema; a rebase does not."""
        return self.writer_kind == "SchemaApply"

    @property
    def commits(self) -> tuple[PlannedCommit, ...]:
        """All commits of the plan in order; one unless it is a group."""
        others = frozenset(uuid for each in self.following for uuid in each.uuids)
        planned = frozenset(tx.uuid for table in self.tables for tx in table.transactions)
        return (PlannedCommit(self.attempt_id, self.lineage, planned - others), *self.following)

    def is_new(self, table: TableEffects) -> bool:
        """Whether a table that the plan changes is new to the branch."""
        created = () if self.schema is None else self.schema.registrations
        return any(new.identity == table.identity for new in created)

    def request(
        self,
        pins: Iterable[VersionRow],
        epoch: int,
        digests: Mapping[TableIdentity, str | None] | None = None,
        following: Iterable[Iterable[VersionRow]] = (),
    ) -> PublishRequest:
        """The publish of this plan, with its tables at the versions ``pins``.

        ``digests`` are those of created tables; ``following`` the pins of the further commits of a
        group, in order.
        """
        delta = self.schema or SchemaDelta("")
        created = delta.registrations
        return PublishRequest(
            commit=self.lineage,
            epoch=epoch,
            expected_head=self.authority.head_commit_id,
            pins=(*(_first(new.identity, digests or {}) for new in created), *pins),
            registrations=(
                *(TableRow(new.identity, new.table_key, new.location) for new in created),
                *delta.renames,
            ),
            tombstones=delta.tombstones,
            following=tuple(
                (each.lineage, tuple(its_pins))
                for each, its_pins in zip(self.following, following, strict=True)
            ),
            expected_table_versions={
                **{table.identity: table.expected_version for table in self.tables},
                **{dropped.identity: dropped.version for dropped in delta.tombstones},
                **{new.identity: 0 for new in created},
            },
        )

    def compensation(self, commit: CommitRow, tables: tuple[TableEffects, ...] = ()) -> CommitPlan:
        """The plan that undoes this one: restores ``tables``, and publishes ``commit``."""
        assert commit.parent_commit_id is not None
        authority = replace(self.authority, head_commit_id=commit.parent_commit_id)
        return replace(
            self, lineage=commit, authority=authority, tables=tables, schema=None, following=()
        )


def _first(identity: TableIdentity, digests: Mapping[TableIdentity, str | None]) -> VersionRow:
    return VersionRow(identity, FIRST_VERSION, None, 0, digests=digests.get(identity))


def sidecar_name(operation_id: str) -> str:
    """The object of one operation's recovery sidecar."""
    return f"{RECOVERY}/{operation_id}.json"
