"""Compacting main and completing its indexes.

One write covers all tables that need it: small fragments are compacted, new rows are added to the
indexes, and missing indexes are built. Then the manifest of the graph is compacted, under the same
lease. No version is removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.plan import NO_ROWS, ChangeSet, Intent, TableChange
from omnigraph.commit.recovery.examining import drift_error
from omnigraph.commit.schema.lock import require_no_schema_apply
from omnigraph.commit.write_path import Prepared, WritePath
from omnigraph.commit.writer import UPKEEP_ACTOR, WriteAttempt
from omnigraph.effects.clock import monotonic_seconds
from omnigraph.effects.environment import positive_number
from omnigraph.effects.requests import concurrently
from omnigraph.model.records import dataclass
from omnigraph.model.upkeep import IndexedTable, IndexReceipt, OptimizedTable, OptimizeReceipt
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType, declared_indexes
from omnigraph.schema.contract import AcceptedSchema
from omnigraph.storage.datasets import fragment_count
from omnigraph.storage.indexes import missing_indexes, why_not_buildable
from omnigraph.storage.layout import MAIN, MANIFEST
from omnigraph.storage.manifest import TableEntry
from omnigraph.storage.publisher import compact_manifest, keep_manifest_versions
from omnigraph.storage.table_upkeep import EVERYTHING, ChangeIndexes, Extent, TableUpkeep, work_on
from omnigraph.storage.transactions import latest_version
from omnigraph.storage.upkeep_tasks import THIS_PROCESS, UpkeepWorkers
from omnigraph.upkeep.pending import require_nothing_pending


@dataclass(frozen=True, slots=True)
class TableOptimization:
    """The work on one table."""

    entry: TableEntry
    head: int
    """The newest version; if it is not the published one, the table is skipped."""
    fragments: int
    work: TableUpkeep

    @property
    def type_key(self) -> str:
        """The type of the table."""
        return self.entry.table_key

    @property
    def has_drifted(self) -> bool:
        """Whether an external writer changed the table (drift)."""
        return self.head != self.entry.version


@dataclass(frozen=True, slots=True)
class OptimizePlan:
    """All work that is due on main. Planning changes nothing."""

    tables: tuple[TableOptimization, ...]

    def __str__(self) -> str:
        return "\n".join(self._lines()) or "nothing is due"

    def _lines(self) -> Iterator[str]:
        for table in self.tables:
            if table.has_drifted:
                yield f"{table.type_key}: skipped, it needs `omnigraph repair`"
            yield from (f"{table.type_key}: {step}" for step in table.work.steps)

    @property
    def changes(self) -> ChangeSet:
        """The changes of the write."""
        return ChangeSet(
            {
                table.type_key: TableChange(table.type_key, "upkeep", NO_ROWS, table.work.steps)
                for table in self.tables
                if table.work.steps
            }
        )


def plan_optimize(
    kernel: Kernel,
    capture: Capture,
    catalog: Catalog,
    extent: Extent = EVERYTHING,
    workers: UpkeepWorkers = THIS_PROCESS,
) -> OptimizePlan:
    """Plan the work on main's tables, limited by ``extent``; ``workers`` will execute it."""
    work = [partial(_plan_table, capture, each, extent, workers) for each in catalog.types]
    return OptimizePlan(concurrently(*work, threads=kernel.is_remote))


def _plan_table(
    capture: Capture, type: NodeType | EdgeType, extent: Extent, workers: UpkeepWorkers
) -> TableOptimization:
    entry = capture.snapshot.table(type.table_key)
    handle = capture.reader.handle(type.table_key)
    head = latest_version(handle)
    work = TableUpkeep()
    if head == entry.version and entry.row_count:
        work = work_on(handle, declared_indexes(type), extent).by(workers)
    return TableOptimization(entry, head, fragment_count(handle), work)


def optimize(
    kernel: Kernel,
    accepted: AcceptedSchema,
    extent: Extent = EVERYTHING,
    progress: Callable[[int, int], None] | None = None,
    workers: UpkeepWorkers = THIS_PROCESS,
) -> OptimizeReceipt:
    """Compact the tables of main, complete their indexes and compact its manifest.

    ``progress`` is called with the number of finished tables and the total of those with work;
    ``workers`` rewrite fragments and build indexes. Raises, without any effect, `RecoveryRequired`
    while any operation is unsettled, and `Conflict` if main moved during preparation. Later
    failures are finished or undone by recovery.
    """
    started = monotonic_seconds()
    require_nothing_pending(kernel, "optimized")
    branch = kernel.manifest.refreshed(MAIN)
    require_no_schema_apply(kernel, "optimize")
    head = branch.state.head_snapshot()
    accepted = kernel.accepted_at(head, accepted)
    capture = kernel.capture(branch, accepted.schema_hash, head)
    plan = plan_optimize(kernel, capture, accepted.catalog, extent, workers)
    intent = Intent("Optimize", "maintenance", UPKEEP_ACTOR)
    attempt = WriteAttempt(kernel, capture, plan.changes, intent)
    attempt.stage(maintenance_concurrency(), progress)
    with attempt.owned_branch() as lease:
        require_nothing_pending(kernel, "optimized")
        require_no_schema_apply(kernel, "optimize")
        keep_manifest_versions(branch, kernel.ids.ulid())
        commit = None if plan.changes.is_empty else attempt.commit(lease)
        removed, added = compact_manifest(branch, kernel.ids.ulid())
    after = kernel.capture(branch, accepted.schema_hash)
    rows = [_result(table, after) for table in plan.tables]
    version = branch.state.version
    rows.append(OptimizedTable(MANIFEST, version, version, removed, added, bool(removed)))
    return OptimizeReceipt(
        tuple(rows), None if commit is None else commit.commit_id, monotonic_seconds() - started
    )


def _result(plan: TableOptimization, after: Capture) -> OptimizedTable:
    if plan.has_drifted:
        return OptimizedTable(
            plan.type_key, plan.entry.version, plan.head, skipped="drift_needs_repair"
        )
    if not plan.work.steps:
        version = plan.entry.version
        return OptimizedTable(plan.type_key, version, version, pending=plan.work.pending)
    version = after.snapshot.table(plan.type_key).version
    removed = plan.work.fragments_removed
    added = fragment_count(after.reader.handle(plan.type_key)) - (plan.fragments - removed)
    return OptimizedTable(
        plan.type_key, version, version, removed, added, committed=True, pending=plan.work.pending
    )


CONCURRENCY_VARIABLE = "OMNIGRAPH_MAINTENANCE_CONCURRENCY"
CONCURRENCY = 8


def maintenance_concurrency() -> int:
    """The configured concurrency."""
    return positive_number(CONCURRENCY_VARIABLE, CONCURRENCY)


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """The missing indexes of a branch. Planning changes nothing."""

    branch: str
    tables: tuple[IndexedTable, ...]

    def __str__(self) -> str:
        return "\n".join(self._lines()) or f"{self.branch}: no index is missing"

    def _lines(self) -> Iterator[str]:
        for table in self.tables:
            for spec in table.built:
                yield f"{table.type_key}: build {spec}"
            for index in table.pending:
                yield f"{table.type_key}: {index.property} has to wait: {index.reason}"

    @property
    def changes(self) -> ChangeSet:
        """The changes of the write."""
        return ChangeSet(
            {
                table.type_key: TableChange(
                    table.type_key, "upkeep", NO_ROWS, (ChangeIndexes(build=table.built),)
                )
                for table in self.tables
                if table.built
            }
        )


def plan_indices(kernel: Kernel, capture: Capture, catalog: Catalog) -> IndexPlan:
    """Plan the missing indexes of a branch; raises `UncoveredDrift` for a drifted table."""
    work = [partial(_plan_indexes, kernel, capture, each) for each in catalog.types]
    return IndexPlan(capture.branch.branch, concurrently(*work, threads=kernel.is_remote))


def _plan_indexes(kernel: Kernel, capture: Capture, type: NodeType | EdgeType) -> IndexedTable:
    entry = capture.snapshot.table(type.table_key)
    if entry.row_count == 0:
        return IndexedTable(type.table_key, (), (), committed=False)
    handle = capture.reader.handle(type.table_key)
    if entry.ref == capture.branch.where.ref:
        # Checked only for the branch's own tables: a shared table may have newer versions.
        head = latest_version(handle)
        if head != entry.version:
            raise drift_error(kernel, capture.branch.branch, entry, head)
    build, pending = [], []
    for spec in missing_indexes(handle, declared_indexes(type)):
        obstacle = why_not_buildable(handle, spec)
        if obstacle is None:
            build.append(spec)
        else:
            pending.append(obstacle)
    return IndexedTable(type.table_key, tuple(build), tuple(pending), committed=bool(build))


def ensure_indices(
    kernel: Kernel, path: WritePath, accepted: AcceptedSchema, branch: str
) -> IndexReceipt:
    """Build declared indexes that are missing at the head of a branch, as one commit.

    Raises, without any effect, `Conflict` if the branch moved, and `UncoveredDrift` if an external
    writer changed a table.
    """
    started = monotonic_seconds()

    def prepare(capture: Capture, catalog: Catalog) -> Prepared[IndexPlan]:
        plan = plan_indices(kernel, capture, catalog)
        intent = Intent("EnsureIndices", "maintenance", UPKEEP_ACTOR)
        return Prepared(plan.changes, plan, intent)

    written = path.write(
        branch, prepare, kind="maintenance", accepted=accepted, may_prepare_again=False
    )
    commit = written.commit
    return IndexReceipt(
        branch,
        written.result.tables,
        None if commit is None else commit.commit_id,
        monotonic_seconds() - started,
    )
