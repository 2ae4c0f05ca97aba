"""The commands of a cluster, for the command line and for Python.

A command does not raise for errors that an operator can fix: it returns an answer with diagnostics,
and has then applied nothing, or recorded its progress.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

from omnigraph.cluster.answers import (
    Applied,
    Approved,
    ClusterStatus,
    DesiredRevision,
    Planned,
    Refreshed,
    ResourceSummary,
    StateObservations,
    Unlocked,
    Validation,
)
from omnigraph.cluster.apply import ApplyRun, mark_consumed
from omnigraph.cluster.config import FILE_NAME, storage_of
from omnigraph.cluster.desired import Desired, graph_id_of, kind_of, load_desired
from omnigraph.cluster.diagnostics import ClusterFindings, sentence
from omnigraph.cluster.ledger import (
    STATE,
    Ledger,
    StoredLedger,
    decoded,
    read_ledger,
    write_ledger,
)
from omnigraph.cluster.lock import LOCK, HeldLock, break_lock, hold_lock, now_text, read_lock
from omnigraph.cluster.observing import (
    OPENED_AT_ONCE,
    StorageRoot,
    observe_graphs,
    recompose,
    see_graph,
    verify_contents,
)
from omnigraph.cluster.plan import (
    Change,
    ClusterPlan,
    GraphMigration,
    differences,
    empty_ledger,
    make_plan,
)
from omnigraph.cluster.records import (
    Approval,
    read_approvals,
    remove_sidecars,
    write_approval,
)
from omnigraph.cluster.recovery import Sweep, pending_sidecars, sweep
from omnigraph.effects.clock import MINT
from omnigraph.effects.requests import concurrently
from omnigraph.errors import ClusterRefused, OmnigraphError
from omnigraph.model.ids import check_declared_actor


class Cluster:
    """A declared deployment, by the directory of its `cluster.yaml`."""

    def __init__(self, directory: str | Path = ".") -> None:
        self.directory = Path(directory)

    # --- reading commands -------------------------------------------------------------------------

    def validate(self) -> Validation:
        """Check the files only: the ledger is not read and no graph is opened."""
        findings = ClusterFindings()
        desired = load_desired(self.directory, findings)
        resources = {} if desired is None else desired.resources
        for graph in () if desired is None else desired.config.graphs.values():
            if not graph.external_blobs:
                findings.warning(
                    "external_blob_ingress_default_deny",
                    f"graphs.{graph.graph_id}.external_blobs",
                    f"graph '{graph.graph_id}' takes no external blobs; `external_blobs.allow` "
                    "names the folders that it may take them from",
                )
        return Validation(
            **self._common(findings),
            config_file=str(self.directory / FILE_NAME),
            resource_digests={address: each.digest for address, each in resources.items()},
            resources=tuple(
                ResourceSummary(
                    each.address,
                    each.kind,
                    each.digest,
                    None if each.path is None else str(each.path),
                )
                for each in resources.values()
            ),
            dependencies=_dependencies(desired),
        )

    def plan(self) -> Planned:
        """Compute what `apply` would do; graphs are opened only to preview schema migrations."""
        findings = ClusterFindings()
        run = _Run(self.directory, findings)
        plan: ClusterPlan | None = None
        with findings.collecting():
            run.load()
            with run.locked("plan"):
                run.read()
                plan = self._planned(run)
        desired = run.desired
        return Planned(
            **self._common(findings),
            desired_revision=run.revision,
            resource_digests={} if desired is None else desired.digests,
            dependencies=_dependencies(desired),
            state_observations=run.observations(),
            changes=() if plan is None else plan.changes,
            blast_radius=() if plan is None else plan.blast_radius,
            approvals_required=() if plan is None else plan.gates,
        )

    def _planned(self, run: _Run) -> ClusterPlan:
        pending_sidecars(run.place, run.findings)
        plan = make_plan(run.wanted, run.ledger, run.approvals(), run.findings)
        return plan.with_changes(_previewed(run, plan))

    def status(self) -> ClusterStatus:
        """Show the ledger, and whether the catalog has all contents that it names."""
        findings = ClusterFindings()
        run = _Run(self.directory, findings)
        with findings.collecting():
            run.place_only()
            run.read()
            if run.stored is None:
                findings.warning("state_missing", STATE, _NO_LEDGER)
            verify_contents(run.place, run.ledger, findings, mends=False)
        return ClusterStatus(
            **self._common(findings), state_observations=run.observations(), **run.sections()
        )

    # --- writing commands -------------------------------------------------------------------------

    def apply(self, *, actor: str | None = None, plan: str | Path | None = None) -> Applied:
        """Apply the difference between the files and the ledger.

        ``actor`` is recorded with every change. ``plan`` is the file of a reviewed plan: if the
        files or the ledger have changed since, nothing is applied.
        """
        findings = ClusterFindings()
        run = _Run(self.directory, findings, actor)
        done: ClusterPlan | None = None
        is_written = False
        with findings.collecting():
            _check_actor(actor)
            run.load()
            with run.locked("apply"):
                run.read()
                if plan is not None:
                    _require_current(run, Path(plan))
                run.require_ledger()
                run.ledger.require_intact()
                done, is_written = self._applied(run)
        changes = () if done is None else done.changes
        return Applied(
            **self._common(findings),
            actor=actor,
            desired_revision=run.revision,
            state_observations=run.observations(),
            changes=changes,
            applied_count=sum(each.is_applied for each in changes),
            deferred_count=sum(each.disposition == "deferred" for each in changes),
            converged=done is not None and run.converged,
            state_written=is_written,
            resource_statuses=run.sections()["resource_statuses"],
        )

    def _applied(self, run: _Run) -> tuple[ClusterPlan, bool]:
        assert run.stored is not None
        ledger = run.ledger.model_copy(deep=True)
        swept = sweep(run.place, ledger, run.findings)
        approvals = read_approvals(run.place.store, ledger, run.findings)
        plan = make_plan(run.wanted, ledger, approvals, run.findings, pending=swept.kept)
        execution = ApplyRun(run.place, plan, ledger, run.stored, run.findings, run.actor)
        done = execution.run()
        for change in done.changes:
            _warn_of_waiting(change, run.findings)
        is_written = run.write(ledger)
        execution.finish()
        _settle(run, swept)
        run.converged = not run.findings.has_errors and not any(differences(run.wanted, run.ledger))
        return done, is_written

    def approve(self, address: str, *, actor: str | None) -> Approved:
        """Approve the removal of a graph, for the current declaration and ledger."""
        findings = ClusterFindings()
        run = _Run(self.directory, findings, actor)
        approval: Approval | None = None
        with findings.collecting():
            if actor is None:
                raise ClusterRefused(
                    "approval_not_required",
                    address,
                    "an approval needs an actor",
                    hint="pass `--as ACTOR`, or set `operator.actor` in your configuration",
                )
            _check_actor(actor)
            run.load()
            with run.locked("approve"):
                run.read()
                run.require_ledger()
                approval = self._approval(run, address, actor)
                write_approval(run.place.store, approval)
        return Approved(
            **self._common(findings),
            approval_id=None if approval is None else approval.approval_id,
            resource=None if approval is None else approval.resource,
            operation=None if approval is None else approval.operation,
            approved_by=None if approval is None else approval.approved_by,
        )

    def _approval(self, run: _Run, address: str, actor: str) -> Approval:
        plan = make_plan(run.wanted, run.ledger, (), run.findings)
        gate = next((each for each in plan.gates if each.resource == address), None)
        change = plan.of(address)
        if gate is None or change is None:
            waiting = ", ".join(each.resource for each in plan.gates) or "nothing"
            raise ClusterRefused(
                "approval_not_required",
                address,
                f"no change of '{address}' waits for an approval; waiting: {waiting}",
                hint="`omnigraph cluster plan` shows what does",
            )
        return Approval(
            schema_version=1,
            approval_id=MINT.ulid(),
            resource=address,
            operation="delete",
            reason=gate.reason,
            bound_config_digest=run.wanted.config_digest,
            bound_before_digest=change.before_digest,
            bound_after_digest=change.after_digest,
            approved_by=actor,
            created_at=now_text(),
        )

    def refresh(self) -> Refreshed:
        """Compare graphs and catalog with the ledger, and record their actual state in it."""
        return self._observed("refresh")

    def import_(self) -> Refreshed:
        """Create a ledger with the declared graphs that exist, and nothing else."""
        return self._observed("import")

    def _observed(self, operation: Literal["refresh", "import"]) -> Refreshed:
        findings = ClusterFindings()
        run = _Run(self.directory, findings)
        with findings.collecting():
            run.load()
            with run.locked(operation):
                run.read()
                if operation == "refresh":
                    run.require_ledger()
                elif run.stored is not None:
                    raise ClusterRefused(
                        "state_already_exists",
                        STATE,
                        f"there is a ledger at {run.place.root.join(STATE)}",
                        hint="`omnigraph cluster refresh` brings it up to date",
                    )
                self._observe(run, operation)
        return Refreshed(
            **self._common(findings),
            operation=operation,
            state_observations=run.observations(),
            **run.sections(),
        )

    def _observe(self, run: _Run, operation: str) -> None:
        is_import = operation == "import"
        run.ledger.require_intact()
        ledger = run.ledger.model_copy(deep=True)
        swept = sweep(run.place, ledger, run.findings)
        verify_contents(run.place, ledger, run.findings, mends=True)
        observe_graphs(run.place, run.wanted, ledger, run.findings, importing=is_import)
        recompose(ledger)
        if is_import and run.findings.has_errors:
            return  # too little is known for a ledger
        run.write(ledger, always=is_import)
        _settle(run, swept)

    def force_unlock(self, lock_id: str) -> Unlocked:
        """Remove the lock with this id, whose holder has ended."""
        findings = ClusterFindings()
        run = _Run(self.directory, findings)
        is_removed = False
        with findings.collecting():
            run.place_only()
            run.held = break_lock(run.place.store, lock_id)
            is_removed = True
        return Unlocked(
            **self._common(findings),
            state_observations=run.observations(),
            lock_removed=is_removed,
        )

    def _common(self, findings: ClusterFindings) -> dict[str, Any]:
        return {
            "ok": not findings.has_errors,
            "config_dir": str(self.directory),
            "diagnostics": tuple(findings),
        }


_NO_LEDGER = "there is no ledger: nothing was applied yet"


class _Run:
    """The files, ledger and approvals that one command has read."""

    def __init__(
        self, directory: Path, findings: ClusterFindings, actor: str | None = None
    ) -> None:
        self.directory = directory
        self.findings = findings
        self.actor = actor
        self.desired: Desired | None = None
        self.stored: StoredLedger | None = None
        self.held: HeldLock | None = None
        self.lock_id: str | None = None
        self.converged = False
        self._place: StorageRoot | None = None

    @property
    def place(self) -> StorageRoot:
        """The storage root."""
        assert self._place is not None
        return self._place

    @property
    def wanted(self) -> Desired:
        """The desired state; call only after it was read without errors."""
        assert self.desired is not None
        return self.desired

    @property
    def ledger(self) -> Ledger:
        """The stored ledger, or an empty one."""
        return empty_ledger() if self.stored is None else self.stored.ledger

    @property
    def revision(self) -> DesiredRevision:
        """The digest of the desired state, if it was read."""
        return DesiredRevision(None if self.desired is None else self.desired.config_digest)

    def load(self) -> None:
        """Read the files; notes all errors and raises the first."""
        desired = load_desired(self.directory, self.findings)
        if desired is not None:
            self._place = StorageRoot.at(desired.config.storage)
        first = next((each for each in self.findings if each.severity == "error"), None)
        if first is not None:
            raise ClusterRefused(first.code, first.path, first.message)
        self.desired = desired

    def place_only(self) -> None:
        """Find the storage root, even if the file has other errors."""
        self._place = StorageRoot.at(storage_of(self.directory))

    @contextmanager
    def locked(self, operation: str) -> Iterator[None]:
        """Hold the lock within the block."""
        locks = self.wanted.config.locks
        store = self.place.store
        with hold_lock(
            store, operation, self.findings, actor=self.actor, locks=locks
        ) as self.lock_id:
            yield

    def read(self) -> None:
        """Read the ledger, if it exists."""
        self.stored = read_ledger(self.place.store)

    def require_ledger(self) -> None:
        """Raise `ClusterRefused` if there is no ledger."""
        if self.stored is None:
            raise ClusterRefused(
                "state_missing", STATE, _NO_LEDGER, hint="begin with `omnigraph cluster import`"
            )

    def approvals(self) -> list[Approval]:
        """The unused approvals."""
        return read_approvals(self.place.store, self.ledger, self.findings)

    def write(self, ledger: Ledger, *, always: bool = False) -> bool:
        """Write a ledger if it differs from the stored one; returns whether it did."""
        if not always and self.stored is not None and ledger == self.stored.ledger:
            return False
        self.stored = write_ledger(self.place.store, self.stored, ledger)
        return True

    def sections(self) -> dict[str, Any]:
        """The parts of the ledger that answers contain."""
        document = self.ledger.to_dict()
        return {
            "resource_digests": {
                a: each.digest for a, each in sorted(self.ledger.resources.items())
            },
            "resource_statuses": document["resource_statuses"],
            "observations": document["observations"],
        }

    def observations(self) -> StateObservations:
        """The known state of ledger and lock."""
        if self._place is None:
            return StateObservations(state_path=STATE, lock_path=LOCK, state_found=False)
        held = self.held
        if held is None and self.lock_id is None:
            try:
                held = read_lock(self.place.store)
            except ClusterRefused as refused:
                self.findings.warning(refused.diagnostic, refused.path, sentence(refused))
        root, stored = self.place.root, self.stored
        found = StateObservations(
            state_path=root.join(STATE),
            lock_path=root.join(LOCK),
            state_found=stored is not None,
            applied_config_digest=self.ledger.applied_revision.config_digest,
            state_revision=self.ledger.state_revision,
            state_cas=None if stored is None else stored.cas,
            resource_count=len(self.ledger.resources),
            lock_acquired=self.lock_id is not None,
            acquired_lock_id=self.lock_id,
        )
        if held is None:
            return found
        return replace(
            found,
            locked=True,
            lock_id=held.record.lock_id,
            lock_operation=held.record.operation,
            lock_created_at=held.record.created_at,
            lock_pid=held.record.pid,
            lock_age_seconds=held.age_seconds,
        )


def _dependencies(desired: Desired | None) -> tuple[Mapping[str, str], ...]:
    pairs = () if desired is None else desired.dependencies
    return tuple({"from": source, "to": target} for source, target in pairs)


def _check_actor(actor: str | None) -> None:
    if actor is not None:
        check_declared_actor(actor, where="the actor of a cluster command")


def _previewed(run: _Run, plan: ClusterPlan) -> list[Change]:
    """The changes of schemas with their migration steps."""
    changes = [
        each
        for each in plan.changes
        if kind_of(each.resource) == "schema" and each.operation == "update"
    ]
    work = [partial(_preview, run, each) for each in changes]
    return list(concurrently(*work, threads=True, work_max=OPENED_AT_ONCE))


def _preview(run: _Run, change: Change) -> Change:
    graph_id = graph_id_of(change.resource)
    assert graph_id is not None
    path = run.wanted.resources[change.resource].path
    assert path is not None
    seen = see_graph(run.place, graph_id)
    if seen.graph is None:
        reason = seen.error or f"there is nothing at {run.place.graph_uri(graph_id)}"
    else:
        try:
            planned = seen.graph.plan_schema(path).plan
            return replace(change, migration=GraphMigration(**_migration(planned.to_json())))
        except (OmnigraphError, OSError) as problem:
            reason = sentence(problem)
    run.findings.warning("schema_preview_unavailable", change.resource, reason)
    return change


def _migration(document: Mapping[str, Any]) -> dict[str, Any]:
    return {"supported": document["supported"], "steps": tuple(document["steps"])}


def _warn_of_waiting(change: Change, findings: ClusterFindings) -> None:
    if change.disposition == "deferred":
        findings.warning(
            "apply_unsupported_change",
            change.resource,
            f"this version does not {change.operation} it; it is left as it is",
        )
    elif change.disposition == "blocked":
        findings.warning(
            "apply_dependency_blocked",
            change.resource,
            f"waits: {change.message or change.reason}",
        )


def _settle(run: _Run, swept: Sweep) -> None:
    """Remove the sidecars whose outcome the ledger records, and mark their approvals as used."""
    remove_sidecars(run.place.store, swept.retired, run.findings)
    if swept.consumed:
        for approval in read_approvals(run.place.store, empty_ledger(), run.findings):
            operation_id = swept.consumed.get(approval.approval_id)
            if operation_id is not None:
                mark_consumed(run.place, approval, operation_id, run.findings)


PLAN_VERSION = 1


def plan_document(planned: Planned) -> dict[str, Any]:
    """A plan as a file, for `apply --plan`."""
    return {
        "plan_version": PLAN_VERSION,
        "config_digest": planned.desired_revision.config_digest,
        "state_cas": planned.state_observations.state_cas,
        "changes": [each.to_dict() for each in planned.changes],
    }


def _require_current(run: _Run, path: Path) -> None:
    """Raise `ClusterRefused` if a plan belongs to other files or another ledger."""
    try:
        data = path.read_bytes()
    except OSError as problem:
        raise ClusterRefused("invalid_plan_file", str(path), sentence(problem)) from None
    document = decoded(data, str(path), "invalid_plan_file")
    if document.get("plan_version") != PLAN_VERSION:
        raise ClusterRefused(
            "invalid_plan_file",
            str(path),
            f"{path} is no plan of version {PLAN_VERSION}",
            hint="make one with `omnigraph cluster plan --out FILE`",
        )
    stale = []
    if document.get("config_digest") != run.wanted.config_digest:
        stale.append("the files")
    if document.get("state_cas") != (None if run.stored is None else run.stored.cas):
        stale.append("the ledger")
    if stale:
        raise ClusterRefused(
            "plan_stale",
            str(path),
            f"{' and '.join(stale)} changed since the plan was made; nothing was applied",
            hint="make a new one with `omnigraph cluster plan --out FILE`, and look at it",
        )
