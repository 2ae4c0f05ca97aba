"""Receipts have exactly the members of the shapes in the server chapter."""

from __future__ import annotations

from dataclasses import replace

from omnigraph.model.receipts import (
    BranchCreated,
    BranchDeleted,
    CommitInfo,
    LoadedType,
    LoadReceipt,
    LoadStage,
    MergeReceipt,
    MutationReceipt,
    SchemaApplyReceipt,
)

COMMIT = CommitInfo("01C", "review", 7, "01B", None, "ana", 1_900_000_000_000_000, "mutation")
COMMIT_JSON = {
    "graph_commit_id": "01C",
    "graph_branch": "review",
    "graph_manifest_version": 7,
    "parent_commit_id": "01B",
    "merged_parent_commit_id": None,
    "actor_id": "ana",
    "created_at": 1_900_000_000_000_000,
    "kind": "mutation",
}


def test_commit_shape() -> None:
    assert COMMIT.to_dict() == COMMIT_JSON
    counted = replace(COMMIT, message="why", affected_nodes=2, affected_edges=0)
    more = {"message": "why", "affected_nodes": 2, "affected_edges": 0}
    assert counted.to_dict() == COMMIT_JSON | more
    older = {name: value for name, value in COMMIT_JSON.items() if name != "kind"}
    assert CommitInfo.from_dict(older) == replace(COMMIT, kind=None)


def test_mutation_shape_with_and_without_commit() -> None:
    receipt = MutationReceipt("review", "add", 1, 0, "ana", COMMIT)
    assert receipt.to_dict() == {
        "branch": "review",
        "query_name": "add",
        "affected_nodes": 1,
        "affected_edges": 0,
        "actor_id": "ana",
        "commit": COMMIT_JSON,
    }
    assert MutationReceipt("main", "add", 0, 0, None, None).to_dict()["commit"] is None


def test_load_shape_lists_types_by_name_and_adds_them_up() -> None:
    receipt = LoadReceipt(
        branch="review",
        base_branch="main",
        branch_created=True,
        mode="merge",
        nodes=(LoadedType("Person", 5, 2, 1, 1, 2), LoadedType("City", 1, 1, 0, 0)),
        edges=(LoadedType("LivesIn", 3, 3, 0, 0),),
        actor_id=None,
        commit=COMMIT,
        engine="local",
        stages=(LoadStage("convert", 9, 0.25),),
    )
    person = {
        "name": "Person",
        "entities_loaded": 4,
        "records_read": 5,
        "inserted": 2,
        "updated": 1,
        "unchanged": 1,
        "kept": 2,
        "skipped": 0,
    }
    found = receipt.to_dict()
    assert [type["name"] for type in found["nodes"]] == ["City", "Person"]
    assert found["nodes"][1] == person
    del found["nodes"], found["edges"]
    assert found == {
        "branch": "review",
        "base_branch": "main",
        "branch_created": True,
        "mode": "merge",
        "total_entities": 8,
        "actor_id": None,
        "commit": COMMIT_JSON,
        "engine": "local",
        "stages": [{"name": "convert", "rows": 9, "seconds": 0.25}],
        "inserted": 6,
        "updated": 1,
        "unchanged": 1,
        "kept": 2,
        "skipped": 0,
    }


def test_merge_shape_tells_about_deletion_only_when_asked() -> None:
    plain: dict[str, object] = {
        "source": "review",
        "target": "main",
        "outcome": "merged",
        "actor_id": "ana",
    }
    plain |= {"commit": COMMIT_JSON}
    assert MergeReceipt("review", "main", "merged", "ana", COMMIT).to_dict() == plain
    deleted = MergeReceipt("review", "main", "merged", "ana", COMMIT, branch_deleted=True)
    assert deleted.to_dict() == plain | {"branch_deleted": True}
    refused = MergeReceipt("review", "main", "merged", "ana", COMMIT, False, "denied")
    assert refused.to_dict() == plain | {"branch_deleted": False, "branch_delete_error": "denied"}


def test_schema_apply_shape() -> None:
    steps = ({"kind": "add_type", "type_kind": "node", "name": "City"},)
    assert SchemaApplyReceipt("g.omni", True, True, 3, steps).to_dict() == {
        "uri": "g.omni",
        "supported": True,
        "applied": True,
        "step_count": 1,
        "graph_manifest_version": 3,
        "steps": list(steps),
    }


def test_branch_shapes() -> None:
    assert BranchCreated("g.omni", "main", "review", None).to_dict() == {
        "uri": "g.omni",
        "from": "main",
        "name": "review",
        "actor_id": None,
    }
    assert BranchDeleted("g.omni", "review", "ana").to_dict() == {
        "uri": "g.omni",
        "name": "review",
        "actor_id": "ana",
    }
