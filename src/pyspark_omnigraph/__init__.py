"""The data source `omnigraph` for every Spark session: Spark imports packages `pyspark_*`."""

from omnigraph.spark import DecidedSource as DefaultSource

__all__ = ["DefaultSource"]
