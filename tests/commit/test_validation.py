"""Each constraint by example, with the text of its message."""

from __future__ import annotations

import datetime as dt
import math
from typing import Any

import pyarrow as pa
import pytest

from omnigraph.commit.plan import ChangeKind, ChangeSet, TableChange
from omnigraph.commit.validation import InputRows, validate
from omnigraph.errors import ConstraintViolation, InternalError
from omnigraph.model.merging import ConflictKind
from tests.commit.conftest import MemoryView, catalog_of, change_of, changes_of, graph_of, rows_of

CATALOG = catalog_of(
    """
node Plant {
    code: String @key
    habit: enum(tree, shrub)?
    height: F32?
    girth: F64?
    age: U64?
    rank: I64?
    tag: String? @unique
    found: Date? @unique
    site: String?
    plot: I32?
    ratio: F64?
    photo: Blob?
    @range(height, 0.0..0.1)
    @range(girth, ..2.5)
    @range(age, 1..18446744073709551614)
    @range(rank, -3..9007199254740993)
    @check(code, "^[a-z]+$")
    @unique(site, plot)
    @unique(ratio)
}
node Bed { label: String  shape: Vector(2)  scan: Blob }
edge GrowsIn: Plant -> Bed @card(1..2) { kind: enum(root, seed)?  note: String  @unique(src, kind) }
edge Shades: Plant -> Plant
"""
)
NOTHING = MemoryView()
BEDS = [{"id": "b1", "label": "x", "shape": [0, 0], "scan": b""}]


def plant(code: str, **values: object) -> dict[str, object]:
    return {"id": code, "code": code, **values}


def grows(edge_id: str, src: str, dst: str = "b1", **values: object) -> dict[str, object]:
    return {"id": edge_id, "src": src, "dst": dst, "note": "-", **values}


def shades(edge_id: str, src: str, dst: str) -> dict[str, object]:
    return {"id": edge_id, "src": src, "dst": dst}


def change(kind, table_key, *records):
    return change_of(CATALOG, kind, table_key, *records)


def messages(changes: ChangeSet, view: MemoryView = NOTHING, **options) -> list[str]:
    return [each.message for each in validate(changes, CATALOG, view, collect=True, **options)]


def written(*records, kind="upsert", table_key="node:Plant") -> ChangeSet:
    return changes_of(change(kind, table_key, *records))


# --- values ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"habit": "vine"}, "invalid enum value 'vine' for Plant.habit (expected: shrub, tree)"),
        ({"height": 0.2}, "@range violation on Plant.height: value 0.2 > max 0.1"),
        ({"height": -1e-7}, "@range violation on Plant.height: value -0.0000001 < min 0"),
        ({"height": math.nan}, "@range violation on Plant.height: value is NaN"),
        ({"girth": math.inf}, "@range violation on Plant.girth: value inf > max 2.5"),
        ({"age": 0}, "@range violation on Plant.age: value 0 < min 1"),
        (
            {"age": 2**64 - 1},
            "@range violation on Plant.age: value 18446744073709551615 > max 18446744073709551614",
        ),
        (
            {"rank": 2**53 + 2},
            "@range violation on Plant.rank: value 9007199254740994 > max 9007199254740993",
        ),
        ({"rank": -4}, "@range violation on Plant.rank: value -4 < min -3"),
    ],
)
def test_c_sch_048_value_out_of_its_rule_is_refused(values, message):
    assert messages(written(plant("oak", **values))) == [message]


@pytest.mark.parametrize(
    "values",
    [
        {"habit": "tree", "height": 0.1, "girth": -math.inf, "age": 1, "rank": 2**53 + 1},
        {"height": 0.0, "girth": 2.5, "age": 2**64 - 2, "rank": -3},
        {"habit": None, "height": None, "age": None},
    ],
)
def test_c_sch_048_limits_are_inclusive_and_null_passes(values):
    assert messages(written(plant("oak", **values))) == []


def test_c_sch_048_check_matches_anywhere_to_the_end_of_the_text():
    text = "@check violation on Plant.code: value 'o4k' does not match pattern '^[a-z]+$'"
    assert messages(written(plant("o4k"))) == [text]
    assert messages(written(plant("oak\n"))) == [text.replace("o4k", "oak\n")]


def test_c_sch_048_enum_of_an_edge_and_required_values():
    edges = change("append", "edge:GrowsIn", {**grows("e1", "oak", kind="leaf"), "note": None})
    beds = change("append", "node:Bed", {"id": "b1"})
    assert messages(changes_of(edges, beds, change("append", "node:Plant", plant("oak")))) == [
        "non-nullable property 'label' has null or invalid values",
        "non-nullable property 'scan' has null values",
        "non-nullable property 'shape' has null values",
        "invalid enum value 'leaf' for GrowsIn.kind (expected: root, seed)",
        "non-nullable property 'note' has null or invalid values",
    ]


def test_violation_carries_what_a_merge_reports():
    (found,) = validate(written(plant("O")), CATALOG, NOTHING, collect=True)
    assert found.to_dict() == {
        "entity_kind": "node",
        "type_name": "Plant",
        "table_key": "node:Plant",
        "entity_id": "O",
        "kind": "value_constraint_violation",
        "message": found.message,
    }
    with pytest.raises(ConstraintViolation) as caught:
        validate(written(plant("O")), CATALOG, NOTHING)
    assert caught.value.message == found.message
    assert caught.value.details["entity_id"] == "O"


# --- uniqueness -----------------------------------------------------------------------------------


def test_c_sch_049_unique_within_a_change_and_against_committed_rows():
    view = graph_of(CATALOG, Plant=[plant("ash", tag="t"), plant("elm", tag="u")])
    assert messages(written(plant("fir", tag="t"), plant("oak", tag="n"), plant("box", tag="n")),
                    view) == [
        "@unique violation on Plant.tag: value 't' held by 'ash' and 'fir'",
        "@unique violation on Plant.tag: value 'n' held by 'box' and 'oak'",
    ]  # fmt: skip


def test_c_wrt_018_committed_duplicate_is_found_for_every_kind_of_write():
    view = graph_of(CATALOG, Plant=[plant("ash", tag="t")])
    for kind in ("append", "upsert"):
        assert len(messages(written(plant("fir", tag="t"), kind=kind), view)) == 1
    assert messages(written(plant("fir", tag="t"), kind="replace"), view) == []


def test_c_sch_049_dates_and_floats_are_compared_as_values():
    day = dt.date(1970, 1, 3)
    view = graph_of(CATALOG, Plant=[plant("ash", found=day, ratio=-0.0)])
    assert messages(written(plant("fir", found=day, ratio=0.0)), view) == [
        "@unique violation on Plant.found: value '2' held by 'ash' and 'fir'",
        "@unique violation on Plant.ratio: value '0' held by 'ash' and 'fir'",
    ]
    assert messages(written(plant("fir", ratio=math.nan), plant("oak", ratio=math.nan))) == []


def test_c_wrt_019_composite_tuples_do_not_collide_on_separators():
    view = graph_of(CATALOG, Plant=[plant("ash", site="a, 1", plot=2)])
    assert messages(written(plant("fir", site="a", plot=12)), view) == []
    assert messages(written(plant("fir", site="a, 1", plot=2)), view) == [
        "@unique violation on Plant.(plot, site): value '(2, a, 1)' held by 'ash' and 'fir'"
    ]


def test_c_sch_050_null_member_exempts_and_a_freed_value_is_reusable():
    view = graph_of(
        CATALOG, Plant=[plant("ash", tag="t", site="s"), plant("elm", tag=None, site="s", plot=1)]
    )
    assert messages(written(plant("fir", site="s"), plant("oak", site="s")), view) == []
    assert messages(written(plant("ash", tag="new"), plant("fir", tag="t")), view) == []
    moved = changes_of(change("delete", "node:Plant", "ash"))
    assert messages(written(plant("fir", tag="t")), view.after(moved)) == []


def test_unique_value_taken_by_a_row_the_write_deletes_is_free():
    # One table has one kind of change, so the holder goes in the write before.
    view = graph_of(CATALOG, Plant=[plant("ash", tag="t")])
    assert messages(written(plant("ash", tag="t")), view) == []


def test_c_sch_049_one_batch_may_not_repeat_a_tuple_even_for_one_id():
    given = rows_of(CATALOG, "node:Plant", [plant("ash", tag="t"), plant("ash", tag="t")])
    folded = written(plant("ash", tag="t"))
    assert messages(folded, given={"node:Plant": InputRows(given)}) == [
        "@unique violation on Plant.code: value 'ash' held by 'ash' and 'ash'",
        "@unique violation on Plant.tag: value 't' held by 'ash' and 'ash'",
    ]
    beds = rows_of(CATALOG, "node:Bed", BEDS * 2)
    change_set = changes_of(change("upsert", "node:Bed", *BEDS))
    assert messages(change_set, given={"node:Bed": InputRows(beds)}) == []


def test_batch_that_needed_no_folding_is_not_numbered_twice():
    changes = written(plant("ash", tag="t"), plant("fir", tag="t"))
    rows = changes.tables["node:Plant"].rows
    assert messages(changes, given={"node:Plant": InputRows(rows)}) == [
        "@unique violation on Plant.tag: value 't' held by 'ash' and 'fir'"
    ]


def test_c_sch_049_edges_are_unique_by_source_and_property():
    view = graph_of(
        CATALOG, Plant=[plant("oak")], Bed=BEDS, GrowsIn=[grows("e1", "oak", kind="root")]
    )
    edges = written(grows("e2", "oak", kind="root"), table_key="edge:GrowsIn")
    assert messages(edges, view) == [
        "@unique violation on GrowsIn.(kind, src): value '(root, oak)' held by 'e1' and 'e2'"
    ]


EDGE_KEYS = catalog_of(
    """
node City { name: String @key }
edge Road: City -> City { @key(src, dst) @unique(dst, src) }
edge Flight: City -> City { number: I32  fare: F64  @key(src, dst, number, fare) }
"""
)


def cities(**edges: list[dict[str, Any]]) -> MemoryView:
    named = [{"id": name, "name": name} for name in ("bern", "graz", "oslo")]
    return graph_of(EDGE_KEYS, City=named, **edges)


def road(edge_id: str, src: str, dst: str) -> dict[str, Any]:
    return {"id": edge_id, "src": src, "dst": dst}


def flight(edge_id: str, number: int, fare: float = 9.5) -> dict[str, Any]:
    return {**road(edge_id, "bern", "oslo"), "number": number, "fare": fare}


def edge_messages(
    view: MemoryView, key: str, *rows: dict[str, Any], kind: ChangeKind = "append"
) -> list[str]:
    changes = ChangeSet({key: change_of(EDGE_KEYS, kind, key, *rows)})
    return [found.message for found in validate(changes, EDGE_KEYS, view, collect=True)]


@pytest.mark.parametrize("kind", ["append", "upsert"])
def test_at_most_one_edge_has_a_key_and_the_violation_names_its_values(kind):
    view = cities(Road=[road("r1", "bern", "graz")])
    assert edge_messages(
        view, "edge:Road", road("r2", "bern", "graz"), road("r3", "graz", "bern"), kind=kind
    ) == ["@key violation on Road.(src, dst): value '(bern, graz)' held by 'r1' and 'r2'"]
    assert edge_messages(
        view, "edge:Road", road("r4", "oslo", "bern"), road("r5", "oslo", "bern"), kind=kind
    ) == ["@key violation on Road.(src, dst): value '(oslo, bern)' held by 'r4' and 'r5'"]


def test_the_key_of_an_edge_follows_the_edge_and_a_replaced_type_starts_anew():
    view = cities(Road=[road("r1", "bern", "graz")])
    moved = (road("r1", "oslo", "graz"), road("r2", "bern", "graz"))
    assert edge_messages(view, "edge:Road", *moved, kind="upsert") == []
    assert edge_messages(view, "edge:Road", road("r2", "bern", "graz"), kind="replace") == []


def test_the_holders_of_an_edge_key_are_looked_up_by_both_ends(monkeypatch: pytest.MonkeyPatch):
    """A node may have millions of edges; only those to the same other end matter."""
    view = cities(Road=[road("r1", "bern", "graz"), road("r2", "bern", "oslo")])
    read: list[list[str]] = []

    def lookup(*args: Any, **options: Any) -> pa.Table:
        found = MemoryView.rows_where_in(view, *args, **options)
        if args[0] == "edge:Road":
            read.append(found["id"].to_pylist())
        return found

    monkeypatch.setattr(view, "rows_where_in", lookup)
    assert len(edge_messages(view, "edge:Road", road("r3", "bern", "oslo"))) == 1
    assert read == [["r2"]]


def test_a_property_of_the_key_tells_parallel_edges_apart():
    view = cities(Flight=[flight("f1", 7)])
    assert edge_messages(view, "edge:Flight", flight("f2", 8), flight("f3", 7, 10.0)) == []
    (found,) = edge_messages(view, "edge:Flight", flight("f4", 7))
    assert found == (
        "@key violation on Flight.(src, dst, fare, number): value '(bern, oslo, 9.5, 7)' "
        "held by 'f1' and 'f4'"
    )


@pytest.mark.parametrize("fare", [math.nan, math.inf])
def test_a_float_that_is_no_number_identifies_no_edge(fare: float):
    assert edge_messages(cities(), "edge:Flight", flight("f1", 7, fare)) == [
        f"a non-finite float cannot be part of a key: {fare}"
    ]


# --- endpoints ------------------------------------------------------------------------------------


def test_c_sch_051_edge_to_a_missing_node_is_refused():
    view = graph_of(CATALOG, Plant=[plant("oak")], Bed=BEDS)
    edges = change("append", "edge:GrowsIn", grows("e1", "elm", "b9"), grows("e2", "oak"))
    assert messages(changes_of(edges), view) == [
        "src 'elm' not found in Plant",
        "dst 'b9' not found in Bed",
    ]


def test_c_wrt_002_edge_may_come_with_its_node():
    nodes = change("upsert", "node:Plant", plant("oak"))
    beds = change("append", "node:Bed", *BEDS)
    edges = change("append", "edge:GrowsIn", grows("e1", "oak"))
    assert messages(changes_of(edges, nodes, beds)) == []


def test_c_sch_051_deleted_node_may_not_strand_an_edge_that_stays():
    view = graph_of(
        CATALOG,
        Plant=[plant("ash"), plant("oak")],
        Shades=[shades("s1", "ash", "oak"), shades("s2", "oak", "ash")],
    )
    nodes = change("delete", "node:Plant", "oak")
    found = validate(changes_of(nodes), CATALOG, view, collect=True)
    assert [(each.kind, each.entity_id, each.message) for each in found] == [
        (ConflictKind.ORPHAN_EDGE, "s1", "dst 'oak' not found in Plant"),
        (ConflictKind.ORPHAN_EDGE, "s2", "src 'oak' not found in Plant"),
    ]
    edges = change("delete", "edge:Shades", "s1", "s2")
    assert messages(changes_of(nodes, edges), view) == []
    moved = change("upsert", "edge:Shades", shades("s1", "ash", "ash"), shades("s2", "oak", "ash"))
    assert messages(changes_of(nodes, moved), view) == ["src 'oak' not found in Plant"]


def test_c_sch_051_overwritten_nodes_may_not_strand_an_edge_that_stays():
    view = graph_of(
        CATALOG, Plant=[plant("ash"), plant("oak")], Shades=[shades("s1", "ash", "oak")]
    )
    nodes = change("replace", "node:Plant", plant("ash"))
    assert messages(changes_of(nodes), view) == ["dst 'oak' not found in Plant"]
    assert (
        messages(changes_of(change("replace", "node:Plant", plant("ash"), plant("oak"))), view)
        == []
    )
    edges = change("replace", "edge:Shades", shades("s9", "ash", "ash"))
    assert messages(changes_of(nodes, edges), view) == []
    assert messages(changes_of(change("replace", "node:Plant")), view) == [
        "src 'ash' not found in Plant",
        "dst 'oak' not found in Plant",
    ]


def test_c_sch_051_edge_to_a_node_the_write_removes_is_refused():
    view = graph_of(CATALOG, Plant=[plant("ash"), plant("oak")])
    edges = change("append", "edge:Shades", shades("s1", "ash", "oak"))
    assert messages(changes_of(edges, change("delete", "node:Plant", "oak")), view) == [
        "dst 'oak' not found in Plant"
    ]


# --- cardinality ----------------------------------------------------------------------------------


def planted(*edges: dict[str, object]) -> MemoryView:
    return graph_of(CATALOG, Plant=[plant("ash"), plant("oak")], Bed=BEDS, GrowsIn=list(edges))


def test_c_sch_052_maximum_counts_committed_and_new_edges():
    view = planted(grows("e1", "oak"), grows("e2", "oak"))
    edges = changes_of(change("append", "edge:GrowsIn", grows("e3", "oak"), grows("e4", "ash")))
    found = validate(edges, CATALOG, view, collect=True)
    assert [each.message for each in found] == [
        "@card violation on edge GrowsIn: source 'oak' has 3 edges (max 2)"
    ]
    assert found[0].kind is ConflictKind.CARDINALITY_VIOLATION
    assert found[0].entity_id is None
    assert messages(changes_of(change("upsert", "edge:GrowsIn", grows("e2", "oak"))), view) == []


def test_c_sch_053_deleting_or_moving_the_last_edge_breaks_the_minimum():
    view = planted(grows("e1", "oak"))
    message = "@card violation on edge GrowsIn: source 'oak' has 0 edges (min 1)"
    assert messages(changes_of(change("delete", "edge:GrowsIn", "e1")), view) == [message]
    assert messages(changes_of(change("upsert", "edge:GrowsIn", grows("e1", "ash"))), view) == [
        message
    ]


def test_c_sch_053_node_without_edges_and_node_deleted_with_them_pass():
    view = planted(grows("e1", "oak"))
    assert messages(written(plant("elm")), view) == []
    gone = changes_of(change("delete", "edge:GrowsIn", "e1"), change("delete", "node:Plant", "oak"))
    assert messages(gone, view) == []
    replaced = changes_of(
        change("delete", "edge:GrowsIn", "e1"), change("replace", "node:Plant", plant("ash"))
    )
    assert messages(replaced, view) == []


def test_overwritten_edges_are_checked_as_if_there_had_been_none():
    view = planted(grows("e1", "oak"))
    assert messages(changes_of(change("replace", "edge:GrowsIn")), view) == []
    many = [grows(f"n{i}", "ash") for i in range(3)]
    assert messages(changes_of(change("replace", "edge:GrowsIn", *many)), view) == [
        "@card violation on edge GrowsIn: source 'ash' has 3 edges (max 2)"
    ]


# --- the whole ------------------------------------------------------------------------------------


def test_violations_come_by_rule_then_type_then_id():
    view = graph_of(CATALOG, Plant=[plant("yew", tag="t")])
    changes = changes_of(
        change("append", "edge:Shades", shades("s1", "zzz", "yew")),
        change("append", "node:Bed", {"id": "b2", "shape": [0, 0], "scan": b""}),
        change("upsert", "node:Plant", plant("Z"), plant("fir", tag="t"), plant("B", habit="x")),
    )
    texts = messages(changes, view)
    assert [text.split(":")[0].split(" for ")[0] for text in texts] == [
        "non-nullable property 'label' has null or invalid values",
        "@check violation on Plant.code",
        "invalid enum value 'x'",
        "@check violation on Plant.code",
        "@unique violation on Plant.tag",
        "src 'zzz' not found in Plant",
    ]
    with pytest.raises(ConstraintViolation, match="label"):
        validate(changes, CATALOG, view)


@pytest.mark.parametrize("kind", ["append", "upsert", "replace"])
def test_c_wrt_004_bad_endpoint_or_cardinality_is_refused_in_every_mode(kind):
    view = planted()
    missing = change(kind, "edge:GrowsIn", grows("e1", "zzz"))
    with pytest.raises(ConstraintViolation, match="src 'zzz' not found in Plant"):
        validate(changes_of(missing), CATALOG, view)
    many = change(kind, "edge:GrowsIn", *(grows(f"e{i}", "oak") for i in range(3)))
    with pytest.raises(ConstraintViolation, match=r"source 'oak' has 3 edges \(max 2\)"):
        validate(changes_of(many), CATALOG, view)


def test_committed_rows_are_looked_up_and_never_scanned():
    view = planted(grows("e1", "oak"))
    changes = changes_of(
        change("upsert", "node:Plant", plant("elm", tag="t")),
        change("upsert", "edge:GrowsIn", grows("e1", "ash", kind="root")),
        change("delete", "node:Bed", "b7"),
    )
    messages(changes, view)
    assert view.reads and all(read[0] == "lookup" for read in view.reads)


def test_nothing_to_check_reads_nothing():
    view = planted(grows("e1", "oak"))
    assert validate(ChangeSet(), CATALOG, view) == []
    assert view.reads == []


def test_compaction_leaves_a_type_as_it_was():
    view = planted(grows("e1", "oak"))
    compacted = TableChange("edge:GrowsIn", "upkeep", view.tables["edge:GrowsIn"].slice(0, 0))
    assert messages(changes_of(compacted), view) == []
    gone = change("delete", "node:Plant", "oak")
    assert messages(changes_of(compacted, gone), view) == ["src 'oak' not found in Plant"]


def test_type_the_schema_lacks_is_a_bug():
    weed = TableChange("node:Weed", "append", pa.table({"id": ["x"]}))
    with pytest.raises(InternalError, match="node:Weed"):
        validate(changes_of(weed), CATALOG, NOTHING)
