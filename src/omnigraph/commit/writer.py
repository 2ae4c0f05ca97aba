"""One attempt to make a prepared change set visible: own it, commit every table, publish once.

Up to Phase A nothing durable has happened and the attempt can be thrown away. From there on the
sidecar owns every effect: whatever goes wrong, recovery finishes or undoes the whole.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from omnigraph.commit.change_set import NO_ROWS, ChangeSet, TableChange
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.leases import NO_LINE, Lease, Line
from omnigraph.commit.recovery.examining import uncovered_drift
from omnigraph.commit.sidecar import Authority, LeaseClaim, Sidecar, WriterKind
from omnigraph.commit.staging import PlannedTable, Staging
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.settings import positive_number
from omnigraph.errors import (
    EffectFreeConflict,
    ExpectedVersionMismatch,
    OmnigraphError,
    ReadSetChanged,
    RecoveryRequired,
    StorageError,
)
from omnigraph.model.receipts import CommitKind
from omnigraph.storage.compaction import fragment_count
from omnigraph.storage.datasets import CommitLost, Handle, latest_version, name_after
from omnigraph.storage.manifest import ManifestBranch
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.manifest_upkeep import maintain_manifest
from omnigraph.storage.publisher import PublishRequest, TablePin, publish, require_head
from omnigraph.storage.table_upkeep import SMALL_WRITES, small_fragments, work_on

COMPACT_EVERY_VARIABLE = "OMNIGRAPH_TABLE_COMPACT_EVERY"
COMPACT_EVERY = 64
"""Small fragments of a table at which a write compacts it; `upkeep` may do it before."""


def is_crowded(handle: Handle) -> bool:
    """Whether small writes have left so many fragments that lookups become slow."""
    every = positive_number(COMPACT_EVERY_VARIABLE, COMPACT_EVERY, least=2)
    return fragment_count(handle) >= every and small_fragments(handle) >= every


def compaction_of(crowded: Mapping[str, Handle]) -> ChangeSet:
    """The upkeep that is due for tables by key; none for those where nothing can be gained."""
    return ChangeSet(
        {
            key: TableChange(key, "upkeep", NO_ROWS, work.steps)
            for key, handle in crowded.items()
            if (work := work_on(handle, (), SMALL_WRITES)).steps
        }
    )


def interrupted(operation_id: str, what: str, error: Exception) -> RecoveryRequired:
    """The error for an operation that recovery has to settle, and what stopped it."""
    known = error if isinstance(error, OmnigraphError) else OmnigraphError(str(error))
    first = f"{known.hint}; " if known.hint else ""
    return RecoveryRequired(
        operation_id,
        f"the {what} was interrupted after its first effect: {known.message}",
        f"{first}the next write, or `omnigraph recover`, finishes or undoes it",
    )


log = logging.getLogger(__name__)

UPKEEP_ACTOR = "omnigraph:upkeep"


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
    message: str | None = None
    """Why, in the caller's words."""

    @property
    def said(self) -> Mapping[str, Any] | None:
        """What the commit keeps: its receipt, and the words that came with it."""
        if self.message is None:
            return self.receipt
        return {**(self.receipt or {}), "message": self.message}


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
        self._line = line
        self._operation_id = kernel.ids.operation_id()
        self._staging: Staging = Staging(
            kernel,
            capture,
            changes,
            self._operation_id,
            earlier=None if earlier is None else earlier._staging,
            line=line,
        )
        self._tables = self._staging.tables
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

    def stage(
        self,
        tables_at_once: int | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Step 7: write what can be written without owning anything.

        With a number, so many tables are worked on at once, also on a local disk: for work that is
        more than writing what is there. ``progress`` is told how many tables are done, of how many.
        """
        self._staging.stage_all(tables_at_once, progress)
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
        self._kernel.sidecars.forget(self._operation_id)
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
            if table.landed is not None and is_crowded(table.landed)
        }
        if not crowded:
            return
        try:
            due = compaction_of(crowded)
            if not due.tables:
                return
            branch = self._capture.branch
            capture = self._kernel.capture(branch, self._capture.schema_hash)
            upkeep = Intent("Optimize", "maintenance", UPKEEP_ACTOR)
            WriteAttempt(self._kernel, capture, due, upkeep).run_owned(lease)
        except Exception:
            self.upkeep_failed = True
            log.warning("tables %s were not compacted", sorted(crowded), exc_info=True)

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
        for sidecar in self._kernel.sidecars.pending(names):
            if sidecar.branch == self._capture.branch.branch:
                raise EffectFreeConflict(
                    f"operation {sidecar.operation_id} on {sidecar.branch} has to be settled first"
                )

    def _sidecar(self, lease: Lease) -> Sidecar:
        capture, intent = self._capture, self._intent
        branch = capture.branch
        lineage = replace(
            self._kernel.next_commit(
                branch,
                capture.snapshot.commit_id,
                intent.commit_kind,
                capture.schema_hash,
                intent.actor_id,
            ),
            merged_parent_commit_id=intent.merged_parent,
            operation_id=intent.operation_id,
            receipt=intent.said,
        )
        return Sidecar(
            operation_id=self._operation_id,
            writer_kind=intent.writer_kind,
            started_at=lineage.created_at,
            actor_id=intent.actor_id,
            branch=branch.branch,
            ref=branch.where.ref,
            lease=LeaseClaim.of(lease),
            authority=Authority.of(capture.snapshot, capture.schema_hash),
            lineage=lineage,
            rollback_commit_id=self._kernel.ids.commit_id(),
            tables=tuple(table.claim() for table in self._tables),
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
            self._staging.stage(table)
            hit(Failpoint.MUTATION_POST_FORK_PRE_COMMIT)
        assert table.handle is not None and table.staged is not None
        table.landed = self._kernel.lance.commit(table.handle, table.staged)
        for later in table.later:
            staged = later.staged or later.step.stage(table.landed, later.uuid)
            name_after(staged, self._operation_id)
            lease.require_life()
            table.landed = self._kernel.lance.commit(table.landed, staged)

    def _request(self, sidecar: Sidecar, lease: Lease) -> PublishRequest:
        return PublishRequest(
            commit=sidecar.lineage,
            epoch=lease.epoch,
            expected_head=self._capture.snapshot.commit_id,
            pins=tuple(
                TablePin.at(
                    table.entry.identity, table.where.ref, table.landed, table.landed.version
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
            return interrupted(self._operation_id, "write", lost)
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
        raise interrupted(self._operation_id, "write", error) from error

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
