"""Answers that are made while they are sent, and what they hold on to."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import httpx
import orjson
import pytest
from starlette.types import Message, Receive, Scope, Send

from omnigraph.errors import LimitExceeded
from omnigraph.server.admission import RESPONSE_BYTES, StreamBudget
from omnigraph.server.config import GraphSpec
from omnigraph.server.responses import BlockResponse
from tests.server.live import PATIENCE_SECONDS, Live, new_graph, serving
from tests.support.waiting import until

PEOPLE = 40_000
"""More than the buffers of a connection hold."""


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> GraphSpec:
    root = tmp_path_factory.mktemp("big") / "big.omni"
    filler = "x" * 200
    lines = "\n".join(
        f'{{"type": "City", "data": {{"name": "{i:06d}{filler}"}}}}' for i in range(PEOPLE)
    )
    new_graph(root, lines)
    return GraphSpec("default", str(root))


def begin_export(live: Live, buffer: int = 4096) -> socket.socket:
    """A connection whose export has begun and is not being read."""
    return begin(live, "export", b"", buffer)


def begin(live: Live, path: str, body: bytes, buffer: int = 4096) -> socket.socket:
    """A connection whose answer has begun and is not being read."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.settimeout(PATIENCE_SECONDS)
    connection.connect(live.host)
    connection.sendall(
        b"POST /graphs/default/%s HTTP/1.1\r\nHost: localhost\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s"
        % (path.encode(), len(body), body)
    )
    assert connection.recv(15).startswith(b"HTTP/1.1 200 OK")
    return connection


def test_an_export_is_lines_that_load_again(open_server: Live, tmp_path: Path):
    answer = open_server.client().post("/export", json={})
    assert answer.headers["content-type"] == "application/x-ndjson; charset=utf-8"
    assert answer.headers["transfer-encoding"] == "chunked"
    records = [orjson.loads(line) for line in answer.content.splitlines()]
    assert len(records) == 4
    copy = new_graph(tmp_path / "copy.omni", "")
    copy.load(data=answer.content, mode="overwrite", engine="local")
    assert b"".join(copy.export()) == answer.content
    cities = open_server.client().post("/export", json={"type_names": ["City"]})
    assert len(cities.content.splitlines()) == 1


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"type_names": ["Nothing"]}, (400, 404)),
        ({"branch": "nowhere"}, (404,)),
        ({"table_keys": ["node:Person"]}, (400,)),
        ({"type_names": "City"}, (400,)),
    ],
)
def test_every_check_precedes_the_200(open_server: Live, body: object, status: tuple[int, ...]):
    answer = open_server.client().post("/export", json=body)
    assert answer.status_code in status
    assert open_server.client().post("/export", json={}).status_code == 200


def test_c_srv_039_a_second_export_is_413_and_a_disconnect_frees_the_slot(big: GraphSpec):
    with serving(big) as live:
        client = live.client()
        streams = live.server.services.streams
        first = begin_export(live)
        for path in ("/export", "/changes/baseline"):
            second = client.post(path, json={})
            assert (second.status_code, second.json()["code"]) == (413, "bad_request")
            assert second.json()["resource_limit"] == {
                "resource": "stream_export_slots",
                "limit": 1,
                "actual": 2,
            }
        assert streams.slots_taken == 1
        first.close()
        until(lambda: streams.slots_taken == 0)
        assert len(client.post("/export", json={}).content.splitlines()) == PEOPLE


@pytest.mark.parametrize("path", ["/export", "/changes/baseline"])
def test_a_slot_is_free_before_a_client_reads_the_end(
    open_server: Live, monkeypatch: pytest.MonkeyPatch, path: str
):
    streams = open_server.server.services.streams
    answer = BlockResponse.__call__
    sent: list[tuple[bool, int]] = []

    async def watched(self: BlockResponse, scope: Scope, receive: Receive, send: Send) -> None:
        async def note(message: Message) -> None:
            sent.append((message.get("more_body", True), streams.slots_taken))
            await send(message)

        await answer(self, scope, receive, note)

    monkeypatch.setattr(BlockResponse, "__call__", watched)
    assert open_server.client().post(path, json={}).status_code == 200
    *before, end = sent
    assert before and set(before) == {(True, 1)}
    assert end == (False, 0)


def test_a_reader_that_stops_reading_loses_its_slot(big: GraphSpec):
    with serving(big, client_seconds=0.2) as live:
        stuck = begin_export(live)
        until(lambda: live.server.services.streams.slots_taken == 0)
        stuck.close()


def test_who_never_takes_a_whole_answer_is_hung_up_on(big: GraphSpec):
    everything = b'{"query": "query q { match { $c: City } return { $c.name } }"}'
    with serving(big, client_seconds=0.2) as live:
        stuck = begin(live, "query", everything)
        connections = live.server._http.server_state.connections
        assert len(connections) == 1
        until(lambda: not connections)
        stuck.close()


def test_a_failure_after_the_head_breaks_the_connection_off(tmp_path: Path):
    root = tmp_path / "big.omni"
    filler = "x" * 200
    lines = (f'{{"type": "City", "data": {{"name": "{i:06d}{filler}"}}}}' for i in range(PEOPLE))
    new_graph(root, "\n".join(lines))
    with serving(GraphSpec("default", str(root))) as live:
        connection = begin_export(live, 65_536)
        for file in (root / "nodes").rglob("*.lance"):
            file.write_bytes(b"")
        received = b""
        try:
            while chunk := connection.recv(1 << 20):
                received += chunk
        except ConnectionError:
            pass
        connection.close()
        assert received and not received.endswith(b"0\r\n\r\n")
        until(lambda: live.server.services.streams.slots_taken == 0)


def test_the_transport_budget_is_shared_waited_for_and_given_back():
    async def scenario() -> None:
        budget = StreamBudget(2 * RESPONSE_BYTES)
        async with budget.stream("a"):
            async with budget.stream("b"):
                with pytest.raises(LimitExceeded) as caught:
                    async with budget.stream("c"):
                        pass
                assert caught.value.details == {
                    "resource": "stream_export_transport_bytes",
                    "limit": 2 * RESPONSE_BYTES,
                    "actual": 3 * RESPONSE_BYTES,
                }
                assert budget.slots_taken == 2
                waiting = asyncio.create_task(_use(budget, "d"))
                await asyncio.sleep(0)
            assert await waiting == "used"
        assert budget.slots_taken == 0
        async with budget.stream("a"), budget.stream("b"):
            assert budget.slots_taken == 2

    asyncio.run(scenario())


async def _use(budget: StreamBudget, root: str) -> str:
    async with budget.stream(root):
        return "used"


def test_a_denied_export_takes_no_slot(guarded: Live):
    assert guarded.client("act-cy").post("/export", json={}).status_code == 403
    assert httpx.post(f"{guarded.url}/graphs/default/export").status_code == 401
    assert guarded.server.services.streams.slots_taken == 0
