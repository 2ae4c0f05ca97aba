"""Upkeep: what keeps a graph fast and small, and never changes what a query returns."""
