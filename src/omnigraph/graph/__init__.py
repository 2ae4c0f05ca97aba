"""One open graph: making and opening it, and the object that everything is done with."""

from __future__ import annotations

from omnigraph.graph.blobs import Blob
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
from omnigraph.upkeep.automatic import VARIABLE as AUTO_OPTIMIZE_VARIABLE

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
