"""The clauses of a match as they are parsed."""

import pytest

from omnigraph.syntax import query_ast as ast
from tests.query.parsing import (
    clause,
    clauses,
    hop,
    refused,
    refused_clause,
)

# --- bindings -------------------------------------------------------------------------------------


def test_c_qry_005_pairs_allow_a_trailing_comma_and_empty_braces():
    for text, names in [
        ("$b: Book", []),
        ("$b: Book {}", []),
        ("$b: Book { title: $t }", ["title"]),
        ("$b: Book { title: $t, pages: 3, }", ["title", "pages"]),
    ]:
        found = clause(text)
        assert isinstance(found, ast.Binding)
        assert (found.variable.name, found.type_name) == ("b", "Book")
        assert [pair.name for pair in found.pairs] == names


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('"x"', ast.Literal),
        ("-3", ast.Literal),
        ("true", ast.Literal),
        ('date("2031-04-09")', ast.Literal),
        ("[1, 2]", ast.ListLiteral),
        ("$p", ast.Variable),
        ("now()", ast.Now),
    ],
)
def test_pair_values_are_literals_variables_and_now(value, expected):
    found = clause(f"$b: Book {{ x: {value} }}")
    assert isinstance(found, ast.Binding)
    assert isinstance(found.pairs[0].value, expected)


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ("{ x: 1 y: 2 }", "expected `,` or `}`"),
        ("{ , }", "expected a property name or `}`, found ','"),
        ("{ x: 1,, }", "expected a property name or `}`, found ','"),
        ("{ x > 1 }", "expected `:` after `x`, found '>'"),
        ("{ x: null }", "expected a literal, a parameter or `now()`"),
        ("{ x: lower($p) }", "expected a literal, a parameter or `now()`"),
        ("{ x: $p.y }", "expected `,` or `}`"),
        ("{ x: 1 + 2 }", "expected `,` or `}`"),
        ("{ X: 1 }", "expected a property name or `}`, found 'X'"),
    ],
)
def test_malformed_pairs_are_refused(pairs, reason):
    assert refused_clause(f"$b: Book {pairs}").reason.startswith(reason)


# --- hops -----------------------------------------------------------------------------------------


def test_a_plain_hop():
    found = hop("$a wrote $b")
    assert (found.left.name, found.edge_word, found.right.name) == ("a", "wrote", "b")
    assert (found.edge_variable, found.bounds, found.path_variable) == (None, None, None)
    assert not found.undirected


def test_hop_with_every_part():
    found = hop("$a $w:<cites>{1,3} $b via $r")
    assert found.edge_variable is not None
    assert found.path_variable is not None
    assert (found.edge_variable.name, found.path_variable.name) == ("w", "r")
    assert found.undirected
    assert found.bounds is not None
    assert (found.bounds.minimum, found.bounds.maximum) == (1, 3)


def test_the_anonymous_variable_is_a_variable():
    found = hop("$_ $_:wrote $_")
    assert found.edge_variable is not None
    assert found.left.is_anonymous
    assert found.edge_variable.is_anonymous
    assert found.right.is_anonymous


def test_c_qry_083_open_bounds_have_no_maximum():
    found = hop("$a wrote { 2 , } $b")
    assert found.bounds is not None
    assert (found.bounds.minimum, found.bounds.maximum) == (2, None)


def test_c_qry_083_bounds_may_be_parameters():
    found = hop("$a wrote{$m,$n} $b").bounds
    assert found is not None
    assert isinstance(found.minimum, ast.Variable)
    assert isinstance(found.maximum, ast.Variable)
    assert (found.minimum.name, found.maximum.name) == ("m", "n")


@pytest.mark.parametrize("bounds", ["0,0", "3,1", "0,4294967295"])
def test_bounds_are_not_compared_by_the_parser(bounds):
    assert hop(f"$a wrote{{{bounds}}} $b").bounds is not None


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("$a wrote{3} $b", "expected `,` in the hop bounds, found '}'", "`{3,3}`"),
        ("$a wrote{1..3} $b", "expected `,` in the hop bounds, found '.'", "`{1,3}`"),
        ("$a wrote{} $b", "expected an integer in the hop bounds, found '}'", None),
        ("$a wrote{,2} $b", "expected an integer in the hop bounds, found ','", None),
        ("$a wrote{-1,2} $b", "expected an integer in the hop bounds, found '-'", None),
        ("$a wrote{$n} $b", "expected `,` in the hop bounds, found '}'", "`{$n,$n}`"),
        ("$a wrote{1,4294967296} $b", "'4294967296' is too large; the largest is 4294967295", None),
        ("$a wrote*1..3 $b", "expected a variable after the edge word `wrote`", "`{1,3}`"),
        ("$a not $b", "expected an edge word, found 'not'", "`not { … }`"),
        ("$a $w:not $b", "expected an edge word, found 'not'", "`not { … }`"),
        ("$a <not> $b", "expected an edge word, found 'not'", "`not { … }`"),
        ("$a Wrote $b", "expected an edge word, found 'Wrote'", "`wrote`"),
        ("$a $w:Wrote $b", "expected an edge word, found 'Wrote'", "`wrote`"),
        ("$a $b", "expected `:` and an edge word after `$b`, found '}'", None),
        ("$a wrote b", "expected a variable after the edge word `wrote`, found 'b'", None),
        ('$a contians "x"', "expected a variable after the edge word `contians`", "`contains`"),
        ("$a -> $b", "expected a comparison after the expression, found '->'", "without an arrow"),
        ("$a -[:WROTE]-> $b", "expected a literal in the list, found ':'", "without an arrow"),
        ("$a -[r:WROTE]-> $b", "expected a literal in the list, found 'r'", "without an arrow"),
        ("$a --> $b", "expected an expression, found '->'", "without an arrow"),
        ("$a wrote $b.x", "expected a clause or `}` after the hop to `$b`, found '.'", None),
    ],
)
def test_malformed_hops_are_refused(text, reason, hint):
    error = refused_clause(text)
    assert error.reason.startswith(reason)
    assert (hint in (error.hint or "")) if hint else error.hint is None


@pytest.mark.parametrize(
    "word", ["contains", "starts_with", "in", "is", "via", "optional", "lower"]
)
def test_variable_word_variable_is_always_a_hop(word):
    found = clauses(f"$q {word} $x $y {word}{{1,2}} $z")
    assert all(isinstance(c, ast.Hop) and c.edge_word == word for c in found)


def test_a_property_behind_variable_and_word_is_refused_with_the_way_out():
    error = refused_clause("$q contains $x.name")
    assert error.hint == "to filter instead of hopping, write `($q) contains $x.…`"
    found = clause("($q) contains $x.name")
    assert isinstance(found, ast.Filter)
    assert isinstance(found.left, ast.Variable)


def test_undirected_hop_and_less_than_are_told_apart():
    assert isinstance(clause("$a <cites> $b"), ast.Hop)
    less = clause("$a < cites")
    assert isinstance(less, ast.Filter)
    assert less.operator == "<"
    assert isinstance(less.right, ast.AliasRef)
    negative = clause("$a <-3")
    assert isinstance(negative, ast.Filter)
    assert negative.right == ast.Literal(-3, negative.right.span)


def test_via_needs_a_variable_behind_it():
    found = clauses("$a wrote $b via = 3")
    assert [type(c) for c in found] == [ast.Hop, ast.Filter]
    assert refused_clause("$a wrote $b via r").reason.startswith("expected a clause or `}`")


# --- filters --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "operator", ["=", "!=", "<", "<=", ">", ">=", "contains", "starts_with", "in"]
)
def test_every_filter_operator(operator):
    right = '["x"]' if operator == "in" else '"x"'
    found = clause(f"$a.name {operator} {right}")
    assert isinstance(found, ast.Filter)
    assert found.operator == operator


def test_operands_of_a_filter_are_positional():
    found = clause('"ann of oz" contains $a.name')
    assert isinstance(found, ast.Filter)
    assert isinstance(found.left, ast.Literal)
    assert isinstance(found.right, ast.PropertyRef)


def test_set_tests_take_a_list_a_parameter_or_a_list_property():
    found = clauses("$a.x in [1, 2] $a.x in $list $a.x in $b.tags $q in [1]")
    rights = [type(c.right) for c in found if isinstance(c, ast.Filter)]
    assert rights == [ast.ListLiteral, ast.Variable, ast.PropertyRef, ast.ListLiteral]


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("$a.x in (1, 2)", "expected `[` or a variable after `in`, found '('", "brackets"),
        ("$a.x in 3", "expected `[` or a variable after `in`, found '3'", None),
        ("$a.x in $b.*", "an entity is not a list", None),
        ("$a.x in [$b]", "expected a literal in the list, found '$b'", "literals only"),
        ("$a.x not in [1]", "expected a comparison after the expression, found 'not'", "not {"),
    ],
)
def test_malformed_set_tests_are_refused(text, reason, hint):
    error = refused_clause(text)
    assert error.reason == reason
    if hint is not None:
        assert hint in (error.hint or "")


def test_null_tests():
    found = clauses("$a.x is null $a.x is not null $a is null lower($a.x) is not null")
    assert [c.negated for c in found if isinstance(c, ast.NullTest)] == [False, True, False, True]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("$a.x is 3", "expected `null` or `not null` after `is`, found '3'"),
        ("$a.x is not 3", "expected `null` after `is not`, found '3'"),
        ("$a.x is NULL", "expected `null` or `not null` after `is`, found 'NULL'"),
    ],
)
def test_malformed_null_tests_are_refused(text, reason):
    assert refused_clause(text).reason == reason


@pytest.mark.parametrize(
    "call", ['search($a.x, "q")', "fuzzy($a.x, $q, 1)", "match_text($a.x, $q)"]
)
def test_a_bare_text_predicate_means_equals_true(call):
    bare, written = clause(call), clause(f"{call} = true")
    assert isinstance(bare, ast.Filter)
    assert isinstance(written, ast.Filter)
    assert isinstance(bare.left, ast.SearchCall)
    assert isinstance(bare.right, ast.Literal)
    assert isinstance(written.right, ast.Literal)
    assert (
        (bare.operator, bare.right.value) == (written.operator, written.right.value) == ("=", True)
    )


def test_a_ranking_call_alone_is_no_clause():
    reason = refused_clause('bm25($a.x, "q")').reason
    assert reason == "expected a comparison after the expression, found '}'"


def test_c_qry_003_a_bare_null_in_a_filter_is_an_alias():
    found = clause("$a.x = null")
    assert isinstance(found, ast.Filter)
    assert isinstance(found.right, ast.AliasRef)
    assert found.right.name == "null"


def test_binary_operators_win_over_a_new_clause():
    assert refused_clause("$a.x = 3 -2 < $b.y").reason.startswith("expected a clause or `}`")
    parenthesised = clauses("$a.x = 3 (-2) < $b.y")
    assert len(parenthesised) == 2


# --- blocks ---------------------------------------------------------------------------------------


def test_not_and_optional_hold_clauses():
    outer = clause("not { $a wrote $b optional { $b.x = 1 $b cites $c } }")
    assert isinstance(outer, ast.Not)
    inner = outer.clauses[1]
    assert isinstance(inner, ast.Optional)
    assert [type(c) for c in inner.clauses] == [ast.Filter, ast.Hop]


def test_any_holds_alternatives_and_all_groups_them():
    found = clause("any { $a.x = 1 all { $a.y = 2 $a.z = 3 } not { $a.w = 4 } all { $a.v = 5 } }")
    assert isinstance(found, ast.Any)
    assert [len(alternative) for alternative in found.alternatives] == [1, 2, 1, 1]
    assert isinstance(found.alternatives[2][0], ast.Not)


@pytest.mark.parametrize(
    "text", ["all { $a.x = 1 }", "not { all { $a.x = 1 } }", "any { not { all { $a.x = 1 } } }"]
)
def test_all_stands_directly_inside_any_only(text):
    assert refused_clause(text).reason.startswith("`all { … }` groups clauses directly inside")


@pytest.mark.parametrize("word", ["not", "optional", "any"])
def test_blocks_hold_at_least_one_clause(word):
    error = refused_clause(f"{word} {{ }}")
    assert error.reason == f"expected a clause in `{word}`, found '}}'"


def test_a_match_holds_at_least_one_clause():
    assert refused_clause("").reason == "expected a clause in the match, found '}'"


def test_block_words_are_words_unless_a_brace_follows():
    found = clauses("not = 1 optional contains $x any > 2 all is null")
    assert [type(c) for c in found] == [ast.Filter, ast.Filter, ast.Filter, ast.NullTest]


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("$a: A and $a.x = 1", "one after another"),
        ("$a: A AND $a.x = 1", "one after another"),
        ("$a: A or $a.x = 1", "any {"),
        ("$a: A where $a.x = 1", "without `where`"),
        ("$a: A return { $a }", "close the match"),
        ("$a: A optinal { $a.x = 1 }", "`optional`"),
        ("$a: A exists $a.x = 1", "`exists { … }`"),
        ("$a: A a.x = 1", "`$a.…`"),
        ("$a: A contains 1", None),
        ("$a: A foo", None),
        ("$a: A Foo", None),
        ("$a: A , $b: B", None),
        ("$a: A )", None),
    ],
)
def test_what_starts_no_clause_is_named(text, hint):
    error = refused_clause(text)
    assert error.reason.startswith("expected a clause or `}` in the match, found")
    assert (hint in (error.hint or "")) if hint else error.hint is None


def test_a_match_that_never_ends_says_where_it_began():
    error = refused("query q() {\n match {\n  $a: A\n")
    assert error.reason == "expected `}` in the match, found the end of the input"
    assert error.hint == "the block opened on line 2"
