"""Memory is given back by bytes, and never from under a query."""

from __future__ import annotations

import gc
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.engines.local.memory import MemoryBudget
from omnigraph.engines.local.tables import GraphMemory, Mode
from omnigraph.model import governor
from omnigraph.model.governor import CACHE_BYTES_VARIABLE, bytes_from_environment
from tests.engines.local.graphs import (
    city,
    knows,
    lives,
    load,
    new_graph,
    person,
    rows,
    with_engine,
    write,
)

QUERIES = [
    "match { $p: Person } return { $p.name, $p.age }",
    'match { $p: Person $p.bio contains "7" } return { $p.name }',
    'match { $p: Person { name: "p03" } $p knows $o } return { $o.name, $o.bio }',
    "match { $p: Person $p knows{1,3} $o $o.age > 2 } return { $p.name, count(*) as n }",
    "match { $p: Person $p <knows> $o not { $o livesIn $c } } return { $p.name, $o.name as o }",
    "match { $p: Person $p $k:knows $o } return { $k.since, $p.name, $o.name as o }",
    "match { $p: Person $p livesIn $c } return { $c.*, $p.age } ",
    'match { $p: Person } return { $p.name } order { bm25($p.bio, "number 7") } limit 3',
    'match { $p: Person search($p.bio, "number") $p livesIn $c } return { $c, count(*) as n }',
    "match { $p: Person $p knows{1,2} $o via $r } return { $r.nodes, $r.length }",
]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    graph = new_graph(Path(tmp_path_factory.mktemp("budget")))
    people = [person(f"p{at:02}", age=at % 5, bio=f"number {at}") for at in range(30)]
    edges = [knows(f"p{at:02}", f"p{at * 7 % 30:02}", since=at) for at in range(30)]
    homes = [lives(f"p{at:02}", f"c{at % 3}") for at in range(0, 30, 2)]
    load(graph, *people, *(city(f"c{at}") for at in range(3)), *edges, *homes)
    write(graph, 'delete Person where name = "p11"')
    return graph


# --- the account ----------------------------------------------------------------------------------


def kept_in(budget: MemoryBudget, *names: str) -> list[str]:
    """Things of ten bytes each, kept one after the other; what is left of them."""
    left: list[str] = []
    for name in names:
        left.append(name)
        budget.keep(name, 10, partial(left.remove, name))
    return left


def test_the_oldest_things_are_forgotten_first():
    budget = MemoryBudget(30)
    assert kept_in(budget, *"abcde") == ["c", "d", "e"]
    assert budget.used == 30


def test_what_was_used_is_not_the_oldest():
    budget = MemoryBudget(30)
    left = kept_in(budget, *"abc")
    budget.touch(["a", "not kept"])
    budget.keep("d", 10, lambda: None)
    assert left == ["a", "c"]


def test_something_larger_than_everything_stays_alone():
    budget = MemoryBudget(25)
    left = kept_in(budget, *"ab")
    budget.keep("large", 1000, lambda: left.append("large was forgotten"))
    assert (left, budget.used) == ([], 1000)
    budget.keep("next", 1, lambda: None)
    assert (left, budget.used) == (["large was forgotten"], 1)


def test_keeping_again_replaces_and_forgets_nothing():
    budget = MemoryBudget(100)
    forgotten: list[int] = []
    budget.keep("x", 10, lambda: forgotten.append(1))
    budget.keep("x", 20, lambda: forgotten.append(2))
    assert (budget.used, forgotten) == (20, [])


def test_what_grows_is_counted_anew_and_not_forgotten():
    budget = MemoryBudget(30)
    left = kept_in(budget, *"ab")
    assert budget.resize("a", 20)
    assert (budget.used, left) == (30, ["a", "b"])
    assert budget.resize("a", 25)
    assert (budget.used, left) == (25, ["a"])
    assert not budget.resize("b", 1)


def test_the_limit_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(CACHE_BYTES_VARIABLE, "12345")
    assert bytes_from_environment(CACHE_BYTES_VARIABLE) == 12345
    for nonsense in ("", "0", "-1", "much"):
        monkeypatch.setenv(CACHE_BYTES_VARIABLE, nonsense)
        assert bytes_from_environment(CACHE_BYTES_VARIABLE) > 2**20


def test_the_limit_is_a_share_of_what_a_container_may_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv(CACHE_BYTES_VARIABLE, raising=False)
    newer, older = tmp_path / "memory.max", tmp_path / "limit_in_bytes"
    monkeypatch.setattr(governor, "CONTAINER_LIMITS", (newer, older))
    machine = bytes_from_environment(CACHE_BYTES_VARIABLE)
    newer.write_text("max\n")
    older.write_text("9223372036854771712\n")
    assert bytes_from_environment(CACHE_BYTES_VARIABLE) == machine
    newer.write_text("400000000\n")
    assert bytes_from_environment(CACHE_BYTES_VARIABLE) == 100_000_000


def test_a_space_that_is_counted_again_stays_the_space_of_its_type():
    memory = GraphMemory(MemoryBudget(10**6))
    space = memory.space("nodes/a")
    memory.account("nodes/a", space)
    space.intern(pa.array(["x", "y"]))
    memory.account("nodes/a", space)
    assert memory.space("nodes/a") is space
    assert memory.budget.used == space.nbytes


def test_a_space_that_was_forgotten_is_not_confused_with_the_next():
    memory = GraphMemory(MemoryBudget(10**6))
    first = memory.space("nodes/a")
    memory.account("nodes/a", first)
    memory.budget.keep("large", 10**7, lambda: None)
    second = memory.space("nodes/a")
    assert second is not first
    memory.account("nodes/a", first)  # by a query that still runs with it
    memory.budget.keep("larger", 10**8, lambda: None)
    assert memory.space("nodes/a") is second


# --- queries --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["auto", "csr", "indexed"])
def test_answers_are_the_same_with_any_budget(graph: og.Graph, mode: Mode):
    plenty, _ = with_engine(graph, mode)
    wanted = [rows(plenty, text) for text in QUERIES]
    assert all(wanted)
    for limit in (1, 300, 1_000, 3_000, 10_000):
        tight, engine = with_engine(graph, mode, limit)
        for _ in range(2):
            assert [rows(tight, text) for text in QUERIES] == wanted
        engine.memory.warming.finish()


def test_memory_stays_within_the_budget_but_for_the_newest_thing(graph: og.Graph):
    unlimited, engine = with_engine(graph)
    for text in QUERIES:
        rows(unlimited, text)
    everything = engine.memory.budget.used
    limit = everything // 2
    tight, engine = with_engine(graph, memory_limit=limit)
    for text in QUERIES * 2:
        rows(tight, text)
        assert engine.memory.budget.used <= limit


def test_nothing_is_forgotten_while_there_is_room(graph: og.Graph):
    handle, engine = with_engine(graph)
    for text in QUERIES:
        rows(handle, text)
    engine.memory.warming.finish()
    used = engine.memory.budget.used
    for text in QUERIES:
        rows(handle, text)
    assert engine.memory.budget.used == used


def test_forgetting_everything_between_queries_changes_no_answer(graph: og.Graph):
    handle, engine = with_engine(graph, "csr")
    wanted = [rows(handle, text) for text in QUERIES]
    budget = engine.memory.budget
    for _ in range(2):
        budget.keep("a sudden need", budget.limit + 1, lambda: None)
        gc.collect()
        assert [rows(handle, text) for text in QUERIES] == wanted
