"""Threads for the engine: none too many, and nobody waits for somebody who is stuck."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import pytest

from omnigraph.server.pool import EnginePool, Workers


def test_calls_return_and_raise_what_they_do():
    async def scenario() -> None:
        pool = EnginePool(2, 2)
        assert await pool.read(divmod, 7, 2) == (3, 1)
        assert await pool.write(int, "12", base=3) == 5
        with pytest.raises(ZeroDivisionError):
            await pool.read(divmod, 1, 0)
        with pytest.raises(RuntimeError, match="StopIteration"):
            await pool.read(next, iter(()))
        pool.close()

    asyncio.run(scenario())


def test_many_short_calls_are_all_done():
    async def scenario() -> None:
        workers = Workers("short", 4)
        found = await asyncio.gather(*(workers.run(partial(pow, n, 2)) for n in range(2000)))
        assert found == [n * n for n in range(2000)]
        workers.close()

    asyncio.run(scenario())


def test_a_stuck_call_does_not_keep_others_waiting():
    async def scenario() -> None:
        workers = Workers("stuck", 4)
        let_go = threading.Event()
        stuck = [asyncio.create_task(workers.run(let_go.wait)) for _ in range(3)]
        await asyncio.sleep(0)
        # It is done by another thread, or never.
        await workers.run(let_go.set)
        assert await asyncio.gather(*stuck) == [True] * 3
        workers.close()

    asyncio.run(scenario())


def test_there_are_never_more_threads_than_allowed():
    async def scenario() -> None:
        workers = Workers("few", 3)
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


def test_a_call_nobody_waits_for_any_more_hurts_nobody():
    async def scenario() -> None:
        workers = Workers("left", 1)
        let_go = threading.Event()
        left = asyncio.create_task(workers.run(let_go.wait))
        await asyncio.sleep(0)
        left.cancel()
        let_go.set()
        assert await workers.run(lambda: "next") == "next"
        workers.close()

    asyncio.run(scenario())
