"""Recovery of interrupted operations: their outcome is observed, and they are not undone.

A sidecar announces an operation on one graph, and the graph shows whether it was done. The ledger
is changed in memory here; settled sidecars are removed only after it was written.
"""

from __future__ import annotations

from dataclasses import field

from omnigraph.cluster.desired import graph_id_of
from omnigraph.cluster.diagnostics import ClusterFindings, sentence
from omnigraph.cluster.ledger import AppliedResource, Ledger, Observation, Record, Status
from omnigraph.cluster.lock import now_text
from omnigraph.cluster.observing import SeenGraph, StorageRoot, recompose, see_graph
from omnigraph.cluster.plan import RECOVERY_PENDING
from omnigraph.cluster.records import RecoverySidecar, read_sidecars
from omnigraph.model.records import dataclass


@dataclass(slots=True)
class Sweep:
    """The outcome of the sidecars of a storage root."""

    retired: list[str] = field(default_factory=list)
    """Sidecars to remove once the ledger is written."""
    kept: dict[str, RecoverySidecar] = field(default_factory=dict)
    """By graph, the sidecars that need an operator."""
    consumed: dict[str, str] = field(default_factory=dict)
    """Approvals used by interrupted deletions, with the operation."""


@dataclass(slots=True)
class _Sweeper:
    """Settles sidecars one by one."""

    place: StorageRoot
    ledger: Ledger
    findings: ClusterFindings
    result: Sweep = field(default_factory=Sweep)

    def settle_schema(self, sidecar: RecoverySidecar) -> None:
        """Settle the creation of a graph or a change of its schema, done or not."""
        graph_id, is_create = sidecar.graph_id, sidecar.kind == "graph_create"
        # The graph's own recovery runs first: it finishes or undoes an interrupted schema change.
        seen = see_graph(self.place, graph_id, "read_only" if is_create else "read_write")
        recorded = self.ledger.digest(f"schema.{graph_id}")
        if not seen.exists and is_create:
            self.result.retired.append(sidecar.key)
        elif not seen.is_open:
            self._keep_unopened(sidecar, seen)
        elif seen.schema_digest == recorded or (
            not is_create and seen.manifest_version == sidecar.observed_manifest_version
        ):
            self.result.retired.append(sidecar.key)
        elif seen.schema_digest == sidecar.desired_schema_digest:
            _roll_forward(self.ledger, sidecar)
            self.result.retired.append(sidecar.key)
            self.findings.warning(
                "cluster_recovery_rolled_forward",
                f"graph.{graph_id}",
                f"operation {sidecar.operation_id} ({sidecar.kind}) had done its work before it "
                "was interrupted; the ledger says so now",
            )
        else:
            self.result.kept[graph_id] = sidecar
            message = (
                f"operation {sidecar.operation_id} ({sidecar.kind}) was interrupted, and the "
                "schema of the graph is neither the one before nor the one after it; bring it to "
                f"one of them, or remove {sidecar.key}"
            )
            for address in (f"graph.{graph_id}", f"schema.{graph_id}"):
                self.ledger.resource_statuses[address] = Status(
                    status="drifted", conditions=["actual_applied_state_pending"], message=message
                )
            self.findings.warning(RECOVERY_PENDING, f"graph.{graph_id}", message)

    def _keep_unopened(self, sidecar: RecoverySidecar, seen: SeenGraph) -> None:
        address = f"graph.{sidecar.graph_id}"
        uri = self.place.graph_uri(sidecar.graph_id)
        self.result.kept[sidecar.graph_id] = sidecar
        if sidecar.kind == "graph_create":
            message = (
                f"the creation of {uri} was interrupted, and it cannot be opened: {seen.error}; "
                "look at it, remove it if it holds nothing, and run the command again"
            )
            self.ledger.resource_statuses[address] = Status(
                status="error", conditions=["graph_create_incomplete"], message=message
            )
            self.findings.error("graph_create_incomplete", address, message)
            return
        message = (
            f"a change of schema was interrupted, and {uri} cannot be opened: "
            f"{seen.error or 'there is nothing'}"
        )
        self.findings.warning(RECOVERY_PENDING, address, message)

    def settle_delete(self, sidecar: RecoverySidecar) -> None:
        address = f"graph.{sidecar.graph_id}"
        self.result.retired.append(sidecar.key)
        if self.place.has_graph(sidecar.graph_id):
            self.findings.warning(
                "graph_delete_incomplete",
                address,
                f"the deletion of {self.place.graph_uri(sidecar.graph_id)} was interrupted; it is "
                "planned again, under the same approval",
            )
        elif address not in self.ledger.resources:
            if sidecar.approval_id is not None:
                self.result.consumed[sidecar.approval_id] = sidecar.operation_id
        else:
            forget_graph(
                self.ledger,
                sidecar.graph_id,
                approval_id=sidecar.approval_id,
                actor=sidecar.actor,
                operation_id=sidecar.operation_id,
            )
            _record(self.ledger, sidecar, "rolled_forward")
            if sidecar.approval_id is not None:
                self.result.consumed[sidecar.approval_id] = sidecar.operation_id
            self.findings.warning(
                "cluster_recovery_rolled_forward",
                address,
                f"operation {sidecar.operation_id} had removed the graph before it was "
                "interrupted; the ledger says so now",
            )


def sweep(place: StorageRoot, ledger: Ledger, findings: ClusterFindings) -> Sweep:
    """Settle the sidecars of a storage root in a ledger, as far as possible."""
    found, unreadable = read_sidecars(place.store)
    for refused in unreadable:
        findings.warning(refused.diagnostic, refused.path, sentence(refused))
    sweeper = _Sweeper(place, ledger, findings)
    for sidecar in found:
        if sidecar.kind == "graph_delete":
            sweeper.settle_delete(sidecar)
        else:
            sweeper.settle_schema(sidecar)
    recompose(ledger)
    return sweeper.result


def pending_sidecars(place: StorageRoot, findings: ClusterFindings) -> None:
    """Warn about sidecars, which the next apply will settle."""
    found, unreadable = read_sidecars(place.store)
    for refused in unreadable:
        findings.warning(refused.diagnostic, refused.path, sentence(refused))
    for sidecar in found:
        findings.warning(
            RECOVERY_PENDING,
            f"graph.{sidecar.graph_id}",
            f"operation {sidecar.operation_id} ({sidecar.kind}) was interrupted; "
            "`omnigraph cluster apply` or `refresh` settles it first",
        )


def _roll_forward(ledger: Ledger, sidecar: RecoverySidecar) -> None:
    graph, schema = f"graph.{sidecar.graph_id}", f"schema.{sidecar.graph_id}"
    assert sidecar.desired_schema_digest is not None
    ledger.resources[schema] = AppliedResource(digest=sidecar.desired_schema_digest)
    if graph not in ledger.resources:
        ledger.resources[graph] = AppliedResource(digest=sidecar.desired_schema_digest)
    for address in (graph, schema):
        ledger.resource_statuses[address] = Status(status="applied")
    _record(ledger, sidecar, "rolled_forward")


def forget_graph(
    ledger: Ledger,
    graph_id: str,
    *,
    approval_id: str | None,
    actor: str | None,
    operation_id: str,
) -> None:
    """Remove a deleted graph from a ledger, leaving a tombstone, and mark the approval as used."""
    address = f"graph.{graph_id}"
    for each in [each for each in ledger.resources if graph_id_of(each) == graph_id]:
        del ledger.resources[each]
    for each in [each for each in ledger.resource_statuses if graph_id_of(each) == graph_id]:
        del ledger.resource_statuses[each]
    now = now_text()
    ledger.observations[address] = Observation(
        kind="tombstone",
        address=address,
        deleted_at=now,
        approval_id=approval_id,
        actor=actor,
    )
    if approval_id is not None:
        ledger.approval_records[approval_id] = Record(
            resource=address,
            kind="graph_delete",
            actor=actor,
            recorded_at=now,
            operation_id=operation_id,
            outcome="consumed",
        )


def _record(ledger: Ledger, sidecar: RecoverySidecar, outcome: str) -> None:
    ledger.recovery_records[sidecar.operation_id] = Record(
        resource=f"graph.{sidecar.graph_id}",
        kind=sidecar.kind,
        actor=sidecar.actor,
        recorded_at=now_text(),
        operation_id=sidecar.operation_id,
        outcome=outcome,
    )
