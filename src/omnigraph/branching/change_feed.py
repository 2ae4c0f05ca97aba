"""The change feed: the commits of one branch, one after another, with what each changed.

A poll looks at the head once and takes that as its cut. It goes along the first parents up to
there, or up to as many commits as it may look at, and packs what they changed into pages. A page
that ends inside a commit leads to the next page of the same poll; one that ends after a commit
gives a cursor. Nothing is kept here between two pages but what makes the second one cheaper.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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
from omnigraph.storage.layout import MAIN
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.manifest_rows import CommitRow
from omnigraph.views import ViewedReader

AFTER = "after:"


@dataclass(frozen=True, slots=True)
class PollRequest:
    """Where a poll starts, and what it wants: at most one of the three places is given."""

    branch: str
    wanted: ChangeFilter
    limits: PageLimits
    cursor: str | None = None
    start: str | None = None
    """`now`, `beginning` or `after:<commit>`; `now` if there is no place at all."""
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
class _Way:
    """What one page goes along."""

    position: CommitRow
    """The last commit that was delivered as a whole."""
    commits: tuple[CommitRow, ...]
    """What comes next, oldest first, as far as the poll may look."""
    cut: str
    after: ChangeKey | None = None
    """Where in the first of them the last page ended."""


class ChangeFeed:
    """The feeds of one graph. Safe to share between threads."""

    def __init__(self, kernel: Kernel, schemas: SchemaHistory, unfinished: Unfinished) -> None:
        self._kernel = kernel
        self._schemas = schemas
        self._unfinished = unfinished

    def poll(self, request: PollRequest) -> FeedPage:
        """The next page.

        Raises `ChangeCursorRejected`, `NotFound` for the branch or a type of the filter,
        `ChangeFeedGap` when cleanup removed what the next commit needs, and `ChangeDiffRefused`
        when the next commit is a change of schema that rewrote or dropped data. What lies before
        such a commit is delivered first.
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
        way: _Way,
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
        """The branch that was read is still the one of its name; raises otherwise."""
        if state.branch != MAIN:
            row = self._kernel.manifest.registration(state.branch)
            if row.ref != state.ref:
                raise ChangeCursorRejected(
                    f"branch `{state.branch}` was deleted and created again meanwhile",
                    hint="take a new baseline with `omnigraph changes baseline`",
                )

    # --- where to go ------------------------------------------------------------------------------

    def _way(self, state: ManifestState, scope: FeedScope, request: PollRequest) -> _Way:
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
    ) -> _Way:
        commits = _commits_after(state, position, cut)[:commits_max]
        return _Way(state.commits[position], tuple(commits), cut, after)


def feed_scope(state: ManifestState, wanted: ChangeFilter) -> FeedScope:
    """What cursors and page tokens of a branch's feed belong to."""
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
    """The feed of one branch in whole commits, for readers that divide the commits between them.

    Places between commits are cursors, as of a poll, and are found without reading an entity.
    """

    kernel: Kernel
    schemas: SchemaHistory
    branch: str
    wanted: ChangeFilter

    def starting_at(self, start: str) -> str:
        """The cursor of `now`, `beginning` or `after:<commit>`, or of a cursor itself.

        Raises `ChangeCursorRejected` for a commit or a cursor of another place, and `NotFound` for
        a type of the filter.
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
        """The cursor behind the next commits, at most ``commits_max`` and those before ``until``.

        The cursor itself where nothing has been committed since.
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
        """What some commits that follow one another changed, each to be read before the next.

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
    """The commits behind a position up to ``cut``, oldest first."""
    line: list[CommitRow] = []
    for commit in first_parents(state, cut):
        if commit.commit_id == position:
            line.reverse()
            return line
        line.append(commit)
    raise _not_on_the_line(state, position)


class ChangeBaseline:
    """The entities of one commit, read as they are asked for, once.

    Iterating gives the entities: nodes before edges, then by type and id. After the last one
    `handshake` says where the feed continues; as long as it is None, the baseline is not complete.
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
        """How many entities there are in all."""
        keys, reader = [type.table_key for type in self._types], self._reader
        if isinstance(reader, ViewedReader):
            return sum(map(reader.row_count, keys))
        return sum(reader.snapshot.table(key).row_count for key in keys)

    def __iter__(self) -> Iterator[EntityRecord]:
        return self._records

    def blocks(self) -> Iterator[bytes]:
        """JSON lines in blocks of whole lines: every entity, and at the very end the handshake."""
        yield from in_blocks(orjson.dumps(each.to_dict()) + b"\n" for each in self)
        if self.handshake is not None:
            yield orjson.dumps({"baseline": self.handshake.to_dict()}) + b"\n"

    def _read(self) -> Iterator[EntityRecord]:
        # `cleanup` waits for streams before it removes versions.
        with self._kernel.gates.stream(), reclaimed_told(self._moment):
            for type in self._types:
                yield from _records(TableRows(self._reader, type))
        self.handshake = Handshake(self._moment.commit.commit_id, self._cursor)


def change_baseline(
    kernel: Kernel, schemas: SchemaHistory, branch: str, wanted: ChangeFilter
) -> ChangeBaseline:
    """A baseline of the head of a branch as it is now.

    ``wanted`` says which kinds and types of entities it has; its operations only belong to the
    cursor. Raises `NotFound` for a branch or a type there is not.
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
