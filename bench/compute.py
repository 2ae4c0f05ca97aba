"""Graph algorithms: PageRank on Spark beside a loop over frames, and in process.

The loop is the one that a user of Spark writes: edges with numbers for ids, cached and partitioned
by their source, a join and a sum a round, and the lineage cut in each. Ours begins with the tables
of a graph, whose ids are texts. Ranks are compared before a figure is given.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.durability import durability
from bench.figure import Figure, Target, Versus
from bench.progress import note
from bench.scale import Scale
from omnigraph.graph import Graph, SparkOptions, init

SEED = 13
LOOP_RATIO = Target(3, "at most")
SCHEMA = "node Page { url: String @key }  edge Links: Page -> Page"
EDGES_PER_NODE = 10


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is computed."""

    edges: int
    iterations: int


FULL = Sizes(10_000_000, 20)
SMALL = Sizes(300_000, 10)


def run(scale: Scale) -> Iterator[Figure]:
    """Measure with a session of its own."""
    from omnigraph.pipeline.spark.session import SessionSettings, build_session

    note("starting Spark")
    conf = {"spark.driver.memory": "3g"}
    spark = build_session(SessionSettings.of(os.environ, master="local[2,4]", conf=conf))
    try:
        yield from measure_all(SMALL if scale == Scale.SMALL else FULL, spark)
    finally:
        spark.stop()


def measure_all(sizes: Sizes, spark: Any) -> Iterator[Figure]:
    """Every figure of the suite, at some sizes."""
    with TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory, durability("process"):
        place = Path(directory)
        note(f"a graph with {sizes.edges:,} edges")
        graph = _graph(place, sizes.edges)
        ranked = partial(graph.compute.pagerank, iterations=sizes.iterations, tolerance=0.0)
        options = SparkOptions(session=spark)
        _warm(spark, options, place)
        note("on Spark")
        ours, found = _timed(lambda: ranked(engine="spark", spark=options).to_arrow())
        note("a loop over frames")
        theirs, expected = _timed(lambda: _loop(spark, place / "edges.parquet", sizes.iterations))
        note("in process")
        local, here = _timed(lambda: ranked().to_arrow())
        again, _ = _timed(lambda: ranked().to_arrow())
        _compare(found, expected, here)
        named = f"PageRank, {sizes.iterations} rounds, {sizes.edges:,} edges"
        by_hand = Versus("frames by hand", theirs)
        yield Figure(f"{named}, on Spark", ours, "s", LOOP_RATIO, versus=by_hand)
        yield Figure(f"{named}, in process", local, "s", note=f"again: {again:.2f} s")


def _timed(action: Any) -> tuple[float, Any]:
    began = perf_counter()
    found = action()
    return perf_counter() - began, found


def _warm(spark: Any, options: SparkOptions, place: Path) -> None:
    """Let workers import what they need: neither side pays for that."""
    small = _graph(place / "small", 1_000)
    small.compute.pagerank(iterations=2, engine="spark", spark=options)
    _loop(spark, place / "small" / "edges.parquet", 2)


def _graph(place: Path, edges: int) -> Graph:
    place.mkdir(exist_ok=True)
    nodes = max(10, edges // EDGES_PER_NODE)
    chance = np.random.default_rng(SEED)
    # Every page has a link: the loop knows no others.
    source = np.append(np.arange(nodes), chance.integers(0, nodes, edges - nodes))
    # Few pages have most of the links.
    target = (nodes * chance.random(edges) ** 3).astype(np.int64)
    pq.write_table(pa.table({"src": source, "dst": target}), place / "edges.parquet")
    urls = pa.array([f"page-{number}" for number in range(nodes)])
    graph = init(place / "graph.omni", SCHEMA)
    links = pa.table({"src": urls.take(pa.array(source)), "dst": urls.take(pa.array(target))})
    graph.load(frames={"Page": pa.table({"url": urls}), "Links": links}, mode="append")
    return graph


def _loop(spark: Any, path: Path, iterations: int) -> pa.Table:
    """PageRank over frames."""
    from pyspark.sql import functions as F  # noqa: N812 - as everywhere

    edges = spark.read.parquet(str(path)).repartition("src").cache()
    ends = edges.select(F.col("src").alias("id")).union(edges.select(F.col("dst").alias("id")))
    degrees = edges.groupBy("src").agg(F.count("*").alias("degree"))
    pages = ends.distinct().join(degrees, F.col("id") == F.col("src"), "left").drop("src").cache()
    count = pages.count()
    ranks = pages.select("id", F.lit(1.0 / count).alias("rank"))
    for _ in range(iterations):
        sharing = ranks.join(pages, "id").cache()
        stuck = sharing.where(F.col("degree").isNull()).agg(F.sum("rank")).collect()[0][0] or 0.0
        shares = sharing.select(
            F.col("id").alias("src"), (F.col("rank") / F.col("degree")).alias("share")
        )
        flowing = edges.join(shares, "src").groupBy("dst").agg(F.sum("share").alias("share"))
        base = 0.15 / count + 0.85 * stuck / count
        joined = pages.join(flowing, F.col("id") == F.col("dst"), "left")
        rank = F.lit(base) + 0.85 * F.coalesce(F.col("share"), F.lit(0.0))
        ranks = joined.select("id", rank.alias("rank")).localCheckpoint()
        sharing.unpersist()
    found = ranks.toArrow()
    for kept in (edges, pages):
        kept.unpersist()
    return found


def _compare(on_spark: pa.Table, by_hand: pa.Table, in_process: pa.Table) -> None:
    """Raise if ranks differ."""
    expected = {f"page-{row['id']}": row["rank"] for row in by_hand.to_pylist()}
    for found in (on_spark, in_process):
        ranks = dict(zip(found["id"].to_pylist(), found["rank"].to_pylist(), strict=True))
        assert ranks.keys() == expected.keys(), "other pages"
        for page, rank in expected.items():
            assert abs(ranks[page] - rank) < 1e-9, f"{page}: {ranks[page]}, not {rank}"
