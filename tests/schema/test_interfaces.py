"""Interfaces: what a node gains from them, and where they do not fit."""

from __future__ import annotations

import pytest

from omnigraph.errors import CatalogError, SchemaParseError
from omnigraph.schema.admission import find_problems
from omnigraph.syntax.schema_parser import parse_schema
from tests.schema.library import check_rejected, compiled, failure


def test_c_sch_009_interface_properties_and_constraints_are_injected():
    catalog = compiled(
        """
        interface Named { name: String @key @description("d")  alias: String? @unique @index @hot }
        interface Found { vec: Vector(4)? @embed("text", model="m") @index }
        node T implements Named, Found { text: String  age: I32? }
        """
    ).catalog
    node = catalog.nodes["T"]
    assert list(node.properties) == ["age", "alias", "name", "text", "vec"]
    assert node.key == ("name",)
    assert node.unique == (("alias",),)
    assert node.indexes == (("alias",), ("vec",))
    assert node.properties["name"].description == "d"
    assert [a.name for a in node.properties["alias"].annotations] == ["hot"]
    embed = node.properties["vec"].embed
    assert embed is not None
    assert (embed.source, embed.model) == ("text", "m")
    assert node.implements == ("Found", "Named")


def test_c_sch_009_a_redeclared_property_uses_only_its_own_annotations():
    node = compiled(
        'interface I { name: String @key @description("theirs") } '
        'node T implements I { name: String @description("ours") @index }'
    ).catalog.nodes["T"]
    assert node.key == ()
    assert node.indexes == (("name",),)
    assert node.properties["name"].description == "ours"


def test_c_sch_009_agreeing_interfaces_may_supply_the_same_property():
    node = compiled(
        "interface A { x: String @index @hot(1, b=2, a=3) } "
        "interface B { x: String @hot(1, a=3, b=2) @index } node T implements A, B, A {}"
    ).catalog.nodes["T"]
    assert list(node.properties) == ["x"]
    assert node.implements == ("A", "B")


def test_c_sch_010_a_redeclared_property_keeps_the_type_of_its_interface():
    check_rejected(
        "interface I { a: enum(x, y) } node T implements I { a: enum(x, y)? }",
        SchemaParseError,
        "node T property 'a' has type enum(x, y)? but interface I declares it as enum(x, y)",
        "enum(x, y)?",
    )


@pytest.mark.parametrize(
    "other", ["I32", "String?", "String @index", "String @hot", 'String @hot("2")']
)
def test_c_sch_010_interfaces_that_disagree_are_rejected(other):
    check_rejected(
        f"interface A {{ x: String @hot(2) }} interface B {{ x: {other} }} "
        "node T implements A, B {}",
        CatalogError,
        "interfaces contributing 'T.x' have incompatible property semantics",
        "A, B",
    )


def test_c_sch_010_annotations_that_differ_are_settled_by_the_node():
    text = "interface A { x: String } interface B { x: String @index } node T implements A, B "
    compiled(text + "{ x: String }")
    failure(text + "{}", CatalogError)


def test_an_unknown_interface_is_rejected_without_follow_up_problems():
    text = "interface Named {} node T implements Namd { @key(name) v: Vector(3) @embed(name) }"
    check_rejected(text, SchemaParseError, "node T implements unknown interface 'Namd'", "Namd")
    assert len(find_problems(parse_schema(text))) == 1
    assert failure(text).hint == "did you mean `Named`?"
