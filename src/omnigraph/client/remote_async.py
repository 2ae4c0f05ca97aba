"""`AsyncRemoteGraph`: the verbs of `RemoteGraph`, awaited."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from omnigraph.client import exchanges
from omnigraph.client.baseline import AsyncRemoteBaseline
from omnigraph.client.blobs import AsyncRemoteBlob, BlobAddress
from omnigraph.client.connection import AsyncConnection, AsyncStream
from omnigraph.client.exchanges import Grammar, RowForm, SourceText
from omnigraph.client.failures import require_no_actor
from omnigraph.client.lines import LineBuffer
from omnigraph.client.records import Data, read_records
from omnigraph.model.blobs import BlobSelector
from omnigraph.model.changes import CommitPage, FeedPage
from omnigraph.model.receipts import (
    BranchCreated,
    BranchDeleted,
    CommitInfo,
    LoadMode,
    LoadReceipt,
    MergeReceipt,
    MutationReceipt,
    SchemaApplyReceipt,
)
from omnigraph.model.result import Result, SnapshotSummary
from omnigraph.model.signatures import QuerySignature
from omnigraph.wire.answers import Health


class AsyncRemoteGraph:
    """One served graph, for one event loop; everything else is as with `RemoteGraph`."""

    def __init__(self, connection: AsyncConnection, rows: RowForm = "arrow") -> None:
        self._connection = connection
        self._rows = rows

    def __repr__(self) -> str:
        return f"AsyncRemoteGraph({self.uri!r})"

    @property
    def uri(self) -> str:
        """Where the graph is served."""
        return self._connection.address.base

    async def close(self) -> None:
        """Let the connections go; the graph is not touched."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # --- reading ----------------------------------------------------------------------------------

    async def query(
        self,
        source: SourceText,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str | None = None,
        snapshot: str | None = None,
    ) -> Result:
        """Run a read query over one snapshot and return its rows, as `Graph.query` does."""
        return await self._connection.send(
            exchanges.query(
                source, params, name=name, branch=branch, snapshot=snapshot, rows=self._rows
            )
        )

    @property
    def schema_source(self) -> Awaitable[str]:
        """The accepted schema, as it was written; awaited like a verb."""
        return self._connection.send(exchanges.schema_source())

    async def snapshot(self, branch: str | None = None) -> SnapshotSummary:
        """The tables and counts at the head of a branch."""
        return await self._connection.send(exchanges.snapshot(branch))

    async def export(
        self, *, branch: str | None = None, types: Iterable[str] | None = None
    ) -> AsyncIterator[bytes]:
        """The entities of a branch head as JSON lines in blocks of whole lines.

        The server has begun by the time this returns, so that a refusal is raised here.
        """
        stream = await self._connection.stream(exchanges.export(branch, types))
        return _whole_lines(stream)

    async def blob(
        self,
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
        return await AsyncRemoteBlob.find(self._connection, BlobAddress(selector, branch, snapshot))

    # --- writing ----------------------------------------------------------------------------------

    async def mutate(
        self,
        source: SourceText,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        branch: str | None = None,
        expected_head: str | None = None,
        actor: str | None = None,
    ) -> MutationReceipt:
        """Run a write query as one commit.

        ``expected_head`` makes it conditional: it runs only if that commit is the branch's head.
        """
        require_no_actor(actor)
        return await self._connection.send(
            exchanges.mutate(source, params, name=name, branch=branch, expected_head=expected_head)
        )

    async def load(
        self,
        *paths: str | os.PathLike[str],
        mode: LoadMode,
        data: Data | None = None,
        branch: str | None = None,
        from_: str | None = None,
        grammar: Grammar = "compatible",
        actor: str | None = None,
        progress: Callable[[int], None] | None = None,
    ) -> LoadReceipt:
        """Load graph records, from files of JSON lines or as ``data``, as one commit.

        A server takes up to 32 MiB at once; more is for loads on the storage.
        """
        require_no_actor(actor)
        records = read_records(paths, data, progress)
        return await self._connection.send(
            exchanges.load(records, mode=mode, branch=branch, from_=from_, grammar=grammar)
        )

    async def apply_schema(
        self, desired: SourceText, *, allow_data_loss: bool = False, actor: str | None = None
    ) -> SchemaApplyReceipt:
        """Bring the graph to another schema (a text, or the path of a `.pg` file) as one commit."""
        require_no_actor(actor)
        return await self._connection.send(
            exchanges.apply_schema(desired, allow_data_loss=allow_data_loss)
        )

    # --- stored queries ---------------------------------------------------------------------------

    async def list_queries(self) -> list[QuerySignature]:
        """The queries stored with the server, and what they take."""
        return await self._connection.send(exchanges.list_queries())

    async def invoke(
        self,
        name: str,
        params: Mapping[str, Any] | None = None,
        *,
        branch: str | None = None,
        snapshot: str | None = None,
        expect_mutation: bool | None = None,
        expected_head: str | None = None,
    ) -> Result | MutationReceipt:
        """Run a stored query: rows if it reads, a receipt if it writes.

        ``expect_mutation`` refuses it unless it writes, or unless it reads. Raises `NotFound` for a
        name there is not, and for everybody who may not call stored queries.
        """
        return await self._connection.send(
            exchanges.invoke(
                name,
                params,
                branch=branch,
                snapshot=snapshot,
                expect_mutation=expect_mutation,
                expected_head=expected_head,
                rows=self._rows,
            )
        )

    # --- branches and history ---------------------------------------------------------------------

    async def create_branch(
        self, name: str, from_: str | None = None, *, actor: str | None = None
    ) -> BranchCreated:
        """Create a branch at the head of another."""
        require_no_actor(actor)
        return await self._connection.send(exchanges.create_branch(name, from_))

    async def list_branches(self) -> list[str]:
        """The branches, sorted."""
        return await self._connection.send(exchanges.list_branches())

    async def delete_branch(self, name: str, *, actor: str | None = None) -> BranchDeleted:
        """Delete a branch; its commits are gone with it."""
        require_no_actor(actor)
        return await self._connection.send(exchanges.delete_branch(name))

    async def merge_branch(
        self,
        source: str,
        into: str | None = None,
        *,
        delete_branch: bool = False,
        actor: str | None = None,
    ) -> MergeReceipt:
        """Merge a branch into main, or ``into`` another, as one commit with two parents.

        Raises `MergeConflicts`, and nothing has changed then.
        """
        require_no_actor(actor)
        return await self._connection.send(
            exchanges.merge_branch(source, into, delete_branch=delete_branch)
        )

    async def list_commits(
        self, branch: str | None = None, *, actor: str | None = None
    ) -> list[CommitInfo]:
        """The commits a branch's head reaches, newest first; only those of ``actor``, if given."""
        found = await self._connection.send(exchanges.list_commits(branch))
        return [commit for commit in found if actor in (None, commit.actor_id)]

    async def show_commit(self, commit_id: str) -> CommitInfo:
        """One commit of any branch; raises `NotFound`."""
        return await self._connection.send(exchanges.show_commit(commit_id))

    # --- changes ----------------------------------------------------------------------------------

    async def commit_changes_page(
        self,
        commit_id: str,
        *,
        page_token: str | None = None,
        limit: int | None = None,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> CommitPage:
        """Some of what one commit changed; `CommitPage.next_page_token` leads to the rest."""
        return await self._connection.send(
            exchanges.commit_changes(
                commit_id, page_token=page_token, limit=limit, kinds=kinds, types=types, ops=ops
            )
        )

    async def poll_changes(
        self,
        branch: str | None = None,
        *,
        cursor: str | None = None,
        start: str | None = None,
        page_token: str | None = None,
        limit: int | None = None,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> FeedPage:
        """What the commits of a branch changed since ``cursor``, one block a commit."""
        return await self._connection.send(
            exchanges.poll_changes(
                branch,
                cursor=cursor,
                start=start,
                page_token=page_token,
                limit=limit,
                kinds=kinds,
                types=types,
                ops=ops,
            )
        )

    async def change_baseline(
        self,
        branch: str | None = None,
        *,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> AsyncRemoteBaseline:
        """Every entity at the present head of a branch, and then the cursor to go on with."""
        return AsyncRemoteBaseline(
            await self._connection.stream(exchanges.baseline(branch, kinds, types, ops))
        )

    # --- the server -------------------------------------------------------------------------------

    async def health(self) -> Health:
        """What the server says about itself; needs no token."""
        return await self._connection.send(exchanges.health())


async def _whole_lines(stream: AsyncStream) -> AsyncIterator[bytes]:
    lines = LineBuffer()
    async for chunk in stream:
        block = lines.feed(chunk)
        if block:
            yield block
    rest = lines.end()
    if rest:
        yield rest
