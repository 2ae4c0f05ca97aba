"""Packing changes into pages, and finding the place where the next page goes on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import orjson
import pyarrow.compute as pc

from omnigraph.branching.change_tokens import ChangeKey, CommitToken, Scope, id_digest
from omnigraph.branching.commit_changes import (
    CommitChanges,
    changes_between,
    commit_step,
    gaps_told,
)
from omnigraph.branching.diff import ListedChanges, public_type_id
from omnigraph.branching.history import first_commit
from omnigraph.branching.moments import SchemaHistory
from omnigraph.commit.kernel import Kernel
from omnigraph.errors import ChangeCursorRejected
from omnigraph.model.changes import ChangeFilter, CommitPage, EntityChange, PageLimits

ROWS_PER_READ = 1_024
"""Entities whose images are fetched at once; few enough that a page of wide ones stays small."""

UNFINISHED_MAX = 2
"""How many commits are kept between two pages: their lists may be long."""


@dataclass(frozen=True, slots=True)
class Packed:
    """What of a commit went into a page."""

    changes: tuple[EntityChange, ...]
    is_complete: bool
    """Whether that was all of the commit, from where the page began."""

    @property
    def key(self) -> ChangeKey:
        """Where the next page goes on; only of a part that is not empty."""
        last = self.changes[-1]
        return ChangeKey.of(last.kind, last.type_id, last.id)


class PagePacker:
    """One page: it takes changes until it is full."""

    def __init__(self, limits: PageLimits) -> None:
        self._limits = limits
        self._left = limits.changes
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether not one change more has a place."""
        return self._left == 0

    def pack(self, found: CommitChanges, after: ChangeKey | None = None) -> Packed:
        """Take changes of a commit, those behind ``after`` if it is given.

        Raises `ChangeCursorRejected` for a place the commit does not have.
        """
        packed: list[EntityChange] = []
        for changes, start in _remaining(found, after):
            left = len(changes) - start
            rows_per_read = max(1, min(ROWS_PER_READ, self._left))
            reading = changes.read(start, images=True, rows_per_read=rows_per_read)
            for change in islice(reading, self._left):
                if not self._take(change):
                    return Packed(tuple(packed), False)
                packed.append(change)
                left -= 1
            if left:
                return Packed(tuple(packed), False)
        return Packed(tuple(packed), True)

    def _take(self, change: EntityChange) -> bool:
        """Whether a change has a place in the page, which it then takes."""
        size = len(orjson.dumps(change.to_commit_dict()))
        is_first = self._left == self._limits.changes
        if self.is_full or (self._bytes + size > self._limits.bytes and not is_first):
            self._left = 0
            return False
        self._bytes += size
        # One that is larger than a page is in a page of its own.
        self._left = 0 if size > self._limits.bytes else self._left - 1
        return True


class Unfinished:
    """Commits that a page ended in: their lists are kept, so that the next page finds them."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ChangeFilter], CommitChanges] = {}

    def take(self, commit_id: str, wanted: ChangeFilter) -> CommitChanges | None:
        """The changes of a commit, if they were kept; they are kept no longer."""
        return self._kept.pop((commit_id, wanted), None)

    def keep(self, found: CommitChanges, wanted: ChangeFilter) -> None:
        """Keep the changes of a commit, in place of others if there are many."""
        for oldest in list(self._kept)[: 1 - UNFINISHED_MAX]:
            self._kept.pop(oldest, None)
        self._kept[found.cause.graph_commit_id, wanted] = found


@dataclass(frozen=True, slots=True)
class CommitPageRequest:
    """Which changes of which commit, and how many of them."""

    commit_id: str
    wanted: ChangeFilter
    limits: PageLimits
    page_token: str | None = None


def commit_page(
    kernel: Kernel, schemas: SchemaHistory, unfinished: Unfinished, request: CommitPageRequest
) -> CommitPage:
    """One page of what a commit of any branch changed, the first if there is no token.

    Raises what `commit_changes` raises, and `ChangeCursorRejected`.
    """
    commit_id, wanted = request.commit_id, request.wanted
    # A commit is the same on every branch that has it, so tokens belong to no branch.
    scope = Scope(first_commit(kernel.manifest.main.state).commit_id, "", None, wanted)
    token: CommitToken | None = None
    if request.page_token is not None:
        token = CommitToken.read(request.page_token, scope, commit_id)
    step = commit_step(kernel, commit_id)
    with kernel.gates.stream(), gaps_told(*step):
        found = unfinished.take(commit_id, wanted)
        if found is None:
            found = changes_between(kernel, schemas, *step, wanted)
        packed = PagePacker(request.limits).pack(found, None if token is None else token.key)
    if packed.is_complete:
        return CommitPage(found.cause, packed.changes)
    unfinished.keep(found, wanted)
    return CommitPage(
        found.cause, packed.changes, CommitToken(commit_id, packed.key).to_text(scope)
    )


def _remaining(
    found: CommitChanges, after: ChangeKey | None
) -> Iterator[tuple[ListedChanges, int]]:
    """The lists of a commit that have changes behind a place, and where those begin."""
    for changes in found.lists:
        start = 0
        if after is not None:
            rows = changes.delta.after
            rank = rows.kind == "edge", public_type_id(rows.type)
            if rank < after.type_rank:
                continue
            if rank == after.type_rank:
                start = _place_behind(changes, after)
        if start < len(changes):
            yield changes, start


def _place_behind(changes: ListedChanges, key: ChangeKey) -> int:
    """The place of the first change behind ``key``."""
    ids = changes.ids
    if key.digest is None:
        return int(pc.sum(pc.less_equal(ids, key.id)).as_py() or 0)
    # Ids with the same beginning follow each other, and nothing that sorts before them has it.
    at = int(pc.sum(pc.less(ids, key.id)).as_py() or 0)
    while at < len(ids) and (id := ids[at].as_py()).startswith(key.id):
        at += 1
        if id_digest(id) == key.digest:
            return at
    raise ChangeCursorRejected("it names a change that is not in this commit")
