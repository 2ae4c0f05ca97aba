"""Queries on Spark: beside frames written by hand, beside the engine in process, and by cores.

The question is a group-by over two hops. Every measurement is a process of its own, with a session
that was started before the clock; within it, the query and the frames take turns. The largest graph
is asked once, within a bound of memory for all processes together. Graphs are made once and kept.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from bench import child, trips
from bench.figure import Figure, Target, Versus
from bench.progress import note
from bench.scale import Scale
from bench.social_files import CACHE, KeptFiles

SEED = trips.SEED
EDGES_PER_NODE = 10
LAYOUT = 1
"""Raised when the generator or the storage of graphs changes: older graphs are then left alone."""
TWO_CORES = "local[2,4]"
MASTERS = {
    "one core": "local[1,4]",
    "two cores": TWO_CORES,
    "two executors": "local-cluster[2,1,2048]",
}
FRAMES_RATIO = Target(1.3, "at most")
FORMS = {"joins": "joins of rows", "counted": "joins of counts"}
"""How the question is asked by hand."""


@dataclass(frozen=True)
class Sizes:
    """How much is asked."""

    edges: int
    """Of the graph that the target is for."""
    steps: tuple[int, ...]
    """Edges of the smaller ones. Only they are asked by joins of rows, ten for each trip."""
    largest: int
    """Of the graph that has to be answered within `MEMORY`."""
    rounds: int


FULL = Sizes(10_000_000, (100_000, 1_000_000), 30_000_000, 2)
SMALL = Sizes(100_000, (10_000,), 300_000, 1)

MEMORY = Target(4096, "at most")
"""Megabytes of the driver, its JVM with the executors, and their Python workers."""


def run(scale: Scale, only: Sequence[str] = ()) -> Iterator[Figure]:
    """All figures in the order of the table, or those of some `PARTS`."""
    unknown = [name for name in only if name not in PARTS]
    if unknown:
        raise ValueError(f"there is no part '{unknown[0]}'; there is {', '.join(PARTS)}")
    for name in only or PARTS:
        yield from PARTS[name](SMALL if scale == Scale.SMALL else FULL)


def _by_size(sizes: Sizes) -> Iterator[Figure]:
    """The query beside frames by hand and beside the engine in process, the target first."""
    small = kept_graph(sizes.steps[0])
    for edges in (sizes.edges, *sizes.steps):
        graph = kept_graph(edges)
        note(f"{edges:,} edges on Spark")
        is_largest = edges == sizes.edges
        by_hand = ["counted"] if is_largest else ["joins", "counted"]
        spark = ask_spark(graph, small, TWO_CORES, sizes.rounds, by_hand)
        yield beside_frames(spark, edges, FRAMES_RATIO if is_largest else None)
        note(f"{edges:,} edges in process")
        local = child.ask("bench.spark_child", "ask_locally", graph=graph, rounds=sizes.rounds)
        yield _beside_local(spark, local, edges)


def beside_frames(found: dict[str, float], edges: int, target: Target | None) -> Figure:
    """The query beside the better form by hand."""
    forms = {name: seconds for name, seconds in found.items() if name != "query"}
    shown = ", ".join(f"{FORMS[name]} {seconds:.1f} s" for name, seconds in forms.items())
    return Figure(
        f"2-hop group-by on Spark, {edges:,} edges",
        found["query"],
        "s",
        target,
        f"by hand: {shown}",
        Versus("frames by hand", min(forms.values())),
    )


def _beside_local(spark: dict[str, float], local: dict[str, float], edges: int) -> Figure:
    """Where Spark overtakes the engine in process, if it does."""
    return Figure(
        f"the same beside the engine in process, {edges:,} edges",
        spark["query"],
        "s",
        note=f"in process, tables in memory: {local['seconds']:.3f} s",
        versus=Versus("first answer in process", local["first"]),
    )


def _by_cores(sizes: Sizes) -> Iterator[Figure]:
    """More cores and more executors beside one core."""
    small, graph = kept_graph(sizes.steps[0]), kept_graph(sizes.edges)
    found = {}
    for name, master in MASTERS.items():
        note(f"{sizes.edges:,} edges on {name}")
        found[name] = ask_spark(graph, small, master, sizes.rounds)["query"]
    yield from scaling(found, sizes.edges)


def scaling(seconds: dict[str, float], edges: int) -> Iterator[Figure]:
    """Each configuration beside one core."""
    for name in ("two cores", "two executors"):
        versus = Versus("one core", seconds["one core"], "theirs to ours")
        yield Figure(f"the same on {name}, {edges:,} edges", seconds[name], "s", versus=versus)


def _within_memory(sizes: Sizes) -> Iterator[Figure]:
    """The largest graph, on Spark in little memory and in process as it likes."""
    note(f"{sizes.largest:,} edges in little memory")
    graph = kept_graph(sizes.largest)
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


PARTS = {"frames": _by_size, "cores": _by_cores, "memory": _within_memory}
"""What can be measured alone: each takes some minutes at full scale."""


def kept_graph(edges: int) -> str:
    """The graph of a size, made when it is first asked for."""
    kept = KeptFiles(CACHE / f"trips-seed{SEED}-v{LAYOUT}")
    return str(kept.made(f"{edges}.omni", partial(_make_graph, edges)))


def _make_graph(edges: int, graph: Path) -> None:
    note(f"making a graph of {edges:,} edges")
    with TemporaryDirectory(dir=os.environ.get("TMPDIR")) as source:
        trips.write_parquet(Path(source), max(edges // EDGES_PER_NODE, 10), edges)
        child.ask("bench.spark_child", "build", source=source, graph=str(graph))


def ask_spark(
    graph: str, small: str, master: str, rounds: int, by_hand: Sequence[str] = ()
) -> dict[str, float]:
    """The best seconds of the query, and of some of the `FORMS` by hand, on a fresh session."""
    return child.ask(
        "bench.spark_child",
        "ask_spark",
        graph=graph,
        small=small,
        master=master,
        rounds=rounds,
        by_hand=list(by_hand),
    )
