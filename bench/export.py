"""Export: the edges of a graph as Parquet, beside a bare copy from Lance to Parquet.

Both write the same rows with the same writer. What the product adds is the pinned snapshot, checks
and the description of the directory. They take turns.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.durability import durability
from bench.figure import Figure, Target, Versus
from bench.measure import in_turns
from bench.progress import note
from bench.scale import Scale
from omnigraph.graph import Graph, init
from omnigraph.model.exports import GROUP_ROWS
from omnigraph.model.receipts import EXPORT_FORMATS, ExportFormat

SEED = 11
COPY_RATIO = Target(1.5, "at most")
NODES = 50_000

SCHEMA = """
node Place { code: String @key }
edge Trip: Place -> Place { km: F64  day: Date?  seats: I32  note: String? }
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is exported."""

    edges: int
    rounds: int


FULL = Sizes(3_000_000, 5)
SMALL = Sizes(500_000, 5)


def run(scale: Scale) -> Iterator[Figure]:
    """All figures, in the order of the table."""
    return measure_all(SMALL if scale == Scale.SMALL else FULL)


def measure_all(sizes: Sizes) -> Iterator[Figure]:
    """Every figure of the suite, at some sizes."""
    with TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory, durability("process"):
        place = Path(directory)
        note(f"a graph with {sizes.edges:,} edges")
        graph = _graph(place / "trips.omni", sizes.edges)
        exports = {each: partial(_exported, graph, place, each) for each in EXPORT_FORMATS}
        copied = partial(_copied, graph, place)
        ours, theirs = in_turns(sizes.rounds, exports.pop("parquet"), copied, of=min)
        named = f"{sizes.edges:,} edges as"
        copy = Versus("bare Lance", theirs)
        yield Figure(f"{named} parquet", ours, "s", COPY_RATIO, versus=copy)
        for format, seconds in zip(exports, in_turns(1, *exports.values()), strict=True):
            yield Figure(f"{named} {format}", seconds, "s")


def _graph(path: Path, edges: int) -> Graph:
    codes = [f"place-{number:06}" for number in range(NODES)]
    chance = np.random.default_rng(SEED)
    ends = np.array(codes)
    trips = pa.table(
        {
            "src": ends[chance.integers(0, NODES, edges)],
            "dst": ends[chance.integers(0, NODES, edges)],
            "km": chance.uniform(1, 9_000, edges),
            "day": pa.array(chance.integers(0, 20_000, edges), pa.int32()).cast(pa.date32()),
            "seats": pa.array(chance.integers(50, 500, edges), pa.int32()),
            "note": [None if number % 3 else f"trip {number}" for number in range(edges)],
        }
    )
    graph = init(path, SCHEMA)
    graph.load(frames={"Place": pa.table({"code": codes}), "Trip": trips}, mode="append")
    return graph


def _exported(graph: Graph, place: Path, format: ExportFormat, turn: int) -> None:
    graph.export_to(place / "export", format=format, types=["Trip"])
    shutil.rmtree(place / "export")


def _copied(graph: Graph, place: Path, turn: int) -> None:
    """The copy that anybody writes who knows Lance, in row groups of the same size."""
    import lance

    (entry,) = (each for each in graph.snapshot().datasets if each.type_name == "Trip")
    table = lance.dataset(f"{graph.uri}/{entry.dataset_path}")
    held: list[pa.RecordBatch] = []
    rows = 0
    with pq.ParquetWriter(place / "copy.parquet", table.schema) as writer:
        for batch in table.to_batches():
            held.append(batch)
            rows += batch.num_rows
            if rows >= GROUP_ROWS:
                writer.write_table(pa.Table.from_batches(held), row_group_size=rows)
                held, rows = [], 0
        if held:
            writer.write_table(pa.Table.from_batches(held), row_group_size=rows)
    (place / "copy.parquet").unlink()
