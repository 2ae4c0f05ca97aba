"""Answers that are streamed, paged or not JSON: rows, blobs, baselines, and changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson
import pyarrow as pa

from omnigraph.client.connection import Connection, ContentStream
from omnigraph.client.exchange import Exchange, Response, query_items
from omnigraph.errors import Conflict, InputError, NotFound, UnexpectedAnswer
from omnigraph.model.blobs import CHUNK_BYTES_MAX, BlobSelector, BlobStat, ByteRange, KnownBlob
from omnigraph.model.changes import (
    CommitCause,
    CommitPage,
    EntityChange,
    EntityRecord,
    Handshake,
    TypeCounts,
)
from omnigraph.model.diffs import DiffEnd, DiffPage
from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.model.receipts import MutationReceipt
from omnigraph.model.result import Explanation, ReadTarget, Result
from omnigraph.model.tables import ARROW_METADATA
from omnigraph.wire import operations
from omnigraph.wire.requests import ARROW_STREAM, SNAPSHOT_ID

Json = Mapping[str, Any]

# --- rows -----------------------------------------------------------------------------------------


def read_rows(response: Response) -> Result:
    """The rows of a query, from Arrow or from JSON."""
    if response.media_type == ARROW_STREAM:
        table = pa.ipc.open_stream(response.content).read_all()
        metadata = dict(table.schema.metadata or {})
        about = orjson.loads(metadata.pop(ARROW_METADATA))
        return _result(table.replace_schema_metadata(metadata or None), about)
    found = response.document()
    return _result(_table(found.get("columns"), found["rows"]), found)


def read_rows_or_receipt(response: Response) -> Result | MutationReceipt:
    """The rows or the receipt of a stored query."""
    if response.media_type != ARROW_STREAM:
        found = response.document()
        if "affected_nodes" in found:
            return MutationReceipt.from_dict(found)
    return read_rows(response)


def _result(table: pa.Table, about: Json) -> Result:
    explained = about.get("explain")
    return Result(
        table,
        query_name=about["query_name"],
        target=ReadTarget.from_dict(about["target"]),
        graph_commit_id=about.get("graph_commit_id"),
        explain=None if explained is None else Explanation.from_dict(explained),
    )


def _table(columns: Sequence[str] | None, rows: Sequence[Json]) -> pa.Table:
    """Rows in JSON as a table, with inferred types."""
    names = list(columns) if columns is not None else sorted({name for row in rows for name in row})
    if not names:
        # A table without columns still has a number of rows.
        return pa.table({"": pa.nulls(len(rows))}).select([])
    return pa.table({name: _column([row.get(name) for row in rows]) for name in names})


_NON_FINITE = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def _column(values: list[Any]) -> pa.Array:
    try:
        return pa.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        # The only column with mixed types: numbers, and JSON's names of non-finite ones.
        return pa.array([_NON_FINITE.get(v, v) if isinstance(v, str) else v for v in values])


# --- JSON lines -----------------------------------------------------------------------------------


class LineBuffer:
    """Collects chunks of JSON lines, and returns blocks of whole lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """Add a chunk; returns the lines that are now complete, possibly none.

        >>> buffer = LineBuffer()
        >>> buffer.feed(b"one"), buffer.feed(b" line" + b"\\n" + b"tw")
        (b'', b'one line\\n')
        """
        head, newline, tail = chunk.rpartition(b"\n")
        if not newline:
            self._rest += chunk
            return b""
        block = self._rest + head + newline
        self._rest = tail
        return block

    def end(self) -> bytes:
        """The last line, if it lacks a line end."""
        rest, self._rest = self._rest, b""
        return rest


async def whole_lines(stream: ContentStream) -> AsyncIterator[bytes]:
    """The content of a stream in blocks of whole lines."""
    lines = LineBuffer()
    async for chunk in stream:
        if block := lines.feed(chunk):
            yield block
    if rest := lines.end():
        yield rest


_HANDSHAKE = b'{"baseline"'


class AsyncRemoteBaseline:
    """The entities of one commit, read lazily and once.

    Iteration yields entities. After the last one, `handshake` has the cursor at which the feed
    continues; while it is None, the baseline is incomplete.
    """

    def __init__(self, stream: ContentStream) -> None:
        self._stream = stream
        self.handshake: Handshake | None = None

    async def __aiter__(self) -> AsyncIterator[EntityRecord]:
        async for block in self.blocks():
            for line in block.splitlines():
                if not line.startswith(_HANDSHAKE):
                    yield EntityRecord.from_dict(_document(line))

    async def blocks(self) -> AsyncIterator[bytes]:
        """Blocks of whole JSON lines: every entity, and finally the handshake."""
        async for block in whole_lines(self._stream):
            yield block
            # Set only now: the caller has received everything before the cursor.
            last = block[block.rstrip(b"\n").rfind(b"\n") + 1 :]
            if last.startswith(_HANDSHAKE):
                self.handshake = Handshake.from_dict(_document(last)["baseline"])
        if self.handshake is None:
            raise UnexpectedAnswer(
                "the baseline ended before its last record", hint="take it again"
            )

    async def close(self) -> None:
        """Stop reading early."""
        await self._stream.close()


def _document(line: bytes) -> Json:
    try:
        found: Json = orjson.loads(line)
    except ValueError as problem:
        raise UnexpectedAnswer(f"a line of the baseline cannot be read: {problem}") from problem
    return found


# --- pages ----------------------------------------------------------------------------------------


class AsyncRemoteChanges:
    """The changes of one commit, with images before and after; pages are fetched as needed."""

    def __init__(self, first: CommitPage, turn: Callable[[str], Awaitable[CommitPage]]) -> None:
        self.cause: CommitCause = first.cause
        self._first = first
        self._turn = turn

    async def __aiter__(self) -> AsyncIterator[EntityChange]:
        page = self._first
        while True:
            for change in page.changes:
                yield change
            if page.next_page_token is None:
                return
            page = await self._turn(page.next_page_token)


class AsyncRemoteDiff:
    """The differences from one commit to another; the entities are fetched as needed."""

    def __init__(
        self, first: DiffPage, turn: Callable[[str | None, bool], Awaitable[DiffPage]]
    ) -> None:
        self.ends: tuple[DiffEnd, DiffEnd] = (first.before, first.after)
        """The commits at both ends."""
        self.direct = first.compared == "direct"
        """Whether the caller named both ends; otherwise the first is a merge base."""
        self.types: tuple[TypeCounts, ...] = first.types
        """The numbers of differing entities per type; unchanged types are left out."""
        self._first = first
        self._turn = turn

    def __len__(self) -> int:
        return sum(counts.total for counts in self.types)

    async def changes(self, *, images: bool = False) -> AsyncIterator[EntityChange]:
        """Every change, read lazily: nodes before edges, then by type and id."""
        page = self._first if not images else await self._turn(None, True)
        while True:
            for entry in page.changes:
                yield entry.change
            if page.next_page_token is None:
                return
            page = await self._turn(page.next_page_token, images)


# --- blobs ----------------------------------------------------------------------------------------


class BlobAddress:
    """The identity of a blob, and the requests for it."""

    def __init__(self, selector: BlobSelector, branch: str | None, snapshot: str | None) -> None:
        self.selector = selector
        self._target = (
            ReadTarget(None, snapshot)
            if snapshot is not None
            else ReadTarget(branch or MAIN_BRANCH)
        )
        self._query = query_items({**selector.to_dict(), "branch": branch, "snapshot": snapshot})

    def head(self) -> Exchange[BlobStat]:
        """The request for its metadata; an external blob answers with its location."""
        return Exchange(
            operations.HEAD_BLOB, self._stat, query=self._query, is_read=True, also_fine=(302,)
        )

    def get(self, wanted: ByteRange, stat: BlobStat) -> Exchange[None]:
        """The request for bytes, if the blob is unchanged; `Conflict` otherwise."""
        assert stat.etag is not None
        headers = {"Range": f"bytes={wanted.start}-{wanted.end - 1}", "If-Match": stat.etag}
        return Exchange(
            operations.GET_BLOB, lambda _: None, query=self._query, headers=headers, is_read=True
        )

    def get_old(self, wanted: ByteRange, stat: BlobStat) -> Exchange[None]:
        """The request for bytes at the commit at which it was found."""
        return BlobAddress(self.selector, None, stat.resolved_snapshot).get(wanted, stat)

    def missing(self) -> NotFound:
        """The error for a missing blob: answers to HEAD have no message."""
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

    def _stat(self, response: Response) -> BlobStat:
        commit_id = response.headers[SNAPSHOT_ID]
        if response.status == 302:
            uri = response.headers["location"]
            return BlobStat(self.selector, "external", self._target, commit_id, uri=uri)
        size, etag = int(response.headers["content-length"]), response.headers["etag"]
        return BlobStat(self.selector, "managed", self._target, commit_id, size=size, etag=etag)


class AsyncRemoteBlob(KnownBlob):
    """One value of a blob property, as of one commit; bytes are fetched on request."""

    def __init__(self, connection: Connection, address: BlobAddress, stat: BlobStat) -> None:
        super().__init__(stat)
        self._address = address
        self._connection = connection

    @classmethod
    async def find(cls, connection: Connection, address: BlobAddress) -> AsyncRemoteBlob:
        """Look up the blob; raises `NotFound` and `InputError`."""
        try:
            stat = await connection.send(address.head())
        except NotFound:
            raise address.missing() from None
        except InputError:
            raise address.refused() from None
        return cls(connection, address, stat)

    async def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """A range of the bytes, by default all from ``offset``; raises as `byte_range` does."""
        return b"".join([piece async for piece in self.chunks(offset, length)])

    def chunks(
        self, offset: int = 0, length: int | None = None, *, chunk_bytes: int = CHUNK_BYTES_MAX
    ) -> AsyncIterator[bytes]:
        """The same bytes in pieces of at most ``chunk_bytes``, as they arrive.

        An invalid range raises at once. The bytes are those of the commit at which the value was
        found, even if the branch has moved.
        """
        return self._pieces(self.byte_range(offset, length), chunk_bytes)

    async def _pieces(self, wanted: ByteRange, chunk_bytes: int) -> AsyncIterator[bytes]:
        if not len(wanted):
            return
        # Ask with the caller's own branch first: policy has already allowed that.
        try:
            stream = await self._connection.stream(self._address.get(wanted, self.stat))
        except Conflict:
            stream = await self._connection.stream(self._address.get_old(wanted, self.stat))
        async for chunk in stream:
            for start in range(0, len(chunk), chunk_bytes):
                yield chunk[start : start + chunk_bytes]
