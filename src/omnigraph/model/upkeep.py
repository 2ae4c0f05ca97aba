"""Indexes: which kinds there are, what a schema asks for, and what building them came to."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import Any, Literal

from omnigraph.errors import InputError

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


Severity = Literal["problem", "advice"]
"""A problem keeps something from working. Advice is about what could be faster or smaller."""

FindingCode = Literal[
    "damaged",
    "drift",
    "fragments",
    "index_missing",
    "index_stale",
    "java_missing",
    "lease_abandoned",
    "orphan_ref",
    "root_moved",
    "unsettled",
    "versions",
]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing to attend to."""

    code: FindingCode
    severity: Severity
    subject: str
    """What it is about: a type, a branch, an operation, the graph."""
    message: str
    command: str
    """What to run against it."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {name: getattr(self, name) for name in Finding.__slots__}


def command_on(uri: str, verb: str, *flags: str, branch: str = "main") -> str:
    """A command on a graph as it can be pasted into a shell.

    >>> command_on("team data.omni", "cleanup", "--keep", "10", branch="review")
    "omnigraph cleanup 'team data.omni' --branch review --keep 10"
    """
    of_branch = () if branch == "main" else ("--branch", branch)
    return shlex.join(("omnigraph", verb, uri, *of_branch, *flags))


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


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was tried."""

    name: str
    is_fine: bool
    """Whether it worked; what could be better does not count."""

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {"name": self.name, "ok": self.is_fine}


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The result of an examination."""

    uri: str
    checks: tuple[Check, ...]
    findings: tuple[Finding, ...]

    @property
    def is_healthy(self) -> bool:
        """Whether nothing is wrong; there may be advice all the same."""
        return all(finding.severity == "advice" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The JSON form."""
        return {
            "uri": self.uri,
            "healthy": self.is_healthy,
            "checks": [check.to_dict() for check in self.checks],
            "findings": [finding.to_dict() for finding in self.findings],
        }
