"""What a graph is made of, in numbers, and what of it needs attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omnigraph.model.findings import Finding
from omnigraph.model.indexes import IndexSpec


@dataclass(frozen=True, slots=True)
class IndexStats:
    """How much of a table one index covers."""

    spec: IndexSpec
    rows_covered: int
    rows_uncovered: int
    """Found by scanning; all rows, if a declared index was never built."""

    @property
    def is_missing(self) -> bool:
        """Whether the index is declared, and covers nothing."""
        return self.rows_covered == 0 and self.rows_uncovered > 0

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            **self.spec.to_dict(),
            "rows_covered": self.rows_covered,
            "rows_uncovered": self.rows_uncovered,
        }


@dataclass(frozen=True, slots=True)
class TableStats:
    """One type at the head of a branch."""

    type_key: str
    rows: int
    fragments: int
    small_fragments: int
    """Those that optimizing could rewrite; large ones are as they should be."""
    deleted_rows: int
    """Rows that are gone, and still lie in the files."""
    bytes: int
    """Size of the data files of the published version; older versions may take more."""
    versions: int
    """Versions that are still there."""
    published_dataset_version: int
    lance_head_version: int
    indexes: tuple[IndexStats, ...]

    @property
    def table_key(self) -> str:
        """The older name of `type_key`."""
        return self.type_key

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "type_key": self.type_key,
            "rows": self.rows,
            "fragments": self.fragments,
            "small_fragments": self.small_fragments,
            "deleted_rows": self.deleted_rows,
            "bytes": self.bytes,
            "versions": self.versions,
            "published_dataset_version": self.published_dataset_version,
            "lance_head_version": self.lance_head_version,
            "indexes": [index.to_dict() for index in self.indexes],
        }


@dataclass(frozen=True, slots=True)
class PendingOperation:
    """An operation that is on its way, or was interrupted."""

    operation_id: str
    writer_kind: str | None
    """None when what it left behind cannot be read."""
    branch: str | None

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {name: getattr(self, name) for name in PendingOperation.__slots__}


@dataclass(frozen=True, slots=True)
class LeaseHolder:
    """Somebody who owns a branch, or the whole graph, for writing."""

    scope: str
    owner_id: str
    operation_id: str | None
    is_alive: bool | None
    """None where only time can tell: on an object store."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {name: getattr(self, name) for name in LeaseHolder.__slots__}


@dataclass(frozen=True, slots=True)
class GraphStats:
    """A graph in numbers."""

    branch: str
    graph_commit_id: str
    internal_schema_version: int
    branches: tuple[str, ...]
    commits: int
    """Commits that the head of the branch reaches."""
    manifest_versions: int
    tables: tuple[TableStats, ...]
    pending: tuple[PendingOperation, ...]
    leases: tuple[LeaseHolder, ...]
    """Those that are held right now."""
    findings: tuple[Finding, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "branch": self.branch,
            "graph_commit_id": self.graph_commit_id,
            "internal_schema_version": self.internal_schema_version,
            "branches": list(self.branches),
            "commits": self.commits,
            "manifest_versions": self.manifest_versions,
            "datasets": [table.to_dict() for table in self.tables],
            "pending_operations": [operation.to_dict() for operation in self.pending],
            "leases": [holder.to_dict() for holder in self.leases],
            "findings": [finding.to_dict() for finding in self.findings],
        }
