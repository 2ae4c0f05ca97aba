"""Merge and diff: what they cost must follow the change, not the size or width of the tables.

Every merge is a real three-way one: the target has moved by as much as the source since they went
apart. What is compared is measured in turns.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from bench import child, merge_graph
from bench.durability import durability
from bench.figure import Figure, Target, Versus
from bench.measure import seconds_of
from bench.merge_child import STATUS
from bench.merge_graph import DIMENSIONS, ITEM, MergeGraph, records
from bench.progress import note
from bench.scale import Scale
from omnigraph.branching.spill import MEMORY_VARIABLE
from omnigraph.commit.plan import TableChange
from omnigraph.graph import Graph
from omnigraph.storage.layout import MAIN

SEED = merge_graph.SEED
FLAT = Target(1.5, "at most")
LOAD_RATIO = Target(3, "at most")
SMALL_BUDGET = 32 * 1024 * 1024
WRITTEN_AT_ONCE = 5_000


@dataclass(frozen=True)
class Sizes:
    """How much is merged."""

    small: int
    large: int
    wide: int
    """Rows of the tables with and without vectors."""
    changed: int
    """Rows of the large change."""
    spilled: int
    """Rows with vectors that are merged with a small budget of memory."""
    rounds: int
    large_rounds: int


FULL = Sizes(10_000, 1_000_000, 100_000, 100_000, 60_000, 9, 3)
SMALL = Sizes(10_000, 300_000, 30_000, 30_000, 20_000, 7, 2)


def run(scale: Scale) -> Iterator[Figure]:
    """All figures, in the order of the table."""
    return measure_all(SMALL if scale == Scale.SMALL else FULL)


def measure_all(sizes: Sizes) -> Iterator[Figure]:
    """Every figure of the suite, at some sizes."""
    with TemporaryDirectory(dir=os.environ.get("TMPDIR")) as directory, durability("process"):
        place = Path(directory)
        yield from _size(place, sizes)
        yield from _width(place, sizes)
        yield from _large(place, sizes)


def _size(place: Path, sizes: Sizes) -> Iterator[Figure]:
    """50 rows, in a small and in a large table, with the indexes of the schema and without."""
    for name, target in (("", FLAT), (", no indexes", None)):
        note(f"50 rows, tables of {sizes.small:,} and {sizes.large:,}{name}")
        graphs = [
            _graph(place / f"{rows}{name}", rows, is_indexed=target is not None)
            for rows in (sizes.small, sizes.large)
        ]
        small, large = _merges(graphs, sizes.rounds)
        at = f"{sizes.large:,}{name}"
        merged, compared = (
            Versus(f"{sizes.small:,} rows", each * 1e3) for each in (small.merge, small.diff)
        )
        yield Figure(f"merge of 50 rows into {at}", large.merge * 1e3, "ms", target, versus=merged)
        yield Figure(f"diff of 50 rows in {at}", large.diff * 1e3, "ms", FLAT, versus=compared)


def _width(place: Path, sizes: Sizes) -> Iterator[Figure]:
    """50 rows, with and without vectors beside them; then many, with little memory."""
    note(f"50 rows, with and without vectors, tables of {sizes.wide:,}")
    plain = _graph(place / "plain", sizes.wide)
    wide = _graph(place / "wide", sizes.wide, vectors=True)
    without, with_vectors = _merges([plain, wide], sizes.rounds)
    at = f"{sizes.wide:,} rows with vectors"
    merged, compared = (Versus("without", each * 1e3) for each in (without.merge, without.diff))
    yield Figure(f"merge into {at}", with_vectors.merge * 1e3, "ms", FLAT, versus=merged)
    yield Figure(f"diff in {at}", with_vectors.diff * 1e3, "ms", FLAT, versus=compared)
    if STATUS.exists():
        yield from _memory(wide, sizes.spilled)


def _memory(wide: MergeGraph, rows: int) -> Iterator[Figure]:
    """What a merge of many rows with vectors takes of memory, with little of it and with more."""
    note(f"{rows:,} rows with vectors, with little memory")
    bytes_changed = rows * DIMENSIONS * 4
    size = f"{bytes_changed / 2**20:,.0f} MB of vectors"
    budgets = ((SMALL_BUDGET, "32 MB"), (8 * bytes_changed, "all of it"))
    for version, (budget, name) in enumerate(budgets, start=1_000):
        branch = f"wide-{name}".replace(" ", "-")
        wide.graph.create_branch(branch)
        # Lance upserts no more at once than it may hold.
        for first in range(0, rows, WRITTEN_AT_ONCE):
            numbers = np.arange(first, min(first + WRITTEN_AT_ONCE, rows))
            wide.write(branch, TableChange(ITEM, "upsert", wide.items(numbers, version)))
        found = child.ask(
            "bench.merge_child",
            "merge",
            {MEMORY_VARIABLE: str(budget)},
            uri=wide.graph.uri,
            branch=branch,
        )
        merged = f"merge of {size}, budget {name}"
        yield Figure(f"memory, {merged}", found["peak_mb"], "MB")
        yield Figure(merged, found["seconds"], "s")


def _large(place: Path, sizes: Sizes) -> Iterator[Figure]:
    """A tenth of a table on either side."""
    note(f"{sizes.changed:,} of {sizes.large:,} rows on either side")
    made = _graph(place / "tenth", sizes.large)
    merges, loads, upserts = [], [], []
    for turn in range(sizes.large_rounds):
        theirs, ours, loaded, written = (
            made.items(np.arange(turn, sizes.changed + turn) + at * sizes.changed, size=turn + 1)
            for at in range(4)
        )
        lines = b"".join(records(loaded))
        branch = f"tenth-{turn}"
        made.graph.create_branch(branch)
        made.write(branch, TableChange(ITEM, "upsert", theirs))
        made.write(MAIN, TableChange(ITEM, "upsert", ours))
        change = TableChange(ITEM, "upsert", written)
        merges.append(seconds_of(partial(made.graph.merge_branch, branch)))
        loads.append(seconds_of(partial(made.graph.load, mode="merge", data=lines)))
        upserts.append(seconds_of(partial(made.write, MAIN, change)))
    merge, load, upsert = map(statistics.median, (merges, loads, upserts))
    name, told = f"merge of {sizes.changed:,} rows", f"of {sizes.large:,}, main moved as far"
    loaded, upserted = Versus("load from JSON lines", load), Versus("upsert from memory", upsert)
    yield Figure(name, merge, "s", LOAD_RATIO, told, loaded)
    yield Figure(name, merge, "s", None, told, upserted)


@dataclass(frozen=True)
class _Medians:
    merge: float
    diff: float


def _merges(graphs: list[MergeGraph], rounds: int) -> list[_Medians]:
    """The seconds of a merge and of a diff of 50 rows in each graph, one after the other."""
    merges: list[list[float]] = [[] for _ in graphs]
    diffs: list[list[float]] = [[] for _ in graphs]
    for turn in range(rounds + 1):
        for at, each in enumerate(graphs):
            branch = f"edit-{turn}"
            each.graph.create_branch(branch)
            each.edit(branch, 2 * turn)
            diff = seconds_of(partial(_diff, each.graph, branch))
            each.edit(MAIN, 2 * turn + 1)
            merge = seconds_of(partial(each.graph.merge_branch, branch))
            if turn:  # the first one warms up
                merges[at].append(merge)
                diffs[at].append(diff)
    return [
        _Medians(statistics.median(merge), statistics.median(diff))
        for merge, diff in zip(merges, diffs, strict=True)
    ]


def _diff(graph: Graph, branch: str) -> None:
    assert len(list(graph.diff(MAIN, branch).changes())) == 50


def _graph(path: Path, rows: int, *, vectors: bool = False, is_indexed: bool = True) -> MergeGraph:
    note(f"  making {path.name}")
    made = MergeGraph(path, rows, vectors=vectors)
    if is_indexed:
        made.graph.ensure_indices()
    return made
