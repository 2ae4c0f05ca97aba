"""Counting requests to stores, and sending independent ones concurrently.

Stores call `count`, the Lance kernel `storage.failures.count_lance`; both do nothing outside of
`measure`::

    with measure() as io:
        graph.query(…)
    print(io.report().render())

Request counts are a contract (`tests/cost/`), so they are exact and repeatable: a measurement
covers the work inside its block, not the process. Sequential requests are one round trip each;
those of `concurrently` are as many as the longest of the calls.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeVar, overload

from omnigraph.model.records import dataclass

if TYPE_CHECKING:
    from concurrent.futures import ThreadPoolExecutor

A = TypeVar("A")
B = TypeVar("B")
T = TypeVar("T")

Kind = Literal["object", "lance", "disk"]
"""Text objects, Lance calls, and flushes of local files, which are not requests to a store."""


class IoEvent(NamedTuple):
    """One counted call; kept only by a tracing measurement."""

    kind: Kind
    verb: str
    target: str


@dataclass(frozen=True, slots=True)
class IoReport:
    """The requests of a block of work to storage."""

    counts: dict[tuple[Kind, str], int]
    round_trips: int
    """The number of sequential requests."""
    events: tuple[IoEvent, ...] = ()
    """Every call in order, if the measurement was tracing."""

    @property
    def requests(self) -> int:
        """The number of requests to stores; flushes are not counted."""
        return sum(n for (kind, _), n in self.counts.items() if kind != "disk")

    def count(self, kind: Kind, verb: str | None = None) -> int:
        """The number of calls of a kind, or of one verb of it."""
        return sum(n for (k, v), n in self.counts.items() if k == kind and verb in (None, v))

    def to_dict(self) -> dict[str, Any]:
        """The machine-readable form."""
        calls: dict[str, dict[str, int]] = {}
        for (kind, verb), n in sorted(self.counts.items()):
            calls.setdefault(kind, {})[verb] = n
        return {"requests": self.requests, "round_trips": self.round_trips, "calls": calls}

    def render(self) -> str:
        """The report as a text table."""
        rows = [(f"{kind} {verb}", n) for (kind, verb), n in sorted(self.counts.items())]
        rows += [("requests", self.requests), ("serial round trips", self.round_trips)]
        width = max(len(name) for name, _ in rows)
        digits = max(len(str(n)) for _, n in rows)
        return "\n".join(f"{name:<{width}}  {n:>{digits}}" for name, n in rows)


class Meter:
    """One running measurement. Safe to use from many threads."""

    def __init__(
        self, parent: Meter | None, *, tracing: bool = False, is_concurrent: bool = False
    ) -> None:
        self._parent = parent
        self._is_concurrent = is_concurrent
        """Whether it measures a concurrent call, whose round trips are added at the end."""
        self._lock = threading.Lock()
        self._counts: Counter[tuple[Kind, str]] = Counter()
        self._round_trips = 0
        self._events: list[IoEvent] | None = [] if tracing else None

    def report(self) -> IoReport:
        """The counts so far."""
        with self._lock:
            events = tuple(self._events or ())
            return IoReport(dict(self._counts), self._round_trips, events)

    def add(self, event: IoEvent, n: int, round_trips: int) -> None:
        """Count an event in this measurement and in every outer one."""
        with self._lock:
            self._counts[event.kind, event.verb] += n
            self._round_trips += round_trips
            if self._events is not None:
                self._events.append(event)
        if self._parent is not None:
            self._parent.add(event, n, 0 if self._is_concurrent else round_trips)

    def add_round_trips(self, round_trips: int) -> None:
        """Add the round trips of concurrent calls, whose requests are counted already."""
        with self._lock:
            self._round_trips += round_trips
        if self._parent is not None and not self._is_concurrent:
            self._parent.add_round_trips(round_trips)

    @property
    def round_trips(self) -> int:
        """Serial round trips so far."""
        return self._round_trips


current_meter: ContextVar[Meter | None] = ContextVar("omnigraph_io_meter", default=None)
"""The measurement that the current thread or task runs in."""


def count(kind: Kind, verb: str, target: str = "", n: int = 1, *, round_trips: int = 1) -> None:
    """Count ``n`` requests about ``target`` that took ``round_trips`` sequential steps."""
    meter = current_meter.get()
    if meter is not None:
        meter.add(IoEvent(kind, verb, target), n, round_trips)


@contextmanager
def measure(*, tracing: bool = False) -> Iterator[Meter]:
    """Count the requests of the block; ``tracing`` also records each call with its target.

    Measurements nest: an outer one includes the counts of inner ones.
    """
    meter = Meter(current_meter.get(), tracing=tracing)
    token = current_meter.set(meter)
    try:
        yield meter
    finally:
        current_meter.reset(token)


# --- concurrency ----------------------------------------------------------------------------------

_WORKERS_MAX = 32
_DEPTH_MAX = 3
_worker = threading.local()


@overload
def concurrently(
    first: Callable[[], A],
    second: Callable[[], B],
    /,
    *,
    threads: bool,
    work_max: int | None = None,
) -> tuple[A, B]: ...


@overload
def concurrently(
    first: Callable[[], A],
    second: Callable[[], B],
    third: Callable[[], T],
    /,
    *,
    threads: bool,
    work_max: int | None = None,
) -> tuple[A, B, T]: ...


@overload
def concurrently(
    first: Callable[[], A],
    second: Callable[[], B],
    /,
    *others: Callable[[], T],
    threads: bool,
    work_max: int | None = None,
) -> tuple[A, B, *tuple[T, ...]]: ...


@overload
def concurrently(
    *work: Callable[[], T], threads: bool, work_max: int | None = None
) -> tuple[T, ...]: ...


def concurrently(
    *work: Callable[[], Any], threads: bool, work_max: int | None = None
) -> tuple[Any, ...]:
    """The results of independent calls, in order; all have ended when it returns or raises.

    With ``threads``, for remote stores, the calls run in parallel, the first in this thread.
    Without, they run one after the other, up to the first failure: on local disk a request takes
    less time than handing it to a thread.

    ``work_max`` limits how many run at once. Nested concurrent calls use the threads of another
    pool, since a thread that waited for its own pool could deadlock; calls nested deeper than there
    are pools run one after the other.

    >>> concurrently(lambda: 1, lambda: "a", threads=True)
    (1, 'a')
    """
    depth: int = getattr(_worker, "depth", 0)
    if not threads or len(work) < 2 or depth >= _DEPTH_MAX:
        return tuple([each() for each in work])
    meter = current_meter.get()
    branches = [Meter(meter, is_concurrent=True) for _ in work]
    calls = [partial(_metered, each, branch) for each, branch in zip(work, branches, strict=True)]
    try:
        if work_max is None:
            return tuple(_in_shared_pool(calls, depth))
        return tuple(_in_own_pool(calls, work_max))
    finally:
        if meter is not None:
            meter.add_round_trips(max(branch.round_trips for branch in branches))


def outcome(work: Callable[[], T]) -> T | Exception:
    """The result or the exception of a call, for callers that examine failures in order."""
    try:
        return work()
    except Exception as failure:
        return failure


def _in_shared_pool(calls: Sequence[Callable[[], Any]], depth: int) -> list[Any]:
    pool = _pool(depth)
    running = [pool.submit(_as_worker, depth + 1, call) for call in calls[1:]]
    try:
        first = calls[0]()
    finally:
        for future in running:
            future.exception()  # waits
    return [first, *(future.result() for future in running)]


def _in_own_pool(calls: Sequence[Callable[[], Any]], workers: int) -> list[Any]:
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(workers) as pool:
        running = [pool.submit(_as_worker, _DEPTH_MAX, call) for call in calls]
    return [future.result() for future in running]


def _as_worker(depth: int, call: Callable[[], T]) -> T:
    _worker.depth = depth
    return call()


def _metered(work: Callable[[], T], branch: Meter) -> T:
    token = current_meter.set(branch)
    try:
        return work()
    finally:
        current_meter.reset(token)


@cache
def _pool(depth: int) -> ThreadPoolExecutor:
    """The threads for calls by callers at this depth of nesting."""
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(_WORKERS_MAX, thread_name_prefix="omnigraph-requests")


# A forked child does not have the threads of its parent's pools.
os.register_at_fork(after_in_child=_pool.cache_clear)
