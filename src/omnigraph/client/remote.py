"""`RemoteGraph`: the verbs of `AsyncRemoteGraph` without an event loop, and constructors of both.

Every verb runs the coroutine of `AsyncRemoteGraph` in the calling thread: with `BlockingHttp` it
never suspends, so one step completes it.
"""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, overload

from omnigraph.client.async_graph import AsyncRemoteGraph
from omnigraph.client.branches import AsyncRemoteReviews
from omnigraph.client.connection import BlockingHttp, Connection, Http, Patience
from omnigraph.client.exchange import Address, Exchange
from omnigraph.client.handle import RowForm
from omnigraph.client.reading import AsyncRemoteTable
from omnigraph.client.values import (
    AsyncRemoteBaseline,
    AsyncRemoteBlob,
    AsyncRemoteChanges,
    AsyncRemoteDiff,
)
from omnigraph.model.blobs import CHUNK_BYTES_MAX, KnownBlob
from omnigraph.model.branch_scope import AsyncBranchScope, BranchScope
from omnigraph.model.changes import (
    ChangeBlock,
    CommitCause,
    EntityChange,
    EntityRecord,
    Handshake,
    TypeCounts,
)
from omnigraph.model.diffs import DiffEnd, DiffView
from omnigraph.model.tables import Table
from omnigraph.wire import operations
from omnigraph.wire.answers import GraphList, ServedGraph

TIMEOUT_SECONDS = 60.0

P = ParamSpec("P")
Item = TypeVar("Item")
Returned = TypeVar("Returned")
Shown = TypeVar("Shown")


# --- running coroutines without an event loop -----------------------------------------------------


def run_inline(work: Coroutine[Any, Any, Returned]) -> Returned:
    """Run a coroutine that never suspends, and return its result."""
    try:
        work.send(None)
    except StopIteration as finished:
        returned: Returned = finished.value
        return returned
    raise AssertionError("a blocking connection does not suspend")


def iterate_inline(items: AsyncIterator[Item]) -> Iterator[Item]:
    """Iterate over an asynchronous iterator that never suspends."""

    async def following() -> Item:
        return await anext(items)

    async def close() -> None:
        if inspect.isasyncgen(items):
            await items.aclose()

    try:
        while True:
            try:
                item = run_inline(following())
            except StopAsyncIteration:
                return
            yield item
    finally:
        run_inline(close())


@overload
def _blocking(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, Returned]],
) -> Callable[Concatenate[Any, P], Returned]: ...


@overload
def _blocking(
    verb: Callable[Concatenate[Any, P], Coroutine[Any, Any, Returned]],
    shown: Callable[[Returned], Shown],
    returns: str,
) -> Callable[Concatenate[Any, P], Shown]: ...


def _blocking(verb: Any, shown: Any = None, returns: str | None = None) -> Any:
    """An asynchronous verb as a blocking method; ``shown`` wraps its result."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        found = run_inline(verb(self._verbs, *args, **kwargs))
        return found if shown is None else shown(found)

    return _presented(method, verb, returns)


def _in_block(
    verb: Callable[Concatenate[AsyncRemoteGraph, P], AsyncBranchScope[AsyncRemoteGraph]],
) -> Callable[Concatenate[RemoteGraph, P], BranchScope[RemoteGraph]]:
    """A verb for `async with` as a method for `with`."""

    def method(self: RemoteGraph, *args: P.args, **kwargs: P.kwargs) -> BranchScope[RemoteGraph]:
        return BranchScope(self, verb(self._verbs, *args, **kwargs).task)

    shown: Callable[Concatenate[RemoteGraph, P], BranchScope[RemoteGraph]]
    shown = _presented(method, verb, "BranchScope[RemoteGraph]")
    return shown


def _presented(method: Any, verb: Any, returns: str | None) -> Any:
    """A method with the name, signature and docstring of the verb that it runs."""
    signature = inspect.signature(verb)
    if returns is not None:
        signature = signature.replace(return_annotation=returns)
    method.__signature__ = signature
    owner = verb.__qualname__.rpartition(".")[0].removeprefix("Async") or "RemoteGraph"
    method.__name__, method.__qualname__ = verb.__name__, f"{owner}.{verb.__name__}"
    method.__doc__ = (verb.__doc__ or "").replace("async with", "with")
    method.__module__ = verb.__module__ if returns is None else __name__
    return method


# --- values ---------------------------------------------------------------------------------------


class RemoteBlob(KnownBlob):
    """One value of a blob property, as of one commit; bytes are fetched on request."""

    def __init__(self, blob: AsyncRemoteBlob) -> None:
        super().__init__(blob.stat)
        self._blob = blob

    def read(self, offset: int = 0, length: int | None = None) -> bytes:
        """A range of the bytes, by default all from ``offset``; raises as `byte_range` does."""
        return run_inline(self._blob.read(offset, length))

    def chunks(
        self, offset: int = 0, length: int | None = None, *, chunk_bytes: int = CHUNK_BYTES_MAX
    ) -> Iterator[bytes]:
        """The same bytes in pieces of at most ``chunk_bytes``, as they arrive.

        An invalid range raises at once. The bytes are those of the commit at which the value was
        found, even if the branch has moved.
        """
        return iterate_inline(self._blob.chunks(offset, length, chunk_bytes=chunk_bytes))


class RemoteBaseline:
    """The entities of one commit, read lazily and once.

    Iteration yields entities. After the last one, `handshake` has the cursor at which the feed
    continues; while it is None, the baseline is incomplete.
    """

    entity_count: int | None = None
    """None: only `Graph` knows it."""

    def __init__(self, baseline: AsyncRemoteBaseline) -> None:
        self._baseline = baseline

    @property
    def handshake(self) -> Handshake | None:
        """The cursor at which the feed continues; None before the last entity was read."""
        return self._baseline.handshake

    def __iter__(self) -> Iterator[EntityRecord]:
        return iterate_inline(aiter(self._baseline))

    def blocks(self) -> Iterator[bytes]:
        """Blocks of whole JSON lines: every entity, and finally the handshake."""
        return iterate_inline(self._baseline.blocks())

    def close(self) -> None:
        """Stop reading early."""
        run_inline(self._baseline.close())


class RemoteChanges:
    """The changes of one commit, with images before and after; pages are fetched as needed."""

    def __init__(self, changes: AsyncRemoteChanges) -> None:
        self.cause: CommitCause = changes.cause
        self._changes = changes

    def __iter__(self) -> Iterator[EntityChange]:
        return iterate_inline(aiter(self._changes))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: first the cause, then every change."""
        return ChangeBlock(self.cause, tuple(self)).to_dict()


class RemoteDiff(DiffView):
    """The differences from one commit to another. Printed, it shows counts per type."""

    def __init__(self, diff: AsyncRemoteDiff) -> None:
        self._diff = diff

    @property
    def ends(self) -> tuple[DiffEnd, DiffEnd]:
        """The commits at both ends."""
        return self._diff.ends

    @property
    def direct(self) -> bool:
        """Whether the caller named both ends; otherwise the first is a merge base."""
        return self._diff.direct

    @property
    def types(self) -> Sequence[TypeCounts]:
        """The numbers of differing entities per type; unchanged types are left out."""
        return self._diff.types

    def changes(self, *, images: bool = False) -> Iterator[EntityChange]:
        """Every change, read lazily: nodes before edges, then by type and id."""
        return iterate_inline(self._diff.changes(images=images))


def _blocking_table(table: AsyncRemoteTable) -> Table:
    return Table(table.about, table.schema, lambda: iterate_inline(aiter(table)))


# --- the graph ------------------------------------------------------------------------------------


class RemoteReviews:
    """The change requests of a served graph; the verbs are those of `Graph.reviews`.

    The actor is that of the token.
    """

    def __init__(self, verbs: AsyncRemoteReviews) -> None:
        self._verbs = verbs

    list = _blocking(AsyncRemoteReviews.list)
    get = _blocking(AsyncRemoteReviews.get)
    diff = _blocking(AsyncRemoteReviews.diff, RemoteDiff, "RemoteDiff")
    diff_page = _blocking(AsyncRemoteReviews.diff_page)
    export = _blocking(AsyncRemoteReviews.export, iterate_inline, "Iterator[ReviewEvent]")
    export_page = _blocking(AsyncRemoteReviews.export_page)
    open = _blocking(AsyncRemoteReviews.open)
    edit = _blocking(AsyncRemoteReviews.edit)
    comment = _blocking(AsyncRemoteReviews.comment)
    resolve = _blocking(AsyncRemoteReviews.resolve)
    review = _blocking(AsyncRemoteReviews.review)
    check = _blocking(AsyncRemoteReviews.check)
    report_check = _blocking(AsyncRemoteReviews.report_check)
    merge = _blocking(AsyncRemoteReviews.merge)
    close = _blocking(AsyncRemoteReviews.close)
    reopen = _blocking(AsyncRemoteReviews.reopen)


class RemoteGraph:
    """One served graph. Safe to share between threads.

    Verbs have the semantics, results and errors of `Graph`. The actor of a write is that of the
    token. `ServerUnreachable` is raised if no server answers, and `AnswerLost` if the answer to a
    write that was sent is lost.
    """

    def __init__(self, verbs: AsyncRemoteGraph) -> None:
        self._verbs = verbs

    def __repr__(self) -> str:
        return repr(self._verbs).removeprefix("Async")

    @property
    def uri(self) -> str:
        """The URL of the graph."""
        return self._verbs.uri

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()

    @property
    def schema_source(self) -> str:
        """The schema text of main, or of this handle's branch, as it was written."""
        return run_inline(self._verbs._schema_source())

    query = _blocking(AsyncRemoteGraph.query)
    explain = _blocking(AsyncRemoteGraph.explain)
    describe_queries = _blocking(AsyncRemoteGraph.describe_queries)
    describe_schema = _blocking(AsyncRemoteGraph.describe_schema)
    snapshot = _blocking(AsyncRemoteGraph.snapshot)
    stats = _blocking(AsyncRemoteGraph.stats)
    export = _blocking(AsyncRemoteGraph.export, iterate_inline, "Iterator[bytes]")
    export_to = _blocking(AsyncRemoteGraph.export_to)
    table = _blocking(AsyncRemoteGraph.table, _blocking_table, "Table")
    blob = _blocking(AsyncRemoteGraph.blob, RemoteBlob, "RemoteBlob")

    mutate = _blocking(AsyncRemoteGraph.mutate)
    load = _blocking(AsyncRemoteGraph.load)
    plan_schema = _blocking(AsyncRemoteGraph.plan_schema)
    apply_schema = _blocking(AsyncRemoteGraph.apply_schema)
    rebase_schema = _blocking(AsyncRemoteGraph.rebase_schema)

    list_queries = _blocking(AsyncRemoteGraph.list_queries)
    invoke = _blocking(AsyncRemoteGraph.invoke)

    branch = _in_block(AsyncRemoteGraph.branch)

    def on_branch(self, name: str, *, actor: str | None = None) -> RemoteGraph:
        """The same served graph with another default branch; sends nothing."""
        return RemoteGraph(self._verbs.on_branch(name, actor=actor))

    create_branch = _blocking(AsyncRemoteGraph.create_branch)
    list_branches = _blocking(AsyncRemoteGraph.list_branches)
    delete_branch = _blocking(AsyncRemoteGraph.delete_branch)
    create_tag = _blocking(AsyncRemoteGraph.create_tag)
    list_tags = _blocking(AsyncRemoteGraph.list_tags)
    delete_tag = _blocking(AsyncRemoteGraph.delete_tag)
    diff = _blocking(AsyncRemoteGraph.diff, RemoteDiff, "RemoteDiff")
    diff_page = _blocking(AsyncRemoteGraph.diff_page)
    plan_merge = _blocking(AsyncRemoteGraph.plan_merge)
    merge_branch = _blocking(AsyncRemoteGraph.merge_branch)
    revert = _blocking(AsyncRemoteGraph.revert)
    cherry_pick = _blocking(AsyncRemoteGraph.cherry_pick)
    plan_revert = _blocking(AsyncRemoteGraph.plan_revert)
    plan_cherry_pick = _blocking(AsyncRemoteGraph.plan_cherry_pick)

    @property
    def reviews(self) -> RemoteReviews:
        """Change requests: `graph.reviews.open("feature", title="…")`, `.list()`, `.merge(id)`."""
        return RemoteReviews(self._verbs.reviews)

    list_commits = _blocking(AsyncRemoteGraph.list_commits)
    show_commit = _blocking(AsyncRemoteGraph.show_commit)
    entity_history = _blocking(
        AsyncRemoteGraph.entity_history, iterate_inline, "Iterator[EntityVersion]"
    )
    commit_changes = _blocking(AsyncRemoteGraph.commit_changes, RemoteChanges, "RemoteChanges")
    commit_changes_page = _blocking(AsyncRemoteGraph.commit_changes_page)
    poll_changes = _blocking(AsyncRemoteGraph.poll_changes)
    change_baseline = _blocking(AsyncRemoteGraph.change_baseline, RemoteBaseline, "RemoteBaseline")

    health = _blocking(AsyncRemoteGraph.health)
    close = _blocking(AsyncRemoteGraph.close)


# --- making clients -------------------------------------------------------------------------------


def connect(
    url: str,
    token: str | None = None,
    timeout: float | None = TIMEOUT_SECONDS,
    *,
    graph: str | None = None,
    rows: RowForm = "arrow",
    patience: Patience | None = None,
) -> RemoteGraph:
    """A graph behind a server, with the verbs of `Graph`. Sends nothing.

    ``url`` is that of the graph, `https://host/graphs/knowledge`, or of the server, with ``graph``
    as the id. ``timeout`` is in seconds per wait; None waits forever. ``rows`` is the transfer
    format of results: `arrow`, or `json`, which has only the types of JSON. ``patience`` configures
    retries. Raises `InputError` for an invalid URL.
    """
    address = Address.parse(url, graph)
    http = BlockingHttp(token, timeout)
    return RemoteGraph(AsyncRemoteGraph(Connection(address, http, patience or Patience()), rows))


def connect_async(
    url: str,
    token: str | None = None,
    timeout: float | None = TIMEOUT_SECONDS,
    *,
    graph: str | None = None,
    rows: RowForm = "arrow",
    patience: Patience | None = None,
) -> AsyncRemoteGraph:
    """The same for programs with an event loop: every verb is awaited."""
    address = Address.parse(url, graph)
    http = Http(token, timeout)
    return AsyncRemoteGraph(Connection(address, http, patience or Patience()), rows)


def list_graphs(
    url: str, token: str | None = None, timeout: float | None = TIMEOUT_SECONDS
) -> list[ServedGraph]:
    """The graphs of a server, by id; raises `Denied` unless its policy allows listing them."""

    async def listed() -> GraphList:
        http = BlockingHttp(token, timeout)
        connection = Connection(Address.parse(url), http, Patience())
        exchange = Exchange(
            operations.LIST_GRAPHS,
            lambda response: GraphList.from_dict(response.document()),
            is_read=True,
        )
        try:
            return await connection.send(exchange)
        finally:
            await connection.close()

    return list(run_inline(listed()).graphs)
