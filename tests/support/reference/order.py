"""The order of values, and which of them are one and the same."""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from functools import cmp_to_key
from typing import Any


def compare(left: Any, right: Any) -> int:
    """Below, at or above zero as ``left`` is smaller, equal or larger.

    Null is smaller than every value. A NaN is as large as another NaN and smaller than every other
    number. Lists compare by their first difference.
    """
    for is_lowest in (_is_null, _is_nan):
        if is_lowest(left) or is_lowest(right):
            return int(is_lowest(right)) - int(is_lowest(left))
    if isinstance(left, str):
        left, right = left.encode(), right.encode()
    if isinstance(left, list | tuple):
        for one, other in zip(left, right, strict=False):
            if (difference := compare(one, other)) != 0:
                return difference
        left, right = len(left), len(right)
    return int(left > right) - int(left < right)


def _is_null(value: Any) -> bool:
    return value is None


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


ascending = cmp_to_key(compare)
"""A sort key that puts values in their order."""


def identity(value: Any) -> Hashable:
    """Equal for values that `distinct` and grouping take for the same."""
    if _is_nan(value):
        return "a NaN", ...
    if isinstance(value, dict):
        return tuple((name, identity(part)) for name, part in value.items())
    if isinstance(value, list | tuple):
        return tuple(identity(part) for part in value)
    if isinstance(value, bool):
        return "a Bool", value
    assert isinstance(value, Hashable)
    return value


def distinct(values: Iterable[Any]) -> list[Any]:
    """The first of each kind."""
    first: dict[Hashable, Any] = {}
    for value in values:
        first.setdefault(identity(value), value)
    return list(first.values())
