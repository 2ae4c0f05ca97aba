"""Joining by value, against comparing every pair."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engines.local.match import matched_rows
from tests.engines.local.columns import KINDS, columns
from tests.engines.local.examples import EXAMPLES

JOINED = {name: kind for name, kind in KINDS.items() if not kind.is_float}
"""Floats are compared, never joined: a NaN has a code and equals nothing."""


def agree(left: Any, right: Any) -> bool:
    return left is not None and right is not None and bool(left == right)


@pytest.mark.parametrize("name", JOINED)
@EXAMPLES
@given(data=st.data())
def test_rows_are_matched_where_their_values_are_equal(name: str, data: st.DataObject):
    left_column, left = data.draw(columns(JOINED[name], max_size=12))
    right_column, right = data.draw(columns(JOINED[name], max_size=12))
    left_rows, right_rows = matched_rows([left_column], [right_column])
    pairs = list(zip(left_rows.tolist(), right_rows.tolist(), strict=True))
    assert pairs == [
        (at, other)
        for at, one in enumerate(left)
        for other, value in enumerate(right)
        if agree(one, value)
    ]


@EXAMPLES
@given(st.data())
def test_several_columns_have_to_agree_in_all_of_them(data: st.DataObject):
    names = data.draw(st.lists(st.sampled_from(sorted(JOINED)), min_size=2, max_size=3))
    sizes = data.draw(st.integers(0, 8)), data.draw(st.integers(0, 8))
    sides = [
        [data.draw(columns(JOINED[name], min_size=size, max_size=size)) for name in names]
        for size in sizes
    ]
    left_rows, right_rows = matched_rows(*[[column for column, _ in side] for side in sides])
    left, right = ([values for _, values in side] for side in sides)
    wanted = [
        (at, other)
        for at in range(sizes[0])
        for other in range(sizes[1])
        if all(agree(mine[at], theirs[other]) for mine, theirs in zip(left, right, strict=True))
    ]
    assert list(zip(left_rows.tolist(), right_rows.tolist(), strict=True)) == wanted


def test_the_largest_join_is_a_cross_product():
    kind = KINDS["I32"]
    left_rows, _ = matched_rows([kind.column([7] * 30)], [kind.column([7] * 40)])
    assert len(left_rows) == math.prod((30, 40))
