"""The applied revision for servers, read from the ledger and the catalog only.

Reading takes no lock, settles nothing, and ignores the declared files. Every content is verified by
its digest. Problems of the whole cluster raise; a problem of one graph leaves it out, with the
reason.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import field
from pathlib import Path

from omnigraph.cluster.config import CLUSTER_SCOPE, storage_of
from omnigraph.cluster.diagnostics import sentence
from omnigraph.cluster.digests import digest_of, provider_digest
from omnigraph.cluster.ledger import STATE, EmbeddingProfile, Ledger, read_ledger
from omnigraph.cluster.observing import StorageRoot
from omnigraph.cluster.records import RECOVERIES, graph_key, read_contents, read_sidecars
from omnigraph.effects.uri import Root
from omnigraph.embedding.config import EmbeddingConfig
from omnigraph.errors import ClusterRefused, InputError, OmnigraphError
from omnigraph.model.records import dataclass

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_MANAGED = re.compile(r"((?P<root>.*)/)?graphs/(?P<graph_id>[^/]+)\.omni/?")


@dataclass(frozen=True, slots=True)
class AppliedQuery:
    """One stored query: its name, and the verified source text."""

    name: str
    text: str
    key: str
    """The key of the text, for messages."""


@dataclass(frozen=True, slots=True)
class AppliedGraph:
    """One graph to serve."""

    graph_id: str
    uri: str
    queries: tuple[AppliedQuery, ...] = ()
    checks: str | None = None
    """The verified text of its checks of change requests."""
    policy: str | None = None
    """The verified text of its policy."""
    external_blobs: tuple[str, ...] = ()
    """The folders in which external blobs are allowed."""
    profile: EmbeddingProfile | None = None

    def embedding(self, environment: Mapping[str, str]) -> EmbeddingConfig | None:
        """Its embedding provider, with the secret from the environment; raises `InputError`."""
        if self.profile is None:
            return None
        key, reference = None, self.profile.api_key
        if reference is not None:
            name = reference[2:-1]
            key = environment.get(name, "").strip()
            if not key:
                raise InputError(
                    f"the embedding provider of graph '{self.graph_id}' needs the variable {name}",
                    hint=f"set {name} in the environment of the server",
                )
        return EmbeddingConfig.of(
            self.profile.kind,
            model=self.profile.model,
            base_url=self.profile.base_url,
            api_key=key,
        )


@dataclass(frozen=True, slots=True)
class AppliedCluster:
    """A verified applied revision."""

    revision: int
    cas: str
    graphs: tuple[AppliedGraph, ...]
    quarantined: Mapping[str, str] = field(default_factory=dict)
    """Graphs that cannot be served, with the reason."""
    policy: str | None = None
    """The verified text of the server's own policy."""


def storage_root(place: str) -> Root:
    """The storage root of a cluster, by its directory or by the URI of the root.

    Raises `ClusterRefused`.
    """
    return Root.parse(place) if _SCHEME.match(place) else storage_of(Path(place))


def read_applied(place: str) -> AppliedCluster:
    """The applied revision of a cluster. Raises `ClusterRefused`."""
    at = StorageRoot.at(storage_root(place))
    stored = read_ledger(at.store)
    if stored is None or stored.cas is None:
        raise _missing_state(at)
    ledger = stored.ledger
    quarantined = _unfinished(at)
    ledger.require_intact()
    if not ledger.graph_ids:
        raise ClusterRefused(
            "cluster_empty",
            STATE,
            "no graph was applied to this cluster yet",
            hint="run `omnigraph cluster apply`",
        )
    served = [each for each in ledger.graph_ids if each not in quarantined]
    bindings = _bindings(ledger)
    texts = _verified(at, ledger, served, bindings)
    graphs = tuple(_graph(at, ledger, each, bindings, texts) for each in served)
    policy = bindings.get(CLUSTER_SCOPE)
    return AppliedCluster(
        ledger.state_revision,
        stored.cas,
        graphs,
        {each: why for each, why in quarantined.items() if each in ledger.graph_ids},
        None if policy is None else texts[policy],
    )


def applied_fingerprint(place: str) -> str:
    """A value that changes with the applied revision, and when operations begin or are settled."""
    try:
        at = StorageRoot.at(storage_root(place))
        data = at.store.read_if_exists(STATE)
        pending = at.store.list(RECOVERIES)
    except OmnigraphError as problem:
        return f"unreadable: {sentence(problem)}"
    return digest_of((data or b"") + b"\0" + "\0".join(pending).encode())


def _missing_state(at: StorageRoot) -> ClusterRefused:
    return ClusterRefused(
        "cluster_state_missing",
        STATE,
        f"there is no ledger at {at.root.join(STATE)}",
        hint="begin with `omnigraph cluster import` and `omnigraph cluster apply`",
    )


def _unfinished(at: StorageRoot) -> dict[str, str]:
    """The graphs with interrupted operations.

    An unreadable sidecar may concern any graph, so it stops the server.
    """
    found, unreadable = read_sidecars(at.store)
    if unreadable:
        first = unreadable[0]
        raise ClusterRefused(
            "cluster_recovery_unattributed",
            first.path,
            f"an interrupted operation cannot be read, and may be about any graph: {first.message}",
            hint="look at the file; `omnigraph cluster apply` says what it can do with it",
        )
    return {
        each.graph_id: f"operation {each.operation_id} ({each.kind}) was interrupted; run "
        "`omnigraph cluster apply`, then reload the server"
        for each in found
    }


def _bindings(ledger: Ledger) -> dict[str, str]:
    """The address of the policy of each scope."""
    found: dict[str, str] = {}
    for name, policy in ledger.policies().items():
        address = f"policy.{name}"
        if not policy.applies_to:
            raise ClusterRefused(
                "policy_bindings_missing",
                address,
                f"the ledger does not say what policy '{name}' applies to",
                hint="run `omnigraph cluster apply`, which records it",
            )
        for scope in policy.applies_to:
            other = found.setdefault(scope, address)
            if other != address:
                raise ClusterRefused(
                    "duplicate_policy_binding",
                    address,
                    f"{other} and {address} both apply to {scope}",
                    hint="restore a ledger you trust",
                )
    return found


def _verified(
    at: StorageRoot, ledger: Ledger, served: list[str], bindings: Mapping[str, str]
) -> dict[str, str]:
    """The texts of everything that is served, by address, verified by their digests."""
    wanted: dict[str, str] = {}
    for graph_id in served:
        for name, query in ledger.queries_of(graph_id).items():
            wanted[f"query.{graph_id}.{name}"] = query.digest
        checks = ledger.digest(f"checks.{graph_id}")
        if checks is not None:
            wanted[f"checks.{graph_id}"] = checks
    scopes = [CLUSTER_SCOPE, *(f"graph.{graph_id}" for graph_id in served)]
    for address in {bindings[scope] for scope in scopes if scope in bindings}:
        wanted[address] = ledger.resources[address].digest
    texts: dict[str, str] = {}
    for content in read_contents(at.store, sorted(wanted.items())):
        if content.state != "fine":
            codes = {
                "missing": "catalog_payload_missing",
                "mismatch": "catalog_payload_digest_mismatch",
            }
            raise ClusterRefused(
                codes.get(content.state, "catalog_payload_read_error"),
                content.address,
                f"{content.key} is not what was applied: {content.reason}",
                hint="run `omnigraph cluster refresh` and `omnigraph cluster apply`",
            )
        texts[content.address] = content.data.decode("utf-8-sig")
    return texts


def _graph(
    at: StorageRoot,
    ledger: Ledger,
    graph_id: str,
    bindings: Mapping[str, str],
    texts: Mapping[str, str],
) -> AppliedGraph:
    graph = ledger.resources[f"graph.{graph_id}"]
    policy = bindings.get(f"graph.{graph_id}")
    blobs = graph.external_blob_policy
    return AppliedGraph(
        graph_id,
        at.graph_uri(graph_id),
        tuple(
            AppliedQuery(name, texts[f"query.{graph_id}.{name}"], f"query.{graph_id}.{name}")
            for name in sorted(ledger.queries_of(graph_id))
        ),
        texts.get(f"checks.{graph_id}"),
        None if policy is None else texts[policy],
        () if blobs is None else tuple(b.uri for b in blobs.bases if b.scope == "server_safe"),
        _profile(ledger, graph.embedding_provider),
    )


def _profile(ledger: Ledger, address: str | None) -> EmbeddingProfile | None:
    if address is None:
        return None
    found = ledger.resources.get(address)
    if found is None:
        raise ClusterRefused(
            "embedding_provider_missing", address, f"the ledger has no {address}, which is in use"
        )
    profile = found.embedding_profile
    if profile is None:
        raise ClusterRefused(
            "embedding_provider_profile_missing",
            address,
            f"the ledger does not say what {address} is",
            hint="run `omnigraph cluster apply`, which records it",
        )
    members = profile.to_dict()
    names = ("kind", "base_url", "model", "api_key")
    ordered: dict[str, str] = {name: str(members[name]) for name in names if name in members}
    if provider_digest(ordered) != found.digest:
        raise ClusterRefused(
            "embedding_provider_digest_mismatch",
            address,
            f"the ledger was edited: {address} is not what was applied",
            hint="restore a ledger you trust",
        )
    return profile


# --- addressing -----------------------------------------------------------------------------------


def _require_ledger(at: StorageRoot) -> Ledger:
    stored = read_ledger(at.store)
    if stored is None:
        raise _missing_state(at)
    return stored.ledger


def applied_graph_uri(place: str, graph_id: str | None = None) -> str:
    """The storage URI of an applied graph; without an id, that of the only one.

    Only the ledger is read, so that upkeep works where the catalog is damaged. Raises
    `ClusterRefused` with the ids to choose from.
    """
    at = StorageRoot.at(storage_root(place))
    ids = _require_ledger(at).graph_ids
    listed = ", ".join(ids)
    if graph_id is None:
        if len(ids) == 1:
            return at.graph_uri(ids[0])
        hint = f"pass `--graph`: {listed}" if ids else "run `omnigraph cluster apply` first"
        what = "several graphs, and none was picked" if ids else "no applied graph"
        raise ClusterRefused("graph_not_applied", STATE, f"the cluster has {what}", hint=hint)
    if graph_id not in ids:
        raise ClusterRefused(
            "graph_not_applied",
            f"graph.{graph_id}",
            f"graph '{graph_id}' was not applied to this cluster",
            hint=f"the graphs are {listed}" if ids else "run `omnigraph cluster apply` first",
        )
    return at.graph_uri(graph_id)


def applied_policies(place: str) -> tuple[dict[str, str], Ledger]:
    """The verified texts of all applied policies, by name, and the ledger with their bindings."""
    at = StorageRoot.at(storage_root(place))
    ledger = _require_ledger(at)
    bindings = _bindings(ledger)
    wanted = {a: ledger.resources[a].digest for a in set(bindings.values())}
    found: dict[str, str] = {}
    for content in read_contents(at.store, sorted(wanted.items())):
        if content.state != "fine":
            raise ClusterRefused(
                "catalog_payload_digest_mismatch",
                content.address,
                f"{content.key} is not what was applied: {content.reason}",
                hint="run `omnigraph cluster refresh` and `omnigraph cluster apply`",
            )
        found[content.address.removeprefix("policy.")] = content.data.decode("utf-8-sig")
    return found, ledger


def require_unmanaged(uri: str) -> None:
    """Raise `ClusterRefused` if a graph at ``uri`` belongs to a cluster.

    Storage is read only for URIs of the form that clusters give their graphs.
    """
    found = _MANAGED.fullmatch(uri)
    if found is None:
        return
    above = found["root"]
    at = StorageRoot.at(Root.parse("." if above is None else above or "/"))
    if at.store.exists(STATE):
        raise ClusterRefused(
            "cluster_managed_graph",
            graph_key(found["graph_id"]),
            f"{uri} belongs to the cluster at {at.root}",
            hint="edit the files of the cluster, and run `omnigraph cluster apply`",
        )
