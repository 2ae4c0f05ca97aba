"""The stages of every load; each engine has an executor.

=======  ==========================================================================================
stage    what happens
=======  ==========================================================================================
plan     files are found; a bulk load cuts them into tasks and checks headers and footers
session  Spark is started, if it runs the tasks and does not run yet
read     records are read and converted to typed rows, and single values are checked
match    bulk upserts only: tasks find the rows to replace, and write those that differ
check    constraints on several rows are checked (`commit.validation.constraints`)
commit   the write path of every write: lease, sidecar, one transaction per table, one publish
=======  ==========================================================================================

`in_process` holds the records of a small input in memory and looks up committed rows by key. In
`task_load`, threads of this process or Spark workers write uncommitted rows, and compare their keys
with all committed ones. Nothing is visible before the last stage. If the branch moves meanwhile,
the rows are checked again on its new head; the input is not read again.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from time import perf_counter
from typing import TYPE_CHECKING, Any

from omnigraph.commit.kernel import Capture, Kernel
from omnigraph.commit.mutate import everything, has_open_ends
from omnigraph.commit.plan import ChangeSet, WriteLimits
from omnigraph.commit.recovery import Recoverer
from omnigraph.commit.write_path import AlreadyWritten, Prepared, WriteOutcome, WritePath
from omnigraph.errors import ReadSetChanged
from omnigraph.loading.request import LoadBranch, LoadSpec
from omnigraph.model.ids import EntityKind, TableKey
from omnigraph.model.load_options import SparkOptions
from omnigraph.model.receipts import LoadedType, LoadReceipt, LoadStage
from omnigraph.model.records import dataclass
from omnigraph.schema.catalog import Catalog

if TYPE_CHECKING:
    from omnigraph.loading.executors import Watch
    from omnigraph.loading.inputs import Engine, EngineChoice
    from omnigraph.loading.sources import FileSource, Frame
    from omnigraph.pipeline.spark.session import SparkWhenNeeded


@dataclass(frozen=True, slots=True)
class LoadChanges:
    """The change set of a load, and the counts for its receipt."""

    changes: ChangeSet
    counts: Mapping[str, LoadedType]
    """By type key."""
    skipped: int = 0
    """How many records were skipped, those of no known type included."""
    problems: Sequence[Mapping[str, Any]] = ()
    """The first problems of skipped records."""

    @property
    def nodes(self) -> tuple[LoadedType, ...]:
        """The counts of node types, by name."""
        return self._counts_of("node")

    @property
    def edges(self) -> tuple[LoadedType, ...]:
        """The counts of edge types, by name."""
        return self._counts_of("edge")

    def _counts_of(self, kind: EntityKind) -> tuple[LoadedType, ...]:
        keys = sorted(key for key in self.counts if TableKey(key).kind == kind)
        return tuple(self.counts[key] for key in keys)


class LoadExecutor(ABC):
    """Reads, checks and stages the records of one load."""

    engine: Engine

    def __init__(self, kernel: Kernel, request: LoadSpec) -> None:
        self.kernel = kernel
        self.request = request
        self.accepted = kernel.accepted_on(request.seen_branch)
        self.stages: dict[str, LoadStage] = {}

    @property
    def catalog(self) -> Catalog:
        """The schema that records are read by."""
        return self.accepted.catalog

    @property
    @abstractmethod
    def rows(self) -> int:
        """How many rows were read."""

    @abstractmethod
    def plan(self) -> None:
        """Find the input; computes its digest if the request has an idempotency key."""

    @abstractmethod
    def start(self) -> None:
        """Do the work that needs no target branch, so that its failures create none."""

    @abstractmethod
    def changes(self, capture: Capture) -> LoadChanges:
        """The changes to commit on a captured head; raises `InputError` with all problems."""

    @abstractmethod
    def close(self) -> None:
        """Delete scratch files."""

    def note(self, stage: str, seconds: float, *, files: int | None = None) -> None:
        """Add to the seconds of a stage; ``files`` is set by the planning stage only."""
        known = self.stages.get(stage)
        seconds += known.seconds if known is not None else 0.0
        rows = self.rows if files is None else 0
        self.stages[stage] = LoadStage(stage, rows, seconds)

    @property
    def seconds(self) -> float:
        """Total time of all stages so far."""
        return sum(stage.seconds for stage in self.stages.values())


def load(path: WritePath, branch: LoadBranch, executor: LoadExecutor) -> LoadReceipt:
    """Load an input as one commit; no commit if nothing changes.

    ``branch`` is created once the input has been found, and deleted if the load fails. An
    `InputError` carries the problems of the whole input.
    """
    try:
        executor.plan()
        request = executor.request
        request.refuse_repetition(executor.kernel)
        request.forget_problems()
        executor.start()
        if request.dry_run:
            return _receipt(executor, _tried(executor))
        with branch.made() as is_new:
            return _receipt(executor, _written(path, executor), branch_created=is_new)
    except AlreadyWritten as earlier:
        return executor.request.repeated(earlier)
    finally:
        executor.close()


def _tried(executor: LoadExecutor) -> WriteOutcome[LoadChanges]:
    """A dry run: everything up to the commit."""
    manifest = Recoverer(executor.kernel).barrier(executor.request.seen_branch)
    capture = executor.kernel.capture(manifest, executor.accepted.schema_hash)
    return WriteOutcome(executor.changes(capture), None)


def _written(path: WritePath, executor: LoadExecutor) -> WriteOutcome[LoadChanges]:
    request = executor.request
    started, before = perf_counter(), executor.seconds

    def prepare(capture: Capture, catalog: Catalog) -> Prepared[LoadChanges]:
        if catalog is not executor.catalog:
            # The records were converted by the previous schema and cannot be read again.
            known = executor.accepted.schema_hash
            raise ReadSetChanged("schema_hash", known, catalog.schema_hash)
        found = executor.changes(capture)
        intent = request.intent(found.nodes, found.edges, executor.engine, found.skipped)
        return Prepared(found.changes, found, intent, _is_additive(found, catalog))

    written = path.write(
        request.branch,
        prepare,
        kind="load",
        accepted=executor.accepted,
        may_prepare_again=request.mode != "overwrite",
        expected_head=request.expected_head,
        operation_id=request.operation_id,
        actor_id=request.actor_id,
    )
    # The stages that ran inside `prepare` have been noted already.
    executor.note("commit", perf_counter() - started - (executor.seconds - before))
    return written


def _is_additive(found: LoadChanges, catalog: Catalog) -> bool:
    """Whether the load only inserts, on any head that lacks its ids."""
    depends = (
        each.updated or each.unchanged or each.kept or each.skipped
        for each in found.counts.values()
    )
    is_whole = not (found.skipped or found.problems or any(depends))
    return is_whole and not has_open_ends(found.changes, catalog)


def _receipt(
    executor: LoadExecutor, written: WriteOutcome[LoadChanges], *, branch_created: bool = False
) -> LoadReceipt:
    return executor.request.receipt(
        written.result.nodes,
        written.result.edges,
        executor.engine,
        commit=written.commit,
        branch_created=branch_created,
        stages=tuple(executor.stages.values()),
        skipped=written.result.skipped,
        problems=written.result.problems,
    )


def load_with_engine(
    kernel: Kernel,
    path: WritePath,
    files: Sequence[FileSource],
    request: LoadSpec,
    branch: LoadBranch,
    *,
    choice: EngineChoice,
    limits: WriteLimits,
    data: bytes | str | Iterable[bytes] | None = None,
    frames: Sequence[Frame] = (),
    progress: Callable[[int], None] | None = None,
    spark: SparkOptions | None = None,
    watch: Watch | None = None,
) -> LoadReceipt:
    """Load files, records and frames with the executor of the chosen engine.

    A load with limited rights runs in this process, whichever engine was chosen, and takes no
    Spark frames.

    A Spark session is found or started on first use. ``limits`` and ``progress`` (bytes of each
    block read) apply to loads in process; ``watch`` receives the stages of a bulk load.
    """
    from omnigraph.loading.inputs import frame_sources
    from omnigraph.loading.sources import FileSource

    if not choice.is_bulk or request.rights is not everything:
        from omnigraph.loading.in_process import InProcessLoad

        with frame_sources(frames, None) as more:
            tables = [each for each in more if isinstance(each, FileSource)]
            local = InProcessLoad(
                kernel, request, [*files, *tables], data, limits=limits, progress=progress
            )
            return load(path, branch, local)
    from omnigraph.loading.task_load import TaskLoad
    from omnigraph.pipeline.spark.session import SessionSettings, SparkWhenNeeded

    with ExitStack() as used:
        session: SparkWhenNeeded | None = None
        if choice.engine == "spark":
            options = spark or SparkOptions()
            settings = SessionSettings.of(os.environ, master=options.master, conf=options.conf)
            session = used.enter_context(SparkWhenNeeded(options.session, settings))
        more = used.enter_context(frame_sources(frames, session))
        executor = TaskLoad(kernel, request, [*files, *more], session, watch)
        return load(path, branch, executor)
