"""What the load benchmark does in a process of its own: `python -m bench.load_child VERB`.

Each measurement starts with a fresh session and a fresh process, as a user's does, and says apart
how long the session took to start.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.child import Verbs, answer
from bench.measure import peak_memory
from bench.trips import LINE_PLACES, LINES_SCHEMA, SCHEMA, STOCK_SCHEMA, code, connections
from omnigraph.storage.layout import FILE_FORMAT

CONF = {"spark.sql.shuffle.partitions": "4"}


def start_session() -> dict[str, Any]:
    """Start a Spark session, and wait for the workers that a load would run in."""
    from omnigraph.pipeline.spark.workers import await_workers

    began = time.perf_counter()
    with _session():
        built = time.perf_counter()
        await_workers()
        ready = time.perf_counter()
        return {
            "seconds": ready - began,
            "session_seconds": built - began,
            "workers_seconds": ready - built,
        }


def load(graph: str, source: str, engine: str, form: str) -> dict[str, Any]:
    """Load both tables, from Parquet or as graph records, into a new graph."""
    # What one process may hold by default is less than what is loaded here.
    os.environ["OMNIGRAPH_WRITE_ROWS_MAX"] = os.environ["OMNIGRAPH_WRITE_BYTES_MAX"] = str(1 << 40)
    with _warm(engine), peak_memory() as memory:
        opened = _open(graph)
        began = time.perf_counter()
        receipt = opened.load(
            *_records(source, form), mode="append", engine=engine, **_tables(source, form)
        )
        seconds = time.perf_counter() - began
    rows = sum(entry.records_read for entry in (*receipt.nodes, *receipt.edges))
    return {
        "seconds": seconds,
        "rows": rows,
        "stages": _stages(receipt),
        "peak_mb": memory["peak_mb"],
    }


def rewrite(source: str, target: str, form: str) -> dict[str, Any]:
    """Read the same input with Spark and write it as Parquet: the least a Spark job must do."""
    with _session() as spark:
        spark.range(1).count()
        began = time.perf_counter()
        if form == "parquet":
            for name in ("place", "trip"):
                spark.read.parquet(f"{source}/{name}").write.parquet(f"{target}/{name}")
        else:
            spark.read.schema(_RECORD).json(source).write.parquet(f"{target}/records")
        return {"seconds": time.perf_counter() - began}


def copy_with_kuzu(source: str, target: str) -> dict[str, Any]:
    """Load both tables into Kuzu."""
    import kuzu

    connection = kuzu.Connection(kuzu.Database(target))
    connection.execute(
        "CREATE NODE TABLE Place(code STRING PRIMARY KEY, title STRING, kind STRING,"
        " height INT32, opened DATE)"
    )
    connection.execute(
        "CREATE REL TABLE Trip(FROM Place TO Place, day DATE, riders INT32, note STRING)"
    )
    began = time.perf_counter()
    connection.execute(f'COPY Place FROM "{source}/place/*.parquet"')
    connection.execute(f'COPY Trip FROM "{source}/trip/*.parquet"')
    return {"seconds": time.perf_counter() - began}


def merge_with_lance(source: str, rows: str, table: str, *, keeps_row_ids: bool) -> dict[str, Any]:
    """Upsert places into a bare Lance table of places, in one process.

    ``keeps_row_ids`` has rows keep their ids when they change, as those of a graph do.
    """
    import lance
    import pyarrow.parquet as pq

    settings: dict[str, Any] = {}
    if keeps_row_ids:
        settings = {"enable_stable_row_ids": True, "data_storage_version": FILE_FORMAT}
    dataset = lance.write_dataset(pq.read_table(rows), table, mode="overwrite", **settings)
    upserts = pq.read_table(source)
    began = time.perf_counter()
    (
        dataset.merge_insert("code")
        .when_matched_update_all()
        .when_not_matched_insert_all()
        .execute(upserts)
    )
    return {"seconds": time.perf_counter() - began}


def upsert(graph: str, source: str, engine: str) -> dict[str, Any]:
    """Upsert places into a graph."""
    with _warm(engine):
        opened = _open(graph)
        began = time.perf_counter()
        receipt = opened.load(nodes={"Place": source}, mode="merge", engine=engine)
        seconds = time.perf_counter() - began
    return {"seconds": seconds, "stages": _stages(receipt)}


def make_stock(graph: str, source: str) -> dict[str, Any]:
    """A new graph with the items of ``source``."""
    from omnigraph.graph import init

    init(graph, STOCK_SCHEMA).load(nodes={"Item": source}, mode="append")
    return {}


def merge_stock(graph: str, source: str, engine: str) -> dict[str, Any]:
    """Merge items into a graph, with the columns that ``source`` has."""
    with _warm(engine):
        opened = _open(graph)
        began = time.perf_counter()
        receipt = opened.load(nodes={"Item": source}, mode="merge", engine=engine)
        seconds = time.perf_counter() - began
    return {"seconds": seconds, "stages": _stages(receipt), "kept": receipt.kept}


def make_lines(graph: str, count: int) -> dict[str, Any]:
    """A new graph with connections as edges and as nodes."""
    import pyarrow as pa

    from omnigraph.graph import init

    places = pa.table({"code": [code(number) for number in range(LINE_PLACES)]})
    init(graph, LINES_SCHEMA).load(frames={"Place": places, **connections(0, count)}, mode="append")
    return {}


def merge_lines(graph: str, kind: str, source: str) -> dict[str, Any]:
    """Merge connections, as edges by their key or as nodes."""
    with _warm("local"):
        opened = _open(graph)
        tables: Any = {"edges" if kind == "Line" else "nodes": {kind: source}}
        began = time.perf_counter()
        receipt = opened.load(**tables, mode="merge", engine="local")
        seconds = time.perf_counter() - began
    return {"seconds": seconds, "stages": _stages(receipt), "updated": receipt.updated}


def _stages(receipt: Any) -> dict[str, float]:
    return {stage.name: round(stage.seconds, 2) for stage in receipt.stages}


_RECORD = (
    "type STRING, edge STRING, `from` STRING, `to` STRING, data STRUCT<code: STRING, title: STRING,"
    " kind: STRING, height: INT, opened: DATE, day: DATE, riders: INT, note: STRING>"
)


def _open(path: str) -> Any:
    from omnigraph.graph import init, open_graph

    return open_graph(path) if Path(path).exists() else init(path, SCHEMA)


def _records(source: str, form: str) -> list[str]:
    return [source] if form == "records" else []


def _tables(source: str, form: str) -> dict[str, Any]:
    if form == "records":
        return {}
    return {"nodes": {"Place": f"{source}/place"}, "edges": {"Trip": f"{source}/trip"}}


@contextmanager
def _session() -> Iterator[Any]:
    from omnigraph.pipeline.spark.session import SessionSettings, spark_session

    with spark_session(settings=SessionSettings(conf=CONF)) as spark:
        yield spark


@contextmanager
def _warm(engine: str) -> Iterator[None]:
    """A running session, if the engine needs one: its start is reported apart.

    What a load imports is there before the clock starts in any case, as it is for its peers.
    """
    import omnigraph.loading.task_load  # noqa: F401

    if engine != "spark":
        yield
        return
    from omnigraph.pipeline.spark.workers import await_workers

    with _session():
        await_workers()
        yield


VERBS: Verbs = {
    "start_session": start_session,
    "load": load,
    "rewrite": rewrite,
    "copy_with_kuzu": copy_with_kuzu,
    "merge_with_lance": merge_with_lance,
    "upsert": upsert,
    "make_stock": make_stock,
    "merge_stock": merge_stock,
    "make_lines": make_lines,
    "merge_lines": merge_lines,
}

if __name__ == "__main__":
    answer(VERBS)
