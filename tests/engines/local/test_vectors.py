"""The nearest vectors, against distances computed one by one."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engines.local import vectors
from omnigraph.engines.local.vectors import Mask, Positions, VectorColumn, smallest
from omnigraph.errors import InputError

Vector: TypeAlias = list[float] | None

NAN, INF = math.nan, math.inf

f32 = st.floats(width=32, allow_nan=True, allow_infinity=True)
alike = st.integers(-2, 2).map(float)
"""Few values: many ties."""
close = st.integers(0, 6).map(lambda n: float(np.float32(1) + n * np.float32(2.0**-23)))
"""Neighbouring numbers: distances that single precision cannot tell apart."""
mixed = st.sampled_from([0.0, 1e-30, 1e-20, 1.0, 1.0000001, 1e10, 1e15, 1e19, 3e38]).map(
    lambda x: float(np.float32(x))
)


@pytest.fixture(scope="module", autouse=True)
def shortlists_from_the_first_row_on() -> Iterator[None]:
    """Otherwise small columns would be computed in full, and the products would go untested."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "_EXACT_ROWS_MAX", 0)
        patch.setattr(vectors, "_PRODUCT_ROWS", 2)
        patch.setattr(vectors, "_PRODUCT_CELLS", 8)
        patch.setattr(vectors, "_HEADS_ROWS_MIN", 0)
        patch.setattr(vectors, "_HEADS_PROBE", 6)
        patch.setattr(vectors, "_HEADS_SHARE_MAX", 1)
        patch.setattr(vectors, "_WIDTH_MIN", 3)
        yield


def column_of(rows: list[Vector], dimension: int) -> pa.Array:
    return pa.array(rows, pa.list_(pa.float32(), dimension))


def distance(row: list[float], query: list[float]) -> float:
    """The definition: doubles, added in order."""
    total = 0.0
    for x, q in zip(row, query, strict=True):
        difference = float(np.float32(x)) - q
        total += difference * difference
    return total


def brute_force(
    rows: list[Vector], query: list[float], k: int, allowed: set[int]
) -> list[tuple[int, float]]:
    """Everything ranked; NaN after all numbers; cut after k and its ties."""
    ranked = sorted(
        (math.isnan(d), 0.0 if math.isnan(d) else d, row)
        for row, vector in enumerate(rows)
        if vector is not None and row in allowed
        for d in [distance(vector, query)]
    )
    if len(ranked) > k:
        ranked = [entry for entry in ranked if k and entry[:2] <= ranked[k - 1][:2]]
    return [(row, NAN if is_nan else d) for is_nan, d, row in ranked]


def same(found: tuple[Positions, np.ndarray], wanted: list[tuple[int, float]]) -> None:
    assert found[0].dtype == np.int32
    assert found[0].tolist() == [row for row, _ in wanted]
    np.testing.assert_array_equal(found[1], np.array([d for _, d in wanted]))


@st.composite
def searches(
    draw: st.DrawFn, component: st.SearchStrategy[float]
) -> tuple[list[Vector], VectorColumn, list[float], int]:
    """Vectors, a column of them that was built in one go or in two, a query and a depth."""
    dimension = draw(st.sampled_from([1, 2, 3, 4, 6, 7]))
    vector = st.lists(component, min_size=dimension, max_size=dimension)
    rows = draw(st.lists(st.none() | vector, max_size=40))
    query = draw(vector | st.lists(st.floats(-2, 2), min_size=dimension, max_size=dimension))
    cut = draw(st.integers(0, len(rows)))
    column = VectorColumn.of(column_of(rows[:cut], dimension))
    return rows, column.extended(column_of(rows[cut:], dimension)), query, draw(st.integers(0, 12))


@given(st.one_of(searches(alike), searches(close), searches(mixed), searches(f32)), st.data())
def test_c_srch_008_013_the_nearest_and_their_ties_are_those_of_brute_force(
    search: tuple[list[Vector], VectorColumn, list[float], int], data: st.DataObject
) -> None:
    rows, column, query, k = search
    everything = set(range(len(rows)))
    same(column.best(query, k), brute_force(rows, query, k, everything))

    size = data.draw(st.integers(0, len(rows)))
    live: Mask = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool)
    alive = {int(row) for row in np.flatnonzero(live)}
    same(column.best(query, k, live=live), brute_force(rows, query, k, alive))

    some = data.draw(st.permutations(range(len(rows))))[: data.draw(st.integers(0, len(rows)))]
    candidates = np.array(some, np.int32)
    same(column.best(query, k, candidates=candidates), brute_force(rows, query, k, set(some)))

    wanted = [NAN if (v := rows[row]) is None else distance(v, query) for row in some]
    np.testing.assert_array_equal(column.distances(query, candidates), np.array(wanted))


@pytest.mark.parametrize(("count", "dimension"), [(10_000, 8), (9_000, 64), (2_000, 1536)])
@pytest.mark.parametrize("k", [1, 10, 300])
def test_c_srch_008_large_columns_give_the_exact_order(count: int, dimension: int, k: int) -> None:
    random = np.random.default_rng(count + dimension + k)
    matrix = random.standard_normal((count, dimension)).astype(np.float32)
    # Copies and near copies of some rows: ties, and distances single precision confuses.
    matrix[::7] = matrix[0]
    matrix[::11] = np.nextafter(matrix[0], np.float32(9))
    query = matrix[0].astype(np.float64) + random.standard_normal(dimension) * 1e-7
    column = VectorColumn.of(column_of(list(matrix), dimension))
    everything = np.arange(count, dtype=np.int32)
    exact = column.distances(query, everything)
    wanted = smallest(exact, k)
    positions, distances = column.best(query, k)
    assert positions.tolist() == wanted.tolist()
    assert distances.tolist() == exact[wanted].tolist()

    for share in (0.02, 0.5):
        chosen = everything[random.random(count) < share]
        positions, distances = column.best(query, k, candidates=chosen)
        nearest = chosen[smallest(exact[chosen], k)]
        assert positions.tolist() == nearest.tolist()
        assert distances.tolist() == exact[nearest].tolist()


def test_a_shortlist_is_short() -> None:
    random = np.random.default_rng(5)
    matrix = random.standard_normal((5_000, 32)).astype(np.float32)
    column = VectorColumn.of(column_of(list(matrix), 32))
    query = random.standard_normal(32)
    assert len(column._shortlist(query, 10, None, None)) < 20


def test_beginnings_rule_out_most_vectors_of_clusters() -> None:
    random = np.random.default_rng(7)
    centres = random.standard_normal((50, 64), dtype=np.float32)
    rows = np.repeat(centres, 400, axis=0)
    rows += np.float32(0.5) * random.standard_normal(rows.shape, dtype=np.float32)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "_HEADS_PROBE", 256)
        patch.setattr(vectors, "_WIDTH_MIN", 32)
        column = VectorColumn.of(
            pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
        )
        left = column._not_ruled_out(rows[17].astype(np.float64), 10, None, None)
    assert left is not None
    assert 10 <= len(left) <= len(rows) // 40


def test_beginnings_that_say_nothing_are_soon_left_alone() -> None:
    random = np.random.default_rng(7)
    rows = np.zeros((200, 64), np.float32)
    rows[:, 32:] = random.standard_normal((200, 32))
    column = VectorColumn.of(
        pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vectors, "_HEADS_SHARE_MAX", 1 / 8)
        query = rows[0].astype(np.float64)
        for _ in range(vectors._HEADS_PATIENCE):
            assert column._patience
            assert column._not_ruled_out(query, 2, None, None) is None
        assert not column._patience
        wanted = np.argsort(((rows - query) ** 2).sum(axis=1))[:2]
        assert column.best(query, 2)[0].tolist() == wanted.tolist()


def test_vectors_too_long_for_the_product_are_still_ranked() -> None:
    rows: list[Vector] = [[1e30, 0.0], [3e38, 0.0], [0.0, 0.0], None, [1e16, 1.0]]
    column = VectorColumn.of(column_of(rows, 2))
    same(column.best([1e30, 0.0], 2), brute_force(rows, [1e30, 0.0], 2, set(range(5))))
    same(column.best([0.0, 0.0], 4), brute_force(rows, [0.0, 0.0], 4, set(range(5))))
    same(column.best([1e300, 0.0], 4), brute_force(rows, [1e300, 0.0], 4, set(range(5))))


def test_zero_vectors_are_legal_and_nan_comes_last() -> None:
    rows: list[Vector] = [[NAN, 0.0], [0.0, 0.0], [INF, 0.0], None, [-INF, 1.0], [3.0, 4.0]]
    column = VectorColumn.of(column_of(rows, 2))
    positions, distances = column.best([0.0, 0.0], 9)
    assert positions.tolist() == [1, 5, 2, 4, 0]
    assert distances.tolist()[:4] == [0.0, 25.0, INF, INF]
    assert math.isnan(distances[4])
    assert column.best([0.0, 0.0], 3)[0].tolist() == [1, 5, 2, 4], "infinities tie"


@pytest.mark.parametrize("query", [[1.0], [1.0, 2.0, 3.0], []])
def test_c_srch_010_a_query_of_another_dimension_is_refused(query: list[float]) -> None:
    column = VectorColumn.of(column_of([[1.0, 2.0]], 2))
    with pytest.raises(InputError, match=f"{len(query)} components"):
        column.best(query, 1)
    with pytest.raises(InputError):
        column.distances(query, np.zeros(1, np.int32))


def test_a_column_of_floats_is_used_where_it_lies() -> None:
    values = pa.array(np.arange(12, dtype=np.float32))
    array = pa.FixedSizeListArray.from_arrays(values, 3)
    column = VectorColumn.of(array[1:])
    assert column.matrix.ctypes.data == values.buffers()[1].address + 3 * 4
    assert column.matrix.tolist() == [[3, 4, 5], [6, 7, 8], [9, 10, 11]]


def test_a_slice_keeps_null_vectors_in_their_place() -> None:
    array = column_of([[1.0], None, [3.0], None, [5.0]], 1)[1:4]
    column = VectorColumn.of(array)
    assert column.valid.tolist() == [False, True, False]
    assert column.best([0.0], 5)[0].tolist() == [1]


def test_extensions_of_one_column_do_not_disturb_each_other() -> None:
    base = VectorColumn.of(column_of([[0.0]] * 8, 1)).extended(column_of([[1.0]], 1))
    left = base.extended(column_of([[2.0]], 1))
    right = base.extended(column_of([[3.0]], 1))
    assert left.matrix.ctypes.data == base.matrix.ctypes.data, "there was room"
    assert right.matrix.ctypes.data != base.matrix.ctypes.data, "which was then taken"
    assert [column.matrix[-1, 0] for column in (base, left, right)] == [1.0, 2.0, 3.0]
    assert len(base) == 9
    assert left.extended(column_of([], 1)).matrix.tolist() == left.matrix.tolist()


def test_memory_is_accounted_for() -> None:
    column = VectorColumn.of(column_of([[1.0, 2.0]] * 100, 2))
    assert column.nbytes >= column.matrix.nbytes == 800
    assert column.extended(column_of([[1.0, 2.0]], 2)).nbytes >= 101 * 8


@given(st.lists(st.sampled_from([0.0, 1.0, 2.0, NAN, INF]), max_size=20), st.integers(-1, 25))
def test_the_smallest_values_come_with_their_ties_and_nan_last(values: list[float], k: int) -> None:
    ranked = sorted((math.isnan(v), 0 if math.isnan(v) else v, i) for i, v in enumerate(values))
    kept = [e for e in ranked if k > 0 and e[:2] <= ranked[min(k, len(ranked)) - 1][:2]]
    assert smallest(np.array(values), k).tolist() == [place for _, _, place in kept]
