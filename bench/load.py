"""Bulk loading: against what Spark needs to copy the same files, against Kuzu, and against Lance.

Every measurement is a process of its own. Sessions are started before the clock; what that costs
is a figure of its own.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lance
import pyarrow.parquet as pq

from bench.contest import note
from bench.record import Figure, Target
from bench.trips import places, write_parquet, write_records

ROOT = Path(__file__).parent.parent

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
QUICK = Sizes(50_000, 150_000, None)


def run(*, quick: bool = False) -> list[Figure]:
    """All figures, in the order of the table."""
    sizes = QUICK if quick else FULL
    figures: list[Figure] = []
    with TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory:
        files = _Files(Path(directory), sizes)
        for measure in (_sessions, _parquet, _records, _upserts, _growth):
            note((measure.__doc__ or "").rstrip("."))
            figures += measure(files)
    return figures


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
    first, *others = (_child("start_session")["seconds"] for _ in range(4))
    yield Figure("first session start", first, "s", Target(8, "at most"))
    yield Figure("session start, class archive cached", min(others), "s", Target(5, "at most"))


def _parquet(files: _Files) -> Iterator[Figure]:
    """Loading Parquet."""
    source = str(files.parquet)
    copied = _best(
        lambda: _child("rewrite", source=source, target=str(files.output()), form="parquet")
    )
    loaded = _best(lambda: _load(files, source, "spark", "parquet"))
    kuzu = _child("copy_with_kuzu", source=source, target=str(files.output()))
    yield Figure("Spark copies the Parquet", copied["seconds"], "s")
    yield Figure("load from Parquet", loaded["seconds"], "s", note=_stages(loaded))
    yield Figure("load to copy", loaded["seconds"] / copied["seconds"], "×", Target(1.8, "at most"))
    yield Figure("Kuzu copies the Parquet in", kuzu["seconds"], "s")
    yield Figure("Kuzu to load", kuzu["seconds"] / loaded["seconds"], "×", Target(2, "at least"))


def _records(files: _Files) -> Iterator[Figure]:
    """Loading graph records."""
    source = str(files.records)
    copied = _best(
        lambda: _child("rewrite", source=source, target=str(files.output()), form="json")
    )
    loaded = _best(lambda: _load(files, source, "spark", "records"))
    local = _load(files, source, "local", "records")
    part = str(files.records / "place-0.jsonl")
    small = {
        engine: _load(files, part, engine, "records", on_workers=True)
        for engine in ("local", "spark")
    }
    yield Figure("Spark copies the JSON lines", copied["seconds"], "s")
    yield Figure("load from JSON lines", loaded["seconds"], "s", note=_stages(loaded))
    yield Figure(
        "load to copy, JSON", loaded["seconds"] / copied["seconds"], "×", Target(1.5, "at most")
    )
    yield Figure("the same in process", local["seconds"], "s", note=f"{local['peak_mb']:,.0f} MB")
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
    _load(files, str(files.parquet), "spark", "parquet", graph)
    table = files.output()
    lance.write_dataset(pq.read_table(files.parquet / "place"), table)
    bare = _child("merge_with_lance", source=str(source), table=str(table))["seconds"]
    yield Figure("bare Lance upsert", bare, "s", note=f"{count:,} of {files.sizes.places:,} rows")
    ways = (("", False, Target(1.5, "at most")), (", distributed", True, None))
    for name, distributed, target in ways:
        copy = files.output()
        shutil.copytree(graph, copy)
        merged = _child("upsert", distributed, graph=str(copy), source=str(source), engine="spark")
        yield Figure(f"upsert{name}", merged["seconds"], "s", note=_stages(merged))
        ratio = merged["seconds"] / bare
        yield Figure(f"upsert{name}, to bare Lance", ratio, "×", target)


def _growth(files: _Files) -> Iterator[Figure]:
    """Ten times as much with a small heap."""
    if files.sizes.growth is None:
        return
    large = files.sizes.growth
    small = large // 10
    runs = {}
    for count in (small, large):
        made = files.made(f"grown-{count}", _grown(count))
        runs[count] = _load(files, str(made), "spark", "parquet", on_workers=True)
        shutil.rmtree(made)
    yield Figure("memory of the long load", runs[large]["peak_mb"], "MB", Target(4096, "at most"))
    ratio = runs[large]["seconds"] / runs[small]["seconds"]
    yield Figure(f"{large:,} to {small:,} edges", ratio, "×", Target(11, "at most"))


def _grown(trips: int) -> Callable[[Path], None]:
    return lambda path: write_parquet(path, 100_000, trips)


def _load(
    files: _Files,
    source: str,
    engine: str,
    form: str,
    graph: Path | None = None,
    *,
    on_workers: bool = False,
) -> dict[str, Any]:
    path = str(graph or files.output())
    return _child("load", on_workers, graph=path, source=source, engine=engine, form=form)


def _best(measure: Callable[[], dict[str, Any]], rounds: int = 2) -> dict[str, Any]:
    return min((measure() for _ in range(rounds)), key=lambda result: float(result["seconds"]))


def _stages(result: dict[str, Any]) -> str:
    return ", ".join(f"{name} {seconds} s" for name, seconds in result["stages"].items())


def _child(verb: str, on_workers: bool = False, **arguments: Any) -> dict[str, Any]:
    """What a verb of `load_child` answers in a process of its own.

    ``on_workers`` has workers do what the driver would do by itself, because it is so little.
    """
    environment = {**os.environ, "OMNIGRAPH_DURABILITY": "process"}
    if on_workers:
        environment["OMNIGRAPH_SPARK_THRESHOLD_BYTES"] = "0"
    done = subprocess.run(
        [sys.executable, "-m", "bench.load_child", verb],
        input=json.dumps(arguments),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


if __name__ == "__main__":
    from bench.__main__ import main

    sys.exit(main(["load", *sys.argv[1:]]))
