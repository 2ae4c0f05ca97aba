"""Conditionals, dates, texts and numbers, each against plain Python on random values."""

from __future__ import annotations

import datetime as dt
import math
import re
import sys
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import InputError, LimitExceeded
from omnigraph.model.arrow import arrow_type
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import round_to_f32
from omnigraph.query import expressions as ex
from omnigraph.query import functions as fn
from omnigraph.query.compile import compile_query
from omnigraph.query.evaluate import evaluate
from omnigraph.query.plan import ReadPlan
from omnigraph.schema.compile import compile_schema
from tests.support.reference.run import EPOCH
from tests.support.reference.search import Search
from tests.support.reference.tail import aggregate
from tests.support.reference.values import Row

TYPES = {
    "s": Scalar.STRING,
    "t": Scalar.STRING,
    "i": Scalar.I64,
    "j": Scalar.I32,
    "u": Scalar.U64,
    "f": Scalar.F64,
    "g": Scalar.F64,
    "h": Scalar.F32,
    "d": Scalar.DATE,
    "e": Scalar.DATE,
    "m": Scalar.DATETIME,
    "n": Scalar.DATETIME,
    "b": Scalar.BOOL,
}
SCHEMA = "node X { key: String @key " + " ".join(f"{n}: {t.value}?" for n, t in TYPES.items()) + "}"
CATALOG = compile_schema(SCHEMA).catalog

EXPRESSIONS = r"""
concat($s, $t)
concat($s, "-", $t, "é")
substring($s, 1)
substring($s, 1, 2)
substring($s, -2, 3)
substring($s, $j, 2)
substring($s, $j, $i)
split($s, "a")
split($s, "")
split($s, $t)
replace($s, "a", "bé")
replace($s, "", "x")
replace($s, $t, "--")
trim($s)
trim(concat(" \t", $s, "\n"))
if($s ends_with "a", 1, 0)
if($s ends_with $t, 1, 0)
if($s contains $t or $s starts_with "b", "in", "out")
if($s matches "^a+b?$", 1, 0)
if($s matches "(?i)É|[0-9]", 1, 0)
floor($f)
ceil($f)
floor($h)
ceil($i)
floor($u)
sqrt($f)
sqrt($u)
log($f)
log($i)
pow($f, $g)
pow($j, 2)
pow($f, 0.5)
$i % $j
$f % $g
$i % $f
$u % $i
$i % 0
$d - $e
$m - $n
$d + days(30)
$d - days($j)
weeks(2) + $d
$d + months(1)
$d - months($j)
$d + years($j)
$m + hours($j)
$m - minutes(90)
$m + seconds($i)
$m + milliseconds($i)
$m + months($j)
$m - years(1)
$m + weeks($j)
date_trunc("year", $d)
date_trunc("quarter", $d)
date_trunc("month", $d)
date_trunc("week", $d)
date_trunc("day", $d)
date_trunc("year", $m)
date_trunc("quarter", $m)
date_trunc("month", $m)
date_trunc("week", $m)
date_trunc("day", $m)
date_trunc("hour", $m)
date_trunc("minute", $m)
date_trunc("second", $m)
if($b, $i, $j)
if($b, $i)
if($b, $i * $i, 0)
if($i > 0 and $i < 1000, $i * $i, $j)
if($b, $u, $i)
if($b, $h, $f)
case { $i < 0: "neg", $i = 0: "zero", else: "pos" }
case { $i is null: 0, $b: $i * 2, ($j > 0 or $f > 0.0) and $b = false: $j }
split($s, "a")[0]
split($s, "a")[$j]
split($s, $t)[$u]
[3, 5, 7][$i]
size(split($s, "b"))
case { $d > $e: $d, $d < $e: $e, else: $d + days(1) }
"""
LINES = EXPRESSIONS.strip().splitlines()

TEXTS = st.text(st.sampled_from("abAB01 é☃\t%."), max_size=6)
SPECIAL = [0.0, -0.0, 0.5, -0.5, 2.0, -2.0, 1e308, -1e308, 5e-324, math.inf, -math.inf, math.nan]
FLOATS = st.sampled_from(SPECIAL) | st.floats(-1e6, 1e6)
I64 = st.sampled_from([0, 1, -1, 7, -(2**63), 2**63 - 1]) | st.integers(-1000, 1000)
MOMENTS = st.datetimes(timezones=st.just(dt.UTC)).map(
    lambda moment: moment.replace(microsecond=moment.microsecond // 1000 * 1000)
)
VALUES: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.STRING: TEXTS,
    Scalar.I64: I64,
    Scalar.I32: st.sampled_from([0, 1, -1, 2, 12, -(2**31), 2**31 - 1]) | st.integers(-50, 50),
    Scalar.U64: st.sampled_from([0, 3, 2**64 - 1]) | st.integers(0, 100),
    Scalar.F64: FLOATS,
    Scalar.F32: FLOATS.filter(lambda x: not 1e38 < abs(x) < math.inf).map(round_to_f32),
    Scalar.DATE: st.dates() | st.sampled_from([dt.date.min, dt.date.max, dt.date(2024, 1, 31)]),
    Scalar.DATETIME: MOMENTS,
    Scalar.BOOL: st.booleans(),
}
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | VALUES[scalar] for name, scalar in TYPES.items()}),
    max_size=4,
)


@cache
def compiled(text: str, as_parameters: bool) -> ex.Expression:
    declared = ", ".join(f"${name}: {scalar.value}?" for name, scalar in TYPES.items())
    shown = text if as_parameters else re.sub(r"\$(\w)\b", r"$x.\1", text)
    parameters = declared if as_parameters else ""
    query = f"query q({parameters}) {{ match {{ $x: X }} return {{ {shown} as v }} }}"
    plan = compile_query(query, CATALOG)
    assert isinstance(plan, ReadPlan)
    expression = plan.columns[0].expression
    assert not isinstance(expression, ex.EntityObject | ex.RecordList)
    return expression


def expected(expression: ex.Expression, rows: list[dict[str, Any]]) -> list[Any] | None:
    """What plain Python says, row by row; None if it refuses one of them."""
    search = Search({}, {}, lambda text: [], lambda call, text: [])
    try:
        return [Row({"x": row}, row, EPOCH, search).value(expression) for row in rows]
    except InputError:
        return None


def same(left: Any, right: Any) -> bool:
    if isinstance(left, float) and isinstance(right, float):
        return left == right or (math.isnan(left) and math.isnan(right))
    return type(left) is type(right) and left == right


@given(rows=ROWS, chunked=st.booleans())
def test_c_qry_087_computations_over_columns_equal_plain_python(rows, chunked):
    for text in LINES:
        expression = compiled(text, as_parameters=False)
        answers = expected(expression, rows)

        def column(leaf: Any) -> Any:
            type = arrow_type(ValueType(TYPES[leaf.property]))
            values = pa.array([row[leaf.property] for row in rows], type)
            return pa.chunked_array([values[:1], values[1:]], type) if chunked else values

        try:
            found = evaluate(expression, column, {}, EPOCH)
        except InputError:
            assert answers is None, text
            continue
        assert answers is not None, text
        assert found.type == arrow_type(expression.type)
        shown = [found.as_py()] * len(rows) if isinstance(found, pa.Scalar) else found.to_pylist()
        assert len(shown) == len(answers)
        assert all(map(same, shown, answers)), (text, shown, answers)


@given(rows=ROWS)
def test_c_qry_087_computations_over_parameters_equal_plain_python(rows):
    for row in rows:
        for text in LINES:
            expression = compiled(text, as_parameters=True)
            answers = expected(expression, [row])
            try:
                found = evaluate(expression, lambda leaf: None, row, EPOCH)
            except InputError:
                assert answers is None, text
                continue
            assert answers is not None, text
            assert same(found.as_py(), answers[0]), (text, found, answers)


def test_c_qry_087_trim_removes_what_python_calls_white_space():
    every = [chr(code) for code in range(sys.maxunicode + 1) if not 0xD800 <= code < 0xE000]
    padded = pa.array([f"{character}x{character}" for character in every])
    assert fn.trimmed(padded).to_pylist() == [text.strip() for text in padded.to_pylist()]


@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.none() | st.integers(-5, 5) | st.sampled_from(SPECIAL)),
        max_size=12,
    ),
    st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0]),
)
def test_c_qry_087_percentiles_and_deviations_equal_plain_python(rows, fraction):
    rows = [(group, value) for group, value in rows if value is not None]
    numbers = np.array([float(value) for _, value in rows])
    group = np.array([group for group, _ in rows], np.int64)
    percentiles = fn.percentiles(numbers, group, 4, fraction).to_pylist()
    deviations = fn.deviations(numbers, group, 4).to_pylist()
    value = ex.OutputValue("v", ex.F64)
    search = Search({}, {}, lambda text: [], lambda call, text: [])
    for at in range(4):
        members = [Row({}, {}, EPOCH, search, {"v": float(v)}) for g, v in rows if g == at]
        wanted = ex.AggregateValue("percentile", value, False, ex.F64)
        assert same(percentiles[at], aggregate(wanted, members, fraction))
        own = [float(v) for g, v in rows if g == at]
        if len(own) < 2:
            assert deviations[at] is None
        elif all(abs(v) < 1e100 for v in own):
            assert deviations[at] == pytest.approx(float(np.std(own, ddof=1)))


@pytest.mark.parametrize("pattern", ["(", "a{2000}", r"(?=a)", r"(a)\1", "x" * 1001])
def test_c_qry_087_a_pattern_that_is_not_of_linear_time_or_size_is_refused(pattern):
    assert fn.pattern_problem(pattern) is not None
    with pytest.raises(InputError, match="not a regular expression"):
        fn.text_matches(pa.array(["a"]), pa.scalar(pattern))


def test_c_qry_087_computed_texts_are_bounded():
    long = pa.array(["a" * (1 << 20)] * 2)
    with pytest.raises(LimitExceeded, match="bytes of a computed text"):
        fn.concat([long] * 17)
    with pytest.raises(LimitExceeded, match="bytes of a computed text"):
        fn.replaced(long, pa.scalar("a"), pa.scalar("b" * 17))
    with pytest.raises(LimitExceeded, match="bytes of a computed text"):
        fn.replaced(long, pa.array(["a", "a"]), pa.scalar("b" * 17))
    many = pa.array(["a" * (1 << 20)] * 140)
    with pytest.raises(LimitExceeded, match="column of computed texts"):
        fn.concat([many] * 15)


def test_c_qry_087_a_branch_is_computed_for_its_rows_only():
    expression = compiled("if($i < 10, $i * $i, 0)", as_parameters=False)
    numbers = pa.array([3, 2**62, None])
    assert evaluate(expression, lambda _: numbers, {}, EPOCH).to_pylist() == [9, 0, 0]
