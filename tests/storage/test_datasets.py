"""Strict commits: a staged transaction lands as the very next version, or is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lance
import pyarrow as pa
import pytest

from omnigraph.errors import HistoricalVersionReclaimed, NotFound
from omnigraph.storage import fragments, transactions
from omnigraph.storage.datasets import Handle
from omnigraph.storage.transactions import (
    CommitLost,
    CommitNotOwned,
    DatasetRef,
    StagedTransaction,
    commit_strict,
    transaction_uuid,
)
from tests.support.graphs import TestGraph


@pytest.fixture
def person(graph: TestGraph) -> DatasetRef:
    entry = graph.snapshot().table("node:Person")
    return DatasetRef(graph.kernel.table_uri(entry.location))


def staged(
    graph: TestGraph, handle: Handle, name: str, uuid: str, kind: str = "append"
) -> StagedTransaction:
    rows = graph.persons(name).tables["node:Person"].rows
    stage = {
        "append": transactions.stage_append,
        "upsert": transactions.stage_upsert,
        "replace": transactions.stage_replace,
    }[kind]
    return stage(handle, rows, uuid)


def test_a_strict_commit_is_the_next_version_and_carries_its_uuid(
    graph: TestGraph, person: DatasetRef
) -> None:
    handle = graph.kernel.lance.open(person)
    landed = commit_strict(handle, staged(graph, handle, "a", "tx-1"))
    assert landed.version == handle.version + 1
    assert transaction_uuid(landed, landed.version) == "tx-1"


def test_c_wrt_034_a_silently_rebased_commit_is_detected(
    graph: TestGraph, person: DatasetRef
) -> None:
    handle = graph.kernel.lance.open(person)
    stale = staged(graph, handle, "stale", "tx-stale")
    commit_strict(handle, staged(graph, handle, "first", "tx-first"))
    with pytest.raises(CommitNotOwned) as caught:
        commit_strict(handle, stale)
    assert caught.value.details["version"] == handle.version + 2


def test_a_conflicting_commit_is_lost_without_effect(graph: TestGraph, person: DatasetRef) -> None:
    handle = graph.kernel.lance.open(person)
    stale = staged(graph, handle, "stale", "tx-stale", "replace")
    commit_strict(handle, staged(graph, handle, "first", "tx-first"))
    with pytest.raises(CommitLost) as caught:
        commit_strict(handle, stale)
    assert caught.value.details["conflict"]
    assert graph.kernel.lance.open(person).to_table()["id"].to_pylist() == ["first"]


def test_a_commit_that_failed_but_landed_is_recognised_as_ours(
    graph: TestGraph, person: DatasetRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = graph.kernel.lance.open(person)
    transaction = staged(graph, handle, "a", "tx-1")
    real = Handle.commit

    def lands_but_fails(*args: Any, **options: Any) -> None:
        real(*args, **options)
        raise OSError("connection reset")

    monkeypatch.setattr(Handle, "commit", staticmethod(lands_but_fails))
    landed = commit_strict(handle, transaction)
    assert landed.version == handle.version + 1
    assert landed.to_table()["id"].to_pylist() == ["a"]


def test_restore_brings_an_older_version_back_under_its_own_uuid(
    graph: TestGraph, person: DatasetRef
) -> None:
    first = graph.kernel.lance.open(person)
    second = commit_strict(first, staged(graph, first, "a", "tx-1"))
    third = commit_strict(second, transactions.stage_restore(second, first.version, "undo-1"))
    assert third.version == second.version + 1
    assert third.count_rows() == 0
    assert transaction_uuid(third, third.version) == "undo-1"


def test_c_sto_014_a_version_that_is_gone_is_told_from_a_dataset_that_never_was(
    graph: TestGraph, person: DatasetRef
) -> None:
    lance = graph.kernel.lance
    with pytest.raises(HistoricalVersionReclaimed, match="version 99"):
        lance.open(person, 99)
    with pytest.raises(NotFound):
        lance.open(DatasetRef(person.uri + "-absent"), 1)
    with pytest.raises(NotFound):
        lance.open(person.on("gb-absent"))


def test_a_fork_is_addressed_by_its_own_uri_and_leaves_the_parent_alone(
    graph: TestGraph, person: DatasetRef
) -> None:
    lance = graph.kernel.lance
    fork = lance.create_ref(person, "gb-one", 1)
    assert fork.uri.endswith("/tree/gb-one")
    commit_strict(fork, staged(graph, fork, "a", "tx-1"))
    assert lance.open(person.on("gb-one")).count_rows() == 1
    assert lance.open(person).count_rows() == 0
    lance.delete_ref(person.on("gb-one"))
    assert lance.refs(person) == {}
    lance.delete_ref(person.on("gb-one"))


@pytest.mark.parametrize("kind", ["append", "upsert", "replace"])
def test_c_sto_006_and_007_every_change_keeps_the_primary_key_and_stable_row_ids(
    graph: TestGraph, person: DatasetRef, kind: str
) -> None:
    handle = graph.kernel.lance.open(person)
    landed = commit_strict(handle, staged(graph, handle, "a", "tx-1", kind))
    metadata = landed.schema.field("id").metadata
    assert metadata[b"lance-schema:unenforced-primary-key"] == b"true"
    assert landed.has_stable_row_ids


def test_a_long_lookup_finds_the_same_rows_as_a_short_one(
    graph: TestGraph, person: DatasetRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    handle = graph.kernel.lance.open(person)
    handle = commit_strict(
        handle,
        transactions.stage_append(
            handle, graph.persons("a'b", "c?d", 'e"f', "g").tables["node:Person"].rows, "tx"
        ),
    )
    wanted = pa.array(["a'b", "c?d", 'e"f', "absent"])
    short = fragments.rows_where_in(handle, "id", wanted, ["name"])
    monkeypatch.setattr(fragments, "LOOKUP_VALUES_MAX", 1)
    long = fragments.rows_where_in(handle, "id", wanted, ["name"])
    assert sorted(short["name"].to_pylist()) == sorted(long["name"].to_pylist())
    assert short.schema.names == long.schema.names == ["name"]
    assert short.num_rows == 3


def test_a_lookup_narrowed_by_another_column_leaves_only_rows_out_that_lack_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = [(src, dst) for src in "abc" for dst in "xyz"]
    rows = pa.table({"src": [src for src, _ in ends], "dst": [dst for _, dst in ends]})
    handle = lance.write_dataset(rows, str(tmp_path / "edges.lance"))

    def found() -> list[tuple[str, str]]:
        table = fragments.rows_where_in(
            handle,
            "src",
            pa.array(["a", "c", "it's"]),
            ["src", "dst"],
            narrowed_by={"dst": pa.array(["x", "%"])},
        )
        return sorted(zip(*table.to_pydict().values(), strict=True))

    narrowed = [("a", "x"), ("c", "x")]
    assert found() == narrowed
    for column in ("src", "dst"):
        handle.create_scalar_index(column, "BTREE")
    assert found() == narrowed
    monkeypatch.setattr(fragments, "LOOKUP_VALUES_MAX", 1)
    assert set(narrowed) <= set(found())
