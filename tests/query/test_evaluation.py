"""Each rule of evaluation by example; `test_evaluation_properties` compares with a slow twin."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.errors import InputError, InternalError
from omnigraph.model.arrow import TIMESTAMP
from omnigraph.model.types import Scalar, ValueType
from omnigraph.query import expressions as ex
from omnigraph.query.evaluate import evaluate, holds, scalar_operand
from omnigraph.query.functions import date_part

NOW = dt.datetime(2031, 4, 9, 7, 30, 0, 123456, tzinfo=dt.UTC)
ARROW = {
    Scalar.STRING: pa.string(),
    Scalar.BOOL: pa.bool_(),
    Scalar.I32: pa.int32(),
    Scalar.I64: pa.int64(),
    Scalar.U32: pa.uint32(),
    Scalar.U64: pa.uint64(),
    Scalar.F32: pa.float32(),
    Scalar.F64: pa.float64(),
    Scalar.DATE: pa.date32(),
    Scalar.DATETIME: TIMESTAMP,
}
BIG = 2**53 + 1
NAN = math.nan


def type_of(scalar: Scalar, *, is_list: bool = False) -> ValueType:
    return ValueType(scalar, nullable=True, is_list=is_list)


def column(scalar: Scalar, *, is_list: bool = False, name: str = "x") -> ex.PropertyValue:
    return ex.PropertyValue("", "node", "T", name, type_of(scalar, is_list=is_list))


def literal(value: Any, scalar: Scalar) -> ex.Constant:
    if isinstance(value, tuple):
        return ex.Constant(value, type_of(scalar, is_list=True))
    return ex.Constant(value, type_of(scalar))


def over(arrays: dict[str, Any]) -> Any:
    """The columns of a test, by property."""
    return lambda leaf: arrays[leaf.property]


def run(expression: ex.Expression, parameters: Any = None, **values: Any):
    """The value of an expression over columns given as Python lists or Arrow arrays, as a list."""
    arrays = {}
    for part in ex.walk(expression):
        if isinstance(part, ex.PropertyValue):
            arrow = ARROW[part.type.scalar]
            arrow = pa.list_(arrow) if part.type.is_list else arrow
            given = values[part.property]
            arrays[part.property] = pa.array(given, arrow) if isinstance(given, list) else given
    answer = evaluate(expression, over(arrays), parameters or {}, NOW)
    return answer.as_py() if isinstance(answer, pa.Scalar) else answer.to_pylist()


def compared(operator: Any, values: Any, scalar: Scalar, other: ex.Expression):
    return run(ex.Compare(operator, column(scalar), other), x=values)


# --- comparisons ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("operator", "expected"),
    [
        ("=", [False, False, False]),
        ("!=", [True, True, False]),
        ("<", [True, False, False]),
        ("<=", [True, False, False]),
        (">", [False, True, False]),
        (">=", [False, True, False]),
    ],
)
def test_c_qry_039_fraction_against_integer_column_compares_by_value(operator, expected):
    assert compared(operator, [2, 3, None], Scalar.I32, literal(2.7, Scalar.F64)) == expected


def test_large_integers_compare_exactly_with_floats():
    values = [BIG - 1, BIG, BIG + 1]
    assert compared("=", values, Scalar.I64, literal(float(2**53), Scalar.F64)) == [
        True,
        False,
        False,
    ]
    assert compared(">", values, Scalar.I64, literal(float(2**53), Scalar.F64)) == [
        False,
        True,
        True,
    ]
    assert compared("<", [2**64 - 1], Scalar.U64, literal(2.0**64, Scalar.F64)) == [True]
    assert compared(">", [0], Scalar.U64, literal(-0.5, Scalar.F64)) == [True]
    assert compared("<", [-(2**63)], Scalar.I64, literal(-(2.0**63), Scalar.F64)) == [False]
    assert compared(">", [-(2**63)], Scalar.I64, literal(-1e300, Scalar.F64)) == [True]


def test_unsigned_and_signed_integers_compare_exactly():
    values = [2**64 - 1, 2**63, 5, None]
    assert compared(">", values, Scalar.U64, literal(-1, Scalar.I64)) == [True, True, True, False]
    assert compared("=", values, Scalar.U64, literal(-1, Scalar.I64)) == [False] * 4
    assert compared("<=", values, Scalar.U64, literal(5, Scalar.I64)) == [
        False,
        False,
        True,
        False,
    ]
    assert compared("!=", values, Scalar.U64, literal(None, Scalar.I64)) == [False] * 4


def test_nan_is_unequal_to_everything():
    for other in (literal(NAN, Scalar.F64), literal(1, Scalar.I64), literal(1.5, Scalar.F64)):
        assert compared("!=", [NAN], Scalar.F64, other) == [True]
        for operator in ("=", "<", "<=", ">", ">="):
            assert compared(operator, [NAN], Scalar.F64, other) == [False]
    assert compared("!=", [2**60], Scalar.I64, literal(NAN, Scalar.F64)) == [True]
    assert compared("<", [2**60], Scalar.I64, literal(NAN, Scalar.F64)) == [False]


def test_c_qry_040_float_parameter_is_rounded_for_an_f32_column():
    rounded = ex.RoundToF32(ex.ParameterValue("p", ex.F64))
    test = ex.Compare("=", column(Scalar.F32), rounded)
    assert run(test, {"p": 0.1}, x=[0.1, 0.2]) == [True, False]
    assert run(ex.Compare("<", column(Scalar.F32), rounded), {"p": 1e39}, x=[3e38]) == [True]
    exact = ex.Compare("=", column(Scalar.F32), literal(0.1, Scalar.F64))
    assert run(exact, x=[0.1]) == [False]


def test_c_qry_038_null_never_satisfies_a_test():
    text, null = column(Scalar.STRING), literal(None, Scalar.STRING)
    for test in (
        ex.Compare("=", text, null),
        ex.Compare("!=", text, null),
        ex.TextContains(text, null),
        ex.TextContains(null, text),
        ex.TextStartsWith(text, null),
        ex.ListContains(ex.Constant(None, type_of(Scalar.STRING, is_list=True)), text),
        ex.ListContains(literal(("a",), Scalar.STRING), null),
    ):
        assert list_of(test, 2, x=["a", None]) == [False, False]


def list_of(predicate: ex.Expression, row_count: int, **values: Any) -> list[bool]:
    arrays = {name: pa.array(given, pa.string()) for name, given in values.items()}
    mask = holds(predicate, over(arrays), {}, NOW, row_count)
    result: list[bool] = mask.to_pylist()
    return result


def test_text_compares_by_utf8_bytes_and_bool_false_first():
    # U+FFFD is smaller than U+1F600 in UTF-8, and larger in UTF-16.
    assert compared("<", ["\N{REPLACEMENT CHARACTER}"], Scalar.STRING, literal("😀", Scalar.STRING))
    assert compared("<", [False, True], Scalar.BOOL, literal(True, Scalar.BOOL)) == [True, False]


def test_moments_compare_with_now_cut_to_milliseconds():
    same = dt.datetime(2031, 4, 9, 7, 30, 0, 123000, tzinfo=dt.UTC)
    assert compared("=", [same, None], Scalar.DATETIME, ex.CurrentTime()) == [True, False]


# --- containment ----------------------------------------------------------------------------------


def test_c_qry_041_contains_is_literal_and_case_sensitive():
    def found(needle: str) -> object:
        test = ex.TextContains(column(Scalar.STRING), literal(needle, Scalar.STRING))
        return run(test, x=["50% of_it", "Half", "", None])

    assert found("%") == [True, False, False, False]
    assert found("_") == [True, False, False, False]
    assert found("h") == [False, False, False, False]
    assert found(".") == [False, False, False, False]
    assert found("") == [True, True, True, False]


def test_c_qry_042_literal_may_stand_left_and_columns_compare_row_by_row():
    name = column(Scalar.STRING)
    inside = ex.TextContains(literal("ann of oz", Scalar.STRING), name)
    assert run(inside, x=["ann", "bob", "", None]) == [True, False, True, False]
    prefix = ex.TextStartsWith(name, column(Scalar.STRING, name="y"))
    assert run(prefix, x=["annex", "bob", None], y=["ann", "ob", "x"]) == [True, False, False]


def test_list_column_membership_skips_nulls_and_survives_slices():
    lists = pa.chunked_array([[[9]], [[1, None], None, [], [2, 3]]], pa.list_(pa.int32()))
    test = ex.ListContains(column(Scalar.I32, is_list=True), literal(1.0, Scalar.F64))
    assert run(test, x=lists[1:]) == [True, False, False, False]
    per_row = ex.ListContains(column(Scalar.I32, is_list=True), column(Scalar.I64, name="y"))
    assert run(per_row, x=lists[1:], y=[1, 1, 1, 3]) == [True, False, False, True]


def test_membership_in_a_constant_list_goes_by_value():
    def among(values: Any, scalar: Scalar, members: Any, of: Scalar):
        return run(ex.ListContains(literal(members, of), column(scalar)), x=values)

    assert among([1, 2, None], Scalar.I32, (1.0, 2.5), Scalar.F64) == [True, False, False]
    assert among([BIG, BIG - 1], Scalar.I64, (float(BIG),), Scalar.F64) == [False, True]
    assert among([0.0, -0.0, NAN], Scalar.F64, (-0.0, NAN), Scalar.F64) == [True, True, False]
    assert among([0.5, 3.0], Scalar.F32, (3,), Scalar.I64) == [False, True]
    assert among([2**64 - 1], Scalar.U64, (-1,), Scalar.I64) == [False]
    assert among(["a", None], Scalar.STRING, ("a", "b"), Scalar.STRING) == [True, False]
    assert among(["a"], Scalar.STRING, (), Scalar.STRING) == [False]


def test_list_parameter_is_rounded_for_an_f32_column():
    rounded = ex.RoundToF32(
        ex.ParameterValue("p", ValueType(Scalar.F64, is_list=True)),
        ValueType(Scalar.F32, is_list=True),
    )
    assert run(ex.ListContains(rounded, column(Scalar.F32)), {"p": [0.1, 7.0]}, x=[0.1, 0.2]) == [
        True,
        False,
    ]


def test_null_tests_are_two_valued_and_combine():
    text = column(Scalar.STRING)
    is_null, is_set = ex.IsNull(text, False), ex.IsNull(text, True)
    is_a = ex.Compare("=", text, literal("a", Scalar.STRING))
    values = {"x": ["a", "b", None]}
    assert run(is_null, **values) == [False, False, True]
    assert run(is_set, **values) == [True, True, False]
    assert run(ex.Combine("or", (is_null, is_a)), **values) == [True, False, True]
    assert run(ex.Combine("and", (is_set, is_a)), **values) == [True, False, False]


# --- arithmetic and functions ---------------------------------------------------------------------


def computed(operator: Any, left: ex.Expression, right: ex.Expression, scalar: Scalar):
    return ex.ArithmeticValue(operator, left, right, type_of(scalar))


def test_integer_overflow_is_an_error_that_shows_the_operands():
    total = computed("+", column(Scalar.I64), literal(1, Scalar.I64), Scalar.I64)
    assert run(total, x=[2**63 - 2, None]) == [2**63 - 1, None]
    with pytest.raises(InputError, match=r"9223372036854775807 \+ 1 does not fit I64") as caught:
        run(total, x=[1, 2**63 - 1])
    assert caught.value.hint is not None


def test_operands_beyond_i64_are_fine_if_the_result_fits():
    difference = computed("-", column(Scalar.U64), column(Scalar.U64, name="y"), Scalar.I64)
    assert run(difference, x=[2**64 - 1, None], y=[2**64 - 3, 1]) == [2, None]
    constant = computed("-", literal(2**64 - 1, Scalar.U64), literal(2**64 - 3, Scalar.U64),
                        Scalar.I64)  # fmt: skip
    assert run(constant) == 2


def test_division_is_f64_and_null_by_zero():
    quotient = computed("/", column(Scalar.I32), column(Scalar.I32, name="y"), Scalar.F64)
    assert run(quotient, x=[7, 1, 0, None], y=[2, 0, 0, 1]) == [3.5, None, None, None]


def called(function: Any, scalar: Scalar, *arguments: ex.Expression) -> ex.ScalarCall:
    return ex.ScalarCall(function, arguments, type_of(scalar))


def test_case_mapping_is_that_of_unicode():
    lower, upper = (called(f, Scalar.STRING, column(Scalar.STRING)) for f in ("lower", "upper"))
    assert run(upper, x=["straße", "abc", None, "ﬁ"]) == ["STRASSE", "ABC", None, "FI"]
    assert run(lower, x=["ΟΔΟΣ", "ABC", None]) == ["οδος", "abc", None]
    assert run(upper, x=pa.chunked_array([["a"], ["é", None]])) == ["A", "É", None]
    assert run(called("upper", Scalar.STRING, literal("ß", Scalar.STRING))) == "SS"


def test_length_counts_characters_and_elements():
    text = called("length", Scalar.I64, column(Scalar.STRING))
    assert run(text, x=["é😀", "", None]) == [2, 0, None]
    items = called("length", Scalar.I64, column(Scalar.STRING, is_list=True))
    assert run(items, x=[["a", None], [], None]) == [2, 0, None]


def test_coalesce_takes_the_first_value_and_checks_only_what_it_takes():
    first = called("coalesce", Scalar.I64, column(Scalar.I32), column(Scalar.U64, name="y"))
    assert run(first, x=[1, None], y=[2**64 - 1, 5]) == [1, 5]
    with pytest.raises(InputError, match="does not fit I64"):
        run(first, x=[None], y=[2**64 - 1])
    text = called("coalesce", Scalar.STRING, column(Scalar.STRING), literal("-", Scalar.STRING))
    assert run(text, x=["a", None]) == ["a", "-"]


def test_abs_of_every_kind_of_number():
    assert run(called("abs", Scalar.I64, column(Scalar.I32)), x=[-5, 5, None]) == [5, 5, None]
    assert run(called("abs", Scalar.U64, column(Scalar.U64)), x=[2**64 - 1]) == [2**64 - 1]
    assert run(called("abs", Scalar.F64, column(Scalar.F32)), x=[-0.5]) == [0.5]
    with pytest.raises(InputError, match="does not fit I64"):
        run(called("abs", Scalar.I64, column(Scalar.I64)), x=[-(2**63)])


def test_round_goes_half_away_from_zero_by_the_visible_digits():
    def rounds(values: Any, digits: int, scalar: Scalar = Scalar.F64):
        result = Scalar.F64 if scalar.is_float else Scalar.I64
        return run(called("round", result, column(scalar), literal(digits, Scalar.I64)), x=values)

    assert rounds([2.675, 1.005, -1.005, 0.125, None], 2) == [2.68, 1.01, -1.01, 0.13, None]
    assert rounds([0.5, 1.5, -0.5, 2.4999999999999996], 0) == [1.0, 2.0, -1.0, 2.0]
    assert str(rounds([-0.4], 0)) == "[0.0]"
    assert rounds([math.inf, -math.inf, 1e300, 2.0**53 + 2], 3) == [
        math.inf,
        -math.inf,
        1e300,
        2.0**53 + 2,
    ]
    assert rounds([1250.0, 1.7976931348623157e308], -2) == [1300.0, 1.7976931348623157e308]
    assert rounds([25, -25, 24], -1, Scalar.I32) == [30, -30, 20]
    assert rounds([25], 3, Scalar.I32) == [25]
    with pytest.raises(InputError, match="does not fit I64"):
        rounds([2**63 - 1], -1, Scalar.I64)
    assert run(called("round", Scalar.F64, column(Scalar.F64)), x=[2.5]) == [3.0]
    assert run(called("round", Scalar.F64, literal(2.5, Scalar.F64))) == 3.0


def test_date_parts_follow_iso_8601_in_utc():
    day = pa.scalar(dt.date(2027, 1, 3), pa.date32())  # a Sunday, of the last week of 2026
    expected = {"year": 2027, "quarter": 1, "month": 1, "week": 53, "day": 3, "weekday": 7}
    expected |= {"day_of_year": 3}
    assert {part: date_part(part, day).as_py() for part in expected} == expected
    moment = pa.scalar(NOW.replace(microsecond=123000), TIMESTAMP)
    clock = {"hour": 7, "minute": 30, "second": 0, "millisecond": 123, "weekday": 3, "week": 15}
    assert {part: date_part(part, moment).as_py() for part in clock} == clock
    part = called("date_part", Scalar.I64, literal("year", Scalar.STRING), column(Scalar.DATE))
    assert run(part, x=[dt.date(1, 1, 1), dt.date(9999, 12, 31), None]) == [1, 9999, None]


# --- the entry points -----------------------------------------------------------------------------


def test_a_predicate_without_columns_holds_for_all_rows_or_none():
    always = ex.Compare("<", literal(1, Scalar.I64), literal(2.5, Scalar.F64))
    never = ex.Combine("and", (always, ex.IsNull(literal(1, Scalar.I64), False)))
    assert list_of(always, 3) == [True, True, True]
    assert list_of(never, 2) == [False, False]
    both = ex.Combine("and", (always, ex.IsNull(column(Scalar.STRING), False)))
    assert list_of(both, 2, x=[None, "a"]) == [True, False]


def test_scalar_operand_reads_no_column():
    assert scalar_operand(ex.ParameterValue("p", ex.STRING), {"p": "a"}, NOW).as_py() == "a"
    with pytest.raises(InternalError, match="no row"):
        scalar_operand(column(Scalar.STRING), {}, NOW)


@pytest.mark.parametrize(
    "expression",
    [
        ex.TextMatch("search", "b", "Book", "title", literal("x", Scalar.STRING)),
        ex.Bm25("b", "Book", "title", literal("x", Scalar.STRING)),
        ex.AggregateValue("count", None, False, ex.I64),
    ],
)
def test_what_needs_more_than_a_row_is_refused(expression):
    with pytest.raises(InternalError, match="not a value of a single row"):
        evaluate(expression, lambda leaf: pa.array([]), {}, NOW)
