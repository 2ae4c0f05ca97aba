"""What the clauses of a match mean once they are checked."""

from __future__ import annotations

import datetime as dt

import pytest

from omnigraph.model.floats import round_to_f32
from omnigraph.model.types import Scalar, ValueType
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from tests.query.library import matching, pointed_at, query, refusal

F32 = ValueType(Scalar.F32)


def book(name: str, type_: ValueType, variable: str = "b") -> ex.PropertyValue:
    return ex.PropertyValue(variable, "node", "Book", name, type_)


TITLE = book("title", ex.STRING)
PAGES = book("pages", ValueType(Scalar.I32, nullable=True))
WEIGHT = book("weight", ValueType(Scalar.F32, nullable=True))
PRICE = book("price", ValueType(Scalar.F64, nullable=True))
TAGS = book("tags", ValueType(Scalar.STRING, nullable=True, is_list=True))
GRADES = book("grades", ValueType(Scalar.F32, nullable=True, is_list=True))


def conditions(clauses: str, parameters: str = "") -> tuple[ex.Expression, ...]:
    """The predicates of a match that binds `$b: Book` and adds ``clauses``."""
    (scan,) = matching(f"$b: Book {clauses}", parameters=parameters).pattern.steps
    assert isinstance(scan, plan.Scan)
    return scan.predicates


def condition(clause: str, parameters: str = "") -> ex.Expression:
    (predicate,) = conditions(clause, parameters)
    return predicate


def integer(value: int) -> ex.Constant:
    return ex.Constant(value, ex.I64)


# --- bindings -------------------------------------------------------------------------------------


def test_c_qry_015_inline_pairs_become_one_equality_each():
    (scan,) = matching('$b: Book { pages: 300, title: "Dune" }').pattern.steps
    assert scan == plan.Scan(
        "b",
        "Book",
        (
            ex.Compare("=", PAGES, integer(300)),
            ex.Compare("=", TITLE, ex.Constant("Dune", ex.STRING)),
        ),
    )


def test_c_qry_015_pair_on_a_list_property_means_membership():
    (scan,) = matching('$b: Book { tags: "sf" }').pattern.steps
    assert isinstance(scan, plan.Scan)
    assert scan.predicates == (ex.ListContains(TAGS, ex.Constant("sf", ex.STRING)),)


def test_pair_takes_parameters_and_now():
    (scan,) = matching(
        "$b: Book { pages: $n, updated: now(), moments: now() }", parameters="$n: U64?"
    ).pattern.steps
    assert isinstance(scan, plan.Scan)
    assert scan.predicates == (
        ex.Compare("=", PAGES, ex.ParameterValue("n", ValueType(Scalar.U64, nullable=True))),
        ex.Compare(
            "=", book("updated", ValueType(Scalar.DATETIME, nullable=True)), ex.CurrentTime()
        ),
        ex.ListContains(
            book("moments", ValueType(Scalar.DATETIME, nullable=True, is_list=True)),
            ex.CurrentTime(),
        ),
    )


def test_pair_accepts_every_fitting_literal():
    matching(
        '$b: Book { genre: "poetry", pages: 2.5, weight: 2, available: true, '
        'released: date("2031-04-09"), updated: datetime("2031-04-09T07:30:00Z"), printed: 7, }'
    )


def test_c_qry_016_inline_undeclared_variable_gives_t14():
    error = refusal(query("$b: Book { title: $titel }", parameters="$title: String"))
    assert error.diagnostic == "T14"
    assert error.hint == "did you mean `$title`?"


def test_c_qry_020_rebinding_conjoins():
    twice = matching('$b: Book { title: "x" } $b: Book { pages: 3 }')
    once = matching('$b: Book { title: "x", pages: 3 }')
    assert twice.pattern == once.pattern


def test_c_qry_020_rebinding_to_another_type_is_an_error_without_a_code():
    error = refusal(query("$b: Book $b: Shop"))
    assert error.diagnostic is None
    assert error.message == "type error: `$b` is already bound to Book, not Shop"


def test_c_qry_020_rebinding_what_a_hop_typed_conjoins():
    compiled = matching("$a: Author $a wrote $b $b: Book { pages: 3 }")
    assert compiled.pattern.steps == (
        plan.Scan("b", "Book", (ex.Compare("=", PAGES, integer(3)),)),
        plan.Expand("b", "Book", "a", "Author", "Wrote", "in", 1, 1),
    )


def test_bindings_without_a_hop_are_a_cross_product():
    assert matching("$a: Author $b: Book").pattern.steps == (
        plan.Scan("a", "Author"),
        plan.Scan("b", "Book"),
    )


# --- hops -----------------------------------------------------------------------------------------


def expand(clauses: str) -> plan.Expand:
    (step,) = (s for s in matching(clauses).pattern.steps if isinstance(s, plan.Expand))
    return step


@pytest.mark.parametrize("word", ["soldInTown", "soldintown", "soldInTOWN", "sold_in_town"])
def test_c_qry_021_edge_word_ignores_case(word: str):
    text = query(f"$b: Book $b {word} $s")
    if "_" in word:
        error = refusal(text)
        assert (error.diagnostic, error.hint) == ("T4", "did you mean `soldInTown`?")
    else:
        assert expand(f"$b: Book $b {word} $s").edge_type == "SoldInTown"


@pytest.mark.parametrize(
    ("clauses", "direction", "source", "target"),
    [
        ("$x: Author $x wrote $y", "out", "Author", "Book"),
        ("$x: Book $x wrote $y", "in", "Book", "Author"),
        ("$y: Book $x wrote{1,1} $y $x.born is null", "out", "Author", "Book"),
        ("$x: Book $x cites $y", "out", "Book", "Book"),
        ("$x: Book $y: Book $x cites $y", "out", "Book", "Book"),
        ("$x: Author $x knows $y", "out", "Author", "Author"),
        ("$x: Author $y: Book $x wrote $y", "out", "Author", "Book"),
        ("$x: Book $y: Author $x wrote $y", "in", "Book", "Author"),
    ],
)
def test_c_qry_022_hop_written_from_either_end_infers_direction(
    clauses: str, direction: str, source: str, target: str
):
    step = expand(clauses)
    ends = {step.source: step.source_type, step.target: step.target_type}
    assert ends == {"x": source, "y": target}
    flipped = {"out": "in", "in": "out", "both": "both"}[step.direction]
    assert direction == (step.direction if step.source == "x" else flipped)


def test_c_qry_022_hop_with_only_its_right_end_typed_is_walked_from_there():
    assert matching("$b: Book $a wrote $b").pattern.steps == (
        plan.Scan("b", "Book"),
        plan.Expand("b", "Book", "a", "Author", "Wrote", "in", 1, 1),
    )
    assert matching("$a: Author $b wrote $a").pattern.steps == (
        plan.Scan("a", "Author"),
        plan.Expand("a", "Author", "b", "Book", "Wrote", "out", 1, 1),
    )


def test_c_qry_022_wrong_type_names_the_edge_and_the_variable():
    error = refusal(query("$s: Shop $s wrote $b"))
    assert error.message == ("type error: T5: edge Wrote goes from Author to Book; `$s` is a Shop")


def test_c_qry_022_direction_is_inferred_under_not():
    *_, exclude = matching("$b: Book not { $b wrote $a }").pattern.steps
    assert exclude == plan.Exclude(
        plan.Pattern((plan.Expand("b", "Book", "a", "Author", "Wrote", "in", 1, 1),))
    )


def test_c_qry_023_hop_with_no_typed_end_goes_out_and_types_both():
    compiled = matching("$x wrote $y", "$x.name, $y.title")
    assert compiled.pattern.steps == (
        plan.Scan("x", "Author"),
        plan.Expand("x", "Author", "y", "Book", "Wrote", "out", 1, 1),
    )
    assert compiled.variables == (
        plan.BoundVariable("x", "node", "Author"),
        plan.BoundVariable("y", "node", "Book"),
    )


@pytest.mark.parametrize("bounds", ["{0,1}", "{3,1}", "{1,}", "{0,}", "{0,0}"])
def test_c_qry_030_bad_hop_bounds_give_t15(bounds: str):
    text = query(f"$a knows{bounds} $b")
    error = refusal(text)
    assert error.diagnostic == "T15"
    assert pointed_at(error, text) == bounds


def test_hop_bounds_are_kept_and_capped_between_two_types():
    knows, wrote, never = (
        expand(clauses) for clauses in ("$a knows{2,5} $b", "$a wrote{1,9} $b", "$a wrote{2,9} $b")
    )
    assert (knows.minimum, knows.maximum) == (2, 5)
    assert (wrote.minimum, wrote.maximum) == (1, 1)
    assert (never.minimum, never.maximum) == (2, 1)


def test_c_qry_033_undirected_hop_needs_one_type_at_both_ends():
    assert expand("$a <cites>{1,3} $b").direction == "both"
    error = refusal(query("$a <wrote> $b"))
    assert error.diagnostic == "T22"
    assert error.hint == "write `wrote` without the angle brackets"


def test_hop_from_a_node_to_itself_is_a_check():
    assert matching("$b cites $b").pattern.steps == (
        plan.Scan("b", "Book"),
        plan.Expand("b", "Book", "b", "Book", "Cites", "out", 1, 1, target_is_bound=True),
    )


def test_hop_between_bound_ends_is_a_check():
    *_, check = matching("$a: Author $a wrote $b $a wrote $b").pattern.steps
    assert isinstance(check, plan.Expand)
    assert check.target_is_bound


def test_anonymous_ends_never_join():
    compiled = matching("$a wrote $_ $a knows $_ $_ cites $_")
    ends = [
        name
        for step in compiled.pattern.steps
        if isinstance(step, plan.Expand)
        for name in (step.source, step.target)
    ]
    anonymous = [name for name in ends if name != "a"]
    assert len(anonymous) == len(set(anonymous)) == 4
    assert compiled.variables == (plan.BoundVariable("a", "node", "Author"),)


def test_edge_word_may_be_a_word_of_the_language():
    assert expand("$b: Book $b contains $c").edge_type == "Contains"


def test_node_and_edge_type_of_one_name_are_told_apart_by_position():
    compiled = matching('$c: Cites { name: "x" } $b cites $d')
    assert {step.type_name for step in compiled.pattern.steps if isinstance(step, plan.Scan)} == {
        "Cites",
        "Book",
    }


# --- edge bindings and paths ----------------------------------------------------------------------


def test_edge_binding_reads_the_properties_of_the_edge():
    compiled = matching('$a $w:wrote $b $w.role = "editor"', "$w.role, $w.*")
    expand_step = compiled.pattern.steps[1]
    assert isinstance(expand_step, plan.Expand)
    role = ex.PropertyValue("w", "edge", "Wrote", "role", ex.STRING.with_nullable(True))
    assert expand_step.edge_variable == "w"
    assert expand_step.predicates == (ex.Compare("=", role, ex.Constant("editor", ex.STRING)),)
    assert compiled.columns[0].expression == role
    assert compiled.columns[1].expression == ex.EntityObject(
        "w",
        "edge",
        "Wrote",
        (
            ("id", ex.STRING),
            ("src", ex.STRING),
            ("dst", ex.STRING),
            ("role", ex.STRING.with_nullable(True)),
            ("share", ValueType(Scalar.F32, nullable=True)),
        ),
    )
    assert compiled.variables == (
        plan.BoundVariable("a", "node", "Author"),
        plan.BoundVariable("b", "node", "Book"),
        plan.BoundVariable("w", "edge", "Wrote"),
    )


def test_edge_binding_allows_bounds_of_one_and_no_direction():
    step = expand("$b $c:<cites>{1,1} $d")
    assert (step.edge_variable, step.direction) == ("c", "both")


def test_anonymous_edge_binding_binds_nothing_and_allows_bounds_and_paths():
    step = expand("$a $_:knows{1,3} $b via $r")
    assert (step.edge_variable, step.path_variable, step.maximum) == (None, "r", 3)


@pytest.mark.parametrize(
    "clauses",
    [
        "$a $k:knows{1,2} $b",
        "$k: Author $a $k:knows $b",
        "$a $k:knows $b $k = 3",
        "$a $k:knows $b $k knows $c",
        '$a $k:wrote $b search($k.role, "x")',
    ],
)
def test_c_qry_035_misuse_of_an_edge_binding_gives_t23(clauses: str):
    assert refusal(query(clauses)).diagnostic == "T23"


def test_path_has_nodes_and_length():
    compiled = matching(
        "$a: Author $a knows{1,4} $b via $r $r.length > 1", "$r.nodes, $r.length as hops"
    )
    assert compiled.pattern.steps[1:] == (
        plan.Expand("a", "Author", "b", "Author", "Knows", "out", 1, 4, path_variable="r"),
        plan.Filter((ex.Compare(">", ex.PathLength("r"), integer(1)),)),
    )
    assert [column.expression for column in compiled.columns] == [
        ex.PathNodes("r"),
        ex.PathLength("r"),
    ]
    assert "r" not in {variable.name for variable in compiled.variables}


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
        if isinstance(step, plan.Scan | plan.Filter)
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
    assert compiled.pattern.steps[0] == plan.Filter(
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
    assert compiled.pattern.steps[0] == plan.Filter(
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
        ex.Arithmetic("*", WEIGHT, integer(1), ValueType(Scalar.F64, nullable=True)),
        ex.Constant(0.1, ex.F64),
    )


def test_literal_beyond_f32_becomes_infinite_and_still_compares():
    assert condition(f"$b.weight < {'9' * 40}.0") == ex.Compare(
        "<", WEIGHT, ex.Constant(float("inf"), F32)
    )


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
        [plan.Filter],
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
    assert kinds == [plan.Scan, plan.Extend, plan.Filter, plan.Exclude, plan.Exists, plan.Extend]


def test_binding_an_optional_variable_in_a_block_asks_whether_it_was_found():
    compiled = matching("$a: Author optional { $a wrote $b } not { $b: Book }")
    exclude = compiled.pattern.steps[-1]
    assert isinstance(exclude, plan.Exclude)
    found = ex.IsNull(ex.EntityId("b", ex.STRING.with_nullable(True)), negated=True)
    assert exclude.pattern.steps == (plan.Filter((found,)),)


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


# --- names ----------------------------------------------------------------------------------------


def test_bare_name_of_parameter_and_node_means_the_parameter():
    compiled = matching(
        "$b: Book { pages: $b }  $b.title = $t  $b cites $t",
        "$b, $b.title, $t.title, count($b) as n",
        "$b: I32, $t: String",
    )
    assert compiled.group_by is not None
    assert dict(compiled.group_by.items)["b"] == ex.ParameterValue("b", ValueType(Scalar.I32))


def test_shared_name_in_a_null_test_means_the_parameter():
    compiled = matching("$b: Book $b is null", parameters="$b: I32?")
    assert compiled.pattern.steps[0] == plan.Filter(
        (ex.IsNull(ex.ParameterValue("b", ValueType(Scalar.I32, nullable=True)), False),)
    )


@pytest.mark.parametrize(
    ("clauses", "parameters", "hint"),
    [
        ("$b: Boook", "", "did you mean `Book`?"),
        ("$n: Named", "", "it is an interface; bind one of the node types implementing it"),
        ("$w: Wrote", "", "it is an edge type; traverse it with a hop, such as `$a word $b`"),
        ("$a: Author $a rote $b", "", "did you mean `wrote`?"),
        ("$b: Book { titel: 3 }", "", "did you mean `title`?"),
        ("$b: Book $b.titel = 3", "", "did you mean `title`?"),
        ("$b: Book $b.id = 3", "", "`$b` alone is the id"),
        ("$book: Book $bok.title = 3", "", "did you mean `$book`?"),
        ("$b: Book $b.title = $titel", "$title: String", "did you mean `$title`?"),
        ("$b: Book { title: $titel }", "$title: String", "did you mean `$title`?"),
        ("$b: Book { title: $x }", "", "declare it: `query name($x: String)`"),
        ("$b: Book $b.title = $zz", "", "bind it first, for instance with `$zz: Type`"),
        (
            "$b: Book $t.title = 3",
            "$t: String",
            "parameters have no properties; bind a node with `$x: Type` first",
        ),
        (
            "$a wrote $_ $_.title = 3",
            "",
            "`$_` stands for no node in particular; give the variable a name",
        ),
        ("$b: Book $b.pages = null", "", "test for null with `is null` or `is not null`"),
        ("$b: Book $b.title = dune", "", 'write "dune" for text, or `$x.dune` for a property'),
        ('$b: Book $b.released = "2031"', "", 'write a date as `date("2031-04-09")`'),
        ("$b: Book $b = 3", "", None),
    ],
)
def test_hint_names_the_next_step(clauses: str, parameters: str, hint: str | None):
    error = refusal(query(clauses, parameters=parameters))
    if hint is None:
        assert error.hint is not None
        assert error.hint.startswith("compare one of its properties, such as `$b.")
    else:
        assert error.hint == hint
