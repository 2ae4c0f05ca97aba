"""Canonical spellings: the one text of a key value, and the entity id made of such texts.

Two equal values have one spelling, whatever they were written as, and two spellings of one type
are equal only if the values are. Ids, uniqueness and endpoint references rest on that.
"""

from __future__ import annotations

import datetime as dt
import json
import math
from collections.abc import Sequence
from decimal import Decimal

from omnigraph.errors import ValueConversionError
from omnigraph.model.temporal import epoch_days, epoch_ms
from omnigraph.model.types import Scalar, ValueType


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
    """The id of a keyed node: its only spelling, or a compact JSON array of several.

    ``members`` are spellings in ascending order of property id.

    >>> entity_id(["north"])
    'north'
    >>> entity_id(["7", "north"])
    '["7","north"]'
    """
    if len(members) == 1:
        return members[0]
    return json.dumps(list(members), ensure_ascii=False, separators=(",", ":"))


def refuse_non_finite(value: float) -> ValueConversionError:
    """The error for a float that has no spelling."""
    return ValueConversionError(
        f"a non-finite float cannot be part of a key: {value}", details={"value": str(value)}
    )


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
