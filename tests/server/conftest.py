"""Graphs and servers for the tests of this room."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from omnigraph.server.config import GraphSpec
from tests.server.live import (
    POLICY,
    QUERIES,
    SERVER_POLICY,
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
    queries = tmp_path / "queries"
    queries.mkdir()
    (queries / "people.gq").write_text(QUERIES)
    return GraphSpec("default", str(root), (queries,))


@pytest.fixture(scope="session", autouse=True)
def servers_end() -> Iterator[None]:
    """Servers end beside the next test; the last one is waited for."""
    yield
    require_ended()


@pytest.fixture
def open_server(spec: GraphSpec) -> Iterator[Live]:
    """Everybody may do everything."""
    with serving(spec, waits=False) as live:
        yield live


@pytest.fixture
def guarded(spec: GraphSpec, tmp_path: Path) -> Iterator[Live]:
    """Tokens, a policy for the graph and one for the server."""
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    server_policy = tmp_path / "server.yaml"
    server_policy.write_text(SERVER_POLICY)
    ruled = GraphSpec(spec.graph_id, spec.uri, spec.queries, policy)
    with serving(
        ruled, environment=with_tokens(), waits=False, server_policy=server_policy
    ) as live:
        yield live
