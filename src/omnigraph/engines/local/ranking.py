"""Orders rows by sort keys and tie breakers, and candidates by search scores."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.engines.local.bindings import BindingTable
from omnigraph.engines.local.grouping import SortKey, ordered_numbers, python_values, sorted_rows
from omnigraph.engines.local.ids import AnySpace, Slots
from omnigraph.engines.local.nodes import CachedNodes
from omnigraph.engines.local.rows import Positions
from omnigraph.engines.local.search import text_column, vector_column
from omnigraph.engines.local.sorting import sorted_distinct
from omnigraph.engines.local.tables import Session
from omnigraph.model.governor import current
from omnigraph.model.records import dataclass
from omnigraph.query import expressions as ex

# --- order of rows --------------------------------------------------------------------------------


Rows: TypeAlias = npt.NDArray[np.integer]
Scores: TypeAlias = npt.NDArray[np.float64]
Key: TypeAlias = tuple[pa.Array, bool]
"""Values by row, and whether they are sorted in descending order."""

TieBreaker: TypeAlias = Callable[[Rows], pa.Array]
"""Returns the tie-breaking values of some rows; called only for rows with equal keys."""

LateKey: TypeAlias = tuple[TieBreaker, bool]
"""A key whose values are read only for the rows that the keys before it leave equal."""

_PRUNE_MIN = 1_000


def ordered_rows(
    keys: Sequence[Key | LateKey], ties: Sequence[TieBreaker], count: int, stop: int | None
) -> Rows:
    """The row numbers in order, at most the first ``stop``. Null is smaller than every value.

    The first key is never a late one.
    """
    current().reserve(16 * count)
    rows: Rows = np.arange(count)
    if not keys or not count or stop == 0:
        return rows[:stop]
    if stop is not None and count > max(2 * stop, _PRUNE_MIN):
        first, descending = keys[0]
        assert isinstance(first, pa.Array)
        rows = _pruned(first, descending, stop)
    columns = []
    for key, _ in keys:
        if isinstance(key, pa.Array):
            columns.append(key if len(rows) == count else key.take(pa.array(rows)))
        else:
            columns.append(key(rows))
    columns = list(map(_sortable, columns))
    order = _sorted(columns, [descending for _, descending in keys])
    if ties:
        order = _with_ties_resolved(order, columns, rows, ties, len(rows) if stop is None else stop)
    return rows[order][:stop]


def _with_ties_resolved(
    order: Rows, columns: Sequence[pa.Array], rows: Rows, ties: Sequence[TieBreaker], stop: int
) -> Rows:
    """The order with ties resolved: rows with equal keys are sorted by the tie breakers.

    Ties are read only for such rows, and only if some of them are among the first ``stop``.
    """
    is_first = np.ones(len(order) + 1, np.bool_)
    is_first[1:-1] = False
    in_order = pa.array(order)
    for column in columns:
        is_first[1:-1] |= _differ(column.take(in_order))
    # For each place, whether its row equals the one before or after it.
    tied = np.flatnonzero(~(is_first[:-1] & is_first[1:]))
    run = np.cumsum(is_first[:-1])
    if stop < len(order):
        tied = tied[run[tied] <= run[stop - 1]]
    if not len(tied):
        return order
    some = rows[order[tied]]
    found = _sorted(
        [pa.array(run[tied]), *(_sortable(tie(some)) for tie in ties)], [False] * (len(ties) + 1)
    )
    order = order.copy()
    order[tied] = order[tied[found]]
    return order


def _differ(column: pa.Array) -> npt.NDArray[np.bool_]:
    """Whether each value differs from its predecessor in sort order."""
    numbers = ordered_numbers(column)
    if numbers is not None and not (column.null_count or pa.types.is_floating(column.type)):
        differ: npt.NDArray[np.bool_] = numbers[1:] != numbers[:-1]
        return differ
    known: npt.NDArray[np.bool_] = column.is_valid().to_numpy(zero_copy_only=False)
    unequal: npt.NDArray[np.bool_] = (
        pc.not_equal(column[1:], column[:-1]).fill_null(False).to_numpy(zero_copy_only=False)
    )
    if pa.types.is_floating(column.type):
        is_number = pc.invert(pc.is_nan(column)).fill_null(False).to_numpy(zero_copy_only=False)
        unequal &= is_number[1:] | is_number[:-1]
    unequal |= known[1:] != known[:-1]
    return unequal


def _sorted(columns: list[pa.Array], directions: list[bool]) -> Rows:
    keys: list[SortKey] = [
        (column, "descending", "at_end") if descending else (column, "ascending", "at_start")
        for column, descending in zip(columns, directions, strict=True)
    ]
    return sorted_rows(keys)


def _sortable(column: pa.Array) -> pa.Array:
    """A column that Arrow can sort; lists become their ranks."""
    if not pa.types.is_nested(column.type):
        return column
    values = [_comparable(value) for value in python_values(column)]
    current().reserve(200 * len(values))
    ranks = {value: rank for rank, value in enumerate(sorted(set(values)))}
    return pa.array([ranks[value] for value in values], pa.int64())


def _comparable(value: list[object] | None) -> tuple[tuple[int, object], ...]:
    """A list as a tuple to compare in Python: null lists, null items, NaN, then others."""
    if value is None:
        return ()
    return ((2, 0), *map(_comparable_item, value))


def _comparable_item(item: object) -> tuple[int, object]:
    if item is None:
        return (0, 0)
    return (1, 0) if isinstance(item, float) and math.isnan(item) else (2, item)


def _pruned(column: pa.Array, descending: bool, stop: int) -> Rows:
    """A superset of the first ``stop`` rows, from the first key alone."""
    numbers = ordered_numbers(column)
    if numbers is not None:
        if descending:
            last = np.partition(numbers, len(numbers) - stop)[len(numbers) - stop]
            return np.flatnonzero(numbers >= last)
        last = np.partition(numbers, stop - 1)[stop - 1]
        return np.flatnonzero(numbers <= last)
    if pa.types.is_nested(column.type):
        return np.arange(len(column))
    key = ("0", "descending", "at_end") if descending else ("0", "ascending", "at_start")
    chosen = pc.select_k_unstable(pa.table([column], names=["0"]), k=stop, sort_keys=[key])
    last = column[chosen[len(chosen) - 1].as_py()]
    if not last.is_valid:
        return np.arange(len(column))
    within = (pc.greater_equal if descending else pc.less_equal)(column, last)
    # Nulls come first in ascending order and last in descending order.
    return np.flatnonzero(pc.fill_null(within, not descending).to_numpy(zero_copy_only=False))


def ranked_candidates(
    space: AnySpace, slots: Slots, scores: Scores, *, descending: bool, stop: int | None = None
) -> Rows:
    """Candidates from best to worst, at most ``stop``; equal scores by id.

    NaN comes last.
    """
    keys = -scores if descending else scores
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    if stop is not None and stop < len(order):
        # Include all candidates that tie with the last one: ids decide among them.
        end = int(np.searchsorted(ordered, ordered[stop - 1], side="right")) if stop else 0
        if stop and np.isnan(ordered[stop - 1]):
            end = len(order)
        order, ordered = order[:end], ordered[:end]
    same = np.zeros(len(order), np.bool_)
    if len(order) > 1:
        same[1:] = (ordered[1:] == ordered[:-1]) | (np.isnan(ordered[1:]) & np.isnan(ordered[:-1]))
        same[:-1] |= same[1:]
    if same.any():
        tied = np.flatnonzero(same)
        ids = space.strings(slots[order[tied]])
        by_id = _sorted([pa.array(ordered[tied]).fill_null(0), ids], [False, False])
        if np.isnan(ordered[tied]).any():
            keyed = np.where(np.isnan(ordered[tied]), np.inf, ordered[tied])
            by_id = _sorted(
                [pa.array(keyed), pa.array(np.isnan(ordered[tied])), ids], [False, False, False]
            )
        order[tied] = order[tied][by_id]
    return order[:stop]


# --- ranking --------------------------------------------------------------------------------------


_MANY_SHARE = 32
"""More rows than this share of a type's nodes are deduplicated by a mask instead of a sort."""


@dataclass(frozen=True, slots=True)
class RankedRows:
    """The rows whose candidate has a rank, and those ranks, starting with 0."""

    frame: BindingTable
    ranks: npt.NDArray[np.int64]
    scores: pa.Array
    """The score by which each row was ordered."""


@dataclass(frozen=True, slots=True)
class _Ranking:
    """Candidates from best to worst."""

    slots: Slots
    scores: Scores


def rank(
    session: Session,
    frame: BindingTable,
    score: ex.RankExpression,
    best_first: bool,
    stop: int | None,
) -> RankedRows:
    """Rank the nodes bound to the scored variable; at most ``stop`` candidates are wanted."""
    bound = frame.bound[score.variable]
    space_size = len(session.tables.space(score.type_name))
    places = _ascending_places(session, score.type_name, bound)
    candidates = _candidates(bound, space_size) if places is None else bound
    ranker = _Ranker(session, places)
    if isinstance(score, ex.Rrf):
        ranking = ranker.fused(score, candidates, best_first)
    else:
        ranking = ranker.single(score, candidates, best_first, stop)
    if places is not None:
        nodes = session.tables.nodes(score.type_name)
        assert isinstance(nodes, CachedNodes)
        at = np.searchsorted(places, nodes.rows(ranking.slots))
        return RankedRows(
            frame.take(at), np.arange(len(at)), pa.array(ranking.scores, pa.float64())
        )
    by_slot = np.argsort(ranking.slots)
    ordered = ranking.slots[by_slot]
    if not len(ordered):
        empty = np.zeros(0, np.int64)
        return RankedRows(frame.take(empty), empty, pa.array([], pa.float64()))
    # Few nodes have a rank and there are many rows: a mask selects the ranked rows.
    is_ranked = np.zeros(space_size + 1, np.bool_)
    is_ranked[ordered] = True
    kept = np.flatnonzero(is_ranked[bound])
    ranks = by_slot[np.searchsorted(ordered, bound[kept])]
    return RankedRows(frame.take(kept), ranks, pa.array(ranking.scores[ranks]))


def _ascending_places(session: Session, type_name: str, bound: Slots) -> Positions | None:
    """The row positions of the bound nodes if they ascend, as after a scan; None otherwise.

    Ascending positions are distinct, so a node is found among them by binary search.
    """
    nodes = session.tables.nodes(type_name)
    if not isinstance(nodes, CachedNodes):
        return None
    places = nodes.rows(bound)
    if len(places) and int(places[0]) >= 0 and (places[1:] > places[:-1]).all():
        return places
    return None


def _candidates(bound: Slots, space_size: int) -> Slots:
    """The distinct nodes bound in any row."""
    if len(bound) * _MANY_SHARE > space_size:
        is_bound = np.zeros(space_size + 1, np.bool_)
        is_bound[bound] = True  # `ABSENT` sets the extra last entry
        return np.flatnonzero(is_bound[:-1]).astype(np.int32)
    return sorted_distinct(bound[bound >= 0])


@dataclass(frozen=True, slots=True)
class _Ranker:
    session: Session
    places: Positions | None
    """Row positions of the candidates in a cached table, if known."""

    def single(
        self,
        score: ex.Nearest | ex.Bm25,
        candidates: Slots,
        best_first: bool,
        stop: int | None,
    ) -> _Ranking:
        """Rank by one search call."""
        slots, scores = self._scored(score, candidates, stop if best_first else None)
        space = self.session.tables.space(score.type_name)
        best_is_high = isinstance(score, ex.Bm25)
        order = ranked_candidates(
            space, slots, scores, descending=best_is_high == best_first, stop=stop
        )
        return _Ranking(slots[order], scores[order])

    def fused(self, score: ex.Rrf, candidates: Slots, best_first: bool) -> _Ranking:
        """Rank by both calls of a fusion."""
        run = self.session.run
        k = self.session.search.fusion_constant(score)
        depth = run.row_count(run.plan.limit)
        arms = []
        for arm in (score.first, score.second):
            stop = depth if isinstance(arm, ex.Nearest) else None
            arms.append(self.single(arm, candidates, True, stop).slots)
        slots, scores = fused(arms[0], arms[1], k)
        if not best_first:
            order = np.argsort(scores, kind="stable")
            slots, scores = slots[order], scores[order]
        return _Ranking(slots, scores)

    def _scored(
        self, score: ex.Nearest | ex.Bm25, candidates: Slots, stop: int | None
    ) -> tuple[Slots, Scores]:
        """The candidates with a score; with ``stop`` the best of them, and ties, suffice."""
        search = self.session.search
        if isinstance(score, ex.Nearest):
            nodes = self.session.tables.nodes(score.type_name)
            if stop is not None and isinstance(nodes, CachedNodes):
                column = vector_column(nodes, score.property, score.dimension)
                places = nodes.rows(candidates) if self.places is None else self.places
                rows, distances = column.best(search.query_vector(score), stop, candidates=places)
                return nodes.slots[rows], distances
            distances, valid = search.distances(score, candidates)
            return candidates[valid], distances[valid]
        query = search.sought(score.query)
        nodes = search.whole(score.type_name)
        if query is None:
            return candidates[:0], np.zeros(0)
        index = text_column(nodes, score.property)
        mask = np.zeros(nodes.view.layout.size, np.bool_)
        mask[nodes.rows(candidates)] = True
        live = nodes.view.live
        if stop is not None:
            rows, scores = index.best(query, stop, live, mask)
        else:
            rows, scores = index.scores(query, live, mask)
        return nodes.slots[rows], scores


# --- reciprocal rank fusion -----------------------------------------------------------------------


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
