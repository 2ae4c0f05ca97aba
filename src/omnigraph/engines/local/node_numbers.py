"""One number per node of a type (counts, sums, extremes), and how numbers go along edges.

Counts are exact integers; what could exceed 62 bits is refused with `NotCounted`. Sums are floats;
extremes are ranks of the values they stand for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field, replace
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.adjacency import Adjacency, EditedAdjacency, SortedEdges, base_of
from omnigraph.engines.local.grouping import sorted_rows
from omnigraph.engines.local.ids import Slots
from omnigraph.engines.local.rows import Mask, taken
from omnigraph.engines.local.sorting import BLOCK_ROWS, blocks
from omnigraph.model.governor import current
from omnigraph.model.records import dataclass
from omnigraph.query import expressions as ex

Values: TypeAlias = npt.NDArray[Any]
"""A number for each of some nodes."""

_MOST_SHARE = 4
"""From this share of the edges on, all of them are read in their order."""

_PIECES_COST = 4
"""Reading an edge at one of some nodes costs this many times as much as one in sequence."""

FAR_GAIN_MIN = 1.5
"""Marked neighbours are counted from their side if that is this many times cheaper."""

_SUMMED_MAX = 2**31
"""Numbers below this, added up over at most 2**31 edges, stay below 2**62."""

_EXACT_FLOATS = 2**53
"""Up to this value, floats add up integers exactly."""
_COUNT_MAX = 2**62
"""Larger numbers of solutions are refused, so that no product overflows."""


class NotCounted(Exception):
    """Not counted here: few solutions, more than 62 bits, or tables not in memory."""


@dataclass(frozen=True, slots=True)
class NodeSet:
    """Some nodes of a type, or all of them in the order of their slots."""

    slots: Slots
    is_whole: bool

    def at(self, values: Values, wanted: Slots) -> Values:
        """The numbers of some of the nodes."""
        return values.take(wanted if self.is_whole else np.searchsorted(self.slots, wanted))


@dataclass(slots=True)
class CarriedAggregate:
    """An aggregate whose argument is outside the core, on its way to the core."""

    value: ex.AggregateValue
    variable: str
    counts: bool = False
    """Whether non-null values are counted instead of aggregated."""
    column: pa.Array | None = None
    """For extremes, the values of the argument."""
    has_nulls: bool = False
    largest: float = 0.0
    """For a sum of integers, the largest absolute value."""

    @property
    def function(self) -> str:
        """The aggregate function that is applied on the way."""
        return "count" if self.counts else self.value.function

    @property
    def nothing(self) -> int:
        """The number that stands for "no solution"."""
        return {"min": np.iinfo(np.int64).max, "max": -1}.get(self.function, 0)

    @property
    def joins(self) -> np.ufunc:
        """The function that merges the numbers of several solutions."""
        return {"min": np.minimum, "max": np.maximum}.get(self.function, np.add)

    def nothing_for(self, count: int) -> Values:
        """An array of "no solution" for ``count`` nodes."""
        is_float = self.function in ("sum", "avg")
        return np.full(count, self.nothing, np.float64 if is_float else np.int64)

    def start(self, column: pa.Array) -> Values:
        """The numbers at the nodes of the argument; for extremes, their ranks."""
        self.has_nulls = column.null_count > 0
        valid = column.is_valid().to_numpy(zero_copy_only=False)
        if self.function == "count":
            return np.asarray(valid, np.int64)
        if self.function in ("sum", "avg"):
            filled = column.fill_null(0) if self.has_nulls else column
            numbers = np.asarray(filled.to_numpy(zero_copy_only=False), np.float64)
            if self.value.sums_integers and len(numbers):
                self.largest = max(self.largest, float(np.abs(numbers).max()))
            return numbers
        self.column = column
        order = sorted_rows([(column, "ascending", "at_start")]).astype(np.int64)
        ranks = np.empty(len(order), np.int64)
        ranks[order] = np.arange(len(order))
        ranks[~valid] = self.nothing
        self._order = order
        return ranks

    def start_all(self, columns: Sequence[pa.Array]) -> list[Values]:
        """The numbers at several parts of the nodes or edges of the argument."""
        if self.function in ("min", "max"):
            # Ranks have to be comparable across the parts.
            ranks = self.start(pa.concat_arrays(columns))
            return np.split(ranks, np.cumsum([len(column) for column in columns])[:-1])
        found = [self.start(column) for column in columns]
        self.has_nulls = any(column.null_count for column in columns)
        return found

    def scaled(self, values: Values, times: Values | None) -> Values:
        """The numbers, each for ``times`` as many solutions."""
        if times is None:
            return values
        if self.function in ("min", "max"):
            return np.where(times > 0, values, self.nothing)
        if self.function == "count":
            return _product(values, times)
        with np.errstate(invalid="ignore", over="ignore"):  # infinities are valid values
            return np.where(times > 0, values * times, 0.0)

    def exact_sums(self, sums: Values, times: Values) -> Values | None:
        """The sums of integers; None for other aggregates.

        Raises `NotCounted` if the float sums may have been rounded.
        """
        if not self.value.sums_integers:
            return None
        if self.largest * float(times.max(initial=0)) >= _EXACT_FLOATS:
            raise NotCounted
        return sums.astype(np.int64)

    def extremes(self, ranks: Values) -> pa.Array:
        """The values of some ranks; null for "no solution"."""
        assert self.column is not None
        rows = np.where(ranks == self.nothing, -1, ranks)
        if len(self._order):
            rows = np.where(rows < 0, -1, self._order.take(np.maximum(rows, 0)))
        return taken(self.column, rows)

    _order: Values = field(default_factory=lambda: np.zeros(0, np.int64))


def product_of(left: Values | None, right: Values | None) -> Values | None:
    """The product of the counts of two independent parts; None stands for 1."""
    if left is None or right is None:
        return right if left is None else left
    return _product(left, right)


def _product(left: Values, right: Values) -> Values:
    are_counts = len(left) > 0 and left.dtype == right.dtype == np.int64
    if are_counts and int(left.max()) * int(right.max()) >= _COUNT_MAX:
        # The largest values may be at different nodes, then the products are smaller.
        require_countable((left.astype(np.float64) * right).max())
    return left * right


def require_countable(count: float) -> None:
    """Raise `NotCounted` if a number of solutions is too large to be counted here."""
    if count >= _COUNT_MAX:
        raise NotCounted


def reduced(joins: np.ufunc, values: Values, firsts: Values, dtype: Any) -> Values:
    """One number for each run of values that begins at ``firsts``."""
    if values.dtype == np.bool_:
        values = values.view(np.int8)
        # Takes half the time of 64 bits; a block has fewer values.
        dtype = np.int32 if joins is np.add and dtype == np.int64 else dtype
    with np.errstate(invalid="ignore", over="ignore"):
        found: Values = joins.reduceat(values, firsts, dtype=dtype)
    return found


@dataclass(frozen=True, slots=True)
class EdgeNumbers:
    """A number for each edge at some nodes, one node after the other."""

    adjacency: SortedEdges
    """The adjacency of these edges."""
    values: Values
    """Which edges count; with ``is_argument``, the values of an aggregate over the edges."""
    is_argument: bool = False
    own: Values | None = None
    """The values of edited nodes, if ``values`` belong to the base of an edited adjacency."""

    def joined(
        self, start: int, stop: int, given: Values | None, carried: CarriedAggregate | None
    ) -> Values:
        """The numbers at the far ends of some edges, combined with those of the edges."""
        some = self.values[start:stop]
        if self.is_argument:
            assert carried is not None
            return carried.scaled(some, given)
        if given is None:
            return some
        return given * some if carried is None else carried.scaled(given, some)


def added_along(
    adjacency: SortedEdges,
    slots: Slots,
    domain: NodeSet,
    values: Values | None,
    *,
    carried: CarriedAggregate | None,
    edges: EdgeNumbers | None,
) -> Values:
    """For each node, the combined numbers of all its neighbours; None stands for 1 everywhere."""
    if edges is not None:
        adjacency = edges.adjacency
    counts = adjacency.degrees(slots)
    if values is None and edges is None:
        return counts
    is_apart = domain.is_whole if edges is None else edges.own is not None
    if isinstance(adjacency, EditedAdjacency) and is_apart:
        return _added_with_edits(adjacency, slots, domain, values, carried=carried, edges=edges)
    joins = np.add if carried is None else carried.joins
    found = np.zeros(len(slots), np.int64) if carried is None else carried.nothing_for(len(slots))
    near_limit = False
    if joins is np.add and found.dtype == np.int64 and values is not None and len(values):
        near_limit = int(values.max()) * int(counts.max(initial=0)) >= _COUNT_MAX
    if edges is None and domain.is_whole and not near_limit and _is_most(adjacency, slots, counts):
        # Reading all edges in sequence is faster than most of them in pieces.
        every = np.arange(len(adjacency.pointers) - 1, dtype=np.int32)
        whole = added_along(adjacency, every, domain, values, carried=carried, edges=None)
        return whole.take(slots)
    at = 0
    for start, stop in blocks(counts, BLOCK_ROWS):
        current().check()
        neighbours, some = adjacency.gather(slots[start:stop])
        before, at = at, at + len(neighbours)
        filled = np.flatnonzero(some)
        if not len(filled):
            continue
        firsts = (np.cumsum(some) - some)[filled]
        given = None if values is None else domain.at(values, neighbours)
        if edges is not None:
            given = edges.joined(before, at, given, carried)
        assert given is not None
        if near_limit:
            require_countable(reduced(joins, given.astype(np.float64), firsts, None).max())
        found[start + filled] = reduced(joins, given, firsts, found.dtype)
    return found


def counted_from_far(
    adjacency: SortedEdges, backwards: SortedEdges, slots: Slots, marked: Mask
) -> Values | None:
    """For each node, the number of its marked neighbours, counted from the neighbours' side.

    ``marked`` covers all nodes at the far end, and ``backwards`` has their edges. The edges of the
    marked nodes are read, or of the others if these are fewer; None if reading the edges of
    ``slots`` is cheaper.
    """
    counts = adjacency.degrees(slots)
    ahead = min(_PIECES_COST * int(counts.sum()), len(base_of(adjacency).neighbours))
    is_rest = 2 * int(np.count_nonzero(marked)) > len(marked)
    few = np.flatnonzero(~marked if is_rest else marked).astype(np.int32)
    behind = _PIECES_COST * int(backwards.degrees(few).sum()) + len(marked)
    if behind * FAR_GAIN_MIN > ahead:
        return None
    found, _ = backwards.gather(few)
    current().reserve(16 * len(found))
    met = np.bincount(found, minlength=int(slots.max()) + 1).take(slots)
    return counts - met if is_rest else met


def _is_most(adjacency: SortedEdges, slots: Slots, counts: Values) -> TypeGuard[Adjacency]:
    """Whether some of the nodes have a large share of all edges."""
    if not isinstance(adjacency, Adjacency) or not len(slots):
        return False
    nodes = len(adjacency.pointers) - 1
    if len(slots) == nodes or int(slots.max()) >= nodes:
        return False
    return int(counts.sum()) * _MOST_SHARE > len(adjacency.neighbours)


def total_along(
    adjacency: SortedEdges,
    slots: Slots,
    domain: NodeSet,
    values: Values | None,
    edges: EdgeNumbers | None,
) -> int | None:
    """The sum of the counts that `added_along` returns; None if they are needed node by node."""
    if edges is not None:
        if edges.own is not None or edges.values.dtype != np.bool_:
            return None
        adjacency = edges.adjacency
        if values is None:
            return int(np.count_nonzero(edges.values))
    if values is None:
        return None
    if values.dtype != np.bool_ and len(values) and int(values.max()) >= _SUMMED_MAX:
        return None
    total = at = 0
    for start, stop in blocks(adjacency.degrees(slots), BLOCK_ROWS):
        current().check()
        neighbours = adjacency.gather(slots[start:stop])[0]
        before, at = at, at + len(neighbours)
        if edges is not None:
            neighbours = neighbours.take(np.flatnonzero(edges.values[before:at]))
        given = domain.at(values, neighbours)
        total += int(np.count_nonzero(given) if given.dtype == np.bool_ else given.sum())
    require_countable(total)
    return total


def _added_with_edits(
    adjacency: EditedAdjacency,
    slots: Slots,
    domain: NodeSet,
    values: Values | None,
    *,
    carried: CarriedAggregate | None,
    edges: EdgeNumbers | None,
) -> Values:
    """First all nodes by the base, which takes no copy; then the edited nodes are corrected."""
    before = edges and replace(edges, adjacency=adjacency.base, own=None)
    found = added_along(adjacency.base, slots, domain, values, carried=carried, edges=before)
    places, is_edited = adjacency.edited_among(slots)
    if is_edited.any():
        own = None
        if edges is not None and edges.own is not None:
            own = EdgeNumbers(adjacency.lists, edges.own, edges.is_argument)
        found[is_edited] = added_along(
            adjacency.lists, places[is_edited], domain, values, carried=carried, edges=own
        )
    return found
