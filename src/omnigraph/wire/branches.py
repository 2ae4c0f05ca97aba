"""Branches: listing, creating, deleting and merging them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from omnigraph.wire.base import Body, BranchName, Shape
from omnigraph.wire.commits import Commit


class BranchList(Shape):
    """The branches, sorted."""

    branches: list[str]


class CreateBranchRequest(Body):
    """A new branch at the head of another."""

    name: BranchName
    from_: BranchName | None = Field(None, alias="from", description="main when left out")


class BranchCreated(Shape):
    """A branch exists now."""

    uri: str
    from_: str = Field(alias="from")
    name: str
    actor_id: str | None


class BranchDeleted(Shape):
    """A branch is gone."""

    uri: str
    name: str
    actor_id: str | None


class MergeRequest(Body):
    """The merge of one branch into another."""

    source: BranchName
    target: BranchName | None = Field(None, description="main when left out")
    delete_branch: bool = Field(False, description="delete the source once the merge has landed")


class Merged(Shape):
    """How a merge ended; two fields are there only when deletion was asked for."""

    source: str
    target: str
    outcome: Literal["already_up_to_date", "fast_forward", "merged"]
    actor_id: str | None
    branch_deleted: bool | None = None
    branch_delete_error: str | None = None
    commit: Commit | None = Field(None, description="the merge; null when up to date")
