"""Conditions that storage can check while it reads.

What storage cannot say is left out: the engine checks every condition again, so a filter here only
has to let all wanted rows through.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from operator import and_, or_

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engines.base import Execution
from omnigraph.model.arrow import arrow_type
from omnigraph.model.types import Scalar
from omnigraph.query import expressions as ex
from omnigraph.query.ast import ComparisonOperator
from omnigraph.query.evaluate import scalar_operand

_FLIPPED: dict[ComparisonOperator, ComparisonOperator] = {
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
    "=": "=",
}
_TESTS = {
    "=": lambda column, value: column == value,
    "<": lambda column, value: column < value,
    "<=": lambda column, value: column <= value,
    ">": lambda column, value: column > value,
    ">=": lambda column, value: column >= value,
}
_PUSHED = {Scalar.STRING, Scalar.I32, Scalar.I64, Scalar.DATE, Scalar.DATETIME}
"""Types whose comparisons storage and the language agree on; it cannot read unsigned numbers."""


def storage_filter(predicates: Iterable[ex.Expression], run: Execution) -> pc.Expression | None:
    """A filter that every wanted row passes; None if there is nothing to ask."""
    parts = [part for predicate in predicates if (part := _filter(predicate, run)) is not None]
    return reduce(and_, parts) if parts else None


def _filter(predicate: ex.Expression, run: Execution) -> pc.Expression | None:
    match predicate:
        case ex.Compare():
            return _comparison(predicate, run)
        case ex.ListContains(list=members, item=ex.PropertyValue() as column):
            values = _value(members, run)
            if values is None or not _can_push(column) or not values.is_valid:
                return None
            kept = values.values.drop_null()
            return pc.field(column.property).isin(kept) if len(kept) else None
        case ex.Combine(operator="and"):
            return storage_filter(predicate.operands, run)
        case ex.Combine(operator="or"):
            parts = [_filter(operand, run) for operand in predicate.operands]
            known = [part for part in parts if part is not None]
            return reduce(or_, known) if len(known) == len(parts) else None
    return None


def _comparison(predicate: ex.Compare, run: Execution) -> pc.Expression | None:
    operator, left, right = predicate.operator, predicate.left, predicate.right
    if operator not in _TESTS:
        return None
    if isinstance(right, ex.PropertyValue):
        operator, left, right = _FLIPPED[operator], right, left
    if not isinstance(left, ex.PropertyValue) or not _can_push(left):
        return None
    value = _value(right, run)
    if value is None or not value.is_valid or value.type != arrow_type(left.type):
        return None
    return _TESTS[operator](pc.field(left.property), value)


def _can_push(column: ex.PropertyValue) -> bool:
    return column.type.is_plain_scalar and column.type.scalar in _PUSHED


def _value(expression: ex.Expression, run: Execution) -> pa.Scalar | None:
    """The value of an expression that is the same for all rows."""
    if ex.variables_of(expression):
        return None
    return scalar_operand(expression, run.parameters, run.now)
