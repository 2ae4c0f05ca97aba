"""Recovery: completes or undoes interrupted writes.

Ownership is determined by transaction uuids and pre-minted commit ids. A sidecar is settled as a
whole, and every step can be repeated by any process. A sidecar whose state cannot be determined is
kept and reported.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Literal

from omnigraph.commit.executor import Executor
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import Lease, branch_scope
from omnigraph.commit.plan import Authority, CommitPlan, Intent, SchemaDelta, TableEffects
from omnigraph.commit.recovery.audit import RecoveryAudit, RecoveryRow
from omnigraph.commit.recovery.examining import Examiner, TableClass, describe
from omnigraph.commit.recovery.settling import (
    RECOVERY_ACTOR,
    Case,
    SchemaRecovery,
    Settlement,
    Settling,
    outcome_of,
)
from omnigraph.commit.recovery.trust import (
    landed_commit,
    refusal,
    require_matches_branch,
    require_own_bytes,
    require_same_change,
    rollback_commit,
)
from omnigraph.commit.schema.change import schema_change
from omnigraph.commit.schema.contract import (
    discard_staged,
    promote_contract,
    staged_contract,
    staged_objects,
)
from omnigraph.commit.schema.lock import (
    has_schema_apply,
    release_lock,
    remove_abandoned_lock,
    require_no_schema_apply,
)
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.effects.requests import concurrently
from omnigraph.errors import (
    Conflict,
    LeaseLost,
    NotFound,
    OmnigraphError,
    RecoveryRequired,
    StorageError,
    UnreadableSidecar,
    WriterBusy,
)
from omnigraph.model.ids import SCHEMA_APPLY_LOCK
from omnigraph.model.upkeep import BlockedBranch
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest import ManifestBranch, ManifestState, TableEntry
from omnigraph.storage.publisher import fence
from omnigraph.storage.transactions import (
    CommitLost,
    CommitNotOwned,
    DatasetRef,
    transactions_since,
)

LOST = (Conflict, CommitLost, CommitNotOwned, LeaseLost)
"""Errors if another process was first or took over: the next pass retries the sidecar."""

Mode = Literal["full", "forward"]
"""`forward` may complete, roll forward and discard; it never restores tables or deletes refs."""


class Recoverer:
    """Settles the sidecars of one graph."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._audit = RecoveryAudit(kernel.lance, kernel.root.uri)
        self._examiner = Examiner(kernel, self._audit)
        self._settling = Settling(kernel, self._audit)

    def run(self, mode: Mode, *, force: bool = False) -> list[Settlement]:
        """Settle sidecars, oldest first; sets aside those that contradict the graph."""
        names = self._kernel.sidecars.names()
        settled = _settle_each(names, partial(self._settle, mode=mode, force=force))
        if mode == "full":
            settled += self._complete()
        return [settlement for settlement in settled if settlement is not None]

    def _complete(self) -> list[Settlement | None]:
        """The work of a full recovery besides sidecars."""
        self._remove_abandoned_staging()
        remove_abandoned_lock(self._kernel)
        late = LateEffects(self._kernel, self._audit.rows())
        return [self._undo_late_effects(branch, late) for branch in late.branches()]

    def heal(self, names: Iterable[str]) -> list[Settlement]:
        """Run a full recovery of these sidecars, for a handle that retries: failures do not end it.

        A failed sidecar is reported as deferred, with the reason.
        """

        def settle(name: str) -> Settlement | None:
            try:
                return self._settle(name, "full", force=False)
            except (OmnigraphError, OSError) as error:
                operation_id = name.rpartition("/")[2].removesuffix(".json")
                return Settlement(operation_id, "deferred", str(error))

        settled = [*_settle_each(names, settle), *self._complete()]
        return [settlement for settlement in settled if settlement is not None]

    def barrier(self, branch: str, operation: str = "writing") -> ManifestBranch:
        """Settle the sidecars of ``branch`` forward before a write; raises if one remains.

        A handle that heals runs a full recovery, as `recover` does.

        Returns the branch at its newest state, read concurrently with the list of sidecars: the
        writer verifies later, as owner, that it is still the newest. Raises `Conflict`, naming
        ``operation``, while the schema is being changed.
        """
        newest, names = concurrently(
            partial(self._kernel.manifest.refreshed, branch),
            self._kernel.sidecars.names,
            threads=self._kernel.is_remote,
        )
        if self._pass(branch, names):
            newest = self._kernel.manifest.refreshed(branch)
        if branch == MAIN and SCHEMA_APPLY_LOCK in self._kernel.manifest.main.state.branches:
            # Only main: other branches keep their schema, whether the apply succeeds or not.
            remove_abandoned_lock(self._kernel)
            newest = self._kernel.manifest.refreshed(branch)
            require_no_schema_apply(self._kernel, operation)
        return newest

    def _pass(self, branch: str, names: list[str]) -> bool:
        """Settle the sidecars of a branch; True if there were any."""
        concerned = []
        for name in names:
            try:
                plan = self._kernel.sidecars.read(name)
            except UnreadableSidecar as refused:
                if refused.is_newer and refused.concerns(branch):
                    raise
                self._refuse(refused)
                continue
            if plan is not None and plan.branch == branch:
                concerned.append(name)
        mode: Mode = "full" if self._kernel.heals else "forward"
        for settlement in _settle_each(concerned, partial(self._settle, mode=mode, force=False)):
            if settlement is None or settlement.needs_nothing_now:
                continue
            raise RecoveryRequired(
                settlement.operation_id,
                f"operation {settlement.operation_id} on {branch} is unfinished: "
                f"{settlement.reason}",
                "reopen the graph read-write, or run `omnigraph recover`",
                outcome="not_begun",
            )
        return bool(concerned)

    # --- one sidecar ------------------------------------------------------------------------------

    def _settle(self, name: str, mode: Mode, force: bool) -> Settlement | None:
        try:
            return self._settle_consistent(name, mode, force)
        except UnreadableSidecar as refused:
            return self._refuse(refused)

    def _refuse(self, refused: UnreadableSidecar) -> Settlement:
        """Move a sidecar aside without acting on it, so that it does not block other operations.

        Its effects, if any, are table versions after the published ones: readers do not see them,
        and every writer checks its tables for them before its first effect. A sidecar of a newer
        format is not moved, since its writer may be alive.
        """
        operation_id = str(refused.details["operation_id"])
        if refused.is_newer:
            return Settlement(operation_id, "blocked", refused.message)
        place = self._kernel.sidecars.set_aside(refused)
        return Settlement(operation_id, "set_aside", f"{refused.message}; its bytes are in {place}")

    def _settle_consistent(self, name: str, mode: Mode, force: bool) -> Settlement | None:
        plan = self._kernel.sidecars.read(name)
        if plan is None:
            return None
        with self._owned(plan.branch, plan.lease.scope, plan.attempt_id) as lease:
            if lease is None:
                return Settlement(plan.attempt_id, "live", "its writer is still running")
            # Its writer may have finished during the wait for the gates.
            current = self._kernel.sidecars.read(name)
            if current is None:
                return None
            branch = self._branch_of(current)
            if branch is not None:
                settled = self._settle_owned(current, branch, lease, mode, force)
                if settled.is_settled and current.changes_contract:
                    release_lock(self._kernel, lease)
                return settled
        # The rest needs main's gate and lease, which may not be awaited while holding others.
        return self._discard(name, plan.attempt_id)

    @contextmanager
    def _owned(self, branch: str, scope: str, attempt_id: str) -> Iterator[Lease | None]:
        """Own the branch of a sidecar; yields None while a live owner has it."""
        with self._kernel.gates.write([branch]):
            lease = self._kernel.leases.try_hold(scope, attempt_id)
            try:
                yield lease
            finally:
                if lease is not None:
                    lease.release()

    def _settle_owned(
        self, plan: CommitPlan, branch: ManifestBranch, lease: Lease, mode: Mode, force: bool
    ) -> Settlement:
        # Check before the fence, which writes: an inconsistent sidecar must not cause a write.
        self._require_consistent(plan, branch.refresh())
        self._remove_cut_off(plan, branch.state)
        require_own_bytes(plan, self._kernel)
        if lease.was_taken_over or plan.lease.owner_id != lease.owner_id:
            # The writer of the sidecar may be slow instead of dead. After the fence it cannot
            # publish, so the state read below stays valid.
            fence(branch, lease.epoch)
        state = branch.refresh()
        self._require_consistent(plan, state)
        schema = self._settling.schema(plan)
        landed = landed_commit(plan, state)
        rolled_back = rollback_commit(plan, state) if landed is None else None
        if landed or rolled_back:
            # Before the sidecar is removed, its commit has to be on disk, also if another
            # process published it.
            self._kernel.lance.flush_versions(branch.where, state.version - 1, state.version)
        if landed is not None:
            head = state.commits[state.head.commit_id]
            # Not if a later schema change has replaced it, which began with a complete contract.
            if schema is not None and head.schema_hash == landed.schema_hash:
                schema.complete()
            forward = tuple(
                outcome_of(t, t.expected_version, t.post_commit_pin) for t in plan.tables
            )
            return self._settling.finish(
                plan, "RolledForward", landed.commit_id, "finished", forward
            )
        if rolled_back is not None:
            if schema is not None:
                schema.undo()
            return self._settling.finish(plan, "RolledBack", rolled_back.commit_id, "finished")
        if plan.versions_only:
            plan = self._with_identities(plan, branch)
        tables = self._examiner.examine(plan, state)
        case = Case(plan, branch, state, tables, lease)
        try:
            return self._decide(case, mode, force)
        except LOST as lost:
            return Settlement(plan.attempt_id, "deferred", lost.message)

    def _require_consistent(self, plan: CommitPlan, state: ManifestState) -> None:
        """Raise `UnreadableSidecar` for a plan that the graph contradicts."""
        require_matches_branch(plan, state)
        if plan.schema is None or {plan.lineage.commit_id, plan.rollback_commit_id} & set(
            state.commits
        ):
            return
        if not plan.changes_contract:
            self._require_rebase(plan, plan.schema, state)
            return
        staged, accepted = staged_contract(self._kernel.store), self._kernel.accepted_schema()
        if (
            staged is not None
            and staged.schema_hash == plan.schema.target_hash
            and accepted.schema_hash == plan.authority.schema_hash
        ):
            head = state.head_snapshot()
            change = schema_change(accepted.catalog, staged.catalog, head)
            require_same_change(plan, plan.schema, change)

    def _require_rebase(self, plan: CommitPlan, delta: SchemaDelta, state: ManifestState) -> None:
        """Refuse a rebase unless it leads from the branch's schema to one of main, by hash."""
        positions = self._kernel.manifest.main.refresh().schema_positions
        old, new = (self._kernel.schema_of(each) for each in (state.head_schema, delta.target_hash))
        if old is None or new is None or delta.target_hash not in positions:
            raise refusal(plan, "leads to a schema that main never had")
        change = schema_change(old.catalog, new.catalog, state.head_snapshot())
        require_same_change(plan, delta, change)

    def _remove_cut_off(self, plan: CommitPlan, state: ManifestState) -> None:
        """Remove version files that a power loss has truncated.

        These are after the published versions, so no reader has seen them.
        """
        for table in plan.tables:
            pin = state.pins.get(table.identity)
            if table.ref == plan.ref:
                # A fork that is being created has no published version.
                above = pin.version if pin is not None and pin.ref == table.ref else 0
                where = DatasetRef(self._kernel.table_uri(table.location), table.ref)
                self._kernel.lance.remove_cut_off(where, above)

    def _branch_of(self, plan: CommitPlan) -> ManifestBranch | None:
        """The branch of a sidecar; None if it was deleted, or created again with another ref."""
        if plan.ref is None:
            return self._kernel.manifest.main
        try:
            branch = self._kernel.manifest.branch(plan.branch)
        except NotFound:
            return None
        return branch if branch.where.ref == plan.ref else None

    def _with_identities(self, plan: CommitPlan, branch: ManifestBranch) -> CommitPlan:
        """The plan of a sidecar in the older format, with the current identities of its tables."""
        registered = {row.location: row for row in branch.state.tables.values()}
        tables = []
        for table in plan.tables:
            row = registered.get(table.location)
            if row is None or row.table_key != table.table_key:
                raise refusal(
                    plan,
                    f"names {table.table_key} at {table.location}, which is not registered there",
                )
            tables.append(replace(table, identity=row.identity))
        head = branch.state.head_snapshot()
        commit = self._settling.commit(plan.lineage.commit_id, branch, plan.attempt_id)
        # It has no authority: the fence and the publish make sure that nothing moves meanwhile.
        authority = Authority.of(head, commit.schema_hash)
        return replace(plan, tables=tuple(tables), lineage=commit, authority=authority)

    def _discard(self, name: str, attempt_id: str) -> Settlement | None:
        """Remove the sidecar of an operation whose branch was deleted with all its effects."""
        main = self._kernel.manifest.main
        try:
            with (
                self._kernel.gates.write([MAIN]),
                self._kernel.leases.hold(branch_scope(MAIN), attempt_id) as lease,
            ):
                plan = self._kernel.sidecars.read(name)
                if plan is None:
                    return None
                hit(Failpoint.RECOVERY_ORPHAN_DISCARD_AUDIT_APPEND)
                rollback_commit(plan, main.refresh())
                self._kernel.fence_if_taken_over(main, lease)
                main.refresh()
                commit = self._settling.commit(plan.rollback_commit_id, main, attempt_id)
                discarding = plan.compensation(commit)
                commit_id = Executor(self._kernel, main, lease).publish(discarding, ()).commit_id
                return self._settling.finish(
                    plan, "OrphanedBranchDiscarded", commit_id, "discarded"
                )
        except (*LOST, WriterBusy) as lost:
            return Settlement(attempt_id, "deferred", lost.message)

    # --- decision ---------------------------------------------------------------------------------

    def _decide(self, case: Case, mode: Mode, force: bool) -> Settlement:
        plan, tables = case.plan, case.tables
        kinds = {table.kind for table in tables}
        if TableClass.INVARIANT_VIOLATION in kinds:
            raise StorageError(
                f"operation {plan.attempt_id}: {describe(tables)}",
                hint="versions that were published are missing; restore the tables from a copy",
            )
        if TableClass.FOREIGN_EFFECT in kinds and not (force and mode == "full"):
            return Settlement(
                plan.attempt_id,
                "blocked",
                f"{describe(tables)}; `omnigraph recover --force --confirm` rolls back through it",
            )
        if plan.schema is not None and plan.changes_contract:
            return self._decide_schema(case, plan.schema, kinds, mode)
        has_forks = any(table.is_idle_fork for table in tables)
        if kinds <= {TableClass.NO_MOVEMENT} and not has_forks:
            return self._settling.finish(plan, "RolledBack", None, "rolled_back")
        done = {TableClass.ALREADY_PUBLISHED, TableClass.NO_MOVEMENT}
        if TableClass.ALREADY_PUBLISHED in kinds and kinds <= done:
            return self._settling.finish(plan, "RolledForward", None, "finished")
        if kinds == {TableClass.ROLLED_PAST_EXPECTED} and self._authority_holds(case):
            return self._settling.roll_forward(case)
        if mode == "forward":
            return Settlement(plan.attempt_id, "deferred", describe(tables))
        return self._settling.roll_back(case)

    def _decide_schema(
        self, case: Case, delta: SchemaDelta, kinds: set[TableClass], mode: Mode
    ) -> Settlement:
        """Decide on a schema change: publishes it only if its new tables and contract exist."""
        plan, schema = case.plan, SchemaRecovery(self._kernel, delta)
        if schema.foreign:
            return Settlement(
                plan.attempt_id,
                "blocked",
                f"another writer has made a table for {', '.join(schema.foreign)}; move it away",
            )
        is_whole = kinds <= {TableClass.ROLLED_PAST_EXPECTED} and schema.is_ready()
        if is_whole and self._authority_holds(case):
            return self._settling.roll_forward(case)
        if mode == "forward":
            reason = describe(case.tables) or "only part of it was done"
            return Settlement(plan.attempt_id, "deferred", reason)
        return self._settling.roll_back(case)

    def _authority_holds(self, case: Case) -> bool:
        """Whether the state that the operation was prepared on is still current."""
        authority = case.plan.authority
        head = case.state.commits[case.state.head.commit_id]
        return (head.commit_id, head.schema_hash) == (
            authority.head_commit_id,
            authority.schema_hash,
        )

    def _remove_abandoned_staging(self) -> None:
        """Remove a staged contract without a sidecar; complete it if it is the published one.

        The sidecar may have been set aside after the publish: then the head names the schema.
        """
        if not staged_objects(self._kernel.store):
            return
        attempt_id = self._kernel.ids.ulid()
        with self._owned(MAIN, branch_scope(MAIN), attempt_id) as lease:
            if lease is None:
                return
            self._kernel.fence_if_taken_over(self._kernel.manifest.main, lease)
            if has_schema_apply(self._kernel):
                return
            published = self._kernel.manifest.main.refresh().head_snapshot().commit.schema_hash
            staged = staged_contract(self._kernel.store)
            if staged is not None and staged.schema_hash == published:
                promote_contract(self._kernel.store, published)
            else:
                discard_staged(self._kernel.store)

    # --- late effects -----------------------------------------------------------------------------

    def _undo_late_effects(self, branch: ManifestBranch, late: LateEffects) -> Settlement | None:
        """Restore tables that late commits of undone operations moved ahead, as one operation."""
        attempt_id = self._kernel.ids.ulid()
        scope = branch_scope(branch.branch)
        with self._owned(branch.branch, scope, attempt_id) as lease:
            if lease is None:
                return None
            try:
                current = self._kernel.manifest.refreshed(branch.branch)
            except NotFound:
                return None
            if current is not branch:
                return None
            self._kernel.fence_if_taken_over(branch, lease)
            tables = late.tables(branch)
            if not tables or self._has_pending(branch):
                return None
            head = branch.state.head_snapshot()
            capture = self._kernel.capture(branch, head.commit.schema_hash, head)
            intent = Intent("Recovery", "recovery", RECOVERY_ACTOR)
            # A plan without transactions can only be rolled back.
            plan = self._kernel.plan(capture, lease, intent, tables, attempt_id=attempt_id)
            self._kernel.sidecars.write(plan)
            return self._settle_owned(plan, branch, lease, "full", force=False)

    def _has_pending(self, branch: ManifestBranch) -> bool:
        """Whether an operation on the branch is unsettled, whose tables must not be restored."""
        try:
            return any(True for _ in self._kernel.sidecars.pending_on(branch.branch))
        except UnreadableSidecar:
            return True  # written during this run, or of a newer format


def _settle_each(
    names: Iterable[str], settle: Callable[[str], Settlement | None]
) -> list[Settlement | None]:
    """Settle sidecars in order, and blocked ones a second time.

    A writer that lost its lease may write its sidecar after the next owner has committed to the
    same tables. Until the next owner's sidecar is settled, its commits are foreign effects for the
    first one.
    """
    settled: dict[str, Settlement | None] = {}
    left = list(names)
    while left:
        settled |= {name: settle(name) for name in left}
        blocked = [name for name in left if _is_blocked(settled[name])]
        left = blocked if len(blocked) < len(left) else []
    return list(settled.values())


def _is_blocked(settlement: Settlement | None) -> bool:
    return settlement is not None and settlement.outcome == "blocked"


class LateEffects:
    """Finds tables that late commits of undone operations have moved ahead of their pins."""

    def __init__(self, kernel: Kernel, audit: Iterable[RecoveryRow]) -> None:
        self._kernel = kernel
        retired = [table for row in audit for table in row.retired]
        self._uuids = frozenset(uuid for table in retired for uuid in table.uuids)
        self._places = {(table.location, table.ref) for table in retired}

    def branches(self) -> list[ManifestBranch]:
        """The live branches with such tables."""
        if not self._places:
            return []
        manifest = self._kernel.manifest
        refs = {ref for _, ref in self._places}
        names = [row.name for row in manifest.main.refresh().branches.values() if row.ref in refs]
        found = []
        for name in [MAIN, *sorted(names)]:
            try:
                branch = manifest.refreshed(name)
                if self.tables(branch):
                    found.append(branch)
            except NotFound:
                # The branch was deleted concurrently.
                continue
        return found

    def tables(self, branch: ManifestBranch) -> tuple[TableEffects, ...]:
        """The tables of a branch that are ahead of their pin by retired transactions only."""
        ref = branch.where.ref
        return tuple(
            TableEffects.of(entry, ref, (), self._kernel.ids.ulid())
            for entry in branch.state.head_snapshot().tables.values()
            if (entry.location, ref) in self._places and self._ran_ahead(entry, ref)
        )

    def _ran_ahead(self, entry: TableEntry, ref: str | None) -> bool:
        where = DatasetRef(self._kernel.table_uri(entry.location), ref)
        if entry.ref != ref and self._kernel.forks.state(where) != "made":
            return False
        chain = transactions_since(self._kernel.lance.open(where), entry.version)
        return bool(chain) and self._uuids.issuperset(chain)


# --- recovery by a handle that stays open, such as a server's -------------------------------------
#
# A dead process, a full disk or an unreachable store can leave a sidecar that only a full recovery
# settles. A handle that heals runs one at the barrier of the next write to the branch, and in the
# background, so that the branch is unblocked before the next write. Both own the branch meanwhile;
# the sidecar of a live writer is not touched.

log = logging.getLogger(__name__)

EVERY_SECONDS = 5.0
"""The interval of checks; each costs one list call while nothing is pending."""
STOP_SECONDS = 30.0
"""How long `stop` waits for a running recovery."""


class Healer:
    """Recovers one open graph in the background, and knows which branches are blocked."""

    def __init__(self, kernel: Kernel, every_seconds: float = EVERY_SECONDS) -> None:
        self._kernel = kernel
        self._every_seconds = every_seconds
        self._woken = threading.Event()
        self._is_stopped = False
        self.blocked: tuple[BlockedBranch, ...] = ()
        """The blocked branches by the last check; replaced atomically."""
        self._seen: frozenset[str] = frozenset()
        """The sidecars that the last check found."""
        # A daemon thread, so that it does not keep the program from ending.
        self._thread = threading.Thread(target=self._watch, name="omnigraph-heal", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Check now, and recover what is pending."""
        self._woken.set()

    def stop(self, seconds: float = STOP_SECONDS) -> None:
        """End the checks, and wait for a running one."""
        self._is_stopped = True
        self._woken.set()
        if self._thread is not threading.current_thread():
            self._thread.join(seconds)

    def _watch(self) -> None:
        while not self._is_stopped:
            is_urgent = self._woken.wait(self._every_seconds)
            self._woken.clear()
            if not self._is_stopped:
                self._check_pending(is_urgent)

    def _check_pending(self, is_urgent: bool) -> None:
        """Recover sidecars that the last check found, too: live writers have finished by now."""
        try:
            names = self._kernel.sidecars.names()
            due = [name for name in names if is_urgent or name in self._seen]
            self._seen = frozenset(names)
            if due or self.blocked:
                self.blocked = self._blocked_by(Recoverer(self._kernel).heal(due))
        except Exception:
            # The store may be unreachable or full, which writes report; the next check tries again.
            log.warning("recovery in the background failed", exc_info=True)

    def _blocked_by(self, settled: list[Settlement]) -> tuple[BlockedBranch, ...]:
        reasons = {each.operation_id: each for each in settled if not each.needs_nothing_now}
        since = {each.operation_id: each.since_us for each in self.blocked}
        found = []
        for name in self._kernel.sidecars.names() if reasons else ():
            operation_id = name.rpartition("/")[2].removesuffix(".json")
            settlement = reasons.get(operation_id)
            if settlement is None:
                continue
            branch: str | None
            try:
                plan = self._kernel.sidecars.read(name)
                branch = None if plan is None else plan.branch
            except UnreadableSidecar as refused:
                branch = refused.branch
            began = since.get(operation_id, self._kernel.clock.wall_us())
            found.append(BlockedBranch(branch, operation_id, settlement.reason, began))
        return tuple(found)
