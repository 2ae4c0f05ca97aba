"""Values of tables and frames that no property may hold: refused with their record, never kept."""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import omnigraph
from omnigraph.errors import InputError
from omnigraph.graph import ErrorOptions, Graph, SparkOptions

LATIN_1 = "Körner".encode("latin-1")


def texts(*values: bytes | None, type: pa.DataType | None = None) -> pa.Array:
    """A column of texts with whatever bytes: nothing of Arrow looks at them."""
    column = pa.array(values, pa.binary()).view(pa.string())
    return column if type is None else column.cast(type)


def load(graph: Graph, **options: Any) -> Any:
    return graph.load(**{"mode": "append", "engine": "local", **options})


def refused(graph: Graph, tmp_path: Path, **options: Any) -> list[tuple[int, str | None, str]]:
    """Record, property and message of each problem of a load by threads."""
    with pytest.raises(InputError):
        load(graph, errors=ErrorOptions(errors_out=tmp_path / "problems.jsonl"), **options)
    assert len(graph.list_commits()) == 1
    return told(tmp_path / "problems.jsonl")


def told(path: Path) -> list[tuple[int, str | None, str]]:
    problems = [json.loads(line) for line in path.read_text().splitlines()]
    return sorted((each["record"], each["property"], each["message"]) for each in problems)


def people(graph: Graph) -> dict[str, dict[str, Any]]:
    records = [json.loads(line) for line in b"".join(graph.export()).splitlines()]
    return {each["data"]["id"]: each["data"] for each in records if "type" in each}


# --- texts ---

BAD_TEXTS: dict[str, Mapping[str, Any]] = {
    "a text": {"name": texts(b"Ada", LATIN_1, None)},
    "a large text": {"name": texts(b"Ada", LATIN_1, None, type=pa.large_string())},
    "a view": {"name": pa.array([b"Ada", LATIN_1, None], pa.binary_view()).view(pa.string_view())},
    "a dictionary": {
        "name": pa.DictionaryArray.from_arrays(pa.array([0, 1, 0]), texts(b"Ada", LATIN_1))
    },
    "an item of a list": {
        "tags": pa.ListArray.from_arrays(pa.array([0, 1, 3, 3]), texts(b"x", b"y", LATIN_1))
    },
    "a view in a list": {
        "tags": pa.ListArray.from_arrays(
            pa.array([0, 1, 3, 3]),
            pa.array([b"x", b"y", LATIN_1], pa.binary_view()).view(pa.string_view()),
        )
    },
    "a date": {"born": texts(b"2026-01-05", LATIN_1, None)},
    "a blob": {"photo": texts(b"base64:", LATIN_1, None)},
    "a value of an enum": {"mood": texts(b"calm", LATIN_1, None)},
}


@pytest.mark.parametrize("case", BAD_TEXTS)
def test_a_text_that_is_not_utf_8_is_a_problem_of_its_record(case, graph, tmp_path):
    columns = BAD_TEXTS[case]
    (name,) = columns
    frame = pa.table({"slug": ["a", "b", "c"], **columns})
    ((record, member, message),) = refused(graph, tmp_path, frames={"Person": frame})
    assert (record, member) == (2, name)
    assert message == f"property '{name}' is not UTF-8"


def test_keys_ids_and_endpoints_are_utf_8(graph, tmp_path):
    key = pa.table({"slug": texts(b"a", LATIN_1)})
    assert refused(graph, tmp_path, frames={"Person": key}) == [
        (2, "slug", "property 'slug' is not UTF-8")
    ]
    id = pa.table({"text": ["t", "u"], "id": texts(LATIN_1, b"n")})
    assert refused(graph, tmp_path, frames={"Note": id}) == [(1, "id", "id is not UTF-8")]
    ends = pa.table({"from": texts(b"a", LATIN_1), "to": texts(LATIN_1, b"a")})
    people = pa.table({"slug": ["a"]})
    assert refused(graph, tmp_path, frames={"Person": people, "Knows": ends}) == [
        (1, "to", "field 'to' is not UTF-8"),
        (2, "from", "field 'from' is not UTF-8"),
    ]


@pytest.mark.parametrize("suffix", ["parquet", "orc", "arrow"])
@pytest.mark.parametrize("mode", ["append", "merge", "overwrite"])
def test_files_with_texts_that_are_not_utf_8_are_refused_in_every_mode(
    suffix, mode, graph, tmp_path
):
    table = pa.table({"slug": ["a", "b"], "name": texts(LATIN_1, b"B")})
    path = tmp_path / f"p.{suffix}"
    write_table(table, path)
    problems = refused(graph, tmp_path, nodes={"Person": path}, mode=mode)
    assert problems == [(1, "name", "property 'name' is not UTF-8")]


def write_table(table: pa.Table, path: Path) -> None:
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path)
        case ".orc":
            orc.write_table(table, str(path))
        case _:
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as out:
                out.write_table(table)


def test_bytes_beneath_a_null_never_reach_the_table(graph):
    """Lance looks at every byte of a column, Arrow only at those that mean something."""
    offsets = np.array([0, 1, 2, 3], np.int32)
    column = pa.StringArray.from_buffers(
        3, pa.py_buffer(offsets.tobytes()), pa.py_buffer(b"A\xf6C"), pa.py_buffer(bytes([0b101]))
    )
    load(graph, frames={"Person": pa.table({"slug": ["a", "b", "c"], "name": column})})
    found = people(graph)
    assert [found[slug]["name"] for slug in "abc"] == ["A", None, "C"]


def test_all_problems_of_a_record_are_told_beside_a_bad_text(graph, tmp_path):
    table = pa.table(
        {"slug": texts(LATIN_1, b"b"), "age": [1, 2**40], "name": texts(b"x", b"\xff")}
    )
    assert [each[:2] for each in refused(graph, tmp_path, frames={"Person": table})] == [
        (1, "slug"),
        (2, "age"),
        (2, "name"),
    ]


@pytest.mark.spark
@pytest.mark.xdist_group("spark")
def test_texts_of_spark_frames_and_of_its_data_source_are_utf_8(graph, spark, tmp_path):
    frame = spark.sql("select 'a' as slug, cast(unhex('4bf6') as string) as name")
    errors = tmp_path / "problems.jsonl"
    with pytest.raises(InputError):
        graph.load(
            frames={"Person": frame},
            mode="append",
            spark=SparkOptions(spark),
            errors=ErrorOptions(errors_out=errors),
        )
    assert told(errors) == [(1, "name", "property 'name' is not UTF-8")]
    writer = frame.write.format("omnigraph").option("type", "Person")
    with pytest.raises(Exception, match="property 'name' is not UTF-8"):
        writer.mode("append").save(graph.uri)
    assert len(graph.list_commits()) == 1


# --- numbers and moments ---


@pytest.mark.parametrize(
    ("name", "column"),
    [
        ("seen", pa.array([0, 2**62], pa.timestamp("s"))),
        ("seen", pa.array([0, 2**62], pa.timestamp("us", tz="UTC"))),
        ("born", pa.array([0, 2**62], pa.timestamp("s"))),
        ("born", pa.array([0, 2**31 - 1], pa.date32())),
        ("seen", pa.array([0, -(2**31)], pa.date32())),
        ("born", pa.array([0, 2**31 - 1], pa.int64())),
    ],
)
def test_moments_beyond_the_years_are_problems_of_their_records(name, column, graph, tmp_path):
    problems = refused(
        graph, tmp_path, frames={"Person": pa.table({"slug": ["a", "b"], name: column})}
    )
    assert [each[:2] for each in problems] == [(2, name)]


def test_a_missing_moment_does_not_make_others_wrong(tmp_path):
    graph = omnigraph.init(
        tmp_path / "g.omni", "node Day { on: Date  at: DateTime  when: [Date]? }"
    )
    moments = pa.array([dt.datetime(2026, 1, 5), None], pa.timestamp("ns"))
    dates = pa.array([dt.date(2026, 1, 5), None])
    table = pa.table({"on": moments, "at": dates, "when": [[dt.date(2026, 1, 5)], [None]]})
    assert [each[:2] for each in refused(graph, tmp_path, frames={"Day": table})] == [
        (2, "at"),
        (2, "on"),
        (2, "when"),
    ]


def test_endpoints_that_are_no_keys_are_problems_of_their_records(tmp_path):
    graph = omnigraph.init(tmp_path / "g.omni", "node Day { on: Date @key }\nedge Next: Day -> Day")
    days = pa.array([dt.date(1970, 1, 1), dt.date(1970, 1, 2)])
    ends = pa.table({"from": pa.array([2**62, 0, None], pa.timestamp("s")), "to": [1, 1, 2**40]})
    frames = {"Day": pa.table({"on": days}), "Next": ends}
    assert [each[:2] for each in refused(graph, tmp_path, frames=frames)] == [
        (1, "from"),
        (3, "from"),
        (3, "to"),
    ]


def test_a_number_of_thousands_of_digits_is_a_problem_of_its_record(graph, tmp_path):
    path = tmp_path / "p.csv"
    path.write_text(f"slug,age,visits\na,1,{'9' * 5_000}\nb,{'-' + '1' * 60},2\n")
    problems = refused(graph, tmp_path, nodes={"Person": path})
    assert sorted(each[:2] for each in problems) == [(1, "visits"), (2, "age")]
    assert all(len(each[2]) < 200 for each in problems)
    (tmp_path / "p.json").write_text(f'{{"slug": "a", "age": {"9" * 5_000}}}')
    with pytest.raises(InputError, match=r"p\.json:1: .*a number has thousands of digits"):
        load(graph, nodes={"Person": tmp_path / "p.json"})


# --- hints ---


@pytest.mark.parametrize(
    ("name", "cell", "hint"),
    [
        ("born", "5.1.2026", "write it as YYYY-MM-DD"),
        ("seen", "10:00", "write it as YYYY-MM-DDThh:mm:ssZ, or as YYYY-MM-DD"),
        ("active", "yes", "write true or false"),
        ("age", "old", "write a whole number from -2147483648 to 2147483647"),
        ("height", "1,5", "write a number, such as 1.5"),
        ("tags", "x", 'write a JSON array, such as ["a", "b"]'),
        ("leaf", "[1]", "write a JSON array of 2 numbers"),
        ("photo", "base64:?", "give the bytes as base64: data"),
    ],
)
def test_the_hint_says_what_a_property_takes(name, cell, hint, graph, tmp_path):
    path = tmp_path / "p.tsv"
    path.write_text(f"slug\t{name}\na\t{cell}\n")
    with pytest.raises(InputError) as caught:
        load(graph, nodes={"Person": path})
    assert caught.value.hint == hint


def test_the_hint_for_a_missing_value_says_that_it_is_needed(graph, tmp_path):
    (tmp_path / "n.csv").write_text("text,stars\n,1\n")
    with pytest.raises(InputError) as caught:
        load(graph, nodes={"Note": tmp_path / "n.csv"})
    assert caught.value.hint == "every Note has one: give it a value"


def test_a_text_that_is_no_blob_is_told_about_base64(graph, tmp_path):
    from omnigraph.commit.external_blobs import NOT_ON_SPARK

    (tmp_path / "p.csv").write_text("slug,photo\na,hello\n")
    with pytest.raises(InputError) as caught:
        load(graph, nodes={"Person": tmp_path / "p.csv"})
    for hint in (caught.value.hint, NOT_ON_SPARK.hint):
        assert "base64: data" in (hint or "")


# --- extension types ---


def test_extension_types_without_a_meaning_are_refused_by_name(graph, tmp_path):
    frame = pd.DataFrame({"slug": ["a"], "born": pd.PeriodIndex(["2026-01"], freq="M")})
    with pytest.raises(InputError, match=r"column 'born' has type .*pandas\.period"):
        load(graph, frames={"Person": frame})
    frame.to_parquet(tmp_path / "p.parquet")
    with pytest.raises(InputError, match=r"column 'born' has type .*pandas\.period"):
        load(graph, nodes={"Person": tmp_path / "p.parquet"})


@pytest.mark.parametrize("is_nested", [False, True])
def test_unregistered_extension_types_are_refused_by_name(is_nested, graph, tmp_path):
    """Where pandas was not imported, its periods look like numbers with a note beside them."""
    marked = pa.field("item", pa.int32(), metadata={"ARROW:extension:name": "acme.month"})
    column: Any = pa.array([672], pa.int32())
    name, field = "born", marked.with_name("born")
    if is_nested:
        name, field = "when", pa.field("when", pa.list_(marked))
        column = pa.array([[672]], pa.list_(marked))
    graph = omnigraph.init(tmp_path / "n.omni", "node Day { born: Date?  when: [Date]? }")
    frame = pa.Table.from_arrays([column], schema=pa.schema([field]))
    with pytest.raises(InputError, match=rf"column '{name}' has type .*acme\.month"):
        load(graph, frames={"Day": frame})


def test_extension_types_with_a_meaning_are_taken(graph, tmp_path):
    key, tag = uuid.UUID(int=2**100 + 7), uuid.UUID(int=5)
    leaf = pa.ExtensionArray.from_storage(
        pa.fixed_shape_tensor(pa.float32(), (2,)), pa.array([[1, 2]], pa.list_(pa.float32(), 2))
    )
    table = pa.table(
        {
            "slug": pa.array([key], pa.uuid()),
            "email": pa.array([None], pa.uuid()),
            "name": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}"])),
            "active": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8())),
            "tags": pa.ListArray.from_arrays([0, 1], pa.array([tag], pa.uuid())),
            "leaf": leaf,
        }
    )
    pq.write_table(table, tmp_path / "p.parquet")
    ends = pa.table({"from": pa.array([key], pa.uuid()), "to": pa.array([key], pa.uuid())})
    load(graph, nodes={"Person": tmp_path / "p.parquet"}, frames={"Knows": ends})
    found = people(graph)[str(key)]
    assert (found["slug"], found["email"], found["name"]) == (str(key), None, "{}")
    assert (found["active"], found["tags"], found["leaf"]) == (True, [str(tag)], [1, 2])


def test_a_uuid_of_avro_is_its_text(graph, tmp_path):
    import fastavro

    key = uuid.UUID(int=9)
    field = {"name": "slug", "type": {"type": "string", "logicalType": "uuid"}}
    with (tmp_path / "p.avro").open("wb") as stream:
        fastavro.writer(stream, {"type": "record", "name": "P", "fields": [field]}, [{"slug": key}])
    load(graph, nodes={"Person": tmp_path / "p.avro"})
    assert list(people(graph)) == [str(key)]


def test_a_row_group_whose_lists_are_all_empty_is_loaded(graph, tmp_path):
    table = pa.table(
        {
            "slug": ["a", "b"],
            "name": pa.array(["x", "y"]).dictionary_encode(),
            "tags": pa.array([["yy"], []], pa.list_(pa.string())),
        }
    )
    pq.write_table(table, tmp_path / "p.parquet", row_group_size=1)
    load(graph, nodes={"Person": tmp_path / "p.parquet"})
    assert {slug: found["tags"] for slug, found in people(graph).items()} == {"a": ["yy"], "b": []}
