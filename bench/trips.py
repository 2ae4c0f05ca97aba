"""Made-up data for the load benchmark: places and trips between them, as Parquet and JSON lines."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.parquet as pq

SEED = 3
FILES = 4
"""Each table is written as so many files, as a pipeline would leave them."""

FIRST_DAY = dt.date(2015, 1, 1)
DAYS = 4_000
KINDS = ["bridge", "farm", "harbour", "mill", "school", "station", "tower", "well"]

SCHEMA = """
node Place {
    code: String @key
    title: String
    kind: enum(bridge, farm, harbour, mill, school, station, tower, well)
    height: I32
    opened: Date
    @range(height, 0..9000)
}

edge Trip: Place -> Place { day: Date  riders: I32  note: String? }
"""

STOCK_SCHEMA = """
node Item {
    code: String @key
    title: String?  maker: String?  colour: String?  shelf: String?
    price: F64?  weight: F64?  count: I32?  sold: I64?  listed: Bool?
}
"""
"""Ten columns, of which merges bring all or two."""

LINES_SCHEMA = """
node Place { code: String @key }
node Leg { code: String @key  start: String  end: String  riders: I32  price: F64 }
edge Line: Place -> Place { riders: I32  price: F64  @key(src, dst) }
"""
"""The same rows as edges with a key and as nodes."""

LINE_PLACES = 200_000

Numbers = npt.NDArray[np.int64]


def places(first: int, count: int, seed: int = SEED) -> pa.Table:
    """Some places, by number."""
    random = np.random.default_rng([seed, first])
    numbers = range(first, first + count)
    kinds = random.integers(0, len(KINDS), count).tolist()
    return pa.table(
        {
            "code": [code(number) for number in numbers],
            "title": [
                f"The {KINDS[kind]} at milestone {n}"
                for n, kind in zip(numbers, kinds, strict=True)
            ],
            "kind": [KINDS[kind] for kind in kinds],
            "height": random.integers(0, 9_000, count).astype(np.int32),
            "opened": _days(random, count),
        }
    )


def items(first: int, count: int, seed: int = SEED) -> pa.Table:
    """Some items of a stock, by number."""
    random = np.random.default_rng([seed, 2, first])

    def texts() -> list[str]:
        return [f"{number:x}" for number in random.integers(0, 1 << 60, count)]

    return pa.table(
        {
            "code": [code(number) for number in range(first, first + count)],
            "title": texts(),
            "maker": texts(),
            "colour": texts(),
            "shelf": [KINDS[kind] for kind in random.integers(0, len(KINDS), count)],
            "price": random.random(count),
            "weight": random.random(count),
            "count": random.integers(0, 1_000, count).astype(np.int32),
            "sold": random.integers(0, 1 << 40, count),
            "listed": random.random(count) < 0.5,
        }
    )


def connections(first: int, count: int, seed: int = SEED) -> dict[str, pa.Table]:
    """Some connections of places, no two alike, as rows of `Line` and of `Leg`."""
    random = np.random.default_rng([seed, 3, first])
    numbers = np.arange(first, first + count)
    starts = [code(number) for number in ((numbers * 7_919) % LINE_PLACES).tolist()]
    ends = [code(number) for number in (numbers // 10 % LINE_PLACES).tolist()]
    values = {
        "riders": random.integers(1, 400, count).astype(np.int32),
        "price": random.random(count),
    }
    codes = [start + end for start, end in zip(starts, ends, strict=True)]
    return {
        "Line": pa.table({"from": starts, "to": ends, **values}),
        "Leg": pa.table({"code": codes, "start": starts, "end": ends, **values}),
    }


def trips(first: int, count: int, place_count: int) -> pa.Table:
    """Some trips between places."""
    random = np.random.default_rng([SEED, 1, first])
    ends = random.integers(0, place_count, (2, count))
    codes = np.array([code(number) for number in range(place_count)], object)
    notes = [None if n % 3 else f"trip {first + n}" for n in range(count)]
    return pa.table(
        {
            "from": pa.array(codes[ends[0]], pa.string()),
            "to": pa.array(codes[ends[1]], pa.string()),
            "day": _days(random, count),
            "riders": random.integers(1, 400, count).astype(np.int32),
            "note": pa.array(notes, pa.string()),
        }
    )


def code(number: int) -> str:
    """The key of a place."""
    return f"P{number:09}"


def write_parquet(directory: Path, place_count: int, trip_count: int) -> None:
    """Both tables as Parquet, several files each."""
    for name, count in (("place", place_count), ("trip", trip_count)):
        folder = directory / name
        folder.mkdir(parents=True)
        share = -(-count // FILES)
        for at, first in enumerate(range(0, count, share)):
            rows = min(share, count - first)
            table = places(first, rows) if name == "place" else trips(first, rows, place_count)
            pq.write_table(table, folder / f"{at}.parquet")


def write_records(parquet: Path, directory: Path) -> None:
    """The same tables as graph records, one JSON object a line."""
    directory.mkdir(parents=True)
    for name in ("place", "trip"):
        for path in sorted((parquet / name).glob("*.parquet")):
            with (directory / f"{name}-{path.stem}.jsonl").open("wb") as file:
                for batch in pq.ParquetFile(path).iter_batches(65_536):
                    file.writelines(_lines(name, batch.to_pylist()))


def _lines(name: str, rows: list[dict[str, object]]) -> Iterator[bytes]:
    for row in rows:
        if name == "place":
            record: dict[str, object] = {"type": "Place", "data": row}
        else:
            ends = {"from": row.pop("from"), "to": row.pop("to")}
            record = {"edge": "Trip", **ends, "data": row}
        yield orjson.dumps(record) + b"\n"


def _days(random: np.random.Generator, count: int) -> pa.Array:
    first = (FIRST_DAY - dt.date(1970, 1, 1)).days
    days = (first + random.integers(0, DAYS, count)).astype(np.int32)
    return pa.array(days).cast(pa.date32())
