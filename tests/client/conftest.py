"""One graph, open in this process and behind a real server."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.client import RemoteGraph
from omnigraph.graph import Graph
from omnigraph.server.config import GraphSpec
from tests.server.live import (
    POLICY,
    QUERIES,
    SERVER_POLICY,
    TOKENS,
    Live,
    new_graph,
    require_ended,
    serving,
    with_tokens,
)


@pytest.fixture
def spec(tmp_path: Path) -> GraphSpec:
    """A graph with stored queries and no policy."""
    root = tmp_path / "team.omni"
    new_graph(root)
    queries = tmp_path / "queries.gq"
    queries.write_text(QUERIES)
    return GraphSpec("default", str(root), (queries,))


@pytest.fixture(scope="session", autouse=True)
def servers_end() -> Iterator[None]:
    """Servers end beside the next test; the last one is waited for."""
    yield
    require_ended()


@pytest.fixture
def live(spec: GraphSpec) -> Iterator[Live]:
    """A server that lets everybody do everything."""
    with serving(spec, waits=False) as live:
        yield live


@pytest.fixture
def url(live: Live) -> str:
    return f"{live.url}/graphs/default"


@pytest.fixture
def remote(url: str) -> Iterator[RemoteGraph]:
    with og.connect(url) as graph:
        yield graph


@pytest.fixture
def local(live: Live) -> Graph:
    """The very graph that is served."""
    return live.graph()


@dataclass(frozen=True)
class Guarded:
    """A server with tokens and policies."""

    live: Live

    def connect(self, actor: str) -> RemoteGraph:
        return og.connect(self.live.url, TOKENS[actor], graph="default")


@pytest.fixture
def guarded(spec: GraphSpec, tmp_path: Path) -> Iterator[Guarded]:
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    server_policy = tmp_path / "server.yaml"
    server_policy.write_text(SERVER_POLICY)
    ruled = GraphSpec(spec.graph_id, spec.uri, spec.queries, policy)
    with serving(
        ruled, environment=with_tokens(), waits=False, server_policy=server_policy
    ) as live:
        yield Guarded(live)
