"""Overwriting types by tables: also by empty ones, and never from under edges that stay."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.errors import ConstraintViolation, InputError
from omnigraph.graph import ErrorOptions, Graph
from tests.commit.loading import edge, lines, node


def slugs(graph: Graph) -> list[str]:
    records = (json.loads(line) for line in b"".join(graph.export(types=["Person"])).splitlines())
    return sorted(record["data"]["slug"] for record in records)


def empty_csv(tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "people.csv"
    path.write_text("slug,name\n")
    return {"nodes": {"Person": path}}


def empty_frame(_: Path) -> dict[str, Any]:
    return {"frames": {"Person": pa.table({"slug": pa.array([], pa.string())})}}


@pytest.mark.parametrize("given", [empty_csv, empty_frame])
def test_c_pip_011_a_type_that_is_named_is_replaced_even_by_nothing(graph, tmp_path, given):
    graph.load(data=lines(node("Person", slug="ada"), node("Note", text="x")), mode="append")
    receipt = graph.load(**given(tmp_path), mode="overwrite", engine="local")
    assert [(each.name, each.inserted) for each in receipt.nodes] == [("Person", 0)]
    assert receipt.commit is not None
    assert slugs(graph) == []
    assert len(b"".join(graph.export(types=["Note"])).splitlines()) == 1


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_other_modes_leave_a_type_alone_that_they_have_no_rows_of(graph, tmp_path, mode):
    graph.load(data=lines(node("Person", slug="ada")), mode="append")
    assert graph.load(**empty_csv(tmp_path), mode=mode, engine="local").commit is None
    assert slugs(graph) == ["ada"]


def test_c_pip_011_records_replace_only_the_types_they_are_of(graph: Graph, tmp_path):
    graph.load(data=lines(node("Person", slug="ada")), mode="append")
    path = tmp_path / "none.jsonl"
    path.touch()
    assert graph.load(path, mode="overwrite", engine="local").commit is None
    assert slugs(graph) == ["ada"]


KEPT = [
    node("Person", slug="a"),
    node("Person", slug="b"),
    {"edge": "Knows", "from": "a", "to": "b", "data": {"id": "e1"}},
    {"edge": "Knows", "from": "b", "to": "b", "data": {"id": "e2"}},
]
STRANDED = [
    "edge Knows 'e1', which is kept, ends at Person 'b', which this load removes",
    "edge Knows 'e2', which is kept, starts at Person 'b', which this load removes",
]


def test_c_pip_011_edges_that_stay_are_named_with_the_node_they_would_lose(graph, tmp_path):
    graph.load(data=lines(*KEPT), mode="append")
    table, records = tmp_path / "people.csv", tmp_path / "people.jsonl"
    table.write_text("slug\na\n")
    records.write_bytes(lines(node("Person", slug="a")))
    sources: list[dict[str, Any]] = [
        {"nodes": {"Person": table}},
        {"data": records.read_bytes(), "errors": ErrorOptions(9)},
    ]
    for source in sources:
        with pytest.raises(InputError) as caught:
            graph.load(**source, mode="overwrite", engine="local")
        told = caught.value.details["problems"]
        assert sorted(each["message"] for each in told) == STRANDED
        assert caught.value.hint == "load its edges as well, or keep the node"


def test_c_pip_011_an_empty_table_strands_edges_as_well(graph: Graph, tmp_path):
    graph.load(data=lines(node("Person", slug="a"), edge("Knows", "a", "a")), mode="append")
    with pytest.raises(ConstraintViolation, match="which is kept, starts at Person 'a'"):
        graph.load(**empty_csv(tmp_path), mode="overwrite", engine="local")
    edges = tmp_path / "knows.csv"
    edges.write_text("from,to\n")
    both = {**empty_csv(tmp_path), "edges": {"Knows": edges}}
    receipt = graph.load(**both, mode="overwrite", engine="local")
    assert [(each.name, each.inserted) for each in receipt.edges] == [("Knows", 0)]
    assert slugs(graph) == []
