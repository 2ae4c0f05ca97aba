"""Versions of what graphs write down."""

from __future__ import annotations

INTERNAL_SCHEMA_VERSION = 4
"""The layout of a graph's own tables: the newest one this version reads, and the one it writes."""
