"""`make simulate`: run the schedules of many seeds, and say what they reached and found.

    python -m tests.simulate --first 1 --seeds 1000      # so many seeds
    python -m tests.simulate --first 4711 --seeds 1      # one again, with its trace
    python -m tests.simulate --seeds 10000 --record bench/records/schedules.json --seconds 3600

A finding is printed with its seed, which alone repeats it. With a record, a run goes on where the
last one has stopped: cells that no schedule has reached come first. A signal, as of Ctrl-C, ends it
once the schedules under way are over.
"""

from __future__ import annotations

import argparse
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory

from tests.simulate.record import Record
from tests.simulate.schedule import (
    CELL_ACTS,
    Company,
    Coverage,
    Deck,
    Outcome,
    Schedule,
    alone,
)
from tests.support.forked import GARBAGE_THRESHOLDS

PROGRESS_EVERY = 100
NOTED_EVERY_SECONDS = 30

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
    parser.add_argument(
        "--at-once",
        type=int,
        default=(os.cpu_count() or 1) + 1,
        help="schedules at once; one more than processors, since they wait for each other's judge",
    )
    parser.add_argument("--record", type=Path, help="go on with this record, and add to it")
    arguments = parser.parse_args()
    os.environ.setdefault("OMNIGRAPH_DURABILITY", "process")
    gc.freeze()
    gc.set_threshold(*GARBAGE_THRESHOLDS)
    began = time.monotonic()
    record = Record() if arguments.record is None else Record.read(arguments.record)
    with TemporaryDirectory(prefix="omnigraph-simulate-", dir=_memory()) as folder:
        with Company() as company:
            places = alone(company, Path(folder))
        deck = Deck(places)
        print(f"{len(deck):,} combinations of operation, stop, interruption and other operations")
        print(f"the first {deck.directed:,} seeds interrupt each cell once with a pause and a kill")
        coverage = Coverage(places, record.schedules, record.reached)
        for run in record.runs:
            coverage.answers.update(run.answers)
        seeds = range(arguments.first, arguments.first + arguments.seeds)
        chosen = iter(seeds) if arguments.record is None else left_of(deck, seeds, record)
        stop = threading.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda *_: stop.set())
        if arguments.seconds is not None:
            timer = threading.Timer(arguments.seconds, stop.set)
            timer.daemon = True
            timer.start()
        run, noted = record.begin(places, deck.digest), began
        for outcome in _outcomes(deck, chosen, Path(folder), arguments.at_once, stop):
            coverage.add(outcome)
            run.add(outcome)
            if coverage.schedules % PROGRESS_EVERY == 0:
                print(f"{coverage.schedules:,} schedules", file=sys.stderr, flush=True)
            if outcome.faults or len(seeds) == 1:
                print(outcome, flush=True)
            if arguments.record is not None and time.monotonic() > noted + NOTED_EVERY_SECONDS:
                run.seconds, noted = (
                    round(run.seconds + time.monotonic() - noted, 1),
                    time.monotonic(),
                )
                record.write(arguments.record, deck)
        run.seconds = round(run.seconds + time.monotonic() - noted, 1)
        if arguments.record is not None:
            record.write(arguments.record, deck)
    print(f"seeds {run.seeds}, {time.monotonic() - began:.0f} s")
    print(coverage)
    for name, where in NOT_SIMULATED.items():
        print(f"not simulated: {name}: {where}")
    print(f"findings: {len(record.findings)}")
    for finding in record.findings:
        print(finding)
    return 1 if run.findings else 0


def left_of(deck: Deck, seeds: range, record: Record) -> Iterator[int]:
    """The seeds that have not run yet: first those about cells that no schedule has reached.

    What is reached while they run counts as well, so some of them are left for the end.
    """
    done = record.done(deck.digest)
    for seed in seeds:
        setting = deck.setting(seed)
        reached = record.reached[setting.act] if setting.act in CELL_ACTS else set()
        if seed not in done and not deck.cells(setting) <= reached:
            done.add(seed)
            yield seed
    yield from (seed for seed in seeds if seed not in done)


def _outcomes(
    deck: Deck, seeds: Iterator[int], folder: Path, at_once: int, stop: threading.Event
) -> Iterator[Outcome]:
    """Of every seed, several at once, each in processes and a folder of its own.

    Once told to stop, none is begun.
    """
    turn = threading.Lock()
    outcomes: SimpleQueue[Outcome | None] = SimpleQueue()

    def work(number: int) -> None:
        place = folder / str(number)
        place.mkdir(exist_ok=True)
        try:
            with Company() as company:
                while not stop.is_set():
                    with turn:
                        seed = next(seeds, None)
                    if seed is None:
                        return
                    outcomes.put(Schedule(deck.setting(seed), company, place).run())
        finally:
            outcomes.put(None)

    with ThreadPoolExecutor(at_once) as pool:
        works = [pool.submit(work, number) for number in range(at_once)]
        busy = at_once
        while busy:
            outcome = outcomes.get()
            if outcome is None:
                busy -= 1
            else:
                yield outcome
        for each in works:
            each.result()


def _memory() -> str | None:
    """A folder in memory, where there is one: the schedules write many small files."""
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


if __name__ == "__main__":
    sys.exit(main())
