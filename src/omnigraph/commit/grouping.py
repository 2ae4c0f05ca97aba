"""Group commit: writers of one process that wait for a branch share its lease and one publish.

Each keeps a commit of its own. `WriterGroup` is the queue of a branch, `GroupCommit` what its
leader does as the owner of the branch. Why the result is the same as that of one writer after the
other is argued in `docs/design/crash-safety.md`.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.commit.executor import Executor, interrupted
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.leases import Lease
from omnigraph.commit.plan import ChangeSet, CommitPlan, TableChange, TableEffects
from omnigraph.commit.validation import validate
from omnigraph.commit.writer import StagedTable, WriteAttempt, compact_tables
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.errors import (
    EffectFreeConflict,
    LeaseLost,
    OmnigraphError,
    StorageError,
)
from omnigraph.model.arrow import ID
from omnigraph.model.ids import TableKey
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.datasets import Handle, StagedTransaction, latest_version
from omnigraph.storage.manifest import TableEntry
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.publisher import maintain_manifest
from omnigraph.storage.tables import adds_only, holds_any, restage_new_rows

log = logging.getLogger(__name__)

MEMBERS_MAX = 64
"""Writers that share a publish; the next ones share the next."""
MEMBER_ROWS_MAX = 10_000
MEMBER_BYTES_MAX = 8 << 20
"""What a member may bring: its leader validates the rows of all."""


@dataclass(eq=False)
class Member:
    """A staged write that waits for its branch, and what became of it."""

    attempt: WriteAttempt
    commit: CommitRow | None = None
    failure: BaseException | None = None
    goes_alone: bool = False
    """Whether it did not fit into the group, and has to be written as if there had been none."""

    @property
    def is_settled(self) -> bool:
        """Whether its group is done with it."""
        return self.commit is not None or self.failure is not None or self.goes_alone


def may_join(changes: ChangeSet) -> bool:
    """Whether a change set, which means the same on any state without its ids, is a small one."""
    return all(
        change.kind in ("append", "upsert") and change.written is None
        for change in changes.tables.values()
    ) and (
        sum(change.rows.num_rows for change in changes.tables.values()) <= MEMBER_ROWS_MAX
        and sum(change.rows.nbytes for change in changes.tables.values()) <= MEMBER_BYTES_MAX
    )


class WriterGroup:
    """The writers of one branch in this process: one is on its way, the others wait together."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Member] = deque()
        self._is_led = False

    def try_lead(self) -> bool:
        """Be the writer on its way, if there is none and nobody waits; ended by `end_lead`."""
        with self._changed:
            if self._is_led or self._waiting:
                return False
            self._is_led = True
            return True

    def end_lead(self) -> None:
        """Let the first of those that wait lead."""
        with self._changed:
            self._is_led = False
            self._changed.notify_all()

    def join(self, member: Member) -> bool:
        """Wait until a leader has settled a member (True), or its writer has to lead (False)."""
        with self._changed:
            self._waiting.append(member)
            self._changed.notify_all()
            try:
                self._changed.wait_for(
                    lambda: (
                        member.is_settled
                        or (not self._is_led and self._waiting and self._waiting[0] is member)
                    )
                )
            except BaseException:
                # Its writer was interrupted: unless a leader has it already, nothing will land.
                if member in self._waiting:
                    self._waiting.remove(member)
                    self._changed.notify_all()
                raise
            if member.is_settled:
                return True
            self._waiting.popleft()
            self._is_led = True
            return False

    def take(self) -> list[Member]:
        """Those that wait, in their order, for the leader to settle."""
        with self._changed:
            count = min(len(self._waiting), MEMBERS_MAX - 1)
            return [self._waiting.popleft() for _ in range(count)]

    def settle(self, members: Iterable[Member]) -> None:
        """Wake the writers of members whose outcome is set."""
        with self._changed:
            self._changed.notify_all()

    def fail_waiting(self, failure: BaseException) -> None:
        """What kept the leader from owning the branch keeps all that wait for it, too."""
        with self._changed:
            while self._waiting:
                self._waiting.popleft().failure = failure
            self._changed.notify_all()

    @property
    def waiting(self) -> int:
        """How many writers wait."""
        with self._changed:
            return len(self._waiting)


@dataclass(slots=True)
class GroupTable:
    """A table of a group: one transaction of each member that adds rows to it, in order."""

    entry: TableEntry
    effects: TableEffects
    handle: Handle | None
    members: list[StagedTable]
    landed: Handle | None = None

    def transaction(self, at: int, handle: Handle) -> StagedTransaction:
        """The rows of the member number ``at``, on top of those before."""
        if at:
            hit(Failpoint.GROUP_BETWEEN_MEMBERS)
        staged = self.members[at].staged[0]
        assert staged is not None
        uuid = self.effects.transactions[at].uuid
        restaged = restage_new_rows(staged, handle, handle, None, uuid)
        assert restaged is not None, "a member only adds rows"
        return restaged


@dataclass
class GroupCommit:
    """What the owner of a branch does with the members that have waited for it."""

    kernel: Kernel
    capture: Capture
    """The head, as the owner has read it."""
    catalog: Catalog
    lease: Lease
    upkeep_failed: bool = False
    _handles: dict[TableKey, Handle | None] = field(default_factory=dict)
    """By table, the version that is published; None if it is not the newest."""

    def run(self, members: Sequence[Member], group: WriterGroup) -> None:
        """Commit those that fit, with one publish, and set the outcome of each."""
        hit(Failpoint.GROUP_PRE_ADMISSION)
        try:
            admitted = self._admitted(members)
        except BaseException:
            for member in members:
                member.goes_alone = True
            raise
        for member in members:
            member.goes_alone = member not in admitted
        if not admitted:
            return
        tables = self._tables(admitted)
        plan = self._plan(admitted, tables)
        # A single member is flushed as it is committed, like any write.
        written: set[Path] = set().union(*(self._files(each) for each in tables if plan.following))
        try:
            executor = Executor(self.kernel, self.capture.branch, self.lease)
            executor.run(plan, tables, written=written)
        except (EffectFreeConflict, LeaseLost, StorageError):
            # Nothing of the plan is left.
            for member in admitted:
                member.goes_alone = True
        except BaseException as error:
            known = error if isinstance(error, OmnigraphError) else None
            failure = known or interrupted(plan, OmnigraphError(f"its writer ended: {error!r}"))
            for member in admitted:
                member.failure = failure
            if known is None:
                raise
        else:
            commits = self.capture.branch.state.commits
            for member, planned in zip(admitted, plan.commits, strict=True):
                member.commit = commits[planned.lineage.commit_id]
            group.settle(members)
            self._keep_up(tables)

    # --- who fits ---------------------------------------------------------------------------------

    def _admitted(self, members: Sequence[Member]) -> list[Member]:
        """The members whose commits are right on top of each other, in order."""
        fitting: list[Member] = []
        keys, ids = set(self.capture.branch.state.operations), dict[TableKey, pa.Array]()
        for member in members:
            key = member.attempt.operation_key
            if self._has_same_ground(member.attempt) and key not in keys:
                together = self._with_ids(ids, member.attempt)
                if together is not None:
                    ids = together
                    fitting.append(member)
                    keys |= set() if key is None else {key}
        fitting = self._with_new_ids(fitting, ids)
        head = self.capture.snapshot.commit_id
        fitting = [
            member
            for member in fitting
            if member.attempt.capture.snapshot.commit_id == head
            or self._is_valid(_together([member.attempt.changes]))
        ]
        if len(fitting) < 2 or self._is_valid(_together(m.attempt.changes for m in fitting)):
            return fitting
        admitted: list[Member] = []
        for member in fitting:
            tried = [*admitted, member]
            if self._is_valid(_together(each.attempt.changes for each in tried)):
                admitted = tried
        return admitted

    def _has_same_ground(self, attempt: WriteAttempt) -> bool:
        """Whether a member was prepared with the schema, branch and tables that there are."""
        mine, its = self.capture, attempt.capture
        if (mine.schema_hash, mine.branch.where) != (its.schema_hash, its.branch.where):
            return False
        for table in attempt.tables:
            entry = mine.snapshot.tables.get(table.entry.table_key)
            if (
                entry is None
                or (entry.identity, entry.location, entry.ref)
                != (table.entry.identity, table.entry.location, table.entry.ref)
                or self._handle(entry.table_key) is None
                or not (table.staged and table.staged[0] and adds_only(table.staged[0]))
            ):
                return False
        return True

    def _handle(self, key: TableKey) -> Handle | None:
        """A table at its published version; None if something was committed beyond it."""
        if key not in self._handles:
            handle = self.capture.reader.handle(key)
            is_newest = latest_version(handle) == self.capture.snapshot.table(key).version
            self._handles[key] = handle if is_newest else None
        return self._handles[key]

    def _with_ids(
        self, known: Mapping[TableKey, pa.Array], attempt: WriteAttempt
    ) -> dict[TableKey, pa.Array] | None:
        """All ids by table with those of one more member; None if it repeats one."""
        together = dict(known)
        for table in attempt.tables:
            key, own = table.entry.table_key, table.change.rows[ID].combine_chunks()
            if key in known:
                if pc.any(pc.is_in(own, value_set=known[key])).as_py():
                    return None
                own = pa.concat_arrays([known[key], own])
            together[key] = own
        return together

    def _with_new_ids(
        self, members: list[Member], ids: Mapping[TableKey, pa.Array]
    ) -> list[Member]:
        """Those whose ids the branch does not have."""
        taken = {key for key, each in ids.items() if self._has_any(key, each)}
        return [
            member
            for member in members
            if not any(
                table.entry.table_key in taken
                and self._has_any(table.entry.table_key, table.change.rows[ID].combine_chunks())
                for table in member.attempt.tables
            )
        ]

    def _has_any(self, key: TableKey, ids: pa.Array) -> bool:
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
        staged: dict[TableKey, list[StagedTable]] = {}
        for member in members:
            for table in member.attempt.tables:
                staged.setdefault(table.entry.table_key, []).append(table)
        found = []
        for key, each in sorted(staged.items()):
            entry, ref = self.capture.snapshot.table(key), self.capture.branch.where.ref
            uuids = [table.effects.transactions[0].uuid for table in each]
            effects = TableEffects.of(entry, ref, uuids, self.kernel.ids.ulid())
            found.append(GroupTable(entry, effects, self._handle(key), each))
        return found

    def _plan(self, members: Sequence[Member], tables: Sequence[GroupTable]) -> CommitPlan:
        effects = tuple(table.effects for table in tables)
        first, *others = (member.attempt for member in members)
        plan = self.kernel.plan(
            self.capture, self.lease, first.intent, effects, attempt_id=first.attempt_id
        )
        before, following = plan.lineage, []
        for attempt in others:
            uuids = frozenset(table.effects.transactions[0].uuid for table in attempt.tables)
            planned = self.kernel.planned_on(before, attempt.intent, attempt.attempt_id, uuids)
            following.append(planned)
            before = planned.lineage
        return replace(plan, following=tuple(following))

    def _files(self, table: GroupTable) -> set[Path]:
        assert table.handle is not None
        staged = [each.staged[0] for each in table.members if each.staged[0] is not None]
        return self.kernel.lance.staged_files(table.handle, staged)

    def _keep_up(self, tables: Sequence[GroupTable]) -> None:
        branch, kernel = self.capture.branch, self.kernel
        maintain_manifest(branch, kernel.settings.manifest_compact_every, kernel.ids.ulid)
        landed = {
            table.entry.table_key: table.landed for table in tables if table.landed is not None
        }
        self.upkeep_failed = not compact_tables(kernel, self.capture, self.lease, landed)


def _together(changes: Iterable[ChangeSet]) -> ChangeSet:
    """The rows of several change sets, none of which the branch has, as one."""
    rows: dict[str, list[pa.Table]] = {}
    for each in changes:
        for key, change in each.tables.items():
            rows.setdefault(key, []).append(change.rows)
    return ChangeSet(
        {key: TableChange(key, "append", pa.concat_tables(parts)) for key, parts in rows.items()}
    )
