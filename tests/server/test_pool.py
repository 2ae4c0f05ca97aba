"""Threads for the engine: no more than needed, and no call waits behind a stuck one."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from omnigraph.server.pool import BoundedThreads, EnginePool, WakeUp


def test_calls_return_and_raise_what_they_do():
    async def scenario() -> None:
        pool = EnginePool(2, 2)
        assert await pool.read("", partial(divmod, 7, 2)) == (3, 1)
        assert await pool.write("", partial(int, "12", base=3)) == 5
        with pytest.raises(ZeroDivisionError):
            await pool.read("", partial(divmod, 1, 0))
        with pytest.raises(RuntimeError, match="StopIteration"):
            await pool.read("", partial(next, iter(())))
        pool.close()

    asyncio.run(scenario())


def test_many_short_calls_are_all_done():
    async def scenario() -> None:
        workers = BoundedThreads("short", 4, waiting_max=2000, total_max=2000)
        found = await asyncio.gather(*(workers.run(partial(pow, n, 2)) for n in range(2000)))
        assert found == [n * n for n in range(2000)]
        workers.close()

    asyncio.run(scenario())


def test_a_stuck_call_does_not_keep_others_waiting():
    async def scenario() -> None:
        workers = BoundedThreads("stuck", 4)
        let_go = threading.Event()
        stuck = [asyncio.create_task(workers.run(let_go.wait)) for _ in range(3)]
        await asyncio.sleep(0)
        # It is done by another thread, or never.
        await workers.run(let_go.set)
        assert await asyncio.gather(*stuck) == [True] * 3
        workers.close()

    asyncio.run(scenario())


def test_calls_that_mostly_wait_get_a_thread_each_at_once(monkeypatch: pytest.MonkeyPatch):
    """Not only once those at work are found to be stuck."""
    monkeypatch.setattr(BoundedThreads, "_check_progress", lambda *_: None)

    async def scenario() -> None:
        workers = BoundedThreads("waiting", 4, is_waiting=True)
        together = threading.Barrier(4)
        found = await asyncio.gather(*(workers.run(partial(together.wait, 60)) for _ in range(4)))
        assert sorted(found) == [0, 1, 2, 3]
        workers.close()

    asyncio.run(scenario())


def test_there_are_never_more_threads_than_allowed():
    async def scenario() -> None:
        workers = BoundedThreads("few", 3)
        guard, together, most = threading.Lock(), [0], [0]
        enough = threading.Barrier(3)

        def work() -> None:
            with guard:
                together[0] += 1
                most[0] = max(most[0], together[0])
            enough.wait(60)
            with guard:
                together[0] -= 1

        await asyncio.gather(*(workers.run(work) for _ in range(9)))
        assert most[0] == 3
        workers.close()

    asyncio.run(scenario())


def test_a_cancelled_call_does_not_stop_the_next():
    async def scenario() -> None:
        workers = BoundedThreads("left", 1)
        let_go = threading.Event()
        left = asyncio.create_task(workers.run(let_go.wait))
        await asyncio.sleep(0)
        left.cancel()
        let_go.set()
        assert await workers.run(lambda: "next") == "next"
        workers.close()

    asyncio.run(scenario())


def test_a_result_does_not_wait_for_a_slower_call_behind_it():
    async def scenario() -> None:
        workers = BoundedThreads("kept-back", 1)
        let_go = threading.Event()
        # Both are there before the one thread begins, so it has more to do when the first is done.
        first = asyncio.create_task(workers.run(lambda: "first"))
        second = asyncio.create_task(workers.run(let_go.wait))
        assert await first == "first"
        let_go.set()
        assert await second is True
        workers.close()

    asyncio.run(scenario())


def test_a_thread_beside_stuck_ones_does_all_short_calls_without_a_pause():
    async def scenario() -> None:
        workers = BoundedThreads("alone", 4, waiting_max=5000, total_max=5000)
        let_go = threading.Event()
        begun = threading.Barrier(4)

        def get_stuck() -> None:
            begun.wait(60)
            assert let_go.wait(60)

        stuck = [asyncio.create_task(workers.run(get_stuck)) for _ in range(3)]
        await workers.run(partial(begun.wait, 60))  # all four threads are awake now
        stops = Counted()
        workers._idle = stops
        found = await asyncio.gather(*(workers.run(partial(pow, n, 2)) for n in range(500)))
        assert found == [n * n for n in range(500)]
        # It was woken once for all of them, and stopped when there were no more.
        assert stops.appended <= 2
        let_go.set()
        await asyncio.gather(*stuck)
        workers.close()

    asyncio.run(scenario())


class Counted(list[WakeUp]):
    """A list that counts what is added to it."""

    appended = 0

    def append(self, wake_up: WakeUp) -> None:
        self.appended += 1
        super().append(wake_up)
