"""What optimizing a graph came to, table by table and in total."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from omnigraph.model.indexes import PendingIndex

SkipReason = Literal["drift_needs_repair"]


@dataclass(frozen=True, slots=True)
class OptimizedTable:
    """What became of one table."""

    type_key: str
    published_dataset_version: int
    lance_head_version: int
    """Another than the published one only where the table was skipped for it."""
    fragments_removed: int = 0
    fragments_added: int = 0
    committed: bool = False
    """Whether the run published a new version of the table."""
    skipped: SkipReason | None = None
    pending: tuple[PendingIndex, ...] = ()

    @property
    def table_key(self) -> str:
        """The older name of `type_key`."""
        return self.type_key

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "type_key": self.type_key,
            "fragments_removed": self.fragments_removed,
            "fragments_added": self.fragments_added,
            "committed": self.committed,
            "skipped": self.skipped,
            "published_dataset_version": self.published_dataset_version,
            "lance_head_version": self.lance_head_version,
            "pending_indexes": [index.to_dict() for index in self.pending],
        }


@dataclass(frozen=True, slots=True)
class OptimizeReceipt:
    """What a run did."""

    tables: tuple[OptimizedTable, ...]
    """Every type of main, and last the manifest of the graph."""
    graph_commit_id: str | None
    """None when no table had anything to do."""
    seconds: float

    @property
    def fragments_removed(self) -> int:
        """Fragments that were rewritten."""
        return sum(table.fragments_removed for table in self.tables)

    @property
    def fragments_added(self) -> int:
        """Fragments they were rewritten into."""
        return sum(table.fragments_added for table in self.tables)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "datasets": [table.to_dict() for table in self.tables],
            "summary": {
                "graph_commit_id": self.graph_commit_id,
                "committed": sum(table.committed for table in self.tables),
                "skipped": sum(table.skipped is not None for table in self.tables),
                "fragments_removed": self.fragments_removed,
                "fragments_added": self.fragments_added,
                "pending": sum(len(table.pending) for table in self.tables),
                "seconds": self.seconds,
            },
        }


@dataclass(frozen=True, slots=True)
class AutoOptimizeStatus:
    """What upkeep in the background of a handle has done."""

    every: int
    """Commits of the handle between two runs."""
    runs: int = 0
    """Runs that came to their end."""
    commits: int = 0
    """Those of them that had something to do."""
    postponed: int = 0
    """Runs that were given up because others wrote."""
    failures: int = 0
    last_error: str | None = None
    """What went wrong most recently; no write was affected."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {name: getattr(self, name) for name in AutoOptimizeStatus.__slots__}
