"""Calls that run concurrently: their results, failures and counted waiting."""

from __future__ import annotations

import threading
import time

import pytest

from omnigraph.effects.requests import concurrently, count, measure


def request(name: str, trips: int = 1) -> str:
    for _ in range(trips):
        count("object", "read", name)
    return name


def fail() -> None:
    raise LookupError("gone")


@pytest.mark.parametrize("threads", [False, True])
def test_results_come_back_in_the_order_of_the_calls(threads: bool):
    calls = (lambda: request("first"), lambda: 2, lambda: request("third"))
    assert concurrently(*calls, threads=threads) == ("first", 2, "third")


@pytest.mark.parametrize("work_max", [None, 1, 2])
def test_with_threads_the_waiting_of_the_longest_is_charged(work_max: int | None):
    calls = (lambda: request("c"), lambda: request("a", 3), lambda: request("b", 2))
    with measure() as io:
        concurrently(*calls, threads=True, work_max=work_max)
    assert (io.report().requests, io.report().round_trips) == (6, 3)


def test_without_threads_all_waiting_is_charged_and_all_runs_here():
    with measure() as io:
        concurrently(lambda: request("a", 3), lambda: request("b", 2), threads=False)
    assert io.report().round_trips == 5
    assert concurrently(*[threading.get_ident] * 3, threads=False) == (threading.get_ident(),) * 3


def test_calls_really_overlap():
    meeting = threading.Barrier(3, timeout=60)
    concurrently(meeting.wait, meeting.wait, meeting.wait, threads=True)


def test_no_more_calls_overlap_than_are_allowed():
    lock, running, most = threading.Lock(), 0, 0

    def work() -> None:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with lock:
            running -= 1

    concurrently(*[work] * 6, threads=True, work_max=2)
    assert most <= 2


@pytest.mark.parametrize("threads", [False, True])
def test_the_first_failure_is_raised(threads: bool):
    with pytest.raises(LookupError, match="gone"):
        concurrently(lambda: 1, fail, lambda: 2, threads=threads)


def test_a_failure_is_raised_only_when_every_call_has_ended():
    ended: list[str] = []

    def slow() -> None:
        time.sleep(0.05)
        ended.append("slow")

    with pytest.raises(LookupError):
        concurrently(fail, slow, threads=True)
    assert ended == ["slow"]


def test_calls_inside_of_concurrent_calls_overlap_as_well():
    def nested() -> None:
        meeting = threading.Barrier(2, timeout=60)
        concurrently(meeting.wait, meeting.wait, threads=True)

    concurrently(*[nested] * 20, threads=True)


def test_no_depth_of_concurrent_calls_waits_for_itself():
    def nested(depth: int) -> int:
        if not depth:
            return 1
        return sum(concurrently(*[lambda: nested(depth - 1)] * 5, threads=True))

    found = concurrently(*[lambda: nested(4)] * 40, threads=True)
    assert found == (5**4,) * 40
