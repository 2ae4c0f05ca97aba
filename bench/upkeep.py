"""Upkeep: a graph that grew by single-row commits, optimized, beside one that was loaded at once.

Both hold the same notes, each with a text of a hundred words and a vector of 384 numbers, all of
them indexed. What is compared is measured in turns, so that a busy moment meets both alike.
"""

from __future__ import annotations

import gc
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.measure import best_seconds, durability
from bench.record import Figure, Target
from omnigraph.graph import Graph, init, open_graph

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
QUICK = Sizes(150, 3, 20, 64)


def run(*, quick: bool = False) -> list[Figure]:
    """Measure everything about upkeep."""
    return measure_all(QUICK if quick else FULL)


def measure_all(sizes: Sizes) -> list[Figure]:
    """Every figure of the suite, at some sizes."""
    notes = _notes(sizes.commits + sizes.inserts)
    known, new = notes[: sizes.commits], notes[sizes.commits :]
    with TemporaryDirectory() as directory, durability("process"):
        place = Path(directory)
        grown = _grown(place / "grown", known)
        loaded = _loaded(place / "loaded", known)
        worn = _reads(sizes, known, [grown, loaded])
        began = time.perf_counter()
        receipt = grown.optimize()
        optimized = time.perf_counter() - began
        fragments = receipt.fragments_removed
        figures = [
            Figure("optimize", optimized * 1e3, "ms", None, f"{fragments} fragments rewritten"),
            *_compared(sizes, "worn", worn, None),
            *_compared(sizes, "optimized", _reads(sizes, known, [grown, loaded]), AS_FRESH),
            *_commits(sizes, new, [grown, loaded]),
        ]
        grown.optimize()
        figures += _idle(grown)
        figures += _bytes(grown, _loaded(place / "whole", notes))
    return figures


# --- graphs ---------------------------------------------------------------------------------------


def _notes(count: int) -> list[Note]:
    chance = random.Random(7)
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
    for number, note in enumerate(notes):
        if number == INDEXED_AT:
            graph.ensure_indices()
        graph.mutate(ADD, note)
    return graph


def _loaded(uri: Path, notes: Sequence[Note]) -> Graph:
    graph = init(uri, SCHEMA)
    lines = [json.dumps({"type": "Note", "data": note}) for note in notes]
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
    asked = random.Random(8).choices(known, k=sizes.points)
    scans = _in_turns(sizes.scans, *(partial(_scan, graph, len(known)) for graph in graphs), of=min)
    points = _in_turns(sizes.points, *(partial(_point, graph, asked) for graph in graphs))
    return [Reads(*each) for each in zip(scans, points, strict=True)]


def _scan(graph: Graph, rows: int, _: int) -> None:
    assert sum(block.count(b"\n") for block in graph.export()) == rows


def _point(graph: Graph, asked: Sequence[Note], n: int) -> None:
    (row,) = graph.query(POINT, {"slug": asked[n]["slug"]}).to_pylist()
    assert row["n.text"] == asked[n]["text"]


def _compared(
    sizes: Sizes, state: str, both: Sequence[Reads], target: Target | None
) -> list[Figure]:
    grown, loaded = both
    named = f"after {sizes.commits:,} commits, {state}"
    return [
        Figure(f"scan {named}", grown.scan * 1e3, "ms"),
        Figure(f"scan, {state} to loaded at once", grown.scan / loaded.scan, "×", target),
        Figure(f"point lookup {named}", grown.point * 1e3, "ms"),
        Figure(f"point lookup, {state} to loaded at once", grown.point / loaded.point, "×", target),
    ]


def _commits(sizes: Sizes, new: Sequence[Note], graphs: Sequence[Graph]) -> list[Figure]:
    inserts = [partial(_insert, graph, new) for graph in graphs]
    grown, loaded = _in_turns(sizes.inserts, *inserts)
    named = f"after {sizes.commits:,} commits, optimized"
    return [
        Figure(f"commit {named}", grown * 1e3, "ms"),
        Figure("commit, optimized to loaded at once", grown / loaded, "×", AS_FRESH),
    ]


def _insert(graph: Graph, new: Sequence[Note], n: int) -> None:
    graph.mutate(ADD, new[n])


# --- nothing to do, and little to keep ------------------------------------------------------------


def _idle(graph: Graph) -> list[Figure]:
    def idle() -> None:
        assert graph.optimize().graph_commit_id is None

    nothing, opened = best_seconds(idle), best_seconds(lambda: open_graph(graph.uri))
    return [
        Figure("open", opened * 1e3, "ms"),
        Figure("optimize with nothing to do", nothing * 1e3, "ms"),
        Figure("optimize with nothing to do, to open", nothing / opened, "×", IDLE_RATIO),
    ]


def _bytes(grown: Graph, loaded: Graph) -> list[Figure]:
    whole = _size(grown)
    began = time.perf_counter()
    grown.cleanup(keep=KEEP, confirm=True)
    cleaned = time.perf_counter() - began
    kept, fresh = _size(grown), _size(loaded)
    return [
        Figure("bytes before cleanup", whole / 1e6, "MB"),
        Figure(f"cleanup --keep {KEEP}", cleaned * 1e3, "ms"),
        Figure("bytes after cleanup", kept / 1e6, "MB"),
        Figure("bytes after cleanup to loaded at once", kept / fresh, "×", BYTES_RATIO),
    ]


def _size(graph: Graph) -> int:
    return sum(file.stat().st_size for file in Path(graph.uri).rglob("*") if file.is_file())


# --- taking turns ---------------------------------------------------------------------------------


def _in_turns(
    rounds: int,
    *actions: Callable[[int], object],
    of: Callable[[list[float]], float] = statistics.median,
) -> list[float]:
    """The seconds of each action, one call of each after the other in every round."""
    taken: list[list[float]] = [[] for _ in actions]
    gc.collect()
    for n in range(rounds):
        for seconds, action in zip(taken, actions, strict=True):
            began = time.perf_counter()
            action(n)
            seconds.append(time.perf_counter() - began)
    return [of(seconds) for seconds in taken]
