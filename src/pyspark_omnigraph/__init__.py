"""Lets every Spark session find the data source `omnigraph`: Spark looks for packages so named."""

from omnigraph.spark import DecidedSource as DefaultSource

__all__ = ["DefaultSource"]
