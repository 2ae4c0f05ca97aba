"""Searches by joins: the nodes within reach of each source, shortest paths and cheapest paths."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from omnigraph.engines.local.cheapest import refused_weight
from omnigraph.engines.spark.bindings import COST, EDGES, NODES
from omnigraph.errors import LimitExceeded
from omnigraph.query import plan

if TYPE_CHECKING:
    from omnigraph.engines.spark.match import PatternMatcher

LEVELS_AT_ONCE = 2
"""A search of more levels persists each of them and stops at an empty one; Spark would otherwise
compute the first levels again for every later one."""

LEVELS_BETWEEN_CHECKPOINTS = 4
"""The plan of a level contains all levels before it, so every few levels the result is checkpointed
without its lineage."""

LEVELS_MAX = 500
"""Each level is a job. A hop without an upper bound ends where nothing new is found, or here."""

Pairs = tuple[DataFrame, str, str]
"""A frame of linked nodes, and the names of both ends."""

PathPairs = tuple[DataFrame, str, str, str | None]
"""`Pairs` with the name of the id of an edge between them, where paths need it."""

WeightedPairs = tuple[DataFrame, str, str, str, str]
"""A frame of edges that have a weight: names of both ends, id and weight."""

PathFrame = tuple[DataFrame, str, str, dict[str, str]]
"""A frame of sources and destinations, the names of both, and those of the parts of paths."""


def reached(step: plan.Expand, sources: DataFrame, pairs: Pairs, matcher: PatternMatcher) -> Pairs:
    """The destinations of every source, each pair once.

    A node is reported at its shortest distance only. A stored self-loop reports its node one hop
    after the node was reached, without searching it again; that matters only at the lower bound,
    since nodes farther away are reported anyway.
    """
    frame, start, end, _ = _search(step, sources, (*pairs, None), matcher, with_paths=False)
    return frame, start, end


def paths(
    step: plan.Expand, sources: DataFrame, pairs: PathPairs, matcher: PatternMatcher
) -> PathFrame:
    """The destinations of every source, each with one shortest path, or with all of them.

    The one path is the one with the smallest node ids, compared from the target backwards.
    """
    return _search(step, sources, pairs, matcher, with_paths=True)


def _search(
    step: plan.Expand,
    sources: DataFrame,
    pairs: PathPairs,
    matcher: PatternMatcher,
    *,
    with_paths: bool,
) -> PathFrame:
    names = matcher.tables.names
    edges, near, far, edge = pairs
    start, node = names.new(), names.new()
    (source,) = sources.columns
    level = sources.select(F.col(source).alias(start), F.col(source).alias(node))
    parts: dict[str, str] = {}
    grown: list[Column] = []
    if with_paths:
        way = parts[NODES] = names.new()
        level = level.withColumn(way, F.array(F.col(node)))
        grown.append(F.concat(F.col(way), F.array(F.col(far))).alias(way))
    if edge is not None:
        ids = parts[EDGES] = names.new()
        level = level.withColumn(ids, F.array().cast("array<string>"))
        grown.append(F.concat(F.col(ids), F.array(F.col(edge))).alias(ids))
    same_type = matcher.tables.ids.repeats(step)
    emitted: list[DataFrame] = []
    if step.minimum == 0:
        stays = matcher.tables.ids.stays(step, F.col(node))
        emitted.append(level.where(F.lit(False) if stays is None else stays))
    seen = level.select(start, node) if same_type else None
    for hop in range(1, step.maximum + 1):
        found = level.join(edges, F.col(node) == F.col(near))
        is_loop = F.col(far) == F.col(node)
        if same_type and hop == step.minimum:
            loops = found.where(is_loop)
            emitted.append(loops.select(start, F.col(far).alias(node), *grown))
        if same_type:
            found = found.where(~is_loop)
        if with_paths and step.path_kind == "all":
            fresh = found.select(start, far, *grown)
        elif with_paths:
            # Of all paths of this length, the one that arrives from the smallest id.
            best = F.min_by(F.struct(*grown), F.col(node)).alias("best")
            fresh = found.groupBy(start, far).agg(best).select(start, far, "best.*")
        else:
            fresh = found.select(start, far).distinct()
        fresh = fresh.withColumnRenamed(far, node)
        if seen is not None:
            known_start, known_node = names.new(), names.new()
            known = seen.select(F.col(start).alias(known_start), F.col(node).alias(known_node))
            met = (F.col(start) == F.col(known_start)) & (F.col(node) == F.col(known_node))
            fresh = fresh.join(known, met, "left_anti")
        if hop < step.maximum and step.maximum > LEVELS_AT_ONCE:
            fresh = matcher.jobs.kept_frame(fresh)
            if not matcher.jobs.run(fresh.count):
                break
            if hop == LEVELS_MAX:
                raise _too_many_levels(step)
        if hop >= step.minimum:
            emitted.append(fresh)
        if seen is not None:
            seen = seen.union(fresh.select(start, node))
        level = fresh
        if hop % LEVELS_BETWEEN_CHECKPOINTS == 0 and hop < step.maximum:
            level = matcher.jobs.checkpointed(level)
            seen = None if seen is None else matcher.jobs.checkpointed(seen)
            if hop >= step.minimum:
                emitted[-1] = level
    if not emitted:
        emitted = [level.where(F.lit(False))]
    result = emitted[0]
    for more in emitted[1:]:
        result = result.union(more.select(*result.columns))
    return result, start, node, parts


def cheapest(
    step: plan.Expand, sources: DataFrame, weighted: WeightedPairs, matcher: PatternMatcher
) -> PathFrame:
    """The destinations of every source, each with its cheapest path.

    Of several cheapest paths, one with the fewest edges is returned, and of those the one with the
    smallest node ids, compared from the target backwards.
    """
    names, jobs = matcher.tables.names, matcher.jobs
    edges, near, far, edge, weight = weighted
    start, node = names.new(), names.new()
    parts = {NODES: names.new(), EDGES: names.new(), COST: names.new()}
    way, ids, cost = parts.values()
    (source,) = sources.columns
    level = sources.select(
        F.col(source).alias(start),
        F.col(source).alias(node),
        F.array(F.col(source)).alias(way),
        F.array().cast("array<string>").alias(ids),
        F.lit(0.0).alias(cost),
    )
    same_type = matcher.tables.ids.repeats(step)
    is_loop = F.col(far) == F.col(node)
    grown = (
        F.concat(F.col(way), F.array(F.col(far))).alias(way),
        F.concat(F.col(ids), F.array(F.col(edge))).alias(ids),
        (F.col(cost) + F.col(weight)).alias(cost),
    )

    def best_of(found: DataFrame) -> DataFrame:
        """The best path of each pair; of parallel edges the cheapest, then the smallest id."""
        steps = found.select(start, F.col(far).alias(node), *grown)
        chosen = F.min_by(F.struct(way, ids, cost), _rank(way, ids, cost)).alias("best")
        return steps.groupBy(start, node).agg(chosen).select(start, node, "best.*")

    best = level
    found = level.join(edges, F.col(node) == F.col(near))
    emitted = []
    if same_type and step.minimum == 1:
        emitted.append(best_of(found.where(is_loop)))
    if not same_type:
        _refuse_weights(step, matcher, found, edge, weight)
        return best_of(found), start, node, parts
    for hop in range(1, LEVELS_MAX + 2):
        _refuse_weights(step, matcher, found, edge, weight)
        offered = best_of(found.where(~is_loop))
        known = {name: names.new() for name in (start, node, *parts.values())}
        before = best.select(*(F.col(name).alias(other) for name, other in known.items()))
        same = (F.col(start) == F.col(known[start])) & (F.col(node) == F.col(known[node]))
        is_new = F.col(known[start]).isNull()
        ranks = _rank(way, ids, cost), _rank(known[way], known[ids], known[cost])
        level = (
            offered.join(before, same, "left_outer")
            .where(is_new | (ranks[0] < ranks[1]))
            .select(*offered.columns)
        )
        level = jobs.checkpointed(level) if hop % LEVELS_BETWEEN_CHECKPOINTS == 0 else level
        level = jobs.kept_frame(level)
        if not jobs.run(level.count):
            break
        if hop > LEVELS_MAX:
            raise _too_many_levels(step)
        changed = level.select(F.col(start).alias(known[start]), F.col(node).alias(known[node]))
        best = best.join(changed, same, "left_anti").union(level.select(*best.columns))
        if hop % LEVELS_BETWEEN_CHECKPOINTS == 0:
            best = jobs.checkpointed(best)
        found = level.join(edges, F.col(node) == F.col(near))
    is_source = F.col(start) == F.col(node)
    if step.minimum == 0:
        stays = matcher.tables.ids.stays(step, F.col(node))
        best = best.where(~is_source | (F.lit(False) if stays is None else stays))
    else:
        best = best.where(~is_source)
    for loops in emitted:
        best = best.union(loops.select(*best.columns))
    return best, start, node, parts


def _rank(way: str, ids: str, cost: str) -> Column:
    """The sort key of paths between two nodes: cost, number of edges, and ids from the target."""
    return F.struct(F.col(cost), F.size(way), F.reverse(F.col(way)), F.reverse(F.col(ids)))


def _refuse_weights(
    step: plan.Expand, matcher: PatternMatcher, found: DataFrame, edge: str, weight: str
) -> None:
    """Raise if an edge that the search reads has a weight that is negative or not finite."""
    assert step.weight is not None
    number = F.col(weight)
    is_wrong = (number < 0) | F.isnan(number) | (number == float("inf"))
    rows = matcher.jobs.run(found.where(is_wrong).select(edge, weight).limit(1).collect)
    if rows:
        weighed = step.weight
        what = step.edge_type if isinstance(weighed, plan.ComputedWeight) else weighed
        raise refused_weight(what, rows[0][0], rows[0][1])


def _too_many_levels(step: plan.Expand) -> LimitExceeded:
    """The error of a search that finds new nodes at every level."""
    return LimitExceeded(
        f"number of steps of a hop over {step.edge_type} on Spark",
        LEVELS_MAX,
        LEVELS_MAX + 1,
        hint="give the hop a smaller upper bound, or run the query with the local engine",
    )
