"""Baselines over HTTP: entities as they come, and behind the last one the cursor."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

from omnigraph.client.answers import baseline_line
from omnigraph.client.connection import AsyncStream, Stream
from omnigraph.client.lines import LineBuffer
from omnigraph.errors import UnexpectedAnswer
from omnigraph.model.changes import EntityRecord, Handshake

_HANDSHAKE = b'{"baseline"'


class RemoteBaseline:
    """The entities of one commit, read as they are asked for, once.

    Iterating gives the entities. After the last one `handshake` says where the feed goes on; as
    long as it is None, the baseline is not complete.
    """

    entity_count: int | None = None
    """Known only where the tables are."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self.handshake: Handshake | None = None

    def __iter__(self) -> Iterator[EntityRecord]:
        for block in self.blocks():
            for line in block.splitlines():
                found = _line(line)
                if isinstance(found, EntityRecord):
                    yield found

    def blocks(self) -> Iterator[bytes]:
        """JSON lines in blocks of whole lines: every entity, and at the very end the handshake."""
        lines = LineBuffer()
        for chunk in self._stream:
            block = lines.feed(chunk)
            if block:
                yield block
                # Only now has the caller had what the cursor continues.
                self.handshake = handshake_in(block)
        _require_complete(self.handshake)

    def close(self) -> None:
        """Stop reading before the end."""
        self._stream.close()


class AsyncRemoteBaseline:
    """The same without blocking."""

    def __init__(self, stream: AsyncStream) -> None:
        self._stream = stream
        self.handshake: Handshake | None = None

    async def __aiter__(self) -> AsyncIterator[EntityRecord]:
        async for block in self.blocks():
            for line in block.splitlines():
                found = _line(line)
                if isinstance(found, EntityRecord):
                    yield found

    async def blocks(self) -> AsyncIterator[bytes]:
        """JSON lines in blocks of whole lines: every entity, and at the very end the handshake."""
        lines = LineBuffer()
        async for chunk in self._stream:
            block = lines.feed(chunk)
            if block:
                yield block
                # Only now has the caller had what the cursor continues.
                self.handshake = handshake_in(block)
        _require_complete(self.handshake)

    async def close(self) -> None:
        """Stop reading before the end."""
        await self._stream.close()


def handshake_in(block: bytes) -> Handshake | None:
    """The handshake, if a block of whole lines ends with it."""
    last = block[block.rstrip(b"\n").rfind(b"\n") + 1 :]
    if not last.startswith(_HANDSHAKE):
        return None
    found = _line(last)
    assert isinstance(found, Handshake)
    return found


def _line(line: bytes) -> EntityRecord | Handshake:
    try:
        return baseline_line(line)
    except (KeyError, TypeError, ValueError) as problem:
        raise UnexpectedAnswer(f"a line of the baseline cannot be read: {problem}") from problem


def _require_complete(handshake: Handshake | None) -> None:
    if handshake is None:
        raise UnexpectedAnswer("the baseline ended before its last record", hint="take it again")
