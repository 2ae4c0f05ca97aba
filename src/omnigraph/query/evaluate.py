"""Evaluates typed expressions over columns, for all rows at once.

Computes everything that depends on single rows: comparisons, tests, arithmetic and scalar
functions. Text search, ranking and aggregates need more than a row; an engine computes them and
passes the result as a column.

Rules beyond those of the language:

- A predicate is two-valued: where a comparison has no answer because of a null, it is false.
- Floats follow IEEE 754: a NaN is unequal to everything, itself included, so only `!=` holds for
  it; the two zeros are equal; a sum or a product too large is an infinity.
- Integers are exact. A result that does not fit I64 is an error, never a wrapped number.
- `lower` and `upper` are the full case mapping of Unicode: `ß` becomes `SS`.
- `round` goes by the digits a reader sees: 2.675 to two places is 2.68, although the float nearest
  to 2.675 lies a little below it. Halves go away from zero.
- A value that is the same for all rows may be a scalar; `holds` always gives one value per row.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InternalError
from omnigraph.model.arrow import TIMESTAMP, arrow_type
from omnigraph.model.types import ValueType
from omnigraph.model.values import to_utc_ms
from omnigraph.query import expressions as ex
from omnigraph.query.kernels import (
    Datum,
    absolute,
    arithmetic,
    compare,
    list_contains,
    rounded,
    text_contains,
    text_starts_with,
    to_numeric,
)
from omnigraph.syntax.query_ast import ScalarFunction

ColumnExpression: TypeAlias = (
    ex.PropertyValue
    | ex.EntityId
    | ex.OutputValue
    | ex.PathNodes
    | ex.PathLength
    | ex.BoundValue
    | ex.CarriedNode
    | ex.PathEdges
    | ex.PathCost
)
"""The leaves with one value per row."""

Columns: TypeAlias = Callable[[ColumnExpression], pa.Array | pa.ChunkedArray]
"""Gives the values of a leaf; all columns have the same length."""

Parameters: TypeAlias = Mapping[str, object]
"""Bound parameters by name, in the form of `model.values`."""


def evaluate(
    expression: ex.Expression, columns: Columns, parameters: Parameters, now: dt.datetime
) -> Datum:
    """The value of ``expression`` for every row, or a scalar if it is the same for all of them.

    Raises `InputError` if an integer result does not fit, and `InternalError` for search, ranking
    and aggregates, which are not computed row by row.
    """
    return _Evaluation(columns, parameters, now).value(expression)


def holds(
    predicate: ex.Expression,
    columns: Columns,
    parameters: Parameters,
    now: dt.datetime,
    row_count: int,
) -> pa.Array | pa.ChunkedArray:
    """For each of ``row_count`` rows, whether the predicate is true; there are no nulls in it."""
    answer = evaluate(predicate, columns, parameters, now)
    return pa.repeat(answer, row_count) if isinstance(answer, pa.Scalar) else answer


def scalar_operand(
    expression: ex.Expression, parameters: Parameters, now: dt.datetime
) -> pa.Scalar:
    """The value of an expression that reads no column."""
    return evaluate(expression, _no_columns, parameters, now)


def _no_columns(leaf: ColumnExpression) -> pa.Array:
    raise InternalError(f"there is no row to read {leaf} from")


@dataclass(frozen=True, slots=True)
class _Evaluation:
    columns: Columns
    parameters: Parameters
    now: dt.datetime

    def value(self, node: ex.Expression) -> Datum:
        match node:
            case ex.Constant():
                return _scalar(node.value, node.type)
            case ex.ParameterValue():
                return _scalar(self.parameters[node.name], node.type)
            case ex.CurrentTime():
                return pa.scalar(to_utc_ms(self.now), TIMESTAMP)
            case (
                ex.PropertyValue()
                | ex.EntityId()
                | ex.OutputValue()
                | ex.PathNodes()
                | ex.PathLength()
                | ex.BoundValue()
                | ex.CarriedNode()
                | ex.PathEdges()
                | ex.PathCost()
            ):
                return self.columns(node)
            case ex.RoundToF32():
                return pc.cast(self.value(node.operand), arrow_type(node.type), safe=False)
            case ex.ArithmeticValue():
                left, right = self.value(node.left), self.value(node.right)
                return arithmetic(node.operator, left, right, node.type)
            case ex.ScalarCall():
                return call(node.function, [self.value(a) for a in node.arguments], node.type)
            case ex.IsNull():
                return (pc.is_valid if node.negated else pc.is_null)(self.value(node.operand))
            case ex.Combine():
                join = pc.and_ if node.operator == "and" else pc.or_
                return reduce(join, (self.value(operand) for operand in node.operands))
            case ex.Compare() | ex.TextContains() | ex.TextStartsWith() | ex.ListContains():
                # Two-valued: there is no `not` over a predicate, so a null can be false at once.
                return pc.fill_null(self.test(node), False)
            case ex.TextMatch() | ex.Nearest() | ex.Bm25() | ex.Rrf() | ex.AggregateValue():
                kind = node.__class__.__name__
                raise InternalError(f"{kind} is not a value of a single row")

    def test(
        self, node: ex.Compare | ex.TextContains | ex.TextStartsWith | ex.ListContains
    ) -> Datum:
        match node:
            case ex.Compare():
                return compare(node.operator, self.value(node.left), self.value(node.right))
            case ex.TextContains():
                return text_contains(self.value(node.text), self.value(node.needle))
            case ex.TextStartsWith():
                return text_starts_with(self.value(node.text), self.value(node.prefix))
            case ex.ListContains():
                return list_contains(self.value(node.list), self.value(node.item))


def _scalar(value: object, type: ValueType) -> pa.Scalar:
    return pa.scalar(list(value) if isinstance(value, tuple) else value, arrow_type(type))


# --- scalar functions -----------------------------------------------------------------------------


def call(function: ScalarFunction, arguments: Sequence[Datum], result: ValueType) -> Datum:
    """The value of a scalar function; null for a null argument, except in `coalesce`."""
    first = arguments[0]
    match function:
        case "lower":
            return _map_case(first, pc.ascii_lower, str.lower)
        case "upper":
            return _map_case(first, pc.ascii_upper, str.upper)
        case "length":
            return _length(first)
        case "abs":
            return absolute(first, result)
        case "round":
            return rounded(first, arguments[1].as_py() if len(arguments) > 1 else 0, result)
        case "date_part":
            return date_part(first.as_py(), arguments[1])
        case "coalesce":
            return _coalesce(arguments, result)


def _map_case(
    texts: Datum, ascii_kernel: Callable[[Datum], Datum], convert: Callable[[str], str]
) -> Datum:
    """Map case by Unicode; Arrow maps other than ASCII only one character to one."""
    if isinstance(texts, pa.Scalar):
        return pa.scalar(convert(texts.as_py()) if texts.is_valid else None, pa.string())
    is_other = pc.invert(pc.string_is_ascii(texts))
    if not pc.any(is_other).as_py():
        return ascii_kernel(texts)
    if isinstance(texts, pa.ChunkedArray):
        texts, is_other = texts.combine_chunks(), is_other.combine_chunks()
    is_other = is_other.fill_null(False)
    converted = [convert(text) for text in texts.filter(is_other).to_pylist()]
    return pc.replace_with_mask(ascii_kernel(texts), is_other, pa.array(converted, pa.string()))


def _length(operand: Datum) -> Datum:
    """Characters (code points) of a text, elements of a list."""
    is_text = pa.types.is_string(operand.type) or pa.types.is_large_string(operand.type)
    counted = pc.utf8_length(operand) if is_text else pc.list_value_length(operand)
    return pc.cast(counted, pa.int64())


def _coalesce(arguments: Sequence[Datum], result: ValueType) -> Datum:
    chosen: Datum | None = None
    for argument in arguments:
        if chosen is not None:
            # Only a value that is used has to fit the type of the result.
            unused = pa.scalar(None, argument.type)
            argument = pc.if_else(pc.is_null(chosen), argument, unused)  # noqa: PLW2901
        if result.is_numeric:
            converted = to_numeric(argument, result)
        else:
            converted = pc.cast(argument, arrow_type(result))
        chosen = converted if chosen is None else pc.coalesce(chosen, converted)
    if chosen is None:
        raise InternalError("coalesce without arguments")
    return chosen


_DATE_PARTS: dict[str, Callable[[Datum], Datum]] = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "week": pc.iso_week,
    "day": pc.day,
    "weekday": lambda moments: pc.day_of_week(moments, count_from_zero=False, week_start=1),
    "day_of_year": pc.day_of_year,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
    "millisecond": pc.millisecond,
}


def date_part(part: str, moments: Datum) -> Datum:
    """A field of a Date or DateTime, in UTC; weeks are ISO 8601 weeks, weekdays 1 to 7 from Monday.

    >>> import datetime as dt
    >>> date_part("week", pa.scalar(dt.date(2027, 1, 3))).as_py()
    53
    """
    if pa.types.is_timestamp(moments.type):
        # Without a zone Arrow needs no zone database, which small systems do not have.
        moments = pc.cast(pc.cast(moments, pa.int64()), pa.timestamp("ms"))
    return pc.cast(_DATE_PARTS[part](moments), pa.int64())
