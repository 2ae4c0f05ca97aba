"""Whatever the input: a tree or a `QueryParseError` with a position, and soon."""

from collections.abc import Callable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from omnigraph.errors import QueryParseError
from omnigraph.syntax import query_ast as ast
from omnigraph.syntax import query_expressions as parse_expression
from omnigraph.syntax.query_expressions import OPERATORS_MAX
from omnigraph.syntax.query_parser import parse_query_file
from omnigraph.syntax.tokens import NESTING_MAX
from tests.query.printing import print_query_file
from tests.support.budgets import MANY, budget

HANG_GUARD = pytest.mark.timeout(240)
"""Far above what a linear parser takes, and far below what a quadratic one would."""


@pytest.fixture(autouse=True, scope="module")
def without_limits() -> Iterator[None]:
    """Texts far beyond the limits of a query, to see what the parser does with their size."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("CLAUSES_MAX", "TOKENS_MAX", "VARIABLES_MAX"):
            patch.setattr(parse_expression, name, 10**9)
        patch.setattr(parse_expression._LEXER, "_tokens_max", None)
        yield


VALID = """
query busy($name: String, $ids: [I64]?, $v: Vector(3)) @description("d\\n") @instruction("i") {
    match {
        $p: Person { name: $name, tags: ["a", "b"], born: date("1990-01-02"), }
        $p $k:<knows>{1,3} $f via $r
        $f.age >= -3 + 2 * ($p.age - 1) / 4
        $f.id in $ids   $f.nick is not null   "x" contains $f.name
        search($f.bio, "chess")
        any { $f.age is null  all { $f wrote $b  $b.pages > 100 } }
        not { $f blocks $p }   optional { $f lives $c }
    }
    return distinct { $f.* as friend, count(distinct $b) as n  coalesce($f.a, $f.b, 0) count(*) }
    having { n > 1  n is not null }
    order { n desc, rrf(nearest($f.v, $v), bm25($f.bio, $name), 60), $f.name asc }
    limit 10 offset $m
}
query change { // a comment
    insert Person { name: "x", at: now() gone: null }
    update Person set { age: 3 } where a = 1 and (b < 2 or c is not null) /* another */
    delete Person where day in [1, -2.5, true]
}
"""

WORDS = """
query match return distinct having order limit offset as asc desc not optional any all via in is
null contains starts_with insert update set delete where and or now date datetime search fuzzy
match_text bm25 nearest rrf count sum min collect lower round coalesce true false name x
A Person String I64 Vector $a $b $_ $name $A 0 1 42 2.5 -3 99999999999999999999
"s" "2031-04-09" "" 'q' # ; /* // é
{ } ( ) [ ] : , . .. @ ? = != < <= > >= + - * / == <> ->
"""
VOCABULARY = [*WORDS.split(), "\n"]


def parse_or_refuse(origin: str | bytes) -> ast.QueryFile | None:
    """Parse, and check the promises about errors."""
    try:
        return parse_query_file(origin)
    except QueryParseError as error:
        position = error.position
        assert position is not None
        assert position.line >= 1
        assert position.column >= 1
        size = len(origin if isinstance(origin, bytes) else origin.encode("utf-8", "surrogatepass"))
        assert 0 <= position.byte_start <= size
        assert position.byte_end > position.byte_start
        assert error.message.startswith("parse error: ")
        assert error.reason
        assert error.render().count("\n") <= 5
        return None


def test_the_sample_is_valid():
    file = parse_or_refuse(VALID)
    assert file is not None
    assert len(file.queries) == 2


@given(st.text(max_size=200))
@example("\ud800")
@example('"\ud800"')
@example("\0")
@example("\ufeff")
def test_arbitrary_text(text):
    parse_or_refuse(text)


@given(st.binary(max_size=200))
def test_arbitrary_bytes(raw):
    parse_or_refuse(raw)


@given(st.lists(st.sampled_from(VOCABULARY), max_size=60), st.sampled_from([" ", "", "\n"]))
@MANY
def test_token_soup(words, separator):
    parse_or_refuse(separator.join(words))


@given(st.lists(st.sampled_from(VOCABULARY), max_size=12), st.sampled_from(range(6)))
@MANY
def test_token_soup_at_every_place_of_a_query(words, place):
    soup = " ".join(words)
    frames = [
        f"query q({soup}) {{ match {{ $a: A }} return {{ $a }} }}",
        f"query q() {{ match {{ $a: A {soup} }} return {{ $a }} }}",
        f"query q() {{ match {{ $a: A }} return {{ $a {soup} }} }}",
        f"query q() {{ match {{ $a: A }} return {{ $a }} {soup} }}",
        f"query q() {{ insert A {{ x: 1 {soup} }} }}",
        f"query q() {{ delete A where x = 1 {soup} }}",
    ]
    file = parse_or_refuse(frames[place])
    if file is not None:
        parse_query_file(print_query_file(file))


@given(
    st.integers(0, len(VALID)),
    st.integers(0, 30),
    st.one_of(st.text(max_size=6), st.sampled_from(VOCABULARY)),
)
@MANY
def test_mutations_of_a_valid_text(at, removed, inserted):
    file = parse_or_refuse(VALID[:at] + inserted + VALID[at + removed :])
    if file is not None:
        parse_query_file(print_query_file(file))


@given(st.integers(0, len(VALID)))
def test_every_prefix_of_a_valid_text(size):
    parse_or_refuse(VALID[:size])


# --- deep -----------------------------------------------------------------------------------------

DEEP = {
    "blocks": ("query q() { match { ", "not { ", "$a.x = 1", " }", " } return { $a } }"),
    "alternatives": (
        "query q() { match { ",
        "any { all { ",
        "$a.x = 1",
        " } }",
        " } return { $a } }",
    ),
    "parentheses": ("query q() { match { $a: A } return { ", "(", "1", ")", " } }"),
    "calls": ("query q() { match { $a: A } return { ", "lower(", "1", ")", " } }"),
    "aggregates": ("query q() { match { $a: A } return { ", "count(", "1", ")", " } }"),
    "lists": ("query q() { insert A { x: ", "[", "1", "]", " } }"),
    "predicates": ("query q() { delete A where ", "(", "x = 1", ")", " }"),
    "mixed predicates": ("query q() { delete A where ", "y = 1 or z = 2 and (", "x = 1", ")", " }"),
    "right sides": ("query q() { match { $a: A } return { ", "1 - (", "1", ")", " } }"),
}


@pytest.mark.parametrize("name", DEEP)
def test_nesting_ends_in_an_error_not_in_a_traceback(name):
    head, opening, core, closing, tail = DEEP[name]
    levels = opening.count("{") + opening.count("(") + opening.count("[")
    for depth in (NESTING_MAX // levels - 1, NESTING_MAX // levels + 1, 1_000, 10_000):
        file = parse_or_refuse(head + opening * depth + core + closing * depth + tail)
        assert (file is not None) == (depth * levels < NESTING_MAX)
        parse_or_refuse(head + opening * depth)


def test_the_deepest_tree_survives_the_recursion_of_python():
    inner = "$a.x" + " + 1" * OPERATORS_MAX
    calls = NESTING_MAX - 2
    text = f"query q() {{ match {{ $a: A }} return {{ {'lower(' * calls}{inner}{')' * calls} }} }}"
    file = parse_or_refuse(text)
    assert file is not None
    assert hash(file.queries) == hash(parse_query_file(text).queries)
    assert file.queries == parse_query_file(text).queries
    assert len(repr(file.queries)) > len(text)
    assert print_query_file(parse_query_file(print_query_file(file))) == print_query_file(file)


# --- large ----------------------------------------------------------------------------------------

SIZE = budget(100_000, 1_000_000)
ITEM = "query q() { match { $a: A } return { "
RIGHT_SIDE = "query q() { match { $a.x = "
NONSENSE: dict[str, Callable[[int], str]] = {
    "open braces": lambda size: "{" * size,
    "open parentheses": lambda size: ITEM + "(" * size,
    "one word": lambda size: "a" * size,
    "one variable": lambda size: "query q() { match { $" + "a" * size,
    "digits": lambda size: RIGHT_SIDE + "9" * size + " } return { $a } }",
    "whole decimals": lambda size: RIGHT_SIDE + "9" * size + ".0 } return { $a } }",
    "bounds": lambda size: "query q() { match { $a x{" + "9" * size,
    "an unterminated string": lambda size: '"' + "x" * size,
    "unterminated escapes": lambda size: '"' + "\\" * size,
    "quotes": lambda size: '"' * size,
    "bad escapes": lambda size: 'query q() @description("' + "\\d" * (size // 2) + '") {',
    "unterminated comments": lambda size: "/*" * (size // 2),
    "slashes": lambda size: ITEM + "1" + "/ " * (size // 2),
    "dollars": lambda size: "$" * size,
    "signs": lambda size: ITEM + "-" * size,
    "a sum": lambda size: ITEM + "1" + "+1" * (size // 2) + " } }",
    "an unknown function": lambda size: ITEM + "f" * size + "(1) } }",
    "a bad date": lambda size: ITEM + 'date("' + "9" * size + '") } }',
    "an unknown type": lambda size: "query q($x: " + "T" * size + ") {",
    "nul characters": lambda size: "\0" * size,
    "a missing brace": lambda size: "query q() { match {\n" + "$a.x = 1\n" * (size // 9),
}
SENSE: dict[str, Callable[[int], str]] = {
    "spaces": lambda size: " " * size,
    "comments": lambda size: "/**/" * (size // 4),
    "line comments": lambda size: "//\n" * (size // 3),
    "decimals": lambda size: RIGHT_SIDE + "0." + "9" * size + " } return { $a } }",
    "a string": lambda size: RIGHT_SIDE + '"' + "x" * size + '" } return { $a } }',
    "escapes": lambda size: RIGHT_SIDE + '"' + "\\n" * (size // 2) + '" } return { $a } }',
    "a list": lambda size: RIGHT_SIDE + "[" + "1," * (size // 2) + "1] } return { $a } }",
    "clauses": lambda size: (
        "query q() { match { " + "$a.x = 1 " * (size // 9) + "} return { $a } }"
    ),
    "items": lambda size: ITEM + "$a.x " * (size // 5) + "} }",
    "arguments": lambda size: ITEM + "coalesce(1" + ",1" * (size // 2) + ") } }",
    "assignments": lambda size: "query q() { insert A { " + "x: 1 " * (size // 5) + "} }",
    "tests": lambda size: "query q() { delete A where x = 1" + " or x = 1" * (size // 9) + " }",
    "queries": lambda size: (ITEM + "$a } }\n") * (size // 44),
}


@HANG_GUARD
@pytest.mark.parametrize("name", NONSENSE)
def test_a_lot_of_nonsense_is_refused(name):
    assert parse_or_refuse(NONSENSE[name](SIZE)) is None


@HANG_GUARD
@pytest.mark.parametrize("name", SENSE)
def test_a_lot_of_sense_is_parsed(name):
    file = parse_or_refuse(SENSE[name](SIZE))
    assert file is not None
    assert print_query_file(file) is not None
