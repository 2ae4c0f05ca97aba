"""What follows the match: rank, group, project, having, distinct, order, offset and limit."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cmp_to_key
from typing import Any

from omnigraph.errors import InputError
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from tests.support.reference.order import ascending, compare, distinct, identity
from tests.support.reference.ranking import Ranked
from tests.support.reference.solutions import Answer, Solution, entity_id, shown_id
from tests.support.reference.values import Row


@dataclass(frozen=True)
class Output:
    """One row on its way out."""

    row: Row
    values: tuple[Any, ...] = ()
    rank: Ranked | None = None
    ids: tuple[Any, ...] = ()
    """Those of the named variables, in the order of the names, and the values of a stage."""


@dataclass(frozen=True)
class Tail:
    """The end of one plan."""

    read: plan.ReadPlan
    row: Callable[[Solution], Row]
    ranked: Mapping[str, Ranked] | None
    limit: int | None
    offset: int | None
    per: int | None = None
    """How many rows each group of a limit keeps."""

    def answer(self, solutions: Sequence[Solution]) -> Answer:
        """The rows these solutions become."""
        rows = [self._projected(output) for output in self._grouped(solutions)]
        rows = [o for o in rows if all(o.row.is_true(condition) for condition in self.read.having)]
        rows.sort(key=cmp_to_key(self._compare))
        if self.read.distinct:
            first: dict[Hashable, Output] = {}
            for output in rows:
                first.setdefault(identity(output.values), output)
            rows = list(first.values())
        if self.read.per is not None and self.per is not None:
            kept: Counter[Hashable] = Counter()
            first_rows = []
            for output in rows:
                group = identity([output.row.value(key) for key in self.read.per.keys])
                kept[group] += 1
                if kept[group] <= self.per:
                    first_rows.append(output)
            rows = first_rows
        start = self.offset or 0
        end = None if self.limit is None else start + self.limit
        names = tuple(column.name for column in self.read.columns)
        return Answer(names, [output.values for output in rows[start:end]])

    # --- rank, group, project ---------------------------------------------------------------------

    def _grouped(self, solutions: Sequence[Solution]) -> list[Output]:
        group_by = self.read.group_by
        if group_by is None:
            return [output for one in solutions if (output := self._ungrouped(one)) is not None]
        groups: dict[Hashable, list[Row]] = {}
        if not group_by.items:
            groups[()] = []
        for solution in solutions:
            row = self.row(solution)
            key = tuple(identity(row.value(item)) for _, item in group_by.items)
            groups.setdefault(key, []).append(row)
        return [self._group(group_by, rows) for rows in groups.values()]

    def _group(self, group_by: plan.GroupBy, rows: list[Row]) -> Output:
        outputs = {name: rows[0].value(item) for name, item in group_by.items}
        for named in group_by.aggregates:
            fraction = named.value.fraction
            given = 0.5 if fraction is None else self.row({}).value(fraction)
            outputs[named.name] = aggregate(named.value, rows, given)
        return Output(replace(self.row({}), outputs=outputs))

    def _ungrouped(self, solution: Solution) -> Output | None:
        """A row, unless the ranking has no place for it."""
        row, rank = self.row(solution), None
        if self.read.rank is not None:
            assert self.ranked is not None
            name = entity_id(solution, self.read.rank.score.variable)
            rank = None if name is None else self.ranked.get(name)
            if rank is None:
                return None
            row = replace(row, fused=rank.score)
        ids = tuple(
            part
            for variable in self.read.variables
            for part in (
                (solution[variable.name],)
                if variable.kind == "value"
                else shown_id(solution, variable.name)
            )
        )
        return Output(row, rank=rank, ids=ids)

    def _projected(self, output: Output) -> Output:
        values = tuple(output.row.output(column.expression) for column in self.read.columns)
        names = [column.name for column in self.read.columns]
        outputs = {**output.row.outputs, **dict(zip(names, values, strict=True))}
        return replace(output, row=replace(output.row, outputs=outputs), values=values)

    # --- order ------------------------------------------------------------------------------------

    def _compare(self, left: Output, right: Output) -> int:
        """The total order of rows; without keys it is one of the orders they may have."""
        if left.rank is not None and right.rank is not None:
            difference = compare(left.rank.position, right.rank.position)
            if difference != 0:
                return difference
        for key in self.read.order:
            difference = compare(left.row.value(key.expression), right.row.value(key.expression))
            if difference != 0:
                return -difference if key.descending else difference
        for breaker in self.read.tie_breakers:
            difference = compare(_breaking(left, breaker), _breaking(right, breaker))
            if difference != 0:
                return difference
        return compare(left.ids, right.ids)


def _breaking(output: Output, breaker: ex.OutputValue) -> Any:
    """A column as a tie breaker; a whole entity stands for its id."""
    value = output.row.outputs[breaker.name]
    if not isinstance(value, dict):
        return value
    return value.get("@id", value["id"]), value.get("@type")


def aggregate(wanted: ex.AggregateValue, rows: Sequence[Row], fraction: float | None = None) -> Any:
    """The value of an aggregate over the rows of a group."""
    if fraction is not None and not 0 <= fraction <= 1:
        raise InputError("a fraction is a number between 0 and 1")
    argument = wanted.argument
    if argument is None:
        return len(rows)
    values = [value for row in rows if (value := row.value(argument)) is not None]
    if wanted.distinct:
        values = distinct(values)
    match wanted.function:
        case "count":
            return len(values)
        case "collect":
            return sorted(values, key=ascending)
        case "sum":
            if argument.type.scalar.is_integer:
                if values and not -(2**63) <= sum(values) < 2**63:
                    raise InputError(f"integer overflow: the sum {sum(values)} does not fit I64")
                return sum(values) if values else None
            return float(sum(values)) if values else None
        case "avg":
            return sum(values) / len(values) if values else None
        case "min":
            return min(values, key=ascending, default=None)
        case "max":
            return max(values, key=ascending, default=None)
        case "stddev":
            return statistics.stdev(map(float, values)) if len(values) > 1 else None
        case "median" | "percentile":
            return (
                None if fraction is None else _percentile(sorted(values, key=ascending), fraction)
            )


def _percentile(ordered: Sequence[float], fraction: float) -> float | None:
    """The number at that part of the way through the ordered ones."""
    if not ordered:
        return None
    place = fraction * (len(ordered) - 1)
    below = math.floor(place)
    low, high = float(ordered[below]), float(ordered[min(below + 1, len(ordered) - 1)])
    share = place - below
    return low if share == 0 or low == high else low * (1 - share) + high * share
