"""Connections: how many there may be, how answers leave, and who is hung up on."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from typing import cast

import pytest

from omnigraph.server.config import GraphSpec
from omnigraph.server.connections import JOINED_BYTES_MAX, TAKEN_BYTES_PER_SECOND_MIN, JoinedWrites
from tests.server.live import PATIENCE_SECONDS, Live, serving

HEALTH = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"
SCHEMA = b"GET /graphs/default/schema HTTP/1.1\r\nHost: localhost\r\n\r\n"
UNFINISHED = (
    b"POST /graphs/default/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n"
)


def connect(live: Live) -> socket.socket:
    return socket.create_connection(live.host, timeout=PATIENCE_SECONDS)


def ask(connection: socket.socket, request: bytes) -> bytes:
    """The head of an answer, and what came with it."""
    connection.sendall(request)
    return connection.recv(65_536)


def busy(live: Live) -> socket.socket:
    """A connection that the server waits on in the middle of a request."""
    connection = connect(live)
    assert ask(connection, UNFINISHED).startswith(b"HTTP/1.1 100 ")
    return connection


def test_beyond_the_limit_a_request_is_503_and_a_probe_is_answered(spec: GraphSpec):
    with serving(spec, connections_max=2) as live, busy(live), busy(live):
        with connect(live) as third:
            refused = ask(third, SCHEMA)
            assert refused.startswith(b"HTTP/1.1 503 ")
            assert b"\r\nretry-after: 1\r\n" in refused and b"\r\nconnection: close\r\n" in refused
            assert b'"error_code":"busy"' in refused and b"no room" in refused
            assert third.recv(1) == b""
        with connect(live) as fourth:
            assert ask(fourth, HEALTH).startswith(b"HTTP/1.1 200 ")
            assert fourth.recv(1) == b""


def test_a_connection_that_asks_nothing_makes_room_for_one_that_does(spec: GraphSpec):
    with serving(spec, connections_max=2) as live, busy(live), connect(live) as idle:
        assert ask(idle, SCHEMA).startswith(b"HTTP/1.1 200 ")
        with connect(live) as newer:
            assert ask(newer, SCHEMA).startswith(b"HTTP/1.1 200 ")
            assert ask(newer, SCHEMA).startswith(b"HTTP/1.1 200 ")
        assert idle.recv(1) == b""


class Recorded(asyncio.Transport):
    """What a transport was told to do."""

    def __init__(self) -> None:
        self.seen: list[bytes | str] = []
        self.unsent = 0

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.seen.append(bytes(data))

    def get_write_buffer_size(self) -> int:
        return self.unsent

    def abort(self) -> None:
        self.seen.append("abort")

    def close(self) -> None:
        self.seen.append("close")

    def is_closing(self) -> bool:
        return "close" in self.seen


def test_what_is_written_in_one_turn_of_the_loop_leaves_together_and_in_order():
    async def scenario() -> None:
        beneath = Recorded()
        joined = JoinedWrites(beneath, asyncio.get_running_loop())
        joined.write(b"head")
        joined.write(b"body")
        assert beneath.seen == []
        await asyncio.sleep(0)
        assert beneath.seen == [b"headbody"]
        joined.write(b"last")
        joined.close()
        joined.write(b"too late")
        await asyncio.sleep(0)
        assert beneath.seen == [b"headbody", b"last", "close"]

    asyncio.run(scenario())


def test_a_lot_of_data_is_not_kept_back():
    async def scenario() -> None:
        beneath = Recorded()
        joined = JoinedWrites(beneath, asyncio.get_running_loop())
        joined.write(b"head")
        joined.write(b"x" * JOINED_BYTES_MAX)
        assert beneath.seen == [b"head" + b"x" * JOINED_BYTES_MAX]

    asyncio.run(scenario())


class Timers:
    """A loop whose timers run when they are told to."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []
        self.soon: list[Callable[[], None]] = []

    def call_soon(self, work: Callable[[], None]) -> None:
        self.soon.append(work)

    def turn(self) -> None:
        while self.soon:
            self.soon.pop(0)()

    def call_later(self, _seconds: float, work: Callable[[], None]) -> asyncio.TimerHandle:
        self.waiting.append(work)
        return cast("asyncio.TimerHandle", object())

    def fire(self) -> None:
        self.waiting.pop()()


WAITING = 300_000
SECONDS = 30.0
ENOUGH = int(TAKEN_BYTES_PER_SECOND_MIN * SECONDS)


def watched() -> tuple[Recorded, Timers, JoinedWrites]:
    beneath, loop = Recorded(), Timers()
    joined = JoinedWrites(beneath, cast("asyncio.AbstractEventLoop", loop), SECONDS)
    beneath.unsent = WAITING
    joined.write(b"x")
    loop.turn()
    return beneath, loop, joined


@pytest.mark.parametrize("taken", [0, 1, 30, ENOUGH - 1])
def test_a_client_that_reads_a_few_bytes_a_second_is_disconnected(taken: int):
    beneath, loop, _ = watched()
    beneath.unsent -= taken
    loop.fire()
    assert beneath.seen[-1] == "abort"
    assert not loop.waiting


def test_a_client_that_reads_slowly_and_steadily_is_not():
    beneath, loop, _ = watched()
    while beneath.unsent > ENOUGH:
        beneath.unsent -= ENOUGH
        loop.fire()
    beneath.unsent = 0
    loop.fire()
    assert "abort" not in beneath.seen
    assert not loop.waiting


def test_what_was_written_at_the_end_of_the_time_is_not_asked_for():
    beneath, loop = Recorded(), Timers()
    joined = JoinedWrites(beneath, cast("asyncio.AbstractEventLoop", loop), SECONDS)
    beneath.unsent = 10
    joined.write(b"little")
    loop.turn()
    beneath.unsent = WAITING  # all that was waiting is taken, and much was added
    joined.write(b"y" * WAITING)
    loop.fire()
    assert "abort" not in beneath.seen
    beneath.unsent -= 1
    loop.fire()
    assert beneath.seen[-1] == "abort"
