"""Diffs and changes of commits where the schema changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.branching.diff import GraphDiff
from omnigraph.errors import ChangeDiffRefused, NotFound
from omnigraph.storage.layout import past_schema_name
from tests.branching.histories import SCHEMA, city, edge, load, person, seeded

WITH_COUNTRY = SCHEMA.replace("size: I32?", "size: I32?  country: String?")
WITH_LEVEL = SCHEMA.replace("size: I32?", "size: I32?  level: I32 @default(3)")
WITHOUT_SIZE = SCHEMA.replace("size: I32?", "")
WIDER = SCHEMA.replace("size: I32?", "size: I64?")
RENAMED = (
    SCHEMA.replace("node City {", 'node Town @rename_from("City") {')
    .replace("size: I32?", 'people: I32? @rename_from("size")')
    .replace("-> City", "-> Town")
)
WITHOUT_CITIES = "\n".join(line for line in SCHEMA.splitlines() if "City" not in line)


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return seeded(tmp_path / "graph.omni")


def head(graph: og.Graph) -> str:
    return graph.list_commits()[0].graph_commit_id


def listed(diff: GraphDiff) -> list[tuple[str, str, str]]:
    return [(c.op, c.type_name, c.id) for c in diff.changes()]


def block(graph: og.Graph, commit_id: str, **wanted: Any) -> list[dict[str, Any]]:
    changes: list[dict[str, Any]] = graph.commit_changes(commit_id, **wanted).to_dict()["changes"]
    return changes


def reason(refused: pytest.ExceptionInfo[ChangeDiffRefused]) -> tuple[str, str]:
    details = refused.value.details
    return details["reason"], details["type_name"]


@pytest.mark.parametrize(
    "schema", [WITH_COUNTRY, RENAMED, SCHEMA + "node Tag { name: String @key }"]
)
def test_a_change_of_schema_that_keeps_the_data_is_an_empty_block(
    graph: og.Graph, schema: str
) -> None:
    before = head(graph)
    graph.apply_schema(schema)
    assert block(graph, head(graph)) == []
    assert listed(graph.diff(before, "main")) == []
    assert listed(graph.diff("main", before, direct=True)) == []


@pytest.mark.parametrize("schema", [WITH_LEVEL, WITHOUT_SIZE, WIDER])
def test_c_bra_038_a_change_of_schema_that_rewrites_or_drops_values_is_refused(
    graph: og.Graph, schema: str
) -> None:
    before = head(graph)
    graph.apply_schema(schema)
    changed = head(graph)
    for ends in ((before, "main"), ("main", before)):
        with pytest.raises(ChangeDiffRefused) as refused:
            graph.diff(*ends, direct=True)
        assert reason(refused) == ("schema_boundary", "City")
    with pytest.raises(ChangeDiffRefused) as refused:
        graph.commit_changes(changed)
    assert reason(refused) == ("schema_boundary", "City")
    assert refused.value.hint is not None
    # What lies on either side of it is told, each with the schema it was written with.
    load(graph, city("rome"))
    assert [change["id"] for change in block(graph, head(graph))] == ["rome"]
    assert len(block(graph, before)) == 9


def test_c_bra_038_a_type_dropped_with_its_entities_is_refused(graph: og.Graph) -> None:
    before = head(graph)
    graph.apply_schema(WITHOUT_CITIES)
    with pytest.raises(ChangeDiffRefused) as refused:
        graph.commit_changes(head(graph))
    assert reason(refused) == ("schema_boundary", "City")
    # A diff shows that its lifetime ended.
    assert listed(graph.diff(before, "main")) == [
        ("delete", "City", "bern"),
        ("delete", "City", "oslo"),
        ("delete", "LivesIn", "l0"),
    ]
    assert [c["id"] for c in block(graph, before, types=["City"])] == ["bern", "oslo"]


def test_a_schema_that_changes_a_type_without_entities_rewrites_nothing(tmp_path: Path) -> None:
    graph = og.init(tmp_path / "empty.omni", schema=SCHEMA)
    for schema in (WITH_LEVEL, WITHOUT_CITIES):
        graph.apply_schema(schema)
        assert block(graph, head(graph)) == []


def test_a_type_dropped_and_made_again_is_two_lifetimes(graph: og.Graph) -> None:
    before = head(graph)
    graph.apply_schema(WITHOUT_CITIES)
    graph.apply_schema(SCHEMA)
    load(graph, city("bern", size=1))
    diff = graph.diff(before, "main", types=["City"])
    assert listed(diff) == [("insert", "City", "bern")]
    gone = graph.diff(before, "main", ops=["delete"])
    assert [c.id for c in gone.changes() if c.type_name == "City"] == ["bern", "oslo"]
    lives = {c.type_id for c in graph.diff(before, "main").changes() if c.type_name == "City"}
    assert len(lives) == 2


def test_a_commit_is_shown_with_the_names_it_had(graph: og.Graph) -> None:
    load(graph, city("bern", size=7))
    before = head(graph)
    graph.apply_schema(RENAMED)
    (change,) = block(graph, before)
    assert change["type"]["name"] == "City"
    assert change["before"]["properties"] == {"name": "bern", "size": 1}
    assert change["after"]["properties"] == {"name": "bern", "size": 7}
    # It is the same type: the published id stays, and the new name finds its past.
    load(graph, {"type": "Town", "data": {"name": "rome", "people": 3}})
    (later,) = block(graph, head(graph))
    assert later["type"] == {"id": change["type"]["id"], "name": "Town"}
    assert later["after"]["properties"] == {"name": "rome", "people": 3}
    assert block(graph, before, types=["Town"]) == [change]
    assert block(graph, before, types=["City"]) == [change]
    with pytest.raises(NotFound, match="Village"):
        block(graph, before, types=["Village"])


def test_a_diff_across_a_new_property_shows_what_was_put_into_it(graph: og.Graph) -> None:
    before = head(graph)
    graph.apply_schema(WITH_COUNTRY)
    load(graph, city("bern", country="Switzerland"), city("rome"))
    forth, back = graph.diff(before, "main"), graph.diff("main", before, direct=True)
    assert listed(forth) == [("update", "City", "bern"), ("insert", "City", "rome")]
    assert listed(back) == [("update", "City", "bern"), ("delete", "City", "rome")]
    (changed, _) = forth.changes(images=True)
    assert changed.before is not None and changed.after is not None
    assert changed.before.properties == {"name": "bern", "size": 1, "country": None}
    assert changed.after.properties == {"name": "bern", "size": None, "country": "Switzerland"}


def test_a_diff_across_a_new_name_shows_only_what_changed(graph: og.Graph) -> None:
    before = head(graph)
    graph.apply_schema(RENAMED)
    load(graph, {"type": "Town", "data": {"name": "bern", "people": 2}})
    load(graph, person("ada"), edge("LivesIn", "l1", "ada", "bern"))
    assert listed(graph.diff(before, "main")) == [
        ("update", "Town", "bern"),
        ("insert", "Person", "ada"),
        ("insert", "LivesIn", "l1"),
    ]


def test_without_the_schema_of_that_time_a_commit_is_refused(graph: og.Graph) -> None:
    before = head(graph)
    then = graph._kernel.accepted_schema().schema_hash
    graph.apply_schema(WITH_COUNTRY)
    graph._kernel.store.delete(past_schema_name(then))
    again = og.open(graph.uri)
    with pytest.raises(ChangeDiffRefused, match="schema_boundary"):
        again.commit_changes(before)
    load(again, city("rome"))
    assert [change["id"] for change in block(again, head(again))] == ["rome"]
