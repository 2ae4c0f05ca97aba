"""Tables of a served graph: Arrow streams, read batch by batch as they come.

Arrow's own reader waits for bytes, which a coroutine must not do. A stream is a row of messages
that say how long they are, so that each is handed to Arrow when it is complete.
"""

from __future__ import annotations

import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from omnigraph.client.connection import Connection, ContentStream
from omnigraph.client.exchange import Exchange, Response, checked_body
from omnigraph.errors import UnexpectedAnswer
from omnigraph.model.exports import ExportDirectory
from omnigraph.model.result import pandas_frame, polars_frame
from omnigraph.model.tables import TableInfo, TableView, described_table
from omnigraph.wire import operations, requests

if TYPE_CHECKING:
    import pandas as pd

_PREFIX = struct.Struct("<Ii")
"""What a message begins with: a mark, and the length of its description; 0 ends the stream."""
_MARK = 0xFFFFFFFF
_BODY_LENGTH = 3
"""The field of the description, a flatbuffer table, that is the length of what follows it."""


class AsyncRemoteTable(TableView):
    """The rows of one type at one commit, fetched when they are asked for, each time anew.

    Iterate with `async for`, which gives Arrow record batches.
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
        """Ask for the columns alone: an unknown type or column is refused at once."""
        about, schema = await connection.send(
            Exchange(operations.TABLE, _read_head, content=_body(asked, rows=False), is_read=True)
        )
        # What is read later is of the same commit. The right to read the branch is enough for it.
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
    """Write an export, which is one Arrow stream after another, to files."""
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


async def arrow_items(stream: ContentStream) -> AsyncIterator[pa.Schema | pa.RecordBatch]:
    """The schema and then the batches of an Arrow stream, and of others that follow it.

    Raises `UnexpectedAnswer` if the last one has no end.
    """
    buffer = bytearray()
    schema: pa.Schema | None = None
    try:
        async for chunk in stream:
            buffer += chunk
            while (message := _taken(buffer)) is not None:
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


def _taken(buffer: bytearray) -> bytes | None:
    """The next message, taken from the front; empty for the end of a stream, None if incomplete."""
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
    """The length of the body of a message whose description starts at ``at``."""
    table = at + struct.unpack_from("<I", buffer, at)[0]
    fields = table - struct.unpack_from("<i", buffer, table)[0]
    known: int = struct.unpack_from("<H", buffer, fields)[0]
    slot = 4 + 2 * _BODY_LENGTH
    offset = struct.unpack_from("<H", buffer, fields + slot)[0] if slot < known else 0
    return int(struct.unpack_from("<q", buffer, table + offset)[0]) if offset else 0
