"""Answers that are made while they are sent."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from omnigraph.server.pool import EnginePool

CHUNK_BYTES_MAX = 64 * 1024


class Blocks:
    """A blocking iterator, of which the next block is made in a thread when it is asked for."""

    def __init__(self, pool: EnginePool, blocks: Iterator[bytes]) -> None:
        self._pool = pool
        self._blocks = blocks
        self._first: bytes | None = None

    async def start(self) -> None:
        """Make the first block: what is wrong with the request shows by then."""
        self._first = await self._next()

    async def chunks(self, bytes_max: int = CHUNK_BYTES_MAX) -> AsyncIterator[bytes]:
        """The blocks in pieces that are not too large."""
        block = self._first
        while block is not None:
            for start in range(0, len(block), bytes_max):
                yield block[start : start + bytes_max]
            block = await self._next()

    async def close(self) -> None:
        """Give up what the iterator holds on to."""
        close = getattr(self._blocks, "close", None)
        if close is not None:
            await self._pool.read(close)

    async def _next(self) -> bytes | None:
        return await self._pool.read(next, self._blocks, None)
