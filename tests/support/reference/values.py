"""What an expression is worth for one row."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph.errors import InputError
from omnigraph.model.types import INTEGER_BOUNDS, Scalar, ValueType
from omnigraph.query import expressions as ex
from tests.support.reference.embedding import single
from tests.support.reference.search import Search
from tests.support.reference.solutions import Solution, Way, entity, entity_id, stored

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
}


@dataclass(frozen=True)
class Row:
    """Everything an expression may look at."""

    solution: Solution
    parameters: Mapping[str, Any]
    now: dt.datetime
    search: Search
    outputs: Mapping[str, Any] = field(default_factory=dict)
    """Columns computed by an earlier stage, by name."""
    fused: float | None = None
    """The score of the `rrf` the rows are ranked by."""

    def is_true(self, predicate: ex.Expression) -> bool:
        return self.value(predicate) is True

    def output(self, expression: ex.OutputExpression) -> Any:
        """The value of a return item; a whole entity is a dictionary."""
        if isinstance(expression, ex.RecordList):
            return self.solution[expression.variable]
        if not isinstance(expression, ex.EntityObject):
            return self.value(expression)
        found = entity(self.solution, expression.variable)
        if found is None:
            return None
        shown = {**found, "id": found.get("@id", found["id"])}
        return {name: shown[name] for name, _ in expression.columns}

    def way(self, variable: str) -> Way | None:
        """What a path variable stands for."""
        found = self.solution[variable]
        assert found is None or isinstance(found, Way)
        return found

    def value(self, node: ex.Expression) -> Any:
        match node:
            case ex.Constant():
                return list(node.value) if isinstance(node.value, tuple) else node.value
            case ex.ParameterValue():
                return self.parameters[node.name]
            case ex.CurrentTime():
                return self.now
            case ex.PropertyValue():
                return stored(self.solution, node.variable, node.property)
            case ex.EntityId():
                return entity_id(self.solution, node.variable)
            case ex.PathNodes():
                way = self.way(node.variable)
                return None if way is None else list(way.nodes)
            case ex.PathLength():
                way = self.way(node.variable)
                return None if way is None else len(way.nodes) - 1
            case ex.PathEdges():
                way = self.way(node.variable)
                return None if way is None else list(way.edges)
            case ex.PathCost():
                way = self.way(node.variable)
                return None if way is None else way.cost
            case ex.BoundValue() | ex.CarriedNode():
                return self.solution[node.variable]
            case ex.OutputValue():
                return self.outputs[node.name]
            case ex.RoundToF32():
                return _to_single(self.value(node.operand))
            case ex.ArithmeticValue():
                return _arithmetic(node, self.value(node.left), self.value(node.right))
            case ex.ScalarCall():
                return _call(node, [self.value(argument) for argument in node.arguments])
            case ex.Compare():
                left, right = self.value(node.left), self.value(node.right)
                return not _any_null(left, right) and COMPARISONS[node.operator](left, right)
            case ex.TextContains():
                text, needle = self.value(node.text), self.value(node.needle)
                return not _any_null(text, needle) and needle in text
            case ex.TextStartsWith():
                text, prefix = self.value(node.text), self.value(node.prefix)
                return not _any_null(text, prefix) and text.startswith(prefix)
            case ex.ListContains():
                members, item = self.value(node.list), self.value(node.item)
                if _any_null(members, item):
                    return False
                return any(member is not None and member == item for member in members)
            case ex.IsNull():
                return (self.value(node.operand) is None) != node.negated
            case ex.Combine():
                answers = [self.is_true(operand) for operand in node.operands]
                return all(answers) if node.operator == "and" else any(answers)
            case ex.TextMatch():
                return self.search.matches(node, entity(self.solution, node.variable))
            case ex.Nearest():
                return self.search.distance(node, entity(self.solution, node.variable))
            case ex.Bm25():
                return self.search.score(node, entity(self.solution, node.variable)) or 0.0
            case ex.Rrf():
                return self.fused
            case ex.AggregateValue():
                raise AssertionError("an aggregate is no value of a single row")


def _any_null(*values: Any) -> bool:
    return any(value is None for value in values)


def _to_single(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_single(item) for item in value]
    return None if value is None else single(value)


# --- numbers --------------------------------------------------------------------------------------


def _arithmetic(node: ex.ArithmeticValue, left: Any, right: Any) -> Any:
    if _any_null(left, right) or (node.operator == "/" and right == 0):
        return None
    if node.type.scalar is Scalar.F64:
        left, right = float(left), float(right)
    return _fitting(ARITHMETIC[node.operator](left, right), node.type)


def _fitting(number: Any, type: ValueType) -> Any:
    """``number`` as a result of that type; an integer that does not fit is refused."""
    if type.scalar.is_float:
        return float(number)
    low, high = INTEGER_BOUNDS[type.scalar]
    if not low <= number <= high:
        raise InputError(f"integer overflow: {number} does not fit {type.scalar}")
    return number


def _rounded(number: Any, digits: int) -> Any:
    """By the digits a reader sees, halves away from zero; a zero has no sign."""
    if isinstance(number, int) and digits >= 0:
        return number
    if not math.isfinite(number):
        return number
    context = decimal.Context(prec=800, rounding=decimal.ROUND_HALF_UP)
    quantum = decimal.Decimal(1).scaleb(-digits)
    result = decimal.Decimal(repr(number)).quantize(quantum, context=context)
    return int(result) if isinstance(number, int) else float(result) + 0.0


# --- functions ------------------------------------------------------------------------------------


def _call(node: ex.ScalarCall, arguments: list[Any]) -> Any:
    if node.function == "coalesce":
        found = next((value for value in arguments if value is not None), None)
        is_number = found is not None and node.type.is_numeric
        return _fitting(found, node.type) if is_number else found
    if _any_null(*arguments):
        return None
    first = arguments[0]
    match node.function:
        case "lower":
            return first.lower()
        case "upper":
            return first.upper()
        case "length":
            return len(first)
        case "abs":
            return _fitting(abs(first), node.type)
        case "round":
            return _fitting(_rounded(first, arguments[1] if len(arguments) > 1 else 0), node.type)
        case "date_part":
            return _date_part(first, arguments[1])


def _date_part(part: str, moment: dt.date) -> int:
    match part:
        case "quarter":
            return (moment.month + 2) // 3
        case "week":
            return moment.isocalendar().week
        case "weekday":
            return moment.isoweekday()
        case "day_of_year":
            return moment.timetuple().tm_yday
        case "millisecond":
            assert isinstance(moment, dt.datetime)
            return moment.microsecond // 1000
    return int(getattr(moment, part))
