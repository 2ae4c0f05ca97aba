"""Vectors of one property in memory, and the exact nearest among them.

A distance is the sum of squared differences in double precision, added from the first component to
the last; the order is part of the definition, so that results are reproducible to the last bit.
Exact distances are computed for a shortlist only. It comes from matrix products in single precision
with a proven error bound: first of the heads (leading components) of all vectors, which rules out
most of them, then of whole vectors for the rest. No row that could be among the nearest is lost.
"""

from __future__ import annotations

from threading import Lock
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import ArrayLike, NDArray

from omnigraph.errors import InputError
from omnigraph.model.governor import current

Positions = NDArray[np.int32]
Places = NDArray[np.integer]
Floats = NDArray[np.float64]
Matrix = NDArray[np.float32]
Mask = NDArray[np.bool_]
_Float = TypeVar("_Float", np.float32, np.float64)

_LENGTH_MAX = 1e15
"""Longer vectors are left out of the matrix product, where they might overflow."""

_EXACT_ROWS_MAX = 1_000
"""Up to this many rows all distances are computed; a shortlist would not be cheaper."""

_GATHER_SHARE_MAX = 1 / 8
"""Fewer candidates than this share of all rows are copied together for the product; with more it is
faster to multiply all rows."""

_HEADS_ROWS_MIN = 20_000
"""From this many rows on, heads are used."""

_HEADS_PROBE = 256
"""Rows nearest by their heads; their exact distances bound the others."""

_HEADS_SHARE_MAX = 1 / 8
"""If a larger share of all rows remains, heads did not help."""

_HEADS_PATIENCE = 8
"""Heads are no longer used after this many searches in which they did not help, less those in which
they helped since: some vectors differ only in later components."""

_BLOCK_CELLS = 1 << 16
"""Components converted to doubles at a time, to stay in the processor cache."""

_PRODUCT_ROWS = 1 << 20
"""Rows that are multiplied between two checks of the query's limits."""

_PRODUCT_CELLS = 1 << 13
"""Components per matrix product; BLAS runs products of this size in one thread."""

_GROWTH = 1.25
"""Capacity of an appended matrix relative to its size, so that most appends copy only new rows."""


def smallest(values: Floats, k: int) -> NDArray[np.intp]:
    """The indexes of the ``k`` smallest values and of all equal to the last of them, smallest
    first.

    Equal values are in the order of their indexes. NaN is larger than any number and equal to NaN.
    """
    if k <= 0:
        return np.zeros(0, np.intp)
    if k >= len(values):
        return np.argsort(values, kind="stable")
    last = np.partition(values, k - 1)[k - 1]
    places = np.arange(len(values)) if np.isnan(last) else np.flatnonzero(values <= last)
    return places[np.argsort(values[places], kind="stable")]


class VectorColumn:
    """The vectors of a property over a range of row positions, deleted rows included.

    Immutable; `extended` returns a longer one, which shares its memory where it can.
    """

    def __init__(
        self,
        matrix: Matrix,
        valid: Mask,
        squares: Floats,
        room: _Room | None = None,
        known_heads: tuple[Matrix, _Room | None] | None = None,
    ) -> None:
        self.matrix = matrix
        """One row per position; the row of a null is undefined."""
        self.valid = valid
        """Which positions have a vector."""
        self._squares = squares
        self._room = room
        with np.errstate(invalid="ignore"):
            lengths = np.sqrt(squares)
            self._apart = ~(valid & (lengths <= _LENGTH_MAX))
        self._lengths = np.where(self._apart, 0.0, lengths)
        # Bounds for rows outside the product: nulls are never near (NaN), very long vectors always
        # go into the shortlist.
        self._apart_bounds = np.where(valid, -np.inf, np.nan)
        self._unusual_count = int(np.count_nonzero(valid & self._apart))
        self._length_max = float(self._lengths.max(initial=0.0))
        self._heads, self._heads_room = self._made_heads(known_heads)
        self._patience = _HEADS_PATIENCE

    @staticmethod
    def of(column: pa.Array) -> VectorColumn:
        """The vectors of a fixed-size list column whose first row is at position zero."""
        matrix, valid = _arrays(column)
        return VectorColumn(matrix, valid, _squares(matrix))

    def extended(self, column: pa.Array) -> VectorColumn:
        """The vectors of these positions and of those that follow."""
        matrix, valid = _arrays(column)
        longer, room = _appended(self.matrix, matrix, self._room)
        return VectorColumn(
            longer,
            np.concatenate([self.valid, valid]),
            np.concatenate([self._squares, _squares(matrix)]),
            room,
            None if self._heads is None else (self._heads, self._heads_room),
        )

    def __len__(self) -> int:
        """The number of positions covered."""
        return len(self.valid)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        rows = self.matrix if self._room is None else self._room.rows
        per_row = [self.valid, self._squares, self._apart, self._lengths, self._apart_bounds]
        if self._heads is not None:
            per_row.append(self._heads if self._heads_room is None else self._heads_room.rows)
        return rows.nbytes + sum(part.nbytes for part in per_row)

    def distances(self, query: ArrayLike, positions: Positions) -> Floats:
        """The squared distance of each position; NaN for a null vector."""
        found = self._exact(self._target(query), positions)
        found[~self.valid[positions]] = np.nan
        return found

    def best(
        self,
        query: ArrayLike,
        k: int,
        *,
        live: Mask | None = None,
        candidates: Positions | None = None,
    ) -> tuple[Positions, Floats]:
        """The ``k`` rows nearest to the query, nearest first, and all that tie with the last.

        Rows at equal distances are in the order of their positions. Null vectors are left out.
        ``candidates`` lists the only rows to consider, without duplicates; without it, ``live``
        masks them, and rows beyond its end are not in its snapshot. A NaN distance, as of a vector
        with NaN, comes after all numbers.
        """
        target = self._target(query)
        shortlist = self._shortlist(target, k, live, candidates)
        rows = np.sort(shortlist[self.valid[shortlist]]).astype(np.int32, copy=False)
        distances = self._exact(target, rows)
        chosen = smallest(distances, k)
        return rows[chosen], distances[chosen]

    def _target(self, query: ArrayLike) -> Floats:
        target = np.asarray(query, np.float64)
        dimension = self.matrix.shape[1]
        if target.shape != (dimension,):
            raise InputError(
                f"the query vector has {target.size} components, the stored ones {dimension}",
                hint=f"give a vector of {dimension} numbers",
            )
        return target

    def _exact(self, target: Floats, positions: Places) -> Floats:
        """Distances by definition."""
        governor = current()
        governor.reserve(8 * len(positions))
        found = np.empty(len(positions))
        step = max(1, _BLOCK_CELLS // len(target))
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            for start in range(0, len(positions), step):
                governor.check()
                terms = self.matrix[positions[start : start + step]] - target
                terms *= terms
                # A running total, unlike a sum, leaves no choice in the order of additions.
                np.add.accumulate(terms, axis=1, out=terms)
                found[start : start + step] = terms[:, -1]
        return found

    def _shortlist(
        self, target: Floats, k: int, live: Mask | None, candidates: Places | None
    ) -> Places:
        """A subset of the candidates that includes the nearest ``k`` and their ties."""
        if k <= 0:
            return np.zeros(0, np.int32)
        if candidates is not None and len(candidates) == len(self):
            candidates, live = None, None
        elif candidates is None and live is not None and 2 * np.count_nonzero(live) < len(self):
            candidates = np.flatnonzero(live)
        count = len(self) if candidates is None else len(candidates)
        length = _length(target)
        wanted = k + self._unusual_count
        if count <= max(wanted, _EXACT_ROWS_MAX) or not length <= _LENGTH_MAX:
            if candidates is not None:
                return candidates
            return np.arange(len(self)) if live is None else np.flatnonzero(live)

        if count >= _GATHER_SHARE_MAX * len(self) and 2 * wanted <= _HEADS_PROBE:
            left = self._not_ruled_out(target, k, live, candidates)
            if left is not None:
                candidates, live, count = left, None, len(left)
                if count <= max(wanted, _EXACT_ROWS_MAX):
                    return candidates
        gathered = candidates is not None and count < _GATHER_SHARE_MAX * len(self)
        at = candidates if gathered else slice(None)
        bounds = _Bounds(target, length)
        lower = bounds.lower(self.matrix[at], self._squares[at], self._lengths[at])
        np.copyto(lower, self._apart_bounds[at], where=self._apart[at])
        if not gathered:
            lower = _selected_bounds(lower, live, candidates)

        # The k rows with the smallest bounds give an upper limit for the k-th distance; rows whose
        # lower bound exceeds it cannot be among the nearest.
        some = np.argpartition(lower, wanted - 1)[:wanted]
        rows = some if candidates is None else candidates[some]
        upper = bounds.upper(lower[some], self._squares[rows], self._lengths[rows])
        limit = np.partition(upper, k - 1)[k - 1]
        places = np.flatnonzero(lower <= limit)
        return places if candidates is None else candidates[places]

    def _made_heads(
        self, known: tuple[Matrix, _Room | None] | None
    ) -> tuple[Matrix | None, _Room | None]:
        """The heads of all rows; ``known`` has those of the first rows."""
        if len(self) < _HEADS_ROWS_MIN or head_width(self.matrix.shape[1]) is None:
            return None, None
        start = 0 if known is None else len(known[0])
        rest = slice(start, None)
        heads = heads_of(
            self.matrix[rest], self._squares[rest], self._apart[rest], self._apart_bounds[rest]
        )
        return (heads, None) if known is None else _appended(known[0], heads, known[1])

    def _not_ruled_out(
        self, target: Floats, k: int, live: Mask | None, candidates: Places | None
    ) -> Places | None:
        """The candidates that heads do not rule out; None if those are too many."""
        count = len(self) if candidates is None else len(candidates)
        if self._heads is None or not self._patience or count <= _HEADS_PROBE:
            return None
        bounds = HeadBounds(target, self._heads.shape[1], self._length_max)
        with np.errstate(all="ignore"):
            lower = _selected_bounds(_products(self._heads, bounds.factors), live, candidates)
        some = np.argpartition(lower, _HEADS_PROBE - 1)[:_HEADS_PROBE]
        near = some if candidates is None else candidates[some]
        distances = self._exact(target, near[self.valid[near]])
        distances = distances[~np.isnan(distances)]
        if len(distances) < k:
            return None
        limit = bounds.limit(float(np.partition(distances, k - 1)[k - 1]))
        # Very long vectors have a bound of minus infinity, and stay.
        places = np.flatnonzero(lower <= limit)
        if len(places) >= _HEADS_SHARE_MAX * len(self):
            self._patience -= 1
            return None
        self._patience = min(self._patience + 1, _HEADS_PATIENCE)
        return places if candidates is None else candidates[places]


def _selected_bounds(
    lower: NDArray[_Float], live: Mask | None, candidates: Places | None
) -> NDArray[_Float]:
    """The bounds of the candidates, or of all rows with NaN for deleted ones."""
    if candidates is not None:
        return lower[candidates]
    if live is not None:
        np.copyto(lower[: len(live)], np.nan, where=~live)
        lower[len(live) :] = np.nan
    return lower


class _Bounds:
    """Bounds of distances from a product in single precision.

    With s the squared length of a row x and q the query, the distance is s - 2xq + qq; bounds leave
    out qq, which is the same for all. The error has four sources: rounding in the product, at most
    one unit per component relative to the lengths of x and q, in whatever order it adds and fused
    or not; rounding q itself; numbers too small for single precision; and rounding of everything
    else, exact distances included, in double precision. The factors are generous.
    """

    def __init__(self, target: Floats, length: float) -> None:
        dimension = len(target)
        single = target.astype(np.float32)
        product = 1.01 * dimension * 2.0**-24 / (1 - dimension * 2.0**-24)
        rounded = _length(target - single)
        self._factors = single * np.float32(-2)
        self._per_length = 2.02 * (product * length + rounded)
        self._per_square = 1.01 * _double_error(dimension)
        self._flat = 16 * dimension * 2.0**-126 + self._per_square * length * length

    def lower(self, matrix: Matrix, squares: Floats, lengths: Floats) -> Floats:
        """Lower bounds: no distance is smaller by more than `_flat`."""
        bound: Floats = lengths * -self._per_length
        with np.errstate(all="ignore"):
            bound += _products(matrix, self._factors)
            bound += squares
        return bound

    def upper(self, lower: Floats, squares: Floats, lengths: Floats) -> Floats:
        """Upper bounds: a row whose lower bound exceeds the one of a row here is farther away."""
        with np.errstate(all="ignore"):
            margin = lengths * self._per_length + squares * self._per_square + self._flat
            return np.where(np.isfinite(lower), lower + 2 * margin, np.inf)


def _products(matrix: Matrix, factors: Matrix) -> Matrix:
    """The product of each row with the same factors.

    In blocks: BLAS spreads one large product over threads, which wait for each other on a busy
    machine; small products run in one thread at memory speed.
    """
    step = max(1, _PRODUCT_CELLS // max(len(factors), 1))
    whole = len(matrix) // step * step
    governor = current()
    governor.reserve(4 * len(matrix))
    found = np.empty(len(matrix), np.result_type(matrix, factors))
    at_once = step * max(1, _PRODUCT_ROWS // step)
    for start in range(0, whole, at_once):
        governor.check()
        stop = min(start + at_once, whole)
        blocks = matrix[start:stop].reshape(-1, step, matrix.shape[1]) @ factors
        found[start:stop] = blocks.reshape(-1)
    found[whole:] = matrix[whole:] @ factors
    return found


def _double_error(dimension: int) -> float:
    """The error of sums of squares, relative to the squared lengths."""
    return (4 * dimension + 40) * 2.0**-53


class _Room:
    """A buffer that a matrix and its extensions share."""

    def __init__(self, rows: Matrix, used: int) -> None:
        self.rows = rows
        self._used = used
        self._lock = Lock()

    def claim(self, start: int, end: int) -> bool:
        """Reserve rows; False if another extension of the same matrix has them or there is no room.

        Rows below ``start`` are in use and never written again.
        """
        with self._lock:
            if self._used != start or end > len(self.rows):
                return False
            self._used = end
            return True


def _appended(matrix: Matrix, more: Matrix, room: _Room | None) -> tuple[Matrix, _Room]:
    """One matrix appended to another."""
    start, end = len(matrix), len(matrix) + len(more)
    if room is None or not room.claim(start, end):
        room = _Room(np.empty((int(end * _GROWTH), matrix.shape[1]), np.float32), end)
        room.rows[:start] = matrix
    room.rows[start:end] = more
    return room.rows[:end], room


def _arrays(column: pa.Array) -> tuple[Matrix, Mask]:
    """The vectors of an Arrow column, without a copy if they are floats, and which are not null.

    A component that is null is NaN.
    """
    dimension = column.type.list_size
    # Unlike `flatten`, this keeps the entries of null vectors.
    values = column.values.slice(column.offset * dimension, len(column) * dimension)
    matrix = np.asarray(values.to_numpy(zero_copy_only=False), np.float32)
    valid = pc.is_valid(column).to_numpy(zero_copy_only=False)
    return matrix.reshape(len(column), dimension), valid


def _squares(matrix: Matrix) -> Floats:
    """The squared length of each row, reduced by the possible rounding error."""
    found = np.empty(len(matrix))
    step = max(1, _BLOCK_CELLS // matrix.shape[1])
    with np.errstate(all="ignore"):
        for start in range(0, len(matrix), step):
            current().check()
            block = matrix[start : start + step].astype(np.float64)
            np.einsum("ij,ij->i", block, block, out=found[start : start + step])
        found *= 1 - _double_error(matrix.shape[1])
    return found


def _length(vector: Floats) -> float:
    with np.errstate(all="ignore"):
        return float(np.sqrt(vector @ vector))


# --- vector heads ---------------------------------------------------------------------------------


_WIDTH_MIN = 32
_WIDTH_SHARE = 8
"""A head has this share of the components, at least `_WIDTH_MIN`."""

_EPSILON = 1e-6
"""Relative safety margin applied before rounding to single precision."""


def head_width(dimension: int) -> int | None:
    """The number of components in a head; None if that saves too little."""
    width = max(_WIDTH_MIN, dimension // _WIDTH_SHARE)
    return width if 2 * width <= dimension else None


def heads_of(matrix: Matrix, squares: Floats, apart: Mask, apart_bounds: Floats) -> Matrix:
    """The head rows of vectors: leading components, length of the rest, squared length.

    ``squares`` are no larger than the true ones. Rows in ``apart`` get the bounds ``apart_bounds``.
    """
    width = head_width(matrix.shape[1])
    assert width is not None
    cut = width - 2
    heads = np.empty((len(matrix), width), np.float32)
    heads[:, :cut] = matrix[:, :cut]
    step = max(1, _BLOCK_CELLS // matrix.shape[1])
    with np.errstate(all="ignore"):
        for start in range(0, len(matrix), step):
            current().check()
            tail = matrix[start : start + step, cut:].astype(np.float64)
            lengths = np.sqrt(np.einsum("ij,ij->i", tail, tail))
            heads[start : start + step, cut] = lengths * (1 + _EPSILON)
        heads[:, cut + 1] = squares * (1 - _EPSILON)
    heads[apart] = 0
    heads[apart, cut + 1] = apart_bounds[apart]
    return heads


class HeadBounds:
    """Lower bounds of distances to one query, from heads.

    With x cut into a head and a tail, and s its squared length, the distance to q is at least
    ``s - 2 head(x)·head(q) - 2 |tail(x)| |tail(q)| + q·q``: the product of two tails is at most
    that of their lengths. All of it but q·q is one product of the head row of x with factors of q.
    """

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
