"""Every operation of the server: its name, method, path, and what it takes and gives.

The table is read by the server, which binds a handler to each entry, by the client, which calls
them, and by `openapi`, which writes the description.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from omnigraph.model.changes import CommitPage, FeedPage
from omnigraph.model.diffs import DiffPage
from omnigraph.model.json_object import JsonObject
from omnigraph.model.merging import MergePlan
from omnigraph.model.receipts import (
    BranchCreated,
    BranchDeleted,
    CommitInfo,
    LoadReceipt,
    MergeReceipt,
    MutationReceipt,
    ReplayReceipt,
    SchemaApplyReceipt,
    SchemaPlan,
)
from omnigraph.model.result import Explanation, ReadAnswer, SnapshotSummary
from omnigraph.model.upkeep import GraphStats
from omnigraph.wire import answers, requests
from omnigraph.wire.requests import (
    ARROW_STREAM,
    IF_GRAPH_COMMIT,
    JSON,
    NDJSON,
    OCTETS,
    Body,
)

Method = Literal["GET", "HEAD", "POST", "DELETE"]
Schema = Mapping[str, Any]

MIB = 1024 * 1024
BODY_BYTES_MAX = 1 * MIB
LOAD_BYTES_MAX = 32 * MIB

GRAPH = "/graphs/{graph_id}"
GRAPH_ID_PATTERN = "^[a-zA-Z0-9-]{1,64}$"
RESERVED_GRAPH_IDS = frozenset({"policies", "healthz", "openapi", "graphs"})

TEXT: Schema = {"type": "string"}


@dataclass(frozen=True, slots=True)
class OperationParameter:
    """One value that travels in the path, the query string or a header."""

    name: str
    place: Literal["path", "query", "header"]
    about: str
    schema: Schema = field(default_factory=lambda: TEXT)
    required: bool = False

    @property
    def repeats(self) -> bool:
        """Whether it may be given several times."""
        return self.schema.get("type") == "array"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation."""

    id: str
    method: Method
    path: str
    summary: str
    answer: type[JsonObject] | None = None
    """The JSON of a success; None for a stream or a blob."""
    body: type[Body] | None = None
    body_required: bool = True
    parameters: tuple[OperationParameter, ...] = ()
    successor: str | None = None
    """The relative URL of the operation that replaces this deprecated one."""
    takes: str = JSON
    """The media type of the body."""
    gives: tuple[str, ...] = (JSON,)
    """The media types of a success, the default first."""
    body_bytes_max: int = BODY_BYTES_MAX
    is_gated: bool = False
    """Whether admission counts it: every write."""
    refusals: tuple[int, ...] = ()
    """Statuses beyond those that every graph operation may answer with."""
    other_answer: type[JsonObject] | None = None
    """Another JSON that a success may have."""
    masks_denial: bool = False
    """Whether a caller that policy refuses gets 404, as for what does not exist."""

    @property
    def is_public(self) -> bool:
        """Whether it needs no token."""
        return self.id in PUBLIC

    @property
    def has_graph(self) -> bool:
        """Whether it is about one graph."""
        return self.path.startswith(GRAPH) and not self.is_public

    @property
    def has_body(self) -> bool:
        """Whether a caller sends something."""
        return self.body is not None or self.takes == NDJSON

    def url_path(self, **values: str) -> str:
        """The path with its parameters filled in, each as one encoded segment.

        >>> DELETE_BRANCH.url_path(graph_id="team", branch="etl/run-1")
        '/graphs/team/branches/etl%2Frun-1'
        """
        return self.path.format(**{name: quote(value, safe="") for name, value in values.items()})


GRAPH_ID = OperationParameter(
    "graph_id", "path", "the graph", {"type": "string", "pattern": GRAPH_ID_PATTERN}, required=True
)
BRANCH = OperationParameter("branch", "query", "main when left out")
CONDITION = OperationParameter(
    IF_GRAPH_COMMIT,
    "header",
    "the commit that has to be the head of the branch",
    {"type": "string", "pattern": "^[A-Za-z0-9]+$"},
    required=True,
)
_LIMIT = OperationParameter("limit", "query", "changes a page", {"type": "integer", "minimum": 1})
_LIMIT_BYTES = OperationParameter(
    "limit_bytes", "query", "target size of a page", {"type": "integer", "minimum": 1}
)
_PAGE_TOKEN = OperationParameter(
    "page_token", "query", "continues an answer that had more than one page"
)
CHANGE_FILTERS = (
    OperationParameter(
        "kind", "query", "only these", {"type": "array", "items": {"enum": ["node", "edge"]}}
    ),
    OperationParameter("type", "query", "only these types", {"type": "array", "items": TEXT}),
    OperationParameter(
        "op",
        "query",
        "only these",
        {"type": "array", "items": {"enum": ["insert", "update", "delete"]}},
    ),
)
_ROWS = (JSON, ARROW_STREAM)


def _path(name: str, about: str) -> OperationParameter:
    return OperationParameter(name, "path", about, required=True)


# --- the server -----------------------------------------------------------------------------------

HEALTH = Operation("health", "GET", "/healthz", "Whether the process is alive", answers.Health)
GRAPH_HEALTH = Operation(
    "cluster_health",
    "GET",
    f"{GRAPH}/healthz",
    "The same, for clients whose base is a graph",
    answers.Health,
)
READY = Operation(
    "ready", "GET", "/readyz", "Whether the process takes work", answers.Ready, refusals=(503,)
)
OPENAPI = Operation("openapi", "GET", "/openapi.json", "This description")
LIST_GRAPHS = Operation("listGraphs", "GET", "/graphs", "The graphs served here", answers.GraphList)

# --- reading --------------------------------------------------------------------------------------

SNAPSHOT = Operation(
    "cluster_getSnapshot",
    "GET",
    f"{GRAPH}/snapshot",
    "What a branch holds",
    SnapshotSummary,
    parameters=(BRANCH,),
)
QUERY = Operation(
    "cluster_query",
    "POST",
    f"{GRAPH}/query",
    "Run a query that reads",
    ReadAnswer,
    requests.QueryRequest,
    gives=_ROWS,
)
READ = Operation(
    "cluster_read",
    "POST",
    f"{GRAPH}/read",
    "Run a query that reads, for older clients",
    answers.LegacyReadAnswer,
    requests.LegacyReadRequest,
    successor="query",
)
_BLOB_PARAMETERS = (
    OperationParameter(
        "entity", "query", "node or edge", {"type": "string", "enum": ["node", "edge"]}, True
    ),
    OperationParameter("type", "query", "the type of the entity", required=True),
    OperationParameter("id", "query", "the entity", required=True),
    OperationParameter("property", "query", "the blob property", required=True),
    BRANCH,
    OperationParameter("snapshot", "query", "a commit id to read instead of a branch head"),
    OperationParameter("If-Match", "header", "only if the value has one of these tags, else 412"),
    OperationParameter(
        "If-None-Match", "header", "only if the value has none of these tags, else 304"
    ),
)
_RANGE_PARAMETERS = (
    OperationParameter("Range", "header", "one range of bytes, as `bytes=0-99`"),
    OperationParameter(
        "If-Range", "header", "the tag for which the range is meant; else all bytes"
    ),
)
GET_BLOB = Operation(
    "cluster_getBlob",
    "GET",
    f"{GRAPH}/blob",
    "The bytes of a blob property, or a part of them",
    parameters=(*_BLOB_PARAMETERS, *_RANGE_PARAMETERS),
    gives=(OCTETS,),
    refusals=(412, 416),
)
HEAD_BLOB = Operation(
    "cluster_headBlob",
    "HEAD",
    f"{GRAPH}/blob",
    "The size and the tag of a blob property",
    parameters=_BLOB_PARAMETERS,
    gives=(OCTETS,),
    refusals=(412,),
)
SCHEMA = Operation(
    "cluster_getSchema", "GET", f"{GRAPH}/schema", "The accepted schema", answers.SchemaSource
)
EXPORT = Operation(
    "cluster_export",
    "POST",
    f"{GRAPH}/export",
    "The entities of a branch as JSON lines",
    body=requests.ExportRequest,
    body_required=False,
    gives=(NDJSON,),
    refusals=(413,),
)

EXPLAIN = Operation(
    "cluster_explain",
    "POST",
    f"{GRAPH}/explain",
    "The typed plan of a query, which is not run",
    Explanation,
    requests.ExplainRequest,
)
STATS = Operation(
    "cluster_getStats",
    "GET",
    f"{GRAPH}/stats",
    "A branch and the graph around it in numbers",
    GraphStats,
    parameters=(BRANCH,),
)
PLAN_SCHEMA = Operation(
    "cluster_planSchema",
    "POST",
    f"{GRAPH}/schema/plan",
    "The steps to another schema; changes nothing",
    SchemaPlan,
    requests.SchemaRequest,
)

# --- writing --------------------------------------------------------------------------------------

MUTATE = Operation(
    "cluster_mutate",
    "POST",
    f"{GRAPH}/mutate",
    "Run a query that writes, as one commit",
    MutationReceipt,
    requests.ChangeRequest,
    is_gated=True,
    refusals=(424,),
)
CHANGE = Operation(
    "cluster_change",
    "POST",
    f"{GRAPH}/change",
    "Run a query that writes, for older clients",
    MutationReceipt,
    requests.ChangeRequest,
    successor="mutate",
    is_gated=True,
    refusals=(424,),
)
MUTATE_IF = Operation(
    "cluster_mutate_if_graph_commit",
    "POST",
    f"{GRAPH}/mutate/if-graph-commit",
    "Run a query that writes, if the branch has not moved",
    MutationReceipt,
    requests.ChangeRequest,
    parameters=(CONDITION,),
    is_gated=True,
    refusals=(412, 424),
)
_LOAD_OPTIONS = (
    OperationParameter(
        "replace_types",
        "query",
        "types that an overwrite empties if it has no records of them",
        {"type": "array", "items": TEXT},
    ),
    OperationParameter(
        "operation_id", "query", "names the load: repeating it returns the first receipt"
    ),
    OperationParameter("message", "query", "why; kept with the commit"),
    OperationParameter("dry_run", "query", "only say what would be written", {"type": "boolean"}),
    OperationParameter(
        "max_errors",
        "query",
        "how many problems of a bad input are told one by one",
        {"type": "integer", "minimum": 1, "maximum": 100},
    ),
    OperationParameter(
        "ignore_unknown", "query", "skip properties that the schema lacks", {"type": "boolean"}
    ),
)
LOAD = Operation(
    "cluster_load",
    "POST",
    f"{GRAPH}/load",
    "Load graph records as one commit",
    answers.LoadReceiptAt,
    requests.LoadRequest,
    body_bytes_max=LOAD_BYTES_MAX,
    is_gated=True,
    refusals=(424,),
)
INGEST = Operation(
    "cluster_ingest",
    "POST",
    f"{GRAPH}/ingest",
    "Load graph records, for older clients",
    answers.LoadReceiptAt,
    requests.LoadRequest,
    successor="load",
    body_bytes_max=LOAD_BYTES_MAX,
    is_gated=True,
    refusals=(424,),
)
LOAD_NDJSON = Operation(
    "cluster_loadNdjson",
    "POST",
    f"{GRAPH}/load/ndjson",
    "Load graph records, sent as they are, as one commit",
    LoadReceipt,
    parameters=(
        BRANCH,
        OperationParameter("from", "query", "where to create the branch from if it is missing"),
        OperationParameter(
            "mode",
            "query",
            "merge when left out",
            {"type": "string", "enum": ["append", "merge", "overwrite"]},
        ),
        *_LOAD_OPTIONS,
    ),
    takes=NDJSON,
    body_bytes_max=LOAD_BYTES_MAX,
    is_gated=True,
    refusals=(424,),
)
APPLY_SCHEMA = Operation(
    "cluster_applySchema",
    "POST",
    f"{GRAPH}/schema/apply",
    "Bring the graph to another schema",
    SchemaApplyReceipt,
    requests.SchemaRequest,
    is_gated=True,
)

# --- stored queries -------------------------------------------------------------------------------

LIST_QUERIES = Operation(
    "cluster_list_queries", "GET", f"{GRAPH}/queries", "The stored queries", answers.QueryCatalog
)
INVOKE = Operation(
    "cluster_invoke_query",
    "POST",
    f"{GRAPH}/queries/{{name}}",
    "Run a stored query",
    ReadAnswer,
    requests.InvokeRequest,
    other_answer=MutationReceipt,
    body_required=False,
    parameters=(_path("name", "the stored query"),),
    gives=_ROWS,
    is_gated=True,
    refusals=(424,),
)
INVOKE_IF = Operation(
    "cluster_invoke_query_if_graph_commit",
    "POST",
    f"{GRAPH}/queries/{{name}}/if-graph-commit",
    "Run a stored query that writes, if the branch has not moved",
    MutationReceipt,
    requests.InvokeRequest,
    body_required=False,
    parameters=(_path("name", "the stored query"), CONDITION),
    is_gated=True,
    refusals=(412, 424),
)

# --- branches and history -------------------------------------------------------------------------

LIST_BRANCHES = Operation(
    "cluster_listBranches", "GET", f"{GRAPH}/branches", "The branches", answers.BranchList
)
CREATE_BRANCH = Operation(
    "cluster_createBranch",
    "POST",
    f"{GRAPH}/branches",
    "Create a branch at the head of another",
    BranchCreated,
    requests.CreateBranchRequest,
    is_gated=True,
)
DELETE_BRANCH = Operation(
    "cluster_deleteBranch",
    "DELETE",
    f"{GRAPH}/branches/{{branch}}",
    "Delete a branch",
    BranchDeleted,
    parameters=(_path("branch", "the branch, as one encoded segment"),),
    is_gated=True,
)
MERGE_BRANCHES = Operation(
    "cluster_mergeBranches",
    "POST",
    f"{GRAPH}/branches/merge",
    "Merge a branch into another, as one commit",
    MergeReceipt,
    requests.MergeRequest,
    is_gated=True,
)
PLAN_MERGE = Operation(
    "cluster_planMerge",
    "POST",
    f"{GRAPH}/branches/merge/plan",
    "What a merge would do, and every conflict; changes nothing",
    MergePlan,
    requests.MergePlanRequest,
    refusals=(409, 410),
)
DIFF = Operation(
    "cluster_diff",
    "GET",
    f"{GRAPH}/diff",
    "What differs between two branches or commits",
    DiffPage,
    parameters=(
        OperationParameter("before", "query", "a branch, or a commit of any branch", required=True),
        OperationParameter(
            "after", "query", "another; later pages name the commits of the first", required=True
        ),
        OperationParameter(
            "images", "query", "show the entities before and after", {"type": "boolean"}
        ),
        _PAGE_TOKEN,
        _LIMIT,
        _LIMIT_BYTES,
        *CHANGE_FILTERS,
    ),
    refusals=(409, 410, 413),
)
LIST_COMMITS = Operation(
    "cluster_listCommits",
    "GET",
    f"{GRAPH}/commits",
    "The commits of a branch, newest first",
    answers.CommitList,
    parameters=(BRANCH,),
)
GET_COMMIT = Operation(
    "cluster_getCommit",
    "GET",
    f"{GRAPH}/commits/{{commit_id}}",
    "One commit of any branch",
    CommitInfo,
    parameters=(_path("commit_id", "the commit"),),
)
COMMIT_CHANGES = Operation(
    "cluster_getCommitChanges",
    "GET",
    f"{GRAPH}/commits/{{commit_id}}/changes",
    "What one commit changed",
    CommitPage,
    parameters=(
        _path("commit_id", "the commit"),
        _PAGE_TOKEN,
        _LIMIT,
        _LIMIT_BYTES,
        *CHANGE_FILTERS,
    ),
    refusals=(409, 410, 413),
    masks_denial=True,
)
_ONE_COMMIT = (_path("commit_id", "the commit"),)
REVERT = Operation(
    "cluster_revertCommit",
    "POST",
    f"{GRAPH}/commits/{{commit_id}}/revert",
    "Undo what one commit of a branch changed, as a new commit",
    ReplayReceipt,
    requests.ReplayRequest,
    body_required=False,
    parameters=_ONE_COMMIT,
    is_gated=True,
    refusals=(410,),
)
PLAN_REVERT = Operation(
    "cluster_planRevert",
    "POST",
    f"{GRAPH}/commits/{{commit_id}}/revert/plan",
    "What undoing a commit would do; changes nothing",
    MergePlan,
    requests.ReplayRequest,
    body_required=False,
    parameters=_ONE_COMMIT,
    refusals=(409, 410),
)
CHERRY_PICK = Operation(
    "cluster_cherryPickCommit",
    "POST",
    f"{GRAPH}/commits/{{commit_id}}/cherry-pick",
    "Do what one commit changed once more on another branch, as a new commit",
    ReplayReceipt,
    requests.ReplayRequest,
    body_required=False,
    parameters=_ONE_COMMIT,
    is_gated=True,
    refusals=(410,),
)
PLAN_CHERRY_PICK = Operation(
    "cluster_planCherryPick",
    "POST",
    f"{GRAPH}/commits/{{commit_id}}/cherry-pick/plan",
    "What doing a commit once more would do; changes nothing",
    MergePlan,
    requests.ReplayRequest,
    body_required=False,
    parameters=_ONE_COMMIT,
    refusals=(409, 410),
)
ENTITY_HISTORY = Operation(
    "cluster_getEntityHistory",
    "GET",
    f"{GRAPH}/history",
    "The commits of a branch that changed one entity, newest first",
    answers.EntityHistoryPage,
    parameters=(
        OperationParameter(
            "type", "query", "its type: `Name`, `node:Name` or `edge:Name`", required=True
        ),
        OperationParameter("id", "query", "the entity", required=True),
        BRANCH,
        _PAGE_TOKEN,
        OperationParameter("limit", "query", "commits a page", {"type": "integer", "minimum": 1}),
    ),
    refusals=(410, 413),
)
POLL_CHANGES = Operation(
    "cluster_pollChanges",
    "GET",
    f"{GRAPH}/changes",
    "What changed on a branch since a cursor",
    FeedPage,
    parameters=(
        BRANCH,
        OperationParameter("cursor", "query", "where the last poll ended"),
        OperationParameter("start", "query", "now, beginning, or after:COMMIT; now when left out"),
        _PAGE_TOKEN,
        _LIMIT,
        _LIMIT_BYTES,
        OperationParameter(
            "limit_commits", "query", "commits a poll", {"type": "integer", "minimum": 1}
        ),
        *CHANGE_FILTERS,
    ),
    refusals=(409, 410, 413),
)
BASELINE = Operation(
    "cluster_captureChangeBaseline",
    "POST",
    f"{GRAPH}/changes/baseline",
    "The entities of a branch, and the cursor of what follows",
    body=requests.BaselineRequest,
    body_required=False,
    gives=(NDJSON,),
    refusals=(413,),
)

PUBLIC = frozenset({"health", "cluster_health", "ready", "openapi"})
"""What needs no token and no graph."""

OPERATIONS: tuple[Operation, ...] = (
    HEALTH,
    GRAPH_HEALTH,
    READY,
    OPENAPI,
    LIST_GRAPHS,
    SNAPSHOT,
    GET_BLOB,
    HEAD_BLOB,
    QUERY,
    READ,
    EXPLAIN,
    STATS,
    MUTATE,
    CHANGE,
    MUTATE_IF,
    LIST_QUERIES,
    INVOKE,
    INVOKE_IF,
    SCHEMA,
    PLAN_SCHEMA,
    APPLY_SCHEMA,
    LOAD,
    INGEST,
    LOAD_NDJSON,
    EXPORT,
    LIST_BRANCHES,
    CREATE_BRANCH,
    DELETE_BRANCH,
    MERGE_BRANCHES,
    PLAN_MERGE,
    DIFF,
    LIST_COMMITS,
    GET_COMMIT,
    COMMIT_CHANGES,
    REVERT,
    PLAN_REVERT,
    CHERRY_PICK,
    PLAN_CHERRY_PICK,
    ENTITY_HISTORY,
    POLL_CHANGES,
    BASELINE,
)
