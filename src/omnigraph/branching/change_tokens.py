"""Cursors and page tokens: places in the history of a branch, as texts that callers keep.

A text carries everything that is needed to go on, so that any process can continue where another
stopped. It also says what it belongs to: it is refused with another graph, branch or filter, and
wherever another kind of text is asked for. The checksum finds texts that were cut or changed; it
is no secret, since a caller may read every place of a branch it may read at all.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from omnigraph.errors import ChangeCursorRejected
from omnigraph.model.changes import COMMITS_MAX, ChangeFilter
from omnigraph.model.ids import EntityKind

FORMAT = 1
TOKEN_BYTES_MAX = 4_096
WHOLE_ID_BYTES_MAX = 256
"""Longer ids are named by their beginning and a digest of the whole."""

_CHECKSUM_BYTES = 12
_DIGEST_BYTES = 8

TokenKind = Literal["a cursor", "a page token of the feed", "a page token of a commit"]
_KINDS: dict[TokenKind, int] = {
    "a cursor": 1,
    "a page token of the feed": 2,
    "a page token of a commit": 3,
}


@dataclass(frozen=True, slots=True)
class Scope:
    """What a text belongs to."""

    graph: str
    """The first commit of the graph's history: no two graphs share one."""
    branch: str
    ref: str | None
    """The physical ref of the branch: another one under the same name is another branch."""
    wanted: ChangeFilter

    def digests(self) -> dict[str, bytes]:
        """A digest of each part, so that a mismatch can be named."""
        parts = {
            "graph": self.graph,
            "branch": self.branch,
            "history of the branch": self.ref or "",
            "filter": orjson.dumps(_canonical(self.wanted)).decode(),
        }
        return {name: _digest(text) for name, text in parts.items()}


@dataclass(frozen=True, slots=True)
class ChangeKey:
    """The last change of a page: the next page goes on behind it."""

    kind: EntityKind
    type_id: str
    id: str
    """The whole id, or its beginning if there is a digest."""
    digest: str | None = None

    @classmethod
    def of(cls, kind: EntityKind, type_id: str, id: str) -> ChangeKey:
        """The key of a change."""
        encoded = id.encode()
        if len(encoded) <= WHOLE_ID_BYTES_MAX:
            return cls(kind, type_id, id)
        # The cut may fall inside a character; what is left of it is dropped.
        beginning = encoded[:WHOLE_ID_BYTES_MAX].decode(errors="ignore")
        return cls(kind, type_id, beginning, id_digest(id))

    @property
    def type_rank(self) -> tuple[bool, str]:
        """Where its type comes in the order of types."""
        return self.kind == "edge", self.type_id


def id_digest(id: str) -> str:
    """What a long id is known by, beside its beginning."""
    return hashlib.sha256(id.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Cursor:
    """A place between two commits: everything up to this one has been delivered."""

    commit_id: str

    def to_text(self, scope: Scope) -> str:
        """The text to hand out."""
        return _encode("a cursor", scope, [self.commit_id])

    @classmethod
    def read(cls, text: str, scope: Scope) -> Cursor:
        """The place a text names; raises `ChangeCursorRejected`."""
        match _decode("a cursor", text, scope):
            case [str(commit_id)]:
                return cls(commit_id)
        raise _damaged()


@dataclass(frozen=True, slots=True)
class FeedToken:
    """A place inside a commit of the feed."""

    cut_commit_id: str
    """The head when the poll began: what came later is left to the next one."""
    commits_left: int
    """How many more the poll may look at, the one it is in included."""
    commit_id: str
    key: ChangeKey

    def to_text(self, scope: Scope) -> str:
        """The text to hand out."""
        fields = [self.cut_commit_id, self.commits_left, self.commit_id, *_key_fields(self.key)]
        return _encode("a page token of the feed", scope, fields)

    @classmethod
    def read(cls, text: str, scope: Scope) -> FeedToken:
        """The place a text names; raises `ChangeCursorRejected`."""
        match _decode("a page token of the feed", text, scope):
            case [str(cut), int(left), str(commit_id), *key] if 0 < left <= COMMITS_MAX:
                return cls(cut, left, commit_id, _key(key))
        raise _damaged()


@dataclass(frozen=True, slots=True)
class CommitToken:
    """A place in the list of changes of one commit."""

    commit_id: str
    key: ChangeKey

    def to_text(self, scope: Scope) -> str:
        """The text to hand out."""
        return _encode("a page token of a commit", scope, [self.commit_id, *_key_fields(self.key)])

    @classmethod
    def read(cls, text: str, scope: Scope, commit_id: str) -> CommitToken:
        """The place in ``commit_id`` a text names; raises `ChangeCursorRejected`."""
        match _decode("a page token of a commit", text, scope):
            case [str(found), *key] if found == commit_id:
                return cls(found, _key(key))
            case [str(), *_]:
                raise ChangeCursorRejected("it belongs to another commit")
        raise _damaged()


def _encode(kind: TokenKind, scope: Scope, fields: list[Any]) -> str:
    belongs = b"".join(scope.digests().values())
    body = bytes([FORMAT, _KINDS[kind]]) + belongs + orjson.dumps(fields)
    text = base64.urlsafe_b64encode(body + _checksum(body)).rstrip(b"=").decode()
    assert len(text) <= TOKEN_BYTES_MAX
    return text


def _decode(kind: TokenKind, text: str, scope: Scope) -> list[Any]:
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
        raise _damaged()  # the last character has bits that decode to nothing
    return body


def _checksum(body: bytes) -> bytes:
    return hashlib.sha256(b"omnigraph change token" + body).digest()[:_CHECKSUM_BYTES]


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:_DIGEST_BYTES]


def _canonical(wanted: ChangeFilter) -> list[list[str]]:
    return [sorted(wanted.kinds), sorted(wanted.types), sorted(wanted.ops)]


def _key_fields(key: ChangeKey) -> list[str | None]:
    return [key.kind, key.type_id, key.id, key.digest]


def _key(fields: list[Any]) -> ChangeKey:
    match fields:
        case ["node" | "edge" as kind, str(type_id), str(id), str() | None as digest]:
            return ChangeKey(kind, type_id, id, digest)
    raise _damaged()


def _damaged() -> ChangeCursorRejected:
    return ChangeCursorRejected("it is damaged", hint="use it exactly as it was given out")
