"""Bulk loading: against what Spark needs to copy the same files, against Kuzu, and against Lance.

Every measurement is a process of its own. Sessions are started before the clock; what that costs
is a figure of its own.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow.parquet as pq

from bench import child, trips
from bench.figure import Figure, Target, Versus
from bench.progress import note
from bench.scale import Scale
from bench.trips import connections, items, places, write_parquet, write_records

SEED = trips.SEED
UPSERT_SHARE = 5
"""One place in so many is upserted; half of them are new."""


@dataclass(frozen=True)
class Sizes:
    """How much is loaded."""

    places: int
    trips: int
    growth: int | None
    """Trips of the long load, which has a small heap; None leaves it out."""


FULL = Sizes(1_000_000, 3_000_000, 10_000_000)
SMALL = Sizes(300_000, 900_000, None)


def run(scale: Scale) -> Iterator[Figure]:
    """All figures, in the order of the table."""
    sizes = SMALL if scale == Scale.SMALL else FULL
    with TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory:
        files = _Files(Path(directory), sizes)
        for measure in (
            _sessions,
            _parquet,
            _records,
            _upserts,
            _some_columns,
            _keyed_edges,
            _growth,
        ):
            note((measure.__doc__ or "").rstrip("."))
            yield from measure(files)


class _Files:
    """Inputs, made when they are first asked for, and folders for what is written."""

    def __init__(self, directory: Path, sizes: Sizes) -> None:
        self.directory = directory
        self.sizes = sizes
        self._outputs = 0

    def made(self, name: str, make: Callable[[Path], object]) -> Path:
        """An input."""
        path = self.directory / name
        if not path.exists():
            note(f"  making {name}")
            make(path)
        return path

    @property
    def parquet(self) -> Path:
        """Both tables as Parquet."""
        return self.made(
            "parquet", lambda path: write_parquet(path, self.sizes.places, self.sizes.trips)
        )

    @property
    def records(self) -> Path:
        """Both tables as graph records."""
        return self.made("records", lambda path: write_records(self.parquet, path))

    def output(self) -> Path:
        """A path nothing lies at."""
        self._outputs += 1
        return self.directory / f"output-{self._outputs}"


def _sessions(files: _Files) -> Iterator[Figure]:
    """Starting a session."""
    started = _best(lambda: _child("start_session"), rounds=3)
    yield Figure(
        "session start",
        started["seconds"],
        "s",
        Target(8, "at most"),
        f"session {started['session_seconds']:.1f} s, then until its workers are there "
        f"{started['workers_seconds']:.1f} s",
    )


def _parquet(files: _Files) -> Iterator[Figure]:
    """Loading Parquet."""
    source = str(files.parquet)
    copied = _best(
        lambda: _child("rewrite", source=source, target=str(files.output()), form="parquet")
    )
    kuzu = _best(lambda: _child("copy_with_kuzu", source=source, target=str(files.output())))
    spark = _best(lambda: _load(files, source, "spark", "parquet"))
    loaded = _best(lambda: _load(files, source, "auto", "parquet"))
    yield Figure(
        "load from Parquet on workers of Spark",
        spark["seconds"],
        "s",
        Target(1.8, "at most"),
        _stages(spark),
        Versus("Spark → Parquet", copied["seconds"]),
    )
    against_kuzu = Versus("Kuzu", kuzu["seconds"], "theirs to ours")
    at_least_twice = Target(2, "at least")
    yield Figure(
        "the same, beside Kuzu", spark["seconds"], "s", at_least_twice, versus=against_kuzu
    )
    yield Figure(
        "load from Parquet",
        loaded["seconds"],
        "s",
        at_least_twice,
        f"by threads, as `auto` has it: {_stages(loaded)}; {loaded['peak_mb']:,.0f} MB",
        against_kuzu,
    )


def _records(files: _Files) -> Iterator[Figure]:
    """Loading graph records."""
    source = str(files.records)
    copied = _best(
        lambda: _child("rewrite", source=source, target=str(files.output()), form="json")
    )
    loaded = _best(lambda: _load(files, source, "spark", "records"))
    local = _load(files, source, "local", "records")
    part = str(files.records / "place-0.jsonl")
    small = {engine: _load(files, part, engine, "records") for engine in ("local", "spark")}
    yield Figure(
        "load from JSON lines",
        loaded["seconds"],
        "s",
        Target(1.5, "at most"),
        _stages(loaded),
        Versus("Spark → Parquet", copied["seconds"]),
    )
    yield Figure(
        "the same by the local engine", local["seconds"], "s", note=f"{local['peak_mb']:,.0f} MB"
    )
    rows = f"{small['local']['rows']:,} rows"
    yield Figure("a part of it in process", small["local"]["seconds"], "s", note=rows)
    yield Figure("the same part with Spark", small["spark"]["seconds"], "s", note=rows)


def _upserts(files: _Files) -> Iterator[Figure]:
    """Upserting places."""
    count = files.sizes.places // UPSERT_SHARE
    # Half of them exist already, the other half is new.
    first = files.sizes.places - count // 2
    source = files.made(
        "upserts.parquet", lambda path: pq.write_table(places(first, count, seed=9), path)
    )
    graph = files.output()
    _load(files, str(files.parquet), "auto", "parquet", graph)
    bare = {
        keeps_row_ids: _best(
            partial(
                _child,
                "merge_with_lance",
                source=str(source),
                rows=str(files.parquet / "place"),
                table=str(files.directory / f"bare-{keeps_row_ids}"),
                keeps_row_ids=keeps_row_ids,
            ),
            rounds=3,
        )["seconds"]
        for keeps_row_ids in (True, False)
    }

    def upsert(engine: str) -> dict[str, Any]:
        copy = files.output()
        shutil.copytree(graph, copy)
        return _child("upsert", graph=str(copy), source=str(source), engine=engine)

    rows = f"{count:,} into {files.sizes.places:,}"
    here = _best(lambda: upsert("auto"), rounds=3)
    there = _best(lambda: upsert("spark"))
    versus = Versus("bare Lance", bare[True])
    told = f"{rows}, row ids kept by both; {_stages(here)}"
    yield Figure("upsert", here["seconds"], "s", Target(1.5, "at most"), told, versus)
    told = "which forgets row ids, and with them who changed what"
    plain = Versus("bare Lance", bare[False])
    yield Figure("upsert, to a plain table", here["seconds"], "s", None, told, plain)
    yield Figure("upsert on workers", there["seconds"], "s", None, _stages(there), versus)


def _some_columns(files: _Files) -> Iterator[Figure]:
    """Merging two of ten columns."""
    size = files.sizes.places
    count = size // UPSERT_SHARE
    rows = files.made("items.parquet", lambda path: pq.write_table(items(0, size), path))
    changed = items(size // 2, count, seed=9)
    graph = files.output()
    _child("make_stock", graph=str(graph), source=str(rows))

    def merge(*columns: str) -> dict[str, Any]:
        name = f"items-{len(columns)}.parquet"
        source = files.made(name, lambda path: pq.write_table(changed.select(columns), path))
        copy = files.output()
        shutil.copytree(graph, copy)
        return _child("merge_stock", graph=str(copy), source=str(source), engine="auto")

    whole = _best(lambda: merge(*changed.column_names), rounds=3)
    part = _best(lambda: merge("code", "title"), rounds=3)
    yield Figure(
        "merge of two of ten columns",
        part["seconds"],
        "s",
        Target(1.6, "at most"),
        f"{count:,} into {size:,}, {part['kept']:,} kept the others; {_stages(part)}",
        Versus("all columns", whole["seconds"]),
    )


def _keyed_edges(files: _Files) -> Iterator[Figure]:
    """Upserting edges by their key."""
    size = 2 * files.sizes.places
    count = size // 4
    graph = files.output()
    _child("make_lines", graph=str(graph), count=size)
    for kind, rows in connections(size // 3, count, seed=9).items():
        pq.write_table(rows, files.directory / f"{kind}.parquet")

    def merge(kind: str) -> dict[str, Any]:
        copy = files.output()
        shutil.copytree(graph, copy)
        source = str(files.directory / f"{kind}.parquet")
        return _child("merge_lines", graph=str(copy), kind=kind, source=source)

    nodes, edges = (_best(partial(merge, kind), rounds=3) for kind in ("Leg", "Line"))
    yield Figure(
        "upsert of edges by their key",
        edges["seconds"],
        "s",
        Target(2, "at most"),
        f"{count:,} into {size:,}; {_stages(edges)}",
        Versus("nodes of the same rows", nodes["seconds"]),
    )


def _growth(files: _Files) -> Iterator[Figure]:
    """Ten times as much with a small heap."""
    if files.sizes.growth is None:
        return
    large = files.sizes.growth
    small = large // 10
    runs = {}
    for count in (small, large):
        made = files.made(f"grown-{count}", _grown(count))
        runs[count] = _load(files, str(made), "spark", "parquet")
        shutil.rmtree(made)
    yield Figure("memory of the long load", runs[large]["peak_mb"], "MB", Target(4096, "at most"))
    versus = Versus(f"{small:,} edges", runs[small]["seconds"])
    ten_times = Target(11, "at most")
    yield Figure(f"load of {large:,} edges", runs[large]["seconds"], "s", ten_times, versus=versus)


def _grown(trips: int) -> Callable[[Path], None]:
    return lambda path: write_parquet(path, 100_000, trips)


def _load(
    files: _Files,
    source: str,
    engine: str,
    form: str,
    graph: Path | None = None,
) -> dict[str, Any]:
    path = str(graph or files.output())
    return _child("load", graph=path, source=source, engine=engine, form=form)


def _best(measure: Callable[[], dict[str, Any]], rounds: int = 2) -> dict[str, Any]:
    return min((measure() for _ in range(rounds)), key=lambda result: float(result["seconds"]))


def _stages(result: dict[str, Any]) -> str:
    return ", ".join(f"{name} {seconds} s" for name, seconds in result["stages"].items())


def _child(
    verb: str, environment: Mapping[str, str] | None = None, **arguments: Any
) -> dict[str, Any]:
    """What a verb of `load_child` answers in a process of its own."""
    settings = {"OMNIGRAPH_DURABILITY": "process", **(environment or {})}
    return child.ask("bench.load_child", verb, settings, **arguments)
