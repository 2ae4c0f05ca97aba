"""Ranking: the candidates of a match in the order of their scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from omnigraph.query import expressions as ex
from omnigraph.query.plan import Rank
from tests.support.reference.order import ascending
from tests.support.reference.search import Search
from tests.support.reference.solutions import Entity, Solution, entity


@dataclass(frozen=True)
class Ranked:
    """Where a candidate stands, and why."""

    position: int
    score: float


def ranking(
    rank: Rank, solutions: Sequence[Solution], search: Search, limit: int | None
) -> dict[str, Ranked]:
    """The candidates that the ranking keeps, by id.

    Candidates are the distinct nodes the ranked variable stands for in some solution.
    """
    score = rank.score
    candidates: dict[str, Entity] = {}
    for solution in solutions:
        node = entity(solution, score.variable)
        if node is not None:
            candidates[node["id"]] = node
    if isinstance(score, ex.Rrf):
        scores, order = _fused(score, candidates, search, limit)
    else:
        scores = _scores(score, candidates, search)
        order = _in_order(score, scores)
    if not rank.best_first:
        # The direction is that of the scores; among equal ones the order stays.
        order.sort(key=lambda name: scores[name])
    return {name: Ranked(position, scores[name]) for position, name in enumerate(order)}


def _scores(
    call: ex.Nearest | ex.Bm25, candidates: dict[str, Entity], search: Search
) -> dict[str, float]:
    found: dict[str, float | None] = {}
    for name, node in candidates.items():
        if isinstance(call, ex.Nearest):
            found[name] = search.distance(call, node)
        else:
            found[name] = search.score(call, node)
    return {name: value for name, value in found.items() if value is not None}


def _in_order(call: ex.Nearest | ex.Bm25, scores: dict[str, float]) -> list[str]:
    """Best first, ties by id."""
    sign = 1 if isinstance(call, ex.Nearest) else -1
    return sorted(scores, key=lambda name: (sign * scores[name], ascending(name)))


def _fused(
    call: ex.Rrf, candidates: dict[str, Entity], search: Search, limit: int | None
) -> tuple[dict[str, float], list[str]]:
    arms: list[dict[str, int]] = []
    for arm in (call.first, call.second):
        order = _in_order(arm, _scores(arm, candidates, search))
        if isinstance(arm, ex.Nearest):
            order = order[:limit]
        arms.append({name: number for number, name in enumerate(order, start=1)})
    first, second = arms
    k = search.k(call)
    scores = {
        name: sum(1 / (k + arm[name]) for arm in arms if name in arm)
        for name in first.keys() | second.keys()
    }

    def key(name: str) -> tuple[object, ...]:
        absent = math.inf
        return (
            -scores[name],
            first.get(name, absent),
            second.get(name, absent),
            ascending(name),
        )

    return scores, sorted(scores, key=key)
