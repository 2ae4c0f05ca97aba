"""Loads much larger than the memory they get."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph
from tests.crash.processes import ROOT
from tests.support.budgets import budget

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SCHEMA = "node Stop { code: String @key }\nedge Ride: Stop -> Stop { riders: I32 }"
STOPS = 1_000
RIDES = 1_000_000
FILES = budget(2, 10)
"""The long run loads ten million rows."""
HEAP = "512m"


@contextmanager
def memory_of(process: subprocess.Popen[str]) -> Iterator[list[int]]:
    """The most bytes that a process and all it started held together, taken now and then."""
    most = [0]
    done = threading.Event()

    def watch() -> None:
        first = psutil.Process(process.pid)
        while not done.wait(0.2):
            held = 0
            try:
                for each in (first, *first.children(recursive=True)):
                    held += each.memory_info().rss
            except psutil.Error:
                continue
            most[0] = max(most[0], held)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield most
    finally:
        done.set()
        watcher.join()


def test_c_pip_019_millions_of_rows_load_with_a_small_heap(tmp_path: Path):
    graph = omnigraph.init(tmp_path / "graph.omni", SCHEMA)
    codes = pa.array([f"s{i}" for i in range(STOPS)])
    pq.write_table(pa.table({"code": codes}), tmp_path / "stops.parquet")
    chance = np.random.default_rng(7)
    ends = [codes.take(pa.array(chance.integers(0, STOPS, RIDES))) for _ in range(2)]
    riders = pa.array(chance.integers(0, 9, RIDES), pa.int32())
    rides = tmp_path / "rides"
    rides.mkdir()
    pq.write_table(
        pa.table({"from": ends[0], "to": ends[1], "riders": riders}), rides / "0.parquet"
    )
    # Edges need no key of their own, so the same ones can be loaded under many names.
    for number in range(1, FILES):
        (rides / f"{number}.parquet").hardlink_to(rides / "0.parquet")
    # A process of its own: this one has held much in other tests.
    command = [sys.executable, "-m", "omnigraph.cli", "load", graph.uri, "--mode", "append"]
    command += ["--node", f"Stop={tmp_path / 'stops.parquet'}", "--edge", f"Ride={rides}"]
    command += ["--engine", "spark", "--spark-conf", f"spark.driver.memory={HEAP}", "--json"]
    load = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    with memory_of(load) as most:
        out, _ = load.communicate()
    assert load.returncode == 0
    assert json.loads(out)["edges"][0]["entities_loaded"] == RIDES * FILES
    counts = {each.type_name: each.entity_count for each in graph.snapshot().datasets}
    assert counts["Ride"] == RIDES * FILES
    assert 0 < most[0] < 4 << 30
