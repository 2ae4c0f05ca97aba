"""Converts Arrow columns of tables, frames and text files to columns of properties.

Results are those of `model.arrow`: a value is accepted here exactly if its JSON form is accepted
there. Columns that Arrow can convert without loss are converted in one call. Any other column
becomes JSON values, which `model.arrow` then converts one by one, so that an error names the value.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from decimal import Decimal
from typing import Any
from uuid import UUID

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ValueConversionError
from omnigraph.model.arrow import (
    BLOB_STORAGE,
    TIMESTAMP,
    arrow_type,
    column_from_json,
    column_from_values,
    dates_from_texts,
    datetimes_from_texts,
    spell_column,
    vectors,
)
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import DAYS_MAX, DAYS_MIN, MS_MAX, MS_MIN, Value, property_value

_DAY_MS = 86_400_000
_TO_MS = {"s": (1_000, 1), "ms": (1, 1), "us": (1, 1_000), "ns": (1, 1_000_000)}
"""Factor and divisor that convert a number of each unit to milliseconds."""
_EXTENSION_NAME = b"ARROW:extension:name"


def column_from_arrow(column: pa.Array, type: ValueType, *, name: str, strict: bool) -> pa.Array:
    """The column of property ``name`` with these values; raises as `column_from_json` does."""
    clean = _clean(_plain(column), type, null_items=not strict)
    if clean is None or (clean.null_count and not type.nullable):
        return column_from_json(json_values(column, type), type, name=name, strict=strict)
    return clean


def accepts(type: ValueType, given: pa.DataType) -> bool:
    """Whether a column of type ``given`` can have values of ``type`` at all."""
    if isinstance(given, pa.BaseExtensionType):
        plain = _plain_type(given)
        return plain is not None and accepts(type, plain)
    if pa.types.is_dictionary(given):
        given = given.value_type
    if pa.types.is_null(given):
        return True
    if type.is_list or type.is_vector:
        if not _is_list(given):
            return False
        return accepts(_item_type(type), given.value_type)
    if _is_text(given):
        return type.scalar in _FROM_TEXT
    return any(fits(given) for fits in _FROM[type.scalar])


def declared_type(column: pa.Field) -> pa.DataType:
    """The type with which its writer declared a column.

    An extension type that is not registered in this process appears as its storage type, with its
    name in the metadata. Months stored as numbers are not treated as numbers, for that reason.
    """
    name = (column.metadata or {}).get(_EXTENSION_NAME)
    if name is not None and not isinstance(column.type, pa.BaseExtensionType):
        return pa.opaque(column.type, name.decode(errors="replace"), "unknown")
    if _is_list(column.type):
        item = column.type.value_field
        declared = declared_type(item)
        return column.type if declared == item.type else pa.list_(item.with_type(declared))
    return column.type


def _plain_type(extension: pa.BaseExtensionType) -> pa.DataType | None:
    """The plain type for the values of an extension type; None for an unknown extension."""
    match extension:
        case pa.UuidType():
            return pa.string()
        case pa.Bool8Type():
            return pa.bool_()
        case pa.JsonType():
            return extension.storage_type
        case pa.FixedShapeTensorType() if len(extension.shape) == 1:
            return extension.storage_type
        case _:
            return None


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
    """The same values without dictionary encoding, string views and extension types."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if isinstance(column, pa.ExtensionArray):
        column = _unwrapped(column)
    if pa.types.is_string_view(column.type):
        # Arrow can neither take nor filter them.
        column = column.cast(pa.string())
    elif _is_list(column.type) and pa.types.is_string_view(column.type.value_type):
        column = column.cast(pa.list_(pa.string()))
    return column


def _unwrapped(column: pa.ExtensionArray) -> pa.Array:
    if isinstance(column.type, pa.UuidType):
        return pa.array([value and str(value) for value in column.to_pylist()], pa.string())
    plain = _plain_type(column.type)
    assert plain is not None, f"{column.type} was not refused"
    return column.storage.cast(plain)


def _clean(column: pa.Array, type: ValueType, *, null_items: bool) -> pa.Array | None:
    """The converted column, or None if values have to be converted one by one."""
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
        return _texts(column) if scalar is Scalar.STRING and _is_text(given) else None
    if scalar is Scalar.BOOL:
        return column
    if scalar.is_integer:
        return column.cast(arrow_type(ValueType(scalar)))
    if scalar.is_float:
        return _floats(column, scalar)
    if scalar is Scalar.DATE:
        if pa.types.is_date32(given):
            return _bounded(column.view(pa.int32()), DAYS_MIN, DAYS_MAX, pa.date32())
        days = column if pa.types.is_integer(given) else _floor_div(_epoch_ms(column), _DAY_MS)
        return _bounded(days.cast(pa.int32()), DAYS_MIN, DAYS_MAX, pa.date32())
    if scalar is Scalar.DATETIME:
        ms = column if pa.types.is_integer(given) else _epoch_ms(column)
        return _bounded(ms.cast(pa.int64()), MS_MIN, MS_MAX, TIMESTAMP)
    return _blobs(column)


def _texts(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.string())
    if texts.null_count and not _is_sound(_without_nulls(texts)):
        # Arrow ignores the value under a null, Lance tables do not.
        texts = texts.take(pa.array(range(len(texts))))
    return texts


def _without_nulls(texts: pa.StringArray) -> pa.StringArray:
    """The same array with its validity removed: nulls become the texts stored under them."""
    _, offsets, data = texts.buffers()
    return pa.StringArray.from_buffers(len(texts), offsets, data, offset=texts.offset)


def _floats(column: pa.Array, scalar: Scalar) -> pa.Array | None:
    # Through doubles, as JSON numbers are: rounding once or twice can differ.
    wide = column.cast(pa.float64(), safe=not pa.types.is_integer(column.type))
    converted = wide.cast(arrow_type(ValueType(scalar)), safe=False)
    return converted if pc.all(pc.is_finite(converted), min_count=0).as_py() else None


def _epoch_ms(column: pa.Array) -> pa.Array:
    """Milliseconds since 1970, floored; a timestamp without a zone is UTC."""
    given = column.type
    if pa.types.is_date32(given):
        return pc.multiply(column.view(pa.int32()).cast(pa.int64()), _DAY_MS)
    numbers = column.view(pa.int64())
    if pa.types.is_date64(given):
        return numbers
    times, over = _TO_MS[given.unit]
    if times > 1:
        return pc.multiply_checked(numbers, times)
    return _floor_div(numbers, over) if over > 1 else numbers


def _floor_div(numbers: pa.Array, divisor: int) -> pa.Array:
    # Arrow's own division rounds towards zero, which moves times before 1970 forwards.
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
    if not len(items):
        # A sliced array keeps offsets that do not start at 0, which Lance refuses.
        items = pa.nulls(0, items.type)
    return _with_items(column, items, arrow_type(type))


def _with_items(column: pa.Array, items: pa.Array, type: pa.DataType) -> pa.ListArray:
    """A column of lists with other items, which are all that its lists have, in order."""
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    offsets = np.zeros(len(column) + 1, np.int32)
    np.cumsum(lengths, out=offsets[1:])
    return pa.ListArray.from_arrays(pa.array(offsets), items, type=type, mask=column.is_null())


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
    return vectors(components.to_numpy(zero_copy_only=False), column.is_null(), type)


def _blobs(column: pa.Array) -> pa.Array:
    return pa.StructArray.from_arrays(
        [column.cast(pa.large_binary()), pa.nulls(len(column), pa.string())],
        fields=list(BLOB_STORAGE),
        mask=column.is_null(),
    )


# --- texts ----------------------------------------------------------------------------------------


def sound_texts(column: pa.Array) -> tuple[pa.Array, Sequence[int]]:
    """``column`` with nulls in place of values with invalid UTF-8, and the positions of these.

    Arrow does not check the bytes of a text; a table that stores such a text cannot be read.
    """
    column = _plain(column)
    if not _holds_texts(column.type) or _is_sound(column):
        return column, ()
    bad = _unsound_positions(column)
    kept = np.arange(len(column))
    is_bad = np.isin(kept, bad)
    # Taken, not masked: the bytes would remain under a null.
    return column.take(pa.array(kept, mask=is_bad)), bad


def _holds_texts(type: pa.DataType) -> bool:
    if pa.types.is_dictionary(type) or _is_list(type):
        return _holds_texts(type.value_type)
    return _is_text(type)


def _is_sound(column: pa.Array) -> bool:
    try:
        column.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return True


def _unsound_positions(column: pa.Array) -> list[int]:
    column = _plain(column)
    if _is_list(column.type):
        lengths = pc.fill_null(pc.list_value_length(column), 0)
        rows = np.repeat(np.arange(len(column)), lengths)
        return sorted({int(rows[i]) for i in _unsound_positions(column.flatten())})
    values = column.cast(pa.large_binary()).to_pylist()
    return [i for i, value in enumerate(values) if value is not None and not _is_utf8(value)]


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


# --- value by value -------------------------------------------------------------------------------


def json_values(column: pa.Array, type: ValueType) -> list[object]:
    """The values of a column in the JSON form of ``type``, for `model.values` to check."""
    column = _plain(column)
    if pa.types.is_temporal(column.type):
        return _epoch_values(column, type.scalar)
    if _is_list(column.type):
        items = json_values(column.flatten(), type.item if type.is_list else type)
        return _regrouped(items, column)
    return [_json_value(value) for value in column.to_pylist()]


def _epoch_values(column: pa.Array, scalar: Scalar) -> list[object]:
    """Dates and times as days or milliseconds, of any size: Python has none beyond year 9999."""
    in_days = pa.types.is_date32(column.type)
    times, over = (_DAY_MS, 1) if in_days else _TO_MS[getattr(column.type, "unit", "ms")]
    if scalar is Scalar.DATE:
        over *= _DAY_MS
    numbers = column.view(pa.int32() if in_days else pa.int64()).to_pylist()
    return [None if number is None else number * times // over for number in numbers]


def _regrouped(items: Sequence[object], lists: pa.Array) -> list[object]:
    """Items grouped into lists again, null where ``lists`` is."""
    grouped: list[object] = []
    end = 0
    for length in pc.list_value_length(lists).to_pylist():
        start, end = end, end + (length or 0)
        grouped.append(None if length is None else list(items[start:end]))
    return grouped


def _json_value(value: object) -> object:
    match value:
        case Decimal():
            return int(value) if value == value.to_integral_value() else float(value)
        case UUID():
            return str(value)
        case _:
            return value


# --- cells of text files --------------------------------------------------------------------------
#
# A cell means what its text means in JSON, without quotes. Columns in which every cell spells a
# value plainly are parsed by Arrow; any other is taken cell by cell for `model.arrow` to judge.

_INTEGER = re.compile(r"-?\d{1,40}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WORDS = {"true": True, "false": False}
_MOMENT_TEXTS = (Scalar.DATE, Scalar.DATETIME)


def parsed_texts(texts: pa.StringArray, type: ValueType) -> pa.Array | None:
    """Cells as a column for `column_from_arrow`, or None if any has to be parsed on its own.

    A cell that was split is a list of texts.
    """
    if pa.types.is_list(texts.type):
        items = parsed_texts(texts.flatten(), _item_type(type))
        if items is None:
            return None
        return _with_items(texts, items, pa.list_(items.type))
    if type.is_list or type.is_vector or type.is_blob:
        return None
    if type.scalar is Scalar.STRING:
        return texts
    texts = _without_empty(texts)
    try:
        return _parsed(texts, type.scalar)
    except pa.ArrowInvalid:
        return None


def _item_type(type: ValueType) -> ValueType:
    """The type of the items of a list or a vector."""
    return ValueType(Scalar.F32) if type.is_vector else type.item


def _without_empty(texts: pa.StringArray) -> pa.StringArray:
    """Cells with null for empty texts: some writers put everything in quotes, null included."""
    empty = pc.equal(texts, "")
    if not pc.any(empty, min_count=0).as_py():
        return texts
    return pc.if_else(empty, pa.scalar(None, pa.string()), texts)


def _parsed(texts: pa.StringArray, scalar: Scalar) -> pa.Array | None:
    if scalar is Scalar.BOOL:
        words = pc.ascii_lower(texts)
        is_word = pc.is_in(words, value_set=pa.array([*_WORDS, None]))
        return pc.equal(words, "true") if _all(is_word) else None
    if scalar.is_float:
        numbers = texts.cast(pa.float64())
        # Arrow parses `inf` and `nan` as numbers.
        return numbers if _all(pc.is_finite(numbers)) else None
    if scalar in _MOMENT_TEXTS and _all(pc.greater(pc.find_substring(texts, "-"), 0)):
        return dates_from_texts(texts) if scalar is Scalar.DATE else datetimes_from_texts(texts)
    if not _all(pc.ascii_is_decimal(texts)) and not _all(
        pc.match_substring_regex(texts, r"^-?[0-9]+$")
    ):
        return None
    return texts.cast(pa.uint64() if scalar is Scalar.U64 else pa.int64())


def _all(mask: pa.BooleanArray) -> bool:
    return bool(pc.all(mask, min_count=0).as_py())


def values_from_text(texts: pa.StringArray, type: ValueType) -> list[object]:
    """The JSON values of the cells of a text file, null for a null cell.

    An empty text is null as well, unless ``type`` is text. A cell that does not look like a value
    of ``type`` stays a text, and is refused later.
    """
    if pa.types.is_list(texts.type):
        return _regrouped(values_from_text(texts.flatten(), _item_type(type)), texts)
    cells = texts.to_pylist()
    if type.is_list or type.is_vector:
        return [_array(cell) if cell else None for cell in cells]
    scalar = type.scalar
    if scalar is Scalar.BOOL:
        return [_WORDS.get(cell.lower(), cell) if cell else None for cell in cells]
    if scalar.is_float:
        return [float(cell) if cell and _NUMBER.fullmatch(cell) else cell or None for cell in cells]
    if scalar.is_integer or scalar in _MOMENT_TEXTS:
        return [int(cell) if cell and _INTEGER.fullmatch(cell) else cell or None for cell in cells]
    if scalar is Scalar.BLOB:
        return [cell or None for cell in cells]
    return list(cells)


def ids_from_texts(texts: pa.StringArray, key: ValueType) -> pa.StringArray:
    """The ids of nodes, given the values of their only key property as cells.

    A text that is no value of the key stays as it is: it may be an id.
    """
    if key.scalar is Scalar.STRING:
        return texts
    key = key.with_nullable(True)
    parsed = parsed_texts(texts, key)
    values: pa.Array | None = None
    if parsed is not None:
        try:
            values = column_from_arrow(parsed, key, name="", strict=True)
        except ValueConversionError:
            values = None
    if values is None:
        cells = values_from_text(texts, key)
        values = column_from_values([_value(cell, key) for cell in cells], key)
    return pc.coalesce(spell_column(values, key), texts)


def _value(cell: object, type: ValueType) -> Value | None:
    try:
        return property_value(cell, type, "", strict=True)
    except ValueConversionError:
        return None


def _array(cell: str) -> object:
    try:
        return orjson.loads(cell)
    except orjson.JSONDecodeError:
        return cell
