"""The schema of a graph, and what a branch holds."""

from __future__ import annotations

from typing import Any, Literal

from omnigraph.wire.base import Body, Shape


class SchemaSource(Shape):
    """The accepted schema as it was written."""

    schema_source: str


class ApplySchemaRequest(Body):
    """The schema a graph is to have."""

    schema_source: str
    allow_data_loss: bool = False


class SchemaApplied(Shape):
    """How a schema apply ended; without steps nothing was applied."""

    uri: str
    supported: bool
    applied: bool
    step_count: int
    graph_manifest_version: int
    steps: list[dict[str, Any]]


class Dataset(Shape):
    """One type of a snapshot."""

    entity_kind: Literal["node", "edge"]
    type_name: str
    dataset_path: str
    published_dataset_version: int
    native_dataset_branch: str | None
    entity_count: int


class Snapshot(Shape):
    """What a branch holds at its head, by kind and type name."""

    graph_branch: str
    graph_manifest_version: int
    internal_schema_version: int
    datasets: list[Dataset]
