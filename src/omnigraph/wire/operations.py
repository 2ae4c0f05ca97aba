"""Every operation of the server: its name, method, path, and what it takes and gives.

The table is read by the server, which binds a handler to each entry, by the client, which calls
them, and by `openapi`, which writes the description.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from pydantic import BaseModel

from omnigraph.wire import branches, changes, commits, loads, queries, schemas, service
from omnigraph.wire.base import Body
from omnigraph.wire.headers import (
    ARROW_STREAM,
    IF_GRAPH_COMMIT,
    JSON,
    NDJSON,
    OCTETS,
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
class Parameter:
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
    answer: type[BaseModel] | None = None
    """The JSON of a success; None for a stream or a blob."""
    body: type[Body] | None = None
    body_required: bool = True
    parameters: tuple[Parameter, ...] = ()
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


GRAPH_ID = Parameter(
    "graph_id", "path", "the graph", {"type": "string", "pattern": GRAPH_ID_PATTERN}, required=True
)
BRANCH = Parameter("branch", "query", "main when left out")
CONDITION = Parameter(
    IF_GRAPH_COMMIT,
    "header",
    "the commit that has to be the head of the branch",
    {"type": "string", "pattern": "^[A-Za-z0-9]+$"},
    required=True,
)
_LIMIT = Parameter("limit", "query", "changes a page", {"type": "integer", "minimum": 1})
_PAGE_TOKEN = Parameter("page_token", "query", "continues an answer that had more than one page")
CHANGE_FILTERS = (
    Parameter(
        "kind", "query", "only these", {"type": "array", "items": {"enum": ["node", "edge"]}}
    ),
    Parameter("type", "query", "only these types", {"type": "array", "items": TEXT}),
    Parameter(
        "op",
        "query",
        "only these",
        {"type": "array", "items": {"enum": ["insert", "update", "delete"]}},
    ),
)
_ROWS = (JSON, ARROW_STREAM)


def _path(name: str, about: str) -> Parameter:
    return Parameter(name, "path", about, required=True)


# --- the server -----------------------------------------------------------------------------------

HEALTH = Operation("health", "GET", "/healthz", "Whether the process is alive", service.Health)
GRAPH_HEALTH = Operation(
    "cluster_health",
    "GET",
    f"{GRAPH}/healthz",
    "The same, for clients whose base is a graph",
    service.Health,
)
READY = Operation(
    "ready", "GET", "/readyz", "Whether the process takes work", service.Ready, refusals=(503,)
)
OPENAPI = Operation("openapi", "GET", "/openapi.json", "This description")
LIST_GRAPHS = Operation("listGraphs", "GET", "/graphs", "The graphs served here", service.GraphList)

# --- reading --------------------------------------------------------------------------------------

SNAPSHOT = Operation(
    "cluster_getSnapshot",
    "GET",
    f"{GRAPH}/snapshot",
    "What a branch holds",
    schemas.Snapshot,
    parameters=(BRANCH,),
)
QUERY = Operation(
    "cluster_query",
    "POST",
    f"{GRAPH}/query",
    "Run a query that reads",
    queries.Read,
    queries.QueryRequest,
    gives=_ROWS,
)
READ = Operation(
    "cluster_read",
    "POST",
    f"{GRAPH}/read",
    "Run a query that reads, in the words of older clients",
    queries.Read,
    queries.LegacyReadRequest,
    successor="query",
)
_BLOB_PARAMETERS = (
    Parameter(
        "entity", "query", "node or edge", {"type": "string", "enum": ["node", "edge"]}, True
    ),
    Parameter("type", "query", "the type of the entity", required=True),
    Parameter("id", "query", "the entity", required=True),
    Parameter("property", "query", "the blob property", required=True),
    BRANCH,
    Parameter("snapshot", "query", "a commit id to read instead of a branch head"),
)
GET_BLOB = Operation(
    "cluster_getBlob",
    "GET",
    f"{GRAPH}/blob",
    "The bytes of a blob property, or a part of them",
    parameters=_BLOB_PARAMETERS,
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
    "cluster_getSchema", "GET", f"{GRAPH}/schema", "The accepted schema", schemas.SchemaSource
)
EXPORT = Operation(
    "cluster_export",
    "POST",
    f"{GRAPH}/export",
    "The entities of a branch as JSON lines",
    body=loads.ExportRequest,
    body_required=False,
    gives=(NDJSON,),
    refusals=(413,),
)

# --- writing --------------------------------------------------------------------------------------

MUTATE = Operation(
    "cluster_mutate",
    "POST",
    f"{GRAPH}/mutate",
    "Run a query that writes, as one commit",
    queries.Changed,
    queries.ChangeRequest,
    is_gated=True,
)
CHANGE = Operation(
    "cluster_change",
    "POST",
    f"{GRAPH}/change",
    "Run a query that writes, in the words of older clients",
    queries.Changed,
    queries.ChangeRequest,
    successor="mutate",
    is_gated=True,
)
MUTATE_IF = Operation(
    "cluster_mutate_if_graph_commit",
    "POST",
    f"{GRAPH}/mutate/if-graph-commit",
    "Run a query that writes, if the branch has not moved",
    queries.Changed,
    queries.ChangeRequest,
    parameters=(CONDITION,),
    is_gated=True,
    refusals=(412,),
)
LOAD = Operation(
    "cluster_load",
    "POST",
    f"{GRAPH}/load",
    "Load graph records as one commit",
    loads.LoadedAt,
    loads.LoadRequest,
    body_bytes_max=LOAD_BYTES_MAX,
    is_gated=True,
)
INGEST = Operation(
    "cluster_ingest",
    "POST",
    f"{GRAPH}/ingest",
    "Load graph records, in the words of older clients",
    loads.LoadedAt,
    loads.LoadRequest,
    successor="load",
    body_bytes_max=LOAD_BYTES_MAX,
    is_gated=True,
)
LOAD_NDJSON = Operation(
    "cluster_loadNdjson",
    "POST",
    f"{GRAPH}/load/ndjson",
    "Load graph records, sent as they are, as one commit",
    loads.Loaded,
    parameters=(
        BRANCH,
        Parameter("from", "query", "where to create the branch from if it is missing"),
        Parameter(
            "mode",
            "query",
            "merge when left out",
            {"type": "string", "enum": ["append", "merge", "overwrite"]},
        ),
    ),
    takes=NDJSON,
    body_bytes_max=LOAD_BYTES_MAX,
    is_gated=True,
)
APPLY_SCHEMA = Operation(
    "cluster_applySchema",
    "POST",
    f"{GRAPH}/schema/apply",
    "Bring the graph to another schema",
    schemas.SchemaApplied,
    schemas.ApplySchemaRequest,
    is_gated=True,
)

# --- stored queries -------------------------------------------------------------------------------

LIST_QUERIES = Operation(
    "cluster_list_queries", "GET", f"{GRAPH}/queries", "The stored queries", queries.QueryCatalog
)
INVOKE = Operation(
    "cluster_invoke_query",
    "POST",
    f"{GRAPH}/queries/{{name}}",
    "Run a stored query",
    queries.Read,
    queries.InvokeRequest,
    body_required=False,
    parameters=(_path("name", "the stored query"),),
    gives=_ROWS,
    is_gated=True,
)
INVOKE_IF = Operation(
    "cluster_invoke_query_if_graph_commit",
    "POST",
    f"{GRAPH}/queries/{{name}}/if-graph-commit",
    "Run a stored query that writes, if the branch has not moved",
    queries.Changed,
    queries.InvokeRequest,
    body_required=False,
    parameters=(_path("name", "the stored query"), CONDITION),
    is_gated=True,
    refusals=(412,),
)

# --- branches and history -------------------------------------------------------------------------

LIST_BRANCHES = Operation(
    "cluster_listBranches", "GET", f"{GRAPH}/branches", "The branches", branches.BranchList
)
CREATE_BRANCH = Operation(
    "cluster_createBranch",
    "POST",
    f"{GRAPH}/branches",
    "Create a branch at the head of another",
    branches.BranchCreated,
    branches.CreateBranchRequest,
    is_gated=True,
)
DELETE_BRANCH = Operation(
    "cluster_deleteBranch",
    "DELETE",
    f"{GRAPH}/branches/{{branch}}",
    "Delete a branch",
    branches.BranchDeleted,
    parameters=(_path("branch", "the branch, as one encoded segment"),),
    is_gated=True,
)
MERGE_BRANCHES = Operation(
    "cluster_mergeBranches",
    "POST",
    f"{GRAPH}/branches/merge",
    "Merge a branch into another, as one commit",
    branches.Merged,
    branches.MergeRequest,
    is_gated=True,
)
LIST_COMMITS = Operation(
    "cluster_listCommits",
    "GET",
    f"{GRAPH}/commits",
    "The commits of a branch, newest first",
    commits.CommitList,
    parameters=(BRANCH,),
)
GET_COMMIT = Operation(
    "cluster_getCommit",
    "GET",
    f"{GRAPH}/commits/{{commit_id}}",
    "One commit of any branch",
    commits.Commit,
    parameters=(_path("commit_id", "the commit"),),
)
COMMIT_CHANGES = Operation(
    "cluster_getCommitChanges",
    "GET",
    f"{GRAPH}/commits/{{commit_id}}/changes",
    "What one commit changed",
    changes.DiffPage,
    parameters=(_path("commit_id", "the commit"), _PAGE_TOKEN, _LIMIT, *CHANGE_FILTERS),
    refusals=(409, 410, 413),
)
POLL_CHANGES = Operation(
    "cluster_pollChanges",
    "GET",
    f"{GRAPH}/changes",
    "What changed on a branch since a cursor",
    changes.FeedPage,
    parameters=(
        BRANCH,
        Parameter("cursor", "query", "where the last poll ended"),
        Parameter("start", "query", "now, beginning, or after:COMMIT; now when left out"),
        _PAGE_TOKEN,
        _LIMIT,
        *CHANGE_FILTERS,
    ),
    refusals=(409, 410, 413),
)
BASELINE = Operation(
    "cluster_captureChangeBaseline",
    "POST",
    f"{GRAPH}/changes/baseline",
    "The entities of a branch, and the cursor of what follows",
    body=changes.BaselineRequest,
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
    MUTATE,
    CHANGE,
    MUTATE_IF,
    LIST_QUERIES,
    INVOKE,
    INVOKE_IF,
    SCHEMA,
    APPLY_SCHEMA,
    LOAD,
    INGEST,
    LOAD_NDJSON,
    EXPORT,
    LIST_BRANCHES,
    CREATE_BRANCH,
    DELETE_BRANCH,
    MERGE_BRANCHES,
    LIST_COMMITS,
    GET_COMMIT,
    COMMIT_CHANGES,
    POLL_CHANGES,
    BASELINE,
)
