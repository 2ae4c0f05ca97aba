"""Equal rows have equal codes, and no others do."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engines.local import grouping
from omnigraph.engines.local.grouping import Coded, codes_of
from tests.engines.local.columns import KINDS, LISTS, columns
from tests.engines.local.examples import EXAMPLES
from tests.support.reference.order import identity

EVERY = {**KINDS, **LISTS}


@pytest.fixture(params=[3, 1_000], ids=["in blocks", "at once"], autouse=True)
def block_rows(request: pytest.FixtureRequest) -> Iterator[None]:
    """Rows are coded at once, or block by block."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grouping, "BLOCK_ROWS", request.param)
        yield


def assert_partition(coded: Coded, rows: list[Any]) -> None:
    """The codes tell apart exactly the rows that differ."""
    first: dict[Any, int] = {}
    for at, row in enumerate(rows):
        first.setdefault(identity(row), at)
    grouping = coded.grouped()
    firsts = grouping.first.tolist()
    assert sorted(firsts) == sorted(first.values())
    groups = grouping.group.tolist()
    assert [firsts[one] for one in groups] == [first[identity(row)] for row in rows]
    assert grouping.sizes.tolist() == [groups.count(number) for number in range(len(first))]
    assert grouping.count == len(first)
    assert all(code < coded.count for code in coded.codes.tolist())


@pytest.mark.parametrize("name", EVERY)
@EXAMPLES
@given(data=st.data())
def test_equal_values_have_equal_codes(name: str, data: st.DataObject):
    column, values = data.draw(columns(EVERY[name]))
    assert_partition(codes_of([column]), values)


@EXAMPLES
@given(st.data())
def test_rows_of_several_columns_are_equal_if_every_value_is(data: st.DataObject):
    names = data.draw(st.lists(st.sampled_from(sorted(EVERY)), min_size=2, max_size=4))
    size = data.draw(st.integers(0, 15))
    made = [data.draw(columns(EVERY[name], min_size=size, max_size=size)) for name in names]
    rows = list(zip(*(values for _, values in made), strict=True))
    assert_partition(codes_of([column for column, _ in made]), rows)


@EXAMPLES
@given(st.lists(st.tuples(*[st.integers(0, 2)] * 4), max_size=12))
def test_codes_that_would_not_fit_are_numbered_anew(rows: list[tuple[int, ...]]):
    # Each column claims a great many codes; their product is beyond 64 bits.
    parts = [Coded(np.array([row[at] for row in rows], np.int64) * 2**38, 2**40) for at in range(4)]
    assert_partition(codes_of(parts), rows)


@EXAMPLES
@given(st.lists(st.integers(0, 2000), max_size=3000), st.integers(2001, 20_000))
def test_the_first_row_of_each_group_is_found_however_late_it_comes(codes: list[int], count: int):
    # Enough rows that they are looked through in several rounds.
    coded = Coded(np.array(codes, np.int32), count)
    assert_partition(coded, codes)


def test_no_rows_have_no_groups():
    for column in (pa.array([], pa.string()), pa.array([], pa.list_(pa.string()))):
        grouping = codes_of([column, column]).grouped()
        assert (grouping.group.tolist(), grouping.first.tolist()) == ([], [])
