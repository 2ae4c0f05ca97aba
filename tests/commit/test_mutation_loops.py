"""Loops over lists of values and records, and values that are computed, in mutations."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.commit import mutate as commit_mutate
from omnigraph.commit.mutate import MutationOutcome
from omnigraph.commit.validation import validate
from omnigraph.errors import (
    ConstraintViolation,
    InputError,
    LimitExceeded,
    ParameterError,
    QueryTypeError,
    ValueConversionError,
)
from omnigraph.query.explain import show_constant
from tests.commit.conftest import MemoryView, catalog_of, graph_of
from tests.commit.conftest import mutate as run

CATALOG = catalog_of(
    """
interface Message { number: I64 }
node Post implements Message { number: I64 @key  text: String?  likes: I32 @default(0) }
node Comment implements Message { number: I64 @key  text: String? }
node Tag { name: String @key  uses: I64?  weight: F32?  words: [String]?  vec: Vector(2)? }
node Day { date: Date @key  open: Bool? }
node Place { x: I32  y: I32  @key(x, y) }
edge HasTag: Post -> Tag { rank: I32? }
edge On: Post -> Day
edge At: Post -> Place
edge ReplyOf: Comment -> Message
edge Related: Tag -> Tag { strength: F64  seen: DateTime? }
"""
)


def mutate(view: MemoryView, statements: str, /, **options: Any) -> MutationOutcome:
    return run(CATALOG, view, statements, **options)


def rows(view: MemoryView, outcome: MutationOutcome, key: str, *names: str) -> list[Any]:
    found = view.after(outcome.change_set).entities(key)
    return [tuple(row[name] for name in names) for row in found.values()]


EMPTY = graph_of(CATALOG)
TAGS = graph_of(
    CATALOG,
    Post=[{"id": "7", "number": 7, "likes": 2}],
    Tag=[{"id": name, "name": name, "uses": at} for at, name in enumerate("abc")],
)

# --- loops ----------------------------------------------------------------------------------------


def test_c_qry_090_a_loop_runs_its_statements_for_each_item_in_order():
    statements = """
        insert Post { number: $post }
        for $t in $tags { insert Tag { name: $t } insert HasTag { from: $post, to: $t } }
    """
    declared = "$post: I64, $tags: [String]"
    outcome = mutate(EMPTY, statements, declared=declared, post=7, tags=["x", "y", "x"])
    assert (outcome.affected_nodes, outcome.affected_edges) == (4, 3)
    assert rows(EMPTY, outcome, "edge:HasTag", "src", "dst") == [("7", t) for t in ("x", "y", "x")]
    assert rows(EMPTY, outcome, "node:Tag", "name") == [("x",), ("y",)]
    validate(outcome.change_set, CATALOG, EMPTY)


def test_c_qry_090_no_items_and_a_null_list_run_nothing():
    loop = "for $t in $tags { insert Tag { name: $t } }"
    empty: list[str] = []
    for tags in (empty, None):
        outcome = mutate(EMPTY, loop, declared="$tags: [String]?", tags=tags)
        assert (outcome.affected_nodes, outcome.change_set.tables) == (0, {})


def test_c_qry_090_a_loop_over_records_names_their_fields():
    statements = "for $t in $tags { insert Tag { name: $t.name, uses: $t.uses, words: $t.words } }"
    declared = "$tags: [{ name: String, uses: I64?, words: [String]? }]"
    given = [{"name": "x", "uses": "9007199254740993"}, {"name": "y", "words": ["a", "b"]}]
    outcome = mutate(EMPTY, statements, declared=declared, tags=given)
    assert rows(EMPTY, outcome, "node:Tag", "name", "uses", "words") == [
        ("x", 9007199254740993, None),
        ("y", None, ["a", "b"]),
    ]


def test_c_qry_090_loops_nest_over_the_lists_in_records():
    statements = """
        for $p in $posts {
            insert Post { number: $p.number }
            for $t in $p.tags { insert HasTag { from: $p.number, to: $t, rank: $rank } }
        }
    """
    declared = "$posts: [{ number: I64, tags: [String] }], $rank: I32"
    posts = [{"number": 1, "tags": ["a", "b"]}, {"number": 2, "tags": []}]
    outcome = mutate(TAGS, statements, declared=declared, posts=posts, rank=5)
    assert rows(TAGS, outcome, "edge:HasTag", "src", "dst", "rank") == [
        ("1", "a", 5),
        ("1", "b", 5),
    ]
    validate(outcome.change_set, CATALOG, TAGS)


def test_c_qry_090_statements_in_a_loop_read_what_earlier_passes_wrote():
    statements = """
        insert Tag { name: "new", uses: 0 }
        for $t in $tags { update $x: Tag set { uses: $x.uses + 1 } where name = $t }
    """
    tags = ["new", "a", "new", "b", "new"]
    outcome = mutate(TAGS, statements, declared="$tags: [String]", tags=tags)
    assert outcome.affected_nodes == 6
    found = rows(TAGS, outcome, "node:Tag", "name", "uses")
    assert sorted(found) == [("a", 1), ("b", 2), ("c", 2), ("new", 3)]


def test_c_qry_090_a_loop_deletes_and_counts_what_overlaps_once():
    statements = "for $t in $tags { delete Tag where name = $t.name or uses = $t.uses }"
    tags = [{"name": "a", "uses": 1}, {"name": "b", "uses": 0}]
    outcome = mutate(TAGS, statements, declared="$tags: [{ name: String, uses: I64 }]", tags=tags)
    assert outcome.affected_nodes == 2
    assert rows(TAGS, outcome, "node:Tag", "name") == [("c",)]


def test_c_qry_090_the_number_of_statements_is_bounded(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(commit_mutate, "STATEMENTS_MAX", 6)
    loop = "for $a in $n { for $b in $n { insert Tag { name: $a } } }"
    assert mutate(EMPTY, loop, declared="$n: [String]", n=["x", "y"]).affected_nodes == 4
    with pytest.raises(LimitExceeded, match="statements that a mutation runs") as caught:
        mutate(EMPTY, loop, declared="$n: [String]", n=["x", "y", "z"])
    assert caught.value.hint == "pass shorter lists in several mutations, or load the rows"


def test_c_qry_090_one_bad_item_refuses_the_whole_mutation():
    loop = "for $t in $tags { insert HasTag { from: 7, to: $t } }"
    outcome = mutate(TAGS, loop, declared="$tags: [String]", tags=["a", "lost"])
    with pytest.raises(ConstraintViolation, match="lost"):
        validate(outcome.change_set, CATALOG, TAGS)


def literal(value: Any) -> str:
    return show_constant(value)


@given(
    items=st.lists(st.tuples(st.sampled_from("abcde"), st.integers(-9, 9)), max_size=6),
    by=st.integers(-9, 9),
)
def test_c_qry_090_a_loop_equals_its_statements_written_out(items: list[Any], by: int):
    body = """
        insert Tag {{ name: {name}, uses: {uses} * 2 }}
        update $x: Tag set {{ uses: $x.uses + {by} }} where uses < {uses}
    """
    loop = "for $i in $items {" + body.format(name="$i.name", uses="$i.uses", by="$by") + "}"
    written = "".join(
        body.format(name=literal(name), uses=literal(uses), by=literal(by)) for name, uses in items
    )
    looped = mutate(
        TAGS,
        loop,
        declared="$items: [{ name: String, uses: I64 }], $by: I64",
        items=[{"name": name, "uses": uses} for name, uses in items],
        by=by,
    )
    if not items:
        assert not looped.change_set.tables
        return
    plain = mutate(TAGS, written)
    assert looped.affected_nodes == plain.affected_nodes
    for key in ("node:Tag",):
        assert TAGS.after(looped.change_set).entities(key) == (
            TAGS.after(plain.change_set).entities(key)
        )


# --- endpoints ------------------------------------------------------------------------------------


def test_c_qry_090_ends_are_keys_of_any_type():
    statements = """
        insert Post { number: 7 }  insert Day { date: date("2031-04-09") }
        insert On { from: $post, to: $day }
        insert On { from: 7, to: date("2031-04-09") }
        insert On { from: "7", to: $id }
    """
    day = dt.date(2031, 4, 9)
    days = str((day - dt.date(1970, 1, 1)).days)
    outcome = mutate(
        EMPTY, statements, declared="$post: I32, $day: Date, $id: String", post=7, day=day, id=days
    )
    assert rows(EMPTY, outcome, "edge:On", "src", "dst") == [("7", days)] * 3
    validate(outcome.change_set, CATALOG, EMPTY)


def test_c_qry_090_ends_at_an_interface_are_keys_too():
    statements = """
        insert Post { number: 1 } insert Comment { number: 2 } insert Comment { number: 3 }
        insert ReplyOf { from: 2, to: $to }
        insert ReplyOf { from: 3, to: 2, to_type: "Comment" }
    """
    outcome = mutate(EMPTY, statements, declared="$to: I64", to=1)
    prefixes = CATALOG.edges["ReplyOf"].end_types["dst"]
    assert rows(EMPTY, outcome, "edge:ReplyOf", "src", "dst") == [
        ("2", prefixes["Post"] + "1"),
        ("3", prefixes["Comment"] + "2"),
    ]
    validate(outcome.change_set, CATALOG, EMPTY)


def test_c_qry_090_a_where_finds_edges_by_keys_of_any_type():
    view = graph_of(
        CATALOG,
        HasTag=[{"id": str(at), "src": str(at % 3), "dst": "a", "rank": at} for at in range(6)],
    )
    deleted = mutate(view, "delete HasTag where from = $post", declared="$post: I64", post=1)
    assert deleted.affected_edges == 2
    several = "for $p in $posts { delete HasTag where from in [2] or from = $p }"
    assert mutate(view, several, declared="$posts: [I64]", posts=[0]).affected_edges == 4
    assert view.reads[0] == ("lookup", "edge:HasTag", "src")


@pytest.mark.parametrize(
    ("statement", "code", "reason"),
    [
        ("insert On { from: true, to: $s }", "T3", "`from` of On is the key of a node, a I64, or"),
        ("insert On { from: 1.5, to: $s }", "T3", "`from` of On is the key of a node, a I64, or"),
        ("insert On { from: 1, to: 2 }", "T3", "`to` of On is the key of a node, a Date, or its"),
        ("insert At { from: 1, to: 2 }", "T3", "`to` of At is the id of a node: a String"),
        ("insert On { from: $l, to: $s }", "T7", "`from` of On is the key of a node, a I64, or"),
    ],
)
def test_ends_of_other_types_are_refused(statement: str, code: str, reason: str):
    with pytest.raises(QueryTypeError) as caught:
        mutate(EMPTY, statement, declared="$s: String, $l: [I64]", s="", l=[])
    assert caught.value.diagnostic == code
    assert caught.value.reason.startswith(reason)


# --- computed values ------------------------------------------------------------------------------


def test_c_qry_090_inserted_values_are_computed_from_parameters():
    statement = """insert Tag {
        name: concat(lower($name), "-", $suffix)  uses: $n * 2 + 1  weight: $n
        words: split($name, " ")
    }"""
    outcome = mutate(
        EMPTY, statement, declared="$name: String, $suffix: String, $n: I32", name="A B",
        suffix="x", n=3,
    )  # fmt: skip
    assert rows(EMPTY, outcome, "node:Tag", "name", "uses", "weight", "words") == [
        ("a b-x", 7, 3.0, ["A", "B"])
    ]


def test_c_qry_090_an_update_computes_from_the_values_before_it():
    update = """update $t: Tag set {
        uses: $t.uses * $by  weight: $t.uses + 0.5  words: split($t.name, "")
    } where uses >= 1"""
    outcome = mutate(TAGS, update, declared="$by: I64", by=10)
    assert outcome.affected_nodes == 2
    found = rows(TAGS, outcome, "node:Tag", "name", "uses", "weight", "words")
    assert [row[:3] for row in sorted(found)] == [("a", 0, None), ("b", 10, 1.5), ("c", 20, 2.5)]


def test_c_qry_090_edges_are_updated_from_their_own_values():
    view = graph_of(
        CATALOG,
        Related=[{"id": at, "src": "a", "dst": "b", "strength": 0.5, "seen": None} for at in "xy"],
    )
    update = """update $r: Related set {
        strength: if($r.seen is null, 0 - $r.strength, $r.strength)
    } where from = "a\""""
    outcome = mutate(view, update)
    assert outcome.affected_edges == 2
    assert rows(view, outcome, "edge:Related", "strength") == [(-0.5,), (-0.5,)]


def test_c_qry_090_a_computed_value_that_does_not_fit_is_refused_by_name():
    for update, problem in [
        ("update $p: Post set { likes: $p.likes + 2147483647 } where likes = 2", "Int32 range"),
        ("update $p: Post set { likes: if($p.likes = 1, 1) } where likes = 2", "'likes'"),
    ]:
        with pytest.raises(ValueConversionError, match=problem):
            mutate(TAGS, update)
    with pytest.raises(InputError, match="does not fit"):
        mutate(TAGS, "update $t: Tag set { uses: $t.uses + 9223372036854775807 } where uses = 1")


def test_a_computed_update_is_never_prepared_again():
    from omnigraph.query.compile import compile_query
    from omnigraph.query.plan import MutationPlan

    loop = "for $t in $tags {{ {} }}"
    for body, is_insert_only in [
        ("insert Tag { name: $t }", True),
        ("insert Tag { name: $t } update $x: Tag set { uses: $x.uses + 1 } where name = $t", False),
    ]:
        compiled = compile_query(f"query q($tags: [String]) {{ {loop.format(body)} }}", CATALOG)
        assert isinstance(compiled, MutationPlan)
        assert compiled.is_insert_only is is_insert_only


# --- what is refused ------------------------------------------------------------------------------

LISTS = "$tags: [String], $n: I64, $recs: [{ name: String, uses: I64? }]"


@pytest.mark.parametrize(
    ("statements", "code", "reason"),
    [
        ("for $t in $n { insert Tag { name: $t } }", "T7", "`$n` is a I64, not a list"),
        ("for $t in $none { insert Tag { name: $t } }", "T14", "`$none` is not a declared"),
        ("for $n in $tags { insert Tag { name: $n } }", "T26", "`$n` is a parameter already"),
        ("for $_ in $tags { insert Tag { name: $n } }", "T14", "the variable of a loop has a name"),
        ("for $t in $recs { insert Tag { name: $t } }", "T7", "`$t` is a record"),
        ("for $t in $recs { insert Tag { name: $t.nam } }", "T6", "the records `$t` have no field"),
        ("for $t in $tags { insert Tag { name: $t.name } }", "T6", "`$t` is not bound here"),
        ("for $t in $tags { insert Tag { name: $t } } insert Tag { name: $t }", "T14", "`$t` is"),
        ("insert Tag { name: $recs }", "T7", "parameter `$recs` is a list of records"),
        ("for $t in $recs { for $x in $t.uses { delete Tag where uses = $x } }", "T7", "`$t.uses`"),
        (
            "for $t in $tags { insert Tag { name: $t } } delete Tag where uses = 1",
            None,
            "mutation 'q' on the same query mixes",
        ),
        ("insert Tag { name: $n + 1 }", "T7", "this computation is I64, but Tag.name is String"),
        ("insert Tag { name: count($n) }", "T7", "`count(…)` is not a value here"),
        ("update $t: Tag set { uses: $t.size } where uses = 1", "T6", "node type Tag has no"),
        ("update Tag set { uses: $t.uses } where uses = 1", "T6", "`$t` is not bound here"),
        ("update $n: Tag set { uses: 1 } where uses = 1", "T26", "`$n` is a parameter already"),
        ("update $t: Tag set { uses: $t.weight } where uses = 1", "T7", "`$t.weight` is F32?, but"),
        ("update $t: Tag set { uses: 1 } where uses = $t.uses", "T6", "`$t` is not bound here"),
    ],
)
def test_c_qry_090_mistakes_have_codes(statements: str, code: str | None, reason: str):
    with pytest.raises(QueryTypeError) as caught:
        mutate(EMPTY, statements, declared=LISTS)
    assert caught.value.diagnostic == code, caught.value
    assert caught.value.reason.startswith(reason), caught.value.reason


def test_c_qry_090_a_read_takes_no_records():
    from omnigraph.query.compile import compile_query

    with pytest.raises(QueryTypeError, match="which only mutations take"):
        compile_query("query q($r: [{ a: I32 }]) { match { $t: Tag } return { $t.name } }", CATALOG)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"name": "x"}, "expects [{ name: String, uses: I64? }], got"),
        ([["x"]], "'recs[0]' expects a record, got"),
        ([{"name": "x"}, {}], "'recs[1]' has no value for field `name`"),
        ([{"name": "x", "use": 1}], "'recs[0]' has no field `use`"),
        ([{"name": "x", "uses": "many"}], "'recs[0].uses' expects I64"),
        (None, "'recs' is null"),
    ],
)
def test_c_qry_090_wrong_records_are_named_by_place(given: Any, problem: str):
    if isinstance(given, dict):
        problem = "parameter 'recs' must not be an object"
    with pytest.raises(ParameterError) as caught:
        mutate(
            EMPTY,
            "for $r in $recs { insert Tag { name: $r.name } }",
            declared="$recs: [{ name: String, uses: I64? }]",
            recs=given,
        )
    assert problem in caught.value.message
