"""Merging and replaying between branches of which some have an older schema than others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import Conflict, MergeConflicts
from tests.commit.test_schema_apply import nodes, records
from tests.commit.test_schema_branches import ADDED, BASE, EVERYTHING, PEOPLE, human, lines


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """A graph with the branch `work`, made before the schema changes."""
    graph = og.init(tmp_path / "graph.omni", BASE)
    graph.load(data=lines(PEOPLE), mode="append")
    graph.create_branch("work")
    return graph


def insert(graph: og.Graph, name: str, branch: str = "work", type: str = "Person") -> str:
    graph.mutate(f'query q {{ insert {type} {{ name: "{name}" }} }}', branch=branch)
    return graph.list_commits(branch)[0].graph_commit_id


def set_age(graph: og.Graph, name: str, age: int, branch: str = "work", **names: str) -> str:
    type, prop = names.get("type", "Person"), names.get("prop", "age")
    graph.mutate(
        f'query q {{ update {type} set {{ {prop}: {age} }} where name = "{name}" }}', branch=branch
    )
    return graph.list_commits(branch)[0].graph_commit_id


@pytest.mark.parametrize("rebased", [False, True], ids=["as it is", "rebased"])
def test_a_merge_brings_what_was_written_with_the_older_schema(
    graph: og.Graph, rebased: bool
) -> None:
    insert(graph, "cy")
    set_age(graph, "ada", 37)
    graph.mutate('query q { delete LivesIn where from = "ada" }', branch="work")
    graph.apply_schema(EVERYTHING)
    insert(graph, "di", "main", "Human")
    insert(graph, "mars", "main", "Planet")
    if rebased:
        graph.rebase_schema("work")
        insert(graph, "pluto", "work", "Planet")
    plan = graph.plan_merge("work")
    kinds = {step["kind"] for step in plan.schema_steps}
    assert kinds == (set() if rebased else {
        "rename_type", "add_type", "add_property", "rename_property", "widen_property",
        "add_constraint",
    })  # fmt: skip
    assert ("older schema; what is merged gets: " in repr(plan)) is not rebased
    receipt = graph.merge_branch("work")
    assert receipt.outcome == "merged"
    planets = ["mars", "pluto"] if rebased else ["mars"]
    assert records(graph) == [
        human("ada", mood="calm", years=37),
        human("bo"),
        human("cy"),
        human("di"),
        *({"type": "Planet", "data": {"name": name}} for name in planets),
        {"type": "Town", "data": {"name": "rome", "size": 3}},
    ]
    assert {(p.type_name, p.inserted, p.updated, p.deleted) for p in plan.types} == {
        ("Human", 1, 1, 0), ("LivesIn", 0, 0, 1), *([("Planet", 1, 0, 0)] if rebased else []),
    }  # fmt: skip
    assert graph.merge_branch("work").outcome == "already_up_to_date"
    assert graph.examine().is_healthy


@pytest.mark.parametrize("rebased", [False, True], ids=["as it is", "rebased"])
def test_conflicts_are_about_what_was_written_not_about_the_schema(
    graph: og.Graph, rebased: bool
) -> None:
    set_age(graph, "ada", 37)
    set_age(graph, "bo", 2)
    graph.apply_schema(EVERYTHING)
    set_age(graph, "ada", 38, "main", type="Human", prop="years")
    if rebased:
        graph.rebase_schema("work")
    with pytest.raises(MergeConflicts) as refused:
        graph.merge_branch("work")
    (conflict,) = refused.value.details["merge_conflicts"]
    assert (conflict["entity_id"], conflict["type_name"]) == ("ada", "Human")
    assert conflict["properties"] == ["years"]
    assert conflict["base"]["properties"]["level"] == 3
    graph.merge_branch("work", on_conflict="source")
    assert [row["years"] for row in nodes(graph, "Human")] == [37, 2]


def test_cleanup_keeps_what_a_merge_of_types_that_the_base_lacks_needs(graph: og.Graph) -> None:
    graph.apply_schema(ADDED)
    for name in ("mars", "venus"):
        insert(graph, name, "main", "Planet")
    graph.rebase_schema("work")
    insert(graph, "pluto", "work", "Planet")
    insert(graph, "mars", "work", "Planet")
    graph.cleanup(keep=1, confirm=True)
    fresh = og.open(graph.uri)
    fresh.merge_branch("work")
    assert [row["name"] for row in nodes(fresh, "Planet")] == ["mars", "pluto", "venus"]


def test_a_merge_by_property_keeps_what_main_wrote_to_a_new_one(graph: og.Graph) -> None:
    set_age(graph, "ada", 37)
    graph.apply_schema(ADDED)
    graph.mutate('query q { update Person set { mail: "a@b" } where name = "ada" }')
    graph.merge_branch("work", granularity="property")
    (ada, _) = nodes(graph, "Person")
    assert (ada["age"], ada["mail"]) == (37, "a@b")


def test_what_breaks_a_constraint_of_main_is_a_conflict(graph: og.Graph) -> None:
    set_age(graph, "bo", 36)
    graph.apply_schema(BASE.replace("age: I32?", "age: I32? @unique"))
    plan = graph.plan_merge("work")
    assert [each.kind for each in plan.conflicts] == ["unique_violation"]
    with pytest.raises(MergeConflicts):
        graph.merge_branch("work")


def test_blobs_of_an_older_schema_arrive_under_their_new_name(tmp_path: Path) -> None:
    text = "node Memo { name: String @key  scan: Blob? }"
    graph = og.init(tmp_path / "graph.omni", text)
    graph.create_branch("work")
    graph.mutate(
        'query q($b: Blob) { insert Memo { name: "m", scan: $b } }',
        {"b": "base64:aGVsbG8="},
        branch="work",
    )
    graph.apply_schema(
        'node Memo { name: String @key  page: Blob? @rename_from("scan")  more: Blob? }'
    )
    graph.merge_branch("work")
    assert nodes(graph, "Memo") == [{"more": None, "name": "m", "page": "base64:aGVsbG8="}]


@pytest.mark.parametrize("dropped", ["node:Person.age", "node:City"])
def test_what_main_dropped_is_not_lost_by_a_merge(graph: og.Graph, dropped: str) -> None:
    desired = BASE.replace("age: I32?", "") if "age" in dropped else BASE.splitlines()[1]
    graph.create_branch("other")
    insert(graph, "cy")
    insert(graph, "oslo", type="City")
    graph.mutate('query q { delete LivesIn where from = "ada" }', branch="work")
    graph.apply_schema(desired)
    before = graph.snapshot()
    for ask in (graph.plan_merge, graph.merge_branch):
        with pytest.raises(
            Conflict, match=f"main has dropped what work has .*{dropped}"
        ) as refused:
            ask("work")
        assert "schema rebase work --allow-data-loss" in str(refused.value.hint)
    assert graph.snapshot() == before
    assert graph.merge_branch("other").outcome == "already_up_to_date"
    graph.rebase_schema("work", allow_data_loss=True)
    graph.merge_branch("work")
    assert [row["name"] for row in nodes(graph, "Person")] == ["ada", "bo", "cy"]


def test_what_main_dropped_and_the_branch_left_alone_is_no_obstacle(graph: og.Graph) -> None:
    insert(graph, "oslo", type="City")
    graph.apply_schema(BASE.replace("age: I32?", ""))
    graph.merge_branch("work")
    assert [row["name"] for row in nodes(graph, "City")] == ["oslo", "rome"]


def test_a_branch_with_an_older_schema_is_brought_forward_before_main_is_merged_into_it(
    graph: og.Graph,
) -> None:
    graph.create_branch("old")
    graph.apply_schema(ADDED)
    insert(graph, "mars", "main", "Planet")
    graph.rebase_schema("work")
    insert(graph, "cy")
    for source in ("main", "work"):
        with pytest.raises(Conflict, match=f"{source} has a newer schema than old") as refused:
            graph.merge_branch(source, into="old")
        assert "schema rebase old" in str(refused.value.hint)
    graph.rebase_schema("old")
    graph.merge_branch("main", into="old")
    graph.merge_branch("work", into="old")
    assert [row["name"] for row in nodes(graph, "Planet", branch="old")] == ["mars"]
    assert len(nodes(graph, "Person", branch="old")) == 3


def test_a_branch_merges_into_another_one_with_a_newer_schema(graph: og.Graph) -> None:
    graph.create_branch("target")
    insert(graph, "cy")
    graph.apply_schema(ADDED)
    graph.rebase_schema("target")
    insert(graph, "di", "target")
    graph.merge_branch("work", into="target")
    rows = nodes(graph, "Person", branch="target")
    assert [(row["name"], row["mail"]) for row in rows] == [
        ("ada", None), ("bo", None), ("cy", None), ("di", None),
    ]  # fmt: skip
    graph.merge_branch("target")
    assert len(nodes(graph, "Person")) == 4


def test_commits_of_an_older_schema_are_picked_and_reverted(graph: og.Graph) -> None:
    picked = insert(graph, "cy")
    undone = set_age(graph, "ada", 40, "main")
    graph.apply_schema(EVERYTHING)
    change = graph.list_commits()[0].graph_commit_id
    graph.cherry_pick(picked)
    graph.revert(undone)
    rows = nodes(graph, "Human")
    assert [(row["name"], row["years"], row["level"]) for row in rows] == [
        ("ada", 36, 3), ("bo", None, 3), ("cy", None, 3),
    ]  # fmt: skip
    with pytest.raises(Conflict, match="is a change of schema"):
        graph.revert(change)
    newer = insert(graph, "di", "main", "Human")
    with pytest.raises(Conflict, match="has a newer schema than work"):
        graph.cherry_pick(newer, into="work")


def test_a_commit_that_changed_what_is_dropped_is_not_replayed_in_part(graph: og.Graph) -> None:
    changed = set_age(graph, "ada", 40, "main")
    graph.apply_schema(BASE.replace("age: I32?", ""))
    with pytest.raises(Conflict, match="has dropped what revert of"):
        graph.revert(changed)


def test_the_feed_of_a_branch_goes_on_over_a_rebase(graph: og.Graph) -> None:
    cursor = graph.poll_changes("work", start="now").cursor
    insert(graph, "cy")
    graph.apply_schema(ADDED)
    graph.rebase_schema("work")
    graph.mutate('query q { insert Planet { name: "pluto" } }', branch="work")
    page = graph.poll_changes("work", cursor=cursor)
    seen = [(c.op, c.type_name, c.id) for block in page.blocks for c in block.changes]
    assert seen == [("insert", "Person", "cy"), ("insert", "Planet", "pluto")]
    found: dict[str, Any] = {t.type_name: t.inserted for t in graph.diff("main", "work").types}
    assert found == {"Person": 1, "Planet": 1}
