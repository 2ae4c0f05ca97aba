"""What an actor may write whose rules are limited to types, properties and rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import omnigraph as og
from omnigraph.errors import Conflict, Denied, OmnigraphError
from omnigraph.graph import Graph, open_graph
from omnigraph.policy import load_policy

SCHEMA = """
node Note { slug: String @key  text: String?  author: String?  grade: I32? }
node Person { name: String @key  salary: I32? }
node Secret { name: String @key }
node Visit { at: String @key  doctor: String  fee: I32 @default(7) }
edge About: Note -> Person
edge Guards: Secret -> Person
"""

BUNDLE = """\
version: 2
groups: {agents: [act-ana], others: [act-bo]}
rules:
  - id: agents-read
    allow: {actors: {group: agents}, actions: [read], branch_scope: any}
    types:
      Note: {where: '$row.author = $actor.id'}
      Person: {properties: [name]}
      Visit: {properties: [at]}
      About: all
  - id: agents-write
    allow: {actors: {group: agents}, actions: [change], branch_scope: any}
    types:
      Note: {properties: [slug, text, author], where: '$row.author = $actor.id'}
      Visit: {properties: [at]}
      About: all
  - id: others-all
    allow: {actors: {group: others}, actions: [read, change], branch_scope: any}
  - id: agents-merge
    allow: {actors: {group: agents}, actions: [branch_merge], target_branch_scope: any}
  - id: agents-fork
    allow: {actors: {group: agents}, actions: [branch_create], target_branch_scope: any}
"""

ROWS = """\
{"type": "Note", "data": {"slug": "mine", "text": "a", "author": "act-ana", "grade": 1}}
{"type": "Note", "data": {"slug": "theirs", "text": "hush", "author": "act-bo", "grade": 2}}
{"type": "Person", "data": {"name": "ada", "salary": 9}}
{"type": "Secret", "data": {"name": "s"}}
{"edge": "About", "from": "theirs", "to": "ada", "data": {}}
{"edge": "Guards", "from": "s", "to": "ada", "data": {}}
"""

Ana = Graph


@pytest.fixture
def whole(tmp_path: Path) -> Graph:
    graph = og.init(tmp_path / "graph.omni", SCHEMA)
    graph.load(data=ROWS, mode="append")
    return graph


@pytest.fixture
def ana(whole: Graph) -> Graph:
    return open_graph(whole.uri, policy=load_policy(BUNDLE)).acting_as("act-ana")


def notes(graph: Graph) -> list[dict[str, Any]]:
    return graph.query(
        "query all { match { $n: Note } return { $n.slug as slug, $n.text as text, "
        "$n.author as author, $n.grade as grade } order { slug } }"
    ).to_pylist()


def written(statement: str) -> str:
    return f"query w {{ {statement} }}"


def refused(graph: Graph, statement: str) -> OmnigraphError:
    with pytest.raises(OmnigraphError) as raised:
        graph.mutate(written(statement))
    return raised.value


def told(error: OmnigraphError) -> tuple[Any, ...]:
    return type(error), error.message, error.hint, error.details


def test_c_acc_007_what_is_granted_is_written(ana: Graph, whole: Graph):
    ana.mutate(written('insert Note { slug: "new", text: "b", author: "act-ana" }'))
    ana.mutate(written('update Note set { text: "c" } where slug = "mine"'))
    ana.mutate(written('insert About { from: "new", to: "ada" }'))
    found = {each["slug"]: each for each in notes(whole)}
    assert found["new"]["text"] == "b"
    assert (found["mine"]["text"], found["mine"]["grade"]) == ("c", 1)
    ana.mutate(written('delete Note where slug = "new"'))
    assert {each["slug"] for each in notes(whole)} == {"mine", "theirs"}


@pytest.mark.parametrize(
    ("statement", "kind", "type"),
    [
        ('insert Note { slug: "n", author: "act-bo" }', "row", "Note"),
        ('insert Note { slug: "n" }', "row", "Note"),
        ('update Note set { author: "act-bo" } where slug = "mine"', "row", "Note"),
        ('insert Note { slug: "n", author: "act-ana", grade: 5 }', "property", "Note"),
        ('update Note set { grade: 5 } where slug = "mine"', "property", "Note"),
        # an insert replaces the entity of its key, and with it what is not granted
        ('insert Note { slug: "mine", author: "act-ana" }', "property", "Note"),
        ('insert Person { name: "new" }', "type", "Person"),
        ('delete Person where name = "ada"', "", ""),
        # a property that the actor cannot name is needed
        ('insert Visit { at: "n" }', "property", "Visit"),
    ],
)
def test_c_acc_007_a_violation_names_the_kind_of_rule_and_the_type(
    statement: str, kind: str, type: str, ana: Graph, whole: Graph
):
    before = notes(whole), whole.list_commits()[0].graph_commit_id
    error = refused(ana, statement)
    if kind:
        assert isinstance(error, Denied)
        assert error.details == {"rule_kind": kind, "type": type}
    else:
        assert isinstance(error, Denied | Conflict)
        assert "Guards" not in error.message
        assert "Secret" not in error.render()
    assert (notes(whole), whole.list_commits()[0].graph_commit_id) == before


@pytest.mark.parametrize(
    ("hidden", "absent"),
    [
        # rows
        (
            'update Note set { text: "x" } where slug = "theirs"',
            'update Note set { text: "x" } where slug = "nowhere"',
        ),
        ('delete Note where slug = "theirs"', 'delete Note where slug = "nowhere"'),
    ],
)
def test_c_acc_007_a_hidden_row_is_selected_as_little_as_an_absent_one(
    hidden: str, absent: str, ana: Graph, whole: Graph
):
    receipts = [ana.mutate(written(each)) for each in (hidden, absent)]
    assert [(each.affected_nodes, each.commit) for each in receipts] == [(0, None)] * 2
    assert notes(whole)[1]["text"] == "hush"


@pytest.mark.parametrize(
    ("hidden", "absent", "names"),
    [
        (
            'insert About { from: "theirs", to: "ada" }',
            'insert About { from: "nowher", to: "ada" }',
            ("theirs", "nowher"),
        ),
        ('insert Secret { name: "x" }', 'insert Absent { name: "x" }', ("Secret", "Absent")),
        (
            'update Person set { salary: 1 } where name = "ada"',
            'update Person set { nowher: 1 } where name = "ada"',
            ("salary", "nowher"),
        ),
        (
            'update Note set { text: "x" } where grade = 1 and salary = 1',
            'update Note set { text: "x" } where grade = 1 and nowher = 1',
            ("salary", "nowher"),
        ),
    ],
)
def test_c_acc_007_what_is_hidden_gives_the_error_of_what_is_absent(
    hidden: str, absent: str, names: tuple[str, str], ana: Graph
):
    def plain(statement: str) -> str:
        return refused(ana, statement).render().replace(names[0], "X").replace(names[1], "X")

    assert plain(hidden) == plain(absent)


def test_c_acc_007_a_key_of_a_hidden_row_is_a_conflict_without_its_content(
    ana: Graph, whole: Graph
):
    error = refused(ana, 'insert Note { slug: "theirs", text: "x", author: "act-ana" }')
    assert type(error) is Conflict
    text = error.render()
    assert "hush" not in text
    assert "act-bo" not in text
    assert error.details == {}
    assert notes(whole)[1]["text"] == "hush"


PAIRS = """
node Person {
    name: String @key  city: String?  salary: I32 @default(3)
    @unique(city, salary)
}
"""
PAIRED = """
version: 2
groups: {agents: [act-ana]}
rules:
  - id: works
    allow: {actors: {group: agents}, actions: [read, change], branch_scope: any}
    types: {Person: {properties: [name, city]}}
"""


def test_c_acc_007_a_rule_about_a_hidden_property_tells_none_of_its_values(tmp_path: Path):
    whole = og.init(tmp_path / "graph.omni", PAIRS)
    rows = '{"type": "Person", "data": {"name": "ada", "city": "Oslo", "salary": 3}}\n'
    whole.load(data=rows, mode="append")
    ana = open_graph(whole.uri, policy=load_policy(PAIRED)).acting_as("act-ana")
    data = rows.replace(', "salary": 3', "").replace("ada", "new")
    for write in (
        lambda: ana.mutate(written('insert Person { name: "new", city: "Oslo" }')),
        lambda: ana.load(data=data, mode="append"),
        lambda: ana.load(data=data, mode="append", errors=og.ErrorOptions(on_error="skip")),
        lambda: ana.load(data=data + data.replace("new", "more"), mode="merge"),
    ):
        with pytest.raises(Conflict) as raised:
            write()
        assert raised.value.details == {}
        assert not {"salary", "ada", "3"} & set(raised.value.render().split())
    ana.mutate(written('insert Person { name: "new", city: "Rome" }'))


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (lambda g: g.load(data=ROWS, mode="merge", engine="spark"), "Spark"),
        (lambda g: g.embed(), "`embed` is for actors whose rules are not limited to types"),
    ],
    ids=["load on Spark", "embed"],
)
def test_c_acc_007_writes_whose_rows_are_not_held_against_the_rules_are_refused(
    write: Callable[[Graph], object], told: str, ana: Graph, whole: Graph
):
    head = whole.list_commits()[0].graph_commit_id
    with pytest.raises(Denied, match=told):
        write(ana)
    assert whole.list_commits()[0].graph_commit_id == head


def test_c_acc_007_an_actor_without_limits_writes_as_ever(whole: Graph):
    bo = open_graph(whole.uri, policy=load_policy(BUNDLE)).acting_as("act-bo")
    bo.mutate(written('update Note set { grade: 5 } where slug = "mine"'))
    bo.load(data='{"type": "Note", "data": {"slug": "x"}}', mode="append")
    assert {each["slug"]: each["grade"] for each in notes(whole)} == {
        "mine": 5,
        "theirs": 2,
        "x": None,
    }
