"""Changing the schema of a live graph, as one commit.

The apply owns main, and with it the registry of branches. Computed columns are staged first. Then
the sidecar is written with every effect, the new contract is written under staging names, the
tables are changed, and one publish makes everything visible. After it the new contract is promoted
to the accepted one. Recovery undoes or publishes an apply that was interrupted before the publish,
and completes one that was interrupted after it.

Other branches keep the schema of their head, and their writers do not wait: `rebase` migrates a
branch.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any

from omnigraph.commit.executor import Executor, SchemaExecution
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.leases import Lease
from omnigraph.commit.plan import Intent, NewTable, SchemaDelta, TableEffects
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.recovery.examining import drift_error
from omnigraph.commit.schema.change import ChangedTable, SchemaChange, identity_of, schema_change
from omnigraph.commit.schema.lock import (
    SCHEMA_APPLY,
    release_lock,
    require_no_schema_apply,
    take_lock,
)
from omnigraph.commit.schema.stored_data import check_stored_data
from omnigraph.commit.write_path import earlier_commit
from omnigraph.errors import Conflict, RecoveryRequired, SchemaParseError
from omnigraph.model.ids import SCHEMA_APPLY_LOCK
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog, table_schema
from omnigraph.schema.contract import AcceptedSchema, build_contract
from omnigraph.schema.migration import PlannedMigration, plan_change
from omnigraph.storage.datasets import Handle
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest import ManifestBranch, ManifestState
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.table_upkeep import rewrite_everything
from omnigraph.storage.transactions import StagedTransaction, latest_version
from omnigraph.storage.versions import reclaim, stored_versions
from omnigraph.syntax.tokens import Source

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AppliedSchema:
    """The steps of a change, and its commit; None if nothing changed."""

    steps: tuple[Mapping[str, Any], ...]
    commit: CommitRow | None
    manifest_version: int


def apply_schema(
    kernel: Kernel,
    desired: str | Path | Source,
    *,
    allow_data_loss: bool = False,
    actor_id: str | None = None,
    operation_id: str | None = None,
    message: str | None = None,
    check: Callable[[Catalog], None] | None = None,
) -> AppliedSchema:
    """Change the schema of a graph atomically.

    If the actor made an earlier change with the key ``operation_id``, nothing is done and that one
    is returned; raises `Conflict` if it was to another schema. ``check`` gets the new schema before
    anything is staged, and may raise to refuse it.

    Raises a `CompileError` for a bad schema, `UnsupportedSchemaChange`, `ConstraintViolation` if
    stored entities break an added constraint, and `Conflict` while another apply runs, or if data
    would be dropped for good that branches or tags may show. These errors have no effects.
    `RecoveryRequired` means that it was interrupted: the next open or `omnigraph recover` completes
    or undoes it.
    """
    source = Source.of(desired, SchemaParseError)
    asked = {
        "source_digest": hashlib.sha256(source.text.encode()).hexdigest(),
        "allow_data_loss": allow_data_loss,
    }
    main = Recoverer(kernel).barrier(MAIN, SCHEMA_APPLY)
    attempt_id = kernel.ids.ulid()
    with kernel.own_branch(main, attempt_id) as lease:
        branch = kernel.manifest.refreshed(MAIN)
        done = earlier_commit(branch.state, operation_id, actor_id, "schema", asked)
        if done is not None:
            steps = tuple((done.receipt or {})["steps"])
            return AppliedSchema(steps, done, done.manifest_version)
        require_no_schema_apply(kernel, SCHEMA_APPLY)
        require_nothing_pending(kernel, MAIN)
        accepted = kernel.accepted_at(branch.state.head_snapshot())
        planned = plan_change(accepted.ir, source, allow_data_loss=allow_data_loss)
        if not planned.plan.steps:
            return AppliedSchema((), None, branch.state.version)
        planned.plan.require_supported()
        if planned.plan.hard_drops:
            _require_only_head(branch.state)
        if check is not None:
            check(planned.compiled.catalog)
        steps = tuple(step.to_json() for step in planned.plan.steps)
        receipt = None if operation_id is None else {**asked, "steps": steps}
        intent = Intent(
            "SchemaApply",
            "schema",
            actor_id,
            operation_id=operation_id,
            receipt=receipt,
            message=message,
        )
        commit = _Apply(kernel, accepted, planned, lease, intent, attempt_id=attempt_id).run()
    return AppliedSchema(steps, commit, commit.manifest_version)


def _require_only_head(state: ManifestState) -> None:
    """Refuse a hard drop while tags or branches read versions that it would reclaim."""
    others = sorted(state.branches.keys() - {SCHEMA_APPLY_LOCK})
    if others:
        raise Conflict(
            "dropping data for good requires a graph with only main; "
            f"found non-main branches: {', '.join(others)}",
            hint="merge or delete them first, or apply the schema without `--allow-data-loss` "
            "(allow_data_loss=False): what is dropped then stays readable at older commits",
            details={"branches": others},
        )
    if state.tags:
        raise Conflict(
            "dropping data for good requires a graph without tags, which keep what they name; "
            f"found tags: {', '.join(sorted(state.tags))}",
            hint="delete the tags first, or apply the schema without `--allow-data-loss` "
            "(allow_data_loss=False)",
            details={"tags": sorted(state.tags)},
        )


def require_nothing_pending(kernel: Kernel, branch: str) -> None:
    """Raise `Conflict` if an operation on a branch was interrupted since the barrier."""
    for plan in kernel.sidecars.pending_on(branch):
        raise Conflict(
            f"operation {plan.attempt_id} was interrupted and has to be settled first",
            hint="try again, or run `omnigraph recover`",
        )


@dataclass(slots=True)
class ChangingTable:
    """A changed table and its transactions: the `TableExecution` of its effects."""

    effects: TableEffects
    change: ChangedTable
    handle: Handle | None
    """None for a table that is not forked to its branch yet."""
    staged: list[StagedTransaction] = field(default_factory=list)
    landed: Handle | None = None

    @classmethod
    def of(
        cls,
        kernel: Kernel,
        branch: ManifestBranch,
        change: ChangedTable,
        at: Handle,
        *,
        rewrites: bool = False,
    ) -> ChangingTable:
        """The change of the published version of a table, which is open ``at`` that version.

        It is staged immediately if the table is forked to the branch. With ``rewrites``, the values
        of dropped columns are removed from the files.
        """
        ids, entry, ref = kernel.ids, change.entry, branch.where.ref
        own = entry.ref == ref
        if own and (head := latest_version(at)) != entry.version:
            raise drift_error(kernel, branch.branch, entry, head)
        uuids = ids.ulids(change.change.transactions(at))
        if rewrites and change.drops and entry.row_count > 0:
            uuids = [*uuids, ids.ulid()]
        table = cls(TableEffects.of(entry, ref, uuids, ids.ulid()), change, at if own else None)
        if own:
            table._stage(at)
        return table

    def _stage(self, handle: Handle) -> None:
        self.staged = self.change.change.stage(handle, (t.uuid for t in self.effects.transactions))

    def transaction(self, at: int, handle: Handle) -> StagedTransaction:
        """The staged transactions, then one that removes the values of dropped columns."""
        if not self.staged:
            self._stage(handle)
        if at < len(self.staged):
            return self.staged[at]
        return rewrite_everything(handle).stage(handle, self.effects.transactions[at].uuid)


class _Apply:
    """One schema apply; the caller owns main."""

    def __init__(
        self,
        kernel: Kernel,
        accepted: AcceptedSchema,
        planned: PlannedMigration,
        lease: Lease,
        intent: Intent,
        *,
        attempt_id: str,
    ) -> None:
        self._kernel = kernel
        self._attempt_id = attempt_id
        self._intent = intent
        self._lease = lease
        self._capture: Capture = kernel.capture(kernel.manifest.main, accepted.schema_hash)
        catalog = planned.compiled.catalog
        self._change: SchemaChange = schema_change(
            accepted.catalog, catalog, self._capture.snapshot
        )
        self._catalogs = accepted.catalog, catalog
        created = self._change.created
        self._delta = SchemaDelta(
            catalog.schema_hash,
            tuple(
                NewTable(identity_of(each), each.table_key, each.table_path, kernel.ids.ulid())
                for each in created
            ),
            self._change.renamed,
            self._change.tombstones,
        )
        self._work = SchemaExecution(
            accepted,
            build_contract(planned.compiled.source, planned.compiled.ir),
            tuple(table_schema(each) for each in created),
        )
        self._steps = planned.plan.steps
        self._hard = bool(planned.plan.hard_drops)
        self._tables: list[ChangingTable] = []

    def run(self) -> CommitRow:
        """Check stored data, stage, take the lock, run the plan, release the lock."""
        self._require_vacant()
        check_stored_data(self._steps, *self._catalogs, self._capture.reader)
        self._tables = [
            ChangingTable.of(
                self._kernel,
                self._capture.branch,
                table,
                self._capture.reader.handle(table.entry.table_key),
                rewrites=self._hard,
            )
            for table in self._change.changed
        ]
        take_lock(self._kernel, self._lease, self._attempt_id, self._intent.actor_id)
        try:
            commit = self._run_locked()
        except RecoveryRequired:
            raise  # the lock stays until recovery has settled the operation
        except BaseException:
            self._unlock()
            raise
        self._unlock()
        if self._hard:
            self._reclaim()
        return commit

    def _run_locked(self) -> CommitRow:
        plan = self._kernel.plan(
            self._capture,
            self._lease,
            self._intent,
            tuple(table.effects for table in self._tables),
            attempt_id=self._attempt_id,
            schema=self._delta,
        )
        executor = Executor(self._kernel, self._capture.branch, self._lease)
        return executor.run(plan, self._tables, self._work)

    def _require_vacant(self) -> None:
        """Refuse foreign data at the location of a new type's table."""
        for new in self._delta.registrations:
            if self._kernel.store.exists(new.location):
                raise Conflict(
                    f"{new.location} already holds data, where the table of the new type "
                    f"{new.table_key} belongs",
                    hint="move it out of the graph's root, then apply again",
                    details={"location": new.location, "table_key": new.table_key},
                )

    def _unlock(self) -> None:
        try:
            release_lock(self._kernel, self._lease)
        except Exception:
            log.warning("the lock of a schema apply was left behind", exc_info=True)

    # --- hard drops -------------------------------------------------------------------------------

    def _reclaim(self) -> None:
        """Remove data that was dropped for good. The change is complete even if this fails."""
        for entry in self._change.dropped:
            try:
                self._kernel.store.delete_prefix(entry.location)
            except Exception:
                log.warning("the table of %s was not reclaimed", entry.table_key, exc_info=True)
        for table in self._tables:
            if table.change.drops and table.landed is not None:
                try:
                    newest = table.landed.version
                    versions = [version.number for version in stored_versions(table.landed)]
                    reclaim(table.landed, [each for each in versions if each < newest])
                except Exception:
                    key = table.effects.table_key
                    log.warning("older versions of %s were not reclaimed", key, exc_info=True)
