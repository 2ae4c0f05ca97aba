"""Kill the driver of bulk loads at random moments: each load is there as a whole, or not at all.

Run it with `make crash-load RUNS=20`; the tests run it once.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from tempfile import TemporaryDirectory

import omnigraph
from tests.commit.loading import edge, lines, node

ROWS = 40
SCHEMA = "node Item { key: String @key  batch: I32 }\nedge Next: Item -> Item { batch: I32 }"
LOADS = 500
"""More than a driver lives to see."""


def batch(number: int) -> bytes:
    """One load: nodes and edges that belong together."""
    keys = [f"b{number}-{i}" for i in range(ROWS)]
    nodes = [node("Item", key=key, batch=number) for key in keys]
    edges = [edge("Next", keys[i - 1], keys[i], batch=number) for i in range(ROWS)]
    return lines(*nodes, *edges)


def load_forever(uri: str, folder: Path, first: int) -> None:
    """Load one batch after another until killed; a line on stdout says that it has begun."""
    from omnigraph.pipeline.session import SessionSettings, build_session

    spark = build_session(
        SessionSettings("local[2,4]", {"spark.driver.memory": "512m"}, ("-XX:TieredStopAtLevel=1",))
    )
    graph = omnigraph.open(uri)
    for number in range(first, first + LOADS):
        path = folder / f"{number}.jsonl"
        path.write_bytes(batch(number))
        graph.load(path, mode="append", engine="spark", spark=spark)
        if number == first:
            print("loading", flush=True)


def judge(uri: str) -> int:
    """How many loads are there; each must be there as a whole."""
    graph = omnigraph.open(uri)
    counts: Counter[tuple[str, int]] = Counter()
    for line in b"".join(graph.export()).splitlines():
        record = json.loads(line)
        counts["node" if "type" in record else "edge", record["data"]["batch"]] += 1
    batches = {number for _, number in counts}
    for number in batches:
        assert counts["node", number] == counts["edge", number] == ROWS, (number, counts)
    loads = len(graph.list_commits()) - 1
    assert loads == len(batches), f"{loads} commits for {len(batches)} loads"
    assert not graph._kernel.sidecars.names(), "a pending operation was left behind"
    return loads


def kill_once(uri: str, folder: Path, first: int, delay_seconds: float) -> None:
    """Start loads, and kill their driver some time after the first one."""
    child = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.pipeline.crash_load",
            "--child",
            uri,
            str(folder),
            str(first),
        ],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"loading\n", "the driver did not come up"
        time.sleep(delay_seconds)
        assert child.poll() is None, "the driver ended by itself"
    finally:
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        child.stdout.close()  # type: ignore[union-attr]


def run(folder: Path, seed: int, runs: int) -> int:
    """So many kills on one graph; the number of loads that are there in the end."""
    chance = random.Random(seed)
    uri = str(folder / "graph.omni")
    omnigraph.init(uri, SCHEMA)
    loads = 0
    for number in range(runs):
        kill_once(uri, folder, number * LOADS, chance.uniform(0, 3))
        found = judge(uri)
        assert found > loads, "the first load of each driver was acknowledged"
        loads = found
        print(f"run {number + 1}: {loads} loads, all whole", flush=True)
    return loads


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        uri, folder, first = sys.argv[2:]
        load_forever(uri, Path(folder), int(first))
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--runs", type=int, default=20)
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="omnigraph-crash-") as folder:
        run(Path(folder), arguments.seed, arguments.runs)


if __name__ == "__main__":
    main()
