"""Column names that no table may use, because the table format computes them itself."""

from __future__ import annotations

ROW_ID = "_rowid"
ROW_ADDRESS = "_rowaddr"
LAST_UPDATED_AT = "_row_last_updated_at_version"

VIRTUAL_COLUMNS = frozenset(
    {ROW_ID, ROW_ADDRESS, "_rowoffset", "_row_created_at_version", LAST_UPDATED_AT}
)
"""Exactly these; other names with the same beginnings are ordinary."""
