"""Threads for the engine, whose calls block and so must not run on the event loop.

Calls wait in one queue per actor, and threads serve the queues round-robin: an actor with many or
long calls delays only its own.

The standard executor takes twice as long to hand over a call, which for a small query (0.1 ms) is
most of the time. Threads are daemons, so the process can exit without waiting for them; an
unpublished write then has no effect.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, TypeVar

from omnigraph.errors import Busy, TooManyRequests
from omnigraph.model.records import dataclass

Returned = TypeVar("Returned")
Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]
WakeUp = SimpleQueue[bool]
"""The wake-up queue of one worker thread; False stops the worker."""
Done = tuple["asyncio.Future[Any]", Any, BaseException | None]

READS_RUNNING_MAX = max(4, 2 * (os.cpu_count() or 1))
"""Reads of one actor that run at a time."""
READ_THREADS = 8 * READS_RUNNING_MAX
"""Enough that several actors with long reads leave threads for the others."""
WRITE_THREADS = 32
"""Many, because writers mostly wait, for storage or a lease."""
WAITING_MAX = 256
"""Calls of one actor that wait for a thread."""
WAITING_TOTAL_MAX = 1024
ACTORS_KEPT_MAX = 64
"""Idle actors whose empty queues are kept for reuse."""
STUCK_SECONDS = 0.002
"""If no call finishes for this long while others wait, more threads are woken."""
SHORT_SECONDS = STUCK_SECONDS / 2
"""Calls shorter than this need no second thread."""
BATCH_SECONDS = 0.0005
"""How long finished results are collected before delivery, while there are more calls."""


class EnginePool:
    """Two groups of threads, so that writers waiting for a lease never block readers."""

    def __init__(
        self,
        readers: int = READ_THREADS,
        writers: int = WRITE_THREADS,
        reads_running_max: int = READS_RUNNING_MAX,
    ) -> None:
        self._readers = BoundedThreads("engine-read", readers, reads_running_max)
        self._writers = BoundedThreads("engine-write", writers, is_waiting=True)

    @property
    def reads_waiting(self) -> int:
        """Reads that wait for a thread."""
        return self._readers.waiting

    async def read(self, actor: str, work: Callable[[], Returned]) -> Returned:
        """Run ``work`` in a read thread.

        Raises `TooManyRequests` if the actor has too many waiting calls, and `Busy` if there are
        too many in total.
        """
        return await self._readers.run(work, actor)

    async def write(self, actor: str, work: Callable[[], Returned]) -> Returned:
        """Run ``work`` in a write thread; raises like `read`."""
        return await self._writers.run(work, actor)

    def close(self) -> None:
        """Stop idle threads, without waiting for running calls."""
        self._readers.close()
        self._writers.close()


@dataclass(slots=True)
class _Calls:
    """The waiting and running calls of one actor."""

    waiting: deque[Job]
    running: int = 0


class FairQueue:
    """Waiting calls, taken round-robin by actor. Not thread-safe: `BoundedThreads` guards it."""

    def __init__(self, running_max: int, waiting_max: int, total_max: int) -> None:
        self._running_max = running_max
        self._waiting_max = waiting_max
        self._total_max = total_max
        self._actors: dict[str, _Calls] = {}
        self._turns: deque[str] = deque()
        """Actors with a call that may be taken, each once, in the order of their turns."""
        self.waiting = 0

    def __bool__(self) -> bool:
        """Whether there is a call that may be taken now."""
        return bool(self._turns)

    @property
    def takeable(self) -> int:
        """The number of calls that may be taken now."""
        calls = (self._actors[actor] for actor in self._turns)
        return sum(min(len(each.waiting), self._running_max - each.running) for each in calls)

    def put(self, actor: str, job: Job) -> None:
        """Add a call; raises `TooManyRequests` or `Busy` when too many are waiting."""
        calls = self._actors.get(actor)
        if calls is None:
            calls = self._actors[actor] = _Calls(deque())
        if len(calls.waiting) >= self._waiting_max:
            raise TooManyRequests(
                f"{len(calls.waiting)} requests of yours are waiting, and no more are taken",
                hint="wait until some of them are done",
            )
        if self.waiting >= self._total_max:
            self._forget_idle(actor, calls)
            raise Busy("the server has too many requests waiting", hint="try again soon")
        calls.waiting.append(job)
        self.waiting += 1
        if len(calls.waiting) == 1 and calls.running < self._running_max:
            self._turns.append(actor)

    def take(self) -> tuple[str, Job]:
        """Take the next call; its actor goes to the end of the line."""
        actor = self._turns.popleft()
        calls = self._actors[actor]
        calls.running += 1
        self.waiting -= 1
        job = calls.waiting.popleft()
        if calls.waiting and calls.running < self._running_max:
            self._turns.append(actor)
        return actor, job

    def done(self, actor: str) -> None:
        """Note that a call of this actor has ended."""
        calls = self._actors[actor]
        if calls.waiting and calls.running == self._running_max:
            self._turns.append(actor)
        calls.running -= 1
        self._forget_idle(actor, calls)

    def _forget_idle(self, actor: str, calls: _Calls) -> None:
        is_idle = not calls.running and not calls.waiting
        if is_idle and len(self._actors) > ACTORS_KEPT_MAX:
            del self._actors[actor]


class BoundedThreads:
    """A bounded number of threads, started on demand.

    A running thread takes the next call itself; another is woken only if it makes no progress.
    Because of the GIL, more threads are slower for calls shorter than a thread switch. With
    `is_waiting`, calls mostly wait, for storage or each other, and each gets a thread at once.
    Calls and results are passed in batches, too: one wake-up for all calls of an event loop
    iteration, and one for all results that are ready.
    """

    def __init__(
        self,
        name: str,
        threads_max: int,
        running_max: int | None = None,
        waiting_max: int = WAITING_MAX,
        total_max: int = WAITING_TOTAL_MAX,
        *,
        is_waiting: bool = False,
    ) -> None:
        self._name = name
        self._is_waiting = is_waiting
        """Whether the calls mostly wait, so that each gets a thread at once."""
        self._threads_max = threads_max
        self._jobs = FairQueue(running_max or threads_max, waiting_max, total_max)
        self._done: deque[Done] = deque()
        """Results to deliver."""
        self._guard = threading.Lock()
        self._idle: list[WakeUp] = []
        """Idle threads; the most recent is woken first, because its caches are warm."""
        self._threads = 0
        self._at_work = 0
        self._finished = 0
        self._left_at = 0
        """The value of `_finished` when a thread last became idle."""
        self._progress_at = 0.0
        """When a call was last started or finished."""
        self._is_calling = False
        self._is_delivering = False
        self._watch: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Calls that wait for a thread."""
        return self._jobs.waiting

    async def run(self, work: Callable[[], Returned], actor: str = "") -> Returned:
        """Run ``work`` in a thread; called on the event loop only."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Returned] = loop.create_future()
        with self._guard:
            self._jobs.put(actor, (loop, done, work))
        if not self._is_calling:
            self._is_calling = True
            loop.call_soon(self._call, loop)
        return await done

    def close(self) -> None:
        """Stop idle threads; busy ones end with the process."""
        if self._watch is not None:
            self._watch.cancel()
        with self._guard:
            for wake_up in self._idle:
                wake_up.put(False)
            self._idle.clear()

    # --- on the event loop ------------------------------------------------------------------------

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake a thread for new calls, unless a busy one will soon take them."""
        self._is_calling = False
        with self._guard:
            is_idle = self._at_work == 0
            is_stuck = time.perf_counter() - self._progress_at > STUCK_SECONDS
            wanted = int(bool(self._jobs) and (is_idle or is_stuck))
            if self._is_waiting:
                wanted = self._jobs.takeable
        self._wake(wanted)
        if self._watch is None:
            self._watch = loop.call_later(STUCK_SECONDS, self._check_progress, loop, self._finished)

    def _wake(self, wanted: int) -> None:
        """Wake or start up to ``wanted`` threads."""
        for _ in range(wanted):
            with self._guard:
                if self._at_work >= self._threads_max:
                    return
                self._at_work += 1
                if self._idle:
                    self._idle.pop().put(True)
                    continue
                self._threads += 1
            name = f"{self._name}-{self._threads}"
            threading.Thread(target=self._worker, name=name, daemon=True).start()

    def _check_progress(self, loop: asyncio.AbstractEventLoop, finished: int) -> None:
        """Wake a thread for every waiting call, if none finished since the last check."""
        self._watch = None
        self._deliver()
        if not self._jobs.waiting:
            return
        if self._finished == finished:
            with self._guard:
                takeable = self._jobs.takeable
            self._wake(takeable)
        self._watch = loop.call_later(STUCK_SECONDS, self._check_progress, loop, self._finished)

    def _deliver(self) -> None:
        """Set the results of finished calls."""
        self._is_delivering = False  # cleared first, so that later results schedule a delivery
        while self._done:
            _finish(*self._done.popleft())

    # --- in a thread ------------------------------------------------------------------------------

    def _worker(self) -> None:
        wake_up: WakeUp = SimpleQueue()
        self._run_jobs(wake_up)
        while wake_up.get():
            self._run_jobs(wake_up)

    def _run_jobs(self, wake_up: WakeUp) -> None:
        """Run calls until there are none, then become idle."""
        began = delivered = time.perf_counter()
        began_at, is_first, is_short = 0, True, False
        loop: asyncio.AbstractEventLoop | None = None
        actor: str | None = None
        while True:
            with self._guard:
                self._finished += not is_first
                if actor is not None:
                    self._jobs.done(actor)
                # `run` appends a call before `_call` reads `_at_work`: either this thread sees the
                # call, or `_call` sees that no thread is at work.
                if not self._jobs or (is_short and self._is_spare(began_at)):
                    self._at_work -= 1
                    self._left_at = self._finished
                    self._idle.append(wake_up)
                    break
                began_at = self._finished
                self._progress_at = began
                actor, (loop, future, work) = self._jobs.take()
            self._done.append((future, *_outcome(work)))
            now = time.perf_counter()
            is_first, is_short, began = False, now - began < SHORT_SECONDS, now
            self._progress_at = now
            if not self._jobs or now - delivered > BATCH_SECONDS:
                delivered = now
                self._schedule_delivery(loop)
            del future, work
        if self._done and loop is not None:
            self._schedule_delivery(loop)  # results of an unfinished batch

    def _is_spare(self, began_at: int) -> bool:
        """Whether this thread may become idle, because another one also finishes short calls.

        Another thread must have finished a call since this one took its last, and none may have
        become idle since; otherwise all others may be stuck.
        """
        return self._finished - began_at > 1 and began_at >= self._left_at

    def _schedule_delivery(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_delivering:
            self._is_delivering = True
            with suppress(RuntimeError):  # the loop is closed; nothing awaits the results
                loop.call_soon_threadsafe(self._deliver)


def _outcome(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return work(), None
    except BaseException as caught:  # raised again by the waiting task
        return None, caught


def _finish(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return  # the waiting task was cancelled
    if isinstance(error, StopIteration):
        # A future cannot hold StopIteration.
        error = RuntimeError("a call of the engine raised StopIteration")
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(result)
