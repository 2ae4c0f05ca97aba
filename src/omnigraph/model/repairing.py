"""What repairing a branch found and did, table by table and in total."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Classification = Literal["no_drift", "verified_maintenance", "suspicious", "unverifiable"]
"""What the versions after the published one are: none, known to change no row, or not known to."""

RepairAction = Literal["no_op", "preview", "healed", "refused", "forced"]


@dataclass(frozen=True, slots=True)
class RepairedTable:
    """What became of one type."""

    type_key: str
    branch: str
    published_dataset_version: int
    """The one that was published when the run began."""
    lance_head_version: int
    classification: Classification
    action: RepairAction
    operations: tuple[str, ...] = ()
    """What made each version after the published one, oldest first; `unreadable` if unknown."""
    error: str | None = None

    @property
    def table_key(self) -> str:
        """The older name of `type_key`."""
        return self.type_key

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "type_key": self.type_key,
            "branch": self.branch,
            "published_dataset_version": self.published_dataset_version,
            "lance_head_version": self.lance_head_version,
            "classification": self.classification,
            "action": self.action,
            "operations": list(self.operations),
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class RepairReceipt:
    """What a run found and did."""

    branch: str
    confirm: bool
    force: bool
    graph_manifest_version: int
    tables: tuple[RepairedTable, ...]
    graph_commit_id: str | None
    """None when nothing was published."""
    seconds: float

    @property
    def has_refusals(self) -> bool:
        """Whether a table was left as it is, though it needs repair."""
        return any(table.action == "refused" for table in self.tables)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        actions = [table.action for table in self.tables]
        return {
            "branch": self.branch,
            "confirm": self.confirm,
            "force": self.force,
            "graph_manifest_version": self.graph_manifest_version,
            "datasets": [table.to_dict() for table in self.tables],
            "summary": {
                "dry_run": not self.confirm,
                "graph_commit_id": self.graph_commit_id,
                "drifted": sum(action != "no_op" for action in actions),
                "healed": actions.count("healed"),
                "forced": actions.count("forced"),
                "refused": actions.count("refused"),
                "seconds": self.seconds,
            },
        }
