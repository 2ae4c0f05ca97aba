"""Every verb as one request; both clients send these."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

from omnigraph.client import answers
from omnigraph.client.answers import value_of
from omnigraph.client.exchange import Exchange, json_body, query_items
from omnigraph.client.texts import HasText, Text
from omnigraph.errors import InputError, LimitExceeded
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
from omnigraph.wire import operations
from omnigraph.wire.answers import (
    BranchList,
    CommitList,
    GraphList,
    Health,
    QueryCatalog,
    SchemaSource,
    ServedGraph,
)
from omnigraph.wire.operations import Operation
from omnigraph.wire.requests import (
    ARROW_STREAM,
    IF_GRAPH_COMMIT,
    JSON,
    BaselineRequest,
    Body,
    ChangeRequest,
    CreateBranchRequest,
    ExportRequest,
    InvokeRequest,
    LoadOptions,
    LoadRequest,
    MergeRequest,
    QueryRequest,
    SchemaRequest,
    branch_name,
    expected_commit,
    read_document,
)

RowForm = Literal["arrow", "json"]
Parameters = Mapping[str, Any]
Grammar = Literal["strict", "compatible"]
SourceText = str | Path | HasText

Value = TypeVar("Value")

_branches, _commits = value_of(BranchList), value_of(CommitList)
_catalog, _graphs, _schema = value_of(QueryCatalog), value_of(GraphList), value_of(SchemaSource)

_ACCEPTED: Mapping[RowForm, str] = {"arrow": f"{ARROW_STREAM}, {JSON};q=0.5", "json": JSON}


def query(
    source: SourceText,
    params: Parameters | None,
    *,
    name: str | None,
    branch: str | None,
    snapshot: str | None,
    rows: RowForm,
) -> Exchange[Result]:
    """Run a query that reads."""
    text = Text.of(source)
    fields = {"query": text.text, "name": name, "branch": branch, "snapshot": snapshot}
    return Exchange(
        operations.QUERY,
        answers.result,
        headers={"Accept": _ACCEPTED[rows]},
        content=_body(QueryRequest, fields, params),
        is_read=True,
        text=text,
    )


def mutate(
    source: SourceText,
    params: Parameters | None,
    *,
    name: str | None,
    branch: str | None,
    expected_head: str | None,
) -> Exchange[MutationReceipt]:
    """Run a query that writes; with an expected head on the route that knows conditions only."""
    text = Text.of(source)
    fields = {"query": text.text, "name": name, "branch": branch}
    return Exchange(
        operations.MUTATE if expected_head is None else operations.MUTATE_IF,
        value_of(MutationReceipt),
        headers=_condition(expected_head),
        content=_body(ChangeRequest, fields, params),
        text=text,
    )


def load(
    data: bytes, *, mode: LoadMode, branch: str | None, from_: str | None, grammar: Grammar
) -> Exchange[LoadReceipt]:
    """Load graph records."""
    limit = operations.LOAD_BYTES_MAX
    if len(data) > limit:
        raise LimitExceeded(
            "graph_batch_request_bytes",
            limit,
            len(data),
            hint="load it in parts, or on the storage of the graph with `--store`",
        )
    options: dict[str, Any] = {"branch": branch, "from": from_, "mode": mode}
    if grammar == "compatible":
        return Exchange(
            operations.LOAD,
            value_of(LoadReceipt),
            content=_body(LoadRequest, options | {"data": _utf8(data)}),
        )
    read_document(LoadOptions, _present(options))
    return Exchange(
        operations.LOAD_NDJSON, value_of(LoadReceipt), query=query_items(**options), content=data
    )


def export(branch: str | None, types: Iterable[str] | None) -> Exchange[None]:
    """Stream the entities of a branch."""
    names = None if types is None else list(types)
    content = _body(ExportRequest, {"branch": branch, "type_names": names})
    return _stream(operations.EXPORT, content=content)


def baseline(
    branch: str | None, kinds: Iterable[str], types: Iterable[str], ops: Iterable[str]
) -> Exchange[None]:
    """Stream the entities of a branch, and the cursor of what follows."""
    filters = {"kind": list(kinds), "type": list(types), "op": list(ops)}
    given = {name: words for name, words in filters.items() if words}
    content = _body(BaselineRequest, {"branch": branch, **given})
    return _stream(operations.BASELINE, content=content)


def blob_query(
    selector: BlobSelector, branch: str | None, snapshot: str | None
) -> Mapping[str, str | None]:
    """Which blob is meant, as parameters."""
    return {**selector.to_dict(), "branch": branch, "snapshot": snapshot}


def head_blob(selected: Mapping[str, str | None], read: Callable[..., Value]) -> Exchange[Value]:
    """What a blob is; one that lies elsewhere answers with its place."""
    items = query_items(**selected)
    return Exchange(operations.HEAD_BLOB, read, query=items, is_read=True, also_fine=(302,))


def get_blob(selected: Mapping[str, str | None], start: int, end: int, etag: str) -> Exchange[None]:
    """Stream bytes of a blob, if it still is the one with this tag."""
    headers = {"Range": f"bytes={start}-{end - 1}", "If-Match": etag}
    return _stream(operations.GET_BLOB, query=query_items(**selected), headers=headers)


# --- branches and history -------------------------------------------------------------------------


def list_branches() -> Exchange[list[str]]:
    """The branches."""
    return Exchange(
        operations.LIST_BRANCHES, lambda found: list(_branches(found).branches), is_read=True
    )


def create_branch(name: str, from_: str | None) -> Exchange[BranchCreated]:
    """Create a branch at the head of another."""
    content = _body(CreateBranchRequest, {"name": name, "from": from_})
    return Exchange(operations.CREATE_BRANCH, value_of(BranchCreated), content=content)


def delete_branch(name: str) -> Exchange[BranchDeleted]:
    """Delete a branch."""
    values = {"branch": branch_name(name)}
    return Exchange(operations.DELETE_BRANCH, value_of(BranchDeleted), values)


def merge_branch(source: str, into: str | None, *, delete_branch: bool) -> Exchange[MergeReceipt]:
    """Merge a branch into another."""
    fields = {"source": source, "target": into, "delete_branch": delete_branch}
    content = _body(MergeRequest, fields)
    return Exchange(operations.MERGE_BRANCHES, value_of(MergeReceipt), content=content)


def list_commits(branch: str | None) -> Exchange[list[CommitInfo]]:
    """The commits of a branch."""
    items = query_items(branch=branch)
    return Exchange(
        operations.LIST_COMMITS,
        lambda found: list(_commits(found).commits),
        query=items,
        is_read=True,
    )


def show_commit(commit_id: str) -> Exchange[CommitInfo]:
    """One commit."""
    values = {"commit_id": _named(commit_id, "commit")}
    return Exchange(operations.GET_COMMIT, value_of(CommitInfo), values, is_read=True)


def commit_changes(
    commit_id: str,
    *,
    page_token: str | None,
    limit: int | None,
    kinds: Iterable[str],
    types: Iterable[str],
    ops: Iterable[str],
) -> Exchange[CommitPage]:
    """Some of what one commit changed."""
    items = query_items(page_token=page_token, limit=limit, kind=kinds, type=types, op=ops)
    values = {"commit_id": _named(commit_id, "commit")}
    return Exchange(
        operations.COMMIT_CHANGES, value_of(CommitPage), values, query=items, is_read=True
    )


def poll_changes(
    branch: str | None,
    *,
    cursor: str | None,
    start: str | None,
    page_token: str | None,
    limit: int | None,
    kinds: Iterable[str],
    types: Iterable[str],
    ops: Iterable[str],
) -> Exchange[FeedPage]:
    """Some of what the commits of a branch changed."""
    items = query_items(
        branch=branch,
        cursor=cursor,
        start=start,
        page_token=page_token,
        limit=limit,
        kind=kinds,
        type=types,
        op=ops,
    )
    return Exchange(operations.POLL_CHANGES, value_of(FeedPage), query=items, is_read=True)


# --- schema, stored queries, the server -----------------------------------------------------------


def schema_source() -> Exchange[str]:
    """The accepted schema."""
    return Exchange(operations.SCHEMA, lambda found: _schema(found).schema_source, is_read=True)


def apply_schema(desired: SourceText, *, allow_data_loss: bool) -> Exchange[SchemaApplyReceipt]:
    """Bring the graph to another schema."""
    text = Text.of(desired)
    fields = {"schema_source": text.text, "allow_data_loss": allow_data_loss}
    content = _body(SchemaRequest, fields)
    return Exchange(
        operations.APPLY_SCHEMA, value_of(SchemaApplyReceipt), content=content, text=text
    )


def snapshot(branch: str | None) -> Exchange[SnapshotSummary]:
    """What a branch holds."""
    items = query_items(branch=branch)
    return Exchange(operations.SNAPSHOT, value_of(SnapshotSummary), query=items, is_read=True)


def list_queries() -> Exchange[list[QuerySignature]]:
    """The stored queries."""
    return Exchange(
        operations.LIST_QUERIES, lambda found: list(_catalog(found).queries), is_read=True
    )


def invoke(
    name: str,
    params: Parameters | None,
    *,
    branch: str | None,
    snapshot: str | None,
    expect_mutation: bool | None,
    expected_head: str | None,
    rows: RowForm,
) -> Exchange[Result | MutationReceipt]:
    """Run a stored query; it counts as a read only if it is asked to be one."""
    fields = {"branch": branch, "snapshot": snapshot, "expect_mutation": expect_mutation}
    return Exchange(
        operations.INVOKE if expected_head is None else operations.INVOKE_IF,
        answers.result_or_receipt,
        {"name": _named(name, "stored query")},
        headers={"Accept": _ACCEPTED[rows], **_condition(expected_head)},
        content=_body(InvokeRequest, fields, params),
        is_read=expect_mutation is False,
    )


def health() -> Exchange[Health]:
    """Whether the server is alive."""
    return Exchange(operations.GRAPH_HEALTH, value_of(Health), is_read=True)


def list_graphs() -> Exchange[list[ServedGraph]]:
    """The graphs of a server."""
    return Exchange(operations.LIST_GRAPHS, lambda found: list(_graphs(found).graphs), is_read=True)


# --- parts ----------------------------------------------------------------------------------------


def _stream(
    operation: Operation,
    *,
    query: tuple[tuple[str, str], ...] = (),
    headers: Mapping[str, str] | None = None,
    content: bytes | None = None,
) -> Exchange[None]:
    """A request whose answer is read as it comes; reading it changes nothing."""
    return Exchange(
        operation,
        lambda _answer: None,
        query=query,
        headers=headers or {},
        content=content,
        is_read=True,
    )


def _body(model: type[Body], fields: Mapping[str, Any], params: Parameters | None = None) -> bytes:
    """A request body, held against the very model that the server reads it with."""
    present = _present(fields)
    read_document(model, present)
    return json_body(present | ({} if params is None else {"params": dict(params)}))


def _present(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}


def _condition(expected_head: str | None) -> dict[str, str]:
    if expected_head is None:
        return {}
    return {IF_GRAPH_COMMIT: expected_commit([expected_head])}


def _named(word: str, what: str) -> str:
    """A word that becomes a segment of a path, where an empty one would name something else."""
    if not word or word in (".", ".."):
        raise InputError(f"`{word}` is not the name of a {what}")
    return word


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as bad:
        raise InputError(f"the data is not UTF-8, from byte {bad.start} on") from None
