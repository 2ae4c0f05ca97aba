"""Graph algorithms: in process beside libraries, and on Spark beside a loop over frames.

A library gets its graph made; ours begins with the graph, whose edges the engine has sorted before,
and ends with a table of types, ids and values.

The loop is the one that a user of Spark writes: edges with numbers for ids, cached and partitioned
by their source, a join and a sum a round, and the lineage cut in each. Ours begins with the tables
of a graph, whose ids are texts. Ranks are compared before a figure is given.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from bench.durability import durability
from bench.figure import Figure, Target, Versus
from bench.measure import in_turns
from bench.progress import note
from bench.scale import Scale
from omnigraph.graph import Graph, SparkOptions, init

SEED = 13
LOOP_RATIO = Target(3, "at most")
LIBRARY_RATIO = Target(1.5, "at most")
ROUNDS = 5
SAMPLES = 64
SAMPLED_EDGES = 1_000_000
"""Most edges of the graph that betweenness is measured on."""
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
    """Measure in this process, then with a session of its own."""
    sizes = SMALL if scale == Scale.SMALL else FULL
    yield from in_process(sizes)
    from omnigraph.pipeline.spark.session import SessionSettings, build_session

    note("starting Spark")
    conf = {"spark.driver.memory": "3g"}
    spark = build_session(SessionSettings.of(os.environ, master="local[2,4]", conf=conf))
    try:
        yield from on_spark(sizes, spark)
    finally:
        spark.stop()


def in_process(sizes: Sizes) -> Iterator[Figure]:
    """PageRank beside the fastest of three libraries, and betweenness from a sample of nodes."""
    with TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory, durability("process"):
        place = Path(directory)
        note(f"a graph with {sizes.edges:,} edges")
        graph = _graph(place, sizes.edges)
        ranked = partial(graph.compute.pagerank, iterations=sizes.iterations, tolerance=0.0)
        first, found = _timed(lambda: ranked().to_arrow())
        named = f"PageRank, {sizes.iterations} rounds, {sizes.edges:,} edges"
        yield Figure(f"{named}, the first question", first, "s")
        libraries = _libraries(place / "edges.parquet", sizes.iterations)
        for library, compute in libraries.items():
            _compare_ranks(found, compute(), _EXACT[library])
        ours, *theirs = in_turns(
            ROUNDS,
            lambda _: ranked().to_arrow(),
            *(lambda _, compute=compute: compute() for compute in libraries.values()),
            of=min,
        )
        taken = dict(zip(libraries, theirs, strict=True))
        fastest = min(taken, key=lambda library: taken[library])
        others = ", ".join(f"{library} {seconds:.2f} s" for library, seconds in taken.items())
        by = Versus(fastest, taken[fastest])
        yield Figure(f"{named}, in process", ours, "s", LIBRARY_RATIO, others, by)
    sampled = min(sizes.edges, SAMPLED_EDGES)
    with TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory, durability("process"):
        graph = _graph(Path(directory), sampled)
        graph.compute.degree()
        seconds, _ = _timed(lambda: graph.compute.betweenness(samples=SAMPLES).to_arrow())
        yield Figure(f"betweenness from {SAMPLES} nodes, {sampled:,} edges", seconds, "s")


_EXACT = {"SciPy": 1e-9, "NetworKit": 1e-6, "igraph": 1e-3}
"""How far ranks may be from ours: the last two stop elsewhere, and treat ends their own way."""


def _libraries(path: Path, iterations: int) -> dict[str, Callable[[], npt.NDArray[np.float64]]]:
    """PageRank by each library, on a graph that is made."""
    igraph, networkit, sparse = map(import_module, ("igraph", "networkit", "scipy.sparse"))
    edges = pq.read_table(path)
    source, target = (edges[name].to_numpy() for name in ("src", "dst"))
    nodes = int(source.max()) + 1
    matrix = sparse.csr_array((np.ones(len(source)), (target, source)), shape=(nodes, nodes))
    shares = 1 / np.bincount(source, minlength=nodes)
    listed = networkit.GraphFromCoo(
        (source.astype(np.uint64), target.astype(np.uint64)), n=nodes, directed=True
    )
    whole = igraph.Graph(n=nodes, edges=np.stack([source, target], 1), directed=True)

    def by_scipy() -> npt.NDArray[np.float64]:
        ranks = np.full(nodes, 1 / nodes)
        for _ in range(iterations):
            ranks = 0.15 / nodes + 0.85 * (matrix @ (ranks * shares))
        return ranks

    def by_networkit() -> npt.NDArray[np.float64]:
        search = networkit.centrality.PageRank(listed, damp=0.85, tol=0.0)
        search.maxIterations = iterations
        search.run()
        return np.array(search.scores())

    return {
        "SciPy": by_scipy,
        "NetworKit": by_networkit,
        "igraph": lambda: np.array(whole.pagerank(damping=0.85)),
    }


def _compare_ranks(found: pa.Table, expected: npt.NDArray[np.float64], within: float) -> None:
    """Raise if ranks differ; page `page-7` is the seventh."""
    places = np.array([int(name.as_py()[5:]) for name in found["id"]])
    furthest = float(np.abs(found["rank"].to_numpy() - expected[places]).max())
    assert furthest < within, f"ranks differ by {furthest}"


def on_spark(sizes: Sizes, spark: Any) -> Iterator[Figure]:
    """PageRank beside a loop over frames."""
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
        _compare(found, expected, ranked().to_arrow())
        named = f"PageRank, {sizes.iterations} rounds, {sizes.edges:,} edges"
        by_hand = Versus("frames by hand", theirs)
        yield Figure(f"{named}, on Spark", ours, "s", LOOP_RATIO, versus=by_hand)


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
