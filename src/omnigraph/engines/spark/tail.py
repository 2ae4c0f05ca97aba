"""Turns solutions into the result: rank, group, `having`, `distinct`, order, limit, project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from omnigraph.engines.base import Execution
from omnigraph.engines.local.prepared import PreparedRead
from omnigraph.engines.spark.bindings import (
    NODES,
    Bindings,
    Leaf,
    Values,
    arrow_udf,
    match_values,
)
from omnigraph.engines.spark.jobs import Jobs
from omnigraph.engines.spark.tables import Tables, rank_calls
from omnigraph.engines.spark.types import FLOATS, one_zero, sort_keys
from omnigraph.engines.spark.workers import ListAggregate, fitting_sums
from omnigraph.errors import InputError, InternalError
from omnigraph.model.records import dataclass
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.evaluate import ColumnExpression, scalar_operand
from omnigraph.query.functions import require_fraction

ROWS_MAX = 2**31 - 1

REFUSED = {
    "rows_beyond_an_int": "Spark counts the rows of a limit and an offset in 32 bits",
}
"""Features that Spark has with another meaning, which are refused: name and reason."""


def refused(name: str) -> InputError:
    """The error for a query that uses a refused feature."""
    return InputError(
        f"the Spark engine refuses this query ({name}): {REFUSED[name]}",
        hint="run it without `engine`, or ask for fewer rows",
        details={"refused": name, "reason": REFUSED[name]},
    )


@dataclass(frozen=True, slots=True)
class AnswerFrame:
    """The rows of a query as a frame: a column per item, by position, in carrying types."""

    frame: DataFrame
    columns: tuple[plan.Column, ...]


def answer(
    tables: Tables, jobs: Jobs, bindings: Bindings, *, is_stage: bool = False
) -> AnswerFrame:
    """The rows that a query returns, or that a stage hands to the next one."""
    tail = _Tail(tables, jobs, tables.prepared, tables.run, is_stage)
    if tables.prepared.group_by is not None:
        return tail.grouped(bindings, tables.prepared.group_by)
    return tail.by_row(bindings)


@dataclass(frozen=True, slots=True)
class _Tail:
    tables: Tables
    jobs: Jobs
    prepared: PreparedRead
    run: Execution
    is_stage: bool
    """Whether the rows are handed to another match, which may compute them several times."""

    # --- rows -------------------------------------------------------------------------------------

    def by_row(self, bindings: Bindings) -> AnswerFrame:
        """The rows of a query that does not group."""
        compiled = self.prepared.compiled
        start, stop = self.run.row_range()
        order: list[Column] = []
        scores: dict[ex.Expression, Column] = {}
        if compiled.rank is not None:
            bindings, order, scores = self._ranked(bindings, compiled.rank)
        values = self._row_values(bindings, scores)
        frame = bindings.rows
        mask = values.all_hold(self.prepared.having)
        if mask is not None:
            frame = frame.where(mask)
            bindings = replace(bindings, frame=frame)
        if compiled.distinct:
            return self._distinct(bindings, values, order, start, stop)
        frame, keys = self._order_keys(frame, values)
        keys = [key.asc() for key in order] + keys
        if keys:
            keys += [
                key.asc_nulls_first()
                for entity in self.prepared.ties
                if entity.value_type is None
                for key in self._tie(entity, bindings)
            ]
            for value in self.prepared.ties:
                if value.value_type is not None:
                    keys += sort_keys(bindings.column(value.name), value.value_type)
        frame = self._limited(self._first_per(frame, values, keys), keys, start, stop)
        bindings = replace(bindings, frame=frame)
        return self._projected(
            frame, [self._output(bindings, values, column) for column in self.prepared.columns]
        )

    def _tie(self, entity: plan.BoundVariable, bindings: Bindings) -> list[Column]:
        if entity.kind == "path":
            # The same text as in the local engine.
            return [F.array_join(bindings.column(entity.name, NODES), "\0")]
        return self._identity(entity.name, bindings.column(entity.name))

    def _identity(self, variable: str, column: Column) -> list[Column]:
        """The sort keys of an entity: its id, and for an interface its type."""
        ids = self.tables.ids
        if ids.types.get(variable) not in ids.members:
            return [column]
        return [ids.id(variable, column), ids.type(variable, column)]

    def _row_values(self, bindings: Bindings, scores: Mapping[ex.Expression, Column]) -> Values:
        calls = self.prepared.calls
        match_leaf = match_values(bindings, self.tables.constants, calls, self.tables.ids).leaf
        named = {column.name: column.expression for column in self.prepared.columns}

        def leaf(node: ColumnExpression) -> Column:
            if isinstance(node, ex.OutputValue):
                expression = named.get(node.name)
                if isinstance(expression, ex.EntityObject):
                    column = bindings.column(expression.variable)
                    parts = self._identity(expression.variable, column)
                    # As one text, which sorts as its parts do.
                    return (
                        parts[0] if len(parts) == 1 else F.concat(parts[0], F.lit("\0"), parts[1])
                    )
                assert not isinstance(expression, ex.RecordList)
                if expression is not None and expression != node:
                    return values.column(expression)
                if calls[node.name] in scores:
                    return scores[calls[node.name]]
            return match_leaf(node)

        values = Values(self.tables.constants, leaf)
        return values

    def _output(self, bindings: Bindings, values: Values, column: plan.Column) -> Column:
        expression = column.expression
        if isinstance(expression, ex.RecordList):
            return bindings.column(expression.variable)
        if not isinstance(expression, ex.EntityObject):
            return values.column(expression)
        variable = expression.variable
        whole = F.struct(
            *(
                values.column(
                    ex.PropertyValue(variable, expression.kind, expression.type_name, name, type)
                ).alias(name)
                for name, type in expression.columns
            )
        )
        return F.when(bindings.column(variable).isNotNull(), whole)

    def _distinct(
        self,
        bindings: Bindings,
        values: Values,
        order: list[Column],
        start: int,
        stop: int | None,
    ) -> AnswerFrame:
        """The distinct rows; of equal rows that a rank has ordered, the best one."""
        columns = self.prepared.columns
        names = {column.name: self.tables.names.new() for column in columns}
        outputs = [
            self._output(bindings, values, column).alias(names[column.name]) for column in columns
        ]
        ranks = [self.tables.names.new() for _ in order]
        frame = bindings.rows.select(
            *outputs,
            *(
                values.leaf(ex.OutputValue(column.name, ex.STRING)).alias(
                    f"{names[column.name]}_id"
                )
                for column in columns
                if isinstance(column.expression, ex.EntityObject)
            ),
            *(key.alias(name) for key, name in zip(order, ranks, strict=True)),
        )
        entities = {
            column.name for column in columns if isinstance(column.expression, ex.EntityObject)
        }
        keys = [f"{at}_id" if name in entities else at for name, at in names.items()]
        rest = [F.first(names[name]).alias(names[name]) for name in names if name in entities]
        if order:
            rest.append(F.min(F.struct(*ranks)).alias("best"))
        frame = frame.groupBy(*keys).agg(*rest) if rest else frame.dropDuplicates(keys)
        by_name = dict(zip(names, keys, strict=True))
        values = Values(self.tables.constants, _leaf_by_name(by_name))
        frame, sorting = self._order_keys(frame, values)
        if order:
            sorting.insert(0, F.col("best").asc())
        if sorting:
            sorting += self._tie_keys(by_name)
        frame = self._limited(self._first_per(frame, values, sorting), sorting, start, stop)
        return self._projected(frame, [F.col(names[column.name]) for column in columns])

    def _tie_keys(self, by_name: Mapping[str, str]) -> list[Column]:
        carried = self.prepared.carried
        keys: list[Column] = []
        for tie in self.prepared.compiled.tie_breakers:
            column = F.col(by_name[tie.name])
            if tie.name in carried:
                parts = self._identity(carried[tie.name].variable, column)
                keys += [part.asc_nulls_first() for part in parts]
            else:
                keys += sort_keys(column, tie.type)
        return keys

    # --- rank -------------------------------------------------------------------------------------

    def _ranked(
        self, bindings: Bindings, rank: plan.Rank
    ) -> tuple[Bindings, list[Column], dict[ex.Expression, Column]]:
        """The rows whose candidate has a rank, keys that ascend in its order, and the score.

        Candidates are sorted by score and then by id, so rows can be sorted by the same keys
        without numbering the candidates. Only fusion needs numbers, for the candidates of each arm.
        """
        score = rank.score
        node = bindings.column(score.variable)
        if isinstance(score, ex.Rrf):
            return self._fused(bindings, score, best_first=rank.best_first)
        column = bindings.column(score.variable, "#rank0")
        frame = bindings.rows.where(_takes_part(score, column))
        descending = isinstance(score, ex.Bm25) == rank.best_first
        keys = [*_score_keys(column, descending=descending), node]
        return replace(bindings, frame=frame), keys, {score: column}

    def _fused(
        self, bindings: Bindings, score: ex.Rrf, *, best_first: bool
    ) -> tuple[Bindings, list[Column], dict[ex.Expression, Column]]:
        k = self.tables.arguments.fusion_constant(score)
        depth = self.run.row_count(self.run.plan.limit)
        node = bindings.name(score.variable)
        arms = []
        for name, call in rank_calls(self.prepared).items():
            assert isinstance(call, ex.Nearest | ex.Bm25)
            column = bindings.column(score.variable, name)
            keys = [*_score_keys(column, descending=isinstance(call, ex.Bm25)), F.col(node)]
            candidates = bindings.rows.where(F.col(node).isNotNull() & _takes_part(call, column))
            candidates = candidates.select(node, column).distinct()
            if isinstance(call, ex.Nearest) and depth is not None and depth <= ROWS_MAX:
                candidates = candidates.orderBy(*keys).limit(depth)
            at, place = self.tables.names.new(), self.tables.names.new()
            # One task numbers the candidates of an arm: a rank counts all of them.
            numbered = F.row_number().over(Window.orderBy(*keys)).alias(place)
            arms.append((candidates.select(F.col(node).alias(at), numbered), at, place))
        (first, first_id, first_place), (second, second_id, second_place) = arms
        fused, total = self.tables.names.new(), self.tables.names.new()
        together = first.join(second, F.col(first_id) == F.col(second_id), "full_outer").select(
            F.coalesce(F.col(first_id), F.col(second_id)).alias(fused),
            first_place,
            second_place,
            (_share(first_place, k) + _share(second_place, k)).alias(total),
        )
        frame = bindings.rows.join(together, F.col(node) == F.col(fused)).drop(fused)
        by_score = -F.col(total) if best_first else F.col(total)
        absent = F.lit(ROWS_MAX)
        places = [F.coalesce(F.col(place), absent) for place in (first_place, second_place)]
        return replace(bindings, frame=frame), [by_score, *places], {score: F.col(total)}

    # --- groups -----------------------------------------------------------------------------------

    def grouped(self, bindings: Bindings, by: plan.GroupBy) -> AnswerFrame:
        """The rows of a query that groups."""
        compiled = self.prepared.compiled
        start, stop = self.run.row_range()
        values = match_values(bindings, self.tables.constants, self.prepared.calls, self.tables.ids)
        names = {name: self.tables.names.new() for name, _ in by.items}
        frame = bindings.rows
        arguments: dict[str, Column] = {}
        for entry in by.aggregates:
            if entry.value.argument is not None:
                frame, arguments[entry.name] = self._named(
                    frame, values.column(entry.value.argument)
                )
        for name, item in by.items:
            frame, column = self._named(frame, values.column(item))
            frame = frame.withColumn(names[name], column)
        made = {entry.name: self.tables.names.new() for entry in by.aggregates}
        times = None if bindings.times is None else F.col(bindings.times)
        totals = [
            self._aggregate(entry.value, arguments.get(entry.name), times).alias(made[entry.name])
            for entry in by.aggregates
        ]
        if not by.items:
            frame = frame.agg(*totals)
        elif totals:
            frame = frame.groupBy(*names.values()).agg(*totals)
        else:
            frame = frame.select(*names.values()).distinct()
        known = {**names, **made}
        values = Values(self.tables.constants, _leaf_by_name(known))
        outputs: dict[str, str] = {}
        for output in self.prepared.columns:
            assert not isinstance(output.expression, ex.Whole)
            outputs[output.name] = self.tables.names.new()
            frame = frame.withColumn(outputs[output.name], values.column(output.expression))
        by_name = {**known, **outputs}
        values = Values(self.tables.constants, _leaf_by_name(by_name))
        mask = values.all_hold(self.prepared.having)
        if mask is not None:
            frame = frame.where(mask)
        if compiled.distinct:
            frame = frame.dropDuplicates(list(outputs.values()))
        frame, keys = self._order_keys(frame, values)
        if keys:
            keys += self._tie_keys(by_name)
        frame = self._limited(self._first_per(frame, values, keys), keys, start, stop)
        return self._projected(
            frame, [F.col(outputs[output.name]) for output in self.prepared.columns]
        )

    def _aggregate(
        self, value: ex.AggregateValue, argument: Column | None, times: Column | None
    ) -> Column:
        if value.function not in ("median", "percentile", "stddev"):
            return aggregate_column(value, argument, times)
        assert argument is not None
        if value.function == "stddev" and not value.distinct:
            return F.stddev_samp(argument.cast("double"))
        constants = self.tables.constants
        fraction: float | None = 0.5
        if value.fraction is not None:
            given = scalar_operand(value.fraction, constants.parameters, constants.now)
            fraction = require_fraction(given.as_py())
        gathered = F.collect_list(argument.cast("double"))
        if value.distinct:
            assert value.argument is not None
            # Distinct before the conversion: two integers may become one double.
            several = F.collect_set(one_zero(argument, value.argument.type))
            gathered = F.transform(several, lambda item: item.cast("double"))
        work = ListAggregate(value.function, fraction)
        column: Column = arrow_udf(work.function(), "double")(gathered)
        return column

    # --- order, limit, columns --------------------------------------------------------------------

    def _order_keys(self, frame: DataFrame, values: Values) -> tuple[DataFrame, list[Column]]:
        """The keys of the query's order, each computed once as a column of the frame."""
        keys: list[Column] = []
        for key in self.prepared.order:
            frame, column = self._named(frame, values.column(key.expression))
            keys += sort_keys(column, key.expression.type, descending=key.descending)
        return frame, keys

    def _first_per(self, frame: DataFrame, values: Values, keys: Sequence[Column]) -> DataFrame:
        """The first rows of each group, in the order of some keys."""
        per = self.prepared.per
        most = None if per is None else self.run.row_count(per.count)
        if per is None or most is None:
            return frame
        groups = []
        for key in per.keys:
            frame, column = self._named(frame, one_zero(values.column(key), key.type))
            groups.append(column)
        number = F.row_number().over(Window.partitionBy(*groups).orderBy(*keys))
        frame, place = self._named(frame, number)
        return frame.where(place <= most)

    def _limited(
        self, frame: DataFrame, keys: Sequence[Column], start: int, stop: int | None
    ) -> DataFrame:
        """The rows in order, from ``start`` up to ``stop``."""
        if max(start, stop or 0) > ROWS_MAX:
            rows = self.jobs.run(frame.count)
            if rows > ROWS_MAX:
                raise refused("rows_beyond_an_int")
            start, stop = min(start, rows), None if stop is None else min(stop, rows)
        if self.is_stage and not keys and (start or stop is not None):
            # Any rows may be returned, but the same ones each time.
            keys = [F.col(name) for name in frame.columns]
        if keys:
            frame = frame.orderBy(*keys)
        if stop is not None:
            frame = frame.limit(stop)
        return frame.offset(start) if start else frame

    def _named(self, frame: DataFrame, column: Column) -> tuple[DataFrame, Column]:
        """The frame with a column of computed values, which Spark can sort and group by."""
        name = self.tables.names.new()
        return frame.withColumn(name, column), F.col(name)

    def _projected(self, frame: DataFrame, columns: Sequence[Column]) -> AnswerFrame:
        named = [column.alias(f"r{at}") for at, column in enumerate(columns)]
        return AnswerFrame(frame.select(*named), self.prepared.columns)


def _leaf_by_name(names: Mapping[str, str]) -> Leaf:
    def leaf(node: ColumnExpression) -> Column:
        assert isinstance(node, ex.OutputValue)
        return F.col(names[node.name])

    return leaf


def _takes_part(score: ex.Nearest | ex.Bm25, column: Column) -> Column:
    """Whether a candidate has a score: a vector, or a word of the query."""
    return column.isNotNull() if isinstance(score, ex.Nearest) else column > F.lit(0.0)


def _score_keys(column: Column, *, descending: bool) -> list[Column]:
    """Ascending sort keys of a score; NaN comes last in both directions."""
    return [F.isnan(column), F.lit(0.0) - column if descending else column]


def _share(place: str, k: int) -> Column:
    """The contribution of a rank to a fused score."""
    return F.coalesce(F.lit(1.0) / (F.lit(float(k)) + F.col(place)), F.lit(0.0))


# --- aggregates -----------------------------------------------------------------------------------


def aggregate_column(
    value: ex.AggregateValue, argument: Column | None, times: Column | None
) -> Column:
    """An aggregate over the rows of a group, each of which stands for ``times`` solutions."""
    if argument is None:
        return F.count(F.lit(1)) if times is None else F.coalesce(F.sum(times), F.lit(0))
    assert value.argument is not None
    type = value.argument.type
    is_float = type.scalar in FLOATS and not type.is_list
    if value.distinct:
        argument = one_zero(argument, type)
    match value.function:
        case "count":
            if value.distinct:
                return F.count_distinct(argument)
            return F.count(argument) if times is None else _count(argument, times)
        case "sum" | "avg":
            return _sum(value, argument, times)
        case "min" if is_float:
            # NaN sorts below every number: it is the minimum, and the maximum only of nothing but
            # NaN.
            return F.when(F.max(F.isnan(argument)), F.lit(float("nan"))).otherwise(F.min(argument))
        case "max" if is_float:
            numbers = F.max(F.when(~F.isnan(argument), argument))
            return F.coalesce(numbers, F.max(argument))
        case "min":
            return F.min(argument)
        case "max":
            return F.max(argument)
        case "collect":
            gathered = F.collect_set(argument) if value.distinct else F.collect_list(argument)
            ordered = F.sort_array(gathered)
            if not is_float:
                return ordered
            return F.concat(
                F.filter(ordered, F.isnan), F.filter(ordered, lambda item: ~F.isnan(item))
            )
    raise InternalError(f"no column of Spark computes {value.function}")


def _count(argument: Column, times: Column) -> Column:
    return F.coalesce(F.sum(F.when(argument.isNotNull(), times)), F.lit(0))


def _sum(value: ex.AggregateValue, argument: Column, times: Column | None) -> Column:
    """A sum of integers, or a sum or a mean of doubles."""
    if value.sums_integers:
        return _integer_sum(argument, times, distinct=value.distinct)
    if not value.distinct:
        numbers = argument.cast("double")
        if times is not None:
            total = F.sum(numbers * times)
            return (
                total if value.function == "sum" else F.try_divide(total, _count(argument, times))
            )
        return F.sum(numbers) if value.function == "sum" else F.avg(numbers)
    # Distinct before the conversion: two integers may become one double.
    several = F.collect_set(argument)
    total = F.aggregate(several, F.lit(0.0), lambda sofar, item: sofar + item.cast("double"))
    count = F.size(several)
    return F.when(count > 0, total if value.function == "sum" else total / count)


_WIDE = "decimal(38,0)"


def _integer_sum(argument: Column, times: Column | None, *, distinct: bool) -> Column:
    """The exact sum of integers; raises in the worker if it does not fit I64."""
    numbers = argument.cast("decimal(20,0)")
    if distinct:
        several = F.collect_set(numbers)
        added = F.aggregate(
            several,
            F.lit(0).cast(_WIDE),
            lambda sofar, item: (sofar + item.cast(_WIDE)).cast(_WIDE),
        )
        total = F.when(F.size(several) > 0, added)
    else:
        total = F.sum(numbers if times is None else numbers * times.cast("decimal(17,0)"))
    column: Column = arrow_udf(fitting_sums, "long")(total.cast(_WIDE))
    return column
