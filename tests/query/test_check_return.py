"""Return items: their keys, their types, grouping, `having` and `distinct`."""

from __future__ import annotations

import pytest

from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import round_to_f32
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from tests.query.library import matching, query, read, refusal

BOOKS = "$a: Author $a $w:wrote $b $b cites{1,2} $c via $r"
PARAMETERS = "$q: String, $n: I32, $u: U64, $f: F32, $l: [I64], $v: Vector(3), $d: DateTime?"


def returning(items: str, tail: str = "", parameters: str = PARAMETERS) -> plan.ReadPlan:
    return matching(BOOKS, items, parameters, tail)


def keys(items: str) -> list[str]:
    return [column.name for column in returning(items).columns]


def type_of(expression: str) -> str:
    (column,) = returning(f"{expression} as x").columns
    assert not isinstance(column.expression, ex.Whole)
    value = column.expression
    if isinstance(value, ex.OutputValue):
        compiled = returning(f"{expression} as x")
        assert compiled.group_by is not None
        values = dict(compiled.group_by.items) | {
            entry.name: entry.value for entry in compiled.group_by.aggregates
        }
        assert values[value.name].type == value.type
    return str(value.type)


# --- keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("item", "key", "field"),
    [
        ("$b.title", "b.title", "title"),
        ("$b", "b", "b"),
        ("$b.*", "b", "b"),
        ("$w.*", "w", "w"),
        ("$w.role", "w.role", "role"),
        ("$r.length", "r.length", "length"),
        ("$q", "q", "q"),
        ("3", "literal", "literal"),
        ('"text"', "literal", "literal"),
        ("[1, 2]", "literal", "literal"),
        ('date("2031-04-09")', "literal", "literal"),
        ("now()", "now", "now"),
        ('nearest($b.vec, "x")', "nearest", "nearest"),
        ("bm25($b.title, $q)", "bm25", "bm25"),
        ("search($b.title, $q)", "search", "search"),
        ("match_text($b.title, $q)", "match_text", "match_text"),
        ("fuzzy($b.title, $q, 1)", "fuzzy", "fuzzy"),
        ("lower($b.title)", "lower", "lower"),
        ("count($b)", "b", "count"),
        ("count($b.pages)", "b.pages", "count"),
        ("sum($b.pages)", "b.pages", "sum"),
        ("max($w.share)", "w.share", "max"),
        ("count(distinct $b.title)", "b.title", "count"),
        ("count(*)", "count", "count"),
        ("collect($b.title)", "b.title", "collect"),
        ("sum($b.pages * 2)", "sum", "sum"),
        ("count(1)", "literal", "count"),
        ("$b.title as name", "name", "name"),
        ("count(*) as n", "n", "n"),
    ],
)
def test_c_qry_048_item_without_as_has_its_natural_key(item: str, key: str, field: str):
    (column,) = returning(item).columns
    assert (column.name, column.field) == (key, field)


def test_c_qry_048_columns_follow_item_order():
    assert keys("$b.title $a.name as zz, $q") == ["b.title", "zz", "q"]


def test_c_qry_048_alias_item_repeats_an_earlier_value_under_a_new_name():
    first, second = returning("$b.title as t, t as u").columns
    assert first.expression == second.expression
    assert (second.name, second.field) == ("u", "u")


def test_natural_keys_can_be_named_like_aliases():
    compiled = returning("count(*), count + 1 as more", tail="having { count > 1 }")
    assert [column.name for column in compiled.columns] == ["count", "more"]


def test_c_qry_060_duplicate_key_gives_t26_at_the_second_item():
    error = refusal(query("$b: Book", "$b.title, $b.pages as t, $b.tags as t"))
    assert error.diagnostic == "T26"
    assert (error.reason, error.hint) == ("two items are called `t`", "rename one with `as`")


@pytest.mark.parametrize(
    ("items", "tail"),
    [
        ("$b.cover", ""),
        ("$b", "order { $b.cover }"),
        ("count($b.cover)", ""),
        ("collect($b.cover)", ""),
        ("max($b.cover)", ""),
    ],
)
def test_c_qry_052_blob_returned_ordered_or_aggregated_gives_t24(items: str, tail: str):
    error = refusal(query("$b: Book", items, tail=tail))
    assert error.diagnostic == "T24"
    assert error.hint == "fetch it with `omnigraph blob get`"


def test_whole_entity_lists_all_properties_but_blobs():
    (column,) = matching("$b: Book", "$b.*").columns
    assert isinstance(column.expression, ex.Whole)
    names = [name for name, _ in column.expression.columns]
    assert names[0] == "id"
    assert "cover" not in names
    assert {"title", "tags", "vec"} <= set(names)
    assert names[1:] == sorted(names[1:])


# --- types ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        # values as they are
        ("$b.pages", "I32?"),
        ("$a.name", "String"),
        ("$b.vec", "Vector(4)?"),
        ("$b.tags", "[String]?"),
        ("$b.genre", "enum(fiction, poetry, science)"),
        ("$a", "String"),
        ("$r.nodes", "[String]"),
        ("$r.length", "I64"),
        ("$v", "Vector(3)"),
        ("$l", "[I64]"),
        ("$d", "DateTime?"),
        ("3", "I64"),
        ("-0.5", "F64"),
        ("true", "Bool"),
        ('"x"', "String"),
        ("now()", "DateTime"),
        ('date("2031-04-09")', "Date"),
        ("[1, 2]", "[I64]"),
        ("[1, 2.5]", "[F64]"),
        ("[]", "[String]"),
        ("search($b.title, $q)", "Bool"),
        ("bm25($b.title, $q)", "F64"),
        ("nearest($b.vec, $q)", "F64?"),
        # arithmetic: integers stay integers, `/` never does and may meet zero
        ("1 + 2", "I64"),
        ("$n * $n", "I64"),
        ("$u - 1", "I64"),
        ("$b.pages + 1", "I64?"),
        ("1 + 0.5", "F64"),
        ("$f + $f", "F64"),
        ("$b.weight * 2", "F64?"),
        ("1 / 2", "F64?"),
        ("$n / $u", "F64?"),
        ("1 + 1 / 2", "F64?"),
        ("$r.length - 1", "I64"),
        ("bm25($b.title, $q) * 2", "F64"),
        ("nearest($b.vec, $q) + 1", "F64?"),
        # functions
        ("lower($a.name)", "String"),
        ("upper($b.blurb)", "String?"),
        ("lower($b.genre)", "String"),
        ("length($a.name)", "I64"),
        ("length($b.blurb)", "I64?"),
        ("length($b.tags)", "I64?"),
        ("length($r.nodes)", "I64"),
        ("length([1, 2])", "I64"),
        ("abs($n)", "I64"),
        ("abs($u)", "U64"),
        ("abs($f)", "F64"),
        ("abs($b.pages)", "I64?"),
        ("round($b.price)", "F64?"),
        ("round($b.price, 2)", "F64?"),
        ("round($b.pages, -2)", "I64?"),
        ("round($u)", "U64"),
        ('date_part("year", $b.released)', "I64?"),
        ('date_part("millisecond", now())', "I64"),
        ('date_part("weekday", $d)', "I64?"),
        ("coalesce($b.blurb, $a.name)", "String"),
        ("coalesce($b.blurb, $b.blurb)", "String?"),
        ("coalesce($b.language, $b.genre)", "String"),
        ("coalesce($b.pages, $b.pages, 0)", "I64"),
        ("coalesce($b.pages, $n)", "I32"),
        ("coalesce($b.pages, 0.5)", "F64"),
        ("coalesce($b.printed, $u)", "U64"),
        ("coalesce($b.printed, 0)", "U64"),
        ("coalesce(0, $b.printed, $b.printed)", "U64"),
        ("coalesce($b.printed, -1)", "I64"),
        ("coalesce($b.printed, $b.pages, 0)", "I64"),
        ("coalesce($b.printed, 0, 0.5)", "F64"),
        ('coalesce($b.released, date("2031-04-09"))', "Date"),
        ("coalesce($b.available, false)", "Bool"),
        # aggregates
        ("count($b)", "I64"),
        ("count(*)", "I64"),
        ("count($b.vec)", "I64"),
        ("count($b.tags)", "I64"),
        ("count(distinct $b.pages)", "I64"),
        ("sum($b.pages)", "I64?"),
        ("avg($n)", "F64?"),
        ("min($b.pages)", "I32?"),
        ("max($b.printed)", "U64?"),
        ("max($a.name)", "String?"),
        ("min($b.genre)", "enum(fiction, poetry, science)?"),
        ("min($b.weight)", "F32?"),
        ("max($r.length)", "I64?"),
        ("min($b)", "String?"),
        ("avg(bm25($b.title, $q))", "F64?"),
        ("sum($b.pages * $b.price)", "F64?"),
        ("collect($b.pages)", "[I32]"),
        ("collect(distinct $b.genre)", "[enum(fiction, poetry, science)]"),
        ("collect($b)", "[String]"),
        # aggregates inside expressions
        ("sum($b.pages) / count(*)", "F64?"),
        ("count(*) + 1", "I64"),
        ("round(avg($b.price), 2)", "F64?"),
        ("coalesce(sum($b.pages), 0)", "I64"),
        ("length(collect($b.title))", "I64"),
        ("max($b.pages) - min($b.pages)", "I64?"),
    ],
)
def test_type_of_an_item(expression: str, expected: str):
    assert type_of(expression) == expected


@pytest.mark.parametrize(
    "part",
    ["year", "quarter", "month", "week", "day", "weekday", "day_of_year"],
)
def test_date_part_of_a_date(part: str):
    assert type_of(f'date_part("{part}", $b.released)') == "I64?"


@pytest.mark.parametrize("part", ["hour", "minute", "second", "millisecond"])
def test_date_part_of_a_time_needs_a_date_time(part: str):
    assert type_of(f'date_part("{part}", $b.updated)') == "I64?"
    error = refusal(query("$b: Book", f'date_part("{part}", $b.released)'))
    assert error.reason.startswith("`date_part` of a Date takes one of year, quarter")


def test_wrong_date_part_is_suggested():
    error = refusal(query("$b: Book", 'date_part("weekdays", $b.released)'))
    assert error.hint == "did you mean `weekday`?"


def test_arithmetic_binds_as_usual():
    (column,) = returning("1 + 2 * 3 - 4 as x").columns
    one, two, three, four = (ex.Constant(n, ex.I64) for n in (1, 2, 3, 4))
    product = ex.ArithmeticValue("*", two, three, ex.I64)
    assert column.expression == ex.ArithmeticValue(
        "-", ex.ArithmeticValue("+", one, product, ex.I64), four, ex.I64
    )


# --- grouping -------------------------------------------------------------------------------------


def test_items_beside_an_aggregate_are_the_groups():
    compiled = returning("$a.name, $b, $q, count(*) as n, sum($b.pages) as total")
    assert compiled.group_by is not None
    assert [name for name, _ in compiled.group_by.items] == ["a.name", "b", "q"]
    assert [entry.name for entry in compiled.group_by.aggregates] == ["n", "total"]
    assert [column.expression for column in compiled.columns] == [
        ex.OutputValue("a.name", ex.STRING),
        ex.OutputValue("b", ex.STRING),
        ex.OutputValue("q", ex.STRING),
        ex.OutputValue("n", ex.I64),
        ex.OutputValue("total", ex.I64.with_nullable(True)),
    ]
    assert [breaker.name for breaker in compiled.tie_breakers] == ["a.name", "b", "q"]


def test_without_aggregate_nothing_is_grouped():
    compiled = returning("$a.name, $b.pages + 1 as p")
    assert compiled.group_by is None
    assert compiled.tie_breakers == ()


def test_only_aggregates_form_one_group():
    compiled = returning("count(*), avg($b.pages)")
    assert compiled.group_by is not None
    assert compiled.group_by.items == ()


def test_computed_items_group_by_their_value():
    compiled = returning('date_part("year", $b.released) as year, $b.pages / 100 as size, count(*)')
    assert compiled.group_by is not None
    assert [name for name, _ in compiled.group_by.items] == ["year", "size"]


def test_grouped_items_may_be_paths_and_lists():
    compiled = returning("$r.nodes, $r.length, $b.tags, count(*)")
    assert compiled.group_by is not None
    assert [name for name, _ in compiled.group_by.items] == ["r.nodes", "r.length", "b.tags"]


def test_aggregates_inside_an_expression_are_computed_once_each():
    compiled = returning("$a.name, sum($b.pages) / count(*) as mean, count(*) as n, n * 2 as m")
    group_by = compiled.group_by
    assert group_by is not None
    assert [(entry.name, entry.value.function) for entry in group_by.aggregates] == [
        ("n", "count"),
        ("#2", "sum"),
    ]
    n = ex.OutputValue("n", ex.I64)
    total = ex.OutputValue("#2", ex.I64.with_nullable(True))
    assert compiled.columns[1].expression == ex.ArithmeticValue(
        "/", total, n, ValueType(Scalar.F64, nullable=True)
    )
    assert compiled.columns[3].expression == ex.ArithmeticValue(
        "*", n, ex.Constant(2, ex.I64), ex.I64
    )


def test_grouped_value_can_be_used_inside_a_computed_aggregate_item():
    compiled = returning("$b.pages, count(*) * $b.pages as x")
    assert compiled.columns[1].expression == ex.ArithmeticValue(
        "*",
        ex.OutputValue("#1", ex.I64),
        ex.OutputValue("b.pages", ValueType(Scalar.I32, nullable=True)),
        ValueType(Scalar.I64, nullable=True),
    )


def test_constants_inside_an_aggregate_item_are_fine():
    returning('$b.title, coalesce(max($b.blurb), "none") as best, count(*) + $n as more')


def test_aggregate_of_an_alias():
    compiled = returning(
        "$b.pages * 2 as double, sum(double) as total, count(distinct double) as n"
    )
    assert compiled.group_by is not None
    (_, argument) = compiled.group_by.items[0]
    assert [entry.value.argument for entry in compiled.group_by.aggregates] == [argument, argument]
    assert [entry.value.distinct for entry in compiled.group_by.aggregates] == [False, True]


def test_count_of_rows_and_of_values_are_different():
    compiled = returning("count(*) as rows, count($b) as books, count(distinct $b) as different")
    assert compiled.group_by is not None
    rows, books, different = (entry.value for entry in compiled.group_by.aggregates)
    assert rows == ex.AggregateValue("count", None, False, ex.I64)
    assert books == ex.AggregateValue("count", ex.EntityId("b"), False, ex.I64)
    assert different == ex.AggregateValue("count", ex.EntityId("b"), True, ex.I64)


# --- having ---------------------------------------------------------------------------------------


def having(conditions: str, items: str = "$a.name as name, $b.genre, count(*) as n"):
    return returning(items, f"having {{ {conditions} }}")


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("n > 1", ex.Compare(">", ex.OutputValue("n", ex.I64), ex.Constant(1, ex.I64))),
        ("count(*) > 1", ex.Compare(">", ex.OutputValue("n", ex.I64), ex.Constant(1, ex.I64))),
        (
            'name starts_with "A"',
            ex.TextStartsWith(ex.OutputValue("name", ex.STRING), ex.Constant("A", ex.STRING)),
        ),
        (
            "$a.name contains $q",
            ex.TextContains(ex.OutputValue("name", ex.STRING), ex.ParameterValue("q", ex.STRING)),
        ),
        ("name is not null", ex.IsNull(ex.OutputValue("name", ex.STRING), True)),
        (
            "n in [1, 2]",
            ex.ListContains(
                ex.Constant((1, 2), ValueType(Scalar.I64, is_list=True)),
                ex.OutputValue("n", ex.I64),
            ),
        ),
        (
            "n * 2 > $n",
            ex.Compare(
                ">",
                ex.ArithmeticValue(
                    "*", ex.OutputValue("n", ex.I64), ex.Constant(2, ex.I64), ex.I64
                ),
                ex.ParameterValue("n", ValueType(Scalar.I32)),
            ),
        ),
    ],
)
def test_having_reads_aliases_group_items_and_aggregates(condition: str, expected: ex.Expression):
    assert having(condition).having == (expected,)


def test_having_may_use_an_aggregate_that_is_not_returned():
    compiled = having("max($b.pages) > 100  n > 1")
    assert compiled.group_by is not None
    assert [entry.name for entry in compiled.group_by.aggregates] == ["n", "#2"]
    assert compiled.having[0] == ex.Compare(
        ">",
        ex.OutputValue("#2", ValueType(Scalar.I32, nullable=True)),
        ex.Constant(100, ex.I64),
    )
    assert len(compiled.having) == 2


def test_having_with_an_aggregate_groups_by_the_items():
    compiled = having("count(*) > 1", items="$a.name")
    assert compiled.group_by is not None
    assert [name for name, _ in compiled.group_by.items] == ["a.name"]


def test_having_without_aggregates_filters_returned_rows():
    compiled = having('p > 3  $b.title contains "x"  $b is not null', "$b.pages as p, $b.title, $b")
    assert compiled.group_by is None
    assert compiled.having == (
        ex.Compare(
            ">",
            ex.OutputValue("p", ValueType(Scalar.I32, nullable=True)),
            ex.Constant(3, ex.I64),
        ),
        ex.TextContains(ex.OutputValue("b.title", ex.STRING), ex.Constant("x", ex.STRING)),
        ex.IsNull(ex.OutputValue("b", ex.STRING), True),
    )


def test_having_rounds_against_f32_through_an_alias():
    compiled = having("w = 0.1", "$b.weight as w")
    (condition,) = compiled.having
    assert isinstance(condition, ex.Compare)
    assert condition.right.type.scalar is Scalar.F32


@pytest.mark.parametrize(
    "condition", ["max($b.weight) = 0.1", "m = 0.1", "collect($b.weight) contains 0.1"]
)
def test_having_rounds_against_aggregates_of_f32(condition: str):
    (found,) = having(condition, "$a.name, max($b.weight) as m").having
    (constant,) = (part for part in ex.walk(found) if isinstance(part, ex.Constant))
    assert constant == ex.Constant(round_to_f32(0.1), ValueType(Scalar.F32))


def test_having_on_a_returned_score_and_test():
    compiled = having(
        "score > 1.5  found = true", "bm25($b.title, $q) as score, search($b.title, $q) as found"
    )
    assert [ex.variables_of(condition) for condition in compiled.having] == [frozenset()] * 2


@pytest.mark.parametrize(
    ("condition", "items", "code"),
    [
        ("$b.pages > 3", "$b.title", "T25"),
        ("$b.pages > 3", "$b.title, count(*)", "T9"),
        ("m > 3", "count(*) as n", "T25"),
        ('n > "x"', "count(*) as n", "T7"),
        ("$b = 3", "$b, count(*) as n", "T7"),
        ("sum(n) > 3", "count(*) as n", "T8"),
        ("bm25($b.title, $q) > 1", "$b.title", "T7"),
        ("search($b.title, $q) = true", "$b.title", "T25"),
        ("whole = 3", "$b.* as whole", "T7"),
        ("$zz.title = 3", "$b.title", "T6"),
        ("$w is null", "$b.title", "T23"),
    ],
)
def test_having_refuses(condition: str, items: str, code: str):
    tail = f"having {{ {condition} }}"
    assert refusal(query(BOOKS, items, PARAMETERS, tail)).diagnostic == code


def test_misspelt_alias_in_having_is_suggested():
    error = refusal(query("$b: Book", "count(*) as total", tail="having { totl > 1 }"))
    assert (error.diagnostic, error.hint) == ("T25", "did you mean `total`?")


# --- distinct -------------------------------------------------------------------------------------


def test_distinct_rows_break_ties_by_every_column():
    compiled = read(
        "query q() { match { $b: Book } return distinct { $b.title, $b.*, $b.pages as p } "
        "order { p desc } }"
    )
    assert compiled.distinct
    assert compiled.order == (
        plan.SortKey(ex.OutputValue("p", ValueType(Scalar.I32, nullable=True)), True),
    )
    assert [breaker.name for breaker in compiled.tie_breakers] == ["b.title", "b", "p"]


def test_distinct_groups_break_ties_by_every_column():
    compiled = read(
        "query q() { match { $b: Book } return distinct { count(*) as n, $b.genre } order { n } }"
    )
    assert [breaker.name for breaker in compiled.tie_breakers] == ["n", "b.genre"]


def test_distinct_rows_are_ordered_by_a_returned_property():
    compiled = read(
        "query q() { match { $b: Book } return distinct { $b.title as t } order { $b.title } }"
    )
    assert compiled.order == (plan.SortKey(ex.OutputValue("t", ex.STRING)),)
