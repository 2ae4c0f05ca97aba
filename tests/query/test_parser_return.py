"""What a query returns, and its tail, as they are parsed."""

import pytest

from omnigraph.syntax import query_ast as ast
from tests.query.parsing import (
    read,
    refused,
    refused_tail,
    tail,
)

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


@pytest.mark.parametrize(
    "items",
    ["$a.x[0]", "$a.x[0] as first", "$a[0]", "t[0]", "lower($a.x)[0]", "($a.x)[0]", "[1][0]"],
)
def test_c_qry_089_a_bracket_that_touches_a_value_is_an_index(items):
    found = read(f"match {{ $a: A }} return {{ {items} }}").items
    assert [type(item.expression) for item in found] == [ast.ListItem]
    assert refused(
        f"query q() {{ match {{ $a: A }} return {{ {items.replace('[0]', '[0, 1]')} }} }}"
    ).reason.startswith("expected `]`")


@pytest.mark.parametrize("items", ["$a.x, [0]", "$a.x [0]", "$a.x\n[0]"])
def test_a_list_literal_is_an_item_of_its_own(items):
    found = read(f"match {{ $a: A }} return {{ {items} as zero }}").items
    assert [type(item.expression) for item in found] == [ast.PropertyRef, ast.ListLiteral]


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
