"""Comparisons by mathematical value.

Arrow compares two numbers by casting both to one type. That is right as long as the type can hold
both; I64 beside U64 or a float it cannot, and the cast either fails or rounds. Those pairs are
compared here without leaving the integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.query.ast import ComparisonOperator

Datum: TypeAlias = pa.Array | pa.ChunkedArray | pa.Scalar
"""One value per row, or one for all rows."""

_NO_ANSWER = pa.scalar(None, pa.bool_())
_I64_MAX = pa.scalar(2**63 - 1, pa.uint64())

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
    left, right = _widened(left), _widened(right)
    if left.type == right.type:
        return kernel(left, right)
    if _is_float(left) or right.type == pa.uint64():
        operator, left, right = _MIRRORED[operator], right, left
    # What is left: an integer beside a float, or U64 beside I64.
    if _is_float(right):
        return _integer_with_float(operator, left, right)
    return _unsigned_with_signed(operator, left, right)


def equal_members(members: pa.Array, type: pa.DataType) -> pa.Array:
    """The values of ``type`` that equal one of ``members``, for a test by hashing.

    A hash tells the two zeros apart and takes a NaN for itself; comparisons do neither.
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


def exactly(value: int | float, type: pa.DataType) -> int | float | None:
    """The number of ``type`` that equals ``value``, or None if there is none.

    >>> exactly(7.0, pa.int32()), exactly(2.7, pa.int32()), exactly(2**53 + 1, pa.float64())
    (7, None, None)
    """
    # A float that is no integer, or beyond the type, makes the round trip with a difference.
    try:
        number = pa.scalar(int(value) if pa.types.is_integer(type) else float(value), type).as_py()
    except (pa.ArrowInvalid, OverflowError, ValueError):
        return None
    return number if number == value else None


def _integer_with_float(operator: ComparisonOperator, integers: Datum, floats: Datum) -> Datum:
    """An integer is compared with the whole number next to the float on the side that decides.

    `i < 2.5` is `i < 3` and `i <= 2.5` is `i <= 2`. Floats beyond the integer type lie on one side
    of every integer, and a NaN on neither.
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
    is_beyond = pc.greater(unsigned, _I64_MAX)
    answer = _KERNELS[operator](pc.cast(unsigned, pa.int64(), safe=False), signed)
    return _where_valid(signed, pc.if_else(is_beyond, operator in _TRUE_IF_GREATER, answer))


def _where_valid(operand: Datum, answer: Datum) -> Datum:
    return pc.if_else(pc.is_valid(operand), answer, _NO_ANSWER)


def _widened(operand: Datum) -> Datum:
    """The same numbers as I64, U64 or F64."""
    if _is_float(operand):
        return pc.cast(operand, pa.float64())
    return operand if operand.type == pa.uint64() else pc.cast(operand, pa.int64())


def _is_float(operand: Datum) -> Any:
    return pa.types.is_floating(operand.type)


def _is_number(operand: Datum) -> Any:
    return pa.types.is_integer(operand.type) or pa.types.is_floating(operand.type)
