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
from omnigraph.graph import LoadObserver, SparkOptions
from omnigraph.loading.executors import StageProgress
from omnigraph.model.receipts import LoadMode
from tests.commit.loading import lines, node

ROWS = 40
SCHEMA = "node Item { key: String @key  round: I32 }\nedge Next: Item -> Item { round: I32 }"
LOADS = 500
"""More than a driver lives to see."""
STAGE_VARIABLE = "CRASH_IN_STAGE"
"""The stage in which a driver kills itself during its second load."""


def batch(number: int, round: int) -> bytes:
    """One load: nodes and edges that belong together."""
    keys = [f"b{number}-{i}" for i in range(ROWS)]
    nodes = [node("Item", key=key, round=round) for key in keys]
    edges = [
        {
            "edge": "Next",
            "from": keys[i - 1],
            "to": keys[i],
            "data": {"id": keys[i], "round": round},
        }
        for i in range(ROWS)
    ]
    return lines(*nodes, *edges)


def load_forever(uri: str, folder: Path, first: int) -> None:
    """Load batches and upsert them until killed; a line on stdout says that it has begun."""
    from omnigraph.pipeline.spark.session import SessionSettings, build_session

    spark = build_session(
        SessionSettings("local[2,4]", {"spark.driver.memory": "512m"}).for_a_load()
    )
    graph = omnigraph.open(uri)
    deadly = os.environ.get(STAGE_VARIABLE)

    def watch(progress: StageProgress) -> None:
        if progress.stage == deadly and not progress.finished and loads > 0:
            os.kill(os.getpid(), signal.SIGKILL)

    for loads in range(LOADS):
        number, round = first + loads // 2, loads % 2
        path = folder / f"{number}-{round}.jsonl"
        path.write_bytes(batch(number, round))
        mode: LoadMode = "merge" if round else "append"
        graph.load(
            path,
            mode=mode,
            engine="spark",
            spark=SparkOptions(spark),
            observer=LoadObserver(on_stage=watch),
        )
        if not loads:
            print("loading", flush=True)


def judge(uri: str) -> int:
    """How many loads are there; each must be there as a whole."""
    graph = omnigraph.open(uri)
    counts: Counter[tuple[str, str]] = Counter()
    rounds: dict[str, set[int]] = {}
    for line in b"".join(graph.export()).splitlines():
        record = json.loads(line)
        data = record["data"]
        number = data["id"].partition("-")[0]
        counts["node" if "type" in record else "edge", number] += 1
        rounds.setdefault(number, set()).add(data["round"])
    for number, found in rounds.items():
        assert counts["node", number] == counts["edge", number] == ROWS, (number, counts)
        assert len(found) == 1, f"a part of an upsert of {number} is there"
    # An operation that was undone has left a commit of its own that says so.
    loads = sum(commit.kind == "load" for commit in graph.list_commits())
    expected = sum(1 + max(found) for found in rounds.values())
    assert loads == expected, f"{loads} commits for {expected} loads"
    assert not graph._kernel.sidecars.names(), "a pending operation was left behind"
    return loads


def start(uri: str, folder: Path, first: int, **environment: str) -> subprocess.Popen[bytes]:
    """A driver that has done its first load."""
    child = subprocess.Popen(
        [
            *(sys.executable, "-m", "tests.pipeline.crash_load"),
            *("--child", uri, str(folder), str(first)),
        ],
        stdout=subprocess.PIPE,
        start_new_session=True,
        env={**os.environ, "OMNIGRAPH_SPARK_THRESHOLD_BYTES": "0", **environment},
    )
    assert child.stdout is not None
    if child.stdout.readline() != b"loading\n":
        child.kill()
        child.wait()
        child.stdout.close()
        raise AssertionError("the driver did not come up")
    return child


def end(child: subprocess.Popen[bytes], delay_seconds: float | None = None) -> None:
    """Kill a driver some time from now, or wait until it has killed itself."""
    assert child.stdout is not None
    try:
        if delay_seconds is None:
            assert child.wait(100) == -signal.SIGKILL, "the driver did not die"
        else:
            time.sleep(delay_seconds)
            assert child.poll() is None, "the driver ended by itself"
    finally:
        child.kill()
        child.wait()
        child.stdout.close()


def run(folder: Path, seed: int, runs: int) -> int:
    """So many kills on one graph; the number of loads that are there in the end."""
    chance = random.Random(seed)
    uri = str(folder / "graph.omni")
    omnigraph.init(uri, SCHEMA)
    loads = 0
    for number in range(runs):
        end(start(uri, folder, number * LOADS), chance.uniform(0, 4))
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
