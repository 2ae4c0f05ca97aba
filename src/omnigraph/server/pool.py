"""Threads for the engine. Its calls block, so none of them runs on the event loop.

The standard executor would do, and takes twice as long to hand a call over: a small query is
answered in a tenth of a millisecond, so that is most of the time. Threads are daemons: a process
that is told to end now does not wait for them. What they have not published then counts as never
written.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

Given = ParamSpec("Given")
Returned = TypeVar("Returned")
Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[[], Any]]
Bell = SimpleQueue[bool]
"""Wakes one thread; False sends it home."""
Done = tuple["asyncio.Future[Any]", Any, BaseException | None]

READ_THREADS = max(4, 2 * (os.cpu_count() or 1))
WRITE_THREADS = 32
"""A writer mostly waits: for storage, or for its turn."""
STUCK_SECONDS = 0.002
"""How long nothing may be finished while calls wait, until more threads are woken."""
SHORT_SECONDS = STUCK_SECONDS / 2
"""What takes less needs no second thread."""
HELD_BACK_SECONDS = 0.0005
"""How long results are kept back to be handed over together, while there is more to do."""


class EnginePool:
    """Two groups of threads, so that writers waiting for their turn never keep readers out."""

    def __init__(self, readers: int = READ_THREADS, writers: int = WRITE_THREADS) -> None:
        self._readers = Workers("engine-read", readers)
        self._writers = Workers("engine-write", writers)

    async def read(
        self, work: Callable[Given, Returned], *args: Given.args, **options: Given.kwargs
    ) -> Returned:
        """What ``work`` returns, run in a thread for reads."""
        return await self._readers.run(partial(work, *args, **options))

    async def write(
        self, work: Callable[Given, Returned], *args: Given.args, **options: Given.kwargs
    ) -> Returned:
        """What ``work`` returns, run in a thread for writes."""
        return await self._writers.run(partial(work, *args, **options))

    def close(self) -> None:
        """Let idle threads go; what still runs is not waited for."""
        self._readers.close()
        self._writers.close()


class Workers:
    """At most so many threads, started when they are needed.

    One thread at work takes the next call itself; another is woken only when it is stuck. Python
    runs one thread at a time, so for calls shorter than a hand-over more threads are slower. For
    the same reason calls and results change sides in batches: one wake-up for all calls of a turn
    of the event loop, and one for all results until there is no more to do.
    """

    def __init__(self, name: str, threads_max: int) -> None:
        self._name = name
        self._threads_max = threads_max
        self._jobs: deque[Job] = deque()
        self._done: deque[Done] = deque()
        """Results that wait to be handed over."""
        self._guard = threading.Lock()
        self._idle: list[Bell] = []
        """Threads that wait. The last to stop is the first to go on: its memory is still warm."""
        self._threads = 0
        self._at_work = 0
        self._finished = 0
        self._left_at = 0
        """What `_finished` was when a thread last stopped."""
        self._is_calling = False
        self._is_delivering = False
        self._watch: asyncio.TimerHandle | None = None

    async def run(self, work: Callable[[], Returned]) -> Returned:
        """What ``work`` returns; waits for a free thread. On the event loop only."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Returned] = loop.create_future()
        self._jobs.append((loop, done, work))
        if not self._is_calling:
            self._is_calling = True
            loop.call_soon(self._call, loop)
        return await done

    def close(self) -> None:
        """Let idle threads end; one at work ends with the process."""
        if self._watch is not None:
            self._watch.cancel()
        with self._guard:
            for bell in self._idle:
                bell.put(False)
            self._idle.clear()

    # --- on the event loop ------------------------------------------------------------------------

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        """See to it that somebody does what came in."""
        self._is_calling = False
        with self._guard:
            is_idle = self._at_work == 0
        if is_idle:
            self._rouse(1)
        if self._watch is None:
            self._watch = loop.call_later(STUCK_SECONDS, self._relieve, loop, self._finished)

    def _rouse(self, wanted: int) -> None:
        """Put up to so many more threads to work."""
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
            threading.Thread(target=self._live, name=name, daemon=True).start()

    def _relieve(self, loop: asyncio.AbstractEventLoop, finished: int) -> None:
        """Wake a thread for every call that waits, if none was finished for a while."""
        self._watch = None
        self._deliver()
        if not self._jobs:
            return
        if self._finished == finished:
            self._rouse(len(self._jobs))
        self._watch = loop.call_later(STUCK_SECONDS, self._relieve, loop, self._finished)

    def _deliver(self) -> None:
        """Hand over what is done."""
        self._is_delivering = False  # first: what is done after this line is told again
        while self._done:
            _finish(*self._done.popleft())

    # --- in a thread ------------------------------------------------------------------------------

    def _live(self) -> None:
        bell: Bell = SimpleQueue()
        self._work(bell)
        while bell.get():
            self._work(bell)

    def _work(self, bell: Bell) -> None:
        """Do what there is to do, then wait for the bell."""
        began = told = time.perf_counter()
        began_at, is_first, is_short = 0, True, False
        loop: asyncio.AbstractEventLoop | None = None
        while True:
            with self._guard:
                self._finished += not is_first
                # Whoever adds a call looks at `_at_work` afterwards: one of us sees the other.
                if not self._jobs or (is_short and self._is_spare(began_at)):
                    self._at_work -= 1
                    self._left_at = self._finished
                    self._idle.append(bell)
                    break
                began_at = self._finished
                loop, future, work = self._jobs.popleft()
            self._done.append((future, *_outcome(work)))
            now = time.perf_counter()
            is_first, is_short, began = False, now - began < SHORT_SECONDS, now
            if not self._jobs or now - told > HELD_BACK_SECONDS:
                told = now
                self._tell(loop)
            del future, work
        if self._done and loop is not None:
            self._tell(loop)  # somebody else took the call that it was kept back for

    def _is_spare(self, began_at: int) -> bool:
        """Whether another thread gets on with short calls as well: then one of the two may go.

        The others may all be stuck, so it has to be seen that one finished something since this
        thread took its last call, and that it has not gone itself meanwhile.
        """
        return self._finished - began_at > 1 and began_at >= self._left_at

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        if not self._is_delivering:
            self._is_delivering = True
            with suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(self._deliver)


def _outcome(work: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return work(), None
    except BaseException as caught:  # it is raised where the result is waited for
        return None, caught


def _finish(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if done.done():
        return  # whoever waited was told to stop
    if isinstance(error, StopIteration):
        # Futures do not carry it: it would end whatever generator meets it.
        error = RuntimeError("a call of the engine raised StopIteration")
    if error is not None:
        done.set_exception(error)
    else:
        done.set_result(result)
