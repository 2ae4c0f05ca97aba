"""What the Spark suite does in a process of its own: `python -m bench.spark_child VERB`."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from bench.child import Verbs, answer
from bench.measure import peak_memory
from bench.trips import SCHEMA

QUESTION = """query q() {
  match { $a: Place  $a trip $b  $b trip $c }
  return { $c.kind as kind, count(*) as n }
  order { kind }
}"""
"""How many ways of two hops lead to places of each kind."""

CONF = {"spark.sql.shuffle.partitions": "4", "spark.driver.memory": "3g"}
LITTLE_MEMORY = {"spark.sql.shuffle.partitions": "16", "spark.driver.memory": "2g"}


def build(source: str, graph: str) -> dict[str, Any]:
    """Make a graph of places and trips."""
    import omnigraph as og

    os.environ["OMNIGRAPH_WRITE_ROWS_MAX"] = os.environ["OMNIGRAPH_WRITE_BYTES_MAX"] = str(1 << 40)
    made = og.init(graph, schema=SCHEMA)
    made.load(
        nodes={"Place": f"{source}/place/*.parquet"},
        edges={"Trip": f"{source}/trip/*.parquet"},
        mode="append",
    )
    return {"rows": sum(entry.entity_count for entry in made.snapshot().datasets)}


def ask_locally(graph: str, rounds: int) -> dict[str, Any]:
    """Ask in process: the first answer of a process, and a later one."""
    import omnigraph as og

    opened = og.open(graph, "read_only")
    times = [_timed(lambda: opened.query(QUESTION).to_pylist()) for _ in range(rounds + 1)]
    best = min(seconds for seconds, _ in times[1:])
    return {"first": times[0][0], "seconds": best, "rows": times[0][1]}


def ask_within_memory(graph: str) -> dict[str, Any]:
    """Ask on Spark with a small heap: the answer, and the most memory that all processes had."""
    import omnigraph as og

    with peak_memory() as memory:
        session = _session("local[2,4]", LITTLE_MEMORY)
        opened = og.open(graph, "read_only")
        seconds, rows = _timed(lambda: opened.query(QUESTION, engine="spark").to_pylist())
        session.stop()
    return {"seconds": seconds, "rows": rows, "peak_mb": memory["peak_mb"]}


def ask_spark(
    graph: str, small: str, master: str, rounds: int, by_hand: list[str]
) -> dict[str, Any]:
    """Ask on Spark, by the query and by some forms with frames written by hand, in turns.

    Everything is asked of the ``small`` graph first, so that Spark has compiled it and has started
    its workers. Answers must agree with the one in process.
    """
    import omnigraph as og

    _links_of_spark(master)
    session = _session(master)
    known = {"query": _on_spark, "joins": joins, "counted": counted}
    forms = {name: known[name] for name in ("query", *by_hand)}
    first = og.open(small, "read_only")
    for form in forms.values():
        form(first)
    opened = og.open(graph, "read_only")
    wanted = opened.query(QUESTION).to_pylist()
    found: dict[str, list[float]] = {name: [] for name in forms}
    for _ in range(rounds):
        for name, form in forms.items():
            seconds, rows = _timed(partial(form, opened))
            assert rows == wanted, f"{name} answers {rows}"
            found[name].append(seconds)
    session.stop()
    return {name: min(times) for name, times in found.items()}


def _on_spark(graph: Any) -> Any:
    return graph.query(QUESTION, engine="spark").to_pylist()


def joins(graph: Any) -> list[dict[str, Any]]:
    """The question as joins, the way one writes it down first."""
    from pyspark.sql import functions as F  # noqa: N812 - its name everywhere

    first = graph.frame("Trip", columns=["src", "dst"]).distinct()
    second = first.select(F.col("src").alias("via"), F.col("dst").alias("end"))
    places = graph.frame("Place", columns=["id", "kind"])
    ways = first.join(second, F.col("dst") == F.col("via")).join(
        places, F.col("end") == F.col("id")
    )
    return _rows(ways.groupBy("kind").agg(F.count("*").alias("n")))


def counted(graph: Any) -> list[dict[str, Any]]:
    """The question with counts instead of ways, which somebody who knows Spark would write."""
    from pyspark.sql import functions as F  # noqa: N812

    pairs = graph.frame("Trip", columns=["src", "dst"]).repartition("src").dropDuplicates()
    arriving = pairs.groupBy(F.col("dst").alias("via")).agg(F.count("*").alias("n"))
    ends = (
        pairs.join(arriving, F.col("src") == F.col("via"))
        .groupBy(F.col("dst").alias("end"))
        .agg(F.sum("n").alias("n"))
    )
    places = graph.frame("Place", columns=["id", "kind"])
    by_place = ends.join(places, F.col("end") == F.col("id"))
    return _rows(by_place.groupBy("kind").agg(F.sum("n").alias("n")))


def _rows(frame: Any) -> list[dict[str, Any]]:
    return [row.asDict() for row in frame.orderBy("kind").collect()]


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    began = time.perf_counter()
    done = work()
    return time.perf_counter() - began, done


def _session(master: str, conf: dict[str, str] = CONF) -> Any:
    from omnigraph.pipeline.spark.session import SessionSettings, build_session

    return build_session(SessionSettings.of(os.environ, master=master, conf=conf))


def _links_of_spark(master: str) -> None:
    """Executors of `local-cluster` write logs below SPARK_HOME: give them a folder of links."""
    if not master.startswith("local-cluster"):
        return
    import pyspark

    home, links = Path(pyspark.__file__).parent, Path(mkdtemp(prefix="spark-home-"))
    for name in ("jars", "bin"):
        (links / name).symlink_to(home / name)
    os.environ["SPARK_HOME"] = str(links)
    import atexit

    atexit.register(shutil.rmtree, links, ignore_errors=True)


VERBS: Verbs = {
    "build": build,
    "ask_locally": ask_locally,
    "ask_spark": ask_spark,
    "ask_within_memory": ask_within_memory,
}

if __name__ == "__main__":
    answer(VERBS)
