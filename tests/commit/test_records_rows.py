"""Values, ids and blobs of records: what ends up in the rows of a table."""

from __future__ import annotations

import base64
import datetime as dt
from typing import Any

import pytest

from omnigraph.commit.external_blobs import ExternalBlobs
from omnigraph.errors import ExternalBlobUnavailable, InputError, ValueConversionError
from omnigraph.loading.records.problems import Grammar
from omnigraph.model.arrow import BLOB_STORAGE
from omnigraph.model.values import BLOB_URI_BYTES_MAX
from omnigraph.schema.catalog import table_schema
from tests.commit.loading import catalog, edge, lines, node, read, rows

BOTH: list[Grammar] = ["strict", "compatible"]


def person(grammar: Grammar = "strict", **data: Any) -> dict[str, Any]:
    """The row of one person with these properties."""
    loaded = read(lines(node("Person", slug="ada", **data)), grammar=grammar)
    (row,) = rows(loaded, "node:Person")
    return row


def refusal(record: Any, grammar: Grammar = "strict", **options: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read(lines(record), grammar=grammar, **options)
    assert caught.value.hint
    return caught.value


def bad_value(grammar: Grammar = "strict", **data: Any) -> str:
    """What is said about a property of a person."""
    (name,) = data
    error = refusal(node("Person", slug="ada", **data), grammar)
    assert isinstance(error, ValueConversionError)
    assert error.details["type"] == "Person"
    assert error.details["property"] == name
    assert f"Person.{name}: " in error.message
    return error.message


# --- rows -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("type", ["Person", "Slot", "Note"])
def test_rows_have_the_schema_of_the_table(type: str):
    records = [node("Person", slug="a"), node("Slot", region="n", code=1), node("Note", text="")]
    loaded = read(lines(*records))
    expected = table_schema(catalog().nodes[type])
    assert loaded.tables[f"node:{type}"].rows.schema.equals(expected, check_metadata=True)
    loaded.tables[f"node:{type}"].rows.validate(full=True)


def test_edge_rows_have_their_endpoints():
    loaded = read(lines(edge("Knows", "a", "b", since="2031-04-09", id="k1")))
    schema = table_schema(catalog().edges["Knows"])
    assert loaded.tables["edge:Knows"].rows.schema.equals(schema, check_metadata=True)
    (row,) = rows(loaded, "edge:Knows")
    since = dt.date(2031, 4, 9)
    assert row == {"id": "k1", "src": "a", "dst": "b", "since": since, "weight": None}


@pytest.mark.parametrize("grammar", BOTH)
def test_omitted_properties_are_null_or_their_default(grammar: Grammar):
    row = person(grammar)
    assert row.pop("id") == row.pop("slug") == "ada"
    assert row.pop("level") == 3
    assert set(row.values()) == {None}


@pytest.mark.parametrize("grammar", BOTH)
def test_an_explicit_null_is_not_replaced_by_the_default(grammar: Grammar):
    assert person(grammar, level=None)["level"] is None


@pytest.mark.parametrize("grammar", BOTH)
@pytest.mark.parametrize("record", [node("Note"), node("Note", text=None)])
def test_required_properties_must_be_there(record: Any, grammar: Grammar):
    message = "non-nullable property 'text' has null or invalid values"
    assert message in refusal(record, grammar).message


def test_records_with_different_members_stay_apart():
    raw = lines(
        node("Note", text="a"), node("Note", stars=2, text="b"), node("Note", text="c", id="n")
    )
    assert rows(read(raw), "node:Note") == [
        {"id": "new-1", "stars": None, "text": "a"},
        {"id": "new-2", "stars": 2, "text": "b"},
        {"id": "n", "stars": None, "text": "c"},
    ]


# --- values ---------------------------------------------------------------------------------------

WRONG_TYPES: list[tuple[str, Any, str]] = [
    ("name", 3, "expects Utf8"),
    ("active", "true", "expects Boolean"),
    ("active", 1, "expects Boolean"),
    ("age", 3.0, "expects Int32"),
    ("age", "3", "expects Int32"),
    ("age", True, "expects Int32"),
    ("visits", 1e3, "expects UInt64"),
    ("height", "1.5", "expects Float32"),
    ("height", False, "expects Float32"),
    ("born", 1.5, "expects Date32"),
    ("seen", {}, "expects Timestamp(ms, UTC)"),
]


@pytest.mark.parametrize(("name", "value", "message"), WRONG_TYPES)
def test_c_sch_039_a_wrong_type_is_an_error_when_strict_and_else_null(
    name: str, value: Any, message: str
):
    assert message in bad_value(**{name: value})
    assert person("compatible", **{name: value})[name] is None


@pytest.mark.parametrize("grammar", BOTH)
def test_a_wrong_type_of_a_required_property_is_always_an_error(grammar: Grammar):
    message = refusal(node("Note", text=3), grammar).message
    expected = "expects Utf8" if grammar == "strict" else "has null or invalid values"
    assert expected in message


INTEGERS = {"age": (-(2**31), 2**31 - 1, "Int32"), "visits": (0, 2**64 - 1, "UInt64")}


@pytest.mark.parametrize("grammar", BOTH)
@pytest.mark.parametrize("name", INTEGERS)
def test_c_sch_043_integer_limits_are_accepted_and_one_beyond_is_not(name: str, grammar: Grammar):
    low, high, arrow = INTEGERS[name]
    assert person(grammar, **{name: low})[name] == low
    assert person(grammar, **{name: high})[name] == high
    for beyond in (low - 1, high + 1):
        expected = f"property '{name}' value {beyond} exceeds {arrow} range"
        assert expected in bad_value(grammar, **{name: beyond})


@pytest.mark.parametrize("grammar", BOTH)
def test_c_sch_043_integers_beyond_64_bits_are_out_of_range_and_no_floats(grammar: Grammar):
    record = '{"type":"Note","data":{"text":"x","stars":-9223372036854775809}}'
    assert "value -9223372036854775809 exceeds Int64 range" in refusal(record, grammar).message
    assert person(grammar, height=2**70)["height"] == 2.0**70


@pytest.mark.parametrize("grammar", BOTH)
def test_floats_are_judged_at_their_width(grammar: Grammar):
    assert person(grammar, height=3.4028235677973366e38 - 1e30)["height"] < 3.5e38
    assert "exceeds Float32 range" in bad_value(grammar, height=1e39)
    record = '{"type":"Person","data":{"slug":"a","height":1e999}}'
    assert "exceeds Float32 range" in refusal(record, grammar).message


@pytest.mark.parametrize("grammar", BOTH)
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2031-04-09", dt.date(2031, 4, 9)),
        ("2031-04-09T23:30:00-02:00", dt.date(2031, 4, 10)),
        (-1, dt.date(1969, 12, 31)),
    ],
)
def test_c_sch_045_dates(value: Any, expected: dt.date, grammar: Grammar):
    assert person(grammar, born=value)["born"] == expected


@pytest.mark.parametrize("grammar", BOTH)
@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2031-04-09T09:30:00Z", (9, 30, 0)),
        ("2031-04-09 09:30:00.1239", (9, 30, 123_000)),
        ("2031-04-09T09:30:00+02:00", (7, 30, 0)),
        ("2031-04-09", (0, 0, 0)),
        (1_933_486_200_000, (7, 30, 0)),
    ],
)
def test_c_sch_045_date_times(value: Any, expected: tuple[int, int, int], grammar: Grammar):
    hour, minute, us = expected
    moment = dt.datetime(2031, 4, 9, hour, minute, 0, us, tzinfo=dt.UTC)
    assert person(grammar, seen=value)["seen"] == moment


@pytest.mark.parametrize("grammar", BOTH)
@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("born", "9 April", "invalid Date literal '9 April'"),
        ("born", 2**31, "Date value out of range"),
        ("seen", "noon", "invalid DateTime literal 'noon'"),
        ("seen", 2**63 - 1, "invalid DateTime literal"),
    ],
)
def test_c_sch_045_garbage_is_no_date(name: str, value: Any, message: str, grammar: Grammar):
    assert message in bad_value(grammar, **{name: value})


def test_lists():
    assert person(tags=["a", "b"])["tags"] == ["a", "b"]
    assert person(tags=[])["tags"] == []
    assert "list property 'tags' expects a JSON array" in bad_value(tags="a")
    assert "null or invalid item" in bad_value(tags=["a", None])
    assert "null or invalid item" in bad_value(tags=["a", 3])
    assert person("compatible", tags=["a", 3, None])["tags"] == ["a", None, None]


@pytest.mark.parametrize("grammar", BOTH)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1], "vector property 'leaf' expects 2 dimensions, got 1"),
        ([1, 2, 3], "expects 2 dimensions, got 3"),
        ([1, None], "elements must be numeric"),
        ([1, "2"], "elements must be numeric"),
        ([1, 1e39], "exceeds Float32 range"),
    ],
)
def test_c_sch_046_vectors(value: Any, message: str, grammar: Grammar):
    assert message in bad_value(grammar, leaf=value)
    assert person(grammar, leaf=[1, 0.5])["leaf"] == [1.0, 0.5]


# --- ids ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grammar", BOTH)
def test_keyed_nodes_derive_their_id(grammar: Grammar):
    raw = lines(
        node("Slot", region="nörth", code=7),
        node("Slot", region="s", code=-1, id='["-1","s"]'),
        node("Day", on="1970-01-03"),
    )
    loaded = read(raw, grammar=grammar)
    # Members stand in the order of their property ids: `code` before `region`.
    assert [row["id"] for row in rows(loaded, "node:Slot")] == ['["7","nörth"]', '["-1","s"]']
    assert rows(loaded, "node:Day")[0]["id"] == "2"


@pytest.mark.parametrize("grammar", BOTH)
def test_other_entities_keep_the_id_they_have_or_get_one(grammar: Grammar):
    raw = lines(
        node("Note", text="a", id="n1"),
        node("Note", text="b"),
        edge("About", "n1", "p", id="e1"),
        edge("About", "n1", "p"),
    )
    loaded = read(raw, grammar=grammar)
    assert [row["id"] for row in rows(loaded, "node:Note")] == ["n1", "new-1"]
    assert [row["id"] for row in rows(loaded, "edge:About")] == ["e1", "new-2"]


def test_ids_are_minted_for_the_records_that_need_them():
    asked: list[tuple[str | None, list[int]]] = []

    def mint(source: str | None, numbers: Any) -> list[str]:
        asked.append((source, numbers.to_pylist()))
        return [f"{source}-{number}" for number in numbers]

    raw = lines(node("Note", text="a"), "", node("Note", text="b", id="n"), node("Note", text="c"))
    loaded = read(raw, mint=mint)
    assert asked == [(None, [1, 4])]
    assert [row["id"] for row in rows(loaded, "node:Note")] == ["None-1", "n", "None-4"]


@pytest.mark.parametrize("grammar", BOTH)
@pytest.mark.parametrize("record", [node("Note", text="x"), node("Person", slug="a")])
@pytest.mark.parametrize("value", [3, None, True, ["a"], {}])
def test_c_sch_040_an_id_must_be_a_string(record: Any, value: Any, grammar: Grammar):
    record["data"]["id"] = value
    error = refusal(record, grammar)
    assert "id must be a string" in error.message
    assert error.details["property"] == "id"


def test_c_sch_040_a_given_id_of_a_keyed_node_is_the_derived_one():
    error = refusal(node("Person", slug="ada", id="grace"), "strict")
    assert "id 'grace' does not match its canonical @key id 'ada'" in error.message
    assert error.hint == "leave out 'id': it follows from slug"
    error = refusal(node("Person", slug="ada", id="grace"), "compatible")
    assert "does not match @key" in error.message


LEGACY: list[tuple[str, Any, str, str]] = [
    ("String", "ada", "Ada", "no"),
    ("I32", 7, "007", "7"),
    ("I32", 7, "+7", "7"),
    ("I32", 7, "7.0", "no"),
    ("U64", 2**64 - 1, "018446744073709551615", "18446744073709551615"),
    ("I64", 7, "９", "no"),
    ("Bool", True, "True", "no"),
    ("F64", 1.5, "1.50", "1.5"),
    ("F64", 1000.0, "1e3", "1000"),
    ("F32", 0.1, "0.10", "0.1"),
    ("F64", 1.5, "nan", "no"),
    ("Date", "2031-04-09", "2031-04-09", "22378"),
    ("Date", "2031-04-09", "2031-04-09T10:00:00Z", "22378"),
    ("Date", "2031-04-09", "2031-04-10", "no"),
    ("DateTime", "2031-04-09T00:00:00Z", "2031-04-09", "1933459200000"),
]


@pytest.mark.parametrize(("type", "value", "id", "canonical"), LEGACY)
def test_c_sch_041_an_id_that_spells_the_key_differently_is_rewritten(
    type: str, value: Any, id: str, canonical: str
):
    schema = f"node N {{ k: {type} @key }} edge E: N -> N"
    raw = lines(edge("E", id, "x"), node("N", k=value, id=id), edge("E", "x", id))
    assert (
        "does not match its canonical" in refusal(node("N", k=value, id=id), schema=schema).message
    )
    if canonical == "no":
        error = refusal(node("N", k=value, id=id), "compatible", schema=schema)
        assert "does not match @key" in error.message
        return
    loaded = read(raw, grammar="compatible", schema=schema)
    assert rows(loaded, "node:N")[0]["id"] == canonical
    ends = [(row["src"], row["dst"]) for row in rows(loaded, "edge:E")]
    assert ends == [(canonical, "x"), ("x", canonical)]


@pytest.mark.parametrize(
    "id", ["north", "7", "07", '[7,"north"]', '["07", "north"]', '[ "7" , "north" ]']
)
def test_c_sch_041_one_member_or_another_spelling_stands_for_a_composite_key(id: str):
    raw = lines(edge("Opens", id, "x"), node("Slot", region="north", code=7, id=id))
    loaded = read(raw, grammar="compatible")
    assert rows(loaded, "node:Slot")[0]["id"] == '["7","north"]'
    assert rows(loaded, "edge:Opens")[0]["src"] == '["7","north"]'


@pytest.mark.parametrize(
    "id", ["south", "8", '["north","7"]', '["7"]', '["7","north",1]', "[" * 5, '[NaN,"north"]']
)
def test_c_sch_041_other_ids_of_a_composite_key_are_refused(id: str):
    record = node("Slot", region="north", code=7, id=id)
    assert "does not match @key" in refusal(record, "compatible").message


def test_c_sch_041_only_endpoints_of_the_rewritten_type_are_rewritten():
    raw = lines(
        node("Day", on="1970-01-03", id="1970-01-03"),
        edge("Opens", "1970-01-03", "1970-01-03"),
        edge("Opens", "x", "1970-01-04"),
        edge("Knows", "1970-01-03", "1970-01-03"),
    )
    loaded = read(raw, grammar="compatible")
    assert [(row["src"], row["dst"]) for row in rows(loaded, "edge:Opens")] == [
        ("1970-01-03", "2"),
        ("x", "1970-01-04"),
    ]
    assert rows(loaded, "edge:Knows")[0]["src"] == "1970-01-03"


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_c_sch_041_an_id_that_means_two_nodes_is_ambiguous(chunk_bytes: int):
    raw = lines(
        node("Slot", region="north", code=7, id="7"), node("Slot", region="south", code=7, id="7")
    )
    with pytest.raises(InputError) as caught:
        read(raw, grammar="compatible", chunk_bytes=chunk_bytes)
    assert "ambiguous edge endpoint remap" in caught.value.message
    assert """both '["7","north"]' and '["7","south"]'""" in caught.value.message
    assert caught.value.details["record"] == 2


def test_c_sch_041_an_older_id_that_is_the_canonical_id_of_another_node_is_ambiguous():
    raw = lines(
        node("Slot", region="north", code=7),
        node("Slot", region='["7","north"]', code=1, id='["7","north"]'),
    )
    with pytest.raises(InputError, match="ambiguous edge endpoint remap"):
        read(raw, grammar="compatible")


def test_c_sch_042_edges_may_come_before_their_nodes():
    raw = lines(edge("Knows", "ada", "grace"), node("Person", slug="ada"))
    assert list(read(raw).tables) == ["edge:Knows", "node:Person"]


# --- blobs ----------------------------------------------------------------------------------------


def b64(data: bytes) -> str:
    return "base64:" + base64.b64encode(data).decode()


@pytest.mark.parametrize("grammar", BOTH)
def test_c_sch_047_an_empty_blob_is_not_null(grammar: Grammar):
    assert person(grammar, photo="base64:")["photo"] == {"data": b"", "uri": None}
    assert person(grammar, photo=b64(b"\x00\xff"))["photo"] == {"data": b"\x00\xff", "uri": None}
    assert person(grammar, photo=None)["photo"] is None


@pytest.mark.parametrize("grammar", BOTH)
def test_c_sch_047_other_values_are_no_blobs(grammar: Grammar):
    assert "invalid base64 blob data" in bad_value(grammar, photo="base64:not base64")
    values: list[Any] = [3, True, [1], {}]
    for value in values:
        message = "must be a URI string or base64: prefixed data"
        assert message in bad_value(grammar, photo=value)


@pytest.mark.parametrize("grammar", BOTH)
def test_c_sch_047_external_uris_are_denied_by_default(grammar: Grammar):
    message = bad_value(grammar, photo="s3://bucket/ada.png")
    assert "external blob URI 's3://bucket/ada.png' is not allowed" in message


def test_an_external_uri_has_a_greatest_length():
    allowed = ExternalBlobs(allow=lambda uri: True)
    uri = "s3://" + "x" * BLOB_URI_BYTES_MAX
    error = refusal(node("Person", slug="a", photo=uri), external=allowed)
    assert f"at most {BLOB_URI_BYTES_MAX} are allowed" in error.message


def test_overwrite_keeps_an_allowed_reference_and_other_modes_copy_the_bytes():
    external = ExternalBlobs(
        allow=lambda uri: uri.startswith("s3://bucket/"), read=lambda uri: uri.encode() + b"!"
    )
    raw = lines(
        node("Person", slug="a", photo="s3://bucket/a"),
        node("Person", slug="b", photo=b64(b"own")),
        node("Person", slug="c"),
    )
    kept = rows(read(raw, mode="overwrite", external=external), "node:Person")
    assert [row["photo"] for row in kept] == [
        {"data": None, "uri": "s3://bucket/a"},
        {"data": b"own", "uri": None},
        None,
    ]
    for mode in ("append", "merge"):
        loaded = read(raw, mode=mode, external=external)
        copied = loaded.tables["node:Person"].rows["photo"]
        assert copied.type == BLOB_STORAGE
        assert [row["photo"] for row in rows(loaded, "node:Person")] == [
            {"data": b"s3://bucket/a!", "uri": None},
            {"data": b"own", "uri": None},
            None,
        ]


def test_a_denied_uri_is_never_read():
    def read_external(uri: str) -> bytes:
        raise AssertionError(uri)

    external = ExternalBlobs(allow=lambda uri: uri == "ok:1", read=read_external)
    raw = lines(
        node("Person", slug="a", photo="ok:1"), node("Person", slug="b", photo="file:///etc/x")
    )
    with pytest.raises(InputError, match="'file:///etc/x' is not allowed") as caught:
        read(raw, external=external)
    assert caught.value.details["line"] == 2


def test_an_allowed_uri_needs_someone_to_read_it():
    external = ExternalBlobs(allow=lambda uri: True)
    with pytest.raises(ExternalBlobUnavailable, match="no access to external objects"):
        read(lines(node("Person", slug="a", photo="s3://b/a")), external=external)


def test_a_required_blob_is_there():
    schema = "node N { b: Blob }"
    for grammar in BOTH:
        error = refusal(node("N"), grammar, schema=schema)
        assert "non-nullable property 'b' has null values" in error.message
