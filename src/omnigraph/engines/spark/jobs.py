"""Runs Spark jobs for a query, with cancellation, deadlines and typed errors."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeVar

from pyspark.sql import DataFrame, SparkSession

from omnigraph.engines.spark.workers import worker_error
from omnigraph.errors import OmnigraphError, StorageError
from omnigraph.model.governor import Governor
from omnigraph.pipeline.spark.gateway import (
    checkpoint_copies,
    is_loss,
    lost_checkpoint,
    run_group,
    spark_stopped,
)
from omnigraph.pipeline.spark.java import reason_of

T = TypeVar("T")


class Jobs:
    """The jobs of one query, as one job group in the Spark UI."""

    def __init__(self, spark: SparkSession, label: str, governor: Governor) -> None:
        self.spark = spark
        self._governor = governor
        self._label = f"omnigraph query: {label}"
        self._group = f"omnigraph-query-{uuid.uuid4().hex}"
        self.kept: list[DataFrame] = []
        """Frames that are persisted for this query."""

    def run(self, action: Callable[[], T]) -> T:
        """The result of ``action``, which may start jobs.

        Raises an error of this package that a worker raised, `StorageError` for other failures of
        Spark, and `QueryTimeout` or `QueryCancelled` as soon as the governor does.
        """
        self._governor.check()
        return run_group(
            self.spark,
            action,
            group=(self._group, self._label),
            work="query",
            check=self._governor.check,
            translated=_translated,
        )

    def kept_frame(self, frame: DataFrame) -> DataFrame:
        """The same rows, computed once and persisted."""
        kept = frame.persist()
        self.kept.append(kept)
        return kept

    def checkpointed(self, frame: DataFrame) -> DataFrame:
        """The same rows, computed now and stored without their lineage.

        They are written to the checkpoint directory of the Spark context if there is one, which
        survives the loss of all executors, and otherwise stored on two executors.
        """
        context = self.spark.sparkContext
        if context.getCheckpointDir() is not None:
            return self.run(frame.checkpoint)
        level = checkpoint_copies(context)
        return self.run(lambda: frame.localCheckpoint(storageLevel=level))

    def release(self) -> None:
        """Unpersist all frames of this query."""
        for frame in self.kept:
            with suppress(Exception):
                frame.unpersist()
        self.kept.clear()


def _translated(error: BaseException) -> BaseException:
    """A failure of Spark as an error of this package."""
    if isinstance(error, OmnigraphError):
        return error
    if is_loss(error):
        return spark_stopped("query")
    text = _text(error)
    known = worker_error(text) or lost_checkpoint(text, "query")
    if known is not None:
        return known
    failure = StorageError(
        f"the query failed on Spark: {reason_of(text)[:500] or type(error).__name__}",
        hint="see the cause, and the log of Spark",
    )
    failure.__cause__ = error
    return failure


def _text(error: BaseException) -> str:
    """The message of an error and of its Java causes."""
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    parts = [str(error)]
    for _ in range(8):
        if java is None:
            break
        with suppress(Exception):
            parts.append(str(java.toString()))
            java = java.getCause()
            continue
        break
    return "\n".join(parts)
