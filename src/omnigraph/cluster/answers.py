"""The answers of cluster commands; `to_dict` is the JSON that `--json` prints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from omnigraph.cluster.diagnostics import ClusterDiagnostic
from omnigraph.cluster.plan import ApprovalGate, BlastRadius, Change
from omnigraph.model.json_object import OPTIONAL, JsonObject
from omnigraph.model.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StateObservations(JsonObject):
    """The state of ledger and lock, as a command found them."""

    state_path: str
    lock_path: str
    state_found: bool
    applied_config_digest: Annotated[str | None, OPTIONAL] = None
    state_revision: int = 0
    state_cas: Annotated[str | None, OPTIONAL] = None
    resource_count: int = 0
    locked: bool = False
    lock_id: Annotated[str | None, OPTIONAL] = None
    lock_acquired: bool = False
    acquired_lock_id: Annotated[str | None, OPTIONAL] = None
    lock_operation: Annotated[str | None, OPTIONAL] = None
    lock_created_at: Annotated[str | None, OPTIONAL] = None
    lock_pid: Annotated[int | None, OPTIONAL] = None
    lock_age_seconds: Annotated[int | None, OPTIONAL] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAnswer(JsonObject):
    """The members of every answer."""

    ok: bool
    """Whether no diagnostic is an error."""
    config_dir: str
    diagnostics: tuple[ClusterDiagnostic, ...]

    @property
    def errors(self) -> tuple[ClusterDiagnostic, ...]:
        """The diagnostics that are errors."""
        return tuple(each for each in self.diagnostics if each.severity == "error")

    @property
    def codes(self) -> list[str]:
        """The codes of all diagnostics."""
        return [each.code for each in self.diagnostics]


@dataclass(frozen=True, slots=True)
class ResourceSummary(JsonObject):
    """One declared resource."""

    address: str
    kind: str
    digest: str
    path: Annotated[str | None, OPTIONAL] = None


@dataclass(frozen=True, slots=True)
class DesiredRevision(JsonObject):
    """The digest of the whole declaration."""

    config_digest: Annotated[str | None, OPTIONAL] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Validation(ClusterAnswer):
    """The answer of `validate`."""

    config_file: str
    resource_digests: Mapping[str, str]
    resources: tuple[ResourceSummary, ...]
    dependencies: tuple[Mapping[str, str], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned(ClusterAnswer):
    """The answer of `plan`."""

    desired_revision: DesiredRevision
    resource_digests: Mapping[str, str]
    dependencies: tuple[Mapping[str, str], ...]
    state_observations: StateObservations
    changes: tuple[Change, ...]
    blast_radius: tuple[BlastRadius, ...]
    approvals_required: tuple[ApprovalGate, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Applied(ClusterAnswer):
    """The answer of `apply`."""

    actor: Annotated[str | None, OPTIONAL] = None
    desired_revision: DesiredRevision
    state_observations: StateObservations
    changes: tuple[Change, ...]
    applied_count: int
    deferred_count: int
    converged: bool
    """Whether the applied state equals the desired state."""
    state_written: bool
    resource_statuses: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Approved(ClusterAnswer):
    """The answer of `approve`."""

    approval_id: Annotated[str | None, OPTIONAL] = None
    resource: Annotated[str | None, OPTIONAL] = None
    operation: Annotated[str | None, OPTIONAL] = None
    approved_by: Annotated[str | None, OPTIONAL] = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus(ClusterAnswer):
    """The answer of `status`."""

    state_observations: StateObservations
    resource_digests: Mapping[str, str]
    resource_statuses: Mapping[str, Any]
    observations: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Refreshed(ClusterAnswer):
    """The answer of `refresh` and `import`."""

    operation: str
    state_observations: StateObservations
    resource_digests: Mapping[str, str]
    resource_statuses: Mapping[str, Any]
    observations: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unlocked(ClusterAnswer):
    """The answer of `force-unlock`."""

    state_observations: StateObservations
    lock_removed: bool
