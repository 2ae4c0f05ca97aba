"""Changing the schema of a live graph, as one commit.

The whole graph is owned while it happens, so that nothing can move: what has to be computed is
staged first, then the sidecar claims every effect, the new contract is laid beside the old one, the
tables change, and one publish makes it all visible. Only then does the new contract become the
accepted one. Whoever finds an apply interrupted before the publish undoes or publishes it; after
the publish, it is completed.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path

from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.leases import Lease, branch_scope
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.recovery.examining import uncovered_drift
from omnigraph.commit.recovery.settling import new_pins, registrations
from omnigraph.commit.schema.change import ChangedTable, SchemaChange, identity_of, schema_change
from omnigraph.commit.schema.contract import (
    discard_staged,
    keep_past,
    promote_contract,
    stage_contract,
)
from omnigraph.commit.schema.lock import SCHEMA_APPLY, release_lock, take_lock
from omnigraph.commit.sidecar import (
    Authority,
    LeaseClaim,
    NewTable,
    SchemaDelta,
    Sidecar,
    SidecarTable,
)
from omnigraph.commit.writer import interrupted
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.errors import Conflict, OmnigraphError, RecoveryRequired
from omnigraph.model.ids import SCHEMA_APPLY_LOCK
from omnigraph.schema.catalog import table_schema
from omnigraph.schema.contract import AcceptedSchema, SchemaContract, build_contract
from omnigraph.schema.migration import PlannedChange, plan_change
from omnigraph.schema.steps import DropProperty, DropType
from omnigraph.storage.compaction import rewrite_everything
from omnigraph.storage.datasets import (
    DatasetRef,
    Handle,
    StagedTransaction,
    latest_version,
    name_after,
)
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.publisher import PublishRequest, TablePin, publish
from omnigraph.storage.reclaiming import reclaim, stored_versions
from omnigraph.storage.snapshot import ManifestState, TableEntry
from omnigraph.syntax.source import Source

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AppliedSchema:
    """A planned change and the commit that made it; None when there was nothing to do."""

    planned: PlannedChange
    commit: CommitRow | None
    manifest_version: int


def apply_schema(
    kernel: Kernel,
    desired: str | Path | Source,
    *,
    allow_data_loss: bool = False,
    actor_id: str | None = None,
) -> AppliedSchema:
    """Bring a graph to another schema, whole or not at all.

    Raises a `CompileError` for a bad schema, `UnsupportedSchemaChange`, and `Conflict` while there
    are branches or another apply runs; none of them leaves anything behind. `RecoveryRequired`
    means that it was interrupted: the next write or `omnigraph recover` finishes or undoes it.
    """
    Recoverer(kernel).barrier(MAIN, SCHEMA_APPLY)
    operation_id = kernel.ids.operation_id()
    with kernel.own_graph(operation_id, lambda: [MAIN]) as leases:
        branch = kernel.manifest.refreshed(MAIN)
        _require_only_main(branch.state)
        _require_nothing_pending(kernel)
        accepted = kernel.accepted_at(branch.state)
        planned = plan_change(accepted.ir, desired, allow_data_loss=allow_data_loss)
        if not planned.plan.steps:
            return AppliedSchema(planned, None, branch.state.version)
        planned.plan.require_supported()
        lease = leases[branch_scope(MAIN)]
        apply = _Apply(
            kernel, accepted, planned, lease, operation_id=operation_id, actor_id=actor_id
        )
        commit = apply.run()
    return AppliedSchema(planned, commit, commit.manifest_version)


def _require_only_main(state: ManifestState) -> None:
    others = sorted(state.branches.keys() - {SCHEMA_APPLY_LOCK})
    if others:
        raise Conflict(
            "schema apply requires a graph with only main; "
            f"found non-main branches: {', '.join(others)}",
            hint="merge or delete them first",
            details={"branches": others},
        )


def _require_nothing_pending(kernel: Kernel) -> None:
    for sidecar in kernel.sidecars.pending():
        if sidecar.branch == MAIN:
            raise Conflict(
                f"operation {sidecar.operation_id} was interrupted and has to be settled first",
                hint="try again, or run `omnigraph recover`",
            )


@dataclass(slots=True)
class _StagedTable:
    """A table that changes, with the transactions that change it."""

    table: ChangedTable
    handle: Handle
    staged: list[StagedTransaction]
    rewrite_uuid: str | None
    """Of a last transaction, which leaves the values of dropped columns behind."""
    restore_uuid: str
    landed: Handle | None = None

    @property
    def uuids(self) -> list[str]:
        """Every transaction, in order."""
        last = [] if self.rewrite_uuid is None else [self.rewrite_uuid]
        return [*(str(transaction.uuid) for transaction in self.staged), *last]

    def claim(self) -> SidecarTable:
        """What the sidecar says of it."""
        entry = self.table.entry
        return SidecarTable.claiming(entry, entry.ref, self.uuids, self.restore_uuid)


class _Apply:
    """One apply, by the owner of the whole graph."""

    def __init__(
        self,
        kernel: Kernel,
        accepted: AcceptedSchema,
        planned: PlannedChange,
        lease: Lease,
        *,
        operation_id: str,
        actor_id: str | None,
    ) -> None:
        self._kernel = kernel
        self._accepted = accepted
        self._planned = planned
        self._operation_id = operation_id
        self._actor_id = actor_id
        self._lease = lease
        self._branch = kernel.manifest.main
        self._capture: Capture = kernel.capture(self._branch, accepted.schema_hash)
        catalog = planned.compiled.catalog
        self._change: SchemaChange = schema_change(
            accepted.catalog, catalog, self._capture.snapshot
        )
        self._contract: SchemaContract = build_contract(
            planned.compiled.source, planned.compiled.ir
        )
        self._new = tuple(
            NewTable(identity_of(each), each.table_key, each.table_path, kernel.ids.ulid())
            for each in self._change.created
        )
        self._delta = SchemaDelta(
            catalog.schema_hash, self._new, self._change.renamed, self._change.tombstones
        )
        steps = planned.plan.steps
        self._hard = any(isinstance(s, DropType | DropProperty) and s.mode == "hard" for s in steps)
        self._tables: list[_StagedTable] = []
        self._has_effects = False

    def run(self) -> CommitRow:
        """Stage, claim, change, publish, complete."""
        self._require_vacant()
        self._tables = [self._stage(table) for table in self._change.changed]
        take_lock(self._kernel, self._lease, self._operation_id, self._actor_id)
        try:
            commit = self._run_locked()
        except RecoveryRequired:
            raise  # the lock stays until recovery has settled what is left
        except BaseException:
            self._unlock()
            raise
        self._unlock()
        if self._hard:
            self._reclaim()
        return commit

    def _run_locked(self) -> CommitRow:
        sidecar = self._sidecar()
        self._lease.require_life()
        self._kernel.sidecars.write(sidecar)
        try:
            commit = self._effects(sidecar)
        except (OmnigraphError, OSError, ValueError) as error:
            commit = self._after_failure(sidecar, error)
        self._complete()
        self._kernel.sidecars.forget(self._operation_id)
        return commit

    # --- preparation ------------------------------------------------------------------------------

    def _require_vacant(self) -> None:
        """Nobody else's data lies where a new type's table will be."""
        for new in self._new:
            if self._kernel.store.exists(new.location):
                raise Conflict(
                    f"{new.location} already holds data, where the table of the new type "
                    f"{new.table_key} belongs",
                    hint="move it out of the graph's root, then apply again",
                    details={"location": new.location, "table_key": new.table_key},
                )

    def _stage(self, table: ChangedTable) -> _StagedTable:
        ids = self._kernel.ids
        handle = self._capture.reader.handle(table.entry.table_key)
        head = latest_version(handle)
        if head != table.entry.version:
            raise uncovered_drift(self._kernel, MAIN, table.entry, head)
        staged = table.change.stage(handle, iter(ids.ulid, None))
        forgets = self._hard and table.drops and table.entry.row_count > 0
        for transaction in staged:
            name_after(transaction, self._operation_id)
        return _StagedTable(table, handle, staged, ids.ulid() if forgets else None, ids.ulid())

    def _sidecar(self) -> Sidecar:
        snapshot = self._capture.snapshot
        lineage = self._kernel.next_commit(
            self._branch, snapshot.commit_id, "schema", self._delta.target_hash, self._actor_id
        )
        return Sidecar(
            operation_id=self._operation_id,
            writer_kind="SchemaApply",
            started_at=lineage.created_at,
            actor_id=self._actor_id,
            branch=MAIN,
            ref=None,
            lease=LeaseClaim.of(self._lease),
            authority=Authority.of(snapshot, self._capture.schema_hash),
            lineage=lineage,
            rollback_commit_id=self._kernel.ids.commit_id(),
            tables=tuple(table.claim() for table in self._tables),
            schema=self._delta,
        )

    # --- effects ----------------------------------------------------------------------------------

    def _effects(self, sidecar: Sidecar) -> CommitRow:
        hit(Failpoint.SCHEMA_APPLY_POST_SIDECAR_PRE_EFFECT)
        hit(Failpoint.SCHEMA_APPLY_BEFORE_STAGING_WRITE)
        keep_past(self._kernel.store, self._accepted)
        stage_contract(self._kernel.store, self._contract)
        hit(Failpoint.SCHEMA_APPLY_AFTER_STAGING_WRITE)
        for new, entity_type in zip(self._new, self._change.created, strict=True):
            self._lease.require_life()
            self._has_effects = True
            where = DatasetRef(self._kernel.table_uri(new.location))
            self._kernel.lance.create(where, table_schema(entity_type), None, new.uuid)
            hit(Failpoint.SCHEMA_APPLY_POST_TABLE_COMMIT)
        for table in self._tables:
            self._has_effects = True
            self._commit_table(table)
            hit(Failpoint.SCHEMA_APPLY_POST_TABLE_COMMIT)
        self._lease.require_life()
        return publish(self._branch, self._request(sidecar))

    def _commit_table(self, table: _StagedTable) -> None:
        landed = table.handle
        for transaction in table.staged:
            self._lease.require_life()
            landed = self._kernel.lance.commit(landed, transaction)
        if table.rewrite_uuid is not None:
            rewrite = rewrite_everything(landed).stage(landed, table.rewrite_uuid)
            name_after(rewrite, self._operation_id)
            self._lease.require_life()
            landed = self._kernel.lance.commit(landed, rewrite)
        table.landed = landed

    def _request(self, sidecar: Sidecar) -> PublishRequest:
        changed = [
            TablePin.at(
                table.table.entry.identity,
                table.table.entry.ref,
                table.landed,
                table.landed.version,
            )
            for table in self._tables
            if table.landed is not None
        ]
        entries: list[TableEntry] = [table.table.entry for table in self._tables]
        expected = {e.identity: e.version for e in (*entries, *self._change.dropped)}
        return PublishRequest(
            commit=sidecar.lineage,
            epoch=self._lease.epoch,
            expected_head=self._capture.snapshot.commit_id,
            pins=(*new_pins(self._delta), *changed),
            registrations=registrations(self._delta),
            tombstones=self._delta.tombstones,
            expected_table_versions={**expected, **{new.identity: 0 for new in self._new}},
        )

    def _after_failure(self, sidecar: Sidecar, error: Exception) -> CommitRow:
        """The fixed commit id says whether it was published; if nothing was done, nothing stays."""
        try:
            landed = self._branch.refresh().commits.get(sidecar.lineage.commit_id)
        except (OmnigraphError, OSError, ValueError):
            raise self._recovery_required(error) from error
        if landed is not None:
            return landed
        if self._has_effects or isinstance(error, RecoveryRequired):
            raise self._recovery_required(error) from error
        try:
            discard_staged(self._kernel.store)
            self._kernel.sidecars.delete(self._operation_id)
        except (OmnigraphError, OSError):
            raise self._recovery_required(error) from error
        raise error

    def _complete(self) -> None:
        """The change is visible; from here on only its contract is to be put in place."""
        try:
            hit(Failpoint.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT)
            promote_contract(self._kernel.store, self._delta.target_hash)
        except (OmnigraphError, OSError) as error:
            raise self._recovery_required(error) from error

    def _recovery_required(self, error: Exception) -> RecoveryRequired:
        return interrupted(self._operation_id, "schema apply", error)

    def _unlock(self) -> None:
        try:
            release_lock(self._kernel, self._lease)
        except Exception:
            log.warning("the lock of a schema apply was left behind", exc_info=True)

    # --- hard drops -------------------------------------------------------------------------------

    def _reclaim(self) -> None:
        """Remove what was dropped for good. The change is done whatever happens here."""
        for entry in self._change.dropped:
            try:
                self._kernel.store.delete_prefix(entry.location)
            except Exception:
                log.warning("the table of %s was not reclaimed", entry.table_key, exc_info=True)
        for table in self._tables:
            if table.table.drops and table.landed is not None:
                try:
                    _reclaim_older(table.landed)
                except Exception:
                    key = table.table.entry.table_key
                    log.warning("older versions of %s were not reclaimed", key, exc_info=True)


def _reclaim_older(handle: Handle) -> None:
    versions = [version.number for version in stored_versions(handle)]
    reclaim(handle, [version for version in versions if version < handle.version])
