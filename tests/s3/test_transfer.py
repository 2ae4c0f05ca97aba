"""Push and pull between a clone on disk and a graph in an object store."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from omnigraph.effects.failpoints import VARIABLE
from omnigraph.errors import MergeConflicts
from omnigraph.graph import Graph, init, open_graph

SCHEMA = "node Memo { code: String @key  size: I64?  photo: Blob? }  edge Next: Memo -> Memo"
PUSH = (
    "import sys; from omnigraph.graph import open_graph; open_graph(sys.argv[1]).push(sys.argv[2])"
)


def change(graph: Graph, statements: str, branch: str = "main") -> None:
    graph.mutate(f"query q {{ {statements} }}", branch=branch)


def ids(graph: Graph, branch: str = "main") -> list[str]:
    return [each.graph_commit_id for each in graph.list_commits(branch)]


def assert_same(one: Graph, other: Graph, branch: str = "main") -> None:
    assert ids(one, branch)[0] == ids(other, branch)[0]
    assert b"".join(one.export(branch=branch)) == b"".join(other.export(branch=branch))


@pytest.fixture
def origin(uri: str) -> Graph:
    graph = init(f"{uri}/graph", SCHEMA)
    change(graph, 'insert Memo { code: "a", size: 1, photo: "base64:AAEC" }')
    change(graph, 'insert Memo { code: "b" } insert Next { from: "a", to: "b" }')
    return graph


@pytest.fixture
def clone(origin: Graph, tmp_path: Path) -> Graph:
    origin.clone(tmp_path / "clone.omni")
    return open_graph(tmp_path / "clone.omni")


def test_c_ver_012_a_laptop_pushes_and_pulls_through_a_bucket(origin: Graph, clone: Graph) -> None:
    change(clone, 'insert Memo { code: "c", photo: "base64:BBBB" }')
    change(clone, 'update Memo set { size: 3 } where code = "a"')
    pushed = clone.push(origin.uri)
    assert (pushed.outcome, len(pushed.commits)) == ("fast_forward", 2)
    assert ids(origin) == ids(clone)
    assert_same(origin, clone)
    assert clone.push(origin.uri).outcome == "already_up_to_date"
    # Both go on.
    change(origin, 'delete Memo where code = "c"')
    clone.create_branch("agent")
    change(clone, 'insert Memo { code: "d" }', "agent")
    change(clone, 'insert Memo { code: "e" }')
    assert clone.pull(origin.uri).outcome == "merged"
    assert clone.push(origin.uri).outcome == "fast_forward"
    assert_same(origin, clone)
    made = clone.push(origin.uri, branch="agent")
    assert (made.branch_created, made.outcome) == (True, "fast_forward")
    assert_same(origin, clone, "agent")
    # The same entity, differently.
    change(origin, 'update Memo set { size: 4 } where code = "a"')
    change(clone, 'update Memo set { size: 5 } where code = "a"')
    before = ids(origin), ids(clone)
    for verb in (clone.push, clone.pull):
        with pytest.raises(MergeConflicts):
            verb(origin.uri)
    assert (ids(origin), ids(clone)) == before
    assert clone.push(origin.uri, on_conflict="source").outcome == "merged"
    assert clone.pull(origin.uri).outcome == "fast_forward"
    assert_same(origin, clone)
    assert origin.scrub().is_clean


@pytest.mark.slow
def test_c_ver_012_a_push_that_was_killed_is_repeated(origin: Graph, clone: Graph) -> None:
    change(clone, 'insert Memo { code: "c" }')
    change(clone, 'update Memo set { size: 3 } where code = "a"')
    dying = subprocess.run(
        [sys.executable, "-c", PUSH, clone.uri, origin.uri],
        env={
            **os.environ,
            VARIABLE: "branch_merge.between_chunks=kill@2",
            "OMNIGRAPH_LEASE_TTL_MS": "700",
        },
        check=False,
    )
    assert dying.returncode == -signal.SIGKILL
    assert ids(open_graph(origin.uri, "read_only"))[0] == ids(clone)[1]
    assert clone.push(origin.uri).outcome in ("fast_forward", "already_up_to_date")
    assert_same(open_graph(origin.uri), clone)
    assert clone.push(origin.uri).commits == ()
