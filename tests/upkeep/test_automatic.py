"""Upkeep in the background of a handle: it helps, and is never in the way."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import omnigraph as og
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import InputError, StorageError
from omnigraph.graph import open_graph
from omnigraph.storage.indexes import indexes_of
from omnigraph.upkeep import AUTO_OPTIMIZE_EVERY, AUTO_OPTIMIZE_VARIABLE, automatic, commits_between
from omnigraph.upkeep.automatic import AutoOptimizer

SCHEMA = """
node Memo { code: String @key  body: String? @index  leaf: Vector(4)? @index }
node Label { name: String @key }
edge Marks: Label -> Memo
"""
ADD = """
query add($code: String) {
    insert Memo { code: $code, body: "one more thought", leaf: [1.0, 2.0, 3.0, 4.0] }
}
"""
LABEL = "query label($name: String) { insert Label { name: $name } }"
LONG = 60.0
"""Seconds after which something that should happen has not."""


@pytest.fixture
def graph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[og.Graph]:
    """A graph that is looked after as soon as its writer pauses, which is at once."""
    monkeypatch.setattr(automatic, "PAUSE_SECONDS", 0.0)
    og.init(tmp_path / "graph.omni", schema=SCHEMA)
    graph = og.open(tmp_path / "graph.omni", auto_optimize=4)
    yield graph
    graph.close()


def auto(graph: og.Graph) -> AutoOptimizer:
    assert graph._opened.auto_optimizer is not None
    return graph._opened.auto_optimizer


def add(graph: og.Graph, numbers: range) -> None:
    for number in numbers:
        graph.mutate(ADD, {"code": f"m{number}"})


def codes(graph: og.Graph) -> list[str]:
    rows = graph.query("query all { match { $m: Memo } return { $m.code } }").to_pylist()
    return sorted(row["m.code"] for row in rows)


def kinds(graph: og.Graph) -> list[str]:
    return [str(commit.kind) for commit in graph.list_commits()]


def gaps(graph: og.Graph) -> dict[str, int]:
    found = indexes_of(graph._opened.reader("main").handle("node:Memo"))
    return {str(index.spec): index.rows_uncovered for index in found}


def test_after_so_many_commits_rows_are_compact_and_indexed(graph: og.Graph) -> None:
    add(graph, range(3))
    assert auto(graph).wait(LONG)
    assert graph.auto_optimize is not None
    assert graph.auto_optimize.runs == 0
    assert "maintenance" not in kinds(graph)
    add(graph, range(3, 4))
    assert auto(graph).wait(LONG)
    assert (graph.auto_optimize.runs, graph.auto_optimize.commits) == (1, 1)
    assert kinds(graph).count("maintenance") == 1
    assert set(gaps(graph).values()) == {0}
    assert {"id (btree)", "body (inverted)", "leaf (vector)"} <= gaps(graph).keys()
    assert len(graph._opened.reader("main").handle("node:Memo").get_fragments()) == 1
    assert codes(graph) == [f"m{n}" for n in range(4)]


def test_loads_and_merges_count_too_and_a_run_without_work_publishes_nothing(
    graph: og.Graph,
) -> None:
    record = '{"type": "Label", "data": {"name": "a"}}'
    for _ in range(3):
        graph.load(data=record, mode="merge")
    graph.create_branch("side")
    graph.mutate(LABEL, {"name": "b"}, branch="side")
    assert auto(graph).wait(LONG)
    graph.merge_branch("side")
    graph.delete_branch("side")
    for _ in range(3):
        graph.mutate(LABEL, {"name": "b"})
    assert auto(graph).wait(LONG)
    assert graph.auto_optimize is not None
    assert graph.auto_optimize.runs == 2
    assert graph.auto_optimize.failures == 0


def test_it_is_off_unless_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "graph.omni"
    assert og.init(place, schema=SCHEMA).auto_optimize is None
    assert og.open(place).auto_optimize is None
    assert og.open(place, auto_optimize=False).auto_optimize is None
    assert open_graph(place, "read_only", auto_optimize=True).auto_optimize is None
    monkeypatch.setenv(AUTO_OPTIMIZE_VARIABLE, "on")
    found = og.open(place).auto_optimize
    assert found is not None
    assert found.every == AUTO_OPTIMIZE_EVERY
    assert found.to_dict()["every"] == AUTO_OPTIMIZE_EVERY
    assert og.open(place, auto_optimize=False).auto_optimize is None
    with pytest.raises(InputError, match="auto_optimize"):
        og.open(place, auto_optimize=-1)


def test_c_mnt_045_a_bad_number_of_commits_is_reported_once_and_the_default_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    for text, expected in [
        ("", 0),
        ("ON", AUTO_OPTIMIZE_EVERY),
        ("7", 7),
        ("0", 0),
        ("often", 0),
        ("often", 0),
    ]:
        assert commits_between(None, {AUTO_OPTIMIZE_VARIABLE: text}) == expected
    assert caplog.text.count("OMNIGRAPH_AUTO_OPTIMIZE is 'often'") == 1


@pytest.mark.parametrize(
    "point",
    [
        Failpoint.OPTIMIZE_BEFORE_COMPACT,
        Failpoint.OPTIMIZE_POST_PHASE_B_PRE_MANIFEST_COMMIT,
        Failpoint.RECOVERY_SIDECAR_WRITE,
    ],
)
def test_a_run_that_fails_is_told_and_fails_no_write(graph: og.Graph, point: Failpoint) -> None:
    def fail(_: Failpoint) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise StorageError("the disk is full")

    with armed({point: fail}):
        add(graph, range(4))
        assert auto(graph).wait(LONG)
        assert graph.auto_optimize is not None
        assert graph.auto_optimize.failures == 1
        assert "the disk is full" in str(graph.auto_optimize.last_error)
        add(graph, range(4, 5))
    assert auto(graph).wait(LONG)
    add(graph, range(5, 8))
    assert auto(graph).wait(LONG)
    assert graph.auto_optimize.runs == 1
    assert codes(graph) == [f"m{n}" for n in range(8)]
    assert graph._kernel.sidecars.names() == []
    assert graph.examine().is_healthy


def test_a_run_that_dies_between_two_tables_is_undone_before_a_write_meets_it(
    graph: og.Graph,
) -> None:
    def fail(_: Failpoint) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise StorageError("the disk is full")

    graph.mutate(LABEL, {"name": "a"})
    graph.mutate(LABEL, {"name": "b"})
    with armed({Failpoint.MUTATION_POST_TABLE_COMMIT: fail}):
        add(graph, range(2))
        assert auto(graph).wait(LONG)
        assert graph.auto_optimize is not None
        assert graph.auto_optimize.failures == 1
    assert graph._kernel.sidecars.names() == []
    add(graph, range(2, 4))
    assert codes(graph) == [f"m{n}" for n in range(4)]
    assert graph.examine().is_healthy


def test_a_process_without_room_for_a_thread_writes_on(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == "omnigraph-upkeep":
            raise RuntimeError("can't start new thread")
        start(thread)

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        add(graph, range(4))
    assert graph.auto_optimize is not None
    assert (graph.auto_optimize.runs, graph.auto_optimize.failures) == (0, 1)
    add(graph, range(4, 8))
    assert auto(graph).wait(LONG)
    assert graph.auto_optimize.runs == 1
    assert len(codes(graph)) == 8


def test_a_run_is_given_up_when_another_writer_commits_meanwhile(graph: og.Graph) -> None:
    other = og.open(graph.uri)
    waiting = [True]

    def overtake(_: Failpoint) -> None:
        if waiting and threading.current_thread() is not threading.main_thread():
            waiting.pop()
            other.mutate(ADD, {"code": "other"})

    with armed({Failpoint.OPTIMIZE_BEFORE_COMPACT: overtake}):
        add(graph, range(4))
        assert auto(graph).wait(LONG)
    assert graph.auto_optimize is not None
    assert (graph.auto_optimize.postponed, graph.auto_optimize.failures) == (1, 0)
    assert len(codes(graph)) == 5
    add(graph, range(4, 8))
    assert auto(graph).wait(LONG)
    assert graph.auto_optimize.runs == 1


def test_writers_at_work_lose_nothing_and_are_never_refused(graph: og.Graph) -> None:
    handles = [graph, og.open(graph.uri, auto_optimize=4), og.open(graph.uri)]
    failures: list[Exception] = []

    def write(handle: og.Graph, first: int) -> None:
        try:
            add(handle, range(first, first + 30))
        except Exception as error:
            failures.append(error)

    threads = [
        threading.Thread(target=write, args=(handle, at * 100)) for at, handle in enumerate(handles)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for handle in handles[:2]:
        assert auto(handle).wait(LONG)
        handle.close()
    assert not failures
    assert len(codes(graph)) == 90
    assert graph.examine().is_healthy


def test_it_ends_with_its_handle(graph: og.Graph, tmp_path: Path) -> None:
    other = og.open(graph.uri, auto_optimize=1)
    other.mutate(LABEL, {"name": "a"})
    thread = auto(other)._thread
    assert thread is not None
    del other
    gc.collect()
    thread.join(LONG)
    assert not thread.is_alive()


def test_a_closed_handle_writes_on_without_it(graph: og.Graph) -> None:
    graph.close()
    add(graph, range(8))
    assert graph.auto_optimize is not None
    assert graph.auto_optimize.runs == 0
    assert len(codes(graph)) == 8
