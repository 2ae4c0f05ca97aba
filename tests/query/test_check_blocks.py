"""Negation, alternatives and optional parts are typed."""

from __future__ import annotations

import pytest

from omnigraph.query import expressions as ex
from omnigraph.query import plan
from tests.query.library import matching, query, refusal

# --- negation, alternatives, optional -------------------------------------------------------------


@pytest.mark.parametrize(
    "inner",
    [
        "$a wrote $b",
        "$b wrote $a",
        "$c: Author $c knows $a",
        '$a: Author { name: "x" }',
        '$a.name = "x"',
        'search($a.name, "x")',
        "$a.born is null",
        "$a is null",
        'lower($a.name) = "x"',
        "$c: Author $c.born = $a.born",
        "any { $a wrote $b }",
        "optional { $a wrote $b }",
        "$x knows $y $x $k:knows $a",
    ],
)
def test_c_qry_047_negation_that_mentions_an_outer_variable_passes(inner: str):
    *_, last = matching(f"$a: Author not {{ {inner} }}").pattern.steps
    assert isinstance(last, plan.Exclude)


@pytest.mark.parametrize(
    "inner", ["$c: Author", "$b wrote $c", "1 = 1", "$c: Author not { $c knows $a }", "$_ knows $_"]
)
def test_c_qry_047_negation_without_outer_variable_gives_t9(inner: str):
    assert refusal(query(f"$a: Author not {{ {inner} }}")).diagnostic == "T9"


def test_variables_of_two_negations_are_unrelated():
    compiled = matching("$a: Author not { $a wrote $x } not { $a knows $x }")
    _, first, second = compiled.pattern.steps
    assert isinstance(first, plan.Exclude)
    assert isinstance(second, plan.Exclude)
    assert [step.target_type for step in (*first.pattern.steps, *second.pattern.steps)] == [  # type: ignore[union-attr]
        "Book",
        "Author",
    ]


@pytest.mark.parametrize("block", ["not {{ {} }}", "any {{ all {{ {} }} }}"])
@pytest.mark.parametrize(
    ("inner", "later"),
    [
        ("$a wrote $b", '$b: Book { isbn: "i" }'),
        ("$a wrote $b not { $b cites $c }", '$c: Book { isbn: "i" } $b: Author'),
        ("$a wrote $b $b.pages > 3", '$b: Shop { region: "r", code: 1 }'),
        ("$a $b:wrote $c $b.role is null", '$b: Book { isbn: "i" } $c: Author'),
        ("$a knows{1,2} $c via $b $b.length > 1", '$b: Book { isbn: "i" }'),
        ("$a knows $c optional { $a wrote $b }", '$b: Book { isbn: "i" }'),
    ],
)
def test_local_variable_is_not_taken_for_a_later_one_of_the_same_name(
    block: str, inner: str, later: str
):
    """However the steps are ordered, the inner block never reads what was bound after it."""
    compiled = matching(f"$a: Author {block.format(inner)} {later}")
    outer = {variable.name for variable in compiled.variables}
    for step in compiled.pattern.steps:
        if isinstance(step, plan.Exclude | plan.Exists):
            patterns = step.alternatives if isinstance(step, plan.Exists) else (step.pattern,)
            for pattern in patterns:
                assert not introduced(pattern) & outer


def introduced(pattern: plan.Pattern) -> set[str]:
    found: set[str] = set()
    for step in pattern.steps:
        match step:
            case plan.Scan():
                found.add(step.variable)
            case plan.Expand():
                if not step.target_is_bound:
                    found.add(step.target)
                found |= {n for n in (step.edge_variable, step.path_variable) if n}
            case plan.Extend():
                found |= introduced(step.pattern)
            case plan.Exclude():
                found |= introduced(step.pattern)
    return found


def test_any_takes_each_clause_as_an_alternative_and_all_groups_them():
    compiled = matching(
        "$a: Author any { $a.born is null  all { $a wrote $b  $b.pages > 3 }  $a knows $_ }"
    )
    _, exists = compiled.pattern.steps
    assert isinstance(exists, plan.Exists)
    assert [[type(step) for step in one.steps] for one in exists.alternatives] == [
        [plan.FilterRows],
        [plan.Expand],
        [plan.Expand],
    ]


def test_alternatives_do_not_see_each_other():
    error = refusal(query("$a: Author any { $a wrote $b  $b.pages > 3 }"))
    assert error.diagnostic == "T6"


def test_any_needs_no_outer_variable():
    (exists, scan) = matching('$a: Author any { $b: Book { isbn: "i" } }').pattern.steps
    assert isinstance(exists, plan.Exists)
    assert isinstance(scan, plan.Scan)


def test_optional_variables_are_nullable_outside_and_not_inside():
    compiled = matching(
        "$a: Author optional { $a $w:wrote $b  $a knows{1,2} $c via $r  $b.title = $b.isbn }",
        "$a.name, $b.title, $b, $w.*, $r.length, $r.nodes, $b.* as book",
    )
    extend = compiled.pattern.steps[1]
    assert isinstance(extend, plan.Extend)
    assert set(extend.introduces) == {"b", "c", "r", "w"}
    inside = [
        part
        for step in extend.pattern.steps
        if isinstance(step, plan.Expand)
        for predicate in step.predicates
        for part in ex.walk(predicate)
        if isinstance(part, ex.PropertyValue)
    ]
    assert inside
    assert not any(part.type.nullable for part in inside)
    nullable = {
        column.name: (
            column.expression.nullable
            if isinstance(column.expression, ex.EntityObject)
            else column.expression.type.nullable
        )
        for column in compiled.columns
        if not isinstance(column.expression, ex.RecordList)
    }
    assert nullable == {
        "a.name": False,
        "b.title": True,
        "b": True,
        "w": True,
        "r.length": True,
        "r.nodes": True,
        "book": True,
    }
    assert {variable.name for variable in compiled.variables} == {"a", "b", "c", "w"}


def test_optional_variables_can_be_filtered_negated_and_extended_again():
    compiled = matching(
        "$a: Author optional { $a wrote $b } $b is null $b.pages > 3 "
        "not { $b cites $c } any { $b cites $d } optional { $b cites $e }"
    )
    kinds = [type(step) for step in compiled.pattern.steps]
    assert kinds == [
        plan.Scan,
        plan.Extend,
        plan.FilterRows,
        plan.Exclude,
        plan.Exists,
        plan.Extend,
    ]


def test_binding_an_optional_variable_in_a_block_asks_whether_it_was_found():
    compiled = matching("$a: Author optional { $a wrote $b } not { $b: Book }")
    exclude = compiled.pattern.steps[-1]
    assert isinstance(exclude, plan.Exclude)
    found = ex.IsNull(ex.EntityId("b", ex.STRING.with_nullable(True)), negated=True)
    assert exclude.pattern.steps == (plan.FilterRows((found,)),)


@pytest.mark.parametrize("clause", ["$b cites $c", "$c cites $b", "$b: Book", "$c $w:cites $b"])
def test_optional_variables_cannot_be_required_outside(clause: str):
    error = refusal(query(f"$a: Author optional {{ $a wrote $b }} {clause}"))
    assert error.diagnostic == "T6"
    assert error.message.endswith("`$b` is only bound inside `optional`")
    assert error.hint == "put this clause into that block, or bind the variable before it"


def test_nested_optional_hands_its_variables_outwards():
    compiled = matching(
        "$a: Author optional { $a wrote $b  optional { $b cites $c } }", "$b.title, $c.title"
    )
    extend = compiled.pattern.steps[1]
    assert isinstance(extend, plan.Extend)
    assert set(extend.introduces) == {"b", "c"}
    assert all(c.expression.type.nullable for c in compiled.columns)  # type: ignore[union-attr]
