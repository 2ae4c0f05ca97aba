"""`AsyncRemoteGraph`: every verb of a served graph, written once; `RemoteGraph` runs the same.

What a server does not offer of `Graph` is listed in `omnigraph.client.NOT_SERVED`.
"""

from __future__ import annotations

import copy
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

from omnigraph.client.connection import Connection, ContentStream
from omnigraph.client.exchange import (
    Exchange,
    HasText,
    Response,
    Text,
    checked_body,
    condition,
    header_key,
    new_key,
    present,
    query_items,
    segment,
    sendable,
    utf8,
)
from omnigraph.client.failures import require_no_actor
from omnigraph.client.records import Data, read_records, types_of_exports
from omnigraph.client.tables import AsyncRemoteTable, write_tables
from omnigraph.client.values import (
    AsyncRemoteBaseline,
    AsyncRemoteBlob,
    AsyncRemoteChanges,
    AsyncRemoteDiff,
    BlobAddress,
    read_rows,
    read_rows_or_receipt,
    whole_lines,
)
from omnigraph.errors import InputError, LimitExceeded
from omnigraph.model.blobs import BlobSelector
from omnigraph.model.branch_scope import AsyncBranchScope, BranchTask
from omnigraph.model.changes import CommitPage, EntityVersion, FeedPage
from omnigraph.model.diffs import DiffPage
from omnigraph.model.exports import export_directory
from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.model.json_object import JsonObject
from omnigraph.model.load_options import (
    ErrorOptions,
    MapArgument,
    checked_options,
    map_texts,
)
from omnigraph.model.merging import ConflictPolicy, MergeGranularity, MergePlan
from omnigraph.model.receipts import (
    AbsentMeaning,
    BranchCreated,
    BranchDeleted,
    CommitInfo,
    ExportFormat,
    ExportReceipt,
    LoadMode,
    LoadReceipt,
    MergeReceipt,
    MutationReceipt,
    ReplayReceipt,
    SchemaApplyReceipt,
    SchemaPlan,
    SchemaRebaseReceipt,
    checked_export_format,
)
from omnigraph.model.result import Explanation, Result, SnapshotSummary
from omnigraph.model.signatures import QuerySignature
from omnigraph.model.tables import Where
from omnigraph.model.upkeep import GraphStats
from omnigraph.wire import operations, requests
from omnigraph.wire.answers import (
    BranchList,
    CommitList,
    EntityHistoryPage,
    Health,
    QueryCatalog,
    SchemaSource,
)
from omnigraph.wire.operations import Operation
from omnigraph.wire.requests import ARROW_STREAM, JSON, branch_name, read_document

RowForm = Literal["arrow", "json"]
Grammar = Literal["strict", "compatible"]
SourceText = str | Path | HasText
Answered = TypeVar("Answered", bound=JsonObject)

_ACCEPTED: Mapping[RowForm, str] = {"arrow": f"{ARROW_STREAM}, {JSON};q=0.5", "json": JSON}


class AsyncRemoteGraph:
    """One served graph, for one event loop; everything else is as with `RemoteGraph`."""

    def __init__(self, connection: Connection, rows: RowForm = "arrow") -> None:
        self._connection = connection
        self._rows = rows
        self._default_branch: str | None = None

    def __repr__(self) -> str:
        on = "" if self._default_branch is None else f" on {self._default_branch!r}"
        return f"AsyncRemoteGraph({self.uri!r}{on})"

    def on_branch(self, name: str, *, actor: str | None = None) -> Self:
        """The same served graph with another default branch; nothing is sent yet."""
        require_no_actor(actor)
        handle = copy.copy(self)
        handle._default_branch = name
        return handle

    def _branch_of(self, branch: str | None, snapshot: str | None = None) -> str | None:
        """The branch to send: a snapshot is a commit of any branch, and None means main."""
        return branch or (self._default_branch if snapshot is None else None)

    @property
    def uri(self) -> str:
        """Where the graph is served."""
        return self._connection.address.base

    async def close(self) -> None:
        """Let the connections go; the graph is not touched."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
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
        explain: bool = False,
    ) -> Result:
        """Run a read query over one snapshot and return its rows, as `Graph.query` does."""
        text = Text.of(source)
        fields = {
            "query": text.text,
            "name": name,
            "branch": self._branch_of(branch, snapshot),
            "snapshot": snapshot,
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

    async def explain(self, source: SourceText, *, name: str | None = None) -> Explanation:
        """The typed plan of a query, read or write, without running it."""
        text = Text.of(source)
        content = checked_body(requests.ExplainRequest, {"query": text.text, "name": name})
        return await self._ask(
            operations.EXPLAIN, Explanation, content=content, text=text, is_read=True
        )

    @property
    def schema_source(self) -> Awaitable[str]:
        """The schema of main, or of the branch of this handle, as it was written; awaited."""
        return self._schema_source()

    async def _schema_source(self) -> str:
        query = {"branch": self._branch_of(None)}
        return (await self._ask(operations.SCHEMA, SchemaSource, query=query)).schema_source

    async def snapshot(self, branch: str | None = None) -> SnapshotSummary:
        """The tables and counts at the head of a branch."""
        return await self._ask(
            operations.SNAPSHOT, SnapshotSummary, query={"branch": self._branch_of(branch)}
        )

    async def stats(self, branch: str | None = None) -> GraphStats:
        """The head of a branch and the graph around it in numbers; writes nothing."""
        return await self._ask(
            operations.STATS, GraphStats, query={"branch": self._branch_of(branch)}
        )

    async def export(
        self,
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
        stream = await self._export(branch, snapshot, types, format)
        return aiter(stream) if format == "arrow" else whole_lines(stream)

    async def export_to(
        self,
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
            await write_tables(made, await self._export(branch, snapshot, types, "arrow"))
        return made.receipt(is_complete=True)

    async def _export(
        self,
        branch: str | None,
        snapshot: str | None,
        types: Iterable[str] | None,
        format: Literal["jsonl", "arrow"],
    ) -> ContentStream:
        names = None if types is None else list(types)
        fields = {"branch": self._branch_of(branch), "snapshot": snapshot, "type_names": names}
        content = checked_body(requests.ExportRequest, fields)
        if format not in ("jsonl", "arrow"):
            raise InputError(
                f"there is no stream of format '{format}'",
                hint="it is jsonl or arrow; `export_to` writes files of other formats",
            )
        headers = {"Accept": ARROW_STREAM} if format == "arrow" else {}
        return await self._connection.stream(_stream(operations.EXPORT, content, headers))

    async def table(
        self,
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
            "snapshot": snapshot,
        }
        return await AsyncRemoteTable.find(self._connection, asked)

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
        return await AsyncRemoteBlob.find(
            self._connection, BlobAddress(selector, self._branch_of(branch, snapshot), snapshot)
        )

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
        operation_id: str | None = None,
        message: str | None = None,
    ) -> MutationReceipt:
        """Run a write query as one commit.

        ``expected_head`` makes it conditional: it runs only if that commit is the branch's head.
        ``operation_id`` names the write: repeating it with the same id returns the first receipt.
        ``message`` is kept with the commit.
        """
        require_no_actor(actor)
        text = Text.of(source)
        fields = {
            "query": text.text,
            "name": name,
            "branch": self._branch_of(branch),
            "operation_id": operation_id,
            "message": message,
        }
        return await self._ask(
            # Only the route for conditions knows them: an older server refuses it.
            operations.MUTATE if expected_head is None else operations.MUTATE_IF,
            MutationReceipt,
            headers=condition(expected_head),
            content=checked_body(requests.ChangeRequest, fields, params),
            text=text,
            key=operation_id,
        )

    async def load(
        self,
        *paths: str | os.PathLike[str],
        mode: LoadMode,
        absent: AbsentMeaning = "keep",
        data: Data | None = None,
        map: MapArgument | None = None,
        branch: str | None = None,
        from_: str | None = None,
        grammar: Grammar = "compatible",
        replace_types: Iterable[str] = (),
        dry_run: bool = False,
        actor: str | None = None,
        operation_id: str | None = None,
        message: str | None = None,
        progress: Callable[[int], None] | None = None,
        errors: ErrorOptions | None = None,
    ) -> LoadReceipt:
        """Load graph records, from files of JSON lines or as ``data``, as one commit.

        The options mean what they mean for `Graph.load`, but a server writes no file of errors. It
        takes up to 32 MiB at once; more is loaded on the storage.
        """
        require_no_actor(actor)
        errors = checked_options(errors, ErrorOptions, "errors")
        if errors.errors_out is not None:
            raise InputError(
                "a served graph writes no file of errors",
                hint="leave `errors_out` out: the problems are in the error or the receipt",
            )
        records = read_records(paths, data, progress)
        if mode == "overwrite":
            replace_types = [*replace_types, *types_of_exports(paths)]
        limit = operations.LOAD_BYTES_MAX
        if len(records) > limit:
            raise LimitExceeded(
                "graph_batch_request_bytes",
                limit,
                len(records),
                hint="load it in parts, or on the storage of the graph with `--store`",
            )
        options: dict[str, Any] = {
            "branch": self._branch_of(branch),
            "from": from_,
            "mode": mode,
            "absent": None if absent == "keep" else absent,
            "replace_types": list(replace_types) or None,
            "operation_id": operation_id,
            "message": message,
            "dry_run": dry_run or None,
            "max_errors": errors.max_errors,
            "ignore_unknown": errors.ignore_unknown or None,
            "on_error": None if errors.on_error == "fail" else errors.on_error,
            "max_error_share": errors.max_error_share,
            "map": map_texts(map),
        }
        if grammar == "compatible":
            content = checked_body(
                requests.LoadRequest, options | {"data": utf8(records, "the data")}
            )
            return await self._ask(operations.LOAD, LoadReceipt, content=content, key=operation_id)
        read_document(requests.LoadOptions, present(options))
        return await self._ask(
            operations.LOAD_NDJSON, LoadReceipt, query=options, content=records, key=operation_id
        )

    async def plan_schema(
        self, desired: SourceText, *, allow_data_loss: bool = False
    ) -> SchemaPlan:
        """The steps from the accepted schema to another; changes nothing."""
        return await self._schema(operations.PLAN_SCHEMA, SchemaPlan, desired, allow_data_loss)

    async def apply_schema(
        self,
        desired: SourceText,
        *,
        allow_data_loss: bool = False,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> SchemaApplyReceipt:
        """Bring main to another schema (a text, or the path of a `.pg` file) as one commit.

        ``operation_id`` names the change: repeating it with the same id returns the first receipt.
        """
        require_no_actor(actor)
        kind, operation = SchemaApplyReceipt, operations.APPLY_SCHEMA
        return await self._schema(
            operation, kind, desired, allow_data_loss, key=header_key(operation_id)
        )

    async def rebase_schema(
        self,
        branch: str | None = None,
        *,
        allow_data_loss: bool = False,
        dry_run: bool = False,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> SchemaRebaseReceipt:
        """Bring a branch to the schema that main has now, as one commit on the branch.

        The options mean what they mean for `Graph.rebase_schema`. ``operation_id`` names the
        request: repeating it with the same id returns the first receipt.
        """
        require_no_actor(actor)
        target = self._branch_of(branch) or MAIN_BRANCH
        fields = {"branch": target, "allow_data_loss": allow_data_loss, "dry_run": dry_run}
        content = checked_body(requests.SchemaRebaseRequest, fields)
        return await self._ask(
            operations.REBASE_SCHEMA,
            SchemaRebaseReceipt,
            content=content,
            key=header_key(operation_id),
            is_read=dry_run,
        )

    async def _schema(
        self,
        operation: Operation,
        kind: type[Answered],
        desired: SourceText,
        loss: bool,
        *,
        key: str | None = None,
    ) -> Answered:
        text = Text.of(desired)
        fields = {"schema_source": text.text, "allow_data_loss": loss}
        content = checked_body(requests.SchemaRequest, fields)
        is_read = not operation.is_gated
        return await self._ask(
            operation, kind, content=content, text=text, is_read=is_read, key=key
        )

    # --- stored queries ---------------------------------------------------------------------------

    async def list_queries(self) -> list[QuerySignature]:
        """The queries stored with the server, and what they take."""
        return list((await self._ask(operations.LIST_QUERIES, QueryCatalog)).queries)

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

        ``expect_mutation`` refuses it unless it writes, or unless it reads. Raises `NotFound` for
        an unknown name, and for a caller that may not run stored queries.
        """
        target = self._branch_of(branch, snapshot)
        fields = {"branch": target, "snapshot": snapshot, "expect_mutation": expect_mutation}
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

    # --- branches and review ----------------------------------------------------------------------

    def branch(
        self,
        name: str,
        from_: str | None = None,
        *,
        into: str | None = None,
        on_conflict: ConflictPolicy = "fail",
        on_conflict_of: Mapping[str, ConflictPolicy] | None = None,
        granularity: MergeGranularity = "entity",
        delete_branch: bool = True,
        resume: bool = False,
        actor: str | None = None,
    ) -> AsyncBranchScope[AsyncRemoteGraph]:
        """Fork a branch for the work of one `async with` block, and merge it if the block succeeds.

        It works as `Graph.branch` does.
        """
        require_no_actor(actor)
        source = self._branch_of(from_) or MAIN_BRANCH
        merge = (into or source, on_conflict, on_conflict_of, granularity, delete_branch)
        return AsyncBranchScope(self, BranchTask(name, source, *merge, resume, None))

    async def create_branch(
        self,
        name: str,
        from_: str | None = None,
        *,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> BranchCreated:
        """Create a branch at the head of another.

        ``operation_id`` names the request: repeating it with the same id returns the first receipt.
        """
        require_no_actor(actor)
        content = checked_body(
            requests.CreateBranchRequest, {"name": name, "from": self._branch_of(from_)}
        )
        operation = operations.CREATE_BRANCH
        return await self._ask(
            operation, BranchCreated, content=content, key=header_key(operation_id)
        )

    async def list_branches(self) -> list[str]:
        """The branches, sorted."""
        return list((await self._ask(operations.LIST_BRANCHES, BranchList)).branches)

    async def delete_branch(
        self, name: str, *, actor: str | None = None, operation_id: str | None = None
    ) -> BranchDeleted:
        """Delete a branch; its commits are gone with it.

        ``operation_id`` names the request: repeating it with the same id returns the first receipt.
        """
        require_no_actor(actor)
        operation, values = operations.DELETE_BRANCH, {"branch": branch_name(name)}
        return await self._ask(
            operation, BranchDeleted, values=values, key=header_key(operation_id)
        )

    async def diff(
        self,
        before: str,
        after: str,
        *,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> AsyncRemoteDiff:
        """The entities that differ between two branches, or two commits, or one of each.

        How many there are is known at once, `changes` fetches them. Raises what `Graph.diff` does.
        """
        filters: Any = {"kinds": list(kinds), "types": list(types), "ops": list(ops)}
        first = await self.diff_page(before, after, **filters)
        # Branches may move between two pages; the commits of the first page do not.
        ends = (first.before.graph_commit_id, first.after.graph_commit_id)

        async def turn(page_token: str | None, images: bool) -> DiffPage:
            return await self.diff_page(*ends, page_token=page_token, images=images, **filters)

        return AsyncRemoteDiff(first, turn)

    async def diff_page(
        self,
        before: str,
        after: str,
        *,
        page_token: str | None = None,
        limit: int | None = None,
        limit_bytes: int | None = None,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
        images: bool = False,
    ) -> DiffPage:
        """How much differs between two branches or commits, and some of the entities.

        `DiffPage.next_page_token` leads to the rest, together with the two commits of this page.
        """
        ends = {"before": before, "after": after, "images": images or None}
        query = ends | _page(page_token, limit, limit_bytes) | _filters(kinds, types, ops)
        return await self._ask(operations.DIFF, DiffPage, query=query)

    async def plan_merge(
        self,
        source: str,
        into: str | None = None,
        *,
        on_conflict: ConflictPolicy = "fail",
        on_conflict_of: Mapping[str, ConflictPolicy] | None = None,
        granularity: MergeGranularity = "entity",
    ) -> MergePlan:
        """What `merge_branch` would do now: per type, and every conflict. Changes nothing."""
        fields = _merge_fields(
            source, self._branch_of(into), on_conflict, on_conflict_of, granularity
        )
        content = checked_body(requests.MergePlanRequest, fields)
        return await self._ask(operations.PLAN_MERGE, MergePlan, content=content, is_read=True)

    async def merge_branch(
        self,
        source: str,
        into: str | None = None,
        *,
        on_conflict: ConflictPolicy = "fail",
        on_conflict_of: Mapping[str, ConflictPolicy] | None = None,
        granularity: MergeGranularity = "entity",
        delete_branch: bool = False,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> MergeReceipt:
        """Merge a branch into main, or ``into`` another, as one commit with two parents.

        The options mean what they mean for `Graph.merge_branch`. Raises `MergeConflicts`, and
        nothing has changed then. ``operation_id`` names the merge: repeating it with the same id
        returns the first receipt.
        """
        require_no_actor(actor)
        fields = _merge_fields(
            source, self._branch_of(into), on_conflict, on_conflict_of, granularity
        )
        content = checked_body(requests.MergeRequest, fields | {"delete_branch": delete_branch})
        operation = operations.MERGE_BRANCHES
        return await self._ask(
            operation, MergeReceipt, content=content, key=header_key(operation_id)
        )

    async def revert(
        self,
        commit_id: str,
        *,
        branch: str | None = None,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> ReplayReceipt:
        """Undo what one commit of a branch changed, as a new commit; history stays as it is.

        Raises `MergeConflicts` where the same entities changed again; nothing is done then.
        ``operation_id`` names the request: repeating it with the same id returns the first receipt.
        """
        require_no_actor(actor)
        operation = operations.REVERT
        return await self._replay(
            operation, ReplayReceipt, commit_id, branch, key=header_key(operation_id)
        )

    async def cherry_pick(
        self,
        commit_id: str,
        into: str | None = None,
        *,
        actor: str | None = None,
        operation_id: str | None = None,
    ) -> ReplayReceipt:
        """Do what one commit of any branch changed once more on main, or ``into`` another branch.

        Raises `MergeConflicts` where the same entities differ there; nothing is done then.
        ``operation_id`` names the request: repeating it with the same id returns the first receipt.
        """
        require_no_actor(actor)
        operation = operations.CHERRY_PICK
        return await self._replay(
            operation, ReplayReceipt, commit_id, into, key=header_key(operation_id)
        )

    async def plan_revert(self, commit_id: str, *, branch: str | None = None) -> MergePlan:
        """What `revert` would do now. Changes nothing."""
        return await self._replay(operations.PLAN_REVERT, MergePlan, commit_id, branch)

    async def plan_cherry_pick(self, commit_id: str, into: str | None = None) -> MergePlan:
        """What `cherry_pick` would do now. Changes nothing."""
        return await self._replay(operations.PLAN_CHERRY_PICK, MergePlan, commit_id, into)

    async def _replay(
        self,
        operation: Operation,
        kind: type[Answered],
        commit_id: str,
        branch: str | None,
        *,
        key: str | None = None,
    ) -> Answered:
        values = {"commit_id": segment(commit_id, "commit")}
        content = checked_body(requests.ReplayRequest, {"branch": self._branch_of(branch)})
        is_read = not operation.is_gated
        return await self._ask(
            operation, kind, values=values, content=content, is_read=is_read, key=key
        )

    # --- history and changes ----------------------------------------------------------------------

    async def list_commits(
        self, branch: str | None = None, *, actor: str | None = None
    ) -> list[CommitInfo]:
        """The commits a branch's head reaches, newest first; only those of ``actor``, if given."""
        found = await self._ask(
            operations.LIST_COMMITS, CommitList, query={"branch": self._branch_of(branch)}
        )
        return [commit for commit in found.commits if actor in (None, commit.actor_id)]

    async def show_commit(self, commit_id: str) -> CommitInfo:
        """One commit of any branch; raises `NotFound`."""
        values = {"commit_id": segment(commit_id, "commit")}
        return await self._ask(operations.GET_COMMIT, CommitInfo, values=values)

    async def entity_history(
        self, type_name: str, entity_id: str, *, branch: str | None = None
    ) -> AsyncIterator[EntityVersion]:
        """The commits of a branch that changed one entity, newest first, with what they did to it.

        ``type_name`` is a name, or `node:Name` or `edge:Name`. More are fetched as needed.
        """
        target = self._branch_of(branch)

        async def page(token: str | None) -> EntityHistoryPage:
            query = {"type": type_name, "id": entity_id, "branch": target, "page_token": token}
            return await self._ask(operations.ENTITY_HISTORY, EntityHistoryPage, query=query)

        async def versions(found: EntityHistoryPage) -> AsyncIterator[EntityVersion]:
            while True:
                for version in found.versions:
                    yield version
                if found.next_page_token is None:
                    return
                found = await page(found.next_page_token)

        return versions(await page(None))

    async def commit_changes(
        self,
        commit_id: str,
        *,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> AsyncRemoteChanges:
        """What one commit changed in its first parent, with images before and after."""
        filters: Any = {"kinds": list(kinds), "types": list(types), "ops": list(ops)}

        async def turn(page_token: str) -> CommitPage:
            return await self.commit_changes_page(commit_id, page_token=page_token, **filters)

        return AsyncRemoteChanges(await self.commit_changes_page(commit_id, **filters), turn)

    async def commit_changes_page(
        self,
        commit_id: str,
        *,
        page_token: str | None = None,
        limit: int | None = None,
        limit_bytes: int | None = None,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> CommitPage:
        """Some of what one commit changed; `CommitPage.next_page_token` leads to the rest."""
        query = _page(page_token, limit, limit_bytes) | _filters(kinds, types, ops)
        values = {"commit_id": segment(commit_id, "commit")}
        return await self._ask(operations.COMMIT_CHANGES, CommitPage, values=values, query=query)

    async def poll_changes(
        self,
        branch: str | None = None,
        *,
        cursor: str | None = None,
        start: str | None = None,
        page_token: str | None = None,
        limit: int | None = None,
        limit_bytes: int | None = None,
        limit_commits: int | None = None,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> FeedPage:
        """What the commits of a branch changed since ``cursor``, one block a commit."""
        place = {"branch": self._branch_of(branch), "cursor": cursor, "start": start}
        page = _page(page_token, limit, limit_bytes) | {"limit_commits": limit_commits}
        query = place | page | _filters(kinds, types, ops)
        return await self._ask(operations.POLL_CHANGES, FeedPage, query=query)

    async def change_baseline(
        self,
        branch: str | None = None,
        *,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> AsyncRemoteBaseline:
        """Every entity at the present head of a branch, and then the cursor to go on with."""
        given = {name: words for name, words in _filters(kinds, types, ops).items() if words}
        content = checked_body(
            requests.BaselineRequest, {"branch": self._branch_of(branch), **given}
        )
        stream = await self._connection.stream(_stream(operations.BASELINE, content))
        return AsyncRemoteBaseline(stream)

    # --- the server -------------------------------------------------------------------------------

    async def health(self) -> Health:
        """What the server says about itself; needs no token."""
        return await self._ask(operations.GRAPH_HEALTH, Health)

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
        """Send a request whose answer is one JSON object of a kind; a GET changes nothing."""

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


def _stream(
    operation: Operation, content: bytes, headers: Mapping[str, str] | None = None
) -> Exchange[None]:
    """A request whose answer is read as it comes; reading it changes nothing."""
    return Exchange(operation, lambda _: None, headers=headers or {}, content=content, is_read=True)


def _page(page_token: str | None, limit: int | None, limit_bytes: int | None) -> dict[str, Any]:
    return {"page_token": page_token, "limit": limit, "limit_bytes": limit_bytes}


def _filters(kinds: Iterable[str], types: Iterable[str], ops: Iterable[str]) -> dict[str, Any]:
    return {"kind": list(kinds), "type": list(types), "op": list(ops)}


def _merge_fields(
    source: str,
    into: str | None,
    on_conflict: ConflictPolicy,
    on_conflict_of: Mapping[str, ConflictPolicy] | None,
    granularity: MergeGranularity,
) -> dict[str, Any]:
    """The fields of a merge; a rule that is the default is not sent, as older servers know none."""
    return {
        "source": source,
        "target": into,
        "on_conflict": None if on_conflict == "fail" else on_conflict,
        "on_conflict_of": dict(on_conflict_of) if on_conflict_of else None,
        "granularity": None if granularity == "entity" else granularity,
    }
