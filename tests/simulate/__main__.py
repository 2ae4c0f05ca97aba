"""`make simulate`: run the schedules of many seeds, and say what they reached and found.

    python -m tests.simulate --first 1 --seeds 1000      # so many seeds
    python -m tests.simulate --first 4711 --seeds 1      # one again, with its trace

A finding is printed with its seed, which alone repeats it.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.simulate.schedule import Company, Coverage, Deck, Outcome, Schedule, alone

PROGRESS_EVERY = 100

NOT_SIMULATED = {
    "lease.before_renew": "leases are renewed when the scheduler says so; tests/crash/test_owners",
    "init.*": "a graph is made before its schedules; tests/crash/test_many_processes",
    "schema_rebase.*, tag_*": "killed at each step in tests/crash",
    "stream.*, pipeline.*": "need Spark; tests/pipeline kills them",
}
"""Failpoints that no schedule stops at, and where they are tested instead."""


def main() -> int:
    """Run the schedules; the exit code is 1 if one of them found something."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulate")
    parser.add_argument("--first", type=int, default=1, help="the first seed")
    parser.add_argument("--seeds", type=int, default=200, help="how many")
    parser.add_argument("--seconds", type=float, default=None, help="begin none after so long")
    parser.add_argument("--at-once", type=int, default=os.cpu_count(), help="schedules at once")
    arguments = parser.parse_args()
    os.environ.setdefault("OMNIGRAPH_DURABILITY", "process")
    began = time.monotonic()
    with TemporaryDirectory(prefix="omnigraph-simulate-", dir=_memory()) as folder:
        with Company() as company:
            places = alone(company, Path(folder))
        deck = Deck(places)
        print(f"{len(deck):,} combinations of operation, stop, interruption and other operation")
        print(f"the first {deck.cells:,} seeds interrupt each cell once with a pause and a kill")
        coverage = Coverage({name: {*passed} for name, passed in places.items()})
        findings = []
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        limit = None if arguments.seconds is None else began + arguments.seconds
        for outcome in _outcomes(deck, seeds, Path(folder), arguments.at_once, limit):
            coverage.add(outcome)
            if coverage.schedules % PROGRESS_EVERY == 0:
                print(f"{coverage.schedules:,} schedules", file=sys.stderr, flush=True)
            if outcome.faults:
                findings.append(outcome.setting.seed)
            if outcome.faults or len(seeds) == 1:
                print(outcome, flush=True)
    last = arguments.first + coverage.schedules - 1
    print(f"seeds {arguments.first} to {last}, {time.monotonic() - began:.0f} s")
    print(coverage)
    for name, where in NOT_SIMULATED.items():
        print(f"not simulated: {name}: {where}")
    print(f"findings: {len(findings)} {findings[:20] if findings else ''}")
    return 1 if findings else 0


def _outcomes(
    deck: Deck, seeds: range, folder: Path, at_once: int, limit: float | None
) -> Iterator[Outcome]:
    """Of every seed in order, several at once, each in processes and a folder of its own."""

    def share(number: int) -> Iterator[Outcome]:
        place = folder / str(number)
        place.mkdir(exist_ok=True)
        with Company() as company:
            for seed in seeds[number::at_once]:
                if limit is not None and time.monotonic() > limit:
                    return
                yield Schedule(deck.setting(seed), company, place).run()

    shares = [share(number) for number in range(at_once)]
    with ThreadPoolExecutor(at_once) as pool:
        while True:
            turn = [outcome for outcome in pool.map(_next, shares) if outcome is not None]
            yield from turn
            if len(turn) < at_once:
                return


def _next(outcomes: Iterator[Outcome]) -> Outcome | None:
    return next(outcomes, None)


def _memory() -> str | None:
    """A folder in memory, where there is one: the schedules write many small files."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


if __name__ == "__main__":
    sys.exit(main())
