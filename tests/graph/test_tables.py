"""Tables of a graph: the rows of one type as Arrow, and results made wide."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.errors import InputError, NotFound, OmnigraphError, ParameterError, QueryTypeError
from omnigraph.graph.facade import Graph
from omnigraph.model import tables

SCHEMA = """
node Airport {
    code: String @key
    city: String?
    elevation: I32?
    opened: Date?
    tags: [String]?
    photo: Blob?
    place: Vector(2)?
}
edge Route: Airport -> Airport { km: F32? }
node Route_ { n: I64 @key }
"""
RECORDS = """\
{"type": "Airport", "data": {"code": "OSL", "city": "Oslo", "elevation": 208, "tags": ["hub"], \
"opened": "1998-10-08", "photo": "base64:aGk=", "place": [11.1, 60.2]}}
{"type": "Airport", "data": {"code": "AMS", "city": "Amsterdam", "elevation": -3}}
{"type": "Airport", "data": {"code": "ZRH"}}
{"edge": "Route", "from": "OSL", "to": "AMS", "data": {"id": "r1", "km": 0.1}}
{"edge": "Route", "from": "AMS", "to": "OSL", "data": {"id": "r2"}}
"""


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    made = og.init(tmp_path_factory.mktemp("tables") / "air.omni", schema=SCHEMA)
    made.load(data=RECORDS, mode="append", engine="local")
    return made


def codes(graph: Graph, where: Any, **options: Any) -> list[str]:
    found = graph.table("Airport", columns=["id"], where=where, **options).to_arrow()
    return sorted(found["id"].to_pylist())


# --- rows -----------------------------------------------------------------------------------------


def test_a_node_table_has_its_id_and_properties_with_their_types(graph: Graph) -> None:
    table = graph.table("Airport")
    assert table.columns == [
        *("id", "city", "code", "elevation", "opened", "photo", "place", "tags"),
    ]
    assert all(not field.metadata for field in table.schema)
    assert table.schema.field("place").type == pa.list_(pa.float32(), 2)
    rows = {row["id"]: row for row in table.to_arrow().to_pylist()}
    assert rows.keys() == {"OSL", "AMS", "ZRH"}
    assert rows["OSL"]["opened"] == dt.date(1998, 10, 8)
    assert rows["OSL"]["photo"] == {"kind": "managed", "size": 2, "uri": None}
    assert rows["ZRH"] == dict.fromkeys(table.columns) | {"id": "ZRH", "code": "ZRH"}
    assert repr(table).startswith("Table(Airport of branch main: id, city,")


def test_an_edge_table_has_its_ends(graph: Graph) -> None:
    table = graph.table("Route")
    assert table.columns == ["id", "src", "dst", "km"]
    assert table.to_arrow().sort_by("id").to_pylist() == [
        {"id": "r1", "src": "OSL", "dst": "AMS", "km": pytest.approx(0.1)},
        {"id": "r2", "src": "AMS", "dst": "OSL", "km": None},
    ]
    assert graph.table("edge:Route").columns == table.columns


def test_columns_are_chosen_and_ordered(graph: Graph) -> None:
    assert graph.table("Airport", columns=["elevation", "id"]).columns == ["elevation", "id"]
    assert graph.table("Route", columns="km").to_arrow().num_columns == 1


def test_a_table_without_rows_still_has_its_columns(graph: Graph) -> None:
    table = graph.table("Route_")
    assert (table.to_arrow().num_rows, table.to_arrow().schema) == (0, table.schema)
    assert list(table) == []
    assert codes(graph, "elevation > 9000") == []


def test_arrow_speakers_take_the_table_itself(graph: Graph) -> None:
    t = graph.table("Airport")
    assert pa.table(t) == t.to_arrow() == t.to_reader().read_all()
    assert duckdb.execute("select max(elevation) from t").fetchall() == [(208,)]
    frame = t.to_pandas()
    assert str(frame["elevation"].dtype) == "Int32"
    for polars in (t.to_polars(), pl.DataFrame(t)):
        assert polars["elevation"].dtype == pl.Int32
        assert polars.to_dicts() == t.to_arrow().to_pylist()
    twice = og.init(Path(graph.uri).parent / "twice.omni", schema=SCHEMA)
    twice.load(frames={"Airport": graph.table("Airport", columns=["code", "city"])}, mode="append")
    assert codes(twice, {"city": None}) == ["ZRH"]


def test_rows_come_in_bounded_batches(graph: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "BATCH_ROWS", 2)
    assert [batch.num_rows for batch in graph.table("Airport")] == [2, 1]
    monkeypatch.setattr(tables, "VECTOR_BYTES", 8)
    assert [batch.num_rows for batch in graph.table("Airport")] == [1, 1, 1]
    assert [batch.num_rows for batch in graph.table("Airport", columns=["id"])] == [2, 1]


# --- conditions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("elevation > 0", ["OSL"]),
        ('elevation < 0 or city = "Oslo"', ["AMS", "OSL"]),
        ('id in ["OSL", "ZRH"]', ["OSL", "ZRH"]),
        ("city is null", ["ZRH"]),
        ('code = "AMS"', ["AMS"]),
        ('opened >= date("1990-01-01")', ["OSL"]),
        ("opened < now()", []),
        ({"code": "AMS"}, ["AMS"]),
        ({"id": "AMS", "elevation": -3}, ["AMS"]),
        ({"id": "AMS", "elevation": 3}, []),
        ({"city": None}, ["ZRH"]),
        ({"elevation": np.array([208, -3])}, ["AMS", "OSL"]),
        ({"opened": np.datetime64("1998-10-08")}, ["OSL"]),
        ({"tags": "hub"}, ["OSL"]),
        ({"place": None}, ["AMS", "ZRH"]),
    ],
    ids=str,
)
def test_a_condition_keeps_the_rows_for_which_it_holds(
    graph: Graph, where: Any, expected: list[str]
) -> None:
    if where == "opened < now()":
        with pytest.raises(QueryTypeError, match="cannot compare Date"):
            codes(graph, where)
        return
    assert codes(graph, where) == expected


def test_conditions_on_edges_may_name_the_ends(graph: Graph) -> None:
    for where in ('src = "OSL"', 'from = "OSL"', {"src": "OSL"}, {"km": 0.1}, 'id = "r1"'):
        assert graph.table("Route", where=where).to_arrow()["id"].to_pylist() == ["r1"]


@pytest.mark.parametrize(
    ("asked", "kind", "message", "hint"),
    [
        ({"type": "Airprt"}, NotFound, "there is no type 'Airprt'", "Airport"),
        ({"columns": ["cty"]}, InputError, "Airport has no column 'cty'", "city"),
        ({"columns": []}, InputError, "names no column", "leave it out"),
        ({"columns": ["id", "id"]}, InputError, "'id' is asked for twice", "once"),
        ({"where": "cty = 1"}, QueryTypeError, "Airport has no property `cty`", "city"),
        ({"where": 'city = "x" city'}, OmnigraphError, "expected `and`, `or` or the end", ""),
        ({"where": "city > $x"}, QueryTypeError, "x", ""),
        ({"where": {"cty": 1}}, InputError, "Airport has no column 'cty'", "city"),
        ({"where": {"elevation": "high"}}, ParameterError, "'elevation' expects I32", ""),
        ({"where": {"place": [1, 2]}}, InputError, "cannot be matched by value", "None"),
        ({"where": {}}, InputError, "takes a text or values", "where="),
        ({"where": 7}, InputError, "takes a text or values", "where="),
        ({"branch": "none"}, NotFound, "none", ""),
        ({"branch": "main", "snapshot": "x"}, InputError, "not both", "leave"),
    ],
    ids=str,
)
def test_what_is_wrong_is_told_before_a_row_is_read(
    graph: Graph, asked: dict[str, Any], kind: type[OmnigraphError], message: str, hint: str
) -> None:
    with pytest.raises(kind) as caught:
        graph.table(**{"type": "Airport", **asked})
    assert message in caught.value.message
    assert hint in (caught.value.hint or "")


# --- snapshots ------------------------------------------------------------------------------------


@pytest.fixture
def moving(tmp_path: Path) -> Iterator[Graph]:
    made = og.init(tmp_path / "air.omni", schema=SCHEMA)
    made.load(data=RECORDS, mode="append", engine="local")
    yield made


ADD = "query q($c: String) { insert Airport { code: $c } }"


def test_a_table_keeps_its_commit_and_branches_and_snapshots_are_told_apart(moving: Graph) -> None:
    before = moving.table("Airport", columns=["id"])
    moving.create_branch("review")
    moving.mutate(ADD, {"c": "NEW"}, branch="review")
    moving.mutate(ADD, {"c": "OLD"})
    assert before.to_arrow().num_rows == 3
    assert codes(moving, None, branch="review") == ["AMS", "NEW", "OSL", "ZRH"]
    assert codes(moving.on_branch("review"), None) == ["AMS", "NEW", "OSL", "ZRH"]
    assert codes(moving, None, snapshot=before.graph_commit_id) == ["AMS", "OSL", "ZRH"]
    assert codes(moving, {"code": "OLD"}) == ["OLD"]


def test_an_older_commit_has_the_names_and_types_of_today(moving: Graph) -> None:
    then = moving.table("Airport").graph_commit_id
    renamed = SCHEMA.replace(
        "city: String?", 'town: String? @rename_from("city")  note: String?  scan: Blob?'
    ).replace("elevation: I32?", "elevation: I64?")
    moving.apply_schema(renamed + "node Later { name: String @key }")
    table = moving.table("Airport", snapshot=then)
    rows = {row["id"]: row for row in table.to_arrow().to_pylist()}
    assert rows["OSL"]["town"] == "Oslo"
    assert (rows["OSL"]["note"], rows["OSL"]["scan"]) == (None, None)
    assert rows["OSL"]["photo"] == {"kind": "managed", "size": 2, "uri": None}
    assert table.schema.field("elevation").type == pa.int64()
    assert codes(moving, 'town = "Oslo"', snapshot=then) == ["OSL"]
    assert codes(moving, {"code": "OSL"}, snapshot=then) == ["OSL"]
    with pytest.raises(NotFound, match="Later"):
        moving.table("Later", snapshot=then)
    assert moving.table("Later").to_arrow().num_rows == 0


# --- results --------------------------------------------------------------------------------------


def test_flatten_makes_the_members_of_an_object_columns(graph: Graph) -> None:
    text = """query q { match { $a: Airport  $a $r: route $b  $b.code = "AMS" }
        return { $a.code as start, $b.*, $r.* as way } }"""
    result = graph.query(text)
    wide = result.to_arrow(flatten=True)
    assert wide.column_names[:3] == ["start", "b.id", "b.city"]
    assert wide["way.src"].to_pylist() == ["OSL"]
    assert result.to_arrow().column_names == ["start", "b", "way"]
    assert "b.elevation" in result.to_pandas(flatten=True).columns
    assert result.to_polars(flatten=True).columns == wide.column_names


def test_flatten_refuses_two_columns_of_one_name(graph: Graph) -> None:
    result = graph.query("query q { match { $a: Airport } return { $a.code, $a.* } }")
    with pytest.raises(InputError, match=r"two columns would be called 'a\.code'"):
        result.to_arrow(flatten=True)
