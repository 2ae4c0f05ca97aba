"""The `Graph` object: one open graph and everything that can be done with it.

Every face (command line, server, notebook) is a thin layer over this. A verb fills in the branch
and the actor of its handle, asks the gate if it writes, and hands the work to the room below.
"""

from __future__ import annotations

import copy
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from omnigraph.branching.branches import (
    BranchRequest,
    create_branch,
    delete_branch,
    list_branches,
)
from omnigraph.branching.change_feed import ChangeBaseline, ChangeFeed, PollRequest, change_baseline
from omnigraph.branching.change_pages import (
    CommitPageRequest,
    DiffPageRequest,
    commit_page,
    diff_page,
)
from omnigraph.branching.commit_changes import CommitChanges, commit_changes, diff_of
from omnigraph.branching.diff import GraphDiff
from omnigraph.branching.entity_history import entity_history, find_type
from omnigraph.branching.merge import (
    MergeSpec,
    ReplaySpec,
    delete_source,
    merge,
    plan_merge,
    plan_replay,
    replay,
)
from omnigraph.branching.moments import moment_of
from omnigraph.branching.three_way import ConflictRules
from omnigraph.commit.kernel import Kernel
from omnigraph.commit.mutate import mutate
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.recovery.audit import RecoveryAudit, RecoveryRow
from omnigraph.commit.recovery.settling import Settlement
from omnigraph.commit.schema.apply import apply_schema
from omnigraph.commit.schema.rebase import rebase_schema
from omnigraph.embedding.config import EmbeddingConfig
from omnigraph.graph.blobs import Blob, find_blob
from omnigraph.graph.opened import OpenGraph, engine_name, no_commit
from omnigraph.graph.reading import (
    QueryRun,
    entity_at,
    explanation,
    exported,
    exported_tables,
    exported_to,
    read_target,
    signatures_of,
    snapshot_summary,
)
from omnigraph.graph.tables import table_of
from omnigraph.graph.writing import Data, LoadInput, compiled_mutation, run_load, with_newest_schema
from omnigraph.loading.records.problems import Grammar
from omnigraph.loading.request import LoadSpec
from omnigraph.model.blobs import BlobSelector
from omnigraph.model.branch_scope import BranchScope, BranchTask
from omnigraph.model.changes import ChangeFilter, CommitPage, EntityVersion, FeedPage, PageLimits
from omnigraph.model.diffs import DiffPage
from omnigraph.model.governor import Governor, query_bytes
from omnigraph.model.load_options import (
    CsvOptions,
    ErrorOptions,
    LoadObserver,
    LoadOrigin,
    MapArgument,
    MappingArguments,
    SparkOptions,
    WhereArgument,
    checked_options,
)
from omnigraph.model.merging import ConflictPolicy, MergeGranularity, MergePlan
from omnigraph.model.receipts import (
    AbsentMeaning,
    BranchCreated,
    BranchDeleted,
    CommitInfo,
    ExportFormat,
    ExportReceipt,
    LoadMode,
    LoadReceipt,
    MergeReceipt,
    MutationReceipt,
    ReplayReceipt,
    SchemaApplyReceipt,
    SchemaRebaseReceipt,
    check_load_mode,
    checked_export_format,
    checked_key,
    checked_message,
)
from omnigraph.model.result import Explanation, Result, SnapshotSummary
from omnigraph.model.signatures import QuerySignature
from omnigraph.model.tables import Table, Where
from omnigraph.model.upkeep import (
    AutoOptimizeStatus,
    BlockedBranch,
    CleanupPolicy,
    CleanupReceipt,
    Diagnosis,
    GraphStats,
    IndexReceipt,
    OptimizeReceipt,
    RepairReceipt,
)
from omnigraph.policy import Policy
from omnigraph.query.plan import MutationPlan
from omnigraph.schema.catalog import Catalog
from omnigraph.schema.migration import PlannedChange, plan_change
from omnigraph.schema.shape import SchemaIR
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest_rows import commit_info
from omnigraph.syntax.tokens import Source
from omnigraph.upkeep.cleanup import cleanup
from omnigraph.upkeep.optimize import ensure_indices, optimize
from omnigraph.upkeep.pending import release_abandoned
from omnigraph.upkeep.repair import repair
from omnigraph.upkeep.stats import examine, graph_stats

if TYPE_CHECKING:
    from omnigraph.graph.computing import Compute
    from omnigraph.loading.inputs import LoadEngine, Paths
    from omnigraph.pipeline.streaming.into import Apply, GraphStream


class Graph:
    """One open graph. Safe to share between threads.

    Verbs that take a ``branch`` use main without one; those of a handle made with `on_branch` or
    `branch` use the branch of that handle.
    """

    def __init__(
        self,
        kernel: Kernel,
        *,
        read_only: bool = False,
        embedding: EmbeddingConfig | None = None,
        policy: Policy | None = None,
        external_blobs: Iterable[str] = (),
        auto_optimize: bool | int | None = None,
    ) -> None:
        self._kernel = kernel
        self._opened = OpenGraph(
            kernel,
            read_only=read_only,
            embedding=embedding,
            policy=policy,
            external_blobs=external_blobs,
            auto_optimize=auto_optimize,
        )
        self._default_branch = MAIN
        self._default_actor: str | None = None

    def __repr__(self) -> str:
        on = "" if self._default_branch == MAIN else f" on {self._default_branch!r}"
        return f"Graph({self.uri!r}{on})"

    def _branch_of(self, branch: str | None) -> str:
        return branch or self._default_branch

    def _actor_of(self, actor: str | None) -> str | None:
        return self._default_actor if actor is None else actor

    # --- reading ----------------------------------------------------------------------------------

    @property
    def uri(self) -> str:
        """Where the graph lives, in canonical form."""
        return self._kernel.root.uri

    @property
    def schema_source(self) -> str:
        """The schema of main, or of the branch of this handle, as it was written."""
        return self._opened.accepted(self._default_branch).contract.source

    @property
    def accepted_ir(self) -> SchemaIR:
        """The accepted schema in the form plans start from."""
        return self._opened.accepted().ir

    def query(
        self,
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

        It reads the head of ``branch``, main by default, or the commit ``snapshot`` of any branch.
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
            read_target(branch, snapshot, self._default_branch),
            self._opened.engine(engine, checked_options(spark, SparkOptions, "spark")),
            Governor(memory_bytes=query_bytes()) if governor is None else governor,
        )
        return run.explained() if explain else run.result()

    def explain(self, source: str | Path | Source, *, name: str | None = None) -> Explanation:
        """The typed plan of a query, read or write, without running it."""
        catalog = self._opened.known_catalog(self._default_branch)
        return explanation(self._opened.compiled(source, name, catalog))

    def describe_queries(self, source: str | Path | Source) -> tuple[QuerySignature, ...]:
        """Every query of a text, checked against the schema: name, parameters, kind."""
        return signatures_of(source, self._opened.accepted(self._default_branch).catalog)

    def snapshot(self, branch: str | None = None) -> SnapshotSummary:
        """The tables and counts at the head of a branch."""
        return snapshot_summary(self._opened, self._branch_of(branch))

    def export(
        self,
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
        return exported(self._opened, self._branch_of(branch), snapshot, types, format)

    def export_to(
        self,
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

        ``format`` is `parquet`, `csv`, `arrow` or `jsonl`. The directory appears when all of it is
        there; a load of it gives the same entities. ``overwrite`` replaces an earlier export;
        anything else in its place is refused with `InputError`. ``progress`` gets the number of
        rows of each batch that was written.
        """
        tables = exported_tables(self._opened, self._branch_of(branch), snapshot, types)
        return exported_to(
            self._opened,
            directory,
            tables,
            checked_export_format(format),
            overwrite=overwrite,
            progress=progress,
        )

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
        return entity_at(self._opened, type_key, entity_id, self._branch_of(branch), snapshot)

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
        target = read_target(branch, snapshot, self._default_branch)
        reader = self._opened.pinned(target)
        catalog = self._opened.catalog_of(reader.snapshot)
        return find_blob(reader, catalog, selector, target, self._kernel.gates)

    def table(
        self,
        type: str,
        *,
        columns: Sequence[str] | None = None,
        where: Where | None = None,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> Table:
        """The rows of a type as an Arrow table, of the branch or commit as it is now.

        ``type`` is a name, or `node:Name` or `edge:Name`. The columns are `id`, for edges `src` and
        `dst`, and the properties, of blobs a description, unless ``columns`` names some of them.
        ``where`` is a condition as behind the `where` of an update, `age > 30 and city = "Oslo"`,
        or a mapping of values that must all be equal: None is null, a list is one of several.
        Rows are read when they are asked for. Raises `NotFound` for an unknown type, and
        `InputError` for an unknown column or a wrong condition.
        """
        target = read_target(branch, snapshot, self._default_branch)
        return table_of(self._opened, type, target, columns=columns, where=where)

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
        keeps its snapshot while others write. It is made in ``spark`` or the active session;
        if there is none, one is started, which stays until the process ends.
        """
        from omnigraph.pipeline.frames import frame_of

        return frame_of(
            self._kernel.root,
            type,
            columns=columns,
            where=where,
            branch=branch if snapshot is not None else self._branch_of(branch),
            snapshot=snapshot,
            spark=spark,
        )

    @property
    def compute(self) -> Compute:
        """Graph algorithms: `graph.compute.pagerank()`, `.connected_components()` and others."""
        from omnigraph.graph.computing import Compute

        return Compute(self)

    # --- writing ----------------------------------------------------------------------------------

    def mutate(
        self,
        source: str | Path | Source,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str | None = None,
        expected_head: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
        message: str | None = None,
    ) -> MutationReceipt:
        """Run a write query as one commit.

        ``expected_head`` makes it conditional: it runs only if that commit is the branch's head.
        ``operation_id`` names the write: if the same actor repeats it, the first receipt returns.
        ``message`` is kept with the commit.
        """
        opened, target, actor = self._opened, self._branch_of(branch), self._actor_of(actor)
        opened.gate.change("mutate", actor, target)
        message = checked_message(message)
        operation_id = checked_key(operation_id)

        def compile_for(catalog: Catalog) -> MutationPlan:
            plan = compiled_mutation(opened, source, name, catalog)
            if not plan.is_insert_only:
                opened.gate.select("mutate", actor, target)
            return plan

        return with_newest_schema(
            opened,
            target,
            "mutation",
            lambda: mutate(
                self._kernel,
                opened.path,
                compile_for,
                params,
                accepted=opened.last_accepted(target),
                branch=target,
                limits=opened.limits,
                actor_id=actor,
                expected_head=expected_head,
                operation_id=operation_id,
                message=message,
                external=opened.external,
            ),
        )

    def load(
        self,
        *paths: str | os.PathLike[str],
        mode: LoadMode,
        absent: AbsentMeaning = "keep",
        data: Data | None = None,
        nodes: Mapping[str, Paths] | None = None,
        edges: Mapping[str, Paths] | None = None,
        frames: Mapping[str, Any] | None = None,
        map: MapArgument | None = None,
        where: WhereArgument | None = None,
        branch: str | None = None,
        from_: str | None = None,
        grammar: Grammar = "compatible",
        replace_types: Iterable[str] = (),
        engine: LoadEngine | None = None,
        dry_run: bool = False,
        actor: str | None = None,
        operation_id: str | None = None,
        message: str | None = None,
        progress: Callable[[int], None] | None = None,
        csv: CsvOptions | None = None,
        errors: ErrorOptions | None = None,
        spark: SparkOptions | None = None,
        observer: LoadObserver | None = None,
        origin: LoadOrigin | None = None,
    ) -> LoadReceipt:
        """Load graph records, and tables of one type each, as one commit.

        ``paths`` are JSONL files, directories or patterns with graph records; ``data`` are records
        themselves and may arrive in blocks. ``nodes`` and ``edges`` map type names to Parquet, CSV,
        ORC, Avro, JSON, Arrow or Lance files, ``frames`` to Spark, pandas or Polars frames, Arrow
        tables, or anything else with `__arrow_c_stream__`. A missing ``branch`` is created from
        ``from_`` if that is given. See the guide for the modes `append`, `merge` and `overwrite`;
        ``replace_types`` are types that an overwrite empties if it has no records of them. A merge
        keeps the stored values of properties that a record, or a table by its columns, lacks; with
        ``absent="null"`` a record replaces the whole entity.

        ``map`` says which columns, or expressions over them, give a property, by type or file:
        `{"Person": {"Full Name": "name", "lower(Mail)": "email", "notes": None}}`; None leaves out
        a column. ``where`` are values that the rows of a table must have in some columns, as
        `{"City": {"type": "city"}}`. If the load has one table, both may leave out its name.

        ``engine`` is `local`, this process, or `spark`, or `auto`, which takes Spark for inputs
        that this process could not load before Spark has started
        (`OMNIGRAPH_SPARK_THRESHOLD_BYTES`), for frames of Spark, and where ``spark`` names a
        session or a master. ``dry_run`` only says what would be written. ``operation_id`` names the
        load: repeating it with the same input returns the first receipt. ``message`` is kept with
        the commit. ``progress`` gets the bytes of each block of records that was read in process.

        `CsvOptions` says how cells are separated,
        `ErrorOptions` how a bad input is reported, `SparkOptions` where Spark runs, a
        `LoadObserver` has functions to call with the engine and the progress of stages, and a
        `LoadOrigin` what to keep with the commit about the input. Raises
        `InputError` with the problems of a bad input; nothing is written then.
        """
        check_load_mode(mode)
        csv = checked_options(csv, CsvOptions, "csv")
        errors = checked_options(errors, ErrorOptions, "errors")
        spark = checked_options(spark, SparkOptions, "spark")
        observer = checked_options(observer, LoadObserver, "observer")
        origin = checked_options(origin, LoadOrigin, "origin")
        target, actor = self._branch_of(branch), self._actor_of(actor)
        self._opened.gate.load(actor, target, from_, self.list_branches)
        return run_load(
            self._opened,
            LoadInput(
                paths,
                data,
                nodes,
                edges,
                frames,
                replace_types,
                MappingArguments(map, where, csv),
            ),
            LoadSpec(
                target,
                mode,
                grammar,
                base_branch=from_,
                actor_id=actor,
                operation_id=checked_key(operation_id),
                input_digest=origin.input_digest,
                message=checked_message(message),
                metadata=origin.metadata,
                dry_run=dry_run,
                absent=absent,
            ),
            engine=engine,
            errors=errors,
            spark=spark,
            observer=observer,
            progress=progress,
        )

    def stream_into(
        self,
        frames: Any,
        type: str | None = None,
        *,
        checkpoint: str | os.PathLike[str],
        mode: LoadMode = "merge",
        absent: AbsentMeaning = "keep",
        split: Callable[[Any], Mapping[str, Any]] | None = None,
        apply: Apply = "rows",
        branch: str | None = None,
        from_: str | None = None,
        merge_every: int | None = None,
        merge_into: str | None = None,
        on_conflict: ConflictPolicy = "fail",
        quarantine: str | os.PathLike[str] | None = None,
        max_error_share: float | None = None,
        late: tuple[str, str] | None = None,
        every: str | None = None,
        available_now: bool = False,
        name: str | None = None,
        actor: str | None = None,
    ) -> GraphStream:
        """Write streaming frames of Spark to the graph: each micro-batch is one commit, once.

        ``frames`` is a streaming frame with rows of one ``type``, or several by type, whose rows
        are committed together; or ``split`` makes frames by type of each batch. With ``apply``
        `changes` it is a stream of changes of another graph, with the column `sequence`, and its
        inserts, updates and deletes happen here, those of a batch in one commit. ``checkpoint`` is
        the folder where Spark notes what it has read: a stream that is started again with it goes
        on where it was, and no row is written twice, however the process ended. A batch that
        changes nothing has no commit.

        ``mode`` and ``absent`` are those of `load`. A missing ``branch`` is created from ``from_``;
        with ``merge_every`` it is merged ``merge_into`` another, main by default, after so many
        batches. A bad record ends the stream, unless ``quarantine`` names a folder: then bad
        records are left out, at most ``max_error_share`` of a batch, and kept there with the
        reasons, a file for each batch. ``late=("at", "10 minutes")`` puts records aside, too, whose
        time `at` is longer ago when they come. ``every`` is the time between two batches, as
        `10 seconds`; ``available_now`` takes what is there and ends.

        Returns at once; `GraphStream.await_end` waits and raises what ended the stream, and
        `GraphStream.stop` finishes the current batch. Raises `InputError` for columns that a type
        does not have.
        """
        from omnigraph.pipeline.spark.session import require_pyspark

        require_pyspark()
        from omnigraph.pipeline.streaming.batches import Quarantine, StreamTarget
        from omnigraph.pipeline.streaming.into import Late, StreamSpec, stream_into

        check_load_mode(mode)
        actor, opened = self._actor_of(actor), self._opened
        target = StreamTarget(
            self._branch_of(branch),
            mode,
            absent,
            actor,
            from_,
            merge_every,
            merge_into or MAIN,
            on_conflict,
            Quarantine.of(quarantine, max_error_share, self.uri),
        )

        def permit() -> None:
            opened.gate.load(actor, target.branch, from_, self.list_branches)
            if merge_every is not None:
                opened.gate.branch_merge(actor, target.branch, target.merge_into)

        permit()
        told_late = Late.of(late, target, apply)
        return stream_into(
            self._kernel,
            opened.path,
            StreamSpec(
                frames, type, split, apply, told_late, checkpoint, every, available_now, name
            ),
            target,
            permit=permit,
            written=opened.notify_auto_optimizer,
        )

    def plan_schema(
        self, desired: str | Path | Source, *, allow_data_loss: bool = False
    ) -> PlannedChange:
        """The steps from the accepted schema to another; changes nothing.

        A plan with unsupported changes is a plan all the same: `MigrationPlan.supported` says so.
        Raises the compile error of a bad schema.
        """
        return plan_change(self._opened.accepted().ir, desired, allow_data_loss=allow_data_loss)

    def apply_schema(
        self,
        desired: str | Path | Source,
        *,
        allow_data_loss: bool = False,
        actor: str | None = None,
        operation_id: str | None = None,
        check: Callable[[Catalog], None] | None = None,
    ) -> SchemaApplyReceipt:
        """Bring main to another schema (a text, or the path of a `.pg` file) as one commit.

        Other branches keep the schema they have, until `rebase_schema` brings them forward. Without
        any difference nothing is published. What is dropped stays readable at older commits, unless
        ``allow_data_loss`` reclaims it. Raises the compile error of a bad schema,
        `UnsupportedSchemaChange` if a step has no migration, `ConstraintViolation` naming the
        entities if stored data breaks an added constraint, and `Conflict` while another apply runs,
        or if data is to be reclaimed while there are other branches; the graph is then as it was.
        ``operation_id`` names the change: if the same actor repeats it, the first receipt returns.
        ``check`` gets the new schema before anything is written, and may refuse it by raising.
        """
        actor = self._actor_of(actor)
        self._opened.gate.schema_apply(actor)
        done = apply_schema(
            self._kernel,
            desired,
            allow_data_loss=allow_data_loss,
            actor_id=actor,
            operation_id=checked_key(operation_id),
            check=check,
        )
        return SchemaApplyReceipt(
            self.uri, True, done.commit is not None, done.manifest_version, done.steps
        )

    def rebase_schema(
        self,
        branch: str | None = None,
        *,
        allow_data_loss: bool = False,
        dry_run: bool = False,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> SchemaRebaseReceipt:
        """Bring a branch to the schema that main has now, as one commit on the branch.

        A branch keeps the schema it was created with when main gets another one. ``branch`` is the
        branch of this handle if it is left out. Entities get the defaults of added properties;
        nothing of main's data is brought along, for which there is `merge_branch`. ``dry_run`` only
        says what would happen. Raises `Conflict` if main has dropped types or properties that the
        branch has written to, unless ``allow_data_loss``, and `ConstraintViolation` naming the
        entities of the branch that break an added constraint; the branch is then as it was.
        ``operation_id`` names the request: if the same actor repeats it, the first receipt returns.
        """
        target, actor = self._branch_of(branch), self._actor_of(actor)
        if not dry_run:
            self._opened.gate.schema_rebase(actor, target)
        done = rebase_schema(
            self._kernel,
            target,
            allow_data_loss=allow_data_loss,
            dry_run=dry_run,
            actor_id=actor,
            operation_id=checked_key(operation_id),
        )
        return SchemaRebaseReceipt(
            self.uri,
            target,
            done.commit is not None,
            dry_run,
            done.manifest_version,
            done.steps,
            done.dropped,
            None if done.commit is None else commit_info(done.commit),
        )

    # --- branches ---------------------------------------------------------------------------------

    def list_branches(self) -> list[str]:
        """The branches, sorted."""
        return list_branches(self._kernel)

    def branch(
        self,
        name: str,
        from_: str | None = None,
        *,
        into: str | None = None,
        on_conflict: ConflictPolicy = "fail",
        on_conflict_of: Mapping[str, ConflictPolicy] | None = None,
        granularity: MergeGranularity = "entity",
        delete_branch: bool = True,
        resume: bool = False,
        actor: str | None = None,
    ) -> BranchScope[Graph]:
        """Fork a branch for the work of one `with` block, and merge it if the block succeeds.

            with graph.branch("agent/42") as b:
                b.mutate('query add { insert Person { name: "Grace" } }')

        ``b`` is this graph with the branch, and the ``actor``, as its defaults. The branch starts
        from ``from_``, main by default, and is merged into it, or ``into`` another, by the rules of
        `merge_branch`; it is deleted then, unless ``delete_branch`` is False. If the block or the
        merge raises, the branch is kept and the error goes on. A branch of that name that exists
        raises `AlreadyExists`; with ``resume`` the block continues on it.
        """
        source = self._branch_of(from_)
        merge = (into or source, on_conflict, on_conflict_of, granularity, delete_branch)
        return BranchScope(self, BranchTask(name, source, *merge, resume, self._actor_of(actor)))

    def on_branch(self, name: str, *, actor: str | None = None) -> Graph:
        """The same open graph with another default branch, and another default ``actor``.

        Nothing is read or written; verbs raise `NotFound` if there is no such branch.
        """
        handle = copy.copy(self)
        handle._default_branch = name
        handle._default_actor = self._actor_of(actor)
        return handle

    def create_branch(
        self,
        name: str,
        from_: str | None = None,
        *,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> BranchCreated:
        """Create a branch at the head of another; costs no data copy.

        ``operation_id`` names the request: if the same actor repeats it, the first receipt returns
        and no branch is created, even if the first was deleted since.
        """
        source, actor = self._branch_of(from_), self._actor_of(actor)
        self._opened.gate.branch_create("branch create", actor, source, name)
        key = checked_key(operation_id)
        create_branch(self._kernel, name, source, actor_id=actor, operation_id=key)
        return BranchCreated(self.uri, source, name, actor)

    def delete_branch(
        self, name: str, *, actor: str | None = None, operation_id: str | None = None
    ) -> BranchDeleted:
        """Delete a branch; its commits are gone with it.

        ``operation_id`` names the request: if the same actor repeats it, the first receipt returns
        and no branch is deleted, even if another one has the name since.
        """
        actor = self._actor_of(actor)
        self._opened.gate.branch_delete(actor, name)
        request = BranchRequest("delete", name, actor, checked_key(operation_id))
        delete_branch(self._kernel, name, request=request)
        return BranchDeleted(self.uri, name, actor)

    def plan_merge(
        self,
        source: str,
        into: str | None = None,
        *,
        on_conflict: ConflictPolicy = "fail",
        on_conflict_of: Mapping[str, ConflictPolicy] | None = None,
        granularity: MergeGranularity = "entity",
    ) -> MergePlan:
        """What `merge_branch` would do now: per type, and every conflict. Changes nothing."""
        rules = ConflictRules(on_conflict, on_conflict_of or {}, granularity)
        request = MergeSpec(source, self._branch_of(into), rules)
        return plan_merge(self._kernel, request)

    def merge_branch(
        self,
        source: str,
        into: str | None = None,
        *,
        on_conflict: ConflictPolicy = "fail",
        on_conflict_of: Mapping[str, ConflictPolicy] | None = None,
        granularity: MergeGranularity = "entity",
        delete_branch: bool = False,
        actor: str | None = None,
        operation_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> MergeReceipt:
        """Merge a branch into main, or ``into`` another, as one commit with two parents.

        The merge is three-way and by entity. Where both sides changed one entity and disagree, or
        the merged graph would break the schema, `MergeConflicts` is raised and nothing has changed.
        ``on_conflict`` lets `source` or `target` win instead, ``on_conflict_of`` by type name; a
        broken schema has no winner. With ``granularity`` `property`, edits of different properties
        of one entity go together. ``delete_branch`` deletes the source afterwards; the receipt says
        if that was refused. Raises `ReadSetChanged` when others wrote to the target meanwhile.
        ``operation_id`` names the merge: if the same actor repeats it, the first receipt returns,
        and only a deletion that the first did not get to is done. ``metadata`` is a JSON object
        that is kept with the commit.
        """
        target, actor = self._branch_of(into), self._actor_of(actor)
        self._opened.gate.branch_merge(actor, source, target)
        rules = ConflictRules(on_conflict, on_conflict_of or {}, granularity)
        key = checked_key(operation_id)
        request = MergeSpec(source, target, rules, actor, key, metadata)
        receipt = merge(self._kernel, request)
        self._opened.notify_auto_optimizer()
        if not delete_branch:
            return receipt
        permit = partial(self._opened.gate.branch_delete, actor, source)
        return delete_source(self._kernel, receipt, permit, key)

    def revert(
        self,
        commit_id: str,
        *,
        branch: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> ReplayReceipt:
        """Undo what one commit of a branch changed, as a new commit; history stays as it is.

        What happened to other entities since stays. Raises `MergeConflicts` where the same entities
        changed again, or where the schema needs what the commit brought; nothing is done then. A
        merge is reverted against its first parent. ``operation_id`` names the request: if the same
        actor repeats it, the first receipt returns.
        """
        key = checked_key(operation_id)
        request = ReplaySpec(
            "revert", commit_id, self._branch_of(branch), self._actor_of(actor), key
        )
        return self._replayed("revert", request)

    def cherry_pick(
        self,
        commit_id: str,
        into: str | None = None,
        *,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> ReplayReceipt:
        """Do what one commit of any branch changed once more on main, or ``into`` another branch.

        Raises `MergeConflicts` where the same entities differ there; nothing is done then.
        ``operation_id`` names the request: if the same actor repeats it, the first receipt returns.
        """
        key = checked_key(operation_id)
        request = ReplaySpec(
            "cherry-pick", commit_id, self._branch_of(into), self._actor_of(actor), key
        )
        return self._replayed("branch cherry-pick", request)

    def _replayed(self, verb: str, request: ReplaySpec) -> ReplayReceipt:
        """Raises what the gate raises, and `NotFound` for a commit that the actor may not read."""

        def authored_branch() -> str:
            return self.show_commit(request.commit_id).graph_branch or MAIN

        if not self._opened.gate.replay(verb, request.actor_id, request.branch, authored_branch):
            raise no_commit(request.commit_id)
        return replay(self._kernel, request)

    def plan_revert(self, commit_id: str, *, branch: str | None = None) -> MergePlan:
        """What `revert` would do now. Changes nothing."""
        request = ReplaySpec("revert", commit_id, self._branch_of(branch))
        return plan_replay(self._kernel, request)

    def plan_cherry_pick(self, commit_id: str, into: str | None = None) -> MergePlan:
        """What `cherry_pick` would do now. Changes nothing."""
        request = ReplaySpec("cherry-pick", commit_id, self._branch_of(into))
        return plan_replay(self._kernel, request)

    # --- history and changes ----------------------------------------------------------------------

    def list_commits(
        self, branch: str | None = None, *, actor: str | None = None
    ) -> list[CommitInfo]:
        """The commits a branch's head reaches, newest first; ``actor`` as author or recoverer."""
        lineage = self._opened.state(self._branch_of(branch)).lineage()
        return [
            commit_info(row)
            for row in lineage
            if actor is None or actor in (row.actor_id, row.recovered_by)
        ]

    def show_commit(self, commit_id: str) -> CommitInfo:
        """One commit of any branch; raises `NotFound`."""
        for branch in self.list_branches():
            row = self._kernel.manifest.branch(branch).refresh().commits.get(commit_id)
            if row is not None:
                return commit_info(row)
        raise no_commit(commit_id)

    def entity_history(
        self, type_name: str, entity_id: str, *, branch: str | None = None
    ) -> Iterator[EntityVersion]:
        """The commits of a branch that changed one entity, newest first, with what they did to it.

        ``type_name`` is a name, or `node:Name` or `edge:Name`. Each is told in the words of its own
        schema; a change of the schema is no change of an entity.
        """
        state = self._opened.state(self._branch_of(branch))
        found = find_type(self._opened.catalog_of(state.head_snapshot()), type_name)
        return entity_history(self._kernel, self._opened.schemas, state, found, entity_id)

    def diff(
        self,
        before: str,
        after: str,
        *,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> GraphDiff:
        """The entities that differ between two branches, or two commits, or one of each.

        Printed, it shows how many of each type were inserted, updated and deleted on the way from
        ``before`` to ``after``; `GraphDiff.changes` lists them. Only ``kinds`` (`node`, `edge`),
        ``types`` by name and ``ops`` (`insert`, `update`, `delete`) if any are given. A branch with
        an older schema is compared in the newer one, as a merge would. Raises `ChangeDiffRefused`
        when the schema changed on the way from one to the other and rewrote or dropped data.
        """
        older, newer = (moment_of(self._kernel, name) for name in (before, after))
        return diff_of(self._opened.schemas, older, newer, ChangeFilter.of(kinds, types, ops))

    def diff_page(
        self,
        before: str,
        after: str,
        *,
        page_token: str | None = None,
        limit: int | None = None,
        limit_bytes: int | None = None,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
        images: bool = False,
    ) -> DiffPage:
        """How much differs between two branches or commits, and some of the entities.

        `DiffPage.next_page_token` leads to the rest, together with the two commits of this page.
        ``limit`` is in entities, 1,000 unless told, ``limit_bytes`` a target for their size. Raises
        what `diff` raises, and `ChangeCursorRejected` for a token of another diff.
        """
        request = DiffPageRequest(
            before,
            after,
            ChangeFilter.of(kinds, types, ops),
            PageLimits.of(limit, limit_bytes),
            page_token,
            images,
        )
        return diff_page(self._kernel, self._opened.schemas, self._opened.unfinished, request)

    def commit_changes(
        self,
        commit_id: str,
        *,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> CommitChanges:
        """What one commit changed in its first parent, with images before and after.

        Raises `NotFound`, `ChangeDiffRefused` for the first commit of a graph and for a change of
        schema that rewrote or dropped data, and `ChangeFeedGap` when cleanup has removed what it
        needs.
        """
        wanted = ChangeFilter.of(kinds, types, ops)
        return commit_changes(self._kernel, self._opened.schemas, commit_id, wanted)

    def commit_changes_page(
        self,
        commit_id: str,
        *,
        page_token: str | None = None,
        limit: int | None = None,
        limit_bytes: int | None = None,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> CommitPage:
        """Some of what one commit changed; `CommitPage.next_page_token` leads to the rest.

        ``limit`` is in changes, 1,000 unless told, ``limit_bytes`` a target for their size. Raises
        what `commit_changes` raises, and `ChangeCursorRejected` for a token of another commit or
        filter.
        """
        request = CommitPageRequest(
            commit_id,
            ChangeFilter.of(kinds, types, ops),
            PageLimits.of(limit, limit_bytes),
            page_token,
        )
        return commit_page(self._kernel, self._opened.schemas, self._opened.unfinished, request)

    def poll_changes(
        self,
        branch: str | None = None,
        *,
        cursor: str | None = None,
        start: str | None = None,
        page_token: str | None = None,
        limit: int | None = None,
        limit_bytes: int | None = None,
        limit_commits: int | None = None,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> FeedPage:
        """What the commits of a branch changed since ``cursor``, one block a commit.

        Without a cursor, ``start`` says where to begin: `now`, which is meant if nothing is given,
        `beginning`, or `after:<commit>`. A page ends either with a ``next_page_token`` for the rest
        of a commit, or with the cursor of the next poll. The caller keeps the cursor, and may come
        back with it in any process. Deliver at least once: the blocks of one commit always have its
        ``graph_commit_id``.

        Raises `ChangeCursorRejected`, `NotFound`, `ChangeFeedGap` when cleanup has removed what the
        next commit needs, and `ChangeDiffRefused` when the next commit is a change of schema that
        rewrote or dropped data. After the last two only `change_baseline` leads on.
        """
        request = PollRequest(
            self._branch_of(branch),
            ChangeFilter.of(kinds, types, ops),
            PageLimits.of(limit, limit_bytes, limit_commits),
            cursor,
            start,
            page_token,
        )
        return ChangeFeed(self._kernel, self._opened.schemas, self._opened.unfinished).poll(request)

    def change_baseline(
        self,
        branch: str | None = None,
        *,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> ChangeBaseline:
        """Every entity at the present head of a branch, and then the cursor to go on with.

        Writers go on meanwhile: what they commit is what the cursor continues with. ``ops`` selects
        no entities; they belong to the polls with the cursor. Raises `NotFound`.
        """
        wanted = ChangeFilter.of(kinds, types, ops)
        return change_baseline(self._kernel, self._opened.schemas, self._branch_of(branch), wanted)

    # --- upkeep -----------------------------------------------------------------------------------

    def ensure_indices(self, branch: str | None = None) -> IndexReceipt:
        """Build the indexes that the schema declares and the head of a branch is missing.

        One commit, or none if nothing is missing. What cannot be built yet is listed with the
        reason. Queries return the same with and without indexes. Raises `Conflict` when others
        wrote to the branch meanwhile.
        """
        self._opened.gate.require_writable("index")
        return ensure_indices(
            self._kernel,
            self._opened.path,
            self._opened.accepted(self._branch_of(branch)),
            self._branch_of(branch),
        )

    def optimize(
        self,
        *,
        progress: Callable[[int, int], None] | None = None,
        engine: Literal["local", "spark"] | None = None,
        spark: SparkOptions | None = None,
    ) -> OptimizeReceipt:
        """Make main compact and its indexes complete: one commit, or none if nothing is due.

        Old versions stay. A table that an external writer has changed (drift) is skipped.
        ``progress`` gets how many tables are done, of how many. With ``engine="spark"`` executors
        rewrite fragments and build indexes; the result is the same. Raises `RecoveryRequired` while
        an interrupted operation is unsettled, and `Conflict` when others wrote to main meanwhile.
        """
        self._opened.gate.require_writable("optimize")
        options = checked_options(spark, SparkOptions, "spark")
        if engine_name(engine, options) == "local":
            return optimize(self._kernel, self._opened.accepted(), progress=progress)
        from omnigraph.pipeline.maintenance import spark_workers

        with spark_workers(self._kernel.root, options, self._kernel.ids.ulid()) as workers:
            return optimize(
                self._kernel, self._opened.accepted(), progress=progress, workers=workers
            )

    def repair(
        self, branch: str | None = None, *, confirm: bool = False, force: bool = False
    ) -> RepairReceipt:
        """Publish what external writers did to the tables of a branch (drift).

        Without ``confirm`` nothing is changed and the receipt says what would be. Only versions
        that are known to change no row are published, unless ``force`` vouches for the content of
        the others. Raises `RecoveryRequired` while an interrupted operation is unsettled.
        """
        self._opened.gate.require_writable("repair")
        return repair(
            self._kernel,
            self._opened.accepted(self._branch_of(branch)),
            self._branch_of(branch),
            confirm=confirm,
            force=force,
        )

    def cleanup(
        self,
        *,
        keep: int | None = None,
        older_than: timedelta | None = None,
        confirm: bool = False,
        progress: Callable[[int, int], None] | None = None,
    ) -> CleanupReceipt:
        """Remove old versions of tables, and what deleted branches left behind.

        Versions beyond the newest ``keep`` go, and those ``older_than`` some age; with both, only
        what is both. What a live branch sees always stays. Commits whose versions are gone stay
        listed, and reading them raises `HistoricalVersionReclaimed`. Without ``confirm`` nothing is
        removed and the receipt says what would be. ``progress`` gets how many tables are done, of
        how many. Raises `RecoveryRequired` while an interrupted operation is unsettled, and
        `UncoveredDrift`.
        """
        self._opened.gate.require_writable("cleanup")
        seconds = None if older_than is None else int(older_than.total_seconds())
        policy = CleanupPolicy(keep, seconds)
        return cleanup(self._kernel, policy, confirm=confirm, progress=progress)

    def examine(self) -> Diagnosis:
        """Try every way the graph is read, on every branch; writes nothing.

        Every finding names the command that mends it. `doctor` does the same for a graph that may
        not even open.
        """
        return examine(self._kernel)

    def stats(self, branch: str | None = None) -> GraphStats:
        """The head of a branch and the graph around it in numbers; writes nothing.

        What needs attention is listed with the command that mends it.
        """
        return graph_stats(self._kernel, self._branch_of(branch))

    def recover(self, *, force: bool = False) -> list[Settlement]:
        """Finish or undo every interrupted operation; ``force`` also through foreign commits."""
        self._opened.gate.require_writable("recover")
        settled = Recoverer(self._kernel).run("full", force=force)
        release_abandoned(self._kernel)
        return settled

    def list_recoveries(self) -> list[RecoveryRow]:
        """Every recovery so far, oldest first."""
        return RecoveryAudit(self._kernel.lance, self._kernel.root.uri).rows()

    @property
    def auto_optimize(self) -> AutoOptimizeStatus | None:
        """What upkeep in the background has done; None if this handle has none."""
        optimizer = self._opened.auto_optimizer
        return None if optimizer is None else optimizer.status

    @property
    def blocked_branches(self) -> tuple[BlockedBranch, ...]:
        """Branches that refuse writes, as recovery in the background last saw them."""
        return () if self._opened.healer is None else self._opened.healer.blocked

    def close(self) -> None:
        """End upkeep and recovery in the background, waiting for a run that has begun.

        The handle can be used on. It happens by itself when the handle, or the program, goes.
        """
        if self._opened.healer is not None:
            self._opened.healer.stop()
        if self._opened.auto_optimizer is not None:
            self._opened.auto_optimizer.stop()
