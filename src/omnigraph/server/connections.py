"""Connections: limits that uvicorn does not have, and one write for each answer.

uvicorn's parser in C limits neither the length of a request's head nor the time it takes, its limit
of connections also turns away probes, and it writes head and body apart. Its parser in Python
(`http="h11"`) limits the length, and costs more than all of this (docs/design/server.md).
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from omnigraph.effects.clock import MINT

HEAD_BYTES_MAX = 64 * 1024
HEAD_SECONDS = 30.0
EXTRA_CONNECTIONS_MAX = 256
"""Connections beyond the limit on which probes are answered and other requests refused."""
JOINED_BYTES_MAX = 64 * 1024
"""Writes of more bytes are sent at once, without a copy."""
IS_EXTRA = "omnigraph.extra_connection"
"""The ASGI extension of a request on one of them."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection, with limits for the head of a request and for the number of connections."""

    head_seconds = HEAD_SECONDS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.access_log = False  # requests are logged by the application, without their URL
        # uvicorn's own refusal is not our envelope, and hits probes as well.
        self._connections_max, self.limit_concurrency = self.limit_concurrency, None
        self._is_extra = False
        self._in_head = True
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of the first head; beyond the limit, close an idle connection."""
        super().connection_made(cast("asyncio.Transport", JoinedWrites(transport, self.loop)))
        self._start_head_timer()
        most = self._connections_max
        if most is not None and len(self.connections) > most and not self._make_room():
            self._is_extra = True
            if len(self.connections) > most + EXTRA_CONNECTIONS_MAX:
                transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_head_timer()
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
        if self._is_extra:
            self.scope["extensions"] = {IS_EXTRA: {}}
        super().on_headers_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection; abort one whose client never read its last answer."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """Answer malformed HTTP with our envelope, and close."""
        body = orjson.dumps({"error": msg.rstrip("."), "code": "bad_request"})
        head = (
            b"x-request-id: %s\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n"
        ) % (MINT.ulid().encode(), len(body))
        self.transport.write(STATUS_LINE[400] + head + body)
        self.transport.close()

    def _make_room(self) -> bool:
        """Close the connection that is idle the longest; its client connects again when needed."""
        idle = {
            each: each.timeout_keep_alive_task.when()
            for each in self.connections
            if isinstance(each, GuardedProtocol) and each.timeout_keep_alive_task is not None
        }
        if not idle:
            return False
        longest = min(idle, key=lambda each: idle[each])
        longest.transport.close()
        self.connections.discard(longest)
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


class JoinedWrites:
    """A transport that joins the writes of one turn of the event loop into one system call.

    uvicorn writes the head and the body of an answer separately. Each write wakes the client, which
    then finds half an answer.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

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

    def _flush(self) -> None:
        if not self._waiting:
            return
        waiting, self._waiting, self._waiting_bytes = self._waiting, [], 0
        if not self._transport.is_closing():
            self._transport.write(waiting[0] if len(waiting) == 1 else b"".join(waiting))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
