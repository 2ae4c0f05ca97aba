"""Conditions are typed, and numbers are compared in the right precision."""

from __future__ import annotations

import datetime as dt

import pytest

from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import round_to_f32
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from tests.query.books import (
    F32,
    GRADES,
    PAGES,
    PRICE,
    TAGS,
    TITLE,
    WEIGHT,
    book,
    condition,
    integer,
)
from tests.query.library import matching, query, refusal

# --- filters --------------------------------------------------------------------------------------


@pytest.mark.parametrize("operator", ["=", "!=", "<", "<=", ">", ">="])
def test_comparison_keeps_its_operator_and_its_sides(operator: str):
    assert condition(f"$b.pages {operator} 3") == ex.Compare(operator, PAGES, integer(3))  # type: ignore[arg-type]
    assert condition(f"3 {operator} $b.pages") == ex.Compare(operator, integer(3), PAGES)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "clause",
    [
        "$b.pages = 2.7",
        "$b.printed > -1",
        "$b.price < $b.pages",
        "$b.sold = $b.printed",
        "$b.weight = $b.chapters",
        '$b.genre = "no genre at all"',
        "$b.genre = $b.language",
        "$b.genre != $b.title",
        "$b.available < true",
        'date("2031-04-09") <= $b.released',
        '$b.updated = datetime("2031-04-09")',
        "now() > $b.updated",
        "$b.pages + 1 < $b.sold * 2",
        'lower($b.title) = "x"',
        "1 = 1",
    ],
)
def test_comparable_operands_pass(clause: str):
    assert isinstance(condition_anywhere(clause), ex.Compare)


def condition_anywhere(clause: str) -> ex.Expression:
    found = [
        predicate
        for step in matching(f"$b: Book {clause}").pattern.steps
        if isinstance(step, plan.Scan | plan.FilterRows)
        for predicate in step.predicates
    ]
    assert len(found) == 1
    return found[0]


def test_text_and_list_operators_are_told_apart_by_their_left_side():
    needle = ex.Constant("x", ex.STRING)
    assert condition('$b.title contains "x"') == ex.TextContains(TITLE, needle)
    assert condition('"x" contains $b.title') == ex.TextContains(needle, TITLE)
    assert condition('$b.title starts_with "x"') == ex.TextStartsWith(TITLE, needle)
    assert condition('$b.tags contains "x"') == ex.ListContains(TAGS, needle)
    assert condition('$b.genre contains "x"') == ex.TextContains(
        book("genre", ValueType(Scalar.STRING, enum_values=("fiction", "poetry", "science"))),
        needle,
    )
    parameter = ex.ParameterValue("l", ex.STRINGS)
    assert condition("($l) contains $b.title", "$l: [String]") == ex.ListContains(parameter, TITLE)


def test_two_parameters_are_compared_inside_parentheses():
    compiled = matching("$b: Book ($p) contains $q", parameters="$p: String, $q: String")
    assert compiled.pattern.steps[0] == plan.FilterRows(
        (ex.TextContains(ex.ParameterValue("p", ex.STRING), ex.ParameterValue("q", ex.STRING)),)
    )


def test_in_is_membership_with_the_list_on_the_right():
    assert condition("$b.pages in [1, 2]") == ex.ListContains(
        ex.Constant((1, 2), ValueType(Scalar.I64, is_list=True)), PAGES
    )
    assert condition("$b.pages in $l", "$l: [U64]?") == ex.ListContains(
        ex.ParameterValue("l", ValueType(Scalar.U64, is_list=True, nullable=True)), PAGES
    )
    assert condition("$b.title in $b.tags") == ex.ListContains(TAGS, TITLE)
    assert condition('"x" in $b.tags') == ex.ListContains(TAGS, ex.Constant("x", ex.STRING))


@pytest.mark.parametrize("clause", ["$b.pages in []", "[] contains $b.pages"])
def test_the_empty_list_holds_values_of_any_type(clause: str):
    assert condition(clause) == ex.ListContains(ex.Constant((), ex.STRINGS), PAGES)


def test_variable_in_variable_stays_a_hop():
    error = refusal(query("$b: Book $b in $l", parameters="$l: [String]"))
    assert error.diagnostic == "T4"


@pytest.mark.parametrize("negated", [False, True])
def test_null_test_on_properties_parameters_and_nodes(negated: bool):
    test = "is not null" if negated else "is null"
    assert condition(f"$b.pages {test}") == ex.IsNull(PAGES, negated)
    assert condition(f"$b.vec {test}") == ex.IsNull(
        book("vec", ValueType(Scalar.VECTOR, nullable=True, vector_dim=4)), negated
    )
    assert condition(f"$b {test}") == ex.IsNull(ex.EntityId("b"), negated)
    compiled = matching(f"$b: Book $p {test}", parameters="$p: I32?")
    assert compiled.pattern.steps[0] == plan.FilterRows(
        (ex.IsNull(ex.ParameterValue("p", ValueType(Scalar.I32, nullable=True)), negated),)
    )


def test_dates_become_python_values():
    assert condition('$b.released = date("2031-04-09")') == ex.Compare(
        "=",
        book("released", ValueType(Scalar.DATE, nullable=True)),
        ex.Constant(dt.date(2031, 4, 9), ValueType(Scalar.DATE)),
    )
    assert condition('$b.updated = datetime("2031-04-09 09:30:00+02:00")') == ex.Compare(
        "=",
        book("updated", ValueType(Scalar.DATETIME, nullable=True)),
        ex.Constant(dt.datetime(2031, 4, 9, 7, 30, tzinfo=dt.UTC), ex.DATETIME),
    )


# --- single precision -----------------------------------------------------------------------------

TENTH = ex.Constant(round_to_f32(0.1), F32)


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        ("$b.weight = 0.1", ex.Compare("=", WEIGHT, TENTH)),
        ("0.1 < $b.weight", ex.Compare("<", TENTH, WEIGHT)),
        (
            "$b.weight in [0.1, 1]",
            ex.ListContains(
                ex.Constant((round_to_f32(0.1), 1.0), ValueType(Scalar.F32, is_list=True)), WEIGHT
            ),
        ),
        ("$b.grades contains 0.1", ex.ListContains(GRADES, TENTH)),
        ("0.1 in $b.grades", ex.ListContains(GRADES, TENTH)),
        ("$b: Book { weight: 0.1 }", ex.Compare("=", WEIGHT, TENTH)),
        ("$b: Book { grades: 0.1 }", ex.ListContains(GRADES, TENTH)),
    ],
)
def test_float_literals_are_rounded_against_f32(clause: str, expected: ex.Expression):
    assert condition(clause) == expected


@pytest.mark.parametrize(
    ("clause", "expected"),
    [
        (
            "$b.weight = $p",
            lambda p: ex.Compare("=", WEIGHT, p),
        ),
        ("$p != $b.weight", lambda p: ex.Compare("!=", p, WEIGHT)),
        ("$b: Book { weight: $p }", lambda p: ex.Compare("=", WEIGHT, p)),
        ("$b: Book { grades: $p }", lambda p: ex.ListContains(GRADES, p)),
        ("$b.grades contains $p", lambda p: ex.ListContains(GRADES, p)),
        ("($p) in $b.grades", lambda p: ex.ListContains(GRADES, p)),
    ],
)
def test_float_parameters_are_rounded_against_f32(clause: str, expected):
    parameter = ex.ParameterValue("p", ex.F64)
    assert condition(clause, "$p: F64") == expected(ex.RoundToF32(parameter, F32))


def test_float_list_parameters_are_rounded_against_f32():
    listed = ValueType(Scalar.F64, is_list=True, nullable=True)
    assert condition("$b.weight in $p", "$p: [F64]?") == ex.ListContains(
        ex.RoundToF32(
            ex.ParameterValue("p", listed), ValueType(Scalar.F32, is_list=True, nullable=True)
        ),
        WEIGHT,
    )


@pytest.mark.parametrize(
    ("clause", "parameters", "value"),
    [
        ("$b.weight = 3", "", integer(3)),
        ("$b.weight = $p", "$p: I64", ex.ParameterValue("p", ex.I64)),
        ("$b.weight = $p", "$p: F32", ex.ParameterValue("p", F32)),
        ("$b.weight = $b.price", "", PRICE),
        ("$b.price = 0.1", "", ex.Constant(0.1, ex.F64)),
        ("$b.price = $p", "$p: F64", ex.ParameterValue("p", ex.F64)),
        ("$b.pages = 0.1", "", ex.Constant(0.1, ex.F64)),
        ("$b.pages in [0.1]", "", ex.Constant((0.1,), ValueType(Scalar.F64, is_list=True))),
        ("$b.weight in [1, 2]", "", ex.Constant((1, 2), ValueType(Scalar.I64, is_list=True))),
    ],
)
def test_nothing_else_is_rounded(clause: str, parameters: str, value: ex.Expression):
    predicate = condition(clause, parameters)
    assert value in set(ex.children(predicate))
    assert not any(isinstance(part, ex.RoundToF32) for part in ex.walk(predicate))


def test_float_literals_are_rounded_against_the_first_of_several_f32():
    assert condition("coalesce($b.weight, $b.weight) = 0.1") == ex.Compare(
        "=",
        ex.ScalarCall("coalesce", (WEIGHT, WEIGHT), ValueType(Scalar.F32, nullable=True)),
        TENTH,
    )


def test_computed_sides_compare_by_value():
    assert condition("$b.weight * 1 = 0.1") == ex.Compare(
        "=",
        ex.ArithmeticValue("*", WEIGHT, integer(1), ValueType(Scalar.F64, nullable=True)),
        ex.Constant(0.1, ex.F64),
    )


def test_literal_beyond_f32_becomes_infinite_and_still_compares():
    assert condition(f"$b.weight < {'9' * 40}.0") == ex.Compare(
        "<", WEIGHT, ex.Constant(float("inf"), F32)
    )
