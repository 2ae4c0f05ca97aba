"""Taking the time.

The best of several rounds is reported: other programs can only make a round slower, so the fastest
one is nearest to what the code costs.
"""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from omnigraph.effects.durability import VARIABLE, configured_durability

ROUNDS = 7


def best_seconds(action: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The fastest of several calls, with the garbage of earlier ones out of the way."""
    best = float("inf")
    for _ in range(rounds):
        gc.collect()
        start = time.perf_counter()
        action()
        best = min(best, time.perf_counter() - start)
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


def process_seconds(arguments: Sequence[str], rounds: int = ROUNDS) -> float:
    """The fastest run of a fresh Python process, from start to exit."""

    def run() -> None:
        subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)

    run()  # the first one compiles and caches byte code
    return best_seconds(run, rounds)


@contextmanager
def durability(setting: str) -> Iterator[None]:
    """Run with one setting of durability."""
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = setting
    configured_durability.cache_clear()
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before
        configured_durability.cache_clear()
