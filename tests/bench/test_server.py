"""The suite of the server, as small as it can be: its figures are right about what they count."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import server
from bench.server_load import RawConnection, answers_per_second, request_bytes


@pytest.mark.slow
def test_every_figure_is_measured():
    found = {
        figure.name: figure for figure in server.measure_all(server.Sizes(200, 10, 0.1, 400, 1.0))
    }
    assert found["400 rows as Arrow"].versus is not None
    assert (found["16 connections, served"].ratio or 0) > 0
    for name in (
        "mixed: answers with 5xx",
        "mixed: acknowledged writes that are missing",
        "mixed: 429 for the others",
        "mixed: 429 without Retry-After",
    ):
        assert found[name].is_met, found[name].note


def test_the_bare_client_reads_answers_and_notices_failures(tmp_path: Path):
    graph = server.new_graph(tmp_path / "people.omni", 3)
    with server.served(graph.uri) as url:
        good = server._point_request(url, "p1")
        connection = RawConnection.to(url)
        for _ in range(2):
            assert b'"p.name":"Person 1"' in connection.ask(good)
        assert answers_per_second([url], [good], 2, 0.1) > 0
        with pytest.raises(RuntimeError, match="query"):
            connection.ask(request_bytes(url, "/query", b"{}"))
        connection.socket.close()
