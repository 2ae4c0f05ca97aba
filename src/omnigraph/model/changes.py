"""Changes of entities: what diffs, commits and the change feed consist of, and their pages."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, Self, TypeVar

from omnigraph.errors import InputError, LimitExceeded
from omnigraph.model.ids import EntityKind
from omnigraph.model.json_object import HIDDEN, OPTIONAL, Json, JsonObject
from omnigraph.model.records import dataclass
from omnigraph.model.text_table import ELLIPSIS, cell_text, one_line

ChangeOp = Literal["insert", "update", "delete"]
CHANGE_OPS: tuple[ChangeOp, ...] = ("insert", "update", "delete")
ENTITY_KINDS: tuple[EntityKind, ...] = ("node", "edge")

Word = TypeVar("Word", bound=str)


@dataclass(frozen=True, slots=True)
class Endpoints(JsonObject):
    """The nodes an edge joins, by id."""

    source: Annotated[str, Json("from")]
    target: Annotated[str, Json("to")]
    source_type: Annotated[str | None, Json("from_type", unless=None)] = None
    """The type of the source node, if that end is an interface."""
    target_type: Annotated[str | None, Json("to_type", unless=None)] = None


@dataclass(frozen=True, slots=True)
class Image(JsonObject):
    """An entity at one commit: every property, and the endpoints of an edge."""

    properties: Mapping[str, Any]
    """JSON values; blobs in the form of loads, in diffs and conflicts as a summary."""
    endpoints: Annotated[Endpoints | None, OPTIONAL] = None


@dataclass(frozen=True, slots=True)
class EntityChange(JsonObject):
    """One changed entity: an insert has an image after, a delete one before, an update both.

    Images are included only on request; the endpoints of an edge always are.
    """

    kind: EntityKind
    type_id: Annotated[str, Json("id", within="type")]
    """Opaque: kept by a rename, changed when a type is dropped and created again."""
    type_name: Annotated[str, Json("name", within="type")]
    id: str
    op: ChangeOp
    endpoints: Annotated[Endpoints | None, HIDDEN] = None
    """The endpoints of the edge, the last ones if it was deleted; in JSON, the images have them."""
    before: Annotated[Image | None, OPTIONAL] = None
    after: Annotated[Image | None, OPTIONAL] = None

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """The change, with the endpoints of its latest image."""
        change = super(EntityChange, cls).from_dict(document)  # noqa: UP008 - slots make the class anew
        latest = change.after or change.before
        return change if latest is None else replace(change, endpoints=latest.endpoints)


@dataclass(frozen=True, slots=True)
class TypeCounts(JsonObject):
    """The number of changed entities of one type."""

    kind: EntityKind
    type_name: str
    inserted: int
    updated: int
    deleted: int

    @property
    def numbers(self) -> tuple[int, int, int]:
        """Inserted, updated, deleted."""
        return self.inserted, self.updated, self.deleted

    @property
    def total(self) -> int:
        """The sum of all three."""
        return sum(self.numbers)


@dataclass(frozen=True, slots=True)
class CommitCause(JsonObject):
    """The commit that made the changes."""

    graph_commit_id: str
    parent_commit_id: Annotated[str | None, OPTIONAL]
    merged_parent_commit_id: Annotated[str | None, OPTIONAL]
    authored_branch: str
    actor_id: Annotated[str | None, OPTIONAL]
    authored_at: int
    """Microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class EntityVersion(JsonObject):
    """A commit that changed an entity, and the operation."""

    cause: CommitCause
    change: EntityChange


@dataclass(frozen=True, slots=True)
class ChangeFilter:
    """Which changes to include; an empty part includes all."""

    kinds: frozenset[EntityKind] = frozenset()
    types: frozenset[str] = frozenset()
    """Type names."""
    ops: frozenset[ChangeOp] = frozenset()

    @classmethod
    def of(
        cls, kinds: Iterable[str] = (), types: Iterable[str] = (), ops: Iterable[str] = ()
    ) -> ChangeFilter:
        """A filter from texts; raises `InputError` for an unknown kind or operation."""
        return cls(
            frozenset(_known(kinds, ENTITY_KINDS)),
            frozenset(types),
            frozenset(_known(ops, CHANGE_OPS)),
        )

    def wanted_ops(self) -> Iterator[ChangeOp]:
        """The operations to include."""
        return (op for op in CHANGE_OPS if not self.ops or op in self.ops)


def _known(words: Iterable[str], allowed: tuple[Word, ...]) -> list[Word]:
    found = []
    for word in words:
        if word not in allowed:
            raise InputError(f"'{word}' is not one of {', '.join(allowed)}")
        found.append(allowed[allowed.index(word)])
    return found


CHANGES_DEFAULT = 1_000
CHANGES_MAX = 8_192
BYTES_DEFAULT = 4 << 20
BYTES_MAX = 32 << 20
COMMITS_DEFAULT = 128
COMMITS_MAX = 512


@dataclass(frozen=True, slots=True)
class PageLimits:
    """The limits of one page.

    Bytes are a target: a change that is larger by itself is returned alone.
    """

    changes: int = CHANGES_DEFAULT
    bytes: int = BYTES_DEFAULT
    commits: int = COMMITS_DEFAULT
    """How many commits a poll examines, with or without changes."""

    @classmethod
    def of(
        cls, changes: int | None = None, bytes: int | None = None, commits: int | None = None
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
class ChangeBlock(JsonObject):
    """The changes of one commit, or those of them that are on one page. May be empty."""

    cause: CommitCause
    changes: tuple[EntityChange, ...]


@dataclass(frozen=True, slots=True)
class CommitPage(ChangeBlock):
    """Some of the changes of one commit."""

    next_page_token: Annotated[str | None, OPTIONAL] = None
    """Continues this answer; left out of the last page."""


@dataclass(frozen=True, slots=True)
class FeedPage(JsonObject):
    """One page of the change feed.

    It ends either inside a commit, with a token for the rest, or after a whole commit, with a
    cursor to continue from at any later time.
    """

    blocks: tuple[ChangeBlock, ...]
    next_page_token: Annotated[str | None, OPTIONAL] = None
    cursor: Annotated[str | None, OPTIONAL] = None
    caught_up: Annotated[bool | None, OPTIONAL] = None
    """Whether the blocks include the head as of the start of the poll."""


@dataclass(frozen=True, slots=True)
class EntityRecord(JsonObject):
    """One entity of a baseline, with the image that its insert would have in the feed."""

    kind: EntityKind
    type_id: Annotated[str, Json("id", within="type")]
    type_name: Annotated[str, Json("name", within="type")]
    id: str
    image: Annotated[Image, Json(is_flat=True)]


@dataclass(frozen=True, slots=True)
class Handshake(JsonObject):
    """Where the feed continues after a baseline."""

    snapshot_commit_id: str
    resume_cursor: str


VALUE_WIDTH = 40
"""Longer values are cut; the JSON form has them in full."""

NULL, ABSENT = "<null>", "<absent>"
"""Shown so that they cannot be confused with texts, or with each other."""

MARKS = {"insert": ("+", "green"), "update": ("~", "yellow"), "delete": ("-", "red")}
"""A sign and a colour for each operation."""


def subject(change: EntityChange) -> str:
    """The name of the changed entity; for an edge with its ends, and the old ones if it moved."""
    before = None if change.before is None else change.before.endpoints
    pairs = dict.fromkeys(ends for ends in (before, change.endpoints) if ends is not None)
    between = " ⇒ ".join(f"({ends.source} → {ends.target})" for ends in pairs)
    return one_line(f"{change.kind} {change.type_name} {change.id} {between}".rstrip())


def difference(change: EntityChange) -> str:
    """The differing values of an updated entity; empty for other operations, and without images."""
    if change.before is None or change.after is None:
        return ""
    before, after = change.before.properties, change.after.properties
    return ", ".join(
        f"{name} {_side(before, name)} → {_side(after, name)}"
        for name in dict.fromkeys((*before, *after))
        if name not in before or name not in after or repr(before[name]) != repr(after[name])
    )


def _side(values: Mapping[str, Any], name: str) -> str:
    return short(values[name]) if name in values else ABSENT


def spelled(image: Image | None, names: Iterable[str] = ()) -> str:
    """An entity as names and values; limited to ``names`` if there are any."""
    if image is None:
        return "-"
    values = image_values(image)
    return ", ".join(f"{name} {short(values[name])}" for name in names or values)


def image_values(image: Image) -> dict[str, Any]:
    """All values of an image: the ends of an edge as `from` and `to`, then properties."""
    ends = image.endpoints.to_dict() if image.endpoints is not None else {}
    return {**ends, **image.properties}


def short(value: Any) -> str:
    """A value on one line, cut if it is long."""
    if value is None:
        return NULL
    text = one_line(cell_text(value))
    return text if len(text) <= VALUE_WIDTH else text[: VALUE_WIDTH - 1] + ELLIPSIS
