"""Executing a plan: graphs first, then contents, then deletions, and one write of the ledger.

The order of steps is the protocol. A sidecar is written before a graph is changed, and stays until
the ledger records the outcome. Contents are stored under their digest, and are unused until the
ledger names them. After a failure no further change of a graph is begun; changes that do not depend
on it continue.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import field

from omnigraph.cluster.desired import Resource, graph_id_of, kind_of
from omnigraph.cluster.diagnostics import ClusterFindings, sentence
from omnigraph.cluster.digests import digest_of
from omnigraph.cluster.ledger import Ledger, Status, StoredLedger
from omnigraph.cluster.lock import now_text
from omnigraph.cluster.observing import StorageRoot, recompose, see_graph
from omnigraph.cluster.plan import NOT_APPLIED, Change, ClusterPlan, applied_form
from omnigraph.cluster.records import (
    Approval,
    RecoverySidecar,
    content_key,
    has_content,
    remove_sidecars,
    write_approval,
    write_sidecar,
)
from omnigraph.cluster.recovery import forget_graph
from omnigraph.effects.clock import MINT
from omnigraph.effects.failpoints import Failpoint, hit
from omnigraph.errors import ClusterRefused, ExportInProgress, OmnigraphError
from omnigraph.graph import delete_graph, init, open_graph
from omnigraph.model.records import dataclass
from omnigraph.syntax.tokens import Source


@dataclass
class ApplyRun:
    """One run of a plan. `run` makes the changes and updates ``ledger``; the caller writes it."""

    place: StorageRoot
    plan: ClusterPlan
    ledger: Ledger
    """The new ledger; a copy of the stored one."""
    base: StoredLedger
    findings: ClusterFindings
    actor: str | None
    operation_id: str = field(default_factory=MINT.ulid)
    completed: list[str] = field(default_factory=list)
    """Sidecars of completed operations."""
    deleted: dict[str, Approval] = field(default_factory=dict)
    """By address, the approvals under which graphs were removed."""
    has_failed: bool = False
    """Whether a change of a graph failed: no further one is begun."""

    def run(self) -> ClusterPlan:
        """Execute the plan, and return it with the outcome of each change.

        Raises `ClusterRefused` if a content cannot be stored; the ledger must not be written then.
        """
        for change in self._moving("graph", "create"):
            self._attempt(change, self._create, "graph_create")
        for change in self._moving("schema", "update"):
            self._attempt(change, self._apply_schema, "schema_apply")
        self._store_contents()
        hit(Failpoint.CLUSTER_APPLY_POST_PAYLOADS)
        for change in self._moving("graph", "delete"):
            self._attempt(change, self._delete, "graph_delete")
        self._record()
        return self.plan

    def _moving(self, kind: str, operation: str) -> list[Change]:
        return [
            each
            for each in self.plan.changes
            if (kind_of(each.resource), each.operation, each.disposition)
            == (kind, operation, "applied")
        ]

    def _attempt(self, change: Change, do: Callable[[Change], None], verb: str) -> None:
        if self.has_failed:
            self.findings.warning(
                f"{verb}_skipped", change.resource, "not begun: an earlier step of this run failed"
            )
            self._block(change, f"{verb}_skipped", "an earlier step of the run failed")
            return
        try:
            do(change)
        except (OmnigraphError, OSError) as problem:
            self.has_failed = True
            message = sentence(problem)
            code = problem.diagnostic if isinstance(problem, ClusterRefused) else f"{verb}_failed"
            self.findings.error(code, change.resource, message)
            self._block(change, f"{verb}_failed", message)

    def _block(self, change: Change, reason: str, message: str) -> None:
        """Mark a change as blocked, and all that depend on it."""
        graph_id = graph_id_of(change.resource)
        blocked = []
        for each in self.plan.changes:
            if each.resource in (f"graph.{graph_id}", f"schema.{graph_id}"):
                blocked.append(each.blocked(reason, message))
            elif graph_id_of(each.resource) == graph_id or self._is_bound(each, graph_id):
                blocked.append(each.blocked(NOT_APPLIED, f"graph '{graph_id}' was not changed"))
        self.plan = self.plan.with_changes(blocked)

    def _is_bound(self, change: Change, graph_id: str | None) -> bool:
        if kind_of(change.resource) != "policy" or change.operation == "delete":
            return False
        policy = self.plan.desired.config.policies[change.resource.removeprefix("policy.")]
        return f"graph.{graph_id}" in policy.applies_to

    # --- changes of graphs ------------------------------------------------------------------------

    def _sidecar(self, change: Change, kind: str, version: int | None) -> RecoverySidecar:
        graph_id = graph_id_of(change.resource)
        assert graph_id is not None
        approval = self.plan.approvals.get(f"graph.{graph_id}")
        desired = self.plan.desired.digests.get(f"schema.{graph_id}")
        return RecoverySidecar.model_validate(
            {
                "schema_version": 1,
                "operation_id": MINT.ulid(),
                "started_at": now_text(),
                "actor": self.actor,
                "kind": kind,
                "graph_id": graph_id,
                "graph_uri": self.place.graph_uri(graph_id),
                "observed_manifest_version": version,
                "desired_schema_digest": desired,
                "state_cas_base": self.base.cas,
                "approval_id": None if approval is None else approval.approval_id,
            }
        )

    def _schema(self, graph_id: str) -> Source:
        resource = self.plan.desired.resources[f"schema.{graph_id}"]
        text = resource.reread().decode("utf-8")
        return Source(text.removeprefix("\ufeff"), str(resource.path))

    def _create(self, change: Change) -> None:
        graph_id = change.resource.removeprefix("graph.")
        schema = self._schema(graph_id)
        sidecar = self._sidecar(change, "graph_create", None)
        write_sidecar(self.place.store, sidecar)
        hit(Failpoint.CLUSTER_CREATE_POST_SIDECAR)
        try:
            graph = init(self.place.graph_uri(graph_id), schema, actor=self.actor)
        except (OmnigraphError, OSError):
            if not self.place.has_graph(graph_id):
                remove_sidecars(self.place.store, [sidecar.key], self.findings)
            raise
        hit(Failpoint.CLUSTER_CREATE_POST_INIT)
        version = graph.snapshot().graph_manifest_version
        write_sidecar(
            self.place.store, sidecar.model_copy(update={"expected_manifest_version": version})
        )
        self.completed.append(sidecar.key)

    def _apply_schema(self, change: Change) -> None:
        graph_id = change.resource.removeprefix("schema.")
        schema = self._schema(graph_id)
        graph = open_graph(self.place.graph_uri(graph_id))
        # Checked before the sidecar is written: an unsupported migration leaves no trace.
        graph.plan_schema(schema).plan.require_supported()
        before = graph.snapshot().graph_manifest_version
        sidecar = self._sidecar(change, "schema_apply", before)
        write_sidecar(self.place.store, sidecar)
        hit(Failpoint.CLUSTER_SCHEMA_POST_SIDECAR)
        try:
            # Soft drops only: dropped data stays readable at older commits.
            done = graph.apply_schema(schema, actor=self.actor)
        except (OmnigraphError, OSError):
            seen = see_graph(self.place, graph_id)
            if seen.manifest_version == before:
                remove_sidecars(self.place.store, [sidecar.key], self.findings)
            raise
        hit(Failpoint.CLUSTER_SCHEMA_POST_APPLY)
        version = done.graph_manifest_version
        write_sidecar(
            self.place.store, sidecar.model_copy(update={"expected_manifest_version": version})
        )
        self.completed.append(sidecar.key)

    def _delete(self, change: Change) -> None:
        approval = self.plan.approvals.get(change.resource)
        if approval is None:
            raise ClusterRefused(
                "apply_approval_invariant_violation",
                change.resource,
                "a graph was to be removed without an approval; nothing was removed",
            )
        graph_id = change.resource.removeprefix("graph.")
        version = see_graph(self.place, graph_id).manifest_version
        sidecar = self._sidecar(change, "graph_delete", version)
        write_sidecar(self.place.store, sidecar)
        hit(Failpoint.CLUSTER_DELETE_POST_SIDECAR)
        try:
            delete_graph(self.place.graph_uri(graph_id))
        except (OmnigraphError, OSError) as problem:
            remove_sidecars(self.place.store, [sidecar.key], self.findings)
            if isinstance(problem, ExportInProgress):
                code = "graph_delete_export_in_progress"
                raise ClusterRefused(code, change.resource, sentence(problem)) from problem
            raise
        hit(Failpoint.CLUSTER_DELETE_POST_REMOVE)
        self.completed.append(sidecar.key)
        self.deleted[change.resource] = approval

    # --- contents and the ledger ------------------------------------------------------------------

    def _store_contents(self) -> None:
        for change in self.plan.changes:
            is_stored = change.is_applied and change.operation != "delete"
            if is_stored and has_content(change.resource):
                self._store(self.plan.desired.resources[change.resource])

    def _store(self, resource: Resource) -> None:
        key = content_key(resource.address, resource.digest)
        data = resource.reread()
        store = self.place.store
        try:
            found = store.read_if_exists(key)
            if found is None or digest_of(found) != resource.digest:
                store.write(key, data)
        except OmnigraphError as problem:
            raise ClusterRefused(
                "resource_payload_write_error", resource.address, sentence(problem)
            ) from problem

    def _record(self) -> None:
        """Record the outcome of every change in the ledger."""
        for change in self.plan.changes:
            if change.disposition in ("applied", "derived"):
                self._record_done(change)
            elif change.disposition == "deferred":
                self._status(change, "pending")
            else:
                self._status(change, "blocked")
        recompose(self.ledger)
        remaining = [each for each in self.plan.changes if not _is_done(each)]
        if not remaining:
            digest = self.plan.desired.config_digest
            self.ledger.applied_revision.config_digest = digest

    def _record_done(self, change: Change) -> None:
        address, ledger = change.resource, self.ledger
        if change.operation == "delete":
            if any(each.embedding_provider == address for each in ledger.resources.values()):
                # An unchanged graph still uses it.
                blocked = change.blocked(NOT_APPLIED, "a graph that was not changed uses it")
                self.plan = self.plan.with_changes([blocked])
                return
            if address in self.deleted:
                forget_graph(
                    ledger,
                    address.removeprefix("graph."),
                    approval_id=self.deleted[address].approval_id,
                    actor=self.actor,
                    operation_id=self.operation_id,
                )
            ledger.resources.pop(address, None)
            ledger.resource_statuses.pop(address, None)
            return
        schema = self.plan.of(f"schema.{graph_id_of(address)}")
        if change.disposition == "derived" and schema is not None and not _is_done(schema):
            return  # the graph keeps its previous blob rights and provider
        ledger.resources[address] = applied_form(self.plan.desired, address)
        ledger.resource_statuses[address] = Status(status="applied")
        if kind_of(address) == "graph" and change.operation == "create":
            # The observation was a tombstone, or that the graph was missing.
            ledger.observations.pop(address, None)

    def _status(self, change: Change, status: str) -> None:
        conditions = None if change.reason is None else [change.reason]
        found = {"status": status, "conditions": conditions, "message": change.message}
        self.ledger.resource_statuses[change.resource] = Status.model_validate(found)

    def finish(self) -> None:
        """Remove sidecars and mark approvals as used, after the ledger was written.

        The ledger already records both, so a crash before or between these steps is harmless.
        """
        hit(Failpoint.CLUSTER_APPLY_POST_LEDGER)
        remove_sidecars(self.place.store, self.completed, self.findings)
        for approval in self.deleted.values():
            mark_consumed(self.place, approval, self.operation_id, self.findings)


def mark_consumed(
    place: StorageRoot, approval: Approval, operation_id: str, findings: ClusterFindings
) -> None:
    """Record in an approval's file that it was used."""
    used = {"consumed_at": now_text(), "consumed_by_operation": operation_id}
    try:
        write_approval(place.store, approval.model_copy(update=used))
    except ClusterRefused as refused:
        findings.warning(refused.diagnostic, refused.path, sentence(refused))


def _is_done(change: Change) -> bool:
    return change.disposition in ("applied", "derived")
