"""The three modes of a load: what becomes a change, and what a receipt counts."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.commit.plan import WriteLimits
from omnigraph.commit.validation import validate
from omnigraph.errors import ConstraintViolation, InputError, KeyConflict, LimitExceeded
from omnigraph.loading.in_process import LoadPlan, plan_load
from omnigraph.loading.records.framing import RecordSource
from omnigraph.model.receipts import LoadedType, LoadMode
from omnigraph.schema.catalog import table_schema
from tests.commit.loading import Rows, catalog, checked, edge, lines, load, node, read, rows
from tests.support.budgets import MANY

MODES: list[LoadMode] = ["append", "merge", "overwrite"]


def committed(*records: Any) -> Rows:
    """A graph that holds these records."""
    return Rows().after(load(lines(*records)).changes)


def counts(plan: LoadPlan) -> dict[str, tuple[int, int, int, int]]:
    """Records read, inserted, updated, unchanged."""
    return {
        each.name: (each.records_read, each.inserted, each.updated, each.unchanged)
        for each in (*plan.nodes, *plan.edges)
    }


# --- append ---------------------------------------------------------------------------------------


def test_append_inserts_every_record():
    raw = lines(node("Person", slug="ada"), edge("Knows", "ada", "ada"), node("Note", text="x"))
    plan = load(raw)
    assert {key: change.kind for key, change in plan.changes.tables.items()} == {
        "edge:Knows": "append",
        "node:Note": "append",
        "node:Person": "append",
    }
    assert plan.nodes == (LoadedType("Note", 1, 1, 0, 0), LoadedType("Person", 1, 1, 0, 0))
    assert plan.edges == (LoadedType("Knows", 1, 1, 0, 0),)


@pytest.mark.parametrize(
    ("record", "kind", "type", "id"),
    [
        (node("Person", slug="ada", age=2), "node", "Person", "ada"),
        (node("Note", text="y", id="n1"), "node", "Note", "n1"),
        (edge("Knows", "x", "y", id="k1"), "edge", "Knows", "k1"),
    ],
)
def test_c_wrt_020_c_sch_056_append_of_an_existing_id_is_a_key_conflict(
    record: Any, kind: str, type: str, id: str
):
    view = committed(
        *[node("Person", slug=slug) for slug in ("ada", "x", "y")],
        node("Note", text="x", id="n1"),
        edge("Knows", "x", "ada", id="k1"),
    )
    raw = RecordSource.of(lines(node("Person", slug="new"), record), "more.jsonl")
    with pytest.raises(KeyConflict) as caught:
        checked(raw, view=view)
    expected = {"entity_kind": kind, "type_name": type, "entity_id": id}
    assert caught.value.details.items() >= expected.items()
    assert str(caught.value).startswith(f"more.jsonl:2: {kind} {type} with id")


def test_append_names_the_first_conflict_of_the_input():
    view = committed(*[node("Person", slug=slug) for slug in "abc"])
    raw = lines(*[node("Person", slug=slug) for slug in ["x", "c", "a"]])
    with pytest.raises(KeyConflict) as caught:
        checked(raw, view=view)
    assert [each["line"] for each in caught.value.details["problems"]] == [2, 3]


def test_minted_ids_are_not_looked_up():
    view = committed(node("Note", text="x", id="n1"))
    checked(lines(node("Note", text="y"), node("Note", text="z")), view=view)
    assert view.lookups == []
    checked(lines(node("Note", text="y"), node("Note", text="z", id="n2")), view=view)
    assert view.lookups == [("node:Note", ("id",))]


# --- merge ----------------------------------------------------------------------------------------


def test_c_sch_056_merge_replaces_the_whole_entity():
    view = committed(node("Person", slug="ada", name="Ada", age=36, tags=["x"], level=9))
    plan = load(lines(node("Person", slug="ada", age=37)), view=view, mode="merge")
    assert plan.changes.tables["node:Person"].kind == "upsert"
    (row,) = rows(plan, "node:Person")
    assert (row["age"], row["name"], row["tags"], row["level"]) == (37, None, None, 3)
    assert counts(plan) == {"Person": (1, 0, 1, 0)}


def test_merge_adds_what_is_not_there():
    view = committed(node("Note", text="a", id="n1"))
    raw = lines(
        node("Note", text="b", id="n1"), node("Note", text="c", id="n2"), node("Note", text="d")
    )
    plan = load(raw, view=view, mode="merge")
    assert [row["id"] for row in rows(plan, "node:Note")] == ["n1", "n2", "new-1"]
    assert counts(plan) == {"Note": (3, 2, 1, 0)}


def test_of_repeated_ids_without_a_key_the_last_record_wins():
    raw = lines(
        node("Note", text="a", id="n1"),
        node("Note", text="b", id="n2"),
        node("Note", text="c", id="n1"),
        node("Note", text="d"),
        edge("Knows", "a", "b", id="k"),
        edge("Knows", "c", "d", id="k"),
    )
    plan = load(raw, mode="merge")
    assert [(row["id"], row["text"]) for row in rows(plan, "node:Note")] == [
        ("n2", "b"),
        ("n1", "c"),
        ("new-1", "d"),
    ]
    assert [row["src"] for row in rows(plan, "edge:Knows")] == ["c"]
    assert counts(plan) == {"Note": (4, 3, 0, 0), "Knows": (2, 1, 0, 0)}
    # What one input may not repeat is judged before records replace each other.
    records = plan.given["node:Note"].records
    assert records is not None and records["text"].to_pylist() == ["a", "b", "c", "d"]


def test_merging_the_same_records_again_changes_nothing():
    records = [
        node("Slot", region="n", code=1, note="x"),
        node("Day", on="2031-04-09"),
        node("Note", text="a", id="n1"),
        edge("Knows", "a", "b", id="k1", since="2031-04-09", weight=0.5),
    ]
    plan = load(lines(*records), view=committed(*records), mode="merge")
    assert plan.changes.is_empty
    assert counts(plan) == dict.fromkeys(("Day", "Knows", "Note", "Slot"), (1, 0, 0, 1))


WIDE = """
node N {
    k: String @key
    s: String?  i: I64?  f: F32?  b: Bool?  d: Date?  t: DateTime?
    l: [I32]?  m: [DateTime]?  v: Vector(2)?
}
"""
OPTIONAL: dict[str, st.SearchStrategy[Any]] = {
    "s": st.sampled_from(["", "x"]),
    "i": st.sampled_from([0, 2**63 - 1]),
    "f": st.sampled_from([0.0, -0.0, 0.1]),
    "b": st.booleans(),
    "d": st.sampled_from([0, 1]),
    "t": st.sampled_from([0, 1]),
    "l": st.lists(st.sampled_from([0, 1]), max_size=2),
    "m": st.lists(st.sampled_from([0, 1]), max_size=2),
    "v": st.lists(st.sampled_from([0.0, -0.0]), min_size=2, max_size=2),
}
ENTITIES = st.dictionaries(
    st.sampled_from("abcd"), st.fixed_dictionaries({}, optional=OPTIONAL), max_size=4
)


@MANY
@given(ENTITIES, ENTITIES)
def test_merge_counts_and_leaves_out_exactly_what_is_unchanged(
    before: dict[str, Any], after: dict[str, Any]
):
    def records(entities: dict[str, Any]) -> bytes:
        return lines(*[node("N", k=k, **data) for k, data in entities.items()])

    def shape(data: dict[str, Any]) -> str:
        """What tells entities apart, zeros of either sign included."""
        return repr(sorted(data.items()))

    view = Rows().after(load(records(before), schema=WIDE).changes)
    plan = load(records(after), view=view, mode="merge", schema=WIDE)
    same = [k for k in after if k in before and shape(before[k]) == shape(after[k])]
    changed = [k for k in after if k not in same]
    written = rows(plan, "node:N") if plan.changes.tables else []
    assert [row["k"] for row in written] == changed
    inserted = len(after.keys() - before.keys())
    expected = (len(after), inserted, len(changed) - inserted, len(same))
    assert counts(plan) == ({"N": expected} if after else {})
    result = view.after(plan.changes)
    fresh = load(records(before | after), schema=WIDE)
    if before or after:
        assert _by_id(result.tables["node:N"]).equals(_by_id(fresh.changes.tables["node:N"].rows))


def _by_id(table: pa.Table) -> pa.Table:
    return table.sort_by("id").combine_chunks()


def test_types_with_blobs_are_written_without_comparing_them():
    records = [node("Person", slug="ada", photo="base64:aGk="), node("Person", slug="bob")]
    view = committed(*records)
    plan = load(lines(*records), view=view, mode="merge")
    assert counts(plan) == {"Person": (2, 0, 2, 0)}
    assert view.lookups == [("node:Person", ("id",))]


# --- overwrite ------------------------------------------------------------------------------------


def test_overwrite_replaces_the_types_it_has_records_of():
    view = committed(node("Note", text="a", id="n1"), node("Person", slug="ada"))
    plan = load(lines(node("Note", text="b", id="n1")), view=view, mode="overwrite")
    assert {key: change.kind for key, change in plan.changes.tables.items()} == {
        "node:Note": "replace"
    }
    assert counts(plan) == {"Note": (1, 1, 0, 0)}
    after = view.after(plan.changes)
    assert after.tables["node:Note"]["text"].to_pylist() == ["b"]
    assert after.tables["node:Person"].num_rows == 1
    assert view.lookups == []


def test_c_wrt_024_overwrite_empties_a_type_that_is_named_without_records():
    view = committed(node("Note", text="a"), node("Person", slug="ada"))
    plan = load(b"", view=view, mode="overwrite", replace_types=["node:Note", "edge:Knows"])
    change = plan.changes.tables["node:Note"]
    assert change.kind == "replace"
    assert change.rows.num_rows == 0
    assert change.rows.schema.equals(table_schema(catalog().nodes["Note"]), check_metadata=True)
    assert counts(plan) == {"Note": (0, 0, 0, 0), "Knows": (0, 0, 0, 0)}


def test_naming_a_type_that_has_records_changes_nothing():
    raw = lines(node("Note", text="b"))
    plan = load(raw, mode="overwrite", replace_types=["node:Note"])
    assert counts(plan) == {"Note": (1, 1, 0, 0)}


def test_types_to_replace_are_checked():
    with pytest.raises(InputError, match="unknown node type 'Nte'") as caught:
        load(b"", mode="overwrite", replace_types=["node:Nte"])
    assert caught.value.hint == "did you mean 'Note'?"


@pytest.mark.parametrize("mode", MODES)
def test_an_input_without_records_changes_nothing(mode: LoadMode):
    plan = load(b"\n", mode=mode)
    assert plan.changes.is_empty
    assert plan.nodes == plan.edges == ()


# --- repeated records -----------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_c_wrt_023_a_repeated_key_is_refused_in_every_mode(mode: LoadMode, chunk_bytes: int):
    raw = lines(
        node("Slot", region="n", code=1),
        node("Slot", region="n", code=2),
        node("Slot", code=1, region="n", note="x"),
    )
    with pytest.raises(ConstraintViolation) as caught:
        checked(raw, mode=mode, chunk_bytes=chunk_bytes)
    expected = """@unique violation on Slot.(code, region): value '(1, n)' held by '["1","n"]'"""
    assert expected in caught.value.message
    assert caught.value.details["line"] == 3
    assert caught.value.message.endswith(", in line 1 and line 3")


@pytest.mark.parametrize("mode", ["append", "overwrite"])
@pytest.mark.parametrize("make", [lambda i: node("Note", text=str(i), id="n1"), None])
def test_c_wrt_023_a_repeated_id_is_refused_in_append_and_overwrite(mode: LoadMode, make: Any):
    if make is None:
        edges = [edge("Knows", "a", "a", id="n1"), edge("Knows", "a", "a", id="n1")]
        raw = lines(*edges, node("Person", slug="a"))
    else:
        raw = lines(make(1), node("Note", text="x"), make(2))
    with pytest.raises(InputError) as caught:
        checked(raw, mode=mode)
    assert "repeats id 'n1', in line 1 and line " in caught.value.message


def test_places_are_those_of_the_file_a_record_is_in():
    first = RecordSource.of(lines(node("Person", slug="a"), node("Person", slug="b")), "one.jsonl")
    second = RecordSource.of(lines("", node("Person", slug="b")), "two.jsonl")
    with pytest.raises(ConstraintViolation) as caught:
        checked(first, second)
    assert caught.value.message.startswith("two.jsonl:2: Person: @unique violation on Person.slug")
    assert caught.value.message.endswith(", in one.jsonl:2 and two.jsonl:2")


def test_nodes_and_edges_may_share_ids_and_names():
    schema = "node Thing { } edge Thing: Thing -> Thing"
    raw = lines(node("Thing", id="x"), edge("Thing", "x", "x", id="x"))
    plan = load(raw, schema=schema)
    assert list(plan.changes.tables) == ["edge:Thing", "node:Thing"]


# --- reading once ---------------------------------------------------------------------------------


def test_an_input_is_planned_again_without_being_read_again():
    blocks = iter([lines(node("Note", text="x"), node("Person", slug="ada"))])
    loaded = read(RecordSource.stream(blocks), mode="append")
    first = plan_load(loaded, Rows())
    taken = committed(node("Person", slug="ada"))
    again = plan_load(loaded, taken)
    (found,) = validate(again.changes, catalog(), taken, given=again.given, collect=True)
    assert found.report == "existing_id"
    second = plan_load(loaded, committed(node("Person", slug="bob")))
    assert rows(first, "node:Note") == rows(second, "node:Note")


@pytest.mark.parametrize("chunk_bytes", [1, 1 << 20])
def test_in_process_limits_are_inclusive_and_per_table(chunk_bytes: int):
    raw = lines(*[node("Note", text="x") for _ in range(3)], node("Person", slug="a"))
    load(raw, limits=WriteLimits(rows_max=3), chunk_bytes=chunk_bytes)
    with pytest.raises(LimitExceeded, match="rows of node:Note") as caught:
        load(raw, limits=WriteLimits(rows_max=2), chunk_bytes=chunk_bytes)
    assert "OMNIGRAPH_WRITE_ROWS_MAX" in str(caught.value.hint)
    with pytest.raises(LimitExceeded, match="bytes of node:Note"):
        load(raw, limits=WriteLimits(bytes_max=10), chunk_bytes=chunk_bytes)


@given(
    st.lists(
        st.builds(lambda i, t: node("Note", text=t, id=f"n{i}"), st.integers(0, 9), st.text())
        | st.builds(lambda i: node("Slot", region="n", code=i), st.integers(0, 99))
        | st.builds(lambda i, j: edge("Knows", f"{i}", f"{j}"), st.integers(), st.integers()),
        max_size=20,
    ),
    st.integers(1, 300),
)
def test_loads_do_not_depend_on_chunks(records: list[Any], chunk_bytes: int):
    def outcome(size: int) -> Any:
        try:
            loaded = read(lines(*records), mode="merge", chunk_bytes=size)
        except InputError as error:
            return error.message, error.hint
        # Minting goes by type within a chunk, so new ids come in another order.
        return {
            key: table.rows.drop_columns("id" if key == "edge:Knows" else []).to_pylist()
            for key, table in loaded.tables.items()
        }

    assert outcome(chunk_bytes) == outcome(1 << 20)


# --- with the validator ---------------------------------------------------------------------------

UNIQUE = "node Tool { serial: String? @unique  name: String? }"


def test_one_input_may_not_repeat_a_unique_value_even_for_one_id():
    raw = lines(node("Tool", id="t1", serial="s"), node("Tool", id="t1", serial="s", name="x"))
    plan = load(raw, mode="merge", schema=UNIQUE)
    with pytest.raises(ConstraintViolation, match="value 's' held by 't1' and 't1'"):
        validate(plan.changes, catalog(UNIQUE), Rows(), given=plan.given)


def test_a_repeated_unique_value_is_found_although_nothing_would_change():
    record = node("Tool", id="t1", serial="s")
    view = Rows().after(load(lines(record), schema=UNIQUE).changes)
    plan = load(lines(record, record), view=view, mode="merge", schema=UNIQUE)
    assert plan.changes.is_empty
    with pytest.raises(ConstraintViolation, match="value 's' held by 't1' and 't1'"):
        validate(plan.changes, catalog(UNIQUE), view, given=plan.given)


def test_a_value_of_an_unchanged_entity_is_still_taken():
    records = [node("Tool", id="t1", serial="s"), node("Tool", id="t2", serial="s")]
    view = Rows().after(load(lines(records[0]), schema=UNIQUE).changes)
    plan = load(lines(*records), view=view, mode="merge", schema=UNIQUE)
    with pytest.raises(ConstraintViolation, match="held by 't1' and 't2'"):
        validate(plan.changes, catalog(UNIQUE), view, given=plan.given)


@pytest.mark.parametrize("mode", MODES)
def test_a_good_load_passes_the_validator(mode: LoadMode):
    raw = lines(
        edge("Knows", "ada", "grace", id="k"),
        node("Person", slug="ada"),
        node("Person", slug="grace"),
    )
    plan = load(raw, mode=mode)
    assert validate(plan.changes, catalog(), Rows(), given=plan.given) == []
