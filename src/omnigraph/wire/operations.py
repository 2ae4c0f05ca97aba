"""Every operation of the server: name, method, path, parameters, body and answer.

The server binds a handler to each entry, the client calls them, and `openapi` generates the
description.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any, Literal

from omnigraph.model.changes import CommitPage, FeedPage
from omnigraph.model.diffs import DiffPage
from omnigraph.model.editing import LanguageAnswer
from omnigraph.model.ids import KEY_CHARACTERS_MAX
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
    SchemaRebaseReceipt,
    TagInfo,
)
from omnigraph.model.records import dataclass
from omnigraph.model.result import Explanation, ReadAnswer, SnapshotSummary
from omnigraph.model.reviews import Review, ReviewEvents, ReviewMerged, ReviewPage
from omnigraph.model.signatures import SchemaDescription
from omnigraph.model.upkeep import GraphStats
from omnigraph.wire import answers, requests
from omnigraph.wire.requests import (
    ARROW_STREAM,
    IDEMPOTENCY_KEY,
    IF_GRAPH_COMMIT,
    JSON,
    NDJSON,
    OCTETS,
    TIMEOUT,
    Body,
)

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
    """A parameter in the path, the query string or a header."""

    name: str
    place: Literal["path", "query", "header"]
    about: str
    schema: Schema = field(default_factory=lambda: TEXT)
    required: bool = False

    @property
    def repeats(self) -> bool:
        """Whether it may be repeated."""
        return self.schema.get("type") == "array"


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation."""

    id: str
    route: str
    """The method and path."""
    summary: str
    answer: type[JsonObject] | None = None
    """The type of a JSON answer; None for a stream or a blob."""
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
    """Whether admission counts it; true for all writes."""
    refusals: tuple[int, ...] = ()
    """Error statuses besides the common ones of graph operations."""
    other_answer: type[JsonObject] | None = None
    """An alternative type of a JSON answer."""
    masks_denial: bool = False
    """Whether a denied caller gets 404, as for a missing object."""
    is_public: bool = False
    """Whether it needs no token and no graph."""
    method: str = field(init=False)
    path: str = field(init=False)

    def __post_init__(self) -> None:
        """Parse the route."""
        method, _, path = self.route.partition(" ")
        object.__setattr__(self, "method", method)
        object.__setattr__(self, "path", path)

    @property
    def has_graph(self) -> bool:
        """Whether it addresses a graph."""
        return self.path.startswith(GRAPH) and not self.is_public

    @property
    def has_body(self) -> bool:
        """Whether it has a body."""
        return self.body is not None or self.takes == NDJSON


def _path(name: str, about: str) -> OperationParameter:
    return OperationParameter(name, "path", about, required=True)


def _query(
    name: str, about: str, schema: Schema = TEXT, *, required: bool = False
) -> OperationParameter:
    return OperationParameter(name, "query", about, schema, required)


def _header(
    name: str, about: str, schema: Schema = TEXT, *, required: bool = False
) -> OperationParameter:
    return OperationParameter(name, "header", about, schema, required)


def _one_of(*words: str) -> Schema:
    return {"type": "string", "enum": list(words)}


def _several(items: Schema) -> Schema:
    return {"type": "array", "items": items}


def _fields_of(body: type[Body]) -> Iterator[OperationParameter]:
    """The fields of a body as parameters of a query string."""
    for name, found in body.model_json_schema()["properties"].items():
        schema = {**found, **found.get("anyOf", [{}])[0]}
        about = schema.pop("description")
        plain = {key: value for key, value in schema.items() if key not in _OF_BODIES}
        yield _query(name, about, plain)


_OF_BODIES = ("anyOf", "default", "title")
"""Members that a parameter's schema omits."""
_COUNT: Schema = {"type": "integer", "minimum": 1}
_FLAG: Schema = {"type": "boolean"}

GRAPH_ID = OperationParameter(
    "graph_id", "path", "the graph", {"type": "string", "pattern": GRAPH_ID_PATTERN}, required=True
)
BRANCH = _query("branch", "main when left out")
_SNAPSHOT = _query("snapshot", "a commit id to read instead of a branch head")
CONDITION = _header(
    IF_GRAPH_COMMIT,
    "the commit that has to be the head of the branch",
    {"type": "string", "pattern": "^[A-Za-z0-9]+$"},
    required=True,
)
SECONDS = _header(
    TIMEOUT,
    "seconds after which the query is stopped; the server's limit when left out, and at most",
    {"type": "number", "exclusiveMinimum": 0},
)
KEY = _header(
    IDEMPOTENCY_KEY,
    "names the write: asked again with the same key, it is not done again",
    {"type": "string", "minLength": 1, "maxLength": KEY_CHARACTERS_MAX, "pattern": "[!-~]"},
)
"""The header of all writes."""
_LIMIT = _query("limit", "changes a page", _COUNT)
_LIMIT_BYTES = _query("limit_bytes", "target size of a page", _COUNT)
_PAGE_TOKEN = _query("page_token", "continues an answer that had more than one page")
CHANGE_FILTERS = (
    _query("kind", "only these", _several({"enum": ["node", "edge"]})),
    _query("type", "only these types", _several(TEXT)),
    _query("op", "only these", _several({"enum": ["insert", "update", "delete"]})),
)
_ROWS = (JSON, ARROW_STREAM)


# --- the server -----------------------------------------------------------------------------------

HEALTH = Operation(
    "health", "GET /healthz", "Whether the process is alive", answers.Health, is_public=True
)
GRAPH_HEALTH = Operation(
    "cluster_health",
    f"GET {GRAPH}/healthz",
    "The same, for clients whose base is a graph",
    answers.Health,
    is_public=True,
)
READY = Operation(
    "ready",
    "GET /readyz",
    "Whether the process takes work",
    answers.Ready,
    refusals=(503,),
    is_public=True,
)
OPENAPI = Operation("openapi", "GET /openapi.json", "This description", is_public=True)
OPEN_SESSION = Operation(
    "openSession",
    "POST /session",
    "A token for the one-time code that `omnigraph studio` printed",
    answers.SessionToken,
    requests.SessionRequest,
    refusals=(400, 401, 413, 415),
    is_public=True,
)
LIST_GRAPHS = Operation("listGraphs", "GET /graphs", "The graphs served here", answers.GraphList)

# --- reading --------------------------------------------------------------------------------------

SNAPSHOT = Operation(
    "cluster_getSnapshot",
    f"GET {GRAPH}/snapshot",
    "What a branch holds",
    SnapshotSummary,
    parameters=(BRANCH,),
)
_BLOB_PARAMETERS = (
    _query("entity", "node or edge", _one_of("node", "edge"), required=True),
    _query("type", "the type of the entity", required=True),
    _query("id", "the entity", required=True),
    _query("property", "the blob property", required=True),
    BRANCH,
    _SNAPSHOT,
    _header("If-Match", "only if the value has one of these tags, else 412"),
    _header("If-None-Match", "only if the value has none of these tags, else 304"),
)
_RANGE_PARAMETERS = (
    _header("Range", "one range of bytes, as `bytes=0-99`"),
    _header("If-Range", "the tag for which the range is meant; else all bytes"),
)
GET_BLOB = Operation(
    "cluster_getBlob",
    f"GET {GRAPH}/blob",
    "The bytes of a blob property, or a part of them",
    parameters=(*_BLOB_PARAMETERS, *_RANGE_PARAMETERS),
    gives=(OCTETS,),
    refusals=(412, 416),
)
HEAD_BLOB = Operation(
    "cluster_headBlob",
    f"HEAD {GRAPH}/blob",
    "The size and the tag of a blob property",
    parameters=_BLOB_PARAMETERS,
    gives=(OCTETS,),
    refusals=(412,),
)
QUERY = Operation(
    "cluster_query",
    f"POST {GRAPH}/query",
    "Run a query that reads",
    ReadAnswer,
    requests.QueryRequest,
    parameters=(SECONDS,),
    gives=_ROWS,
    refusals=(408, 413, 429, 503),
)
READ = Operation(
    "cluster_read",
    f"POST {GRAPH}/read",
    "Run a query that reads, for older clients",
    answers.LegacyReadAnswer,
    requests.LegacyReadRequest,
    parameters=(SECONDS,),
    successor="query",
    refusals=(408, 413, 429, 503),
)
EXPLAIN = Operation(
    "cluster_explain",
    f"POST {GRAPH}/explain",
    "The typed plan of a query, which is not run",
    Explanation,
    requests.ExplainRequest,
)
DESCRIBE_QUERIES = Operation(
    "cluster_describeQueries",
    f"POST {GRAPH}/describe",
    "What the queries of a text are called and take; runs none of them",
    answers.QueryCatalog,
    requests.DescribeRequest,
)
LANGUAGE = Operation(
    "cluster_language",
    f"POST {GRAPH}/language",
    "Problems, completions, meanings and layout of a text that is being written",
    LanguageAnswer,
    requests.LanguageRequest,
)
STATS = Operation(
    "cluster_getStats",
    f"GET {GRAPH}/stats",
    "A branch and the graph around it in numbers",
    GraphStats,
    parameters=(BRANCH,),
)

# --- writing --------------------------------------------------------------------------------------

MUTATE = Operation(
    "cluster_mutate",
    f"POST {GRAPH}/mutate",
    "Run a query that writes, as one commit",
    MutationReceipt,
    requests.ChangeRequest,
    is_gated=True,
    refusals=(424,),
)
CHANGE = replace(
    MUTATE,
    id="cluster_change",
    route=f"POST {GRAPH}/change",
    summary="Run a query that writes, for older clients",
    successor="mutate",
)
MUTATE_IF = replace(
    MUTATE,
    id="cluster_mutate_if_graph_commit",
    route=f"POST {GRAPH}/mutate/if-graph-commit",
    summary="Run a query that writes, if the branch has not moved",
    parameters=(CONDITION,),
    refusals=(412, 424),
)

# --- stored queries -------------------------------------------------------------------------------

LIST_QUERIES = Operation(
    "cluster_list_queries", f"GET {GRAPH}/queries", "The stored queries", answers.QueryCatalog
)
INVOKE = Operation(
    "cluster_invoke_query",
    f"POST {GRAPH}/queries/{{name}}",
    "Run a stored query",
    ReadAnswer,
    requests.InvokeRequest,
    other_answer=MutationReceipt,
    body_required=False,
    parameters=(_path("name", "the stored query"), SECONDS),
    gives=_ROWS,
    is_gated=True,
    refusals=(408, 413, 424),
)
INVOKE_IF = Operation(
    "cluster_invoke_query_if_graph_commit",
    f"POST {GRAPH}/queries/{{name}}/if-graph-commit",
    "Run a stored query that writes, if the branch has not moved",
    MutationReceipt,
    requests.InvokeRequest,
    body_required=False,
    parameters=(_path("name", "the stored query"), CONDITION),
    is_gated=True,
    refusals=(412, 424),
)

# --- schemas, loads, exports and tables -----------------------------------------------------------

SCHEMA = Operation(
    "cluster_getSchema",
    f"GET {GRAPH}/schema",
    "The schema of a branch",
    answers.SchemaSource,
    parameters=(BRANCH,),
)
DESCRIBE_SCHEMA = Operation(
    "cluster_describeSchema",
    f"GET {GRAPH}/schema/types",
    "The types of a branch or commit, with properties, rules and counts",
    SchemaDescription,
    parameters=(BRANCH, _SNAPSHOT),
)
PERMISSIONS = Operation(
    "cluster_getPermissions",
    f"GET {GRAPH}/permissions",
    "What the caller may do with a branch",
    answers.Permissions,
    parameters=(BRANCH,),
)
PLAN_SCHEMA = Operation(
    "cluster_planSchema",
    f"POST {GRAPH}/schema/plan",
    "The steps to another schema; changes nothing",
    SchemaPlan,
    requests.SchemaRequest,
)
APPLY_SCHEMA = Operation(
    "cluster_applySchema",
    f"POST {GRAPH}/schema/apply",
    "Bring the graph to another schema",
    SchemaApplyReceipt,
    requests.SchemaApplyRequest,
    is_gated=True,
)
REBASE_SCHEMA = Operation(
    "cluster_rebaseSchema",
    f"POST {GRAPH}/schema/rebase",
    "Bring a branch to the schema of main",
    SchemaRebaseReceipt,
    requests.SchemaRebaseRequest,
    is_gated=True,
)
LOAD = Operation(
    "cluster_load",
    f"POST {GRAPH}/load",
    "Load graph records as one commit",
    answers.LoadReceiptAt,
    requests.LoadRequest,
    body_bytes_max=LOAD_BYTES_MAX,
    is_gated=True,
    refusals=(424,),
)
INGEST = replace(
    LOAD,
    id="cluster_ingest",
    route=f"POST {GRAPH}/ingest",
    summary="Load graph records, for older clients",
    successor="load",
)
LOAD_NDJSON = Operation(
    "cluster_loadNdjson",
    f"POST {GRAPH}/load/ndjson",
    "Load graph records, sent as they are, as one commit",
    LoadReceipt,
    parameters=tuple(_fields_of(requests.LoadOptions)),
    takes=NDJSON,
    body_bytes_max=LOAD_BYTES_MAX,
    is_gated=True,
    refusals=(424,),
)
EXPORT = Operation(
    "cluster_export",
    f"POST {GRAPH}/export",
    "The entities of a branch: JSON lines, or one Arrow stream after another, one for each type",
    body=requests.ExportRequest,
    body_required=False,
    gives=(NDJSON, ARROW_STREAM),
    refusals=(413,),
)

TABLE = Operation(
    "cluster_table",
    f"POST {GRAPH}/table",
    "The rows of one type of node or edge",
    body=requests.TableRequest,
    gives=(ARROW_STREAM,),
    refusals=(410, 413),
)

# --- branches and history -------------------------------------------------------------------------

LIST_BRANCHES = Operation(
    "cluster_listBranches", f"GET {GRAPH}/branches", "The branches", answers.BranchList
)
CREATE_BRANCH = Operation(
    "cluster_createBranch",
    f"POST {GRAPH}/branches",
    "Create a branch at the head of another, or at any revision",
    BranchCreated,
    requests.CreateBranchRequest,
    is_gated=True,
)
DELETE_BRANCH = Operation(
    "cluster_deleteBranch",
    f"DELETE {GRAPH}/branches/{{branch}}",
    "Delete a branch",
    BranchDeleted,
    parameters=(_path("branch", "the branch, as one encoded segment"),),
    is_gated=True,
)
LIST_TAGS = Operation("cluster_listTags", f"GET {GRAPH}/tags", "The tags", answers.TagList)
CREATE_TAG = Operation(
    "cluster_createTag",
    f"POST {GRAPH}/tags",
    "Name a commit",
    TagInfo,
    requests.CreateTagRequest,
    is_gated=True,
)
DELETE_TAG = Operation(
    "cluster_deleteTag",
    f"DELETE {GRAPH}/tags/{{tag}}",
    "Delete a tag; its commit stays",
    TagInfo,
    parameters=(_path("tag", "the tag, as one encoded segment"),),
    is_gated=True,
)
MERGE_BRANCHES = Operation(
    "cluster_mergeBranches",
    f"POST {GRAPH}/branches/merge",
    "Merge a branch into another, as one commit",
    MergeReceipt,
    requests.MergeRequest,
    is_gated=True,
)
PLAN_MERGE = Operation(
    "cluster_planMerge",
    f"POST {GRAPH}/branches/merge/plan",
    "What a merge would do, and every conflict; changes nothing",
    MergePlan,
    requests.MergePlanRequest,
    refusals=(409, 410, 413),
)
DIFF = Operation(
    "cluster_diff",
    f"GET {GRAPH}/diff",
    "What a branch or commit changed since it went apart from another",
    DiffPage,
    parameters=(
        _query("target", "a branch or another revision", required=True),
        _query("source", "another; later pages name the commits of the first", required=True),
        _query("direct", "compare the two as they are, and not from the merge base", _FLAG),
        _query("images", "show the entities before and after", _FLAG),
        _PAGE_TOKEN,
        _LIMIT,
        _LIMIT_BYTES,
        *CHANGE_FILTERS,
    ),
    refusals=(409, 410, 413),
)
LIST_COMMITS = Operation(
    "cluster_listCommits",
    f"GET {GRAPH}/commits",
    "The commits of a branch, newest first",
    answers.CommitList,
    parameters=(BRANCH,),
)
GET_COMMIT = Operation(
    "cluster_getCommit",
    f"GET {GRAPH}/commits/{{commit_id}}",
    "One commit of any branch",
    CommitInfo,
    parameters=(_path("commit_id", "the commit: its id, or another revision"),),
)
COMMIT_CHANGES = Operation(
    "cluster_getCommitChanges",
    f"GET {GRAPH}/commits/{{commit_id}}/changes",
    "What one commit changed",
    CommitPage,
    parameters=(
        _path("commit_id", "the commit: its id, or another revision"),
        _PAGE_TOKEN,
        _LIMIT,
        _LIMIT_BYTES,
        *CHANGE_FILTERS,
    ),
    refusals=(409, 410, 413),
    masks_denial=True,
)
_ONE_COMMIT = (_path("commit_id", "the commit: its id, or another revision"),)
REVERT = Operation(
    "cluster_revertCommit",
    f"POST {GRAPH}/commits/{{commit_id}}/revert",
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
    f"POST {GRAPH}/commits/{{commit_id}}/revert/plan",
    "What undoing a commit would do; changes nothing",
    MergePlan,
    requests.ReplayPlanRequest,
    body_required=False,
    parameters=_ONE_COMMIT,
    refusals=(409, 410, 413),
)
CHERRY_PICK = replace(
    REVERT,
    id="cluster_cherryPickCommit",
    route=f"POST {GRAPH}/commits/{{commit_id}}/cherry-pick",
    summary="Do what one commit changed once more on another branch, as a new commit",
)
PLAN_CHERRY_PICK = replace(
    PLAN_REVERT,
    id="cluster_planCherryPick",
    route=f"POST {GRAPH}/commits/{{commit_id}}/cherry-pick/plan",
    summary="What doing a commit once more would do; changes nothing",
)
ENTITY_HISTORY = Operation(
    "cluster_getEntityHistory",
    f"GET {GRAPH}/history",
    "The commits of a branch that changed one entity, newest first",
    answers.EntityHistoryPage,
    parameters=(
        _query("type", "its type: `Name`, `node:Name` or `edge:Name`", required=True),
        _query("id", "the entity", required=True),
        BRANCH,
        _PAGE_TOKEN,
        _query("limit", "commits a page", _COUNT),
    ),
    refusals=(410, 413),
)
POLL_CHANGES = Operation(
    "cluster_pollChanges",
    f"GET {GRAPH}/changes",
    "What changed on a branch since a cursor",
    FeedPage,
    parameters=(
        BRANCH,
        _query("cursor", "where the last poll ended"),
        _query("start", "now, beginning, or after:COMMIT; now when left out"),
        _PAGE_TOKEN,
        _LIMIT,
        _LIMIT_BYTES,
        _query("limit_commits", "commits a poll", _COUNT),
        *CHANGE_FILTERS,
    ),
    refusals=(409, 410, 413),
)
BASELINE = Operation(
    "cluster_captureChangeBaseline",
    f"POST {GRAPH}/changes/baseline",
    "The entities of a branch, and the cursor of what follows",
    body=requests.BaselineRequest,
    body_required=False,
    gives=(NDJSON,),
    refusals=(413,),
)

# --- change requests ------------------------------------------------------------------------------

_REVIEW = f"{GRAPH}/reviews/{{review_id}}"
_ONE_REVIEW = (_path("review_id", "the change request, or the beginning of its id"),)
LIST_REVIEWS = Operation(
    "cluster_listReviews",
    f"GET {GRAPH}/reviews",
    "Change requests, newest first",
    ReviewPage,
    parameters=(
        _query(
            "state", "which ones; open when left out", _one_of("open", "merged", "closed", "all")
        ),
        _PAGE_TOKEN,
        _query("limit", "change requests a page", _COUNT),
    ),
    refusals=(413,),
)
OPEN_REVIEW = Operation(
    "cluster_openReview",
    f"POST {GRAPH}/reviews",
    "Ask to merge a branch into another",
    Review,
    requests.OpenReviewRequest,
    is_gated=True,
)
EXPORT_REVIEWS = Operation(
    "cluster_exportReviews",
    f"GET {GRAPH}/reviews/events",
    "The events of all change requests, in their order",
    ReviewEvents,
    parameters=(_PAGE_TOKEN, _query("limit", "events a page", _COUNT)),
    refusals=(413,),
)
GET_REVIEW = Operation(
    "cluster_getReview",
    f"GET {_REVIEW}",
    "One change request as it stands now",
    Review,
    parameters=_ONE_REVIEW,
    refusals=(409,),
)
DIFF_REVIEW = replace(
    DIFF,
    id="cluster_diffReview",
    route=f"GET {_REVIEW}/diff",
    summary="What a change request would change in its target, or has changed once it is merged",
    parameters=(
        *_ONE_REVIEW,
        *(each for each in DIFF.parameters if each.name not in ("target", "source", "direct")),
    ),
)
EDIT_REVIEW = Operation(
    "cluster_editReview",
    f"POST {_REVIEW}/edit",
    "Change the title or the description of a change request",
    Review,
    requests.EditReviewRequest,
    parameters=_ONE_REVIEW,
    is_gated=True,
)
COMMENT_REVIEW = replace(
    EDIT_REVIEW,
    id="cluster_commentReview",
    route=f"POST {_REVIEW}/comments",
    summary="Comment on a change request",
    body=requests.CommentRequest,
)
RESOLVE_COMMENT = replace(
    EDIT_REVIEW,
    id="cluster_resolveComment",
    route=f"POST {_REVIEW}/comments/{{comment_id}}/resolve",
    summary="Mark the thread of a comment as resolved, or as open again",
    body=requests.ResolveRequest,
    body_required=False,
    parameters=(*_ONE_REVIEW, _path("comment_id", "the comment")),
)
REVIEW_REVIEW = replace(
    EDIT_REVIEW,
    id="cluster_reviewReview",
    route=f"POST {_REVIEW}/review",
    summary="Approve a change request, or ask for changes",
    body=requests.VerdictRequest,
)
CHECK_REVIEW = replace(
    EDIT_REVIEW,
    id="cluster_checkReview",
    route=f"POST {_REVIEW}/check",
    summary="Run the checks of the server on the head of the source",
    body=requests.RunChecksRequest,
    body_required=False,
)
REPORT_CHECK = replace(
    EDIT_REVIEW,
    id="cluster_reportCheck",
    route=f"POST {_REVIEW}/checks/{{name}}",
    summary="Tell how a check of another program went",
    body=requests.ReportCheckRequest,
    parameters=(*_ONE_REVIEW, _path("name", "the check")),
)
MERGE_REVIEW = replace(
    EDIT_REVIEW,
    id="cluster_mergeReview",
    route=f"POST {_REVIEW}/merge",
    summary="Merge a change request, as one commit that names it",
    answer=ReviewMerged,
    body=requests.MergeReviewRequest,
    body_required=False,
)
CLOSE_REVIEW = replace(
    EDIT_REVIEW,
    id="cluster_closeReview",
    route=f"POST {_REVIEW}/close",
    summary="Close a change request without merging it",
    body=None,
)
REOPEN_REVIEW = replace(
    CLOSE_REVIEW,
    id="cluster_reopenReview",
    route=f"POST {_REVIEW}/reopen",
    summary="Open a closed change request again",
)

OPERATIONS = tuple(each for each in tuple(globals().values()) if isinstance(each, Operation))
"""All operations in the order of this module, which is that of the description."""
