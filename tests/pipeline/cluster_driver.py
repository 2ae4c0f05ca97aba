"""What the tests do on a real cluster, in one driver: `python -m tests.pipeline.cluster_driver`.

Workers find their functions by value: this module is the main one, and executors need not have it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import omnigraph
from omnigraph.errors import InputError
from omnigraph.loading import pieces, task_load
from omnigraph.loading.staging import stage_files
from omnigraph.pipeline.spark.session import SessionSettings, spark_session

CONF = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.adaptive.enabled": "false",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1",
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.quantile": "0.5",
    "spark.speculation.multiplier": "1.1",
}
PEOPLE = "slug string, age int"
PARTITIONS = 3
ROWS = 50


def main(master: str, folder: Path, graphs: Sequence[str]) -> dict[str, Any]:
    """What each load answered; the graph is there to be looked at.

    The name of a graph says what happens to the load into it: an executor is killed, or outrun, and
    the load is of a frame or of files.
    """
    answers: dict[str, Any] = {}
    began = time.monotonic()
    settings = SessionSettings.of(os.environ, master=master, conf=CONF)
    with spark_session(settings=settings) as spark:
        answers["start"] = time.monotonic() - began
        answers["executors"] = spark._jsc.sc().getExecutorMemoryStatus().size() - 1
        answers["places"] = executor_places(spark)
        graph = omnigraph.open(folder / "graph.omni")
        options: dict[str, Any] = {
            "engine": "spark",
            "spark": omnigraph.SparkOptions(spark),
            "grammar": "strict",
        }
        graph.load(folder / "good", mode="append", **options)
        try:
            graph.load(folder / "bad.jsonl", mode="append", **options)
        except InputError as error:
            answers["problems"] = error.details["counts"]
        answers["upsert"] = graph.load(folder / "more.jsonl", mode="merge", **options).to_dict()
        for name in graphs[1:]:
            there = omnigraph.open(folder / f"{name}.omni")
            hinder = kill if name.startswith("kill") else wait
            data: dict[str, Any]
            if name.endswith("-files"):
                hinder_files(hinder, str(folder / name))
                data = {"nodes": {"Person": folder / "people"}}
            else:
                work = hindered_frame(hinder, str(folder / name))
                frame = spark.range(0, PARTITIONS, 1, PARTITIONS).mapInArrow(work, PEOPLE)
                data = {"frames": {"Person": frame}}
            answers[name] = there.load(**data, mode="append", **options).to_dict()
    return answers


def executor_places(spark: Any) -> list[str]:
    """Where the workers of executors have Python, its packages and Omnigraph."""

    def places(_: int) -> list[str]:
        import sys

        import lance

        import omnigraph

        return [sys.prefix, str(lance.__file__), str(omnigraph.__file__)]

    found = spark.sparkContext.parallelize(range(4), 4).flatMap(places).collect()
    return sorted(set(found))


def people(batches: Any) -> Iterator[Any]:
    """Some people for each number."""
    import pyarrow as pa

    for batch in batches:
        for number in batch.column(0).to_pylist():
            slugs = [f"p{number}-{i}" for i in range(ROWS)]
            ages = pa.array([number] * ROWS, pa.int32())
            yield pa.RecordBatch.from_arrays([pa.array(slugs), ages], names=["slug", "age"])


def hindered_frame(hinder: Any, marker: str) -> Any:
    """People, and something that happens when the rows of the first partition are on their way."""
    rows = people

    def run(batches: Any) -> Iterator[Any]:
        from pyspark import TaskContext

        yield from rows(batches)
        context = TaskContext.get()
        assert context is not None
        if context.partitionId() == 0:
            hinder(marker, context.attemptNumber())

    return run


def hinder_files(hinder: Any, marker: str) -> None:
    """The same for files: it happens when those of the first task are written."""

    def hindered(job: Any) -> Any:
        ask = stage_files(job)

        def run(number: int) -> Any:
            from pyspark import TaskContext

            said = ask(number)
            context = TaskContext.get()
            assert context is not None
            if number == 0:
                hinder(marker, context.attemptNumber())
            return said

        return run

    vars(task_load).update(stage_files=hindered)
    pieces.TASK_BYTES_MIN = 1


def kill(marker: str, _attempt: int) -> None:
    """The executor is killed, once."""
    import os
    import signal
    from pathlib import Path

    if not Path(marker).exists():
        Path(marker).touch()
        process = os.getppid()
        while "java" not in Path(f"/proc/{process}/comm").read_text():
            process = int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])
        os.kill(process, signal.SIGKILL)


def wait(marker: str, attempt: int) -> None:
    """Each of the first two attempts waits until the other is here; the second ends first."""
    import time
    from pathlib import Path

    Path(f"{marker}-{attempt}").touch()
    other = Path(f"{marker}-{0 if attempt else 1}")
    for _ in range(600):
        if other.exists():
            break
        time.sleep(0.1)
    # Spark ends the first one when the second has come to its end.
    time.sleep(0 if attempt else 3)


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:])))
