"""The data source of Spark for an actor: its objects do here what Spark has them do elsewhere."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.audit import AuditFilter, read_entries
from omnigraph.errors import Denied, InputError, NotFound, PolicyDenied
from omnigraph.graph import Graph
from omnigraph.graph.opening import AUDIT_VARIABLE
from omnigraph.pipeline.streaming.feed import FeedReader
from pyspark_omnigraph import DefaultSource
from tests.access.test_hidden_names import BUNDLE, RECORDS, SCHEMA

OWN = """
  - id: owners-write
    allow: {actors: {group: owners}, actions: [change], branch_scope: any}
  - id: analysts-write
    allow: {actors: {group: analysts}, actions: [change], branch_scope: any}
    types: {Company: all}
"""


@pytest.fixture
def whole(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA)
    graph.load(data=RECORDS, mode="append")
    return graph


@pytest.fixture
def ana(tmp_path: Path) -> dict[str, str]:
    """The options that say who reads."""
    (tmp_path / "policy.yaml").write_text(BUNDLE + OWN)
    policy = str(tmp_path / "policy.yaml")
    return {"policy": policy, "actor": "act-ana", "claims": json.dumps({"city": "Oslo"})}


def sent(value: Any) -> Any:
    """The same in another process."""
    return pickle.loads(pickle.dumps(value))


def rows_of(graph: Graph, **options: str) -> pa.Table:
    source = DefaultSource({"path": graph.uri, **options})
    schema = source.schema()
    reader = sent(source.reader(schema))
    parts = [batch for part in reader.partitions() for batch in sent(reader).read(sent(part))]
    return pa.Table.from_batches(parts)


def test_c_acc_005_a_frame_of_the_data_source_is_that_without_what_is_hidden(
    whole: Graph, ana: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(AUDIT_VARIABLE, str(tmp_path / "audit.jsonl"))
    people = rows_of(whole, type="Person", **ana)
    assert set(people.column_names) == {"id", "slug", "name", "city", "bio", "vec"}
    assert sorted(people["id"].to_pylist()) == ["ada", "cy"]
    edges = rows_of(whole, type="WorksAt", columns="src,since", **ana)
    assert edges.to_pylist() == [{"src": "ada", "since": 1}]
    owner = {**ana, "actor": "act-own"}
    assert rows_of(whole, type="Person", filter="salary > 7", columns="id", **owner).num_rows == 2
    entries = [dict(e.facts) for e in read_entries([tmp_path / "audit.jsonl"], AuditFilter())]
    read = [(e["verb"], e["actor"], e["types"]) for e in entries if e["event"] == "access"]
    assert read == [
        ("frame", "act-ana", ["Person"]),
        ("frame", "act-ana", ["WorksAt"]),
        ("frame", "act-own", ["Person"]),
    ]


def test_c_acc_003_the_data_source_knows_no_hidden_name(whole: Graph, ana: dict[str, str]):
    told = []
    for name in ("Secret", "Secxet"):
        with pytest.raises(NotFound) as raised:
            rows_of(whole, type=name, **ana)
        told.append(raised.value.render().replace(name, "X"))
    for name in ("salary", "salxry"):
        with pytest.raises(InputError) as wrong:
            rows_of(whole, type="Person", columns=name, **ana)
        told.append(wrong.value.render().replace(name, "X"))
    assert told[0] == told[1]
    assert told[2] == told[3]
    with pytest.raises(InputError, match="'filter' is for actors who see all"):
        rows_of(whole, type="Person", filter="salary > 7", **ana)
    with pytest.raises(PolicyDenied):
        rows_of(whole, type="Person", **{**ana, "actor": "act-nobody"})
    for left in ("actor", "policy"):
        with pytest.raises(InputError, match=f"needs the option '{left}'"):
            rows_of(whole, type="Person", **{k: v for k, v in ana.items() if k != left})


def test_c_acc_005_a_stream_of_changes_is_that_without_what_is_hidden(
    whole: Graph, ana: dict[str, str]
):
    source = DefaultSource({"path": whole.uri, "start": "beginning", **ana})
    source.schema()
    reader = sent(source.streamReader(source.schema()))
    assert isinstance(reader, FeedReader)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    found = [
        row
        for part in reader.partitions(start, end)
        for batch in sent(reader).read(sent(part))
        for row in batch.to_pylist()
    ]
    assert {(row["type"], row["id"]) for row in found if row["kind"] == "node"} == {
        ("Person", "ada"),
        ("Person", "cy"),
        ("Company", "acme"),
    }
    assert not any("salary" in row["after"] for row in found)
    with pytest.raises(PolicyDenied):
        DefaultSource({"path": whole.uri, **ana, "actor": "act-nobody"}).schema()


def test_c_acc_007_writes_of_tasks_are_for_actors_without_limits(whole: Graph, ana: dict[str, str]):
    schema = DefaultSource({"path": whole.uri, "type": "Company"}).schema()
    for name, error in (("act-ana", Denied), ("act-nobody", PolicyDenied)):
        source = DefaultSource({"path": whole.uri, "type": "Company", **ana, "actor": name})
        with pytest.raises(error):
            source.writer(schema, overwrite=False)
        with pytest.raises(error):
            source.streamWriter(schema, overwrite=False)
    own = {**ana, "actor": "act-own"}
    DefaultSource({"path": whole.uri, "type": "Company", **own}).writer(schema, overwrite=False)
