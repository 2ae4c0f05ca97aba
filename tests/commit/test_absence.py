"""C-PIP-036: a merge keeps what a record lacks, and an explicit null is a value like any other."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.errors import ConstraintViolation, InputError, ValueConversionError
from tests.commit.loading import lines, node

SCHEMA = """
node Thing {
    text: String
    number: I32?
    level: I32 @default(3)
    tags: [String]?
    leaf: Vector(2)?
    photo: Blob?
    email: String?
    @unique(email)
    @range(number, 0..9)
}
node Person { slug: String @key  name: String  age: I32?  @unique(name, age) }
edge Likes: Person -> Thing { weight: F64?  since: I32 }
"""

FULL = {
    "id": "t1",
    "text": "one",
    "number": 1,
    "level": 7,
    "tags": ["a", "b"],
    "leaf": [0.5, -0.0],
    "photo": "base64:AAEC",
    "email": "a@x",
}


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return og.init(tmp_path / "graph.omni", SCHEMA)


def rows(graph: og.Graph, type: str) -> dict[str, dict[str, Any]]:
    records = map(json.loads, b"".join(graph.export(types=[type])).splitlines())
    return {record["data"]["id"]: record["data"] for record in records}


def counts(receipt: Any) -> tuple[int, int, int, int]:
    return receipt.inserted, receipt.updated, receipt.unchanged, receipt.kept


@pytest.fixture(params=["in process", "by threads"])
def merge(request: pytest.FixtureRequest, graph: og.Graph, tmp_path: Path) -> Any:
    """Loads things, each as a record of its own."""

    def run(*things: dict[str, Any], mode: Any = "merge", **options: Any) -> Any:
        if request.param == "in process":
            data = lines(*(node("Thing", **thing) for thing in things))
            return graph.load(data=data, mode=mode, **options)
        path = tmp_path / "things.json"
        path.write_bytes(lines(*things))
        return graph.load(nodes={"Thing": path}, mode=mode, engine="local", **options)

    return run


def test_c_pip_036_every_kind_of_value_is_kept(graph, merge):
    merge(FULL)
    assert counts(merge({"id": "t1", "number": 2})) == (0, 1, 0, 1)
    assert rows(graph, "Thing")["t1"] == {**FULL, "number": 2}
    # Only the blob is new, and a record that has one is always written.
    assert counts(merge({"id": "t1", "photo": "base64:AAEC"})) == (0, 1, 0, 1)
    nulls = dict.fromkeys(("number", "tags", "leaf", "photo", "email"))
    assert counts(merge({"id": "t1", **nulls})) == (0, 1, 0, 1)
    assert rows(graph, "Thing")["t1"] == {**FULL, **nulls}


def test_c_pip_036_what_is_said_again_changes_nothing(graph, merge):
    merge(FULL)
    before = graph.list_commits()
    again = merge({"id": "t1"})
    assert (again.commit, counts(again)) == (None, (0, 0, 1, 1))
    again = merge({"id": "t1", "leaf": [0.5, -0.0], "tags": ["a", "b"], "level": 7})
    assert (again.commit, counts(again)) == (None, (0, 0, 1, 1))
    assert graph.list_commits() == before


def test_c_pip_036_a_new_entity_gets_defaults_and_needs_what_is_required(graph, merge):
    assert counts(merge({"id": "t1", "text": "one"})) == (1, 0, 0, 0)
    assert rows(graph, "Thing")["t1"]["level"] == 3
    with pytest.raises(ValueConversionError, match="non-nullable property 'text'") as caught:
        merge({"id": "t1", "level": 4}, {"id": "t2", "level": 4})
    (problem,) = caught.value.details["problems"]
    assert problem["property"] == "text" and 2 in problem.values()
    assert problem["hint"] == "every Thing has one: give it a value"
    with pytest.raises(ValueConversionError, match="non-nullable property 'text'"):
        merge({"id": "t1", "text": None})
    assert rows(graph, "Thing")["t1"]["level"] == 3


def test_c_pip_036_absent_null_replaces_the_whole_entity(graph, merge):
    merge(FULL)
    assert counts(merge({"id": "t1", "text": "new"}, absent="null")) == (0, 1, 0, 0)
    nulls = dict.fromkeys(("number", "tags", "leaf", "photo", "email"))
    assert rows(graph, "Thing")["t1"] == {"id": "t1", "text": "new", "level": 3, **nulls}
    with pytest.raises(InputError, match="non-nullable property 'text'"):
        merge({"id": "t1", "number": 2}, absent="null")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
def test_c_pip_036_only_a_merge_says_what_absence_means(graph, merge, mode):
    with pytest.raises(InputError, match=f"is an option of the mode merge, not of {mode}"):
        merge(FULL, mode=mode, absent="null")
    with pytest.raises(InputError, match="there is no meaning 'drop'"):
        merge(FULL, absent="drop")


def test_c_pip_036_kept_values_are_checked_with_the_others(graph):
    graph.load(
        data=lines(node("Person", slug="a", name="A", age=1), node("Person", slug="b", name="A")),
        mode="append",
    )
    with pytest.raises(ConstraintViolation, match="@unique violation on Person"):
        graph.load(data=lines(node("Person", slug="b", age=1)), mode="merge")
    with pytest.raises(ConstraintViolation, match="@unique violation on Person"):
        graph.load(frames={"Person": pa.table({"slug": ["b"], "age": [1]})}, mode="merge")


def test_c_pip_036_the_same_key_twice_stays_an_error(graph):
    graph.load(data=lines(node("Person", slug="a", name="A")), mode="append")
    with pytest.raises(ConstraintViolation, match="record 1 and record 2"):
        graph.load(data=lines(node("Person", slug="a"), node("Person", slug="a")), mode="merge")


def test_c_pip_036_edges_with_ids_keep_what_their_records_lack(graph):
    graph.load(
        data=lines(
            node("Person", slug="a", name="A"),
            node("Thing", **FULL),
            {
                "edge": "Likes",
                "from": "a",
                "to": "t1",
                "data": {"id": "l1", "weight": 1, "since": 3},
            },
        ),
        mode="append",
    )
    edge = {"edge": "Likes", "from": "a", "to": "t1", "data": {"id": "l1", "weight": None}}
    assert counts(graph.load(data=lines(edge), mode="merge")) == (0, 1, 0, 1)
    table = pa.table({"id": ["l1"], "from": ["a"], "to": ["t1"], "since": [4]})
    assert counts(graph.load(frames={"Likes": table}, mode="merge")) == (0, 1, 0, 1)
    assert rows(graph, "Likes")["l1"] == {"id": "l1", "weight": None, "since": 4}


def test_c_pip_036_a_table_lacks_a_property_if_it_has_no_column(graph, tmp_path):
    first, second = {**FULL}, {**FULL, "id": "t2", "email": "b@x"}
    graph.load(data=lines(node("Thing", **first), node("Thing", **second)), mode="append")
    frame = pa.table({"id": ["t1", "t2"], "number": pa.array([5, None], pa.int32())})
    assert counts(graph.load(frames={"Thing": frame}, mode="merge")) == (0, 2, 0, 2)
    path = tmp_path / "things.csv"
    path.write_text("id,email\nt1,\nt2,c@x\n")
    assert counts(graph.load(nodes={"Thing": path}, mode="merge")) == (0, 2, 0, 2)
    assert rows(graph, "Thing") == {
        "t1": {**first, "number": 5, "email": None},
        "t2": {**second, "number": None, "email": "c@x"},
    }


def test_c_pip_036_a_table_without_a_required_column_only_updates(graph):
    graph.load(data=lines(node("Person", slug="a", name="A", age=1)), mode="append")
    table = pa.table({"slug": ["b", "a", "c"], "age": [2, 2, 2]})
    edges = pa.table({"id": ["l1"], "from": ["b"], "to": ["t1"], "since": [1]})
    graph.load(data=lines(node("Thing", **FULL)), mode="append")
    with pytest.raises(ValueConversionError, match="2 problems") as caught:
        # The edge of a refused node is not reported as well.
        graph.load(frames={"Person": table, "Likes": edges}, mode="merge")
    assert [each["record"] for each in caught.value.details["problems"]] == [1, 3]
    assert counts(graph.load(frames={"Person": table.slice(1, 1)}, mode="merge")) == (0, 1, 0, 1)
    assert rows(graph, "Person") == {"a": {"id": "a", "slug": "a", "name": "A", "age": 2}}
    with pytest.raises(InputError, match="there is no column 'slug'"):
        graph.load(frames={"Person": table.drop_columns(["slug"])}, mode="merge")
    with pytest.raises(InputError, match="there is no column 'name'"):
        graph.load(frames={"Person": table}, mode="merge", absent="null")


def test_c_pip_015_a_key_stands_for_what_absence_means(graph):
    one = lines(node("Person", slug="a", name="A"))
    first = graph.load(data=one, mode="merge", operation_id="k")
    assert graph.load(data=one, mode="merge", operation_id="k").commit == first.commit
    with pytest.raises(og.errors.Conflict, match="with absent='keep', not 'null'"):
        graph.load(data=one, mode="merge", absent="null", operation_id="k")


# --- chance ---

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "text": st.sampled_from("xyz"),
    "number": st.sampled_from([None, 1, 2]),
    "level": st.sampled_from([3, 4]),
    "tags": st.sampled_from([None, [], ["a", "b"]]),
    "leaf": st.sampled_from([None, [0.0, 1.0], [-0.0, 1.0]]),
    "photo": st.sampled_from([None, "base64:", "base64:AAEC"]),
}
NEW = {"number": None, "level": 3, "tags": None, "leaf": None, "photo": None, "email": None}


def records(needs_text: bool) -> st.SearchStrategy[list[dict[str, Any]]]:
    ids = {"id": st.sampled_from(["t1", "t2", "t3", "t4"])}
    needed = {"text": VALUES["text"]} if needs_text else {}
    others = {name: values for name, values in VALUES.items() if name not in needed}
    return st.lists(st.fixed_dictionaries({**ids, **needed}, optional=others), max_size=5)


def merged(stored: dict[str, dict[str, Any]], given: list[dict[str, Any]]) -> dict[str, Any]:
    """What a merge means, of the last record of each id."""
    last = {record["id"]: record for record in given}
    return stored | {id: {**stored.get(id, NEW), **record} for id, record in last.items()}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(seed=records(needs_text=True), given_=records(needs_text=False))
def test_c_pip_036_any_mix_of_absence_and_null_is_what_the_model_says(
    graph, tmp_path, seed, given_
):
    start = merged({}, seed)
    expected = merged(start, given_)
    last = {record["id"]: record for record in given_}
    path = tmp_path / "things.json"
    path.write_bytes(lines(*given_))
    for source in (
        {"data": lines(*(node("Thing", **record) for record in given_))},
        {"nodes": {"Thing": path}},
    ):
        graph.load(
            data=lines(*(node("Thing", **thing) for thing in start.values())),
            mode="overwrite",
            replace_types=["Thing"],
        )
        options: Any = {"mode": "merge", "engine": "local", **source}
        if all(id in start or "text" in record for id, record in last.items()):
            receipt = graph.load(**options)
            assert receipt.inserted == len(expected.keys() - start.keys())
            # No record has an e-mail.
            assert receipt.kept == len(last.keys() & start.keys())
            assert rows(graph, "Thing") == expected
        else:
            with pytest.raises(ValueConversionError, match="non-nullable property 'text'"):
                graph.load(**options)
            assert rows(graph, "Thing") == start


# --- edges that are found by their key ---

KEYED = """
node P { k: String @key }
edge Rides: P -> P { w: F64?  since: I32  photo: Blob?  @key(src, dst) }
edge Rates: P -> P { on: Date  stars: I32?  note: String?  @key(src, dst, on)  @unique(note) }
"""


def edge(type: str, source: str, target: str, **data: Any) -> dict[str, Any]:
    return {"edge": type, "from": source, "to": target, "data": data}


@pytest.fixture
def keyed(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "keyed.omni", KEYED)
    graph.load(data=lines(*(node("P", k=k) for k in "abc")), mode="append")
    return graph


@pytest.fixture(params=["in process", "by threads"])
def merge_edges(request: pytest.FixtureRequest, keyed: og.Graph, tmp_path: Path) -> Any:
    def run(*edges: dict[str, Any], **options: Any) -> Any:
        if request.param == "in process":
            return keyed.load(data=lines(*edges), mode="merge", **options)
        files: dict[str, Path] = {}
        for each in edges:
            path = files.setdefault(each["edge"], tmp_path / f"{each['edge']}.json")
        for type, path in files.items():
            own = [each for each in edges if each["edge"] == type]
            ends = [{"from": each["from"], "to": each["to"], **each["data"]} for each in own]
            path.write_bytes(lines(*ends))
        return keyed.load(edges=files, mode="merge", engine="local", **options)

    return run


def edges_of(graph: og.Graph, type: str) -> dict[tuple[str, str, Any], dict[str, Any]]:
    records = map(json.loads, b"".join(graph.export(types=[type])).splitlines())
    return {(each["from"], each["to"], each["data"].get("on")): each["data"] for each in records}


def test_c_pip_037_edges_are_upserted_by_their_key_and_keep_their_ids(keyed, merge_edges):
    first = [
        edge("Rides", "a", "b", w=1, since=1, photo="base64:AAEC"),
        edge("Rides", "a", "c", w=1, since=1),
        edge("Rates", "a", "b", on="2024-01-01", stars=1),
    ]
    assert counts(merge_edges(*first)) == (3, 0, 0, 0)
    before = edges_of(keyed, "Rides")
    again = merge_edges(*first[1:])
    assert (again.commit, counts(again)) == (None, (0, 0, 2, 2))
    receipt = merge_edges(
        edge("Rides", "a", "b", w=2),
        edge("Rides", "b", "a", since=5),
        edge("Rates", "a", "b", on="2024-01-01", stars=None),
        edge("Rates", "a", "b", on="2024-01-02", stars=3),
    )
    assert counts(receipt) == (2, 2, 0, 2)
    after = edges_of(keyed, "Rides")
    assert after["a", "b", None] == {**before["a", "b", None], "w": 2}
    assert after["a", "c", None] == before["a", "c", None]
    assert len(after) == 3
    stars = {on: data["stars"] for (_, _, on), data in edges_of(keyed, "Rates").items()}
    assert sorted(stars.values(), key=str) == [3, None]


def test_c_pip_037_the_same_edge_twice_names_both_records(keyed, merge_edges):
    merge_edges(edge("Rides", "a", "b", since=1))
    for source in "ab":  # one that is there, and a new one
        twice = edge("Rides", source, "b", since=2)
        with pytest.raises(ConstraintViolation, match=r"@key violation on Rides") as caught:
            merge_edges(twice, edge("Rides", "c", "b", since=2), twice)
        assert re.search(r", in \S+[: ]1 and \S+[: ]3$", caught.value.message)
    assert len(edges_of(keyed, "Rides")) == 1


def test_c_pip_037_what_cannot_be_matched_is_told(keyed, merge_edges):
    merge_edges(edge("Rates", "a", "b", on="2024-01-01", note="x"))
    with pytest.raises(ValueConversionError, match="non-nullable property 'on'"):
        merge_edges(edge("Rates", "a", "b", stars=1))
    with pytest.raises(InputError, match="some Rates edges have ids and others not") as caught:
        merge_edges(
            edge("Rates", "a", "b", on="2024-01-01"),
            edge("Rates", "a", "c", id="r", on="2024-01-01"),
        )
    assert "all of them ids or none" in str(caught.value.hint)
    with pytest.raises(ConstraintViolation, match="@unique violation on Rates"):
        merge_edges(edge("Rates", "a", "c", on="2024-01-01", note="x"))
    with pytest.raises(ConstraintViolation, match="dst 'gone' not found in P"):
        merge_edges(edge("Rates", "a", "gone", on="2024-01-01"))


def test_c_pip_037_edges_without_key_and_ids_are_refused_with_the_ways_on(graph):
    graph.load(data=lines(node("Person", slug="a", name="A"), node("Thing", **FULL)), mode="append")
    likes = edge("Likes", "a", "t1", since=1)
    for source in (
        {"data": lines(likes)},
        {"frames": {"Likes": pa.table({"from": ["a"], "to": ["t1"], "since": [1]})}},
    ):
        options: Any = {"engine": "local", **source}
        with pytest.raises(InputError, match="a merge cannot tell which Likes edges") as caught:
            graph.load(mode="merge", **options)
        hint = str(caught.value.hint)
        assert "`@key(src, dst)` in edge Likes" in hint
        assert "give the edges ids" in hint and "mode append" in hint
    assert rows(graph, "Likes") == {}


def test_c_pip_037_ends_that_differ_only_together_are_different_edges(tmp_path):
    graph = og.init(tmp_path / "ends.omni", KEYED)
    names = ["a", "a,", "1,a", ",b", "b", ""]
    graph.load(data=lines(*(node("P", k=k) for k in names)), mode="append")
    every = [edge("Rides", a, b, since=1) for a in names for b in names]
    assert counts(graph.load(data=lines(*every), mode="merge"))[0] == len(every)
    table = pa.table({"from": [a for a in names for _ in names], "to": names * len(names)})
    assert counts(graph.load(frames={"Rides": table}, mode="merge"))[2] == len(every)
