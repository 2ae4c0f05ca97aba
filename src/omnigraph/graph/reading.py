"""Reading an open graph: its types, snapshots pinned for a query, and running queries over them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from omnigraph.branching.branches import list_branches
from omnigraph.branching.export import export_blocks
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.schema.change import tables_today, types_at
from omnigraph.effects.requests import measure
from omnigraph.embedding.client import QueryEmbedder
from omnigraph.embedding.config import EmbeddingConfig
from omnigraph.engines.base import Engine, Execution, Trace
from omnigraph.errors import (
    CompileError,
    HistoricalVersionReclaimed,
    InputError,
    NotFound,
    WrongVerb,
)
from omnigraph.graph.blobs import Blob, find_blob
from omnigraph.graph.signatures import signatures_of
from omnigraph.model.blobs import BlobSelector
from omnigraph.model.parameters import bind_parameters
from omnigraph.model.result import (
    ExplainedRun,
    ExplainedStep,
    Explanation,
    ReadTarget,
    Result,
    SnapshotSummary,
    TableSummary,
)
from omnigraph.model.signatures import QuerySignature
from omnigraph.model.temporal import datetime_from_ms
from omnigraph.query.compile import QueryCompiler
from omnigraph.query.explain import explain as plan_text
from omnigraph.query.expressions import Nearest
from omnigraph.query.plan import QueryPlan, ReadPlan
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.schema.contract import AcceptedSchema
from omnigraph.schema.shape import SchemaIR
from omnigraph.storage.layout import MAIN
from omnigraph.storage.reader import PastReader, SnapshotReader
from omnigraph.storage.snapshot import ManifestState, Snapshot
from omnigraph.syntax.source import Source
from omnigraph.syntax.suggest import did_you_mean

ENGINES = ("local", "spark")
"""The engines a query can name."""

READERS_KEPT_MAX = 16
"""Branches whose head stays open between queries."""


class GraphReading:
    """What one open graph shows, and how queries run over it. Safe to share between threads."""

    def __init__(
        self,
        kernel: Kernel,
        *,
        read_only: bool = False,
        embedding: EmbeddingConfig | None = None,
    ) -> None:
        self._kernel = kernel
        self._read_only = read_only
        self._compiler: QueryCompiler | None = None
        self._read_with: Catalog | None = None
        self._embedder = QueryEmbedder(embedding)
        self._engines: dict[str, Engine] = {}
        self._readers: dict[str, tuple[ManifestState, SnapshotReader]] = {}
        """The head of a branch as it was last queried, with the tables that were opened."""
        self._opening = threading.Lock()

    def __repr__(self) -> str:
        return f"Graph({self.uri!r})"

    @property
    def uri(self) -> str:
        """Where the graph lives, in canonical form."""
        return self._kernel.root.uri

    @property
    def schema_source(self) -> str:
        """The accepted schema, as it was written."""
        return self._accepted().contract.source

    @property
    def accepted_ir(self) -> SchemaIR:
        """The accepted schema in the form plans start from."""
        return self._accepted().ir

    # --- reading ----------------------------------------------------------------------------------

    def query(
        self,
        source: str | Path | Source,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str | None = None,
        snapshot: str | None = None,
        engine: str | None = None,
        explain: bool = False,
    ) -> Result:
        """Run a read query over one snapshot and return its rows.

        It reads the head of ``branch``, main by default, or the commit ``snapshot`` of any branch.
        ``source`` is a text, or the path of a `.gq` file; ``name`` picks a query if it has several.
        ``explain`` also says how the query ran, in `Result.explain`. Raises the compile error of a
        bad query, `ParameterError` before anything is read, and `NotFound` for an unknown branch,
        commit or query name.
        """
        target = _read_target(branch, snapshot)
        runner = self._engine(engine)
        if not explain:
            return self._run_query(runner, source, params, name, target)[1]
        trace = Trace()
        started = self._kernel.clock.monotonic_us()
        with measure() as storage:
            plan, result = self._run_query(runner, source, params, name, target, trace=trace)
        run = ExplainedRun(
            runner.name,
            (self._kernel.clock.monotonic_us() - started) / 1e6,
            tuple(ExplainedStep(s.step, s.strategy, s.rows, s.seconds) for s in trace.steps),
            storage.report().to_dict(),
        )
        result.explain = _explanation(plan, run)
        return result

    def explain(self, source: str | Path | Source, *, name: str | None = None) -> Explanation:
        """The typed plan of a query, read or write, without running it."""
        return _explanation(self._compiled(source, name, self._known_catalog()))

    def describe_queries(self, source: str | Path | Source) -> tuple[QuerySignature, ...]:
        """Every query of a text, checked against the accepted schema: name, parameters, kind."""
        return signatures_of(source, self._accepted().catalog)

    def list_branches(self) -> list[str]:
        """The branches, sorted."""
        return list_branches(self._kernel)

    def snapshot(self, branch: str | None = None) -> SnapshotSummary:
        """The tables and counts at the head of a branch."""
        snapshot = self._snapshot(branch, None)
        return SnapshotSummary(
            snapshot.branch,
            snapshot.commit_id,
            snapshot.manifest_version,
            self._kernel.manifest.main.stamp,
            tuple(
                TableSummary(
                    entry.kind,
                    entry.type_name,
                    entry.location,
                    entry.version,
                    entry.ref,
                    entry.row_count,
                )
                for entry in snapshot.tables.values()
            ),
        )

    def export(
        self,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        types: Iterable[str] | None = None,
    ) -> Iterator[bytes]:
        """The entities of a branch head, or of one commit, as JSON lines in blocks of whole lines.

        Loading them with mode `overwrite` reproduces ids, values and endpoints.
        """
        reader = self._reader(branch, snapshot)
        catalog = types_at(self._catalog_of(reader.snapshot), reader.snapshot)
        blocks = export_blocks(reader, catalog, type_names=types)
        return _streamed(self._kernel, blocks)

    def entity_at(
        self,
        type_key: str,
        entity_id: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> dict[str, Any] | None:
        """One entity at the head of a branch or at a commit; None if it is not there.

        ``type_key`` is `node:Name` or `edge:Name`. Blob properties are left out. At a commit before
        a change of schema, renamed types and properties have the names of today, and those that
        were dropped since the names they had.
        """
        import pyarrow as pa

        pinned = self._snapshot(branch, snapshot)
        wanted = pa.array([entity_id])
        reader = self._reader_of(pinned)
        if isinstance(reader, PastReader):
            found = reader.rows_then(type_key, pinned, wanted)
        else:
            columns = self._plain_columns(type_key, self._catalog_of(pinned))
            found = reader.rows_where_in(type_key, "id", wanted, columns)
        rows: list[dict[str, Any]] = found.to_pylist()
        return rows[0] if rows else None

    def blob(
        self,
        entity: str,
        type: str,
        id: str,
        property: str,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> Blob:
        """One value of a blob property, ready to be read in parts; none of it is read yet.

        ``entity`` is `node` or `edge`. Raises `InputError` for an unknown type and for a property
        that is no blob, `NotFound` for an unknown entity and for one without a value.
        """
        selector = BlobSelector.of(entity, type, id, property)
        target = _read_target(branch, snapshot)
        reader = self._pinned(target)
        catalog = self._catalog_of(reader.snapshot)
        return find_blob(reader, catalog, selector, target, self._kernel.gates)

    def frame(
        self,
        type: str,
        *,
        columns: Sequence[str] | None = None,
        where: str | None = None,
        branch: str | None = None,
        snapshot: str | None = None,
        spark: Any = None,
    ) -> Any:
        """The rows of a type as a Spark DataFrame, of the branch or commit as it is now.

        ``columns`` and ``where``, a condition in SQL, are applied where the rows lie. The frame
        keeps its snapshot whoever writes meanwhile. It is made in ``spark`` or the active session;
        if there is none, one is started, which stays until the process ends.
        """
        from omnigraph.pipeline.frames import frame_of

        return frame_of(
            self._kernel.root,
            type,
            columns=columns,
            where=where,
            branch=branch,
            snapshot=snapshot,
            spark=spark,
        )

    # --- inside -----------------------------------------------------------------------------------

    def _accepted(self) -> AcceptedSchema:
        return self._kernel.accepted_schema()

    def _known_catalog(self) -> Catalog:
        """The types as they were last read; good enough to compile with before a snapshot is."""
        if self._read_with is None:
            self._read_with = self._accepted().catalog
        return self._read_with

    def _catalog_of(self, snapshot: Snapshot) -> Catalog:
        """The types to read a snapshot with: those known, until main's head names another schema.

        An older snapshot is read with the types of today, too.
        """
        known = self._read_with
        if known is not None and known.schema_hash == snapshot.commit.schema_hash:
            return known
        published = self._kernel.manifest.main.state.head_snapshot().commit.schema_hash
        if known is None or known.schema_hash != published:
            known = self._read_with = self._kernel.accepted_schema(published).catalog
        return known

    def _run_query(
        self,
        runner: Engine,
        source: str | Path | Source,
        params: Mapping[str, Any] | None,
        name: str | None,
        target: ReadTarget,
        *,
        trace: Trace | None = None,
        again: bool = False,
    ) -> tuple[ReadPlan, Result]:
        known = self._known_catalog()
        try:
            plan, parameters = self._bound_query(source, name, params, known)
        except CompileError:
            # The query may be right, and what is known of the types out of date.
            newer = self._catalog_of(self._kernel.manifest.refreshed(MAIN).state.head_snapshot())
            if newer is known:
                raise
            known = newer
            plan, parameters = self._bound_query(source, name, params, known)
        reader = self._pinned(target)
        current = self._catalog_of(reader.snapshot)
        if current is not known:
            plan, parameters = self._bound_query(source, name, params, current)
        now = datetime_from_ms(self._kernel.clock.wall_us() // 1000)
        try:
            rows = runner.execute(Execution(plan, parameters, reader, now, self._embed, trace))
        except HistoricalVersionReclaimed:
            if again or target.snapshot is not None:
                raise
            # The branch has moved on, and what it showed a moment ago was cleaned up meanwhile.
            return self._run_query(runner, source, params, name, target, trace=trace, again=True)
        return plan, Result(
            rows, query_name=plan.name, target=target, graph_commit_id=reader.snapshot.commit_id
        )

    def _bound_query(
        self,
        source: str | Path | Source,
        name: str | None,
        params: Mapping[str, Any] | None,
        catalog: Catalog,
    ) -> tuple[ReadPlan, Mapping[str, Any]]:
        """The plan and its parameters: what can be wrong with them is told before any reading."""
        plan = self._compiled(source, name, catalog)
        if not isinstance(plan, ReadPlan):
            raise WrongVerb(
                f"query '{plan.name}' writes", hint="run it with `mutate` instead of `query`"
            )
        return plan, bind_parameters({each.name: each.type for each in plan.parameters}, params)

    def _pinned(self, target: ReadTarget) -> SnapshotReader:
        """A reader of what a query asks for.

        The one of a branch is kept until the branch moves: its tables are then open already.
        """
        if target.branch is None:
            return self._reader_of(self._snapshot_of_any_branch(str(target.snapshot)))
        state = self._kernel.manifest.refreshed(target.branch).state
        kept = self._readers.get(target.branch)
        if kept is not None and kept[0] is state:
            return kept[1]
        reader = self._reader_of(state.head_snapshot())
        with self._opening:
            self._readers.pop(target.branch, None)
            if len(self._readers) >= READERS_KEPT_MAX:
                del self._readers[next(iter(self._readers))]
            self._readers[target.branch] = (state, reader)
        return reader

    def _snapshot_of_any_branch(self, commit_id: str) -> Snapshot:
        """What the graph was at a commit, whichever branch it is on; raises `NotFound`."""
        main = self._kernel.manifest.refreshed(MAIN).state
        if commit_id in main.commits:
            return main.snapshot_at(commit_id)
        for branch in list_branches(self._kernel):
            state = self._kernel.manifest.refreshed(branch).state
            if commit_id in state.commits:
                return state.snapshot_at(commit_id)
        raise no_commit(commit_id)

    def _embed(self, call: Nearest, text: str) -> Sequence[float]:
        return self._embedder.embed(
            text,
            dimension=call.dimension,
            property_name=f"{call.type_name}.{call.property}",
            recorded_model=call.model,
        )

    def _engine(self, name: str | None) -> Engine:
        """The engine that runs a query, made when it is first asked for."""
        wanted = name or "local"
        found = self._engines.get(wanted)
        if found is not None:
            return found
        if wanted not in ENGINES:
            raise InputError(
                f"there is no engine `{wanted}`",
                hint=did_you_mean(wanted, ENGINES) or f"the engines are {', '.join(ENGINES)}",
            )
        if wanted == "spark":
            raise InputError(
                "queries cannot run on Spark in this version", hint="leave `engine` out, or local"
            )
        from omnigraph.engines.local.engine import LocalEngine

        with self._opening:
            return self._engines.setdefault(wanted, LocalEngine())

    def _compiled(
        self, source: str | Path | Source, name: str | None, catalog: Catalog
    ) -> QueryPlan:
        """The plan of a query; compiled plans are kept until the schema changes."""
        compiler = self._compiler
        if compiler is None or compiler.catalog is not catalog:
            compiler = self._compiler = QueryCompiler(catalog)
        return compiler.compile(source, name)

    def _snapshot(self, branch: str | None, commit_id: str | None) -> Snapshot:
        state = self._kernel.manifest.refreshed(branch or MAIN).state
        return state.head_snapshot() if commit_id is None else state.snapshot_at(commit_id)

    def _reader(self, branch: str | None, commit_id: str | None) -> SnapshotReader:
        return self._reader_of(self._snapshot(branch, commit_id))

    def _reader_of(self, snapshot: Snapshot) -> SnapshotReader:
        """A reader of a snapshot, which shows what is older than the schema as it is today."""
        catalog = self._catalog_of(snapshot)
        root = self._kernel.root.uri
        if catalog.schema_hash == snapshot.commit.schema_hash:
            return SnapshotReader(self._kernel.lance, root, snapshot)
        return PastReader(self._kernel.lance, root, snapshot, tables_today(catalog))

    def _plain_columns(self, type_key: str, catalog: Catalog) -> list[str]:
        types: list[NodeType | EdgeType] = [*catalog.nodes.values(), *catalog.edges.values()]
        for entity_type in types:
            if entity_type.table_key == type_key:
                ends = ["src", "dst"] if entity_type.table_key.kind == "edge" else []
                plain = [p.name for p in entity_type.properties.values() if not p.type.is_blob]
                return ["id", *ends, *plain]
        raise NotFound(
            f"there is no type {type_key}", hint="write it as `node:Name` or `edge:Name`"
        )


def _read_target(branch: str | None, snapshot: str | None) -> ReadTarget:
    if branch is not None and snapshot is not None:
        raise InputError(
            "a query reads a branch or a snapshot, not both",
            hint="leave `branch` out: a snapshot is a commit, whichever branch it is on",
        )
    return ReadTarget(None, snapshot) if snapshot is not None else ReadTarget(branch or MAIN)


def _explanation(plan: QueryPlan, run: ExplainedRun | None = None) -> Explanation:
    return Explanation(tuple(plan_text(plan).split("\n")), run)


def no_commit(commit_id: str) -> NotFound:
    """The error for a commit that is on no branch."""
    return NotFound(
        f"there is no commit {commit_id}", hint="list commits with `omnigraph commit list`"
    )


def _streamed(kernel: Kernel, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same blocks; whoever would remove what is read waits until it has been."""
    with kernel.gates.stream():
        yield from blocks
