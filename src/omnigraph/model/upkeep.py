"""Receipts and findings of upkeep: indexes, optimize, repair, cleanup, stats, doctor, scrub."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from omnigraph.errors import InputError
from omnigraph.model.json_object import Json, JsonObject
from omnigraph.model.records import dataclass
from omnigraph.model.types import IndexSpec, PendingIndex

SUMMARY = Json(within="summary")


def _summary(*members: str) -> dict[str, Json]:
    return dict.fromkeys(members, SUMMARY)


# --- findings -------------------------------------------------------------------------------------

Severity = Literal["problem", "advice"]
"""A problem prevents something from working. Advice is about what could be faster or smaller."""

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
    "sidecar_refused",
    "unsettled",
    "versions",
]


@dataclass(frozen=True, slots=True)
class UpkeepFinding(JsonObject):
    """One problem or advice, and the command that resolves it."""

    code: FindingCode
    severity: Severity
    subject: str
    """The type, branch or operation it is about, or the graph."""
    message: str
    command: str
    """The command to run."""


@dataclass(frozen=True, slots=True)
class BlockedBranch(JsonObject):
    """A branch that refuses writes until an interrupted operation is recovered."""

    branch: str | None
    """None if the branch is unknown: then all branches are blocked."""
    operation_id: str
    reason: str
    since_us: int
    """When this was first seen; microseconds since 1970."""


def command_on(uri: str, verb: str, *flags: str, branch: str = "main") -> str:
    """A command for a graph, quoted for a shell.

    >>> command_on("team data.omni", "cleanup", "--keep", "10", branch="review")
    "omnigraph cleanup --store 'team data.omni' --branch review --keep 10"
    """
    of_branch = () if branch == "main" else ("--branch", branch)
    return shlex.join(("omnigraph", verb, "--store", uri, *of_branch, *flags))


@dataclass(frozen=True, slots=True)
class OfType(JsonObject):
    """A part of a receipt about one type."""

    type_key: str

    @property
    def table_key(self) -> str:
        """The older name of `type_key`."""
        return self.type_key


# --- indexes --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IndexedTable(OfType):
    """The result of building indexes on one type."""

    built: tuple[IndexSpec, ...]
    pending: Annotated[tuple[PendingIndex, ...], Json("pending_indexes")]
    committed: bool
    """Whether the run published a new version of the table."""


@dataclass(frozen=True, slots=True)
class IndexReceipt(JsonObject):
    """The result of building the missing indexes of a branch, per type and in total."""

    branch: str
    tables: Annotated[tuple[IndexedTable, ...], Json("datasets")]
    """Every type of the branch, including those without work."""
    graph_commit_id: Annotated[str | None, SUMMARY]
    """Null if nothing was missing, or nothing could be built."""
    seconds: Annotated[float, SUMMARY]

    computed: ClassVar[Mapping[str, Json]] = {
        "built_count": Json("built", within="summary"),
        "pending_count": Json("pending", within="summary"),
    }

    @property
    def built_count(self) -> int:
        """Indexes that were built."""
        return sum(len(table.built) for table in self.tables)

    @property
    def pending_count(self) -> int:
        """Indexes that could not be built yet."""
        return sum(len(table.pending) for table in self.tables)


# --- optimize -------------------------------------------------------------------------------------

SkipReason = Literal["drift_needs_repair"]


@dataclass(frozen=True, slots=True)
class OptimizedTable(OfType):
    """The result for one table."""

    published_dataset_version: int
    lance_head_version: int
    """Differs from the published version only if the table was skipped because of drift."""
    fragments_removed: int = 0
    fragments_added: int = 0
    committed: bool = False
    """Whether the run published a new version of the table."""
    skipped: SkipReason | None = None
    pending: Annotated[tuple[PendingIndex, ...], Json("pending_indexes")] = ()
    adjacency_saved: bool = False
    """Whether the sorted edges of a large table were saved, for new processes."""


@dataclass(frozen=True, slots=True)
class OptimizeReceipt(JsonObject):
    """The result of a run."""

    tables: Annotated[tuple[OptimizedTable, ...], Json("datasets")]
    """Every type of main, the manifest of the graph, and the events of change requests, if any."""
    graph_commit_id: Annotated[str | None, SUMMARY]
    """Null if no table had anything to do."""
    seconds: Annotated[float, SUMMARY]

    computed: ClassVar[Mapping[str, Json]] = _summary(
        "committed", "skipped", "fragments_removed", "fragments_added", "pending"
    )

    @property
    def committed(self) -> int:
        """Tables with a new version."""
        return sum(table.committed for table in self.tables)

    @property
    def skipped(self) -> int:
        """Tables that were skipped."""
        return sum(table.skipped is not None for table in self.tables)

    @property
    def fragments_removed(self) -> int:
        """Fragments that were rewritten."""
        return sum(table.fragments_removed for table in self.tables)

    @property
    def fragments_added(self) -> int:
        """Fragments they were rewritten into."""
        return sum(table.fragments_added for table in self.tables)

    @property
    def pending(self) -> int:
        """Indexes that could not be built yet."""
        return sum(len(table.pending) for table in self.tables)


@dataclass(frozen=True, slots=True)
class AutoOptimizeStatus(JsonObject):
    """The activity of background upkeep of a handle."""

    every: int
    """Commits of the handle between two runs."""
    runs: int = 0
    """Completed runs."""
    commits: int = 0
    """Completed runs that had something to do."""
    postponed: int = 0
    """Runs that were given up because of concurrent writes."""
    failures: int = 0
    last_error: str | None = None
    """The most recent error; writes are not affected."""


# --- repair ---------------------------------------------------------------------------------------

Classification = Literal["no_drift", "verified_maintenance", "suspicious", "unverifiable"]
"""The kind of versions after the published one: none, known to change no row, or not known to."""

RepairAction = Literal["no_op", "preview", "healed", "refused", "forced"]


@dataclass(frozen=True, slots=True)
class RepairedTable(OfType):
    """The result for one type."""

    branch: str
    published_dataset_version: int
    """The version that was published when the run began."""
    lance_head_version: int
    classification: Classification
    action: RepairAction
    operations: tuple[str, ...] = ()
    """The operations of versions after the published one, oldest first; or `unreadable`."""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class RepairReceipt(JsonObject):
    """The result of a run."""

    branch: str
    confirm: bool
    force: bool
    graph_manifest_version: int
    tables: Annotated[tuple[RepairedTable, ...], Json("datasets")]
    graph_commit_id: Annotated[str | None, SUMMARY]
    """Null if nothing was published."""
    seconds: Annotated[float, SUMMARY]

    computed: ClassVar[Mapping[str, Json]] = _summary(
        "dry_run", "drifted", "healed", "forced", "refused"
    )

    @property
    def dry_run(self) -> bool:
        """Whether it only reports what would be done."""
        return not self.confirm

    @property
    def drifted(self) -> int:
        """Tables that an external writer changed."""
        return sum(table.action != "no_op" for table in self.tables)

    @property
    def healed(self) -> int:
        """Tables whose newer versions were published because they are known to change no row."""
        return self._count("healed")

    @property
    def forced(self) -> int:
        """Tables whose newer versions were published because the caller forced it."""
        return self._count("forced")

    @property
    def refused(self) -> int:
        """Tables that were left unchanged."""
        return self._count("refused")

    @property
    def has_refusals(self) -> bool:
        """Whether a table that needs repair was left unchanged."""
        return self.refused > 0

    def _count(self, action: RepairAction) -> int:
        return sum(table.action == action for table in self.tables)


# --- cleanup --------------------------------------------------------------------------------------

KEEP_RECOMMENDED = 10
KEEP_FEW = 3
"""Fewer versions leave little choice for a manual restore."""


@dataclass(frozen=True, slots=True)
class CleanupPolicy(JsonObject):
    """Which versions of a table are old. If both conditions are given, both have to be met."""

    keep: Annotated[int | None, Json("keep_versions")] = None
    """Number of the newest versions to keep; the newest one is always kept."""
    older_than_secs: int | None = None
    """Minimum age of a version to be removed."""

    def __post_init__(self) -> None:
        """Refuse a policy without a condition, or with a negative one."""
        if self.keep is None and self.older_than_secs is None:
            raise InputError(
                "cleanup needs to know what is old",
                hint=f"say how many versions to keep ({KEEP_RECOMMENDED} is a good number), "
                "or from which age on they may go",
            )
        if min(self.keep or 0, self.older_than_secs or 0) < 0:
            raise InputError("cleanup cannot keep less than nothing")

    def allows(self, place: int, age_secs: float) -> bool:
        """Whether a version with ``place`` newer ones may be removed."""
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
class CleanedTable(OfType):
    """The result for one table, for all branches together."""

    bytes_removed: int = 0
    old_versions_removed: int = 0
    orphan_refs_removed: tuple[str, ...] = ()
    error: str | None = None
    """Why some of the work was not done; completed work is counted nevertheless."""

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do."""
        return self == CleanedTable(self.type_key)


@dataclass(frozen=True, slots=True)
class CleanupReceipt(JsonObject):
    """The result of a run, or of a dry run."""

    policy: Annotated[CleanupPolicy, Json(is_flat=True)]
    dry_run: Annotated[bool, SUMMARY]
    tables: Annotated[tuple[CleanedTable, ...], Json("datasets")]
    """Every type, the manifest of the graph, and datasets that only older versions use."""
    seconds: Annotated[float, SUMMARY]

    computed: ClassVar[Mapping[str, Json]] = _summary(
        "graph_commit_id", "bytes_removed", "old_versions_removed", "orphan_refs_removed", "errors"
    )

    @property
    def graph_commit_id(self) -> str | None:
        """Always null: cleanup publishes nothing."""
        return None

    @property
    def bytes_removed(self) -> int:
        """Bytes that were freed."""
        return sum(table.bytes_removed for table in self.tables)

    @property
    def old_versions_removed(self) -> int:
        """Versions that were removed."""
        return sum(table.old_versions_removed for table in self.tables)

    @property
    def orphan_refs_removed(self) -> int:
        """Refs of deleted branches that were removed."""
        return sum(len(table.orphan_refs_removed) for table in self.tables)

    @property
    def errors(self) -> int:
        """Tables with an error."""
        return sum(table.error is not None for table in self.tables)

    @property
    def has_errors(self) -> bool:
        """Whether any table has an error; another run continues where this one stopped."""
        return self.errors > 0


# --- stats ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class IndexStats(JsonObject):
    """How much of a table one index covers."""

    spec: Annotated[IndexSpec, Json(is_flat=True)]
    rows_covered: int
    rows_uncovered: int
    """Rows found by scanning; all rows, if a declared index was never built."""

    @property
    def is_missing(self) -> bool:
        """Whether the index is declared, but covers no rows."""
        return self.rows_covered == 0 and self.rows_uncovered > 0


@dataclass(frozen=True, slots=True)
class TableStats(OfType):
    """One type at the head of a branch."""

    rows: int
    fragments: int
    small_fragments: int
    """Fragments that optimizing could merge."""
    deleted_rows: int
    """Deleted rows that are still in the files."""
    bytes: int
    """Size of the data files of the published version; older versions may take more."""
    versions: int
    """Number of versions that still exist."""
    published_dataset_version: int
    lance_head_version: int
    indexes: tuple[IndexStats, ...]


@dataclass(frozen=True, slots=True)
class PendingOperation(JsonObject):
    """An operation that is running or was interrupted."""

    operation_id: str
    writer_kind: str | None
    """Null if its sidecar cannot be read."""
    branch: str | None


@dataclass(frozen=True, slots=True)
class LeaseHolder(JsonObject):
    """A writer that holds the lease of a branch, or of the whole graph."""

    scope: str
    owner_id: str
    operation_id: str | None
    is_alive: bool | None
    """Null on an object store, where only the time of the last renewal is known."""


@dataclass(frozen=True, slots=True)
class GraphStats(JsonObject):
    """Statistics of a graph."""

    branch: str
    graph_commit_id: str
    internal_schema_version: int
    branches: tuple[str, ...]
    commits: int
    """Commits reachable from the head of the branch."""
    manifest_versions: int
    tables: Annotated[tuple[TableStats, ...], Json("datasets")]
    pending: Annotated[tuple[PendingOperation, ...], Json("pending_operations")]
    leases: tuple[LeaseHolder, ...]
    """The leases that are held now."""
    findings: tuple[UpkeepFinding, ...] = ()


# --- doctor ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DoctorCheck(JsonObject):
    """One check."""

    name: str
    is_fine: Annotated[bool, Json("ok")]
    """Whether it succeeded; advice does not count."""


@dataclass(frozen=True, slots=True)
class Diagnosis(JsonObject):
    """The result of `doctor`."""

    uri: str
    checks: tuple[DoctorCheck, ...]
    findings: tuple[UpkeepFinding, ...]

    computed: ClassVar[Mapping[str, Json]] = {"is_healthy": Json("healthy")}

    @property
    def is_healthy(self) -> bool:
        """Whether there are no problems; there may be advice."""
        return all(finding.severity == "advice" for finding in self.findings)


# --- scrub ----------------------------------------------------------------------------------------

ScrubKind = Literal["damaged", "missing", "foreign"]


@dataclass(frozen=True, slots=True)
class ScrubFinding(JsonObject):
    """A file that is damaged, missing, or not part of the graph."""

    kind: ScrubKind
    file: str
    """Its path below the root."""
    table: str
    """Its type, `__manifest`, or `graph` for anything else."""
    problem: str
    graph_commit_id: str | None = None
    """The commit that wrote it, if known."""
    branches: tuple[str, ...] = ()
    """Branches whose head uses it; empty if only their history does."""


@dataclass(frozen=True, slots=True)
class ScrubReport(JsonObject):
    """The result of comparing every file of a graph with its digest."""

    uri: str
    files_checked: Annotated[int, SUMMARY]
    bytes_read: Annotated[int, SUMMARY]
    files_resumed: Annotated[int, SUMMARY]
    """Files that an interrupted run had already checked."""
    files_undigested: Annotated[int, SUMMARY]
    """Files of the graph without a digest; `--adopt` adds them."""
    files_adopted: Annotated[int, SUMMARY]
    files_unreferenced: Annotated[int, SUMMARY]
    """Files that no version lists; `cleanup` removes them after a week."""
    seconds: Annotated[float, SUMMARY]
    findings: tuple[ScrubFinding, ...] = ()

    computed: ClassVar[Mapping[str, Json]] = {"is_clean": Json("clean")}

    @property
    def is_clean(self) -> bool:
        """Whether nothing is damaged, missing or foreign."""
        return not self.findings
