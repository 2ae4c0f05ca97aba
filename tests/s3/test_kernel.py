"""The kernel against the real S3 API: the same verbs, and owners that only time can tell dead."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping

import orjson
import pytest

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import GRAPH_SCOPE, WriteSettings, branch_scope
from omnigraph.effects.failpoints import VARIABLE, armed
from omnigraph.effects.uri import Root
from omnigraph.errors import (
    AlreadyInitialized,
    InitializationClaimed,
    NotFound,
    RecoveryRequired,
    WriterBusy,
)
from omnigraph.graph import Graph, init, open_graph
from tests.s3.writer import INSERT

SCHEMA = """
node Person { name: String @key  age: I32?  photo: Blob? }
node City { name: String @key }
edge Lives: Person -> City { since: Date? }
"""
PEOPLE = """\
{"type": "City", "data": {"name": "Rome"}}
{"type": "Person", "data": {"name": "ana", "age": 30, "photo": "base64:AAEC"}}
{"type": "Person", "data": {"name": "ben"}}
{"edge": "Lives", "from": "ana", "to": "Rome", "data": {"since": "2020-02-29"}}
"""
SHORT_TTL = "700"


def exported(graph: Graph, branch: str | None = None) -> bytes:
    return b"".join(graph.export(branch=branch))


def names(graph: Graph, branch: str | None = None) -> list[str]:
    lines = b"".join(graph.export(branch=branch, types=["Person"])).splitlines()
    return sorted(orjson.loads(line)["data"]["name"] for line in lines)


def start_writer(
    uri: str, name: str, count: int, settings: Mapping[str, str] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.s3.writer", uri, name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **(settings or {})},
    )


def test_a_graph_lives_in_an_object_store(uri: str):
    graph = init(uri, SCHEMA, actor="ana")
    loaded = graph.load(mode="append", data=PEOPLE)
    assert loaded.commit is not None
    written = graph.mutate(INSERT, {"name": "cleo"}, actor="ana")
    assert written.commit is not None and written.commit.actor_id == "ana"
    graph.mutate('query q { update Person set { age: 31 } where name = "ana" }')
    graph.mutate('query q { delete Person where name = "ben" }')
    assert names(graph) == ["ana", "cleo"]

    reopened = open_graph(uri)
    assert exported(reopened) == exported(graph)
    assert [commit.graph_commit_id for commit in reopened.list_commits()] == [
        commit.graph_commit_id for commit in graph.list_commits()
    ]
    with pytest.raises(AlreadyInitialized):
        init(uri, SCHEMA)
    with pytest.raises(NotFound):
        open_graph(f"{uri}-elsewhere")


def test_an_export_loads_into_another_graph_byte_for_byte(uri: str):
    graph = init(uri, SCHEMA)
    graph.load(mode="append", data=PEOPLE)
    copy = init(f"{uri}-copy", SCHEMA)
    copy.load(mode="overwrite", data=exported(graph))
    assert exported(copy) == exported(graph)


def test_a_branch_is_created_written_and_deleted(uri: str):
    graph = init(uri, SCHEMA)
    graph.load(mode="append", data=PEOPLE)
    graph.create_branch("review")
    graph.mutate(INSERT, {"name": "only here"}, branch="review")
    graph.mutate(INSERT, {"name": "and here"}, branch="review")
    assert names(graph, "review") == ["ana", "and here", "ben", "only here"]
    assert names(graph) == ["ana", "ben"]
    assert open_graph(uri).list_branches() == ["main", "review"]
    graph.delete_branch("review")
    assert graph.list_branches() == ["main"]
    with pytest.raises(NotFound):
        names(open_graph(uri), "review")


@pytest.mark.parametrize(
    ("where", "shown"),
    [
        ("mutation.post_finalize_pre_publisher", ["ana", "ben", "lost"]),
        # Tables do not wait for each other on a store: the second is committed all the same.
        ("mutation.post_table_commit", ["ana", "ben", "lost"]),
        ("mutation.post_sidecar_pre_fork", ["ana", "ben"]),
        ("graph_publish.after_manifest_commit", ["ana", "ben", "lost"]),
    ],
)
def test_an_interrupted_write_is_finished_or_undone_at_the_next_open(
    uri: str, where: str, shown: list[str]
):
    graph = init(uri, SCHEMA)
    graph.load(mode="append", data=PEOPLE)
    both = 'query q { insert Person { name: "lost" } insert City { name: "lost" } }'
    with armed(f"{where}=error*1"):
        try:
            graph.mutate(both)
        except RecoveryRequired:
            assert where != "graph_publish.after_manifest_commit"
    recovered = open_graph(uri)
    assert names(recovered) == shown
    recovered.mutate(INSERT, {"name": "next"})
    assert names(open_graph(uri)) == sorted([*shown, "next"])


def test_a_live_owner_is_waited_for_and_named(uri: str):
    init(uri, SCHEMA)
    settings = WriteSettings(ttl_ms=5_000, wait_ms=200)
    one, two = (Kernel.of(Root.parse(uri), settings) for _ in range(2))
    with one.leases.hold(branch_scope("main"), "op"):
        writer = Graph(two)
        with pytest.raises(WriterBusy) as busy:
            writer.mutate(INSERT, {"name": "early"})
    assert busy.value.details["scope"] == branch_scope("main")
    writer.mutate(INSERT, {"name": "late"})
    assert names(open_graph(uri)) == ["late"]


def test_c_wrt_044_a_killed_remote_owner_is_taken_over_after_its_ttl(uri: str):
    graph = init(uri, SCHEMA)
    dying = start_writer(
        uri,
        "dead",
        1,
        {VARIABLE: "mutation.post_table_commit=kill", "OMNIGRAPH_LEASE_TTL_MS": SHORT_TTL},
    )
    assert dying.communicate(timeout=60)[0] == ""
    assert dying.returncode == -signal.SIGKILL

    began = time.monotonic()
    graph.mutate(INSERT, {"name": "heir"})
    assert time.monotonic() - began > int(SHORT_TTL) / 1_000
    # All it had planned was committed, so the heir finished it first.
    assert names(open_graph(uri)) == ["dead-0", "heir"]
    assert len(open_graph(uri).list_recoveries()) == 1


def test_an_init_whose_predecessor_died_takes_over_after_its_ttl(uri: str):
    dying = subprocess.Popen(
        [sys.executable, "-c", f"from omnigraph.graph import init; init({uri!r}, {SCHEMA!r})"],
        env={
            **os.environ,
            VARIABLE: "init.after_schema_contract_written=kill",
            "OMNIGRAPH_LEASE_TTL_MS": SHORT_TTL,
        },
    )
    assert dying.wait(timeout=60) == -signal.SIGKILL
    began = time.monotonic()
    graph = init(uri, SCHEMA, actor="heir")
    assert time.monotonic() - began > int(SHORT_TTL) / 1_000
    graph.mutate(INSERT, {"name": "ana"})
    assert names(open_graph(uri)) == ["ana"]
    assert graph.list_commits()[-1].actor_id == "heir"


def test_c_sto_044_an_init_that_shows_signs_of_life_is_left_alone(uri: str):
    running = Kernel.of(Root.parse(uri), WriteSettings(ttl_ms=600, wait_ms=600))
    with running.leases.hold(GRAPH_SCOPE, "init"), pytest.raises(InitializationClaimed) as refused:
        init(uri, SCHEMA)
    assert "wait" in (refused.value.hint or "")
    init(uri, SCHEMA)
    assert names(open_graph(uri)) == []


def test_c_wrt_040_two_processes_insert_at_once_and_nothing_acknowledged_is_lost(uri: str):
    init(uri, SCHEMA)
    writers = [start_writer(uri, name, 6) for name in ("left", "right")]
    acknowledged = [
        line for writer in writers for line in writer.communicate(timeout=120)[0].splitlines()
    ]
    assert [writer.returncode for writer in writers] == [0, 0]
    graph = open_graph(uri)
    assert names(graph) == sorted(acknowledged)
    assert len(acknowledged) == 12
    commits = [commit for commit in graph.list_commits() if commit.actor_id is not None]
    assert [commit.actor_id for commit in commits].count("left") == 6
