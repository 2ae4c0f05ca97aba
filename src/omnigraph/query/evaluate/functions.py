"""The scalar functions that are not arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InternalError
from omnigraph.model.arrow import arrow_type
from omnigraph.model.types import ValueType
from omnigraph.query.ast import ScalarFunction
from omnigraph.query.evaluate.arithmetic import absolute, rounded, to_numeric
from omnigraph.query.evaluate.comparison import Datum


def call(function: ScalarFunction, arguments: Sequence[Datum], result: ValueType) -> Datum:
    """The value of a scalar function; null for a null argument, except in `coalesce`."""
    first = arguments[0]
    match function:
        case "lower":
            return _map_case(first, pc.ascii_lower, str.lower)
        case "upper":
            return _map_case(first, pc.ascii_upper, str.upper)
        case "length":
            return _length(first)
        case "abs":
            return absolute(first, result)
        case "round":
            return rounded(first, arguments[1].as_py() if len(arguments) > 1 else 0, result)
        case "date_part":
            return date_part(first.as_py(), arguments[1])
        case "coalesce":
            return _coalesce(arguments, result)


def _map_case(
    texts: Datum, ascii_kernel: Callable[[Datum], Datum], convert: Callable[[str], str]
) -> Datum:
    """Arrow maps ASCII fast, and the rest one character to one, which is not what Unicode says."""
    if isinstance(texts, pa.Scalar):
        return pa.scalar(convert(texts.as_py()) if texts.is_valid else None, pa.string())
    is_other = pc.invert(pc.string_is_ascii(texts))
    if not pc.any(is_other).as_py():
        return ascii_kernel(texts)
    if isinstance(texts, pa.ChunkedArray):
        texts, is_other = texts.combine_chunks(), is_other.combine_chunks()
    is_other = is_other.fill_null(False)
    converted = [convert(text) for text in texts.filter(is_other).to_pylist()]
    return pc.replace_with_mask(ascii_kernel(texts), is_other, pa.array(converted, pa.string()))


def _length(operand: Datum) -> Datum:
    """Characters (code points) of a text, elements of a list."""
    is_text = pa.types.is_string(operand.type) or pa.types.is_large_string(operand.type)
    counted = pc.utf8_length(operand) if is_text else pc.list_value_length(operand)
    return pc.cast(counted, pa.int64())


def _coalesce(arguments: Sequence[Datum], result: ValueType) -> Datum:
    chosen: Datum | None = None
    for argument in arguments:
        if chosen is not None:
            # Only a value that is used has to fit the type of the result.
            unused = pa.scalar(None, argument.type)
            argument = pc.if_else(pc.is_null(chosen), argument, unused)  # noqa: PLW2901
        if result.is_numeric:
            converted = to_numeric(argument, result)
        else:
            converted = pc.cast(argument, arrow_type(result))
        chosen = converted if chosen is None else pc.coalesce(chosen, converted)
    if chosen is None:
        raise InternalError("coalesce without arguments")
    return chosen


_DATE_PARTS: dict[str, Callable[[Datum], Datum]] = {
    "year": pc.year,
    "quarter": pc.quarter,
    "month": pc.month,
    "week": pc.iso_week,
    "day": pc.day,
    "weekday": lambda moments: pc.day_of_week(moments, count_from_zero=False, week_start=1),
    "day_of_year": pc.day_of_year,
    "hour": pc.hour,
    "minute": pc.minute,
    "second": pc.second,
    "millisecond": pc.millisecond,
}


def date_part(part: str, moments: Datum) -> Datum:
    """A field of a Date or DateTime, in UTC; weeks are ISO 8601 weeks, weekdays 1 to 7 from Monday.

    >>> import datetime as dt
    >>> date_part("week", pa.scalar(dt.date(2027, 1, 3))).as_py()
    53
    """
    if pa.types.is_timestamp(moments.type):
        # Without a zone Arrow needs no zone database, which small systems do not have.
        moments = pc.cast(pc.cast(moments, pa.int64()), pa.timestamp("ms"))
    return pc.cast(_DATE_PARTS[part](moments), pa.int64())
