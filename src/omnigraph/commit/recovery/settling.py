"""The ends an interrupted operation can come to: finished, published after all, or undone.

Every step can be repeated by anyone at any time, and the last one removes the sidecar: until then,
whoever comes next finds what is left to do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import Lease
from omnigraph.commit.recovery.audit import RecoveryAudit, RecoveryRow, RetiredTable, TableOutcome
from omnigraph.commit.recovery.examining import Finding, TableClass
from omnigraph.commit.schema.contract import discard_staged, promote_contract, staged_contract
from omnigraph.commit.sidecar import NewTable, SchemaDelta, Sidecar, SidecarTable
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.errors import NotFound
from omnigraph.storage.datasets import DatasetRef, transaction_uuid
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest import ManifestBranch
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.publisher import PublishRequest, Registration, TablePin, publish
from omnigraph.storage.snapshot import ManifestState
from omnigraph.storage.tables import stage_restore

RECOVERY_ACTOR = "omnigraph:recovery"


@dataclass(frozen=True, slots=True)
class Case:
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


class Settling:
    """Brings operations to their end, for whoever owns what they are about."""

    def __init__(self, kernel: Kernel, audit: RecoveryAudit) -> None:
        self._kernel = kernel
        self._audit = audit

    def schema(self, sidecar: Sidecar) -> SchemaRecovery | None:
        """What only a change of schema has left; None for any other operation."""
        return None if sidecar.schema is None else SchemaRecovery(self._kernel, sidecar.schema)

    def roll_forward(self, case: Case) -> Settlement:
        """Publish what the operation would have published; all of it has been committed."""
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
        schema = self.schema(sidecar)
        if schema is not None:
            schema.complete()
        outcomes = tuple(outcome_of(f.table, f.table.expected_version, f.head) for f in findings)
        return self.finish(sidecar, "RolledForward", commit.commit_id, "rolled_forward", outcomes)

    def roll_back(self, case: Case) -> Settlement:
        """Restore every table that moved, publish that, and remove what else was made."""
        sidecar, state, findings = case.sidecar, case.state, case.findings
        ahead = [f for f in findings if f.handle is not None and f.head > f.pin]
        restored = [self._restore(finding, case.lease) for finding in ahead]
        # Before the publish: once that is visible, recovery only finishes and looks no further.
        self._remove_idle_forks(sidecar, findings)
        schema = self.schema(sidecar)
        if schema is not None:
            schema.undo()
        hit(Failpoint.RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH)
        commit_id: str | None = None
        if restored:
            request = PublishRequest(
                commit=self.commit(sidecar.rollback_commit_id, case.branch, sidecar.operation_id),
                epoch=case.lease.epoch,
                expected_head=state.head.commit_id,
                pins=tuple(_pin(f, version) for f, version in restored),
                expected_table_versions={f.table.identity: f.pin for f, _ in restored},
            )
            commit_id = publish(case.branch, request).commit_id
            hit(Failpoint.RECOVERY_POST_ROLLBACK_PUBLISH_PRE_AUDIT)
        outcomes = tuple(
            replace(outcome_of(f.table, f.head, f.pin), foreign_versions=f.foreign_versions)
            for f, _ in restored
        )
        return self.finish(sidecar, "RolledBack", commit_id, "rolled_back", outcomes)

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
            (table.location, table.ref)
            for other in self._kernel.sidecars.readable(without=sidecar.operation_id)
            for table in other.tables
        }
        for table in idle:
            if (table.location, table.ref) not in claimed:
                where = DatasetRef(self._kernel.table_uri(table.location), table.ref)
                self._kernel.forks.remove(where)

    def commit(self, commit_id: str, branch: ManifestBranch, operation_id: str) -> CommitRow:
        """A commit of recovery itself on top of a branch."""
        commit = self._kernel.next_commit(
            branch,
            branch.state.head.commit_id,
            "recovery",
            self._kernel.accepted_schema().schema_hash,
            RECOVERY_ACTOR,
            commit_id=commit_id,
        )
        return replace(commit, recovery_operation_id=operation_id)

    def finish(
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
    return TablePin.at(finding.table.identity, finding.table.ref, finding.handle, version)


def outcome_of(table: SidecarTable, from_version: int, to_version: int) -> TableOutcome:
    """What the audit says of a table that went from one version to another."""
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


FIRST_VERSION = 1
"""The version of a freshly created dataset."""

TableState = Literal["absent", "made", "foreign"]


class SchemaRecovery:
    """What an interrupted change of schema left beside the tables that were there before."""

    def __init__(self, kernel: Kernel, delta: SchemaDelta) -> None:
        self._kernel = kernel
        self._delta = delta

    @property
    def foreign(self) -> list[str]:
        """New types at whose place somebody else has made a table."""
        return [t.table_key for t in self._delta.registrations if self._state(t) == "foreign"]

    def is_ready(self) -> bool:
        """Whether nothing but the publish and the promotion is missing."""
        staged = staged_contract(self._kernel.store)
        return (
            staged is not None
            and staged.schema_hash == self._delta.target_hash
            and all(self._state(table) == "made" for table in self._delta.registrations)
        )

    def complete(self) -> None:
        """After the publish: the new contract becomes the accepted one."""
        promote_contract(self._kernel.store, self._delta.target_hash)

    def undo(self) -> None:
        """Remove the tables that were made for it, and the staged contract."""
        for table in self._delta.registrations:
            if self._state(table) != "foreign":
                self._kernel.store.delete_prefix(table.location)
        discard_staged(self._kernel.store)

    def _state(self, table: NewTable) -> TableState:
        where = DatasetRef(self._kernel.table_uri(table.location))
        try:
            handle = self._kernel.lance.open(where)
        except NotFound:
            return "absent"
        return "made" if transaction_uuid(handle, FIRST_VERSION) == table.uuid else "foreign"


def new_pins(delta: SchemaDelta) -> tuple[TablePin, ...]:
    """The first versions of the tables it creates."""
    return tuple(TablePin(new.identity, FIRST_VERSION, None, 0) for new in delta.registrations)


def registrations(delta: SchemaDelta) -> tuple[Registration, ...]:
    """The tables it creates, and those that get another alias."""
    made = (Registration(new.identity, new.table_key, new.location) for new in delta.registrations)
    return (*made, *delta.renames)
