"""Requests that are sent at once: their results, failures and counted waiting."""

from __future__ import annotations

import threading
import time

import pytest

from omnigraph.effects.io_counters import count, measure
from omnigraph.effects.side_by_side import side_by_side


def request(name: str, trips: int = 1) -> str:
    for _ in range(trips):
        count("object", "read", name)
    return name


@pytest.mark.parametrize("threads", [False, True])
def test_results_come_back_to_who_asked_for_them(threads: bool):
    with side_by_side(threads=threads) as side:
        first = side.start(lambda: request("first"))
        second = side.start(lambda: 2)
        third = side.here(lambda: request("third"))
    assert (first(), second(), third) == ("first", 2, "third")


def test_with_threads_the_waiting_of_the_longest_is_charged():
    with measure() as io, side_by_side(threads=True) as side:
        side.start(lambda: request("a", 3))
        side.start(lambda: request("b", 2))
        side.here(lambda: request("c"))
    assert (io.report().requests, io.report().round_trips) == (6, 3)


def test_without_threads_all_waiting_is_charged_and_all_runs_here():
    ran_in: list[int] = []
    with measure() as io, side_by_side(threads=False) as side:
        side.start(lambda: request("a", 3))
        side.start(lambda: ran_in.append(threading.get_ident()))
        side.here(lambda: request("b", 2))
    assert io.report().round_trips == 5
    assert ran_in == [threading.get_ident()]


def test_work_really_overlaps():
    meeting = threading.Barrier(3, timeout=10)
    with side_by_side(threads=True) as side:
        side.start(meeting.wait)
        side.start(meeting.wait)
        side.here(meeting.wait)


@pytest.mark.parametrize("threads", [False, True])
def test_a_failure_reaches_who_asks_for_the_result(threads: bool):
    def fail() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"), side_by_side(threads=threads) as side:
        side.start(fail)()


def test_the_block_ends_only_when_everything_has_ended_whatever_fails():
    ended: list[str] = []

    def slow() -> None:
        time.sleep(0.05)
        ended.append("slow")

    def fail() -> None:
        raise LookupError("gone")

    with pytest.raises(LookupError), side_by_side(threads=True) as side:
        side.start(slow)
        side.here(fail)
    assert ended == ["slow"]


def test_work_inside_of_started_work_needs_no_second_thread():
    def nested() -> int:
        with side_by_side(threads=True) as inner:
            answer = inner.start(threading.get_ident)
        return answer()

    def outer() -> tuple[int, int]:
        return threading.get_ident(), nested()

    with side_by_side(threads=True) as side:
        answers = [side.start(outer) for _ in range(40)]
    assert all(own == inner for own, inner in (answer() for answer in answers))
