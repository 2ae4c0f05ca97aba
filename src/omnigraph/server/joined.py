"""Writes that leave together.

The HTTP library writes the head of an answer and its body one after the other. Each write is a call
of the system and wakes the client, which then finds half an answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

JOINED_BYTES_MAX = 64 * 1024
"""More than that is not kept back, nor copied behind something else."""


class JoinedWrites:
    """A transport that sends what is written in one turn of the event loop at once."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._kept: list[bytes] = []
        self._kept_bytes = 0

    def write(self, data: bytes) -> None:
        """Send soon, in order; a lot of data is sent at once."""
        if not self._kept:
            self._loop.call_soon(self._flush)
        self._kept.append(data)
        self._kept_bytes += len(data)
        if self._kept_bytes > JOINED_BYTES_MAX:
            self._flush()

    def close(self) -> None:
        """Hang up when everything is sent."""
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if not self._kept:
            return
        kept, self._kept, self._kept_bytes = self._kept, [], 0
        if not self._transport.is_closing():
            self._transport.write(kept[0] if len(kept) == 1 else b"".join(kept))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
