"""Columns that are Arrow already, as columns of properties: for tables, frames and text files.

The meaning is that of `model.columns`: a value fits here exactly if its JSON form fits there. What
Arrow can convert without a loss is converted in one go. Any other column becomes JSON values, which
`model.columns` then judges one by one and names in its complaints.
"""

from __future__ import annotations

import datetime as dt
import re
from decimal import Decimal
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.model.arrow import BLOB_STORAGE, TIMESTAMP, arrow_type
from omnigraph.model.columns import column_from_json
from omnigraph.model.temporal import DAYS_MAX, DAYS_MIN, MS_MAX, MS_MIN
from omnigraph.model.types import Scalar, ValueType

_DAY_MS = 86_400_000
_PER_MS = {"us": 1_000, "ns": 1_000_000}
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


def column_from_arrow(column: pa.Array, type: ValueType, *, name: str, strict: bool) -> pa.Array:
    """The column of property ``name`` holding ``column``; raises as `column_from_json` does."""
    clean = _clean(_plain(column), type, null_items=not strict)
    if clean is None or (clean.null_count and not type.nullable):
        return column_from_json(json_values(column), type, name=name, strict=strict)
    return clean


def accepts(type: ValueType, given: pa.DataType) -> bool:
    """Whether a column of type ``given`` can hold values of ``type`` at all."""
    if pa.types.is_dictionary(given):
        given = given.value_type
    if pa.types.is_null(given):
        return True
    if type.is_list or type.is_vector:
        if not _is_list(given):
            return False
        item = ValueType(Scalar.F32) if type.is_vector else type.item
        return accepts(item, given.value_type)
    if _is_text(given):
        return type.scalar in _FROM_TEXT
    return any(fits(given) for fits in _FROM[type.scalar])


def _is_text(type: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(type) or pa.types.is_large_string(type) or pa.types.is_string_view(type)
    )


def _is_binary(type: pa.DataType) -> bool:
    return bool(
        pa.types.is_binary(type)
        or pa.types.is_large_binary(type)
        or pa.types.is_binary_view(type)
        or pa.types.is_fixed_size_binary(type)
    )


def _is_list(type: pa.DataType) -> bool:
    return bool(
        pa.types.is_list(type) or pa.types.is_large_list(type) or pa.types.is_fixed_size_list(type)
    )


_FROM_TEXT = {Scalar.STRING, Scalar.DATE, Scalar.DATETIME, Scalar.BLOB}
_NUMBERS = (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
_INTEGERS = (pa.types.is_integer, lambda type: pa.types.is_decimal(type) and type.scale == 0)
_MOMENTS = (pa.types.is_date, pa.types.is_timestamp, pa.types.is_integer)
_FROM: dict[Scalar, tuple[Any, ...]] = {
    Scalar.STRING: (),
    Scalar.BOOL: (pa.types.is_boolean,),
    Scalar.I32: _INTEGERS,
    Scalar.I64: _INTEGERS,
    Scalar.U32: _INTEGERS,
    Scalar.U64: _INTEGERS,
    Scalar.F32: _NUMBERS,
    Scalar.F64: _NUMBERS,
    Scalar.DATE: _MOMENTS,
    Scalar.DATETIME: _MOMENTS,
    Scalar.BLOB: (_is_binary,),
}


# --- in one go ------------------------------------------------------------------------------------


def _plain(column: pa.Array) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column


def _clean(column: pa.Array, type: ValueType, *, null_items: bool) -> pa.Array | None:
    """The converted column, or None if any value needs a closer look."""
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), arrow_type(type))
    try:
        if type.is_vector:
            return _vectors(column, type)
        if type.is_list:
            return _lists(column, type, null_items=null_items)
        return _scalars(column, type.scalar)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _scalars(column: pa.Array, scalar: Scalar) -> pa.Array | None:
    given = column.type
    if not any(fits(given) for fits in _FROM[scalar]):
        return column.cast(pa.string()) if scalar is Scalar.STRING and _is_text(given) else None
    if scalar is Scalar.BOOL:
        return column
    if scalar.is_integer:
        return column.cast(arrow_type(ValueType(scalar)))
    if scalar.is_float:
        return _floats(column, scalar)
    if scalar is Scalar.DATE:
        days = column if pa.types.is_integer(given) else _floor_div(_epoch_ms(column), _DAY_MS)
        return _bounded(days.cast(pa.int32()), DAYS_MIN, DAYS_MAX, pa.date32())
    if scalar is Scalar.DATETIME:
        ms = column if pa.types.is_integer(given) else _epoch_ms(column)
        return _bounded(ms.cast(pa.int64()), MS_MIN, MS_MAX, TIMESTAMP)
    return _blobs(column)


def _floats(column: pa.Array, scalar: Scalar) -> pa.Array | None:
    # By way of doubles, as JSON numbers go: rounding once or twice can differ.
    wide = column.cast(pa.float64(), safe=not pa.types.is_integer(column.type))
    converted = wide.cast(arrow_type(ValueType(scalar)), safe=False)
    return converted if pc.all(pc.is_finite(converted), min_count=0).as_py() else None


def _epoch_ms(column: pa.Array) -> pa.Array:
    """Milliseconds since 1970, floored; a moment without a zone is UTC."""
    given = column.type
    if pa.types.is_date32(given):
        return pc.multiply(column.view(pa.int32()).cast(pa.int64()), _DAY_MS)
    numbers = column.view(pa.int64())
    if pa.types.is_date64(given):
        return numbers
    if given.unit == "s":
        return pc.multiply_checked(numbers, 1000)
    return _floor_div(numbers, _PER_MS[given.unit]) if given.unit in _PER_MS else numbers


def _floor_div(numbers: pa.Array, divisor: int) -> pa.Array:
    # Arrow's own division cuts towards zero, which moves moments before 1970 forwards.
    values = np.floor_divide(numbers.fill_null(0).to_numpy(zero_copy_only=False), divisor)
    return pa.array(values, pa.int64(), mask=numbers.is_null().to_numpy(zero_copy_only=False))


def _bounded(numbers: pa.Array, low: int, high: int, type: pa.DataType) -> pa.Array | None:
    bounds = pc.min_max(numbers)
    least, greatest = bounds["min"].as_py(), bounds["max"].as_py()
    is_within = least is None or (low <= least and greatest <= high)
    return numbers.view(type) if is_within else None


def _lists(column: pa.Array, type: ValueType, *, null_items: bool) -> pa.Array | None:
    if not _is_list(column.type):
        return None
    items = _clean(_plain(column.flatten()), type.item, null_items=False)
    if items is None or (items.null_count and not null_items):
        return None
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(
        pa.array(offsets), items, type=arrow_type(type), mask=column.is_null()
    )


def _vectors(column: pa.Array, type: ValueType) -> pa.Array | None:
    if not _is_list(column.type):
        return None
    width = type.vector_dim
    assert width is not None
    present = column.drop_null()
    if not pc.all(pc.equal(pc.list_value_length(present), width), min_count=0).as_py():
        return None
    items = _plain(present.flatten())
    if items.null_count or not any(fits(items.type) for fits in _NUMBERS):
        return None
    components = _floats(items, Scalar.F32)
    if components is None:
        return None
    numbers = components.to_numpy(zero_copy_only=False)
    nulls = column.is_null()
    if column.null_count:
        # A null row still takes the room of its components.
        padded = np.zeros((len(column), width), np.float32)
        padded[~nulls.to_numpy(zero_copy_only=False)] = numbers.reshape(len(present), width)
        numbers = padded.reshape(-1)
    return pa.FixedSizeListArray.from_arrays(pa.array(numbers), type=arrow_type(type), mask=nulls)


def _blobs(column: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays(
        [column.cast(pa.large_binary()), pa.nulls(len(column), pa.string())],
        fields=list(BLOB_STORAGE),
        mask=column.is_null(),
    )


# --- value by value -------------------------------------------------------------------------------


def json_values(column: pa.Array) -> list[object]:
    """The values of a column as JSON would give them, for `model.values` to judge."""
    return [_json_value(value) for value in _plain(column).to_pylist()]


def _json_value(value: object) -> object:
    match value:
        case dt.datetime():
            moment = value if value.tzinfo is not None else value.replace(tzinfo=dt.UTC)
            return (moment - _EPOCH) // dt.timedelta(milliseconds=1)
        case dt.date():
            return (value - _EPOCH.date()).days
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case list() | tuple():
            return [_json_value(item) for item in value]
        case _:
            return value


_INTEGER = re.compile(r"-?\d+", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WORDS = {"true": True, "false": False}


def values_from_text(texts: pa.Array, type: ValueType) -> list[object]:
    """The JSON values that the cells of a text file stand for, null for a null cell.

    A cell that does not look like a value of ``type`` stays a text, and will be refused as one.
    """
    cells = _plain(texts).to_pylist()
    if type.is_list or type.is_vector:
        return [None if cell is None else _array(cell) for cell in cells]
    scalar = type.scalar
    if scalar is Scalar.BOOL:
        return [_WORDS.get(cell.lower(), cell) if cell is not None else None for cell in cells]
    if scalar.is_integer:
        return [int(cell) if cell and _INTEGER.fullmatch(cell) else cell for cell in cells]
    if scalar.is_float:
        return [float(cell) if cell and _NUMBER.fullmatch(cell) else cell for cell in cells]
    return list(cells)


def _array(cell: str) -> object:
    try:
        return orjson.loads(cell)
    except orjson.JSONDecodeError:
        return cell
