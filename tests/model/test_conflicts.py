"""Merge conflicts: the closed set of kinds and the shape of a record."""

from __future__ import annotations

from omnigraph.errors import MergeConflicts
from omnigraph.model.merging import ConflictKind, MergeConflict


def test_kinds_are_those_of_the_wire() -> None:
    assert " ".join(ConflictKind) == (
        "divergent_insert divergent_update delete_vs_update orphan_edge unique_violation "
        "cardinality_violation value_constraint_violation"
    )


def test_record_shape_is_what_the_error_carries() -> None:
    conflict = MergeConflict("node", "Person", "ada", ConflictKind.DIVERGENT_UPDATE, "both changed")
    record = {
        "entity_kind": "node",
        "type_name": "Person",
        "table_key": "node:Person",
        "entity_id": "ada",
        "kind": "divergent_update",
        "message": "both changed",
    }
    assert conflict.to_dict() == record
    error = MergeConflicts("1 conflict", [conflict.to_dict()])
    assert error.envelope()["merge_conflicts"] == [record]


def test_conflicts_sort_by_type_key_and_id() -> None:
    kind = ConflictKind.DELETE_VS_UPDATE
    conflicts = [
        MergeConflict("node", "Person", "a", kind, ""),
        MergeConflict("node", "City", "a", kind, ""),
        MergeConflict("node", "City", None, kind, ""),
        MergeConflict("edge", "Knows", "k1", kind, ""),
    ]
    assert sorted(conflicts, key=lambda c: c.sort_key) == conflicts[::-1]
