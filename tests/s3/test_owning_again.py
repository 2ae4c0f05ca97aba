"""The writer that has owned a branch last takes its lease by one write, beside all it reads."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from omnigraph.commit.kernel import Kernel
from omnigraph.commit.leases import GRAPH_SCOPE, WriteSettings, branch_scope
from omnigraph.effects.failpoints import armed
from omnigraph.effects.requests import measure
from omnigraph.effects.uri import Root
from omnigraph.errors import ConstraintViolation, OmnigraphError, RecoveryRequired, WriterBusy
from omnigraph.graph import Graph, init, open_graph
from tests.s3.test_kernel import names
from tests.s3.writer import INSERT

SCHEMA = "node Person { name: String @key  age: I32? }"
OWNED_HOPS = 6


@pytest.fixture
def graph(uri: str) -> Graph:
    graph = init(uri, SCHEMA)
    insert(graph, "first")
    return graph


def insert(graph: Graph, name: str, branch: str | None = None) -> None:
    graph.mutate(INSERT, {"name": name}, branch=branch)


def hops(work: Callable[[], object]) -> int:
    with measure() as io:
        work()
    return io.report().round_trips


def test_writers_that_take_turns_lose_nothing_and_do_not_believe_what_they_knew(
    graph: Graph, uri: str
) -> None:
    other = open_graph(uri)
    for n in range(3):
        insert(graph, f"a{n}")
        insert(other, f"b{n}")
    insert(graph, "last")
    assert names(graph) == ["a0", "a1", "a2", "b0", "b1", "b2", "first", "last"]
    assert len(graph.list_commits()) == 9
    assert hops(lambda: insert(graph, "again")) <= OWNED_HOPS


def test_a_key_that_is_there_is_replaced_and_no_row_is_there_twice(graph: Graph) -> None:
    add = "query q($n: String, $a: I32) { insert Person { name: $n, age: $a } }"
    for age in (1, 2):
        graph.mutate(add, {"n": "ana", "a": age})
    found = graph.query("query q { match { $p: Person } return { $p.name, $p.age } }").to_pylist()
    assert sorted(map(str, found)) == sorted(
        map(str, [{"p.name": "ana", "p.age": 2}, {"p.name": "first", "p.age": None}])
    )


def test_the_keys_of_files_that_this_process_wrote_or_read_are_not_read_again(
    graph: Graph, uri: str
) -> None:
    """Nor believed of others: a deleted row, and one of another process, are known."""
    other = open_graph(uri)
    insert(other, "theirs")
    for name in ("a", "b"):
        insert(graph, name)
    with measure() as io:
        insert(graph, "c")
    assert io.report().count("lance", "lookup") == 0
    graph.mutate('query q { delete Person where name = "a" }')
    for name in ("a", "b", "theirs"):
        insert(graph, name)
    assert names(graph) == ["a", "b", "c", "first", "theirs"]


def test_a_write_that_is_refused_gives_the_branch_back(graph: Graph, uri: str) -> None:
    with pytest.raises(OmnigraphError):
        graph.mutate('query q { insert Person { name: "x", age: 1 } insert Nobody { a: 1 } }')
    with pytest.raises(OmnigraphError):
        graph.mutate(INSERT, {"name": None})
    insert(open_graph(uri), "other")
    insert(graph, "next")
    assert names(graph) == ["first", "next", "other"]


def test_what_an_interrupted_write_of_this_process_left_is_settled_first(graph: Graph) -> None:
    with armed("mutation.post_finalize_pre_publisher=error*1"), pytest.raises(RecoveryRequired):
        insert(graph, "interrupted")
    insert(graph, "next")
    assert names(graph) == ["first", "interrupted", "next"]
    assert [row.recovery_kind for row in graph.list_recoveries()] == ["RolledForward"]


def test_a_sidecar_that_stays_behind_is_finished_and_nothing_is_done_twice(
    graph: Graph, uri: str
) -> None:
    with armed("recovery.sidecar_delete=error*1"):
        insert(graph, "published")
    insert(open_graph(uri), "next")
    assert names(graph) == ["first", "next", "published"]
    assert len(graph.list_commits()) == 4


def test_a_graph_wide_operation_is_waited_for(uri: str) -> None:
    init(uri, SCHEMA)
    settings = WriteSettings(ttl_ms=5_000, wait_ms=200)
    one, two = (Kernel.of(Root.parse(uri), settings) for _ in range(2))
    writer = Graph(two)
    insert(writer, "first")
    with one.leases.hold(GRAPH_SCOPE, "op"):
        with pytest.raises(WriterBusy):
            insert(writer, "early")
        # It has given the branch back, which the operation may wait for.
        with one.leases.hold(branch_scope("main"), "op"):
            pass
    insert(writer, "late")
    assert names(writer) == ["first", "late"]


def test_a_newer_schema_is_used_though_another_process_made_it(graph: Graph, uri: str) -> None:
    newer = SCHEMA + " node City { name: String @key }"
    open_graph(uri).apply_schema(newer)
    graph.mutate('query q { insert City { name: "Rome" } }')
    open_graph(uri).apply_schema(newer.replace("age: I32?", "age: I32?  mail: String?"))
    graph.mutate('query q { insert Person { name: "ana", mail: "a@b" } }')
    assert names(graph) == ["ana", "first"]


def test_threads_share_publishes_and_each_gets_its_own_answer(graph: Graph) -> None:
    unique = "node Person { name: String @key  age: I32?  mail: String? @unique }"
    graph.apply_schema(unique)
    insert(graph, "warm")
    refused: list[str] = []

    def write(worker: int) -> None:
        for n in range(4):
            name = f"w{worker}-{n}"
            mail = "shared" if n == 2 else name
            try:
                graph.mutate(
                    "query q($n: String, $m: String) { insert Person { name: $n, mail: $m } }",
                    {"n": name, "m": mail},
                )
            except ConstraintViolation:
                refused.append(name)

    threads = [threading.Thread(target=write, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everyone = {f"w{worker}-{n}" for worker in range(4) for n in range(4)}
    assert len(refused) == 3
    assert set(names(graph)) == everyone - set(refused) | {"first", "warm"}
    commits = graph.list_commits()
    assert len({commit.graph_commit_id for commit in commits}) == len(commits)
    assert graph.scrub().is_clean
    assert graph.examine().is_healthy
