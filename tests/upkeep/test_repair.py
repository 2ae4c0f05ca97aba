"""Publishing what was done to tables by external writers (drift)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import omnigraph as og
from omnigraph.effects.failpoints import Failpoint, armed
from omnigraph.errors import InputError, RecoveryRequired, UncoveredDrift
from omnigraph.graph import open_graph
from omnigraph.model.upkeep import RepairedTable, RepairReceipt
from omnigraph.storage.versions import operations_since
from omnigraph.upkeep import repair as repair_module
from omnigraph.upkeep.repair import plan_repair
from tests.storage.footprint import contents
from tests.support.templates import copy_of
from tests.upkeep.behind_the_back import compacted, deleted, table

SCHEMA = """
node Memo { code: String @key  size: I32? }
node Label { name: String @key }
edge Replies: Memo -> Memo
"""
ADD = "query add($code: String) { insert Memo { code: $code } }"
NAME = "query add($name: String) { insert Label { name: $name } }"


def _filled(root: Path) -> None:
    graph = og.init(root, schema=SCHEMA)
    for number in range(3):
        records = [
            {"type": "Memo", "data": {"code": f"m{number}", "size": number}},
            {"type": "Label", "data": {"name": f"l{number}"}},
        ]
        graph.load(data="\n".join(map(json.dumps, records)), mode="merge")


@pytest.fixture
def graph(tmp_path: Path) -> og.Graph:
    """Memos and labels, in three fragments each."""
    copy_of(_filled, tmp_path / "graph.omni")
    return og.open(tmp_path / "graph.omni")


def row(receipt: RepairReceipt, type_key: str = "node:Memo") -> RepairedTable:
    (found,) = [each for each in receipt.tables if each.type_key == type_key]
    return found


def codes(graph: og.Graph, branch: str | None = None) -> set[str]:
    lines = b"".join(graph.export(branch=branch)).splitlines()
    records = [json.loads(line) for line in lines]
    return {each["data"]["code"] for each in records if each.get("type") == "Memo"}


def kinds(graph: og.Graph, branch: str = "main") -> list[str]:
    lineage = graph._kernel.manifest.refreshed(branch).state.lineage()
    return [commit.kind for commit in lineage]


def test_c_mnt_024_a_preview_changes_nothing_and_names_the_transactions(graph: og.Graph) -> None:
    deleted(graph, "node:Memo", "code = 'm0'")
    compacted(graph, "node:Label")
    before = contents(Path(graph.uri))
    receipt = graph.repair()
    assert contents(Path(graph.uri)) == before
    memos, labels = row(receipt), row(receipt, "node:Label")
    assert (memos.classification, memos.action) == ("suspicious", "preview")
    assert memos.operations == ("Delete",)
    assert memos.lance_head_version == memos.published_dataset_version + 1
    assert (labels.classification, labels.action) == ("verified_maintenance", "preview")
    assert labels.operations == ("ReserveFragments", "Rewrite")
    replies = row(receipt, "edge:Replies")
    assert (replies.classification, replies.action, replies.operations) == ("no_drift", "no_op", ())
    assert receipt.graph_commit_id is None
    assert not receipt.has_refusals


def test_c_mnt_025_confirming_heals_compaction_drift_and_writes_work_afterwards(
    graph: og.Graph,
) -> None:
    content = b"".join(graph.export())
    for type_key in ("node:Memo", "node:Label"):
        compacted(graph, type_key)
    with pytest.raises(UncoveredDrift):
        graph.mutate(ADD, {"code": "new"})
    commits = len(graph.list_commits())
    receipt = graph.repair(confirm=True)
    assert {each.action for each in receipt.tables} == {"healed", "no_op"}
    assert len(graph.list_commits()) == commits + 1, "all tables share one commit"
    assert graph.list_commits()[0].graph_commit_id == receipt.graph_commit_id
    assert kinds(graph)[0] == "maintenance"
    assert b"".join(graph.export()) == content
    graph.mutate(ADD, {"code": "new"})
    graph.mutate(NAME, {"name": "new"})
    again = graph.repair(confirm=True)
    assert {each.action for each in again.tables} == {"no_op"}
    assert again.graph_commit_id is None


def test_c_mnt_026_a_raw_delete_is_refused_and_adopted_only_by_force(graph: og.Graph) -> None:
    deleted(graph, "node:Memo", "code = 'm0'")
    refused = graph.repair(confirm=True)
    assert row(refused).action == "refused"
    assert row(refused).error
    assert refused.has_refusals
    assert refused.graph_commit_id is None
    assert codes(graph) == {"m0", "m1", "m2"}
    forced = graph.repair(confirm=True, force=True)
    assert row(forced).action == "forced"
    assert not forced.has_refusals
    assert codes(graph) == {"m1", "m2"}
    counts = {each.type_name: each.entity_count for each in graph.snapshot().datasets}
    assert counts["Memo"] == 2
    graph.mutate(ADD, {"code": "new"})


def test_verified_tables_are_healed_though_others_are_refused(graph: og.Graph) -> None:
    deleted(graph, "node:Memo", "code = 'm0'")
    compacted(graph, "node:Label")
    receipt = graph.repair(confirm=True)
    assert row(receipt).action == "refused"
    assert row(receipt, "node:Label").action == "healed"
    assert kinds(graph)[0] == "maintenance"
    graph.mutate(NAME, {"name": "new"})
    with pytest.raises(UncoveredDrift):
        graph.mutate(ADD, {"code": "new"})


def test_c_mnt_027_force_alone_is_an_error(graph: og.Graph) -> None:
    with pytest.raises(InputError, match="needs `confirm`"):
        graph.repair(force=True)


@pytest.mark.parametrize("confirm", [False, True])
def test_c_mnt_028_a_pending_sidecar_refuses(graph: og.Graph, confirm: bool) -> None:
    with armed("mutation.post_finalize_pre_publisher=error*1"), pytest.raises(RecoveryRequired):
        graph.mutate(ADD, {"code": "new"})
    with pytest.raises(RecoveryRequired, match="nothing is repaired"):
        graph.repair(confirm=confirm)


def test_c_mnt_028_a_sidecar_that_appears_after_the_first_look_refuses_too(
    graph: og.Graph,
) -> None:
    compacted(graph, "node:Memo")
    names = graph._kernel.sidecars.names
    looks: list[list[str]] = []

    def arm(_: Failpoint) -> None:
        """Between the first list and the second, somebody dies on another branch."""
        looks.append([])
        if len(looks) == 2:
            folder = Path(graph.uri) / "__recovery"
            folder.mkdir(exist_ok=True)
            (folder / "01K9WR3C5T8M2B7XQ4ZJ6V0NHD.json").write_text("{}")

    with armed({Failpoint.RECOVERY_SIDECAR_LIST: arm}), pytest.raises(RecoveryRequired):
        graph.repair(confirm=True)
    assert len(looks) == 2
    assert names()
    assert kinds(graph)[0] == "load"


def test_c_mnt_029_drift_on_a_branch_is_reported_and_repaired_there(graph: og.Graph) -> None:
    graph.create_branch("review")
    for code in ("x", "y"):
        graph.mutate(ADD, {"code": code}, branch="review")
    deleted(graph, "node:Memo", "code = 'x'", branch="review")
    assert row(graph.repair()).action == "no_op"
    found = row(graph.repair("review"))
    assert (found.branch, found.action, found.operations) == ("review", "preview", ("Delete",))
    shared = row(graph.repair("review"), "node:Label")
    assert (shared.classification, shared.action) == ("no_drift", "no_op")
    receipt = graph.repair("review", confirm=True, force=True)
    assert row(receipt).action == "forced"
    assert codes(graph, "review") == {"m0", "m1", "m2", "y"}
    assert codes(graph) == {"m0", "m1", "m2"}
    graph.mutate(ADD, {"code": "z"}, branch="review")
    assert kinds(graph)[0] == "load", "main got no commit"


def test_drift_of_main_is_none_of_a_branch_that_shares_the_table(graph: og.Graph) -> None:
    graph.create_branch("review")
    deleted(graph, "node:Memo", "code = 'm0'")
    assert row(graph.repair("review")).classification == "no_drift"
    graph.mutate(ADD, {"code": "z"}, branch="review")
    assert codes(graph, "review") == {"m0", "m1", "m2", "z"}


def test_c_mnt_030_a_forced_repair_is_of_kind_repair_and_shows_its_changes(
    graph: og.Graph,
) -> None:
    deleted(graph, "node:Memo", "code = 'm0'")
    compacted(graph, "node:Label")
    receipt = graph.repair(confirm=True, force=True)
    assert kinds(graph)[0] == "repair"
    assert receipt.graph_commit_id is not None
    (change,) = graph.commit_changes(receipt.graph_commit_id).to_dict()["changes"]
    assert (change["op"], change["id"]) == ("delete", "m0")


def test_what_cannot_be_read_is_unverifiable(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    compacted(graph, "node:Memo")
    head = table(graph, "node:Memo")
    (Path(head.uri) / "_transactions").rename(Path(head.uri) / "gone")
    cut_off = Path(head.uri) / "_versions" / f"{2**64 - head.version:020d}.manifest"
    cut_off.unlink()  # the version before the newest one
    fresh = open_graph(graph.uri)
    found = row(fresh.repair(confirm=True))
    assert (found.classification, found.action) == ("unverifiable", "refused")
    assert "unreadable" in found.operations
    assert row(fresh.repair(confirm=True, force=True)).action == "forced"


def test_other_columns_are_never_adopted(graph: og.Graph) -> None:
    table(graph, "node:Memo").drop_columns(["size"])
    for force in (False, True):
        found = row(graph.repair(confirm=True, force=force))
        assert found.action == "refused"
        assert found.error is not None and "columns" in found.error


def test_a_published_version_that_is_gone_is_never_replaced_by_an_older_one(
    graph: og.Graph,
) -> None:
    head = table(graph, "node:Memo")
    (Path(head.uri) / "_versions" / f"{2**64 - 1 - head.version:020d}.manifest").unlink()
    found = row(open_graph(graph.uri).repair(confirm=True, force=True))
    assert (found.classification, found.action) == ("unverifiable", "refused")
    assert found.lance_head_version == found.published_dataset_version - 1


def test_drift_of_retired_transactions_belongs_to_recovery(
    graph: og.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    deleted(graph, "node:Memo", "code = 'm0'")
    head = table(graph, "node:Memo")
    (operation,) = operations_since(head, head.version - 1)

    class Audit:
        """What an undone operation would have left."""

        retired_uuids = frozenset({operation.uuid})

        def __init__(self, *_: Any) -> None: ...

        def rows(self) -> list[Any]:
            return [self]

    monkeypatch.setattr(repair_module, "RecoveryAudit", Audit)
    found = row(graph.repair(confirm=True, force=True))
    assert found.action == "refused"
    assert found.error is not None and "omnigraph recover" in found.error


def test_the_plan_reads_as_text(graph: og.Graph) -> None:
    kernel = graph._kernel
    capture = kernel.capture(
        kernel.manifest.refreshed("main"), graph._opened.accepted().schema_hash
    )
    assert str(plan_repair(kernel, capture)) == "main: no table has drifted"
    deleted(graph, "node:Memo", "code = 'm0'")
    assert str(plan_repair(kernel, capture)) == "node:Memo: suspicious (Delete)"


@pytest.mark.parametrize(
    ("change", "name"),
    [
        (
            lambda it: it.insert(pa.table({"id": ["n"], "code": ["n"], "size": [1]}, it.schema)),
            "Append",
        ),
        (lambda it: it.update({"size": "9"}), "Update"),
        (lambda it: it.delete("true"), "Delete"),
        (lambda it: it.checkout_version(2).restore(), "Restore"),
        (lambda it: it.create_scalar_index("size", "BTREE"), "CreateIndex"),
        (lambda it: it.update_config({"a": "b"}), "UpdateConfig"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_everything_but_a_rewrite_needs_force(graph: og.Graph, change: Any, name: str) -> None:
    change(table(graph, "node:Memo"))
    found = row(graph.repair(confirm=True))
    assert (found.classification, found.action, found.operations) == (
        "suspicious",
        "refused",
        (name,),
    )
    assert row(graph.repair(confirm=True, force=True)).action == "forced"
    graph.mutate(ADD, {"code": "new"})
