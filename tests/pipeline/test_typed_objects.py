"""JSON and Avro files of one type: objects of properties, under the rules of graph records."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
import pytest

import omnigraph
from omnigraph.errors import InputError, OmnigraphError, install_command
from omnigraph.graph import ErrorOptions, Graph
from omnigraph.loading.records.framing import items_on_lines
from tests.commit.loading import lines, node
from tests.pipeline.conftest import SCHEMA
from tests.pipeline.test_sources import entities


def load(graph: Graph, path: Path, text: bytes | None = None, **more: Any) -> Any:
    """The receipt, or the error."""
    if text is not None:
        path.write_bytes(text)
    try:
        options = {"errors": ErrorOptions(99), **(more or {"nodes": {"Person": path}})}
        return graph.load(mode="append", engine="local", **options)
    except OmnigraphError as error:
        return error


def told(error: Any, unit: str = "line") -> list[tuple[int, str, str]]:
    """The problems of an input: line, kind and message."""
    assert isinstance(error, InputError), error
    problems = error.details.get("problems", [error.details])
    return [(each[unit], each["kind"], each["message"]) for each in problems]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "p.jsonl"


# --- JSON ---

PEOPLE: list[dict[str, Any]] = [
    {"slug": "a", "name": "2026-01-05", "tags": ["2026-01-05"], "age": 1},
    {"slug": "2026-01-05", "visits": 2**64 - 1, "seen": "2026-01-05T10:00:00"},
    {"slug": "c", "seen": 1767607200000, "leaf": [1, 2.5], "born": "1815-12-10"},
    {"slug": "d", "level": None, "weight": 1, "photo": "base64:AA=="},
]


def test_c_pip_001_objects_give_the_rows_that_records_give(graph, path, tmp_path):
    load(graph, path, lines(*PEOPLE))
    other = omnigraph.init(tmp_path / "other.omni", SCHEMA)
    other.load(data=lines(*(node("Person", **each) for each in PEOPLE)), mode="append")
    assert entities(graph) == entities(other)
    assert len(entities(graph)) == 4


BAD: list[dict[str, Any]] = [
    {"slug": "ok"},
    {"slug": "p1", "age": 2.0},
    {"slug": "p2", "leaf": ["1", 2]},
    {"slug": "p3", "seen": "2026-01-05T10:00"},
    {"slug": "p4", "seen": "2026-01-05 10"},
    {"slug": "p5", "born": "0000-01-01"},
    {"slug": "p6", "agee": 1},
    {"name": "no key"},
    {"slug": "p7", "age": 151},
    {"slug": "ok"},
    {"slug": "p8", "id": 5},
]


def test_c_pip_002_objects_have_the_problems_that_records_have(graph, path):
    found = told(load(graph, path, lines(*BAD)))
    # Records from memory have no file: messages name their lines alone.
    objects = [(line, kind, text.replace(f"{path}:", "line ")) for line, kind, text in found]
    with pytest.raises(InputError) as caught:
        records = lines(*(node("Person", **each) for each in BAD))
        graph.load(data=records, mode="append", grammar="strict", errors=ErrorOptions(99))
    assert sorted(objects) == sorted(told(caught.value))
    assert len(objects) == 10


@pytest.mark.parametrize(
    ("line", "kind", "words"),
    [
        (b"{broken", "invalid_json", "at line 3"),
        (b'{"slug": "x", "slug": "y"}', "duplicate_member", "'slug'"),
        (b'{"slug": "x", "weight": NaN}', "invalid_json", "NaN"),
        (b'{"slug": "x"} {"slug": "y"}', "invalid_json", "extra data"),
        (b'\xef\xbb\xbf{"slug": "x"}', "invalid_json", "byte order mark"),
        (b'{"slug": "x", "name": "\xf6"}', "invalid_json", "UTF-8"),
        (b"[1]", "invalid_json", "a record is an object, got an array"),
    ],
)
def test_c_pip_004_a_bad_line_is_a_problem_beside_others(graph, path, line, kind, words):
    text = b'{"slug": "a", "age": "old"}\n\n' + line + b'\n{"slug": "b", "age": "old"}\n'
    first, second, third = told(load(graph, path, text))
    assert (first[:2], third[:2]) == ((1, "bad_value"), (4, "bad_value"))
    assert second[:2] == (3, kind) and words in second[2]


def test_lines_are_counted_from_the_beginning_of_a_file_in_parts(graph, path, monkeypatch):
    monkeypatch.setattr("omnigraph.loading.pieces.TASK_BYTES_MIN", 300)
    rows: list[Any] = [{"slug": f"p{i}"} for i in range(100)]
    rows[40], rows[60], rows[80] = "{broken", {"slug": "p59"}, {"slug": "x", "age": ""}
    found = told(load(graph, path, lines(*rows)))
    assert {each[:2] for each in found} == {
        (41, "invalid_json"),
        (61, "repeated_key"),
        (81, "bad_value"),
    }
    assert "at line 41" in found[0][2]


@pytest.mark.parametrize("text", [b'[{"slug": "a"}]', b'\n [\n  {"slug": "a"}\n]\n'])
def test_a_file_that_holds_one_array_is_read(graph, path, text):
    for slug, file in (("a", path), ("b", path.with_suffix(".json.gz"))):
        raw = text.replace(b'"a"', f'"{slug}"'.encode())
        zipped = gzip.compress(raw) if file.suffix == ".gz" else raw
        load(graph, file, zipped, nodes={"Person": file})
    assert sorted(entities(graph)) == ["a", "b"]


def test_bad_items_of_an_array_are_told_by_their_number(graph, path, monkeypatch):
    monkeypatch.setattr("omnigraph.loading.pieces.TASK_BYTES_MIN", 20)
    items = ['{"slug": "a",\n "age": "old"}', "7", '{"slug": "b" "c"}', '{"slug":\n"d",}', "{}"]
    error = load(
        graph,
        path.with_suffix(".json"),
        f"[{', '.join(items)}".encode(),
        nodes={"Person": path.with_suffix(".json")},
    )
    found = told(error, "record")
    assert [each[:2] for each in found] == [
        (1, "bad_value"),
        (2, "invalid_json"),
        (3, "invalid_json"),
        (4, "invalid_json"),
        (5, "bad_value"),
        (6, "invalid_json"),
    ]
    assert "at record 2: a record is an object, got number 7" in found[1][2]


def test_an_array_of_graph_records_is_read_by_both_grammars(graph, tmp_path):
    path = tmp_path / "records.json"
    records = [node("Person", slug="a"), node("Person", slug="b")]
    path.write_text(json.dumps(records, indent=1))
    for grammar in ("strict", "compatible"):
        graph.load(path, mode="merge", grammar=grammar, engine="local")
    assert sorted(entities(graph)) == ["a", "b"]
    path.write_text(json.dumps([*records, {"type": "Persn", "data": {}}]))
    with pytest.raises(InputError, match=r"records.json:3: .*Persn"):
        graph.load(path, mode="merge", grammar="strict", engine="local")


@pytest.mark.parametrize("block", [1, 3, 1000])
@pytest.mark.parametrize(
    ("text", "items"),
    [
        (" [ ]\n", []),
        ('[{"a": "],}"}, {"b": [1, {}]}]', ['{"a": "],}"}', '{"b": [1, {}]}']),
        ('[1, "x, ]", null]', ["1", '"x, ]"', "null"]),
        ("[{},]", ["{}", ",]"]),
        ("[,{}]", [",{}"]),
        ("[{} {}]", ["{}", ",{}"]),
        ("[{}", ["{}", "["]),
        ('[{"a"', ['{"a"']),
        ("[", ["["]),
    ],
)
def test_an_array_is_cut_into_its_items_whatever_the_blocks(text, items, block):
    raw = text.encode()
    blocks = [raw[at : at + block] for at in range(0, len(raw), block)]
    assert b"".join(items_on_lines(blocks, "f")).decode().splitlines() == items


def test_unknown_members_are_refused_unless_they_are_to_be_left_out(graph, path):
    text = lines({"slug": "a", "nmae": "A"}, {"slug": "b", "from": "x"})
    error = load(graph, path, text)
    assert [each[:2] for each in told(error)] == [(1, "unknown_field"), (2, "unknown_field")]
    assert "did you mean 'name'?" in error.hint and "--ignore-unknown" in error.hint
    load(graph, path, text, nodes={"Person": path}, errors=ErrorOptions(99, ignore_unknown=True))
    assert set(entities(graph)) == {"a", "b"}


def test_edges_name_their_ends_among_their_properties(graph, path):
    load(graph, path, lines({"slug": "a"}, {"slug": "b"}))
    text = lines(
        {"from": "a", "to": "b", "since": "2020-01-01", "id": "k1"},
        {"src": "b", "dst": "a", "id": "k2", "junk": 1},
    )
    load(graph, path, text, edges={"Knows": path}, errors=ErrorOptions(99, ignore_unknown=True))
    records = [json.loads(line) for line in b"".join(graph.export()).splitlines()]
    ends = {r["data"]["id"]: (r["from"], r["to"]) for r in records if "edge" in r}
    assert ends == {"k1": ("a", "b"), "k2": ("b", "a")}
    text = lines(
        {"to": "b"},
        {"from": None, "to": 5},
        {"from": "a", "src": "b", "to": "b"},
        "[]",
        {"from": "a", "to": "b"},
        {"from": "a", "to": "b", "since": "x"},
    )
    found = told(load(graph, path, text, edges={"Knows": path}))
    assert [each[:2] for each in found] == [
        (1, "bad_endpoint"),
        (2, "bad_endpoint"),
        (3, "reserved_field"),
        (4, "invalid_json"),
        (6, "bad_value"),
    ]


def test_ends_may_be_values_of_keys(tmp_path):
    graph = omnigraph.init(tmp_path / "g.omni", "node Day { n: I64 @key }\nedge Next: Day -> Day")
    load(graph, tmp_path / "d.json", lines({"n": 1}, {"n": 2}), nodes={"Day": tmp_path / "d.json"})
    path = tmp_path / "n.json"
    text = lines({"from": 1, "to": 2}, {"from": "2", "to": 1})
    assert load(graph, path, text, edges={"Next": path}).edges[0].inserted == 2
    error = load(
        graph, path, lines({"from": 1, "to": 2.5}, {"from": 1, "to": 3}), edges={"Next": path}
    )
    assert [each[:2] for each in told(error)] == [(1, "bad_endpoint"), (2, "missing_node")]


def test_an_id_that_is_null_is_none(graph, path):
    text = lines({"id": None, "text": "x"}, {"id": "n", "text": "y"}, {"text": "z"})
    receipt = load(graph, path, text, nodes={"Note": path})
    assert receipt.nodes[0].inserted == 3
    assert "n" in entities(graph)
    assert load(graph, path, lines({"id": None, "slug": "a"})).nodes[0].inserted == 1
    error = load(graph, path, lines({"id": 5, "text": "x"}), nodes={"Note": path})
    assert [kind for _, kind, _ in told(error)] == ["bad_id"]


def test_ends_that_are_named_twice_are_told_what_they_are(graph, path):
    record = {"from": "a", "src": "a", "to": "b"}
    error = load(graph, path, lines(record), edges={"Knows": path})
    assert error.hint == "name each end once: 'from' is 'src', and 'to' is 'dst'"


# --- Avro ---


def write_avro(path: Path, fields: list[dict[str, Any]], rows: list[dict[str, Any]]) -> None:
    with path.open("wb") as stream:
        schema = {"type": "record", "name": "Person", "fields": fields}
        fastavro.writer(stream, fastavro.parse_schema(schema), rows)


def field(name: str, *types: Any) -> dict[str, Any]:
    return {"name": name, "type": list(types)}


def test_avro_values_are_taken_for_what_they_mean(graph, tmp_path):
    path = tmp_path / "p.avro"
    id = UUID("12345678-1234-5678-1234-567812345678")
    fields = [
        field("slug", {"type": "string", "logicalType": "uuid"}),
        field("born", "null", {"type": "int", "logicalType": "date"}),
        field("seen", "null", {"type": "long", "logicalType": "timestamp-micros"}),
        field("photo", "null", "bytes"),
        field("visits", {"type": "bytes", "logicalType": "decimal", "precision": 20, "scale": 0}),
        field("name", "string", "int"),
        field("tags", {"type": "array", "items": "string"}),
        field("leaf", {"type": "array", "items": "float"}),
    ]
    moment = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=dt.UTC)
    row = {
        "slug": id,
        "born": dt.date(1969, 12, 31),
        "seen": moment,
        "photo": b"\x00",
        "visits": Decimal(2**64 - 1),
        "name": "A",
        "tags": ["x"],
        "leaf": [1.5, 2],
    }
    write_avro(path, fields, [row])
    load(graph, path, nodes={"Person": path})
    (found,) = entities(graph).values()
    assert {key: found[key] for key in row} == {
        "slug": str(id),
        "born": -1,
        "seen": -1,
        "photo": "base64:AA==",
        "visits": 2**64 - 1,
        "name": "A",
        "tags": ["x"],
        "leaf": [1.5, 2.0],
    }


def test_c_pip_004_an_avro_record_with_a_wrong_value_is_named(graph, tmp_path):
    path = tmp_path / "p.avro"
    rows = [{"slug": slug, "name": name} for slug, name in (("a", "A"), ("b", 5), ("c", "C"))]
    write_avro(path, [field("slug", "string"), field("name", "string", "int")], rows)
    ((record, kind, message),) = told(load(graph, path, nodes={"Person": path}), "record")
    assert (record, kind) == (2, "bad_value") and "expects Utf8, got number 5" in message


def test_c_pip_017_avro_columns_are_checked_before_any_record(graph, tmp_path):
    path = tmp_path / "p.avro"
    write_avro(
        path, [field("slug", "string"), field("nmae", "string")], [{"slug": "a", "nmae": ""}]
    )
    error = load(graph, path, nodes={"Person": path})
    assert "unknown column 'nmae'" in error.message
    assert (
        load(graph, path, nodes={"Person": path}, errors=ErrorOptions(99, ignore_unknown=True))
        .nodes[0]
        .inserted
        == 1
    )


def test_the_avro_record_that_cannot_be_read_is_named(graph, tmp_path):
    path = tmp_path / "p.avro"
    write_avro(path, [field("slug", "string")], [{"slug": f"p{i}"} for i in range(9)])
    path.write_bytes(path.read_bytes()[:-30])
    error = load(graph, path, nodes={"Person": path})
    assert isinstance(error, InputError) and "p.avro:" in error.message
    assert "the record cannot be read" in error.message


def test_without_fastavro_the_way_to_install_it_is_told(graph, tmp_path, monkeypatch):
    path = tmp_path / "p.avro"
    write_avro(path, [field("slug", "string")], [{"slug": "a"}])
    monkeypatch.setitem(sys.modules, "fastavro", None)
    error = load(graph, path, nodes={"Person": path})
    assert isinstance(error, InputError) and error.hint == install_command("spark")
