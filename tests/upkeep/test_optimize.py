"""Making main compact and its indexes complete."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lance import LanceOperation, Transaction

import omnigraph as og
from omnigraph.commit.plan import NO_ROWS, ChangeSet, Intent, TableChange
from omnigraph.commit.writer import WriteAttempt
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import Conflict, RecoveryRequired, StorageError
from omnigraph.graph import open_graph
from omnigraph.model.types import IndexSpec
from omnigraph.model.upkeep import OptimizedTable, OptimizeReceipt
from omnigraph.schema.catalog import declared_indexes
from omnigraph.storage import table_upkeep
from omnigraph.storage.datasets import Handle, LanceStore
from omnigraph.storage.indexes import indexes_of
from omnigraph.storage.table_upkeep import (
    ChangeIndexes,
    Extent,
    UpkeepStep,
    cleanup_settings,
    work_on,
)
from omnigraph.upkeep.optimize import plan_optimize
from tests.storage.footprint import contents
from tests.support.graphs import with_edge_ids, with_settings
from tests.support.templates import copy_of

SCHEMA = """
node Memo {
    code: String @key
    body: String? @index
    size: I32? @index
    leaf: Vector(4)? @index
}
node Photo { name: String @key  image: Blob? }
node Label { name: String @key }
edge Replies: Memo -> Memo
"""
ADD = 'query add($code: String) { insert Memo { code: $code, body: "new thoughts" } }'
DROP = "query drop($code: String) { delete Memo where code = $code }"
RESIZE = "query r($code: String, $n: I32) { update Memo set { size: $n } where code = $code }"
AGGRESSIVE = {"lance.auto_cleanup.interval": "1", "lance.auto_cleanup.older_than": "0ms"}
ROW_HISTORY = ["id", "_rowid", "_row_created_at_version", "_row_last_updated_at_version"]


def memo(number: int, **more: Any) -> dict[str, Any]:
    data = {"code": f"m{number}", "body": f"running thought {number}", "size": number}
    return {"type": "Memo", "data": {**data, **more}}


def load(graph: og.Graph, *records: Mapping[str, Any], branch: str | None = None) -> None:
    graph.load(data="\n".join(map(json.dumps, with_edge_ids(records))), mode="merge", branch=branch)


def _filled(root: Path) -> None:
    graph = og.init(root, schema=SCHEMA)
    load(graph, *(memo(n, leaf=[n, 0, 1, 2]) for n in range(20)), reply(1), reply(2))
    for number in range(20, 24):
        load(graph, memo(number))
    load(graph, reply(3))
    graph.mutate(DROP, {"code": "m7"})
    graph.mutate(RESIZE, {"code": "m8", "n": 800})


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """Memos in several fragments, some of them deleted or updated, and replies in two."""
    copy_of(_filled, tmp_path / "graph.omni")
    return og.open(tmp_path / "graph.omni")


def reply(number: int) -> dict[str, Any]:
    return {"edge": "Replies", "from": f"m{number}", "to": "m0", "data": {}}


def handle(graph: og.Graph, type_key: str = "node:Memo") -> Handle:
    return graph._opened.reader("main").handle(type_key)


def row(receipt: OptimizeReceipt, type_key: str) -> OptimizedTable:
    (found,) = [table for table in receipt.tables if table.type_key == type_key]
    return found


def fragments(graph: og.Graph, type_key: str = "node:Memo") -> int:
    return len(handle(graph, type_key).get_fragments())


def exported(graph: og.Graph) -> bytes:
    return b"".join(graph.export())


def gaps(graph: og.Graph) -> dict[str, int]:
    """Rows that an index of a memo does not cover."""
    return {str(index.spec): index.rows_uncovered for index in indexes_of(handle(graph))}


def require_no_drift(graph: og.Graph) -> None:
    kernel = graph._kernel
    reader = graph._opened.reader("main")
    for entry in reader.snapshot.tables.values():
        assert kernel.lance.open(reader.where(entry)).version == entry.version, entry.table_key


@contextmanager
def meanwhile(point: Failpoint, work: Callable[[], object]) -> Iterator[None]:
    """Do something once, when a failpoint is passed."""
    waiting = [work]

    def overtake(_: Failpoint) -> None:
        if waiting:
            waiting.pop()()

    with armed({point: overtake}):
        yield
    assert not waiting


# --- what it does ---------------------------------------------------------------------------------


def test_c_mnt_001_an_empty_graph_has_a_row_for_every_table_and_gets_no_commit(
    tmp_path: Path,
) -> None:
    graph = og.init(tmp_path / "empty.omni", schema=SCHEMA)
    receipt = graph.optimize()
    keys = [table.type_key for table in receipt.tables]
    assert keys == ["node:Label", "node:Memo", "node:Photo", "edge:Replies", "__manifest"]
    assert receipt.graph_commit_id is None
    assert len(graph.list_commits()) == 1


def test_c_mnt_002_a_second_run_writes_nothing(graph: og.Graph) -> None:
    graph.optimize()
    before = contents(Path(graph.uri))
    again = graph.optimize()
    assert again.graph_commit_id is None
    assert not any(table.committed or table.fragments_removed for table in again.tables)
    after = contents(Path(graph.uri))
    assert {n: s for n, s in after.items() if "__lease" not in n} == {
        n: s for n, s in before.items() if "__lease" not in n
    }


def test_c_mnt_003_pins_stand_at_heads_and_rows_are_unchanged(graph: og.Graph) -> None:
    before = exported(graph)
    receipt = graph.optimize()
    require_no_drift(graph)
    assert exported(graph) == before
    assert fragments(graph) == 1
    assert handle(graph).get_fragments()[0].metadata.num_deletions == 0
    memos = row(receipt, "node:Memo")
    assert (memos.fragments_removed, memos.fragments_added, memos.committed) == (6, 1, True)
    assert memos.published_dataset_version == memos.lance_head_version == handle(graph).version


def test_c_mnt_004_all_tables_share_one_commit_of_kind_maintenance(graph: og.Graph) -> None:
    commits = len(graph.list_commits())
    receipt = graph.optimize()
    committed = {table.type_key for table in receipt.tables if table.committed}
    assert committed == {"node:Memo", "edge:Replies", "__manifest"}
    assert len(graph.list_commits()) == commits + 1
    newest = graph._kernel.manifest.main.state.lineage()[0]
    assert newest.commit_id == receipt.graph_commit_id
    assert (newest.kind, newest.actor_id) == ("maintenance", "omnigraph:upkeep")


def test_c_mnt_005_writes_succeed_right_after_also_from_an_older_handle(graph: og.Graph) -> None:
    older = open_graph(graph.uri)
    older.snapshot()
    graph.optimize()
    older.mutate(RESIZE, {"code": "m1", "n": 5})
    older.mutate(ADD, {"code": "later"})
    graph.mutate(RESIZE, {"code": "m2", "n": 6})
    sizes = {each: graph.entity_at("node:Memo", each) for each in ("m1", "m2", "later")}
    assert [found and found["size"] for found in sizes.values()] == [5, 6, None]


def test_c_mnt_006_no_version_goes_even_with_a_stored_cleanup_configuration(
    graph: og.Graph,
) -> None:
    manifest = graph._kernel.manifest.main
    for type_key in ("node:Memo", "edge:Replies"):
        upkeep(graph, type_key, CleanUpAlways())
    staged = CleanUpAlways().stage(manifest.handle, "aggressive")
    landed = graph._kernel.lance.commit(manifest.handle, staged)
    manifest.adopt(landed, manifest.state.with_rows(landed.version, []))
    before = {key: versions(handle(graph, key)) for key in ("node:Memo", "edge:Replies")}
    of_manifest = versions(landed)
    graph.optimize()
    for type_key, known in before.items():
        assert known < versions(handle(graph, type_key)), type_key
        assert cleanup_settings(handle(graph, type_key)) == ()
    assert cleanup_settings(manifest.handle) == ()
    assert of_manifest < versions(manifest.handle)


class CleanUpAlways:
    """The opposite of what `KeepVersions` does."""

    rewrites = False

    def stage(self, handle: Handle, uuid: str) -> Transaction:
        change = LanceOperation.UpdateConfig(LanceOperation.UpdateMap(dict(AGGRESSIVE)))
        return Transaction(handle.version, change, uuid=uuid)


def upkeep(graph: og.Graph, type_key: str, *steps: UpkeepStep) -> None:
    """Take steps of upkeep, published like any other."""
    kernel = graph._kernel
    capture = kernel.capture(
        kernel.manifest.refreshed("main"), graph._opened.accepted().schema_hash
    )
    changes = ChangeSet({type_key: TableChange(type_key, "upkeep", NO_ROWS, steps)})
    attempt = WriteAttempt(kernel, capture, changes, Intent("Optimize", "maintenance"))
    attempt.stage()
    with attempt.owned_branch() as lease:
        attempt.commit(lease)


def declared(graph: og.Graph) -> list[IndexSpec]:
    """The indexes that memos should have."""
    return list(declared_indexes(graph._opened.accepted().catalog.nodes["Memo"]))


def versions(dataset: Handle) -> set[int]:
    return {each["version"] for each in dataset.versions()}


def test_c_mnt_007_rows_written_after_an_index_was_built_are_covered(graph: og.Graph) -> None:
    graph.ensure_indices()
    load(graph, memo(50, leaf=[1, 1, 1, 1]), memo(51))
    assert set(gaps(graph).values()) == {2}
    graph.optimize()
    assert gaps(graph) == dict.fromkeys(gaps(graph), 0)
    assert len(gaps(graph)) == 6
    assert fragments(graph) == 1


def parts(graph: og.Graph) -> dict[str, int]:
    """How many parts the indexes of each kind have."""
    return {index.spec.kind: len(index.segments) for index in indexes_of(handle(graph))}


def test_c_mnt_007_what_outweighs_new_rows_stays_as_it_is(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_upkeep, "SETTLED_ROWS_MIN", 0)
    graph.optimize()
    assert handle(graph).count_rows() == 23
    seen = []
    for step in range(5):
        load(graph, memo(100 + step, leaf=[step, 0, 0, 0]))
        load(graph, memo(200 + step, leaf=[step, 1, 0, 0]))
        content = exported(graph)
        graph.optimize()
        assert graph.optimize().graph_commit_id is None
        assert exported(graph) == content
        assert set(gaps(graph).values()) == {0}
        (count,) = set(parts(graph).values())
        seen.append((count, fragments(graph)))
    # 23 outweigh 2 and 4 rows, and do not outweigh 6.
    assert seen == [(2, 2), (2, 2), (1, 1), (2, 2), (2, 2)]


@pytest.mark.parametrize(("parts_max", "expected"), [(8, 3), (2, 2)])
def test_c_mnt_007_an_index_has_only_so_many_parts(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, parts_max: int, expected: int
) -> None:
    monkeypatch.setattr(table_upkeep, "SETTLED_ROWS_MIN", 0)
    monkeypatch.setattr(table_upkeep, "OUTWEIGHS", 1)
    monkeypatch.setattr(table_upkeep, "INDEX_PARTS_MAX", parts_max)
    graph.optimize()
    for first, rows in ((100, 10), (200, 4)):
        load(graph, *(memo(first + n, leaf=[n, 0, 0, 0]) for n in range(rows)))
        graph.optimize()
        assert set(gaps(graph).values()) == {0}
        assert graph.optimize().graph_commit_id is None
    assert set(parts(graph).values()) == {expected}
    assert fragments(graph) == 3


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
def test_c_mnt_007_rows_without_vectors_and_vectors_that_went_away_fail_nothing(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch, large: bool
) -> None:
    if large:
        monkeypatch.setattr(table_upkeep, "SETTLED_ROWS_MIN", 0)
    graph.ensure_indices()
    load(graph, memo(300), memo(301))
    receipt = graph.optimize()
    assert row(receipt, "node:Memo").committed
    assert gaps(graph)["leaf (vector)"] == 0
    load(graph, *(memo(n, leaf=None) for n in range(24)))
    content = exported(graph)
    memos = row(graph.optimize(), "node:Memo")
    assert memos.committed
    assert exported(graph) == content
    assert graph.optimize().graph_commit_id is None


def test_an_index_of_an_external_writer_is_replaced_by_one_of_ours(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table_upkeep, "SETTLED_ROWS_MIN", 0)
    upkeep(graph, "node:Memo", Foreign())
    load(graph, memo(400, leaf=[4, 0, 0, 0]))
    graph.optimize()
    (leaf,) = [index for index in indexes_of(handle(graph)) if index.spec.kind == "vector"]
    assert (leaf.rows_uncovered, len(leaf.segments)) == (0, 1)
    assert leaf.name != "foreign"


class Foreign:
    """A vector index of another make."""

    rewrites = False

    def stage(self, handle: Handle, uuid: str) -> Transaction:
        fragments = [fragment.fragment_id for fragment in handle.get_fragments()]
        made = handle.create_index_uncommitted(
            "leaf", "IVF_SQ", name="foreign", num_partitions=1, fragment_ids=fragments
        )
        return Transaction(handle.version, LanceOperation.CreateIndex([made], []), uuid=uuid)


def test_writes_that_compact_a_table_keep_its_rows_in_the_ordered_indexes(
    graph: og.Graph,
) -> None:
    graph = with_settings(graph, table_compact_every=4)
    graph.optimize()
    for number in range(100, 130):
        graph.mutate(ADD, {"code": f"m{number}"})
        ordered = [rows for name, rows in gaps(graph).items() if "btree" in name]
        assert len(ordered) == 3
        assert max(ordered) < 4, "what is not indexed was written since"
        assert fragments(graph) <= 5
    assert gaps(graph)["body (inverted)"] == 30, "that is for optimize"
    assert "maintenance" in [commit.kind for commit in graph.list_commits()[:30]]
    assert len(exported(graph).splitlines()) == 23 + 30 + 3
    graph.optimize()
    assert set(gaps(graph).values()) == {0}


def test_a_compaction_that_fails_half_way_keeps_no_write_from_being_done(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = with_settings(graph, table_compact_every=4)
    graph.optimize()
    commit = LanceStore.commit
    failures: list[str] = []

    def refuse(store: LanceStore, at: Handle, transaction: Transaction, *more: Any) -> Handle:
        is_rewrite = isinstance(transaction.operation, LanceOperation.Rewrite)
        if is_rewrite and "__manifest" not in at.uri and not failures:
            failures.append(at.uri)
            raise StorageError("the disk is full")
        return commit(store, at, transaction, *more)

    monkeypatch.setattr(LanceStore, "commit", refuse)
    for number in range(100, 110):
        graph.mutate(ADD, {"code": f"m{number}"})
    assert len(failures) == 1
    assert graph._kernel.sidecars.names() == []
    assert [row.recovery_kind for row in graph.list_recoveries()] == ["RolledBack"]
    assert len(exported(graph).splitlines()) == 23 + 10 + 3
    require_no_drift(graph)


def test_what_is_bounded_leaves_large_fragments_and_large_parts_alone(graph: og.Graph) -> None:
    graph.optimize()
    (large,) = handle(graph).fragment_ids()
    load(graph, *(memo(100 + n, leaf=[n, 1, 0, 0]) for n in range(12)))
    uncovered = max(handle(graph).fragment_ids())
    for number in range(200, 204):
        graph.mutate(ADD, {"code": f"m{number}"})
    work = work_on(handle(graph), declared(graph), Extent(10))
    assert work.fragments_removed == 4
    upkeep(graph, "node:Memo", *work.steps)
    assert {large, uncovered} < handle(graph).fragment_ids()
    assert fragments(graph) == 3
    assert set(gaps(graph).values()) == {12}, "what is small is covered, by a part of its own"
    assert parts(graph) == {"btree": 2, "inverted": 2, "vector": 2}
    assert work_on(handle(graph), declared(graph), Extent(10)).steps == ()


def test_what_is_bounded_touches_no_more_rows_than_that_however_many_are_due(
    graph: og.Graph,
) -> None:
    graph.optimize()
    for first in range(100, 140, 4):
        load(graph, *(memo(first + n, leaf=[n, 1, 0, 0]) for n in range(4)))
    assert fragments(graph) == 11
    work = work_on(handle(graph), declared(graph), Extent(10))
    assert work.fragments_removed == 2, "of four rows each; three would be too many"
    upkeep(graph, "node:Memo", *work.steps)
    assert fragments(graph) == 10
    assert set(gaps(graph).values()) == {32}
    assert len(exported(graph).splitlines()) == 23 + 40 + 3


def test_c_mnt_008_an_index_that_is_declared_and_missing_is_built(graph: og.Graph) -> None:
    graph.optimize()
    expected = ["body (inverted)", "code (btree)", "code (inverted)", "id (btree)"]
    assert sorted(gaps(graph)) == [*expected, "leaf (vector)", "size (btree)"]
    # Nothing to compact, one index missing: that is work as well.
    memos = handle(graph)
    (size,) = [index for index in indexes_of(memos) if index.spec.column == "size"]
    upkeep(graph, "node:Memo", ChangeIndexes(drop=(size.spec,)))
    assert "size (btree)" not in gaps(graph)
    receipt = graph.optimize()
    assert row(receipt, "node:Memo").committed
    assert row(receipt, "node:Memo").fragments_removed == 0
    assert gaps(graph)["size (btree)"] == 0


def test_c_mnt_009_a_vector_index_without_vectors_is_pending_and_stops_nothing(
    tmp_path: Path,
) -> None:
    graph = og.init(tmp_path / "graph.omni", schema=SCHEMA)
    load(graph, memo(1))
    load(graph, memo(2))
    memos = row(graph.optimize(), "node:Memo")
    assert memos.committed
    assert [index.property for index in memos.pending] == ["leaf"]
    assert (memos.fragments_removed, memos.fragments_added) == (2, 1)
    again = row(graph.optimize(), "node:Memo")
    assert (again.committed, len(again.pending)) == (False, 1)


def test_c_mnt_010_the_manifest_loses_fragments_and_nothing_else(graph: og.Graph) -> None:
    graph.optimize()
    for number in range(5):
        graph.mutate(RESIZE, {"code": f"m{number + 1}", "n": -1})
    lineage = [commit.graph_commit_id for commit in graph.list_commits()]
    before = len(graph._kernel.manifest.main.handle.get_fragments())
    assert before > 1
    receipt = graph.optimize()
    manifest = row(receipt, "__manifest")
    assert manifest.fragments_removed > manifest.fragments_added == 1
    assert [commit.graph_commit_id for commit in open_graph(graph.uri).list_commits()] == [
        receipt.graph_commit_id,
        *lineage,
    ]
    assert graph._kernel.sidecars.names() == []


def test_c_mnt_013_blobs_survive_byte_for_byte(graph: og.Graph) -> None:
    images: dict[str, bytes | None] = {"none": None, "empty": b"", "small": b"\x00\xff" * 9}
    images["large"] = bytes(range(256)) * 800
    for name, image in images.items():
        value = None if image is None else f"base64:{b64encode(image).decode()}"
        load(graph, {"type": "Photo", "data": {"name": name, "image": value}})
    before = exported(graph)
    assert row(graph.optimize(), "node:Photo").fragments_removed == 4
    assert exported(graph) == before
    assert exported(open_graph(graph.uri)) == before


def test_c_mnt_017_no_row_counts_as_changed(graph: og.Graph) -> None:
    before = handle(graph).to_table(columns=ROW_HISTORY).sort_by("id")
    version = handle(graph).version
    graph.optimize()
    memos = handle(graph)
    assert memos.to_table(columns=ROW_HISTORY).sort_by("id").equals(before)
    delta = memos.delta(compared_against=version)
    assert delta.get_inserted_rows().read_all().num_rows == 0
    assert delta.get_updated_rows().read_all().num_rows == 0


def test_the_plan_can_be_read_and_changes_nothing(graph: og.Graph) -> None:
    kernel = graph._kernel
    capture = kernel.capture(kernel.manifest.refreshed("main"), "")
    before = contents(Path(graph.uri))
    plan = plan_optimize(kernel, capture, graph._opened.accepted().catalog)
    assert contents(Path(graph.uri)) == before
    assert "node:Memo: rewrite 6 fragments" in str(plan)
    assert "edge:Replies: build id (btree), src (btree), dst (btree)" in str(plan)


# --- branches and refusals ------------------------------------------------------------------------


def test_a_branch_that_shares_a_table_still_reads_it_as_it_was(graph: og.Graph) -> None:
    graph.create_branch("side")
    before = exported(graph)
    graph.optimize()
    graph.mutate(DROP, {"code": "m1"})
    assert b"".join(graph.export(branch="side")) == before
    graph.mutate(RESIZE, {"code": "m1", "n": 9}, branch="side")
    found = graph.entity_at("node:Memo", "m1", branch="side")
    assert found is not None
    assert found["size"] == 9


def interrupted(graph: og.Graph, code: str, branch: str = "main") -> None:
    """Leave a write behind that only lacks its publish."""
    with armed("mutation.post_finalize_pre_publisher=error*1"), pytest.raises(RecoveryRequired):
        graph.mutate(ADD, {"code": code}, branch=branch)


@pytest.mark.parametrize("branch", ["main", "side"])
def test_c_mnt_011_a_pending_operation_of_any_branch_refuses_the_run(
    graph: og.Graph, branch: str
) -> None:
    graph.create_branch("side")
    interrupted(graph, "late", branch)
    (name,) = graph._kernel.sidecars.names()
    with pytest.raises(RecoveryRequired) as refused:
        graph.optimize()
    assert str(refused.value.details["operation_id"]) in name
    assert "omnigraph recover" in str(refused.value.hint)
    graph.recover()
    assert graph.optimize().graph_commit_id is not None


def test_c_mnt_011_also_one_that_is_armed_after_the_first_check(graph: og.Graph) -> None:
    graph.create_branch("side")
    other = open_graph(graph.uri)
    point = Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE
    versions_before = handle(graph).version
    with (
        meanwhile(point, lambda: interrupted(other, "late", "side")),
        pytest.raises(RecoveryRequired),
    ):
        graph.optimize()
    assert handle(graph).version == versions_before


def test_c_mnt_012_drift_is_skipped_with_both_versions_and_others_proceed(
    graph: og.Graph,
) -> None:
    handle(graph).delete("code = 'm1'")
    pin = handle(graph).version
    receipt = graph.optimize()
    memos = row(receipt, "node:Memo")
    assert (memos.skipped, memos.committed) == ("drift_needs_repair", False)
    assert (memos.published_dataset_version, memos.lance_head_version) == (pin, pin + 1)
    assert (memos.fragments_removed, memos.fragments_added) == (0, 0)
    assert row(receipt, "edge:Replies").committed
    assert handle(graph).version == pin


def test_c_mnt_015_and_c_mnt_016_a_write_that_was_faster_refuses_the_run_and_no_row_is_lost(
    graph: og.Graph,
) -> None:
    other = open_graph(graph.uri)
    point = Failpoint.OPTIMIZE_BEFORE_COMPACT
    with meanwhile(point, lambda: other.mutate(ADD, {"code": "faster"})), pytest.raises(Conflict):
        graph.optimize()
    assert graph._kernel.sidecars.names() == []
    assert graph.entity_at("node:Memo", "faster") is not None
    content = exported(graph)
    assert graph.optimize().graph_commit_id is not None
    assert exported(graph) == content


def test_c_mnt_015_a_write_that_was_slower_lands_on_top(graph: og.Graph) -> None:
    other = open_graph(graph.uri)
    point = Failpoint.MUTATION_POST_STAGE_PRE_EFFECT_GATE
    with meanwhile(point, other.optimize):
        graph.mutate(RESIZE, {"code": "m3", "n": 33})
    found = graph.entity_at("node:Memo", "m3")
    assert found is not None
    assert found["size"] == 33
    require_no_drift(graph)


# --- faults ---------------------------------------------------------------------------------------


def test_c_mnt_014_all_tables_done_but_not_published_is_rolled_forward(graph: og.Graph) -> None:
    content = exported(graph)
    point = "optimize.post_phase_b_pre_manifest_commit=error*1"
    with armed(point), pytest.raises(RecoveryRequired):
        graph.optimize()
    assert fragments(graph) == 6
    assert [settled.outcome for settled in graph.recover()] == ["rolled_forward"]
    assert (fragments(graph), exported(graph)) == (1, content)
    require_no_drift(graph)
    assert graph.optimize().graph_commit_id is None


def test_c_mnt_014_a_partial_set_is_rolled_back(graph: og.Graph) -> None:
    content = exported(graph)
    with armed("mutation.post_table_commit=error*1"), pytest.raises(RecoveryRequired):
        graph.optimize()
    assert [settled.outcome for settled in graph.recover()] == ["rolled_back"]
    require_no_drift(graph)
    assert exported(graph) == content
    assert graph.optimize().graph_commit_id is not None
    assert exported(graph) == content
