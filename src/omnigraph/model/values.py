"""Values one at a time: what a JSON value, a parameter or a literal becomes in a property.

Inside the product a value has one form, whatever it was written as:

=========  =========================================================================
String     `str`, valid Unicode
Bool       `bool`
integers   `int`, within the bounds of the type; never a `bool`
F32, F64   `float`, finite; an F32 is already rounded to single precision
Date       `datetime.date`, years 1 to 9999
DateTime   `datetime.datetime` in UTC, whole milliseconds
Blob       `bytes`, or `BlobUri` for an external object
[T]        `list` of those; an item may be None
Vector     `list` of F32 values
null       None
=========  =========================================================================

`property_value` reads decoded JSON, `assigned_value` takes a value already in this form (a literal,
a bound parameter) into a property; `parameters` reads the JSON of parameters, and `arrow` does
for whole columns what `property_value` does for one value. Enum membership is a constraint and
not looked at here.

JSON integers must arrive exact: a decoder that turns `18446744073709551616` into a float has lost
the difference between a number that is too large and one that is no integer.

A Date is stored as days since 1970-01-01, a DateTime as milliseconds since then. Their texts are
those of RFC 3339, with four leniencies: a space for the `T`, lower-case `t` and `z`, no offset
(which means UTC), and a date alone (which means its midnight). Where the RFC leaves a choice:

- a fraction may have any number of digits and is cut after the third, which is the floor on both
  sides of 1970, because a fraction always counts forward from its second;
- second 60 is a leap second and is accepted in the last minute of a UTC day only. Epoch time has
  no number of its own for it, so it becomes the first second of the next day; its date stays;
- hour 24, an offset of 24 hours or more, an offset without a colon, and a time without seconds are
  not RFC 3339 and are refused. `-00:00` is UTC.
"""

from __future__ import annotations

import binascii
import datetime as dt
import json
import math
import re
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, TypeGuard, TypeVar

from omnigraph.errors import ValueConversionError
from omnigraph.model.records import dataclass
from omnigraph.model.types import INTEGER_BOUNDS, Scalar, ValueType

# --- dates and date-times -------------------------------------------------------------------------

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_ORDINAL = EPOCH.toordinal()
_MILLISECOND = dt.timedelta(milliseconds=1)

DAYS_MIN = dt.date.min.toordinal() - _EPOCH_ORDINAL
DAYS_MAX = dt.date.max.toordinal() - _EPOCH_ORDINAL
MS_MIN = DAYS_MIN * 86_400_000
MS_MAX = (DAYS_MAX + 1) * 86_400_000 - 1

# Checks the format only; `datetime` checks the days of a month, but accepts other formats.
_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d"
    r"(?:[Tt ](?:[01]\d|2[0-3]):[0-5]\d:([0-5]\d|60)(?:\.\d+)?"
    r"(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)?)?",
    re.ASCII,
)


def parse_date(text: str) -> dt.date:
    """The date of `YYYY-MM-DD`, or the UTC date of an RFC 3339 date-time."""
    try:
        moment, _ = _parse_moment(text)
    except ValueError:
        raise ValueConversionError(f"invalid Date literal '{text}'") from None
    except OverflowError:
        raise ValueConversionError(f"Date value out of range: '{text}'") from None
    return moment.date()


def parse_datetime(text: str) -> dt.datetime:
    """The instant of an RFC 3339 text, in UTC, floored to milliseconds."""
    try:
        moment, leap_second = _parse_moment(text)
        return moment + leap_second
    except (ValueError, OverflowError):
        raise ValueConversionError(f"invalid DateTime literal '{text}'") from None


_NO_LEAP_SECOND = dt.timedelta()
_LEAP_SECOND = dt.timedelta(seconds=1)


def _parse_moment(text: str) -> tuple[dt.datetime, dt.timedelta]:
    """The instant without its leap second, and the leap second, if any."""
    match = _MOMENT.fullmatch(text)
    if match is None:
        raise ValueError
    if match[1] != "60":
        return _to_utc_ms(dt.datetime.fromisoformat(text.upper())), _NO_LEAP_SECOND
    before = _to_utc_ms(dt.datetime.fromisoformat(text.upper().replace(":60", ":59", 1)))
    if (before.hour, before.minute) != (23, 59):
        raise ValueError
    return before, _LEAP_SECOND


def date_from_days(days: int) -> dt.date:
    """The date that is ``days`` after 1970-01-01."""
    if not DAYS_MIN <= days <= DAYS_MAX:
        raise ValueConversionError(f"Date value out of range: {days}")
    return dt.date.fromordinal(days + _EPOCH_ORDINAL)


def datetime_from_ms(ms: int) -> dt.datetime:
    """The UTC instant that is ``ms`` milliseconds after 1970-01-01T00:00:00Z."""
    if not MS_MIN <= ms <= MS_MAX:
        raise ValueConversionError(f"invalid DateTime literal '{ms}'")
    return EPOCH + ms * _MILLISECOND


def epoch_days(date: dt.date) -> int:
    """Days from 1970-01-01 to ``date``."""
    return date.toordinal() - _EPOCH_ORDINAL


def epoch_ms(moment: dt.datetime) -> int:
    """Whole milliseconds from 1970-01-01T00:00:00Z to an aware ``moment``, floored."""
    return (moment - EPOCH) // _MILLISECOND


def to_utc_ms(moment: dt.datetime) -> dt.datetime:
    """``moment`` in the form of stored values: UTC, floored to ms; without a zone it is UTC."""
    try:
        return _to_utc_ms(moment)
    except OverflowError:
        raise ValueConversionError(f"invalid DateTime literal '{moment}'") from None


def _to_utc_ms(moment: dt.datetime) -> dt.datetime:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    elif moment.tzinfo is not dt.UTC:
        moment = moment.astimezone(dt.UTC)
    beyond_ms = moment.microsecond % 1000
    return moment.replace(microsecond=moment.microsecond - beyond_ms) if beyond_ms else moment


def format_date(date: dt.date) -> str:
    """`YYYY-MM-DD`."""
    return date.isoformat()


def format_datetime(moment: dt.datetime) -> str:
    """`YYYY-MM-DDThh:mm:ss.mmmZ`, always three decimals and `Z`.

    >>> format_datetime(parse_datetime("2031-04-09 09:30:00+02:00"))
    '2031-04-09T07:30:00.000Z'
    """
    utc = moment.astimezone(dt.UTC).replace(tzinfo=None)
    return utc.isoformat(timespec="milliseconds") + "Z"


# --- floats and blobs -----------------------------------------------------------------------------

_F32 = struct.Struct("<f")


def round_to_f32(value: float) -> float:
    """``value`` rounded to the nearest F32; beyond its range an infinity, as in IEEE 754.

    >>> round_to_f32(0.1)
    0.10000000149011612
    >>> round_to_f32(1e39)
    inf
    """
    try:
        rounded: float = _F32.unpack(_F32.pack(value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


BLOB_PREFIX = "base64:"
BLOB_URI_BYTES_MAX = 64 * 1024


@dataclass(frozen=True, slots=True)
class BlobUri:
    """A blob stored elsewhere: the URI of an external object."""

    uri: str


ScalarValue = str | bool | int | float | dt.date | dt.datetime | bytes | BlobUri
Value = ScalarValue | list[Any]
"""A non-null value; the items of a list are `ScalarValue` or None."""

ARROW_NAMES: dict[Scalar, str] = {
    Scalar.STRING: "Utf8",
    Scalar.BOOL: "Boolean",
    Scalar.I32: "Int32",
    Scalar.I64: "Int64",
    Scalar.U32: "UInt32",
    Scalar.U64: "UInt64",
    Scalar.F32: "Float32",
    Scalar.F64: "Float64",
    Scalar.DATE: "Date32",
    Scalar.DATETIME: "Timestamp(ms, UTC)",
}
"""The names of column types in messages."""


class WrongType(Exception):
    """A value is not of a JSON type its target accepts; the caller decides what follows."""


ScalarReader = Callable[[object, Scalar, str], ScalarValue]
"""Reads one scalar; the last argument is the subject of error messages.

Raises `WrongType`, or `ValueConversionError` if the type is right and the value is not.
"""

# --- values of properties -------------------------------------------------------------------------


def property_value(value: object, type: ValueType, name: str, *, strict: bool) -> Value | None:
    """The value of property ``name`` for a decoded JSON ``value``.

    A value of the wrong JSON type is an error if ``strict`` and null otherwise, as far as the
    property is nullable. Any other invalid value is an error in both modes: a number out of range,
    an invalid date, a vector of the wrong length.

    >>> property_value("2031-04-09", ValueType(Scalar.DATE), "born", strict=True)
    datetime.date(2031, 4, 9)
    """
    return _convert(value, type, name, scalar_value, strict=strict)


def assigned_value(value: object, type: ValueType, name: str) -> Value | None:
    """``value``, a literal or a bound parameter, converted for property ``name``.

    Nothing is coerced: a fraction never becomes an integer, text never becomes a date, and an
    integer becomes a float only if the float is exactly that integer. A float is rounded to the
    width of its column.

    >>> assigned_value(7, ValueType(Scalar.F64), "height")
    7.0
    """
    return _convert(value, type, name, _assigned_scalar, strict=True)


def _convert(
    value: object, type: ValueType, name: str, read: ScalarReader, *, strict: bool
) -> Value | None:
    try:
        if value is None:
            _require_nullable(type, name)
            return None
        if type.is_blob:
            return _blob(value, name)
        if type.is_vector:
            return _vector(value, type, name, read)
        if type.is_list:
            return _list(value, type, name, read, strict=strict)
        try:
            return read(value, type.scalar, f"property '{name}'")
        except WrongType:
            if strict:
                wanted = ARROW_NAMES[type.scalar]
                raise ValueConversionError(
                    f"property '{name}' expects {wanted}, got {shown(value)}"
                ) from None
            _require_nullable(type, name)
            return None
    except ValueConversionError as error:
        error.details = {"property": name, "value": value}
        raise


def _require_nullable(type: ValueType, name: str) -> None:
    if type.nullable:
        return
    raise ValueConversionError(null_message(type, name))


def null_message(type: ValueType, name: str) -> str:
    """The message for a missing value of a property of ``type``, which is not nullable."""
    # Vectors and blobs of a wrong type are refused as such; other values may have become null.
    what = "null values" if type.is_vector or type.is_blob else "null or invalid values"
    return f"non-nullable property '{name}' has {what}"


def _list(
    value: object, type: ValueType, name: str, read: ScalarReader, *, strict: bool
) -> list[Any]:
    if not isinstance(value, list | tuple):
        raise ValueConversionError(
            f"list property '{name}' expects a JSON array, got {shown(value)}"
        )
    items: list[ScalarValue | None] = []
    for item in value:
        try:
            if item is None:
                raise WrongType
            items.append(read(item, type.scalar, f"property '{name}' list"))
        except WrongType:
            if strict:
                raise ValueConversionError(
                    f"list property '{name}' has a null or invalid item: {shown(item)}"
                ) from None
            items.append(None)
    return items


def _vector(value: object, type: ValueType, name: str, read: ScalarReader) -> list[Any]:
    subject = f"vector property '{name}'"
    if not isinstance(value, list | tuple):
        raise ValueConversionError(
            f"{subject} expects a JSON array of {type.vector_dim} numbers, got {shown(value)}"
        )
    if len(value) != type.vector_dim:
        raise ValueConversionError(
            f"{subject} expects {type.vector_dim} dimensions, got {len(value)}"
        )
    try:
        return [read(item, Scalar.F32, subject) for item in value]
    except WrongType:
        raise ValueConversionError(f"{subject} elements must be numeric") from None


def _blob(value: object, name: str) -> bytes | BlobUri:
    if isinstance(value, bytes | BlobUri):
        return value
    subject = f"blob property '{name}'"
    try:
        return read_blob(value, subject)
    except WrongType:
        raise ValueConversionError(
            f"{subject} must be a URI string or base64: prefixed data, got {shown(value)}"
        ) from None


# --- one scalar -----------------------------------------------------------------------------------


def scalar_value(value: object, scalar: Scalar, subject: str) -> ScalarValue:
    """The scalar for a JSON value, by the rules that properties and parameters share."""
    match scalar:
        case Scalar.STRING:
            return _text(value, subject)
        case Scalar.BOOL:
            if isinstance(value, bool):
                return value
        case Scalar.I32 | Scalar.I64 | Scalar.U32 | Scalar.U64:
            if is_integer(value):
                low, high = INTEGER_BOUNDS[scalar]
                if low <= value <= high:
                    return value
                raise _out_of_range(value, scalar, subject)
        case Scalar.F32 | Scalar.F64:
            if is_integer(value) or isinstance(value, float):
                return _finite(value, scalar, subject)
        case Scalar.DATE:
            if isinstance(value, str):
                return named(subject, parse_date, value)
            if is_integer(value):
                return named(subject, date_from_days, value)
        case Scalar.DATETIME:
            if isinstance(value, str):
                return named(subject, parse_datetime, value)
            if is_integer(value):
                return named(subject, datetime_from_ms, value)
        case Scalar.BLOB | Scalar.VECTOR:
            pass
    raise WrongType


def _assigned_scalar(value: object, scalar: Scalar, subject: str) -> ScalarValue:
    if scalar is Scalar.DATE or scalar is Scalar.DATETIME:
        return moment_value(value, scalar, subject)
    result = scalar_value(value, scalar, subject)
    if scalar.is_float and is_integer(value) and result != value:
        raise ValueConversionError(
            f"{subject} value {value} is not exactly representable as {ARROW_NAMES[scalar]}"
        )
    return result


def moment_value(value: object, scalar: Scalar, subject: str) -> dt.date | dt.datetime:
    """A Date or DateTime given as a Python object; one is not accepted for the other."""
    if scalar is Scalar.DATETIME and isinstance(value, dt.datetime):
        return named(subject, to_utc_ms, value)
    # In Python a datetime is a date, in the languages it is not.
    if scalar is Scalar.DATE and isinstance(value, dt.date) and not isinstance(value, dt.datetime):
        return value
    raise WrongType


def read_blob(value: object, subject: str) -> bytes | BlobUri:
    """The bytes of `base64:` data, or a `BlobUri` for any other text."""
    text = _text(value, subject)
    if text.startswith(BLOB_PREFIX):
        try:
            return binascii.a2b_base64(text.removeprefix(BLOB_PREFIX), strict_mode=True)
        except ValueError as error:
            raise ValueConversionError(f"{subject}: invalid base64 blob data") from error
    if not text:
        raise WrongType
    size = len(text.encode())
    if size > BLOB_URI_BYTES_MAX:
        raise ValueConversionError(
            f"{subject}: the URI has {size} bytes, at most {BLOB_URI_BYTES_MAX} are allowed"
        )
    return BlobUri(text)


def is_integer(value: object) -> TypeGuard[int]:
    """Whether ``value`` is a JSON integer; in Python, unlike JSON, a `bool` is an `int`."""
    return isinstance(value, int) and not isinstance(value, bool)


def _text(value: object, subject: str) -> str:
    if not isinstance(value, str):
        raise WrongType
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise ValueConversionError(f"{subject}: text with a lone surrogate") from error
    return value


def _finite(value: float, scalar: Scalar, subject: str) -> float:
    try:
        wide = float(value)
    except OverflowError:
        raise _out_of_range(value, scalar, subject) from None
    result = round_to_f32(wide) if scalar is Scalar.F32 else wide
    if not math.isfinite(result):
        raise _out_of_range(value, scalar, subject)
    return result


def _out_of_range(value: float, scalar: Scalar, subject: str) -> ValueConversionError:
    return ValueConversionError(f"{subject} value {value} exceeds {ARROW_NAMES[scalar]} range")


_In = TypeVar("_In")
_Out = TypeVar("_Out")


def named(subject: str, convert: Callable[[_In], _Out], value: _In) -> _Out:
    """``convert(value)``, with ``subject`` prepended to the messages of its errors."""
    try:
        return convert(value)
    except ValueConversionError as error:
        raise ValueConversionError(f"{subject}: {error.message}") from error


SHOWN_CHARACTERS_MAX = 80


def shown(value: object) -> str:
    """``value`` as shown in an error message: its JSON kind and a bounded excerpt."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int() | float():
            kind, text = "number", str(value)
        case str():
            kind, text = "string", repr(value)
        case list() | tuple():
            return f"an array of {len(value)}"
        case dict():
            return "an object"
        case _:
            kind, text = value.__class__.__name__, str(value)
    if len(text) > SHOWN_CHARACTERS_MAX:
        text = text[: SHOWN_CHARACTERS_MAX - 1] + "…"
    return f"{kind} {text}"


# --- canonical spellings --------------------------------------------------------------------------
#
# The text form of a key value, and the entity id made of such texts. Within a type, values are
# equal exactly if their spellings are. Ids, uniqueness and endpoint references depend on that.


def spell(value: object, type: ValueType) -> str:
    """The canonical spelling of a value, in the form `model.values` describes.

    >>> spell(dt.date(1970, 1, 3), ValueType(Scalar.DATE))
    '2'
    >>> spell(1e21, ValueType(Scalar.F64)), spell(-0.0, ValueType(Scalar.F64))
    ('1000000000000000000000', '0')
    """
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float() if type.scalar.is_float:
            return _spell_float(float(value), type.scalar)
        case int():
            return str(value)
        case dt.datetime():
            return str(epoch_ms(value))
        case dt.date():
            return str(epoch_days(value))
        case _:
            raise TypeError(f"{type} has no canonical spelling: {value!r}")


def entity_id(members: Sequence[str]) -> str:
    """The id of a keyed node: its single spelling, or a compact JSON array of several.

    ``members`` are spellings in ascending order of property id.

    >>> entity_id(["north"])
    'north'
    >>> entity_id(["7", "north"])
    '["7","north"]'
    """
    if len(members) == 1:
        return members[0]
    return json.dumps(list(members), ensure_ascii=False, separators=(",", ":"))


def non_finite_message(value: float) -> str:
    """The message for NaN or an infinity in a key."""
    return f"a non-finite float cannot be part of a key: {value}"


def refuse_non_finite(value: float) -> ValueConversionError:
    """The error for a float that has no spelling."""
    return ValueConversionError(non_finite_message(value), details={"value": str(value)})


def expand_exponent(text: str) -> str:
    """A decimal number in positional form, without a trailing fraction of zero or a sign on zero.

    >>> expand_exponent("1e-7"), expand_exponent("2.0"), expand_exponent("-0")
    ('0.0000001', '2', '0')
    """
    positional = format(Decimal(text), "f").removesuffix(".0")
    return "0" if positional == "-0" else positional


def _spell_float(value: float, scalar: Scalar) -> str:
    if not math.isfinite(value):
        raise refuse_non_finite(value)
    if scalar is Scalar.F64:
        return expand_exponent(repr(value))
    # The shortest text differs by width: 0.1 as F32 is 0.10000000149011612 as F64. Only numpy
    # knows single precision, and it is imported here because few keys are F32.
    import numpy as np

    return expand_exponent(np.format_float_positional(np.float32(value), trim="-"))
