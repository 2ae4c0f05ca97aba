"""Kill drivers of a stream into a graph, and start it again: every row is there once.

The rows have no key, so that a batch that is written twice shows. Run it with
`make crash-stream BATCHES=100 KILLS=5`; the tests kill one driver.
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
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import omnigraph
from omnigraph.loading.request import load_receipt

ROWS = 50
SCHEMA = "node Reading { number: I64  batch: I32 }"
COLUMNS = "number long, batch int"


def write_input(folder: Path, batches: int) -> None:
    """One file for each batch."""
    folder.mkdir()
    for batch in range(batches):
        numbers = range(batch * ROWS, (batch + 1) * ROWS)
        rows = {"number": [*numbers], "batch": pa.array([batch] * ROWS, pa.int32())}
        path = folder / f"{batch:05}.parquet"
        pq.write_table(pa.table(rows), path)
        os.utime(path, (batch, batch))  # Spark takes the oldest first


def stream(spark: Any, uri: str, folder: Path, sink: str) -> None:
    """Append all files, one a batch; ``sink`` is `into` or `format`."""
    frame = spark.readStream.schema(COLUMNS).option("maxFilesPerTrigger", 1)
    frame = frame.parquet(str(folder / "input"))
    checkpoint = str(folder / "checkpoint")
    if sink == "into":
        graph = omnigraph.open(uri)
        graph.stream_into(
            frame, "Reading", mode="append", checkpoint=checkpoint, available_now=True
        ).await_end()
        return
    writing = frame.writeStream.format("omnigraph").option("type", "Reading")
    writing = writing.option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writing.start(uri).awaitTermination()


def judge(uri: str, folder: Path, *, is_live: bool = False) -> int:
    """How many files were written: each row once, and each batch as one commit with all its rows.

    A batch takes more than one file if a driver was killed after Spark's file source had noted a
    file and before the query had noted the batch that takes it: the next batch then has that file
    and its own. The checkpoint says how many files each batch took.
    """
    graph = omnigraph.open(uri)
    table = graph.table("Reading")
    rows = table.to_arrow()
    assert len(set(rows["number"].to_pylist())) == rows.num_rows, "rows are there twice"
    files = Counter(rows["batch"].to_pylist())
    assert set(files.values()) <= {ROWS}, "a part of a file is there"
    lineage = graph._opened.state("main").lineage()
    pinned = next(each for each in lineage if each.commit_id == table.graph_commit_id)
    # A commit that came after the rows were read is not judged.
    commits = [each for each in lineage if each.commit_seq <= pinned.commit_seq]
    loads = [each for each in commits if each.kind == "load"]
    keys = [each.operation_id or "" for each in loads]
    assert len(set(keys)) == len(keys), f"a batch was committed twice: {keys}"
    brought = [load_receipt(each).nodes[0].inserted for each in loads]
    assert sum(brought) == rows.num_rows, f"{brought} for {rows.num_rows} rows"
    ends = _source_offsets(folder / "checkpoint")
    for key, count in zip(keys, brought, strict=True):
        number = int(key.rpartition(":")[2])
        if number in ends and number - 1 in ends:
            taken = ends[number] - ends[number - 1]
            assert count == taken * ROWS, f"batch {number} took {taken} files and has {count} rows"
    if not is_live:
        totals = [_count(graph, each.commit_id) for each in commits]
        grown = [new - old for new, old in zip(totals, [*totals[1:], 0], strict=True)]
        assert [each for each in grown if each] == brought, "a receipt is not of its commit"
    return len(files)


def _source_offsets(checkpoint: Path) -> dict[int, int]:
    """The last file of each batch that the checkpoint still has; before the first one, none."""
    found = {-1: -1}
    for path in (checkpoint / "offsets").glob("[0-9]*"):
        found[int(path.name)] = json.loads(path.read_text().splitlines()[-1])["logOffset"]
    return found


def _count(graph: omnigraph.Graph, commit_id: str) -> int:
    count: int = graph.table("Reading", snapshot=commit_id, columns=["id"]).to_arrow().num_rows
    return count


def start(uri: str, folder: Path, sink: str, **environment: str) -> subprocess.Popen[bytes]:
    """A driver that streams to the end, unless it is killed."""
    with (folder / "driver.log").open("wb") as log:
        return subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.pipeline.crash_stream",
                "--child",
                uri,
                str(folder),
                sink,
            ],
            start_new_session=True,
            stderr=log,
            env={**os.environ, **environment},
        )


def end(child: subprocess.Popen[bytes]) -> None:
    """Wait until a driver has gone, and its JVM and workers after it."""
    child.wait(1_200)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.killpg(child.pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    raise AssertionError("the JVM outlived its driver")


def run(folder: Path, seed: int, batches: int, kills: int) -> int:
    """One stream that is killed so often; how many drivers it took."""
    chance = random.Random(seed)
    uri = str(folder / "graph.omni")
    omnigraph.init(uri, SCHEMA)
    write_input(folder / "input", batches)
    drivers, killed, before = 0, 0, 0
    while True:
        child = start(uri, folder, chance.choice(("into", "format")))
        drivers += 1
        with child_ended(child):
            killed += _kill(child, uri, folder, before, batches, kills - killed, chance)
        before = judge(uri, folder)
        print(f"driver {drivers}: {before} of {batches} files, each once", flush=True)
        if child.returncode not in (0, -signal.SIGKILL):
            print((folder / "driver.log").read_text("utf-8"), flush=True)
        if child.returncode == 0 and before == batches:
            assert killed == kills, f"only {killed} drivers were killed: give it more batches"
            return drivers


def _kill(
    child: subprocess.Popen[bytes],
    uri: str,
    folder: Path,
    before: int,
    batches: int,
    kills_left: int,
    chance: random.Random,
) -> bool:
    """Kill a driver once it has written a part of what is left, at a random moment of a batch."""
    if not kills_left:
        return False
    goal = before + chance.randint(1, max(1, (batches - before) // (kills_left + 1)))
    while child.poll() is None and judge(uri, folder, is_live=True) < goal:
        time.sleep(0.05)
    time.sleep(chance.uniform(0, 0.4))
    if child.poll() is not None:
        return False
    child.kill()
    return True


@contextmanager
def child_ended(child: subprocess.Popen[bytes]) -> Iterator[None]:
    """A block after which a driver has ended, by itself unless the block fails."""
    try:
        yield
    except BaseException:
        child.kill()
        raise
    finally:
        end(child)


def main() -> None:
    if sys.argv[1:2] == ["--child"]:
        from omnigraph.pipeline.spark.session import SessionSettings, build_session

        uri, folder, sink = sys.argv[2:]
        settings = SessionSettings("local[2,4]", {"spark.driver.memory": "512m"})
        stream(build_session(settings.for_a_load()), uri, Path(folder), sink)
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--kills", type=int, default=5)
    arguments = parser.parse_args()
    with TemporaryDirectory(prefix="omnigraph-crash-") as folder:
        run(Path(folder), arguments.seed, arguments.batches, arguments.kills)


if __name__ == "__main__":
    main()
