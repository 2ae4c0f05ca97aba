"""Pages of changes: what one answer of `commit changes` and of the change feed holds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnigraph.errors import InputError, LimitExceeded
from omnigraph.model.changes import CommitCause, EntityChange, Image
from omnigraph.model.ids import EntityKind

CHANGES_DEFAULT = 1_000
CHANGES_MAX = 8_192
BYTES_DEFAULT = 4 << 20
BYTES_MAX = 32 << 20
COMMITS_DEFAULT = 128
COMMITS_MAX = 512


@dataclass(frozen=True, slots=True)
class PageLimits:
    """How much one page holds.

    Bytes are a packing target: a change that is larger by itself travels alone.
    """

    changes: int = CHANGES_DEFAULT
    bytes: int = BYTES_DEFAULT
    commits: int = COMMITS_DEFAULT
    """How many commits a poll looks at, with changes or without."""

    @classmethod
    def of(
        cls,
        changes: int | None = None,
        bytes: int | None = None,
        commits: int | None = None,
    ) -> PageLimits:
        """Limits with defaults; raises `InputError` below one and `LimitExceeded` above the most.

        >>> PageLimits.of(changes=10)
        PageLimits(changes=10, bytes=4194304, commits=128)
        """
        return cls(
            _checked("changes per page", changes, CHANGES_DEFAULT, CHANGES_MAX),
            _checked("bytes per page", bytes, BYTES_DEFAULT, BYTES_MAX),
            _checked("commits per poll", commits, COMMITS_DEFAULT, COMMITS_MAX),
        )


def _checked(what: str, wanted: int | None, default: int, most: int) -> int:
    if wanted is None:
        return default
    if wanted < 1:
        raise InputError(f"{what} cannot be {wanted}", hint=f"ask for 1 to {most}")
    if wanted > most:
        raise LimitExceeded(what, most, wanted, hint="ask for less, and follow the page tokens")
    return wanted


@dataclass(frozen=True, slots=True)
class CommitPage:
    """Some of the changes of one commit."""

    cause: CommitCause
    changes: tuple[EntityChange, ...]
    next_page_token: str | None = None
    """Continues this answer; None if this was the last page of it."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        out = ChangeBlock(self.cause, self.changes).to_dict()
        if self.next_page_token is not None:
            out["next_page_token"] = self.next_page_token
        return out


@dataclass(frozen=True, slots=True)
class ChangeBlock:
    """What one commit changed, or the part of it that is on one page. May be empty."""

    cause: CommitCause
    changes: tuple[EntityChange, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: the cause once, then every change."""
        changes = [change.to_commit_dict() for change in self.changes]
        return {"cause": self.cause.to_dict(), "changes": changes}


@dataclass(frozen=True, slots=True)
class FeedPage:
    """One answer of the change feed.

    It ends either inside a commit, with a token for the rest, or after a whole one, with a cursor
    to come back with at any later time.
    """

    blocks: tuple[ChangeBlock, ...]
    next_page_token: str | None = None
    cursor: str | None = None
    caught_up: bool | None = None
    """Whether the blocks reach the head as it was when the poll began."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; what a page does not have is left out."""
        out: dict[str, Any] = {"blocks": [block.to_dict() for block in self.blocks]}
        ends = {
            "next_page_token": self.next_page_token,
            "cursor": self.cursor,
            "caught_up": self.caught_up,
        }
        return out | {name: value for name, value in ends.items() if value is not None}


@dataclass(frozen=True, slots=True)
class EntityRecord:
    """One entity of a baseline, in the words of the feed: the image an insert would have."""

    kind: EntityKind
    type_id: str
    type_name: str
    id: str
    image: Image

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        type = {"id": self.type_id, "name": self.type_name}
        return {"kind": self.kind, "type": type, "id": self.id} | self.image.to_dict()


@dataclass(frozen=True, slots=True)
class Handshake:
    """Where the feed continues after a baseline."""

    snapshot_commit_id: str
    resume_cursor: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "snapshot_commit_id": self.snapshot_commit_id,
            "resume_cursor": self.resume_cursor,
        }
