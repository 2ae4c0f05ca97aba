"""Work whose executors are killed, in one driver: `python -m tests.pipeline.cluster_faults`.

The driver kills them between two jobs, when they hold what the next job needs, or a function that
runs in a task kills its own.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pyspark import cloudpickle

import omnigraph
from omnigraph.errors import OmnigraphError
from omnigraph.loading import task_load
from omnigraph.loading.staging import stage_frame
from omnigraph.pipeline.computing.rounds import ROUNDS_BETWEEN_CHECKPOINTS
from omnigraph.pipeline.spark.session import SessionSettings, spark_session
from tests.pipeline import cluster_driver
from tests.pipeline.cluster_driver import PARTITIONS, ROWS
from tests.pipeline.crash_compute import QUESTION

EXECUTORS = 2
START_SECONDS_MAX = 120
CONF = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    # By default a task asks a dead executor three times, five seconds apart.
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "100ms",
}
ROUNDS = ROUNDS_BETWEEN_CHECKPOINTS + 2
FAR = """query far() {
  match { $a: Person { name: "p0" }  $a knows{1,6} $b }
  return { $b.name as name } order { name }
}"""
"""Its search is checkpointed after four levels, before the rows are asked for."""

PIPELINE = f"""\
version: 1
name: killed
mode: append
target: {{branch: ingest, merge_into: main, delete_branch: true}}
sources:
  people: {{format: parquet, path: people}}
nodes:
  Person: {{from: people, map: {{slug: lower(slug)}}}}
checks:
  - {{name: everybody, file: checks.gq, expect: value({PARTITIONS * ROWS})}}
"""
CHECKS = "query everybody() { match { $p: Person } return { count($p) as n } }"


def main(master: str, folder: Path) -> dict[str, Any]:
    """What each piece of work gave; the graphs are there to be looked at."""
    # Workers cannot import the tests.
    cloudpickle.register_pickle_by_value(cluster_driver)
    settings = SessionSettings.of(os.environ, master=master, conf=CONF)
    with spark_session(settings=settings) as spark:
        work = _Work(spark, folder)
        found: dict[str, Any] = {"places": cluster_driver.executor_places(spark)}
        found["question"] = work.question()
        for name, count in (("one", 1), ("all", EXECUTORS)):
            found[f"far, {name}"] = work.far(count)
            found[f"ranks, {name}"] = work.ranks(count)
        spark.sparkContext.setCheckpointDir(str(folder / "checkpoints"))
        found["far, directory"] = work.far(EXECUTORS)
        found["ranks, directory"] = work.ranks(EXECUTORS)
        found["pipeline"] = work.pipeline()
        found["stream"] = work.stream()
    return found


class _Work:
    """Work on a session, and the kills of its executors."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self._spark = spark
        self._folder = folder
        self._options = omnigraph.SparkOptions(spark)
        self._graph = omnigraph.open(folder / "linked.omni")

    def question(self) -> Any:
        """The rows of a query that has been planned, and has counted words, before the kill."""
        self._await_executors()
        asked = self._graph.query(QUESTION, engine="spark", spark=self._options)
        self._kill_executors(1)
        return asked.to_pylist()

    def far(self, count: int) -> Any:
        """The rows of a search of which a checkpoint is lost; or the error."""
        self._await_executors()
        asked = self._graph.query(FAR, engine="spark", spark=self._options)
        self._kill_executors(count)
        return _met(asked.to_pylist)

    def ranks(self, count: int) -> Any:
        """The ranks of a computation that loses executors after its first checkpoint."""

        def lose(number: int, _change: float) -> None:
            if number == ROUNDS_BETWEEN_CHECKPOINTS + 1:
                self._kill_executors(count)

        def computed() -> Any:
            return self._graph.compute.pagerank(
                iterations=ROUNDS, tolerance=0.0, on_round=lose, engine="spark", spark=self._options
            ).to_pylist()

        self._await_executors()
        return _met(computed)

    def pipeline(self) -> Any:
        """The outcomes of a run in which an executor is killed that has written rows, and of the
        next one."""
        _hinder_frames(self._folder / "killed-pipeline")
        (self._folder / "killed.yaml").write_text(PIPELINE)
        (self._folder / "checks.gq").write_text(CHECKS)
        graph = omnigraph.open(self._folder / "killed-pipeline.omni")
        pipeline = omnigraph.read_pipeline(self._folder / "killed.yaml", graph=graph)
        return [pipeline.run(spark=self._options).outcome for _ in range(2)]

    def stream(self) -> Any:
        """How many rows each micro-batch of a stream inserted, one of which loses its executor."""
        from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

        passing = _passing(self._folder / "killed-stream")
        passed = F.udf(lambda value: passing(value))  # noqa: PLW0108 - Spark warns of type hints
        arriving = self._spark.readStream.schema("slug string").parquet(
            str(self._folder / "people")
        )
        stream = omnigraph.open(self._folder / "killed-stream.omni").stream_into(
            arriving.select(passed("slug").alias("slug")),
            "Person",
            mode="append",
            checkpoint=self._folder / "stream-checkpoint",
            available_now=True,
        )
        stream.await_end()
        return [receipt.inserted for receipt in stream.receipts]

    def _executors(self) -> list[int]:
        """The processes of the executors of this session."""
        words = [b"CoarseGrainedExecutorBackend", self._spark.sparkContext.applicationId.encode()]
        found = []
        for place in Path("/proc").glob("[0-9]*"):
            try:
                command = (place / "cmdline").read_bytes()
            except OSError:  # it has just ended
                continue
            if all(word in command for word in words):
                found.append(int(place.name))
        return found

    def _await_executors(self) -> None:
        """Wait until the master has replaced those that were killed."""
        deadline = time.monotonic() + START_SECONDS_MAX
        while time.monotonic() < deadline:
            # The driver is among those that have memory.
            known = self._spark._jsc.sc().getExecutorMemoryStatus().size() - 1
            if known == len(self._executors()) == EXECUTORS:
                return
            time.sleep(0.1)
        raise TimeoutError(f"the cluster has executors {self._executors()}")

    def _kill_executors(self, count: int) -> None:
        """Kill some executors, and wait until they are gone."""
        for process in self._executors()[:count]:
            os.kill(process, signal.SIGKILL)
            while Path(f"/proc/{process}").exists():
                time.sleep(0.01)


def _met(action: Callable[[], Any]) -> Any:
    """What an action gives, or its error with the hint."""
    try:
        return action()
    except OmnigraphError as error:
        return f"{type(error).__name__}: {error.message}; {error.hint}"


def _hinder_frames(marker: Path) -> None:
    """Kill the first executor that has written the rows of a frame, before it says so."""
    kill, place = cluster_driver.kill, str(marker)

    def hindered(*arguments: Any) -> Any:
        write = stage_frame(*arguments)

        def run(batches: Any) -> Iterator[Any]:
            results = list(write(batches))
            kill(place, 0)
            yield from results

        return run

    vars(task_load).update(stage_frame=hindered)


def _passing(marker: Path) -> Callable[[str], str]:
    """A function that gives values back, and once kills the executor it runs in."""
    kill, place = cluster_driver.kill, str(marker)

    def passed(value: str) -> str:
        if value.endswith("-7"):
            kill(place, 0)
        return value

    return passed


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]))))
