"""Three processes that write at once, and a parent that kills them at random: `make crash`.

    python -m tests.crash.soak --seed 7 --seconds 120

Afterwards every acknowledged write must be there, every other one there entirely or not at all, and
the graph must be whole. The exit code is 1 if anything is not as it must be.

With `--leases remote` the processes know of each other only what an object store would tell them,
and the parent also puts some to sleep for longer than their leases last.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.crash.operations import LEASES_VARIABLE

WORKERS = 3
KILL_PAUSE_SECONDS = (0.05, 0.6)
ARMED_SHARE = 0.3
"""How many of the processes also carry a failpoint to die at."""
DEADLY = {"recovery", "mutation", "graph_publish", "branch_create", "branch_delete", "fork"}
"""The failpoints that are passed in a soak, by the first part of their names."""
SETTINGS = {
    "OMNIGRAPH_DURABILITY": "process",
    # Often, so that upkeep is interrupted too.
    "OMNIGRAPH_MANIFEST_COMPACT_EVERY": "12",
    "OMNIGRAPH_TABLE_COMPACT_EVERY": "10",
}
REMOTE_TTL_MS = 600
REMOTE_SETTINGS = {
    LEASES_VARIABLE: "remote",
    "OMNIGRAPH_LEASE_TTL_MS": str(REMOTE_TTL_MS),
    "OMNIGRAPH_LEASE_WAIT_MS": "2000",
}
SLEEP_SHARE = 0.4
"""How many victims are put to sleep instead of killed, with remote leases."""


@dataclass
class Report:
    """What a soak did and found."""

    seed: str
    seconds: float
    processes: int = 0
    kills: int = 0
    killed_at_failpoints: int = 0
    sleeps: int = 0
    begun: int = 0
    acknowledged: int = 0
    refused: int = 0
    branches: int = 0
    commits: int = 0
    recoveries: int = 0
    lost: list[str] = field(default_factory=list)
    partial: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    @property
    def discrepancies(self) -> list[str]:
        return [*self.lost, *self.partial, *self.wrong]

    def __str__(self) -> str:
        killed = f"{self.kills} kills, {self.killed_at_failpoints} deaths at failpoints"
        killed += f", {self.sleeps} sleeps" if self.sleeps else ""
        lines = [
            f"seed {self.seed}, {self.seconds:g} s: {self.processes} processes, {killed}",
            f"{self.begun} operations: {self.acknowledged} acknowledged, {self.refused} refused",
            f"{self.branches} branches, {self.commits} commits, {self.recoveries} recoveries",
            f"lost {len(self.lost)}, partial {len(self.partial)}, wrong {len(self.wrong)}",
        ]
        lines += [f"seed {self.seed}: {found}" for found in self.discrepancies[:1]]
        return "\n".join(lines)


# --- the run --------------------------------------------------------------------------------------


class Soak:
    """The parent of the workers."""

    def __init__(self, directory: Path, seed: str, seconds: float, *, remote: bool = False) -> None:
        from omnigraph.effects.failpoints import Failpoint

        self.root = directory / "graph.omni"
        self.report = Report(seed, seconds)
        self._remote = remote
        self._journals = [directory / f"worker-{n}.jsonl" for n in range(WORKERS)]
        self._dice = Random(f"{seed}/parent")
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(["tests.crash.soak_worker"])
        self._running: dict[int, Any] = {}
        self._points = [
            point
            for point in Failpoint
            if point.partition(".")[0] in DEADLY or point is Failpoint.LEASE_AFTER_TAKEOVER
        ]

    def run(self) -> Report:
        """Make the graph, let the workers loose, kill them, and judge."""
        from omnigraph.graph import init
        from tests.crash.soak_model import SCHEMA, SHARED

        init(self.root, SCHEMA).create_branch(SHARED)
        deadline = time.monotonic() + self.report.seconds
        for number in range(WORKERS):
            self._start(number)
        while time.monotonic() < deadline:
            time.sleep(self._dice.uniform(*KILL_PAUSE_SECONDS))
            self._replace_the_dead()
            victim = self._dice.randrange(WORKERS)
            if self._remote and self._dice.random() < SLEEP_SHARE:
                self._put_to_sleep(victim)
            else:
                self._kill(victim)
            self._replace_the_dead()
        for number in range(WORKERS):
            self._kill(number)
        self._judge()
        return self.report

    def _start(self, number: int) -> None:
        from tests.crash import soak_worker

        armed = ""
        if self._dice.random() < ARMED_SHARE:
            armed = f"{self._dice.choice(self._points)}=kill@{self._dice.randint(1, 4)}"
        arguments = (str(self.root), str(self._journals[number]), self.report.seed, number, armed)
        process = self._context.Process(target=soak_worker.forked, args=arguments)
        process.start()
        self._running[number] = process
        self.report.processes += 1

    def _kill(self, number: int) -> None:
        process = self._running[number]
        if process.exitcode is None:
            os.kill(process.pid, signal.SIGKILL)
            process.join()
            self.report.kills += 1

    def _put_to_sleep(self, number: int) -> None:
        """Stop a process for longer than anyone waits for it, then let it go on as if nothing was.

        Whatever it was about to do it does now, although its lease has been taken over.
        """
        process = self._running[number]
        os.kill(process.pid, signal.SIGSTOP)
        time.sleep(self._dice.uniform(1.0, 2.5) * REMOTE_TTL_MS / 1000)
        os.kill(process.pid, signal.SIGCONT)
        self.report.sleeps += 1

    def _replace_the_dead(self) -> None:
        for number, process in list(self._running.items()):
            process.join(0)
            if process.exitcode is None:
                continue
            if process.exitcode != -signal.SIGKILL:
                self.report.wrong.append(f"worker {number} ended with {process.exitcode}")
            self._start(number)

    def _judge(self) -> None:
        from tests.crash.soak_judge import judge
        from tests.crash.soak_worker import read_journal

        entries = [
            entry
            for number, journal in enumerate(self._journals)
            for entry in read_journal(journal, number)
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
    parser.add_argument("--leases", choices=["local", "remote"], default="local")
    options = parser.parse_args(arguments)
    remote = options.leases == "remote"
    os.environ.update(SETTINGS | (REMOTE_SETTINGS if remote else {}))
    directory = Path(tempfile.mkdtemp(prefix="omnigraph-soak-"))
    report = Soak(directory, options.seed, options.seconds, remote=remote).run()
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
