"""Who changed one entity, when, and to what."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.effects.requests import measure
from omnigraph.errors import InputError, NotFound
from omnigraph.storage.layout import past_schema_name
from tests.branching.histories import city, delete, edge, load, person, seeded, step
from tests.branching.test_changes_across_schemas import RENAMED, WIDER, WITH_LEVEL, WITHOUT_SIZE


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return seeded(tmp_path / "graph.omni")


def ops(graph: og.Graph, type: str, id: str, branch: str = "main") -> list[str]:
    return [each.change.op for each in graph.entity_history(type, id, branch=branch)]


def test_every_change_of_an_entity_is_listed_newest_first(graph: og.Graph) -> None:
    set_age = 'query q($a: I32) { update Person set { age: $a } where name = "p0" }'
    graph.mutate(set_age, {"a": 50}, actor="act-ana")
    load(graph, person("other"))
    delete(graph, "Person", "p0")
    load(graph, person("p0", age=9))
    history = list(graph.entity_history("Person", "p0"))
    assert [each.change.op for each in history] == ["insert", "delete", "update", "insert"]
    update = history[2]
    assert update.cause.actor_id == "act-ana"
    assert update.change.before is not None and update.change.after is not None
    assert update.change.before.properties["age"] == 0
    assert update.change.after.properties["age"] == 50
    assert history[0].cause.graph_commit_id == graph.list_commits()[0].graph_commit_id


def test_rewrites_and_compactions_are_no_history(graph: og.Graph) -> None:
    before = ops(graph, "Person", "p1")
    graph.load(data=b"".join(graph.export(types=["Person"])), mode="overwrite")
    load(graph, person("more"))
    graph.optimize()
    assert ops(graph, "Person", "p1") == before == ["insert"]


def test_a_branch_shows_what_it_inherited_and_a_merge_what_it_brought(graph: og.Graph) -> None:
    graph.create_branch("review")
    load(graph, person("p0", age=70), branch="review")
    assert ops(graph, "Person", "p0", "review") == ["update", "insert"]
    assert ops(graph, "Person", "p0") == ["insert"]
    load(graph, person("theirs"))
    graph.merge_branch("review")
    (merged, _) = graph.entity_history("Person", "p0")
    assert merged.cause.merged_parent_commit_id == graph.list_commits("review")[0].graph_commit_id


def test_edges_have_a_history_with_their_ends(graph: og.Graph) -> None:
    load(graph, edge("Knows", "k0", "p2", "p3"))
    (moved, made) = graph.entity_history("edge:Knows", "k0")
    assert moved.change.before is not None and moved.change.before.endpoints is not None
    assert moved.change.before.endpoints.source == "p0"
    assert moved.change.endpoints is not None
    assert (moved.change.endpoints.source, made.change.op) == ("p2", "insert")


def test_what_never_was_has_no_history_and_unknown_types_are_told(graph: og.Graph) -> None:
    assert ops(graph, "Person", "nobody") == []
    with pytest.raises(NotFound, match="no type 'Persn'") as unknown:
        graph.entity_history("Persn", "p0")
    assert "Person" in str(unknown.value.hint)


def test_a_name_of_two_types_has_to_be_told_apart(tmp_path: Path) -> None:
    schema = "node Link { name: String @key }  edge Link: Link -> Link"
    graph = og.init(tmp_path / "twice.omni", schema=schema)
    with pytest.raises(InputError, match="node type and an edge type"):
        graph.entity_history("Link", "x")
    assert list(graph.entity_history("edge:Link", "x")) == []


def test_versions_between_two_changes_are_passed_over(graph: og.Graph) -> None:
    for n in range(12):
        load(graph, person("busy", age=n))
    with measure() as storage:
        assert ops(graph, "Person", "p0") == ["insert"]
    looked_at = storage.report().counts["lance", "lookup"]
    assert looked_at <= 8, "every version was looked at"


def test_the_history_of_every_entity_agrees_with_the_changes_of_every_commit(
    graph: og.Graph,
) -> None:
    dice = random.Random(7)
    for _ in range(12):
        step(graph, dice, "main")
    expected: dict[tuple[str, str], list[tuple[str, str]]] = {}
    for commit in graph.list_commits()[:-1]:
        for change in graph.commit_changes(commit.graph_commit_id):
            entity = f"{change.kind}:{change.type_name}", change.id
            expected.setdefault(entity, []).append((commit.graph_commit_id, change.op))
    assert len(expected) > 8
    for (type, id), changes in expected.items():
        history = graph.entity_history(type, id)
        found = [(each.cause.graph_commit_id, each.change.op) for each in history]
        assert found == changes, (type, id)


def test_the_history_goes_on_before_a_change_of_schema_in_the_words_of_its_time(
    graph: og.Graph,
) -> None:
    load(graph, city("oslo", size=4))
    graph.apply_schema(RENAMED)
    load(graph, {"type": "Town", "data": {"name": "oslo", "people": 5}})
    load(graph, person("p0", age=8))
    grown, changed, made = graph.entity_history("Town", "oslo")
    assert (grown.change.type_name, changed.change.type_name) == ("Town", "City")
    assert grown.change.before is not None and grown.change.after is not None
    assert grown.change.before.properties["people"] == 4
    assert grown.change.after.properties["people"] == 5
    assert changed.change.after is not None and changed.change.after.properties["size"] == 4
    assert (changed.change.op, made.change.op) == ("update", "insert")
    assert grown.change.type_id == made.change.type_id
    # A type that the change left alone has its whole history, too.
    assert ops(graph, "Person", "p0") == ["update", "insert"]


@pytest.mark.parametrize("schema", [WITH_LEVEL, WITHOUT_SIZE, WIDER])
def test_a_change_of_schema_that_rewrites_a_table_is_no_change_of_an_entity(
    graph: og.Graph, schema: str
) -> None:
    load(graph, city("oslo", size=4))
    graph.apply_schema(schema)
    assert ops(graph, "City", "oslo") == ["update", "insert"]
    load(graph, person("p0", age=8))
    delete(graph, "City", "oslo")
    assert ops(graph, "City", "oslo") == ["delete", "update", "insert"]


def test_the_history_ends_where_the_schema_of_the_time_was_not_kept(graph: og.Graph) -> None:
    load(graph, city("oslo", size=4))
    then = graph._kernel.accepted_schema().schema_hash
    graph.apply_schema(RENAMED)
    load(graph, {"type": "Town", "data": {"name": "oslo", "people": 5}})
    graph._kernel.store.delete(past_schema_name(then))
    graph = og.open(graph.uri)
    assert ops(graph, "Town", "oslo") == ["update"]
