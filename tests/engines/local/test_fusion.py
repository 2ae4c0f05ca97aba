"""Reciprocal rank fusion, by its definition."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.engines.local.ranking import fused
from omnigraph.query.predicates import RRF_K_DEFAULT


def run(
    first: list[int], second: list[int], k: int = RRF_K_DEFAULT
) -> tuple[list[int], list[float]]:
    rows, scores = fused(np.array(first, np.int32), np.array(second, np.int32), k)
    return rows.tolist(), scores.tolist()


def test_c_srch_016_scores_use_ranks_from_one_and_k_60() -> None:
    rows, scores = run([7, 3], [3, 5, 9])
    assert rows == [3, 7, 5, 9]
    assert scores == [1 / 62 + 1 / 61, 1 / 61, 1 / 62, 1 / 63]


def test_c_srch_016_k_can_be_chosen() -> None:
    rows, scores = run([1, 2], [2], k=1)
    assert (rows, scores) == ([2, 1], [1 / 3 + 1 / 2, 1 / 2])


def test_c_srch_017_ties_go_to_the_better_rank_in_the_first_arm() -> None:
    assert run([1, 2], [2, 1])[0] == [1, 2]
    assert run([2, 1], [1, 2])[0] == [2, 1]
    assert run([1], [2])[0] == [1, 2], "present is better than absent"
    assert run([2], [1])[0] == [2, 1]


def test_an_empty_arm_leaves_the_other_and_two_leave_nothing() -> None:
    assert run([4, 2], [])[0] == [4, 2]
    assert run([], [4, 2])[0] == [4, 2]
    assert run([], []) == ([], [])


@given(
    st.permutations(range(8)),
    st.permutations(range(8)),
    st.integers(0, 8),
    st.integers(0, 8),
    st.integers(1, 80),
)
def test_the_order_is_score_then_first_arm_then_second(
    first: list[int], second: list[int], n: int, m: int, k: int
) -> None:
    first, second = first[:n], second[:m]
    absent = 99
    entries = []
    for row in {*first, *second}:
        ranks = [arm.index(row) + 1 if row in arm else absent for arm in (first, second)]
        score = sum(1 / (k + rank) for rank in ranks if rank != absent)
        entries.append((-score, *ranks, row))
    entries.sort()
    rows, scores = run(first, second, k)
    assert rows == [entry[-1] for entry in entries]
    assert scores == [-entry[0] for entry in entries]
