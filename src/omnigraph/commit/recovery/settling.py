"""Settles an interrupted operation: completes, publishes or undoes it.

Every step can be repeated by any process. The last one removes the sidecar: until then the next
recovery continues.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from omnigraph.commit.executor import Executor
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import Lease
from omnigraph.commit.plan import (
    FIRST_VERSION,
    CommitPlan,
    NewTable,
    PlannedCommit,
    PlannedTransaction,
    SchemaDelta,
    TableEffects,
)
from omnigraph.commit.recovery.audit import RecoveryAudit, RecoveryRow, RetiredTable, TableOutcome
from omnigraph.commit.recovery.examining import ExaminedTable, TableClass
from omnigraph.commit.schema.contract import discard_staged, promote_contract, staged_contract
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.errors import NotFound
from omnigraph.model.records import dataclass
from omnigraph.storage.datasets import Handle
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest import ManifestBranch, ManifestState
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.transactions import (
    DatasetRef,
    StagedTransaction,
    latest_version,
    stage_restore,
    transaction_uuid,
)

RECOVERY_ACTOR = "omnigraph:recovery"


@dataclass(frozen=True, slots=True)
class Case:
    """One sidecar under examination: its plan, the state of its tables, and the lease."""

    plan: CommitPlan
    branch: ManifestBranch
    state: ManifestState
    tables: list[ExaminedTable]
    lease: Lease


@dataclass(frozen=True, slots=True)
class Settlement:
    """How one sidecar was settled, or why it was not."""

    operation_id: str
    outcome: Literal[
        "finished",
        "rolled_forward",
        "rolled_back",
        "discarded",
        "live",
        "deferred",
        "blocked",
        "set_aside",
    ]
    reason: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether nothing remains to be done for the operation."""
        return self.outcome in ("finished", "rolled_forward", "rolled_back", "discarded")

    @property
    def needs_nothing_now(self) -> bool:
        """Whether a write may continue: it is settled, set aside, or its writer is alive."""
        return self.is_settled or self.outcome in ("live", "set_aside")


class Settling:
    """Completes, publishes or undoes interrupted operations; the caller owns their branch."""

    def __init__(self, kernel: Kernel, audit: RecoveryAudit) -> None:
        self._kernel = kernel
        self._audit = audit

    def schema(self, plan: CommitPlan) -> SchemaRecovery | None:
        """Contract and new tables of a schema change; None for any other operation."""
        if plan.schema is None or not plan.changes_contract:
            return None
        return SchemaRecovery(self._kernel, plan.schema)

    def roll_forward(self, case: Case) -> Settlement:
        """Publish an operation whose effects have all been committed."""
        plan, tables = case.plan, case.tables
        hit(Failpoint.RECOVERY_BEFORE_ROLL_FORWARD_PUBLISH)
        first, *others = (
            replace(each, lineage=_recovered(each.lineage, plan)) for each in plan.commits
        )
        executor = Executor(self._kernel, case.branch, case.lease)
        commit = executor.adopt(
            replace(plan, lineage=first.lineage, following=tuple(others)),
            [_TableRestore(t.effects, t.handle, t.handle) for t in tables],
        )
        schema = self.schema(plan)
        if schema is not None:
            schema.complete()
        outcomes = tuple(outcome_of(t.effects, t.effects.expected_version, t.head) for t in tables)
        return self.finish(plan, "RolledForward", commit.commit_id, "rolled_forward", outcomes)

    def roll_back(self, case: Case) -> Settlement:
        """Restore every table that moved, publish that, and remove forks and new tables."""
        plan, executor = case.plan, Executor(self._kernel, case.branch, case.lease)
        ahead = [
            t
            for t in case.tables
            if t.handle is not None and t.head > t.pin and not plan.is_new(t.effects)
        ]
        restores = [_TableRestore.restoring(table) for table in ahead]
        for restore in restores:
            if restore.landed is None:
                executor.commit_table(plan, restore)
            else:
                # Another recovery may have committed the restore and died before flushing it.
                executor.flush_last(restore)
        # Before the publish: after it, recovery only removes the sidecar.
        self._remove_idle_forks(plan, case.tables)
        schema = self.schema(plan)
        if schema is not None:
            schema.undo()
        hit(Failpoint.RECOVERY_POST_TABLE_RESTORE_PRE_PUBLISH)
        commit_id: str | None = None
        if restores:
            commit = self.commit(plan.rollback_commit_id, case.branch, plan.attempt_id)
            undoing = plan.compensation(commit, tuple(restore.effects for restore in restores))
            commit_id = executor.publish(undoing, restores).commit_id
            hit(Failpoint.RECOVERY_POST_ROLLBACK_PUBLISH_PRE_AUDIT)
        outcomes = tuple(
            replace(outcome_of(t.effects, t.head, t.pin), foreign_versions=t.foreign_versions)
            for t in ahead
        )
        return self.finish(plan, "RolledBack", commit_id, "rolled_back", outcomes)

    def _remove_idle_forks(self, plan: CommitPlan, tables: list[ExaminedTable]) -> None:
        """Remove forks of this operation without commits, unless another sidecar claims them.

        Forks of tables that are new to the branch are removed with their commits, since there is
        no published version to restore.
        """
        idle = [
            table.effects
            for table in tables
            if table.is_idle_fork or (table.handle is not None and plan.is_new(table.effects))
        ]
        if not idle:
            return
        claimed = {
            (table.location, table.ref)
            for other in self._kernel.sidecars.readable(without=plan.attempt_id)
            for table in other.tables
        }
        for effects in idle:
            if (effects.location, effects.ref) not in claimed:
                where = DatasetRef(self._kernel.table_uri(effects.location), effects.ref)
                self._kernel.forks.remove(where)

    def commit(self, commit_id: str, branch: ManifestBranch, attempt_id: str) -> CommitRow:
        """The row of a commit that recovery makes on the head of a branch."""
        head = branch.state.commits[branch.state.head.commit_id]
        commit = self._kernel.next_commit(
            branch,
            head.commit_id,
            "recovery",
            head.schema_hash,
            actor_id=RECOVERY_ACTOR,
            commit_id=commit_id,
        )
        return replace(commit, recovery_operation_id=attempt_id)

    def finish(
        self,
        plan: CommitPlan,
        recovery_kind: Literal["RolledForward", "RolledBack", "OrphanedBranchDiscarded"],
        commit_id: str | None,
        outcome: Literal["finished", "rolled_forward", "rolled_back", "discarded"],
        tables: tuple[TableOutcome, ...] = (),
    ) -> Settlement:
        """Write the audit row, then remove the sidecar: every recovery is recorded."""
        hit(Failpoint.RECOVERY_RECORD_AUDIT)
        # Late commits of an undone operation are recognized by these uuids, and undone as well.
        # Including the restore, which can land on any version.
        undone = recovery_kind != "RolledForward"
        now = self._kernel.clock.wall_us()
        self._audit.record(
            *(
                RecoveryRow(
                    operation_id=each.attempt_id,
                    # One commit undid the whole group.
                    graph_commit_id=commit_id if undone or not at else each.lineage.commit_id,
                    recovery_kind=recovery_kind,
                    recovery_for_actor=each.lineage.actor_id if at else plan.actor_id,
                    sidecar_writer_kind=plan.writer_kind,
                    tables=_outcomes_for(each, tables) if plan.following else tables,
                    # Transactions of a group are retired together, in the first row.
                    retired=tuple(map(_retired, plan.tables)) if undone and not at else (),
                    created_at=now,
                )
                for at, each in enumerate(plan.commits)
            )
        )
        self._kernel.sidecars.delete(plan.attempt_id)
        return Settlement(plan.attempt_id, outcome)


@dataclass(slots=True)
class _TableRestore:
    """The execution for an examined table: a restore, unless it is at its pin."""

    effects: TableEffects
    handle: Handle | None
    landed: Handle | None
    staged: tuple[StagedTransaction, ...] = ()

    @classmethod
    def restoring(cls, table: ExaminedTable) -> _TableRestore:
        """Restore the pinned version by one transaction, unless that has landed already."""
        is_done = table.kind is TableClass.COMPENSATION_PENDING
        restore = PlannedTransaction(table.effects.restore_uuid, table.head)
        effects = replace(
            table.effects,
            expected_version=table.pin,
            transactions=() if is_done else (restore,),
            first_touch=None,
        )
        return cls(effects, table.handle, table.handle if is_done else None)

    def transaction(self, at: int, handle: Handle) -> StagedTransaction:
        """The restore transaction."""
        return stage_restore(
            handle, self.effects.expected_version, self.effects.transactions[at].uuid
        )


def outcome_of(table: TableEffects, from_version: int, to_version: int) -> TableOutcome:
    """The audit entry of a table that recovery moved between two versions."""
    return TableOutcome(
        table_key=table.table_key,
        branch=table.ref or MAIN,
        from_version=from_version,
        to_version=to_version,
        uuids=tuple(tx.uuid for tx in table.transactions),
    )


def _retired(table: TableEffects) -> RetiredTable:
    uuids = (*(tx.uuid for tx in table.transactions), table.restore_uuid)
    return RetiredTable(table.location, table.ref, uuids)


def _recovered(commit: CommitRow, plan: CommitPlan) -> CommitRow:
    return replace(commit, recovered_by=RECOVERY_ACTOR, recovery_operation_id=plan.attempt_id)


def _outcomes_for(
    commit: PlannedCommit, tables: tuple[TableOutcome, ...]
) -> tuple[TableOutcome, ...]:
    """The audit entries of the tables that one commit of a group changes."""
    return tuple(each for each in tables if commit.uuids.intersection(each.uuids))


TableState = Literal["absent", "made", "foreign"]


class SchemaRecovery:
    """The new tables and the staged contract of an interrupted schema change."""

    def __init__(self, kernel: Kernel, delta: SchemaDelta) -> None:
        self._kernel = kernel
        self._delta = delta

    @property
    def foreign(self) -> list[str]:
        """New types with a table of another writer at their location."""
        return [t.table_key for t in self._delta.registrations if self._state(t) == "foreign"]

    def is_ready(self) -> bool:
        """Whether only the publish and the promotion are missing."""
        staged = staged_contract(self._kernel.store)
        return (
            staged is not None
            and staged.schema_hash == self._delta.target_hash
            and all(self._state(table) == "made" for table in self._delta.registrations)
        )

    def complete(self) -> None:
        """Promote the new contract to the accepted one, after the publish."""
        promote_contract(self._kernel.store, self._delta.target_hash)

    def undo(self) -> None:
        """Remove the new tables and the staged contract.

        Only tables created by the planned uuid: other tables at these locations stay.
        """
        for table in self._delta.registrations:
            state = self._state(table)
            if state == "made" or (state == "absent" and self._is_half_made(table)):
                self._kernel.store.delete_prefix(table.location)
        discard_staged(self._kernel.store)

    def _state(self, table: NewTable) -> TableState:
        where = DatasetRef(self._kernel.table_uri(table.location))
        try:
            handle = self._kernel.lance.open(where)
        except NotFound:
            return "absent"
        is_first = latest_version(handle) == FIRST_VERSION
        is_own = is_first and transaction_uuid(handle, FIRST_VERSION) == table.uuid
        return "made" if is_own else "foreign"

    def _is_half_made(self, table: NewTable) -> bool:
        """Whether a table consists only of the transaction that would have created it.

        Lance writes `_transactions/0-<uuid>.txn`, then the version. A new table has no rows.
        """
        names = self._kernel.store.list(table.location)
        own = f"{table.location}/_transactions/0-{table.uuid}.txn"
        parts = (own, f"{table.location}/_versions/")
        return any(name.startswith(own) for name in names) and all(
            name.startswith(parts) for name in names
        )
