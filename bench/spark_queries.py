"""Queries on Spark: beside frames written by hand, beside the engine in process, and by cores.

The question is a group-by over two hops. Every measurement is a process of its own, with a session
that was started before the clock; within it, the query and the frames take turns. The largest graph
is asked once, within a bound of memory for all processes together.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import child, trips
from bench.figure import Figure, Target, Versus
from bench.progress import note
from bench.scale import Scale

SEED = trips.SEED
EDGES_PER_NODE = 10
MASTERS = {
    "one core": "local[1,4]",
    "two cores": "local[2,4]",
    "two executors": "local-cluster[2,1,2048]",
}


@dataclass(frozen=True)
class Sizes:
    """How much is asked."""

    edges: int
    """Of the graph that all configurations are asked about."""
    steps: tuple[int, ...]
    """Edges of the smaller graphs on which both engines are compared."""
    largest: int
    """Edges of the graph that has to be answered within `MEMORY`."""
    rounds: int


FULL = Sizes(10_000_000, (100_000, 1_000_000), 30_000_000, 2)
SMALL = Sizes(100_000, (10_000,), 300_000, 1)

MEMORY = Target(4096, "at most")
"""Megabytes of the driver, its JVM with the executors, and their Python workers."""


def run(scale: Scale) -> Iterator[Figure]:
    """All figures, in the order of the table."""
    return measure_all(SMALL if scale == Scale.SMALL else FULL)


def measure_all(sizes: Sizes) -> Iterator[Figure]:
    """Every figure of the suite, at some sizes."""
    with TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory:
        place = Path(directory)
        small = _graph(place, sizes.steps[0])
        graph = _graph(place, sizes.edges)
        by_master = {}
        for name, master in MASTERS.items():
            note(f"{sizes.edges:,} edges on {name}")
            by_hand = name == "two cores"
            rounds = sizes.rounds if by_hand else 1
            by_master[name] = _ask_spark(graph, small, master, rounds, by_hand=by_hand)
        yield from _beside_frames(by_master["two cores"], sizes)
        yield from _scaling(by_master)
        yield from _beside_local(place, sizes, by_master["two cores"])
        yield from _within_memory(place, sizes)


def _beside_frames(found: dict[str, Any], sizes: Sizes) -> Iterator[Figure]:
    forms = {"joins": found["joins"], "joins of counts": found["counted"]}
    best = min(forms, key=lambda name: forms[name])
    shown = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in forms.items())
    yield Figure(
        f"2-hop group-by on Spark, {sizes.edges:,} edges",
        found["query"],
        "s",
        Target(1.3, "at most"),
        f"by hand: {shown}",
        Versus("frames by hand", forms[best]),
    )


def _scaling(by_master: dict[str, dict[str, Any]]) -> Iterator[Figure]:
    one = by_master["one core"]["query"]
    for name in ("two cores", "two executors"):
        yield Figure(
            f"the same on {name}",
            by_master[name]["query"],
            "s",
            versus=Versus("one core", one, "theirs to ours"),
        )


def _beside_local(place: Path, sizes: Sizes, largest: dict[str, Any]) -> Iterator[Figure]:
    """Where Spark overtakes the engine in process, if it does."""
    small = _graph(place, sizes.steps[0])
    for edges in (*sizes.steps, sizes.edges):
        note(f"{edges:,} edges on both engines")
        graph = _graph(place, edges)
        spark = largest
        if edges != sizes.edges:
            spark = _ask_spark(graph, small, MASTERS["two cores"], sizes.rounds)
        local = child.ask("bench.spark_child", "ask_locally", graph=graph, rounds=sizes.rounds)
        yield Figure(
            f"the same on both engines, {edges:,} edges",
            spark["query"],
            "s",
            note=f"in process, tables in memory: {local['seconds']:.3f} s",
            versus=Versus("first answer in process", local["first"]),
        )


def _within_memory(place: Path, sizes: Sizes) -> Iterator[Figure]:
    """The largest graph, on Spark in little memory and in process as it likes."""
    note(f"{sizes.largest:,} edges in little memory")
    graph = _graph(place, sizes.largest)
    spark = child.ask("bench.spark_child", "ask_within_memory", graph=graph)
    local = child.ask("bench.spark_child", "ask_locally", graph=graph, rounds=1)
    assert spark["rows"] == local["rows"], f"Spark answers {spark['rows']}"
    yield Figure(
        f"memory of all processes, {sizes.largest:,} edges",
        spark["peak_mb"],
        "MB",
        MEMORY,
        f"in {spark['seconds']:.1f} s; in process first in {local['first']:.1f} s",
    )


def _graph(place: Path, edges: int) -> str:
    """The graph of a size, made when it is first asked for."""
    graph, source = place / f"{edges}.omni", place / f"{edges}"
    if not graph.exists():
        note(f"making a graph of {edges:,} edges")
        trips.write_parquet(source, max(edges // EDGES_PER_NODE, 10), edges)
        child.ask("bench.spark_child", "build", source=str(source), graph=str(graph))
    return str(graph)


def _ask_spark(
    graph: str, small: str, master: str, rounds: int, *, by_hand: bool = False
) -> dict[str, Any]:
    return child.ask(
        "bench.spark_child",
        "ask_spark",
        graph=graph,
        small=small,
        master=master,
        rounds=rounds,
        by_hand=by_hand,
    )
