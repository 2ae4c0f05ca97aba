"""What views and the audit cost: the same query with and without, in turns, in processor time.

Time of processors, and not of clocks: what waits for a disk or another process is no work, and on a
machine with few cores it would blur a difference of some microseconds.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import orjson

import omnigraph as og
from bench import server
from bench.figure import Figure, Target, Versus
from bench.server_load import RawConnection, request_bytes
from omnigraph.graph import Graph, open_graph
from omnigraph.policy import Identity, load_policy

POINT_RATIO = Target(1.3, "at most")
HOPS_RATIO = Target(1.5, "at most")
AUDIT_RATIO = Target(1.05, "at most")

SCHEMA = """
node Person { handle: String @key  name: String  age: I32 @index  region: String }
edge Knows: Person -> Person
"""
POINT = """
query point($handle: String) {
    match { $p: Person { handle: $handle } } return { $p.name, $p.age }
}
"""
HOPS = """
query hops($handle: String) {
    match { $p: Person { handle: $handle }  $p knows $q  $q knows $r }
    return { count($r) as people }
}
"""
POLICY = """
version: 2
groups: { readers: [act-ana] }
rules:
  - id: region
    allow: { actors: { group: readers }, actions: [read], branch_scope: any }
    types:
      Person: { where: "$row.region = $actor.region" }
      Knows: all
"""
READER = Identity.of("act-ana", {"region": "north"})
KNOWN = 10
BLOCK = 250
"""Queries of one kind in a row. The lines of an audit are written every 50 ms, which is less."""
PAIRS = 3
"""Servers with and without an audit."""


def views(place: Path, people: int, points: int) -> Iterator[Figure]:
    """Queries of an actor that sees half of the rows, beside those of a reader of everything."""
    graph, blocks = _people(place, people), max(2, 4 * points // BLOCK)
    reader = open_graph(graph.uri, policy=load_policy(POLICY)).acting_as(READER)
    handles = [f"p{2 * ((n * 7919) % (people // 2))}" for n in range(512)]
    for name, query, target in (("point query", POINT, POINT_RATIO), ("2 hops", HOPS, HOPS_RATIO)):

        def ask(of: Graph, query: str = query) -> Callable[[int], object]:
            return lambda n: of.query(query, {"handle": handles[n % len(handles)]}).to_pylist()

        whole, seen = _in_blocks(blocks, time.process_time, ask(graph), ask(reader))
        yield Figure(
            f"{name}, under a view",
            seen * 1e6,
            "µs",
            target,
            "processor time; half of the rows meet its condition",
            versus=Versus("without a policy", whole * 1e6),
        )


def _people(place: Path, people: int) -> Graph:
    graph = og.init(place / "seen.omni", SCHEMA)
    lines = [
        {
            "type": "Person",
            "data": {
                "handle": f"p{n}",
                "name": f"Person {n}",
                "age": n % 90,
                "region": ("north", "south")[n % 2],
            },
        }
        for n in range(people)
    ]
    lines += [
        {"edge": "Knows", "from": f"p{n}", "to": f"p{(n * 31 + k * 977 + 1) % people}", "data": {}}
        for n in range(people)
        for k in range(KNOWN)
    ]
    graph.load(data=b"\n".join(map(orjson.dumps, lines)), mode="append", engine="local")
    graph.ensure_indices()
    return graph


def audited(graph: Graph, place: Path, handles: list[str]) -> Iterator[Figure]:
    """Point queries of a server with an audit, beside those of a server without.

    Two processes of one program differ by some percent, so there are several of each.
    """
    blocks = max(2, 4 * len(handles) // (BLOCK * PAIRS))
    pairs = [_pair(graph, place / f"audit-{n}.jsonl", handles, blocks) for n in range(PAIRS)]
    without, with_audit = map(min, zip(*pairs, strict=True))
    yield Figure(
        "point query, served with an audit",
        with_audit * 1e6,
        "µs",
        AUDIT_RATIO,
        f"processor time of the server, which bounds its throughput; best of {PAIRS} processes",
        versus=Versus("without", without * 1e6),
    )


def _pair(graph: Graph, lines: Path, handles: list[str], blocks: int) -> tuple[float, float]:
    """The seconds of one query of a server without an audit, and of one with it."""
    environment = {"OMNIGRAPH_AUDIT": str(lines), "OMNIGRAPH_UNAUTHENTICATED": "1"}
    with (
        server.process(graph.uri, "--unauthenticated") as (plain, plain_url),
        server.process(graph.uri, "--unauthenticated", **environment) as (watched, watched_url),
    ):
        ways = []
        for url in (plain_url, watched_url):
            socket = RawConnection.to(url)
            requests = [
                request_bytes(
                    url, "/query", orjson.dumps({"query": POINT, "params": {"handle": h}})
                )
                for h in handles
            ]
            ways.append((socket, requests))
        asks = [
            lambda n, socket=socket, requests=requests: socket.ask(requests[n % len(requests)])
            for socket, requests in ways
        ]
        clocks = [partial(_processor_seconds, each.pid) for each in (plain, watched)]
        without, with_audit = _in_blocks(blocks, clocks, *asks)
        for socket, _ in ways:
            socket.socket.close()
    asked = (blocks + 1) * BLOCK
    assert len(lines.read_bytes().splitlines()) == 2 * asked, "an access has no line"
    return without, with_audit


def _processor_seconds(pid: int) -> float:
    """The processor time that another process has used up to now (Linux)."""
    return time.clock_gettime((~pid << 3) | 2)


Clock = Callable[[], float]


def _in_blocks(
    blocks: int, clock: Clock | Sequence[Clock], *actions: Callable[[int], object]
) -> list[float]:
    """The seconds of one call of each action by its clock: of the best block, in turns.

    The first block of each warms up.
    """
    clocks = [clock] * len(actions) if callable(clock) else clock
    taken: list[list[float]] = [[] for _ in actions]
    gc.collect()
    for block in range(blocks + 1):
        for seconds, now, action in zip(taken, clocks, actions, strict=True):
            began = now()
            for n in range(BLOCK):
                action(block * BLOCK + n)
            if block:
                seconds.append((now() - began) / BLOCK)
    return [min(each) for each in taken]
