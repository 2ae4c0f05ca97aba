"""The HTTP protocol, with patience: a request whose head is too long or too slow is cut off."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from omnigraph.effects.ids import MINT

HEAD_BYTES_MAX = 64 * 1024
HEAD_SECONDS = 30.0


class GuardedProtocol(HttpToolsProtocol):
    """One connection. The library limits neither how long a head is nor how long it takes."""

    head_seconds = HEAD_SECONDS

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.access_log = False  # requests are logged by the application, without their URL
        self._in_head = True
        self._head_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start waiting for the first request."""
        super().connection_made(transport)
        self._expect_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes, unless they are one head that never ends."""
        was_in_head = self._in_head
        super().data_received(data)
        if was_in_head and self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX and not self.transport.is_closing():
                self.send_400_response("the head of the request is too long")

    def on_message_begin(self) -> None:
        """A request begins."""
        super().on_message_begin()
        self._expect_head()

    def on_headers_complete(self) -> None:
        """The head is whole: from here on, the application is in charge."""
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        """Answer what is not HTTP in the form of every other error, and hang up."""
        body = orjson.dumps({"error": msg.rstrip("."), "code": "bad_request"})
        head = (
            b"x-request-id: %s\r\ncontent-type: application/json\r\n"
            b"content-length: %d\r\nconnection: close\r\n\r\n"
        ) % (MINT.ulid().encode(), len(body))
        self.transport.write(STATUS_LINE[400] + head + body)
        self.transport.close()

    def _expect_head(self) -> None:
        self._in_head = True
        self._head_bytes = 0
        self._stop_timer()
        self._head_timer = self.loop.call_later(self.head_seconds, self._give_up)

    def _give_up(self) -> None:
        if not self.transport.is_closing():
            self.send_400_response("the head of the request took too long")

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
