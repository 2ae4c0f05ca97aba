"""Attacks by HTTP: connections that hold on, pages of other sites, rights one does not have."""

from __future__ import annotations

import signal
import socket
import time
from contextlib import ExitStack
from pathlib import Path

import httpx
import orjson

from tests.attack.target import (
    ADD,
    ATTACKER,
    VICTIM,
    Watched,
    client,
    connect,
    new_graph,
    request,
    server,
)

POLICY = f"""\
version: 1
groups:
  guests: [{ATTACKER}]
  owners: [{VICTIM}]
protected_branches: [main, secret]
rules:
  - id: guests-work
    allow: {{ actors: {{ group: guests }}, actions: [read, change], branch_scope: unprotected }}
  - id: guests-fork
    allow:
      actors: {{ group: guests }}
      actions: [branch_create, branch_merge]
      target_branch_scope: unprotected
  - id: owners-work
    allow: {{ actors: {{ group: owners }}, actions: [read, change], branch_scope: any }}
  - id: owners-fork
    allow:
      actors: {{ group: owners }}
      actions: [branch_create, branch_delete, branch_merge]
      target_branch_scope: any
"""
BUDGET_MB = 512
"""What all queries of the attacked server may hold together."""
OVERHEAD_MB = 512
NAMES = "query names { match { $p: Person } return { $p.name } }"


def denied_branch(folder: Path, _seconds: float) -> str:
    """Read `secret` by forking it, loading from it, merging it, or through what refusals say."""
    root, policy = folder / "graph.omni", folder / "policy.yaml"
    graph = new_graph(root, 3, 1)
    policy.write_text(POLICY, encoding="utf-8")
    graph.create_branch("secret")
    graph.create_branch("mine")
    commit = graph.mutate(ADD, {"n": "hidden-name"}, branch="secret").commit
    assert commit is not None
    written = commit.graph_commit_id
    line = '{"type": "Person", "data": {"name": "hidden-name"}}\n'
    refused = 0
    with server(root, "--policy", str(policy)) as process, client(process, ATTACKER) as asking:
        tries = [
            ("/query", {"query": NAMES, "branch": "secret"}),
            ("/query", {"query": NAMES, "snapshot": written}),
            ("/branches", {"name": "stolen", "from": "secret"}),
            ("/branches/merge", {"source": "secret", "target": "mine"}),
            ("/branches/merge/plan", {"source": "secret", "target": "mine"}),
            ("/load", {"data": line, "branch": "stolen", "from": "secret", "mode": "merge"}),
            (f"/commits/{written}/cherry-pick", {"branch": "mine"}),
            (f"/commits/{written}/revert", {"branch": "mine"}),
            ("/export", {"branch": "secret"}),
        ]
        for path, body in tries:
            answer = asking.post(path, json=body)
            assert answer.status_code in (403, 404), f"{path}: {answer.status_code} {answer.text}"
            assert "hidden-name" not in answer.text
            refused += 1
        for branch in ("mine", "stolen"):
            answer = asking.post("/query", json={"query": NAMES, "branch": branch})
            assert "hidden-name" not in answer.text
        listed = asking.get("/branches").text
        assert "secret" not in listed, listed
    return f"{refused} ways refused, no branch of it listed"


def foreign_pages(folder: Path, _seconds: float) -> str:
    """What a page of another site can make a browser send to a server without tokens."""
    root = folder / "graph.omni"
    new_graph(root, 3, 1)
    body = orjson.dumps({"query": ADD, "params": {"n": "by a page"}})
    json_type = {"Content-Type": "application/json"}
    with server(root, "--mcp", "--mcp-adhoc", tokens=False) as process:
        tries = [
            {"Content-Type": "text/plain"},
            {"Content-Type": "application/x-www-form-urlencoded"},
            {},
            {**json_type, "Host": "attacker.example"},
            {**json_type, "Origin": "https://attacker.example"},
            {**json_type, "Origin": "null"},
        ]
        for path in ("/graphs/default/mutate", "/graphs/default/change", "/mcp"):
            for headers in tries:
                answer = httpx.post(f"{process.url}{path}", content=body, headers=headers)
                assert answer.status_code in (400, 403, 415, 421), (path, headers, answer.text)
        rebound = httpx.get(f"{process.url}/graphs", headers={"Host": "attacker.example"})
        assert rebound.status_code in (400, 403, 421), rebound.text
        with client(process, None) as asking:
            names = asking.post("/query", json={"query": NAMES}).text
    assert "by a page" not in names
    return f"{3 * len(tries) + 1} requests refused"


def half_open(folder: Path, _seconds: float) -> str:
    """1,500 connections that never send a whole request."""
    root = folder / "graph.omni"
    new_graph(root, 3, 1)
    slowest = 0.0
    with server(root) as process, ExitStack() as open_connections:
        for _ in range(1500):
            try:
                connection = socket.create_connection(process.host, timeout=0.2)
                connection.sendall(b"POST /graphs/default/query HTTP/1.1\r\nHost: localhost\r\n")
            except OSError:
                continue
            open_connections.callback(connection.close)
        for _ in range(20):
            began = time.perf_counter()
            assert httpx.get(f"{process.url}/healthz", timeout=10).status_code == 200
            slowest = max(slowest, time.perf_counter() - began)
    return f"/healthz answered 20 times, slowest {slowest * 1000:.0f} ms"


def stopped_readers(folder: Path, _seconds: float) -> str:
    """30 clients that ask for a large answer with `Connection: close` and read none of it."""
    root = folder / "graph.omni"
    new_graph(root, 20_000, 3, "x" * 2_000)
    body = orjson.dumps({"query": "query all { match { $p: Person } return { $p.name, $p.text } }"})
    timeout = 5
    budget = str(BUDGET_MB << 20)
    with (
        server(
            root, "--shutdown-timeout", str(timeout), OMNIGRAPH_SERVER_QUERY_BYTES=budget
        ) as process,
        ExitStack() as held,
    ):
        with Watched(process) as watched:
            for _ in range(30):
                connection = held.enter_context(connect(process))
                connection.sendall(request(process, "/query", body, "Connection: close"))
            time.sleep(5)
        began = time.monotonic()
        process.send(signal.SIGTERM)
        code = process.wait()
        took = time.monotonic() - began
    grown = watched.most - watched.before
    assert code == 0, code
    assert took < timeout + 3, f"SIGTERM took {took:.1f} s"
    assert grown < BUDGET_MB + OVERHEAD_MB, f"memory grew by {grown:.0f} MB"
    return f"memory +{grown:.0f} MB, SIGTERM ended it in {took:.1f} s of {timeout}"
