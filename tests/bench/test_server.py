"""The suites of the server and of reviews, as small as they can be: they count what they say."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from bench import access, reviews, server
from bench.figure import Target
from bench.server_load import RawConnection, answers_per_second, request_bytes
from tests.support.forked import Command


@contextmanager
def forked(uri: str, *arguments: str, **environment: str) -> Iterator[tuple[Command, str]]:
    """`bench.server.process`, in a process that is forked."""
    words = ("serve", "--store", uri, "--bind", "127.0.0.1:0", *arguments)
    process = Command(*words, env={**os.environ, **environment})
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    try:
        yield process, f"http://{line.strip().partition('=')[2]}/graphs/default"
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate()


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Servers are forked. The test of the client starts one as the benchmark does."""
    monkeypatch.setattr(server, "process", forked)


@pytest.mark.slow
@pytest.mark.usefixtures("forks")
def test_c_acc_015_every_figure_is_measured_also_views_and_the_audit_against_their_bounds(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(access, "PAIRS", 1)
    found = {
        figure.name: figure for figure in server.measure_all(server.Sizes(200, 10, 0.1, 400, 0.4))
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
    for name, bound in (
        ("point query, under a view", 1.3),
        ("2 hops, under a view", 1.5),
        ("point query, served with an audit", 1.05),
    ):
        assert found[name].target == Target(bound, "at most")
        assert (found[name].ratio or 0) > 0


@pytest.mark.usefixtures("forks")
def test_the_suite_of_reviews_measures_pages_and_lists():
    found = list(reviews.measure_all(reviews.Sizes(300, 52, 2, 1)))
    assert [figure.name for figure in found] == [
        "first page of a plan, served",
        "first page of a diff, served",
        "first page of a diff, embedded",
        "list of open requests",
    ]
    assert all(figure.value > 0 for figure in found)


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
