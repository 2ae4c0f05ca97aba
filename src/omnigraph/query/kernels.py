"""Column kernels of the evaluator: comparison, arithmetic, `round`, and containment.

Numbers compare by mathematical value. Arrow casts both sides to one type, which fails or rounds
when an I64 meets a U64 or a float; those pairs are compared here as integers.
"""

from __future__ import annotations

import decimal
import math
import operator as op
from collections.abc import Callable, Iterator
from itertools import repeat
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.errors import InputError
from omnigraph.model.arrow import arrow_type
from omnigraph.model.types import INTEGER_BOUNDS, Scalar, ValueType
from omnigraph.syntax.query_ast import ArithmeticOperator, ComparisonOperator

# --- comparison -----------------------------------------------------------------------------------


Datum: TypeAlias = pa.Array | pa.ChunkedArray | pa.Scalar
"""One value per row, or one for all rows."""

_I64_MAX = 2**63 - 1

_KERNELS: dict[ComparisonOperator, Callable[[Datum, Datum], Datum]] = {
    "=": pc.equal,
    "!=": pc.not_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
}
_MIRRORED: dict[ComparisonOperator, ComparisonOperator] = {
    "=": "=",
    "!=": "!=",
    "<": ">",
    "<=": ">=",
    ">": "<",
    ">=": "<=",
}
_TRUE_IF_LESS = ("<", "<=", "!=")
_TRUE_IF_GREATER = (">", ">=", "!=")


def compare(operator: ComparisonOperator, left: Datum, right: Datum) -> Datum:
    """`left operator right`; null where either side is null."""
    kernel = _KERNELS[operator]
    if left.type == right.type or not (_is_number(left) and _is_number(right)):
        return kernel(left, right)
    # Convert the single number to the type of the column, not the column to its type.
    if isinstance(right, pa.Scalar) and (number := _as_type(right, left.type)) is not None:
        return kernel(left, number)
    if isinstance(left, pa.Scalar) and (number := _as_type(left, right.type)) is not None:
        return kernel(number, right)
    left, right = _widened(left), _widened(right)
    if left.type == right.type:
        return kernel(left, right)
    if _is_float(left) or right.type == pa.uint64():
        operator, left, right = _MIRRORED[operator], right, left
    # Remaining: an integer with a float, or U64 with I64.
    if _is_float(right):
        return _integer_with_float(operator, left, right)
    return _unsigned_with_signed(operator, left, right)


def equal_members(members: pa.Array, type: pa.DataType) -> pa.Array:
    """The values of ``type`` that equal one of ``members``, for a test by hashing.

    Hashing distinguishes 0.0 from -0.0 and equates NaN with itself; comparisons do neither.
    """
    members = members.drop_null()
    if members.type != type:
        if not (pa.types.is_integer(type) or pa.types.is_floating(type)):
            return members.cast(type)
        exact = (exactly(value, type) for value in members.to_pylist())
        members = pa.array([value for value in exact if value is not None], type)
    if pa.types.is_floating(type):
        members = members.filter(pc.invert(pc.is_nan(members)))
        if pc.any(pc.equal(members, 0.0)).as_py():
            members = pa.concat_arrays([members, pa.array([0.0, -0.0], type)])
    return members


def _as_type(number: pa.Scalar, type: pa.DataType) -> pa.Scalar | None:
    """The same number in another type, or None if that type cannot represent it."""
    if not number.is_valid:
        return None
    exact = exactly(number.as_py(), type)
    return None if exact is None else pa.scalar(exact, type)


def exactly(value: int | float, type: pa.DataType) -> int | float | None:
    """The number of ``type`` that equals ``value``, or None if there is none.

    >>> exactly(7.0, pa.int32()), exactly(2.7, pa.int32()), exactly(2**53 + 1, pa.float64())
    (7, None, None)
    """
    # A float that is no integer or out of range differs after the round trip.
    try:
        number = pa.scalar(int(value) if pa.types.is_integer(type) else float(value), type).as_py()
    except (pa.ArrowInvalid, OverflowError, ValueError):
        return None
    return number if number == value else None


def _integer_with_float(operator: ComparisonOperator, integers: Datum, floats: Datum) -> Datum:
    """Compare integers with floats by rounding the float up or down to an integer.

    `i < 2.5` is `i < 3` and `i <= 2.5` is `i <= 2`. Floats beyond the integer type are on one side
    of every integer; a NaN is on neither.
    """
    low, beyond = (0.0, 2.0**64) if integers.type == pa.uint64() else (-(2.0**63), 2.0**63)
    whole = (pc.ceil if operator in ("<", ">=") else pc.floor)(floats)
    inside = pc.and_(pc.greater_equal(floats, low), pc.less(floats, beyond))
    bounds = pc.cast(pc.if_else(inside, whole, 0.0), integers.type)
    answer = _KERNELS[operator](integers, bounds)
    if operator == "=":
        answer = pc.and_(answer, pc.equal(whole, floats))
    elif operator == "!=":
        answer = pc.or_(answer, pc.not_equal(whole, floats))
    outside = pc.if_else(
        pc.is_nan(floats),
        operator == "!=",
        pc.if_else(pc.less(floats, 0.0), operator in _TRUE_IF_GREATER, operator in _TRUE_IF_LESS),
    )
    return _where_valid(integers, pc.if_else(inside, answer, outside))


def _unsigned_with_signed(operator: ComparisonOperator, unsigned: Datum, signed: Datum) -> Datum:
    is_beyond = pc.greater(unsigned, pa.scalar(_I64_MAX, pa.uint64()))
    answer = _KERNELS[operator](pc.cast(unsigned, pa.int64(), safe=False), signed)
    return _where_valid(signed, pc.if_else(is_beyond, operator in _TRUE_IF_GREATER, answer))


def _where_valid(operand: Datum, answer: Datum) -> Datum:
    return pc.if_else(pc.is_valid(operand), answer, _none(pa.bool_()))


def _widened(operand: Datum) -> Datum:
    """The same numbers as I64, U64 or F64."""
    if _is_float(operand):
        return pc.cast(operand, pa.float64())
    return operand if operand.type == pa.uint64() else pc.cast(operand, pa.int64())


def _is_float(operand: Datum) -> Any:
    return pa.types.is_floating(operand.type)


def _is_number(operand: Datum) -> Any:
    return pa.types.is_integer(operand.type) or pa.types.is_floating(operand.type)


_I64_LOW, _I64_HIGH = INTEGER_BOUNDS[Scalar.I64]


# --- arithmetic -----------------------------------------------------------------------------------


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
    "%": lambda left, right: int(math.copysign(1, left)) * (abs(left) % abs(right)),
}


def arithmetic(operator: ArithmeticOperator, left: Datum, right: Datum, result: ValueType) -> Datum:
    """`left operator right` as I64 or F64; null if either side is null, and for a division by 0."""
    if operator in ("/", "%"):
        right = pc.if_else(pc.equal(right, pa.scalar(0, right.type)), _none(right.type), right)
    if not result.scalar.is_float:
        return _integers(operator, left, right)
    left, right = to_numeric(left, result), to_numeric(right, result)
    if operator == "/":
        return pc.divide(left, right)
    if operator == "%":
        return _remainders(left, right)
    return _FLOAT_KERNELS[operator](left, right)


def to_numeric(operand: Datum, wanted: ValueType) -> Datum:
    """``operand`` in the type of a numeric result: rounded to floats, exact as integers."""
    if wanted.scalar.is_float:
        return pc.cast(operand, arrow_type(wanted), safe=False)
    try:
        return pc.cast(operand, arrow_type(wanted))
    except pa.ArrowInvalid:
        raise _overflow(str(pc.max(operand).as_py())) from None


def _none(type: pa.DataType) -> pa.Scalar:
    return pa.scalar(None, type)


def _remainders(left: Datum, right: Datum) -> Datum:
    """The remainder of an integer division; it has the sign of ``left``."""
    null = pc.or_(pc.is_null(left), pc.is_null(right))
    sides = []
    for side in (left, right):
        filled = pc.fill_null(side, pa.scalar(1, side.type))
        is_scalar = isinstance(filled, pa.Scalar)
        sides.append(filled.as_py() if is_scalar else filled.to_numpy(zero_copy_only=False))
    dividend, divisor = np.asarray(sides[0], left.type.to_pandas_dtype()), np.asarray(sides[1])
    if left.type == pa.int64():
        # Both have remainder 0, and dividing the least integer by -1 overflows.
        divisor = np.where(divisor == -1, 1, divisor).astype(np.int64)
    with np.errstate(invalid="ignore"):
        found = np.fmod(dividend, divisor)
    if isinstance(null, pa.Scalar):
        return pa.scalar(None if null.as_py() else found.item(), left.type)
    if isinstance(null, pa.ChunkedArray):
        null = null.combine_chunks()
    return pa.array(found, left.type, mask=null.to_numpy(zero_copy_only=False))


def _integers(operator: ArithmeticOperator, left: Datum, right: Datum) -> Datum:
    try:
        left_integers, right_integers = pc.cast(left, pa.int64()), pc.cast(right, pa.int64())
        if operator == "%":
            return _remainders(left_integers, right_integers)
        return _INTEGER_KERNELS[operator](left_integers, right_integers)
    except pa.ArrowInvalid:
        # Either a result is too large, or only an operand is: U64 exceeds I64, and a difference of
        # two such numbers may still fit.
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


def sum_overflow(about: float) -> InputError:
    """The error for a sum of integers that is too large."""
    return InputError(
        f"integer overflow: a sum of about {about:.4g} does not fit I64",
        hint="add up floats instead: `sum($x.p * 1.0)`",
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
"""Maximum relative error of a scaled float against its scaled decimal digits."""


def _round_floats(column: pa.Array, digits: int) -> pa.Array:
    """Scale, round, scale back; if scaling may have crossed a half, round the decimal digits.

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
    # Adding zero turns -0.0 into 0.0.
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


# --- containment ----------------------------------------------------------------------------------


def list_contains(lists: Datum, items: Datum) -> Datum:
    """Whether each list has an element equal to its item; nulls never match."""
    if isinstance(lists, pa.Scalar):
        if not lists.is_valid or (isinstance(items, pa.Scalar) and not items.is_valid):
            return pa.scalar(False)
        return pc.is_in(items, value_set=equal_members(lists.values, items.type))
    if isinstance(lists, pa.ChunkedArray):
        lists = lists.combine_chunks()
    owners = pc.list_parent_indices(lists)
    wanted = items if isinstance(items, pa.Scalar) else items.take(owners)
    hits = compare("=", pc.list_flatten(lists), wanted)
    found = np.zeros(len(lists), np.bool_)
    found[owners.filter(hits).to_numpy()] = True
    return pa.array(found)


def text_contains(texts: Datum, needles: Datum) -> Datum:
    """Whether each text contains its substring."""
    if not isinstance(needles, pa.Scalar):
        return _pairwise(texts, needles, lambda text, needle: needle in text)
    return pc.match_substring(texts, needles.as_py()) if needles.is_valid else pa.scalar(False)


def text_starts_with(texts: Datum, prefixes: Datum) -> Datum:
    """Whether each text starts with its prefix."""
    if not isinstance(prefixes, pa.Scalar):
        return _pairwise(texts, prefixes, str.startswith)
    return pc.starts_with(texts, prefixes.as_py()) if prefixes.is_valid else pa.scalar(False)


def _pairwise(texts: Datum, parts: Datum, test: Callable[[str, str], bool]) -> pa.Array:
    """Test row by row: Arrow's kernels take only one pattern for a whole column."""
    whole = repeat(texts.as_py()) if isinstance(texts, pa.Scalar) else texts.to_pylist()
    return pa.array(
        [
            text is not None and part is not None and test(text, part)
            for text, part in zip(whole, parts.to_pylist(), strict=False)
        ],
        pa.bool_(),
    )
