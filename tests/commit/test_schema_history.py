"""Older commits, read after the schema has changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import orjson
import pytest

import omnigraph as og
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.engines.local.tables import Mode
from omnigraph.errors import HistoricalVersionReclaimed, NotFound
from tests.engines.local.graphs import with_engine
from tests.support.templates import copy_of

BASE = """
node Person { name: String @key  age: I32?  bio: String? @index }
node City { name: String @key  size: I32? }
edge LivesIn: Person -> City { since: Date? }
"""
RENAMED = """
node Human @rename_from("Person") {
    nick: String @key @rename_from("name")
    years: I64? @rename_from("age")
    text: String? @index @rename_from("bio")
    level: I32 @default(3)
}
node Town @rename_from("City") { name: String @key  size: I32? }
edge DwellsIn: Human -> Town @rename_from("LivesIn") { from_day: Date? @rename_from("since") }
"""
ENTITIES = [
    {"type": "Person", "data": {"name": "ada", "age": 36, "bio": "old rain"}},
    {"type": "Person", "data": {"name": "bo", "age": None, "bio": "new sun"}},
    {"type": "City", "data": {"name": "rome", "size": 3}},
    {"edge": "LivesIn", "from": "ada", "to": "rome", "data": {"since": "2024-05-01"}},
]
ENGINES: list[tuple[Mode, int | None]] = [("auto", None), ("csr", None), ("indexed", 1)]
"""How edges are found, and the memory: with next to none, every row is read from storage."""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "graph.omni"


def _filled(root: Path) -> None:
    graph = og.init(root, BASE)
    graph.load(data=b"\n".join(map(orjson.dumps, ENTITIES)), mode="append")
    graph.ensure_indices()


@pytest.fixture
def graph(root: Path) -> og.Graph:
    copy_of(_filled, root)
    return og.open(root)


def head(graph: og.Graph) -> str:
    return graph.snapshot().graph_commit_id


def rows(graph: og.Graph, text: str, **where: Any) -> list[dict[str, Any]]:
    return graph.query(f"query q {{ {text} }}", **where).to_pylist()


# --- renames --------------------------------------------------------------------------------------

QUERIES: list[tuple[str, list[dict[str, Any]]]] = [
    ("match { $p: Human { years: 36 } } return { $p.nick as n }", [{"n": "ada"}]),
    ("match { $p: Human $p.years > 1 } return { $p.nick as n }", [{"n": "ada"}]),
    ('match { $p: Human { nick: "bo" } } return { $p.text as t }', [{"t": "new sun"}]),
    ('match { $p: Human search($p.text, "rain") } return { $p.nick as n }', [{"n": "ada"}]),
    (
        "match { $p: Human $p dwellsIn $t } return { $p.nick as n, $t.name as t }",
        [{"n": "ada", "t": "rome"}],
    ),
    (
        "match { $p: Human } return { sum($p.years) as s, count(*) as n }",
        [{"s": 36, "n": 2}],
    ),
]


@pytest.mark.parametrize(("mode", "memory"), ENGINES)
@pytest.mark.parametrize(("text", "expected"), QUERIES)
def test_c_bra_016_renames_resolve_in_the_past(
    graph: og.Graph, mode: Mode, memory: int | None, text: str, expected: list[dict[str, Any]]
) -> None:
    then = head(graph)
    graph.apply_schema(RENAMED)
    graph.mutate('query q { update Human set { years: 1, text: "fog" } where years = 36 }')
    handle = with_engine(graph, mode, memory)[0]
    assert rows(handle, text, snapshot=then) == expected
    rows(handle, text)  # puts today's rows into memory
    assert rows(handle, text, snapshot=then) == expected


def test_a_property_that_did_not_exist_yet_is_null(graph: og.Graph) -> None:
    then = head(graph)
    graph.apply_schema(RENAMED)
    text = "match { $p: Human } return { $p.level as level }"
    assert rows(graph, text, snapshot=then) == [{"level": None}] * 2
    assert rows(graph, text) == [{"level": 3}] * 2


def test_a_type_that_did_not_exist_yet_is_not_found(graph: og.Graph) -> None:
    then = head(graph)
    graph.apply_schema(BASE + "node Planet { name: String @key }\n")
    with pytest.raises(NotFound, match="node:Planet does not exist at this snapshot"):
        rows(graph, "match { $p: Planet } return { $p.name }", snapshot=then)
    exported = [orjson.loads(x) for x in b"".join(graph.export(snapshot=then)).splitlines()]
    assert {record.get("type") for record in exported} == {"Person", "City", None}


def test_c_bra_016_a_type_created_again_does_not_adopt_the_rows_of_its_namesake(
    graph: og.Graph,
) -> None:
    then = head(graph)
    without = BASE.splitlines()[1]
    graph.apply_schema(without)
    graph.apply_schema(BASE)
    with pytest.raises(NotFound, match="node:City does not exist at this snapshot"):
        rows(graph, "match { $c: City } return { $c.name }", snapshot=then)
    with pytest.raises(NotFound, match="node:City does not exist at this snapshot"):
        graph.entity_at("node:City", "rome", snapshot=then)


def test_a_name_taken_over_from_a_dropped_type_means_the_one_that_lives(graph: og.Graph) -> None:
    then = head(graph)
    only = "node City { name: String @key  size: I32? }\n"
    graph.apply_schema(only)
    graph.apply_schema('node Person @rename_from("City") { name: String @key  size: I32? }\n')
    text = "match { $p: Person } return { $p.name as n, $p.size as s }"
    assert rows(graph, text, snapshot=then) == [{"n": "rome", "s": 3}]


def test_c_bra_016_an_unknown_commit_is_not_found(graph: og.Graph) -> None:
    graph.apply_schema(RENAMED)
    with pytest.raises(NotFound):
        rows(graph, "match { $p: Human } return { $p.nick }", snapshot="01K9WR3C5T8M2B7XQ4ZJ6V0NHD")


def test_an_export_of_an_older_commit_has_the_names_of_today(graph: og.Graph) -> None:
    then = head(graph)
    graph.apply_schema(RENAMED)
    lines = b"".join(graph.export(snapshot=then)).splitlines()
    found = [orjson.loads(line) for line in lines]
    assert found[0]["edge"] == "DwellsIn"
    assert found[0]["data"]["from_day"] == 19844
    assert [(r["data"]["nick"], r["data"]["years"]) for r in found if r.get("type") == "Human"] == [
        ("ada", 36),
        ("bo", None),
    ]


def test_a_renamed_blob_is_found_in_the_past(root: Path) -> None:
    graph = og.init(root, "node Memo { name: String @key  scan: Blob? }")
    graph.mutate(
        'query q($b: Blob) { insert Memo { name: "m", scan: $b } }', {"b": "base64:aGVsbG8="}
    )
    then = head(graph)
    graph.apply_schema(
        'node Memo { name: String @key  page: Blob? @rename_from("scan")  more: Blob? }'
    )
    (line,) = b"".join(graph.export(snapshot=then)).splitlines()
    data = orjson.loads(line)["data"]
    assert (data["page"], data["more"]) == ("base64:aGVsbG8=", None)


# --- drops ----------------------------------------------------------------------------------------

WITHOUT_AGE = BASE.replace("age: I32?", "")
ONLY_CITY = "node City { name: String @key  size: I32? }\n"


def test_c_sch_059_what_is_dropped_softly_is_readable_at_the_older_commit(graph: og.Graph) -> None:
    then = head(graph)
    receipt = graph.apply_schema(WITHOUT_AGE)
    assert [step["mode"] for step in receipt.steps] == ["soft"]
    found = graph.entity_at("node:Person", "ada", snapshot=then)
    assert found is not None
    assert found["age"] == 36
    assert "age" not in (graph.entity_at("node:Person", "ada") or {})
    graph.apply_schema(ONLY_CITY)
    assert (graph.entity_at("node:Person", "ada", snapshot=then) or {})["age"] == 36
    with pytest.raises(NotFound):
        graph.entity_at("node:Person", "ada")


def test_c_sch_059_what_is_dropped_for_good_is_not(graph: og.Graph, root: Path) -> None:
    then = head(graph)
    person = root / graph._opened.snapshot().table("node:Person").location
    graph.apply_schema(WITHOUT_AGE, allow_data_loss=True)
    with pytest.raises(HistoricalVersionReclaimed):
        graph.entity_at("node:Person", "ada", snapshot=then)
    assert rows(graph, "match { $p: Person } return { $p.name as n } order { n }") == [
        {"n": "ada"},
        {"n": "bo"},
    ]
    assert rows(graph, "match { $c: City } return { $c.size as s }", snapshot=then) == [{"s": 3}]
    after = head(graph)
    graph.apply_schema(ONLY_CITY, allow_data_loss=True)
    assert not person.exists()
    for commit in (then, after):
        with pytest.raises(HistoricalVersionReclaimed):
            graph.entity_at("node:Person", "ada", snapshot=commit)
    assert graph.mutate('query q { insert City { name: "oslo" } }').commit is not None


def test_the_values_of_a_property_dropped_for_good_are_in_no_file(root: Path) -> None:
    text = "node Memo { name: String @key  note: String?  rest: String? }"
    graph = og.init(root, text)
    for name in ("one", "two"):
        graph.mutate(
            "query q($n: String, $s: String) { insert Memo { name: $n, note: $s, rest: $n } }",
            {"n": name, "s": "top secret"},
        )
    table = root / graph._opened.snapshot().table("node:Memo").location

    def holds(words: bytes) -> bool:
        return any(words in path.read_bytes() for path in table.rglob("*") if path.is_file())

    assert holds(b"top secret")
    graph.apply_schema(text.replace("note: String?", ""), allow_data_loss=True)
    assert not holds(b"top secret")
    assert rows(graph, "match { $m: Memo } return { $m.rest as r } order { r }") == [
        {"r": "one"},
        {"r": "two"},
    ]


def test_a_failed_reclamation_only_warns(graph: og.Graph, caplog: pytest.LogCaptureFixture) -> None:
    then = head(graph)
    with armed({Failpoint.CLEANUP_TABLE_GC: "error"}):
        assert graph.apply_schema(WITHOUT_AGE, allow_data_loss=True).applied
    assert "were not reclaimed" in caplog.text
    assert (graph.entity_at("node:Person", "ada", snapshot=then) or {})["age"] == 36
