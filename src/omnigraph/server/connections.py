"""Connections: limits that uvicorn does not have, and one write for each answer.

uvicorn's parser in C limits neither the length of a request's head nor the time it takes, its limit
of connections also turns away probes, it writes head and body apart, and it waits for ever for a
client that does not read its answer. Its parser in Python (`http="h11"`) limits the length, and
costs more than all of this (docs/design/server.md).
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import orjson
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from omnigraph.effects.clock import MINT
from omnigraph.server.config import CLIENT_SECONDS

HEAD_BYTES_MAX = 64 * 1024
HEAD_SECONDS = 30.0
EXTRA_CONNECTIONS_MAX = 256
"""Connections beyond the limit on which probes are answered and other requests refused."""
JOINED_BYTES_MAX = 64 * 1024
"""Writes of more bytes are sent at once, without a copy."""
IS_EXTRA = "omnigraph.extra_connection"
"""The ASGI extension of a request on one of them."""
TAKEN_BYTES_PER_SECOND_MIN = 2048
"""How fast a client has to read an answer that waits for it."""
RECORD = "record"
"""The key of the request's state under which the application keeps what `abandon` stops."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection, with limits for the head of a request and for the number of connections."""

    head_seconds = HEAD_SECONDS

    def __init__(self, *args: Any, write_seconds: float = CLIENT_SECONDS, **options: Any) -> None:
        super().__init__(*args, **options)
        self.write_seconds = write_seconds
        self.access_log = False  # requests are logged by the application, without their URL
        # uvicorn's own refusal is not our envelope, and hits probes as well.
        self._connections_max, self.limit_concurrency = self.limit_concurrency, None
        self._is_extra = False
        # Connections without a request, the one that waits the longest first; shared by all.
        self._waiting: dict[GuardedProtocol, None] = vars(self.server_state).setdefault(
            "waiting", {}
        )
        self._malformed: str | None = None
        """What is wrong with a head that the parser accepts."""
        self._in_head = True
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of the first head; beyond the limit, close one without a request."""
        joined = JoinedWrites(transport, self.loop, self.write_seconds)
        super().connection_made(cast("asyncio.Transport", joined))
        self._start_head_timer()
        most = self._connections_max
        if most is not None and len(self.connections) > most and not self._make_room():
            self._is_extra = True
            if len(self.connections) > most + EXTRA_CONNECTIONS_MAX:
                transport.abort()
        self._waiting[self] = None

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timers, and the work for a request whose client is gone."""
        self._stop_head_timer()
        self._waiting.pop(self, None)
        cast("JoinedWrites", self.transport).connection_lost()
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None and not cycle.response_complete:
            record = cycle.scope["state"].get(RECORD)
            if record is not None:
                record.abandon()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse bytes; answer 400 when one head is too long."""
        was_in_head = self._in_head
        super().data_received(data)
        if self._in_head:
            # A head that arrives in one piece, as most do, needs no timer.
            self._start_head_timer()
            self._head_bytes += len(data)
            if (
                was_in_head
                and self._head_bytes > HEAD_BYTES_MAX
                and not self.transport.is_closing()
            ):
                self.send_400_response("the head of the request is too long")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = 0

    def on_headers_complete(self) -> None:
        """The head is complete: the application limits the rest."""
        self._in_head = False
        self._stop_head_timer()
        self._waiting.pop(self, None)
        is_old = self.parser.get_http_version() == "1.0"
        hosts = [name for name, _ in self.headers].count(b"host")
        if hosts > 1 or (hosts == 0 and not is_old):
            found = "no" if hosts == 0 else "more than one"
            self._malformed = f"the request has {found} `Host`"
            raise ValueError(self._malformed)  # the parser stops, and `send_400_response` is called
        if self._is_extra:
            self.scope["extensions"] = {IS_EXTRA: {}}
        super().on_headers_complete()
        if is_old:
            # HTTP/1.0 has no chunks: an answer without a length ends with the connection.
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = UntilClosed()

    def on_response_complete(self) -> None:
        """The connection waits for its next request."""
        super().on_response_complete()
        if self.cycle.response_complete:  # and no other request was sent ahead
            self._waiting[self] = None

    def send_400_response(self, msg: str) -> None:
        """Answer malformed HTTP with our envelope, and close."""
        msg = self._malformed or msg
        body = orjson.dumps({"error": msg.rstrip("."), "code": "bad_request"})
        head = (
            b"x-request-id: %s\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n"
        ) % (MINT.ulid().encode(), len(body))
        self.transport.write(STATUS_LINE[400] + head + body)
        self.transport.close()

    def _make_room(self) -> bool:
        """Close the connection that has been without a request the longest, if there is one.

        Its client connects again when needed. One that never sent a request is closed as well, so
        that any number of them cannot keep others out.
        """
        longest = next(iter(self._waiting), None)
        if longest is None:
            return False
        del self._waiting[longest]
        self.connections.discard(longest)
        longest._stop_head_timer()
        longest.transport.close()
        return True

    def _start_head_timer(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self._head_timed_out)

    def _head_timed_out(self) -> None:
        if not self.transport.is_closing():
            self.send_400_response("the head of the request took too long")

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None


class UntilClosed(int):
    """The length of an answer that ends with its connection, for uvicorn, which counts it down."""

    def __new__(cls) -> UntilClosed:
        """More than any answer has."""
        return super().__new__(cls, 1 << 62)

    def __sub__(self, _sent: int) -> UntilClosed:
        return self

    def __ne__(self, _other: object) -> bool:
        return False  # to zero, which uvicorn compares it with: nothing is missing

    __eq__ = int.__eq__
    __hash__ = int.__hash__


class JoinedWrites:
    """A transport that joins the writes of one turn of the event loop into one system call.

    uvicorn writes the head and the body of an answer separately. Each write wakes the client, which
    then finds half an answer. A client that takes too little of what is waiting for it, within so
    many seconds, is disconnected, also while its connection is being closed.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        loop: asyncio.AbstractEventLoop,
        seconds: float = CLIENT_SECONDS,
    ) -> None:
        self._transport = transport
        self._loop = loop
        self._seconds = seconds
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._watch: asyncio.TimerHandle | None = None
        self._unsent = 0
        """Bytes that were left to send when the watch began."""
        self._written = 0
        """Bytes written since."""

    def write(self, data: bytes) -> None:
        """Send at the end of this turn, in order; a large write at once."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > JOINED_BYTES_MAX:
            self._flush()

    def close(self) -> None:
        """Close after everything is sent."""
        self._flush()
        self._transport.close()

    def connection_lost(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def _flush(self) -> None:
        if not self._waiting:
            return
        waiting, size = self._waiting, self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0
        transport = self._transport
        if transport.is_closing():
            return
        transport.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))
        if self._watch is not None:
            self._written += size
        elif unsent := transport.get_write_buffer_size():
            self._begin_watch(unsent)

    def _begin_watch(self, unsent: int) -> None:
        self._unsent, self._written = unsent, 0
        self._watch = self._loop.call_later(self._seconds, self._check_progress)

    def _check_progress(self) -> None:
        """Disconnect a client that has not taken what was waiting, nor as much as a slow one."""
        self._watch = None
        unsent = self._transport.get_write_buffer_size()
        if not unsent:
            return
        taken = self._unsent + self._written - unsent
        if taken < min(self._unsent, TAKEN_BYTES_PER_SECOND_MIN * self._seconds):
            self._transport.abort()
        else:
            self._begin_watch(unsent)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
