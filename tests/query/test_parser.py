"""Files, headers, match clauses and the tail of a read, as syntax trees."""

import pytest

from omnigraph.errors import InputError, NotFound, QueryParseError
from omnigraph.model.types import Scalar, ValueType
from omnigraph.query import ast
from omnigraph.query.parser import parse_query_file, select_query
from omnigraph.syntax.source import Source


def query(text: str) -> ast.Query:
    (found,) = parse_query_file(text).queries
    return found


def read(text: str) -> ast.Read:
    body = query(f"query q() {{ {text} }}").body
    assert isinstance(body, ast.Read)
    return body


def clauses(text: str) -> tuple[ast.Clause, ...]:
    return read(f"match {{ {text} }} return {{ $a }}").clauses


def clause(text: str) -> ast.Clause:
    (found,) = clauses(text)
    return found


def tail(text: str) -> ast.Read:
    return read(f"match {{ $a: A }} return {{ $a }} {text}")


def hop(text: str) -> ast.Hop:
    found = clause(text)
    assert isinstance(found, ast.Hop)
    return found


def refused(text: str) -> QueryParseError:
    with pytest.raises(QueryParseError) as caught:
        parse_query_file(text)
    assert caught.value.position is not None
    return caught.value


def refused_clause(text: str) -> QueryParseError:
    return refused(f"query q() {{ match {{ {text} }} return {{ $a }} }}")


def refused_tail(text: str) -> QueryParseError:
    return refused(f"query q() {{ match {{ $a: A }} return {{ $a }} {text} }}")


# --- files and selection --------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "  \n", "// nothing here\n", "/* nothing */"])
def test_a_file_may_be_empty(text):
    assert parse_query_file(text).queries == ()


def test_a_file_is_read_from_text_bytes_a_path_or_a_source(tmp_path):
    text = 'query q() { match { $a: A { name: "größer" } } return { $a } }'
    path = tmp_path / "q.gq"
    path.write_text(text, encoding="utf-8")
    for origin in (text, text.encode(), path, Source(text)):
        file = parse_query_file(origin)
        assert [q.name for q in file.queries] == ["q"]
        assert file.source.text == text
    assert parse_query_file(path).source.path == str(path)


def test_errors_of_a_file_name_its_path(tmp_path):
    path = tmp_path / "bad.gq"
    path.write_text("query q() {\n  mtch { $a: A }\n}", encoding="utf-8")
    with pytest.raises(QueryParseError) as caught:
        parse_query_file(path)
    assert caught.value.render().startswith(f"{path}:2:3: parse error: expected `match`")


def test_bytes_that_are_no_utf8_are_a_parse_error():
    with pytest.raises(QueryParseError, match="not valid UTF-8"):
        parse_query_file(b"query q() \xff")


def test_c_qry_001_comments_newlines_and_keyword_named_properties_parse():
    text = """
    // a comment in front
    query /* anywhere */ q ( $when : String , // to the end of the line
                             $order:[ I64 ]? )
    {
      match {
        $a : Task { when : $when , order : 3, type: "x", match: 1 } /* and
                                                                       over lines */
        $a.limit >= 1   $a.return = $a.query
      }
      return { $a.when $a.order as limit
               $a.match }
      order { $a.order desc , limit }
      limit 10
    }// the end"""
    found = query(text)
    assert isinstance(found.body, ast.Read)
    binding = found.body.clauses[0]
    assert isinstance(binding, ast.Binding)
    assert [pair.name for pair in binding.pairs] == ["when", "order", "type", "match"]
    assert [item.alias for item in found.body.items] == [None, "limit", None]
    assert len(found.body.order) == 2


def test_whitespace_is_optional_wherever_tokens_stay_apart():
    tight = query(
        'query q($n:String){match{$a:A{x:$n}$a knows{1,2}$b $a.x="y"not{$b.z<3}}'
        "return{$a.x,$b}order{$a.x desc}limit 3}"
    )
    assert isinstance(tight.body, ast.Read)
    assert [type(c) for c in tight.body.clauses] == [ast.Binding, ast.Hop, ast.Filter, ast.Not]


SEVERAL = """
query first() { match { $a: A } return { $a } }
query second() { delete A where x = 1 }
query first() { match { $b: B } return { $b } }
"""


def test_c_qry_008_several_queries_and_the_first_of_a_name_is_used():
    file = parse_query_file(SEVERAL)
    assert [q.name for q in file.queries] == ["first", "second", "first"]
    assert select_query(file, "first") is file.queries[0]
    assert isinstance(select_query(file, "second").body, ast.Write)


def test_c_qry_008_an_unknown_name_is_an_error_that_lists_the_names():
    with pytest.raises(NotFound) as caught:
        select_query(parse_query_file(SEVERAL), "secnd")
    assert caught.value.message == "query 'secnd' not found"
    assert caught.value.hint == "did you mean `second`? the file has first, second"
    assert caught.value.details == {"queries": ["first", "second"]}


def test_an_unknown_name_in_a_long_file_lists_some_names():
    text = "\n".join(f"query q{n}() {{ delete A where x = 1 }}" for n in range(25))
    with pytest.raises(NotFound) as caught:
        select_query(parse_query_file(text), "zebra")
    assert (caught.value.hint or "").endswith("q18, q19 and 5 more")
    assert len(caught.value.details["queries"]) == 25


def test_selecting_without_a_name_needs_exactly_one_query():
    only = parse_query_file("query q() { match { $a: A } return { $a } }")
    assert select_query(only, None) is only.queries[0]
    with pytest.raises(InputError) as caught:
        select_query(parse_query_file(SEVERAL), None)
    assert caught.value.message == "expected exactly one query, but the file has 3"
    assert "first, second" in (caught.value.hint or "")
    with pytest.raises(InputError, match="the file has 0"):
        select_query(parse_query_file(""), None)
    with pytest.raises(NotFound) as missing:
        select_query(parse_query_file(""), "q")
    assert missing.value.hint == "the file has no queries"


# --- headers --------------------------------------------------------------------------------------


def test_every_parameter_type_is_read():
    found = query(
        "query q($a: String, $b: Bool, $c: I32, $d: I64, $e: U32, $f: U64, $g: F32, $h: F64, "
        "$i: DateTime, $j: Date, $k: Blob, $l: [String], $m: Vector(8), $n: I64?, $o: [Date]?, "
        "$p: Vector(2)?) { match { $x: A } return { $x } }"
    )
    assert " ".join(str(p.type) for p in found.parameters) == (
        "String Bool I32 I64 U32 U64 F32 F64 DateTime Date Blob [String] Vector(8) I64? [Date]? "
        "Vector(2)?"
    )
    assert found.parameters[14].type == ValueType(Scalar.DATE, is_list=True, nullable=True)
    assert [p.name for p in found.parameters] == list("abcdefghijklmnop")


@pytest.mark.parametrize("header", ["query add", "query add()", "query add( )"])
def test_the_parameter_list_may_be_left_out(header):
    found = query(header + " { insert A { x: 1 } }")
    assert (found.name, found.parameters) == ("add", ())


def test_annotations_stand_between_header_and_body():
    found = query('query q() @instruction("do \\"x\\"") @description("d") { delete A where x = 1 }')
    assert (found.description, found.instruction) == ("d", 'do "x"')
    without = query('query q @description("") { delete A where x = 1 }')
    assert (without.description, without.instruction) == ("", None)


@pytest.mark.parametrize("word", ["description", "instruction"])
def test_c_qry_006_a_duplicate_annotation_is_a_parse_error(word):
    error = refused(f'query q() @{word}("a") @{word}("b") {{ delete A where x = 1 }}')
    assert error.reason == f"`@{word}` is given twice"


@pytest.mark.parametrize(
    ("header", "reason", "hint"),
    [
        ("query Q()", "expected a query name after `query`, found 'Q'", "`q`"),
        ("query q(x: I64)", "expected a parameter, found 'x'", "write `$x`"),
        ("query q($x)", "expected `:` after `$x`, found ')'", None),
        ("query q($x: Strng)", "expected a type for the parameter, found 'Strng'", "`String`"),
        ("query q($x: string)", "expected a type for the parameter, found 'string'", "`String`"),
        ("query q($x: [Vector(2)])", "expected a type in the list type, found 'Vector'", None),
        ("query q($x: [I64?])", "expected `]` after the list type, found '?'", None),
        ("query q($x: Vector)", "expected `(` after `Vector`, found ')'", None),
        ("query q($x: Vector(n))", "expected an integer for the dimension, found 'n'", None),
        ("query q($x: I64,)", "expected a parameter, found ')'", None),
        ("query q($x: I64 $y: I64)", "expected `,` or `)` in the parameters, found '$y'", None),
        (
            'query q() @descripton("x")',
            "expected `description` or `instruction` after `@`",
            "`desc",
        ),
        ("query q() @description(x)", "expected a string of `@description`, found 'x'", None),
        ("query q() => ", "expected `{` to open the body of `q`, found '='", None),
    ],
)
def test_a_malformed_header_is_refused(header, reason, hint):
    error = refused(header + " { match { $a: A } return { $a } }")
    assert error.reason.startswith(reason)
    if hint is not None:
        assert hint in (error.hint or "")


def test_the_dimension_of_a_vector_is_left_to_the_checker():
    found = query("query q($v: Vector(0), $w: Vector(4294967296)) { delete A where x = 1 }")
    assert [p.type.vector_dim for p in found.parameters] == [0, 2**32]


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


def test_open_bounds_parse_so_that_the_checker_can_refuse_them():
    found = hop("$a wrote { 2 , } $b")
    assert found.bounds is not None
    assert (found.bounds.minimum, found.bounds.maximum) == (2, None)


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
        ("$a wrote{1,$n} $b", "expected an integer in the hop bounds, found '$n'", None),
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
        ("$a: A exists { $a.x = 1 }", "existence"),
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


# --- return and its tail --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "items",
    [
        "$a.x, $a.y as z, $b",
        "$a.x $a.y as z $b",
        "$a.x\n$a.y as z\n$b",
        "$a.x,\n$a.y as z,\n$b,",
    ],
)
def test_c_qry_004_items_are_separated_by_commas_newlines_or_both(items):
    found = read(f"match {{ $a: A }} return {{ {items} }}").items
    assert [item.alias for item in found] == [None, "z", None]
    assert [type(item.expression) for item in found] == [
        ast.PropertyRef,
        ast.PropertyRef,
        ast.Variable,
    ]


@pytest.mark.parametrize("items", ["", ",", "$a.x,,$a.y", ", $a.x"])
def test_items_are_not_left_out(items):
    reason = refused(f"query q() {{ match {{ $a: A }} return {{ {items} }} }}").reason
    assert reason.startswith(("expected an item in `return`", "expected an expression"))


def test_distinct_is_a_keyword_in_front_of_the_brace_only():
    assert read("match { $a: A } return distinct { $a.x }").distinct
    plain = read("match { $a: A } return { distinct, $a.x as distinct }")
    assert not plain.distinct
    assert isinstance(plain.items[0].expression, ast.AliasRef)
    assert refused("query q() { match { $a: A } return distinct $a.x }").reason.startswith(
        "expected `{` in `return`"
    )


def test_the_whole_entity():
    found = read("match { $a: A } return { $a.* $a.* as whole }").items
    assert [type(item.expression) for item in found] == [ast.EntityRef, ast.EntityRef]
    assert found[1].alias == "whole"


def test_having_holds_filters_and_null_tests():
    found = tail('having { n > 3 name contains "x" n is not null n in [1, 2] $a.x = 1 ($q) in $l }')
    assert len(found.having) == 6
    assert [type(f) for f in found.having[:3]] == [ast.Filter, ast.Filter, ast.NullTest]


def test_having_knows_no_hops():
    (found,) = tail("having { $q in $list }").having
    assert isinstance(found, ast.Filter)
    assert found.operator == "in"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("having { }", "expected a filter in `having`, found '}'"),
        ("having { n > 3 and m > 2 }", "expected a filter or `}` in `having`, found 'and'"),
        ("having { n }", "expected a filter or `}` in `having`, found 'n'"),
        ("having { $a: A }", "expected a comparison after the expression, found ':'"),
        ("having n > 3", "expected `{` in `having`, found 'n'"),
    ],
)
def test_malformed_having_is_refused(text, reason):
    assert refused_tail(text).reason == reason


def test_order_keys_and_directions():
    found = tail("order { $a.x, n desc, lower($a.y) asc, nearest($a.v, $q) }")
    assert [key.descending for key in found.order] == [None, True, False, None]


def test_direction_words_may_be_aliases():
    found = tail("order { asc, desc desc, asc asc }").order
    assert [type(key.expression) for key in found] == [ast.AliasRef] * 3
    assert [key.descending for key in found] == [None, True, False]


@pytest.mark.parametrize("direction", ["asc", "desc"])
def test_c_qry_007_nearest_takes_no_direction(direction):
    error = refused_tail(f"order {{ nearest($a.v, $q) {direction} }} limit 3")
    assert error.reason == "`nearest` takes no direction"
    assert error.position is not None
    assert error.position.byte_end - error.position.byte_start == len(direction)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("order { }", "expected an order key in `order`"),
        ("order { $a.x $a.y }", "expected `,` or `}` after an order key, found '$a'"),
        ("order { $a.x, }", "expected an expression, found '}'"),
        ("order by $a.x", "expected `{` after `order`, found 'by'"),
        ("order { $a.x DESC }", "expected `,` or `}` after an order key, found 'DESC'"),
    ],
)
def test_malformed_order_is_refused(text, reason):
    assert refused_tail(text).reason == reason


def test_limit_and_offset_take_integers_and_parameters():
    for text, limit, offset in [
        ("limit 20 offset 40", 20, 40),
        ("limit 0", 0, None),
        ("offset 5", None, 5),
        ("limit 18446744073709551615", 2**64 - 1, None),
        ("limit 007", 7, None),
    ]:
        found = tail(text)
        assert (found.limit.value if found.limit else None) == limit
        assert (found.offset.value if found.offset else None) == offset
    found = tail("limit $n offset $m")
    assert found.limit is not None
    assert found.offset is not None
    assert isinstance(found.limit.value, ast.Variable)
    assert isinstance(found.offset.value, ast.Variable)
    assert (found.limit.value.name, found.offset.value.name) == ("n", "m")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("limit", "expected an integer or a parameter after `limit`, found '}'"),
        ("limit -1", "expected an integer or a parameter after `limit`, found '-'"),
        ("limit 1.5", "expected an integer or a parameter after `limit`, found '1.5'"),
        ("limit ten", "expected an integer or a parameter after `limit`, found 'ten'"),
        ("limit 18446744073709551616", "'18446744073709551616' is too large"),
        ("offset 18446744073709551616", "'18446744073709551616' is too large"),
        ("limit 3 limit 4", "`limit` is misplaced"),
        ("limit 3 order { $a }", "`order` is misplaced"),
        ("offset 3 limit 4", "`limit` is misplaced"),
        ("order { $a } having { n > 1 }", "`having` is misplaced"),
        ("LIMIT 5", "expected `having`, `order`, `limit`, `offset` or `}` after the return"),
        ("group by $a", "expected `having`, `order`, `limit`, `offset` or `}` after the return"),
    ],
)
def test_a_malformed_tail_is_refused(text, reason):
    assert refused_tail(text).reason.startswith(reason)


# --- bodies ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "reason", "hint"),
    [
        ("match { $a: A }", "expected `query` or the end of the input", "named query"),
        ("MATCH (a:Person) RETURN a", "expected `query` or the end of the input", "named query"),
        ("qeury q() {}", "expected `query` or the end of the input, found 'qeury'", "`query`"),
        ("query q() { }", "expected `match`, `insert`, `update` or `delete` in `q`", None),
        ("query q() { mtch { } }", "expected `match`, `insert`, `update` or `delete`", "`match`"),
        ("query q() { MATCH { } }", "expected `match`, `insert`, `update` or `delete`", "`match`"),
        ("query q() { match { $a: A } }", "expected `return` after the match, found '}'", None),
        (
            "query q() { match { $a: A } retrun { $a } }",
            "expected `return` after the match, found 'retrun'",
            "did you mean `return`?",
        ),
        (
            "query q() { match { $a: A } where $a.x = 1 return { $a } }",
            "expected `return` after the match, found 'where'",
            "move them into its braces",
        ),
        (
            "query q() { match { $a: A } return { $a } insert A { x: 1 } }",
            "expected `having`, `order`, `limit`, `offset` or `}`",
            None,
        ),
        ("query q() {", "expected `match`, `insert`, `update` or `delete` in `q`, found the", None),
        ("query q() { match { $a: A } return { $a } } }", "expected `query` or the end", None),
    ],
)
def test_a_malformed_body_is_refused(text, reason, hint):
    error = refused(text)
    assert error.reason.startswith(reason)
    assert (hint in (error.hint or "")) if hint else error.hint is None


def test_c_qry_003_an_uppercase_variable_is_a_parse_error():
    error = refused_clause("$Upper: A")
    assert error.reason == "expected a variable name after '$'"


def test_c_qry_007_parse_errors_carry_a_span():
    error = refused("query q() {\n  match { $é: A } return { $a } }")
    assert error.position is not None
    assert (error.position.line, error.position.column) == (2, 11)
    assert (error.position.byte_start, error.position.byte_end) == (22, 23)
    at_end = refused("query q() {")
    assert at_end.position is not None
    assert at_end.position.byte_end > at_end.position.byte_start


def test_the_first_problem_in_the_text_is_reported():
    error = refused("query q() { retrun { $a.x = 'x' } }")
    assert error.reason.startswith("expected `match`")
    forgotten = refused(
        'query q() { match { $a.x = "one } return { $a } }\nquery r() { match { $a.x = "two" } }'
    )
    assert forgotten.position is not None
    assert forgotten.position.line == 2
    assert forgotten.reason.startswith("expected a clause or `}` in the match, found 'two'")
