"""The Spark data source `omnigraph`: frames of a graph, read and written."""
