"""Attacks by queries: too much work, too much memory, too long a text."""

from __future__ import annotations

import itertools
import threading
import time
from pathlib import Path

import httpx
import orjson

from tests.attack.target import (
    ATTACKER,
    VICTIM,
    Watched,
    client,
    connect,
    new_graph,
    percentile,
    point_times,
    request,
    rss_mb,
    server,
)
from tests.server.test_process import Process

BUDGET_MB = 1024
"""What all queries of the attacked server may hold together."""
OVERHEAD_MB = 512

WALK = "query walk { match { $a: Person  $a knows{1,1000} $b } return { $a.name, $b.name } }"
PRODUCT = "query product { match { $a: Person  $b: Person } return { $a.name, $b.name } }"
SORTED = (
    "query sorted { match { $a: Person  $a knows{1,4} $b } return { $a.name, $b.text }"
    " order { $b.text } }"
)


def hostile_readers(folder: Path, seconds: float) -> str:
    """Eight readers of one actor: walks without end, large answers, clients that leave."""
    root = folder / "graph.omni"
    new_graph(root, 20_000, 3, "x" * 100)
    budget = str(BUDGET_MB << 20)
    with (
        server(root, OMNIGRAPH_SERVER_QUERY_BYTES=budget) as process,
        client(process, VICTIM) as asking,
    ):
        point_times(asking, 0.5, 50)
        quiet = percentile(point_times(asking, 2, 200), 0.5)
        stop = threading.Event()
        queries = itertools.cycle([WALK, PRODUCT, SORTED])
        hostile = [
            threading.Thread(target=_ask_and_leave if n % 2 else _ask_and_stop, args=args)
            for n in range(8)
            for args in [(process, next(queries), stop)]
        ]
        with Watched(process) as watched:
            for thread in hostile:
                thread.start()
            loud = percentile(point_times(asking, max(seconds, 10), 200), 0.99)
            ready = httpx.get(f"{process.url}/healthz", timeout=5).status_code
            stop.set()
            for thread in hostile:
                thread.join()
    assert ready == 200
    grown = watched.most - watched.before
    assert grown < BUDGET_MB + OVERHEAD_MB, f"memory grew by {grown:.0f} MB"
    assert loud < 20 * quiet, f"p99 {loud * 1000:.1f} ms, quiet p50 {quiet * 1000:.2f} ms"
    return (
        f"quiet p50 {quiet * 1000:.2f} ms, p99 under attack {loud * 1000:.1f} ms"
        f" ({loud / quiet:.1f}x of at most 20), memory +{grown:.0f} MB"
    )


def _ask_and_leave(process: Process, query: str, stop: threading.Event) -> None:
    """Send a query, and close the connection a moment later."""
    body = request(process, "/query", orjson.dumps({"query": query}))
    while not stop.is_set():
        with connect(process) as connection:
            connection.sendall(body)
            stop.wait(0.2)


def _ask_and_stop(process: Process, query: str, stop: threading.Event) -> None:
    """Send a query, and read nothing of the answer for a while."""
    body = request(process, "/query", orjson.dumps({"query": query}))
    while not stop.is_set():
        with connect(process) as connection:
            connection.sendall(body)
            stop.wait(2)


def long_texts(folder: Path, _seconds: float) -> str:
    """38 different texts of a megabyte, of bindings and of hops."""
    root = folder / "graph.omni"
    new_graph(root, 10, 1)
    slowest = 0.0
    with server(root) as process, client(process, ATTACKER) as asking:
        before = rss_mb(process)
        for number in range(38):
            began = time.perf_counter()
            answer = asking.post("/query", json={"query": _text(number)})
            slowest = max(slowest, time.perf_counter() - began)
            assert answer.status_code in (200, 400, 413), answer.text
        grown = rss_mb(process) - before
    assert slowest < 2, f"{slowest:.1f} s for one text"
    assert grown < OVERHEAD_MB, f"memory grew by {grown:.0f} MB"
    return f"slowest {slowest * 1000:.0f} ms over HTTP, memory +{grown:.0f} MB"


def _text(number: int) -> str:
    """About a megabyte of clauses; no two texts are the same."""
    if number % 2:
        clauses = (f"$v{number}_{i}: Person" for i in range(52_000))
    else:
        clauses = (f"$a knows $v{number}_{i}" for i in range(50_000))
    return f"query long {{ match {{ $a: Person  {'  '.join(clauses)} }} return {{ $a.name }} }}"
