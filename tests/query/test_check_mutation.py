"""Write queries: statements, values and predicates."""

from __future__ import annotations

import datetime as dt

import pytest

from omnigraph.model.types import Scalar, ValueType
from omnigraph.model.values import BlobUri, round_to_f32
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from tests.query.library import catalog, mutation, refusal

REQUIRED = 'isbn: "i" title: "t" genre: "poetry"'


def write(statement: str, parameters: str = "") -> plan.MutationPlan:
    return mutation(f"query q({parameters}) {{ {statement} }}")


def refused(statement: str, parameters: str = ""):
    return refusal(f"query q({parameters}) {{ {statement} }}")


def assigned(assignment: str, parameters: str = "") -> ex.Expression:
    """The value one more assignment gives to an inserted book."""
    (step,) = write(f"insert Book {{ {REQUIRED} {assignment} }}", parameters).steps
    assert isinstance(step, plan.InsertNode)
    last = step.assignments[-1]
    declared = catalog().nodes["Book"].properties[last.property]
    assert last.type == declared.type
    return last.value


def predicate(where: str, parameters: str = "", type_name: str = "Book") -> ex.Expression:
    (step,) = write(f"delete {type_name} where {where}", parameters).steps
    assert isinstance(step, plan.DeleteNodes | plan.DeleteEdges)
    return step.predicate


def column(name: str, type_name: str = "Book") -> ex.PropertyValue:
    declared = catalog().nodes[type_name].properties[name]
    return ex.PropertyValue(ex.MUTATION_TARGET, "node", type_name, name, declared.type)


# --- statements -----------------------------------------------------------------------------------


def test_insert_node_keeps_the_assignments_in_order():
    (step,) = write('insert Cites { name: "x" }').steps
    assert step == plan.InsertNode(
        "Cites", (plan.Assignment("name", ex.STRING, ex.Constant("x", ex.STRING)),)
    )


def test_insert_edge_takes_its_ends_apart():
    (step,) = write(
        'insert Knows { from: $a, since: date("2031-04-09"), to: "b" }', "$a: String?"
    ).steps
    assert step == plan.InsertEdge(
        "Knows",
        ex.ParameterValue("a", ex.STRING.with_nullable(True)),
        ex.Constant("b", ex.STRING),
        (
            plan.Assignment(
                "since",
                ValueType(Scalar.DATE),
                ex.Constant(dt.date(2031, 4, 9), ValueType(Scalar.DATE)),
            ),
        ),
    )


def test_update_and_delete():
    first, second = write(
        'update Book set { pages: 3, blurb: null } where isbn = "i" '
        "update Author set { born: null } where born is not null"
    ).steps
    assert isinstance(first, plan.UpdateNodes)
    assert [a.property for a in first.assignments] == ["pages", "blurb"]
    assert isinstance(second, plan.UpdateNodes)
    (step,) = write("delete Book where pages > 3").steps
    assert step == plan.DeleteNodes(
        "Book",
        ex.Compare(">", column("pages"), ex.Constant(3, ex.I64)),
        ("About", "Cites", "Contains", "Sells", "SoldInTown", "Wrote"),
    )


def test_delete_edges_by_their_ends():
    (step,) = write('delete Wrote where from = "a" and to != $b', "$b: String").steps
    assert isinstance(step, plan.DeleteEdges)
    source, target = (
        ex.PropertyValue(ex.MUTATION_TARGET, "edge", "Wrote", name, ex.STRING)
        for name in ("src", "dst")
    )
    assert step.predicate == ex.Combine(
        "and",
        (
            ex.Compare("=", source, ex.Constant("a", ex.STRING)),
            ex.Compare("!=", target, ex.ParameterValue("b", ex.STRING)),
        ),
    )


def test_node_type_is_meant_when_an_edge_type_has_the_same_name():
    assert isinstance(write('insert Cites { name: "x" }').steps[0], plan.InsertNode)
    assert isinstance(write('delete Cites where name = "x"').steps[0], plan.DeleteNodes)
    assert refused('insert Cites { from: "a" to: "b" }').diagnostic == "T11"


def test_plan_knows_whether_it_can_be_prepared_again():
    insert = write('insert Cites { name: "x" } insert Wrote { from: "a" to: "b" }')
    update = write('insert Cites { name: "x" } update Book set { pages: 1 } where pages = 2')
    delete = write("delete Book where pages = 2")
    assert [p.is_insert_only for p in (insert, update, delete)] == [True, False, False]
    assert [p.is_destructive for p in (insert, update, delete)] == [False, False, True]


@pytest.mark.parametrize(
    "statements",
    [
        'insert Cites { name: "x" } delete Book where pages = 3',
        'delete Book where pages = 3 update Book set { pages: 3 } where isbn = "i"',
        'delete Book where pages = 3 insert Cites { name: "x" } delete Book where pages = 1',
    ],
)
def test_c_qry_072_inserts_and_deletes_never_mix(statements: str):
    error = refusal(f"query both() {{ {statements} }}")
    assert error.diagnostic is None
    assert error.reason.startswith(
        "mutation 'both' on the same query mixes inserts/updates and deletes; "
    )


def test_c_qry_072_mixing_is_reported_before_anything_else():
    error = refusal("query both() { insert Nowhere { a: 1 } delete Nowhere where b = 2 }")
    assert "mixes" in error.reason


# --- completeness ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "missing"),
    [
        ('insert Book { isbn: "i" title: "t" }', "non-nullable property `genre`"),
        ('insert Author { handle: "h" }', "non-nullable property `name`"),
        ('insert Shop { region: "r" code: 1 }', "non-nullable property `opened`"),
        ('insert Wrote { to: "b" }', "required endpoint `from`"),
        ('insert Wrote { from: "a" role: "x" }', "required endpoint `to`"),
        ('insert Knows { from: "a" to: "b" trust: 0.5 }', "non-nullable property `since`"),
        ("insert Review { stars: 1 vec: [0.5, 0.5] }", "non-nullable property `text`"),
    ],
)
def test_c_qry_064_insert_without_a_required_part_gives_t12(statement: str, missing: str):
    error = refused(statement)
    assert error.diagnostic == "T12"
    assert error.reason.endswith(f"must provide {missing}")
    assert error.hint is not None


@pytest.mark.parametrize(
    "statement",
    [
        f"insert Book {{ {REQUIRED} }}",
        'insert Shop { region: "r" code: 1 opened: now() }',
        'insert Review { stars: 1 text: "good" }',
        'insert Wrote { from: "a" to: "b" }',
    ],
)
def test_nullable_default_and_embedded_properties_may_be_left_out(statement: str):
    write(statement)


def test_c_qry_069_update_of_a_key_property_is_refused():
    error = refused('update Shop set { code: 2 } where region = "r"')
    assert error.diagnostic is None
    assert error.message == "type error: cannot update @key property 'code'"


@pytest.mark.parametrize("end", ["from", "to"])
def test_c_qry_069_update_of_an_end_of_an_edge_is_refused(end: str):
    error = refused(f'update Wrote set {{ role: "r" {end}: "x" }} where from = "a"')
    assert error.diagnostic == "T16"
    assert error.hint == "an edge keeps its ends; delete it and insert another one"


def test_update_of_edges_takes_the_predicates_of_a_delete():
    where = 'where from = "a" and role is null'
    (update,) = write(f'update Wrote set {{ role: "x" }} {where}').steps
    (delete,) = write(f"delete Wrote {where}").steps
    assert isinstance(update, plan.UpdateEdges)
    assert isinstance(delete, plan.DeleteEdges)
    assert update.predicate == delete.predicate


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("pages: -3", -3),
        ("chapters: 4294967295", 2**32 - 1),
        ("sold: -9223372036854775808", -(2**63)),
        ("printed: 9223372036854775807", 2**63 - 1),
        ("weight: 0.1", round_to_f32(0.1)),
        ("price: 7", 7.0),
        ("price: 0.1", 0.1),
        ("available: false", False),
        ('released: date("2031-04-09")', dt.date(2031, 4, 9)),
        ('updated: datetime("2031-04-09")', dt.datetime(2031, 4, 9, tzinfo=dt.UTC)),
        ('language: "de"', "de"),
        ('tags: ["a", "b"]', ("a", "b")),
        ("tags: []", ()),
        ("grades: [1, 0.1]", (1.0, round_to_f32(0.1))),
        ("grades: [1, 2]", (1.0, 2.0)),
        ('cover: "base64:AAE="', b"\x00\x01"),
        ('cover: "s3://bucket/cover.png"', BlobUri("s3://bucket/cover.png")),
        ("vec: [1, 2, 3, 4]", (1.0, 2.0, 3.0, 4.0)),
        ("vec: [0.1, 0.5, 0.5, 0.5]", (round_to_f32(0.1), 0.5, 0.5, 0.5)),
        ("blurb: null", None),
    ],
)
def test_literals_take_the_form_of_their_property(assignment: str, value: object):
    constant = assigned(assignment)
    assert isinstance(constant, ex.Constant)
    assert constant.value == value
    assert type(constant.value) is type(value)


@pytest.mark.parametrize(
    ("assignment", "parameter"),
    [
        ("pages: $p", "I32"),
        ("pages: $p", "U64?"),
        ("price: $p", "I64"),
        ("price: $p", "F32"),
        ("weight: $p", "F64"),
        ("language: $p", "String"),
        ("tags: $p", "[String]?"),
        ("grades: $p", "[I32]"),
        ("vec: $p", "Vector(4)"),
        ("cover: $p", "Blob"),
        ("cover: $p", "String"),
        ("updated: $p", "DateTime"),
        ("released: $p", "Date?"),
    ],
)
def test_parameters_supply_what_they_can_become(assignment: str, parameter: str):
    value = assigned(assignment, f"$p: {parameter}")
    assert isinstance(value, ex.ParameterValue)
    assert str(value.type) == parameter


def test_now_fits_date_times_only():
    assert assigned("updated: now()") == ex.CurrentTime()
    assert refused(f"insert Book {{ {REQUIRED} moments: now() }}").diagnostic == "T7"


def test_text_for_a_date_is_told_how_to_write_it():
    error = refused(f'insert Book {{ {REQUIRED} released: "2031-04-09" }}')
    assert error.diagnostic == "T3"
    assert error.hint == 'write a date as `date("2031-04-09")`'


def test_enum_value_is_checked_and_the_choices_are_listed():
    error = refused('update Book set { genre: "crime" } where isbn = "i"')
    assert error.diagnostic == "T3"
    assert error.hint == "expected one of fiction, poetry, science"


# --- predicates -----------------------------------------------------------------------------------


def test_where_joins_conditions_with_and_or_and_parentheses():
    found = predicate('isbn = $k and ( pages < 3 or language = "de" )', "$k: String")
    key = ex.Compare("=", column("isbn"), ex.ParameterValue("k", ex.STRING))
    pages = ex.Compare("<", column("pages"), ex.Constant(3, ex.I64))
    language = ex.Compare("=", column("language"), ex.Constant("de", ex.STRING))
    assert found == ex.Combine("and", (key, ex.Combine("or", (pages, language))))


def test_where_tests_membership_and_null():
    assert predicate("pages in [1, 2]") == ex.ListContains(
        ex.Constant((1, 2), ValueType(Scalar.I64, is_list=True)), column("pages")
    )
    assert predicate("pages in []") == ex.ListContains(ex.Constant((), ex.STRINGS), column("pages"))
    assert predicate("isbn in $l", "$l: [String]") == ex.ListContains(
        ex.ParameterValue("l", ex.STRINGS), column("isbn")
    )
    assert predicate("tags is null") == ex.IsNull(column("tags"), False)
    assert predicate("vec is not null") == ex.IsNull(column("vec"), True)


def test_where_on_the_ends_of_an_edge_tests_null_and_membership():
    source = ex.PropertyValue(ex.MUTATION_TARGET, "edge", "Wrote", "src", ex.STRING)
    assert predicate("from is null", type_name="Wrote") == ex.IsNull(source, False)
    assert predicate('from in ["a"]', type_name="Wrote") == ex.ListContains(
        ex.Constant(("a",), ex.STRINGS), source
    )


def test_where_rounds_floats_against_f32():
    tenth = ex.Constant(round_to_f32(0.1), ValueType(Scalar.F32))
    assert predicate("weight = 0.1") == ex.Compare("=", column("weight"), tenth)
    assert predicate("weight in [0.1]") == ex.ListContains(
        ex.Constant((round_to_f32(0.1),), ValueType(Scalar.F32, is_list=True)), column("weight")
    )
    found = predicate("weight > $p", "$p: F64")
    assert found == ex.Compare(
        ">",
        column("weight"),
        ex.RoundToF32(ex.ParameterValue("p", ex.F64), ValueType(Scalar.F32)),
    )
    assert predicate("weight = 3") == ex.Compare("=", column("weight"), ex.Constant(3, ex.I64))


def test_where_compares_numbers_of_all_kinds_and_now():
    predicate("printed > -1 and pages = 2.5 and price < $p", "$p: U64")
    predicate("updated < now()")
    predicate('genre = "no genre at all"')


def test_names_in_mutations_are_suggested():
    assert refused('insert Boook { isbn: "i" }').hint == "did you mean `Book`?"
    assert refused(f"insert Book {{ {REQUIRED} page: 3 }}").hint == "did you mean `pages`?"
    assert refused("delete Book where page = 3").hint == "did you mean `pages`?"
    assert refused('insert Wrote { from: "a" to: "b" roll: "x" }').hint == "did you mean `role`?"
    assert refused('delete Wrote where form = "x"').hint == "did you mean `from`?"
    error = refused("delete Book where pages = $pags", "$pages: I32")
    assert (error.diagnostic, error.hint) == ("T14", "did you mean `$pages`?")
    assert refused('insert Named { name: "x" }').hint == (
        "it is an interface; name a node type implementing it"
    )
