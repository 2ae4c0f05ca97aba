"""The kernel: what a commit costs over the Lance work it stands on, and what it does not depend on.

Everything that is compared is measured in turns, so that a busy moment of the machine meets both
sides alike.
"""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import lance
import pyarrow as pa
from lance import LanceDataset
from lance.fragment import write_fragments

from bench.durability import durability
from bench.figure import Figure, Target, Versus
from bench.measure import calls_per_second, in_turns
from bench.progress import note
from bench.scale import Scale
from bench.slow_store import slow_store
from omnigraph.effects.requests import measure as measure_requests
from omnigraph.graph import Graph, init, open_graph

SEED = None
INSERT_RATIO = Target(3, "at most")
HISTORY_RATIO = Target(1.3, "at most")
TYPES_RATIO = Target(1.5, "at most")
PROCESSES_RATIO = Target(2, "at least")
ACKNOWLEDGED = Target(100, "at least")
DELAY_MS = 20
INSERT_HOPS = Target(6, "at most")
MERGE_HOPS = Target(12, "at most")
MERGED_TABLES = 8
WRITERS_RATIO = Target(5, "at least")
AGAIN_SHARE = Target(2, "at most")
SCRUB_RATIO = Target(2, "at most")

SCHEMA = """
node Person { name: String @key  age: I32? }
node City { name: String @key }
edge Knows: Person -> Person { since: Date? }
"""
INSERT = "query add($name: String, $age: I32?) { insert Person { name: $name, age: $age } }"


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    inserts: int
    rhythm: int
    """Inserts that see every phase of the upkeep which follows commits."""
    few_commits: int
    many_commits: int
    few_types: int
    many_types: int
    branches: int
    processes: int
    inserts_per_process: int
    races: int
    starts: int
    writers: int = 16
    store_seconds: float = 8
    """Of each measurement on an object store."""
    copied_commits: int = 150
    scrubbed_rows: int = 20_000


FULL = Sizes(60, 64, 50, 2_000, 5, 100, 20, 8, 25, 3, 7)
SMALL = Sizes(60, 64, 50, 1_000, 5, 100, 20, 8, 15, 2, 5)


def run(scale: Scale) -> Iterator[Figure]:
    """Measure everything about the kernel."""
    return measure_all(SMALL if scale == Scale.SMALL else FULL)


def measure_all(sizes: Sizes) -> Iterator[Figure]:
    """Every figure of the suite, at some sizes."""
    with TemporaryDirectory() as directory:
        place = Path(directory)
        with durability("process"):
            for measure in (_inserts, _history, _types, _processes, _start):
                note((measure.__doc__ or "").rstrip("."))
                yield from measure(place / measure.__name__, sizes)
            for check in (_copies, _scrub):
                note((check.__doc__ or "").rstrip("."))
                yield check(place / check.__name__, sizes)
            note(f"an object store, {DELAY_MS} ms away")
            yield from _on_a_store(sizes)
        with durability("disk"):
            yield from _on_disk(place / "disk", sizes)


# --- (a) one insert against the Lance calls it stands on ------------------------------------------


def _inserts(place: Path, sizes: Sizes) -> list[Figure]:
    """One insert against the Lance calls it stands on."""
    graph = _graph_with_commits(place / "graph", 40)
    session = lance.Session()  # type: ignore[attr-defined]
    location = next(
        entry.dataset_path for entry in graph.snapshot().datasets if entry.type_name == "Person"
    )
    table = _Twin(place / "graph" / location, place / "table", "id", session)
    manifest = _Twin(place / "graph" / "__manifest", place / "manifest", "object_id", session)
    appended = _Twin(place / "graph" / "__manifest", place / "appended", "object_id", session)
    insert, upsert, publish, append = in_turns(
        sizes.inserts,
        lambda n: graph.mutate(INSERT, {"name": f"new {n}", "age": n}),
        lambda n: table.upsert([_row(table, f"new {n}")]),
        lambda n: manifest.upsert(
            [_row(manifest, f"a{n}"), _row(manifest, f"b{n}"), manifest.known]
        ),
        lambda n: appended.append([_row(appended, f"a{n}"), _row(appended, f"b{n}")]),
    )
    two_upserts = Versus("bare Lance", (upsert + publish) * 1e3)
    told = "process durability, against an upsert of the table and one of a manifest"
    least = Versus("an upsert and an append", (upsert + append) * 1e3)
    return [
        Figure("insert of one row", insert * 1e3, "ms", INSERT_RATIO, told, two_upserts),
        Figure("insert, to the least two commits cost", insert * 1e3, "ms", versus=least),
        Figure("bare Lance upsert of the table", upsert * 1e3, "ms"),
        Figure("bare Lance upsert of a manifest", publish * 1e3, "ms"),
        Figure("bare Lance append to a manifest", append * 1e3, "ms"),
    ]


class _Twin:
    """A copy of a dataset, written to with bare Lance calls on a handle that is kept open."""

    def __init__(self, original: Path, copy: Path, key: str, session: Any) -> None:
        shutil.copytree(original, copy)
        self.key = key
        self._handle = lance.dataset(str(copy), session=session)
        self.known: dict[str, Any] = self._handle.take([0]).to_pylist()[0]

    def upsert(self, rows: list[dict[str, Any]]) -> None:
        """Stage an upsert and commit it."""
        transaction, _ = (
            self._handle.merge_insert(self.key)
            .when_matched_update_all()
            .when_not_matched_insert_all()
            .execute_uncommitted(self._table(rows))
        )
        self._handle = LanceDataset.commit(self._handle, transaction, max_retries=0)

    def append(self, rows: list[dict[str, Any]]) -> None:
        """Stage an append and commit it."""
        transaction = write_fragments(self._table(rows), self._handle, return_transaction=True)
        self._handle = LanceDataset.commit(self._handle, transaction, max_retries=0)

    def _table(self, rows: list[dict[str, Any]]) -> pa.Table:
        return pa.Table.from_pylist(rows, schema=self._handle.schema)


def _row(twin: _Twin, key: str) -> dict[str, Any]:
    return {**twin.known, twin.key: key}


# --- (b) length of the history --------------------------------------------------------------------


def _history(place: Path, sizes: Sizes) -> list[Figure]:
    """An insert after few and after many commits."""
    short = _graph_with_commits(place / "short", sizes.few_commits)
    long = _graph_with_commits(place / "long", sizes.many_commits)
    short_p50, long_p50 = in_turns(
        sizes.rhythm,
        lambda n: _insert_known(short, n),
        lambda n: _insert_known(long, n),
    )
    few = Versus(f"after {sizes.few_commits}", short_p50 * 1e3)
    name = f"insert after {sizes.many_commits:,} commits"
    return [Figure(name, long_p50 * 1e3, "ms", HISTORY_RATIO, versus=few)]


# --- (c) number of types --------------------------------------------------------------------------


def _types(place: Path, sizes: Sizes) -> list[Figure]:
    """Branches of graphs with few and with many types."""
    few, many = (
        init(
            place / str(count), "\n".join(f"node K{n} {{ id2: String @key }}" for n in range(count))
        )
        for count in (sizes.few_types, sizes.many_types)
    )
    created_few, deleted_few, created_many, deleted_many = in_turns(
        sizes.branches,
        lambda n: few.create_branch(f"b{n}"),
        lambda n: few.delete_branch(f"b{n}"),
        lambda n: many.create_branch(f"b{n}"),
        lambda n: many.delete_branch(f"b{n}"),
    )
    pairs = {"create": (created_few, created_many), "delete": (deleted_few, deleted_many)}
    return [
        Figure(
            f"branch {verb}, {sizes.many_types} types",
            many * 1e3,
            "ms",
            TYPES_RATIO,
            versus=Versus(f"{sizes.few_types} types", few * 1e3),
        )
        for verb, (few, many) in pairs.items()
    ]


# --- (d) many processes ---------------------------------------------------------------------------


def _processes(place: Path, sizes: Sizes) -> list[Figure]:
    """Inserts of many processes at once."""
    total = sizes.processes * sizes.inserts_per_process
    alone = together = float("inf")
    failures = 0
    for n in range(sizes.races):
        seconds, failed = _race(place / f"one-{n}", 1, total)
        alone, failures = min(alone, seconds), failures + failed
        seconds, failed = _race(place / f"many-{n}", sizes.processes, sizes.inserts_per_process)
        together, failures = min(together, seconds), failures + failed
    return [
        Figure(
            f"inserts of {sizes.processes} processes",
            total / together,
            "per second",
            PROCESSES_RATIO,
            versus=Versus("one process", total / alone),
        ),
        Figure(
            "inserts that were acknowledged",
            100 * (1 - failures / (2 * total * sizes.races)),
            "%",
            ACKNOWLEDGED,
        ),
    ]


def _race(place: Path, processes: int, inserts: int) -> tuple[float, int]:
    """The seconds some processes need to insert rows into one branch, and their failures.

    They end when the last insert is acknowledged. The exit of an interpreter takes more than a
    tenth of a second of a processor, which is no insert, and those that still write would lose it:
    no process exits before all are done.
    """
    uri = place / "graph"
    init(uri, SCHEMA)
    # Each begins when the file appears, having imported and opened everything before.
    start = place / "start"
    children = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.kernel", str(uri), str(start), f"p{n}", str(inserts)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for n in range(processes)
    ]
    for child in children:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
    began = time.perf_counter()
    start.touch()
    failed = 0
    for child in children:
        assert child.stdout is not None
        failed += int(child.stdout.readline() or inserts)
    seconds = time.perf_counter() - began
    for child in children:
        child.communicate()
    rows = next(
        t.entity_count for t in open_graph(uri).snapshot().datasets if t.type_name == "Person"
    )
    assert rows + failed == processes * (inserts + 1), "an acknowledged insert is missing"
    return seconds, failed


def insert_when_told(uri: str, start: Path, name: str, inserts: int) -> None:
    """One process of the race: prints how many of its inserts were refused, and waits to exit."""
    graph = open_graph(uri)
    # The first insert of a process loads libraries, which is not what the race is about.
    graph.mutate(INSERT, {"name": f"{name}-warm", "age": 0})
    print("ready", flush=True)
    while not start.exists():
        time.sleep(0.001)
    failed = 0
    for n in range(inserts):
        try:
            graph.mutate(INSERT, {"name": f"{name}-{n}", "age": n})
        except Exception as refused:
            print(f"{name}: {refused}", file=sys.stderr)
            failed += 1
    print(failed, flush=True)
    sys.stdin.read()


# --- (e) starting, and the cost of durability -----------------------------------------------------


def _start(place: Path, sizes: Sizes) -> list[Figure]:
    """Creating and opening a graph, and its first insert."""
    made: list[Graph] = []

    def create(n: int) -> None:
        made.append(init(place / str(n), SCHEMA))

    created, opened, first = in_turns(
        sizes.starts,
        create,
        lambda n: open_graph(place / str(n)),
        lambda n: made[n].mutate(INSERT, {"name": "first", "age": 1}),
    )
    return [
        Figure("init", created * 1e3, "ms", None, "3 types"),
        Figure("open", opened * 1e3, "ms"),
        Figure("first insert", first * 1e3, "ms"),
    ]


def _on_disk(place: Path, sizes: Sizes) -> list[Figure]:
    graph = _graph_with_commits(place / "graph", 10)
    (seconds,) = in_turns(sizes.inserts, lambda n: _insert_known(graph, n))
    return [Figure("insert, disk durability", seconds * 1e3, "ms", None, "every file flushed")]


# --- (f) copies and digests -----------------------------------------------------------------------


def _copies(place: Path, sizes: Sizes) -> Figure:
    """A second backup of an unchanged graph."""
    graph = _graph_with_commits(place / "graph", sizes.copied_commits)
    asked = []
    for _ in range(2):
        with measure_requests() as io:
            graph.create_backup(place / "backups")
        asked.append(io.report().requests)
    first, again = asked
    told = f"{again} of {first:,} requests"
    return Figure("backup of an unchanged graph", 100 * again / first, "%", AGAIN_SHARE, told)


def _scrub(place: Path, sizes: Sizes) -> Figure:
    """Scrub beside reading the same files."""
    graph = init(place / "graph", "node Note { slug: String @key  text: String }")
    chance = random.Random(1)
    rows = (
        {"type": "Note", "data": {"slug": f"n{n}", "text": chance.randbytes(2_000).hex()}}
        for n in range(sizes.scrubbed_rows)
    )
    graph.load(data="\n".join(map(json.dumps, rows)), mode="append")
    files = [file for file in (place / "graph").rglob("*") if file.is_file()]
    scrub, read = in_turns(
        7,
        lambda n: graph.scrub(),
        lambda n: [file.read_bytes() for file in files],
        of=min,
    )
    reading = Versus("reading the files", read * 1e3)
    told = f"{sum(file.stat().st_size for file in files) / 1e6:.0f} MB in {len(files)} files"
    return Figure("scrub", scrub * 1e3, "ms", SCRUB_RATIO, told, reading)


# --- (g) an object store --------------------------------------------------------------------------


def _on_a_store(sizes: Sizes) -> Iterator[Figure]:
    """Requests that wait for each other, and many writers of one process."""
    with slow_store(DELAY_MS) as prefix:
        graph = init(f"{prefix}/graph", SCHEMA)
        for n in range(3):
            _insert_known(graph, n)
        with measure_requests() as io:
            graph.mutate(INSERT, {"name": "counted", "age": 1})
        hops = io.report().round_trips
        yield Figure("insert on an object store", hops, "serial requests", INSERT_HOPS)
        hops = _hops_of_a_merge(f"{prefix}/merged")
        name = f"merge of {MERGED_TABLES} tables on an object store"
        yield Figure(name, hops, "serial requests", MERGE_HOPS)
        alone, together = (
            _writes_per_second(graph, writers, sizes.store_seconds)
            for writers in (1, sizes.writers)
        )
        name = f"inserts of {sizes.writers} writers on an object store"
        told = f"{DELAY_MS} ms added to every request"
        one = Versus("one writer", alone)
        yield Figure(name, together, "per second", WRITERS_RATIO, told, one)


def _hops_of_a_merge(uri: str) -> int:
    kinds = "\n".join(f"node Kind{n} {{ code: String @key }}" for n in range(MERGED_TABLES))
    graph = init(uri, kinds)

    def insert(code: str, branch: str = "main") -> None:
        every = (f'insert Kind{n} {{ code: "{code}" }}' for n in range(MERGED_TABLES))
        graph.mutate(f"query q {{ {' '.join(every)} }}", branch=branch)

    insert("base")
    graph.create_branch("review")
    insert("theirs", "review")
    insert("ours")
    with measure_requests() as io:
        graph.merge_branch("review")
    return io.report().round_trips


def _writes_per_second(graph: Graph, writers: int, seconds: float) -> float:
    def writer(at: int) -> Callable[[int], object]:
        return lambda n: graph.mutate(INSERT, {"name": f"{writers}-{at}-{n}", "age": n})

    return calls_per_second([writer(at) for at in range(writers)], seconds)


# --- graphs ---------------------------------------------------------------------------------------


def _graph_with_commits(path: Path, commits: int) -> Graph:
    graph = init(path, SCHEMA)
    for n in range(commits):
        _insert_known(graph, n)
    return graph


def _insert_known(graph: Graph, n: int) -> None:
    """Insert one of few rows, so that commits become many and the data stays small."""
    graph.mutate(INSERT, {"name": f"known {n % 50}", "age": n})


if __name__ == "__main__":
    insert_when_told(sys.argv[1], Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]))
