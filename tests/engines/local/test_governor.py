"""Every kind of query stops where its governor says so, and is refused before it takes too much."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engines.local import adjacency, bindings, grouping, last_hop, reach, sorting
from omnigraph.engines.local import rows as rows_module
from omnigraph.errors import QueryCancelled, QueryMemoryExceeded, QueryTimeout
from omnigraph.model.governor import Governor
from tests.engines.local.graphs import (
    city,
    knows,
    lives,
    load,
    new_graph,
    person,
    rows,
    with_engine,
)

PEOPLE = 120
MIB = 1 << 20


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    """People in a ring with chords, who live in a few cities."""
    graph = new_graph(tmp_path_factory.mktemp("governed"))
    names = [f"p{n:03}" for n in range(PEOPLE)]
    texts = ["plain words", "other words here", "nothing"]
    load(
        graph,
        *(person(name, age=n % 7, bio=texts[n % 3] * 20) for n, name in enumerate(names)),
        *(city(f"c{n}", size=n) for n in range(4)),
        *(
            knows(name, names[(n + step) % PEOPLE])
            for n, name in enumerate(names)
            for step in (1, 5)
        ),
        *(lives(name, f"c{n % 4}") for n, name in enumerate(names)),
    )
    return graph


FRIENDS = "match { $a: Person $a knows{1,3} $b } return"
QUERIES = {
    "scan": "match { $a: Person $a.age > 2 } return { $a.name, $a.bio }",
    "hop": "match { $a: Person $a knows $b } return { $a.name, $b.bio }",
    "hops": "match { $a: Person $a knows{1,4} $b $b.age > 1 } return { $a.name, $b.name }",
    "everywhere": "match { $a: Person $a knows{1,1000} $b } return { $a.name, $b.name }",
    "edges": "match { $a: Person $a $k:knows $b $b $l:knows $c } return { $a.name, $c.name }",
    "pairs": "match { $a: Person $b: Person $a knows{1,3} $b } return { $a.name, $b.name }",
    "product": "match { $a: Person $b: Person $a.age < $b.age } return { $a.name, $b.name }",
    "join": "match { $a: Person $b: Person $a.age = $b.age } return { $a.name, $b.name }",
    "paths": "match { $a: Person $a knows{1,6} $b via $r } return { $a.name, $r.nodes }",
    "not": "match { $a: Person not { $a knows $b $b.age = 3 } } return { $a.name }",
    "optional": "match { $a: Person optional { $a knows $b } } return { $a.name, $b.name }",
    "groups": FRIENDS + " { $a.age, $b.bio, count(*) as n, min($b.name) as m }",
    "lists": FRIENDS + " { $a.age, collect($b.name) as all }",
    "distinct": FRIENDS + " distinct { $a.age, $b.bio }",
    "order": FRIENDS + " { $a.name, $b.name } order { $b.age desc, $a.name }",
    "search": 'match { $a: Person search($a.bio, "words") } return { $a.name, length($a.bio) }',
    "bm25": 'match { $a: Person } return { $a.name } order { bm25($a.bio, "words") desc } limit 9',
}


class Watched(Governor):
    """Counts how often it is asked; a hook may cancel it at some question."""

    asked = 0
    stop_at: int | None = None

    def check(self) -> None:
        self.asked += 1
        if self.asked == self.stop_at:
            self.cancel("the test says so")
        super().check()


@pytest.fixture
def small_blocks() -> Iterator[None]:
    """Blocks of a few rows, so that little data has many of them."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (adjacency, bindings, grouping, last_hop, reach):
            patch.setattr(module, "BLOCK_ROWS", 64)
        patch.setattr(reach, "_SEEN_MAX", 256)
        patch.setattr(rows_module, "_BLOCK_ROWS", 64)
        patch.setattr(grouping, "_SORTED_AT_ONCE", 64)
        for module in (grouping, sorting):
            patch.setattr(module, "AT_ONCE", 64)
        yield


def result(graph: og.Graph, text: str, governor: Governor | None = None) -> list[tuple[Any, ...]]:
    return rows(graph, text, governor=governor)


@pytest.mark.parametrize("name", QUERIES)
def test_limits_that_are_not_reached_change_no_answer(
    stored: og.Graph, name: str, request: pytest.FixtureRequest
):
    plain = result(with_engine(stored)[0], QUERIES[name])
    assert plain
    request.getfixturevalue("small_blocks")
    governor = Governor(timeout_s=600, memory_bytes=256 * MIB)
    assert result(with_engine(stored)[0], QUERIES[name], governor) == plain
    assert governor.held == 0


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("name", QUERIES)
def test_a_query_stops_at_whichever_block_it_is_cancelled(stored: og.Graph, name: str):
    graph, _ = with_engine(stored)
    text = QUERIES[name]
    wanted = result(graph, text)
    result(graph, text)  # what is asked for twice is worth an index
    watched = Watched()
    assert result(graph, text, watched) == wanted
    assert watched.asked >= 3, "between blocks of work"
    for stop_at in {1, 2, watched.asked // 2, watched.asked - 1, watched.asked}:
        stopped = Watched()
        stopped.stop_at = stop_at
        with pytest.raises(QueryCancelled, match="the test says so"):
            result(graph, text, stopped)
        assert stopped.asked == stop_at
    assert result(graph, text) == wanted, "what was stopped left nothing half-made"


def test_a_cold_query_can_be_stopped_while_it_reads_tables(stored: og.Graph):
    watched = Watched()
    cold, _ = with_engine(stored, "csr")
    result(cold, QUERIES["hop"], watched)
    warm = Watched()
    result(cold, QUERIES["hop"], warm)
    assert watched.asked > warm.asked, "between the batches of a table"
    for stop_at in range(1, watched.asked + 1):
        cold, _ = with_engine(stored, "csr")
        stopped = Watched()
        stopped.stop_at = stop_at
        with pytest.raises(QueryCancelled):
            result(cold, QUERIES["hop"], stopped)
        assert result(cold, QUERIES["hop"]) == result(stored, QUERIES["hop"])


def test_a_query_ends_at_its_deadline(stored: og.Graph):
    seconds = iter(range(1_000_000))
    governor = Governor(timeout_s=10, clock=lambda: float(next(seconds)))
    with pytest.raises(QueryTimeout) as caught:
        while True:
            result(stored, QUERIES["hops"], governor)
    assert caught.value.details["limit"] == 10


REFUSED = {
    "everywhere": 128,
    "product": 64,
    "join": 32,
    "paths": 256,
    "groups": 32,
    "distinct": 32,
}
"""Kilobytes that are not enough."""


@pytest.mark.parametrize("name", REFUSED)
def test_a_query_is_refused_before_it_passes_its_budget(stored: og.Graph, name: str):
    budget = REFUSED[name] << 10
    result(stored, QUERIES[name])
    governor = Governor(memory_bytes=budget)
    with pytest.raises(QueryMemoryExceeded) as caught:
        result(stored, QUERIES[name], governor)
    assert caught.value.details["limit"] == budget
    assert caught.value.details["actual"] > budget
    assert "OMNIGRAPH_QUERY_BYTES" in (caught.value.hint or "")
    assert governor.held == 0


def test_the_budget_of_the_process_holds_without_a_governor(
    stored: og.Graph, monkeypatch: pytest.MonkeyPatch
):
    from omnigraph.graph import reading

    monkeypatch.setattr(reading, "query_bytes", lambda: 64 << 10)
    with pytest.raises(QueryMemoryExceeded):
        result(stored, QUERIES["everywhere"])


def test_one_long_text_in_many_rows_is_measured(tmp_path: Path):
    graph = new_graph(tmp_path)
    load(
        graph,
        *(person(f"p{n}", bio="x" * (MIB if n == 0 else 1)) for n in range(80)),
        *(knows(f"p{n}", "p0") for n in range(1, 80)),
    )
    text = "match { $a: Person $a knows $b } return { $b.bio }"
    with pytest.raises(QueryMemoryExceeded) as caught:
        graph.query(f"query q() {{ {text} }}", governor=Governor(memory_bytes=32 * MIB))
    assert caught.value.details["actual"] > 75 * MIB
    assert (
        len(graph.query(f"query q() {{ {text} }}", governor=Governor(memory_bytes=96 * MIB))) == 79
    )


def test_rows_are_written_as_json_within_the_limits(stored: og.Graph):
    text = f"query q() {{ {QUERIES['everywhere']} }}"
    plain = stored.query(text).to_dict()
    watched = Watched(memory_bytes=64 * MIB)
    with watched:
        found = stored.query(text, governor=watched)
        asked = watched.asked
        body = found.to_json_bytes()
        assert watched.asked > asked + len(plain["rows"]) // 1024
    assert json.loads(body) == plain
    with Governor(memory_bytes=len(body) // 2), pytest.raises(QueryMemoryExceeded):
        found.to_json_bytes()


def test_what_a_deadline_interrupts_is_read_in_the_background(stored: og.Graph):
    class Late(Watched):
        def check(self) -> None:
            self.asked += 1
            if self.asked == self.stop_at:
                raise QueryTimeout(1.0)

    warm = Watched()
    graph, _ = with_engine(stored, "csr")
    result(graph, QUERIES["hop"])
    result(graph, QUERIES["hop"], warm)
    graph, engine = with_engine(stored, "csr")
    late = Late()
    late.stop_at = 3
    with pytest.raises(QueryTimeout):
        result(graph, QUERIES["hop"], late)
    engine.memory.warming.finish()
    again = Watched()
    result(graph, QUERIES["hop"], again)
    assert again.asked < warm.asked + 12, "the table that was being read is there"
    assert engine.memory.budget.used > 0


def test_a_scan_of_storage_is_counted_batch_by_batch(stored: og.Graph):
    graph, _ = with_engine(stored, memory_limit=1)
    text = "match { $a: Person $a.age >= 0 } return { $a.name, $a.bio }"
    assert len(result(graph, text)) == PEOPLE
    with pytest.raises(QueryMemoryExceeded):
        result(graph, text, Governor(memory_bytes=20_000))


def test_few_rows_in_very_many_columns_are_counted(stored: og.Graph):
    items = ", ".join(f"$a.bio as b{n}" for n in range(300))
    text = f"query q() {{ match {{ $a: Person }} return {{ {items} }} }}"
    governor = Governor(memory_bytes=64 * MIB)
    with governor:
        found = stored.query(text, governor=governor)
        assert governor.held > 300 * PEOPLE * 100, "every column is a copy"
        assert len(json.loads(found.to_json_bytes())["rows"]) == PEOPLE
    with pytest.raises(QueryMemoryExceeded):
        stored.query(text, governor=Governor(memory_bytes=MIB))
