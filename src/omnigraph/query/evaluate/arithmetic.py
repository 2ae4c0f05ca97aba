"""Computing with numbers: the four operations, `abs` and `round`."""

from __future__ import annotations

import decimal
import math
import operator as op
from collections.abc import Callable, Iterator
from itertools import repeat

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError
from omnigraph.model.arrow import arrow_type
from omnigraph.model.types import INTEGER_BOUNDS, Scalar, ValueType
from omnigraph.query.ast import ArithmeticOperator
from omnigraph.query.evaluate.comparison import Datum

_I64_LOW, _I64_HIGH = INTEGER_BOUNDS[Scalar.I64]

_INTEGER_KERNELS: dict[ArithmeticOperator, Callable[[Datum, Datum], Datum]] = {
    "+": pc.add_checked,
    "-": pc.subtract_checked,
    "*": pc.multiply_checked,
}
_FLOAT_KERNELS: dict[ArithmeticOperator, Callable[[Datum, Datum], Datum]] = {
    "+": pc.add,
    "-": pc.subtract,
    "*": pc.multiply,
}
_EXACT: dict[ArithmeticOperator, Callable[[int, int], int]] = {
    "+": op.add,
    "-": op.sub,
    "*": op.mul,
}


def arithmetic(operator: ArithmeticOperator, left: Datum, right: Datum, result: ValueType) -> Datum:
    """`left operator right` as I64 or F64; null where either side is, and for `x / 0`."""
    if not result.scalar.is_float:
        return _integers(operator, left, right)
    left, right = to_numeric(left, result), to_numeric(right, result)
    if operator == "/":
        # The quotient of the rows in question is never looked at.
        is_zero = pc.equal(right, 0.0)
        return pc.if_else(is_zero, pa.scalar(None, pa.float64()), pc.divide(left, right))
    return _FLOAT_KERNELS[operator](left, right)


def to_numeric(operand: Datum, wanted: ValueType) -> Datum:
    """``operand`` in the type of a numeric result: rounded in the floats, exact in the integers."""
    if wanted.scalar.is_float:
        return pc.cast(operand, arrow_type(wanted), safe=False)
    try:
        return pc.cast(operand, arrow_type(wanted))
    except pa.ArrowInvalid:
        raise _overflow(str(pc.max(operand).as_py())) from None


def _integers(operator: ArithmeticOperator, left: Datum, right: Datum) -> Datum:
    try:
        return _INTEGER_KERNELS[operator](pc.cast(left, pa.int64()), pc.cast(right, pa.int64()))
    except pa.ArrowInvalid:
        # Either a result is too large, or only an operand is: U64 goes beyond I64, and a
        # difference of two such numbers may still fit.
        return _exact_integers(operator, left, right)


def _exact_integers(operator: ArithmeticOperator, left: Datum, right: Datum) -> Datum:
    compute = _EXACT[operator]
    results: list[int | None] = []
    for a, b in _pairs(left, right):
        result = None if a is None or b is None else compute(a, b)
        if result is not None and not _I64_LOW <= result <= _I64_HIGH:
            raise _overflow(f"{a} {operator} {b}")
        results.append(result)
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        return pa.scalar(results[0], pa.int64())
    return pa.array(results, pa.int64())


def _pairs(left: Datum, right: Datum) -> Iterator[tuple[int | None, int | None]]:
    if isinstance(left, pa.Scalar) and isinstance(right, pa.Scalar):
        yield left.as_py(), right.as_py()
        return
    columns = [
        repeat(side.as_py()) if isinstance(side, pa.Scalar) else side.to_pylist()
        for side in (left, right)
    ]
    yield from zip(*columns, strict=False)


def _overflow(what: str) -> InputError:
    return InputError(
        f"integer overflow: {what} does not fit I64",
        hint="make one operand a float, for instance by multiplying with 1.0",
    )


# --- abs and round --------------------------------------------------------------------------------


def absolute(operand: Datum, result: ValueType) -> Datum:
    """`abs(operand)`."""
    operand = to_numeric(operand, result)
    if result.scalar is Scalar.U64:
        return operand
    try:
        return pc.abs_checked(operand)
    except pa.ArrowInvalid:
        raise _overflow(f"abs({_I64_LOW})") from None


def rounded(operand: Datum, digits: int, result: ValueType) -> Datum:
    """`round(operand, digits)`: halves away from zero; negative digits round before the point."""
    operand = to_numeric(operand, result)
    if result.scalar.is_float:
        return _map_floats(operand, digits)
    if digits >= 0:
        return operand
    try:
        return pc.round(operand, ndigits=digits, round_mode="half_towards_infinity")
    except pa.ArrowInvalid:
        raise _overflow(f"round(…, {digits})") from None


def _map_floats(operand: Datum, digits: int) -> Datum:
    if isinstance(operand, pa.Scalar):
        return pa.scalar(round_float(operand.as_py(), digits) if operand.is_valid else None, F64)
    if isinstance(operand, pa.ChunkedArray):
        return pa.chunked_array([_round_floats(chunk, digits) for chunk in operand.chunks], F64)
    return _round_floats(operand, digits)


F64 = pa.float64()
_WHOLE = 2.0**52
"""From here on every float is an integer."""
_DOUBT = 2.0**-50
"""How far, relative to its size, a scaled float may lie from the scaled digits it stands for."""


def _round_floats(column: pa.Array, digits: int) -> pa.Array:
    """Scale, round, scale back; where scaling may have crossed a half, go by the digits.

    The quotient or product of an integer below 2^53 with an exact power of ten is correctly
    rounded, so the last step gives the float nearest to the decimal result.
    """
    values = column.to_numpy(zero_copy_only=False)
    power = 10.0 ** abs(digits)
    with np.errstate(all="ignore"):
        scaled = np.abs(values * power if digits >= 0 else values / power)
        whole = np.floor(scaled)
        nearest = np.where(scaled - whole >= 0.5, whole + 1, whole)
        result = np.copysign(nearest / power if digits >= 0 else nearest * power, values)
        is_doubtful = np.abs(scaled - whole - 0.5) <= scaled * _DOUBT
        is_doubtful |= scaled >= _WHOLE
    is_settled = ~np.isfinite(values)
    if digits >= 0:
        is_settled |= np.abs(values) >= _WHOLE
    # The sum makes a negative zero positive.
    result = np.where(is_settled, values, result) + 0.0
    is_doubtful &= ~is_settled
    for at in np.flatnonzero(is_doubtful):
        result[at] = round_float(float(values[at]), digits)
    return pa.array(result, F64, mask=column.is_null().to_numpy(zero_copy_only=False))


_DIGITS = decimal.Context(prec=400, rounding=decimal.ROUND_HALF_UP)


def round_float(value: float, digits: int) -> float:
    """The float nearest to the shortest decimal form of ``value``, rounded half away from zero.

    >>> round_float(2.675, 2), round_float(-0.5, 0), round_float(-0.4, 0), round_float(1234.5, -2)
    (2.68, -1.0, 0.0, 1200.0)
    """
    if not math.isfinite(value) or (digits >= 0 and abs(value) >= _WHOLE):
        return value
    quantum = decimal.Decimal(1).scaleb(-digits)
    return float(decimal.Decimal(repr(value)).quantize(quantum, context=_DIGITS)) + 0.0
