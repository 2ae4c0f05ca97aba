"""Every commit and every branch answers with its own rows, whatever else is in memory."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.engines.local.tables import Mode
from omnigraph.errors import NotFound
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
from tests.support.graphs import with_settings

MODES: tuple[Mode, ...] = ("auto", "csr", "indexed")

PEOPLE = "match { $p: Person } return { $p.name, $p.age, $p.bio }"
FRIENDS = "match { $p: Person $p knows $o } return { $p.name, $o.name as o }"
REACHED = "match { $p: Person $p <knows>{1,3} $o } return { $p.name, $o.name as o }"
LONELY = "match { $p: Person not { $p knows $_ } } return { $p.name }"
HOMES = "match { $p: Person optional { $p livesIn $c } } return { $p.name, $c.name as c }"
FOUND = 'match { $p: Person search($p.bio, "old") } return { $p.name }'
POINT = 'match { $p: Person { name: "a1" } } return { $p.age }'
CITIES = "match { $c: City } return { count(*) as n }"
QUERIES = (PEOPLE, CITIES, FRIENDS, REACHED, LONELY, HOMES, FOUND, POINT)

Answers = list[list[tuple[Any, ...]]]


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    graph = new_graph(tmp_path)
    people = [person(f"a{at}", age=at, bio=f"old text {at}") for at in range(5)]
    edges = [knows(f"a{at}", f"a{(at + 1) % 5}") for at in range(5)]
    load(graph, *people, city("rome"), *edges, lives("a0", "rome"), lives("a1", "rome"))
    return graph


def answers(graph: og.Graph, **where: Any) -> Answers:
    return [rows(graph, text, **where) for text in QUERIES]


def head_of(graph: og.Graph, branch: str | None = None) -> str:
    return graph.snapshot(branch).graph_commit_id


def cold_answers(graph: og.Graph, **where: Any) -> Answers:
    """The answers of a handle that has read nothing before."""
    return answers(with_engine(graph, "csr")[0], **where)


WRITES = [
    'insert Person { name: "b0", age: 50, bio: "old and new" }',
    'update Person set { bio: "changed" } where name = "a1"',
    'insert Knows { from: "b0", to: "a1" }',
    'delete Person where name = "a2"',
    'delete Knows where from = "a4"',
    'insert Person { name: "a2", age: 22, bio: "back again" }',
    'delete LivesIn where to = "rome"',
    'delete City where name = "rome"',
    "update Person set { age: 9 } where age < 5",
]


@pytest.mark.parametrize("mode", MODES)
def test_every_commit_keeps_its_answers(graph: og.Graph, mode: Mode):
    graph = with_settings(graph, table_compact_every=3)
    handle, _ = with_engine(graph, mode)
    remembered = {head_of(graph): answers(handle)}
    for statement in WRITES:
        commit = write(graph, statement)
        remembered[commit] = answers(handle)
        assert remembered[commit] == cold_answers(graph, snapshot=commit)
    commits = list(remembered)
    random.Random(3).shuffle(commits)
    for commit in commits:
        assert answers(handle, snapshot=commit) == remembered[commit]
    assert len({repr(each) for each in remembered.values()}) == len(remembered)


@pytest.mark.parametrize("mode", MODES)
def test_a_snapshot_older_than_a_row_does_not_show_it(graph: og.Graph, mode: Mode):
    before = head_of(graph)
    load(graph, person("new", age=1, bio="old"), knows("new", "a0"), knows("a0", "new"))
    handle, _ = with_engine(graph, mode)
    wanted = cold_answers(graph, snapshot=before)
    # The newest version first, so that its ids and edges are in memory.
    assert ("new", 1, "old") in rows(handle, PEOPLE)
    assert answers(handle, snapshot=before) == wanted
    new = 'match { $p: Person { name: "new" } } return { $p.name }'
    assert rows(handle, new, snapshot=before) == []
    assert rows(handle, new) == [("new",)]
    # And a handle that knew the older version before there were such ids.
    between = head_of(graph)
    assert answers(handle, snapshot=between) == cold_answers(graph)
    load(graph, person("newer"), knows("newer", "a1"))
    newer = 'match { $p: Person { name: "newer" } } return { $p.name }'
    assert rows(handle, newer) == [("newer",)]
    for commit in (between, before):
        assert rows(handle, newer, snapshot=commit) == []
        assert answers(handle, snapshot=commit) == cold_answers(graph, snapshot=commit)


@pytest.mark.parametrize("mode", MODES)
def test_branches_answer_for_themselves(graph: og.Graph, mode: Mode):
    handle, _ = with_engine(graph, mode)
    start = answers(handle)
    graph.create_branch("side")
    assert answers(handle, branch="side") == start
    write(graph, 'delete Person where name = "a3"', branch="side")
    write(graph, 'insert Person { name: "main only", bio: "old" }')
    load(graph, person("a3", age=33), knows("a3", "a3"), branch="side")
    for _ in range(2):
        for branch in ("main", "side"):
            assert answers(handle, branch=branch) == cold_answers(graph, branch=branch)
    assert answers(handle, branch="side") != answers(handle)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_of_a_deleted_branch_is_shown_by_one_of_the_same_name(graph: og.Graph, mode: Mode):
    handle, _ = with_engine(graph, mode)
    for generation in range(3):
        graph.create_branch("again")
        assert answers(handle, branch="again") == cold_answers(graph, branch="main")
        # The same writes as before, so that versions have the same numbers, with other rows.
        name = f"ghost{generation}"
        load(graph, person(name, bio="old"), knows(name, "a0"), branch="again")
        write(graph, f'delete Person where name = "a{generation}"', branch="again")
        found = answers(handle, branch="again")
        assert found == cold_answers(graph, branch="again")
        shown = {row[0] for row in found[0]}
        assert {other for other in shown if other.startswith("ghost")} == {name}
        old = head_of(graph, "again")
        assert answers(handle, snapshot=old) == found
        graph.delete_branch("again")
        with pytest.raises(NotFound):
            rows(handle, PEOPLE, branch="again")
        with pytest.raises(NotFound):
            rows(handle, PEOPLE, snapshot=old)


def test_c_qry_062_the_commit_of_a_result_is_the_one_that_was_read(graph: og.Graph):
    first = head_of(graph)
    graph.create_branch("side")
    text = f"query q() {{ {PEOPLE} }}"
    # On a fresh branch it is the head it inherited.
    assert graph.query(text, branch="side").graph_commit_id == first
    second = write(graph, 'insert Person { name: "x" }', branch="side")
    assert graph.query(text, branch="side").graph_commit_id == second
    assert graph.query(text).graph_commit_id == first
    assert graph.query(text, snapshot=second).graph_commit_id == second


def test_a_commit_that_does_not_exist_is_told(graph: og.Graph):
    with pytest.raises(NotFound, match="no commit"):
        rows(graph, PEOPLE, snapshot="01K9WR3C5T8M2B7XQ4ZJ6V0NHD")
    with pytest.raises(NotFound):
        rows(graph, PEOPLE, branch="nowhere")
