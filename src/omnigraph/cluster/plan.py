"""The plan: the difference between the desired and the applied state.

`cluster plan` prints it and `cluster apply` executes it. Making a plan reads nothing: ledger,
approvals and the graphs that wait for recovery are arguments.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import field, replace
from typing import Annotated, Any, Literal

from omnigraph.cluster.config import ClusterConfig
from omnigraph.cluster.desired import Desired, graph_id_of, kind_of
from omnigraph.cluster.diagnostics import ClusterFindings
from omnigraph.cluster.ledger import (
    AppliedBase,
    AppliedResource,
    AppliedRevision,
    BlobPolicy,
    EmbeddingProfile,
    Ledger,
)
from omnigraph.cluster.records import Approval
from omnigraph.model.json_object import HIDDEN, OPTIONAL, JsonObject
from omnigraph.model.records import dataclass

Operation = Literal["create", "update", "delete"]
Disposition = Literal["applied", "derived", "deferred", "blocked"]
MetadataChange = Literal["policy_bindings", "embedding_profile"]

RECOVERY_PENDING = "cluster_recovery_pending"
NOT_APPLIED = "dependency_not_applied"
APPROVAL_REQUIRED = "approval_required"
UNSUPPORTED = "apply_unsupported_kind"


@dataclass(frozen=True, slots=True)
class GraphMigration(JsonObject):
    """The migration steps from a graph's schema to the declared one."""

    supported: bool
    steps: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class BindingChange(JsonObject):
    """The former and the new scopes of a policy."""

    before: tuple[str, ...]
    after: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Change(JsonObject):
    """One resource that differs from its declaration."""

    resource: str
    operation: Operation
    before_digest: Annotated[str | None, OPTIONAL] = None
    after_digest: Annotated[str | None, OPTIONAL] = None
    disposition: Annotated[Disposition | None, OPTIONAL] = None
    """`applied` is executed, `derived` follows from others, `deferred` is not supported, and
    `blocked` waits for the `reason`.
    """
    reason: Annotated[str | None, OPTIONAL] = None
    binding_change: Annotated[BindingChange | None, OPTIONAL] = None
    metadata_change: Annotated[MetadataChange | None, OPTIONAL] = None
    migration: Annotated[GraphMigration | None, OPTIONAL] = None
    message: Annotated[str | None, HIDDEN] = None
    """The explanation of a block, for the status of the resource."""

    @property
    def is_applied(self) -> bool:
        """Whether `apply` executes it."""
        return self.disposition == "applied"

    def blocked(self, reason: str, message: str | None = None) -> Change:
        """The same change, blocked."""
        return replace(self, disposition="blocked", reason=reason, message=message)


@dataclass(frozen=True, slots=True)
class ApprovalGate(JsonObject):
    """A change that needs an approval."""

    resource: str
    reason: str
    satisfied: bool


@dataclass(frozen=True, slots=True)
class BlastRadius(JsonObject):
    """The resources that depend on a changed one."""

    resource: str
    affected: tuple[str, ...]


@dataclass(frozen=True)
class ClusterPlan:
    """All changes, with their dispositions."""

    desired: Desired
    before: Ledger
    changes: tuple[Change, ...]
    """Sorted by address."""
    gates: tuple[ApprovalGate, ...] = ()
    blast_radius: tuple[BlastRadius, ...] = ()
    approvals: Mapping[str, Approval] = field(default_factory=dict)
    """The approvals of gated changes, by address."""

    def of(self, address: str) -> Change | None:
        """The change of a resource."""
        return next((each for each in self.changes if each.resource == address), None)

    def with_changes(self, changes: Iterable[Change]) -> ClusterPlan:
        """The same plan with some changes replaced."""
        changed = {each.resource: each for each in changes}
        kept = tuple(changed.get(each.resource, each) for each in self.changes)
        return replace(self, changes=kept)


def empty_ledger() -> Ledger:
    """The ledger of a cluster without applied resources."""
    return Ledger(version=1, applied_revision=AppliedRevision())


def applied_form(desired: Desired, address: str) -> AppliedResource:
    """The ledger's entry of a declared resource once it is applied."""
    config, digest = desired.config, desired.resources[address].digest
    match kind_of(address):
        case "policy":
            bindings = list(config.policies[address.removeprefix("policy.")].applies_to)
            return AppliedResource(digest=digest, applies_to=bindings)
        case "embedding_provider":
            members = config.providers[address].to_dict()
            profile = EmbeddingProfile.model_validate(members)
            return AppliedResource(digest=digest, embedding_profile=profile)
        case "graph":
            return _applied_graph(config, address, digest)
    return AppliedResource(digest=digest)


def _applied_graph(config: ClusterConfig, address: str, digest: str) -> AppliedResource:
    graph = config.graphs[address.removeprefix("graph.")]
    bases = [AppliedBase(uri=base.uri, scope=base.scope) for base in graph.external_blobs]
    policy = BlobPolicy(mode="allow", bases=bases) if bases else None
    return AppliedResource(
        digest=digest, embedding_provider=graph.embedding_provider, external_blob_policy=policy
    )


def differences(desired: Desired, ledger: Ledger) -> Iterator[Change]:
    """Every resource whose digest or ledger entry differs from the declaration, by address."""
    for address in sorted({*desired.resources, *ledger.resources}):
        before = ledger.resources.get(address)
        if address not in desired.resources:
            assert before is not None
            yield Change(address, "delete", before.digest)
            continue
        after = applied_form(desired, address)
        if before is None:
            yield Change(address, "create", None, after.digest)
        elif before != after:
            yield _update(address, before, after)


def _update(address: str, before: AppliedResource, after: AppliedResource) -> Change:
    change = Change(address, "update", before.digest, after.digest)
    is_same = before.digest == after.digest
    if before.applies_to != after.applies_to:
        binding = BindingChange(tuple(before.applies_to or ()), tuple(after.applies_to or ()))
        metadata: MetadataChange | None = "policy_bindings" if is_same else None
        return replace(change, binding_change=binding, metadata_change=metadata)
    if is_same and before.embedding_profile != after.embedding_profile:
        return replace(change, metadata_change="embedding_profile")
    return change


def make_plan(
    desired: Desired,
    ledger: Ledger,
    approvals: Iterable[Approval],
    findings: ClusterFindings,
    *,
    pending: Collection[str] = (),
) -> ClusterPlan:
    """The plan from a ledger to the desired state; ``pending`` graphs wait for recovery.

    An approval for another state is ignored with a warning.
    """
    changes = list(differences(desired, ledger))
    used = _matching(desired, changes, approvals, findings)
    classify = _Classifier({each.resource: each for each in changes}, desired, set(pending), used)
    classified = tuple(map(classify.classified, changes))
    gates = tuple(
        ApprovalGate(
            each.resource,
            "it removes a graph with all its data",
            each.resource in used,
        )
        for each in changes
        if _is_gated(each)
    )
    return ClusterPlan(desired, ledger, classified, gates, tuple(_radius(desired, changes)), used)


def _is_gated(change: Change) -> bool:
    return change.operation == "delete" and kind_of(change.resource) == "graph"


def _matching(
    desired: Desired,
    changes: Iterable[Change],
    approvals: Iterable[Approval],
    findings: ClusterFindings,
) -> dict[str, Approval]:
    gated = {each.resource: each for each in changes if _is_gated(each)}
    config_digest = desired.config_digest if gated else ""
    used: dict[str, Approval] = {}
    stale: list[Approval] = []
    for approval in approvals:
        change = gated.get(approval.resource)
        if change is None:
            continue
        bound = (
            approval.bound_config_digest,
            approval.bound_before_digest,
            approval.bound_after_digest,
        )
        if bound == (config_digest, change.before_digest, change.after_digest):
            used.setdefault(approval.resource, approval)
        else:
            stale.append(approval)
    for approval in stale:
        if approval.resource not in used:
            findings.warning(
                "approval_stale",
                approval.resource,
                f"approval {approval.approval_id} of {approval.approved_by} was given for another "
                f"state of the cluster; look at the plan, then run "
                f"`omnigraph cluster approve {approval.resource}` again",
            )
    return used


@dataclass(slots=True)
class _Classifier:
    """Decides the disposition of each change, given all of them."""

    changes: Mapping[str, Change]
    desired: Desired
    pending: set[str]
    """Graphs that wait for recovery."""
    approvals: Mapping[str, Approval]

    def classified(self, change: Change) -> Change:
        """The change with its disposition."""
        kind, graph_id = kind_of(change.resource), graph_id_of(change.resource)
        if graph_id is not None and self._operation(f"graph.{graph_id}") == "delete":
            return self._of_deleted_graph(change, graph_id)
        match kind, change.operation:
            case "graph", "update":
                return replace(change, disposition="derived")
            case "graph", "create":
                return self._unless_pending(change, graph_id)
            case "schema", "create" | "delete":
                if self._operation(f"graph.{graph_id}") == "create":
                    return self._unless_pending(change, graph_id)
                return replace(change, disposition="deferred", reason=UNSUPPORTED)
            case "schema", _:
                return self._unless_pending(change, graph_id)
            case "query" | "checks", "create" | "update":
                schema = self.changes.get(f"schema.{graph_id}")
                if schema is not None and self.classified(schema).disposition == "deferred":
                    return change.blocked(NOT_APPLIED)
                return self._unless_pending(change, graph_id)
            case "policy", "create" | "update":
                bound = self.desired.config.policies[change.resource.removeprefix("policy.")]
                if any(scope.removeprefix("graph.") in self.pending for scope in bound.applies_to):
                    return change.blocked(RECOVERY_PENDING)
        return replace(change, disposition="applied")

    def _of_deleted_graph(self, change: Change, graph_id: str) -> Change:
        if graph_id in self.pending:
            return change.blocked(RECOVERY_PENDING)
        if f"graph.{graph_id}" not in self.approvals:
            return change.blocked(APPROVAL_REQUIRED)
        return replace(change, disposition="applied")

    def _unless_pending(self, change: Change, graph_id: str | None) -> Change:
        if graph_id in self.pending:
            return change.blocked(RECOVERY_PENDING)
        return replace(change, disposition="applied")

    def _operation(self, address: str) -> Operation | None:
        change = self.changes.get(address)
        return None if change is None else change.operation


def _radius(desired: Desired, changes: Iterable[Change]) -> Iterator[BlastRadius]:
    needed_by: dict[str, list[str]] = defaultdict(list)
    for source, target in desired.dependencies:
        needed_by[target].append(source)
    for change in changes:
        affected: set[str] = set()
        waiting = [change.resource]
        while waiting:
            for address in needed_by[waiting.pop()]:
                if address not in affected:
                    affected.add(address)
                    waiting.append(address)
        if affected:
            yield BlastRadius(change.resource, tuple(sorted(affected)))
