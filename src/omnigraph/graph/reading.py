"""Queries, exports and single entities of an open graph, each read from a pinned snapshot."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.effects.clock import monotonic_seconds
from omnigraph.effects.local_disk import locked_folder
from omnigraph.effects.requests import measure
from omnigraph.engines.base import Engine, Execution, Trace
from omnigraph.errors import (
    CompileError,
    HistoricalVersionReclaimed,
    InputError,
    NotFound,
    WrongVerb,
)
from omnigraph.graph.gate import Access
from omnigraph.graph.opened import Handle, OpenGraph
from omnigraph.model.governor import Governor, query_bytes
from omnigraph.model.ids import TableKey
from omnigraph.model.load_options import SparkOptions
from omnigraph.model.parameters import bind_parameters
from omnigraph.model.receipts import ExportFormat, ExportReceipt, checked_export_format
from omnigraph.model.records import dataclass
from omnigraph.model.references import ShownEnds
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
from omnigraph.model.tables import Table, table_blocks
from omnigraph.model.values import datetime_from_ms
from omnigraph.policy import Action
from omnigraph.query.compile import check_query
from omnigraph.query.plan import MutationPlan, QueryPlan, ReadPlan
from omnigraph.schema.catalog import Catalog, EdgeType, NodeType
from omnigraph.storage.layout import MAIN, MANIFEST
from omnigraph.storage.reader import PastReader, SnapshotReader
from omnigraph.syntax.query_parser import parse_query_file
from omnigraph.syntax.tokens import Source

if TYPE_CHECKING:
    from omnigraph.model.editing import Language, LanguageAnswer
    from omnigraph.query.expressions import Nearest
    from omnigraph.views import View

# --- verbs of `Graph` -----------------------------------------------------------------------------


def query(
    self: Handle,
    source: str | Path | Source,
    params: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    branch: str | None = None,
    snapshot: str | None = None,
    engine: str | None = None,
    spark: SparkOptions | None = None,
    explain: bool = False,
    governor: Governor | None = None,
) -> Result:
    """Run a read query over one snapshot and return its rows.

    It reads the head of ``branch``, main by default, or the commit that the revision
    ``snapshot`` names.
    ``source`` is a text, or the path of a `.gq` file; ``name`` picks a query if it has several.
    ``engine`` is `local`, in this process, or `spark`, for graphs that one process cannot hold:
    the answer is the same. On Spark it is computed when it is first read; `Result.to_spark`
    gives the frame. ``spark`` names a session or a master; without one, the active session is
    used, or one is started that stays until the process ends.
    ``explain`` also says how the query ran, in `Result.explain`. ``governor`` limits its time
    and memory, and lets another thread cancel it; without one there is no deadline, and
    `OMNIGRAPH_QUERY_BYTES` is its memory. Raises the compile error of a bad query,
    `ParameterError` before anything is read, `NotFound` for an unknown branch, commit or query
    name, and `QueryTimeout`, `QueryMemoryExceeded` or `QueryCancelled`.
    """
    run = QueryRun(
        self._opened,
        source,
        params,
        name,
        self._read_target("query", branch, snapshot),
        self._opened.engine(engine, spark),
        self._access,
        Governor(memory_bytes=query_bytes()) if governor is None else governor,
    )
    return run.explained() if explain else run.result()


def explain(self: Handle, source: str | Path | Source, *, name: str | None = None) -> Explanation:
    """The typed plan of a query, read or write, without running it."""
    self._may_read("explain")
    branch = self._default_branch
    catalog = self._named_types(branch, self._opened.known_catalog(branch))
    view = self._opened.view(self._access, branch, self._opened.known_catalog(branch))
    return explanation(self._opened.compiled(source, name, catalog), view=view)


def describe_queries(self: Handle, source: str | Path | Source) -> tuple[QuerySignature, ...]:
    """Every query of a text, checked against the schema: name, parameters, kind."""
    self._may_read("queries describe")
    self._may_read("queries describe", self._default_branch)
    branch = self._default_branch
    return signatures_of(source, self._named_types(branch, self._opened.accepted(branch).catalog))


def snapshot(self: Handle, branch: str | None = None) -> SnapshotSummary:
    """The types and counts at the head of a branch."""
    opened, target = self._opened, self._branch_of(branch)
    self._may_read("snapshot", target)
    found = opened.snapshot(target)
    view, tables = self._view_of(found), list(found.tables.values())
    counts: Mapping[str, int] = {entry.table_key: entry.row_count for entry in tables}
    if view is not None:
        tables = [entry for entry in tables if view.shows(entry.table_key)]
        counts = visible_counts(opened.seen(opened.pinned(ReadTarget(target)), view))
    return SnapshotSummary(
        found.branch,
        found.commit_id,
        found.manifest_version,
        opened.kernel.manifest.main.stamp,
        tuple(
            TableSummary(
                entry.kind,
                entry.type_name,
                entry.location,
                entry.version,
                entry.ref,
                counts[entry.table_key],
            )
            for entry in tables
        ),
    )


def visible_counts(reader: SnapshotReader) -> dict[str, int]:
    """The number of entities of each type in a reader."""
    from omnigraph.views import ViewedReader

    if isinstance(reader, ViewedReader):
        return {key: reader.row_count(key) for key in reader.snapshot.tables}
    return {key: entry.row_count for key, entry in reader.snapshot.tables.items()}


def export(
    self: Handle,
    *,
    branch: str | None = None,
    snapshot: str | None = None,
    types: Iterable[str] | None = None,
    format: Literal["jsonl", "arrow"] = "jsonl",
) -> Iterator[bytes]:
    """The entities of a branch head, or of one commit, as JSON lines in blocks of whole lines.

    Loading them with mode `overwrite` reproduces ids, values and endpoints. With ``format``
    `arrow`, they are one Arrow stream after another, one for each type.
    """
    from omnigraph.branching.export import export_blocks

    opened, branch = self._opened, self._branch_of(branch)
    snapshot = exported_commit(self, branch, snapshot)
    if format == "arrow":
        tables = _exported_tables(self, branch, snapshot, types)
        blocks = (block for table in tables for block in table_blocks(table))
        return _streamed(opened, blocks)
    if format != "jsonl":
        raise InputError(
            f"there is no stream of format '{format}'",
            hint="it is jsonl or arrow; `export_to` writes files of other formats",
        )
    reader, catalog = _exported(self, branch, snapshot)
    return _streamed(opened, export_blocks(reader, catalog, type_names=types))


def export_to(
    self: Handle,
    directory: str | os.PathLike[str],
    *,
    format: ExportFormat = "parquet",
    branch: str | None = None,
    snapshot: str | None = None,
    types: Iterable[str] | None = None,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> ExportReceipt:
    """Write the entities of a branch head, or of one commit, as files of one type each.

    ``format`` is `parquet`, `csv`, `arrow` or `jsonl`. The directory appears once it is complete;
    loading it gives the same entities. ``overwrite`` replaces an earlier export; if anything else
    is there, `InputError` is raised. ``progress`` gets the number of rows of each batch that was
    written.
    """
    from omnigraph.model.exports import export_directory

    opened, branch = self._opened, self._branch_of(branch)
    snapshot = exported_commit(self, branch, snapshot)
    tables = _exported_tables(self, branch, snapshot, types)
    known = checked_export_format(format)
    where, root = Path(directory).expanduser().resolve(), Path(opened.kernel.root.uri)
    if "://" not in opened.kernel.root.uri and where.is_relative_to(root.resolve()):
        raise InputError(f"{directory} lies in the graph", hint="name another directory")
    with (
        _reading_for_long(opened),
        export_directory(directory, known, overwrite=overwrite, progress=progress) as made,
    ):
        for table in tables:
            made.add(table.about, table.schema, table)
    return made.receipt(is_complete=True)


def entity_at(
    self: Handle,
    type_key: str,
    entity_id: str,
    *,
    branch: str | None = None,
    snapshot: str | None = None,
) -> dict[str, Any] | None:
    """One entity at the head of a branch or at a commit; None if it does not exist.

    ``type_key`` is `node:Name` or `edge:Name`. Blob properties are left out. At a commit before a
    schema change, renamed types and properties have their current names, and dropped ones their
    former names.
    """
    import pyarrow as pa

    opened, branch = self._opened, self._branch_of(branch)
    if snapshot is None:
        self._may_read("entity at", branch)
    else:
        snapshot = self._read_commit("entity at", snapshot, branch)
    pinned = opened.snapshot(branch, snapshot)
    wanted = pa.array([entity_id])
    whole = opened.reader_of(pinned)
    reader, catalog = self._seen(whole)
    if isinstance(reader, PastReader) and catalog is opened.catalog_of(pinned):
        found = reader.rows_then(type_key, pinned, wanted)
    else:
        columns = plain_columns(type_key, catalog)
        found = reader.rows_where_in(type_key, "id", wanted, columns)
    key = TableKey(type_key)
    if key.kind == "edge" and key.type_name in catalog.edges:
        found = ShownEnds.of(catalog.edges[key.type_name]).table(found)
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows[0] if rows else None


def exported_commit(self: Handle, branch: str, snapshot: str | None) -> str | None:
    """The commit to export, None for the head, if the gate allows it."""
    if snapshot is None:
        self._opened.gate.read("export", self._access, branch, Action.EXPORT)
        return None
    return self._read_commit("export", snapshot, branch, Action.EXPORT)


def shows_query(self: Handle, source: str, name: str, *, writes: bool) -> bool:
    """Whether an actor can name everything that a stored query names, on some branch."""
    opened = self._opened
    if opened.policy is None or not opened.policy.has_views:
        return True
    catalog = opened.known_catalog(MAIN)
    named = {
        id(each): each
        for branch in opened.gate.kinds_of_branch()
        for each in [_named_by_stored(self, branch, catalog, writes=writes)]
    }
    for each in named.values():
        if each is catalog:
            return True
        try:
            opened.compiled(source, name, each)
        except CompileError:
            continue
        return True
    return False


def hides_names(self: Handle, branch: str, *, writes: bool) -> bool:
    """Whether a stored query could name types or properties that are hidden from the actor."""
    catalog = self._opened.known_catalog(MAIN)
    return _named_by_stored(self, branch, catalog, writes=writes) is not catalog


def _named_by_stored(self: Handle, branch: str, catalog: Catalog, *, writes: bool) -> Catalog:
    """The types and properties of a branch that stored queries may name for an actor."""
    if not writes:
        return self._named_types(branch, catalog)
    rights = self._opened.write_rights(self._access, branch, catalog)
    return catalog if rights is None else rights.catalog(catalog)


# --- running a query ------------------------------------------------------------------------------


@dataclass(slots=True)  # not frozen: that takes three times as long to construct
class QueryRun:
    """One read query, ready to run on an open graph."""

    opened: OpenGraph
    source: str | Path | Source
    params: Mapping[str, Any] | None
    name: str | None
    target: ReadTarget
    engine: Engine
    by: Access
    governor: Governor
    view: View | None = None

    def result(self) -> Result:
        """The result of the query."""
        with self.governor:
            return self._run(None)[1]

    def explained(self) -> Result:
        """The result, with the plan, the statistics of each step, and the storage requests."""
        trace = Trace()
        started = monotonic_seconds()
        with self.governor, measure() as storage:
            plan, result = self._run(trace)
        # Estimates are computed from whole tables, including hidden rows.
        hides_rows = self.view is not None and self.view.restricts_rows
        run = ExplainedRun(
            self.engine.name,
            monotonic_seconds() - started,
            tuple(
                ExplainedStep(
                    each.step,
                    each.strategy,
                    each.rows,
                    each.seconds,
                    None if hides_rows or each.expected_rows is None else round(each.expected_rows),
                )
                for each in trace.steps
            ),
            storage.report().to_dict(),
        )
        result.explain = explanation(plan, run, self.view)
        return result

    def _run(self, trace: Trace | None, *, is_retry: bool = False) -> tuple[ReadPlan, Result]:
        opened = self.opened
        # The branch of a commit is known only once it is found; most are on main.
        branch = self.target.branch or MAIN
        whole = opened.known_catalog(branch)
        view = None if opened.policy is None else opened.view(self.by, branch, whole)
        known = whole if view is None else view.catalog
        try:
            plan, parameters = self._bound(known)
        except CompileError as problem:
            # The query may be valid, and the cached types outdated or those of another branch.
            newer = self._newest_catalog(problem)
            if newer is known:
                raise
            known = newer
            plan, parameters = self._bound(known)
        reader = opened.pinned(self.target)
        current = opened.catalog_of(reader.snapshot)
        if opened.policy is not None:
            if current is not whole or reader.snapshot.branch != branch:
                view = opened.view(self.by, reader.snapshot.branch, current)
            if view is not None:
                self.view = view
                reader, current = opened.seen(reader, view), view.catalog
        if current is not known:
            plan, parameters = self._bound(current)
        held = self.governor.held
        now = datetime_from_ms(opened.kernel.clock.wall_us() // 1000)
        try:
            rows = self.engine.execute(Execution(plan, parameters, reader, now, self._embed, trace))
        except HistoricalVersionReclaimed:
            if is_retry or self.target.snapshot is not None:
                raise
            # The branch moved, and cleanup removed the versions of its former head.
            self.governor.held = held
            return self._run(trace, is_retry=True)
        return plan, Result(
            rows,
            query_name=plan.name,
            target=self.target,
            graph_commit_id=reader.snapshot.commit_id,
        )

    def _newest_catalog(self, problem: CompileError) -> Catalog:
        """The current types of the target; raises ``problem`` if there is no target."""
        opened = self.opened
        try:
            if self.target.branch is None:
                snapshot = opened.snapshot_of_any_branch(str(self.target.snapshot))
            else:
                snapshot = opened.snapshot(self.target.branch)
        except NotFound:
            raise problem from None
        return self._named(opened.catalog_of(snapshot), snapshot.branch)

    def _named(self, catalog: Catalog, branch: str) -> Catalog:
        """The types and properties that the actor can name."""
        view = self.opened.view(self.by, branch, catalog)
        return catalog if view is None else view.catalog

    def _bound(self, catalog: Catalog) -> tuple[ReadPlan, Mapping[str, Any]]:
        """The plan and its parameters; raises errors in them before any row is read."""
        plan = self.opened.compiled(self.source, self.name, catalog)
        auditor = self.opened.auditor
        if auditor is not None:
            auditor.describing.note_plan(plan, self.source)
        if not isinstance(plan, ReadPlan):
            raise WrongVerb(
                f"query '{plan.name}' writes", hint="run it with `mutate` instead of `query`"
            )
        types = {each.name: each.type for each in plan.parameters}
        return plan, bind_parameters(types, self.params)

    def _embed(self, call: Nearest, text: str) -> Sequence[float]:
        return self.opened.embedder.embed(
            text,
            dimension=call.dimension,
            property_name=f"{call.type_name}.{call.property}",
            recorded_model=call.model,
        )


def explanation(
    plan: QueryPlan, run: ExplainedRun | None = None, view: View | None = None
) -> Explanation:
    """A plan as text, with the conditions added by a view, and run statistics if it ran."""
    from omnigraph.query.explain import explain as plan_text
    from omnigraph.views.explain import added_conditions

    added = [] if view is None else added_conditions(view, plan)
    return Explanation((*plan_text(plan).split("\n"), *added), run)


def _exported_tables(
    self: Handle, branch: str, snapshot: str | None, types: Iterable[str] | None
) -> Iterator[Table]:
    """The entities of a snapshot, one table per type; raises for unknown types at once."""
    from omnigraph.branching.export import export_tables

    reader, catalog = _exported(self, branch, snapshot)
    return export_tables(reader, catalog, ReadTarget(branch, snapshot), type_names=types)


def _exported(self: Handle, branch: str, snapshot: str | None) -> tuple[SnapshotReader, Catalog]:
    """The reader to export from, and the exported types."""
    from omnigraph.commit.schema.change import types_at

    reader, catalog = self._seen(self._opened.reader(branch, snapshot), Action.EXPORT)
    return reader, types_at(catalog, reader.snapshot)


def _streamed(opened: OpenGraph, blocks: Iterator[bytes]) -> Iterator[bytes]:
    """The same blocks, protecting the versions they read from cleanup."""
    with _reading_for_long(opened):
        yield from blocks


@contextmanager
def _reading_for_long(opened: OpenGraph) -> Iterator[None]:
    """Block cleanup in this process, and on local disk removal of the graph by any process."""
    kernel = opened.kernel
    with ExitStack() as held:
        held.enter_context(kernel.gates.stream())
        if kernel.root.is_local:
            held.enter_context(locked_folder(Path(kernel.root.uri, MANIFEST), shared=True))
        yield


def plain_columns(type_key: str, catalog: Catalog) -> list[str]:
    """The columns of a type without its blobs; raises `NotFound`."""
    types: list[NodeType | EdgeType] = [*catalog.nodes.values(), *catalog.edges.values()]
    for entity_type in types:
        if entity_type.table_key == type_key:
            ends = ["src", "dst"] if isinstance(entity_type, EdgeType) else []
            plain = [p.name for p in entity_type.properties.values() if not p.type.is_blob]
            return ["id", *ends, *plain]
    raise NotFound(f"there is no type {type_key}", hint="write it as `node:Name` or `edge:Name`")


# --- editor support -------------------------------------------------------------------------------


def language_answer(
    self: Handle, text: str, language: Language, line: int | None, column: int | None
) -> LanguageAnswer:
    """The language service's answer about a text, with the schema of this handle's branch."""
    from omnigraph.query.editing import Document

    self._may_read("language")
    self._may_read("language", self._default_branch)
    branch = self._default_branch
    schema = self._schema_text(branch, self._opened.accepted(branch))
    return Document(text, language, schema).answer(line, column)


# --- stored queries -------------------------------------------------------------------------------


def require_compiling(stored: Mapping[str, str], catalog: Catalog) -> None:
    """Raise `InputError` if a stored query, by name, does not compile against a catalog."""
    for name, source in stored.items():
        try:
            signatures_of(source, catalog, name=name)
        except CompileError as problem:
            raise InputError(
                f"the stored query '{name}' does not compile against this schema: "
                f"{problem.message}",
                hint="change or remove the stored query first",
            ) from None


def signatures_of(
    source: str | Path | Source, catalog: Catalog, *, name: str | None = None
) -> tuple[QuerySignature, ...]:
    """The signatures of a text's queries in order, or of the one called ``name``.

    Raises the compile error of the first of them that does not match the catalog.
    """
    from omnigraph.query.lint import describe_parameter

    file = parse_query_file(source)
    plans = [
        check_query(query, file.source, catalog)
        for query in file.queries
        if name is None or query.name == name
    ]
    return tuple(
        QuerySignature(
            plan.name,
            isinstance(plan, MutationPlan),
            tuple(describe_parameter(parameter) for parameter in plan.parameters),
            plan.description,
            plan.instruction,
        )
        for plan in plans
    )


def query_files(paths: Iterable[Path]) -> list[Path]:
    """Each path itself, or the `.gq` files of a directory by name; raises `InputError`."""
    files: list[Path] = []
    for path in paths:
        if path.is_dir():
            files += sorted(each for each in path.glob("*.gq") if each.is_file())
        elif path.is_file():
            files.append(path)
        else:
            raise InputError(
                f"there are no stored queries at {path}", hint="name a `.gq` file or a directory"
            )
    return files
