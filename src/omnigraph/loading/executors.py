"""Running the tasks of a bulk load on Spark or on threads, with progress and Ctrl-C."""

from __future__ import annotations

import os
import pickle
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from omnigraph.errors import OmnigraphError, StorageError
from omnigraph.model.records import dataclass
from omnigraph.pipeline.spark.gateway import (
    interrupts_first,
    is_loss,
    loss_named,
    lost_checkpoint,
    run_group,
    spark_stopped,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from omnigraph.pipeline.spark.session import SparkWhenNeeded

RESULTS = pa.schema({"result": pa.binary()})
"""The schema of `pickled` results."""

ArrowFunction = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""A function for `mapInArrow`: task numbers in, rows out."""


def task_numbers(batches: Iterable[pa.RecordBatch]) -> Iterator[int]:
    """The task numbers in batches from Spark."""
    for batch in batches:
        yield from batch.column(0).to_pylist()


def task_batch(number: int) -> Iterator[pa.RecordBatch]:
    """A task number as a batch, for calling an `ArrowFunction` without Spark."""
    return iter([pa.record_batch([pa.array([number], pa.int64())], names=["id"])])


def mapped(frame: DataFrame, function: ArrowFunction, schema: pa.Schema) -> DataFrame:
    """The rows of a function over those of a frame; Spark evaluates it lazily."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return frame.mapInArrow(function, from_arrow_schema(schema))


def mapped_tasks(
    spark: SparkSession, count: int, function: ArrowFunction, schema: pa.Schema
) -> DataFrame:
    """The same over the numbers below ``count``, each in a task of its own."""
    return mapped(spark.range(0, count, 1, count), function, schema)


def pickled(result: object) -> pa.RecordBatch:
    """The result of a task as a row of `RESULTS`, for functions over frames."""
    return pa.RecordBatch.from_pylist([{"result": pickle.dumps(result)}])


def unpickled(rows: Iterable[Any]) -> Iterator[Any]:
    """The results in rows from Spark."""
    for row in rows:
        yield pickle.loads(row["result"])  # noqa: S301 - from workers of this operation


S = TypeVar("S")
T = TypeVar("T")

POLL_SECONDS = 0.1

SESSION = "session"
"""The stage in which Spark is started."""


@dataclass(frozen=True, slots=True)
class StageProgress:
    """Progress of one stage of a load."""

    stage: str
    tasks_done: int
    tasks: int
    seconds: float
    rows: int | None = None
    """Known at the end of the stage; while threads read, also during it."""
    finished: bool = False
    files: int | None = None
    """The number of files found, for the plan stage only."""
    ui: str | None = None
    """The URL of the Spark UI; sent once, before the first job, if the UI is enabled."""

    @property
    def is_session(self) -> bool:
        """Whether this is the start of Spark, which has no rows and tasks."""
        return self.stage == SESSION

    @property
    def starts_spark(self) -> bool:
        """Whether Spark is being started, which takes seconds."""
        return self.is_session and not self.finished and self.ui is None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: one event."""
        if self.ui is not None:
            return {"event": "session", "ui": self.ui}
        if self.starts_spark:
            return {"event": "session", "state": "starting"}
        rate = None if self.rows is None or not self.seconds else round(self.rows / self.seconds)
        files = {} if self.files is None else {"files": self.files}
        return {
            "event": "finished" if self.finished else "progress",
            "stage": self.stage,
            "tasks_done": self.tasks_done,
            "tasks": self.tasks,
            **files,
            "rows": self.rows,
            "rows_per_second": rate,
            "seconds": round(self.seconds, 3),
        }


class Watch(Protocol):
    """A callback for the progress of a load."""

    def __call__(self, progress: StageProgress, /) -> None:
        """Called at intervals, and at the end of each stage."""


class TaskRunner:
    """The jobs of one operation: on Spark, or without a session by threads of this process."""

    def __init__(
        self,
        session: SparkWhenNeeded | None,
        operation_id: str,
        watch: Watch | None = None,
        *,
        work: str = "load",
    ) -> None:
        self._session = session
        self._work = work
        """The name of the operation in errors."""
        self._operation_id = operation_id
        self._watch = watch
        self._tasks: dict[str, int] = {}
        """Number of tasks by stage."""
        self.tally: list[int] = []
        """Rows processed by threads in the current stage: appending is atomic, unlike `+=`."""
        self.stopped = threading.Event()
        """Set after a failure in a thread or Ctrl-C."""

    @property
    def uses_threads(self) -> bool:
        """Whether tasks run on threads of this process."""
        return self._session is None

    @property
    def spark(self) -> SparkSession:
        """The session; started now if there is none."""
        assert self._session is not None, "this operation runs without Spark"
        return self._session.get()

    @property
    def slots(self) -> int:
        """How many tasks run at a time."""
        return (os.cpu_count() or 1) if self._session is None else self._session.slots

    def run(self, stage: str, label: str, action: Callable[[], T]) -> T:
        """The result of ``action``, which may start any number of Spark jobs.

        A failure of Spark is raised as `StorageError` with its cause; Ctrl-C cancels running jobs.
        """
        group, started = self._group(stage), perf_counter()
        seen: dict[int, tuple[int, int]] = {}

        def look() -> None:
            if self._watch is not None:
                self._look(group, stage, started, seen)

        return run_group(
            self.spark,
            action,
            group=(group, _description(stage, label)),
            work=self._work,
            check=look,
            translated=lambda error: _translated(error, self._work, stage),
        )

    @contextmanager
    def named(self, stage: str, label: str) -> Iterator[None]:
        """Name the jobs that are started within a block, and cancel them if it fails."""
        context = self.spark.sparkContext
        context.setJobGroup(self._group(stage), _description(stage, label), interruptOnCancel=True)
        try:
            with interrupts_first(), loss_named(self._work):
                yield
        except BaseException:
            with suppress(Exception):
                context.cancelJobGroup(self._group(stage))
            raise
        finally:
            for name in ("spark.jobGroup.id", "spark.job.description"):
                context.setLocalProperty(name, None)  # type: ignore[arg-type]

    def begin(self) -> bool:
        """Start Spark if it runs the tasks and is not running yet; True if this call started it.

        Reports the start, and the URL of its UI if that is enabled.
        """
        if self._session is None:
            return False
        starts = not self._session.is_running
        if starts and self._watch is not None:
            self._watch(StageProgress(SESSION, 0, 0, 0.0))
        ui = self.spark.sparkContext.uiWebUrl
        if self._watch is not None and ui is not None:
            self._watch(StageProgress(SESSION, 0, 0, 0.0, ui=ui))
        return starts

    def _group(self, stage: str) -> str:
        return f"omnigraph-{self._operation_id}-{stage}"

    def map_tasks(
        self, stage: str, label: str, count: int, function: Callable[[int], T]
    ) -> list[T]:
        """The results of a function for the numbers below ``count``, by workers or threads."""
        if self.uses_threads:
            return self.map_threads(stage, range(count), function)
        return self.map_workers(stage, label, count, function)

    def map_workers(
        self, stage: str, label: str, count: int, function: Callable[[int], T]
    ) -> list[T]:
        """The results of a function for the numbers below ``count``, by Spark workers, in order.

        For small arguments and results: an RDD job, without the planning of Spark SQL. Spark keeps
        the result of one successful attempt per number.
        """

        def collect() -> list[T]:
            context = self.spark.sparkContext
            return context.parallelize(range(count), count).map(function).collect()

        return self.run(stage, label, collect) if count else []

    def thread_batches(self, stage: str, count: int, work: ArrowFunction) -> list[pa.RecordBatch]:
        """The batches of ``work`` for the numbers below ``count``, by threads of this process."""
        given = self.map_threads(stage, range(count), lambda number: [*work(task_batch(number))])
        return [batch for batches in given for batch in batches]

    def map_threads(self, stage: str, items: Iterable[S], function: Callable[[S], T]) -> list[T]:
        """The results of a function for some items, by threads of this process, in order."""
        self.stopped.clear()
        self.tally.clear()
        with ThreadPoolExecutor(os.cpu_count()) as threads:
            try:
                futures = [threads.submit(function, item) for item in items]
                self._follow(stage, futures)
                return [future.result() for future in futures]
            except BaseException as error:
                self.stopped.set()
                threads.shutdown(wait=False, cancel_futures=True)
                if isinstance(error, OmnigraphError) or not isinstance(error, Exception):
                    raise
                raise _translated(error, self._work, stage) from error

    def _follow(self, stage: str, futures: list[Future[T]]) -> None:
        """Report progress until all threads are done or one has failed."""
        if self._watch is None:
            return
        started = perf_counter()
        before, waiting = self._tasks.get(stage, 0), set(futures)
        self._tasks[stage] = tasks = before + len(futures)
        while waiting:
            done, waiting = wait(waiting, POLL_SECONDS, FIRST_EXCEPTION)
            rows = sum(self.tally) if stage == "read" else None
            seconds = perf_counter() - started
            self._watch(StageProgress(stage, tasks - len(waiting), tasks, seconds, rows))
            for future in done:
                future.result()

    def finished(self, stage: str, rows: int, seconds: float, files: int | None = None) -> None:
        """Report the end of a stage; ``files`` is set by the planning stage only."""
        if self._watch is not None:
            tasks = self._tasks.get(stage, 0)
            shown = rows if files is None else None
            self._watch(StageProgress(stage, tasks, tasks, seconds, shown, True, files))

    def _look(
        self, group: str, stage: str, started: float, seen: dict[int, tuple[int, int]]
    ) -> None:
        tracker = self.spark.sparkContext.statusTracker()
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for number in info.stageIds if info is not None else ():
                known = tracker.getStageInfo(number)
                # Spark also lists stages that it will skip; count only those that ran.
                if known is not None and (
                    number in seen or known.numActiveTasks or known.numCompletedTasks
                ):
                    seen[number] = (known.numCompletedTasks, known.numTasks)
        assert self._watch is not None
        tasks_done = sum(finished for finished, _ in seen.values())
        self._tasks[stage] = tasks = sum(total for _, total in seen.values())
        self._watch(StageProgress(stage, tasks_done, tasks, perf_counter() - started))


def _description(stage: str, label: str) -> str:
    """The name of a job in the Spark UI."""
    return f"omnigraph {stage}: {label}"


def _translated(error: BaseException, work: str, stage: str) -> BaseException:
    """A failure of Spark as `StorageError`, with the line that gives the reason."""
    if isinstance(error, OmnigraphError):
        return error
    if is_loss(error):
        return spark_stopped(work)
    lost = lost_checkpoint(str(error), work)
    if lost is not None:
        lost.__cause__ = error
        return lost
    reason = _reason(str(error)) or type(error).__name__
    failure = StorageError(
        f"the {work} failed in stage {stage}: {reason[:500]}",
        hint=f"nothing was written; see the cause, and repeat the {work}",
    )
    failure.__cause__ = error
    return failure


_WORKER_RAISED = "An exception was thrown from the Python worker:"
_TRACEBACK = "Traceback (most recent call last):"
_WORKER_DIED = "Python worker exited unexpectedly"
_NAMED_ERROR = re.compile(r"\[[A-Z][A-Z_.]+\] ")


def _reason(text: str) -> str:
    """The line of a Spark error that gives the reason."""
    if _WORKER_DIED in text:
        return "a Python worker died each time it was started, maybe for want of memory"
    _, found, trace = text.rpartition(_TRACEBACK if _TRACEBACK in text else _WORKER_RAISED)
    if found:
        # The lines of a traceback are indented; the error follows them.
        own = [line for line in trace.splitlines() if line.strip() and not line.startswith(" ")]
        return own[0].strip() if own else ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in lines:
        # Spark's own errors have a code such as [CAST_INVALID_INPUT]; a query plan follows it.
        if named := _NAMED_ERROR.search(line):
            return line[named.start() :]
    reasons = [line for line in lines if "Error" in line or "Exception" in line] or lines
    return reasons[-1] if reasons else ""
