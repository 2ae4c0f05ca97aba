"""Commits."""

from __future__ import annotations

from pydantic import Field

from omnigraph.wire.base import Shape


class Commit(Shape):
    """One commit of a graph."""

    graph_commit_id: str
    graph_branch: str | None = Field(description="the branch it landed on; null is main")
    graph_manifest_version: int
    parent_commit_id: str | None
    merged_parent_commit_id: str | None
    actor_id: str | None
    created_at: int = Field(description="microseconds since 1970")
    message: str | None = Field(
        default=None, description="why it was written; left out if nobody said so"
    )


class CommitList(Shape):
    """The commits a branch's head reaches, newest first."""

    commits: list[Commit]
