"""Limits of a running query: a deadline, a memory budget and cancellation from another thread.

A caller makes one `Governor` for each query and passes it to `Graph.query`. The engine checks it
between blocks of work, so a query stops within one block of the time at which a limit is reached::

    governor = Governor(timeout_s=30, memory_bytes=1 << 30)
    graph.query(text, governor=governor)  # raises QueryTimeout, QueryMemoryExceeded, …
    governor.cancel()  # from any thread: the query raises QueryCancelled

To keep the limits while rows become Python values, JSON or Arrow, enter the governor; `Graph.query`
inside of the block is then part of the same run::

    with closing(governor), governor:
        body = graph.query(text, governor=governor).to_json_bytes()

Memory is what the query itself holds: bindings, columns, sort keys and results. Tables and
adjacency that stay in memory between queries belong to the cache and have a budget of their own. A
`MemoryPool` bounds all governors that share it: each takes the most it needed so far, and returns
it in `close`, which may come after the last block of a streamed answer.

Code that works for a query finds its governor with `current`. Work outside of any query, such as
reading tables ahead, runs under `UNLIMITED`.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar, Token
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import TypeAlias

from omnigraph.errors import QueryCancelled, QueryMemoryExceeded, QueryTimeout, TooManyRequests

_POOL_STEP = 1 << 20
"""Governors take memory from a pool in multiples of this, so that small queries never wait."""

_LOCK_WAIT_S = 0.05
"""How often a query that waits for a lock checks its limits."""


_Entered: TypeAlias = "tuple[Token[Governor], _Entered | None]"
"""The blocks of a governor that have been entered, the last one first."""


class MemoryPool:
    """Memory that several queries share. Safe to use from many threads."""

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0
        self._lock = threading.Lock()

    def take(self, nbytes: int) -> bool:
        """Take some of the memory; False if not enough is left."""
        with self._lock:
            if self.used + nbytes > self.bytes_max:
                return False
            self.used += nbytes
            return True

    def give_back(self, nbytes: int) -> None:
        """Return memory that was taken."""
        with self._lock:
            self.used -= nbytes


LONG_S = 0.05
"""A longer query takes turns with other long ones, if its governor has `Turns`."""
TURN_S = 0.05
"""The length of a turn; it ends at the next check after that."""


class Turns:
    """Lets few long queries run at a time, in turns of limited length, first come first served.

    Python runs one thread at a time, so each long query that runs delays all short ones, and
    several at once finish no sooner.
    """

    def __init__(self, running_max: int) -> None:
        self._free = running_max
        self._guard = threading.Lock()
        self._waiting: deque[threading.Lock] = deque()
        """A locked lock for each waiting query; releasing it gives the query its turn."""

    def take(self, check: Callable[[], None]) -> None:
        """Wait for a turn; an exception raised by ``check`` ends the wait."""
        with self._guard:
            if self._free:
                self._free -= 1
                return
            granted = threading.Lock()
            granted.acquire()
            self._waiting.append(granted)
        try:
            while not granted.acquire(timeout=_LOCK_WAIT_S):
                check()
        except BaseException:
            with self._guard:
                is_waiting = granted in self._waiting
                if is_waiting:
                    self._waiting.remove(granted)
            if not is_waiting:
                self.give_back()
            raise

    def give_back(self) -> None:
        """End a turn: the query that has waited longest gets the next one."""
        with self._guard:
            if self._waiting:
                self._waiting.popleft().release()
            else:
                self._free += 1


class Governor:
    """The limits of one query. One thread runs the query; any thread may call `cancel`.

    ``timeout_s`` counts from the creation of the governor, ``memory_bytes`` is the most the query
    may hold; None means no limit. ``pool`` is memory shared with other queries. With ``turns``, a
    long query takes turns with others, and waits for its turn in `check`.
    """

    timeout_s: float | None = None
    deadline: float | None = None
    """In seconds of the clock, by default the monotonic one."""
    memory_bytes: int | None = None
    held = 0
    """Bytes that the query holds now, as far as they are counted."""
    _allowed = 0
    """The most bytes that `reserve` has admitted; these are taken from the pool."""
    _cancelled: str | None = None
    _pool: MemoryPool | None = None
    _turns: Turns | None = None
    _has_turn = False
    _locks = 0
    """Locks held through `locked`: while there are any, the query keeps its turn."""
    _next_check: float | None = None
    """When `check` has to check the deadline or take a turn next."""
    _entered: _Entered | None = None

    def __init__(
        self,
        *,
        timeout_s: float | None = None,
        memory_bytes: int | None = None,
        pool: MemoryPool | None = None,
        turns: Turns | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Counts the timeout from now, so waiting for a turn is included."""
        # Every point query makes one, so defaults stay class attributes.
        self.memory_bytes = memory_bytes
        if pool is not None:
            self._pool = pool
        if timeout_s is None and turns is None:
            return
        self._clock = clock
        now = clock()
        if timeout_s is not None:
            self.timeout_s = timeout_s
            self.deadline = self._next_check = now + timeout_s
        if turns is not None:
            self._turns = turns
            if timeout_s is None or timeout_s > LONG_S:
                self._next_check = now + LONG_S

    def cancel(self, reason: str = "the caller cancelled it") -> None:
        """Stop the query at its next check; ``reason`` becomes part of the error."""
        self._cancelled = reason

    def check(self) -> None:
        """Raise `QueryCancelled` or `QueryTimeout` if the query has to stop."""
        if self._cancelled is not None:
            raise QueryCancelled(self._cancelled)
        if self._next_check is not None and self._clock() > self._next_check:
            self._check_due()

    def _check_due(self) -> None:
        """Raise `QueryTimeout` after the deadline; otherwise take the next turn."""
        self._require_before_deadline()
        if self._turns is None:
            return
        if not self._locks:
            self._end_turn()
            self._turns.take(self._require_not_stopped)
            self._has_turn = True
        self._schedule_check(self._clock() + TURN_S)

    def _require_before_deadline(self) -> None:
        if self.deadline is not None and self._clock() > self.deadline:
            assert self.timeout_s is not None
            raise QueryTimeout(self.timeout_s)

    def _require_not_stopped(self) -> None:
        if self._cancelled is not None:
            raise QueryCancelled(self._cancelled)
        self._require_before_deadline()

    def _schedule_check(self, at: float) -> None:
        self._next_check = at if self.deadline is None else min(at, self.deadline)

    def _end_turn(self) -> None:
        if self._has_turn:
            assert self._turns is not None
            self._has_turn = False
            self._turns.give_back()

    def reserve(self, nbytes: int) -> None:
        """`check`, and raise `QueryMemoryExceeded` if this many more bytes do not fit.

        Call it before allocating. It counts nothing: memory that stays is counted by `hold`.
        """
        self.check()
        wanted = self.held + nbytes
        if wanted > self._allowed:
            self._allow(wanted)

    def hold(self, nbytes: int) -> None:
        """Count bytes that stay until `release`; raises like `reserve`."""
        self.reserve(nbytes)
        self.held += nbytes

    def release(self, nbytes: int) -> None:
        """Stop counting bytes that were held."""
        self.held = max(0, self.held - nbytes)  # some are dropped only after the run has ended

    def hold_instead(self, before: int, nbytes: int) -> int:
        """Count ``nbytes`` in place of ``before``; returns ``nbytes``, for the next call."""
        self.held -= before
        self.hold(nbytes)
        return nbytes

    def left(self) -> int | None:
        """How many more bytes fit; None without a budget."""
        return None if self.memory_bytes is None else self.memory_bytes - self.held

    @contextmanager
    def locked(self, lock: threading.Lock | threading.RLock) -> Iterator[None]:
        """Hold a lock; waits for it within the limits, since its holder may be reading a table."""
        if not lock.acquire(blocking=False):
            self.check()
            while not lock.acquire(timeout=_LOCK_WAIT_S):
                self.check()
        if self._turns is not None:
            self._locks += 1
        try:
            yield
        finally:
            if self._turns is not None:
                self._locks -= 1
            lock.release()

    def __enter__(self) -> Governor:
        self._entered = _CURRENT.set(self), self._entered
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._entered is not None
        token, self._entered = self._entered
        _CURRENT.reset(token)
        if self._entered is None:
            if self._has_turn:
                self._end_turn()
            self.held = 0  # the rest is the result, which now belongs to the caller

    def close(self) -> None:
        """Return the memory taken from the pool."""
        allowed, self._allowed = self._allowed, 0
        if self._pool is not None and allowed:
            self._pool.give_back(allowed)

    def _allow(self, wanted: int) -> None:
        if self.memory_bytes is not None and wanted > self.memory_bytes:
            raise QueryMemoryExceeded(self.memory_bytes, wanted)
        wanted = -(-wanted // _POOL_STEP) * _POOL_STEP
        if self.memory_bytes is not None:
            wanted = min(wanted, self.memory_bytes)
        if self._pool is not None and not self._pool.take(wanted - self._allowed):
            raise TooManyRequests(
                "other queries use the memory that this one needs",
                hint="wait until some of them are done, and run it again",
            )
        self._allowed = wanted


# --- settings -------------------------------------------------------------------------------------


CACHE_BYTES_VARIABLE = "OMNIGRAPH_CACHE_BYTES"
QUERY_BYTES_VARIABLE = "OMNIGRAPH_QUERY_BYTES"
MEMORY_SHARE = 4
"""Caches and queries may each use this fraction of the memory by default."""

CONTAINER_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
"""Memory limits of a container, for cgroup versions 2 and 1."""


@cache
def query_bytes() -> int:
    """The memory budget of a query whose caller sets none; the environment is read once."""
    return bytes_from_environment(QUERY_BYTES_VARIABLE)


def bytes_from_environment(variable: str) -> int:
    """The number of bytes that a variable sets, or by default a share of the memory."""
    text = os.environ.get(variable, "").strip()
    if text.isdigit() and int(text) > 0:
        return int(text)
    machine = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([machine, *container_limits()]) // MEMORY_SHARE


def container_limits() -> Iterator[int]:
    """The memory limits of the container, if there are any."""
    for path in CONTAINER_LIMITS:
        with suppress(OSError, ValueError):  # no such file, or the word `max`
            yield int(path.read_text())


# --- the running query ----------------------------------------------------------------------------


UNLIMITED = Governor()
"""For work that belongs to no query. It is shared by all threads and never cancelled."""

_CURRENT: ContextVar[Governor] = ContextVar("governor", default=UNLIMITED)

current: Callable[[], Governor] = _CURRENT.get
"""The governor of the query that this thread works for."""
