"""Spark structured streaming: micro-batches into a graph, and its change feed out of it."""
