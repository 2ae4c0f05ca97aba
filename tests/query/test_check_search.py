"""Text predicates and ranking calls."""

from __future__ import annotations

import pytest

from omnigraph.errors import QueryParseError
from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import round_to_f32
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from tests.query.library import matching, query, refusal

TEXT = ex.Constant("x", ex.STRING)


def predicates(clauses: str, parameters: str = "") -> list[ex.Expression]:
    return [
        predicate
        for step in matching(clauses, parameters=parameters).pattern.steps
        if isinstance(step, plan.Scan | plan.Expand | plan.FilterRows)
        for predicate in step.predicates
    ]


def rank(call: str, parameters: str = "", clauses: str = "$b: Book") -> ex.RankExpression:
    compiled = matching(clauses, "$b", parameters, f"order {{ {call} }} limit 3")
    assert compiled.rank is not None
    return compiled.rank.score


# --- predicates -----------------------------------------------------------------------------------


@pytest.mark.parametrize("function", ["search", "match_text"])
@pytest.mark.parametrize("test", ["", " = true"])
def test_text_predicate_stands_alone_or_equals_true(function: str, test: str):
    (found,) = predicates(f'$b: Book {function}($b.title, "x"){test}')
    assert found == ex.TextMatch(function, "b", "Book", "title", TEXT)  # type: ignore[arg-type]


def test_fuzzy_allows_two_edits_unless_told():
    two, zero, given = predicates(
        '$b: Book fuzzy($b.title, "x") fuzzy($b.title, "x", 0) fuzzy($b.title, "x", $n)',
        "$n: U32?",
    )
    assert isinstance(two, ex.TextMatch)
    assert two.edits_max == ex.Constant(2, ex.I64)
    assert isinstance(zero, ex.TextMatch)
    assert zero.edits_max == ex.Constant(0, ex.I64)
    assert isinstance(given, ex.TextMatch)
    assert given.edits_max == ex.ParameterValue("n", ValueType(Scalar.U32, nullable=True))


def test_text_may_be_a_nullable_parameter_and_the_field_an_enum():
    (found,) = predicates("$b: Book search($b.genre, $t)", "$t: String?")
    assert isinstance(found, ex.TextMatch)
    assert found.query == ex.ParameterValue("t", ex.STRING.with_nullable(True))


def test_predicate_works_on_a_hop_destination_and_under_not():
    _, hop, exclude = matching(
        '$a: Author { handle: "h" } $a wrote $b search($b.title, "x") '
        'not { $b cites $c match_text($c.title, "y") }'
    ).pattern.steps
    assert isinstance(hop, plan.Expand)
    assert isinstance(hop.predicates[0], ex.TextMatch)
    assert isinstance(exclude, plan.Exclude)
    (inner,) = exclude.pattern.steps
    assert isinstance(inner, plan.Expand)
    assert isinstance(inner.predicates[0], ex.TextMatch)


def test_parameter_named_like_a_node_is_the_text():
    (found,) = predicates("$b: Book search($b.title, $b)", "$b: String")
    assert isinstance(found, ex.TextMatch)
    assert found.query == ex.ParameterValue("b", ex.STRING)


# --- ranking --------------------------------------------------------------------------------------


def test_nearest_rounds_a_literal_vector_like_a_parameter():
    score = rank("nearest($b.vec, [0.1, 2, -0.5, 0.0])")
    assert isinstance(score, ex.Nearest)
    assert score.query == ex.Constant(
        (round_to_f32(0.1), 2.0, -0.5, 0.0), ValueType(Scalar.VECTOR, vector_dim=4)
    )


def test_nearest_refuses_a_component_beyond_single_precision():
    error = refusal(
        query(
            "$b: Book",
            "$b",
            tail=f"order {{ nearest($b.vec, [{'9' * 40}.0, 0.0, 0.0, 0.0]) }} limit 3",
        )
    )
    assert error.diagnostic == "T15"


@pytest.mark.parametrize(
    ("declared", "scalar"),
    [
        ("Vector(4)", ValueType(Scalar.VECTOR, vector_dim=4)),
        ("Vector(4)?", ValueType(Scalar.VECTOR, vector_dim=4, nullable=True)),
        ("[F32]", ValueType(Scalar.F32, is_list=True)),
        ("[I64]?", ValueType(Scalar.I64, is_list=True, nullable=True)),
        ("String", ex.STRING),
        ("String?", ex.STRING.with_nullable(True)),
    ],
)
def test_nearest_takes_vectors_lists_of_numbers_and_texts(declared: str, scalar: ValueType):
    score = rank("nearest($b.vec, $v)", f"$v: {declared}")
    assert isinstance(score, ex.Nearest)
    assert score.query == ex.ParameterValue("v", scalar)


def test_nearest_carries_the_dimension_and_the_recorded_model():
    score = rank('nearest($b.vec, "x")')
    assert score == ex.Nearest("b", "Book", "vec", 4, TEXT, "acme/text-1")
    other = rank('nearest($b.vec, "x")', clauses="$b: Review")
    assert other == ex.Nearest("b", "Review", "vec", 2, TEXT, None)


def test_rrf_fuses_any_two_arms_of_one_variable():
    first, second = ex.Bm25("b", "Book", "title", TEXT), ex.Bm25("b", "Book", "blurb", TEXT)
    assert rank('rrf(bm25($b.title, "x"), bm25($b.blurb, "x"))') == ex.Rrf(
        first, second, ex.Constant(60, ex.I64)
    )
    fused = rank('rrf(nearest($b.vec, "x"), nearest($b.vec, "y"), 7)')
    assert isinstance(fused, ex.Rrf)
    assert fused.k == ex.Constant(7, ex.I64)
    by_parameter = rank('rrf(bm25($b.title, "x"), bm25($b.blurb, "x"), $k)', "$k: I64")
    assert isinstance(by_parameter, ex.Rrf)
    assert by_parameter.k == ex.ParameterValue("k", ex.I64)


# --- refusals -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("clauses", "order", "code"),
    [
        ("$b: Book", 'nearest($b.title, "x")', "T15"),
        ("$b: Book", "nearest($b.vec, 3)", "T15"),
        ('$b: Book search($b.pages, "x")', None, "T19"),
        ("$b: Book search($b.title, 3)", None, "T19"),
        ('$b: Book fuzzy($b.title, "x", 0.5)', None, "T19"),
        ('$b: Book match_text($b.tags, "x")', None, "T20"),
        ("$b: Book", 'bm25($b.pages, "x")', "T20"),
        ("$b: Book", 'rrf(bm25($b.title, "x"), bm25($b.title, "y"), 0)', "T21"),
        ("$b: Book", 'rrf(bm25($b.pages, "x"), bm25($b.title, "y"))', "T20"),
        ("$b: Book", 'rrf(bm25($b.title, "x"), nearest($b.title, "y"))', "T15"),
        ('$a $b:wrote $c search($b.role, "x")', None, "T23"),
        ("$a $b:wrote $c", 'bm25($b.role, "x")', "T23"),
    ],
)
def test_c_srch_007_wrong_argument_kinds(clauses: str, order: str | None, code: str):
    tail = f"order {{ {order} }} limit 3" if order else ""
    assert (
        refusal(query(clauses, "count(*)" if order is None else "1", tail=tail)).diagnostic == code
    )


@pytest.mark.parametrize("length", [0, 1, 3, 5])
def test_c_srch_010_wrong_dimension_gives_t15(length: int):
    literal = f"[{', '.join(['0.5'] * length)}]"
    error = refusal(query("$b: Book", "$b", tail=f"order {{ nearest($b.vec, {literal}) }} limit 3"))
    assert error.diagnostic == "T15"
    assert error.reason == f"`vec` has 4 dimensions, but the query has {length}"
    if length:
        tail = "order { nearest($b.vec, $v) } limit 3"
        error = refusal(query("$b: Book", "$b", f"$v: Vector({length})", tail))
        assert error.diagnostic == "T15"


def test_field_of_the_wrong_kind_suggests_a_fitting_one():
    error = refusal(query('$b: Book search($b.titles, "x")'))
    assert error.hint == "did you mean `title`?"
    error = refusal(query("$b: Book", "$b", tail='order { nearest($b.vek, "x") } limit 3'))
    assert error.hint == "did you mean `vec`?"
    error = refusal(query('$b: Book search($b.vec, "x")'))
    assert error.reason == "`search` needs a String property, but Book.vec is Vector(4)?"


def test_c_srch_029_an_error_in_a_literal_points_into_the_literal():
    with pytest.raises(QueryParseError) as caught:
        matching('$b: Book search($b.title, text_query("\\"one two\\" AND (three"))')
    position = caught.value.position
    assert position is not None
    assert position.line_text[position.column - 1 :].startswith("(three")
