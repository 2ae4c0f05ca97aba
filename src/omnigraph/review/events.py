"""The events of change requests, and the state that is computed from them.

An event is one row, written by one append, and never changes. Concurrent appends do not conflict,
so none is lost; appends are atomic, so there is nothing to recover. The fold orders events by id
and ignores duplicates, so its result does not depend on the order of arrival.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Literal

import orjson
import pyarrow as pa

from omnigraph.commit.kernel import Kernel
from omnigraph.effects.clock import later_ulid
from omnigraph.errors import NotFound, OmnigraphError, StorageError
from omnigraph.model.records import dataclass
from omnigraph.model.reviews import (
    ID_PREFIX,
    CheckState,
    ReviewComment,
    ReviewEvent,
    ReviewEventKind,
    ReviewOutcome,
)
from omnigraph.storage.datasets import Handle, fragment_count
from omnigraph.storage.failures import count_lance, lance_errors
from omnigraph.storage.layout import REVIEWS
from omnigraph.storage.transactions import CommitLost, DatasetRef

log = logging.getLogger(__name__)

SCHEMA = pa.schema(
    [
        pa.field("event_id", pa.string(), nullable=False),
        pa.field("request_id", pa.string(), nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("actor_id", pa.string()),
        pa.field("created_at", pa.int64(), nullable=False),
        pa.field("operation_id", pa.string()),
        pa.field("branches", pa.string()),
        pa.field("body", pa.string(), nullable=False),
    ]
)
BRANCHES = (
    "source",
    "source_ref",
    "target",
    "target_ref",
    "source_commit_id",
    "target_commit_id",
)
"""Fields of an `opened` event with their own columns, by which listing filters requests."""

INDEXES: Mapping[str, Literal["BTREE", "BITMAP"]] = {
    "event_id": "BTREE",
    "request_id": "BTREE",
    "kind": "BITMAP",
    "operation_id": "BTREE",
}
COMPACT_EVERY = 128
"""The number of fragments from which on a writer compacts the events; each append adds one."""
VERSIONS_KEPT = timedelta(minutes=30)
"""Much longer than an append takes, which conflicts are checked since the version it began at."""


@dataclass(frozen=True, slots=True)
class EventAuthor:
    """The actor of an event, and its idempotency key: repeating it adds no second event."""

    actor_id: str | None = None
    operation_id: str | None = None


# --- storage --------------------------------------------------------------------------------------


class Events:
    """The events of one graph; the dataset is created with the first event."""

    def __init__(self, kernel: Kernel) -> None:
        self._kernel = kernel
        self._where = DatasetRef(f"{kernel.root.uri}/{REVIEWS}")

    def append(
        self,
        kind: ReviewEventKind,
        request_id: str | None,
        caller: EventAuthor,
        body: dict[str, Any],
        after: str = "",
    ) -> ReviewEvent:
        """Append an event, of a new request without ``request_id``; durable once this returns.

        Its id is greater than ``after``, the last event that the caller has seen, even if that was
        written with a faster clock.
        """
        event_id = self._kernel.ids.ulid()
        if event_id <= after:
            # Another process may append after the same event: the ids must differ.
            event_id = later_ulid(after, event_id)
        event = ReviewEvent(
            event_id,
            request_id or f"{ID_PREFIX}{event_id}",
            kind,
            caller.actor_id,
            self._kernel.clock.wall_us(),
            {name: value for name, value in body.items() if value is not None},
            caller.operation_id,
        )
        rows, lance = _encoded(event), self._kernel.lance
        if not lance.exists(self._where):
            try:
                lance.create(self._where, SCHEMA, rows, f"review-{event_id}")
                return event
            except CommitLost:
                # Another process created it concurrently; a real failure is raised below.
                pass
        lance.append(self._where, rows, f"review-{event_id}")
        self._compact_if_crowded()
        return event

    def compact(self) -> tuple[int, int, int] | None:
        """Compact fragments and update the indexes; None if there are no events.

        Returns the version, and the number of fragments before and after.
        """
        if self._open() is None:
            return None
        return self._kernel.lance.compact(self._where, INDEXES, VERSIONS_KEPT)

    def _compact_if_crowded(self) -> None:
        """Failures are ignored: the event is already stored."""
        try:
            handle = self._open()
            if handle is not None and fragment_count(handle) >= COMPACT_EVERY:
                self.compact()
        except OmnigraphError:
            log.info("the events of reviews were not compacted", exc_info=True)

    def of_request(self, request_id: str) -> list[ReviewEvent]:
        """The events of a request in order; empty for an unknown request."""
        return self._read(f"request_id = {_quoted(request_id)}")

    def of_requests(self, request_ids: Iterable[str]) -> list[ReviewEvent]:
        """The events of several requests."""
        wanted = ", ".join(map(_quoted, request_ids))
        return self._read(f"request_id IN ({wanted})") if wanted else []

    def of_caller(self, caller: EventAuthor) -> ReviewEvent | None:
        """The first event of an actor with this idempotency key; None without a key."""
        if caller.operation_id is None:
            return None
        found = self._read(f"operation_id = {_quoted(caller.operation_id)}")
        return next((each for each in found if each.actor_id == caller.actor_id), None)

    def outlines(self) -> list[Outline]:
        """Every request with its branches and closed flag, newest first.

        The cost depends on the number of requests, not on that of their other events.
        """
        columns = ["event_id", "request_id", "kind", "branches"]
        found = self._scan("kind IN ('opened', 'closed', 'reopened')", columns)
        rows = {row["event_id"]: row for row in found}
        outlines: dict[str, Outline] = {}
        for _, row in sorted(rows.items()):
            id = row["request_id"]
            if row["kind"] == "opened":
                outlines.setdefault(id, Outline(id, **orjson.loads(row["branches"])))
            elif id in outlines:
                outlines[id] = replace(outlines[id], is_closed=row["kind"] == "closed")
        return [outlines[id] for id in sorted(outlines, reverse=True)]

    def ids_beginning(self, prefix: str, most: int) -> list[str]:
        """The ids of at most ``most`` requests with a prefix."""
        found = self._scan(
            f"kind = 'opened' AND request_id >= {_quoted(prefix)} "
            f"AND request_id < {_quoted(prefix + '~')}",
            ["request_id"],
        )
        return sorted({row["request_id"] for row in found})[:most]

    def after(self, event_id: str, limit: int) -> list[ReviewEvent]:
        """The events after one, in order; from the first for an empty id."""
        ids = self._scan(f"event_id > {_quoted(event_id)}", ["event_id"])
        chosen = sorted({row["event_id"] for row in ids})[:limit]
        if not chosen:
            return []
        between = f"event_id >= {_quoted(chosen[0])} AND event_id <= {_quoted(chosen[-1])}"
        return self._read(between)

    def _read(self, condition: str) -> list[ReviewEvent]:
        events = {row["event_id"]: row for row in self._scan(condition, SCHEMA.names)}
        return [_decoded(events[id]) for id in sorted(events)]

    def _scan(self, condition: str, columns: Sequence[str]) -> list[dict[str, Any]]:
        handle = self._open()
        if handle is None:
            return []
        count_lance("scan", self._where.address)
        with lance_errors(handle):
            found: list[dict[str, Any]] = handle.to_table(
                columns=list(columns), filter=condition
            ).to_pylist()
        return found

    def _open(self) -> Handle | None:
        try:
            return self._kernel.lance.open(self._where)
        except NotFound:
            return None


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _encoded(event: ReviewEvent) -> pa.Table:
    record = {name: getattr(event, name, None) for name in SCHEMA.names}
    body = dict(event.body)
    if event.kind == "opened":
        branches = {name: body.pop(name) for name in BRANCHES if name in body}
        record["branches"] = orjson.dumps(branches).decode()
    record["body"] = orjson.dumps(body).decode()
    return pa.Table.from_pylist([record], schema=SCHEMA)


def _decoded(record: dict[str, Any]) -> ReviewEvent:
    record = dict(record)
    try:
        body = orjson.loads(record["body"]) | orjson.loads(record.pop("branches") or "{}")
    except orjson.JSONDecodeError as error:
        raise StorageError(
            f"event {record['event_id']} of {REVIEWS} is damaged: {error}",
            hint="restore the graph from a copy",
        ) from error
    return ReviewEvent(**{**record, "body": body})


# --- fold -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Outline:
    """The facts that, with the commits of the branches, determine the state of a request."""

    id: str
    source: str
    target: str
    source_commit_id: str
    """The head of the source when the request was opened."""
    target_commit_id: str
    """The head of the target when the request was opened."""
    source_ref: str | None = None
    """The physical ref, which differs for a new branch of the same name."""
    target_ref: str | None = None
    is_closed: bool = False
    """Whether the last close or reopen event closed it."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The latest review of one actor."""

    actor_id: str | None
    outcome: ReviewOutcome
    head: str
    created_at: int
    text: str | None


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The latest result of one check."""

    name: str
    state: CheckState
    head: str
    created_at: int
    actor_id: str | None
    text: str | None
    rows: tuple[dict[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Request:
    """The state of one request from its events; whether it is merged is known only from commits."""

    id: str
    title: str
    description: str
    author: str | None
    opened_at: int
    outline: Outline
    updated_at: int
    last_event: str
    closed_by: str | None = None
    verdicts: tuple[Verdict, ...] = ()
    """The latest review of each actor, in order."""
    comments: tuple[ReviewComment, ...] = ()
    checks: tuple[CheckResult, ...] = ()
    """The latest result of each check, by name."""

    @property
    def known_heads(self) -> tuple[str, ...]:
        """The heads of the source that events name, the latest last."""
        return (self.outline.source_commit_id, *(each.head for each in self.verdicts))


def fold(events: Iterable[ReviewEvent]) -> dict[str, Request]:
    """The requests that result from some events, by id; events may be in any order."""
    in_order = sorted({each.event_id: each for each in events}.values(), key=lambda e: e.event_id)
    found: dict[str, Request] = {}
    for event in _without_repetitions(in_order):
        request = found.get(event.request_id)
        if event.kind == "opened":
            # Only the opening event has the id from which the request is named.
            if request is None:
                found[event.request_id] = _opened(event)
        elif request is not None:
            found[event.request_id] = replace(
                _applied(request, event),
                updated_at=max(request.updated_at, event.created_at),
                last_event=event.event_id,
            )
    return found


def _without_repetitions(events: Iterable[ReviewEvent]) -> Iterator[ReviewEvent]:
    """Without repeated events of one actor with the same idempotency key."""
    seen: set[tuple[str | None, str]] = set()
    for event in events:
        if event.operation_id is not None:
            key = (event.actor_id, event.operation_id)
            if key in seen:
                continue
            seen.add(key)
        yield event


def _opened(event: ReviewEvent) -> Request:
    body = event.body
    return Request(
        event.request_id,
        body["title"],
        body.get("description", ""),
        event.actor_id,
        event.created_at,
        Outline(event.request_id, **{name: body[name] for name in BRANCHES if name in body}),
        event.created_at,
        event.event_id,
    )


def _applied(request: Request, event: ReviewEvent) -> Request:
    body = event.body
    match event.kind:
        case "edited":
            return replace(
                request,
                title=body.get("title", request.title),
                description=body.get("description", request.description),
            )
        case "commented":
            return replace(request, comments=(*request.comments, _comment(request, event)))
        case "resolved":
            return replace(request, comments=tuple(_resolved(request.comments, body)))
        case "reviewed":
            others = (each for each in request.verdicts if each.actor_id != event.actor_id)
            verdict = Verdict(
                event.actor_id,
                body["verdict"],
                body["source_commit_id"],
                event.created_at,
                body.get("text"),
            )
            return replace(request, verdicts=(*others, verdict))
        case "check_reported":
            results = {each.name: each for each in request.checks}
            results[body["name"]] = _check(event)
            return replace(request, checks=tuple(results[name] for name in sorted(results)))
        case "closed":
            outline = replace(request.outline, is_closed=True)
            return replace(request, outline=outline, closed_by=event.actor_id)
        case "reopened":
            outline = replace(request.outline, is_closed=False)
            return replace(request, outline=outline, closed_by=None)
        case "opened" | "bypassed":
            return request


def _comment(request: Request, event: ReviewEvent) -> ReviewComment:
    body = event.body
    thread = body.get("reply_to")
    resolved = any(each.resolved for each in request.comments if each.id == thread)
    return ReviewComment(
        event.event_id,
        event.actor_id,
        event.created_at,
        body["text"],
        resolved,
        thread,
        body.get("type_name"),
        body.get("entity_id"),
        body.get("property_name"),
        body.get("graph_commit_id"),
    )


def _resolved(comments: Iterable[ReviewComment], body: Any) -> Iterator[ReviewComment]:
    thread, resolved = body["comment_id"], body["resolved"]
    for each in comments:
        yield replace(each, resolved=resolved) if thread in (each.id, each.reply_to) else each


def _check(event: ReviewEvent) -> CheckResult:
    body = event.body
    return CheckResult(
        body["name"],
        body["state"],
        body["source_commit_id"],
        event.created_at,
        event.actor_id,
        body.get("text"),
        tuple(body.get("rows", ())),
    )
