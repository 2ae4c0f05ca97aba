"""Ids: how they are handed out, and what keeps them."""

from __future__ import annotations

import itertools

import pytest

from omnigraph.errors import IdentityError, SchemaContractError
from omnigraph.schema.compile import compile_schema
from omnigraph.schema.shape import IDENTITY_ID_MAX, SchemaIR
from tests.schema.library import DOMAIN, compiled, evolved

CITIES = (
    "interface Named { label: String }",
    "node City implements Named { pop: U32? }",
    "node Land {}",
    "edge In: City -> Land",
)


def refusal(*versions: str) -> IdentityError:
    with pytest.raises(IdentityError) as caught:
        evolved(*versions)
    assert caught.value.position is not None
    return caught.value


# --- allocation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("order", list(itertools.permutations(CITIES)))
def test_c_sch_028_allocation_is_canonical_in_any_source_order(order):
    ir = compiled("\n".join(order)).ir
    assert ir.ids.types == {
        ("interface", "Named"): 1,
        ("node", "City"): 2,
        ("node", "Land"): 3,
        ("edge", "In"): 4,
    }
    assert ir.ids.properties == {
        ("interface", "Named", "label"): 5,
        ("node", "City", "label"): 6,
        ("node", "City", "pop"): 7,
    }
    assert ir.ids.incarnations == {("node", "City"): 8, ("node", "Land"): 9, ("edge", "In"): 10}
    assert (ir.next_identity_id, ir.domain) == (11, DOMAIN)


def test_c_sch_028_later_versions_allocate_in_the_same_order():
    old = "node M { a: I32 } edge E: M -> M"
    new = (
        "node M { a: I32 z: I32 b: I32 } edge E: M -> M { w: I32 } node A { q: I32 } interface I {}"
    )
    ids = evolved(old, new).ir.ids
    first = compiled(old).ir.next_identity_id
    assert ids.types["interface", "I"] == first
    assert ids.types["node", "A"] == first + 1
    # Properties by owner id: M and E are older than A.
    assert [ids.properties["node", "M", name] for name in "bz"] == [first + 2, first + 3]
    assert ids.properties["edge", "E", "w"] == first + 4
    assert ids.properties["node", "A", "q"] == first + 5
    assert ids.incarnations["node", "A"] == first + 6


def test_an_identity_domain_is_a_canonical_ulid():
    for bad in ("", DOMAIN.lower(), DOMAIN[:-1], DOMAIN + "0", "8" + DOMAIN[1:], "I" * 26):
        with pytest.raises(SchemaContractError):
            compile_schema("", domain=bad)


def test_the_counter_does_not_run_over():
    full = SchemaIR(DOMAIN, IDENTITY_ID_MAX - 1, compiled("").ir.shape, compiled("").ir.ids)
    assert compile_schema("interface I {}", accepted=full).ir.next_identity_id == IDENTITY_ID_MAX
    with pytest.raises(IdentityError, match="exhausted"):
        compile_schema("interface I {} interface J {}", accepted=full)


# --- renames --------------------------------------------------------------------------------------


def test_c_sch_029_a_rename_keeps_every_id_and_the_path():
    old = """
    interface Named { label: String }
    node Person implements Named { name: String age: I32? }
    edge Knows: Person -> Person { since: Date? }
    """
    new = """
    interface Named { title: String @rename_from("label") }
    node Human @rename_from("Person") implements Named {
        full_name: String @rename_from("name")
        age: I32?
    }
    edge Met: Human -> Human @rename_from("Knows") { day: Date? @rename_from("since") }
    """
    before, after = compiled(old), evolved(old, new)
    assert after.warnings == ()
    assert after.ir.next_identity_id == before.ir.next_identity_id
    person, human = before.catalog.nodes["Person"], after.catalog.nodes["Human"]
    assert (human.type_id, human.incarnation_id) == (person.type_id, person.incarnation_id)
    assert human.table_path == person.table_path
    knows, met = before.catalog.edges["Knows"], after.catalog.edges["Met"]
    assert (met.type_id, met.table_path) == (knows.type_id, knows.table_path)
    pairs = [
        (person.properties["name"], human.properties["full_name"]),
        (person.properties["label"], human.properties["title"]),
        (person.properties["age"], human.properties["age"]),
        (knows.properties["since"], met.properties["day"]),
        (
            before.catalog.interfaces["Named"].properties["label"],
            after.catalog.interfaces["Named"].properties["title"],
        ),
    ]
    assert [a.property_id for a, _ in pairs] == [b.property_id for _, b in pairs]


def test_c_sch_029_reordering_and_metadata_keep_every_id():
    old = "node A { x: I32 y: I32 } node B {} edge E: A -> B"
    new = 'edge E: A -> B node B @description("b") {} node A { y: I32 @description("y") x: I32 }'
    assert evolved(old, new).ir.ids == compiled(old).ir.ids


def test_c_sch_029_tables_live_at_sixteen_digit_paths():
    catalog = compiled("\n".join(CITIES)).catalog
    assert catalog.nodes["City"].table_path == "nodes/0000000000000002-0000000000000008"
    assert catalog.edges["In"].table_path == "edges/0000000000000004-000000000000000a"


# --- drops ----------------------------------------------------------------------------------------


def test_c_sch_030_a_dropped_property_comes_back_new():
    with_it, without = "node T { a: I32 b: I32? }", "node T { a: I32 }"
    before, after = compiled(with_it), evolved(with_it, without, with_it)
    old, new = before.catalog.nodes["T"], after.catalog.nodes["T"]
    assert (new.type_id, new.table_path) == (old.type_id, old.table_path)
    assert new.properties["a"].property_id == old.properties["a"].property_id
    assert new.properties["b"].property_id == before.ir.next_identity_id


def test_c_sch_030_a_dropped_type_comes_back_new_and_empty():
    with_it, without = "node T { a: I32 } node U {}", "node U {}"
    before, after = compiled(with_it), evolved(with_it, without, with_it)
    old, new = before.catalog.nodes["T"], after.catalog.nodes["T"]
    ids = {new.type_id, new.incarnation_id, new.properties["a"].property_id}
    assert min(ids) >= before.ir.next_identity_id
    assert new.table_path != old.table_path
    assert after.catalog.nodes["U"].table_path == before.catalog.nodes["U"].table_path


def test_c_sch_030_a_changed_kind_is_a_new_type():
    before = compiled("node A {} node T { a: I32 }")
    after = evolved("node A {} node T { a: I32 }", "node A {} edge T: A -> A { a: I32 }")
    assert after.catalog.edges["T"].type_id >= before.ir.next_identity_id
    assert after.catalog.edges["T"].properties["a"].property_id >= before.ir.next_identity_id


def test_c_sch_030_ids_of_dropped_declarations_are_never_handed_out_again():
    texts = ["node A { x: I32 }", "", "node B { x: I32 }", "", "node A { x: I32 }"]
    seen: set[int] = set()
    for version in range(0, len(texts), 2):
        ids = evolved(*texts[: version + 1]).ir.ids
        fresh = {*ids.types.values(), *ids.properties.values(), *ids.incarnations.values()}
        assert not fresh & seen
        seen |= fresh


# --- hints that do not fit ------------------------------------------------------------------------


def test_c_sch_031_a_hint_must_name_an_accepted_declaration():
    error = refusal("node Person {}", 'node Human @rename_from("Persn") {}')
    assert "no accepted declaration has that name" in error.message
    assert error.hint == "did you mean `Person`?"
    error = refusal("node T { name: I32 }", 'node T { full: I32 @rename_from("nmae") }')
    assert "no accepted property with that name" in error.message
    assert error.hint == "did you mean `name`?"


@pytest.mark.parametrize(
    "new",
    [
        'node A {} edge X: A -> A @rename_from("T")',
        'node A {} node X @rename_from("E") {}',
        'node A {} node X @rename_from("I") {}',
    ],
)
def test_c_sch_031_a_hint_stays_within_its_kind(new):
    error = refusal("interface I {} node A {} node T {} edge E: A -> A", new)
    assert "across declaration kinds" in error.message


def test_c_sch_031_a_hint_stays_within_its_owner():
    error = refusal(
        "node A { x: I32 } node B { y: I32 }",
        'node A { z: I32? @rename_from("y") } node B { y: I32 }',
    )
    assert "property moves across stable owners are not supported" in error.message


@pytest.mark.parametrize(
    "new",
    [
        'node X @rename_from("T") {} node Y @rename_from("T") {}',
        'node T {} node Y @rename_from("T") {}',
    ],
)
def test_c_sch_031_a_declaration_is_consumed_once(new):
    assert "consumed by more than one" in refusal("node T {}", new).message


@pytest.mark.parametrize(
    "body",
    ['x: I32 @rename_from("a") y: I32 @rename_from("a")', 'a: I32 y: I32 @rename_from("a")'],
)
def test_c_sch_031_a_property_is_consumed_once(body):
    assert "consumed more than once" in refusal("node T { a: I32 }", f"node T {{ {body} }}").message


def test_c_sch_031_a_new_type_cannot_import_a_property():
    error = refusal("node A { x: I32 }", 'node A { x: I32 } node B { y: I32 @rename_from("x") }')
    assert "cannot import property identity" in error.message


def test_the_first_hint_of_the_text_that_does_not_fit_is_reported():
    text = 'node C @rename_from("Gone") {}\nnode B @rename_from("Away") {}'
    error = refusal("node T {}", text)
    assert error.position is not None
    assert error.position.line == 1


# --- hints without effect -------------------------------------------------------------------------


def test_c_sch_032_an_exact_name_beats_a_hint():
    old = "node A { p: I32 q: I32 } node B {}"
    new = 'node A @rename_from("B") { p: I32 @rename_from("q") q: I32 @rename_from("p") } node B {}'
    after = evolved(old, new)
    assert after.ir.ids == compiled(old).ir.ids
    found = [(w.kind, w.entity, w.hint) for w in after.warnings]
    assert found == [
        ("ignored_rename_hint", "node:A", "B"),
        ("ignored_rename_hint", "node:A.p", "q"),
        ("ignored_rename_hint", "node:A.q", "p"),
    ]
    assert after.warnings[0].message == (
        '@rename_from("B") on node:A is ignored: the name already exists'
    )
    assert after.warnings[1].position.line == 1


def test_c_sch_032_a_hint_may_stay_in_the_text_after_the_rename():
    new = 'node B @rename_from("A") { y: I32 @rename_from("x") }'
    again = evolved("node A { x: I32 }", new, new)
    assert again.ir.ids == evolved("node A { x: I32 }", new).ir.ids
    assert len(again.warnings) == 2


def test_c_sch_032_hints_of_a_new_graph_are_inert():
    hinted = 'node B @rename_from("A") { y: I32 @rename_from("x") } node A { x: I32 }'
    plain = "node B { y: I32 } node A { x: I32 }"
    first = compiled(hinted)
    assert first.ir == compiled(plain).ir
    assert [w.kind for w in first.warnings] == ["inert_rename_hint"] * 2
    assert "nothing to rename" in first.warnings[0].message


def test_c_sch_032_a_hint_on_an_interface_property_is_warned_about_once():
    text = 'interface I { b: I32 @rename_from("a") } node S implements I {} node T implements I {}'
    assert [w.entity for w in compiled(text).warnings] == ["interface:I.b"]
    assert [w.entity for w in evolved(text, text).warnings] == ["interface:I.b"]


def test_a_hint_on_an_interface_property_does_not_concern_new_nodes():
    old = "interface I { a: I32 } node S implements I {}"
    new = 'interface I { b: I32 @rename_from("a") } node S implements I {} node T implements I {}'
    before, after = compiled(old), evolved(old, new)
    assert after.warnings == ()
    kept = before.catalog.nodes["S"].properties["a"].property_id
    assert after.catalog.nodes["S"].properties["b"].property_id == kept
    assert after.catalog.nodes["T"].properties["b"].property_id >= before.ir.next_identity_id


def test_a_node_that_newly_gains_an_interface_gets_a_new_property():
    old = "interface I { a: I32? } node S implements I {} node T {}"
    new = 'interface I { b: I32? @rename_from("a") } node S implements I {} node T implements I {}'
    after = evolved(old, new)
    assert after.catalog.nodes["T"].properties["b"].property_id == compiled(old).ir.next_identity_id


# --- keys -----------------------------------------------------------------------------------------


def test_c_sch_035_key_members_are_ordered_by_id_whatever_the_source_says():
    for members in ("region, code", "code, region"):
        text = f"node T {{ region: String code: I32 @key({members}) }}"
        assert compiled(text).catalog.nodes["T"].key == ("code", "region")


def test_c_sch_035_renaming_a_member_does_not_reorder_the_key():
    old = "node T { code: I32 region: String @key(code, region) }"
    new = """
    node T { zip: I32 @rename_from("code") area: String @rename_from("region") @key(area, zip) }
    """
    assert evolved(old, new).catalog.nodes["T"].key == ("zip", "area")
