"""Snapshots as a fold over rows: what is visible at which commit."""

from __future__ import annotations

import pytest

from omnigraph.errors import InternalError, NotFound, UnresolvedRevision
from omnigraph.storage.manifest import ManifestState
from omnigraph.storage.manifest_rows import (
    CommitRow,
    HeadRow,
    ManifestRow,
    TableIdentity,
    TableRow,
    TombstoneRow,
    VersionRow,
    decode_rows,
    encode_rows,
)

OLD = TableIdentity(1, 10)
NEW = TableIdentity(1, 20)
OTHER = TableIdentity(2, 11)


def commit(seq: int) -> CommitRow:
    return CommitRow(
        commit_id=f"c{seq}",
        branch=None,
        manifest_version=seq + 1,
        commit_seq=seq,
        parent_commit_id=f"c{seq - 1}" if seq else None,
        merged_parent_commit_id=None,
        actor_id=None,
        kind="mutation" if seq else "genesis",
        schema_hash="sha256:x",
        created_at=seq,
    )


def state(*rows: ManifestRow, head: int = 0) -> ManifestState:
    history = [commit(seq) for seq in range(head + 1)]
    return ManifestState.fold(
        "main", None, head + 1, [*rows, *history, HeadRow("main", f"c{head}", 0, head)]
    )


def test_c_sto_009_the_greatest_version_per_identity_is_visible() -> None:
    folded = state(
        TableRow(OLD, "node:A", "nodes/a", 0),
        VersionRow(OLD, 1, None, 0, 0),
        VersionRow(OLD, 9, None, 5, 1),
        VersionRow(OLD, 10, None, 7, 2),
        head=2,
    )
    entry = folded.head_snapshot().table("node:A")
    assert (entry.version, entry.row_count) == (10, 7)


def test_c_sto_009_a_tombstone_hides_only_its_own_identity() -> None:
    folded = state(
        TableRow(OLD, "node:A", "nodes/a", 0),
        VersionRow(OLD, 3, None, 1, 0),
        TombstoneRow(OLD, 3, 1),
        TableRow(NEW, "node:A", "nodes/b", 1),
        VersionRow(NEW, 1, None, 0, 1),
        head=1,
    )
    assert folded.head_snapshot().table("node:A").identity == NEW
    assert folded.snapshot_at("c0").table("node:A").identity == OLD


def test_c_sto_009_a_version_above_the_tombstone_stays_visible() -> None:
    folded = state(
        TableRow(OLD, "node:A", "nodes/a", 0),
        TombstoneRow(OLD, 3, 0),
        VersionRow(OLD, 4, None, 1, 0),
    )
    assert folded.head_snapshot().table("node:A").version == 4


def test_c_sto_010_two_live_identities_under_one_alias_fail_loudly() -> None:
    folded = state(
        TableRow(OLD, "node:A", "nodes/a", 0),
        VersionRow(OLD, 1, None, 0, 0),
        TableRow(NEW, "node:A", "nodes/b", 0),
        VersionRow(NEW, 1, None, 0, 0),
    )
    with pytest.raises(InternalError, match="node:A"):
        folded.head_snapshot()


def test_a_snapshot_of_an_older_commit_folds_only_what_it_could_see() -> None:
    folded = state(
        TableRow(OLD, "node:A", "nodes/a", 0),
        VersionRow(OLD, 1, None, 0, 0),
        VersionRow(OLD, 2, None, 1, 1),
        VersionRow(OLD, 3, None, 2, 2),
        head=2,
    )
    assert [folded.snapshot_at(f"c{n}").table("node:A").version for n in range(3)] == [1, 2, 3]


def test_an_unknown_commit_and_an_unknown_type_are_not_found() -> None:
    folded = state()
    with pytest.raises(UnresolvedRevision, match="nope"):
        folded.snapshot_at("nope")
    with pytest.raises(NotFound, match="does not exist at this snapshot"):
        folded.head_snapshot().table("node:Missing")


def test_adding_rows_one_publish_at_a_time_equals_one_fold() -> None:
    steps: list[list[ManifestRow]] = [
        [TableRow(OTHER, "node:B", "nodes/b", 0), VersionRow(OTHER, 1, None, 0, 0)],
        [VersionRow(OTHER, 2, None, 4, 1)],
        [TombstoneRow(OTHER, 2, 2)],
        [VersionRow(OTHER, 3, "gb-x", 9, 3)],
    ]
    grown = state(*steps[0])
    for at, rows in enumerate(steps[1:], start=1):
        grown = grown.with_rows(at + 1, [*rows, commit(at), HeadRow("main", f"c{at}", 0, at)])
    whole = state(*[row for rows in steps for row in rows], head=3)
    assert grown.head_snapshot() == whole.head_snapshot()
    assert [grown.snapshot_at(f"c{n}").tables for n in range(4)] == [
        whole.snapshot_at(f"c{n}").tables for n in range(4)
    ]


def test_c_sto_008_rows_are_decoded_from_columns_whatever_the_object_id_says() -> None:
    rows: list[ManifestRow] = [
        TableRow(OLD, "node:A", "nodes/a", 0),
        VersionRow(OLD, 7, "gb-1", 3, 2),
        TombstoneRow(OLD, 7, 3),
        commit(4),
        HeadRow("feature/x", "c4", 12, 4),
    ]
    table = encode_rows(rows)
    scrambled = table.set_column(0, table.schema.field(0), [[f"garbage-{n}" for n in range(5)]])
    assert decode_rows(scrambled) == rows
