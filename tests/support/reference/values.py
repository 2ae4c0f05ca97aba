"""What an expression is worth for one row."""

from __future__ import annotations

import calendar
import datetime as dt
import decimal
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from omnigraph.errors import InputError
from omnigraph.model.types import INTEGER_BOUNDS, Scalar, ValueType
from omnigraph.query import expressions as ex
from omnigraph.query.functions import pattern_problem
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
    "%": lambda left, right: (
        math.copysign(abs(left) % abs(right), left)
        if isinstance(left, float)
        else (abs(left) % abs(right)) * (1 if left >= 0 else -1)
    ),
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
            case ex.ListItem():
                several, index = self.value(node.list), self.value(node.index)
                is_there = not _any_null(several, index) and 0 <= index < len(several)
                return several[index] if is_there else None
            case ex.ConditionalValue():
                return self._conditional(node)
            case ex.Compare():
                left, right = self.value(node.left), self.value(node.right)
                return not _any_null(left, right) and COMPARISONS[node.operator](left, right)
            case ex.TextContains():
                text, needle = self.value(node.text), self.value(node.needle)
                return not _any_null(text, needle) and needle in text
            case ex.TextStartsWith():
                text, prefix = self.value(node.text), self.value(node.prefix)
                return not _any_null(text, prefix) and text.startswith(prefix)
            case ex.TextEndsWith():
                text, suffix = self.value(node.text), self.value(node.suffix)
                return not _any_null(text, suffix) and text.endswith(suffix)
            case ex.TextMatches():
                text, pattern = self.value(node.text), self.value(node.pattern)
                if pattern is not None and (problem := pattern_problem(pattern)) is not None:
                    raise InputError(f"this is not a regular expression: {problem}")
                return not _any_null(text, pattern) and re.search(pattern, text) is not None
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
            case ex.TextQuery():
                raise AssertionError("a search text is no value of a row")
            case ex.Highlight():
                return self.search.highlight(node, entity(self.solution, node.variable))
            case ex.Nearest():
                return self.search.distance(node, entity(self.solution, node.variable))
            case ex.Bm25():
                return self.search.score(node, entity(self.solution, node.variable)) or 0.0
            case ex.Rrf():
                return self.fused
            case ex.AggregateValue():
                raise AssertionError("an aggregate is no value of a single row")

    def _conditional(self, node: ex.ConditionalValue) -> Any:
        for condition, value in zip(node.conditions, node.values, strict=True):
            if self.is_true(condition):
                return _converted(self.value(value), node.type)
        otherwise = None if node.otherwise is None else self.value(node.otherwise)
        return _converted(otherwise, node.type)


def _any_null(*values: Any) -> bool:
    return any(value is None for value in values)


def _to_single(value: Any) -> Any:
    if isinstance(value, list):
        return [_to_single(item) for item in value]
    return None if value is None else single(value)


# --- numbers --------------------------------------------------------------------------------------


def _arithmetic(node: ex.ArithmeticValue, left: Any, right: Any) -> Any:
    if _any_null(left, right) or (node.operator in ("/", "%") and right == 0):
        return None
    if isinstance(left, dt.date):
        return _moved(node, left, right)
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
        return _converted(next((v for v in arguments if v is not None), None), node.type)
    if _any_null(*arguments):
        return None
    first = arguments[0]
    match node.function:
        case "lower":
            return first.lower()
        case "upper":
            return first.upper()
        case "length" | "size":
            return len(first)
        case "abs":
            return _fitting(abs(first), node.type)
        case "round":
            return _fitting(_rounded(first, arguments[1] if len(arguments) > 1 else 0), node.type)
        case "date_part":
            return _date_part(first, arguments[1])
        case "date_trunc":
            return _date_trunc(first, arguments[1])
        case "concat":
            return "".join(arguments)
        case "substring":
            start = arguments[1]
            stop = len(first) if len(arguments) == 2 else start + arguments[2]
            return first[max(start, 0) : max(stop, 0)]
        case "split":
            return first.split(arguments[1]) if arguments[1] else [first]
        case "replace":
            return first.replace(*arguments[1:]) if arguments[1] else first
        case "trim":
            return first.strip()
        case "floor" | "ceil":
            if isinstance(first, float) and not math.isfinite(first):
                return first
            whole = math.floor(first) if node.function == "floor" else math.ceil(first)
            return _fitting(whole, node.type)
        case "sqrt":
            return None if first < 0 else math.sqrt(first)
        case "log":
            return None if first <= 0 else math.log(first)
        case "pow":
            return _power(float(first), float(arguments[1]))
        case _:
            return first  # the number of units of a period


def _power(base: float, exponent: float) -> float | None:
    if base == 0 and exponent < 0:
        return None
    try:
        return math.pow(base, exponent)
    except OverflowError:
        return -math.inf if base < 0 and exponent % 2 == 1 else math.inf
    except ValueError:
        return None


DAYS = {"weeks": 7, "days": 1}
SECONDS = {"hours": 3600.0, "minutes": 60.0, "seconds": 1.0, "milliseconds": 0.001}


def _moved(node: ex.ArithmeticValue, moment: dt.date, by: Any) -> Any:
    """A difference of two moments, or a moment moved by a period."""
    if isinstance(by, dt.date):
        return (moment - by) // dt.timedelta(milliseconds=1)
    assert isinstance(node.right, ex.ScalarCall)
    unit, amount = node.right.function, by if node.operator == "+" else -by
    try:
        if unit in DAYS:
            return moment + dt.timedelta(days=amount * DAYS[unit])
        if unit in SECONDS:
            return moment + dt.timedelta(milliseconds=amount * round(SECONDS[unit] * 1000))
        months = moment.year * 12 + moment.month - 1 + amount * (12 if unit == "years" else 1)
        year, month = divmod(months, 12)
        last = calendar.monthrange(year, month + 1)[1]
        return moment.replace(year=year, month=month + 1, day=min(moment.day, last))
    except (OverflowError, ValueError):
        raise InputError("outside of the years 1 to 9999") from None


def _fields(moment: dt.datetime, name: str) -> dt.timedelta:
    """How long a field of a moment is."""
    return dt.timedelta(**{f"{name}s": getattr(moment, name)})


def _date_trunc(unit: str, moment: dt.date) -> dt.date:
    if isinstance(moment, dt.datetime):
        names = ("hour", "minute", "second", "microsecond")
        kept = names.index(unit) + 1 if unit in names else 0
        for name in names[kept:]:
            moment = moment - _fields(moment, name)
    match unit:
        case "week":
            return moment - dt.timedelta(days=moment.weekday())
        case "month":
            return moment.replace(day=1)
        case "quarter":
            return moment.replace(month=(moment.month - 1) // 3 * 3 + 1, day=1)
        case "year":
            return moment.replace(month=1, day=1)
    return moment


def _converted(value: Any, type: ValueType) -> Any:
    return _fitting(value, type) if value is not None and type.is_numeric else value


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
