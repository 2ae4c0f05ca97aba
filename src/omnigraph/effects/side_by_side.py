"""Independent requests, waited for together.

A request to a remote store is mostly waiting, so requests that do not need each other's answers are
sent at once. On local disk a request is done before a thread has picked it up; there they run one
after the other, in the thread that asks.

    with side_by_side(threads=not root.is_local) as side:
        names = side.start(list_names)
        state = side.here(read_state)
    use(names(), state)
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from omnigraph.effects.io_counters import Group, together

if TYPE_CHECKING:
    from concurrent.futures import Future, ThreadPoolExecutor

T = TypeVar("T")

_WORKERS_MAX = 32
_worker = threading.local()


class SideBySide:
    """Work that runs at once; made by `side_by_side`."""

    def __init__(self, group: Group | None, work_max: int = _WORKERS_MAX) -> None:
        self._group = group
        self._places = threading.BoundedSemaphore(work_max)
        self._running: list[Future[Any]] = []

    def start(self, work: Callable[[], T]) -> Callable[[], T]:
        """Begin ``work``; calling the answer waits for its result, or raises its failure."""
        if self._group is None:
            return _done(work)
        future = _pool().submit(_as_worker, self._group.branch(work), self._places)
        self._running.append(future)
        return future.result

    def here(self, work: Callable[[], T]) -> T:
        """Do ``work`` in this thread while the rest is under way."""
        return work() if self._group is None else self._group.branch(work)()

    def wait(self) -> None:
        """Wait until nothing is under way; failures stay with their answers."""
        for future in self._running:
            future.exception()


@contextmanager
def side_by_side(*, threads: bool, work_max: int = _WORKERS_MAX) -> Iterator[SideBySide]:
    """A block of work that runs at once; all of it has ended when the block ends.

    No more than ``work_max`` of it is under way at any time.

    Work inside of other such work runs one after the other: a thread of the pool that waited for
    the pool could wait for ever.
    """
    if not threads or getattr(_worker, "is_one", False):
        yield SideBySide(None)
        return
    with together() as group:
        side = SideBySide(group, work_max)
        try:
            yield side
        finally:
            side.wait()


def _done(work: Callable[[], T]) -> Callable[[], T]:
    try:
        result = work()
    except Exception as failure:
        failed = failure

        def fail() -> T:
            raise failed

        return fail
    return lambda: result


def _as_worker(work: Callable[[], T], places: threading.BoundedSemaphore) -> T:
    _worker.is_one = True
    with places:
        return work()


@cache
def _pool() -> ThreadPoolExecutor:
    from concurrent.futures import ThreadPoolExecutor

    return ThreadPoolExecutor(_WORKERS_MAX, thread_name_prefix="omnigraph-requests")


# A forked child has none of the threads its parent's pool still counts on.
os.register_at_fork(after_in_child=_pool.cache_clear)
