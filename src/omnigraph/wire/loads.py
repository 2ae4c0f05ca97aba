"""Loading graph records, and exporting them."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from omnigraph.wire.base import Body, BranchName, Shape
from omnigraph.wire.commits import Commit

LoadMode = Literal["append", "merge", "overwrite"]


class LoadOptions(Body):
    """Where records go, and how."""

    branch: BranchName | None = None
    from_: BranchName | None = Field(
        None, alias="from", description="where to create the branch from if it is missing"
    )
    mode: LoadMode = "merge"


class LoadRequest(LoadOptions):
    """Graph records as one text of JSON lines."""

    data: str


class LoadedType(Shape):
    """What a load did to one type."""

    name: str
    entities_loaded: int


class Loaded(Shape):
    """What a load did; ``commit`` is null when nothing changed."""

    branch: str
    base_branch: str | None
    branch_created: bool
    mode: LoadMode
    nodes: list[LoadedType]
    edges: list[LoadedType]
    total_entities: int
    actor_id: str | None
    commit: Commit | None


class LoadedAt(Loaded):
    """The same with the place of the graph."""

    uri: str


class ExportRequest(Body):
    """What to export."""

    branch: BranchName | None = None
    type_names: list[str] | None = Field(None, description="only these types")
