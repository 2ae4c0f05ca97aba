"""Recovery: finish or undo what an interrupted write left behind.

Ownership is proved by transaction uuids and fixed commit ids. A sidecar is settled as a whole,
every step can be repeated by anyone at any time, and what cannot be proved stays and is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal

from omnigraph.commit.audit import RecoveryAudit, RecoveryRow, RetiredTable, TableOutcome
from omnigraph.commit.classification import TableClass, class_by_versions, class_of
from omnigraph.commit.forks import ForkState
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.late_effects import LateEffects
from omnigraph.commit.leases import Lease, LeaseLost, branch_scope
from omnigraph.commit.schema_contract import discard_staged, staged_objects
from omnigraph.commit.schema_lock import (
    release_lock,
    remove_abandoned_lock,
    require_no_schema_apply,
)
from omnigraph.commit.schema_recovery import SchemaRecovery, new_pins, registrations
from omnigraph.commit.sidecar import (
    Authority,
    LeaseClaim,
    SchemaDelta,
    Sidecar,
    SidecarTable,
    UnreadableSidecar,
)
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.errors import Conflict, NotFound, RecoveryRequired, StorageError, WriterBusy
from omnigraph.model.ids import SCHEMA_APPLY_LOCK
from omnigraph.storage.datasets import (
    CommitLost,
    CommitNotOwned,
    DatasetRef,
    Handle,
    latest_version,
    row_count,
    transactions_since,
)
from omnigraph.storage.layout import MAIN, sidecar_name
from omnigraph.storage.manifest import ManifestBranch
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.publisher import PublishRequest, TablePin, fence, publish
from omnigraph.storage.snapshot import ManifestState
from omnigraph.storage.tables import stage_restore

RECOVERY_ACTOR = "omnigraph:recovery"

LOST = (Conflict, CommitLost, CommitNotOwned, LeaseLost)
"""Somebody else was faster, or took over: the sidecar waits for the next pass."""

Mode = Literal["full", "forward"]
"""`forward` may finish, roll forward and discard; it never restores a table or deletes a ref."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A table of a sidecar as it stands now."""

    table: SidecarTable
    kind: TableClass
    pin: int
    head: int
    handle: Handle | None
    """None when the fork of a first touch was never made."""
    fork: ForkState | None = None
    """What there is of the fork of a first touch."""
    foreign_versions: tuple[int, ...] = ()

    @property
    def is_idle_fork(self) -> bool:
        """Whether there is a fork, or a part of one, that was never committed to."""
        untouched = self.fork == "made" and self.head == self.table.expected_version
        return untouched or self.fork == "half_made"


@dataclass(frozen=True, slots=True)
class _Case:
    """One sidecar under examination: what it says, what is there, and the right to act."""

    sidecar: Sidecar
    branch: ManifestBranch
    state: ManifestState
    findings: list[Finding]
    lease: Lease


@dataclass(frozen=True, slots=True)
class Settlement:
    """What became of one sidecar."""

    operation_id: str
    outcome: Literal[
        "finished", "rolled_forward", "rolled_back", "discarded", "live", "deferred", "blocked"
    ]
    reason: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether the operation needs nothing more."""
        return self.outcome in ("finished", "rolled_forward", "rolled_back", "discarded")


class Recoverer:
    """Settles the sidecars of one graph."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._audit = RecoveryAudit(kernel.lance, kernel.root.uri)

    def run(self, mode: Mode, *, force: bool = False) -> list[Settlement]:
        """Settle what can be settled, oldest first; raises for a sidecar nobody can read."""
        settled = [self._settle(name, mode, force) for name in self._kernel.sidecars.names()]
        if mode == "full":
            self._remove_abandoned_staging()
            remove_abandoned_lock(self._kernel)
            late = LateEffects(self._kernel, self._audit.rows())
            settled += [self._undo_late_effects(branch, late) for branch in late.branches()]
        return [settlement for settlement in settled if settlement is not None]

    def barrier(self, branch: str, operation: str = "writing") -> ManifestBranch:
        """Before a write to ``branch``: settle forward, and refuse while its own is unsettled.

        Returns the branch at its newest state. That is read while the sidecars are listed: a writer
        proves later, as its owner, that it is still the newest. Raises `Conflict`, in the name of
        ``operation``, while the schema is being changed.
        """
        with self._kernel.at_once() as side:
            names = side.start(self._kernel.sidecars.names)
            newest = side.here(partial(self._kernel.manifest.refreshed, branch))
        if self._pass(branch, names()):
            newest = self._kernel.manifest.refreshed(branch)
        if SCHEMA_APPLY_LOCK in self._kernel.manifest.main.state.branches:
            remove_abandoned_lock(self._kernel)
            newest = self._kernel.manifest.refreshed(branch)
            require_no_schema_apply(self._kernel, operation)
        return newest

    def _pass(self, branch: str, names: list[str]) -> bool:
        """Settle the sidecars of a branch; whether there were any."""
        found = False
        for name in names:
            sidecar = self._kernel.sidecars.read(name)
            if sidecar is None or sidecar.branch != branch:
                continue
            found = True
            settlement = self._settle(name, "forward", force=False)
            if settlement is None or settlement.is_settled or settlement.outcome == "live":
                continue
            raise RecoveryRequired(
                settlement.operation_id,
                f"operation {settlement.operation_id} on {branch} is unfinished: "
                f"{settlement.reason}",
                "reopen the graph read-write, or run `omnigraph recover`",
            )
        return found

    # --- one sidecar ------------------------------------------------------------------------------

    def _settle(self, name: str, mode: Mode, force: bool) -> Settlement | None:
        sidecar = self._kernel.sidecars.read(name)
        if sidecar is None:
            return None
        with self._owned(sidecar.branch, sidecar.lease.scope, sidecar.operation_id) as lease:
            if lease is None:
                return Settlement(sidecar.operation_id, "live", "its writer is still running")
            # Its writer may have finished while we waited for the gates.
            current = self._kernel.sidecars.read(name)
            if current is None:
                return None
            branch = self._branch_of(current)
            if branch is not None:
                settled = self._settle_owned(current, branch, lease, mode, force)
                if settled.is_settled and current.schema is not None:
                    release_lock(self._kernel, lease)
                return settled
        # What is left concerns main, whose gate and lease may not be waited for under another's.
        return self._discard(name, sidecar.operation_id)

    @contextmanager
    def _owned(self, branch: str, scope: str, operation_id: str) -> Iterator[Lease | None]:
        """Own what a sidecar is about, or get None while a live owner has it."""
        with self._kernel.gates.write([branch]):
            lease = self._kernel.leases.try_hold(scope, operation_id)
            try:
                yield lease
            finally:
                if lease is not None:
                    lease.release()

    def _settle_owned(
        self, sidecar: Sidecar, branch: ManifestBranch, lease: Lease, mode: Mode, force: bool
    ) -> Settlement:
        if lease.was_taken_over or sidecar.lease.owner_id != lease.owner_id:
            # Whoever wrote the sidecar may be slow instead of dead. From here on it cannot publish,
            # and what is read below stays true.
            fence(branch, lease.epoch)
        state = branch.refresh()
        schema = self._schema(sidecar)
        landed = state.commits.get(sidecar.lineage.commit_id)
        if landed is not None:
            if schema is not None:
                schema.complete()
            forward = tuple(
                _outcome(t, t.expected_version, t.post_commit_pin) for t in sidecar.tables
            )
            return self._finish(sidecar, "RolledForward", landed.commit_id, "finished", forward)
        rolled_back = state.commits.get(sidecar.rollback_commit_id)
        if rolled_back is not None:
            if schema is not None:
                schema.undo()
            return self._finish(sidecar, "RolledBack", rolled_back.commit_id, "finished")
        if sidecar.versions_only:
            sidecar = self._with_identities(sidecar, branch)
            findings = [self._classify_versions(table, sidecar, state) for table in sidecar.tables]
        else:
            findings = [self._classify(table, state) for table in sidecar.tables]
        case = _Case(sidecar, branch, state, findings, lease)
        try:
            return self._decide(case, mode, force)
        except LOST as lost:
            return Settlement(sidecar.operation_id, "deferred", lost.message)

    def _branch_of(self, sidecar: Sidecar) -> ManifestBranch | None:
        """The branch of a sidecar; None when the registry proves it is gone or another one."""
        if sidecar.ref is None:
            return self._kernel.manifest.main
        try:
            branch = self._kernel.manifest.branch(sidecar.branch)
        except NotFound:
            return None
        return branch if branch.where.ref == sidecar.ref else None

    # --- classification ---------------------------------------------------------------------------

    def _classify(self, table: SidecarTable, state: ManifestState) -> Finding:
        published = state.pins.get(table.identity)
        pin = published.version if published is not None else 0
        where = DatasetRef(self._kernel.table_uri(table.location), table.ref)
        fork: ForkState | None = None
        if table.first_touch is not None and (published is None or published.ref != table.ref):
            fork = self._kernel.forks.state(where)
            if fork != "made":
                return Finding(table, TableClass.NO_MOVEMENT, pin, pin, None, fork)
        handle = self._kernel.lance.open(where)
        head = latest_version(handle)
        chain = transactions_since(handle, table.expected_version)
        own = {*(tx.uuid for tx in table.transactions), table.restore_uuid}
        strangers = set(chain) - own
        if strangers and head != pin:
            strangers -= {uuid for row in self._audit.rows() for uuid in row.retired_uuids}
        kind = class_of(table, pin, head, chain, strangers)
        foreign: tuple[int, ...] = ()
        if kind is TableClass.FOREIGN_EFFECT:
            first = table.expected_version + 1
            foreign = tuple(first + at for at, uuid in enumerate(chain) if uuid in strangers)
        return Finding(table, kind, pin, head, handle, fork, foreign)

    def _with_identities(self, sidecar: Sidecar, branch: ManifestBranch) -> Sidecar:
        """A sidecar of the older shape, with the identities its tables have now."""
        registered = {row.location: row for row in branch.state.tables.values()}
        tables = []
        for table in sidecar.tables:
            row = registered.get(table.location)
            if row is None or row.table_key != table.table_key:
                raise UnreadableSidecar(
                    sidecar_name(sidecar.operation_id),
                    f"names {table.table_key} at {table.location}, which is not registered there",
                )
            tables.append(replace(table, identity=row.identity))
        head = branch.state.head_snapshot()
        commit = self._commit(sidecar.lineage.commit_id, branch, sidecar.operation_id)
        # It records no authority; the fence and the publish see to it that nothing moved since.
        authority = Authority(head.commit_id, head.manifest_version, commit.schema_hash)
        return replace(sidecar, tables=tuple(tables), lineage=commit, authority=authority)

    def _classify_versions(
        self, table: SidecarTable, sidecar: Sidecar, state: ManifestState
    ) -> Finding:
        published = state.pins.get(table.identity)
        pin = published.version if published is not None else 0
        handle = self._kernel.lance.open(
            DatasetRef(self._kernel.table_uri(table.location), table.ref)
        )
        head = latest_version(handle)
        last = transactions_since(handle, head - 1)[-1]
        kind = class_by_versions(table, sidecar.writer_kind, pin, head, last)
        return Finding(table, kind, pin, head, handle)

    # --- decision ---------------------------------------------------------------------------------

    def _decide(self, case: _Case, mode: Mode, force: bool) -> Settlement:
        sidecar, findings = case.sidecar, case.findings
        kinds = {finding.kind for finding in findings}
        if TableClass.INVARIANT_VIOLATION in kinds:
            raise StorageError(
                f"operation {sidecar.operation_id}: {_describe(findings)}",
                hint="versions that were published are missing; restore the tables from a copy",
            )
        if TableClass.FOREIGN_EFFECT in kinds and not (force and mode == "full"):
            return Settlement(
                sidecar.operation_id,
                "blocked",
                f"{_describe(findings)}; "
                "`omnigraph recover --force --confirm` rolls back through it",
            )
        if sidecar.schema is not None:
            return self._decide_schema(case, sidecar.schema, kinds, mode)
        has_forks = any(finding.is_idle_fork for finding in findings)
        if kinds <= {TableClass.NO_MOVEMENT} and not has_forks:
            return self._finish(sidecar, "RolledBack", None, "rolled_back")
        done = {TableClass.ALREADY_PUBLISHED, TableClass.NO_MOVEMENT}
        if TableClass.ALREADY_PUBLISHED in kinds and kinds <= done:
            return self._finish(sidecar, "RolledForward", None, "finished")
        if kinds == {TableClass.ROLLED_PAST_EXPECTED} and self._authority_holds(case):
            return self._roll_forward(case)
        if mode == "forward":
            return Settlement(sidecar.operation_id, "deferred", _describe(findings))
        return self._roll_back(case)

    def _decide_schema(
        self, case: _Case, delta: SchemaDelta, kinds: set[TableClass], mode: Mode
    ) -> Settlement:
        """A change of schema is published only if its new tables and its contract are there."""
        sidecar, schema = case.sidecar, SchemaRecovery(self._kernel, delta)
        if schema.foreign:
            return Settlement(
                sidecar.operation_id,
                "blocked",
                f"somebody else has made a table for {', '.join(schema.foreign)}; move it away",
            )
        is_whole = kinds <= {TableClass.ROLLED_PAST_EXPECTED} and schema.is_ready()
        if is_whole and self._authority_holds(case):
            return self._roll_forward(case)
        if mode == "forward":
            reason = _describe(case.findings) or "only part of it was done"
            return Settlement(sidecar.operation_id, "deferred", reason)
        return self._roll_back(case)

    def _schema(self, sidecar: Sidecar) -> SchemaRecovery | None:
        return None if sidecar.schema is None else SchemaRecovery(self._kernel, sidecar.schema)

    def _authority_holds(self, case: _Case) -> bool:
        """Whether the graph is still the one the operation was prepared on."""
        authority = case.sidecar.authority
        return (
            case.state.head.commit_id == authority.head_commit_id
            and self._kernel.accepted_schema().schema_hash == authority.schema_hash
        )

    def _roll_forward(self, case: _Case) -> Settlement:
        sidecar, findings = case.sidecar, case.findings
        delta = sidecar.schema
        hit(Failpoint.RECOVERY_BEFORE_ROLL_FORWARD_PUBLISH)
        request = PublishRequest(
            commit=replace(
                sidecar.lineage,
                recovered_by=RECOVERY_ACTOR,
                recovery_operation_id=sidecar.operation_id,
            ),
            epoch=case.lease.epoch,
            expected_head=sidecar.authority.head_commit_id,
            pins=tuple(_pin(f, f.head) for f in findings),
            expected_table_versions={f.table.identity: f.table.expected_version for f in findings},
        )
        if delta is not None:
            request = replace(
                request,
                pins=(*new_pins(delta), *request.pins),
                registrations=registrations(delta),
                tombstones=delta.tombstones,
            )
        commit = publish(case.branch, request)
        schema = self._schema(sidecar)
        if schema is not None:
            schema.complete()
        outcomes = tuple(_outcome(f.table, f.table.expected_version, f.head) for f in findings)
        return self._finish(sidecar, "RolledForward", commit.commit_id, "rolled_forward", outcomes)

    def _roll_back(self, case: _Case) -> Settlement:
        sidecar, state, findings = case.sidecar, case.state, case.findings
        ahead = [f for f in findings if f.handle is not None and f.head > f.pin]
        restored = [self._restore(finding, case.lease) for finding in ahead]
        # Before the publish: once that is visible, recovery only finishes and looks no further.
        self._remove_idle_forks(sidecar, findings)
        schema = self._schema(sidecar)
        if schema is not None:
            schema.undo()
        hit(Failpoint.RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH)
        commit_id: str | None = None
        if restored:
            request = PublishRequest(
                commit=self._commit(sidecar.rollback_commit_id, case.branch, sidecar.operation_id),
                epoch=case.lease.epoch,
                expected_head=state.head.commit_id,
                pins=tuple(_pin(f, version) for f, version in restored),
                expected_table_versions={f.table.identity: f.pin for f, _ in restored},
            )
            commit_id = publish(case.branch, request).commit_id
            hit(Failpoint.RECOVERY_POST_ROLLBACK_PUBLISH_PRE_AUDIT)
        outcomes = tuple(
            replace(_outcome(f.table, f.head, f.pin), foreign_versions=f.foreign_versions)
            for f, _ in restored
        )
        return self._finish(sidecar, "RolledBack", commit_id, "rolled_back", outcomes)

    def _restore(self, finding: Finding, lease: Lease) -> tuple[Finding, int]:
        """Bring a table back to its pin, once; the version that shows it."""
        assert finding.handle is not None
        if finding.kind is TableClass.COMPENSATION_PENDING:
            return finding, finding.head
        lease.require_life()
        transaction = stage_restore(finding.handle, finding.pin, finding.table.restore_uuid)
        landed = self._kernel.lance.commit(finding.handle, transaction)
        return finding, landed.version

    def _remove_idle_forks(self, sidecar: Sidecar, findings: list[Finding]) -> None:
        """Forks this operation made and never committed to, unless another sidecar claims them."""
        idle = [finding.table for finding in findings if finding.is_idle_fork]
        if not idle:
            return
        claimed = {
            (table.location, table.ref) for other in self._others(sidecar) for table in other.tables
        }
        for table in idle:
            if (table.location, table.ref) not in claimed:
                where = DatasetRef(self._kernel.table_uri(table.location), table.ref)
                self._kernel.forks.remove(where)

    def _others(self, sidecar: Sidecar) -> Iterator[Sidecar]:
        own = sidecar_name(sidecar.operation_id)
        for name in self._kernel.sidecars.names():
            if name == own:
                continue
            try:
                other = self._kernel.sidecars.read(name)
            except UnreadableSidecar:
                continue
            if other is not None:
                yield other

    def _remove_abandoned_staging(self) -> None:
        """Remove a staged contract that no operation answers for."""
        if not staged_objects(self._kernel.store):
            return
        operation_id = self._kernel.ids.operation_id()
        with self._owned(MAIN, branch_scope(MAIN), operation_id) as lease:
            if lease is None:
                return
            self._kernel.fence_if_taken_over(self._kernel.manifest.main, lease)
            pending = (self._kernel.sidecars.read(name) for name in self._kernel.sidecars.names())
            if not any(
                found is not None and found.writer_kind == "SchemaApply" for found in pending
            ):
                discard_staged(self._kernel.store)

    # --- late effects -----------------------------------------------------------------------------

    def _undo_late_effects(self, branch: ManifestBranch, late: LateEffects) -> Settlement | None:
        """Restore the tables that commits of undone operations ran ahead on, as one operation."""
        operation_id = self._kernel.ids.operation_id()
        scope = branch_scope(branch.branch)
        with self._owned(branch.branch, scope, operation_id) as lease:
            if lease is None:
                return None
            try:
                current = self._kernel.manifest.refreshed(branch.branch)
            except NotFound:
                return None
            if current is not branch:
                return None
            self._kernel.fence_if_taken_over(branch, lease)
            tables = late.tables(branch)
            if not tables or self._has_pending(branch):
                return None
            sidecar = self._own_sidecar(operation_id, branch, lease, tables)
            self._kernel.sidecars.write(sidecar)
            return self._settle_owned(sidecar, branch, lease, "full", force=False)

    def _has_pending(self, branch: ManifestBranch) -> bool:
        """Whether an unsettled operation on the branch has a say in its tables."""
        pending = (self._kernel.sidecars.read(name) for name in self._kernel.sidecars.names())
        return any(found is not None and found.ref == branch.where.ref for found in pending)

    def _own_sidecar(
        self,
        operation_id: str,
        branch: ManifestBranch,
        lease: Lease,
        tables: tuple[SidecarTable, ...],
    ) -> Sidecar:
        """The record of a recovery that acts on its own account. It can only be rolled back."""
        head = branch.state.head_snapshot()
        commit = self._commit(self._kernel.ids.commit_id(), branch, operation_id)
        return Sidecar(
            operation_id=operation_id,
            writer_kind="Recovery",
            started_at=self._kernel.clock.wall_us(),
            actor_id=RECOVERY_ACTOR,
            branch=branch.branch,
            ref=branch.where.ref,
            lease=LeaseClaim(lease.scope, lease.owner_id, lease.epoch),
            authority=Authority(head.commit_id, head.manifest_version, commit.schema_hash),
            lineage=commit,
            rollback_commit_id=self._kernel.ids.commit_id(),
            tables=tables,
        )

    # --- ending -----------------------------------------------------------------------------------

    def _discard(self, name: str, operation_id: str) -> Settlement | None:
        """Its branch is gone, and with it everything the operation could have changed."""
        main = self._kernel.manifest.main
        try:
            with (
                self._kernel.gates.write([MAIN]),
                self._kernel.leases.hold(branch_scope(MAIN), operation_id) as lease,
            ):
                sidecar = self._kernel.sidecars.read(name)
                if sidecar is None:
                    return None
                hit(Failpoint.RECOVERY_ORPHAN_DISCARD_AUDIT_APPEND)
                self._kernel.fence_if_taken_over(main, lease)
                main.refresh()
                request = PublishRequest(
                    commit=self._commit(sidecar.rollback_commit_id, main, operation_id),
                    epoch=lease.epoch,
                    expected_head=main.state.head.commit_id,
                )
                commit_id = publish(main, request).commit_id
                return self._finish(sidecar, "OrphanedBranchDiscarded", commit_id, "discarded")
        except (*LOST, WriterBusy) as lost:
            return Settlement(operation_id, "deferred", lost.message)

    def _commit(self, commit_id: str, branch: ManifestBranch, operation_id: str) -> CommitRow:
        """A commit of recovery itself on top of a branch."""
        return CommitRow(
            commit_id=commit_id,
            branch=None if branch.where.ref is None else branch.branch,
            manifest_version=0,
            commit_seq=0,
            parent_commit_id=branch.state.head.commit_id,
            merged_parent_commit_id=None,
            actor_id=RECOVERY_ACTOR,
            kind="recovery",
            schema_hash=self._kernel.accepted_schema().schema_hash,
            created_at=self._kernel.clock.wall_us(),
            recovery_operation_id=operation_id,
        )

    def _finish(
        self,
        sidecar: Sidecar,
        recovery_kind: Literal["RolledForward", "RolledBack", "OrphanedBranchDiscarded"],
        commit_id: str | None,
        outcome: Literal["finished", "rolled_forward", "rolled_back", "discarded"],
        tables: tuple[TableOutcome, ...] = (),
    ) -> Settlement:
        """The audit row, then the sidecar: in this order, so that no recovery goes unrecorded."""
        hit(Failpoint.RECOVERY_RECORD_AUDIT)
        # A delayed commit of an operation that was undone is known by these, and undone as well. A
        # restore counts, too: it lands on top of whatever is there.
        undone = recovery_kind != "RolledForward"
        self._audit.record(
            RecoveryRow(
                operation_id=sidecar.operation_id,
                graph_commit_id=commit_id,
                recovery_kind=recovery_kind,
                recovery_for_actor=sidecar.actor_id,
                sidecar_writer_kind=sidecar.writer_kind,
                tables=tables,
                retired=tuple(_retired(table) for table in sidecar.tables) if undone else (),
                created_at=self._kernel.clock.wall_us(),
            )
        )
        self._kernel.sidecars.delete(sidecar.operation_id)
        return Settlement(sidecar.operation_id, outcome)


def _pin(finding: Finding, version: int) -> TablePin:
    assert finding.handle is not None
    rows = row_count(finding.handle, version)
    return TablePin(finding.table.identity, version, finding.table.ref, rows)


def _outcome(table: SidecarTable, from_version: int, to_version: int) -> TableOutcome:
    return TableOutcome(
        table_key=table.table_key,
        branch=table.ref or MAIN,
        from_version=from_version,
        to_version=to_version,
        uuids=tuple(tx.uuid for tx in table.transactions),
    )


def _retired(table: SidecarTable) -> RetiredTable:
    uuids = (*(tx.uuid for tx in table.transactions), table.restore_uuid)
    return RetiredTable(table.location, table.ref, uuids)


def _describe(findings: list[Finding]) -> str:
    return "; ".join(f"{f.table.table_key}: {f.kind.value}" for f in findings)
