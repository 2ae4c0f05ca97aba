"""Merge, diff and the recovery of a merge against the real S3 API."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from omnigraph.effects.failpoints import VARIABLE, armed
from omnigraph.effects.requests import measure
from omnigraph.errors import MergeConflicts, RecoveryRequired
from omnigraph.graph import Graph, init, open_graph
from omnigraph.storage import row_places

SCHEMA = """
node Person { name: String @key  age: I32?  photo: Blob? }
node City { name: String @key }
edge Lives: Person -> City { since: Date? }
"""
PEOPLE = """\
{"type": "City", "data": {"name": "Rome"}}
{"type": "Person", "data": {"name": "ana", "age": 30, "photo": "base64:AAEC"}}
{"type": "Person", "data": {"name": "ben"}}
{"type": "Person", "data": {"name": "cleo"}}
{"edge": "Lives", "from": "ana", "to": "Rome", "data": {"id": "home", "since": "2020-02-29"}}
"""
CHANGES = """\
{"type": "Person", "data": {"name": "ana", "age": 31, "photo": "base64:AAED"}}
{"type": "Person", "data": {"name": "dora", "photo": "base64:AAEC"}}
{"type": "City", "data": {"name": "Oslo"}}
{"edge": "Lives", "from": "dora", "to": "Oslo", "data": {"id": "away"}}
"""
AGE = "query q($n: String, $a: I32) { update Person set { age: $a } where name = $n }"


@pytest.fixture
def graph(uri: str) -> Graph:
    """A graph whose branch `review` changed every type, main having moved as well."""
    graph = init(uri, SCHEMA)
    graph.load(mode="append", data=PEOPLE)
    graph.create_branch("review")
    graph.load(mode="merge", data=CHANGES, branch="review")
    graph.mutate('query q { delete Person where name = "ben" }', branch="review")
    graph.mutate(AGE, {"n": "cleo", "a": 9})
    return graph


def exported(graph: Graph, branch: str = "main") -> bytes:
    return b"".join(graph.export(branch=branch))


def test_a_diff_and_a_merge_are_what_they_are_on_disk(graph: Graph) -> None:
    diff = graph.diff("main", "review")
    assert [(c.op, c.type_name, c.id) for c in diff.changes(images=True)] == [
        ("insert", "City", "Oslo"),
        ("update", "Person", "ana"),
        ("delete", "Person", "ben"),
        ("insert", "Person", "dora"),
        ("insert", "Lives", "away"),
    ]
    plan = graph.plan_merge("review")
    counts = {t.type_name: (t.inserted, t.updated, t.deleted, t.is_adopted) for t in plan.types}
    assert counts == {
        "Person": (1, 1, 1, False),
        "City": (1, 0, 0, True),
        "Lives": (1, 0, 0, True),
    }
    receipt = graph.merge_branch("review", delete_branch=True)
    assert (receipt.outcome, receipt.branch_deleted) == ("merged", True)
    merged = exported(open_graph(graph.uri))
    assert b"base64:AAED" in merged and b"ben" not in merged and b'"age":9' in merged
    assert receipt.commit is not None and receipt.commit.parent_commit_id is not None
    assert len(graph.diff(receipt.commit.parent_commit_id, "main")) == 5


def test_the_store_copies_whole_fragments_and_the_source_can_go(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_places, "WHOLE_ROWS_MIN", 1)
    with measure() as storage:
        receipt = graph.merge_branch("review", delete_branch=True)
    # A city and an edge; persons have blobs.
    assert storage.report().counts["object", "copy"] == 2
    assert receipt.branch_deleted
    graph.cleanup(keep=1, confirm=True)
    merged = exported(open_graph(graph.uri))
    assert b"Oslo" in merged and b'"away"' in merged and b"base64:AAED" in merged


def test_a_conflict_is_told_and_a_winner_merges(graph: Graph) -> None:
    graph.mutate(AGE, {"n": "ana", "a": 99})
    before = exported(graph)
    with pytest.raises(MergeConflicts) as refused:
        graph.merge_branch("review")
    (found,) = refused.value.details["merge_conflicts"]
    ages = [found[side]["properties"]["age"] for side in ("base", "source", "target")]
    assert (found["kind"], ages) == ("divergent_update", [30, 31, 99])
    assert exported(graph) == before
    assert graph.merge_branch("review", on_conflict="target").outcome == "merged"
    assert b'"age":99' in exported(graph)


@pytest.mark.parametrize(
    ("where", "is_merged"),
    [
        ("branch_merge.post_sidecar_pre_fork", False),
        # Tables do not wait for each other on a store: the others are committed all the same.
        ("branch_merge.between_chunks", True),
        ("branch_merge.post_phase_b_pre_manifest_commit", True),
        ("graph_publish.after_manifest_commit", True),
    ],
)
def test_an_interrupted_merge_is_finished_or_undone_at_the_next_open(
    graph: Graph, where: str, is_merged: bool
) -> None:
    before = exported(graph)
    try:
        with armed(f"{where}=error*1"):
            graph.merge_branch("review")
    except RecoveryRequired:
        pass
    reopened = open_graph(graph.uri)
    if not is_merged:
        assert exported(reopened) == before
        assert reopened.merge_branch("review").outcome == "merged"
    assert reopened.merge_branch("review").outcome == "already_up_to_date"
    assert [c.kind for c in reopened.list_commits()].count("merge") == 1
    assert b"dora" in exported(reopened) and b"ben" not in exported(reopened)


@pytest.mark.parametrize(
    ("where", "is_merged"),
    [
        ("branch_merge.post_sidecar_pre_fork", False),
        ("branch_merge.post_phase_b_pre_manifest_commit", True),
    ],
)
def test_a_merge_whose_process_was_killed_is_settled_after_its_ttl(
    graph: Graph, where: str, is_merged: bool
) -> None:
    merge = "import sys, omnigraph as og; og.open(sys.argv[1]).merge_branch('review')"
    killed = subprocess.run(
        [sys.executable, "-c", merge, graph.uri],
        env={**os.environ, VARIABLE: f"{where}=kill", "OMNIGRAPH_LEASE_TTL_MS": "700"},
        timeout=60,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    # Whoever comes next waits for the dead owner, takes over, and finishes or undoes its merge.
    if not is_merged:
        while (settled := [each.outcome for each in graph.recover()]) == ["live"]:
            time.sleep(0.1)
        assert settled == ["rolled_back"]
    graph.mutate(AGE, {"n": "cleo", "a": 10})
    outcome = graph.merge_branch("review").outcome
    assert outcome == ("already_up_to_date" if is_merged else "merged")
    assert [c.kind for c in graph.list_commits()].count("merge") == 1
    assert b"dora" in exported(graph) and b'"age":10' in exported(graph)


def test_a_branch_keeps_its_schema_and_is_brought_forward_in_an_object_store(uri: str) -> None:
    graph = init(uri, "node Bed { name: String @key  area: I32? }")
    graph.create_branch("work")
    graph.mutate('query q { insert Bed { name: "roses", area: 4 } }', branch="work")
    wider = 'size: I64? @rename_from("area")  level: I32 @default(1)'
    desired = f"node Bed {{ name: String @key  {wider} }}"
    graph.apply_schema(desired)
    graph.apply_schema(f"{desired} node Path {{ name: String @key }}")
    graph.apply_schema(f"{desired} node Path {{ name: String @key  steps: I32? }}")
    other = open_graph(uri)
    areas = "query q { match { $b: Bed } return { $b.area as a } }"
    assert other.query(areas, branch="work").to_pylist() == [{"a": 4}]
    with armed("schema_rebase.post_sidecar_pre_fork=error*1"), pytest.raises(RecoveryRequired):
        other.rebase_schema("work")
    again = open_graph(uri)
    assert again.query(areas, branch="work").to_pylist() == [{"a": 4}]
    assert again.rebase_schema("work").applied
    again.mutate('query q { insert Path { name: "long", steps: 3 } }', branch="work")
    again.merge_branch("work")
    levels = "query q { match { $b: Bed } return { $b.size as s, $b.level as l } }"
    assert graph.query(levels).to_pylist() == [{"s": 4, "l": 1}]
