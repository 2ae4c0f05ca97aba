"""The Spark engine: runs a plan as jobs of a Spark session, with the same rows as the local engine.

A plan becomes one lazy DataFrame. Its scans are tasks that read Lance fragments in Python workers,
where conditions and scores are computed by the kernels of the local engine; hops are joins by id;
groups, order and limits are Spark's own, with keys that sort as the language does. `tail.REFUSED`
lists what Spark cannot do with the same meaning.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from omnigraph.engines.base import Execution, StepReport
from omnigraph.engines.local.prepare import prepare
from omnigraph.engines.local.prepared import PreparedRead
from omnigraph.engines.spark.jobs import Jobs
from omnigraph.engines.spark.match import PatternMatcher
from omnigraph.engines.spark.tables import Tables
from omnigraph.engines.spark.tail import AnswerFrame, answer
from omnigraph.engines.spark.types import from_carried
from omnigraph.model.arrow import arrow_type
from omnigraph.model.governor import current
from omnigraph.model.records import dataclass
from omnigraph.model.result_json import ResultColumns
from omnigraph.model.types import Scalar, ValueType
from omnigraph.pipeline.spark.gateway import loss_named
from omnigraph.query import expressions as ex


class SparkEngine:
    """Runs plans on a Spark session, which is found or started when the first plan runs."""

    name = "spark"

    def __init__(
        self, session: Callable[[], SparkSession], storage_options: Mapping[str, str]
    ) -> None:
        self._session = session
        self._storage_options = storage_options

    def execute(self, run: Execution) -> SparkRows:
        """The rows of a plan over its snapshot; Spark computes them when they are read.

        Arguments are checked immediately. A search of many levels, and word statistics, run jobs
        immediately.
        """
        run = run.bounded()
        prepared = prepare(run.plan)
        with loss_named("query"):
            return self._planned(run, prepared)

    def _planned(self, run: Execution, prepared: PreparedRead) -> SparkRows:
        jobs = Jobs(self._session(), run.plan.name, current())
        began = time.perf_counter()
        found = SparkRows(self._answer(run, prepared, jobs), jobs)
        if run.trace is not None:
            rows = found.collect()
            seconds = time.perf_counter() - began
            run.trace.steps.append(
                StepReport("ResultColumns", "one Spark job", rows.row_count, seconds)
            )
        return found

    def _answer(
        self, run: Execution, prepared: PreparedRead, jobs: Jobs, *, is_stage: bool = False
    ) -> AnswerFrame:
        """The rows of a plan, or of a stage that hands them to the next one."""
        tables = Tables(run, prepared, jobs, self._storage_options)
        tables.arguments.check(prepared.searches)
        if prepared.stage is not None:
            step, before = prepared.stage
            run_of_stage = replace(run, plan=step.read)
            tables.staged = self._answer(run_of_stage, before, jobs, is_stage=True).frame
        bindings = PatternMatcher(tables, jobs).solutions()
        return answer(tables, jobs, bindings, is_stage=is_stage)


@dataclass(slots=True)
class SparkRows:
    """The rows of a query as a DataFrame, and in this process once they are collected."""

    answer: AnswerFrame
    jobs: Jobs
    _collected: ResultColumns | None = None

    @property
    def names(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self.answer.columns]

    def collect(self) -> ResultColumns:
        """The rows in this process; computed once."""
        if self._collected is None:
            table = self.jobs.run(self.answer.frame.toArrow)
            arrays = [
                _decoded(column.combine_chunks(), wanted.expression)
                for column, wanted in zip(table.columns, self.answer.columns, strict=True)
            ]
            self._collected = ResultColumns(self.names, arrays, table.num_rows)
            self.jobs.release()
        return self._collected

    def frame(self) -> DataFrame:
        """The rows as a DataFrame with the query's column names; a DateTime becomes a timestamp."""
        frame = self.answer.frame
        shown = [
            _shown(f"r{at}", column.expression) for at, column in enumerate(self.answer.columns)
        ]
        return frame.select(*shown).toDF(*self.names)


def _decoded(column: pa.Array | pa.ChunkedArray, expression: ex.OutputExpression) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):  # happens without chunks
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)
    if isinstance(expression, ex.RecordList):
        return _records(column, expression)
    if not isinstance(expression, ex.EntityObject):
        return from_carried(column, arrow_type(expression.type))
    fields = [pa.field(name, arrow_type(type)) for name, type in expression.columns]
    children = [from_carried(column.field(at), field.type) for at, field in enumerate(fields)]
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(children, fields=fields, mask=mask)


def _records(column: pa.Array, records: ex.RecordList) -> pa.Array:
    fields = [pa.field(name, arrow_type(type)) for name, type in records.columns]
    inner = column.flatten()
    children = [from_carried(inner.field(at), field.type) for at, field in enumerate(fields)]
    offsets = pa.array(column.offsets.to_numpy() - column.offsets[0].as_py(), pa.int32())
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(children, fields=fields))


def _shown(name: str, expression: ex.OutputExpression) -> Column:
    if isinstance(expression, ex.RecordList):
        return F.transform(
            F.col(name),
            lambda record: F.struct(
                *(
                    _timestamp(record.getField(f"i{at}"), type).alias(shown)
                    for at, (shown, type) in enumerate(expression.columns)
                )
            ),
        )
    if not isinstance(expression, ex.EntityObject):
        return _timestamp(F.col(name), expression.type)
    fields = [
        _timestamp(F.col(name).getField(field), type).alias(field)
        for field, type in expression.columns
    ]
    return F.when(F.col(name).isNotNull(), F.struct(*fields))


def _timestamp(column: Column, type: ValueType) -> Column:
    if type.scalar != Scalar.DATETIME:
        return column
    return F.transform(column, F.timestamp_millis) if type.is_list else F.timestamp_millis(column)
