"""Mutations, loads and streams into an open graph; each write is one commit."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.audit.describing import note_plan
from omnigraph.branching.branches import create_branch, delete_branch, list_branches
from omnigraph.commit.mutate import mutate as run_mutation
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.schema.contract import LAST_STAGED_OBJECT
from omnigraph.embedding.config import BulkLimits, EmbeddingConfig
from omnigraph.errors import CompileError, Denied, InputError, NotFound, OmnigraphError, WrongVerb
from omnigraph.graph.gate import Access
from omnigraph.graph.opened import Handle, OpenGraph
from omnigraph.loading.load import load_with_engine
from omnigraph.loading.records.problems import Grammar
from omnigraph.loading.request import LoadBranch, LoadSpec
from omnigraph.model.ids import checked_key, checked_message
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
from omnigraph.model.merging import ConflictPolicy
from omnigraph.model.receipts import (
    AbsentMeaning,
    EmbedReceipt,
    LoadMode,
    LoadReceipt,
    MutationReceipt,
    check_load_mode,
)
from omnigraph.model.records import dataclass
from omnigraph.query.plan import MutationPlan
from omnigraph.schema.catalog import Catalog
from omnigraph.storage.layout import MAIN
from omnigraph.syntax.suggest import did_you_mean
from omnigraph.syntax.tokens import Source

if TYPE_CHECKING:
    from omnigraph.loading.inputs import LoadEngine, Paths
    from omnigraph.loading.mapping_arguments import Mappings
    from omnigraph.loading.sources import Frame
    from omnigraph.pipeline.streaming.into import Apply, GraphStream

Data = bytes | str | Iterable[bytes]
Written = TypeVar("Written")


# --- verbs of `Graph` -----------------------------------------------------------------------------


def mutate(
    self: Handle,
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
    ``operation_id`` is an idempotency key: if the same actor repeats the write, the first receipt
    is returned. ``message`` is kept with the commit.
    """
    opened, target, by = self._opened, self._branch_of(branch), self._by(actor)
    actor = by.actor
    opened.gate.change("mutate", by, target)
    message = checked_message(message)
    operation_id = checked_key(operation_id)

    def compile_for(catalog: Catalog) -> MutationPlan:
        limited = opened.write_rights(by, target, catalog)
        if limited is None:
            plan = _compiled_mutation(opened, source, name, catalog)
        else:
            named = _compiled_mutation(opened, source, name, limited.catalog(catalog))
            limited.require_settable(named)
            try:
                plan = _compiled_mutation(opened, source, name, catalog)
            except CompileError:
                # An insert needs a value for a required property that the actor cannot name.
                raise limited.denied_insert(named, catalog) from None
        if not plan.is_insert_only:
            opened.gate.select("mutate", by, target)
        return plan

    def run() -> MutationReceipt:
        known, read_schema = opened.known_accepted(target), partial(opened.last_accepted, target)
        return run_mutation(
            self._kernel,
            opened.path,
            compile_for,
            params,
            accepted=known or read_schema(),
            read_again=None if known is None else read_schema,
            branch=target,
            limits=opened.limits,
            actor_id=actor,
            expected_head=expected_head,
            operation_id=operation_id,
            message=message,
            external=opened.external,
            rights=partial(opened.write_rights, by, target),
        )

    return _with_newest_schema(opened, target, "mutation", run)


def load(
    self: Handle,
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

    ``engine`` is `local`, this process, or `spark`, or `auto`, which takes Spark for inputs that
    this process could not load before Spark has started (`OMNIGRAPH_SPARK_THRESHOLD_BYTES`), for
    frames of Spark, and where ``spark`` names a session or a master. ``dry_run`` only reports what
    would be written. ``operation_id`` is an idempotency key: repeating the load with the same input
    returns the first receipt. ``message`` is kept with the commit. ``progress`` gets the bytes of
    each block of records that was read in process.

    `CsvOptions` configures separators, `ErrorOptions` the handling of bad records, `SparkOptions`
    where Spark runs, a `LoadObserver` has callbacks for the engine and the progress of stages, and
    a `LoadOrigin` is metadata about the input to keep with the commit. Raises `InputError` with the
    problems of a bad input; nothing is written then.
    """
    check_load_mode(mode)
    csv = checked_options(csv, CsvOptions, "csv")
    errors = checked_options(errors, ErrorOptions, "errors")
    spark = checked_options(spark, SparkOptions, "spark")
    observer = checked_options(observer, LoadObserver, "observer")
    origin = checked_options(origin, LoadOrigin, "origin")
    target, by = self._branch_of(branch), self._by(actor)
    self._opened.gate.load(by, target, from_, partial(list_branches, self._kernel))
    return run_load(
        self._opened,
        by,
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
            actor_id=by.actor,
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


def embed(
    self: Handle,
    type: str | None = None,
    property: str | None = None,
    *,
    branch: str | None = None,
    since: str | None = None,
    engine: str | None = None,
    limits: BulkLimits | None = None,
    embedding: EmbeddingConfig | None = None,
    actor: str | None = None,
    message: str | None = None,
    spark: SparkOptions | None = None,
    observer: LoadObserver | None = None,
    origin: LoadOrigin | None = None,
) -> EmbedReceipt:
    """Compute the vectors of `@embed` properties where a text is new or has changed.

    For all such properties, those of one node ``type``, or one ``property``. A vector is computed
    for a node that has a text and no vector, and recomputed if the text changed since the last run,
    or ``since`` a commit, and the vector did not. Texts are sent in batches within ``limits``,
    `BulkLimits` of the environment by default, which hold for all processes together. The vectors
    are merged in one commit, or one for every 65,536 of them; nothing else of a node is touched,
    and nodes whose text changes meanwhile are left to the next run.

    Requests are sent by threads of this process, or with ``engine="spark"`` by workers of Spark.
    ``embedding`` configures the provider; the default is the configuration of the handle, or the
    environment. Raises `EmbeddingError` if the provider fails: vectors received until then are
    committed; those of a killed process are committed by the next run. The receipt counts texts,
    tokens as reported by the provider, requests and retries.
    """
    from omnigraph.graph.embedding import EmbedSpec, embed_texts
    from omnigraph.graph.sight import require_unlimited

    target, by = self._branch_of(branch), self._by(actor)
    opened, actor = self._opened, by.actor
    opened.gate.change("embed", by, target)
    opened.gate.select("embed", by, target)
    require_unlimited(opened.sight, "embed", by, target)
    spec = EmbedSpec(
        target,
        None if since is None else self._commit_of(since, branch),
        engine,
        checked_options(spark, SparkOptions, "spark"),
        limits or BulkLimits.from_environment(os.environ),
        embedding or opened.embedder.config,
        actor,
        checked_message(message),
        checked_options(origin, LoadOrigin, "origin"),
        checked_options(observer, LoadObserver, "observer"),
    )
    return embed_texts(self, type, property, spec)


def stream_into(
    self: Handle,
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

    ``frames`` is a streaming frame with rows of one ``type``, or several by type, whose rows are
    committed together; or ``split`` makes frames by type of each batch. With ``apply`` `changes` it
    is a stream of changes of another graph, with the column `sequence`, and its inserts, updates
    and deletes happen here, those of a batch in one commit. ``checkpoint`` is the folder where
    Spark records its progress: a restarted stream resumes there, and no row is written twice,
    however the process ended. A batch that changes nothing makes no commit.

    ``mode`` and ``absent`` are those of `load`. A missing ``branch`` is created from ``from_``;
    with ``merge_every`` it is merged ``merge_into`` another, main by default, after so many
    batches. A bad record ends the stream, unless ``quarantine`` names a folder: then bad records
    are left out, at most ``max_error_share`` of a batch, and kept there with the reasons, a file
    for each batch. ``late=("at", "10 minutes")`` also quarantines records whose time `at` is older
    than that on arrival. ``every`` is the time between two batches, as `10 seconds`;
    ``available_now`` processes the available data and ends.

    Returns at once; `GraphStream.await_end` waits and raises the error that ended the stream, and
    `GraphStream.stop` ends it after the current batch. Raises `InputError` for columns that a type
    does not have.
    """
    from omnigraph.pipeline.spark.session import require_pyspark

    require_pyspark()
    from omnigraph.graph.sight import require_unlimited
    from omnigraph.pipeline.streaming.batches import Quarantine, StreamTarget
    from omnigraph.pipeline.streaming.into import Late, StreamSpec
    from omnigraph.pipeline.streaming.into import stream_into as start_stream

    check_load_mode(mode)
    by, opened = self._by(actor), self._opened
    actor = by.actor
    target = StreamTarget(
        self._branch_of(branch),
        mode,
        absent,
        actor,
        from_,
        merge_every,
        merge_into or MAIN,
        on_conflict,
        Quarantine.of(quarantine, max_error_share, self._kernel.root.uri),
    )

    def permit() -> None:
        opened.gate.load(by, target.branch, from_, partial(list_branches, self._kernel))
        require_unlimited(opened.sight, "stream_into", by, target.branch)
        if merge_every is not None:
            opened.gate.branch_merge(by, target.branch, target.merge_into)

    permit()
    told_late = Late.of(late, target, apply)
    return start_stream(
        self._kernel,
        opened.path,
        StreamSpec(frames, type, split, apply, told_late, checkpoint, every, available_now, name),
        target,
        permit=permit,
        written=opened.notify_auto_optimizer,
    )


# --- mutations ------------------------------------------------------------------------------------


def _compiled_mutation(
    opened: OpenGraph, source: str | Path | Source, name: str | None, catalog: Catalog
) -> MutationPlan:
    """The plan of a write query; raises `WrongVerb` for one that only reads."""
    plan = opened.compiled(source, name, catalog)
    if opened.auditor is not None:
        note_plan(plan, source)
    if not isinstance(plan, MutationPlan):
        raise WrongVerb(
            f"query '{plan.name}' only reads", hint="run it with `query` instead of `mutate`"
        )
    return plan


def _with_newest_schema(
    opened: OpenGraph,
    branch: str,
    operation: str,
    write: Callable[[], Written],
    *,
    repeatable: bool = True,
) -> Written:
    """Run a write, and repeat it if it failed because it started with an outdated schema.

    On main, that happens if a schema apply was interrupted late: recovery completes it, so that the
    write can use its types. On another branch, it happens if the branch was rebased in the
    meantime. A write whose input can be read only once is not ``repeatable``: it raises, and the
    caller's next attempt succeeds.
    """
    try:
        done = write()
    except InputError:
        if branch != MAIN:
            if not _is_brought_forward(opened, branch, operation):
                raise
        elif opened.kernel.store.exists(LAST_STAGED_OBJECT):
            Recoverer(opened.kernel).barrier(MAIN, operation)
        else:
            raise
        if not repeatable:
            raise
        done = write()
    opened.notify_auto_optimizer()
    return done


def _is_brought_forward(opened: OpenGraph, branch: str, operation: str) -> bool:
    """Whether a branch has another schema than when last read, possibly through recovery."""
    known = opened.kernel.manifest.known_state(branch)
    if known is None:
        return False
    try:
        newest = Recoverer(opened.kernel).barrier(branch, operation).state
    except OmnigraphError:
        return False  # the original error about the input is raised instead
    return newest.head_schema != known.head_schema


@dataclass(frozen=True, slots=True)
class LoadInput:
    """The inputs of a load."""

    paths: Sequence[str | os.PathLike[str]]
    data: Data | None = None
    nodes: Mapping[str, Paths] | None = None
    edges: Mapping[str, Paths] | None = None
    frames: Mapping[str, Any] | None = None
    replace_types: Iterable[str] = ()
    mapping: MappingArguments = field(default_factory=MappingArguments)

    @property
    def is_stream(self) -> bool:
        """Whether an input can be read only once."""
        return self.data is not None and not isinstance(self.data, bytes | str)


def run_load(
    opened: OpenGraph,
    by: Access,
    given: LoadInput,
    request: LoadSpec,
    *,
    engine: LoadEngine | None,
    errors: ErrorOptions,
    spark: SparkOptions,
    observer: LoadObserver,
    progress: Callable[[int], None] | None,
) -> LoadReceipt:
    """Load as one commit; ``request`` is completed with values derived from the input.

    Names of branches, types and files are checked before any input is read.
    """
    from omnigraph.loading import inputs

    files = inputs.file_sources(given.paths, given.nodes, given.edges)
    frames: Sequence[Frame] = ()
    mappings: Mappings | None = None
    starts_from = _start_of(opened, request.branch, request.base_branch)
    seen_branch = starts_from or request.branch
    sight = opened.sight
    limited = None if sight is None else sight.write_rights_on(by, request.branch, seen_branch)

    def named() -> Catalog:
        """The types that the input may name."""
        catalog = opened.accepted(seen_branch).catalog
        return catalog if limited is None else limited.catalog(catalog)

    if given.mapping.is_given:
        mappings = inputs.table_mappings(
            given.mapping,
            files,
            given.frames,
            named(),
            has_records=bool(given.paths) or given.data is not None,
        )
        files = [mappings.applied(each) for each in files]
    if given.frames is not None:
        catalog = named()
        frames = inputs.named_frames(
            given.frames,
            catalog,
            mappings,
            ignore_unknown=errors.ignore_unknown,
            keeps_absent=request.keeps_absent,
        )
    if limited is not None:
        if engine == "spark" or spark.is_named or any(frame.is_of_spark for frame in frames):
            raise Denied(
                "a load on Spark is for actors whose rules are not limited to types",
                hint="leave out the engine and what says where Spark runs, and load "
                "`frame.toArrow()` instead of a frame of Spark",
            )
        engine = "local"  # the rules are checked in this process only
        rights = partial(opened.write_rights, by, request.branch)
        request = replace(request, rights=rights)
    choice = inputs.choose_engine(
        engine,
        files,
        frames,
        has_stream=given.data is not None,
        is_spark_named=spark.is_named,
        environment=os.environ,
    )
    replaced: tuple[str, ...] = ()
    emptied: Iterable[str] = given.replace_types
    if request.mode == "overwrite" and not isinstance(emptied, str):
        emptied = [*emptied, *inputs.types_of_exports(given.paths)]
    if emptied:
        replaced = inputs.replaced_types(emptied, request.mode, named())
    is_local = choice.engine == "local"
    request = replace(
        request,
        starts_from=starts_from,
        replace_types=replaced,
        max_errors=inputs.checked_max_errors(errors.max_errors),
        errors_out=inputs.checked_errors_out(errors.errors_out, files, opened.kernel.root.uri),
        on_error=errors.on_error,
        max_error_share=errors.max_error_share,
        ignore_unknown=errors.ignore_unknown,
        record_mappings={} if mappings is None else mappings.of_records(),
        external=opened.external if is_local else opened.external.on_spark(request.mode),
    )
    if observer.on_engine is not None:
        observer.on_engine(choice)
    branch = LoadBranch(
        partial(ensure_branch, opened, request.branch, request.base_branch, by),
        # Keep the branch if another writer has committed to it in the meantime.
        lambda start: delete_branch(opened.kernel, request.branch, expected_head=start),
    )
    work = partial(
        load_with_engine,
        opened.kernel,
        opened.path,
        files,
        request,
        branch,
        choice=choice,
        limits=opened.limits,
        data=given.data,
        frames=frames,
        progress=progress,
        spark=spark,
        watch=observer.on_stage,
    )
    return _with_newest_schema(
        opened, request.seen_branch, "load", work, repeatable=not given.is_stream
    )


def ensure_branch(opened: OpenGraph, name: str, from_: str | None, by: Access) -> str | None:
    """Create a missing branch if ``from_`` is given; returns the commit it starts at."""
    if from_ is None or name in list_branches(opened.kernel):
        return None
    opened.gate.branch_create("load", by, from_, name)
    return create_branch(opened.kernel, name, from_, actor_id=by.actor)


def _start_of(opened: OpenGraph, name: str, from_: str | None) -> str | None:
    """The branch to create a missing one from; None for an existing branch.

    Raises `NotFound` if the branch is missing and ``from_`` names none.
    """
    if name == MAIN or name in (known := list_branches(opened.kernel)):
        return None
    if from_ is None:
        raise NotFound(
            f"there is no branch `{name}`",
            hint=did_you_mean(name, known)
            or 'add `--from main` (from_="main" in Python) to create it',
        )
    opened.kernel.manifest.branch(from_)
    return from_
