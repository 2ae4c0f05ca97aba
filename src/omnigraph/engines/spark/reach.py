"""Breadth-first search by joins: the nodes in reach of each source, and shortest paths to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

from omnigraph.errors import LimitExceeded
from omnigraph.query import plan

if TYPE_CHECKING:
    from omnigraph.engines.spark.match import PatternMatcher

LEVELS_AT_ONCE = 2
"""A search of more levels keeps each of them and stops at an empty one; Spark would otherwise
compute the first levels again for every later one."""

LEVELS_BETWEEN_CHECKPOINTS = 4
"""A level is the result of a plan that has all levels before it, so every few levels what was found
is kept without the plan that it came from."""

LEVELS_MAX = 500
"""Each level is a job. A hop without an upper bound ends where nothing new is found, and here."""

Pairs = tuple[DataFrame, str, str]
"""A frame of linked nodes, and the names of both ends."""


def reached(step: plan.Expand, sources: DataFrame, pairs: Pairs, matcher: PatternMatcher) -> Pairs:
    """The destinations of every source, each pair once.

    A node is reported at its shortest distance only. A stored loop reports its node one hop after
    that was reached, without searching it again: that is news only at the lowest bound, since
    nodes farther away than that have been reported themselves.
    """
    frame, start, end, _ = _search(step, sources, pairs, matcher, with_paths=False)
    return frame, start, end


def paths(
    step: plan.Expand, sources: DataFrame, pairs: Pairs, matcher: PatternMatcher
) -> tuple[DataFrame, str, str, str]:
    """The destinations of every source, each with one shortest path.

    Among several it is the one whose nodes, read from the target backwards, have the smallest ids.
    """
    return _search(step, sources, pairs, matcher, with_paths=True)


def _search(
    step: plan.Expand,
    sources: DataFrame,
    pairs: Pairs,
    matcher: PatternMatcher,
    *,
    with_paths: bool,
) -> tuple[DataFrame, str, str, str]:
    names = matcher.tables.names
    edges, near, far = pairs
    start, node, way = names.new(), names.new(), names.new()
    (source,) = sources.columns
    level = sources.select(F.col(source).alias(start), F.col(source).alias(node))
    if with_paths:
        level = level.withColumn(way, F.array(F.col(node)))
    same_type = matcher.tables.ids.repeats(step)
    emitted: list[DataFrame] = []
    if step.minimum == 0:
        stays = matcher.tables.ids.stays(step, F.col(node))
        emitted.append(level.where(F.lit(False) if stays is None else stays))
    seen = level.select(start, node) if same_type else None
    grown = [F.concat(F.col(way), F.array(F.col(far))).alias(way)] if with_paths else []
    for hop in range(1, step.maximum + 1):
        found = level.join(edges, F.col(node) == F.col(near))
        is_loop = F.col(far) == F.col(node)
        if same_type and hop == step.minimum:
            loops = found.where(is_loop)
            emitted.append(loops.select(start, F.col(far).alias(node), *grown))
        if same_type:
            found = found.where(~is_loop)
        if with_paths:
            # Of all ways of this length, the one that arrives from the smallest id.
            best = F.min_by(F.concat(F.col(way), F.array(F.col(far))), F.col(node)).alias(way)
            fresh = found.groupBy(start, far).agg(best)
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
    return result, start, node, way


def _too_many_levels(step: plan.Expand) -> LimitExceeded:
    """The error of a search that found something new at every level."""
    return LimitExceeded(
        f"number of steps of a hop over {step.edge_type} on Spark",
        LEVELS_MAX,
        LEVELS_MAX + 1,
        hint="give the hop a smaller upper bound, or run the query with the local engine",
    )
