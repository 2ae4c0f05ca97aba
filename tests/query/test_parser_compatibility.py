"""Words that became keywords keep every meaning they had as names.

Nothing is reserved in `.gq`: each extension is recognised by position only. These tests use all
keyword-like words as edge words, properties, aliases, variables, parameters and query names.
"""

import pytest

from omnigraph.syntax import query_ast as ast
from omnigraph.syntax.query_parser import parse_query_file

EXTENSION_WORDS = """
optional any all distinct via in is null having offset collect and or
lower upper length coalesce abs round date_part
"""
OLDER_WORDS = """
query match return order limit as asc desc not contains starts_with insert update delete set where
now date datetime search fuzzy match_text bm25 nearest rrf count sum avg min max
"""
WORDS = [*EXTENSION_WORDS.split(), *OLDER_WORDS.split()]


def read(text: str) -> ast.ReadBody:
    (query,) = parse_query_file(text).queries
    assert isinstance(query.body, ast.ReadBody)
    return query.body


def only_item(text: str) -> ast.Expression:
    return read(f"query q() {{ match {{ $a: A }} return {{ {text} }} }}").items[0].expression


@pytest.mark.parametrize("word", WORDS)
def test_any_word_names_queries_parameters_variables_properties_and_aliases(word):
    body = read(
        f"query {word}(${word}: I64, $x: I64) {{ match {{ ${word}: A {{ {word}: ${word} }} "
        f"${word}.{word} = $x.{word} ${word}.{word} > 3 }} "
        f"return {{ ${word}.{word} as {word} ${word} as x {word} }} "
        f"order {{ {word} desc, ${word}.{word} }} limit 3 }}"
    )
    assert [type(clause) for clause in body.clauses] == [ast.Binding, ast.Filter, ast.Filter]
    assert [item.alias for item in body.items] == [word, "x", None]
    assert body.items[2].expression == ast.AliasRef(word, body.items[2].expression.span)
    assert [key.descending for key in body.order] == [True, None]


@pytest.mark.parametrize("word", [w for w in [*WORDS, "true", "false"] if w != "not"])
def test_any_word_but_not_names_an_edge(word):
    body = read(
        f"query q() {{ match {{ $a {word} $b $b {word}{{1,2}} $c $c <{word}> $d "
        f"$d $e:{word} $f $f $g:<{word}> $h }} return {{ $a }} }}"
    )
    assert [type(clause) for clause in body.clauses] == [ast.Hop] * 5
    assert {clause.edge_word for clause in body.clauses if isinstance(clause, ast.Hop)} == {word}


@pytest.mark.parametrize("word", WORDS)
def test_any_word_names_properties_of_mutations(word):
    (query,) = parse_query_file(
        f"query q(${word}: I64) {{ insert A {{ {word}: ${word} {word}: 1, {word}: now() }} "
        f"update A set {{ {word}: 2 }} where {word} = ${word} "
        f"delete A where {word} < 3 }}"
    ).queries
    assert isinstance(query.body, ast.WriteBody)
    assert [type(s) for s in query.body.statements] == [ast.Insert, ast.Update, ast.Delete]


@pytest.mark.parametrize("word", WORDS)
def test_any_word_is_an_alias_inside_an_aggregate(word):
    found = only_item(f"count({word})")
    assert isinstance(found, ast.Aggregate)
    assert not found.distinct
    assert isinstance(found.argument, ast.AliasRef)
    assert found.argument.name == word


def test_words_in_front_of_anything_but_a_parenthesis_are_aliases():
    body = read("query q() { match { $a: A } return { lower now, count as n date datetime, rrf } }")
    assert [type(item.expression) for item in body.items] == [ast.AliasRef] * 6
    assert body.items[2].alias == "n"


def test_a_hop_followed_by_a_hop_is_not_a_path():
    body = read("query q() { match { $a knows $b $b via $r } return { $a } }")
    assert [type(clause) for clause in body.clauses] == [ast.Hop, ast.Hop]


def test_a_word_that_starts_the_tail_is_an_item_inside_the_return():
    body = read(
        "query q() { match { $a: A } return { having order limit offset } having { n > 1 } }"
    )
    assert len(body.items) == 4
    assert len(body.having) == 1


def test_items_without_commas_stay_apart():
    body = read('query q() { match { $a: A } return { $a.x "s" 3 0.5 [1] true $b now() in $c.y } }')
    assert len(body.items) == 10


def test_as_is_an_alias_too():
    body = read("query q() { match { $a: A } return { as as as, $a.x as as } }")
    assert [item.alias for item in body.items] == ["as", "as"]


def test_calls_may_have_space_in_front_of_their_parenthesis():
    assert isinstance(only_item("count ($a)"), ast.Aggregate)
    assert isinstance(only_item("now ( )"), ast.Now)
    assert isinstance(only_item('search\n( $a.x , "q" )'), ast.SearchCall)
