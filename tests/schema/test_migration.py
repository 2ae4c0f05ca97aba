"""Migration plans: which steps, in which order, and what is refused with which words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from omnigraph.errors import CatalogError, SchemaContractError, UnsupportedSchemaChange
from omnigraph.schema.compile import compile_schema
from omnigraph.schema.migration import plan_change, plan_migration
from omnigraph.schema.shape import SchemaIds
from omnigraph.schema.steps import read_step
from tests.schema.library import compiled, only, planned, refused, steps

BASE = """
interface Named { label: String }
node City implements Named { code: String @key  pop: U32?  size: enum(l, s) }
node Land { area: F32? }
edge In: City -> Land @card(0..4) { since: Date? }
"""

STRING = {"scalar": "String", "nullable": False, "list": False, "enum_values": None}


# --- steps ----------------------------------------------------------------------------------------


def test_the_same_schema_needs_no_steps():
    plan = planned(BASE, BASE)
    assert plan.to_json() == {"supported": True, "steps": []}
    assert plan.render() == []
    plan.require_supported()


@pytest.mark.parametrize(
    ("kind", "added"),
    [("interface", "interface New { x: I32 }"), ("node", "node New { x: I32 @key }")],
)
def test_add_type(kind, added):
    expected = {"kind": "add_type", "type_kind": kind, "name": "New"}
    assert only(BASE, BASE + added) == expected


def test_add_edge_type_between_new_and_old_types():
    new = BASE + "node New {} edge To: New -> Land"
    assert [(s["kind"], s["type_kind"], s["name"]) for s in steps(BASE, new)] == [
        ("add_type", "node", "New"),
        ("add_type", "edge", "To"),
    ]


def test_rename_type_and_what_refers_to_it():
    new = BASE.replace("node Land", 'node Country @rename_from("Land")').replace(
        "City -> Land", "City -> Country"
    )
    step = {"kind": "rename_type", "type_kind": "node", "from": "Land", "to": "Country"}
    assert only(BASE, new) == step
    new = BASE.replace("edge In", "edge Within").replace("..4)", '..4) @rename_from("In")')
    step = {"kind": "rename_type", "type_kind": "edge", "from": "In", "to": "Within"}
    assert only(BASE, new) == step


def test_c_sch_057_adding_a_nullable_property_is_supported():
    plan = planned(BASE, BASE.replace("area: F32?", "area: F32? name: String?"))
    assert plan.supported
    assert plan.steps[0].to_json() == {
        "kind": "add_property",
        "type_kind": "node",
        "type_name": "Land",
        "property_name": "name",
        "property_type": STRING | {"nullable": True},
    }


@pytest.mark.parametrize("kind", ["node", "edge"])
def test_c_sch_057_adding_a_required_property_is_og_mf_103(kind):
    spot = "area: F32?" if kind == "node" else "since: Date?"
    owner = "Land" if kind == "node" else "In"
    plan = planned(BASE, BASE.replace(spot, f"{spot} name: String"))
    assert not plan.supported
    step = plan.unsupported[0]
    assert (step.entity, step.code) == (f"{kind}:{owner}.name", "OG-MF-103")
    assert f"adding required property '{owner}.name' requires a backfill" in step.reason
    assert plan.render()[0].startswith(
        f"unsupported change on {kind}:{owner}.name [OG-MF-103, validated]: adding required"
    )
    with pytest.raises(UnsupportedSchemaChange) as caught:
        plan.require_supported()
    assert caught.value.message.startswith("[OG-MF-103] adding required property")


def test_c_sch_057_a_default_fills_existing_entities():
    plan = planned(BASE, BASE.replace("area: F32?", 'area: F32? name: String @default("?")'))
    assert plan.supported
    assert plan.steps[0].to_json() == {
        "kind": "add_property",
        "type_kind": "node",
        "type_name": "Land",
        "property_name": "name",
        "property_type": STRING,
        "default": "?",
    }
    assert plan.render() == ['add property node:Land.name: String with default "?"']


def test_a_default_that_is_false_is_still_a_default():
    step = only("node T {}", "node T { done: Bool @default(false) }")
    assert step["default"] is False


def test_adding_a_property_to_an_interface_reaches_its_nodes():
    new = BASE.replace("label: String", "label: String alias: String?")
    assert [(s["kind"], s["type_kind"], s["type_name"]) for s in steps(BASE, new)] == [
        ("add_property", "interface", "Named"),
        ("add_property", "node", "City"),
    ]
    new = BASE.replace("label: String", "label: String alias: String")
    entities = [step.entity for step in planned(BASE, new).unsupported]
    assert entities == ["interface:Named.alias", "node:City.alias"]


def test_rename_property():
    new = BASE.replace("area: F32?", 'size_km2: F32? @rename_from("area")')
    assert only(BASE, new) == {
        "kind": "rename_property",
        "type_kind": "node",
        "type_name": "Land",
        "from": "area",
        "to": "size_km2",
    }


def test_a_renamed_property_keeps_its_constraints():
    old = """node T { a: String @key b: I32 @unique c: String s: String? v: Vector(2)? @embed(s)
             @index(a, b) @range(b, 0..9) @check(c, "x") }"""
    new = """node T { k: String @key @rename_from("a") u: I32 @unique @rename_from("b")
             d: String @rename_from("c") t: String? @rename_from("s") v: Vector(2)? @embed(t)
             @index(u, k) @range(u, 0..9) @check(d, "x") }"""
    found = [(s["kind"], s["from"], s["to"]) for s in steps(old, new)]
    assert found == [
        ("rename_property", "c", "d"),
        ("rename_property", "a", "k"),
        ("rename_property", "s", "t"),
        ("rename_property", "b", "u"),
    ]


def test_an_embedding_source_of_another_interface_may_be_renamed():
    old = (
        "interface A { t: String } interface B { v: Vector(2)? @embed(t) } "
        "node N implements A, B {}"
    )
    new = old.replace("{ t: String", '{ u: String @rename_from("t")').replace(
        "embed(t)", "embed(u)"
    )
    assert [s["kind"] for s in steps(old, new)] == ["rename_property", "rename_property"]


@pytest.mark.parametrize("written", ["@index", "@index(area)"])
def test_add_one_index_is_one_step(written):
    assert only(BASE, BASE.replace("area: F32?", f"area: F32? {written}")) == {
        "kind": "add_constraint",
        "type_kind": "node",
        "type_name": "Land",
        "constraint": {"Index": ["area"]},
    }


def test_add_index_over_several_columns_and_ends():
    new = BASE.replace("since: Date?", "since: Date? @index(src, since)")
    assert only(BASE, new)["constraint"] == {"Index": ["since", "src"]}


def test_an_index_comes_with_a_new_property():
    new = BASE.replace("area: F32?", "area: F32? name: String? @index")
    assert [s["kind"] for s in steps(BASE, new)] == ["add_property", "add_constraint"]


def test_an_index_on_an_interface_reaches_its_nodes():
    found = steps(BASE, BASE.replace("label: String", "label: String @index"))
    assert [(s["kind"], s["type_kind"], s["type_name"]) for s in found] == [
        ("add_constraint", "interface", "Named"),
        ("add_constraint", "node", "City"),
    ]


def test_moving_a_constraint_between_its_two_forms_is_no_change():
    old = "node T { a: String @key b: I32 @index c: I32? @unique }"
    new = "node T { a: String b: I32 c: I32? @key(a) @unique(c) @index(b) }"
    assert steps(old, new) == []


@pytest.mark.parametrize("annotation", ["description", "instruction"])
def test_type_metadata(annotation):
    new = BASE.replace("node Land", f'node Land @{annotation}("x")')
    expected = {"kind": "update_type_metadata", "type_kind": "node", "name": "Land"}
    assert only(BASE, new) == expected | {"annotations": [{"name": annotation, "value": "x"}]}
    assert only(new, BASE) == expected | {"annotations": []}


def test_property_metadata():
    one = 'node T { a: I32 @description("one") @x }'
    two = 'node T { a: I32 @x @description("two") }'
    assert only(one, two) == {
        "kind": "update_property_metadata",
        "type_kind": "node",
        "type_name": "T",
        "property_name": "a",
        "annotations": [{"name": "description", "value": "two"}],
    }


@pytest.mark.parametrize(
    ("old", "new", "annotations"),
    [
        ("", "@default(1)", [{"name": "default", "value": 1}]),
        ("@default(1)", "@default(2)", [{"name": "default", "value": 2}]),
        ("@default(1)", "", []),
        (
            '@default(1) @description("d")',
            '@default(2) @description("d")',
            [{"name": "default", "value": 2}, {"name": "description", "value": "d"}],
        ),
    ],
)
def test_changing_only_a_default_is_metadata(old, new, annotations):
    step = only(f"node T {{ a: I32 {old} }}", f"node T {{ a: I32 {new} }}")
    assert (step["kind"], step["annotations"]) == ("update_property_metadata", annotations)


# --- drops ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("allow_data_loss", "mode"), [(False, "soft"), (True, "hard")])
def test_drops_are_soft_unless_data_loss_is_allowed(allow_data_loss, mode):
    new = "interface Named { label: String } node City implements Named { code: String @key }"
    plan = planned(BASE, new, allow_data_loss=allow_data_loss)
    assert plan.supported
    assert [step.to_json() for step in plan.steps] == [
        {
            "kind": "drop_property",
            "type_kind": "node",
            "type_name": "City",
            "property_name": "pop",
            "mode": mode,
            "code": "OG-DS-104",
        },
        {
            "kind": "drop_property",
            "type_kind": "node",
            "type_name": "City",
            "property_name": "size",
            "mode": mode,
            "code": "OG-DS-104",
        },
        {
            "kind": "drop_type",
            "type_kind": "node",
            "name": "Land",
            "mode": mode,
            "code": "OG-DS-102",
        },
        {"kind": "drop_type", "type_kind": "edge", "name": "In", "mode": mode, "code": "OG-DS-103"},
    ]
    assert plan.render()[-1] == f"drop edge In ({mode}, OG-DS-103)"
    lint = plan.steps[0].lint
    assert lint is not None
    assert lint.tier == "destructive"


def test_dropping_an_interface_property_drops_it_from_the_nodes():
    found = steps(BASE, BASE.replace("label: String", ""))
    assert [(s["kind"], s["type_kind"], s.get("code")) for s in found] == [
        ("drop_property", "interface", None),
        ("drop_property", "node", "OG-DS-104"),
    ]


def test_a_type_that_changes_kind_is_dropped_and_added():
    found = steps("node A {} node T {}", "node A {} edge T: A -> A")
    assert [(s["kind"], s["type_kind"]) for s in found] == [
        ("drop_type", "node"),
        ("add_type", "edge"),
    ]


def test_a_dropped_type_that_an_edge_still_names_is_no_plan_at_all():
    with pytest.raises(CatalogError, match="unknown target type: Land"):
        planned(BASE, BASE.replace("node Land { area: F32? }", ""))


def test_a_property_replaced_without_a_hint_is_dropped_and_added():
    found = steps("node T { a: I32? }", "node T { b: I32? }")
    assert [s["kind"] for s in found] == ["add_property", "drop_property"]


# --- refusals -------------------------------------------------------------------------------------

RULES = (
    "node T { a: String @key b: I32 c: I32? d: String? s: String v: Vector(2)? RULES } node U {}"
)


UNIT = BASE.replace("area: F32?", "area: F32? @unit(km)")
OWNER = BASE.replace("node Land", "node Land @owner(ops)")
BEYOND = "changing annotations beyond"


@pytest.mark.parametrize(
    ("old", "new", "entity", "reason"),
    [
        (
            "interface I {} node T {}",
            "interface I {} node T implements I {}",
            "node:T",
            "changing implemented interfaces",
        ),
        (
            "interface I {} interface J {} node T implements I {}",
            "interface I {} interface J {} node T implements J {}",
            "node:T",
            "changing implemented interfaces",
        ),
        ("interface I {} node T {}", "node T {}", "interface:I", "removing interface"),
        (BASE, BASE.replace("City -> Land", "Land -> City"), "edge:In", "changing edge endpoints"),
        (BASE, BASE.replace("City -> Land", "City -> City"), "edge:In", "changing edge endpoints"),
        (BASE, BASE.replace("0..4", "0.."), "edge:In", "changing cardinality"),
        (BASE, BASE.replace("0..4", "1..4"), "edge:In", "changing cardinality"),
        (BASE, OWNER, "node:Land", BEYOND),
        (OWNER, BASE, "node:Land", BEYOND),
        (BASE, UNIT, "node:Land.area", BEYOND),
        (UNIT, UNIT.replace("(km)", "(m)"), "node:Land.area", BEYOND),
        ("node T @x(1) {}", "node T @x(true) {}", "node:T", BEYOND),
    ],
)
def test_refusals_of_declarations(old, new, entity, reason):
    step = refused(old, new)
    assert set(step) == {"kind", "entity", "reason"}
    assert step["entity"] == entity
    assert reason in str(step["reason"])


@pytest.mark.parametrize(
    ("constraint", "written", "form"),
    [
        ("@unique(c)", "@unique(c)", {"Unique": ["c"]}),
        ("@unique(c, b)", "@unique(b, c)", {"Unique": ["b", "c"]}),
        (
            "@range(b, 0..9)",
            "@range(b, 0..9)",
            {"Range": {"property": "b", "minimum": 0, "maximum": 9}},
        ),
        (
            "@range(b, ..9)",
            "@range(b, ..9)",
            {"Range": {"property": "b", "minimum": None, "maximum": 9}},
        ),
        ('@check(d, "x")', '@check(d, "x")', {"Check": {"property": "d", "pattern": "x"}}),
    ],
)
def test_a_rule_is_added_after_a_look_at_the_data_and_removed_without(constraint, written, form):
    without, with_rule = RULES.replace("RULES", ""), RULES.replace("RULES", constraint)
    about = {"type_kind": "node", "type_name": "T", "constraint": form}
    assert only(without, with_rule) == {"kind": "add_constraint", **about, "code": "OG-MF-107"}
    assert only(with_rule, without) == {"kind": "drop_constraint", **about, "code": "OG-CD-101"}
    (added,), (dropped,) = planned(without, with_rule).steps, planned(with_rule, without).steps
    assert str(added) == (f"add constraint {written} to node:T (stored data is checked, OG-MF-107)")
    assert str(dropped) == f"drop constraint {written} from node:T (OG-CD-101)"
    tiers = [step.lint.tier for step in (added, dropped) if step.lint is not None]
    assert tiers == ["validated", "safe"]
    assert [read_step(step.to_json()) for step in (added, dropped)] == [added, dropped]


@pytest.mark.parametrize("columns", ["b", "b, c"])
def test_an_index_is_removed_like_it_is_added_without_a_look_at_the_data(columns):
    without, with_index = RULES.replace("RULES", ""), RULES.replace("RULES", f"@index({columns})")
    assert only(with_index, without) == {
        "kind": "drop_constraint",
        "type_kind": "node",
        "type_name": "T",
        "constraint": {"Index": columns.split(", ")},
    }


def test_another_bound_is_the_old_rule_removed_and_the_new_one_added():
    old, new = (RULES.replace("RULES", f"@range(b, {bounds})") for bounds in ("0..9", "0.."))
    assert planned(old, new).render() == [
        "drop constraint @range(b, 0..9) from node:T (OG-CD-101)",
        "add constraint @range(b, 0..) to node:T (stored data is checked, OG-MF-107)",
    ]


EDGE_KEY = "node T {} edge E: T -> T { p: I32 KEY }"


def test_the_key_of_an_edge_can_be_added_changed_and_removed():
    plain, short, long = (
        EDGE_KEY.replace("KEY", key) for key in ("", "@key(src, dst)", "@key(dst, p, src)")
    )
    assert only(plain, short) == {
        "kind": "add_constraint",
        "type_kind": "edge",
        "type_name": "E",
        "constraint": {"Key": ["dst", "src"]},
        "code": "OG-MF-107",
    }
    assert planned(short, long).render() == [
        "drop constraint @key(src, dst) from edge:E (OG-CD-101)",
        "add constraint @key(src, dst, p) to edge:E (stored data is checked, OG-MF-107)",
    ]
    assert [step["kind"] for step in steps(long, plain)] == ["drop_constraint"]


def test_a_renamed_member_keeps_the_key_of_its_edge():
    old = EDGE_KEY.replace("KEY", "@key(src, dst, p)")
    new = old.replace("p: I32", 'q: I32 @rename_from("p")').replace("dst, p", "dst, q")
    assert only(old, new)["kind"] == "rename_property"


def test_a_key_cannot_be_added_moved_or_removed():
    plain, on_a, on_b, on_both = (
        f"node T {{ a: String b: String {key} }}"
        for key in ("", "@key(a)", "@key(b)", "@key(a, b)")
    )
    for old, new in ((plain, on_a), (on_a, plain), (on_a, on_b), (on_a, on_both), (plain, on_both)):
        found = planned(old, new).unsupported
        assert found
        assert all("the ids of existing nodes would be others" in step.reason for step in found)


def test_a_dropped_property_takes_its_constraints_along():
    old = "node T { a: I32? @index b: I32? @unique(a, b) @range(a, 0..) }"
    assert planned(old, "node T { b: I32? }").render() == [
        "drop property node:T.a (soft, OG-DS-104)",
        "drop constraint @index(a) from node:T",
        "drop constraint @range(a, 0..) from node:T (OG-CD-101)",
        "drop constraint @unique(a, b) from node:T (OG-CD-101)",
    ]


def test_a_member_of_a_key_is_not_dropped():
    plan = planned("node T { a: I32 b: I32 @key(a, b) }", "node T { b: I32 }")
    assert "removing constraint @key(a, b) from 'T'" in plan.unsupported[0].reason


def test_a_new_property_may_bring_a_unique_constraint():
    plan = planned("node T {}", "node T { a: I32? @unique }")
    assert [step.kind for step in plan.steps] == ["add_property", "add_constraint"]
    assert plan.supported


def test_a_constraint_of_an_interface_reaches_its_nodes():
    old = "interface I { a: I32? } node T implements I {}"
    new = "interface I { a: I32? @unique } node T implements I {}"
    for before, after, kind in ((old, new, "add_constraint"), (new, old, "drop_constraint")):
        found = [(s["kind"], s["type_kind"]) for s in steps(before, after)]
        assert found == [(kind, "interface"), (kind, "node")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("@embed(s)", ""),
        ("", "@embed(s)"),
        ("@embed(s)", "@embed(d)"),
        ("@embed(s)", '@embed(s, model="m")'),
        ('@embed(s, model="m")', '@embed(s, model="n")'),
    ],
)
def test_an_embedding_cannot_change(old, new):
    text = "node T { s: String d: String? v: Vector(2)? EMBED }"
    step = refused(text.replace("EMBED", old), text.replace("EMBED", new))
    assert step["entity"] == "node:T.v"
    assert "changing @embed source or model" in str(step["reason"])


def test_who_declares_a_property_cannot_change():
    old = "interface I { a: I32 } node T implements I {}"
    step = refused(old, "interface I { a: I32 } node T implements I { a: I32 }")
    assert "declaration provenance" in str(step["reason"])


def test_which_interfaces_a_property_satisfies_cannot_change():
    old = "interface I { a: I32 } interface J {} node T implements I, J { a: I32 }"
    new = "interface I { a: I32 } interface J { a: I32 } node T implements I, J { a: I32 }"
    reasons = [step.reason for step in planned(old, new).unsupported]
    assert any("satisfaction links" in reason for reason in reasons)


def test_a_difference_of_an_unknown_kind_is_refused():
    ir = compiled(BASE).ir
    moved = dict(ir.ids.incarnations) | {("node", "Land"): ir.next_identity_id}
    other = replace(
        ir,
        next_identity_id=ir.next_identity_id + 1,
        ids=SchemaIds(ir.ids.types, ir.ids.properties, moved),
    )
    (step,) = plan_migration(ir, other).unsupported
    assert step.entity == "schema"
    assert "unclassified" in step.reason


def test_schemas_of_two_graphs_have_no_plan():
    other = compile_schema(BASE, domain="01BX5ZZKBKACTAV9WEVGEMMVRZ").ir
    with pytest.raises(SchemaContractError):
        plan_migration(compiled(BASE).ir, other)


def test_a_refused_plan_names_every_reason():
    plan = planned(BASE, BASE.replace("0..4", "0..").replace("U32?", "U32"))
    with pytest.raises(UnsupportedSchemaChange) as caught:
        plan.require_supported()
    assert caught.value.message.startswith("[OG-MF-106] changing property type for 'City.pop'")
    assert caught.value.message.endswith("(and 1 more)")
    assert [s["entity"] for s in caught.value.details["unsupported"]] == [
        "node:City.pop",
        "edge:In",
    ]


# --- order ----------------------------------------------------------------------------------------


def test_steps_come_in_the_order_they_are_carried_out():
    old = """
    interface I { x: I32? }
    node A @description("1") implements I { b: enum(u) c: I32? d: I32? }
    node Gone {}
    edge E: A -> A { w: I32? }
    edge Lost: A -> A
    """
    new = """
    edge New: B -> B
    edge F: B -> B @rename_from("E") { w: I32? @description("w") v: I32? }
    node Added {}
    node B @rename_from("A") @description("2") implements I {
        a: I32? @index
        bb: enum(u, v)? @rename_from("b") @index @description("bb")
        c: I64?
        @index(a, bb)
    }
    interface I { x: I32? y: I32? }
    """
    assert planned(old, new).render() == [
        "add property interface:I.y: I32?",
        "add node Added",
        "rename node A to B",
        'update metadata of node:B to @description("2")',
        "add property node:B.a: I32?",
        "rename property node:B.b to bb",
        "extend enum node:B.bb with v",
        "widen property node:B.bb from enum(u, v) to enum(u, v)?",
        "add constraint @index(bb) to node:B",
        'update metadata of node:B.bb to @description("bb")',
        "widen property node:B.c from I32? to I64?",
        "add property node:B.y: I32?",
        "drop property node:B.d (soft, OG-DS-104)",
        "add constraint @index(a) to node:B",
        "add constraint @index(a, bb) to node:B",
        "drop node Gone (soft, OG-DS-102)",
        "rename edge E to F",
        "add property edge:F.v: I32?",
        'update metadata of edge:F.w to @description("w")',
        "add edge New",
        "drop edge Lost (soft, OG-DS-103)",
    ]


def test_a_change_carries_the_compiled_schema():
    change = plan_change(compiled("node A {}").ir, 'node B @rename_from("A") {} node C {}')
    assert change.compiled.catalog.nodes["B"].type_id == 1
    assert change.compiled.ir.domain == compiled("").ir.domain
    assert [step.kind for step in change.plan.steps] == ["rename_type", "add_type"]
