"""One attempt to make a prepared change set visible: own it, commit every table, publish once.

Up to Phase A nothing durable has happened and the attempt can be thrown away. From there on the
sidecar owns every effect: whatever goes wrong, recovery finishes or undoes the whole.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

from omnigraph.commit.change_set import NO_ROWS, ChangeSet, TableChange, WrittenRows
from omnigraph.commit.drift import uncovered_drift
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.leases import NO_LINE, Lease, Line
from omnigraph.commit.sidecar import (
    Authority,
    FirstTouch,
    LeaseClaim,
    PlannedTransaction,
    Sidecar,
    SidecarTable,
    WriterKind,
)
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.settings import positive_number
from omnigraph.errors import (
    Conflict,
    ExpectedVersionMismatch,
    OmnigraphError,
    ReadSetChanged,
    RecoveryRequired,
    StorageError,
)
from omnigraph.model.receipts import CommitKind
from omnigraph.storage import blobs, tables
from omnigraph.storage.compaction import fragment_count
from omnigraph.storage.datasets import (
    CommitLost,
    DatasetRef,
    Handle,
    StagedTransaction,
    latest_version,
    row_count,
)
from omnigraph.storage.manifest import ManifestBranch
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.manifest_upkeep import maintain_manifest
from omnigraph.storage.publisher import PublishRequest, TablePin, publish, require_head
from omnigraph.storage.restaging import holds_any, restage_new_rows
from omnigraph.storage.row_places import stage_exchange
from omnigraph.storage.snapshot import TableEntry
from omnigraph.storage.table_upkeep import (
    SMALL_WRITES,
    UpkeepStep,
    small_fragments,
    stage_ahead,
    work_on,
)
from omnigraph.storage.written import (
    stage_written_append,
    stage_written_replace,
    stage_written_upsert,
)
from omnigraph.storage.written_upserts import delete_written

log = logging.getLogger(__name__)

UPKEEP_ACTOR = "omnigraph:upkeep"
COMPACT_EVERY_VARIABLE = "OMNIGRAPH_TABLE_COMPACT_EVERY"
COMPACT_EVERY = 64
"""Small fragments of a table at which a write compacts it; `upkeep` may do it before."""


@dataclass(slots=True)
class LaterStep:
    """A transaction of upkeep that follows another one of the same table."""

    step: UpkeepStep
    uuid: str
    staged: StagedTransaction | None = None
    """None for a step that can only be staged on the result of those before it."""


@dataclass(slots=True)
class PlannedTable:
    """One table of the write, staged or ready to be staged."""

    entry: TableEntry
    where: DatasetRef
    """The dataset on the ref of the branch that is written."""
    change: TableChange
    uuid: str
    restore_uuid: str
    later: list[LaterStep]
    handle: Handle | None = None
    staged: StagedTransaction | None = None
    """None for a table this branch has never written: its ref does not exist yet."""
    landed: Handle | None = None

    @property
    def is_first_touch(self) -> bool:
        """Whether the branch still shares this table with the one it was forked from."""
        return self.entry.ref != self.where.ref


@dataclass(frozen=True, slots=True)
class _Seen:
    """The world as its owner finds it, before the first effect."""

    pending: list[str]
    branch: ManifestBranch
    heads: list[tuple[PlannedTable, int]]


@dataclass(frozen=True, slots=True)
class Intent:
    """Who writes, why, and under which conditions."""

    writer_kind: WriterKind
    commit_kind: CommitKind
    actor_id: str | None = None
    expected_head: str | None = None
    """Only write if this is still the head (a conditional write)."""
    operation_id: str | None = None
    """The caller's name for the write."""
    receipt: Mapping[str, Any] | None = None
    merged_parent: str | None = None
    """The commit whose content a merge brings in."""


class EffectFreeConflict(Conflict):
    """Somebody else was first, and this attempt left nothing behind: it may be prepared again."""

    code = "effect_free_conflict"


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
        line: Line = NO_LINE,
    ) -> None:
        self._kernel = kernel
        self._capture = capture
        self._intent = intent
        self._earlier = earlier
        """An attempt at the same write that was thrown away. Files it wrote may be of use."""
        self._line = line
        self._operation_id = kernel.ids.operation_id()
        self._tables = [self._plan(change) for _, change in sorted(changes.tables.items())]
        self._seen: _Seen | None = None
        self.upkeep_failed = False
        """Whether the upkeep that followed the write did not come to its end."""

    def run(self) -> CommitRow:
        """Stage beside other writers, then own the branch, commit and publish."""
        self.stage()
        with self.owned_branch() as lease:
            return self.commit(lease)

    def run_owned(self, lease: Lease) -> CommitRow:
        """The same for a caller that owns the branch already."""
        self.stage()
        self._look()
        return self.commit(lease)

    def stage(self, tables_at_once: int | None = None) -> None:
        """Step 7: write what can be written without owning anything.

        With a number, so many tables are worked on at once, also on a local disk: for work that is
        more than writing what is there.
        """
        self._stage_all(tables_at_once)
        hit(Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE)

    def owned_branch(self) -> AbstractContextManager[Lease]:
        """Step 8: own the branch, and look at it."""
        branch = self._capture.branch
        return self._kernel.own_branch(
            branch, self._operation_id, self._look, self._line, branch.refresh
        )

    def commit(self, lease: Lease) -> CommitRow:
        """Step 9 and phases A to D. A branch that has moved is told before anything is done."""
        self._require_unchanged()
        sidecar = self._sidecar(lease)
        lease.require_life()
        self._kernel.sidecars.write(sidecar)
        commit = self._effects(sidecar, lease)
        self._require_branch(lease)
        self._finish(sidecar)
        if self._intent.commit_kind != "maintenance":
            maintain_manifest(self._capture.branch, self._kernel.ids.ulid())
            self._compact_tables(lease)
        return commit

    def _compact_tables(self, lease: Lease) -> None:
        """Rewrite the small fragments that many small writes have left, as a commit of its own.

        Each write adds a fragment, and every lookup visits all of them. The write itself is done
        and acknowledged whatever happens here.
        """
        crowded = {
            table.entry.table_key: table.landed
            for table in self._tables
            if table.landed is not None and _is_crowded(table.landed)
        }
        if not crowded:
            return
        try:
            due = {
                key: TableChange(key, "upkeep", NO_ROWS, work.steps)
                for key, landed in crowded.items()
                if (work := work_on(landed, (), SMALL_WRITES)).steps
            }
            if not due:
                return
            branch = self._capture.branch
            capture = self._kernel.capture(branch, self._capture.schema_hash)
            upkeep = Intent("Optimize", "maintenance", UPKEEP_ACTOR)
            WriteAttempt(self._kernel, capture, ChangeSet(due), upkeep).run_owned(lease)
        except Exception:
            self.upkeep_failed = True
            log.warning("tables %s were not compacted", sorted(crowded), exc_info=True)

    # --- preparation ------------------------------------------------------------------------------

    def _plan(self, change: TableChange) -> PlannedTable:
        entry = self._capture.snapshot.table(change.table_key)
        ref = self._capture.branch.where.ref
        return PlannedTable(
            entry,
            DatasetRef(self._kernel.table_uri(entry.location), ref),
            change,
            self._kernel.ids.ulid(),
            self._kernel.ids.ulid(),
            [LaterStep(step, self._kernel.ids.ulid()) for step in change.steps[1:]],
        )

    def _stage_all(self, tables_at_once: int | None) -> None:
        with self._kernel.at_once(tables_at_once) as side:
            staged = [
                side.start(partial(self._stage, table))
                for table in self._tables
                if not table.is_first_touch
            ]
        for done in staged:
            done()

    def _stage(self, table: PlannedTable) -> None:
        handle = table.handle
        if handle is None:
            handle = table.handle = self._capture.reader.handle(table.entry.table_key)
        if table.change.written is not None:
            table.staged = self._stage_written(table, handle, table.change.written)
        else:
            table.staged = self._restaged(table, handle)
        if table.staged is None:
            self._stage_anew(table, handle)
        assert table.staged is not None
        table.staged.transaction_properties = {"operation": self._operation_id}

    def _stage_written(
        self, table: PlannedTable, handle: Handle, written: WrittenRows
    ) -> StagedTransaction:
        """Rows that workers wrote to the ref of this branch, maybe before the ref existed."""
        if table.change.kind == "append":
            return stage_written_append(handle, written.fragments, table.uuid)
        if table.change.kind == "replace":
            return stage_written_replace(handle, written.fragments, table.uuid)
        assert table.change.kind == "upsert"
        updated, removed = list(written.updated), list(written.removed)
        if written.deleted:
            options = self._kernel.root.storage_options()
            updated, removed = delete_written(handle, written.deleted, options)
        return stage_written_upsert(handle, written.fragments, updated, removed, table.uuid)

    def _restaged(self, table: PlannedTable, handle: Handle) -> StagedTransaction | None:
        """What the earlier attempt staged for the same rows, if it still means the same here."""
        earlier = self._earlier.staged_like(table, self._capture) if self._earlier else None
        if earlier is None:
            return None
        assert earlier.handle is not None and earlier.staged is not None
        # Rows to append have been proved to be new by preparing them on this version.
        ids = table.change.ids.combine_chunks() if table.change.kind == "upsert" else None
        return restage_new_rows(earlier.staged, earlier.handle, handle, ids, table.uuid)

    def staged_like(self, table: PlannedTable, capture: Capture) -> PlannedTable | None:
        """The table for which this attempt has staged the same change."""
        for own in self._tables:
            if (
                own.staged is not None
                and own.where == table.where
                and own.change.kind == table.change.kind
                and self._capture.schema_hash == capture.schema_hash
                and own.change.rows.equals(table.change.rows)
            ):
                return own
        return None

    def _stage_anew(self, table: PlannedTable, handle: Handle) -> None:
        rows, uuid = table.change.rows, table.uuid
        match table.change.kind:
            case "append":
                table.staged = tables.stage_append(handle, rows, uuid)
            case "upsert":
                # Rows that are new are staged much faster if that is known, and can be committed
                # on a newer version as they are. Where nobody else writes, it is not worth asking.
                ids = table.change.ids.combine_chunks()
                is_new = self._line.is_crowded and not holds_any(handle, ids)
                stage = tables.stage_append if is_new else blobs.stage_upsert
                table.staged = stage(handle, rows, uuid)
            case "delete":
                table.staged = tables.stage_delete(handle, rows["id"].combine_chunks(), uuid)
            case "replace":
                table.staged = tables.stage_replace(handle, rows, uuid)
            case "exchange":
                assert table.change.exchanged is not None
                gone = table.change.exchanged.positions
                table.staged = stage_exchange(handle, rows, gone, uuid)
            case "upkeep":
                uuids = [uuid, *(later.uuid for later in table.later)]
                table.staged, *ahead = stage_ahead(handle, table.change.steps, uuids)
                for later, staged in zip(table.later, ahead, strict=True):
                    later.staged = staged

    # --- under the gates --------------------------------------------------------------------------

    def _look(self) -> None:
        """Read, under the lease and at once, all that the decision to go on depends on."""
        kernel = self._kernel
        with kernel.at_once() as side:
            pending = side.start(kernel.sidecars.names)
            heads = [
                (table, side.start(partial(latest_version, table.handle)))
                for table in self._tables
                if table.handle is not None
            ]
            branch = side.here(partial(kernel.manifest.refreshed, self._capture.branch.branch))
        self._seen = _Seen(pending(), branch, [(table, head()) for table, head in heads])

    def _require_unchanged(self) -> None:
        """Step 9: the captured world is still the world, and every table stands at its pin."""
        capture, seen = self._capture, self._seen
        assert seen is not None
        self._require_nothing_pending(seen.pending)
        captured_ref, ref = capture.branch.where.ref, seen.branch.where.ref
        if ref != captured_ref:
            raise ReadSetChanged("graph_branch", captured_ref, ref)
        state = seen.branch.state
        if self._intent.expected_head is not None:
            require_head(state, self._intent.expected_head)
        pins = state.pins
        for table in self._tables:
            pin = pins.get(table.entry.identity)
            actual = pin.version if pin is not None else 0
            if actual != table.entry.version:
                raise ExpectedVersionMismatch(table.entry.table_key, table.entry.version, actual)
        if state.head.commit_id != capture.snapshot.commit_id:
            raise ReadSetChanged("graph_head", capture.snapshot.commit_id, state.head.commit_id)
        for table, head in seen.heads:
            if head != table.entry.version:
                raise uncovered_drift(self._kernel, capture.branch.branch, table.entry, head)

    def _require_nothing_pending(self, names: list[str]) -> None:
        """An operation that was interrupted since the barrier has to be settled first."""
        for name in names:
            sidecar = self._kernel.sidecars.read(name)
            if sidecar is not None and sidecar.branch == self._capture.branch.branch:
                raise EffectFreeConflict(
                    f"operation {sidecar.operation_id} on {sidecar.branch} has to be settled first"
                )

    def _sidecar(self, lease: Lease) -> Sidecar:
        capture, intent = self._capture, self._intent
        branch = capture.branch
        lineage = CommitRow(
            commit_id=self._kernel.ids.commit_id(),
            branch=None if branch.where.ref is None else branch.branch,
            manifest_version=0,
            commit_seq=0,
            parent_commit_id=capture.snapshot.commit_id,
            merged_parent_commit_id=intent.merged_parent,
            actor_id=intent.actor_id,
            kind=intent.commit_kind,
            schema_hash=capture.schema_hash,
            created_at=self._kernel.clock.wall_us(),
            operation_id=intent.operation_id,
            receipt=intent.receipt,
        )
        return Sidecar(
            operation_id=self._operation_id,
            writer_kind=intent.writer_kind,
            started_at=self._kernel.clock.wall_us(),
            actor_id=intent.actor_id,
            branch=branch.branch,
            ref=branch.where.ref,
            lease=LeaseClaim(lease.scope, lease.owner_id, lease.epoch),
            authority=Authority(
                capture.snapshot.commit_id, capture.snapshot.manifest_version, capture.schema_hash
            ),
            lineage=lineage,
            rollback_commit_id=self._kernel.ids.commit_id(),
            tables=tuple(_sidecar_table(table) for table in self._tables),
        )

    # --- effects ----------------------------------------------------------------------------------

    def _effects(self, sidecar: Sidecar, lease: Lease) -> CommitRow:
        """Phases B and C. After the first commit there is no way back in place."""
        try:
            self._passed_sidecar()
            for table in self._tables:
                self._commit_table(table, lease)
                self._passed_table()
            self._passed_tables()
            lease.require_life()
            return publish(self._capture.branch, self._request(sidecar, lease))
        except CommitLost as lost:
            raise self._after_rejection(sidecar, lost) from lost
        except (OmnigraphError, OSError, ValueError) as error:
            return self._published_after_all(sidecar, error)

    def _passed_sidecar(self) -> None:
        if self._intent.writer_kind == "BranchMerge":
            hit(Failpoint.BRANCH_MERGE_POST_SIDECAR_PRE_FORK)
        else:
            hit(Failpoint.MUTATION_POST_SIDECAR_PRE_FORK)

    def _passed_table(self) -> None:
        if self._intent.writer_kind == "EnsureIndices":
            hit(Failpoint.ENSURE_INDICES_POST_TABLE_EFFECT)
        elif self._intent.writer_kind == "BranchMerge":
            hit(Failpoint.BRANCH_MERGE_BETWEEN_CHUNKS)
        else:
            hit(Failpoint.MUTATION_POST_TABLE_COMMIT)

    def _passed_tables(self) -> None:
        if self._intent.writer_kind == "EnsureIndices":
            hit(Failpoint.ENSURE_INDICES_POST_PHASE_B_PRE_MANIFEST_COMMIT)
        elif self._intent.writer_kind == "Optimize":
            hit(Failpoint.OPTIMIZE_POST_PHASE_B_PRE_MANIFEST_COMMIT)
        elif self._intent.writer_kind == "BranchMerge":
            hit(Failpoint.BRANCH_MERGE_POST_PHASE_B_PRE_MANIFEST_COMMIT)
        else:
            hit(Failpoint.MUTATION_POST_FINALIZE_PRE_PUBLISHER)

    def _commit_table(self, table: PlannedTable, lease: Lease) -> None:
        lease.require_life()
        if table.is_first_touch:
            table.handle = self._kernel.forks.make(
                table.where, table.entry.ref, table.entry.version
            )
            self._stage(table)
            hit(Failpoint.MUTATION_POST_FORK_PRE_COMMIT)
        assert table.handle is not None and table.staged is not None
        table.landed = self._kernel.lance.commit(table.handle, table.staged)
        for later in table.later:
            staged = later.staged or later.step.stage(table.landed, later.uuid)
            staged.transaction_properties = {"operation": self._operation_id}
            lease.require_life()
            table.landed = self._kernel.lance.commit(table.landed, staged)

    def _request(self, sidecar: Sidecar, lease: Lease) -> PublishRequest:
        return PublishRequest(
            commit=sidecar.lineage,
            epoch=lease.epoch,
            expected_head=self._capture.snapshot.commit_id,
            pins=tuple(
                TablePin(
                    table.entry.identity,
                    table.landed.version,
                    table.where.ref,
                    row_count(table.landed, table.landed.version),
                )
                for table in self._tables
                if table.landed is not None
            ),
            expected_table_versions={t.entry.identity: t.entry.version for t in self._tables},
        )

    def _after_rejection(self, sidecar: Sidecar, lost: CommitLost) -> OmnigraphError:
        """A rejected first commit with no movement leaves nothing: take the sidecar back."""
        moved = any(table.landed is not None for table in self._tables)
        forked = any(table.is_first_touch for table in self._tables)
        if moved or forked:
            return self._recovery_required(lost)
        self._kernel.sidecars.delete(sidecar.operation_id)
        if not lost.details.get("conflict", True):
            # Nobody was first: the store refused, and would again.
            return StorageError(lost.message, hint=lost.hint)
        return EffectFreeConflict(lost.message, hint="repeat the write")

    def _published_after_all(self, sidecar: Sidecar, error: Exception) -> CommitRow:
        """A failure on the way back from the publish: the fixed commit id decides."""
        try:
            landed = self._capture.branch.refresh().commits.get(sidecar.lineage.commit_id)
        except (OmnigraphError, OSError, ValueError):
            landed = None
        if landed is not None:
            return landed
        if isinstance(error, RecoveryRequired):
            raise error
        raise self._recovery_required(error) from error

    def _recovery_required(self, error: Exception) -> RecoveryRequired:
        reason = error.message if isinstance(error, OmnigraphError) else str(error)
        first = f"{error.hint}; " if isinstance(error, OmnigraphError) and error.hint else ""
        return RecoveryRequired(
            self._operation_id,
            f"the write was interrupted after its first effect: {reason}",
            f"{first}the next write, or `omnigraph recover`, finishes or undoes it",
        )

    def _require_branch(self, lease: Lease) -> None:
        """A publish that outlived its lease counts only if its branch is still there.

        Whoever took the branch over may have deleted it, and with it the row that would have kept
        the publish out. What landed in its remains nobody can see.
        """
        branch = self._capture.branch
        if branch.where.ref is None or lease.has_life:
            return
        current = self._kernel.manifest.registration(branch.branch).ref
        if current != branch.where.ref:
            raise ReadSetChanged("graph_branch", branch.where.ref, current)

    def _finish(self, sidecar: Sidecar) -> None:
        """Phase D. The write is visible; a sidecar left behind only costs the next barrier."""
        try:
            self._kernel.sidecars.delete(sidecar.operation_id)
        except Exception:
            log.warning("sidecar %s was left behind", sidecar.operation_id, exc_info=True)


def _sidecar_table(table: PlannedTable) -> SidecarTable:
    entry = table.entry
    return SidecarTable(
        entry.identity,
        entry.table_key,
        entry.location,
        table.where.ref,
        entry.version,
        tuple(
            PlannedTransaction(uuid, entry.version + at)
            for at, uuid in enumerate([table.uuid, *(later.uuid for later in table.later)])
        ),
        table.restore_uuid,
        FirstTouch(entry.ref, entry.version) if table.is_first_touch else None,
    )


def _is_crowded(handle: Handle) -> bool:
    """Whether small writes have left so many fragments that lookups become slow."""
    every = _compact_every()
    return fragment_count(handle) >= every and small_fragments(handle) >= every


def _compact_every() -> int:
    return positive_number(COMPACT_EVERY_VARIABLE, COMPACT_EVERY, least=2)
