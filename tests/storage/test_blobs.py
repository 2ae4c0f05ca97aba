"""Blob columns in a table: references among them, single cells, and what names their bytes."""

from __future__ import annotations

from itertools import count
from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lance import LanceDataset, LanceOperation

from omnigraph.model.arrow import BLOB_EXTENSION_METADATA, BLOB_STORAGE
from omnigraph.model.values import BlobUri
from omnigraph.storage import blobs, transactions
from omnigraph.storage.blobs import ManagedBlob
from omnigraph.storage.transactions import commit_strict

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("blob", BLOB_STORAGE, metadata=BLOB_EXTENSION_METADATA),
        pa.field("n", pa.int32()),
    ]
)
Value = bytes | BlobUri | None
UUIDS = map(str, count())


def stored(value: Value) -> dict[str, Any] | None:
    match value:
        case None:
            return None
        case BlobUri(uri):
            return {"data": None, "uri": uri}
        case _:
            return {"data": value, "uri": None}


def rows(values: dict[str, Value], n: int = 0) -> pa.Table:
    column = pa.array([stored(value) for value in values.values()], BLOB_STORAGE)
    return pa.table([list(values), column, [n] * len(values)], schema=SCHEMA)


def empty_table(place: Path) -> LanceDataset:
    return LanceDataset.commit(
        place, LanceOperation.Overwrite(SCHEMA, []), enable_stable_row_ids=True
    )


def appended(table: LanceDataset, values: dict[str, Value]) -> LanceDataset:
    return commit_strict(table, transactions.stage_append(table, rows(values), next(UUIDS)))


def upserted(table: LanceDataset, values: dict[str, Value], n: int = 1) -> LanceDataset:
    return commit_strict(table, transactions.stage_upsert(table, rows(values, n), next(UUIDS)))


def content(table: LanceDataset) -> dict[str, Value]:
    ids = table.to_table(columns=["id"])["id"].to_pylist()
    assert len(set(ids)) == len(ids)
    positions = pa.array(range(len(ids)))
    return dict(zip(ids, blobs.values_at(table, "blob", positions), strict=True))


@pytest.fixture
def table(tmp_path: Path) -> LanceDataset:
    return empty_table(tmp_path / "table")


VALUES = st.none() | st.binary(max_size=9) | st.integers(0, 9).map(lambda n: BlobUri(f"s3://b/{n}"))
WRITES = st.lists(st.dictionaries(st.sampled_from("abcdefgh"), VALUES, min_size=1), max_size=5)


@given(WRITES)
def test_upserts_of_bytes_and_references_end_as_a_dict_would(
    tmp_path_factory: pytest.TempPathFactory, writes: list[dict[str, Value]]
) -> None:
    table = empty_table(tmp_path_factory.mktemp("upserts") / "table")
    expected: dict[str, Value] = {}
    for values in writes:
        table = upserted(table, values)
        expected |= values
        assert content(table) == expected
    ids = pa.array(sorted(expected), pa.string())
    assert blobs.values(table, "blob", ids).to_pylist() == [
        stored(expected[id]) for id in sorted(expected)
    ]


def test_an_upsert_of_references_replaces_in_several_fragments_at_once(table: LanceDataset) -> None:
    table = appended(table, {"a": b"a", "b": b"b"})
    table = appended(table, {"c": BlobUri("s3://b/c"), "d": b"d"})
    table = appended(table, {"e": b"e"})
    before = table.version
    table = upserted(table, {"b": BlobUri("s3://b/b"), "c": b"c", "e": None, "f": b"f"})
    assert table.version == before + 1
    assert content(table) == {
        "a": b"a",
        "b": BlobUri("s3://b/b"),
        "c": b"c",
        "d": b"d",
        "e": None,
        "f": b"f",
    }


def test_an_upsert_without_references_keeps_the_row_ids(table: LanceDataset) -> None:
    table = appended(table, {"a": b"a"})

    def row_id() -> int:
        (found,) = table.to_table(columns=["id"], with_row_id=True)["_rowid"].to_pylist()
        return int(found)

    before = row_id()
    table = upserted(table, {"a": b"b"})
    assert row_id() == before


def test_sizes_are_known_of_what_lies_here(table: LanceDataset) -> None:
    table = appended(table, {"a": b"abc", "b": None, "c": BlobUri("s3://b/c"), "d": b""})
    assert blobs.sizes(table, "blob", pa.array(["d", "b", "a", "c"])).to_pylist() == [0, None, 3, 0]


def test_a_cell_is_bytes_a_reference_a_null_or_nothing(table: LanceDataset) -> None:
    table = appended(table, {"a": b"abc", "b": None, "c": BlobUri("s3://b/c")})
    found = blobs.cell(table, "blob", "a")
    assert found is not None and isinstance(found.value, ManagedBlob)
    assert (found.value.size, found.value.open().read(1, 2)) == (3, b"bc")
    assert blobs.cell(table, "blob", "b") == blobs.BlobCell(None)
    assert blobs.cell(table, "blob", "c") == blobs.BlobCell(BlobUri("s3://b/c"))
    assert blobs.cell(table, "blob", "nobody") is None
    assert blobs.cell(table, "blob", "' OR true --") is None


def tag(table: LanceDataset, id: str) -> str:
    found = blobs.cell(table, "blob", id)
    assert found is not None and isinstance(found.value, ManagedBlob)
    return found.value.tag


def test_a_tag_stands_for_the_stored_bytes(table: LanceDataset) -> None:
    large = {"a": b"1" * 50, "b": b"2" * 50, "c": b"3" * 90_000, "d": b"4" * 90_000}
    table = appended(table, {**large, "e": b"5" * 5_000_000})
    tags = {id: tag(table, id) for id in "abcde"}
    assert len(set(tags.values())) == 5
    # Other rows of the file go, a column comes, a branch is made: the bytes lie where they lay.
    table = commit_strict(table, transactions.stage_delete(table, pa.array(["b"]), next(UUIDS)))
    table.add_columns(pa.field("m", pa.int32()))
    table = lance.dataset(table.uri)
    branch = table.create_branch("side", table.version)
    for each in (table, branch):
        assert {id: tag(each, id) for id in "acde"} == {id: tags[id] for id in "acde"}
    table = upserted(table, {"a": b"9" * 50})
    assert tag(table, "a") != tags["a"]
    assert tag(table, "c") == tags["c"]
