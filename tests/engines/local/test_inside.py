"""Blocks solved from a selective variable of their own, and an `any` that begins a match."""

from __future__ import annotations

import pytest

import omnigraph as og
from omnigraph.engines.local import order
from omnigraph.engines.local.inside import can_be_driven, driven
from omnigraph.engines.local.tables import Mode
from omnigraph.query import plan
from tests.engines.local.graphs import city, knows, lives, load, new_graph, person, with_engine
from tests.engines.local.test_order import SIZES, pattern_of, shown

PEOPLE = 400


def test_an_any_that_finds_few_nodes_begins_the_match():
    pattern = pattern_of(
        """
        $p knows $friend
        any { all { $post hasCreator $friend  $post.name = "x" } }
        """
    )
    assert isinstance(pattern.steps[-1], plan.Exists)
    found = driven(pattern, SIZES)
    assert found is not None
    assert shown(found) == [
        "Scan $friend: Person among those of any",
        "Expand $friend <-Knows- $p: Person",
    ]
    scan = found.steps[0]
    assert isinstance(scan, plan.Scan)
    assert [shown(each) for each in scan.among] == [
        ['Scan $post: Post where $post.name = "x"', "Expand $post -HasCreator-> $friend: Person"]
    ]


def test_an_any_stays_a_test_where_it_finds_many_nodes_or_few_rows_ask_it():
    many = "$p knows $friend  any { all { $post hasCreator $friend  $post.words > 3 } }"
    assert driven(pattern_of(many), SIZES) is None
    one = (
        '$p: Person { name: "a" }  $p knows $friend'
        '  any { all { $post hasCreator $friend  $post.name = "x" } }'
    )
    assert not can_be_driven(pattern_of(one))
    two = '$p knows $f  any { all { $f knows $p } all { $post hasCreator $f  $post.name = "x" } }'
    assert driven(pattern_of(two), SIZES) is None  # one alternative cannot be


def test_conditions_on_the_driven_variable_and_on_others_are_kept():
    pattern = pattern_of(
        """
        $p knows $friend  $p.age > 3  $friend.age > 5
        not { $_ hasMember $p }
        any { all { $post hasCreator $friend  $post.name = "x" } }
        """
    )
    found = driven(pattern, SIZES)
    assert found is not None
    assert shown(found) == [
        "Scan $friend: Person among those of any where $friend.age > 5",
        "Expand $friend <-Knows- $p: Person where $p.age > 3",
        "Exclude",
    ]


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> og.Graph:
    """Everyone knows the three next ones, and lives in the city of their ten."""
    made = new_graph(tmp_path_factory.mktemp("inside"))
    records = [person(f"p{no:03}", age=no) for no in range(PEOPLE)]
    records += [city(f"c{no}", size=no) for no in range(PEOPLE // 10)]
    for no in range(PEOPLE):
        records += [knows(f"p{no:03}", f"p{(no + by) % PEOPLE:03}", since=by) for by in (1, 2, 3)]
        records.append(lives(f"p{no:03}", f"c{no // 10}"))
    load(made, *records)
    return made


@pytest.mark.parametrize(
    ("clauses", "strategy"),
    [
        ('$p: Person  any { all { $p knows $q  $q.name = "p007" } }', "nodes of any"),
        ('$p knows $o  any { all { $o livesIn $c  $c.name = "c3" } }', "nodes of any"),
        (
            '$p: Person  any { all { $p knows $q  $q.name = "p007" } all { $p.name = "p100" } }',
            "nodes of any",
        ),
        ('$p: Person  not { $p livesIn $c  $c.name = "c3" }', "anti-join"),
        ('$p: Person  count { $p $e:knows $q  $q.name = "p007"  $e.since > 1 } > 0', "filter"),
        (
            '$p knows $o  not { $p livesIn $c  $o livesIn $c  $c.name = "c3" }',
            "anti-join",
        ),
    ],
)
def test_blocks_solved_from_the_inside_leave_the_same_rows(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, clauses: str, strategy: str
):
    shown = "return { $p.name as p, count(*) as n } order { p }"
    text = f"query q() {{ match {{ {clauses} }} {shown} }}"
    monkeypatch.setattr(order, "GAIN_MIN", 1e12)
    monkeypatch.setattr(order, "WORTH_INSIDE", 1e12)
    rows = with_engine(graph)[0].query(text).to_pylist()
    assert rows
    monkeypatch.setattr(order, "GAIN_MIN", 0.01)
    monkeypatch.setattr(order, "WORTH_INSIDE", 0.0)
    found = with_engine(graph)[0].query(text, explain=True)
    assert found.to_pylist() == rows
    assert found.explain is not None and found.explain.run is not None
    steps = found.explain.run.steps
    assert all(step.expected_rows is not None for step in steps[:-1])
    assert strategy in [step.strategy for step in steps]
    # The variable with the equality is scanned, and not tested row by row.
    assert any(step.step.startswith("Scan $") and " = " in step.step for step in steps)


def test_a_block_of_two_variables_is_solved_once_for_the_one_with_few_nodes(graph: og.Graph):
    text = """
        query q() {
            match {
                $me: Person { name: "p007" }  $me knows{1,40} $near  $near livesIn $c
                not { $me knows{1,9} $other  $other.age != 3  $other livesIn $c }
            }
            return { $c.name as c, count(*) as n } order { c }
        }
    """
    found = with_engine(graph)[0].query(text, explain=True)
    # Up to 120 steps ahead of 7 are the cities 0 to 12; 27 steps ahead those up to 3.
    assert [row["c"] for row in found.to_pylist()] == [
        f"c{no}" for no in (10, 11, 12, 4, 5, 6, 7, 8, 9)
    ]
    assert found.explain is not None and found.explain.run is not None
    inner = [s for s in found.explain.run.steps if "Knows{1,9}" in s.step]
    assert [step.rows for step in inner] == [27]


@pytest.mark.parametrize(
    ("clauses", "inner", "solutions"),
    [
        (
            (
                "$near livesIn $c"
                "  optional { $other livesIn $c  $near knows $other  $other.age != 25 }"
            ),
            "Expand $c <-LivesIn- $other",
            69,  # of 7 cities, not of 60 people
        ),
        ('$near: Person  optional { $near knows $other  $other.name = "p012" }', "Scan $other", 1),
    ],
)
def test_an_optional_match_solved_once_for_few_nodes_extends_the_same_rows(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, clauses: str, inner: str, solutions: int
):
    text = f"""
        query q() {{
            match {{ $me: Person {{ name: "p007" }}  $me knows{{1,20}} $near  {clauses} }}
            return {{ $near.name as near, $other.name as other }} order {{ near, other }}
        }}
    """
    monkeypatch.setattr(order, "WORTH_INSIDE", 1e12)
    rows = with_engine(graph)[0].query(text).to_pylist()
    assert {row["other"] for row in rows} >= {None, "p012"}
    monkeypatch.setattr(order, "WORTH_INSIDE", 0.0)
    monkeypatch.setattr(order, "GAIN_MIN", 0.01)
    found = with_engine(graph)[0].query(text, explain=True)
    assert found.to_pylist() == rows
    assert found.explain is not None and found.explain.run is not None
    steps = found.explain.run.steps
    at = [step.strategy for step in steps].index("left join")
    assert steps[at + 1].step.startswith(inner)
    assert steps[at + 1].rows == solutions


@pytest.mark.parametrize("mode", ["csr", "indexed"])
def test_the_nodes_of_a_list_are_found_by_their_ids(graph: og.Graph, mode: Mode):
    text = """
        query q() {
            match {
                $me: Person { name: "p007" }  $me knows{1,9} $far via $path  $far.age > 14
                $x: Person  ($x) in $path.nodes  $x.age != 10
            }
            return { $far.name as far, $x.name as x } order { far, x desc }
        }
    """
    found = with_engine(graph, mode)[0].query(text, explain=True)
    ways: dict[str, list[str]] = {}
    for row in found.to_pylist():
        ways.setdefault(row["far"], []).append(row["x"])
    assert [*ways] == [f"p{no:03}" for no in range(15, 35)]
    # Among paths of equal length the one of the smallest ids is taken, from the target backwards.
    assert ways["p015"] == ["p015", "p012", "p009", "p007"]
    assert ways["p016"] == ["p016", "p013", "p007"]
    assert found.explain is not None and found.explain.run is not None
    assert "items of lists" in [step.strategy for step in found.explain.run.steps]


def test_a_value_by_which_rows_are_ordered_is_computed_once(graph: og.Graph):
    text = """
        query q() {
            match { $c: City }
            return { $c.name as c, count { $p livesIn $c  $p.age != 25 } as people }
            order { people, $c.size desc } limit 3
        }
    """
    found = with_engine(graph)[0].query(text, explain=True)
    assert found.to_pylist() == [
        {"c": "c2", "people": 9},
        {"c": "c39", "people": 10},
        {"c": "c38", "people": 10},
    ]
    assert found.explain is not None and found.explain.run is not None
    solved = [step for step in found.explain.run.steps if "LivesIn" in step.step]
    assert len(solved) == 1


@pytest.mark.parametrize(
    ("stage", "clauses"),
    [
        (
            "match { $x: City  $x.size < 4 } with { collect($x.name) as chosen }",
            "$p: Person  any { all { $p livesIn $c  chosen contains $c.name } }",
        ),
        (
            "match { $x: City  $x.size < 4 } with { collect($x.name) as chosen }",
            "$p knows $o  not { $p livesIn $c  $o livesIn $c  chosen contains $c.name }",
        ),
        (
            "match { $x: City } with { max($x.size) as chosen }",
            "$p: Person  count { $p knows $q  $q livesIn $c  $c.size = chosen } > 1",
        ),
        (
            "match { $x: City  $x.size < 0 } with { collect($x.name) as chosen }",
            "$p: Person  not { $p livesIn $c  chosen contains $c.name }",
        ),
    ],
)
def test_a_block_is_solved_from_the_nodes_that_a_value_of_the_stage_before_chooses(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, stage: str, clauses: str
):
    shown = "return { $p.name as p, count(*) as n } order { p }"
    text = f"query q() {{ {stage} match {{ {clauses} }} {shown} }}"
    monkeypatch.setattr(order, "WORTH_INSIDE", 1e12)
    rows = with_engine(graph)[0].query(text).to_pylist()
    assert rows
    monkeypatch.setattr(order, "GAIN_MIN", 0.01)
    monkeypatch.setattr(order, "WORTH_INSIDE", 0.0)
    found = with_engine(graph)[0].query(text, explain=True)
    assert found.to_pylist() == rows
    assert found.explain is not None and found.explain.run is not None
    assert "Scan $c: City" in [step.step for step in found.explain.run.steps]


def test_rows_with_different_values_are_asked_one_by_one(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
):
    text = """
        query q() {
            match { $x: City  $x.size < 4 } with { $x.size as size }
            match { $p: Person  count { $p livesIn $c  $c.size = size } > 0 }
            return { size, count(*) as people } order { size }
        }
    """
    monkeypatch.setattr(order, "GAIN_MIN", 0.01)
    monkeypatch.setattr(order, "WORTH_INSIDE", 0.0)
    found = with_engine(graph)[0].query(text, explain=True)
    assert [(row["size"], row["people"]) for row in found.to_pylist()] == [
        (size, 10) for size in range(4)
    ]
    assert found.explain is not None and found.explain.run is not None
    assert "Scan $c: City" not in [step.step for step in found.explain.run.steps]
