"""Commits whose next version is made on this machine, and uploaded by one conditional write."""

from __future__ import annotations

import gc
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lance
import pyarrow as pa
import pytest

from omnigraph.effects.failures import FailureClass, StorageFailure
from omnigraph.effects.objects import ObjectStore
from omnigraph.effects.requests import measure
from omnigraph.effects.uri import Root
from omnigraph.storage import transactions
from omnigraph.storage.datasets import LanceStore
from omnigraph.storage.transactions import (
    CommitLost,
    CommitOutcomeUnknown,
    DatasetRef,
    transactions_since,
)

COLUMNS = pa.schema([pa.field("id", pa.string(), nullable=False), pa.field("n", pa.int64())])


def rows(*ids: str) -> pa.Table:
    return pa.table({"id": list(ids), "n": [len(each) for each in ids]}, schema=COLUMNS)


@pytest.fixture
def store(uri: str) -> LanceStore:
    return LanceStore(Root.parse(uri))


@pytest.fixture
def where(store: LanceStore) -> DatasetRef:
    where = DatasetRef(f"{store.root.uri}/nodes/1")
    store.create(where, COLUMNS, rows("a"), "made")
    return where


def ids_at(store: LanceStore, where: DatasetRef) -> list[str]:
    """What a process that knows nothing of drafts reads."""
    options = store.root.storage_options()
    return sorted(
        lance.dataset(where.address, storage_options=options).to_table()["id"].to_pylist()
    )


def appended(store: LanceStore, handle: lance.LanceDataset, id: str) -> lance.LanceDataset:
    return store.commit(handle, transactions.stage_append(handle, rows(id), f"tx-{id}"))


@contextmanager
def writes_answered(
    monkeypatch: pytest.MonkeyPatch, *, landed: bool, class_: FailureClass
) -> Iterator[None]:
    """Each conditional creation fails, after it was done or before."""
    from omnigraph.effects.remote_objects import RemoteObjects

    create = RemoteObjects.write_if_absent

    def fail(self: ObjectStore, key: str, data: bytes) -> bool:
        if landed:
            create(self, key, data)  # type: ignore[arg-type]
        raise StorageFailure(class_, "create", key, "no answer")

    with monkeypatch.context() as patched:
        patched.setattr(RemoteObjects, "write_if_absent", fail)
        yield


def test_a_chain_of_commits_asks_for_nothing_but_the_upload_of_each(
    store: LanceStore, where: DatasetRef
) -> None:
    handle = appended(store, store.open(where), "b")
    with measure(tracing=True) as io:
        staged = store.stage_apart(
            handle, lambda draft: transactions.appended(draft, rows("c"), "tx-c"), only_adds=True
        )
        assert staged is not None
        transaction, files = staged
        files.send()
        landed = store.commit(handle, transaction)
        assert (landed.version, landed.count_rows()) == (3, 3)
    assert [event.verb for event in io.report().events] == ["write", "create"]
    assert ids_at(store, where) == ["a", "b", "c"]
    assert landed.to_table()["id"].to_pylist() == ["a", "b", "c"]


def test_lance_reads_and_continues_what_was_drafted(store: LanceStore, where: DatasetRef) -> None:
    stale = store.open(where)
    landed = appended(store, stale, "b")
    options = store.root.storage_options()
    # A writer that uses Lance alone rebases on it, and so has to read the transaction.
    lance.write_dataset(rows("c"), where.address, mode="append", storage_options=options)
    assert transactions_since(store.open(where), 1)[0] == "tx-b"
    with pytest.raises(CommitLost):
        appended(store, landed, "d")
    assert ids_at(store, where) == ["a", "b", "c"]
    newest = lance.dataset(where.address, storage_options=options)
    newest.create_scalar_index("id", "BTREE")
    appended(store, store.open(where), "e")
    found = lance.dataset(where.address, storage_options=options)
    assert found.to_table(filter="id in ('a', 'e')").num_rows == 2
    assert [index.name for index in found.describe_indices()] == ["id_idx"]


def test_a_stale_transaction_is_lost_and_never_rebased(
    store: LanceStore, where: DatasetRef
) -> None:
    first, second = store.open(where), LanceStore(store.root).open(where)
    appended(store, first, "b")
    other = LanceStore(store.root)
    with pytest.raises(CommitLost):
        appended(other, second, "c")
    assert ids_at(store, where) == ["a", "b"]
    # What was made of the draft is not in the store, so it is not used again.
    appended(other, other.open(where), "d")
    assert ids_at(store, where) == ["a", "b", "d"]


def test_a_lost_answer_is_settled_by_the_bytes_under_the_name(
    store: LanceStore, where: DatasetRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = store.open(where)
    with writes_answered(monkeypatch, landed=True, class_=FailureClass.UNKNOWN):
        landed = appended(store, handle, "b")
    with writes_answered(monkeypatch, landed=False, class_=FailureClass.PERMANENT):
        with pytest.raises(CommitLost) as refused:
            appended(store, landed, "c")
        assert isinstance(refused.value.__cause__, StorageFailure)
    appended(store, landed, "d")
    assert ids_at(store, where) == ["a", "b", "d"]


def test_a_store_that_cannot_be_asked_leaves_the_outcome_unknown(
    store: LanceStore, where: DatasetRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    from omnigraph.effects.remote_objects import RemoteObjects

    handle = store.open(where)
    transaction = transactions.stage_append(handle, rows("b"), "tx-b")
    drafted = store.draft(handle, transaction)
    assert drafted is not None

    def unreadable(self: ObjectStore, key: str) -> bytes:
        raise StorageFailure(FailureClass.TRANSIENT, "read", key, "no answer")

    monkeypatch.setattr(RemoteObjects, "read_if_exists", unreadable)
    with (
        writes_answered(monkeypatch, landed=True, class_=FailureClass.TRANSIENT),
        pytest.raises(CommitOutcomeUnknown),
    ):
        store.land(drafted)
    assert ids_at(store, where) == ["a", "b"]


def test_without_room_for_drafts_lance_commits(
    store: LanceStore, where: DatasetRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*given: object, **options: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "mkdtemp", full)
    handle = store.open(where)
    with measure() as io:
        landed = appended(store, handle, "b")
    assert io.report().count("lance", "commit") == 1
    assert landed.version == 2
    assert ids_at(store, where) == ["a", "b"]


def test_a_branch_is_written_to_through_its_drafts(store: LanceStore, where: DatasetRef) -> None:
    store.create_ref(where, "gb-1", 1)
    fork = where.on("gb-1")
    handle = appended(store, store.open(fork), "b")
    handle = appended(store, handle, "c")
    assert ids_at(store, fork) == ["a", "b", "c"]
    assert ids_at(store, where) == ["a"]


def test_folders_of_drafts_go_with_their_store(
    store: LanceStore, where: DatasetRef, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    own = LanceStore(store.root)
    handle = appended(own, own.open(where), "b")
    assert len(list(tmp_path.iterdir())) == 1
    appended(own, handle, "c")
    assert len(list(tmp_path.iterdir())) == 1
    del own, handle
    gc.collect()
    assert not list(tmp_path.iterdir())
