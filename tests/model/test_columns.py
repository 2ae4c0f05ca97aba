"""Columns of JSON values: the fast way and the exact way agree, and Arrow coerces nothing."""

from __future__ import annotations

import base64
import datetime as dt
import math

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import ValueConversionError
from omnigraph.model.arrow import BLOB_STORAGE, arrow_type, column_from_json, column_from_values
from omnigraph.model.types import INTEGER_BOUNDS, VECTOR_DIMENSION_MAX, Scalar, ValueType
from omnigraph.model.values import (
    ARROW_NAMES,
    DAYS_MAX,
    DAYS_MIN,
    MS_MAX,
    MS_MIN,
    BlobUri,
    date_from_days,
    datetime_from_ms,
    epoch_days,
    epoch_ms,
    format_date,
    format_datetime,
    property_value,
    round_to_f32,
)


def convert(values: list[object], type: ValueType, *, strict: bool = True) -> pa.Array:
    column = column_from_json(values, type, name="p", strict=strict)
    assert column.type == arrow_type(type)
    column.validate(full=True)
    return column


# --- both ways agree ------------------------------------------------------------------------------

TEXT = st.text(max_size=5)
CLEAN: dict[Scalar, st.SearchStrategy[object]] = {
    Scalar.STRING: TEXT,
    Scalar.BOOL: st.booleans(),
    **{scalar: st.integers(*bounds) for scalar, bounds in INTEGER_BOUNDS.items()},
    Scalar.F32: st.floats(width=32, allow_nan=False, allow_infinity=False),
    Scalar.F64: st.floats(allow_nan=False, allow_infinity=False) | st.integers(-(2**60), 2**60),
    Scalar.DATE: st.dates().map(format_date) | st.integers(DAYS_MIN, DAYS_MAX),
    Scalar.DATETIME: st.integers(MS_MIN, MS_MAX),
}
CLOCKS = st.sampled_from(
    [
        "",
        "T00:00:00Z",
        " 23:59:59.9999999Z",
        "T12:30:00.5",
        "t12:30:00z",
        "T12:00:00+23:59",
        "T12:00:00-09:30",
        "T23:59:60Z",
        "T24:00:00Z",
        "T12:00Z",
        "T12:00:00.1234+01:00",
    ]
)
DATETIME_TEXTS = st.tuples(st.dates().map(format_date), CLOCKS).map("".join)
ODD: st.SearchStrategy[object] = (
    st.none()
    | st.booleans()
    | st.integers(-(2**66), 2**66)
    | st.floats()
    | TEXT
    | DATETIME_TEXTS
    | st.sampled_from(["0000-01-01", "2031-02-30", "\ud800", "base64:aGk=", "base64:!", ""])
    | st.lists(st.none() | st.integers(-5, 5) | st.floats() | TEXT, max_size=3)
    | st.just({})
)
TYPES = (
    st.builds(ValueType, st.sampled_from(list(CLEAN)), st.booleans(), st.booleans())
    | st.builds(ValueType, st.just(Scalar.VECTOR), st.booleans(), vector_dim=st.integers(1, 3))
    | st.builds(ValueType, st.just(Scalar.BLOB), st.booleans())
)


def clean(type: ValueType) -> st.SearchStrategy[object]:
    if type.is_vector:
        return st.lists(
            st.floats(width=32, allow_nan=False, allow_infinity=False) | st.integers(-9, 9),
            min_size=type.vector_dim or 0,
            max_size=type.vector_dim,
        )
    if type.is_blob:
        return st.binary().map(lambda data: "base64:" + base64.b64encode(data).decode())
    return st.lists(CLEAN[type.scalar], max_size=3) if type.is_list else CLEAN[type.scalar]


def outcome_by_value(
    values: list[object], type: ValueType, strict: bool
) -> list[object] | tuple[int, str]:
    """What the exact way makes of a column: its values, or where it stops and why."""
    converted: list[object] = []
    for record, value in enumerate(values):
        try:
            converted.append(property_value(value, type, "p", strict=strict))
        except ValueConversionError as error:
            return record, error.message
    return converted


@given(TYPES, st.booleans(), st.data())
def test_column_conversion_equals_conversion_by_value(
    type: ValueType, strict: bool, data: st.DataObject
) -> None:
    fitting = clean(type) if not type.nullable else st.none() | clean(type)
    values = data.draw(st.lists(fitting, max_size=6) | st.lists(fitting | ODD, max_size=6))
    expected = outcome_by_value(values, type, strict)
    if isinstance(expected, tuple):
        record, message = expected
        with pytest.raises(ValueConversionError) as caught:
            column_from_json(values, type, name="p", strict=strict)
        assert caught.value.message == message
        assert caught.value.details["record"] == record
        assert caught.value.details["property"] == "p"
        assert caught.value.details["value"] is values[record]
    else:
        assert convert(values, type, strict=strict) == column_from_values(expected, type)  # type: ignore[arg-type]


@given(st.lists(DATETIME_TEXTS, max_size=4), st.booleans())
def test_datetime_columns_equal_datetime_values(texts: list[str], same_form: bool) -> None:
    values: list[object] = [text[:10] + texts[0][10:] if same_form else text for text in texts]
    type = ValueType(Scalar.DATETIME)
    expected = outcome_by_value(values, type, strict=True)
    if isinstance(expected, tuple):
        with pytest.raises(ValueConversionError, match="invalid DateTime literal"):
            convert(values, type)
    else:
        assert convert(values, type) == column_from_values(expected, type)  # type: ignore[arg-type]


@given(st.sampled_from(list(CLEAN)), st.data())
def test_valid_values_are_never_changed(scalar: Scalar, data: st.DataObject) -> None:
    values = data.draw(st.lists(CLEAN[scalar]))
    stored = convert(values, ValueType(scalar)).to_pylist()
    if scalar is Scalar.DATE:
        for value, date in zip(values, stored, strict=True):
            assert value in (format_date(date), epoch_days(date))
    elif scalar is Scalar.DATETIME:
        assert [epoch_ms(moment) for moment in stored] == values
    elif scalar is Scalar.F64:
        assert stored == [float(value) for value in values]  # type: ignore[arg-type]
    else:
        assert stored == values
        assert [value.__class__ for value in stored] == [value.__class__ for value in values]


@pytest.mark.parametrize(
    ("type", "value"),
    [
        (ValueType(Scalar.STRING), "x"),
        (ValueType(Scalar.BOOL), True),
        (ValueType(Scalar.U64), 2**64 - 1),
        (ValueType(Scalar.F32), 1),
        (ValueType(Scalar.F64), 0.5),
        (ValueType(Scalar.DATE), "2031-04-09"),
        (ValueType(Scalar.DATE), 0),
        (ValueType(Scalar.DATETIME), 0),
        (ValueType(Scalar.DATETIME), "2031-04-09"),
        (ValueType(Scalar.DATETIME), "2031-04-09 07:30:00.5"),
        (ValueType(Scalar.DATETIME), "2031-04-09T07:30:00.123456789Z"),
        (ValueType(Scalar.DATETIME), "2031-04-09T07:30:00+02:00"),
        (ValueType(Scalar.DATE, is_list=True), ["2031-04-09"]),
        (ValueType(Scalar.VECTOR, vector_dim=2), [1, 0.5]),
    ],
    ids=str,
)
def test_clean_columns_are_converted_whole(
    type: ValueType, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [property_value(value, type, "p", strict=True), None]
    monkeypatch.setattr("omnigraph.model.arrow.property_value", None)
    assert convert([value, None], type.with_nullable(True)).to_pylist() == expected


# --- what Arrow would have let through ------------------------------------------------------------


@pytest.mark.parametrize("scalar", INTEGER_BOUNDS)
@pytest.mark.parametrize("odd", [True, 3.0, 3.7, "3"])
def test_c_sch_043_arrow_does_not_coerce_to_integers(scalar: Scalar, odd: object) -> None:
    nullable = ValueType(scalar, nullable=True)
    for values, expected in (([1, odd, 2], [1, None, 2]), ([odd], [None])):
        with pytest.raises(ValueConversionError, match=f"expects {ARROW_NAMES[scalar]}"):
            convert(values, nullable)
        assert convert(values, nullable, strict=False).to_pylist() == expected


@pytest.mark.parametrize("scalar", INTEGER_BOUNDS)
def test_c_sch_043_integer_columns_hold_their_limits_and_no_more(scalar: Scalar) -> None:
    low, high = INTEGER_BOUNDS[scalar]
    assert convert([low, high], ValueType(scalar)).to_pylist() == [low, high]
    for beyond in (low - 1, high + 1):
        with pytest.raises(ValueConversionError) as caught:
            convert([low, high, beyond, beyond], ValueType(scalar, nullable=True), strict=False)
        expected = f"property 'p' value {beyond} exceeds {ARROW_NAMES[scalar]} range"
        assert caught.value.message == expected
        assert caught.value.details == {"property": "p", "record": 2, "value": beyond}


def test_c_sch_044_f32_overflow_is_an_error_and_not_infinity() -> None:
    type = ValueType(Scalar.F32)
    assert convert([3.4028235e38, 1, 0.1], type).to_pylist() == [
        round_to_f32(3.4028235e38),
        1.0,
        round_to_f32(0.1),
    ]
    for beyond in (3.4028236e38, 1e39, math.nan, math.inf):
        with pytest.raises(ValueConversionError, match="exceeds Float32 range"):
            convert([1.0, beyond], type)


def test_true_is_no_float_and_one_is_no_bool() -> None:
    with pytest.raises(ValueConversionError, match="expects Float64"):
        convert([1.5, True], ValueType(Scalar.F64))
    with pytest.raises(ValueConversionError, match="expects Boolean"):
        convert([True, 1], ValueType(Scalar.BOOL))


def test_integers_beyond_two_to_53_are_rounded_in_f64() -> None:
    assert convert([2**53 + 1, 0.5], ValueType(Scalar.F64)).to_pylist() == [2.0**53, 0.5]


# --- dates ----------------------------------------------------------------------------------------


def test_c_sch_045_date_columns_take_texts_days_and_mixtures() -> None:
    type = ValueType(Scalar.DATE, nullable=True)
    assert convert(["2031-04-09", None], type).to_pylist() == [dt.date(2031, 4, 9), None]
    assert convert([0, None, -1], type).to_pylist() == [
        dt.date(1970, 1, 1),
        None,
        dt.date(1969, 12, 31),
    ]
    mixed = convert(["2031-04-09", 0, "2031-04-09T23:30:00-01:00"], type)
    assert mixed.to_pylist() == [dt.date(2031, 4, 9), dt.date(1970, 1, 1), dt.date(2031, 4, 10)]


@pytest.mark.parametrize("days", [DAYS_MIN - 1, DAYS_MAX + 1, 2**31 - 1, 2**31])
def test_c_sch_045_days_outside_the_years_are_out_of_range(days: int) -> None:
    assert convert([DAYS_MIN, DAYS_MAX], ValueType(Scalar.DATE)).to_pylist() == [
        date_from_days(DAYS_MIN),
        date_from_days(DAYS_MAX),
    ]
    with pytest.raises(ValueConversionError, match="Date value out of range"):
        convert([0, days], ValueType(Scalar.DATE))


def test_c_sch_026_datetime_columns_keep_milliseconds() -> None:
    type = ValueType(Scalar.DATETIME)
    texts: list[object] = ["2031-04-09T07:30:00.123Z", "1969-12-31T23:59:59.9999Z"]
    stored = convert(texts, type)
    assert stored.cast(pa.int64()).to_pylist() == [1933486200123, -1]
    assert [format_datetime(moment) for moment in stored.to_pylist()] == [
        "2031-04-09T07:30:00.123Z",
        "1969-12-31T23:59:59.999Z",
    ]
    assert convert([1933486200123], type).to_pylist() == [datetime_from_ms(1933486200123)]


# --- lists, vectors, blobs ------------------------------------------------------------------------


def test_list_columns_tell_null_from_empty() -> None:
    type = ValueType(Scalar.STRING, is_list=True, nullable=True)
    values: list[object] = [["a, b"], ["a", "b"], [], None]
    assert convert(values, type).to_pylist() == values


def test_bad_items_are_named_when_strict_and_null_otherwise() -> None:
    type = ValueType(Scalar.I32, is_list=True)
    with pytest.raises(ValueConversionError, match="null or invalid item") as caught:
        convert([[1], [2, None]], type)
    assert caught.value.details["record"] == 1
    column = convert([[1], [2, None, "x", True]], type, strict=False)
    assert column.to_pylist() == [[1], [2, None, None, None]]
    with pytest.raises(ValueConversionError, match=f"list value {2**31} exceeds Int32 range"):
        convert([[1], [2**31]], type, strict=False)


def test_c_sch_046_vector_columns_keep_null_rows_and_round_to_f32() -> None:
    type = ValueType(Scalar.VECTOR, vector_dim=2, nullable=True)
    column = convert([[0.1, 1], None, [-2.5, 0]], type)
    assert column.to_pylist() == [[round_to_f32(0.1), 1.0], None, [-2.5, 0.0]]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        ([1.0], "vector property 'p' expects 2 dimensions, got 1"),
        ([1.0, None], "vector property 'p' elements must be numeric"),
        ([1.0, "2"], "vector property 'p' elements must be numeric"),
        ([1.0, True], "vector property 'p' elements must be numeric"),
        ([1.0, 1e39], "vector property 'p' value 1e+39 exceeds Float32 range"),
        ([1.0, 10**400], f"vector property 'p' value {10**400} exceeds Float32 range"),
    ],
)
def test_c_sch_046_bad_vectors_are_named(bad: list[object], problem: str) -> None:
    type = ValueType(Scalar.VECTOR, vector_dim=2, nullable=True)
    for strict in (True, False):
        with pytest.raises(ValueConversionError) as caught:
            convert([[1.0, 2.0], None, bad], type, strict=strict)
        assert caught.value.message == problem
        assert caught.value.details["record"] == 2


def test_c_sch_047_blob_columns_tell_null_empty_bytes_and_uri() -> None:
    type = ValueType(Scalar.BLOB, nullable=True)
    column = convert([None, "base64:", "base64:aGk=", "s3://b/k"], type)
    assert column.type == BLOB_STORAGE
    assert column.to_pylist() == [
        None,
        {"data": b"", "uri": None},
        {"data": b"hi", "uri": None},
        {"data": None, "uri": "s3://b/k"},
    ]
    assert column == column_from_values([None, b"", b"hi", BlobUri("s3://b/k")], type)


# --- null -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("type", "what"),
    [
        (ValueType(Scalar.I32), "null or invalid values"),
        (ValueType(Scalar.STRING, is_list=True), "null or invalid values"),
        (ValueType(Scalar.VECTOR, vector_dim=1), "null values"),
        (ValueType(Scalar.BLOB), "null values"),
    ],
)
def test_null_in_a_required_property_names_the_record(type: ValueType, what: str) -> None:
    good = {Scalar.I32: 1, Scalar.STRING: [], Scalar.VECTOR: [1.0], Scalar.BLOB: "base64:"}
    with pytest.raises(ValueConversionError) as caught:
        convert([good[type.scalar], None], type)
    assert caught.value.message == f"non-nullable property 'p' has {what}"
    assert caught.value.details["record"] == 1


@pytest.mark.parametrize(
    "type",
    [
        *(ValueType(scalar) for scalar in CLEAN),
        *(ValueType(scalar, is_list=True) for scalar in CLEAN),
        ValueType(Scalar.VECTOR, vector_dim=3),
        ValueType(Scalar.BLOB),
    ],
    ids=str,
)
def test_empty_and_all_null_columns_have_their_type(type: ValueType) -> None:
    assert len(convert([], type)) == 0
    nullable = type.with_nullable(True)
    assert convert([None, None], nullable).to_pylist() == [None, None]


def test_empty_column_of_the_widest_vector_takes_no_room() -> None:
    assert len(convert([], ValueType(Scalar.VECTOR, vector_dim=VECTOR_DIMENSION_MAX))) == 0
