"""Kernels of the scalar functions on texts, numbers and dates, and of the aggregates over numbers.

All are linear in the size of their input, and results are bounded: a text by `TEXT_BYTES_MAX`, a
regular expression by `PATTERN_CHARACTERS_MAX`. They take columns or single values; null arguments
give null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import repeat
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError, LimitExceeded
from omnigraph.model.governor import current
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import DAYS_MAX, DAYS_MIN, MS_MAX, MS_MIN
from omnigraph.query.kernels import Datum, to_numeric
from omnigraph.query.operands import is_fraction
from omnigraph.syntax.query_ast import PeriodFunction

Numbers = npt.NDArray[np.generic]
Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

# --- columns --------------------------------------------------------------------------------------


def _array(operand: Datum) -> pa.Array:
    """The operand as a column; a single value becomes a column of one row."""
    if isinstance(operand, pa.Scalar):
        return pa.repeat(operand, 1)
    return operand.combine_chunks() if isinstance(operand, pa.ChunkedArray) else operand


def _computed(
    compute: Callable[..., Numbers],
    operands: Sequence[Datum],
    result: pa.DataType,
    numbers: pa.DataType,
) -> Datum:
    """``compute`` over the operands as numbers of one type; null where any of them is null.

    NumPy broadcasts columns of one row; nulls are passed as zero.
    """
    arrays = [_array(operand) for operand in operands]
    null = np.zeros(1, np.bool_)
    for array in arrays:
        if array.null_count:
            null = null | array.is_null().to_numpy(zero_copy_only=False)
    values = [_integral(array).cast(numbers).fill_null(0) for array in arrays]
    found = compute(*(value.to_numpy(zero_copy_only=False) for value in values), ~null)
    column = pa.array(found, mask=np.broadcast_to(null, found.shape))
    if pa.types.is_date32(result):
        column = column.cast(pa.int32())  # the only integer type that Arrow casts to days
    column = column.cast(result)
    return column[0] if all(isinstance(each, pa.Scalar) for each in operands) else column


def _integral(array: pa.Array) -> pa.Array:
    """Dates as integers; other columns unchanged."""
    if pa.types.is_date32(array.type):
        return array.cast(pa.int32())
    return array.cast(pa.int64()) if pa.types.is_timestamp(array.type) else array


def _by_row(compute: Callable[..., Any], operands: Sequence[Datum], type: pa.DataType) -> Datum:
    """``compute`` row by row, where Arrow's kernel takes one argument for all rows."""
    columns = [
        repeat(each.as_py()) if isinstance(each, pa.Scalar) else each.to_pylist()
        for each in operands
    ]
    if all(isinstance(each, pa.Scalar) for each in operands):
        columns[0] = [operands[0].as_py()]
    found = [
        None if any(value is None for value in values) else compute(*values)
        for values in zip(*columns, strict=False)
    ]
    column = pa.array(found, type)
    return column[0] if all(isinstance(each, pa.Scalar) for each in operands) else column


def _is_null(operand: Datum) -> bool:
    return isinstance(operand, pa.Scalar) and not operand.is_valid


# --- lists ----------------------------------------------------------------------------------------


def list_items(lists: Datum, places: Datum) -> Datum:
    """The item of each list at its index, counted from 0; null if there is none.

    >>> list_items(pa.array([["a", "b"], ["c"], None]), pa.scalar(1)).to_pylist()
    ['b', None, None]
    """
    several, places_of = _array(lists), _array(places)
    starts = several.offsets.to_numpy()
    # Null becomes 0, not a negative number: an unsigned column has none.
    place = places_of.fill_null(0).to_numpy(zero_copy_only=False)
    exists = several.is_valid().to_numpy(zero_copy_only=False) & (place >= 0)
    exists = exists & places_of.is_valid().to_numpy(zero_copy_only=False)
    exists = exists & (place < np.diff(starts).astype(np.uint64))
    rows = starts[:-1] + np.where(exists, place, 0).astype(np.int64)
    found = several.values.take(pa.array(rows, mask=~exists))
    is_one = isinstance(lists, pa.Scalar) and isinstance(places, pa.Scalar)
    return found[0] if is_one else found


# --- texts ----------------------------------------------------------------------------------------

TEXT_BYTES_MAX = 1 << 24
_COLUMN_BYTES_MAX = 2**31 - 1
PATTERN_CHARACTERS_MAX = 1_000
PATTERN_HINT = "patterns are written in the syntax of RE2, which has no look-around or references"
_TEXT = pa.string()
_TEXTS = pa.list_(_TEXT)


def _require_room(lengths: Datum) -> None:
    """Raise `LimitExceeded` if texts of these lengths would be too large, before they are made."""
    longest = pc.max(_array(lengths)).as_py() or 0
    total = pc.sum(_array(lengths)).as_py() or 0
    if longest > TEXT_BYTES_MAX:
        raise LimitExceeded(
            "the bytes of a computed text", TEXT_BYTES_MAX, longest, hint="join shorter texts"
        )
    if total > _COLUMN_BYTES_MAX:
        raise LimitExceeded(
            "the bytes of a column of computed texts",
            _COLUMN_BYTES_MAX,
            total,
            hint="compute texts of fewer rows: add a condition or a limit",
        )
    current().reserve(total)


def _byte_length(texts: Datum) -> Datum:
    return pc.cast(pc.binary_length(texts), pa.int64())


def concat(texts: Sequence[Datum]) -> Datum:
    """The concatenated texts."""
    lengths = _byte_length(texts[0])
    for text in texts[1:]:
        lengths = pc.add(lengths, _byte_length(text))
    _require_room(lengths)
    return pc.binary_join_element_wise(*texts, "", null_handling="emit_null")


def substring(texts: Datum, start: Datum, length: Datum | None) -> Datum:
    """The characters from ``start``, counted from 0; without ``length`` all of them.

    >>> substring(pa.scalar("graph"), pa.scalar(1), pa.scalar(3)).as_py()
    'rap'
    """
    bounds = [start] if length is None else [start, length]
    if not all(isinstance(bound, pa.Scalar) for bound in bounds):
        return _by_row(_cut, [texts, *bounds], _TEXT)
    if any(map(_is_null, bounds)):
        return pc.if_else(pc.is_null(texts), texts, pa.scalar(None, texts.type))
    first, stop = _positions(*(bound.as_py() for bound in bounds))
    if stop is not None and stop <= first:
        return pc.utf8_slice_codeunits(texts, 0, 0)
    return pc.utf8_slice_codeunits(texts, first, stop)


_POSITION_MAX = 2**31


def _positions(start: int, length: int | None = None) -> tuple[int, int | None]:
    """Start and end as positions within a text; either may be outside."""
    stop = None if length is None else min(max(start + length, 0), _POSITION_MAX)
    return min(max(start, 0), _POSITION_MAX), stop


def _cut(text: str, start: int, length: int | None = None) -> str:
    first, stop = _positions(start, length)
    return text[first:stop]


def split(texts: Datum, separator: Datum) -> Datum:
    """The parts between separators; an empty separator does not split."""
    if isinstance(separator, pa.Scalar) and separator.as_py():
        return pc.split_pattern(texts, pattern=separator.as_py())
    return _by_row(lambda text, by: text.split(by) if by else [text], [texts, separator], _TEXTS)


def replaced(texts: Datum, old: Datum, new: Datum) -> Datum:
    """The texts with every occurrence of a part replaced; an empty part does not occur."""
    if not (isinstance(old, pa.Scalar) and isinstance(new, pa.Scalar)):
        return _by_row(_replaced, [texts, old, new], _TEXT)
    if _is_null(old) or _is_null(new):
        return pc.if_else(pc.is_null(texts), texts, pa.scalar(None, texts.type))
    pattern, replacement = old.as_py(), new.as_py()
    if not pattern:
        return texts
    growth = len(replacement.encode()) - len(pattern.encode())
    found = pc.cast(pc.count_substring(texts, pattern=pattern), pa.int64())
    _require_room(pc.add(_byte_length(texts), pc.multiply(found, growth)))
    return pc.replace_substring(texts, pattern=pattern, replacement=replacement)


def _replaced(text: str, old: str, new: str) -> str:
    if not old:
        return text
    growth = len(new.encode()) - len(old.encode())
    _require_room(pa.scalar(len(text.encode()) + text.count(old) * growth))
    return text.replace(old, new)


def trimmed(texts: Datum) -> Datum:
    """The texts without white space at either end."""
    return pc.utf8_trim_whitespace(texts)


def text_ends_with(texts: Datum, suffixes: Datum) -> Datum:
    """Whether each text ends with its suffix."""
    if not isinstance(suffixes, pa.Scalar):
        return _by_row(str.endswith, [texts, suffixes], pa.bool_())
    if _is_null(suffixes):
        return pa.scalar(False)
    return pc.ends_with(texts, pattern=suffixes.as_py())


def text_matches(texts: Datum, pattern: Datum) -> Datum:
    """Whether a part of each text matches a regular expression."""
    if _is_null(pattern):
        return pa.scalar(False)
    problem = pattern_problem(pattern.as_py())
    if problem is not None:
        raise InputError(f"this is not a regular expression: {problem}", hint=PATTERN_HINT)
    return pc.match_substring_regex(texts, pattern=pattern.as_py())


def pattern_problem(pattern: str) -> str | None:
    """The problem of a regular expression, or None."""
    if len(pattern) > PATTERN_CHARACTERS_MAX:
        return f"it has {len(pattern)} characters, at most {PATTERN_CHARACTERS_MAX} are allowed"
    try:
        pc.match_substring_regex(pa.scalar(""), pattern=pattern)
    except pa.ArrowInvalid as error:
        return re.sub(r"^.*?regular expression: ", "", str(error))
    return None


# --- numbers --------------------------------------------------------------------------------------


def _no_float() -> pa.Scalar:
    return pa.scalar(None, pa.float64())


def whole(operand: Datum, result: ValueType, kernel: Callable[[Datum], Datum]) -> Datum:
    """`floor` or `ceil`, of the type of the operand."""
    operand = to_numeric(operand, result)
    # Adding zero turns -0.0 into 0.0.
    return pc.add(kernel(operand), 0.0) if result.scalar.is_float else operand


def square_root(operand: Datum, result: ValueType) -> Datum:
    """`sqrt`; null for a negative number."""
    number = pc.add(to_numeric(operand, result), 0.0)
    return pc.if_else(pc.less(number, 0.0), _no_float(), pc.sqrt(number))


def logarithm(operand: Datum, result: ValueType) -> Datum:
    """The natural logarithm; null unless the number is positive."""
    number = to_numeric(operand, result)
    return pc.if_else(pc.less_equal(number, 0.0), _no_float(), pc.ln(number))


def power(base: Datum, exponent: Datum, result: ValueType) -> Datum:
    """`pow`; null if the result is no real number."""
    base, exponent = to_numeric(base, result), to_numeric(exponent, result)
    of_zero = pc.and_(pc.equal(base, 0.0), pc.less(exponent, 0.0))
    is_part = pc.and_(pc.is_finite(exponent), pc.not_equal(pc.floor(exponent), exponent))
    is_negative = pc.and_(pc.less(base, 0.0), pc.is_finite(base))
    is_undefined = pc.or_(of_zero, pc.and_(is_negative, is_part))
    return pc.if_else(is_undefined, _no_float(), pc.power(base, exponent))


# --- dates ----------------------------------------------------------------------------------------

_DAY_MS = 86_400_000
_UNITS_MS: dict[str, int] = {
    "weeks": 7 * _DAY_MS,
    "days": _DAY_MS,
    "hours": 3_600_000,
    "minutes": 60_000,
    "seconds": 1_000,
    "milliseconds": 1,
}
_MONTHS: dict[str, int] = {"years": 12, "months": 1}
_REACH_MS = MS_MAX - MS_MIN + 1
"""Shifting by more than this always leaves the range of dates."""


def difference(left: Datum, right: Datum) -> Datum:
    """The milliseconds from one date or date-time to another."""
    unit = _DAY_MS if pa.types.is_date32(left.type) else 1
    return _computed(lambda a, b, _: (a - b) * unit, [left, right], pa.int64(), numbers=pa.int64())


def shifted(moments: Datum, amounts: Datum, unit: PeriodFunction, sign: int) -> Datum:
    """Dates or date-times, shifted by a number of units.

    A month later is the same day of the next month, or its last day if it has no such day.
    """
    is_date = pa.types.is_date32(moments.type)

    def moved(starts: Integers, counts: Integers, used: npt.NDArray[np.bool_]) -> Integers:
        if unit in _MONTHS:
            steps = np.clip(counts, -_REACH_MS, _REACH_MS) * (sign * _MONTHS[unit])
            steps = np.clip(steps, -_MONTHS_REACH, _MONTHS_REACH)
            days, time = (starts, 0) if is_date else (starts // _DAY_MS, starts % _DAY_MS)
            ends = _add_months(days, steps)
            ends = ends if is_date else ends * _DAY_MS + time
        else:
            step = _UNITS_MS[unit] // _DAY_MS if is_date else _UNITS_MS[unit]
            reach = _REACH_MS // step + 1
            ends = starts + np.clip(counts, -reach, reach) * (sign * step)
        low, high = (DAYS_MIN, DAYS_MAX) if is_date else (MS_MIN, MS_MAX)
        if (used & ((ends < low) | (ends > high))).any():
            raise InputError(
                f"a date moved by `{unit}` is outside of the years 1 to 9999",
                hint="move by less, or only dates for which it fits: `if(…, …)`",
            )
        return np.where(used, ends, 0)

    return _computed(moved, [moments, to_numeric(amounts, _I64)], moments.type, numbers=pa.int64())


_MONTHS_REACH = 12 * 10_000
_I64 = ValueType(Scalar.I64)


def _add_months(days: Integers, months: Integers) -> Integers:
    before = days.astype("datetime64[D]")
    month = before.astype("datetime64[M]")
    day = (before - month.astype("datetime64[D]")).astype(np.int64)
    then = month + months.astype("timedelta64[M]")
    first = then.astype("datetime64[D]").astype(np.int64)
    length = (then + np.timedelta64(1, "M")).astype("datetime64[D]").astype(np.int64) - first
    moved: Integers = first + np.minimum(day, length - 1)
    return moved


def truncated(unit: str, moments: Datum) -> Datum:
    """The start of the unit that contains each date or date-time; weeks begin on Monday."""
    is_date = pa.types.is_date32(moments.type)

    def beginnings(starts: Integers, _: npt.NDArray[np.bool_]) -> Integers:
        length = _UNITS_MS.get(f"{unit}s")
        if unit in ("hour", "minute", "second"):
            assert length is not None
            return starts // length * length
        days = starts if is_date else starts // _DAY_MS
        if unit == "week":
            days = (days + _MONDAY) // 7 * 7 - _MONDAY
        elif unit in _MONTHS_IN:
            months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
            months = months // _MONTHS_IN[unit] * _MONTHS_IN[unit]
            days = months.astype("datetime64[M]").astype("datetime64[D]").astype(np.int64)
        return days if is_date else days * _DAY_MS

    return _computed(beginnings, [moments], moments.type, numbers=pa.int64())


_MONDAY = 3
"""Days from Monday to 1970-01-01, a Thursday."""
_MONTHS_IN = {"month": 1, "quarter": 3, "year": 12}

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


# --- aggregates -----------------------------------------------------------------------------------


def require_fraction(value: object) -> float | None:
    """The fraction of a `percentile` given by a parameter; null stays null."""
    if value is None:
        return None
    if not is_fraction(value):
        raise InputError(
            f"the fraction of `percentile` is a number between 0 and 1, not {value}",
            hint="0.5 is the median",
        )
    assert isinstance(value, int | float)
    return float(value)


def percentiles(
    numbers: Floats, group: npt.NDArray[np.integer], count: int, fraction: float | None
) -> pa.Array:
    """For each of ``count`` groups, the number below which a fraction of its numbers lies.

    Interpolates between two numbers. NaN sorts below every number.
    """
    sizes = np.bincount(group, minlength=count)
    if fraction is None or not len(numbers):
        return pa.nulls(count, pa.float64())
    is_number = ~np.isnan(numbers)
    ordered = numbers[np.lexsort((np.where(is_number, numbers, 0.0), is_number, group))]
    starts = np.cumsum(sizes) - sizes
    last = np.maximum(sizes - 1, 0)
    place = fraction * last
    below = np.floor(place).astype(np.int64)
    share = place - below
    first = np.minimum(starts, len(ordered) - 1)
    low = ordered[np.minimum(first + below, len(ordered) - 1)]
    high = ordered[np.minimum(first + np.minimum(below + 1, last), len(ordered) - 1)]
    with np.errstate(invalid="ignore", over="ignore"):
        between = low * (1.0 - share) + high * share
    exact = (share == 0.0) | (low == high)
    return pa.array(np.where(exact, low, between), mask=sizes == 0)


def deviations(numbers: Floats, group: npt.NDArray[np.integer], count: int) -> pa.Array:
    """For each of ``count`` groups, the sample standard deviation; null for fewer than two."""
    sizes = np.bincount(group, minlength=count)
    with np.errstate(invalid="ignore", over="ignore", divide="ignore"):
        means = np.bincount(group, numbers, count) / sizes
        squares = np.bincount(group, (numbers - means[group]) ** 2, count)
        found = np.sqrt(squares / (sizes - 1))
    return pa.array(found, mask=sizes < 2)
