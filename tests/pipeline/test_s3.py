"""Bulk loads from S3 into a graph on S3, with credentials from the environment."""

from __future__ import annotations

import io
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from obstore.store import S3Store

import omnigraph
import omnigraph.spark
from omnigraph.cli.main import main as command_line
from omnigraph.effects.environment import s3_options
from omnigraph.errors import NotFound
from omnigraph.graph import SparkOptions
from tests.commit.loading import lines, node
from tests.effects import s3_server
from tests.pipeline.conftest import SCHEMA

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("spark")]

BUCKET = "lake"


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with s3_server.running_s3() as address:
        s3_server.create_bucket(address, BUCKET)
        yield address


@pytest.fixture
def prefix(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place of its own for each test. Workers are older than these variables."""
    s3_server.use(endpoint, monkeypatch)
    return uuid.uuid4().hex


def test_c_pip_035_a_load_from_s3_into_s3(prefix: str, spark: Any):
    store = S3Store(BUCKET, config=s3_options(BUCKET, os.environ))  # type: ignore[arg-type]
    people = io.BytesIO()
    pq.write_table(pa.table({"slug": ["ada", "bob"], "age": pa.array([1, 2], pa.int32())}), people)
    people.seek(0)
    obstore.put(store, f"{prefix}/in/people.parquet", people)
    obstore.put(store, f"{prefix}/in/knows/1.csv", b"from,to\nada,bob\n")
    obstore.put(store, f"{prefix}/in/knows/2.csv", b"from,to\nbob,ada\n")
    obstore.put(store, f"{prefix}/in/notes.jsonl", lines(node("Note", text="x")))
    folder = f"s3://{BUCKET}/{prefix}/in"
    graph = omnigraph.init(f"s3://{BUCKET}/{prefix}/graph.omni", SCHEMA)
    receipt = graph.load(
        f"{folder}/notes.jsonl",
        nodes={"Person": f"{folder}/people.parquet"},
        edges={"Knows": f"{folder}/knows/*.csv"},
        mode="append",
        spark=SparkOptions(spark),
    )
    assert receipt.to_dict()["inserted"] == 5
    assert len(b"".join(graph.export()).splitlines()) == 5
    # A branch of its own, an upsert, and the local engine, from the same place.
    graph.load(f"{folder}/notes.jsonl", mode="append", branch="b", from_="main", engine="local")
    merged = graph.load(
        edges={"Knows": f"{folder}/knows"}, mode="append", branch="b", spark=SparkOptions(spark)
    )
    assert merged.to_dict()["inserted"] == 2
    with pytest.raises(NotFound, match="no such file"):
        graph.load(f"{folder}/none.jsonl", mode="append", spark=SparkOptions(spark))
    command = ["load", graph.uri, "--mode", "append", "--data", f"{folder}/notes.jsonl"]
    assert command_line([*command, "--engine", "spark"]) == 0
    assert len(b"".join(graph.export()).splitlines()) == 6


def test_a_stream_into_a_graph_on_s3_writes_each_batch_once(
    prefix: str, spark: Any, tmp_path: Path
):
    graph = omnigraph.init(f"s3://{BUCKET}/{prefix}/stream.omni", SCHEMA)
    inbox = tmp_path / "inbox"
    inbox.mkdir()
    (inbox / "1.json").write_text('{"slug": "ada"}\n{"slug": "bob"}')
    options: dict[str, Any] = {"checkpoint": tmp_path / "checkpoint", "available_now": True}
    options |= {"branch": "ingest", "from_": "main", "merge_every": 1}
    for _ in range(2):
        frame = spark.readStream.schema("slug string").json(str(inbox))
        graph.stream_into(frame, "Person", **options).await_end()
        # As if the first driver had ended before the batch was noted.
        for path in (tmp_path / "checkpoint" / "commits").iterdir():
            path.unlink()
    assert [commit.kind for commit in graph.list_commits()] == ["merge", "genesis"]
    assert graph.table("Person").to_arrow().num_rows == 2
    assert graph._kernel.store.list("__load") == []


def test_a_pipeline_into_a_graph_on_s3_publishes_once(prefix: str, spark: Any, tmp_path: Path):
    graph = omnigraph.init(f"s3://{BUCKET}/{prefix}/pipeline.omni", SCHEMA)
    (tmp_path / "people.csv").write_text("slug\nada\nbob\n")
    file = tmp_path / "pipeline.yaml"
    file.write_text(
        f"version: 1\nname: small\ngraph: {graph.uri}\n"
        "sources: {people: {format: csv, path: people.csv, options: {header: true}}}\n"
        "nodes: {Person: {from: people, map: {slug: slug}}}\n"
    )
    outcomes = [
        omnigraph.read_pipeline(file).run(spark=SparkOptions(session=spark)).outcome
        for _ in range(2)
    ]
    assert outcomes == ["merged", "no_change"]
    assert [commit.kind for commit in graph.list_commits()] == ["merge", "genesis"]
    assert graph.list_branches() == ["main"]
    assert graph.table("Person").to_arrow().num_rows == 2


def test_frames_and_streams_of_a_graph_on_s3_reach_it_as_the_driver_does(
    prefix: str, spark: Any, tmp_path: Path
):
    """Spark's processes have no variables of their own; no plan shows those of the driver."""
    graph = omnigraph.init(f"s3://{BUCKET}/{prefix}/frames.omni", SCHEMA)
    graph.load(data=lines(node("Person", slug="ada"), node("Person", slug="bob")), mode="append")
    people = graph.frame("Person", columns=["slug"], where="slug > 'b'", spark=spark)
    assert [row["slug"] for row in people.collect()] == ["bob"]
    plans = people._jdf.queryExecution().toString()
    assert "omnigraph" in plans and s3_server.SECRET_KEY not in plans
    omnigraph.spark.register(spark)
    written = spark.createDataFrame([("cleo",)], "slug string").write.format("omnigraph")
    written.option("type", "Person").mode("append").save(graph.uri)
    assert graph.table("Person").to_arrow().num_rows == 3
    changes = spark.readStream.format("omnigraph").option("start", "beginning").load(graph.uri)
    query = (
        changes.select(changes["id"].alias("text"))
        .writeStream.format("omnigraph")
        .option("type", "Note")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start(graph.uri)
    )
    query.awaitTermination()
    assert sorted(graph.table("Note").to_arrow()["text"].to_pylist()) == ["ada", "bob", "cleo"]
    assert graph.optimize(engine="spark", spark=SparkOptions(spark)).tables
