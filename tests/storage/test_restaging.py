"""Rows staged on an older version are committed on a newer one, if that is proved to be right."""

from __future__ import annotations

from pathlib import Path

import lance
import pyarrow as pa
import pytest
from lance import LanceDataset, LanceOperation, Transaction

from omnigraph.effects.requests import measure
from omnigraph.storage import transactions
from omnigraph.storage.transactions import commit_strict, holds_any, know_ids, restage_new_rows

SCHEMA = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int32())])


def rows(*ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "n": [1] * len(ids)}, schema=SCHEMA)


def ids(*values: str) -> pa.Array:
    return pa.array(values, pa.string())


@pytest.fixture
def table(tmp_path: Path) -> LanceDataset:
    empty = LanceDataset.commit(
        tmp_path / "table", LanceOperation.Overwrite(SCHEMA, []), enable_stable_row_ids=True
    )
    return commit_strict(empty, transactions.stage_append(empty, rows("a", "b"), "first"))


def append(table: LanceDataset, *new: str) -> LanceDataset:
    return commit_strict(table, transactions.stage_append(table, rows(*new), f"append {new}"))


def delete(table: LanceDataset, *old: str) -> LanceDataset:
    return commit_strict(table, transactions.stage_delete(table, ids(*old), f"delete {old}"))


def restore(table: LanceDataset, version: int) -> LanceDataset:
    return commit_strict(table, transactions.stage_restore(table, version, f"restore {version}"))


def staged_upsert(table: LanceDataset, *given: str) -> Transaction:
    return transactions.stage_upsert(table, rows(*given), "staged")


@pytest.mark.parametrize("stage", [transactions.stage_append, transactions.stage_upsert])
def test_new_rows_land_on_a_newer_version_with_row_ids_of_their_own(
    table: LanceDataset, stage: object
) -> None:
    staged = stage(table, rows("c", "d"), "staged")  # type: ignore[operator]
    newer = append(delete(table, "a"), "x")
    again = restage_new_rows(staged, table, newer, ids("c", "d"), "again")
    assert again is not None
    assert (again.read_version, again.uuid) == (newer.version, "again")
    landed = commit_strict(newer, again)
    found = landed.to_table(columns=["id", "_rowid", "_row_created_at_version"]).to_pylist()
    assert [row["id"] for row in found] == ["b", "x", "c", "d"]
    assert len({row["_rowid"] for row in found}) == 4
    assert [row["_row_created_at_version"] for row in found[2:]] == [landed.version] * 2


def test_an_id_that_came_meanwhile_is_found(table: LanceDataset) -> None:
    staged = staged_upsert(table, "c", "d")
    harmless = append(table, "x")
    assert restage_new_rows(staged, table, harmless, ids("c", "d"), "again") is not None
    changed = commit_strict(harmless, transactions.stage_upsert(harmless, rows("b", "c"), "other"))
    assert restage_new_rows(staged, table, changed, ids("c", "d"), "again") is None


def test_so_is_one_among_many_rows(table: LanceDataset, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "SCANNED_ROWS_MAX", 0)
    staged = staged_upsert(table, "c", "d")
    newer = append(table, "x", "d")
    assert restage_new_rows(staged, table, newer, ids("c", "d"), "again") is None
    assert restage_new_rows(staged, table, newer, ids("c"), "again") is not None


@pytest.mark.parametrize("scanned", [0, 10])
def test_whether_a_table_has_an_id_is_found_by_reading_or_by_looking_up(
    table: LanceDataset, monkeypatch: pytest.MonkeyPatch, scanned: int
) -> None:
    monkeypatch.setattr(transactions, "SCANNED_ROWS_MAX", scanned)
    assert holds_any(table, ids("x", "b"))
    assert not holds_any(table, ids("x", "y"))
    assert not holds_any(delete(table, "b"), ids("b"))


def test_ids_of_a_file_that_was_read_or_written_here_are_not_read_again(
    table: LanceDataset,
) -> None:
    assert not holds_any(table, ids("c"))
    written = transactions.stage_append(table, rows("c"), "written")
    know_ids(table, written, ids("c"))
    newer = commit_strict(table, written)
    with measure() as io:
        assert holds_any(newer, ids("c")) and holds_any(newer, ids("a"))
        assert not holds_any(newer, ids("d"))
    assert io.report().count("lance", "lookup") == 0
    without = delete(newer, "a")
    with measure() as io:
        assert not holds_any(without, ids("a"))
    assert io.report().count("lance", "lookup") == 1


def test_a_restore_that_brings_a_deleted_row_back_is_noticed(table: LanceDataset) -> None:
    version = table.version
    without = delete(table, "b")
    staged = staged_upsert(without, "b")
    restored = restore(without, version)
    assert restored.to_table()["id"].to_pylist() == ["a", "b"]
    assert restage_new_rows(staged, without, restored, ids("b"), "again") is None


def test_a_compaction_moves_rows_and_brings_none(table: LanceDataset) -> None:
    on = append(table, "x")
    staged = staged_upsert(on, "c")
    newer = lance.dataset(on.uri)
    newer.optimize.compact_files()
    assert newer.fragment_ids() != on.fragment_ids()
    assert restage_new_rows(staged, on, newer, ids("c"), "again") is not None


def test_a_transaction_that_replaces_or_removes_rows_is_staged_anew(table: LanceDataset) -> None:
    newer = append(table, "x")
    for staged in (
        staged_upsert(table, "a", "c"),
        transactions.stage_delete(table, ids("a"), "staged"),
        transactions.stage_replace(table, rows("c"), "staged"),
    ):
        assert restage_new_rows(staged, table, newer, None, "again") is None


def test_fragment_ids_are_never_used_again(table: LanceDataset) -> None:
    """What tells the fragments of two versions apart."""
    version = table.version
    longer = append(append(table, "c"), "d")
    seen = set(longer.fragment_ids())
    restored = append(restore(longer, version), "e")
    assert max(restored.fragment_ids()) > max(seen)
    seen |= set(restored.fragment_ids())
    replaced = commit_strict(restored, transactions.stage_replace(restored, rows("z"), "replace"))
    assert min(replaced.fragment_ids()) > max(seen)
