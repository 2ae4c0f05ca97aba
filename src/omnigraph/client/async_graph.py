"""`AsyncRemoteGraph`: the verbs of a served graph, as coroutines that `RemoteGraph` also runs.

A verb is a function in the module of its subject. Verbs of `Graph` that are not served are listed
in `omnigraph.client.NOT_SERVED`.
"""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Mapping
from typing import Self

from omnigraph.client import branches, history, reading, writing
from omnigraph.client.branches import AsyncRemoteReviews
from omnigraph.client.failures import require_no_actor
from omnigraph.client.handle import AsyncHandle
from omnigraph.model.branch_scope import AsyncBranchScope, BranchTask
from omnigraph.model.ids import MAIN_BRANCH
from omnigraph.model.merging import ConflictPolicy, MergeGranularity
from omnigraph.wire import operations
from omnigraph.wire.answers import (
    Health,
    SchemaSource,
)


class AsyncRemoteGraph(AsyncHandle):
    """One served graph, for use in one event loop; otherwise like `RemoteGraph`."""

    def __repr__(self) -> str:
        on = "" if self._default_branch is None else f" on {self._default_branch!r}"
        return f"AsyncRemoteGraph({self.uri!r}{on})"

    @property
    def uri(self) -> str:
        """The URL of the graph."""
        return self._connection.address.base

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *failure: object) -> None:
        await self.close()

    # --- reading ----------------------------------------------------------------------------------

    @property
    def schema_source(self) -> Awaitable[str]:
        """Await the schema text of main, or of this handle's branch, as it was written."""
        return self._schema_source()

    async def _schema_source(self) -> str:
        query = {"branch": self._branch_of(None)}
        return (await self._ask(operations.SCHEMA, SchemaSource, query=query)).schema_source

    async def health(self) -> Health:
        """The health and version of the server; needs no token."""
        return await self._ask(operations.GRAPH_HEALTH, Health)

    query = reading.query
    explain = reading.explain
    describe_queries = reading.describe_queries
    describe_schema = reading.describe_schema
    snapshot = reading.snapshot
    stats = reading.stats
    export = reading.export
    export_to = reading.export_to
    table = reading.table
    blob = reading.blob
    list_queries = reading.list_queries
    invoke = reading.invoke

    # --- writing ----------------------------------------------------------------------------------

    mutate = writing.mutate
    load = writing.load
    plan_schema = writing.plan_schema
    apply_schema = writing.apply_schema
    rebase_schema = writing.rebase_schema

    # --- branches ---------------------------------------------------------------------------------

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

    def on_branch(self, name: str, *, actor: str | None = None) -> Self:
        """The same served graph with another default branch; sends nothing."""
        require_no_actor(actor)
        handle = copy.copy(self)
        handle._default_branch = name
        return handle

    create_branch = branches.create_branch
    list_branches = branches.list_branches
    delete_branch = branches.delete_branch
    create_tag = branches.create_tag
    list_tags = branches.list_tags
    delete_tag = branches.delete_tag
    plan_merge = branches.plan_merge
    merge_branch = branches.merge_branch
    revert = branches.revert
    cherry_pick = branches.cherry_pick
    plan_revert = branches.plan_revert
    plan_cherry_pick = branches.plan_cherry_pick

    @property
    def reviews(self) -> AsyncRemoteReviews:
        """Change requests; every verb is awaited."""
        return AsyncRemoteReviews(self)

    # --- history and changes ----------------------------------------------------------------------

    list_commits = history.list_commits
    show_commit = history.show_commit
    entity_history = history.entity_history
    diff = history.diff
    diff_page = history.diff_page
    commit_changes = history.commit_changes
    commit_changes_page = history.commit_changes_page
    poll_changes = history.poll_changes
    change_baseline = history.change_baseline
