"""Following an open graph: what differs between commits, and the feed of what changes."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from omnigraph.branching.change_feed import ChangeBaseline, ChangeFeed, PollRequest, change_baseline
from omnigraph.branching.change_pages import (
    CommitPageRequest,
    DiffPageRequest,
    Unfinished,
    commit_page,
    diff_page,
)
from omnigraph.branching.commit_changes import CommitChanges, commit_changes, diff_of
from omnigraph.branching.diff import GraphDiff
from omnigraph.branching.moments import SchemaHistory, moment_of
from omnigraph.graph.reading import GraphReading
from omnigraph.model.changes import ChangeFilter, CommitPage, FeedPage, PageLimits
from omnigraph.model.diffs import DiffPage
from omnigraph.storage.layout import MAIN


class GraphFollowing(GraphReading):
    """The changes of one open graph."""

    @cached_property
    def _schemas(self) -> SchemaHistory:
        return SchemaHistory(self._kernel)

    @cached_property
    def _unfinished(self) -> Unfinished:
        return Unfinished()

    def diff(
        self,
        before: str,
        after: str,
        *,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> GraphDiff:
        """The entities that differ between two branches, or two commits, or one of each.

        Printed, it shows how many of each type were inserted, updated and deleted on the way from
        ``before`` to ``after``; `GraphDiff.changes` lists them. Only ``kinds`` (`node`, `edge`),
        ``types`` by name and ``ops`` (`insert`, `update`, `delete`) if any are given. Raises
        `ChangeDiffRefused` when the schema changed in between and rewrote data.
        """
        older, newer = (moment_of(self._kernel, name) for name in (before, after))
        return diff_of(self._schemas, older, newer, ChangeFilter.of(kinds, types, ops))

    def diff_page(
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
        ``limit`` is in entities, 1,000 unless told, ``limit_bytes`` a target for their size. Raises
        what `diff` raises, and `ChangeCursorRejected` for a token of another diff.
        """
        request = DiffPageRequest(
            before,
            after,
            ChangeFilter.of(kinds, types, ops),
            PageLimits.of(limit, limit_bytes),
            page_token,
            images,
        )
        return diff_page(self._kernel, self._schemas, self._unfinished, request)

    def commit_changes(
        self,
        commit_id: str,
        *,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> CommitChanges:
        """What one commit changed in its first parent, with images before and after.

        Raises `NotFound`, `ChangeDiffRefused` for the first commit of a graph and for a change of
        schema that rewrote or dropped data, and `ChangeFeedGap` when cleanup has removed what it
        needs.
        """
        wanted = ChangeFilter.of(kinds, types, ops)
        return commit_changes(self._kernel, self._schemas, commit_id, wanted)

    def commit_changes_page(
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
        """Some of what one commit changed; `CommitPage.next_page_token` leads to the rest.

        ``limit`` is in changes, 1,000 unless told, ``limit_bytes`` a target for their size. Raises
        what `commit_changes` raises, and `ChangeCursorRejected` for a token of another commit or
        filter.
        """
        request = CommitPageRequest(
            commit_id,
            ChangeFilter.of(kinds, types, ops),
            PageLimits.of(limit, limit_bytes),
            page_token,
        )
        return commit_page(self._kernel, self._schemas, self._unfinished, request)

    def poll_changes(
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
        """What the commits of a branch changed since ``cursor``, one block a commit.

        Without a cursor, ``start`` says where to begin: `now`, which is meant if nothing is given,
        `beginning`, or `after:<commit>`. A page ends either with a ``next_page_token`` for the rest
        of a commit, or with the cursor of the next poll. The caller keeps the cursor, and may come
        back with it in any process. Deliver at least once: the blocks of one commit always have its
        ``graph_commit_id``.

        Raises `ChangeCursorRejected`, `NotFound`, `ChangeFeedGap` when cleanup has removed what the
        next commit needs, and `ChangeDiffRefused` when the next commit is a change of schema that
        rewrote or dropped data. After the last two only `change_baseline` leads on.
        """
        request = PollRequest(
            branch or MAIN,
            ChangeFilter.of(kinds, types, ops),
            PageLimits.of(limit, limit_bytes, limit_commits),
            cursor,
            start,
            page_token,
        )
        return ChangeFeed(self._kernel, self._schemas, self._unfinished).poll(request)

    def change_baseline(
        self,
        branch: str | None = None,
        *,
        kinds: Iterable[str] = (),
        types: Iterable[str] = (),
        ops: Iterable[str] = (),
    ) -> ChangeBaseline:
        """Every entity at the present head of a branch, and then the cursor to go on with.

        Writers go on meanwhile: what they commit is what the cursor continues with. ``ops`` selects
        no entities; they belong to the polls with the cursor. Raises `NotFound`.
        """
        wanted = ChangeFilter.of(kinds, types, ops)
        return change_baseline(self._kernel, self._schemas, branch or MAIN, wanted)
