"""Drivers that are killed or interrupted, files that vanish, disks that are full."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph.commit.kernel import Kernel
from omnigraph.effects.uri import Root
from omnigraph.errors import NotFound, SourceChanged, StorageError
from omnigraph.graph import Graph, LoadObserver, SparkOptions
from omnigraph.loading.task_load import TaskLoad
from tests.commit.loading import lines, node
from tests.crash.test_storage_faults import FullDisk, small_disk  # noqa: F401 - a fixture
from tests.pipeline import crash_load

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


# --- drivers ---


def pending(uri: str) -> list[str]:
    """Operations that were interrupted, looked at without settling them."""
    return Kernel.of(Root.parse(uri)).sidecars.names()


KILLS = {
    # Between the two tables of an upsert: whoever comes next settles it.
    "between-two-tables": {"OMNIGRAPH_FAILPOINTS": "mutation.post_table_commit=kill@3"},
    # While an upsert is checked: nothing has begun that would have to be settled.
    "while-it-is-checked": {"CRASH_IN_STAGE": "check"},
}


@pytest.mark.slow
@pytest.mark.parametrize(
    "moment",
    ["between-two-tables", pytest.param("while-it-is-checked", marks=pytest.mark.long)],
)
def test_c_pip_014_a_killed_driver_leaves_whole_loads_only(tmp_path: Path, moment: str):
    uri = str(tmp_path / "graph.omni")
    omnigraph.init(uri, crash_load.SCHEMA)
    crash_load.end(crash_load.start(uri, tmp_path, 0, **KILLS[moment]))
    left = len(pending(uri))
    assert left == (moment == "between-two-tables")
    assert crash_load.judge(uri) in ((1, 2) if left else (1,))


@pytest.mark.parametrize("stage", ["read", "match", "check"])
def test_c_pip_033_ctrl_c_leaves_no_change_and_a_session_that_works(
    stage, graph: Graph, spark: Any, tmp_path: Path
):
    before = graph.list_commits()
    path = tmp_path / "a.jsonl"
    path.write_bytes(lines(node("Person", slug="p1", email="a@x")))
    interrupted: list[str] = []

    def watch(progress: Any) -> None:
        # As if Ctrl-C were pressed while the stage runs: in the thread that waits for it.
        if progress.stage == stage and not progress.finished and not interrupted:
            interrupted.append(stage)
            raise KeyboardInterrupt

    options: dict[str, Any] = {"mode": "merge", "engine": "spark", "spark": SparkOptions(spark)}
    with pytest.raises(KeyboardInterrupt):
        graph.load(path, **options, observer=LoadObserver(on_stage=watch))
    assert interrupted
    assert graph.list_commits() == before
    assert not graph._kernel.sidecars.names()
    assert not (Path(graph.uri) / "__load").exists()
    while spark.sparkContext.statusTracker().getActiveJobsIds():
        time.sleep(0.01)  # Spark takes note of a cancelled job in its own time
    graph.load(path, **options)
    assert len(graph.list_commits()) == len(before) + 1


# --- files ---


@pytest.mark.parametrize(
    ("error", "words"),
    [(NotFound, "vanished while it was loaded"), (SourceChanged, "changed while it was loaded")],
)
def test_a_file_that_is_lost_during_the_job_is_named_and_nothing_is_written(
    error, words, graph: Graph, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    paths = [tmp_path / name for name in ("a.jsonl", "b.jsonl")]
    for path in paths:
        path.write_bytes(lines(node("Person", slug=path.stem)))
    real = TaskLoad._stage

    def stage(self: Any, capture: Any) -> Any:
        if error is NotFound:
            paths[1].unlink()
        else:
            paths[1].write_bytes(lines(node("Person", slug="c"), node("Person", slug="d")))
        return real(self, capture)

    monkeypatch.setattr(TaskLoad, "_stage", stage)
    with pytest.raises(error, match=rf"b\.jsonl {words}"):
        graph.load(*paths, mode="append", engine="spark", spark=SparkOptions(spark))
    assert len(graph.list_commits()) == 1
    assert not graph._kernel.sidecars.names()


# --- disks ---


def test_a_full_disk_fails_the_load_with_that_cause_and_nothing_is_visible(
    small_disk: FullDisk,  # noqa: F811
    spark: Any,
    tmp_path: Path,
):
    if not small_disk.is_mounted:
        pytest.skip("Spark needs a file system of few megabytes, and none can be mounted here")
    schema = "node Item { key: String @key  text: String }"
    graph = omnigraph.init(small_disk.place / "graph.omni", schema)
    # What cannot be compressed, and is more than there is room for.
    texts = [os.urandom(4_000).hex() for _ in range(1_000)]
    path = tmp_path / "items.parquet"
    pq.write_table(pa.table({"key": [f"k{i}" for i in range(1_000)], "text": texts}), path)
    load: dict[str, Any] = {
        "nodes": {"Item": str(path)},
        "mode": "append",
        "spark": SparkOptions(spark),
    }
    with pytest.raises(StorageError, match=r"(?i)no space left|storage is full") as caught:
        graph.load(**load)
    assert "read" in caught.value.message
    again = omnigraph.open(graph.uri)
    assert len(again.list_commits()) == 1
    assert not again._kernel.sidecars.names()
    assert list(again.export()) == []
    # With room again, what the load may have left behind is in nobody's way.
    for left in (small_disk.place / "graph.omni").glob("nodes/*/data/*"):
        left.unlink()
    pq.write_table(pa.table({"key": ["k1"], "text": ["x"]}), path)
    again.load(**load)
    assert len(again.list_commits()) == 2
