"""Tables and exports of a served graph are those of the graph itself, batch by batch."""

from __future__ import annotations

import asyncio
import datetime as dt
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import orjson
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.client import RemoteGraph
from omnigraph.client.reading import arrow_items
from omnigraph.errors import InputError, NotFound, PolicyDenied, QueryTypeError, UnexpectedAnswer
from omnigraph.graph import Graph
from omnigraph.model import tables
from omnigraph.model.receipts import EXPORT_FORMATS
from tests.client.conftest import Guarded

AGES = {"where": {"age": np.array([36, 41])}, "columns": ["name", "age"]}


@pytest.mark.parametrize(
    "asked",
    [
        {"type": "Person"},
        {"type": "Knows"},
        {"type": "edge:LivesIn"},
        {"type": "Person", **AGES},
        {"type": "Person", "where": "age > 40"},
        {"type": "Person", "where": "age > 400"},
        {"type": "Knows", "where": {"since": None, "src": "ada"}, "columns": "id"},
        {"type": "Knows", "where": {"since": dt.date(2031, 4, 9)}},
    ],
    ids=str,
)
def test_a_served_table_is_the_table(remote: RemoteGraph, local: Graph, asked: Any) -> None:
    there, here = remote.table(**asked), local.table(**asked)
    assert there.schema == here.schema
    assert there.about == here.about
    assert there.to_arrow() == here.to_arrow() == there.to_reader().read_all()


def test_rows_arrive_in_batches_and_any_arrow_speaker_takes_them(
    remote: RemoteGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "BATCH_ROWS", 1)
    t = remote.table("Person", columns=["name", "age"])
    assert [batch.num_rows for batch in t] == [1, 1]
    assert duckdb.execute("select sum(age) from t").fetchall() == [(77,)]
    assert pa.table(t).num_rows == len(t.to_pandas()) == 2


def test_a_served_table_keeps_its_commit(remote: RemoteGraph) -> None:
    before = remote.table("City")
    remote.mutate('query q { insert City { name: "Oslo" } }')
    assert before.to_arrow().num_rows == 1
    assert remote.table("City").to_arrow().num_rows == 2
    assert remote.table("City", snapshot=before.graph_commit_id).to_arrow().num_rows == 1


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        ({"type": "Persn"}, NotFound),
        ({"type": "Person", "columns": ["nme"]}, InputError),
        ({"type": "Person", "where": "nme = 1"}, QueryTypeError),
        ({"type": "Person", "branch": "none"}, NotFound),
        ({"type": "Person", "branch": "main", "snapshot": "x"}, InputError),
    ],
    ids=str,
)
def test_a_refusal_is_raised_at_once_as_in_process(
    remote: RemoteGraph, local: Graph, asked: Any, kind: type[Exception]
) -> None:
    with pytest.raises(kind):
        local.table(**asked)
    with pytest.raises(kind):
        remote.table(**asked)


def test_policy_decides_who_reads_a_table(guarded: Guarded) -> None:
    with guarded.connect("act-bo") as bo, guarded.connect("act-cy") as cy:
        assert bo.table("Person").to_arrow().num_rows == 2
        commit = bo.table("Person").graph_commit_id
        with pytest.raises(PolicyDenied):
            cy.table("Person")
        with pytest.raises(PolicyDenied):
            cy.table("Person", snapshot=commit)


def test_an_event_loop_reads_the_same_batches(url: str, local: Graph) -> None:
    async def read() -> tuple[list[pa.RecordBatch], pa.Table]:
        async with og.connect_async(url) as graph:
            table = await graph.table("Person")
            return [batch async for batch in table], await table.to_arrow()

    batches, whole = asyncio.run(read())
    assert pa.Table.from_batches(batches) == whole == local.table("Person").to_arrow()


# --- messages -------------------------------------------------------------------------------------


class Chunks:
    """Content that arrives in pieces of some size."""

    def __init__(self, content: bytes, size: int) -> None:
        self.content, self.size = content, size

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self.content), self.size):
            yield self.content[start : start + self.size]

    async def close(self) -> None:
        pass


def items(content: bytes, size: int) -> list[Any]:
    async def read() -> list[Any]:
        return [item async for item in arrow_items(Chunks(content, size))]  # type: ignore[arg-type]

    return asyncio.run(read())


def stream_of(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    return bytes(sink.getvalue())


TABLE = pa.table(
    {
        "n": pa.array([1, None, 3, 4], pa.int32()),
        "t": ["a", "ü", None, ""],
        "v": pa.array([[1, 2], None, [3, 4], [5, 6]], pa.list_(pa.float32(), 2)),
    }
)


@pytest.mark.parametrize("size", [1, 7, 64, 1 << 20])
def test_messages_are_put_together_wherever_they_were_cut(size: int) -> None:
    content = stream_of(TABLE) + stream_of(TABLE.slice(0, 0)) + stream_of(TABLE.select(["t"]))
    schema, first, second, empty, texts, *rest = items(content, size)
    assert schema == TABLE.schema
    assert pa.Table.from_batches([first, second]) == TABLE
    assert (empty, texts) == (TABLE.schema, TABLE.select(["t"]).schema)
    assert sum(batch.num_rows for batch in rest) == 4


@pytest.mark.parametrize("cut", [1, 8, 9, 200])
def test_a_stream_that_was_cut_off_is_no_shorter_table(cut: int) -> None:
    with pytest.raises(UnexpectedAnswer, match="cut off"):
        items(stream_of(TABLE)[:-cut], 64)
    with pytest.raises(UnexpectedAnswer, match="no Arrow stream"):
        items(b"<html>no such page</html>", 64)


# --- exports --------------------------------------------------------------------------------------


def content(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*.*")}


@pytest.mark.parametrize("format", EXPORT_FORMATS)
def test_an_export_through_a_server_writes_the_same_files(
    remote: RemoteGraph, local: Graph, tmp_path: Path, format: Any
) -> None:
    local.mutate('query q($p: Blob) { insert Person { name: "cy", photo: $p } }', {"p": b"hi"})
    heard: list[int] = []
    there = remote.export_to(tmp_path / "there", format=format, progress=heard.append)
    here = local.export_to(tmp_path / "here", format=format)
    assert there == here
    assert sum(heard) == there.entities == 5
    assert content(tmp_path / "there") == content(tmp_path / "here")
    assert {each.name for each in tmp_path.iterdir()} >= {"there", "here"}
    with pytest.raises(InputError, match="holds an export"):
        remote.export_to(tmp_path / "there", format=format)


def test_an_export_in_arrow_is_one_stream_after_another(remote: RemoteGraph, local: Graph) -> None:
    there, here = (b"".join(graph.export(format="arrow")) for graph in (remote, local))
    assert there == here
    source = pa.BufferReader(here)
    found = {}
    while source.tell() < len(here):
        reader = pa.ipc.open_stream(source)
        about = orjson.loads(reader.schema.metadata[b"omnigraph"])
        found[about["type_name"]] = reader.read_all().num_rows
    assert found == {"Knows": 1, "LivesIn": 0, "City": 1, "Person": 2}
    for graph in (remote, local):
        with pytest.raises(InputError, match="no stream of format 'csv'"):
            graph.export(format="csv")  # type: ignore[arg-type]


def test_an_export_of_some_types_of_an_older_commit(remote: RemoteGraph, tmp_path: Path) -> None:
    then = remote.list_commits()[0].graph_commit_id
    remote.mutate('query q { insert City { name: "Oslo" } }')
    receipt = remote.export_to(tmp_path / "old", types=["City"], snapshot=then)
    assert (receipt.entities, receipt.graph_commit_id) == (1, then)
    with pytest.raises(NotFound):
        remote.export_to(tmp_path / "none", types=["Cty"])
    assert not (tmp_path / "none").exists()


def test_a_client_loads_an_export_of_records_and_refuses_others(
    remote: RemoteGraph, local: Graph, tmp_path: Path
) -> None:
    local.export_to(tmp_path / "lines", format="jsonl")
    local.export_to(tmp_path / "tables")
    before = b"".join(local.export())
    remote.mutate(
        """query q { insert City { name: "Oslo" }
        insert LivesIn { from: "ada", to: "Oslo" } }"""
    )
    remote.load(tmp_path / "lines", mode="overwrite")
    assert b"".join(local.export()) == before
    with pytest.raises(InputError, match="is an export as parquet, and a server loads"):
        remote.load(tmp_path / "tables", mode="overwrite")
    (tmp_path / "lines" / "nodes" / "City" / "part-00000.jsonl").unlink()
    with pytest.raises(InputError, match="is not complete: files of City are gone"):
        remote.load(tmp_path / "lines", mode="overwrite")


def test_an_export_needs_the_right_to_export(guarded: Guarded, tmp_path: Path) -> None:
    with guarded.connect("act-bo") as bo, guarded.connect("act-cy") as cy:
        assert bo.export_to(tmp_path / "bo").entities == 4
        with pytest.raises(PolicyDenied):
            cy.export_to(tmp_path / "cy")
    assert not (tmp_path / "cy").exists()
