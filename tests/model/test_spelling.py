"""Canonical spellings, one value and one column at a time."""

from __future__ import annotations

import datetime as dt
import json
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import ValueConversionError
from omnigraph.model.arrow import arrow_type, column_from_values, entity_id_column, spell_column
from omnigraph.model.types import INTEGER_BOUNDS, Scalar, ValueType
from omnigraph.model.values import (
    DAYS_MAX,
    DAYS_MIN,
    MS_MAX,
    MS_MIN,
    date_from_days,
    datetime_from_ms,
    entity_id,
    round_to_f32,
    spell,
)

F32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
F64 = st.floats(allow_nan=False, allow_infinity=False)
VALUES: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.STRING: st.text(),
    Scalar.BOOL: st.booleans(),
    **{scalar: st.integers(*bounds) for scalar, bounds in INTEGER_BOUNDS.items()},
    Scalar.F32: F32,
    Scalar.F64: F64,
    Scalar.DATE: st.integers(DAYS_MIN, DAYS_MAX).map(date_from_days),
    Scalar.DATETIME: st.integers(MS_MIN, MS_MAX).map(datetime_from_ms),
}


@pytest.mark.parametrize(
    ("scalar", "value", "expected"),
    [
        (Scalar.STRING, "Ünï code", "Ünï code"),
        (Scalar.STRING, "", ""),
        (Scalar.BOOL, True, "true"),
        (Scalar.BOOL, False, "false"),
        (Scalar.I32, -7, "-7"),
        (Scalar.I64, -(2**63), "-9223372036854775808"),
        (Scalar.U32, 0, "0"),
        (Scalar.U64, 2**64 - 1, "18446744073709551615"),
        (Scalar.DATE, dt.date(1970, 1, 1), "0"),
        (Scalar.DATE, dt.date(1969, 12, 30), "-2"),
        (Scalar.DATETIME, dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC), "1000"),
        (Scalar.DATETIME, dt.datetime(1969, 12, 31, 23, 59, 59, 999_000, tzinfo=dt.UTC), "-1"),
        (Scalar.F64, 1.0, "1"),
        (Scalar.F64, 1e-7, "0.0000001"),
        (Scalar.F64, 1e21, "1000000000000000000000"),
        (Scalar.F64, -2.5, "-2.5"),
        (Scalar.F64, 0.0, "0"),
        (Scalar.F64, -0.0, "0"),
        (Scalar.F64, 10.0, "10"),
        (Scalar.F64, 123456789.125, "123456789.125"),
        (Scalar.F64, 5e-324, "0." + "0" * 323 + "5"),
        (Scalar.F64, 0.1, "0.1"),
        (Scalar.F64, round_to_f32(0.1), "0.10000000149011612"),
        (Scalar.F32, round_to_f32(0.1), "0.1"),
        (Scalar.F32, 16777216.0, "16777216"),
        (Scalar.F32, 1e21, "1000000000000000000000"),
        (Scalar.F32, -0.0, "0"),
        (Scalar.F32, 3.4028234663852886e38, "34028235" + "0" * 31),
    ],
)
def test_c_sch_034_spelling_of_every_key_type(scalar: Scalar, value: object, expected: str) -> None:
    type = ValueType(scalar)
    assert spell(value, type) == expected
    assert spell_column(pa.array([value, None], arrow_type(type)), type).to_pylist() == [
        expected,
        None,
    ]


@pytest.mark.parametrize("scalar", [Scalar.F32, Scalar.F64])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_c_sch_034_non_finite_floats_are_refused(scalar: Scalar, value: float) -> None:
    type = ValueType(scalar)
    with pytest.raises(ValueConversionError, match="non-finite"):
        spell(value, type)
    with pytest.raises(ValueConversionError, match="non-finite"):
        spell_column(pa.array([1.0, None, value], arrow_type(type)), type)


@pytest.mark.parametrize("value", [b"bytes", [1], None])
def test_values_that_cannot_be_keys_have_no_spelling(value: object) -> None:
    with pytest.raises(TypeError, match="no canonical spelling"):
        spell(value, ValueType(Scalar.STRING))


@given(st.sampled_from(list(VALUES)), st.data())
def test_c_sch_034_column_spelling_equals_value_spelling(
    scalar: Scalar, data: st.DataObject
) -> None:
    type = ValueType(scalar, nullable=True)
    values = data.draw(st.lists(st.none() | VALUES[scalar]))
    expected = [None if value is None else spell(value, type) for value in values]
    column = spell_column(column_from_values(values, type), type)
    assert column.type == pa.string()
    assert column.to_pylist() == expected


@pytest.mark.parametrize("scalar", [Scalar.F32, Scalar.F64])
def test_c_sch_034_powers_of_two_have_one_spelling(scalar: Scalar) -> None:
    # Around a power of two the gaps between floats differ, which is where shortest digits go wrong.
    exponents = range(-149, 128) if scalar is Scalar.F32 else range(-1074, 1024)
    values = [math.ldexp(1.0, exponent) for exponent in exponents]
    type = ValueType(scalar)
    column = spell_column(pa.array(values, arrow_type(type)), type).to_pylist()
    assert column == [spell(value, type) for value in values]
    assert len(set(column)) == len(values)


@given(F64)
def test_c_sch_034_f64_spelling_reads_back_as_the_same_number(value: float) -> None:
    text = spell(value, ValueType(Scalar.F64))
    assert "e" not in text.lower()
    assert float(text) == value


@given(F32)
def test_c_sch_034_f32_spelling_is_the_shortest_at_its_width(value: float) -> None:
    text = spell(value, ValueType(Scalar.F32))
    assert "e" not in text.lower()
    assert np.float32(text) == np.float32(value)
    digits = len(Decimal(text).normalize().as_tuple().digits)
    assert digits <= 9
    if value and digits > 1:
        shorter = np.float32(f"{value:.{digits - 2}e}")
        assert shorter != np.float32(value)


def test_c_sch_035_composite_id_is_a_compact_json_array() -> None:
    assert entity_id(["north"]) == "north"
    assert entity_id(["7", "north"]) == '["7","north"]'
    assert entity_id(["größe 🌱", 'a"b\\c', "x,y", "\n"]) == '["größe 🌱","a\\"b\\\\c","x,y","\\n"]'


@given(st.lists(st.text(), min_size=2))
def test_c_sch_035_composite_id_reads_back_as_its_members(members: list[str]) -> None:
    assert json.loads(entity_id(members)) == members


@given(st.lists(st.tuples(st.text(), st.text())))
def test_c_sch_035_id_column_equals_row_ids(rows: list[tuple[str, str]]) -> None:
    members = [pa.array([row[i] for row in rows], pa.string()) for i in (0, 1)]
    assert entity_id_column(members).to_pylist() == [entity_id(row) for row in rows]
    assert entity_id_column(members[:1]).to_pylist() == [row[0] for row in rows]
