"""Rows by position, where rows of their fragments were deleted."""

from __future__ import annotations

import random

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance import LanceDataset

from omnigraph.storage.fragments import addresses_at, take_rows

ROWS = 60_000
SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), lance.blob_field("photo")])


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    photos = lance.blob_array([None if n % 3 else f"{n}".encode() for n in numbers])
    return pa.table([[f"r{n:06}" for n in numbers], photos], schema=SCHEMA)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> LanceDataset:
    """A large fragment without some rows, a small one without some, and one with all."""
    place = tmp_path_factory.mktemp("positions") / "table"
    lance.write_dataset(
        rows(0, ROWS),
        place,
        schema=SCHEMA,
        enable_stable_row_ids=True,
        data_storage_version="2.2",
    )
    for first in (ROWS, ROWS + 50):
        lance.write_dataset(rows(first, 50), place, mode="append")
    made = lance.dataset(place)
    gone = [0, 7, 8, 9, 30_000, ROWS - 1, ROWS + 3]
    made.delete(f"id in ({', '.join(repr(f'r{n:06}') for n in gone)})")
    return lance.dataset(place)


def wanted(table: LanceDataset) -> list[list[int]]:
    last = table.count_rows() - 1
    dice = random.Random(3)
    return [
        [],
        [0],
        [last],
        [last, 0, 40_000, 40_000, 5],
        list(range(59_000, 60_060)),
        dice.choices(range(last + 1), k=500),
    ]


def test_rows_are_found_in_any_order_and_more_than_once(table: LanceDataset) -> None:
    ids = table.to_table(columns=["id"])["id"].to_pylist()
    for positions in wanted(table):
        found = take_rows(table, np.array(positions, np.int64), ["id", "photo"])
        assert found["id"].to_pylist() == [ids[at] for at in positions]
        assert found.schema == table.take([0], columns=["id", "photo"]).schema


def test_addresses_lead_to_the_same_rows(table: LanceDataset) -> None:
    addresses = table.scanner(columns=[], with_row_address=True).to_table()["_rowaddr"].to_pylist()
    for positions in wanted(table):
        found = addresses_at(table, np.array(positions, np.int64))
        assert found == [addresses[at] for at in positions]


def test_the_last_rows_of_a_fragment_cost_no_more_than_the_first(table: LanceDataset) -> None:
    """Lance would walk through sixty thousand rows for each of them."""
    calls: list[int] = []

    class Watched:
        """A dataset that tells how far Lance is sent."""

        def __getattr__(self, name: str) -> object:
            return getattr(table, name)

        def take(self, indices: list[int], columns: list[str]) -> pa.Table:
            calls.extend(indices)
            return table.take(indices, columns=columns)

    last = np.arange(ROWS - 1_000, ROWS + 20, dtype=np.int64)
    found = take_rows(Watched(), last, ["id"])  # type: ignore[arg-type]
    assert found.num_rows == len(last)
    assert min(calls) >= ROWS - 6, "rows of the large fragment were looked for one by one"
