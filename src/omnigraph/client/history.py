"""Commits of a served graph and their changes: listing, comparing, paging and polling."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from typing import Any

from omnigraph.client.exchange import (
    checked_body,
    segment,
)
from omnigraph.client.handle import AsyncHandle, stream_of
from omnigraph.client.values import (
    AsyncRemoteBaseline,
    AsyncRemoteChanges,
    AsyncRemoteDiff,
)
from omnigraph.model.changes import CommitPage, EntityVersion, FeedPage
from omnigraph.model.diffs import DiffPage
from omnigraph.model.receipts import (
    CommitInfo,
)
from omnigraph.wire import operations, requests
from omnigraph.wire.answers import (
    CommitList,
    EntityHistoryPage,
)


async def list_commits(
    self: AsyncHandle, branch: str | None = None, *, actor: str | None = None
) -> list[CommitInfo]:
    """The commits a branch's head reaches, newest first; only those of ``actor``, if given."""
    found = await self._ask(
        operations.LIST_COMMITS, CommitList, query={"branch": self._branch_of(branch)}
    )
    return [commit for commit in found.commits if actor in (None, commit.actor_id)]


async def show_commit(self: AsyncHandle, commit_id: str) -> CommitInfo:
    """One commit of any branch, by its id or another revision; raises `UnresolvedRevision`."""
    values = {"commit_id": segment(self._revision_of(commit_id), "commit")}
    return await self._ask(operations.GET_COMMIT, CommitInfo, values=values)


async def entity_history(
    self: AsyncHandle, type_name: str, entity_id: str, *, branch: str | None = None
) -> AsyncIterator[EntityVersion]:
    """The commits of a branch that changed one entity, newest first, with each change.

    ``type_name`` is a name, or `node:Name` or `edge:Name`. Pages are fetched as needed.
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


async def diff(
    self: AsyncHandle,
    target: str,
    source: str,
    *,
    direct: bool = False,
    kinds: Iterable[str] = (),
    types: Iterable[str] = (),
    ops: Iterable[str] = (),
) -> AsyncRemoteDiff:
    """The changes of ``source`` since its merge base with ``target``; each is a revision.

    With ``direct`` the two are compared directly. The counts are fetched at once, the changes by
    `changes`. Raises as `Graph.diff` does.
    """
    filters: Any = {"kinds": list(kinds), "types": list(types), "ops": list(ops)}
    filters |= {"direct": direct}
    first = await diff_page(self, target, source, **filters)
    # Branches may move between two pages; later pages use the commits of the first.
    ends = (first.before.graph_commit_id, first.after.graph_commit_id)

    async def turn(page_token: str | None, images: bool) -> DiffPage:
        return await diff_page(self, *ends, page_token=page_token, images=images, **filters)

    return AsyncRemoteDiff(first, turn)


async def diff_page(
    self: AsyncHandle,
    target: str,
    source: str,
    *,
    direct: bool = False,
    page_token: str | None = None,
    limit: int | None = None,
    limit_bytes: int | None = None,
    kinds: Iterable[str] = (),
    types: Iterable[str] = (),
    ops: Iterable[str] = (),
    images: bool = False,
) -> DiffPage:
    """One page of `diff`: counts per type, and a part of the changes.

    `DiffPage.next_page_token`, with the two commits of this page, gets the next one.
    """
    ends = {"target": self._revision_of(target), "source": self._revision_of(source)}
    shown = {"direct": direct or None, "images": images or None}
    query = ends | shown | _page(page_token, limit, limit_bytes) | _filters(kinds, types, ops)
    return await self._ask(operations.DIFF, DiffPage, query=query)


async def commit_changes(
    self: AsyncHandle,
    commit_id: str,
    *,
    kinds: Iterable[str] = (),
    types: Iterable[str] = (),
    ops: Iterable[str] = (),
) -> AsyncRemoteChanges:
    """The changes of one commit to its first parent, with images before and after."""
    filters: Any = {"kinds": list(kinds), "types": list(types), "ops": list(ops)}

    async def turn(page_token: str) -> CommitPage:
        return await commit_changes_page(self, commit_id, page_token=page_token, **filters)

    return AsyncRemoteChanges(await commit_changes_page(self, commit_id, **filters), turn)


async def commit_changes_page(
    self: AsyncHandle,
    commit_id: str,
    *,
    page_token: str | None = None,
    limit: int | None = None,
    limit_bytes: int | None = None,
    kinds: Iterable[str] = (),
    types: Iterable[str] = (),
    ops: Iterable[str] = (),
) -> CommitPage:
    """One page of the changes of a commit; `CommitPage.next_page_token` gets the next one."""
    query = _page(page_token, limit, limit_bytes) | _filters(kinds, types, ops)
    values = {"commit_id": segment(self._revision_of(commit_id), "commit")}
    return await self._ask(operations.COMMIT_CHANGES, CommitPage, values=values, query=query)


async def poll_changes(
    self: AsyncHandle,
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
    """The changes of a branch's commits since ``cursor``, one block per commit."""
    place = {"branch": self._branch_of(branch), "cursor": cursor, "start": start}
    page = _page(page_token, limit, limit_bytes) | {"limit_commits": limit_commits}
    query = place | page | _filters(kinds, types, ops)
    return await self._ask(operations.POLL_CHANGES, FeedPage, query=query)


async def change_baseline(
    self: AsyncHandle,
    branch: str | None = None,
    *,
    kinds: Iterable[str] = (),
    types: Iterable[str] = (),
    ops: Iterable[str] = (),
) -> AsyncRemoteBaseline:
    """Every entity at the current head of a branch, and the cursor to continue with."""
    given = {name: words for name, words in _filters(kinds, types, ops).items() if words}
    content = checked_body(requests.BaselineRequest, {"branch": self._branch_of(branch), **given})
    stream = await self._connection.stream(stream_of(operations.BASELINE, content))
    return AsyncRemoteBaseline(stream)


def _page(page_token: str | None, limit: int | None, limit_bytes: int | None) -> dict[str, Any]:
    return {"page_token": page_token, "limit": limit, "limit_bytes": limit_bytes}


def _filters(kinds: Iterable[str], types: Iterable[str], ops: Iterable[str]) -> dict[str, Any]:
    return {"kind": list(kinds), "type": list(types), "op": list(ops)}
