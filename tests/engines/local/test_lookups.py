"""The index of values, against comparing every row."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engines.local.scan import ValueIndex, can_index
from tests.engines.local.columns import KINDS, LISTS, Kind, columns
from tests.engines.local.examples import EXAMPLES

INDEXED = [name for name, kind in KINDS.items() if can_index(kind.type)]


def rows_with(values: list[Any], wanted: list[Any]) -> list[int]:
    return [row for row, value in enumerate(values) if value is not None and value in wanted]


def test_equality_of_codes_is_equality_of_values_for_all_but_floats_booleans_and_lists():
    assert INDEXED == ["String", "I32", "I64", "U32", "U64", "Date", "DateTime"]
    assert not any(can_index(kind.type) for kind in LISTS.values())


@pytest.mark.parametrize("name", INDEXED)
@EXAMPLES
@given(data=st.data())
def test_an_index_finds_the_rows_with_a_value(name: str, data: st.DataObject):
    kind = KINDS[name]
    column, values = data.draw(columns(kind))
    index = ValueIndex.build(column)
    for wanted in kind.values:
        found = index.rows_with(pa.scalar(wanted, kind.type))
        assert found.tolist() == rows_with(values, [wanted])
        assert found.dtype == np.int32
    assert index.nbytes == index.codes.nbytes + index.rows.nbytes


@pytest.mark.parametrize("name", INDEXED)
@EXAMPLES
@given(data=st.data())
def test_an_index_finds_the_rows_with_any_of_some_values(name: str, data: st.DataObject):
    kind = KINDS[name]
    column, values = data.draw(columns(kind))
    asked, wanted = data.draw(columns(kind))
    found = ValueIndex.build(column).rows_with_any(asked)
    assert found.tolist() == rows_with(values, [each for each in wanted if each is not None])


@pytest.mark.parametrize("kind", [KINDS[name] for name in INDEXED], ids=INDEXED)
def test_null_finds_nothing(kind: Kind):
    index = ValueIndex.build(kind.column([None, kind.values[0], None]))
    assert index.rows_with(pa.scalar(None, kind.type)).tolist() == []
    assert index.rows_with_any(kind.column([None])).tolist() == []
    assert index.rows_with_any(kind.column([])).tolist() == []
