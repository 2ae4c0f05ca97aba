"""Vectors of stored texts by workers of Spark; `tests/embedding/test_stored.py` has the rest."""

from __future__ import annotations

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.embedding.client import mock_vector
from omnigraph.embedding.config import BulkLimits
from omnigraph.graph import Graph
from tests.embedding.provider_server import (
    Model,
    hang_up,
    moments,
    require_rate,
    running_provider,
    send,
)

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]

SCHEMA = "node Doc { code: I32 @key  text: String?  meaning: Vector(4)? @embed(text) }"
DOCS = 24
SECONDS_MAX = 60


@pytest.fixture
def docs(tmp_path: Path) -> Graph:
    made = og.init(tmp_path / "docs.omni", SCHEMA)
    rows = pa.table(
        {"code": pa.array(range(DOCS), pa.int32()), "text": [f"t{n}" for n in range(DOCS)]}
    )
    made.load(frames={"Doc": rows}, mode="append", engine="local")
    return made


@pytest.fixture
def model(monkeypatch: pytest.MonkeyPatch) -> Iterator[Model]:
    monkeypatch.setenv("OMNIGRAPH_EMBED_RETRY_BACKOFF_MS", "1")
    with running_provider() as running:
        running.model = Model()
        monkeypatch.setenv("OMNIGRAPH_EMBED_BASE_URL", running.url)
        monkeypatch.setenv("OPENAI_API_KEY", "sk-1")
        yield running.model


def vectors(graph: Graph) -> dict[int, Any]:
    rows = graph.table("Doc", columns=["code", "meaning"]).to_arrow().to_pylist()
    return {row["code"]: row["meaning"] for row in rows}


ALL = {number: pytest.approx(mock_vector(f"t{number}", 4)) for number in range(DOCS)}


def asking_process(handler: BaseHTTPRequestHandler) -> int:
    """The process at the other end of a request on the loopback."""
    port = f":{handler.client_address[1]:04X}"
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        words = line.split()
        if words[1].endswith(port):
            socket = f"socket:[{words[9]}]"
            break
    for process in psutil.Process().children(recursive=True):
        for link in Path(f"/proc/{process.pid}/fd").glob("*"):
            with suppress(OSError):
                if os.readlink(link) == socket:  # noqa: PTH115 - not a path
                    return int(process.pid)
    raise AssertionError(f"no process has port {port}")


def test_workers_of_spark_ask_within_one_rate_and_repeat_what_failed(
    docs: Graph, model: Model, spark: Any, monkeypatch: pytest.MonkeyPatch
):
    said = moments(monkeypatch)
    asking: set[int] = set()
    both = threading.Event()

    def ask(number: int, by: BaseHTTPRequestHandler) -> None:
        """No worker is answered before the other has asked: it could do all by itself."""
        asking.add(asking_process(by))
        if len(asking) == 2:
            both.set()
        assert both.wait(SECONDS_MAX)

    model.on_request = ask
    model.faults = {
        2: send(429, {"error": "slow down"}, Retry_After="0"),
        5: send(500, b""),
        7: hang_up,
    }
    limits = BulkLimits(batch_texts=2, concurrency=4, requests_per_second=30)
    receipt = docs.embed(limits=limits, spark=og.SparkOptions(session=spark))
    assert vectors(docs) == ALL
    assert receipt.engine == "spark"
    assert os.getpid() not in asking
    assert len(asking) == 2
    assert model.at_once_max <= 4
    assert (receipt.requests, receipt.retries) == (len(model.batches), 3) == (15, 3)
    assert receipt.tokens == receipt.texts == DOCS
    assert Counter(model.answered) == Counter(f"t{number}" for number in range(DOCS))
    require_rate(model, said, 30)
    assert [commit.kind for commit in docs.list_commits()] == ["load", "load", "genesis"]


@pytest.mark.skipif(not Path("/proc/net/tcp").exists(), reason="finds processes by /proc")
def test_c_pip_013_a_killed_worker_repeats_no_batch_that_was_answered(
    docs: Graph, model: Model, spark: Any
):
    killed: list[list[str]] = []
    lock = threading.Lock()

    def kill(number: int, by: BaseHTTPRequestHandler) -> None:
        with lock:
            if number == 7 and not killed:
                killed.append(model.batches[number - 1])
                os.kill(asking_process(by), signal.SIGKILL)

    model.on_request = kill
    limits = BulkLimits(batch_texts=2, concurrency=2)
    (done,) = docs.embed(limits=limits, spark=og.SparkOptions(session=spark)).properties
    assert killed
    assert vectors(docs) == ALL
    assert done.texts == DOCS
    asked = Counter(text for batch in model.batches for text in batch)
    assert {text for text, times in asked.items() if times > 1} == set(killed[0])
    assert len(model.batches) == DOCS // 2 + 1
