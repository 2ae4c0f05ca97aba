"""C-QRY-061: JSON forms of every type, safe integers, non-finite floats."""

from __future__ import annotations

import datetime as dt
import json
import math
from typing import Any

import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.errors import InternalError
from omnigraph.model.arrow import arrow_type, column_from_values
from omnigraph.model.result_json import (
    SAFE_INTEGER_MAX,
    SHORT,
    rows_to_python,
)
from omnigraph.model.types import INTEGER_BOUNDS, Scalar, ValueType
from omnigraph.model.values import (
    DAYS_MAX,
    DAYS_MIN,
    MS_MAX,
    MS_MIN,
    date_from_days,
    datetime_from_ms,
    format_date,
    format_datetime,
    round_to_f32,
)


def json_of(values: list[Any], type: pa.DataType, **options: bool) -> list[Any]:
    """The JSON values; a column of many values is read in another way, and must read the same."""
    short, long = (
        rows_to_python(pa.table({"v": pa.array(values * times, type)}), **options)
        for times in (1, SHORT + 1)
    )
    assert all(list(row) == ["v"] for row in short)
    assert long == short * (SHORT + 1)
    return [row["v"] for row in short]


MOMENT = dt.datetime(2031, 4, 9, 7, 30, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("type", "value", "expected"),
    [
        (ValueType(Scalar.STRING), 'grüße "x"\n', 'grüße "x"\n'),
        (ValueType(Scalar.BOOL), True, True),
        (ValueType(Scalar.I32), -(2**31), -(2**31)),
        (ValueType(Scalar.U32), 2**32 - 1, 2**32 - 1),
        (ValueType(Scalar.I64), -(2**63), -(2**63)),
        (ValueType(Scalar.U64), 2**64 - 1, 2**64 - 1),
        (ValueType(Scalar.F32), 0.1, 0.10000000149011612),
        (ValueType(Scalar.F64), 0.1, 0.1),
        (ValueType(Scalar.F64), math.nan, "NaN"),
        (ValueType(Scalar.F32), math.inf, "Infinity"),
        (ValueType(Scalar.F64), -math.inf, "-Infinity"),
        (ValueType(Scalar.DATE), dt.date(2031, 4, 9), "2031-04-09"),
        (ValueType(Scalar.DATE), dt.date(1, 1, 1), "0001-01-01"),
        (ValueType(Scalar.DATETIME), MOMENT, "2031-04-09T07:30:00.000Z"),
        (ValueType(Scalar.DATETIME), datetime_from_ms(-1), "1969-12-31T23:59:59.999Z"),
        (ValueType(Scalar.STRING, is_list=True), ["a", None, ""], ["a", None, ""]),
        (ValueType(Scalar.STRING, is_list=True), [], []),
        (ValueType(Scalar.F64, is_list=True), [1.5, math.nan, None], [1.5, "NaN", None]),
        (ValueType(Scalar.DATETIME, is_list=True), [MOMENT], ["2031-04-09T07:30:00.000Z"]),
        (
            ValueType(Scalar.VECTOR, vector_dim=4),
            [0.5, math.nan, math.inf, None],
            [0.5, None, None, None],
        ),
    ],
)
def test_c_qry_061_json_form_of_every_type(type: ValueType, value: object, expected: Any) -> None:
    column = pa.array([value, None, value], arrow_type(type))
    table = pa.table({"v": column})
    assert rows_to_python(table) == [{"v": expected}, {"v": None}, {"v": expected}]
    assert rows_to_python(table.slice(1, 2)) == [{"v": None}, {"v": expected}]
    assert orjson.loads(orjson.dumps(rows_to_python(table))) == rows_to_python(table)
    assert json_of([value], arrow_type(type)) == [expected]


@pytest.mark.parametrize("type", [pa.int64(), pa.uint64()])
def test_c_qry_061_safe_mode_spells_large_integers(type: pa.DataType) -> None:
    low = -SAFE_INTEGER_MAX if type == pa.int64() else 0
    values = [0, SAFE_INTEGER_MAX, SAFE_INTEGER_MAX + 1, None, low]
    expected = [0, SAFE_INTEGER_MAX, str(SAFE_INTEGER_MAX + 1), None, low]
    assert json_of(values, type, safe_integers=True) == expected
    assert json_of(values, type) == values
    nested = json_of([values, None], pa.list_(type), safe_integers=True)
    assert nested == [expected, None]


def test_c_qry_061_safe_mode_spells_large_negative_integers() -> None:
    values = [-SAFE_INTEGER_MAX - 1, -(2**63)]
    assert json_of(values, pa.int64(), safe_integers=True) == [str(value) for value in values]


def test_entities_are_objects() -> None:
    type = pa.struct(
        [
            ("id", pa.string()),
            ("born", pa.date32()),
            ("tags", pa.list_(pa.string())),
            ("leaf", pa.list_(pa.float32(), 2)),
        ]
    )
    ada = {"id": "ada", "born": dt.date(1815, 12, 10), "tags": ["x"], "leaf": [1.0, 2.0]}
    bob = {"id": "bob", "born": None, "tags": None, "leaf": None}
    expected = [
        {"id": "ada", "born": "1815-12-10", "tags": ["x"], "leaf": [1.0, 2.0]},
        None,
        bob,
    ]
    assert json_of([ada, None, bob], type) == expected
    sliced = pa.table({"v": pa.array([bob, ada, None, bob], type)}).slice(1)
    assert [row["v"] for row in rows_to_python(sliced)] == expected


def test_tables_of_several_chunks_and_batches_are_read_alike() -> None:
    batch = pa.record_batch({"a": [1, None], "b": ["x", "y"]})
    rows = [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]
    assert rows_to_python(batch) == rows
    assert rows_to_python(pa.Table.from_batches([batch, batch, batch.slice(0, 0)])) == rows * 2


def test_dictionary_and_null_columns_have_json_forms() -> None:
    assert json_of(["a", None, "a"], pa.dictionary(pa.int32(), pa.string())) == ["a", None, "a"]
    assert json_of([None, None], pa.null()) == [None, None]


def test_c_qry_051_no_rows_is_an_empty_array() -> None:
    table = pa.table({"a": pa.array([], pa.int32()), "l": pa.array([], pa.list_(pa.string()))})
    assert rows_to_python(table) == []
    assert rows_to_python(pa.table({})) == []


def test_bytes_have_no_json_form() -> None:
    with pytest.raises(InternalError, match="large_binary"):
        json_of([b"x"], pa.large_binary())


VALUES: dict[Scalar, st.SearchStrategy[Any]] = {
    Scalar.STRING: st.text(),
    Scalar.BOOL: st.booleans(),
    **{scalar: st.integers(*bounds) for scalar, bounds in INTEGER_BOUNDS.items()},
    Scalar.F32: st.floats(width=32),
    Scalar.F64: st.floats(),
    Scalar.DATE: st.integers(DAYS_MIN, DAYS_MAX).map(date_from_days),
    Scalar.DATETIME: st.integers(MS_MIN, MS_MAX).map(datetime_from_ms),
}
TYPES = st.builds(
    ValueType, st.sampled_from(list(VALUES)), nullable=st.just(True), is_list=st.booleans()
) | st.builds(ValueType, st.just(Scalar.VECTOR), nullable=st.just(True), vector_dim=st.just(2))


def json_by_value(value: Any, type: ValueType) -> Any:
    """The table of the query chapter, read literally."""
    if value is None:
        return None
    if type.is_vector:
        return [item if math.isfinite(item) else None for item in value]
    if type.is_list:
        return [json_by_value(item, type.item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, dt.datetime):
        return format_datetime(value)
    return format_date(value) if isinstance(value, dt.date) else value


@given(TYPES, st.integers(0, 3), st.sampled_from([1, SHORT]), st.data())
def test_c_qry_061_columns_encode_like_their_values(
    type: ValueType, skipped: int, times: int, data: st.DataObject
) -> None:
    items = VALUES.get(type.scalar, st.floats(width=32))
    if type.is_vector:
        items = st.lists(items, min_size=2, max_size=2)
    elif type.is_list:
        items = st.lists(st.none() | items, max_size=3)
    values = data.draw(st.lists(st.none() | items, max_size=8)) * times
    table = pa.table({"v": column_from_values(values, type)}).slice(skipped)
    expected = [{"v": json_by_value(value, type)} for value in values[skipped:]]
    assert rows_to_python(table) == expected
    assert json.loads(orjson.dumps(rows_to_python(table))) == expected


def test_f32_is_widened_exactly() -> None:
    assert json_of([0.1], pa.float32()) == [round_to_f32(0.1)]
