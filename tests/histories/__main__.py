"""Processes write and read one graph while others are killed, stopped and restarted: `make jepsen`.

    python -m tests.histories --seconds 120 [--s3] [--seed 7]

Two processes use the SDK, one the command line, one a server over HTTP, which is a process as well.
The parent kills one now and then, or stops it for longer than its lease lasts. The history of all
invocations and answers is then checked for linearizability, key by key on each branch.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import ExitStack, suppress
from pathlib import Path
from random import Random

from omnigraph.graph import init, open_graph
from tests.effects import s3_server
from tests.histories.checker import NEVER, Operation, violations
from tests.histories.worker import BRANCHES, SCHEMA, Python

FACES = ("sdk", "sdk", "cli", "http")
TTL_MS = 1_500
PAUSE_SECONDS = (1.0, 4.0)
STOPPED_SECONDS = (0.2, 2.5)
KILLED_SHARE = 0.6


class Processes:
    """Those that use the graph, and the server; each is started again when it was killed."""

    def __init__(self, uri: str, folder: Path, random: Random) -> None:
        self._uri = uri
        self._folder = folder
        self._random = random
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.done: Counter[str] = Counter()
        self._running = [self._start(number) for number in range(len(FACES) + 1)]

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        if number == len(FACES):
            bind = f"127.0.0.1:{self._port}"
            words = ["-m", "omnigraph.cli", "serve", "--store", self._uri, "--bind", bind]
        else:
            face = FACES[number]
            served = f"http://127.0.0.1:{self._port}/graphs/default"
            place = served if face == "http" else self._uri
            journal = str(self._folder / f"{number}.jsonl")
            words = ["-m", "tests.histories.worker", face, place, journal, str(number)]
        log = (self._folder / f"{number}.log").open("ab")
        with log:
            return subprocess.Popen(
                [sys.executable, *words], stdout=log, stderr=log, start_new_session=True
            )

    def disturb(self) -> None:
        """Kill one and start it again, or stop it for a while."""
        number = self._random.randrange(len(self._running))
        victim = self._running[number]
        if self._random.random() < KILLED_SHARE:
            self._signal(victim, signal.SIGKILL)
            victim.wait()
            self.done["killed"] += 1
            self._running[number] = self._start(number)
            return
        self._signal(victim, signal.SIGSTOP)
        time.sleep(self._random.uniform(*STOPPED_SECONDS))
        self._signal(victim, signal.SIGCONT)
        self.done["stopped"] += 1

    def end(self) -> None:
        for each in self._running:
            self._signal(each, signal.SIGKILL)
            each.wait()

    @staticmethod
    def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
        """To the process and the commands that it started."""
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)


def history(folder: Path) -> list[Operation]:
    """What all journals say."""
    found: list[Operation] = []
    for journal in sorted(folder.glob("*.jsonl")):
        entries: dict[str, dict[str, object]] = {}
        for line in journal.read_text(encoding="utf-8").splitlines():
            try:
                entry = json.loads(line)
            except ValueError:
                continue  # the last line of one that was killed
            entries.setdefault(entry["id"], {}).update(entry)
        asked = (each for each in entries.values() if "refused" not in each and "began" in each)
        found += map(_operation, asked)
    return found


def _operation(entry: dict[str, object]) -> Operation:
    kind, value = str(entry["kind"]).partition(" ")[0], entry["value"]
    if isinstance(value, list):
        value = tuple(value)
    ended = float(str(entry.get("ended", NEVER)))
    return Operation(kind, str(entry["key"]), value, float(str(entry["began"])), ended)  # type: ignore[arg-type]


def final_reads(uri: str, keys: set[str]) -> list[Operation]:
    """What is there in the end, once everything is settled."""
    deadline = time.monotonic() + 60
    graph = open_graph(uri)
    while any(each.outcome == "live" for each in graph.recover()):
        assert time.monotonic() < deadline, "an operation of a dead process was not settled"
        time.sleep(0.2)
    face, found = Python(graph, is_served=False), []
    for name in sorted(keys):
        branch, _, key = name.partition("/")
        began = time.monotonic()
        value = face.read(branch, key) if key[0] == "r" else face.read_log(branch, key)
        value = tuple(value) if isinstance(value, list) else value
        found.append(Operation("read", name, value, began, time.monotonic()))
    return found


def run(uri: str, seconds: float, seed: int) -> int:
    """Run, check and tell; 1 if a history is not linearizable."""
    folder, random = Path(tempfile.mkdtemp(prefix="histories-")), Random(seed)
    graph = init(uri, SCHEMA)
    graph.create_branch(BRANCHES[1])
    graph.close()
    processes = Processes(uri, folder, random)
    try:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(random.uniform(*PAUSE_SECONDS))
            processes.disturb()
    finally:
        processes.end()
    operations = history(folder)
    operations += final_reads(uri, {each.key for each in operations})
    bad = violations(operations)
    kinds = Counter(each.kind for each in operations if each.is_answered)
    unknown = sum(not each.is_answered for each in operations)
    disturbed = ", ".join(f"{n} {what}" for what, n in sorted(processes.done.items()))
    print(f"{dict(kinds)} answered, {unknown} without an answer; processes: {disturbed}")
    keys = len({each.key for each in operations})
    print(f"{keys} keys on {len(BRANCHES)} branches, {len(bad)} of them not linearizable")
    for key, each in bad.items():
        print(f"\n{key}:", *sorted(each, key=lambda one: one.began), sep="\n  ")
    if bad:
        print(f"journals: {folder}")
        return 1
    shutil.rmtree(folder)
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--s3", action="store_true", help="on the S3 API instead of the disk")
    given = parser.parse_args()
    os.environ["OMNIGRAPH_LEASE_TTL_MS"] = str(TTL_MS)
    os.environ["OMNIGRAPH_UNAUTHENTICATED"] = "1"
    with ExitStack() as until_done:
        if given.s3:
            endpoint = until_done.enter_context(s3_server.running_s3())
            os.environ.update(s3_server.environment(endpoint))
            s3_server.create_bucket(endpoint, "histories")
            return run("s3://histories/graph", given.seconds, given.seed)
        place = until_done.enter_context(tempfile.TemporaryDirectory(prefix="histories-"))
        return run(f"{place}/graph.omni", given.seconds, given.seed)


if __name__ == "__main__":
    sys.exit(main())
