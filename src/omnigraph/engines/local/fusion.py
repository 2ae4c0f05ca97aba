"""Reciprocal rank fusion: one ranking out of two."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from omnigraph.engines.local.adjacency import sorted_distinct

Positions = NDArray[np.int32]
Scores = NDArray[np.float64]

K_DEFAULT = 60


def fused(first: Positions, second: Positions, k: int) -> tuple[Positions, Scores]:
    """The rows of two rankings, best first, and their fused scores.

    Each arm lists distinct rows from its best to its worst. A row scores ``1 / (k + rank)`` in each
    arm that has it, ranks counting from one. Equal scores go to the better rank in the first arm,
    then in the second, where absent is worst. No two rows share both, so ids need not decide.
    """
    rows = sorted_distinct(np.concatenate([first, second]))
    absent = len(rows) + 1
    ranks = np.full((2, len(rows)), absent, np.int64)
    for arm_ranks, arm in zip(ranks, (first, second), strict=True):
        arm_ranks[np.searchsorted(rows, arm)] = np.arange(1, len(arm) + 1)
    scores = np.where(ranks < absent, 1.0 / (k + ranks), 0.0).sum(axis=0)
    order = np.lexsort((ranks[1], ranks[0], -scores))
    return rows[order], scores[order]
