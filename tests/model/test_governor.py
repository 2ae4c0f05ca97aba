"""A governor stops what runs under it: at a deadline, at a budget, and when it is cancelled."""

from __future__ import annotations

import threading
import time
from contextlib import closing

import pytest

from omnigraph.errors import (
    QueryCancelled,
    QueryMemoryExceeded,
    QueryTimeout,
    TooManyRequests,
)
from omnigraph.model.governor import LONG_S, UNLIMITED, Governor, MemoryPool, Turns, current
from omnigraph.wire.failures import envelope_of, error_of, status_of

MIB = 1 << 20


class Clock:
    """Seconds that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_limits_nothing_is_refused():
    governor = Governor()
    governor.reserve(1 << 60)
    governor.check()
    assert governor.left() is None


def test_a_deadline_counts_from_the_making_of_the_governor():
    clock = Clock()
    governor = Governor(timeout_s=30, clock=clock)
    clock.now += 30
    governor.check()
    clock.now += 0.001
    with pytest.raises(QueryTimeout, match="30 s") as caught:
        governor.check()
    assert caught.value.details["limit"] == 30
    assert "timeout" in (caught.value.hint or "")


def test_another_thread_cancels():
    governor = Governor()
    thread = threading.Thread(target=governor.cancel, args=("the client left",))
    thread.start()
    thread.join()
    with pytest.raises(QueryCancelled, match="the client left"):
        governor.reserve(0)


def test_memory_is_counted_while_it_is_held():
    governor = Governor(memory_bytes=100)
    governor.hold(60)
    governor.reserve(40)
    with pytest.raises(QueryMemoryExceeded) as caught:
        governor.reserve(41)
    assert caught.value.details["limit"] == 100
    assert caught.value.details["actual"] == 101
    assert "OMNIGRAPH_QUERY_BYTES" in (caught.value.hint or "")
    held = governor.hold_instead(60, 90)
    assert governor.left() == 10
    governor.release(held)
    governor.reserve(100)


def test_a_pool_bounds_all_of_its_governors_until_they_close():
    pool = MemoryPool(10 * MIB)
    first, second = Governor(pool=pool), Governor(pool=pool)
    with closing(second):
        with closing(first), first:
            first.hold(6 * MIB)
            first.release(6 * MIB)
            assert pool.used == 6 * MIB, "the most it needed"
            with pytest.raises(TooManyRequests):
                second.reserve(5 * MIB)
        second.reserve(5 * MIB)
    assert pool.used == 0


def test_the_governor_of_a_block_is_current_inside_it():
    outer, inner = Governor(), Governor()
    assert current() is UNLIMITED
    with outer:
        with inner:
            assert current() is inner
        outer.hold(10)
        with outer:
            assert current() is outer
        assert outer.held == 10, "an inner block of the same run keeps the count"
    assert current() is UNLIMITED
    assert outer.held == 0


def test_a_lock_is_waited_for_within_the_limits():
    lock = threading.Lock()
    governor = Governor()
    with governor.locked(lock):
        governor.cancel()
        with pytest.raises(QueryCancelled), governor.locked(lock):
            pass
    assert not lock.locked()


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (QueryTimeout(2.5), 408),
        (QueryMemoryExceeded(100, 101), 413),
        (QueryCancelled("the server stops"), 503),
    ],
)
def test_errors_travel_by_name(error: Exception, status: int):
    assert isinstance(error, QueryTimeout | QueryMemoryExceeded | QueryCancelled)
    assert status_of(error) == status
    again = error_of(status, envelope_of(error))
    assert type(again) is type(error)
    assert again.message == error.message


# --- turns ----------------------------------------------------------------------------------------


def test_a_short_query_takes_no_turn_and_a_long_one_does() -> None:
    clock, turns = Clock(), Turns(1)
    short, long = (Governor(turns=turns, clock=clock) for _ in range(2))
    with short, long:
        clock.now += LONG_S / 2
        short.check()
        clock.now += LONG_S
        long.check()
        with pytest.raises(QueryCancelled):
            _take_while_cancelled(turns)
    turns.take(lambda: None)  # the long one gave it back at its end


def _take_while_cancelled(turns: Turns) -> None:
    def give_up() -> None:
        raise QueryCancelled("it waits")

    turns.take(give_up)


def test_long_queries_get_turns_in_the_order_they_asked() -> None:
    clock, turns = Clock(), Turns(1)
    began: list[int] = []
    first = Governor(turns=turns, clock=clock)
    others = [Governor(turns=turns, clock=clock) for _ in range(3)]
    clock.now += 2 * LONG_S

    def run(number: int) -> None:
        with others[number]:
            others[number].check()
            began.append(number)

    with first:
        first.check()
        threads = []
        for number in range(3):
            threads.append(threading.Thread(target=run, args=(number,)))
            threads[-1].start()
            while len(turns._waiting) <= number:
                time.sleep(0.001)
        assert began == []
    for thread in threads:
        thread.join(60)
    assert began == [0, 1, 2]


def test_a_query_that_waits_for_its_turn_ends_at_its_deadline_and_when_cancelled() -> None:
    clock, turns = Clock(), Turns(1)
    running = Governor(turns=turns, clock=clock)
    late = Governor(turns=turns, clock=clock, timeout_s=LONG_S * 3)
    left = Governor(turns=turns, clock=clock)
    clock.now += 2 * LONG_S
    with running:
        running.check()
        for waiting, error, end in (
            (late, QueryTimeout, lambda: setattr(clock, "now", clock.now + 10)),
            (left, QueryCancelled, left.cancel),
        ):
            threading.Timer(0.01, end).start()
            with waiting, pytest.raises(error):
                waiting.check()
        assert not turns._waiting


def test_a_query_that_holds_a_lock_waits_for_no_turn() -> None:
    """Another one may wait for that lock, and have the turn."""
    clock, turns = Clock(), Turns(1)
    running, locking = (Governor(turns=turns, clock=clock) for _ in range(2))
    clock.now += 2 * LONG_S
    with running, locking, locking.locked(threading.Lock()):
        running.check()
        locking.check()
