"""A governor stops what runs under it: at a deadline, at a budget, and when it is cancelled."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from omnigraph.errors import (
    QueryCancelled,
    QueryMemoryExceeded,
    QueryTimeout,
    TooManyRequests,
)
from omnigraph.model.governor import UNLIMITED, Governor, MemoryPool, current
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
    assert governor.remaining_s() is None
    assert governor.left() is None


def test_a_deadline_counts_from_the_making_of_the_governor():
    clock = Clock()
    governor = Governor(timeout_s=30, clock=clock)
    clock.now += 30
    governor.check()
    assert governor.remaining_s() == 0.0
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
    assert governor.is_cancelled
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
