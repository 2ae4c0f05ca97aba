"""Export: lines in one order, exact values, and a graph that comes back the same."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omnigraph.branching import export as export_module
from omnigraph.branching.export import export_blocks
from omnigraph.commit.external_blobs import ExternalBlobs
from omnigraph.errors import NotFound
from omnigraph.loading.records.problems import Grammar
from omnigraph.model.values import DAYS_MAX, DAYS_MIN, MS_MAX, MS_MIN, BlobUri
from tests.commit.loading import Rows, catalog, edge, lines, load, node

ALLOWED = ExternalBlobs(allow=lambda uri: uri.startswith("ext:"))


def graph(*records: Any, **options: Any) -> Rows:
    """A graph that holds these records."""
    return Rows().after(load(lines(*records), mode="overwrite", **options).changes)


def blocks_of(rows: Any, *, schema: str | None = None, **options: Any) -> Iterator[bytes]:
    """An export of rows in memory, which stand for those of a snapshot."""
    return export_blocks(rows, catalog(schema) if schema else catalog(), **options)


def exported(rows: Rows, **options: Any) -> bytes:
    return b"".join(blocks_of(rows, **options))


# --- the lines ------------------------------------------------------------------------------------


def test_edges_come_first_and_entities_by_id():
    rows = graph(
        node("Person", slug="b"),
        node("Person", slug="é"),
        node("Person", slug="a"),
        node("Note", text="x", id="n"),
        edge("Knows", "a", "b", id="k2"),
        edge("Knows", "b", "a", id="k1"),
        edge("About", "n", "a", id="z"),
    )
    records = [json.loads(line) for line in exported(rows).splitlines()]
    order = [(r.get("edge") or r["type"], r["data"]["id"]) for r in records]
    assert order == [
        ("About", "z"),
        ("Knows", "k1"),
        ("Knows", "k2"),
        ("Note", "n"),
        ("Person", "a"),
        ("Person", "b"),
        ("Person", "é"),
    ]


def test_a_line_is_one_compact_record_with_every_property():
    rows = graph(
        edge("Knows", "ä", "b", id="k1", since="1970-01-03"), node("Note", text='"\n', id="n")
    )
    assert (
        exported(rows)
        == (
            '{"edge":"Knows","from":"ä","to":"b","data":{"id":"k1","since":2,"weight":null}}\n'
            '{"type":"Note","data":{"id":"n","stars":null,"text":"\\"\\n"}}\n'
        ).encode()
    )


def test_c_sch_055_values_are_exact():
    rows = graph(
        node(
            "Person",
            slug="a",
            visits=2**64 - 1,
            height=0.1,
            born="1969-12-31",
            seen="1969-12-31T23:59:59.999Z",
            leaf=[0.1, -0.0],
            photo="base64:",
        )
    )
    text = exported(rows).decode()
    assert '"visits":18446744073709551615' in text
    assert '"height":0.10000000149011612' in text
    assert '"born":-1,' in text
    assert '"seen":-1,' in text
    assert '"leaf":[0.10000000149011612,-0.0]' in text
    assert '"photo":"base64:"' in text
    assert '"tags":null' in text


def test_dates_in_lists_are_epoch_numbers_too():
    schema = "node N { k: String @key  d: [Date]?  t: [DateTime]?  f: [F32]? }"
    rows = graph(node("N", k="a", d=[1, -1], t=[5], f=[0.1]), node("N", k="b"), schema=schema)
    assert [json.loads(line)["data"] for line in exported(rows, schema=schema).splitlines()] == [
        {"id": "a", "d": [1, -1], "f": [0.10000000149011612], "k": "a", "t": [5]},
        {"id": "b", "d": None, "f": None, "k": "b", "t": None},
    ]


def test_an_external_blob_is_its_uri():
    rows = graph(node("Person", slug="a", photo="ext:1"), external=ALLOWED)
    assert b'"photo":"ext:1"' in exported(rows)


def test_an_empty_graph_has_no_lines():
    assert list(blocks_of(Rows())) == []


def test_only_the_types_asked_for():
    rows = graph(node("Note", text="x"), node("Person", slug="a"), edge("Knows", "a", "a"))
    assert exported(rows, type_names=["Note"]).count(b"\n") == 1
    assert exported(rows, type_names=["Person", "Knows"]).startswith(b'{"edge":"Knows"')
    assert exported(rows, type_names=[]) == b""


def test_a_name_of_a_node_and_an_edge_type_means_both():
    schema = "node Thing { } edge Thing: Thing -> Thing"
    rows = graph(node("Thing", id="x"), edge("Thing", "x", "x", id="y"), schema=schema)
    assert exported(rows, schema=schema, type_names=["Thing"]).count(b"\n") == 2


def test_an_unknown_type_is_refused_before_anything_is_read():
    with pytest.raises(NotFound, match="there is no type 'Persn'") as caught:
        blocks_of(Rows(), type_names=["Note", "Persn"])
    assert "Person" in str(caught.value.hint)


# --- in pieces ------------------------------------------------------------------------------------


class Watched(Rows):
    """Notes what an export asks for."""

    def __init__(self, tables: dict[str, pa.Table]) -> None:
        super().__init__(tables)
        self.rows_max = 0
        self.blobs_read = 0

    def take(self, table_key: str, positions: pa.Array, columns: Any) -> pa.Table:
        self.rows_max = max(self.rows_max, len(positions))
        assert "photo" not in columns
        return super().take(table_key, positions, columns)

    def blobs_at(
        self, table_key: str, column: str, positions: pa.Array
    ) -> Iterator[bytes | BlobUri | None]:
        for blob in super().blobs_at(table_key, column, positions):
            self.blobs_read += 1
            yield blob


def test_rows_are_read_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("omnigraph.branching.table_rows.ROWS_PER_READ", 7)
    rows = Watched(graph(*[node("Person", slug=f"{i:03}") for i in range(50)]).tables)
    assert exported(rows) == exported(Rows(rows.tables))
    assert rows.rows_max == 7


def test_blobs_are_read_as_their_lines_are_written(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(export_module, "BLOCK_BYTES", 1)
    records = [node("Person", slug=f"{i}", photo="base64:aGk=") for i in range(9)]
    rows = Watched(graph(*records).tables)
    blocks = blocks_of(rows)
    assert rows.blobs_read == 0
    next(blocks)
    assert rows.blobs_read == 1
    assert len(list(blocks)) == 8


def test_blocks_are_whole_lines_of_bounded_size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(export_module, "BLOCK_BYTES", 500)
    rows = graph(*[node("Person", slug=f"{i:03}") for i in range(50)])
    blocks = list(blocks_of(rows))
    assert len(blocks) > 5
    assert all(block.endswith(b"\n") for block in blocks)
    assert max(map(len, blocks)) < 1_000


# --- there and back -------------------------------------------------------------------------------

SCHEMA = """
node Keyed {
    a: String  b: I64  c: F32  d: Date  e: DateTime  f: Bool
    @key(a, b, c, d, e, f)
}
node Free {
    string: String?  flag: Bool?  word: enum(x, y)?
    i32: I32?  i64: I64?  u32: U32?  u64: U64?  f32: F32?  f64: F64?
    day: Date?  moment: DateTime?  blob: Blob?  vector: Vector(2)?
    strings: [String]?  flags: [Bool]?  u64s: [U64]?  f32s: [F32]?  f64s: [F64]?
    days: [Date]?  moments: [DateTime]?
}
edge Link: Keyed -> Free { weight: F64?  scan: Blob? }
edge Free: Free -> Free
"""

F32S = st.floats(width=32, allow_nan=False, allow_infinity=False)
F64S = st.floats(allow_nan=False, allow_infinity=False)
DAYS = st.integers(DAYS_MIN, DAYS_MAX)
MOMENTS = st.integers(MS_MIN, MS_MAX)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
BLOBS = st.binary(max_size=6).map(lambda data: "base64:" + base64.b64encode(data).decode())
SCALARS = {
    "string": TEXTS,
    "flag": st.booleans(),
    "word": st.sampled_from(["x", "y"]),
    "i32": st.integers(-(2**31), 2**31 - 1),
    "i64": st.integers(-(2**63), 2**63 - 1),
    "u32": st.integers(0, 2**32 - 1),
    "u64": st.integers(0, 2**64 - 1),
    "f32": F32S,
    "f64": F64S,
    "day": DAYS,
    "moment": MOMENTS,
    "blob": BLOBS | TEXTS.map(lambda text: "ext:" + text),
    "vector": st.lists(F32S, min_size=2, max_size=2),
}
ITEMS = {
    "strings": TEXTS,
    "flags": st.booleans(),
    "u64s": SCALARS["u64"],
    "f32s": F32S,
    "f64s": F64S,
    "days": DAYS,
    "moments": MOMENTS,
}


@st.composite
def graphs(draw: st.DrawFn, null_items: bool) -> list[dict[str, Any]]:
    """Records of a graph whose edges have both ends."""
    lists = {
        name: st.lists(item | st.none() if null_items else item, max_size=3)
        for name, item in ITEMS.items()
    }
    optional = {name: value | st.none() for name, value in (SCALARS | lists).items()}
    free_ids = draw(st.lists(TEXTS, min_size=1, max_size=4, unique=True))
    free = [
        node("Free", id=id, **draw(st.fixed_dictionaries({}, optional=optional))) for id in free_ids
    ]
    keys = st.tuples(TEXTS, SCALARS["i64"], F32S, DAYS, MOMENTS, st.booleans())
    # Both zeros are one key.
    members = draw(
        st.lists(keys.map(lambda k: (*k[:2], k[2] + 0.0, *k[3:])), max_size=3, unique=True)
    )
    keyed = [node("Keyed", **dict(zip("abcdef", each, strict=True))) for each in members]
    ids = (
        [
            row["id"]
            for row in load(lines(*keyed), schema=SCHEMA)
            .changes.tables["node:Keyed"]
            .rows.to_pylist()
        ]
        if keyed
        else []
    )
    links = [
        edge("Link", source, draw(st.sampled_from(free_ids)), weight=draw(F64S), scan=draw(BLOBS))
        for source in ids
    ]
    loops = [edge("Free", free_ids[0], free_ids[-1])] * draw(st.integers(0, 2))
    return [*links, *free, *loops, *keyed]


def assert_comes_back(rows: Rows, grammar: Grammar) -> None:
    first = exported(rows, schema=SCHEMA)
    plan = load(first, mode="overwrite", grammar=grammar, schema=SCHEMA, external=ALLOWED)
    assert list(plan.changes.tables) == sorted(key for key in rows.tables)
    for key, change in plan.changes.tables.items():
        # By their bits: zeros of either sign and floats of either width are told apart.
        before = rows.tables[key].sort_by("id").combine_chunks()
        assert repr(change.rows.combine_chunks().to_pylist()) == repr(before.to_pylist())
        assert change.rows.schema.equals(before.schema, check_metadata=True)
    assert exported(Rows().after(plan.changes), schema=SCHEMA) == first


@given(graphs(null_items=False))
def test_c_sch_055_export_and_overwrite_reproduce_a_graph_under_both_grammars(
    records: list[dict[str, Any]],
):
    rows = graph(*records, schema=SCHEMA, external=ALLOWED)
    assert_comes_back(rows, "strict")
    assert_comes_back(rows, "compatible")


@given(graphs(null_items=True))
def test_c_sch_055_null_items_of_lists_come_back_under_the_compatible_grammar(
    records: list[dict[str, Any]],
):
    rows = graph(*records, schema=SCHEMA, external=ALLOWED, grammar="compatible")
    assert_comes_back(rows, "compatible")
