"""What streams may take: one cut of each graph at a time, and a share of the memory for transport.

Both are given back however a stream ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from omnigraph.errors import LimitExceeded

RESPONSE_BYTES = 256 * 1024
PROCESS_BYTES = 2 * 1024 * 1024
WAIT_SECONDS = 0.25


class StreamBudget:
    """Hands out the right to stream. Used on the event loop only."""

    def __init__(self, process_bytes: int = PROCESS_BYTES) -> None:
        self._process_bytes = process_bytes
        self._taken = 0
        self._roots: set[str] = set()
        self._changed = asyncio.Condition()

    @property
    def slots_taken(self) -> int:
        """The graphs that are being streamed."""
        return len(self._roots)

    @asynccontextmanager
    async def stream(self, root: str) -> AsyncIterator[None]:
        """Stream a graph while the block runs, or raise `LimitExceeded`."""
        if root in self._roots:
            raise LimitExceeded(
                "stream_export_slots",
                1,
                2,
                hint="another stream of this graph is under way; try again when it is done",
            )
        self._roots.add(root)
        try:
            await self._reserve()
            try:
                yield
            finally:
                self._taken -= RESPONSE_BYTES
                async with self._changed:
                    self._changed.notify()
        finally:
            self._roots.discard(root)

    async def _reserve(self) -> None:
        wanted = RESPONSE_BYTES

        def fits() -> bool:
            return self._taken + wanted <= self._process_bytes

        try:
            async with asyncio.timeout(WAIT_SECONDS), self._changed:
                await self._changed.wait_for(fits)
                self._taken += wanted
        except TimeoutError:
            raise LimitExceeded(
                "stream_export_transport_bytes",
                self._process_bytes,
                self._taken + wanted,
                hint="too many streams are under way; try again when some are done",
            ) from None
