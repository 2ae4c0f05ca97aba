"""Reverting a commit, and picking one from another branch."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import omnigraph as og
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import ChangeDiffRefused, MergeConflicts, NotFound, ReadSetChanged
from tests.branching.histories import city, content, delete, edge, load, person, seeded, step
from tests.branching.reference_merge import exact
from tests.support.budgets import FEW


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    return seeded(tmp_path / "graph.omni")


def head(graph: og.Graph, branch: str = "main") -> str:
    return graph.list_commits(branch)[0].graph_commit_id


def test_a_revert_undoes_one_commit_and_keeps_what_came_since(graph: og.Graph) -> None:
    before = content(graph, "main")
    load(graph, person("new"), person("p0", age=70), edge("Knows", "k9", "new", "p0"))
    wrong = head(graph)
    load(graph, person("later"))
    receipt = graph.revert(wrong, actor="act-ana")
    assert (receipt.inserted, receipt.updated, receipt.deleted) == (0, 1, 2)
    after = content(graph, "main")
    assert after.pop(("node:Person", "later"))
    assert after == before
    commit = graph.list_commits()[0]
    assert receipt.commit == commit
    assert (commit.actor_id, commit.merged_parent_commit_id) == ("act-ana", None)
    # It can be undone as well.
    graph.revert(commit.graph_commit_id)
    assert content(graph, "main")["node:Person", "p0"]["age"] == 70


def test_a_deletion_is_reverted_with_its_edges(graph: og.Graph) -> None:
    before = content(graph, "main")
    delete(graph, "Person", "p0")
    graph.revert(head(graph))
    assert content(graph, "main") == before


def test_a_revert_is_refused_where_the_same_entity_changed_again(graph: og.Graph) -> None:
    load(graph, person("p0", age=70))
    wrong = head(graph)
    load(graph, person("p0", age=71))
    before = b"".join(graph.export())
    with pytest.raises(MergeConflicts) as refused:
        graph.revert(wrong)
    (conflict,) = refused.value.details["merge_conflicts"]
    assert (conflict["kind"], conflict["entity_id"]) == ("divergent_update", "p0")
    assert [conflict[s]["properties"]["age"] for s in ("base", "source", "target")] == [70, 0, 71]
    assert b"".join(graph.export()) == before


def test_a_revert_is_refused_where_the_graph_needs_what_the_commit_brought(
    graph: og.Graph,
) -> None:
    load(graph, person("new"))
    wrong = head(graph)
    load(graph, edge("Knows", "k9", "new", "p0"))
    with pytest.raises(MergeConflicts) as refused:
        graph.revert(wrong)
    assert [c["kind"] for c in refused.value.details["merge_conflicts"]] == ["orphan_edge"]


def test_a_merge_is_reverted_as_a_whole(graph: og.Graph) -> None:
    graph.create_branch("review")
    load(graph, person("one"), branch="review")
    load(graph, person("two"), branch="review")
    load(graph, person("theirs"))
    before = content(graph, "main")
    graph.merge_branch("review")
    graph.revert(head(graph))
    assert content(graph, "main") == before


def test_what_is_undone_already_makes_no_commit(graph: og.Graph) -> None:
    load(graph, person("new"))
    wrong = head(graph)
    delete(graph, "Person", "new")
    before = head(graph)
    receipt = graph.revert(wrong)
    assert receipt.commit is None
    assert head(graph) == before


def test_only_commits_of_the_branch_are_reverted_and_not_the_first(graph: og.Graph) -> None:
    graph.create_branch("review")
    load(graph, person("mine"), branch="review")
    with pytest.raises(NotFound, match="branch main has no commit") as refused:
        graph.revert(head(graph, "review"))
    assert "it is on review" in str(refused.value.hint)
    with pytest.raises(ChangeDiffRefused):
        graph.revert(graph.list_commits()[-1].graph_commit_id)
    with pytest.raises(NotFound, match="there is no commit"):
        graph.revert("01K3Z7M0Q8W4R6T2Y5V9B1N3XC")


def test_a_pick_takes_one_commit_of_a_branch_and_leaves_the_others(graph: og.Graph) -> None:
    graph.create_branch("review")
    load(graph, person("wanted"), person("p0", age=70), branch="review")
    wanted = head(graph, "review")
    load(graph, person("unwanted"), branch="review")
    load(graph, city("rome"))
    receipt = graph.cherry_pick(wanted)
    assert (receipt.inserted, receipt.updated, receipt.deleted) == (1, 1, 0)
    after = content(graph, "main")
    assert after["node:Person", "p0"]["age"] == 70
    assert ("node:Person", "wanted") in after
    assert ("node:Person", "unwanted") not in after
    assert graph.cherry_pick(wanted).commit is None
    # The branch is merged later all the same: what was picked is the same on both sides.
    graph.merge_branch("review")
    assert ("node:Person", "unwanted") in content(graph, "main")


def test_a_pick_into_a_branch_that_changed_the_entity_is_refused(graph: og.Graph) -> None:
    graph.create_branch("review")
    load(graph, person("p0", age=70))
    load(graph, person("p0", age=71), branch="review")
    with pytest.raises(MergeConflicts, match=r"cherry-pick of .* cannot be merged into review"):
        graph.cherry_pick(head(graph), "review")


def test_plans_of_both_change_nothing(graph: og.Graph) -> None:
    load(graph, person("new"))
    before = b"".join(graph.export()), head(graph)
    assert [each.deleted for each in graph.plan_revert(head(graph)).types] == [1]
    graph.create_branch("review", "main")
    assert graph.plan_cherry_pick(head(graph), "review").types == ()
    assert (b"".join(graph.export()), head(graph)) == before


def test_a_commit_meanwhile_refuses_a_revert(graph: og.Graph) -> None:
    load(graph, person("new"))
    wrong = head(graph)
    other = og.open(graph.uri)
    done: list[Failpoint] = []

    def overtake(point: Failpoint) -> None:
        if not done:  # the other write passes here, too
            done.append(point)
            load(other, person("late"))

    with (
        armed({Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE: overtake}),
        pytest.raises(ReadSetChanged),
    ):
        graph.revert(wrong)
    assert {("node:Person", "new"), ("node:Person", "late")} <= content(graph, "main").keys()


@FEW
@given(seed=st.integers(0, 2**32))
def test_reverting_the_newest_commits_one_by_one_leads_back(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    dice = random.Random(seed)
    graph = seeded(tmp_path_factory.mktemp("history") / "graph.omni")
    start = content(graph, "main")
    known = {commit.graph_commit_id for commit in graph.list_commits()}
    for _ in range(5):
        step(graph, dice, "main")
        if dice.random() < 0.2:
            graph.optimize()
    for commit in graph.list_commits():
        if commit.graph_commit_id not in known:
            graph.revert(commit.graph_commit_id)
    end = content(graph, "main")
    assert {e: exact(v) for e, v in end.items()} == {e: exact(v) for e, v in start.items()}
