"""Sorting and grouping in blocks gives what numpy gives, and can be stopped in between."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engines.local import grouping, sorting
from omnigraph.engines.local.adjacency import Adjacency
from omnigraph.engines.local.grouping import Coded, codes_of
from omnigraph.errors import QueryCancelled
from omnigraph.model.governor import Governor

Numbers = npt.NDArray[np.integer]

INTEGERS = [np.int32, np.int64, np.uint64]
SOME_NUMBERS = st.lists(
    st.one_of(st.integers(0, 5), st.integers(0, 2**31 - 1), st.just(2**31 - 1)), max_size=200
)
SIGNED_NUMBERS = st.lists(
    st.one_of(st.integers(-3, 3), st.integers(-(2**31), 2**31 - 1)), max_size=40
)


class Counting(Governor):
    """Counts how often the engine looks at its limits, and may cancel the query at one look."""

    def __init__(self, cancel_at: int | None = None) -> None:
        super().__init__()
        self.looks = 0
        self._cancel_at = cancel_at

    def check(self) -> None:
        self.looks += 1
        if self.looks == self._cancel_at:
            self.cancel()
        super().check()


@contextmanager
def small_blocks(values: int = 8) -> Iterator[None]:
    with (
        patch.object(sorting, "AT_ONCE", values),
        patch.object(grouping, "AT_ONCE", values),
        patch.object(sorting, "PACKED_MIN", 2),
    ):
        yield


@given(SIGNED_NUMBERS, st.sampled_from([np.int32, np.int64]), st.sampled_from([0, 2**20, 2**31]))
def test_places_in_order_are_those_of_numpy_however_wide_the_numbers(
    numbers: list[int], dtype: type[np.integer], factor: int
) -> None:
    values = np.array(numbers, dtype)
    if dtype is np.int64:
        values *= factor + 1
    with small_blocks(64):
        order = sorting.stable_order(values)
    assert order.tolist() == np.argsort(values, kind="stable").tolist()


@given(SOME_NUMBERS, st.sampled_from(INTEGERS))
def test_blocks_are_sorted_as_numpy_sorts_them(numbers: list[int], dtype: type[np.integer]) -> None:
    values = np.array(numbers, dtype)
    with small_blocks():
        assert sorting.sorted_numbers(values.copy()).tolist() == sorted(numbers)
        assert sorting.sorted_distinct(values.copy()).tolist() == sorted(set(numbers))
        order = sorting.stable_order(values)
    assert order.tolist() == np.argsort(values, kind="stable").tolist()


@given(SOME_NUMBERS)
def test_groups_are_those_of_numpy(numbers: list[int]) -> None:
    values = np.array(numbers, np.int64)
    _, first, group, sizes = np.unique(
        values, return_index=True, return_inverse=True, return_counts=True
    )
    with small_blocks():
        found = sorting.grouped(values)
    assert found.group.tolist() == group.tolist()
    assert found.first.tolist() == first.tolist()
    assert found.sizes.tolist() == sizes.tolist()


@given(SOME_NUMBERS.filter(bool))
def test_dense_codes_are_grouped_the_same_whether_they_are_many_or_few(numbers: list[int]) -> None:
    codes = np.array(numbers, np.int64) % 7
    few = Coded(codes, 7).grouped()
    with small_blocks():
        for most in (3, 10):
            with patch.object(grouping, "_DENSE_MAX", most):
                many = Coded(codes, 7).grouped()
            assert many.group.tolist() == few.group.tolist()
            assert many.first.tolist() == few.first.tolist()
            assert many.sizes.tolist() == few.sizes.tolist()


@pytest.mark.parametrize(
    "column",
    [
        pa.array([str(at % 97) if at % 11 else None for at in range(500)]),
        pa.array([at % 97 if at % 11 else None for at in range(500)]),
        pa.array([at % 97 / 7 if at % 11 else float("nan") for at in range(500)]),
        pa.array([at % 97 if at % 11 else None for at in range(500)], pa.date32()),
        pa.array([bool(at % 3) for at in range(500)]),
    ],
    ids=["text", "integer", "float", "date", "bool"],
)
def test_values_of_many_blocks_get_codes_that_only_equal_ones_share(column: pa.Array) -> None:
    expected = codes_of([column])
    with patch.object(grouping, "BLOCK_ROWS", 16), small_blocks(16):
        found = codes_of([column])
    assert found.count == expected.count
    pairs = set(zip(expected.codes.tolist(), found.codes.tolist(), strict=True))
    assert len(pairs) == len({one for one, _ in pairs}) == len({other for _, other in pairs})


RANDOM = np.random.default_rng(5)
SHAPES = {
    "random": RANDOM.integers(0, 2**60, 4_096),
    "few values": RANDOM.integers(0, 3, 4_096),
    "one value": np.full(4_096, 7),
    "mostly one value": np.where(RANDOM.random(4_096) < 0.7, 7, RANDOM.integers(0, 2**40, 4_096)),
    "in order": np.arange(4_096),
}


@pytest.mark.parametrize("work", [sorting.sorted_numbers, sorting.grouped, sorting.stable_order])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_limits_are_looked_at_for_every_block(
    work: Callable[[Numbers], object], shape: str
) -> None:
    values = SHAPES[shape]
    block = 64
    governor = Counting()
    with small_blocks(block), governor:
        work(values.copy())
    assert governor.looks >= len(values) // block
    for look in (1, governor.looks // 2, governor.looks):
        stopped = Counting(look)
        with small_blocks(block), stopped, pytest.raises(QueryCancelled):
            work(values.copy())
        assert stopped.looks == look


@pytest.mark.parametrize("shape", SHAPES)
def test_no_call_of_numpy_sorts_more_than_a_block_at_once(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the values are: a sort that is not cut would sort all of them."""
    sizes: list[int] = []
    real = np.argsort

    def noting(values: Numbers, **options: Any) -> Numbers:
        sizes.append(len(values))
        return real(values, **options)

    monkeypatch.setattr(np, "argsort", noting)
    with small_blocks(64):
        sorting.grouped(SHAPES[shape].copy())
    assert max(sizes) <= 64


def test_the_edges_of_one_node_are_sorted_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sorting, "CHUNK_ROWS", 64)
    hub = np.zeros(2_000, np.int32)
    others = RANDOM.permutation(2_000).astype(np.int32)
    looks = {}
    for block in (64, 4_096):
        governor = Counting()
        with small_blocks(block), governor:
            made = Adjacency.build(hub, others, 2_000)
        looks[block] = governor.looks
        assert made.neighbours[: made.pointers[1]].tolist() == list(range(2_000))
    # Beyond what is looked at anyway: once for each block that is sorted, and each that is merged.
    assert looks[64] - looks[4_096] >= 2 * 2_000 // 64
