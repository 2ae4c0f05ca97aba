"""Upkeep: a graph that grew by single-row commits, optimized, beside one that was loaded at once.

Both hold the same notes, each with a text of a hundred words and a vector of 384 numbers, all of
them indexed. What is compared is measured in turns, so that a busy moment meets both alike.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.durability import durability
from bench.figure import Figure, Target, Versus
from bench.measure import best_seconds, in_turns
from bench.progress import note
from bench.scale import Scale
from omnigraph.graph import Graph, init, open_graph

SEED = 7
AS_FRESH = Target(1.2, "at most")
IDLE_RATIO = Target(5, "at most")
BYTES_RATIO = Target(1.5, "at most")

SCHEMA = """
node Note {
    slug: String @key
    size: I32 @index
    text: String @index
    leaf: Vector(384) @index
}
"""
ADD = """
query add($slug: String, $size: I32, $text: String, $leaf: Vector(384)) {
    insert Note { slug: $slug, size: $size, text: $text, leaf: $leaf }
}
"""
POINT = "query point($slug: String) { match { $n: Note { slug: $slug } } return { $n.text } }"

FRESH = "loaded at once"
INDEXED_AT = 100
"""The grown graph got its indexes when it had so many notes."""
KEEP = 10

Note = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    commits: int
    """Each adds one note."""
    scans: int
    points: int
    inserts: int
    """Enough to see every phase of the upkeep that follows commits."""


FULL = Sizes(2_000, 15, 300, 128)
SMALL = Sizes(1_000, 9, 150, 128)


def run(scale: Scale) -> Iterator[Figure]:
    """Measure everything about upkeep."""
    return measure_all(SMALL if scale == Scale.SMALL else FULL)


def measure_all(sizes: Sizes) -> Iterator[Figure]:
    """Every figure of the suite, at some sizes."""
    notes = _notes(sizes.commits + sizes.inserts)
    known, new = notes[: sizes.commits], notes[sizes.commits :]
    with TemporaryDirectory() as directory, durability("process"):
        place = Path(directory)
        note(f"a graph grown by {sizes.commits:,} commits, and one loaded at once")
        grown = _grown(place / "grown", known)
        loaded = _loaded(place / "loaded", known)
        worn = _reads(sizes, known, [grown, loaded])
        began = time.perf_counter()
        receipt = grown.optimize()
        optimized = time.perf_counter() - began
        rewritten = f"{receipt.fragments_removed} fragments rewritten"
        yield Figure("optimize", optimized * 1e3, "ms", None, rewritten)
        yield from _compared("worn", worn, None)
        yield from _compared("optimized", _reads(sizes, known, [grown, loaded]), AS_FRESH)
        yield from _commits(sizes, new, [grown, loaded])
        grown.optimize()
        yield from _idle(grown)
        yield from _bytes(grown, _loaded(place / "whole", notes))


# --- graphs ---------------------------------------------------------------------------------------


def _notes(count: int) -> list[Note]:
    chance = random.Random(SEED)
    letters = "abcdefghijklmnopqrstuvwxyz"
    words = ["".join(chance.choices(letters, k=7)) for _ in range(5_000)]
    return [
        {
            "slug": f"{chance.choice(words)}-{number}",
            "size": chance.randrange(1_000),
            "text": " ".join(chance.choices(words, k=100)),
            "leaf": [round(chance.gauss(0, 1), 6) for _ in range(384)],
        }
        for number in range(count)
    ]


def _grown(uri: Path, notes: Sequence[Note]) -> Graph:
    graph = init(uri, SCHEMA)
    for number, each in enumerate(notes):
        if number == INDEXED_AT:
            graph.ensure_indices()
        graph.mutate(ADD, each)
    return graph


def _loaded(uri: Path, notes: Sequence[Note]) -> Graph:
    graph = init(uri, SCHEMA)
    lines = [json.dumps({"type": "Note", "data": each}) for each in notes]
    graph.load(data="\n".join(lines), mode="append")
    graph.ensure_indices()
    return graph


# --- within so many times a fresh graph -----------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Reads:
    """Seconds of one graph."""

    scan: float
    """The best: what others do on the machine can only make it slower."""
    point: float
    """The median: each is another one."""


def _reads(sizes: Sizes, known: Sequence[Note], graphs: Sequence[Graph]) -> list[Reads]:
    """A scan is an export: it reads every row from its file, whatever was read before."""
    asked = random.Random(SEED + 1).choices(known, k=sizes.points)
    scans = in_turns(sizes.scans, *(partial(_scan, graph, len(known)) for graph in graphs), of=min)
    points = in_turns(sizes.points, *(partial(_point, graph, asked) for graph in graphs))
    return [Reads(*each) for each in zip(scans, points, strict=True)]


def _scan(graph: Graph, rows: int, _: int) -> None:
    assert sum(block.count(b"\n") for block in graph.export()) == rows


def _point(graph: Graph, asked: Sequence[Note], n: int) -> None:
    (row,) = graph.query(POINT, {"slug": asked[n]["slug"]}).to_pylist()
    assert row["n.text"] == asked[n]["text"]


def _compared(state: str, both: Sequence[Reads], target: Target | None) -> list[Figure]:
    grown, loaded = both
    scan, point = (Versus(FRESH, each * 1e3) for each in (loaded.scan, loaded.point))
    return [
        Figure(f"scan, {state}", grown.scan * 1e3, "ms", target, versus=scan),
        Figure(f"point lookup, {state}", grown.point * 1e3, "ms", target, versus=point),
    ]


def _commits(sizes: Sizes, new: Sequence[Note], graphs: Sequence[Graph]) -> list[Figure]:
    inserts = [partial(_insert, graph, new) for graph in graphs]
    grown, loaded = in_turns(sizes.inserts, *inserts)
    versus = Versus(FRESH, loaded * 1e3)
    return [Figure("commit, optimized", grown * 1e3, "ms", AS_FRESH, versus=versus)]


def _insert(graph: Graph, new: Sequence[Note], n: int) -> None:
    graph.mutate(ADD, new[n])


# --- nothing to do, and little to keep ------------------------------------------------------------


def _idle(graph: Graph) -> list[Figure]:
    def idle() -> None:
        assert graph.optimize().graph_commit_id is None

    nothing, opened = best_seconds(idle), best_seconds(lambda: open_graph(graph.uri))
    versus = Versus("opening the graph", opened * 1e3)
    name = "optimize with nothing to do"
    return [Figure(name, nothing * 1e3, "ms", IDLE_RATIO, versus=versus)]


def _bytes(grown: Graph, loaded: Graph) -> list[Figure]:
    whole = _size(grown)
    began = time.perf_counter()
    grown.cleanup(keep=KEEP, confirm=True)
    cleaned = time.perf_counter() - began
    fresh = Versus(FRESH, _size(loaded) / 1e6)
    return [
        Figure("bytes before cleanup", whole / 1e6, "MB"),
        Figure(f"cleanup --keep {KEEP}", cleaned * 1e3, "ms"),
        Figure("bytes after cleanup", _size(grown) / 1e6, "MB", BYTES_RATIO, versus=fresh),
    ]


def _size(graph: Graph) -> int:
    return sum(file.stat().st_size for file in Path(graph.uri).rglob("*") if file.is_file())
