"""The rules of names, types and constraints: the sentence, the class of error, and the place."""

from __future__ import annotations

import pytest

from omnigraph.errors import CatalogError, SchemaParseError
from omnigraph.model.types import VIRTUAL_COLUMNS
from omnigraph.schema.admission import find_problems
from omnigraph.schema.compile import compile_schema
from omnigraph.syntax.schema_parser import parse_schema
from tests.schema.library import check_rejected, compiled, failure, underlined

AB = "node A { a: String b: I32 l: [String] v: Vector(3) x: Blob n: String? } "
EDGE = AB + "edge E: A -> A { p: String l: [String] v: Vector(3) x: Blob "


# --- names ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message", "pointed_at"),
    [
        ("node A {} node A {}", "duplicate node type: A", "A"),
        ("node N {} edge A: N -> N edge A: N -> N", "duplicate edge type: A", "A"),
        ("interface A {} interface A {}", "duplicate interface", "A"),
        ("node A { a: I32 a: I32 }", "duplicate property: A.a", "a"),
        ("interface A { a: I32 a: I32 }", "duplicate property: A.a", "a"),
        ("node N {} edge A: N -> N { a: I32 b: I32 a: String }", "duplicate property: A.a", "a"),
    ],
)
def test_c_sch_006_duplicates_are_rejected_per_kind(text, message, pointed_at):
    check_rejected(text, CatalogError, message, pointed_at)
    error = failure(text)
    assert error.position is not None
    assert error.position.byte_start > text.index(pointed_at), "the second one is the duplicate"
    assert error.hint is not None
    assert "first declared on line 1" in error.hint


def test_c_sch_006_a_name_may_be_shared_across_kinds():
    catalog = compiled("interface Same {} node Same {} edge Same: Same -> Same").catalog
    assert catalog.nodes["Same"].type_id != catalog.edges["Same"].type_id


def test_c_sch_007_edge_case_collision_is_rejected():
    check_rejected(
        "node N {} edge GrowsBeside: N -> N edge Growsbeside: N -> N",
        CatalogError,
        "edge name collision after case folding: 'Growsbeside' conflicts with 'GrowsBeside'",
        "Growsbeside",
    )


def test_c_sch_007_edge_lookup_prefers_the_exact_name_and_then_ignores_case():
    catalog = compiled(
        "node N {} node n_ {} ".replace("n_", "X") + "edge GrowsBeside: N -> N"
    ).catalog
    for word in ("GrowsBeside", "growsBeside", "GROWSBESIDE", "growsbeside"):
        found = catalog.edge_named(word)
        assert found is not None
        assert found.name == "GrowsBeside"
    assert catalog.edge_named("grows_beside") is None


def test_node_names_may_differ_in_case_alone():
    assert set(compiled("node Ab {} node AB {}").catalog.nodes) == {"Ab", "AB"}


@pytest.mark.parametrize(
    ("text", "message", "pointed_at", "hint"),
    [
        ("node Plant {} edge E: Plnt -> Plant", "unknown source type: Plnt", "Plnt", "`Plant`"),
        ("node Plant {} edge E: Plant -> Tree", "unknown target type: Tree", "Tree", None),
        ("node A {} edge F: A -> A edge E: F -> A", "unknown source type: F", "F", None),
    ],
)
def test_c_sch_008_an_endpoint_must_be_a_node_type(text, message, pointed_at, hint):
    check_rejected(text, CatalogError, f"edge E references {message}", pointed_at)
    found = failure(text).hint
    assert (hint in found) if hint and found else found == hint


def test_c_sch_008_an_endpoint_may_be_an_interface():
    catalog = compiled("interface I {} node A implements I {} edge E: A -> I").catalog
    assert [node.name for node in catalog.node_types("I")] == ["A"]
    assert catalog.edges["E"].end_types == {"dst": {"A": f"{catalog.nodes['A'].type_id}:"}}


@pytest.mark.parametrize("name", ["src_type", "dst_type", "from_type", "to_type"])
def test_names_of_types_at_ends_are_reserved_where_an_end_is_an_interface(name):
    edge = f"edge E: A -> I {{ {name}: String? }}"
    check_rejected(f"interface I {{}} node A {{}} {edge}", CatalogError, "is reserved", name)
    compiled(f"node I {{}} node A {{}} {edge}")


@pytest.mark.parametrize("name", sorted(VIRTUAL_COLUMNS))
@pytest.mark.parametrize(
    "text",
    ["node T { NAME: I32 }", "interface T { NAME: I32 }", "node T {} edge E: T -> T { NAME: I32 }"],
)
def test_c_sch_014_virtual_names_are_reserved(name, text):
    error = failure(text.replace("NAME", name), SchemaParseError)
    assert "reserved" in error.message
    assert "exported" in error.message
    assert underlined(error) == name


@pytest.mark.parametrize("name", ["_row_id", "_row", "_rowids", "rowid", "_Rowid"])
def test_c_sch_014_similar_names_are_ordinary(name):
    assert name in compiled(f"node T {{ {name}: I32 }}").catalog.nodes["T"].properties


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("node T { id: String }", "id"),
        ("interface T { id: String }", "id"),
        *[
            (f"node T {{}} edge E: T -> T {{ {n}: String }}", n)
            for n in ["id", "src", "dst", "from", "to"]
        ],
    ],
)
def test_c_sch_014_structural_names_are_reserved(text, name):
    check_rejected(text, CatalogError, "reserved for a structural column", name)


@pytest.mark.parametrize("name", ["src", "dst", "from", "to", "ID", "iD"])
def test_c_sch_014_the_names_of_edge_ends_are_free_on_nodes(name):
    declared = name if name[0].islower() else f"_{name}"
    compiled(f"interface I {{ {declared}: String @index }} node T implements I {{}}")


# --- types ----------------------------------------------------------------------------------------


def test_c_sch_011_enum_values_are_a_sorted_set():
    properties = compiled("node T { a: enum(b, C, a, 1-x) }").catalog.nodes["T"].properties
    assert str(properties["a"].type) == "enum(1-x, C, a, b)"


def test_c_sch_011_a_duplicate_enum_value_is_rejected():
    check_rejected(
        "node T { a: enum(x, y, x) }",
        SchemaParseError,
        "enum type cannot include duplicate values",
        "x",
    )


@pytest.mark.parametrize(
    ("dimension", "message"),
    [
        ("0", "Vector dimension must be greater than zero"),
        ("000", "Vector dimension must be greater than zero"),
        ("2147483648", "Vector dimension 2147483648 exceeds maximum supported 2147483647"),
        ("9" * 30, f"Vector dimension {'9' * 30} exceeds maximum supported 2147483647"),
    ],
)
@pytest.mark.parametrize("holder", ["node T {", "interface T {", "node N {} edge T: N -> N {"])
def test_c_sch_012_a_vector_has_1_to_2147483647_dimensions(dimension, message, holder):
    check_rejected(f"{holder} v: Vector({dimension}) }}", SchemaParseError, message, dimension)


@pytest.mark.parametrize("dimension", [1, 2147483647])
def test_c_sch_012_the_limits_themselves_are_admitted(dimension):
    properties = compiled(f"node T {{ v: Vector({dimension}) }}").catalog.nodes["T"].properties
    assert properties["v"].type.vector_dim == dimension


def test_c_sch_013_a_list_of_blobs_is_rejected():
    check_rejected(
        "node T { b: [Blob]? }", SchemaParseError, "list of Blob is not supported", "[Blob]?"
    )


@pytest.mark.parametrize(
    ("card", "message", "pointed_at"),
    [
        ("5..4", "cardinality min (5) exceeds max (4)", "5"),
        ("0..4294967296", "invalid cardinality max: 4294967296", "4294967296"),
        ("4294967296..", "invalid cardinality min: 4294967296", "4294967296"),
    ],
)
def test_impossible_cardinalities_are_rejected(card, message, pointed_at):
    check_rejected(
        f"node N {{}} edge E: N -> N @card({card})", SchemaParseError, message, pointed_at
    )


@pytest.mark.parametrize(
    ("card", "low", "high"),
    [
        ("", 0, None),
        ("@card(0..)", 0, None),
        ("@card(3..3)", 3, 3),
        ("@card(1..4294967295)", 1, 2**32 - 1),
    ],
)
def test_cardinality_defaults_to_any_number(card, low, high):
    found = compiled(f"node N {{}} edge E: N -> N {card}").catalog.edges["E"].cardinality
    assert (found.minimum, found.maximum) == (low, high)


# --- key, unique, index ---------------------------------------------------------------------------


@pytest.mark.parametrize("constraint", ["key(z)", "unique(a, z)", "index(z)", "range(z, 0..1)"])
def test_a_constraint_on_an_unknown_property_is_rejected(constraint):
    name = constraint.partition("(")[0]
    check_rejected(
        f"node T {{ a: String @{constraint} }}",
        SchemaParseError,
        f"@{name} on T references unknown property 'z'",
        "z",
    )


def test_an_unknown_property_comes_with_a_suggestion():
    assert failure("node T { name: String @key(nmae) }").hint == "did you mean `name`?"
    ends = failure("node T {} edge E: T -> T { @unique(from, to) }")
    assert "references unknown property 'from'" in ends.message
    assert ends.hint is not None
    assert "`src`" in ends.hint


@pytest.mark.parametrize(
    ("text", "pointed_at"),
    [
        ("node T { a: String @key b: String @key }", "@key"),
        ("node T { a: String b: String @key(a) @key(b) }", "@key(b)"),
        ("interface I { a: String @key } node T implements I { b: String @key }", "@key"),
    ],
)
def test_c_sch_015_two_keys_are_rejected(text, pointed_at):
    check_rejected(text, SchemaParseError, "node type T has multiple @key constraints", pointed_at)


def test_c_sch_015_the_second_key_of_the_text_is_the_one_too_many():
    error = failure("node T { b: String @key\na: String @key }")
    assert error.position is not None
    assert error.position.line == 2


def test_c_sch_015_the_same_key_written_twice_is_one_key():
    assert compiled("node T { a: String @key @key(a) @key(a, a) }").catalog.nodes["T"].key == ("a",)


@pytest.mark.parametrize(
    ("text", "pointed_at"),
    [
        ("node T { a: String? @key }", "@key"),
        ("node T { a: String b: I32? @key(a, b) }", "b"),
    ],
)
def test_c_sch_015_a_nullable_key_is_rejected(text, pointed_at):
    name = "T.b" if "I32" in text else "T.a"
    check_rejected(text, SchemaParseError, f"@key property {name} cannot be nullable", pointed_at)


@pytest.mark.parametrize("constraint", ["key", "unique", "index"])
@pytest.mark.parametrize(
    ("written", "shape"), [("[String]", "list"), ("Vector(3)", "vector"), ("Blob", "blob")]
)
@pytest.mark.parametrize("bare", [True, False])
def test_c_sch_013_and_015_ineligible_columns_are_rejected(constraint, written, shape, bare):
    on_node = f"node T {{ a: {written} @{constraint}{'' if bare else '(a)'} }}"
    if (constraint, shape) == ("index", "vector"):
        assert compiled(on_node).catalog.nodes["T"].indexes == (("a",),)
        return
    message = f"@{constraint} is not supported on {shape} property T.a"
    check_rejected(on_node, SchemaParseError, message, f"@{constraint}" if bare else "a")
    if constraint != "key":
        on_edge = on_node.replace("node T", "node N {} edge T: N -> N")
        check_rejected(on_edge, SchemaParseError, message, f"@{constraint}" if bare else "a")


def test_ineligible_columns_of_an_interface_are_reported_for_the_node():
    check_rejected(
        "interface I { tags: [String] @unique } node T implements I {}",
        SchemaParseError,
        "@unique is not supported on list property T.tags",
        "@unique",
    )


def test_groups_are_sets_of_columns():
    node = compiled(
        "node T { a: String b: String @unique(b, a) @unique(a, b, a) @index(b) @index(b, a) }"
    ).catalog.nodes["T"]
    assert node.unique == (("a", "b"),)
    assert node.indexes == (("a", "b"), ("b",))


@pytest.mark.parametrize("constraint", ["range(p, 0..1)", 'check(p, "x")'])
def test_c_sch_016_edges_have_no_range_or_check(constraint):
    name = constraint.partition("(")[0]
    check_rejected(
        f"{EDGE} @{constraint} }}",
        SchemaParseError,
        f"@{name} constraint is not supported on edges (edge E)",
        f"@{constraint}",
    )


@pytest.mark.parametrize(
    ("constraint", "message", "pointed_at"),
    [
        ("@key(p)", "@key on edge E must contain src and dst (src and dst missing)", "@key(p)"),
        ("@key(src, p)", "@key on edge E must contain src and dst (dst missing)", "@key(src, p)"),
        ("@key(dst)", "@key on edge E must contain src and dst (src missing)", "@key(dst)"),
        ("@key(src, dst, q)", "@key on E references unknown property 'q'", "q"),
        ("@key(src, dst, from)", "@key on E references unknown property 'from'", "from"),
        ("n: String? @key(src, dst, n)", "@key property E.n cannot be nullable", "n"),
        ("@key(src, dst, l)", "@key is not supported on list property E.l", "l"),
        ("@key(src, dst, v)", "@key is not supported on vector property E.v", "v"),
        ("@key(src, dst, x)", "@key is not supported on blob property E.x", "x"),
        (
            "@key(src, dst) @key(src, dst, p)",
            "edge type E has multiple @key constraints",
            "@key(src, dst, p)",
        ),
        (
            'q: String @default("a") @key(src, dst, q)',
            "@default is not supported on @key property E.q",
            '"a"',
        ),
    ],
)
def test_c_sch_016_a_key_of_an_edge_has_both_ends_and_plain_required_members(
    constraint, message, pointed_at
):
    check_rejected(f"{EDGE} {constraint} }}", SchemaParseError, message, pointed_at)


def test_a_key_of_an_edge_has_its_ends_first_and_properties_in_the_order_of_their_ids():
    edge = compiled(AB + "edge E: A -> A { z: I32 a: String @key(z, dst, a, src) }").catalog.edges
    assert edge["E"].key_columns == ("src", "dst", "a", "z")
    assert compiled(AB + "edge E: A -> A").catalog.edges["E"].key_columns == ()
    accepted = compiled(AB + "edge E: A -> A { z: I32 a: String @key(src, dst, a, z) }").ir
    text = 'edge E: A -> A { z: I32 zz: String @rename_from("a") @key(src, dst, z, zz) }'
    renamed = compile_schema(AB + text, accepted=accepted)
    assert renamed.catalog.edges["E"].key_columns == ("src", "dst", "zz", "z")


def test_the_same_key_of_an_edge_may_be_written_twice_like_that_of_a_node():
    edges = compiled(AB + "edge E: A -> A { @key(src, dst) @key(dst, src) }").catalog.edges
    assert edges["E"].key_columns == ("src", "dst")


def test_a_key_in_the_header_of_an_edge_is_told_where_it_belongs():
    error = failure(AB + "edge E: A -> A @key(src, dst)", SchemaParseError)
    assert error.hint is not None
    assert "{ @key(src, dst) }" in error.hint


@pytest.mark.parametrize("annotation", ["key", "embed(p)"])
def test_c_sch_016_edge_properties_have_no_key_or_embed(annotation):
    name = annotation.partition("(")[0]
    check_rejected(
        AB + f"edge E: A -> A {{ q: String @{annotation} }}",
        SchemaParseError,
        f"@{name} is not supported on edge properties (edge E.q)",
        f"@{name}",
    )


def test_c_sch_016_edge_groups_may_name_the_ends():
    edge = compiled(EDGE + "@unique(src, dst) @unique(dst, p) @index(src) }").catalog.edges["E"]
    assert edge.unique == (("dst", "p"), ("dst", "src"))
    assert edge.indexes == (("src",),)


def test_the_ends_of_edges_mean_nothing_on_nodes():
    check_rejected(
        "node T { @index(src) }", SchemaParseError, "references unknown property 'src'", "src"
    )
    check_rejected(
        AB + "edge E: A -> A { @index(id) }", SchemaParseError, "unknown property 'id'", "id"
    )


# --- range and check ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "written", ["String", "Bool?", "Date", "enum(a)", "[I32]", "Vector(3)", "Blob"]
)
def test_c_sch_017_range_needs_a_number(written):
    message = f"@range on T.p requires a numeric type, got {written}"
    check_rejected(f"node T {{ p: {written} @range(p, 0..1) }}", SchemaParseError, message, "p")


@pytest.mark.parametrize("written", ["I32", "Bool", "Date?", "[String]", "Vector(3)", "Blob"])
def test_c_sch_017_check_needs_text(written):
    message = f"@check on T.p requires String type, got {written}"
    check_rejected(f'node T {{ p: {written} @check(p, "x") }}', SchemaParseError, message, "p")


@pytest.mark.parametrize("written", ["String", "String?", "enum(a, b)", "enum(a)?"])
def test_check_takes_strings_and_enums(written):
    node = compiled(f'node T {{ p: {written} @check(p, "^a") }}').catalog.nodes["T"]
    assert [(c.property, c.pattern) for c in node.checks] == [("p", "^a")]


@pytest.mark.parametrize(
    ("written", "bounds", "low", "high"),
    [
        ("I32", "-5..5", -5, 5),
        ("U64?", "..18446744073709551615", None, 2**64 - 1),
        ("F32", "0..120", 0.0, 120.0),
        ("F64", "-0.0..0.5", 0.0, 0.5),
        ("I32", "0.0..", 0, None),
        ("I64", "0.5..9.5", 0.5, 9.5),
        ("I32", "7..7", 7, 7),
    ],
)
def test_c_sch_018_bounds_are_numbers_of_the_kind_the_property_holds(written, bounds, low, high):
    found = compiled(f"node T {{ p: {written} @range(p, {bounds}) }}").catalog.nodes["T"].ranges[0]
    assert (found.minimum, found.maximum) == (low, high)
    assert (type(found.minimum), type(found.maximum)) == (type(low), type(high))
    assert str(found.minimum) == str(low)


@pytest.mark.parametrize(
    ("bounds", "low", "high"),
    [("5..4", "5", "4"), ("0.50..-1", "0.50", "-1"), ("1.1..1.0", "1.1", "1.0")],
)
def test_a_range_upside_down_is_rejected(bounds, low, high):
    message = f"@range on T.p has min {low} greater than max {high}"
    check_rejected(f"node T {{ p: F64 @range(p, {bounds}) }}", SchemaParseError, message, bounds)


@pytest.mark.parametrize(
    "pattern", ["(", "[z-a]", "a{1001}", "(?=a)", "(?<!a)b", r"(a)\1", "*a", "a**", r"\Z"]
)
def test_c_sch_019_an_invalid_regex_is_rejected_at_admission(pattern):
    written = pattern.replace("\\", "\\\\")
    check_rejected(
        f'node T {{ p: String @check(p, "{written}") }}',
        SchemaParseError,
        f"@check on T.p has invalid regex '{pattern}'",
        f'"{written}"',
    )


@pytest.mark.parametrize(
    "pattern", ["", "^a+$", r"^[A-Z]{2}-\d+$", r"\p{L}", "(?i)x", "(?P<n>a)|b"]
)
def test_c_sch_019_linear_time_patterns_are_admitted(pattern):
    written = pattern.replace("\\", "\\\\")
    checks = compiled(f'node T {{ p: String @check(p, "{written}") }}').catalog.nodes["T"].checks
    assert checks[0].pattern == pattern


# --- order ----------------------------------------------------------------------------------------


def test_the_first_problem_of_the_text_is_the_one_reported():
    text = """
    node B { v: Vector(0)  x: Blob @index }
    edge E: B -> Nowhere
    node A { a: I32 a: I32 }
    """
    problems = find_problems(parse_schema(text))
    assert [p.position.line for p in problems if p.position] == [2, 2, 3, 4]
    assert failure(text).message == problems[0].message


def test_a_schema_full_of_problems_stays_quick_and_reports_the_first_hundred():
    declarations = "".join(f"edge E{i}: Missing{i} -> Gone{i}\n" for i in range(5000))
    problems = find_problems(parse_schema("node Missing {}\n" + declarations))
    assert len(problems) == 100
    assert problems[0].hint == "did you mean `Missing`?"
