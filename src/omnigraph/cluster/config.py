"""`cluster.yaml`: read strictly, with the position of every value.

Files that it names are read by `desired`. Every problem is a diagnostic, and reading continues
after it.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Literal

from omnigraph.cluster.diagnostics import ClusterFindings, Collecting
from omnigraph.effects.objects import require_directories
from omnigraph.effects.uri import Root
from omnigraph.embedding.config import PROVIDER_NAMES, EmbeddingConfig
from omnigraph.errors import ClusterRefused, InputError
from omnigraph.model.external_uris import ExternalBases, ExternalPlace
from omnigraph.model.records import dataclass
from omnigraph.strict_yaml import Node, Plain, plain_value, read_document
from omnigraph.syntax.suggest import did_you_mean

FILE_NAME = "cluster.yaml"
VERSION = 1

GRAPH_ID_CHARACTERS_MAX = 64
RESERVED_GRAPH_IDS = frozenset({"policies", "healthz", "openapi", "graphs"})
"""Path segments that servers use for other purposes."""

CLUSTER_SCOPE = "cluster"
"""The scope of a policy for the server itself."""

RESERVED_KEYS = ("apply", "env_file", "pipelines", "embeddings", "ui", "aliases", "bindings")
"""Top-level keys that are reserved for later versions."""

BlobScope = Literal["server_safe", "embedded_only"]

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
_GRAPH_ID = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_SECRET = re.compile(r"\$\{[A-Za-z_][A-Za-z0-9_]*\}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class Provider:
    """An embedding provider; its key is given as a reference to a variable."""

    kind: str
    base_url: str | None = None
    model: str | None = None
    api_key: str | None = None

    def to_dict(self) -> dict[str, str]:
        """The members that are set, in the order of the digest."""
        members = {
            "kind": self.kind,
            "base_url": self.base_url,
            "model": self.model,
            "api_key": self.api_key,
        }
        return {name: value for name, value in members.items() if value is not None}


@dataclass(frozen=True, slots=True)
class BlobBase:
    """A folder whose objects a graph's writes may refer to as blobs."""

    uri: str
    scope: BlobScope


@dataclass(frozen=True, slots=True)
class QuerySource:
    """A declaration of stored queries: a path, and the query's name if a map gives one."""

    path: str
    at: str
    """The key of the declaration."""
    name: str | None = None


@dataclass(frozen=True, slots=True)
class DeclaredGraph:
    """A declared graph."""

    graph_id: str
    schema: str
    queries: tuple[QuerySource, ...] = ()
    checks: str | None = None
    """The file with its checks of change requests."""
    embedding_provider: str | None = None
    """The address of its embedding provider."""
    external_blobs: tuple[BlobBase, ...] = ()

    @property
    def address(self) -> str:
        """The address of the graph in plans and in the ledger."""
        return f"graph.{self.graph_id}"


@dataclass(frozen=True, slots=True)
class DeclaredPolicy:
    """A declared policy bundle."""

    name: str
    file: str
    applies_to: tuple[str, ...]
    """The scopes, `cluster` or `graph.<id>`, sorted and unique."""


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """The content of a `cluster.yaml`."""

    directory: Path
    storage: Root
    locks: bool = True
    name: str | None = None
    providers: Mapping[str, Provider] = field(default_factory=dict)
    graphs: Mapping[str, DeclaredGraph] = field(default_factory=dict)
    policies: Mapping[str, DeclaredPolicy] = field(default_factory=dict)
    document: Any = None
    """The whole file as JSON values."""

    @property
    def file(self) -> Path:
        """The path of the file."""
        return self.directory / FILE_NAME

    def path_of(self, declared: str) -> Path:
        """A declared path as an absolute one; relative paths start at the directory."""
        return self.directory / declared


class _ConfigProblem(InputError):
    """A mistake in a file, with its position."""

    code = InputError.code


def read_config(directory: Path, findings: ClusterFindings) -> ClusterConfig | None:
    """The cluster declared in a directory; None if the file is not a YAML document.

    Invalid parts are noted in ``findings`` and left out.
    """
    root = _document(directory, findings)
    return None if root is None else _Reader(directory, findings).cluster(root)


def storage_of(directory: Path) -> Root:
    """The storage root of a directory's cluster, even if its file has other errors.

    A directory with a ledger and without `cluster.yaml` is itself a storage root. Raises
    `ClusterRefused`.
    """
    findings = ClusterFindings()
    if not (directory / FILE_NAME).exists() and (directory / "__cluster" / "state.json").exists():
        return Root.parse(directory)
    root = _document(directory, findings)
    if root is not None:
        declared = root.value.get("storage") if isinstance(root.value, dict) else None
        storage = _Reader(directory, findings).storage(declared)
        if storage is not None:
            return storage
    first = next(iter(findings))
    raise ClusterRefused(first.code, first.path, first.message)


def _document(directory: Path, findings: ClusterFindings) -> Node | None:
    if not directory.is_dir():
        findings.error(
            "config_dir_not_found",
            str(directory),
            f"there is no directory {directory}; name the one with {FILE_NAME} by `--config DIR`",
        )
        return None
    file = directory / FILE_NAME
    try:
        return read_document(file, _ConfigProblem)
    except OSError as problem:
        reason = (problem.strerror or str(problem)).lower()
        findings.error("cluster_config_read_error", FILE_NAME, f"{file} cannot be read: {reason}")
    except _ConfigProblem as problem:
        is_duplicate = "duplicate_key" in problem.details
        code = "duplicate_yaml_key" if is_duplicate else "invalid_cluster_yaml"
        findings.error(code, str(problem.details.get("path") or FILE_NAME), problem.message)
    return None


def is_graph_id(text: str) -> bool:
    """Whether a graph of a cluster may have this id; such ids are valid for every server."""
    return (
        _GRAPH_ID.fullmatch(text) is not None
        and len(text) <= GRAPH_ID_CHARACTERS_MAX
        and text not in RESERVED_GRAPH_IDS
    )


def is_resource_name(text: str) -> bool:
    """Whether a query, a policy or a provider may have this name."""
    return _NAME.fullmatch(text) is not None


class _Reader:
    """Converts the nodes of one file to declarations."""

    def __init__(self, directory: Path, findings: ClusterFindings) -> None:
        self._directory = directory
        self._findings = findings

    def cluster(self, root: Node) -> ClusterConfig:
        """The valid parts of the file."""
        fields: Mapping[str, Node] = {}
        with self._noting():
            fields = self._top(root)
        with self._noting():
            _require_version(fields, root, self._findings)
        locks, name = True, None
        with self._noting():
            name = self._name(fields.get("metadata"))
        with self._noting():
            locks = self._locks(fields.get("state"))
        providers = self._providers(fields.get("providers"))
        graphs = self._graphs(fields.get("graphs"), providers)
        # Policies may name a graph with an invalid declaration, which is reported once.
        listed = fields["graphs"].value if "graphs" in fields else {}
        ids = tuple(listed) if isinstance(listed, dict) else ()
        policies = self._policies(fields.get("policies"), ids)
        storage = self.storage(fields.get("storage"))
        return ClusterConfig(
            self._directory,
            storage or Root.parse(self._directory),
            locks,
            name,
            providers,
            graphs,
            policies,
            plain_value(root),
        )

    def storage(self, node: Node | None) -> Root | None:
        """The storage root, by default the directory; None if it is invalid."""
        if node is None:
            return Root.parse(self._directory)
        with self._noting("invalid_storage_root"):
            text = node.text()
            is_uri = _SCHEME.match(text) is not None or text.lower().startswith("file:")
            try:
                return Root.parse(text if is_uri else self._directory / text)
            except InputError as refused:
                node.fail(refused.message, hint=refused.hint)
        return None

    def _top(self, root: Node) -> Mapping[str, Node]:
        fields = dict(root.mapping())
        for key in RESERVED_KEYS:
            reserved = fields.pop(key, None)
            if reserved is not None:
                self._note(
                    "future_phase_field",
                    reserved,
                    f"`{key}` is reserved and has no meaning in this version; leave it out",
                )
        known = ("version", "metadata", "storage", "state", "providers", "graphs", "policies")
        for key in [key for key in fields if key not in known]:
            hint = did_you_mean(key, known) or f"the keys here are {', '.join(known)}"
            self._note("invalid_cluster_yaml", fields.pop(key), f"unknown key `{key}`; {hint}")
        return fields

    def _name(self, node: Node | None) -> str | None:
        if node is None:
            return None
        named = node.fields(optional=("name",)).get("name")
        if named is None:
            return None
        if isinstance(named.value, str) and not named.value.strip():
            self._note("empty_metadata_name", named, "the name of a cluster is blank")
            return None
        return named.text()

    def _locks(self, node: Node | None) -> bool:
        if node is None:
            return True
        fields = node.fields(optional=("backend", "lock"))
        backend = fields.get("backend")
        if backend is not None and backend.value != "cluster":
            self._note(
                "unsupported_state_backend",
                backend,
                f"the ledger has the backend {plain_value(backend)!r}; only `cluster` is known",
            )
        lock = fields.get("lock")
        return lock is None or lock.flag()

    # --- providers --------------------------------------------------------------------------------

    def _providers(self, node: Node | None) -> dict[str, Provider]:
        found: dict[str, Provider] = {}
        with self._noting():
            kinds = {} if node is None else node.fields(optional=("embedding",))
            listed = kinds["embedding"].mapping() if "embedding" in kinds else {}
            for name, declared in listed.items():
                self._require_name(name, declared)
                with self._noting():
                    provider = self._provider(declared)
                    if provider is not None:
                        found[f"provider.embedding.{name}"] = provider
        return found

    def _provider(self, node: Node) -> Provider | None:
        fields = node.fields(optional=("kind", "provider", "base_url", "model", "api_key"))
        if "kind" in fields and "provider" in fields:
            node.fail("`kind` and `provider` mean the same", hint="keep one of the two")
        kinds = fields.get("kind", fields.get("provider"))
        kind = PROVIDER_NAMES[0] if kinds is None else kinds.text()
        key = fields["api_key"].text() if "api_key" in fields else None
        if key is not None and _SECRET.fullmatch(key) is None:
            # Do not repeat the value: it may be a secret.
            self._note(
                "embedding_api_key_inline",
                fields["api_key"],
                "`api_key` must name a variable, as ${NAME}; secrets are never in this file",
            )
            return None
        if key is None and kind != "mock":
            self._note(
                "embedding_api_key_required",
                node,
                f"a provider of kind `{kind}` needs `api_key`, as ${{NAME}} of a variable",
            )
            return None
        base_url = fields["base_url"].text() if "base_url" in fields else None
        model = fields["model"].text() if "model" in fields else None
        try:
            EmbeddingConfig.of(kind, model=model, base_url=base_url, api_key="reference")
        except InputError as refused:
            self._note("invalid_embedding_provider", node, refused.message)
            return None
        return Provider(kind, base_url, model, key)

    # --- graphs -----------------------------------------------------------------------------------

    def _graphs(
        self, node: Node | None, providers: Mapping[str, Provider]
    ) -> dict[str, DeclaredGraph]:
        found: dict[str, DeclaredGraph] = {}
        with self._noting():
            for graph_id, declared in ({} if node is None else node.mapping()).items():
                if not is_graph_id(graph_id):
                    reserved = ", ".join(sorted(RESERVED_GRAPH_IDS))
                    self._note(
                        "invalid_resource_id",
                        declared,
                        f"'{graph_id}' is not a graph id: use a letter, then letters, digits and "
                        f"'-', at most {GRAPH_ID_CHARACTERS_MAX}; {reserved} are taken",
                    )
                    continue
                with self._noting():
                    found[graph_id] = self._graph(graph_id, declared, providers)
        return found

    def _graph(self, graph_id: str, node: Node, providers: Mapping[str, Provider]) -> DeclaredGraph:
        streaming = node.mapping().get("streaming")
        if streaming is not None:
            self._note(
                "removed_streaming_declaration",
                streaming,
                "`streaming` was removed: streams are pipelines, started with `omnigraph pipeline`",
            )
            node = Node(
                {key: each for key, each in node.mapping().items() if key != "streaming"},
                node.place,
                node.path,
                node.error,
            )
        fields = node.fields(
            required=("schema",),
            optional=("queries", "checks", "embedding_provider", "external_blobs"),
        )
        provider: str | None = None
        queries: tuple[QuerySource, ...] = ()
        blobs: tuple[BlobBase, ...] = ()
        with self._noting():
            queries = tuple(self._queries(fields.get("queries")))
        with self._noting():
            provider = self._bound_provider(fields.get("embedding_provider"), providers)
        with self._noting("invalid_external_blob_policy"):
            blobs = self._blobs(fields.get("external_blobs"))
        checks = fields.get("checks")
        return DeclaredGraph(
            graph_id,
            fields["schema"].text(),
            queries,
            None if checks is None else checks.text(),
            provider,
            blobs,
        )

    def _queries(self, node: Node | None) -> Iterator[QuerySource]:
        match None if node is None else node.value:
            case None:
                return
            case str():
                assert node is not None
                yield QuerySource(node.text(), node.path)
            case list() as items:
                for item in items:
                    yield QuerySource(item.text(), item.path)
            case dict() as named:
                for name, item in named.items():
                    if self._require_name(name, item):
                        file = item.fields(required=("file",))["file"]
                        yield QuerySource(file.text(), file.path, name)
            case _:
                assert node is not None
                node.fail(f"{node.label} must be a path, a list of paths, or a map of names")

    def _bound_provider(self, node: Node | None, providers: Mapping[str, Provider]) -> str | None:
        if node is None:
            return None
        text = node.text()
        address = text if "." in text else f"provider.embedding.{text}"
        if not address.startswith("provider.embedding."):
            self._note(
                "wrong_kind_reference",
                node,
                f"'{text}' is no embedding provider; write its name, or provider.embedding.<name>",
            )
        elif address not in providers:
            known = [each.removeprefix("provider.embedding.") for each in providers]
            hint = did_you_mean(text, known) or "declare it under `providers.embedding`"
            self._note(
                "dangling_embedding_provider_reference",
                node,
                f"there is no embedding provider '{text}'; {hint}",
            )
        else:
            return address
        return None

    def _blobs(self, node: Node | None) -> tuple[BlobBase, ...]:
        if node is None:
            return ()
        allowed = node.fields(optional=("allow",)).get("allow")
        bases: list[BlobBase] = []
        for item in [] if allowed is None else allowed.items():
            fields = item.fields(required=("base", "scope"))
            scope = fields["scope"].text()
            if scope not in ("server_safe", "embedded_only"):
                fields["scope"].fail(f"`scope` is server_safe or embedded_only, not '{scope}'")
            with self._noting("invalid_external_blob_base"):
                place = _base(fields["base"], scope)
                kind: BlobScope = "server_safe" if scope == "server_safe" else "embedded_only"
                bases.append(BlobBase(str(place), kind))
        if allowed is not None:
            try:
                ExternalBases.of(base.uri for base in bases)
            except InputError as refused:
                allowed.fail(refused.message, hint=refused.hint)
        return tuple(bases)

    # --- policies ---------------------------------------------------------------------------------

    def _policies(self, node: Node | None, graphs: Collection[str]) -> dict[str, DeclaredPolicy]:
        found: dict[str, DeclaredPolicy] = {}
        bound: dict[str, str] = {}
        with self._noting():
            for name, declared in ({} if node is None else node.mapping()).items():
                self._require_name(name, declared)
                with self._noting():
                    fields = declared.fields(required=("file",), optional=("applies_to",))
                    scopes = self._scopes(name, declared, fields.get("applies_to"), graphs)
                    for scope in scopes:
                        other = bound.setdefault(scope, name)
                        if other != name:
                            self._note(
                                "duplicate_policy_binding",
                                fields["applies_to"],
                                f"policies '{other}' and '{name}' both apply to {scope}; "
                                "a scope has at most one",
                            )
                    found[name] = DeclaredPolicy(name, fields["file"].text(), scopes)
        return found

    def _scopes(
        self,
        name: str,
        policy: Node,
        node: Node | None,
        graphs: Collection[str],
    ) -> tuple[str, ...]:
        items = [] if node is None else node.items()
        if not items:
            self._note(
                "policy_missing_applies_to",
                policy if node is None else node,
                f"policy '{name}' applies to nothing; list graphs, or `{CLUSTER_SCOPE}`, "
                "under `applies_to`",
            )
        scopes: set[str] = set()
        for item in items:
            text = item.text()
            if text == CLUSTER_SCOPE:
                scopes.add(text)
                continue
            graph_id = text.removeprefix("graph.")
            if "." in graph_id:
                self._note(
                    "wrong_kind_reference",
                    item,
                    f"a policy applies to graphs or to `{CLUSTER_SCOPE}`, not to '{text}'",
                )
            elif graph_id not in graphs:
                hint = did_you_mean(graph_id, graphs) or "declare it under `graphs`"
                self._note(
                    "dangling_graph_reference", item, f"there is no graph '{graph_id}'; {hint}"
                )
            else:
                scopes.add(f"graph.{graph_id}")
        if CLUSTER_SCOPE in scopes and len(scopes) > 1:
            assert node is not None
            self._note(
                "policy_mixed_binding_kinds",
                node,
                f"policy '{name}' applies to the cluster and to graphs; make two of it",
            )
        return tuple(sorted(scopes))

    # --- noting problems --------------------------------------------------------------------------

    def _require_name(self, name: str, node: Node) -> bool:
        if is_resource_name(name):
            return True
        self._note(
            "invalid_resource_id",
            node,
            f"'{name}' is not a name: use an ASCII letter or _, then letters, digits, _ and -",
        )
        return False

    def _note(self, code: str, node: Node, message: str) -> None:
        self._findings.error(code, node.path or FILE_NAME, f"{node.place}: {message}")

    def _noting(self, code: str = "invalid_cluster_yaml") -> Collecting[_ConfigProblem]:
        """Note a mistake in the block with this code, and continue after it."""

        def note(problem: _ConfigProblem) -> None:
            path = str(problem.details.get("path") or FILE_NAME)
            hint = f"; {problem.hint}" if problem.hint else ""
            self._findings.error(code, path, problem.message + hint)

        return Collecting(_ConfigProblem, note)


def _require_version(fields: Mapping[str, Node], root: Node, findings: ClusterFindings) -> None:
    node = fields.get("version")
    if node is None:
        root.fail("the file needs the key `version`", hint=f"write `version: {VERSION}`")
    if node.value != Plain(str(VERSION), "an integer"):
        findings.error(
            "unsupported_cluster_config_version",
            node.path,
            f"{node.place}: version {plain_value(node)!r} is not known; this product reads "
            f"version {VERSION}",
        )


def _base(node: Node, scope: str) -> ExternalPlace:
    text = node.text()
    try:
        bases = ExternalBases.of([text])
        if scope == "embedded_only":
            require_directories(bases)
    except InputError as refused:
        node.fail(refused.message, hint=refused.hint)
    (place,) = bases.places
    if scope == "server_safe" and place.scheme != "s3":
        node.fail("a base that servers may read is a folder of a bucket, s3://bucket/folder")
    return place
