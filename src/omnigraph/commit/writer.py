"""One attempt to make a change set visible: stage, own the branch, plan the commit, run it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import field
from functools import partial
from itertools import count

import pyarrow as pa

from omnigraph.commit.executor import Executor
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.leases import NO_QUEUE, Lease, WriterQueue
from omnigraph.commit.plan import NO_ROWS, ChangeSet, Intent, TableChange, TableEffects, WrittenRows
from omnigraph.commit.recovery.examining import drift_error
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.requests import concurrently
from omnigraph.errors import (
    EffectFreeConflict,
    ExpectedVersionMismatch,
    ReadSetChanged,
    UnreadableSidecar,
)
from omnigraph.model.arrow import BLOB_STORAGE, ID
from omnigraph.model.ids import TableKey
from omnigraph.model.records import dataclass
from omnigraph.storage import transactions
from omnigraph.storage.datasets import Handle, fragment_count
from omnigraph.storage.manifest import ManifestBranch, TableEntry
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.publisher import maintain_manifest, require_head
from omnigraph.storage.row_places import stage_exchange
from omnigraph.storage.table_upkeep import SMALL_WRITES, small_fragments, stage_ahead, work_on
from omnigraph.storage.transactions import (
    StagedTransaction,
    holds_any,
    know_ids,
    latest_version,
    restage_new_rows,
)
from omnigraph.storage.written import delete_written, stage_written


@dataclass(slots=True)
class StagedTable:
    """One table of a write, staged or ready to be staged; the `TableExecution` of its effects."""

    effects: TableEffects
    entry: TableEntry
    change: TableChange
    stage: Callable[[StagedTable], None]
    handle: Handle | None = None
    staged: list[StagedTransaction | None] = field(default_factory=list)
    """By number. None for a step of upkeep that needs the result of earlier ones; empty for a table
    that is not forked to this branch yet."""
    landed: Handle | None = None

    def transaction(self, at: int, handle: Handle) -> StagedTransaction:
        """The planned transaction number ``at``."""
        if not self.staged:
            self.stage(self)
        uuid = self.effects.transactions[at].uuid
        return self.staged[at] or self.change.steps[at].stage(handle, uuid)


log = logging.getLogger(__name__)

UPKEEP_ACTOR = "omnigraph:upkeep"


@dataclass(frozen=True, slots=True)
class _OwnedState:
    """The state of the branch read by its owner, before the first effect."""

    pending: list[str]
    branch: ManifestBranch
    heads: list[tuple[StagedTable, int]]


class WriteAttempt:
    """Steps 7 to 14 of a write."""

    def __init__(
        self,
        kernel: Kernel,
        capture: Capture,
        changes: ChangeSet,
        intent: Intent,
        *,
        earlier: WriteAttempt | None = None,
        queue: WriterQueue = NO_QUEUE,
        assumes_new: bool = False,
        expects_new: bool = False,
    ) -> None:
        self._kernel = kernel
        self._queue = queue
        self.capture = capture
        self.changes = changes
        self.intent = intent
        self.attempt_id = kernel.ids.ulid()
        self._assumes_new = assumes_new
        """Whether rows are staged as new; the leader of the group verifies it."""
        self._expects_new = expects_new
        """Whether rows are probably new: they are written as new while that is looked up."""
        self._earlier = earlier
        """An earlier attempt at the same write, whose data files may be reused."""
        self.tables = [self._plan(change) for _, change in sorted(changes.tables.items())]
        self._owned: _OwnedState | None = None
        self.upkeep_failed = False
        """Whether the upkeep after the write was interrupted."""

    def run(self) -> CommitRow:
        """Stage concurrently with other writers, then own the branch, commit and publish."""
        self.stage()
        with self.owned_branch() as lease:
            return self.commit(lease)

    def run_owned(self, lease: Lease) -> CommitRow:
        """`run` for a caller that owns the branch already."""
        lease.catch_up()
        self.stage()
        self._read_state()
        return self.commit(lease)

    def stage(
        self, tables_at_once: int | None = None, progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Step 7: stage everything that can be staged without owning the branch.

        With ``tables_at_once``, so many tables are staged in parallel, also on local disk: for
        expensive staging. ``progress`` gets the numbers of staged tables and of all tables.
        """
        # A table that is not forked yet is staged after the fork.
        due = [table for table in self.tables if table.effects.first_touch is None]
        finished = count(1)  # shared by several threads: each takes the next number

        def stage(table: StagedTable) -> None:
            self._stage_table(table)
            if progress is not None:
                progress(next(finished), len(due))

        concurrently(
            *(partial(stage, table) for table in due),
            threads=self._kernel.is_remote or tables_at_once is not None,
            work_max=tables_at_once,
        )
        hit(Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE)

    def stage_as_owner(self) -> bool:
        """Step 7 for the owner of the branch, reading its state concurrently.

        False if a graph-wide operation has begun: the caller has to release the branch.
        """
        kernel = self._kernel
        tables = [table for table in self.tables if table.effects.first_touch is None]
        opened = concurrently(
            *(partial(self.capture.reader.handle, table.entry.table_key) for table in tables),
            threads=kernel.is_remote,
        )
        for table, handle in zip(tables, opened, strict=True):
            table.handle = handle

        _, _, owner = concurrently(
            self.stage, self._read_state, kernel.leases.graph_owner, threads=kernel.is_remote
        )
        return owner is None

    def owned_branch(self) -> AbstractContextManager[Lease]:
        """Step 8: own the branch, and read its state."""
        branch = self.capture.branch
        return self._kernel.own_branch(
            branch, self.attempt_id, self._read_state, self._queue, branch.refresh
        )

    def commit(self, lease: Lease) -> CommitRow:
        """Steps 9 to 14. Raises an error before the first effect if the branch has moved."""
        self._require_unchanged()
        plan = self._kernel.plan(
            self.capture,
            lease,
            self.intent,
            tuple(table.effects for table in self.tables),
            attempt_id=self.attempt_id,
        )
        commit = Executor(self._kernel, self.capture.branch, lease).run(plan, self.tables)
        if self.intent.commit_kind != "maintenance":
            every = self._kernel.settings.manifest_compact_every
            maintain_manifest(self.capture.branch, every, self._kernel.ids.ulid)
            if self.intent.brought is None:
                # Not after a replay: an extra commit would make the two graphs differ.
                self.upkeep_failed = not compact_tables(
                    self._kernel, self.capture, lease, self.landed
                )
        return commit

    @property
    def landed(self) -> dict[TableKey, Handle]:
        """The changed tables at their new versions."""
        return {t.entry.table_key: t.landed for t in self.tables if t.landed is not None}

    def _read_state(self) -> None:
        """Read the state for the checks before the first effect; called under the lease."""
        kernel = self._kernel
        opened = [(table, table.handle) for table in self.tables if table.handle is not None]
        branch, pending, *heads = concurrently(
            partial(kernel.manifest.refreshed, self.capture.branch.branch),
            kernel.sidecars.names,
            *(partial(latest_version, handle) for _, handle in opened),
            threads=kernel.is_remote,
        )
        tables = (table for table, _ in opened)
        self._owned = _OwnedState(pending, branch, list(zip(tables, heads, strict=True)))

    def _require_unchanged(self) -> None:
        """Step 9: raise an error if the branch has moved since the capture or a table drifted."""
        capture, seen = self.capture, self._owned
        assert seen is not None
        require_nothing_pending(self._kernel, capture.branch.branch, seen.pending)
        captured_ref, ref = capture.branch.where.ref, seen.branch.where.ref
        if ref != captured_ref:
            raise ReadSetChanged("graph_branch", captured_ref, ref)
        state = seen.branch.state
        if self.intent.expected_head is not None:
            require_head(state, self.intent.expected_head)
        pins = state.pins
        for table in self.tables:
            pin = pins.get(table.entry.identity)
            actual = pin.version if pin is not None else 0
            if actual != table.entry.version:
                raise ExpectedVersionMismatch(table.entry.table_key, table.entry.version, actual)
        if state.head.commit_id != capture.snapshot.commit_id:
            raise ReadSetChanged("graph_head", capture.snapshot.commit_id, state.head.commit_id)
        for table, head in seen.heads:
            if head != table.entry.version:
                raise drift_error(self._kernel, capture.branch.branch, table.entry, head)

    # --- staging ----------------------------------------------------------------------------------

    def _plan(self, change: TableChange) -> StagedTable:
        entry = self.capture.snapshot.table(change.table_key)
        *uuids, restore_uuid = self._kernel.ids.ulids(max(1, len(change.steps)) + 1)
        effects = TableEffects.of(entry, self.capture.branch.where.ref, uuids, restore_uuid)
        return StagedTable(effects, entry, change, self._stage_table)

    def _stage_table(self, table: StagedTable) -> None:
        """Stage one table; uses rows that workers or an earlier attempt have written."""
        handle = table.handle
        if handle is None:
            handle = table.handle = self.capture.reader.handle(table.entry.table_key)
        if table.change.written is not None:
            table.staged = [self._stage_written(table, handle, table.change.written)]
        elif (restaged := self._restaged(table, handle)) is not None:
            table.staged = [restaged]
        else:
            table.staged = self._stage_anew(table, handle)

    def _stage_written(
        self, table: StagedTable, handle: Handle, written: WrittenRows
    ) -> StagedTransaction:
        """Stage rows that workers wrote to this branch's ref, which may not have existed then."""
        kind, uuid = table.change.kind, table.effects.transactions[0].uuid
        if kind == "exchange":
            assert table.change.exchanged is not None
            gone = table.change.exchanged.positions
            return stage_exchange(handle, table.change.rows, gone, uuid, written.fragments)
        assert kind in ("append", "replace", "upsert")
        updated, removed = list(written.updated), list(written.removed)
        if written.deleted:
            options = self._kernel.root.storage_options()
            updated, removed = delete_written(handle, written.deleted, options)
        return stage_written(
            handle, kind, written.fragments, uuid, updated=updated, removed=removed
        )

    def _restaged(self, table: StagedTable, handle: Handle) -> StagedTransaction | None:
        """The transaction of the earlier attempt for the same rows, if it is still valid."""
        earlier = self._earlier._staged_like(table, self.capture) if self._earlier else None
        if earlier is None:
            return None
        assert earlier.handle is not None and earlier.staged[0] is not None
        # Appended rows were checked to be new on this version.
        ids = table.change.ids.combine_chunks() if table.change.kind == "upsert" else None
        uuid = table.effects.transactions[0].uuid
        return restage_new_rows(earlier.staged[0], earlier.handle, handle, ids, uuid)

    def _staged_like(self, table: StagedTable, capture: Capture) -> StagedTable | None:
        """The table of this attempt with the same change, staged."""
        if self._assumes_new:
            return None
        for own in self.tables:
            if (
                own.staged
                and own.effects.location == table.effects.location
                and own.effects.ref == table.effects.ref
                and own.change.kind == table.change.kind
                and self.capture.schema_hash == capture.schema_hash
                and own.change.rows.equals(table.change.rows)
            ):
                return own
        return None

    def _stage_anew(self, table: StagedTable, handle: Handle) -> list[StagedTransaction | None]:
        rows, uuids = table.change.rows, [each.uuid for each in table.effects.transactions]
        match table.change.kind:
            case "append":
                return [self._stage_append(handle, rows, uuids[0])]
            case "upsert":
                # Rows known to be new are staged much faster, and can be committed on a newer
                # version unchanged. Without other writers the lookup does not pay off.
                ids = table.change.ids.combine_chunks()
                if self._assumes_new:
                    return [self._stage_append(handle, rows, uuids[0])]
                if self._expects_new and self._kernel.is_remote and is_small(rows):
                    is_known, staged = concurrently(
                        partial(holds_any, handle, ids),
                        partial(self._stage_append, handle, rows, uuids[0]),
                        threads=True,
                    )
                    if not is_known:
                        return [staged]
                elif self._queue.is_crowded and not holds_any(handle, ids):
                    return [transactions.stage_append(handle, rows, uuids[0])]
                return [transactions.stage_upsert(handle, rows, uuids[0])]
            case "delete":
                return [transactions.stage_delete(handle, rows["id"].combine_chunks(), uuids[0])]
            case "replace":
                return [transactions.stage_replace(handle, rows, uuids[0])]
            case "exchange":
                assert table.change.exchanged is not None
                gone = table.change.exchanged.positions
                return [stage_exchange(handle, rows, gone, uuids[0])]
            case "upkeep":
                return list(stage_ahead(handle, table.change.steps, uuids))

    def _stage_append(self, handle: Handle, rows: pa.Table, uuid: str) -> StagedTransaction:
        """Stage rows as new: few rows locally, so that one request uploads their file."""
        staged = None
        if self._kernel.is_remote and is_small(rows):
            append = partial(transactions.appended, rows=rows, uuid=uuid)
            staged = self._kernel.lance.stage_apart(handle, append, only_adds=True)
        if staged is None:
            return transactions.stage_append(handle, rows, uuid)
        transaction, files = staged
        files.send()
        know_ids(handle, transaction, rows[ID].combine_chunks())
        return transaction


STAGED_APART_BYTES_MAX = 1 << 20


def is_small(rows: pa.Table) -> bool:
    """Whether rows are few enough to write their file locally and upload it.

    Not for rows with blobs, which may need further files that Lance writes to the store.
    """
    has_blobs = any(
        isinstance(each, pa.ExtensionType) or each == BLOB_STORAGE for each in rows.schema.types
    )
    return not has_blobs and rows.nbytes <= STAGED_APART_BYTES_MAX


def require_nothing_pending(kernel: Kernel, branch: str, names: list[str]) -> None:
    """Raise an error if an operation was interrupted since the barrier: recover it first."""
    try:
        for plan in kernel.sidecars.pending_on(branch, names):
            raise EffectFreeConflict(
                f"operation {plan.attempt_id} on {branch} has to be settled first"
            )
    except UnreadableSidecar as refused:
        # The barrier of the next attempt refuses the sidecar or sets it aside.
        raise EffectFreeConflict(refused.message) from refused


def compact_tables(
    kernel: Kernel, capture: Capture, lease: Lease, landed: Mapping[TableKey, Handle]
) -> bool:
    """Compact tables with many small fragments, as a separate commit.

    Each write adds a fragment, and every lookup visits all fragments. ``landed`` are the tables
    that were just written, at their new versions. The write itself is complete and is acknowledged
    even if this fails. False if the upkeep was interrupted.
    """
    every = kernel.settings.table_compact_every
    crowded = {
        key: handle
        for key, handle in landed.items()
        if fragment_count(handle) >= every and small_fragments(handle) >= every
    }
    if not crowded:
        return True
    try:
        due = compaction_of(crowded)
        if due.tables:
            following = kernel.capture(capture.branch, capture.schema_hash)
            upkeep = Intent("Optimize", "maintenance", UPKEEP_ACTOR)
            WriteAttempt(kernel, following, due, upkeep).run_owned(lease)
    except Exception:
        log.warning("tables %s were not compacted", sorted(crowded), exc_info=True)
        return False
    return True


def compaction_of(crowded: Mapping[TableKey, Handle]) -> ChangeSet:
    """The upkeep that is due for tables, by key; tables without a gain are left out."""
    return ChangeSet(
        {
            key: TableChange(key, "upkeep", NO_ROWS, work.steps)
            for key, handle in crowded.items()
            if (work := work_on(handle, (), SMALL_WRITES)).steps
        }
    )
