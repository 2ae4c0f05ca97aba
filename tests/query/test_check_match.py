"""Patterns are typed: bindings, hops, edges, paths and names."""

from __future__ import annotations

import pytest

from omnigraph.errors import InputError
from omnigraph.model.types import Scalar, ValueType
from omnigraph.query import expressions as ex
from omnigraph.query import plan
from omnigraph.query.explain import explain
from tests.query.books import (
    PAGES,
    TAGS,
    TITLE,
    book,
    integer,
)
from tests.query.library import matching, pointed_at, query, refusal

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


@pytest.mark.parametrize("bounds", ["{3,1}", "{1,0}", "{4294967295,4294967294}"])
def test_c_qry_030_reversed_hop_bounds_give_t15(bounds: str):
    text = query(f"$a knows{bounds} $b")
    error = refusal(text)
    assert error.diagnostic == "T15"
    assert pointed_at(error, text) == bounds


@pytest.mark.parametrize(
    ("bounds", "minimum", "maximum"),
    [("{0,1}", 0, 1), ("{0,0}", 0, 0), ("{0,}", 0, plan.HOPS_MAX), ("{2,}", 2, plan.HOPS_MAX)],
)
def test_c_qry_083_zero_and_open_bounds_are_kept(bounds: str, minimum: int, maximum: int):
    hop = expand(f"$a knows{bounds} $b")
    assert (hop.minimum, hop.maximum) == (minimum, maximum)
    assert hop.reversible == (minimum <= 1)


def test_c_qry_083_parameters_bound_a_hop_when_it_runs():
    compiled = matching("$a knows{$m,$n} $b", "count(*)", "$m: U32, $n: I64")
    (hop,) = compiled.pattern.steps[1:]
    assert isinstance(hop, plan.Expand)
    assert not hop.reversible
    (bounded,) = compiled.within({"m": 2, "n": 2**40}).pattern.steps[1:]
    assert isinstance(bounded, plan.Expand)
    assert (bounded.minimum, bounded.maximum) == (2, plan.HOPS_MAX)
    with pytest.raises(InputError, match="'m' bounds a hop and cannot be negative: -1"):
        compiled.within({"m": -1, "n": 3})
    with pytest.raises(InputError, match=r"upper bound 1 .* below its lower bound 2"):
        compiled.within({"m": 2, "n": 1})


def test_c_qry_083_parameters_bound_hops_inside_of_blocks():
    blocks = "not { $a knows{1,$n} $b } optional { $a knows{2,$n} $c } any { $a knows{3,$n} $d }"
    compiled = matching(f"$a: Author  {blocks}", "count(*)", "$n: I32").within({"n": 7})
    assert not compiled.is_bounded_by_parameters
    hops = [line for line in explain(compiled).split("\n") if "Expand" in line]
    assert [",7}" in line for line in hops] == [True] * 3


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
        plan.FilterRows((ex.Compare(">", ex.PathLength("r"), integer(1)),)),
    )
    assert [column.expression for column in compiled.columns] == [
        ex.PathNodes("r"),
        ex.PathLength("r"),
    ]
    assert "r" not in {variable.name for variable in compiled.variables}


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
    assert compiled.pattern.steps[0] == plan.FilterRows(
        (ex.IsNull(ex.ParameterValue("b", ValueType(Scalar.I32, nullable=True)), False),)
    )


@pytest.mark.parametrize(
    ("clauses", "parameters", "hint"),
    [
        ("$b: Boook", "", "did you mean `Book`?"),
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
