"""A write as data: the rows it changes, its actor and conditions, and the commit.

A `ChangeSet` says what changes, table by table, before anything is staged; `WriteLimits` how much
of it may be held in memory. A `CommitPlan` is built before the first effect by every operation that
commits: mutations, loads, merges, replays, changes of schema, index, optimize, repair, recovery.
`executor.Executor` runs it. Its stored form is the recovery sidecar (`sidecars`). It names every
transaction by uuid: recovery reads the same plan and proves by uuids, not by version numbers, what
happened.
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
"""Kinds that change how a table is stored, not its content."""

NO_ROWS = pa.table({"id": pa.nulls(0, pa.string())})
"""The steps of such a change."""


@dataclass(frozen=True, slots=True)
class WrittenRows:
    """Rows in data files of their table's ref that no version lists yet.

    Fragments are in the JSON form of Lance. An upsert also says what becomes of the fragments that
    held the former rows: ``updated`` lost some of their rows, ``removed`` all of them. For a table
    that its branch has yet to get a copy of, ``deleted`` says which rows these will be.
    """

    fragments: tuple[str, ...]
    updated: tuple[str, ...] = ()
    removed: tuple[int, ...] = ()
    deleted: Deletions = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class Exchanged:
    """The committed rows that make room for those of an exchange."""

    positions: Positions
    """Where all of them lie in the version that was captured."""
    deleted: pa.Array
    """The ids among them that do not come back."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """One table's part of a write: exactly one Lance transaction, but for upkeep.

    ``append`` rows have new ids, ``upsert`` rows replace the entity of their id, ``replace`` rows
    become the whole table. Ids are unique within a change. ``delete`` carries ids that exist.
    ``exchange`` rows replace the entity of their id, while others are deleted.
    ``upkeep`` changes no content and has no rows: it takes ``steps`` that are one transaction each.
    """

    table_key: str
    kind: ChangeKind
    rows: pa.Table
    """Complete rows in the table's schema; for ``delete`` only the column `id`."""
    steps: tuple[UpkeepStep, ...] = ()
    written: WrittenRows | None = None
    """Rows that lie in files already, written by workers or copied. ``rows`` has none then, except
    in an exchange, which may have both."""
    exchanged: Exchanged | None = None
    """What an exchange takes out."""

    @property
    def ids(self) -> pa.ChunkedArray:
        """The entities this change is about."""
        return self.rows["id"]


@dataclass(frozen=True, slots=True)
class ChangeSet:
    """All tables a write touches, by type key. Tables without work are not listed."""

    tables: dict[str, TableChange] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to write."""
        return not self.tables


ROWS_MAX_VARIABLE = "OMNIGRAPH_WRITE_ROWS_MAX"
BYTES_MAX_VARIABLE = "OMNIGRAPH_WRITE_BYTES_MAX"


@dataclass(frozen=True, slots=True)
class WriteLimits:
    """The most a write may stage for one table, inclusive."""

    rows_max: int = 1_000_000
    bytes_max: int = 512 * 1024 * 1024
    """Arrow memory."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> WriteLimits:
        """The limits an operator has set, the defaults where nothing is set."""
        standard = cls()
        return cls(
            positive_number(ROWS_MAX_VARIABLE, standard.rows_max, environment, strict=True),
            positive_number(BYTES_MAX_VARIABLE, standard.bytes_max, environment, strict=True),
        )


DEFAULT_LIMITS = WriteLimits()


@dataclass(slots=True)
class Budget:
    """What one table of a write has used up so far."""

    limits: WriteLimits
    table_key: str
    rows: int = 0
    bytes: int = 0

    def charge(self, *, rows: int = 0, bytes: int = 0) -> None:
        """Take more, or raise `LimitExceeded` and have nothing written."""
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
"""A repair moves pins to versions that exist: it has no effects, hence no sidecar."""

FIRST_VERSION = 1
"""The version of a freshly created dataset."""


@dataclass(frozen=True, slots=True)
class Intent:
    """The actor, kind, message and conditions of a write."""

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
    brought: CommitRow | None = None
    """The commit as another graph has it: this one gets its id and time as well."""

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
    """A table the operation creates, or that its branch begins to show with the first version."""

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
    renames: tuple[TableRow, ...] = ()
    """Tables that get another alias."""
    tombstones: tuple[VersionRow, ...] = ()


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
class PlannedCommit:
    """One commit of a plan: its row in the lineage, and which of the effects are its own."""

    attempt_id: str
    lineage: CommitRow
    """The fixed commit; its position is filled in when it is published."""
    uuids: frozenset[str]
    """Of its transactions."""


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """One commit, or those of a group: effects, assumptions and rows in the lineage."""

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
    """Only of a change of schema: of a graph, or of one branch that takes over main's."""
    following: tuple[PlannedCommit, ...] = ()
    """The other commits of a group, each on top of the one before."""
    versions_only: bool = False
    """Read from a sidecar of the older shape: judged by versions, its identities still unknown."""
    sidecar_digest: str | None = None
    """Of the bytes it was read from; None for a plan that was made here."""

    @property
    def changes_contract(self) -> bool:
        """Whether the graph gets another schema; a rebase takes one that there is."""
        return self.writer_kind == "SchemaApply"

    @property
    def commits(self) -> tuple[PlannedCommit, ...]:
        """All commits of the plan in order; an ordinary one has one."""
        others = frozenset(uuid for each in self.following for uuid in each.uuids)
        planned = frozenset(tx.uuid for table in self.tables for tx in table.transactions)
        return (PlannedCommit(self.attempt_id, self.lineage, planned - others), *self.following)

    def is_new(self, table: TableEffects) -> bool:
        """Whether the branch does not have a table yet that the plan changes."""
        created = () if self.schema is None else self.schema.registrations
        return any(new.identity == table.identity for new in created)

    def request(
        self,
        pins: Iterable[VersionRow],
        epoch: int,
        digests: Mapping[TableIdentity, str | None] | None = None,
        following: Iterable[Iterable[VersionRow]] = (),
    ) -> PublishRequest:
        """The publish of this plan, once its tables stand at ``pins``.

        ``digests`` are those of the tables it creates; ``following`` the pins of the other commits
        of a group, in their order.
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
        """The plan that undoes this one: ``commit`` on top of its parent, after restores."""
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
