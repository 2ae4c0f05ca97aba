"""Column names that no table may use, because the table format computes them itself."""

from __future__ import annotations

VIRTUAL_COLUMNS = frozenset(
    {
        "_rowid",
        "_rowaddr",
        "_rowoffset",
        "_row_created_at_version",
        "_row_last_updated_at_version",
    }
)
"""Exactly these; other names with the same beginnings are ordinary."""
