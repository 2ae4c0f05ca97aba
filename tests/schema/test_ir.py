"""The persisted form of an accepted schema, and how strictly it is read back."""

from __future__ import annotations

import json
from typing import Any

import pytest

from omnigraph.errors import SchemaContractError
from omnigraph.schema.catalog import canonical_json
from omnigraph.schema.encoding import ir_hash, ir_text, read_ir
from tests.schema.library import DOMAIN, compiled

EVERYTHING = """
interface Named { label: String @index @unique @key @default("x") @description("d")
                  face: Vector(2)? @embed(label) }
interface Other { face: Vector(2)? @embed(label) }
node City @description("a city") @instruction("i") @hot(1, b=true, a="x") implements Named, Other {
    pop: U32? @x(1.5)
    label: String
    tags: [String]
    size: enum(l, m, s)?
    height: F64 @default(0)
    text: String?
    vec: Vector(8)? @embed("text", model="m") @index
    map: Blob?
    open: Bool  day: Date  at: DateTime  i: I32  j: I64  k: U64  f: F32
    @key(i, j)
    @unique(label)
    @unique(k, f)
    @range(height, ..120)
    @range(pop, 0..)
    @check(text, "^[A-Z]")
}
node Land {}
edge In: City -> Land @card(1..4) @description("e") {
    since: Date? @index
    @unique(src, dst)
    @unique(dst, since)
}
"""


TEXT = ir_text(compiled(EVERYTHING).ir)
Path = tuple[str | int, ...]


def document(text: str = TEXT) -> Any:
    return json.loads(text)


def rejected(value: object) -> str:
    with pytest.raises(SchemaContractError) as caught:
        read_ir(value if isinstance(value, str) else canonical_json(value))
    return caught.value.message


def test_an_ir_comes_back_from_its_text():
    ir = compiled(EVERYTHING).ir
    assert read_ir(TEXT) == ir
    assert ir_hash(read_ir(TEXT)) == ir_hash(ir)


def test_the_text_has_the_members_of_the_contract():
    text = "interface I { p: I32 } node N implements I {} edge E: N -> N"
    ir = document(ir_text(compiled(text).ir))
    assert {k: v for k, v in ir.items() if k not in ("interfaces", "nodes", "edges")} == {
        "ir_version": 2,
        "schema_identity_domain": DOMAIN,
        "next_identity_id": 8,
    }
    (interface,), (node,), (edge,) = ir["interfaces"], ir["nodes"], ir["edges"]
    assert (interface["name"], interface["type_id"]) == ("I", 1)
    assert (node["type_id"], node["table_incarnation_id"]) == (2, 6)
    assert node["implements"] == [{"type_id": 1, "type_name": "I"}]
    assert node["properties"][0]["property_id"] == 5
    assert node["properties"][0]["satisfies_interface_properties"] == [
        {"type_id": 1, "type_name": "I", "property_id": 4, "property_name": "p"}
    ]
    assert edge["from_type"] == edge["to_type"] == {"type_id": 2, "type_name": "N"}
    assert edge["cardinality"] == {"min": 0, "max": None}


def test_references_hold_id_and_name_and_ends_have_no_id():
    edge = document()["edges"][0]
    since = edge["properties"][0]["property_id"]
    assert edge["constraints"] == [
        {"kind": "index", "fields": [{"property_id": since, "property_name": "since"}]},
        {
            "kind": "unique",
            "fields": [{"system": "dst"}, {"property_id": since, "property_name": "since"}],
        },
        {"kind": "unique", "fields": [{"system": "dst"}, {"system": "src"}]},
    ]


def test_types_are_written_as_scalar_nullable_list_and_values():
    properties = {p["name"]: p["prop_type"] for p in document()["nodes"][0]["properties"]}
    plain = {"nullable": False, "list": False, "enum_values": None}
    assert properties["tags"] == plain | {"scalar": "String", "list": True}
    assert properties["vec"] == plain | {"scalar": {"Vector": 8}, "nullable": True}
    values = {"scalar": "String", "nullable": True, "enum_values": ["l", "m", "s"]}
    assert properties["size"] == plain | values


@pytest.mark.parametrize("version", [1, 3, "2", None, True, 2.5])
def test_another_ir_version_is_refused(version):
    ir = document()
    ir["ir_version"] = version
    assert "unsupported ir_version" in rejected(ir)


@pytest.mark.parametrize(
    "text",
    ["", "nul", "[]", "2", '"x"', "{", "[" * 100_000, '{"ir_version": 2}', '{"a":"\\ud800"}'],
)
def test_a_text_that_is_no_ir_is_refused(text):
    rejected(text)


def test_a_lone_surrogate_is_refused():
    rejected('{"ir_version":2,"x":"\ud800"}')


@pytest.mark.parametrize("number", ["NaN", "Infinity", "1e999", "-Infinity"])
def test_a_number_json_does_not_have_is_refused(number):
    text = ir_text(compiled("node T { a: F64 @range(a, 0.5..) }").ir)
    assert '"min":0.5' in text
    rejected(text.replace('"min":0.5', f'"min":{number}'))


def paths(value: Any, path: Path = ()) -> list[Path]:
    """The path of every member and item below a JSON value."""
    if isinstance(value, dict):
        entries = list(value.items())
    elif isinstance(value, list):
        entries = list(enumerate(value))
    else:
        return []
    return [found for key, item in entries for found in [(*path, key), *paths(item, (*path, key))]]


def parent_of(root: Any, path: Path) -> Any:
    holder = root
    for key in path[:-1]:
        holder = holder[key]
    return holder


def test_no_member_of_an_ir_can_be_missing_or_an_object_in_its_place():
    for path in paths(document()):
        ir = document()
        parent_of(ir, path)[path[-1]] = {}
        rejected(ir)
        if isinstance(path[-1], str) and "kwargs" not in path:
            ir = document()
            del parent_of(ir, path)[path[-1]]
            rejected(ir)


@pytest.mark.parametrize("value", [None, "zzz", 999, -1.5, True, []])
def test_a_value_of_another_kind_is_refused_or_makes_another_ir(value):
    for path in paths(document()):
        ir = document()
        parent_of(ir, path)[path[-1]] = value
        text = canonical_json(ir)
        try:
            found = read_ir(text)
        except SchemaContractError:
            continue
        assert (ir_text(found) == TEXT) == (text == TEXT)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda ir: ir["nodes"].reverse(),
        lambda ir: ir["nodes"].append(ir["nodes"][0]),
        lambda ir: ir["nodes"][0]["properties"].reverse(),
        lambda ir: ir["nodes"][0]["constraints"].reverse(),
        lambda ir: ir["nodes"][0]["annotations"].reverse(),
        lambda ir: ir["nodes"][0]["implements"].reverse(),
        lambda ir: ir["nodes"][0]["properties"][-5]["prop_type"].update(enum_values=["b", "a"]),
        lambda ir: ir["nodes"][0].update(type_id=ir["nodes"][1]["type_id"]),
        lambda ir: ir["nodes"][0].update(type_id=0),
        lambda ir: ir["nodes"][0].update(type_id=ir["next_identity_id"]),
        lambda ir: ir["nodes"][0].update(type_id=-1),
        lambda ir: ir.update(next_identity_id=2**64),
        lambda ir: ir.update(next_identity_id=3),
        lambda ir: ir.update(extra=1),
        lambda ir: ir["edges"][0]["from_type"].update(type_name="Nowhere"),
        lambda ir: ir["edges"][0]["from_type"].update(type_name="Land"),
        lambda ir: ir["edges"][0]["from_type"].update(type_id=4),
        lambda ir: ir["edges"][0]["constraints"][0]["fields"][0].update(property_name="x"),
        lambda ir: ir.update(schema_identity_domain="somewhere"),
    ],
)
def test_an_ir_that_contradicts_itself_is_refused(spoil):
    ir = document()
    spoil(ir)
    rejected(ir)


def test_another_spelling_of_the_same_ir_is_refused():
    assert "canonical form" in rejected(json.dumps(document(), indent=2))
    assert "canonical form" in rejected(ir_text(compiled("").ir) + "\n")


def test_the_persisted_form_never_changes():
    # A new value here means that no existing graph opens any more.
    assert (
        ir_hash(compiled(EVERYTHING).ir)
        == "sha256:7a8393526146977c58dcccac8844e198c671fc390a29f8452adf230af01ae21c"
    )
