"""Three processes that write at once, and a parent that kills them at random: `make crash`.

    python -m tests.crash.soak --seed 7 --seconds 120

Afterwards every acknowledged write must be there, every other one there entirely or not at all, and
the graph must be whole. The exit code is 1 if anything is not as it must be.

With `--leases remote` the processes know of each other only what an object store would tell them,
and the parent also puts some to sleep for longer than their leases last.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from random import Random
from typing import Any

from omnigraph.effects.failpoints import VARIABLE, Failpoint
from omnigraph.graph import init
from tests.crash import soak_worker
from tests.crash.operations import LEASES_VARIABLE
from tests.crash.soak_judge import Report, judge
from tests.crash.soak_model import SCHEMA, SHARED
from tests.support.forked import FORK_SERVER

WORKERS = 3
KILL_PAUSE_SECONDS = (0.05, 0.6)
ARMED_SHARE = 0.3
"""How many of the processes also carry a failpoint to die at."""
DEADLY = {
    "recovery",
    "mutation",
    "group",
    "graph_publish",
    "branch_create",
    "branch_delete",
    "fork",
}
"""The failpoints that are passed in a soak, by the first part of their names."""
SETTINGS = {
    "OMNIGRAPH_DURABILITY": "process",
    # Often, so that upkeep is interrupted too.
    "OMNIGRAPH_MANIFEST_COMPACT_EVERY": "12",
    "OMNIGRAPH_TABLE_COMPACT_EVERY": "10",
    "LANCE_LOG": "error",
}
REMOTE_TTL_MS = 600
REMOTE_SETTINGS = {
    LEASES_VARIABLE: "remote",
    "OMNIGRAPH_LEASE_TTL_MS": str(REMOTE_TTL_MS),
    "OMNIGRAPH_LEASE_WAIT_MS": "2000",
}
SLEEP_SHARE = 0.4
"""How many victims are put to sleep instead of killed, with remote leases."""


class Soak:
    """The parent of the workers."""

    def __init__(
        self,
        directory: Path,
        seed: str,
        seconds: float,
        *,
        remote: bool = False,
        workers: int = WORKERS,
    ) -> None:
        self.root = directory / "graph.omni"
        self.report = Report(seed, seconds)
        self._remote = remote
        self._workers = workers
        self._settings = SETTINGS | (REMOTE_SETTINGS if remote else {})
        self._journals = [directory / f"worker-{n}.jsonl" for n in range(workers)]
        self._dice = Random(f"{seed}/parent")
        self._running: dict[int, Any] = {}
        self._points = [
            point
            for point in Failpoint
            if point.partition(".")[0] in DEADLY or point is Failpoint.LEASE_AFTER_TAKEOVER
        ]

    def run(self) -> Report:
        """Make the graph, let the workers loose, kill them, and judge."""
        init(self.root, SCHEMA).create_branch(SHARED)
        try:
            self._torment()
        finally:
            # Whatever happened here, nobody is left behind to write on, asleep or awake.
            for number in self._running:
                self._kill(number)
        self._judge()
        return self.report

    def _torment(self) -> None:
        deadline = time.monotonic() + self.report.seconds
        for number in range(self._workers):
            self._start(number)
        while time.monotonic() < deadline:
            time.sleep(self._dice.uniform(*KILL_PAUSE_SECONDS))
            self._replace_the_dead()
            victim = self._dice.randrange(self._workers)
            if self._remote and self._dice.random() < SLEEP_SHARE:
                self._put_to_sleep(victim)
            else:
                self._kill(victim)
            self._replace_the_dead()

    def _start(self, number: int) -> None:
        armed = ""
        if self._dice.random() < ARMED_SHARE:
            armed = f"{self._dice.choice(self._points)}=kill@{self._dice.randint(1, 4)}"
        place = (str(self.root), str(self._journals[number]))
        settings = {**os.environ, **self._settings, VARIABLE: armed}
        process = FORK_SERVER.Process(
            target=soak_worker.forked, args=(*place, self.report.seed, number, settings)
        )
        process.start()
        self._running[number] = process
        self.report.processes += 1

    def _kill(self, number: int) -> None:
        process = self._running[number]
        if self._signal(process, signal.SIGKILL):
            process.join()
            self.report.kills += 1

    def _put_to_sleep(self, number: int) -> None:
        """Stop a process for longer than anyone waits for it, then let it go on as if nothing was.

        Whatever it was about to do it does now, although its lease has been taken over.
        """
        process = self._running[number]
        if self._signal(process, signal.SIGSTOP):
            time.sleep(self._dice.uniform(1.0, 2.5) * REMOTE_TTL_MS / 1000)
            self._signal(process, signal.SIGCONT)
            self.report.sleeps += 1

    def _signal(self, process: Any, number: signal.Signals) -> bool:
        """Send a signal; False if the process died at a failpoint before."""
        if process.exitcode is not None:
            return False
        try:
            os.kill(process.pid, number)
        except ProcessLookupError:
            return False
        return True

    def _replace_the_dead(self) -> None:
        for number, process in list(self._running.items()):
            process.join(0)
            if process.exitcode is None:
                continue
            if process.exitcode != -signal.SIGKILL:
                self.report.wrong.append(f"worker {number} ended with {process.exitcode}")
            self._start(number)

    def _judge(self) -> None:
        entries = [
            entry
            for number, journal in enumerate(self._journals)
            for entry in soak_worker.read_journal(journal, number)
        ]
        self.report.killed_at_failpoints = self.report.processes - self.report.kills
        outcomes: Mapping[str, int] = Counter(entry.outcome for entry in entries)
        self.report.begun = len(entries)
        self.report.acknowledged = outcomes.get("done", 0)
        self.report.refused = outcomes.get("refused", 0)
        judge(self.root, entries, self.report)


def main(arguments: list[str]) -> int:
    """Run a soak and print its report."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seed", default="7")
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--workers", type=int, default=WORKERS, help="more of them meet in groups")
    parser.add_argument("--leases", choices=["local", "remote"], default="local")
    options = parser.parse_args(arguments)
    remote = options.leases == "remote"
    os.environ.update(SETTINGS)
    directory = Path(tempfile.mkdtemp(prefix="omnigraph-soak-"))
    soak = Soak(directory, options.seed, options.seconds, remote=remote, workers=options.workers)
    report = soak.run()
    print(report)
    if report.discrepancies:
        for discrepancy in report.discrepancies[:20]:
            print(discrepancy, file=sys.stderr)
        print(f"the graph and the journals are kept in {directory}", file=sys.stderr)
        return 1
    shutil.rmtree(directory)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
