"""Connection limits that uvicorn lacks, and one write per answer.

uvicorn's C parser limits neither the length of a request's head nor the time to send it; its limit
of connections also rejects probes; it writes head and body separately, and waits forever for a
client that does not read its answer. Its Python parser (`http="h11"`) limits the length, and costs
more than this module (docs/design/server.md).
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
"""Connections beyond the limit, on which probes are answered and other requests refused."""
JOINED_BYTES_MAX = 64 * 1024
"""Writes of more bytes are sent at once, without a copy."""
IS_EXTRA = "omnigraph.extra_connection"
"""The ASGI extension that marks requests on such a connection."""
TAKEN_BYTES_PER_SECOND_MIN = 2048
"""The minimum speed at which a client must read an answer."""
RECORD = "record"
"""The key in the request's state of the record whose `abandon` is called on disconnect."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection, with limits for the head of a request and for the number of connections."""

    head_seconds = HEAD_SECONDS

    def __init__(self, *args: Any, write_seconds: float = CLIENT_SECONDS, **options: Any) -> None:
        super().__init__(*args, **options)
        self.write_seconds = write_seconds
        self.access_log = False  # the application logs requests, without their URL
        # uvicorn's own refusal lacks our envelope, and would reject probes, too.
        self._connections_max, self.limit_concurrency = self.limit_concurrency, None
        self._is_extra = False
        # Connections without a request, longest idle first; shared by all connections.
        self._waiting: dict[GuardedProtocol, None] = vars(self.server_state).setdefault(
            "waiting", {}
        )
        self._malformed: str | None = None
        """The problem of a head that the parser accepts."""
        self._in_head = True
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of the first head; beyond the limit, close an idle connection."""
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
        """Stop the timers, and the work for a request whose client disconnected."""
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
        """Parse bytes; answer 400 if the head is too long."""
        was_in_head = self._in_head
        super().data_received(data)
        if self._in_head:
            # A head that arrives in one piece, the usual case, needs no timer.
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
        """The head is complete: from here on, the application sets limits."""
        self._in_head = False
        self._stop_head_timer()
        self._waiting.pop(self, None)
        is_old = self.parser.get_http_version() == "1.0"
        hosts = [name for name, _ in self.headers].count(b"host")
        if hosts > 1 or (hosts == 0 and not is_old):
            found = "no" if hosts == 0 else "more than one"
            self._malformed = f"the request has {found} `Host`"
            raise ValueError(self._malformed)  # stops the parser, and `send_400_response` is called
        if self._is_extra:
            self.scope["extensions"] = {IS_EXTRA: {}}
        super().on_headers_complete()
        if is_old:
            # HTTP/1.0 has no chunks: an answer without a length ends when the connection closes.
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = UntilClosed()

    def on_response_complete(self) -> None:
        """The connection waits for its next request."""
        super().on_response_complete()
        if self.cycle.response_complete:  # and no request was pipelined
            self._waiting[self] = None

    def send_400_response(self, msg: str) -> None:
        """Answer malformed HTTP with our error envelope, and close the connection."""
        msg = self._malformed or msg
        body = orjson.dumps({"error": msg.rstrip("."), "code": "bad_request"})
        head = (
            b"x-request-id: %s\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n"
        ) % (MINT.ulid().encode(), len(body))
        self.transport.write(STATUS_LINE[400] + head + body)
        self.transport.close()

    def _make_room(self) -> bool:
        """Close the connection that has been idle the longest, if any.

        Its client reconnects when needed. Connections that never sent a request count as idle, too,
        so they cannot lock others out.
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
    """The content length, for uvicorn, of an answer that ends when the connection closes."""

    def __new__(cls) -> UntilClosed:
        """A number larger than any answer."""
        return super().__new__(cls, 1 << 62)

    def __sub__(self, _sent: int) -> UntilClosed:
        return self

    def __ne__(self, _other: object) -> bool:
        return False  # uvicorn compares with 0 to detect missing bytes: none are missing

    __eq__ = int.__eq__
    __hash__ = int.__hash__


class JoinedWrites:
    """A transport that joins the writes of one event loop iteration into one system call.

    uvicorn writes the head and the body of an answer separately, and each write would wake the
    client. A client that reads a pending answer too slowly is disconnected, also while its
    connection is being closed.
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
        """Unsent bytes when the watch began."""
        self._written = 0
        """Bytes written since then."""

    def write(self, data: bytes) -> None:
        """Send at the end of the event loop iteration, in order; a large write at once."""
        if not self._waiting:
            self._loop.call_soon(self._flush)
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        if self._waiting_bytes > JOINED_BYTES_MAX:
            self._flush()

    def close(self) -> None:
        """Send everything pending, then close."""
        self._flush()
        self._transport.close()

    def connection_lost(self) -> None:
        """Stop the watch."""
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
        """Disconnect a client that is slower than the minimum and has not read what was pending."""
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
