"""What a snapshot holds, in numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TableSummary:
    """One type of a snapshot."""

    entity_kind: str
    type_name: str
    dataset_path: str
    published_dataset_version: int
    native_dataset_branch: str | None
    entity_count: int


@dataclass(frozen=True, slots=True)
class SnapshotSummary:
    """What a branch holds at its head."""

    graph_branch: str
    graph_commit_id: str
    graph_manifest_version: int
    internal_schema_version: int
    datasets: tuple[TableSummary, ...]

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "graph_branch": self.graph_branch,
            "graph_commit_id": self.graph_commit_id,
            "graph_manifest_version": self.graph_manifest_version,
            "internal_schema_version": self.internal_schema_version,
            "datasets": [
                {name: getattr(entry, name) for name in TableSummary.__slots__}
                for entry in self.datasets
            ],
        }
