"""The desired state: every file that `cluster.yaml` names, read, checked and digested.

No graph is opened. A mistake is a diagnostic with file, line and column, and the rest is still
checked.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Literal

from omnigraph.cluster.config import (
    CLUSTER_SCOPE,
    ClusterConfig,
    DeclaredGraph,
    DeclaredPolicy,
    QuerySource,
    read_config,
)
from omnigraph.cluster.diagnostics import ClusterFindings, sentence
from omnigraph.cluster.digests import GraphParts, config_digest, digest_of, provider_digest
from omnigraph.errors import (
    ClusterRefused,
    CompileError,
    InputError,
    LimitExceeded,
    PolicyInvalid,
    SchemaParseError,
)
from omnigraph.model.records import dataclass
from omnigraph.policy import load_policy
from omnigraph.query.compile import check_query
from omnigraph.review.checks import load_checks
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.compile import compile_schema
from omnigraph.syntax.query_ast import QueryFile
from omnigraph.syntax.query_parser import parse_query_file
from omnigraph.syntax.tokens import Source

Kind = Literal["graph", "schema", "query", "checks", "policy", "embedding_provider"]

QUERY_SUFFIX = ".gq"


@dataclass(frozen=True, slots=True)
class Resource:
    """One declared resource, with the digest of its content."""

    address: str
    kind: Kind
    digest: str
    path: Path | None = None
    """Its file, if it has one."""

    def reread(self) -> bytes:
        """Read the file again; raises `ClusterRefused` if it changed since the plan."""
        assert self.path is not None
        try:
            data = self.path.read_bytes()
        except OSError as problem:
            raise ClusterRefused(
                "resource_content_changed", self.address, f"{sentence(problem)} since it was read"
            ) from None
        if digest_of(data) != self.digest:
            raise ClusterRefused(
                "resource_content_changed",
                self.address,
                f"{self.path} has changed since it was read",
                hint="run the command again",
            )
        return data


@dataclass(frozen=True, slots=True)
class Desired:
    """A cluster as its files declare it."""

    config: ClusterConfig
    resources: Mapping[str, Resource]
    """By address, sorted."""
    dependencies: tuple[tuple[str, str], ...]
    """Pairs of an address and one that it depends on."""

    @property
    def digests(self) -> dict[str, str]:
        """The digest of every resource, by address."""
        return {address: each.digest for address, each in self.resources.items()}

    @property
    def config_digest(self) -> str:
        """The digest of the whole declaration."""
        return config_digest(self.config.document, self.digests)


def graph_id_of(address: str) -> str | None:
    """The graph of an address; None for policies and providers."""
    kind, _, rest = address.partition(".")
    return rest.partition(".")[0] if kind in ("graph", "schema", "query", "checks") else None


def kind_of(address: str) -> Kind:
    """The kind of a resource, by its address."""
    kind = address.partition(".")[0]
    known: Mapping[str, Kind] = {
        "graph": "graph",
        "schema": "schema",
        "query": "query",
        "checks": "checks",
        "policy": "policy",
    }
    return known.get(kind, "embedding_provider")


def load_desired(directory: Path, findings: ClusterFindings) -> Desired | None:
    """The desired state of a directory; None if its file is not a YAML document.

    If ``findings`` has errors, the result is incomplete and must not be applied.
    """
    config = read_config(directory, findings)
    return None if config is None else _Loader(config, findings).load()


@dataclass
class _Loader:
    config: ClusterConfig
    findings: ClusterFindings
    resources: dict[str, Resource] = field(default_factory=dict)
    dependencies: list[tuple[str, str]] = field(default_factory=list)

    def load(self) -> Desired:
        for address, provider in self.config.providers.items():
            digest = provider_digest(provider.to_dict())
            self._add(Resource(address, "embedding_provider", digest))
        for graph in self.config.graphs.values():
            self._graph(graph)
        for policy in self.config.policies.values():
            self._policy(policy)
        found = dict(sorted(self.resources.items()))
        return Desired(self.config, found, tuple(sorted(self.dependencies)))

    def _add(self, resource: Resource, *needs: str) -> None:
        self.resources[resource.address] = resource
        self.dependencies += [(resource.address, need) for need in needs]

    def _graph(self, graph: DeclaredGraph) -> None:
        found = self._schema(graph)
        catalog = None if found is None else found[1]
        queries = self._queries(graph, catalog)
        checks = self._checks(graph, queries)
        if found is None:
            return
        provider = graph.embedding_provider
        parts = GraphParts(
            graph.graph_id,
            found[0],
            queries.items(),
            None if provider is None else (provider, self.resources[provider].digest),
            [(base.uri, base.scope) for base in graph.external_blobs],
            checks,
        )
        needs = () if provider is None else (provider,)
        self._add(Resource(graph.address, "graph", parts.digest), *needs)

    def _schema(self, graph: DeclaredGraph) -> tuple[str, Catalog] | None:
        """The digest and types of a graph's schema."""
        at = f"graphs.{graph.graph_id}.schema"
        path = self.config.path_of(graph.schema)
        data = self._read(path, at, "schema_file_missing", "the schema")
        if data is None:
            return None
        try:
            catalog = compile_schema(_source(data, path)).catalog
        except SchemaParseError as problem:
            self.findings.error("schema_parse_error", at, sentence(problem))
            return None
        except (CompileError, LimitExceeded) as problem:
            self.findings.error("schema_catalog_error", at, sentence(problem))
            return None
        address = f"schema.{graph.graph_id}"
        digest = digest_of(data)
        self._add(Resource(address, "schema", digest, path), graph.address)
        return digest, catalog

    # --- stored queries ---------------------------------------------------------------------------

    def _queries(self, graph: DeclaredGraph, catalog: Catalog | None) -> dict[str, str]:
        """The digests of a graph's queries, by name."""
        files: dict[Path, _ParsedFile | None] = {}
        found: dict[str, Path] = {}
        for source in graph.queries:
            for path in self._files(source):
                if path in files and source.name is None:
                    continue
                if path not in files:
                    files[path] = self._parsed(path, source.at)
                parsed = files[path]
                if parsed is not None:
                    self._register(graph, source, path, parsed, found)
        for path in dict.fromkeys(found.values()):
            names = {name for name, at in found.items() if at == path}
            parsed = files[path]
            assert parsed is not None
            self._check_types(graph, path, parsed, names, catalog)
        digests: dict[str, str] = {}
        for name, path in found.items():
            parsed = files[path]
            assert parsed is not None
            digests[name] = parsed.digest
            address = f"query.{graph.graph_id}.{name}"
            resource = Resource(address, "query", parsed.digest, path)
            self._add(resource, graph.address, f"schema.{graph.graph_id}")
        return digests

    def _files(self, source: QuerySource) -> Iterator[Path]:
        path = self.config.path_of(source.path)
        if not path.is_dir():
            yield path
            return
        try:
            found = sorted(each for each in path.iterdir() if each.suffix == QUERY_SUFFIX)
        except OSError as problem:
            self.findings.error("query_dir_unreadable", source.at, sentence(problem))
            return
        if not found:
            self.findings.warning(
                "query_dir_empty", source.at, f"{path} has no {QUERY_SUFFIX} files"
            )
        yield from found

    def _parsed(self, path: Path, at: str) -> _ParsedFile | None:
        data = self._read(path, at, "query_file_missing", "the queries")
        if data is None:
            return None
        try:
            return _ParsedFile(digest_of(data), parse_query_file(_source(data, path)))
        except (CompileError, LimitExceeded) as problem:
            self.findings.error("query_parse_error", at, sentence(problem))
            return None

    def _register(
        self,
        graph: DeclaredGraph,
        source: QuerySource,
        path: Path,
        parsed: _ParsedFile,
        found: dict[str, Path],
    ) -> None:
        names = [query.name for query in parsed.file.queries]
        if source.name is not None:
            if source.name not in names:
                has = ", ".join(names) or "none"
                self.findings.error(
                    "query_key_mismatch",
                    source.at,
                    f"{path} has no query '{source.name}'; its queries are {has}",
                )
                return
            names = [source.name]
        for name in names:
            other = found.setdefault(name, path)
            if other != path:
                self.findings.error(
                    "duplicate_query_name",
                    f"query.{graph.graph_id}.{name}",
                    f"two stored queries are called '{name}', in {other} and in {path}; "
                    "rename one of them",
                )

    def _check_types(
        self,
        graph: DeclaredGraph,
        path: Path,
        parsed: _ParsedFile,
        names: set[str],
        catalog: Catalog | None,
    ) -> None:
        for query in parsed.file.queries:
            if query.name not in names:
                continue
            address = f"query.{graph.graph_id}.{query.name}"
            if catalog is None:
                self.findings.warning(
                    "query_typecheck_skipped",
                    address,
                    f"{path}: '{query.name}' is not checked: the schema of its graph is wrong",
                )
                continue
            try:
                check_query(query, parsed.file.source, catalog)
            except (CompileError, LimitExceeded) as problem:
                self.findings.error("query_typecheck_error", address, sentence(problem))

    # --- checks and policies ----------------------------------------------------------------------

    def _checks(self, graph: DeclaredGraph, queries: Mapping[str, str]) -> str | None:
        """The digest of a graph's checks, if it has any."""
        if graph.checks is None:
            return None
        at = f"graphs.{graph.graph_id}.checks"
        path = self.config.path_of(graph.checks)
        data = self._read(path, at, "checks_file_missing", "the checks")
        if data is None:
            return None
        try:
            for check in load_checks(path):
                if check.query is None or check.file is not None:
                    raise InputError(
                        f"{path}: the check '{check.name}' names a file; name a stored query"
                    )
                if check.query not in queries:
                    raise InputError(
                        f"{path}: the check '{check.name}' names the query '{check.query}', "
                        f"which graph '{graph.graph_id}' does not declare"
                    )
        except InputError as problem:
            self.findings.error("checks_invalid", at, sentence(problem))
            return None
        digest = digest_of(data)
        address = f"checks.{graph.graph_id}"
        self._add(Resource(address, "checks", digest, path), graph.address)
        return digest

    def _policy(self, policy: DeclaredPolicy) -> None:
        at = f"policies.{policy.name}.file"
        path = self.config.path_of(policy.file)
        data = self._read(path, at, "policy_file_missing", "the policy")
        if data is None:
            return
        is_cluster = policy.applies_to == (CLUSTER_SCOPE,)
        try:
            if is_cluster:
                load_policy(path, kind="server")
            else:
                # Compiled once: for other graphs only the resource's name differs.
                load_policy(path, kind="graph")
        except (PolicyInvalid, InputError) as problem:
            self.findings.error("policy_invalid", at, sentence(problem))
            return
        needs = [scope for scope in policy.applies_to if scope != CLUSTER_SCOPE]
        self._add(Resource(f"policy.{policy.name}", "policy", digest_of(data), path), *needs)

    def _read(self, path: Path, at: str, code: str, what: str) -> bytes | None:
        try:
            return path.read_bytes()
        except OSError as problem:
            reason = (problem.strerror or str(problem)).lower()
            self.findings.error(
                code, at, f"{self.config.file}: {what} {path} cannot be read: {reason}"
            )
            return None


@dataclass(frozen=True, slots=True)
class _ParsedFile:
    digest: str
    file: QueryFile


def _source(data: bytes, path: Path) -> Source:
    text = Source.of(data, SchemaParseError if path.suffix == ".pg" else CompileError).text
    return Source(text, str(path))
