"""Random expressions over random rows, against an evaluator that takes one row at a time."""

from __future__ import annotations

import datetime as dt
import decimal
import math
import operator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import InputError
from omnigraph.model.arrow import arrow_type
from omnigraph.model.types import INTEGER_BOUNDS, Scalar, ValueType
from omnigraph.model.values import round_to_f32, to_utc_ms
from omnigraph.query import expressions as ex
from omnigraph.query.evaluate import evaluate
from omnigraph.query.kernels import compare, list_contains, rounded
from tests.support.budgets import MANY

NOW = dt.datetime(2031, 4, 9, 7, 30, tzinfo=dt.UTC)
NUMBERS = (Scalar.I32, Scalar.I64, Scalar.U32, Scalar.U64, Scalar.F32, Scalar.F64)
PLAIN = (Scalar.STRING, Scalar.BOOL, Scalar.DATE, Scalar.DATETIME)
ROWS_MAX = 5
F64_OR_NULL = ValueType(Scalar.F64, nullable=True)

# --- the slow twin --------------------------------------------------------------------------------


class Overflow(Exception):
    pass


COMPARISONS: dict[Any, Any] = {
    "=": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


SYMBOLS: st.SearchStrategy[Any] = st.sampled_from(sorted(COMPARISONS))


def comparable_form(value: Any) -> Any:
    return value.encode() if isinstance(value, str) else value


def same(left: Any, right: Any) -> bool:
    return left is not None and right is not None and left == right


def slow(node: Any, row: dict[str, Any], parameters: dict[str, Any]) -> Any:
    def value(child: Any) -> Any:
        return slow(child, row, parameters)

    match node:
        case ex.Constant():
            return node.value
        case ex.ParameterValue():
            return parameters[node.name]
        case ex.CurrentTime():
            return NOW
        case ex.PropertyValue():
            return row[node.property]
        case ex.RoundToF32():
            inner = value(node.operand)
            return None if inner is None else round_to_f32(inner)
        case ex.Compare():
            left, right = value(node.left), value(node.right)
            if left is None or right is None:
                return False
            return COMPARISONS[node.operator](comparable_form(left), comparable_form(right))
        case ex.TextContains():
            text, part = value(node.text), value(node.needle)
            return text is not None and part is not None and part in text
        case ex.TextStartsWith():
            text, part = value(node.text), value(node.prefix)
            return text is not None and part is not None and text.startswith(part)
        case ex.ListContains():
            members, item = value(node.list), value(node.item)
            return members is not None and any(same(item, member) for member in members)
        case ex.IsNull():
            return (value(node.operand) is None) != node.negated
        case ex.Combine():
            answers = [value(part) for part in node.operands]
            return all(answers) if node.operator == "and" else any(answers)
        case ex.ArithmeticValue():
            return slow_arithmetic(node, value(node.left), value(node.right))
        case ex.ScalarCall():
            return slow_call(node, [value(part) for part in node.arguments])
    raise AssertionError(node)


def slow_arithmetic(node: ex.ArithmeticValue, left: Any, right: Any) -> Any:
    if left is None or right is None:
        return None
    if node.type.scalar is Scalar.F64:
        left, right = float(left), float(right)
        if node.operator == "/":
            return left / right if right else None
    return as_result(
        {"+": operator.add, "-": operator.sub, "*": operator.mul}[node.operator](left, right), node
    )


def as_result(number: Any, node: ex.ArithmeticValue | ex.ScalarCall) -> Any:
    """A number as the type of a result, which it may not fit."""
    if number is None or not node.type.is_numeric:
        return number
    if node.type.scalar.is_float:
        return float(number)
    low, high = INTEGER_BOUNDS[node.type.scalar]
    if not low <= number <= high:
        raise Overflow
    return number


def slow_call(node: ex.ScalarCall, arguments: list[Any]) -> Any:
    if node.function == "coalesce":
        return as_result(next((a for a in arguments if a is not None), None), node)
    if None in arguments:
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
            return as_result(abs(first), node)
        case "round":
            return slow_round(node, first, arguments[1])
        case "date_part":
            return slow_date_part(first, arguments[1])
    raise AssertionError(node.function)


def slow_round(node: ex.ScalarCall, number: Any, digits: int) -> Any:
    if isinstance(number, float) and not math.isfinite(number):
        return number
    with decimal.localcontext(decimal.Context(prec=700)):
        exact = decimal.Decimal(repr(number))
        quantum = decimal.Decimal(10) ** -digits
        steps = (exact / quantum).to_integral_value(decimal.ROUND_HALF_UP)
        return as_result(
            float(steps * quantum) + 0.0 if isinstance(number, float) else int(steps * quantum),
            node,
        )


def slow_date_part(part: str, moment: Any) -> Any:
    fields = {
        "year": moment.year,
        "quarter": (moment.month + 2) // 3,
        "month": moment.month,
        "week": moment.isocalendar().week,
        "day": moment.day,
        "weekday": moment.isoweekday(),
        "day_of_year": moment.timetuple().tm_yday,
    }
    if isinstance(moment, dt.datetime):
        fields |= {
            "hour": moment.hour,
            "minute": moment.minute,
            "second": moment.second,
            "millisecond": moment.microsecond // 1000,
        }
    return fields[part]


# --- random values --------------------------------------------------------------------------------

EDGES = [0, 1, -1, 2, 2**24 + 1, 2**31 - 1, -(2**31), 2**32 - 1, 2**53, 2**53 + 1, -(2**53) - 1]
EDGES += [2**62, 2**63 - 1, 2**63 - 512, -(2**63), 2**63, 2**64 - 1, 2**64 - 2048]


def values_of(scalar: Scalar) -> st.SearchStrategy[Any]:
    if scalar.is_integer:
        low, high = INTEGER_BOUNDS[scalar]
        return st.sampled_from([e for e in EDGES if low <= e <= high]) | st.integers(low, high)
    if scalar.is_float:
        near = [float(e) for e in EDGES] + [0.5, -0.5, 2.5, 0.1, -0.0, 2.0**64, -1e300, 2.675]
        wide = st.sampled_from(near) | st.floats(width=32 if scalar is Scalar.F32 else 64)
        return wide.map(round_to_f32) if scalar is Scalar.F32 else wide
    match scalar:
        case Scalar.STRING:
            return st.text("aAß%_Σé😀", max_size=3)
        case Scalar.BOOL:
            return st.booleans()
        case Scalar.DATE:
            return st.dates()
    return st.datetimes(timezones=st.just(dt.UTC)).map(to_utc_ms)


def nullable(scalar: Scalar) -> st.SearchStrategy[Any]:
    return st.none() | values_of(scalar)


# --- random expressions ---------------------------------------------------------------------------


def value_type(scalar: Scalar, *, is_list: bool = False) -> ValueType:
    return ValueType(scalar, nullable=True, is_list=is_list)


def column_name(scalar: Scalar, *, is_list: bool = False) -> str:
    return f"{scalar.value.lower()}{'s' if is_list else ''}"


def leaf(scalar: Scalar) -> st.SearchStrategy[ex.Expression]:
    typed = value_type(scalar)
    names = [column_name(scalar), f"{column_name(scalar)}_2"]
    return st.one_of(
        st.sampled_from(names).map(lambda n: ex.PropertyValue("", "node", "T", n, typed)),
        nullable(scalar).map(lambda v: ex.Constant(v, typed)),
        st.just(ex.ParameterValue(column_name(scalar), typed)),
    )


def list_leaf(scalar: Scalar) -> st.SearchStrategy[ex.Expression]:
    typed = value_type(scalar, is_list=True)
    name = column_name(scalar, is_list=True)
    return st.one_of(
        st.just(ex.PropertyValue("", "node", "T", name, typed)),
        st.lists(values_of(scalar), max_size=3).map(lambda v: ex.Constant(tuple(v), typed)),
        st.just(ex.ParameterValue(name, typed)),
    )


@st.composite
def numbers(draw: st.DrawFn, depth: int) -> ex.Expression:
    choice = draw(st.integers(0, 5 if depth else 1))
    if choice <= 1:
        return draw(leaf(draw(st.sampled_from(NUMBERS))))
    if choice == 2:
        left, right = draw(numbers(depth - 1)), draw(numbers(depth - 1))
        symbol: Any = draw(st.sampled_from("+-*/"))
        is_float = symbol == "/" or any(e.type.scalar.is_float for e in (left, right))
        result = value_type(Scalar.F64 if is_float else Scalar.I64)
        return ex.ArithmeticValue(symbol, left, right, result)
    if choice == 3:
        inner = draw(numbers(depth - 1))
        function: Any = draw(st.sampled_from(["abs", "round"]))
        arguments = [inner]
        if function == "round":
            arguments.append(ex.Constant(draw(st.integers(-15, 15)), ex.I64))
        return ex.ScalarCall(function, tuple(arguments), widest(inner))
    if choice == 4:
        parts = draw(st.lists(numbers(depth - 1), min_size=1, max_size=3))
        scalars = {part.type.scalar for part in parts}
        result = parts[0].type if len(scalars) == 1 else widest(*parts)
        return ex.ScalarCall("coalesce", tuple(parts), result)
    return draw(counts_and_parts())


def widest(*parts: ex.Expression) -> ValueType:
    scalars = {part.type.scalar for part in parts}
    if any(s.is_float for s in scalars):
        return value_type(Scalar.F64)
    return value_type(Scalar.U64 if scalars == {Scalar.U64} else Scalar.I64)


@st.composite
def counts_and_parts(draw: st.DrawFn) -> ex.Expression:
    if draw(st.booleans()):
        counted = draw(texts(1) | list_leaf(Scalar.I32))
        return ex.ScalarCall("length", (counted,), value_type(Scalar.I64))
    scalar = draw(st.sampled_from([Scalar.DATE, Scalar.DATETIME]))
    parts = ["year", "quarter", "month", "week", "day", "weekday", "day_of_year"]
    if scalar is Scalar.DATETIME:
        parts += ["hour", "minute", "second", "millisecond"]
    part = ex.Constant(draw(st.sampled_from(parts)), ex.STRING)
    return ex.ScalarCall("date_part", (part, draw(leaf(scalar))), value_type(Scalar.I64))


@st.composite
def texts(draw: st.DrawFn, depth: int) -> ex.Expression:
    if not depth or draw(st.booleans()):
        return draw(leaf(Scalar.STRING))
    if draw(st.booleans()):
        function: Any = draw(st.sampled_from(["lower", "upper"]))
        arguments = (draw(texts(depth - 1)),)
        return ex.ScalarCall(function, arguments, value_type(Scalar.STRING))
    parts = tuple(draw(st.lists(texts(depth - 1), min_size=1, max_size=3)))
    return ex.ScalarCall("coalesce", parts, value_type(Scalar.STRING))


@st.composite
def predicates(draw: st.DrawFn, depth: int) -> ex.Expression:
    choice = draw(st.sampled_from(["compare", "number", "text", "list", "null", "combine"]))
    match choice:
        case "number":
            symbol = draw(SYMBOLS)
            left, right = draw(numbers(depth)), draw(numbers(depth))
            if draw(st.booleans()) and right.type.scalar is Scalar.F64:
                right = ex.RoundToF32(right, value_type(Scalar.F32))
            return ex.Compare(symbol, left, right)
        case "text":
            kind: Any = draw(st.sampled_from([ex.TextContains, ex.TextStartsWith]))
            test: ex.Expression = kind(draw(texts(1)), draw(texts(1)))
            return test
        case "list":
            of = draw(st.sampled_from((*NUMBERS, *PLAIN)))
            item_of = draw(st.sampled_from(NUMBERS)) if of in NUMBERS else of
            return ex.ListContains(draw(list_leaf(of)), draw(leaf(item_of)))
        case "null":
            return ex.IsNull(draw(numbers(depth) | texts(1)), draw(st.booleans()))
        case "combine" if depth:
            parts = tuple(draw(st.lists(predicates(depth - 1), min_size=1, max_size=3)))
            return ex.Combine(draw(st.sampled_from(["and", "or"])), parts)
    scalar = draw(st.sampled_from(PLAIN))
    symbol = draw(SYMBOLS)
    right = draw(leaf(scalar) | (st.just(ex.CurrentTime()) if scalar is Scalar.DATETIME else
                                 leaf(scalar)))  # fmt: skip
    return ex.Compare(symbol, draw(leaf(scalar)), right)


def over(arrays: dict[str, Any]) -> Any:
    """The columns of a test, by property."""
    return lambda leaf: arrays[leaf.property]


# --- the comparison -------------------------------------------------------------------------------


@MANY
@given(st.data(), predicates(2) | numbers(2) | texts(2), st.integers(0, ROWS_MAX), st.booleans())
def test_columns_at_once_equal_rows_one_by_one(data, expression, row_count, chunked):
    columns, parameters = {}, {}
    for part in ex.walk(expression):
        if isinstance(part, ex.PropertyValue) and part.property not in columns:
            columns[part.property] = draw_column(data, part.type, row_count)
        elif isinstance(part, ex.ParameterValue) and part.name not in parameters:
            parameters[part.name] = data.draw(one_value(part.type))
    arrays = {name: as_arrow(values, typed, chunked) for name, (values, typed) in columns.items()}
    rows = [{name: values[i] for name, (values, _) in columns.items()} for i in range(row_count)]
    try:
        expected = [slow(expression, row, parameters) for row in rows]
        alone = slow(expression, {}, parameters) if not columns else None
    except Overflow:
        expected = None
    try:
        answer = evaluate(expression, over(arrays), parameters, NOW)
    except InputError:
        # Without rows there is nothing to overflow for the slow twin.
        assert expected is None or row_count == 0
        return
    if expected is None:
        raise AssertionError(f"expected an overflow, got {answer}")
    assert answer.type == arrow_type(expression.type)
    if isinstance(answer, pa.Scalar):
        assert all(identical(answer.as_py(), e) for e in [alone] * (not columns) + expected)
    else:
        assert len(answer) == row_count
        assert all(identical(a, e) for a, e in zip(answer.to_pylist(), expected, strict=True))


# The walk above rarely meets two operands that are hard to tell apart, so these pair many at once.


def neighbours(scalar: Scalar) -> st.SearchStrategy[list[Any]]:
    """Values of a type, most of them next to an edge of some type."""
    if scalar.is_integer:
        low, high = INTEGER_BOUNDS[scalar]
        near = st.builds(operator.add, st.sampled_from(EDGES), st.integers(-2, 2))
        return st.lists(st.none() | near.map(lambda n: min(max(n, low), high)), max_size=12)
    near = st.builds(
        lambda edge, step: float(edge) + step, st.sampled_from(EDGES), st.sampled_from([-0.5, 0, 1])
    )
    floats = near | values_of(scalar)
    return st.lists(
        st.none() | (floats.map(round_to_f32) if scalar is Scalar.F32 else floats), max_size=12
    )


@given(st.data(), st.sampled_from(NUMBERS), st.sampled_from(NUMBERS))
def test_any_two_numbers_compare_by_mathematical_value(data: Any, left_scalar, right_scalar):
    lefts, rights = data.draw(neighbours(left_scalar)), data.draw(neighbours(right_scalar))
    pairs = [(a, b) for a in lefts for b in rights]
    left = pa.array([a for a, _ in pairs], arrow_type(ValueType(left_scalar)))
    right = pa.array([b for _, b in pairs], arrow_type(ValueType(right_scalar)))
    for symbol, test in COMPARISONS.items():
        expected = [None if a is None or b is None else test(a, b) for a, b in pairs]
        assert compare(symbol, left, right).to_pylist() == expected
    for one in right[:2]:
        known = [None if a is None or not one.is_valid else a < one.as_py() for a, _ in pairs]
        assert compare("<", left, one).to_pylist() == known


@given(st.data(), st.sampled_from(NUMBERS), st.sampled_from(NUMBERS))
def test_membership_among_numbers_is_equality_with_one_of_them(data, member_scalar, item_scalar):
    members, items = data.draw(neighbours(member_scalar)), data.draw(neighbours(item_scalar))
    member_type = arrow_type(ValueType(member_scalar, is_list=True))
    item_column = pa.array(items, arrow_type(ValueType(item_scalar)))
    expected = [any(same(item, member) for member in members) for item in items]
    assert list_contains(pa.scalar(members, member_type), item_column).to_pylist() == expected
    lists = pa.array([members] * len(items), member_type)
    assert list_contains(lists, item_column).to_pylist() == expected


@given(
    st.lists(st.floats() | st.integers(-(10**9), 10**9).map(lambda n: float(f"{n}5e-5"))),
    st.just(4) | st.integers(-15, 15),
)
def test_round_goes_by_the_shortest_digits(values, digits):
    call = ex.ScalarCall("round", (ex.Constant(None, F64_OR_NULL),), F64_OR_NULL)
    column = pa.array(values, pa.float64())
    expected = [slow_round(call, value, digits) for value in values]
    actual = rounded(column, digits, F64_OR_NULL).to_pylist()
    assert all(identical(a, e) for a, e in zip(actual, expected, strict=True))


@given(
    st.data(), st.sampled_from(NUMBERS[:4]), st.sampled_from(NUMBERS[:4]), st.sampled_from("+-*")
)
def test_integers_are_computed_exactly_or_not_at_all(data, left_scalar, right_scalar, symbol):
    left = data.draw(neighbours(left_scalar))[:3]
    right = data.draw(neighbours(right_scalar))[: len(left)]
    left = left[: len(right)]
    node = ex.ArithmeticValue(
        symbol,
        ex.PropertyValue("", "node", "T", "a", value_type(left_scalar)),
        ex.PropertyValue("", "node", "T", "b", value_type(right_scalar)),
        value_type(Scalar.I64),
    )
    columns = {
        "a": pa.array(left, arrow_type(node.left.type)),
        "b": pa.array(right, arrow_type(node.right.type)),
    }
    try:
        expected = [slow_arithmetic(node, a, b) for a, b in zip(left, right, strict=True)]
    except Overflow:
        with pytest.raises(InputError):
            evaluate(node, over(columns), {}, NOW)
    else:
        answer = evaluate(node, over(columns), {}, NOW)
        assert answer.to_pylist() == expected


def one_value(typed: ValueType) -> st.SearchStrategy[Any]:
    if typed.is_list:
        return st.none() | st.lists(values_of(typed.scalar), max_size=3)
    return nullable(typed.scalar)


def draw_column(data: st.DataObject, typed: ValueType, row_count: int) -> tuple[list[Any], Any]:
    items = one_value(typed)
    if typed.is_list:
        items = st.none() | st.lists(nullable(typed.scalar), max_size=3)
    return data.draw(st.lists(items, min_size=row_count, max_size=row_count)), typed


def as_arrow(values: list[Any], typed: ValueType, chunked: bool) -> Any:
    array = pa.array(values, arrow_type(typed))
    return pa.chunked_array([array[:2], array[2:]]) if chunked else array


def identical(actual: Any, expected: Any) -> bool:
    if isinstance(expected, float) and math.isnan(expected):
        return isinstance(actual, float) and math.isnan(actual)
    return type(actual) is type(expected) and actual == expected
