"""`with graph.branch(…)`: a branch for one piece of work, merged when it succeeded."""

from __future__ import annotations

from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.errors import AlreadyExists, MergeConflicts, NotFound, PolicyDenied
from omnigraph.model.branch_scope import BranchScope, BranchTask
from tests.graph.test_policy_gate import granting

SCHEMA = "node Person { name: String @key  age: I32? }"
NAMES = "query names { match { $p: Person } return { $p.name } order { $p.name } }"


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    made = og.init(tmp_path / "g.omni", SCHEMA)
    made.mutate(add("ada"))
    return made


def add(name: str, age: int = 1) -> str:
    return f'query add {{ insert Person {{ name: "{name}" age: {age} }} }}'


def aged(name: str, age: int) -> str:
    return f'query aged {{ update Person set {{ age: {age} }} where name = "{name}" }}'


def names(graph: og.Graph, branch: str | None = None) -> list[str]:
    return [row["p.name"] for row in graph.query(NAMES, branch=branch).to_pylist()]


# --- success --------------------------------------------------------------------------------------


def test_work_is_seen_on_its_branch_and_merged_at_the_end(graph: og.Graph):
    scope = graph.branch("agent/42")
    with scope as b:
        b.mutate(add("grace"))
        assert names(b) == ["ada", "grace"]
        assert names(graph) == ["ada"]
        assert graph.list_branches() == ["agent/42", "main"]
    assert names(graph) == ["ada", "grace"]
    assert graph.list_branches() == ["main"]
    assert scope.receipt is not None and scope.receipt.branch_deleted is True


def test_a_block_that_wrote_nothing_leaves_the_graph_as_it_was(graph: og.Graph):
    before = graph.list_commits()
    with graph.branch("idle"):
        pass
    assert graph.list_commits() == before
    assert graph.list_branches() == ["main"]


def test_the_branch_can_be_kept_and_merged_elsewhere(graph: og.Graph):
    graph.create_branch("review")
    with graph.branch("work", "review", delete_branch=False) as b:
        b.mutate(add("grace"))
    assert (names(graph), names(graph, "review")) == (["ada"], ["ada", "grace"])
    with graph.branch("other", into="review") as b:
        b.mutate(add("joan"))
    assert names(graph, "review") == ["ada", "grace", "joan"]
    assert graph.list_branches() == ["main", "review", "work"]


def test_scopes_nest_and_fork_from_the_handle_they_are_called_on(graph: og.Graph):
    with graph.branch("outer") as outer:
        outer.mutate(add("grace"))
        with outer.branch("inner") as inner:
            inner.mutate(add("joan"))
            assert names(inner) == ["ada", "grace", "joan"]
        assert names(outer) == ["ada", "grace", "joan"]
        assert names(graph) == ["ada"]
    assert names(graph) == ["ada", "grace", "joan"]


# --- failure --------------------------------------------------------------------------------------


def test_an_error_keeps_the_branch_and_says_so(graph: og.Graph):
    scope = graph.branch("agent/42")
    with pytest.raises(ZeroDivisionError) as caught, scope as b:
        b.mutate(add("grace"))
        raise ZeroDivisionError
    assert scope.receipt is None
    assert caught.value.__notes__ == [
        "branch `agent/42` was kept: continue with `resume=True`, or delete it"
    ]
    assert (names(graph), names(graph, "agent/42")) == (["ada"], ["ada", "grace"])


def test_a_conflict_keeps_the_branch_and_a_rule_decides_it(graph: og.Graph):
    with pytest.raises(MergeConflicts) as caught, graph.branch("work") as b:
        b.mutate(aged("ada", 36))
        graph.mutate(aged("ada", 37))
    assert "branch `work` was kept" in caught.value.__notes__[-1]
    with graph.branch("work", resume=True, on_conflict="source"):
        pass
    (row,) = graph.query("query q { match { $p: Person } return { $p.age } }").to_pylist()
    assert row["p.age"] == 36


def test_a_branch_that_exists_is_an_error_unless_it_is_resumed(graph: og.Graph):
    graph.create_branch("agent/42")
    graph.mutate(add("grace"), branch="agent/42")
    with pytest.raises(AlreadyExists, match="already exists") as caught, graph.branch("agent/42"):
        raise AssertionError("the block ran")
    assert "resume=True" in str(caught.value.hint)
    assert graph.list_branches() == ["agent/42", "main"]
    with graph.branch("agent/42", resume=True) as b:
        b.mutate(add("joan"))
    assert names(graph) == ["ada", "grace", "joan"]
    with graph.branch("new", resume=True) as b:
        b.mutate(add("mary"))
    assert names(graph) == ["ada", "grace", "joan", "mary"]


def test_an_unknown_start_is_told_before_the_block_runs(graph: og.Graph):
    with pytest.raises(NotFound), graph.branch("work", "nope"):
        raise AssertionError("the block ran")
    assert graph.list_branches() == ["main"]


# --- the handle -----------------------------------------------------------------------------------


def test_every_verb_of_the_handle_uses_its_branch(graph: og.Graph, tmp_path: Path):
    graph.create_branch("side")
    b = graph.on_branch("side")
    assert repr(b) == f"Graph({graph.uri!r} on 'side')"
    receipt = b.load(data='{"type": "Person", "data": {"name": "grace"}}', mode="append")
    assert receipt.branch == "side"
    assert b.snapshot().graph_branch == "side"
    assert b"grace" in b"".join(b.export())
    assert b.entity_at("node:Person", "grace") is not None
    assert graph.entity_at("node:Person", "grace") is None
    assert len(b.list_commits()) == len(graph.list_commits()) + 1
    assert len(list(b.entity_history("Person", "grace"))) == 1
    assert b.stats().to_dict() != graph.stats().to_dict()
    first = b.list_commits()[-1].graph_commit_id
    assert len(b.query(NAMES, snapshot=first)) == 0
    b.create_branch("below")
    assert names(graph, "below") == ["ada", "grace"]
    assert b.revert(b.list_commits()[0].graph_commit_id).commit is not None
    assert names(b) == ["ada"]
    assert names(b, "main") == ["ada"]


def test_an_unknown_branch_is_told_by_the_verbs(graph: og.Graph):
    with pytest.raises(NotFound, match="nope"):
        graph.on_branch("nope").query(NAMES)


def test_handles_share_what_is_open(graph: og.Graph):
    b = graph.on_branch("main")
    names(graph)
    assert b._opened is graph._opened


def test_the_actor_of_the_scope_writes_and_merges(graph: og.Graph):
    rules = ("read", "change", "branch_create", "branch_merge", "branch_delete")
    policed = og.open(graph.uri, policy=granting(*rules))
    with pytest.raises(PolicyDenied), policed.branch("work"):
        raise AssertionError("the block ran")
    with policed.branch("work", actor="act-ana") as b:
        assert b.mutate(add("grace")).actor_id == "act-ana"
    assert graph.list_commits()[0].actor_id == "act-ana"


# --- any graph ------------------------------------------------------------------------------------


class Recorder:
    """A graph that has nothing but the verbs a scope needs, and takes no actor."""

    def __init__(self, calls: list[object]) -> None:
        self.calls = calls

    def create_branch(self, name: str, from_: str) -> None:
        self.calls.append(("create", name, from_))

    def merge_branch(self, name: str, *, into: str, **rules: object) -> None:
        self.calls.append(("merge", name, into))
        raise MergeConflicts("no", conflicts=())

    def on_branch(self, name: str) -> Recorder:
        self.calls.append(("on", name))
        return self


def test_a_scope_needs_three_verbs_and_names_no_actor_unasked():
    calls: list[object] = []
    graph = Recorder(calls)
    task = BranchTask("w", "main", "main", "fail", None, "entity", True, False, None)
    scope = BranchScope(graph, task)
    with pytest.raises(MergeConflicts), scope as handle:
        assert handle is graph
    assert calls == [("create", "w", "main"), ("on", "w"), ("merge", "w", "main")]
