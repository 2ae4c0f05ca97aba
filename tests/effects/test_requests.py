"""Counting requests and round trips."""

from __future__ import annotations

import json
import timeit
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from omnigraph.effects.requests import IoEvent, concurrently, count, measure


def test_nothing_is_counted_outside_of_a_measurement():
    count("lance", "open", "before")
    with measure() as io:
        pass
    count("lance", "open", "after")
    assert io.report().counts == {}


def test_requests_are_counted_by_kind_and_verb():
    with measure() as io:
        count("object", "read")
        count("object", "read")
        count("lance", "scan", "nodes/1", n=3)
        count("disk", "flush_file", round_trips=0)
    report = io.report()
    assert report.count("object", "read") == 2
    assert report.count("object") == 2
    assert report.count("lance") == 3
    assert report.count("object", "write") == 0
    assert report.requests == 5
    assert report.round_trips == 3


def test_measurements_nest():
    with measure() as outer:
        count("lance", "open")
        with measure() as inner:
            count("lance", "commit")
        assert inner.report().counts == {("lance", "commit"): 1}
    assert outer.report().counts == {("lance", "open"): 1, ("lance", "commit"): 1}
    assert outer.report().round_trips == 2


def test_concurrent_calls_cost_as_much_waiting_as_the_longest():
    def fetch(n: int) -> int:
        for _ in range(n):
            count("object", "read")
        return n

    with measure() as outer, measure() as io:
        count("object", "list")
        calls = [partial(fetch, n) for n in (1, 3, 2)]
        assert concurrently(*calls, threads=True) == (1, 3, 2)
        count("object", "write")
    for report in (io.report(), outer.report()):
        assert report.requests == 8
        assert report.round_trips == 1 + 3 + 1


def test_concurrent_calls_nest_in_the_calling_thread():
    def leaf() -> None:
        count("object", "read")

    def inner() -> None:
        count("object", "list")
        concurrently(*[leaf] * 4, threads=True)

    with measure() as io:
        concurrently(inner, leaf, threads=True)
    assert io.report().requests == 6
    assert io.report().round_trips == 2


def test_another_thread_does_not_disturb_a_measurement():
    with measure() as io, ThreadPoolExecutor(1) as pool:
        pool.submit(count, "object", "read").result()
    assert io.report().counts == {}


def test_many_threads_lose_no_count():
    def work() -> None:
        for _ in range(500):
            count("lance", "scan")

    with measure() as io:
        concurrently(*[work] * 8, threads=True)
    assert io.report().count("lance", "scan") == 4_000
    assert io.report().round_trips == 500


def test_a_trace_keeps_each_call_with_its_target():
    with measure(tracing=True) as io:
        count("lance", "open", "nodes/1")
        count("lance", "commit", "nodes/1")
    assert io.report().events == (
        IoEvent("lance", "open", "nodes/1"),
        IoEvent("lance", "commit", "nodes/1"),
    )


def test_a_report_renders_as_table_and_as_json():
    with measure() as io:
        for _ in range(10):
            count("lance", "scan")
        count("object", "read")
        count("disk", "flush_file", round_trips=0)
    report = io.report()
    assert report.render().splitlines() == [
        "disk flush_file      1",
        "lance scan          10",
        "object read          1",
        "requests            11",
        "serial round trips  11",
    ]
    assert json.loads(json.dumps(report.to_dict())) == {
        "requests": 11,
        "round_trips": 11,
        "calls": {"disk": {"flush_file": 1}, "lance": {"scan": 10}, "object": {"read": 1}},
    }
    with measure() as empty:
        pass
    assert empty.report().render().splitlines() == [
        "requests            0",
        "serial round trips  0",
    ]


def test_counting_costs_next_to_nothing_without_a_measurement():
    best = min(timeit.repeat(lambda: count("object", "read"), number=20_000, repeat=5)) / 20_000
    assert best < 5e-6
