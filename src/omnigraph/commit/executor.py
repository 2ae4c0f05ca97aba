"""Runs a `CommitPlan`: writes the sidecar, runs the effects, publishes once, removes the sidecar.

Every commit is made here. Before the sidecar is written, nothing durable has happened and the plan
can be dropped. After it, recovery completes or undoes the whole plan if this process fails. The
commit becomes visible by the publish, and no part of it before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple, Protocol

import pyarrow as pa

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import Lease
from omnigraph.commit.plan import (
    FIRST_VERSION,
    CommitPlan,
    NewTable,
    TableEffects,
    WriterKind,
)
from omnigraph.commit.schema.contract import (
    discard_staged,
    keep_past,
    promote_contract,
    write_contract,
)
from omnigraph.commit.sidecars import encode_sidecar, sidecar_digest
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.failures import StorageFailure
from omnigraph.effects.requests import concurrently
from omnigraph.errors import (
    EffectFreeConflict,
    OmnigraphError,
    OutOfSpace,
    ReadSetChanged,
    RecoveryRequired,
    StorageError,
)
from omnigraph.model.records import dataclass
from omnigraph.schema.contract import AcceptedSchema, SchemaContract
from omnigraph.storage.datasets import DraftedCommit, Flushes, Handle, row_count
from omnigraph.storage.digests import encode_digests
from omnigraph.storage.drafts import LandedDataset
from omnigraph.storage.layout import STAGING_SUFFIX
from omnigraph.storage.manifest import ManifestBranch
from omnigraph.storage.manifest_rows import CommitRow, VersionRow
from omnigraph.storage.publisher import PublishRequest, StagedPublish, publish, stage_publish
from omnigraph.storage.transactions import CommitLost, DatasetRef, StagedTransaction


class TableExecution(Protocol):
    """The open dataset and the transactions for the effects on one table."""

    @property
    def effects(self) -> TableEffects:
        """The part of the plan that it executes."""
        ...

    handle: Handle | None
    """The table before the effects; None until it is forked."""
    landed: Handle | None
    """The table after its last committed transaction."""

    @property
    def staged(self) -> Sequence[StagedTransaction | None]:
        """Its transactions; None for those staged only after earlier ones are committed."""
        ...

    def transaction(self, at: int, handle: Handle) -> StagedTransaction:
        """The planned transaction number ``at``; staged on ``handle`` if it is not yet."""
        ...


@dataclass(frozen=True, slots=True)
class SchemaExecution:
    """The staged contract and the new tables of a schema change."""

    replaced: AcceptedSchema
    contract: SchemaContract
    created: tuple[pa.Schema, ...]
    """The schemas of the new tables, in the order of their registrations."""


class OperationFailpoints(NamedTuple):
    """The failpoints of one kind of operation in the executor."""

    after_sidecar: Failpoint
    after_table: Failpoint
    after_tables: Failpoint | None


_MUTATION = OperationFailpoints(
    Failpoint.MUTATION_POST_SIDECAR_PRE_FORK,
    Failpoint.MUTATION_POST_TABLE_COMMIT,
    Failpoint.MUTATION_POST_FINALIZE_PRE_PUBLISHER,
)
_FAILPOINTS: dict[WriterKind, OperationFailpoints] = {
    "Mutation": _MUTATION,
    "Load": _MUTATION,
    "SchemaApply": OperationFailpoints(
        Failpoint.SCHEMA_APPLY_POST_SIDECAR_PRE_EFFECT,
        Failpoint.SCHEMA_APPLY_POST_TABLE_COMMIT,
        None,
    ),
    "SchemaRebase": OperationFailpoints(
        Failpoint.SCHEMA_REBASE_POST_SIDECAR_PRE_FORK,
        Failpoint.SCHEMA_REBASE_POST_TABLE_COMMIT,
        Failpoint.SCHEMA_REBASE_PRE_PUBLISH,
    ),
    "BranchMerge": OperationFailpoints(
        Failpoint.BRANCH_MERGE_POST_SIDECAR_PRE_FORK,
        Failpoint.BRANCH_MERGE_BETWEEN_CHUNKS,
        Failpoint.BRANCH_MERGE_POST_PHASE_B_PRE_MANIFEST_COMMIT,
    ),
    "EnsureIndices": OperationFailpoints(
        Failpoint.MUTATION_POST_SIDECAR_PRE_FORK,
        Failpoint.ENSURE_INDICES_POST_TABLE_EFFECT,
        Failpoint.ENSURE_INDICES_POST_PHASE_B_PRE_MANIFEST_COMMIT,
    ),
    "Optimize": OperationFailpoints(
        Failpoint.MUTATION_POST_SIDECAR_PRE_FORK,
        Failpoint.MUTATION_POST_TABLE_COMMIT,
        Failpoint.OPTIMIZE_POST_PHASE_B_PRE_MANIFEST_COMMIT,
    ),
}


PUT_OFF: tuple[WriterKind, ...] = ("Mutation", "Load", "BranchMerge")
"""Writes after which the owner releases the branch without further work."""


class Executor:
    """Runs plans on a branch whose lease the caller owns."""

    def __init__(self, kernel: Kernel, branch: ManifestBranch, lease: Lease) -> None:
        self._kernel = kernel
        self._branch = branch
        self._lease = lease
        self._has_started = False
        """Whether an effect of the plan may have been committed."""
        self._sidecar_digest: str | None = None
        """The digest of the sidecar written here, which every transaction of the plan contains."""
        self._flushes = Flushes()
        self._drafted: dict[str, list[DraftedCommit]] = {}
        """On an object store, by table key: prepared commits to send."""

    def run(
        self,
        plan: CommitPlan,
        tables: Sequence[TableExecution],
        schema: SchemaExecution | None = None,
    ) -> CommitRow:
        """Run a plan and publish it once; returns its commit, of a group the first.

        Raises `EffectFreeConflict` if another writer was first and the plan had no effect, and
        `RecoveryRequired` if it was interrupted: recovery then completes or undoes it.
        """
        if plan.writer_kind == "Repair":
            # A repair publishes existing versions: there is nothing to undo, so it has no sidecar.
            return self.adopt(plan, tables)
        self._lease.catch_up()
        self._lease.require_valid()
        self._flush_staged(tables)
        self._announce(plan, tables)
        try:
            commit = self._effects(plan, tables, schema)
        except CommitLost as lost:
            raise self._after_rejection(plan, tables, lost) from lost
        except (OmnigraphError, OSError, ValueError) as error:
            commit = self._after_failure(plan, error)
        if schema is None:
            self._require_branch()
        else:
            self._promote(plan)
        self._forget(plan, tables)
        return commit

    def _forget(self, plan: CommitPlan, tables: Sequence[TableExecution]) -> None:
        """Phase D: the plan is visible, and its sidecar is removed.

        On an object store that happens concurrently with releasing the lease. The next owner may
        still find the sidecar, and settles it: it is published, so nothing remains to be done.
        """
        forget = partial(self._kernel.sidecars.forget, plan.attempt_id)
        if not self._kernel.is_remote or plan.writer_kind not in PUT_OFF:
            forget()
            return
        self._lease.put_off(forget)
        for table in tables:
            if isinstance(table.landed, LandedDataset):
                # Open the new version ahead, for lookups of the next write.
                self._lease.put_off(table.landed.open_now)

    def _announce(self, plan: CommitPlan, tables: Sequence[TableExecution]) -> None:
        """Phase A: write the sidecar, which is durable before the first effect.

        On an object store the commits of the tables are prepared before, on this machine, where
        they are not visible.
        """
        content = encode_sidecar(plan)
        self._sidecar_digest = sidecar_digest(content)
        if self._kernel.is_remote:
            self._drafted = {table.effects.table_key: self._drafts(plan, table) for table in tables}
        commits = [each for chain in self._drafted.values() for each in chain]
        concurrently(
            partial(self._kernel.sidecars.write, plan, content),
            *(partial(self._kernel.lance.digest, each) for each in commits),
            threads=self._kernel.is_remote,
        )

    def _drafts(self, plan: CommitPlan, table: TableExecution) -> list[DraftedCommit]:
        """The prepared commits to a table; empty if Lance has to make them."""
        handle = table.handle
        is_staged = len(table.staged) == len(table.effects.transactions)
        if table.effects.first_touch is not None or not is_staged or None in table.staged:
            return []
        assert handle is not None
        made: list[DraftedCommit] = []
        for at in range(len(table.effects.transactions)):
            each = self._kernel.lance.draft(
                handle, table.transaction(at, handle), plan.attempt_id, self._sidecar_digest
            )
            if each is None:
                return []
            made.append(each)
            handle = each.landed
        return made

    def _commit_together(
        self,
        plan: CommitPlan,
        tables: Sequence[TableExecution],
        passed: OperationFailpoints,
        ahead: StagedPublish | None,
    ) -> None:
        """Commit all tables concurrently: the sidecar lists them, and nothing is visible yet.

        The rows of the publish are uploaded at the same time. Raises `CommitLost` only if there was
        no other failure: with another outcome unknown, a rejected commit must not suggest that the
        plan had no effect.
        """

        def commit(table: TableExecution) -> CommitLost | None:
            try:
                self.commit_table(plan, table)
            except CommitLost as lost:
                return lost
            hit(passed.after_table)
            return None

        sent = concurrently(
            *(partial(commit, table) for table in tables),
            *(() if ahead is None else ahead.files.requests),
            threads=True,
        )
        for lost in sent[: len(tables)]:
            if lost is not None:
                raise lost
        self._commit_others(tables)

    def _commit_others(self, tables: Sequence[TableExecution]) -> None:
        """Send the further commits of a group to each table, concurrently.

        The first one was accepted, so the table was at the version that the leader captured, and no
        other writer takes the next ones. If some fail, recovery finds the landed ones by uuid.
        """
        others = [
            (table, each)
            for table in tables
            for each in self._drafted.get(table.effects.table_key, ())[1:]
        ]
        if not others:
            return
        self._lease.require_valid()
        concurrently(*(partial(self._kernel.lance.land, each) for _, each in others), threads=True)
        for table, each in others:
            table.landed = each.landed

    def commit_table(self, plan: CommitPlan, table: TableExecution) -> None:
        """Fork the table if necessary, and commit its transactions in order.

        Of prepared commits only the first is sent here: see `_commit_others`. Files of these
        commits are flushed before the publish at the latest.
        """
        self._lease.require_valid()
        fork = table.effects.first_touch
        self._has_started = True
        if fork is not None:
            table.handle = self._kernel.forks.make(
                self._where(table.effects), fork.from_ref, fork.from_version
            )
        assert table.handle is not None
        drafted = self._drafted.get(table.effects.table_key)
        if drafted:
            table.landed = self._kernel.lance.land(drafted[0])
            return
        landed = table.handle
        for at in range(len(table.effects.transactions)):
            staged = table.transaction(at, landed)
            if not at and fork is not None:
                hit(Failpoint.MUTATION_POST_FORK_PRE_COMMIT)
            elif at:
                self._lease.require_valid()
            landed = table.landed = self._kernel.lance.commit(
                landed, staged, plan.attempt_id, self._sidecar_digest, self._flushes
            )

    def publish(self, plan: CommitPlan, tables: Sequence[TableExecution]) -> CommitRow:
        """Make the plan visible by one compare-and-swap, with the new versions of each table."""
        self._kernel.lance.flush_commits(self._flushes)
        return publish(self._branch, self._request(plan, tables))

    def _request(self, plan: CommitPlan, tables: Sequence[TableExecution]) -> PublishRequest:
        first, *others = self._pins(plan, tables)
        created = (
            {}
            if plan.schema is None
            else {new.identity: self._created_digests(new) for new in plan.schema.registrations}
        )
        return plan.request(first, self._lease.epoch, created, others)

    def _stage_publish(
        self, plan: CommitPlan, tables: Sequence[TableExecution]
    ) -> tuple[PublishRequest, StagedPublish] | None:
        """Stage the publish before the commits are sent; None unless all of them are prepared."""
        if not all(self._drafted.get(table.effects.table_key) for table in tables):
            return None
        if not tables or plan.schema is not None:
            return None
        request = self._request(plan, tables)
        try:
            staged = stage_publish(self._branch, request)
        except OmnigraphError:
            return None  # the publish itself raises the conflict
        return None if staged is None else (request, staged)

    def _pins(
        self, plan: CommitPlan, tables: Sequence[TableExecution]
    ) -> Iterator[list[VersionRow]]:
        """For each commit of the plan: the last version of each table that belongs to it."""
        after = {work.effects.identity: work.effects.expected_version for work in tables}
        for number, commit in enumerate(plan.commits, start=1):
            pins = []
            for work in tables:
                drafted = self._drafted.get(work.effects.table_key)
                effects, at = work.effects, drafted[-1].landed if drafted else work.landed
                own = [
                    effects.expected_version + n
                    for n, tx in enumerate(effects.transactions, start=1)
                    if tx.uuid in commit.uuids
                ]
                if at is None or (plan.following and not own):
                    continue
                version = own[-1] if number <= len(plan.following) else at.version
                before, after[effects.identity] = after[effects.identity], version
                rows = self._row_count(work, at, version)
                digests = self._digests(effects, before, version)
                pins.append(
                    VersionRow(effects.identity, version, effects.ref, rows, digests=digests)
                )
            yield pins

    def _row_count(self, work: TableExecution, at: Handle, version: int) -> int:
        for each in self._drafted.get(work.effects.table_key, ()):
            if each.version.version == version:
                return row_count(each.landed, version)
        return row_count(at, version)

    def _digests(self, effects: TableEffects, before: int, version: int) -> str | None:
        """Digests of the files that the effects added to a table after version ``before``."""
        where, lance = self._where(effects), self._kernel.lance
        found = lance.digests.between(where, before, version)
        if effects.first_touch is not None:
            found |= lance.digests.of_fork(where)
        return encode_digests(found) if found else None

    def _created_digests(self, new: NewTable) -> str | None:
        where = DatasetRef(self._kernel.table_uri(new.location))
        found = self._kernel.lance.digests.between(where, 0, FIRST_VERSION)
        return encode_digests(found) if found else None

    def adopt(self, plan: CommitPlan, tables: Sequence[TableExecution]) -> CommitRow:
        """Publish committed versions; flushes them first, as their writer may have died before."""
        lance = self._kernel.lance
        for table in tables:
            effects, where = table.effects, self._where(table.effects)
            if effects.first_touch is not None:
                lance.flush_fork(where)
            if table.landed is not None:
                lance.flush_versions(where, effects.expected_version, table.landed.version)
        for new in () if plan.schema is None else plan.schema.registrations:
            where = DatasetRef(self._kernel.table_uri(new.location))
            lance.flush_versions(where, 0, FIRST_VERSION)
        return self._publish_checked(plan, tables)

    def flush_last(self, table: TableExecution) -> None:
        """Flush the last version of a table, which another process has committed, to local disk."""
        assert table.landed is not None
        version = table.landed.version
        self._kernel.lance.flush_versions(self._where(table.effects), version - 1, version)

    def _flush_staged(self, tables: Sequence[TableExecution]) -> None:
        """Flush the files that the plan has written to local disk, before the first commit.

        Recovery publishes a plan if all its versions exist: after a power loss, their data has to
        exist, too. Files staged later are flushed before their own commit.
        """
        staged = [
            (table.handle, transaction)
            for table in tables
            if table.handle is not None
            for transaction in table.staged
            if transaction is not None
        ]
        self._kernel.lance.flush_staged(staged, self._flushes)

    def _publish_checked(self, plan: CommitPlan, tables: Sequence[TableExecution]) -> CommitRow:
        self._lease.require_valid()
        return self.publish(plan, tables)

    def _effects(
        self,
        plan: CommitPlan,
        tables: Sequence[TableExecution],
        schema: SchemaExecution | None,
    ) -> CommitRow:
        passed = _FAILPOINTS[plan.writer_kind]
        hit(passed.after_sidecar)
        if schema is not None:
            self._stage_schema(plan, schema)
        if self._kernel.is_remote:
            staged = self._stage_publish(plan, tables)
            self._commit_together(plan, tables, passed, staged[1] if staged else None)
        else:
            staged = None
            for table in tables:
                self.commit_table(plan, table)
                hit(passed.after_table)
        if passed.after_tables is not None:
            hit(passed.after_tables)
        if staged is None:
            return self._publish_checked(plan, tables)
        self._lease.require_valid()
        return publish(self._branch, *staged)

    # --- failures ---------------------------------------------------------------------------------

    def _after_rejection(
        self, plan: CommitPlan, tables: Sequence[TableExecution], lost: CommitLost
    ) -> OmnigraphError:
        """The error for a rejected first commit, which had no effect; removes the sidecar."""
        moved = any(table.landed is not None for table in tables)
        forked = any(table.effects.first_touch is not None for table in tables)
        if moved or forked or plan.schema is not None:
            return interrupted(plan, lost)
        self._kernel.sidecars.delete(plan.attempt_id)
        if isinstance(lost.__cause__, OutOfSpace | StorageFailure):
            return lost.__cause__
        if not lost.details.get("conflict", True):
            # Not a concurrent writer: the store rejects the commit, and would reject it again.
            return StorageError(lost.message, hint=lost.hint)
        return EffectFreeConflict(lost.message, hint="repeat the write")

    def _after_failure(self, plan: CommitPlan, error: Exception) -> CommitRow:
        """The commit, if the publish landed although its reply was lost; else raises the error."""
        try:
            landed = self._branch.refresh().commits.get(plan.lineage.commit_id)
        except (OmnigraphError, OSError, ValueError):
            known = isinstance(error, RecoveryRequired)
            raise error if known else interrupted(plan, error) from error
        if landed is not None:
            return landed
        if isinstance(error, RecoveryRequired):
            raise error
        if plan.changes_contract and not self._has_started:
            try:
                discard_staged(self._kernel.store)
                self._kernel.sidecars.delete(plan.attempt_id)
            except (OmnigraphError, OSError):
                raise interrupted(plan, error) from error
            raise error
        raise interrupted(plan, error) from error

    def _require_branch(self) -> None:
        """Raise an error if the lease was lost during the publish and the branch was deleted.

        A process that took over the branch may have deleted it, and with it the head row with the
        fence that would have rejected the publish. The published commit is then unreachable.
        """
        branch = self._branch
        if branch.where.ref is None or self._lease.is_valid:
            return
        current = self._kernel.manifest.registration(branch.branch).ref
        if current != branch.where.ref:
            raise ReadSetChanged("graph_branch", branch.where.ref, current)

    # --- schema changes ---------------------------------------------------------------------------

    def _stage_schema(self, plan: CommitPlan, schema: SchemaExecution) -> None:
        """Write the new contract under staging names, and create the tables of new types."""
        assert plan.schema is not None
        hit(Failpoint.SCHEMA_APPLY_BEFORE_STAGING_WRITE)
        keep_past(self._kernel.store, schema.replaced)
        write_contract(self._kernel.store, schema.contract, STAGING_SUFFIX)
        hit(Failpoint.SCHEMA_APPLY_AFTER_STAGING_WRITE)
        for new, columns in zip(plan.schema.registrations, schema.created, strict=True):
            self._lease.require_valid()
            self._has_started = True
            where = DatasetRef(self._kernel.table_uri(new.location))
            self._kernel.lance.create(where, columns, None, new.uuid)
            hit(Failpoint.SCHEMA_APPLY_POST_TABLE_COMMIT)

    def _promote(self, plan: CommitPlan) -> None:
        """Move the staged contract of a published change over the accepted one."""
        assert plan.schema is not None
        try:
            hit(Failpoint.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT)
            promote_contract(self._kernel.store, plan.schema.target_hash)
        except (OmnigraphError, OSError) as error:
            raise interrupted(plan, error) from error

    def _where(self, effects: TableEffects) -> DatasetRef:
        return DatasetRef(self._kernel.table_uri(effects.location), effects.ref)


def interrupted(plan: CommitPlan, error: Exception) -> RecoveryRequired:
    """The error for a plan that stopped between its sidecar and its publish."""
    known = error if isinstance(error, OmnigraphError) else OmnigraphError(str(error))
    first = f"{known.hint}; " if known.hint else ""
    what = {"SchemaApply": "schema apply", "SchemaRebase": "schema rebase"}.get(
        plan.writer_kind, "write"
    )
    return RecoveryRequired(
        plan.attempt_id,
        f"the {what} was interrupted after its first effect: {known.message}",
        f"{first}`omnigraph recover`, or the next open, finishes or undoes it; a server does so "
        "by itself",
        outcome="unknown",
    )
