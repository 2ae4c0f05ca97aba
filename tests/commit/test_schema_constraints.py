"""Adding constraints to a schema whose graph has data, and removing them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
import pytest

import omnigraph as og
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import ConstraintViolation, RecoveryRequired
from omnigraph.storage.indexes import indexes_of
from tests.commit.test_schema_apply import entries, files, head, require_settled

BASE = """
node Person { name: String @key  age: I32?  code: String?  score: F32?  NODE }
edge Knows: Person -> Person { since: I32  weight: F64?  EDGE }
"""
RECORDS = [
    *(
        {"type": "Person", "data": {"name": name, "age": age, "code": code, "score": score}}
        for name, age, code, score in (
            ("ada", 36, "A-1", 0.1),
            ("bo", 7, "B-2", 0.1),
            ("cy", None, None, None),
            ("di", 36, "x", 0.3),
        )
    ),
    *(
        {"edge": "Knows", "from": src, "to": dst, "data": {"id": edge_id, "since": since}}
        for edge_id, src, dst, since in (
            ("k1", "ada", "bo", 1),
            ("k2", "ada", "bo", 2),
            ("k3", "bo", "ada", 1),
            ("k4", "ada", "bo", 2),
        )
    ),
]


def schema(node: str = "", edge: str = "") -> str:
    return BASE.replace("NODE", node).replace("EDGE", edge)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "graph.omni"


@pytest.fixture
def graph(root: Path) -> og.Graph:
    graph = og.init(root, schema())
    graph.load(data="\n".join(map(json.dumps, RECORDS)), mode="append")
    return graph


def insert_edge(graph: og.Graph, src: str, dst: str, since: int) -> Any:
    text = f'insert Knows {{ from: "{src}", to: "{dst}", since: {since} }}'
    return graph.mutate(f"query q() {{ {text} }}")


def test_a_key_that_stored_edges_break_is_refused_with_both_edges_of_each_duplicate(
    graph: og.Graph, root: Path
) -> None:
    before = head(graph), entries(graph), files(root)
    with pytest.raises(ConstraintViolation) as caught:
        graph.apply_schema(schema(edge="@key(src, dst)"))
    assert caught.value.message == (
        "cannot add @key(src, dst) to edge:Knows, which stored data breaks: @key violation on "
        "Knows.(src, dst): value '(ada, bo)' held by 'k1' and 'k2'; @key violation on "
        "Knows.(src, dst): value '(ada, bo)' held by 'k1' and 'k4'"
    )
    details = caught.value.details
    assert (details["constraint"], details["table_key"]) == ("@key(src, dst)", "edge:Knows")
    assert details["counts"] == {"unique": 2}
    assert [each["entity_id"] for each in details["problems"]] == ["k2", "k4"]
    assert (head(graph), entries(graph), files(root)) == before
    require_settled(graph, root)
    insert_edge(graph, "ada", "bo", 2)


def test_a_key_is_added_to_an_edge_type_whose_edges_keep_it_and_holds_from_then_on(
    graph: og.Graph, root: Path
) -> None:
    graph.mutate('query q() { delete Knows where from = "ada" and since = 2 }')
    before = entries(graph), files(root)
    receipt = graph.apply_schema(schema(edge="@key(src, dst)"))
    assert [step["kind"] for step in receipt.steps] == ["add_constraint"]
    assert (entries(graph), files(root)) == before, "no table changes"
    with pytest.raises(ConstraintViolation, match=r"@key violation on Knows\.\(src, dst\)"):
        insert_edge(graph, "ada", "bo", 9)
    require_settled(graph, root)
    graph.apply_schema(schema())
    assert insert_edge(graph, "ada", "bo", 9).affected_edges == 1


def test_a_longer_key_takes_the_place_of_a_shorter_one(graph: og.Graph) -> None:
    with pytest.raises(ConstraintViolation, match=r"value '\(ada, bo, 2\)' held by 'k2' and 'k4'"):
        graph.apply_schema(schema(edge="@key(src, dst, since)"))
    graph.mutate('query q() { update Knows set { since: 3 } where since = 2 and from = "bo" }')
    graph.mutate('query q() { delete Knows where from = "ada" and since = 2 }')
    graph.apply_schema(schema(edge="@key(src, dst)"))
    graph.apply_schema(schema(edge="@key(src, dst, since)"))
    assert insert_edge(graph, "ada", "bo", 2).affected_edges == 1


BROKEN = {
    "unique": (
        "@unique(age)",
        "@unique violation on Person.age: value '36' held by 'ada' and 'di'",
    ),
    "several columns": ("@unique(age, score)", None),
    "floats": ("@unique(score)", "value '0.1' held by 'ada' and 'bo'"),
    "range": ("@range(age, 10..)", "'bo': @range violation on Person.age: value 7 < min 10"),
    "both bounds": ("@range(age, 0..35)", "value 36 > max 35; 'di': @range violation"),
    "float bound": ("@range(score, 0.0..0.1)", "value 0.3 > max 0.1"),
    "check": (
        '@check(code, "^[A-Z]-")',
        "@check violation on Person.code: value 'x' does not match pattern '^[A-Z]-'",
    ),
    "kept range": ("@range(age, 0..100)", None),
    "kept check": ('@check(code, "[A-Zx]")', None),
    "kept unique": ("@unique(code)", None),
}


@pytest.mark.parametrize(("constraint", "message"), BROKEN.values(), ids=BROKEN)
def test_a_rule_is_added_if_stored_nodes_keep_it_and_refused_with_an_offender_if_not(
    graph: og.Graph, root: Path, constraint: str, message: str | None
) -> None:
    before = head(graph)
    if message is None:
        graph.apply_schema(schema(node=constraint))
        assert graph.schema_source == schema(node=constraint)
        graph.apply_schema(schema())
    else:
        with pytest.raises(ConstraintViolation) as caught:
            graph.apply_schema(schema(node=constraint))
        assert message in caught.value.message
        assert head(graph) == before
    require_settled(graph, root)


def test_an_added_rule_is_about_the_columns_as_they_will_be(graph: og.Graph) -> None:
    renamed = schema().replace("age: I32?", 'years: I64? @rename_from("age")')
    with pytest.raises(ConstraintViolation, match=r"Person\.years: value 7 < min 10"):
        graph.apply_schema(renamed.replace("score: F32?", "score: F32? @range(years, 10..)"))
    wider = schema().replace("score: F32?", "score: F64? @range(score, 0.0..0.1)")
    with pytest.raises(ConstraintViolation, match=r"value 0\.10000000149011612 > max 0\.1"):
        graph.apply_schema(wider)
    filled = schema().replace("score: F32?", "score: F32?  group: I32 @default(1)")
    with pytest.raises(ConstraintViolation, match=r"'\(36, 1\)' held by 'ada' and 'di'"):
        graph.apply_schema(filled.replace("@default(1)", "@default(1) @unique(age, group)"))
    # A new property without a default is null, which is no value at all.
    graph.apply_schema(schema().replace("score: F32?", "score: F32?  nick: String? @unique"))


def test_a_unique_value_is_found_however_many_share_a_fingerprint(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys whose fingerprints are equal are compared, part by part."""
    monkeypatch.setattr("omnigraph.commit.schema.stored_data.SUSPECTS_MAX", 2)
    monkeypatch.setattr("omnigraph.commit.schema.stored_data.fingerprints", lengths)
    graph.apply_schema(schema(node="@unique(code)"))
    with pytest.raises(ConstraintViolation, match="held by 'ada' and 'di'"):
        graph.apply_schema(schema(node="@unique(code) @unique(age)"))


def lengths(keys: Any) -> Any:
    return pc.utf8_length(keys).to_numpy(zero_copy_only=False).astype("uint64")


@pytest.mark.parametrize("mode", ["soft", "hard"])
def test_a_property_with_a_built_index_is_dropped_with_it(
    graph: og.Graph, root: Path, mode: str
) -> None:
    graph.apply_schema(schema().replace("age: I32?", "age: I32? @index"))
    graph.ensure_indices()
    assert "age" in built(graph)
    receipt = graph.apply_schema(schema().replace("age: I32?", ""), allow_data_loss=mode == "hard")
    assert [step["kind"] for step in receipt.steps] == ["drop_property", "drop_constraint"]
    assert built(graph) == {"id", "name"}
    found = graph.query('query q() { match { $p: Person { name: "bo" } } return { $p.code } }')
    assert found.to_pylist() == [{"p.code": "B-2"}]
    require_settled(graph, root)


def test_an_index_that_is_not_wanted_any_more_goes_with_the_next_optimize(
    graph: og.Graph, root: Path
) -> None:
    graph.apply_schema(schema().replace("age: I32?", "age: I32? @index"))
    graph.ensure_indices()
    before = entries(graph)
    receipt = graph.apply_schema(schema())
    assert [step["kind"] for step in receipt.steps] == ["drop_constraint"]
    assert entries(graph) == before, "the apply changes no table"
    assert "age" in built(graph)
    graph.optimize()
    assert built(graph) == {"id", "name"}
    optimized = head(graph)
    graph.optimize()
    assert head(graph) == optimized, "nothing is left to do"
    require_settled(graph, root)


def built(graph: og.Graph) -> set[str]:
    """The columns of persons with an index."""
    kernel = graph._kernel
    capture = kernel.capture(kernel.manifest.main, "")
    return {index.spec.column for index in indexes_of(capture.reader.handle("node:Person"))}


@pytest.mark.parametrize(
    ("point", "is_new"),
    [
        (Failpoint.SCHEMA_APPLY_POST_SIDECAR_PRE_EFFECT, None),
        (Failpoint.SCHEMA_APPLY_AFTER_STAGING_WRITE, None),
        (Failpoint.SCHEMA_APPLY_AFTER_MANIFEST_COMMIT, True),
    ],
)
def test_an_interrupted_apply_of_a_key_leaves_the_one_schema_or_the_other(
    graph: og.Graph, root: Path, point: Failpoint, is_new: bool | None
) -> None:
    graph.mutate('query q() { delete Knows where from = "ada" and since = 2 }')
    desired = schema(edge="@key(src, dst)")
    with armed({point: "error"}), pytest.raises(Exception, match=r"arm|recover") as caught:
        graph.apply_schema(desired)
    assert isinstance(caught.value, RecoveryRequired) or is_new is None
    reopened = og.open(root)
    reopened.recover()
    require_settled(reopened, root)
    holds = reopened.schema_source == desired
    assert holds is bool(is_new)
    if holds:
        with pytest.raises(ConstraintViolation):
            insert_edge(reopened, "ada", "bo", 9)
    else:
        insert_edge(reopened, "ada", "bo", 9)
