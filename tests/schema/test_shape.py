"""The shape: what a schema means, whatever it looks like."""

from __future__ import annotations

import pytest

from omnigraph.schema.catalog import Range
from omnigraph.schema.shape import ColumnsShape
from tests.schema.library import hash_of, shape

PLANTS = """
interface Titled { title: String @index  lang: enum(de, en)? }
node Plant @description("p") @x(1) implements Titled {
    code: String @key
    height_m: F32?
    leaf: Vector(8)? @embed("title", model="m") @index
    @range(height_m, 0..120)
    @unique(code, height_m)
}
node Bed {}
edge GrowsIn: Plant -> Bed @card(0..4) { since: Date? @unique(src, dst) }
"""

SAME = {
    "order of declarations": """
edge GrowsIn: Plant -> Bed @card(0..4) { since: Date? @unique(src, dst) }
node Bed {}
node Plant @description("p") @x(1) implements Titled {
    code: String @key
    height_m: F32?
    leaf: Vector(8)? @embed("title", model="m") @index
    @range(height_m, 0..120)
    @unique(code, height_m)
}
interface Titled { title: String @index  lang: enum(de, en)? }
""",
    "order inside declarations": """
interface Titled { lang: enum(en, de)?  title: String @index }
node Plant @x(1) @description("p") implements Titled, Titled {
    @unique(height_m, code, code)
    leaf: Vector(8)? @index @embed(title, model="m")
    @range(height_m, 0.0..120.0)
    height_m: F32?
    code: String @key
}
node Bed { }
edge GrowsIn: Plant -> Bed @card(0..4) { @unique(dst, src)  since: Date? }
""",
    "form of constraints": """
interface Titled { title: String @index  lang: enum(de, en)? }
node Plant @description("p") @x(1) @x(1) implements Titled {
    code: String
    height_m: F32?
    leaf: Vector(8)? @embed("title", model="m")
    @key(code) @index(leaf)
    @range(height_m, 0..120) @range(height_m, 0..120)
    @unique(code, height_m) @unique(code, height_m)
}
node Bed {}
edge GrowsIn: Plant -> Bed @card(0..4) { since: Date? @unique(src, dst) }
""",
    "comments": PLANTS.replace("\n", " // note\n/* another */ "),
    "rename hints": PLANTS.replace("node Plant", 'node Plant @rename_from("Herb")')
    .replace("F32?", 'F32? @rename_from("height")')
    .replace("title: String", 'title: String @rename_from("name")')
    .replace("@card(0..4)", '@card(0..4) @rename_from("Grows")'),
}

DIFFERENT = {
    "a name": ("height_m", "height"),
    "a type": ("F32?", "F64?"),
    "nullability": ("F32?", "F32"),
    "an enum value": ("enum(de, en)", "enum(de, en, fr)"),
    "a dimension": ("Vector(8)", "Vector(9)"),
    "a description": ('@description("p")', '@description("q")'),
    "an annotation": ("@x(1)", "@x(true)"),
    "a number of another kind": ("@x(1)", "@x(1.0)"),
    "an annotation's option": ("@x(1)", "@x(1, y=2)"),
    "an embedding source": ('"title"', '"code"'),
    "an embedding model": ('model="m"', 'model="n"'),
    "a bound": ("0..120", "0..121"),
    "an open bound": ("0..120", "..120"),
    "a key": ("code: String @key", "code: String"),
    "a group": ("@unique(code, height_m)", "@unique(code)"),
    "a cardinality": ("@card(0..4)", "@card(0..)"),
    "an end": ("Plant -> Bed", "Bed -> Plant"),
    "an interface's constraint": ("title: String @index", "title: String"),
    "who declares a property": ("implements Titled {", "implements Titled { title: String @index"),
}


@pytest.mark.parametrize("what", SAME)
def test_c_sch_027_the_shape_hash_ignores(what):
    assert shape(SAME[what]) == shape(PLANTS)
    assert hash_of(SAME[what]) == hash_of(PLANTS)


@pytest.mark.parametrize("what", DIFFERENT)
def test_c_sch_027_the_shape_hash_notices(what):
    old, new = DIFFERENT[what]
    assert old in PLANTS
    assert hash_of(PLANTS.replace(old, new)) != hash_of(PLANTS)


def test_the_shape_hash_is_a_sha256_of_canonical_text_and_never_changes():
    # Persisted in every root: a new value here means that no existing graph opens any more.
    assert hash_of("") == (
        "sha256:d6a1b8b4e36b3bc4620c40fc435f50ad8dfffbdcf9822c7367ef9fa9121a03de"
    )
    assert hash_of(PLANTS) == (
        "sha256:7c15c4c4320c6493954f55e0b29b30363473ddc2ca2f3c44cb7c0ca06c52b509"
    )


def test_a_shape_is_sorted_and_names_its_origins():
    plant = shape(PLANTS).nodes[1]
    assert [node.name for node in shape(PLANTS).nodes] == ["Bed", "Plant"]
    assert [prop.name for prop in plant.properties] == ["code", "height_m", "lang", "leaf", "title"]
    origins = {prop.name: (prop.is_direct, prop.satisfies) for prop in plant.properties}
    assert origins["code"] == (True, ())
    assert origins["title"] == (False, ("Titled",))
    assert plant.constraints == (
        ColumnsShape("index", ("leaf",)),
        ColumnsShape("index", ("title",)),
        ColumnsShape("key", ("code",)),
        Range("height_m", 0.0, 120.0),
        ColumnsShape("unique", ("code", "height_m")),
    )


def test_bare_constraints_of_an_interface_stay_with_it_and_reach_its_nodes():
    titled = shape(PLANTS).interfaces[0]
    assert {p.name: p.constraints for p in titled.properties} == {"lang": (), "title": ("index",)}
