"""What each statement of a mutation stages, and what it reads to do so."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from omnigraph.commit.external_blobs import ExternalBlobs
from omnigraph.commit.plan import Budget, WriteLimits
from omnigraph.commit.validation import validate
from omnigraph.errors import (
    ConstraintViolation,
    InputError,
    LimitExceeded,
    QueryTypeError,
    ValueConversionError,
)
from omnigraph.query.compile import compile_query
from omnigraph.schema.catalog import table_schema
from tests.commit.conftest import NOW, MemoryView, catalog_of, graph_of
from tests.commit.conftest import mutate as run

CATALOG = catalog_of(
    """
node Author {
    handle: String @key
    name: String
    mail: String? @unique
    born: Date?
    fame: F32?
    level: I32 @default(3)
    since: Date? @default("2020-02-29")
    seen: DateTime?
    tags: [String]?
    photo: Blob?
    vec: Vector(2)?
}
node Shop { region: String  code: I32  rate: F64?  open: Bool?  @key(region, code) }
node Note { text: String  stars: U64?  scan: Blob?  vec: Vector(2) @embed("text") }
edge Wrote: Author -> Note @card(0..2) { role: String? }
edge Knows: Author -> Author { trust: F64?  day: Date? }
edge Rated: Author -> Author { rank: I32  note: String?  @key(src, dst, rank) }
"""
)


def mutate(view, statements, /, **options):
    return run(CATALOG, view, statements, **options)


def author(handle: str, **values: object) -> dict[str, object]:
    return {"id": handle, "handle": handle, "name": handle.title(), "level": 3, **values}


def knows(edge_id: str, src: str, dst: str, **values: object) -> dict[str, object]:
    return {"id": edge_id, "src": src, "dst": dst, **values}


def people(*records: dict[str, object], **others) -> MemoryView:
    return graph_of(CATALOG, Author=list(records), **others)


# --- inserts --------------------------------------------------------------------------------------


def test_c_qry_063_insert_on_an_existing_key_replaces_the_entity_and_counts_one():
    view = people(author("ada", mail="a@x", fame=1.5, tags=["t"], photo=b"jpg"))
    outcome = mutate(view, 'insert Author { handle: "ada", name: "Ada L." }')
    assert (outcome.affected_nodes, outcome.affected_edges) == (1, 0)
    change = outcome.change_set.tables["node:Author"]
    assert change.kind == "upsert"
    assert change.rows.schema.equals(table_schema(CATALOG.nodes["Author"]), check_metadata=True)
    assert view.after(outcome.change_set).entities("node:Author")["ada"] == {
        "handle": "ada",
        "name": "Ada L.",
        "mail": None,
        "born": None,
        "fame": None,
        "level": 3,
        "since": dt.date(2020, 2, 29),
        "seen": None,
        "tags": None,
        "photo": None,
        "vec": None,
    }
    assert view.reads == []


def test_c_sch_036_same_key_twice_in_one_query_is_one_row_with_the_last_value():
    outcome = mutate(
        MemoryView(),
        'insert Author { handle: "ada", name: "A" } insert Author { handle: "ada", name: "B" }',
    )
    assert outcome.affected_nodes == 2
    assert outcome.change_set.tables["node:Author"].rows["name"].to_pylist() == ["B"]


def test_composite_key_gives_a_json_id_in_the_order_of_the_catalog():
    outcome = mutate(MemoryView(), 'insert Shop { region: "north", code: 7 }')
    assert outcome.change_set.tables["node:Shop"].ids.to_pylist() == ['["7","north"]']


def test_unkeyed_insert_is_strict_and_mints_its_id():
    outcome = mutate(MemoryView(), 'insert Note { text: "a", vec: [1, 0.5], stars: 2 }')
    change = outcome.change_set.tables["node:Note"]
    assert (change.kind, change.ids.to_pylist()) == ("append", ["new-1"])
    assert change.rows["vec"].to_pylist() == [[1.0, 0.5]]


def test_explicit_null_beats_a_default():
    outcome = mutate(
        MemoryView(), 'insert Author { handle: "a", name: "A", since: null, seen: now() }'
    )
    row = outcome.change_set.tables["node:Author"].rows.to_pylist()[0]
    assert row["since"] is None
    assert row["seen"] == NOW


def test_c_qry_064_vector_still_missing_at_run_time_is_an_error():
    with pytest.raises(QueryTypeError, match="T12"):
        mutate(MemoryView(), "insert Note { stars: 1 }")
    with pytest.raises(QueryTypeError, match=r"T12.*`to`"):
        mutate(MemoryView(), 'insert Knows { from: "ada" }')
    with pytest.raises(ValueConversionError, match="'vec' has null values"):
        mutate(MemoryView(), 'insert Note { text: "embedded later" }')


@pytest.mark.parametrize(
    ("declared", "value", "message"),
    [
        ("$v: I64", 2**31, "property 'level' value 2147483648 exceeds Int32 range"),
        ("$v: I64?", None, "non-nullable property 'level' has null or invalid values"),
    ],
)
def test_parameter_that_does_not_fit_its_property_is_a_run_time_error(declared, value, message):
    statement = 'insert Author { handle: "a", name: "A", level: $v }'
    with pytest.raises(ValueConversionError, match=message):
        mutate(MemoryView(), statement, declared=declared, v=value)
    with pytest.raises(ValueConversionError, match=message):
        mutate(people(), "update Author set { level: $v } where handle = \"a\"",
               declared=declared, v=value)  # fmt: skip


def test_integers_become_floats_only_exactly():
    insert = 'insert Author { handle: "a", name: "A", fame: $v }'
    outcome = mutate(MemoryView(), insert, declared="$v: I64", v=7)
    assert outcome.change_set.tables["node:Author"].rows["fame"].to_pylist() == [7.0]
    with pytest.raises(ValueConversionError, match="not exactly representable as Float32"):
        mutate(MemoryView(), insert, declared="$v: I64", v=2**24 + 1)
    with pytest.raises(ValueConversionError, match="exceeds Float32 range"):
        mutate(MemoryView(), insert, declared="$v: F64", v=1e39)


# --- edges ----------------------------------------------------------------------------------------


def test_c_qry_065_edge_insert_mints_an_id_and_a_dangling_one_is_refused():
    view = people(author("ada"), author("bob"))
    outcome = mutate(view, 'insert Knows { from: "ada", to: "bob", trust: 1 }')
    assert (outcome.affected_nodes, outcome.affected_edges) == (0, 1)
    change = outcome.change_set.tables["edge:Knows"]
    assert change.kind == "append"
    assert change.rows.to_pylist() == [
        {"id": "new-1", "src": "ada", "dst": "bob", "day": None, "trust": 1.0}
    ]
    assert validate(outcome.change_set, CATALOG, view) == []
    dangling = mutate(view, 'insert Knows { from: "ada", to: "eve" }')
    with pytest.raises(ConstraintViolation, match="dst 'eve' not found in Author"):
        validate(dangling.change_set, CATALOG, view)


def test_null_endpoint_is_a_run_time_error():
    with pytest.raises(ValueConversionError, match="'from' has null or invalid values"):
        mutate(MemoryView(), 'insert Knows { from: $a, to: "b" }', declared="$a: String?")


def test_c_qry_068_c_wrt_002_edge_before_its_node_in_one_query_is_valid():
    view = people(author("ada"))
    outcome = mutate(
        view,
        'insert Knows { from: "ada", to: "bob" } insert Author { handle: "bob", name: "Bob" }',
    )
    assert sorted(outcome.change_set.tables) == ["edge:Knows", "node:Author"]
    assert validate(outcome.change_set, CATALOG, view) == []
    (edges,) = [t for k, t in outcome.change_set.tables.items() if k == "edge:Knows"]
    with pytest.raises(ConstraintViolation):
        validate(type(outcome.change_set)({"edge:Knows": edges}), CATALOG, view)


def test_c_wrt_007_two_edge_inserts_of_one_type_are_one_change():
    outcome = mutate(
        people(author("ada")),
        'insert Knows { from: "ada", to: "ada" } insert Knows { from: "ada", to: "ada" }',
    )
    assert outcome.affected_edges == 2
    assert outcome.change_set.tables["edge:Knows"].ids.to_pylist() == ["new-1", "new-2"]


def test_c_sch_052_third_edge_over_the_maximum_is_refused():
    note = {"id": "n", "text": "t", "vec": [0, 0]}
    view = people(author("ada"), Note=[note], Wrote=[knows("w1", "ada", "n")])
    outcome = mutate(
        view, 'insert Wrote { from: "ada", to: "n" } insert Wrote { from: "ada", to: "n" }'
    )
    with pytest.raises(ConstraintViolation, match="source 'ada' has 3 edges \\(max 2\\)"):
        validate(outcome.change_set, CATALOG, view)


# --- updates --------------------------------------------------------------------------------------


def test_c_wrt_005_c_qry_066_insert_then_update_is_one_row_with_the_updated_value():
    outcome = mutate(
        MemoryView(),
        'insert Author { handle: "ada", name: "A" }'
        ' update Author set { name: "B" } where level = 3',
    )
    assert outcome.affected_nodes == 2
    change = outcome.change_set.tables["node:Author"]
    assert change.rows["name"].to_pylist() == ["B"]


def test_insert_then_update_of_an_unkeyed_node_is_still_an_append():
    outcome = mutate(
        MemoryView(),
        'insert Note { text: "a", vec: [0, 0] } update Note set { stars: 5 } where text = "a"',
    )
    change = outcome.change_set.tables["node:Note"]
    assert (change.kind, change.rows["stars"].to_pylist()) == ("append", [5])
    view = graph_of(CATALOG, Note=[{"id": "n", "text": "a", "vec": [0, 0]}])
    again = mutate(
        view,
        'insert Note { text: "a", vec: [0, 0] } update Note set { stars: 5 } where text = "a"',
    )
    change = again.change_set.tables["node:Note"]
    assert (change.kind, sorted(change.ids.to_pylist())) == ("upsert", ["n", "new-1"])
    assert again.affected_nodes == 3


def test_c_wrt_006_c_qry_067_second_update_matches_what_the_first_one_wrote():
    view = people(author("ada", level=1), author("bob", level=1), author("eve", level=2))
    outcome = mutate(
        view,
        "update Author set { level: 2 } where level = 1"
        " update Author set { level: 9 } where level = 2"
        ' update Author set { name: "x" } where level = 1',
    )
    assert outcome.affected_nodes == 2 + 3 + 0
    rows = outcome.change_set.tables["node:Author"].rows
    assert rows.num_rows == 3
    assert set(rows["level"].to_pylist()) == {9}


def test_pending_row_hides_its_committed_one_from_a_predicate():
    view = people(author("ada", level=1))
    outcome = mutate(
        view,
        'insert Author { handle: "ada", name: "A", level: 7 }'
        ' update Author set { name: "found" } where level = 1',
    )
    assert outcome.affected_nodes == 1
    assert outcome.change_set.tables["node:Author"].rows["name"].to_pylist() == ["A"]


def test_update_keeps_what_it_does_not_name():
    before = author(
        "ada", mail="a@x", fame=0.1, tags=["t", "u"], vec=[1, 2], born=dt.date(1815, 12, 10)
    )
    view = people(before, author("bob"))
    outcome = mutate(view, 'update Author set { name: "Ada L.", level: 4 } where mail = "a@x"')
    after = view.after(outcome.change_set).entities("node:Author")
    assert after["ada"] == view.entities("node:Author")["ada"] | {"name": "Ada L.", "level": 4}
    assert after["bob"] == view.entities("node:Author")["bob"]


def test_c_qry_069_c_sch_036_keys_and_ends_cannot_be_updated():
    with pytest.raises(QueryTypeError, match="cannot update @key property 'handle'"):
        mutate(people(), 'update Author set { handle: "x" } where name = "A"')
    with pytest.raises(QueryTypeError, match="T16"):
        mutate(people(), 'update Knows set { to: "x" } where trust = 2.0')
    with pytest.raises(QueryTypeError, match="cannot update @key property 'rank'"):
        mutate(people(), "update Rated set { rank: 2 } where rank = 1")


def test_update_of_edges_by_their_ends_keeps_the_rest_and_counts_edges():
    view = people(
        author("ada"),
        author("bob"),
        author("eve"),
        Knows=[
            knows("k1", "ada", "bob", trust=0.5, day=dt.date(2020, 2, 29)),
            knows("k2", "ada", "eve", trust=0.5),
            knows("k3", "bob", "ada"),
        ],
    )
    outcome = mutate(
        view,
        'update Knows set { trust: 0.9 } where from = "ada" and to = "bob" '
        'update Knows set { day: date("2021-01-01") } where from = "bob"',
    )
    assert (outcome.affected_nodes, outcome.affected_edges) == (0, 2)
    change = outcome.change_set.tables["edge:Knows"]
    assert (change.kind, sorted(change.ids.to_pylist())) == ("upsert", ["k1", "k3"])
    before, after = view.entities("edge:Knows"), view.after(outcome.change_set).entities
    assert after("edge:Knows") == before | {
        "k1": before["k1"] | {"trust": 0.9},
        "k3": before["k3"] | {"day": dt.date(2021, 1, 1)},
    }
    assert validate(outcome.change_set, CATALOG, view) == []


def test_update_of_an_edge_inserted_by_the_same_query_sees_it():
    outcome = mutate(
        people(author("ada"), author("bob")),
        'insert Knows { from: "ada", to: "bob", trust: 0.1 } '
        'update Knows set { trust: 0.2 } where to = "bob"',
    )
    assert (outcome.affected_edges, outcome.affected_nodes) == (2, 0)
    change = outcome.change_set.tables["edge:Knows"]
    assert (change.kind, change.rows["trust"].to_pylist()) == ("append", [0.2])


def test_insert_of_an_edge_whose_key_is_taken_is_refused_with_its_values():
    rated = {"id": "r1", "src": "ada", "dst": "bob", "rank": 1}
    view = people(author("ada"), author("bob"), Rated=[rated])
    taken = mutate(view, 'insert Rated { from: "ada", to: "bob", rank: 1, note: "n" }')
    with pytest.raises(ConstraintViolation) as caught:
        validate(taken.change_set, CATALOG, view)
    assert caught.value.message == (
        "@key violation on Rated.(src, dst, rank): value '(ada, bob, 1)' held by 'r1' and 'new-1'"
    )
    assert caught.value.hint is not None and "update" in caught.value.hint
    free = mutate(view, 'insert Rated { from: "ada", to: "bob", rank: 2 }')
    assert validate(free.change_set, CATALOG, view) == []


def test_c_sch_050_value_freed_in_the_query_is_reusable():
    view = people(author("ada", mail="m"), author("bob"))
    outcome = mutate(
        view,
        'update Author set { mail: null } where handle = "ada"'
        ' update Author set { mail: "m" } where handle = "bob"',
    )
    assert validate(outcome.change_set, CATALOG, view) == []


def test_c_wrt_018_update_to_a_taken_unique_value_is_refused():
    view = people(author("ada", mail="m"), author("bob"), author("eve"))
    outcome = mutate(view, 'update Author set { mail: "m" } where handle = "bob"')
    with pytest.raises(ConstraintViolation, match="value 'm' held by 'ada' and 'bob'"):
        validate(outcome.change_set, CATALOG, view)
    both = mutate(view, 'update Author set { mail: "n" } where handle in ["bob", "eve"]')
    with pytest.raises(ConstraintViolation, match="value 'n' held by 'bob' and 'eve'"):
        validate(both.change_set, CATALOG, view)


def test_c_wrt_012_c_qry_073_nothing_matched_is_nothing_to_write():
    view = people(author("ada"))
    for statement in (
        'update Author set { name: "x" } where level = 99',
        "delete Author where level = 99",
        "delete Knows where trust > 0.0",
    ):
        outcome = mutate(view, statement)
        assert outcome.change_set.is_empty
        assert (outcome.affected_nodes, outcome.affected_edges) == (0, 0)


# --- blobs ----------------------------------------------------------------------------------------


def test_blob_survives_an_update_that_does_not_name_it_and_only_matched_ones_are_read():
    view = people(
        author("ada", photo=b"\x00jpg"), author("bob", photo=b""), author("eve", photo=None)
    )
    outcome = mutate(view, 'update Author set { name: "x" } where handle in ["ada", "eve"]')
    after = view.after(outcome.change_set).entities("node:Author")
    assert after["ada"]["photo"] == {"data": b"\x00jpg", "uri": None}
    assert after["eve"]["photo"] is None
    assert after["bob"]["photo"] == {"data": b"", "uri": None}
    assert view.reads[-1] == ("blobs", "node:Author", "photo")
    assert outcome.change_set.tables["node:Author"].rows.num_rows == 2


def test_blob_is_replaced_only_where_it_is_named():
    view = people(author("ada", photo=b"old"), author("bob", photo=b"kept"))
    outcome = mutate(
        view,
        'update Author set { name: "x" } where level = 3'
        ' update Author set { photo: "base64:bmV3" } where handle = "ada"'
        ' insert Author { handle: "cat", name: "C", photo: "base64:Yw==" }'
        " update Author set { level: 4 } where level = 3",
    )
    photos = {
        row["id"]: row["photo"]["data"]
        for row in outcome.change_set.tables["node:Author"].rows.to_pylist()
    }
    assert photos == {"ada": b"new", "bob": b"kept", "cat": b"c"}
    cleared = mutate(view, 'update Author set { photo: null } where handle = "ada"')
    assert cleared.change_set.tables["node:Author"].rows["photo"].to_pylist() == [None]
    assert view.reads.count(("blobs", "node:Author", "photo")) == 1


def test_replaced_entity_does_not_keep_its_blob():
    view = people(author("ada", photo=b"old"))
    outcome = mutate(
        view,
        'insert Author { handle: "ada", name: "A" } update Author set { level: 5 } where level = 3',
    )
    assert outcome.change_set.tables["node:Author"].rows["photo"].to_pylist() == [None]
    assert not any(read[0].startswith("blob") for read in view.reads)


def test_external_blob_is_copied_if_policy_allows_its_uri():
    insert = 'insert Author { handle: "a", name: "A", photo: "s3://pics/a" }'
    with pytest.raises(
        ValueConversionError, match="external blob URI 's3://pics/a' is not allowed"
    ):
        mutate(MemoryView(), insert)
    external = ExternalBlobs(
        allow=lambda uri: uri.startswith("s3://pics/"), read=lambda uri: uri.encode()
    )
    outcome = mutate(MemoryView(), insert, external=external)
    photos = outcome.change_set.tables["node:Author"].rows["photo"].to_pylist()
    assert photos == [{"data": b"s3://pics/a", "uri": None}]


# --- deletes --------------------------------------------------------------------------------------


def test_c_qry_070_node_delete_cascades_to_incident_edges_of_every_type():
    note = {"id": "n", "text": "t", "vec": [0, 0]}
    view = people(
        author("ada"),
        author("bob"),
        author("eve"),
        Note=[note],
        Wrote=[knows("w1", "ada", "n"), knows("w2", "bob", "n")],
        Knows=[
            knows("k1", "ada", "ada"),
            knows("k2", "bob", "ada"),
            knows("k3", "ada", "bob"),
            knows("k4", "bob", "eve"),
        ],
    )
    outcome = mutate(view, 'delete Author where handle = "ada"')
    assert (outcome.affected_nodes, outcome.affected_edges) == (1, 4)
    deleted = {key: sorted(c.ids.to_pylist()) for key, c in outcome.change_set.tables.items()}
    assert deleted == {
        "edge:Knows": ["k1", "k2", "k3"],
        "edge:Wrote": ["w1"],
        "node:Author": ["ada"],
    }
    assert all(c.rows.schema.names == ["id"] for c in outcome.change_set.tables.values())
    assert validate(outcome.change_set, CATALOG, view) == []
    # Text equal to an id in another type is not that node.
    assert mutate(view, 'delete Note where text = "t"').affected_edges == 2


def test_c_qry_071_c_wrt_009_overlapping_deletes_count_once():
    view = people(
        author("ada", level=1), author("bob", level=2), author("eve", level=3),
        Knows=[knows("k1", "ada", "bob"), knows("k2", "bob", "eve"), knows("k3", "eve", "eve")],
    )  # fmt: skip
    outcome = mutate(
        view,
        "delete Author where level <= 2 delete Author where level >= 2 and level < 3"
        ' delete Knows where from = "ada" delete Knows where to = "eve"',
    )
    assert (outcome.affected_nodes, outcome.affected_edges) == (2, 3)


def test_c_wrt_010_null_in_one_predicate_does_not_save_a_row_from_another():
    view = people(author("ada", mail=None, level=1), author("bob", mail="m", level=2))
    outcome = mutate(view, 'delete Author where mail != "m" delete Author where level = 1')
    assert outcome.change_set.tables["node:Author"].ids.to_pylist() == ["ada"]


def test_null_never_matches_a_comparison():
    view = people(author("ada", mail=None), author("bob", mail="m"))
    assert mutate(view, 'delete Author where mail != "x"').affected_nodes == 1
    nobody = mutate(view, "delete Author where mail = $m", declared="$m: String?")
    assert nobody.affected_nodes == 0
    assert mutate(view, "delete Author where mail is null").affected_nodes == 1


def test_c_sch_053_deleting_edges_below_a_minimum_is_refused():
    catalog = catalog_of("node N { k: String @key }  edge E: N -> N @card(1..)")
    view = graph_of(
        catalog, N=[{"id": "a", "k": "a"}], E=[knows("e1", "a", "a"), knows("e2", "a", "a")]
    )
    outcome = run(catalog, view, 'delete E where from = "a"')
    assert outcome.affected_edges == 2
    with pytest.raises(ConstraintViolation, match=r"source 'a' has 0 edges \(min 1\)"):
        validate(outcome.change_set, catalog, view)
    with_node = run(catalog, view, 'delete N where k = "a"')
    assert validate(with_node.change_set, catalog, view) == []


def test_c_wrt_008_c_qry_072_mixed_query_is_refused_before_anything_is_read():
    text = 'query q() { insert Author { handle: "a", name: "A" } delete Author where level = 1 }'
    with pytest.raises(QueryTypeError, match="mutation 'q' on the same query mixes"):
        compile_query(text, CATALOG)


def test_c_wrt_003_c_wrt_011_failing_later_statement_yields_no_change_set():
    view = people(author("ada"))
    with pytest.raises(ValueConversionError):
        mutate(
            view,
            'insert Author { handle: "b", name: "B" }'
            " update Author set { level: $v } where level = 3",
            declared="$v: I64",
            v=2**40,
        )
    with pytest.raises(LimitExceeded):
        mutate(
            people(author("ada"), author("bob"), author("eve", level=4)),
            "delete Author where level = 4 delete Author where level = 3",
            limits=WriteLimits(rows_max=1),
        )
    assert view.reads == [] and list(view.entities("node:Author")) == ["ada"]


# --- what is read ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "reads"),
    [
        ('update Author set { level: 1 } where handle = "ada"', [("lookup", "node:Author", "id")]),
        (
            'update Author set { level: 1 } where level = 3 and handle in ["ada", "eve"]',
            [("lookup", "node:Author", "id")],
        ),
        ('delete Author where mail = "m"', [("lookup", "node:Author", "mail")]),
        ('delete Knows where from = "ada"', [("lookup", "edge:Knows", "src")]),
        ('delete Knows where to in ["ada"] and trust > 0.5', [("lookup", "edge:Knows", "dst")]),
        (
            'delete Shop where code = 7.0 and region = "north"',
            [("lookup", "node:Shop", "id")],
        ),
        ('delete Shop where code = 7.5 and region = "north"', []),
    ],
)
def test_point_predicate_is_looked_up(statement, reads):
    view = people(
        author("ada", mail="m"),
        Knows=[knows("k1", "ada", "ada", trust=1.0)],
        Shop=[{"id": '["7","north"]', "region": "north", "code": 7}],
    )
    outcome = mutate(view, statement)
    seen = [read for read in view.reads if not read[0].startswith("blob")]
    assert seen[: len(reads)] == reads
    assert all(read[0] == "lookup" for read in seen)
    assert outcome.change_set.is_empty == (not reads)


def test_half_a_key_and_alternatives_are_streamed():
    view = people(author("ada"), Shop=[{"id": '["7","north"]', "region": "north", "code": 7}])
    assert mutate(view, 'delete Shop where region = "north"').affected_nodes == 1
    assert mutate(view, 'delete Author where handle = "ada" or level = 9').affected_nodes == 1
    assert [read[0] for read in view.reads if "node:" in read[1]] == ["batch", "batch"]


def test_only_matching_rows_are_read_in_full():
    view = people(*(author(f"a{i}", level=i) for i in range(5)))
    mutate(view, 'update Author set { name: "x" } where level = 3')
    assert [read[:2] for read in view.reads] == [
        *[("batch", "node:Author")] * 3,
        ("lookup", "node:Author"),
        ("blob sizes", "node:Author"),
        ("blobs", "node:Author"),
    ]
    assert view.reads[0] == ("batch", "node:Author", "id", "level")


def test_many_matches_are_streamed_a_second_time(monkeypatch):
    monkeypatch.setattr("omnigraph.commit.mutation_rows.LOOKUP_IDS_MAX", 2)
    view = people(*(author(f"a{i}", level=i) for i in range(5)))
    outcome = mutate(view, 'update Author set { name: "x" } where level > 0')
    assert outcome.affected_nodes == 4
    assert [read[0] for read in view.reads[:6]] == ["batch"] * 6
    after = view.after(outcome.change_set).entities("node:Author")
    assert [after[f"a{i}"]["name"] for i in range(5)] == ["A0", "x", "x", "x", "x"]


def test_row_that_is_pending_is_not_looked_up():
    view = people(author("ada"))
    mutate(
        view,
        'insert Author { handle: "ada", name: "A" }'
        ' update Author set { level: 4 } where handle = "ada"',
    )
    assert view.reads == []


# --- limits ---------------------------------------------------------------------------------------


def test_c_wrt_037_at_the_row_limit_a_mutation_passes_and_beyond_it_fails():
    view = people(*(author(f"a{i}") for i in range(4)))
    limits = WriteLimits(rows_max=4)
    statement = 'update Author set { name: "x" } where level = 3'
    assert mutate(view, statement, limits=limits).affected_nodes == 4
    with pytest.raises(LimitExceeded) as caught:
        mutate(
            view, 'insert Author { handle: "new", name: "N", level: 1 }' + statement, limits=limits
        )
    assert caught.value.details == {"resource": "rows of node:Author", "limit": 4, "actual": 5}
    assert "OMNIGRAPH_WRITE_ROWS_MAX" in str(caught.value.hint)
    with pytest.raises(LimitExceeded):
        mutate(view, "delete Author where level = 3", limits=WriteLimits(rows_max=3))


def test_c_wrt_037_rewriting_a_row_does_not_count_it_twice():
    view = people(*(author(f"a{i}") for i in range(3)))
    statement = 'update Author set { name: "x" } where level = 3 '
    assert mutate(view, statement * 3, limits=WriteLimits(rows_max=3)).affected_nodes == 9


def test_c_wrt_037_default_admits_a_hundred_thousand_rows():
    assert WriteLimits().rows_max >= 100_000
    rows = 100_000
    number = pa.array(range(rows))
    table = table_schema(CATALOG.nodes["Author"]).empty_table()
    columns = {name: pa.nulls(rows, table[name].type) for name in table.schema.names}
    texts = pc.cast(number, pa.string())
    columns |= {"id": texts, "handle": texts, "name": texts}
    columns["level"] = pa.repeat(pa.scalar(3, pa.int32()), rows)
    view = BigBatches({"node:Author": pa.Table.from_pydict(columns, schema=table.schema)})
    outcome = mutate(view, 'update Author set { name: "x" } where level = 3')
    assert outcome.affected_nodes == rows
    assert validate(outcome.change_set, CATALOG, view) == []


class BigBatches(MemoryView):
    def batches(self, table_key, columns, rows_max=None):
        yield from self.tables[table_key].select(list(columns)).to_batches(10_000)


def test_c_wrt_038_over_limit_update_stops_while_streaming():
    view = people(*(author(f"a{i}", photo=b"p") for i in range(20)))
    with pytest.raises(LimitExceeded):
        mutate(view, 'update Author set { name: "x" } where level = 3',
               limits=WriteLimits(rows_max=3))  # fmt: skip
    assert view.reads == [("batch", "node:Author", "id", "level")] * 2


def test_c_wrt_038_stored_blobs_are_charged_before_they_are_read():
    view = people(author("ada", photo=b"p" * 10_000))
    with pytest.raises(LimitExceeded) as caught:
        mutate(view, 'update Author set { name: "x" } where handle = "ada"',
               limits=WriteLimits(bytes_max=10_000))  # fmt: skip
    assert caught.value.details["resource"] == "bytes of node:Author"
    assert view.reads[-1] == ("blob sizes", "node:Author", "photo")


def test_assigned_value_is_charged_once_per_row_before_it_is_repeated():
    view = people(*(author(f"a{i}") for i in range(50)))
    with pytest.raises(LimitExceeded, match="bytes of node:Author"):
        mutate(
            view,
            "update Author set { name: $long } where level = 3",
            declared="$long: String",
            long="x" * 1000,
            limits=WriteLimits(bytes_max=40_000),
        )


def test_inserted_rows_are_charged_too():
    with pytest.raises(LimitExceeded, match="rows of edge:Knows"):
        mutate(
            MemoryView(),
            'insert Knows { from: "a", to: "b" } ' * 3,
            limits=WriteLimits(rows_max=2),
        )


def test_limits_come_from_the_environment():
    given = {"OMNIGRAPH_WRITE_ROWS_MAX": "5", "OMNIGRAPH_WRITE_BYTES_MAX": ""}
    assert WriteLimits.from_environment(given) == WriteLimits(rows_max=5)
    for bad in ("0", "-1", "many", "1e3"):
        with pytest.raises(InputError, match="OMNIGRAPH_WRITE_BYTES_MAX"):
            WriteLimits.from_environment({"OMNIGRAPH_WRITE_BYTES_MAX": bad})


def test_budget_is_inclusive():
    budget = Budget(WriteLimits(rows_max=2, bytes_max=10), "node:N")
    budget.charge(rows=2, bytes=10)
    with pytest.raises(LimitExceeded, match="bytes of node:N is 11, over the limit of 10"):
        budget.charge(bytes=1)
