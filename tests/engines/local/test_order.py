"""The order of steps that the sizes of tables make cheapest."""

from __future__ import annotations

import pytest

from omnigraph.engines.local.order import TableSizes, expected_rows, is_open, ordered
from omnigraph.query import plan
from omnigraph.query.compile import compile_query
from omnigraph.query.explain import explain_step
from omnigraph.schema.compile import compile_schema

CATALOG = compile_schema(
    """
    node Person { name: String @key  age: I32? }
    node Forum { name: String @key }
    node Post { name: String @key  words: I32? }
    node Tag { name: String @key }
    edge Knows: Person -> Person
    edge HasMember: Forum -> Person { since: I32? }
    edge ContainerOf: Forum -> Post
    edge HasCreator: Post -> Person
    edge HasTag: Post -> Tag
    """
).catalog
ROWS = {
    "Person": 10_000,
    "Forum": 10_000,
    "Post": 100_000,
    "Tag": 1_000,
    "Knows": 200_000,
    "HasMember": 500_000,
    "ContainerOf": 100_000,
    "HasCreator": 100_000,
    "HasTag": 300_000,
}
SIZES = TableSizes(ROWS.__getitem__, ROWS.__getitem__)


def pattern_of(match: str) -> plan.Pattern:
    compiled = compile_query(f"query q() {{ match {{ {match} }} return {{ count(*) }} }}", CATALOG)
    assert isinstance(compiled, plan.ReadPlan)
    return compiled.pattern


def shown(pattern: plan.Pattern) -> list[str]:
    return [explain_step(step) for step in pattern.steps]


def test_the_end_with_fewer_rows_is_followed_first():
    pattern = pattern_of(
        """
        $me: Person { name: "a" }  $me knows{1,2} $near
        $forum $m:hasMember $near  $m.since > 3
        $forum containerOf $post  $post hasCreator $near
        """
    )
    assert shown(ordered(pattern, SIZES)) == [
        'Scan $me: Person where $me.name = "a"',
        "Expand $me -Knows{1,2}-> $near: Person",
        "Expand $near <-HasCreator- $post: Post",
        "Expand $post <-ContainerOf- $forum: Forum",
        "Check $near <-$m:HasMember- $forum: Forum where $m.since > 3",
    ]
    # With as few members as creators the order of the compiler is as good.
    few = TableSizes(ROWS.__getitem__, (ROWS | {"HasMember": 10_000}).__getitem__)
    assert ordered(pattern, few) is pattern


def test_a_negation_waits_until_fewer_rows_are_left():
    pattern = pattern_of(
        """
        $me: Person { name: "a" }  $me knows $friend
        not { $friend hasMember $_ }
        $post hasCreator $friend  $post hasTag $tag  $tag.name = "x"
        """
    )
    assert [type(step) for step in pattern.steps[:3]] == [plan.Scan, plan.Expand, plan.Exclude]
    sizes = TableSizes(ROWS.__getitem__, (ROWS | {"HasCreator": 5_000}).__getitem__)
    steps = ordered(pattern, sizes).steps
    assert isinstance(steps[-1], plan.Exclude)
    assert len(steps) == len(pattern.steps)
    # Where every later step makes more rows, it stays where it was.
    more = TableSizes(ROWS.__getitem__, (ROWS | {"HasCreator": 10**8, "HasTag": 10**8}).__getitem__)
    assert [type(step) for step in ordered(pattern, more).steps[:3]] == [
        plan.Scan,
        plan.Expand,
        plan.Exclude,
    ]


def test_patterns_with_one_order_keep_it():
    assert not is_open(pattern_of("$p: Person"))
    assert not is_open(pattern_of("$p: Person  $p knows $f"))
    # Which rows a computation fails for depends on the order.
    start = '$p: Person { name: "a" }  $p knows $f  $f knows $g'
    assert not is_open(pattern_of(f"{start}  $g.age + 1 > 3"))
    assert is_open(pattern_of(f"{start}  $g.age > 3"))


def test_what_an_optional_match_reads_stays_behind_it():
    pattern = pattern_of(
        """
        $me: Person { name: "a" }  $me knows{1,2} $near
        $forum hasMember $near  $forum containerOf $post  $post hasCreator $near
        optional { $post hasTag $tag }  $tag.name is null
        """
    )
    steps = ordered(pattern, SIZES).steps
    assert steps[-2:] == pattern.steps[-2:]
    assert isinstance(steps[-2], plan.Extend)


def test_each_step_has_an_estimate():
    pattern = pattern_of(
        """
        $me: Person { name: "a" }  $me knows $friend  $friend.age > 3
        $post hasCreator $friend  not { $post hasTag $_ }  optional { $forum containerOf $post }
        """
    )
    rows, found = 1.0, []
    for step in pattern.steps:
        rows = expected_rows(step, rows, SIZES)
        found.append(round(rows))
    # One node, its 20 friends of whom 30 % pass, 10 posts each, half of them without a tag.
    assert found == [1, 6, 60, 30, 30]


def test_a_list_that_is_given_is_expected_to_leave_few_nodes():
    given, stored = pattern_of('$a: Person  $a.name in ["a", "b"]'), pattern_of("$a: Person")
    (listed,), (every,) = given.steps, stored.steps
    few, all_of_them = expected_rows(listed, 1.0, SIZES), expected_rows(every, 1.0, SIZES)
    assert few == pytest.approx(10 * all_of_them**0.5)


def test_a_search_is_asked_from_both_ends_where_an_equality_fixes_its_target():
    search = '$a: Person { name: "a" }  $a knows{0,} $b via all $path'
    pattern = pattern_of(f'{search}  $b.name = "b"')
    assert is_open(pattern)
    assert shown(ordered(pattern, SIZES)) == [
        'Scan $a: Person where $a.name = "a"',
        'Scan $b: Person where $b.name = "b"',
        "Check $a -Knows{0,}-> $b: Person via all $path",
    ]
    # Without a condition that leaves few targets, or after one step, it is cheaper to arrive there.
    for other in (f"{search}  $b.age > 3", '$a: Person { name: "a" }  $a knows $b  $b.name = "b"'):
        pattern = pattern_of(other)
        assert ordered(pattern, SIZES) is pattern
