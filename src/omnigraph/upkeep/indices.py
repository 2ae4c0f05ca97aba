"""Building the indexes that are declared and missing.

All missing indexes of a table are one Lance transaction, and all tables become visible by one
commit of kind `maintenance`. Without anything to build nothing is written, not even a fork.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from omnigraph.commit.change_set import NO_ROWS, ChangeSet, TableChange
from omnigraph.commit.drift import uncovered_drift
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.write_path import Prepared, WritePath
from omnigraph.commit.writer import UPKEEP_ACTOR, Intent
from omnigraph.model.upkeep import IndexedTable, IndexReceipt, IndexSpec, PendingIndex
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.schema.contract import AcceptedSchema
from omnigraph.schema.index_intent import declared_indexes
from omnigraph.storage.datasets import latest_version
from omnigraph.storage.indexes import missing_indexes, why_not_buildable
from omnigraph.storage.table_upkeep import ChangeIndexes


@dataclass(frozen=True, slots=True)
class TableIndexPlan:
    """What is to be built on one table, and what cannot be."""

    type_key: str
    build: tuple[IndexSpec, ...] = ()
    pending: tuple[PendingIndex, ...] = ()


@dataclass(frozen=True, slots=True)
class IndexPlan:
    """Everything that is missing on a branch. Making one changes nothing."""

    branch: str
    tables: tuple[TableIndexPlan, ...]

    def __str__(self) -> str:
        return "\n".join(self._lines()) or f"{self.branch}: no index is missing"

    def _lines(self) -> Iterator[str]:
        for table in self.tables:
            for spec in table.build:
                yield f"{table.type_key}: build {spec}"
            for index in table.pending:
                yield f"{table.type_key}: {index.property} has to wait: {index.reason}"

    @property
    def changes(self) -> ChangeSet:
        """The write that carries it out."""
        return ChangeSet(
            {
                table.type_key: TableChange(
                    table.type_key, "upkeep", NO_ROWS, (ChangeIndexes(build=table.build),)
                )
                for table in self.tables
                if table.build
            }
        )


def types_in_order(catalog: Catalog) -> list[NodeType | EdgeType]:
    """Every type that has a table: nodes first, each kind by name."""
    return [
        *(catalog.nodes[name] for name in sorted(catalog.nodes)),
        *(catalog.edges[name] for name in sorted(catalog.edges)),
    ]


def plan_indices(kernel: Kernel, capture: Capture, catalog: Catalog) -> IndexPlan:
    """What the head of a branch is missing; raises `UncoveredDrift` for a table changed outside."""
    types = types_in_order(catalog)
    with kernel.at_once() as side:
        plans = [side.start(partial(_plan_table, kernel, capture, each)) for each in types]
    return IndexPlan(capture.branch.branch, tuple(plan() for plan in plans))


def _plan_table(kernel: Kernel, capture: Capture, type: NodeType | EdgeType) -> TableIndexPlan:
    entry = capture.snapshot.table(type.table_key)
    if entry.row_count == 0:
        return TableIndexPlan(type.table_key)
    handle = capture.reader.handle(type.table_key)
    if entry.ref == capture.branch.where.ref:
        # A table that is still shared stands where the branch it comes from has it.
        head = latest_version(handle)
        if head != entry.version:
            raise uncovered_drift(kernel, capture.branch.branch, entry, head)
    build, pending = [], []
    for spec in missing_indexes(handle, declared_indexes(type)):
        obstacle = why_not_buildable(handle, spec)
        if obstacle is None:
            build.append(spec)
        else:
            pending.append(obstacle)
    return TableIndexPlan(type.table_key, tuple(build), tuple(pending))


def ensure_indices(
    kernel: Kernel, path: WritePath, accepted: AcceptedSchema, branch: str
) -> IndexReceipt:
    """Build what is declared and missing at the head of a branch, as one commit.

    Raises `Conflict` when others wrote to the branch meanwhile, and `UncoveredDrift` when a table
    was changed behind the graph's back; neither leaves anything behind.
    """
    started = kernel.clock.monotonic_us()

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
        tuple(
            IndexedTable(table.type_key, table.build, table.pending, committed=bool(table.build))
            for table in written.result.tables
        ),
        None if commit is None else commit.commit_id,
        (kernel.clock.monotonic_us() - started) / 1_000_000,
    )
