"""The grammar: what parses, into what, and what is said about everything else."""

from __future__ import annotations

from typing import Any

import pytest

from omnigraph.errors import SchemaParseError
from omnigraph.model.types import SCALAR_NAMES, Scalar
from omnigraph.syntax.schema_ast import CheckDecl, ColumnsDecl, RangeDecl
from omnigraph.syntax.schema_parser import parse_schema
from tests.schema.library import failure, underlined

PLANTS = """
interface Titled { title: String @index }
node Plant implements Titled {
    code: String @key
    habit: enum(tree, shrub)
    height_m: F32?
    leaf: Vector(8)? @embed("title", model="acme/leaf-1") @index
    @range(height_m, 0.0..120.0)
    @check(code, "^[A-Z]{2}-\\\\d+$")
}
edge GrowsBeside: Plant -> Plant @card(0..4) { since: Date? @unique(src, dst) }
"""


def node(body: str):
    """The only node of a schema with this body."""
    return parse_schema(f"node T {{ {body} }}").nodes[0]


def prop(text: str):
    """The only property of a body."""
    return node(text).properties[0]


# --- comments, lines and characters ---------------------------------------------------------------


def test_c_sch_001_comments_are_accepted_anywhere():
    text = """// first line
    /* before */ node /* a */ T // b
    { /* c */ a /* d */ : /* e */ [ /* f */ String /* g */ ] /* h */ ? // i
      @unique /* j */ ( /* k */ b /* l */ , /* // m */ c /* n */ ) b: I32 c: enum( /* o */ x , // p
      y) } /* unclosed quote " and @key inside */"""
    parsed = parse_schema(text).nodes[0]
    assert [p.name.text for p in parsed.properties] == ["a", "b", "c"]
    assert parsed.properties[0].type.is_list
    constraint = parsed.constraints[0]
    assert isinstance(constraint, ColumnsDecl)
    assert [c.text for c in constraint.columns] == ["b", "c"]


def test_c_sch_001_comments_do_not_nest():
    assert underlined(failure("/* a /* b */ c */ node T {}")) == "c"


@pytest.mark.parametrize("text", ["# no", "node T {} # no", "node T { # no\n }"])
def test_c_sch_001_hash_is_a_syntax_error(text):
    error = failure(text, SchemaParseError)
    assert underlined(error) == "#"
    assert error.hint is not None
    assert "//" in error.hint


def test_c_sch_002_a_type_may_sit_on_one_line():
    assert len(parse_schema(PLANTS.replace("\n", " ")).declarations) == 3


def test_separators_are_only_separators():
    loose, tight = parse_schema("node  T\r\n{\ta :\n\tString }"), parse_schema("node T{a:String}")
    assert loose.nodes[0].properties[0].name.text == tight.nodes[0].properties[0].name.text


@pytest.mark.parametrize("space", ["\u00a0", "\u2028", "\x0b", "\ufeff"])
def test_other_white_space_is_a_syntax_error(space):
    failure(f"node T {{}}{space} node U {{}}", SchemaParseError)


def test_c_sch_002_a_syntax_error_has_a_span():
    error = failure("node T {\n    a: String\n    b Int\n}", SchemaParseError)
    at = error.position
    assert at is not None
    assert (at.line, at.column, at.byte_start, at.byte_end) == (3, 7, 29, 32)
    assert underlined(error) == "Int"


def test_c_sch_003_escapes_decode():
    text = r'node T { a: String @description("q\" b\\ n\n r\r t\t")  @check(a, "\\d") }'
    parsed = parse_schema(text).nodes[0]
    annotation = parsed.properties[0].annotations[0]
    assert annotation.value is not None
    assert annotation.value.value == 'q" b\\ n\n r\r t\t'
    check = parsed.constraints[0]
    assert isinstance(check, CheckDecl)
    assert check.pattern.value == r"\d"


def test_strings_may_span_lines_and_hold_any_character():
    annotation = prop('a: String @description("one\ntwo ü // no comment")').annotations[0]
    assert annotation.value is not None
    assert annotation.value.value == "one\ntwo ü // no comment"


@pytest.mark.parametrize("escape", [r"\d", r"\u", r"\0", r"\'", "\\\n"])
def test_c_sch_003_other_escapes_are_rejected(escape):
    error = failure(f'node T {{ a: String @description("x{escape}") }}', SchemaParseError)
    assert f"unsupported escape sequence: {escape}" in error.message
    assert underlined(error)[0] == "\\"


def test_an_unterminated_string_or_comment_is_reported_where_it_starts():
    assert underlined(failure('node T { a: String @description("x) }')) == '"'
    assert underlined(failure("node T {} /* x")) == "/"


# --- names and numbers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["node", "edge", "interface", "implements", "type", "enum", "true", "key", "_x", "aB_9"]
)
def test_keywords_are_contextual(name):
    assert prop(f"{name}: String").name.text == name


def test_names_are_case_sensitive():
    parsed = node("ab: String aB: String")
    assert [p.name.text for p in parsed.properties] == ["ab", "aB"]


@pytest.mark.parametrize(
    ("bounds", "low", "high"),
    [
        ("0..9", 0, 9),
        ("0 .. 9", 0, 9),
        ("-5..-1", -5, -1),
        ("0.5..1.25", 0.5, 1.25),
        ("-0.5..", -0.5, None),
        ("..9", None, 9),
        ("..-9.5", None, -9.5),
        ("7..", 7, None),
        ("007..", 7, None),
        ("-9223372036854775808..18446744073709551615", -(2**63), 2**64 - 1),
    ],
)
def test_c_sch_018_bounds_take_integers_floats_and_signs(bounds, low, high):
    found = node(f"@range(p, {bounds})").constraints[0]
    assert isinstance(found, RangeDecl)
    values = [n.value if n is not None else None for n in (found.minimum, found.maximum)]
    assert values == [low, high]
    assert [type(v) for v in values] == [type(low), type(high)]


@pytest.mark.parametrize(
    "bounds", ["1e3..", "1...2", "- 5..", ".5..1", "5", "..", "1..2..3", "x.."]
)
def test_other_bounds_are_rejected(bounds):
    failure(f"node T {{ p: F64 @range(p, {bounds}) }}", SchemaParseError)


@pytest.mark.parametrize(
    "text",
    [
        "node T { a: Vector(NUM) }",
        "node T { a: I32 @range(a, NUM..) }",
        "node T { a: I32 @x(NUM) }",
        "node T { a: I32 @x(1, y=NUM.5) }",
        "node A {} edge E: A -> A @card(NUM..)",
    ],
)
def test_a_number_too_long_to_convert_is_a_typed_error(text):
    error = failure(text.replace("NUM", "9" * 5000), SchemaParseError)
    assert "more than 400 characters" in error.message
    assert len(error.render()) < 1500


@pytest.mark.parametrize("number", ["18446744073709551616", "-9223372036854775809", "9" * 100])
def test_an_integer_no_type_can_hold_is_rejected(number):
    assert "is out of range" in failure(f"node T {{ a: U64 @range(a, {number}..) }}").message


def test_a_float_beyond_the_largest_one_is_rejected():
    error = failure(f"node T {{ a: F64 @range(a, {'9' * 320}.0..) }}", SchemaParseError)
    assert "is out of range" in error.message


# --- declarations ---------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["", "  \n", "// only a comment", "\ufeff"])
def test_an_empty_schema_is_legal(text):
    assert parse_schema(text).declarations == ()


def test_empty_bodies_are_legal():
    parsed = parse_schema("interface I {} node N implements I {} edge E: N -> N edge F: N -> N {}")
    assert [d.name.text for d in parsed.declarations] == ["I", "N", "E", "F"]
    assert all(not d.properties for d in parsed.declarations)


def test_a_file_and_its_bytes_parse_like_the_text(tmp_path):
    path = tmp_path / "plants.pg"
    path.write_text(PLANTS, encoding="utf-8")
    for origin in (path, PLANTS.encode()):
        assert parse_schema(origin).declarations == parse_schema(PLANTS).declarations
    path.write_text("nod X {}", encoding="utf-8")
    with pytest.raises(SchemaParseError) as caught:
        parse_schema(path)
    assert caught.value.render().startswith(f"{path}:1:1: parse error: ")


def test_every_part_of_a_schema_knows_where_it_stands():
    declarations: tuple[Any, ...] = parse_schema(PLANTS).declarations
    titled, plant, grows = declarations

    def written(part: Any) -> str:
        return PLANTS[part.span.start : part.span.end]

    assert written(titled) == "interface Titled { title: String @index }"
    assert written(plant).startswith("node Plant")
    assert written(plant).endswith('d+$")\n}')
    assert written(plant.implements[0]) == "Titled"
    assert written(plant.properties[0]) == "code: String @key"
    assert written(plant.properties[1].type) == "enum(tree, shrub)"
    assert written(plant.properties[1].type.enum_values[1]) == "shrub"
    embed = plant.properties[3].annotations[0]
    assert written(embed) == '@embed("title", model="acme/leaf-1")'
    assert written(embed.name) == "@embed"
    assert written(embed.options[0].value) == '"acme/leaf-1"'
    assert written(plant.constraints[0]) == "@range(height_m, 0.0..120.0)"
    assert written(plant.constraints[0].maximum) == "120.0"
    assert written(plant.constraints[1].pattern) == '"^[A-Z]{2}-\\\\d+$"'
    assert written(grows.cardinality) == "@card(0..4)"
    assert written(grows.target) == "Plant"
    assert written(grows.constraints[0]) == "@unique(src, dst)"


@pytest.mark.parametrize("word", SCALAR_NAMES)
def test_every_scalar_parses_plain_nullable_and_as_a_list(word):
    plain, nullable, listed = (prop(f"a: {form}").type for form in (word, f"{word}?", f"[{word}]?"))
    assert (plain.scalar, plain.nullable, plain.is_list) == (Scalar(word), False, False)
    assert (nullable.scalar, nullable.nullable) == (Scalar(word), True)
    assert (listed.scalar, listed.nullable, listed.is_list) == (Scalar(word), True, True)


def test_vectors_and_enums_may_be_nullable():
    assert prop("a: Vector(8)?").type.nullable
    assert prop("a: enum(a, b)?").type.nullable


@pytest.mark.parametrize(
    "values",
    [["a"], ["pre-seed", "1on1", "-", "--x", "007", "A_b", "true", "node", "a-1-b"]],
)
def test_enum_values_are_letters_digits_underscores_and_hyphens(values):
    found = prop(f"a: enum({', '.join(values)})").type.enum_values
    assert found is not None
    assert [value.text for value in found] == values


@pytest.mark.parametrize("value", ["a.b", "a->b", "1.5", "$a", '"a"', "a b", "ä", ""])
def test_other_enum_values_are_rejected(value):
    failure(f"node T {{ a: enum(x, {value}) }}", SchemaParseError)


# --- constraints and annotations ------------------------------------------------------------------


def test_c_sch_004_a_constraint_name_before_a_parenthesis_is_a_body_constraint():
    parsed = node('x: String @unique(x) y: String @description("d") @index(x, y) @key(x)')
    assert [len(p.annotations) for p in parsed.properties] == [0, 1]
    found = [(c.kind, [n.text for n in c.columns]) for c in parsed.constraints]
    assert found == [("unique", ["x"]), ("index", ["x", "y"]), ("key", ["x"])]


def test_c_sch_004_a_space_before_the_parenthesis_makes_no_difference():
    parsed = node("x: String @ unique (x)")
    assert parsed.properties[0].annotations == ()
    assert isinstance(parsed.constraints[0], ColumnsDecl)


def test_c_sch_004_after_a_body_constraint_annotations_no_longer_belong_to_the_property():
    error = failure('node T { x: String @unique(x) @description("d") }', SchemaParseError)
    assert underlined(error) == "description"


def test_bare_constraint_names_stay_with_their_property():
    annotations = prop("x: String @key @unique @index").annotations
    assert [a.name.text for a in annotations] == ["key", "unique", "index"]


def test_annotations_take_a_literal_or_an_identifier_and_options():
    found = prop('a: String @x @x(1) @x(1.5) @x(true) @x(word) @x("s", k=2, l="m")').annotations
    values = [a.value.value if a.value else None for a in found]
    assert values == [None, 1, 1.5, True, "word", "s"]
    assert [a.value.is_identifier for a in found if a.value] == [False] * 3 + [True, False]
    assert [(o.name.text, o.value.value) for o in found[-1].options] == [("k", 2), ("l", "m")]


def test_edge_annotations_follow_the_cardinality():
    edge = parse_schema('node A {} edge E: A -> A @card(1..) @description("d") @x').edges[0]
    assert edge.cardinality is not None
    assert (edge.cardinality.minimum.value, edge.cardinality.maximum) == (1, None)
    assert [a.name.text for a in edge.annotations] == ["description", "x"]


# --- rejections -----------------------------------------------------------------------------------

REJECTED = {
    # text: (what the message contains, what is underlined, what the hint contains)
    "nod Person {}": ("expected `interface`, `node` or `edge`, found 'nod'", "nod", "`node`"),
    "Node Person {}": ("expected `interface`, `node` or `edge`", "Node", "`node`"),
    "enum Colour { red }": ("expected `interface`", "enum", "enum(a, b)"),
    "node person {}": ("expected a type name after `node`", "person", "`Person`"),
    "node {}": ("expected a type name after `node`", "{", None),
    "node T": ("expected `{` or `implements` after `node T`", "", None),
    "node T implemnts I {}": ("expected `{` or `implements`", "implemnts", "`implements`"),
    "node T implements {}": ("expected a type name after `implements`", "{", None),
    "node T implements A, {}": ("expected a type name after `,`", "{", None),
    "node T implements A @x {}": ("expected `{`", "@", "before `implements`"),
    "node T { a: String": ("expected `}` in node T, found the end of the input", "", "on line 1"),
    "node T {} }": ("expected `interface`, `node` or `edge`", "}", None),
    "node T { a: String node U {} }": ("expected `:`", "U", "missing before this `node`"),
    "node T { a String }": ("expected `:` after property `a`", "String", None),
    "node T { a: String, b: String }": ("expected a property or `}` in node T", ",", None),
    "node T { A: String }": ("expected a property", "A", "lower-case"),
    "node T { a: Strng }": ("expected a type, found 'Strng'", "Strng", "`String`"),
    "node T { a: string }": ("expected a type, found 'string'", "string", "`String`"),
    "node T { a: int }": ("expected a type, found 'int'", "int", "I32"),
    "node T { a: [Int] }": ("expected a scalar type", "Int", "I64"),
    "node T { a: String?? }": ("expected a property or `}`", "?", None),
    "node T { a: [[String]] }": ("item of a list", "[", "no lists of lists"),
    "node T { a: [Vector(3)] }": ("item of a list", "Vector", "no lists of lists"),
    "node T { a: [String?] }": ("expected `]`", "?", "`[String]?`"),
    "node T { a: [] }": ("expected a scalar type", "]", None),
    "node T { a: Vector }": ("expected `(` after `Vector`", "}", None),
    "node T { a: Vector(1.5) }": ("expected the dimension", "1.5", None),
    "node T { a: Vector(-1) }": ("expected the dimension", "-", None),
    "node T { a: enum() }": ("expected an enum value", ")", None),
    "node T { a: enum }": ("expected `(` after `enum`", "}", None),
    'node T { a: enum("x") }': ("expected an enum value", '"x"', "without quotes"),
    "interface I @x {}": ("expected `{` after `interface I`", "@", "no annotations"),
    "interface I implements J {}": ("expected `{`", "implements", "implements nothing"),
    "interface I { a: String @key(a) }": ("found a constraint", "@", "no body constraints"),
    "edge E {}": ("expected `:` after `edge E`", "{", None),
    "edge E: A - B": ("expected `->` between source and target", "-", None),
    "edge E: A -> b": ("expected a type name as the target", "b", "`B`"),
    "edge E: A -> B @card": ("expected `(` after `@card`", "", "@card(0..1)"),
    "edge E: A -> B @card(..4)": ("expected the smallest number", "..", None),
    "edge E: A -> B @card(4)": ("expected `..`", ")", None),
    "edge E: A -> B @card(0..-1)": ("expected the largest number", "-", None),
    "edge E: A -> B @x @card(0..1)": ("directly after the target type", "@card", "->"),
    "node T @card(0..1) {}": ("@card is only supported on edges", "@card", None),
    "node T { a: String @card }": ("@card is only supported on edges", "@card", None),
    "node T { @foo(a) }": ("expected a constraint", "foo", "follow its type"),
    "node T { @key }": ("expected property name in constraint", "}", "@key(first, second)"),
    "node T { @key() }": ("expected property name in constraint", ")", None),
    'node T { @unique("a") }': ("expected property name in constraint", '"a"', None),
    "node T { @index(A) }": ("expected property name in constraint", "A", None),
    "node T { @key(a b) }": ("expected `)` after the columns of `@key`", "b", None),
    "node T { @range }": ("@range requires property name and bounds", "}", "0..150"),
    "node T { @range() }": ("@range requires property name and bounds", ")", None),
    "node T { @range(a) }": ("@range requires property name and bounds", ")", None),
    "node T { @range(a,) }": ("@range requires property name and bounds", ")", None),
    "node T { @range(a, ..) }": ("@range requires property name and bounds", ")", None),
    'node T { @range(a, "x") }': ("@range requires property name and bounds", '"x"', None),
    "node T { a: I32 @range }": ("@range requires property name and bounds", "@range", "body"),
    "node T { @check }": ("@check requires property name and pattern", "}", None),
    "node T { @check(a) }": ("@check requires property name and pattern", ")", None),
    "node T { @check(a, b) }": ("@check requires property name and pattern", "b", None),
    "node T { a: String @check }": ("@check requires property name and pattern", "@check", "body"),
    "node T { a: String @ }": ("expected the name of an annotation", "}", None),
    "node T { a: String @X }": ("expected the name of an annotation", "X", None),
    "node T { a: String @x() }": ("expected a value for `@x`", ")", None),
    "node T { a: String @x(Old) }": ("expected a value for `@x`", "Old", '"Old"'),
    "node T { a: String @x(-1) }": ("expected a value for `@x`", "-", None),
    "node T { a: String @x(1, 2) }": ("expected an option of `@x`", "2", None),
    "node T { a: String @x(1, k=v) }": ("expected a literal", "v", None),
    "node T { a: String @x(1, k=1, k=2) }": ("@x repeats the option 'k'", "k", None),
    "node T { a: String @x(1,) }": ("expected an option of `@x`", ")", None),
    "node T { a: Vector(3) @embed() }": ("@embed requires a source property name", ")", None),
    'node T { a: Vector(3) @embed(model="m") }': ("requires a source property name", "model", None),
    "node T { a: String @rename_from() }": ("exactly one non-empty positional value", ")", None),
    "node T { a: String @description() }": ("requires a non-empty value", ")", None),
    "node T @instruction() {}": ("requires a non-empty value", ")", None),
    "node T { a: I32 @default() }": ("requires a literal value", ")", None),
}


@pytest.mark.parametrize("text", REJECTED)
def test_a_rejection_says_what_where_and_how(text):
    message, pointed_at, hint = REJECTED[text]
    error = failure(text, SchemaParseError)
    assert message in error.message
    assert underlined(error) == pointed_at
    if hint is not None:
        assert error.hint is not None
        assert hint in error.hint


@pytest.mark.parametrize(
    ("text", "pointed_at"),
    [
        ("node A {} edge E: A -> A @card(1..*)", "*"),
        ("node T { a: I32 @range(a, 1..*) }", "*"),
        ("node A { a: String @index(a,) }", ")"),
        ("node A { a: enum(x, y,) }", ")"),
        ("node A implements I, { }", "{"),
        ("enum Kind(a, b)", "enum"),
        ("node A { a: [enum(x, y)] }", "enum"),
    ],
)
def test_c_sch_005_no_star_bound_trailing_comma_named_enum_or_enum_list(text, pointed_at):
    assert underlined(failure(text, SchemaParseError)) == pointed_at


def test_c_sch_005_a_star_bound_comes_with_advice():
    error = failure("node A {} edge E: A -> A @card(1..*)")
    assert error.hint is not None
    assert "`1..`" in error.hint


@pytest.mark.parametrize("constraint", ["key", "unique", "index", "embed"])
def test_a_constraint_in_the_header_of_a_type_is_rejected(constraint):
    for form in (f"@{constraint}", f"@{constraint}(a)", f"@{constraint}(a, b)"):
        on_node = failure(f"node N {form} {{ a: String }}", SchemaParseError)
        on_edge = failure(f"node N {{}} edge E: N -> N {form}", SchemaParseError)
        assert (
            f"@{constraint} is only supported on node properties or as body constraint (node N)"
            in on_node.message
        )
        assert f"@{constraint} is not supported on edges (edge E)" in on_edge.message
        assert underlined(on_node) == underlined(on_edge) == f"@{constraint}"


def test_a_rule_in_the_header_of_a_type_is_rejected():
    on_node = failure("node N @range(a, 0..1) { a: I32 }", SchemaParseError)
    assert "@range is only supported as body constraint (node N)" in on_node.message
    on_edge = failure('node N {} edge E: N -> N @check(a, "x")', SchemaParseError)
    assert "@check constraint is not supported on edges (edge E)" in on_edge.message
