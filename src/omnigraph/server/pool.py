"""Threads for the engine. Its calls block, so none of them runs on the event loop.

Calls wait in one queue for each actor, and threads take them in turns: an actor with many calls, or
with long ones, delays its own, and not those of others.

The standard executor would do, and takes twice as long to hand a call over: a small query is
answered in a tenth of a millisecond, so that is most of the time. Threads are daemons: a process
that has to end now does not wait for them. A write that they have not published by then has no
effect.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, TypeVar

from omnigraph.errors import Busy, TooManyRequests

Returned = TypeVar("Returned")
Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]
WakeUp = SimpleQueue[bool]
"""The wake-up queue of one worker thread; False stops the worker."""
Done = tuple["asyncio.Future[Any]", Any, BaseException | None]

READS_RUNNING_MAX = max(4, 2 * (os.cpu_count() or 1))
"""Reads of one actor that run at a time."""
READ_THREADS = 8 * READS_RUNNING_MAX
"""So that several actors with long reads leave threads for the others."""
WRITE_THREADS = 32
"""A writer mostly waits, for storage or a lease."""
WAITING_MAX = 256
"""Calls of one actor that wait for a thread."""
WAITING_TOTAL_MAX = 1024
ACTORS_KEPT_MAX = 64
"""Actors without a call whose empty queues are kept for the next one."""
STUCK_SECONDS = 0.002
"""How long nothing may be finished while calls wait, until more threads are woken."""
SHORT_SECONDS = STUCK_SECONDS / 2
"""What takes less needs no second thread."""
BATCH_SECONDS = 0.0005
"""How long results wait to be delivered together, while there are more calls."""


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
        """What ``work`` returns, run in a thread for reads.

        Raises `TooManyRequests` if the actor has too many calls waiting, and `Busy` if all have.
        """
        return await self._readers.run(work, actor)

    async def write(self, actor: str, work: Callable[[], Returned]) -> Returned:
        """What ``work`` returns, run in a thread for writes; raises like `read`."""
        return await self._writers.run(work, actor)

    def close(self) -> None:
        """Stop idle threads; a running call is not waited for."""
        self._readers.close()
        self._writers.close()


@dataclass(slots=True)
class _Calls:
    """The waiting and running calls of one actor."""

    waiting: deque[Job]
    running: int = 0


class FairQueue:
    """Calls that wait, taken in turns by actor. Not safe to share: `BoundedThreads` guards it."""

    def __init__(self, running_max: int, waiting_max: int, total_max: int) -> None:
        self._running_max = running_max
        self._waiting_max = waiting_max
        self._total_max = total_max
        self._actors: dict[str, _Calls] = {}
        self._turns: deque[str] = deque()
        """Actors with a call that may be taken, each once; the next one to serve first."""
        self.waiting = 0

    def __bool__(self) -> bool:
        """Whether a call may be taken now."""
        return bool(self._turns)

    @property
    def takeable(self) -> int:
        """How many calls may be taken now."""
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
        """The next call, whose actor then has its next turn after the others."""
        actor = self._turns.popleft()
        calls = self._actors[actor]
        calls.running += 1
        self.waiting -= 1
        job = calls.waiting.popleft()
        if calls.waiting and calls.running < self._running_max:
            self._turns.append(actor)
        return actor, job

    def done(self, actor: str) -> None:
        """A call of this actor has ended."""
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
    """At most so many threads, started when they are needed.

    One thread at work takes the next call itself; another is woken only when it is stuck. Python
    runs one thread at a time, so for calls shorter than a hand-over more threads are slower. Calls
    that mostly wait, for storage or for each other, get a thread each at once. For
    the same reason calls and results change sides in batches: one wake-up for all calls of a turn
    of the event loop, and one for all results until there is no more to do.
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
        """Whether its calls mostly wait."""
        self._threads_max = threads_max
        self._jobs = FairQueue(running_max or threads_max, waiting_max, total_max)
        self._done: deque[Done] = deque()
        """Results that wait to be delivered."""
        self._guard = threading.Lock()
        self._idle: list[WakeUp] = []
        """Idle threads. The last one to stop is woken first: its caches are still warm."""
        self._threads = 0
        self._at_work = 0
        self._finished = 0
        self._left_at = 0
        """What `_finished` was when a thread last stopped."""
        self._progress_at = 0.0
        """When a thread last began or finished a call."""
        self._is_calling = False
        self._is_delivering = False
        self._watch: asyncio.TimerHandle | None = None

    @property
    def waiting(self) -> int:
        """Calls that wait for a thread."""
        return self._jobs.waiting

    async def run(self, work: Callable[[], Returned], actor: str = "") -> Returned:
        """What ``work`` returns; waits for a free thread. On the event loop only."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Returned] = loop.create_future()
        with self._guard:
            self._jobs.put(actor, (loop, done, work))
        if not self._is_calling:
            self._is_calling = True
            loop.call_soon(self._call, loop)
        return await done

    def close(self) -> None:
        """Stop idle threads; one at work ends with the process."""
        if self._watch is not None:
            self._watch.cancel()
        with self._guard:
            for wake_up in self._idle:
                wake_up.put(False)
            self._idle.clear()

    # --- on the event loop ------------------------------------------------------------------------

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        """Wake a thread for new calls, unless one is at work that will take them soon."""
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
        """Wake or start up to so many more threads."""
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
        """Wake a thread for every call that waits, if none was finished for a while."""
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
        self._is_delivering = False  # first: a result after this line schedules again
        while self._done:
            _finish(*self._done.popleft())

    # --- in a thread ------------------------------------------------------------------------------

    def _worker(self) -> None:
        wake_up: WakeUp = SimpleQueue()
        self._run_jobs(wake_up)
        while wake_up.get():
            self._run_jobs(wake_up)

    def _run_jobs(self, wake_up: WakeUp) -> None:
        """Run jobs until there are none, then become idle."""
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
            self._schedule_delivery(loop)  # another thread took the call that it waited for

    def _is_spare(self, began_at: int) -> bool:
        """Whether another thread finishes short calls as well: then this one may stop.

        The others may all be stuck: one of them must have finished a call since this thread took
        its last, and must not have stopped since.
        """
        return self._finished - began_at > 1 and began_at >= self._left_at

    def _schedule_delivery(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_delivering:
            self._is_delivering = True
            with suppress(RuntimeError):  # the loop is closed, and its futures with it
                loop.call_soon_threadsafe(self._deliver)


def _outcome(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return work(), None
    except BaseException as caught:  # it is raised where the result is waited for
        return None, caught


def _finish(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return  # the waiting task was cancelled
    if isinstance(error, StopIteration):
        # A future cannot raise StopIteration: it would end the generator that awaits it.
        error = RuntimeError("a call of the engine raised StopIteration")
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(result)
