"""What a server says about itself."""

from __future__ import annotations

from typing import Literal

from omnigraph.wire.base import Shape


class Health(Shape):
    """The process is alive."""

    status: Literal["ok"]
    version: str
    internal_schema_version: int
    source_version: str | None = None


class Ready(Shape):
    """Whether the process takes work, and how many graphs it serves."""

    status: Literal["ready", "starting", "draining"]
    graphs_ready: int
    graphs_quarantined: int


class ServedGraph(Shape):
    """One graph of a server."""

    graph_id: str
    uri: str


class GraphList(Shape):
    """The graphs of a server, by id."""

    graphs: list[ServedGraph]
