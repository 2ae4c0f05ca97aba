"""Removing old versions of tables, and leftovers of deleted branches and interrupted writes.

Invariant: nothing is removed before all data in use is known. Under the leases of the graph and of
every branch, all branches are resolved and all tables examined; if that fails, nothing is removed.
Afterwards tables are independent: a failure is reported for its table, and the next run continues
there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import GRAPH_SCOPE, Lease
from omnigraph.commit.recovery.examining import drift_error
from omnigraph.commit.schema.contract import accepted_tables
from omnigraph.commit.schema.lock import require_no_schema_apply
from omnigraph.effects.clock import monotonic_seconds
from omnigraph.errors import Busy, DamagedFile, NotFound, OmnigraphError, StorageError
from omnigraph.model.ids import SCHEMA_APPLY_LOCK, TableKey
from omnigraph.model.records import dataclass
from omnigraph.model.upkeep import CleanedTable, CleanupPolicy, CleanupReceipt
from omnigraph.storage.fragments import fragments_of
from omnigraph.storage.layout import ADJACENCY, LOAD_SCRATCH, MAIN, MANIFEST, PAST_SCHEMAS
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.manifest_rows import TableIdentity, TableRow
from omnigraph.storage.migrations import remove_retired, require_folded, retired_datasets
from omnigraph.storage.publisher import VERSIONS_KEPT_MIN
from omnigraph.storage.reader import SnapshotReader
from omnigraph.storage.saved_adjacency import AdjacencyFiles, saved_locations
from omnigraph.storage.transactions import DatasetRef, latest_version
from omnigraph.storage.versions import (
    StoredVersion,
    holds_unlisted_files,
    live_states,
    reclaim,
    reclaimable,
    stored_versions,
    version_count,
)
from omnigraph.upkeep.optimize import maintenance_concurrency
from omnigraph.upkeep.pending import require_nothing_pending
from omnigraph.upkeep.retention import (
    Retention,
    abandoned_scratch,
    remove_schemas,
    unneeded_schemas,
)

STREAM_WAIT_MS = 30_000
"""How long to wait for exports of this process."""


@dataclass(frozen=True, slots=True)
class RefPlan:
    """Old versions of a table on one ref."""

    where: DatasetRef
    remove: tuple[int, ...]
    keep: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class TableCleanup:
    """The versions and forks to remove of one dataset."""

    type_key: str
    identity: TableIdentity | None = None
    """None for the manifest."""
    refs: tuple[RefPlan, ...] = ()
    orphans: tuple[DatasetRef, ...] = ()
    """Forks that no branch uses, in an order in which they can be removed."""
    error: str | None = None
    """Why it could not be examined."""


@dataclass(frozen=True, slots=True)
class CleanupPlan:
    """Everything to remove. Planning changes nothing."""

    tables: tuple[TableCleanup, ...]
    retired: tuple[str, ...]
    schemas: tuple[str, ...] = ()
    """Objects of replaced schemas that no remaining commit needs."""
    scratch: tuple[str, ...] = ()
    """Folders of bulk loads that never ended."""
    adjacency: tuple[str, ...] = ()
    """Objects of saved adjacency that matches no table of main."""

    def __str__(self) -> str:
        return "\n".join(self._lines()) or "nothing is old"

    def _lines(self) -> Iterator[str]:
        for table in self.tables:
            if table.error is not None:
                yield f"{table.type_key}: left alone: {table.error}"
            for ref in table.refs:
                if ref.remove:
                    yield f"{table.type_key}: remove versions {', '.join(map(str, ref.remove))}"
            for orphan in table.orphans:
                yield f"{table.type_key}: remove ref {orphan.ref}"
        yield from (
            f"remove {name}"
            for name in (*self.retired, *self.schemas, *self.scratch, *self.adjacency)
        )


def cleanup(
    kernel: Kernel,
    policy: CleanupPolicy,
    *,
    confirm: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> CleanupReceipt:
    """Remove versions that are old by ``policy`` and not in use; without ``confirm``, only plan.

    ``progress`` is called with the number of finished tables and the total. Raises, before anything
    is removed, `RecoveryRequired` while any operation is unsettled, `UncoveredDrift` for a table
    that an external writer changed, and `StorageError` for a branch that cannot be resolved.
    """
    started = monotonic_seconds()
    require_nothing_pending(kernel, "cleaned up")
    _require_no_schema_apply(kernel)
    if confirm:
        if not kernel.gates.wait_for_streams(STREAM_WAIT_MS):
            raise Busy(
                "an export of this process is still running",
                hint="read it to its end, or close it, and run cleanup again",
            )
        with _whole_graph(kernel) as lease:
            require_nothing_pending(kernel, "cleaned up")
            try:
                plan, states = _planned(kernel, policy)
            except OmnigraphError:
                # Without the lease, other processes write: a missing branch is then no damage.
                lease.require_valid()
                raise
            rows = _carried_out(kernel, plan, states, lease, progress)
    else:
        rows = _previewed(kernel, *_planned_beside_others(kernel, policy), progress)
    seconds = monotonic_seconds() - started
    return CleanupReceipt(policy, not confirm, tuple(rows), seconds)


@contextmanager
def _whole_graph(kernel: Kernel) -> Iterator[Lease]:
    """Exclude writes, creation and deletion of branches. Yields the lease of the graph."""

    def branches() -> set[str]:
        return {MAIN, *kernel.manifest.main.refresh().branches} - {SCHEMA_APPLY_LOCK}

    with kernel.own_graph(kernel.ids.ulid(), branches) as leases:
        yield leases[GRAPH_SCOPE]


# --- planning -------------------------------------------------------------------------------------


def _planned(kernel: Kernel, policy: CleanupPolicy) -> tuple[CleanupPlan, dict[str, ManifestState]]:
    _require_no_schema_apply(kernel)
    states = live_states(kernel.manifest)
    return plan_cleanup(kernel, policy, states), states


def _planned_beside_others(
    kernel: Kernel, policy: CleanupPolicy
) -> tuple[CleanupPlan, dict[str, ManifestState]]:
    """The same without the lease of the graph: a branch that is deleted meanwhile is no damage."""
    while True:
        branches = kernel.manifest.main.refresh().branches
        try:
            return _planned(kernel, policy)
        except OmnigraphError:
            if kernel.manifest.main.refresh().branches == branches:
                raise


def _require_no_schema_apply(kernel: Kernel) -> None:
    kernel.manifest.main.refresh()
    require_no_schema_apply(kernel, "cleanup")


def plan_cleanup(
    kernel: Kernel, policy: CleanupPolicy, states: Mapping[str, ManifestState]
) -> CleanupPlan:
    """Plan the removal, given all live branches; raises if the data they use is unknown."""
    for state in states.values():
        _require_tables(kernel, state)
    search = _CleanupSearch.of(kernel, policy, states)
    tables: dict[TableIdentity, TableRow] = {}
    for state in states.values():
        for row in state.tables.values():
            tables.setdefault(row.identity, row)
    plans = [search.table(row) for row in sorted(tables.values(), key=_in_order)]
    schemas: tuple[str, ...] = ()
    if not any(plan.error for plan in plans):
        kept = {
            ((plan.identity, ref.where.ref), version)
            for plan in plans
            if plan.identity is not None
            for ref in plan.refs
            for version in ref.keep
        }
        schemas = unneeded_schemas(kernel.store, states, kept)
    return CleanupPlan(
        (*plans, search.manifest()),
        tuple(retired_datasets(kernel.store)),
        schemas,
        abandoned_scratch(kernel.store, kernel.clock.wall_us()),
        tuple(_unneeded_adjacency(kernel, states[MAIN])),
    )


def _unneeded_adjacency(kernel: Kernel, main: ManifestState) -> Iterator[str]:
    names = kernel.store.list(ADJACENCY)
    if not names:
        return
    reader = SnapshotReader(kernel.lance, kernel.root.uri, main.head_snapshot())
    keys = {entry.location: entry.table_key for entry in reader.snapshot.tables.values()}
    for location in saved_locations(names):
        key = keys.get(location)
        fragments = [] if key is None else fragments_of(reader.handle(key))
        yield from AdjacencyFiles(kernel.store, location).unneeded(fragments)


def _in_order(row: TableRow) -> tuple[bool, str]:
    """Sort key: nodes first, each kind by name."""
    return TableKey(row.table_key).kind == "edge", row.table_key


def _require_tables(kernel: Kernel, state: ManifestState) -> None:
    """Check that a branch's tables can be opened, and its own are at published versions."""
    snapshot = state.head_snapshot()
    reader = SnapshotReader(kernel.lance, kernel.root.uri, snapshot)
    for entry in snapshot.tables.values():
        try:
            handle = reader.handle(entry.table_key)
        except (NotFound, StorageError) as error:
            raise StorageError(
                f"{entry.table_key} of {state.branch} cannot be opened: {error.message}",
                hint=error.hint or "nothing was removed; restore the table from a copy",
            ) from error
        if entry.ref != state.ref:
            continue
        head = latest_version(handle)
        if head != entry.version:
            raise drift_error(kernel, state.branch, entry, head)
        where = reader.where(entry)
        if entry.ref is not None and entry.ref not in kernel.lance.refs(where):
            # Lance protects files shared with a fork only while the fork is listed.
            raise DamagedFile(
                f"{where.uri}/_refs/branches/{entry.ref}.json",
                "nothing was removed; put it back from a copy of the graph",
                f"it is missing, and {state.branch} has {entry.table_key} there",
            )


@dataclass(frozen=True, slots=True)
class _CleanupSearch:
    """Finds old versions, dataset by dataset."""

    kernel: Kernel
    policy: CleanupPolicy
    retention: Retention
    live: frozenset[str]
    """The refs of live branches."""
    now: float

    @classmethod
    def of(
        cls, kernel: Kernel, policy: CleanupPolicy, states: Mapping[str, ManifestState]
    ) -> _CleanupSearch:
        live = frozenset(state.ref for state in states.values() if state.ref is not None)
        now = kernel.clock.wall_us() / 1_000_000
        return cls(kernel, policy, Retention.of(states), live, now)

    def table(self, row: TableRow) -> TableCleanup:
        """The versions and forks to remove of a table."""
        identity = row.identity
        dataset = DatasetRef(self.kernel.table_uri(row.location))
        owned = {ref for table, ref in self.retention.owned if table == identity and ref}
        try:
            listed = self.kernel.lance.refs(dataset)
        except NotFound:
            # A type that was dropped with its data has no files.
            return TableCleanup(row.table_key, identity)
        except OmnigraphError as error:
            return TableCleanup(row.table_key, identity, error=error.message)
        refs = [self._ref(identity, dataset.on(ref)) for ref in self._in_order(listed, owned)]
        orphans = self._orphans(dataset, listed, owned)
        return TableCleanup(row.table_key, identity, tuple(refs), orphans)

    def _ref(self, identity: TableIdentity, where: DatasetRef) -> RefPlan:
        """The versions to remove and to keep of a table on one ref."""
        versions = stored_versions(self.kernel.lance.open(where))
        old = self._old(versions)
        remove = [each for each in old if not self.retention.needs((identity, where.ref), each)]
        keep = {each.number for each in versions}.difference(remove)
        return RefPlan(where, tuple(remove), tuple(sorted(keep)))

    def manifest(self) -> TableCleanup:
        """The versions to remove of the manifests; only those that readers may have open stay."""
        dataset, kept = self.kernel.manifest.main.where, VERSIONS_KEPT_MIN
        listed = self.kernel.lance.refs(dataset)
        refs = [
            RefPlan(where, self._old(stored_versions(self.kernel.lance.open(where)), kept))
            for where in map(dataset.on, self._in_order(listed, self.live))
        ]
        orphans = self._orphans(dataset, listed, self.live)
        return TableCleanup(MANIFEST, refs=tuple(refs), orphans=orphans)

    def _old(self, versions: Sequence[StoredVersion], kept: int = 1) -> tuple[int, ...]:
        """The versions that are old by the policy, except the newest ``kept``."""
        return tuple(
            version.number
            for place, version in enumerate(versions)
            if place >= kept and self.policy.allows(place, self.now - version.created_at)
        )

    def _in_order(self, listed: Mapping[str, Any], owned: Set[str]) -> list[str | None]:
        """The refs of live branches, children first, then main.

        Lance keeps files that a fork shares: cleaning the fork first may release some.
        """
        return [
            *_children_first({r: listed[r]["parent_branch"] for r in owned & listed.keys()}),
            None,
        ]

    def _orphans(
        self, dataset: DatasetRef, listed: Mapping[str, Any], owned: Set[str]
    ) -> tuple[DatasetRef, ...]:
        """Forks of deleted branches, and forks that a live branch never published."""
        dead = {ref: found["parent_branch"] for ref, found in listed.items() if ref not in owned}
        # A deleted branch may also have left parts of a fork, which Lance does not list.
        tree = f"{dataset.uri.removeprefix(f'{self.kernel.root.uri}/')}/tree"
        names = (name.removeprefix(f"{tree}/") for name in self.kernel.store.list(tree))
        parts = {name.partition("/")[0] for name in names}
        known = {ref.partition("/")[0] for ref in (*listed, *self.live, *owned)}
        dead |= dict.fromkeys(parts - known)
        found = [dataset.on(ref) for ref in _children_first(dead)]
        return tuple(ref for ref in found if ref.ref not in self.live or self._is_idle(ref))

    def _is_idle(self, where: DatasetRef) -> bool:
        """Whether a fork of a live branch has no files that a running write may have staged."""
        try:
            return not holds_unlisted_files(self.kernel.store, self.kernel.lance.open(where))
        except NotFound:
            return True


def _children_first(parents: Mapping[str, str | None]) -> list[str]:
    """Refs in an order in which each precedes its parent."""
    left, in_order = dict(parents), list[str]()
    while left:
        leaves = sorted(left.keys() - set(left.values()))
        in_order += leaves
        left = {ref: parent for ref, parent in left.items() if ref not in leaves}
    return in_order


# --- executing the plan ---------------------------------------------------------------------------


def _previewed(
    kernel: Kernel,
    plan: CleanupPlan,
    states: Mapping[str, ManifestState],
    progress: Callable[[int, int], None] | None,
) -> list[CleanedTable]:
    rows: list[CleanedTable] = []
    for table in plan.tables:
        found = [reclaimable(kernel.lance.open(ref.where), ref.remove) for ref in table.refs]
        rows.append(
            CleanedTable(
                table.type_key,
                sum(each.bytes for each in found),
                sum(each.versions for each in found),
                tuple(str(orphan.ref) for orphan in table.orphans),
                table.error,
            )
        )
        if progress is not None:
            progress(len(rows), len(plan.tables))
    error = _retired_obstacle(kernel, states) if plan.retired else None
    rows += [_retired_row(kernel, name, error) for name in plan.retired]
    return rows + _scratch_rows(plan) + _adjacency_rows(plan) + _schema_rows(plan)


def _carried_out(
    kernel: Kernel,
    plan: CleanupPlan,
    states: Mapping[str, ManifestState],
    lease: Lease,
    progress: Callable[[int, int], None] | None,
) -> list[CleanedTable]:
    rows: list[CleanedTable] = []
    with ThreadPoolExecutor(maintenance_concurrency()) as pool:
        for row in pool.map(partial(_clean, kernel, lease), plan.tables):
            rows.append(row)
            if progress is not None:
                progress(len(rows), len(plan.tables))
    error = _retired_obstacle(kernel, states) if plan.retired else None
    for name in plan.retired:
        row = _retired_row(kernel, name, error)
        if error is None:
            lease.require_valid()
            remove_retired(kernel.store, name)
        rows.append(row)
    for name in plan.scratch:
        lease.require_valid()
        kernel.store.delete_prefix(name)
    for name in plan.adjacency:
        lease.require_valid()
        kernel.store.delete(name)
    rows += _scratch_rows(plan) + _adjacency_rows(plan)
    planned = sum(len(ref.remove) for table in plan.tables for ref in table.refs)
    removed = sum(row.old_versions_removed for row in rows[: len(plan.tables)])
    if removed < planned or any(row.error for row in rows):
        # Some old versions remain, and with them commits that are still readable with their
        # schemas.
        return rows
    lease.require_valid()
    return rows + _schema_rows(plan, remove_schemas(kernel.store, plan.schemas))


def _scratch_rows(plan: CleanupPlan) -> list[CleanedTable]:
    return [CleanedTable(LOAD_SCRATCH, 0, len(plan.scratch))] if plan.scratch else []


def _adjacency_rows(plan: CleanupPlan) -> list[CleanedTable]:
    return [CleanedTable(ADJACENCY, 0, len(plan.adjacency))] if plan.adjacency else []


def _schema_rows(plan: CleanupPlan, bytes_removed: int = 0) -> list[CleanedTable]:
    if not plan.schemas:
        return []
    return [CleanedTable(PAST_SCHEMAS, bytes_removed, len(plan.schemas))]


def _clean(kernel: Kernel, lease: Lease, plan: TableCleanup) -> CleanedTable:
    """Clean one table; a failure is reported for it and does not affect other tables."""
    row = CleanedTable(plan.type_key, error=plan.error)
    try:
        for orphan in plan.orphans:
            lease.require_valid()
            kernel.forks.reclaim(orphan)
            row = replace(row, orphan_refs_removed=(*row.orphan_refs_removed, str(orphan.ref)))
        for ref in plan.refs:
            lease.require_valid()
            gone = reclaim(kernel.lance.open(ref.where), ref.remove)
            row = replace(
                row,
                bytes_removed=row.bytes_removed + gone.bytes,
                old_versions_removed=row.old_versions_removed + gone.versions,
            )
    except (OmnigraphError, OSError) as error:
        reason = error.message if isinstance(error, OmnigraphError) else str(error)
        return replace(row, error=reason)
    return row


def _retired_obstacle(kernel: Kernel, states: Mapping[str, ManifestState]) -> str | None:
    """Why datasets of an older layout must stay; None if they can be removed."""
    try:
        accepted = accepted_tables(kernel.accepted_schema())
        require_folded(kernel.lance, kernel.root.uri, accepted, states)
    except OmnigraphError as error:
        return error.message
    return None


def _retired_row(kernel: Kernel, name: str, error: str | None) -> CleanedTable:
    if error is not None:
        return CleanedTable(name, error=error)
    versions = version_count(kernel.store, DatasetRef(kernel.table_uri(name)))
    return CleanedTable(name, old_versions_removed=versions)
