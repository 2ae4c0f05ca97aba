"""The beginnings of vectors: a look at them alone rules out most rows of a search.

With x cut into a head and a tail, and s its squared length, the distance to q is at least
``s - 2 head(x)·head(q) - 2 |tail(x)| |tail(q)| + q·q``: the product of two tails is at most that of
their lengths. All of it but q·q is one product of a row that is kept for x with a row made for q,
and the row is a half or less of what x takes in memory.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Matrix = NDArray[np.float32]
Mask = NDArray[np.bool_]

_WIDTH_MIN = 32
_WIDTH_SHARE = 8
"""A head takes this part of a vector, or `_WIDTH_MIN` components if that is more."""

_EPSILON = 1e-6
"""What is rounded to single precision is first moved to the safe side by this much."""

_BLOCK_CELLS = 1 << 16


def head_width(dimension: int) -> int | None:
    """How many numbers are kept of a vector; None if that would not be much less than all."""
    width = max(_WIDTH_MIN, dimension // _WIDTH_SHARE)
    return width if 2 * width <= dimension else None


def heads_of(matrix: Matrix, squares: Floats, apart: Mask, apart_bounds: Floats) -> Matrix:
    """The rows kept for vectors: head, length of the tail, squared length.

    ``squares`` are no larger than the true ones. Rows that are ``apart`` get a bound of their own.
    """
    width = head_width(matrix.shape[1])
    assert width is not None
    cut = width - 2
    heads = np.empty((len(matrix), width), np.float32)
    heads[:, :cut] = matrix[:, :cut]
    step = max(1, _BLOCK_CELLS // matrix.shape[1])
    with np.errstate(all="ignore"):
        for start in range(0, len(matrix), step):
            tail = matrix[start : start + step, cut:].astype(np.float64)
            lengths = np.sqrt(np.einsum("ij,ij->i", tail, tail))
            heads[start : start + step, cut] = lengths * (1 + _EPSILON)
        heads[:, cut + 1] = squares * (1 - _EPSILON)
    heads[apart] = 0
    heads[apart, cut + 1] = apart_bounds[apart]
    return heads


class HeadBounds:
    """What heads prove about the distance to one query."""

    def __init__(self, target: Floats, width: int, length_max: float) -> None:
        cut = width - 2
        head, tail = target[:cut], target[cut:]
        single = head.astype(np.float32)
        rounded = float(np.linalg.norm(head - single))
        length = float(np.linalg.norm(target))
        self.factors = np.empty(width, np.float32)
        self.factors[:cut] = single * np.float32(-2)
        self.factors[cut] = -2 * float(np.linalg.norm(tail)) * (1 + _EPSILON)
        self.factors[cut + 1] = 1
        # Rounding in a product of so many terms, whatever the order of additions; rounding of the
        # query; numbers too small for single precision; rounding in double precision elsewhere.
        unit = 1.01 * width * 2.0**-24 / (1 - width * 2.0**-24)
        terms = 2 * length * length_max + length_max * length_max
        self._margin = (
            1.01 * (unit * terms + 2 * rounded * length_max)
            + 16 * width * 2.0**-126
            + 1e-9 * (length + length_max) ** 2
        )
        self._query_square = length * length

    def limit(self, distance: float) -> float:
        """A row whose product is above this is farther away than ``distance``."""
        return distance - self._query_square + self._margin
