"""Blobs over HTTP: what one is is asked at once, its bytes when they are wanted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping

from omnigraph.client import exchanges
from omnigraph.client.connection import AsyncConnection, Connection, Stream
from omnigraph.client.exchange import Answer, Exchange
from omnigraph.errors import Conflict, InputError, NotFound
from omnigraph.model.blobs import (
    CHUNK_BYTES_MAX,
    BlobSelector,
    BlobStat,
    ByteRange,
    KnownBlob,
)
from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.model.result import ReadTarget
from omnigraph.wire.requests import SNAPSHOT_ID


class BlobAddress:
    """Which blob is meant, and how a server is asked about it."""

    def __init__(self, selector: BlobSelector, branch: str | None, snapshot: str | None) -> None:
        self.selector = selector
        self._target = (
            ReadTarget(None, snapshot)
            if snapshot is not None
            else ReadTarget(branch or MAIN_BRANCH)
        )
        self._selected: Mapping[str, str | None] = exchanges.blob_query(selector, branch, snapshot)

    def head(self) -> Exchange[BlobStat]:
        """Ask what it is."""
        return exchanges.head_blob(self._selected, self._stat)

    def get(self, wanted: ByteRange, stat: BlobStat) -> Exchange[None]:
        """Ask for bytes of it, as long as it is what it was; `Conflict` if it is not."""
        assert stat.etag is not None
        return exchanges.get_blob(self._selected, wanted.start, wanted.end, stat.etag)

    def get_old(self, wanted: ByteRange, stat: BlobStat) -> Exchange[None]:
        """Ask for bytes of what it was when it was found."""
        pinned = BlobAddress(self.selector, None, stat.resolved_snapshot)
        return pinned.get(wanted, stat)

    def missing(self) -> NotFound:
        """The error for nothing there. Answers to HEAD have no words of their own."""
        return NotFound(
            f"there is no {self.selector} on {self._target}",
            hint="ids are case-sensitive, of a keyed node it is the key; or the value is null",
            details=self.selector.to_dict(),
        )

    def refused(self) -> InputError:
        """The error for a property that is no blob."""
        return InputError(
            f"{self.selector} is no Blob of this graph",
            hint="`omnigraph schema show` has the types and their Blob properties",
            details=self.selector.to_dict(),
        )

    def _stat(self, answer: Answer) -> BlobStat:
        commit_id = answer.headers[SNAPSHOT_ID]
        if answer.status == 302:
            uri = answer.headers["location"]
            return BlobStat(self.selector, "external", self._target, commit_id, uri=uri)
        size, etag = int(answer.headers["content-length"]), answer.headers["etag"]
        return BlobStat(self.selector, "managed", self._target, commit_id, size=size, etag=etag)


class RemoteBlob(KnownBlob):
    """One value of a blob property, as of one commit; bytes are fetched when they are asked for."""

    def __init__(self, connection: Connection, address: BlobAddress) -> None:
        try:
            stat = connection.send(address.head())
        except NotFound:
            raise address.missing() from None
        except InputError:
            raise address.refused() from None
        super().__init__(stat)
        self._address = address
        self._connection = connection

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """Some of the bytes, or all from ``offset``, in one piece; raises as `byte_range` does."""
        return b"".join(self.chunks(offset, length))

    def chunks(
        self, offset: int = 0, length: int | None = None, *, chunk_bytes: int = CHUNK_BYTES_MAX
    ) -> Iterator[bytes]:
        """The same bytes in pieces of at most ``chunk_bytes``, as they come.

        What is wrong with the range is told at once. They are those of the commit the value was
        found at, also if the branch has moved on.
        """
        wanted = self.byte_range(offset, length)
        return self._pieces(wanted, chunk_bytes) if len(wanted) else iter(())

    def _pieces(self, wanted: ByteRange, chunk_bytes: int) -> Iterator[bytes]:
        with self._stream(wanted) as stream:
            for chunk in stream:
                for start in range(0, len(chunk), chunk_bytes):
                    yield chunk[start : start + chunk_bytes]

    def _stream(self, wanted: ByteRange) -> Stream:
        # First in the words the caller used: that is what policy has allowed already.
        try:
            return self._connection.stream(self._address.get(wanted, self.stat))
        except Conflict:
            return self._connection.stream(self._address.get_old(wanted, self.stat))


class AsyncRemoteBlob(KnownBlob):
    """The same without blocking."""

    def __init__(self, connection: AsyncConnection, address: BlobAddress, stat: BlobStat) -> None:
        super().__init__(stat)
        self._address = address
        self._connection = connection

    @classmethod
    async def find(cls, connection: AsyncConnection, address: BlobAddress) -> AsyncRemoteBlob:
        """The blob; raises `NotFound` and `InputError`."""
        try:
            stat = await connection.send(address.head())
        except NotFound:
            raise address.missing() from None
        except InputError:
            raise address.refused() from None
        return cls(connection, address, stat)

    async def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """Some of the bytes, or all from ``offset``, in one piece; raises as `byte_range` does."""
        return b"".join([piece async for piece in self.chunks(offset, length)])

    async def chunks(self, offset: int = 0, length: int | None = None) -> AsyncIterator[bytes]:
        """The same bytes in pieces, as they come."""
        wanted = self.byte_range(offset, length)
        if not len(wanted):
            return
        try:
            stream = await self._connection.stream(self._address.get(wanted, self.stat))
        except Conflict:
            stream = await self._connection.stream(self._address.get_old(wanted, self.stat))
        async for chunk in stream:
            yield chunk
