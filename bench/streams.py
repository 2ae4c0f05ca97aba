"""Streams into a graph: what a micro-batch costs beside the same load in process.

A source of files gives one of them to each batch. The commit of a batch is everything after Spark's
own job: checking the rows, writing and publishing them, as the receipt has it for both sides.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from bench.durability import durability
from bench.figure import Figure, Target, Versus
from bench.progress import note
from bench.scale import Scale
from omnigraph.graph import init
from omnigraph.model.receipts import LoadMode, LoadReceipt

SEED = 7
COMMIT_RATIO = Target(2, "at most")
SCHEMA = "node Reading { key: String @key  place: String  value: F64 }"
COLUMNS = "key string, place string, value double"
MODES: tuple[LoadMode, ...] = ("append", "merge")


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    rows: int
    """Of each batch."""
    batches: int
    first: int
    """Batches that are not counted: Spark compiles and starts workers with them."""


FULL = Sizes(10_000, 90, 40)
SMALL = Sizes(10_000, 50, 30)


def run(scale: Scale) -> Iterator[Figure]:
    """Measure with a session of its own."""
    from omnigraph.pipeline.spark.session import SessionSettings, build_session

    note("starting Spark")
    spark = build_session(SessionSettings.of(os.environ))
    try:
        yield from measure_all(SMALL if scale == Scale.SMALL else FULL, spark)
    finally:
        spark.stop()


def measure_all(sizes: Sizes, spark: Any) -> Iterator[Figure]:
    """Every figure of the suite, at some sizes."""
    with TemporaryDirectory() as directory, durability("process"):
        place = Path(directory)
        files = _files(place / "input", sizes)
        for mode in MODES:
            note(f"{sizes.batches} batches, {mode}")
            yield from _compared(place / mode, files, mode, sizes, spark)


def _files(folder: Path, sizes: Sizes) -> list[Path]:
    folder.mkdir()
    files = []
    for batch in range(sizes.batches):
        numbers = range(sizes.rows)
        rows = {
            "key": [f"{batch:04}-{number:06}" for number in numbers],
            "place": [f"place {number % 97}" for number in numbers],
            "value": [number / 7 for number in numbers],
        }
        files.append(folder / f"{batch:04}.parquet")
        pq.write_table(pa.table(rows), files[-1])
        os.utime(files[-1], (batch, batch))  # Spark takes the oldest first
    return files


def _compared(
    place: Path, files: list[Path], mode: LoadMode, sizes: Sizes, spark: Any
) -> Iterator[Figure]:
    place.mkdir()
    alone = init(place / "alone.omni", SCHEMA)
    streamed = init(place / "streamed.omni", SCHEMA)
    in_process = [
        alone.load(nodes={"Reading": str(file)}, mode=mode, engine="local") for file in files
    ]
    frame = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    stream = streamed.stream_into(
        frame.parquet(str(files[0].parent)),
        "Reading",
        mode=mode,
        checkpoint=place / "checkpoint",
        available_now=True,
    )
    stream.await_end()
    counted = sizes.batches - sizes.first
    ours, theirs = (_median(list(each)[-counted:]) for each in (stream.receipts, in_process))
    versus = Versus("the same load in process", theirs * 1e3)
    what = f"{mode} of {sizes.rows:,} rows"
    yield Figure(f"{what}, commit of a batch", ours * 1e3, "ms", COMMIT_RATIO, versus=versus)
    whole = [each["durationMs"]["addBatch"] for each in stream.query.recentProgress][-counted:]
    yield Figure(f"{what}, with Spark's job", statistics.median(whole), "ms", versus=versus)


def _median(receipts: list[LoadReceipt]) -> float:
    """Seconds that loads took, from the first stage to the last."""
    return statistics.median(sum(stage.seconds for stage in receipt.stages) for receipt in receipts)
