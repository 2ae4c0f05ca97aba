"""What commits changed: the diff of one, the feed of a branch, and the baseline to start from."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from omnigraph.wire.base import Body, BranchName, Shape

EntityKind = Literal["node", "edge"]
Operation = Literal["insert", "update", "delete"]


class Cause(Shape):
    """The commit behind a block of changes."""

    graph_commit_id: str
    parent_commit_id: str | None = None
    merged_parent_commit_id: str | None = None
    authored_branch: str
    actor_id: str | None = None
    authored_at: int = Field(description="microseconds since 1970")


class TypeIdentity(Shape):
    """A type: its id survives a rename, its name is the one of that commit."""

    id: str
    name: str


class Endpoints(Shape):
    """What an edge joins."""

    from_: str = Field(alias="from")
    to: str


class Image(Shape):
    """An entity as it was or became."""

    properties: dict[str, Any]
    endpoints: Endpoints | None = None


class Change(Shape):
    """One entity that changed."""

    kind: EntityKind
    type: TypeIdentity
    id: str
    op: Operation
    before: Image | None = None
    after: Image | None = None


class ChangeBlock(Shape):
    """The changes of one commit."""

    cause: Cause
    changes: list[Change]


class DiffPage(ChangeBlock):
    """A page of one commit's changes."""

    next_page_token: str | None = None


class FeedPage(Shape):
    """A page of a branch's changes; the cursor comes only with the last page of a poll."""

    blocks: list[ChangeBlock]
    next_page_token: str | None = None
    cursor: str | None = None
    caught_up: bool | None = None


class BaselineRequest(Body):
    """Which entities to stream, and what the cursor behind them is for."""

    branch: BranchName | None = None
    kind: list[EntityKind] | None = None
    type: list[str] | None = None
    op: list[Operation] | None = None
