"""Group commit: writers of one process that wait for a branch share its lease and one publish.

Each keeps a commit of its own. They wait in a `leases.WriterGroup`; `GroupCommit` is what its
leader does as the owner of the branch. Why the result is the same as that of one writer after the
other is argued in `docs/design/crash-safety.md`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.executor import Executor, interrupted
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.leases import Lease, WaitingWriter
from omnigraph.commit.plan import (
    ChangeSet,
    CommitPlan,
    Intent,
    PlannedCommit,
    TableChange,
    TableEffects,
)
from omnigraph.commit.validation import validate
from omnigraph.commit.writer import WriteAttempt, compact_tables
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.requests import concurrently
from omnigraph.errors import (
    EffectFreeConflict,
    LeaseLost,
    OmnigraphError,
    StorageError,
)
from omnigraph.model.arrow import ID
from omnigraph.model.ids import TableKey
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.datasets import Handle
from omnigraph.storage.manifest import TableEntry
from omnigraph.storage.manifest_rows import TableIdentity
from omnigraph.storage.publisher import maintain_manifest
from omnigraph.storage.transactions import (
    StagedTransaction,
    adds_only,
    holds_any,
    know_ids,
    latest_version,
    restage_new_rows,
)

MEMBER_ROWS_MAX = 10_000
MEMBER_BYTES_MAX = 8 << 20
"""Limits per member, since the leader validates the rows of all members."""


def may_join(changes: ChangeSet) -> bool:
    """Whether a change set that only adds rows is small enough for a group."""
    return all(
        change.kind in ("append", "upsert") and change.written is None
        for change in changes.tables.values()
    ) and (
        sum(change.rows.num_rows for change in changes.tables.values()) <= MEMBER_ROWS_MAX
        and sum(change.rows.nbytes for change in changes.tables.values()) <= MEMBER_BYTES_MAX
    )


@dataclass(frozen=True, slots=True)
class MemberTable:
    """Rows that a member adds to one table, and the files that hold them."""

    table_key: TableKey
    identity: TableIdentity
    location: str
    rows: pa.Table
    staged: StagedTransaction
    uuid: str


@dataclass(frozen=True, slots=True)
class MemberWrite:
    """A staged write of this or another process, with what the leader needs to commit it."""

    attempt_id: str
    commit_id: str
    intent: Intent
    ref: str | None
    schema_hash: str
    prepared_on: str
    """The id of the head commit that the write was validated on."""
    tables: tuple[MemberTable, ...]

    @classmethod
    def of(cls, attempt: WriteAttempt, commit_id: str) -> MemberWrite | None:
        """The member of an attempt that only adds rows; None for any other attempt."""
        tables = []
        for table in attempt.tables:
            staged = table.staged[0] if table.staged else None
            if staged is None or not adds_only(staged):
                return None
            entry = table.entry
            uuid = table.effects.transactions[0].uuid
            rows = table.change.rows
            tables.append(
                MemberTable(entry.table_key, entry.identity, entry.location, rows, staged, uuid)
            )
        capture = attempt.capture
        return cls(
            attempt.attempt_id,
            commit_id,
            attempt.intent,
            capture.branch.where.ref,
            capture.schema_hash,
            capture.snapshot.commit_id,
            tuple(tables),
        )

    @property
    def has_edges(self) -> bool:
        """Whether it adds edges, whose end nodes have to exist."""
        return any(table.table_key.kind == "edge" for table in self.tables)

    @property
    def key(self) -> tuple[str | None, str] | None:
        """Its author and the caller's key for it; None without a key."""
        key = self.intent.operation_id
        return None if key is None else (self.intent.actor_id, key)


Member: TypeAlias = WaitingWriter[MemberWrite]


@dataclass(slots=True)
class GroupTable:
    """A table of a group: one transaction of each member that adds rows to it, in order."""

    entry: TableEntry
    effects: TableEffects
    handle: Handle | None
    members: list[MemberTable]
    landed: Handle | None = None

    @property
    def staged(self) -> list[StagedTransaction]:
        """The staged transactions of the members."""
        return [each.staged for each in self.members]

    def transaction(self, at: int, handle: Handle) -> StagedTransaction:
        """The transaction of member ``at``, restaged on the version with the members before it."""
        if at:
            hit(Failpoint.GROUP_BETWEEN_MEMBERS)
        member = self.members[at]
        restaged = restage_new_rows(member.staged, handle, handle, None, member.uuid)
        assert restaged is not None, "a member only adds rows"
        return restaged


@dataclass
class GroupCommit:
    """Commits waiting members with one publish, as the owner of their branch."""

    kernel: Kernel
    capture: Capture
    """The head that the owner has read."""
    catalog: Catalog
    lease: Lease
    is_confirmed: bool = True
    """Whether the head was read under the lease; otherwise `_confirm` does so first."""
    upkeep_failed: bool = False
    has_published: bool = False
    _handles: dict[TableKey, Handle | None] = field(default_factory=dict)
    """By table, the published version; None if Lance has a newer one."""
    _looked_up: dict[TableKey, tuple[pa.Array, bool]] = field(default_factory=dict)
    """By table, ids that were looked up, and whether the table has any of them."""

    def run(self, members: Sequence[Member], tell: Callable[[], None]) -> None:
        """Commit the members that can be combined, with one publish, and set every outcome.

        ``tell`` is called once, as soon as all outcomes are set.
        """
        hit(Failpoint.GROUP_PRE_ADMISSION)
        tables: Sequence[GroupTable] = ()
        try:
            tables = self._commit(members)
        finally:
            for member in members:
                member.goes_alone = not member.is_settled
            tell()
        if tables:
            self.has_published = True
            self._keep_up(tables)

    @property
    def may_go_on(self) -> bool:
        """Whether the owner may commit another group without reading the branch again: it has
        published, still holds the lease, and left nothing to recover."""
        return self.has_published and not self.upkeep_failed and self.lease.is_valid

    def _commit(self, members: Sequence[Member]) -> Sequence[GroupTable]:
        """Publish the admitted members; returns the tables that they write."""
        if not self.is_confirmed and not self._confirm(members):
            return ()
        admitted = self._admitted(members)
        if not admitted:
            return ()
        tables = self._tables(admitted)
        plan = self._plan(admitted, tables)
        try:
            Executor(self.kernel, self.capture.branch, self.lease).run(plan, tables)
        except (EffectFreeConflict, LeaseLost, StorageError):
            return ()  # nothing of the plan is left
        except BaseException as error:
            known = error if isinstance(error, OmnigraphError) else None
            failure = known or interrupted(plan, OmnigraphError(f"its writer ended: {error!r}"))
            for member in admitted:
                member.failure = failure
            if known is None:
                raise
            return ()
        for table in tables:
            assert table.handle is not None
            for each in table.members:
                # The next group looks its own ids up among these.
                know_ids(table.handle, each.staged, each.rows[ID].combine_chunks())
        commits = self.capture.branch.state.commits
        for member, planned in zip(admitted, plan.commits, strict=True):
            member.commit = commits[planned.lineage.commit_id]
        return tables

    def _confirm(self, members: Sequence[Member]) -> bool:
        """Read the head, pending operations, table versions and ids under the lease, all at once.

        False if another operation has begun, was interrupted or has published since the head was
        read: each member is then written by itself, with the usual conflict handling.
        """
        kernel, branch = self.kernel, self.capture.branch
        ids: dict[TableKey, list[pa.Array]] = {}
        for member in members:
            for table in member.write.tables if self._is_on_ground(member.write) else ():
                ids.setdefault(table.table_key, []).append(table.rows[ID].combine_chunks())

        def look_up(key: TableKey) -> None:
            all_ids = pa.concat_arrays(ids[key])
            self._looked_up[key] = all_ids, holds_any(self.capture.reader.handle(key), all_ids)

        def look() -> bool:
            pending, newest, owner = concurrently(
                kernel.sidecars.names,
                partial(kernel.manifest.refreshed, branch.branch),
                kernel.leases.graph_owner,
                threads=kernel.is_remote,
            )
            head = newest.state.head.commit_id
            is_here = newest is branch and head == self.capture.snapshot.commit_id
            is_settled = not [*kernel.sidecars.pending_on(branch.branch, pending)]
            return is_here and is_settled and owner is None

        is_confirmed, *_ = concurrently(
            look,
            *(partial(look_up, key) for key in ids),
            *(partial(self._handle, key) for key in ids),
            threads=kernel.is_remote,
        )
        return is_confirmed

    # --- admission --------------------------------------------------------------------------------

    def _admitted(self, members: Sequence[Member]) -> list[Member]:
        """The members that are valid when committed in this order, each on top of the others."""
        fitting: list[Member] = []
        keys, ids = set(self.capture.branch.state.operations), dict[TableKey, pa.Array]()
        for member in members:
            key = member.write.key
            if self._has_same_ground(member.write) and key not in keys:
                together = self._with_ids(ids, member.write)
                if together is not None:
                    ids = together
                    fitting.append(member)
                    keys |= set() if key is None else {key}
        fitting = self._with_new_ids(fitting, ids)
        # Nodes do not depend on rows of other members: if they are valid among more rows, they are
        # valid without those. Edges may depend on nodes of a member that is refused.
        fitting = [
            member
            for member in fitting
            if not member.write.has_edges
            or self._is_proved(member)
            or self._is_valid(_together([member]))
        ]
        alone = len(fitting) == 1 and (fitting[0].write.has_edges or self._is_proved(fitting[0]))
        if not fitting or alone or self._is_valid(_together(fitting)):
            return fitting
        admitted: list[Member] = []
        for member in fitting:
            tried = [*admitted, member]
            if self._is_valid(_together(tried)):
                admitted = tried
        return admitted

    def _is_proved(self, member: Member) -> bool:
        """Whether the process of a member has validated it on this head."""
        return member.write.prepared_on == self.capture.snapshot.commit_id

    def _has_same_ground(self, write: MemberWrite) -> bool:
        """Whether a member was prepared with the current schema, branch and tables."""
        return self._is_on_ground(write) and all(
            self._handle(table.table_key) is not None for table in write.tables
        )

    def _is_on_ground(self, write: MemberWrite) -> bool:
        """`_has_same_ground` without opening tables: compares with the manifest only."""
        ref, state = self.capture.branch.where.ref, self.capture.branch.state
        if (write.schema_hash, write.ref) != (self.capture.schema_hash, ref):
            return False
        if write.commit_id in state.commits:
            return False
        for table in write.tables:
            entry = self.capture.snapshot.tables.get(table.table_key)
            if entry is None or (entry.identity, entry.location, entry.ref) != (
                table.identity,
                table.location,
                ref,
            ):
                return False
        return True

    def _handle(self, key: TableKey) -> Handle | None:
        """A table at its published version; None if Lance has a newer version."""
        if key not in self._handles:
            handle = self.capture.reader.handle(key)
            is_newest = latest_version(handle) == self.capture.snapshot.table(key).version
            self._handles[key] = handle if is_newest else None
        return self._handles[key]

    def _with_ids(
        self, known: Mapping[TableKey, pa.Array], write: MemberWrite
    ) -> dict[TableKey, pa.Array] | None:
        """``known`` with the ids of one more member; None if the member repeats an id."""
        together = dict(known)
        for table in write.tables:
            key, own = table.table_key, table.rows[ID].combine_chunks()
            if key in known:
                if pc.any(pc.is_in(own, value_set=known[key])).as_py():
                    return None
                own = pa.concat_arrays([known[key], own])
            together[key] = own
        return together

    def _with_new_ids(
        self, members: list[Member], ids: Mapping[TableKey, pa.Array]
    ) -> list[Member]:
        """The members none of whose ids is in the branch."""
        taken = {key for key, each in ids.items() if self._has_any(key, each)}
        return [
            member
            for member in members
            if not any(
                table.table_key in taken
                and self._has_any(table.table_key, table.rows[ID].combine_chunks())
                for table in member.write.tables
            )
        ]

    def _has_any(self, key: TableKey, ids: pa.Array) -> bool:
        known, is_there = self._looked_up.get(key, (None, True))
        if known is not None and not is_there and pc.all(pc.is_in(ids, value_set=known)).as_py():
            return False
        handle = self._handle(key)
        assert handle is not None
        return holds_any(handle, ids)

    def _is_valid(self, changes: ChangeSet) -> bool:
        try:
            validate(changes, self.catalog, self.capture.reader)
        except OmnigraphError:
            return False
        return True

    # --- the plan ---------------------------------------------------------------------------------

    def _tables(self, members: Sequence[Member]) -> list[GroupTable]:
        staged: dict[TableKey, list[MemberTable]] = {}
        for member in members:
            for table in member.write.tables:
                staged.setdefault(table.table_key, []).append(table)
        found = []
        for key, each in sorted(staged.items()):
            entry, ref = self.capture.snapshot.table(key), self.capture.branch.where.ref
            uuids = [table.uuid for table in each]
            effects = TableEffects.of(entry, ref, uuids, self.kernel.ids.ulid())
            found.append(GroupTable(entry, effects, self._handle(key), each))
        return found

    def _plan(self, members: Sequence[Member], tables: Sequence[GroupTable]) -> CommitPlan:
        effects = tuple(table.effects for table in tables)
        first, *others = (member.write for member in members)
        plan = self.kernel.plan(
            self.capture, self.lease, first.intent, effects, attempt_id=first.attempt_id
        )
        before = replace(plan.lineage, commit_id=first.commit_id)
        plan, following = replace(plan, lineage=before), []
        for write in others:
            lineage = self.kernel.commit_on(before, write.intent, write.commit_id)
            uuids = frozenset(table.uuid for table in write.tables)
            following.append(PlannedCommit(write.attempt_id, lineage, uuids))
            before = lineage
        return replace(plan, following=tuple(following))

    def _keep_up(self, tables: Sequence[GroupTable]) -> None:
        branch, kernel = self.capture.branch, self.kernel
        maintain_manifest(branch, kernel.settings.manifest_compact_every, kernel.ids.ulid)
        landed = {
            table.entry.table_key: table.landed for table in tables if table.landed is not None
        }
        self.upkeep_failed = not compact_tables(kernel, self.capture, self.lease, landed)


def _together(members: Iterable[Member]) -> ChangeSet:
    """The rows of some members as one change set of appends."""
    rows: dict[TableKey, list[pa.Table]] = {}
    for member in members:
        for table in member.write.tables:
            rows.setdefault(table.table_key, []).append(table.rows)
    return ChangeSet(
        {key: TableChange(key, "append", pa.concat_tables(parts)) for key, parts in rows.items()}
    )
