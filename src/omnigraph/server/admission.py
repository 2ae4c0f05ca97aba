"""Limits: writes in flight and queries of each actor, and streams of each graph and the process."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager

from omnigraph.effects.environment import positive_number
from omnigraph.errors import InputError, LimitExceeded, TooManyRequests
from omnigraph.model.governor import (
    Governor,
    MemoryPool,
    Turns,
    bytes_from_environment,
    query_bytes,
)
from omnigraph.model.records import dataclass
from omnigraph.wire.requests import TIMEOUT

log = logging.getLogger(__name__)

INFLIGHT_VARIABLE = "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX"
BYTES_VARIABLE = "OMNIGRAPH_PER_ACTOR_BYTES_MAX"
INFLIGHT_MAX = 16
BYTES_MAX = 4 * 1024**3
ANONYMOUS = "anonymous"
RETRY_AFTER_SECONDS = 60
BRANCH_OPERATION_BYTES = 256
"""The size that an operation on branches is counted with."""


@dataclass(slots=True)
class _InFlight:
    requests: int = 0
    bytes: int = 0


class Admission:
    """Counts the writes of every actor. Safe to share between threads."""

    def __init__(self, inflight_max: int = INFLIGHT_MAX, bytes_max: int = BYTES_MAX) -> None:
        self.inflight_max = inflight_max
        self.bytes_max = bytes_max
        self._guard = threading.Lock()
        self._actors: dict[str, _InFlight] = {}

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Admission:
        """The limits from the environment; an invalid value is logged and ignored."""
        return cls(
            positive_number(INFLIGHT_VARIABLE, INFLIGHT_MAX, environment),
            positive_number(BYTES_VARIABLE, BYTES_MAX, environment),
        )

    @property
    def inflight(self) -> int:
        """The writes in flight, of all actors."""
        with self._guard:
            return sum(each.requests for each in self._actors.values())

    @contextmanager
    def admit(self, actor: str | None, size: int) -> Iterator[None]:
        """Count a write of ``size`` bytes while the block runs, or raise `TooManyRequests`."""
        name = actor or ANONYMOUS
        self._enter(name, size)
        try:
            yield
        finally:
            self._leave(name, size)

    def _enter(self, name: str, size: int) -> None:
        # Both limits are checked before either is charged: a refusal leaves the counts as they
        # were.
        with self._guard:
            mine = self._actors.get(name) or _InFlight()
            self.require_room(mine.requests, mine.bytes, size)
            mine.requests += 1
            mine.bytes += size
            self._actors[name] = mine

    def require_room(self, requests: int, nbytes: int, size: int) -> None:
        """Raise `TooManyRequests` if the actor's writes in flight leave no room for another."""
        if requests >= self.inflight_max:
            raise refusal(f"{requests} writes of yours are under way")
        if nbytes + size > self.bytes_max:
            raise refusal(f"writes of yours with {nbytes} bytes are under way")

    def _leave(self, name: str, size: int) -> None:
        with self._guard:
            mine = self._actors[name]
            mine.requests -= 1
            mine.bytes -= size
            if not mine.requests:
                del self._actors[name]


def refusal(reason: str) -> TooManyRequests:
    """The error for a write that is refused for now."""
    return TooManyRequests(
        f"{reason}, and no more are taken at a time", hint="wait until some of them are done"
    )


# --- queries --------------------------------------------------------------------------------------

QUERIES_BYTES_VARIABLE = "OMNIGRAPH_SERVER_QUERY_BYTES"
LONG_READS_RUNNING_MAX = max(1, (os.cpu_count() or 1) // 2)
"""Long reads of all actors that run at a time; others wait."""
SMALL_BYTES = 1024 * 1024
"""The memory of a point query."""
SMALL_RESERVE_BYTES = 64 * SMALL_BYTES
"""Reserved for small queries while large ones use the rest of the memory."""


class _AllQueries(MemoryPool):
    """The memory of all queries of the process."""

    def take(self, nbytes: int) -> bool:
        """Take memory; a small amount may come from the reserve."""
        with self._lock:
            reserve = SMALL_RESERVE_BYTES if nbytes <= SMALL_BYTES else 0
            if self.used + nbytes > self.bytes_max + reserve:
                return False
            self.used += nbytes
            return True


class _QueriesOfActor(MemoryPool):
    """One actor's share of that memory: half, so that a single actor cannot block the others."""

    def __init__(self, all_queries: MemoryPool) -> None:
        super().__init__(all_queries.bytes_max // 2)
        self._all = all_queries

    def take(self, nbytes: int) -> bool:
        """Take memory from the actor's share and from the total."""
        if not super().take(nbytes):
            return False
        if self._all.take(nbytes):
            return True
        super().give_back(nbytes)
        return False

    def give_back(self, nbytes: int) -> None:
        """Return it to the share and the total."""
        super().give_back(nbytes)
        self._all.give_back(nbytes)


class QueryLimits:
    """Creates the governor of each request. Used on the event loop only."""

    def __init__(
        self, seconds: float, seconds_of: Mapping[str, float], bytes_max: int | None = None
    ) -> None:
        self._seconds = seconds
        self._seconds_of = seconds_of
        self.memory = _AllQueries(bytes_max or bytes_from_environment(QUERIES_BYTES_VARIABLE))
        self._query_bytes = min(query_bytes(), self.memory.bytes_max // 2)
        self._turns = Turns(LONG_READS_RUNNING_MAX)
        self._actors: dict[str, MemoryPool] = {}

    def governor(self, actor: str | None, asked: str | None) -> Governor:
        """The limits of a request; ``asked`` is the timeout in seconds that the client sent.

        Raises `InputError` if it is no positive number. A client can shorten its time, not extend
        it.
        """
        name = actor or ANONYMOUS
        seconds = self._seconds_of.get(name, self._seconds) or None
        if asked is not None:
            wanted = _asked_seconds(asked)
            seconds = wanted if seconds is None else min(wanted, seconds)
        pool = self._actors.get(name)
        if pool is None:
            pool = self._actors[name] = _QueriesOfActor(self.memory)
        return Governor(
            timeout_s=seconds, memory_bytes=self._query_bytes, pool=pool, turns=self._turns
        )

    def of_check(self, seconds: float) -> Governor:
        """The limits of a review check that the server runs; safe to call from any thread."""
        return Governor(
            timeout_s=seconds, memory_bytes=self._query_bytes, pool=self.memory, turns=self._turns
        )


def _asked_seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InputError(f"header `{TIMEOUT}` takes a number of seconds above zero")
    return seconds


# --- streams --------------------------------------------------------------------------------------

RESPONSE_BYTES = 256 * 1024
PROCESS_BYTES = 2 * 1024 * 1024
WAIT_SECONDS = 0.25


class StreamBudget:
    """Limits concurrent streams. Used on the event loop only."""

    def __init__(self, process_bytes: int = PROCESS_BYTES) -> None:
        self._process_bytes = process_bytes
        self._taken = 0
        self._roots: set[str] = set()
        self._changed = asyncio.Condition()

    @property
    def slots_taken(self) -> int:
        """The number of graphs being streamed."""
        return len(self._roots)

    @asynccontextmanager
    async def stream(self, root: str) -> AsyncIterator[None]:
        """Stream a graph while the block runs, or raise `LimitExceeded`."""
        if root in self._roots:
            raise LimitExceeded(
                "stream_export_slots",
                1,
                2,
                hint="another stream of this graph is under way; try again when it is done",
            )
        self._roots.add(root)
        try:
            await self._reserve()
            try:
                yield
            finally:
                self._taken -= RESPONSE_BYTES
                async with self._changed:
                    self._changed.notify()
        finally:
            self._roots.discard(root)

    async def _reserve(self) -> None:
        wanted = RESPONSE_BYTES

        def fits() -> bool:
            return self._taken + wanted <= self._process_bytes

        try:
            async with asyncio.timeout(WAIT_SECONDS), self._changed:
                await self._changed.wait_for(fits)
                self._taken += wanted
        except TimeoutError:
            raise LimitExceeded(
                "stream_export_transport_bytes",
                self._process_bytes,
                self._taken + wanted,
                hint="too many streams are under way; try again when some are done",
            ) from None
