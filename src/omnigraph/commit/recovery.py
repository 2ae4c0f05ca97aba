"""Recovery: finish or undo what an interrupted write left behind.

Ownership is proved by transaction uuids and fixed commit ids. A sidecar is settled as a whole,
every step can be repeated by anyone at any time, and what cannot be proved stays and is reported.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

from omnigraph.commit.audit import RecoveryAudit, RecoveryRow, TableOutcome
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import Lease, branch_scope
from omnigraph.commit.sidecar import Sidecar, SidecarTable, UnreadableSidecar
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.errors import Conflict, NotFound, RecoveryRequired, StorageError
from omnigraph.storage.datasets import (
    DatasetRef,
    Handle,
    latest_version,
    row_count,
    transaction_uuid,
)
from omnigraph.storage.layout import MAIN, sidecar_name
from omnigraph.storage.manifest import ManifestBranch
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.publisher import PublishRequest, TablePin, publish
from omnigraph.storage.snapshot import ManifestState
from omnigraph.storage.tables import stage_restore

RECOVERY_ACTOR = "omnigraph:recovery"

Mode = Literal["full", "forward"]
"""`forward` may finish, roll forward and discard; it never restores a table or deletes a ref."""


class TableClass(Enum):
    """What happened to one table of an interrupted operation."""

    INVARIANT_VIOLATION = "its head is below its published version"
    NO_MOVEMENT = "nothing was committed"
    ROLLED_PAST_EXPECTED = "everything planned was committed"
    INCOMPLETE = "only part of the plan was committed"
    COMPENSATION_PENDING = "it was restored, but that is not published yet"
    FOREIGN_EFFECT = "somebody else committed to it"


@dataclass(frozen=True, slots=True)
class Finding:
    """A table of a sidecar as it stands now."""

    table: SidecarTable
    kind: TableClass
    pin: int
    head: int
    handle: Handle | None
    """None when the ref of a first touch was never made."""
    foreign_versions: tuple[int, ...] = ()


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
        return [
            settlement
            for name in self._kernel.sidecars.names()
            if (settlement := self._settle(name, mode, force)) is not None
        ]

    def barrier(self, branch: str) -> None:
        """Before a write to ``branch``: settle forward, and refuse while its own is unsettled."""
        for name in self._kernel.sidecars.names():
            sidecar = self._kernel.sidecars.read(name)
            if sidecar is None or sidecar.branch != branch:
                continue
            settlement = self._settle(name, "forward", force=False)
            if settlement is None or settlement.is_settled or settlement.outcome == "live":
                continue
            raise RecoveryRequired(
                settlement.operation_id,
                f"operation {settlement.operation_id} on {branch} is unfinished: "
                f"{settlement.reason}",
                "reopen the graph read-write, or run `omnigraph recover`",
            )

    # --- one sidecar ------------------------------------------------------------------------------

    def _settle(self, name: str, mode: Mode, force: bool) -> Settlement | None:
        sidecar = self._kernel.sidecars.read(name)
        if sidecar is None:
            return None
        with self._kernel.gates.write([sidecar.branch]):
            lease = self._kernel.leases.try_hold(sidecar.lease.scope, sidecar.operation_id)
            if lease is None:
                return Settlement(sidecar.operation_id, "live", "its writer is still running")
            try:
                # Its writer may have finished while we waited for the gates.
                current = self._kernel.sidecars.read(name)
                return None if current is None else self._settle_owned(current, lease, mode, force)
            finally:
                lease.release()

    def _settle_owned(self, sidecar: Sidecar, lease: Lease, mode: Mode, force: bool) -> Settlement:
        branch = self._branch_of(sidecar)
        if branch is None:
            return self._discard(sidecar)
        self._kernel.fence_if_taken_over(branch, lease)
        state = branch.refresh()
        landed = state.commits.get(sidecar.lineage.commit_id)
        if landed is not None:
            return self._finish(sidecar, "RolledForward", landed.commit_id, "finished")
        rolled_back = state.commits.get(sidecar.rollback_commit_id)
        if rolled_back is not None:
            return self._finish(sidecar, "RolledBack", rolled_back.commit_id, "finished")
        findings = [self._classify(table, state) for table in sidecar.tables]
        case = _Case(sidecar, branch, state, findings, lease)
        return self._decide(case, mode, force)

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
        try:
            handle = self._kernel.lance.open(where)
        except NotFound:
            if table.first_touch is None:
                raise
            return Finding(table, TableClass.NO_MOVEMENT, pin, pin, None)
        head = latest_version(handle)
        planned = [tx.uuid for tx in table.transactions]
        chain = [
            transaction_uuid(handle, version)
            for version in range(table.expected_version + 1, head + 1)
        ]
        kind = _class_of(table, pin, head, planned, chain)
        foreign: tuple[int, ...] = ()
        if kind is TableClass.FOREIGN_EFFECT:
            own = {*planned, table.restore_uuid}
            foreign = tuple(
                table.expected_version + 1 + at for at, uuid in enumerate(chain) if uuid not in own
            )
        return Finding(table, kind, pin, head, handle, foreign)

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
        has_refs = any(f.table.first_touch is not None and f.handle is not None for f in findings)
        if kinds <= {TableClass.NO_MOVEMENT} and not has_refs:
            return self._finish(sidecar, "RolledBack", None, "rolled_back")
        authority_holds = (
            case.state.head.commit_id == sidecar.authority.head_commit_id
            and self._kernel.accepted_schema().schema_hash == sidecar.authority.schema_hash
        )
        if kinds == {TableClass.ROLLED_PAST_EXPECTED} and authority_holds:
            return self._roll_forward(case)
        if mode == "forward":
            return Settlement(sidecar.operation_id, "deferred", _describe(findings))
        return self._roll_back(case)

    def _roll_forward(self, case: _Case) -> Settlement:
        sidecar, findings = case.sidecar, case.findings
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
        try:
            commit = publish(case.branch, request)
        except Conflict as lost:
            return Settlement(sidecar.operation_id, "deferred", lost.message)
        outcomes = tuple(_outcome(f, f.table.expected_version, f.head) for f in findings)
        return self._finish(sidecar, "RolledForward", commit.commit_id, "rolled_forward", outcomes)

    def _roll_back(self, case: _Case) -> Settlement:
        sidecar, state, findings = case.sidecar, case.state, case.findings
        ahead = [f for f in findings if f.handle is not None and f.head > f.pin]
        restored = [self._restore(finding, case.lease) for finding in ahead]
        hit(Failpoint.RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH)
        commit_id: str | None = None
        if restored:
            request = PublishRequest(
                commit=CommitRow(
                    commit_id=sidecar.rollback_commit_id,
                    branch=sidecar.lineage.branch,
                    manifest_version=0,
                    commit_seq=0,
                    parent_commit_id=state.head.commit_id,
                    merged_parent_commit_id=None,
                    actor_id=RECOVERY_ACTOR,
                    kind="recovery",
                    schema_hash=self._kernel.accepted_schema().schema_hash,
                    created_at=self._kernel.clock.wall_us(),
                    recovery_operation_id=sidecar.operation_id,
                ),
                epoch=case.lease.epoch,
                expected_head=state.head.commit_id,
                pins=tuple(_pin(f, version) for f, version in restored),
                expected_table_versions={f.table.identity: f.pin for f, _ in restored},
            )
            try:
                commit_id = publish(case.branch, request).commit_id
            except Conflict as lost:
                return Settlement(sidecar.operation_id, "deferred", lost.message)
            hit(Failpoint.RECOVERY_POST_ROLLBACK_PUBLISH_PRE_AUDIT)
        self._remove_untouched_refs(sidecar, findings)
        outcomes = tuple(_outcome(f, f.head, f.pin) for f, _ in restored)
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

    def _remove_untouched_refs(self, sidecar: Sidecar, findings: list[Finding]) -> None:
        """Refs this operation made and never committed to, unless another sidecar claims them."""
        claimed = {
            (table.location, table.ref) for other in self._others(sidecar) for table in other.tables
        }
        for finding in findings:
            table = finding.table
            untouched = finding.handle is not None and finding.head == table.expected_version
            if table.first_touch is None or not untouched:
                continue
            if (table.location, table.ref) not in claimed:
                where = DatasetRef(self._kernel.table_uri(table.location), table.ref)
                self._kernel.lance.delete_ref(where)

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

    # --- ending -----------------------------------------------------------------------------------

    def _discard(self, sidecar: Sidecar) -> Settlement:
        """Its branch is gone, and with it everything the operation could have changed."""
        hit(Failpoint.RECOVERY_ORPHAN_DISCARD_AUDIT_APPEND)
        main = self._kernel.manifest.main
        with self._kernel.leases.hold(branch_scope(MAIN), sidecar.operation_id) as lease:
            state = main.refresh()
            request = PublishRequest(
                commit=CommitRow(
                    commit_id=sidecar.rollback_commit_id,
                    branch=None,
                    manifest_version=0,
                    commit_seq=0,
                    parent_commit_id=state.head.commit_id,
                    merged_parent_commit_id=None,
                    actor_id=RECOVERY_ACTOR,
                    kind="recovery",
                    schema_hash=self._kernel.accepted_schema().schema_hash,
                    created_at=self._kernel.clock.wall_us(),
                    recovery_operation_id=sidecar.operation_id,
                ),
                epoch=lease.epoch,
                expected_head=state.head.commit_id,
            )
            commit = publish(main, request)
        return self._finish(sidecar, "OrphanedBranchDiscarded", commit.commit_id, "discarded")

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
        retired = sidecar.planned_uuids if recovery_kind != "RolledForward" else frozenset()
        self._audit.record(
            RecoveryRow(
                operation_id=sidecar.operation_id,
                graph_commit_id=commit_id,
                recovery_kind=recovery_kind,
                recovery_for_actor=sidecar.actor_id,
                sidecar_writer_kind=sidecar.writer_kind,
                tables=tables,
                retired_uuids=tuple(sorted(retired)),
                created_at=self._kernel.clock.wall_us(),
            )
        )
        self._kernel.sidecars.delete(sidecar.operation_id)
        return Settlement(sidecar.operation_id, outcome)


def _class_of(
    table: SidecarTable, pin: int, head: int, planned: list[str], chain: list[str | None]
) -> TableClass:
    """The class of a table from where it stands and which transactions brought it there."""
    if head < pin:
        return TableClass.INVARIANT_VIOLATION
    if head == pin and not set(planned) & set(chain):
        return TableClass.NO_MOVEMENT
    if pin != table.expected_version:
        return TableClass.FOREIGN_EFFECT
    if chain == planned:
        return TableClass.ROLLED_PAST_EXPECTED
    if chain and chain[-1] == table.restore_uuid:
        return TableClass.COMPENSATION_PENDING
    if set(chain) <= {*planned, table.restore_uuid}:
        return TableClass.INCOMPLETE
    return TableClass.FOREIGN_EFFECT


def _pin(finding: Finding, version: int) -> TablePin:
    assert finding.handle is not None
    rows = row_count(finding.handle, version)
    return TablePin(finding.table.identity, version, finding.table.ref, rows)


def _outcome(finding: Finding, from_version: int, to_version: int) -> TableOutcome:
    table = finding.table
    return TableOutcome(
        table_key=table.table_key,
        branch=table.ref or MAIN,
        from_version=from_version,
        to_version=to_version,
        uuids=tuple(tx.uuid for tx in table.transactions),
        foreign_versions=finding.foreign_versions,
    )


def _describe(findings: list[Finding]) -> str:
    return "; ".join(f"{f.table.table_key}: {f.kind.value}" for f in findings)
