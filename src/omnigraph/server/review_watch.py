"""Background work on change requests: runs their checks and posts webhooks.

It polls the stored events and branch heads, so changes by other processes are seen, too. Every verb
of reviews wakes it; otherwise it polls every few seconds. A poll lists the events and reads the
state of each branch with an open request. Without checks and webhooks there is no polling.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import field
from functools import partial
from pathlib import Path

import orjson

from omnigraph.effects.clock import ulid_at
from omnigraph.errors import Conflict, NotFound, OmnigraphError, QueryCancelled
from omnigraph.graph.reviews import Reviews, run_check
from omnigraph.model.governor import Governor
from omnigraph.model.records import dataclass
from omnigraph.model.result import Result
from omnigraph.model.reviews import Review, ReviewEvent
from omnigraph.review.checks import DeclaredCheck
from omnigraph.review.requests import Standing
from omnigraph.server.call import Services
from omnigraph.server.generation import Generation, Served
from omnigraph.server.webhooks import EVENTS, Delivery, Webhooks, delivery

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""The polling interval, for heads and events of other processes."""
FOLLOWED_MAX = 500
"""Open requests of a graph that are followed; the newest ones."""
LATE_MS = 60_000
"""The maximum delay between an event's id and its storing, and the maximum clock difference."""
EVENTS_AT_ONCE = 1_000
SERVER = "reviews of the server"
"""The actor name for scheduling these calls in the engine's threads."""


@dataclass(slots=True)
class _Followed:
    """The polling state of one graph."""

    since: str
    """Events with smaller ids are older than this process, or were posted."""
    open: dict[str, Standing | None] = field(default_factory=dict)
    """Open requests; None for one that was open before this process started."""
    seen: set[str] = field(default_factory=set)
    """Posted events with ids after `since`."""
    checked: dict[str, tuple[str, tuple[DeclaredCheck, ...]]] = field(default_factory=dict)
    """The head of each open request whose checks have run or are queued, and these checks."""


class ReviewWatch:
    """Follows the change requests of all graphs of a server. Used on the event loop only."""

    def __init__(
        self,
        services: Services,
        generation: Callable[[], Generation],
        webhooks: Webhooks,
        *,
        wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        notes: Path | None = None,
    ) -> None:
        """``notes`` is a file for the polling state: a restarted worker resumes there, so it posts
        missed events, and none twice.
        """
        self._services = services
        self._generation = generation
        self._webhooks = webhooks
        self._wall_ms = wall_ms
        self._began = ulid_at(wall_ms())
        self._notes = notes
        self._noted = b""
        self._followed: dict[str, _Followed] = self._read_notes()
        self._due: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        """Graphs and requests whose checks are queued."""
        self._waiting: set[tuple[str, str]] = set()
        """The content of `_due`, to queue each at most once."""
        self._running: set[Governor] = set()
        self._is_stopped = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Poll once, so that no later event is missed, then continue until `stop`."""
        self._webhooks.start()
        with suppress(TimeoutError):  # unresponsive storage must not block the start
            async with asyncio.timeout(LOOK_SECONDS):
                await self._poll()
        self._tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._check_due())]

    async def stop(self) -> None:
        """Stop; a running check is cancelled without a result."""
        self._is_stopped = True
        for task in self._tasks:
            task.cancel()
        for governor in tuple(self._running):
            governor.cancel("the server stops")
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._webhooks.stop()

    async def _follow(self) -> None:
        touched = self._services.reviews_touched
        while True:
            # Not `wait_for`: in Python 3.11 it loses a cancellation that meets the event.
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await touched.wait()
            touched.clear()
            await self._poll()

    async def _poll(self) -> None:
        """Poll every graph; failures are retried by the next poll."""
        for graph_id, served in self._generation().graphs.items():
            if not served.checks and not self._webhooks:
                continue
            known = self._followed.setdefault(graph_id, _Followed(self._began))
            try:
                look = partial(_poll, served, known, self._wall_ms(), self._webhooks)
                news = await self._services.pool.read(SERVER, look)
            except Exception as problem:  # a bug must not end the loop
                _log("change requests not followed", graph_id, problem)
                continue
            for each in news:
                self._webhooks.put(each)
            if served.checks:
                self._plan_checks(served, known)
        self._write_notes()

    # --- notes for a restarted worker
    # -----------------------------------------------------------------

    def _read_notes(self) -> dict[str, _Followed]:
        if self._notes is None or not self._webhooks or not self._notes.exists():
            return {}
        noted = orjson.loads(self._notes.read_bytes())
        return {
            graph_id: _Followed(since, dict.fromkeys(open), set(seen))
            for graph_id, (since, open, seen) in noted.items()
        }

    def _write_notes(self) -> None:
        if self._notes is None or not self._webhooks:
            return
        noted = orjson.dumps(
            {
                graph_id: (each.since, list(each.open), sorted(each.seen))
                for graph_id, each in self._followed.items()
            }
        )
        if noted != self._noted:
            self._noted = noted
            beside = self._notes.with_suffix(".new")
            beside.write_bytes(noted)
            beside.replace(self._notes)

    # --- checks -----------------------------------------------------------------------------------

    def _plan_checks(self, served: Served, known: _Followed) -> None:
        for id, standing in known.open.items():
            assert standing is not None and standing.source is not None
            wanted = (standing.source.head.commit_id, served.checks)
            if known.checked.get(id) != wanted:
                known.checked[id] = wanted
                due = (served.graph_id, id)
                if due not in self._waiting:
                    self._waiting.add(due)
                    self._due.put_nowait(due)
        for id in known.checked.keys() - known.open.keys():
            del known.checked[id]

    async def _check_due(self) -> None:
        """Run the queued checks one request at a time, to leave capacity for clients."""
        while True:
            graph_id, id = due = await self._due.get()
            self._waiting.discard(due)
            served = self._generation().graphs.get(graph_id)
            if served is None:
                continue
            try:
                await self._services.pool.write(SERVER, partial(self._check, served, id))
            except (Conflict, NotFound):
                pass  # merged or closed in the meantime
            except Exception as problem:
                self._services.metrics.checked("failed")
                self._followed[graph_id].checked.pop(id, None)  # the next poll queues it again
                _log("checks not run", graph_id, problem, review=id)
                continue
            self._services.metrics.checked("done")
            self._services.reviews_touched.set()  # their results are new events

    def _check(self, served: Served, id: str) -> Review:
        return served.graph.reviews.check_head(id, served.checks, partial(self._run, served))

    def _run(self, served: Served, check: DeclaredCheck, head: str) -> Result:
        governor = self._services.queries.of_check(check.timeout_seconds)
        self._running.add(governor)
        if self._is_stopped:
            governor.cancel("the server stops")
        try:
            return stored_check(served, check, head, governor)
        finally:
            self._running.discard(governor)


def stored_check(served: Served, check: DeclaredCheck, head: str, governor: Governor) -> Result:
    """Run the stored query of a check on a commit, within the governor's limits."""
    if check.file is not None:
        return run_check(served.graph, check, check.file, head, governor)
    stored = None if check.query is None else served.queries.get(check.query)
    if stored is None:
        raise NotFound(f"there is no stored query `{check.query}`")
    return run_check(served.graph, check, stored.source, head, governor)


# --- news -----------------------------------------------------------------------------------------


def _poll(served: Served, known: _Followed, now_ms: int, webhooks: Webhooks) -> list[Delivery]:
    """Poll a graph and update ``known``; returns new deliveries. Runs in a thread."""
    reviews = served.graph.reviews
    events = list(_events_after(reviews, known.since)) if webhooks else []
    fresh = [event for event in events if event.event_id not in known.seen]
    # Requests opened and ended between two polls are not in the list of open ones.
    named: dict[str, Standing | None] = {
        event.request_id: None for event in fresh if event.kind in ("opened", "reopened")
    }
    found = reviews.follow({**named, **known.open}, FOLLOWED_MAX)
    news = [*_event_deliveries(served, fresh)]
    for id, standing in found.items():
        if standing.state != "open" and id in known.open.keys() | named.keys():
            news += _end_deliveries(served, id, standing)
    # Updated last: a failed poll is repeated as a whole.
    known.open = {id: each for id, each in found.items() if each.state == "open"}
    known.since = max(known.since, ulid_at(now_ms - LATE_MS))
    known.seen = {event.event_id for event in events if event.event_id > known.since}
    return news


def _events_after(reviews: Reviews, since: str) -> Iterator[ReviewEvent]:
    token: str | None = since
    while token is not None:
        page = reviews.export_page(page_token=token, limit=EVENTS_AT_ONCE)
        yield from page.events
        token = page.next_page_token


def _event_deliveries(served: Served, events: Iterable[ReviewEvent]) -> Iterator[Delivery]:
    """Events as webhook deliveries. Rows of failed checks are left out."""
    for event in events:
        if event.kind in EVENTS:
            details = {name: value for name, value in event.body.items() if name != "rows"}
            yield _delivery(
                served,
                event.request_id,
                (event.event_id, event.kind),
                created_at=event.created_at,
                actor_id=event.actor_id,
                details=details,
            )


def _end_deliveries(served: Served, id: str, standing: Standing) -> Iterator[Delivery]:
    """Deliveries for merges, and for closing by a deleted branch, which have no stored event."""
    merged = standing.merge_commit
    if merged is not None:
        mark = (merged.receipt or {}).get("change_request", {})
        details = {"graph_commit_id": merged.commit_id, "approvers": mark.get("approvers", [])}
        yield _delivery(
            served,
            id,
            (f"{id}:{merged.commit_id}", "merged"),
            created_at=merged.created_at,
            actor_id=merged.actor_id,
            details=details,
        )
    elif standing.closed_because is not None:
        details = {"because": standing.closed_because}
        yield _delivery(served, id, (f"{id}:gone", "closed"), actor_id=None, details=details)


def _delivery(served: Served, request_id: str, named: tuple[str, str], **facts: object) -> Delivery:
    about = served.graph.reviews.summary(request_id).to_dict()
    return delivery(*named, {"graph_id": served.graph_id, "review": about, **facts})


def _log(what: str, graph_id: str, problem: Exception, **more: object) -> None:
    """Log a warning; internal errors with a traceback, cancellations by shutdown not at all."""
    about = {"fields": {"graph_id": graph_id, "reason": str(problem), **more}}
    if not isinstance(problem, OmnigraphError):
        log.error(what, exc_info=problem, extra=about)
    elif not isinstance(problem, QueryCancelled):
        log.warning(what, extra=about)
