"""Indexes on real tables: what is there, what it covers, and that answers never depend on it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lance
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from lance.query import MatchQuery

from omnigraph.effects.uri import Root
from omnigraph.errors import StorageError
from omnigraph.model.types import IndexSpec
from omnigraph.storage import transactions
from omnigraph.storage.datasets import Handle, LanceStore
from omnigraph.storage.indexes import (
    TableIndex,
    indexes_of,
    missing_indexes,
    stage_indexes,
    why_not_buildable,
)
from omnigraph.storage.table_upkeep import stage_compaction
from omnigraph.storage.transactions import DatasetRef, transaction_uuid

SCHEMA = pa.schema(
    [
        pa.field("id", pa.string(), nullable=False),
        pa.field("text", pa.string()),
        pa.field("flag", pa.bool_()),
        pa.field("day", pa.date32()),
        pa.field("at", pa.timestamp("ms", "UTC")),
        pa.field("real", pa.float64()),
        pa.field("big", pa.uint64()),
        pa.field("vector", pa.list_(pa.float32(), 4)),
    ]
)
VECTOR = SCHEMA.field("vector").type
ORDERED = ("id", "text", "flag", "day", "at", "real", "big")
ALL = (
    *(IndexSpec(column, "btree") for column in ORDERED),
    IndexSpec("text", "inverted"),
    IndexSpec("vector", "vector"),
)
FILTERS = (
    "id = 'k3'",
    "id IN ('k1', 'k21', 'k31', 'k41', 'nobody')",
    "id > 'k4'",
    "text = 'running word3'",
    "text IS NULL",
    "flag",
    "NOT flag",
    "flag IS NULL",
    "day < date '1970-01-09'",
    "day IS NOT NULL",
    "at >= timestamp '1970-01-01 00:00:12'",
    "real = 0.0",
    "real < 0.0",
    "real >= 4.0",
    "NOT (real > 1.0)",
    "real IS NULL",
    "big > 18446744073709551595",
    "big = 18446744073709551610",
)


def rows(start: int, stop: int) -> pa.Table:
    """Rows with nulls, both zeros and the largest numbers in them."""
    numbers = range(start, stop)
    values: dict[str, list[Any]] = {
        "id": [f"k{n}" for n in numbers],
        "text": [None if n % 4 == 0 else f"running word{n % 9}" for n in numbers],
        "flag": [None if n % 11 == 0 else n % 2 == 0 for n in numbers],
        "day": [None if n % 11 == 0 else n for n in numbers],
        "at": [n * 1_000 for n in numbers],
        "real": [None if n % 13 == 0 else (-0.0, 0.0, n / 3)[min(n % 7, 2)] for n in numbers],
        "big": [2**64 - 1 - n for n in numbers],
        "vector": [None if n % 5 == 0 else [n % 7, n % 3, 1, n] for n in numbers],
    }
    return pa.table(values, schema=SCHEMA)


class Place:
    """One dataset and the shortest ways to change it."""

    def __init__(self, store: LanceStore, where: DatasetRef) -> None:
        self.store = store
        self.where = where
        self._uuids = (f"change-{n}" for n in range(1_000))

    @property
    def handle(self) -> Handle:
        return self.store.open(self.where)

    def index(self, *specs: IndexSpec) -> Handle:
        return self.commit(stage_indexes(self.handle, specs, self.uuid()))

    def append(self, start: int, stop: int) -> Handle:
        return self.commit(transactions.stage_append(self.handle, rows(start, stop), self.uuid()))

    def upsert(self, changed: pa.Table) -> Handle:
        return self.commit(transactions.stage_upsert(self.handle, changed, self.uuid()))

    def delete(self, *ids: str) -> Handle:
        return self.commit(transactions.stage_delete(self.handle, pa.array(ids), self.uuid()))

    def compact(self) -> Handle:
        staged = stage_compaction(self.handle, self.uuid())
        assert staged is not None
        return self.commit(staged)

    def commit(self, staged: lance.Transaction) -> Handle:
        return self.store.commit(self.handle, staged)

    def uuid(self) -> str:
        return f"{self.where.ref or 'main'}-{next(self._uuids)}"

    def forked(self, ref: str) -> Place:
        self.store.create_ref(self.where, ref, self.handle.version)
        return Place(self.store, self.where.on(ref))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    store = LanceStore(Root.parse(tmp_path))
    where = DatasetRef(f"{store.root.uri}/table")
    store.create(where, SCHEMA, rows(0, 40), "create")
    yield Place(store, where)


def by_spec(handle: Handle) -> dict[IndexSpec, TableIndex]:
    return {index.spec: index for index in indexes_of(handle)}


def require_same_answers(handle: Handle) -> None:
    """Every filter, text search and exact vector search finds what a plain scan finds."""
    scanned = handle.to_table(columns=["id", "text", "vector"])
    for condition in FILTERS:
        with_index = handle.to_table(columns=["id"], filter=condition)
        without = handle.to_table(columns=["id"], filter=condition, use_scalar_index=False)
        assert ids(with_index) == ids(without), condition
    if IndexSpec("text", "inverted") in by_spec(handle):
        # Without an index Lance compares words as they stand, which is no search of ours.
        words = MatchQuery("runs", "text")
        found = handle.to_table(columns=["id", "_score"], full_text_query=words)
        assert ids(found) == ids(scanned.filter(pc.is_valid(scanned["text"])))
    query = np.array([1, 1, 1, 20], np.float32)
    vectors = scanned.filter(pc.is_valid(scanned["vector"]))
    distances = [float(((query - row) ** 2).sum()) for row in vectors["vector"].to_pylist()]
    nearest = {"column": "vector", "q": query, "k": scanned.num_rows, "nprobes": 10_000}
    searched = handle.to_table(columns=["id", "_distance"], nearest=nearest)
    assert ids(searched) == ids(vectors)
    assert searched["_distance"].to_pylist() == sorted(distances)


def ids(table: pa.Table) -> list[str]:
    return sorted(table["id"].to_pylist())


def test_c_mnt_019_all_indexes_of_a_table_are_one_transaction_of_ours(place: Place) -> None:
    landed = place.commit(stage_indexes(place.handle, ALL, "ours"))
    assert landed.version == 2
    assert transaction_uuid(landed, 2) == "ours"
    assert set(by_spec(landed)) == set(ALL)
    require_same_answers(landed)


def test_staging_alone_leaves_the_table_as_it_was(place: Place) -> None:
    stage_indexes(place.handle, ALL, "staged")
    assert place.handle.version == 1
    assert indexes_of(place.handle) == []


def test_indexes_are_really_used(place: Place) -> None:
    handle = place.index(*ALL)
    for condition in FILTERS:
        plan = handle.scanner(columns=["id"], filter=condition).explain_plan()
        assert "ScalarIndexQuery" in plan, condition
    words = handle.scanner(full_text_query=MatchQuery("runs", "text")).explain_plan()
    assert "MatchQuery" in words
    assert "FlatMatchQuery" not in words
    nearest = {"column": "vector", "q": np.zeros(4, np.float32), "k": 3}
    assert "ANNSubIndex" in handle.scanner(nearest=nearest).explain_plan()


def test_c_srch_020_rows_written_after_the_build_are_found_and_not_covered(place: Place) -> None:
    place.index(*ALL)
    handle = place.append(40, 60)
    for index in indexes_of(handle):
        assert (index.rows_covered, index.rows_uncovered) == (40, 20)
    require_same_answers(handle)


def test_answers_stay_right_through_updates_deletes_and_compaction(place: Place) -> None:
    place.index(*ALL)
    place.append(40, 50)
    changed = rows(5, 9).set_column(1, "text", pa.array(["running late"] * 4))
    require_same_answers(place.upsert(changed))
    require_same_answers(place.delete("k3", "k10", "k11", "k12", "k13", "k44"))
    require_same_answers(place.compact())
    place.index(IndexSpec("real", "btree"))
    require_same_answers(place.append(60, 70))


def test_an_index_that_compaction_emptied_is_missing_and_replaced(place: Place) -> None:
    place.index(*ALL)
    for start in (40, 42, 44):
        place.append(start, start + 2)
    place.delete(*(f"k{n}" for n in range(10)))
    handle = place.compact()
    missing = missing_indexes(handle, ALL)
    assert missing == [spec for spec in ALL if spec.kind == "btree"]
    rebuilt = place.index(*missing)
    assert missing_indexes(rebuilt, ALL) == []
    assert all(len(index.segments) == 1 for index in indexes_of(rebuilt))
    assert by_spec(rebuilt)[IndexSpec("id", "btree")].rows_uncovered == 0
    require_same_answers(rebuilt)


def test_a_branch_inherits_indexes_and_builds_its_own(place: Place) -> None:
    before = ALL[:3]
    place.index(*before)
    branch = place.forked("gb-one")
    assert missing_indexes(branch.handle, ALL) == list(ALL[3:])
    branch.append(40, 50)
    handle = branch.index(*ALL[3:])
    assert set(by_spec(handle)) == set(ALL)
    require_same_answers(handle)
    assert set(by_spec(place.handle)) == set(before)
    second = branch.forked("gb-two")
    second.upsert(rows(8, 12))
    require_same_answers(second.handle)
    # What Lance's own compaction breaks: an index whose files belong to another branch.
    second.append(50, 55)
    require_same_answers(second.compact())
    require_same_answers(second.index(*missing_indexes(second.handle, ALL)))
    require_same_answers(branch.handle)


def test_a_column_that_takes_over_a_name_gets_an_index_of_its_own(place: Place) -> None:
    place.index(IndexSpec("real", "btree"))
    place.handle.alter_columns({"path": "real", "name": "former"})  # type: ignore[dict-item]
    place.handle.add_columns(pa.field("real", pa.float64()))
    handle = place.index(IndexSpec("real", "btree"))
    assert set(by_spec(handle)) == {IndexSpec("former", "btree"), IndexSpec("real", "btree")}
    assert len({index.name for index in indexes_of(handle)}) == 2


def test_indexes_under_other_names_count(place: Place) -> None:
    place.handle.create_scalar_index("id", "BTREE", name="by_somebody_else")
    assert missing_indexes(place.handle, ALL[:1]) == []


@pytest.mark.parametrize("vectors", [1, 2, 300])
def test_c_mnt_021_few_vectors_among_nulls_are_enough(tmp_path: Path, vectors: int) -> None:
    store = LanceStore(Root.parse(tmp_path))
    values = [None] * 300 + [[1.0, 2.0, 3.0, float(n)] for n in range(vectors)]
    table = rows(0, len(values)).set_column(7, SCHEMA.field("vector"), pa.array(values, VECTOR))
    where = DatasetRef(f"{store.root.uri}/table")
    handle = store.create(where, SCHEMA, table, "create")
    spec = IndexSpec("vector", "vector")
    assert why_not_buildable(handle, spec) is None
    require_same_answers(store.commit(handle, stage_indexes(handle, [spec], "ours")))


def test_c_mnt_021_a_column_without_vectors_has_to_wait(place: Place) -> None:
    nothing = pa.array([None] * 40, VECTOR)
    empty = rows(0, 40).set_column(7, SCHEMA.field("vector"), nothing)
    handle = place.commit(transactions.stage_replace(place.handle, empty, "empty"))
    pending = why_not_buildable(handle, IndexSpec("vector", "vector"))
    assert pending is not None
    assert (pending.property, "null" in pending.reason) == ("vector", True)
    assert why_not_buildable(handle, IndexSpec("text", "inverted")) is None
    with pytest.raises(StorageError):
        stage_indexes(handle, [IndexSpec("vector", "vector")], "impossible")


def test_words_of_a_column_that_had_none_are_found_later(place: Place) -> None:
    silent = rows(0, 40).set_column(1, SCHEMA.field("text"), pa.array([None] * 40, pa.string()))
    place.commit(transactions.stage_replace(place.handle, silent, "silent"))
    place.index(IndexSpec("text", "inverted"))
    handle = place.append(40, 50)
    require_same_answers(handle)


def test_replacing_a_table_drops_its_indexes(place: Place) -> None:
    place.index(*ALL)
    handle = place.commit(transactions.stage_replace(place.handle, rows(0, 5), "replace"))
    assert missing_indexes(handle, ALL) == list(ALL)


def test_every_file_of_a_compaction_is_flushed(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.append(40, 50)
    known = set(Path(place.where.uri).rglob("data/*.lance"))
    flushed: set[Path] = set()
    monkeypatch.setattr(
        "omnigraph.storage.datasets.flush_tree", lambda root, files, *how: flushed.update(files)
    )
    place.compact()
    new = set(Path(place.where.uri).rglob("data/*.lance")) - known
    assert new
    assert new <= flushed


def test_every_file_of_an_index_is_flushed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: set[Path] = set()
    monkeypatch.setattr(
        "omnigraph.storage.datasets.flush_tree", lambda root, files, *how: flushed.update(files)
    )
    branch = place.forked("gb-one")
    for each in (place, branch):
        landed = each.index(*ALL)
        files = {path for path in (Path(landed.uri) / "_indices").rglob("*") if path.is_file()}
        assert len(files) > len(ALL)
        assert files <= flushed
