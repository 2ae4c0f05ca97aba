"""Many threads ask one handle while others write: every answer is of one snapshot.

The graph holds money: accounts of two types, and an edge for every transfer. A transfer updates one
account of each type and adds an edge, all in one commit, so that at every commit the sum is the
same and the number of edges says how much has been moved.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.engines.local.tables import Mode
from omnigraph.errors import Conflict
from tests.engines.local.graphs import with_engine

SCHEMA = """
node Purse { name: String @key  coins: I32 }
node Chest { name: String @key  coins: I32 }
edge Moved: Purse -> Chest { coins: I32 }
"""
PURSES, EACH = 4, 100
TOTAL = 2 * PURSES * EACH
READERS, TRANSFERS = 8, 4

TRANSFER = """query t($n: String, $p: I32, $c: I32) {
    update Purse set { coins: $p } where name = $n
    update Chest set { coins: $c } where name = $n
    insert Moved { from: $n, to: $n, coins: 1 }
}"""
PURSE_SUM = "query q() { match { $p: Purse } return { sum($p.coins) as s, count(*) as n } }"
BALANCE = """query q() {
    match { $p: Purse  $c: Chest  $c.name = $p.name }
    return { sum($p.coins) as purses, sum($c.coins) as chests, count(*) as n }
}"""
LEDGER = """query q() {
    match { $p: Purse optional { $p $m:moved $c } }
    return { $p.name as name, $p.coins as coins, count($m.coins) as moved }
    order { name }
}"""
HOPS = "query q() { match { $p: Purse $p $m:moved $c } return { count(*) as n } }"

# Makes the transfers it is told, line by line, and answers with their commits.
OTHER_PROCESS = """
import json, sys
import omnigraph as og
from tests.engines.local.test_concurrency import transfer
graph = og.open(sys.argv[1])
print("ready", flush=True)
for line in sys.stdin:
    print(transfer(graph, *json.loads(line)), flush=True)
"""


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA)
    found = [
        {"type": kind, "data": {"name": f"n{at}", "coins": EACH}}
        for kind in ("Purse", "Chest")
        for at in range(PURSES)
    ]
    graph.load(data="\n".join(map(json.dumps, found)), mode="append")
    return graph


def transfer(graph: og.Graph, name: str, moved: int) -> str:
    """The transfer after which ``moved`` coins have gone from a purse to its chest."""
    while True:
        try:
            receipt = graph.mutate(TRANSFER, {"n": name, "p": EACH - moved, "c": EACH + moved})
        except Conflict:
            continue  # somebody else was first: an update is never repeated on its own
        assert receipt.commit is not None
        return receipt.commit.graph_commit_id


class OtherProcess:
    """Another process with the graph open."""

    def __init__(self, graph: og.Graph) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", OTHER_PROCESS, graph.uri],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[3],
        )
        assert self._hear() == "ready"

    def transfer(self, name: str, moved: int) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, moved]) + "\n")
        self._process.stdin.flush()
        return self._hear()

    def close(self) -> None:
        self._process.communicate()
        assert self._process.returncode == 0

    def _hear(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def assert_is_of_one_snapshot(text: str, found: list[dict[str, Any]]) -> None:
    """The rows agree with each other as they do at every commit."""
    match text:
        case _ if text is PURSE_SUM:
            (row,) = found
            assert row["n"] == PURSES
        case _ if text is BALANCE:
            (row,) = found
            assert row["n"] == PURSES
            assert row["purses"] + row["chests"] == TOTAL
        case _ if text is LEDGER:
            # Every coin that left a purse is an edge of it.
            assert [row["name"] for row in found] == [f"n{at}" for at in range(PURSES)]
            assert [EACH - row["coins"] for row in found] == [row["moved"] for row in found]


def in_threads(*work: Callable[[], None]) -> None:
    """Run all at once; raises what the first of them raised."""
    wrong: list[BaseException] = []

    def run(one: Callable[[], None]) -> None:
        try:
            one()
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=run, args=(one,)) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if wrong:
        raise wrong[0]


@pytest.mark.parametrize(
    ("mode", "memory_limit"),
    [("auto", None), ("indexed", None), ("csr", 2_000)],
    ids=["auto", "indexed", "little memory"],
)
def test_every_answer_is_of_exactly_one_snapshot(
    graph: og.Graph, mode: Mode, memory_limit: int | None
):
    handle, _ = with_engine(graph, mode, memory_limit)
    other = OtherProcess(graph)
    writers_left = [2]
    commits: list[str] = []
    answers: list[tuple[str, str, list[dict[str, Any]]]] = []

    def write(work: Callable[[str, int], str], names: list[str]) -> None:
        try:
            for moved in range(1, TRANSFERS // 2 + 1):
                commits.extend(work(name, moved) for name in names)
        finally:
            writers_left[0] -= 1

    def read(number: int) -> None:
        seen = 0
        at = number
        while writers_left[0] > 0 or at < number + 4:
            text = (LEDGER, BALANCE, HOPS, PURSE_SUM)[at % 4]
            result = handle.query(text)
            found = result.to_pylist()
            assert_is_of_one_snapshot(text, found)
            assert result.graph_commit_id is not None
            answers.append((text, result.graph_commit_id, found))
            if text is HOPS:
                assert found[0]["n"] >= seen, "an answer is older than the one before it"
                seen = found[0]["n"]
            at += 1

    in_threads(
        lambda: write(lambda name, moved: transfer(graph, name, moved), ["n0", "n1"]),
        lambda: write(other.transfer, ["n2", "n3"]),
        *(lambda number=number: read(number) for number in range(READERS)),
    )
    other.close()
    assert len(set(commits)) == 2 * TRANSFERS
    # C-QRY-062: the rows are those of the commit the result names.
    cold, _ = with_engine(graph, "csr")
    known: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for text, commit, found in answers:
        if (text, commit) not in known:
            known[text, commit] = cold.query(text, snapshot=commit).to_pylist()
        assert found == known[text, commit]
    assert handle.query(HOPS).to_pylist() == [{"n": 2 * TRANSFERS}]


def test_c_qry_062_a_warm_handle_sees_the_commits_of_other_processes(graph: og.Graph):
    other = OtherProcess(graph)
    for moved in range(1, 4):
        assert graph.query(LEDGER).to_pylist()[0]["moved"] == moved - 1
        commit = other.transfer("n0", moved)
        result = graph.query(LEDGER)
        assert result.graph_commit_id == commit
        assert result.to_pylist()[0] == {"name": "n0", "coins": EACH - moved, "moved": moved}
    other.close()


def test_a_reader_does_not_wait_for_a_writer_and_does_not_hold_one_up(graph: og.Graph):
    """A write stands still just before it becomes visible; queries answer with what was there."""
    before = graph.query(LEDGER)
    arrived, go_on = threading.Event(), threading.Event()

    def stand_still(_: object) -> None:
        arrived.set()
        assert go_on.wait(60)

    def write() -> None:
        with armed({Failpoint.MUTATION_POST_FINALIZE_PRE_PUBLISHER: stand_still}):
            transfer(graph, "n0", 1)

    writer = threading.Thread(target=write)
    writer.start()
    assert arrived.wait(60)
    during = graph.query(LEDGER)
    assert during.to_pylist() == before.to_pylist()
    assert during.graph_commit_id == before.graph_commit_id
    go_on.set()
    writer.join(60)
    assert graph.query(LEDGER).to_pylist()[0]["moved"] == 1


def test_a_query_that_stands_still_holds_up_no_writer(graph: og.Graph):
    """A query is stopped in the middle, a writer commits, and the query ends as it began."""
    handle, engine = with_engine(graph, "csr")
    arrived, go_on = threading.Event(), threading.Event()
    real = engine.memory.rows
    answers: list[Any] = []

    def standing_still(location: str):
        arrived.set()
        assert go_on.wait(60)
        return real(location)

    engine.memory.rows = standing_still  # type: ignore[method-assign]
    reader = threading.Thread(target=lambda: answers.append(handle.query(LEDGER)))
    reader.start()
    assert arrived.wait(60)
    head = graph.query(LEDGER).graph_commit_id
    assert transfer(graph, "n0", 1) != head
    go_on.set()
    reader.join(60)
    (result,) = answers
    assert result.graph_commit_id == head
    assert result.to_pylist()[0]["moved"] == 0


def test_threads_that_start_cold_together_read_each_column_once(graph: og.Graph):
    handle, engine = with_engine(graph, "csr")
    start = threading.Barrier(READERS)
    answers: list[list[dict[str, Any]]] = []

    def read() -> None:
        start.wait(60)
        answers.append(handle.query(LEDGER).to_pylist())

    in_threads(*[read] * READERS)
    assert len(answers) == READERS
    assert all(found == answers[0] for found in answers)
    used = engine.memory.budget.used
    handle.query(LEDGER)
    assert engine.memory.budget.used == used
