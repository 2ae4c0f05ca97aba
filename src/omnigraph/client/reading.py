"""Queries, exports, tables and blobs of a served graph."""

from __future__ import annotations

import os
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa

from omnigraph.client.connection import Connection, ContentStream
from omnigraph.client.exchange import (
    Exchange,
    Response,
    Text,
    checked_body,
    condition,
    segment,
    sendable,
)
from omnigraph.client.handle import AsyncHandle, RowForm, SourceText, stream_of
from omnigraph.client.values import (
    AsyncRemoteBlob,
    BlobAddress,
    read_rows,
    read_rows_or_receipt,
    whole_lines,
)
from omnigraph.errors import InputError, UnexpectedAnswer
from omnigraph.model.blobs import BlobSelector
from omnigraph.model.exports import ExportDirectory, export_directory
from omnigraph.model.receipts import (
    ExportFormat,
    ExportReceipt,
    MutationReceipt,
    checked_export_format,
)
from omnigraph.model.result import Explanation, Result, SnapshotSummary, pandas_frame, polars_frame
from omnigraph.model.signatures import QuerySignature, SchemaDescription
from omnigraph.model.tables import TableInfo, TableView, Where, described_table
from omnigraph.model.upkeep import GraphStats
from omnigraph.wire import operations, requests
from omnigraph.wire.answers import (
    QueryCatalog,
)
from omnigraph.wire.requests import ARROW_STREAM, JSON

if TYPE_CHECKING:
    import pandas as pd

_ACCEPTED: Mapping[RowForm, str] = {"arrow": f"{ARROW_STREAM}, {JSON};q=0.5", "json": JSON}


async def query(
    self: AsyncHandle,
    source: SourceText,
    params: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    branch: str | None = None,
    snapshot: str | None = None,
    explain: bool = False,
) -> Result:
    """Run a read query over one snapshot and return its rows, as `Graph.query` does."""
    text = Text.of(source)
    fields = {
        "query": text.text,
        "name": name,
        "branch": self._branch_of(branch, snapshot),
        "snapshot": self._snapshot_of(snapshot),
    }
    return await self._connection.send(
        Exchange(
            operations.QUERY,
            read_rows,
            headers={"Accept": _ACCEPTED[self._rows]},
            content=checked_body(
                requests.QueryRequest, fields | {"explain": explain or None}, params
            ),
            is_read=True,
            text=text,
        )
    )


async def explain(self: AsyncHandle, source: SourceText, *, name: str | None = None) -> Explanation:
    """The typed plan of a query, read or write, without running it."""
    text = Text.of(source)
    content = checked_body(requests.ExplainRequest, {"query": text.text, "name": name})
    return await self._ask(
        operations.EXPLAIN, Explanation, content=content, text=text, is_read=True
    )


async def describe_queries(self: AsyncHandle, source: SourceText) -> tuple[QuerySignature, ...]:
    """Every query of a text, checked against the schema: name, parameters, kind."""
    text = Text.of(source)
    fields = {"query": text.text, "branch": self._branch_of(None)}
    content = checked_body(requests.DescribeRequest, fields)
    found = await self._ask(
        operations.DESCRIBE_QUERIES, QueryCatalog, content=content, text=text, is_read=True
    )
    return found.queries


async def describe_schema(
    self: AsyncHandle, *, branch: str | None = None, snapshot: str | None = None
) -> SchemaDescription:
    """The types of a branch or commit, with their rules and counts, as `Graph.describe_schema`."""
    query = {"branch": self._branch_of(branch, snapshot), "snapshot": snapshot}
    return await self._ask(operations.DESCRIBE_SCHEMA, SchemaDescription, query=query)


async def snapshot(self: AsyncHandle, branch: str | None = None) -> SnapshotSummary:
    """The types and counts at the head of a branch."""
    return await self._ask(
        operations.SNAPSHOT, SnapshotSummary, query={"branch": self._branch_of(branch)}
    )


async def stats(self: AsyncHandle, branch: str | None = None) -> GraphStats:
    """Statistics of the head of a branch and of the graph; writes nothing."""
    return await self._ask(operations.STATS, GraphStats, query={"branch": self._branch_of(branch)})


async def export(
    self: AsyncHandle,
    *,
    branch: str | None = None,
    snapshot: str | None = None,
    types: Iterable[str] | None = None,
    format: Literal["jsonl", "arrow"] = "jsonl",
) -> AsyncIterator[bytes]:
    """The entities of a branch head, or of one commit, as JSON lines in blocks of whole lines.

    With ``format`` `arrow`, they are one Arrow stream after another, one for each type. The server
    has accepted the request when this returns, so errors are raised here.
    """
    stream = await _export(self, branch, snapshot, types, format)
    return aiter(stream) if format == "arrow" else whole_lines(stream)


async def export_to(
    self: AsyncHandle,
    directory: str | os.PathLike[str],
    *,
    format: ExportFormat = "parquet",
    branch: str | None = None,
    snapshot: str | None = None,
    types: Iterable[str] | None = None,
    overwrite: bool = False,
    progress: Callable[[int], None] | None = None,
) -> ExportReceipt:
    """Write the entities of a branch head, or of one commit, as local files of one type each.

    The arguments are those of `Graph.export_to`.
    """
    known = checked_export_format(format)
    with export_directory(directory, known, overwrite=overwrite, progress=progress) as made:
        await write_tables(made, await _export(self, branch, snapshot, types, "arrow"))
    return made.receipt(is_complete=True)


async def _export(
    self: AsyncHandle,
    branch: str | None,
    snapshot: str | None,
    types: Iterable[str] | None,
    format: Literal["jsonl", "arrow"],
) -> ContentStream:
    names = None if types is None else list(types)
    fields = {
        "branch": self._branch_of(branch),
        "snapshot": self._snapshot_of(snapshot, branch),
        "type_names": names,
    }
    content = checked_body(requests.ExportRequest, fields)
    if format not in ("jsonl", "arrow"):
        raise InputError(
            f"there is no stream of format '{format}'",
            hint="it is jsonl or arrow; `export_to` writes files of other formats",
        )
    headers = {"Accept": ARROW_STREAM} if format == "arrow" else {}
    return await self._connection.stream(stream_of(operations.EXPORT, content, headers))


async def table(
    self: AsyncHandle,
    type: str,
    *,
    columns: Sequence[str] | None = None,
    where: Where | None = None,
    branch: str | None = None,
    snapshot: str | None = None,
) -> AsyncRemoteTable:
    """The rows of a type as an Arrow table, of the branch or commit as it is now.

    The arguments are those of `Graph.table`. The columns are fetched at once, the rows on demand.
    """
    if branch is not None and snapshot is not None:
        raise InputError(
            "a table is of a branch or of a snapshot, not of both",
            hint="leave `branch` out: a snapshot is a commit, whichever branch it is on",
        )
    if isinstance(where, Mapping):
        where = {name: sendable(value, name) for name, value in where.items()}
    asked = {
        "type": type,
        "columns": [columns] if isinstance(columns, str) else columns and list(columns),
        "where": where,
        "branch": self._branch_of(branch, snapshot),
        "snapshot": self._snapshot_of(snapshot),
    }
    return await AsyncRemoteTable.find(self._connection, asked)


async def blob(
    self: AsyncHandle,
    entity: str,
    type: str,
    id: str,
    property: str,
    *,
    branch: str | None = None,
    snapshot: str | None = None,
) -> AsyncRemoteBlob:
    """One value of a blob property, to be read in ranges; this call reads none of the bytes."""
    selector = BlobSelector.of(entity, type, id, property)
    return await AsyncRemoteBlob.find(
        self._connection,
        BlobAddress(selector, self._branch_of(branch, snapshot), self._snapshot_of(snapshot)),
    )


async def list_queries(self: AsyncHandle) -> list[QuerySignature]:
    """The stored queries of the server, and their parameters."""
    return list((await self._ask(operations.LIST_QUERIES, QueryCatalog)).queries)


async def invoke(
    self: AsyncHandle,
    name: str,
    params: Mapping[str, Any] | None = None,
    *,
    branch: str | None = None,
    snapshot: str | None = None,
    expect_mutation: bool | None = None,
    expected_head: str | None = None,
    message: str | None = None,
) -> Result | MutationReceipt:
    """Run a stored query: rows if it reads, a receipt if it writes.

    ``expect_mutation`` raises unless it writes (True), or unless it reads (False). ``message`` is
    kept with the commit of one that writes. Raises `NotFound` for an unknown name, and for a caller
    that may not run stored queries.
    """
    target = self._branch_of(branch, snapshot)
    fields = {
        "branch": target,
        "snapshot": self._snapshot_of(snapshot),
        "expect_mutation": expect_mutation,
        "message": message,
    }
    return await self._connection.send(
        Exchange(
            operations.INVOKE if expected_head is None else operations.INVOKE_IF,
            read_rows_or_receipt,
            {"name": segment(name, "stored query")},
            headers={"Accept": _ACCEPTED[self._rows], **condition(expected_head)},
            content=checked_body(requests.InvokeRequest, fields, params),
            is_read=expect_mutation is False,
        )
    )


# --- tables ---------------------------------------------------------------------------------------

_PREFIX = struct.Struct("<Ii")
"""The prefix of a message: a marker, and the length of its metadata; 0 ends the stream."""
_MARK = 0xFFFFFFFF
_BODY_LENGTH = 3
"""The field of the metadata, a flatbuffer table, with the length of the message body."""


class AsyncRemoteTable(TableView):
    """The rows of one type at one commit, fetched anew at each read.

    `async for` yields Arrow record batches.
    """

    def __init__(
        self,
        about: TableInfo,
        schema: pa.Schema,
        stream: Callable[[], Awaitable[ContentStream]],
    ) -> None:
        super().__init__(about, schema)
        self._stream = stream

    @classmethod
    async def find(cls, connection: Connection, asked: Mapping[str, Any]) -> AsyncRemoteTable:
        """Request only the columns, which raises for an unknown type or column at once."""
        about, schema = await connection.send(
            Exchange(operations.TABLE, _read_head, content=_body(asked, rows=False), is_read=True)
        )
        # Rows are read at the same commit, for which the right to read the branch is sufficient.
        pinned = _body({**asked, "snapshot": about.graph_commit_id}, rows=None)

        async def stream() -> ContentStream:
            return await connection.stream(
                Exchange(operations.TABLE, lambda _: None, content=pinned, is_read=True)
            )

        return cls(about, schema, stream)

    async def __aiter__(self) -> AsyncIterator[pa.RecordBatch]:
        async for item in arrow_items(await self._stream()):
            if isinstance(item, pa.RecordBatch):
                yield pa.RecordBatch.from_arrays(item.columns, schema=self.schema)

    async def to_arrow(self) -> pa.Table:
        """All rows, in memory."""
        return pa.Table.from_batches([batch async for batch in self], self.schema)

    async def to_pandas(self) -> pd.DataFrame:
        """All rows as a pandas frame; raises `InputError` if pandas is not installed."""
        return pandas_frame(await self.to_arrow())

    async def to_polars(self) -> Any:
        """All rows as a polars frame; raises `InputError` if polars is not installed."""
        return polars_frame(await self.to_arrow())


def _body(asked: Mapping[str, Any], *, rows: bool | None) -> bytes:
    return checked_body(requests.TableRequest, {**asked, "rows": rows})


def _read_head(response: Response) -> tuple[TableInfo, pa.Schema]:
    return described_table(pa.ipc.open_stream(response.content).schema)


async def write_tables(directory: ExportDirectory, stream: ContentStream) -> None:
    """Write an export, a sequence of Arrow streams, to files."""
    with ExitStack() as stack:
        schema: pa.Schema | None = None
        write: Callable[[pa.RecordBatch], None] | None = None
        async for item in arrow_items(stream):
            if isinstance(item, pa.Schema):
                stack.close()
                about, schema = described_table(item)
                write = stack.enter_context(directory.table(about, schema))
            else:
                assert write is not None
                write(pa.RecordBatch.from_arrays(item.columns, schema=schema))


# --- messages -------------------------------------------------------------------------------------

# Tables of a served graph: Arrow streams, read batch by batch as they come.
#
# Arrow's own reader blocks, which a coroutine must not do. A stream is a sequence of messages with
# their lengths, so each is passed to Arrow once it is complete.


async def arrow_items(stream: ContentStream) -> AsyncIterator[pa.Schema | pa.RecordBatch]:
    """The schema and the batches of each of several consecutive Arrow streams.

    Raises `UnexpectedAnswer` if the last one is incomplete.
    """
    buffer = bytearray()
    schema: pa.Schema | None = None
    try:
        async for chunk in stream:
            buffer += chunk
            while (message := _next_message(buffer)) is not None:
                if not message:
                    schema = None
                elif schema is None:
                    schema = pa.ipc.read_schema(pa.py_buffer(message))
                    yield schema
                else:
                    yield pa.ipc.read_record_batch(pa.py_buffer(message), schema)
    except (pa.ArrowInvalid, struct.error) as error:
        raise UnexpectedAnswer(f"the answer is no Arrow stream: {error}") from error
    finally:
        await stream.close()
    if schema is not None or buffer:
        raise UnexpectedAnswer("the Arrow stream of the answer was cut off")


def _next_message(buffer: bytearray) -> bytes | None:
    """Remove and return the next message; empty at the end of a stream, None if incomplete."""
    if len(buffer) < _PREFIX.size:
        return None
    mark, size = _PREFIX.unpack_from(buffer)
    if mark != _MARK:
        raise pa.ArrowInvalid("a message has no mark")
    end = _PREFIX.size + size
    if size:
        if len(buffer) < end:
            return None
        end += _body_length(buffer, _PREFIX.size)
        if len(buffer) < end:
            return None
    message = bytes(buffer[:end]) if size else b""
    del buffer[:end]
    return message


def _body_length(buffer: bytearray, at: int) -> int:
    """The length of the body of the message whose metadata starts at ``at``."""
    table = at + struct.unpack_from("<I", buffer, at)[0]
    fields = table - struct.unpack_from("<i", buffer, table)[0]
    known: int = struct.unpack_from("<H", buffer, fields)[0]
    slot = 4 + 2 * _BODY_LENGTH
    offset = struct.unpack_from("<H", buffer, fields + slot)[0] if slot < known else 0
    return int(struct.unpack_from("<q", buffer, table + offset)[0]) if offset else 0
