"""Indexes: which kinds there are, what a schema asks for, and what building them came to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

IndexKind = Literal["btree", "inverted", "vector"]
"""Ordered values; the words of a text; distances between vectors."""

INDEX_KINDS: frozenset[IndexKind] = frozenset({"btree", "inverted", "vector"})


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """An index of one kind on one column of a table."""

    column: str
    kind: IndexKind

    def __str__(self) -> str:
        return f"{self.column} ({self.kind})"

    def to_dict(self) -> dict[str, Any]:
        """The JSON form; the columns of ids and endpoints count as properties here."""
        return {"property": self.column, "kind": self.kind}


@dataclass(frozen=True, slots=True)
class PendingIndex:
    """An index that is asked for and cannot be built yet. That is no failure."""

    property: str
    reason: str

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"property": self.property, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class IndexedTable:
    """What building indexes did to one type."""

    type_key: str
    built: tuple[IndexSpec, ...]
    pending: tuple[PendingIndex, ...]
    committed: bool
    """Whether the run published a new version of the table."""

    @property
    def table_key(self) -> str:
        """The older name of `type_key`."""
        return self.type_key

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "type_key": self.type_key,
            "built": [spec.to_dict() for spec in self.built],
            "pending_indexes": [index.to_dict() for index in self.pending],
            "committed": self.committed,
        }


@dataclass(frozen=True, slots=True)
class IndexReceipt:
    """What building the missing indexes of a branch did, type by type and in total."""

    branch: str
    tables: tuple[IndexedTable, ...]
    """Every type of the branch, also those without work."""
    graph_commit_id: str | None
    """None when nothing was missing, or nothing could be built."""
    seconds: float

    @property
    def built_count(self) -> int:
        """Indexes that were built."""
        return sum(len(table.built) for table in self.tables)

    @property
    def pending_count(self) -> int:
        """Indexes that could not be built yet."""
        return sum(len(table.pending) for table in self.tables)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "branch": self.branch,
            "datasets": [table.to_dict() for table in self.tables],
            "summary": {
                "graph_commit_id": self.graph_commit_id,
                "built": self.built_count,
                "pending": self.pending_count,
                "seconds": self.seconds,
            },
        }
