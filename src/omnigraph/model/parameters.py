"""Query parameters: values given by a caller, checked against the declared types.

Differences from properties: integers may also be decimal strings, so that clients without 64-bit
numbers can send them; dates are texts only; nothing is null unless declared so, not even inside a
list.

Python callers may also pass `date`, `datetime`, `bytes`, `Decimal` and `UUID`, scalars and arrays
of numpy and Arrow, and series of pandas and Polars. `plain_value` converts them, here and in the
client, without importing the library that they come from.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import sys
from array import array
from collections.abc import Iterable, Mapping
from decimal import Decimal
from types import NoneType
from typing import Any
from uuid import UUID

from omnigraph.errors import InputError, ParameterError, ValueConversionError
from omnigraph.model.types import ParameterType, RecordsType, Scalar, ValueType
from omnigraph.model.values import (
    ARROW_NAMES,
    ScalarValue,
    Value,
    WrongType,
    moment_value,
    named,
    read_blob,
    scalar_value,
    shown,
    to_utc_ms,
)

_DECIMAL = re.compile(r"-?[0-9]+")


def bind_parameters(
    declared: Mapping[str, ParameterType], document: object = None
) -> dict[str, Value | None]:
    """The value of every declared parameter; ``document`` is one JSON object keyed by name.

    Undeclared keys are ignored, unless their value is an object. A missing parameter is null if its
    type allows it. A list of records becomes a list of dictionaries that have every field.
    """
    if document is None:
        document = {}
    if not isinstance(document, Mapping):
        raise InputError(
            f"parameters must be a JSON object, got {shown(document)}",
            hint='write a member for each parameter, such as {"handle": "ada"}',
        )
    for name, value in document.items():
        if isinstance(value, Mapping):
            raise ParameterError(
                str(name), f"parameter '{name}' must not be an object{_origin(value)}"
            )
    bound: dict[str, Value | None] = {}
    for name, type in declared.items():
        if name not in document and not type.nullable:
            raise ParameterError(
                name,
                f"parameter '{name}' not provided",
                hint=_wanted(name, type, declared, document),
            )
        bound[name] = parameter_value(document.get(name), type, name)
    return bound


def _wanted(
    name: str,
    type: ParameterType,
    declared: Mapping[str, ParameterType],
    document: Mapping[str, object],
) -> str:
    """How to pass a missing parameter; suggests an undeclared name that may be misspelt."""
    unused = ", ".join(f"`{given}`" for given in document if given not in declared)
    spare = f"; {unused} is no parameter of this query" if unused else ""
    return f'pass a value for ${name}: {type} among the parameters, {{"{name}": …}}{spare}'


def parameter_value(given: object, type: ParameterType, name: str) -> Value | None:
    """The value of parameter ``name`` of type ``type`` for the input ``given``.

    >>> parameter_value("9007199254740993", ValueType(Scalar.I64), "n")
    9007199254740993
    """
    value = plain_value(given)
    if value is None:
        if type.nullable:
            return None
        raise ParameterError(
            name,
            f"parameter '{name}' is null{_origin(given)}",
            hint=f"declare ${name} as {type}? to allow null",
        )
    subject = f"parameter '{name}'"
    try:
        if isinstance(type, RecordsType):
            return _records(value, type, name)
        if type.is_list or type.is_vector:
            return _array(value, type, subject)
        return _scalar(value, type.scalar, subject)
    except WrongType:
        message = f"{subject} expects {type.with_nullable(False)}, got {shown(value)}"
        raise ParameterError(name, message + _origin(given)) from None
    except ValueConversionError as error:
        hint = "pass None for a missing value" if _is_nan(value) else None
        raise ParameterError(name, error.message + _origin(given), hint=hint) from error


def _records(value: object, type: RecordsType, name: str) -> list[dict[str, Value | None]]:
    if not isinstance(value, list | tuple):
        raise WrongType
    fields = dict(type.fields)
    return [_record(item, fields, f"{name}[{at}]") for at, item in enumerate(value)]


def _record(value: object, fields: Mapping[str, ValueType], where: str) -> dict[str, Value | None]:
    """One record; an unknown member is an error, since it may be a misspelt field."""
    if not isinstance(value, Mapping):
        raise ParameterError(where, f"parameter '{where}' expects a record, got {shown(value)}")
    for member in value:
        if member not in fields:
            raise ParameterError(
                where,
                f"parameter '{where}' has no field `{member}`",
                hint=f"its fields are {', '.join(fields)}",
            )
    found: dict[str, Value | None] = {}
    for field, type in fields.items():
        if not type.nullable and plain_value(value.get(field)) is None:
            raise ParameterError(
                where,
                f"parameter '{where}' has no value for field `{field}`",
                hint=f"declare {field} as {type}? to allow null",
            )
        found[field] = parameter_value(value.get(field), type, f"{where}.{field}")
    return found


def _array(value: object, type: ValueType, subject: str) -> list[ScalarValue]:
    if not isinstance(value, list | tuple):
        raise WrongType
    if type.is_vector and len(value) != type.vector_dim:
        raise ValueConversionError(
            f"{subject} expects {type.vector_dim} dimensions, got {len(value)}"
        )
    scalar = Scalar.F32 if type.is_vector else type.scalar
    if scalar is Scalar.STRING and _are_texts(value):
        return list(value)
    if type.is_vector and (floats := _f32_values(value)) is not None:
        return floats
    items: list[ScalarValue] = []
    for position, item in enumerate(value):
        try:
            items.append(_scalar(item, scalar, subject))
        except WrongType:
            raise ValueConversionError(
                f"{subject} expects {type.with_nullable(False)}, "
                f"got {shown(item)} at position {position}"
            ) from None
    return items


def _f32_values(values: list[Any] | tuple[Any, ...]) -> list[ScalarValue] | None:
    """A long list of floats within single precision, rounded in one call; otherwise None."""
    if not all(type(item) is float for item in values):
        return None
    rounded = array("f", values).tolist()
    return [*rounded] if all(map(math.isfinite, rounded)) else None


def _are_texts(values: list[Any] | tuple[Any, ...]) -> bool:
    """Whether all items are valid texts; in one pass, for lists of a thousand keys."""
    try:
        "".join(values).encode()
    except (TypeError, UnicodeEncodeError):
        return False
    return True


def _scalar(value: object, scalar: Scalar, subject: str) -> ScalarValue:
    if scalar is Scalar.BLOB:
        return value if isinstance(value, bytes) else read_blob(value, subject)
    if scalar.is_integer and isinstance(value, str):
        return scalar_value(_decimal(value, scalar, subject), scalar, subject)
    if scalar in (Scalar.DATE, Scalar.DATETIME) and not isinstance(value, str):
        if scalar is Scalar.DATE and isinstance(value, dt.datetime):
            return named(subject, to_utc_ms, value).date()
        if scalar is Scalar.DATETIME and type(value) is dt.date:
            # Same meaning as its text, which is what a client sends.
            return dt.datetime.combine(value, dt.time(), dt.UTC)
        return moment_value(value, scalar, subject)
    return scalar_value(value, scalar, subject)


def _decimal(text: str, scalar: Scalar, subject: str) -> int:
    if _DECIMAL.fullmatch(text) is None:
        raise WrongType
    try:
        return int(text)
    except ValueError:
        # Python refuses to parse thousands of digits, which no integer type has anyway.
        raise ValueConversionError(
            f"{subject} value of {len(text)} digits exceeds {ARROW_NAMES[scalar]} range"
        ) from None


# --- values of Python libraries -------------------------------------------------------------------

_PLAIN: frozenset[type] = frozenset(
    {str, bool, int, float, bytes, NoneType, dt.date, dt.datetime, dict}
)
_MISSING = ("NaTType", "NAType")
"""The classes of missing values of pandas."""


def plain_value(value: object) -> object:
    """``value`` in Python's own types; values of unknown libraries are returned as they are.

    Arrays and series become lists, and missing values of pandas and numpy None. NaN stays NaN: it
    may be the result of a failed computation.

    >>> plain_value((Decimal("7"), {"a"}))
    [7, ['a']]
    """
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind is list or kind is tuple:
        assert isinstance(value, list | tuple)
        return value if set(map(type, value)) <= _PLAIN else _plain_items(value)
    match value:
        case str():
            return str.__str__(value)
        case float():
            return float(value)
        case int():
            return int(value)
        case dt.datetime():
            # Also for pandas, whose NaT is a datetime.
            if kind.__name__ in _MISSING:
                return None
            return dt.datetime.combine(value.date(), value.timetz())
        case dt.date():
            return dt.date(value.year, value.month, value.day)
        case Decimal():
            is_whole = value.is_finite() and value == value.to_integral_value()
            return int(value) if is_whole else float(value)
        case UUID():
            return str(value)
        case bytes() | bytearray() | memoryview():
            return bytes(value)
        case list() | tuple() | set() | frozenset():
            return _plain_items(value)
        case Mapping():
            return value
    if kind.__name__ in _MISSING:
        return None
    unpacked = _unpacked(value)
    return value if unpacked is value else plain_value(unpacked)


def _plain_items(values: Iterable[object]) -> list[object]:
    return [plain_value(item) for item in values]


def _unpacked(value: Any) -> object:
    """The contents of a scalar, array or series of a library; other values as they are."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(value, numpy.generic | numpy.ndarray):
        if value.dtype.kind == "M" and not value.dtype.str.endswith("[D]"):
            # Python has microseconds: numpy returns other units as plain integers.
            value = value.astype("datetime64[us]")
        return value.tolist()
    # Arrow's scalars and arrays, arrays of others such as pandas, and series of Polars.
    for name in ("as_py", "to_pylist", "tolist", "to_list"):
        method = getattr(value, name, None)
        if callable(method) and not isinstance(value, type):
            return method()
    return value


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def _origin(given: object) -> str:
    """The Python type of a value, for a message; empty if it is a JSON type."""
    kind = type(given)
    if kind.__module__ == "builtins":
        return "" if kind in _PLAIN or kind in (list, tuple) else f" ({kind.__qualname__})"
    return f" ({kind.__module__}.{kind.__qualname__})"
