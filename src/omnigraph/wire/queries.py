"""Reading and writing with queries, sent along or stored on the server."""

from __future__ import annotations

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from omnigraph.wire.base import Body, BranchName, Parameters, Shape
from omnigraph.wire.commits import Commit

_LEGACY_NAMES = {"query_source": "query", "query_name": "name"}


def require_one_target(branch: str | None, snapshot: str | None) -> None:
    """Raise `ValueError` when both a branch and a snapshot are named."""
    if branch is not None and snapshot is not None:
        raise ValueError("`branch` and `snapshot` exclude each other")


class QueryRequest(Body):
    """A read query with its source."""

    query: str = Field(description="the text of a query that reads")
    name: str | None = Field(None, description="which query, when the text has several")
    params: Parameters | None = None
    branch: BranchName | None = None
    snapshot: str | None = Field(None, description="a commit id to read instead of a branch head")

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        require_one_target(self.branch, self.snapshot)
        return self


class LegacyReadRequest(Body):
    """A read query, in the words of older clients."""

    query_source: str
    query_name: str | None = None
    params: Parameters | None = None
    branch: BranchName | None = None
    snapshot: str | None = None

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        require_one_target(self.branch, self.snapshot)
        return self


class ChangeRequest(Body):
    """A write query with its source; older names of two fields are understood."""

    query: str = Field(description="the text of a query that writes")
    name: str | None = Field(None, description="which query, when the text has several")
    params: Parameters | None = None
    branch: BranchName | None = None

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


class InvokeRequest(Body):
    """The invocation of a stored query; everything may be left out."""

    params: Parameters | None = None
    branch: BranchName | None = None
    snapshot: str | None = None
    expect_mutation: bool | None = Field(
        None, description="refuse unless the stored query writes, or unless it reads"
    )

    @model_validator(mode="after")
    def _one_target(self) -> Self:
        require_one_target(self.branch, self.snapshot)
        return self


class Target(Shape):
    """What was read: one of the two is null."""

    branch: str | None
    snapshot: str | None


class Read(Shape):
    """The rows of a read query."""

    query_name: str
    target: Target
    row_count: int
    columns: list[str] | None = None
    rows: list[dict[str, Any]]
    graph_commit_id: str | None = Field(None, description="the head of the very version read")


class Changed(Shape):
    """What a write query did; ``commit`` is null when nothing changed."""

    branch: str
    query_name: str
    affected_nodes: int
    affected_edges: int
    actor_id: str | None
    commit: Commit | None


ParameterKind = Literal[
    "string", "bool", "int", "bigint", "float", "date", "datetime", "blob", "vector", "list"
]


class QueryParameter(Shape):
    """One parameter of a stored query."""

    name: str
    kind: ParameterKind
    item_kind: str | None = None
    vector_dim: int | None = None
    nullable: bool


class QueryEntry(Shape):
    """One stored query."""

    name: str
    tool_name: str
    description: str | None = None
    instruction: str | None = None
    mutation: bool
    params: list[QueryParameter]


class QueryCatalog(Shape):
    """Every stored query of a graph."""

    queries: list[QueryEntry]
