"""The tools and resources of one graph: names, arguments and functions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from omnigraph.client import RemoteGraph
from omnigraph.errors import Denied, InputError
from omnigraph.graph import Graph
from omnigraph.graph.reading import query_files
from omnigraph.model.ids import check_branch_name
from omnigraph.model.receipts import MutationReceipt
from omnigraph.model.records import dataclass
from omnigraph.model.result import Result
from omnigraph.model.signatures import QuerySignature
from omnigraph.query.primer import (
    PRIMER_READING,
    QUERIES_READING,
    SCHEMA_READING,
    FirstReading,
    primer,
)

# --- access ---------------------------------------------------------------------------------------

_BELOW = "/*"


@dataclass(frozen=True, slots=True)
class ToolAccess:
    """The permissions of tools: branches to write to, ad-hoc queries, and reviews.

    By default, only stored queries run, and nothing is written.
    """

    write_branches: tuple[str, ...] = ()
    """Names, or `prefix/*` for every branch below a prefix."""
    adhoc: bool = False
    rows_max: int = 200
    """The maximum rows of an answer; longer ones are truncated, with a note."""
    actor: str | None = None
    """The actor of writes to storage."""
    reviews: bool = False
    """Whether change requests may be approved and merged, which by default only people do."""

    @classmethod
    def of(
        cls,
        write_branches: Iterable[str] = (),
        *,
        adhoc: bool = False,
        rows_max: int = 200,
        actor: str | None = None,
        reviews: bool = False,
    ) -> ToolAccess:
        """The permissions from command-line flags; raises `InputError` for a malformed branch."""
        allowed = tuple(write_branches)
        for pattern in allowed:
            check_branch_name(pattern.removesuffix(_BELOW))
        if rows_max < 1:
            raise InputError(f"at most {rows_max} rows are none", hint="allow one or more")
        return cls(allowed, adhoc, rows_max, actor, reviews)

    @property
    def writes(self) -> bool:
        """Whether any write is allowed."""
        return bool(self.write_branches)

    def require_writable(self, branch: str) -> None:
        """Raise `Denied` for a branch that is not listed."""
        if not any(_fits(pattern, branch) for pattern in self.write_branches):
            raise Denied(
                f"branch '{branch}' may not be written to here",
                hint=f"write to {self.shown()}; work of its own belongs on a branch of its own",
            )

    def explained(self) -> str:
        """A section of the primer that tells a model its permissions."""
        lines = [
            "# What is allowed here",
            "",
            f"- An answer has at most {self.rows_max} rows, and says how many there were.",
            "- Stored queries are tools of their own: see `omnigraph://queries`.",
        ]
        if self.adhoc:
            lines.append("- `graph_query` runs a query that reads, with `params` by name.")
        if not self.writes:
            return "\n".join([*lines, "- Nothing may be written.", ""])
        lines += [
            f"- Writes land on {self.shown()} alone. `graph_branch_create` makes a branch.",
            "- `open_review` asks people to look at a branch and to merge it.",
        ]
        if self.adhoc:
            lines.append("- `graph_mutate` runs a query that writes, on the branch it names.")
        return "\n".join([*lines, ""])

    def shown(self) -> str:
        """The branches as text."""
        return " or ".join(f"'{pattern}'" for pattern in self.write_branches) or "no branch"


def _fits(pattern: str, branch: str) -> bool:
    if pattern.endswith(_BELOW):
        return branch.startswith(pattern.removesuffix("*")) and branch != pattern
    return branch == pattern


# --- tools ----------------------------------------------------------------------------------------

Json = dict[str, Any]
AnyGraph = Graph | RemoteGraph

COMMITS_MAX = 100


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool."""

    name: str
    about: str
    schema: Mapping[str, Any]
    """The JSON schema of its arguments."""
    run: Callable[[Json], Json]
    """Runs the tool; raises `OmnigraphError`."""
    writes: bool = False


class Arguments(BaseModel):
    """What a tool takes. What is not declared is an error."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NoArguments(Arguments):
    """Nothing."""


class OnBranch(Arguments):
    """A branch to look at."""

    branch: str = Field("main", description="a branch; `graph_branches` lists them")


class OfCommit(Arguments):
    """A commit to look at."""

    commit_id: str = Field(description="a commit id, as `graph_commits` shows it")


class AdhocQuery(OnBranch):
    """The text and parameters of an ad-hoc query."""

    query: str = Field(description="a query in the language of this graph")
    params: dict[str, Any] = Field(default_factory=dict, description="its parameters by name")


class NewBranch(Arguments):
    """A branch to begin."""

    name: str = Field(description="the name of the new branch")
    from_: str = Field("main", alias="from", description="the branch to begin at")


class Merge(Arguments):
    """Two branches."""

    source: str = Field(description="the branch with the changes")
    into: str = Field(description="the branch that gets them")


class OfReview(Arguments):
    """A change request."""

    id: str = Field(description="a change request, as `list_reviews` shows it")


class ReviewsOfState(Arguments):
    """Which change requests."""

    state: Literal["open", "merged", "closed", "all"] = Field("open", description="which ones")
    page_token: str | None = Field(None, description="continues an earlier answer")


class NewReview(Arguments):
    """A change request to open."""

    source: str = Field(description="the branch with the changes")
    into: str = Field("main", description="the branch that is to get them")
    title: str = Field(description="what it is about, in one line")
    description: str = Field("", description="more about it")


class NewComment(OfReview):
    """A comment on a change request, or on a part of its changes."""

    text: str = Field(description="what to say")
    type_name: str | None = Field(None, description="the type it is about")
    entity_id: str | None = Field(None, description="the entity it is about")
    property_name: str | None = Field(None, description="the property it is about")
    reply_to: str | None = Field(None, description="the comment it answers")


class NewVerdict(OfReview):
    """A review of a change request."""

    verdict: Literal["approve", "request_changes"] = Field(description="what to say about it")
    text: str | None = Field(None, description="why")


Given = TypeVar("Given", bound=Arguments)


def tools_of(graph: AnyGraph, stored: Iterable[QueryTool], access: ToolAccess) -> list[Tool]:
    """All tools for these permissions, by name.

    Raises `InputError` if a stored query has the name of another tool.
    """
    tools = [*_reading(graph), *_stored(stored, access)]
    if access.adhoc:
        tools += _adhoc(graph, access)
    if access.writes:
        tools += _writing(graph, access)
    tools += _reviewing(graph, access)
    names: set[str] = set()
    for tool in tools:
        if tool.name in names:
            raise InputError(
                f"two tools are called '{tool.name}'", hint="rename one of the stored queries"
            )
        names.add(tool.name)
    return sorted(tools, key=lambda tool: tool.name)


def _reading(graph: AnyGraph) -> list[Tool]:
    def commits(given: OnBranch) -> Json:
        found = graph.list_commits(given.branch)
        shown = [commit.to_dict() for commit in found[:COMMITS_MAX]]
        return {"commits": shown, "commit_count": len(found)}

    return [
        _tool(
            "graph_schema",
            "The schema: the types of nodes and edges of this graph, and their properties.",
            NoArguments,
            lambda _given: {"schema_source": graph.schema_source},
        ),
        _tool(
            "graph_branches",
            "The branches of this graph.",
            NoArguments,
            lambda _given: {"branches": graph.list_branches()},
        ),
        _tool(
            "graph_snapshot",
            "How many nodes and edges of each type a branch holds.",
            OnBranch,
            lambda given: graph.snapshot(given.branch).to_dict(),
        ),
        _tool("graph_commits", "The newest commits of a branch.", OnBranch, commits),
        _tool(
            "graph_commit_changes",
            "What one commit changed: entities before and after. Long answers are cut off.",
            OfCommit,
            lambda given: graph.commit_changes_page(given.commit_id).to_dict(),
        ),
    ]


def _stored(stored: Iterable[QueryTool], access: ToolAccess) -> list[Tool]:
    """One tool per stored query; writing ones only if writes are allowed."""
    return [
        Tool(
            each.name,
            each.about,
            _with_branch(each.schema, access if each.writes else None),
            _invocation(each, access),
            each.writes,
        )
        for each in stored
        if access.writes or not each.writes
    ]


def _invocation(stored: QueryTool, access: ToolAccess) -> Callable[[Json], Json]:
    def run(arguments: Json) -> Json:
        params = dict(arguments)
        branch = params.pop("branch", None)
        unknown = params.keys() - stored.schema["properties"].keys()
        if unknown:
            known = ", ".join(stored.schema["properties"]) or "none"
            raise InputError(
                f"`{stored.name}` has no parameter '{min(unknown)}'",
                hint=f"its parameters are: {known}",
            )
        if stored.writes:
            branch = _written_branch(branch, access)
        return _document(stored.invoke(params, branch), access)

    return run


def _adhoc(graph: AnyGraph, access: ToolAccess) -> list[Tool]:
    return [
        _tool(
            "graph_query",
            "Run a query that reads. Look at `graph_schema` first.",
            AdhocQuery,
            lambda given: _document(
                graph.query(given.query, given.params, branch=given.branch), access
            ),
        )
    ]


def _writing(graph: AnyGraph, access: ToolAccess) -> list[Tool]:
    # A server derives the actor from the token.
    actor = access.actor if isinstance(graph, Graph) else None

    def create(given: NewBranch) -> Json:
        access.require_writable(given.name)
        return graph.create_branch(given.name, given.from_, actor=actor).to_dict()

    def merge(given: Merge) -> Json:
        access.require_writable(given.into)
        return graph.merge_branch(given.source, given.into, actor=actor).to_dict()

    def mutate(given: AdhocQuery) -> Json:
        access.require_writable(given.branch)
        receipt = graph.mutate(given.query, given.params, branch=given.branch, actor=actor)
        return receipt.to_dict()

    where = f"Allowed: {access.shown()}."
    tools = [
        _tool(
            "graph_branch_create",
            f"Create a branch: changes on it reach others only by a merge. {where}",
            NewBranch,
            create,
            writes=True,
        ),
        _tool(
            "graph_branch_merge",
            f"Merge a branch into another one, as one commit. {where}",
            Merge,
            merge,
            writes=True,
        ),
    ]
    if access.adhoc:
        about = f"Run a query that inserts, updates or deletes, as one commit. {where}"
        tools.append(_tool("graph_mutate", about, AdhocQuery, mutate, writes=True))
    return tools


def _reviewing(graph: AnyGraph, access: ToolAccess) -> list[Tool]:
    """The tools for change requests; approving and merging only if allowed."""
    reviews = graph.reviews
    by: Any = {"actor": access.actor} if isinstance(graph, Graph) else {}

    def listed(given: ReviewsOfState) -> Json:
        state = None if given.state == "all" else given.state
        return reviews.list(state=state, page_token=given.page_token).to_dict()

    def comment(given: NewComment) -> Json:
        said = given.model_dump(exclude={"id", "text"})
        return reviews.comment(given.id, given.text, **said, **by).to_dict()

    tools = [
        _tool("list_reviews", "Change requests, newest first.", ReviewsOfState, listed),
        _tool(
            "show_review",
            "One change request: reviews, comments, checks, and what keeps it from being merged.",
            OfReview,
            lambda given: reviews.get(given.id).to_dict(),
        ),
    ]
    if access.writes or access.reviews:
        tools += [
            _tool(
                "open_review",
                "Ask people to look at a branch and to merge it.",
                NewReview,
                lambda given: reviews.open(
                    given.source,
                    given.into,
                    title=given.title,
                    description=given.description,
                    **by,
                ).to_dict(),
                writes=True,
            ),
            _tool(
                "comment_review", "Comment on a change request.", NewComment, comment, writes=True
            ),
        ]
    if access.reviews:
        tools += [
            _tool(
                "review_review",
                "Approve a change request, or ask for changes.",
                NewVerdict,
                lambda given: reviews.review(
                    given.id, given.verdict, text=given.text, **by
                ).to_dict(),
                writes=True,
            ),
            _tool(
                "merge_review",
                "Merge a change request, as one commit.",
                OfReview,
                lambda given: reviews.merge(given.id, **by).to_dict(),
                writes=True,
            ),
        ]
    return tools


# --- resources ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class McpResource:
    """A text for a model to read first."""

    about: FirstReading
    read: Callable[[], str]
    """The text; raises `OmnigraphError`."""


def resources_of(
    graph: AnyGraph, stored: Iterable[QueryTool], access: ToolAccess
) -> list[McpResource]:
    """The resources of a graph, computed from its schema when read."""
    offered = [each for each in stored if access.writes or not each.writes]

    def queries() -> str:
        listed = [
            {
                "name": each.name,
                "description": each.about,
                "writes": each.writes,
                "parameters": dict(each.schema),
            }
            for each in offered
        ]
        return orjson.dumps({"queries": listed}, option=orjson.OPT_INDENT_2).decode()

    return [
        McpResource(SCHEMA_READING, lambda: graph.schema_source),
        McpResource(PRIMER_READING, lambda: f"{primer(graph.schema_source)}\n{access.explained()}"),
        McpResource(QUERIES_READING, queries),
    ]


# --- parts ----------------------------------------------------------------------------------------


def _tool(
    name: str,
    about: str,
    model: type[Given],
    run: Callable[[Given], Json],
    *,
    writes: bool = False,
) -> Tool:
    def checked(arguments: Json) -> Json:
        try:
            given = model.model_validate(arguments)
        except ValidationError as problem:
            found = problem.errors(include_url=False)[0]
            place = ".".join(map(str, found["loc"]))
            known = ", ".join(field.alias or each for each, field in model.model_fields.items())
            raise InputError(
                f"argument `{place}`: {found['msg'].lower()}",
                hint=f"the arguments are: {known or 'none'}",
            ) from None
        return run(given)

    schema = model.model_json_schema()
    schema.pop("title", None)
    schema.pop("description", None)
    return Tool(name, about, schema, checked, writes)


def _with_branch(schema: Mapping[str, Any], writable: ToolAccess | None) -> Json:
    """A schema with the branch parameter, which for a write is required and limited."""
    if "branch" in schema["properties"]:
        return dict(schema)
    branch: Json = {"type": "string", "description": "the branch; main by default"}
    required = list(schema["required"])
    if writable is not None:
        branch["description"] = f"the branch to write to: {writable.shown()}"
        required.append("branch")
    return {
        **schema,
        "properties": {**schema["properties"], "branch": branch},
        "required": required,
    }


def _written_branch(branch: Any, access: ToolAccess) -> str:
    if not isinstance(branch, str):
        raise InputError("a write needs a branch", hint=f"name `branch`: {access.shown()}")
    access.require_writable(branch)
    return branch


def _document(found: Result | MutationReceipt, access: ToolAccess) -> Json:
    """The rows, up to the limit, or the counts of a write."""
    if isinstance(found, MutationReceipt):
        return found.to_dict()
    if found.row_count <= access.rows_max:
        return found.to_dict(safe_integers=True)
    shown = Result(
        found.to_arrow().slice(0, access.rows_max),
        query_name=found.query_name,
        target=found.target,
        graph_commit_id=found.graph_commit_id,
    ).to_dict(safe_integers=True)
    return shown | {"row_count": found.row_count, "rows_shown": access.rows_max}


# --- stored queries -------------------------------------------------------------------------------

Invoke = Callable[[Mapping[str, Any], str | None], Result | MutationReceipt]


@dataclass(frozen=True, slots=True)
class QueryTool:
    """A query that is called by its name."""

    name: str
    about: str
    writes: bool
    schema: Mapping[str, Any]
    """The JSON schema of its parameters."""
    invoke: Invoke
    """Runs it with parameters on a branch."""


def stored_in_files(
    graph: Graph, paths: Iterable[Path], actor: str | None = None
) -> list[QueryTool]:
    """The queries of `.gq` files, or of directories with such files, checked against a graph.

    Raises the first compile error, and `InputError` for a path that is neither.
    """
    found = []
    for file in query_files(paths):
        for signature in graph.describe_queries(file):
            run = _in_process(graph, file, signature.name, actor, writes=signature.is_mutation)
            found.append(_query_tool(signature, run))
    return found


def stored_on_server(graph: RemoteGraph) -> list[QueryTool]:
    """The stored queries of a server."""
    return [
        _query_tool(entry, _over_http(graph, entry.name, entry.is_mutation))
        for entry in graph.list_queries()
    ]


def _query_tool(signature: QuerySignature, invoke: Invoke) -> QueryTool:
    about = [text for text in (signature.description, signature.instruction) if text is not None]
    what = "Change the graph" if signature.is_mutation else "Read the graph"
    return QueryTool(
        signature.tool_name,
        "\n\n".join(about) or f"{what} with the stored query `{signature.name}`.",
        signature.is_mutation,
        signature.parameters_schema(),
        invoke,
    )


def _in_process(graph: Graph, file: Path, name: str, actor: str | None, *, writes: bool) -> Invoke:
    def invoke(params: Mapping[str, Any], branch: str | None) -> Result | MutationReceipt:
        if writes:
            return graph.mutate(file, params, name=name, branch=branch, actor=actor)
        return graph.query(file, params, name=name, branch=branch)

    return invoke


def _over_http(graph: RemoteGraph, name: str, writes: bool) -> Invoke:
    def invoke(params: Mapping[str, Any], branch: str | None) -> Result | MutationReceipt:
        return graph.invoke(name, params, branch=branch, expect_mutation=writes)

    return invoke
