"""`Graph.embed`: computes vectors of stored texts that are new or have changed.

Invariant: after every commit of this module, no vector is older than its text. Vectors whose text
changed are set to null first, and each commit is conditional on the examined head. A text with a
null vector is pending work. The next run searches for changed texts from the last such commit,
which is marked in its metadata. An interrupted run leaves only nulls, and files with vectors, which
the next run loads.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import sha256
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.effects.clock import monotonic_seconds
from omnigraph.embedding.client import require_model
from omnigraph.embedding.config import BulkLimits, EmbeddingConfig, RetryLimits
from omnigraph.errors import (
    ChangeDiffRefused,
    Conflict,
    EmbeddingError,
    InputError,
    NotFound,
    PreconditionFailed,
)
from omnigraph.graph.history import diff, list_commits
from omnigraph.graph.opened import Handle, OpenGraph, engine_name
from omnigraph.graph.writing import LoadInput, run_load
from omnigraph.loading.executors import TaskRunner
from omnigraph.loading.files import Files
from omnigraph.loading.request import LoadSpec
from omnigraph.model.arrow import ID
from omnigraph.model.ids import TableKey
from omnigraph.model.load_options import ErrorOptions, LoadObserver, LoadOrigin, SparkOptions
from omnigraph.model.receipts import EMBEDS, CommitInfo, EmbedReceipt, EmbedResult, LoadReceipt
from omnigraph.model.records import dataclass
from omnigraph.model.result import ReadTarget
from omnigraph.pipeline.embedding import (
    NODE,
    EmbeddedTasks,
    VectorJob,
    about_file,
    missing_vectors,
    put_vectors_aside,
    read_table,
    write_table,
)
from omnigraph.pipeline.spark.session import SessionSettings, SparkWhenNeeded
from omnigraph.schema.catalog import Catalog, NodeType, Property
from omnigraph.storage.layout import LOAD_SCRATCH, load_scratch_name
from omnigraph.syntax.suggest import did_you_mean

COMMIT_TEXTS = 65_536
"""Texts whose vectors are committed together."""
COMMIT_ATTEMPTS = 10
"""Attempts at a commit while others write to the branch."""

AS_OF = "as_of"
"""A metadata key beside `EMBEDS`: the commit whose texts the vectors belong to."""


@dataclass(frozen=True, slots=True)
class EmbedSpec:
    """The arguments of `Graph.embed`."""

    branch: str
    since: str | None
    engine: str | None
    spark: SparkOptions
    limits: BulkLimits
    config: EmbeddingConfig
    actor: str | None
    message: str | None
    origin: LoadOrigin
    observer: LoadObserver


def vector_properties(
    catalog: Catalog, type_name: str | None, property_name: str | None
) -> list[tuple[NodeType, Property]]:
    """The selected `@embed` properties: all, those of a type, or one.

    Raises `NotFound` for an unknown type, and `InputError` if there is no such property.
    """
    if type_name is None and property_name is not None:
        raise InputError("a `property` needs its `type`", hint="name the node type as well")
    if type_name is not None and type_name not in catalog.nodes:
        raise NotFound(
            f"there is no node type `{type_name}`", hint=did_you_mean(type_name, catalog.nodes)
        )
    types = catalog.nodes.values() if type_name is None else [catalog.nodes[type_name]]
    found = [
        (node, each)
        for node in types
        for each in node.properties.values()
        if each.embed is not None and property_name in (None, each.name)
    ]
    for node, each in found:
        if not each.type.nullable:
            raise InputError(
                f"{node.name}.{each.name} is required, so no node is ever without it",
                hint=f"declare it `{each.name}: {each.type}?`, or name another property",
            )
    if not found:
        where = type_name or "the schema"
        vectors = [each.name for node in types for each in node.properties.values() if each.embed]
        raise InputError(
            f"{where} has no vector with `@embed`"
            if property_name is None
            else f"{where} has no vector `{property_name}` with `@embed`",
            hint=did_you_mean(property_name or "", vectors)
            or "declare one as `meaning: Vector(1024)? @embed(text)`",
        )
    return found


def last_embedding(commits: Sequence[CommitInfo], name: str) -> list[str]:
    """The newest of ``commits`` (newest first) that brought the vectors of a property up to date.

    Empty if there is none. If it merged vectors of a branch, they are up to date only with the
    branch's starting commit, which is returned before it.

    >>> last_embedding([], "Doc.meaning")
    []
    """
    for commit in commits:
        kept = commit.metadata or {}
        if name in kept.get(EMBEDS, ()):
            began = kept.get(AS_OF)
            return [*([began] if began else []), commit.graph_commit_id]
    return []


def embed_texts(
    graph: Handle, type_name: str | None, property_name: str | None, spec: EmbedSpec
) -> EmbedReceipt:
    """Compute vectors; see `Graph.embed`."""
    opened = graph._opened
    catalog = opened.accepted(spec.branch).catalog
    chosen = vector_properties(catalog, type_name, property_name)
    for node, vector in chosen:
        if vector.embed is not None and vector.embed.model is not None:
            require_model(spec.config, vector.embed.model, f"{node.name}.{vector.name}")
    engine = engine_name(spec.engine, spec.spark)
    results: list[EmbedResult] = []
    last: CommitInfo | None = None
    with _runner(spec, engine, opened.kernel.ids.ulid()) as runner:
        for node, vector in chosen:
            work = VectorWork(graph, spec, node, vector, runner)
            results.append(work.run())
            last = work.committed or last
    config = spec.config
    return EmbedReceipt(spec.branch, engine, config.provider, config.model, tuple(results), last)


@contextmanager
def _runner(spec: EmbedSpec, engine: str, operation_id: str) -> Iterator[TaskRunner]:
    watch = spec.observer.on_stage
    if engine == "local":
        yield TaskRunner(None, operation_id, watch, work="embedding")
        return
    settings = SessionSettings.of(os.environ, master=spec.spark.master, conf=spec.spark.conf)
    with SparkWhenNeeded(spec.spark.session, settings) as session:
        runner = TaskRunner(session, operation_id, watch, work="embedding")
        runner.begin()
        yield runner


class _VectorChanges:
    """Changes since a commit, as far as they concern the vectors of one property."""

    def __init__(self) -> None:
        self.nodes: set[str] = set()
        """Ids of nodes that were deleted, or whose text or vector changed."""
        self.stale: dict[str, dict[str, Any]] = {}
        """By id, the identifying columns of nodes whose text changed and whose vector did not."""


class VectorWork:
    """The vectors of one property on one branch."""

    def __init__(
        self, graph: Handle, spec: EmbedSpec, type: NodeType, vector: Property, runner: TaskRunner
    ) -> None:
        assert vector.embed is not None and vector.type.vector_dim is not None
        self._graph = graph
        self._opened: OpenGraph = graph._opened
        self._spec = spec
        self._type = type
        self._vector = vector.name
        self._source = vector.embed.source
        self._dimension = vector.type.vector_dim
        self._runner = runner
        self._identity = type.key or (ID,)
        """The columns by which a load identifies a node."""
        self._files = Files.of_environment([self._opened.kernel.root.uri])
        self._unexamined: list[str] = []
        """Commits between which changes are not examined yet; older ones are covered."""
        self._touched: set[str] = set()
        """Nodes that changed since this run read the texts."""
        self._stale = 0
        self.committed: CommitInfo | None = None
        """The last commit of this run."""

    @property
    def name(self) -> str:
        """The property as `Doc.meaning`."""
        return f"{self._type.name}.{self._vector}"

    def run(self) -> EmbedResult:
        """Compute missing vectors, and those of texts that changed since the last embedding commit.

        Raises `EmbeddingError` after committing the vectors that were computed until then.
        """
        started = monotonic_seconds()
        since, branch = self._spec.since, self._spec.branch
        commits = [] if since is not None else list_commits(self._graph, branch)
        self._unexamined = last_embedding(commits, self.name) if since is None else [since]
        self._commit_on_head(lambda head: None)
        resumed = self._commit_leftovers()
        done, left = self._fill()
        seconds = round(monotonic_seconds() - started, 3)
        self._runner.finished("embed", done.texts, seconds)
        if done.failure is not None:
            raise self._failure(done, done.failure)
        return EmbedResult(
            self._type.name,
            self._vector,
            done.texts,
            done.characters,
            self._stale,
            resumed,
            left,
            done.usage.requests,
            done.usage.retries,
            done.usage.tokens,
            seconds,
        )

    def _failure(self, done: EmbeddedTasks, error: EmbeddingError) -> EmbeddingError:
        kept = f"; {done.texts:,} vectors of {self.name} that it gave are kept"
        return EmbeddingError(
            f"{error.message}{kept}",
            hint=error.hint or "embed again: only what is missing is asked for",
            details={**error.details, "property": self.name, "texts": done.texts},
        )

    # --- texts that changed -----------------------------------------------------------------------

    def _commit_on_head(self, write: Callable[[str], CommitInfo | None]) -> None:
        """Set vectors older than their text to null, then call ``write`` with the new head.

        ``write`` commits on condition that the head is unchanged; otherwise both steps are
        repeated. Raises `Conflict` after too many attempts.
        """
        for _ in range(COMMIT_ATTEMPTS):
            head = self._opened.snapshot(self._spec.branch).commit_id
            moved = self._changes_between([*self._unexamined, head])
            self._touched |= moved.nodes
            try:
                if moved.stale:
                    head = self._set_null([*moved.stale.values()], head)
                    self._stale += len(moved.stale)
                self._unexamined = [head]
                made = write(head)
            except PreconditionFailed:
                continue
            if made is not None:
                self.committed = made
                self._unexamined = [made.graph_commit_id]
            return
        raise Conflict(
            f"others write to `{self._spec.branch}` all the time: the vectors of {self.name} that"
            " were computed are put aside, and not committed",
            hint="embed again, or on a branch of its own, and merge it",
        )

    def _changes_between(self, commits: Sequence[str]) -> _VectorChanges:
        """The changes from the first to the last of ``commits``, compared pairwise."""
        found = _VectorChanges()
        for older, newer in pairwise(commits):
            if older == newer:
                continue
            ops = ("update", "delete")
            changed = diff(
                self._graph, older, newer, types=[self._type.name], kinds=["node"], ops=ops
            )
            for change in changed.changes(images=True):
                assert change.before is not None
                before = change.before.properties
                after = {} if change.after is None else change.after.properties
                has_other_text = before.get(self._source) != after.get(self._source)
                has_other_vector = before.get(self._vector) != after.get(self._vector)
                if has_other_text or has_other_vector or change.after is None:
                    found.nodes.add(change.id)
                    found.stale.pop(change.id, None)
                if has_other_text and not has_other_vector and after.get(self._vector) is not None:
                    row = {name: after.get(name, change.id) for name in self._identity}
                    found.stale[change.id] = row
        return found

    # --- texts without a vector -------------------------------------------------------------------

    def _fill(self) -> tuple[EmbeddedTasks, int]:
        """Compute and commit missing vectors; also counts the nodes left to the next run."""
        opened, spec = self._opened, self._spec
        reader = opened.pinned(ReadTarget(spec.branch, None))
        self._touched.clear()
        table = TableKey.node(self._type.name)
        done, left = EmbeddedTasks(), 0
        if reader.is_empty(table):
            return done, left
        options = opened.kernel.root.storage_options()
        texts = missing_vectors(
            reader.handle(table), self._source, self._vector, self._runner, options
        )
        for start in range(0, len(texts), COMMIT_TEXTS):
            with self._vector_folder() as folder:
                job = VectorJob(
                    texts.part(start, COMMIT_TEXTS),
                    self._identity,
                    self._source,
                    self._vector,
                    self._dimension,
                    folder,
                    {AS_OF: reader.snapshot.commit_id},
                    spec.config,
                    RetryLimits.from_environment(os.environ),
                    spec.limits,
                    self._files,
                    options,
                )
                part = put_vectors_aside(job, self._runner)
                _, dropped = self._commit(_files_in(folder, self._files))
            done, left = done.plus(part), left + dropped
            if part.failure is not None:
                break
        return done, left

    @contextmanager
    def _vector_folder(self) -> Iterator[str]:
        """A folder for vector files; if the block fails it stays, for the next run to load."""
        root, store = self._opened.kernel.root, self._opened.kernel.store
        scratch = load_scratch_name(self._opened.kernel.ids.ulid())
        folder = root.join(scratch, self._folder_name)
        self._files.make_folder(folder)
        yield folder
        store.delete_prefix(scratch)

    @cached_property
    def _folder_name(self) -> str:
        """A name that is equal for all runs whose vectors are interchangeable."""
        config = self._spec.config
        about = (self._spec.branch, self.name, config.provider, config.model, self._dimension)
        return f"vectors-{sha256(repr(about).encode()).hexdigest()[:16]}"

    def _commit_leftovers(self) -> int:
        """Commit the vectors of killed runs; returns their number."""
        root, store = self._opened.kernel.root, self._opened.kernel.store
        names = [name.split("/") for name in store.list(LOAD_SCRATCH)]
        left = {name[1] for name in names if len(name) > 3 and name[2] == self._folder_name}
        taken = 0
        for operation in sorted(left):
            scratch = load_scratch_name(operation)
            paths = _files_in(root.join(scratch, self._folder_name), self._files)
            with suppress(ChangeDiffRefused, NotFound):
                # If the comparison is refused, the old texts are unknown: these vectors are
                # computed again.
                for path in paths[:1]:
                    began = about_file(path, self._files)[AS_OF]
                    self._touched |= self._changes_between([began, self._unexamined[-1]]).nodes
                taken += self._commit(paths)[0]
            store.delete_prefix(scratch)
        return taken

    # --- commits ----------------------------------------------------------------------------------

    def _commit(self, paths: Sequence[str]) -> tuple[int, int]:
        """Load files of vectors; returns how many were loaded, and how many dropped as outdated."""
        kept, dropped = 0, 0

        def write(head: str) -> CommitInfo | None:
            nonlocal kept, dropped
            loaded = []
            kept = 0
            for path in paths:
                rows = read_table(path, self._files)
                changed = pc.is_in(rows[NODE], pa.array(self._touched, pa.string()))
                if pc.any(changed).as_py():
                    left = rows.filter(pc.invert(changed))
                    dropped += rows.num_rows - left.num_rows
                    write_table(left, path, self._files)
                    rows = left
                kept += rows.num_rows
                loaded += [path] if rows.num_rows else []
            if not loaded:
                return None
            source = LoadInput((), nodes={self._type.name: loaded})
            return self._load(source, head, ErrorOptions(ignore_unknown=True)).commit

        if paths:
            self._commit_on_head(write)
        return kept, dropped

    def _set_null(self, nodes: Sequence[Mapping[str, Any]], head: str) -> str:
        """Set vectors to null; returns the new head."""
        columns = {name: [node[name] for node in nodes] for name in self._identity}
        nulls = pa.nulls(len(nodes), pa.list_(pa.float32(), self._dimension))
        rows = pa.table({**columns, self._vector: nulls})
        source = LoadInput((), frames={TableKey.node(self._type.name): rows})
        made = self._load(source, head, ErrorOptions(), engine="local").commit
        self.committed = made or self.committed
        return head if made is None else made.graph_commit_id

    def _load(
        self, source: LoadInput, head: str, errors: ErrorOptions, *, engine: Any = None
    ) -> LoadReceipt:
        """Write only vectors, on condition that nothing was committed since ``head``."""
        spec = self._spec
        request = LoadSpec(
            spec.branch,
            "merge",
            "compatible",
            actor_id=spec.actor,
            expected_head=head,
            message=spec.message or f"embed {self.name}",
            metadata={**(spec.origin.metadata or {}), EMBEDS: [self.name]},
        )
        return run_load(
            self._opened,
            self._graph._by(spec.actor),
            source,
            request,
            engine=engine,
            errors=errors,
            spark=SparkOptions(),
            observer=LoadObserver(),
            progress=None,
        )


def _files_in(folder: str, files: Files) -> list[str]:
    """The vector files in a folder."""
    if not files.is_directory(folder):
        return []
    return [path for path, name in files.below(folder) if name.endswith(".arrow")]
