"""Graphs as Spark frames: `omnigraph.spark.register(session)`, then `format("omnigraph")`."""

from __future__ import annotations

from omnigraph.pipeline.data_source.source import OmnigraphSource, register

__all__ = ["OmnigraphSource", "register"]
