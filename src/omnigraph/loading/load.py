"""A bulk load: one job, on Spark or by threads of this process, and one commit of the graph.

=======  ==========================================================================================
stage    what happens
=======  ==========================================================================================
plan     files are found and cut into tasks; headers and footers are checked
read     workers read, convert, check values and write rows beside the tables, in one pass
match    of an upsert: workers find the rows that are replaced, and write those that differ
check    what concerns several records is counted, in one aggregation over keys
commit   the write path of every write: lease, sidecar, one transaction per table, one publish
=======  ==========================================================================================

Until the last stage nothing happened that anybody could see. If the branch moves meanwhile, `check`
is repeated against its new head; what was read and written stays good.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any

from omnigraph.commit.change_set import ChangeKind, ChangeSet, TableChange, WrittenRows
from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.receipts import AlreadyWritten
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.write_path import Prepared, WritePath
from omnigraph.errors import InputError, ReadSetChanged
from omnigraph.loading.check_plan import CheckJob, CommittedPart, Part, WrittenPart, plan_checks
from omnigraph.loading.checks import count_broken
from omnigraph.loading.engine import Engine
from omnigraph.loading.executors import (
    RESULTS_SCHEMA,
    TaskResult,
    TaskRunner,
    Watch,
    decode_results,
)
from omnigraph.loading.files import Files
from omnigraph.loading.locate import RecordPlaces, Report
from omnigraph.loading.pieces import InputPlan, Task, plan_sources
from omnigraph.loading.reading import Reading, check_headers
from omnigraph.loading.records.ids import Minting
from omnigraph.loading.request import LoadBranch, LoadRequest
from omnigraph.loading.sources import FileSource, Source, input_digest, type_of
from omnigraph.loading.staging import (
    BufferedRows,
    Staged,
    StageJob,
    collect_results,
    renames_of,
    stage_files,
    stage_frame,
)
from omnigraph.loading.upsert import IdPrefetch, Upsert, committed_parts
from omnigraph.model.ids import TableKey
from omnigraph.model.receipts import LoadedType, LoadReceipt, LoadStage
from omnigraph.schema.catalog import Catalog, NodeType, table_schema
from omnigraph.storage.datasets import DatasetRef
from omnigraph.storage.layout import load_scratch_name
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.storage.written import TablePlace, data_files, fragment_rows

if TYPE_CHECKING:
    from omnigraph.pipeline.spark.session import SparkWhenNeeded


def bulk_load(
    kernel: Kernel,
    path: WritePath,
    sources: Sequence[Source],
    request: LoadRequest,
    branch: LoadBranch,
    *,
    session: SparkWhenNeeded | None,
    watch: Watch | None = None,
) -> LoadReceipt:
    """Load files and frames as one commit: on Spark, or without a session by threads.

    ``branch`` is made once the input has been found, and deleted if the load fails. Raises
    `InputError` with the first problems of a bad input.
    """
    return _BulkLoad(kernel, sources, request, session, watch).run(path, branch)


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a prepared load will say about itself."""

    nodes: tuple[LoadedType, ...]
    edges: tuple[LoadedType, ...]


class _BulkLoad:
    def __init__(
        self,
        kernel: Kernel,
        sources: Sequence[Source],
        request: LoadRequest,
        session: SparkWhenNeeded | None,
        watch: Watch | None,
    ) -> None:
        self._kernel = kernel
        self._sources = sources
        self._request = request
        self._engine: Engine = "local" if session is None else "spark"
        operation = kernel.ids.attempt_id()
        self._operation = operation
        self._jobs = TaskRunner(session, operation, watch)
        self._accepted = kernel.accepted_schema()
        self._catalog: Catalog = self._accepted.catalog
        self._reading = Reading(
            self._accepted.contract,
            request.grammar,
            request.mode,
            Minting(operation),
            request.ignore_unknown,
            Files.of_environment([each.path for each in sources if isinstance(each, FileSource)]),
            external=request.external,
        )
        self._stages: dict[str, LoadStage] = {}
        self._plan = InputPlan((), ())
        self._places: dict[str, TablePlace] = {}
        self._staged: Staged | None = None
        self._held = BufferedRows()
        self._records = RecordPlaces.of(self._plan, request.grammar, {})
        self._upsert: Upsert | None = None
        self._ahead = IdPrefetch(self._storage_options or None)

    def run(self, path: WritePath, branch: LoadBranch) -> LoadReceipt:
        """Stages plan to commit."""
        self._find_input()
        try:
            self._request.refuse_repetition(self._kernel)
            self._jobs.began()
            if self._request.dry_run:
                return self._tried()
            with branch.made() as is_new:
                return self._written(path, branch_created=is_new)
        except AlreadyWritten as earlier:
            return self._request.repeated(earlier)
        finally:
            self._kernel.store.delete_prefix(self._scratch)

    def _find_input(self) -> None:
        """Stage plan: what is to be read, which columns it has, and what tells it from another."""
        started = perf_counter()
        request = self._request
        self._plan = plan_sources(
            self._sources,
            self._catalog,
            slots=self._jobs.slots,
            lines_only=request.grammar == "strict",
        )
        check_headers(
            self._plan,
            self._catalog,
            self._reading.files,
            ignore_unknown=request.ignore_unknown,
        )
        if request.operation_id is not None:
            if self._plan.frames:
                raise InputError(
                    "an idempotency key needs an input that can be read twice, and frames cannot",
                    hint="write the frame to files, or leave out the key",
                )
            digest = request.input_digest or input_digest(self._plan.files)
            self._request = replace(request, input_digest=digest)
        request.forget_problems()
        self._note("plan", 0, started, files=len(self._plan.files))

    def _tried(self) -> LoadReceipt:
        """A dry run: everything up to the commit."""
        manifest = Recoverer(self._kernel).barrier(self._request.seen_branch)
        capture = self._kernel.capture(manifest, self._accepted.schema_hash)
        return self._receipt(self._prepare(capture, self._catalog).result, None)

    def _written(self, path: WritePath, *, branch_created: bool) -> LoadReceipt:
        request, started = self._request, perf_counter()
        written = path.write(
            request.branch,
            self._prepare,
            kind="load",
            accepted=self._accepted,
            may_prepare_again=request.mode != "overwrite",
            expected_head=request.expected_head,
            operation_id=request.operation_id,
        )
        before = sum(stage.seconds for name, stage in self._stages.items() if name != "plan")
        self._note("commit", self._rows, started + before)
        return self._receipt(written.result, written.commit, branch_created=branch_created)

    def _receipt(
        self, outcome: _Outcome, commit: CommitRow | None, *, branch_created: bool = False
    ) -> LoadReceipt:
        return self._request.receipt(
            outcome.nodes,
            outcome.edges,
            self._engine,
            commit=commit,
            branch_created=branch_created,
            stages=tuple(self._stages.values()),
        )

    # --- preparing, once per attempt ---

    def _prepare(self, capture: Capture, catalog: Catalog) -> Prepared[_Outcome]:
        if catalog is not self._catalog:
            raise ReadSetChanged("schema_hash", self._accepted.schema_hash, catalog.schema_hash)
        staged = self._stage(capture)
        try:
            if self._request.mode != "merge":
                self._check(self._check_job(capture, staged), staged)
                changes, outcome = self._changes(staged)
            else:
                changes, outcome = self._upserted(capture, staged)
        except KeyboardInterrupt:
            self._discard(staged)
            raise
        intent = self._request.intent(outcome.nodes, outcome.edges, self._engine)
        return Prepared(changes, outcome, intent)

    def _changes(self, staged: Staged) -> tuple[ChangeSet, _Outcome]:
        kind: ChangeKind = "append" if self._request.mode == "append" else "replace"
        counts: dict[str, LoadedType] = {}
        changes: dict[str, TableChange] = {}
        for key in sorted({*staged.fragments, *self._replaced_by_name}):
            type = type_of(key, self._catalog)
            fragments = tuple(staged.fragments.get(key, ()))
            rows = staged.rows(key)
            nothing = table_schema(type).empty_table()
            changes[key] = TableChange(key, kind, nothing, written=WrittenRows(fragments))
            counts[key] = LoadedType(type.name, rows, inserted=rows, updated=0, unchanged=0)
        return ChangeSet(changes), _outcome(counts)

    def _upserted(self, capture: Capture, staged: Staged) -> tuple[ChangeSet, _Outcome]:
        """An upsert meets the committed rows before it is checked: not all of its rows change."""
        started = perf_counter()
        upsert = self._upsert = self._upsert or Upsert(
            self._jobs,
            self._reading,
            staged,
            self._held,
            self._places,
            self._final_place,
            self._delete,
            self._ahead,
            self._kernel.root.join(self._scratch),
            self._storage_options,
        )
        upsert.meet(capture)
        self._note("match", self._rows, started)
        self._check(upsert.check_job(capture), staged)
        changes = ChangeSet() if self._request.dry_run else upsert.changes()
        return changes, _outcome(upsert.counts())

    # --- read ---

    def _stage(self, capture: Capture) -> Staged:
        if self._staged is not None:
            return self._staged
        started = perf_counter()
        self._places = {key: self._place(capture, key) for key in self._type_keys()}
        if self._request.mode == "merge" and self._jobs.uses_threads:
            self._ahead.start(self._sought_parts(capture))
        staged = self._read()
        if staged.renamed:
            # Edges may name nodes by their older ids, and may have been read before the nodes.
            self._reading = replace(self._reading, renames=renames_of(staged.renamed))
            staged = self._read()
        self._staged = staged
        self._records = RecordPlaces.of(self._plan, self._request.grammar, staged.records)
        self._note("read", self._rows, started)
        return staged

    def _sought_parts(self, capture: Capture) -> Iterator[CommittedPart]:
        """The committed rows of types whose records have ids for certain: those of their keys."""
        for key in sorted(self._named_types):
            type = type_of(key, self._catalog)
            if isinstance(type, NodeType) and type.key and not capture.reader.is_empty(key):
                yield from committed_parts(capture, key)

    def _read(self) -> Staged:
        self._held = BufferedRows()
        job = self._stage_job(self._plan.tasks)
        return self._read_frames(self._sorted(self._read_files(job), job))

    def _type_keys(self) -> list[str]:
        """The types that records may be of."""
        if any(found.table_key is None for found in self._plan.files):
            return [
                *(node.table_key for node in self._catalog.nodes.values()),
                *(edge.table_key for edge in self._catalog.edges.values()),
            ]
        return sorted(self._named_types)

    @property
    def _named_types(self) -> set[str]:
        """The types that files and frames were named for."""
        keys = {found.table_key for found in self._plan.files if found.table_key is not None}
        keys |= {frame.table_key for frame in self._plan.frames}
        return {type_of(key, self._catalog).table_key for key in keys}

    @property
    def _replaced_by_name(self) -> set[str]:
        """The types that an overwrite replaces even if it has no rows of them."""
        named = self._named_types if self._request.mode == "overwrite" else set()
        return {*self._request.replace_types, *named}

    def _place(self, capture: Capture, key: str) -> TablePlace:
        if self._uses_scratch:
            return self._aside(capture, key, "read")
        return self._final_place(capture, key)

    def _final_place(self, capture: Capture, key: str) -> TablePlace:
        """Where rows are written that are to stay; those of a dry run are not."""
        if self._request.dry_run:
            return self._aside(capture, key, "written")
        entry = capture.snapshot.table(key)
        ref = capture.branch.where.ref
        address = DatasetRef(self._kernel.table_uri(entry.location), ref).address
        replaces = self._request.mode == "overwrite"
        return TablePlace.of(capture.reader.handle(key), address, replaces=replaces)

    def _aside(self, capture: Capture, key: str, folder: str) -> TablePlace:
        name = capture.snapshot.table(key).location.replace("/", "-")
        return TablePlace(self._kernel.root.join(self._scratch, folder, name))

    @property
    def _scratch(self) -> str:
        return load_scratch_name(self._operation)

    @property
    def _uses_scratch(self) -> bool:
        """Whether rows are written aside: nobody wants them, or they replace single rows."""
        return self._request.dry_run or self._request.mode == "merge"

    def _stage_job(self, tasks: tuple[Task, ...]) -> StageJob:
        return StageJob(
            self._reading,
            self._places,
            tasks,
            self._request.max_errors,
            self._storage_options,
            with_places=self._uses_scratch,
            held=self._held if self._jobs.uses_threads and self._uses_scratch else None,
            tally=self._jobs.tally if self._jobs.uses_threads else None,
            stopped=self._jobs.stopped if self._jobs.uses_threads else None,
        )

    @property
    def _storage_options(self) -> dict[str, str]:
        return self._kernel.root.storage_options()

    def _read_files(self, job: StageJob) -> list[TaskResult]:
        count = len(job.tasks)
        if not count:
            return []
        label = f"{len(self._plan.files)} files"
        return self._jobs.answers("read", label, count, stage_files(job))

    def _sorted(self, answers: Sequence[TaskResult], job: StageJob) -> Staged:
        """Answers by kind; texts that cannot be read in parts are read once more, as a whole."""
        not_on_lines = {said.payload["path"] for said in answers if said.kind == "not_on_lines"}
        if not not_on_lines:
            return collect_results(answers, Staged())
        again = [
            task for task in job.tasks if any(piece.path in not_on_lines for piece in task.pieces)
        ]
        kept = [task for task in job.tasks if task not in again]
        kept_numbers = {task.index for task in kept}
        whole: dict[str, Task] = {}
        for task in again:
            piece = task.pieces[0]
            whole.setdefault(
                piece.path, replace(task, pieces=(replace(piece, start=0, end=None, first=0),))
            )
        second = [replace(task, index=i) for i, task in enumerate(whole.values())]
        staged = collect_results([said for said in answers if said.task in kept_numbers], Staged())
        staged = collect_results(self._read_files(self._stage_job(tuple(second))), staged)
        tasks = [replace(task, index=i) for i, task in enumerate([*kept, *second])]
        self._plan = replace(self._plan, tasks=tuple(tasks))
        return staged

    def _read_frames(self, staged: Staged) -> Staged:
        first = self._plan.first_frame
        job = self._stage_job(())
        for source in self._plan.frames:
            function = stage_frame(job, source.table_key, source.name, first)
            frame = source.frame

            def collect(frame: Any = frame, function: Any = function) -> list[Any]:
                rows: list[Any] = frame.mapInArrow(function, RESULTS_SCHEMA).collect()
                return rows

            answers = decode_results(self._jobs.run("read", source.name, collect))
            staged = collect_results(answers, staged)
            first += frame.rdd.getNumPartitions()
        return staged

    @property
    def _rows(self) -> int:
        staged = self._staged
        return 0 if staged is None else sum(map(staged.rows, staged.fragments))

    # --- check ---

    def _check(self, job: CheckJob | None, staged: Staged) -> None:
        """Stop here if anything is wrong with the input, alone or together with the graph."""
        started = perf_counter()
        findings = self._request.findings()
        broken = 0 if job is None else count_broken(self._jobs, job)
        self._note("check", self._rows, started)
        if not broken and not staged.counts:
            return
        report = Report(self._jobs, self._reading, self._plan, self._records, findings)
        report.add_records(staged)
        if broken and job is not None:
            report.add_violations(job)
        self._discard(staged)
        findings.raise_if_any()

    def _discard(self, staged: Staged) -> None:
        """Remove rows that will not be committed: no transaction names them, or ever will."""
        if self._upsert is not None:
            self._upsert.forget_all()
        if not self._uses_scratch:
            for key, fragments in staged.fragments.items():
                self._delete(self._places[key], fragments)

    def _delete(self, place: TablePlace, fragments: Sequence[str]) -> None:
        root = f"{self._kernel.root.uri}/"
        for file in data_files(place, fragments):
            name = file.removeprefix(root)
            self._kernel.store.delete(name)
            # Blobs too large for the file lie in a directory of its name.
            self._kernel.store.delete_prefix(name.removesuffix(".lance"))

    def _check_job(self, capture: Capture, staged: Staged) -> CheckJob | None:
        mode = self._request.mode
        written = sorted({*staged.fragments, *staged.refused})
        replaced = sorted({*written, *self._replaced_by_name}) if mode == "overwrite" else []
        plan = plan_checks(
            self._catalog,
            mode,
            written,
            replaced,
            capture.reader.is_empty,
            named=staged.named,
        )
        if not plan.rules:
            return None
        parts: list[Part] = [
            WrittenPart(
                key,
                self._places[key],
                fragment,
                fragment_rows(fragment),
                buffered=self._held.get(fragment),
            )
            for key, fragments in sorted(staged.fragments.items())
            if plan.written.get(key)
            for fragment in fragments
        ]
        for key in sorted(plan.committed):
            parts.extend(committed_parts(capture, key))
        refused = {key: tuple(ids) for key, ids in staged.refused.items()}
        return CheckJob(
            plan, tuple(parts), self._reading.minting.prefix, self._storage_options, refused
        )

    # --- stages ---

    def _note(self, stage: str, rows: int, started: float, *, files: int | None = None) -> None:
        known = self._stages.get(stage)
        seconds = perf_counter() - started + (known.seconds if known is not None else 0.0)
        self._stages[stage] = LoadStage(stage, rows, seconds)
        self._jobs.finished(stage, rows, seconds, files)


def _outcome(counts: Mapping[str, LoadedType]) -> _Outcome:
    return _Outcome(
        tuple(counts[key] for key in sorted(counts) if TableKey(key).kind == "node"),
        tuple(counts[key] for key in sorted(counts) if TableKey(key).kind == "edge"),
    )
