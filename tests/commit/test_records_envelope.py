"""The envelope of a record under both grammars: every row of the grammar table, with its text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from omnigraph.errors import InputError
from omnigraph.loading.records.problems import Findings, Grammar
from tests.commit.loading import edge, lines, node, read, read_all, rows

BOTH: list[Grammar] = ["strict", "compatible"]


def refusal(record: Any, grammar: Grammar, **options: Any) -> InputError:
    with pytest.raises(InputError) as caught:
        read(lines(record), grammar=grammar, **options)
    assert caught.value.hint
    assert caught.value.details[{"strict": "line", "compatible": "record"}[grammar]] == 1
    return caught.value


@pytest.mark.parametrize("grammar", BOTH)
def test_nodes_and_edges_are_told_by_their_envelope(grammar: Grammar):
    raw = lines(node("Person", slug="ada"), node("Note", text="hi"), edge("About", "new-1", "ada"))
    loaded = read(raw, grammar=grammar)
    assert list(loaded.tables) == ["edge:About", "node:Note", "node:Person"]
    assert rows(loaded, "edge:About") == [{"id": "new-2", "src": "new-1", "dst": "ada"}]


@pytest.mark.parametrize("grammar", BOTH)
def test_data_may_be_left_out(grammar: Grammar):
    loaded = read(lines({"edge": "About", "from": "a", "to": "b"}), grammar=grammar)
    assert rows(loaded, "edge:About") == [{"id": "new-1", "src": "a", "dst": "b"}]


# --- which type -----------------------------------------------------------------------------------


@pytest.mark.parametrize("grammar", BOTH)
def test_edge_type_names_match_exactly_and_then_ignoring_case(grammar: Grammar):
    raw = lines(edge("ABOUT", "a", "b"), edge("About", "c", "d"), edge("about", "e", "f"))
    assert [row["src"] for row in rows(read(raw, grammar=grammar), "edge:About")] == ["a", "c", "e"]


@pytest.mark.parametrize("grammar", BOTH)
def test_node_type_names_match_exactly(grammar: Grammar):
    error = refusal(node("person", slug="ada"), grammar)
    assert "unknown node type 'person'" in error.message
    assert error.hint == "did you mean 'Person'?"
    assert error.details["type"] == "person"


@pytest.mark.parametrize("grammar", BOTH)
@pytest.mark.parametrize(
    ("record", "message", "hint"),
    [
        (edge("Likes", "a", "b"), "unknown edge type 'Likes'", "the edge types are About,"),
        (edge("Knws", "a", "b"), "unknown edge type 'Knws'", "did you mean 'Knows'?"),
        (edge("Person", "a", "b"), "unknown edge type 'Person'", "Person is a node type"),
        (node("knows"), "unknown node type 'knows'", "Knows is an edge type"),
        (node("Zebra"), "unknown node type 'Zebra'", "the node types are Day, Note,"),
    ],
)
def test_an_unknown_type_comes_with_advice(record: Any, message: str, hint: str, grammar: Grammar):
    error = refusal(record, grammar)
    assert message in error.message
    assert hint in str(error.hint)


def test_a_schema_without_edges_says_so():
    error = refusal(edge("E", "a", "b"), "strict", schema="node N { }")
    assert error.hint == "there are no edge types"


@pytest.mark.parametrize("record", [{"type": "Note", "edge": "About"}, {"data": {}}, {}])
def test_strict_records_have_exactly_one_of_type_and_edge(record: Any):
    assert "exactly one of 'type' or 'edge'" in refusal(record, "strict").message


def test_in_compatible_records_the_node_wins():
    record = {"type": "Note", "edge": "About", "data": {"text": "hi"}}
    assert list(read(lines(record), grammar="compatible").tables) == ["node:Note"]


@pytest.mark.parametrize("record", [{"data": {}}, {}, {"type": 3}, {"type": None, "edge": ["x"]}])
def test_compatible_records_need_a_type_or_an_edge(record: Any):
    assert "expected 'type' or 'edge' field" in refusal(record, "compatible").message


@pytest.mark.parametrize("member", ["type", "edge"])
def test_strict_type_names_are_strings(member: str):
    error = refusal({member: 3}, "strict")
    assert f"field '{member}' must be a string, got number 3" in error.message


@pytest.mark.parametrize("record", ["[]", "3", '"x"', "null", "true"])
def test_a_record_is_an_object(record: str):
    strict, compatible = refusal(record, "strict"), refusal(record, "compatible")
    assert "invalid strict JSON at line 1: a record is an object" in strict.message
    assert "expected 'type' or 'edge' field: a record is an object" in compatible.message


# --- members --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("member", "record", "hint"),
    [
        ("id", node("Note", text="x") | {"id": "n1"}, "belong into its 'data'"),
        ("from", node("Note", text="x") | {"from": "n1"}, "only edges have endpoints"),
        ("src", edge("About", "a", "b") | {"src": "a"}, "write 'from' instead of 'src'"),
        ("dst", edge("About", "a", "b") | {"dst": "b"}, "write 'to' instead of 'dst'"),
        ("_rowid", node("Note", text="x") | {"_rowid": 1}, "remove it"),
    ],
)
def test_c_sch_038_unknown_members_of_a_record(member: str, record: Any, hint: str):
    error = refusal(record, "strict")
    assert f"unknown top-level graph batch field '{member}'" in error.message
    assert hint in str(error.hint)
    assert error.details["property"] == member
    assert read(lines(record), grammar="compatible").tables


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (node("Note", text="x", color="red"), "unknown input field 'color'"),
        (node("Note", text="x", src="a"), "unknown input field 'src'"),
        (node("Note", text="x", _rowid=1), "reserved physical state"),
        (node("Note", text="x", _rowaddr=1), "reserved physical state"),
        (node("Note", text="x", _rowoffset=1), "reserved physical state"),
        (node("Note", text="x", _row_created_at_version=1), "reserved physical state"),
        (node("Note", text="x", _row_last_updated_at_version=1), "reserved physical state"),
        (edge("Knows", "a", "b", src="a"), "reserved structural state"),
        (edge("Knows", "a", "b", dst="a"), "reserved structural state"),
        (edge("Knows", "a", "b", **{"from": "a"}), "unknown input field 'from'"),
    ],
)
def test_c_sch_038_unknown_and_reserved_members_of_data(record: Any, message: str):
    error = refusal(record, "strict")
    assert message in error.message
    assert error.details["property"] in error.message
    assert read(lines(record), grammar="compatible").tables


def test_a_misspelt_property_comes_with_advice():
    assert refusal(node("Note", txt="x"), "strict").hint == "did you mean 'text'?"
    error = refusal(node("Note", zzz="x"), "strict")
    assert error.hint == "the properties of Note are stars, text"


@pytest.mark.parametrize("data", [[], "x", 3, None])
def test_strict_data_is_an_object(data: Any):
    error = refusal({"type": "Note", "data": data}, "strict")
    assert "field 'data' must be an object" in error.message
    assert error.details["type"] == "Note"


def test_compatible_data_is_an_object_or_null():
    assert "field 'data' must be" in refusal({"type": "Note", "data": 3}, "compatible").message
    record = {"edge": "Knows", "from": "a", "to": "b", "data": None}
    assert read(lines(record), grammar="compatible").tables


# --- endpoints ------------------------------------------------------------------------------------


@pytest.mark.parametrize("member", ["from", "to"])
def test_edges_need_both_endpoints(member: str):
    record = edge("About", "a", "b")
    del record[member]
    strict, compatible = refusal(record, "strict"), refusal(record, "compatible")
    assert f"requires field '{member}'" in strict.message
    assert f"edge missing '{member}'" in compatible.message
    assert strict.hint == f"give '{member}' the id of a {'Note' if member == 'from' else 'Person'}"
    assert strict.details["type"] == "About"
    assert strict.details["property"] == member


@pytest.mark.parametrize("value", [3, None, ["a"], {"id": "a"}])
def test_endpoints_are_strings(value: Any):
    record = edge("about", "a", "b") | {"to": value}
    assert "field 'to' must be a string" in refusal(record, "strict").message
    error = refusal(record, "compatible")
    assert "edge missing 'to': it must be a string" in error.message
    assert error.details["type"] == "About"


def test_an_endpoint_of_an_unknown_edge_is_not_the_problem():
    assert "unknown edge type 'X'" in refusal({"edge": "X"}, "strict").message
    assert "unknown edge type 'X'" in refusal({"edge": "X"}, "compatible").message


# --- all problems ---------------------------------------------------------------------------------


def test_c_wrt_025_errors_name_the_record_whatever_its_layout():
    compact = b'{"type":"Note","data":{"text":"a"}}\n{"type":"Note","data":{"text":1}}'
    pretty = b'{"type":\n"Note","data":{"text":"a"}}\n{"type":"Note",\n\n"data":{"text":1}}'
    cases: list[tuple[bytes, Grammar, dict[str, int]]] = [
        (compact, "strict", {"line": 2}),
        (compact, "compatible", {"record": 2}),
        (pretty, "compatible", {"record": 2}),
    ]
    for raw, grammar, number in cases:
        with pytest.raises(InputError) as caught:
            read(raw, grammar=grammar)
        assert caught.value.details.items() >= number.items()


def test_the_first_problem_does_not_depend_on_chunks():
    raw = lines(
        *[node("Note", text=str(i)) for i in range(5)],
        edge("About", "a", "b"),
        node("Note", text=7),
        "nope",
        node("Nope"),
    )
    for chunk_bytes in (1, 64, 100, 1_000):
        with pytest.raises(InputError, match=r"line 7: Note\.text: property 'text' expects Utf8"):
            read(raw, chunk_bytes=chunk_bytes)


def test_findings_hold_every_problem_of_an_input_in_order(tmp_path: Path):
    raw = lines(
        node("Person", slug="a", age="x", height=1e39, born="no"),
        "{",
        node("Persn"),
        node("Person", slug="b"),
        node("Person", slug="c", id="d"),
        edge("Knows", "a", "b", since=True, nope=1),
    )
    found = read_all(raw).problems
    assert [tuple(problem.text.split(": ")[:2]) for problem in found] == [
        ("line 1", "Person.age"),
        ("line 1", "Person.born"),
        ("line 1", "Person.height"),
        ("line 2", "invalid strict JSON at line 2"),
        ("line 3", "Persn"),
        ("line 5", "Person.id"),
        ("line 6", "Knows.nope"),
        ("line 6", "Knows.since"),
    ]
    log = Findings(3, tmp_path / "errors.jsonl")
    for problem in reversed(found):
        log.note(problem)
    with pytest.raises(InputError) as caught:
        log.raise_if_any()
    listed = [json.loads(line) for line in (tmp_path / "errors.jsonl").read_text().splitlines()]
    assert [(each["line"], each["property"]) for each in listed] == [
        (1, "age"),
        (1, "born"),
        (1, "height"),
        (2, None),
        (3, None),
        (5, "id"),
        (6, "nope"),
        (6, "since"),
    ]
    assert log.counts == {
        "bad_value": 4,
        "invalid_json": 1,
        "unknown_type": 1,
        "bad_id": 1,
        "unknown_field": 1,
    }
    assert "the input has 8 problems; nothing was written" in caught.value.message
    assert "… and 5 more" in caught.value.message
    assert len(caught.value.details["problems"]) == 3


def test_one_problem_fails_as_itself():
    log = Findings(100)
    for problem in read_all(lines(node("X"))).problems:
        log.note(problem)
    with pytest.raises(InputError, match="unknown node type 'X'") as caught:
        log.raise_if_any()
    assert caught.value.details["kind"] == "unknown_type"
