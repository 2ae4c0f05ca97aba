"""The server: what HTTP adds to a query, many clients, a million rows, and all of it at once.

The server is a process of its own, started as users start it. Embedded figures come from this
process, on the same graph and with the same queries.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import orjson

import omnigraph as og
from bench import access
from bench.durability import durability
from bench.figure import Figure, Target, Versus
from bench.measure import calls_per_second
from bench.progress import note
from bench.scale import Scale
from bench.server_load import RawConnection, request_bytes
from omnigraph.client import Patience, RemoteGraph
from omnigraph.errors import InternalError, OmnigraphError, StorageError, TooManyRequests
from omnigraph.graph import Graph

SEED = None
OVERHEAD_MS = Target(1.5, "at most")
CLIENTS = 16
CLIENTS_RATIO = Target(0.6, "at least")
WORKERS_RATIO = Target(1.6, "at least")
WRITERS_RATIO = Target(4, "at least")
ARROW_RATIO = Target(5, "at least")
NONE = Target(0, "at most")
SOME = Target(1, "at least")

SCHEMA = """
node Person { handle: String @key  name: String  age: I32  score: F64 }
"""
POINT = """
query point($handle: String) {
    match { $p: Person { handle: $handle } } return { $p.name, $p.age }
}
"""
EVERYBODY = "query all { match { $p: Person } return { $p.handle, $p.name, $p.age, $p.score } }"
HANDLES = "query handles { match { $p: Person } return { $p.handle } }"
ADD = """
query add($handle: String) { insert Person { handle: $handle, name: $handle, age: 1, score: 0.5 } }
"""

POLITE = ("act-one", "act-two", "act-three")
POLITE_CLIENTS = 10
GREEDY = "act-greedy"
GREEDY_CLIENTS = 20
WARM_UP = 50
BUDGET = 12
"""Writes an actor may have under way: more than the polite have clients, less than the greedy."""
POLICY = """
version: 1
groups: { everybody: [act-one, act-two, act-three, act-greedy] }
rules:
  - id: all
    allow: { actors: { group: everybody }, actions: [read, change], branch_scope: any }
"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is measured."""

    people: int
    points: int
    seconds: float
    """Of each measurement with many clients."""
    rows: int
    mixed_seconds: float


FULL = Sizes(10_000, 2_000, 5, 1_000_000, 60)
SMALL = Sizes(10_000, 1_000, 3, 300_000, 20)


def run(scale: Scale) -> Iterator[Figure]:
    """Measure everything about the server."""
    return measure_all(SMALL if scale == Scale.SMALL else FULL)


def measure_all(sizes: Sizes) -> Iterator[Figure]:
    """Every figure of the suite, at some sizes."""
    with TemporaryDirectory() as directory, durability("process"):
        place = Path(directory)
        note("making the graphs")
        graph = new_graph(place / "people.omni", sizes.people)
        with served(graph.uri) as url:
            note("point queries")
            yield from points(graph, url, sizes)
            note(f"{CLIENTS} clients")
            yield from many_clients(graph, url, sizes)
        note("point queries with an audit")
        yield from access.audited(graph, place, _handles(sizes))
        note("queries under a view")
        yield from access.views(place, sizes.people, sizes.points)
        note(f"{CLIENTS} writers")
        for setting in ("process", "disk"):
            with durability(setting):
                yield from many_writers(place / f"writers-{setting}", sizes, setting)
        note(f"{sizes.rows:,} rows")
        yield from many_rows(place, sizes)
        note(f"a mixed load for {sizes.mixed_seconds:.0f} s")
        yield from mixed(place, graph, sizes)


# --- graphs and servers ---------------------------------------------------------------------------


def new_graph(root: Path, people: int) -> Graph:
    """A graph of people, with its indexes."""
    graph = og.init(str(root), SCHEMA)
    lines = (
        orjson.dumps(
            {
                "type": "Person",
                "data": {"handle": f"p{n}", "name": f"Person {n}", "age": n % 90, "score": n / 7},
            }
        )
        for n in range(people)
    )
    graph.load(data=b"\n".join(lines), mode="append", engine="local")
    graph.ensure_indices()
    return graph


@contextmanager
def process(
    uri: str, *arguments: str, **environment: str
) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """`omnigraph serve` as a process of its own, and the URL of the graph."""
    command = [sys.executable, "-m", "omnigraph.cli", "serve", "--store", uri]
    with subprocess.Popen(
        [*command, "--bind", "127.0.0.1:0", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, **environment},
    ) as started:
        assert started.stdout is not None
        line = started.stdout.readline()
        try:
            yield started, f"http://{line.strip().partition('=')[2]}/graphs/default"
        finally:
            started.terminate()


@contextmanager
def served(uri: str, *arguments: str, **environment: str) -> Iterator[str]:
    """The URL of a graph that a process of its own serves."""
    access = () if arguments else ("--unauthenticated",)
    with process(uri, *access, *arguments, **environment) as (_, url):
        yield url


# --- one query ------------------------------------------------------------------------------------


def points(graph: Graph, url: str, sizes: Sizes) -> Iterator[Figure]:
    """A point query in process, over a bare socket, and with our client, in turns."""
    remote = og.connect(url)
    socket = RawConnection.to(url)
    handles = _handles(sizes)
    requests = {handle: _point_request(url, handle) for handle in handles}

    def over_socket(handle: str) -> int:
        return len(orjson.loads(socket.ask(requests[handle]))["rows"])

    ways: Mapping[str, Callable[[str], int]] = {
        "embedded": lambda handle: len(graph.query(POINT, {"handle": handle})),
        "bare socket": over_socket,
        "client": lambda handle: len(remote.query(POINT, {"handle": handle})),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    for handle in handles[:WARM_UP]:
        for ask in ways.values():
            ask(handle)
    for handle in handles:
        for name, ask in ways.items():
            start = time.perf_counter()
            rows = ask(handle)
            times[name].append(time.perf_counter() - start)
            assert rows == 1
    median = {name: statistics.median(taken) * 1000 for name, taken in times.items()}
    yield Figure("point query, embedded, p50", median["embedded"], "ms")
    overhead = median["bare socket"] - median["embedded"]
    yield Figure("point query, server overhead, p50", overhead, "ms", OVERHEAD_MS)
    total = median["client"] - median["embedded"]
    told = "server and client library, Arrow on the wire"
    yield Figure("point query, whole overhead, p50", total, "ms", OVERHEAD_MS, told)
    remote.close()
    socket.socket.close()


def _handles(sizes: Sizes) -> list[str]:
    return [f"p{(n * 7919) % sizes.people}" for n in range(sizes.points)]


def _point_request(url: str, handle: str) -> bytes:
    return request_bytes(url, "/query", _point_body(handle).encode())


def _point_body(handle: str) -> str:
    return json.dumps({"query": POINT, "params": {"handle": handle}})


# --- many clients ---------------------------------------------------------------------------------


def many_clients(graph: Graph, url: str, sizes: Sizes) -> Iterator[Figure]:
    """Point queries of many threads in process, and of as many connections over HTTP."""
    handles = [f"p{(n * 7919) % sizes.people}" for n in range(512)]
    embedded = _threads_per_second(
        lambda handle: graph.query(POINT, {"handle": handle}), handles, sizes.seconds
    )
    over_http = _connections_per_second([url], handles, sizes.seconds)
    with served(graph.uri, "--unauthenticated", "--workers", "2") as shared:
        by_workers = _connections_per_second([shared], handles, sizes.seconds)
    with served(graph.uri) as second:
        by_two = _connections_per_second([url, second], handles, sizes.seconds)
    with og.connect(url) as remote:
        by_client = _threads_per_second(
            lambda handle: remote.query(POINT, {"handle": handle}), handles, sizes.seconds
        )
    in_process = Versus(f"{CLIENTS} threads, embedded", embedded)
    name = f"{CLIENTS} connections, served"
    yield Figure(name, over_http, "queries/s", CLIENTS_RATIO, versus=in_process)
    one = Versus("one worker", over_http)
    name = f"{CLIENTS} connections, two workers"
    told = "the kernel spreads the connections; the load generator runs beside them"
    yield Figure(name, by_workers, "queries/s", WORKERS_RATIO, told, versus=one)
    told = "two processes serve the graph; half of the connections each"
    name = f"{CLIENTS} connections, two servers"
    yield Figure(name, by_two, "queries/s", note=told, versus=in_process)
    told = "of one process, whose own work is included"
    yield Figure(f"{CLIENTS} threads, our client", by_client, "queries/s", note=told)


def _connections_per_second(urls: list[str], handles: list[str], seconds: float) -> float:
    asked = {
        "urls": urls,
        "path": "/query",
        "bodies": [_point_body(handle) for handle in handles],
        "clients": CLIENTS,
        "seconds": seconds,
    }
    done = subprocess.run(
        [sys.executable, "-m", "bench.server_load"],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(done.stdout)["per_second"])


def _threads_per_second(ask: Callable[[str], object], handles: list[str], seconds: float) -> float:
    def client(at: int) -> Callable[[int], object]:
        return lambda n: ask(handles[(at + n * CLIENTS) % len(handles)])

    return calls_per_second([client(at) for at in range(CLIENTS)], seconds)


# --- many writers ---------------------------------------------------------------------------------


def many_writers(place: Path, sizes: Sizes, setting: str) -> Iterator[Figure]:
    """Inserts of different rows into one branch, over one connection and over many."""
    graph = new_graph(place / "written.omni", 1_000)
    acknowledged, rates = 0, {1: 0.0, CLIENTS: 0.0}
    with served(graph.uri) as url:
        for turn, clients in enumerate((1, CLIENTS, 1, CLIENTS)):
            count, rate = _writes_per_second(url, f"{turn}", clients, sizes)
            acknowledged += count
            rates[clients] = max(rates[clients], rate)
    there = sum(table.entity_count for table in og.open(graph.uri).snapshot().datasets)
    assert there == 1_000 + acknowledged, "an acknowledged insert is missing, or there twice"
    alone = Versus("one connection", rates[1])
    name = f"inserts of {CLIENTS} connections, {setting} durability"
    yield Figure(name, rates[CLIENTS], "per second", WRITERS_RATIO, versus=alone)


def _writes_per_second(url: str, prefix: str, clients: int, sizes: Sizes) -> tuple[int, float]:
    """How many inserts some connections had acknowledged, and how many that was in a second."""
    done = [0] * clients
    deadline = time.perf_counter() + sizes.seconds

    def write(at: int) -> None:
        connection = RawConnection.to(url)
        while time.perf_counter() < deadline:
            handle = f"w{prefix}-{at}-{done[at]}"
            body = json.dumps({"query": ADD, "params": {"handle": handle}}).encode()
            receipt = orjson.loads(connection.ask(request_bytes(url, "/mutate", body)))
            assert receipt["affected_nodes"] == 1
            done[at] += 1
        connection.socket.close()

    began = time.perf_counter()
    threads = [threading.Thread(target=write, args=(at,)) for at in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(done), sum(done) / (time.perf_counter() - began)


# --- many rows ------------------------------------------------------------------------------------


def many_rows(place: Path, sizes: Sizes) -> Iterator[Figure]:
    """All rows of a large graph: as Arrow in our client, and as JSON that is only parsed."""
    graph = new_graph(place / "crowd.omni", sizes.rows)
    with served(graph.uri) as url, og.connect(url, timeout=600) as remote:

        def as_arrow() -> int:
            return remote.query(EVERYBODY).row_count

        def as_json() -> int:
            # Not into a table, which would cost more than the way of the rows.
            answer = httpx.post(f"{url}/query", json={"query": EVERYBODY}, timeout=600)
            return len(orjson.loads(answer.content)["rows"])

        seconds = {}
        for name, ask in (("Arrow", as_arrow), ("JSON", as_json)):
            times = []
            for _ in range(3):
                start = time.perf_counter()
                assert ask() == sizes.rows
                times.append(time.perf_counter() - start)
            seconds[name] = min(times)
    embedded = []
    for _ in range(3):
        start = time.perf_counter()
        assert graph.query(EVERYBODY).row_count == sizes.rows
        embedded.append(time.perf_counter() - start)
    yield Figure(f"{sizes.rows:,} rows, embedded", min(embedded), "s")
    as_lines = Versus("as JSON", seconds["JSON"], "theirs to ours")
    name = f"{sizes.rows:,} rows as Arrow"
    yield Figure(name, seconds["Arrow"], "s", ARROW_RATIO, versus=as_lines)


# --- everything at once ---------------------------------------------------------------------------


@dataclass
class Tally:
    """What the clients of one kind met."""

    reads: int = 0
    written: list[str] = field(default_factory=list)
    """Acknowledged writes."""
    refused: int = 0
    refused_without_wait: int = 0
    broken: list[str] = field(default_factory=list)
    """Answers that no server should give."""

    def add(self, other: Tally) -> None:
        """Join two tallies."""
        self.reads += other.reads
        self.written += other.written
        self.refused += other.refused
        self.refused_without_wait += other.refused_without_wait
        self.broken += other.broken


def mixed(place: Path, graph: Graph, sizes: Sizes) -> Iterator[Figure]:
    """Polite actors that read and write, and a greedy one that only writes, all on main."""
    policy = place / "policy.yaml"
    policy.write_text(POLICY)
    tokens = {actor: f"token-of-{actor}" for actor in (*POLITE, GREEDY)}
    environment = {
        "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": json.dumps(tokens),
        "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX": str(BUDGET),
    }
    clients = [(actor, n) for actor in POLITE for n in range(POLITE_CLIENTS)]
    clients += [(GREEDY, n) for n in range(GREEDY_CLIENTS)]
    tallies = {True: Tally(), False: Tally()}
    lock = threading.Lock()
    with served(graph.uri, "--policy", str(policy), **environment) as url:
        deadline = time.perf_counter() + sizes.mixed_seconds

        def work(actor: str, number: int) -> None:
            is_greedy = actor == GREEDY
            patience = Patience(attempts=1)
            with og.connect(url, tokens[actor], patience=patience) as remote:
                found = _one_client(remote, f"{actor}-{number}", deadline, only_writes=is_greedy)
            with lock:
                tallies[is_greedy].add(found)

        threads = [threading.Thread(target=work, args=client) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    polite, greedy = tallies[False], tallies[True]
    present = {row["p.handle"] for row in graph.query(HANDLES).to_pylist()}
    acknowledged = [*polite.written, *greedy.written]
    missing = [handle for handle in acknowledged if handle not in present]
    broken = [*polite.broken, *greedy.broken]
    told = broken[0] if broken else f"{len(clients)} clients"
    seconds = sizes.mixed_seconds
    yield Figure("mixed: answers with 5xx", len(broken), "", NONE, told)
    told = f"of {len(acknowledged)}"
    yield Figure("mixed: acknowledged writes that are missing", len(missing), "", NONE, told)
    yield Figure("mixed: 429 for the actor over its budget", greedy.refused, "", SOME)
    without = polite.refused_without_wait + greedy.refused_without_wait
    yield Figure("mixed: 429 without Retry-After", without, "", NONE)
    yield Figure("mixed: 429 for the others", polite.refused, "", NONE)
    yield Figure("mixed: reads", polite.reads / seconds, "queries/s")
    yield Figure("mixed: writes", len(acknowledged) / seconds, "commits/s")


def _one_client(remote: RemoteGraph, name: str, deadline: float, *, only_writes: bool) -> Tally:
    found = Tally()
    turn = 0
    while time.perf_counter() < deadline:
        turn += 1
        is_write = only_writes or turn % 5 == 0
        handle = f"{name}-{turn}"
        try:
            if is_write:
                remote.mutate(ADD, {"handle": handle})
                found.written.append(handle)
            else:
                found.reads += len(remote.query(POINT, {"handle": f"p{turn % 1000}"}))
        except TooManyRequests as refused:
            found.refused += 1
            found.refused_without_wait += "retry_after_seconds" not in refused.details
            time.sleep(0.01)
        except (StorageError, InternalError) as broken:
            found.broken.append(broken.message)
        except OmnigraphError as other:
            found.broken.append(f"{type(other).__name__}: {other.message}")
    return found
