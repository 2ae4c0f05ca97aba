"""`@default(literal)`: which values fit, and where a default makes no sense."""

from __future__ import annotations

import pytest

from omnigraph.errors import SchemaParseError
from omnigraph.model.values import property_value
from tests.schema.library import compiled, failure, hash_of, underlined


def default_of(written: str, literal: str):
    return (
        compiled(f"node T {{ p: {written} @default({literal}) }}")
        .catalog.nodes["T"]
        .properties["p"]
    )


@pytest.mark.parametrize(
    ("written", "literal", "value"),
    [
        ("String", '"new"', "new"),
        ("String?", '""', ""),
        ("Bool", "true", True),
        ("Bool", "false", False),
        ("I32", "-2147483648", -(2**31)),
        ("I64", "9223372036854775807", 2**63 - 1),
        ("U32", "0", 0),
        ("U64", "18446744073709551615", 2**64 - 1),
        ("F32", "0.1", 0.1),
        ("F32", "-3", -3.0),
        ("F64", "9007199254740992", 2.0**53),
        ("F64", "-0.5", -0.5),
        ("Date", '"2026-02-28"', "2026-02-28"),
        ("DateTime", '"2026-02-28T12:00:00.5+02:00"', "2026-02-28T12:00:00.5+02:00"),
        ("DateTime", '"2026-02-28 12:00:00"', "2026-02-28 12:00:00"),
        ("DateTime?", '"2026-02-28"', "2026-02-28"),
        ("enum(open, pre-seed)", "open", "open"),
        ("enum(open, pre-seed)?", '"pre-seed"', "pre-seed"),
    ],
)
def test_a_default_is_a_value_of_the_property(written, literal, value):
    prop = default_of(written, literal)
    assert prop.default == value
    assert type(prop.default) is type(value)
    property_value(prop.default, prop.type, "p", strict=True)
    assert prop.annotations == ()


@pytest.mark.parametrize(
    ("written", "literal"),
    [
        ("String", "5"),
        ("String", "word"),
        ("String", "true"),
        ("Bool", "1"),
        ("Bool", '"true"'),
        ("I32", "2147483648"),
        ("I32", "1.0"),
        ("I32", '"1"'),
        ("I32", "true"),
        ("U32", "-1"),
        ("U64", "-1"),
        ("F32", "16777217"),
        ("F32", "9" * 39 + ".0"),
        ("F64", "9007199254740993"),
        ("F64", '"1"'),
        ("F64", "false"),
        ("Date", '"2026-02-29"'),
        ("Date", '"yesterday"'),
        ("Date", "19000"),
        ("DateTime", '"2026-02-28T25:00:00Z"'),
        ("DateTime", '"12:00"'),
        ("enum(a, b)", "c"),
        ("enum(a, b)", "1"),
        ("enum(a, b)", "true"),
    ],
)
def test_a_default_that_does_not_fit_is_rejected(written, literal):
    error = failure(f"node T {{ p: {written} @default({literal}) }}", SchemaParseError)
    assert f"@default on T.p does not fit type {written}: {literal}" in error.message
    assert underlined(error) == literal
    assert error.hint


@pytest.mark.parametrize(
    ("declaration", "message"),
    [
        ('p: [String] @default("a")', "@default is not supported on list property T.p"),
        ("p: Vector(3) @default(1)", "@default is not supported on vector property T.p"),
        ('p: Blob @default("base64:")', "@default is not supported on blob property T.p"),
        ("p: I32 @default", "@default on T.p requires a literal value"),
        ("p: I32 @default(1, x=2)", "@default on T.p does not accept keyword arguments"),
        ("p: I32 @default(1) @default(1)", "property T.p declares @default multiple times"),
        ("p: I32 @default(1) @key", "@default is not supported on @key property T.p"),
        ("p: I32 @default(1) q: I32 @key(q, p)", "@default is not supported on @key property T.p"),
        ("p: I32 @default(1) @unique", "@default is not supported on @unique property T.p"),
        ("p: I32 @default(1) @range(p, 2..)", "@default on T.p is below the @range minimum 2"),
        ("p: F64 @default(1.5) @range(p, ..1)", "@default on T.p is above the @range maximum 1"),
        ('p: String @default("a") @check(p, "^b")', "@default on T.p does not match '^b'"),
        ('p: enum(a, b) @default(a) @check(p, "b")', "@default on T.p does not match 'b'"),
    ],
)
def test_a_default_where_it_makes_no_sense_is_rejected(declaration, message):
    assert message in failure(f"node T {{ {declaration} }}", SchemaParseError).message


@pytest.mark.parametrize(
    "declaration",
    [
        "p: I32 @default(1) q: I32 @unique(p, q)",
        "p: I32 @default(1) @index",
        "p: I32 @default(1) @range(p, 1..1)",
        'p: String @default("ab") @check(p, "b")',
    ],
)
def test_a_default_that_can_be_used_again_and_again_is_admitted(declaration):
    compiled(f"node T {{ {declaration} }}")


def test_a_default_belongs_to_a_property():
    for holder in ("node T @default(1) {}", "node N {} edge T: N -> N @default(1)"):
        error = failure(holder, SchemaParseError)
        assert "@default is only supported on properties" in error.message


def test_edges_have_defaults_too():
    edge = compiled("node N {} edge E: N -> N { weight: F32 @default(1) }").catalog.edges["E"]
    assert edge.properties["weight"].default == 1.0


def test_a_default_comes_with_its_interface():
    catalog = compiled("interface I { p: I32 @default(7) } node T implements I {}").catalog
    assert catalog.nodes["T"].properties["p"].default == 7
    assert catalog.interfaces["I"].properties["p"].default == 7
    error = failure("interface I { p: I32 @default(7) } node T implements I { @key(p) }")
    assert "@default is not supported on @key property T.p" in error.message


def test_a_default_is_part_of_what_a_schema_means():
    one, other, none = ("@default(1)", "@default(2)", "")
    hashes = {hash_of(f"node T {{ p: I32 {d} }}") for d in (one, other, none)}
    assert len(hashes) == 3
    assert hash_of("node T { p: F64 @default(1) }") == hash_of("node T { p: F64 @default(1.0) }")
