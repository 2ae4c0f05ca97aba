"""Clients that ask too much, stop reading, leave or never ask: others are served all the same."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from typing import Any

import httpx
import orjson
import pytest

from omnigraph.errors import Busy, QueryCancelled, TooManyRequests
from omnigraph.graph import Graph
from omnigraph.model.governor import current
from omnigraph.server.admission import SMALL_BYTES, QueryLimits
from omnigraph.server.config import GraphSpec
from omnigraph.server.pool import ACTORS_KEPT_MAX, BoundedThreads, FairQueue
from tests.server.live import PATIENCE_SECONDS, PEOPLE, Live, bearer, serving, with_tokens
from tests.support.waiting import until


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """Queries named `slow` run until their governor stops them, and count themselves."""
    stopped = threading.Event()
    real = Graph.query

    def query(self: Graph, source: Any, *args: Any, **options: Any) -> Any:
        if "slow" not in str(source):
            return real(self, source, *args, **options)
        governor = options.get("governor") or current()
        try:
            while True:
                governor.check()
                time.sleep(0.002)
        finally:
            stopped.set()

    monkeypatch.setattr(Graph, "query", query)
    yield stopped


def post(live: Live, body: dict[str, Any], actor: str | None = None, more: str = "") -> bytes:
    """A raw request for a query."""
    content = orjson.dumps(body)
    token = "" if actor is None else f"Authorization: {bearer(actor)['Authorization']}\r\n"
    head = (
        "POST /graphs/default/query HTTP/1.1\r\nHost: localhost\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n{token}{more}\r\n"
    )
    return head.encode() + content


# --- deadlines and disconnects --------------------------------------------------------------------


def test_a_query_is_stopped_at_the_deadline_of_the_server(spec: GraphSpec, slow: threading.Event):
    with serving(spec, query_seconds=0.05) as live:
        answer = live.client().post("/query", json={"query": "slow"})
    assert (answer.status_code, answer.json()["error_code"]) == (408, "query_timeout")


def test_a_request_can_shorten_its_time_and_not_extend_it(spec: GraphSpec, slow: threading.Event):
    with serving(spec, query_seconds=0.05) as live:
        graph = live.client()
        for asked in ("0.01", "1000"):
            answer = graph.post(
                "/query", json={"query": "slow"}, headers={"Omnigraph-Timeout": asked}
            )
            assert answer.status_code == 408
        for wrong in ("soon", "0", "-1", "inf", "nan"):
            answer = graph.post(
                "/query", json={"query": PEOPLE}, headers={"Omnigraph-Timeout": wrong}
            )
            assert answer.status_code == 400


def test_an_actor_has_a_deadline_of_its_own(spec: GraphSpec, slow: threading.Event):
    limits: Any = {"query_seconds": 600.0, "query_seconds_of": {"act-bo": 0.05}}
    with serving(spec, environment=with_tokens(), **limits) as live:
        assert live.client("act-bo").post("/query", json={"query": "slow"}).status_code == 408


def test_a_client_that_leaves_stops_its_query(spec: GraphSpec, slow: threading.Event):
    with serving(spec, query_seconds=600.0) as live:
        for more in ("", "Connection: close\r\n"):
            slow.clear()
            with socket.create_connection(live.host, PATIENCE_SECONDS) as client:
                client.sendall(post(live, {"query": "slow"}, more=more))
                until(lambda: live.server.app.inflight == 1)
            assert slow.wait(PATIENCE_SECONDS)
            until(lambda: live.server.app.inflight == 0)
        until(lambda: sum('"status":499' in line for line in live.events) == 2)


def test_a_call_that_waits_for_its_turn_is_not_begun_when_its_client_left(
    spec: GraphSpec, slow: threading.Event
):
    with serving(spec, query_seconds=600.0) as live, ExitStack() as stack:
        clients = [
            stack.enter_context(socket.create_connection(live.host, PATIENCE_SECONDS))
            for _ in range(20)
        ]
        for client in clients:
            client.sendall(post(live, {"query": "slow"}))
        until(lambda: live.server.app.inflight == 20)
        for client in clients:
            client.close()
        # Those that ran were stopped; those that waited never began.
        until(lambda: live.server.app.inflight == 0)
        assert live.client().post("/query", json={"query": PEOPLE}).status_code == 200


# --- fairness -------------------------------------------------------------------------------------


def test_an_actor_with_many_reads_leaves_threads_to_others(spec: GraphSpec, slow: threading.Event):
    with (
        serving(spec, environment=with_tokens(), query_seconds=600.0) as live,
        ExitStack() as stack,
    ):
        hostile = [
            stack.enter_context(socket.create_connection(live.host, PATIENCE_SECONDS))
            for _ in range(40)
        ]
        for client in hostile:
            client.sendall(post(live, {"query": "slow"}, "act-bo"))
        until(lambda: live.server.app.inflight == 40)
        ana = live.client("act-ana")
        for _ in range(3):
            assert ana.post("/query", json={"query": PEOPLE}).status_code == 200
        assert ana.get("/stats").status_code == 200
        for path in ("/healthz", "/readyz"):
            assert httpx.get(live.url + path).status_code == 200


def test_calls_are_taken_in_turns_by_actor():
    queue = FairQueue(running_max=2, waiting_max=10, total_max=100)
    jobs: Any = {name: f"job {name}" for name in ("a1", "a2", "a3", "b1", "c1")}
    for name in ("a1", "a2", "a3", "b1", "c1"):
        queue.put(name[0], jobs[name])
    taken: list[Any] = [queue.take()[1] for _ in range(4)]
    assert taken == ["job a1", "job b1", "job c1", "job a2"]
    # `a` has two calls running, and its third waits for one of them.
    assert not queue and queue.waiting == 1
    queue.done("b")
    assert not queue
    queue.done("a")
    last: Any = queue.take()
    assert last == ("a", "job a3")
    for actor in ("a", "a", "c"):
        queue.done(actor)
    assert _running(queue) == 0


def test_queues_of_actors_that_are_gone_are_not_kept_for_ever():
    job: Any = None
    queue = FairQueue(running_max=2, waiting_max=10, total_max=100)
    for number in range(3 * ACTORS_KEPT_MAX):
        queue.put(f"actor-{number}", job)
        queue.done(queue.take()[0])
    assert len(queue._actors) <= ACTORS_KEPT_MAX


def test_the_queue_is_bounded_for_each_actor_and_for_all():
    job: Any = None
    queue = FairQueue(running_max=1, waiting_max=2, total_max=3)
    for actor in ("a", "a", "b"):
        queue.put(actor, job)
    with pytest.raises(TooManyRequests):
        queue.put("a", job)
    with pytest.raises(Busy) as caught:
        queue.put("c", job)
    assert not isinstance(caught.value, TooManyRequests)
    assert queue.waiting == 3


def test_too_many_reads_of_an_actor_are_429_with_retry_after(
    spec: GraphSpec, slow: threading.Event, monkeypatch: pytest.MonkeyPatch
):
    with serving(spec, query_seconds=600.0) as live, ExitStack() as stack:
        jobs = live.server.services.pool._readers._jobs
        monkeypatch.setattr(jobs, "_waiting_max", 1)
        for wanted in range(1, jobs._running_max + 2):
            client = stack.enter_context(socket.create_connection(live.host, PATIENCE_SECONDS))
            client.sendall(post(live, {"query": "slow"}))
            running = min(wanted, jobs._running_max)
            waiting = wanted - running
            until(lambda: _running(jobs) == running)  # noqa: B023
            until(lambda: jobs.waiting == waiting)  # noqa: B023
        refused = live.client().post("/query", json={"query": PEOPLE})
        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
        assert int(refused.headers["retry-after"]) > 0


def _running(jobs: FairQueue) -> int:
    return sum(calls.running for calls in tuple(jobs._actors.values()))


def test_a_call_beside_stuck_ones_starts_at_once():
    async def scenario() -> float:
        workers = BoundedThreads("beside", 8, running_max=2)
        let_go = threading.Event()
        stuck = [asyncio.create_task(workers.run(let_go.wait, "hostile")) for _ in range(5)]
        await asyncio.sleep(0.05)
        await asyncio.wait_for(workers.run(partial(pow, 2, 3), "other"), PATIENCE_SECONDS)
        let_go.set()
        await asyncio.gather(*stuck)
        workers.close()
        return 0.0

    asyncio.run(scenario())


# --- memory ---------------------------------------------------------------------------------------


def test_one_actor_uses_half_of_the_memory_and_small_queries_always_fit():
    limits = QueryLimits(30, {}, bytes_max=8 * SMALL_BYTES)
    hog, other, third = (limits.governor(actor, None) for actor in ("hog", "other", "third"))
    hog.reserve(4 * SMALL_BYTES)
    with pytest.raises(TooManyRequests):
        limits.governor("hog", None).reserve(2 * SMALL_BYTES)
    other.reserve(4 * SMALL_BYTES)
    third.reserve(1)
    with pytest.raises(TooManyRequests):
        third.reserve(3 * SMALL_BYTES)
    for governor in (hog, other, third):
        governor.close()
    assert limits.memory.used == 0


def test_memory_of_rows_is_returned_when_they_are_sent(spec: GraphSpec):
    with serving(spec) as live:
        graph = live.client()
        for accept in ("application/json", "application/vnd.apache.arrow.stream"):
            answer = graph.post("/query", json={"query": PEOPLE}, headers={"Accept": accept})
            assert answer.status_code == 200
        until(lambda: live.server.services.queries.memory.used == 0)


def test_a_cancelled_governor_says_so():
    governor = QueryLimits(0, {}, bytes_max=1 << 20).governor(None, None)
    assert governor.timeout_s is None
    governor.cancel("its client disconnected")
    with pytest.raises(QueryCancelled, match="disconnected"):
        governor.check()


# --- answers that are not read --------------------------------------------------------------------

BIG = 48 * 1024 * 1024


@pytest.fixture
def big(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every query answers with many bytes."""
    from omnigraph.server.routes import queries

    monkeypatch.setattr(queries, "_json", lambda _run, _with_commit: b" " * BIG)


def unread(live: Live, stack: ExitStack, more: str = "") -> socket.socket:
    """A connection whose answer has begun and is not being read."""
    connection = stack.enter_context(socket.socket())
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    connection.settimeout(PATIENCE_SECONDS)
    connection.connect(live.host)
    connection.sendall(post(live, {"query": PEOPLE}, more=more))
    assert connection.recv(15).startswith(b"HTTP/1.1 200 OK")
    return connection


@pytest.mark.parametrize("more", ["", "Connection: close\r\n"])
def test_a_client_that_stops_reading_is_disconnected_and_its_buffer_is_small(
    spec: GraphSpec, big: None, more: str
):
    with serving(spec, client_seconds=0.3) as live, ExitStack() as stack:
        for _ in range(3):
            unread(live, stack, more)
        state = live.server._http.server_state

        async def buffered() -> int:
            return max(
                (each.transport.get_write_buffer_size() for each in state.connections), default=0
            )

        assert live.call(buffered) <= 1024 * 1024
        until(lambda: live.server.app.inflight == 0 and not state.connections)


def test_a_client_that_reads_slowly_gets_everything(spec: GraphSpec, big: None):
    with serving(spec, client_seconds=60.0) as live, ExitStack() as stack:
        connection = unread(live, stack, "Connection: close\r\n")
        time.sleep(0.1)
        received = 0
        while piece := connection.recv(1 << 20):
            received += len(piece)
        assert received > BIG


@pytest.mark.parametrize("more", ["", "Connection: close\r\n"])
def test_stopping_ends_within_its_timeout_whatever_clients_do(
    spec: GraphSpec, big: None, more: str
):
    with ExitStack() as stack:
        with serving(spec, shutdown_seconds=0.3, client_seconds=3_600.0, waits=False) as live:
            unread(live, stack, more)
        live.thread.join(PATIENCE_SECONDS)
        assert not live.thread.is_alive()


# --- connections without a request ----------------------------------------------------------------


def test_probes_are_answered_beside_any_number_of_half_open_connections(spec: GraphSpec):
    most = 20
    with serving(spec, connections_max=most) as live, ExitStack() as stack:
        for at in range(400):
            half = stack.enter_context(socket.create_connection(live.host, PATIENCE_SECONDS))
            half.sendall(b"GET /healthz HTTP/1.1\r\nHo" if at % 2 else b"")
        for path in ("/healthz", "/readyz", "/graphs/default/schema"):
            assert httpx.get(live.url + path).status_code == 200


# --- HTTP -----------------------------------------------------------------------------------------


def exchange(live: Live, request: bytes) -> bytes:
    with socket.create_connection(live.host, PATIENCE_SECONDS) as connection:
        connection.sendall(request)
        answer = b""
        while piece := connection.recv(65_536):
            answer += piece
        return answer


def test_http_1_0_gets_no_chunks(open_server: Live):
    body = b"{}"
    answer = exchange(
        open_server,
        b"POST /graphs/default/export HTTP/1.0\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body),
    )
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 ") and b"chunked" not in head.lower()
    assert b"connection: close" in head.lower()
    lines = content.splitlines()
    assert len(lines) == 4 and all(orjson.loads(line) for line in lines)
    plain = exchange(open_server, b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
    assert b"content-length: " in plain and plain.endswith(b"}")


@pytest.mark.parametrize("hosts", [b"", b"Host: localhost\r\nHost: localhost\r\n"])
def test_a_missing_or_double_host_is_400(guarded: Live, hosts: bytes):
    answer = exchange(guarded, b"GET /healthz HTTP/1.1\r\n%s\r\n" % hosts)
    assert answer.startswith(b"HTTP/1.1 400 ") and b"`Host`" in answer
    assert b"connection: close" in answer
