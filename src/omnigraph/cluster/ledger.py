"""The ledger: the applied state, in one object that is only changed by compare-and-swap.

With the catalog, it is sufficient to serve a cluster without its files. A write is refused if the
stored bytes differ from those that the writer read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from omnigraph.cluster.config import BlobScope
from omnigraph.cluster.diagnostics import sentence
from omnigraph.cluster.digests import GraphParts, state_cas
from omnigraph.effects.objects import ObjectStore, Token
from omnigraph.errors import ClusterRefused, OmnigraphError
from omnigraph.model.records import dataclass

STATE = "__cluster/state.json"
VERSION = 1

Digest = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

StatusName = Literal["pending", "planned", "applying", "applied", "drifted", "blocked", "error"]


class Strict(BaseModel):
    """A document that may not have unknown members."""

    model_config = ConfigDict(extra="forbid", strict=True)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, without null members."""
        return self.model_dump(mode="json", exclude_none=True)


class EmbeddingProfile(Strict):
    """An applied embedding provider; its key is a reference to a variable."""

    kind: str
    base_url: str | None = None
    model: str | None = None
    api_key: str | None = None


class AppliedBase(Strict):
    """A folder in which external blobs are allowed."""

    uri: str
    scope: BlobScope


class BlobPolicy(Strict):
    """The external blobs that a graph accepts; by default none."""

    mode: Literal["allow"]
    bases: list[AppliedBase]


class AppliedResource(Strict):
    """An applied resource."""

    digest: Digest
    applies_to: list[str] | None = None
    embedding_provider: str | None = None
    embedding_profile: EmbeddingProfile | None = None
    external_blob_policy: BlobPolicy | None = None


class AppliedRevision(Strict):
    """The applied revision."""

    config_digest: Digest | None = None
    resources: dict[str, AppliedResource] = Field(default_factory=dict)


class Status(Strict):
    """The status of one resource."""

    status: StatusName
    conditions: list[str] | None = None
    message: str | None = None


class Record(Strict):
    """A used approval, or a recovery."""

    resource: str
    kind: str
    actor: str | None = None
    recorded_at: str
    operation_id: str | None = None
    outcome: str | None = None
    reason: str | None = None


class Observation(Strict):
    """The last observation of a graph, or a tombstone."""

    kind: Literal["graph", "tombstone"]
    address: str | None = None
    graph_uri: str | None = None
    observed_at: str | None = None
    exists: bool | None = None
    graph_manifest_version: int | None = None
    manifest_version: int | None = None
    """The former name of `graph_manifest_version`."""
    schema_digest: Digest | None = None
    desired_schema_digest: Digest | None = None
    schema_matches_desired: bool | None = None
    error: str | None = None
    deleted_at: str | None = None
    approval_id: str | None = None
    actor: str | None = None


class Ledger(Strict):
    """The content of the ledger."""

    version: Literal[1]
    state_revision: int = 0
    applied_revision: AppliedRevision
    resource_statuses: dict[str, Status] = Field(default_factory=dict)
    approval_records: dict[str, Record] = Field(default_factory=dict)
    recovery_records: dict[str, Record] = Field(default_factory=dict)
    observations: dict[str, Observation] = Field(default_factory=dict)

    @property
    def resources(self) -> dict[str, AppliedResource]:
        """The applied resources, by address."""
        return self.applied_revision.resources

    def digest(self, address: str) -> str | None:
        """The applied digest of a resource."""
        found = self.resources.get(address)
        return None if found is None else found.digest

    @property
    def graph_ids(self) -> list[str]:
        """The ids of the applied graphs."""
        return sorted(each[6:] for each in self.resources if each.startswith("graph."))

    def queries_of(self, graph_id: str) -> dict[str, AppliedResource]:
        """The stored queries of a graph, by name."""
        prefix = f"query.{graph_id}."
        return {
            address.removeprefix(prefix): each
            for address, each in self.resources.items()
            if address.startswith(prefix)
        }

    def policies(self) -> dict[str, AppliedResource]:
        """The policies, by name."""
        return {a[7:]: each for a, each in self.resources.items() if a.startswith("policy.")}

    def composite(self, graph_id: str) -> str | None:
        """The digest of a graph, computed from its parts in this ledger; None without a schema."""
        schema = self.digest(f"schema.{graph_id}")
        graph = self.resources.get(f"graph.{graph_id}")
        if schema is None or graph is None:
            return None
        provider = graph.embedding_provider
        policy = graph.external_blob_policy
        return GraphParts(
            graph_id,
            schema,
            [(name, each.digest) for name, each in self.queries_of(graph_id).items()],
            None if provider is None else (provider, self.digest(provider) or ""),
            [] if policy is None else [(base.uri, base.scope) for base in policy.bases],
            self.digest(f"checks.{graph_id}"),
        ).digest

    def require_intact(self) -> None:
        """Raise `ClusterRefused` if a graph's digest does not match its parts.

        Then the ledger was edited by hand, which must not grant a graph rights to external blobs.
        """
        for graph_id in self.graph_ids:
            recorded, found = self.digest(f"graph.{graph_id}"), self.composite(graph_id)
            if found is not None and recorded != found:
                raise ClusterRefused(
                    "external_blob_policy_digest_mismatch",
                    f"graph.{graph_id}",
                    f"the ledger was edited: graph '{graph_id}' has the digest {recorded}, and "
                    f"its parts have {found}",
                    hint=f"restore {STATE} from a copy you trust",
                )


@dataclass(slots=True)
class StoredLedger:
    """A ledger as it was read, with the token for its next write."""

    ledger: Ledger
    data: bytes
    token: Token | None
    """None before the first write."""

    @property
    def cas(self) -> str | None:
        """The digest of the ledger that was read; None if there was none."""
        return None if self.token is None else state_cas(self.data)


def read_ledger(store: ObjectStore) -> StoredLedger | None:
    """Read the ledger of a storage root; None if there is none. Raises `ClusterRefused`."""
    try:
        found = store.read_versioned(STATE)
    except OmnigraphError as problem:
        raise ClusterRefused("state_read_error", STATE, sentence(problem)) from problem
    if found is None:
        return None
    data, token = found
    return StoredLedger(parse_ledger(data), data, token)


def parse_ledger(data: bytes) -> Ledger:
    """Parse a ledger; raises `ClusterRefused`."""
    document = decoded(data, STATE, "invalid_state_json")
    require_version(document, VERSION, STATE, member="version", code="unsupported_state_version")
    ledger = validated(Ledger, document, STATE, "invalid_state_json")
    for address, seen in ledger.observations.items():
        former, now = seen.manifest_version, seen.graph_manifest_version
        if former is not None and now is not None and former != now:
            raise ClusterRefused(
                "conflicting_graph_manifest_observation",
                address,
                f"{STATE} has two manifest versions of {address}, {former} and {now}",
                hint="keep `graph_manifest_version`",
            )
        seen.graph_manifest_version = former if now is None else now
        seen.manifest_version = None
    return ledger


def write_ledger(store: ObjectStore, before: StoredLedger | None, ledger: Ledger) -> StoredLedger:
    """Replace the ledger that was read, incrementing its revision.

    Raises `ClusterRefused` with `state_cas_mismatch`, without any change, if the stored ledger is
    not the one that was read.
    """
    following = ledger.model_copy(update={"state_revision": ledger.state_revision + 1})
    data = (json.dumps(following.to_dict(), indent=2, ensure_ascii=False) + "\n").encode()
    try:
        token = _swap(store, before, data)
    except ClusterRefused:
        raise
    except OmnigraphError as problem:
        # The write may have succeeded although its reply was lost.
        found = _read_after_failure(store)
        if found is None or found[0] != data:
            raise ClusterRefused("state_write_error", STATE, sentence(problem)) from problem
        token = found[1]
    return StoredLedger(following, data, token)


def _swap(store: ObjectStore, before: StoredLedger | None, data: bytes) -> Token:
    if before is None:
        if not store.write_if_absent(STATE, data):
            raise _moved("there is a ledger by now")
        found = store.read_versioned(STATE)
        if found is None or found[0] != data:
            raise _moved("another command changed it")
        return found[1]
    assert before.token is not None
    token = store.write_if_match(STATE, data, before.token)
    if token is None:
        raise _moved("another command changed it since this one read it")
    return token


def _read_after_failure(store: ObjectStore) -> tuple[bytes, Token] | None:
    try:
        return store.read_versioned(STATE)
    except OmnigraphError:
        return None


def _moved(what: str) -> ClusterRefused:
    return ClusterRefused(
        "state_cas_mismatch",
        STATE,
        f"the ledger was not written: {what}",
        hint="run the command again; it starts from the ledger as it is now",
    )


# --- strict JSON documents ------------------------------------------------------------------------


def decoded(data: bytes, key: str, code: str) -> Mapping[str, Any]:
    """Parse a JSON object; raises `ClusterRefused` with ``code``."""
    try:
        document = json.loads(data)
    except ValueError as problem:
        raise ClusterRefused(code, key, f"{key} is no JSON: {problem}") from None
    if not isinstance(document, dict):
        raise ClusterRefused(code, key, f"{key} is no JSON object")
    return document


def require_version(
    document: Mapping[str, Any], known: int, key: str, *, member: str, code: str
) -> None:
    """Raise `ClusterRefused` for a document of an unknown version."""
    found = document.get(member)
    if isinstance(found, int) and not isinstance(found, bool) and found != known:
        raise ClusterRefused(
            code,
            key,
            f"{key} is of version {found}, and this product knows version {known}",
            hint="use the version of the product that wrote it",
        )


Document = TypeVar("Document", bound=Strict)


def validated(model: type[Document], document: Mapping[str, Any], key: str, code: str) -> Document:
    """Validate a document; raises `ClusterRefused` with the position of the first mistake."""
    try:
        return model.model_validate(document)
    except ValidationError as problem:
        first = problem.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise ClusterRefused(code, key, f"{key}: `{place}`: {first['msg'].lower()}") from None
