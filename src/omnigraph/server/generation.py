"""What a server serves: tokens, policies, graphs and stored queries, as one immutable value.

A reload builds the next generation and replaces the whole value; it is never changed in place.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import orjson

from omnigraph.cluster.serving import applied_fingerprint, read_applied
from omnigraph.errors import ClusterRefused, InputError, OmnigraphError
from omnigraph.graph import AUTO_OPTIMIZE_VARIABLE, Graph, open_graph
from omnigraph.graph.gate import SYSTEM, Access
from omnigraph.graph.opened import for_access
from omnigraph.graph.reading import query_files
from omnigraph.model.records import dataclass
from omnigraph.model.signatures import QuerySignature
from omnigraph.policy import Policy, load_policy
from omnigraph.review.checks import (
    SUFFIXES,
    DeclaredCheck,
    checks_files,
    load_checks,
    stored_checks,
)
from omnigraph.server.auth import (
    RuntimeState,
    ServerGate,
    TokenTable,
    read_tokens,
    runtime_state,
    tokens_file,
)
from omnigraph.server.config import (
    GraphSpec,
    ServerConfig,
    require_graph_id,
    require_server_safe,
)
from omnigraph.server.mcp_tools import TOOLS
from omnigraph.syntax.tokens import Source
from omnigraph.wire.answers import QueryCatalog

log = logging.getLogger(__name__)

OPENED_AT_ONCE = 4
_NONE: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class StoredQuery:
    """A stored query, called by name."""

    source: str
    signature: QuerySignature


class StoredQueries:
    """The stored queries of one graph, by name."""

    def __init__(self, queries: Iterable[StoredQuery] = ()) -> None:
        self._by_name = {query.signature.name: query for query in queries}
        listed = (self._by_name[name].signature for name in sorted(self._by_name))
        self.catalog = orjson.dumps(QueryCatalog(tuple(listed)).to_dict())
        """The list of queries as JSON; built once per generation."""

    def __len__(self) -> int:
        return len(self._by_name)

    def get(self, name: str) -> StoredQuery | None:
        """The query with this name, if there is one."""
        return self._by_name.get(name)

    def __iter__(self) -> Iterator[StoredQuery]:
        return iter(self._by_name.values())


def applied_queries(
    graph: Graph, stored: Iterable[tuple[str, Source]], taken: Collection[str] = ()
) -> StoredQueries:
    """Compile the stored queries of a cluster against the graph.

    Raises the first compile error, and `InputError` for a name in ``taken``.
    """
    found: list[StoredQuery] = []
    signatures: dict[str, dict[str, QuerySignature]] = {}
    for name, source in stored:
        if name in taken:
            raise InputError(f"the stored query '{name}' has the name of a tool", hint="rename it")
        # Several queries of one file share one source text.
        if source.text not in signatures:
            described = graph.describe_queries(source)
            signatures[source.text] = {each.name: each for each in described}
        signature = signatures[source.text].get(name)
        if signature is None:
            raise InputError(f"{source.path} has no query '{name}'")
        found.append(StoredQuery(source.text, signature))
    return StoredQueries(found)


def load_queries(graph: Graph, paths: Iterable[Path], taken: Collection[str] = ()) -> StoredQueries:
    """Compile every query of the files against the graph.

    Raises the first compile error, with its file and position, and `InputError` for a name in
    ``taken`` or used twice, and for an unreadable file.
    """
    found: dict[str, StoredQuery] = {}
    files: dict[str, Path] = {}
    for file in query_files(paths):
        for signature in graph.describe_queries(file):
            if signature.name in taken:
                raise InputError(
                    f"the stored query '{signature.name}' in {file} has the name of a tool",
                    hint="rename it",
                )
            if signature.name in found:
                raise InputError(
                    f"two stored queries are called '{signature.name}', in {files[signature.name]} "
                    f"and in {file}",
                    hint="rename one of them",
                )
            found[signature.name] = StoredQuery(file.read_text("utf-8"), signature)
            files[signature.name] = file
    return StoredQueries(found.values())


@dataclass(frozen=True, slots=True)
class Served:
    """One served graph."""

    graph_id: str
    graph: Graph
    """The server's own handle; requests use `graph_for`."""
    queries: StoredQueries
    handle_key: tuple[object, ...]
    """The settings that the handle was opened with; if they are equal, a reload keeps the handle.
    """
    checks: tuple[DeclaredCheck, ...] = ()
    """The checks of change requests, from files beside the stored queries and from pipelines."""

    def graph_for(self, access: Access) -> Graph:
        """The graph for one caller: policy decides every verb."""
        return for_access(self.graph, access)


@dataclass(frozen=True, slots=True)
class Generation:
    """The configuration that a request sees from its beginning to its end."""

    number: int
    state: RuntimeState
    tokens: TokenTable
    graphs: Mapping[str, Served]
    quarantined: Mapping[str, str]
    """Graphs that cannot be served, with the reason, which only the log shows."""
    gate: ServerGate
    """Decides about operations of the server itself."""
    specs: tuple[GraphSpec, ...] = ()
    """The specifications of all graphs, including quarantined ones."""


def build(config: ServerConfig, current: Generation | None = None) -> Generation:
    """Build the next generation; raises `InputError` for errors that prevent a start.

    A graph that cannot be opened, or with invalid queries, is left out and logged, unless all
    graphs are required or none would remain. For a cluster, the applied revision is read; raises
    `ClusterRefused` if it cannot be trusted.
    """
    config, unfinished = (config, {}) if config.cluster is None else _applied(config)
    for spec in config.graphs:
        require_graph_id(spec.graph_id)
        require_server_safe(spec.external_blobs)
    tokens = TokenTable() if config.owner is not None else read_tokens(config.environment)
    server_bundle = config.server_policy_text or config.server_policy
    policies = [*(spec.bundle for spec in config.graphs), server_bundle]
    state = runtime_state(
        has_tokens=len(tokens) > 0 or config.jwt is not None,
        has_bundle=any(policy is not None for policy in policies),
        unauthenticated=config.unauthenticated,
        is_owned=config.owner is not None,
    )
    server_policy: Policy | None = None
    if server_bundle is not None:
        server_policy = _policy(server_bundle, "server", "server")
    graphs, quarantined = _opened(config, config.graphs, {} if current is None else current.graphs)
    quarantined = {**unfinished, **quarantined}
    _require_enough(config, graphs, quarantined)
    _require_own_roots(graphs)
    log.info(
        "generation ready",
        extra={
            "fields": {
                "state": str(state),
                "graphs_ready": len(graphs),
                "graphs_quarantined": len(quarantined),
                "token_source": tokens.source,
            }
        },
    )
    return Generation(
        1 if current is None else current.number + 1,
        state,
        tokens,
        graphs,
        quarantined,
        ServerGate(server_policy),
        config.graphs,
    )


def _applied(config: ServerConfig) -> tuple[ServerConfig, dict[str, str]]:
    """The configuration with the applied graphs of its cluster, and the graphs that are left out.

    A graph is left out if an operation on it was interrupted, or if its secret is not set.
    """
    assert config.cluster is not None
    found = read_applied(config.cluster)
    left_out = dict(found.quarantined)
    specs = []
    for graph in found.graphs:
        try:
            embedding = graph.embedding(config.environment)
        except InputError as problem:
            left_out[graph.graph_id] = _reason(problem)
            continue
        specs.append(
            GraphSpec(
                graph.graph_id,
                graph.uri,
                policy_text=graph.policy,
                stored=tuple((each.name, Source(each.text, each.key)) for each in graph.queries),
                checks=graph.checks,
                embedding=embedding,
                external_blobs=graph.external_blobs,
            )
        )
    for graph_id, reason in sorted(left_out.items()):
        fields = {"graph_id": graph_id, "reason": reason}
        log.error("graph quarantined", extra={"fields": fields})
    log.info("cluster read", extra={"fields": {"revision": found.revision, "state": found.cas}})
    return replace(config, graphs=tuple(specs), server_policy_text=found.policy), left_out


def retried(config: ServerConfig, current: Generation) -> Generation:
    """The generation with previously failing graphs that can be opened now.

    Returns ``current`` if there are none. Nothing else changes: only a reload reads changed files.
    Raises `InputError` for a graph that is already served.
    """
    specs = [spec for spec in current.specs if spec.graph_id in current.quarantined]
    opened, failed = _opened(config, specs, {}, current.quarantined)
    if not opened:
        return current
    quarantined = {
        graph_id: failed.get(graph_id, reason)
        for graph_id, reason in current.quarantined.items()
        if graph_id not in opened
    }
    graphs = {**current.graphs, **opened}
    _require_own_roots(graphs)
    log.info("graphs opened at last", extra={"fields": {"graphs": ", ".join(opened)}})
    return replace(current, number=current.number + 1, graphs=graphs, quarantined=quarantined)


def fingerprint(config: ServerConfig) -> str:
    """A digest of every file that a generation is built from."""
    digest = hashlib.sha256()
    if config.cluster is not None:
        digest.update(applied_fingerprint(config.cluster).encode())
    for path in sorted(_files(config)):
        digest.update(str(path).encode() + b"\0")
        try:
            digest.update(hashlib.sha256(path.read_bytes()).digest())
        except OSError:
            digest.update(b"-")
    return digest.hexdigest()


def _files(config: ServerConfig) -> Iterator[Path]:
    tokens = tokens_file(config.environment)
    single = [tokens, config.server_policy, *(spec.policy for spec in config.graphs)]
    yield from (path for path in single if path is not None)
    for spec in config.graphs:
        for path in spec.queries:
            yield from checks_files((path,))
            try:
                yield from query_files([path])
            except InputError:
                yield path


def _opened(
    config: ServerConfig,
    specs: Iterable[GraphSpec],
    known: Mapping[str, Served],
    logged: Mapping[str, str] = _NONE,
) -> tuple[dict[str, Served], dict[str, str]]:
    """Open the graphs that can be served, by id; returns the reasons of the others, too.

    ``known`` graphs are already open; reasons in ``logged`` are not logged again.
    """
    ready: dict[str, Served] = {}
    quarantined: dict[str, str] = {}
    with ThreadPoolExecutor(OPENED_AT_ONCE, "open-graph") as pool:
        attempts = {
            spec.graph_id: pool.submit(_serve, config, spec, known.get(spec.graph_id))
            for spec in specs
        }
        for graph_id, attempt in sorted(attempts.items()):
            try:
                ready[graph_id] = attempt.result()
            except (OmnigraphError, OSError) as problem:
                quarantined[graph_id] = reason = _reason(problem)
                if logged.get(graph_id) != reason:
                    log.error(
                        "graph quarantined",
                        extra={"fields": {"graph_id": graph_id, "reason": reason}},
                    )
    return ready, quarantined


def _reason(problem: Exception) -> str:
    """The error text, with file and line where known."""
    text = problem.render() if isinstance(problem, OmnigraphError) else str(problem)
    return text.partition("\n")[0]


def _serve(config: ServerConfig, spec: GraphSpec, known: Served | None) -> Served:
    policy = None if spec.bundle is None else _policy(spec.bundle, spec.graph_id, "graph")
    digest = "" if spec.bundle is None else _digest(spec.bundle)
    key = (spec.uri, digest, spec.embedding, spec.external_blobs)
    if known is not None and known.handle_key == key:
        graph = known.graph  # tables stay open, and plans compiled
    else:
        graph = for_access(
            open_graph(
                spec.uri,
                policy=policy,
                embedding=spec.embedding,
                audit=config.audit,
                name=spec.graph_id,
                external_blobs=spec.external_blobs,
                # A long-running process compacts its graphs, unless the environment disables it.
                heal=True,
                auto_optimize=None if AUTO_OPTIMIZE_VARIABLE in config.environment else True,
            ),
            SYSTEM,
        )
    files = [path for path in spec.queries if path.suffix not in SUFFIXES]
    taken = TOOLS if config.mcp else ()
    if spec.stored:
        queries = applied_queries(graph, spec.stored, taken)
    else:
        queries = load_queries(graph, files, taken)
    checks = stored_checks(spec.queries) if spec.checks is None else load_checks(spec.checks)
    return Served(spec.graph_id, graph, queries, key, checks)


def _policy(path: Path | str, graph_id: str, kind: str) -> Policy:
    try:
        return load_policy(path, graph=graph_id, kind="server" if kind == "server" else "graph")
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        raise InputError(f"the policy {path} cannot be read: {reason}") from None


def _digest(policy: Path | str) -> str:
    data = policy.encode() if isinstance(policy, str) else policy.read_bytes()
    return hashlib.sha256(data).hexdigest()


def _require_enough(
    config: ServerConfig, graphs: Mapping[str, Served], quarantined: Mapping[str, str]
) -> None:
    if config.cluster is not None and quarantined and not graphs:
        reasons = "; ".join(f"{each}: {reason}" for each, reason in sorted(quarantined.items()))
        raise ClusterRefused(
            "cluster_no_healthy_graphs", config.cluster, f"no graph can be served: {reasons}"
        )
    if quarantined and (config.require_all_graphs or not graphs):
        graph_id, reason = next(iter(quarantined.items()))
        hint = (
            "mend it, or leave out `--require-all-graphs`"
            if graphs
            else "check `--store`; `omnigraph init` creates a graph, `omnigraph doctor` tries one"
        )
        raise InputError(f"graph '{graph_id}' cannot be served: {reason}", hint=hint)
    if not graphs:
        raise InputError("there is no graph to serve", hint="name one with `--store`")


def _require_own_roots(graphs: Mapping[str, Served]) -> None:
    roots: dict[str, str] = {}
    for graph_id, served in graphs.items():
        other = roots.setdefault(served.graph.uri, graph_id)
        if other != graph_id:
            raise InputError(f"graphs '{other}' and '{graph_id}' are both {served.graph.uri}")
