"""The walk over an expression tree."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InternalError
from omnigraph.model.arrow import TIMESTAMP, arrow_type
from omnigraph.model.temporal import to_utc_ms
from omnigraph.model.types import ValueType
from omnigraph.query import expressions as ex
from omnigraph.query.evaluate.arithmetic import arithmetic
from omnigraph.query.evaluate.comparison import Datum, compare
from omnigraph.query.evaluate.containment import list_contains, text_contains, text_starts_with
from omnigraph.query.evaluate.functions import call

ColumnExpression: TypeAlias = (
    ex.PropertyValue | ex.EntityId | ex.OutputValue | ex.PathNodes | ex.PathLength
)
"""The leaves that differ from row to row."""

Columns: TypeAlias = Callable[[ColumnExpression], pa.Array | pa.ChunkedArray]
"""Where the values of a leaf come from; all columns it gives have the same length."""

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


def text_operand(expression: ex.Expression, parameters: Parameters, now: dt.datetime) -> str | None:
    """The value of a text that reads no column, without the way through Arrow where there is one.

    A point query asks for its key, and that should cost less than looking it up.
    """
    match expression:
        case ex.Constant(value=str() as text):
            return text
        case ex.ParameterValue():
            given = parameters[expression.name]
            if given is None or isinstance(given, str):
                return given
    text = scalar_operand(expression, parameters, now).as_py()
    assert text is None or isinstance(text, str)
    return text


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
            ):
                return self.columns(node)
            case ex.RoundToF32():
                return pc.cast(self.value(node.operand), arrow_type(node.type), safe=False)
            case ex.Arithmetic():
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
