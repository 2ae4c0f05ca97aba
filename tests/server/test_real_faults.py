"""Faults that the operating system makes under a live server: typed answers, then it works again.

The limits of a running server's process are lowered from outside, so each fault is the real one.
"""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from omnigraph.graph import init
from tests.server.live import PATIENCE_SECONDS
from tests.server.test_process import Process, started

pytestmark = pytest.mark.slow

SCHEMA = "node Person { name: String @key  text: String? }"
ADD = "query add($name: String, $text: String?) { insert Person { name: $name, text: $text } }"
NAMES = "query names { match { $p: Person } return { $p.name } order { $p.name } }"
LARGE = "x" * 300_000


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Process]:
    """A server in a process of its own."""
    root = tmp_path / "graph.omni"
    init(root, SCHEMA).close()
    with started("--unauthenticated", "--store", str(root)) as process:
        yield process


@contextmanager
def limited(process: Process, kind: int, soft: int) -> Iterator[None]:
    """Lower a limit of the server's process while the block runs."""
    pid = process.process.pid
    before = resource.prlimit(pid, kind, (soft, resource.prlimit(pid, kind)[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, kind, before)


def asking(process: Process) -> httpx.Client:
    return httpx.Client(base_url=f"{process.url}/graphs/default", timeout=PATIENCE_SECONDS)


def add(client: httpx.Client, name: str, text: str | None = None) -> httpx.Response:
    """A write whose key is its name."""
    body = {"query": ADD, "params": {"name": name, "text": text}}
    return client.post("/mutate", json=body, headers={"Idempotency-Key": f"key-of-{name}"})


def names(client: httpx.Client) -> list[str]:
    found = client.post("/query", json={"query": NAMES})
    assert found.status_code == 200, found.text
    return [row["p.name"] for row in found.json()["rows"]]


def files_of(process: Process) -> int:
    return sum(1 for _ in Path(f"/proc/{process.process.pid}/fd").iterdir())


def test_after_a_full_disk_a_server_writes_again_without_a_restart(served: Process) -> None:
    with asking(served) as client:
        assert add(client, "before").status_code == 200
        for number, room in enumerate((64 * 1024, 4096, 512, 0)):
            with limited(served, resource.RLIMIT_FSIZE, room):
                refused = add(client, f"during-{number}", LARGE)
                assert refused.status_code in (503, 507), refused.text
                assert refused.json()["outcome"] == "unknown"
                assert "before" in names(client)
            # The same key: done once, whatever was left of the first attempt.
            assert add(client, f"during-{number}", LARGE).status_code == 200
        assert names(client) == ["before", *(f"during-{number}" for number in range(4))]


def test_a_write_without_file_descriptors_is_known_by_its_key(served: Process) -> None:
    """With few left, it fails later and later: before the lease, at a table, at the manifest."""
    with asking(served) as client:
        assert add(client, "n").status_code == 200
        refused = 0
        for room in range(6):
            with limited(served, resource.RLIMIT_NOFILE, files_of(served) + room):
                tried = add(client, f"n{room}")
                assert tried.status_code in (200, 503), tried.text
                if tried.status_code == 503:
                    refused += 1
                    assert tried.json()["outcome"] in ("unknown", "not_begun")
            again = add(client, f"n{room}")
            assert again.status_code == 200, again.text
        assert refused > 0
        assert names(client) == ["n", *(f"n{room}" for room in range(6))]


def test_after_its_clients_left_a_server_of_64_files_writes_again(served: Process) -> None:
    with asking(served) as client, limited(served, resource.RLIMIT_NOFILE, 64):
        written = ["first"]
        assert add(client, "first").status_code == 200  # on a connection that stays open
        with ExitStack() as others:
            while True:
                while files_of(served) < 64:
                    others.enter_context(socket.create_connection(served.host, PATIENCE_SECONDS))
                    time.sleep(0.001)
                name = f"n{len(written):03}"
                tried = add(client, name)
                if tried.status_code != 200:
                    break
                written.append(name)  # a file that the server had open was closed meanwhile
            assert tried.status_code == 503, tried.text
            assert tried.json()["error_code"] in ("storage_unavailable", "recovery_required")
            assert tried.json()["outcome"] in ("unknown", "not_begun")
        # Still at most 64: they suffice as soon as the server has noticed that they left.
        when(lambda: add(client, name).status_code == 200)
        with asking(served) as another:
            assert names(another) == [*written, name]


def when(holds: Callable[[], bool]) -> None:
    """Wait for what has to happen."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < ends
        time.sleep(0.01)
