"""Ordering candidates by a score, before anything else orders rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from omnigraph.engines.local.adjacency import sorted_distinct
from omnigraph.engines.local.frame import Frame
from omnigraph.engines.local.fusion import fused
from omnigraph.engines.local.ids import Slots
from omnigraph.engines.local.nodes import CachedNodes
from omnigraph.engines.local.ordering import Scores, ranked_candidates
from omnigraph.engines.local.rows import Positions
from omnigraph.engines.local.search import text_index, vector_column
from omnigraph.engines.local.session import Session
from omnigraph.query import expressions as ex

_MANY_SHARE = 32
"""More rows than this part of a type's nodes are sorted by marking nodes, not by comparing."""


@dataclass(frozen=True, slots=True)
class RankedRows:
    """The rows whose candidate has a rank, and those ranks, beginning with 0."""

    frame: Frame
    ranks: npt.NDArray[np.int64]
    scores: pa.Array
    """The value each row was ordered by."""


@dataclass(frozen=True, slots=True)
class _Ranking:
    """Candidates from the first to the last."""

    slots: Slots
    scores: Scores


def rank(
    session: Session, frame: Frame, score: ex.RankExpression, best_first: bool, stop: int | None
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
    # Few nodes have a rank and many rows are asked; so the rows are told apart by one byte each.
    is_ranked = np.zeros(space_size + 1, np.bool_)
    is_ranked[ordered] = True
    kept = np.flatnonzero(is_ranked[bound])
    ranks = by_slot[np.searchsorted(ordered, bound[kept])]
    return RankedRows(frame.take(kept), ranks, pa.array(ranking.scores[ranks]))


def _ascending_places(session: Session, type_name: str, bound: Slots) -> Positions | None:
    """Where the nodes bound in each row lie, if each follows the one before: so scans leave them.

    They are then distinct, and a node is found among them without marking all of them.
    """
    nodes = session.tables.nodes(type_name)
    if not isinstance(nodes, CachedNodes):
        return None
    places = nodes.rows(bound)
    if len(places) and int(places[0]) >= 0 and (places[1:] > places[:-1]).all():
        return places
    return None


def _candidates(bound: Slots, space_size: int) -> Slots:
    """The nodes bound in some row, each once."""
    if len(bound) * _MANY_SHARE > space_size:
        is_bound = np.zeros(space_size + 1, np.bool_)
        is_bound[bound] = True  # `ABSENT` marks the last one, which is nobody's
        return np.flatnonzero(is_bound[:-1]).astype(np.int32)
    return sorted_distinct(bound[bound >= 0])


@dataclass(frozen=True, slots=True)
class _Ranker:
    session: Session
    places: Positions | None
    """Where the candidates lie in a table in memory, if that is known."""

    def single(
        self,
        score: ex.Nearest | ex.Bm25,
        candidates: Slots,
        best_first: bool,
        stop: int | None,
    ) -> _Ranking:
        """One arm on its own."""
        slots, scores = self._scored(score, candidates, stop if best_first else None)
        space = self.session.tables.space(score.type_name)
        best_is_high = isinstance(score, ex.Bm25)
        order = ranked_candidates(
            space, slots, scores, descending=best_is_high == best_first, stop=stop
        )
        return _Ranking(slots[order], scores[order])

    def fused(self, score: ex.Rrf, candidates: Slots, best_first: bool) -> _Ranking:
        """Both arms, fused by rank."""
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
        """The candidates that take part, with scores; the best ``stop``, and ties, suffice."""
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
        query = search.text(score.query)
        nodes = search.whole(score.type_name)
        if query is None:
            return candidates[:0], np.zeros(0)
        index = text_index(nodes, score.property)
        mask = np.zeros(nodes.view.layout.size, np.bool_)
        mask[nodes.rows(candidates)] = True
        live = nodes.view.live
        if stop is not None:
            rows, scores = index.best(query, stop, live, mask)
        else:
            rows, scores = index.scores(query, live, mask)
        return nodes.slots[rows], scores
