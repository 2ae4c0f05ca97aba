"""The actual state of graphs and contents, to compare with the ledger.

Graphs are opened read-only, and only their main branch is read.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from functools import partial
from pathlib import Path

from omnigraph.cluster.desired import Desired
from omnigraph.cluster.diagnostics import ClusterFindings, sentence
from omnigraph.cluster.digests import digest_of
from omnigraph.cluster.ledger import AppliedResource, Ledger, Observation, Status
from omnigraph.cluster.lock import now_text
from omnigraph.cluster.records import graph_key, has_content, read_contents
from omnigraph.effects.objects import ObjectStore, open_store
from omnigraph.effects.requests import concurrently
from omnigraph.effects.uri import Root
from omnigraph.errors import InputError, OmnigraphError
from omnigraph.graph import Graph, OpenMode, open_graph
from omnigraph.model.records import dataclass

OPENED_AT_ONCE = 4


@dataclass(frozen=True, slots=True)
class StorageRoot:
    """The storage root of a cluster, with ledger, catalog and graphs."""

    root: Root
    store: ObjectStore = field(repr=False)

    @classmethod
    def at(cls, root: Root) -> StorageRoot:
        """The storage root at an address, without a request to it."""
        return cls(root, open_store(root))

    def graph_uri(self, graph_id: str) -> str:
        """The URI of a graph."""
        return self.root.join(graph_key(graph_id))

    def has_graph(self, graph_id: str) -> bool:
        """Whether anything exists at the root of a graph."""
        return self.store.exists(graph_key(graph_id))


@dataclass(frozen=True, slots=True)
class SeenGraph:
    """The observed state of one graph."""

    exists: bool
    schema_digest: str | None = None
    manifest_version: int | None = None
    graph: Graph | None = field(default=None, repr=False)
    error: str | None = None
    """The reason why it cannot be opened."""

    @property
    def is_open(self) -> bool:
        """Whether it could be opened."""
        return self.graph is not None

    def has_schema_of(self, path: Path) -> bool:
        """Whether its schema is equivalent to that in a file; comments may differ."""
        if self.graph is None:
            return False
        try:
            return not self.graph.plan_schema(path).plan.steps
        except (InputError, OSError):
            return False


def see_graph(place: StorageRoot, graph_id: str, mode: OpenMode = "read_only") -> SeenGraph:
    """Observe the graph at its derived root, or the reason why it cannot be opened.

    With ``mode`` `read_write`, interrupted operations of the graph are recovered first.
    """
    if not place.has_graph(graph_id):
        return SeenGraph(exists=False)
    try:
        graph = open_graph(place.graph_uri(graph_id), mode)
        digest = digest_of(graph.schema_source.encode())
        version = graph.snapshot().graph_manifest_version
    except (OmnigraphError, OSError) as problem:
        return SeenGraph(exists=True, error=sentence(problem))
    return SeenGraph(True, digest, version, graph)


def see_graphs(place: StorageRoot, graph_ids: Iterable[str]) -> dict[str, SeenGraph]:
    """Observe several graphs concurrently."""
    ids = list(graph_ids)
    work = [partial(see_graph, place, graph_id) for graph_id in ids]
    seen = concurrently(*work, threads=True, work_max=OPENED_AT_ONCE)
    return dict(zip(ids, seen, strict=True))


def recompose(ledger: Ledger) -> None:
    """Recompute the digest of every graph of a ledger from its parts."""
    for graph_id in ledger.graph_ids:
        digest = ledger.composite(graph_id)
        if digest is not None:
            ledger.resources[f"graph.{graph_id}"].digest = digest


def observe_graphs(
    place: StorageRoot,
    desired: Desired,
    ledger: Ledger,
    findings: ClusterFindings,
    *,
    importing: bool,
) -> None:
    """Record the state of declared graphs in a ledger; ``importing`` also adds unknown ones."""
    for graph_id, seen in see_graphs(place, sorted(desired.config.graphs)).items():
        _observe(place, desired, ledger, graph_id, seen, findings=findings, importing=importing)


def _observe(
    place: StorageRoot,
    desired: Desired,
    ledger: Ledger,
    graph_id: str,
    seen: SeenGraph,
    *,
    findings: ClusterFindings,
    importing: bool,
) -> None:
    graph, schema = f"graph.{graph_id}", f"schema.{graph_id}"
    wanted = desired.resources[schema]
    assert wanted.path is not None
    matches = seen.schema_digest == wanted.digest or seen.has_schema_of(wanted.path)
    ledger.observations[graph] = Observation(
        kind="graph",
        address=graph,
        graph_uri=place.graph_uri(graph_id),
        observed_at=now_text(),
        exists=seen.exists,
        graph_manifest_version=seen.manifest_version,
        schema_digest=seen.schema_digest,
        desired_schema_digest=wanted.digest,
        schema_matches_desired=matches if seen.is_open else None,
        error=seen.error,
    )
    if not seen.exists:
        if graph in ledger.resources or schema in ledger.resources:
            ledger.resources.pop(graph, None)
            ledger.resources.pop(schema, None)
            message = f"there is nothing at {place.graph_uri(graph_id)}"
            _note(ledger, (graph, schema), "drifted", "graph_missing", message)
        return
    if seen.error is not None:
        _note(ledger, (graph,), "error", "graph_observation_error", seen.error)
        findings.error(
            "graph_observation_error",
            graph,
            f"the graph at {place.graph_uri(graph_id)} cannot be opened: {seen.error}",
        )
        return
    if not (importing or graph in ledger.resources):
        return  # an interrupted creation, or another owner's graph
    assert seen.schema_digest is not None
    recorded = wanted.digest if matches else seen.schema_digest
    ledger.resources[schema] = AppliedResource(digest=recorded)
    if graph not in ledger.resources:
        ledger.resources[graph] = AppliedResource(digest=recorded)
    if matches:
        for address in (graph, schema):
            ledger.resource_statuses[address] = Status(status="applied")
    else:
        message = f"the graph has another schema than {wanted.path}"
        _note(ledger, (schema,), "drifted", "schema_mismatch", message)


def verify_contents(
    place: StorageRoot, ledger: Ledger, findings: ClusterFindings, *, mends: bool
) -> None:
    """Check every content of the catalog; ``mends`` records the results in the ledger.

    The digest of a missing or damaged content is removed, so that the next plan publishes it again;
    that of an unreadable one stays, because the error may be temporary.
    """
    wanted = [(a, each.digest) for a, each in ledger.resources.items() if has_content(a)]
    for content in read_contents(place.store, wanted):
        if content.state == "fine":
            continue
        address, what = content.address, f"{content.key}: {content.reason}"
        if content.state == "unreadable":
            findings.error("catalog_payload_read_error", address, what)
            if mends:
                _note(ledger, (address,), "error", "payload_read_error", what)
            continue
        findings.warning(f"catalog_payload_{content.state}", address, what)
        if mends:
            del ledger.resources[address]
            _note(ledger, (address,), "drifted", f"payload_{content.state}", what)


def _note(
    ledger: Ledger, addresses: Iterable[str], status: str, condition: str, message: str
) -> None:
    for address in addresses:
        ledger.resource_statuses[address] = Status.model_validate(
            {"status": status, "conditions": [condition], "message": message}
        )
