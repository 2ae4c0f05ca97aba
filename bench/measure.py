"""Taking the time.

Of one action the best of several rounds is reported: other programs can only make a round slower,
so the fastest one is nearest to what the code costs. What is compared takes turns, so that a busy
moment of the machine meets all sides alike.
"""

from __future__ import annotations

import gc
import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

ROUNDS = 7


def seconds_of(action: Callable[[], object]) -> float:
    """The seconds of one call."""
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def best_seconds(action: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The fastest of several calls, with the garbage of earlier ones out of the way."""
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        best = min(best, seconds_of(action))
    return best


def seconds_per_call(action: Callable[[], object], seconds_min: float = 0.1) -> float:
    """The cost of one call that is too short to be timed alone."""
    calls = 1
    while True:
        start = time.perf_counter()
        for _ in range(calls):
            action()
        elapsed = time.perf_counter() - start
        if elapsed >= seconds_min:
            return elapsed / calls
        calls *= 4


def in_turns(
    rounds: int,
    *actions: Callable[[int], object],
    of: Callable[[list[float]], float] = statistics.median,
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """The seconds of each action, one call of each after the other in every round.

    With `time.process_time` as ``clock``, those of processors: what others do counts less.
    """
    taken: list[list[float]] = [[] for _ in actions]
    gc.collect()
    for n in range(rounds):
        for seconds, action in zip(taken, actions, strict=True):
            began = clock()
            action(n)
            seconds.append(clock() - began)
    return [of(seconds) for seconds in taken]


def calls_per_second(actions: Sequence[Callable[[int], object]], seconds: float) -> float:
    """How many calls threads manage together, each repeating an action of its own.

    An action is given the number of the call, and called at least once. One that fails ends its
    thread, and the measurement with its error.
    """
    start, stop = threading.Barrier(len(actions) + 1), threading.Event()
    counts = [0] * len(actions)
    failures: list[Exception] = []

    def work(thread: int) -> None:
        start.wait()
        try:
            while not (counts[thread] and stop.is_set()):
                actions[thread](counts[thread])
                counts[thread] += 1
        except Exception as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(thread,)) for thread in range(len(actions))]
    for thread in threads:
        thread.start()
    start.wait()
    began = time.perf_counter()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sum(counts) / (time.perf_counter() - began)


def process_seconds(arguments: Sequence[str], rounds: int = ROUNDS) -> float:
    """The least processor time of a fresh Python process, from start to exit.

    Other programs make it wait, and hardly make it work more: unlike the time on a clock, this can
    be compared between records.
    """

    # Where byte code is not kept, every start compiles what it imports: no installation is so.
    environment = os.environ | {"PYTHONDONTWRITEBYTECODE": ""}

    def run() -> float:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env=environment,
        )
        assert process.stderr is not None
        said = process.stderr.read()
        _, status, used = os.wait4(process.pid, 0)
        process.stderr.close()
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{' '.join(arguments)}: {said.decode()}")
        return used.ru_utime + used.ru_stime

    run()  # the first one compiles and caches byte code
    return min(run() for _ in range(rounds))


@contextmanager
def peak_memory() -> Iterator[dict[str, float]]:
    """The most memory this process and those it started hold together."""
    import psutil

    measured = {"peak_mb": 0.0}
    done = threading.Event()

    def watch() -> None:
        own = psutil.Process()
        while not done.wait(0.2):
            total = 0
            for process in (own, *own.children(recursive=True)):
                try:
                    total += process.memory_info().rss
                except psutil.Error:
                    continue
            measured["peak_mb"] = max(measured["peak_mb"], total / 2**20)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield measured
    finally:
        done.set()
        watcher.join()
