"""A program with a session of Spark Connect: tries everything, and prints what came of it as JSON.

A process has one kind of session, so this is one of its own: `python connect_session.py FOLDER`.
The server is local, and the client talks to it as to any other.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import omnigraph as og
from omnigraph.errors import OmnigraphError
from omnigraph.pipeline.spark.gateway import _java_home
from omnigraph.pipeline.spark.java import find_java

SCHEMA = """
node Person { slug: String @key  age: I32?  sense: Vector(2)? @embed(slug) }
edge Knows: Person -> Person
"""
ROWS = "slug string, age int"
ALL = "query q { match { $p: Person } return { $p.slug } }"


def main(folder: Path) -> None:
    """Try everything."""
    os.environ["JAVA_HOME"] = str(_java_home(find_java(os.environ), folder))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    graph = og.init(folder / "graph.omni", SCHEMA)
    graph.mutate('query q { insert Person { slug: "a", age: 1 } }')
    builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.log.level", "ERROR").getOrCreate()
    frame = spark.createDataFrame([("b", 2)], ROWS)
    inbox = folder / "inbox"
    inbox.mkdir()
    (inbox / "1.json").write_text('{"slug": "c", "age": 3}\n')
    records = folder / "records.jsonl"
    records.write_text('{"type": "Person", "data": {"slug": "d"}}\n')
    arriving = spark.readStream.schema(ROWS).json(str(inbox))
    done: dict[str, Any] = {"is_connect": not hasattr(spark, "_jsparkSession")}

    def write() -> None:
        writer = frame.write.format("omnigraph").option("type", "Person")
        writer.mode("append").save(graph.uri)

    def ended(writer: Any, name: str, *path: str) -> None:
        location = str(folder / "checkpoints" / name)
        writer = writer.option("checkpointLocation", location).trigger(availableNow=True)
        query = writer.start(*path)
        query.awaitTermination()
        if query.exception() is not None:
            raise query.exception()

    def stream_in() -> None:
        writer = arriving.writeStream.format("omnigraph")
        ended(writer.option("type", "Person").option("mode", "merge"), "in", graph.uri)

    def stream_out() -> int:
        feed = spark.readStream.format("omnigraph").option("start", "beginning").load(graph.uri)
        out = str(folder / "out")
        ended(feed.writeStream.format("parquet").option("path", out), "out")
        return spark.read.parquet(out).count()

    works: dict[str, Callable[[], Any]] = {
        "frame": lambda: [row.slug for row in graph.frame("Person", spark=spark).collect()],
        "write": write,
        "stream_in": stream_in,
        "stream_out": stream_out,
    }
    for name, action in works.items():
        done[name] = action()
    done["slugs"] = sorted(row["p.slug"] for row in graph.query(ALL).to_pylist())
    commits = len(graph.list_commits())
    there = sorted(str(each) for each in Path(graph.uri).rglob("*"))
    options = og.SparkOptions(session=spark)
    refused: dict[str, Callable[[], Any]] = {
        "load a frame": lambda: graph.load(frames={"Person": frame}, mode="merge"),
        "load": lambda: graph.load(records, mode="merge", engine="spark", spark=options),
        "query": lambda: graph.query(ALL, engine="spark", spark=options).to_pylist(),
        "compute": lambda: graph.compute.degree(engine="spark", spark=options),
        "optimize": lambda: graph.optimize(engine="spark", spark=options),
        "embed": lambda: graph.embed(spark=options, embedding=_mock()),
        "stream_into": lambda: graph.stream_into(arriving, "Person", checkpoint=folder / "no"),
    }
    done["refused"] = {name: _failure(action) for name, action in refused.items()}
    done["new commits"] = len(graph.list_commits()) - commits
    done["new files"] = [name for name in map(str, Path(graph.uri).rglob("*")) if name not in there]
    print(json.dumps(done))
    spark.stop()


def _mock() -> Any:
    from omnigraph.embedding.config import EmbeddingConfig

    return EmbeddingConfig.of("mock")


def _failure(action: Callable[[], Any]) -> list[str]:
    try:
        action()
    except OmnigraphError as error:
        return [type(error).__name__, error.message, error.hint or ""]
    except Exception as error:
        return [type(error).__name__, str(error), ""]
    return ["", "", ""]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
