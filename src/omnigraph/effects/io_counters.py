"""Counting what a block of work asks of storage: requests by kind and verb, and serial round trips.

Stores and the Lance kernel call `count`; it does nothing unless the caller runs inside `measure`::

    with measure() as io:
        graph.query(…)
    print(io.report().render())

Costs are a contract (`tests/cost/`), so the numbers have to be exact and repeatable. A measurement
therefore belongs to the work that runs inside it, not to the process: other threads do not disturb
it. Work handed to threads is counted through `together`, which also says what runs side by side:
requests made one after the other are one round trip each, branches of one group cost as many as
the longest of them.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Kind = Literal["object", "lance", "disk"]
"""Text objects, Lance calls, and flushes of local files, which are no requests to a store."""


class IoEvent(NamedTuple):
    """One counted call; kept only by a tracing measurement."""

    kind: Kind
    verb: str
    target: str


@dataclass(frozen=True, slots=True)
class IoReport:
    """What a block of work asked of storage."""

    counts: dict[tuple[Kind, str], int]
    round_trips: int
    """Requests that had to wait for each other."""
    events: tuple[IoEvent, ...] = ()
    """Every call in order, if the measurement was tracing."""

    @property
    def requests(self) -> int:
        """Requests to stores of any kind; flushes are not among them."""
        return sum(n for (kind, _), n in self.counts.items() if kind != "disk")

    def count(self, kind: Kind, verb: str | None = None) -> int:
        """How many calls of a kind, or of one verb of it, were made."""
        return sum(n for (k, v), n in self.counts.items() if k == kind and verb in (None, v))

    def to_dict(self) -> dict[str, Any]:
        """The machine-readable form."""
        calls: dict[str, dict[str, int]] = {}
        for (kind, verb), n in sorted(self.counts.items()):
            calls.setdefault(kind, {})[verb] = n
        return {"requests": self.requests, "round_trips": self.round_trips, "calls": calls}

    def render(self) -> str:
        """A small table for people."""
        rows = [(f"{kind} {verb}", n) for (kind, verb), n in sorted(self.counts.items())]
        rows += [("requests", self.requests), ("serial round trips", self.round_trips)]
        width = max(len(name) for name, _ in rows)
        digits = max(len(str(n)) for _, n in rows)
        return "\n".join(f"{name:<{width}}  {n:>{digits}}" for name, n in rows)


class Meter:
    """One running measurement. Safe to use from many threads."""

    def __init__(self, parent: Meter | None, *, tracing: bool = False) -> None:
        self._parent = parent
        self._lock = threading.Lock()
        self._counts: Counter[tuple[Kind, str]] = Counter()
        self._round_trips = 0
        self._events: list[IoEvent] | None = [] if tracing else None

    def report(self) -> IoReport:
        """What was counted so far."""
        with self._lock:
            events = tuple(self._events or ())
            return IoReport(dict(self._counts), self._round_trips, events)

    def add(self, event: IoEvent, n: int, round_trips: int) -> None:
        """Count here and in every measurement around this one."""
        with self._lock:
            self._counts[event.kind, event.verb] += n
            self._round_trips += round_trips
            if self._events is not None:
                self._events.append(event)
        if self._parent is not None:
            self._parent.add(event, n, self._round_trips_for_parent(round_trips))

    def add_round_trips(self, round_trips: int) -> None:
        """Count the waiting of a group, whose requests are counted already."""
        with self._lock:
            self._round_trips += round_trips
        if self._parent is not None:
            self._parent.add_round_trips(self._round_trips_for_parent(round_trips))

    @property
    def round_trips(self) -> int:
        """Serial round trips so far."""
        return self._round_trips

    def _round_trips_for_parent(self, round_trips: int) -> int:
        return round_trips


class _Branch(Meter):
    """One branch of a group: its requests count at once, its waiting only when the group ends."""

    def _round_trips_for_parent(self, round_trips: int) -> int:
        return 0


_current: ContextVar[Meter | None] = ContextVar("omnigraph_io_meter", default=None)


def count(kind: Kind, verb: str, target: str = "", n: int = 1, *, round_trips: int = 1) -> None:
    """Report a call to storage: ``n`` requests that took ``round_trips`` waits, about ``target``.

    The kernel names its Lance calls here: ``count("lance", "commit", location)``.
    """
    meter = _current.get()
    if meter is not None:
        meter.add(IoEvent(kind, verb, target), n, round_trips)


@contextmanager
def measure(*, tracing: bool = False) -> Iterator[Meter]:
    """Count what the block asks of storage; ``tracing`` also keeps each call with its target.

    Measurements nest: the outer one counts what the inner one counts.
    """
    meter = Meter(_current.get(), tracing=tracing)
    token = _current.set(meter)
    try:
        yield meter
    finally:
        _current.reset(token)


class Group:
    """Work that runs side by side."""

    def __init__(self, meter: Meter | None) -> None:
        self._meter = meter
        self._lock = threading.Lock()
        self._longest = 0

    def branch(self, work: Callable[P, T]) -> Callable[P, T]:
        """``work`` for a thread of a pool, still counted by the measurement of this thread."""
        meter = self._meter
        if meter is None:
            return work

        def run(*args: P.args, **kwargs: P.kwargs) -> T:
            branch = _Branch(meter)
            token = _current.set(branch)
            try:
                return work(*args, **kwargs)
            finally:
                _current.reset(token)
                with self._lock:
                    self._longest = max(self._longest, branch.round_trips)

        return run

    def finish(self) -> None:
        """Charge the waiting of the longest branch."""
        if self._meter is not None:
            self._meter.add_round_trips(self._longest)


@contextmanager
def together() -> Iterator[Group]:
    """A group of branches that run side by side; all must have finished when the block ends.

    ``with together() as group: list(pool.map(group.branch(fetch), names))``
    """
    group = Group(_current.get())
    try:
        yield group
    finally:
        group.finish()
