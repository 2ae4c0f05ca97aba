"""Lets every Spark session find the data source `omnigraph`: Spark looks for packages so named."""

from omnigraph.pipeline.data_source.source import OmnigraphSource as DefaultSource

__all__ = ["DefaultSource"]
