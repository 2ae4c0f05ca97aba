"""Pipeline files: a run from three sources against plain loads of the same rows.

One session does everything, warmed up by a run of its own. The plain loads read the same files with
Spark, one type after the other, without a branch, checks or a merge; loads by the paths of the
files are shown beside them.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

import omnigraph as og
from bench.figure import Figure, Target, Versus
from bench.progress import note
from bench.scale import Scale

SEED = 19
SCHEMA = """
node Person { key: String @key  name: String  age: I32? }
node Item { sku: String @key  price: F64? }
edge Knows: Person -> Person { since: Date? }
"""
PIPELINE = """\
version: 1
name: bench
mode: append
sources:
  people: {format: csv, path: people.csv, options: {header: true}, schema: "COLUMNS"}
  items: {format: json, path: items.json, schema: "sku string, price double"}
  knows: {format: parquet, path: knows.parquet}
nodes:
  Person: {from: people, map: {key: key, name: name, age: age}}
  Item: {from: items, map: {sku: sku, price: price}}
edges:
  Knows: {from: knows, src: a, dst: b, map: {since: since}}
checks:
  - {name: people, file: checks.gq, expect: nonempty}
"""
COLUMNS = "key string, name string, age int"
CHECKS = "query people() { match { $p: Person } return { count($p) as n } }"
ROUNDS = 2


@dataclass(frozen=True)
class Sizes:
    """How many rows each source has."""

    people: int
    items: int
    knows: int

    @property
    def rows(self) -> int:
        """All of them."""
        return self.people + self.items + self.knows


SIZES = {
    Scale.SMALL: Sizes(100_000, 100_000, 300_000),
    Scale.FULL: Sizes(1_000_000, 1_000_000, 3_000_000),
}


def run(scale: Scale) -> Iterator[Figure]:
    """All figures, in the order of the table."""
    from omnigraph.pipeline.spark.session import SessionSettings, build_session

    note("starting Spark")
    session = build_session(SessionSettings.of(os.environ))
    try:
        yield from measure_all(SIZES[scale], session)
    finally:
        session.stop()


def measure_all(sizes: Sizes, session: Any) -> Iterator[Figure]:
    """Every figure of the suite, at some sizes."""
    with TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory:
        work = _Work(Path(directory), session)
        work.write(Sizes(100, 100, 300))
        work.frames()
        work.pipeline()
        note(f"{sizes.rows:,} rows")
        work.write(sizes)
        seconds: dict[str, list[float]] = {}
        for _ in range(ROUNDS):
            for way in (work.frames, work.files, work.pipeline):
                seconds.setdefault(way.__name__, []).append(way())
        again = work.again()
    best = {name: min(values) for name, values in seconds.items()}
    name = f"pipeline run of {sizes.rows:,} rows from CSV, JSON and Parquet"
    yield Figure(
        name,
        best["pipeline"],
        "s",
        Target(1.5, "at most"),
        versus=Versus("plain loads of the same frames", best["frames"]),
    )
    yield Figure(name, best["pipeline"], "s", versus=Versus("load of the files", best["files"]))
    yield Figure("the same run again, without a change", again * 1_000, "ms")


class _Work:
    """The sources, and the ways to load them."""

    def __init__(self, folder: Path, session: Any) -> None:
        self._folder = folder
        self._session = session
        self._options = og.SparkOptions(session=session)
        self._graphs = 0
        self._last: og.Pipeline | None = None
        (folder / "checks.gq").write_text(CHECKS)
        (folder / "pipeline.yaml").write_text(PIPELINE.replace("COLUMNS", COLUMNS))

    def write(self, sizes: Sizes) -> None:
        """Make the sources."""
        dice = np.random.default_rng(SEED)
        keys = pa.array([f"p{number:08d}" for number in range(sizes.people)])
        names = pa.array([f"name {number}" for number in range(sizes.people)])
        ages = pa.array(dice.integers(0, 90, sizes.people), pa.int32())
        people = pa.table({"key": keys, "name": names, "age": ages})
        csv.write_csv(people, self._folder / "people.csv")
        ends = [keys.take(pa.array(dice.integers(0, sizes.people, sizes.knows))) for _ in "ab"]
        days = pa.array(dice.integers(0, 20_000, sizes.knows), pa.int32()).cast(pa.date32())
        pq.write_table(
            pa.table({"a": ends[0], "b": ends[1], "since": days}), self._folder / "knows.parquet"
        )
        with (self._folder / "items.json").open("w") as stream:
            for number in range(sizes.items):
                stream.write(json.dumps({"sku": f"s{number:08d}", "price": number / 2}) + "\n")

    def _graph(self) -> og.Graph:
        self._graphs += 1
        return og.init(self._folder / f"{self._graphs}.omni", SCHEMA)

    def frames(self) -> float:
        """Seconds of plain loads, a type at a time, of frames that read the files."""
        graph, read = self._graph(), self._session.read
        knows = read.parquet(str(self._folder / "knows.parquet"))
        frames = {
            "Person": read.csv(str(self._folder / "people.csv"), header=True, schema=COLUMNS),
            "Item": read.json(str(self._folder / "items.json"), "sku string, price double"),
            "Knows": knows.withColumnsRenamed({"a": "from", "b": "to"}),
        }

        def load() -> None:
            for name, frame in frames.items():
                graph.load(frames={name: frame}, mode="append", spark=self._options)

        return _seconds(load)

    def files(self) -> float:
        """Seconds of one load of the files on Spark: its workers read them without the JVM."""
        graph, at = self._graph(), self._folder
        return _seconds(
            lambda: graph.load(
                nodes={"Person": at / "people.csv", "Item": at / "items.json"},
                edges={"Knows": at / "knows.parquet"},
                map={"Knows": {"a": "from", "b": "to"}},
                mode="append",
                engine="spark",
                spark=self._options,
            )
        )

    def pipeline(self) -> float:
        """Seconds of a run: the load on a branch, a check, the merge."""
        pipeline = og.read_pipeline(self._folder / "pipeline.yaml", graph=self._graph())
        self._last = pipeline
        return _seconds(lambda: pipeline.run(spark=self._options))

    def again(self) -> float:
        """Seconds of the same run when nothing changed."""
        pipeline = self._last
        assert pipeline is not None
        return _seconds(lambda: pipeline.run(spark=self._options))


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
