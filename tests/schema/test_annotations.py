"""Annotations: where they may stand and what they must say."""

from __future__ import annotations

import pytest

from omnigraph.errors import SchemaParseError
from tests.schema.library import check_rejected, compiled, failure

# --- @embed ---------------------------------------------------------------------------------------

EMBED = "node T { s: String e: enum(a) n: I32 l: [String] q: QTYPE @embed(ARGS) }"


@pytest.mark.parametrize(
    ("written", "arguments", "message", "pointed_at"),
    [
        ("I32", '"s"', "only supported on vector properties", "@embed"),
        ("String", '"s"', "only supported on vector properties", "@embed"),
        ("[F32]", '"s"', "@embed is not supported on list property T.q", "@embed"),
        ("Blob", '"s"', "@embed is not supported on blob property T.q", "@embed"),
        ("Vector(3)", '""', "@embed on T.q requires a source property name", '""'),
        ("Vector(3)", '" "', "@embed on T.q requires a source property name", '" "'),
        ("Vector(3)", "7", "@embed on T.q requires a source property name", "7"),
        ("Vector(3)", "true", "@embed on T.q requires a source property name", "true"),
        ("Vector(3)", '"z"', "@embed on T.q references unknown source property z", '"z"'),
        ("Vector(3)", "z", "@embed on T.q references unknown source property z", "z"),
        ("Vector(3)", '"n"', "source property T.n must be String", '"n"'),
        ("Vector(3)", "l", "source property T.l must be String", "l"),
        ("Vector(3)", "q", "source property T.q must be String", "q"),
        ("Vector(3)", 's, mdel="m"', "(only 'model' is supported)", "mdel"),
        ("Vector(3)", 's, model=""', "requires a non-empty string as its model", '""'),
        ("Vector(3)", "s, model=3", "requires a non-empty string as its model", "3"),
    ],
)
def test_c_sch_020_every_embed_error(written, arguments, message, pointed_at):
    text = EMBED.replace("QTYPE", written).replace("ARGS", arguments)
    check_rejected(text, SchemaParseError, message, pointed_at)


def test_c_sch_020_embed_without_arguments_or_twice_is_rejected():
    check_rejected(
        "node T { s: String q: Vector(3) @embed }",
        SchemaParseError,
        "@embed on T.q requires a source property name",
        "@embed",
    )
    check_rejected(
        "node T { s: String q: Vector(3) @embed(s) @embed(s) }",
        SchemaParseError,
        "property T.q declares @embed multiple times",
        "@embed",
    )


@pytest.mark.parametrize("source", ["s", '"s"', "e"])
def test_c_sch_020_a_source_is_text_in_either_form(source):
    text = EMBED.replace("QTYPE", "Vector(3)?").replace("ARGS", source)
    embed = compiled(text).catalog.nodes["T"].properties["q"].embed
    assert embed is not None
    assert (embed.source, embed.model) == (source.strip('"'), None)


def test_c_sch_020_a_source_may_come_from_another_interface():
    compiled(
        "interface A { title: String } interface B { v: Vector(3)? @embed(title) } "
        "node T implements A, B {}"
    )
    check_rejected(
        "interface B { v: Vector(3)? @embed(title) } node T implements B {}",
        SchemaParseError,
        "@embed on T.v references unknown source property title",
        "title",
    )


# --- metadata and hints ---------------------------------------------------------------------------


@pytest.mark.parametrize("annotation", ["description", "instruction"])
@pytest.mark.parametrize("holder", ["node T ANN {}", "node N {} edge T: N -> N ANN"])
def test_c_sch_021_metadata_of_types(annotation: str, holder: str):
    kind = "node" if holder.startswith("node T") else "edge"
    label = f"{kind} T"

    def with_annotation(written: str) -> str:
        return holder.replace("ANN", written)

    for empty in ("", '("")', '(" \\n")', "(5)", "(true)"):
        error = failure(with_annotation(f"@{annotation}{empty}"), SchemaParseError)
        assert f"@{annotation} on {label} requires a non-empty value" in error.message
    twice = failure(with_annotation(f'@{annotation}("a") @{annotation}("a")'), SchemaParseError)
    assert f"{label} declares @{annotation} multiple times" in twice.message
    catalog = compiled(with_annotation(f'@{annotation}("text")')).catalog
    found = catalog.nodes["T"] if kind == "node" else catalog.edges["T"]
    assert getattr(found, annotation) == "text"
    assert found.annotations == ()


@pytest.mark.parametrize("holder", ["node T {", "interface T {", "node N {} edge T: N -> N {"])
def test_c_sch_021_metadata_of_properties(holder):
    def with_annotations(written: str) -> str:
        return f"{holder} p: String {written} }}"

    check_rejected(
        with_annotations('@instruction("x")'),
        SchemaParseError,
        "@instruction is only supported on node and edge types",
        "@instruction",
    )
    check_rejected(
        with_annotations('@description("")'),
        SchemaParseError,
        "@description on property T.p requires a non-empty value",
        '""',
    )
    check_rejected(
        with_annotations('@description("a") @description("b")'),
        SchemaParseError,
        "property T.p declares @description multiple times",
        "@description",
    )


@pytest.mark.parametrize("constraint", ["key", "unique", "index"])
def test_c_sch_021_a_property_declares_a_bare_constraint_once(constraint):
    check_rejected(
        f"node T {{ p: String @{constraint} @{constraint} }}",
        SchemaParseError,
        f"property T.p declares @{constraint} multiple times",
        f"@{constraint}",
    )


def test_c_sch_022_unknown_annotations_are_kept():
    catalog = compiled(
        'node T @owner("ops") @tier(3, hot=true) { p: String @pii @unit(cm) @unit("m") @unit(cm) } '
        "edge E: T -> T @weight(1.5) { p: I32 @x(1) @x(true) @x(1.0) }"
    ).catalog
    node, edge = catalog.nodes["T"], catalog.edges["E"]
    assert [(a.name, a.value, a.options) for a in node.annotations] == [
        ("owner", "ops", ()),
        ("tier", 3, (("hot", True),)),
    ]
    assert [(a.name, a.value) for a in node.properties["p"].annotations] == [
        ("pii", None),
        ("unit", "cm"),
        ("unit", "m"),
    ]
    assert edge.annotations[0].value == 1.5
    values = [a.value for a in edge.properties["p"].annotations]
    assert sorted(map(repr, values)) == ["1", "1.0", "True"]


@pytest.mark.parametrize(
    ("holder", "label"),
    [
        ("node T HINT {}", "node T"),
        ("node N {} edge T: N -> N HINT", "edge T"),
        ("node T { p: String HINT }", "property T.p"),
        ("interface T { p: String HINT }", "property T.p"),
        ("node N {} edge T: N -> N { p: String HINT }", "property T.p"),
    ],
)
@pytest.mark.parametrize(
    ("hint", "message"),
    [
        ("@rename_from", "requires exactly one non-empty positional value"),
        ('@rename_from("")', "requires exactly one non-empty positional value"),
        ('@rename_from(" ")', "requires exactly one non-empty positional value"),
        ("@rename_from(5)", "requires exactly one non-empty positional value"),
        ('@rename_from("a", b=1)', "does not accept keyword arguments"),
    ],
)
def test_c_sch_023_malformed_rename_hints_are_rejected(holder, label, hint, message):
    error = failure(holder.replace("HINT", hint), SchemaParseError)
    assert f"@rename_from on {label} {message}" in error.message


def test_c_sch_023_a_declaration_has_one_rename_hint():
    check_rejected(
        'node T { p: String @rename_from("a") @rename_from("b") }',
        SchemaParseError,
        "property T.p declares @rename_from multiple times",
        "@rename_from",
    )
    check_rejected(
        'node T @rename_from("A") @rename_from("A") {}',
        SchemaParseError,
        "node T declares @rename_from multiple times",
        "@rename_from",
    )
