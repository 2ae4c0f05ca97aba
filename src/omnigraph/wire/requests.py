"""Requests: JSON bodies, validated strictly, and headers."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Self, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import ErrorDetails

from omnigraph.errors import InputError
from omnigraph.model.changes import ChangeOp
from omnigraph.model.editing import Language
from omnigraph.model.ids import EntityKind
from omnigraph.model.load_options import OnError
from omnigraph.model.merging import ConflictPolicy, MergeGranularity
from omnigraph.model.receipts import AbsentMeaning, LoadMode
from omnigraph.model.reviews import CheckState, ReviewVerdict

# --- headers and media types ----------------------------------------------------------------------

IF_GRAPH_COMMIT = "Omnigraph-If-Graph-Commit"
SNAPSHOT_ID = "Omnigraph-Snapshot-Id"
TIMEOUT = "Omnigraph-Timeout"
IDEMPOTENCY_KEY = "Idempotency-Key"
REPLAYED = "Idempotency-Replayed"
"""Marks a repeated answer to an earlier write with the same key."""
REQUEST_ID = "X-Request-Id"

JSON = "application/json"
NDJSON = "application/x-ndjson"
NDJSON_UTF8 = "application/x-ndjson; charset=utf-8"
ARROW_STREAM = "application/vnd.apache.arrow.stream"
OCTETS = "application/octet-stream"

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
_COMMIT_ID = re.compile(r"[A-Za-z0-9]+")


def is_request_id(text: str) -> bool:
    """Whether a caller's request id is valid."""
    return _REQUEST_ID.fullmatch(text) is not None


def expected_commit(values: Sequence[str]) -> str:
    """The expected commit of a conditional write, from all values of its header.

    Exactly one plain commit id is allowed: the list, wildcard and tag forms of HTTP have other
    meanings, and a write must not be ambiguous.
    """
    if len(values) != 1:
        found = "is missing" if not values else "was sent more than once"
        raise InputError(f"header `{IF_GRAPH_COMMIT}` {found}", hint="send one commit id in it")
    value = values[0].strip()
    if _COMMIT_ID.fullmatch(value) is None:
        raise InputError(
            f"header `{IF_GRAPH_COMMIT}` does not hold one commit id",
            hint="send the id bare: no quotes, no `W/`, no `*` and no list",
        )
    return value


def refuse_condition(values: Sequence[str]) -> None:
    """Raise `InputError` for a condition on a route that would ignore it."""
    if values:
        raise InputError(
            f"this route takes no `{IF_GRAPH_COMMIT}`",
            hint="conditional writes have routes of their own, which end in `/if-graph-commit`",
        )


# --- bodies ---------------------------------------------------------------------------------------

Document = TypeVar("Document", bound=BaseModel)


class Body(BaseModel):
    """What a caller sends. A field that is not declared is an error, and nothing is converted."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, populate_by_name=True)


def _trimmed(name: str) -> str:
    # Trim before policy and engine see the name, so that both see the same.
    trimmed = name.strip()
    if not trimmed:
        raise ValueError("is empty")
    return trimmed


BranchName = Annotated[str, AfterValidator(_trimmed), Field(min_length=1)]
"""A branch name, with surrounding space removed."""


def branch_name(text: str) -> str:
    """A branch from a path or a query string, trimmed; raises `InputError` if it is empty."""
    try:
        return _trimmed(text)
    except ValueError:
        raise InputError(
            "a branch name is empty", hint="name the branch, or leave it out"
        ) from None


Message = Annotated[str | None, Field(description="why; kept with the commit")]

Parameters = dict[str, Any]
"""Query parameters by name; the engine converts them to the declared types."""


def read_document(model: type[Document], document: object) -> Document:
    """Validate a JSON document; raises `InputError` naming the first bad field."""
    try:
        return model.model_validate(document)
    except ValidationError as problem:
        raise _refusal(model, problem.errors(include_url=False)[0]) from None


def _refusal(model: type[BaseModel], found: ErrorDetails) -> InputError:
    place = ".".join(str(part) for part in found["loc"])
    known = ", ".join(field.alias or name for name, field in model.model_fields.items())
    if found["type"] == "extra_forbidden":
        return InputError(f"unknown field `{place}`", hint=f"the fields are {known}")
    if found["type"] == "missing":
        return InputError(f"field `{place}` is missing", hint=f"the fields are {known}")
    reason = found["msg"].removeprefix("Value error, ")
    reason = reason[:1].lower() + reason[1:]
    if not place:
        return InputError(reason, hint=f"the fields are {known}")
    return InputError(f"field `{place}`: {reason}")


# --- queries --------------------------------------------------------------------------------------

_LEGACY_NAMES = {"query_source": "query", "query_name": "name"}


class OneTargetBody(Body):
    """What reads either the head of a branch or a snapshot."""

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        given = vars(self)
        if given.get("branch") is not None and given.get("snapshot") is not None:
            raise ValueError("`branch` and `snapshot` exclude each other")
        return self


class QueryRequest(OneTargetBody):
    """A read query with its source."""

    query: str = Field(description="the text of a query that reads")
    name: str | None = Field(default=None, description="which query, when the text has several")
    params: Parameters | None = None
    branch: BranchName | None = None
    snapshot: str | None = Field(
        default=None, description="a revision to read instead of a branch head"
    )
    explain: bool = Field(default=False, description="say also how the query ran")


class ExplainRequest(Body):
    """A query, read or write, whose plan is wanted."""

    query: str = Field(description="the text of a query")
    name: str | None = Field(default=None, description="which query, when the text has several")


class DescribeRequest(Body):
    """Queries whose names and parameters are wanted."""

    query: str = Field(description="the text of one or more queries")
    branch: BranchName | None = Field(
        default=None, description="whose schema they are checked against; main when left out"
    )


class SessionRequest(Body):
    """What a token is given for."""

    code: str = Field(description="the code that the server printed when it started")


class LanguageRequest(Body):
    """A text that is being written, and where its cursor is."""

    text: str = Field(description="a schema or queries, as far as they are written")
    language: Language = Field(description="gq for queries, pg for a schema")
    line: int | None = Field(default=None, description="of the cursor, from 1", ge=1)
    column: int | None = Field(default=None, description="of the cursor, from 1", ge=1)
    branch: BranchName | None = Field(
        default=None, description="whose schema names are looked up in; main when left out"
    )


class LegacyReadRequest(OneTargetBody):
    """A read query, with the field names of older clients."""

    query_source: str
    query_name: str | None = None
    params: Parameters | None = None
    branch: BranchName | None = None
    snapshot: str | None = None


class ChangeRequest(Body):
    """A write query with its source; older names of two fields are understood."""

    query: str = Field(description="the text of a query that writes")
    name: str | None = Field(default=None, description="which query, when the text has several")
    params: Parameters | None = None
    branch: BranchName | None = None
    operation_id: str | None = Field(
        default=None, description="names the write: repeating it returns the first receipt"
    )
    message: Message = None

    @model_validator(mode="before")
    @classmethod
    def _legacy_names(cls, document: Any) -> Any:
        if not isinstance(document, dict) or document.keys().isdisjoint(_LEGACY_NAMES):
            return document
        renamed = dict(document)
        for old, new in _LEGACY_NAMES.items():
            if old in renamed:
                if new in renamed:
                    raise ValueError(f"`{old}` is the older name of `{new}`; give one of them")
                renamed[new] = renamed.pop(old)
        return renamed


class InvokeRequest(OneTargetBody):
    """The invocation of a stored query; everything may be left out."""

    params: Parameters | None = None
    branch: BranchName | None = None
    snapshot: str | None = None
    expect_mutation: bool | None = Field(
        default=None, description="refuse unless the stored query writes, or unless it reads"
    )
    message: Message = None


# --- loads and exports ----------------------------------------------------------------------------


class LoadOptions(Body):
    """Where records go, and how."""

    branch: BranchName | None = Field(default=None, description="main when left out")
    from_: BranchName | None = Field(
        default=None, alias="from", description="where to create the branch from if it is missing"
    )
    mode: LoadMode = Field(default="merge", description="merge when left out")
    absent: AbsentMeaning = Field(
        default="keep",
        description="whether a merge keeps the stored values of properties that a record lacks, "
        "or replaces the whole entity (null); keep when left out",
    )
    replace_types: list[str] | None = Field(
        default=None, description="types that an overwrite empties if it has no records of them"
    )
    operation_id: str | None = Field(
        default=None, description="names the load: repeating it returns the first receipt"
    )
    message: Message = None
    dry_run: bool = Field(default=False, description="only say what would be written")
    max_errors: int | None = Field(
        default=None,
        description="how many problems of the input are told one by one",
        ge=1,
        le=100,
    )
    ignore_unknown: bool = Field(default=False, description="skip properties that the schema lacks")
    on_error: OnError = Field(
        default="fail",
        description="whether a bad record refuses the whole input (fail), or is left out with its "
        "edges and reported in the receipt (skip); fail when left out",
    )
    max_error_share: float | None = Field(
        default=None,
        description="the share of records that may be skipped; any when left out",
        ge=0,
        le=1,
    )
    map: list[str] | None = Field(
        default=None,
        description="what members of the data, or expressions over them, are called in the schema, "
        "each as `Type:member=property`; an empty property leaves out the member",
    )


class LoadRequest(LoadOptions):
    """Graph records as one text of JSON lines."""

    data: str


class ExportRequest(Body):
    """What to export."""

    branch: BranchName | None = None
    snapshot: str | None = Field(
        default=None, description="a revision of the branch to export instead of its head"
    )
    type_names: list[str] | None = Field(default=None, description="only these types")


class TableRequest(Body):
    """The rows of one type to read."""

    type: str = Field(description="the type: `Name`, `node:Name` or `edge:Name`")
    columns: list[str] | None = Field(default=None, description="only these, in this order")
    where: str | dict[str, Any] | None = Field(
        default=None,
        description="a condition as behind the `where` of an update, or values by property that "
        "must all be equal: null for null, an array for one of several",
    )
    branch: BranchName | None = Field(default=None, description="main when left out")
    snapshot: str | None = Field(
        default=None, description="a revision to read instead of a branch head"
    )
    rows: bool = Field(default=True, description="false: only the columns, and the commit")


# --- schema ---------------------------------------------------------------------------------------


class SchemaRequest(Body):
    """The schema a graph is to have."""

    schema_source: str
    allow_data_loss: bool = Field(default=False, description="drops are final")


class SchemaApplyRequest(SchemaRequest):
    """The schema a graph is to get."""

    message: Message = None


class SchemaRebaseRequest(Body):
    """The branch that is to have the schema of main."""

    branch: BranchName
    allow_data_loss: bool = Field(
        default=False, description="drop what main has dropped, also if the branch wrote to it"
    )
    dry_run: bool = Field(default=False, description="only say what would happen")


# --- branches and changes -------------------------------------------------------------------------


class CreateBranchRequest(Body):
    """A new branch at the head of another, or at any revision."""

    name: BranchName
    from_: BranchName | None = Field(
        default=None, alias="from", description="a branch or another revision; main when left out"
    )


class CreateTagRequest(Body):
    """A name for a commit."""

    name: BranchName
    revision: BranchName | None = Field(
        default=None, description="the commit; the head of main when left out"
    )


class PlanPageRequest(Body):
    """Which of the entities that a plan would change are listed."""

    page_token: str | None = Field(
        default=None, description="continues an answer that had more than one page"
    )
    limit: int | None = Field(default=None, description="entities a page", ge=1)
    limit_bytes: int | None = Field(default=None, description="target size of a page", ge=1)


class MergeRules(Body):
    """Two branches, and what happens where both changed one entity."""

    source: BranchName
    target: BranchName | None = Field(default=None, description="main when left out")
    on_conflict: ConflictPolicy = Field(default="fail", description="which side wins, or fail")
    on_conflict_of: dict[str, ConflictPolicy] | None = Field(
        default=None,
        description="the same for a type, an entity (`Type:id`), a property (`Type.property`) or "
        "a property of one entity (`Type.property:id`); the narrowest decides",
    )
    granularity: MergeGranularity = Field(
        default="entity",
        description="property: edits of different properties of one entity go together",
    )


class MergePlanRequest(MergeRules, PlanPageRequest):
    """The merge whose plan is wanted, and which page of it."""


class MergeRequest(MergeRules):
    """The merge of one branch into another."""

    delete_branch: bool = Field(
        default=False, description="delete the source once the merge has landed"
    )
    message: Message = None


class ReplayTarget(Body):
    """Where a commit is undone, or done once more."""

    branch: BranchName | None = Field(default=None, description="main when left out")


class ReplayRequest(ReplayTarget):
    """Where a commit is undone, or done once more, and why."""

    message: Message = None


class ReplayPlanRequest(ReplayTarget, PlanPageRequest):
    """The replay whose plan is wanted, and which page of it."""


class OpenReviewRequest(Body):
    """A change request to open."""

    source: BranchName = Field(description="the branch that is to be merged")
    target: BranchName | None = Field(default=None, description="main when left out")
    title: str | None = Field(default=None, description="the name of the source when left out")
    description: str | None = None


class EditReviewRequest(Body):
    """What a change request is to say about itself."""

    title: str | None = None
    description: str | None = None


class CommentRequest(Body):
    """A comment on a change request, or on a type, an entity or a property of its changes."""

    text: str
    type_name: str | None = Field(default=None, description="the type it is about")
    entity_id: str | None = Field(default=None, description="the entity it is about")
    property_name: str | None = Field(default=None, description="the property it is about")
    commit_id: str | None = Field(
        default=None, description="the commit that was looked at; the head when left out"
    )
    reply_to: str | None = Field(default=None, description="the comment it answers")


class ResolveRequest(Body):
    """Whether the thread of a comment is resolved."""

    resolved: bool = True


class VerdictRequest(Body):
    """A review of the head of a source."""

    verdict: ReviewVerdict
    text: str | None = None
    head: str | None = Field(
        default=None, description="the commit that was looked at; the head when left out"
    )


class RunChecksRequest(Body):
    """How to run the checks of a change request."""

    again: bool = Field(default=False, description="also what has run on this head already")


class ReportCheckRequest(Body):
    """How a check of another program went."""

    state: CheckState
    text: str | None = None
    rows: list[dict[str, Any]] | None = Field(
        default=None, description="what it found; the first 100 are kept"
    )
    head: str | None = Field(
        default=None, description="the commit that it ran on; the head when left out"
    )


class MergeReviewRequest(Body):
    """How a change request is merged."""

    on_conflict: ConflictPolicy = Field(default="fail", description="which side wins, or fail")
    on_conflict_of: dict[str, ConflictPolicy] | None = Field(
        default=None,
        description="the same for a type, an entity (`Type:id`), a property (`Type.property`) or "
        "a property of one entity (`Type.property:id`); the narrowest decides",
    )
    granularity: MergeGranularity = Field(
        default="entity",
        description="property: edits of different properties of one entity go together",
    )
    delete_branch: bool = Field(
        default=False, description="delete the source once the merge has landed"
    )
    message: str | None = Field(
        default=None, description="kept with the commit; the title when left out"
    )


class BaselineRequest(Body):
    """Which entities to stream, and what the cursor behind them is for."""

    branch: BranchName | None = None
    kind: list[EntityKind] | None = None
    type: list[str] | None = None
    op: list[ChangeOp] | None = None
