"""Graphs: creating and opening them, and the `Graph` object with all verbs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from omnigraph.graph.facade import Graph
from omnigraph.graph.opened import ENGINES, READERS_KEPT_MAX
from omnigraph.graph.opening import OpenMode, delete_graph, doctor, init, open_graph, scrub
from omnigraph.model.load_options import (
    CsvOptions,
    ErrorOptions,
    LoadObserver,
    LoadOrigin,
    SparkOptions,
)
from omnigraph.model.result import SnapshotSummary, TableSummary
from omnigraph.upkeep import AUTO_OPTIMIZE_VARIABLE

if TYPE_CHECKING:
    from omnigraph.graph.blobs import Blob

__all__ = [
    "AUTO_OPTIMIZE_VARIABLE",
    "ENGINES",
    "READERS_KEPT_MAX",
    "Blob",
    "CsvOptions",
    "ErrorOptions",
    "Graph",
    "LoadObserver",
    "LoadOrigin",
    "OpenMode",
    "SnapshotSummary",
    "SparkOptions",
    "TableSummary",
    "delete_graph",
    "doctor",
    "init",
    "open_graph",
    "scrub",
]


def __getattr__(name: str) -> object:
    """Import `Blob` on first use: most programs that open a graph never need it."""
    if name == "Blob":
        from omnigraph.graph.blobs import Blob

        return Blob
    raise AttributeError(f"module 'omnigraph.graph' has no attribute {name!r}")
