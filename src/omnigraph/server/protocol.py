"""The HTTP protocol, with patience: a request whose head is too long or too slow is cut off."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from omnigraph.effects.clock import MINT
from omnigraph.server.joined import JoinedWrites

HEAD_BYTES_MAX = 64 * 1024
HEAD_SECONDS = 30.0
EXTRA_CONNECTIONS_MAX = 256
"""Connections beyond those that there is room for, on which a probe or a refusal is answered."""
IS_EXTRA = "omnigraph.extra_connection"
"""The extension of a request that came on one of them."""


class GuardedProtocol(HttpToolsProtocol):
    """One connection. The library limits neither how long a head is nor how long it takes."""

    head_seconds = HEAD_SECONDS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.access_log = False  # requests are logged by the application, without their URL
        # The library would answer in another form, and would not answer probes either.
        self._connections_max, self.limit_concurrency = self.limit_concurrency, None
        self._is_extra = False
        self._in_head = True
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request."""
        super().connection_made(cast("asyncio.Transport", JoinedWrites(transport, self.loop)))
        self._watch_head()
        most = self._connections_max
        if most is not None and len(self.connections) > most and not self._make_room():
            self._is_extra = True
            if len(self.connections) > most + EXTRA_CONNECTIONS_MAX:
                transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless they are one head that never ends."""
        was_in_head = self._in_head
        super().data_received(data)
        if self._in_head:
            # Most heads come in one piece: for those there is nothing to watch.
            self._watch_head()
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
        """The head is whole: from here on, the application is in charge."""
        self._in_head = False
        self._stop_timer()
        if self._is_extra:
            self.scope["extensions"] = {IS_EXTRA: {}}
        super().on_headers_complete()

    def timeout_keep_alive_handler(self) -> None:
        """Nothing was asked for a long time: hang up, also on who never took its last answer."""
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP in the form of every other error, and hang up."""
        body = orjson.dumps({"error": msg.rstrip("."), "code": "bad_request"})
        head = (
            b"x-request-id: %s\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n"
        ) % (MINT.ulid().encode(), len(body))
        self.transport.write(STATUS_LINE[400] + head + body)
        self.transport.close()

    def _make_room(self) -> bool:
        """Hang up on whoever asked nothing for the longest time; its next request connects anew."""
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

    def _watch_head(self) -> None:
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.send_400_response("the head of the request took too long")

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
