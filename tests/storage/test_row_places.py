"""Which rows two versions share, and exchanging rows by where they lie."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import lance
import numpy as np
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation

from omnigraph.storage import transactions
from omnigraph.storage.fragments import deleted_offsets, fragments_of
from omnigraph.storage.row_places import (
    NOWHERE,
    positions_in,
    stage_exchange,
    unshared_rows,
)
from omnigraph.storage.transactions import commit_strict
from omnigraph.storage.written import TablePlace, stage_written, write_rows

VECTOR = pa.list_(pa.field("item", pa.float32()), 2)
SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("n", pa.int32()),
        pa.field("v", VECTOR),
    ]
)


def rows(*ids: str, text: str = "rain", n: int = 1, at: float = 0.0) -> pa.Table:
    vectors = pa.array([[at, 1.0]] * len(ids), VECTOR)
    return pa.table([list(ids), [text] * len(ids), [n] * len(ids), vectors], schema=SCHEMA)


@pytest.fixture
def table(tmp_path: Path) -> LanceDataset:
    empty = LanceDataset.commit(
        tmp_path / "table", LanceOperation.Overwrite(SCHEMA, []), enable_stable_row_ids=True
    )
    first = commit_strict(empty, transactions.stage_append(empty, rows("a", "b", "c"), "first"))
    return commit_strict(first, transactions.stage_append(first, rows("d", "e"), "second"))


def ids_of(table: LanceDataset) -> list[str]:
    found: list[str] = table.to_table(columns=["id"])["id"].to_pylist()
    return found


def named(places: Iterable[pa.Table]) -> dict[str, int]:
    rows = [row for part in places for row in part.to_pylist()]
    return {row["id"]: row["position"] for row in rows}


def exchanged(table: LanceDataset, new: pa.Table, *gone: str) -> LanceDataset:
    at = ids_of(table)
    positions = np.array([at.index(id) for id in gone], np.int64)
    return commit_strict(table, stage_exchange(table, new, positions, f"exchange-{table.version}"))


def test_a_version_shares_everything_with_itself(table: LanceDataset) -> None:
    assert named(unshared_rows(table, table)) == {}


def test_rows_that_were_deleted_or_added_are_not_shared(table: LanceDataset) -> None:
    later = exchanged(table, rows("b", "x", n=2), "b", "d", "e")
    assert ids_of(later) == ["a", "c", "b", "x"]
    assert named(unshared_rows(table, later)) == {"b": 1, "d": 3, "e": 4}
    assert named(unshared_rows(later, table)) == {"b": 2, "x": 3}


def test_two_branches_share_what_both_kept(table: LanceDataset) -> None:
    table.create_branch("mine", table.version)
    mine = lance.dataset(f"{table.uri}/tree/mine")
    mine = exchanged(mine, rows("a", n=7), "a")
    other = exchanged(table, rows("y"), "c")
    assert named(unshared_rows(mine, other)) == {"c": 1, "a": 4}
    assert named(unshared_rows(other, mine)) == {"a": 0, "y": 4}


def test_positions_follow_rows_into_a_later_version(table: LanceDataset) -> None:
    later = exchanged(table, rows("b", n=2), "b", "d")
    found = positions_in(table, np.array([4, 0, 1, 2, 3], np.int64), later)
    assert found.tolist() == [2, 0, NOWHERE, 1, NOWHERE]


def test_an_exchange_may_only_add_or_only_remove(table: LanceDataset) -> None:
    more = exchanged(table, rows("z"))
    assert ids_of(more) == ["a", "b", "c", "d", "e", "z"]
    assert ids_of(exchanged(more, rows(), "a", "b", "c")) == ["d", "e", "z"]


@pytest.mark.parametrize("count", [1, 20, 100, 399])
def test_many_and_few_rows_of_one_fragment_are_found_alike(table: LanceDataset, count: int) -> None:
    names = [f"w{n:03}" for n in range(400)]
    wide = commit_strict(table, transactions.stage_append(table, rows(*names), "wide"))
    later = exchanged(wide, rows(), *names[:count])
    assert sorted(named(unshared_rows(wide, later))) == names[:count]


@pytest.mark.parametrize("way", ["exchange", "written"])
def test_indexes_do_not_claim_rows_that_came_after_them(table: LanceDataset, way: str) -> None:
    """Else a search by index would not find what was just written."""
    table.create_scalar_index("id", "BTREE")
    table.create_scalar_index("n", "BTREE")
    table.create_scalar_index("text", "INVERTED")
    table.create_index("v", "IVF_FLAT", num_partitions=1)
    new = rows("b", "x", text="snow", n=9, at=50.0)
    if way == "exchange":
        later = exchanged(table, new, "b")
    else:
        written = write_rows(
            TablePlace.of(table, table.uri, replaces=False), SCHEMA, new.to_batches()
        )
        fragment = table.get_fragment(0)
        left = fragment and fragment.delete_rows([1])
        assert left is not None
        updated = [json.dumps(left.to_json())]
        staged = stage_written(table, "upsert", written, "written", updated=updated)
        later = commit_strict(table, staged)
    columns = ["id", "_score"]
    found = later.to_table(full_text_query="snow", columns=columns)["id"].to_pylist()
    assert sorted(found) == ["b", "x"]
    assert sorted(later.to_table(filter="n = 9")["id"].to_pylist()) == ["b", "x"]
    nearest = {"column": "v", "q": [50.0, 1.0], "k": 2}
    found = later.to_table(nearest=nearest, columns=["id", "_distance"])["id"].to_pylist()
    assert sorted(found) == ["b", "x"]
    assert later.to_table(filter="id = 'b' AND n = 1").num_rows == 0


@pytest.mark.parametrize("count", [1, 3_000, 30_000])
def test_deleted_rows_are_found_whether_a_file_lists_them_or_not(
    table: LanceDataset, count: int
) -> None:
    """Lance lists few of them, and packs many into a form that only it reads."""
    names = [f"w{n:05}" for n in range(40_000)]
    wide = commit_strict(table, transactions.stage_append(table, rows(*names), "wide"))
    gone = np.arange(5, 5 + count, dtype=np.int64)
    later = commit_strict(wide, stage_exchange(wide, rows(), gone, "gone"))
    assert sorted(named(unshared_rows(wide, later)).values()) == gone.tolist()
    fragment = fragments_of(later)[-1]
    assert deleted_offsets(later, fragment).tolist() == list(range(count))
    last = np.array([40_004], np.int64)
    assert positions_in(wide, last, later).tolist() == [40_004 - count]
    assert positions_in(later, last - count, wide).tolist() == [40_004]
