"""Holds the rows an engine gave against those a case expects."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tests.cases.format import ExpectedRows

TOLERANCE = 1e-6
"""How far, relative to its size, a computed score may lie from the expected one."""


def assert_rows(
    expected: ExpectedRows, columns: Sequence[str], rows: Sequence[Sequence[Any]], *, ordered: bool
) -> None:
    """Fail unless these are the expected rows, in their order if the query asks for one."""
    assert list(columns) == list(expected.columns)
    close = [name in expected.approximate for name in columns]
    if ordered:
        assert len(rows) == len(expected.rows), f"{list(rows)} instead of {list(expected.rows)}"
        for row, wanted in zip(rows, expected.rows, strict=True):
            assert same_row(row, wanted, close), f"{list(rows)} instead of {list(expected.rows)}"
        return
    remaining = list(expected.rows)
    for row in rows:
        match = next((wanted for wanted in remaining if same_row(row, wanted, close)), None)
        assert match is not None, f"{row} of {list(rows)} is none of {remaining}"
        remaining.remove(match)
    wanted_count = len(expected.rows) if expected.count is None else expected.count
    assert len(rows) == wanted_count, f"missing {remaining}"


def same_row(row: Sequence[Any], wanted: Sequence[Any], close: Sequence[bool]) -> bool:
    return len(row) == len(wanted) and all(map(same_value, row, wanted, close))


def same_value(value: Any, wanted: Any, close: bool = False) -> bool:
    """Whether two JSON values are the same; a whole float is not an integer."""
    if isinstance(value, list) and isinstance(wanted, list):
        return len(value) == len(wanted) and all(
            same_value(one, other, close) for one, other in zip(value, wanted, strict=True)
        )
    if isinstance(value, dict) and isinstance(wanted, dict):
        return value.keys() == wanted.keys() and all(
            same_value(value[key], wanted[key], close) for key in value
        )
    if type(value) is not type(wanted):
        return False
    if close and isinstance(value, float):
        return math.isclose(value, wanted, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(value == wanted)
