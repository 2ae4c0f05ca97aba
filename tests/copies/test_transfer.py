"""Push and pull: the commits of a branch between a graph and its clone, by their ids."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from omnigraph.branching.merge import carry_out
from omnigraph.effects.failpoints import Failpoint
from omnigraph.errors import (
    Conflict,
    InputError,
    MergeConflicts,
    NotFound,
)
from omnigraph.graph import Graph, init, open_graph
from tests.crash import processes

SCHEMA = """
node Person { name: String @key  age: I64? @index  photo: Blob? }
node City { name: String @key }
edge Knows: Person -> Person { since: I64? }
"""
ALL = "query q { match { $p: Person } return { $p.name, $p.age } order { $p.name } }"


def change(graph: Graph, statements: str, branch: str = "main", **more: Any) -> str:
    commit = graph.mutate(f"query q {{ {statements} }}", branch=branch, **more).commit
    assert commit is not None
    return commit.graph_commit_id


def insert(graph: Graph, name: str, branch: str = "main") -> str:
    return change(graph, f'insert Person {{ name: "{name}", age: {len(name)} }}', branch)


def ids(graph: Graph, branch: str = "main") -> list[str]:
    return [each.graph_commit_id for each in graph.list_commits(branch)]


def content(graph: Graph, branch: str = "main") -> bytes:
    return b"".join(graph.export(branch=branch))


def assert_same(one: Graph, other: Graph, branch: str = "main") -> None:
    assert ids(one, branch)[0] == ids(other, branch)[0]
    assert content(one, branch) == content(other, branch)
    assert one.scrub().is_clean
    assert other.scrub().is_clean


@pytest.fixture
def origin(tmp_path: Path) -> Graph:
    graph = init(tmp_path / "origin.omni", SCHEMA)
    change(
        graph,
        'insert Person { name: "ada", age: 1, photo: "base64:AAEC" } '
        'insert Person { name: "bob", age: 2 } '
        'insert Knows { from: "ada", to: "bob", since: 1 }',
    )
    return graph


@pytest.fixture
def clone(origin: Graph, tmp_path: Path) -> Graph:
    origin.clone(tmp_path / "clone.omni")
    return open_graph(tmp_path / "clone.omni")


def test_c_ver_012_a_fast_forward_brings_each_commit_with_its_id(
    origin: Graph, clone: Graph
) -> None:
    first = change(
        clone,
        'insert Person { name: "cyd", photo: "base64:BBBB" } '
        'insert Knows { from: "cyd", to: "ada" }',
        actor="agent",
        message="a friend",
    )
    change(clone, 'update Person set { age: 30 } where name = "ada"', operation_id="key-1")
    change(clone, 'delete Person where name = "bob"')
    clone.ensure_indices()
    receipt = clone.push(origin.uri)
    assert receipt.outcome == "fast_forward"
    assert list(receipt.commits) == ids(clone)[3::-1]
    assert ids(origin) == ids(clone)
    assert_same(origin, clone)
    # Each of them is a state that can be read, and says who made it, when and why.
    for commit in clone.list_commits():
        there, here = (
            each.query(ALL, snapshot=commit.graph_commit_id).to_pylist() for each in (origin, clone)
        )
        assert there == here
        shown = origin.show_commit(commit.graph_commit_id)
        assert (shown.kind, shown.actor_id, shown.message) == (
            commit.kind,
            commit.actor_id,
            commit.message,
        )
        assert shown.created_at == commit.created_at
    changes = [list(each.commit_changes(first)) for each in (origin, clone)]
    assert changes[0] == changes[1]
    assert len(changes[0]) == 2
    repeated = clone.push(origin.uri)
    assert (repeated.outcome, repeated.commits) == ("already_up_to_date", ())
    assert clone.pull(origin.uri).outcome == "already_up_to_date"
    # A key that was used on one side is known on the other one.
    before = ids(origin)
    origin.mutate(
        'query q { update Person set { age: 30 } where name = "ada" }', operation_id="key-1"
    )
    assert ids(origin) == before
    # And back: what the origin does is pulled.
    insert(origin, "dan")
    assert clone.pull(origin.uri).outcome == "fast_forward"
    assert ids(origin) == ids(clone)


@pytest.mark.parametrize("verb", ["push", "pull"])
def test_c_ver_012_diverged_graphs_are_merged_and_then_equal(
    origin: Graph, clone: Graph, verb: str
) -> None:
    change(origin, 'update Person set { age: 20 } where name = "bob"')
    change(origin, 'insert City { name: "Rome" } insert Person { name: "eve" }')
    change(clone, "delete Knows where since = 1")
    change(clone, 'update Person set { age: 9 } where name = "ada" insert Person { name: "fay" }')
    ours, theirs = ids(origin)[0], ids(clone)[0]
    receipt = clone.push(origin.uri) if verb == "push" else clone.pull(origin.uri, actor="ana")
    merged, other = (origin, clone) if verb == "push" else (clone, origin)
    assert receipt.outcome == "merged"
    head = merged.list_commits()[0]
    assert head.graph_commit_id == receipt.head == receipt.commits[0]
    assert {head.parent_commit_id, head.merged_parent_commit_id} == {ours, theirs}
    assert [row["p.age"] for row in merged.query(ALL).to_pylist()] == [9, 20, None, None]
    # The other way it is a fast-forward: the same commit, with its parents the other way round.
    back = clone.pull(origin.uri) if verb == "push" else clone.push(origin.uri)
    assert (back.outcome, back.commits) == ("fast_forward", (head.graph_commit_id,))
    assert other.list_commits()[0].parent_commit_id == head.merged_parent_commit_id
    assert other.list_commits()[0].merged_parent_commit_id == head.parent_commit_id
    assert_same(origin, clone)
    for again in (clone.push(origin.uri), clone.pull(origin.uri)):
        assert again.outcome == "already_up_to_date"
    # They go on from there, each in turn, and apart.
    insert(clone, "gus")
    insert(clone, "hal")
    assert len(clone.push(origin.uri).commits) == 2
    change(origin, 'update Person set { age: 21 } where name = "bob"')
    change(clone, 'delete Person where name = "gus"')
    assert clone.pull(origin.uri).outcome == "merged"
    assert clone.push(origin.uri).outcome == "fast_forward"
    assert_same(origin, clone)


def test_c_ver_012_a_conflict_is_typed_and_changes_nothing(origin: Graph, clone: Graph) -> None:
    change(origin, 'update Person set { age: 20 } where name = "bob"')
    change(clone, 'update Person set { age: 30 } where name = "bob"')
    before = ids(origin), ids(clone)
    with pytest.raises(MergeConflicts) as refused:
        clone.push(origin.uri)
    assert "bob" in str(refused.value.details)
    with pytest.raises(MergeConflicts):
        clone.pull(origin.uri)
    assert (ids(origin), ids(clone)) == before
    # A node that one side has deleted and the other uses.
    assert clone.pull(origin.uri, on_conflict="source").outcome == "merged"
    assert clone.push(origin.uri).outcome == "fast_forward"
    assert_same(origin, clone)
    assert origin.query(ALL).to_pylist()[1] == {"p.name": "bob", "p.age": 20}
    change(origin, 'delete Person where name = "bob"')
    change(clone, 'insert Knows { from: "bob", to: "ada" }')
    with pytest.raises(MergeConflicts):
        clone.push(origin.uri)


def test_c_ver_012_a_branch_is_made_where_it_began(origin: Graph, clone: Graph) -> None:
    clone.create_branch("agent/1")
    own = [insert(clone, name, "agent/1") for name in ("cyd", "dan")]
    insert(origin, "eve")
    receipt = clone.push(origin.uri, branch="agent/1")
    assert (receipt.outcome, receipt.branch_created, receipt.commits) == (
        "fast_forward",
        True,
        tuple(own),
    )
    assert_same(origin, clone, "agent/1")
    assert ids(origin, "agent/1") == ids(clone, "agent/1")
    # Merged there, it comes back with main.
    origin.merge_branch("agent/1")
    clone.on_branch("main").pull(origin.uri)
    assert_same(origin, clone)
    with pytest.raises(NotFound):
        clone.pull(origin.uri, branch="nowhere")
    with pytest.raises(NotFound):
        clone.push(origin.uri, branch="nowhere")


def test_a_branch_that_was_merged_on_one_side_is_no_conflict(origin: Graph, clone: Graph) -> None:
    clone.create_branch("work")
    insert(clone, "cyd", "work")
    change(clone, 'update Person set { age: 7 } where name = "ada"')
    clone.merge_branch("work", delete_branch=True)
    assert clone.push(origin.uri).outcome == "fast_forward"
    assert ids(origin) == ids(clone)
    assert_same(origin, clone)


STEPS = (
    Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE,
    Failpoint.RECOVERY_SIDECAR_WRITE,
    Failpoint.BRANCH_MERGE_POST_SIDECAR_PRE_FORK,
    Failpoint.BRANCH_MERGE_BETWEEN_CHUNKS,
    Failpoint.BRANCH_MERGE_POST_PHASE_B_PRE_MANIFEST_COMMIT,
    Failpoint.GRAPH_PUBLISH_AFTER_MANIFEST_COMMIT,
    Failpoint.RECOVERY_SIDECAR_DELETE,
)
"""Every step that one commit of a transfer passes."""


@pytest.mark.parametrize("step", STEPS)
def test_c_ver_012_killed_at_a_step_and_repeated_it_ends_the_same(
    origin: Graph, clone: Graph, step: Failpoint
) -> None:
    change(clone, 'insert City { name: "Rome" } insert Person { name: "cyd" }')
    change(clone, 'update Person set { age: 5 } where name = "ada" insert City { name: "Bonn" }')
    processes.killed("push", Path(origin.uri), f"{step}=kill@2")
    # What is there is one of the states that the clone had.
    shown = open_graph(origin.uri, "read_only")
    assert ids(shown)[0] in ids(clone)
    again = clone.push(origin.uri)
    assert again.outcome in ("fast_forward", "already_up_to_date")
    assert ids(open_graph(origin.uri)) == ids(clone)
    assert_same(open_graph(origin.uri), clone)
    assert clone.push(origin.uri).commits == ()


def test_another_schema_is_told_before_anything_is_done(origin: Graph, clone: Graph) -> None:
    newer = SCHEMA.replace(
        "node City { name: String @key }", "node City { name: String @key  area: F64? }"
    )
    insert(clone, "cyd")
    clone.apply_schema(newer)
    change(clone, 'insert City { name: "Rome", area: 1285.0 }')
    before = ids(origin)
    with pytest.raises(Conflict) as refused:
        clone.push(origin.uri)
    assert "schema apply" in (refused.value.hint or "")
    assert ids(origin) == before
    origin.apply_schema(newer)
    assert clone.push(origin.uri).outcome == "merged"
    assert clone.pull(origin.uri).outcome == "fast_forward"
    assert_same(origin, clone)


def test_commits_that_were_cleaned_up_are_brought_as_one(origin: Graph, clone: Graph) -> None:
    for name in ("cyd", "dan", "eve"):
        insert(clone, name)
    change(clone, 'delete Person where name = "bob"')
    clone.optimize()
    clone.cleanup(keep=1, confirm=True)
    assert clone.push(origin.uri).outcome == "fast_forward"
    assert_same(origin, clone)


def test_graphs_that_never_were_one_are_refused(origin: Graph, tmp_path: Path) -> None:
    other = init(tmp_path / "other.omni", SCHEMA)
    with pytest.raises(Conflict):
        other.push(origin.uri)
    with pytest.raises(InputError):
        origin.push(origin.uri)
    with pytest.raises(NotFound):
        origin.pull(tmp_path / "missing.omni")


def test_another_writer_at_the_destination_is_merged_with(
    origin: Graph, clone: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    insert(clone, "cyd")
    made = carry_out
    others = iter(["eve"])

    def beside(*given: Any) -> Any:
        for name in others:
            insert(open_graph(origin.uri), name)
        return made(*given)

    monkeypatch.setattr("omnigraph.copies.transfer.carry_out", beside)
    assert clone.push(origin.uri).outcome == "merged"
    assert {"cyd", "eve"} <= {row["p.name"] for row in origin.query(ALL).to_pylist()}
