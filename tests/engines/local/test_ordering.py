"""The total order of rows, against Python's sort with the order of the language."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import cmp_to_key
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engines.local import grouping, ranking
from omnigraph.engines.local.ids import IdSpace
from omnigraph.engines.local.ranking import TieBreaker, ordered_rows, ranked_candidates
from tests.engines.local.columns import FLOATS, KINDS, LISTS, columns
from tests.engines.local.examples import EXAMPLES
from tests.support.reference.order import compare

EVERY = {**KINDS, **LISTS}


@pytest.fixture(
    params=[(0, 1_000), (1_000, 1_000), (1_000, 2)], ids=["pruned", "sorted", "split"], autouse=True
)
def pruning(request: pytest.FixtureRequest) -> Iterator[None]:
    """Small columns as well as large ones are pruned, or split before they are sorted, or none."""
    pruned_from, at_once = request.param
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ranking, "_PRUNE_MIN", pruned_from)
        patch.setattr(grouping, "_SORTED_AT_ONCE", at_once)
        yield


def in_order(keys: list[tuple[list[Any], bool]], ties: list[list[Any]], count: int) -> list[int]:
    """The definition: keys, then tie breakers ascending; equal rows as they come."""

    def difference(left: int, right: int) -> int:
        for values, descending in [*keys, *((tie, False) for tie in ties)]:
            found = compare(values[left], values[right])
            if found:
                return -found if descending else found
        return 0

    return sorted(range(count), key=cmp_to_key(difference))


def taking(column: pa.Array) -> TieBreaker:
    return lambda rows: column.take(pa.array(rows))


@pytest.mark.parametrize("name", EVERY)
@EXAMPLES
@given(data=st.data())
def test_c_qry_057_one_key_with_a_tie_breaker_for_every_stop(name: str, data: st.DataObject):
    column, values = data.draw(columns(EVERY[name]))
    descending = data.draw(st.booleans())
    names = data.draw(st.permutations([f"id{at:02}" for at in range(len(values))]))
    ids = pa.array(names, pa.string())
    wanted = in_order([(values, descending)], [list(names)], len(values))
    for stop in (None, *range(len(values) + 2)):
        found = ordered_rows([(column, descending)], [taking(ids)], len(values), stop)
        assert found.tolist() == wanted[:stop]


@EXAMPLES
@given(st.data())
def test_c_qry_058_several_keys_and_tie_breakers(data: st.DataObject):
    size = data.draw(st.integers(0, 20))
    chosen = data.draw(st.lists(st.sampled_from(sorted(EVERY)), min_size=1, max_size=3))
    made = [data.draw(columns(EVERY[name], min_size=size, max_size=size)) for name in chosen]
    directions = [data.draw(st.booleans()) for _ in chosen]
    tie_names = data.draw(st.lists(st.sampled_from(["String", "I32", "[F64]"]), max_size=2))
    ties = [data.draw(columns(EVERY[name], min_size=size, max_size=size)) for name in tie_names]
    stop = data.draw(st.one_of(st.none(), st.integers(0, size + 1)))
    found = ordered_rows(
        [(column, down) for (column, _), down in zip(made, directions, strict=True)],
        [taking(column) for column, _ in ties],
        size,
        stop,
    )
    keys = [(values, down) for (_, values), down in zip(made, directions, strict=True)]
    assert_same_rows(found.tolist(), keys, [values for _, values in ties], size, stop)


def assert_same_rows(
    found: list[int],
    keys: list[tuple[list[Any], bool]],
    ties: list[list[Any]],
    count: int,
    stop: int | None,
) -> None:
    """Rows that are equal in everything may change places."""
    wanted = in_order(keys, ties, count)[:stop]
    assert len(set(found)) == len(found) == len(wanted)
    columns = [*(values for values, _ in keys), *ties]
    for one, other in zip(found, wanted, strict=True):
        assert all(compare(values[one], values[other]) == 0 for values in columns)


def test_tie_breakers_are_asked_only_for_rows_that_may_come_first(pruning: None):
    count = 2_000
    asked: list[int] = []

    def tie(rows: np.ndarray) -> pa.Array:
        asked.append(len(rows))
        return pa.array([str(row) for row in rows])

    found = ordered_rows([(pa.array(np.arange(count) % 100), False)], [tie], count, 3)
    assert found.tolist() == [0, 100, 1000]
    assert asked == [20]


def test_without_keys_rows_stay_as_they_are():
    assert ordered_rows([], [], 4, 2).tolist() == [0, 1]
    assert ordered_rows([], [], 0, None).tolist() == []


# --- candidates -----------------------------------------------------------------------------------


@EXAMPLES
@given(
    st.lists(st.sampled_from([*FLOATS, 2.0, 2.0, 3.0]), max_size=20),
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_c_srch_candidates_are_ranked_by_score_then_id_for_every_stop(
    scores: list[float], descending: bool, choices
):
    space = IdSpace()
    names = choices.sample([f"id{at:02}" for at in range(len(scores))], len(scores))
    slots = space.intern(pa.array(names, pa.string()))
    wanted = sorted(
        range(len(scores)),
        key=lambda at: (
            math.isnan(scores[at]),
            0.0 if math.isnan(scores[at]) else (-scores[at] if descending else scores[at]),
            names[at],
        ),
    )
    for stop in (None, *range(len(scores) + 2)):
        found = ranked_candidates(
            space, slots, np.array(scores, np.float64), descending=descending, stop=stop
        )
        assert found.tolist() == wanted[:stop]
