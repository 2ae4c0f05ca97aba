"""Schema inference: a CSV file of flights, beside Arrow reading the same file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pyarrow as pa
import pyarrow.csv as pac

from bench.figure import Figure, Target, Versus
from bench.measure import in_turns
from bench.scale import Scale
from omnigraph.inference import infer_schema

SEED = 7
SMALL, FULL = 600_000, 2_300_000
"""Rows; of 2.3 million, the file has 200 MB."""
ROUNDS = 3
AIRPORTS = 3_376

AGAINST_ARROW = Target(3, "at most")


def run(scale: Scale) -> Iterator[Figure]:
    """Measure both on the same file, in turns; the best round of each counts."""
    rows = SMALL if scale == Scale.SMALL else FULL
    with TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory:
        path = Path(directory) / "flights.csv"
        pac.write_csv(flights(rows), path)
        ours, theirs = in_turns(
            ROUNDS, lambda _: infer_schema(path), lambda _: pac.read_csv(path), of=min
        )
        megabytes = path.stat().st_size / 1e6
        yield Figure(
            "infer a CSV file",
            ours,
            "s",
            AGAINST_ARROW,
            f"{megabytes:.0f} MB, {rows:,} rows, all of them read",
            versus=Versus("Arrow reads it", theirs),
        )


def flights(rows: int) -> pa.Table:
    """Ten columns of the kinds that inference tells apart."""
    random = np.random.default_rng(SEED)
    codes = np.array([f"A{number:04}" for number in range(AIRPORTS)])
    return pa.table(
        {
            "flight_id": np.arange(rows),
            "origin": codes[random.integers(0, AIRPORTS, rows)],
            "destination": codes[random.integers(0, AIRPORTS, rows)],
            "day": pa.array(random.integers(18_000, 20_000, rows, np.int32), pa.date32()),
            "departed": pa.array(
                random.integers(1_500_000_000, 1_700_000_000, rows) * 1_000, pa.timestamp("ms")
            ),
            "delay": random.integers(-20, 300, rows),
            "distance": np.round(random.random(rows) * 3_000, 2),
            "carrier": np.array(["AA", "DL", "UA", "WN"])[random.integers(0, 4, rows)],
            "cancelled": random.random(rows) < 0.02,
            "tail": np.char.add("N", random.integers(0, 900_000, rows).astype(str)),
        }
    )
