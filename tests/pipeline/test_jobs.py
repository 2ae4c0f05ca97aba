"""Tasks that are handed out by number: repeated, cancelled and explained like all others."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from omnigraph.errors import StorageError
from omnigraph.loading.executors import StageProgress, TaskRunner
from omnigraph.pipeline.spark.session import SessionSettings, SparkWhenNeeded

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


def jobs_of(spark: Any, watch: Any = None, operation: str = "op") -> TaskRunner:
    return TaskRunner(SparkWhenNeeded(spark, SessionSettings()), operation, watch)


def test_results_come_in_the_order_of_the_numbers(spark: Any):
    assert jobs_of(spark).map_workers("read", "some", 5, lambda n: n * n) == [0, 1, 4, 9, 16]
    assert jobs_of(spark).map_workers("read", "none", 0, lambda n: n) == []


def test_c_pip_013_a_task_whose_worker_is_killed_is_run_again(spark: Any, tmp_path: Path):
    marker = tmp_path / "killed"

    def dies_once(number: int) -> int:
        if number == 1 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number

    assert jobs_of(spark).map_workers("read", "some", 3, dies_once) == [0, 1, 2]
    assert marker.exists()


def test_c_pip_012_of_several_attempts_one_is_heard(spark: Any, tmp_path: Path):
    marker = tmp_path / "failed"

    def fails_once(number: int) -> list[str]:
        if not marker.exists():
            marker.touch()
            raise RuntimeError("the first attempt")
        return [f"task {number}"]

    assert jobs_of(spark).map_workers("read", "one", 1, fails_once) == [["task 0"]]
    assert marker.exists()


@pytest.mark.parametrize("is_hidden", [True, False], ids=["one line", "with a traceback"])
def test_the_cause_of_a_failure_is_told_in_one_line(
    is_hidden, spark: Any, monkeypatch: pytest.MonkeyPatch
):
    if not is_hidden:
        # As in a session that somebody else built.
        for name in ("SPARK_HIDE_TRACEBACK", "SPARK_SIMPLIFIED_TRACEBACK"):
            monkeypatch.delitem(spark.sparkContext.environment, name)

    def fails(_: int) -> None:
        try:
            raise KeyError("what came before")
        except KeyError as error:
            raise OSError("no room is left\nfor an Error, or anything else") from error

    with pytest.raises(StorageError) as caught:
        jobs_of(spark).map_workers("read", "some", 2, fails)
    assert caught.value.message == "the load failed in stage read: OSError: no room is left"


def test_what_spark_refuses_is_told_by_its_name(spark: Any):
    def overflows() -> Any:
        return spark.sql("select cast(99999999999 as int) as n").collect()

    with pytest.raises(StorageError) as caught:
        jobs_of(spark).run("read", "a frame", overflows)
    assert caught.value.message.startswith("the load failed in stage read: [CAST_OVERFLOW")


def test_workers_that_die_again_and_again_are_told_as_such(spark: Any):
    def dies(_: int) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    with pytest.raises(StorageError, match="read: a Python worker died each time"):
        jobs_of(spark).map_workers("read", "one", 1, dies)


def test_functions_over_numbers_and_over_frames_share_their_workers(spark: Any):
    def over_frames(batches: Any) -> Any:
        import pyarrow as pa

        for batch in batches:
            pids = [os.getpid()] * batch.num_rows
            yield pa.record_batch([pa.array(pids, pa.int64())], names=["pid"])

    rows = spark.range(0, 2, 1, 2).mapInArrow(over_frames, "pid long").collect()
    numbers = jobs_of(spark).map_workers("read", "some", 2, lambda _: os.getppid())
    parents = {
        int(Path(f"/proc/{row.pid}/stat").read_text().rpartition(")")[2].split()[1]) for row in rows
    }
    assert set(numbers) == parents, "there are two sets of workers, and both have to be started"


@pytest.mark.parametrize("is_hidden", [False, True], ids=["as it is", "behind Py4J's failure"])
def test_c_pip_033_ctrl_c_cancels_tasks_that_run(is_hidden, spark: Any, tmp_path: Path):
    started = tmp_path / "started"
    tracker = spark.sparkContext.statusTracker()
    seen: list[StageProgress] = []

    def lasts(_: int) -> None:
        started.touch()
        time.sleep(600)

    def watch(progress: StageProgress) -> None:
        if started.exists() and progress.tasks:
            seen.append(progress)
            try:
                raise KeyboardInterrupt
            finally:
                if is_hidden:
                    raise Py4JError("Gateway must be connected")

    operation = f"lasting-{is_hidden}"
    with pytest.raises(KeyboardInterrupt):
        jobs_of(spark, watch, operation).map_workers("read", "some", 2, lasts)
    assert (seen[0].stage, seen[0].tasks) == ("read", 2)
    assert tracker.getJobIdsForGroup(f"omnigraph-{operation}-read")
    while tracker.getActiveJobsIds():
        time.sleep(0.01)  # Spark takes note of it in its own time
    assert jobs_of(spark).map_workers("read", "some", 1, lambda n: n) == [0]
