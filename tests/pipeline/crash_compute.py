"""A driver whose JVM is lost twice, and which is then killed itself, in a process of its own.

It asks a query and writes the ranks of a graph to a branch. What it met on the way is printed
before it is killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from contextlib import nullcontext
from typing import Any

import omnigraph
from omnigraph.effects.failpoints import armed
from omnigraph.errors import OmnigraphError
from omnigraph.graph import Graph

SCHEMA = """
node Person { name: String @key  rank: F64?  bio: String? }
edge Knows: Person -> Person
"""
PEOPLE = 20
QUESTION = """query q() {
  match { $a: Person  $a knows $b  search($b.bio, "fox")  length($a.name) <= length($b.name) }
  return { $b.name as name, bm25($b.bio, "fox") as score, $a.name as other }
  order { name, other }
}"""
STAGES = (
    "round",
    "mutation.post_sidecar_pre_fork",
    "mutation.post_table_commit",
    "graph_publish.after_manifest_commit",
)
"""Where the driver is killed: in a round, or at a failpoint of the commit."""


def linked_people(uri: str) -> Graph:
    graph = omnigraph.init(uri, SCHEMA)
    nodes: list[dict[str, Any]] = [
        {"type": "Person", "data": {"name": f"p{n}", "bio": "red fox" if n % 3 else "owl"}}
        for n in range(PEOPLE)
    ]
    edges = [
        {"edge": "Knows", "from": f"p{n}", "to": f"p{(n * 7 + k) % PEOPLE}"}
        for n in range(PEOPLE)
        for k in (1, 2)
    ]
    graph.load(data=b"\n".join(json.dumps(each).encode() for each in nodes + edges), mode="append")
    return graph


def kill_jvm() -> None:
    from pyspark import SparkContext

    process = SparkContext._gateway.proc  # type: ignore[union-attr]
    process.kill()
    process.wait()


def met(action: Any) -> Any:
    """What an action answers, or the error it raises."""
    try:
        return action()
    except OmnigraphError as error:
        return f"{type(error).__name__}: {error.message}"


def main(uri: str, stage: str) -> None:
    conf = {
        "spark.driver.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    spark = omnigraph.SparkOptions(master="local[2,4]", conf=conf)
    graph = omnigraph.open(uri)
    wanted = graph.query(QUESTION).to_pylist()
    told: dict[str, Any] = {}
    asked = graph.query(QUESTION, engine="spark", spark=spark)
    kill_jvm()
    told["query"] = met(asked.to_pylist)
    asked = graph.query(QUESTION, engine="spark", spark=spark)
    told["query again"] = met(lambda: asked.to_pylist() == wanted)

    def ranked(on_round: Any = None) -> Any:
        return graph.compute.pagerank(
            iterations=3,
            tolerance=0.0,
            into="Person.rank",
            to_branch="ranks",
            engine="spark",
            spark=spark,
            on_round=on_round,
        )

    def lose(number: int, _change: float) -> None:
        if number == 2:
            kill_jvm()

    def die(_number: int, _change: float) -> None:
        if stage == "round":
            os.kill(os.getpid(), signal.SIGKILL)

    told["rounds"] = met(lambda: ranked(lose))
    commits = [commit.graph_commit_id for commit in graph.list_commits()]
    told["state"] = graph.list_branches(), commits, graph._kernel.sidecars.names()
    print(json.dumps(told), flush=True)
    with nullcontext() if stage == "round" else armed(f"{stage}=kill"):
        ranked(die)


if __name__ == "__main__":
    main(*sys.argv[1:])
