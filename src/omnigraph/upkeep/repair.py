"""Publishing changes of external writers to tables (drift), if they are known or forced.

Only the published versions change, to existing ones, in one publish. No data is rewritten, so a
failed run has no effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from omnigraph.commit.executor import Executor
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.leases import Lease
from omnigraph.commit.plan import Intent, TableEffects
from omnigraph.commit.recovery.audit import RecoveryAudit
from omnigraph.commit.recovery.examining import RECOVER_ADVICE
from omnigraph.commit.schema.lock import require_no_schema_apply
from omnigraph.commit.writer import UPKEEP_ACTOR
from omnigraph.effects.clock import monotonic_seconds
from omnigraph.effects.requests import concurrently
from omnigraph.errors import InputError, InternalError
from omnigraph.model.receipts import CommitKind
from omnigraph.model.records import dataclass
from omnigraph.model.upkeep import Classification, RepairAction, RepairedTable, RepairReceipt
from omnigraph.schema.contract import AcceptedSchema
from omnigraph.storage.datasets import Handle
from omnigraph.storage.manifest import ManifestBranch, TableEntry
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.transactions import StagedTransaction
from omnigraph.storage.versions import PRESERVING, TableOperation, has_columns_of, operations_since
from omnigraph.upkeep.pending import require_nothing_pending


@dataclass(frozen=True, slots=True)
class TableDrift:
    """The distance between the newest version of a table and the published one, and its cause."""

    entry: TableEntry
    head: int
    handle: Handle | None = None
    """The newest version; None for a table that the branch shares."""
    operations: tuple[TableOperation, ...] = ()
    obstacle: str | None = None
    """Why the newest version must not be published, even with `force`."""

    @property
    def type_key(self) -> str:
        """The type of the table."""
        return self.entry.table_key

    @property
    def classification(self) -> Classification:
        """The kind of drift, from the operations of its versions."""
        if self.head == self.entry.version:
            return "no_drift"
        names = {operation.name for operation in self.operations}
        if not names or None in names:
            return "unverifiable"
        return "verified_maintenance" if names <= PRESERVING else "suspicious"

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the operations, for display."""
        return tuple(operation.name or "unreadable" for operation in self.operations)

    def action(self, *, confirm: bool, force: bool) -> RepairAction:
        """The action to take."""
        kind = self.classification
        if kind == "no_drift":
            return "no_op"
        if not confirm:
            return "preview"
        if self.obstacle is not None:
            return "refused"
        if kind == "verified_maintenance":
            return "healed"
        return "forced" if force else "refused"


@dataclass(frozen=True, slots=True)
class RepairPlan:
    """The drift of a branch. Planning changes nothing."""

    branch: str
    tables: tuple[TableDrift, ...]

    def __str__(self) -> str:
        return "\n".join(self._lines()) or f"{self.branch}: no table has drifted"

    def _lines(self) -> Iterator[str]:
        for table in self.tables:
            if table.classification != "no_drift":
                operations = ", ".join(table.names)
                yield f"{table.type_key}: {table.classification} ({operations})"


def plan_repair(kernel: Kernel, capture: Capture) -> RepairPlan:
    """Compare the newest version of each table of a branch with the published one."""
    entries = capture.snapshot.tables.values()
    work = [partial(_drift_of, kernel, capture, entry) for entry in entries]
    tables = list(concurrently(*work, threads=kernel.is_remote))
    if any(table.operations for table in tables):
        rows = RecoveryAudit(kernel.lance, kernel.root.uri).rows()
        retired = frozenset(uuid for row in rows for uuid in row.retired_uuids)
        tables = [_undone_marked(table, retired) for table in tables]
    return RepairPlan(capture.branch.branch, tuple(tables))


def _drift_of(kernel: Kernel, capture: Capture, entry: TableEntry) -> TableDrift:
    if entry.ref != capture.branch.where.ref:
        # A shared table is pinned to a version, so newer versions of its owner are no drift.
        return TableDrift(entry, entry.version)
    handle = kernel.lance.open(capture.reader.where(entry))
    obstacle = None
    if handle.version < entry.version:
        obstacle = "the published version is gone; restore the table from a copy of the graph"
    elif not has_columns_of(handle, entry.version):
        obstacle = "its columns are not those of the schema any more; restore them first"
    operations = operations_since(handle, entry.version)
    return TableDrift(entry, handle.version, handle, tuple(operations), obstacle)


def _undone_marked(table: TableDrift, retired: frozenset[str]) -> TableDrift:
    """Mark drift of operations that recovery has undone: it is undone, not published."""
    uuids = {operation.uuid for operation in table.operations}
    if not uuids or None in uuids or not uuids <= retired:
        return table
    return replace(table, obstacle=f"an operation that was undone came too late; {RECOVER_ADVICE}")


def repair(
    kernel: Kernel,
    accepted: AcceptedSchema,
    branch: str,
    *,
    confirm: bool = False,
    force: bool = False,
) -> RepairReceipt:
    """Publish the newest versions of drifted tables; without ``confirm``, only plan.

    Versions that are known to change no row are published; ``force`` also publishes others, on the
    caller's responsibility. Tables that must not be published are listed as refused, and do not
    block the others. Raises `RecoveryRequired` while any operation is unsettled.
    """
    if force and not confirm:
        raise InputError("`force` needs `confirm`", hint="give both, or neither")
    started = monotonic_seconds()
    require_nothing_pending(kernel, "repaired")
    manifest = kernel.manifest.refreshed(branch)
    require_no_schema_apply(kernel, "repair")
    commit: CommitRow | None = None
    if confirm:
        # Under the lease of the branch, the findings stay true until the publish.
        with kernel.own_branch(manifest, kernel.ids.ulid()) as lease:
            require_nothing_pending(kernel, "repaired")
            capture = _captured(kernel, accepted, branch)
            plan = plan_repair(kernel, capture)
            commit = _publish(kernel, capture, plan, lease, force=force)
    else:
        capture = _captured(kernel, accepted, branch)
        plan = plan_repair(kernel, capture)
    return RepairReceipt(
        branch,
        confirm,
        force,
        capture.branch.state.version,
        tuple(_row(table, branch, confirm=confirm, force=force) for table in plan.tables),
        None if commit is None else commit.commit_id,
        monotonic_seconds() - started,
    )


def _captured(kernel: Kernel, accepted: AcceptedSchema, branch: str) -> Capture:
    manifest: ManifestBranch = kernel.manifest.refreshed(branch)
    require_no_schema_apply(kernel, "repair")
    head = manifest.state.head_snapshot()
    return kernel.capture(manifest, kernel.accepted_at(head, accepted).schema_hash, head)


def _publish(
    kernel: Kernel, capture: Capture, plan: RepairPlan, lease: Lease, *, force: bool
) -> CommitRow | None:
    actions = {table.type_key: table.action(confirm=True, force=force) for table in plan.tables}
    adopted = [table for table in plan.tables if actions[table.type_key] in ("healed", "forced")]
    if not adopted:
        return None
    # The kind `maintenance` asserts that no content has changed.
    kind: CommitKind = "repair" if "forced" in actions.values() else "maintenance"
    work = [_Adopted(table) for table in adopted]
    commit = kernel.plan(
        capture,
        lease,
        Intent("Repair", kind, UPKEEP_ACTOR),
        tuple(each.effects for each in work),
        attempt_id=kernel.ids.ulid(),
    )
    return Executor(kernel, capture.branch, lease).run(commit, work)


class _Adopted:
    """The newest version of a table, to be published without a transaction."""

    def __init__(self, table: TableDrift) -> None:
        self.effects = TableEffects.of(table.entry, table.entry.ref, (), restore_uuid="")
        self.handle = self.landed = table.handle
        self.staged: tuple[StagedTransaction, ...] = ()

    def transaction(self, at: int, handle: Handle) -> StagedTransaction:
        """Never called."""
        raise InternalError("a repair commits nothing")


def _row(table: TableDrift, branch: str, *, confirm: bool, force: bool) -> RepairedTable:
    action = table.action(confirm=confirm, force=force)
    error = table.obstacle
    if action == "refused" and error is None:
        error = "it may hold other rows than before; `--force` (force=True) adopts them as "
        "they are"
    return RepairedTable(
        table.type_key,
        branch,
        table.entry.version,
        table.head,
        table.classification,
        action,
        table.names,
        error if action in ("refused", "preview") else None,
    )
