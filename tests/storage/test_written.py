"""Rows that workers write beside a table: invisible first, right in whatever order columns are."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph.errors import StorageError
from omnigraph.storage.transactions import commit_strict
from omnigraph.storage.written import (
    TablePlace,
    data_files,
    fragment_rows,
    read_written,
    stage_written,
    write_rows,
)

ROWS = pa.table({"id": ["a", "b"], "tags": [["x"], None], "n": pa.array([1, 2], pa.int32())})
# As the schema of a type orders them, which need not be how the table was made.
NEW = pa.table({"id": ["c"], "n": pa.array([3], pa.int32()), "tags": [["y", "z"]]})


@pytest.fixture
def table(tmp_path: Path) -> lance.LanceDataset:
    uri = str(tmp_path / "t")
    return lance.write_dataset(ROWS, uri, enable_stable_row_ids=True, data_storage_version="2.2")


def written(place: TablePlace) -> list[str]:
    return write_rows(place, NEW.schema, NEW.to_batches())


def test_rows_are_readable_before_and_part_of_the_table_after_their_commit(table):
    place = TablePlace.of(table, table.uri, replaces=False)
    fragments = written(place)
    assert lance.dataset(table.uri).count_rows() == 2
    assert sum(map(fragment_rows, fragments)) == 1
    (batch,) = read_written(place, fragments[0], ["n", "id"])
    assert batch.to_pylist() == [{"id": "c", "n": 3}]
    landed = commit_strict(table, stage_written(table, "append", fragments, "one"))
    assert landed.to_table().to_pylist() == [
        *ROWS.to_pylist(),
        {"id": "c", "tags": ["y", "z"], "n": 3},
    ]


def test_ids_take_as_much_room_in_a_table_that_exists_as_in_a_new_one(table, tmp_path):
    rows = pa.table({"id": [f"{n * 7919 % 100_003:012d}" for n in range(50_000)]})
    rows = rows.append_column("tags", pa.nulls(50_000, pa.list_(pa.string())))
    rows = rows.append_column("n", pa.nulls(50_000, pa.int32()))
    places = [
        TablePlace.of(table, table.uri, replaces=False),
        TablePlace(str(tmp_path / "new"), columns=tuple(table.schema.names)),
    ]
    sizes = [
        sum(Path(file).stat().st_size for file in data_files(place, written))
        for place in places
        for written in [write_rows(place, rows.schema, rows.to_batches())]
    ]
    assert sizes[0] == sizes[1]


def test_a_ref_that_does_not_exist_yet_can_be_written_to(table):
    address = f"{table.uri}/tree/gb-1"
    fragments = written(TablePlace.of(table, address, replaces=False))
    table.create_branch("gb-1", table.version)
    branch = lance.dataset(address)
    landed = commit_strict(branch, stage_written(branch, "append", fragments, "two"))
    assert landed.to_table(columns=["id", "n"]).to_pylist()[-1] == {"id": "c", "n": 3}
    assert lance.dataset(table.uri).count_rows() == 2


def test_replaced_tables_keep_the_order_of_their_columns(table):
    fragments = written(TablePlace.of(table, table.uri, replaces=True))
    landed = commit_strict(table, stage_written(table, "replace", fragments, "three"))
    assert landed.schema.names == ["id", "tags", "n"]
    assert landed.to_table().to_pylist() == [{"id": "c", "tags": ["y", "z"], "n": 3}]


def test_files_that_are_gone_are_not_committed(table):
    place = TablePlace.of(table, table.uri, replaces=False)
    fragments = written(place)
    for file in data_files(place, fragments):
        Path(file).unlink()
    with pytest.raises(StorageError, match="was removed while the write was running"):
        stage_written(table, "append", fragments, "four")


def test_a_failure_of_the_rows_is_raised_as_itself(table):
    def rows():
        yield NEW.to_batches()[0]
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        write_rows(TablePlace.of(table, table.uri, replaces=False), NEW.schema, rows())
