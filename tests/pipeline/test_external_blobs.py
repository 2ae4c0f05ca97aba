"""Blobs given by URI to a load on Spark: references are kept, and nothing is copied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph.errors import InputError
from omnigraph.graph import Graph, SparkOptions
from tests.pipeline.conftest import SCHEMA

pytestmark = [pytest.mark.spark, pytest.mark.xdist_group("spark")]


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    folder = tmp_path / "pictures"
    folder.mkdir()
    (folder / "a.png").write_bytes(b"a picture")
    return folder


@pytest.fixture
def allowed(tmp_path: Path, pictures: Path) -> Graph:
    """A graph that may refer to pictures."""
    return omnigraph.init(tmp_path / "graph.omni", SCHEMA, external_blobs=[pictures.as_uri()])


def record(slug: str, photo: str | None) -> bytes:
    return orjson.dumps({"type": "Person", "data": {"slug": slug, "photo": photo}})


def written(tmp_path: Path, uri: str) -> list[dict[str, Any]]:
    """The same person as records and as a table."""
    lines, table = tmp_path / "people.jsonl", tmp_path / "people.parquet"
    lines.write_bytes(record("ada", uri))
    pq.write_table(pa.table({"slug": ["ada"], "photo": [uri]}), table)
    return [{"path": lines}, {"nodes": {"Person": table}}]


def load(graph: Graph, source: dict[str, Any], spark: Any, mode: Any) -> None:
    paths = [source["path"]] if "path" in source else []
    nodes = source.get("nodes")
    graph.load(*paths, nodes=nodes, mode=mode, engine="spark", spark=SparkOptions(spark))


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_c_sch_047_nothing_is_copied_on_spark(
    allowed: Graph, pictures: Path, tmp_path: Path, spark: Any, mode: Any
):
    uri = (pictures / "a.png").as_uri()
    head = allowed.snapshot().graph_commit_id
    for source in written(tmp_path, uri):
        with pytest.raises(InputError) as caught:
            load(allowed, source, spark, mode)
        assert f"external blob URI '{uri}' is not allowed" in caught.value.message
        assert "use engine local" in caught.value.render()
    assert allowed.snapshot().graph_commit_id == head
    allowed.load(tmp_path / "people.jsonl", mode=mode, engine="local")
    assert allowed.blob("node", "Person", "ada", "photo").read() == b"a picture"
    pq.write_table(pa.table({"slug": ["bo"], "photo": [uri]}), tmp_path / "people.parquet")
    allowed.load(nodes={"Person": tmp_path / "people.parquet"}, mode=mode, engine="local")
    assert allowed.blob("node", "Person", "bo", "photo").read() == b"a picture"


def test_an_overwrite_on_spark_keeps_references(
    allowed: Graph, pictures: Path, tmp_path: Path, spark: Any
):
    uri = (pictures / "not there yet.png").as_uri()
    for source in written(tmp_path, uri):
        load(allowed, source, spark, "overwrite")
        found = allowed.blob("node", "Person", "ada", "photo")
        assert (found.kind, found.uri) == ("external", uri)
        allowed.load(mode="overwrite", data=record("bo", None))


def test_c_sch_047_an_overwrite_on_spark_refuses_what_is_not_allowed(
    allowed: Graph, tmp_path: Path, spark: Any
):
    for uri in ("s3://elsewhere/a.png", (tmp_path / "pictures").as_uri() + "/../secret"):
        for source in written(tmp_path, uri):
            with pytest.raises(InputError, match="is not allowed") as caught:
                load(allowed, source, spark, "overwrite")
            assert "external_blobs" in caught.value.render()


def test_an_upsert_on_spark_leaves_references_of_others_alone(
    allowed: Graph, pictures: Path, tmp_path: Path, spark: Any
):
    uri = (pictures / "a.png").as_uri()
    here = record("ada", uri) + b"\n" + record("bo", uri)
    allowed.load(mode="overwrite", data=here)
    lines = tmp_path / "people.jsonl"
    lines.write_bytes(record("bo", "base64:Ym8=") + b"\n" + record("cleo", None))
    allowed.load(lines, mode="merge", engine="spark", spark=SparkOptions(spark))
    assert allowed.blob("node", "Person", "ada", "photo").uri == uri
    assert allowed.blob("node", "Person", "bo", "photo").read() == b"bo"
