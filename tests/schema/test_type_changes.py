"""Changes of a property type: which are metadata, which widen, and which are refused."""

from __future__ import annotations

import pytest

from tests.schema.library import only, planned, refused, steps

ENUM = "node City { size: enum(l, s) }"

# --- enums ----------------------------------------------------------------------------------------


def test_c_sch_058_more_enum_values_are_metadata():
    new = ENUM.replace("enum(l, s)", "enum(xl, s, m, l)")
    assert only(ENUM, new) == {
        "kind": "extend_enum",
        "type_kind": "node",
        "type_name": "City",
        "property_name": "size",
        "added_values": ["m", "xl"],
    }


def test_c_sch_058_enum_values_are_added_after_a_rename_under_the_new_name():
    new = ENUM.replace("size: enum(l, s)", 'extent: enum(l, m, s) @rename_from("size")')
    found = steps(ENUM, new)
    assert [s["kind"] for s in found] == ["rename_property", "extend_enum"]
    assert found[1]["property_name"] == "extent"


@pytest.mark.parametrize("values", ["l", "s", "l, m", "big, small", "S, l"])
def test_c_sch_058_taking_enum_values_away_is_og_mf_106(values):
    step = refused(ENUM, ENUM.replace("enum(l, s)", f"enum({values})"))
    assert (step["entity"], step["code"]) == ("node:City.size", "OG-MF-106")
    assert "changing property type for 'City.size'" in str(step["reason"])


def test_c_sch_058_the_order_of_enum_values_is_no_change():
    assert steps(ENUM, ENUM.replace("enum(l, s)", "enum(s, l)")) == []


# --- widening -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I32", "I64"),
        ("U32", "U64"),
        ("F32", "F64"),
        ("enum(a, b)", "String"),
        ("I32", "I64?"),
        ("I32?", "I64?"),
        ("enum(a, b)", "String?"),
        ("enum(a)?", "String?"),
        ("String", "String?"),
        ("[String]", "[String]?"),
        ("Vector(3)", "Vector(3)?"),
        ("Blob", "Blob?"),
        ("enum(a)", "enum(a)?"),
        ("Date", "Date?"),
    ],
)
def test_lossless_widening_is_supported(old, new):
    plan = planned(f"node T {{ p: {old} }}", f"node T {{ p: {new} }}")
    assert plan.supported
    assert plan.render() == [f"widen property node:T.p from {old} to {new}"]
    form = plan.steps[0].to_json()
    assert form["kind"] == "widen_property"
    assert (form["type_kind"], form["type_name"], form["property_name"]) == ("node", "T", "p")
    assert form["to_type"]["nullable"] == new.endswith("?")
    assert set(form) == {
        *("kind", "type_kind", "type_name", "property_name", "from_type", "to_type")
    }


def test_an_enum_may_grow_and_become_nullable_at_once():
    found = planned("node T { p: enum(a) }", "node T { p: enum(a, b)? }")
    assert found.render() == [
        "extend enum node:T.p with b",
        "widen property node:T.p from enum(a, b) to enum(a, b)?",
    ]


def test_a_renamed_property_may_widen():
    found = planned("node T { p: I32 }", 'node T { q: I64 @rename_from("p") }')
    assert found.render() == [
        "rename property node:T.p to q",
        "widen property node:T.q from I32 to I64",
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("I64", "I32"),
        ("U64", "U32"),
        ("F64", "F32"),
        ("I32", "U32"),
        ("U32", "I64"),
        ("I32", "F64"),
        ("F32", "I64"),
        ("I32", "String"),
        ("String", "enum(a)"),
        ("String?", "String"),
        ("I32?", "I64"),
        ("enum(a)?", "String"),
        ("enum(a)?", "enum(a, b)"),
        ("String", "[String]"),
        ("[String]", "String"),
        ("[I32]", "[I64]"),
        ("Vector(3)", "Vector(4)"),
        ("Date", "DateTime"),
        ("String", "Blob"),
    ],
)
def test_every_other_type_change_is_og_mf_106(old, new):
    step = refused(f"node T {{ p: {old} }}", f"node T {{ p: {new} }}")
    assert (step["entity"], step["code"]) == ("node:T.p", "OG-MF-106")
    assert f"changing property type for 'T.p' from {old} to {new}" in str(step["reason"])


@pytest.mark.parametrize("key", ["@key", "q: I32 @key(p, q)"])
def test_a_key_widens_only_where_ids_keep_their_spelling(key):
    for old, new in (("I32", "I64"), ("U32", "U64"), ("enum(a)", "String")):
        assert planned(f"node T {{ p: {old} {key} }}", f"node T {{ p: {new} {key} }}").supported
    step = refused(f"node T {{ p: F32 {key} }}", f"node T {{ p: F64 {key} }}")
    assert step["code"] == "OG-MF-106"
    assert "ids of existing nodes" in str(step["reason"])


def test_unique_and_ranged_properties_may_widen():
    old = "node T { p: F32? @unique @index @range(p, 0..9) }"
    assert planned(old, old.replace("F32", "F64")).render() == [
        "widen property node:T.p from F32? to F64?"
    ]


def test_an_interface_widens_with_its_nodes():
    old = "interface I { p: I32 } node T implements I { p: I32 } node U implements I {}"
    found = steps(old, old.replace("I32", "I64"))
    assert [(s["kind"], s["type_kind"], s["type_name"]) for s in found] == [
        ("widen_property", "interface", "I"),
        ("widen_property", "node", "T"),
        ("widen_property", "node", "U"),
    ]
