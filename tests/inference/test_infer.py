"""What `infer_schema` proposes: types, keys, edges, and the reasons in comments."""

from __future__ import annotations

import datetime as dt
import shlex
import subprocess
import sys
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pac
import pyarrow.parquet as pq
import pytest

import omnigraph as og
from omnigraph.errors import InputError
from omnigraph.inference import InferredType
from omnigraph.inference.proposal import InferredProperty


def types_of(sources: Any) -> dict[str, InferredType]:
    return {each.name: each for each in og.infer_schema(sources).types}


def properties(type: InferredType) -> dict[str, str]:
    return {each.name: str(each.type) for each in type.properties}


def of_column(*cells: str, folder: Path) -> InferredProperty:
    """The property for a column of a CSV file with these cells."""
    path = folder / "cells.csv"
    path.write_text("\n".join(["n,value", *(f"{i},{cell}" for i, cell in enumerate(cells))]))
    (_, found) = types_of([path])["Cell"].properties
    return found


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (["1", "-2", "3"], "I64"),
        (["1", "", "3"], "I64?"),
        (["18446744073709551615", "0", "1"], "U64"),
        (["1", "2.5", "-1e3"], "F64"),
        (["true", "False", "TRUE"], "Bool"),
        (["2026-01-05", "2026-01-06"], "Date"),
        (["2026-01-05", "2026-01-05T10:00:00Z"], "DateTime"),
        (["2026-01-05 10:00:00", "2026-01-05 10:00:00.5"], "DateTime"),
        (['"[1, 2]"', '"[3]"'], "[I64]"),
        (['"[""a""]"', "[]"], "[String]"),
        (["ada", "bo"], "String"),
        (['""', "ada"], "String"),
        (['""', "1"], "I64?"),
        (["", ""], "String?"),
    ],
)
def test_the_type_of_cells_is_the_narrowest_that_holds_all(
    cells: list[str], expected: str, tmp_path: Path
):
    assert str(of_column(*cells, folder=tmp_path).type) == expected


@pytest.mark.parametrize(
    "cells",
    [
        ["00501", "10115"],
        ["+49301234", "+4930567"],
        ["1.5", "007.5"],
        ["nan", "1.5"],
        ["1.5", "12345678901234567890"],
        ["123456789012345678901234567890", "1"],
        ["2026-02-30", "2026-01-05"],
        ["1", "n/a"],
        ["true", "yes"],
    ],
)
def test_cells_that_a_number_or_date_would_not_keep_are_texts(cells: list[str], tmp_path: Path):
    assert str(of_column(*cells, folder=tmp_path).type) == "String"


def test_a_comment_says_which_value_made_texts_of_numbers(tmp_path: Path):
    assert of_column("1", "2", "n/a", folder=tmp_path).notes == (
        "text because of values such as 'n/a'",
    )


def test_a_type_holds_for_the_last_row_of_a_large_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("omnigraph.loading.formats.csv_rows.BLOCK_BYTES", 64)
    path = tmp_path / "rows.csv"
    rows = [f"{i},{i},{i % 3},2026-01-05,{i}" for i in range(200)]
    path.write_text("\n".join(["id,a,b,c,code", *rows, "x,0.5,n/a,2026-01-05T10:00:00,A7"]) + "\n")
    type = types_of([path])["Row"]
    assert properties(type) == {
        "row_id": "String",
        "a": "F64",
        "b": "String",
        "c": "DateTime",
        "code": "String",
    }
    assert type.key == ("row_id",)  # hashes of numbers became hashes of texts on the way


def test_c_pip_039_few_repeated_words_are_an_enum_and_the_comment_counts_them(tmp_path: Path):
    found = of_column(*["large", "small"] * 4, "", folder=tmp_path)
    assert str(found.type) == "enum(large, small)?"
    assert found.notes == ("2 different values", "1 of 9 empty")
    assert str(of_column("large", "small", "large", folder=tmp_path).type) == "String"
    assert str(of_column(*["two words", "one"] * 4, folder=tmp_path).type) == "String"


# --- keys and edges -------------------------------------------------------------------------------


@pytest.fixture
def air(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("airports.csv").write_text(
        "number,iata,name,country\n1,BER,Berlin,DE\n2,MUC,Munich,DE\n3,OSL,Oslo,NO\n4,BGO,Bergen,NO\n"
    )
    Path("countries.csv").write_text("code,name\nDE,Germany\nNO,Norway\nFR,France\n")
    Path("flights.csv").write_text(
        "id,origin,destination,Seats\n1,BER,MUC,180\n2,MUC,BER,180\n3,BER,OSL,\n"
    )
    return tmp_path


def test_c_pip_039_columns_that_hold_the_key_of_another_file_are_the_ends_of_edges(air: Path):
    found = types_of(["airports.csv", "flights.csv"])
    airport, flight = found["Airport"], found["Flight"]
    assert (airport.kind, airport.key) == ("node", ("iata",))  # though `number` is unique, too
    assert (flight.kind, flight.key) == ("edge", ("src", "dst"))
    assert flight.ends is not None
    assert [(each.column, each.node) for each in flight.ends] == [
        ("origin", "Airport"),
        ("destination", "Airport"),
    ]
    assert properties(flight) == {"flight_id": "I64", "seats": "I64?"}


def test_a_column_of_nodes_that_names_others_is_an_edge_type_beside_them(air: Path):
    inferred = og.infer_schema(["airports.csv", "countries.csv"])
    (edge,) = (each for each in inferred.types if each.kind == "edge")
    assert edge.name == "AirportCountry"
    assert inferred.load_arguments["edges"] == {"AirportCountry": "airports.csv"}
    assert inferred.load_arguments["map"] == {
        "AirportCountry": {"number": None, "iata": "from", "name": None, "country": "to"}
    }


def test_c_pip_039_rows_with_an_empty_reference_give_no_edge(air: Path):
    Path("airports.csv").write_text(
        "iata,name,country\nBER,Berlin,DE\nMUC,Munich,DE\nOSL,Oslo,NO\nQQQ,Nowhere,\n"
    )
    inferred = og.infer_schema(["airports.csv", "countries.csv"])
    (edge,) = (each for each in inferred.types if each.kind == "edge")
    assert (edge.name, edge.rows) == ("AirportCountry", 3)
    assert edge.notes == ("no edges for 1 row with an empty 'country'",)
    assert inferred.load_arguments["where"] == {"AirportCountry": {"country!": None}}
    assert "--where 'AirportCountry:country!='" in (inferred.load_command or "")
    assert not any("gives no edges" in each for each in inferred.findings)
    airports = pac.read_csv(
        "airports.csv", convert_options=pac.ConvertOptions(strings_can_be_null=True)
    )
    frames = {"Airport": airports, "Country": pac.read_csv("countries.csv")}
    for name, sources in (("files", ["airports.csv", "countries.csv"]), ("frames", frames)):
        _, receipt = og.infer_schema(sources).create_graph(f"{name}.omni")
        assert [each.inserted for each in receipt.edges] == [3]


def test_c_pip_039_delimiters_and_lists_are_those_of_the_load(tmp_path: Path, monkeypatch: Any):
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text(
        "id|name|emails|home city\n1|Ada|a@x;b@x|10\n2|Bo||\n3|Cy|c@x|11\n"
    )
    Path("city.csv").write_text("id;name\n10;Oslo\n11;Graz\n12;Bonn\n")
    csv = og.CsvOptions(delimiter=["People:|", "city.csv:;"], list_separator={"People": ";"})
    inferred = og.infer_schema({"People": "people.csv", "City": "city.csv"}, csv=csv)
    people, _, home = inferred.types
    assert properties(people)["emails"] == "[String]?"
    assert (home.name, home.rows) == ("PeopleHomeCity", 2)
    by_type = {"People": "|", "City": ";", "PeopleHomeCity": "|"}
    assert inferred.load_arguments["csv"] == og.CsvOptions(
        by_type, {"People": ";", "PeopleHomeCity": ";"}
    )
    assert inferred.to_dict()["load"]["csv"]["delimiter"] == by_type
    graph, receipt = inferred.create_graph("g.omni")
    assert receipt.inserted == 8
    assert graph.table("People").to_arrow()["emails"].to_pylist() == [["a@x", "b@x"], None, ["c@x"]]
    again = shlex.split(inferred.load_command or "")
    assert again[again.index("--delimiter") + 1] == "People:|"
    one = og.infer_schema("people.csv", csv=og.CsvOptions("|"))
    assert one.load_arguments["csv"] == og.CsvOptions("|")
    with pytest.raises(InputError, match="`delimiter` names 'Cty', of which nothing is loaded"):
        og.infer_schema("people.csv", csv=og.CsvOptions({"Cty": "|"}))


def test_a_property_that_tells_repeated_pairs_of_ends_apart_is_part_of_the_key(air: Path):
    with Path("flights.csv").open("a") as file:
        file.write("4,BER,MUC,180\n")
    inferred = og.infer_schema(["airports.csv", "flights.csv"])
    assert inferred.types[1].key == ("src", "dst", "flight_id")
    graph, _ = inferred.create_graph("air.omni")
    again = graph.load(mode="merge", **inferred.load_arguments)
    assert [each.unchanged for each in (*again.nodes, *again.edges)] == [4, 4]


@pytest.mark.parametrize(
    ("source", "target"),
    [("follower", "followee"), ("citing", "cited"), ("parent", "child"), ("caller", "callee")],
)
def test_numbers_in_columns_that_are_named_like_two_ends_become_edges(
    source: str, target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    Path("people.csv").write_text("id,name\n1,Ada\n2,Bo\n3,Cy\n")
    Path("links.csv").write_text(f"{target},since,{source}\n2,2020,1\n3,2021,2\n1,2022,3\n")
    link = types_of(["people.csv", "links.csv"])["Link"]
    assert link.ends is not None
    assert [(end.column, end.node) for end in link.ends] == [(source, "People"), (target, "People")]


def test_repeated_pairs_of_ends_have_no_key_and_a_note(air: Path):
    Path("flights.csv").write_text("origin,destination,seats\nBER,MUC,1\nBER,MUC,1\nMUC,OSL,2\n")
    flight = types_of(["airports.csv", "flights.csv"])["Flight"]
    assert flight.key == ()
    assert "parallel edges" in flight.notes[0]


def test_a_column_with_a_few_values_that_are_no_keys_is_mentioned(air: Path):
    codes = ["BER", "MUC", "OSL", "BGO"]
    rows = [f"{i},{codes[i % 4]},{codes[(i + 1) % 4]}" for i in range(40)]
    Path("flights.csv").write_text("\n".join(["id,origin,destination", *rows, "41,QQQ,BER"]))
    inferred = og.infer_schema(["airports.csv", "flights.csv"])
    assert any(
        "'origin' names rows of Airport" in each and "QQQ" in each for each in inferred.findings
    )


def test_numbers_that_happen_to_be_keys_of_others_are_no_references(tmp_path: Path):
    people = pa.table({"id": range(1, 101), "name": [f"p{i}" for i in range(100)]})
    orders = pa.table({"order_no": range(20), "amount": range(1, 21), "person_id": range(5, 25)})
    found = types_of({"Person": people, "Order": orders})
    assert found["Order"].kind == "node"
    assert [each.name for each in found.values() if each.kind == "edge"] == ["OrderPerson"]


def test_quoted_empty_cells_are_no_references(tmp_path: Path):
    (tmp_path / "people.csv").write_text("id\n1\n2\n3\n")
    (tmp_path / "knows.csv").write_text('from,to\n1,2\n2,3\n3,""\n')
    found = types_of([tmp_path / "people.csv", tmp_path / "knows.csv"])["Know"]
    assert found.kind == "node"
    assert "'to' names rows of People, but is empty in 1 row" in found.notes[-1]


def test_c_pip_039_a_table_without_a_unique_column_has_no_key_and_says_so(tmp_path: Path):
    inferred = og.infer_schema({"Reading": pa.table({"sensor": ["a", "a"], "value": [1.5, 2.5]})})
    assert inferred.types[0].key == ()
    assert "no key" in inferred.findings[0]


def test_c_pip_039_the_text_says_why_and_how_to_load(air: Path):
    text = og.infer_schema(["airports.csv", "flights.csv"]).text
    assert "iata: String @key // unique in 4 rows" in text
    assert "seats: I64? // column 'Seats'; 1 of 3 empty" in text
    assert (
        "// omnigraph load --store graph.omni --node Airport=airports.csv --edge Flight=flights.csv"
        in text
    )


# --- formats --------------------------------------------------------------------------------------

VALUES = pa.table(
    {
        "key": ["a", "b"],
        "small": pa.array([1, None], pa.int16()),
        "big": pa.array([1, 2], pa.uint64()),
        "ratio": pa.array([0.5, 1.5], pa.float32()),
        "price": pa.array([Decimal("1.50"), Decimal("2.25")], pa.decimal128(9, 2)),
        "count": pa.array([Decimal(7), Decimal(8)], pa.decimal128(9, 0)),
        "on": [True, False],
        "day": [dt.date(2026, 1, 5), None],
        "at": pa.array([0, 1], pa.timestamp("us")),
        "written": ["2026-01-05", "2026-01-06"],
        "tags": [["x"], []],
        "vector": pa.array([[0.5] * 8, [1.5] * 8], pa.list_(pa.float32(), 8)),
        "embedding": [[0.5] * 9, [1.5] * 9],
        "raw": [b"\0", b"\1"],
        "kind": pa.array(["p", "q"]).dictionary_encode(),
        "nothing": pa.nulls(2),
        "nested": [{"a": 1}, {"a": 2}],
        "broken": [float("nan"), 1.0],
        "time": pa.array([1, 2], pa.time32("s")),
    }
)
EXPECTED = {
    "key": "String",
    "small": "I32?",
    "big": "U64",
    "ratio": "F32",
    "price": "F64",
    "count": "I64",
    "on": "Bool",
    "day": "Date?",
    "at": "DateTime",
    "written": "Date",
    "tags": "[String]",
    "vector": "Vector(8)",
    "embedding": "Vector(9)",
    "raw": "Blob",
    "kind": "String",
    "nothing": "String?",
}


def test_columns_with_types_keep_them_and_others_are_left_out_with_a_reason(tmp_path: Path):
    pq.write_table(VALUES, tmp_path / "values.parquet")
    for source in ({"Value": VALUES}, {"Value": tmp_path / "values.parquet"}):
        found = types_of(source)["Value"]
        assert properties(found) == EXPECTED
        assert [column for column, _ in found.left_out] == ["nested", "broken", "time"]
        assert "NaN" in dict(found.left_out)["broken"]


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_frames_of_other_libraries_are_read(library: str):
    data = {"id": [1, 2], "Full Name": ["ada", "bo"], "score": [0.5, None]}
    frame = import_module(library).DataFrame(data)
    found = types_of({"Person": frame})["Person"]
    assert properties(found) == {"person_id": "I64", "full_name": "String", "score": "F64?"}


def test_members_of_json_objects_may_be_missing_and_change_from_integers_to_floats(tmp_path: Path):
    path = tmp_path / "rows.jsonl"
    path.write_text(
        '{"id": "a", "n": 1, "tags": ["x"], "mixed": 1, "o": {}}\n'
        '{"id": "b", "n": 1.5, "mixed": "one", "at": "2026-01-05T10:00:00Z"}\n'
    )
    found = types_of(path)["Row"]
    assert properties(found) == {
        "row_id": "String",
        "n": "F64",
        "tags": "[String]?",
        "at": "DateTime?",
    }
    assert [column for column, _ in found.left_out] == ["mixed", "o"]


def test_a_json_file_may_hold_one_array(tmp_path: Path):
    path = tmp_path / "rows.json"
    path.write_text('[{"id": 1, "name": "ada"},\n {"id": 2}]')
    assert properties(types_of(path)["Row"]) == {"row_id": "I64", "name": "String?"}


def test_partition_folders_are_columns(tmp_path: Path):
    for country in ("DE", "NO"):
        folder = tmp_path / "people" / f"country={country}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"name": [country.lower()]}), folder / "0.parquet")
    found = types_of(tmp_path / "people")["People"]
    assert properties(found) == {"name": "String", "country": "String"}


# --- names ----------------------------------------------------------------------------------------


def test_names_become_words_of_the_language_and_the_load_maps_them(tmp_path: Path):
    path = tmp_path / "top films.csv"
    path.write_text("ID,IMDB Rating,imdb_rating,from,_rowid,2020,ä\n1,8.5,8.6,a,b,c,d\n")
    inferred = og.infer_schema(path)
    (film,) = inferred.types
    assert film.name == "TopFilm"
    assert [each.name for each in film.properties] == [
        "top_film_id",
        "imdb_rating_2",
        "imdb_rating",
        "from",
        "_rowid_2",
        "n2020",
        "a",
    ]
    assert inferred.load_arguments["map"]["TopFilm"]["IMDB Rating"] == "imdb_rating_2"


def test_repeated_headers_are_mapped_by_their_positions(tmp_path: Path):
    path = tmp_path / "pairs.csv"
    path.write_text("Person.id,Person.id\n1,2\n3,4\n")
    mapping = og.infer_schema(path).load_arguments["map"]
    assert mapping == {"Pair": {"#1": "person_id", "#2": "person_id_2"}}


# --- bad input ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("empty.csv", b"", "has no header"),
        ("empty.jsonl", b"", "has no columns"),
        ("latin.csv", "id,name\n1,Zürich\n".encode("latin-1"), "not UTF-8"),
        ("short.csv", b"id,name\n1\n", "has 1 cell, the header has 2"),
        ("semicolons.csv", b"id;name\n1;2\n", "semicolons"),
        ("broken.parquet", b"PAR1", "cannot be read"),
        ("text.jsonl", b"not json\n", "invalid"),
        ("numbers.jsonl", b"1\n", "a record is an object"),
        ("records.jsonl", b'{"type": "Person", "data": {"name": "ada"}}\n', "graph record"),
        ("unknown.xyz", b"1", "does not say what it is"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(
    name: str, content: bytes, expected: str, tmp_path: Path
):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(InputError, match=expected) as caught:
        og.infer_schema(path)
    assert name in caught.value.message


def test_two_inputs_of_one_type_are_refused_and_a_name_tells_them_apart(tmp_path: Path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "people.csv").write_text("id\n1\n")
    paths = [str(tmp_path / "a" / "people.csv"), str(tmp_path / "b" / "people.csv")]
    with pytest.raises(InputError, match="would both be type People"):
        og.infer_schema(paths)
    assert set(types_of([paths[0], f"Staff={paths[1]}"])) == {"People", "Staff"}


@pytest.mark.parametrize("sources", [[], 5, {"person": "a.csv"}, [5], {"Person": 5}])
def test_sources_of_a_wrong_kind_are_refused(sources: Any):
    with pytest.raises(InputError):
        og.infer_schema(sources)


def test_a_header_without_rows_gives_texts_that_may_be_empty(tmp_path: Path):
    path = tmp_path / "people.csv"
    path.write_text("id,name\n")
    (found,) = og.infer_schema(path).types
    assert properties(found) == {"people_id": "String?", "name": "String?"}
    assert found.key == ()


def test_one_row_has_a_key_only_by_its_name_or_place(tmp_path: Path):
    (found,) = og.infer_schema({"Person": pa.table({"age": [36], "name": ["ada"]})}).types
    assert found.key == ("name",)


def test_ten_thousand_columns_are_ten_thousand_properties(tmp_path: Path):
    path = tmp_path / "wide.csv"
    names = ",".join(f"c{i}" for i in range(10_000))
    path.write_text(f"{names}\n{','.join(['1'] * 10_000)}\n{','.join(['2'] * 10_000)}\n")
    (found,) = og.infer_schema(path).types
    assert len(found.properties) == 10_000
    assert found.key == ("c0",)


def test_names_with_line_breaks_stay_in_their_comments(tmp_path: Path):
    path = tmp_path / "odd.csv"
    path.write_text('"a\nnode Evil { x: String }",b`c,lower(x)\n1,2,3\n')
    inferred = og.infer_schema(path)
    assert [each.name for each in inferred.types] == ["Odd"]
    assert inferred.load_arguments["map"]["Odd"] == {
        "a\nnode Evil { x: String }": "a_node_evil_x_string",
        "#2": "b_c",
        "`lower(x)`": "lower_x",
    }


def test_the_command_does_not_import_spark(tmp_path: Path):
    path = tmp_path / "people.csv"
    path.write_text("id\n1\n")
    code = (
        "import sys; from omnigraph.cli.main import main; "
        f"assert main(['infer', {str(path)!r}]) == 0; "
        "assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
