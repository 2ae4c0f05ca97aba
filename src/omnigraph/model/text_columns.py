"""Cells of text files, as columns of properties.

A cell means what its text means in JSON, without quotes. Columns in which every cell spells a value
plainly are parsed by Arrow; any other is taken cell by cell for `model.columns` to judge.
"""

from __future__ import annotations

import re

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import ValueConversionError
from omnigraph.model.arrow_columns import column_from_arrow
from omnigraph.model.columns import (
    column_from_values,
    dates_from_texts,
    datetimes_from_texts,
    spell_column,
)
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import Value, property_value

_INTEGER = re.compile(r"-?\d{1,40}", re.ASCII)
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_WORDS = {"true": True, "false": False}
_MOMENTS = (Scalar.DATE, Scalar.DATETIME)


def parsed_texts(texts: pa.StringArray, type: ValueType) -> pa.Array | None:
    """Cells as a column of values that may be of ``type``, or None if any needs a closer look."""
    if type.is_list or type.is_vector or type.is_blob:
        return None
    if type.scalar is Scalar.STRING:
        return texts
    texts = _without_empty(texts)
    try:
        return _parsed(texts, type.scalar)
    except pa.ArrowInvalid:
        return None


def _without_empty(texts: pa.StringArray) -> pa.StringArray:
    """Cells without empty texts: there are writers that put all in quotes, null among them."""
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
        # `inf` and `nan` are numbers to Arrow.
        return numbers if _all(pc.is_finite(numbers)) else None
    if scalar in _MOMENTS and _all(pc.greater(pc.find_substring(texts, "-"), 0)):
        return dates_from_texts(texts) if scalar is Scalar.DATE else datetimes_from_texts(texts)
    if not _all(pc.ascii_is_decimal(texts)) and not _all(
        pc.match_substring_regex(texts, r"^-?[0-9]+$")
    ):
        return None
    return texts.cast(pa.uint64() if scalar is Scalar.U64 else pa.int64())


def _all(mask: pa.BooleanArray) -> bool:
    return bool(pc.all(mask, min_count=0).as_py())


def values_from_text(texts: pa.StringArray, type: ValueType) -> list[object]:
    """The JSON values that the cells of a text file stand for, null for a null cell.

    An empty text is null as well, unless ``type`` is text. A cell that does not look like a value
    of ``type`` stays a text, and will be refused as one.
    """
    cells = texts.to_pylist()
    if type.is_list or type.is_vector:
        return [_array(cell) if cell else None for cell in cells]
    scalar = type.scalar
    if scalar is Scalar.BOOL:
        return [_WORDS.get(cell.lower(), cell) if cell else None for cell in cells]
    if scalar.is_float:
        return [float(cell) if cell and _NUMBER.fullmatch(cell) else cell or None for cell in cells]
    if scalar.is_integer or scalar in _MOMENTS:
        return [int(cell) if cell and _INTEGER.fullmatch(cell) else cell or None for cell in cells]
    if scalar is Scalar.BLOB:
        return [cell or None for cell in cells]
    return list(cells)


def ids_from_texts(texts: pa.StringArray, key: ValueType) -> pa.StringArray:
    """The ids of nodes that texts name which are cells of the one property that is their key.

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
