"""Removing old versions: what may go, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnigraph.errors import InputError

KEEP_RECOMMENDED = 10
KEEP_FEW = 3
"""Fewer leave little room for a restore by hand."""


@dataclass(frozen=True, slots=True)
class CleanupPolicy:
    """Which versions of a table are old. With both conditions, only what meets both."""

    keep: int | None = None
    """How many of the newest versions stay; the newest one always does."""
    older_than_secs: int | None = None
    """How old a version is at least that may go."""

    def __post_init__(self) -> None:
        """Refuse a policy that says nothing, or nonsense."""
        if self.keep is None and self.older_than_secs is None:
            raise InputError(
                "cleanup needs to know what is old",
                hint=f"say how many versions to keep ({KEEP_RECOMMENDED} is a good number), "
                "or from which age on they may go",
            )
        if min(self.keep or 0, self.older_than_secs or 0) < 0:
            raise InputError("cleanup cannot keep less than nothing")

    def allows(self, place: int, age_secs: float) -> bool:
        """Whether a version may go that has ``place`` newer ones."""
        if place == 0 or (self.keep is not None and place < self.keep):
            return False
        return self.older_than_secs is None or age_secs > self.older_than_secs

    def __str__(self) -> str:
        parts = []
        if self.keep is not None:
            parts.append(f"beyond the newest {self.keep}")
        if self.older_than_secs is not None:
            parts.append(f"older than {self.older_than_secs} seconds")
        return " and ".join(parts)


@dataclass(frozen=True, slots=True)
class CleanedTable:
    """What became of one table, on all branches together."""

    type_key: str
    bytes_removed: int = 0
    old_versions_removed: int = 0
    orphan_refs_removed: tuple[str, ...] = ()
    error: str | None = None
    """Why not everything was done that was due; what was done is counted all the same."""

    @property
    def table_key(self) -> str:
        """The older name of `type_key`."""
        return self.type_key

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do."""
        return self == CleanedTable(self.type_key)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "type_key": self.type_key,
            "bytes_removed": self.bytes_removed,
            "old_versions_removed": self.old_versions_removed,
            "orphan_refs_removed": list(self.orphan_refs_removed),
            "error": self.error,
        }


@dataclass(frozen=True, slots=True)
class CleanupReceipt:
    """What a run did, or would do."""

    policy: CleanupPolicy
    dry_run: bool
    tables: tuple[CleanedTable, ...]
    """Every type, the manifest of the graph, and datasets that only an older version used."""
    seconds: float

    @property
    def has_errors(self) -> bool:
        """Whether something is left to do; another run continues where this one stopped."""
        return any(table.error is not None for table in self.tables)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "keep_versions": self.policy.keep,
            "older_than_secs": self.policy.older_than_secs,
            "datasets": [table.to_dict() for table in self.tables],
            "summary": {
                "dry_run": self.dry_run,
                "graph_commit_id": None,
                "bytes_removed": sum(table.bytes_removed for table in self.tables),
                "old_versions_removed": sum(table.old_versions_removed for table in self.tables),
                "orphan_refs_removed": sum(len(table.orphan_refs_removed) for table in self.tables),
                "errors": sum(table.error is not None for table in self.tables),
                "seconds": self.seconds,
            },
        }
