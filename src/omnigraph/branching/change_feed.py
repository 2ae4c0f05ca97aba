"""The change feed: the commits of one branch in order, each with its changes.

A poll reads the head once, as its upper bound. It follows the first parents up to there, or up to a
limit of commits, and packs their changes into pages. A page that ends inside a commit has a token
for the next page of the same poll; one that ends after a commit has a cursor. Between pages only a
cache is kept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branching.change_pages import (
    ChangeKey,
    Cursor,
    FeedScope,
    FeedToken,
    PagePacker,
    Unfinished,
)
from omnigraph.branching.commit_changes import CommitChanges, gaps_told, step_changes
from omnigraph.branching.diff import WantedTypes, ordered_types, public_type_id
from omnigraph.branching.export import in_blocks
from omnigraph.branching.moments import (
    Moment,
    SchemaHistory,
    first_commit,
    first_parents,
    moments,
    reclaimed_told,
)
from omnigraph.branching.table_rows import TableRows, chunked
from omnigraph.commit.kernel import Kernel
from omnigraph.errors import ChangeCursorRejected, ChangeDiffRefused, ChangeFeedGap, InputError
from omnigraph.model.changes import (
    ChangeBlock,
    ChangeFilter,
    EntityRecord,
    FeedPage,
    Handshake,
    PageLimits,
)
from omnigraph.model.ids import normalize_commit_id
from omnigraph.model.records import dataclass
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.views import ViewedReader

AFTER = "after:"


@dataclass(frozen=True, slots=True)
class PollRequest:
    """The start of a poll, given in at most one of three forms, and its filter."""

    branch: str
    wanted: ChangeFilter
    limits: PageLimits
    cursor: str | None = None
    start: str | None = None
    """`now`, `beginning` or `after:<commit>`; by default `now`."""
    page_token: str | None = None

    def __post_init__(self) -> None:
        places = {"cursor": self.cursor, "start": self.start, "page_token": self.page_token}
        given = [name for name, value in places.items() if value is not None]
        if len(given) > 1:
            raise InputError(
                f"{' and '.join(given)} exclude each other",
                hint="a page token and a cursor know their place themselves",
            )


@dataclass(frozen=True, slots=True)
class _PageCommits:
    """The commits that one page covers."""

    position: CommitRow
    """The last commit that was delivered completely."""
    commits: tuple[CommitRow, ...]
    """The following commits, oldest first, up to the poll's limit."""
    cut: str
    after: ChangeKey | None = None
    """The last delivered change of the first of them."""


class ChangeFeed:
    """The feeds of one graph. Safe to share between threads."""

    def __init__(self, kernel: Kernel, schemas: SchemaHistory, unfinished: Unfinished) -> None:
        self._kernel = kernel
        self._schemas = schemas
        self._unfinished = unfinished

    def poll(self, request: PollRequest) -> FeedPage:
        """The next page.

        Raises `ChangeCursorRejected`, `NotFound` for the branch or a type of the filter,
        `ChangeFeedGap` if cleanup removed versions that the next commit needs, and
        `ChangeDiffRefused` if the next commit is a schema change that rewrote or dropped data.
        Commits before such a commit are delivered first.
        """
        state = self._kernel.manifest.refreshed(request.branch).state
        scope = feed_scope(state, request.wanted)
        way = self._way(state, scope, request)
        now = state.commits[state.head.commit_id]
        wanted = WantedTypes.of(request.wanted, self._schemas.named(now, state=state))
        with self._kernel.gates.stream():
            page = self._page(state, scope, way, wanted, request)
        self._require_same_branch(state)
        return page

    def _page(
        self,
        state: ManifestState,
        scope: FeedScope,
        way: _PageCommits,
        wanted: WantedTypes,
        request: PollRequest,
    ) -> FeedPage:
        packer = PagePacker(request.limits)
        blocks: list[ChangeBlock] = []
        done, after = way.position, way.after
        line = [way.position, *way.commits] if way.commits else []
        for before, moment in pairwise(moments(self._kernel, state, line)):
            commit = moment.commit
            try:
                with gaps_told(before, moment, request.cursor):
                    found = self._unfinished.take(commit.commit_id, request.wanted)
                    if found is None:
                        found = step_changes(self._schemas, before, moment, wanted)
                    packed = packer.pack(found, after)
            except (ChangeFeedGap, ChangeDiffRefused):
                if blocks:
                    break
                self._require_same_branch(state)
                raise
            after = None
            if packed.is_complete or packed.changes:
                blocks.append(ChangeBlock(found.cause, packed.changes))
            if not packed.is_complete:
                self._unfinished.keep(found, request.wanted, commit.commit_id)
                if not packed.changes:
                    break
                left = len(way.commits) - way.commits.index(commit)
                token = FeedToken(way.cut, left, commit.commit_id, packed.key)
                return FeedPage(tuple(blocks), token.to_text(scope))
            done = commit
            if packer.is_full:
                break
        cursor = Cursor(done.commit_id).to_text(scope)
        return FeedPage(tuple(blocks), cursor=cursor, caught_up=done.commit_id == way.cut)

    def _require_same_branch(self, state: ManifestState) -> None:
        """Raise unless the branch was not replaced by another of its name."""
        if state.branch != MAIN:
            row = self._kernel.manifest.registration(state.branch)
            if row.ref != state.ref:
                raise ChangeCursorRejected(
                    f"branch `{state.branch}` was deleted and created again meanwhile",
                    hint="take a new baseline with `omnigraph changes baseline`",
                )

    # --- where to go ------------------------------------------------------------------------------

    def _way(self, state: ManifestState, scope: FeedScope, request: PollRequest) -> _PageCommits:
        head = state.head.commit_id
        if request.page_token is not None:
            token = FeedToken.read(request.page_token, scope)
            inside = state.commits.get(token.commit_id)
            if inside is None or inside.parent_commit_id is None:
                raise _not_on_the_line(state, token.commit_id)
            return self._along(
                state, inside.parent_commit_id, token.cut_commit_id, token.commits_left, token.key
            )
        if request.cursor is not None:
            position = Cursor.read(request.cursor, scope).commit_id
        else:
            position = _start(request.start or "now", head, scope)
        return self._along(state, position, head, request.limits.commits)

    def _along(
        self,
        state: ManifestState,
        position: str,
        cut: str,
        commits_max: int,
        after: ChangeKey | None = None,
    ) -> _PageCommits:
        commits = _commits_after(state, position, cut)[:commits_max]
        return _PageCommits(state.commits[position], tuple(commits), cut, after)


def feed_scope(state: ManifestState, wanted: ChangeFilter) -> FeedScope:
    """The scope that cursors and page tokens of a branch's feed are valid for."""
    return FeedScope(first_commit(state).commit_id, state.branch, state.ref, wanted)


def _start(start: str, head: str, scope: FeedScope) -> str:
    if start == "now":
        return head
    if start == "beginning":
        return scope.graph
    if start.startswith(AFTER):
        return normalize_commit_id(start.removeprefix(AFTER))
    raise InputError(
        f"a feed cannot start at '{start}'", hint="write now, beginning or after:<commit>"
    )


def _not_on_the_line(state: ManifestState, commit_id: str) -> ChangeCursorRejected:
    return ChangeCursorRejected(
        f"commit {commit_id} is not in the history of branch `{state.branch}`",
        hint="`omnigraph commit list` shows the commits of a branch",
    )


@dataclass(frozen=True, slots=True)
class FeedLine:
    """The feed of one branch in whole commits, for readers that split it into batches of commits.

    Positions are cursors, as of a poll, and are computed without reading entities.
    """

    kernel: Kernel
    schemas: SchemaHistory
    branch: str
    wanted: ChangeFilter

    def starting_at(self, start: str) -> str:
        """The cursor for `now`, `beginning` or `after:<commit>`; a cursor is returned unchanged.

        Raises `ChangeCursorRejected` for a commit or cursor of another branch or filter, and
        `NotFound` for an unknown type of the filter.
        """
        state, scope = self._seen()
        self._wanted_types(state)
        if start in ("now", "beginning") or start.startswith(AFTER):
            position = _start(start, state.head.commit_id, scope)
        else:
            position = Cursor.read(start, scope).commit_id
        _commits_after(state, position, state.head.commit_id)
        return Cursor(position).to_text(scope)

    def advanced(self, cursor: str, commits_max: int | None, until: str | None = None) -> str:
        """The cursor after the next commits: at most ``commits_max``, and not beyond ``until``.

        Returns ``cursor`` if there are no new commits.
        """
        state, scope = self._seen()
        position = Cursor.read(cursor, scope).commit_id
        cut = state.head.commit_id if until is None else Cursor.read(until, scope).commit_id
        next_commits = _commits_after(state, position, cut)[:commits_max]
        return Cursor(next_commits[-1].commit_id).to_text(scope) if next_commits else cursor

    def between(self, start: str, end: str) -> list[str]:
        """The commits between two cursors, oldest first."""
        state, scope = self._seen()
        positions = [Cursor.read(each, scope).commit_id for each in (start, end)]
        return [commit.commit_id for commit in _commits_after(state, *positions)]

    def changes(self, commit_ids: Sequence[str]) -> Iterator[tuple[CommitRow, CommitChanges]]:
        """The changes of consecutive commits; read each before advancing to the next.

        Raises `ChangeFeedGap`, `ChangeDiffRefused` and `ChangeCursorRejected`, as a poll does.
        """
        state, _ = self._seen()
        first = state.commits.get(commit_ids[0])
        if first is None or first.parent_commit_id is None:
            raise _not_on_the_line(state, commit_ids[0])
        line = _commits_after(state, first.parent_commit_id, commit_ids[-1])
        line.insert(0, state.commits[first.parent_commit_id])
        wanted = self._wanted_types(state)
        with self.kernel.gates.stream():
            for before, moment in pairwise(moments(self.kernel, state, line)):
                with gaps_told(before, moment):
                    yield moment.commit, step_changes(self.schemas, before, moment, wanted)

    def _seen(self) -> tuple[ManifestState, FeedScope]:
        state = self.kernel.manifest.refreshed(self.branch).state
        return state, feed_scope(state, self.wanted)

    def _wanted_types(self, state: ManifestState) -> WantedTypes:
        now = state.commits[state.head.commit_id]
        return WantedTypes.of(self.wanted, self.schemas.named(now, state=state))


def _commits_after(state: ManifestState, position: str, cut: str) -> list[CommitRow]:
    """The commits after ``position`` up to ``cut``, oldest first."""
    line: list[CommitRow] = []
    for commit in first_parents(state, cut):
        if commit.commit_id == position:
            line.reverse()
            return line
        line.append(commit)
    raise _not_on_the_line(state, position)


class ChangeBaseline:
    """The entities of one commit, read lazily and once.

    Iteration yields entities: nodes before edges, then by type and id. After the last one,
    `handshake` has the cursor at which the feed continues; while it is None, the baseline is
    incomplete.
    """

    def __init__(
        self, kernel: Kernel, schemas: SchemaHistory, moment: Moment, wanted: ChangeFilter
    ) -> None:
        self._kernel = kernel
        self._moment = moment
        catalog = schemas.catalog_of(moment.commit)
        self._reader = moment.reader(catalog)
        view = schemas.view(catalog, moment.state.branch)
        if view is not None:
            catalog, self._reader = view.catalog, ViewedReader(self._reader, view)
        types = WantedTypes.of(wanted, [catalog])
        self._types = [type for type in ordered_types(catalog) if types.wants(type)]
        self._cursor = Cursor(moment.commit.commit_id).to_text(feed_scope(moment.state, wanted))
        self._records = self._read()
        self.handshake: Handshake | None = None

    @property
    def entity_count(self) -> int:
        """The total number of entities."""
        keys, reader = [type.table_key for type in self._types], self._reader
        if isinstance(reader, ViewedReader):
            return sum(map(reader.row_count, keys))
        return sum(reader.snapshot.table(key).row_count for key in keys)

    def __iter__(self) -> Iterator[EntityRecord]:
        return self._records

    def blocks(self) -> Iterator[bytes]:
        """Blocks of whole JSON lines: every entity, and finally the handshake."""
        yield from in_blocks(orjson.dumps(each.to_dict()) + b"\n" for each in self)
        if self.handshake is not None:
            yield orjson.dumps({"baseline": self.handshake.to_dict()}) + b"\n"

    def _read(self) -> Iterator[EntityRecord]:
        # `cleanup` waits for open streams before it removes versions.
        with self._kernel.gates.stream(), reclaimed_told(self._moment):
            for type in self._types:
                yield from _records(TableRows(self._reader, type))
        self.handshake = Handshake(self._moment.commit.commit_id, self._cursor)


def change_baseline(
    kernel: Kernel, schemas: SchemaHistory, branch: str, wanted: ChangeFilter
) -> ChangeBaseline:
    """A baseline of the current head of a branch.

    ``wanted`` filters its entities by kind and type; operations only apply to the cursor. Raises
    `NotFound` for an unknown branch or type.
    """
    state = kernel.manifest.refreshed(branch).state
    (moment,) = moments(kernel, state, [state.commits[state.head.commit_id]])
    return ChangeBaseline(kernel, schemas, moment, wanted)


def _records(rows: TableRows) -> Iterator[EntityRecord]:
    if rows.reader.is_empty(rows.key):
        return
    ids, places = rows.reader.places(rows.key)
    type_id = public_type_id(rows.type)
    for order in chunked(pc.sort_indices(ids).to_numpy().astype(np.int64)):
        found = zip(ids.take(pa.array(order)).to_pylist(), rows.images(places[order]), strict=True)
        for id, image in found:
            yield EntityRecord(rows.kind, type_id, rows.type.name, id, image)
