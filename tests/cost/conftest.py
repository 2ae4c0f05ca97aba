"""Graphs whose costs are counted: on local disk, and on a real S3 API on loopback."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.graph import Graph, init
from tests.cost.costs import SCHEMA, insert
from tests.effects import s3_server

BUCKET = "costs"


@pytest.fixture
def graph(tmp_path: Path) -> Graph:
    """A local graph that has been written to before."""
    graph = init(tmp_path / "graph.omni", SCHEMA)
    for name in ("ana", "ben"):
        insert(graph, name)
    return graph


@pytest.fixture(scope="session")
def request_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the S3 server writes each request it gets."""
    return tmp_path_factory.mktemp("s3") / "requests.log"


@pytest.fixture(scope="session")
def s3_endpoint(request_log: Path) -> Iterator[str]:
    with s3_server.running_s3(request_log) as endpoint:
        s3_server.create_bucket(endpoint, BUCKET)
        yield endpoint


@pytest.fixture
def s3_root(s3_endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    s3_server.use(s3_endpoint, monkeypatch)
    return f"s3://{BUCKET}/{uuid.uuid4().hex}"


@pytest.fixture
def s3_graph(s3_root: str) -> Graph:
    """A graph in an object store that has been written to before."""
    graph = init(s3_root, SCHEMA)
    for name in ("ana", "ben"):
        insert(graph, name)
    return graph
