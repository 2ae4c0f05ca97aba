"""One value at a time: what fits a property, what does not, and what is said about it."""

from __future__ import annotations

import base64
import datetime as dt
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import ValueConversionError
from omnigraph.model.types import INTEGER_BOUNDS, Scalar, ValueType
from omnigraph.model.values import (
    ARROW_NAMES,
    BLOB_URI_BYTES_MAX,
    BlobUri,
    assigned_value,
    property_value,
    round_to_f32,
)

F32_MAX = 3.4028234663852886e38
F32_HALF_STEP = 1.0141204801825835e31
"""Half the distance from the largest F32 to the next power of two: below it, rounding goes down."""


def convert(value: object, type: ValueType | Scalar, *, strict: bool = True) -> object:
    type = ValueType(type) if isinstance(type, Scalar) else type
    return property_value(value, type, "p", strict=strict)


def message(value: object, type: ValueType | Scalar, *, strict: bool = True) -> str:
    with pytest.raises(ValueConversionError) as caught:
        convert(value, type, strict=strict)
    assert caught.value.details == {"property": "p", "value": value}
    return caught.value.message


# --- integers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("scalar", INTEGER_BOUNDS)
def test_c_sch_043_integer_limits_are_accepted_and_one_beyond_is_not(scalar: Scalar) -> None:
    low, high = INTEGER_BOUNDS[scalar]
    assert convert(low, scalar) == low
    assert convert(high, scalar) == high
    for strict in (True, False):
        for beyond in (low - 1, high + 1):
            expected = f"property 'p' value {beyond} exceeds {ARROW_NAMES[scalar]} range"
            assert message(beyond, scalar, strict=strict) == expected


@pytest.mark.parametrize("scalar", INTEGER_BOUNDS)
@pytest.mark.parametrize("value", [3.0, "3", True, False, 3.7, [3], {"v": 3}, math.nan])
def test_c_sch_043_only_integer_numbers_are_integers(scalar: Scalar, value: object) -> None:
    assert f"expects {ARROW_NAMES[scalar]}" in message(value, scalar)
    assert convert(value, ValueType(scalar, nullable=True), strict=False) is None
    assert "has null or invalid values" in message(value, scalar, strict=False)


# --- floats ---------------------------------------------------------------------------------------


def test_c_sch_044_f32_range_is_judged_after_rounding() -> None:
    assert convert(F32_MAX, Scalar.F32) == F32_MAX
    below = math.nextafter(F32_MAX + F32_HALF_STEP, 0)
    assert convert(below, Scalar.F32) == F32_MAX
    for value in (F32_MAX + F32_HALF_STEP, 1e39, -1e39, 10**40):
        assert message(value, Scalar.F32) == f"property 'p' value {value} exceeds Float32 range"


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, 10**400])
def test_c_sch_044_f64_is_finite(value: float) -> None:
    for strict in (True, False):
        assert "exceeds Float64 range" in message(value, Scalar.F64, strict=strict)


@pytest.mark.parametrize("scalar", [Scalar.F32, Scalar.F64])
def test_floats_take_any_number_and_nothing_else(scalar: Scalar) -> None:
    result = convert(7, scalar)
    assert result == 7.0
    assert isinstance(result, float)
    assert convert(2**53 + 1, Scalar.F64) == float(2**53)
    for value in ("7", True, [7.0]):
        assert f"expects {ARROW_NAMES[scalar]}" in message(value, scalar)


def test_f32_holds_what_its_column_will_hold() -> None:
    assert convert(0.1, Scalar.F32) == 0.10000000149011612


# --- text, bool, enum -----------------------------------------------------------------------------


def test_string_and_bool_expect_their_own_kind() -> None:
    assert convert("", Scalar.STRING) == ""
    assert convert("grüße 🌱", Scalar.STRING) == "grüße 🌱"
    assert convert(False, Scalar.BOOL) is False
    assert message(3, Scalar.STRING) == "property 'p' expects Utf8, got number 3"
    assert message(1, Scalar.BOOL) == "property 'p' expects Boolean, got number 1"
    assert message("true", Scalar.BOOL) == "property 'p' expects Boolean, got string 'true'"


def test_enum_membership_is_left_to_constraints() -> None:
    assert convert("c", ValueType(Scalar.STRING, enum_values=("a", "b"))) == "c"


def test_lone_surrogate_is_refused_in_both_modes() -> None:
    for strict in (True, False):
        assert "lone surrogate" in message(
            "\ud800", ValueType(Scalar.STRING, nullable=True), strict=strict
        )


def test_messages_show_a_bounded_excerpt() -> None:
    assert len(message("x" * 10_000, Scalar.I32)) < 200


# --- dates ----------------------------------------------------------------------------------------


def test_c_sch_045_date_takes_text_and_days() -> None:
    for value in ("2031-04-09", "2031-04-09T12:00:00Z", 22378):
        assert convert(value, Scalar.DATE) == dt.date(2031, 4, 9)


def test_c_sch_045_datetime_takes_text_and_milliseconds() -> None:
    moment = dt.datetime(2031, 4, 9, 7, 30, tzinfo=dt.UTC)
    for value in ("2031-04-09T07:30:00Z", "2031-04-09 09:30:00+02:00", 1933486200000):
        assert convert(value, Scalar.DATETIME) == moment


@pytest.mark.parametrize("strict", [True, False])
def test_c_sch_045_garbage_is_an_error_in_both_modes(strict: bool) -> None:
    date = ValueType(Scalar.DATE, nullable=True)
    moment = ValueType(Scalar.DATETIME, nullable=True)
    assert message("soon", date, strict=strict) == "property 'p': invalid Date literal 'soon'"
    assert "Date value out of range" in message(2**31, date, strict=strict)
    assert message("", moment, strict=strict) == "property 'p': invalid DateTime literal ''"
    assert f"invalid DateTime literal '{2**62}'" in message(2**62, moment, strict=strict)


@pytest.mark.parametrize("scalar", [Scalar.DATE, Scalar.DATETIME])
@pytest.mark.parametrize("value", [1.0, True, ["2031-04-09"]])
def test_dates_are_texts_or_integers(scalar: Scalar, value: object) -> None:
    assert f"expects {ARROW_NAMES[scalar]}" in message(value, scalar)
    assert convert(value, ValueType(scalar, nullable=True), strict=False) is None


# --- lists ----------------------------------------------------------------------------------------


def test_list_items_follow_the_rules_of_their_type() -> None:
    numbers = ValueType(Scalar.I32, is_list=True)
    assert convert([], numbers) == []
    assert convert([1, -2], numbers) == [1, -2]
    for strict in (True, False):
        assert message(7, numbers, strict=strict).startswith(
            "list property 'p' expects a JSON array"
        )
        assert (
            message([1, 2**31], numbers, strict=strict)
            == f"property 'p' list value {2**31} exceeds Int32 range"
        )
    dates = ValueType(Scalar.DATE, is_list=True)
    assert convert(["2031-04-09", 0], dates) == [dt.date(2031, 4, 9), dt.date(1970, 1, 1)]
    assert "invalid Date literal 'x'" in message(["x"], dates, strict=False)


@pytest.mark.parametrize("item", [None, "2", 2.0, True, [2], {}])
def test_bad_list_item_is_an_error_when_strict_and_null_otherwise(item: object) -> None:
    numbers = ValueType(Scalar.I32, is_list=True)
    assert "null or invalid item" in message([1, item], numbers)
    assert convert([1, item], numbers, strict=False) == [1, None]


# --- vectors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [True, False])
def test_c_sch_046_vector_length_and_elements_are_exact(strict: bool) -> None:
    vector = ValueType(Scalar.VECTOR, vector_dim=3, nullable=True)
    assert convert([1, 0.1, -2.5], vector, strict=strict) == [1.0, round_to_f32(0.1), -2.5]
    for items in ([], [1.0, 2.0], [1.0] * 4):
        expected = f"vector property 'p' expects 3 dimensions, got {len(items)}"
        assert message(items, vector, strict=strict) == expected
    for item in (None, "1", True, [1.0]):
        expected = "vector property 'p' elements must be numeric"
        assert message([1.0, item, 2.0], vector, strict=strict) == expected
    for number in (1e39, math.nan, -math.inf):
        assert "exceeds Float32 range" in message([1.0, number, 2.0], vector, strict=strict)
    assert "expects a JSON array of 3 numbers" in message("[1,2,3]", vector, strict=strict)


# --- blobs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [True, False])
def test_c_sch_047_blob_is_bytes_or_uri(strict: bool) -> None:
    blob = ValueType(Scalar.BLOB, nullable=True)
    assert convert("base64:aGk=", blob, strict=strict) == b"hi"
    assert convert("s3://bucket/key", blob, strict=strict) == BlobUri("s3://bucket/key")
    for text in ("base64:aGk", "base64:a", "base64:aGk= ", "base64:!!!!", "base64:aGk=aGk="):
        assert "invalid base64 blob data" in message(text, blob, strict=strict)
    for value in (3, True, ["base64:"], ""):
        assert "must be a URI string or base64: prefixed data" in message(
            value, blob, strict=strict
        )


def test_c_sch_047_empty_blob_is_not_null() -> None:
    blob = ValueType(Scalar.BLOB, nullable=True)
    assert convert("base64:", blob) == b""
    assert convert(None, blob) is None


def test_c_sch_047_uri_length_is_bounded_in_bytes() -> None:
    fits = "ü" * (BLOB_URI_BYTES_MAX // 2)
    assert convert(fits, Scalar.BLOB) == BlobUri(fits)
    assert "65537 bytes" in message(fits + "x", Scalar.BLOB)


@given(st.binary())
def test_c_sch_047_base64_round_trips(data: bytes) -> None:
    assert convert("base64:" + base64.b64encode(data).decode(), Scalar.BLOB) == data


# --- null -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("strict", [True, False])
def test_null_needs_a_nullable_property(strict: bool) -> None:
    for type in (ValueType(Scalar.I32), ValueType(Scalar.STRING, is_list=True)):
        assert (
            message(None, type, strict=strict)
            == "non-nullable property 'p' has null or invalid values"
        )
    for type in (ValueType(Scalar.VECTOR, vector_dim=2), ValueType(Scalar.BLOB)):
        assert message(None, type, strict=strict) == "non-nullable property 'p' has null values"
    assert convert(None, ValueType(Scalar.I32, nullable=True), strict=strict) is None


# --- literals and bound parameters ----------------------------------------------------------------


def literal_fits(value: object, type: ValueType) -> bool:
    try:
        assigned_value(value, type, "p")
    except ValueConversionError:
        return False
    return True


def test_integer_literal_becomes_a_float_only_exactly() -> None:
    f32, f64 = ValueType(Scalar.F32), ValueType(Scalar.F64)
    assert assigned_value(2**24, f32, "p") == 2.0**24
    assert not literal_fits(2**24 + 1, f32)
    assert literal_fits(2**24 + 1, f64)
    assert not literal_fits(2**53 + 1, f64)
    assert not literal_fits(10**400, f64)
    with pytest.raises(ValueConversionError, match="not exactly representable as Float32"):
        assigned_value(2**24 + 1, f32, "p")


def test_float_literal_is_rounded_to_f32_and_stays_in_range() -> None:
    assert assigned_value(0.1, ValueType(Scalar.F32), "p") == round_to_f32(0.1)
    assert not literal_fits(1e39, ValueType(Scalar.F32))
    assert not literal_fits(math.inf, ValueType(Scalar.F64))


@pytest.mark.parametrize("scalar", INTEGER_BOUNDS)
def test_fraction_never_becomes_an_integer(scalar: Scalar) -> None:
    assert literal_fits(3, ValueType(scalar))
    for value in (3.0, 2.5, "3", True):
        assert not literal_fits(value, ValueType(scalar))


def test_literals_keep_their_kind() -> None:
    date, moment = dt.date(2031, 4, 9), dt.datetime(2031, 4, 9, 1, tzinfo=dt.UTC)
    fitting = {
        Scalar.STRING: "x",
        Scalar.BOOL: True,
        Scalar.I32: 1,
        Scalar.F64: 1.5,
        Scalar.DATE: date,
        Scalar.DATETIME: moment,
    }
    for scalar in fitting:
        for kind, value in fitting.items():
            into_float = scalar is Scalar.F64 and kind is Scalar.I32
            assert literal_fits(value, ValueType(scalar)) is (scalar is kind or into_float)


def test_assigned_datetime_is_utc_milliseconds() -> None:
    zone = dt.timezone(dt.timedelta(hours=2))
    given_moment = dt.datetime(2031, 4, 9, 9, 30, 0, 123_456, tzinfo=zone)
    assert assigned_value(given_moment, ValueType(Scalar.DATETIME), "p") == dt.datetime(
        2031, 4, 9, 7, 30, 0, 123_000, tzinfo=dt.UTC
    )


def test_assigned_lists_vectors_and_blobs() -> None:
    numbers = ValueType(Scalar.F32, is_list=True)
    assert assigned_value([1, 0.5], numbers, "p") == [1.0, 0.5]
    assert not literal_fits([1, None], numbers)
    assert not literal_fits(["a"], numbers)
    vector = ValueType(Scalar.VECTOR, vector_dim=2)
    assert assigned_value([1, 0.5], vector, "p") == [1.0, 0.5]
    assert not literal_fits([1], vector)
    blob = ValueType(Scalar.BLOB)
    assert assigned_value("base64:aGk=", blob, "p") == b"hi"
    assert assigned_value(b"hi", blob, "p") == b"hi"
    assert assigned_value(BlobUri("s3://b/k"), blob, "p") == BlobUri("s3://b/k")


def test_null_literal_needs_a_nullable_property() -> None:
    assert literal_fits(None, ValueType(Scalar.I32, nullable=True))
    assert not literal_fits(None, ValueType(Scalar.I32))
