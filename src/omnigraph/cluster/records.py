"""The other objects of a storage root: catalog contents, approvals and recovery sidecars.

Contents are stored under their digest and never removed. An approval is rewritten when it is used,
and never removed. A sidecar announces an operation on a graph, and is removed once the ledger
records its outcome.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Literal

from omnigraph.cluster.desired import kind_of
from omnigraph.cluster.diagnostics import ClusterFindings, sentence
from omnigraph.cluster.digests import digest_of
from omnigraph.cluster.ledger import Digest, Ledger, Strict, decoded, require_version, validated
from omnigraph.effects.objects import ObjectStore
from omnigraph.errors import ClusterRefused, OmnigraphError
from omnigraph.model.records import dataclass

RECOVERIES = "__cluster/recoveries"
APPROVALS = "__cluster/approvals"
RESOURCES = "__cluster/resources"
VERSION = 1


def graph_key(graph_id: str) -> str:
    """The key of a graph's root in the storage root."""
    return f"graphs/{graph_id}.omni"


# --- contents -------------------------------------------------------------------------------------


def content_key(address: str, digest: str) -> str:
    """The key of the content of a query, of checks or of a policy."""
    kind, _, rest = address.partition(".")
    suffix = "gq" if kind == "query" else "yaml"
    return f"{RESOURCES}/{kind}/{rest.replace('.', '/')}/{digest}.{suffix}"


def has_content(address: str) -> bool:
    """Whether resources of this kind have content in the catalog."""
    return kind_of(address) in ("query", "checks", "policy")


ContentState = Literal["fine", "missing", "mismatch", "unreadable"]


@dataclass(frozen=True, slots=True)
class Content:
    """The catalog's content of one resource."""

    address: str
    key: str
    state: ContentState
    data: bytes = b""
    reason: str = ""


def read_contents(store: ObjectStore, resources: Iterable[tuple[str, str]]) -> list[Content]:
    """Read the contents of resources, given by address and digest, and verify their digests."""
    wanted = [(address, digest, content_key(address, digest)) for address, digest in resources]
    keys = list(dict.fromkeys(key for _, _, key in wanted))
    found: dict[str, bytes | OmnigraphError | None] = {}
    try:
        found.update(zip(keys, store.read_each(keys), strict=True))
    except OmnigraphError:
        # At least one failed; read each separately to find which.
        for key in keys:
            try:
                found[key] = store.read_if_exists(key)
            except OmnigraphError as problem:
                found[key] = problem
    return [_content(address, digest, key, found[key]) for address, digest, key in wanted]


def _content(address: str, digest: str, key: str, found: bytes | OmnigraphError | None) -> Content:
    if isinstance(found, OmnigraphError):
        return Content(address, key, "unreadable", reason=sentence(found))
    if found is None:
        return Content(address, key, "missing", reason="it is not there")
    actual = digest_of(found)
    if actual != digest:
        return Content(address, key, "mismatch", found, f"its bytes have the digest {actual}")
    return Content(address, key, "fine", found)


# --- approvals ------------------------------------------------------------------------------------


class Approval(Strict):
    """A person's approval of one change in one state."""

    schema_version: Literal[1]
    approval_id: str
    resource: str
    operation: Literal["delete"]
    reason: str
    bound_config_digest: Digest | None = None
    bound_before_digest: Digest | None = None
    bound_after_digest: Digest | None = None
    approved_by: str
    created_at: str
    consumed_at: str | None = None
    consumed_by_operation: str | None = None

    @property
    def key(self) -> str:
        """The key under which it is stored."""
        return f"{APPROVALS}/{self.approval_id}.json"


def write_approval(store: ObjectStore, approval: Approval) -> None:
    """Store an approval, or its use; raises `ClusterRefused`."""
    try:
        store.write(approval.key, _encoded(approval))
    except OmnigraphError as problem:
        raise ClusterRefused("approval_write_error", approval.key, sentence(problem)) from problem


def read_approvals(store: ObjectStore, ledger: Ledger, findings: ClusterFindings) -> list[Approval]:
    """The unused approvals; unreadable ones are warnings."""
    found = []
    for key, data in _documents(store, APPROVALS, "approval_read_error", findings):
        try:
            document = decoded(data, key, "invalid_approval_artifact")
            code = "unsupported_approval_version"
            require_version(document, VERSION, key, member="schema_version", code=code)
            approval = validated(Approval, document, key, "invalid_approval_artifact")
        except ClusterRefused as refused:
            findings.warning(refused.diagnostic, refused.path, sentence(refused))
            continue
        # The ledger records the use before the approval's file does.
        is_used = (
            approval.consumed_at is not None or approval.approval_id in ledger.approval_records
        )
        if not is_used:
            found.append(approval)
    return found


# --- recovery sidecars ----------------------------------------------------------------------------


class RecoverySidecar(Strict):
    """An announced operation on one graph."""

    schema_version: Literal[1]
    operation_id: str
    started_at: str
    actor: str | None = None
    kind: Literal["graph_create", "schema_apply", "graph_delete"]
    graph_id: str
    graph_uri: str
    observed_manifest_version: int | None = None
    expected_manifest_version: int | None = None
    desired_schema_digest: Digest | None = None
    state_cas_base: str | None = None
    approval_id: str | None = None

    @property
    def key(self) -> str:
        """The key under which it is stored."""
        return f"{RECOVERIES}/{self.operation_id}.json"


def write_sidecar(store: ObjectStore, sidecar: RecoverySidecar) -> None:
    """Store a sidecar, before the graph is changed; raises `ClusterRefused`."""
    try:
        store.write(sidecar.key, _encoded(sidecar))
    except OmnigraphError as problem:
        raise ClusterRefused(
            "recovery_sidecar_write_error", sidecar.key, sentence(problem)
        ) from problem


def remove_sidecars(store: ObjectStore, keys: Iterable[str], findings: ClusterFindings) -> None:
    """Remove sidecars whose outcome the ledger records; a failure is a warning."""
    for key in keys:
        try:
            store.delete(key)
        except OmnigraphError as problem:
            findings.warning("recovery_sidecar_cleanup_failed", key, sentence(problem))


def read_sidecars(store: ObjectStore) -> tuple[list[RecoverySidecar], list[ClusterRefused]]:
    """The sidecars in the order of their operations, and the problems with unreadable ones."""
    found: list[RecoverySidecar] = []
    findings = ClusterFindings()
    wrong: list[ClusterRefused] = []
    for key, data in _documents(store, RECOVERIES, "recovery_sidecar_read_error", findings):
        try:
            document = decoded(data, key, "invalid_recovery_sidecar")
            code = "unsupported_recovery_sidecar_version"
            require_version(document, VERSION, key, member="schema_version", code=code)
            found.append(validated(RecoverySidecar, document, key, "invalid_recovery_sidecar"))
        except ClusterRefused as refused:
            wrong.append(refused)
    wrong += [ClusterRefused(each.code, each.path, each.message) for each in findings]
    return found, wrong


def _documents(
    store: ObjectStore, prefix: str, code: str, findings: ClusterFindings
) -> Iterator[tuple[str, bytes]]:
    try:
        names = [name for name in store.list(prefix) if name.endswith(".json")]
    except OmnigraphError as problem:
        findings.warning(code, prefix, sentence(problem))
        return
    for key in names:
        try:
            data = store.read_if_exists(key)
        except OmnigraphError as problem:
            findings.warning(code, key, sentence(problem))
            continue
        if data is not None:
            yield key, data


def _encoded(document: Strict) -> bytes:
    whole = document.model_dump(mode="json")
    return (json.dumps(whole, indent=2, ensure_ascii=False) + "\n").encode()
