"""Indexes, compaction and memory change how a query runs, and nothing about its answer."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engines.local.tables import Mode
from tests.engines.local.graphs import with_engine
from tests.support.graphs import with_edge_ids

SCHEMA = """
node Doc {
    slug: String @key
    title: String? @index
    body: String? @index
    year: I32? @index
    big: U64? @index
    day: Date? @index
    seen: DateTime? @index
    score: F64?
    kind: enum(note, memo)? @index
    tags: [String]?
    vec: Vector(3)? @index
}
node Topic { name: String @key }
edge Cites: Doc -> Doc { weight: I32? @index }
edge About: Doc -> Topic
"""

WORDS = ("red", "fox", "river", "lamp", "walking", "walked", "Ärger", "naïve", "the", "x1")

QUERIES = [
    # equality, ranges and sets on every indexed type
    'match { $d: Doc { slug: "d07" } } return { $d.title }',
    "match { $d: Doc { year: 3 } } return { $d.slug }",
    "match { $d: Doc $d.year > 2 $d.year <= 5 } return { $d.slug, $d.year }",
    "match { $d: Doc $d.year = 2.0 } return { $d.slug }",
    "match { $d: Doc $d.big >= 9223372036854775807 } return { $d.slug, $d.big }",
    'match { $d: Doc $d.day < date("2020-01-05") } return { $d.slug }',
    'match { $d: Doc $d.seen > datetime("2020-01-03T00:00:00Z") } return { $d.slug, $d.seen }',
    'match { $d: Doc { kind: "memo" } } return { $d.slug }',
    "match { $d: Doc $d.year in [1, 4, 99] } return { $d.slug }",
    'match { $d: Doc $d.day in [date("2020-01-03"), date("2020-01-04")] } return { $d.slug }',
    'match { $d: Doc any { all { $d.year < 2 } all { $d.kind = "note" } } } return { $d.slug }',
    "match { $d: Doc $d.year is null } return { $d.slug }",
    "match { $d: Doc $d.year != 3 } return { $d.slug }",
    'match { $d: Doc $d.tags contains "a" } return { $d.slug }',
    'match { $d: Doc $d.title contains "ed" $d.slug starts_with "d" } return { $d.slug }',
    # hops
    "match { $d: Doc $d cites $o } return { $d.slug, $o.slug as o }",
    'match { $d: Doc { slug: "d03" } $d cites{1,3} $o } return { $o.slug }',
    "match { $d: Doc $d <cites>{2,2} $o $o.year > 2 } return { $d.slug, $o.slug as o }",
    "match { $d: Doc $d $c:cites $o $c.weight > 1 } return { $c.weight, $d.slug, $o.slug as o }",
    'match { $t: Topic { name: "t1" } $d about $t not { $d cites $_ } } return { $d.slug }',
    "match { $d: Doc optional { $d about $t } } return { $t.name, count(*) as n }",
    # text
    'match { $d: Doc search($d.body, "fox") } return { $d.slug }',
    'match { $d: Doc match_text($d.body, "red fox") } return { $d.slug }',
    'match { $d: Doc fuzzy($d.body, "rivr", 1) } return { $d.slug }',
    'match { $d: Doc search($d.title, "walking") $d cites $o } return { $d.slug, $o.slug as o }',
    # ranking, with ties at the cut
    'match { $d: Doc } return { $d.slug } order { bm25($d.body, "red fox") } limit 6',
    'match { $d: Doc $d.year > 1 } return { $d.slug } order { bm25($d.body, "lamp") } limit 4',
    "match { $d: Doc } return { $d.slug } order { nearest($d.vec, [1, 0, 0]) } limit 5",
    "match { $d: Doc { year: 2 } } return { $d.slug } order { nearest($d.vec, [0, 1, 1]) } limit 9",
    """match { $t: Topic { name: "t0" } $d about $t } return { $d.slug }
    order { nearest($d.vec, [0, 0, 0]) } limit 3""",
    """match { $d: Doc } return { $d.slug }
    order { rrf(nearest($d.vec, [1, 1, 0]), bm25($d.body, "river")) } limit 7""",
    # order and groups
    "match { $d: Doc } return { $d.year, $d.slug } order { $d.year desc, $d.score } limit 8",
    "match { $d: Doc } return { $d.kind, count(*) as n, min($d.title) as x, sum($d.year) as y }",
]


def doc(choices: random.Random, number: int) -> dict[str, Any]:
    def maybe(value: Any) -> Any:
        return None if choices.random() < 0.2 else value

    def text() -> str:
        return " ".join(choices.choices(WORDS, k=choices.randint(0, 5)))

    data = {
        "slug": f"d{number:02}",
        "title": maybe(text()),
        "body": maybe(text()),
        "year": maybe(choices.randint(0, 6)),
        "big": maybe(choices.choice([0, 1, 2**63 - 1, 2**63, 2**64 - 1])),
        "day": maybe(f"2020-01-{choices.randint(1, 9):02}"),
        "seen": maybe(f"2020-01-0{choices.randint(1, 9)}T0{choices.randint(0, 9)}:00:00Z"),
        "score": maybe(choices.choice([0.0, 0.5, -1.0])),
        "kind": maybe(choices.choice(["note", "memo"])),
        "tags": maybe(choices.choices(["a", "b"], k=choices.randint(0, 2))),
        "vec": maybe([float(choices.randint(0, 2)) for _ in range(3)]),
    }
    return {"type": "Doc", "data": data}


def records(choices: random.Random, start: int, stop: int) -> list[dict[str, Any]]:
    """Some documents, with links among them and to those before."""
    found = [doc(choices, number) for number in range(start, stop)]
    for _ in range(2 * (stop - start)):
        ends = {"from": f"d{choices.randrange(stop):02}", "to": f"d{choices.randrange(stop):02}"}
        found.append({"edge": "Cites", **ends, "data": {"weight": choices.randint(0, 3)}})
    for number in range(start, stop, 2):
        ends = {"from": f"d{number:02}", "to": f"t{number % 3}"}
        found.append({"edge": "About", **ends, "data": {}})
    return found


def load(graph: og.Graph, found: list[dict[str, Any]]) -> None:
    graph.load(data="\n".join(map(json.dumps, with_edge_ids(found))), mode="merge")


def answers(graph: og.Graph, text: str) -> list[Any]:
    result = graph.query(f"query q() {{ {text} }}").to_dict()["rows"]
    return result if "order" in text else sorted(result, key=repr)


WAYS: list[tuple[Mode, int | None]] = [
    ("auto", None),
    ("indexed", None),
    ("csr", None),
    ("auto", 1),
    ("indexed", 1),
    ("csr", 1),
]


def assert_every_way_agrees(graph: og.Graph) -> dict[str, list[Any]]:
    """The answers, which cold engines of every kind give alike."""
    wanted: dict[str, list[Any]] = {}
    for mode, limit in WAYS:
        handle, engine = with_engine(graph, mode, limit)
        for text in QUERIES:
            found = answers(handle, text)
            assert found == wanted.setdefault(text, found), f"{mode}, {limit} bytes: {text}"
        engine.memory.warming.finish()
    return wanted


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA)
    choices = random.Random(11)
    load(graph, [{"type": "Topic", "data": {"name": f"t{at}"}} for at in range(3)])
    load(graph, records(choices, 0, 25))
    return graph


def test_c_qry_079_answers_are_the_same_before_and_after_indexes_writes_and_compaction(
    graph: og.Graph,
):
    warm, _ = with_engine(graph)
    before = assert_every_way_agrees(graph)
    assert sum(bool(found) for found in before.values()) >= len(QUERIES) - 1
    assert graph.ensure_indices().graph_commit_id is not None
    assert assert_every_way_agrees(graph) == before
    assert {text: answers(warm, text) for text in QUERIES} == before

    # Rows beside the indexes, changed rows, and rows that are gone.
    load(graph, records(random.Random(12), 25, 40))
    graph.mutate('query q() { update Doc set { body: "red fox", year: 3 } where slug = "d04" }')
    graph.mutate('query q() { delete Doc where slug = "d07" }')
    partly = assert_every_way_agrees(graph)
    assert partly != before
    assert {text: answers(warm, text) for text in QUERIES} == partly

    # The same rows, compact and with complete indexes.
    assert graph.optimize().graph_commit_id is not None
    assert assert_every_way_agrees(graph) == partly
    assert {text: answers(warm, text) for text in QUERIES} == partly


def test_c_srch_019_and_020_a_graph_without_any_index_answers_like_one_with_some(
    tmp_path: Path,
):
    found = []
    for name in ("plain", "indexed"):
        graph = og.init(tmp_path / f"{name}.omni", schema=SCHEMA)
        choices = random.Random(21)
        load(graph, [{"type": "Topic", "data": {"name": f"t{at}"}} for at in range(3)])
        load(graph, records(choices, 0, 15))
        if name == "indexed":
            graph.ensure_indices()
        load(graph, records(choices, 15, 22))
        if name == "indexed":
            graph.ensure_indices()
        handle, _ = with_engine(graph)
        found.append({text: answers(handle, text) for text in QUERIES})
    assert found[0] == found[1]
