"""Answers that only a server gives; all others are the receipts and results of `model`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from omnigraph.model.changes import EntityVersion
from omnigraph.model.json_object import HIDDEN, OPTIONAL, JsonObject
from omnigraph.model.receipts import CommitInfo, LoadReceipt, TagInfo
from omnigraph.model.records import dataclass
from omnigraph.model.result import ReadAnswer
from omnigraph.model.signatures import QuerySignature

# --- the server -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Health(JsonObject):
    """The process is alive."""

    status: Literal["ok"]
    version: str
    internal_schema_version: int
    source_version: Annotated[str | None, OPTIONAL] = None


@dataclass(frozen=True, slots=True)
class ServedBlock(JsonObject):
    """A branch of a served graph that refuses writes, and why."""

    graph_id: str
    branch: str | None
    """Null if the branch is unknown: then all of them do."""
    operation_id: str
    """The interrupted operation that has to be recovered."""
    reason: str
    since_us: int
    """When the server first saw it; microseconds since 1970."""


@dataclass(frozen=True, slots=True)
class AuditState(JsonObject):
    """Whether every decision and access is being recorded."""

    problem: str | None
    """Why lines cannot be written now."""
    lines_lost: int
    required: bool
    """Whether requests are refused as long as lines cannot be written."""


@dataclass(frozen=True, slots=True)
class Ready(JsonObject):
    """Whether the process takes work, and how many graphs it serves.

    `degraded`: it does, but for writes to some branches, which it keeps trying to recover.
    """

    status: Literal["ready", "degraded", "starting", "draining"]
    graphs_ready: int
    graphs_quarantined: int
    branches_blocked: int
    blocked: tuple[ServedBlock, ...]
    """Those that the caller may read; without a valid token there are only their number."""
    quarantined: tuple[str, ...]
    """Graphs that could not be opened, and are tried again; for callers who may list graphs."""
    audit: Annotated[AuditState | None, OPTIONAL] = None
    """How the audit is; left out if there is none."""


@dataclass(frozen=True, slots=True)
class ServedGraph(JsonObject):
    """One graph of a server."""

    graph_id: str
    uri: str


@dataclass(frozen=True, slots=True)
class GraphList(JsonObject):
    """The graphs of a server, by id."""

    graphs: tuple[ServedGraph, ...]


@dataclass(frozen=True, slots=True)
class SessionToken(JsonObject):
    """A token for as long as the server runs."""

    token: str
    actor_id: str | None


# --- one graph ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LegacyReadAnswer(ReadAnswer):
    """The rows of a read query, as older clients know them: without the commit."""

    graph_commit_id: Annotated[str | None, HIDDEN] = None


@dataclass(frozen=True, slots=True)
class LoadReceiptAt(LoadReceipt):
    """What a load did, and the place of the graph."""

    uri: str = ""

    @classmethod
    def of(cls, receipt: LoadReceipt, uri: str) -> Self:
        """The receipt of a load into the graph at ``uri``."""
        return cls(**{name: getattr(receipt, name) for name in LoadReceipt.__slots__}, uri=uri)


@dataclass(frozen=True, slots=True)
class SchemaSource(JsonObject):
    """The accepted schema as it was written."""

    schema_source: str


@dataclass(frozen=True, slots=True)
class QueryCatalog(JsonObject):
    """Every stored query of a graph, by name."""

    queries: tuple[QuerySignature, ...]


@dataclass(frozen=True, slots=True)
class Permissions(JsonObject):
    """What policy lets the caller do; every request is decided anew."""

    actor_id: str | None
    """Null on a server without tokens."""
    branch: str
    actions: tuple[str, ...]
    """On this branch, into it or from it; `branch_create` if some branch may be created."""


@dataclass(frozen=True, slots=True)
class TagList(JsonObject):
    """The tags of a graph, by name."""

    tags: tuple[TagInfo, ...]


@dataclass(frozen=True, slots=True)
class BranchList(JsonObject):
    """The branches, sorted."""

    branches: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CommitList(JsonObject):
    """The commits a branch's head reaches, newest first."""

    commits: tuple[CommitInfo, ...]


@dataclass(frozen=True, slots=True)
class EntityHistoryPage(JsonObject):
    """Commits that changed one entity, newest first, and what each did."""

    versions: tuple[EntityVersion, ...]
    next_page_token: Annotated[str | None, OPTIONAL] = None
    """Continues this answer; left out of its last page."""


# --- refusals -------------------------------------------------------------------------------------

ErrorCode = Literal[
    "unauthorized",
    "forbidden",
    "bad_request",
    "not_found",
    "method_not_allowed",
    "conflict",
    "too_many_requests",
    "internal",
]
"""A closed set; for a status without a code in it, the detail says what happened."""

Detail = Annotated[Mapping[str, Any] | None, OPTIONAL]


@dataclass(frozen=True, slots=True)
class ErrorEnvelope(JsonObject):
    """Every answer that is no success: one sentence, a code, and at most one structured detail."""

    error: str
    code: Annotated[ErrorCode | None, OPTIONAL] = None
    error_code: Annotated[str | None, OPTIONAL] = None
    """The stable name of the error, finer than `code`; see the list of errors."""
    hint: Annotated[str | None, OPTIONAL] = None
    outcome: Annotated[Literal["not_begun", "unknown"] | None, OPTIONAL] = None
    """Of a failed write: whether it left nothing behind, or may have landed or land later."""
    details: Detail = None
    """Facts of an error without a structured detail; of an input, its `problems` and `counts`."""
    diagnostic: Annotated[str | None, OPTIONAL] = None
    """The number of a mistake in a query or a schema."""
    position: Detail = None
    """Where the mistake is in the text that was sent."""
    merge_conflicts: Annotated[tuple[Mapping[str, Any], ...] | None, OPTIONAL] = None
    published_dataset_version_conflict: Detail = None
    manifest_conflict: Detail = None
    read_set_conflict: Detail = None
    key_conflict: Detail = None
    change_diff_refusal: Detail = None
    change_feed_gap: Detail = None
    precondition_failure: Detail = None
    resource_limit: Detail = None
    blob_range: Detail = None
    external_blob_source: Detail = None
    recovery_required: Detail = None
    writer_busy: Detail = None
