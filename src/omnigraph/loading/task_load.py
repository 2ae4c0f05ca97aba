"""A bulk load: tasks read, write, match and check rows, so no process holds all rows.

Threads of this process or Spark workers run the tasks (`executors`). The driver keeps descriptions
of the files they wrote, which stay valid if the branch moves before the commit.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING

from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.plan import ChangeKind, ChangeSet, TableChange, WrittenRows
from omnigraph.errors import InputError
from omnigraph.loading.check_plan import CheckJob, ChecksPlanner, CommittedPart, Part, WrittenPart
from omnigraph.loading.checks import count_broken
from omnigraph.loading.edge_identity import check_edge_ids
from omnigraph.loading.executors import RESULTS, SESSION, TaskRunner, Watch, mapped, unpickled
from omnigraph.loading.files import Files
from omnigraph.loading.load import LoadChanges, LoadExecutor
from omnigraph.loading.locate import LoadProblems, RecordPlaces
from omnigraph.loading.pieces import InputPlan, Task, plan_sources
from omnigraph.loading.reading import EndsJob, LoadedNodeIds, Reading, check_headers, resolve_ends
from omnigraph.loading.records.ids import Minting, renames_of
from omnigraph.loading.records.problems import Problem, unit_of
from omnigraph.loading.replacing import MissingValue
from omnigraph.loading.request import LoadSpec
from omnigraph.loading.skipping import UNREADABLE, Record, Skipping, numbers_of
from omnigraph.loading.sources import FileSource, Source, input_digest, type_of
from omnigraph.loading.staging import (
    BufferedRows,
    Staged,
    StageJob,
    read_inputs,
    stage_files,
    stage_frame,
    write_frame,
)
from omnigraph.loading.upsert import IdPrefetch, Upsert, committed_parts
from omnigraph.model.receipts import LoadedType
from omnigraph.schema.catalog import NodeType, table_schema
from omnigraph.storage.layout import load_scratch_name
from omnigraph.storage.transactions import DatasetRef
from omnigraph.storage.written import TablePlace, data_files

if TYPE_CHECKING:
    from omnigraph.pipeline.spark.session import SparkWhenNeeded


class TaskLoad(LoadExecutor):
    """Loads files and frames by tasks: on Spark, or on threads if there is no session."""

    def __init__(
        self,
        kernel: Kernel,
        request: LoadSpec,
        sources: Sequence[Source],
        session: SparkWhenNeeded | None,
        watch: Watch | None = None,
    ) -> None:
        super().__init__(kernel, request)
        self.engine = "local" if session is None else "spark"
        self._sources = sources
        self._attempt = kernel.ids.ulid()
        self._runner = TaskRunner(session, self._attempt, watch)
        self._reading = Reading(
            self.accepted.contract,
            request.grammar,
            request.mode,
            Minting(self._attempt),
            request.keeps_absent,
            request.ignore_unknown,
            _files_of(sources),
            external=request.external,
            mappings=request.record_mappings,
            skips=request.skips,
        )
        self._plan = InputPlan((), ())
        self._frame_types: set[str] = set()
        """The type keys of the Spark frames that `_write_frames` has written to files."""
        self._places: dict[str, TablePlace] = {}
        self._capture: Capture
        self._staged: Staged | None = None
        self._of_tasks: list[Staged] = []
        """The results that ``_staged`` combines, by task."""
        self._of_frames: list[Staged] = []
        self._ambiguous: list[tuple[int, Problem]] = []
        """Problems of records whose id denotes two nodes, with their pieces."""
        self._buffered = BufferedRows()
        self._records = RecordPlaces.of(self._plan, request.grammar, {})
        self._upsert: Upsert | None = None
        self._id_prefetch = IdPrefetch(self._storage_options or None)

    def plan(self) -> None:
        """Find files and cut them into tasks; raises `InputError` for a wrong column."""
        started = perf_counter()
        request = self.request
        self._plan = self._planned()
        check_headers(self._plan, self._reading)
        if request.operation_id is not None:
            if self._plan.frames and request.input_digest is None:
                raise InputError(
                    "an idempotency key needs an input that can be read twice, and frames cannot",
                    hint="write the frame to files, give LoadOrigin(input_digest=…),"
                    " or leave out the key",
                )
            digest = request.input_digest or input_digest(self._plan.files, request.record_mappings)
            self.request = replace(request, input_digest=digest)
        if request.skips and self._plan.frames:
            self._write_frames()
        self.note("plan", perf_counter() - started, files=len(self._plan.files))

    def _planned(self) -> InputPlan:
        return plan_sources(
            self._sources,
            self.catalog,
            slots=self._runner.slots,
            lines_only=self.request.grammar == "strict",
        )

    def _write_frames(self) -> None:
        """Write Spark frames to files: a second evaluation may give the rows in another order."""
        self._frame_types = {frame.table_key for frame in self._plan.frames}
        for number, frame in enumerate(self._plan.frames):
            folder = self.kernel.root.join(self._scratch, "frames", str(number))
            Files.of_environment([folder]).make_folder(folder)
            collect = mapped(frame.rows, write_frame(folder), RESULTS).collect
            for part, path in sorted(unpickled(self._runner.run("plan", frame.name, collect))):
                name = f"{frame.name}[{part}]"
                source = FileSource(path, frame.table_key, "arrow", name, frame.mapping)
                self._sources = [*self._sources, source]
        self._sources = [each for each in self._sources if isinstance(each, FileSource)]
        self._reading = replace(self._reading, files=_files_of(self._sources))
        self._plan = self._planned()

    def start(self) -> None:
        """Start Spark, if it runs the tasks."""
        started = perf_counter()
        if self._runner.begin():
            self.note(SESSION, perf_counter() - started)

    def close(self) -> None:
        """Delete scratch files."""
        self.kernel.store.delete_prefix(self._scratch)

    def note(self, stage: str, seconds: float, *, files: int | None = None) -> None:
        """Add to the seconds of a stage, and report its end."""
        super().note(stage, seconds, files=files)
        noted = self.stages[stage]
        self._runner.finished(stage, noted.rows, noted.seconds, files)

    # --- preparing, once per attempt ---

    def changes(self, capture: Capture) -> LoadChanges:
        """The rows that tasks wrote; only the first attempt reads the input."""
        try:
            if self.request.skips:
                return self._without_bad(capture)
            staged = self._stage(capture)
            self._check(self._job(capture, staged), staged)
            return self._changes(staged)
        except KeyboardInterrupt:
            if self._staged is not None:
                self._discard(self._staged)
            raise

    def _job(self, capture: Capture, staged: Staged) -> CheckJob | None:
        """The check of written rows; an upsert is matched first, to check changed rows only."""
        if self.request.mode != "merge":
            return self._check_job(capture, staged)
        started = perf_counter()
        upsert = self._upsert = self._upsert or self._new_upsert(staged)
        upsert.meet(capture)
        self.note("match", perf_counter() - started)
        return upsert.check_job(capture)

    def _changes(self, staged: Staged) -> LoadChanges:
        if self._upsert is not None:
            changed = ChangeSet() if self.request.dry_run else self._upsert.changes()
            return LoadChanges(changed, self._upsert.counts())
        kind: ChangeKind = "append" if self.request.mode == "append" else "replace"
        counts: dict[str, LoadedType] = {}
        changes: dict[str, TableChange] = {}
        for key in sorted({*staged.fragments, *self._replaced_by_name}):
            type = type_of(key, self.catalog)
            fragments = tuple(staged.fragments.get(key, ()))
            rows = staged.rows(key)
            nothing = table_schema(type).empty_table()
            changes[key] = TableChange(key, kind, nothing, written=WrittenRows(fragments))
            counts[key] = LoadedType(type.name, rows, inserted=rows, updated=0, unchanged=0)
        return LoadChanges(ChangeSet(changes), counts)

    def _new_upsert(self, staged: Staged) -> Upsert:
        names_all = self.request.errors_out is not None or self.request.skips
        return Upsert(
            self._runner,
            self._reading,
            staged,
            self._buffered,
            self._places,
            self._final_place,
            self._delete,
            self._id_prefetch,
            self.kernel.root.join(self._scratch),
            self._storage_options,
            None if names_all else self.request.max_errors,
        )

    # --- skipping bad records ---

    def _without_bad(self, capture: Capture) -> LoadChanges:
        """The rows that tasks wrote for the records that `loading.skipping` does not skip."""
        account = Skipping(self.request, self.catalog)
        self._leave_out(account.records)  # records skipped on an earlier head may be good now
        staged = self._stage(capture)
        read = self.rows + staged.skipped.total()
        while True:
            account.refused = staged.skipped
            account.refused_ids = {key: set(ids) for key, ids in staged.refused.items()}
            if staged.ends_reading or account.is_over(read):
                break
            job = self._job(capture, staged)
            started = perf_counter()
            if job is not None and not count_broken(self._runner, job):
                job = None
            is_changed = account.take(
                self._report().bad_records(job, self._missing, self._ambiguous),
                {} if self._upsert is None else self._upsert.refused,
            )
            self.note("check", perf_counter() - started)
            if not is_changed or account.is_stuck:
                break
            self._leave_out(account.records)
            staged = self._stage(capture)
        report = self._report()
        report.add_records(staged)
        account.report(report.findings, self._inputs(account.wanted()))
        reason = UNREADABLE if staged.ends_reading else account.reason(read)
        if reason:
            self._discard(staged)
            report.findings.raise_if_any(reason)
        return account.completed(self._changes(staged), report.findings)

    def _leave_out(self, records: Mapping[int, Set[int]]) -> None:
        """Read the tasks again whose set of skipped records has changed."""
        numbers, known = numbers_of(records), self._reading.skipped
        pieces = {each for each in {*numbers, *known} if numbers.get(each) != known.get(each)}
        if not pieces:
            return
        self._reading = replace(self._reading, skipped=numbers, nodes=None)
        if self._upsert is not None:
            self._upsert.forget_all()
            self._upsert = None
        if self._staged is None:
            return
        if self._staged.renamed:
            self._discard(self._staged)
            self._staged = None
            return
        started = perf_counter()
        tasks = self._plan.tasks
        again = [at for at, task in enumerate(tasks) if any(each.index in pieces for each in task)]
        for at in again:
            self._discard(self._of_tasks[at])
        job = self._stage_job(tuple(tasks[at] for at in again))
        for at, result in zip(again, self._read_files(job), strict=True):
            self._of_tasks[at] = result
        self._staged = self._accepted()
        self.note("read", perf_counter() - started)

    def _inputs(self, wanted: Mapping[int, Set[int]]) -> dict[Record, object]:
        """Reads some records again, as the input has them."""
        reading = replace(self._reading, skipped=numbers_of(wanted))
        tasks = tuple(
            task for task in self._plan.tasks if any(each.index in wanted for each in task)
        )
        work = read_inputs(reading, tasks)
        label = "records that are skipped"
        found = self._runner.map_tasks("check", label, len(tasks), work)
        return {record: value for some in found for record, value in some.items()}

    def _report(self) -> LoadProblems:
        findings = self.request.findings(self._records.sources)
        return LoadProblems(self._runner, self._reading, self._plan, self._records, findings)

    @property
    def _missing(self) -> Mapping[str, tuple[int, list[MissingValue]]]:
        return {} if self._upsert is None else self._upsert.missing

    # --- read ---

    def _stage(self, capture: Capture) -> Staged:
        if self._staged is not None:
            return self._staged
        started = perf_counter()
        place_of = partial(self._scratch_place, "read") if self._uses_scratch else self._final_place
        self._places = {key: place_of(capture, key) for key in self._type_keys()}
        if self.request.mode == "merge" and self._runner.uses_threads:
            self._id_prefetch.start(self._sought_parts(capture))
        self._reading = replace(self._reading, renames={}, nodes=None)
        self._capture = capture
        self._read()
        renamed = [each for part in self._of_tasks for each in part.renamed]
        self._ambiguous = []
        if renamed:
            # Edges may refer to nodes by older ids, and may have been read before the nodes.
            renames, self._ambiguous = renames_of(renamed, unit_of(self.request.grammar))
            self._reading = replace(self._reading, renames=renames)
            self._read()
        staged = self._staged = self._accepted()
        self.note("read", perf_counter() - started)
        return staged

    def _accepted(self) -> Staged:
        """The results of all tasks; raises `InputError` for edges that a merge cannot match."""
        self._resolve_ends()
        staged = Staged()
        for part in (*self._of_tasks, *self._of_frames):
            staged.add(part)
        if self.request.mode == "merge":
            for key in sorted(staged.unnamed):
                type = type_of(key, self.catalog)
                check_edge_ids(type, has_ids=key in staged.named, lacks_ids=True)
        self._records = RecordPlaces.of(self._plan, self.request.grammar, staged.records)
        return staged

    def _resolve_ends(self) -> None:
        """Add node types to edge ends that are given as ids only."""
        edges = {edge.table_key for edge in self.catalog.edges.values() if edge.end_types}
        parts = [
            part
            for part in (*self._of_tasks, *self._of_frames)
            if not edges.isdisjoint(part.fragments)
        ]
        if not parts:
            return
        nodes = LoadedNodeIds(
            {
                type.table_key: self._nodes_of(type.table_key)
                for type in self.catalog.nodes.values()
            },
            self._refused_ids(),
            self._storage_options,
        )
        self._reading = replace(self._reading, nodes=nodes)
        wanted = [
            (part, key, at, fragment)
            for part in parts
            if not part.has_ends
            for key in sorted(edges & part.fragments.keys())
            for at, fragment in enumerate(part.fragments[key])
        ]
        count = min(len(wanted), self._runner.slots)
        shares = [wanted[at::count] for at in range(count)]
        job = EndsJob(
            self._reading,
            self._places,
            tuple(tuple((key, fragment) for _, key, _, fragment in share) for share in shares),
            nodes,
            self._storage_options,
            self._buffered if self._runner.uses_threads else None,
        )
        found = self._runner.map_tasks("read", "ends of edges", count, resolve_ends(job))
        for share, results in zip(shares, found, strict=True):
            for (part, key, at, fragment), several in zip(share, results, strict=True):
                if several != [fragment]:
                    (part.fragments[key][at],) = several
                    if self._buffered.get(fragment) is None:
                        self._delete(self._places[key], [fragment])
                part.has_ends = True

    def _nodes_of(self, key: str) -> tuple[Part, ...]:
        """All rows of a node type after this load: written ones, and remaining committed ones."""
        parts: list[Part] = [
            WrittenPart(key, self._places[key], each, buffered=self._buffered.get(each))
            for part in (*self._of_tasks, *self._of_frames)
            for each in part.fragments.get(key, ())
        ]
        is_replaced = self.request.mode == "overwrite" and bool(parts)
        if not is_replaced and key not in self._replaced_by_name:
            parts += (
                [] if self._capture.reader.is_empty(key) else committed_parts(self._capture, key)
            )
        return tuple(parts)

    def _refused_ids(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, list[str]] = {}
        for part in (*self._of_tasks, *self._of_frames):
            for key, ids in part.refused.items():
                found.setdefault(key, []).extend(ids)
        return {key: tuple(ids) for key, ids in found.items()}

    def _sought_parts(self, capture: Capture) -> Iterator[CommittedPart]:
        """The committed rows of keyed node types: their records always have ids to match."""
        for key in sorted(self._named_types):
            type = type_of(key, self.catalog)
            if isinstance(type, NodeType) and type.key and not capture.reader.is_empty(key):
                yield from committed_parts(capture, key)

    def _read(self) -> None:
        self._buffered = BufferedRows()
        job = self._stage_job(self._plan.tasks)
        self._of_tasks = self._joined(self._read_files(job), job)
        self._of_frames = self._read_frames()

    def _type_keys(self) -> list[str]:
        """The types that records may be of."""
        if any(found.table_key is None for found in self._plan.files):
            return [type.table_key for type in self.catalog.types]
        return sorted(self._named_types)

    @property
    def _named_types(self) -> set[str]:
        """The types for which files or frames were given."""
        keys = {found.table_key for found in self._plan.files if found.table_key is not None}
        keys |= {frame.table_key for frame in self._plan.frames} | self._frame_types
        return {type_of(key, self.catalog).table_key for key in keys}

    @property
    def _replaced_by_name(self) -> set[str]:
        """The types that an overwrite replaces even if the input has no rows of them."""
        named = self._named_types if self.request.mode == "overwrite" else set()
        return {*self.request.replace_types, *named}

    def _final_place(self, capture: Capture, key: str) -> TablePlace:
        """The place for rows to commit; in a dry run, a scratch place."""
        if self.request.dry_run:
            return self._scratch_place("written", capture, key)
        entry = capture.snapshot.table(key)
        ref = capture.branch.where.ref
        address = DatasetRef(self.kernel.table_uri(entry.location), ref).address
        replaces = self.request.mode == "overwrite"
        return TablePlace.of(capture.reader.handle(key), address, replaces=replaces)

    def _scratch_place(self, folder: str, capture: Capture, key: str) -> TablePlace:
        name = capture.snapshot.table(key).location.replace("/", "-")
        return TablePlace(self.kernel.root.join(self._scratch, folder, name))

    @property
    def _scratch(self) -> str:
        return load_scratch_name(self._attempt)

    @property
    def _uses_scratch(self) -> bool:
        """Whether tasks write to scratch places, as in dry runs and upserts."""
        return self.request.dry_run or self.request.mode == "merge"

    def _stage_job(self, tasks: tuple[Task, ...]) -> StageJob:
        return StageJob(
            self._reading,
            self._places,
            tasks,
            self.request.max_errors,
            self._storage_options,
            with_places=self._uses_scratch,
            buffer=self._buffered if self._runner.uses_threads and self._uses_scratch else None,
            tally=self._runner.tally if self._runner.uses_threads else None,
            stopped=self._runner.stopped if self._runner.uses_threads else None,
        )

    @property
    def _storage_options(self) -> dict[str, str]:
        return self.kernel.root.storage_options()

    def _read_files(self, job: StageJob) -> list[Staged]:
        label = f"{len(self._plan.files)} files"
        return self._runner.map_tasks("read", label, len(job.tasks), stage_files(job))

    def _joined(self, results: Sequence[Staged], job: StageJob) -> list[Staged]:
        """The results; files without one record per line are read again as a whole."""
        not_on_lines = {each.not_on_lines for each in results}
        kept: list[Task] = []
        whole: dict[str, Task] = {}
        joined: list[Staged] = []
        for task, result in zip(job.tasks, results, strict=True):
            piece = task[0]
            if any(each.file.path in not_on_lines for each in task):
                uncut = replace(piece, start=0, end=None, first=0)
                whole.setdefault(piece.file.path, (uncut,))
            else:
                kept.append(task)
                joined.append(result)
        if whole:
            second = tuple(whole.values())
            joined += self._read_files(self._stage_job(second))
            self._plan = replace(self._plan, tasks=(*kept, *second))
        return joined

    def _read_frames(self) -> list[Staged]:
        first = self._plan.first_frame
        job = self._stage_job(())
        results: list[Staged] = []
        for source in self._plan.frames:
            function = stage_frame(job, source.found, first)
            collect = mapped(source.rows, function, RESULTS).collect
            results += unpickled(self._runner.run("read", source.name, collect))
            first += source.rows.rdd.getNumPartitions()
        return results

    @property
    def rows(self) -> int:
        """The number of rows that tasks wrote."""
        staged = self._staged
        return 0 if staged is None else sum(map(staged.rows, staged.fragments))

    # --- check ---

    def _check(self, job: CheckJob | None, staged: Staged) -> None:
        """Raise `InputError` if records have problems, alone or together with the graph."""
        started = perf_counter()
        broken = 0 if job is None else count_broken(self._runner, job)
        self.note("check", perf_counter() - started)
        staged.problems += self._ambiguous
        staged.counts.update(problem.kind for _, problem in self._ambiguous)
        if not broken and not staged.counts and not self._missing:
            return
        report = self._report()
        report.add_records(staged)
        report.add_missing(self._missing)
        if broken and job is not None:
            report.add_violations(job)
        self._discard(staged)
        report.findings.raise_if_any()

    def _discard(self, staged: Staged) -> None:
        """Delete rows that will not be committed; no transaction refers to them."""
        if self._upsert is not None:
            self._upsert.forget_all()
        if not self._uses_scratch:
            for key, fragments in staged.fragments.items():
                self._delete(self._places[key], fragments)

    def _delete(self, place: TablePlace, fragments: Sequence[str]) -> None:
        root = f"{self.kernel.root.uri}/"
        for file in data_files(place, fragments):
            name = file.removeprefix(root)
            self.kernel.store.delete(name)
            # Large blobs are stored in a directory with the name of the data file.
            self.kernel.store.delete_prefix(name.removesuffix(".lance"))

    def _check_job(self, capture: Capture, staged: Staged) -> CheckJob | None:
        mode = self.request.mode
        written = {*staged.fragments, *(() if self.request.skips else staged.refused)}
        replaced = written | self._replaced_by_name if mode == "overwrite" else set()
        is_empty = capture.reader.is_empty
        plan = ChecksPlanner(self.catalog, mode, written, replaced, is_empty, staged.named).plan()
        if not plan.rules:
            return None
        parts: list[Part] = [
            WrittenPart(key, self._places[key], each, buffered=self._buffered.get(each))
            for key, fragments in sorted(staged.fragments.items())
            if plan.written.get(key)
            for each in fragments
        ]
        for key in sorted(plan.committed):
            parts.extend(committed_parts(capture, key))
        refused = {key: tuple(ids) for key, ids in staged.refused.items() if not self.request.skips}
        return CheckJob(
            plan, tuple(parts), self._reading.minting.prefix, self._storage_options, refused
        )


def _files_of(sources: Sequence[Source]) -> Files:
    """Access to the files of sources."""
    return Files.of_environment([each.path for each in sources if isinstance(each, FileSource)])
