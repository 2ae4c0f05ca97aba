"""Aggregates over a last hop that is counted, or followed some rows at a time, against its rows."""

from __future__ import annotations

import random
from collections import defaultdict
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engines.local import last_hop
from tests.engines.local.graphs import city as a_city
from tests.engines.local.graphs import knows, lives, load, new_graph, person, rows, with_engine
from tests.support.tables import check_all

SCHEMA = """
node Person { name: String @key  age: I32?  score: F64?  bio: String? }
node City { name: String @key  size: I32? }
edge Knows: Person -> Person { since: I32? }
edge Blocks: Person -> Person
edge LivesIn: Person -> City
"""
PEOPLE = 30


def records(parallel: bool) -> list[dict[str, Any]]:
    choices = random.Random(4)
    names = [f"p{at:02}" for at in range(PEOPLE)]
    bios = ["red", "blue", "", None]
    made = [
        person(name, age=at % 5 or None, score=at / 4 if at % 3 else None, bio=bios[at % 4])
        for at, name in enumerate(names)
    ]
    made += [a_city("here", size=1), a_city("there")]
    made += [lives(name, choice) for name in names if (choice := choices.choice(["here", "there"]))]
    pairs = [(source, target) for source in names for target in choices.sample(names, 5)]
    made += [knows(source, target) for source, target in pairs]
    made += [knows(source, target) for source, target in pairs[::7] if parallel]
    made += [
        {"edge": "Blocks", "from": source, "to": target, "data": {}}
        for source, target in [*pairs[::4], ("p00", "p29"), ("p29", "p00")]
    ]
    return made


@pytest.fixture(scope="module", params=[False, True], ids=["single", "parallel"])
def graph(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    graph = new_graph(Path(tmp_path_factory.mktemp("last-hop")), SCHEMA)
    load(graph, *records(request.param))
    graph.mutate('query q() { delete Person where name = "p07" }')
    return graph


@pytest.fixture(params=[3, 10**6], ids=["blocks", "whole"])
def handle(
    request: pytest.FixtureRequest, graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> og.Graph:
    monkeypatch.setattr(last_hop, "BLOCK_ROWS", request.param)
    return with_engine(graph, "csr")[0]


PATTERNS = {
    "one hop": "$p: Person  $p knows $f",
    "back": "$p: Person  $f: Person  $f knows $p",
    "either way": "$p: Person  $p <knows> $f",
    "filtered before": "$p: Person  $p.age > 2  $p knows $f",
    "filtered after": "$p: Person  $p knows $f  $f.age > 2",
    "compared after": "$p: Person  $p knows $f  $f.age > $p.age",
    "unless": "$p: Person  $p knows $f  not { $p blocks $f }",
    "unless back": "$p: Person  $p knows $f  not { $f blocks $p }",
    "unless either way": "$p: Person  $p knows $f  not { $p <blocks> $f }",
    "two hops": "$p: Person  $p blocks $x  $x knows $f",
    "closed": "$p: Person  $p knows $f  $f blocks $p",
}
AGGREGATES = (
    "count(*) as n, sum({}.age) as s, avg({}.score) as a, min({}.bio) as l, max({}.age) as g"
)


def expected(solutions: list[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """What plain Python makes of an item, age, score and bio of every solution."""
    groups: dict[str, list[tuple[Any, ...]]] = defaultdict(list)
    for item, *values in solutions:
        groups[repr(item)].append(tuple(values))
    made = {}
    for item, members in groups.items():
        columns = zip(*members, strict=True)
        ages, scores, bios = ([one for one in column if one is not None] for column in columns)
        made[item] = [
            len(members),
            float(sum(ages)) if ages else None,
            pytest.approx(sum(scores) / len(scores)) if scores else None,
            min(bios, default=None),
            max(ages, default=None),
        ]
    return made


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_c_qry_053_groups_over_a_hop_are_those_of_its_rows(handle: og.Graph, pattern: str):
    def check(case: tuple[str, str]) -> None:
        item, of = case
        values = f"{item} as i, {of}.age as a, {of}.score as s, {of}.bio as b"
        solutions = rows(handle, f"match {{ {pattern} }} return {{ {values} }}")
        assert len(solutions) > 9
        asked = AGGREGATES.format(of, of, of, of)
        found = rows(handle, f"match {{ {pattern} }} return {{ {item} as i, {asked} }}")
        assert {repr(row[0]): list(row[1:]) for row in found} == expected(solutions)
        assert len(found) == len({repr(row[0]) for row in found})

    check_all(product(["$p.bio", "$f.bio", "$p.age", "$f.name", "$p"], ["$p", "$f"]), check)


@pytest.mark.parametrize("pattern", PATTERNS.values(), ids=PATTERNS)
def test_one_group_counts_all_solutions(handle: og.Graph, pattern: str):
    solutions = rows(handle, f"match {{ {pattern} }} return {{ $p.name as p, $f.age as f }}")
    found = rows(
        handle, f"match {{ {pattern} }} return {{ count($f) as n, count($f.age) as ages }}"
    )
    assert found == [(len(solutions), sum(age is not None for _, age in solutions))]


def test_aggregates_that_cannot_be_added_up_are_right_too(handle: og.Graph):
    pattern = PATTERNS["one hop"]
    solutions = rows(handle, f"match {{ {pattern} }} return {{ $p.bio as b, $f.age as a }}")
    asked = "$p.bio as b, count(distinct $f.age) as n, collect($f.age) as all"
    found = rows(handle, f"match {{ {pattern} }} return {{ {asked} }}")
    groups: dict[Any, list[int]] = defaultdict(list)
    for bio, age in solutions:
        groups[bio] += [] if age is None else [age]
    assert {row[0]: row[1:] for row in found} == {
        bio: (len(set(ages)), sorted(ages)) for bio, ages in groups.items()
    }


def test_nothing_found_is_no_group_and_a_count_of_zero(handle: og.Graph):
    nobody = 'match { $p: Person { name: "nobody" }  $p knows $f }'
    assert rows(handle, f"{nobody} return {{ count($f) as n }}") == [(0,)]
    assert rows(handle, f"{nobody} return {{ $p.bio as b, count($f) as n }}") == []


def strategies(graph: og.Graph, query: str) -> list[str]:
    explained = graph.query(f"query q() {{ {query} }}", explain=True).explain
    assert explained is not None
    assert explained.run is not None
    return [step.strategy for step in explained.run.steps]


def test_a_hop_is_counted_or_followed_in_blocks_where_that_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    graph = new_graph(tmp_path, SCHEMA)
    load(graph, *records(parallel=False))
    monkeypatch.setattr(last_hop, "BLOCK_ROWS", 40)
    handle = with_engine(graph, "csr")[0]
    hop = "match { $p: Person  $p knows $f }"
    unless = "match { $p: Person  $p knows $f  not { $p blocks $f } }"
    counted = "adjacency, counted"
    assert strategies(handle, f"{hop} return {{ $p.bio as b, count($f) as n }}")[1] == counted
    assert strategies(handle, f"{unless} return {{ count($f) as n }}")[1:3] == [counted] * 2
    in_blocks = "adjacency, in 4 blocks"
    assert strategies(handle, f"{hop} return {{ $f.bio as b, count($p) as n }}")[1] == in_blocks
    filtered = strategies(handle, f"{unless} return {{ $f.bio as b, count($p) as n }}")
    assert filtered[1:3] == [in_blocks, "anti-join, in 4 blocks"]
    listed = strategies(handle, f"{hop} return {{ $p.bio as b, collect($f.age) as all }}")
    assert listed[1] == "adjacency"
