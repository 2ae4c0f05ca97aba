"""Ends of edges that are texts, where the key of a node is none: values of the key, or ids."""

from __future__ import annotations

import csv
import datetime as dt
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import omnigraph
from omnigraph.errors import ConstraintViolation
from omnigraph.graph import Graph

Pairs = Sequence[tuple[str, str]]


def graph_of(tmp_path: Path, type: str, *keys: Any) -> Graph:
    """Nodes with a key of a type, between which edges may be."""
    graph = omnigraph.init(tmp_path / "g.omni", f"node A {{ k: {type} @key }}\nedge E: A -> A")
    records = [json.dumps({"type": "A", "data": {"k": key}}) for key in keys]
    graph.load(data="\n".join(records).encode(), mode="append")
    return graph


def as_csv(path: Path, ends: Pairs) -> Path:
    path = path / "e.csv"
    with path.open("w") as stream:
        csv.writer(stream).writerows([("from", "to"), *ends])
    return path


def as_parquet(path: Path, ends: Pairs) -> Path:
    columns = {name: [each[i] for each in ends] for i, name in enumerate(("from", "to"))}
    pq.write_table(pa.table(columns), path / "e.parquet")
    return path / "e.parquet"


def as_json(path: Path, ends: Pairs) -> Path:
    path = path / "e.jsonl"
    path.write_text("\n".join(json.dumps({"from": a, "to": b}) for a, b in ends))
    return path


FORMS = [as_csv, as_parquet, as_json]


def load(graph: Graph, path: Path) -> None:
    graph.load(edges={"E": path}, mode="append", engine="local")


def edges(graph: Graph) -> list[tuple[str, str]]:
    records = [json.loads(line) for line in b"".join(graph.export()).splitlines()]
    return sorted((each["from"], each["to"]) for each in records if "edge" in each)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("type", "keys", "texts", "ids"),
    [
        ("Date", ["2026-01-01", "1969-12-31"], ("2026-01-01", "1969-12-31"), ("20454", "-1")),
        ("DateTime", [0, 1000], ("1970-01-01T01:00:00+01:00", "1970-01-01T00:00:01Z"), "0 1000"),
        ("I64", [7, -7], ("007", "-7"), ("7", "-7")),
        ("F64", [1000, 0.5], ("1e3", ".5"), ("1000", "0.5")),
        ("Bool", [True, False], ("TRUE", "false"), ("true", "false")),
    ],
)
def test_a_text_that_is_a_value_of_the_key_names_its_node_and_so_does_its_id(
    form: Callable[..., Path], type: str, keys: Any, texts: Any, ids: Any, tmp_path: Path
):
    graph = graph_of(tmp_path, type, *keys)
    ids = tuple(ids.split()) if isinstance(ids, str) else ids
    load(graph, form(tmp_path, [texts, ids]))
    assert edges(graph) == [ids, ids]


@pytest.mark.parametrize("form", FORMS)
def test_a_text_that_is_no_value_of_the_key_is_taken_for_an_id(form, tmp_path):
    graph = graph_of(tmp_path, "Date", "2026-01-01")
    with pytest.raises(ConstraintViolation, match="dst 'soon' not found in A"):
        load(graph, form(tmp_path, [("2026-01-01", "20454"), ("2026-01-01", "soon")]))


def test_dates_of_avro_name_nodes(tmp_path):
    graph = graph_of(tmp_path, "Date", "2026-01-01")
    date = {"type": "int", "logicalType": "date"}
    fields = [{"name": "from", "type": date}, {"name": "to", "type": "string"}]
    day = dt.date(2026, 1, 1)
    with (tmp_path / "e.avro").open("wb") as stream:
        schema = {"type": "record", "name": "E", "fields": fields}
        fastavro.writer(stream, schema, [{"from": day, "to": "2026-01-01"}])
    load(graph, tmp_path / "e.avro")
    assert edges(graph) == [("20454", "20454")]
