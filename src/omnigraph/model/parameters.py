"""Query parameters: the JSON a caller sends, read against the declared types.

Differences from properties: integers may also be decimal strings, so that clients without 64-bit
numbers can send them; dates are texts only; nothing is null unless declared so, not even inside a
list. Callers in the same process may also pass `datetime` objects and `bytes`.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from array import array
from collections.abc import Mapping
from typing import Any

from omnigraph.errors import InputError, ParameterError, ValueConversionError
from omnigraph.model.types import Scalar, ValueType
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
    declared: Mapping[str, ValueType], document: object = None
) -> dict[str, Value | None]:
    """Every declared parameter with its value; ``document`` is one JSON object keyed by name.

    Undeclared keys are ignored, unless their value is an object. A parameter that is absent is
    null if its type allows it.
    """
    if document is None:
        document = {}
    if not isinstance(document, Mapping):
        raise InputError(f"parameters must be a JSON object, got {shown(document)}")
    for name, value in document.items():
        if isinstance(value, Mapping):
            raise ParameterError(str(name), f"parameter '{name}' must not be an object")
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
    name: str, type: ValueType, declared: Mapping[str, ValueType], document: Mapping[str, object]
) -> str:
    """How to pass a parameter; a name that was given and means nothing may be it, misspelt."""
    unused = ", ".join(f"`{given}`" for given in document if given not in declared)
    spare = f"; {unused} is no parameter of this query" if unused else ""
    return f'pass a value for ${name}: {type} among the parameters, {{"{name}": …}}{spare}'


def parameter_value(value: object, type: ValueType, name: str) -> Value | None:
    """The value of parameter ``name``, declared as ``type``, that a JSON ``value`` stands for.

    >>> parameter_value("9007199254740993", ValueType(Scalar.I64), "n")
    9007199254740993
    """
    if value is None:
        if type.nullable:
            return None
        raise ParameterError(
            name, f"parameter '{name}' is null", hint=f"declare ${name} as {type}? to allow null"
        )
    subject = f"parameter '{name}'"
    try:
        if type.is_list or type.is_vector:
            return _array(value, type, subject)
        return _scalar(value, type.scalar, subject)
    except WrongType:
        wanted = type.with_nullable(False)
        raise ParameterError(name, f"{subject} expects {wanted}, got {shown(value)}") from None
    except ValueConversionError as error:
        raise ParameterError(name, error.message) from error


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
    """Vectors are long: floats that single precision can hold, rounded at once; None if not."""
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
        return moment_value(value, scalar, subject)
    return scalar_value(value, scalar, subject)


def _decimal(text: str, scalar: Scalar, subject: str) -> int:
    if _DECIMAL.fullmatch(text) is None:
        raise WrongType
    try:
        return int(text)
    except ValueError:
        # Python refuses to read thousands of digits, which no integer type could hold anyway.
        raise ValueConversionError(
            f"{subject} value of {len(text)} digits exceeds {ARROW_NAMES[scalar]} range"
        ) from None
