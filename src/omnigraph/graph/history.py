"""Commits of an open graph and their changes: listing, comparing, paging and polling."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from omnigraph.graph.branches import CompareEngine, comparing
from omnigraph.graph.opened import Handle
from omnigraph.model.changes import ChangeFilter, CommitPage, EntityVersion, FeedPage, PageLimits
from omnigraph.model.diffs import DiffPage
from omnigraph.model.load_options import SparkOptions
from omnigraph.model.receipts import EMBEDS, CommitInfo
from omnigraph.policy import Action
from omnigraph.storage.manifest_rows import commit_info

if TYPE_CHECKING:
    from omnigraph.branching import change_pages
    from omnigraph.branching.change_feed import ChangeBaseline
    from omnigraph.branching.commit_changes import CommitChanges
    from omnigraph.branching.diff import GraphDiff


def list_commits(
    self: Handle, branch: str | None = None, *, actor: str | None = None
) -> list[CommitInfo]:
    """The commits a branch's head reaches, newest first; ``actor`` as author or recoverer."""
    target = self._branch_of(branch)
    self._may_read("commit list", target)
    lineage = self._opened.state(target).lineage()
    return [
        _shown(self, commit_info(row), target)
        for row in lineage
        if actor is None or actor in (row.actor_id, row.recovered_by)
    ]


def show_commit(self: Handle, commit_id: str) -> CommitInfo:
    """One commit of any branch, by its id or another revision; raises `UnresolvedRevision`."""
    from omnigraph.branching.revisions import find_commit

    self._may_read("commit show")
    state, row = find_commit(self._kernel, self._commit_of(commit_id))
    return _shown(self, commit_info(row), state.branch)


def _shown(self: Handle, found: CommitInfo, branch: str) -> CommitInfo:
    """A commit, reduced for an actor who sees only a part of the branch.

    Counts of changed entities are removed, and metadata of programs: receipts of pipelines and
    embeddings name all types.
    """
    opened = self._opened
    if opened.policy is None or not opened.policy.has_views:
        return found
    if opened.view(self._access, branch, opened.known_catalog(branch)) is None:
        return found
    shown = replace(found, affected_nodes=None, affected_edges=None)
    if found.metadata is None or found.actor_id == self._access.actor:
        return shown
    message = None if EMBEDS in found.metadata else found.message
    return replace(shown, metadata=None, message=message)


def readable_commit(self: Handle, verb: str, revision: str, branch: str) -> str:
    """The id of a commit that a caller may read; servers call it before the verb."""
    return self._read_known_commit(verb, revision, branch)


def entity_history(
    self: Handle, type_name: str, entity_id: str, *, branch: str | None = None
) -> Iterator[EntityVersion]:
    """The commits of a branch that changed one entity, newest first, with each change.

    ``type_name`` is a name, or `node:Name` or `edge:Name`. Each is shown with the schema of its
    commit; a change of the schema is no change of an entity.
    """
    from omnigraph.branching.entity_history import entity_history as versions_of
    from omnigraph.branching.entity_history import find_type

    target = self._branch_of(branch)
    self._may_read("entity history", target)
    state = self._opened.state(target)
    catalog = self._opened.catalog_of(state.head_snapshot())
    found = find_type(self._named_types(target, catalog), type_name)
    return versions_of(self._kernel, self._schemas, state, found, entity_id)


def diff(
    self: Handle,
    target: str,
    source: str,
    *,
    direct: bool = False,
    kinds: Iterable[str] = (),
    types: Iterable[str] = (),
    ops: Iterable[str] = (),
    engine: CompareEngine = "auto",
    spark: SparkOptions | None = None,
) -> GraphDiff:
    """The changes of ``source`` since its merge base with ``target``, as in a pull request.

    Each is a branch or another revision. Later changes of ``target`` are not included; with
    ``direct`` the two revisions are compared directly. Printed, it shows how many entities of each
    type were inserted, updated and deleted, and which commits were compared; `GraphDiff.changes`
    lists them. Only ``kinds`` (`node`, `edge`), ``types`` by name and ``ops`` (`insert`, `update`,
    `delete`) if any are given. A branch with an older schema is compared in the newer one, as a
    merge would. Raises `ChangeDiffRefused` when the schema changed on the way and rewrote or
    dropped data. ``engine`` is that of `merge_branch`.
    """
    target, source = self._read_end("diff", target), self._read_end("diff", source)
    wanted = ChangeFilter.of(kinds, types, ops)
    return compared(self, target, source, wanted, direct=direct, engine=engine, spark=spark)


def compared(
    self: Handle,
    target: str,
    source: str,
    wanted: ChangeFilter,
    *,
    direct: bool,
    engine: CompareEngine = "auto",
    spark: SparkOptions | None = None,
) -> GraphDiff:
    """`diff` of two ends that the caller may read."""
    from omnigraph.branching.ancestry import diff_ends
    from omnigraph.branching.commit_changes import diff_of

    before, after, against = diff_ends(self._kernel, target, source, direct)
    with comparing(self._opened, engine, spark, "diff") as choose:
        return diff_of(self._schemas, before, after, wanted, choose, target=against)


def diff_page(
    self: Handle,
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

    `DiffPage.next_page_token`, with the two commits of this page, gets the next one. ``limit`` is
    in entities (1,000 by default), ``limit_bytes`` a target for their size. Raises as `diff` does,
    and `ChangeCursorRejected` for a token of another diff.
    """
    from omnigraph.branching import change_pages

    request = change_pages.DiffPageRequest(
        self._read_end("diff", target),
        self._read_end("diff", source),
        ChangeFilter.of(kinds, types, ops),
        PageLimits.of(limit, limit_bytes),
        page_token,
        images,
        direct,
    )
    return compared_page(self, request)


def compared_page(self: Handle, request: change_pages.DiffPageRequest) -> DiffPage:
    """`diff_page` of two ends that the caller may read."""
    from omnigraph.branching import change_pages

    return change_pages.diff_page(self._kernel, self._schemas, self._unfinished, request)


def commit_changes(
    self: Handle,
    commit_id: str,
    *,
    kinds: Iterable[str] = (),
    types: Iterable[str] = (),
    ops: Iterable[str] = (),
) -> CommitChanges:
    """The changes of one commit to its first parent, with images before and after.

    Raises `NotFound`, `ChangeDiffRefused` for the first commit of a graph and for a change of
    schema that rewrote or dropped data, and `ChangeFeedGap` if cleanup removed versions that it
    needs.
    """
    from omnigraph.branching.commit_changes import commit_changes as changes_of

    wanted = ChangeFilter.of(kinds, types, ops)
    shown = self._read_known_commit("commit changes", commit_id)
    return changes_of(self._kernel, self._schemas, shown, wanted)


def commit_changes_page(
    self: Handle,
    commit_id: str,
    *,
    page_token: str | None = None,
    limit: int | None = None,
    limit_bytes: int | None = None,
    kinds: Iterable[str] = (),
    types: Iterable[str] = (),
    ops: Iterable[str] = (),
) -> CommitPage:
    """One page of the changes of a commit; `CommitPage.next_page_token` gets the next one.

    ``limit`` is in changes (1,000 by default), ``limit_bytes`` a target for their size. Raises as
    `commit_changes` does, and `ChangeCursorRejected` for a token of another commit or filter.
    """
    from omnigraph.branching import change_pages

    request = change_pages.CommitPageRequest(
        self._read_known_commit("commit changes", commit_id),
        ChangeFilter.of(kinds, types, ops),
        PageLimits.of(limit, limit_bytes),
        page_token,
    )
    return change_pages.commit_page(self._kernel, self._schemas, self._unfinished, request)


def poll_changes(
    self: Handle,
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
    """The changes of a branch's commits since ``cursor``, one block per commit.

    Without a cursor, ``start`` is where to begin: `now` (the default), `beginning`, or
    `after:<commit>`. A page ends either with a ``next_page_token`` for the rest of a commit, or
    with the cursor of the next poll. The caller stores the cursor, which is valid in any process.
    Delivery is at least once: the blocks of one commit always have its ``graph_commit_id``.

    Raises `ChangeCursorRejected`, `NotFound`, `ChangeFeedGap` if cleanup removed versions that the
    next commit needs, and `ChangeDiffRefused` if the next commit is a schema change that rewrote or
    dropped data. After the last two, start again with `change_baseline`.
    """
    from omnigraph.branching import change_feed

    target = self._branch_of(branch)
    self._may_read("changes poll", target)
    request = change_feed.PollRequest(
        target,
        ChangeFilter.of(kinds, types, ops),
        PageLimits.of(limit, limit_bytes, limit_commits),
        cursor,
        start,
        page_token,
    )
    return change_feed.ChangeFeed(self._kernel, self._schemas, self._unfinished).poll(request)


def change_baseline(
    self: Handle,
    branch: str | None = None,
    *,
    kinds: Iterable[str] = (),
    types: Iterable[str] = (),
    ops: Iterable[str] = (),
) -> ChangeBaseline:
    """Every entity at the current head of a branch, and the cursor to continue with.

    Writers are not blocked: the cursor continues with their commits. ``ops`` applies only to polls
    with the cursor, not to these entities. Raises `NotFound`.
    """
    from omnigraph.branching import change_feed

    target, wanted = self._branch_of(branch), ChangeFilter.of(kinds, types, ops)
    self._opened.gate.read("changes baseline", self._access, target, Action.EXPORT)
    return change_feed.change_baseline(
        self._kernel, self._schemas_by(Action.EXPORT), target, wanted
    )
