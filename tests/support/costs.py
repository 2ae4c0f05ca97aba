"""What tests cost: processor time of each test and fixture, with the processes they start.

`make test-costs` runs the suite with `-p tests.support.costs`. Each process that runs tests adds up
its own time, that of children that ended, and, from `/proc`, that of processes still running, as a
JVM or a server does. Work that goes on between two tests counts for the later one. What was
measured is kept in `build/test-costs`, and `python -m tests.support.costs` prints it once more.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).parents[2] / "build" / "test-costs"
TICK = os.sysconf("SC_CLK_TCK")
LINES = 60
KEEP_EVERY_SECONDS = 30.0
STARTS = ("subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.spawn", "os.exec")


class ProcessorTime:
    """Seconds of user and system time that this process and all it started have used so far."""

    def __init__(self) -> None:
        self._started = False
        self._alive: dict[tuple[int, str], tuple[int, float]] = {}  # process: its parent, seconds
        self._orphans = 0.0
        self._spent_looking = 0.0
        sys.addaudithook(self._notice)

    def _notice(self, event: str, _: object) -> None:
        if event in STARTS:
            self._started = True

    def now(self) -> float:
        """Seconds so far, without what it takes to find out."""
        before = time.process_time()
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        running = self._running() if self._started else 0.0
        looked = time.process_time() - before
        total = before + ended.ru_utime + ended.ru_stime + running - self._spent_looking
        self._spent_looking += looked
        return total

    def _running(self) -> float:
        processes = dict(_processes())
        ours = {os.getpid()} | {pid for pid, start in self._alive if (pid, start) in processes}
        while True:
            found = {pid for (pid, _), (parent, _) in processes.items() if parent in ours} - ours
            if not found:
                break
            ours |= found
        ours.discard(os.getpid())
        alive = {process: told for process, told in processes.items() if process[0] in ours}
        # A child's time goes to the parent that waited for it; that of an orphan is lost.
        self._orphans += sum(
            seconds
            for process, (parent, seconds) in self._alive.items()
            if process not in alive and parent != os.getpid() and parent not in ours
        )
        self._alive = alive
        return self._orphans + sum(seconds for _, seconds in alive.values())


def _processes() -> Iterator[tuple[tuple[int, str], tuple[int, float]]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                words = (folder / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            ticks = sum(map(int, words[11:15]))
            yield (int(folder.name), words[19]), (int(words[1]), ticks / TICK)


TIME = ProcessorTime()
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")


class Account:
    """What was spent on what so far."""

    def __init__(self) -> None:
        self.spent: dict[tuple[str, str, str], float] = defaultdict(
            float
        )  # kind, file, name: seconds
        self.total = 0.0
        self.within = [0.0]
        """Seconds of the fixtures that each fixture being made has asked for itself."""
        self._keep_at = 0.0

    def add(self, kind: str, place: str, name: str, seconds: float) -> None:
        self.spent[kind, place, name] += seconds
        self.total += seconds

    def keep(self) -> None:
        """Write it down now and then, so that a run that is killed leaves it, too."""
        if time.monotonic() > self._keep_at:
            FOLDER.mkdir(parents=True, exist_ok=True)
            told = [[*key, seconds] for key, seconds in self.spent.items()]
            (FOLDER / f"{WORKER}-{os.getpid()}.json").write_text(json.dumps(told))
            self._keep_at = time.monotonic() + KEEP_EVERY_SECONDS

    def close(self) -> None:
        self._keep_at = 0.0
        self.keep()


ACCOUNT = Account()


def pytest_configure(config: pytest.Config) -> None:
    if WORKER == "main":
        shutil.rmtree(FOLDER, ignore_errors=True)


def pytest_collection_finish(session: pytest.Session) -> None:
    ACCOUNT.add("collection", WORKER, f"{len(session.items)} tests", TIME.now())


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: Any) -> Generator[None, object, object]:
    before = TIME.now()
    ACCOUNT.within.append(0.0)
    try:
        return (yield)
    finally:
        seconds = TIME.now() - before
        own = seconds - ACCOUNT.within.pop()
        ACCOUNT.within[-1] += seconds
        place = fixturedef.baseid or "plugins and parameters"
        ACCOUNT.add("fixture", place, f"{fixturedef.argname} ({fixturedef.scope})", own)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    place, _, name = item.nodeid.partition("::")
    before, counted = TIME.now(), ACCOUNT.total
    ACCOUNT.add("between tests", WORKER, "", before - counted)
    counted = ACCOUNT.total
    try:
        return (yield)
    finally:
        ACCOUNT.add("test", place, name, TIME.now() - before - (ACCOUNT.total - counted))
        ACCOUNT.keep()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    if ACCOUNT.spent:  # not in the process that hands out tests
        ACCOUNT.add("end", WORKER, "", TIME.now() - ACCOUNT.total)
        ACCOUNT.close()
    if WORKER == "main":
        print("\n" + "\n".join(report()))


def report() -> Iterator[str]:
    """Lines: the total, by kind, by folder, file and fixture, and the dearest tests."""
    rows = [row for file in sorted(FOLDER.glob("*.json")) for row in json.loads(file.read_text())]
    tests = [row for row in rows if row[0] == "test"]
    fixtures = [row for row in rows if row[0] == "fixture"]
    rest = [row for row in rows if row[0] not in ("test", "fixture")]
    yield f"Processor time of {len(tests)} tests: {sum(row[3] for row in rows):.0f} s"
    for title, of, spent in (
        ("kind", lambda row: row[0], rows),
        ("worker", lambda row: f"{row[0]} {row[1]}", rest),
        ("folder", lambda row: "/".join(row[1].split("/")[:2]), tests + fixtures),
        ("file", lambda row: row[1], tests + fixtures),
        ("function", lambda row: f"{row[1]}::{row[2].partition('[')[0]}", tests),
        ("fixture", lambda row: f"{row[1]}::{row[2]}", fixtures),
        ("test", lambda row: f"{row[1]}::{row[2]}", tests),
    ):
        sums: Counter[str] = Counter()
        counts: Counter[str] = Counter()
        for row in spent:
            sums[of(row)] += row[3]
            counts[of(row)] += 1
        yield f"\nBy {title}"
        for name, seconds in sums.most_common(LINES):
            yield f"{seconds:9.2f} s {counts[name]:6}  {name}"


if __name__ == "__main__":
    print("\n".join(report()))
