"""The numbers alone, on an address of their own that asks for no token."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from omnigraph.server.bodies import Message, Receive
from omnigraph.server.metrics import Metrics

PATH = b"/metrics"


class MetricsApp:
    """Answers one path."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Receive,
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Answer one request."""
        is_known = scope["raw_path"] == PATH and scope["method"] == "GET"
        body = self._metrics.page() if is_known else b"not found\n"
        media = Metrics.content_type if is_known else "text/plain"
        headers = [
            (b"content-type", media.encode()),
            (b"content-length", b"%d" % len(body)),
        ]
        status = 200 if is_known else 404
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
