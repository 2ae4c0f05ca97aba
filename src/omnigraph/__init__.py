"""Omnigraph: a typed property graph kept as Lance tables, with git-style branches."""

__version__ = "0.1.0"
