"""Graphs as Spark frames: `omnigraph.spark.register(session)`, then `format("omnigraph")`."""

from __future__ import annotations

from omnigraph.pipeline.data_source.source import OmnigraphSource, register
from omnigraph.pipeline.streaming import failure_of

__all__ = ["OmnigraphSource", "failure_of", "register"]
