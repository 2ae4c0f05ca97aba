"""The common base of the verbs of a served graph: the connection, and sending requests."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from omnigraph.client.connection import Connection
from omnigraph.client.exchange import (
    Exchange,
    HasText,
    Response,
    Text,
    new_key,
    query_items,
)
from omnigraph.model.ids import MAIN_BRANCH, on_branch
from omnigraph.model.json_object import JsonObject
from omnigraph.wire.operations import Operation

RowForm = Literal["arrow", "json"]
SourceText = str | Path | HasText
Answered = TypeVar("Answered", bound=JsonObject)


class AsyncHandle:
    """A served graph, with the default branch of its verbs.

    The verbs of `AsyncRemoteGraph` are functions of a handle, each in the module of its subject.
    """

    def __init__(self, connection: Connection, rows: RowForm = "arrow") -> None:
        self._connection = connection
        self._rows = rows
        self._default_branch: str | None = None

    def _branch_of(self, branch: str | None, snapshot: str | None = None) -> str | None:
        """The branch to send: None with a snapshot, which may be on any branch, and for main."""
        return branch or (self._default_branch if snapshot is None else None)

    def _revision_of(self, revision: str, branch: str | None = None) -> str:
        """The revision to send: `HEAD` and times get ``branch``, else this handle's branch."""
        return on_branch(revision, branch or self._default_branch or MAIN_BRANCH)

    def _snapshot_of(self, snapshot: str | None, branch: str | None = None) -> str | None:
        """The same, for a verb that reads the head of a branch without a snapshot."""
        return None if snapshot is None else self._revision_of(snapshot, branch)

    async def _ask(
        self,
        operation: Operation,
        kind: type[Answered],
        *,
        values: Mapping[str, str] | None = None,
        query: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        text: Text | None = None,
        is_read: bool | None = None,
        key: str | None = None,
    ) -> Answered:
        """Send a request whose answer is a JSON object of ``kind``; a GET counts as a read."""

        def read(response: Response) -> Answered:
            return kind.from_dict(response.document())

        return await self._connection.send(
            Exchange(
                operation,
                read,
                values or {},
                query_items(query or {}),
                headers or {},
                content,
                operation.method == "GET" if is_read is None else is_read,
                text=text,
                key=key or new_key(),
            )
        )


def stream_of(
    operation: Operation, content: bytes, headers: Mapping[str, str] | None = None
) -> Exchange[None]:
    """A read request whose answer is streamed."""
    return Exchange(operation, lambda _: None, headers=headers or {}, content=content, is_read=True)
