"""Order keys, ranking, ties, `limit` and `offset`."""

from __future__ import annotations

import pytest

from omnigraph.model.types import Scalar, ValueType
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from tests.query.library import matching, query, read, refusal

BM25 = 'bm25($b.title, "x")'
NEAREST = 'nearest($b.vec, "x")'
RRF = f"rrf({NEAREST}, {BM25})"


def ordered(tail: str, items: str = "$b", clauses: str = "$b: Book") -> plan.ReadPlan:
    return matching(clauses, items, "$n: I32, $m: U64?", tail)


def refused(tail: str, items: str = "$b", clauses: str = "$b: Book") -> str | None:
    return refusal(query(clauses, items, "$n: I32", tail)).diagnostic


TITLE = ex.PropertyValue("b", "node", "Book", "title", ex.STRING)
PAGES = ex.PropertyValue("b", "node", "Book", "pages", ValueType(Scalar.I32, nullable=True))


# --- plain keys -----------------------------------------------------------------------------------


def test_keys_keep_their_order_and_direction():
    compiled = ordered("order { $b.title desc, $b.pages, t asc }", "$b.isbn as t")
    isbn = ex.PropertyValue("b", "node", "Book", "isbn", ex.STRING)
    assert compiled.order == (
        plan.SortKey(TITLE, descending=True),
        plan.SortKey(PAGES),
        plan.SortKey(isbn),
    )
    assert compiled.rank is None


def test_ties_break_by_the_bound_variables_in_name_order():
    compiled = ordered("order { $zed.name }", "$zed", "$zed $w:wrote $b $b cites $_ $a knows $zed")
    assert [variable.name for variable in compiled.variables] == ["a", "b", "w", "zed"]
    assert [variable.kind for variable in compiled.variables] == ["node", "node", "edge", "node"]
    assert compiled.tie_breakers == ()


def test_aggregates_tie_break_by_their_group_items_in_return_order():
    compiled = ordered("order { n desc }", "$b.title, count(*) as n, $b.genre")
    assert [breaker.name for breaker in compiled.tie_breakers] == ["b.title", "b.genre"]
    assert compiled.order == (plan.SortKey(ex.OutputValue("n", ex.I64), descending=True),)


def test_group_item_is_ordered_by_as_property_or_alias():
    by_property = ordered("order { $b.title }", "$b.title as t, count(*)")
    by_alias = ordered("order { t }", "$b.title as t, count(*)")
    assert by_property.order == by_alias.order == (plan.SortKey(ex.OutputValue("t", ex.STRING)),)


@pytest.mark.parametrize(
    ("items", "alias"),
    [
        ("$b as who", "who"),
        ("now() as t", "t"),
        ("3 as t", "t"),
        ("$n as t", "t"),
        ("$b.pages * 2 as t", "t"),
        ('search($b.title, "x") as t', "t"),
        ("$b.available as t", "t"),
        ("$b.released as t", "t"),
        ("$b", "b"),
        ("count(*)", "count"),
        ("$b.genre as g, max($b.title) as t", "t"),
    ],
)
def test_any_single_value_can_be_ordered_by_its_alias(items: str, alias: str):
    assert len(ordered(f"order {{ {alias} desc }}", items).order) == 1


def test_path_length_is_an_order_key():
    compiled = ordered("order { $r.length }", "$r.nodes", "$a knows{1,3} $b via $r")
    assert compiled.order == (plan.SortKey(ex.PathLength("r")),)


def test_c_qry_060_unknown_alias_in_order_gives_t25():
    error = refusal(query("$b: Book", "count(*) as total", tail="order { totl }"))
    assert (error.diagnostic, error.hint) == ("T25", "did you mean `total`?")


def test_property_written_as_alias_is_told_how_to_write_it():
    error = refusal(query("$b: Book", "$b.title", tail="order { title }"))
    assert (error.diagnostic, error.hint) == ("T25", "write the property as `$b.title`")


# --- ranking --------------------------------------------------------------------------------------


def test_c_srch_009_bm25_needs_no_limit_and_the_others_do():
    assert isinstance(ordered(f"order {{ {BM25} }}").rank, plan.Rank)
    assert refused(f"order {{ {NEAREST} }}") == "T17"
    assert refused(f"order {{ {RRF} }}") == "T21"
    assert ordered(f"order {{ {NEAREST} }} limit 0").rank is not None
    assert ordered(f"order {{ {RRF} }} limit $n").rank is not None


@pytest.mark.parametrize("direction", ["", "asc", "desc"])
def test_direct_rank_is_best_first_whatever_the_direction(direction: str):
    for call in (BM25, RRF):
        rank = ordered(f"order {{ {call} {direction} }} limit 3").rank
        assert rank is not None
        assert rank.best_first


@pytest.mark.parametrize(("direction", "best_first"), [("", False), ("asc", False), ("desc", True)])
def test_rank_by_alias_honours_the_direction(direction: str, best_first: bool):
    for call in (BM25, RRF):
        compiled = ordered(f"order {{ score {direction} }} limit 3", f"{call} as score")
        assert compiled.rank is not None
        assert compiled.rank.best_first is best_first
        assert compiled.order == ()
        assert compiled.columns[0].expression == compiled.rank.score


def test_further_keys_order_the_rows_of_one_candidate():
    compiled = ordered(f"order {{ {NEAREST}, $c.title desc }} limit 3", "$c", "$b cites $c")
    assert compiled.rank is not None
    assert compiled.rank.score.variable == "b"
    assert [key.descending for key in compiled.order] == [True]


def test_bm25_alias_after_the_first_key_is_a_plain_value():
    compiled = ordered("order { $b.genre, score desc }", f"{BM25} as score")
    assert compiled.rank is None
    assert [type(key.expression) for key in compiled.order] == [ex.PropertyValue, ex.Bm25]


@pytest.mark.parametrize("first", [f"{RRF} desc", "score desc"])
def test_alias_of_the_ranking_rrf_is_a_plain_value_after_the_first_key(first: str):
    compiled = ordered(f"order {{ {first}, score desc }} limit 3", f"{RRF} as score")
    assert compiled.rank is not None
    assert compiled.rank.best_first
    assert compiled.order == (plan.SortKey(compiled.rank.score, descending=True),)


def test_any_alias_may_follow_rrf():
    compiled = ordered(f"order {{ {RRF} desc, t, w desc }} limit 3", f"$b.title as t, {BM25} as w")
    assert [type(key.expression) for key in compiled.order] == [ex.PropertyValue, ex.Bm25]


def test_computed_score_is_a_plain_value():
    compiled = ordered("order { score desc }", f"{BM25} * 2 as score")
    assert compiled.rank is None
    assert len(compiled.order) == 1


def test_c_srch_010_alias_key_with_nearest_gives_t18():
    assert refused("order { d } limit 3", f"{NEAREST} as d") == "T18"
    assert refused(f"order {{ {NEAREST}, t }} limit 3", "$b.title as t") == "T18"
    assert refused("order { $b.title, d } limit 3", f"{NEAREST} as d") == "T18"


def test_nearest_goes_with_property_keys_and_score_columns():
    compiled = ordered(f"order {{ {NEAREST}, $b.title }} limit 3", f"$b, {NEAREST} as d")
    assert compiled.rank is not None
    assert compiled.columns[1].expression == compiled.rank.score


def test_returned_rrf_must_be_the_one_ordered_by():
    again = f"rrf({NEAREST}, {BM25}, 60)"
    assert ordered(f"order {{ {RRF} }} limit 3", f"{again} as s").rank is not None
    assert refused(f"order {{ {RRF} }} limit 3", f"rrf({BM25}, {NEAREST}) as s") == "T21"
    assert refused(f"order {{ {RRF} }} limit 3", f"rrf({NEAREST}, {BM25}, 61) as s") == "T21"
    assert refused("limit 3", f"{RRF} as s") == "T21"
    assert refused(f"order {{ {BM25} }} limit 3", f"{RRF} as s") == "T21"
    assert ordered("order { s desc } limit 3", f"{RRF} as s, s * 2 as t").rank is not None


def test_other_scores_may_be_returned_without_being_ordered_by():
    assert ordered("", f"{NEAREST}, {BM25}").rank is None


@pytest.mark.parametrize(
    ("tail", "items"),
    [
        (f"order {{ {BM25} }}", "$b.title, count(*)"),
        (f"order {{ {NEAREST} }} limit 3", "$b.title, count(*)"),
        (f"order {{ {RRF} }} limit 3", "$b.title, count(*)"),
        ("order { $b.pages }", "$b.title, count(*)"),
        (f"order {{ $b.title, {BM25} }}", "$b"),
        (f"order {{ $b.title, {NEAREST} }} limit 3", "$b"),
    ],
)
def test_t25_for_keys_out_of_place(tail: str, items: str):
    assert refused(tail, items) == "T25"


# --- limit and offset -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tail", "limit", "offset"),
    [
        ("", None, None),
        ("limit 0", 0, None),
        ("limit 18446744073709551615", 2**64 - 1, None),
        ("limit 20 offset 40", 20, 40),
        ("offset 40", None, 40),
        ("limit $n", ex.ParameterValue("n", ValueType(Scalar.I32)), None),
        (
            "limit 5 offset $m",
            5,
            ex.ParameterValue("m", ValueType(Scalar.U64, nullable=True)),
        ),
    ],
)
def test_limit_and_offset_are_numbers_or_parameters(
    tail: str, limit: plan.RowCount | None, offset: plan.RowCount | None
):
    compiled = ordered(tail)
    assert (compiled.limit, compiled.offset) == (limit, offset)


def test_limit_names_a_misspelt_parameter():
    error = refusal(query("$b: Book", "$b", "$count: I32", "limit $cuont"))
    assert (error.diagnostic, error.hint) == ("T14", "did you mean `$count`?")


def test_node_variable_is_no_limit():
    assert refused("limit $b") == "T14"


def test_annotations_travel_with_the_plan():
    compiled = read(
        'query q() @description("what") @instruction("how") { match { $b: Book } return { $b } }'
    )
    assert (compiled.description, compiled.instruction) == ("what", "how")
