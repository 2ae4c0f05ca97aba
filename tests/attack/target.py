"""The server under attack, and what clients of it can see from outside."""

from __future__ import annotations

import os
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

import omnigraph as og
from omnigraph.graph import Graph
from tests.server.live import TOKENS, with_tokens
from tests.server.test_process import Process, command, environment, listening

SCHEMA = """
node Person { name: String @key  text: String? }
edge Knows: Person -> Person
"""
ATTACKER, VICTIM = list(TOKENS)[:2]
POLICY = f"""\
version: 1
groups:
  everybody: [{ATTACKER}, {VICTIM}]
rules:
  - id: all
    allow: {{ actors: {{ group: everybody }}, actions: [read, change, export], branch_scope: any }}
"""
POINT = "query point($n: String) { match { $p: Person  $p.name = $n } return { $p.name } }"
ADD = "query add($n: String) { insert Person { name: $n } }"


def new_graph(root: Path, people: int, degree: int, text: str = "") -> Graph:
    """Everybody knows the next ones and some far away, so long walks reach everybody."""
    import pyarrow as pa

    graph = og.init(root, SCHEMA)
    names = pa.array([f"p{i}" for i in range(people)])
    nodes = pa.table({"name": names, "text": pa.array([text or None] * people, pa.string())})
    source = [f"p{i}" for i in range(people) for _ in range(degree)]
    target = [f"p{(i * 31 + j * 7 + 1) % people}" for i in range(people) for j in range(degree)]
    edges = pa.table({"from": source, "to": target})
    graph.load(frames={"Person": nodes, "Knows": edges}, mode="append", engine="local")
    return graph


@contextmanager
def server(
    root: Path | str,
    *arguments: str,
    tokens: bool = True,
    folder: Path | None = None,
    **more: str,
) -> Iterator[Process]:
    """`omnigraph serve` as a process; with tokens, actors may do what the policy allows.

    Without a policy among the arguments, they may read and write everything; it is written to
    ``folder``, by default beside the graph.
    """
    if tokens:
        more |= with_tokens()
        if "--policy" not in arguments:
            policy = (folder or Path(root).parent) / "open-policy.yaml"
            policy.write_text(POLICY, encoding="utf-8")
            arguments = (*arguments, "--policy", str(policy))
    else:
        arguments = (*arguments, "--unauthenticated")
    fresh = subprocess.Popen(
        command("--bind", "127.0.0.1:0", "--store", str(root), *arguments),
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert fresh.stderr is not None
    with listening(fresh) as process:
        # What is logged is read away, so that the pipe never fills.
        threading.Thread(target=fresh.stderr.read, daemon=True).start()
        yield process


def client(process: Process, actor: str | None, timeout: float = 60) -> httpx.Client:
    """A client of one actor, whose paths start at the graph."""
    headers = {} if actor is None else {"Authorization": f"Bearer {TOKENS[actor]}"}
    return httpx.Client(base_url=f"{process.url}/graphs/default", headers=headers, timeout=timeout)


def request(
    process: Process, path: str, body: bytes, *headers: str, actor: str = ATTACKER
) -> bytes:
    """A POST as it goes over the wire."""
    lines = [
        f"POST /graphs/default{path} HTTP/1.1",
        f"Host: {process.url.removeprefix('http://')}",
        f"Authorization: Bearer {TOKENS[ATTACKER]}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + body


def connect(process: Process) -> socket.socket:
    """A bare connection."""
    return socket.create_connection(process.host, timeout=30)


def rss_mb(process: Process) -> float:
    """The memory of the server's process that is in RAM."""
    pages = int(Path(f"/proc/{process.process.pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Watched:
    """The largest memory of a server while something goes on."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self.before = self.most = rss_mb(process)

    def __enter__(self) -> Watched:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.05):
            self.most = max(self.most, rss_mb(self._process))


def point_times(asking: httpx.Client, seconds: float, count_min: int = 1) -> list[float]:
    """How long point queries take, one after the other; each must be answered."""
    times: list[float] = []
    ends = time.monotonic() + seconds
    while time.monotonic() < ends or len(times) < count_min:
        began = time.perf_counter()
        answer = asking.post("/query", json={"query": POINT, "params": {"n": "p7"}})
        times.append(time.perf_counter() - began)
        assert answer.status_code == 200, answer.text
    return times


def percentile(times: list[float], share: float) -> float:
    return statistics.quantiles(times, n=1000, method="inclusive")[round(share * 1000) - 1]


def rows(answer: httpx.Response) -> list[dict[str, Any]]:
    """The rows of a query."""
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["rows"]
    return found
