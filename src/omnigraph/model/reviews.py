"""Change requests in the form of all interfaces: summaries, whole requests, and events."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from itertools import islice
from typing import Annotated, Any, Literal, TypeAlias, get_args

from omnigraph.errors import InputError, NotFound
from omnigraph.model.json_object import OPTIONAL, PLAIN, Json, JsonObject
from omnigraph.model.receipts import MergeReceipt
from omnigraph.model.records import dataclass
from omnigraph.model.text_table import html_line, html_table

ReviewState: TypeAlias = Literal["open", "merged", "closed"]
ReviewVerdict: TypeAlias = Literal["approve", "request_changes"]
"""The verdict that a reviewer gives."""
ReviewOutcome: TypeAlias = Literal["approved", "changes_requested"]
"""The verdict as it is stored."""
CheckState: TypeAlias = Literal["pending", "passed", "failed"]
Mergeable: TypeAlias = Literal["clean", "conflicts", "behind", "blocked"]
ReviewEventKind: TypeAlias = Literal[
    "opened",
    "edited",
    "commented",
    "resolved",
    "reviewed",
    "check_reported",
    "closed",
    "reopened",
    "bypassed",
]
"""The kind of an event. `bypassed` belongs to no request: an actor wrote to the branch directly, as
a rule allows."""

ID_PREFIX = "cr-"
ID_CHARACTERS_MAX = 64
SHORT_CHARACTERS = 17
"""Length of a shortened id: the prefix, its time and four random characters."""

TITLE_CHARACTERS_MAX = 200
TEXT_CHARACTERS_MAX = 20_000
CHECK_NAME_CHARACTERS_MAX = 100
NAME_CHARACTERS_MAX = 500
"""Maximum length of names and ids in a comment, and of column names in rows of a check."""
CHECK_ROWS_MAX = 100
"""Rows of a failed check that are stored, within `CHECK_ROWS_BYTES_MAX`."""
CHECK_ROWS_BYTES_MAX = 256 * 1024
CHECK_VALUE_CHARACTERS_MAX = 1_000
"""Longer texts in these rows are cut."""


def no_review(id: str) -> NotFound:
    """The error for a change request that does not exist or is hidden from the caller."""
    return NotFound(
        f"there is no change request {id.strip()[:ID_CHARACTERS_MAX]}",
        hint="`omnigraph review list` shows the change requests",
    )


def checked_text(text: object, what: str, limit: int = TEXT_CHARACTERS_MAX) -> str:
    """A valid text of an event, without surrounding white space; raises `InputError`."""
    if not isinstance(text, str):
        raise InputError(f"the {what} is a text, not {type(text).__name__}")
    trimmed = text.strip()
    if not trimmed:
        raise InputError(f"the {what} is empty", hint=f"give a {what}")
    if len(trimmed) > limit:
        raise InputError(
            f"the {what} has {len(trimmed)} characters, at most {limit} are kept",
            hint="keep it short, and put the rest where it belongs",
        )
    try:
        trimmed.encode()
    except UnicodeEncodeError:
        raise InputError(f"the {what} has no UTF-8 form") from None
    return trimmed


def checked_title(text: object) -> str:
    """A title: one line of text."""
    title = checked_text(text, "title", TITLE_CHARACTERS_MAX)
    if not title.isprintable():
        raise InputError(
            "the title holds characters that cannot be printed", hint="write it on one line"
        )
    return title


def kept_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The first rows of a failed check, within the limits of an event."""
    kept: list[dict[str, Any]] = []
    size = 0
    for row in islice(rows, CHECK_ROWS_MAX):
        short = {str(name)[:NAME_CHARACTERS_MAX]: _short(value) for name, value in row.items()}
        size += len(repr(short))
        if size > CHECK_ROWS_BYTES_MAX:
            break
        kept.append(short)
    return kept


def _short(value: Any) -> Any:
    most = CHECK_VALUE_CHARACTERS_MAX
    return f"{value[:most]}…" if isinstance(value, str) and len(value) > most else value


def checked_choice(given: object, choices: Any, what: str) -> Any:
    """One of the words of a `Literal`; raises `InputError` with all of them."""
    words = get_args(choices)
    if given not in words:
        raise InputError(
            f"there is no {what} '{str(given)[:ID_CHARACTERS_MAX]}'",
            hint=f"it is one of {', '.join(words)}",
        )
    return given


# --- parts of a request ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReviewComment(JsonObject):
    """A comment on a request, or on a type, an entity or a property at a commit."""

    id: str
    actor_id: str | None
    created_at: int
    """Microseconds since 1970."""
    text: str
    resolved: bool
    """Whether its thread is resolved; replies have the state of the comment they reply to."""
    reply_to: Annotated[str | None, OPTIONAL] = None
    """The first comment of its thread."""
    type_name: Annotated[str | None, OPTIONAL] = None
    entity_id: Annotated[str | None, OPTIONAL] = None
    property_name: Annotated[str | None, OPTIONAL] = None
    graph_commit_id: Annotated[str | None, OPTIONAL] = None
    """The commit in which the entity or property was viewed."""

    @property
    def place(self) -> str | None:
        """The place it is about, as one text; None for the request itself."""
        if self.type_name is None:
            return None
        entity = "" if self.entity_id is None else f":{self.entity_id}"
        property_ = "" if self.property_name is None else f".{self.property_name}"
        return f"{self.type_name}{entity}{property_}"


@dataclass(frozen=True, slots=True)
class GivenReview(JsonObject):
    """The latest verdict of one actor."""

    actor_id: str | None
    verdict: ReviewOutcome
    graph_commit_id: str
    """The head of the source for which it was given."""
    created_at: int
    stale: bool
    """Whether the content of the source has changed since."""
    text: Annotated[str | None, OPTIONAL] = None


@dataclass(frozen=True, slots=True)
class ReviewCheck(JsonObject):
    """The latest result of one check."""

    name: str
    state: CheckState
    graph_commit_id: str
    """The head of the source on which it ran."""
    created_at: int
    stale: bool
    """Whether the content of the source has changed since."""
    actor_id: str | None
    text: Annotated[str | None, OPTIONAL] = None
    rows: Annotated[tuple[Mapping[str, Any], ...], Json(unless=())] = ()
    """The first rows of a failed query."""


@dataclass(frozen=True, slots=True)
class BlockReason(JsonObject):
    """Why a request cannot be merged now."""

    code: Literal[
        "not_open",
        "conflicts",
        "approvals",
        "changes_requested",
        "check",
        "comments",
        "behind",
    ]
    text: str


# --- requests -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReviewSummary(JsonObject):
    """A change request as a list shows it."""

    id: str
    title: str
    state: ReviewState
    source: str
    target: str
    author: str | None
    opened_at: int
    """Microseconds since 1970."""
    updated_at: int
    comment_count: int


@dataclass(frozen=True, slots=True)
class ReviewPage(JsonObject):
    """Some change requests, newest first."""

    reviews: tuple[ReviewSummary, ...]
    next_page_token: Annotated[str | None, OPTIONAL] = None
    """Continues this answer; left out of its last page."""

    def __iter__(self) -> Iterator[ReviewSummary]:
        return iter(self.reviews)

    def __len__(self) -> int:
        return len(self.reviews)

    def __getitem__(self, at: int) -> ReviewSummary:
        return self.reviews[at]

    def _repr_html_(self) -> str:
        headers = ("id", "state", "title", "source", "into", "author")
        rows = [
            (short_id(each.id), each.state, each.title, each.source, each.target, each.author or "")
            for each in self.reviews
        ]
        more = html_line("there are more") if self.next_page_token is not None else ""
        return html_table(headers, rows) + more


@dataclass(frozen=True, slots=True)
class Review(JsonObject):
    """A change request: a proposal to merge a source branch into a target branch."""

    id: str
    title: str
    description: str
    state: ReviewState
    source: str
    target: str
    author: str | None
    opened_at: int
    """Microseconds since 1970."""
    source_commit_id: str
    """The head of the source; after it is deleted or merged, the last known one."""
    target_commit_id: str | None
    """The head of the target; null if the branch is deleted."""
    reviews: tuple[GivenReview, ...]
    comments: tuple[ReviewComment, ...]
    checks: tuple[ReviewCheck, ...]
    base_commit_id: Annotated[str | None, OPTIONAL] = None
    """The merge base; left out unless the request is open."""
    mergeable: Annotated[Mergeable | None, OPTIONAL] = None
    """Left out unless the request is open."""
    reasons: tuple[BlockReason, ...] = ()
    """All reasons why it cannot be merged."""
    merge_commit_id: Annotated[str | None, OPTIONAL] = None
    """The commit that merged it."""
    closed_because: Annotated[str | None, OPTIONAL] = None

    @property
    def approvers(self) -> tuple[str | None, ...]:
        """Actors whose latest review approves the present content, without the author."""
        return tuple(
            each.actor_id
            for each in self.reviews
            if each.verdict == "approved" and not each.stale and each.actor_id != self.author
        )

    def __repr__(self) -> str:
        merging = f", {self.mergeable}" if self.mergeable else ""
        return (
            f"Review({short_id(self.id)} {self.title!r}: {self.source} into {self.target}, "
            f"{self.state}{merging})"
        )

    def _repr_html_(self) -> str:
        head = f"{short_id(self.id)} {self.title}: {self.source} into {self.target}, {self.state}"
        out = html_line(head) + (html_line(self.description) if self.description else "")
        out += "".join(html_line(f"not mergeable: {reason.text}") for reason in self.reasons)
        if self.reviews:
            given = [
                (each.actor_id or "", each.verdict, "stale" if each.stale else "")
                for each in self.reviews
            ]
            out += html_table(("reviewer", "verdict", ""), given)
        if self.checks:
            rows = [(each.name, each.state, each.text or "") for each in self.checks]
            out += html_table(("check", "state", ""), rows)
        if self.comments:
            said = [
                (each.actor_id or "", each.place or "", each.text, "resolved" * each.resolved)
                for each in self.comments
            ]
            out += html_table(("who", "about", "comment", ""), said)
        return out


def short_id(id: str) -> str:
    """The beginning of an id, which is usually unique."""
    return id[:SHORT_CHARACTERS]


@dataclass(frozen=True, slots=True)
class ReviewEvent(JsonObject):
    """One event of a request. Events are append-only; the state of a request follows."""

    event_id: str
    """A ULID: events are ordered by it."""
    request_id: str
    kind: ReviewEventKind
    actor_id: str | None
    created_at: int
    """Microseconds since 1970."""
    body: Annotated[Mapping[str, Any], PLAIN] = field(hash=False)
    operation_id: Annotated[str | None, OPTIONAL] = None
    """The caller's idempotency key: of an actor's events with one key, the first counts."""


@dataclass(frozen=True, slots=True)
class ReviewEvents(JsonObject):
    """Some events, in order."""

    events: tuple[ReviewEvent, ...]
    next_page_token: Annotated[str | None, OPTIONAL] = None
    """Continues this answer; left out of its last page."""


@dataclass(frozen=True, slots=True)
class ReviewMerged(JsonObject):
    """The result of merging a request."""

    id: str
    title: str
    approvers: tuple[str, ...]
    merge: MergeReceipt
