"""Running Spark jobs: named for the Spark UI, watched while they run, cancelled with Ctrl-C."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import pyarrow as pa

from omnigraph.errors import OmnigraphError, StorageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")

Work = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]
"""What a worker does: numbers of tasks in, rows out."""

POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class StageProgress:
    """How far one stage of a load has come."""

    stage: str
    tasks_done: int
    tasks: int
    seconds: float
    rows: int | None = None
    """Known when the stage is over."""
    finished: bool = False
    ui: str | None = None
    """Where Spark shows what it does; told once, before the first stage, if it does."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: one event."""
        if self.ui is not None:
            return {"event": "session", "ui": self.ui}
        rate = None if self.rows is None or not self.seconds else round(self.rows / self.seconds)
        return {
            "event": "finished" if self.finished else "progress",
            "stage": self.stage,
            "tasks_done": self.tasks_done,
            "tasks": self.tasks,
            "rows": self.rows,
            "rows_per_second": rate,
            "seconds": round(self.seconds, 3),
        }


class Watch(Protocol):
    """Whoever wants to know how a load is doing."""

    def __call__(self, progress: StageProgress, /) -> None:
        """Take note."""
        ...


class Jobs:
    """The Spark jobs of one operation."""

    def __init__(self, spark: SparkSession, operation_id: str, watch: Watch | None = None) -> None:
        self.spark = spark
        self._operation_id = operation_id
        self._watch = watch
        self.here = False
        """Whether a job is so small that starting workers would take longer than doing it."""

    def run(self, stage: str, label: str, action: Callable[[], T]) -> T:
        """The result of ``action``, which may start any number of Spark jobs.

        A failure of Spark is raised as `StorageError` with its cause; Ctrl-C cancels what runs.
        """
        from pyspark import inheritable_thread_target

        context = self.spark.sparkContext
        group = self._group(stage)
        done: list[T] = []
        failed: list[BaseException] = []

        def work() -> None:
            context.setJobGroup(group, _description(stage, label), interruptOnCancel=True)
            try:
                done.append(action())
            except BaseException as error:
                failed.append(error)

        started = perf_counter()
        target = inheritable_thread_target(self.spark)(work)
        thread = threading.Thread(target=target, daemon=True)
        thread.start()
        seen: dict[int, tuple[int, int]] = {}
        try:
            while thread.is_alive():
                thread.join(POLL_SECONDS)
                if self._watch is not None:
                    self._look(group, stage, started, seen)
        except BaseException:
            # The session stays usable; what workers wrote so far stays invisible.
            with suppress(Exception):
                context.cancelJobGroup(group)
            thread.join(10)
            raise
        if failed:
            raise _translated(failed[0], stage)
        return done[0]

    @contextmanager
    def named(self, stage: str, label: str) -> Iterator[None]:
        """Name the jobs that are started within a block, and cancel them with it."""
        context = self.spark.sparkContext
        context.setJobGroup(self._group(stage), _description(stage, label), interruptOnCancel=True)
        try:
            yield
        except BaseException:
            with suppress(Exception):
                context.cancelJobGroup(self._group(stage))
            raise
        finally:
            for name in ("spark.jobGroup.id", "spark.job.description"):
                context.setLocalProperty(name, None)  # type: ignore[arg-type]

    def began(self) -> None:
        """Tell where Spark shows what it does, if it does."""
        ui = self.spark.sparkContext.uiWebUrl
        if self._watch is not None and ui is not None:
            self._watch(StageProgress("session", 0, 0, 0.0, ui=ui))

    def _group(self, stage: str) -> str:
        return f"omnigraph-{self._operation_id}-{stage}"

    def answers(self, stage: str, label: str, count: int, work: Work) -> list[Any]:
        """What ``work`` answers to the numbers below ``count``, as rows of a kind and a text.

        Spark gives each number to a worker, unless all of it is done `here`.
        """
        from omnigraph.pipeline.staging import ANSWERS

        if self.here:
            try:
                done = self.done_here(count, work)
            except OmnigraphError:
                raise
            except Exception as error:
                raise _translated(error, stage) from error
            return [row for batch in done for row in batch.to_pylist()]

        def collect() -> list[Any]:
            numbers = self.spark.range(0, count, 1, count)
            rows: list[Any] = numbers.mapInArrow(work, ANSWERS).collect()
            return rows

        return self.run(stage, label, collect) if count else []

    def done_here(self, count: int, work: Work) -> list[pa.RecordBatch]:
        """The same work by threads of this process, in the order of the numbers."""

        def one(number: int) -> list[pa.RecordBatch]:
            numbers = pa.record_batch([pa.array([number], pa.int64())], names=["id"])
            return list(work(iter([numbers])))

        with ThreadPoolExecutor(os.cpu_count()) as threads:
            try:
                return [batch for batches in threads.map(one, range(count)) for batch in batches]
            except BaseException:
                threads.shutdown(cancel_futures=True)
                raise

    def finished(self, stage: str, rows: int, seconds: float) -> None:
        """Tell that a stage is over."""
        if self._watch is not None:
            self._watch(StageProgress(stage, 0, 0, seconds, rows, finished=True))

    def _look(
        self, group: str, stage: str, started: float, seen: dict[int, tuple[int, int]]
    ) -> None:
        tracker = self.spark.sparkContext.statusTracker()
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for number in info.stageIds if info is not None else ():
                known = tracker.getStageInfo(number)
                # Spark lists stages it will skip as well; only those that ran count.
                if known is not None and (
                    number in seen or known.numActiveTasks or known.numCompletedTasks
                ):
                    seen[number] = (known.numCompletedTasks, known.numTasks)
        assert self._watch is not None
        tasks_done = sum(finished for finished, _ in seen.values())
        tasks = sum(total for _, total in seen.values())
        self._watch(StageProgress(stage, tasks_done, tasks, perf_counter() - started))


def _description(stage: str, label: str) -> str:
    """What the Spark UI calls a job."""
    return f"omnigraph {stage}: {label}"


def _translated(error: BaseException, stage: str) -> BaseException:
    """A failure of Spark as one of ours, with the line that says why."""
    if isinstance(error, OmnigraphError):
        return error
    if isinstance(error, ConnectionError):
        return StorageError("Spark stopped while the load was running", hint="repeat the load")
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if "Error" in line or "Exception" in line] or lines
    reason = (reasons or [type(error).__name__])[-1]
    failure = StorageError(
        f"the load failed in stage {stage}: {reason[:500]}",
        hint="nothing was written; see the cause, and repeat the load",
    )
    failure.__cause__ = error
    return failure
