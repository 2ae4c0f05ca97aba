"""What a blob costs: knowing it costs no payload, and a part of it costs that part."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from random import Random

import orjson
import pytest

from omnigraph.graph import Graph, init, open_graph
from omnigraph.graph.blobs import Blob
from tests.cost.costs import cost_of

SCHEMA = "node Person { name: String @key  photo: Blob?  age: I32? }"
LARGE = Random(6).randbytes(12_000_000)
STAT_REQUESTS_MAX = 4
READ_BYTES_SLACK = 64 * 1024
"""Lance rounds what it reads to whole blocks."""


def filled(uri: str) -> Graph:
    graph = init(uri, SCHEMA)
    values = {"large": LARGE, "middle": LARGE[:100_000], "small": LARGE[:50]}
    records = [
        {"type": "Person", "data": {"name": name, "photo": f"base64:{b64encode(data).decode()}"}}
        for name, data in values.items()
    ]
    graph.load(mode="append", data=b"\n".join(map(orjson.dumps, records)))
    return graph


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    return filled(str(tmp_path_factory.mktemp("blobs") / "graph.omni"))


@pytest.fixture
def remote(s3_root: str) -> Graph:
    return filled(s3_root)


def photo(graph: Graph, name: str) -> Blob:
    return graph.blob("node", "Person", name, "photo")


def sent(graph: Graph, log: Path, work: Callable[[], object]) -> list[tuple[str, int | None]]:
    """The requests of some work below the tables, each with the bytes it asked for."""
    before = len(log.read_text(encoding="utf-8").splitlines())
    work()
    lines = log.read_text(encoding="utf-8").splitlines()[before:]
    inside = [line for line in lines if "/nodes/" in line]
    return [(line, _asked_bytes(line)) for line in inside]


def _asked_bytes(line: str) -> int | None:
    found = re.search(r"bytes=(\d+)-(\d+)$", line)
    return int(found[2]) - int(found[1]) + 1 if found else None


def test_a_stat_is_one_lookup_on_an_open_table(local: Graph):
    photo(local, "large")
    cost = cost_of(local, lambda: photo(local, "large").stat)
    assert cost.shape["lookup table"] == 1, cost.table()
    assert cost.requests <= STAT_REQUESTS_MAX, cost.table()
    assert not any("blob" in event.verb for event in cost.events), cost.table()


def test_the_cost_of_a_stat_does_not_depend_on_the_size(local: Graph):
    photo(local, "small")
    small = cost_of(local, lambda: photo(local, "small"))
    large = cost_of(local, lambda: photo(local, "large"))
    assert small.shape == large.shape


def test_each_chunk_is_one_read(local: Graph):
    blob = photo(local, "large")
    cost = cost_of(local, lambda: list(blob.chunks()))
    assert cost.report.count("lance", "read_blob_range") == 3, cost.table()
    assert cost.report.count("lance", "read_blobs") == 1, cost.table()
    again = cost_of(local, lambda: blob.read(5, 5))
    assert again.requests == 1, again.table()


@pytest.mark.parametrize("name", ["large", "middle"])
def test_a_stat_fetches_no_payload(remote: Graph, request_log: Path, name: str):
    graph = open_graph(remote.uri, "read_only")
    requests = sent(graph, request_log, lambda: photo(graph, name))
    shown = "\n".join(line for line, _ in requests)
    assert requests, "the log has what was asked"
    assert ".blob" not in shown, shown


@pytest.mark.parametrize("name", ["large", "middle", "small"])
def test_a_range_fetches_that_range(remote: Graph, request_log: Path, name: str):
    graph = open_graph(remote.uri, "read_only")
    blob = photo(graph, name)
    blob.read(0, 1)  # whatever has to be opened is open now
    requests = sent(graph, request_log, lambda: blob.read(10, 30))
    shown = "\n".join(line for line, _ in requests)
    assert len(requests) == 1, shown
    assert requests[0][1] is not None and requests[0][1] <= READ_BYTES_SLACK, shown


def test_streaming_asks_for_no_byte_twice(remote: Graph, request_log: Path):
    graph = open_graph(remote.uri, "read_only")
    blob = photo(graph, "large")
    blob.read(0, 1)
    requests = sent(graph, request_log, lambda: [len(piece) for piece in blob.chunks()])
    shown = "\n".join(line for line, _ in requests)
    assert sum(size or 0 for _, size in requests) <= len(LARGE) + READ_BYTES_SLACK, shown
