"""Merging branches: outcomes, conflicts, and what a merge leaves alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.commit.plan import ChangeSet, Intent, TableChange
from omnigraph.commit.writer import WriteAttempt
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.effects.requests import measure
from omnigraph.errors import (
    ChangeCursorRejected,
    InputError,
    MergeConflicts,
    NotFound,
    ReadSetChanged,
)
from omnigraph.model.text_table import TINTS
from omnigraph.schema.catalog import table_schema
from omnigraph.storage.indexes import indexes_of
from tests.branching.histories import city, content, delete, edge, load, person, seeded


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = seeded(tmp_path / "graph.omni")
    graph.create_branch("review")
    return graph


def head(graph: og.Graph, branch: str = "main") -> str:
    return graph.list_commits(branch)[0].graph_commit_id


def pins(graph: og.Graph, branch: str = "main") -> dict[str, tuple[str | None, int]]:
    entries = graph.snapshot(branch).datasets
    return {
        f"{e.entity_kind}:{e.type_name}": (e.native_dataset_branch, e.published_dataset_version)
        for e in entries
    }


def conflicts_of(graph: og.Graph, source: str = "review", **options: Any) -> list[dict[str, Any]]:
    """The conflicts of a merge that is refused, and leaves the target as it was."""
    target = options.get("into") or "main"
    before = b"".join(graph.export(branch=target)), pins(graph, target), head(graph, target)
    with pytest.raises(MergeConflicts) as refused:
        graph.merge_branch(source, **options)
    after = b"".join(graph.export(branch=target)), pins(graph, target), head(graph, target)
    assert after == before, "the target changed"
    assert graph._kernel.sidecars.names() == []
    found: list[dict[str, Any]] = refused.value.details["merge_conflicts"]
    return found


def kinds(conflicts: list[dict[str, Any]]) -> list[tuple[str, str, str | None]]:
    return [(c["kind"], c["table_key"], c["entity_id"]) for c in conflicts]


# --- outcomes and lineage -------------------------------------------------------------------------


def test_a_merge_commit_has_both_heads_as_parents_and_its_actor(graph: og.Graph) -> None:
    load(graph, person("mine"), branch="review")
    load(graph, person("theirs"))
    parents = head(graph), head(graph, "review")
    receipt = graph.merge_branch("review", actor="act-ana")
    commit = graph.list_commits()[0]
    assert (commit.parent_commit_id, commit.merged_parent_commit_id) == parents
    assert (commit.actor_id, commit.kind) == ("act-ana", "merge")
    assert receipt.commit == commit
    assert receipt.to_dict() == {
        "source": "review",
        "target": "main",
        "outcome": "merged",
        "actor_id": "act-ana",
        "commit": commit.to_dict(),
    }
    assert head(graph, "review") == parents[1], "the source was touched"


def test_c_bra_043_changes_of_a_merge_are_those_against_its_first_parent(graph: og.Graph) -> None:
    load(graph, person("mine"), branch="review")
    load(graph, person("theirs"))
    graph.merge_branch("review")
    block = graph.commit_changes(head(graph)).to_dict()
    assert block["cause"]["merged_parent_commit_id"] == head(graph, "review")
    assert [(c["op"], c["id"]) for c in block["changes"]] == [("insert", "mine")]


def test_merging_on_after_a_merge_takes_only_what_is_new(graph: og.Graph) -> None:
    load(graph, person("first"), branch="review")
    load(graph, person("theirs"))
    graph.merge_branch("review")
    load(graph, person("first", age=1))
    load(graph, person("second"), branch="review")
    plan = graph.plan_merge("review")
    assert plan.base_commit_id == graph.list_commits("review")[1].graph_commit_id
    assert [(t.type_name, t.inserted, t.updated) for t in plan.types] == [("Person", 1, 0)]
    graph.merge_branch("review")
    assert content(graph, "main")["node:Person", "first"]["age"] == 1


def test_the_base_is_found_through_branches_that_were_merged_in_between(graph: og.Graph) -> None:
    graph.create_branch("helper", "review")
    load(graph, person("h"), branch="helper")
    graph.merge_branch("helper", "review")
    graph.merge_branch("helper", "main")
    load(graph, person("r"), branch="review")
    load(graph, person("m"))
    plan = graph.plan_merge("review")
    assert plan.base_commit_id == head(graph, "helper")
    graph.merge_branch("review")
    assert {("node:Person", name) for name in "hrm"} <= content(graph, "main").keys()


def test_c_bra_029_a_branch_is_merged_into_a_branch_and_main_stays(graph: og.Graph) -> None:
    graph.create_branch("fixes", "review")
    load(graph, person("fix"), branch="fixes")
    load(graph, person("other"), branch="review")
    main = b"".join(graph.export())
    assert graph.merge_branch("fixes", "review").outcome == "merged"
    assert {("node:Person", "fix"), ("node:Person", "other")} <= content(graph, "review").keys()
    assert b"".join(graph.export()) == main
    load(graph, person("late"))
    assert graph.merge_branch("main", "review").outcome == "merged"
    assert ("node:Person", "late") in content(graph, "review")


def test_a_branch_cannot_be_merged_into_itself_or_into_nothing(graph: og.Graph) -> None:
    with pytest.raises(InputError, match="into itself"):
        graph.merge_branch("review", "review")
    with pytest.raises(NotFound, match="no branch `nowhere`"):
        graph.merge_branch("review", "nowhere")
    with pytest.raises(NotFound, match="no branch `nowhere`"):
        graph.merge_branch("nowhere")
    for sides in (("__schema_apply_lock__", "main"), ("review", "__schema_apply_lock__")):
        with pytest.raises(InputError, match="no branch that can be merged"):
            graph.merge_branch(*sides)


# --- what moves, and what does not ----------------------------------------------------------------


def test_c_bra_023_a_net_zero_branch_merges_once_and_moves_no_table(graph: og.Graph) -> None:
    load(graph, person("brief"), branch="review")
    delete(graph, "Person", "brief", "review")
    before = pins(graph)
    receipt = graph.merge_branch("review")
    assert receipt.outcome == "fast_forward"
    assert receipt.commit is not None
    assert pins(graph) == before
    assert graph.merge_branch("review").outcome == "already_up_to_date"


def test_c_bra_024_a_net_zero_type_beside_a_real_change_stays_where_it_is(graph: og.Graph) -> None:
    load(graph, person("brief"), branch="review")
    delete(graph, "Person", "brief", "review")
    load(graph, city("rome"), branch="review")
    before = pins(graph)
    graph.merge_branch("review")
    moved = {key for key, pin in pins(graph).items() if pin != before[key]}
    assert moved == {"node:City"}


def test_c_bra_025_rows_that_did_not_change_keep_their_row_versions(graph: og.Graph) -> None:
    def stamps() -> dict[str, tuple[int, int]]:
        columns = ["id", "_row_created_at_version", "_row_last_updated_at_version"]
        rows = graph._opened.reader("main").scan("node:Person", columns).to_pylist()
        return {row["id"]: (row[columns[1]], row[columns[2]]) for row in rows}

    before = stamps()
    load(graph, person("p0", age=70), person("new"), branch="review")
    load(graph, person("p1", age=71))
    graph.merge_branch("review")
    after = stamps()
    assert {id: stamp for id, stamp in after.items() if before.get(id) != stamp}.keys() == {
        "p0",
        "p1",
        "new",
    }


def test_c_bra_022_blobs_of_rows_that_did_not_change_are_not_read(graph: og.Graph) -> None:
    load(graph, *(person(f"b{n}", photo="base64:QUE=") for n in range(20)))
    graph.create_branch("photos")
    load(graph, person("b0", photo="base64:QUI="), branch="photos")
    load(graph, person("p1", age=1))
    with measure() as storage:
        graph.merge_branch("photos")
    assert storage.report().counts["lance", "read_blobs"] <= 5
    assert content(graph, "main")["node:Person", "b0"]["photo"] == "base64:QUI="
    assert content(graph, "main")["node:Person", "b1"]["photo"] == "base64:QUE="


def test_c_bra_031_a_merge_of_many_rows_and_several_types_is_one_commit(graph: og.Graph) -> None:
    load(graph, *(person(f"m{n:05}") for n in range(9_000)), city("rome"), branch="review")
    load(graph, *(edge("Knows", f"e{n}", f"m{n:05}", "p0") for n in range(50)), branch="review")
    load(graph, person("theirs"))
    before = len(graph.list_commits())
    graph.merge_branch("review")
    assert len(graph.list_commits()) == before + 1
    assert not graph.diff("review", "main", direct=True, ops=["delete", "update"]).types
    assert [c.id for c in graph.diff("review", "main", direct=True).changes()] == ["theirs"]


def test_c_bra_032_a_merge_builds_no_index_and_queries_see_its_rows(tmp_path: Path) -> None:
    schema = "node Post { slug: String @key  text: String @index }"
    graph = og.init(tmp_path / "posts.omni", schema=schema)
    add = "query add($s: String, $t: String) { insert Post { slug: $s, text: $t } }"
    graph.mutate(add, {"s": "one", "t": "rain on sunday"})
    graph.ensure_indices()
    graph.create_branch("review")
    graph.mutate(add, {"s": "two", "t": "rain again"}, branch="review")

    def covered() -> dict[str, tuple[int, int]]:
        found = indexes_of(graph._opened.reader("main").handle("node:Post"))
        return {index.name: (index.rows_covered, index.rows_uncovered) for index in found}

    assert set(covered().values()) == {(1, 0)}
    graph.merge_branch("review")
    assert set(covered().values()) == {(1, 1)}
    found = graph.query(
        """
        query q { match { $p: Post  search($p.text, "rain") } return { $p.slug as s } order { s } }
        """
    )
    assert [row["s"] for row in found.to_pylist()] == ["one", "two"]


# --- others meanwhile -----------------------------------------------------------------------------


def test_c_bra_030_a_commit_to_the_source_during_the_merge_is_not_included(
    graph: og.Graph,
) -> None:
    load(graph, person("early"), branch="review")
    captured = head(graph, "review")
    other = og.open(graph.uri)

    def overtake(_: Failpoint) -> None:
        load(other, person("late"), branch="review")

    with armed({Failpoint.BRANCH_MERGE_POST_AUTHORITY_CAPTURE: overtake}):
        receipt = graph.merge_branch("review")
    assert receipt.commit is not None
    assert receipt.commit.merged_parent_commit_id == captured
    assert ("node:Person", "early") in content(graph, "main")
    assert ("node:Person", "late") not in content(graph, "main")
    assert graph.merge_branch("review").outcome == "merged"
    assert ("node:Person", "late") in content(graph, "main")


@pytest.mark.parametrize("record", [person("late"), city("late")], ids=["same", "other"])
def test_c_bra_030_a_commit_to_the_target_during_the_merge_refuses_it(
    graph: og.Graph, record: dict[str, Any]
) -> None:
    load(graph, person("early"), branch="review")
    other = og.open(graph.uri)

    def overtake(_: Failpoint) -> None:
        load(other, record)

    with (
        armed({Failpoint.BRANCH_MERGE_POST_AUTHORITY_CAPTURE: overtake}),
        pytest.raises(ReadSetChanged) as refused,
    ):
        graph.merge_branch("review")
    assert refused.value.details["member"] == "graph_head"
    assert refused.value.details["actual"] == head(graph)
    assert ("node:Person", "early") not in content(graph, "main")
    assert graph.merge_branch("review").outcome == "merged"


# --- conflicts of rows ----------------------------------------------------------------------------


def test_c_bra_019_conflicts_are_reported_together_with_what_each_side_has(
    graph: og.Graph,
) -> None:
    load(graph, person("p0", age=1), person("p2", age=2), city("rome", size=1), branch="review")
    delete(graph, "Person", "p3", "review")
    load(graph, person("p0", age=3), person("p3", age=4), city("rome", size=2))
    delete(graph, "Person", "p2")
    found = conflicts_of(graph)
    assert kinds(found) == [
        ("divergent_insert", "node:City", "rome"),
        ("divergent_update", "node:Person", "p0"),
        ("delete_vs_update", "node:Person", "p2"),
        ("delete_vs_update", "node:Person", "p3"),
    ]
    rome, p0, p2, p3 = found
    assert "base" not in rome
    assert rome["source"] == {"properties": {"name": "rome", "size": 1}}
    assert rome["target"] == {"properties": {"name": "rome", "size": 2}}
    assert [p0[side]["properties"]["age"] for side in ("base", "source", "target")] == [0, 1, 3]
    assert p0["properties"] == ["age"]
    assert ("target" in p2, "source" in p3) == (False, False)
    assert p2["message"] == "Person 'p2' was updated on review and deleted on main"
    assert p3["message"] == "Person 'p3' was deleted on review and updated on main"


def test_c_bra_020_the_same_change_on_both_sides_is_no_conflict(graph: og.Graph) -> None:
    same = [person("p0", age=9), person("new", tags=["x"], photo="base64:QUE="), city("rome")]
    for branch in ("review", "main"):
        load(graph, *same, branch=branch)
        delete(graph, "Person", "p4", branch)
    before = pins(graph)
    assert graph.merge_branch("review").outcome == "merged"
    assert pins(graph) == before


def test_c_bra_021_a_merge_tells_null_from_empty_and_lists_from_their_texts(
    graph: og.Graph,
) -> None:
    pairs: list[tuple[Any, Any]] = [(None, []), (["a, b"], ["a", "b"]), ([""], [])]
    for n, (mine, theirs) in enumerate(pairs):
        load(graph, person(f"t{n}", tags=mine), branch="review")
        load(graph, person(f"t{n}", tags=theirs))
    assert [c["entity_id"] for c in conflicts_of(graph)] == ["t0", "t1", "t2"]


def test_c_bra_021_properties_that_look_like_columns_of_the_store_are_compared(
    tmp_path: Path,
) -> None:
    schema = "node Note { slug: String @key  _row_note: String?  row_id: String? }"
    graph = og.init(tmp_path / "notes.omni", schema=schema)
    note = {"type": "Note", "data": {"slug": "n", "_row_note": "a"}}
    load(graph, note)
    graph.create_branch("review")
    load(graph, {"type": "Note", "data": {"slug": "n", "_row_note": "b"}}, branch="review")
    load(graph, {"type": "Note", "data": {"slug": "n", "_row_note": "c"}})
    (conflict,) = conflicts_of(graph)
    assert conflict["properties"] == ["_row_note"]


def test_one_side_wins_for_a_run_or_for_a_type(graph: og.Graph) -> None:
    load(graph, person("p0", age=1), city("rome", size=1), branch="review")
    delete(graph, "Person", "p3", "review")
    load(graph, person("p2", age=2), branch="review")
    load(graph, person("p0", age=3), person("p3", age=4), city("rome", size=2))
    delete(graph, "Person", "p2")
    for name in ("a", "b", "c"):
        graph.create_branch(name)
    resolved = graph.plan_merge("review", "a", on_conflict="source").types
    assert [(t.type_name, t.resolved) for t in resolved] == [("City", 1), ("Person", 3)]
    graph.merge_branch("review", "a", on_conflict="source")
    assert content(graph, "a") == content(graph, "review")
    graph.merge_branch("review", "b", on_conflict="target")
    assert content(graph, "b") == content(graph, "main")
    graph.merge_branch("review", "c", on_conflict="target", on_conflict_of={"City": "source"})
    assert content(graph, "c")["node:City", "rome"]["size"] == 1
    assert content(graph, "c")["node:Person", "p0"]["age"] == 3


def test_c_stu_004_conflicts_are_settled_entity_by_entity_and_property_by_property(
    graph: og.Graph,
) -> None:
    for branch, age, tags in (("review", 11, ["mine"]), ("main", 12, ["theirs"])):
        load(graph, *(person(f"p{n}", age=age, tags=tags) for n in range(4)), branch=branch)
    delete(graph, "Person", "p3", "review")
    for name in ("a", "b"):
        graph.create_branch(name)
    rules: dict[str, Any] = {"Person:p1": "source", "Person:p2": "target"}
    left = graph.plan_merge("review", "a", on_conflict_of=rules).conflicts
    assert [conflict.entity_id for conflict in left] == ["p0", "p3"]
    graph.merge_branch("review", "a", on_conflict_of={**rules, "Person": "source"})
    found = {id: each for (_, id), each in content(graph, "a").items()}
    assert [found[id]["age"] for id in ("p0", "p1", "p2")] == [11, 11, 12]
    assert "p3" not in found
    # The narrowest rule decides: a property of an entity, an entity, a property, the type.
    rules = {"Person": "target", "Person.age": "source", "Person:p1": "target"}
    rules |= {"Person:p2": "source", "Person.age:p2": "target"}
    plan = graph.plan_merge("review", "b", on_conflict_of=rules, granularity="property")
    assert plan.conflicts == ()
    listed = {change.id: change.properties for change in plan.changes}
    assert listed == {"p0": ("age",), "p2": ("tags",)}
    graph.merge_branch("review", "b", on_conflict_of=rules, granularity="property")
    found = {id: each for (_, id), each in content(graph, "b").items()}
    ages_and_tags = [(found[f"p{n}"]["age"], found[f"p{n}"]["tags"]) for n in range(4)]
    mine, theirs = ["mine"], ["theirs"]
    assert ages_and_tags == [(11, theirs), (12, theirs), (12, mine), (12, theirs)]
    # A property that is to fail keeps its entity as it is, whatever the others say.
    rules |= {"Person.age:p0": "fail"}
    (conflict,) = conflicts_of(graph, on_conflict_of=rules, granularity="property")
    assert conflict["entity_id"] == "p0"


def test_rules_that_mean_nothing_are_refused(graph: og.Graph) -> None:
    with pytest.raises(InputError, match="knows no `sorce`") as refused:
        graph.merge_branch("review", on_conflict="sorce")  # type: ignore[arg-type]
    assert "source" in str(refused.value.hint)
    with pytest.raises(NotFound, match="no type 'Persn'"):
        graph.merge_branch("review", on_conflict_of={"Persn": "source"})
    with pytest.raises(InputError, match="has no property `agee`") as refused:
        graph.merge_branch("review", on_conflict_of={"Person.agee:p0": "source"})
    assert "age" in str(refused.value.hint)
    with pytest.raises(InputError, match=r"cannot be for `Person\.:x`"):
        graph.merge_branch("review", on_conflict_of={"Person.:x": "source"})
    with pytest.raises(InputError, match="the merge is by entity") as refused:
        graph.merge_branch("review", on_conflict_of={"Person.age:p0": "source"})
    assert "granularity `property`" in str(refused.value.hint)


def test_disjoint_edits_of_one_entity_go_together_if_asked_for(graph: og.Graph) -> None:
    set_age = 'query q { update Person set { age: 50 } where name = "p0" }'
    set_tags = 'query q { update Person set { tags: ["x"] } where name = "p0" }'
    graph.mutate(set_age, branch="review")
    graph.mutate(set_tags)
    assert kinds(conflicts_of(graph)) == [("divergent_update", "node:Person", "p0")]
    plan = graph.plan_merge("review", granularity="property")
    assert [(t.updated, t.conflicts) for t in plan.types] == [(1, 0)]
    graph.merge_branch("review", granularity="property")
    merged = content(graph, "main")["node:Person", "p0"]
    assert (merged["age"], merged["tags"]) == (50, ["x"])
    graph.mutate(set_age.replace("50", "51"), branch="review")
    graph.mutate(set_age.replace("50", "52"))
    (conflict,) = conflicts_of(graph, granularity="property")
    assert "age" in conflict["properties"]


# --- conflicts of the result ----------------------------------------------------------------------

CONSTRAINED = """
node Person {
    name: String @key
    email: String? @unique
    first: String?
    last: String?
    level: enum(low, high)?
    age: I32?
    @unique(first, last)
    @range(age, 0..150)
}
edge Boss: Person -> Person @card(0..1)
edge Likes: Person -> Person { how: String  much: I32?  @key(src, dst, how) }
"""


def constrained(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "constrained.omni", schema=CONSTRAINED)
    load(graph, person("a"), person("b"), person("c"))
    graph.create_branch("review")
    return graph


def test_c_bra_026_edges_left_without_their_node_are_found_when_main_goes_into_a_branch(
    graph: og.Graph,
) -> None:
    load(graph, edge("Knows", "k5", "p3", "p4"))
    delete(graph, "Person", "p4", "review")
    found = conflicts_of(graph, "main", into="review")
    assert kinds(found) == [("orphan_edge", "edge:Knows", "k5")]
    assert "dst 'p4' not found in Person" in found[0]["message"]


def test_c_bra_027_a_value_taken_on_both_sides_is_a_conflict(tmp_path: Path) -> None:
    graph = constrained(tmp_path)
    load(graph, person("a", email="x@y"), branch="review")
    load(graph, person("b", email="x@y"))
    assert kinds(conflicts_of(graph)) == [("unique_violation", "node:Person", "a")]


def test_c_bra_027_a_tuple_taken_on_both_sides_is_a_conflict(tmp_path: Path) -> None:
    graph = constrained(tmp_path)
    load(graph, person("a", first="Ada", last="L"), branch="review")
    load(graph, person("b", first="Ada", last="L"))
    assert kinds(conflicts_of(graph)) == [("unique_violation", "node:Person", "a")]


def test_an_edge_key_taken_on_both_sides_is_a_conflict_that_names_it(tmp_path: Path) -> None:
    graph = constrained(tmp_path)
    insert = 'query q() { insert Likes { from: "a", to: "b", how: "HOW", much: 1 } }'
    graph.mutate(insert.replace("HOW", "well"), branch="review")
    graph.mutate(insert.replace("HOW", "a lot"), branch="review")
    graph.mutate(insert.replace("HOW", "well"))
    (found,) = conflicts_of(graph)
    assert (found["kind"], found["table_key"]) == ("unique_violation", "edge:Likes")
    assert "@key violation on Likes.(src, dst, how): value '(a, b, well)'" in found["message"]


def test_c_bra_027_too_many_edges_together_are_a_conflict(tmp_path: Path) -> None:
    graph = constrained(tmp_path)
    load(graph, edge("Boss", "e1", "a", "b"), branch="review")
    load(graph, edge("Boss", "e2", "a", "c"))
    found = conflicts_of(graph)
    assert kinds(found) == [("cardinality_violation", "edge:Boss", None)]
    assert "source 'a' has 2 edges (max 1)" in found[0]["message"]


@pytest.mark.parametrize(
    ("values", "words"),
    [({"level": "huge"}, "invalid enum value 'huge'"), ({"age": 999}, "@range violation")],
    ids=["enum", "range"],
)
@pytest.mark.parametrize("target_moved", [False, True], ids=["fast_forward", "merged"])
def test_c_bra_027_c_bra_028_values_the_schema_forbids_are_a_conflict(
    tmp_path: Path, values: dict[str, Any], words: str, target_moved: bool
) -> None:
    """No write of ours leaves such a row; a writer of another kind may have."""
    graph = constrained(tmp_path)
    kernel = graph._kernel
    schema = table_schema(graph._opened.accepted().catalog.nodes["Person"])
    rows = pa.Table.from_pylist([{"id": "a", "name": "a", **values}], schema=schema)
    capture = kernel.capture(
        kernel.manifest.refreshed("review"), graph._opened.accepted().schema_hash
    )
    changes = ChangeSet({"node:Person": TableChange("node:Person", "upsert", rows)})
    WriteAttempt(kernel, capture, changes, Intent("Mutation", "mutation")).run()
    if target_moved:
        load(graph, person("b", age=3))
    found = conflicts_of(graph)
    assert kinds(found) == [("value_constraint_violation", "node:Person", "a")]
    assert words in found[0]["message"]


def test_conflicts_of_the_result_have_no_winner(tmp_path: Path) -> None:
    graph = constrained(tmp_path)
    load(graph, person("a", email="x@y"), branch="review")
    load(graph, person("b", email="x@y"))
    assert kinds(conflicts_of(graph, on_conflict="source")) == [
        ("unique_violation", "node:Person", "a")
    ]


# --- deleting the source --------------------------------------------------------------------------


def test_c_bra_033_the_source_is_deleted_after_every_outcome(graph: og.Graph) -> None:
    assert graph.merge_branch("review", delete_branch=True).to_dict() == {
        "source": "review",
        "target": "main",
        "outcome": "already_up_to_date",
        "actor_id": None,
        "commit": None,
        "branch_deleted": True,
    }
    graph.create_branch("review")
    load(graph, person("new"), branch="review")
    assert graph.merge_branch("review", delete_branch=True).branch_deleted is True
    assert graph.list_branches() == ["main"]
    assert ("node:Person", "new") in content(graph, "main"), "the rows went with the branch"
    graph.optimize()
    assert ("node:Person", "new") in content(graph, "main")


def test_c_bra_033_a_refused_deletion_does_not_fail_the_merge(graph: og.Graph) -> None:
    load(graph, person("new"), branch="review")
    graph.create_branch("child", "review")
    receipt = graph.merge_branch("review", delete_branch=True)
    assert receipt.outcome == "fast_forward"
    assert receipt.branch_deleted is False
    assert "still depends on it" in str(receipt.branch_delete_error)
    assert ("node:Person", "new") in content(graph, "main")
    main = graph.merge_branch("main", "child", delete_branch=True)
    assert "`main` cannot be deleted" in str(main.branch_delete_error)


# --- the plan -------------------------------------------------------------------------------------


def test_a_plan_prints_what_would_happen_and_changes_nothing(graph: og.Graph) -> None:
    load(graph, person("p0", age=1), person("new"), branch="review")
    load(graph, person("p0", age=2), person("p1", age=3))
    before = b"".join(graph.export()), pins(graph)
    plan = graph.plan_merge("review")
    assert str(plan).splitlines() == [
        "review into main: merged",
        "",
        "type        | how    | inserted | updated | deleted | conflicts | resolved",
        "------------+--------+----------+---------+---------+-----------+---------",
        "node Person | merged |        1 |       0 |       0 |         1 |        0",
        "",
        "+  node Person new",
        "",
        "divergent_update: Person 'p0' was updated differently on review and on main",
    ]
    assert (b"".join(graph.export()), pins(graph)) == before
    assert og.open(graph.uri, mode="read_only").plan_merge("review").to_dict() == plan.to_dict()


def planned(plan: Any) -> list[tuple[str, str, str, tuple[str, ...]]]:
    return [(each.op, each.type_name, each.id, each.properties) for each in plan.changes]


def test_c_rev_003_a_plan_lists_every_entity_it_would_change(graph: og.Graph) -> None:
    load(graph, person("p0", age=7), person("new"), city("bern", size=5), branch="review")
    load(graph, edge("Knows", "k9", "p2", "p3"), branch="review")
    delete(graph, "Person", "p4", branch="review")
    load(graph, person("p1", age=8))
    plan = graph.plan_merge("review")
    assert plan.conflicts == ()
    assert sorted(planned(plan)) == [
        ("delete", "Person", "p4", ()),
        ("insert", "Knows", "k9", ()),
        ("insert", "Person", "new", ()),
        ("update", "City", "bern", ("size",)),
        ("update", "Person", "p0", ("age", "tags")),
    ]
    assert (plan.changes[-1].id, plan.changes[-1].kind) == ("k9", "edge")
    assert plan.changes[-1].to_dict()["endpoints"] == {"from": "p2", "to": "p3"}
    page = graph.plan_merge("review", limit=2)
    seen: list[Any] = []
    while True:
        assert page.types == plan.types
        seen += page.changes
        if page.next_page_token is None:
            break
        page = graph.plan_merge("review", limit=2, page_token=page.next_page_token)
    assert tuple(seen) == plan.changes
    # What was planned is what the merge does, in the same order.
    before = head(graph)
    graph.merge_branch("review")
    merged = graph.diff(before, "main").changes()
    assert [(c.op, c.type_name, c.id) for c in merged] == [each[:3] for each in planned(plan)]


def test_c_rev_003_a_plan_says_which_properties_a_mixed_entity_gets(graph: og.Graph) -> None:
    load(graph, person("p0", age=7, score=1.0, tags=["a"]), branch="review")
    load(graph, person("p0", age=0, tags=["x"]))
    plan = graph.plan_merge("review", granularity="property")
    assert planned(plan) == [("update", "Person", "p0", ("age", "score"))]
    load(graph, person("p0", age=9, tags=["x"]))
    rules: list[tuple[Any, tuple[str, ...]]] = [
        ("source", ("age", "score")),
        ("target", ("score",)),
    ]
    for rule, properties in rules:
        plan = graph.plan_merge("review", granularity="property", on_conflict=rule)
        assert planned(plan) == [("update", "Person", "p0", properties)]


def test_c_rev_003_conflicts_of_every_kind_are_in_one_answer(graph: og.Graph) -> None:
    load(graph, person("p1", age=9), person("p4", age=9), branch="review")
    load(graph, edge("Knows", "k7", "p2", "p3"), edge("Knows", "k8", "p4", "p2"), branch="review")
    load(graph, person("p1", age=2))
    delete(graph, "Person", "p3")
    delete(graph, "Person", "p4")
    found = conflicts_of(graph)
    assert kinds(found) == [
        ("divergent_update", "node:Person", "p1"),
        ("delete_vs_update", "node:Person", "p4"),
        ("orphan_edge", "edge:Knows", "k7"),
        ("orphan_edge", "edge:Knows", "k8"),
    ]
    assert "orphan_edge: Knows 'k7': " in str(graph.plan_merge("review"))
    # If the source wins, its node comes back, and the edge from there has both ends.
    settled = conflicts_of(graph, on_conflict="source")
    assert kinds(settled) == [("orphan_edge", "edge:Knows", "k7")]


def test_c_rev_003_the_page_of_another_plan_is_refused(graph: og.Graph) -> None:
    load(graph, person("a1"), person("a2"), branch="review")
    token = graph.plan_merge("review", limit=1).next_page_token
    assert token is not None
    with pytest.raises(ChangeCursorRejected):
        graph.plan_merge("review", limit=1, page_token=token, on_conflict="source")
    load(graph, person("a3"), branch="review")
    with pytest.raises(ChangeCursorRejected):
        graph.plan_merge("review", limit=1, page_token=token)


def test_a_plan_shows_itself_as_tables_in_a_notebook(graph: og.Graph) -> None:
    load(graph, person("p0", age=1), person("<b>"), branch="review")
    load(graph, person("p0", age=2), person("p1", age=3))
    html = graph.plan_merge("review")._repr_html_()
    assert html.startswith("<p>review into main: merged</p><table>")
    assert f'<tr style="background: {TINTS["red"]}"><td>node Person</td><td>merged</td>' in html
    assert "<th>base</th><th>source</th><th>target</th>" in html
    assert "<td>age 0</td><td>age 1</td><td>age 2</td>" in html
    assert html.count("<table>") == html.count("</table>") == 3
    assert "<td>node Person &lt;b&gt;</td>" in html
    load(graph, *(person(f"c{n}", age=1) for n in range(30)), branch="review")
    load(graph, *(person(f"c{n}", age=2) for n in range(30)))
    assert graph.plan_merge("review")._repr_html_().endswith("<p>… and 11 more</p>")
    graph.create_branch("fresh")
    assert graph.plan_merge("fresh")._repr_html_() == "<p>fresh into main: already up to date</p>"
