"""Queries, exports, tables and blobs of a served graph."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

from omnigraph.client.connection import ContentStream
from omnigraph.client.exchange import (
    Exchange,
    Text,
    checked_body,
    condition,
    segment,
    sendable,
)
from omnigraph.client.handle import AsyncHandle, RowForm, SourceText, stream_of
from omnigraph.client.tables import AsyncRemoteTable, write_tables
from omnigraph.client.values import (
    AsyncRemoteBlob,
    BlobAddress,
    read_rows,
    read_rows_or_receipt,
    whole_lines,
)
from omnigraph.errors import InputError
from omnigraph.model.blobs import BlobSelector
from omnigraph.model.exports import export_directory
from omnigraph.model.receipts import (
    ExportFormat,
    ExportReceipt,
    MutationReceipt,
    checked_export_format,
)
from omnigraph.model.result import Explanation, Result, SnapshotSummary
from omnigraph.model.signatures import QuerySignature, SchemaDescription
from omnigraph.model.tables import Where
from omnigraph.model.upkeep import GraphStats
from omnigraph.wire import operations, requests
from omnigraph.wire.answers import (
    QueryCatalog,
)
from omnigraph.wire.requests import ARROW_STREAM, JSON

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
    """The tables and counts at the head of a branch."""
    return await self._ask(
        operations.SNAPSHOT, SnapshotSummary, query={"branch": self._branch_of(branch)}
    )


async def stats(self: AsyncHandle, branch: str | None = None) -> GraphStats:
    """The head of a branch and the graph around it in numbers; writes nothing."""
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

    With ``format`` `arrow`, they are one Arrow stream after another, one for each type. The
    server has begun by the time this returns, so that a refusal is raised here.
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
    """Write the entities of a branch head, or of one commit, as files of one type each, here.

    The arguments mean what they mean for `Graph.export_to`.
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

    The arguments mean what they mean for `Graph.table`. The columns are known when this
    returns; rows are fetched when they are asked for.
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
    """One value of a blob property, ready to be read in parts; none of it is read yet."""
    selector = BlobSelector.of(entity, type, id, property)
    return await AsyncRemoteBlob.find(
        self._connection,
        BlobAddress(selector, self._branch_of(branch, snapshot), self._snapshot_of(snapshot)),
    )


async def list_queries(self: AsyncHandle) -> list[QuerySignature]:
    """The queries stored with the server, and what they take."""
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

    ``expect_mutation`` refuses it unless it writes, or unless it reads. ``message`` is kept with
    the commit of one that writes. Raises `NotFound` for
    an unknown name, and for a caller that may not run stored queries.
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
