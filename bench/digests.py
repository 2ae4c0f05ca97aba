"""What recording digests of new files costs: an insert and a bulk load, with and without.

Both sides take turns, and what is compared is the time of processors, in all threads: on a busy
machine it varies less than time on the clock.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from bench.durability import durability
from bench.figure import Figure, Target, Versus
from bench.measure import in_turns
from bench.scale import Scale
from omnigraph.graph import Graph, init
from omnigraph.storage import digests

SEED = None
DIGESTS_RATIO = Target(1.05, "at most")

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key }
"""
INSERT = "query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    inserts: int
    loads: int
    loaded: int
    """Rows of each load."""


FULL = Sizes(400, 15, 500_000)
SMALL = Sizes(200, 9, 100_000)


def run(scale: Scale) -> Iterator[Figure]:
    """Measure an insert and a load."""
    with TemporaryDirectory() as place, durability("process"):
        yield from measure_on(Path(place), SMALL if scale == Scale.SMALL else FULL)


def measure_on(place: Path, sizes: Sizes) -> Iterator[Figure]:
    """Both figures, with the graphs `with` and `without` in a folder."""
    recorded, plain, probe = (init(place / name, SCHEMA) for name in ("with", "without", "probe"))
    lines = "\n".join(
        f'{{"type": "City", "data": {{"name": "c{n}"}}}}' for n in range(sizes.loaded)
    )

    def insert(graph: Graph, n: int) -> None:
        graph.mutate(INSERT, {"name": f"new {n}", "age": n})

    def load(graph: Graph) -> None:
        graph.load(data=lines, mode="overwrite", engine="local")

    insert(probe, 0)  # what is imported and compiled once
    ours, theirs = in_turns(
        sizes.inserts,
        lambda n: insert(recorded, n),
        undigested(lambda n: insert(plain, n)),
        clock=time.process_time,
    )
    yield _figure("insert with digests", ours, theirs, "processor time, one row")
    ours, theirs = in_turns(
        sizes.loads,
        lambda n: load(recorded),
        undigested(lambda n: load(plain)),
        of=min,
        clock=time.process_time,
    )
    yield _figure("load with digests", ours, theirs, f"processor time, {sizes.loaded:,} rows")


def _figure(name: str, ours: float, theirs: float, note: str) -> Figure:
    against = Versus("without digests", theirs * 1e3)
    return Figure(name, ours * 1e3, "ms", DIGESTS_RATIO, note, against)


def undigested(action: Callable[[int], None]) -> Callable[[int], None]:
    """The same without digests: no file is read again, and none is listed."""
    nothing: dict[str, Any] = {
        "digest_files": lambda files: {},
        "read_listing": lambda root, subject: {},
        "update_listing": lambda root, subject, new: None,
    }

    def run(n: int) -> None:
        with patch.multiple(digests, **nothing):
            action(n)

    return run
