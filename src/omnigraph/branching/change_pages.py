"""Pages of changes, and the cursors and page tokens from which the next page continues.

Cursors and tokens encode positions in the history of a branch, as texts for callers to store.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, Literal, Protocol, TypeVar

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from omnigraph.branching.ancestry import diff_ends
from omnigraph.branching.commit_changes import (
    CommitChanges,
    cause_of,
    changes_between,
    commit_step,
    diff_of,
    gaps_told,
)
from omnigraph.branching.diff import public_type_id
from omnigraph.branching.moments import SchemaHistory, first_commit, reclaimed_told
from omnigraph.branching.table_rows import TableRows
from omnigraph.commit.kernel import Kernel
from omnigraph.errors import ChangeCursorRejected
from omnigraph.model.changes import COMMITS_MAX, ChangeFilter, CommitPage, PageLimits
from omnigraph.model.diffs import DiffEntry, DiffPage, comparison
from omnigraph.model.ids import EntityKind
from omnigraph.model.records import dataclass

FORMAT = 1
TOKEN_BYTES_MAX = 4_096
WHOLE_ID_BYTES_MAX = 256
"""Longer ids are encoded as a prefix and a digest."""

_CHECKSUM_BYTES = 12
_DIGEST_BYTES = 8

TokenKind = Literal["a cursor", "a page token of the feed", "a page token of a commit"]
_KINDS: dict[TokenKind, int] = {
    "a cursor": 1,
    "a page token of the feed": 2,
    "a page token of a commit": 3,
}


@dataclass(frozen=True, slots=True)
class FeedScope:
    """The graph, branch and filter that a cursor or token is valid for."""

    graph: str
    """The first commit of the graph, which identifies it."""
    branch: str
    ref: str | None
    """The physical ref of the branch, which differs for a new branch of the same name."""
    wanted: ChangeFilter

    def digests(self) -> dict[str, bytes]:
        """A digest of each part, so that errors can name the one that differs."""
        kinds, types, ops = self.wanted.kinds, self.wanted.types, self.wanted.ops
        parts = {
            "graph": self.graph,
            "branch": self.branch,
            "history of the branch": self.ref or "",
            "filter": orjson.dumps([sorted(kinds), sorted(types), sorted(ops)]).decode(),
        }
        return {
            name: hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES]
            for name, text in parts.items()
        }


@dataclass(frozen=True, slots=True)
class ChangeKey:
    """The last change of a page: the next page begins after it."""

    kind: EntityKind
    type_id: str
    id: str
    """The whole id, or its prefix if there is a digest."""
    digest: str | None = None

    @classmethod
    def of(cls, kind: EntityKind, type_id: str, id: str) -> ChangeKey:
        """The key of a change."""
        encoded = id.encode()
        if len(encoded) <= WHOLE_ID_BYTES_MAX:
            return cls(kind, type_id, id)
        # Truncation may cut inside a character; the fragment is dropped.
        beginning = encoded[:WHOLE_ID_BYTES_MAX].decode(errors="ignore")
        return cls(kind, type_id, beginning, id_digest(id))

    @property
    def type_rank(self) -> tuple[bool, str]:
        """The sort key of its type."""
        return self.kind == "edge", self.type_id


def id_digest(id: str) -> str:
    """The digest that, with the prefix, identifies a long id."""
    return hashlib.sha256(id.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Cursor:
    """A position between two commits: everything up to this commit was delivered."""

    commit_id: str

    def to_text(self, scope: FeedScope) -> str:
        """Encode for the caller."""
        return _encode("a cursor", scope, [self.commit_id])

    @classmethod
    def read(cls, text: str, scope: FeedScope) -> Cursor:
        """Decode; raises `ChangeCursorRejected`."""
        match _decode("a cursor", text, scope):
            case [str(commit_id)]:
                return cls(commit_id)
        raise _damaged()


@dataclass(frozen=True, slots=True)
class FeedToken:
    """A position inside a commit of the feed."""

    cut_commit_id: str
    """The head when the poll began; later commits are left to the next poll."""
    commits_left: int
    """How many more commits the poll may cover, including the current one."""
    commit_id: str
    key: ChangeKey

    def to_text(self, scope: FeedScope) -> str:
        """Encode for the caller."""
        fields = [self.cut_commit_id, self.commits_left, self.commit_id, *_key_fields(self.key)]
        return _encode("a page token of the feed", scope, fields)

    @classmethod
    def read(cls, text: str, scope: FeedScope) -> FeedToken:
        """Decode; raises `ChangeCursorRejected`."""
        match _decode("a page token of the feed", text, scope):
            case [str(cut), int(left), str(commit_id), *key] if 0 < left <= COMMITS_MAX:
                return cls(cut, left, commit_id, _key(key))
        raise _damaged()


@dataclass(frozen=True, slots=True)
class CommitToken:
    """A position in the list of changes of one commit."""

    commit_id: str
    key: ChangeKey

    def to_text(self, scope: FeedScope) -> str:
        """Encode for the caller."""
        return _encode("a page token of a commit", scope, [self.commit_id, *_key_fields(self.key)])

    @classmethod
    def read(cls, text: str, scope: FeedScope, commit_id: str) -> CommitToken:
        """Decode a position in ``commit_id``; raises `ChangeCursorRejected`."""
        match _decode("a page token of a commit", text, scope):
            case [str(found), *key] if found == commit_id:
                return cls(found, _key(key))
            case [str(), *_]:
                raise ChangeCursorRejected("it belongs to another commit")
        raise _damaged()


def _encode(kind: TokenKind, scope: FeedScope, fields: list[Any]) -> str:
    belongs = b"".join(scope.digests().values())
    body = bytes([FORMAT, _KINDS[kind]]) + belongs + orjson.dumps(fields)
    text = base64.urlsafe_b64encode(body + _checksum(body)).rstrip(b"=").decode()
    assert len(text) <= TOKEN_BYTES_MAX
    return text


def _decode(kind: TokenKind, text: str, scope: FeedScope) -> list[Any]:
    body = _verified(text)
    if body[0] != FORMAT:
        raise ChangeCursorRejected(f"it has the format {body[0]}, and this product reads {FORMAT}")
    if body[1] != _KINDS[kind]:
        found = next((name for name, number in _KINDS.items() if number == body[1]), "unknown")
        raise ChangeCursorRejected(
            f"it is {found}, not {kind}",
            hint="a cursor goes where cursors go, and a page token continues the answer it is from",
        )
    rest = body[2:]
    for part, digest in scope.digests().items():
        if not rest.startswith(digest):
            raise ChangeCursorRejected(
                f"it belongs to another {part}",
                hint="use it with what it was given out for, or take a new baseline",
            )
        rest = rest[len(digest) :]
    try:
        return list(orjson.loads(rest))
    except (ValueError, TypeError) as malformed:
        raise _damaged() from malformed


def _verified(text: str) -> bytes:
    if len(text) > TOKEN_BYTES_MAX:
        raise ChangeCursorRejected(f"it has {len(text)} characters, over {TOKEN_BYTES_MAX}")
    try:
        decoded = base64.b64decode(
            text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True
        )
    except (UnicodeEncodeError, binascii.Error) as malformed:
        raise _damaged() from malformed
    body, checksum = decoded[:-_CHECKSUM_BYTES], decoded[-_CHECKSUM_BYTES:]
    if len(body) < 2 or _checksum(body) != checksum:
        raise _damaged()
    if base64.urlsafe_b64encode(decoded).rstrip(b"=").decode() != text:
        raise _damaged()  # the last character has bits beyond the encoded bytes
    return body


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(b"omnigraph change token" + body).digest()[:_CHECKSUM_BYTES]


def _key_fields(key: ChangeKey) -> list[str | None]:
    return [key.kind, key.type_id, key.id, key.digest]


def _key(fields: list[Any]) -> ChangeKey:
    match fields:
        case ["node" | "edge" as kind, str(type_id), str(id), str() | None as digest]:
            return ChangeKey(kind, type_id, id, digest)
    raise _damaged()


def _damaged() -> ChangeCursorRejected:
    return ChangeCursorRejected("it is damaged", hint="use it exactly as it was given out")


ROWS_PER_READ = 1_024
"""Entities whose images are read at once; few, so that pages of wide rows stay small."""


class ListedChange(Protocol):
    """One change, as listed on a page."""

    @property
    def kind(self) -> EntityKind:
        """Whether the entity is a node or an edge."""
        ...

    @property
    def type_id(self) -> str:
        """The public id of its type."""
        ...

    @property
    def id(self) -> str:
        """The id of the entity."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """The JSON form, whose size is limited."""
        ...


Item = TypeVar("Item", bound=ListedChange)
Shown_co = TypeVar("Shown_co", bound=ListedChange, covariant=True)

UNFINISHED_MAX = 2
"""Commits that are cached between two pages; few, because their lists may be long."""


class Listing(Protocol[Shown_co]):
    """The changes of one type, by id in ascending order."""

    @property
    def rows(self) -> TableRows:
        """The rows of the type."""
        ...

    @property
    def ids(self) -> pa.ChunkedArray:
        """The ids of the entities."""
        ...

    def read(
        self, start: int, *, images: bool, payloads: bool, rows_per_read: int
    ) -> Iterator[Shown_co]:
        """The changes from an index of the list on."""
        ...


class Listings(Protocol[Shown_co]):
    """Everything that a page may contain."""

    @property
    def lists(self) -> Sequence[Listing[Shown_co]]:
        """The changes by type: nodes before edges, in the order of public type ids."""
        ...


@dataclass(frozen=True, slots=True)
class Packed(Generic[Item]):
    """The part of a commit that fits into a page."""

    changes: tuple[Item, ...]
    is_complete: bool
    """Whether the rest of the commit fitted."""

    @property
    def key(self) -> ChangeKey:
        """The key after which the next page begins; only if the part is not empty."""
        last = self.changes[-1]
        return ChangeKey.of(last.kind, last.type_id, last.id)


class PagePacker:
    """Collects changes until a page is full."""

    def __init__(self, limits: PageLimits) -> None:
        self._limits = limits
        self._left = limits.changes
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether the page has no room for another change."""
        return self._left == 0

    def pack(
        self,
        found: Listings[Item],
        after: ChangeKey | None = None,
        *,
        images: bool = True,
        payloads: bool = True,
    ) -> Packed[Item]:
        """Take the changes of a commit, from after ``after`` on if given.

        Raises `ChangeCursorRejected` if ``after`` is not in the commit.
        """
        packed: list[Item] = []
        for changes, start in _remaining(found, after):
            left = len(changes.ids) - start
            rows_per_read = max(1, min(ROWS_PER_READ, self._left))
            reading = changes.read(
                start, images=images, payloads=payloads, rows_per_read=rows_per_read
            )
            for change in islice(reading, self._left):
                if not self._take(change):
                    return Packed(tuple(packed), False)
                packed.append(change)
                left -= 1
            if left:
                return Packed(tuple(packed), False)
        return Packed(tuple(packed), True)

    def _take(self, change: ListedChange) -> bool:
        """Add a change to the page; False if it has no room."""
        size = len(orjson.dumps(change.to_dict()))
        is_first = self._left == self._limits.changes
        if self.is_full or (self._bytes + size > self._limits.bytes and not is_first):
            self._left = 0
            return False
        self._bytes += size
        # A change larger than a page gets a page of its own.
        self._left = 0 if size > self._limits.bytes else self._left - 1
        return True


class Unfinished:
    """A cache of lists in which a page ended, for the next page."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, ChangeFilter], Any] = {}

    def take(self, of: str, wanted: ChangeFilter) -> Any | None:
        """Remove and return the cached changes of a commit, a diff or a plan."""
        return self._kept.pop((of, wanted), None)

    def keep(self, found: Listings[Any], wanted: ChangeFilter, of: str) -> None:
        """Cache the changes of a commit, a diff or a plan, possibly replacing others."""
        for oldest in list(self._kept)[: 1 - UNFINISHED_MAX]:
            self._kept.pop(oldest, None)
        self._kept[of, wanted] = found


@dataclass(frozen=True, slots=True)
class CommitPageRequest:
    """The commit, filter and limits of a page."""

    commit_id: str
    wanted: ChangeFilter
    limits: PageLimits
    page_token: str | None = None


def commit_page(
    kernel: Kernel, schemas: SchemaHistory, unfinished: Unfinished, request: CommitPageRequest
) -> CommitPage:
    """One page of the changes of a commit of any branch; without a token the first.

    Raises as `commit_changes` does, and `ChangeCursorRejected`.
    """
    step = commit_step(kernel, request.commit_id)
    with kernel.gates.stream(), gaps_told(*step):
        found, packed, rest = next_page(
            kernel,
            unfinished,
            request,
            request.commit_id,
            lambda: changes_between(kernel, schemas, *step, request.wanted),
        )
    return CommitPage(found.cause, packed, rest)


@dataclass(frozen=True, slots=True)
class DiffPageRequest:
    """The ends, filter and limits of a page of a diff."""

    target: str
    source: str
    wanted: ChangeFilter
    limits: PageLimits
    page_token: str | None = None
    images: bool = False
    direct: bool = False
    """Whether to compare with the target itself instead of the merge base."""


def diff_page(
    kernel: Kernel, schemas: SchemaHistory, unfinished: Unfinished, request: DiffPageRequest
) -> DiffPage:
    """One page of a diff between two branches or commits; without a token the first.

    Raises `NotFound`, `ChangeDiffRefused`, and `ChangeCursorRejected` for the token of another
    diff, also if a branch moved since the first page.
    """
    before, after, target = diff_ends(kernel, request.target, request.source, request.direct)
    ends = f"{before.commit.commit_id}..{after.commit.commit_id}"

    def changes() -> CommitChanges:
        diff = diff_of(schemas, before, after, request.wanted, target=target)
        return CommitChanges(cause_of(after.commit), diff)

    with kernel.gates.stream(), reclaimed_told(before, after):
        found, packed, rest = next_page(
            kernel, unfinished, request, ends, changes, images=request.images, payloads=False
        )
    assert found.diff is not None
    listed = tuple(map(DiffEntry.of, packed))
    how = comparison(request.direct)
    return DiffPage(*found.diff.ends, listed, found.diff.types, rest, how)


class PageRequest(Protocol):
    """The filter, limits and token of a page."""

    @property
    def wanted(self) -> ChangeFilter:
        """The filter."""
        ...

    @property
    def limits(self) -> PageLimits:
        """The size limits of a page."""
        ...

    @property
    def page_token(self) -> str | None:
        """The token of the previous page; None for the first page."""
        ...


Found = TypeVar("Found", bound=Listings[Any])


def next_page(
    kernel: Kernel,
    unfinished: Unfinished,
    request: PageRequest,
    of: str,
    changes: Callable[[], Found],
    **shown: bool,
) -> tuple[Found, tuple[Any, ...], str | None]:
    """All changes of a commit, a diff or a plan, those on the page, and the next page's token.

    ``of`` identifies it; a token with another identity raises `ChangeCursorRejected`.
    """
    # A commit is the same on all branches that contain it, so these tokens are not bound to a
    # branch.
    scope = FeedScope(first_commit(kernel.manifest.main.state).commit_id, "", None, request.wanted)
    after = None
    if request.page_token is not None:
        after = CommitToken.read(request.page_token, scope, of).key
    kept: Found | None = unfinished.take(of, request.wanted)
    found = changes() if kept is None else kept
    packed = PagePacker(request.limits).pack(found, after, **shown)
    if packed.is_complete:
        return found, packed.changes, None
    unfinished.keep(found, request.wanted, of)
    return found, packed.changes, CommitToken(of, packed.key).to_text(scope)


def _remaining(
    found: Listings[Item], after: ChangeKey | None
) -> Iterator[tuple[Listing[Item], int]]:
    """The lists with changes after ``after``, and the index where those begin."""
    for changes in found.lists:
        start = 0
        if after is not None:
            rows = changes.rows
            rank = rows.kind == "edge", public_type_id(rows.type)
            if rank < after.type_rank:
                continue
            if rank == after.type_rank:
                start = _place_behind(changes, after)
        if start < len(changes.ids):
            yield changes, start


def _place_behind(changes: Listing[Any], key: ChangeKey) -> int:
    """The index of the first change after ``key``."""
    ids = changes.ids
    if key.digest is None:
        return int(pc.sum(pc.less_equal(ids, key.id)).as_py() or 0)
    # Ids with the same prefix are adjacent, and no smaller id has it.
    at = int(pc.sum(pc.less(ids, key.id)).as_py() or 0)
    while at < len(ids) and (id := ids[at].as_py()).startswith(key.id):
        at += 1
        if id_digest(id) == key.digest:
            return at
    raise ChangeCursorRejected("it names a change that is not in this commit")
