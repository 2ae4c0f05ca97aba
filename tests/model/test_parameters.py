"""Query parameters against their declared types."""

from __future__ import annotations

import datetime as dt
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import InputError, ParameterError
from omnigraph.model.parameters import bind_parameters, parameter_value
from omnigraph.model.types import INTEGER_BOUNDS, Scalar, ValueType
from omnigraph.model.values import BlobUri, round_to_f32


def bind(value: object, type: ValueType | Scalar) -> object:
    return parameter_value(value, ValueType(type) if isinstance(type, Scalar) else type, "x")


def refusal(value: object, type: ValueType | Scalar) -> str:
    with pytest.raises(ParameterError) as caught:
        bind(value, type)
    assert caught.value.parameter == "x"
    assert "parameter 'x'" in caught.value.message
    return caught.value.message


def test_c_qry_009_i64_takes_decimal_strings_exactly() -> None:
    assert bind("9007199254740993", Scalar.I64) == 9007199254740993
    assert bind("-9223372036854775808", Scalar.I64) == -(2**63)


def test_c_qry_009_i32_overflow_is_rejected_as_number_and_string() -> None:
    for value in (2**31, str(2**31), -(2**31) - 1):
        assert refusal(value, Scalar.I32) == f"parameter 'x' value {value} exceeds Int32 range"


def test_c_qry_010_u64_takes_its_full_width_as_number_or_string() -> None:
    assert bind(2**64 - 1, Scalar.U64) == bind(str(2**64 - 1), Scalar.U64) == 2**64 - 1
    assert "exceeds UInt64 range" in refusal(2**64, Scalar.U64)
    assert "exceeds UInt64 range" in refusal("9" * 10_000, Scalar.U64)


@pytest.mark.parametrize("scalar", [Scalar.U32, Scalar.U64])
def test_c_qry_010_negative_unsigned_is_rejected(scalar: Scalar) -> None:
    assert "range" in refusal(-1, scalar)
    assert "range" in refusal("-1", scalar)


@pytest.mark.parametrize("scalar", INTEGER_BOUNDS)
@pytest.mark.parametrize(
    "value", [3.0, True, "", "3.0", "+3", " 3", "3 ", "0x3", "1_000", "1e3", "٣", [3]]
)
def test_integers_are_integer_numbers_or_decimal_strings(scalar: Scalar, value: object) -> None:
    assert f"expects {scalar}" in refusal(value, scalar)


@given(st.sampled_from(list(INTEGER_BOUNDS)), st.data())
def test_integers_bind_to_themselves(scalar: Scalar, data: st.DataObject) -> None:
    value = data.draw(st.integers(*INTEGER_BOUNDS[scalar]))
    assert bind(value, scalar) == bind(str(value), scalar) == value


@pytest.mark.parametrize("scalar", [Scalar.F32, Scalar.F64])
def test_floats_take_finite_numbers_and_no_strings(scalar: Scalar) -> None:
    assert bind(7, scalar) == 7.0
    assert "expects" in refusal("7", scalar)
    assert "expects" in refusal(True, scalar)
    assert "range" in refusal(math.nan, scalar)
    assert "range" in refusal(math.inf, scalar)
    assert bind(0.1, Scalar.F32) == round_to_f32(0.1)


def test_strings_and_bools_take_only_their_kind() -> None:
    assert bind("it's", Scalar.STRING) == "it's"
    assert bind(True, Scalar.BOOL) is True
    assert "expects String" in refusal(3, Scalar.STRING)
    assert "expects Bool" in refusal("true", Scalar.BOOL)


def test_blob_text_is_decoded() -> None:
    assert bind("base64:aGk=", Scalar.BLOB) == b"hi"
    assert bind("s3://b/k", Scalar.BLOB) == BlobUri("s3://b/k")
    assert bind(b"hi", Scalar.BLOB) == b"hi"
    assert "invalid base64 blob data" in refusal("base64:?", Scalar.BLOB)
    assert "expects Blob" in refusal(3, Scalar.BLOB)


def test_c_qry_011_dates_are_texts() -> None:
    assert bind("2031-04-09", Scalar.DATE) == dt.date(2031, 4, 9)
    assert bind("2031-04-09T23:30:00-01:00", Scalar.DATE) == dt.date(2031, 4, 10)
    moment = dt.datetime(2031, 4, 9, 7, 30, tzinfo=dt.UTC)
    assert bind("2031-04-09 09:30:00+02:00", Scalar.DATETIME) == moment
    assert bind("2031-04-09", Scalar.DATETIME) == dt.datetime(2031, 4, 9, tzinfo=dt.UTC)
    assert refusal("soon", Scalar.DATE) == "parameter 'x': invalid Date literal 'soon'"
    assert "expects Date" in refusal(22378, Scalar.DATE)
    assert "expects DateTime" in refusal(0, Scalar.DATETIME)


def test_c_qry_011_python_dates_bind_too() -> None:
    zone = dt.timezone(dt.timedelta(hours=-2))
    evening = dt.datetime(2031, 4, 9, 23, 30, 0, 1999, tzinfo=zone)
    assert bind(dt.date(2031, 4, 9), Scalar.DATE) == dt.date(2031, 4, 9)
    assert bind(evening, Scalar.DATE) == dt.date(2031, 4, 10)
    assert bind(evening, Scalar.DATETIME) == dt.datetime(2031, 4, 10, 1, 30, 0, 1000, tzinfo=dt.UTC)
    midnight = dt.datetime(2031, 4, 9, tzinfo=dt.UTC)
    assert (
        bind(dt.date(2031, 4, 9), Scalar.DATETIME)
        == midnight
        == bind("2031-04-09", Scalar.DATETIME)
    )


def test_c_qry_011_lists_bind_every_element_and_no_null() -> None:
    numbers = ValueType(Scalar.U64, is_list=True)
    assert bind([], numbers) == []
    assert bind([1, "18446744073709551615"], numbers) == [1, 2**64 - 1]
    assert "got null at position 1" in refusal([1, None], numbers)
    assert "got number 2.0 at position 0" in refusal([2.0], numbers)
    assert "range" in refusal([-1], numbers)
    assert "expects [U64]" in refusal(7, numbers)
    assert bind(["2031-04-09"], ValueType(Scalar.DATE, is_list=True)) == [dt.date(2031, 4, 9)]


def test_c_qry_011_vector_has_exactly_its_dimension() -> None:
    vector = ValueType(Scalar.VECTOR, vector_dim=2)
    assert bind([1, 0.1], vector) == [1.0, round_to_f32(0.1)]
    assert refusal([1.0], vector) == "parameter 'x' expects 2 dimensions, got 1"
    assert "at position 1" in refusal([1.0, None], vector)
    assert "at position 0" in refusal(["1", 2.0], vector)
    assert "range" in refusal([1e39, 0.0], vector)
    assert "expects Vector(2)" in refusal("[1,2]", vector)


def test_c_qry_012_absent_or_null_optional_parameter_is_null() -> None:
    declared = {
        "a": ValueType(Scalar.I32, nullable=True),
        "b": ValueType(Scalar.I32, nullable=True),
    }
    assert bind_parameters(declared, {"a": None}) == {"a": None, "b": None}
    assert bind_parameters(declared, None) == {"a": None, "b": None}


def test_c_qry_012_null_for_a_required_parameter_is_an_error() -> None:
    assert refusal(None, Scalar.I32) == "parameter 'x' is null"


def test_c_qry_013_absent_required_parameter_is_named() -> None:
    with pytest.raises(ParameterError) as caught:
        bind_parameters({"x": ValueType(Scalar.STRING)}, {"y": "z"})
    assert caught.value.message == "parameter 'x' not provided"
    assert caught.value.parameter == "x"


def test_c_qry_014_undeclared_keys_are_ignored_but_objects_are_rejected() -> None:
    declared = {"x": ValueType(Scalar.I32)}
    assert bind_parameters(declared, {"x": 1, "other": [1, "2"]}) == {"x": 1}
    for document in ({"x": 1, "other": {}}, {"x": {"v": 1}}):
        with pytest.raises(ParameterError, match="must not be an object"):
            bind_parameters(declared, document)
    with pytest.raises(ParameterError, match="got an object at position 0"):
        bind_parameters({"x": ValueType(Scalar.I32, is_list=True)}, {"x": [{}]})


@pytest.mark.parametrize("document", [[], "x", 3, True])
def test_document_must_be_an_object(document: object) -> None:
    with pytest.raises(InputError, match="parameters must be a JSON object"):
        bind_parameters({}, document)
